//! The answer to a line, and the app that gives it.

use crate::rights::send;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv, sockopt};
use std::any::Any;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of a line, for an [`Answerer`] that does not say otherwise.
pub const LINE_BYTES_MAX: usize = 4096;

/// The app that answers lines. Several clients are answered at once, each on a thread of its own.
pub trait Answerer: Send + Sync {
    /// Carries a line out and answers it. Any line: of any text, up to [`line_bytes_max`](Self::line_bytes_max).
    fn answer(&self, line: &str) -> LineAnswer;

    /// As [`answer`](Self::answer), of a line with descriptors, which are closed unless the app keeps them.
    fn answer_with(&self, _line: &str, descriptors: Vec<OwnedFd>) -> LineAnswer {
        let count = descriptors.len();
        LineAnswer::Wrong(format!("{count} descriptors were sent with the line; send it without\n"))
    }

    /// Bytes that a line may have.
    fn line_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

/// What goes on until the client leaves or says its next line.
pub type AnswerStream = Box<dyn FnOnce(&mut AnswerWriter<'_>) -> Result<(), Gone> + Send>;

/// The answer to a line.
pub enum LineAnswer {
    /// It was carried out: whole lines, none of them empty.
    Done(String),
    /// It was not: whole lines, none of them empty.
    Wrong(String),
    /// It was carried out, and these descriptors, [`DESCRIPTORS_MAX`](crate::DESCRIPTORS_MAX) at most, go along.
    Handed(String, Vec<OwnedFd>),
    /// It is sent piece by piece by this, until there is no more or the client leaves.
    Streamed(AnswerStream),
    /// The conversation is over.
    Quit,
}

impl fmt::Debug for LineAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineAnswer::Done(lines) => f.debug_tuple("Done").field(lines).finish(),
            LineAnswer::Wrong(lines) => f.debug_tuple("Wrong").field(lines).finish(),
            LineAnswer::Handed(lines, of) => {
                f.debug_tuple("Handed").field(lines).field(of).finish()
            }
            LineAnswer::Streamed(_) => f.write_str("Streamed"),
            LineAnswer::Quit => f.write_str("Quit"),
        }
    }
}

/// The client has left, or has sent its next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client listens no more")]
pub struct Gone;

/// What a client does while an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It listens.
    Listens,
    /// It has sent its next line, or some of it.
    Speaks,
    /// It is gone.
    Left,
}

/// One client that listens to a [`LineAnswer::Streamed`].
pub struct AnswerWriter<'a> {
    client: &'a UnixStream,
    /// It had sent its next line before the answer began.
    is_answered: bool,
    kept: &'a mut Kept,
}

/// What is dropped when a conversation ends.
pub(crate) type Kept = Vec<Box<dyn Any + Send>>;

impl<'a> AnswerWriter<'a> {
    pub(crate) fn new(
        client: &'a UnixStream,
        is_answered: bool,
        kept: &'a mut Kept,
    ) -> AnswerWriter<'a> {
        AnswerWriter { client, is_answered, kept }
    }

    /// Keeps a value until the conversation ends, however it does: for what lasts as long as this client is there.
    pub fn keep(&mut self, value: impl Any + Send) {
        self.kept.push(Box::new(value));
    }

    /// The process that opened the conversation; none where it is of another namespace than this one knows.
    pub fn peer_pid(&self) -> Option<i32> {
        let peer = sockopt::socket_peercred(self.client).ok()?;
        Some(peer.pid.as_raw_pid()).filter(|pid| *pid > 0)
    }

    /// Says whole lines, none of them empty.
    ///
    /// # Errors
    /// The client has left, or takes nothing for ten seconds.
    pub fn write(&mut self, lines: &str) -> Result<(), Gone> {
        self.hand(lines, &[])
    }

    /// As [`write`](Self::write), with up to [`DESCRIPTORS_MAX`](crate::DESCRIPTORS_MAX) descriptors beside the lines,
    /// of which there is at least one.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn hand(&mut self, lines: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), Gone> {
        let lines = framed(lines);
        if lines.is_empty() {
            return Ok(());
        }
        send(self.client, lines.as_bytes(), descriptors).map_err(|_| Gone)
    }

    /// Waits so long for the client to say something or to leave: for an answer that must know which.
    pub fn reaction(&mut self, time: Duration) -> Reaction {
        if self.wait(time).is_ok() {
            return Reaction::Listens;
        }
        let mut first = [0];
        match recv(self.client, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((1.., _)) => Reaction::Speaks,
            // What it sent before is in the conversation's buffer.
            Err(rustix::io::Errno::AGAIN) => Reaction::Speaks,
            Ok(_) | Err(_) => Reaction::Left,
        }
    }

    /// Waits so long.
    ///
    /// # Errors
    /// As soon as the client leaves or says its next line.
    pub fn wait(&mut self, time: Duration) -> Result<(), Gone> {
        let until = Instant::now() + time;
        loop {
            if self.is_answered {
                return Err(Gone);
            }
            let left = until.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut polled = [PollFd::new(self.client, PollFlags::IN | PollFlags::RDHUP)];
            match poll(&mut polled, Some(&left)) {
                Ok(0) => return Ok(()),
                Ok(_) => self.is_answered = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Gone),
            }
        }
    }
}

/// Whole lines without an empty one, which would end the answer.
pub(crate) fn framed(lines: &str) -> String {
    let mut framed = String::with_capacity(lines.len() + 1);
    let whole = lines.lines().map(|line| line.trim_end_matches('\r'));
    for line in whole.filter(|line| !line.is_empty()) {
        framed.push_str(line);
        framed.push('\n');
    }
    framed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_answer_is_whole_lines_and_none_is_empty(lines in "[a\\n\\r]{0,20}") {
            let framed = framed(&lines);
            prop_assert!(framed.is_empty() || framed.ends_with('\n'));
            prop_assert!(!framed.starts_with('\n') && !framed.contains("\n\n"));
            prop_assert_eq!(framed.replace('\n', ""), lines.lines().map(|line| line.trim_end_matches('\r')).collect::<String>());
        }
    }
}
