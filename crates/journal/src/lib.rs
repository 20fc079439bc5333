//! A journal: what was appended is there again after the next start, in its order, up to a point that is known.
//!
//! ```text
//!   worker ── append, commit ──▶ writer ──▶ 00000000000000000001.log  ...  00000000000000004711.log
//!          ◀── written, durable, the bell ──╯      (a snapshot in place removes what it stands for)
//!          ── entries of a snapshot ──▶    ──▶ 00000000000000004000.snapshot
//!
//!   next start: the newest snapshot that is whole, then the records behind it, then a new segment
//! ```
//!
//! A record is bytes, and so is an entry of a snapshot: what they mean is the store's. One worker appends, one thread
//! writes. Nothing of this knows a command, a lane or an app.
//!
//! What must always hold:
//! * What [`Journal::durable`] said is never missing: a start hands it over or is refused with the reason.
//! * What a start hands over is a beginning of what was appended, without a gap, a change or a repetition.
//! * What is damaged or cut off is said: [`Recovered`] where the journal may go on, [`OpenError`] where it may not.
//! * A write or a sync that failed is not tried again; no further record is taken.
//! * What waits for the writer is bounded; what is beyond is refused, and the bell says when there is room.
//! * [`Journal::append`] copies, and does nothing else: no system call, no allocation once its buffers have grown.
//!
//! What it does not do: it compresses nothing, encrypts nothing, and copies nothing to another machine.
//!
#![forbid(unsafe_code)]

mod error;
pub mod faults;
mod files;
mod format;
mod options;
mod recover;
mod scan;
mod segment;

pub use error::{JournalError, OpenError, Refused};
pub use files::{Files, Folder, OpenFile};
pub use format::{RECORD_BYTES_MAX, Sequence, Shard};
pub use options::{Clock, Options, Policy};
pub use recover::{Recovered, Restored, Torn};
