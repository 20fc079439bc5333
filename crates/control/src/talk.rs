//! The server's side of one conversation.

use crate::REFUSED;
use crate::answer::{AnswerWriter, Answerer, Kept, LineAnswer, framed};
use crate::lines::{Next, next_line};
use crate::rights::{DESCRIPTORS_MAX, Missing, Wire, send};
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Answers line by line until the client leaves.
pub(crate) fn converse(mut client: &UnixStream, answerer: &dyn Answerer) -> io::Result<()> {
    let bytes_max = answerer.line_bytes_max();
    let mut input = BufReader::new(Wire::new(client, DESCRIPTORS_MAX));
    let (mut line, mut kept) = (Vec::new(), Kept::new());
    loop {
        match next_line(&mut input, &mut line, bytes_max)? {
            Next::Line => {}
            Next::Long => {
                // Descriptors beside it are closed.
                let _ = input.get_mut().arrived();
                let why = "a line is longer than it may be, so nothing was done";
                refuse(client, &format!("{why}; {bytes_max} are the most bytes"))?;
                continue;
            }
            // A client that died in the middle of `rule 12` has not sent `rule 1`.
            Next::Unended => {
                let why = "the line has no end, so nothing was done";
                return refuse(client, &format!("{why}; end every command with a newline"));
            }
            Next::Endless => {
                let why = "a line does not end, so nothing was done";
                return refuse(client, &format!("{why}; {bytes_max} bytes and a newline are one"));
            }
            Next::Nothing => return Ok(()),
        }
        let text = String::from_utf8_lossy(&line);
        let answer = match input.get_mut().arrived() {
            Ok(none) if none.is_empty() => answerer.answer(&text),
            Ok(descriptors) => answerer.answer_with(&text, descriptors),
            Err(Missing) => LineAnswer::Wrong(format!(
                "descriptors were lost on the way, so nothing was done; pass up to {DESCRIPTORS_MAX} with a \
                 line, and look at `ulimit -n` of this process"
            )),
        };
        match answer {
            LineAnswer::Done(lines) => {
                client.write_all(format!("{}\n", framed(&lines)).as_bytes())?
            }
            LineAnswer::Wrong(lines) => refuse(client, &lines)?,
            LineAnswer::Handed(lines, descriptors) => {
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                send(client, format!("{}\n", framed(&lines)).as_bytes(), &borrowed)?;
            }
            LineAnswer::Streamed(write_lines) => {
                let mut writer = AnswerWriter::new(client, !input.buffer().is_empty(), &mut kept);
                // Whether there was no more or the client had enough: the answer ends.
                let _ = write_lines(&mut writer);
                client.write_all(b"\n")?;
            }
            LineAnswer::Quit => return client.write_all(b"\n"),
        }
    }
}

/// Says why not.
pub(crate) fn refuse(mut client: &UnixStream, lines: &str) -> io::Result<()> {
    client.write_all(format!("{REFUSED}{}\n", framed(lines)).as_bytes())
}
