//! A child's end of the conversation.

use crate::plan::{Order, Reply};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};

/// Longest line taken, bytes: an order is a few hundred.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// Reads one line; `None` when the other end is gone or does not speak our language.
fn read_line<T: DeserializeOwned>() -> Option<T> {
    let mut line = String::new();
    let mut input = io::Read::take(io::stdin().lock(), LINE_BYTES_MAX);
    match input.read_line(&mut line) {
        Ok(n) if n > 0 => serde_json::from_str(&line).ok(),
        _ => None,
    }
}

/// The first line.
pub(super) fn setup<T: DeserializeOwned>() -> Result<T, String> {
    read_line().ok_or_else(|| {
        "this verb is the inside of `laneway race`, which tells it on standard input what to be; \
         run `laneway race features`"
            .to_owned()
    })
}

/// The next order; `Stop` when there are no more.
pub(super) fn order() -> Order {
    read_line().unwrap_or(Order::Stop)
}

/// Answers. A parent that no longer listens is noticed at the next order.
pub(super) fn reply(reply: &Reply) {
    let mut line = serde_json::to_string(reply).expect("replies are plain data");
    line.push('\n');
    let mut out = io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
