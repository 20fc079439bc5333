//! The journal as the log of a server: a folder, recovered at the start.

use crate::serve::{Fsync, Kv, Log, NotTaken};
use laneway_core::Bell;
use laneway_journal::{Journal, OpenError, Options, Policy, Refused, Restored};
use std::path::Path;

/// A journal, as the server sees it.
#[derive(Debug)]
struct FileLog {
    journal: Journal,
    /// A record that could not be taken and had been done.
    too_long: Option<String>,
}

impl Log for FileLog {
    fn append(&mut self, record: &[u8]) -> Result<u64, NotTaken> {
        if self.too_long.is_some() {
            return Err(NotTaken::Ended);
        }
        let number = self.journal.append(record).map_err(|refused| match refused {
            Refused::NoRoom => NotTaken::Full,
            Refused::Failed => NotTaken::Ended,
            Refused::TooLong { .. } => {
                self.too_long = Some(refused.to_string());
                NotTaken::Ended
            }
        })?;
        self.journal.commit();
        Ok(number.0)
    }

    fn record_bytes_max(&self) -> usize {
        self.journal.record_bytes_max()
    }

    fn last(&self) -> u64 {
        self.journal.last().0
    }

    fn durable(&self) -> u64 {
        self.journal.durable().0
    }

    fn failed(&self) -> Option<String> {
        let of_journal = || self.journal.failed().map(ToString::to_string);
        self.too_long.clone().or_else(of_journal)
    }

    fn fsync(&self) -> Fsync {
        match self.journal.options().policy {
            Policy::Always => Fsync::Always,
            Policy::EverySecond => Fsync::EverySecond,
            Policy::No => Fsync::No,
        }
    }
}

/// Does again what the log in `folder` holds, and logs there from now on; the bell rings when a record is durable.
///
/// # Errors
/// What is in the way, or damaged, and what to try.
pub(crate) fn recover(
    kv: &mut Kv,
    folder: &Path,
    policy: Policy,
    bell: Option<Bell>,
) -> Result<(), OpenError> {
    let options = Options { policy, bell, ..Options::default() };
    let (journal, recovered) = Journal::open(folder, options, |restored| match restored {
        Restored::Record { bytes, .. } => kv.restore(bytes),
        Restored::Entry { .. } => Err("it is an entry of a snapshot, which this version \
                                       does not make"
            .to_owned()),
    })?;
    kv.join_log(Box::new(FileLog { journal, too_long: None }), recovered.to_string());
    Ok(())
}
