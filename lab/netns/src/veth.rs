//! A cable: two veth interfaces, each in its namespace, ready to carry frames and otherwise silent.
//!
//! Both ends are made in place (never in the machine's own namespace), their offloads set before the first frame can
//! pass, and each knows its peer by permanent neighbour entries, so no ARP or neighbour discovery ever runs. Without an
//! IPv6 address, IPv6 is off on the interface and the cable stays absolutely silent; with one, the kernel sends a few
//! multicast listener reports in the first seconds (there is no link-local address beyond those asked for).
//!
//! Dropping a [`VethPair`] deletes both ends. It attaches no XDP program: remember that XDP_TX towards an end without
//! one loses frames.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::interface::{Offloads, check_name, queue_count, set_offloads, wait_for_carrier};
use crate::namespace::{Namespace, WeakNamespace};
use crate::tool::IP;
use crate::{AddressError, Error};
use laneway_linux::{Cidr, Mac};

/// Smallest and largest MTU veth takes, bytes.
const MTU_BYTES: (u32, u32) = (68, 65_535);
/// Most queues per direction: more than any machine this lab is for has cores.
const QUEUES_MAX: u32 = 64;
/// Most IP addresses per end.
const ADDRESSES_MAX: usize = 16;

/// The next pair's interface numbers. Left alone, the kernel numbers both ends alike (each namespace counts from 1),
/// and it announces a link whose number equals its peer's up to a second late, as not urgent.
static NEXT_IFINDEX: AtomicU32 = AtomicU32::new(1_000);

/// One end of a cable, as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethEnd {
    /// Its hardware address.
    pub mac: Mac,
    /// Its IP addresses, at most 16; IPv6 is off if none is IPv6.
    pub addresses: Vec<Cidr>,
    /// Its offloads.
    pub offloads: Offloads,
}

impl VethEnd {
    /// An end with the default offloads; addresses as text, as in `["10.0.0.1/24", "fd00::1/64"]`.
    pub fn new(mac: Mac, addresses: &[&str]) -> Result<VethEnd, AddressError> {
        let addresses = addresses.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok(VethEnd { mac, addresses, offloads: Offloads::default() })
    }
}

/// A cable, as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethOptions {
    /// MTU of both ends, bytes, 68 to 65535. Native XDP without multi-buffer takes about 3500 at most.
    pub mtu_bytes: u32,
    /// Receive and transmit queues of both ends, 1 to 64.
    pub queues: u32,
    /// The first end.
    pub a: VethEnd,
    /// The second end.
    pub b: VethEnd,
}

impl Default for VethOptions {
    /// One queue, MTU 1500, `10.77.0.1/24` at `02:4c:57:00:00:01` to `10.77.0.2/24` at `02:4c:57:00:00:02`.
    fn default() -> Self {
        let end = |last: u8| {
            let address = Cidr::new([10, 77, 0, last], 24).expect("24 bits fit IPv4");
            VethEnd {
                mac: Mac([0x02, 0x4c, 0x57, 0, 0, last]),
                addresses: vec![address],
                offloads: Offloads::default(),
            }
        };
        VethOptions { mtu_bytes: 1_500, queues: 1, a: end(1), b: end(2) }
    }
}

impl VethOptions {
    fn check(&self) -> Result<(), Error> {
        check_range("mtu_bytes", self.mtu_bytes, MTU_BYTES)?;
        check_range("queues", self.queues, (1, QUEUES_MAX))?;
        for end in [&self.a, &self.b] {
            if !end.mac.is_assignable() {
                return Err(Error::BadName {
                    what: "hardware address",
                    name: end.mac.to_string(),
                    rule: "must not be zero or a group address; try 02:00:00:00:00:01",
                });
            }
            if end.addresses.len() > ADDRESSES_MAX {
                return Err(Error::OutOfRange {
                    what: "number of addresses",
                    value: end.addresses.len() as u64,
                    min: 0,
                    max: ADDRESSES_MAX as u64,
                });
            }
        }
        if self.a.mac == self.b.mac {
            return Err(Error::Conflict("both ends of a veth pair have the same MAC; change one"));
        }
        Ok(())
    }
}

fn check_range(what: &'static str, value: u32, (min, max): (u32, u32)) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(Error::OutOfRange { what, value: value.into(), min: min.into(), max: max.into() })
    }
}

/// Two joined interfaces in two namespaces, deleted when dropped.
#[derive(Debug)]
pub struct VethPair {
    namespace: WeakNamespace,
    interface: String,
    /// The second end: where it lies, and its name.
    far: (WeakNamespace, String),
    options: VethOptions,
}

impl VethPair {
    /// Lays the cable from `name_a` in `namespace_a` to `name_b` in `namespace_b` and waits until both ends are up.
    pub fn create(
        namespace_a: &Namespace,
        name_a: &str,
        namespace_b: &Namespace,
        name_b: &str,
        options: &VethOptions,
    ) -> Result<VethPair, Error> {
        check_name(name_a)?;
        check_name(name_b)?;
        options.check()?;

        let mtu = options.mtu_bytes.to_string();
        let queues = options.queues.to_string();
        // Only uniqueness matters, hence no ordering with anything else.
        let index_a = NEXT_IFINDEX.fetch_add(2, Ordering::Relaxed);
        let (index_a, index_b) = (index_a.to_string(), (index_a + 1).to_string());
        let (mac_a, mac_b) = (options.a.mac.to_string(), options.b.mac.to_string());
        let far = namespace_b.path().display().to_string();
        let common = ["mtu", &mtu, "numtxqueues", &queues, "numrxqueues", &queues];
        let mut link = vec!["link", "add", name_a, "index", &index_a, "address", &mac_a];
        link.extend(common);
        link.extend(["type", "veth", "peer", "name", name_b]);
        link.extend(["netns", &far, "index", &index_b, "address", &mac_b]);
        link.extend(common);
        namespace_a.enter(|| IP.run(&link))??;
        // From here on a failure drops the value, and so the link.
        let pair = VethPair {
            namespace: namespace_a.downgrade(),
            interface: name_a.to_owned(),
            far: (namespace_b.downgrade(), name_b.to_owned()),
            options: options.clone(),
        };

        let (a, b) = (&options.a, &options.b);
        // Both, before either comes up: an end learns then, and only then, whether its peer's NAPI (GRO) lets it be the
        // target of an XDP redirect. In the other order every redirected frame is refused with EOPNOTSUPP.
        namespace_a.enter(|| set_offloads(name_a, a.offloads))??;
        namespace_b.enter(|| set_offloads(name_b, b.offloads))??;
        namespace_a.enter(|| configure(name_a, a, b, options.queues))??;
        namespace_b.enter(|| configure(name_b, b, a, options.queues))??;
        namespace_a.enter(|| wait_for_carrier(name_a))??;
        namespace_b.enter(|| wait_for_carrier(name_b))??;
        Ok(pair)
    }

    /// Enters the first end's addresses at the second end again, as permanent neighbours.
    ///
    /// A program there may have cost them: when an interface's hardware address is set, to the same one too, the kernel
    /// forgets all its neighbours, permanent ones included (neigh_changeaddr in net/core/neighbour.c). DPDK's
    /// net_af_packet sets it at each start.
    pub fn renew_neighbours(&self) -> Result<(), Error> {
        let (namespace, interface) = &self.far;
        let VethOptions { a, b, .. } = &self.options;
        // In a namespace that is gone is nothing to be done.
        namespace.enter(|| enter_neighbours(interface, b, a)).unwrap_or(Ok(Ok(())))?
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // A namespace that went first took the link along: then there is nothing to do.
        let _ = self.namespace.enter(|| IP.run(&["link", "del", "dev", self.interface.as_str()]));
    }
}

/// Sets up one end and turns it on. Acts on the current namespace.
fn configure(interface: &str, own: &VethEnd, peer: &VethEnd, queues: u32) -> Result<(), Error> {
    for kind in ["rx-", "tx-"] {
        let got = queue_count(interface, kind)?;
        if got != queues {
            return Err(Error::NotApplied {
                setting: format!("number of {kind}queues"),
                interface: interface.to_owned(),
                asked: queues.to_string(),
                got: got.to_string(),
            });
        }
    }
    let has_ipv6 = own.addresses.iter().any(|cidr| cidr.address().is_ipv6());
    // addr_gen_mode 1: no link-local address of the kernel's choosing, hence nothing announced for it.
    let (setting, value) = if has_ipv6 { ("addr_gen_mode", "1") } else { ("disable_ipv6", "1") };
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/{setting}");
    match fs::write(&path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has_ipv6 => {} // a kernel without IPv6
        result => result.map_err(Error::path("write 1 to", path))?,
    }

    for cidr in &own.addresses {
        IP.run(&["address", "add", &cidr.to_string(), "dev", interface])?;
    }
    IP.run(&["link", "set", "dev", interface, "up"])?;
    enter_neighbours(interface, own, peer)
}

/// Enters the peer's addresses as permanent neighbours. Acts on the current namespace.
fn enter_neighbours(interface: &str, own: &VethEnd, peer: &VethEnd) -> Result<(), Error> {
    let has_ipv6 = own.addresses.iter().any(|cidr| cidr.address().is_ipv6());
    // A neighbour of a family this end does not speak would be refused.
    let reachable = peer.addresses.iter().filter(|cidr| cidr.address().is_ipv4() || has_ipv6);
    for cidr in reachable {
        let (address, mac) = (cidr.address().to_string(), peer.mac.to_string());
        let entry = [&address, "lladdr", &mac, "dev", interface, "nud", "permanent"];
        IP.run(&[["neighbour", "replace"].as_slice(), &entry].concat())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_values_out_of_range_before_touching_the_kernel() {
        let check = |change: fn(&mut VethOptions), part: &str| {
            let mut options = VethOptions::default();
            change(&mut options);
            let sentence = options.check().expect_err(part).to_string();
            assert!(sentence.contains(part), "{sentence}");
        };
        check(|options| options.mtu_bytes = 67, "mtu_bytes 67");
        check(|options| options.queues = 0, "queues 0");
        check(|options| options.queues = 65, "1 to 64");
        check(|options| options.a.mac = Mac([1, 0, 0, 0, 0, 1]), "group address");
        check(|options| options.b.mac = options.a.mac, "same MAC");
        check(|options| options.b.addresses = vec![options.b.addresses[0]; 17], "addresses 17");
        VethOptions::default().check().expect("the default is valid");
    }
}
