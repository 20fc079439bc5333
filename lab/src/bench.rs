//! The bench of an arm: one or more cables between two namespaces of its own, the CPU meter that all benches of a race
//! share, and which process runs where.
//!
//! ```text
//!   generator ── gen0 ═══════ sut0 ── arm ── sut1 ═══════ gen1 ── far end (apps `across`, `forward`)
//!                  └── far end (apps `bounce` and `echo`)
//!   under fan-out:                            └── sut2 ═══════ gen2 ── far end, and so on up to 8
//! ```
//!
//! An arm whose ports are TAP devices has a wire of its own: see [`crate::wire`].
//!
//! Dropping it removes everything.

use crate::addresses::{ECHO, ONWARD, SERVICE, SUT, SUT_MAC, SUT_SECOND};
use crate::arrivals::Arrivals;
use crate::arrivals::Arrived;
use crate::child::GENERATOR_PRIORITY;
use crate::copies::Copied;
use crate::copies::Copies;
use crate::error::RaceError;
use crate::fanout::FarEnd;
use crate::meter::{self, Meter, Owner};
use crate::refused::Refused;
use crate::replies::Replied;
use crate::replies::Replies;
use crate::result::Placement;
use crate::returns::Returned;
use crate::returns::Returns;
use crate::round_trips::RoundTrips;
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use crate::traffic::Sending;
use laneway_bpf::PassGuard;
use laneway_kinds::{AppFacts, Counted};
use laneway_netns::{
    Mac, Namespace, NapiThread, Offloads, Topology, TopologyOptions, TopologyRecord, VethEnd,
    VethOptions, VethPair, driver_counters, interface_counters, napi_threads, set_threaded,
};
use rustix::process::{Pid, setpriority_process};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

/// Room for a second VLAN tag on top of the usual 1500.
const MTU_BYTES: u32 = 1504;

/// Where pings to an arm on a TAP device come from.
const TAP_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// What arrived at the far end; each is `None` where no program counts it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FarEndCounts {
    /// Frames that returned, by segment, since the bench was made.
    pub(crate) returned: Option<Returned>,
    /// Echo replies of the segment under way.
    pub(crate) replied: Option<Replied>,
    /// Forwarded frames of the segment under way.
    pub(crate) arrived: Option<Arrived>,
    /// Copies of the segment under way.
    pub(crate) copied: Option<Copied>,
    /// How long sampled frames of the segment under way took from when they were due to the far end of the arm's second
    /// port.
    pub(crate) trips: Option<RoundTrips>,
}

/// What all benches of a race share.
#[derive(Clone)]
pub(crate) struct Instruments {
    /// Whose the time of every CPU is.
    pub(crate) meter: Rc<Meter>,
    /// Where trains leave uncut: what the rings that they leave to refuse.
    refused: Option<Rc<Refused>>,
}

impl Instruments {
    /// Those that a race needs in which this is sent, on cables like these.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(sending: &Sending, tso: bool) -> Result<Instruments, RaceError> {
        let fanout = sending.traffic.fanout().map(|plan| plan.fanout);
        let has_trains = fanout.is_some_and(|fanout| fanout.far_end == FarEnd::Trains);
        let refused = has_trains.then(Refused::attach).transpose()?;
        // TCP has more under way than it queues at once, and sends the rest in softirqs of whichever task runs.
        let is_long =
            sending.traffic.client().is_some_and(|client| client.request_bytes[1] > MTU_BYTES);
        let meter = Rc::new(Meter::attach_weighed(tso || is_long)?);
        Ok(Instruments { meter, refused: refused.map(Rc::new) })
    }
}

/// The bench.
pub(crate) struct Bench {
    /// Declared before the topology: it goes before the rooms that it joins.
    returns: Option<Returns>,
    replies: Option<Replies>,
    arrivals: Option<Arrivals>,
    copies: Option<Copies>,
    /// A client asks over connections.
    is_asked: bool,
    number_at: u16,
    timetable: Timetable,
    /// Of the far ends, as they were when they were made; empty if their receive work is in softirqs.
    far_threads: Vec<NapiThread>,
    /// The cables on the way out, each between two of [`ONWARD`].
    onward: Vec<VethPair>,
    /// What the first of them carries at most, Mbit/s, by a token bucket in front of it; for the arm that is there.
    limit_mbit: Cell<Option<u32>>,
    /// Where a relay listens.
    first_group: Option<SocketAddrV4>,
    /// The far ends that may refuse trains, as the meter knows interfaces.
    watched: Vec<(u32, u32)>,
    topology: Topology,
    instruments: Instruments,
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
    /// On the way back: no room in the queue of the interface.
    pub(crate) return_queue_full: u64,
    /// On the way back: the far end's driver could not take a frame over.
    pub(crate) return_receive: u64,
    /// Fragments that the arm's namespace put together, less the packets made of them: frames that
    /// are none any more, or wait for their rest.
    pub(crate) joined: u64,
}

impl WireLosses {
    /// What found no room in a ring, on the way in or back.
    pub(crate) fn in_full_rings(&self) -> u64 {
        self.ring_full + self.return_ring_full
    }
}

/// Frames that wait at each end of a client's cable at most: more than its connections have outstanding.
const WAITING_FRAMES: &str = "10000";

/// Two namespaces and the cable between them, its ends received in threads where the placement says so.
fn topology(placement: &Placement, app: &AppFacts) -> Result<Topology, RaceError> {
    let mut options = TopologyOptions::new("race");
    options.veth = VethOptions { mtu_bytes: MTU_BYTES, ..VethOptions::default() };
    options.sut_napi_cpus = Some(vec![placement.napi_cpu]);
    options.generator_napi_cpus = placement.far_napi_cpu.map(|cpu| vec![cpu]);
    let is_asked = app.race.counted == Counted::Answered;
    if is_asked && placement.far_napi_cpu.is_none() && !placement.tso {
        // What the client receives is to be no work of its sender.
        options.generator_napi_cpus = Some(vec![placement.generator_cpu]);
    }
    if placement.tso {
        let uncut = Offloads { gso: true, tso: true, tx_checksum: true, ..Offloads::default() };
        options.veth.b.offloads = uncut;
    }
    let topology = Topology::create(&options)?;
    if placement.tso {
        // The same without a thread.
        send_softirqs(&topology, placement.generator_cpu)?;
    }
    if is_asked {
        lead_through_queues(&topology)?;
    }
    let shortened = topology.sut.namespace.enter(|| fs::write(FRAGMENT_SECONDS, "1"))?;
    shortened.map_err(|e| RaceError::Child {
        what: format!("writing {FRAGMENT_SECONDS}"),
        why: e.to_string(),
    })?;
    Ok(topology)
}

impl Bench {
    /// Builds it for races of `app`, which is sent this.
    pub(crate) fn create(
        placement: Placement,
        app: &AppFacts,
        sending: &Sending,
        instruments: Instruments,
    ) -> Result<Bench, RaceError> {
        let topology = topology(&placement, app)?;
        let numbers = 0..ONWARD.len().min(app.race.ports.saturating_sub(1)) as u8;
        let fanout = sending.traffic.fanout().map(|plan| plan.fanout);
        let lay = |cable| {
            let has_trains = fanout.is_some_and(|fanout| fanout.has_trains(cable));
            onward_cable(&topology, cable, has_trains)
        };
        let onward: Vec<VethPair> = numbers.map(lay).collect::<Result<_, _>>()?;
        let mut far_threads = topology.generator.napi_threads.clone();
        for [far, _] in
            ONWARD.iter().take(onward.len()).filter(|_| placement.far_napi_cpu.is_some())
        {
            let threads = topology.generator.namespace.enter(|| set_threaded(far, true))??;
            far_threads.extend(threads);
        }
        let mut bench = Bench {
            returns: None,
            replies: None,
            arrivals: None,
            copies: None,
            is_asked: app.race.counted == Counted::Answered,
            number_at: sending.traffic.number_at(),
            timetable: sending.timetable.clone(),
            far_threads,
            onward,
            limit_mbit: Cell::new(None),
            first_group: fanout.map(|fanout| fanout.first_group()),
            watched: Vec::new(),
            topology,
            instruments,
            placement,
        };
        bench.count_at_the_far_end(app, sending)?;
        Ok(bench)
    }

    /// Attaches what counts the frames that come back or out, and makes both ends known to each other where requests
    /// are answered.
    fn count_at_the_far_end(&mut self, app: &AppFacts, sending: &Sending) -> Result<(), RaceError> {
        let (_, far_end) = self.ways_back()[0];
        let far = &self.topology.generator.namespace;
        match app.race.counted {
            Counted::Forwarded => {
                self.arrivals =
                    Some(Arrivals::attach(far, far_end, self.number_at, &self.timetable)?);
                // Taps come and go with their arms: none is to speak of its own accord. Where there is no
                // IPv6, none does.
                self.topology.sut.namespace.enter(|| {
                    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                })?;
            }
            Counted::Returned => {
                let payloads = sending.traffic.payloads();
                self.returns = Some(Returns::attach(far, far_end, payloads, &self.timetable)?);
            }
            Counted::Replies => {
                self.replies = Some(Replies::attach(far, far_end, &self.timetable)?);
                introduce(ECHO, far, far_end)?;
            }
            Counted::Answered => {
                introduce(ECHO, far, far_end)?;
                self.receive_first()?;
                far.enter(more_ports)??;
                // Where the arm's device is a tap, the client is beside it.
                self.topology.sut.namespace.enter(more_ports)??;
            }
            Counted::Copies => {
                let ends: Vec<&str> =
                    self.ways_back().iter().map(|(_, far_end)| *far_end).collect();
                let plan = sending.traffic.fanout().copied();
                let attach = |plan| Copies::attach(far, &ends, plan, &self.timetable);
                self.copies = plan.map(attach).transpose()?;
                if let Some(refused) = &self.instruments.refused {
                    let keys = ends.iter().map(|end| meter::key_of(far, end));
                    self.watched = keys.collect::<Result<_, _>>()?;
                    self.watched.iter().try_for_each(|key| refused.watch(*key))?;
                }
            }
            Counted::Records | Counted::Handed => {}
        }
        Ok(())
    }

    /// An XDP program at the far end that lets everything pass: without one a veth end is not woken for what a kernel
    /// half at the arm's end replies (`XDP_TX`).
    ///
    /// # Errors
    /// When it cannot be attached.
    pub(crate) fn pass_at_the_far_end(&self) -> Result<PassGuard, RaceError> {
        let (_, far_end) = self.ways_back()[0];
        let far = &self.topology.generator.namespace;
        Ok(far.enter(|| PassGuard::attach(far_end))??)
    }

    /// Puts a token bucket in front of the first cable on the way out, which then carries this much, Mbit/s; with
    /// `None` takes away the one that an earlier arm had.
    ///
    /// # Errors
    /// What `tc` says.
    pub(crate) fn limit(&self, mbit: Option<u32>) -> Result<(), RaceError> {
        let rate = mbit.map(|mbit| format!("{mbit}mbit"));
        let at = ["dev", ONWARD[0][1], "root"];
        let arguments = match (&rate, self.limit_mbit.get()) {
            (_, there) if there == mbit => return Ok(()),
            (Some(rate), _) => {
                let bucket = ["tbf", "rate", rate, "burst", "32kb", "latency", "200ms"];
                [&["qdisc", "replace"][..], &at, &bucket].concat()
            }
            (None, _) => [&["qdisc", "delete"][..], &at].concat(),
        };
        run("tc", &arguments, &self.topology.sut.namespace)?;
        self.limit_mbit.set(mbit);
        Ok(())
    }

    /// The client has the highest priority, and what it waits for is received on its CPU: by a thread that would wait
    /// for it, had it not the same.
    fn receive_first(&self) -> Result<(), RaceError> {
        for thread in &self.topology.generator.napi_threads {
            let id = Pid::from_raw(thread.pid.cast_signed());
            setpriority_process(id, GENERATOR_PRIORITY).map_err(|error| RaceError::Child {
                what: format!("the priority of NAPI thread {}", thread.pid),
                why: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// Makes the arm's ends of the cables know the far ends again, which the arm that was here before may have cost
    /// them.
    pub(crate) fn renew_neighbours(&self) -> Result<(), RaceError> {
        self.topology.renew_neighbours()?;
        self.onward.iter().try_for_each(|cable| Ok(cable.renew_neighbours()?))
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
        if let Some(copies) = &self.copies {
            copies.expect(plan)?;
        }
        if let Some(returns) = &self.returns {
            returns.expect(plan)?;
        }
        Ok(())
    }

    /// What arrived at the far end so far.
    pub(crate) fn far_end_counts(&self) -> Result<FarEndCounts, RaceError> {
        let mut far_end = FarEndCounts {
            returned: self.returns.as_ref().map(Returns::read).transpose()?,
            replied: self.replies.as_ref().map(Replies::read).transpose()?,
            ..FarEndCounts::default()
        };
        if let Some(arrivals) = &self.arrivals {
            let (arrived, trips) = arrivals.read()?;
            (far_end.arrived, far_end.trips) = (Some(arrived), Some(trips));
        }
        if let Some(copies) = &self.copies {
            let (copied, trips) = copies.read()?;
            (far_end.copied, far_end.trips) = (Some(copied), Some(trips));
        }
        // A frame that returns over the cable that carried it to the arm has gone there and back.
        if let Some(returns) = self.returns.as_ref().filter(|_| !self.onward.is_empty()) {
            far_end.trips = Some(returns.trips()?);
        }
        Ok(far_end)
    }

    /// Where in a frame its number lies.
    pub(crate) fn number_at(&self) -> u16 {
        self.number_at
    }

    /// When what is sent is due.
    pub(crate) fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// The arm's interfaces, one per port.
    pub(crate) fn sut_interfaces(&self) -> Vec<String> {
        let onward = ONWARD.iter().take(self.onward.len()).map(|[_, sut]| *sut);
        [self.topology.sut.interface].into_iter().chain(onward).map(str::to_owned).collect()
    }

    /// The arm's addresses, one per port.
    pub(crate) fn sut_addresses(&self) -> Vec<SocketAddrV4> {
        if self.is_asked {
            return vec![SERVICE];
        }
        if self.replies.is_some() {
            return vec![SocketAddrV4::new(ECHO, 0)];
        }
        if let Some(group) = self.first_group {
            return vec![group];
        }
        [SUT].into_iter().chain(self.onward.iter().map(|_| SUT_SECOND)).collect()
    }

    /// The arm's interfaces that frames come back from, each with the generator's that they come back to.
    fn ways_back(&self) -> Vec<(&'static str, &'static str)> {
        match self.onward.len() {
            0 => vec![(self.topology.sut.interface, self.topology.generator.interface)],
            cables => ONWARD.iter().take(cables).map(|[far, sut]| (*sut, *far)).collect(),
        }
    }

    /// Whether a client asks over connections.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.instruments.meter
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
        for interface in self.far_interfaces() {
            let far = &self.topology.generator.namespace;
            self.book_interface(far, interface, Owner::Generator(arm))?;
        }
        let found = sut.namespace.enter(|| napi_threads(sut.interface))??;
        let mut threads = found.unwrap_or_else(|| sut.napi_threads.clone());
        for thread in &mut threads {
            thread.pin(self.placement.napi_cpu)?;
            if self.placement.napi_first {
                run_first(thread, &sut.namespace)?;
            }
            self.instruments.meter.classify_napi(thread.pid, Owner::Arm(arm))?;
        }
        match self.placement.far_napi_cpu {
            Some(cpu) => self.claim_far_threads(arm, cpu),
            None => self.topology.generator.napi_threads.iter().try_for_each(|thread| {
                Ok(self.instruments.meter.classify_napi(thread.pid, Owner::Generator(arm))?)
            }),
        }
    }

    /// The same for the threads of the far ends, which are the generator's. They are real-time: beside a generator with
    /// the highest priority there is they would hardly have a turn, and the rings to them would overflow.
    fn claim_far_threads(&self, arm: usize, cpu: usize) -> Result<(), RaceError> {
        let far = &self.topology.generator.namespace;
        let mut threads = Vec::new();
        let mut is_known = true;
        for interface in self.far_interfaces() {
            match far.enter(|| napi_threads(interface))?? {
                Some(found) => threads.extend(found),
                None => is_known = false,
            }
        }
        if !is_known {
            threads.clone_from(&self.far_threads);
        }
        for thread in &mut threads {
            thread.pin(cpu)?;
            run_first(thread, far)?;
            self.instruments.meter.classify_napi(thread.pid, Owner::Generator(arm))?;
        }
        Ok(())
    }

    /// The generator's ends of the cables.
    fn far_interfaces(&self) -> impl Iterator<Item = &'static str> + use<> {
        let first = self.topology.generator.interface;
        [first].into_iter().chain(ONWARD.iter().take(self.onward.len()).map(|[far, _]| *far))
    }

    fn book_interface(
        &self,
        namespace: &Namespace,
        interface: &str,
        owner: Owner,
    ) -> Result<(), RaceError> {
        let (netns_inode, ifindex) = meter::key_of(namespace, interface)?;
        Ok(self.instruments.meter.own_interface(netns_inode, ifindex, owner)?)
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
        let has_far_end =
            self.returns.is_some() || self.replies.is_some() || self.arrivals.is_some();
        if has_far_end || self.copies.is_some() || self.is_asked {
            if self.limit_mbit.get().is_some() {
                losses.return_queue_full = sut.enter(|| queue_drops(ONWARD[0][1]))??;
            }
            for (from, to) in self.ways_back() {
                losses.return_ring_full += sut.enter(|| interface_counters(from))??.tx_dropped;
                losses.return_receive += driver_losses(&generator.enter(|| driver_counters(to))??);
            }
        }
        if let Some(refused) = &self.instruments.refused {
            for key in &self.watched {
                losses.return_ring_full += refused.behind_the_first(*key)?;
            }
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

/// Has a thread run before every task that is not real-time (SCHED_FIFO).
fn run_first(thread: &NapiThread, namespace: &Namespace) -> Result<(), RaceError> {
    let pid = thread.pid.to_string();
    run("chrt", &["--fifo", "--pid", "1", &pid], namespace)
}

/// Gives both ends of the cable a queue. The ring of a veth end holds 256 frames, and a thousand connections have more
/// outstanding: what finds no room is dropped, TCP sends it again 200 ms later, and that would be every arm's p99.
/// Where there is a queue its sender is held back instead, from Linux 6.16 on (commit dc82a33297fc); an older kernel
/// drops as before, which [`Segment::resent`](crate::result::Segment::resent) counts.
fn lead_through_queues(topology: &Topology) -> Result<(), RaceError> {
    for (namespace, interface) in [
        (&topology.generator.namespace, topology.generator.interface),
        (&topology.sut.namespace, topology.sut.interface),
    ] {
        let queue = ["dev", interface, "root", "pfifo", "limit", WAITING_FRAMES];
        run("tc", &[&["qdisc", "replace"][..], &queue].concat(), namespace)?;
    }
    Ok(())
}

/// Has what the generator's end receives handled in softirqs of `cpu`, and not of the sender (RPS).
fn send_softirqs(topology: &Topology, cpu: usize) -> Result<(), RaceError> {
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", topology.generator.interface);
    // A bitmap in words of 32 bits, the highest first (scaling.rst).
    let (word, bit) = (cpu / 32, cpu % 32);
    let mask = format!("{:x}{}", 1u32 << bit, ",00000000".repeat(word));
    let written = topology.generator.namespace.enter(|| fs::write(&path, mask))?;
    written.map_err(|error| RaceError::Child {
        what: format!("writing {path}"),
        why: error.to_string(),
    })
}

/// Gives the thread's namespace more ports, and again soon: a race opens a thousand connections many times over from
/// the same address, and the kernel keeps the port of each for a minute after its end.
fn more_ports() -> Result<(), RaceError> {
    for (path, value) in [(PORT_RANGE, "1024 65535"), (REUSE, "1")] {
        fs::write(path, value).map_err(|error| RaceError::Child {
            what: format!("writing {path}"),
            why: error.to_string(),
        })?;
    }
    Ok(())
}

/// Ports of the connections that ask, and whether one that lingers (TIME-WAIT) is used again (ip-sysctl.rst, of the
/// thread's namespace).
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const REUSE: &str = "/proc/sys/net/ipv4/tcp_tw_reuse";

/// Makes `address` known in `namespace` as the arm's behind `interface`, so that the kernel does not have to ask.
fn introduce(address: Ipv4Addr, namespace: &Namespace, interface: &str) -> Result<(), RaceError> {
    let (address, mac) = (address.to_string(), Mac(SUT_MAC).to_string());
    let neighbour = ["neighbour", "replace", &address, "lladdr", &mac, "dev", interface];
    ip(namespace, &[&neighbour[..], &["nud", "permanent"]].concat())
}

fn ip(namespace: &Namespace, arguments: &[&str]) -> Result<(), RaceError> {
    run("ip", arguments, namespace)
}

fn run(program: &str, arguments: &[&str], namespace: &Namespace) -> Result<(), RaceError> {
    let failed = |why: String| {
        let what = format!("`{program} {}`", arguments.join(" "));
        RaceError::Child { what, why }
    };
    let output = namespace.enter(|| Command::new(program).args(arguments).output())?;
    let output = output.map_err(|e| failed(e.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// What the queue of an interface, in the thread's namespace, dropped.
fn queue_drops(interface: &str) -> Result<u64, RaceError> {
    let arguments = ["-j", "-s", "qdisc", "show", "dev", interface];
    let failed = |why: String| {
        let what = format!("`tc {}`", arguments.join(" "));
        RaceError::Child { what, why }
    };
    let output = Command::new("tc").args(arguments).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    let queues: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let root = queues.as_array().and_then(|queues| queues.first());
    let drops = root.and_then(|queue| queue["drops"].as_u64());
    drops.ok_or_else(|| failed("it reported no drops".to_owned()))
}

/// What a veth driver could not take over.
fn driver_losses(counters: &BTreeMap<String, u64>) -> u64 {
    // `rx_queue_0_drops` and so on; `rx_queue_0_xdp_drops` are a program's verdicts, no loss.
    let is_loss = |name: &str| {
        name.starts_with("rx_queue_") && name.ends_with("_drops") && !name.contains("xdp")
    };
    counters.iter().filter(|(name, _)| is_loss(name)).map(|(_, n)| n).sum()
}

/// A cable on the way out, 0 being the first: like that on the way in, in its own network. With trains, what leaves the
/// arm is cut, and its checksums computed, where it would be on a NIC: not on the arm's CPU.
fn onward_cable(topology: &Topology, cable: u8, has_trains: bool) -> Result<VethPair, RaceError> {
    let [near, far] = ONWARD[usize::from(cable)];
    let number = cable + 1;
    let end = |host: u8| {
        let mac = Mac([0x02, 0x4c, 0x57, 0, number, host]);
        VethEnd::new(mac, &[&format!("10.{}.0.{host}/24", 77 + number)]).expect("24 bits fit IPv4")
    };
    let mut options =
        VethOptions { mtu_bytes: MTU_BYTES, a: end(1), b: end(2), ..VethOptions::default() };
    if has_trains {
        options.b.offloads = Offloads {
            gso: true,
            tx_checksum: true,
            tx_udp_segmentation: true,
            ..Offloads::default()
        };
    }
    let (generator, sut) = (&topology.generator.namespace, &topology.sut.namespace);
    Ok(VethPair::create(generator, near, sut, far, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::GENERATOR;
    use crate::apps::{Across, LabApp};
    use crate::client::ClientPlan;
    use crate::permitted::permitted;
    use crate::timetable::Times;
    use crate::traffic::{Payloads, TrafficPlan};
    use laneway_engine::pin_to_cpu;
    use laneway_kinds::{self as kinds, Protocol, RaceFacts};
    use laneway_linux::is_older_than;
    use laneway_netns::can_create;
    use laneway_testkit::skip;
    use std::net::UdpSocket;

    /// A bench for an app that sends on, with the far ends' receive work there.
    fn bench(far_napi_cpu: Option<usize>) -> Option<Bench> {
        can_create().map_err(skip).ok()?;
        let sentence = String::new();
        let [arm_cpu, napi_cpu, generator_cpu] = [0; 3];
        let placement = Placement {
            arm_cpu,
            napi_cpu,
            generator_cpu,
            far_napi_cpu,
            sentence,
            tso: false,
            napi_first: false,
        };
        let (source, destination) = (GENERATOR, SUT);
        let traffic = TrafficPlan::Udp { payloads: Payloads::Fixed(64), source, destination };
        let (times, timetable) = (Times::Steady, Timetable::default());
        let sending = Sending { traffic, times, timetable };
        let instruments = permitted(Instruments::attach(&sending, false))?;
        Some(Bench::create(placement, &Across::FACTS, &sending, instruments).unwrap())
    }

    const FIFO: &str = "1";

    /// By what rules the scheduler chooses it. proc_pid_stat(5): field 41; behind the name stands field 3.
    fn policy(thread: &NapiThread) -> String {
        let stat = fs::read_to_string(format!("/proc/{}/stat", thread.pid)).unwrap();
        let behind_the_name = stat.rsplit_once(") ").unwrap().1;
        behind_the_name.split(' ').nth(38).unwrap().to_owned()
    }

    fn far_threads(bench: &Bench) -> Vec<NapiThread> {
        let of = |interface| {
            let (far, _) = bench.generator();
            far.enter(|| napi_threads(interface)).unwrap().unwrap().unwrap_or_default()
        };
        bench.far_interfaces().flat_map(of).collect()
    }

    #[test]
    fn the_far_ends_receive_in_threads_where_that_is_wanted_and_nowhere_else() {
        if is_older_than(6, 8) {
            return skip("Linux before 6.8 does not name the NAPI threads of an interface");
        }
        let Some(plain) = bench(None) else { return };
        plain.claim_napi_threads(1).unwrap();
        assert_eq!(far_threads(&plain), []);
        drop(plain);
        let Some(threaded) = bench(Some(0)) else { return };
        threaded.claim_napi_threads(1).unwrap();
        let threads = far_threads(&threaded);
        assert_eq!((threads.len(), threaded.far_threads.len()), (2, 2));
        for thread in threads {
            assert_eq!(thread.cpus, [0], "{}", thread.name);
            assert_eq!(policy(&thread), FIFO);
        }
        assert_eq!(threaded.describe().unwrap().generator.napi_threads.len(), 1);
    }

    /// An app that a client asks over one connection, and what it is sent.
    fn asked() -> (AppFacts, Sending) {
        let race = RaceFacts::HANDED.under(kinds::Traffic::Tcp(Protocol::Echo));
        let client = ClientPlan {
            to: SERVICE.into(),
            protocol: Protocol::Echo,
            connections: 1,
            in_flight: 1,
            request_bytes: [1, 1],
            store: None,
            datagrams: None,
            timeout_ms: 1,
            seed: 1,
        };
        let sending = Sending {
            traffic: TrafficPlan::Tcp(client),
            times: Times::Steady,
            timetable: Timetable::default(),
        };
        (AppFacts { name: "asked", about: "", race }, sending)
    }

    /// A bench for it, all on one CPU, without segmentation offload and with it; none with the reason reported.
    fn asked_benches() -> Vec<(bool, Bench)> {
        if can_create().map_err(skip).is_err() {
            return Vec::new();
        }
        let (app, sending) = asked();
        let Some(instruments) = permitted(Instruments::attach(&sending, true)) else {
            return Vec::new();
        };
        let bench = |tso| {
            let placement = Placement {
                arm_cpu: 0,
                napi_cpu: 0,
                generator_cpu: 0,
                far_napi_cpu: None,
                sentence: String::new(),
                tso,
                napi_first: tso,
            };
            let bench = Bench::create(placement, &app, &sending, instruments.clone()).unwrap();
            bench.claim_napi_threads(1).unwrap();
            (tso, bench)
        };
        [false, true].map(bench).into()
    }

    #[test]
    fn segments_that_leave_uncut_are_received_in_softirqs_of_the_clients_cpu() {
        for (tso, bench) in asked_benches() {
            let described = bench.describe().unwrap();
            assert_eq!(
                (described.sut.napi_threads.len(), described.sut.state.offloads.tso),
                (1, tso)
            );
            let (threads, cpus) = if tso { (0, 1) } else { (1, 0) };
            assert_eq!(described.generator.napi_threads.len(), threads);
            let (sut, interface) = bench.sut();
            // Linux before 6.8 names none: they are those that were made.
            let threads = sut.enter(|| napi_threads(interface)).unwrap().unwrap();
            let threads = threads.unwrap_or_else(|| bench.topology.sut.napi_threads.clone());
            let policies: Vec<_> = threads.iter().map(policy).collect();
            assert_eq!(policies, [if tso { FIFO } else { "0" }]);
            let (far, interface) = bench.generator();
            let path = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
            let mask = far.enter(|| fs::read_to_string(path)).unwrap().unwrap();
            assert_eq!(u32::from_str_radix(mask.trim(), 16), Ok(cpus));
        }
    }

    /// Datagrams that are poured out at once: more than a ring holds.
    const POURED: usize = 2_000;
    /// What waits in a ring is its sender's still, so a single socket would have to wait.
    const POURING_SOCKETS: usize = 16;

    /// Sends them from `namespace` before any other thread of the CPU has a turn, so the ring they leave to is not
    /// emptied meanwhile.
    fn pour(namespace: &Namespace, to: Ipv4Addr) {
        thread::scope(|scope| {
            let pouring = scope.spawn(|| {
                namespace.enter(|| {
                    pin_to_cpu(0).unwrap();
                    let id = rustix::thread::gettid().as_raw_nonzero().to_string();
                    let first = Command::new("chrt").args(["--fifo", "--pid", "50", &id]).status();
                    assert!(first.unwrap().success());
                    let sockets =
                        [(); POURING_SOCKETS].map(|()| UdpSocket::bind("0.0.0.0:0").unwrap());
                    for socket in sockets.iter().cycle().take(POURED) {
                        socket.send_to(b"poured", (to, 9)).unwrap();
                    }
                })
            });
            pouring.join().unwrap().unwrap();
        });
    }

    #[test]
    fn what_a_ring_has_no_room_for_waits_at_both_ends_of_a_clients_cable() {
        if is_older_than(6, 16) {
            return skip("veth holds no sender back before Linux 6.16");
        }
        for (tso, bench) in asked_benches() {
            let ends = [(bench.generator().0, *SUT.ip()), (bench.sut().0, *GENERATOR.ip())];
            for (namespace, to) in ends {
                pour(namespace, to);
            }
            assert_eq!(bench.losses().unwrap().in_full_rings(), 0, "tso: {tso}");
        }
    }

    #[test]
    fn what_a_ring_without_a_queue_has_no_room_for_is_counted_on_both_ways() {
        for (tso, bench) in asked_benches().into_iter().filter(|(tso, _)| !tso) {
            let (generator, sut) = (bench.generator(), bench.sut());
            for ((namespace, interface), to) in [(generator, *SUT.ip()), (sut, *GENERATOR.ip())] {
                run("tc", &["qdisc", "delete", "dev", interface, "root"], namespace).unwrap();
                let before = bench.losses().unwrap().in_full_rings();
                pour(namespace, to);
                let lost = bench.losses().unwrap().in_full_rings() - before;
                assert!(
                    (POURED as u64 / 2..POURED as u64).contains(&lost),
                    "{lost} on {interface}, tso: {tso}"
                );
            }
        }
    }

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
