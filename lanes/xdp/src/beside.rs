//! Other programs beside a half: an interface has one XDP program, so a program that is to run as well is
//! called by the half (a tail call), if its app offers that.

use crate::LANE;
use laneway_bpf::{BpfError, Loaded, XdpProgram};
use laneway_core::{KernelHalf, LaneError};

/// Finds another process's XDP program by the kernel's number or by where it is pinned.
///
/// # Errors
/// When there is none, it is of another type, or may not be opened.
pub fn find_program(text: &str) -> Result<XdpProgram, LaneError> {
    XdpProgram::find(text).map_err(in_lane)
}

/// Loads `half` and lets it go again: whether the kernel takes it, with the programs that it calls.
///
/// # Errors
/// Why the kernel does not.
pub fn check(half: &KernelHalf) -> Result<(), LaneError> {
    Loaded::load(half).map(drop).map_err(in_lane)
}

fn in_lane(error: BpfError) -> LaneError {
    error.in_lane(LANE)
}
