//! Which sockets are open in the namespace of this process, by the kernel's tables. The arm's program is alone there,
//! so what it listens on is known without looking into it.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// What carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    /// States of `include/net/tcp_states.h`: a UDP socket that is bound and has no peer is `TCP_CLOSE`.
    const fn listening(self) -> &'static str {
        match self {
            Transport::Udp => "07",
            Transport::Tcp => "0A",
        }
    }
}

/// A socket that waits for any sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) transport: Transport,
    pub(super) at: SocketAddr,
}

impl Listener {
    /// Whether what is sent to `wanted` by `transport` comes to it.
    pub(super) fn hears(&self, transport: Transport, wanted: SocketAddrV4) -> bool {
        let is_own = match self.at.ip() {
            IpAddr::V4(ip) => ip.is_unspecified() || ip == *wanted.ip(),
            // An unspecified one hears IPv4 as well, unless it was set not to, which is not shown here.
            IpAddr::V6(ip) => ip.is_unspecified() || ip.to_ipv4_mapped() == Some(*wanted.ip()),
        };
        self.transport == transport && self.at.port() == wanted.port() && is_own
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        })
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.transport, self.at)
    }
}

/// Every socket that waits for any sender.
pub(super) fn listeners() -> Vec<Listener> {
    let tables = [
        ("udp", Transport::Udp),
        ("udp6", Transport::Udp),
        ("tcp", Transport::Tcp),
        ("tcp6", Transport::Tcp),
    ];
    // A table is missing where the kernel has no such protocol.
    let read = |(name, transport)| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        parse(&text, transport)
    };
    tables.into_iter().flat_map(read).collect()
}

/// Whether a socket that sees frames, or whole IP packets, is open.
pub(super) fn has_raw_socket() -> bool {
    ["net/packet", "net/raw", "net/raw6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/{table}")).unwrap_or_default();
        text.lines().count() > 1
    })
}

fn parse(table: &str, transport: Transport) -> Vec<Listener> {
    let listener = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (at, _peer, state) = (words.next()?, words.next()?, words.next()?);
        (state == transport.listening())
            .then(|| Some(Listener { transport, at: address(at)? }))
            .flatten()
    };
    table.lines().skip(1).filter_map(listener).collect()
}

/// `0200004D0A:1B58`: the address as the words of memory, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok();
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_tables_of_the_kernel_are_read() {
        let udp = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            62: 02004D0A:1B58 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0\n\
            63: 0100007F:0035 0200007F:1111 01 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0\n";
        let found = parse(udp, Transport::Udp);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["UDP 10.77.0.2:7000"]
        );
        let tcp6 = "  sl  local_address  remote_address st\n\
            0: 00000000000000000000000000000000:1B58 00000000000000000000000000000000:0000 0A 0\n\
            1: 0000000000000000FFFF000002004D0A:1B59 00000000000000000000000000000000:0000 0A 0\n";
        let found: Vec<String> =
            parse(tcp6, Transport::Tcp).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["TCP [::]:7000", "TCP [::ffff:10.77.0.2]:7001"]);
        assert!(parse("sl\n1: x:y z 07\n1: 00:0 0 07\n\n", Transport::Udp).is_empty());
    }

    #[test]
    fn a_socket_hears_its_address_or_any_on_its_port() {
        let wanted = SocketAddrV4::new([10, 77, 0, 2].into(), 7000);
        let hears = |transport, at: &str| {
            Listener { transport, at: at.parse().unwrap() }.hears(Transport::Udp, wanted)
        };
        for at in ["10.77.0.2:7000", "0.0.0.0:7000", "[::]:7000", "[::ffff:10.77.0.2]:7000"] {
            assert!(hears(Transport::Udp, at), "{at}");
        }
        for at in ["127.0.0.1:7000", "10.77.0.2:7001", "[::1]:7000"] {
            assert!(!hears(Transport::Udp, at), "{at}");
        }
        assert!(!hears(Transport::Tcp, "10.77.0.2:7000"));
        let tcp = Listener { transport: Transport::Tcp, at: "[::]:7000".parse().unwrap() };
        assert!(tcp.hears(Transport::Tcp, wanted));
    }
}
