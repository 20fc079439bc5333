//! The kernel half's own header, compiled for this machine and run as a program on what the half is
//! loaded with.

use crate::outcome::{HEADER_BYTES, Outcome};
use laneway_core::{KernelHalf, MapValue};
use std::sync::OnceLock;

/// Bytes of `struct lw_bank`.
const BANK_BYTES: usize = 29496;

/// The compiled referee; `None`, and says so, without a C compiler.
pub(crate) fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    REFEREE.get_or_init(compile).as_ref()
}

pub(crate) struct Referee(laneway_testkit::Referee);

fn compile() -> Option<Referee> {
    let (source, headers) = ("apps/forward/tests/exact/referee.c", "apps/forward/bpf");
    laneway_testkit::Referee::compile(env!("CARGO_TARGET_TMPDIR"), source, headers).map(Referee)
}

impl Referee {
    /// The outcomes of frames that arrive on port 0, and how many matches the rules had together.
    pub(crate) fn run(&self, half: &KernelHalf, frames: &[Vec<u8>]) -> (Vec<Outcome>, u64) {
        let mut input = half.config[0].bytes.clone();
        let of = |map: &'static str| {
            half.entries.iter().filter_map(move |(name, key, value)| match value {
                MapValue::Bytes(value) if *name == map => Some((name, key, value)),
                _ => None,
            })
        };
        match of("banks").next() {
            Some((_, _, bank)) => input.extend(bank),
            None => input.extend([0; BANK_BYTES]),
        }
        let routes = of("routes4").chain(of("routes6"));
        let others = ["hops", "neighbours", "entries"].map(|map| of(map).count());
        input.extend((routes.clone().count() as u32).to_ne_bytes());
        others.iter().for_each(|count| input.extend((*count as u32).to_ne_bytes()));
        for (map, key, hop) in routes {
            let mut address = [0; 16];
            address[..key.len() - 4].copy_from_slice(&key[4..]);
            input.extend(&key[..4]);
            input.extend([u8::from(*map == "routes4"), 0, 0, 0]);
            input.extend(address);
            input.extend(hop);
        }
        of("hops").for_each(|(_, _, hop)| input.extend(hop));
        of("neighbours").for_each(|(_, address, mac)| {
            input.extend(address);
            input.extend(mac);
        });
        of("entries").for_each(|(_, key, value)| {
            input.extend(key);
            input.extend(value);
        });
        for frame in frames {
            input.extend((frame.len() as u32).to_ne_bytes());
            input.extend(frame);
        }
        let output = self.0.run(&[], input);
        let mut rest = &output[..];
        let mut outcomes = Vec::with_capacity(frames.len());
        for frame in frames {
            let (header, bytes) = rest.split_at(HEADER_BYTES);
            let (bytes, behind) = bytes.split_at(frame.len());
            outcomes.push(Outcome::read(header, bytes));
            rest = behind;
        }
        let matches = u64::from_ne_bytes(rest.try_into().expect("eight bytes behind the frames"));
        (outcomes, matches)
    }
}
