//! The captures that everything here is compared on: those of `scenarios/`, some frames made by hand,
//! and public captures where they are at hand beside the working tree.

use laneway_pcap::{Reader, ethernet};
use laneway_testkit::skip;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Frames looked at per capture, so that all tests together end within a minute unoptimised.
const FRAMES_MAX: usize = 12_000;

/// A frame of a capture, as Ethernet.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) ts_ns: u64,
    pub(crate) wire_len: u32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) frames: Vec<Frame>,
}

/// Every capture that has frames of a known link layer.
pub(crate) fn captures() -> &'static [Capture] {
    static CAPTURES: OnceLock<Vec<Capture>> = OnceLock::new();
    CAPTURES.get_or_init(load)
}

/// One capture of `scenarios/`, which are part of the tree.
pub(crate) fn shipped(name: &str) -> &'static Capture {
    let found = captures().iter().find(|c| c.name.ends_with(name));
    found.unwrap_or_else(|| panic!("no scenarios/captures/{name}"))
}

pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |dir: &&Path| dir.join("bpf/include/laneway").is_dir();
    here.ancestors().find(is_root).expect("the shared headers are at the root of the tree")
}

fn load() -> Vec<Capture> {
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
    let (mut captures, mut of_no_use, mut unreadable_as_ethernet) = (vec![by_hand()], 0, 0);
    for file in files {
        match read(&file) {
            Some((capture, foreign)) => {
                unreadable_as_ethernet += foreign;
                captures.push(capture);
            }
            None => of_no_use += 1,
        }
    }
    skip(format!(
        "{of_no_use} captures whose link layer cannot be read as Ethernet or that hold no frame, \
         and {unreadable_as_ethernet} such frames of others"
    ));
    captures
}

/// Frames that no capture at hand has: every status, and headers beyond the first page of a frame of
/// many, which the kernel keeps in fragments.
fn by_hand() -> Capture {
    let ethernet =
        |ether_type: u16, rest: &[u8]| [&[2; 12][..], &ether_type.to_be_bytes(), rest].concat();
    let four = |protocol: u8, rest: &[u8]| {
        let total = (20 + rest.len() as u16).to_be_bytes();
        let head =
            [0x45, 0, total[0], total[1], 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&head[..], rest].concat()
    };
    let six = |next: u8, rest: &[u8]| {
        let payload = (rest.len() as u16).to_be_bytes();
        let head = [&[0x60, 0, 0, 0, payload[0], payload[1], next, 64][..], &[0x20; 32]].concat();
        [&head[..], rest].concat()
    };
    let mut syn = vec![0, 80, 4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0xa0, 2, 1, 0, 0, 0, 0, 0];
    syn.extend([1, 1, 2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 3, 3]);
    let with_shift = [&syn[..19 + 20], &[7][..]].concat();
    // `count` extension headers of 8 * (1 + length) bytes, then TCP.
    let extended = |count: usize, length: u8, last: &[u8]| {
        let header =
            |next: u8| [&[next, length][..], &vec![0; 6 + 8 * usize::from(length)]].concat();
        let mut rest: Vec<u8> = (1..count).flat_map(|_| header(60)).collect();
        rest.extend(header(6));
        rest.extend(last);
        ethernet(0x86dd, &six(60, &rest))
    };
    let good = four(17, &[0, 53, 0, 54, 0, 8, 0, 0]);
    let mut fragment = good.clone();
    fragment[7] = 9;
    let mut frames = vec![
        ethernet(0x0800, &good),
        ethernet(0x8100, &[0, 1]),
        ethernet(0x0800, &good[..10]),
        ethernet(0x86dd, &good),
        ethernet(0x0800, &[&[0x44][..], &good[1..]].concat()),
        ethernet(0x0800, &fragment),
        ethernet(0x0800, &four(47, &[0; 8])),
        ethernet(0x0800, &good[..24]),
        ethernet(0x0800, &four(17, &[0; 7])),
        ethernet(0x0800, &four(6, &with_shift)),
        extended(8, 0, &with_shift),
        extended(9, 0, &with_shift),
        extended(2, 255, &with_shift),
        extended(4, 255, &with_shift),
        extended(7, 255, &with_shift[..30]),
    ];
    frames.push([&frames[9][..], &[0; 9000]].concat());
    // Lengths that the IP header does not state, or states beyond the frame; short layer-4 headers.
    let with_total = |total: u16, rest: &[u8]| {
        let mut packet = four(6, rest);
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet
    };
    let mut first = with_total(28, &syn[..8]);
    first[6] = 0x20;
    let unstated = |next: u8, rest: &[u8]| {
        let mut packet = six(next, rest);
        packet[4..6].fill(0);
        packet
    };
    let jumbo = [&[6, 0, 0xc2, 4, 0, 0, 0, 48][..], &with_shift].concat();
    frames.extend([
        ethernet(0x0800, &with_total(0, &with_shift)),
        ethernet(0x0800, &with_total(0, &[&with_shift[..], &[0; 9000]].concat())),
        ethernet(0x0800, &with_total(0, &[])),
        ethernet(0x0800, &with_total(60_000, &with_shift)),
        ethernet(0x8100, &[&[0, 1, 8, 0][..], &with_total(0, &with_shift)].concat()),
        ethernet(0x86dd, &unstated(6, &with_shift)),
        ethernet(0x86dd, &unstated(0, &jumbo)),
        ethernet(0x86dd, &unstated(59, &[0; 6])),
        ethernet(0x86dd, &unstated(17, &[])),
        ethernet(0x0800, &first),
        ethernet(0x0800, &with_total(60, &syn[..8])),
        ethernet(0x0800, &with_total(60, &syn[..3])),
        ethernet(0x0800, &with_total(23, &syn[..8])),
    ]);
    let stamped = frames.into_iter().enumerate().map(|(i, bytes)| Frame {
        ts_ns: 1_700_000_000_000_000_000 + 1000 * i as u64,
        wire_len: bytes.len() as u32,
        bytes,
    });
    Capture { name: "frames made by hand".to_owned(), frames: stamped.collect() }
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path.to_string_lossy();
        if path.is_dir() {
            gather(&path, files);
        } else if name.contains(".pcap") {
            files.push(path);
        }
    }
}

/// The frames before the end or the damage, and how many were no Ethernet.
fn read(path: &Path) -> Option<(Capture, usize)> {
    let mut reader = Reader::open(path).ok()?;
    let (mut frames, mut scratch, mut foreign, mut beyond) = (Vec::new(), Vec::new(), 0, 0);
    while let Ok(Some(record)) = reader.next_record() {
        match ethernet(&record, &mut scratch) {
            Err(_) => foreign += 1,
            Ok(_) if frames.len() == FRAMES_MAX => beyond += 1,
            Ok(frame) => frames.push(Frame {
                ts_ns: frame.ts_ns,
                wire_len: frame.wire_len,
                bytes: frame.data.to_vec(),
            }),
        }
    }
    let name = path.strip_prefix(root().parent()?).unwrap_or(path).display().to_string();
    if beyond > 0 {
        skip(format!("{beyond} frames of {name} beyond the first {FRAMES_MAX}"));
    }
    (!frames.is_empty()).then_some((Capture { name, frames }, foreign))
}
