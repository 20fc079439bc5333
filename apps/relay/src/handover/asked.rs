//! The first line of a handover.

use serde::{Deserialize, Serialize};

/// What a successor says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The format of the messages as it knows it (`FORMAT` of [`crate::handover`]).
    pub format: u32,
    /// How many workers it has.
    pub workers: usize,
    /// Its lane goes on with sockets of the kernel's.
    pub sockets: bool,
    /// It is to be spoken to at the same path.
    pub control: bool,
}
