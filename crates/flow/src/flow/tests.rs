//! Flows as they add up, end and are put together.

use super::*;
use crate::RECORD_BYTES;
use proptest::prelude::*;

proptest! {
    #[test]
    fn flows_whose_fields_disagree_never_panic(
        mut a in proptest::collection::vec(any::<u8>(), FLOW_RECORD_BYTES),
        mut b in proptest::collection::vec(any::<u8>(), FLOW_RECORD_BYTES),
        mut record in proptest::collection::vec(any::<u8>(), RECORD_BYTES),
        codes in any::<[(u8, bool); 2]>(),
        now_ns in any::<u64>(),
    ) {
        for (bytes, (end, syn_side)) in [&mut a, &mut b].into_iter().zip(codes) {
            bytes[FLOW_KEY_BYTES + 890] = end % 6;
            bytes[FLOW_KEY_BYTES + 891] = u8::from(syn_side);
        }
        let read = |bytes: Vec<u8>| {
            let bytes: [u8; FLOW_RECORD_BYTES] = bytes.try_into().unwrap();
            let (key, flow) = Flow::from_record_bytes(&bytes).unwrap();
            prop_assert_eq!(Flow::from_record_bytes(&flow.to_record_bytes(&key)), Some((key, flow)));
            Ok(flow)
        };
        let (mut flow, other) = (read(a)?, read(b)?);
        record[95] = 0;
        let record: [u8; RECORD_BYTES] = record.try_into().unwrap();
        let record = Record::from_bytes(&record).expect("status 0 is one");
        flow.add(&record, now_ns ^ record.ts_ns, now_ns % 2 == 0);
        flow.merge(&other);
        flow.ended(&FlowLimits::default(), None, now_ns);
        flow.close(EndReason::Forced);
        flow.duration_ns();
        for stats in [flow.iat_stats(), flow.len_stats(), flow.payload_stats(),
            flow.active_stats(), flow.idle_stats(), flow.side[0].iat_stats(),
            flow.side[1].len_stats()]
        {
            prop_assert!(stats.1.is_none_or(|d| d >= 0.0));
        }
    }
}

fn frame(ts_ns: u64, payload: u16) -> Record {
    Record {
        ts_ns,
        frame_len: 54 + u32::from(payload),
        ip_len: 40 + payload,
        l3_hdr_len: 20,
        l4_hdr_len: 20,
        ttl: 64,
        proto: 6,
        tcp_flags: ACK,
        tcp_win: 100,
        has: Has::IPV4.with(Has::PORTS).with(Has::TCP),
        ..Record::default()
    }
}

/// Adds a record at the time it is stamped.
fn add(flow: &mut Flow, record: &Record, source_is_low: bool) -> Added {
    flow.add(record, record.ts_ns, source_is_low)
}

#[test]
fn a_frame_from_the_past_counts_at_its_predecessors_time() {
    let mut flow = Flow::default();
    add(&mut flow, &frame(1000, 0), true);
    assert_eq!(add(&mut flow, &frame(400, 0), true).gap_ns, 0);
    add(&mut flow, &frame(1100, 0), true);
    assert_eq!((flow.iat.sum, flow.iat.max, flow.last_ns), (100, 100, 1100));
    assert_eq!((flow.first_stamp_ns, flow.last_stamp_ns), (1000, 1100));
}

#[test]
fn a_flow_keeps_what_its_frames_were_stamped_wherever_the_clock_is() {
    let mut flow = Flow::default();
    flow.add(&frame(7000, 0), 50, true);
    flow.add(&frame(400, 0), 90, true);
    assert_eq!((flow.first_stamp_ns, flow.last_stamp_ns, flow.duration_ns()), (7000, 400, 40));
}

/// Linux sends a SYN again after 1 s.
#[test]
fn a_handshake_is_measured_from_the_syn_that_was_answered_last() {
    let mut flow = Flow::default();
    let flagged = |ts_ns, tcp_flags| Record { tcp_flags, ..frame(ts_ns, 0) };
    for (ts_ns, flags, from_low) in [
        (1000, SYN, true),
        (2000, SYN, true),
        (2030, SYN | ACK, false),
        (2040, SYN | ACK, false),
        (2050, ACK, true),
        (2060, SYN, true),
    ] {
        add(&mut flow, &flagged(ts_ns, flags), from_low);
    }
    assert_eq!((flow.syn_ns, flow.syn_ack_ns, flow.ack_ns), (2000, 2030, 2050));
    let mut both = Flow::default();
    add(&mut both, &flagged(1000, SYN), true);
    add(&mut both, &flagged(1500, SYN), false);
    assert_eq!((both.syn_ns, both.syn_side), (1000, Direction::Forward), "opened by both");
}

/// Receive-side scaling puts the two directions of a connection on different CPUs, each with its part of the flow.
#[test]
fn a_handshake_got_as_far_whichever_part_saw_which_of_its_frames() {
    let frames = [(SYN, true), (SYN | ACK, false), (ACK, true)];
    let stages = [Handshake::Syn, Handshake::SynAck, Handshake::Complete];
    let flagged = |ts_ns, tcp_flags| Record { tcp_flags, ..frame(ts_ns, 0) };
    for (seen, stage) in (1..).zip(stages) {
        for split in 0..8usize {
            let (mut whole, mut parts) = (Flow::default(), [Flow::default(); 2]);
            for (i, &(flags, from_low)) in frames[..seen].iter().enumerate() {
                let record = flagged(1000 + i as u64, flags);
                add(&mut whole, &record, from_low);
                add(&mut parts[split >> i & 1], &record, from_low);
            }
            let [mut merged, other] = parts;
            merged.merge(&other);
            assert_eq!((whole.handshake(), merged.handshake()), (stage, stage), "{split:03b}");
        }
    }
}

#[test]
fn a_handshake_needs_a_syn_and_answers_from_the_other_side_but_no_times() {
    let stage = |frames: &[(u16, bool)]| {
        let mut flow = Flow::default();
        for &(tcp_flags, from_low) in frames {
            let has = frame(0, 0).has.with(Has::NO_TIME);
            flow.add(&Record { tcp_flags, has, ..frame(0, 0) }, 0, from_low);
        }
        flow.handshake()
    };
    assert_eq!(stage(&[(ACK, true), (ACK, false)]), Handshake::Unseen);
    assert_eq!(stage(&[(SYN | ACK, true)]), Handshake::Unseen, "the answer alone");
    assert_eq!(stage(&[(SYN, true), (ACK, true)]), Handshake::Syn, "one side alone");
    assert_eq!(stage(&[(SYN, false), (SYN | ACK, true)]), Handshake::SynAck);
    assert_eq!(stage(&[(SYN, false), (SYN | ACK, true), (ACK, false)]), Handshake::Complete);
    // Opened by both ends (RFC 9293, figure 7).
    assert_eq!(stage(&[(SYN, true), (SYN, false), (SYN | ACK, true)]), Handshake::SynAck);
}

#[test]
fn a_frame_stamped_far_ahead_ends_with_the_next_one_that_is_not() {
    let limits = FlowLimits::default();
    let far_ns = limits.idle_ns() + BEHIND_NS;
    let mut flow = Flow::default();
    add(&mut flow, &frame(1000 + far_ns, 0), true);
    let next = frame(1000, 0);
    assert_eq!(flow.ended(&limits, Some(&next), 1000), Some(EndReason::Idle));
    assert_eq!(flow.ended(&limits, Some(&next), 1001), None);
    assert_eq!(flow.ended(&limits, None, 1000), None, "a later frame may yet confirm it");
}

#[test]
fn four_data_frames_close_together_are_a_bulk_and_three_are_not() {
    for (frames, bulks) in [(3, 0), (4, 1)] {
        let mut flow = Flow::default();
        for i in 0..frames {
            add(&mut flow, &frame(i * 1_000_000_000, 10), true);
        }
        flow.close(EndReason::Forced);
        assert_eq!(flow.side[0].bulk_n, bulks);
    }
}

#[test]
fn the_gap_of_a_second_is_part_of_a_subflow_and_a_longer_one_is_not() {
    let mut flow = Flow::default();
    add(&mut flow, &frame(0, 0), true);
    add(&mut flow, &frame(1_000_000_000, 0), true);
    assert_eq!(flow.subflows, 1);
    add(&mut flow, &frame(2_000_000_001, 0), true);
    assert_eq!(flow.subflows, 2);
}

#[test]
fn merged_parts_of_different_directions_equal_the_whole() {
    let mut whole = Flow::default();
    let mut parts = [Flow::default(); 2];
    for i in 0..40u64 {
        let mut record = frame(1 + i * 7_000, (i % 5) as u16);
        record.ttl = 60 + (i % 3) as u8;
        record.tcp_win = 10 + (i * 7 % 13) as u16;
        let from_low = i % 3 != 0;
        add(&mut whole, &record, from_low);
        add(&mut parts[usize::from(from_low)], &record, from_low);
    }
    let mut merged = parts[1];
    merged.merge(&parts[0]);
    whole.close(EndReason::Forced);
    merged.close(EndReason::Forced);
    // Gaps between the two sides are lost; everything within a side is exact.
    assert_eq!(merged.side, whole.side);
    assert_eq!((merged.first_ns, merged.last_ns), (whole.first_ns, whole.last_ns));
    assert_eq!(merged.fwd_is_lo, whole.fwd_is_lo);
}

#[test]
fn merging_with_nothing_changes_nothing() {
    let mut flow = Flow::default();
    add(&mut flow, &frame(5, 3), true);
    let before = flow;
    flow.merge(&Flow::default());
    assert_eq!(flow, before);
    let mut empty = Flow::default();
    empty.merge(&before);
    assert_eq!(empty, before);
}

#[test]
fn unknown_codes_are_no_flow() {
    let mut bytes = Flow::default().to_bytes();
    assert!(Flow::from_bytes(&bytes).is_some());
    bytes[890] = 6;
    assert!(Flow::from_bytes(&bytes).is_none());
    bytes[890] = 0;
    bytes[891] = 2;
    assert!(Flow::from_bytes(&bytes).is_none());
}
