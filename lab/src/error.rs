//! Why there is no result: of a race as a whole, of its scenario, of its traffic. Below everything that may fail.

use laneway_capture::CaptureError;
use laneway_core::LaneError;

/// Why a race did not come to a result.
#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    /// The scenario cannot be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The traffic cannot be replayed.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The namespaces or the cable cannot be made.
    #[error(transparent)]
    Bench(#[from] laneway_netns::Error),
    /// The CPU meter cannot be attached.
    #[error("the CPU meter: {0}")]
    Meter(#[from] laneway_bpf::BpfError),
    /// The CPU meter cannot be read.
    #[error("the CPU meter: {0}")]
    Read(#[from] LaneError),
    /// A child failed.
    #[error("{what}: {why}")]
    Child {
        /// Which.
        what: String,
        /// In its own words.
        why: String,
    },
    /// The result is not wanted any more.
    #[error("the race was interrupted; nothing was left behind and no result was written")]
    Interrupted,
    /// The same, behind fewer generations than can be judged.
    #[error(
        "the race was interrupted behind {generations} of the {needed} generations that a verdict takes; nothing was \
         left behind and no result was written"
    )]
    InterruptedEarly {
        /// Those that were measured.
        generations: usize,
        /// As many have an interval.
        needed: usize,
    },
    /// Something failed when part of the race was measured.
    #[error(
        "{error}; that was in generation {generation}, {seconds} s after the first began, and no result was written"
    )]
    Ended {
        /// In which generation of fresh processes, from 1.
        generation: usize,
        /// How long it had been measured.
        seconds: u64,
        /// What.
        error: Box<RaceError>,
    },
    /// The result cannot be written.
    #[error("cannot write {path}: {source}; give another folder with --out")]
    Write {
        /// Where to.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("scenario {path}: {source}; give a scenario file, or the name of a shipped one")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no scenario.
    #[error("scenario {path}: {why}")]
    Parse {
        /// The file.
        path: String,
        /// Where and what.
        why: String,
    },
    /// A value that cannot be.
    #[error("scenario: {what} is {value}; {hint}")]
    Value {
        /// Which.
        what: String,
        /// As given.
        value: String,
        /// What it may be.
        hint: String,
    },
}

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// It cannot be read.
    #[error("{path}: {source}; give another capture with --pcap")]
    Capture {
        /// The file.
        path: String,
        /// Why.
        source: CaptureError,
    },
    /// Nothing in it fits the wire.
    #[error(
        "{path}: none of its {frames} frames can be replayed (Ethernet, captured whole, 14 to \
         {frame_bytes_max} bytes); give another capture with --pcap"
    )]
    Nothing {
        /// The file.
        path: String,
        /// Frames in it.
        frames: usize,
        /// The longest that the wire of this race carries, bytes.
        frame_bytes_max: usize,
    },
    /// All of its frames have the same time stamp.
    #[error(
        "{path}: its frames have no times of their own, so it cannot say when they arrive; take `arrivals` out of \
         the scenario, or give another capture with --pcap"
    )]
    NoTimes {
        /// The file.
        path: String,
    },
    /// More frames than the generator's map holds.
    #[error("{path}: {frames} frames, at most {frames_max} are replayed; cut it with `editcap -r`")]
    TooMany {
        /// The file.
        path: String,
        /// Frames that fit the wire.
        frames: usize,
        /// Frames that the map holds.
        frames_max: usize,
    },
}
