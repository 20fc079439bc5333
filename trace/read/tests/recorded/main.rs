//! What others recorded, and what is recorded here, event by event against babeltrace2.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod exact;
mod layouts;
mod oracle;
mod published;
