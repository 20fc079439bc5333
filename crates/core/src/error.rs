//! Why a lane could not be opened or had to stop. Hostile frames are data, never an error here.

use crate::Cap;
use std::{error::Error, io};

/// A lane's failure, as a sentence to act on: what happened, with which value, what to try.
///
/// In all of them `lane` is the lane that tried, `name` the interface, file or address, `doing` the
/// call and its object, `why` what stands against it, and `hint` what to try.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named alike in all variants: see above")]
pub enum LaneError {
    /// The lane spec is wrong: what reads specs says how.
    #[error(transparent)]
    Spec(Box<dyn Error + Send + Sync>),
    /// The interface, file or address does not exist; `what` says which of them it should be.
    #[error("{lane}: there is no {what} `{name}`; {hint}")]
    NotFound { lane: String, what: &'static str, name: String, hint: String },
    /// The kernel or a missing privilege refuses.
    #[error("{lane}: not permitted to {doing}; {hint}")]
    NotPermitted { lane: String, doing: String, hint: String },
    /// Another process has it.
    #[error("{lane}: `{name}` is busy: {why}; {hint}")]
    Busy { lane: String, name: String, why: String, hint: String },
    /// Asked for and not obtained.
    #[error(
        "{lane}: {} was asked for and not obtained{}; ask for another mode, or accept its absence with allow={}",
        cap.name(), needs.map_or_else(String::new, |needs| format!(" (it needs {needs})")), cap.name()
    )]
    CapMissing { lane: String, cap: Cap, needs: Option<&'static str> },
    /// This refuses to touch something it could hurt.
    #[error("{lane}: refused to use `{name}`: {why}; {hint}")]
    Refused { lane: String, name: String, why: String, hint: String },
    /// The interface went away or down while in use.
    #[error("{lane}: interface `{name}` disappeared; counters up to here are kept")]
    Gone { lane: String, name: String },
    /// Input that cannot be read further; frames so far were delivered.
    #[error("{lane}: {name}: {why}")]
    Input { lane: String, name: String, why: String },
    /// A system call failed in a way that none of the above explains.
    #[error("{lane}: {doing} failed: {source}; {hint}")]
    Os { lane: String, doing: String, source: io::Error, hint: String },
}

impl LaneError {
    /// The variant that helps most for a failed system call; `hint` is for all but a plain refusal.
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
