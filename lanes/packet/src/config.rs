//! The lane's knobs: what a spec asks for, checked before anything is opened.
//!
//! Assumes nothing about the machine. What must always hold: a [`Config`] that exists is consistent:
//! its mode is one. A knob of another
//! mode is refused, not ignored.

use laneway_core::{
    BURST_FRAMES_MAX, Cap, CapSet, HEADROOM_BYTES_MIN, LaneError, PortId, RCVBUF_BYTES_DEFAULT,
};
use laneway_linux::{Facts, TAG_BYTES};
use laneway_spec::{Knobs, LaneSpec, SpecError};

/// The lane's name in specs, results and messages.
pub(crate) const NAME: &str = "packet";

/// Buffers of one port's pool.
const FRAMES_DEFAULT: usize = 1024;
const FRAMES_MAX: usize = 1 << 16;
/// Bytes of a frame that a buffer takes. The longest a kernel hands over is 64 KiB and headers.
const FRAME_BYTES_DEFAULT: usize = 2048;
const FRAME_BYTES_MAX: usize = 1 << 17;
/// Short enough to test truncation, long enough for the Ethernet header and a tag.
const FRAME_BYTES_MIN: usize = 64;
/// Bytes that a socket may queue, as asked; the kernel grants twice that for its own overhead.
const RCVBUF_BYTES_MAX: usize = 1 << 30;
/// A block must hold one frame of 16 KiB or so; large blocks need memory in one piece.
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 1 << 14..=1 << 22;
const BLOCK_BYTES_DEFAULT: usize = 1 << 18;
const BLOCKS_DEFAULT: usize = 64;
const BLOCKS_MAX: usize = 4096;
/// All blocks of one port together.
const RING_BYTES_MAX: usize = 1 << 30;
/// Milliseconds after which the kernel hands over a block that is not full.
const BLOCK_TIMEOUT_MS_DEFAULT: usize = 1;
const BLOCK_TIMEOUT_MS_MAX: usize = 1000;
/// Where a frame is received in its buffer: room for the contract's headroom and a tag, and such
/// that the network header behind 14 bytes of Ethernet lies on 16 bytes.
pub(crate) const FRAME_AT: usize = 146;
/// Buffers start at a cache line.
const ALIGN_BYTES: usize = 64;

const _: () =
    assert!(FRAME_AT >= HEADROOM_BYTES_MIN + TAG_BYTES && (FRAME_AT + 14).is_multiple_of(16));

/// How frames come out of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One `recvmsg` call per frame.
    Single,
    /// One `recvmmsg` call per this many frames.
    Many(usize),
    /// In place, in a TPACKET_V3 ring.
    Ring(RingSize),
}

/// The measures of a TPACKET_V3 ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingSize {
    pub(crate) block_bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) timeout_ms: usize,
}

/// How the kernel spreads frames over the sockets of one group (`PACKET_FANOUT_*`).
///
/// Without `PACKET_FANOUT_FLAG_DEFRAG`, which would put fragments together before they are spread:
/// the lane shows frames as they were on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fanout {
    pub(crate) name: &'static str,
    pub(crate) kind: libc::c_int,
    /// Group of port 0; each further port has the next one.
    pub(crate) group: u16,
}

impl Fanout {
    /// The group of one port.
    pub(crate) fn group_of(self, port: PortId) -> u16 {
        self.group.wrapping_add(port.0 as u16)
    }
}

/// The names of `fanout=`.
const FANOUTS: [(&str, libc::c_uint); 4] = [
    ("hash", libc::PACKET_FANOUT_HASH),
    ("cpu", libc::PACKET_FANOUT_CPU),
    ("qm", libc::PACKET_FANOUT_QM),
    ("lb", libc::PACKET_FANOUT_LB),
];
const FANOUT_NAMES: &str = "use hash, cpu, qm or lb";

/// The knobs of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) frames: usize,
    pub(crate) frame_bytes: usize,
    /// `frame=` was given.
    pub(crate) is_frame_fixed: bool,
    pub(crate) burst: usize,
    pub(crate) rcvbuf_bytes: usize,
    pub(crate) kernel_stamps: bool,
    pub(crate) qdisc_bypass: bool,
    pub(crate) fanout: Option<Fanout>,
    pub(crate) allowed_missing: CapSet,
}

impl Config {
    /// Reads every knob of `spec`; `group` is the fan-out group if the spec names none.
    pub(crate) fn read(spec: &LaneSpec, group: u16) -> Result<Config, LaneError> {
        if spec.lane() != NAME {
            return Err(spec.unknown_lane(&[NAME]).into());
        }
        let knobs = spec.knobs();
        let mode = read_mode(&knobs)?;
        let frames = knobs.number("frames", FRAMES_DEFAULT, 2..=FRAMES_MAX)?;
        let frame_range = FRAME_BYTES_MIN..=FRAME_BYTES_MAX;
        let config = Config {
            mode,
            frames,
            frame_bytes: knobs.number("frame", FRAME_BYTES_DEFAULT, frame_range)?,
            is_frame_fixed: knobs.text("frame")?.is_some(),
            burst: knobs.burst()?,
            rcvbuf_bytes: knobs.number("rcvbuf", RCVBUF_BYTES_DEFAULT, 1..=RCVBUF_BYTES_MAX)?,
            kernel_stamps: read_stamps(&knobs, mode)?,
            qdisc_bypass: knobs.flag("qdisc_bypass")?,
            fanout: read_fanout(&knobs, group)?,
            allowed_missing: knobs.allowed_missing()?,
        };
        knobs.idle()?;
        knobs.finish()?;
        Ok(config)
    }

    /// The same, with buffers for the frames of this interface unless their size was given.
    pub(crate) fn following(mut self, interface: Facts) -> Config {
        if !self.is_frame_fixed {
            self.frame_bytes = interface.buffer_bytes(self.frame_bytes);
        }
        self
    }

    /// Bytes from one buffer of the pool to the next.
    pub(crate) fn buffer_bytes(&self) -> usize {
        (FRAME_AT + self.frame_bytes).next_multiple_of(ALIGN_BYTES)
    }

    /// Bytes of the ring of one port; 0 without one.
    pub(crate) fn ring_bytes(&self) -> usize {
        match self.mode {
            Mode::Ring(size) => size.block_bytes * size.blocks,
            Mode::Single | Mode::Many(_) => 0,
        }
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self) -> CapSet {
        CapSet::default().with(Cap::Transmit).with_if(Cap::KernelTimestamps, self.kernel_stamps)
    }
}

fn read_mode(knobs: &Knobs<'_>) -> Result<Mode, SpecError> {
    let ring = knobs.flag("ring")? | knobs.flag("batch")?;
    // 0 is outside the range, so it can only be the absent knob.
    let mmsg = knobs.number("mmsg", 0, 1..=BURST_FRAMES_MAX)?;
    let block_bytes = knobs.power_of_two("block", BLOCK_BYTES_DEFAULT, BLOCK_BYTES)?;
    let blocks = knobs.number("blocks", BLOCKS_DEFAULT, 2..=BLOCKS_MAX)?;
    let timeout_ms = knobs.number("timeout", BLOCK_TIMEOUT_MS_DEFAULT, 1..=BLOCK_TIMEOUT_MS_MAX)?;
    if ring {
        if let Some(value) = knobs.text("mmsg")? {
            return Err(knobs.bad("mmsg", value, "contradicts ring (batch); keep one of them"));
        }
        if let Some(value) = knobs.text("rcvbuf")? {
            return Err(knobs.bad(
                "rcvbuf",
                value,
                "a ring has its own memory: use block= and blocks=",
            ));
        }
        if block_bytes * blocks > RING_BYTES_MAX {
            let want =
                format!("{blocks} blocks of {block_bytes} bytes exceed 1 GiB; lower one of them");
            return Err(knobs.bad("blocks", &blocks.to_string(), want));
        }
        return Ok(Mode::Ring(RingSize { block_bytes, blocks, timeout_ms }));
    }
    for knob in ["block", "blocks", "timeout"] {
        if let Some(value) = knobs.text(knob)? {
            return Err(knobs.bad(knob, value, "belongs to a ring: write packet:ring as well"));
        }
    }
    Ok(if mmsg > 0 { Mode::Many(mmsg) } else { Mode::Single })
}

/// True when the kernel is to stamp frames.
fn read_stamps(knobs: &Knobs<'_>, mode: Mode) -> Result<bool, SpecError> {
    match (knobs.text("timestamps")?, mode) {
        (Some("kernel"), _) | (None, Mode::Ring(_)) => Ok(true),
        (None | Some("lane"), Mode::Single | Mode::Many(_)) => Ok(false),
        (Some("lane"), Mode::Ring(_)) => {
            Err(knobs.bad("timestamps", "lane", "the ring carries the kernel's stamps: use kernel"))
        }
        (Some(other), _) => Err(knobs.bad("timestamps", other, "use lane or kernel")),
    }
}

fn read_fanout(knobs: &Knobs<'_>, group: u16) -> Result<Option<Fanout>, SpecError> {
    let group = knobs.number("group", usize::from(group), 0..=usize::from(u16::MAX))? as u16;
    let Some(name) = knobs.text("fanout")? else {
        return match knobs.text("group")? {
            Some(value) => Err(knobs.bad("group", value, "needs fanout=hash, cpu, qm or lb")),
            None => Ok(None),
        };
    };
    match FANOUTS.iter().find(|(known, _)| *known == name) {
        Some(&(name, kind)) => Ok(Some(Fanout { name, kind: kind as libc::c_int, group })),
        None => Err(knobs.bad("fanout", name, FANOUT_NAMES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Result<Config, String> {
        Config::read(&spec.parse().expect("well formed"), 77).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn refused(spec: &str, words: &str) {
        let message = read(spec).expect_err(spec);
        assert!(message.contains(words), "{message}");
    }

    #[test]
    fn the_modes_have_their_names() {
        assert_eq!(read("packet").unwrap().mode, Mode::Single);
        assert_eq!(read("packet:mmsg=32").unwrap().mode, Mode::Many(32));
        let size = RingSize { block_bytes: 1 << 18, blocks: 64, timeout_ms: 1 };
        assert_eq!(read("packet:ring").unwrap().mode, Mode::Ring(size));
        assert_eq!(read("packet:batch"), read("packet:ring"));
    }

    #[test]
    fn only_who_asks_or_uses_a_ring_gets_kernel_stamps() {
        assert!(!read("packet").unwrap().requested().has(Cap::KernelTimestamps));
        for spec in ["packet:ring", "packet:timestamps=kernel", "packet:mmsg=8,timestamps=kernel"] {
            assert!(read(spec).unwrap().requested().has(Cap::KernelTimestamps), "{spec}");
        }
        refused("packet:ring,timestamps=lane", "use kernel");
        refused("packet:timestamps=hardware", "use lane or kernel");
    }

    #[test]
    fn knobs_of_another_mode_are_refused() {
        refused("packet:ring,mmsg=8", "contradicts ring");
        refused("packet:ring,rcvbuf=1m", "block= and blocks=");
        refused("packet:blocks=8", "packet:ring");
        refused("packet:group=8", "needs fanout");
    }

    #[test]
    fn the_group_of_the_spec_wins_and_each_port_has_its_own() {
        let group = |spec: &str, port| read(spec).unwrap().fanout.unwrap().group_of(PortId(port));
        for name in ["hash", "cpu", "qm", "lb"] {
            assert_eq!(group(&format!("packet:ring,fanout={name}"), 0), 77);
        }
        assert_eq!(group("packet:fanout=hash,group=5", 3), 8);
        assert_eq!(group("packet:fanout=hash,group=65535", 1), 0);
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        refused("packet:mmsg=0", "from 1 to 1024");
        refused("packet:ring,block=100000", "power of two");
        refused("packet:ring,block=4m,blocks=4096", "exceed 1 GiB");
        refused("packet:fanout=random", "use hash, cpu, qm or lb");
        refused("packet:fanout=hash,group=70000", "from 0 to 65535");
        refused("packet:qdisc-bypass", "did you mean `qdisc_bypass`?");
    }
}
