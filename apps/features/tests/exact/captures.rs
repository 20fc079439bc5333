//! The captures that everything here is compared on: frames made by hand, which reach all that must be
//! reached, the captures of the tree, and others where `LANEWAY_CAPTURES` names some.

use crate::made::{conversations, every_status};
use laneway_capture::{Reader, ethernet};
use laneway_testkit::{CaptureFile, skip};
use std::sync::OnceLock;

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
    let name = format!("scenarios/captures/{name}");
    let found = captures().iter().find(|c| c.name == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

fn load() -> Vec<Capture> {
    let (mut captures, mut of_no_use, mut unreadable_as_ethernet) =
        (vec![every_status(), conversations()], 0, 0);
    for file in laneway_testkit::captures() {
        match read(&file) {
            Some((capture, foreign)) => {
                unreadable_as_ethernet += foreign;
                captures.push(capture);
            }
            None => of_no_use += 1,
        }
    }
    if of_no_use + unreadable_as_ethernet > 0 {
        skip(format!(
            "{of_no_use} captures whose link layer cannot be read as Ethernet or that hold no \
             frame, and {unreadable_as_ethernet} such frames of others"
        ));
    }
    captures
}

/// The frames before the end or the damage, and how many were no Ethernet.
fn read(file: &CaptureFile) -> Option<(Capture, usize)> {
    let mut reader = Reader::open(&file.path).ok()?;
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
    let name = file.name.clone();
    if beyond > 0 {
        skip(format!("{beyond} frames of {name} beyond the first {FRAMES_MAX}"));
    }
    (!frames.is_empty()).then_some((Capture { name, frames }, foreign))
}
