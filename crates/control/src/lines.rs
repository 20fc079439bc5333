//! Lines of a conversation, one at a time, with any contents.
//!
//! What must always hold: never more than a line's worth of memory; the rest of a line that is too long is no line of
//! its own; one that never ends is given up.

use std::io::{self, BufRead, ErrorKind, Read};

/// Bytes of a line that is too long that are read past, in search of its end.
pub const SKIPPED_BYTES_MAX: usize = 128 << 20;

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A line.
    Line,
    /// A line that is longer than it may be; of its bytes so many were kept that this shows.
    Long,
    /// What stood before the end of the input without an end of its own: perhaps not all that was meant.
    Unended,
    /// A line that is too long and did not end within [`SKIPPED_BYTES_MAX`]. Reading on finds its rest.
    Endless,
    /// There is nothing more.
    Nothing,
}

/// Reads the next line into `line`, without its end (LF or CR LF); it may have up to `bytes_max` bytes.
///
/// # Errors
/// What reading says.
pub fn next_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<Next> {
    line.clear();
    // A line's end has two bytes.
    let mut bounded = input.take(bytes_max as u64 + 2);
    if bounded.read_until(b'\n', line)? == 0 {
        return Ok(Next::Nothing);
    }
    let is_ended = line.pop_if(|last| *last == b'\n').is_some();
    line.pop_if(|last| *last == b'\r' && is_ended);
    match (is_ended, line.len() > bytes_max) {
        (true, false) => Ok(Next::Line),
        (true, true) => Ok(Next::Long),
        (false, false) => Ok(Next::Unended),
        (false, true) => skip(input),
    }
}

/// Reads past the rest of a line.
fn skip(input: &mut impl BufRead) -> io::Result<Next> {
    let mut skipped = 0;
    while skipped < SKIPPED_BYTES_MAX {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Ok(Next::Unended);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |at| at + 1);
        input.consume(taken);
        if end.is_some() {
            return Ok(Next::Long);
        }
        skipped += taken;
    }
    Ok(Next::Endless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    const MAX: usize = 64;

    fn all(text: &[u8], max: usize, chunk: usize) -> Vec<(Next, Vec<u8>)> {
        let (mut input, mut line, mut all) =
            (BufReader::with_capacity(chunk, text), Vec::new(), Vec::new());
        loop {
            match next_line(&mut input, &mut line, max).unwrap() {
                Next::Nothing => return all,
                next => all.push((next, line.clone())),
            }
            assert!(line.len() <= max + 2, "{} bytes kept", line.len());
        }
    }

    #[test]
    fn lines_come_one_by_one_without_their_ends() {
        let text = format!("a\r\n\n{}\n{}\r\nlast", "x".repeat(3 * MAX), "y".repeat(MAX));
        let read = all(text.as_bytes(), MAX, 7);
        let nexts: Vec<Next> = read.iter().map(|(next, _)| *next).collect();
        assert_eq!(nexts, [Next::Line, Next::Line, Next::Long, Next::Line, Next::Unended]);
        assert_eq!((&read[0].1[..], &read[4].1[..]), (&b"a"[..], &b"last"[..]));
        assert!(read[2].1.len() > MAX && read[3].1.len() == MAX);
    }

    #[test]
    fn a_line_without_end_is_given_up_and_never_kept() {
        let mut input = BufReader::new(io::repeat(b'x'));
        let mut line = Vec::new();
        assert_eq!(next_line(&mut input, &mut line, MAX).unwrap(), Next::Endless);
        assert!(line.capacity() <= 4 * MAX, "{}", line.capacity());
    }

    proptest! {
        /// A line ends where the text says, however the bytes arrive.
        #[test]
        fn any_bytes_are_the_lines_that_they_are(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..300),
            max in 1usize..40,
            chunk in 1usize..50,
        ) {
            let read = all(&text, max, chunk);
            let mut wanted: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
            let last = wanted.pop().unwrap();
            let is_cut = !last.is_empty();
            prop_assert_eq!(read.len(), wanted.len() + usize::from(is_cut));
            for ((next, line), wanted) in read.iter().zip(&wanted) {
                let wanted = wanted.strip_suffix(b"\r").unwrap_or(wanted);
                if wanted.len() <= max {
                    prop_assert_eq!((*next, &line[..]), (Next::Line, wanted));
                } else {
                    prop_assert_eq!(*next, Next::Long);
                    prop_assert!(line.len() > max && wanted.starts_with(&line[..max]));
                }
            }
            if is_cut {
                prop_assert_eq!(read.last().map(|(next, _)| *next), Some(Next::Unended));
            }
        }
    }
}
