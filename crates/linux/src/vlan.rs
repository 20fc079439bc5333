//! The VLAN tag that the kernel takes off every received frame, and its way back.
//!
//! Linux moves the outermost tag (802.1Q or 802.1ad) from the frame into the socket buffer before
//! any packet socket sees it, whether or not the device offloads tags, and tells user space about
//! it beside the frame. Other lanes see the frame as it was on the wire, so such a lane puts the tag
//! back: the two addresses (12 bytes) move four bytes to the front, nothing else moves. Therefore it
//! is not counted as a copy.

use laneway_core::FrameMut;

/// Bytes of a tag: what a frame may grow by, and what the kernel grants beyond the MTU.
pub const TAG_BYTES: usize = 4;
/// Both Ethernet addresses, which stay in front of the tag.
const ADDRESSES_BYTES: usize = 12;
/// The tag protocol of a kernel that does not say which it took.
const TPID_8021Q: u16 = 0x8100;

/// A tag as it is on the wire: protocol, then control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag([u8; TAG_BYTES]);

impl Tag {
    /// The tag that status bits and fields of an auxiliary record (or ring header) tell of, if any.
    pub fn from_kernel(status: u32, tci: u16, tpid: u16) -> Option<Tag> {
        if status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let has_tpid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let [p0, p1] = if has_tpid { tpid } else { TPID_8021Q }.to_be_bytes();
        let [t0, t1] = tci.to_be_bytes();
        Some(Tag([p0, p1, t0, t1]))
    }

    /// Puts the tag back. The lane keeps the room for it in front of every frame.
    pub fn put_back(self, mut frame: FrameMut<'_>) {
        if frame.bytes().len() < ADDRESSES_BYTES {
            return; // cut by frame= so short that nothing of the tag would show
        }
        let grown = frame.grow_front(TAG_BYTES);
        assert!(grown, "every buffer keeps room for a tag");
        self.move_in(frame.bytes_mut());
    }

    /// Moves the addresses to the front of `bytes`, which begin with the room for the tag, and writes the tag behind
    /// them.
    fn move_in(self, bytes: &mut [u8]) {
        bytes.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
        bytes[ADDRESSES_BYTES..ADDRESSES_BYTES + TAG_BYTES].copy_from_slice(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_comes_back_between_addresses_and_type() {
        let mut bytes: Vec<u8> = [0xee; TAG_BYTES].into_iter().chain(0..20).collect();
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let tag = Tag::from_kernel(status, 0x6123, 0x88a8).expect("valid");
        tag.move_in(&mut bytes);
        assert_eq!(bytes[..12], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(bytes[12..18], [0x88, 0xa8, 0x61, 0x23, 12, 13]);
        assert_eq!(bytes.len(), 24);
    }

    #[test]
    fn only_a_valid_tag_is_believed() {
        assert_eq!(Tag::from_kernel(0, 7, 0x8100), None);
        let old_kernel = Tag::from_kernel(libc::TP_STATUS_VLAN_VALID, 7, 0);
        assert_eq!(old_kernel, Some(Tag([0x81, 0, 0, 7])));
    }
}
