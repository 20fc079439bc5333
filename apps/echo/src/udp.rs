//! UDP echo (RFC 862): every datagram is sent back to its source, trains uncut.
//!
//! Two echo services that are set on each other by one forged datagram answer each other for ever, as
//! do an echo service and any other that answers every datagram (chargen, DNS). So a source port
//! below [`UdpEchoConfig::source_port_min`] is refused, as inetd does, and so is a source port equal to
//! the port asked, which is what two of our own kind would use. What is left (a service of that kind
//! on another high port) the rate limits bound.
//!
//! An answer is as long as its question. Nothing is answered that was sent to a group.

use crate::{
    config::{ConfigError, Limits},
    limit::{Limiter, Refused},
    own::key,
};
use laneway_core::{App, Counters, Datagram, DatagramApp, DatagramOut, DropReason, Turn};
use std::net::IpAddr;

/// What is answered, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpEchoConfig {
    /// The lowest source port that is answered. 1024 unless asked otherwise: services have the lower
    /// ones.
    pub source_port_min: u16,
    /// In datagrams. A train is answered whole if its first datagram may be, and all are charged.
    pub limits: Limits,
}

impl Default for UdpEchoConfig {
    fn default() -> Self {
        UdpEchoConfig { source_port_min: 1024, limits: Limits::default() }
    }
}

/// How many datagrams had which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpFates {
    /// Sent back.
    pub answered: u64,
    /// From a port that may be a service's; under [`DropReason::Filtered`].
    pub dropped_port: u64,
    /// To or from a group, the broadcast or the unspecified address; under [`DropReason::Malformed`].
    pub dropped_address: u64,
    /// Beyond what the source may ask; under [`DropReason::RateLimited`].
    pub dropped_source_limit: u64,
    /// Beyond what all together may ask; under [`DropReason::RateLimited`].
    pub dropped_global_limit: u64,
}

/// The echo service over datagrams.
pub struct UdpEcho {
    source_port_min: u16,
    limiter: Limiter,
    fates: UdpFates,
    counters: Counters,
}

impl UdpEcho {
    /// An echo service. Memory for its sources is taken here, none later.
    ///
    /// # Errors
    /// What is wrong with the limits.
    pub fn new(config: &UdpEchoConfig) -> Result<UdpEcho, ConfigError> {
        config.limits.check()?;
        Ok(UdpEcho {
            source_port_min: config.source_port_min,
            limiter: Limiter::of_trains(&config.limits),
            fates: UdpFates::default(),
            counters: Counters::default(),
        })
    }

    /// How many datagrams had which fate.
    pub fn fates(&self) -> &UdpFates {
        &self.fates
    }

    /// Why a train is not sent back, with the place where that is counted by fate.
    fn refusal(&mut self, datagram: &Datagram<'_>, count: u64) -> Option<(DropReason, &mut u64)> {
        let (source, destination) = (datagram.source, datagram.destination);
        if !is_host(source.ip()) || is_group(destination.ip()) || datagram.is_broadcast {
            return Some((DropReason::Malformed, &mut self.fates.dropped_address));
        }
        // Port 0 asks for no answer (RFC 768).
        if source.port() < self.source_port_min.max(1) || source.port() == destination.port() {
            return Some((DropReason::Filtered, &mut self.fates.dropped_port));
        }
        match self.limiter.admit(&key(source.ip()), datagram.ts_ns, count) {
            Ok(()) => None,
            Err(Refused::Source) => {
                Some((DropReason::RateLimited, &mut self.fates.dropped_source_limit))
            }
            Err(Refused::Global) => {
                Some((DropReason::RateLimited, &mut self.fates.dropped_global_limit))
            }
        }
    }
}

impl App for UdpEcho {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for UdpEcho {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            let bytes = datagram.payload.len();
            // A datagram without payload is one datagram all the same.
            let count = bytes.div_ceil(datagram.segment_bytes.max(1)).max(1) as u64;
            self.counters.rx_frames += count;
            self.counters.rx_bytes += bytes as u64;
            if let Some((reason, fate)) = self.refusal(datagram, count) {
                *fate += count;
                self.counters.drop_many(reason, count);
                continue;
            }
            out.forward(datagram, datagram.ingress, datagram.source);
            self.fates.answered += count;
            self.counters.tx_frames += count;
            self.counters.tx_bytes += bytes as u64;
        }
    }
}

/// Unlike on the wire, loopback is a place to be asked from.
fn is_host(address: IpAddr) -> bool {
    !address.is_unspecified() && !is_group(address)
}

fn is_group(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use laneway_core::{Payload, PortId};
    use std::net::SocketAddr;

    /// What was forwarded: bytes, egress, destination.
    #[derive(Default)]
    struct Out(Vec<(Vec<u8>, usize, PortId, SocketAddr)>);

    impl DatagramOut for Out {
        fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
            let (bytes, segment_bytes) = (datagram.payload.to_vec(), datagram.segment_bytes);
            self.0.push((bytes, segment_bytes, egress, destination));
        }

        fn send(
            &mut self,
            _egress: PortId,
            _destination: SocketAddr,
            _bytes_max: usize,
            _write: impl FnOnce(&mut [u8]) -> usize,
        ) {
            panic!("an echo makes no new bytes");
        }
    }

    fn datagram<'a>(source: &str, destination: &str, payload: &'a [u8]) -> Datagram<'a> {
        Datagram {
            payload: Payload::own(payload),
            segment_bytes: payload.len(),
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            is_broadcast: false,
            ingress: PortId(3),
            ts_ns: 1_000_000_000,
        }
    }

    fn run(config: UdpEchoConfig, batch: &[Datagram<'_>]) -> (UdpEcho, Out) {
        let (mut echo, mut out) = (UdpEcho::new(&config).unwrap(), Out::default());
        echo.on_datagrams(batch, Turn::default(), &mut out);
        (echo, out)
    }

    fn answers(source: &str, destination: &str) -> UdpFates {
        let (echo, out) = run(UdpEchoConfig::default(), &[datagram(source, destination, b"x")]);
        assert_eq!(out.0.len() as u64, echo.fates.answered);
        assert_eq!(echo.counters().drops(DropReason::Filtered), echo.fates.dropped_port);
        assert_eq!(echo.counters().drops(DropReason::Malformed), echo.fates.dropped_address);
        echo.fates
    }

    #[test]
    fn a_datagram_goes_back_unchanged_by_the_port_it_arrived_on() {
        for payload in [&b"hello"[..], b""] {
            let ask = datagram("10.0.0.1:5000", "10.0.0.2:7", payload);
            let (echo, out) = run(UdpEchoConfig::default(), &[ask]);
            assert_eq!(out.0, [(payload.to_vec(), payload.len(), PortId(3), ask.source)]);
            let counted = (echo.counters().tx_frames, echo.counters().tx_bytes);
            assert_eq!(counted, (1, payload.len() as u64));
        }
    }

    #[test]
    fn a_train_goes_back_uncut_and_counts_as_its_datagrams() {
        let payload = [7; 950];
        let train =
            Datagram { segment_bytes: 100, ..datagram("10.0.0.1:5000", "10.0.0.2:7", &payload) };
        let (echo, out) = run(UdpEchoConfig::default(), &[train]);
        assert_eq!(out.0, [(payload.to_vec(), 100, PortId(3), train.source)]);
        assert_eq!((echo.fates.answered, echo.counters().rx_frames), (10, 10));
    }

    #[test]
    fn services_are_not_answered_so_that_no_loop_can_start() {
        for (source, destination) in [
            ("10.0.0.1:7", "10.0.0.2:7"),
            ("10.0.0.1:19", "10.0.0.2:7"),
            ("10.0.0.1:1023", "10.0.0.2:7"),
            ("10.0.0.1:7777", "10.0.0.2:7777"),
            ("10.0.0.1:0", "10.0.0.2:7"),
        ] {
            assert_eq!(answers(source, destination).dropped_port, 1, "{source}");
        }
        assert_eq!(answers("10.0.0.1:1024", "10.0.0.2:7").answered, 1);
        assert_eq!(answers("[fd00::1]:1024", "[fd00::2]:7").answered, 1);
    }

    #[test]
    fn groups_are_neither_answered_nor_answered_for() {
        for (source, destination) in [
            ("224.0.0.1:5000", "10.0.0.2:7"),
            ("255.255.255.255:5000", "10.0.0.2:7"),
            ("0.0.0.0:5000", "10.0.0.2:7"),
            ("10.0.0.1:5000", "224.0.0.1:7"),
            ("10.0.0.1:5000", "255.255.255.255:7"),
            ("[fd00::1]:5000", "[ff02::1]:7"),
            ("[ff02::1]:5000", "[fd00::2]:7"),
        ] {
            assert_eq!(answers(source, destination).dropped_address, 1, "{source} {destination}");
        }
    }

    #[test]
    fn a_broadcast_to_a_subnet_is_not_answered() {
        let ask =
            Datagram { is_broadcast: true, ..datagram("10.0.0.1:5000", "10.0.0.255:7", b"x") };
        let (echo, out) = run(UdpEchoConfig::default(), &[ask]);
        assert_eq!((out.0.len(), echo.fates.dropped_address), (0, 1));
    }

    #[test]
    fn the_limits_count_datagrams() {
        let limits = Limits {
            per_source: Some(Rate { per_second: 1, burst: 2 }),
            global: Some(Rate { per_second: 1, burst: 3 }),
            sources_max: 8,
        };
        let batch = ["1", "1", "1", "2", "2"].map(|host| {
            let source = format!("10.0.0.{host}:5000");
            datagram(&source, "10.0.0.9:7", b"x")
        });
        let (echo, out) = run(UdpEchoConfig { limits, ..UdpEchoConfig::default() }, &batch);
        assert_eq!(out.0.len(), 3);
        let fates = echo.fates;
        assert_eq!((fates.dropped_source_limit, fates.dropped_global_limit), (1, 1));
        assert_eq!(echo.counters().drops(DropReason::RateLimited), 2);
    }

    #[test]
    fn limits_that_cannot_be_are_refused() {
        let limits = Limits { sources_max: 0, ..Limits::default() };
        assert!(UdpEcho::new(&UdpEchoConfig { limits, ..UdpEchoConfig::default() }).is_err());
    }
}
