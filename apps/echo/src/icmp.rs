//! Pings as datagrams: the responder where the kernel has read the IP header already, as on raw
//! sockets. A datagram is an ICMP or ICMPv6 message; an answer has its length and goes back to its
//! source from the address that was asked.
//!
//! Decides as the app over frames does, by the same questions in the same order as far as they can
//! still be asked: header, options and fragments are behind, and a program with the kernel's sockets has
//! neighbours, TTL and routes from it. "Passed" is left alone here: another program has to answer it, or
//! it stays unanswered.

use crate::{
    answer::{reply_v4, reply_v6},
    config::{Config, ConfigError, Limits},
    fate::{Class, Fate, Fates},
    limit::{Limiter, Refused},
    own::{AnsweredAddresses, is_sender, key},
    sort::{ECHO_REQUEST_V4, ECHO_REQUEST_V6, check_echo},
};
use laneway_core::{App, Counters, Datagram, DatagramApp, DatagramOut, Turn};
use std::net::IpAddr;

/// The responder over ICMP messages.
pub struct IcmpEcho {
    own: AnsweredAddresses,
    limiter: Limiter,
    fates: Fates,
    counters: Counters,
}

impl IcmpEcho {
    /// A responder for `addresses` within `limits`. Memory for its sources is taken here, none later.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn new(addresses: &[IpAddr], limits: &Limits) -> Result<IcmpEcho, ConfigError> {
        // The MAC address is the kernel's business.
        let addresses = addresses.iter().copied();
        let checked = Config { limits: *limits, ..Config::new([0; 6], addresses) }.checked()?;
        Ok(IcmpEcho {
            own: checked.own,
            limiter: Limiter::new(checked.per_source, checked.global, checked.sources_max),
            fates: Fates::default(),
            counters: Counters::default(),
        })
    }

    /// How many messages had which fate.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }

    fn decide(&mut self, datagram: &Datagram<'_>) -> Fate {
        let (source, destination) = (datagram.source.ip(), datagram.destination.ip());
        let message = &datagram.payload;
        let (request, answered) = match destination {
            IpAddr::V4(_) => (ECHO_REQUEST_V4, Fate::AnsweredEchoV4),
            IpAddr::V6(_) => (ECHO_REQUEST_V6, Fate::AnsweredEchoV6),
        };
        let is_group = match destination {
            IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        };
        if is_group {
            return Fate::PassedGroup;
        }
        if !self.own.has_ip(destination) {
            return Fate::PassedForeignAddress;
        }
        if let Err(fate) = check_echo(message, message.len(), message.len(), request) {
            return fate;
        }
        if !is_sender(source) || self.own.has_ip(source) {
            return Fate::DroppedSource;
        }
        match self.limiter.admit(&key(source), datagram.ts_ns, 1) {
            Ok(()) => answered,
            Err(Refused::Source) => Fate::DroppedSourceLimit,
            Err(Refused::Global) => Fate::DroppedGlobalLimit,
        }
    }
}

impl App for IcmpEcho {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for IcmpEcho {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            let fate = self.decide(datagram);
            let bytes = datagram.payload.len();
            self.fates.add(fate);
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += bytes as u64;
            match fate.class() {
                Class::Answered => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += bytes as u64;
                    out.send(datagram.ingress, datagram.source, bytes, |room| {
                        let reply = &mut room[..bytes];
                        reply.copy_from_slice(&datagram.payload);
                        match fate {
                            Fate::AnsweredEchoV4 => reply_v4(reply),
                            _ => reply_v6(reply),
                        }
                        bytes
                    });
                }
                Class::Passed => self.counters.passed += 1,
                Class::Dropped(reason) => self.counters.drop_one(reason),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use laneway_core::{DropReason, Payload, PortId};
    use laneway_wire::checksum;
    use std::net::SocketAddr;

    #[derive(Default)]
    struct Out(Vec<(Vec<u8>, PortId, SocketAddr)>);

    impl DatagramOut for Out {
        fn forward(&mut self, _: &Datagram<'_>, _: PortId, _: SocketAddr) {
            panic!("an answer is not its question");
        }

        fn send(
            &mut self,
            egress: PortId,
            destination: SocketAddr,
            bytes_max: usize,
            write: impl FnOnce(&mut [u8]) -> usize,
        ) {
            let mut room = vec![0; bytes_max];
            let bytes = write(&mut room);
            self.0.push((room[..bytes].to_vec(), egress, destination));
        }
    }

    const ADDRESSES: [&str; 2] = ["10.77.0.9", "fd00:77::9"];

    fn responder(limits: Limits) -> IcmpEcho {
        let addresses = ADDRESSES.map(|a| a.parse().unwrap());
        IcmpEcho::new(&addresses, &limits).unwrap()
    }

    /// A message of this type and code with data behind, whose bytes alone sum up.
    fn message(kind: u8, code: u8, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, code, 0, 0, 0x12, 0x34, 0, 1];
        bytes.extend(data);
        let sum = checksum::of(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn datagram<'a>(source: &str, destination: &str, payload: &'a [u8]) -> Datagram<'a> {
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
        Datagram {
            payload: Payload::own(payload),
            segment_bytes: payload.len(),
            source: at(source),
            destination: at(destination),
            is_broadcast: false,
            ingress: PortId(1),
            ts_ns: 1_000_000_000,
        }
    }

    #[test]
    fn an_answer_differs_in_type_and_checksum_and_goes_back_to_its_sender() {
        for (source, to, request, reply) in
            [("10.77.0.1", ADDRESSES[0], 8, 0), ("fd00:77::1", ADDRESSES[1], 128, 129)]
        {
            for bytes in [0, 1, 56, 65_499] {
                let ask = message(request, 0, &vec![0xa5; bytes]);
                let (mut echo, mut out) = (responder(Limits::none()), Out::default());
                let asked = datagram(source, to, &ask);
                echo.on_datagrams(&[asked], Turn::default(), &mut out);
                let [(answer, egress, destination)] = &out.0[..] else { panic!("{to}: not one") };
                assert_eq!((*egress, *destination, answer[0]), (PortId(1), asked.source, reply));
                assert_eq!((answer[1], &answer[4..]), (0, &ask[4..]));
                assert_eq!(checksum::of(answer), 0, "{to}: {bytes} bytes");
                assert_eq!((echo.fates.answered(), echo.counters.tx_frames), (1, 1));
            }
        }
    }

    #[test]
    fn what_is_no_question_to_us_has_the_fate_that_a_frame_would_have() {
        let (ping, ping6) = (message(8, 0, b"data"), message(128, 0, b"data"));
        let (v4, v6) = (ADDRESSES[0], ADDRESSES[1]);
        for (source, destination, message, fate) in [
            ("10.77.0.1", v4, &ping[..7], Fate::PassedTruncated),
            ("10.77.0.1", v4, &[], Fate::PassedTruncated),
            ("10.77.0.1", v4, &message(0, 0, b"")[..], Fate::PassedOtherIcmp),
            ("10.77.0.1", v4, &message(8, 1, b""), Fate::PassedOtherIcmp),
            ("10.77.0.1", v4, &ping6, Fate::PassedOtherIcmp),
            ("fd00::1", v6, &ping, Fate::PassedOtherIcmp),
            ("10.77.0.1", "10.77.0.8", &ping, Fate::PassedForeignAddress),
            ("10.77.0.1", "224.0.0.1", &ping, Fate::PassedGroup),
            ("10.77.0.1", "255.255.255.255", &ping, Fate::PassedGroup),
            ("fd00::1", "ff02::1", &ping6, Fate::PassedGroup),
            ("0.0.0.0", v4, &ping, Fate::DroppedSource),
            ("224.0.0.1", v4, &ping, Fate::DroppedSource),
            ("127.0.0.1", v4, &ping, Fate::DroppedSource),
            (v4, v4, &ping, Fate::DroppedSource),
            ("::", v6, &ping6, Fate::DroppedSource),
            ("ff02::1", v6, &ping6, Fate::DroppedSource),
            (v6, v6, &ping6, Fate::DroppedSource),
        ] {
            let (mut echo, mut out) = (responder(Limits::none()), Out::default());
            let asked = datagram(source, destination, message);
            echo.on_datagrams(&[asked], Turn::default(), &mut out);
            assert_eq!(echo.fates.of(fate), 1, "{asked:?}: {:?}", echo.fates);
            assert!(out.0.is_empty(), "{asked:?}");
        }
    }

    #[test]
    fn the_limits_are_those_of_frames() {
        let limits = Limits {
            per_source: Some(Rate { per_second: 1, burst: 2 }),
            global: Some(Rate { per_second: 1, burst: 3 }),
            sources_max: 8,
        };
        let ask = message(8, 0, b"x");
        let batch = ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"]
            .map(|source| datagram(source, ADDRESSES[0], &ask));
        let (mut echo, mut out) = (responder(limits), Out::default());
        echo.on_datagrams(&batch, Turn::default(), &mut out);
        assert_eq!(out.0.len(), 3);
        let of = |fate| echo.fates.of(fate);
        assert_eq!([Fate::DroppedSourceLimit, Fate::DroppedGlobalLimit].map(of), [1, 1]);
        assert_eq!(echo.counters().drops(DropReason::RateLimited), 2);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(IcmpEcho::new(&[], &Limits::default()).is_err());
        let group = ["224.0.0.1".parse().unwrap()];
        assert!(IcmpEcho::new(&group, &Limits::default()).is_err());
    }
}
