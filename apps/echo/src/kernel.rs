//! The kernel placement: the same responder as an XDP program (`bpf/echo.bpf.c`), described as data
//! for the `xdp` lane, and its user-space part, which reads the counts.

use crate::{
    config::{Config, ConfigError},
    fate::{Fate, Fates},
    own::Key,
};
use laneway_core::{App, ConfigValue, Counters, KernelApp, KernelHalf, KernelMaps, MapValue, Turn};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echo.bpf.o"));

/// The same program for frames that lie in one buffer only.
pub static OBJECT_LINEAR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echo_linear.bpf.o"));

/// The map of fates has one more entry: the bytes of the answers.
const ANSWERED_BYTES: usize = Fate::COUNT;

/// So few addresses of ours are constants of the program; `LW_ECHO_OWN_MAX` in `bpf/echo.h`.
const OWN_CONSTANTS_MAX: usize = 4;

/// The responder with its decision in the kernel.
pub struct KernelEcho {
    half: KernelHalf,
    fates: Fates,
    counters: Counters,
    unread: u64,
}

impl KernelEcho {
    /// A responder for `config`.
    ///
    /// # Errors
    /// What is wrong with `config`.
    pub fn new(config: &Config) -> Result<KernelEcho, ConfigError> {
        let half = half(config)?;
        Ok(KernelEcho { half, fates: Fates::default(), counters: Counters::default(), unread: 0 })
    }

    /// Hands what is passed on to `next`, an XDP program that accepts frames in fragments as this one
    /// does (`xdp.frags`), instead of to the kernel. `next` is used when the lane is opened, and the
    /// program lives from then on as long as the lane.
    #[must_use]
    pub fn before(mut self, next: BorrowedFd<'_>) -> KernelEcho {
        self.half.config.push(ConfigValue { name: "lw_has_next", bytes: vec![1] });
        let program = next.as_raw_fd().to_ne_bytes().to_vec();
        self.half.entries.push(("next", 0u32.to_ne_bytes().to_vec(), MapValue::Bytes(program)));
        self
    }

    /// As [`before`](Self::before), for a program that does not accept frames in fragments, as most
    /// programs out there do not: a program of one kind cannot call one of the other. The responder
    /// does not accept them then either, so that the driver refuses a native program where the MTU
    /// needs them.
    #[must_use]
    pub fn before_linear(mut self, next: BorrowedFd<'_>) -> KernelEcho {
        self.half.object = OBJECT_LINEAR;
        self.before(next)
    }

    /// How many frames had which fate, as last read: at most a tick old, final after the end.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }

    /// Reads of the kernel's counts that failed; the figures before stand then.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    fn read(&mut self, maps: &dyn KernelMaps) {
        let mut sums = [0u64; Fate::COUNT + 1];
        let fates = maps.visit("fates", &mut |key, per_cpu| {
            let code = key.try_into().map_or(u32::MAX, u32::from_ne_bytes);
            if let Some(sum) = sums.get_mut(code as usize) {
                *sum = words(per_cpu).sum();
            }
        });
        let mut seen = [0u64; 2];
        let frames = maps.visit("seen", &mut |_, per_cpu| {
            for (i, word) in words(per_cpu).enumerate() {
                seen[i % 2] += word;
            }
        });
        if fates.is_err() || frames.is_err() {
            self.unread += 1;
            return;
        }
        for &fate in Fate::ALL {
            self.fates.set(fate, sums[fate as usize]);
        }
        [self.counters.rx_frames, self.counters.rx_bytes] = seen;
        self.counters.tx_frames = self.fates.answered();
        self.counters.tx_bytes = sums[ANSWERED_BYTES];
        self.counters.passed = self.fates.passed();
    }
}

fn words(per_cpu: &[u8]) -> impl Iterator<Item = u64> + '_ {
    per_cpu.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("chunks of 8")))
}

impl App for KernelEcho {
    /// Without drops: the lane reads those from the half's map, and each is counted once.
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl KernelApp for KernelEcho {
    fn half(&self) -> KernelHalf {
        self.half.clone()
    }

    /// The half emits none.
    fn on_records(&mut self, _records: &[u8], _turn: Turn) {}

    fn on_tick(&mut self, maps: &dyn KernelMaps, _turn: Turn) {
        self.read(maps);
    }

    fn on_detached(&mut self, maps: &dyn KernelMaps, _turn: Turn) {
        self.read(maps);
    }
}

/// The kernel half for a configuration.
///
/// # Errors
/// What is wrong with `config`.
pub fn half(config: &Config) -> Result<KernelHalf, ConfigError> {
    let checked = config.checked()?;
    let own = &checked.own;
    // struct lw_echo_config
    let mut settings = own.mac.to_vec();
    settings.extend([checked.ttl, u8::from(own.answers_neighbours)]);
    let mut constants = own.keys().concat();
    let count = if own.keys().len() <= OWN_CONSTANTS_MAX { own.keys().len() } else { 0 };
    constants.resize(OWN_CONSTANTS_MAX * size_of::<Key>(), 0);
    let entries = own.keys().iter().map(|key| ("owned", key.to_vec(), MapValue::Bytes(vec![1])));
    let entries = entries.collect();
    let is_coarse = checked.per_source.is_wide() && checked.global.is_wide();
    let has_sources = !checked.per_source.is_off();
    let sources = if has_sources { checked.sources_max } else { 1 };
    Ok(KernelHalf {
        name: "echo",
        object: OBJECT,
        program: "echo",
        config: vec![
            ConfigValue { name: "lw_config", bytes: settings },
            ConfigValue { name: "lw_per_source", bytes: checked.per_source.to_bytes() },
            ConfigValue { name: "lw_global", bytes: checked.global.to_bytes() },
            ConfigValue { name: "lw_coarse", bytes: vec![u8::from(is_coarse)] },
            ConfigValue { name: "lw_own", bytes: constants },
            ConfigValue { name: "lw_own_count", bytes: (count as u32).to_ne_bytes().to_vec() },
        ],
        entries,
        map_sizes: vec![
            ("owned", own.keys().len() as u32),
            // SOURCES_MAX fits.
            ("sources", sources as u32),
        ],
        records: None,
        drops_map: Some("drops"),
        seen_map: Some("seen"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Limits, schedule::Rate};

    #[test]
    fn wide_limits_are_kept_by_the_coarse_clock_and_narrow_ones_by_the_exact_one() {
        let is_coarse = |limits: Limits| {
            let config = Config { limits, ..Config::new([2; 6], ["10.0.0.1".parse().unwrap()]) };
            let half = half(&config).unwrap();
            half.config.iter().any(|value| value.name == "lw_coarse" && value.bytes == [1])
        };
        assert!(is_coarse(Limits::default()) && is_coarse(Limits::none()));
        // One at a time, a millisecond apart: a clock of 4 ms would admit a quarter of them.
        let narrow = Some(Rate { per_second: 1_000, burst: 1 });
        assert!(!is_coarse(Limits { per_source: narrow, ..Limits::default() }));
        assert!(!is_coarse(Limits { global: narrow, ..Limits::default() }));
    }
}
