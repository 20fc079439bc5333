//! What a running program gives up: capabilities that it needs no more, and system calls that it never makes.
//!
//! ```text
//!   start, with every privilege: lanes open, files, sockets
//!     │
//!     ├─ Confinement::beside ─▶ helper threads: confined from their first instruction on
//!     ▼
//!   Confinement::enter, by every thread that had privileges ─▶ no thread has more than what is kept
//! ```
//!
//! Both are a thread's own and pass to the threads that it starts; there is no way back. So each thread that was
//! there before enters by itself, and every later one is confined when it begins.
//!
//! What must always hold: nothing is added that the thread did not have; a step that the kernel refuses is an
//! error, not a confinement that is thinner than it looks; `no_new_privs` is set, so no program that is executed
//! brings anything back.
//!
//! What it does not do: it knows no lane and no app, and reduces no other thread than the one that calls.
//! io_uring carries out requests past any filter of system calls, within the thread's capabilities.
#![forbid(unsafe_code)]

mod calls;
mod capabilities;

pub use calls::{Calls, Forbidden};
pub use capabilities::Capability;

use calls::Filter;
use std::{panic::resume_unwind, thread};

/// Why a thread is not confined.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {why}; {hint}")]
pub struct ConfineError {
    doing: &'static str,
    why: String,
    hint: &'static str,
}

impl ConfineError {
    fn new(doing: &'static str, why: impl ToString, hint: &'static str) -> ConfineError {
        ConfineError { doing, why: why.to_string(), hint }
    }
}

/// What is kept.
#[derive(Clone, Debug)]
pub struct Confinement {
    capabilities: Vec<Capability>,
    forbidden: Forbidden,
    filter: Filter,
}

impl Confinement {
    /// Keeps these capabilities, and the calls that every program of ours makes, with these families of others.
    /// `forbidden` is what becomes of any other call.
    ///
    /// # Errors
    /// On a processor that the filter is not made for.
    pub fn new(
        capabilities: &[Capability],
        calls: &[Calls],
        forbidden: Forbidden,
    ) -> Result<Confinement, ConfineError> {
        let mut capabilities = capabilities.to_vec();
        capabilities.sort_unstable();
        capabilities.dedup();
        Ok(Confinement { capabilities, forbidden, filter: Filter::new(calls, forbidden)? })
    }

    /// Confines the calling thread, and those that it starts from now on.
    ///
    /// # Errors
    /// What the kernel refuses. The thread may have lost some of what it had.
    pub fn enter(&self) -> Result<(), ConfineError> {
        capabilities::keep(&self.capabilities)?;
        // A thread needs no privilege to filter its own calls once it cannot gain any.
        self.filter.apply()
    }

    /// Runs `start` on a confined thread, so that threads that it starts are confined from their beginning, and
    /// returns what it returns.
    ///
    /// # Errors
    /// As [`enter`](Self::enter); `start` was not called then.
    ///
    /// # Panics
    /// With the panic of `start`.
    pub fn beside<R: Send>(&self, start: impl FnOnce() -> R + Send) -> Result<R, ConfineError> {
        thread::scope(|scope| {
            let body = || self.enter().map(|()| start());
            let thread =
                thread::Builder::new().name("confined".to_owned()).spawn_scoped(scope, body);
            let thread = thread.map_err(|error| {
                ConfineError::new("start a confined thread", error, "raise `ulimit -u`")
            })?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The capabilities that are kept, where the thread has them.
    pub fn capabilities(&self) -> &[Capability] {
        &self.capabilities
    }
}

/// `no capabilities; other system calls fail`.
impl std::fmt::Display for Confinement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.capabilities[..] {
            [] => write!(out, "no capabilities")?,
            kept => {
                let names: Vec<&str> = kept.iter().map(|capability| capability.name()).collect();
                write!(out, "capabilities {}", names.join(" "))?;
            }
        }
        write!(out, "; other system calls than a run makes {}", self.forbidden.effect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_named_once_and_in_order() {
        let kept = [Capability::Bpf, Capability::NetAdmin, Capability::Bpf];
        let confinement = Confinement::new(&kept, &[Calls::Bpf], Forbidden::Fail).unwrap();
        let text = confinement.to_string();
        assert_eq!(
            text,
            "capabilities CAP_NET_ADMIN CAP_BPF; other system calls than a run makes fail"
        );
        let none = Confinement::new(&[], &[], Forbidden::Kill).unwrap().to_string();
        assert!(
            none.starts_with("no capabilities;") && none.ends_with("end the process"),
            "{none}"
        );
    }
}
