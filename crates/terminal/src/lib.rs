//! What all verbs share: how the program ends, what it prints, and what ends it early.
//!
//! A verb is the program's own (`lanes`, `race`) or an app's (`features`, `rules`), so this lies below both. It
//! knows no verb, lane or app.
//!
//! What must always hold: an error is one sentence on standard error with the value and what to try; the exit code is
//! one of [`Exit`]; rows and JSON alone go to standard output; a reader that closes it ends the program quietly.
#![forbid(unsafe_code)]

mod exit;
mod print;
mod signals;
mod supervisor;
mod times;

pub use exit::{Exit, Failure, conclude};
pub use print::{
    note, path_json, print, print_json, show_progress, stderr_is_terminal, stdout_is_terminal,
};
pub use signals::on_signal;
pub use supervisor::Supervisor;
pub use times::duration;
