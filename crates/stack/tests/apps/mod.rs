//! Small apps for tests: echoes, a request counter, and just enough of HTTP and RESP for real clients.

pub(crate) mod iperf;

use laneway_core::{Close, ConnId, Counters, StreamApp, StreamOut};
use std::{collections::HashMap, net::SocketAddr};

/// What an app answers to the bytes it was shown: how many it used, and the reply.
pub(crate) type Answer = fn(&[u8], &mut Vec<u8>) -> usize;

/// An app that answers requests one by one.
pub(crate) struct Server {
    answer: Answer,
    /// Close after an answer.
    pub(crate) one_shot: bool,
    /// Connections open now.
    pub(crate) open: HashMap<ConnId, SocketAddr>,
    pub(crate) opened: usize,
    pub(crate) closed: Vec<Close>,
    reply: Vec<u8>,
    counters: Counters,
}

impl Server {
    pub(crate) fn new(answer: Answer) -> Server {
        Server {
            answer,
            one_shot: false,
            open: HashMap::new(),
            opened: 0,
            closed: Vec::new(),
            reply: Vec::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn echo() -> Server {
        Server::new(|bytes, reply| {
            // Pieces that are small against any queue, so that a refusal costs little.
            let piece = &bytes[..bytes.len().min(1024)];
            reply.extend_from_slice(piece);
            piece.len()
        })
    }

    /// Answers `PING\r\n` as RESP arrays or inline, and everything else with an error.
    pub(crate) fn resp() -> Server {
        Server::new(|bytes, reply| {
            let text = String::from_utf8_lossy(bytes);
            if !text.starts_with('*') {
                let Some(end) = text.find("\r\n") else { return 0 };
                reply.extend_from_slice(b"+PONG\r\n");
                return end + 2;
            }
            let mut lines = text.split("\r\n");
            let count: usize = lines.next().and_then(|line| line[1..].parse().ok()).unwrap_or(0);
            let (mut words, mut used) = (Vec::new(), text.find("\r\n").map_or(0, |at| at + 2));
            for _ in 0..count {
                let (Some(size), Some(word)) = (lines.next(), lines.next()) else { return 0 };
                used += size.len() + word.len() + 4;
                words.push(word.to_ascii_uppercase());
            }
            if used == 0 || used > bytes.len() {
                return 0;
            }
            match words.first().map(String::as_str) {
                Some("PING") => reply.extend_from_slice(b"+PONG\r\n"),
                _ => reply.extend_from_slice(b"-ERR only PING is known\r\n"),
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

impl StreamApp for Server {
    fn on_open(&mut self, conn: ConnId, peer: SocketAddr) {
        self.opened += 1;
        assert!(self.open.insert(conn, peer).is_none(), "{conn:?} was open");
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        assert!(self.open.contains_key(&conn), "{conn:?} is not open");
        let mut used = 0;
        while used < bytes.len() {
            self.reply.clear();
            let taken = (self.answer)(&bytes[used..], &mut self.reply);
            if taken == 0 || !out.send(conn, &self.reply) {
                break;
            }
            used += taken;
        }
        if self.one_shot && used > 0 {
            out.close(conn);
        }
        used
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        assert!(self.open.remove(&conn).is_some(), "{conn:?} was not open");
        self.closed.push(why);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
