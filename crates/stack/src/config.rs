//! The configuration of a stack: its interfaces and addresses, what it listens to, and every limit.

use crate::address::{is_sender, is_unicast_mac};
use laneway_core::LaneError;
use laneway_wire::Mac;
use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, SocketAddr},
};

/// The smallest MTU that IPv4 hosts must be able to receive (RFC 791); nothing smaller is useful.
pub const MTU_BYTES_MIN: usize = 576;
/// The largest total length that an IP header can state.
pub const MTU_BYTES_MAX: usize = 65_535;
/// Addresses to listen to, at most: ports are numbered by one byte.
pub const LISTEN_MAX: usize = 256;
/// Addresses and gateways of one interface, at most: they are searched one by one.
pub const ADDRESSES_MAX: usize = 16;

/// One port of the frame lane, as an interface of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// What a port's plan calls it; nothing if no plan does.
    pub name: String,
    /// Our MAC address. That of the device, or another one where the device receives it: then the
    /// kernel takes no notice of what is addressed to us.
    pub mac: Mac,
    /// The longest IP packet, in bytes, headers included.
    pub mtu_bytes: usize,
    /// Our addresses, each with the number of bits that the link has in common.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routers that lead everywhere else; at most one per IP version is used, the first. Each must
    /// lie on the link of one of the addresses.
    pub gateways: Vec<IpAddr>,
    /// Multicast groups whose datagrams are accepted from the start; ports may join others.
    pub groups: Vec<IpAddr>,
}

impl InterfaceConfig {
    /// An interface of MTU 1500 without gateways and groups.
    pub fn new(mac: Mac, addresses: Vec<(IpAddr, u8)>) -> InterfaceConfig {
        InterfaceConfig {
            name: String::new(),
            mac,
            mtu_bytes: 1500,
            addresses,
            gateways: Vec::new(),
            groups: Vec::new(),
        }
    }
}

/// Limits of the parts that datagram and stream stacks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Neighbours known or asked for. When full, the one unused for longest makes room.
    pub neighbours_max: usize,
    /// Packets that wait for one neighbour; the oldest makes room (counted as `no_neighbour`).
    pub waiting_per_neighbour: usize,
    /// Packets that wait for all neighbours together.
    pub waiting_max: usize,
    /// How long a confirmed neighbour is believed without a further confirmation, in nanoseconds
    /// (RFC 4861: REACHABLE_TIME, 30 s).
    pub reachable_ns: u64,
    /// After how long without use a neighbour is forgotten, in nanoseconds.
    pub forget_ns: u64,
    /// Time between solicitations of one neighbour, in nanoseconds (RFC 4861: RETRANS_TIMER, 1 s).
    pub solicit_interval_ns: u64,
    /// Solicitations that go unanswered before a neighbour is given up.
    pub solicits_max: u32,
    /// Solicitations per second to all neighbours together.
    pub solicits_per_second: u32,
    /// ICMP errors per second (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f).
    pub icmp_errors_per_second: u32,
    /// Destinations whose smaller path MTU is remembered.
    pub path_mtus_max: usize,
    /// How long a path MTU is remembered, in nanoseconds (RFC 8201: 10 minutes).
    pub path_mtu_ns: u64,
    /// Bytes of payload that an app may send between two flushes, those that are sent in place left
    /// out. A payload that goes to many counts once.
    pub outbox_bytes: usize,
    /// Packets that an app may send between two flushes, those that are sent in place left out: a
    /// burst times its outputs.
    pub outbox_packets: usize,
    /// Groups that are heard, those of each interface counted.
    pub groups_max: usize,
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits {
            neighbours_max: 1024,
            waiting_per_neighbour: 64,
            waiting_max: 256,
            reachable_ns: 30_000_000_000,
            forget_ns: 600_000_000_000,
            solicit_interval_ns: 1_000_000_000,
            solicits_max: 3,
            solicits_per_second: 200,
            icmp_errors_per_second: 100,
            path_mtus_max: 1024,
            path_mtu_ns: 600_000_000_000,
            outbox_bytes: 16 << 20,
            outbox_packets: 1 << 18,
            groups_max: 1 << 16,
        }
    }
}

/// Limits of a [`StreamStack`](crate::StreamStack).
///
/// Memory: a connection has `rx_bytes + tx_bytes` from its first segment to its end, and keeps them
/// for the next connection. They are touched only as far as they are used: the send buffer as far as one
/// turn's replies reach, the receive buffer as far as bytes have come, round and round. What a connection
/// grows by is taken from `grown_bytes_max`, and given back at its end. `unread_bytes_max` and
/// `backlog_bytes_max` are taken only by those whose app leaves requests unread or writes more than its
/// send buffer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Connections in any state. When full, one that lingers makes room, else the newcomer is reset
    /// (counted as `conn_table_full`).
    pub connections_max: usize,
    /// Connections whose handshake is not complete. When full, a SYN is answered by a SYN cookie
    /// (RFC 4987, 3.6) and nothing is kept; 0 answers every one so. A connection that opens by one has
    /// windows of 64 KiB at most and no selective acknowledgements.
    pub half_open_max: usize,
    /// Connections of one source address, without those that linger. Those beyond are reset (counted as
    /// `conn_table_full`).
    pub per_source_max: usize,
    /// Connections that have ended for the app and not yet for TCP (FIN on its way, TIME-WAIT); the
    /// oldest makes room once its FIN or reset has left, so that those which end in one turn may be more.
    pub lingering_max: usize,
    /// Receive buffer with which a connection begins, in bytes, and so the largest window offered then;
    /// 65,535 at most, because a SYN-ACK states its window unshifted.
    pub rx_bytes: usize,
    /// Send buffer with which a connection begins, in bytes.
    pub tx_bytes: usize,
    /// What the receive and the send buffer of a connection may grow to, in bytes each. One grows to
    /// twice its size when it holds the peer, or us, back: a whole window was received and taken within
    /// two round trips, or all of the send buffer is under way and more waits. It can grow only while
    /// nothing of ours is unacknowledged, nothing received is unread or out of order, and neither end
    /// has closed; a stream that is busy in both directions without a rest stays as it is. No more than
    /// `rx_bytes` and `tx_bytes` lets nothing grow. A peer that shifts no windows is offered 64 KiB.
    pub window_bytes_max: usize,
    /// What the buffers of all connections together may be larger than at first, in bytes. When that is
    /// reached, they stay as they are.
    pub grown_bytes_max: usize,
    /// What an app may leave unread, in bytes: a request longer than this cannot be served, and its
    /// connection is reset.
    pub unread_bytes_max: usize,
    /// What one connection may queue beyond its send buffer, in bytes.
    pub backlog_bytes_max: usize,
    /// How long a handshake may take, in nanoseconds.
    pub handshake_ns: u64,
    /// How often the peer of an idle connection is asked whether it still lives, in nanoseconds.
    pub keep_alive_ns: u64,
    /// How long a peer may be silent until its connection is given up, in nanoseconds; at least
    /// twice [`keep_alive_ns`](Self::keep_alive_ns), because questions get lost.
    pub timeout_ns: u64,
    /// How long a connection that is to be closed may go without its peer taking any of what is
    /// queued, and then without an end, in nanoseconds.
    pub linger_ns: u64,
    /// Resets per second that answer segments of no connection.
    pub resets_per_second: u32,
    /// SYN cookies per second. A SYN beyond is dropped (counted as `conn_table_full`): its sender will
    /// try again. 0 sends none.
    pub syn_cookies_per_second: u32,
}

impl Default for TcpLimits {
    fn default() -> Self {
        TcpLimits {
            connections_max: 16_384,
            half_open_max: 1024,
            per_source_max: 16_384,
            lingering_max: 1024,
            rx_bytes: 16 << 10,
            tx_bytes: 64 << 10,
            window_bytes_max: 1 << 20,
            grown_bytes_max: 256 << 20,
            unread_bytes_max: 1 << 20,
            backlog_bytes_max: 1 << 20,
            handshake_ns: 5_000_000_000,
            keep_alive_ns: 60_000_000_000,
            timeout_ns: 300_000_000_000,
            linger_ns: 30_000_000_000,
            resets_per_second: 1000,
            syn_cookies_per_second: 1_000_000,
        }
    }
}

/// The whole configuration of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackConfig {
    /// Interface `i` is port `i` of the frame lane.
    pub interfaces: Vec<InterfaceConfig>,
    /// Port `i` of the stack listens to `listen[i]`; a datagram stack may open others. The unspecified address stands
    /// for all of ours of its IP version; a group, for datagrams, for that group.
    pub listen: Vec<SocketAddr>,
    /// Hand to the kernel what is not for us, instead of dropping it: the kernel keeps the
    /// interface. Then nothing that the kernel could answer is refused (no reset, no ICMP error).
    pub pass_rest: bool,
    /// Answer pings to our addresses.
    pub answer_echo: bool,
    /// Time to live of what we send.
    pub hop_limit: u8,
    /// Time to live of what we send to groups.
    pub group_hop_limit: u8,
    /// The key of initial sequence numbers and hash tables. A sender that knows it can guess them: take
    /// [`StackConfig::random_secret`], except in simulations, which must be repeatable.
    pub secret: [u64; 2],
    /// Limits of neighbours, ICMP and the outbox.
    pub limits: HostLimits,
    /// Limits of connections.
    pub tcp: TcpLimits,
}

impl StackConfig {
    /// One interface, default limits, a random secret.
    pub fn new(interface: InterfaceConfig, listen: Vec<SocketAddr>) -> StackConfig {
        StackConfig {
            interfaces: vec![interface],
            listen,
            pass_rest: false,
            answer_echo: true,
            hop_limit: 64,
            group_hop_limit: 1,
            secret: StackConfig::random_secret(),
            limits: HostLimits::default(),
            tcp: TcpLimits::default(),
        }
    }

    /// A secret that cannot be guessed: it is from the operating system's randomness, by way of
    /// the keys of the standard library's hash maps.
    pub fn random_secret() -> [u64; 2] {
        [0u64, 1].map(|half| RandomState::new().hash_one(half))
    }

    /// Refuses what cannot work, in words.
    pub(crate) fn check(&self, lane: &str, ports: usize) -> Result<(), LaneError> {
        let refuse = |name: String, why: &str, hint: &str| {
            Err(LaneError::Refused {
                lane: format!("{lane} stack"),
                name,
                why: why.to_owned(),
                hint: hint.to_owned(),
            })
        };
        if self.interfaces.len() != ports {
            return refuse(
                format!("{} interfaces", self.interfaces.len()),
                &format!("the lane has {ports} ports"),
                "describe one interface per port of the lane",
            );
        }
        for interface in &self.interfaces {
            interface.check(&refuse)?;
        }
        if self.listen.len() > LISTEN_MAX {
            return refuse(
                format!("{} addresses to listen to", self.listen.len()),
                "every port of a stack is one address",
                &format!("give at most {LISTEN_MAX}; a datagram stack may open more ports later"),
            );
        }
        for (i, address) in self.listen.iter().enumerate() {
            let ip = address.ip();
            let known = ip.is_unspecified()
                || self.interfaces.iter().any(|interface| {
                    interface.addresses.iter().any(|own| own.0 == ip)
                        || interface.groups.contains(&ip)
                });
            if !known {
                return refuse(
                    address.to_string(),
                    "no interface has this address or accepts this group",
                    "add it to the interface's addresses or groups",
                );
            }
            if address.port() == 0 {
                return refuse(address.to_string(), "port 0 cannot be addressed", "name a port");
            }
            if self.listen[..i].contains(address) {
                return refuse(address.to_string(), "it is listed twice", "list it once");
            }
        }
        if self.tcp.timeout_ns / 2 < self.tcp.keep_alive_ns {
            return refuse(
                format!("tcp.timeout_ns = {}", self.tcp.timeout_ns),
                "one lost keep-alive would end a connection",
                "make it at least twice tcp.keep_alive_ns",
            );
        }
        // smoltcp takes the window of its SYN-ACK for a shifted one. A peer that sends more than there
        // is room for would be believed.
        if self.tcp.rx_bytes > usize::from(u16::MAX) {
            return refuse(
                format!("tcp.rx_bytes = {}", self.tcp.rx_bytes),
                "a connection begins with a window of 65535 bytes at most",
                "raise tcp.window_bytes_max instead: windows grow with the stream",
            );
        }
        for (name, value) in [
            ("limits.neighbours_max", self.limits.neighbours_max),
            ("limits.outbox_bytes", self.limits.outbox_bytes),
            ("limits.outbox_packets", self.limits.outbox_packets),
            ("limits.groups_max", self.limits.groups_max),
            ("tcp.connections_max", self.tcp.connections_max),
            ("tcp.rx_bytes", self.tcp.rx_bytes),
            ("tcp.tx_bytes", self.tcp.tx_bytes),
            ("tcp.window_bytes_max", self.tcp.window_bytes_max),
            ("hop_limit", usize::from(self.hop_limit)),
            ("group_hop_limit", usize::from(self.group_hop_limit)),
        ] {
            if !(1..=1 << 30).contains(&value) {
                return refuse(format!("{name} = {value}"), "it must be 1 to 2^30", "change it");
            }
        }
        Ok(())
    }
}

impl InterfaceConfig {
    fn check(
        &self,
        refuse: &impl Fn(String, &str, &str) -> Result<(), LaneError>,
    ) -> Result<(), LaneError> {
        if !is_unicast_mac(self.mac) {
            return refuse(
                format!("MAC {:02x?}", self.mac),
                "it is a group's address, or the unspecified one",
                "use an address whose first byte is even",
            );
        }
        let v6 = self.addresses.iter().any(|own| own.0.is_ipv6());
        let mtu_min = if v6 { 1280 } else { MTU_BYTES_MIN };
        if !(mtu_min..=MTU_BYTES_MAX).contains(&self.mtu_bytes) {
            return refuse(
                format!("MTU {}", self.mtu_bytes),
                &format!("with these addresses it must be {mtu_min} to {MTU_BYTES_MAX}"),
                "set the interface's own MTU",
            );
        }
        let lists = [self.addresses.len(), self.gateways.len()];
        if lists.iter().any(|&n| n > ADDRESSES_MAX) || self.addresses.is_empty() {
            return refuse(
                format!("{lists:?} addresses and gateways"),
                "they are searched one by one for every packet",
                &format!("give 1 to {ADDRESSES_MAX} addresses, and no more gateways"),
            );
        }
        for &(address, prefix_bits) in &self.addresses {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            if !is_sender(address) || prefix_bits > bits {
                return refuse(
                    format!("{address}/{prefix_bits}"),
                    "it cannot be the address of an interface",
                    "give a unicast address and the length of its prefix",
                );
            }
        }
        for &gateway in &self.gateways {
            let near = self.addresses.iter().any(|&(address, prefix_bits)| {
                crate::address::OnLink { address, prefix_bits }.contains(gateway)
            });
            if !near {
                return refuse(
                    format!("gateway {gateway}"),
                    "it lies on the link of none of the addresses",
                    "check the prefix lengths",
                );
            }
        }
        for &group in &self.groups {
            if !group.is_multicast() {
                return refuse(group.to_string(), "it is no group", "list it as an address");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> StackConfig {
        let own = ("10.0.0.1".parse().unwrap(), 24);
        let interface = InterfaceConfig::new([2, 0, 0, 0, 0, 1], vec![own]);
        StackConfig::new(interface, vec!["10.0.0.1:7".parse().unwrap()])
    }

    #[test]
    fn a_sound_config_is_accepted() {
        assert!(config().check("sim", 1).is_ok());
    }

    /// Changes one thing and wants the refusal to name it.
    fn check(change: impl FnOnce(&mut StackConfig), named: &str) {
        let mut config = config();
        change(&mut config);
        let message = config.check("sim", 1).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_value() {
        check(|c| c.interfaces[0].mac = [1, 0, 0, 0, 0, 1], "MAC");
        check(|c| c.interfaces[0].mtu_bytes = 200, "MTU 200");
        check(|c| c.interfaces[0].addresses = vec![], "addresses");
        check(|c| c.interfaces[0].addresses[0].1 = 33, "10.0.0.1/33");
        check(|c| c.interfaces[0].gateways = vec!["10.0.1.1".parse().unwrap()], "10.0.1.1");
        check(|c| c.interfaces[0].groups = vec!["10.0.0.9".parse().unwrap()], "10.0.0.9");
        check(|c| c.listen[0] = "10.0.0.2:7".parse().unwrap(), "10.0.0.2:7");
        check(|c| c.listen[0] = "10.0.0.1:0".parse().unwrap(), "port 0");
        check(|c| c.listen.push(c.listen[0]), "twice");
        check(|c| c.tcp.rx_bytes = 0, "tcp.rx_bytes = 0");
        check(|c| c.tcp.rx_bytes = 65_536, "tcp.rx_bytes = 65536");
        check(|c| c.tcp.window_bytes_max = 2 << 30, "tcp.window_bytes_max");
        check(|c| c.tcp.timeout_ns = c.tcp.keep_alive_ns, "tcp.timeout_ns");
        check(|c| c.interfaces.push(c.interfaces[0].clone()), "2 interfaces");
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(StackConfig::random_secret(), StackConfig::random_secret());
    }
}
