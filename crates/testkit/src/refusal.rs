//! How a lane refuses a spec.

use laneway_core::LaneError;
use laneway_spec::{LaneSpec, SpecError};

/// What `opened` says is wrong with `spec`; a failed test if it says anything else.
pub(crate) fn refusal<L>(opened: Result<L, LaneError>, spec: &LaneSpec) -> SpecError {
    match opened {
        Err(LaneError::Spec(error)) => *error.downcast().expect("what reads specs gives these"),
        Err(e) => panic!("`{spec}` must fail for its text, not: {e}"),
        Ok(_) => panic!("`{spec}` opened"),
    }
}
