//! Frames whose checksums the kernel at the far end leaves to a device: every lane of frames shows them whole.

use crate::world::{FAR_V4, NEAR_V4, Open, World, open_afxdp, open_packet, open_uring};
use laneway_afxdp::AfXdp;
use laneway_core::{Cap, FrameLane, Lane, PortId};
use laneway_testkit::skip;
use laneway_wire::{ETHERNET_BYTES, Ipv4, UDP_BYTES, checksum};
use std::net::UdpSocket;
use std::time::Duration;

const PORT: u16 = 4_242;
const DATAGRAMS: usize = 20;
/// Waits of 10 ms after which what was sent should have been received.
const WAITS_MAX: usize = 1_000;

/// Whether the checksum of the datagram in a frame is right; `None` for a frame that has none of ours.
fn is_right(frame: &[u8]) -> Option<bool> {
    let ip = Ipv4::parse(frame.get(ETHERNET_BYTES..)?).ok()?;
    let start = ETHERNET_BYTES + ip.header_bytes;
    let datagram = frame.get(start..ETHERNET_BYTES + usize::from(ip.total_bytes))?;
    if datagram.get(2..4)? != PORT.to_be_bytes() || datagram.len() < UDP_BYTES {
        return None;
    }
    let addresses = frame.get(ETHERNET_BYTES + 12..ETHERNET_BYTES + 20)?;
    let pseudo = checksum::sum(addresses) + 17 + datagram.len() as u64;
    Some(datagram[6..8] != [0, 0] && checksum::fold(pseudo + checksum::sum(datagram)) == 0xffff)
}

fn shows_whole_checksums<L: FrameLane>(open: Open<L>, spec: &str) {
    let Some(world) = World::plain(&["10.77.0.2/24"]).map_err(skip).ok() else { return };
    let mut lane = world.open(open, &spec.parse().unwrap()).unwrap_or_else(|e| panic!("{e}"));
    shows_whole_checksums_of(&world, &mut lane, spec, |number| number);
}

/// Of datagrams whose payload is as long as `length` says of their numbers.
fn shows_whole_checksums_of<L: FrameLane>(
    world: &World,
    lane: &mut L,
    spec: &str,
    length: fn(usize) -> usize,
) {
    let known = ["neighbour", "replace", NEAR_V4, "lladdr", "02:4c:57:53:00:01", "dev", "far0"];
    assert!(world.far.command("ip").args(known).status().unwrap().success());
    let sent = world.far.enter(|| {
        let socket = UdpSocket::bind((FAR_V4, 0)).unwrap();
        for number in 0..DATAGRAMS {
            let payload: Vec<u8> = (0..length(number)).map(|at| (at * 7 + number) as u8).collect();
            socket.send_to(&payload, (NEAR_V4, PORT)).unwrap();
        }
    });
    sent.unwrap();
    let mut seen = Vec::new();
    for _ in 0..WAITS_MAX {
        if seen.len() == DATAGRAMS {
            break;
        }
        lane.wait(Duration::from_millis(10)).unwrap();
        let burst = lane.receive(PortId(0)).unwrap();
        let whole = |i| {
            [burst.frame(i).bytes].into_iter().chain(burst.tails(i)).collect::<Vec<_>>().concat()
        };
        seen.extend((0..burst.len()).filter_map(|i| is_right(&whole(i))));
    }
    assert_eq!(seen, [true; DATAGRAMS], "{spec}");
    lane.counters(PortId(0));
    let finished = lane.caps(PortId(0)).facts.get("checksums_finished").map(String::as_str);
    assert_eq!(finished, Some(DATAGRAMS.to_string().as_str()), "{spec}");
}

#[test]
fn lane_packet_finishes_what_was_left_to_a_device() {
    for spec in ["packet", "packet:mmsg=16", "packet:ring"] {
        shows_whole_checksums(open_packet, spec);
    }
}

#[test]
fn frames_of_lane_uring_are_finished_alike() {
    shows_whole_checksums(open_uring, "uring");
}

/// Nothing beside a frame says it there.
#[test]
fn lane_afxdp_finishes_what_a_neighbour_on_a_veth_left_to_a_device() {
    let open: Open<AfXdp> = |spec| Ok(open_afxdp(spec)?.finishing_checksums());
    // Frames of several buffers take Linux 6.6.
    for spec in ["afxdp", "afxdp:generic", "afxdp:sg,allow=multi-buffer"] {
        shows_whole_checksums(open, spec);
    }
}

/// Every second one is of an odd number of bytes, and so are the pieces that it lies in.
#[test]
fn lane_afxdp_finishes_a_checksum_over_several_buffers() {
    let open: Open<AfXdp> = |spec| Ok(open_afxdp(spec)?.finishing_checksums());
    let Some(world) = World::plain(&["10.77.0.2/24"]).map_err(skip).ok() else { return };
    let spec = "afxdp:sg,allow=multi-buffer";
    let mut lane = world.open(open, &spec.parse().unwrap()).unwrap_or_else(|e| panic!("{e}"));
    if !lane.caps(PortId(0)).obtained.has(Cap::MultiBuffer) {
        return skip("frames of several buffers take Linux 6.6");
    }
    world.stretch("9000");
    shows_whole_checksums_of(&world, &mut lane, spec, |number| 1_700 + number * 367);
}
