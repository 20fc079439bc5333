//! The knobs of a stack of streams: part of the spec of the lane below, which is given the rest.
//!
//! Their names are those of the lanes of kernel sockets, but for the send queue's: `queue=` is a receive
//! queue of the device on some lanes of frames.

use crate::TcpLimits;
use laneway_spec::{LaneSpec, SpecError};
use std::ops::RangeInclusive;

const NAMES: [&str; 4] = ["window", "conns", "close", "keepalive"];
const WINDOW_BYTES: RangeInclusive<usize> = 2048..=16 << 20;
const CONNS: RangeInclusive<usize> = 1..=1 << 20;
const CLOSE_MS: RangeInclusive<usize> = 1..=3_600_000;
const KEEPALIVE_S: RangeInclusive<usize> = 1..=32_767;
/// A peer is given up when it has been silent for so many times the time after which it is asked.
const SILENCES: u64 = 5;

impl TcpLimits {
    /// The limits that the knobs in `spec` ask for, and the spec without them: `window=` (bytes that the
    /// receive and the send buffer may grow to), `conns=`, `close=` (milliseconds) and `keepalive=` (seconds).
    ///
    /// # Errors
    /// A value outside its range.
    pub fn from_spec(spec: &LaneSpec) -> Result<(TcpLimits, LaneSpec), SpecError> {
        let (knobs, mut limits) = (spec.knobs(), TcpLimits::default());
        limits.window_bytes_max = knobs.number("window", limits.window_bytes_max, WINDOW_BYTES)?;
        limits.rx_bytes = limits.rx_bytes.min(limits.window_bytes_max);
        limits.tx_bytes = limits.tx_bytes.min(limits.window_bytes_max);
        limits.connections_max = knobs.number("conns", limits.connections_max, CONNS)?;
        limits.per_source_max = limits.per_source_max.max(limits.connections_max);
        let close_ms = (limits.linger_ns / 1_000_000) as usize;
        limits.linger_ns = knobs.number("close", close_ms, CLOSE_MS)? as u64 * 1_000_000;
        let keepalive_s = (limits.keep_alive_ns / 1_000_000_000) as usize;
        let keepalive_s = knobs.number("keepalive", keepalive_s, KEEPALIVE_S)? as u64;
        limits.keep_alive_ns = keepalive_s * 1_000_000_000;
        limits.timeout_ns = limits.keep_alive_ns * SILENCES;
        Ok((limits, spec.without(&NAMES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(TcpLimits, String), SpecError> {
        let spec: LaneSpec = text.parse().expect("well formed");
        TcpLimits::from_spec(&spec).map(|(limits, rest)| (limits, rest.to_string()))
    }

    #[test]
    fn a_spec_without_knobs_of_the_stack_has_the_usual_limits() {
        assert_eq!(
            read("afxdp:copy,queue=2"),
            Ok((TcpLimits::default(), "afxdp:copy,queue=2".into()))
        );
    }

    #[test]
    fn knobs_of_the_stack_are_taken_out_of_the_spec() {
        let read = read("packet:window=32k,ring,conns=20000,close=50,keepalive=7");
        let (limits, rest) = read.expect("values in range");
        assert_eq!(rest, "packet:ring");
        assert_eq!((limits.rx_bytes, limits.tx_bytes), (16 << 10, 32 << 10));
        assert_eq!(limits.window_bytes_max, 32 << 10);
        assert_eq!((limits.connections_max, limits.per_source_max), (20_000, 20_000));
        assert_eq!((limits.linger_ns, limits.keep_alive_ns), (50_000_000, 7_000_000_000));
        assert_eq!(limits.timeout_ns, 35_000_000_000);
    }

    #[test]
    fn a_window_outside_its_range_is_refused() {
        let sentence = read("packet:window=1k").expect_err("too small").to_string();
        assert!(sentence.contains("window=1k") && sentence.contains("from 2048"), "{sentence}");
    }
}
