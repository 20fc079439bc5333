//! The stack machine: events in, calls with durations out, one stack per thread.
//!
//! It assumes what `laneway-trace-read` promises: events of a thread in time order, losses reported where
//! they are. It holds these rules:
//!
//! - an exit closes the call it names; calls above it are cut, and counted;
//! - a hole closes all open calls of the threads concerned as cut: their time as far as seen stays in
//!   the totals, they are in no percentile;
//! - after a hole, exits that do not name their function cannot be trusted, and nothing that follows in
//!   that thread is counted as a call;
//! - what a signal starts is charged to itself, not to the function it interrupted.
//!
//! Producers without calls tell moments only (a poll returned). Then the time from the previous
//! event of the thread to this one is taken as the call, under a name that says so.
//!
//! Nearly all events are plain: a call into a known context or the exit of the innermost call, with no bucket of time
//! and no long silence ending there. [`Step::calls`] follows these in one short loop over few tables; whatever is not
//! plain goes one event at a time through [`Step::event`], which knows all rules. Both do the same to a plain event
//! (a test holds them against each other), so where the loop stops never shows in a result.
//!
//! No allocation, numbering or name per plain event. The only growth is in tables with a limit.

mod step;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, Thread, ThreadId};

use crate::course::Course;
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::points::{Points, Pools};
use crate::result::{FUNCTIONS_MAX, HOLES_MAX, THREADS_MAX};
use crate::series::Series;
use crate::tree::{Mixer, NONE, Tree};
use crate::worst::{JOINS, Join, Worst};
use step::Step;

/// Ports and reasons of lost packets that are distinguished per thread.
const DROPPED_MAX: usize = 1_024;
/// Room that a thread has, by its place in order of first appearance: up to that place, buckets of its time series, and
/// events kept to cut windows from. Many threads are many for being short: what they need in the end is a row.
const ROOMS: [(usize, usize, usize); 3] =
    [(8, 8_192, 1_024), (64, 1_024, 1_024), (THREADS_MAX, 128, 64)];
/// Deepest call with a context of its own; deeper ones are counted, and their time is that of the call at this depth.
const DEPTH_MAX: usize = 1_024;
/// Deepest stack; calls beyond are counted until they are left, and no more is known of them.
const STACK_MAX: usize = 1 << 16;
/// CPUs named per thread.
const CPUS_MAX: usize = 16;
/// Longest span that is believed, ns (some 104 days): further from the first event lie stamps that were damaged.
const SPAN_NS_MAX: u64 = 1 << 53;
/// Stands for no key: of our own functions, and of calls whose exit is not plain. A function that has it is never
/// plain.
const NO_KEY: FunctionKey = FunctionKey(u64::MAX);
/// Events looked at between two visits of the worst-call windows.
const STRIDE: usize = 128;

/// Functions that no producer names, numbered before all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum PseudoCall {
    EmptyPolls,
    Receive,
    Send,
    PoolUse,
    OtherPoint,
    Preempted,
    Waiting,
    Interrupt,
    Syscall,
    PageFault,
    OtherFunctions,
}

impl PseudoCall {
    pub(crate) const ALL: [Self; 11] = [
        Self::EmptyPolls,
        Self::Receive,
        Self::Send,
        Self::PoolUse,
        Self::OtherPoint,
        Self::Preempted,
        Self::Waiting,
        Self::Interrupt,
        Self::Syscall,
        Self::PageFault,
        Self::OtherFunctions,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EmptyPolls => "(empty polls)",
            Self::Receive => "(until a receive returned)",
            Self::Send => "(until a send returned)",
            Self::PoolUse => "(until a pool was used)",
            Self::OtherPoint => "(until another point)",
            Self::Preempted => "(preempted)",
            Self::Waiting => "(waiting)",
            Self::Interrupt => "(interrupt)",
            Self::Syscall => "(system call)",
            Self::PageFault => "(page fault)",
            Self::OtherFunctions => "(other functions)",
        }
    }
}

/// One open call.
#[derive(Debug, Clone, Copy)]
struct OpenCall {
    node: u32,
    function: u32,
    /// The key that a plain exit names; [`NO_KEY`] if the exit concerns signal handlers.
    key: FunctionKey,
    start_ns: u64,
    /// Children called so far.
    children: u64,
    /// Time inside that belongs to signal handlers, ns.
    foreign_ns: u64,
    asynchronous: bool,
    /// Number of the system call or interrupt; 1 for a thread off its CPU that could have run.
    detail: u32,
}

/// What is known of a thread.
#[derive(Debug)]
pub(crate) struct ThreadState {
    pub(crate) thread: Thread,
    pub(crate) cpus: Vec<u32>,
    pub(crate) events: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Its first event that is not the kernel's.
    pub(crate) recorded_from_ns: Option<u64>,
    pub(crate) kernel_ns: [u64; JOINS],
    pub(crate) ledger: Ledger,
    /// Time by context, ns; its calls on this thread alone.
    pub(crate) spent: Vec<u64>,
    /// Functions entered, and events of the kernel.
    pub(crate) entries: u64,
    pub(crate) kernel_events: u64,
    /// Its ways into the kernel.
    pub(crate) signals: u64,
    pub(crate) syscalls: u64,
    pub(crate) switches: u64,
    /// Packets lost by port and reason.
    pub(crate) dropped: Vec<(u16, FunctionKey, u64)>,
    pub(crate) series: Series,
    pub(crate) points: Points,
    pub(crate) worst: Worst,
    pub(crate) course: Course,
    pub(crate) ran: Ran,
    stack: Vec<OpenCall>,
    started: bool,
    /// The last function event was an exit: the next entry ends a gap between siblings.
    just_left: bool,
    signalled: bool,
    lossy: bool,
    anonymous: bool,
    /// Calls can no longer be reconstructed.
    unsound: bool,
    too_deep: u64,
    /// Open calls beyond [`STACK_MAX`].
    beyond: u64,
}

/// On which CPUs a thread was.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// What is counted: until when, and how long it had been off its CPU by then, ns.
    until_ns: u64,
    off_ns: u64,
    /// The CPU reported last.
    cpu: Option<u32>,
    /// Time on the CPU by its number, ns. A thread leaves one CPU and comes back on another, so one of them may be
    /// short by the time between as long as it is away.
    pub(crate) by_cpu: Vec<(Option<u32>, i64)>,
}

impl Ran {
    /// Counts the time up to `until_ns` for `cpu`, or the one reported last.
    fn count(&mut self, cpu: Option<u32>, until_ns: u64, off_ns: u64) {
        self.cpu = cpu.or(self.cpu);
        let since = until_ns.saturating_sub(self.until_ns) as i64;
        let on_ns = since.saturating_sub(off_ns.saturating_sub(self.off_ns) as i64);
        (self.until_ns, self.off_ns) = (until_ns, off_ns);
        match self.by_cpu.iter().position(|row| row.0 == self.cpu) {
            Some(at) => self.by_cpu[at].1 = self.by_cpu[at].1.saturating_add(on_ns),
            None if self.by_cpu.len() <= CPUS_MAX => self.by_cpu.push((self.cpu, on_ns)),
            None => {}
        }
    }
}

/// Counts over all threads.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) entries: u64,
    pub(crate) exits: u64,
    pub(crate) kernel: u64,
    pub(crate) discarded: u64,
    pub(crate) losses: u64,
    pub(crate) losses_uncounted: u64,
    pub(crate) cut: u64,
    pub(crate) open: u64,
    pub(crate) unmatched: u64,
    pub(crate) mismatched: u64,
    pub(crate) unsound: u64,
    pub(crate) clock_backwards: u64,
    /// Further from the first event than [`SPAN_NS_MAX`].
    pub(crate) clock_jumps: u64,
    /// Time of the first event that was read, ns since the epoch.
    origin_ns: Option<u64>,
    pub(crate) threads: u64,
    /// Of threads beyond [`THREADS_MAX`].
    pub(crate) events_refused: u64,
    pub(crate) too_deep: u64,
    pub(crate) functions_refused: u64,
    pub(crate) receives: u64,
    pub(crate) samples: u64,
    pub(crate) holes: Vec<(u64, u64)>,
    /// Of each of these: events that are missing, and the thread where it concerns only one.
    pub(crate) hole_details: Vec<(Option<u64>, Option<u32>)>,
}

/// Reads a whole trace into tables. Feed it through [`Consumer`].
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) counts: Counts,
    pub(crate) keys: Vec<FunctionKey>,
    pub(crate) tree: Tree,
    pub(crate) states: Vec<ThreadState>,
    pub(crate) pools: Pools,
    /// From an exit to the next entry below the same call: what the tracer costs outside of calls.
    pub(crate) gaps: Histogram,
    numbers: Numbers,
    places: Vec<Option<u32>>,
}

/// Functions by key.
type Numbers = HashMap<FunctionKey, u32, BuildHasherDefault<Mixer>>;

impl Machine {
    pub(crate) fn new() -> Self {
        // Numbers of our own come first; their keys are never looked up.
        let keys = vec![NO_KEY; PseudoCall::ALL.len()];
        Self {
            counts: Counts::default(),
            keys,
            tree: Tree::default(),
            states: Vec::new(),
            pools: Pools::default(),
            gaps: Histogram::default(),
            numbers: HashMap::default(),
            places: Vec::new(),
        }
    }

    /// The next events of a thread; `in_loops`: plain ones in their loop, otherwise one by one like the others.
    fn follow(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event], in_loops: bool) {
        self.counts.events += events.len() as u64;
        let place = self.places.get(id.0 as usize).copied().flatten();
        let Some(place) = place else {
            self.counts.events_refused += events.len() as u64;
            for event in events {
                match event.kind {
                    Kind::Enter(_) => self.counts.entries += 1,
                    Kind::Leave(_) | Kind::LeaveInnermost => self.counts.exits += 1,
                    _ => {}
                }
            }
            return;
        };
        if let Some(cpu) = cpu {
            self.states[place as usize].saw_cpu(cpu);
        }
        let mut done = 0;
        for stride in events.chunks(STRIDE) {
            let mut step = Step {
                thread: place,
                state: &mut self.states[place as usize],
                tree: &mut self.tree,
                pools: &mut self.pools,
                counts: &mut self.counts,
                gaps: &mut self.gaps,
                keys: &mut self.keys,
                numbers: &mut self.numbers,
            };
            let mut left = stride;
            loop {
                let followed = if in_loops { step.calls(left) } else { 0 };
                let Some((event, rest)) = left[followed..].split_first() else { break };
                step.event(event);
                left = rest;
            }
            let state = &mut self.states[place as usize];
            state.events += stride.len() as u64;
            done += stride.len();
            state.worst.passed(stride.len(), &events[..done]);
        }
        let state = &mut self.states[place as usize];
        state.worst.keep(events);
        let (last_ns, off_ns) = (state.last_ns, state.off_cpu_ns());
        state.ran.count(cpu, last_ns, off_ns);
    }

    /// Closes what is still open at the end of the trace.
    pub(crate) fn finish(&mut self) {
        for index in 0..self.states.len() {
            let state = &mut self.states[index];
            self.counts.open += state.stack.len() as u64;
            self.counts.too_deep += state.too_deep;
            let end = state.last_ns;
            unwind(state, &mut self.tree, 0, end);
            state.worst.finish();
            state.course.gather(&state.spent, end);
        }
        self.sort_lanes();
    }

    /// The busiest first, by time that was not spent off the CPU, then by events.
    fn sort_lanes(&mut self) {
        let off_cpu = [PseudoCall::Preempted as u32, PseudoCall::Waiting as u32];
        let busy = |state: &ThreadState| (state.series.spent(&off_cpu), state.events);
        let mut order: Vec<usize> = (0..self.states.len()).collect();
        order.sort_by_cached_key(|&at| std::cmp::Reverse(busy(&self.states[at])));
        let mut place_of = vec![0; order.len()];
        for (place, &at) in (0_u32..).zip(&order) {
            place_of[at] = place;
        }
        let mut states: Vec<Option<ThreadState>> = self.states.drain(..).map(Some).collect();
        self.states.extend(order.iter().filter_map(|&at| states[at].take()));
        let moved = |place: u32| place_of.get(place as usize).copied().unwrap_or(place);
        self.places.iter_mut().flatten().for_each(|place| *place = moved(*place));
        self.tree.nodes.iter_mut().for_each(|node| node.max_thread = moved(node.max_thread));
    }
}

/// Small number of a function.
fn number(numbers: &mut Numbers, keys: &mut Vec<FunctionKey>, key: FunctionKey) -> u32 {
    if let Some(&found) = numbers.get(&key) {
        return found;
    }
    if keys.len() >= FUNCTIONS_MAX {
        return PseudoCall::OtherFunctions as u32;
    }
    let added = keys.len() as u32;
    keys.push(key);
    numbers.insert(key, added);
    added
}

impl Consumer for Machine {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        let place = id.0 as usize;
        if self.places.len() <= place {
            self.places.resize(place + 1, None);
        }
        if let Some(known) = self.places[place] {
            self.states[known as usize].thread = thread.clone();
            return;
        }
        self.counts.threads += 1;
        if self.states.len() < THREADS_MAX {
            self.places[place] = Some(self.states.len() as u32);
            let room = ROOMS.iter().find(|room| self.states.len() < room.0).unwrap_or(&ROOMS[2]);
            self.states.push(ThreadState::new(thread.clone(), room.1, room.2));
        }
    }

    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        self.follow(id, cpu, events, true);
    }

    fn sample(
        &mut self,
        id: ThreadId,
        cpu: Option<u32>,
        time_ns: u64,
        weight: u64,
        stack: &[FunctionKey],
    ) {
        let Some(place) = self.places.get(id.0 as usize).copied().flatten() else { return };
        self.counts.samples += 1;
        self.counts.events += 1;
        let origin = *self.counts.origin_ns.get_or_insert(time_ns);
        let jumps = time_ns.abs_diff(origin) > SPAN_NS_MAX;
        self.counts.clock_jumps += u64::from(jumps);
        let time_ns = if jumps { origin } else { time_ns };
        let state = &mut self.states[place as usize];
        if let Some(cpu) = cpu {
            state.saw_cpu(cpu);
        }
        state.events += 1;
        state.first_ns = state.first_ns.min(time_ns);
        state.last_ns = state.last_ns.max(time_ns);
        state.series.reach(state.last_ns);
        let mut node = NONE;
        for &key in stack.iter().rev().take(DEPTH_MAX) {
            let function = number(&mut self.numbers, &mut self.keys, key);
            if function == PseudoCall::OtherFunctions as u32 {
                self.counts.functions_refused += 1;
            }
            let child = self.tree.child(node, function);
            if child == NONE {
                break;
            }
            node = child;
            self.tree.nodes[node as usize].cut_ns += weight;
        }
        if let Some(innermost) = self.tree.nodes.get_mut(node as usize) {
            innermost.self_ns += weight;
        }
    }

    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        self.counts.losses += 1;
        match loss.events {
            Some(events) => self.counts.discarded = self.counts.discarded.saturating_add(events),
            None => self.counts.losses_uncounted += 1,
        }
        if self.counts.holes.len() < HOLES_MAX {
            self.counts.holes.push((loss.from_ns, loss.to_ns));
            let only = if let [one] = threads { self.places.get(one.0 as usize) } else { None };
            self.counts.hole_details.push((loss.events, only.copied().flatten()));
        }
        for id in threads {
            let Some(place) = self.places.get(id.0 as usize).copied().flatten() else { continue };
            let state = &mut self.states[place as usize];
            self.counts.cut += state.stack.len() as u64;
            let end = state.last_ns;
            unwind(state, &mut self.tree, 0, end);
            state.lossy = true;
            state.unsound |= state.anonymous;
            state.signalled = false;
            state.just_left = false;
            state.points.pause();
            state.worst.pause();
            state.ledger.pause();
            // The next event begins anew: what lies between belongs to no call.
            state.started = false;
        }
    }
}

impl ThreadState {
    /// Packets were lost.
    fn drop(&mut self, port: u16, reason: FunctionKey, packets: u64) {
        let place = self.dropped.iter().position(|row| (row.0, row.1) == (port, reason));
        match place {
            Some(place) => self.dropped[place].2 = self.dropped[place].2.saturating_add(packets),
            None if self.dropped.len() < DROPPED_MAX => self.dropped.push((port, reason, packets)),
            None => {}
        }
    }

    /// Moments of the program are recorded, and no calls.
    pub(crate) const fn has_points(&self) -> bool {
        self.points.running()
    }

    /// The program tells of it: the kernel's events, and points among them, are there for any thread of the machine.
    pub(crate) fn is_programs(&self) -> bool {
        let has_calls =
            self.entries > 0 || !self.points.polls.is_empty() || !self.points.sends.is_empty();
        has_calls || self.has_points() && self.kernel_events == 0
    }

    fn off_cpu_ns(&self) -> u64 {
        self.kernel_ns[Join::Preempted as usize] + self.kernel_ns[Join::Waiting as usize]
    }

    fn new(thread: Thread, buckets: usize, ring: usize) -> Self {
        Self {
            thread,
            cpus: Vec::new(),
            events: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            recorded_from_ns: None,
            kernel_ns: [0; JOINS],
            ledger: Ledger::default(),
            spent: Vec::new(),
            entries: 0,
            kernel_events: 0,
            signals: 0,
            syscalls: 0,
            switches: 0,
            dropped: Vec::new(),
            series: Series::new(buckets),
            points: Points::default(),
            worst: Worst::new(ring),
            course: Course::default(),
            ran: Ran::default(),
            stack: Vec::new(),
            beyond: 0,
            started: false,
            just_left: false,
            signalled: false,
            lossy: false,
            anonymous: false,
            unsound: false,
            too_deep: 0,
        }
    }

    fn saw_cpu(&mut self, cpu: u32) {
        if let Err(place) = self.cpus.binary_search(&cpu)
            && self.cpus.len() < CPUS_MAX
        {
            self.cpus.insert(place, cpu);
        }
    }
}

/// Closes the frames above `depth` as cut, at `end_ns`.
fn unwind(state: &mut ThreadState, tree: &mut Tree, depth: usize, end_ns: u64) {
    state.beyond = 0;
    while state.stack.len() > depth {
        let Some(frame) = state.stack.pop() else { return };
        let duration = end_ns.saturating_sub(frame.start_ns);
        let own = duration.saturating_sub(frame.foreign_ns);
        if state.stack.len() < DEPTH_MAX
            && let Some(node) = tree.nodes.get_mut(frame.node as usize)
        {
            node.cut += 1;
            node.cut_ns += own;
        }
        pass_up(state, frame, duration);
    }
}

/// Tells the frame below how much of its time was a signal handler's.
#[inline]
fn pass_up(state: &mut ThreadState, frame: OpenCall, duration_ns: u64) {
    if (frame.asynchronous || frame.foreign_ns > 0)
        && let Some(below) = state.stack.last_mut()
    {
        below.foreign_ns += if frame.asynchronous { duration_ns } else { frame.foreign_ns };
        below.key = NO_KEY;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use laneway_trace_read::PoolAction;

    use super::*;

    /// What happens next in a thread: what, which function or number, and how long after the event before.
    type Happening = (u8, u64, u64);

    /// Mostly sound calls, as programs make them, and now and then each of the other things.
    fn happenings() -> impl Strategy<Value = Vec<Happening>> {
        let what = prop_oneof![10 => Just(0u8), 10 => Just(1), 1 => 2u8..16];
        let pause_ns = prop_oneof![
            40 => 0u64..300,
            2 => 10_000u64..90_000,
            1 => 1_000_000u64..40_000_000,
        ];
        prop::collection::vec((what, 0u64..7, pause_ns), 1..1_500)
    }

    /// Turns them into events. A stack is kept so that most exits are sound.
    fn events(happenings: &[Happening]) -> Vec<Event> {
        let mut now = 1_795_192_290_102_064_283;
        let mut stack = Vec::new();
        let made = happenings.iter().map(|&(what, number, pause_ns)| {
            // The last function has the key that stands for none.
            let key = FunctionKey(if number == 6 { u64::MAX } else { 0x5555_0000 + 16 * number });
            now += pause_ns;
            let kind = match what {
                0 => {
                    stack.push(key);
                    Kind::Enter(key)
                }
                1 => Kind::Leave(stack.pop().unwrap_or(key)),
                2 => Kind::Leave(key),
                3 => Kind::Signal(10),
                4 => Kind::SwitchedOut { runnable: number > 3 },
                5 => Kind::SwitchedIn,
                6 => Kind::SyscallIn(1),
                7 => Kind::SyscallOut(1),
                8 => Kind::Receive { port: 0, queue: 0, asked: 32, got: number as u16 },
                9 => Kind::EmptyRun { queue: None, polls: 9, lasted_ns: pause_ns as u32 },
                10 => Kind::Send { port: 0, queue: 0, asked: 32, sent: number as u16 },
                11 => Kind::Pool { action: PoolAction::Get, pool: 0, buffers: number as u32 },
                12 => Kind::Point { point: 1, value: number },
                13 if number == 0 => Kind::LeaveInnermost,
                14 if number < 2 => {
                    now -= 5_000;
                    Kind::Enter(key)
                }
                _ => {
                    stack.pop();
                    stack.push(key);
                    Kind::Enter(key)
                }
            };
            Event { time_ns: now, kind }
        });
        made.collect()
    }

    /// Two threads take turns at the cuts; behind some of them events are missing. Everything that was found, as text.
    fn found(events: &[Event], cuts: &[(usize, bool)], in_loops: bool) -> String {
        let mut machine = Machine::new();
        let ids = [ThreadId(0), ThreadId(1)];
        for id in ids {
            machine.thread(id, &Thread { pid: 1, tid: id.0, name: String::new() });
        }
        let mut left = events;
        for (turn, &(length, lossy)) in cuts.iter().cycle().enumerate() {
            let (batch, rest) = left.split_at(length.min(left.len()));
            machine.follow(ids[turn % 3 % 2], Some(turn as u32 % 2), batch, in_loops);
            if lossy {
                let loss = Loss { from_ns: 0, to_ns: 0, events: Some(1), place: String::new() };
                machine.lost(&loss, &ids[..1 + turn % 2]);
            }
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        machine.finish();
        let Machine { counts, keys, tree, states, pools, gaps, .. } = machine;
        format!("{counts:?} {keys:?} {:?} {states:?} {pools:?} {gaps:?}", tree.nodes)
    }

    proptest! {
        #[test]
        fn the_loop_over_plain_events_finds_what_the_rules_find(
            happenings in happenings(),
            cuts in prop::collection::vec((1usize..700, prop::bool::weighted(0.1)), 1..12),
        ) {
            let events = events(&happenings);
            prop_assert_eq!(found(&events, &cuts, true), found(&events, &cuts, false));
        }

        #[test]
        fn exits_that_name_nothing_are_followed_alike(
            calls in prop::collection::vec((any::<bool>(), 0u64..5, 0u64..400), 1..600),
            cuts in prop::collection::vec((1usize..300, prop::bool::weighted(0.05)), 1..6),
        ) {
            let mut now = 1_795_192_290_102_064_283;
            let events: Vec<Event> = calls.iter().map(|&(enters, function, pause_ns)| {
                now += pause_ns;
                let kind =
                    if enters { Kind::Enter(FunctionKey(function)) } else { Kind::LeaveInnermost };
                Event { time_ns: now, kind }
            }).collect();
            prop_assert_eq!(found(&events, &cuts, true), found(&events, &cuts, false));
        }
    }

    #[test]
    fn nearly_all_calls_of_a_sound_thread_are_plain() {
        let mut machine = Machine::new();
        machine.thread(ThreadId(0), &Thread { pid: 1, tid: 1, name: String::new() });
        let cycle = [(0u8, 1u64, 50), (0, 2, 50), (1, 0, 50), (0, 3, 50), (1, 0, 50), (1, 0, 50)];
        let mut happenings = vec![(0u8, 0u64, 50u64)];
        happenings.extend(cycle.repeat(400));
        let events = events(&happenings);
        machine.follow(ThreadId(0), None, &events[..1_000], true);
        let mut step = Step {
            thread: 0,
            state: &mut machine.states[0],
            tree: &mut machine.tree,
            pools: &mut machine.pools,
            counts: &mut machine.counts,
            gaps: &mut machine.gaps,
            keys: &mut machine.keys,
            numbers: &mut machine.numbers,
        };
        let (mut left, mut one_by_one) = (&events[1_000..], 0);
        while let Some((event, rest)) = left[step.calls(left)..].split_first() {
            step.event(event);
            one_by_one += 1;
            left = rest;
        }
        // A bucket of time lasts 16 us at first: some 300 of these events.
        assert!(one_by_one < 1_401 / 100, "{one_by_one}");
    }
}
