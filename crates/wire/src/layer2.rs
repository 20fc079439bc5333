//! From a frame's first byte to its layer 3: the EtherType and the two outermost VLAN tags.

use crate::{ETHERNET_BYTES, Malformed, VLAN_BYTES, VlanTag, is_vlan_type};

/// Tags that a [`Layer2`] steps over; the EtherType of a third stays the frame's.
pub const VLAN_TAGS_MAX: usize = 2;

/// What stands between the addresses of an Ethernet frame and its layer 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer2 {
    /// The tags, outermost first.
    pub tags: [Option<VlanTag>; VLAN_TAGS_MAX],
    /// The EtherType behind the tags; an 802.3 length below 0x0600.
    pub ether_type: u16,
    /// Where layer 3 begins, bytes from the start of the frame; never beyond its end.
    pub layer3_at: usize,
    /// True for a frame that ends inside a tag, whose own type is then the `ether_type`.
    pub is_cut: bool,
}

impl Layer2 {
    /// Reads the EtherType and the tags of `frame`; the addresses are left to [`Ethernet`](crate::Ethernet).
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 14 bytes.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Layer2, Malformed> {
        let Some(&[high, low]) = frame.get(ETHERNET_BYTES - 2..ETHERNET_BYTES) else {
            return Err(Malformed::Truncated);
        };
        let mut tags = [None; VLAN_TAGS_MAX];
        let mut ether_type = u16::from_be_bytes([high, low]);
        let (mut layer3_at, mut is_cut) = (ETHERNET_BYTES, false);
        for place in &mut tags {
            if !is_vlan_type(ether_type) {
                break;
            }
            let Ok(tag) = VlanTag::parse(&frame[layer3_at..]) else {
                is_cut = true;
                break;
            };
            *place = Some(tag);
            ether_type = tag.ether_type;
            layer3_at += VLAN_BYTES;
        }
        Ok(Layer2 { tags, ether_type, layer3_at, is_cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn frame(behind_addresses: &[u8]) -> Vec<u8> {
        [&[2; 12], behind_addresses].concat()
    }

    #[test]
    fn two_tags_are_stepped_over_and_a_third_is_not() {
        let plain = Layer2::parse(&frame(&[8, 0, 0x45])).unwrap();
        let bare = Layer2 { tags: [None; 2], ether_type: 0x0800, layer3_at: 14, is_cut: false };
        assert_eq!(plain, bare);
        let three = frame(&[0x88, 0xa8, 0x20, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7, 8, 0]);
        let tagged = Layer2::parse(&three).unwrap();
        assert_eq!(tagged.tags.map(|tag| tag.map(|tag| tag.id())), [Some(5), Some(6)]);
        assert_eq!((tagged.ether_type, tagged.layer3_at, tagged.is_cut), (0x8100, 22, false));
    }

    #[test]
    fn a_frame_that_ends_in_a_tag_keeps_what_stands_before_it() {
        let inner = Layer2::parse(&frame(&[0x81, 0, 0, 5, 0x81, 0, 0])).unwrap();
        assert_eq!(inner.tags.map(|tag| tag.map(|tag| tag.id())), [Some(5), None]);
        assert_eq!((inner.ether_type, inner.layer3_at, inner.is_cut), (0x8100, 18, true));
        assert_eq!(Layer2::parse(&[2; 13]), Err(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn layer_3_begins_within_the_frame(bytes in proptest::collection::vec(any::<u8>(), 0..40), tagged in any::<bool>()) {
            let mut bytes = bytes;
            if tagged && bytes.len() > 17 {
                bytes[12..14].copy_from_slice(&[0x81, 0]);
                bytes[16..18].copy_from_slice(&[0x88, 0xa8]);
            }
            match Layer2::parse(&bytes) {
                Ok(layer2) => prop_assert!(layer2.layer3_at <= bytes.len()),
                Err(_) => prop_assert!(bytes.len() < ETHERNET_BYTES),
            }
        }
    }
}
