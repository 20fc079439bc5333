//! Internet addresses in the kernel's form (`sockaddr_in`, `sockaddr_in6`), byte by byte.
//!
//! Takes any bytes and returns an address or nothing; never panics. Knows only the two families.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for either form, rounded up.
pub(crate) const BYTES: usize = 32;
/// Bytes of `sockaddr_in` and `sockaddr_in6`.
const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;

/// Writes `address` and returns how many bytes it takes.
pub(crate) fn write(raw: &mut [u8; BYTES], address: SocketAddr) -> usize {
    raw.fill(0);
    raw[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            raw[4..8].copy_from_slice(&v4.ip().octets());
            V4_BYTES
        }
        SocketAddr::V6(v6) => {
            raw[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            raw[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            raw[8..24].copy_from_slice(&v6.ip().octets());
            raw[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            V6_BYTES
        }
    }
}

/// Reads what the kernel wrote.
pub(crate) fn read(raw: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*raw.first_chunk()?);
    let port = u16::from_be_bytes(*raw.get(2..)?.first_chunk()?);
    match libc::c_int::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *raw.get(4..)?.first_chunk()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(*raw.get(4..)?.first_chunk()?);
            let ip: [u8; 16] = *raw.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*raw.get(24..)?.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_nothing(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            read(&raw);
        }

        #[test]
        fn what_is_written_is_read(v4: [u8; 4], v6: [u8; 16], port: u16, flow: u32, scope: u32) {
            let v4 = SocketAddrV4::new(v4.into(), port);
            let v6 = SocketAddrV6::new(v6.into(), port, flow, scope);
            for address in [SocketAddr::from(v4), v6.into()] {
                let mut raw = [0xff; BYTES];
                let bytes = write(&mut raw, address);
                prop_assert_eq!(read(&raw[..bytes]), Some(address));
                prop_assert_eq!(read(&raw[..bytes - 1]), if address.is_ipv4() { Some(address) } else { None });
            }
        }
    }
}
