//! Whether the receive of a port sleeps in its socket or only looks.
//!
//! ```text
//!            busy for BUSY_TURNS                  looks: takes what is there, ends
//!   armed ──────────────────────▶ cancelled ──▶ ended ◀──────────────────▶ looking
//!     ▲                                           │
//!     └────── still for STILL_TURNS, or a rest ───┘
//! ```
//!
//! An armed receive waits in the socket's wait queue. While a request waits there, the kernel takes the
//! queue's lock and walks it for each packet that arrives, and also for each packet of ours that is
//! freed: `sock_wfree` reports room to write, which nothing waits for (docs/measurements/lanes.md,
//! "The cost of sending"). A worker that comes round by itself needs no waking. So the receive of a busy
//! port is a look: it takes what the socket has and ends (MSG_DONTWAIT), with the call that sends what
//! the turn has to send. A port on which nothing moves is armed again, because then a turn costs no call
//! at all, and so is one whose worker goes to sleep.
//!
//! What must always hold: at most one receive of a port is under way. Knows no sockets.

use crate::{
    buffers::Buffers,
    ring::{CANCEL_TOKEN, Ring},
    token::{Kind, token},
};
use io_uring::{opcode, squeue, types};
use std::os::fd::RawFd;

/// Turns in which something moved, without a rest in between, after which a port is busy.
const BUSY_TURNS: u32 = 64;
/// Turns in a row in which nothing moved, after which it is still.
const STILL_TURNS: u32 = 64;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ended,
    Looking,
    Armed,
    /// Armed, and asked to end.
    Cancelled,
}

/// What to ask the ring for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A receive that takes what is there and ends.
    Look,
    /// A receive that goes on until it is cancelled or runs out of buffers.
    Arm,
    /// The end of the armed one.
    Cancel,
}

impl Step {
    /// The request of a port, and the word that its completions bring back.
    fn request(
        self,
        Source { socket, port, group }: Source,
        header: *const libc::msghdr,
    ) -> (squeue::Entry, u64) {
        let token = token(Kind::Receive, port, 0);
        let receive = |flags: i32| {
            opcode::RecvMsgMulti::new(types::Fd(socket), header, group).flags(flags as u32).build()
        };
        match self {
            Step::Look => (receive(libc::MSG_DONTWAIT), token),
            Step::Arm => (receive(0), token),
            Step::Cancel => (opcode::AsyncCancel::new(token).build(), CANCEL_TOKEN),
        }
    }
}

/// What a receive takes from, and into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) socket: RawFd,
    /// The place of the port.
    pub(crate) port: u16,
    /// Its provided buffers.
    pub(crate) group: u16,
}

/// The receive of one port.
#[derive(Debug)]
pub(crate) struct Receiving {
    state: State,
    /// What had moved at the last turn.
    moved: u64,
    busy_turns: u32,
    still_turns: u32,
    /// How often it looked.
    pub(crate) looks: u64,
    /// Nothing is to be received.
    is_held: bool,
}

impl Receiving {
    pub(crate) fn new() -> Receiving {
        Receiving {
            state: State::Ended,
            moved: 0,
            busy_turns: 0,
            still_turns: STILL_TURNS,
            looks: 0,
            is_held: false,
        }
    }

    /// Has the port receive nothing, or receive again.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// True when a port that is held receives nothing any more; one that is not held does not matter.
    pub(crate) fn has_settled(&self) -> bool {
        !self.is_held || self.has_ended()
    }

    /// One turn of a worker that is awake. `moved` is what the port has received and sent so far.
    pub(crate) fn turn(&mut self, moved: u64) -> Option<Step> {
        if moved == self.moved {
            self.still_turns = self.still_turns.saturating_add(1);
        } else {
            self.moved = moved;
            self.still_turns = 0;
            self.busy_turns = self.busy_turns.saturating_add(1);
        }
        let is_still = self.still_turns >= STILL_TURNS;
        if is_still {
            self.busy_turns = 0;
        }
        if self.is_held {
            return self.end();
        }
        match self.state {
            State::Ended if is_still || self.busy_turns < BUSY_TURNS => Some(Step::Arm),
            State::Ended => Some(Step::Look),
            State::Armed if self.busy_turns >= BUSY_TURNS => Some(Step::Cancel),
            State::Armed | State::Looking | State::Cancelled => None,
        }
    }

    /// The worker is about to sleep, and wants to be woken.
    pub(crate) fn rest(&mut self) -> Option<Step> {
        self.busy_turns = 0;
        if self.is_held {
            return self.end();
        }
        (self.state == State::Ended).then_some(Step::Arm)
    }

    /// Asks the ring for a step of a port, whose provided buffers are these; without one that the kernel has
    /// there is nothing to receive into. What the ring has no room for is asked for in a later turn.
    ///
    /// # Safety
    /// `header` lies in memory that was given to [`Ring::keep`] and is never written again.
    pub(crate) unsafe fn ask(
        &mut self,
        step: Option<Step>,
        ring: &mut Ring,
        buffers: &Buffers,
        source: Source,
        header: *const libc::msghdr,
    ) {
        let Some(step) = step else { return };
        if step != Step::Cancel && !buffers.has_any() {
            return;
        }
        let (request, token) = step.request(source, header);
        // SAFETY: the header by the caller's promise; buffers keep their memory with the ring, and are the
        // kernel's while it has them. A cancel names no memory.
        if unsafe { ring.push(request, token) } {
            self.began(step);
        }
    }

    /// The ring took the request.
    fn began(&mut self, step: Step) {
        match step {
            Step::Look => {
                self.looks += 1;
                self.state = State::Looking;
            }
            Step::Arm => self.state = State::Armed,
            Step::Cancel => self.state = State::Cancelled,
        }
    }

    /// True when the next turns ask for nothing: it is armed, and nothing moves; or it is held and has ended.
    pub(crate) fn is_settled(&self) -> bool {
        if self.is_held {
            return self.has_ended();
        }
        self.state == State::Armed && self.still_turns >= STILL_TURNS
    }

    /// True when nothing is under way.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The port is to receive no more: what is under way is to end.
    pub(crate) fn end(&self) -> Option<Step> {
        (self.state == State::Armed).then_some(Step::Cancel)
    }

    /// The last completion of the receive has come.
    pub(crate) fn ended(&mut self) {
        self.state = State::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `turns` turns of `moving` datagrams each; what is asked for is done at once.
    fn turns(receiving: &mut Receiving, turns: u32, moving: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..turns {
            let moved = receiving.moved + moving;
            if let Some(step) = receiving.turn(moved) {
                steps.push(step);
                receiving.began(step);
                if step != Step::Arm {
                    receiving.ended();
                }
            }
        }
        steps
    }

    #[test]
    fn a_new_port_is_armed_once() {
        assert_eq!(turns(&mut Receiving::new(), 1000, 0), [Step::Arm]);
    }

    #[test]
    fn a_busy_port_looks_and_a_still_one_is_armed_again() {
        let mut receiving = Receiving::new();
        assert_eq!(turns(&mut receiving, BUSY_TURNS - 1, 5), [Step::Arm]);
        assert_eq!(turns(&mut receiving, 3, 5), [Step::Cancel, Step::Look, Step::Look]);
        let steps = turns(&mut receiving, 10 * STILL_TURNS, 0);
        assert_eq!(steps.len(), STILL_TURNS as usize, "looks until it is still");
        assert_eq!(steps.last(), Some(&Step::Arm));
        assert_eq!(receiving.looks, 2 + u64::from(STILL_TURNS) - 1);
    }

    #[test]
    fn pauses_shorter_than_stillness_leave_a_port_busy() {
        let mut receiving = Receiving::new();
        let mut steps = Vec::new();
        for _ in 0..2 * BUSY_TURNS {
            steps.extend(turns(&mut receiving, 1, 1));
            steps.extend(turns(&mut receiving, STILL_TURNS - 1, 0));
        }
        let armed = steps.iter().filter(|step| **step == Step::Arm).count();
        assert!(receiving.looks > u64::from(BUSY_TURNS) && armed == 1, "{receiving:?}");
    }

    #[test]
    fn a_worker_that_sleeps_between_turns_stays_armed() {
        let mut receiving = Receiving::new();
        turns(&mut receiving, 1, 1);
        for _ in 0..10 * BUSY_TURNS {
            assert_eq!(turns(&mut receiving, 2, 7), []);
            assert_eq!(receiving.rest(), None);
        }
    }

    #[test]
    fn receiving_is_armed_before_a_sleep() {
        let mut receiving = Receiving::new();
        turns(&mut receiving, 2 * BUSY_TURNS, 1);
        assert!(receiving.looks > 0);
        assert_eq!(receiving.rest(), Some(Step::Arm));
    }

    #[test]
    fn a_port_that_is_held_ends_and_begins_again_when_it_is_let() {
        let mut receiving = Receiving::new();
        turns(&mut receiving, 1, 1);
        receiving.hold(true);
        assert!(!receiving.has_settled());
        assert_eq!(turns(&mut receiving, 3, 5), [Step::Cancel]);
        assert_eq!((receiving.rest(), receiving.has_settled()), (None, true));
        assert!(receiving.is_settled());
        receiving.hold(false);
        assert_eq!(turns(&mut receiving, 3, 0), [Step::Arm]);
    }

    #[test]
    fn one_receive_at_a_time() {
        let mut receiving = Receiving::new();
        turns(&mut receiving, BUSY_TURNS, 1);
        receiving.began(Step::Look);
        assert_eq!((receiving.turn(1000), receiving.rest()), (None, None));
        receiving.began(Step::Cancel);
        assert_eq!((receiving.turn(2000), receiving.rest()), (None, None));
    }
}
