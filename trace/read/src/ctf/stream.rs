//! One stream of a CTF trace: its packets, decoded in order into blocks.
//!
//! A file is read through a window, with positioned reads into one reused buffer: a file that shrinks meanwhile is a
//! short read, not a fault. Events of known layout take the fast path, which loads what it needs and goes on; all
//! others, and whatever is odd (a step back in time, an event at the edge of the window), take the general path, one at
//! a time. Most events are calls and exits by the thread of the event before: they have a loop of their own within the
//! fast path.
//!
//! What must hold: times within a stream never decrease; nothing is delivered from bytes beyond the content of a
//! packet; each byte that is left out is reported as damage.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::{
    Bits, Shape, Spot, SpotKind, State, Stop, Value, Visit, Whole, advance, mask, walk,
};
use super::plan::{EventPlan, Form, Kernel, Plan, Role, StreamPlan, Tells, WANTED_MAX};
use super::render::Render;
use super::types::{Duty, Range};
use crate::about::ReadError;
use crate::block::{BLOCK_EVENTS, Block, Source, Who};
use crate::event::{Event, FunctionKey, Kind, Loss};
use crate::input::Input;
use crate::symbols::ProcessFact;

/// Bytes read at once: few enough to be still in the first caches when they are decoded.
const WINDOW_BYTES: usize = 64 << 10;
/// With fewer bytes left in the window it is moved on, if there is more.
const WINDOW_MARGIN: usize = 8 << 10;
/// Largest event that is read.
const EVENT_BYTES_MAX: usize = 16 << 20;
/// Most threads of a stream; those beyond it are one.
const THREADS_MAX: usize = 65_536;
/// Longest name of a thread that is kept.
const NAME_BYTES_MAX: usize = 32;

const PACKET_MAGIC: u64 = 0xc1fc_1fc1;

/// Threads seen on a stream.
#[derive(Debug, Default)]
struct Threads {
    /// The one of the last event, to be compared first: hashing each event would cost more than decoding it.
    last: Option<(u32, u32, u32)>,
    last_name: [u8; NAME_BYTES_MAX],
    last_name_bytes: usize,
    numbers: HashMap<(u32, u32), u32>,
    names: Vec<Vec<u8>>,
    /// Their numbers are those of the host, and processes are not known.
    of_host: bool,
    /// The one on the CPU of this stream.
    on_cpu: Option<u32>,
    /// The task there, the idle one included, and those that are named already.
    task: Option<FunctionKey>,
    tasks_named: HashSet<FunctionKey>,
}

impl Threads {
    #[inline]
    fn number(&mut self, pid: u32, tid: u32, name: &[u8], block: &mut Block) -> u32 {
        if let Some((last_pid, last_tid, number)) = self.last
            && last_pid == pid
            && last_tid == tid
            && same(name, &self.last_name, self.last_name_bytes)
        {
            return number;
        }
        self.find(pid, tid, name, block)
    }

    /// The key of a task by its name, which is reported once.
    fn task(&mut self, name: &[u8], block: &mut Block) -> FunctionKey {
        let name = String::from_utf8_lossy(shown(name)).into_owned();
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        let key = FunctionKey(TASK_KEYS | hasher.finish() >> 32);
        if self.tasks_named.len() < THREADS_MAX && self.tasks_named.insert(key) {
            block.facts.push(ProcessFact::Task { key, name });
        }
        key
    }

    #[cold]
    fn find(&mut self, pid: u32, tid: u32, name: &[u8], block: &mut Block) -> u32 {
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let full = self.numbers.len() >= THREADS_MAX;
        let key = if full && !self.numbers.contains_key(&(pid, tid)) { (0, 0) } else { (pid, tid) };
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(key).or_insert(next);
        let shown = shown(name);
        let known = self.names.get(number as usize);
        if known.map(Vec::as_slice) != Some(shown) {
            let who = Who {
                pid: key.0,
                tid: Some(key.1),
                of_host: self.of_host,
                name: String::from_utf8_lossy(shown).into_owned(),
            };
            block.threads.push((number, who));
            match self.names.get_mut(number as usize) {
                Some(known) => *known = shown.to_vec(),
                None => self.names.push(shown.to_vec()),
            }
        }
        self.last = Some((pid, tid, number));
        self.last_name[..name.len()].copy_from_slice(name);
        self.last_name_bytes = name.len();
        number
    }
}

/// Keys of tasks: no address has them.
const TASK_KEYS: u64 = 0x7461_736b << 32;

/// A name without what fills its field up.
fn shown(name: &[u8]) -> &[u8] {
    &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())]
}

/// `name` is the first `bytes` of `last`. Names of LTTng have 17 bytes: two overlapping loads instead of a call.
#[inline]
fn same(name: &[u8], last: &[u8; NAME_BYTES_MAX], bytes: usize) -> bool {
    match (<&[u8; 17]>::try_from(name), last.first_chunk::<17>()) {
        (Ok(name), Some(last)) => bytes == 17 && name == last,
        _ => {
            let name = &name[..name.len().min(NAME_BYTES_MAX)];
            last.get(..bytes) == Some(name)
        }
    }
}

/// Pools seen on a stream.
#[derive(Debug, Default)]
struct Pools {
    last: Option<(u64, u16)>,
    numbers: HashMap<u64, u16>,
}

impl Pools {
    #[inline]
    fn number(&mut self, address: u64, block: &mut Block) -> u16 {
        block.has_pools = true;
        if let Some((last, number)) = self.last
            && last == address
        {
            return number;
        }
        let next = u16::try_from(self.numbers.len()).unwrap_or(u16::MAX);
        let number = match self.numbers.get(&address) {
            Some(&number) => number,
            None if next == u16::MAX => next, // more pools than numbers: the last number is all others
            None => {
                block.pools.push(address);
                self.numbers.insert(address, next);
                next
            }
        };
        self.last = Some((address, number));
        number
    }
}

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

    fn close_packet(&mut self, packet: &Packet, block: &mut Block) {
        if let Some((times, offset)) = packet.held {
            block.damage(
                &self.place,
                offset,
                format!(
                    "time goes back {times} times in this packet; such events get the time before"
                ),
            );
        }
        if packet.lost > 0 {
            // LTTng counts what did not fit when it ends a packet: the writer found the next one still unread.
            let to_ns = packet.end_ns.unwrap_or(self.last_ns).max(self.last_ns);
            block.loss = Some(Loss {
                from_ns: self.last_ns,
                to_ns,
                events: Some(packet.lost),
                place: self.place.clone(),
            });
        }
        self.next_packet = packet.next;
        self.packet = None;
    }

    /// Reads the header of the next packet; false at the end of the stream.
    fn open_packet(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        let start = self.next_packet;
        if start >= self.length {
            return Ok(false);
        }
        let plan = Arc::clone(&self.plan);
        self.state.clock = self.epoch_ticks;
        let Some(Opened { head, stream, at, clock }) = self.read_header(&plan, start, block)?
        else {
            return Ok(false);
        };
        if head.of_another && !std::mem::replace(&mut self.of_another, true) {
            let what = "a packet whose uuid is not that of the metadata; it is read as if it were";
            block.damage(&self.place, start, what.into());
        }
        let scale = plan.streams[stream].scale; // `header` returns an index of this list
        let Some((packet_bytes, content_bits)) = self.extent(&head, at, start, block) else {
            return Ok(false);
        };
        let begin_ns = scale.ns(clock);
        if let (Some(head), Some(last)) = (head.sequence, self.sequence)
            && head > last + 1
        {
            block.loss = Some(Loss {
                from_ns: self.last_ns,
                to_ns: begin_ns.max(self.last_ns),
                events: None,
                place: self.place.clone(),
            });
        }
        let lost = self.lost_before(&head, start, block);
        self.discarded = head.discarded.map(|(count, _)| count).or(self.discarded);
        self.sequence = head.sequence.or(self.sequence);
        self.state.clock = clock;
        self.at = at;
        self.packet = Some(Packet {
            plan: stream,
            start,
            content_bits,
            next: start.saturating_add(packet_bytes),
            cpu: head.cpu,
            end_ns: head.end_ticks.map(|ticks| scale.ns(ticks)),
            timed: head.timed,
            lost,
            held: None,
        });
        self.threads.of_host = plan.streams[stream].kernel;
        if !plan.streams[stream].who.names_thread && !plan.streams[stream].kernel {
            // The stream is a thread of its own.
            let name = if head.name.is_empty() {
                head.cpu.map_or_else(|| self.place.clone(), |cpu| format!("cpu {cpu}"))
            } else {
                String::from_utf8_lossy(&head.name).into_owned()
            };
            if self.threads.names.is_empty() {
                self.threads.names.push(Vec::new());
                block.threads.push((0, Who { pid: plan.pid, tid: None, of_host: false, name }));
            }
        }
        Ok(true)
    }

    /// The header of the packet at `start`; `None` if there is none that can be read.
    fn read_header(
        &mut self,
        plan: &Plan,
        start: u64,
        block: &mut Block,
    ) -> Result<Option<Opened>, ReadError> {
        let mut need = 4096;
        loop {
            let bytes = self.window_from(start, need)?;
            let length = bytes.len();
            let mut state = std::mem::take(&mut self.state);
            let skip = (start - self.window_at) as usize;
            let mut bits = Bits {
                bytes: self.window.get(skip..self.filled).unwrap_or_default(),
                at: 0,
                origin: 0,
            };
            let mut head = Header::default();
            let found = header(plan, &mut bits, &mut state, &mut head);
            let (at, clock) = (bits.at, state.clock);
            self.state = state;
            match found {
                Ok(stream) => return Ok(Some(Opened { head, stream, at, clock })),
                Err(Stop::Short) if length >= need && need < EVENT_BYTES_MAX => need *= 4,
                Err(stop) => {
                    let what = match stop {
                        Stop::Short => format!(
                            "the file ends within the header of a packet, {length} bytes behind its start"
                        ),
                        Stop::Wrong(what) => format!("{what}; the rest of the file is left out"),
                    };
                    block.damage(&self.place, start, what);
                    return Ok(None);
                }
            }
        }
    }

    /// The bytes of a packet whose header ends at bit `at`, and the bits of it that are content. `None` where its
    /// length makes no sense, so that the place of the next one is unknown.
    fn extent(&self, head: &Header, at: u64, start: u64, block: &mut Block) -> Option<(u64, u64)> {
        let left = self.length - start;
        let packet_bytes = match head.packet_bits {
            None => left,
            Some(bits) if bits == 0 || bits % 8 != 0 || bits < at => {
                let what = format!(
                    "a packet of {bits} bits, of which its header takes {at}; the rest of the file is left out"
                );
                block.damage(&self.place, start, what);
                return None;
            }
            Some(bits) => bits / 8,
        };
        let mut content_bits = head.content_bits.unwrap_or_else(|| packet_bytes.saturating_mul(8));
        if content_bits > packet_bytes.saturating_mul(8) || content_bits < at {
            let what = format!(
                "a packet of {packet_bytes} bytes claims {content_bits} bits of content; it is read to its end"
            );
            block.damage(&self.place, start, what);
            content_bits = packet_bytes.saturating_mul(8);
        }
        if packet_bytes > left {
            let what = format!(
                "the file ends {left} bytes behind the start of a packet of {packet_bytes}; what is there is read"
            );
            block.damage(&self.place, start, what);
            content_bits = content_bits.min(left * 8);
        }
        Some((packet_bytes, content_bits))
    }

    /// Events that were discarded before this packet's end and after the one before it, by the counts of both.
    fn lost_before(&self, head: &Header, start: u64, block: &mut Block) -> u64 {
        // What a first packet counts was lost in this file only if it is the first of the session.
        let first = head.sequence == Some(0);
        match (head.discarded, self.discarded) {
            (Some((count, _)), None) => {
                if first {
                    count
                } else {
                    0
                }
            }
            (Some((count, bits)), Some(before)) => {
                let lost = count.wrapping_sub(before) & mask(bits);
                if lost > mask(bits) / 2 {
                    let what =
                        format!("the count of discarded events goes back from {before} to {count}");
                    block.damage(&self.place, start, what);
                    0
                } else {
                    lost
                }
            }
            (None, _) => 0,
        }
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
                self.close_packet(&packet, block);
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
                Step::Skip => self.close_packet(&packet, block),
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
            block.loss = Some(Loss {
                from_ns: self.last_ns,
                to_ns: self.last_ns,
                events: None,
                place: self.place.clone(),
            });
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

/// Softirqs count from here among interrupts.
const SOFTIRQ_BASE: u32 = 1 << 16;
/// Bits of a task's state that say what it waits for, or that it is gone (`TASK_REPORT` of the kernel).
const TASK_REPORT: u64 = 0xff;

impl Stream {
    /// Delivers an event of the kernel's tracer, to the thread on the CPU.
    fn kernel(
        &mut self,
        of: Kernel,
        picked: &Picked,
        cpu: Option<u32>,
        time_ns: u64,
        block: &mut Block,
    ) {
        if of == Kernel::Switch {
            let number = |name: &str| picked.numbers.get(name).copied().unwrap_or(0);
            let name = |name: &str| picked.texts.get(name).map_or(&[][..], Vec::as_slice);
            let (prev, next) = (number("prev_tid") as u32, number("next_tid") as u32);
            let runnable = number("prev_state") & TASK_REPORT == 0;
            // Task 0 is the idle one.
            if prev != 0 {
                let thread = self.threads.number(0, prev, name("prev_comm"), block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::SwitchedOut { runnable } });
                let task = self.threads.task(name("next_comm"), block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::TookOver(task) });
            }
            self.threads.on_cpu = None;
            // A thread that is woken in the idle task's name is woken by an interrupt, which has no name.
            let by = if next == 0 { &[][..] } else { name("next_comm") };
            self.threads.task = Some(self.threads.task(by, block));
            if next != 0 {
                let thread = self.threads.number(0, next, name("next_comm"), block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::SwitchedIn });
                self.threads.on_cpu = Some(thread);
            }
            return;
        }
        if of == Kernel::Waking {
            let woken = picked.numbers.get("tid").copied().unwrap_or(0) as u32;
            let name = picked.texts.get("comm").map_or(&[][..], Vec::as_slice);
            if let (true, Some(task)) = (woken != 0, self.threads.task) {
                let thread = self.threads.number(0, woken, name, block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::WokenBy(task) });
            }
            return;
        }
        let Some(thread) = self.threads.on_cpu else { return };
        let mut push = |thread: u32, kind| block.push(thread, cpu, Event { time_ns, kind });
        let number = saturate::<u32>(picked.values[0]);
        let softirq = SOFTIRQ_BASE.saturating_add(number);
        match of {
            Kernel::Switch | Kernel::Waking => {}
            Kernel::InterruptIn => push(thread, Kind::InterruptIn(number)),
            Kernel::InterruptOut => push(thread, Kind::InterruptOut(number)),
            Kernel::SoftirqIn => push(thread, Kind::InterruptIn(softirq)),
            Kernel::SoftirqOut => push(thread, Kind::InterruptOut(softirq)),
            Kernel::SyscallIn(call) => push(thread, Kind::SyscallIn(call)),
            Kernel::SyscallOut(call) => push(thread, Kind::SyscallOut(call)),
            Kernel::Point(point) => push(thread, Kind::Point { point, value: picked.values[0] }),
        }
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
                self.close_packet(&packet, block);
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

const COMPACT: u8 = 0;
const LARGE: u8 = 1;
const DPDK: u8 = 2;

/// The fast path and all it touches.
struct Fast<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` from the start of the packet, bytes, modulo 2^64.
    origin: u64,
    class: &'a StreamPlan,
    cpu: Option<u32>,
    pid: u32,
    clock: u64,
    last_ns: u64,
    /// Where process and thread lie as 8 bytes in a row, and a name of 17 behind: what LTTng writes.
    who: Option<(usize, usize)>,
    /// Those bytes in the event before, and the number of its thread; one comparison finds it again.
    before: Option<(u64, [u8; 17], u32)>,
    threads: &'a mut Threads,
    pools: &'a mut Pools,
    block: &'a mut Block,
}

macro_rules! loads {
    ($name:ident, $number:ty, $bytes:literal) => {
        #[inline]
        fn $name<const BIG: bool>(bytes: &[u8], at: usize) -> Option<$number> {
            let found = bytes.get(at..at + $bytes)?.first_chunk::<$bytes>()?;
            Some(if BIG {
                <$number>::from_be_bytes(*found)
            } else {
                <$number>::from_le_bytes(*found)
            })
        }
    };
}
loads!(load_16, u16, 2);
loads!(load_32, u32, 4);
loads!(load_64, u64, 8);

/// The 17 bytes of a name of LTTng.
#[inline(always)]
fn load_name(body: &[u8], at: usize) -> Option<[u8; 17]> {
    body.get(at..at + 17)?.first_chunk().copied()
}

/// The integer at `spot` of `body`, sign extended.
#[inline(always)]
fn load(body: &[u8], spot: Spot) -> Option<u64> {
    let SpotKind::Whole { big_endian, signed } = spot.kind else { return None };
    let run = body.get(spot.offset..spot.offset + spot.bytes)?;
    let raw = match (spot.bytes, big_endian) {
        (8, false) => load_64::<false>(run, 0)?,
        (8, true) => load_64::<true>(run, 0)?,
        (4, false) => load_32::<false>(run, 0)?.into(),
        (4, true) => load_32::<true>(run, 0)?.into(),
        (2, false) => load_16::<false>(run, 0)?.into(),
        (2, true) => load_16::<true>(run, 0)?.into(),
        _ => (*run.first()?).into(),
    };
    let unused = 64 - 8 * spot.bytes as u32;
    Some(if signed { (((raw << unused) as i64) >> unused) as u64 } else { raw })
}

impl Fast<'_> {
    /// Decodes events while they are plain. What it stops at was not touched.
    fn events<const FORM: u8, const BIG: bool>(&mut self) -> Halt {
        let who = self.class.who;
        let names_thread = who.names_thread;
        if names_thread && (who.tid.is_none() && who.pid.is_none()) {
            return Halt::Odd; // the thread is stated where only a walk finds it
        }
        loop {
            self.calls::<FORM, BIG>();
            if self.block.events.len() >= BLOCK_EVENTS {
                return Halt::Full;
            }
            if self.event::<FORM, BIG>(names_thread).is_none() {
                return Halt::Odd;
            }
        }
    }

    /// Id and clock of the event at `at`, and where its context begins; `before` is the clock of the event before.
    #[inline(always)]
    fn head<const FORM: u8, const BIG: bool>(
        &self,
        at: usize,
        before: u64,
    ) -> Option<(u32, u64, usize)> {
        let bytes = self.bytes;
        Some(match FORM {
            COMPACT => {
                let word = load_32::<BIG>(bytes, at)?;
                let (id, time) =
                    if BIG { (word >> 27, word & 0x7ff_ffff) } else { (word & 31, word >> 5) };
                if id == 31 {
                    let id = load_32::<BIG>(bytes, at + 1)?;
                    (id, load_64::<BIG>(bytes, at + 5)?, at + 13)
                } else {
                    (id, advance(before, time.into(), 27), at + 4)
                }
            }
            LARGE => {
                let id = load_16::<BIG>(bytes, at)?;
                if id == 65_535 {
                    let id = load_32::<BIG>(bytes, at + 2)?;
                    (id, load_64::<BIG>(bytes, at + 6)?, at + 14)
                } else {
                    let time = load_32::<BIG>(bytes, at + 2)?;
                    (id.into(), advance(before, time.into(), 32), at + 6)
                }
            }
            _ => {
                let packet = self.origin.wrapping_add(at as u64);
                let start = at + (packet.next_multiple_of(8) - packet) as usize;
                let word = load_64::<BIG>(bytes, start)?;
                let (time, id) = if BIG {
                    (word >> 16, word as u32 & 0xffff)
                } else {
                    (word & mask(48), (word >> 48) as u32)
                };
                (id, advance(before, time, 48), start + 8)
            }
        })
    }

    /// Decodes calls and exits of the thread of the event before, until one is not, or the block is full. Leaves what
    /// it stops at as it was; does to the others what [`Fast::event`] would.
    #[inline]
    fn calls<const FORM: u8, const BIG: bool>(&mut self) {
        let (Some((ids_at, name_at)), Some((ids, name, thread))) = (self.who, self.before) else {
            return;
        };
        let (class, bytes) = (self.class, self.bytes);
        let (mut at, mut clock, mut last_ns) = (self.at, self.clock, self.last_ns);
        let (begin, mut entries) = (self.block.events.len(), 0);
        while self.block.events.len() < BLOCK_EVENTS {
            let Some((id, now, start)) = self.head::<FORM, BIG>(at, clock) else { break };
            let Some(call) = class.call(id) else { break };
            let time_ns = class.scale.ns(now);
            let end = start + call.bytes as usize;
            let Some(body) = bytes.get(start..end) else { break };
            if now < clock || time_ns < last_ns || load_64::<false>(body, ids_at) != Some(ids) {
                break;
            }
            let Some(of) = load_name(body, name_at) else { break };
            let Some(address) = load_64::<BIG>(body, call.address as usize) else { break };
            if of != name {
                break;
            }
            let key = FunctionKey(address);
            let kind = if call.enters { Kind::Enter(key) } else { Kind::Leave(key) };
            entries += u64::from(call.enters);
            self.block.events.push(Event { time_ns, kind });
            (at, clock, last_ns) = (end, now, time_ns);
        }
        let decoded = (self.block.events.len() - begin) as u64;
        if decoded > 0 {
            self.block.extend_run(thread, self.cpu);
            self.block.records += decoded;
            self.block.entries += entries;
            self.block.exits += decoded - entries;
        }
        (self.at, self.clock, self.last_ns) = (at, clock, last_ns);
    }

    #[inline(never)]
    fn event<const FORM: u8, const BIG: bool>(&mut self, names_thread: bool) -> Option<()> {
        let bytes = self.bytes;
        let (id, clock, start) = self.head::<FORM, BIG>(self.at, self.clock)?;
        let time_ns = self.class.scale.ns(clock);
        if clock < self.clock || time_ns < self.last_ns {
            return None;
        }
        let plan: &EventPlan = self.class.kind(id.into())?;
        let fixed = plan.fixed.as_ref()?;
        let end = start + fixed.bytes;
        let body = bytes.get(start..end)?;
        let thread = self.thread(body, names_thread)?;
        let kind = match (plan.role, fixed.address) {
            (Role::Enter, Some(address)) => {
                let key = FunctionKey(load_64::<BIG>(body, address)?);
                self.block.entries += 1;
                Kind::Enter(key)
            }
            (Role::Leave, Some(address)) => {
                let key = FunctionKey(load_64::<BIG>(body, address)?);
                self.block.exits += 1;
                Kind::Leave(key)
            }
            _ => self.other(plan, body)?,
        };
        self.clock = clock;
        self.last_ns = time_ns;
        self.at = end;
        self.block.records += 1;
        self.block.push(thread, self.cpu, Event { time_ns, kind });
        Some(())
    }

    /// The event that is no plain call.
    #[inline(never)]
    fn other(&mut self, plan: &EventPlan, body: &[u8]) -> Option<Kind> {
        let fixed = plan.fixed.as_ref()?;
        let values = |index: usize| match fixed.spots[index] {
            Some(spot) => load(body, spot),
            None => Some(0),
        };
        Some(match plan.role {
            Role::Enter => {
                self.block.entries += 1;
                Kind::Enter(FunctionKey(values(0)?))
            }
            Role::Leave => {
                self.block.exits += 1;
                Kind::Leave(FunctionKey(values(0)?))
            }
            Role::LeaveInnermost => {
                self.block.exits += 1;
                Kind::LeaveInnermost
            }
            Role::Pool(action) => {
                let pool = self.pools.number(values(0)?, self.block);
                Kind::Pool { action, pool, buffers: saturate(values(1)?) }
            }
            Role::Tells(_) | Role::Kernel(_) => return None,
            Role::Begin(key) => {
                self.block.entries += 1;
                Kind::Enter(key)
            }
            Role::End(key) => {
                self.block.exits += 1;
                Kind::Leave(key)
            }
            role => meaning(role, [values(0)?, values(1)?, values(2)?]),
        })
    }

    /// The number of the thread that the context in `body` tells.
    #[inline]
    fn thread(&mut self, body: &[u8], names_thread: bool) -> Option<u32> {
        let row = match self.who {
            Some((ids, name)) => {
                let (ids, name) = (load_64::<false>(body, ids)?, load_name(body, name)?);
                if let Some((last_ids, last_name, number)) = self.before
                    && last_ids == ids
                    && last_name == name
                {
                    return Some(number);
                }
                Some((ids, name))
            }
            None => None,
        };
        let number = self.find_thread(body, names_thread)?;
        self.before = row.map(|(ids, name)| (ids, name, number));
        Some(number)
    }

    #[inline(never)]
    fn find_thread(&mut self, body: &[u8], names_thread: bool) -> Option<u32> {
        Some(if names_thread {
            let who = self.class.who;
            let pid = match who.pid {
                Some(spot) => load(body, spot)?,
                None => self.pid.into(),
            };
            let tid = match who.tid {
                Some(spot) => load(body, spot)?,
                None => 0,
            };
            let name = match who.name {
                Some(spot) => body.get(spot.offset..spot.offset + spot.bytes)?,
                None => &[],
            };
            self.threads.number(pid as u32, tid as u32, name, self.block)
        } else {
            0
        })
    }
}

/// A packet whose header was read.
struct Opened {
    head: Header,
    /// Which of the plan's streams it is of.
    stream: usize,
    /// Bit behind the header.
    at: u64,
    /// The clock there, in ticks.
    clock: u64,
}

/// What the header and context of a packet tell.
#[derive(Clone, Debug, Default)]
struct Header {
    magic: Option<u64>,
    uuid: Vec<u8>,
    /// Not that of the metadata.
    of_another: bool,
    stream: Option<u64>,
    timed: bool,
    end_ticks: Option<u64>,
    content_bits: Option<u64>,
    packet_bits: Option<u64>,
    sequence: Option<u64>,
    /// The count and its width in bits.
    discarded: Option<(u64, u32)>,
    cpu: Option<u32>,
    name: Vec<u8>,
}

impl Visit for Header {
    fn whole(&mut self, name: Option<&str>, value: Value, whole: &Whole, _: &[Range]) {
        let value = value.raw;
        match whole.duty {
            Some(Duty::Magic) => self.magic = Some(value),
            Some(Duty::Uuid) => self.uuid.push(value as u8),
            Some(Duty::StreamClass) => self.stream = Some(value),
            Some(Duty::PacketBegin) => self.timed = true,
            Some(Duty::PacketEnd) => self.end_ticks = Some(value),
            Some(Duty::ContentBits) => self.content_bits = Some(value),
            Some(Duty::PacketBits) => self.packet_bits = Some(value),
            Some(Duty::PacketNumber) => self.sequence = Some(value),
            Some(Duty::Discarded) => self.discarded = Some((value, whole.bits)),
            Some(Duty::EventClass) => {}
            // DPDK writes all ones for a thread that is bound to no CPU.
            None if name == Some("cpu_id") => {
                self.cpu = u32::try_from(value).ok().filter(|&cpu| cpu != u32::MAX);
            }
            None => {}
        }
    }

    fn text(&mut self, name: Option<&str>, text: &[u8]) {
        if name == Some("name") {
            self.name = text[..text.len().min(NAME_BYTES_MAX)].to_vec();
        }
    }
}

/// Reads header and context of a packet; returns the index of its class.
fn header(
    plan: &Plan,
    bits: &mut Bits<'_>,
    state: &mut State,
    head: &mut Header,
) -> Result<usize, Stop> {
    if let Some(node) = &plan.packet_header {
        walk(node, bits, state, head)?;
    }
    if let Some(magic) = head.magic.filter(|&magic| magic != PACKET_MAGIC) {
        let swapped = u64::from((magic as u32).swap_bytes()) == PACKET_MAGIC;
        let hint = if swapped { ", in the other byte order than the metadata says" } else { "" };
        return Err(Stop::Wrong(format!("no packet: magic is {magic:#010x}{hint}")));
    }
    head.of_another = plan.uuid.is_some_and(|uuid| !head.uuid.is_empty() && head.uuid != uuid);
    let found = match head.stream {
        Some(id) => plan.streams.iter().position(|stream| stream.id == id),
        None => (!plan.streams.is_empty()).then_some(0),
    };
    let stream = found.ok_or_else(|| {
        let id = head.stream.map_or_else(|| "?".into(), |id| id.to_string());
        Stop::Wrong(format!("a packet of stream class {id}, which the metadata does not declare"))
    })?;
    if let Some(node) = &plan.streams[stream].packet_context {
        walk(node, bits, state, head)?;
    }
    Ok(stream)
}

/// Walks one event; returns the index of its kind.
fn one(
    class: &StreamPlan,
    bits: &mut Bits<'_>,
    state: &mut State,
    look: &mut Look<'_>,
) -> Result<usize, Stop> {
    look.part = Part::Header;
    if let Some(node) = &class.header {
        walk(node, bits, state, look)?;
    }
    // A class with one kind of event needs no id.
    let id = look.id.unwrap_or(0);
    let unknown = || Stop::Wrong(format!("no kind of event has the id {id}"));
    let index = class.index(id).ok_or_else(unknown)?;
    let kind = class.kinds.get(index).ok_or_else(unknown)?;
    look.kind = Some(kind.name.clone());
    look.wanted = kind.role.wanted();
    look.first = matches!(kind.role, Role::Point(_) | Role::Kernel(Kernel::Point(_)));
    look.collect =
        matches!(kind.role, Role::Tells(_) | Role::Kernel(Kernel::Switch | Kernel::Waking));
    look.part = Part::Context;
    if let Some(node) = &class.context {
        look.scope();
        walk(node, bits, state, look)?;
    }
    look.part = Part::Own;
    if let Some(node) = &kind.context {
        look.scope();
        walk(node, bits, state, look)?;
    }
    look.part = Part::Fields;
    if let Some(node) = &kind.fields {
        look.scope();
        walk(node, bits, state, look)?;
    }
    Ok(index)
}

/// Part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Context,
    Own,
    Fields,
}

/// What a walk over an event looks for.
struct Look<'r> {
    part: Part,
    id: Option<u64>,
    kind: Option<String>,
    wanted: &'static [&'static str],
    /// The first integer of the fields is wanted, whatever its name.
    first: bool,
    /// All fields are wanted.
    collect: bool,
    array: Option<String>,
    depth: u32,
    picked: Picked,
    render: Option<&'r mut Render>,
}

/// What was found.
#[derive(Debug, Default)]
struct Picked {
    pid: Option<u32>,
    tid: Option<u32>,
    name: Vec<u8>,
    values: [u64; WANTED_MAX],
    numbers: HashMap<String, u64>,
    texts: HashMap<String, Vec<u8>>,
}

impl Picked {
    fn fact(mut self, tells: Tells, pid: u32) -> Option<ProcessFact> {
        let number = |name: &str| self.numbers.get(name).copied();
        match tells {
            Tells::Module => {
                let path = self.texts.remove("path")?;
                Some(ProcessFact::Module {
                    pid,
                    base: self.numbers.get("baddr").copied()?,
                    bytes: self.numbers.get("memsz").copied().unwrap_or(0),
                    path: String::from_utf8_lossy(&path).into_owned().into(),
                    // Libraries reported by `lttng_ust_lib:load` are always relative to where they lie.
                    position_independent: self.numbers.get("is_pic").is_none_or(|&pic| pic != 0),
                })
            }
            Tells::BuildId => {
                let base = number("baddr")?;
                Some(ProcessFact::BuildId { pid, base, id: self.texts.remove("build_id")? })
            }
            Tells::Pool => {
                let address = number("mempool")?;
                let name = self.texts.remove("name")?;
                Some(ProcessFact::Pool {
                    address,
                    name: String::from_utf8_lossy(&name).into_owned(),
                })
            }
            Tells::Nothing => None,
        }
    }
}

impl<'r> Look<'r> {
    fn new(render: Option<&'r mut Render>) -> Self {
        Self {
            part: Part::Header,
            id: None,
            kind: None,
            wanted: &[],
            first: false,
            collect: false,
            array: None,
            depth: 0,
            picked: Picked::default(),
            render,
        }
    }

    fn picked(self) -> Picked {
        self.picked
    }

    fn scope(&mut self) {
        if let Some(render) = &mut self.render {
            render.scope(false);
        }
    }

    fn drawing(&mut self) -> Option<&mut Render> {
        if self.part == Part::Header { None } else { self.render.as_deref_mut() }
    }
}

impl Visit for Look<'_> {
    fn whole(&mut self, name: Option<&str>, value: Value, whole: &Whole, labels: &[Range]) {
        if self.part == Part::Header && whole.duty == Some(Duty::EventClass) {
            self.id = Some(value.raw);
        }
        match (self.part, name) {
            (Part::Context, Some("vpid" | "pid")) => self.picked.pid = Some(value.raw as u32),
            (Part::Context, Some("vtid" | "tid")) => self.picked.tid = Some(value.raw as u32),
            (Part::Fields, Some(name)) => {
                if self.first {
                    self.picked.values[0] = value.raw;
                    self.first = false;
                }
                if let Some(index) = self.wanted.iter().position(|wanted| *wanted == name)
                    && self.depth == 1
                {
                    self.picked.values[index] = value.raw;
                }
                if self.collect {
                    self.picked.numbers.insert(name.to_owned(), value.raw);
                }
            }
            (Part::Fields, None) => {
                if let (true, Some(array)) = (self.collect, &self.array) {
                    let bytes = self.picked.texts.entry(array.clone()).or_default();
                    if bytes.len() < 4096 {
                        bytes.push(value.raw as u8);
                    }
                }
            }
            _ => {}
        }
        if let Some(render) = self.drawing() {
            render.whole(name, value, whole, labels);
        }
    }

    fn float(&mut self, name: Option<&str>, value: f64) {
        if let Some(render) = self.drawing() {
            render.float(name, value);
        }
    }

    fn text(&mut self, name: Option<&str>, text: &[u8]) {
        match (self.part, name) {
            (Part::Context, Some("procname")) => {
                self.picked.name = text[..text.len().min(NAME_BYTES_MAX)].to_vec();
            }
            (Part::Fields, Some(name)) if self.collect => {
                self.picked.texts.insert(name.to_owned(), text[..text.len().min(4096)].to_vec());
            }
            _ => {}
        }
        if let Some(render) = self.drawing() {
            render.text(name, text);
        }
    }

    fn open(&mut self, name: Option<&str>, shape: Shape) {
        self.depth += 1;
        if shape == Shape::Array {
            self.array = name.map(str::to_owned);
        }
        if let Some(render) = self.drawing() {
            render.open(name, shape);
        }
    }

    fn close(&mut self, shape: Shape) {
        self.depth = self.depth.saturating_sub(1);
        if shape == Shape::Array {
            self.array = None;
        }
        if let Some(render) = self.drawing() {
            render.close(shape);
        }
    }
}
