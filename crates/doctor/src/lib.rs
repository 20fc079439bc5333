//! What a host must offer so that an app carries a load over a stall, and settings that are changed and put back.
//!
//! ```text
//!   Load (rate, size, stall, outputs) ─▶ Sizes (sums, with their units) ─┐
//!   an app's row: the Asks that it has ──────────────────────────────────┴▶ examine ─▶ Finding: found, needed, why
//!                                             Fix: undo file, then settings ◀── too small ──┘
//!                                             Undo: settings, where they are what was left
//! ```
//!
//! Everything is a queue that must hold what arrives during a stall: rate x stall datagrams, and for a socket's
//! buffer that times what the kernel charges for one ([`truesize`]). Which findings an app needs is a column of its
//! row; this crate knows no app.
//!
//! What must always hold: examining changes nothing; the file that undoes is whole before the first setting is
//! changed; undoing writes settings of this table only, and leaves one alone that was changed since.
#![forbid(unsafe_code)]

mod ask;
mod fix;
mod load;
mod setting;

pub use ask::{Ask, Examined, Finding, examine};
pub use fix::{FixError, PutBack, fix, sysctl_file, undo};
pub use load::{FRAGMENT_BYTES, LATENCY_MIN_NS, Load, LoadError, Sizes, carried_per_s, truesize};
pub use setting::{Setting, Sysctls};
