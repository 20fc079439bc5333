//! Lines of a conversation, one at a time, whoever says them and whatever they hold.
//!
//! What must always hold: never more than a line's worth of memory, and the rest of a line that is too
//! long is no line of its own.

use laneway_forward::LINE_BYTES_MAX;
use std::io::{self, BufRead, Read};

/// Reads the next line into `line`; false at the end. Of one that is too long so much is kept that the
/// parser finds it so.
///
/// # Errors
/// What reading says.
pub(super) fn next(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut bounded = input.take(LINE_BYTES_MAX as u64 + 2);
    if bounded.read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_BYTES_MAX {
        input.skip_until(b'\n')?;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_without_their_ends() {
        let text = format!("a\r\n\n{}\nlast", "x".repeat(3 * LINE_BYTES_MAX));
        let (mut input, mut line, mut lengths) = (text.as_bytes(), Vec::new(), Vec::new());
        while next(&mut input, &mut line).unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [1, 0, LINE_BYTES_MAX + 2, 4]);
    }
}
