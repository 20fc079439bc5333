//! The listener: a thread, a few clients at a time, each with little to say and little time to say it.

use crate::request::{self, CROWDED, HEAD_BYTES_MAX, Response, TOO_LONG, TOO_SLOW, is_whole};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Clients at a time; further ones are refused.
pub const CLIENTS_MAX: usize = 8;
/// How long a client may take to ask, and as long again to listen.
pub const CLIENT_WAIT: Duration = Duration::from_secs(5);
/// After a client could not be accepted: descriptors may be short, and come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Bytes written between two looks at the clock.
const CHUNK: usize = 64 << 10;

/// Why the figures cannot be read there.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Other machines would read them.
    #[error(
        "--metrics {0} can be read from other machines; use {at}, or add --metrics-anywhere if they may",
        at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), .0.port())
    )]
    Anywhere(SocketAddr),
    /// The address cannot be listened at.
    #[error(
        "cannot open --metrics {0}: {1}; use an address of this machine and a free port, or port 0 for any"
    )]
    Os(SocketAddr, io::Error),
}

/// An address at which the figures of a run will be.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    /// The accepting thread looks at the second; it ends when the first is shut down.
    ends: (UnixStream, UnixStream),
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    here: BTreeMap<u64, Arc<TcpStream>>,
    next: u64,
    is_over: bool,
}

/// Figures can be read until this is dropped.
#[derive(Debug)]
pub struct Serving<'a>(&'a Endpoint);

impl Endpoint {
    /// Listens at `address`; clients wait until they are served. One that other machines reach must be wanted
    /// `anywhere`.
    ///
    /// # Errors
    /// It is not loopback, or cannot be listened at.
    pub fn bind(address: SocketAddr, anywhere: bool) -> Result<Endpoint, EndpointError> {
        if !address.ip().to_canonical().is_loopback() && !anywhere {
            return Err(EndpointError::Anywhere(address));
        }
        let os = |error: io::Error| EndpointError::Os(address, error);
        let listener = TcpListener::bind(address).map_err(os)?;
        listener.set_nonblocking(true).map_err(os)?;
        let bound = listener.local_addr().map_err(os)?;
        let ends = UnixStream::pair().map_err(os)?;
        Ok(Endpoint { listener, address: bound, ends, clients: Mutex::default() })
    }

    /// Where it is, with the port that it was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves what `page` gives, on threads of `scope`, until what it returns is dropped; no thread of it is there
    /// much longer than that and `page` takes.
    ///
    /// # Errors
    /// There is no thread left for it.
    pub fn serve<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        page: &'env (dyn Fn() -> String + Sync),
    ) -> Result<Serving<'env>, EndpointError> {
        let accept = move || {
            while let Some(client) = self.next() {
                self.admit(scope, client, page);
            }
        };
        let spawned = thread::Builder::new().name("metrics".to_owned()).spawn_scoped(scope, accept);
        spawned.map_err(|error| EndpointError::Os(self.address, error))?;
        Ok(Serving(self))
    }

    /// The next client; nothing when it is over.
    fn next(&self) -> Option<TcpStream> {
        loop {
            let mut polled = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.ends.1, PollFlags::IN),
            ];
            if poll(&mut polled, None).is_err() {
                continue; // interrupted
            }
            if !polled[1].revents().is_empty() {
                return None;
            }
            match self.listener.accept() {
                Ok((client, _)) => return Some(client),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    fn admit<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        client: TcpStream,
        page: &'env (dyn Fn() -> String + Sync),
    ) {
        if client.set_write_timeout(Some(CLIENT_WAIT)).is_err() {
            return;
        }
        let client = Arc::new(client);
        let mut clients = self.lock();
        if clients.is_over {
            return;
        }
        if clients.here.len() >= CLIENTS_MAX {
            drop(clients);
            // It may be gone already.
            let _ = (&*client).write_all(request::answer(CROWDED, String::new).as_bytes());
            return;
        }
        let number = clients.next;
        clients.next += 1;
        clients.here.insert(number, Arc::clone(&client));
        drop(clients);
        let serve = move || {
            let _seat = Seat { endpoint: self, number };
            // A client that is gone needs no answer.
            let _ = converse(&client, page);
        };
        let spawned =
            thread::Builder::new().name("metrics-client".to_owned()).spawn_scoped(scope, serve);
        if spawned.is_err() {
            // The connection closes, which the client sees.
            self.lock().here.remove(&number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        // Nothing between its changes panics.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut clients = self.0.lock();
        clients.is_over = true;
        // What is shut down ends what waits on it; one that has left needs no telling.
        for client in clients.here.values() {
            let _ = client.shutdown(Shutdown::Both);
        }
        let _ = self.0.ends.0.shutdown(Shutdown::Both);
    }
}

/// Strikes a client off when it has been served, however that ends.
struct Seat<'a> {
    endpoint: &'a Endpoint,
    number: u64,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.endpoint.lock().here.remove(&self.number);
    }
}

/// One request, one answer.
fn converse(client: &TcpStream, page: &dyn Fn() -> String) -> io::Result<()> {
    let asked = hear(client)?;
    send(client, request::answer(asked, page).as_bytes())?;
    client.shutdown(Shutdown::Write)?;
    // What it sent and was not read would reset the connection in front of the answer.
    let until = Instant::now() + CLIENT_WAIT;
    let (mut rest, mut left) = ([0; 4096], HEAD_BYTES_MAX * 8);
    while left > 0 {
        let Some(time) = time_until(until) else { break };
        client.set_read_timeout(Some(time))?;
        match (&*client).read(&mut rest) {
            Ok(n) if n > 0 => left = left.saturating_sub(n),
            _ => break,
        }
    }
    Ok(())
}

fn hear(mut client: &TcpStream) -> io::Result<Response> {
    let until = Instant::now() + CLIENT_WAIT;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let Some(time) = time_until(until) else { return Ok(TOO_SLOW) };
        client.set_read_timeout(Some(time))?;
        match client.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => head.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(TOO_SLOW),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if is_whole(&head) {
            return Ok(request::read(&head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(TOO_LONG);
        }
    }
}

fn send(mut client: &TcpStream, text: &[u8]) -> io::Result<()> {
    let until = Instant::now() + CLIENT_WAIT;
    for chunk in text.chunks(CHUNK) {
        let Some(time) = time_until(until) else { return Err(io::ErrorKind::TimedOut.into()) };
        client.set_write_timeout(Some(time))?;
        client.write_all(chunk)?;
    }
    Ok(())
}

fn time_until(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than anything takes that does not hang.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    /// Says it, ends, and gives the answer.
    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = client.write_all(request);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn the_page_is_served_until_the_run_ends_and_hostile_clients_do_no_harm() {
        let endpoint = Endpoint::bind(loopback(), false).unwrap();
        let page = || "laneway_x 1\n".repeat(100_000);
        thread::scope(|scope| {
            let serving = endpoint.serve(scope, &page).unwrap();
            let answer = ask(endpoint.address(), GET);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
            assert!(body == page(), "{} bytes", body.len());

            for (request, status) in [
                (b"\x16\x03\x01\x00\xff\n\n".to_vec(), "400"),
                (vec![b'x'; 20_000], "431"),
                ([b"GET /metrics HTTP/1.1\r\n".to_vec(), b"a: b\r\n".repeat(3000)].concat(), "431"),
                (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "404"),
            ] {
                let answer = ask(endpoint.address(), &request);
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
            }
            // One that leaves at once, and slow ones that fill the room until they receive 408.
            drop(TcpStream::connect(endpoint.address()).unwrap());
            let slow: Vec<TcpStream> = (0..CLIENTS_MAX)
                .map(|_| {
                    let mut client = TcpStream::connect(endpoint.address()).unwrap();
                    client.write_all(b"GET /met").unwrap();
                    client
                })
                .collect();
            let mut answers = Vec::new();
            let since = Instant::now();
            while !answers.iter().any(|answer: &String| answer.starts_with("HTTP/1.1 200 ")) {
                answers.push(ask(endpoint.address(), GET));
                assert!(since.elapsed() < PATIENCE, "{answers:?}");
            }
            assert!(
                answers[0].starts_with("HTTP/1.1 503 ") || answers.len() == 1,
                "{}",
                answers[0]
            );
            let mut answer = String::new();
            (&slow[0]).read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
            // Some are still there when it ends.
            let _late: Vec<_> =
                (0..3).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
            drop(serving);
        });
    }

    #[test]
    fn an_address_that_others_reach_is_refused_unless_wanted() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9100", "[::ffff:192.0.2.1]:9100"] {
            let why = Endpoint::bind(address.parse().unwrap(), false).unwrap_err().to_string();
            assert!(why.contains("--metrics-anywhere") && why.contains("127.0.0.1:"), "{why}");
        }
        assert!(Endpoint::bind("0.0.0.0:0".parse().unwrap(), true).is_ok());
        assert!(Endpoint::bind("127.0.0.2:0".parse().unwrap(), false).is_ok());
        let taken = Endpoint::bind(loopback(), false).unwrap();
        let why = Endpoint::bind(taken.address(), false).unwrap_err().to_string();
        assert!(why.contains("free port"), "{why}");
    }
}
