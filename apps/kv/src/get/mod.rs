//! GET over UDP: the protocol, without sockets and without data.
//!
//! ```text
//!   request:  number | sequence 0 | total 1 | reserved 0 | *2 $3 GET $n key | padding     the first four 16 bits each
//!   reply:    number | sequence 0 | total 1 | reserved 0 | reply
//! ```
//!
//! The eight bytes are memcached's; the body is one RESP GET, and one datagram is one request. A reply is never longer
//! than its request, so that a forged source is sent no more than the forger has sent; a client pads its request to the
//! longest reply that it accepts. A value too long for that is answered by `-TOOLONG n`, `n` the bytes of the reply
//! behind the eight; an error too long for it is its first word. What is no request gets no reply and is counted by
//! reason.
//!
//! What a source may be is checked first: this machine, or in the allow list; no service's port, no group.

pub(crate) mod cache;

use laneway_linux::Cidr;
use laneway_resp::{Limits, Parser, Reply, integer};
use std::net::{IpAddr, SocketAddr};

/// Bytes in front of a request or reply.
pub(crate) const HEAD_BYTES: usize = 8;
/// A reply with its eight bytes, at most: an MTU of 1,500 less the headers of IPv6 and UDP.
pub(crate) const REPLY_BYTES_MAX: usize = 1452;
/// Services have lower ports; an answer to one might be a question to it.
const SOURCE_PORT_MIN: u16 = 1024;

/// What became of a datagram that the worker was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered with a value.
    Hit,
    /// Answered: there is no such key.
    Miss,
    /// Answered: the value is longer than the request has room for.
    TooLong,
    /// Answered with another error.
    Error,
    /// Shorter than the eight bytes.
    Short,
    /// The eight bytes are not those of the only datagram of a request.
    Header,
    /// The command is not there whole.
    Cut,
    /// What stands there is no command.
    Garbage,
    /// The source may not ask.
    Source,
    /// Its answer waits for the log, and too many do, or the log has failed.
    NotDurable,
}

impl Fate {
    /// Every fate, in the order of [`Fate::index`].
    pub(crate) const ALL: [Fate; 10] = [
        Fate::Hit,
        Fate::Miss,
        Fate::TooLong,
        Fate::Error,
        Fate::Short,
        Fate::Header,
        Fate::Cut,
        Fate::Garbage,
        Fate::Source,
        Fate::NotDurable,
    ];

    /// Its place in a table of counts.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// As INFO and the account name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fate::Hit => "udp_hit",
            Fate::Miss => "udp_miss",
            Fate::TooLong => "udp_too_long",
            Fate::Error => "udp_error",
            Fate::Short => "udp_dropped_short",
            Fate::Header => "udp_dropped_header",
            Fate::Cut => "udp_dropped_cut",
            Fate::Garbage => "udp_dropped_garbage",
            Fate::Source => "udp_dropped_source",
            Fate::NotDurable => "udp_dropped_not_durable",
        }
    }
}

/// The networks that may ask over UDP, beside this machine itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(pub Vec<Cidr>);

impl Allowed {
    /// True if a datagram from `source` to `destination` may be answered.
    pub(crate) fn lets(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        let ip = source.ip().to_canonical();
        let is_host = !ip.is_unspecified() && !is_group(ip) && !is_group(destination.ip());
        let is_client = source.port() >= SOURCE_PORT_MIN && source.port() != destination.port();
        let is_known = ip.is_loopback() || self.0.iter().any(|cidr| contains(*cidr, ip));
        is_host && is_client && is_known
    }
}

fn is_group(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

fn contains(cidr: Cidr, ip: IpAddr) -> bool {
    let (mask, network) = (cache::mask(cidr), cache::mapped(cidr.address()));
    let differs = u128::from_be_bytes(cache::mapped(ip)) ^ u128::from_be_bytes(network);
    differs & u128::from_be_bytes(mask) == 0
}

/// Takes requests apart; its memory is kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    parser: Parser,
}

/// What a datagram asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// The value of this key.
    Get(&'a [u8]),
    /// Something that is not served here.
    Other,
    /// Nothing: it is no request.
    None(Fate),
}

impl Requests {
    /// The request in a datagram.
    pub(crate) fn read<'a>(&'a mut self, datagram: &'a [u8]) -> Request<'a> {
        let Some((head, body)) = datagram.split_first_chunk::<HEAD_BYTES>() else {
            return Request::None(Fate::Short);
        };
        if head[2..] != [0, 0, 0, 1, 0, 0] {
            return Request::None(Fate::Header);
        }
        match body.first() {
            Some(b'*') => {}
            Some(_) => return Request::None(Fate::Garbage),
            None => return Request::None(Fate::Cut),
        }
        let limits = Limits { is_stranger: true, ..Limits::default() };
        // What a datagram before it left unfinished is none of its business.
        self.parser = Parser::new();
        let command = match self.parser.next(body, &limits) {
            Ok(step) => step.command,
            Err(_) => return Request::None(Fate::Garbage),
        };
        let Some(args) = command else { return Request::None(Fate::Cut) };
        let mut words = args.iter();
        match (words.next(), words.next(), words.next()) {
            (Some(name), Some(key), None) if name.eq_ignore_ascii_case(b"get") => Request::Get(key),
            _ => Request::Other,
        }
    }
}

/// What is answered to a request for something else.
pub(crate) const ONLY_GET: &str = "ERR only GET is served over UDP";

/// Empties a reply for the next request, so that no longer value is copied than a datagram has room for.
pub(crate) fn begin(reply: &mut Reply) {
    reply.clear();
    reply.mend();
    reply.set_bytes_max(REPLY_BYTES_MAX);
}

/// Cuts a reply to what a request of so many bytes, the eight included, may be answered with.
pub(crate) fn fit(reply: &mut Reply, request_bytes: usize) -> Fate {
    let room = request_bytes.min(REPLY_BYTES_MAX).saturating_sub(HEAD_BYTES);
    let fate = match reply.bytes() {
        [b'-', ..] => Fate::Error,
        b"$-1\r\n" => Fate::Miss,
        _ => Fate::Hit,
    };
    let bytes = whole_bytes(reply);
    if bytes <= room {
        return fate;
    }
    if fate == Fate::Error {
        reply.mend();
        let word = reply.bytes().iter().position(|byte| matches!(byte, b' ' | b'\r'));
        reply.truncate(word.unwrap_or(0));
        reply.raw(b"\r\n");
        return fate;
    }
    let refusal = format!("-TOOLONG {bytes}\r\n");
    begin(reply);
    reply.raw(if refusal.len() <= room { refusal.as_bytes() } else { b"-TOOLONG\r\n" });
    Fate::TooLong
}

/// The bytes of a reply to GET, those among them that did not fit.
fn whole_bytes(reply: &Reply) -> usize {
    if !reply.is_cut() {
        return reply.len();
    }
    // Of a value its length fits, and stands in front of it.
    let line = reply.bytes().split(|&byte| byte == b'\r').next().unwrap_or_default();
    let value = line.get(1..).and_then(integer).and_then(|bytes| usize::try_from(bytes).ok());
    value.map_or(usize::MAX, |bytes| line.len() + 2 + bytes + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(body: &[u8]) -> Vec<u8> {
        [&[7, 9, 0, 0, 0, 1, 0, 0], body].concat()
    }

    fn fate(datagram: &[u8]) -> Option<Fate> {
        match Requests::default().read(datagram) {
            Request::None(fate) => Some(fate),
            Request::Get(_) | Request::Other => None,
        }
    }

    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

    #[test]
    fn a_datagram_is_a_request_or_has_a_reason() {
        assert_eq!(fate(&request(GET)), None);
        assert_eq!(fate(&request(&[GET, &[0; 100]].concat())), None, "padding is not looked at");
        assert_eq!(fate(&[]), Some(Fate::Short));
        assert_eq!(fate(&request(b"")[..7]), Some(Fate::Short));
        assert_eq!(fate(&request(b"")), Some(Fate::Cut));
        for at in [2, 3, 4, 6, 7] {
            let mut other = request(GET);
            other[at] ^= 1;
            assert_eq!(fate(&other), Some(Fate::Header), "byte {at}");
        }
        for end in 1..GET.len() {
            assert_eq!(fate(&request(&GET[..end])), Some(Fate::Cut), "cut at {end}");
        }
        assert_eq!(fate(&request(b"GET k\r\n")), Some(Fate::Garbage), "no inline command");
        assert_eq!(fate(&request(b"*2\r\n$-5\r\n")), Some(Fate::Garbage));
        assert_eq!(fate(&request(b"*99999\r\n")), Some(Fate::Garbage));
    }

    #[test]
    fn one_unfinished_request_spoils_no_other() {
        let mut requests = Requests::default();
        assert!(matches!(requests.read(&request(&GET[..9])), Request::None(Fate::Cut)));
        assert_eq!(requests.read(&request(GET)), Request::Get(b"k"));
        assert_eq!(requests.read(&request(b"*1\r\n$4\r\nPING\r\n")), Request::Other);
    }

    #[test]
    fn who_may_ask_is_this_machine_or_in_the_list() {
        let at: SocketAddr = "10.0.0.9:6379".parse().unwrap();
        let some = Allowed(vec!["10.1.0.0/16".parse().unwrap(), "fd00:1::/64".parse().unwrap()]);
        let lets = |allowed: &Allowed, source: &str| allowed.lets(source.parse().unwrap(), at);
        assert!(lets(&Allowed::default(), "127.0.0.1:5000") && lets(&some, "[::1]:5000"));
        assert!(lets(&some, "10.1.255.3:5000") && lets(&some, "[fd00:1::7]:5000"));
        assert!(lets(&some, "[::ffff:10.1.2.3]:5000"), "the same address, mapped");
        for source in [
            "10.2.0.1:5000",
            "[fd00:2::7]:5000",
            "10.1.0.1:53",
            "10.1.0.1:6379",
            "0.0.0.0:5000",
            "224.0.0.1:5000",
            "255.255.255.255:5000",
        ] {
            assert!(!lets(&some, source), "{source}");
        }
        assert!(
            Allowed(vec!["0.0.0.0/0".parse().unwrap()]).lets("1.2.3.4:5000".parse().unwrap(), at)
        );
        assert!(
            !Allowed(vec!["0.0.0.0/0".parse().unwrap()])
                .lets("[fd00::1]:5000".parse().unwrap(), at)
        );
    }

    proptest! {
        #[test]
        fn a_reply_is_never_longer_than_its_request(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            reply_bytes in 0usize..3000,
            padding in 0usize..2000,
            is_error in any::<bool>(),
        ) {
            let mut body = Vec::new();
            laneway_resp::command(&[b"GET", &key], &mut body);
            let request_bytes = HEAD_BYTES + body.len() + padding;
            let first: &[u8] = if is_error { b"-WRONGTYPE " } else { b"$" };
            let reply = [first, &vec![b'x'; reply_bytes], b"\r\n"].concat();
            let mut fitted = Reply::default();
            fitted.raw(&reply);
            let fate = fit(&mut fitted, request_bytes);
            let fitted = fitted.bytes();
            prop_assert!(HEAD_BYTES + fitted.len() <= request_bytes.min(REPLY_BYTES_MAX));
            prop_assert!(fitted.ends_with(b"\r\n"));
            let fits = HEAD_BYTES + reply.len() <= request_bytes.min(REPLY_BYTES_MAX);
            prop_assert_eq!(fitted == reply, fits);
            prop_assert_eq!(fate == Fate::TooLong, !fits && !is_error);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = fate(&bytes);
            let _ = fate(&request(&bytes));
        }
    }
}
