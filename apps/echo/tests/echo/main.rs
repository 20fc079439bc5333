//! The responder against its table of fates, in all three forms: Rust, the C headers on the host, and
//! the loaded XDP program; then on a simulated link, and against the real `ping` on live lanes.
//!
//! What needs root, a C compiler, a program or captures says so when they are not there.

mod build;
mod captures;
mod exact;
mod files;
mod hostile;
mod limits;
mod live;
mod program;
mod referee;
mod rows;
mod simulated;

use laneway_echo::{Config, Echo, Fate, Fates, Limits};
use std::net::IpAddr;

/// The MAC address of every responder here. Locally administered; no interface's.
const MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0x00, 0xee, 0x09];

/// A frame and when it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    at_ns: u64,
    bytes: Vec<u8>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    fate: Fate,
    bytes: Vec<u8>,
}

/// Answers for these addresses without limits.
fn config(addresses: &[&str]) -> Config {
    let addresses = addresses.iter().map(|a| a.parse::<IpAddr>().expect("an address"));
    Config { limits: Limits::none(), ..Config::new(MAC, addresses) }
}

/// Runs the Rust form on the frames, and checks what holds for every frame whatsoever.
fn run(config: &Config, frames: &[Sent]) -> (Vec<Outcome>, Fates) {
    let mut echo = Echo::new(config).unwrap_or_else(|e| panic!("{e}"));
    let outcomes = frames.iter().map(|sent| {
        let mut bytes = sent.bytes.clone();
        let fate = echo.answer(&mut bytes, sent.bytes.len(), sent.at_ns);
        // The amplification bound: a byte for a byte, a frame for a frame.
        assert_eq!(bytes.len(), sent.bytes.len());
        if !fate.is_answer() {
            assert_eq!(bytes, sent.bytes, "{fate:?} and yet modified");
        }
        Outcome { fate, bytes }
    });
    (outcomes.collect(), *echo.fates())
}
