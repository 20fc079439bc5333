//! Running a kernel half on the CPU that a frame's flow hashes to (knob `cpus`).
//!
//! ```text
//!   driver's CPU                        the flow's CPU
//!   entry program ─ hash ─▶ queue ────▶ kthread runs the half's program ─▶ pass or drop
//!        │ counted             │ full: counted by a tracepoint       │ counted by the half
//!        ▼                     ▼                                     ▼
//!      entered        =     dropped                +               seen        (when all is drained)
//! ```
//!
//! A CPUMAP is redirected to; the half's program is loaded once more for it (`BPF_XDP_CPUMAP`) and set
//! as the program of every entry. Such a program may pass, drop and redirect, and what it sends by
//! `XDP_TX` the kernel throws away: so only halves that never transmit are run like this. What must always
//! hold: the equation above, checked when the lane is detached; a difference is counted
//! as `rx_error`. What it does not do: it moves no interrupts; the entry program runs where the driver
//! receives.

use crate::LANE;
use laneway_bpf::{BpfError, Loaded, Tracing};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_spec::{Knobs, SpecError};
use std::{
    fs,
    os::fd::{AsRawFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

const ENTRY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spread.bpf.o"));
const DROPS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spread_drops.bpf.o"));
/// `LW_SPREAD_CPUS_MAX` of `bpf/spread.bpf.c`.
const CPUS_MAX: usize = 64;
/// Frames that wait for a CPU, unless a knob says otherwise, and the kernel's own bound.
const QUEUE_FRAMES_DEFAULT: usize = 2048;
const QUEUE_FRAMES_MAX: usize = 16_384;
/// How long a detached lane waits for the queues to drain, and how often it looks.
const DRAIN_WAIT: Duration = Duration::from_secs(2);
const DRAIN_LOOK: Duration = Duration::from_millis(1);

/// What the knobs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpreadKnobs {
    /// As given.
    text: String,
    cpus: Vec<usize>,
    queue_frames: u32,
}

impl SpreadKnobs {
    /// Reads `cpus` and `cpu_queue`; nothing without the former.
    pub(crate) fn read(knobs: &Knobs<'_>) -> Result<Option<SpreadKnobs>, SpecError> {
        let queue_frames =
            knobs.number("cpu_queue", QUEUE_FRAMES_DEFAULT, 1..=QUEUE_FRAMES_MAX)? as u32;
        let Some(text) = knobs.text("cpus")? else {
            return match knobs.text("cpu_queue")? {
                None => Ok(None),
                Some(text) => Err(knobs.bad("cpu_queue", text, "it is the queue of cpus=")),
            };
        };
        let want = format!("use CPUs like 0-1 or 0+2, each once, at most {CPUS_MAX}");
        let cpus = parse_cpus(text).ok_or_else(|| knobs.bad("cpus", text, want))?;
        Ok(Some(SpreadKnobs { text: text.to_owned(), cpus, queue_frames }))
    }

    /// Refuses CPUs that do not run.
    fn check_online(&self) -> Result<(), LaneError> {
        const ONLINE: &str = "/sys/devices/system/cpu/online";
        let listed = fs::read_to_string(ONLINE)
            .map_err(|e| LaneError::os(LANE, format!("read {ONLINE}"), e, "is /sys mounted?"))?;
        match self.cpus.iter().find(|&&cpu| !is_listed(&listed, cpu)) {
            None => Ok(()),
            Some(cpu) => Err(LaneError::NotFound {
                lane: LANE.to_owned(),
                what: "CPU",
                name: cpu.to_string(),
                hint: format!("use some of {}", listed.trim()),
            }),
        }
    }
}

/// Whether a list of the kernel's, such as `0-127,130`, has this CPU.
fn is_listed(list: &str, cpu: usize) -> bool {
    list.trim().split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

/// `0-1+4`: ranges joined by `+`.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last - first >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    let once = (0..cpus.len()).all(|i| !cpus[..i].contains(&cpus[i]));
    (once && cpus.len() <= CPUS_MAX).then_some(cpus)
}

/// The entry program, its map of CPUs, and the count of what found no place there.
pub(crate) struct Spread {
    entry: Loaded,
    drops: Tracing,
    knobs: SpreadKnobs,
}

/// What became of the frames so far, beside what the half has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spreading {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) queue_full: u64,
}

impl Spread {
    /// Sets everything up for `half`, whose program is loaded as `program` for a CPUMAP; attaches the entry
    /// program to nothing.
    ///
    /// # Errors
    /// A CPU that does not run; what the kernel refuses.
    pub(crate) fn new(
        knobs: SpreadKnobs,
        half: &KernelHalf,
        program: BorrowedFd<'_>,
    ) -> Result<Spread, LaneError> {
        knobs.check_online()?;
        if half.seen_map.is_none() {
            return Err(LaneError::Refused {
                lane: LANE.to_owned(),
                name: format!("cpus={}", knobs.text),
                why: format!("app {} counts no frames, so lost ones would have no name", half.name),
                hint: "leave cpus= out".to_owned(),
            });
        }
        let highest = knobs.cpus.iter().copied().max().unwrap_or(0) as u32;
        let mut list = [0u32; CPUS_MAX];
        for (to, cpu) in list.iter_mut().zip(&knobs.cpus) {
            *to = *cpu as u32;
        }
        let entry = Loaded::load(&KernelHalf {
            config: vec![
                ConfigValue {
                    name: "lw_cpus",
                    bytes: list.iter().flat_map(|cpu| cpu.to_ne_bytes()).collect(),
                },
                ConfigValue {
                    name: "lw_cpu_count",
                    bytes: (knobs.cpus.len() as u32).to_ne_bytes().to_vec(),
                },
            ],
            map_sizes: vec![("cpus", highest + 1)],
            ..KernelHalf::new("lw_spread", ENTRY, "spread")
        })
        .map_err(in_lane)?;
        // Before the first frame can be redirected.
        let id = entry.maps().id("cpus").map_err(in_lane)?;
        let config = [ConfigValue { name: "lw_map_id", bytes: id.to_ne_bytes().to_vec() }];
        let drops = Tracing::attach("lw_spread_drops", DROPS, &config).map_err(in_lane)?;
        // struct bpf_cpumap_val: the queue's length, the program's descriptor.
        let value = [knobs.queue_frames.to_ne_bytes(), program.as_raw_fd().to_ne_bytes()].concat();
        for cpu in &knobs.cpus {
            entry.maps().put("cpus", &(*cpu as u32).to_ne_bytes(), &value)?;
        }
        Ok(Spread { entry, drops, knobs })
    }

    /// The program to attach.
    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.entry.program()
    }

    /// What was granted, for reports.
    pub(crate) fn facts(&self) -> [(&'static str, String); 3] {
        [
            ("cpus", self.knobs.text.clone()),
            ("cpu_queue_frames", self.knobs.queue_frames.to_string()),
            ("verdicts", "pass, drop: behind a CPUMAP nothing transmits".to_owned()),
        ]
    }

    /// What arrived and what was dropped, until now.
    pub(crate) fn read(&self) -> Spreading {
        // Both maps are arrays of one entry: should a read fail, the frames count as not come.
        let entered = self.entry.maps().per_cpu_sums("entered").unwrap_or_default();
        let dropped = self.drops.maps().per_cpu_sums("dropped").unwrap_or_default();
        Spreading {
            frames: entered.first().copied().unwrap_or(0),
            bytes: entered.get(1).copied().unwrap_or(0),
            queue_full: dropped.first().copied().unwrap_or(0),
        }
    }

    /// After the entry program is detached: waits until every frame was seen or dropped, and returns what
    /// arrived; at most for two seconds.
    pub(crate) fn drain(&self, seen: impl Fn() -> u64) -> Spreading {
        let until = Instant::now() + DRAIN_WAIT;
        loop {
            let now = self.read();
            if now.frames <= seen() + now.queue_full || Instant::now() >= until {
                return now;
            }
            thread::sleep(DRAIN_LOOK);
        }
    }
}

fn in_lane(error: BpfError) -> LaneError {
    error.in_lane(LANE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_ranges_joined_by_a_plus_each_once() {
        assert_eq!(parse_cpus("0-1"), Some(vec![0, 1]));
        assert_eq!(parse_cpus("3"), Some(vec![3]));
        assert_eq!(parse_cpus("4-5+0"), Some(vec![4, 5, 0]));
        for text in ["", "a", "1-0", "0-64", "0+0", "0-2+1", "0-", "-1", "0,1"] {
            assert_eq!(parse_cpus(text), None, "{text}");
        }
    }

    #[test]
    fn a_machine_may_have_more_cpus_than_are_asked_for() {
        assert!(is_listed("0-127\n", 0) && is_listed("0-127\n", 127) && !is_listed("0-127\n", 128));
        assert!(is_listed("0,2-3,130\n", 130) && !is_listed("0,2-3,130\n", 1));
        assert!(is_listed("0\n", 0) && !is_listed("", 0) && !is_listed("none", 0));
    }

    #[test]
    fn a_queue_belongs_to_cpus() {
        let read = |spec: &str| {
            let spec: laneway_spec::LaneSpec = spec.parse().unwrap();
            SpreadKnobs::read(&spec.knobs())
        };
        assert_eq!(read("xdp").unwrap(), None);
        let knobs = read("xdp:cpus=0+1,cpu_queue=64").unwrap().unwrap();
        assert_eq!((knobs.cpus, knobs.queue_frames), (vec![0, 1], 64));
        for spec in ["xdp:cpu_queue=64", "xdp:cpus=0+0", "xdp:cpus=0,cpu_queue=20000"] {
            assert!(read(spec).is_err(), "{spec}");
        }
    }
}
