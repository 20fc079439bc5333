//! The bench of an arm: one or two cables between two namespaces of its own, the CPU meter that all benches of a race
//! share, and who runs where.
//!
//! ```text
//!   generator ── gen0 ═══════ sut0 ── arm ── sut1 ═══════ gen1 ── far end (apps `across`, `forward`)
//!                  └── far end (apps `bounce` and `echo`)
//! ```
//!
//! An arm whose ports are TAP devices has a wire of its own: see [`crate::wire`].
//!
//! Dropping it removes everything.

use crate::arrivals::Arrivals;
use crate::meter::{self, Meter, Owner};
use crate::plan::SegmentPlan;
use crate::race::RaceError;
use crate::replies::Replies;
use crate::result::Placement;
use crate::returns::Returns;
use crate::traffic::TrafficPlan;
use crate::wire::Came;
use laneway_kinds::{AppFacts, Counted};
use laneway_netns::{
    Mac, Namespace, Topology, TopologyOptions, TopologyRecord, VethEnd, VethOptions, VethPair,
    driver_counters, interface_counters, napi_threads,
};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

/// Room for a second VLAN tag on top of the usual 1500.
const MTU_BYTES: u32 = 1504;
/// Where frames go: an address that nobody owns, so that no stack answers.
pub(crate) const DESTINATION: [u8; 6] = [0x02, 0x4c, 0x57, 0xff, 0xff, 0xfe];

/// Hardware address of the arm's end of the first cable.
pub(crate) const SUT_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0, 0, 2];
/// Interfaces of the second cable.
const SECOND: [&str; 2] = ["gen1", "sut1"];
/// What app `echo` answers for. Not the interface's own address: only an arm that is the kernel's
/// stack may have it, or both would answer.
pub(crate) const ECHO: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// Where pings to an arm on a TAP device come from.
const TAP_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// UDP port that the arm listens on.
const PORT: u16 = 7_000;
/// UDP port that the generator sends from.
const GENERATOR_PORT: u16 = 7_001;

/// Where the generator's frames come from.
pub(crate) const GENERATOR: SocketAddrV4 = address(77, 1, GENERATOR_PORT);
/// Where they go, as datagrams.
pub(crate) const SUT: SocketAddrV4 = address(77, 2, PORT);
/// The arm's address on the second cable.
pub(crate) const SUT_SECOND: SocketAddrV4 = address(78, 2, PORT);
/// The far end of the second cable.
pub(crate) const FAR_END: SocketAddrV4 = address(78, 1, GENERATOR_PORT);

const fn address(net: u8, host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, net, 0, host), port)
}

/// The bench.
pub(crate) struct Bench {
    /// Declared before the topology: it goes before the rooms that it joins.
    returns: Option<Returns>,
    replies: Option<Replies>,
    arrivals: Option<Arrivals>,
    number_at: u16,
    second: Option<VethPair>,
    topology: Topology,
    meter: Rc<Meter>,
    placement: Placement,
}

/// What the cable lost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireLosses {
    /// No room in the receiver's ring.
    pub(crate) ring_full: u64,
    /// The receiving driver could not take a frame over.
    pub(crate) receive: u64,
    /// On the way back: no room in the ring of the far end.
    pub(crate) return_ring_full: u64,
    /// On the way back: the far end's driver could not take a frame over.
    pub(crate) return_receive: u64,
    /// Fragments that the arm's namespace put together, less the packets that came of them: frames that
    /// are none any more, or wait for their rest.
    pub(crate) joined: u64,
}

impl Bench {
    /// Builds it for races of `app` under `traffic`.
    pub(crate) fn create(
        placement: Placement,
        app: &AppFacts,
        traffic: &TrafficPlan,
        meter: Rc<Meter>,
    ) -> Result<Bench, RaceError> {
        let mut options = TopologyOptions::new("race");
        options.veth = VethOptions { mtu_bytes: MTU_BYTES, ..VethOptions::default() };
        options.sut_napi_cpus = Some(vec![placement.napi_cpu]);
        let topology = Topology::create(&options)?;
        let shortened = topology.sut.namespace.enter(|| fs::write(FRAGMENT_SECONDS, "1"))?;
        shortened.map_err(|e| RaceError::Child {
            what: format!("writing {FRAGMENT_SECONDS}"),
            why: e.to_string(),
        })?;
        let second = match app.race.ports {
            1 => None,
            _ => Some(second_cable(&topology)?),
        };
        let mut bench = Bench {
            returns: None,
            replies: None,
            arrivals: None,
            number_at: traffic.number_at(),
            second,
            topology,
            meter,
            placement,
        };
        let (_, far_end) = bench.way_back();
        let far = &bench.topology.generator.namespace;
        match app.race.counted {
            Counted::Forwarded => {
                bench.arrivals = Some(Arrivals::attach(far, far_end, bench.number_at)?);
                // Taps come and go with their arms: none is to speak of its own accord. Where there is no
                // IPv6, none does.
                bench.topology.sut.namespace.enter(|| {
                    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                })?;
            }
            Counted::Returned => {
                let payload_bytes = traffic.payload_bytes().unwrap_or(0);
                bench.returns = Some(Returns::attach(far, far_end, payload_bytes)?);
            }
            Counted::Replies => {
                bench.replies = Some(Replies::attach(far, far_end)?);
                introduce(ECHO, far, far_end)?;
            }
            Counted::Records | Counted::Handed => {}
        }
        Ok(bench)
    }

    /// Leads the pings to `address` from `namespace` by `interface`, which the arm has just made and
    /// which goes with it.
    pub(crate) fn lead_to(
        &self,
        address: Ipv4Addr,
        namespace: &Namespace,
        interface: &str,
    ) -> Result<(), RaceError> {
        // Of no network that is on a cable.
        let (own, address_text) = (TAP_SOURCE.to_string(), address.to_string());
        ip(namespace, &["address", "replace", &format!("{own}/32"), "dev", interface])?;
        ip(namespace, &["link", "set", "dev", interface, "up"])?;
        ip(namespace, &["route", "replace", &address_text, "dev", interface, "src", &own])?;
        introduce(address, namespace, interface)
    }

    /// Tells the far end what is coming, if it waits for any.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), RaceError> {
        if let Some(replies) = &self.replies {
            replies.expect(plan)?;
        }
        if let Some(arrivals) = &self.arrivals {
            arrivals.expect(plan)?;
        }
        Ok(())
    }

    /// What came out at the far end so far.
    pub(crate) fn came(&self) -> Result<Came, RaceError> {
        Ok(Came {
            returned: self.returns.as_ref().map(Returns::read).transpose()?,
            replied: self.replies.as_ref().map(Replies::read).transpose()?,
            arrived: self.arrivals.as_ref().map(Arrivals::read).transpose()?,
        })
    }

    /// Where in a frame its number lies.
    pub(crate) fn number_at(&self) -> u16 {
        self.number_at
    }

    /// The arm's interfaces, one per port.
    pub(crate) fn sut_interfaces(&self) -> Vec<String> {
        let second = self.second.iter().map(|_| SECOND[1]);
        [self.topology.sut.interface].into_iter().chain(second).map(str::to_owned).collect()
    }

    /// The arm's addresses, one per port.
    pub(crate) fn sut_addresses(&self) -> Vec<SocketAddrV4> {
        if self.replies.is_some() {
            return vec![SocketAddrV4::new(ECHO, 0)];
        }
        [SUT].into_iter().chain(self.second.iter().map(|_| SUT_SECOND)).collect()
    }

    /// The arm's interface that frames come back from, and the generator's that they come back to.
    fn way_back(&self) -> (&'static str, &'static str) {
        match self.second {
            Some(_) => (SECOND[1], SECOND[0]),
            None => (self.topology.sut.interface, self.topology.generator.interface),
        }
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    pub(crate) fn generator(&self) -> (&Namespace, &'static str) {
        (&self.topology.generator.namespace, self.topology.generator.interface)
    }

    pub(crate) fn sut(&self) -> (&Namespace, &'static str) {
        (&self.topology.sut.namespace, self.topology.sut.interface)
    }

    /// The state of everything, as read back now.
    pub(crate) fn describe(&self) -> Result<TopologyRecord, RaceError> {
        Ok(self.topology.describe()?)
    }

    /// Books the arm's ends of the cables as `arm`'s and the far ends as its generator's. Finds the NAPI threads of
    /// the tested interface as they are now (a lane that opens may have restarted them), keeps them on their CPU,
    /// and books their time as the arm's.
    pub(crate) fn claim_napi_threads(&self, arm: usize) -> Result<(), RaceError> {
        let sut = &self.topology.sut;
        for interface in self.sut_interfaces() {
            self.book_interface(&sut.namespace, &interface, Owner::Arm(arm))?;
        }
        let far_ends = [self.topology.generator.interface].into_iter();
        for interface in far_ends.chain(self.second.iter().map(|_| SECOND[0])) {
            let far = &self.topology.generator.namespace;
            self.book_interface(far, interface, Owner::Generator(arm))?;
        }
        let found = sut.namespace.enter(|| napi_threads(sut.interface))??;
        let mut threads = found.unwrap_or_else(|| sut.napi_threads.clone());
        for thread in &mut threads {
            thread.pin(self.placement.napi_cpu)?;
            self.meter.classify_napi(thread.pid, Owner::Arm(arm))?;
        }
        Ok(())
    }

    fn book_interface(
        &self,
        namespace: &Namespace,
        interface: &str,
        owner: Owner,
    ) -> Result<(), RaceError> {
        let (netns_inode, ifindex) = meter::key_of(namespace, interface)?;
        Ok(self.meter.own_interface(netns_inode, ifindex, owner)?)
    }

    /// Waits until no fragment waits for its rest in the arm's namespace: each pass has the addresses and
    /// identifications of the same pass of the segment before, so a rest that was lost there would be taken from the
    /// next segment. What is still there after long opens the ledger.
    pub(crate) fn forget_fragments(&self) -> Result<(), RaceError> {
        let began = Instant::now();
        self.topology.sut.namespace.enter(|| {
            while fs::read_to_string(SOCKSTAT).is_ok_and(|text| is_reassembling(&text))
                && began.elapsed() < FORGET_MAX
            {
                thread::sleep(FORGET_LOOK);
            }
        })?;
        Ok(())
    }

    /// Reads what the cable lost.
    pub(crate) fn losses(&self) -> Result<WireLosses, RaceError> {
        let (generator, near) = self.generator();
        let (sut, far) = self.sut();
        let near = generator.enter(|| interface_counters(near))??;
        let driver = sut.enter(|| driver_counters(far))??;
        let snmp = sut.enter(|| fs::read_to_string(SNMP))?;
        let mut losses = WireLosses {
            ring_full: near.tx_dropped,
            receive: driver_losses(&driver),
            joined: snmp.as_deref().map_or(0, joined),
            ..WireLosses::default()
        };
        if self.returns.is_some() || self.replies.is_some() || self.arrivals.is_some() {
            let (from, to) = self.way_back();
            losses.return_ring_full = sut.enter(|| interface_counters(from))??.tx_dropped;
            losses.return_receive = driver_losses(&generator.enter(|| driver_counters(to))??);
        }
        Ok(losses)
    }
}

/// The counters of the IP layer, of the thread's namespace (RFC 4293).
const SNMP: &str = "/proc/thread-self/net/snmp";

/// How long a fragment waits for its rest, s; the kernel's own choice is 30 (net.ipv4.ipfrag_time, of the thread's
/// namespace).
const FRAGMENT_SECONDS: &str = "/proc/sys/net/ipv4/ipfrag_time";
/// Memory of sockets and fragments, of the thread's namespace.
const SOCKSTAT: &str = "/proc/thread-self/net/sockstat";
/// Thrice as long as a fragment waits.
const FORGET_MAX: Duration = Duration::from_secs(3);
const FORGET_LOOK: Duration = Duration::from_millis(20);

/// True if fragments wait for their rest, from the text of [`SOCKSTAT`].
fn is_reassembling(sockstat: &str) -> bool {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("FRAG: inuse "));
    line.and_then(|line| line.split_whitespace().next()).is_some_and(|inuse| inuse != "0")
}

/// What reassembly took in and did not give out, from the text of [`SNMP`].
fn joined(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Ip:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let value = |wanted: &str| {
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok())
    };
    let (taken, given): (u64, u64) =
        (value("ReasmReqds").unwrap_or(0), value("ReasmOKs").unwrap_or(0));
    taken.saturating_sub(given)
}

/// Makes `address` known in `namespace` as the arm's behind `interface`, so that nobody has to ask.
fn introduce(address: Ipv4Addr, namespace: &Namespace, interface: &str) -> Result<(), RaceError> {
    let (address, mac) = (address.to_string(), Mac(SUT_MAC).to_string());
    let neighbour = ["neighbour", "replace", &address, "lladdr", &mac, "dev", interface];
    ip(namespace, &[&neighbour[..], &["nud", "permanent"]].concat())
}

fn ip(namespace: &Namespace, arguments: &[&str]) -> Result<(), RaceError> {
    let failed = |why: String| {
        let what = format!("`ip {}`", arguments.join(" "));
        RaceError::Child { what, why }
    };
    let output = namespace.enter(|| Command::new("ip").args(arguments).output())?;
    let output = output.map_err(|e| failed(e.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// What a veth driver could not take over.
fn driver_losses(counters: &BTreeMap<String, u64>) -> u64 {
    // `rx_queue_0_drops` and so on; `rx_queue_0_xdp_drops` are a program's verdicts, no loss.
    let is_loss = |name: &str| {
        name.starts_with("rx_queue_") && name.ends_with("_drops") && !name.contains("xdp")
    };
    counters.iter().filter(|(name, _)| is_loss(name)).map(|(_, n)| n).sum()
}

/// A cable like the first, in its own network.
fn second_cable(topology: &Topology) -> Result<VethPair, RaceError> {
    let end = |host: u8| {
        let mac = Mac([0x02, 0x4c, 0x57, 0, 1, host]);
        VethEnd::new(mac, &[&format!("10.78.0.{host}/24")]).expect("24 bits fit IPv4")
    };
    let options =
        VethOptions { mtu_bytes: MTU_BYTES, a: end(1), b: end(2), ..VethOptions::default() };
    let (generator, sut) = (&topology.generator.namespace, &topology.sut.namespace);
    Ok(VethPair::create(generator, SECOND[0], sut, SECOND[1], &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fragments_those_are_joined_that_did_not_come_out_again() {
        let text = "Ip: Forwarding ReasmTimeout ReasmReqds ReasmOKs ReasmFails\n\
                    Ip: 2 0 12 5 0\n\
                    Icmp: InMsgs\nIcmp: 3\n";
        assert_eq!((joined(text), joined("Udp: a\nUdp: 1\n"), joined("")), (7, 0, 0));
    }

    #[test]
    fn fragments_that_wait_are_seen() {
        assert!(is_reassembling("UDP: inuse 3\nFRAG: inuse 1 memory 2304\n"));
        assert!(!is_reassembling("UDP: inuse 3\nFRAG: inuse 0 memory 0\n"));
        assert!(!is_reassembling("UDP: inuse 3\n"));
    }
}
