//! The lane's knobs: what a spec asks for, checked before anything is opened.
//!
//! Assumes nothing about the machine. What must always hold: a `Config` that exists is consistent
//! (the UMEM has frames for every place they can be, the modes do not contradict each other). What
//! it does not do: it does not know what the kernel will grant.

use laneway_core::{Cap, CapSet, LaneError};
use laneway_spec::{LaneSpec, SpecError};
use std::time::Duration;

/// Entries that one ring may have.
const RING_ENTRIES_MAX: usize = 1 << 16;
/// Frames per port that a UMEM may have.
const FRAMES_MAX: usize = 1 << 20;
/// Queues the XSKMAP has room for; `XSKS_ENTRIES` in `afxdp.bpf.c`.
pub(crate) const QUEUES_MAX: usize = 64;
/// Default of the `busy_budget` knob, the most packets the kernel polls per call.
const BUSY_BUDGET_DEFAULT: usize = 64;

/// How frames are to travel between kernel and UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMode {
    /// Copied, as every driver can.
    Copy,
    /// Not copied.
    ZeroCopy,
}

/// Preferred busy polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusyPoll {
    /// How long the kernel polls, in microseconds (`SO_BUSY_POLL`).
    pub(crate) time: Duration,
    /// Packets per poll (`SO_BUSY_POLL_BUDGET`).
    pub(crate) budget: u32,
}

/// The knobs of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) frames_per_port: u32,
    pub(crate) frame_bytes: usize,
    pub(crate) rx_entries: u32,
    pub(crate) tx_entries: u32,
    pub(crate) fill_entries: u32,
    pub(crate) queue: u32,
    /// Behind the last queue that any worker serves.
    pub(crate) queues_end: u32,
    pub(crate) burst_frames: usize,
    pub(crate) copy_mode: CopyMode,
    pub(crate) generic: bool,
    pub(crate) need_wakeup: bool,
    pub(crate) busy_poll: Option<BusyPoll>,
    pub(crate) multi_buffer: bool,
    pub(crate) hugepages: bool,
    pub(crate) allowed_missing: CapSet,
}

impl Config {
    /// Reads every knob of `spec`.
    pub(crate) fn read(spec: &LaneSpec) -> Result<Config, LaneError> {
        let knobs = spec.knobs();
        let queue = knobs.number("queue", 0, 0..=QUEUES_MAX - 1)? as u32;
        let copy = knobs.flag("copy")?;
        let zero_copy = knobs.flag("zero-copy")?;
        let generic = knobs.flag("generic")?;
        let busy_poll_us = knobs.number("busy_poll", 0, 0..=10_000)?;
        let busy_budget = knobs.number("busy_budget", BUSY_BUDGET_DEFAULT, 1..=u16::MAX.into())?;
        let need_wakeup = match knobs.text("need_wakeup")? {
            None | Some("on") => true,
            Some("off") => false,
            Some(other) => return Err(knobs.bad("need_wakeup", other, "use on or off").into()),
        };
        let frame_bytes = knobs.power_of_two("frame", 2048, 2048..=4096)?;
        let config = Config {
            frames_per_port: knobs.number("frames", 4096, 1..=FRAMES_MAX)? as u32,
            frame_bytes,
            rx_entries: knobs.power_of_two("rx", 2048, 1..=RING_ENTRIES_MAX)? as u32,
            tx_entries: knobs.power_of_two("tx", 2048, 1..=RING_ENTRIES_MAX)? as u32,
            fill_entries: knobs.power_of_two("fill", 2048, 1..=RING_ENTRIES_MAX)? as u32,
            queue,
            queues_end: queue + 1,
            burst_frames: knobs.burst()?,
            copy_mode: if zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy },
            generic,
            need_wakeup,
            busy_poll: (busy_poll_us > 0).then_some(BusyPoll {
                time: Duration::from_micros(busy_poll_us as u64),
                budget: busy_budget as u32,
            }),
            multi_buffer: knobs.flag("sg")?,
            hugepages: knobs.flag("hugepages")?,
            allowed_missing: knobs.allowed_missing()?,
        };
        if copy && zero_copy {
            return Err(knobs.bad("copy", "on", "contradicts zero-copy; keep one of them").into());
        }
        if generic && zero_copy {
            let want =
                "contradicts zero-copy, which needs the program in the driver; keep one of them";
            return Err(knobs.bad("generic", "on", want).into());
        }
        config
            .check_frames()
            .map_err(|want| knobs.bad("frames", &config.frames_per_port.to_string(), want))?;
        // The worker follows it; here it only has to be one.
        knobs.idle()?;
        knobs.finish()?;
        Ok(config)
    }

    /// Refuses a UMEM that cannot fill the fill ring while a burst is out.
    fn check_frames(&self) -> Result<(), String> {
        let need = self.fill_entries as usize + self.burst_frames;
        if self.frames_per_port as usize >= need {
            return Ok(());
        }
        Err(format!(
            "umem too small: {} frames per port, need {need} (fill {} + burst {}); \
             raise frames=, or lower fill=",
            self.frames_per_port, self.fill_entries, self.burst_frames
        ))
    }

    /// Changes the knobs so that they no longer ask for `cap`; false when they did not, or when no
    /// knob makes a difference.
    pub(crate) fn do_without(&mut self, cap: Cap) -> bool {
        let asked = self.requested().has(cap);
        match cap {
            Cap::ZeroCopy => self.copy_mode = CopyMode::Copy,
            Cap::NativeXdp => self.generic = true,
            Cap::MultiBuffer => self.multi_buffer = false,
            Cap::BusyPoll => self.busy_poll = None,
            _ => return false,
        }
        asked
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self) -> CapSet {
        CapSet::default()
            .with(Cap::Transmit)
            .with(Cap::SharedMemory)
            .with_if(Cap::NativeXdp, !self.generic)
            .with_if(Cap::ZeroCopy, self.copy_mode == CopyMode::ZeroCopy)
            .with_if(Cap::NeedWakeup, self.need_wakeup)
            .with_if(Cap::BusyPoll, self.busy_poll.is_some())
            .with_if(Cap::MultiBuffer, self.multi_buffer)
    }
}

/// The lane's name in specs, results and messages.
pub(crate) const NAME: &str = "afxdp";

/// Refuses a spec of another lane: the registry's mistake, but a sentence all the same.
pub(crate) fn check_lane(spec: &LaneSpec) -> Result<(), SpecError> {
    if spec.lane() == NAME { Ok(()) } else { Err(spec.unknown_lane(&[NAME])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Result<Config, String> {
        Config::read(&spec.parse().expect("a spec")).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn refused(spec: &str, words: &[&str]) {
        let message = read(spec).expect_err(spec);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }

    #[test]
    fn the_defaults_ask_for_native_copy_mode_with_need_wakeup() {
        let config = read("afxdp").unwrap();
        assert_eq!((config.frames_per_port, config.frame_bytes), (4096, 2048));
        assert_eq!(config.copy_mode, CopyMode::Copy);
        let asked: Vec<Cap> = config.requested().iter().collect();
        assert_eq!(asked, [Cap::NativeXdp, Cap::NeedWakeup, Cap::Transmit, Cap::SharedMemory]);
    }

    #[test]
    fn knobs_ask_for_capabilities() {
        let config = read("afxdp:zero-copy,sg,busy_poll=20,need_wakeup=off").unwrap();
        for cap in [Cap::ZeroCopy, Cap::MultiBuffer, Cap::BusyPoll] {
            assert!(config.requested().has(cap), "{}", cap.name());
        }
        assert!(!config.requested().has(Cap::NeedWakeup));
        assert!(!read("afxdp:generic").unwrap().requested().has(Cap::NativeXdp));
    }

    #[test]
    fn a_umem_that_cannot_fill_its_places_is_refused_with_the_sum() {
        refused(
            "afxdp:frames=2048",
            &["umem too small: 2048", "need 2112 (fill 2048 + burst 64)", "raise frames="],
        );
    }

    #[test]
    fn contradictions_and_bad_values_are_refused() {
        refused("afxdp:copy,zero-copy", &["contradicts"]);
        refused("afxdp:generic,zero-copy", &["contradicts"]);
        refused("afxdp:rx=1000", &["power of two", "512 or 1024"]);
        refused("afxdp:frame=1024", &["from 2048 to 4096"]);
        refused("afxdp:need_wakeup=maybe", &["on or off"]);
        refused("afxdp:zerocopy", &["did you mean `zero-copy`?"]);
    }
}
