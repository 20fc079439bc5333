//! The longest silences of a thread, and the events around the very longest.
//!
//! A stall shows in the innermost call: nothing enters, leaves or returns for a long time. So what is
//! kept is not the longest calls (the outermost always win) but the longest stretches between two
//! function or point events. Kernel events inside such a stretch do not end it; they say what it was.
//!
//! Windows of events are cut from a ring of the last events, so that one pass over the trace is
//! enough; the stack at the start of a window is found by walking its events backwards.

use laneway_trace_read::{Event, FunctionKey, Kind};

use crate::result::WINDOW_EVENTS_MAX;

/// Stretches kept per thread.
pub(crate) const SILENCES_MAX: usize = 256;
/// Of these, with a window.
const WINDOWS_MAX: usize = 8;
/// Shorter silences are nothing to keep, ns.
const SILENCE_NS_MIN: u64 = 20_000;
/// Functions kept of a stack, innermost ones.
pub(crate) const STACK_MAX: usize = 64;
/// Events before the end of the silence.
const BEFORE: u64 = WINDOW_EVENTS_MAX as u64 / 2;

/// What the kernel did with the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    Preempted,
    Waiting,
    Interrupt,
    Syscall,
    PageFault,
}

/// How many there are.
pub(crate) const JOINS: usize = 5;

/// A stretch without function or point events.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Silence {
    pub(crate) at_ns: u64,
    pub(crate) length_ns: u64,
    pub(crate) node: u32,
    pub(crate) function: u32,
    /// By [`Join`], ns.
    pub(crate) kernel_ns: [u64; JOINS],
    /// Outermost first.
    pub(crate) stack: Vec<u32>,
    pub(crate) window: Option<Captured>,
    /// Number of the event that ended it.
    sequence: u64,
}

/// Events around a silence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Captured {
    /// Functions left within the window before they were entered there: open at its start, outermost first.
    pub(crate) open: Vec<FunctionKey>,
    /// Of [`Silence::stack`], how many (outermost) were open all along.
    pub(crate) kept: usize,
    pub(crate) events: Vec<Event>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Worst {
    /// Unordered until [`Worst::finish`]; at most [`SILENCES_MAX`].
    pub(crate) silences: Vec<Silence>,
    floor_ns: u64,
    since_ns: u64,
    kernel_ns: [u64; JOINS],
    excused: bool,
    paused: bool,
    /// Events kept to cut windows from: a window and what comes in before it is cut.
    ring: Vec<Event>,
    ring_events: usize,
    /// Events passed so far.
    passed: u64,
    /// Events seen by [`Worst::heard`] of the current stride come after `passed`.
    due: Option<u64>,
}

impl Silence {
    /// Events of the thread before it ended.
    pub(crate) const fn place(&self) -> u64 {
        self.sequence
    }
}

impl Worst {
    /// Windows are cut from the last `ring_events`, at least one.
    pub(crate) fn new(ring_events: usize) -> Self {
        Self { ring_events: ring_events.max(1), ..Self::default() }
    }

    #[inline]
    pub(crate) fn is_long(&self, now: u64) -> bool {
        now.saturating_sub(self.since_ns) > self.longest_ns()
    }

    /// Longer silences are kept.
    #[inline]
    pub(crate) fn longest_ns(&self) -> u64 {
        self.floor_ns.max(SILENCE_NS_MIN)
    }

    /// The silence began at this moment, and nothing happened in it so far.
    #[inline]
    pub(crate) fn began(&self, at_ns: u64) -> bool {
        self.since_ns == at_ns && !self.excused && self.kernel_ns == [0; JOINS]
    }

    /// A function or point event ends the silence.
    #[inline]
    pub(crate) fn heard(&mut self, now: u64) {
        self.since_ns = now;
        self.kernel_ns = [0; JOINS];
        self.excused = false;
    }

    /// The silence was polling, reported afterwards.
    pub(crate) fn excuse(&mut self) {
        self.excused = true;
    }

    pub(crate) fn join(&mut self, join: Join, lasted_ns: u64) {
        self.kernel_ns[join as usize] += lasted_ns;
    }

    /// Nothing is known of the time from here to [`Worst::resume`].
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    pub(crate) fn resume(&mut self, now: u64) {
        self.heard(now);
        self.paused = false;
    }

    #[cold]
    pub(crate) fn consider(
        &mut self,
        node: u32,
        function: u32,
        now: u64,
        stack: impl ExactSizeIterator<Item = u32>,
    ) {
        if self.excused || self.paused {
            return;
        }
        let skipped = stack.len().saturating_sub(STACK_MAX);
        let silence = Silence {
            at_ns: self.since_ns,
            length_ns: now - self.since_ns,
            node,
            function,
            kernel_ns: self.kernel_ns,
            stack: stack.skip(skipped).collect(),
            window: None,
            sequence: self.passed,
        };
        if self.silences.len() >= SILENCES_MAX {
            let shortest = (0..self.silences.len()).min_by_key(|&at| self.silences[at].length_ns);
            if let Some(shortest) = shortest {
                self.silences.swap_remove(shortest);
            }
        }
        self.silences.push(silence);
        if self.silences.len() >= SILENCES_MAX {
            let shortest = self.silences.iter().map(|silence| silence.length_ns).min();
            self.floor_ns = shortest.unwrap_or(0);
        }
        if self.due.is_none() {
            self.due = Some(self.passed + BEFORE);
        }
    }

    /// So many events were processed, the last of these; they are kept only when all of a batch were, see
    /// [`Worst::keep`].
    pub(crate) fn passed(&mut self, count: usize, batch: &[Event]) {
        self.passed += count as u64;
        if self.due.is_some_and(|due| due <= self.passed) {
            self.capture(false, batch);
        }
    }

    /// These events were the last to be processed, and will not be seen again.
    pub(crate) fn keep(&mut self, batch: &[Event]) {
        if self.ring.is_empty() {
            let empty = Event { time_ns: 0, kind: Kind::SwitchedIn };
            self.ring.resize(self.ring_events, empty);
        }
        let room = self.ring.len();
        let last = &batch[batch.len().saturating_sub(room)..];
        let at = (self.passed as usize - last.len()) % room;
        let (straight, around) = last.split_at(last.len().min(room - at));
        self.ring[at..at + straight.len()].copy_from_slice(straight);
        self.ring[..around.len()].copy_from_slice(around);
    }

    /// Cuts the windows that are due, for the longest silences only, from the ring and what was processed since then.
    #[cold]
    fn capture(&mut self, all: bool, batch: &[Event]) {
        let mut lengths: Vec<u64> = self.silences.iter().map(|silence| silence.length_ns).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let least = lengths.get(WINDOWS_MAX - 1).copied().unwrap_or(0);
        let oldest = self.passed.saturating_sub(self.ring_events as u64);
        self.due = None;
        for silence in &mut self.silences {
            if silence.length_ns < least {
                silence.window = None;
                continue;
            }
            if silence.window.is_some() || silence.sequence < oldest {
                continue;
            }
            let end = silence.sequence + BEFORE;
            if end > self.passed && !all {
                self.due = Some(self.due.map_or(end, |due| due.min(end)));
                continue;
            }
            let from = silence.sequence.saturating_sub(BEFORE).max(oldest);
            let to = end.min(self.passed);
            let batch_from = self.passed - batch.len() as u64;
            let event = |number: u64| match number.checked_sub(batch_from) {
                Some(at) => batch[at as usize],
                None => self.ring[number as usize % self.ring_events],
            };
            let events: Vec<Event> = (from..to).map(event).collect();
            silence.window = Some(Captured::new(events, silence.at_ns, silence.stack.len()));
        }
    }

    /// Cuts what is left, sorts, longest first.
    pub(crate) fn finish(&mut self) {
        self.capture(true, &[]);
        self.silences.sort_by_key(|silence| std::cmp::Reverse(silence.length_ns));
    }
}

impl Captured {
    /// `open_at_silence` calls were open at `silence_ns`. Walks back to the start: an entry before the silence was
    /// not open at the start, an exit before it was.
    fn new(mut events: Vec<Event>, silence_ns: u64, open_at_silence: usize) -> Self {
        let at = events.partition_point(|event| event.time_ns <= silence_ns);
        let mut kept = open_at_silence;
        let mut open = Vec::new();
        let mut begin = 0;
        for (index, event) in events[..at].iter().enumerate().rev() {
            match event.kind {
                Kind::Leave(key) => open.push(key),
                Kind::Enter(_) if open.pop().is_some() => {}
                Kind::Enter(_) if kept > 0 => kept -= 1,
                // The trace does not name the function that was left, or it lies below the part of the stack that was
                // kept.
                Kind::Enter(_) | Kind::LeaveInnermost => {
                    begin = index + 1;
                    break;
                }
                _ => {}
            }
        }
        events.drain(..begin);
        Self { open, kept, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, kind: Kind) -> Event {
        Event { time_ns, kind }
    }

    #[test]
    fn the_stack_at_the_start_of_a_window_is_found_backwards() {
        let key = FunctionKey;
        // Open at the start: main, a, b. Then b and a are left, c is entered and is silent.
        let events = vec![
            event(10, Kind::Leave(key(2))),
            event(20, Kind::Leave(key(1))),
            event(30, Kind::Enter(key(3))),
            event(9_000, Kind::Leave(key(3))),
        ];
        let captured = Captured::new(events.clone(), 30, 2);
        assert_eq!(captured.kept, 1, "main is open all along");
        assert_eq!(captured.open, [key(1), key(2)]);
        assert_eq!(captured.events, events);
    }
}
