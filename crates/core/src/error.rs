//! Why a lane could not be opened or had to stop. Hostile frames are data, never an error here.

use crate::{Cap, SpecError};
use std::io;

/// A lane's failure, as a sentence a person can act on: what happened, with which value, what to
/// try.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The lane spec is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The interface, file or address does not exist.
    #[error("{lane}: there is no {what} `{name}`; {hint}")]
    NotFound {
        /// The lane that looked.
        lane: String,
        /// `interface`, `capture file`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What to try.
        hint: String,
    },
    /// The kernel or a missing privilege refuses.
    #[error("{lane}: not permitted to {doing}; {hint}")]
    NotPermitted {
        /// The lane that tried.
        lane: String,
        /// What it tried.
        doing: String,
        /// What would allow it.
        hint: String,
    },
    /// Somebody else has it.
    #[error("{lane}: `{name}` is busy: {why}; {hint}")]
    Busy {
        /// The lane that tried.
        lane: String,
        /// Interface or file.
        name: String,
        /// Who or what holds it.
        why: String,
        /// What to try.
        hint: String,
    },
    /// Asked for and not obtained.
    #[error(
        "{lane}: {} was asked for and not obtained{}; ask for another mode, or accept its absence with allow={}",
        cap.name(), needs.map_or_else(String::new, |needs| format!(" (it needs {needs})")), cap.name()
    )]
    CapMissing {
        /// The lane.
        lane: String,
        /// The capability.
        cap: Cap,
        /// What has it, where the lane knows: `Linux 6.10`.
        needs: Option<&'static str>,
    },
    /// This refuses to touch something it could hurt.
    #[error("{lane}: refused to use `{name}`: {why}; {hint}")]
    Refused {
        /// The lane.
        lane: String,
        /// Interface or file.
        name: String,
        /// The danger.
        why: String,
        /// What to do instead, or how to insist.
        hint: String,
    },
    /// The interface went away or down while in use.
    #[error("{lane}: interface `{name}` disappeared; counters up to here are kept")]
    Gone {
        /// The lane.
        lane: String,
        /// The interface.
        name: String,
    },
    /// Input that cannot be read further; frames so far were delivered.
    #[error("{lane}: {name}: {why}")]
    Input {
        /// The lane.
        lane: String,
        /// File name.
        name: String,
        /// What is wrong, where.
        why: String,
    },
    /// A system call failed in a way that none of the above explains.
    #[error("{lane}: {doing} failed: {source}; {hint}")]
    Os {
        /// The lane.
        lane: String,
        /// The call and its object.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
        /// What to try.
        hint: String,
    },
}

impl LaneError {
    /// Sorts a failed system call into the variant that helps most. `hint` is what to try when the
    /// kernel's answer is not a plain refusal.
    pub fn os(lane: &str, doing: impl Into<String>, source: io::Error, hint: &str) -> Self {
        let (lane, doing) = (lane.to_owned(), doing.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => LaneError::NotPermitted {
                lane,
                doing,
                hint: "run as root, or grant CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF".to_owned(),
            },
            _ => LaneError::Os { lane, doing, source, hint: hint.to_owned() },
        }
    }

    /// The error for an interface name that does not exist.
    pub fn no_interface(lane: &str, name: &str) -> Self {
        LaneError::NotFound {
            lane: lane.to_owned(),
            what: "interface",
            name: name.to_owned(),
            hint: "`ip link` lists the interfaces of this network namespace".to_owned(),
        }
    }
}
