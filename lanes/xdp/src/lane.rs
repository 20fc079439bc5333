//! The lane itself: one loaded half, attached to one or more interfaces.

use crate::{
    CUTS_OFF, LANE,
    behind::Behind,
    spread::{Spread, SpreadKnobs, Spreading},
};
use laneway_bpf::{
    BpfError, Loaded, Moderation, RING_BYTES_MAX, RING_BYTES_MIN, XdpLink, XdpMode, attachment,
    wait_for_programs,
};
use laneway_core::{
    Bell, Cap, CapSet, CapsReport, ClockDomain, Counters, DropReason, KernelHalf, KernelLane,
    KernelMaps, Lane, LaneError, MapValue, PortId, PortMask, Wake,
};
use laneway_linux::{Interface, refuse_default_route};
use laneway_spec::{LaneSpec, SpecError};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

/// How often an idle lane looks whether its interfaces are still there.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(100);

/// The most pending records that `wake` may ask for.
const WAKE_RECORDS_MAX: usize = 1 << 16;

/// What the user insists on beyond the spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Attach even to the interface of the default route.
    pub force: bool,
    /// The half only passes and drops, so that it may run behind a CPUMAP (knob `cpus`), where nothing
    /// can transmit, and nothing it sent can be dropped. The caller that opens the lane knows the app; the lane
    /// cannot tell.
    pub never_transmits: bool,
    /// The app goes on where one of several interfaces is gone.
    pub outlives_interfaces: bool,
}

/// A kernel half at work. Port `n` is the `n`th interface; all share one program, its maps and its
/// rings, so records and counters are those of all ports together.
pub struct XdpLane {
    /// Declared first: detach before the maps go.
    ports: Vec<Port>,
    /// Before the half that it leads to.
    spread: Option<Spread>,
    /// What arrived, once nothing more can arrive.
    spread_at_end: Option<Spreading>,
    loaded: Loaded,
    /// For a half that may send, where the kernel has the tracepoints.
    behind: Option<Behind>,
    drops_map: Option<&'static str>,
    seen_map: Option<&'static str>,
    outlives_interfaces: bool,
    counters: Counters,
    looked: Instant,
    bell: Option<Bell>,
}

struct Port {
    interface: String,
    link: Option<XdpLink>,
    caps: CapsReport,
}

/// The knobs of a spec.
struct Knobs {
    mode: XdpMode,
    ring_bytes: Option<u32>,
    moderation: Moderation,
    spread: Option<SpreadKnobs>,
    allowed_missing: CapSet,
}

impl XdpLane {
    /// Loads `half` and attaches it to `interfaces` of the thread's network namespace, in the mode
    /// that `spec` asks for.
    ///
    /// # Errors
    /// [`LaneError::Spec`]; [`LaneError::NotFound`] for an interface that does not exist;
    /// [`LaneError::Refused`] for that of the default route without `force`, and for no, too many
    /// or repeated interfaces, and of `cpus=` for a half that may transmit; [`LaneError::Busy`] naming the program that
    /// is there; [`LaneError::CapMissing`] when the driver has no native mode; [`LaneError::NotPermitted`];
    /// [`LaneError::Os`] with the verifier's or driver's reason. Nothing stays attached.
    pub fn open(
        spec: &LaneSpec,
        interfaces: &[&str],
        mut half: KernelHalf,
        options: Options,
    ) -> Result<Self, LaneError> {
        let knobs = read_knobs(spec, &half)?;
        let found = check_interfaces(interfaces, options)?;
        if let (Some(stream), Some(ring_bytes)) = (&mut half.records, knobs.ring_bytes) {
            stream.ring_bytes = ring_bytes;
        }
        let (loaded, spread) = load(&half, &knobs, options)?;
        let (behind, not_counted) = count_behind(&found, options);
        let mut lane = XdpLane {
            ports: Vec::with_capacity(interfaces.len()),
            spread,
            spread_at_end: None,
            loaded,
            behind,
            drops_map: half.drops_map,
            seen_map: half.seen_map,
            outlives_interfaces: options.outlives_interfaces,
            counters: Counters::default(),
            looked: Instant::now(),
            bell: None,
        };
        lane.check_counters(&half)?;
        if let Some(rings) = lane.loaded.rings() {
            rings.moderate(knobs.moderation);
        }
        for (interface, found) in interfaces.iter().zip(&found) {
            let entry = match &lane.spread {
                Some(spread) => spread.program(),
                None => lane.loaded.program(),
            };
            let (link, mut caps) = attach(entry, interface, &knobs)?;
            if link.mode() == XdpMode::Generic && lane.loaded.has_exit_programs() {
                return Err(refuse_generic(interface, &half));
            }
            for (name, fact) in lane.spread.iter().flat_map(Spread::facts) {
                caps.fact(name, fact);
            }
            caps.fact("program", half.program);
            caps.fact("program_id", link.program_id());
            caps.fact("attach_mode", link.mode());
            if let Some(stream) = &half.records {
                let rings = lane.loaded.maps().cpus();
                caps.kernel_memory.bpf_bytes = u64::from(stream.ring_bytes) * rings as u64;
                caps.fact("ring_bytes", stream.ring_bytes);
                caps.fact("wake_records", knobs.moderation.records);
                caps.fact("rings", rings);
            }
            if lane.ports.is_empty() {
                caps.notes.extend(not_counted.clone());
            }
            if !options.never_transmits && found.found().is_veth && link.mode() == XdpMode::Native {
                caps.notes.push(far_end_of_veth(interface, lane.behind.is_some()));
            }
            lane.ports.push(Port { interface: (*interface).to_owned(), link: Some(link), caps });
        }
        Ok(lane)
    }

    /// How many interfaces the half is attached to.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    fn check_presence(&mut self) -> Result<(), LaneError> {
        if self.looked.elapsed() < PRESENCE_INTERVAL {
            return Ok(());
        }
        self.looked = Instant::now();
        let mut gone = Vec::new();
        for (at, port) in self.ports.iter().enumerate() {
            if let Some(link) = &port.link
                && !link.is_attached().map_err(in_lane)?
            {
                gone.push(at);
            }
        }
        let Some(first) = gone.first() else { return Ok(()) };
        let attached = self.ports.iter().filter(|port| port.link.is_some()).count();
        if !self.outlives_interfaces || gone.len() == attached {
            let name = self.ports[*first].interface.clone();
            return Err(LaneError::Gone { lane: LANE.to_owned(), name });
        }
        // The program is the others' as well, and its maps stay.
        gone.into_iter().for_each(|at| self.ports[at].link = None);
        Ok(())
    }

    /// Frames and bytes that the half has seen; zero if it does not count.
    fn seen(&self) -> [u64; 2] {
        let sums = self.seen_map.and_then(|map| self.loaded.maps().per_cpu_sums(map).ok());
        // The map was read when the lane was opened.
        sums.and_then(|sums| sums.try_into().ok()).unwrap_or_default()
    }

    /// Refuses a half whose counter maps are missing or of another shape: later reads rely on it.
    fn check_counters(&self, half: &KernelHalf) -> Result<(), LaneError> {
        let maps = self.loaded.maps();
        for (map, want) in [(half.drops_map, DropReason::COUNT), (half.seen_map, 2)] {
            let Some(map) = map else { continue };
            let words = maps.per_cpu_sums(map)?.len();
            if words != want {
                return Err(LaneError::Input {
                    lane: LANE.to_owned(),
                    name: half.name.to_owned(),
                    why: format!("counter map `{map}` has {words} u64 values, needed are {want}"),
                });
            }
        }
        Ok(())
    }
}

impl Lane for XdpLane {
    fn name(&self) -> &'static str {
        LANE
    }

    fn ports(&self) -> usize {
        1
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        if let Some(rings) = self.loaded.rings() {
            // The kernel refuses for want of memory only; then a wait ends when its time is up.
            let _ = rings.hear(bell.as_fd());
        }
        self.bell = Some(bell.clone());
    }

    /// Returns at the latest after about 100 ms, to look whether the interfaces are still there.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.counters.waits += 1;
        let timeout = timeout.min(PRESENCE_INTERVAL);
        let wake = match self.loaded.rings() {
            Some(rings) => rings.wait(timeout).map_err(in_lane)?,
            None => match &self.bell {
                Some(bell) if bell.wait(timeout) => Wake::Ready,
                Some(_) => Wake::Timeout,
                None => {
                    thread::sleep(timeout);
                    Wake::Timeout
                }
            },
        };
        if wake == Wake::Timeout {
            self.check_presence()?;
        }
        Ok(wake)
    }

    /// # Panics
    /// When the lane has no such port.
    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, _port: PortId) -> Counters {
        let maps = self.loaded.maps();
        let read = |map: Option<&str>| map.and_then(|map| maps.per_cpu_sums(map).ok());
        // Both maps were read when the lane was opened; should a read fail now, the last figures
        // stand.
        if let Some(seen) = read(self.seen_map) {
            (self.counters.rx_frames, self.counters.rx_bytes) = (seen[0], seen[1]);
        }
        for (&reason, total) in DropReason::ALL.iter().zip(read(self.drops_map).unwrap_or_default())
        {
            self.counters.set_drops(reason, total);
        }
        let mut counters = self.counters.clone();
        if let Some(behind) = &self.behind {
            behind.add_to(&mut counters);
        }
        if let Some(spread) = &self.spread {
            // While frames are under way, what was not dropped yet is not reported yet.
            let now = self.spread_at_end.unwrap_or_else(|| spread.read());
            counters.drop_many(DropReason::RxQueueFull, now.queue_full);
            counters.rx_frames += now.queue_full;
            if let Some(Spreading { frames, bytes, .. }) = self.spread_at_end {
                counters.drop_many(DropReason::RxError, frames.saturating_sub(counters.rx_frames));
                (counters.rx_frames, counters.rx_bytes) = (frames, bytes);
            }
        }
        counters
    }
}

impl KernelLane for XdpLane {
    /// Each call of `each` gets one record.
    ///
    /// # Errors
    /// [`LaneError::Gone`] when an interface has disappeared (noticed while idle, about every
    /// 100 ms), or the last one of an app that outlives others; [`LaneError::Input`] when the program breaks its word
    /// on the record size.
    #[inline]
    fn receive(&mut self, each: impl FnMut(&[u8])) -> Result<usize, LaneError> {
        let records = match self.loaded.rings() {
            None => 0,
            Some(rings) => rings.consume(each).map_err(in_lane)?,
        };
        if records == 0 {
            self.counters.polls_empty += 1;
            self.check_presence()?;
        }
        Ok(records)
    }

    /// When this returns no CPU runs the program any more: what the rings and maps hold is final, but on a kernel that
    /// cannot be waited for.
    fn detach(&mut self) {
        let links: Vec<XdpLink> = self.ports.iter_mut().filter_map(|p| p.link.take()).collect();
        if !links.is_empty() {
            drop(links);
            let _ = wait_for_programs();
            self.spread_at_end = self.spread.as_ref().map(|spread| spread.drain(|| self.seen()[0]));
        }
    }

    fn maps(&self) -> &dyn KernelMaps {
        self
    }
}

/// Those of the half, and what the lane counts behind it.
impl KernelMaps for XdpLane {
    fn visit(&self, map: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
        self.loaded.maps().visit(map, each)
    }

    fn look_up(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, LaneError> {
        self.loaded.maps().look_up(map, key)
    }

    fn remove(&self, map: &str, key: &[u8]) -> Result<(), LaneError> {
        self.loaded.maps().remove(map, key)
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), LaneError> {
        self.loaded.maps().put(map, key, value)
    }

    fn set(&self, map: &str, key: &[u8], value: &MapValue) -> Result<(), LaneError> {
        self.loaded.maps().set(map, key, value)
    }

    fn exit_drops(&self, ifindex: u32) -> Counters {
        self.behind.as_ref().map_or_else(Counters::default, |behind| behind.of(ifindex))
    }
}

/// Loads the half, and what leads to it if it is to run on the CPUs of its flows.
fn load(
    half: &KernelHalf,
    knobs: &Knobs,
    options: Options,
) -> Result<(Loaded, Option<Spread>), LaneError> {
    let Some(spread) = &knobs.spread else {
        return Ok((Loaded::load(half).map_err(in_lane)?, None));
    };
    if !options.never_transmits {
        return Err(LaneError::Refused {
            lane: LANE.to_owned(),
            name: format!("cpus= for app {}", half.name),
            why: "its program sends frames, and behind a CPUMAP the kernel throws away what a program \
                  sends (XDP_TX)"
                .to_owned(),
            hint: "leave cpus= out; it is for apps that only pass and drop, such as features"
                .to_owned(),
        });
    }
    let loaded = Loaded::load_for_cpumap(half).map_err(in_lane)?;
    let spread = Spread::new(spread.clone(), half, loaded.program())?;
    Ok((loaded, Some(spread)))
}

fn read_knobs(spec: &LaneSpec, half: &KernelHalf) -> Result<Knobs, SpecError> {
    let knobs = spec.knobs();
    let (native, generic) = (knobs.flag("native")?, knobs.flag("generic")?);
    if native && generic {
        return Err(knobs.bad("generic", "on", "native and generic exclude each other; use one"));
    }
    let ring_bytes = match knobs.text("ring")? {
        None => None,
        Some(text) if half.records.is_none() => {
            return Err(knobs.bad("ring", text, "this app emits no records; leave the knob out"));
        }
        Some(_) => {
            let range = RING_BYTES_MIN as usize..=RING_BYTES_MAX as usize;
            Some(knobs.power_of_two("ring", *range.start(), range)? as u32)
        }
    };
    let default = Moderation::default();
    let records = match knobs.text("wake")? {
        Some(text) if half.records.is_none() => {
            return Err(knobs.bad("wake", text, "this app emits no records; leave the knob out"));
        }
        _ => knobs.number("wake", default.records, 1..=WAKE_RECORDS_MAX)?,
    };
    let read = Knobs {
        mode: if generic { XdpMode::Generic } else { XdpMode::Native },
        ring_bytes,
        moderation: Moderation { records, ..default },
        spread: SpreadKnobs::read(&knobs)?,
        allowed_missing: knobs.allowed_missing()?,
    };
    // The worker follows it; here it only has to be one.
    knobs.idle()?;
    knobs.finish()?;
    Ok(read)
}

/// Counts what the kernel drops behind the program; where that cannot be, says so.
fn count_behind(found: &[Interface], options: Options) -> (Option<Behind>, Option<String>) {
    if options.never_transmits {
        return (None, None);
    }
    let ifindexes: Vec<u32> = found.iter().map(Interface::index).collect();
    match Behind::attach(&ifindexes) {
        Ok(behind) => (Some(behind), None),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default();
            let note = format!(
                "frames that the kernel drops behind XDP_TX and XDP_REDIRECT are not counted here: {why}"
            );
            (None, Some(note))
        }
    }
}

/// What a user of a veth has to know before the counters of sent frames can be read. The driver takes frames
/// where the far end has NAPI, but wakes that for `XDP_TX` only where it has a program (`veth_xdp_flush`). Nothing
/// says to a program which checksums were left to a device, or which tag the kernel keeps beside a frame, and a frame
/// that it redirects is no socket buffer any more, which would know.
fn far_end_of_veth(interface: &str, counted: bool) -> String {
    let counted = if counted {
        " (counted as tx_refused; copies for several interfaces are not even made)"
    } else {
        ""
    };
    format!(
        "`{interface}` is a veth: what the program sends by it gets to a far end that has an XDP program as \
         well; otherwise the kernel drops it{counted} or, where GRO is on at the far end, takes redirected \
         frames and leaves those of XDP_TX in a queue, uncounted; TCP and UDP whose checksums its other end leaves to a device \
         go on without, and receivers drop them: `ethtool -K IF tx off` there; the tags of its VLAN devices \
         are not in the frames, and what the program sends has none: `ethtool -K IF txvlan off` there"
    )
}

/// The interfaces, once they are such as a lane may have.
fn check_interfaces(interfaces: &[&str], options: Options) -> Result<Vec<Interface>, LaneError> {
    let refuse = |name: &str, why: &str, hint: &str| {
        Err(LaneError::Refused {
            lane: LANE.to_owned(),
            name: name.to_owned(),
            why: why.to_owned(),
            hint: hint.to_owned(),
        })
    };
    if interfaces.is_empty() || interfaces.len() > PortMask::PORTS_MAX {
        let why = "a lane has 1 to 32 interfaces";
        return refuse(&interfaces.join(","), why, "name them with --on IFACE");
    }
    let mut found = Vec::with_capacity(interfaces.len());
    for (i, interface) in interfaces.iter().enumerate() {
        if interfaces[..i].contains(interface) {
            return refuse(interface, "it is named twice", "name each interface once");
        }
        attachment(interface).map_err(in_lane)?;
        if !options.force {
            let hint = "choose another interface, or insist with --force";
            refuse_default_route(LANE, interface, CUTS_OFF, hint)?;
        }
        found.push(Interface::find(LANE, interface)?);
    }
    Ok(found)
}

/// Attaches in the mode asked for; in generic mode instead only when the spec allows that by name.
fn attach(
    program: BorrowedFd<'_>,
    interface: &str,
    knobs: &Knobs,
) -> Result<(XdpLink, CapsReport), LaneError> {
    let mut caps = CapsReport {
        requested: CapSet::default().with_if(Cap::NativeXdp, knobs.mode == XdpMode::Native),
        allowed_missing: knobs.allowed_missing,
        ..CapsReport::default()
    };
    let link = match XdpLink::attach(program, interface, knobs.mode) {
        Err(BpfError::ModeRefused { mode: XdpMode::Native, source, .. })
            if knobs.allowed_missing.has(Cap::NativeXdp) =>
        {
            caps.fact("native_refused", &source);
            XdpLink::attach(program, interface, XdpMode::Generic).map_err(in_lane)?
        }
        // The driver has no native mode at all: the contract's own sentence says it best.
        Err(BpfError::ModeRefused { mode: XdpMode::Native, source, .. })
            if source.kind() == io::ErrorKind::Unsupported =>
        {
            return Err(LaneError::CapMissing {
                lane: LANE.to_owned(),
                cap: Cap::NativeXdp,
                needs: None,
            });
        }
        other => other.map_err(in_lane)?,
    };
    caps.obtained = caps.obtained.with_if(Cap::NativeXdp, link.mode() == XdpMode::Native);
    caps.admit(LANE, |_| None)?;
    Ok((link, caps))
}

/// In generic mode the copies of a frame that is sent to several devices share their bytes
/// (`skb_clone`), and the programs on the way out may write over each other's. Over a veth they were
/// seen to come out right; nothing says that they do elsewhere.
fn refuse_generic(interface: &str, half: &KernelHalf) -> LaneError {
    LaneError::Refused {
        lane: LANE.to_owned(),
        name: format!("app {} on `{interface}` in generic mode", half.name),
        why: "its programs on the way out write into copies of a frame, which share their bytes there"
            .to_owned(),
        hint: "use interfaces with native XDP, or another lane".to_owned(),
    }
}

fn in_lane(error: BpfError) -> LaneError {
    error.in_lane(LANE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::RecordStream;

    fn half(records: bool) -> KernelHalf {
        KernelHalf {
            records: records.then_some(RecordStream {
                map: "records",
                record_bytes: 8,
                ring_bytes: 4096,
                wanted_map: "wanted",
            }),
            ..KernelHalf::new("half", &[], "main")
        }
    }

    fn knobs(spec: &str) -> Result<Knobs, SpecError> {
        read_knobs(&spec.parse().unwrap(), &half(true))
    }

    #[test]
    fn native_is_asked_for_unless_generic_is() {
        for (spec, mode) in [
            ("xdp", XdpMode::Native),
            ("xdp:native", XdpMode::Native),
            ("xdp:generic", XdpMode::Generic),
        ] {
            assert_eq!(knobs(spec).unwrap().mode, mode, "{spec}");
        }
        assert!(knobs("xdp:native,generic").is_err());
    }

    #[test]
    fn a_ring_is_a_power_of_two_within_limits_and_needs_records() {
        assert_eq!(knobs("xdp:ring=4m").unwrap().ring_bytes, Some(4 << 20));
        assert_eq!(knobs("xdp").unwrap().ring_bytes, None);
        for spec in ["xdp:ring=5000", "xdp:ring=2k", "xdp:ring=4096m", "xdp:ring"] {
            assert!(knobs(spec).is_err(), "{spec}");
        }
        assert!(read_knobs(&"xdp:ring=4m".parse().unwrap(), &half(false)).is_err());
    }

    #[test]
    fn a_wake_up_is_for_some_records_and_needs_records() {
        assert_eq!(knobs("xdp:wake=7").unwrap().moderation.records, 7);
        assert_eq!(knobs("xdp").unwrap().moderation, Moderation::default());
        assert!(knobs("xdp:wake=0").is_err());
        assert!(read_knobs(&"xdp:wake=7".parse().unwrap(), &half(false)).is_err());
    }

    #[test]
    fn other_knobs_are_named_errors() {
        let refused = knobs("xdp:genric").err().unwrap().to_string();
        assert!(refused.contains("did you mean `generic`?"), "{refused}");
    }

    #[test]
    fn interfaces_are_named_once_each_and_at_least_one() {
        for (interfaces, want) in [(&[][..], "1 to 32"), (&["lo", "lo"][..], "twice")] {
            let options = Options { force: true, ..Options::default() };
            let refused = check_interfaces(interfaces, options).unwrap_err().to_string();
            assert!(refused.contains(want), "{refused}");
        }
    }
}
