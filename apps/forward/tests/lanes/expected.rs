//! What each mode makes of a plain UDP frame, written down by hand and apart from the app.

use laneway_forward::{Config, Mode};
use laneway_testkit::{UdpFrame, udp_frames};

pub(crate) const OWN: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];
pub(crate) const PEERS: [[u8; 6]; 2] = [[2, 0, 0, 0, 2, 0], [2, 0, 0, 0, 2, 1]];
/// Of the router, for what is routed to a cable.
pub(crate) const HOSTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 3, 0], [2, 0, 0, 0, 3, 1]];

pub(crate) const MODES: [Mode; 5] =
    [Mode::Io, Mode::Mac, Mode::MacSwap, Mode::FiveTupleSwap, Mode::L3];

pub(crate) fn config(mode: Mode) -> Config {
    Config {
        mode,
        own: OWN.to_vec(),
        peers: PEERS.to_vec(),
        routes: vec![
            "198.18.0.0/24 port 0".parse().expect("a route"),
            "198.18.1.0/24 via 198.18.1.254 port 1".parse().expect("a route"),
        ],
        neighbours: vec![
            "198.18.0.1 02:00:00:00:03:00".parse().expect("a neighbour"),
            "198.18.1.254 02:00:00:00:03:01".parse().expect("a neighbour"),
        ],
        ..Config::default()
    }
}

/// Frames to send into each port: to the router, and to the other side of it.
pub(crate) fn frames(count: usize) -> [Vec<Vec<u8>>; 2] {
    let to = |port: usize| {
        let bytes = |sequence: usize| 64 + sequence * 13 % 1400;
        let hosts = [[198, 18, 0, 1], [198, 18, 1, 7]].map(Into::into);
        let frame = |sequence: usize| UdpFrame {
            destination_mac: OWN[port],
            source: hosts[port],
            destination: hosts[1 - port],
            sequence: sequence as u64,
            bytes: bytes(sequence),
            ..UdpFrame::default()
        };
        (0..count).map(|sequence| frame(sequence).build()).collect()
    };
    [to(0), to(1)]
}

/// What `frame` looks like when it leaves by port `egress`, the other one.
pub(crate) fn after(mode: Mode, egress: usize, frame: &[u8]) -> Vec<u8> {
    let part = |from: usize, to: usize| &frame[from..to];
    match mode {
        Mode::Mac => [&PEERS[egress], &OWN[egress], part(12, frame.len())].concat(),
        Mode::MacSwap => [part(6, 12), part(0, 6), part(12, frame.len())].concat(),
        Mode::FiveTupleSwap => [
            part(6, 12),
            part(0, 6),
            part(12, 26),
            part(30, 34),
            part(26, 30),
            part(36, 38),
            part(34, 36),
            part(38, frame.len()),
        ]
        .concat(),
        Mode::L3 => {
            let mut routed = [&HOSTS[egress], &OWN[egress], part(12, frame.len())].concat();
            routed[22] -= 1;
            // One less in the high byte of a word is 0x100 more in the sum that inverts it.
            let sum = u32::from(u16::from_be_bytes([routed[24], routed[25]])) + 0x100;
            let folded = (sum & 0xffff) + (sum >> 16);
            routed[24..26].copy_from_slice(&(folded as u16).to_be_bytes());
            routed
        }
        _ => frame.to_vec(),
    }
}

/// `count` frames to a destination port.
pub(crate) fn to_port(destination_port: u16, count: usize) -> Vec<Vec<u8>> {
    let frame = |sequence| UdpFrame { sequence, destination_port, ..UdpFrame::default() }.build();
    (0..count as u64).map(frame).collect()
}

#[test]
fn the_expected_frames_are_sound() {
    for frame in frames(40).into_iter().flatten().chain(udp_frames(0, 3, 100)) {
        for mode in MODES {
            let frame = after(mode, 1, &frame);
            assert_eq!(laneway_wire::checksum::of(&frame[14..34]), 0, "{mode:?}");
        }
    }
}
