//! The thread with the sockets: carries out what [`Pilot`] decides, and gives its reports to the worker.
//!
//! A node that has several addresses is tried at each in turn before its link is lost; [`Names`] finds them.

use super::map::{Address, UpstreamSettings};
use super::names::{Answered, LookUp, Names, Whereabouts, look_up};
use super::pilot::{Action, LINKS, LinkId, Pilot};
use super::{Far, Report, Request};
use laneway_core::Bell;
use laneway_resp::{ValueLimits, Values};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Nanoseconds that the thread waits at most: commands that wait are looked at then.
const WAIT_NS: i64 = 10_000_000;
/// Bytes that are read from one connection at once, and how often before others have their turn.
const READ_BYTES: usize = 64 << 10;
const READS: usize = 16;

/// The worker's end of the thread. It ends with it.
pub(crate) struct Upstream {
    requests: Option<Sender<Request>>,
    reports: Receiver<Report>,
    /// Ends the thread's wait.
    bell: Bell,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Both count the time from here.
    began: Instant,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").finish_non_exhaustive()
    }
}

impl Upstream {
    /// Starts the thread; it rings `worker` when there are reports.
    ///
    /// # Errors
    /// There is no room for a thread or a descriptor.
    pub(crate) fn start(
        settings: &UpstreamSettings,
        slot_of: fn(&[u8]) -> u16,
        worker: Bell,
    ) -> io::Result<Upstream> {
        Upstream::start_with(settings, slot_of, worker, look_up)
    }

    fn start_with(
        settings: &UpstreamSettings,
        slot_of: fn(&[u8]) -> u16,
        worker: Bell,
        look_up: LookUp,
    ) -> io::Result<Upstream> {
        let (requests, asked) = channel();
        let (to_worker, reports) = channel();
        let (bell, is_over) = (Bell::new()?, Arc::new(AtomicBool::new(false)));
        let began = Instant::now();
        let carrier = Carrier {
            pilot: Pilot::new(settings.clone(), slot_of),
            sockets: BTreeMap::new(),
            names: Names::new(look_up, bell.clone()),
            asked,
            to_worker,
            worker,
            bell: bell.clone(),
            is_over: is_over.clone(),
            began,
            buffer: vec![0; READ_BYTES],
        };
        let thread =
            std::thread::Builder::new().name("upstream".to_owned()).spawn(move || carrier.run())?;
        let (requests, thread) = (Some(requests), Some(thread));
        Ok(Upstream { requests, reports, bell, is_over, thread, began })
    }
}

impl Far for Upstream {
    fn now_us(&self) -> u64 {
        micros(self.began)
    }

    fn ask(&mut self, requests: std::vec::Drain<'_, Request>) {
        if let Some(sender) = &self.requests {
            // It takes them until the end.
            requests.for_each(|request| drop(sender.send(request)));
            self.bell.ring();
        }
    }

    fn report(&mut self) -> Option<Report> {
        self.reports.try_recv().ok()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.requests = None;
        self.is_over.store(true, Ordering::Relaxed);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed, and nothing is left to do for it.
            let _ = thread.join();
        }
    }
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

struct Socket {
    stream: TcpStream,
    is_connected: bool,
    /// Whose connection it is, and where else that may be reached.
    address: Address,
    others: VecDeque<SocketAddr>,
    /// What the kernel has not taken.
    output: Vec<u8>,
    values: Values,
    /// The bytes of the reply that is being read.
    raw: Vec<u8>,
}

struct Carrier {
    pilot: Pilot,
    sockets: BTreeMap<LinkId, Socket>,
    names: Names,
    asked: Receiver<Request>,
    to_worker: Sender<Report>,
    worker: Bell,
    bell: Bell,
    is_over: Arc<AtomicBool>,
    began: Instant,
    buffer: Vec<u8>,
}

impl Carrier {
    fn run(mut self) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.pilot.tick(micros(self.began));
            while let Ok(request) = self.asked.try_recv() {
                self.pilot.ask(request);
            }
            self.act();
            if !self.pilot.reports.is_empty() {
                // They are lost only where the worker has ended.
                let reports = self.pilot.reports.drain(..);
                reports.for_each(|report| drop(self.to_worker.send(report)));
                self.worker.ring();
            }
            let ready = self.wait();
            self.bell.answer();
            self.pilot.tick(micros(self.began));
            while let Some(answered) = self.names.answer() {
                self.connect(answered);
            }
            for (id, flags) in ready {
                self.serve(id, flags);
            }
        }
    }

    fn wait(&self) -> Vec<(LinkId, PollFlags)> {
        let ids: Vec<LinkId> = self.sockets.keys().copied().collect();
        let mut polled = vec![PollFd::new(&self.bell, PollFlags::IN)];
        polled.extend(self.sockets.values().map(|socket| {
            let wants_out = !socket.is_connected || !socket.output.is_empty();
            let out = if wants_out { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(&socket.stream, PollFlags::IN | out)
        }));
        // An interruption is an early end of the wait.
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: WAIT_NS }));
        let flags = polled[1..].iter().map(PollFd::revents);
        ids.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty()).collect()
    }

    /// Does what the pilot has decided, until it has nothing more.
    fn act(&mut self) {
        while !self.pilot.actions.is_empty() {
            for action in std::mem::take(&mut self.pilot.actions) {
                match action {
                    Action::Connect(id, address) => match self.names.ask(id, &address) {
                        Ok(Whereabouts::Later) => {}
                        Ok(Whereabouts::At(found)) => {
                            self.connect(Answered { address, links: vec![id], found: Ok(found) });
                        }
                        Err(why) => self.pilot.lost(id, why.to_string().as_bytes()),
                    },
                    Action::Send(id, bytes) => {
                        if let Some(socket) = self.sockets.get_mut(&id) {
                            socket.output.extend_from_slice(&bytes);
                        }
                    }
                    Action::Close(id) => {
                        self.names.forget(id);
                        if let Some(socket) = self.sockets.remove(&id)
                            && !socket.is_connected
                        {
                            // It did not answer in time, and another of its addresses may.
                            self.names.note_failed(&socket.address);
                        }
                    }
                }
            }
            let ids: Vec<LinkId> = self.sockets.keys().copied().collect();
            for id in ids {
                let Some(socket) = self.sockets.get_mut(&id).filter(|one| one.is_connected) else {
                    continue;
                };
                if let Err(why) = socket.write() {
                    self.lose(id, &why);
                }
            }
        }
    }

    /// Begins the connections of all links that have waited for a node's addresses.
    fn connect(&mut self, Answered { address, links, found }: Answered) {
        for id in links {
            match &found {
                Ok(found) => {
                    let in_turn = self.names.in_turn(&address, found).into();
                    let why = io::Error::other("its name has no address");
                    self.begin(id, address.clone(), in_turn, why);
                }
                Err(why) => self.pilot.lost(id, why.to_string().as_bytes()),
            }
        }
    }

    /// Begins a connection to the first of these addresses that lets one begin. Without one the link is lost, and `why`
    /// says the reason where there is no address left.
    fn begin(
        &mut self,
        id: LinkId,
        address: Address,
        mut others: VecDeque<SocketAddr>,
        mut why: io::Error,
    ) {
        while let Some(at) = others.pop_front() {
            match begin(at) {
                Ok(stream) => {
                    let (values, output, raw) = (Values::new(), Vec::new(), Vec::new());
                    let is_connected = false;
                    let socket =
                        Socket { stream, is_connected, address, others, output, values, raw };
                    self.sockets.insert(id, socket);
                    return;
                }
                Err(error) => {
                    self.names.note_failed(&address);
                    why = error;
                }
            }
        }
        self.pilot.lost(id, why.to_string().as_bytes());
    }

    fn lose(&mut self, id: LinkId, why: &io::Error) {
        self.sockets.remove(&id);
        self.pilot.lost(id, why.to_string().as_bytes());
    }

    fn serve(&mut self, id: LinkId, flags: PollFlags) {
        debug_assert!(id.1 < LINKS);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if !socket.is_connected {
            match sockopt::socket_error(socket.stream.as_fd()) {
                Ok(Ok(())) if flags.contains(PollFlags::OUT) => {
                    socket.is_connected = true;
                    // A command waits for no other.
                    let _ = socket.stream.set_nodelay(true);
                    self.pilot.connected(id);
                }
                Ok(Err(why)) | Err(why) => {
                    if let Some(Socket { address, others, .. }) = self.sockets.remove(&id) {
                        self.names.note_failed(&address);
                        self.begin(id, address, others, why.into());
                    }
                    return;
                }
                Ok(Ok(())) => return,
            }
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && let Err(why) = self.read(id)
        {
            self.lose(id, &why);
        }
        // What is to be sent goes with the next round.
        if let Some(socket) = self.sockets.get_mut(&id).filter(|one| one.is_connected)
            && let Err(why) = socket.write()
        {
            self.lose(id, &why);
        }
    }

    /// Reads what there is; the pilot may close the connection meanwhile.
    fn read(&mut self, id: LinkId) -> io::Result<()> {
        for _ in 0..READS {
            let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
            let len = match socket.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it was closed")),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (mut at, limits) = (0, ValueLimits::default());
            while at < len {
                let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
                let (taken, value) = socket
                    .values
                    .next(&self.buffer[at..len], &limits)
                    .map_err(|why| io::Error::new(ErrorKind::InvalidData, why.to_string()))?;
                socket.raw.extend_from_slice(&self.buffer[at..at + taken]);
                at += taken;
                if let Some(value) = value {
                    let raw = std::mem::take(&mut socket.raw);
                    self.pilot.received(id, value, &raw);
                    // A connection that is to be closed says nothing more.
                    if self
                        .pilot
                        .actions
                        .iter()
                        .any(|one| matches!(one, Action::Close(of) if *of == id))
                    {
                        self.sockets.remove(&id);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Socket {
    fn write(&mut self) -> io::Result<()> {
        let mut at = 0;
        while at < self.output.len() {
            match self.stream.write(&self.output[at..]) {
                Ok(len) => at += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.drain(..at);
        Ok(())
    }
}

/// Begins a connection, without waiting for it.
fn begin(at: SocketAddr) -> io::Result<TcpStream> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &at) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    /// Longer than any machine takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A node on 127.0.0.1 alone, of which only the listening socket is there.
    fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("it is a socket");
        let port = listener.local_addr().expect("it is bound").port();
        (listener, port)
    }

    fn is_connected(listener: &TcpListener, seeds: &[(&str, u16)], look_up: LookUp) -> bool {
        let address = |&(host, port): &(&str, u16)| Address { host: host.to_owned(), port };
        let settings = UpstreamSettings {
            seeds: seeds.iter().map(address).collect(),
            login: None,
            bound_us: 1_000_000,
            patience_us: 5_000_000,
        };
        let bell = Bell::new().expect("a descriptor");
        let upstream = Upstream::start_with(&settings, |_| 0, bell, look_up).expect("a thread");
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if listener.accept().is_ok() {
                drop(upstream);
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // What is in its way may hold up its end as well.
        std::mem::forget(upstream);
        false
    }

    #[test]
    fn a_node_named_localhost_is_reached_where_it_listens() {
        let (listener, port) = listener();
        assert!(is_connected(&listener, &[("localhost", port)], look_up));
    }

    #[test]
    fn each_address_of_a_name_is_tried() {
        let (listener, port) = listener();
        let look_up: LookUp = |address| {
            // The first has no listener.
            let at = |last| SocketAddr::from(([127, 0, 0, last], address.port));
            Ok(vec![at(2), at(1)])
        };
        assert!(is_connected(&listener, &[("two", port)], look_up));
    }

    #[test]
    fn a_resolver_that_hangs_holds_up_no_other_node() {
        let (listener, port) = listener();
        let look_up: LookUp = |_| {
            loop {
                std::thread::park();
            }
        };
        assert!(is_connected(&listener, &[("slow", port), ("127.0.0.1", port)], look_up));
    }
}
