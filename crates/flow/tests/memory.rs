//! The bound on memory, measured from outside the table: what the kernel says this process has.
//! Alone in its program, because other tests would use memory at the same time.

use laneway_flow::{EndReason, FlowLimits, FlowTable, Has, Record, TableOptions};
use laneway_testkit::skip;

/// What the test itself may touch meanwhile: stack, batch, the allocator's own pages.
const SLACK_BYTES: u64 = 4 << 20;

/// The most resident memory this process ever had.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn udp(flow: u32) -> Record {
    let mut r = Record {
        ts_ns: u64::from(flow),
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

#[test]
fn ten_million_flows_take_no_more_memory_than_the_table_says() {
    const FLOWS: u32 = 10_000_000;
    let capacity = 20_000;
    let Some(before) = peak_bytes() else {
        skip("/proc/self/status does not tell the peak of resident memory");
        return;
    };
    let options = TableOptions { hash_seed: 1, ppi_packets: 4 };
    let mut table = FlowTable::new(capacity, FlowLimits::default(), options).unwrap();
    let bound = table.memory_bytes();
    let mut out = 0u64;
    let mut batch = [Record::default(); 50];
    for first in (0..FLOWS).step_by(batch.len()) {
        (first..).zip(&mut batch).for_each(|(flow, record)| *record = udp(flow));
        table.add_batch(&batch, &mut |_| out += 1);
    }

    let evicted = u64::from(FLOWS) - capacity as u64;
    assert_eq!(table.counters().started, u64::from(FLOWS));
    assert_eq!((table.len(), out), (capacity, evicted));
    assert_eq!(table.counters().ended(EndReason::Resources), evicted);
    assert_eq!(table.memory_bytes(), bound);
    let grown = peak_bytes().expect("it was there before") - before;
    assert!(grown <= bound + SLACK_BYTES, "{grown} bytes more, the table says {bound}");
    // Were the figure not the table's, the line above would show nothing.
    assert!(grown > bound / 2, "{grown} bytes more, the table says {bound}");
}
