//! Records as Ethernet frames, so that lanes and apps know one link layer.
//!
//! An Ethernet record is one already and passes untouched: no copy, no look at its bytes. Plain IP behind a small link
//! header (RAW, IPV4, IPV6, NULL, LOOP, LINUX_SLL, LINUX_SLL2) loses that header and gets an Ethernet header with both
//! addresses zero and the right EtherType. What is neither has no such form, and the caller counts it
//! (`link_type_unknown`) instead of leaving it out.
//!
//! What must always hold: the bytes behind the made-up header are the record's own, the wire length changes by exactly
//! what the headers differ in, and time, order and interface stay. It does not carry over the sender's address that a
//! cooked header knows: half of an address pair would look like a whole one.

use crate::format::Record;
use crate::link::{LinkType, Unsupported, network};

/// Bytes of a header that is put in front of plain IP.
pub const ETHERNET_BYTES: usize = 14;

/// A frame in two parts, so that the owner of the buffer copies each byte once.
pub struct Parts<'a> {
    header: Option<[u8; ETHERNET_BYTES]>,
    rest: &'a [u8],
    /// Bytes of the frame on the wire, behind the header that it has now.
    pub wire_len: u32,
}

impl<'a> Parts<'a> {
    /// The parts of `record` as an Ethernet frame.
    ///
    /// # Errors
    /// [`Unsupported`], as for [`ethernet`].
    #[inline]
    pub fn of(record: &Record<'a>) -> Result<Parts<'a>, Unsupported> {
        if record.link == LinkType::Ethernet {
            return Ok(Parts { header: None, rest: record.data, wire_len: record.wire_len });
        }
        let (ether_type, offset) = network(record.link, record.data)?;
        let mut header = [0; ETHERNET_BYTES];
        header[12..].copy_from_slice(&ether_type.to_be_bytes());
        // The header lies within the captured bytes, and the wire had at least those.
        let behind = record.wire_len - offset as u32;
        Ok(Parts {
            header: Some(header),
            rest: &record.data[offset..],
            wire_len: behind.saturating_add(ETHERNET_BYTES as u32),
        })
    }

    /// Bytes of the frame.
    #[expect(clippy::len_without_is_empty, reason = "no caller asks for a frame without bytes")]
    pub fn len(&self) -> usize {
        self.rest.len() + self.header.map_or(0, |header| header.len())
    }

    /// Fills `bytes` with the start of the frame.
    ///
    /// # Panics
    /// If `bytes` is longer than the frame.
    #[inline]
    pub fn copy_to(&self, mut bytes: &mut [u8]) {
        if let Some(header) = &self.header {
            let (front, behind) = bytes.split_at_mut(bytes.len().min(header.len()));
            front.copy_from_slice(&header[..front.len()]);
            bytes = behind;
        }
        bytes.copy_from_slice(&self.rest[..bytes.len()]);
    }
}

/// `record` as an Ethernet frame: itself if it is one, otherwise built in `scratch` (whose old content is lost; keep it
/// for the next record, so that it is allocated once).
///
/// ```
/// use laneway_capture::{LinkType, Record, ethernet};
/// let data = [0, 0, 0, 2, 0x45, 0]; // LINKTYPE_NULL: address family 2, then IPv4
/// let raw = Record { ts_ns: 7, interface: 0, link: LinkType::Null, wire_len: 60, data: &data };
/// let mut scratch = Vec::new();
/// let frame = ethernet(&raw, &mut scratch)?;
/// assert_eq!(frame.data, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0x45, 0]);
/// assert_eq!((frame.link, frame.wire_len), (LinkType::Ethernet, 60 - 4 + 14));
/// # Ok::<(), laneway_capture::Unsupported>(())
/// ```
///
/// # Errors
/// [`Unsupported`], when the record is neither Ethernet nor plain IP behind a link header.
#[inline]
pub fn ethernet<'a>(
    record: &Record<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Record<'a>, Unsupported> {
    let parts = Parts::of(record)?;
    let Some(header) = &parts.header else { return Ok(*record) };
    scratch.clear();
    scratch.extend_from_slice(header);
    scratch.extend_from_slice(parts.rest);
    let (link, wire_len) = (LinkType::Ethernet, parts.wire_len);
    Ok(Record { link, wire_len, data: scratch, ..*record })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame's EtherType and what stands behind it.
    fn check(link: LinkType, data: &[u8]) -> Result<(u16, Vec<u8>), Unsupported> {
        let wire_len = data.len() as u32 + 5;
        let record = Record { ts_ns: 1, interface: 2, link, wire_len, data };
        let mut scratch = vec![0xff; 3];
        let frame = ethernet(&record, &mut scratch)?;
        assert_eq!((frame.ts_ns, frame.interface, frame.link), (1, 2, LinkType::Ethernet));
        assert_eq!(frame.wire_len as usize, frame.data.len() + 5, "what was not captured stays so");
        assert_eq!(frame.data[..12], [0; 12]);
        let mut piecewise = vec![0xff; frame.data.len()];
        Parts::of(&record).expect("converted above").copy_to(&mut piecewise);
        assert_eq!(piecewise, frame.data);
        Ok((u16::from_be_bytes([frame.data[12], frame.data[13]]), frame.data[14..].to_vec()))
    }

    #[test]
    fn an_ethernet_record_passes_as_it_is_however_short() {
        for data in [&b""[..], &[1; 13], &[9; 60]] {
            let record =
                Record { ts_ns: 1, interface: 0, link: LinkType::Ethernet, wire_len: 60, data };
            let mut scratch = Vec::new();
            let frame = ethernet(&record, &mut scratch).expect("Ethernet is Ethernet");
            assert_eq!(frame, record);
            assert_eq!(frame.data.as_ptr(), data.as_ptr(), "not copied");
        }
    }

    #[test]
    fn plain_ip_gets_a_header_with_its_ether_type() {
        let (v4, v6) = ([0x45, 1, 2], [0x60, 3, 4]);
        assert_eq!(check(LinkType::Raw, &v4), Ok((0x0800, v4.to_vec())));
        assert_eq!(check(LinkType::Raw, &v6), Ok((0x86dd, v6.to_vec())));
        assert_eq!(check(LinkType::Ipv4, &v4), Ok((0x0800, v4.to_vec())));
        assert_eq!(check(LinkType::Ipv6, &[]), Ok((0x86dd, vec![])));
        assert_eq!(check(LinkType::Null, &[30, 0, 0, 0, 0x60]), Ok((0x86dd, vec![0x60])));
        assert_eq!(check(LinkType::Loop, &[0, 0, 0, 2, 0x45]), Ok((0x0800, vec![0x45])));
    }

    #[test]
    fn a_cooked_header_gives_way_to_an_ethernet_one() {
        let mut sll = [7; 17];
        sll[14..16].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(check(LinkType::LinuxSll, &sll), Ok((0x0806, vec![7])));
        let mut sll2 = [7; 21];
        sll2[..2].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(check(LinkType::LinuxSll2, &sll2), Ok((0x8100, vec![7])));
    }

    #[test]
    fn what_is_neither_is_refused_by_name() {
        let none = |link, data: &[u8]| check(link, data).expect_err("no Ethernet form");
        assert_eq!(none(LinkType::Other(147), &[0; 60]), Unsupported::LinkType(147));
        assert_eq!(none(LinkType::Raw, &[0x50]), Unsupported::IpVersion(5));
        assert_eq!(none(LinkType::Null, &[7, 0, 0, 0]), Unsupported::AddressFamily(7));
        assert!(matches!(none(LinkType::LinuxSll, &[0; 15]), Unsupported::Truncated { .. }));
    }

    #[test]
    fn a_frame_is_cut_wherever_the_buffer_ends() {
        let record =
            Record { ts_ns: 0, interface: 0, link: LinkType::Ipv4, wire_len: 3, data: &[1, 2, 3] };
        let parts = Parts::of(&record).expect("IPv4");
        assert_eq!(parts.len(), 17);
        for len in 0..=17 {
            let mut bytes = vec![0xff; len];
            parts.copy_to(&mut bytes);
            let whole = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 2, 3];
            assert_eq!(bytes, whole[..len]);
        }
    }
}
