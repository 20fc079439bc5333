//! Captures to compare on: the frames of the table of fates, which hold every question, the captures of
//! the tree, and others (hostile ICMP among them) where `LANEWAY_CAPTURES` names some; and a responder
//! that owns what they ask for.

use crate::{
    MAC, Sent, config,
    rows::{frames, rows},
};
use laneway_capture::{Reader, ethernet};
use laneway_echo::{ADDRESSES_MAX, Config};
use laneway_testkit::{CaptureFile, skip};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::OnceLock,
};

/// Frames looked at per capture, so that all tests together end within a minute unoptimised.
const FRAMES_MAX: usize = 3_000;

pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) frames: Vec<Sent>,
}

/// The frames of the table of fates, then every capture that has frames of a known link layer.
pub(crate) fn captures() -> &'static [Capture] {
    static CAPTURES: OnceLock<Vec<Capture>> = OnceLock::new();
    CAPTURES.get_or_init(load)
}

/// A responder for what these captures ask for, without limits.
pub(crate) fn asked_for(captures: &[Capture]) -> Config {
    let (mut addresses, mut solicitors) = (BTreeSet::new(), BTreeSet::new());
    for sent in captures.iter().flat_map(|c| &c.frames) {
        addresses.extend(asked(&sent.bytes).filter(|a| is_host(*a)));
        solicitors.extend(solicitor(&sent.bytes));
    }
    // Solicitations are few, and most hosts that send some are asked for too: the host that asks is not us.
    let addresses = addresses.difference(&solicitors).copied().take(ADDRESSES_MAX).collect();
    Config { addresses, ..config(&[]) }
}

fn is_host(address: IpAddr) -> bool {
    Config { addresses: vec![address], ..config(&[]) }.check().is_ok()
}

/// Where the packet starts behind up to two tags, and its EtherType.
fn packet(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    for _ in 0..3 {
        match u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]) {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            kind => return Some((at + 2, kind)),
        }
    }
    None
}

/// The sender of a neighbour solicitation.
fn solicitor(frame: &[u8]) -> Option<IpAddr> {
    let (at, kind) = packet(frame)?;
    let packet = &frame[at..];
    let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    let is_one = kind == 0x86dd && packet[6] == 58 && packet.get(40) == Some(&135);
    is_one.then(|| Ipv6Addr::from(source).into())
}

/// The address that an ICMP, ARP or neighbour discovery packet is to or about.
fn asked(frame: &[u8]) -> Option<IpAddr> {
    let (at, kind) = packet(frame)?;
    let packet = &frame[at..];
    let v4 = |from: usize| {
        let bytes: [u8; 4] = packet.get(from..from + 4)?.try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(bytes)))
    };
    let v6 = |from: usize| {
        let bytes: [u8; 16] = packet.get(from..from + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)))
    };
    match (kind, packet.get(9)?, packet.get(6)?) {
        (0x0800, 1, _) => v4(16),
        (0x0806, ..) => v4(24),
        (0x86dd, _, 58) if packet.get(40) == Some(&135) => v6(48),
        (0x86dd, _, 58) => v6(24),
        _ => None,
    }
}

/// The frames of a capture three times: as they are, as if sent to our MAC address, and their ICMP
/// messages as if they were echo requests.
pub(crate) fn variants(frames: &[Sent]) -> Vec<Sent> {
    let mut all = frames.to_vec();
    for sent in frames {
        let mut to_us = sent.clone();
        if let Some(mac) = to_us.bytes.first_chunk_mut::<6>()
            && mac[0] & 1 == 0
        {
            *mac = MAC;
        }
        if let Some((at, kind)) = packet(&to_us.bytes) {
            let mut request = to_us.clone();
            let is = |at: usize, value: u8| sent.bytes.get(at) == Some(&value);
            let ask = match kind {
                0x0800 if is(at + 9, 1) => Some((at + 20, 8)),
                0x86dd if is(at + 6, 58) => Some((at + 40, 128)),
                _ => None,
            };
            if let Some((at, kind)) = ask
                && let Some([message, code, ..]) = request.bytes.get_mut(at..)
            {
                (*message, *code) = (kind, 0);
                all.push(request);
            }
        }
        all.push(to_us);
    }
    all
}

fn load() -> Vec<Capture> {
    let files = laneway_testkit::captures();
    let mut captures: Vec<Capture> = files.iter().filter_map(read).collect();
    if captures.len() < files.len() {
        skip(format!(
            "{} of {} captures whose link layer cannot be read as Ethernet or that hold no frame",
            files.len() - captures.len(),
            files.len()
        ));
    }
    let cut = captures.iter().filter(|c| c.frames.len() == FRAMES_MAX).count();
    if cut > 0 {
        skip(format!("the frames of {cut} captures beyond the first {FRAMES_MAX}"));
    }
    captures.insert(0, Capture { name: "the table of fates".to_owned(), frames: frames(&rows()) });
    captures
}

/// The frames before the end or the damage.
fn read(file: &CaptureFile) -> Option<Capture> {
    let mut reader = Reader::open(&file.path).ok()?;
    let (mut frames, mut scratch) = (Vec::new(), Vec::new());
    while let Ok(Some(record)) = reader.next_record() {
        if frames.len() == FRAMES_MAX {
            break;
        }
        if let Ok(frame) = ethernet(&record, &mut scratch) {
            frames.push(Sent { at_ns: frame.ts_ns, bytes: frame.data.to_vec() });
        }
    }
    (!frames.is_empty()).then(|| Capture { name: file.name.clone(), frames })
}
