//! Transmitting: bounce, edit, send on, fan out, lend; what does not leave is counted.

use super::{
    Rig,
    bench::{Bench, assert_same_frames, ok},
};
use crate::{SOURCE_MAC, UdpFrame, skip, udp_frames};
use laneway_core::{DropReason, FrameLane, HEADROOM_BYTES_MIN, Lane, PortId, PortMask, Verdict};

const PORT: PortId = PortId(0);
const OTHER: PortId = PortId(1);
/// A port that no rig opens.
const NOWHERE: PortId = PortId(PortMask::PORTS_MAX as u32 - 1);
/// What edited frames say they are: IEEE 802's "local experimental", so that no stack or offload on
/// the way looks into them.
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

/// True (and a printed reason) when the lane lacks what a behaviour needs.
fn lacks<R: Rig>(rig: &R, ports: usize) -> bool {
    let is = rig.properties();
    if !is.transmits {
        skip("the lane cannot transmit");
    } else if is.ports_max < ports {
        skip(format!("the rig opens fewer than {ports} ports"));
    }
    !is.transmits || is.ports_max < ports
}

/// `Tx` sends the same bytes in the same order, once.
pub fn a_bounced_frame_leaves_byte_for_byte<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let longest = rig.properties().frame_bytes_max;
    let mut sent = udp_frames(0, 12, 64);
    sent.extend(udp_frames(12, 4, longest));
    let mut bench = Bench::open(rig, "", 1, &sent);
    let arrived = bench.pump(PORT, &sent, |burst, i, _| burst.set_verdict(i, Verdict::Tx));
    assert_eq!(arrived, sent.len());
    ok(bench.lane.settle(PORT)); // must not send anything again
    assert_same_frames(&bench.collect(PORT, sent.len()), &sent);
    bench.assert_silent(PORT);
}

/// Growing and shrinking at both ends and overwriting decide what leaves.
pub fn edits_in_place_are_what_leaves<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let sent = udp_frames(0, 24, 256);
    let mut bench = Bench::open(rig, "", 1, &sent);
    let mut edited = Vec::new();
    bench.pump(PORT, &sent, |burst, i, sequence| {
        let mut frame = burst.frame_mut(i);
        let fits = match sequence % 4 {
            0 => frame.grow_front(HEADROOM_BYTES_MIN),
            1 => frame.shrink_front(37),
            2 => frame.set_len(100),
            _ => frame.grow_front(4) && frame.set_len(300),
        };
        assert!(fits, "edit {} needs the room the contract promises", sequence % 4);
        let bytes = frame.bytes_mut();
        bytes[..6].fill(0x02);
        bytes[6..12].copy_from_slice(&SOURCE_MAC);
        bytes[12..14].copy_from_slice(&EXPERIMENTAL);
        if let Some(uncovered) = bytes.get_mut(260..) {
            uncovered.fill(0xa5);
        }
        edited.push(bytes.to_vec());
        frame.set_verdict(Verdict::Tx);
    });
    assert_eq!(edited.len(), sent.len());
    assert_same_frames(&bench.collect(PORT, edited.len()), &edited);
}

/// `Drop` and `Pass` send nothing, and do not disturb what their neighbours in the burst send.
pub fn only_frames_with_a_verdict_to_leave_leave<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let sent = udp_frames(0, 30, 64);
    let mut bench = Bench::open(rig, "", 1, &sent);
    bench.pump(PORT, &sent, |burst, i, sequence| {
        let verdicts = [Verdict::Drop, Verdict::Pass, Verdict::Tx];
        burst.set_verdict(i, verdicts[sequence as usize % 3]);
    });
    let wanted: Vec<_> = sent.into_iter().skip(2).step_by(3).collect();
    assert_same_frames(&bench.collect(PORT, wanted.len()), &wanted);
    bench.assert_silent(PORT);
}

/// `TxTo` sends by the named port and by no other, and counts there.
pub fn a_frame_leaves_by_the_port_it_is_sent_to<R: Rig>(rig: &mut R) {
    if lacks(rig, 2) {
        return;
    }
    let sent = udp_frames(0, 20, 200);
    let mut bench = Bench::open(rig, "", 2, &sent);
    let arrived = bench.pump(PORT, &sent, |burst, i, _| {
        burst.set_verdict(i, Verdict::TxTo(OTHER));
    });
    assert_eq!(arrived, sent.len());
    assert_same_frames(&bench.collect(OTHER, sent.len()), &sent);
    bench.assert_silent(PORT);
    assert_eq!(bench.lane.counters(OTHER).tx_frames, sent.len() as u64);
    assert_eq!(bench.lane.counters(PORT).tx_frames, 0);
}

/// `Fanout` sends the same bytes by every port of the set, the ingress included if it is in it.
pub fn a_fanned_out_frame_leaves_by_every_port<R: Rig>(rig: &mut R) {
    if lacks(rig, 2) {
        return;
    }
    let ports = rig.properties().ports_max.min(3);
    let sent = udp_frames(0, 16, 150);
    let mut bench = Bench::open(rig, "", ports, &sent);
    let everywhere = PortMask((1 << ports) - 1);
    bench.pump(PORT, &sent, |burst, i, sequence| {
        // Every other frame floods like a bridge, so that both forms share a burst.
        let set = if sequence % 2 == 0 { everywhere } else { PortMask::all_but(ports, PORT) };
        burst.set_verdict(i, Verdict::Fanout(set));
    });
    let back: Vec<_> = sent.iter().step_by(2).cloned().collect();
    assert_same_frames(&bench.collect(PORT, back.len()), &back);
    for port in (1..ports).map(|p| PortId(p as u32)) {
        assert_same_frames(&bench.collect(port, sent.len()), &sent);
    }
}

/// A verdict that names a missing port loses that frame by name and no other.
pub fn a_port_that_is_not_there_is_counted<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let sent = udp_frames(0, 10, 64);
    let mut bench = Bench::open(rig, "", 1, &sent);
    let arrived = bench.pump(PORT, &sent, |burst, i, sequence| {
        burst.set_verdict(i, if sequence < 4 { Verdict::TxTo(NOWHERE) } else { Verdict::Tx });
    });
    assert_eq!(arrived, sent.len());
    assert_eq!(bench.lane.counters(PORT).drops(DropReason::TxNoPort), 4);
    assert_same_frames(&bench.collect(PORT, 6), &sent[4..]);
}

/// A frame beyond the link's MTU is counted, returned, and no reason to stop.
pub fn a_frame_longer_than_the_link_is_counted<R: Rig>(rig: &mut R) {
    /// Clear of the four bytes that veth grants for a VLAN tag.
    const EXCESS_BYTES: usize = 100;
    if lacks(rig, 1) {
        return;
    }
    let sent = udp_frames(0, 6, 64);
    let mut bench = Bench::open(rig, "", 1, &sent);
    let too_long = bench.is.frame_bytes_max + EXCESS_BYTES;
    // In a ring the room behind a frame depends on how many frames arrived after it before its block was
    // full or its time was over, so of the first two one may have it and the other not.
    let mut stretched = Vec::new();
    bench.pump(PORT, &sent, |burst, i, sequence| {
        if sequence < 2 && burst.frame_mut(i).set_len(too_long) {
            stretched.push(sequence as usize);
        }
        burst.set_verdict(i, Verdict::Tx);
    });
    if stretched.is_empty() {
        return skip(format!("the lane's buffers end before {too_long} bytes"));
    }
    let short = sent.iter().enumerate().filter(|(i, _)| !stretched.contains(i));
    let short: Vec<_> = short.map(|(_, frame)| frame.clone()).collect();
    assert_same_frames(&bench.collect(PORT, short.len()), &short);
    bench.assert_silent(PORT);
    let counters = bench.lane.counters(PORT);
    assert_eq!(counters.drops(DropReason::TxTooLong), stretched.len() as u64);
    assert_eq!(counters.tx_frames, short.len() as u64);
}

/// A gathered frame is its head and the part of a received frame behind it, wherever the ends of that frame move and
/// whatever its verdict. Gathered frames leave behind the others of the burst, in order, and nothing is copied.
pub fn gathered_frames_leave_behind_their_heads<R: Rig>(rig: &mut R) {
    /// More than a lane has on its way at a time, from bursts of any length.
    const PER_FRAME: usize = 40;
    /// Where the part begins; odd, as headers end anywhere.
    const PART_AT: usize = 43;
    if lacks(rig, 1) {
        return;
    }
    let ports = rig.properties().ports_max.min(2);
    let last = PortId(ports as u32 - 1);
    let sent = udp_frames(0, 8, 300);
    let mut bench = Bench::open(rig, "", ports, &sent);
    let copies = bench.lane.counters(last).copies;
    let (mut gathers, mut heads) = (true, 0u64);
    for one in &sent {
        let (mut in_place, mut gathered) = (Vec::new(), Vec::new());
        bench.pump(PORT, std::slice::from_ref(one), |burst, i, sequence| {
            gathers = burst.gather_space() > 0;
            if !gathers {
                assert!(burst.gather(i, 0..1, last, 14).is_none(), "no space, no frame");
                return;
            }
            for copy in 0..PER_FRAME {
                let part = PART_AT..if copy % 2 == 0 { one.len() } else { one.len() - 7 };
                let mut head = UdpFrame { sequence: heads, ..UdpFrame::default() }.build();
                heads += 1;
                head.truncate(14 + copy);
                head[12..14].copy_from_slice(&EXPERIMENTAL);
                let room = burst.gather(i, part.clone(), last, head.len()).expect("there is space");
                assert!(room.iter().all(|byte| *byte == 0), "a head begins empty");
                room.copy_from_slice(&head);
                head.extend_from_slice(&one[part]);
                gathered.push(head);
            }
            // Editing in front of the part and sending the frame as well does not show behind the heads.
            if sequence % 2 == 0 {
                let mut frame = burst.frame_mut(i);
                assert!(frame.shrink_front(PART_AT) && frame.grow_front(PART_AT + 6));
                let mut head = UdpFrame::default().build();
                head.truncate(14);
                head[12..14].copy_from_slice(&EXPERIMENTAL);
                frame.bytes_mut()[..14].copy_from_slice(&head);
                in_place.push(frame.bytes().to_vec());
                frame.set_verdict(Verdict::TxTo(last));
            }
        });
        if !gathers {
            return skip("the lane gathers no frames");
        }
        in_place.append(&mut gathered);
        assert_same_frames(&bench.collect(last, in_place.len()), &in_place);
    }
    bench.assert_silent(last);
    let counters = bench.lane.counters(last);
    assert_eq!(counters.tx_frames, heads + 4);
    assert_eq!((counters.copies - copies, counters.lost()), (0, 0), "{counters:?}");
}

/// A gathered frame that cannot go is counted by why: a port that is not there, a frame beyond the link's MTU.
pub fn a_gathered_frame_that_cannot_leave_is_counted<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let longest = rig.properties().frame_bytes_max;
    let sent = udp_frames(0, 4, longest);
    let mut bench = Bench::open(rig, "", 1, &sent);
    let mut wanted = Vec::new();
    let mut gathers = true;
    bench.pump(PORT, &sent, |burst, i, sequence| {
        gathers = burst.gather_space() > 0;
        if !gathers {
            return;
        }
        let whole = burst.frame(i).bytes.to_vec();
        // Clear of the four bytes that veth grants for a VLAN tag.
        for (to, head, bytes) in [(PORT, 64, whole.len()), (NOWHERE, 14, 100), (PORT, 14, 200)] {
            let room = burst.gather(i, 0..bytes, to, head).expect("there is space");
            room[..14].copy_from_slice(&whole[..14]);
            room[12..14].copy_from_slice(&EXPERIMENTAL);
            if bytes == 200 {
                wanted.push([&whole[..12], &EXPERIMENTAL, &whole[..bytes]].concat());
            }
        }
        assert_eq!(sequence + 1, wanted.len() as u64);
    });
    if !gathers {
        return skip("the lane gathers no frames");
    }
    assert_same_frames(&bench.collect(PORT, wanted.len()), &wanted);
    bench.assert_silent(PORT);
    let counters = bench.lane.counters(PORT);
    let drops = [DropReason::TxTooLong, DropReason::TxNoPort].map(|reason| counters.drops(reason));
    assert_eq!((counters.tx_frames, drops), (4, [4, 4]), "{counters:?}");
}

/// Borrowed frames are empty with room on both sides; those set to `Tx` leave, the others return
/// unsent.
pub fn borrowed_frames_are_sent_when_their_verdict_says_so<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let (knobs, buffers) = rig.properties().small_pool;
    let mut bench = Bench::open(rig, knobs, 1, &[]);
    let mut sequence = 0;
    // Of each round two frames return untouched and two filled but unsent: were either lost, the
    // pool would be empty halfway.
    for round in 0..buffers {
        let burst = ok(bench.lane.lend(PORT, 8));
        assert!(burst.len() <= 8, "{} frames borrowed, 8 asked for", burst.len());
        assert!(!burst.is_empty(), "nothing borrowed in round {round} with all buffers at rest");
        let mut filled = Vec::new();
        for i in 0..burst.len() {
            let mut frame = burst.frame_mut(i);
            assert!(frame.bytes().is_empty(), "a borrowed frame is empty");
            assert!(frame.headroom() >= HEADROOM_BYTES_MIN, "headroom {}", frame.headroom());
            if i < 2 {
                continue; // returns as the lane provided it
            }
            let bytes = if i % 2 == 0 { bench.is.frame_bytes_max } else { 90 };
            assert!(frame.set_len(bytes), "a borrowed frame has room for {bytes} bytes");
            let new = UdpFrame { sequence, bytes, ..UdpFrame::default() }.build();
            frame.bytes_mut().copy_from_slice(&new);
            if i % 3 != 2 {
                frame.set_verdict(Verdict::Tx);
                filled.push(new);
                sequence += 1;
            }
        }
        ok(bench.lane.settle(PORT));
        assert_same_frames(&bench.collect(PORT, filled.len()), &filled);
    }
    bench.assert_silent(PORT);
    assert_eq!(bench.lane.counters(PORT).tx_frames, sequence);
}

/// A request for more frames than there are buffers gives fewer frames or none. Buffers that are borrowed
/// again and again, and never sent, are available again.
pub fn lending_survives_a_shortage_of_buffers<R: Rig>(rig: &mut R) {
    if lacks(rig, 1) {
        return;
    }
    let (small, buffers) = rig.properties().small_pool;
    let mut bench = Bench::open(rig, small, 1, &[]);
    for round in 0..2 * buffers {
        let burst = ok(bench.lane.lend(PORT, usize::MAX));
        assert!(burst.len() <= burst.capacity());
        assert!(!burst.is_empty(), "nothing borrowed in round {round} with all buffers at rest");
        // Every other burst is left unsettled: the next call takes it back.
        if round % 2 == 0 {
            ok(bench.lane.settle(PORT));
        }
    }
    ok(bench.lane.settle(PORT));
    assert!(!ok(bench.lane.lend(PORT, 1)).is_empty(), "returned frames can be borrowed again");
    ok(bench.lane.settle(PORT));
}
