//! What can be recorded: the static points, their numbers and shapes.
//!
//! A file carries the table of the points it uses, so that a reader needs no copy of this one and an old
//! reader can still read what it knows. Numbers are stable; a number that is given up is not given
//! out again.

use std::fmt;

/// Number of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointId(pub u16);

/// How the two arguments of a record are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The time starts anew: `value` is the counter itself. Written where 32 bits of ticks are too few.
    Time,
    /// `value` records are missing between the record before this one and this one.
    Lost,
    /// A function. The low 8 bits of `small` say what of it: 0 entered, 1 left, 2 a whole call that ends
    /// now and lasted 40 bits of ticks (high 8 bits of `small`, low 32 of `value`); the high 32 bits of
    /// `value` are an argument.
    Function,
    /// A receive call that found something, as a whole call; the tag is the port, the argument's low 16
    /// bits how many frames were asked for, its high ones how many were received.
    Receive,
    /// Receive calls that found nothing, one after the other: how many is the argument; they lasted the
    /// 40 bits of ticks and ended now. The tag is the port plus 1, 0 where they are of no port in particular.
    EmptyRun,
    /// Frames asked for (low 16 bits of `value`) and come (next 16 bits) in a receive call whose length other
    /// records tell; `small` is the port.
    ReceivedWithin,
    /// Frames given to be sent (low 16 bits of `value`) and taken (next 16 bits); `small` is the port.
    Send,
    /// The thread left the CPU; `small` is 1 if it could have gone on.
    SwitchedOut,
    /// The thread is on a CPU again.
    SwitchedIn,
    /// An interrupt arrived: `value` is its number.
    InterruptIn,
    /// ... and is done.
    InterruptOut,
    /// A system call began: `value` is its number.
    SyscallIn,
    /// ... and ended.
    SyscallOut,
    /// The same; the high 32 bits of `value` are what it returned.
    SyscallReturned,
    /// A signal was delivered: `value` is its number.
    Signal,
    /// `value` packets were lost since the record of this point and port before; `small` is the port. The point's name
    /// says for what reason.
    Dropped,
    /// The first 8 bytes of a task's name, in `value`, little-endian; the record behind it has the others and says what
    /// of the task.
    Task,
    /// That task has the CPU now; stands behind the [`SwitchedOut`](Self::SwitchedOut) of the task it took it from. In
    /// front of a [`SwitchedIn`](Self::SwitchedIn), at the same time: it had the CPU until now.
    TookOver,
    /// That task made the thread runnable.
    WokenBy,
    /// Something at one moment: `value`.
    Instant,
}

impl Shape {
    /// Every shape with its name in headers.
    const NAMES: [(Shape, &'static str); 20] = [
        (Shape::Time, "time"),
        (Shape::Lost, "lost"),
        (Shape::Function, "function"),
        (Shape::Receive, "receive"),
        (Shape::EmptyRun, "empty-run"),
        (Shape::ReceivedWithin, "received-within"),
        (Shape::Send, "send"),
        (Shape::SwitchedOut, "switched-out"),
        (Shape::SwitchedIn, "switched-in"),
        (Shape::InterruptIn, "interrupt-in"),
        (Shape::InterruptOut, "interrupt-out"),
        (Shape::SyscallIn, "syscall-in"),
        (Shape::SyscallOut, "syscall-out"),
        (Shape::SyscallReturned, "syscall-returned"),
        (Shape::Signal, "signal"),
        (Shape::Dropped, "dropped"),
        (Shape::Task, "task"),
        (Shape::TookOver, "took-over"),
        (Shape::WokenBy, "woken-by"),
        (Shape::Instant, "instant"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(shape, _)| *shape == self).map_or("", |(_, name)| name)
    }

    /// A shape that a later version added is an instant to this one.
    pub(crate) fn from_name(name: &str) -> Shape {
        let known = Self::NAMES.iter().find(|(_, known)| *known == name);
        known.map_or(Shape::Instant, |(shape, _)| *shape)
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Its number.
    pub id: PointId,
    /// How its records are to be read.
    pub shape: Shape,
    /// What the analysis calls it.
    pub name: String,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id.0, self.shape.name(), self.name)
    }
}

/// The points of this program.
pub mod points {
    use super::{Point, PointId, Shape};

    macro_rules! points {
        ($($(#[doc = $doc:literal])+ $id:ident = $number:literal $shape:ident $name:literal,)+) => {
            $($(#[doc = $doc])+ pub const $id: PointId = PointId($number);)+

            /// The table that goes into headers.
            pub fn all() -> Vec<Point> {
                let fixed = [$((PointId($number), Shape::$shape, $name)),+];
                let dropped = (0..).zip(DROPPED).map(|(code, &name)| (drop(code), Shape::Dropped, name));
                let rows = fixed.into_iter().chain(dropped);
                rows.map(|(id, shape, name)| Point { id, shape, name: name.to_owned() }).collect()
            }
        };
    }

    /// Reasons for which packets are lost, by their code; names and codes are those of the core's table of drop
    /// reasons.
    pub const DROPPED: &[&str] = &[
        "rx_queue_full",
        "rx_no_frame",
        "rx_error",
        "rx_too_long",
        "record_ring_full",
        "tx_refused",
        "tx_too_long",
        "tx_no_port",
        "link_loss",
        "link_queue_full",
        "sampled_out",
        "filtered_out",
        "rate_limited",
        "sink_full",
        "flow_table_full",
        "link_type_unknown",
        "malformed",
        "bad_checksum",
        "not_for_us",
        "no_listener",
        "fragment",
        "no_neighbour",
        "no_route",
        "conn_table_full",
        "ttl_expired",
        "tx_socket_full",
        "tx_interface_full",
        "pass_refused",
    ];

    /// The point of drops for the reason with this code.
    pub fn drop(code: u8) -> PointId {
        PointId(128 + u16::from(code))
    }

    points! {
        /// The time starts anew.
        TIME = 1 Time "tracer.time",
        /// Records are missing here.
        LOST = 2 Lost "tracer.lost",
        /// Receive calls that found nothing.
        EMPTY_RUN = 3 EmptyRun "lane.receive.empty",
        /// A receive call that found something.
        RECEIVE = 4 Receive "lane.receive",
        /// What the lane sent and was refused since the last tick, by its own counters.
        SEND = 5 Send "lane.sent",
        /// What a round of a lane of datagrams or streams found.
        RECEIVED_WITHIN = 6 ReceivedWithin "lane.served",
        /// The lane acts on verdicts; the argument is how many frames the burst had.
        SETTLE = 16 Function "lane.settle",
        /// The worker blocks until something may be there.
        WAIT = 17 Function "lane.wait",
        /// A lane of datagrams or streams does its round; the app's calls are inside.
        SERVE = 18 Function "lane.serve",
        /// Free frames are borrowed to be filled; the argument is how many the lane provided.
        LEND = 19 Function "lane.lend",
        /// The app looks at a burst; the argument is how many frames it has.
        APP_FRAMES = 32 Function "app.frames",
        /// The app fills a burst.
        APP_FILL = 33 Function "app.fill",
        /// The app looks at a batch of datagrams; the argument is how many entries it has.
        APP_DATAGRAMS = 34 Function "app.datagrams",
        /// The app looks at bytes of a connection; the argument is how many.
        APP_BYTES = 35 Function "app.bytes",
        /// The app ends its turn.
        APP_TURN_END = 36 Function "app.turn_end",
        /// Time passes for the app.
        APP_TICK = 37 Function "app.tick",
        /// The thread left the CPU.
        SWITCHED_OUT = 64 SwitchedOut "kernel.switched_out",
        /// The thread is on a CPU again.
        SWITCHED_IN = 65 SwitchedIn "kernel.switched_in",
        /// A device interrupt arrived.
        IRQ_IN = 66 InterruptIn "kernel.irq",
        /// A device interrupt is done.
        IRQ_OUT = 67 InterruptOut "kernel.irq.out",
        /// A softirq began; its number is its vector plus 65536, so that no device interrupt has it.
        SOFTIRQ_IN = 68 InterruptIn "kernel.softirq",
        /// A softirq is done.
        SOFTIRQ_OUT = 69 InterruptOut "kernel.softirq.out",
        /// A system call began.
        SYSCALL_IN = 70 SyscallIn "kernel.syscall",
        /// A system call ended.
        SYSCALL_OUT = 71 SyscallReturned "kernel.syscall.out",
        /// A NAPI poll ended; the value is how many frames it took.
        NAPI_POLL = 72 Instant "kernel.napi_poll",
        /// A signal was delivered.
        SIGNAL = 73 Signal "kernel.signal",
        /// A task, by the first 8 bytes of its name.
        TASK = 76 Task "kernel.task",
        /// The task took the CPU from the thread, or had it until it is the thread's; the value is the other 8 bytes of
        /// its name.
        TOOK_OVER = 77 TookOver "kernel.took_over",
        /// The task made the thread runnable; the value is the other 8 bytes of its name.
        WOKEN_BY = 78 WokenBy "kernel.woken_by",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_names_are_given_once() {
        let all = points::all();
        let numbers: BTreeSet<_> = all.iter().map(|point| point.id).collect();
        let names: BTreeSet<_> = all.iter().map(|point| &point.name).collect();
        assert_eq!((numbers.len(), names.len()), (all.len(), all.len()));
    }

    #[test]
    fn every_shape_has_a_name_of_its_own() {
        for (shape, name) in Shape::NAMES {
            assert_eq!((Shape::from_name(name), shape.name()), (shape, name));
        }
        assert_eq!(Shape::from_name("of tomorrow"), Shape::Instant);
    }
}
