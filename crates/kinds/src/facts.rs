//! Facts about a lane that code reads: constants, so that what only describes a lane opens nothing.

use laneway_confine::{Calls, Capability};
use laneway_core::ClockDomain;
use laneway_spec::LaneSpec;
use std::fmt;

/// What a lane hands to an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Shape {
    /// Ethernet frames.
    Frames = 0,
    /// Datagrams.
    Datagrams = 1,
    /// Byte streams of connections.
    Streams = 2,
    /// What the app's half in the kernel reports; the decision is the kernel half's.
    Kernel = 3,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 4] = [Shape::Frames, Shape::Datagrams, Shape::Streams, Shape::Kernel];

    /// The noun of a sentence: "it carries no frames".
    pub fn name(self) -> &'static str {
        match self {
            Shape::Frames => "frames",
            Shape::Datagrams => "datagrams",
            Shape::Streams => "streams",
            Shape::Kernel => "programs in the kernel",
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shapes(u8);

impl Shapes {
    /// No shape.
    pub const NONE: Shapes = Shapes(0);
    /// Frames alone.
    pub const FRAMES: Shapes = Shapes(1 << Shape::Frames as u8);
    /// Datagrams alone.
    pub const DATAGRAMS: Shapes = Shapes(1 << Shape::Datagrams as u8);
    /// Streams alone.
    pub const STREAMS: Shapes = Shapes(1 << Shape::Streams as u8);
    /// Kernel halves alone.
    pub const KERNEL: Shapes = Shapes(1 << Shape::Kernel as u8);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Shapes) -> Shapes {
        Shapes(self.0 | other.0)
    }

    /// This set where `is_so`, and none elsewhere.
    #[must_use]
    pub const fn only_if(self, is_so: bool) -> Shapes {
        if is_so { self } else { Shapes::NONE }
    }

    /// True when `shape` is in the set.
    pub const fn has(self, shape: Shape) -> bool {
        self.0 & (1 << shape as u8) != 0
    }

    /// The shapes of the set.
    pub fn iter(self) -> impl Iterator<Item = Shape> {
        Shape::ALL.into_iter().filter(move |&shape| self.has(shape))
    }
}

/// What a machine must offer so that a mode can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing that a machine may lack: a file, a simulated link, the loopback address.
    Nothing,
    /// A name in the network namespace, which another program may have taken: tried in a namespace of its own where
    /// there is one.
    Name,
    /// Leave to create an interface.
    OwnInterface,
    /// An interface with a cable.
    Interface,
}

/// A mode of a lane that `laneway lanes` tries on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The lane spec.
    pub spec: &'static str,
    /// The shape that shows whether the machine has it.
    pub shape: Shape,
    /// What it is tried on.
    pub needs: Needs,
}

impl Mode {
    /// A row of a lane's modes.
    pub const fn new(spec: &'static str, shape: Shape, needs: Needs) -> Mode {
        Mode { spec, shape, needs }
    }
}

/// What spreads received work over several workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The kernel or the device does, and [`LaneKind::share`](crate::LaneKind::share) sets it up.
    Spread,
    /// Nothing does: the reason, and what to do instead.
    Alone {
        /// Why a second worker cannot join.
        why: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
}

/// What the ports of a lane are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Ports are interfaces of the machine.
    Interfaces,
    /// Ports are interfaces or devices that the lane itself may create.
    Devices,
    /// Ports are files, read to their end.
    Files,
    /// Ports are simulated.
    Simulated,
}

/// What is at the other end of a lane's ports, for the program that lays wires to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// Interfaces that are there before the lane, each with a cable.
    Cables,
    /// TAP devices that the lane makes itself, under the names it is given: what they send is read by the holder of
    /// their descriptor.
    Taps,
    /// Shared memory with another process, which opens a lane of this spec at the other ends.
    SharedMemory {
        /// The spec at the other ends.
        other_ends: String,
    },
}

/// What an app that runs on a lane needs of the kernel beside what is open, so that ports may come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// These privileges, and these system calls beside those that every run makes.
    Only {
        /// The privileges.
        capabilities: &'static [Capability],
        /// The calls.
        calls: &'static [Calls],
    },
    /// All that the process was started with: why.
    All(&'static str),
}

impl Keeps {
    /// Nothing: what the lane does is no matter of privileges.
    pub const NOTHING: Keeps = Keeps::Only { capabilities: &[], calls: &[] };
}

/// Facts of a lane that hold with every knob.
#[derive(Clone, Copy, Debug)]
pub struct LaneFacts {
    /// Its name in specs and results.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Its README, whose tables of knobs are the reference's; empty where there is none.
    pub readme: &'static str,
    /// What its time stamps count from.
    pub clock: ClockDomain,
    /// The shapes that it carries by itself.
    pub carries: Shapes,
    /// Whether a stack in user space may carry datagrams and streams over its frames.
    pub takes_stack: bool,
    /// What its ports are.
    pub ports: Ports,
    /// The ports that a spec names by itself, in their order: devices that are no interfaces, so that a run on them
    /// asks for no `--on`. Empty where the user names them.
    pub named_ports: fn(&LaneSpec) -> Vec<String>,
    /// Whether it reports a frame only when the frame was sent, so that the last ones of a run are on their way.
    pub confirms_late: bool,
    /// Whether it learns of each frame that the queue behind its port refused, so that its own counters have it,
    /// too.
    pub counts_refusals: bool,
    /// What it costs to give a received frame back to the kernel, where dropping it costs nothing: words that end a
    /// sentence. None where passing costs no more than dropping.
    pub passing_costs: Option<&'static str>,
    /// Whether, and by what, several workers share it, by shape of the app.
    pub sharing: fn(Shape) -> Sharing,
    /// Modes that a machine can be asked for.
    pub modes: &'static [Mode],
    /// What a run keeps of its privileges once its lanes are open.
    pub keeps: fn(&LaneSpec) -> Keeps,
    /// Why it has a shape no more than it does, where the plain sentence would not help: reason and hint.
    pub why_not: Option<(&'static str, &'static str)>,
}

impl LaneFacts {
    /// True when an app of this shape runs on the lane, by itself or by way of a stack.
    pub fn runs(&self, shape: Shape) -> bool {
        let by_stack = self.takes_stack && matches!(shape, Shape::Datagrams | Shape::Streams);
        self.carries.has(shape) || by_stack
    }

    /// True when datagrams and streams are those of the kernel's own sockets, so that no interface is named.
    pub fn is_the_kernels(&self) -> bool {
        self.carries.has(Shape::Datagrams)
    }

    /// True when the kernel's own sockets are all there is: every frame received has an address of this machine.
    pub fn is_sockets_alone(&self) -> bool {
        self.is_the_kernels() && !self.carries.has(Shape::Frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let set = Shapes::FRAMES.and(Shapes::STREAMS);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Shape::Frames, Shape::Streams]);
        assert!(!set.has(Shape::Kernel) && Shapes::NONE.iter().next().is_none());
    }
}
