//! RESP, the protocol of Redis (<https://redis.io/docs/latest/develop/reference/protocol-spec/>): version 2, and
//! version 3 after `HELLO 3`. Bytes only: no I/O, no clock, no unsafe.
//!
//! ```text
//!   what a client sends ──▶ Parser: commands, borrowed      Reply: what a server answers ──▶
//!   what a server sends ──▶ Values: whole replies, owned    command: what a client asks ──▶
//! ```
//!
//! Both readers take bytes cut anywhere and never go over a byte twice: what an unfinished command or reply needs
//! they keep themselves, so that the caller that shows the bytes need not.
#![forbid(unsafe_code)]

mod line;
mod number;
mod parser;
mod reply;
mod value;

pub use number::integer;
pub use parser::{Args, Limits, Parser, ProtocolError, Step, words};
pub use reply::{Protocol, Reply, double_text};
pub use value::{Limits as ValueLimits, Value, ValueError, Values};

/// Writes a command as an array of bulk bytes, as clients do.
pub fn command(args: &[&[u8]], into: &mut Vec<u8>) {
    number::header(b'*', args.len(), into);
    for arg in args {
        number::header(b'$', arg.len(), into);
        into.extend_from_slice(arg);
        into.extend_from_slice(b"\r\n");
    }
}
