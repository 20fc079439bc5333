//! The end of a program that a child of the race keeps, and that was asked to end.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take: less than the child may ([`CHILD_END_MAX`](crate::plan::CHILD_END_MAX)), whose other time is
/// for what it removes behind it.
const PROGRAM_END_MAX: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits for a program that was asked to end, and kills one that does not.
pub(crate) fn end(program: &mut Child) {
    let until = Instant::now() + PROGRAM_END_MAX;
    while matches!(program.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = program.kill();
            break;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    let _ = program.wait();
}
