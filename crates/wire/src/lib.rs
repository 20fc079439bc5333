//! Header bytes <-> values, and checksums. No I/O, no allocation, no unsafe, and no panic on any
//! bytes whatsoever.
//!
//! One recipe per header: a plain struct of host-order values, `parse(bytes)` which looks only at
//! the fixed part and says why not, and `emit(&mut bytes)` which writes what `parse` read. Parsing
//! never follows a length field further than the bytes it was given; what a length claims is
//! returned as a value for the caller to judge.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod checksum;
mod ethernet;
mod extensions;
mod icmp;
mod ipv4;
mod ipv6;
mod layer2;
mod partial;
mod sctp;
mod shift;
mod tcp;
mod udp;

pub use ethernet::{ETHERNET_BYTES, Ethernet, Mac, VLAN_BYTES, VlanTag, ether_type, is_vlan_type};
pub use extensions::{
    EXTENSIONS_MAX, Extension, ExtensionError, Extensions, FragmentHeader, extension, is_extension,
};
pub use icmp::{ICMP_BYTES, Icmp};
pub use ipv4::{IPV4_BYTES_MIN, Ipv4, protocol};
pub use ipv6::{IPV6_BYTES, Ipv6};
pub use layer2::{Layer2, VLAN_TAGS_MAX};
pub use partial::{Unfinished, finish_checksum};
pub use sctp::{SCTP_BYTES, Sctp};
pub use shift::ShiftedAddresses;
pub use tcp::{TCP_BYTES_MIN, Tcp, TcpOption, TcpOptions, flags as tcp_flags};
pub use udp::{UDP_BYTES, Udp};

/// Why bytes are not the header they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the header does.
    Truncated,
    /// The version nibble is another one.
    Version,
    /// A length field contradicts the header's own minimum.
    Length,
}

/// Reads a big-endian u16; 0 beyond the end, which no caller reaches: they take fixed-size arrays.
#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[a, b]) => u16::from_be_bytes([a, b]),
        _ => 0,
    }
}

/// Reads a big-endian u32, as [`be16`].
#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}
