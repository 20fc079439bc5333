//! Traffic on a fixed, open-loop schedule: what is late keeps its due time and nothing is skipped.
//!
//! Three ways onto the wire: [`LiveGenerator`] has the kernel make the frames (XDP live frames, for
//! rates and purity), [`Replay`] is an app like any other and fills bursts of any lane that can
//! transmit (frames then are socket buffers, as from real senders), [`BothEnds`] is a replay that is
//! the far end as well, where no generator and no far end of the kernel's can be.

mod both_ends;
mod live;
#[cfg(test)]
mod merged;
mod replay;

pub(crate) use both_ends::{BothEnds, FarEndMessage};
pub(crate) use live::LiveGenerator;
pub(crate) use replay::Replay;
