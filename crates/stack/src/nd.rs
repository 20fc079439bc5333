//! Neighbour solicitations and advertisements (RFC 4861, 4.3 and 4.4), as values.
//!
//! Only the message: the caller has checked the ICMPv6 checksum. The hop limit of 255, which proves
//! that no router passed the message on, is checked here with the rest of RFC 4861, 7.1.

use laneway_wire::{Icmp, Mac};
use std::net::{IpAddr, Ipv6Addr};

pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
/// What proves that a message comes from this link.
pub(crate) const HOP_LIMIT: u8 = 255;
/// Bytes of a message that carries one link address.
pub(crate) const ND_BYTES: usize = 32;
/// Where the options begin.
const OPTIONS_AT: usize = 24;
/// Options that are looked at, at most.
const OPTIONS_MAX: usize = 16;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nd {
    /// Asks for the link address of `target`.
    Solicitation {
        target: Ipv6Addr,
        /// The asker's own; a probe for duplicates has none.
        source_mac: Option<Mac>,
    },
    /// Tells the link address of `target`.
    Advertisement {
        target: Ipv6Addr,
        target_mac: Option<Mac>,
        /// It answers a solicitation.
        solicited: bool,
        /// It is newer than what is known.
        overrides: bool,
    },
}

impl Nd {
    /// Reads the ICMPv6 message `bytes`; `None` for another one, or one that RFC 4861 says to
    /// discard.
    pub(crate) fn parse(
        bytes: &[u8],
        source: IpAddr,
        destination: IpAddr,
        hop_limit: u8,
    ) -> Option<Nd> {
        let icmp = Icmp::parse(bytes).ok()?;
        let target = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
        if hop_limit != HOP_LIMIT || icmp.code != 0 || target.is_multicast() {
            return None;
        }
        let options = bytes.get(OPTIONS_AT..)?;
        match icmp.kind {
            SOLICITATION => {
                let source_mac = link_address(options, SOURCE_LINK_ADDRESS)?;
                // A probe for duplicates goes to the solicited-node group and names no sender.
                let is_sound = !source.is_unspecified()
                    || (source_mac.is_none() && destination.is_multicast());
                is_sound.then_some(Nd::Solicitation { target, source_mac })
            }
            ADVERTISEMENT => {
                let solicited = icmp.rest[0] & SOLICITED != 0;
                if solicited && destination.is_multicast() {
                    return None;
                }
                Some(Nd::Advertisement {
                    target,
                    target_mac: link_address(options, TARGET_LINK_ADDRESS)?,
                    solicited,
                    overrides: icmp.rest[0] & OVERRIDE != 0,
                })
            }
            _ => None,
        }
    }

    /// The bytes of a message with a link address; the checksum is left to the caller.
    pub(crate) fn bytes(&self) -> [u8; ND_BYTES] {
        let mut b = [0; ND_BYTES];
        let (kind, flags, target, option, mac) = match *self {
            Nd::Solicitation { target, source_mac } => {
                (SOLICITATION, 0, target, SOURCE_LINK_ADDRESS, source_mac)
            }
            Nd::Advertisement { target, target_mac, solicited, overrides } => {
                let flags = if solicited { SOLICITED } else { 0 };
                let flags = flags | if overrides { OVERRIDE } else { 0 };
                (ADVERTISEMENT, flags, target, TARGET_LINK_ADDRESS, target_mac)
            }
        };
        b[0] = kind;
        b[4] = flags;
        b[8..24].copy_from_slice(&target.octets());
        b[24..26].copy_from_slice(&[option, 1]);
        b[26..].copy_from_slice(&mac.unwrap_or_default());
        b
    }
}

/// The link address in `options`, if there is one; `None` outside for options that are malformed.
#[expect(clippy::option_option, reason = "no address and no sense are two things")]
fn link_address(mut options: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut found = None;
    for _ in 0..OPTIONS_MAX {
        let [kind, units, ..] = *options else {
            return options.is_empty().then_some(found);
        };
        let bytes = usize::from(units) * 8;
        if bytes == 0 || bytes > options.len() {
            return None;
        }
        if kind == wanted && bytes == 8 {
            found = options[2..].first_chunk::<6>().copied();
        }
        options = &options[bytes..];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn target() -> Ipv6Addr {
        "fd00::7".parse().unwrap()
    }

    #[test]
    fn reads_what_it_writes() {
        let solicitation = Nd::Solicitation { target: target(), source_mac: Some([2; 6]) };
        let (from, group) = (ip("fd00::1"), ip("ff02::1:ff00:7"));
        assert_eq!(Nd::parse(&solicitation.bytes(), from, group, 255), Some(solicitation));
        let advertisement = Nd::Advertisement {
            target: target(),
            target_mac: Some([3; 6]),
            solicited: true,
            overrides: true,
        };
        let to = ip("fd00::1");
        assert_eq!(Nd::parse(&advertisement.bytes(), from, to, 255), Some(advertisement));
    }

    #[test]
    fn what_a_router_could_have_forwarded_is_refused() {
        let bytes = Nd::Solicitation { target: target(), source_mac: None }.bytes();
        assert_eq!(Nd::parse(&bytes, ip("fd00::1"), ip("fd00::7"), 254), None);
    }

    #[test]
    fn what_rfc_4861_says_to_discard_is_discarded() {
        let (from, to, group) = (ip("fd00::1"), ip("fd00::7"), ip("ff02::1"));
        let probe = Nd::Solicitation { target: target(), source_mac: Some([2; 6]) }.bytes();
        // A probe for duplicates with a link address, and one that goes to a single host.
        assert_eq!(Nd::parse(&probe, ip("::"), group, 255), None);
        assert_eq!(Nd::parse(&probe[..24], ip("::"), to, 255), None);
        assert!(Nd::parse(&probe[..24], ip("::"), group, 255).is_some());
        let mut group_target = probe;
        group_target[8] = 0xff;
        assert_eq!(Nd::parse(&group_target, from, to, 255), None);
        let mut empty_option = probe;
        empty_option[25] = 0;
        assert_eq!(Nd::parse(&empty_option, from, to, 255), None);
        let answer = Nd::Advertisement {
            target: target(),
            target_mac: None,
            solicited: true,
            overrides: false,
        };
        assert_eq!(Nd::parse(&answer.bytes()[..24], from, group, 255), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 134u8..138
        ) {
            let mut bytes = bytes;
            if let [first, code, ..] = &mut bytes[..] {
                (*first, *code) = (kind, 0);
            }
            let _ = Nd::parse(&bytes, ip("fd00::1"), ip("fd00::7"), 255);
        }
    }
}
