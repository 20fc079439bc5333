//! The kernel half's header, compiled for this machine and run as a program.

use crate::frames::Question;

pub(crate) struct Referee(laneway_testkit::Referee);

/// None, and says so, without a C compiler.
pub(crate) fn compiled() -> Option<Referee> {
    let (source, headers) = ("apps/kv/tests/get/referee.c", "apps/kv/bpf");
    laneway_testkit::Referee::compile(env!("CARGO_TARGET_TMPDIR"), source, headers).map(Referee)
}

impl Referee {
    /// Fate and bytes of each frame, with the maps in this state.
    pub(crate) fn run(&self, state: &[u8], questions: &[Question]) -> Vec<(u8, Vec<u8>)> {
        let mut input = state.to_vec();
        for Question { frame, .. } in questions {
            input.extend((frame.len() as u32).to_ne_bytes());
            input.extend(frame);
        }
        let output = self.0.run(&[], input);
        let mut rest = &output[..];
        let judged = questions.iter().map(|_| {
            let (head, more) = rest.split_first_chunk::<5>().expect("fate and length");
            let bytes = u32::from_ne_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let (frame, more) = more.split_at(bytes);
            rest = more;
            (head[0], frame.to_vec())
        });
        let judged = judged.collect();
        assert!(rest.is_empty());
        judged
    }
}
