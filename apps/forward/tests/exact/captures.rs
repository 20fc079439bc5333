//! The frames that everything here is compared on: captures of `scenarios/`, public ones where they are
//! at hand beside the working tree, and frames made by hand.

use laneway_pcap::{Reader, ethernet};
use laneway_testkit::{UdpFrame, skip};
use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Frames looked at per capture, so that all rule sets together end within a minute unoptimised.
const FRAMES_MAX: usize = 400;
/// What BPF_PROG_RUN takes, up to what a simulated link carries.
const FRAME_BYTES: RangeInclusive<usize> = 14..=9000;

/// All frames, of all captures.
pub(crate) fn frames() -> &'static [Vec<u8>] {
    static FRAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FRAMES.get_or_init(load)
}

pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |dir: &&Path| dir.join("bpf/include/laneway").is_dir();
    here.ancestors().find(is_root).expect("the shared headers are at the root of the tree")
}

fn load() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    gather(&root().join("scenarios/captures"), &mut files);
    assert!(!files.is_empty(), "scenarios/captures is part of the tree");
    let public = root().join("../shared/pcaps");
    if public.is_dir() {
        gather(&public, &mut files);
    } else {
        skip(format!("the public captures: {} is not there", public.display()));
    }
    files.sort();
    let (mut frames, mut left_out, mut beyond) = (by_hand(), 0, 0);
    for file in files {
        let Ok(mut reader) = Reader::open(&file) else { continue };
        let (mut scratch, mut of_file) = (Vec::new(), 0);
        while let Ok(Some(record)) = reader.next_record() {
            match ethernet(&record, &mut scratch) {
                Ok(_) if of_file == FRAMES_MAX => beyond += 1,
                Ok(frame) if FRAME_BYTES.contains(&frame.data.len()) => {
                    frames.push(frame.data.to_vec());
                    of_file += 1;
                }
                _ => left_out += 1,
            }
        }
    }
    skip(format!(
        "{left_out} frames of captures that are no Ethernet, below {} or above {} bytes, and \
         {beyond} beyond the first {FRAMES_MAX} of a capture",
        FRAME_BYTES.start(),
        FRAME_BYTES.end()
    ));
    frames
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            gather(&path, files);
        } else if path.to_string_lossy().contains(".pcap") {
            files.push(path);
        }
    }
}

/// What no capture at hand has enough of: tags, options, extension headers, fragments, used-up times
/// to live, cuts at every byte, lengths that lie.
fn by_hand() -> Vec<Vec<u8>> {
    let ethernet = |kind: u16, rest: &[u8]| {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind.to_be_bytes(), rest].concat()
    };
    let four = |options: &[u8], fragment: u16, ttl: u8, protocol: u8, rest: &[u8]| {
        let words = 5 + options.len() as u8 / 4;
        let total = (u16::from(words) * 4 + rest.len() as u16).to_be_bytes();
        let fragment = fragment.to_be_bytes();
        let head =
            [0x40 | words, 0, total[0], total[1], 0, 7, fragment[0], fragment[1], ttl, protocol];
        let mut ip = [&head[..], &[0, 0, 10, 0, 0, 1, 10, 0, 0, 2], options].concat();
        assert!(laneway_wire::Ipv4::seal(&mut ip));
        [&ip[..], rest].concat()
    };
    let six = |next: u8, hops: u8, rest: &[u8]| {
        let payload = (rest.len() as u16).to_be_bytes();
        let head = [0x60, 0, 0, 0, payload[0], payload[1], next, hops];
        [
            &head[..],
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..],
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            rest,
        ]
        .concat()
    };
    let udp = [0, 53, 0, 80, 0, 16, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8];
    // Its checksum becomes zero when port 80 becomes 99.
    let to_zero = [0, 53, 0, 80, 0, 16, 0, 0x13, 1, 2, 3, 4, 5, 6, 7, 8];
    let vxlan = [1, 1, 0x12, 0xb5, 0, 24, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0, 9, 9, 9, 9, 9, 9, 9, 9];
    let tcp = [0, 80, 4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 1, 0, 7, 7, 0, 0, 5];
    let icmp = [8, 0, 1, 1, 0, 1, 0, 1, 0xab];
    let extended = |count: usize, length: u8, last: u8, rest: &[u8]| {
        let header =
            |next: u8| [&[next, length][..], &vec![0; 6 + 8 * usize::from(length)]].concat();
        let mut all: Vec<u8> = (1..count).flat_map(|_| header(60)).collect();
        all.extend(header(last));
        all.extend(rest);
        six(60, 9, &all)
    };
    let packets = [
        (0x0800, four(&[], 0, 64, 17, &udp)),
        (0x0800, four(&[], 0, 64, 17, &to_zero)),
        (0x0800, four(&[], 0, 2, 17, &vxlan)),
        (0x0800, four(&[1; 12], 0, 1, 6, &tcp)),
        (0x0800, four(&[1; 40], 0, 0, 1, &icmp)),
        (0x0800, four(&[], 0x2000, 64, 17, &udp)),
        (0x0800, four(&[], 9, 64, 17, &udp)),
        (0x86dd, six(17, 64, &udp)),
        (0x86dd, six(6, 1, &tcp)),
        (0x86dd, six(58, 3, &icmp)),
        (0x86dd, extended(1, 0, 17, &udp)),
        (0x86dd, extended(8, 0, 6, &tcp)),
        (0x86dd, extended(9, 0, 6, &tcp)),
        (0x86dd, extended(1, 60, 17, &udp)),
        (0x86dd, six(44, 9, &[&[17, 0, 0, 1, 0, 0, 0, 1][..], &udp].concat())),
        (0x86dd, six(44, 9, &[&[17, 0, 0, 8, 0, 0, 0, 1][..], &udp].concat())),
        (0x86dd, six(51, 9, &[&[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..], &udp].concat())),
    ];
    let mut frames = Vec::new();
    for (kind, packet) in &packets {
        let plain = ethernet(*kind, packet);
        let tags: [&[u8]; 4] = [
            &[],
            &[0x81, 0, 0x60, 5],
            &[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 9],
            &[0x91, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3],
        ];
        frames.extend(tags.map(|tag| [&plain[..12], tag, &plain[12..]].concat()));
        frames.extend((14..plain.len()).map(|len| plain[..len].to_vec()));
        // Lengths, versions and header lengths that lie; padding behind the packet.
        for (at, value) in [(14, 0x44), (14, 0x4f), (14, 0x55), (16, 0), (17, 21), (18, 0xff)] {
            let mut lies = plain.clone();
            lies[at] = value;
            frames.push(lies);
        }
        frames.push([&plain[..], &[0; 30]].concat());
    }
    // Checksums at the edges of ones' complement.
    for sequence in 0..40u64 {
        let destination_port = if sequence % 2 == 0 { 53 } else { 80 };
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let bytes = 64 + sequence as usize;
        let frame = UdpFrame {
            sequence,
            bytes,
            destination_port,
            source,
            destination,
            ..UdpFrame::default()
        };
        let mut frame = frame.build();
        frames.push(frame.clone());
        frame[24..26].copy_from_slice(&[[0, 0], [0xff, 0xff]][sequence as usize % 2]);
        frame[40..42].copy_from_slice(&[[0xff, 0xff], [0, 1]][sequence as usize % 2]);
        frames.push(frame);
    }
    frames
}
