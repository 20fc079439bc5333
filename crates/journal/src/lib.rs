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
//! * What [`Journal::durable`] reported is never missing: a start hands it over or is refused with the reason.
//! * What a start hands over is a beginning of what was appended, without a gap, a change or a repetition.
//! * What is damaged or cut off is reported: [`Recovered`] where the journal may go on, [`OpenError`] where it may not.
//! * A write or a sync that failed is not tried again; no further record is taken.
//! * No other journal has the folder as long as this one is there, failed or not.
//! * What waits for the writer is bounded; what is beyond is refused, and the bell says when there is room.
//! * [`Journal::append`] copies, and does nothing else: no system call, no allocation once its buffers have grown.
//!
//! What it does not do: it compresses nothing, encrypts nothing, and copies nothing to another machine.
//!
//! ```
//! use laneway_journal::{Journal, Options, Restored};
//!
//! let folder = std::env::temp_dir().join(format!("journal-example-{}", std::process::id()));
//! let (mut journal, _) = Journal::open(&folder, Options::default(), |_| Ok(()))?;
//! journal.append(b"SET a 1").expect("there is room");
//! journal.append(b"SET a 2").expect("there is room");
//! journal.commit(); // at the end of a turn
//! journal.close()?;
//!
//! let mut records = Vec::new();
//! let (journal, recovered) = Journal::open(&folder, Options::default(), |restored| {
//!     if let Restored::Record { sequence, bytes } = restored {
//!         records.push((sequence.0, bytes.to_vec()));
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(records, [(1, b"SET a 1".to_vec()), (2, b"SET a 2".to_vec())]);
//! assert_eq!(recovered.to_string(), "restored 2 records (14 bytes) of 1 segment, up to 2");
//! # drop(journal);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
pub mod faults;
mod files;
mod format;
mod gather;
mod journal;
mod options;
mod recover;
mod scan;
mod segment;
mod shared;
mod snapshot;
mod snapshot_mail;
mod writer;

pub use error::{JournalError, OpenError, Refused};
pub use files::{Files, Folder, FolderLock, OpenFile};
pub use format::{RECORD_BYTES_MAX, Sequence, Shard};
pub use journal::Journal;
pub use options::{Clock, Options, Policy};
pub use recover::{Recovered, Restored, Torn};
pub use shared::Figures;
pub use snapshot::{SnapshotRefused, SnapshotWriter};
pub use snapshot_mail::SnapshotState;
pub use writer::{Next, Writer};
