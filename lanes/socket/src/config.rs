//! The lane's knobs: what a spec asks for, checked before anything is opened.
//!
//! Assumes nothing about the machine. What must always hold: a configuration that exists is
//! consistent, and a knob of another mode (`gso` of a raw socket, `batch` of a stream) is refused, not
//! ignored.

use laneway_core::{
    BURST_FRAMES_DEFAULT, BURST_FRAMES_MAX, Cap, CapSet, LaneError, PortId, PortMask, PortPlan,
    RCVBUF_BYTES_DEFAULT,
};
use laneway_spec::{Knobs, LaneSpec, SpecError};
use std::{ffi::c_int, net::SocketAddr, ops::RangeInclusive};

/// The lane's name in specs, results and messages.
pub(crate) const NAME: &str = "socket";

/// The longest datagram or train that the kernel hands over, and a little.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// Short enough to test truncation, long enough for an IPv4 header with options and a little.
const BUFFER_BYTES_MIN: usize = 128;
/// Bytes that a socket may queue, as asked. The kernel knows no more than this.
const SOCKBUF_BYTES_MAX: usize = 1 << 30;
/// Microseconds; the kernel accepts more, but a worker must see its stop flag.
const BUSY_POLL_US_MAX: usize = 10_000;
/// Connections waiting to be accepted; the kernel bounds it by net.core.somaxconn.
const BACKLOG_DEFAULT: usize = 4096;
const BACKLOG_MAX: usize = 1 << 16;
/// Received bytes of one connection that the app has not consumed.
const CONN_BUFFER_BYTES_DEFAULT: usize = 64 << 10;
/// Bytes of one connection that the kernel has not taken.
const CONN_QUEUE_BYTES_DEFAULT: usize = 256 << 10;
const CONN_BYTES: RangeInclusive<usize> = 4096..=64 << 20;
/// Connections of one worker when the spec names no number, as on the other lane of sockets.
pub(crate) const CONNS_DEFAULT: usize = 16 << 10;
const CONNS_MAX: usize = 1 << 20;

/// Milliseconds for which the peer of a closed connection may take nothing of what is queued.
const CLOSE_MS_DEFAULT: usize = 30_000;
const CLOSE_MS: RangeInclusive<usize> = 1..=3_600_000;
/// Seconds after which an idle peer is asked whether it still lives; five times that, and it is given up.
const KEEPALIVE_S_DEFAULT: usize = 60;
const KEEPALIVE_S: RangeInclusive<usize> = 1..=32_767;

/// What both kinds of socket can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// SO_RCVBUF, if asked for.
    pub(crate) rcvbuf_bytes: Option<usize>,
    /// SO_RCVBUF if none is asked for, as much of it as the host grants. None on streams, whose window the kernel fits
    /// to the connection.
    pub(crate) rcvbuf_bytes_default: Option<usize>,
    /// SO_SNDBUF, if asked for.
    pub(crate) sndbuf_bytes: Option<usize>,
    pub(crate) busy_poll_us: Option<usize>,
    pub(crate) reuse_port: bool,
    pub(crate) allowed_missing: CapSet,
}

impl Shared {
    fn read(knobs: &Knobs<'_>) -> Result<Shared, SpecError> {
        // 0 is outside the ranges, so it can only be the absent knob.
        let some = |name, max| knobs.number(name, 0, 1..=max).map(|n| (n > 0).then_some(n));
        let shared = Shared {
            rcvbuf_bytes: some("rcvbuf", SOCKBUF_BYTES_MAX)?,
            rcvbuf_bytes_default: None,
            sndbuf_bytes: some("sndbuf", SOCKBUF_BYTES_MAX)?,
            busy_poll_us: some("busy_poll", BUSY_POLL_US_MAX)?,
            reuse_port: knobs.flag("reuseport")?,
            allowed_missing: knobs.allowed_missing()?,
        };
        knobs.idle()?;
        Ok(shared)
    }

    /// As a port's plan has it.
    pub(crate) fn with_plan(self, plan: &PortPlan) -> Shared {
        Shared {
            rcvbuf_bytes: plan.rcvbuf_bytes.or(self.rcvbuf_bytes),
            rcvbuf_bytes_default: Some(RCVBUF_BYTES_DEFAULT),
            sndbuf_bytes: plan.sndbuf_bytes.or(self.sndbuf_bytes),
            ..self
        }
    }

    fn requested(&self) -> CapSet {
        CapSet::default()
            .with(Cap::Transmit)
            .with_if(Cap::SocketBuffers, self.rcvbuf_bytes.or(self.sndbuf_bytes).is_some())
            .with_if(Cap::BusyPoll, self.busy_poll_us.is_some())
            .with_if(Cap::ReusePort, self.reuse_port)
    }
}

/// What travels in a datagram socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// UDP payloads.
    Udp,
    /// What follows the IP header, of this protocol.
    Raw(c_int),
    /// Echo requests: ICMP or ICMPv6, whichever goes with the address.
    Pings,
}

impl Carries {
    /// The IP protocol of the socket at an address of this family.
    pub(crate) fn protocol(self, is_ipv4: bool) -> c_int {
        match self {
            Carries::Udp => libc::IPPROTO_UDP,
            Carries::Raw(protocol) => protocol,
            Carries::Pings if is_ipv4 => libc::IPPROTO_ICMP,
            Carries::Pings => libc::IPPROTO_ICMPV6,
        }
    }
}

/// The knobs of a datagram lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramConfig {
    pub(crate) shared: Shared,
    pub(crate) carries: Carries,
    /// Entries that the app is shown at once.
    pub(crate) burst: usize,
    /// One system call per burst, not one per entry.
    pub(crate) many: bool,
    /// Bytes of a receive buffer.
    pub(crate) buffer_bytes: usize,
    pub(crate) gso: bool,
    pub(crate) gro: bool,
    pub(crate) kernel_stamps: bool,
    /// TTL and hop limit of what is sent, if asked for.
    pub(crate) ttl: Option<u8>,
    /// Keep the kernel from answering pings too.
    pub(crate) mute: bool,
}

impl DatagramConfig {
    /// Reads every knob of `spec` for sockets at `listen`.
    pub(crate) fn read(spec: &LaneSpec, listen: &[SocketAddr]) -> Result<Self, LaneError> {
        check_lane(spec, listen, 0..=PortId::OPEN_MAX)?;
        let knobs = spec.knobs();
        let batch = knobs.number("batch", 0, 1..=BURST_FRAMES_MAX)?;
        let burst = knobs.number("burst", 0, 1..=BURST_FRAMES_MAX)?;
        if batch > 0 && burst > 0 {
            let want = "batch= says the same and more; leave one of them out";
            return Err(knobs.bad("burst", &burst.to_string(), want).into());
        }
        let buffer_range = BUFFER_BYTES_MIN..=DATAGRAM_BYTES_MAX;
        let config = DatagramConfig {
            shared: Shared::read(&knobs)?,
            carries: read_raw(&knobs)?,
            burst: match batch.max(burst) {
                0 => BURST_FRAMES_DEFAULT,
                entries => entries,
            },
            many: batch > 0,
            buffer_bytes: knobs.number("buffer", DATAGRAM_BYTES_MAX, buffer_range)?,
            gso: knobs.flag("gso")?,
            gro: knobs.flag("gro")?,
            kernel_stamps: knobs.flag("timestamps")?,
            // 0 is outside the range, so it can only be the absent knob.
            ttl: Some(knobs.number("ttl", 0, 1..=255)? as u8).filter(|&ttl| ttl > 0),
            mute: knobs.flag("mute")?,
        };
        if config.mute && config.carries != Carries::Pings {
            let want =
                "it keeps the kernel from answering pings; it goes with raw alone: socket:raw,mute";
            return Err(knobs.bad("mute", "on", want).into());
        }
        if config.carries != Carries::Udp {
            let trains = [("gso", config.gso), ("gro", config.gro)];
            if let Some((knob, _)) = trains.iter().find(|(_, asked)| *asked) {
                let want = "raw sockets have no trains of datagrams; leave it out";
                return Err(knobs.bad(knob, "on", want).into());
            }
            check_raw(&knobs, config.carries, listen)?;
        }
        knobs.finish()?;
        Ok(config)
    }

    /// The capabilities that these knobs ask for, with those of a port that are its own.
    pub(crate) fn requested(&self, shared: &Shared) -> CapSet {
        shared
            .requested()
            .with_if(Cap::Gso, self.gso)
            .with_if(Cap::Gro, self.gro)
            .with_if(Cap::KernelTimestamps, self.kernel_stamps)
    }
}

fn read_raw(knobs: &Knobs<'_>) -> Result<Carries, SpecError> {
    if knobs.flag("raw") == Ok(true) {
        return Ok(Carries::Pings);
    }
    let Some(text) = knobs.text("raw")? else { return Ok(Carries::Udp) };
    match (text, text.parse::<u8>()) {
        ("icmp", _) => Ok(Carries::Raw(libc::IPPROTO_ICMP)),
        ("icmp6", _) => Ok(Carries::Raw(libc::IPPROTO_ICMPV6)),
        // 255 is the kernel's "I write the IP header": another contract.
        (_, Ok(protocol)) if (1..255).contains(&protocol) => Ok(Carries::Raw(protocol.into())),
        _ => {
            let want = "use icmp, icmp6 or an IP protocol number from 1 to 254, or no value at all \
                        for pings";
            Err(knobs.bad("raw", text, want))
        }
    }
}

/// A raw socket has a family that fits its protocol, and no ports.
fn check_raw(knobs: &Knobs<'_>, carries: Carries, listen: &[SocketAddr]) -> Result<(), SpecError> {
    let value = knobs.text("raw").ok().flatten().unwrap_or("on");
    for address in listen {
        let misfit = match carries {
            Carries::Raw(libc::IPPROTO_ICMP) => address.is_ipv6().then_some("icmp6"),
            Carries::Raw(libc::IPPROTO_ICMPV6) => address.is_ipv4().then_some("icmp"),
            _ => None,
        };
        if let Some(fits) = misfit {
            let want = format!("{} is of the other family; use raw={fits}", address.ip());
            return Err(knobs.bad("raw", value, want));
        }
        if address.port() != 0 {
            let want = format!("{address}: a raw socket has no ports; give port 0");
            return Err(knobs.bad("raw", value, want));
        }
    }
    Ok(())
}

/// The knobs of a stream lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamConfig {
    pub(crate) shared: Shared,
    pub(crate) backlog: usize,
    /// Received bytes of a connection that wait for the app.
    pub(crate) buffer_bytes: usize,
    /// Bytes of a connection that wait for the kernel.
    pub(crate) queue_bytes: usize,
    /// Connections, if the spec names a number.
    pub(crate) conns: Option<usize>,
    /// How long the peer of a closed connection may take nothing of what is queued.
    pub(crate) close_ns: u64,
    /// How often an idle peer is asked whether it still lives.
    pub(crate) keepalive_s: usize,
}

impl StreamConfig {
    /// Reads every knob of `spec`.
    pub(crate) fn read(spec: &LaneSpec, listen: &[SocketAddr]) -> Result<Self, LaneError> {
        check_lane(spec, listen, 1..=PortMask::PORTS_MAX)?;
        let knobs = spec.knobs();
        let config = StreamConfig {
            shared: Shared::read(&knobs)?,
            backlog: knobs.number("backlog", BACKLOG_DEFAULT, 1..=BACKLOG_MAX)?,
            buffer_bytes: knobs.number("buffer", CONN_BUFFER_BYTES_DEFAULT, CONN_BYTES)?,
            queue_bytes: knobs.number("queue", CONN_QUEUE_BYTES_DEFAULT, CONN_BYTES)?,
            // 0 is outside the range, so it can only be the absent knob.
            conns: Some(knobs.number("conns", 0, 1..=CONNS_MAX)?).filter(|&conns| conns > 0),
            close_ns: knobs.number("close", CLOSE_MS_DEFAULT, CLOSE_MS)? as u64 * 1_000_000,
            keepalive_s: knobs.number("keepalive", KEEPALIVE_S_DEFAULT, KEEPALIVE_S)?,
        };
        knobs.finish()?;
        Ok(config)
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self) -> CapSet {
        self.shared.requested()
    }
}

fn check_lane(
    spec: &LaneSpec,
    listen: &[SocketAddr],
    counts: RangeInclusive<usize>,
) -> Result<(), LaneError> {
    if spec.lane() != NAME {
        return Err(spec.unknown_lane(&[NAME]).into());
    }
    if !counts.contains(&listen.len()) {
        return Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: format!("{} addresses", listen.len()),
            why: "a worker has a port per address, and a bounded number of them".to_owned(),
            hint: format!("give {} to {} addresses", counts.start(), counts.end()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(text: &str, listen: &str) -> Result<DatagramConfig, String> {
        let spec: LaneSpec = text.parse().expect("well-formed");
        let listen = [listen.parse().expect("an address")];
        DatagramConfig::read(&spec, &listen).map_err(|e| e.to_string())
    }

    #[test]
    fn a_batch_is_a_burst_by_one_call() {
        let plain = datagrams("socket", "127.0.0.1:0").unwrap();
        assert_eq!((plain.burst, plain.many), (BURST_FRAMES_DEFAULT, false));
        let batch = datagrams("socket:batch=16", "127.0.0.1:0").unwrap();
        assert_eq!((batch.burst, batch.many), (16, true));
        assert!(datagrams("socket:batch=16,burst=8", "127.0.0.1:0").is_err());
    }

    #[test]
    fn what_is_asked_for_is_requested() {
        let config = datagrams("socket:gso,gro,rcvbuf=1m,reuseport,busy_poll=50", "[::1]:0");
        let config = config.unwrap();
        let requested = config.requested(&config.shared);
        for cap in [Cap::Gso, Cap::Gro, Cap::SocketBuffers, Cap::ReusePort, Cap::BusyPoll] {
            assert!(requested.has(cap), "{}", cap.name());
        }
        assert!(!requested.has(Cap::KernelTimestamps));
    }

    #[test]
    fn a_raw_socket_fits_its_protocol_and_has_no_ports() {
        assert!(datagrams("socket:raw=icmp", "127.0.0.1:0").is_ok());
        assert!(datagrams("socket:raw=253", "[::1]:0").is_ok());
        for (spec, listen, says) in [
            ("socket:raw=icmp", "[::1]:0", "raw=icmp6"),
            ("socket:raw=icmp6", "127.0.0.1:0", "raw=icmp"),
            ("socket:raw=icmp", "127.0.0.1:7", "port 0"),
            ("socket:raw=255", "127.0.0.1:0", "1 to 254"),
            ("socket:raw=icmp,gso", "127.0.0.1:0", "leave it out"),
            ("socket:raw,gro", "127.0.0.1:0", "leave it out"),
            ("socket:raw", "127.0.0.1:7", "port 0"),
            ("socket:raw=icmp,mute", "127.0.0.1:0", "socket:raw,mute"),
            ("socket:mute", "127.0.0.1:0", "socket:raw,mute"),
            ("socket:raw,ttl=256", "127.0.0.1:0", "from 1 to 255"),
        ] {
            let sentence = datagrams(spec, listen).unwrap_err();
            assert!(sentence.contains(says), "{spec}: {sentence}");
        }
    }

    #[test]
    fn raw_alone_is_for_pings_of_whichever_family_the_address_is() {
        let both = datagrams("socket:raw,mute,ttl=9", "127.0.0.1:0").unwrap();
        assert_eq!((both.carries, both.mute, both.ttl), (Carries::Pings, true, Some(9)));
        assert_eq!(datagrams("socket:raw", "[::1]:0").unwrap().carries, Carries::Pings);
        assert_eq!([true, false].map(|v4| Carries::Pings.protocol(v4)), [1, 58]);
    }

    #[test]
    fn a_knob_of_the_other_shape_is_refused() {
        let listen = ["127.0.0.1:0".parse().expect("an address")];
        let streams = StreamConfig::read(&"socket:gso".parse().unwrap(), &listen);
        assert!(streams.unwrap_err().to_string().contains("backlog"), "names its knobs");
        assert!(datagrams("socket:backlog=5", "127.0.0.1:0").is_err());
    }

    #[test]
    fn addresses_are_counted() {
        let many = ["127.0.0.1:0".parse().expect("an address"); 33];
        for listen in [&many[..0], &many[..]] {
            assert!(matches!(
                StreamConfig::read(&"socket".parse().unwrap(), listen),
                Err(LaneError::Refused { .. })
            ));
        }
    }
}
