//! The lane's knobs: what a spec asks for, checked before anything is opened.
//!
//! Assumes nothing about the machine. What must always hold: a configuration that exists is
//! consistent and its memory bounded. Each of the three shapes (datagrams, streams, frames) reads its
//! own knobs and refuses those of the others by name.

use laneway_core::{Cap, CapSet, LaneError, PortPlan, RCVBUF_BYTES_DEFAULT};
use laneway_linux::Facts;
use laneway_spec::{Knobs, LaneSpec, SpecError};

/// The lane's name in specs, results and messages.
pub(crate) const NAME: &str = "uring";

/// Submission queue entries.
const DEPTH_DEFAULT: usize = 256;
const DEPTH: std::ops::RangeInclusive<usize> = 2..=4096;
/// Provided buffers of a port (datagrams, frames) or of the worker (streams). The kernel's bound.
const BUFFERS: std::ops::RangeInclusive<usize> = 2..=1 << 15;
const DATAGRAM_BUFFERS_DEFAULT: usize = 512;
const TRAIN_BUFFERS_DEFAULT: usize = 128;
const STREAM_BUFFERS_DEFAULT: usize = 256;
const FRAME_BUFFERS_DEFAULT: usize = 1024;
/// Payload bytes of a provided buffer: Ethernet's datagrams, or whole trains.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 64..=1 << 16;
const DATAGRAM_BYTES_DEFAULT: usize = 2048;
const TRAIN_BYTES_DEFAULT: usize = 1 << 16;
const STREAM_BYTES_DEFAULT: usize = 1 << 14;
/// All provided buffers of one port together.
const BUFFERS_BYTES_MAX: usize = 1 << 30;
/// Entries of a batch, or arrivals of a turn.
const BATCH_DEFAULT: usize = 64;
const STREAM_BATCH_DEFAULT: usize = 256;
const BATCH_MAX: usize = 1024;
/// Bytes of a socket buffer.
const SOCKET_BYTES: std::ops::RangeInclusive<usize> = 4096..=1 << 30;
/// Connections of a worker when the spec names no number: as many as on the other lane of sockets,
/// or fewer where open files or send queues are bounded lower.
const CONNS_DEFAULT: usize = 1 << 14;
const CONNS_MAX: usize = 1 << 16;
/// Bytes that a connection may have queued: received and not consumed, or sent and not taken.
const QUEUE_BYTES_DEFAULT: usize = 256 << 10;
const QUEUE_BYTES: std::ops::RangeInclusive<usize> = 4096..=64 << 20;
/// All send queues of a worker together; only those in use take memory.
const QUEUES_BYTES_MAX: usize = 1 << 36;
/// Milliseconds for which the peer of a closed connection may take nothing of what is queued.
const CLOSE_MS_DEFAULT: usize = 30_000;
const CLOSE_MS: std::ops::RangeInclusive<usize> = 1..=3_600_000;
/// Seconds after which an idle peer is asked whether it still lives; five times that, and it is given up.
const KEEPALIVE_S_DEFAULT: usize = 60;
const KEEPALIVE_S: std::ops::RangeInclusive<usize> = 1..=32_767;
/// Microseconds of busy polling before a worker blocks.
const NAPI_US_MAX: usize = 1_000_000;
/// Bytes of a send from which on it may be made without a copy.
const ZERO_COPY_BYTES_MAX: usize = 1 << 20;
/// Buffers of a frame port that are for `lend` rather than received into.
const FRAMES_DEFAULT: usize = 1024;
const FRAMES_MAX: usize = 1 << 16;
/// Bytes of a frame that a buffer takes.
const FRAME_BYTES_DEFAULT: usize = 2048;
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 64..=1 << 17;

/// What every shape has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) depth: u32,
    /// NAPI busy polling, if asked for.
    pub(crate) napi_us: Option<u32>,
    pub(crate) allowed_missing: CapSet,
}

impl Common {
    fn read(knobs: &Knobs<'_>) -> Result<Common, SpecError> {
        knobs.idle()?;
        Ok(Common {
            depth: knobs.power_of_two("depth", DEPTH_DEFAULT, DEPTH)? as u32,
            napi_us: optional(knobs, "napi", 1..=NAPI_US_MAX)?.map(|us| us as u32),
            allowed_missing: knobs.allowed_missing()?,
        })
    }

    fn requested(&self) -> CapSet {
        CapSet::default()
            .with(Cap::Transmit)
            .with(Cap::Multishot)
            .with_if(Cap::BusyPoll, self.napi_us.is_some())
    }
}

/// What both kinds of internet socket have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sockets {
    pub(crate) sndbuf_bytes: Option<usize>,
    pub(crate) rcvbuf_bytes: Option<usize>,
    /// If none is asked for: as much of it as the host grants. None on streams, whose window the kernel fits to the
    /// connection.
    pub(crate) rcvbuf_bytes_default: Option<usize>,
    pub(crate) reuseport: bool,
    pub(crate) batch: usize,
    /// Zero-copy sends from so many bytes on.
    pub(crate) zero_copy_bytes: Option<usize>,
}

impl Sockets {
    /// As a port's plan has it.
    pub(crate) fn with_plan(self, plan: &PortPlan) -> Sockets {
        Sockets {
            sndbuf_bytes: plan.sndbuf_bytes.or(self.sndbuf_bytes),
            rcvbuf_bytes: plan.rcvbuf_bytes.or(self.rcvbuf_bytes),
            rcvbuf_bytes_default: Some(RCVBUF_BYTES_DEFAULT),
            ..self
        }
    }

    fn read(knobs: &Knobs<'_>, batch_default: usize) -> Result<Sockets, SpecError> {
        Ok(Sockets {
            sndbuf_bytes: optional(knobs, "sndbuf", SOCKET_BYTES)?,
            rcvbuf_bytes: optional(knobs, "rcvbuf", SOCKET_BYTES)?,
            rcvbuf_bytes_default: None,
            reuseport: knobs.flag("reuseport")?,
            batch: knobs.number("batch", batch_default, 1..=BATCH_MAX)?,
            zero_copy_bytes: optional(knobs, "send_zc", 1..=ZERO_COPY_BYTES_MAX)?,
        })
    }

    fn requested(&self) -> CapSet {
        CapSet::default()
            .with_if(Cap::SocketBuffers, self.sndbuf_bytes.is_some() || self.rcvbuf_bytes.is_some())
            .with_if(Cap::ReusePort, self.reuseport)
            .with_if(Cap::SendZeroCopy, self.zero_copy_bytes.is_some())
    }
}

/// Provided buffers as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provided {
    pub(crate) count: u16,
    pub(crate) bytes: usize,
}

impl Provided {
    fn read(knobs: &Knobs<'_>, count: usize, bytes: usize) -> Result<Provided, SpecError> {
        let count = knobs.power_of_two("buffers", count, BUFFERS)?;
        let bytes = knobs.number("buffer", bytes, BUFFER_BYTES)?;
        bounded(knobs, count, bytes)?;
        Ok(Provided { count: count as u16, bytes })
    }
}

fn bounded(knobs: &Knobs<'_>, count: usize, bytes: usize) -> Result<(), SpecError> {
    if count * bytes <= BUFFERS_BYTES_MAX {
        return Ok(());
    }
    let want = format!("{count} buffers of {bytes} bytes exceed 1 GiB; lower one of them");
    Err(knobs.bad("buffers", &count.to_string(), want))
}

/// The knobs of datagram ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpConfig {
    pub(crate) common: Common,
    pub(crate) sockets: Sockets,
    pub(crate) provided: Provided,
    pub(crate) gso: bool,
    pub(crate) gro: bool,
    pub(crate) kernel_stamps: bool,
}

impl UdpConfig {
    /// Reads every knob of `spec`.
    pub(crate) fn read(spec: &LaneSpec) -> Result<UdpConfig, LaneError> {
        let knobs = open(spec)?;
        let (gso, gro) = (knobs.flag("gso")?, knobs.flag("gro")?);
        let (buffers, bytes) = if gro {
            (TRAIN_BUFFERS_DEFAULT, TRAIN_BYTES_DEFAULT)
        } else {
            (DATAGRAM_BUFFERS_DEFAULT, DATAGRAM_BYTES_DEFAULT)
        };
        let config = UdpConfig {
            common: Common::read(&knobs)?,
            sockets: Sockets::read(&knobs, BATCH_DEFAULT)?,
            provided: Provided::read(&knobs, buffers, bytes)?,
            gso,
            gro,
            kernel_stamps: knobs.flag("timestamps")?,
        };
        knobs.finish()?;
        Ok(config)
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self, sockets: &Sockets) -> CapSet {
        join(self.common.requested(), sockets.requested())
            .with_if(Cap::Gso, self.gso)
            .with_if(Cap::Gro, self.gro)
            .with_if(Cap::KernelTimestamps, self.kernel_stamps)
    }

    /// What is asked of the kernel beside the bytes of datagrams.
    pub(crate) fn extras(&self) -> Extras {
        Extras { gso: self.gso, gro: self.gro, kernel_stamps: self.kernel_stamps }
    }
}

/// What goes or comes beside the bytes of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Trains are sent whole.
    pub(crate) gso: bool,
    /// Trains arrive uncut.
    pub(crate) gro: bool,
    /// The kernel stamps what arrives.
    pub(crate) kernel_stamps: bool,
}

/// The knobs of stream ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpConfig {
    pub(crate) common: Common,
    pub(crate) sockets: Sockets,
    pub(crate) provided: Provided,
    pub(crate) bundle: bool,
    /// Connections, if the spec names a number.
    pub(crate) conns: Option<usize>,
    pub(crate) queue_bytes: usize,
    /// How long the peer of a closed connection may take nothing of what is queued.
    pub(crate) close_ns: u64,
    /// How often an idle peer is asked whether it still lives.
    pub(crate) keepalive_s: usize,
}

impl TcpConfig {
    /// Reads every knob of `spec`.
    pub(crate) fn read(spec: &LaneSpec) -> Result<TcpConfig, LaneError> {
        let knobs = open(spec)?;
        let config = TcpConfig {
            common: Common::read(&knobs)?,
            sockets: Sockets::read(&knobs, STREAM_BATCH_DEFAULT)?,
            provided: Provided::read(&knobs, STREAM_BUFFERS_DEFAULT, STREAM_BYTES_DEFAULT)?,
            bundle: knobs.flag("bundle")?,
            conns: optional(&knobs, "conns", 1..=CONNS_MAX)?,
            queue_bytes: knobs.number("queue", QUEUE_BYTES_DEFAULT, QUEUE_BYTES)?,
            close_ns: knobs.number("close", CLOSE_MS_DEFAULT, CLOSE_MS)? as u64 * 1_000_000,
            keepalive_s: knobs.number("keepalive", KEEPALIVE_S_DEFAULT, KEEPALIVE_S)?,
        };
        let conns = config.conns.unwrap_or(1);
        if conns * config.queue_bytes > QUEUES_BYTES_MAX {
            let want = format!(
                "{conns} queues of {} bytes exceed 64 GiB; lower conns= or queue=",
                config.queue_bytes
            );
            return Err(knobs.bad("queue", &config.queue_bytes.to_string(), want).into());
        }
        knobs.finish()?;
        Ok(config)
    }

    /// Connections that were asked for, and as many as there are when nothing bounds them lower.
    pub(crate) fn conns_wanted(&self) -> (Option<usize>, usize) {
        (self.conns, CONNS_DEFAULT.min(QUEUES_BYTES_MAX / self.queue_bytes).max(1))
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self) -> CapSet {
        join(self.common.requested(), self.sockets.requested()).with_if(Cap::Bundle, self.bundle)
    }
}

/// The knobs of frame ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramesConfig {
    pub(crate) common: Common,
    pub(crate) burst: usize,
    /// Buffers to receive into.
    pub(crate) buffers: u16,
    /// Buffers to lend.
    pub(crate) frames: usize,
    pub(crate) frame_bytes: usize,
    /// `frame=` was given.
    pub(crate) is_frame_fixed: bool,
    pub(crate) rcvbuf_bytes: usize,
}

impl FramesConfig {
    /// The same, with buffers for the frames of this interface unless their size was given.
    pub(crate) fn following(mut self, interface: Facts) -> FramesConfig {
        if !self.is_frame_fixed {
            self.frame_bytes = interface.buffer_bytes(self.frame_bytes);
        }
        self
    }

    /// Reads every knob of `spec`.
    pub(crate) fn read(spec: &LaneSpec) -> Result<FramesConfig, LaneError> {
        let knobs = open(spec)?;
        let buffers = knobs.power_of_two("buffers", FRAME_BUFFERS_DEFAULT, BUFFERS)?;
        let config = FramesConfig {
            common: Common::read(&knobs)?,
            burst: knobs.burst()?,
            buffers: buffers as u16,
            frames: knobs.number("frames", FRAMES_DEFAULT, 1..=FRAMES_MAX)?,
            frame_bytes: knobs.number("frame", FRAME_BYTES_DEFAULT, FRAME_BYTES)?,
            is_frame_fixed: knobs.text("frame")?.is_some(),
            rcvbuf_bytes: knobs.number("rcvbuf", RCVBUF_BYTES_DEFAULT, SOCKET_BYTES)?,
        };
        bounded(&knobs, buffers + config.frames, config.frame_bytes)?;
        knobs.finish()?;
        Ok(config)
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self) -> CapSet {
        self.common.requested()
    }
}

fn open(spec: &LaneSpec) -> Result<Knobs<'_>, LaneError> {
    if spec.lane() != NAME {
        return Err(spec.unknown_lane(&[NAME]).into());
    }
    Ok(spec.knobs())
}

/// A number that may be left out.
fn optional(
    knobs: &Knobs<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, SpecError> {
    let least = *range.start();
    let number = knobs.number(name, least, range)?;
    Ok(knobs.text(name)?.map(|_| number))
}

fn join(a: CapSet, b: CapSet) -> CapSet {
    b.iter().fold(a, CapSet::with)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> LaneSpec {
        text.parse().expect("well formed")
    }

    #[track_caller]
    fn refused<T>(read: Result<T, LaneError>, words: &str) {
        let message = read.err().expect("refused").to_string();
        assert!(message.contains(words), "{message}");
    }

    #[test]
    fn what_is_left_out_is_not_asked_for() {
        let plain = UdpConfig::read(&spec("uring")).unwrap();
        let asked = plain.requested(&plain.sockets);
        for cap in [Cap::Gso, Cap::Gro, Cap::SendZeroCopy, Cap::SocketBuffers, Cap::BusyPoll] {
            assert!(!asked.has(cap), "{}", cap.name());
        }
        assert!(asked.has(Cap::Multishot));
        assert_eq!((plain.common.depth, plain.sockets.rcvbuf_bytes), (256, None));
    }

    #[test]
    fn every_knob_asks_for_its_capability() {
        let udp = UdpConfig::read(&spec("uring:gso,gro,send_zc=16k,napi=50,rcvbuf=1m,reuseport"));
        let udp = udp.unwrap();
        let asked = udp.requested(&udp.sockets);
        for cap in [
            Cap::Gso,
            Cap::Gro,
            Cap::SendZeroCopy,
            Cap::SocketBuffers,
            Cap::BusyPoll,
            Cap::ReusePort,
        ] {
            assert!(asked.has(cap), "{}", cap.name());
        }
        assert!(TcpConfig::read(&spec("uring:bundle")).unwrap().requested().has(Cap::Bundle));
    }

    #[test]
    fn trains_get_buffers_that_hold_them() {
        assert_eq!(UdpConfig::read(&spec("uring")).unwrap().provided.bytes, 2048);
        assert_eq!(UdpConfig::read(&spec("uring:gro")).unwrap().provided.bytes, 1 << 16);
    }

    #[test]
    fn connections_are_bounded_by_queues_unless_a_number_is_given() {
        let wanted = |text: &str| TcpConfig::read(&spec(text)).unwrap().conns_wanted();
        assert_eq!(wanted("uring"), (None, 1 << 14));
        assert_eq!(wanted("uring:queue=64m"), (None, 1 << 10));
        assert_eq!(wanted("uring:conns=20000"), (Some(20_000), 1 << 14));
    }

    #[test]
    fn knobs_of_another_shape_are_refused() {
        refused(TcpConfig::read(&spec("uring:gso")), "no knob `gso`");
        refused(UdpConfig::read(&spec("uring:bundle")), "no knob `bundle`");
        refused(FramesConfig::read(&spec("uring:send_zc=1k")), "no knob `send_zc`");
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        refused(UdpConfig::read(&spec("uring:buffers=100")), "power of two");
        refused(UdpConfig::read(&spec("uring:depth=1")), "from 2 to 4096");
        refused(UdpConfig::read(&spec("uring:buffers=32768,buffer=64k")), "exceed 1 GiB");
        refused(TcpConfig::read(&spec("uring:conns=65536,queue=2m")), "exceed 64 GiB");
        refused(UdpConfig::read(&spec("uring:bufers=64")), "did you mean `buffers`?");
    }
}
