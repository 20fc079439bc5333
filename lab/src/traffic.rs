//! What the generator sends: a capture, made ready to be replayed as many flows, or UDP frames made
//! here, of one flow.
//!
//! A frame of the capture becomes a [`Template`]: its bytes, and where in them a pass over the
//! capture may shift the addresses so that the pass makes new flows. The number of a frame travels
//! in its source MAC, which no feature reads, so the sink can account for every single frame
//! without the traffic being touched where it matters.
//!
//! Frames made here carry the number in their payload instead ([`numbered`]), so that an app that
//! is handed datagrams reads the same number as one that is handed frames. It is followed by its complement, so that
//! one checksum holds for every number. All else is the same in every frame of a flow, so a receiver may merge them
//! (GRO): it does so only with equal headers, equal lengths and a checksum that is right and not 0.
//!
//! `bpf/generate.bpf.c` shifts addresses in the kernel as [`ShiftedAddresses`] does here; a test compares the two on
//! the shipped capture.

use crate::client::ClientPlan;
use crate::error::TrafficError;
use crate::fanout::FanoutPlan;
use crate::timetable::{Times, Timetable};
use laneway_capture::{Capture, LinkType};
use laneway_wire::{ETHERNET_BYTES, Ipv4, ShiftedAddresses, checksum, ether_type};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// The longest frame replayed: MTU 1500, Ethernet header, two VLAN tags.
pub(crate) const FRAME_BYTES_MAX: usize = 1522;
/// The same without tags: what a TAP device of MTU 1500 takes.
pub(crate) const FRAME_BYTES_UNTAGGED_MAX: usize = 1514;
/// The largest capture taken into memory.
pub(crate) const CAPTURE_BYTES_MAX: usize = 1 << 30;
/// The most templates; as many entries has the kernel's map.
pub(crate) const TEMPLATES_MAX: usize = 1 << 20;
/// Where the number of a frame lies that has none in its payload: its source MAC.
pub(crate) const NUMBER_IN_MAC_AT: u16 = 6;

/// Where the payload of a frame made here begins: Ethernet, IPv4 and UDP header, bytes.
pub(crate) const PAYLOAD_AT: usize = ETHERNET_BYTES + 20 + 8;
/// Where the time to live of such a frame lies.
const HOP_LIMIT_AT: usize = ETHERNET_BYTES + 8;
/// Payloads that can be asked for, bytes: a frame is at least 60 bytes long, and at most an MTU of
/// 1500.
pub(crate) const PAYLOAD_BYTES: std::ops::RangeInclusive<u16> = 18..=1472;
/// The first byte of a number, in a payload as in a MAC (where it says: locally administered).
const NUMBER_MARK: u8 = 0x02;
/// The first byte of a wake-up probe's payload.
const PROBE_MARK: u8 = 0x03;
/// ICMP identifier of our echo requests; `LW_PROBE_ID` in `bpf/replies.h`.
const PROBE_ID: u16 = 0x4c57;
/// Bytes of a number: mark, segment, and the number, big-endian.
const NUMBER_BYTES: usize = 6;
/// Hardware address that frames made here come from: of the generator's end of the first cable.
const SOURCE_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0, 0, 1];
/// Bytes of a wake-up probe: its mark, 7 bytes of nothing, and its send stamp.
pub(crate) const PROBE_BYTES: usize = 18;

/// Payloads of a mix, bytes, in the order in which they are sent, over and over: 7 frames of 64 bytes, 4 of 594 and 1
/// of 1518, the frame check sequence of 4 bytes included. These are the sizes of the "simple IMIX" of test equipment
/// (IP packets of 40, 576 and 1500 bytes); RFC 6985 (IMIX Genome, 2013) asks for the exact repeating sequence.
const IMIX_PAYLOADS: [u16; 12] = [18, 548, 18, 18, 548, 18, 1472, 18, 548, 18, 18, 548];

/// How long the payloads of UDP frames made here are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Payloads {
    /// All the same, bytes.
    Fixed(u16),
    /// A mix of three sizes.
    Imix,
}

impl Payloads {
    /// Those of as many frames as there are until they repeat, bytes; at most [`PAYLOADS_MAX`].
    pub(crate) fn cycle(&self) -> &[u16] {
        match self {
            Payloads::Fixed(bytes) => std::slice::from_ref(bytes),
            Payloads::Imix => &IMIX_PAYLOADS,
        }
    }
}

/// Most payloads of a cycle; as many has the program that looks at what comes back.
pub(crate) const PAYLOADS_MAX: usize = 16;

/// What to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TrafficPlan {
    /// The frames of a capture file.
    Capture {
        /// The file.
        path: PathBuf,
        /// The longest frame replayed, bytes; at most [`FRAME_BYTES_MAX`].
        frame_bytes_max: usize,
    },
    /// UDP frames made here.
    Udp {
        /// What is after the UDP header.
        payloads: Payloads,
        /// From where.
        source: SocketAddrV4,
        /// Where to.
        destination: SocketAddrV4,
    },
    /// ICMP echo requests made here.
    Ping {
        /// Bytes after the ICMP header.
        payload_bytes: u16,
        /// From where.
        source: Ipv4Addr,
        /// Where to.
        destination: Ipv4Addr,
    },
    /// What a client asks over connections: no frame of it is made here.
    Tcp(ClientPlan),
    /// UDP datagrams to groups, made here, to be copied to several outputs.
    Fanout(FanoutPlan),
}

/// What is sent in a race, and when.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    /// What.
    pub(crate) traffic: TrafficPlan,
    /// What it is due by.
    pub(crate) times: Times,
    /// That, made ready.
    pub(crate) timetable: Timetable,
}

impl TrafficPlan {
    /// Payload of every packet, bytes, where all have the same.
    pub(crate) fn payload_bytes(&self) -> Option<u16> {
        match *self {
            TrafficPlan::Capture { .. }
            | TrafficPlan::Tcp(_)
            | TrafficPlan::Udp { payloads: Payloads::Imix, .. } => None,
            TrafficPlan::Udp { payloads: Payloads::Fixed(payload_bytes), .. }
            | TrafficPlan::Fanout(FanoutPlan { payload_bytes, .. })
            | TrafficPlan::Ping { payload_bytes, .. } => Some(payload_bytes),
        }
    }

    /// Payloads of the datagrams that are sent, bytes, as far as they do not repeat; empty of what is none.
    pub(crate) fn payloads(&self) -> &[u16] {
        match self {
            TrafficPlan::Udp { payloads, .. } => payloads.cycle(),
            TrafficPlan::Capture { .. }
            | TrafficPlan::Ping { .. }
            | TrafficPlan::Fanout(_)
            | TrafficPlan::Tcp(_) => &[],
        }
    }

    /// The client that asks over connections, if that is what is sent.
    pub(crate) fn client(&self) -> Option<&ClientPlan> {
        match self {
            TrafficPlan::Tcp(client) => Some(client),
            TrafficPlan::Capture { .. }
            | TrafficPlan::Udp { .. }
            | TrafficPlan::Fanout(_)
            | TrafficPlan::Ping { .. } => None,
        }
    }

    /// What is to be copied where, if that is what is sent.
    pub(crate) fn fanout(&self) -> Option<&FanoutPlan> {
        match self {
            TrafficPlan::Fanout(fanout) => Some(fanout),
            TrafficPlan::Capture { .. }
            | TrafficPlan::Udp { .. }
            | TrafficPlan::Tcp(_)
            | TrafficPlan::Ping { .. } => None,
        }
    }

    /// How many copies of each packet are to come out.
    pub(crate) fn copies(&self) -> u64 {
        self.fanout().map_or(1, |plan| plan.fanout.outputs.into())
    }

    /// Where in a frame its number lies, bytes from its start.
    pub(crate) fn number_at(&self) -> u16 {
        match self {
            TrafficPlan::Capture { .. } => NUMBER_IN_MAC_AT,
            TrafficPlan::Udp { .. }
            | TrafficPlan::Ping { .. }
            | TrafficPlan::Fanout(_)
            | TrafficPlan::Tcp(_) => PAYLOAD_AT as u16,
        }
    }
}

/// What a payload of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Segment and number, as a record's sequence number carries them: see [`split_number`].
    Number(u64),
    /// A wake-up probe, sent at this time, CLOCK_MONOTONIC ns.
    Probe(u64),
}

/// Reads a payload; `None` if it is not ours.
#[inline]
pub(crate) fn numbered(payload: &[u8]) -> Option<Payload> {
    match *payload.first_chunk::<NUMBER_BYTES>()? {
        [NUMBER_MARK, segment, a, b, c, d] => {
            let number = u32::from_be_bytes([a, b, c, d]);
            Some(Payload::Number(u64::from(segment) << 32 | u64::from(number)))
        }
        [PROBE_MARK, ..] => {
            let stamp = payload.get(8..16)?.first_chunk::<8>()?;
            Some(Payload::Probe(u64::from_le_bytes(*stamp)))
        }
        _ => None,
    }
}

/// The payload of a wake-up probe sent at `sent_ns`.
pub(crate) fn probe(sent_ns: u64) -> [u8; PROBE_BYTES] {
    let mut payload = [0; PROBE_BYTES];
    payload[0] = PROBE_MARK;
    payload[8..16].copy_from_slice(&sent_ns.to_le_bytes());
    payload
}

/// A frame ready to be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The frame from the Ethernet header on.
    pub frame: Vec<u8>,
    /// The addresses that a pass shifts; `None` for what is not IP.
    pub addresses: Option<ShiftedAddresses>,
    /// Where the frame's number goes, if not into its source MAC. Its complement follows it: whatever the number, the
    /// words of both sum up to nothing, and a checksum over them stays what it is.
    pub number_at: Option<u16>,
    /// The hardware address that it goes to, if it has one of its own.
    pub destination: Option<[u8; 6]>,
}

/// A capture made ready.
#[derive(Clone, Debug)]
pub(crate) struct Replayable {
    /// The frames that can be replayed, in order.
    pub templates: Vec<Template>,
    /// Frames in the capture.
    pub frames: usize,
    /// Mean length of a template, bytes.
    pub mean_frame_bytes: f64,
    /// Time stamps of the templates; empty of frames made here.
    pub stamps_ns: Vec<u64>,
    /// When they are due.
    pub times: Timetable,
    /// How often each is sent before the next one's turn.
    pub run: u32,
}

impl Replayable {
    /// Makes ready what `plan` says, to be sent when `times` says.
    ///
    /// # Errors
    /// As for [`load`](Self::load), and for a capture without times where its times are wanted.
    pub(crate) fn prepare(plan: &TrafficPlan, times: &Times) -> Result<Replayable, TrafficError> {
        let mut ready = match plan {
            TrafficPlan::Capture { path, frame_bytes_max } => {
                Replayable::load(path, *frame_bytes_max)?
            }
            &TrafficPlan::Udp { payloads, source, destination } => {
                let cycle = payloads.cycle().iter();
                Replayable::of(cycle.map(|&n| Template::udp(n, source, destination)).collect())
            }
            &TrafficPlan::Ping { payload_bytes, source, destination } => {
                Replayable::of(vec![Template::ping(payload_bytes, source, destination)])
            }
            TrafficPlan::Fanout(plan) => {
                Replayable { run: plan.run.max(1), ..Replayable::of(plan.templates()) }
            }
            TrafficPlan::Tcp(_) => Replayable::of(Vec::new()),
        };
        ready.times = match times {
            Times::Capture { path, .. } => Timetable::of_stamps(&ready.stamps_ns)
                .ok_or_else(|| TrafficError::NoTimes { path: path.display().to_string() })?,
            times => Timetable::of(times)?,
        };
        Ok(ready)
    }

    /// Of these templates, one after the other and over again, evenly spaced.
    pub(crate) fn of(templates: Vec<Template>) -> Replayable {
        let bytes: usize = templates.iter().map(|t| t.frame.len()).sum();
        Replayable {
            frames: templates.len(),
            mean_frame_bytes: bytes as f64 / templates.len().max(1) as f64,
            templates,
            stamps_ns: Vec::new(),
            times: Timetable::default(),
            run: 1,
        }
    }

    /// That of frame `number`.
    pub(crate) fn template(&self, number: u32) -> &Template {
        &self.templates[(number / self.run) as usize % self.templates.len()]
    }

    /// How often all of them were sent before frame `number`.
    pub(crate) fn pass(&self, number: u32) -> u64 {
        u64::from(number / self.run) / self.templates.len() as u64
    }

    /// Reads a capture and keeps the frames that fit the wire: Ethernet, captured whole, no longer
    /// than `frame_bytes_max`.
    ///
    /// # Errors
    /// An unreadable capture, or one without a frame that fits.
    pub(crate) fn load(path: &Path, frame_bytes_max: usize) -> Result<Replayable, TrafficError> {
        let name = || path.display().to_string();
        let capture = Capture::load(path, CAPTURE_BYTES_MAX)
            .map_err(|source| TrafficError::Capture { path: name(), source })?;
        let frames = capture.frames().len();
        let (templates, stamps_ns): (Vec<Template>, Vec<u64>) = capture
            .frames()
            .filter(|r| r.link == LinkType::Ethernet && r.wire_len as usize == r.data.len())
            .filter(|r| (ETHERNET_BYTES..=frame_bytes_max).contains(&r.data.len()))
            .map(|r| (Template::new(r.data), r.ts_ns))
            .unzip();
        if templates.is_empty() {
            return Err(TrafficError::Nothing { path: name(), frames, frame_bytes_max });
        }
        if templates.len() > TEMPLATES_MAX {
            return Err(TrafficError::TooMany {
                path: name(),
                frames: templates.len(),
                frames_max: TEMPLATES_MAX,
            });
        }
        Ok(Replayable { frames, stamps_ns, ..Replayable::of(templates) })
    }
}

impl Template {
    /// Looks for the addresses of `frame`.
    pub(crate) fn new(frame: &[u8]) -> Template {
        let (frame, addresses) = (frame.to_vec(), ShiftedAddresses::find(frame));
        Template { frame, addresses, number_at: None, destination: None }
    }

    /// A UDP frame with `payload_bytes` zeros, whose checksum holds for every number.
    fn udp(payload_bytes: u16, source: SocketAddrV4, destination: SocketAddrV4) -> Template {
        Template::datagram(&vec![0; payload_bytes.into()], source, destination)
    }

    /// The same with this payload, whose first 12 bytes are zeros, to a multicast group and its hardware address.
    pub(crate) fn group(payload: &[u8], source: SocketAddrV4, group: SocketAddrV4) -> Template {
        // RFC 1112, 6.4: the lower 23 bits of the group.
        let [_, b, c, d] = group.ip().octets();
        let destination = Some([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
        Template { destination, ..Template::datagram(payload, source, group) }
    }

    /// The same from this hardware address, with this time to live.
    pub(crate) fn sent_by(mut self, mac: [u8; 6], hop_limit: u8) -> Template {
        self.frame[6..12].copy_from_slice(&mac);
        self.frame[HOP_LIMIT_AT] = hop_limit;
        assert!(Ipv4::seal(&mut self.frame[ETHERNET_BYTES..]), "its header is whole");
        self
    }

    fn datagram(payload: &[u8], source: SocketAddrV4, destination: SocketAddrV4) -> Template {
        let payload_bytes = payload.len() as u16;
        let udp_bytes = 8 + payload_bytes;
        let mut head = Vec::with_capacity(8);
        head.extend(source.port().to_be_bytes());
        head.extend(destination.port().to_be_bytes());
        head.extend(udp_bytes.to_be_bytes());
        head.extend([0, 0]);
        // RFC 768: over the addresses, the protocol and the length, too; 0 would mean that there is none.
        let addresses = [source.ip().octets(), destination.ip().octets()].concat();
        let pseudo = checksum::sum(&addresses) + 17 + u64::from(udp_bytes);
        let sum = match !checksum::fold(pseudo + checksum::sum(&head) + checksum::sum(payload)) {
            0 => u16::MAX,
            sum => sum,
        };
        head[6..8].copy_from_slice(&sum.to_be_bytes());
        let mut frame = ipv4_frame(17, *source.ip(), *destination.ip(), &head, payload_bytes);
        frame[PAYLOAD_AT..].copy_from_slice(payload);
        let number_at = Some(PAYLOAD_AT as u16);
        Template { frame, addresses: None, number_at, destination: None }
    }

    /// An ICMP echo request with `payload_bytes` zeros, whose checksum holds for every number.
    fn ping(payload_bytes: u16, source: Ipv4Addr, destination: Ipv4Addr) -> Template {
        let mut head = vec![8, 0, 0, 0];
        head.extend(PROBE_ID.to_be_bytes());
        head.extend([0, 0]);
        let sum = checksum::of(&head);
        head[2..4].copy_from_slice(&sum.to_be_bytes());
        let frame = ipv4_frame(1, source, destination, &head, payload_bytes);
        let number_at = Some(PAYLOAD_AT as u16);
        Template { frame, addresses: None, number_at, destination: None }
    }

    /// Writes frame `number` of `segment`, sent to `destination` unless it has its own, in pass `pass`, and returns its
    /// length. `to` must hold the frame.
    pub(crate) fn write(
        &self,
        to: &mut [u8],
        destination: [u8; 6],
        segment: u8,
        number: u32,
        pass: u64,
    ) -> usize {
        let to = &mut to[..self.frame.len()];
        to.copy_from_slice(&self.frame);
        to[..6].copy_from_slice(&self.destination.unwrap_or(destination));
        let [a, b, c, d] = number.to_be_bytes();
        let number = [NUMBER_MARK, segment, a, b, c, d];
        let at = usize::from(self.number_at.unwrap_or(NUMBER_IN_MAC_AT));
        to[at..at + NUMBER_BYTES].copy_from_slice(&number);
        if self.number_at.is_some() {
            let complement = number.map(|byte| !byte);
            to[at + NUMBER_BYTES..at + 2 * NUMBER_BYTES].copy_from_slice(&complement);
        }
        if let Some(addresses) = self.addresses {
            addresses.shift(to, pass).expect("they were found in this frame");
        }
        self.frame.len()
    }
}

/// An Ethernet frame without a destination, IPv4 in it, then `head` (8 bytes) and `payload_bytes` zeros.
fn ipv4_frame(
    protocol: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    head: &[u8],
    payload_bytes: u16,
) -> Vec<u8> {
    let mut frame = vec![0; 6];
    frame.extend(SOURCE_MAC);
    frame.extend(ether_type::IPV4.to_be_bytes());
    frame.extend([0x45, 0]);
    frame.extend((20 + 8 + payload_bytes).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]); // do not fragment; 64 hops
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(head);
    frame.resize(PAYLOAD_AT + usize::from(payload_bytes), 0);
    assert!(Ipv4::seal(&mut frame[ETHERNET_BYTES..]), "the header above is whole");
    frame
}

/// Segment and number of a frame that a generator sent, from its source MAC as a record's sequence
/// number carries it: segment in bits 32..40, number below.
pub(crate) fn split_number(seq_no: u64) -> (u8, u32) {
    ((seq_no >> 32) as u8, seq_no as u32)
}

impl Timetable {
    /// From what it is made from.
    ///
    /// # Errors
    /// A capture that cannot be read, or has no times.
    pub(crate) fn of(times: &Times) -> Result<Timetable, TrafficError> {
        match times {
            Times::Steady => Ok(Timetable::default()),
            &Times::Poisson { seed } => Ok(Timetable::poisson(seed)),
            Times::Capture { path, frame_bytes_max } => {
                Timetable::of_stamps(&Replayable::load(path, *frame_bytes_max)?.stamps_ns)
                    .ok_or_else(|| TrafficError::NoTimes { path: path.display().to_string() })
            }
        }
    }
}

impl FanoutPlan {
    /// A frame for each group.
    pub(crate) fn templates(&self) -> Vec<Template> {
        let payload = crate::fanout::filler(self.payload_bytes);
        self.fanout.groups().map(|to| Template::group(&payload, self.source, to)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4_udp() -> Vec<u8> {
        let mut frame = vec![0xff; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 192, 0, 2, 250, 0x12, 0x34, 0, 53, 0, 8, 0, 0]);
        assert!(Ipv4::seal(&mut frame[14..]));
        frame
    }

    #[test]
    fn a_frame_of_a_capture_has_its_number_in_its_mac_and_its_pass_in_its_addresses() {
        let frame = ipv4_udp();
        let template = Template::new(&frame);
        let mut seen = std::collections::HashSet::new();
        for pass in [0, 1, 2, 255, 256, 65_532, 65_533] {
            let mut out = [0; 64];
            let len = template.write(&mut out, [2, 0, 0, 0, 0, 9], 3, 7, pass);
            assert_eq!((len, &out[..12]), (42, &[2, 0, 0, 0, 0, 9, 2, 3, 0, 0, 0, 7][..]));
            assert_eq!(out[26..34] == frame[26..34], pass == 0);
            seen.insert(out[26..34].to_vec());
        }
        assert_eq!(seen.len(), 7);
    }

    fn udp(payload_bytes: u16, port: u16) -> Template {
        let end = |last, port| SocketAddrV4::new([10, 77, 0, last].into(), port);
        Template::udp(payload_bytes, end(1, 7001), end(2, port))
    }

    /// What a receiver computes over a UDP packet: 0 if it is whole.
    fn udp_sum(packet: &[u8]) -> u16 {
        let (ip, udp) = packet.split_at(20);
        let pseudo = checksum::sum(&ip[12..20]) + 17 + udp.len() as u64;
        !checksum::fold(pseudo + checksum::sum(udp))
    }

    #[test]
    fn frames_of_a_flow_differ_in_their_number_alone_and_all_checksums_hold() {
        let template = udp(64, 7000);
        let mut first = [0; 128];
        template.write(&mut first, [2, 0, 0, 0, 0, 9], 1, 0, 0);
        for (segment, number) in [(1, 0), (255, u32::MAX), (3, 0x0102_0304), (9, 65_536)] {
            let mut out = [0; 128];
            let bytes = template.write(&mut out, [2, 0, 0, 0, 0, 9], segment, number, 5);
            assert_eq!((bytes, checksum::of(&out[14..34])), (14 + 20 + 8 + 64, 0));
            assert_eq!(udp_sum(&out[14..bytes]), 0, "segment {segment} number {number}");
            let payload = numbered(&out[PAYLOAD_AT..bytes]).unwrap();
            assert_eq!(payload, Payload::Number(u64::from(segment) << 32 | u64::from(number)));
            assert_eq!(out[..PAYLOAD_AT], first[..PAYLOAD_AT]);
            assert_eq!(out[PAYLOAD_AT + 12..], first[PAYLOAD_AT + 12..]);
        }
        // A sum of 0 would say that there is none.
        let sums = (0..=u16::MAX).map(|port| udp(18, port).frame[40..42].to_vec());
        assert!(sums.into_iter().all(|sum| sum != [0, 0]));
    }

    #[test]
    fn a_mix_has_seven_short_four_middling_and_one_long_frame_in_twelve() {
        let end = SocketAddrV4::new([10, 77, 0, 1].into(), 7000);
        let mixed = TrafficPlan::Udp { payloads: Payloads::Imix, source: end, destination: end };
        let ready = Replayable::prepare(&mixed, &Times::Steady).unwrap();
        let on_the_wire: Vec<usize> = ready.templates.iter().map(|t| t.frame.len() + 4).collect();
        let of = |bytes| on_the_wire.iter().filter(|&&n| n == bytes).count();
        assert_eq!([64, 594, 1518].map(of), [7, 4, 1]);
        assert_eq!((mixed.payload_bytes(), mixed.payloads().len()), (None, 12));
        assert!(mixed.payloads().len() <= PAYLOADS_MAX);
        let sums = ready.templates.iter().map(|t| udp_sum(&t.frame[14..]));
        assert!(sums.into_iter().all(|sum| sum == 0));
    }

    #[test]
    fn an_echo_request_sums_up_whatever_its_number() {
        let template = Template::ping(56, [10, 77, 0, 1].into(), [10, 77, 0, 3].into());
        let mut out = [0; 128];
        for (segment, number) in [(0, 0), (1, 0), (255, u32::MAX), (7, 0x0102_0304), (9, 65_536)] {
            let bytes = template.write(&mut out, [2, 0, 0, 0, 0, 9], segment, number, 0);
            assert_eq!((bytes, checksum::of(&out[14..34])), (98, 0));
            assert_eq!(checksum::of(&out[34..bytes]), 0, "segment {segment} number {number}");
            let payload = numbered(&out[PAYLOAD_AT..bytes]).unwrap();
            assert_eq!(payload, Payload::Number(u64::from(segment) << 32 | u64::from(number)));
        }
    }

    #[test]
    fn a_probe_carries_its_stamp_and_a_stranger_nothing() {
        assert_eq!(numbered(&probe(123_456_789_000)), Some(Payload::Probe(123_456_789_000)));
        assert_eq!(numbered(&[3, 0, 0, 0, 0, 0]), None);
        assert_eq!(numbered(&[0; 64]), None);
        assert_eq!(numbered(&[2, 1]), None);
    }
}
