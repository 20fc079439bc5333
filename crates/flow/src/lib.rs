//! Records -> flows: what a frame states, which flow it belongs to, and what that flow adds up to.
//!
//! This is the independent Rust implementation of `apps/features/bpf/{record,flow,filter}.h`, which
//! the kernel half and the tests' referee compile. Both must agree on every integer; the tests of
//! this crate compile the C and compare bytes.
//!
//! ```text
//!   Record ──▶ FlowKey (+ which end sent it) ──▶ FlowTable ──▶ EndedFlow, borrowed by the sink
//!      │                                            │
//!      └──▶ RecordMatch (capture filter)            └── PacketClock: stamps to flow time
//! ```
//!
//! What must always hold:
//! * All accumulators are integers; floats are derived once, by [`mean_and_deviation`].
//! * Time is packet time: nothing here reads a clock. What comes out depends on the records alone,
//!   not on the hash seed, the one random value ([`random_seed`]).
//! * Memory is reserved at the start and bounded by [`FlowTable::memory_bytes`].
//!
//! It does not parse frames (the app does) and performs no I/O.
//!
//! ```
//! use laneway_flow::{FlowLimits, FlowTable, Has, Record, RecordMatch, TableOptions, random_seed};
//!
//! let to_dns: RecordMatch = "eth / ipv4 src is 10.0.0.0/8 / udp dst is 53 / end".parse()?;
//! let options = TableOptions { hash_seed: random_seed(), ppi_packets: 8 };
//! let mut flows = FlowTable::new(1000, FlowLimits::default(), options)?;
//!
//! let mut query = Record {
//!     proto: 17,
//!     src_port: 40_000,
//!     dst_port: 53,
//!     has: Has::IPV4.with(Has::PORTS),
//!     ..Record::default()
//! };
//! query.src_ip[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3]);
//! let mut packets = Vec::new();
//! if to_dns.matches(&query) {
//!     flows.add(&query, &mut |ended| packets.push(ended.flow.pkts()));
//! }
//! flows.flush(&mut |ended| packets.push(ended.flow.pkts()));
//! assert_eq!(packets, [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod clock;
mod flow;
mod key;
mod layout;
mod limits;
mod offload;
pub mod pattern;
mod record;
pub mod rule;
mod stats;
mod table;

pub use clock::{AHEAD_NS, BEHIND_NS, Disorder, Moment, PacketClock};
pub use flow::{
    Added, Direction, EndReason, FLOW_BYTES, FLOW_RECORD_BYTES, Flow, HIST_BINS, Handshake,
    IAT_HIST_BOUNDS_NS, LEN_HIST_BOUNDS_BYTES, Side, Span, TCP_FLAG_COUNT, flow_state, side_state,
};
pub use key::{FLOW_KEY_BYTES, FlowKey};
pub use limits::{FlowLimits, LimitsError, NEVER_NS};
pub use offload::{
    HEADER_BYTES_MAX, HEADERS_MAX, Header, HeaderMatch, Offload, PortAction, PortHits, PortRule,
};
pub use record::{Has, RECORD_BYTES, Record, Status};
pub use rule::{RecordMatch, Rule};
pub use stats::mean_and_deviation;
pub use table::{
    CAPACITY_MAX, EndedFlow, FlowTable, PPI_PACKETS_MAX, PpiPacket, SCAN_INTERVAL_NS,
    TableCounters, TableError, TableOptions, random_seed,
};
