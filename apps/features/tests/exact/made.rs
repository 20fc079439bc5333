//! Frames made by hand, which reach all that must be reached whatever captures are at hand: every status,
//! and enough flows and matches of every rule, in numbers that are known beforehand.

use crate::captures::{Capture, Frame};
use laneway_flow::Status;

const MS: u64 = 1_000_000;
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
/// Conversations of [`conversations`], of [`KINDS`] kinds in turn.
const CONVERSATIONS: u64 = 1500;
/// Those that go on after a silence beyond the idle timeout, and the silence.
const RESUMED: u64 = 200;
const SILENCE_NS: u64 = 130_000 * MS;
const KINDS: u64 = 5;
/// Frames of each kind; all kinds but one belong to a flow, and a resumed conversation is another flow.
pub(crate) const FRAMES_PER_KIND: usize = ((CONVERSATIONS + RESUMED) / KINDS) as usize;
pub(crate) const FLOWS: usize = FRAMES_PER_KIND * (KINDS as usize - 1);
/// Flows that the silence ends: all of those before it.
pub(crate) const FLOWS_ENDED_EARLY: usize = (CONVERSATIONS / KINDS * (KINDS - 1)) as usize;

fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &ether_type.to_be_bytes(), rest].concat()
}

fn four(ttl: u8, protocol: u8, rest: &[u8]) -> Vec<u8> {
    let total = (20 + rest.len() as u16).to_be_bytes();
    let head =
        [0x45, 0, total[0], total[1], 0, 7, 0, 0, ttl, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&head[..], rest].concat()
}

fn six(next: u8, rest: &[u8]) -> Vec<u8> {
    let payload = (rest.len() as u16).to_be_bytes();
    let head = [&[0x60, 0, 0, 0, payload[0], payload[1], next, 64][..], &[0x20; 32]].concat();
    [&head[..], rest].concat()
}

fn capture(name: &str, frames: impl Iterator<Item = (u64, Vec<u8>)>) -> Capture {
    let stamped = frames.map(|(ts_ns, bytes)| Frame { ts_ns, wire_len: bytes.len() as u32, bytes });
    Capture { name: name.to_owned(), frames: stamped.collect() }
}

/// [`statuses`], as a capture.
pub(crate) fn every_status() -> Capture {
    let frames = statuses().into_iter().zip(0..);
    capture("frames of every status", frames.map(|((_, bytes), i)| (BEGIN_NS + 1000 * i, bytes)))
}

/// Frames of every status, with it, and headers beyond the first page of a frame of many, which the kernel
/// keeps in fragments.
pub(crate) fn statuses() -> Vec<(Status, Vec<u8>)> {
    let mut syn = vec![0, 80, 4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0xa0, 2, 1, 0, 0, 0, 0, 0];
    syn.extend([1, 1, 2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 3, 3]);
    let with_shift = [&syn[..19 + 20], &[7][..]].concat();
    // `count` extension headers of 8 * (1 + length) bytes, then TCP.
    let extended = |count: usize, length: u8, last: &[u8]| {
        let header =
            |next: u8| [&[next, length][..], &vec![0; 6 + 8 * usize::from(length)]].concat();
        let mut rest: Vec<u8> = (1..count).flat_map(|_| header(60)).collect();
        rest.extend(header(6));
        rest.extend(last);
        ethernet(0x86dd, &six(60, &rest))
    };
    let good = four(64, 17, &[0, 53, 0, 54, 0, 8, 0, 0]);
    let mut fragment = good.clone();
    fragment[7] = 9;
    let three_tags = [&[0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0][..], &good].concat();
    let shifted = ethernet(0x0800, &four(64, 6, &with_shift));
    let long = [&shifted[..], &[0; 9000]].concat();
    // Lengths that the IP header does not state, or states beyond the frame; short layer-4 headers.
    let with_total = |total: u16, rest: &[u8]| {
        let mut packet = four(64, 6, rest);
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet
    };
    let mut first = with_total(28, &syn[..8]);
    first[6] = 0x20;
    let unstated = |next: u8, rest: &[u8]| {
        let mut packet = six(next, rest);
        packet[4..6].fill(0);
        packet
    };
    let jumbo = [&[6, 0, 0xc2, 4, 0, 0, 0, 48][..], &with_shift].concat();
    let tagged = [&[0, 1, 8, 0][..], &with_total(0, &with_shift)].concat();
    let long_unstated = with_total(0, &[&with_shift[..], &[0; 9000]].concat());
    vec![
        (Status::Ok, ethernet(0x0800, &good)),
        (Status::L2Truncated, ethernet(0x8100, &[0, 1])),
        (Status::L3Unknown, ethernet(0x0806, &ARP)),
        (Status::L3Unknown, ethernet(0x0026, &[0x42; 38])),
        (Status::L3Unknown, ethernet(0x88a8, &three_tags)),
        (Status::L3Truncated, ethernet(0x0800, &good[..10])),
        (Status::L3BadVersion, ethernet(0x86dd, &[&good[..], &[0; 20]].concat())),
        (Status::L3BadLength, ethernet(0x0800, &[&[0x44][..], &good[1..]].concat())),
        (Status::Fragment, ethernet(0x0800, &fragment)),
        (Status::L4Unknown, ethernet(0x0800, &four(64, 47, &[0; 8]))),
        (Status::L4Truncated, ethernet(0x0800, &good[..24])),
        (Status::L4BadLength, ethernet(0x0800, &four(64, 17, &[0; 7]))),
        (Status::Ok, shifted),
        (Status::Ok, extended(8, 0, &with_shift)),
        (Status::L3ExtLimit, extended(9, 0, &with_shift)),
        (Status::Ok, extended(2, 255, &with_shift)),
        (Status::Ok, extended(4, 255, &with_shift)),
        (Status::L4BadLength, extended(7, 255, &with_shift[..30])),
        (Status::Ok, long),
        (Status::Ok, ethernet(0x0800, &with_total(0, &with_shift))),
        (Status::Ok, ethernet(0x0800, &long_unstated)),
        (Status::L4BadLength, ethernet(0x0800, &with_total(0, &[]))),
        (Status::Ok, ethernet(0x0800, &with_total(60_000, &with_shift))),
        (Status::Ok, ethernet(0x8100, &tagged)),
        (Status::Ok, ethernet(0x86dd, &unstated(6, &with_shift))),
        (Status::Ok, ethernet(0x86dd, &unstated(0, &jumbo))),
        (Status::L4Unknown, ethernet(0x86dd, &unstated(59, &[0; 6]))),
        (Status::L4BadLength, ethernet(0x86dd, &unstated(17, &[]))),
        (Status::L4BadLength, ethernet(0x0800, &first)),
        (Status::L4Truncated, ethernet(0x0800, &with_total(60, &syn[..8]))),
        (Status::L4Truncated, ethernet(0x0800, &with_total(60, &syn[..3]))),
        (Status::L4BadLength, ethernet(0x0800, &with_total(23, &syn[..8]))),
    ]
}

/// A request for 10.0.0.2 by 10.0.0.1.
const ARP: [u8; 28] =
    [0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

/// Conversations of one frame each, 1 ms apart; some go on after a silence.
pub(crate) fn conversations() -> Capture {
    let resumed = (0..RESUMED).map(|i| (BEGIN_NS + SILENCE_NS + i * MS, first_of(i)));
    let frames = (0..CONVERSATIONS).map(|i| (BEGIN_NS + i * MS, first_of(i))).chain(resumed);
    capture("conversations", frames)
}

/// DNS, TCP to port 80 with a time to live of 1 to 63, UDP over IPv6, tagged UDP, ARP.
fn first_of(conversation: u64) -> Vec<u8> {
    let [high, low] = (1024 + conversation as u16).to_be_bytes();
    let udp = |port: u8| [high, low, 0, port, 0, 8, 0, 0];
    match conversation % KINDS {
        0 => ethernet(0x0800, &four(64, 17, &udp(53))),
        1 => {
            let syn = [high, low, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0];
            ethernet(0x0800, &four(1 + (conversation % 63) as u8, 6, &syn))
        }
        2 => ethernet(0x86dd, &six(17, &udp(123))),
        3 => ethernet(0x8100, &[&[0, 5, 8, 0][..], &four(64, 17, &udp(123))].concat()),
        _ => ethernet(0x0806, &ARP),
    }
}
