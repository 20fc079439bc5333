//! Small apps for tests: echoes, a request counter, and just enough of HTTP and RESP for real clients.

pub(crate) mod iperf;

use laneway_core::{App, Close, ConnId, Counters, Opened, StreamApp, StreamOut};
use std::{collections::HashMap, net::SocketAddr};

/// What an app answers to the bytes it was shown: how many it used, and the reply.
pub(crate) type Answer = fn(&[u8], &mut Vec<u8>) -> usize;

/// An app that answers requests one by one.
pub(crate) struct Server {
    answer: Answer,
    /// Close after an answer, or abort.
    pub(crate) one_shot: bool,
    pub(crate) aborts: bool,
    /// What every connection is sent first.
    pub(crate) greeting: &'static [u8],
    /// Connections open now.
    pub(crate) open: HashMap<ConnId, SocketAddr>,
    pub(crate) opened: usize,
    pub(crate) closed: Vec<Close>,
    /// Of an answer, what the queue did not take.
    unsent: HashMap<ConnId, Vec<u8>>,
    counters: Counters,
}

/// The words of a RESP array and the bytes that it takes; nothing while some of it is missing.
fn resp_array(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| -> Option<usize> {
        let line = &bytes[*at..];
        let end = line.windows(2).position(|two| two == b"\r\n")?;
        *at += end + 2;
        // After `*` or `$`.
        std::str::from_utf8(&line[1..end]).ok()?.parse().ok()
    };
    let count = number(&mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(&mut at)?;
        words.push(bytes.get(at..at + length)?);
        at += length + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

impl Server {
    pub(crate) fn new(answer: Answer) -> Server {
        Server {
            answer,
            one_shot: false,
            aborts: false,
            greeting: b"",
            open: HashMap::new(),
            opened: 0,
            closed: Vec::new(),
            unsent: HashMap::new(),
            counters: Counters::default(),
        }
    }

    /// Sends what fits, and keeps the rest until there is room.
    fn send<O: StreamOut>(&mut self, conn: ConnId, mut reply: Vec<u8>, out: &mut O) {
        let taken = out.send(conn, &reply);
        if taken < reply.len() {
            reply.drain(..taken);
            self.unsent.insert(conn, reply);
        }
    }

    pub(crate) fn echo() -> Server {
        Server::new(|bytes, reply| {
            reply.extend_from_slice(bytes);
            bytes.len()
        })
    }

    /// Answers `PING` and `ECHO` as RESP arrays or inline `PING`s, and everything else with an error.
    pub(crate) fn resp() -> Server {
        Server::new(|bytes, reply| {
            if bytes.first() != Some(&b'*') {
                let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return 0 };
                // An empty line is no command.
                if !bytes[..end].trim_ascii().is_empty() {
                    reply.extend_from_slice(b"+PONG\r\n");
                }
                return end + 1;
            }
            let Some((words, used)) = resp_array(bytes) else { return 0 };
            match words[..] {
                [ping] if ping.eq_ignore_ascii_case(b"PING") => {
                    reply.extend_from_slice(b"+PONG\r\n");
                }
                [echo, text] if echo.eq_ignore_ascii_case(b"ECHO") => {
                    reply.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
                    reply.extend_from_slice(text);
                    reply.extend_from_slice(b"\r\n");
                }
                _ => reply.extend_from_slice(b"-ERR only PING and ECHO are known\r\n"),
            }
            used
        })
    }

    /// Answers every HTTP request with `hello from laneway`.
    pub(crate) fn http() -> Server {
        Server::new(|bytes, reply| {
            let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return 0 };
            reply.extend_from_slice(
                b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\nConnection: keep-alive\r\n\r\nhello from laneway",
            );
            end + 4
        })
    }
}

impl App for Server {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Server {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        self.opened += 1;
        let Opened { conn, peer, .. } = opened;
        assert!(self.open.insert(conn, peer).is_none(), "{conn:?} was open");
        if !self.greeting.is_empty() {
            self.send(conn, self.greeting.to_vec(), out);
        }
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        assert!(self.open.contains_key(&conn), "{conn:?} is not open");
        let mut used = 0;
        while used < bytes.len() && !self.unsent.contains_key(&conn) {
            let mut reply = Vec::new();
            let taken = (self.answer)(&bytes[used..], &mut reply);
            if taken == 0 {
                break;
            }
            used += taken;
            self.send(conn, reply, out);
        }
        if self.one_shot && used > 0 {
            out.close(conn);
        }
        if self.aborts && used > 0 {
            out.abort(conn);
        }
        used
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        if let Some(reply) = self.unsent.remove(&conn) {
            self.send(conn, reply, out);
        }
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        assert!(self.open.remove(&conn).is_some(), "{conn:?} was not open");
        self.unsent.remove(&conn);
        self.closed.push(why);
    }
}
