//! What the kernel half must do, written down a second time: from bytes to values and back, by slices,
//! without a look at the header.

use laneway_relay::kernel::{KernelFate, KernelOutput, KernelRule};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A datagram that a rule may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) vlan: u16,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
    /// Bytes of payload.
    pub(crate) payload: usize,
    /// Where the IP header begins.
    pub(crate) l3: usize,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The datagram of a frame, or why it is the kernel's.
pub(crate) fn read(frame: &[u8], ttl_min: u8) -> Result<Datagram, KernelFate> {
    let Some((ethernet, mut rest)) = frame.split_at_checked(14) else {
        return Err(KernelFate::NoRule);
    };
    let (mut kind, mut vlan) = (word(ethernet, 12), 0);
    if kind == 0x8100 {
        let Some((tag, behind)) = rest.split_at_checked(4) else { return Err(KernelFate::NoRule) };
        (vlan, kind, rest) = (word(tag, 0) & 0x0fff, word(tag, 2), behind);
    }
    let l3 = frame.len() - rest.len();
    let (source, destination, udp): (IpAddr, IpAddr, &[u8]) = match kind {
        0x0800 => {
            let Some(ip) = rest.first_chunk::<20>() else { return Err(KernelFate::Length) };
            if ip[9] != 17 {
                return Err(KernelFate::NoRule);
            }
            match (ip[0] >> 4, ip[0] & 0x0f) {
                (4, 5) => {}
                (4, 6..) => return Err(KernelFate::Options),
                _ => return Err(KernelFate::Length),
            }
            if word(ip, 6) & 0x3fff != 0 {
                return Err(KernelFate::Fragment);
            }
            let total = usize::from(word(ip, 2));
            let Some(packet) = rest.get(..total).filter(|packet| packet.len() >= 28) else {
                return Err(KernelFate::Length);
            };
            if ip[8] < ttl_min {
                return Err(KernelFate::Ttl);
            }
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            (address(12).into(), address(16).into(), &packet[20..])
        }
        0x86dd => {
            let Some(ip) = rest.first_chunk::<40>() else { return Err(KernelFate::Length) };
            match ip[6] {
                17 => {}
                44 => return Err(KernelFate::Fragment),
                0 | 43 | 51 | 60 | 135 | 139 | 140 => return Err(KernelFate::Options),
                _ => return Err(KernelFate::NoRule),
            }
            let payload = usize::from(word(ip, 4));
            let udp = rest.get(40..40 + payload).filter(|udp| udp.len() >= 8);
            let (Some(udp), 6) = (udp, ip[0] >> 4) else { return Err(KernelFate::Length) };
            if ip[7] < ttl_min {
                return Err(KernelFate::Ttl);
            }
            if word(udp, 6) == 0 {
                return Err(KernelFate::NoChecksum);
            }
            let address = |at: usize| {
                let octets: [u8; 16] = ip[at..at + 16].try_into().expect("sixteen bytes");
                Ipv6Addr::from(octets)
            };
            (address(8).into(), address(24).into(), udp)
        }
        _ => return Err(KernelFate::NoRule),
    };
    if usize::from(word(udp, 4)) != udp.len() {
        return Err(KernelFate::Length);
    }
    Ok(Datagram { vlan, source, destination, port: word(udp, 2), payload: udp.len() - 8, l3 })
}

/// Which rule has a frame received by `ifindex`, and its datagram.
pub(crate) fn decide<'a>(
    rules: &'a [KernelRule],
    ifindex: u32,
    frame: &[u8],
    ttl_min: u8,
) -> Result<(&'a KernelRule, Datagram), KernelFate> {
    let datagram = read(frame, ttl_min)?;
    let has = |rule: &&KernelRule| {
        (rule.ifindex, rule.vlan, rule.destination, rule.port)
            == (ifindex, datagram.vlan, datagram.destination, datagram.port)
    };
    let rule = rules.iter().find(has).ok_or(KernelFate::NoRule)?;
    if !rule.sources.is_empty() && !rule.sources.contains(&datagram.source) {
        return Err(KernelFate::Source);
    }
    Ok((rule, datagram))
}

/// The frame as it leaves by an output.
pub(crate) fn output(frame: &[u8], datagram: &Datagram, output: &KernelOutput) -> Vec<u8> {
    let mut new = frame.to_vec();
    let mut put = |at: usize, bytes: &[u8]| new[at..at + bytes.len()].copy_from_slice(bytes);
    let mac = output.next_hop_mac.unwrap_or_else(|| match output.destination.ip() {
        IpAddr::V4(ip) => {
            let low = u32::from(ip) & 0x007f_ffff;
            let [_, a, b, c] = low.to_be_bytes();
            [1, 0, 0x5e, a, b, c]
        }
        IpAddr::V6(ip) => {
            let low = u128::from(ip) as u32;
            let [a, b, c, d] = low.to_be_bytes();
            [0x33, 0x33, a, b, c, d]
        }
    });
    put(0, &mac);
    put(6, &output.own_mac);
    let ip = datagram.l3;
    let class = output.dscp << 2;
    let (addresses, udp) = match (output.source_ip, output.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            put(ip + 1, &[class]);
            put(ip + 8, &[output.hop_limit]);
            put(ip + 12, &source.octets());
            put(ip + 16, &destination.octets());
            (ip + 12..ip + 20, ip + 20)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            put(ip, &[0x60 | class >> 4, class << 4 | frame[ip + 1] & 0x0f]);
            put(ip + 7, &[output.hop_limit]);
            put(ip + 8, &source.octets());
            put(ip + 24, &destination.octets());
            (ip + 8..ip + 40, ip + 40)
        }
        _ => panic!("a rule has one family"),
    };
    put(udp, &output.source_port.to_be_bytes());
    put(udp + 2, &output.destination.port().to_be_bytes());
    let change = |ranges: &[std::ops::Range<usize>]| -> u64 {
        let pairs = ranges.iter().flat_map(|range| {
            let words = |bytes: &[u8]| -> Vec<u16> {
                bytes[range.clone()].chunks(2).map(|pair| word(pair, 0)).collect()
            };
            words(frame).into_iter().zip(words(&new))
        });
        let changed = pairs.filter(|(old, new)| old != new);
        changed.map(|(old, new)| u64::from(!old) + u64::from(new)).sum()
    };
    let follow = |checksum: u16, change: u64| {
        if change == 0 {
            return checksum;
        }
        !laneway_wire::checksum::fold(u64::from(!checksum) + change)
    };
    let is_v4 = output.source_ip.is_ipv4();
    let header = is_v4.then(|| {
        follow(word(frame, ip + 10), change(&[ip..ip + 2, ip + 8..ip + 10, ip + 12..ip + 20]))
    });
    let had = word(frame, udp + 6);
    let has = match follow(had, change(&[addresses, udp..udp + 4])) {
        _ if had == 0 => 0,
        0 => 0xffff,
        checksum => checksum,
    };
    if let Some(header) = header {
        new[ip + 10..ip + 12].copy_from_slice(&header.to_be_bytes());
    }
    new[udp + 6..udp + 8].copy_from_slice(&has.to_be_bytes());
    new
}
