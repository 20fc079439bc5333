//! The plan by which the streams of one trace are decoded: layouts, clocks and the meaning of each kind of event.
//!
//! Made once from the metadata. For layouts that matter it knows where everything lies ([`Fixed`], [`Form`]), so that
//! an event is a few loads; for all others it keeps the layout to walk.

use std::collections::{HashMap, HashSet};

use super::layout::{Compiler, Node, Spot, SpotKind, Whole, fixed};
use super::lexer::{Misread, Parsed, TextPosition};
use super::syscalls;
use super::types::{Duty, EventClass, Metadata, StreamClass};
use crate::event::{FunctionKey, PoolAction};
use crate::pairs::call_of;
use crate::symbols::Symbols;

/// Ids below this are found by index.
const DENSE_IDS: u64 = 4096;

/// How to decode the streams of one trace.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) packet_header: Option<Node>,
    pub(super) streams: Vec<StreamPlan>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) big_endian: bool,
    /// Values to keep for lengths and tags.
    pub(super) slots: usize,
    /// Process of all events, where the trace is of one (`vpid` of the environment).
    pub(super) pid: u32,
}

/// How to decode the streams of one class.
#[derive(Debug)]
pub(super) struct StreamPlan {
    pub(super) id: u64,
    pub(super) packet_context: Option<Node>,
    pub(super) header: Option<Node>,
    pub(super) context: Option<Node>,
    /// Events are recorded per CPU, of whichever thread is on it.
    pub(super) kernel: bool,
    pub(super) form: Form,
    pub(super) scale: Scale,
    pub(super) who: Who,
    pub(super) kinds: Vec<EventPlan>,
    /// Calls and exits of known layout, by id.
    calls: Vec<Option<CallPlan>>,
    dense: Vec<u32>,
    sparse: HashMap<u64, u32>,
}

/// Event headers that are read without walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// LTTng: 5 bits of id and 27 of time, or 31, 32 bits of id and 64 of time.
    Compact,
    /// LTTng: 16 bits of id and 32 of time, or 65535, 32 bits of id and 64 of time.
    Large,
    /// DPDK: 48 bits of time and 16 of id, aligned to 8 bytes.
    Dpdk,
    /// Any other: walked.
    Other,
}

/// Where the context of its stream names the thread of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Who {
    pub(super) pid: Option<Spot>,
    pub(super) tid: Option<Spot>,
    pub(super) name: Option<Spot>,
    /// The context tells the thread, if only to a walk.
    pub(super) names_thread: bool,
}

impl Who {
    /// Offsets of process and thread as 8 bytes in a row, and of a name of 17 bytes: the contexts that every user adds.
    pub(super) fn in_a_row(self) -> Option<(usize, usize)> {
        let (pid, tid, name) = (self.pid?, self.tid?, self.name?);
        (tid.offset == pid.offset + 4 && name.bytes == 17).then_some((pid.offset, name.offset))
    }
}

/// Ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    origin_ns: i64,
    frequency_hz: u64,
}

impl Scale {
    pub(super) fn new(frequency_hz: u64, offset_s: i64, offset_ticks: u64) -> Self {
        let seconds = i64::try_from(offset_ticks / frequency_hz).unwrap_or(i64::MAX);
        let rest = ticks_ns(offset_ticks % frequency_hz, frequency_hz);
        let origin_ns = offset_s
            .saturating_add(seconds)
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::try_from(rest).unwrap_or(i64::MAX));
        Self { origin_ns, frequency_hz }
    }

    pub(super) fn origin_ns(self) -> i64 {
        self.origin_ns
    }

    /// Nanoseconds since the epoch.
    pub(super) fn ns(self, ticks: u64) -> u64 {
        let ns = ticks_ns(ticks, self.frequency_hz);
        if self.origin_ns >= 0 {
            ns.saturating_add(self.origin_ns.unsigned_abs())
        } else {
            ns.saturating_sub(self.origin_ns.unsigned_abs())
        }
    }
}

/// As babeltrace2 computes it, in double precision and cut off: what both print must be the same moment.
fn ticks_ns(ticks: u64, frequency_hz: u64) -> u64 {
    if frequency_hz == 1_000_000_000 {
        ticks
    } else {
        (1e9 * ticks as f64 / frequency_hz as f64) as u64
    }
}

/// How to decode one kind of event.
#[derive(Debug)]
pub(super) struct EventPlan {
    pub(super) name: String,
    pub(super) context: Option<Node>,
    pub(super) fields: Option<Node>,
    pub(super) role: Role,
    pub(super) fixed: Option<Fixed>,
}

/// A layout whose members lie at fixed bytes behind the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    /// All of context and fields.
    pub(super) bytes: usize,
    /// The fields that [`Role::wanted`] names, in its order.
    pub(super) spots: [Option<Spot>; WANTED_MAX],
    /// Offset of the address of a call, if it has 8 bytes in the byte order of the trace.
    pub(super) address: Option<usize>,
}

/// A call or exit of known layout: all that is needed of it in a few bytes, because nearly all events are one.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPlan {
    /// All of context and fields.
    pub(super) bytes: u32,
    /// Offset of the address, which has 8 bytes in the byte order of the trace.
    pub(super) address: u32,
    pub(super) enters: bool,
}

/// Most fields of an event that become part of what is delivered.
pub(super) const WANTED_MAX: usize = 3;

/// What an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Enter,
    Leave,
    LeaveInnermost,
    Receive,
    Send,
    Pool(PoolAction),
    /// Tells about the process or a pool, not about a moment.
    Tells(Tells),
    /// Something with a beginning and an end of its own begins ...
    Begin(FunctionKey),
    /// ... and ends.
    End(FunctionKey),
    /// What the kernel's tracer tells of the thread on the CPU.
    Kernel(Kernel),
    Point(u32),
}

/// An event of the kernel's tracer. Interrupts carry their number, softirqs theirs plus 65,536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Another thread has the CPU.
    Switch,
    /// A thread may go on, and this is the one that lets it.
    Waking,
    InterruptIn,
    InterruptOut,
    SoftirqIn,
    SoftirqOut,
    /// A point within an interrupt that has no number of a device begins: a timer, a call of another CPU.
    HandlerIn(u32),
    HandlerOut(u32),
    /// With its number.
    SyscallIn(u32),
    SyscallOut(u32),
    /// Anything else, at its moment.
    Point(u32),
}

/// What such an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// A program or library lies here.
    Module,
    /// ... and this is its build id.
    BuildId,
    /// A pool was created.
    Pool,
    /// Nothing that is used.
    Nothing,
}

impl Kernel {
    fn of(name: &str, point: impl FnOnce() -> u32) -> Self {
        match name {
            "sched_switch" => Self::Switch,
            // `sched_wakeup` is written on the CPU of the thread that is woken, in the name of whichever runs there.
            "sched_waking" => Self::Waking,
            "irq_handler_entry" => Self::InterruptIn,
            "irq_handler_exit" => Self::InterruptOut,
            "softirq_entry" | "irq_softirq_entry" => Self::SoftirqIn,
            "softirq_exit" | "irq_softirq_exit" => Self::SoftirqOut,
            "exit_syscall" => Self::SyscallOut(syscalls::UNKNOWN),
            _ if is_handler(name, "_entry") => Self::HandlerIn(point()),
            _ if is_handler(name, "_exit") => Self::HandlerOut(point()),
            _ => {
                let call = |begin: &str| name.strip_prefix(begin).map(syscalls::number);
                // Before LTTng 2.6 an entry is `sys_read`.
                if let Some(number) = call("syscall_entry_").or_else(|| call("sys_")) {
                    Self::SyscallIn(number)
                } else if let Some(number) = call("syscall_exit_") {
                    Self::SyscallOut(number)
                } else {
                    Self::Point(point())
                }
            }
        }
    }
}

/// An interrupt of x86 that no device has (`x86_irq_vectors_local_timer_entry`), or the callback of a timer.
fn is_handler(name: &str, end: &str) -> bool {
    let of = name.strip_suffix(end);
    of.is_some_and(|of| of == "timer_hrtimer_expire" || of.starts_with("x86_irq_vectors_"))
}

impl Role {
    fn of(name: &str, has: impl Fn(&str) -> bool, point: impl FnOnce() -> u32) -> Self {
        let role = match name {
            "lttng_ust_cyg_profile:func_entry" | "lttng_ust_cyg_profile_fast:func_entry" => {
                Self::Enter
            }
            "lttng_ust_cyg_profile:func_exit" => Self::Leave,
            "lttng_ust_cyg_profile_fast:func_exit" => Self::LeaveInnermost,
            "lib.ethdev.rx.burst"
            | "lib.ethdev.rx.burst.empty"
            | "lib.ethdev.rx.burst.nonempty" => Self::Receive,
            "lib.ethdev.tx.burst" => Self::Send,
            // `get.bulk` and `put.bulk` call the generic ones: taking both would count each buffer twice.
            "lib.mempool.generic.get" => Self::Pool(PoolAction::Get),
            "lib.mempool.generic.put" => Self::Pool(PoolAction::Put),
            "lib.mempool.ops.deq.bulk" => Self::Pool(PoolAction::Refill),
            "lib.mempool.ops.enq.bulk" => Self::Pool(PoolAction::Drain),
            "lib.mempool.create" | "lib.mempool.create.empty" => return Self::Tells(Tells::Pool),
            "lttng_ust_statedump:bin_info" | "lttng_ust_lib:load" | "lttng_ust_dl:dlopen" => {
                return Self::Tells(Tells::Module);
            }
            "lttng_ust_statedump:build_id" | "lttng_ust_lib:build_id" | "lttng_ust_dl:build_id" => {
                return Self::Tells(Tells::BuildId);
            }
            _ if name.starts_with("lttng_ust_statedump:")
                || name.starts_with("lttng_ust_lib:")
                || name.starts_with("lttng_ust_dl:") =>
            {
                return Self::Tells(Tells::Nothing);
            }
            _ => return Self::Point(point()),
        };
        let optional = |wanted: &str| role == Self::Receive && wanted == "nb_rx";
        if role.wanted().iter().all(|wanted| optional(wanted) || has(wanted)) {
            role
        } else {
            Self::Point(point())
        }
    }

    /// Names of the fields that become part of what is delivered.
    pub(super) fn wanted(self) -> &'static [&'static str] {
        match self {
            Self::Enter | Self::Leave => &["addr"],
            Self::Kernel(Kernel::InterruptIn | Kernel::InterruptOut) => &["irq"],
            Self::Kernel(Kernel::SoftirqIn | Kernel::SoftirqOut) => &["vec"],
            Self::LeaveInnermost
            | Self::Tells(_)
            | Self::Begin(_)
            | Self::End(_)
            | Self::Kernel(_)
            | Self::Point(_) => &[],
            Self::Receive => &["port_id", "queue_id", "nb_rx"],
            Self::Send => &["port_id", "queue_id", "nb_pkts"],
            Self::Pool(_) => &["mempool", "nb_objs"],
        }
    }
}

impl StreamPlan {
    /// Where the kind of event with this id lies in `kinds`; beyond its end for some ids without a kind.
    #[inline]
    pub(super) fn index(&self, id: u64) -> Option<usize> {
        let index = match usize::try_from(id).ok().and_then(|id| self.dense.get(id)) {
            Some(&index) => index,
            None => *self.sparse.get(&id)?,
        };
        usize::try_from(index).ok()
    }

    /// The call or exit with this id, if its layout is known.
    #[inline]
    pub(super) fn call(&self, id: u32) -> Option<CallPlan> {
        self.calls.get(id as usize).copied().flatten()
    }

    /// The kind of event with this id.
    #[inline]
    pub(super) fn kind(&self, id: u64) -> Option<&EventPlan> {
        self.kinds.get(self.index(id)?)
    }
}

impl Plan {
    /// Compiles `metadata`. `symbols` numbers points, and the calls that two of them are.
    ///
    /// # Errors
    /// [`Misread`] if a layout refers to something that is not there.
    pub(super) fn new(metadata: &Metadata, symbols: &mut Symbols) -> Parsed<Self> {
        let at = |place: TextPosition, what: String| Misread { place, what };
        let big_endian = metadata.big_endian.unwrap_or(false);
        let clocks: Vec<String> = metadata.clocks.iter().map(|clock| clock.name.clone()).collect();
        let mut compiler = Compiler::new(big_endian, metadata.second, &clocks);
        let mut packet_header =
            match &metadata.packet_header {
                Some(of) => Some(compiler.compile(of, &mut []).map_err(|why| {
                    at(metadata.place, format!("packet header of the trace: {why}"))
                })?),
                None => None,
            };
        let names: HashSet<&str> =
            metadata.events.iter().map(|event| event.name.as_str()).collect();
        let kernel = metadata.env.iter().any(|(name, value)| name == "domain" && value == "kernel");
        let mut streams = Vec::with_capacity(metadata.streams.len());
        for class in &metadata.streams {
            let mut building =
                Building { metadata, compiler: &mut compiler, symbols, names: &names, kernel };
            streams.push(building.stream(class, &mut packet_header)?);
        }
        // Only now: compiling an event may have given a slot to a member of a context before it.
        for stream in &mut streams {
            stream.find_fixed(big_endian);
            stream.find_calls();
        }
        let pid = metadata.env.iter().find(|(name, _)| name == "vpid");
        Ok(Self {
            packet_header,
            streams,
            uuid: metadata.uuid,
            big_endian,
            slots: compiler.slots,
            pid: pid.and_then(|(_, pid)| pid.parse().ok()).unwrap_or(0),
        })
    }
}

/// The layouts of a stream class while they are compiled: each may refer to values of those before it.
struct Layouts {
    packet_context: Option<Node>,
    header: Option<Node>,
    context: Option<Node>,
}

/// What compiling the stream classes of one trace shares.
struct Building<'a, 'c> {
    metadata: &'a Metadata,
    compiler: &'a mut Compiler<'c>,
    symbols: &'a mut Symbols,
    /// Of all events: a pair of them may be a call.
    names: &'a HashSet<&'a str>,
    kernel: bool,
}

impl Building<'_, '_> {
    fn stream(
        &mut self,
        class: &StreamClass,
        packet_header: &mut Option<Node>,
    ) -> Parsed<StreamPlan> {
        let mut layouts = self.layouts(class, packet_header)?;
        let mut kinds = Vec::new();
        let mut sparse = HashMap::new();
        let metadata = self.metadata;
        for event in metadata.events.iter().filter(|event| event.stream_id == Some(class.id)) {
            let named = |why: &str| Misread {
                place: event.place,
                what: format!("event `{}`: {why}", event.name),
            };
            let index = u32::try_from(kinds.len()).map_err(|_| named("too many events"))?;
            kinds.push(self.event(event, &mut layouts)?);
            if sparse.insert(event.id, index).is_some() {
                return Err(named(&format!("second event with id {}", event.id)));
            }
        }
        let largest = sparse.keys().filter(|&&id| id < DENSE_IDS).max();
        let mut dense = vec![u32::MAX; largest.map_or(0, |&largest| largest as usize + 1)];
        for (&id, &index) in &sparse {
            if let Some(place) = usize::try_from(id).ok().and_then(|id| dense.get_mut(id)) {
                *place = index;
            }
        }
        let Layouts { packet_context, header, context } = layouts;
        let clock = header
            .as_ref()
            .and_then(clock_of)
            .or_else(|| packet_context.as_ref().and_then(clock_of));
        let scale = match clock.and_then(|clock| metadata.clocks.get(clock)) {
            Some(clock) => Scale::new(clock.frequency_hz, clock.offset_s, clock.offset_ticks),
            None => Scale::new(1_000_000_000, 0, 0),
        };
        let big_endian = metadata.big_endian.unwrap_or(false);
        Ok(StreamPlan {
            id: class.id,
            form: header.as_ref().map_or(Form::Other, |header| form(header, big_endian)),
            who: Who::default(),
            packet_context,
            header,
            context,
            kernel: self.kernel,
            scale,
            kinds,
            calls: Vec::new(),
            dense,
            sparse,
        })
    }

    /// What stands in front of the events of a class.
    fn layouts(
        &mut self,
        class: &StreamClass,
        packet_header: &mut Option<Node>,
    ) -> Parsed<Layouts> {
        let named = |what: &str, why: String| Misread {
            place: class.place,
            what: format!("{what} of stream class {}: {why}", class.id),
        };
        let compiler = &mut *self.compiler;
        let (mut packet_context, mut header, mut context) = (None, None, None);
        if let Some(of) = &class.packet_context {
            let roots = &mut [("trace.packet.header", &mut *packet_header)];
            let mut node =
                compiler.compile(of, roots).map_err(|why| named("packet context", why))?;
            end_sets_no_clock(&mut node);
            packet_context = Some(node);
        }
        if let Some(of) = &class.event_header {
            let roots = &mut [
                ("trace.packet.header", &mut *packet_header),
                ("stream.packet.context", &mut packet_context),
            ];
            header = Some(compiler.compile(of, roots).map_err(|why| named("event header", why))?);
        }
        if let Some(of) = &class.event_context {
            let roots = &mut [
                ("trace.packet.header", &mut *packet_header),
                ("stream.packet.context", &mut packet_context),
                ("stream.event.header", &mut header),
            ];
            context = Some(compiler.compile(of, roots).map_err(|why| named("event context", why))?);
        }
        Ok(Layouts { packet_context, header, context })
    }

    fn event(&mut self, event: &EventClass, layouts: &mut Layouts) -> Parsed<EventPlan> {
        let named = |why: String| Misread {
            place: event.place,
            what: format!("event `{}`: {why}", event.name),
        };
        let Layouts { packet_context, header, context } = layouts;
        let mut own = None;
        if let Some(of) = &event.context {
            let roots = &mut [
                ("stream.packet.context", &mut *packet_context),
                ("stream.event.header", &mut *header),
                ("stream.event.context", &mut *context),
            ];
            own = Some(self.compiler.compile(of, roots).map_err(named)?);
        }
        let mut fields = None;
        if let Some(of) = &event.fields {
            let roots = &mut [
                ("stream.packet.context", &mut *packet_context),
                ("stream.event.header", &mut *header),
                ("stream.event.context", &mut *context),
                ("event.context", &mut own),
            ];
            fields = Some(self.compiler.compile(of, roots).map_err(named)?);
        }
        let role = self.role(event, fields.as_ref());
        Ok(EventPlan { name: event.name.clone(), context: own, fields, role, fixed: None })
    }

    /// What events of this kind mean.
    fn role(&mut self, event: &EventClass, fields: Option<&Node>) -> Role {
        let has = |name: &str| match fields {
            Some(Node::Struct { members, .. }) => members
                .iter()
                .any(|member| member.name() == name && matches!(member.node, Node::Whole(_))),
            _ => false,
        };
        let symbols = &mut *self.symbols;
        if self.kernel && event.name.starts_with("lttng_statedump_") {
            Role::Tells(Tells::Nothing)
        } else if self.kernel {
            Role::Kernel(Kernel::of(&event.name, || symbols.number_point(&event.name)))
        } else if let Some((call, begins)) = call_of(&event.name, self.names, &symbols.calls) {
            let key = symbols.number_function(&call, "");
            if begins { Role::Begin(key) } else { Role::End(key) }
        } else {
            Role::of(&event.name, has, || symbols.number_point(&event.name))
        }
    }
}

impl StreamPlan {
    fn find_calls(&mut self) {
        let call = |index: u32| -> Option<CallPlan> {
            let kind = self.kinds.get(usize::try_from(index).ok()?)?;
            let fixed = kind.fixed?;
            Some(CallPlan {
                bytes: u32::try_from(fixed.bytes).ok()?,
                address: u32::try_from(fixed.address?).ok()?,
                enters: kind.role == Role::Enter,
            })
        };
        self.calls = self.dense.iter().map(|&index| call(index)).collect();
        let used = self.calls.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.calls.truncate(used);
    }

    fn find_fixed(&mut self, big_endian: bool) {
        let mut spots = Vec::new();
        let context = match &self.context {
            None => Some(0),
            Some(node) => {
                self.who.names_thread =
                    ["vtid", "tid", "vpid", "pid"].iter().any(|name| names(node, name));
                fixed(node, 0, &mut spots)
            }
        };
        let Some(context) = context else { return };
        let spot = |names: [&str; 2], whole: bool| {
            let mut found = names.iter().filter_map(|wanted| {
                spots.iter().find(|(name, _)| name == wanted).map(|&(_, spot)| spot)
            });
            found.find(|spot| matches!(spot.kind, SpotKind::Whole { .. }) == whole)
        };
        self.who.pid = spot(["vpid", "pid"], true).filter(|spot| spot.bytes == 4);
        self.who.tid = spot(["vtid", "tid"], true).filter(|spot| spot.bytes == 4);
        self.who.name = spot(["procname", "procname"], false);
        for kind in &mut self.kinds {
            kind.fixed = None;
            if matches!(kind.role, Role::Tells(_) | Role::Kernel(_)) {
                continue;
            }
            let mut spots = Vec::new();
            let own = kind
                .context
                .as_ref()
                .map_or(Some(context), |node| fixed(node, context, &mut spots));
            spots.clear();
            let Some(own) = own else { continue };
            let bytes = kind.fields.as_ref().map_or(Some(own), |node| fixed(node, own, &mut spots));
            let Some(bytes) = bytes else { continue };
            let mut found = [None; WANTED_MAX];
            for (place, wanted) in found.iter_mut().zip(kind.role.wanted()) {
                *place = spots.iter().find(|(name, _)| name == wanted).map(|&(_, spot)| spot);
            }
            if let Role::Point(_) = kind.role {
                let first = spots.iter().find(|(_, spot)| spot.kind != SpotKind::Text);
                found[0] = first.map(|&(_, spot)| spot);
            }
            let address = found[0]
                .filter(|spot| matches!(kind.role, Role::Enter | Role::Leave) && spot.bytes == 8)
                .filter(|spot| matches!(spot.kind, SpotKind::Whole { big_endian: big, .. } if big == big_endian))
                .map(|spot| spot.offset);
            kind.fixed = Some(Fixed { bytes, spots: found, address });
        }
    }
}

fn names(node: &Node, name: &str) -> bool {
    match node {
        Node::Struct { members, .. } => members.iter().any(|member| member.name() == name),
        _ => false,
    }
}

/// `timestamp_end` is a moment in the future of the packet: reading it must not set the clock its events begin with.
fn end_sets_no_clock(node: &mut Node) {
    if let Node::Struct { members, .. } = node {
        for member in members {
            if let Node::Whole(whole) = &mut member.node
                && whole.duty == Some(Duty::PacketEnd)
            {
                whole.clock = None;
            }
        }
    }
}

fn clock_of(node: &Node) -> Option<usize> {
    match node {
        Node::Whole(whole) | Node::Enumeration(whole, _) => whole.clock,
        Node::Struct { members, .. } => members.iter().find_map(|member| clock_of(&member.node)),
        Node::Variant { options, .. } => options.iter().find_map(|option| clock_of(&option.node)),
        Node::Array { of, .. } | Node::Sequence { of, .. } => clock_of(of),
        Node::Float { .. } | Node::Text => None,
    }
}

/// Recognises headers by their structure, not by their name.
fn form(header: &Node, big_endian: bool) -> Form {
    let Node::Struct { align_bits, members } = header else { return Form::Other };
    let is_id = |whole: &Whole| whole.duty == Some(Duty::EventClass);
    let plain = |whole: &Whole, bits: u32, align: u32| {
        whole.bits == bits
            && !whole.variable
            && whole.align_bits == align
            && whole.big_endian == big_endian
            && !whole.signed
    };
    match members.as_slice() {
        [time, id] => match (&time.node, &id.node) {
            (Node::Whole(time), Node::Whole(number))
                if *align_bits == 64
                    && plain(time, 48, 1)
                    && time.clock.is_some()
                    && plain(number, 16, 8)
                    && is_id(number) =>
            {
                Form::Dpdk
            }
            (Node::Enumeration(tag, ranges), Node::Variant { options, .. })
                if *align_bits == 8 && is_id(tag) =>
            {
                let (form, bits, time_bits, time_align, limit) = match tag.bits {
                    5 => (Form::Compact, (5, 1), 27, 1, 31),
                    16 => (Form::Large, (16, 8), 32, 8, 65_535),
                    _ => return Form::Other,
                };
                let labels = ranges.iter().map(|range| (&*range.label, range.first, range.last));
                let labels_fit = labels.eq([("compact", 0, limit - 1), ("extended", limit, limit)]);
                let inner = |option: usize| match &options.get(option)?.node {
                    Node::Struct { members, align_bits: ..=8 } => Some(members.as_slice()),
                    _ => None,
                };
                let short = matches!(inner(0), Some([only]) if matches!(&only.node,
                    Node::Whole(whole) if plain(whole, time_bits, time_align) && whole.clock.is_some()));
                let long = matches!(inner(1), Some([id, time])
                    if matches!((&id.node, &time.node), (Node::Whole(id), Node::Whole(time))
                        if is_id(id) && plain(id, 32, 8) && plain(time, 64, 8) && time.clock.is_some()));
                if plain(tag, bits.0, bits.1) && labels_fit && short && long && options.len() == 2 {
                    form
                } else {
                    Form::Other
                }
            }
            _ => Form::Other,
        },
        _ => Form::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::parse;
    use super::*;

    fn planned(text: &str) -> Parsed<Plan> {
        Plan::new(&parse(text)?, &mut Symbols::default())
    }

    #[test]
    fn layouts_that_grow_together_are_refused() {
        // A type of 65,535 parts, and a line for each kind of event that is of it.
        let mut text =
            String::from("typealias integer { size = 8; } := t0; struct s1 { t0 a; t0 b; };");
        for level in 2..16 {
            let of = format!("struct s{}", level - 1);
            text += &format!("struct s{level} {{ {of} a; {of} b; }};");
        }
        let event = |id: u32| format!("event {{ id = {id}; fields := struct s15; }};");
        let kinds = |count: u32| (0..count).map(event).collect::<String>();
        planned(&(text.clone() + &kinds(16))).expect("1,048,560 parts are read");
        let error = planned(&(text + &kinds(40))).expect_err("2.6 million parts");
        assert!(error.what.contains("1048576 parts"), "{error:?}");
        // A tag of 60,000 labels, and as many values of it for each of the variants that it chooses.
        let labels: String = (0..60_000).map(|label| format!("l{label},")).collect();
        let variants = |count: u32| {
            let variant = |number: u32| format!("variant <tag> {{ u l7; }} v{number};");
            let variants = (0..count).map(variant).collect::<String>();
            planned(&format!(
                "typealias integer {{ size = 32; }} := u;
                 event {{ fields := struct {{ enum : u {{ {labels} }} tag; {variants} }}; }};"
            ))
        };
        variants(16).expect("960,000 labels are read");
        let error = variants(20).expect_err("1.2 million labels");
        assert!(error.what.contains("1048576 parts"), "{error:?}");
    }

    #[test]
    fn ids_are_found_by_index_up_to_the_largest() {
        let text =
            "typealias integer { size = 8; } := u; event { id = 3; fields := struct { u a; }; };
                    event { id = 9000; fields := struct { u a; }; };";
        let plan = planned(text).expect("understood");
        let stream = &plan.streams[0];
        assert_eq!(stream.dense.len(), 4, "no more than there are");
        assert_eq!([3, 9000].map(|id| stream.index(id)), [Some(0), Some(1)]);
        assert!([0, 4, 9001].into_iter().all(|id| stream.kind(id).is_none()));
    }

    #[test]
    fn time_is_cut_off_as_babeltrace2_does() {
        let scale = Scale::new(2_600_000_000, 1_795_192_294, 3_317_235_445);
        // 3317235445 ticks are one second and 717235445 ticks.
        assert_eq!(scale.origin_ns(), 1_795_192_295_275_859_786);
        assert_eq!(scale.ns(26), 1_795_192_295_275_859_796);
        assert_eq!(Scale::new(1_000_000_000, 0, 5).ns(7), 12);
        assert_eq!(Scale::new(1_000_000_000, -1, 0).ns(7), 0, "before 1970");
    }
}
