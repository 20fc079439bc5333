//! Traffic on a fixed, open-loop schedule: what is late keeps its due time and nothing is skipped.
//!
//! Two ways onto the wire: [`LiveGenerator`] has the kernel make the frames (XDP live frames, for
//! rates and purity), [`Replay`] is an app like any other and fills bursts of any lane that can
//! transmit (frames then are socket buffers, as from real senders).

mod late;
mod live;
mod replay;

pub(crate) use late::Late;
pub(crate) use live::LiveGenerator;
pub(crate) use replay::Replay;
