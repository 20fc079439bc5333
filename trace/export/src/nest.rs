//! Events into calls that nest: what every event-level export needs before it can write anything.
//!
//! Pictures of calls want two things that a trace does not promise: that every begin has its end, and that ends come in
//! the order of a stack. [`Nest`] keeps one stack per thread and hands a [`Calls`] only sequences that keep both
//! promises; what it had to do for that is counted in [`LeftOut`] and marked on the calls ([`Ended::is_cut`]).
//!
//! Must always hold, for every sequence of events: per thread times never fall, begins and ends balance, and an end
//! closes the innermost begun call. Calls that are kept out (shorter than asked, outside the window, beyond the size of
//! the output) have neither.
//!
//! A call may be shorter than asked, which is known only later; so its begin is held back until it has lasted that
//! long. Its callers began before it and are let out first, so the order stays.

use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, Thread, ThreadId};
use std::collections::BTreeMap;

/// Deepest nesting of calls that is kept; deeper calls are left out and counted.
pub const DEPTH_MAX: usize = 4096;

/// What occupies a thread from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallFrame {
    /// A function of the program.
    Function(FunctionKey),
    /// A system call, by its number.
    Syscall(u32),
    /// An interrupt or softirq, by its vector.
    Interrupt(u32),
    /// Another thread had the CPU.
    OffCpu {
        /// The thread could have gone on.
        runnable: bool,
    },
}

/// A call at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it was.
    pub frame: CallFrame,
    /// When it began, ns since the epoch; the edge of the window for one that began before it.
    pub began_ns: u64,
    /// When it ended, likewise.
    pub ended_ns: u64,
    /// Calls around it that are shown.
    pub depth: usize,
    /// Its duration is not that of the call: events are missing, or the window or the trace ends inside it.
    pub is_cut: bool,
}

/// Takes calls that nest, and what lies between them.
pub trait Calls {
    /// A thread is seen for the first time.
    fn thread(&mut self, id: ThreadId, thread: &Thread);
    /// A call begins. Its caller, if it has one, has begun before.
    fn begin(&mut self, thread: ThreadId, time_ns: u64, frame: CallFrame);
    /// The innermost begun call ends.
    fn end(&mut self, thread: ThreadId, ended: &Ended);
    /// Something that has no duration: a poll, a send, buffers, a signal, a point.
    fn moment(&mut self, thread: ThreadId, time_ns: u64, kind: &Kind);
    /// Events are missing in this thread from here on.
    fn lost(&mut self, thread: ThreadId, time_ns: u64, loss: &Loss);
    /// Nothing more fits: no further call is begun and no moment is passed; what has begun still ends.
    fn is_full(&self) -> bool;
}

/// The part of a trace to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nothing before this moment, ns since the epoch.
    pub from_ns: Option<u64>,
    /// Nothing at or after this moment, ns since the epoch.
    pub to_ns: Option<u64>,
    /// No call that lasted less, ns.
    pub shortest_ns: u64,
    /// Only this thread.
    pub thread: Option<ThreadId>,
}

/// What an export does not show, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Calls shorter than asked.
    pub short: u64,
    /// Calls and moments outside the window or in other threads.
    pub outside: u64,
    /// Calls and moments that the size of the output had no room for.
    pub no_room: u64,
    /// Calls deeper than [`DEPTH_MAX`].
    pub too_deep: u64,
    /// Ends without a begin.
    pub unmatched: u64,
    /// Calls shown with a duration that is not theirs.
    pub cut: u64,
    /// Events earlier than the one before them in their thread; shown at the time of that one.
    pub backwards: u64,
}

impl LeftOut {
    /// What is missing, as words: empty when nothing is.
    #[must_use]
    pub fn words(&self) -> String {
        let parts = [
            (self.short, "calls shorter than asked"),
            (self.outside, "calls and moments outside the selection"),
            (self.no_room, "calls and moments beyond the size of the output"),
            (self.too_deep, "calls too deep"),
            (self.unmatched, "ends without a begin"),
        ];
        let texts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        texts.join(", ")
    }
}

#[derive(Clone, Copy)]
struct Open {
    frame: CallFrame,
    began_ns: u64,
}

#[derive(Default)]
struct Stack {
    open: Vec<Open>,
    /// So many of `open`, from the outermost on, have begun in the output.
    shown: usize,
    /// Calls beyond `DEPTH_MAX` that have not ended.
    deeper: u64,
    last_ns: u64,
    is_over: bool,
}

/// Turns the events of a trace into calls that nest.
pub struct Nest<C> {
    calls: C,
    selection: Selection,
    stacks: BTreeMap<ThreadId, Stack>,
    left_out: LeftOut,
}

impl<C: Calls> Nest<C> {
    /// Shows `selection` to `calls`.
    pub fn new(calls: C, selection: Selection) -> Self {
        Nest { calls, selection, stacks: BTreeMap::new(), left_out: LeftOut::default() }
    }

    /// Ends what is still open, and gives back what was written to and what was left out.
    pub fn finish(mut self) -> (C, LeftOut) {
        let ids: Vec<ThreadId> = self.stacks.keys().copied().collect();
        for id in ids {
            let at_ns = self.stacks.get(&id).map_or(0, |stack| stack.last_ns);
            self.cut_all(id, at_ns);
        }
        (self.calls, self.left_out)
    }

    fn is_selected(&self, id: ThreadId) -> bool {
        self.selection.thread.is_none_or(|thread| thread == id)
    }

    fn step(&mut self, id: ThreadId, event: &Event) {
        let Nest { calls, selection, stacks, left_out } = self;
        let stack = stacks.entry(id).or_default();
        if event.time_ns < stack.last_ns {
            left_out.backwards += 1;
        }
        let now_ns = event.time_ns.max(stack.last_ns);
        stack.last_ns = now_ns;
        if let Some(to_ns) = selection.to_ns
            && now_ns >= to_ns
        {
            if !stack.is_over {
                stack.is_over = true;
                while !stack.open.is_empty() {
                    close(calls, selection, left_out, id, stack, to_ns, true);
                }
            }
            left_out.outside += u64::from(matter(&event.kind));
            return;
        }
        let began = |frame| Change::Begins(frame);
        let change = match event.kind {
            Kind::Enter(key) => began(CallFrame::Function(key)),
            Kind::SyscallIn(number) => began(CallFrame::Syscall(number)),
            Kind::InterruptIn(vector) => began(CallFrame::Interrupt(vector)),
            Kind::SwitchedOut { runnable } => began(CallFrame::OffCpu { runnable }),
            Kind::Leave(key) => Change::Ends(Some(CallFrame::Function(key))),
            Kind::SyscallOut(number) => Change::Ends(Some(CallFrame::Syscall(number))),
            Kind::InterruptOut(vector) => Change::Ends(Some(CallFrame::Interrupt(vector))),
            Kind::SwitchedIn => Change::Resumes,
            Kind::LeaveInnermost => Change::Ends(None),
            _ => Change::Nothing,
        };
        match change {
            Change::Begins(_) if stack.open.len() == DEPTH_MAX => {
                stack.deeper += 1;
                left_out.too_deep += 1;
            }
            Change::Begins(frame) => {
                stack.open.push(Open { frame, began_ns: now_ns });
                show(calls, selection, id, stack, now_ns);
            }
            Change::Ends(_) if stack.deeper > 0 => stack.deeper -= 1,
            Change::Ends(None) if stack.open.is_empty() => left_out.unmatched += 1,
            Change::Ends(None) => close(calls, selection, left_out, id, stack, now_ns, false),
            Change::Ends(Some(frame)) => {
                let at = stack.open.iter().rposition(|open| open.frame == frame);
                unwind(calls, selection, left_out, id, stack, now_ns, at);
            }
            Change::Resumes => {
                let is_off = |open: &Open| matches!(open.frame, CallFrame::OffCpu { .. });
                let at = stack.open.iter().rposition(is_off);
                unwind(calls, selection, left_out, id, stack, now_ns, at);
            }
            Change::Nothing => {
                show(calls, selection, id, stack, now_ns);
                if selection.from_ns.is_some_and(|from_ns| now_ns < from_ns) {
                    left_out.outside += 1;
                } else if calls.is_full() {
                    left_out.no_room += 1;
                } else {
                    calls.moment(id, now_ns, &event.kind);
                }
            }
        }
    }

    fn cut_all(&mut self, id: ThreadId, at_ns: u64) {
        let Nest { calls, selection, stacks, left_out } = self;
        let Some(stack) = stacks.get_mut(&id) else { return };
        let at_ns = at_ns.max(stack.last_ns);
        stack.last_ns = at_ns;
        let at_ns = selection.to_ns.map_or(at_ns, |to_ns| at_ns.min(to_ns));
        stack.deeper = 0;
        while !stack.open.is_empty() {
            close(calls, selection, left_out, id, stack, at_ns, true);
        }
    }
}

enum Change {
    Begins(CallFrame),
    Ends(Option<CallFrame>),
    Resumes,
    Nothing,
}

/// Whether an event would have been shown as something.
fn matter(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Leave(_)
            | Kind::LeaveInnermost
            | Kind::SyscallOut(_)
            | Kind::InterruptOut(_)
            | Kind::SwitchedIn
    )
}

/// Begins in the output what has lasted long enough by `now_ns`, the outermost first.
fn show<C: Calls>(
    calls: &mut C,
    selection: &Selection,
    id: ThreadId,
    stack: &mut Stack,
    now_ns: u64,
) {
    let from_ns = selection.from_ns.unwrap_or(0);
    if now_ns < from_ns {
        return;
    }
    while let Some(open) = stack.open.get(stack.shown) {
        if now_ns - open.began_ns < selection.shortest_ns || calls.is_full() {
            return;
        }
        calls.begin(id, open.began_ns.max(from_ns), open.frame);
        stack.shown += 1;
    }
}

/// Ends the innermost call, which exists.
fn close<C: Calls>(
    calls: &mut C,
    selection: &Selection,
    left_out: &mut LeftOut,
    id: ThreadId,
    stack: &mut Stack,
    now_ns: u64,
    is_cut: bool,
) {
    show(calls, selection, id, stack, now_ns);
    let Some(open) = stack.open.pop() else { return };
    let from_ns = selection.from_ns.unwrap_or(0);
    if stack.open.len() < stack.shown {
        stack.shown = stack.open.len();
        let is_cut = is_cut || open.began_ns < from_ns;
        left_out.cut += u64::from(is_cut);
        calls.end(
            id,
            &Ended {
                frame: open.frame,
                began_ns: open.began_ns.max(from_ns),
                ended_ns: now_ns,
                depth: stack.open.len(),
                is_cut,
            },
        );
    } else if now_ns < from_ns {
        left_out.outside += 1;
    } else if now_ns - open.began_ns < selection.shortest_ns {
        left_out.short += 1;
    } else {
        left_out.no_room += 1;
    }
}

/// Ends the call at `at` of the stack and all inside it, which are cut: their own ends are missing.
fn unwind<C: Calls>(
    calls: &mut C,
    selection: &Selection,
    left_out: &mut LeftOut,
    id: ThreadId,
    stack: &mut Stack,
    now_ns: u64,
    at: Option<usize>,
) {
    let Some(at) = at else {
        left_out.unmatched += 1;
        return;
    };
    while stack.open.len() > at + 1 {
        close(calls, selection, left_out, id, stack, now_ns, true);
    }
    close(calls, selection, left_out, id, stack, now_ns, false);
}

impl<C: Calls> Consumer for Nest<C> {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        if self.is_selected(id) {
            self.calls.thread(id, thread);
        }
    }

    fn events(&mut self, id: ThreadId, _cpu: Option<u32>, events: &[Event]) {
        if !self.is_selected(id) {
            self.left_out.outside += events.iter().filter(|e| matter(&e.kind)).count() as u64;
            return;
        }
        for event in events {
            self.step(id, event);
        }
    }

    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        for &id in threads {
            if !self.is_selected(id) {
                continue;
            }
            self.cut_all(id, loss.from_ns);
            let is_inside = self.selection.from_ns.is_none_or(|from_ns| loss.to_ns >= from_ns)
                && self.selection.to_ns.is_none_or(|to_ns| loss.from_ns < to_ns);
            if is_inside && !self.calls.is_full() {
                let from_ns = self.selection.from_ns.unwrap_or(0);
                self.calls.lost(id, loss.from_ns.max(from_ns), loss);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records the calls that it receives, and panics where a promise is broken.
    #[derive(Default)]
    struct Witness {
        log: Vec<String>,
        open: Vec<(CallFrame, u64)>,
        last_ns: u64,
        room: Option<usize>,
    }

    fn name(frame: CallFrame) -> String {
        match frame {
            CallFrame::Function(FunctionKey(key)) => format!("f{key}"),
            other => format!("{other:?}"),
        }
    }

    impl Calls for Witness {
        fn thread(&mut self, _: ThreadId, _: &Thread) {}
        fn begin(&mut self, _: ThreadId, time_ns: u64, frame: CallFrame) {
            assert!(time_ns >= self.last_ns, "time fell");
            self.last_ns = time_ns;
            self.open.push((frame, time_ns));
            self.log.push(format!("{time_ns} +{}", name(frame)));
        }
        fn end(&mut self, _: ThreadId, ended: &Ended) {
            assert!(ended.ended_ns >= self.last_ns, "time fell");
            self.last_ns = ended.ended_ns;
            let (frame, began_ns) = self.open.pop().expect("an end has its begin");
            assert_eq!((frame, began_ns), (ended.frame, ended.began_ns));
            assert_eq!(self.open.len(), ended.depth);
            let cut = if ended.is_cut { " cut" } else { "" };
            self.log.push(format!("{} -{}{cut}", ended.ended_ns, name(frame)));
        }
        fn moment(&mut self, _: ThreadId, time_ns: u64, kind: &Kind) {
            self.log.push(format!("{time_ns} {kind:?}"));
        }
        fn lost(&mut self, _: ThreadId, time_ns: u64, _: &Loss) {
            self.log.push(format!("{time_ns} lost"));
        }
        fn is_full(&self) -> bool {
            self.room.is_some_and(|room| self.log.len() >= room)
        }
    }

    const T: ThreadId = ThreadId(0);

    fn enter(time_ns: u64, key: u64) -> Event {
        Event { time_ns, kind: Kind::Enter(FunctionKey(key)) }
    }

    fn leave(time_ns: u64, key: u64) -> Event {
        Event { time_ns, kind: Kind::Leave(FunctionKey(key)) }
    }

    fn shown(selection: Selection, room: Option<usize>, events: &[Event]) -> (String, LeftOut) {
        let mut nest = Nest::new(Witness { room, ..Witness::default() }, selection);
        nest.events(T, None, events);
        let (witness, left_out) = nest.finish();
        assert!(witness.open.is_empty(), "begins and ends balance");
        (witness.log.join("; "), left_out)
    }

    #[test]
    fn an_end_that_skips_calls_cuts_them() {
        let events = [enter(1, 1), enter(2, 2), enter(3, 3), leave(9, 1), leave(10, 7)];
        let (log, left_out) = shown(Selection::default(), None, &events);
        assert_eq!(log, "1 +f1; 2 +f2; 3 +f3; 9 -f3 cut; 9 -f2 cut; 9 -f1");
        assert_eq!((left_out.cut, left_out.unmatched), (2, 1));
    }

    #[test]
    fn a_short_call_is_left_out_and_its_caller_keeps_its_place() {
        let selection = Selection { shortest_ns: 5, ..Selection::default() };
        let events =
            [enter(0, 1), enter(1, 2), leave(3, 2), enter(4, 3), leave(20, 3), leave(21, 1)];
        let (log, left_out) = shown(selection, None, &events);
        assert_eq!(log, "0 +f1; 4 +f3; 20 -f3; 21 -f1");
        assert_eq!(left_out.short, 1);
    }

    #[test]
    fn the_window_clips_what_crosses_its_edges() {
        let selection = Selection { from_ns: Some(10), to_ns: Some(20), ..Selection::default() };
        let events = [
            enter(1, 1),
            enter(2, 2),
            leave(3, 2),
            enter(12, 3),
            leave(13, 3),
            enter(19, 4),
            leave(25, 4),
            leave(26, 1),
        ];
        let (log, left_out) = shown(selection, None, &events);
        assert_eq!(log, "10 +f1; 12 +f3; 13 -f3; 19 +f4; 20 -f4 cut; 20 -f1 cut");
        assert_eq!((left_out.cut, left_out.outside), (2, 1));
    }

    #[test]
    fn a_hole_ends_everything_and_the_rest_starts_afresh() {
        let mut nest = Nest::new(Witness::default(), Selection::default());
        nest.events(T, None, &[enter(1, 1), enter(2, 2)]);
        let loss = Loss { from_ns: 5, to_ns: 9, events: Some(3), place: String::new() };
        nest.lost(&loss, &[T]);
        nest.events(T, None, &[leave(10, 2), enter(11, 1), leave(12, 1)]);
        let (witness, left_out) = nest.finish();
        assert_eq!(
            witness.log.join("; "),
            "1 +f1; 2 +f2; 5 -f2 cut; 5 -f1 cut; 5 lost; 11 +f1; 12 -f1"
        );
        assert_eq!((left_out.cut, left_out.unmatched), (2, 1));
    }

    #[test]
    fn a_full_output_begins_nothing_more_and_says_how_much_is_missing() {
        let events = [enter(1, 1), enter(2, 2), leave(3, 2), enter(4, 2), leave(5, 2), leave(6, 1)];
        let (log, left_out) = shown(Selection::default(), Some(3), &events);
        assert_eq!(log, "1 +f1; 2 +f2; 3 -f2; 6 -f1");
        assert_eq!(left_out.no_room, 1);
        assert_eq!(left_out.words(), "1 calls and moments beyond the size of the output");
    }

    #[test]
    fn time_off_the_cpu_ends_at_the_switch_in_with_any_events_between() {
        let at = |time_ns, kind| Event { time_ns, kind };
        let events = [
            enter(1, 1),
            at(2, Kind::SyscallIn(7)),
            at(3, Kind::SwitchedOut { runnable: false }),
            at(8, Kind::SwitchedIn),
            at(9, Kind::SyscallOut(7)),
            leave(10, 1),
        ];
        let (log, _) = shown(Selection::default(), None, &events);
        assert_eq!(
            log,
            "1 +f1; 2 +Syscall(7); 3 +OffCpu { runnable: false }; 8 -OffCpu { runnable: false }; 9 \
             -Syscall(7); 10 -f1"
        );
    }

    fn any_event() -> impl Strategy<Value = (i64, Kind)> {
        let key = (0u64..4).prop_map(FunctionKey);
        let kind = prop_oneof![
            4 => key.clone().prop_map(Kind::Enter),
            3 => key.prop_map(Kind::Leave),
            1 => Just(Kind::LeaveInnermost),
            1 => (0u32..2).prop_map(Kind::SyscallIn),
            1 => (0u32..2).prop_map(Kind::SyscallOut),
            1 => Just(Kind::SwitchedOut { runnable: true }),
            1 => Just(Kind::SwitchedIn),
            1 => Just(Kind::Signal(9)),
        ];
        (-2i64..6, kind)
    }

    proptest! {
        #[test]
        fn any_events_give_calls_that_nest(
            steps in prop::collection::vec(any_event(), 0..200),
            shortest_ns in 0u64..8,
            from_ns in prop::option::of(900u64..1_200),
            lasts_ns in prop::option::of(0u64..200),
            room in prop::option::of(0usize..60),
        ) {
            let mut time_ns = 1_000i64;
            let events: Vec<Event> = steps
                .into_iter()
                .map(|(step, kind)| {
                    time_ns += step;
                    Event { time_ns: time_ns as u64, kind }
                })
                .collect();
            let to_ns = lasts_ns.map(|lasts_ns| from_ns.unwrap_or(1_000) + lasts_ns);
            // The witness panics where a promise is broken.
            let selection = Selection { from_ns, to_ns, shortest_ns, thread: None };
            shown(selection, room, &events);
        }
    }
}
