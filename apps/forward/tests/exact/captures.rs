//! The frames that everything here is compared on: frames made by hand, which reach all that must be
//! reached, the captures of the tree, and others where `LANEWAY_CAPTURES` names some.

use crate::made::{by_hand, networks};
use laneway_capture::{Reader, ethernet};
use laneway_testkit::{captures, skip};
use std::{ops::RangeInclusive, sync::OnceLock};

/// Frames looked at per capture, so that all rule sets together end within a minute unoptimised.
const FRAMES_MAX: usize = 400;
/// What BPF_PROG_RUN takes, up to what a simulated link carries.
const FRAME_BYTES: RangeInclusive<usize> = 14..=9000;

/// All frames, of all captures.
pub(crate) fn frames() -> &'static [Vec<u8>] {
    static FRAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FRAMES.get_or_init(load)
}

fn load() -> Vec<Vec<u8>> {
    let (mut frames, mut left_out, mut beyond) = ([by_hand(), networks()].concat(), 0, 0);
    for file in captures() {
        let Ok(mut reader) = Reader::open(&file.path) else { continue };
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
    if left_out + beyond > 0 {
        skip(format!(
            "{left_out} frames of captures that are no Ethernet, below {} or above {} bytes, and \
             {beyond} beyond the first {FRAMES_MAX} of a capture",
            FRAME_BYTES.start(),
            FRAME_BYTES.end()
        ));
    }
    frames
}
