//! The flow table: capacity, order of expiry, first packets, clock.

use laneway_flow::{
    BEHIND_NS, Direction, EndReason, FlowLimits, FlowTable, Has, NEVER_NS, PpiPacket, Record,
    Status, TableError, TableOptions,
};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn udp(flow: u32, ts_ns: u64) -> Record {
    let mut r = Record {
        ts_ns,
        proto: 17,
        src_port: 1000,
        dst_port: 53,
        frame_len: 60,
        ip_len: 46,
        l3_hdr_len: 20,
        l4_hdr_len: 8,
        has: Has::IPV4.with(Has::PORTS),
        ..Record::default()
    };
    r.src_ip[12..].copy_from_slice(&flow.to_be_bytes());
    r.dst_ip[12..].copy_from_slice(&[255, 0, 0, 1]);
    r
}

fn tcp(flow: u32, ts_ns: u64, flags: u16) -> Record {
    let mut r = udp(flow, ts_ns);
    r.proto = 6;
    r.tcp_flags = flags;
    r.has.insert(Has::TCP);
    r
}

fn reversed(mut r: Record) -> Record {
    std::mem::swap(&mut r.src_ip, &mut r.dst_ip);
    std::mem::swap(&mut r.src_port, &mut r.dst_port);
    r
}

/// A table and the result of it: flow number and reason.
struct Run {
    table: FlowTable,
    out: Vec<(u32, EndReason)>,
}

impl Run {
    fn new(capacity: usize, limits: FlowLimits) -> Run {
        let table = FlowTable::new(capacity, limits, TableOptions::default()).unwrap();
        Run { table, out: Vec::new() }
    }

    fn add(&mut self, record: Record) {
        let out = &mut self.out;
        self.table.add(&record, &mut |e| out.push(number(e)));
    }

    fn flush(&mut self) {
        let out = &mut self.out;
        self.table.flush(&mut |e| out.push(number(e)));
    }
}

fn number(ended: laneway_flow::EndedFlow<'_>) -> (u32, EndReason) {
    let low = ended.key.ip_lo.last_chunk().copied().unwrap();
    (u32::from_be_bytes(low), ended.flow.end.unwrap())
}

#[test]
fn a_full_table_evicts_the_least_recently_used_flow() {
    let mut run = Run::new(3, FlowLimits::default());
    for (i, flow) in [1, 2, 3, 1, 4].into_iter().enumerate() {
        run.add(udp(flow, i as u64));
    }
    assert_eq!(run.out, [(2, EndReason::Resources)]);
    run.flush();
    let forced = |n| (n, EndReason::Forced);
    assert_eq!(run.out[1..], [forced(3), forced(1), forced(4)]);
    assert!(run.table.is_empty());
}

#[test]
fn eviction_and_flush_follow_the_order_of_use_over_closed_and_open_flows() {
    let mut run = Run::new(3, FlowLimits::default());
    run.add(udp(1, 0));
    run.add(tcp(2, 1, 4));
    run.add(udp(3, 2));
    run.add(udp(1, 3));
    run.add(udp(4, 4));
    assert_eq!(run.out, [(2, EndReason::Resources)]);
    run.add(tcp(5, 5, 4));
    assert_eq!(run.out[1], (3, EndReason::Resources));
    run.flush();
    assert_eq!(run.out[2..].iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 4, 5]);
}

#[test]
fn idle_flows_come_out_in_time_order_within_ten_milliseconds_of_packet_time() {
    let limits = FlowLimits::new(S, 100 * S, 0).unwrap();
    let mut run = Run::new(100, limits);
    for flow in [3, 1, 2] {
        run.add(udp(flow, u64::from(flow) * MS));
    }
    for half_s in 1..6 {
        run.add(udp(9, half_s * S / 2));
    }
    run.add(udp(9, BEHIND_NS + S + MS - 1));
    assert_eq!(run.out, []);
    // The list is in the order of arrival, 3 first, which was stamped last.
    run.add(udp(9, BEHIND_NS + S + 3 * MS + 10 * MS));
    let idle = |n| (n, EndReason::Idle);
    assert_eq!(run.out, [idle(3), idle(1), idle(2)]);
    assert_eq!(run.table.len(), 1);
}

#[test]
fn the_idle_limit_is_reached_exactly_and_the_active_one_too() {
    let limits = FlowLimits::new(10 * S, 15 * S, 0).unwrap();
    let mut run = Run::new(10, limits);
    run.add(udp(1, S));
    run.add(udp(1, 11 * S - 1));
    assert_eq!(run.table.counters().started, 1);
    run.add(udp(1, 16 * S));
    assert_eq!(run.out, [(1, EndReason::Active)]);
    run.add(udp(1, 26 * S));
    assert_eq!(run.out[1], (1, EndReason::Idle));
}

#[test]
fn a_timeout_of_never_ends_no_flow_and_fin_and_rst_can_be_left_alone() {
    let limits = FlowLimits::new(NEVER_NS, NEVER_NS, 0).unwrap();
    let mut run = Run::new(10, limits);
    run.add(tcp(1, S, 0x04));
    run.add(reversed(tcp(1, S + 1, 0x11)));
    // A year later, twice, so that the clock goes there.
    run.add(udp(2, 366 * 86_400 * S));
    run.add(udp(2, 366 * 86_400 * S));
    run.add(tcp(1, 366 * 86_400 * S, 0x02));
    assert_eq!(run.out, []);
    run.flush();
    assert_eq!(run.out, [(2, EndReason::Forced), (1, EndReason::Forced)]);
}

#[test]
fn a_closed_connection_lingers_and_a_new_syn_starts_the_next() {
    let limits = FlowLimits::new(10 * S, 100 * S, 2 * S).unwrap();
    let mut run = Run::new(10, limits);
    run.add(tcp(1, S, 0x11));
    run.add(reversed(tcp(1, S + 1, 0x11)));
    run.add(tcp(1, S + 2, 0x10));
    assert_eq!(run.table.counters().started, 1);
    run.add(tcp(1, S + 3, 0x02));
    assert_eq!(run.out, [(1, EndReason::EndSeen)]);
    assert_eq!(run.table.counters().started, 2);
    run.add(tcp(1, S + 4, 0x04));
    // The second of two confirms that time has come so far.
    run.add(udp(7, BEHIND_NS + 3 * S + 10 * MS));
    assert_eq!(run.out.len(), 1);
    run.add(udp(7, BEHIND_NS + 3 * S + 10 * MS));
    assert_eq!(run.out[1..], [(1, EndReason::EndSeen)]);
}

#[test]
fn a_flow_ahead_of_the_clock_does_not_keep_those_behind_it_in_the_table() {
    let limits = FlowLimits::new(10 * S, 100 * S, 0).unwrap();
    let mut run = Run::new(10, limits);
    run.add(udp(1, S));
    run.add(udp(2, 4000 * S));
    run.add(udp(3, S));
    for s in 2..20 {
        run.add(udp(4, s * S));
    }
    assert_eq!(run.out, [(1, EndReason::Idle), (3, EndReason::Idle)]);
    run.flush();
    assert_eq!(run.out[2..], [(2, EndReason::Forced), (4, EndReason::Forced)]);
}

#[test]
fn the_clock_can_be_moved_without_a_record() {
    let mut run = Run::new(10, FlowLimits::new(S, 100 * S, 0).unwrap());
    run.add(udp(1, 5));
    let mut ended = 0;
    run.table.advance(BEHIND_NS + S + 4, &mut |_| ended += 1);
    assert_eq!(ended, 0);
    run.table.advance(BEHIND_NS + S + 5, &mut |_| ended += 1);
    assert_eq!(ended, 1);
}

#[test]
fn records_without_an_ip_header_are_counted_by_status() {
    let mut run = Run::new(10, FlowLimits::default());
    run.add(Record { status: Status::L3Unknown, ..Record::default() });
    run.add(udp(1, 1));
    assert_eq!(run.table.counters().unflowed(Status::L3Unknown), 1);
    assert_eq!(run.table.counters().unflowed_total(), 1);
    assert_eq!(run.table.counters().records, 1);
}

#[test]
fn the_first_packets_are_kept_and_those_of_a_former_flow_are_not_seen() {
    let options = TableOptions { ppi_packets: 3, ..TableOptions::default() };
    let mut table = FlowTable::new(1, FlowLimits::default(), options).unwrap();
    let mut seen: Vec<Vec<PpiPacket>> = Vec::new();
    let mut sink = |e: laneway_flow::EndedFlow<'_>| seen.push(e.ppi.to_vec());
    table.add(&tcp(1, 10, 2), &mut sink);
    table.add(&reversed(tcp(1, 25, 0x12)), &mut sink);
    for i in 0..3 {
        table.add(&tcp(1, 100 + i, 0x10), &mut sink);
    }
    table.add(&udp(2, 200), &mut sink);
    table.flush(&mut sink);
    let packet = |iat_ns, tcp_flags, direction| PpiPacket { iat_ns, len: 60, tcp_flags, direction };
    assert_eq!(
        seen,
        [
            vec![
                packet(0, 2, Direction::Forward),
                packet(15, 0x12, Direction::Backward),
                packet(75, 0x10, Direction::Forward)
            ],
            vec![packet(0, 0, Direction::Forward)]
        ]
    );
}

#[test]
fn the_hash_seed_changes_nothing_that_comes_out() {
    let outputs: Vec<_> = [0, 1, u64::MAX]
        .into_iter()
        .map(|hash_seed| {
            let options = TableOptions { hash_seed, ppi_packets: 0 };
            let mut table = FlowTable::new(50, FlowLimits::default(), options).unwrap();
            let mut out = Vec::new();
            for i in 0..2000u32 {
                table.add(&udp(i * i % 97, u64::from(i) * S), &mut |e| out.push(number(e)));
            }
            table.flush(&mut |e| out.push(number(e)));
            out
        })
        .collect();
    assert!(outputs.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn impossible_tables_are_refused_with_the_value() {
    let new = |capacity, ppi_packets| {
        let options = TableOptions { hash_seed: 0, ppi_packets };
        FlowTable::new(capacity, FlowLimits::default(), options).map(|_| ())
    };
    assert_eq!(new(0, 0), Err(TableError::Capacity { capacity: 0 }));
    assert_eq!(new(1 << 29, 0), Err(TableError::Capacity { capacity: 1 << 29 }));
    assert_eq!(new(1, 33), Err(TableError::Ppi { packets: 33 }));
}
