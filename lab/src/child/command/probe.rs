//! Whether a program sends datagrams back unchanged, or answers over connections, asked before it is measured.

use super::sockets::Transport;
use crate::client::{ClientPlan, Conversation, SameBytes, Terms, Values};
use laneway_kinds::Protocol;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

/// Connections over which a program is asked, all open at once, and requests on each.
const CONNECTIONS: u32 = 3;
const REQUESTS: u32 = 3;
/// How long a connection may take to open, and a piece of an answer to come.
const TALK_MAX: Duration = Duration::from_secs(2);

/// Datagrams sent, each of other bytes.
const DATAGRAMS: u8 = 3;
/// How often one that is not answered is sent, and how long an answer may take.
const TRIES: usize = 4;
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// Sends datagrams of `payload_bytes` to `at`, from an address of the same host.
///
/// # Errors
/// A sentence: no answer, or a wrong one.
pub(super) fn ask(at: SocketAddrV4, payload_bytes: u16) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot send datagrams to {at}: {error}");
    let socket = UdpSocket::bind((*at.ip(), 0)).map_err(failed)?;
    for turn in 0..DATAGRAMS {
        let sent = payload(payload_bytes, turn);
        let is_late = |reply: &[u8]| (0..turn).any(|turn| payload(payload_bytes, turn) == reply);
        let Some((reply, from)) = answer(&socket, at, &sent, is_late).map_err(failed)? else {
            return Err(format!(
                "it listens on UDP {at} but sends nothing back: {TRIES} datagrams of {payload_bytes} bytes were sent"
            ));
        };
        if from != SocketAddr::V4(at) {
            return Err(format!(
                "it answers wrongly: what was sent to UDP {at} was returned from {from}"
            ));
        }
        if let Some(why) = difference(&sent, &reply) {
            return Err(format!("it answers wrongly: {why}"));
        }
    }
    Ok(())
}

/// Whether the kernel refuses what is sent to `at`, since no socket waits for it.
pub(super) fn is_refused(transport: Transport, at: SocketAddrV4) -> bool {
    let is_refusal = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let asked = || {
        // A socket without a peer would not hear of it.
        let socket = UdpSocket::bind((*at.ip(), 0))?;
        socket.connect(at)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.send(&payload(1, DATAGRAMS))?;
        socket.recv(&mut [0]).map(drop)
    };
    match transport {
        Transport::Tcp => TcpStream::connect_timeout(&at.into(), TALK_MAX).is_err_and(is_refusal),
        Transport::Udp => asked().is_err_and(is_refusal),
    }
}

/// Asks a program over three connections what `client` will; what it did, for the report.
///
/// # Errors
/// A sentence: it refuses, hangs, ends a connection, or answers wrongly.
pub(super) fn converse(client: &ClientPlan) -> Result<String, String> {
    match client.protocol {
        Protocol::Echo => converse_by::<SameBytes>(client),
        Protocol::Resp => converse_by::<Values>(client),
    }
}

fn converse_by<C: Conversation>(client: &ClientPlan) -> Result<String, String> {
    let terms = Rc::new(Terms::new(&ClientPlan { seed: !client.seed, ..client.clone() }));
    let open = |number| {
        let stream = TcpStream::connect_timeout(&client.to, TALK_MAX).map_err(|error| {
            format!(
                "it listens on TCP {}, but connection {} failed: {error}",
                client.to,
                number + 1
            )
        })?;
        let set = stream.set_read_timeout(Some(TALK_MAX));
        set.and_then(|()| stream.set_write_timeout(Some(TALK_MAX)))
            .map_err(|error| error.to_string())?;
        Ok::<_, String>((stream, C::begin(&terms, number, 0)))
    };
    let mut open: Vec<(TcpStream, C)> = (0..CONNECTIONS).map(open).collect::<Result<_, _>>()?;
    for turn in 0..REQUESTS {
        for (number, (stream, talk)) in open.iter_mut().enumerate() {
            request(stream, talk).map_err(|why| {
                format!(
                    "asked over TCP {}, connection {}, request {}: {why}",
                    client.to,
                    number + 1,
                    turn + 1
                )
            })?;
        }
    }
    Ok(format!("{REQUESTS} requests on each of {CONNECTIONS} connections were answered"))
}

/// One request, and its answer.
fn request<C: Conversation>(stream: &mut TcpStream, talk: &mut C) -> Result<(), String> {
    let mut sent = Vec::new();
    talk.ask(&mut sent);
    let bytes = sent.len();
    stream
        .write_all(&sent)
        .map_err(|error| format!("{bytes} bytes could not be sent: {}", ended_or_silent(&error)))?;
    let mut reply = [0; 4_096];
    let mut all = 0;
    loop {
        let n = match stream.read(&mut reply) {
            Ok(0) => {
                return Err(format!(
                    "it closed the connection; {bytes} bytes were sent, {all} returned"
                ));
            }
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let why = ended_or_silent(&error);
                return Err(format!("{why}; {bytes} bytes were sent, {all} returned"));
            }
        };
        all += n;
        let (whole, heard) = talk.hear(&reply[..n]);
        heard.map_err(|wrong| format!("it answers wrongly: {wrong}"))?;
        if whole > 0 {
            return Ok(());
        }
    }
}

/// What became of a connection.
fn ended_or_silent(error: &io::Error) -> String {
    use io::ErrorKind::{TimedOut, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => {
            format!("nothing more was received within {} s", TALK_MAX.as_secs())
        }
        _ => format!("the connection ended ({error})"),
    }
}

/// The first answer to `sent`, and whose it is; one to a datagram before it, which was sent twice, is passed over.
fn answer(
    socket: &UdpSocket,
    at: SocketAddrV4,
    sent: &[u8],
    is_late: impl Fn(&[u8]) -> bool,
) -> io::Result<Option<(Vec<u8>, SocketAddr)>> {
    let mut reply = vec![0; usize::from(u16::MAX)];
    for _ in 0..TRIES {
        socket.send_to(sent, at)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        match socket.recv_from(&mut reply) {
            Ok((bytes, from)) if !is_late(&reply[..bytes]) => {
                return Ok(Some((reply[..bytes].to_vec(), from)));
            }
            Ok(_) => {}
            Err(error) if is_silence(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Nothing arrived, or nothing listens any more, which the program's end will show, or [`is_refused`].
fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

fn payload(bytes: u16, turn: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ turn.wrapping_mul(97) ^ 0x5a).collect()
}

/// How the received bytes differ from what was sent.
fn difference(sent: &[u8], reply: &[u8]) -> Option<String> {
    if sent.len() != reply.len() {
        return Some(format!("{} bytes were sent, {} returned", sent.len(), reply.len()));
    }
    let at = sent.iter().zip(reply).position(|(sent, reply)| sent != reply)?;
    Some(format!(
        "of {} bytes sent, byte {at} was returned as {:#04x}, not {:#04x}",
        sent.len(),
        reply[at],
        sent[at]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_compared_byte_by_byte() {
        let sent = payload(64, 1);
        assert_eq!(difference(&sent, &sent), None);
        assert_ne!(sent, payload(64, 2));
        let mut spoilt = sent.clone();
        spoilt[63] ^= 1;
        let why = difference(&sent, &spoilt).unwrap();
        assert!(why.contains("byte 63 was returned as"), "{why}");
        let why = difference(&sent, &sent[..9]).unwrap();
        assert_eq!(why, "64 bytes were sent, 9 returned");
    }
}
