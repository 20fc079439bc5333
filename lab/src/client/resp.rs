//! Replies of a server that speaks RESP2, found in bytes that the network cut anywhere.
//!
//! What a client of GET and SET can be answered with, and no more: a status, an error, a value, or nothing. It keeps no
//! bytes and copies none; whatever is malformed, or larger than it can be, is an error with the bytes in it.

/// Longest status or error, and the longest head of a value, bytes.
const LINE_BYTES_MAX: usize = 4_096;
/// Characters of a line that are kept for an error.
const QUOTED_CHARS: usize = 80;

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// A status, as `OK`.
    Status(&'a [u8]),
    /// An error, as `ERR unknown command`.
    Error(&'a [u8]),
    /// A value.
    Value(&'a [u8]),
    /// There is none.
    Nothing,
}

/// A parser that finds replies in bytes.
pub(super) trait Replies {
    /// The reply that `bytes` begin with, and its length with all its marks; `None` if it is not whole yet. A value may
    /// have `value_bytes_max` bytes.
    ///
    /// # Errors
    /// What it is instead.
    fn first(bytes: &[u8], value_bytes_max: usize) -> Result<Option<(Reply<'_>, usize)>, String>;
}

/// RESP2 (redis.io/docs/reference/protocol-spec), and the null of RESP3.
pub(super) struct Resp;

impl Replies for Resp {
    fn first(bytes: &[u8], value_bytes_max: usize) -> Result<Option<(Reply<'_>, usize)>, String> {
        let Some((line, head)) = line(bytes)? else { return Ok(None) };
        let Some((&mark, text)) = line.split_first() else {
            return Err("an empty line".to_owned());
        };
        Ok(match mark {
            b'+' => Some((Reply::Status(text), head)),
            b'-' => Some((Reply::Error(text), head)),
            b'_' if text.is_empty() => Some((Reply::Nothing, head)),
            b'$' if text == b"-1" => Some((Reply::Nothing, head)),
            b'$' => {
                let length = length(text).filter(|&length| length <= value_bytes_max);
                let Some(length) = length else { return Err(quoted(line)) };
                let whole = head + length + 2;
                if bytes.len() < whole {
                    return Ok(None);
                }
                if &bytes[head + length..whole] != b"\r\n" {
                    return Err(format!("a value of {length} bytes that goes on behind them"));
                }
                Some((Reply::Value(&bytes[head..head + length]), whole))
            }
            _ => return Err(quoted(line)),
        })
    }
}

/// The first line without its end, and its length with it.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    let looked = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match looked.iter().position(|&byte| byte == b'\n') {
        Some(end) => match looked[..end].split_last() {
            Some((b'\r', line)) => Ok(Some((line, end + 1))),
            _ => Err(quoted(&looked[..end])),
        },
        None if bytes.len() < LINE_BYTES_MAX => Ok(None),
        None => Err(format!("{} and no end of it in {LINE_BYTES_MAX} bytes", quoted(looked))),
    }
}

/// A length, of digits alone.
fn length(text: &[u8]) -> Option<usize> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// A line, for a reader.
pub(super) fn quoted(line: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(line).chars().take(QUOTED_CHARS).collect();
    format!("`{}`", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const MOST: usize = 1 << 20;

    #[test]
    fn each_kind_of_reply_is_found_and_nothing_before_it_is_whole() {
        for (bytes, reply) in [
            (&b"+OK\r\n"[..], Reply::Status(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b"$3\r\na\r\n\r\n", Reply::Value(b"a\r\n")),
            (b"$0\r\n\r\n", Reply::Value(b"")),
            (b"$-1\r\n", Reply::Nothing),
            (b"_\r\n", Reply::Nothing),
        ] {
            assert_eq!(Resp::first(bytes, MOST), Ok(Some((reply, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(Resp::first(&bytes[..end], MOST), Ok(None), "{end} of {bytes:?}");
            }
            let more = [bytes, b"$9\r\n"].concat();
            assert_eq!(Resp::first(&more, MOST), Ok(Some((reply, bytes.len()))));
        }
    }

    #[test]
    fn what_is_no_such_reply_is_reported() {
        let long = vec![b'x'; 2 * LINE_BYTES_MAX];
        for (bytes, part) in [
            (&b":1\r\n"[..], "`:1`"),
            (b"*1\r\n", "`*1`"),
            (b"\r\n", "an empty line"),
            (b"+OK\n", "`+OK`"),
            (b"$-2\r\n", "`$-2`"),
            (b"$+1\r\n", "`$+1`"),
            (b"$\r\n", "`$`"),
            (b"$1048577\r\n", "`$1048577`"),
            (b"$99999999999999999999999\r\n", "`$99999999999999999999999`"),
            (b"$1\r\nabc", "a value of 1 bytes that goes on"),
            (b"HTTP/1.1 400\r\n", "`HTTP/1.1 400`"),
            (&long, "no end of it in 4096 bytes"),
        ] {
            let why = Resp::first(bytes, MOST).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert!(quoted(&long).len() <= QUOTED_CHARS + 2);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_none_are_taken_that_are_not_there(
            bytes in vec(prop_oneof![any::<u8>(), prop::sample::select(&b"$+-_0123456789\r\n"[..])], 0..200),
        ) {
            if let Ok(Some((_, taken))) = Resp::first(&bytes, MOST) {
                prop_assert!(taken > 0 && taken <= bytes.len());
            }
        }
    }
}
