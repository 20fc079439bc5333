//! The other end: what a verb on the command line says to a running app, and what a successor takes from it.

use crate::REFUSED;
use crate::connect::connect;
use crate::rights::{Wire, send};
use rustix::net::{SocketAddrAny, getpeername};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any command waits to be in force.
pub const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Bytes of an answer that [`Client::ask`] keeps, and of any line of one.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Descriptors that are kept of an answer: a socket of each of 16,384 ports, and some.
pub const HANDED_MAX: usize = 20_000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No app listens there.
    #[error("cannot talk to {}: {why}", path.display())]
    NotListening {
        /// The socket.
        path: PathBuf,
        /// What connecting says.
        why: io::Error,
    },
    /// The conversation broke off.
    #[error("lost {} at `{line}`: {why}; it may have ended", path.display())]
    Lost {
        /// The socket.
        path: PathBuf,
        /// What was being answered.
        line: String,
        /// What happened.
        why: String,
        /// The other end is closed, so that no answer will come.
        is_over: bool,
    },
    /// It was several lines, and would have had several answers.
    #[error("a command is one line; give each as an argument of its own")]
    Several,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Its lines, without their ends; that of a refusal without the word that says so.
    pub lines: Vec<String>,
    /// Nothing was done, and the lines say why.
    pub is_refused: bool,
    /// What was handed over beside the lines, in its order.
    pub descriptors: Vec<OwnedFd>,
}

/// The next part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line of it.
    Line(String),
    /// A line of a refusal, the first one without the word that says so.
    Wrong(String),
    /// It is over.
    End,
}

/// A conversation with a running app.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    input: BufReader<Socket>,
    line: String,
    /// Lines of the present answer so far.
    heard: usize,
    is_refused: bool,
}

/// Says one line to the app at `path` and gives its answer.
///
/// # Errors
/// As [`Client::connect`] and [`Client::ask`].
pub fn ask(path: &Path, line: &str) -> Result<Answer, ClientError> {
    Client::connect(path)?.ask(line)
}

impl Client {
    /// Begins a conversation, in which an answer may take [`ANSWER_WAIT`].
    ///
    /// # Errors
    /// No app listens at `path`, or not to this user.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let socket = connect(path, Some(ANSWER_WAIT)).and_then(|socket| {
            socket.set_read_timeout(Some(ANSWER_WAIT))?;
            Ok(socket)
        });
        let socket =
            socket.map_err(|why| ClientError::NotListening { path: path.to_owned(), why })?;
        let input = BufReader::new(Socket { socket, handed: Vec::new() });
        let line = String::new();
        Ok(Client { path: path.to_owned(), input, line, heard: 0, is_refused: false })
    }

    /// How long the next line of an answer may take; None: as long as it likes, for one that is sent while things
    /// happen.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn wait_at_most(&mut self, time: Option<Duration>) -> Result<(), ClientError> {
        self.input.get_ref().socket.set_read_timeout(time).map_err(|error| self.lost(&error))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name that the socket had where this conversation was accepted, as the app bound it.
    pub(crate) fn accepted_at(&self) -> io::Result<Option<SocketAddrAny>> {
        Ok(getpeername(&self.input.get_ref().socket)?)
    }

    /// Sends a line, whose answer is to be read before the next is sent.
    ///
    /// # Errors
    /// It is no line, or the app is gone.
    pub fn say(&mut self, line: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        if line.contains('\n') {
            return Err(ClientError::Several);
        }
        line.clone_into(&mut self.line);
        (self.heard, self.is_refused) = (0, false);
        let text = format!("{line}\n");
        match send(&self.input.get_ref().socket, text.as_bytes(), descriptors) {
            // Why it closed stands in front of the end, where it is heard.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(|error| self.lost(&error)),
        }
    }

    /// The next line of the answer, as soon as it is there.
    ///
    /// # Errors
    /// The app is gone, or says nothing for as long as it may.
    pub fn hear(&mut self) -> Result<Heard, ClientError> {
        let mut bytes = Vec::new();
        let mut bounded = (&mut self.input).take(ANSWER_BYTES_MAX as u64);
        let read = bounded.read_until(b'\n', &mut bytes);
        if let Err(error) = read {
            return Err(self.lost(&error));
        }
        if bytes.pop_if(|last| *last == b'\n').is_none() {
            let why = match bytes.len() < ANSWER_BYTES_MAX {
                true => io::Error::from(io::ErrorKind::UnexpectedEof),
                false => io::Error::other(format!("more than {ANSWER_BYTES_MAX} bytes in a line")),
            };
            return Err(self.lost(&why));
        }
        let text = String::from_utf8_lossy(&bytes);
        let refused = text.strip_prefix(REFUSED).filter(|_| self.heard == 0);
        self.is_refused |= refused.is_some();
        self.heard += 1;
        Ok(match (&*text, self.is_refused) {
            ("", _) => {
                // The next line is another answer's.
                (self.heard, self.is_refused) = (0, false);
                Heard::End
            }
            (text, true) => Heard::Wrong(refused.unwrap_or(text).to_owned()),
            (text, false) => Heard::Line(text.to_owned()),
        })
    }

    /// The descriptors that arrived beside the lines heard so far, and were not taken yet.
    pub fn handed(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.input.get_mut().handed)
    }

    /// Says a line and gives its whole answer.
    ///
    /// # Errors
    /// As [`say`](Self::say) and [`hear`](Self::hear).
    pub fn ask(&mut self, line: &str) -> Result<Answer, ClientError> {
        self.ask_with(line, &[])
    }

    /// As [`ask`](Self::ask), with up to [`DESCRIPTORS_MAX`](crate::DESCRIPTORS_MAX) descriptors beside the line.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_with(
        &mut self,
        line: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, ClientError> {
        self.say(line, descriptors)?;
        let (mut lines, mut bytes, mut is_refused) = (Vec::new(), 0, false);
        loop {
            let text = match self.hear()? {
                Heard::Line(text) => text,
                Heard::Wrong(text) => {
                    is_refused = true;
                    text
                }
                Heard::End => break,
            };
            bytes += text.len();
            if bytes > ANSWER_BYTES_MAX {
                let why = io::Error::other(format!("more than {ANSWER_BYTES_MAX} bytes"));
                return Err(self.lost(&why));
            }
            lines.push(text);
        }
        Ok(Answer { lines, is_refused, descriptors: self.handed() })
    }

    fn lost(&self, error: &io::Error) -> ClientError {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock => "it gave no answer for too long".to_owned(),
            io::ErrorKind::UnexpectedEof => {
                "it closed the connection before its answer ended".to_owned()
            }
            _ => error.to_string(),
        };
        let is_over = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        );
        ClientError::Lost { path: self.path.clone(), line: self.line.clone(), why, is_over }
    }
}

/// A connection that keeps what is handed over.
#[derive(Debug)]
struct Socket {
    socket: UnixStream,
    handed: Vec<OwnedFd>,
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut wire = Wire::new(&self.socket, HANDED_MAX - self.handed.len());
        let read = wire.read(bytes)?;
        let handed = wire.arrived().map_err(|_| {
            io::Error::other("descriptors were lost on the way; look at `ulimit -n`")
        })?;
        self.handed.extend(handed);
        Ok(read)
    }
}
