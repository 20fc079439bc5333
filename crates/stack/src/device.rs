//! What smoltcp takes for a network device: the packet of one received frame, or free frames to fill.
//!
//! Both speak IP without Ethernet; what smoltcp receives was checked before (lengths, checksums), so
//! it checks no sums again, and computes those of what it sends.

use crate::{ip, outbox::Hop, sequence::Sent};
use laneway_core::{Burst, Verdict};
use laneway_wire::ETHERNET_BYTES;
use smoltcp::{
    phy::{self, Checksum, DeviceCapabilities, Medium},
    time::Instant,
};

/// The longest answer that is given at once: IPv6 and TCP headers with all options.
const REPLY_BYTES_MAX: usize = 128;

fn capabilities(mtu_bytes: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu_bytes;
    capabilities.checksum.ipv4 = Checksum::Tx;
    capabilities.checksum.tcp = Checksum::Tx;
    capabilities
}

/// An immediate answer (an acknowledgement or a reset), kept aside while the frame that it answers
/// is still being read.
pub(crate) struct Reply {
    bytes: [u8; REPLY_BYTES_MAX],
    len: usize,
    is_too_long: bool,
}

impl Reply {
    pub(crate) fn new() -> Reply {
        Reply { bytes: [0; REPLY_BYTES_MAX], len: 0, is_too_long: false }
    }

    /// The packet; empty if there is no answer.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// There is none because TCP made one that is longer than it has any reason to be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// The packet, to be corrected.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// One received packet, and room for an answer.
pub(crate) struct Ingress<'a> {
    packet: Option<&'a [u8]>,
    reply: &'a mut Reply,
    mtu_bytes: usize,
}

impl<'a> Ingress<'a> {
    pub(crate) fn new(packet: &'a [u8], reply: &'a mut Reply, mtu_bytes: usize) -> Ingress<'a> {
        (reply.len, reply.is_too_long) = (0, false);
        Ingress { packet: Some(packet), reply, mtu_bytes }
    }
}

pub(crate) struct ReceivedPacket<'a>(&'a [u8]);

impl phy::RxToken for ReceivedPacket<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

pub(crate) struct ReplyRoom<'a>(&'a mut Reply);

impl phy::TxToken for ReplyRoom<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        // smoltcp may quote what it cannot read; its length is a peer's choice, so it is dropped.
        let Some(bytes) = self.0.bytes.get_mut(..len) else {
            self.0.is_too_long = true;
            return f(&mut vec![0; len]);
        };
        self.0.len = len;
        f(bytes)
    }
}

impl phy::Device for Ingress<'_> {
    type RxToken<'a>
        = ReceivedPacket<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = ReplyRoom<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(ReceivedPacket<'_>, ReplyRoom<'_>)> {
        self.packet.take().map(|packet| (ReceivedPacket(packet), ReplyRoom(self.reply)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<ReplyRoom<'_>> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu_bytes)
    }
}

/// A device that only reads what is sent to it.
pub(crate) struct ReadOnlyDevice<'a> {
    /// The last packet.
    pub(crate) sent: &'a mut Vec<u8>,
    pub(crate) mtu_bytes: usize,
}

pub(crate) struct Nowhere<'a>(&'a mut Vec<u8>);

impl phy::TxToken for Nowhere<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.0.resize(len, 0);
        f(self.0)
    }
}

impl phy::Device for ReadOnlyDevice<'_> {
    type RxToken<'a>
        = ReceivedPacket<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Nowhere<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(ReceivedPacket<'_>, Nowhere<'_>)> {
        None
    }

    fn transmit(&mut self, _now: Instant) -> Option<Nowhere<'_>> {
        Some(Nowhere(self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu_bytes)
    }
}

/// Free frames, filled one after the other.
pub(crate) struct Egress<'a> {
    pub(crate) burst: &'a mut Burst,
    /// The first frame that is still empty.
    pub(crate) used: &'a mut usize,
    pub(crate) hop: Hop,
    pub(crate) ether_type: u16,
    pub(crate) mtu_bytes: usize,
    pub(crate) sent: &'a mut Sent,
    /// Where a packet goes that is longer than the lane's frames.
    pub(crate) spill: &'a mut Vec<u8>,
    /// How many did.
    pub(crate) spilled: &'a mut u64,
}

pub(crate) struct BorrowedFrame<'a, 'b>(&'a mut Egress<'b>);

impl phy::TxToken for BorrowedFrame<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Egress { burst, used, hop, ether_type, sent, spill, spilled, .. } = self.0;
        let mut frame = burst.frame_mut(**used);
        if !frame.set_len(ETHERNET_BYTES + len) {
            **spilled += 1;
            spill.resize(len, 0);
            return f(spill);
        }
        let bytes = frame.bytes_mut();
        ip::emit_ethernet(bytes, hop.to, hop.from, *ether_type);
        let result = f(&mut bytes[ETHERNET_BYTES..]);
        sent.follow(&mut bytes[ETHERNET_BYTES..]);
        frame.set_verdict(Verdict::Tx);
        **used += 1;
        result
    }
}

impl<'b> phy::Device for Egress<'b> {
    type RxToken<'a>
        = ReceivedPacket<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = BorrowedFrame<'a, 'b>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(ReceivedPacket<'_>, BorrowedFrame<'_, 'b>)> {
        None
    }

    fn transmit(&mut self, _now: Instant) -> Option<BorrowedFrame<'_, 'b>> {
        (*self.used < self.burst.len()).then_some(BorrowedFrame(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::phy::TxToken;

    #[test]
    fn an_answer_that_is_too_long_is_none() {
        let mut reply = Reply::new();
        ReplyRoom(&mut reply).consume(REPLY_BYTES_MAX + 8, |bytes| bytes.fill(7));
        assert_eq!((reply.bytes(), reply.is_too_long()), (&[][..], true));
        Ingress::new(&[], &mut reply, 1500);
        assert!(!reply.is_too_long());
        ReplyRoom(&mut reply).consume(2, |bytes| bytes.fill(7));
        assert_eq!((reply.bytes(), reply.is_too_long()), (&[7, 7][..], false));
    }
}
