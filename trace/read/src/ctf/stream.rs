//! One stream of a CTF trace: its packets, decoded in order into blocks.
//!
//! A file is read through a window, with positioned reads into one reused buffer: a file that shrinks meanwhile is a
//! short read, not a fault. Events of known layout take the fast path, which loads what it needs and goes on; all
//! others, and whatever is odd (a step back in time, an event at the edge of the window), take the general path, one at
//! a time. Most events are calls and exits by the thread of the event before: they have a loop of their own within the
//! fast path.
//!
//! What must hold: times within a stream never decrease; nothing is delivered from bytes beyond the content of a
//! packet; each byte that is left out is reported as damage, and as a loss where events may have been in it.

mod fast;
mod kernel;
mod known;
mod packets;
mod walked;

use std::path::PathBuf;
use std::sync::Arc;

use super::layout::{Bits, State, Stop, mask, walk};
use super::plan::{Form, Plan, Role, StreamPlan, WANTED_MAX};
use super::render::Render;
use crate::about::ReadError;
use crate::block::{Block, Source};
use crate::event::{Event, FunctionKey, Kind, Loss};
use crate::input::Input;
use fast::{COMPACT, DPDK, Fast, LARGE};
use known::{Pools, Threads};
use walked::{Look, Picked, one};

/// Bytes read at once: few enough to be still in the first caches when they are decoded.
const WINDOW_BYTES: usize = 64 << 10;
/// With fewer bytes left in the window it is moved on, if there is more.
const WINDOW_MARGIN: usize = 8 << 10;
/// Largest event that is read.
const EVENT_BYTES_MAX: usize = 16 << 20;
/// Longest name of a thread that is kept.
const NAME_BYTES_MAX: usize = 32;

/// A packet that is being decoded.
#[derive(Clone, Copy, Debug)]
struct Packet {
    /// Index of the class of its stream.
    plan: usize,
    /// Offset in the file, bytes.
    start: u64,
    /// Bits of content, from its start.
    content_bits: u64,
    /// Offset of the next packet in the file.
    next: u64,
    cpu: Option<u32>,
    /// Time of its end, ns, if its context states it.
    end_ns: Option<u64>,
    /// Its time is stated in its context, so that a step back within it cannot be a buffer that was written around.
    timed: bool,
    /// Events lost behind its last event.
    lost: u64,
    /// The file ends within its content.
    is_cut: bool,
    /// Steps back in time that were held, and where the first was.
    held: Option<(u64, u64)>,
}

/// Where decoding stopped in the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// The block is full.
    Full,
    /// The general path must take the next event.
    Odd,
}

/// One stream file and how far it is decoded.
#[derive(Debug)]
pub(super) struct Stream {
    plan: Arc<Plan>,
    file: Input,
    path: PathBuf,
    place: String,
    length: u64,
    window: Vec<u8>,
    /// Offset of the window in the file.
    window_at: u64,
    /// Bytes of the window that were read.
    filled: usize,
    packet: Option<Packet>,
    next_packet: u64,
    /// Bit of the next event, from the start of the packet.
    at: u64,
    state: State,
    /// What the clock is set to by a packet that tells no time.
    epoch_ticks: u64,
    last_ns: u64,
    discarded: Option<u64>,
    sequence: Option<u64>,
    threads: Threads,
    pools: Pools,
    /// The context of the packet at this offset, as text.
    drawn: Option<(u64, String)>,
    /// A packet of another trace was reported.
    of_another: bool,
    ended: bool,
}

impl Stream {
    pub(super) fn new(plan: Arc<Plan>, file: Input, path: PathBuf, length: u64) -> Self {
        let state = State::new(plan.slots);
        Self {
            plan,
            file,
            place: path.display().to_string(),
            path,
            length,
            window: Vec::new(),
            window_at: 0,
            filled: 0,
            packet: None,
            next_packet: 0,
            at: 0,
            state,
            epoch_ticks: 0,
            last_ns: 0,
            discarded: None,
            sequence: None,
            threads: Threads::default(),
            pools: Pools::default(),
            drawn: None,
            of_another: false,
            ended: false,
        }
    }

    /// Sets the clock of packets that tell no time.
    pub(super) fn begin_at_ticks(&mut self, ticks: u64) {
        self.epoch_ticks = ticks;
    }

    /// The first value of a 48-bit clock in a stream whose packets tell no time; `None` for other streams.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails.
    pub(super) fn first_ticks_48(&mut self) -> Result<Option<u64>, ReadError> {
        let mut block = Block::default();
        let found = self.open_packet(&mut block)?;
        let mut ticks = None;
        if found
            && let Some(packet) = self.packet
            && !packet.timed
            && self.plan.streams.get(packet.plan).map(|plan| plan.form) == Some(Form::Dpdk)
        {
            let at = packet.start + self.at.next_multiple_of(64) / 8;
            if at + 8 <= packet.start + packet.content_bits / 8 {
                let big_endian = self.plan.big_endian;
                let bytes = self.window_from(at, 8)?;
                ticks = bytes.first_chunk::<8>().map(|first| {
                    if big_endian {
                        u64::from_be_bytes(*first) >> 16
                    } else {
                        u64::from_le_bytes(*first) & mask(48)
                    }
                });
            }
        }
        self.packet = None;
        (self.next_packet, self.ended) = (0, false);
        (self.discarded, self.sequence) = (None, None);
        self.threads = Threads::default();
        self.of_another = false;
        Ok(ticks)
    }

    /// Bytes of the file from `from` on: at least `bytes`, if the file has them.
    fn window_from(&mut self, from: u64, bytes: usize) -> Result<&[u8], ReadError> {
        let inside =
            from >= self.window_at && from + bytes as u64 <= self.window_at + self.filled as u64;
        if !inside {
            let kept = match from.checked_sub(self.window_at) {
                Some(skip) if skip < self.filled as u64 => {
                    self.window.copy_within(skip as usize..self.filled, 0);
                    self.filled - skip as usize
                }
                _ => 0,
            };
            self.window_at = from;
            self.filled = kept;
            let size = bytes.max(WINDOW_BYTES);
            if self.window.len() < size {
                self.window.resize(size, 0);
            }
            while self.filled < self.window.len() {
                let offset = from + self.filled as u64;
                match self.file.read_at(&mut self.window[self.filled..], offset) {
                    Ok(0) => break,
                    Ok(read) => self.filled += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(source) => {
                        return Err(ReadError::Io { path: self.path.clone(), offset, source });
                    }
                }
            }
            // The file may have become shorter since it was opened.
            let seen = from + self.filled as u64;
            if self.filled < self.window.len() && seen < self.length {
                self.length = seen.max(from);
            }
        }
        let skip = (from - self.window_at) as usize;
        Ok(self.window.get(skip..self.filled).unwrap_or_default())
    }

    /// Events are missing behind the last one, up to `to_ns`; `None` where they were not counted.
    fn lose(&mut self, to_ns: u64, events: Option<u64>, block: &mut Block) {
        // A switch may be among them.
        (self.threads.on_cpu, self.threads.task) = (None, None);
        block.loss = Some(Loss {
            from_ns: self.last_ns,
            to_ns: to_ns.max(self.last_ns),
            events,
            place: self.place.clone(),
        });
    }

    /// `skipped`: its rest was left out.
    fn close_packet(&mut self, packet: &Packet, skipped: bool, block: &mut Block) {
        if let Some((times, offset)) = packet.held {
            block.damage(
                &self.place,
                offset,
                format!(
                    "time goes back {times} times in this packet; such events get the time before"
                ),
            );
        }
        if packet.lost > 0 || packet.is_cut || skipped {
            // LTTng counts what did not fit when it ends a packet: the writer found the next one still unread.
            let counted = (packet.lost > 0).then_some(packet.lost);
            self.lose(packet.end_ns.unwrap_or(self.last_ns), counted, block);
        }
        self.next_packet = packet.next;
        self.packet = None;
    }

    /// Decodes events of the open packet until the block is full or the packet ends; true if its rest is to be skipped.
    fn decode(&mut self, stream: usize, block: &mut Block) -> Result<bool, ReadError> {
        let plan = Arc::clone(&self.plan);
        let class = &plan.streams[stream]; // an index of this list, from `header`
        loop {
            let Some(packet) = self.packet else { return Ok(false) };
            if self.at >= packet.content_bits {
                return Ok(false);
            }
            if block.full() {
                return Ok(false);
            }
            if class.form != Form::Other && self.at.is_multiple_of(8) {
                let from = packet.start + self.at / 8;
                let left = (packet.content_bits - self.at) / 8;
                let want = usize::try_from(left).unwrap_or(usize::MAX).min(WINDOW_MARGIN);
                self.window_from(from, want)?;
                let before = self.at;
                let halt = self.fast(&packet, class, block);
                if halt == Halt::Full {
                    return Ok(false);
                }
                if self.at >= packet.content_bits {
                    return Ok(false);
                }
                let rest = (self.window_at + self.filled as u64)
                    .saturating_sub(packet.start + self.at / 8);
                let left = (packet.content_bits - self.at) / 8;
                if self.at > before && rest < left.min(WINDOW_MARGIN as u64) {
                    continue; // at the edge of the window, not odd
                }
            }
            if self.general(&packet, class, block, None)? == Step::Skip {
                return Ok(true);
            }
        }
    }

    fn fast(&mut self, packet: &Packet, class: &StreamPlan, block: &mut Block) -> Halt {
        let content_end = packet.start + packet.content_bits / 8;
        let begin = (packet.start + self.at / 8 - self.window_at) as usize;
        let end = usize::try_from(content_end - self.window_at).unwrap_or(usize::MAX);
        let bytes = &self.window[..end.min(self.filled)];
        let mut run = Fast {
            bytes,
            at: begin,
            origin: self.window_at.wrapping_sub(packet.start),
            class,
            cpu: packet.cpu,
            pid: self.plan.pid,
            clock: self.state.clock,
            last_ns: self.last_ns,
            who: class.who.in_a_row(),
            before: None,
            threads: &mut self.threads,
            pools: &mut self.pools,
            block,
        };
        let halt = match (class.form, self.plan.big_endian) {
            (Form::Compact, false) => run.events::<COMPACT, false>(),
            (Form::Compact, true) => run.events::<COMPACT, true>(),
            (Form::Large, false) => run.events::<LARGE, false>(),
            (Form::Large, true) => run.events::<LARGE, true>(),
            (Form::Dpdk, false) => run.events::<DPDK, false>(),
            (Form::Dpdk, true) => run.events::<DPDK, true>(),
            (Form::Other, _) => Halt::Odd,
        };
        let (at, clock, last_ns) = (run.at, run.clock, run.last_ns);
        self.at = (self.window_at + at as u64 - packet.start) * 8;
        (self.state.clock, self.last_ns) = (clock, last_ns);
        halt
    }

    /// The next record as text, for [`Trace::records`](crate::Trace::records); `None` at the end of the stream.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails.
    pub(super) fn record(
        &mut self,
        block: &mut Block,
        render: &mut Render,
    ) -> Result<Option<RecordHead>, ReadError> {
        block.clear();
        loop {
            let Some(packet) = self.packet else {
                if self.ended || !self.open_packet(block)? {
                    self.ended = true;
                    return Ok(None);
                }
                continue;
            };
            if self.at >= packet.content_bits {
                self.close_packet(&packet, false, block);
                continue;
            }
            let plan = Arc::clone(&self.plan);
            let class = &plan.streams[packet.plan];
            render.clear();
            match &self.drawn {
                Some((start, text)) if *start == packet.start => render.begin(text),
                _ => {
                    self.render_packet(&packet, class, render)?;
                    self.drawn = Some((packet.start, render.drawn().to_owned()));
                }
            }
            match self.general(&packet, class, block, Some(render))? {
                Step::Skip => self.close_packet(&packet, true, block),
                Step::Next(index) => {
                    let name = class.kinds.get(index).map_or("", |kind| kind.name.as_str());
                    return Ok(Some(RecordHead {
                        time_ns: self.last_ns,
                        name: name.to_owned(),
                        cpu: packet.cpu,
                    }));
                }
            }
        }
    }

    fn render_packet(
        &mut self,
        packet: &Packet,
        class: &StreamPlan,
        render: &mut Render,
    ) -> Result<(), ReadError> {
        let plan = Arc::clone(&self.plan);
        let need = usize::try_from(packet.content_bits.div_ceil(8)).unwrap_or(usize::MAX).min(4096);
        let mut bytes = vec![0; need];
        let read = self.file.read_at(&mut bytes, packet.start).map_err(|source| ReadError::Io {
            path: self.path.clone(),
            offset: packet.start,
            source,
        })?;
        let mut bits = Bits { bytes: &bytes[..read], at: 0, origin: 0 };
        let mut state = State::new(plan.slots);
        if let Some(node) = &plan.packet_header {
            let _ = walk(node, &mut bits, &mut state, &mut super::layout::Unseen);
        }
        if let Some(node) = &class.packet_context {
            render.scope(true);
            let _ = walk(node, &mut bits, &mut state, render);
        }
        Ok(())
    }

    /// Decodes one event by walking its layout.
    fn general(
        &mut self,
        packet: &Packet,
        class: &StreamPlan,
        block: &mut Block,
        mut render: Option<&mut Render>,
    ) -> Result<Step, ReadError> {
        let mut need = WINDOW_MARGIN;
        let from_bit = self.at;
        let from = packet.start + from_bit / 8;
        let content_end = packet.start + packet.content_bits.div_ceil(8);
        let left = content_end - from;
        let drawn = render.as_ref().map_or(0, |render| render.length());
        loop {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(need);
            let have = self.window_from(from, want)?.len();
            let skip = (from - self.window_at) as usize;
            let end = skip + have.min(usize::try_from(left).unwrap_or(usize::MAX));
            let mut bits = Bits {
                bytes: &self.window[skip..end],
                at: from_bit % 8,
                origin: (from_bit / 8) * 8,
            };
            let mut state = self.state.clone();
            let mut look = Look::new(render.as_deref_mut());
            let found = one(class, &mut bits, &mut state, &mut look);
            let kind = look.kind.take();
            // It would be read again and again.
            let nothing = || Stop::Wrong("it takes no bits".into());
            let found = found
                .and_then(|index| if bits.at == from_bit % 8 { Err(nothing()) } else { Ok(index) });
            let whole = have as u64 >= left;
            match found {
                Ok(index) => {
                    self.at = bits.origin + bits.at;
                    let picked = look.picked();
                    return Ok(self.take(packet, class, index, state, picked, from, block));
                }
                Err(Stop::Short) if !whole && have >= want && need < EVENT_BYTES_MAX => {
                    need *= 4;
                    if let Some(render) = render.as_deref_mut() {
                        render.cut(drawn);
                    }
                }
                Err(stop) => {
                    let name = kind.map_or(String::new(), |name| format!(" `{name}`"));
                    let what = match stop {
                        Stop::Short if !whole && have >= want => {
                            format!("an event{name} of more than {EVENT_BYTES_MAX} bytes")
                        }
                        Stop::Short => format!("an event{name} is cut off after {have} bytes"),
                        Stop::Wrong(what) => format!("event{name}: {what}"),
                    };
                    let what = format!(
                        "{what}; {} bytes up to the end of the packet are left out",
                        content_end - from
                    );
                    // The end of a buffer that was cut off in the middle is the last event of the file, no more.
                    block.damage(&self.place, from, what);
                    return Ok(Step::Skip);
                }
            }
        }
    }

    /// Delivers an event that was walked.
    #[expect(clippy::too_many_arguments, reason = "what one walk found")]
    fn take(
        &mut self,
        packet: &Packet,
        class: &StreamPlan,
        index: usize,
        state: State,
        picked: Picked,
        offset: u64,
        block: &mut Block,
    ) -> Step {
        let Some(kind) = class.kinds.get(index) else { return Step::Skip };
        let mut time_ns = class.scale.ns(state.clock);
        let back = state.clock < self.state.clock;
        if back && !packet.timed {
            // No packet time, 48 bits, a small step back: a buffer written around, whose older part begins here.
            block.damage(
                &self.place,
                offset,
                format!(
                    "time goes back from {} to {} ticks: the buffer was written around and what follows is older; it is left out",
                    self.state.clock, state.clock
                ),
            );
            return Step::Skip;
        }
        if time_ns < self.last_ns {
            if let Some(packet) = &mut self.packet {
                let (times, first) = packet.held.unwrap_or((0, offset));
                packet.held = Some((times + 1, first));
            }
            time_ns = self.last_ns;
        }
        let clock = state.clock.max(self.state.clock);
        self.state = state;
        self.state.clock = clock;
        self.last_ns = time_ns;
        block.records += 1;
        if let Role::Kernel(kernel) = kind.role {
            self.kernel(kernel, &picked, packet.cpu, time_ns, block);
            return Step::Next(index);
        }
        let pid = picked.pid.unwrap_or(self.plan.pid);
        let thread = if class.who.names_thread {
            self.threads.number(pid, picked.tid.unwrap_or(0), &picked.name, block)
        } else {
            0
        };
        if let Role::Tells(tells) = kind.role {
            block.describing += 1;
            block.facts.extend(picked.fact(tells, pid));
            return Step::Next(index);
        }
        let [first, second, third] = picked.values;
        let kind = match kind.role {
            Role::Pool(action) => {
                let pool = self.pools.number(first, block);
                Kind::Pool { action, pool, buffers: saturate(second) }
            }
            role => meaning(role, [first, second, third]),
        };
        match kind {
            Kind::Enter(_) => block.entries += 1,
            Kind::Leave(_) | Kind::LeaveInnermost => block.exits += 1,
            _ => {}
        }
        block.push(thread, packet.cpu, Event { time_ns, kind });
        Step::Next(index)
    }
}

impl Source for Stream {
    fn place(&self) -> &str {
        &self.place
    }

    fn fill(&mut self, block: &mut Block) -> Result<(), ReadError> {
        block.clear();
        while !block.full() {
            let Some(packet) = self.packet else {
                if self.ended || !self.open_packet(block)? {
                    self.ended = true;
                    break;
                }
                if block.loss.is_some() {
                    break; // packets are missing before this one
                }
                continue;
            };
            let skipped = self.decode(packet.plan, block)?;
            let Some(packet) = self.packet else { break };
            if skipped || self.at >= packet.content_bits {
                self.close_packet(&packet, skipped, block);
                if block.loss.is_some() {
                    break;
                }
            }
        }
        block.ended = self.ended;
        Ok(())
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It was of this kind.
    Next(usize),
    /// It could not be read, nor what follows in its packet.
    Skip,
}

/// A record without its fields.
#[derive(Clone, Debug)]
pub(super) struct RecordHead {
    pub(super) time_ns: u64,
    pub(super) name: String,
    pub(super) cpu: Option<u32>,
}

fn saturate<T: TryFrom<u64> + Bounded>(value: u64) -> T {
    T::try_from(value).unwrap_or(T::MOST)
}

/// Types with a largest value.
trait Bounded {
    const MOST: Self;
}
impl Bounded for u16 {
    const MOST: Self = Self::MAX;
}
impl Bounded for u32 {
    const MOST: Self = Self::MAX;
}

/// The event that a role and its values are. Pools and what tells about the process are dealt with before.
#[inline]
fn meaning(role: Role, [first, second, third]: [u64; WANTED_MAX]) -> Kind {
    match role {
        Role::Enter => Kind::Enter(FunctionKey(first)),
        Role::Leave => Kind::Leave(FunctionKey(first)),
        Role::LeaveInnermost => Kind::LeaveInnermost,
        Role::Receive => Kind::Receive {
            port: saturate(first),
            queue: saturate(second),
            asked: 0,
            got: saturate(third),
        },
        Role::Send => Kind::Send {
            port: saturate(first),
            queue: saturate(second),
            asked: 0,
            sent: saturate(third),
        },
        Role::Point(point) => Kind::Point { point, value: first },
        Role::Pool(action) => Kind::Pool { action, pool: 0, buffers: saturate(second) },
        Role::Begin(key) => Kind::Enter(key),
        Role::End(key) => Kind::Leave(key),
        Role::Tells(_) | Role::Kernel(_) => Kind::Point { point: 0, value: first },
    }
}
