//! The loaded XDP program, run on given frames with the time as metadata.

use crate::{Outcome, Sent};
use laneway_bpf::{BpfError, Loaded, RunInput, prog_run};
use laneway_core::{App, ConfigValue, DropReason, KernelApp, KernelHalf, KernelMaps, Turn};
use laneway_echo::{Class, Config, Fate, Fates, KernelEcho, OBJECT, OBJECT_LINEAR};
use laneway_testkit::skip;
use std::ops::RangeInclusive;

/// What BPF_PROG_RUN takes.
const FRAME_BYTES: RangeInclusive<usize> = 14..=64 << 10;

pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;
pub(crate) const XDP_TX: u32 = 3;

/// True for a frame that can be run.
pub(crate) fn runs(sent: &Sent) -> bool {
    FRAME_BYTES.contains(&sent.bytes.len())
}

/// Loads a half that takes the time from the frames; `None`, and says so, without root.
pub(crate) fn load(mut half: KernelHalf) -> Option<Loaded> {
    half.config.push(ConfigValue { name: "lw_stamped", bytes: vec![1] });
    match Loaded::load(&half) {
        Ok(loaded) => Some(loaded),
        Err(e @ BpfError::NotPermitted { .. }) => {
            skip(e);
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A loaded program and its user-space part.
pub(crate) struct Program {
    app: KernelEcho,
    loaded: Loaded,
}

impl Program {
    pub(crate) fn load(config: &Config) -> Option<Program> {
        Program::load_object(config, OBJECT)
    }

    /// The same program without frames in fragments.
    pub(crate) fn load_linear(config: &Config) -> Option<Program> {
        Program::load_object(config, OBJECT_LINEAR)
    }

    fn load_object(config: &Config, object: &'static [u8]) -> Option<Program> {
        let app = KernelEcho::new(config).unwrap_or_else(|e| panic!("{e}"));
        let loaded = load(KernelHalf { object, ..app.half() })?;
        Some(Program { app, loaded })
    }

    /// The verdict on a frame, and its bytes afterwards.
    pub(crate) fn verdict(&self, sent: &Sent) -> (u32, Vec<u8>) {
        let stamp = sent.at_ns.to_ne_bytes();
        let input = RunInput { frame: &sent.bytes, meta: &stamp, repeat: 1 };
        let output = prog_run(self.loaded.program(), input).unwrap_or_else(|e| panic!("{e}"));
        (output.verdict, output.frame)
    }

    /// Checks that verdict and bytes of every frame, and the counts of all, are those expected.
    pub(crate) fn agrees(&mut self, what: &str, frames: &[Sent], expected: &[Outcome]) {
        assert_eq!(frames.len(), expected.len());
        let (before, drops_before) = (self.fates(), self.drops());
        let (mut fates, mut drops) = (before, drops_before);
        for (sent, outcome) in frames.iter().zip(expected).filter(|(sent, _)| runs(sent)) {
            let (verdict, bytes) = self.verdict(sent);
            assert_eq!(verdict, action(outcome.fate), "{what}: {outcome:?} of {sent:02x?}");
            assert!(bytes == outcome.bytes, "{what}: {outcome:02x?}, in the kernel {bytes:02x?}");
            fates[outcome.fate as usize] += 1;
            if let Class::Dropped(reason) = outcome.fate.class() {
                drops[reason as usize] += 1;
            }
        }
        let after = self.fates();
        for &fate in Fate::ALL {
            let now = (fates[fate as usize], after[fate as usize]);
            assert_eq!(now.0, now.1, "{what}: frames with fate {fate:?}");
        }
        assert_eq!(drops, self.drops(), "{what}: drops by reason");
        assert_eq!(self.app.unread(), 0);
    }

    /// What the app reads on a tick, and its core counters with it.
    fn fates(&mut self) -> Vec<u64> {
        self.app.on_tick(self.loaded.maps(), Turn::default());
        let fates: &Fates = self.app.fates();
        let counters = self.app.counters();
        assert_eq!(counters.rx_frames, fates.total());
        assert_eq!((counters.tx_frames, counters.passed), (fates.answered(), fates.passed()));
        Fate::ALL.iter().map(|&fate| fates.of(fate)).collect()
    }

    fn drops(&self) -> Vec<u64> {
        let drops = self.loaded.maps().per_cpu_sums("drops").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(drops.len(), DropReason::COUNT);
        drops
    }

    /// Forgets what the limits know.
    pub(crate) fn forget(&self) {
        let maps = self.loaded.maps();
        let mut known = Vec::new();
        maps.visit("sources", &mut |key, _| known.push(key.to_vec())).expect("it is there");
        known.iter().for_each(|key| maps.remove("sources", key).expect("it is a hash map"));
        maps.put("due", &[0; 4], &[0; 8]).expect("a value of its length");
    }

    pub(crate) fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}

fn action(fate: Fate) -> u32 {
    match fate.class() {
        Class::Answered => XDP_TX,
        Class::Passed => XDP_PASS,
        Class::Dropped(_) => XDP_DROP,
    }
}
