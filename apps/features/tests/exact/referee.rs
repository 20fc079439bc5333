//! The kernel half's own headers, compiled for this machine and run as a program.

use crate::captures::Frame;
use laneway_flow::{RECORD_BYTES, Record, RecordMatch};
use std::sync::OnceLock;

/// The compiled referee; `None`, and says so, without a C compiler.
pub(crate) fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    REFEREE.get_or_init(compile).as_ref()
}

pub(crate) struct Referee(laneway_testkit::Referee);

fn compile() -> Option<Referee> {
    let (source, headers) = ("apps/features/tests/exact/referee.c", "apps/features/bpf");
    laneway_testkit::Referee::compile(env!("CARGO_TARGET_TMPDIR"), source, headers).map(Referee)
}

impl Referee {
    /// The records of frames numbered from 0.
    pub(crate) fn parse(&self, frames: &[Frame]) -> Vec<[u8; RECORD_BYTES]> {
        let mut input = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            input.extend(frame.ts_ns.to_ne_bytes());
            input.extend((number as u64).to_ne_bytes());
            input.extend(frame.wire_len.to_ne_bytes());
            input.extend((frame.bytes.len() as u32).to_ne_bytes());
            input.extend(&frame.bytes);
        }
        let output = self.0.run(&["parse"], input);
        let (records, rest) = output.as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        records.to_vec()
    }

    /// Which records a rule admits.
    pub(crate) fn admits(&self, rule: &RecordMatch, records: &[Record]) -> Vec<bool> {
        let mut input = rule.to_bytes().to_vec();
        records.iter().for_each(|r| input.extend(r.to_bytes()));
        self.0.run(&["filter"], input).iter().map(|admits| *admits == 1).collect()
    }
}
