//! What a packet socket's frames lack of those on a wire, and how they get it back: the VLAN tag ([`Tag`]), and a
//! checksum that a local sender left to a device ([`finish_checksum`]). What no buffer had room for does not come back
//! ([`reason_not_to_send`]).

use crate::Tag;
use laneway_core::{Burst, DropReason, FrameSpan};
use laneway_wire::{Unfinished, finish_checksum};
use std::iter;

/// What the kernel reports beside one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    tag: Option<Tag>,
    is_unfinished: bool,
}

impl Repairs {
    /// By the status bits of a record or ring header (`TP_STATUS_*`), and its tag control information and protocol.
    pub fn from_kernel(status: u32, tci: u16, tpid: u16) -> Repairs {
        Repairs {
            tag: Tag::from_kernel(status, tci, tpid),
            is_unfinished: status & libc::TP_STATUS_CSUMNOTREADY != 0,
        }
    }

    /// By the record beside a frame (PACKET_AUXDATA), `struct tpacket_auxdata`: status, length, captured length, two
    /// offsets, then tag control information and protocol. Of one that ends before that, none.
    pub fn from_auxdata(data: &[u8]) -> Repairs {
        let u16_at = |at: usize| Some(u16::from_ne_bytes(*data.get(at..)?.first_chunk()?));
        let status = data.first_chunk().map(|status| u32::from_ne_bytes(*status));
        match (status, u16_at(16), u16_at(18)) {
            (Some(status), Some(tci), Some(tpid)) => Repairs::from_kernel(status, tci, tpid),
            _ => Repairs::default(),
        }
    }

    /// Makes the last frame of `burst` what it would be on a wire. True if a checksum was finished for that; that of a
    /// cut frame cannot be.
    ///
    /// # Panics
    /// On an empty burst, and without the room for a tag that the lane keeps in front of every frame.
    #[inline]
    pub fn make(self, burst: &mut Burst) -> bool {
        let last = burst.len() - 1;
        let is_finished = self.is_unfinished && finish(burst, last);
        if let Some(tag) = self.tag {
            tag.put_back(burst.frame_mut(last));
        }
        is_finished
    }
}

fn finish(burst: &mut Burst, at: usize) -> bool {
    if burst.tail_spans(at).is_empty() {
        let span = burst.span(at);
        return span.len == span.wire_len && finish_checksum(burst.frame_mut(at).bytes_mut());
    }
    let head = burst.frame(at).bytes;
    let Some(left) = Unfinished::find(head) else { return false };
    let Some(checksum) = left.checksum(iter::once(head).chain(burst.tails(at))) else {
        return false;
    };
    left.write(burst.frame_mut(at).bytes_mut(), checksum);
    true
}

/// Finishes the checksums of a burst that were left to a device, where no kernel says of which frames; how many. Every
/// frame is looked at, so this is for interfaces with a program of this machine at their other end.
pub fn finish_checksums(burst: &mut Burst) -> u64 {
    (0..burst.len()).map(|at| u64::from(finish(burst, at))).sum()
}

/// Why a frame in one buffer cannot leave by an interface whose frames have at most so many bytes; none if it can. A
/// frame that was cut on receive is not what its sender sent.
pub fn reason_not_to_send(span: &FrameSpan, frame_bytes_max: usize) -> Option<DropReason> {
    if span.len.max(span.wire_len) as usize > frame_bytes_max {
        return Some(DropReason::TxTooLong);
    }
    (span.len < span.wire_len).then_some(DropReason::RxTooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_cut_or_is_too_long_does_not_leave() {
        let span = |len, wire_len| FrameSpan {
            start: 0,
            ts_ns: 0,
            len,
            wire_len,
            headroom: 0,
            len_max: len,
        };
        assert_eq!(reason_not_to_send(&span(1500, 1500), 1500), None);
        assert_eq!(reason_not_to_send(&span(1501, 1501), 1500), Some(DropReason::TxTooLong));
        assert_eq!(reason_not_to_send(&span(1400, 1401), 1500), Some(DropReason::RxTooLong));
        assert_eq!(reason_not_to_send(&span(1400, 65_000), 1500), Some(DropReason::TxTooLong));
    }

    #[test]
    fn a_record_says_what_was_taken_off_and_what_was_left() {
        let status = libc::TP_STATUS_VLAN_VALID
            | libc::TP_STATUS_VLAN_TPID_VALID
            | libc::TP_STATUS_CSUMNOTREADY;
        let mut record =
            [status, 60, 60, 0].iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        record.extend([100u16, 0x8100].iter().flat_map(|half| half.to_ne_bytes()));
        let repairs = Repairs::from_auxdata(&record);
        assert_eq!(repairs.tag, Tag::from_kernel(status, 100, 0x8100));
        assert!(repairs.is_unfinished && repairs.tag.is_some());
        assert_eq!(repairs, Repairs::from_kernel(status, 100, 0x8100));
        for bytes in 0..record.len() {
            assert_eq!(Repairs::from_auxdata(&record[..bytes]), Repairs::default());
        }
    }
}
