//! What a running app counts, as Prometheus reads it (text format 0.0.4).
//!
//! ```text
//!   workers ── at a tick, when asked ──▶ counters ─┐
//!   an app's own figures ──────────────────────────┴▶ Page ─▶ text ─▶ Endpoint ─▶ GET /metrics
//! ```
//!
//! Every name is in one table: [`table`] for what all apps have, made of the one table of counters and drop reasons;
//! an app adds [`Family`]s of its own. The page asks while it is read, so a run without readers pays nothing.
//!
//! What must always hold: a page that is sent is one that Prometheus reads; it has bounded size, and says what it
//! left out; any bytes of a client, or none, cost a thread, [`HEAD_BYTES_MAX`] bytes and
//! [`CLIENT_WAIT`], of [`CLIENTS_MAX`] at most, and nothing of the run. An address that other machines reach is
//! refused unless it was asked for by name. The endpoint ends with the run.
#![forbid(unsafe_code)]

mod page;
mod request;
mod serve;
pub mod table;

pub use page::{Family, Kind, Page, SAMPLES_MAX};
pub use request::HEAD_BYTES_MAX;
pub use serve::{CLIENT_WAIT, CLIENTS_MAX, Endpoint, EndpointError, Serving};
