//! Lane `pcap`: any frame app on yesterday's traffic. [`PcapLane`] reads capture files and writes what the app sends;
//! `laneway-capture` is the reader and the writer.
//!
//! What must always hold: a damaged file yields every complete frame before it ends the lane with its error.

mod input;
mod kind;
mod knobs;
mod lane;
mod output;

/// The lane's name in specs, results and messages.
pub(crate) const NAME: &str = "pcap";

pub use input::LOOP_GAP_NS;
pub use kind::PcapKind;
pub use lane::{LOOKS_MAX, PcapLane};
