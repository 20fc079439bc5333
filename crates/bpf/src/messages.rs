//! What libbpf says while it works, kept for the error instead of printed.
//!
//! libbpf has one message callback per process; ours appends to a bounded list of the calling
//! thread. Assumes that libbpf reports a call's problems on the thread that made the call, which
//! it does.

use libbpf_rs::{PrintLevel, set_print};
use std::{cell::RefCell, sync::Once};

/// Messages kept per call; the last ones name the cause.
const MESSAGES_MAX: usize = 16;

thread_local! {
    static MESSAGES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts to collect for this thread, forgetting what was collected before.
pub(crate) fn collect() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        set_print(Some((PrintLevel::Warn, keep)));
    });
    MESSAGES.with_borrow_mut(Vec::clear);
}

/// What libbpf printed since [`collect`], one message per line.
pub(crate) fn collected() -> String {
    MESSAGES.with_borrow(|messages| messages.join("\n"))
}

fn keep(_level: PrintLevel, message: String) {
    MESSAGES.with_borrow_mut(|messages| {
        // The verifier's log arrives here too, as one huge message; it is read from our own buffer.
        if message.contains("BEGIN PROG LOAD LOG") {
            return;
        }
        if messages.len() == MESSAGES_MAX {
            messages.remove(0);
        }
        messages.push(message.trim_end().to_owned());
    });
}
