//! Just enough of an iperf3 server for a real `iperf3` client: one control connection and its data connections, or
//! one in reverse.
//!
//! The protocol is that of esnet/iperf `src/iperf_api.h` and `iperf_server_api.c`: a cookie of 37 bytes opens every
//! connection, states are single bytes, parameters and results are JSON behind a length of four bytes.

use laneway_core::{App, Close, ConnId, Counters, Opened, StreamApp, StreamOut};
use std::collections::HashMap;

const COOKIE_BYTES: usize = 37;
/// Sent per call in reverse tests.
const PIECE: [u8; 4096] = [0x5a; 4096];

const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ForCookie,
    ForParameters,
    ForEnd,
    ForResults,
    ForDone,
    Nothing,
    /// A data connection.
    ForData,
}

/// Serves one test at a time.
#[derive(Default)]
pub(crate) struct Iperf {
    conns: HashMap<ConnId, Waits>,
    control: Option<ConnId>,
    /// Data connections and what they received or sent, in the order in which they arrived.
    streams: Vec<(ConnId, u64)>,
    streams_wanted: usize,
    /// The server sends.
    is_reverse: bool,
    is_running: bool,
    /// Data bytes of each finished test when its client reported that it was over; some may have been on their way.
    pub(crate) tests: Vec<u64>,
    /// Data bytes of all tests.
    pub(crate) received: u64,
    counters: Counters,
}

impl Iperf {
    /// The control connection says something; returns the bytes used.
    fn control<O: StreamOut>(
        &mut self,
        conn: ConnId,
        waits: Waits,
        bytes: &[u8],
        out: &mut O,
    ) -> usize {
        let (used, next, reply): (usize, Waits, Vec<u8>) = match waits {
            Waits::ForParameters | Waits::ForResults => {
                let Some((json, used)) = json(bytes) else { return 0 };
                if waits == Waits::ForParameters {
                    self.streams_wanted = number(json, "\"parallel\":").unwrap_or(1);
                    self.is_reverse = json.contains("\"reverse\":true");
                    (used, Waits::ForEnd, vec![CREATE_STREAMS])
                } else {
                    let results = self.results();
                    let mut reply = (results.len() as u32).to_be_bytes().to_vec();
                    reply.extend(results.bytes());
                    reply.push(DISPLAY_RESULTS);
                    (used, Waits::ForDone, reply)
                }
            }
            Waits::ForEnd if bytes[0] == TEST_END => {
                self.is_running = false;
                // In reverse the client may be about to read a whole block, which only this ends (iperf 3.12,
                // `iperf_run_client`). Otherwise some of its bytes are still on their way.
                for (stream, _) in self.streams.iter().filter(|_| self.is_reverse) {
                    out.close(*stream);
                }
                (1, Waits::ForResults, vec![EXCHANGE_RESULTS])
            }
            Waits::ForDone if bytes[0] == IPERF_DONE => {
                self.tests.push(self.streams.iter().map(|(_, bytes)| bytes).sum());
                (1, Waits::Nothing, Vec::new())
            }
            _ => panic!("control connection waits {waits:?} and got {:?}", &bytes[..1]),
        };
        self.conns.insert(conn, next);
        assert_eq!(out.send(conn, &reply), reply.len(), "a few bytes fit the queue");
        used
    }

    fn results(&self) -> String {
        // Streams are numbered 1, 3, 4, ...: the client leaves the 2 out.
        let streams = self.streams.iter().enumerate().map(|(i, (_, bytes))| {
            let id = if i == 0 { 1 } else { i + 2 };
            format!(
                "{{\"id\":{id},\"bytes\":{bytes},\"retransmits\":-1,\"jitter\":0,\"errors\":0,\"packets\":0,\
                 \"start_time\":0,\"end_time\":1}}"
            )
        });
        let streams: Vec<String> = streams.collect();
        format!(
            "{{\"cpu_util_total\":0,\"cpu_util_user\":0,\"cpu_util_system\":0,\
             \"sender_has_retransmits\":-1,\"streams\":[{}]}}",
            streams.join(",")
        )
    }

    /// A data connection of a reverse test: fills its queue.
    fn send_blocks<O: StreamOut>(&mut self, stream: usize, out: &mut O) {
        if !self.is_running || !self.is_reverse {
            return;
        }
        let (conn, count) = &mut self.streams[stream];
        loop {
            let taken = out.send(*conn, &PIECE);
            *count += taken as u64;
            if taken < PIECE.len() {
                break;
            }
        }
    }
}

/// The JSON text behind its length, once all of it is there, and the bytes of both.
fn json(bytes: &[u8]) -> Option<(&str, usize)> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*head) as usize;
    let text = std::str::from_utf8(rest.get(..len)?).expect("iperf3 writes UTF-8");
    Some((text, len + 4))
}

fn number(json: &str, key: &str) -> Option<usize> {
    let digits = &json[json.find(key)? + key.len()..];
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

impl App for Iperf {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Iperf {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, _out: &mut O) {
        self.conns.insert(opened.conn, Waits::ForCookie);
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let waits = self.conns[&conn];
        match waits {
            Waits::ForCookie if bytes.len() < COOKIE_BYTES => 0,
            Waits::ForCookie if self.control.is_none() => {
                self.control = Some(conn);
                self.conns.insert(conn, Waits::ForParameters);
                assert_eq!(out.send(conn, &[PARAM_EXCHANGE]), 1, "a byte fits the queue");
                COOKIE_BYTES
            }
            Waits::ForCookie => {
                self.conns.insert(conn, Waits::ForData);
                self.streams.push((conn, 0));
                if self.streams.len() == self.streams_wanted {
                    let control = self.control.expect("the control connection is the first");
                    assert_eq!(out.send(control, &[TEST_START, TEST_RUNNING]), 2, "two bytes fit");
                    self.is_running = true;
                    (0..self.streams.len()).for_each(|stream| self.send_blocks(stream, out));
                }
                COOKIE_BYTES
            }
            Waits::ForData => {
                let stream = self.streams.iter().position(|(of, _)| *of == conn);
                self.received += bytes.len() as u64;
                // What arrives after the control connection is gone belongs to no test.
                if let Some(stream) = stream {
                    self.streams[stream].1 += bytes.len() as u64;
                }
                bytes.len()
            }
            control => self.control(conn, control, bytes, out),
        }
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        if let Some(stream) = self.streams.iter().position(|(of, _)| *of == conn) {
            self.send_blocks(stream, out);
        }
    }

    fn on_close(&mut self, conn: ConnId, _why: Close) {
        self.conns.remove(&conn);
        if self.control == Some(conn) {
            *self = Iperf {
                conns: std::mem::take(&mut self.conns),
                tests: std::mem::take(&mut self.tests),
                received: self.received,
                ..Iperf::default()
            };
        }
    }
}
