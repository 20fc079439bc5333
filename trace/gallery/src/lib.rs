//! The judge of the trace half: what is true of a recording, what an analysis said of it, and whether they agree.
//!
//! It knows nothing of how the analysis judges: it reads the JSON that a user would.
#![forbid(unsafe_code)]

mod draw;
pub mod judge;
pub mod truth;

pub use draw::Draw;
pub use truth::Truth;
