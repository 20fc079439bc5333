//! Lines of a conversation, one at a time, whoever says them and whatever they hold.
//!
//! What must always hold: never more than a line's worth of memory, and the rest of a line that is too
//! long is no line of its own.

use crate::parser::LINE_BYTES_MAX;
use std::io::{self, BufRead, Read};

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line.
    Line,
    /// What stood before the end of the input without an end of its own: perhaps not all that was meant.
    Unended,
    /// There is nothing more.
    Nothing,
}

/// Reads the next line into `line`. Of one that is too long so much is kept that the parser finds it so.
///
/// # Errors
/// What reading says.
pub(crate) fn next(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    let mut bounded = input.take(LINE_BYTES_MAX as u64 + 2);
    if bounded.read_until(b'\n', line)? == 0 {
        return Ok(Next::Nothing);
    }
    let mut next = Next::Line;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_BYTES_MAX {
        // Too long, whether it ends or not.
        input.skip_until(b'\n')?;
    } else {
        next = Next::Unended;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_without_their_ends() {
        let text = format!("a\r\n\n{}\nlast", "x".repeat(3 * LINE_BYTES_MAX));
        let (mut input, mut line, mut lengths) = (text.as_bytes(), Vec::new(), Vec::new());
        let mut ends = Vec::new();
        loop {
            match next(&mut input, &mut line).unwrap() {
                Next::Nothing => break,
                read => ends.push(read),
            }
            lengths.push(line.len());
        }
        assert_eq!(lengths, [1, 0, LINE_BYTES_MAX + 2, 4]);
        assert_eq!(ends, [Next::Line, Next::Line, Next::Line, Next::Unended]);
    }
}
