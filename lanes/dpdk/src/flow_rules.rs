//! Rules that ports execute themselves: rte_flow, through the shim.
//!
//! A [`PortRule`] has its headers as they stand on the wire, which is how rte_flow's items lie in memory,
//! so the shim only puts each behind its type. A rule is validated first and then created, always with
//! everything that was asked for; a driver's refusal comes back in its own words, and a field that the
//! driver is known to take for something else is refused before it is asked (`Device::misreads`).
//!
//! What must always hold: a rule is in the port while [`FlowRules`] knows it, and the driver is asked once
//! to take it away: net_tap forgets it even when it says that it failed, so a second try would use freed
//! memory. DPDK promises that rules go in the reverse order of their coming only; if one did not, its port
//! is flushed once no rule of it is wanted any more. The ports stay open as long as a caller may still take
//! a rule away. It judges no rule: whether the frames that it matches are the right ones is the caller's to
//! prove, and what a port takes for a header is the port's affair (net_tap's is the kernel's tc flower,
//! which takes a later fragment for UDP).

use crate::{
    DpdkPorts,
    eal::Eal,
    shim::{Shim, ShimItem, ShimRule},
};
use laneway_flow::{
    HEADER_BYTES_MAX, HEADERS_MAX, HeaderMatch, Offload, PortAction, PortHits, PortRule,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ffi::{c_int, c_void},
};

/// Bytes of a driver's refusal that are kept.
const WHY_BYTES_MAX: usize = 256;

/// Bits of [`ShimRule::actions`], as in the C file.
mod does {
    pub(super) const DROP: u32 = 1;
    pub(super) const QUEUE: u32 = 2;
    pub(super) const MARK: u32 = 4;
    pub(super) const COUNT: u32 = 8;
}

impl ShimRule {
    /// The rule in C.
    ///
    /// # Errors
    /// What the shim has no place for.
    fn of(rule: &PortRule) -> Result<ShimRule, String> {
        if rule.pattern.len() > HEADERS_MAX {
            let headers = rule.pattern.len();
            return Err(format!("it has {headers} headers, and {HEADERS_MAX} are the most"));
        }
        let zeros = [0; HEADER_BYTES_MAX];
        let none = ShimItem { header: 0, spec: zeros, last: zeros, mask: zeros };
        let mut shim = ShimRule {
            priority: rule.priority,
            items: rule.pattern.len() as u32,
            actions: 0,
            mark: 0,
            queue: 0,
            zeros: [0; 3],
            item: [none; HEADERS_MAX],
        };
        for (to, from) in shim.item.iter_mut().zip(&rule.pattern) {
            let HeaderMatch { header, spec, last, mask } = *from;
            *to = ShimItem { header: header as u32, spec, last, mask };
        }
        for action in &rule.actions {
            let bit = match action {
                PortAction::Drop => does::DROP,
                PortAction::Queue(queue) => {
                    shim.queue = *queue;
                    does::QUEUE
                }
                PortAction::Mark(mark) => {
                    shim.mark = *mark;
                    does::MARK
                }
                PortAction::Count => does::COUNT,
            };
            if shim.actions & bit != 0 {
                return Err("it says one of its actions twice".to_owned());
            }
            shim.actions |= bit;
        }
        Ok(shim)
    }
}

/// A rule in a port.
struct Flow {
    handle: *mut c_void,
    has_count: bool,
    /// Rules that were added later have higher ones.
    serial: u64,
}

// SAFETY: rte_flow's calls may come from any thread, one at a time per port; all of ours are made with
// the lock of DPDK's set-up calls held.
unsafe impl Send for Flow {}

/// The rules of opened ports, by the ports' order and the caller's numbers. Keeps the ports open; takes
/// all its rules away when dropped.
pub struct FlowRules {
    eal: &'static Eal,
    /// By port: DPDK's number of it.
    numbers: Vec<u16>,
    flows: BTreeMap<(u16, u32), Flow>,
    /// Ports that may have rules which were to go.
    littered: BTreeSet<u16>,
    serial: u64,
    // Dropped last: the rules are gone by then.
    ports: DpdkPorts,
}

impl FlowRules {
    /// No rules yet, in any of `ports`.
    pub fn new(ports: &DpdkPorts) -> FlowRules {
        FlowRules {
            eal: ports.eal(),
            numbers: ports.numbers(),
            flows: BTreeMap::new(),
            littered: BTreeSet::new(),
            serial: 0,
            ports: ports.clone(),
        }
    }

    /// How many rules the ports have.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// True when no port has a rule.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// What DPDK would be given for a rule, in words: items and actions as DPDK itself copies and names
    /// them. No port is touched.
    ///
    /// # Errors
    /// What cannot be expressed to a port, or what DPDK finds wrong.
    pub fn describe(&self, rule: &PortRule) -> Result<String, String> {
        describe(&self.eal.shim, rule)
    }

    /// Takes a rule away, which is in no list any more.
    fn destroy(&mut self, port: u16, flow: Flow) {
        let Some(&number) = self.numbers.get(usize::from(port)) else { return };
        let is_last = self.flows.range((port, 0)..=(port, u32::MAX)).next().is_none();
        let setup = self.eal.setup();
        // SAFETY: a port that is open, and a rule of it that was created and is destroyed once. Whatever
        // the driver says, it is not used again.
        let code = unsafe { (setup.shim().flow_destroy)(number, flow.handle) };
        if code < 0 {
            self.littered.insert(port);
        }
        if is_last && self.littered.remove(&port) {
            // SAFETY: an open port, whose rules are all ours; none is used any more. What even this
            // leaves ends with the port.
            unsafe { (setup.shim().flow_flush)(number) };
        }
    }

    fn query(&self, port: u16, flow: &Flow) -> PortHits {
        let Some(number) = self.numbers.get(usize::from(port)).filter(|_| flow.has_count) else {
            return PortHits::default();
        };
        let mut hits = PortHits::default();
        let setup = self.eal.setup();
        // SAFETY: an open port, a rule that it has, and room for two numbers; they stay zero where the
        // driver does not say.
        unsafe {
            (setup.shim().flow_query)(*number, flow.handle, &mut hits.frames, &mut hits.bytes)
        };
        hits
    }
}

impl Offload for FlowRules {
    fn install(&mut self, port: u16, id: u32, rule: &PortRule) -> Result<(), String> {
        let Some(&number) = self.numbers.get(usize::from(port)) else {
            return Err(format!("there is no port {port}; there are {}", self.numbers.len()));
        };
        if self.flows.contains_key(&(port, id)) {
            return Err(format!("it has a rule #{id} already"));
        }
        if let Some(why) = self.ports.device().misreads(rule) {
            return Err(why);
        }
        let shim_rule = ShimRule::of(rule)?;
        let mut handle = std::ptr::null_mut();
        let mut why = [0u8; WHY_BYTES_MAX];
        let setup = self.eal.setup();
        // SAFETY: an open port, a whole rule, and room for a handle and for as many bytes as are stated.
        let code = unsafe {
            (setup.shim().flow_create)(number, &shim_rule, &mut handle, why.as_mut_ptr(), why.len())
        };
        drop(setup);
        if code < 0 || handle.is_null() {
            return Err(words_of(&why));
        }
        let has_count = shim_rule.actions & does::COUNT != 0;
        self.serial += 1;
        self.flows.insert((port, id), Flow { handle, has_count, serial: self.serial });
        Ok(())
    }

    fn remove(&mut self, port: u16, id: u32) -> PortHits {
        let Some(flow) = self.flows.remove(&(port, id)) else { return PortHits::default() };
        let hits = self.query(port, &flow);
        self.destroy(port, flow);
        hits
    }

    fn hits(&self, port: u16, id: u32) -> PortHits {
        self.flows.get(&(port, id)).map_or_else(PortHits::default, |flow| self.query(port, flow))
    }
}

impl Drop for FlowRules {
    fn drop(&mut self) {
        let mut order: Vec<_> = self.flows.iter().map(|(key, flow)| (flow.serial, *key)).collect();
        order.sort_by_key(|(serial, _)| Reverse(*serial));
        for (_, key) in order {
            if let Some(flow) = self.flows.remove(&key) {
                self.destroy(key.0, flow);
            }
        }
    }
}

/// A driver's words.
fn words_of(why: &[u8]) -> String {
    let text = why.split(|byte| *byte == 0).next().unwrap_or_default();
    match text.is_empty() {
        true => "its driver gives no reason".to_owned(),
        false => String::from_utf8_lossy(text).into_owned(),
    }
}

fn describe(shim: &Shim, rule: &PortRule) -> Result<String, String> {
    let rule = ShimRule::of(rule)?;
    let mut text = vec![0u8; 4096];
    // SAFETY: a whole rule and room for as many bytes as are stated. No port is touched.
    let code: c_int = unsafe { (shim.flow_describe)(&rule, text.as_mut_ptr(), text.len()) };
    if code < 0 {
        return Err(format!("DPDK does not take the arrays: error {code}"));
    }
    Ok(words_of(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_flow::Header;
    use laneway_testkit::skip;

    /// DPDK's own view of a rule; `None`, and says so, where DPDK is not here.
    fn described(rule: &PortRule) -> Option<String> {
        match Shim::load() {
            Ok(shim) => Some(describe(&shim, rule).unwrap_or_else(|e| panic!("{e}"))),
            Err(error) => {
                skip(error);
                None
            }
        }
    }

    /// From which byte on; first value, last value, mask.
    type Ask<'a> = (usize, &'a [u8], &'a [u8], &'a [u8]);

    fn header(header: Header, asks: &[Ask<'_>]) -> HeaderMatch {
        let mut any = HeaderMatch::any(header);
        asks.iter().for_each(|(at, spec, last, mask)| any.ask(*at, spec, last, mask));
        any
    }

    #[test]
    fn a_rule_becomes_the_items_and_actions_that_it_says() {
        let rule = PortRule {
            priority: 7,
            pattern: vec![
                header(Header::Eth, &[(0, &[2, 0, 0, 0, 0, 9], &[2, 0, 0, 0, 0, 9], &[0xff; 6])]),
                header(Header::Vlan, &[(0, &[0, 5], &[0, 5], &[0x0f, 0xff])]),
                header(Header::Ipv4, &[(12, &[10, 0, 0, 0], &[10, 0, 0, 0], &[0xff, 0, 0, 0])]),
                header(Header::Udp, &[(2, &[0, 53], &[0, 60], &[0xff; 2])]),
            ],
            actions: vec![PortAction::Drop, PortAction::Count],
        };
        let Some(text) = described(&rule) else { return };
        assert_eq!(
            text,
            "ingress priority 7\n\
             ETH spec 0200000000090000000000000000 mask ffffffffffff0000000000000000\n\
             VLAN spec 00050000 mask 0fff0000\n\
             IPV4 spec 0000000000000000000000000a00000000000000 mask \
             000000000000000000000000ff00000000000000\n\
             UDP spec 0000003500000000 last 0000003c00000000 mask 0000ffff00000000\n\
             END\n\
             COUNT by counter 0\nDROP\nEND\n"
        );
    }

    #[test]
    fn every_header_has_its_item_and_one_that_asks_for_nothing_has_no_spec() {
        for (kind, name) in [
            (Header::Eth, "ETH"),
            (Header::Vlan, "VLAN"),
            (Header::Ipv4, "IPV4"),
            (Header::Ipv6, "IPV6"),
            (Header::Tcp, "TCP"),
            (Header::Udp, "UDP"),
            (Header::Icmp, "ICMP"),
            (Header::Icmp6, "ICMP6"),
            (Header::Vxlan, "VXLAN"),
        ] {
            let last = kind.bytes() - 1;
            let whole = header(kind, &[(0, &[1], &[1], &[3]), (last, &[4], &[4], &[4])]);
            let rule = PortRule {
                priority: 0,
                pattern: vec![whole, HeaderMatch::any(kind)],
                actions: vec![PortAction::Mark(0x1234), PortAction::Queue(3)],
            };
            let Some(text) = described(&rule) else { return };
            let middle = "00".repeat(last - 1);
            assert_eq!(
                text,
                format!(
                    "ingress priority 0\n{name} spec 01{middle}04 mask 03{middle}04\n{name}\nEND\n\
                     MARK 4660\nQUEUE 3\nEND\n"
                )
            );
        }
    }

    #[test]
    fn what_has_no_place_in_the_arrays_is_refused_whole() {
        let rule = |pattern: Vec<HeaderMatch>, actions: Vec<PortAction>| {
            ShimRule::of(&PortRule { priority: 0, pattern, actions }).err().unwrap_or_default()
        };
        let vlans = vec![HeaderMatch::any(Header::Vlan); HEADERS_MAX + 1];
        assert!(rule(vlans, vec![PortAction::Drop]).contains("8 are the most"));
        let twice = vec![PortAction::Queue(1), PortAction::Queue(2)];
        assert!(rule(Vec::new(), twice).contains("twice"));
    }
}
