//! Where a recorder waits for the worker that it is for.
//!
//! The starter of a run knows about tracing; the loop that runs knows neither files nor
//! sessions. The slot is what travels between them: empty when no trace is recorded, which costs the loop one
//! look at its start.

use crate::Recorder;
use std::sync::{Arc, Mutex, PoisonError};

/// Holds at most one recorder until a worker takes it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TraceSlot(Option<Arc<Mutex<Option<Recorder>>>>);

impl TraceSlot {
    /// No trace is recorded.
    pub fn empty() -> TraceSlot {
        TraceSlot::default()
    }

    /// For the worker that takes it first.
    pub fn holding(recorder: Recorder) -> TraceSlot {
        TraceSlot(Some(Arc::new(Mutex::new(Some(recorder)))))
    }

    /// The recorder, once; from now on it is the calling thread's.
    pub fn take(&self) -> Option<Recorder> {
        let slot = self.0.as_ref()?;
        // Taking is one assignment: a thread that panicked left it whole.
        let mut recorder = slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        recorder.adopt();
        Some(recorder)
    }
}
