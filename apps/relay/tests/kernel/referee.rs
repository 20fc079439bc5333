//! The kernel half's own header, compiled for this machine and run as a program.

use std::sync::OnceLock;

/// Bytes of `struct lw_relay_datagram`.
const DATAGRAM_BYTES: usize = 48;

/// The compiled referee; `None`, and says so, without a C compiler.
pub(crate) fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    REFEREE.get_or_init(compile).as_ref()
}

pub(crate) struct Referee(laneway_testkit::Referee);

/// What the header makes of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) fate: u8,
    /// `struct lw_relay_datagram`; of a frame that is not sent it says nothing.
    pub(crate) datagram: Vec<u8>,
    /// Bytes of payload that the output counts.
    pub(crate) payload: i32,
    pub(crate) marked: Vec<u8>,
    pub(crate) sent: Vec<u8>,
}

fn compile() -> Option<Referee> {
    let (source, headers) = ("apps/relay/tests/kernel/referee.c", "apps/relay/bpf");
    laneway_testkit::Referee::compile(env!("CARGO_TARGET_TMPDIR"), source, headers).map(Referee)
}

impl Referee {
    /// What becomes of frames, each by itself, that come in by `ifindex` and go to one output, given as the
    /// map has it.
    pub(crate) fn run(
        &self,
        [ttl_min, ifindex, slot]: [u32; 3],
        output: &[u8],
        frames: &[Vec<u8>],
    ) -> Vec<Seen> {
        let mut input = [ttl_min, ifindex, slot].map(u32::to_ne_bytes).concat();
        input.extend(output);
        for frame in frames {
            input.extend((frame.len() as u32).to_ne_bytes());
            input.extend(frame);
        }
        let output = self.0.run(&[], input);
        let mut rest = &output[..];
        let mut take = |bytes: usize| {
            let (taken, behind) = rest.split_at(bytes);
            rest = behind;
            taken.to_vec()
        };
        let seen = frames.iter().map(|frame| Seen {
            fate: take(1)[0],
            datagram: take(DATAGRAM_BYTES),
            payload: i32::from_ne_bytes(take(4).try_into().expect("four bytes")),
            marked: take(frame.len()),
            sent: take(frame.len()),
        });
        seen.collect()
    }
}
