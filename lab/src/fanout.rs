//! Fan-out: what is sent to multicast groups, and where copies of it are to come out.
//!
//! ```text
//!   datagram n ─▶ group (n / run) % groups, UDP port 7000, by the first cable
//!              ─▶ output o: cable o % cables + 1, the same group, UDP port 7000 + o / cables
//! ```
//!
//! Every group has the same outputs. The first on each cable has the group's own port, so where there are as many
//! cables as outputs nothing is rewritten, and the kernel's multicast routing can do it as well.

use crate::addresses::{SUT, SUT_SECOND, onward_interface};
use laneway_kinds::{self as kinds, RaceFacts, Traffic};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Most groups, outputs of each, and cables on the way out.
const GROUPS_MAX: u16 = 1_000;
const OUTPUTS_MAX: u16 = 256;
const CABLES_MAX: u8 = 8;
const LIMIT_MBIT_MAX: u32 = 10_000;
/// The first group; the others follow.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 0, 1);
/// UDP port of the groups, and of the first output on each cable.
const PORT: u16 = 7_000;

/// How many of what, in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fanout {
    /// Multicast groups that are sent to, in turn.
    #[serde(default = "one_group")]
    pub groups: u16,
    /// Outputs of each.
    pub outputs: u16,
    /// Cables that these lie on; the rest are UDP ports of the same.
    #[serde(default = "one_cable")]
    pub cables: u8,
    /// What the first of these carries at most, Mbit/s: the arm's interface has a token bucket (tbf), in front of which
    /// 0.2 s of it may wait; an arm that is `unlimited` has none. Latency is then that of the other cables, of every
    /// arm alike. None: as much as the CPU does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_mbit: Option<u32>,
    /// As what copies come out.
    #[serde(default)]
    pub far_end: FarEnd,
}

/// As what copies come out of the cables, and are counted there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FarEnd {
    /// As a receiver sees them: a train that a sender's kernel made of one send (UDP_SEGMENT) arrives uncut, as it
    /// leaves to a NIC that segments, and checksums are left to the device. Not on a cable that is limited: the queue
    /// in front of it counts what it drops by packet.
    #[default]
    Trains,
    /// Each as a frame of its own: trains are cut in software on the sender's CPU, and so are checksums computed.
    Frames,
}

impl FarEnd {
    /// What counts copies there.
    pub(crate) fn program(self) -> &'static str {
        match self {
            FarEnd::Trains => "a program behind the driver (tc ingress)",
            FarEnd::Frames => "an XDP program",
        }
    }

    /// What a report says of it.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            FarEnd::Trains => {
                "they are counted as a receiver sees them: trains arrive uncut, as through a NIC that segments (but by a \
                 limited cable)"
            }
            FarEnd::Frames => {
                "each is counted as a frame of its own: trains are cut in software on the arm's CPU"
            }
        }
    }
}

fn one_group() -> u16 {
    1
}

fn one_cable() -> u8 {
    1
}

/// What a value must be: its name, the value, and a hint.
type Objection = (&'static str, String, String);

impl Fanout {
    /// Whether there are as many as there may be.
    ///
    /// # Errors
    /// Of what there are not.
    pub(crate) fn check(&self) -> Result<(), Objection> {
        let Fanout { groups, outputs, cables, limit_mbit, far_end: _ } = *self;
        let bounds = [
            ("groups", groups, GROUPS_MAX),
            ("outputs", outputs, OUTPUTS_MAX),
            ("cables", cables.into(), CABLES_MAX.into()),
        ];
        for (what, is, most) in bounds {
            if !(1..=most).contains(&is) {
                return Err((what, is.to_string(), format!("1 to {most}")));
            }
        }
        if let Some(mbit) = limit_mbit.filter(|mbit| !(1..=LIMIT_MBIT_MAX).contains(mbit)) {
            return Err(("limit_mbit", mbit.to_string(), format!("1 to {LIMIT_MBIT_MAX}")));
        }
        if u16::from(cables) > outputs {
            let hint = format!("at most one for each of {outputs} outputs");
            return Err(("cables", cables.to_string(), hint));
        }
        Ok(())
    }

    /// Whether an output is an interface, and copies stay what they are.
    pub(crate) fn is_over_interfaces(&self) -> bool {
        self.outputs == u16::from(self.cables)
    }

    /// Outputs on a cable, 0 being the first on the way out.
    pub(crate) fn outputs_of(&self, cable: u8) -> u16 {
        let (outputs, cables, cable) = (self.outputs, u16::from(self.cables), u16::from(cable));
        outputs / cables + u16::from(cable < outputs % cables)
    }

    /// Whether the latency of this cable's copies is reported: not where it is limited and others are not.
    pub(crate) fn is_timed(&self, cable: u8) -> bool {
        cable > 0 || self.cables == 1 || self.limit_mbit.is_none()
    }

    /// Whether trains leave by this cable uncut.
    pub(crate) fn has_trains(&self, cable: u8) -> bool {
        self.far_end == FarEnd::Trains && (cable > 0 || self.limit_mbit.is_none())
    }

    /// A race that is to do this.
    pub(crate) fn raced(&self, race: RaceFacts) -> RaceFacts {
        RaceFacts { ports: 1 + usize::from(self.cables), ..race.under(Traffic::Fanout) }
    }

    /// Where the groups are.
    pub(crate) fn groups(&self) -> impl Iterator<Item = SocketAddrV4> + use<> {
        let at = |group| SocketAddrV4::new(Ipv4Addr::from_bits(GROUP.to_bits() + group), PORT);
        (0..u32::from(self.groups)).map(at)
    }

    /// The first of them.
    pub(crate) fn first_group(&self) -> SocketAddrV4 {
        SocketAddrV4::new(GROUP, PORT)
    }

    /// The outputs, in order.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = Output> + use<> {
        let cables = u16::from(self.cables);
        (0..self.outputs).map(move |output| Output {
            cable: (output % cables) as u8,
            port: PORT + output / cables,
        })
    }
}

/// An output of every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// Its cable, 0 being the first on the way out.
    pub(crate) cable: u8,
    /// Its UDP port.
    pub(crate) port: u16,
}

impl Output {
    /// The arm's interface.
    pub(crate) fn interface(&self) -> &'static str {
        onward_interface(self.cable)
    }

    /// The arm's address on it.
    pub(crate) fn source(&self) -> Ipv4Addr {
        onward_address(self.cable)
    }
}

/// The arm's address on a cable on the way out.
pub(crate) fn onward_address(cable: u8) -> Ipv4Addr {
    let [a, b, c, d] = SUT_SECOND.ip().octets();
    Ipv4Addr::new(a, b + cable, c, d)
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FanoutPlan {
    /// Where to, and where it is to come out.
    pub(crate) fanout: Fanout,
    /// Payload of every datagram, bytes.
    pub(crate) payload_bytes: u16,
    /// Datagrams to a group before the next one's turn: a burst is one group's.
    pub(crate) run: u32,
    /// From where.
    pub(crate) source: SocketAddrV4,
}

/// Bytes of a payload that are a number and its complement, and zeros to the first word behind them.
pub(crate) const FILLED_FROM: usize = 16;
/// Golden section of 2^64: multiples of it have no pattern.
const FILLER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A payload without its number. Words behind it are what their place says, so that a copy whose bytes were moved or
/// spoilt is known; `copies.bpf.c` computes the same.
pub(crate) fn filler(payload_bytes: u16) -> Vec<u8> {
    let mut payload = vec![0; payload_bytes.into()];
    let words = payload.get_mut(FILLED_FROM..).unwrap_or_default().chunks_exact_mut(8);
    for (word, at) in words.zip(1u64..) {
        word.copy_from_slice(&at.wrapping_mul(FILLER).to_ne_bytes());
    }
    payload
}

/// What an arm gets of it, borrowed by [`kinds::Fanout`].
pub(crate) struct ArmFanout {
    groups: Vec<SocketAddrV4>,
    outputs: Vec<kinds::FanoutOutput<'static>>,
}

impl ArmFanout {
    pub(crate) fn new(fanout: &Fanout) -> ArmFanout {
        let output = |output: Output| kinds::FanoutOutput {
            interface: output.interface(),
            source: output.source(),
            port: output.port,
        };
        ArmFanout {
            groups: fanout.groups().collect(),
            outputs: fanout.outputs().map(output).collect(),
        }
    }

    /// For datagrams that come in by `input`.
    pub(crate) fn by<'a>(&'a self, input: &'a str) -> kinds::Fanout<'a> {
        kinds::Fanout { input, address: *SUT.ip(), groups: &self.groups, outputs: &self.outputs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Fanout =
        Fanout { groups: 1, outputs: 1, cables: 1, limit_mbit: None, far_end: FarEnd::Trains };

    #[test]
    fn outputs_are_dealt_to_cables_and_differ() {
        for (outputs, cables) in [(1, 1), (8, 1), (8, 8), (50, 8), (256, 3)] {
            let fanout = Fanout { groups: 2, outputs, cables, ..PLAIN };
            fanout.check().unwrap();
            let all: Vec<Output> = fanout.outputs().collect();
            assert!(all.iter().enumerate().all(|(at, output)| !all[..at].contains(output)));
            for cable in 0..cables {
                let of = all.iter().filter(|output| output.cable == cable).count();
                assert_eq!(of, usize::from(fanout.outputs_of(cable)), "{fanout:?}, cable {cable}");
            }
            let stays = all.iter().all(|output| output.port == PORT);
            assert_eq!(stays, fanout.is_over_interfaces(), "{fanout:?}");
        }
        assert_eq!(Output { cable: 7, port: PORT }.source(), Ipv4Addr::new(10, 85, 0, 2));
        assert_eq!(Output { cable: 7, port: PORT }.interface(), "sut8");
    }

    #[test]
    fn a_limited_cable_has_no_say_in_the_latency_of_the_others() {
        let fanout = Fanout { outputs: 8, cables: 8, ..PLAIN };
        assert!(fanout.is_timed(0) && fanout.is_timed(7));
        let limited = Fanout { limit_mbit: Some(5), ..fanout };
        assert!(!limited.is_timed(0) && limited.is_timed(1));
        // There is no other.
        assert!(Fanout { cables: 1, ..limited }.is_timed(0));
    }

    #[test]
    fn trains_leave_uncut_but_by_a_cable_whose_queue_counts_packets() {
        let fanout = Fanout { outputs: 8, cables: 8, ..PLAIN };
        assert!(fanout.has_trains(0) && fanout.has_trains(7));
        let limited = Fanout { limit_mbit: Some(5), ..fanout };
        assert!(!limited.has_trains(0) && limited.has_trains(1));
        assert!(!Fanout { far_end: FarEnd::Frames, ..fanout }.has_trains(1));
        let text = "groups = 1\noutputs = 8\nfar_end = \"frames\"";
        let read: Fanout = toml::from_str(text).unwrap();
        assert_eq!((read.far_end, read.cables), (FarEnd::Frames, 1));
        assert_eq!(toml::from_str::<Fanout>("outputs = 8").unwrap().far_end, FarEnd::Trains);
        assert!(toml::from_str::<Fanout>("outputs = 8\nfar_end = \"wagons\"").is_err());
    }

    #[test]
    fn too_many_and_too_few_are_refused_by_name() {
        let good = Fanout { groups: 1_000, outputs: 256, cables: 8, ..PLAIN };
        good.check().unwrap();
        for (bad, what) in [
            (Fanout { groups: 0, ..good }, "groups"),
            (Fanout { groups: 1_001, ..good }, "groups"),
            (Fanout { outputs: 257, ..good }, "outputs"),
            (Fanout { cables: 9, ..good }, "cables"),
            (Fanout { limit_mbit: Some(0), ..good }, "limit_mbit"),
            (Fanout { outputs: 2, cables: 3, ..good }, "cables"),
        ] {
            assert_eq!(bad.check().unwrap_err().0, what, "{bad:?}");
        }
        let last = good.groups().last().unwrap();
        assert_eq!(last, SocketAddrV4::new([239, 77, 3, 232].into(), PORT));
    }
}
