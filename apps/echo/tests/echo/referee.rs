//! The kernel half's own headers, compiled for this machine and run as a program.

use crate::{Outcome, Sent};
use laneway_echo::{Config, Fate, half};
use std::sync::OnceLock;

/// The compiled referee; `None`, and says so, without a C compiler.
pub(crate) fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    REFEREE.get_or_init(compile).as_ref()
}

pub(crate) struct Referee(laneway_testkit::Referee);

fn compile() -> Option<Referee> {
    let (source, headers) = ("apps/echo/tests/echo/referee.c", "apps/echo/bpf");
    laneway_testkit::Referee::compile(env!("CARGO_TARGET_TMPDIR"), source, headers).map(Referee)
}

impl Referee {
    /// What becomes of the frames.
    pub(crate) fn run(&self, config: &Config, frames: &[Sent]) -> Vec<Outcome> {
        let half = half(config).unwrap_or_else(|e| panic!("{e}"));
        let constants = ["lw_config", "lw_per_source", "lw_global"].map(|name| {
            let found = half.config.iter().find(|value| value.name == name);
            found.expect("the half sets it").bytes.clone()
        });
        let mut input = constants.concat();
        let owned = half.entries.iter().filter(|(map, ..)| *map == "owned");
        let owned: Vec<u8> = owned.flat_map(|(_, key, _)| key.clone()).collect();
        input.extend((owned.len() as u32 / 16).to_ne_bytes());
        input.extend(owned);
        for sent in frames {
            input.extend(sent.at_ns.to_ne_bytes());
            input.extend((sent.bytes.len() as u32).to_ne_bytes());
            input.extend(&sent.bytes);
        }
        let output = self.0.run(&[], input);
        let mut rest = &output[..];
        let outcomes = frames.iter().map(|sent| {
            let (outcome, more) = rest.split_at(1 + sent.bytes.len());
            rest = more;
            Outcome { fate: Fate::ALL[usize::from(outcome[0])], bytes: outcome[1..].to_vec() }
        });
        let outcomes = outcomes.collect();
        assert!(rest.is_empty());
        outcomes
    }
}
