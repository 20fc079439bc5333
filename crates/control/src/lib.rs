//! Control of a running app: lines on a Unix socket, and the app's answers.
//!
//! ```text
//!   laneway APP VERB --control PATH ── Client ──▶ ┌ ControlSocket ┐      a thread per client
//!   socat - UNIX-CONNECT:PATH ────────────────▶  └ 0600, own user ┘ ──▶ lines ──▶ Answerer::answer ──▶ LineAnswer
//!   a successor ◀── descriptors, beside lines, both ways ──▶
//! ```
//!
//! **Protocol**: every line is a command; every line, an empty one too, is answered by lines that end with an empty
//! one; the first line of a refusal begins with `error: `. What has no newline before the client leaves is refused,
//! not done. An answer may go on until the client leaves or sends its next line ([`LineAnswer::Streamed`]). Descriptors
//! (SCM_RIGHTS) travel with a line or with an answer; a client that passes some has had the answers to all it sent
//! before, so it is plain which line they belong to.
//!
//! What must always hold: the file is ours or it is not touched (that of a server that lives is refused, one
//! without a listener is replaced); it is gone when [`ControlSocket`] is; a client that is neither the user of this
//! process nor root is refused; any line of a client, or none, costs a thread, a line's worth of memory
//! and its own connection, and no more than [`CLIENTS_MAX`] of them.
//!
//! What it does not do: it knows no command and no app, prints nothing, and executes nothing: an [`Answerer`] does.
#![forbid(unsafe_code)]

mod answer;
mod client;
mod connect;
mod lines;
mod rights;
mod socket;
mod talk;

pub use answer::{
    AnswerStream, AnswerWriter, Answerer, Gone, LINE_BYTES_MAX, LineAnswer, Reaction,
};
pub use client::{
    ANSWER_BYTES_MAX, ANSWER_WAIT, Answer, Client, ClientError, HANDED_MAX, Heard, ask,
};
pub use lines::{Next, SKIPPED_BYTES_MAX, next_line};
pub use rights::DESCRIPTORS_MAX;
pub use socket::{CLIENTS_MAX, ControlError, ControlSocket};

/// How the first line of a refusal begins.
pub(crate) const REFUSED: &str = "error: ";
