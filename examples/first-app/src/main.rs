//! An app of one's own: `sizes` counts frames by length, on every lane that carries frames.
//!
//! `first-app run sizes --lane packet --on eth1 --below 100`; see docs/guide/your-own-app.md.
#![forbid(unsafe_code)]

use laneway_core::{App, Burst, Counters, FrameApp, PortId, Turn};
use laneway_kinds::{Simple, SimpleApp};
use std::process::ExitCode;

/// Its arguments.
#[derive(clap::Args, Clone)]
struct Arguments {
    /// Length of the shortest frame that is not short, bytes
    #[arg(long, default_value_t = 100)]
    below: usize,
}

/// One worker's share: workers have one each, and what they counted is added up.
struct Sizes {
    below: usize,
    short: u64,
    long: u64,
    counters: Counters,
}

impl FrameApp for Sizes {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
        // The verdict of a received frame is drop until an app sets another.
        let below = self.below;
        let short = (0..burst.len()).filter(|&i| burst.frame(i).bytes.len() < below).count();
        self.short += short as u64;
        self.long += (burst.len() - short) as u64;
    }
}

impl App for Sizes {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl SimpleApp for Sizes {
    const NAME: &'static str = "sizes";
    const ABOUT: &'static str = "counts frames by length";
    type Arguments = Arguments;

    fn new(&Arguments { below }: &Arguments) -> Result<Sizes, String> {
        Ok(Sizes { below, short: 0, long: 0, counters: Counters::default() })
    }

    fn fates(&self) -> Vec<(&'static str, u64)> {
        vec![("short", self.short), ("long", self.long)]
    }
}

fn main() -> ExitCode {
    laneway_cli::start_with_app::<Simple<Sizes>>(std::env::args_os())
}
