//! Prints ns per packet of the flow table over synthetic records, for profiling:
//! `cargo run --release -p laneway-flow --example flow_speed`. No claim is made of what it prints.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use laneway_flow::{FlowLimits, FlowTable, Has, Record, TableOptions};
use laneway_testkit::Random;

const RECORDS: usize = 1_000_000;

/// TCP data and ACKs of `flows` connections in random order.
fn records(flows: u32) -> Vec<Record> {
    let mut random = Random::seeded(1);
    (0..RECORDS)
        .map(|i| {
            let bits = random.draw();
            let flow = (bits >> 32) as u32 % flows;
            let payload = if bits & 1 == 0 { 0 } else { 1448 };
            let mut r = Record {
                ts_ns: 1_700_000_000_000_000_000 + i as u64 * 10_000,
                frame_len: 66 + u32::from(payload),
                tcp_seq: i as u32,
                tcp_ack: i as u32,
                src_port: 1024 + (flow % 60_000) as u16,
                dst_port: 443,
                eth_type: 0x0800,
                ip_len: 52 + payload,
                tcp_win: 500,
                tcp_flags: 0x10,
                l3_hdr_len: 20,
                l4_hdr_len: 32,
                proto: 6,
                ttl: 64,
                has: Has::IPV4.with(Has::PORTS).with(Has::TCP),
                ..Record::default()
            };
            r.src_ip[10..].copy_from_slice(&[0xff, 0xff, 10, 0, (flow >> 16) as u8, 1]);
            r.dst_ip[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 0, 1]);
            if bits & 2 != 0 {
                std::mem::swap(&mut r.src_ip, &mut r.dst_ip);
                std::mem::swap(&mut r.src_port, &mut r.dst_port);
            }
            r
        })
        .collect()
}

/// Time this thread has spent on a core, in ns: a busy machine does not distort it as much.
fn on_core_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn main() {
    println!("ns on core per packet: pages first touched, touched before, and the flush per flow");
    for flows in [8, 1_000, 130_000] {
        let records = records(flows);
        for batch in [1, 64] {
            let mut table = FlowTable::new(1 << 18, FlowLimits::default(), TableOptions::default())
                .expect("300 MB can be reserved");
            let mut ended = 0u64;
            let mut sink = |e: laneway_flow::EndedFlow<'_>| ended += e.flow.pkts();
            let mut stamps = vec![on_core_ns()];
            for _ in 0..2 {
                for chunk in records.chunks(batch) {
                    if batch == 1 {
                        table.add(&chunk[0], &mut sink);
                    } else {
                        table.add_batch(chunk, &mut sink);
                    }
                }
                stamps.push(on_core_ns());
            }
            let in_table = table.len();
            table.flush(&mut sink);
            stamps.push(on_core_ns());
            let spent: Vec<_> = stamps.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
            println!(
                "{flows:>7} flows, batch {batch:>2}: {:>6.1} {:>6.1} {:>6.1} ({ended} packets)",
                spent[0] / RECORDS as f64,
                spent[1] / RECORDS as f64,
                spent[2] / in_table as f64,
            );
        }
    }
}
