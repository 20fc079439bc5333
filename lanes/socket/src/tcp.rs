//! The stream lane: TCP listeners and connections of one worker, by edge-triggered epoll.
//!
//! A turn: take what epoll tells, accept, write what was left over from earlier turns, tell the app of
//! room, new bytes and finished peers, end its turn, write its replies by one call per connection.
//!
//! Assumes one thread and the network namespace of the thread that opens it. What must always hold: an
//! edge that was reported is remembered until a read or write finds nothing more; a connection is on each
//! list at most once; nothing an app queues in a turn leaves before its turn has ended. Bytes are read
//! into one buffer of the lane and copied only when the app leaves some.

use crate::{
    config::{CONNS_DEFAULT, NAME, StreamConfig},
    conn::{Conn, Left, Read, Room, Stage},
    options::{self, Kind},
    sys,
};
use laneway_core::{
    Bell, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, DropReason, Lane, LaneError,
    Opened, PortId, StreamApp, StreamLane, StreamOut, Turn, Wake,
};
use laneway_linux::{Reserve, connections_max};
use laneway_spec::LaneSpec;
use std::{
    collections::VecDeque,
    ffi::c_int,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// Events that epoll reports at a time; more are reported the next time.
const EVENTS_MAX: usize = 256;
/// Connections that one listener accepts in a turn.
const ACCEPTS_MAX: usize = 128;
/// Low bits of a connection's id: its place in the table.
const SLOT_BITS: u32 = 20;
/// The token of the bell: no connection has such an id.
const BELL: u64 = LISTENERS_FROM - 1;
/// Tokens from here up are listeners.
const LISTENERS_FROM: u64 = u64::MAX - 63;
/// How long a closed connection waits for its peer to finish too.
const LINGER_NS: u64 = 2_000_000_000;
/// Questions to an idle peer that may go unanswered.
const KEEPALIVES: c_int = 4;
/// What a closed connection may still send before it is cut off.
const LINGER_READS_MAX: usize = 64;
/// Memory kept for bytes that apps leave.
const SPARE_BYTES_MAX: usize = 64 << 20;

/// TCP sockets as a stream lane. See the crate's documentation.
pub struct TcpLane {
    config: StreamConfig,
    conns_max: usize,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    table: Table,
    events: Vec<sys::Event>,
    /// Events that a wait returned and no turn has seen.
    events_pending: usize,
    serving: Vec<usize>,
    flushing: Vec<usize>,
    /// Closed connections whose peers have not finished, by when they are cut off.
    lingering: VecDeque<(u64, ConnId)>,
    /// Closed connections with bytes queued, by when their peers must have taken some.
    closing: VecDeque<(u64, ConnId)>,
    /// The app was called, and its turn has not ended since.
    called: bool,
    /// Where bytes are received.
    scratch: Box<[u8]>,
    /// Buffers for bytes that apps leave.
    spares: Vec<Box<[u8]>>,
    /// For a connection that is refused when there is no other descriptor.
    reserve: Reserve,
    /// Kept open for epoll.
    bell: Option<Bell>,
}

/// One listening socket.
struct Listener {
    /// Absent after [`StreamLane::finish`].
    socket: Option<OwnedFd>,
    local: SocketAddr,
    /// More may be waiting to be accepted.
    pending: bool,
    /// The kernel can accept nothing now: it is asked again on the next tick.
    rests: bool,
    caps: CapsReport,
    counters: Counters,
}

/// The connections, by place.
struct Table {
    slots: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Of the next connection; never used twice.
    serial: u64,
    queue_bytes: usize,
    /// Connections to be served in the next turn.
    ready: Vec<usize>,
    /// Connections with replies of this turn, or ended by the app.
    dirty: Vec<usize>,
}

impl Table {
    /// The place that a name says.
    fn slot(id: ConnId) -> usize {
        (id.0 & ((1 << SLOT_BITS) - 1)) as usize
    }

    fn get(&mut self, id: ConnId) -> Option<(usize, &mut Conn)> {
        let slot = Table::slot(id);
        let conn = self.slots.get_mut(slot)?.as_mut()?;
        (conn.id == id).then_some((slot, conn))
    }

    /// A connection that takes bytes.
    fn live(&mut self, id: ConnId) -> Option<(usize, &mut Conn)> {
        self.get(id).filter(|(_, conn)| conn.stage == Stage::Open && !conn.broken)
    }

    /// Puts a connection on the list of those to be served.
    fn list(&mut self, slot: usize) {
        if !mem::replace(&mut self.at(slot).listed, true) {
            self.ready.push(slot);
        }
    }

    /// Puts a connection on the list of those to be flushed at the end of the turn.
    fn mark_dirty(&mut self, slot: usize) {
        if !mem::replace(&mut self.at(slot).dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// The connection at a place that is known to have one.
    fn at(&mut self, slot: usize) -> &mut Conn {
        self.slots[slot].as_mut().expect("a listed connection is removed from its lists first")
    }

    fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn insert(&mut self, socket: OwnedFd, port: usize) -> (usize, ConnId) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let id = ConnId(self.serial << SLOT_BITS | slot as u64);
        self.serial += 1;
        self.slots[slot] = Some(Conn::new(id, socket, port));
        (slot, id)
    }

    fn remove(&mut self, slot: usize) -> Option<Conn> {
        let removed = self.slots[slot].take();
        if removed.is_some() {
            self.free.push(slot);
        }
        removed
    }
}

/// Where an app puts what it sends.
struct Out<'a> {
    table: &'a mut Table,
}

impl StreamOut for Out<'_> {
    fn send(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let queue_bytes = self.table.queue_bytes;
        let Some((slot, conn)) = self.table.live(id) else { return 0 };
        let taken = conn.queue(bytes, queue_bytes);
        // One that took nothing is looked at as well: it may have room before anything else happens.
        self.table.mark_dirty(slot);
        taken
    }

    fn queued(&self, id: ConnId) -> usize {
        let slot = self.table.slots.get(Table::slot(id)).and_then(Option::as_ref);
        slot.filter(|conn| conn.id == id).map_or(0, Conn::queued_bytes)
    }

    fn close(&mut self, id: ConnId) {
        if let Some((slot, conn)) = self.table.live(id) {
            conn.stage = Stage::Closing;
            self.table.mark_dirty(slot);
        }
    }

    fn abort(&mut self, id: ConnId) {
        let Some((slot, conn)) = self.table.get(id) else { return };
        if matches!(conn.stage, Stage::Open | Stage::Closing) {
            conn.abort(Close::App);
            self.table.mark_dirty(slot);
        }
    }

    fn pause(&mut self, id: ConnId) {
        if let Some((slot, conn)) = self.table.live(id) {
            conn.paused = true;
            if conn.finish_is_due() {
                self.table.list(slot);
            }
        }
    }

    fn resume(&mut self, id: ConnId) {
        if let Some((slot, conn)) = self.table.live(id)
            && mem::replace(&mut conn.paused, false)
        {
            conn.show_again = true;
            self.table.list(slot);
        }
    }
}

impl TcpLane {
    /// Listens at every address; port `i` is `listen[i]`, in the network namespace of this thread.
    ///
    /// # Errors
    /// A wrong spec; an address that is taken, foreign, or not permitted; something asked for that
    /// was not granted.
    pub fn open(spec: &LaneSpec, listen: &[SocketAddr]) -> Result<TcpLane, LaneError> {
        let config = StreamConfig::read(spec, listen)?;
        let wanted = (config.conns, CONNS_DEFAULT);
        let (conns_max, fewer) = connections_max(NAME, wanted, listen.len())?;
        let os = |doing: &str| {
            let doing = doing.to_owned();
            move |e| LaneError::os(NAME, doing, e, "raise the limit of open files (`ulimit -n`)")
        };
        let epoll = sys::epoll().map_err(os("create an epoll instance"))?;
        let mut listeners = Vec::new();
        for (i, address) in listen.iter().enumerate() {
            let mut listener = Listener::open(&config, *address)?;
            listener.caps.fact("connections_max", conns_max);
            listener.caps.notes.extend(fewer.clone());
            let token = LISTENERS_FROM + i as u64;
            let socket = listener.socket.as_ref().expect("just opened");
            sys::epoll_add(epoll.as_fd(), socket.as_fd(), libc::EPOLLIN | libc::EPOLLET, token)
                .map_err(os("watch a listening socket"))?;
            listeners.push(listener);
        }
        let reserve = Reserve::open().map_err(os("open a spare descriptor"))?;
        Ok(TcpLane {
            epoll,
            listeners,
            table: Table {
                slots: Vec::new(),
                free: Vec::new(),
                serial: 0,
                queue_bytes: config.queue_bytes,
                ready: Vec::new(),
                dirty: Vec::new(),
            },
            events: vec![sys::NO_EVENT; EVENTS_MAX],
            events_pending: 0,
            serving: Vec::new(),
            flushing: Vec::new(),
            lingering: VecDeque::new(),
            closing: VecDeque::new(),
            called: false,
            scratch: vec![0; config.buffer_bytes].into(),
            spares: Vec::new(),
            reserve,
            bell: None,
            conns_max,
            config,
        })
    }

    /// The address that `port` listens at, with the TCP port that the kernel chose if it was to.
    pub fn local_address(&self, port: PortId) -> SocketAddr {
        self.listeners[port.index()].local
    }

    /// Connections at the moment, those included that only wait for their peer to finish.
    pub fn connections(&self) -> usize {
        self.table.open()
    }

    /// Remembers what epoll tells.
    fn look(&mut self) -> Result<(), LaneError> {
        if self.events_pending == 0 {
            self.events_pending =
                sys::epoll_wait(self.epoll.as_fd(), &mut self.events, Duration::ZERO)
                    .map_err(|e| LaneError::os(NAME, "ask for events", e, "see `dmesg`"))?;
        }
        for i in 0..mem::take(&mut self.events_pending) {
            let sys::Event { flags, data } = self.events[i];
            let (events, token) = (flags.bits(), data.u64());
            if token >= LISTENERS_FROM {
                self.listeners[(token - LISTENERS_FROM) as usize].pending = true;
                continue;
            }
            let Some((slot, conn)) = self.table.get(ConnId(token)) else { continue };
            let has = |bits: i32| events & bits as u32 != 0;
            conn.readable |= has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP);
            conn.end_is_near |= has(libc::EPOLLRDHUP | libc::EPOLLHUP);
            conn.is_urgent |= has(libc::EPOLLPRI);
            conn.writable |= has(libc::EPOLLOUT);
            conn.broken |= has(libc::EPOLLERR);
            self.table.list(slot);
        }
        Ok(())
    }

    /// Accepts the clients that have arrived; returns how many.
    fn accept<A: StreamApp>(&mut self, app: &mut A) -> usize {
        let mut accepted = 0;
        for port in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_MAX {
                let listener = &mut self.listeners[port];
                let may_accept = listener.pending && !listener.rests;
                let Some(socket) = listener.socket.as_ref().filter(|_| may_accept) else {
                    break;
                };
                let outcome = match sys::accept(socket.as_fd()).map(Some) {
                    Err(e) if lacks_descriptors(&e) => self.refuse_one(port).map(|()| None),
                    outcome => outcome,
                };
                let listener = &mut self.listeners[port];
                match outcome {
                    Ok(None) => {}
                    Ok(Some((stream, peer))) => {
                        if self.table.open() >= self.conns_max
                            || !self.admit(port, stream, peer, app)
                        {
                            let counters = &mut self.listeners[port].counters;
                            counters.drop_one(DropReason::ConnTableFull);
                        } else {
                            accepted += 1;
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => listener.pending = false,
                    // Nothing can be done now: the kernel's queue holds them.
                    Err(e) if lacks_descriptors(&e) || lacks_memory(&e) => listener.rests = true,
                    // The connection ended while it waited, or a signal arrived.
                    Err(_) => {}
                }
            }
        }
        accepted
    }

    /// Registers a connection and tells the app. False when the kernel has no room to watch it.
    fn admit<A: StreamApp>(
        &mut self,
        port: usize,
        stream: OwnedFd,
        peer: SocketAddr,
        app: &mut A,
    ) -> bool {
        let (slot, id) = self.table.insert(stream, port);
        let reads = libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP;
        let events = reads | libc::EPOLLOUT | libc::EPOLLET;
        let conn = self.table.at(slot);
        let watched = sys::epoll_add(self.epoll.as_fd(), conn.socket().as_fd(), events, id.0);
        if watched.is_err() {
            self.table.remove(slot);
            return false;
        }
        let local = self.listeners[port].local;
        let opened = Opened { conn: id, peer, local, port: PortId(port as u32) };
        self.called = true;
        app.on_open(opened, &mut Out { table: &mut self.table });
        true
    }

    /// Refuses a connection by the descriptor in reserve, if one waits and that helps.
    fn refuse_one(&mut self, port: usize) -> io::Result<()> {
        let Listener { socket: Some(socket), counters, .. } = &mut self.listeners[port] else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        self.reserve.refuse(|| sys::accept(socket.as_fd()))?;
        counters.drop_one(DropReason::ConnTableFull);
        Ok(())
    }

    /// Reports to the app what is new of an open connection. True when the app was called.
    fn look_at<A: StreamApp>(&mut self, slot: usize, app: &mut A) -> bool {
        let mut called = false;
        let queue_bytes = self.table.queue_bytes;
        let conn = self.table.at(slot);
        let id = conn.id;
        if conn.stage == Stage::Open && !conn.broken && conn.has_room_again(queue_bytes) {
            conn.wants_room = false;
            conn.show_again = true;
            called = true;
            app.on_room(id, &mut Out { table: &mut self.table });
        }
        if self.table.at(slot).may_show() {
            called |= self.show(slot, app);
        }
        let conn = self.table.at(slot);
        if conn.readable && conn.may_show() {
            self.table.list(slot);
        } else if conn.finish_is_due() {
            conn.finish_reported = true;
            called = true;
            app.on_finish(id, &mut Out { table: &mut self.table });
        }
        self.called |= called;
        called
    }

    /// Reads one connection and shows the app what it has not consumed. True when it was shown some.
    fn show<A: StreamApp>(&mut self, slot: usize, app: &mut A) -> bool {
        let conn = self.table.at(slot);
        let (id, port) = (conn.id, conn.port);
        let mut new_bytes = 0;
        if conn.readable && !conn.left.as_ref().is_some_and(Left::is_full) {
            let room = match conn.left {
                Some(_) => Room::Own,
                None => Room::Foreign(&mut self.scratch),
            };
            if let Read::Bytes(bytes) = conn.read(room) {
                new_bytes = bytes;
                let counters = &mut self.listeners[port].counters;
                counters.rx_frames += 1;
                counters.rx_bytes += bytes as u64;
            }
        }
        if let Some(left) = &mut conn.left {
            left.received(new_bytes);
        }
        let again = mem::take(&mut conn.show_again) && conn.left.is_some();
        if new_bytes == 0 && !again {
            return false;
        }
        // Apart from the table, which the app reaches through its way out.
        let left = conn.left.take();
        let bytes = left.as_ref().map_or(&self.scratch[..new_bytes], Left::bytes);
        let shown_bytes = bytes.len();
        let mut out = Out { table: &mut self.table };
        let consumed = app.on_bytes(id, bytes, &mut out);
        assert!(consumed <= shown_bytes, "the app consumed {consumed} of {shown_bytes} bytes");
        let rest = match left {
            Some(left) if consumed == shown_bytes => {
                self.spare(left.into_buffer());
                None
            }
            Some(mut left) => {
                left.consume(consumed);
                Some(left)
            }
            None if consumed == shown_bytes => None,
            None => {
                let buffer = self.spares.pop();
                let buffer =
                    buffer.unwrap_or_else(|| vec![0; self.config.buffer_bytes].into_boxed_slice());
                Some(Left::new(buffer, &self.scratch[consumed..shown_bytes]))
            }
        };
        let conn = self.table.at(slot);
        if rest.as_ref().is_some_and(Left::is_full) && consumed == 0 && conn.may_show() {
            // What the app waits for is longer than the buffer: it will never see it whole.
            self.listeners[port].counters.drop_one(DropReason::RxTooLong);
            conn.broken = true;
        }
        conn.left = rest;
        true
    }

    fn spare(&mut self, buffer: Box<[u8]>) {
        if self.spares.len() < SPARE_BYTES_MAX / self.config.buffer_bytes {
            self.spares.push(buffer);
        }
    }

    /// Writes what is queued on one connection, and sees what that makes possible.
    fn flush(&mut self, slot: usize) {
        let queue_bytes = self.table.queue_bytes;
        let conn = self.table.at(slot);
        conn.write(&mut self.listeners[conn.port].counters);
        if conn.has_room_again(queue_bytes) {
            self.table.list(slot);
        }
    }

    /// Writes the replies of the turn that has ended, then ends connections that are done.
    fn flush_dirty<A: StreamApp>(&mut self, app: &mut A, turn: Turn) {
        mem::swap(&mut self.table.dirty, &mut self.flushing);
        for i in 0..self.flushing.len() {
            let slot = self.flushing[i];
            if let Some(conn) = &mut self.table.slots[slot] {
                conn.dirty = false;
                if matches!(conn.stage, Stage::Open | Stage::Closing) {
                    self.flush(slot);
                }
                self.settle(slot, app, turn);
            }
        }
        self.flushing.clear();
    }

    /// Ends a connection that is done: aborted, broken, or closed by the app with nothing queued.
    fn settle<A: StreamApp>(&mut self, slot: usize, app: &mut A, turn: Turn) {
        let conn = self.table.at(slot);
        let id = conn.id;
        let why = match conn.stage {
            Stage::Lingering => {
                if conn.broken || conn.ended {
                    self.remove(slot);
                }
                return;
            }
            Stage::Aborted(why) => {
                // A socket that is closed in order all the same is closed, at least.
                let _ = sys::reset_on_close(conn.socket().as_fd());
                self.remove(slot);
                why
            }
            _ if conn.broken => {
                self.remove(slot);
                Close::Error
            }
            Stage::Open => return,
            Stage::Closing if conn.queued_bytes() > 0 => {
                if !mem::replace(&mut conn.timed, true) {
                    conn.acked_bytes = sys::acked_bytes(conn.socket().as_fd());
                    self.closing.push_back((turn.now_ns.saturating_add(self.config.close_ns), id));
                }
                return;
            }
            Stage::Closing => {
                let why = if conn.finish_reported { Close::Peer } else { Close::App };
                if conn.ended || sys::finish_sending(conn.socket().as_fd()).is_err() {
                    self.remove(slot);
                } else {
                    conn.stage = Stage::Lingering;
                    conn.readable = true;
                    self.lingering.push_back((turn.now_ns.saturating_add(LINGER_NS), id));
                    self.table.list(slot);
                }
                why
            }
        };
        self.called = true;
        app.on_close(id, why);
    }

    /// Cuts off closed connections whose peers neither take what is queued nor finish.
    fn expire<A: StreamApp>(&mut self, app: &mut A, turn: Turn) {
        while let Some((until_ns, id)) = self.lingering.front().copied()
            && turn.now_ns >= until_ns
        {
            self.lingering.pop_front();
            if let Some((slot, _)) = self.table.get(id) {
                self.remove(slot);
            }
        }
        while let Some((until_ns, id)) = self.closing.front().copied()
            && turn.now_ns >= until_ns
        {
            self.closing.pop_front();
            let Some((slot, conn)) = self.table.get(id) else { continue };
            if conn.stage != Stage::Closing {
                continue;
            }
            let acked_bytes = sys::acked_bytes(conn.socket().as_fd());
            if acked_bytes > conn.acked_bytes {
                conn.acked_bytes = acked_bytes;
                self.closing.push_back((turn.now_ns.saturating_add(self.config.close_ns), id));
            } else {
                conn.abort(Close::Error);
                self.settle(slot, app, turn);
            }
        }
    }

    /// Forgets a connection and closes its socket. Its place may still be on the lists, which skip it.
    fn remove(&mut self, slot: usize) {
        if let Some(mut conn) = self.table.remove(slot)
            && let Some(left) = conn.left.take()
        {
            self.spare(left.into_buffer());
        }
    }

    /// Reads and forgets what the peer of a closed connection still sends.
    fn linger(&mut self, slot: usize) {
        let conn = self.table.at(slot);
        let mut reads = 0;
        while conn.readable && reads < LINGER_READS_MAX {
            conn.read(Room::Foreign(&mut self.scratch));
            reads += 1;
        }
        if reads == LINGER_READS_MAX {
            conn.broken = true; // it has not understood, and would go on for ever
        }
    }
}

impl Listener {
    fn open(config: &StreamConfig, address: SocketAddr) -> Result<Listener, LaneError> {
        let kind =
            Kind { kind: libc::SOCK_STREAM, protocol: libc::IPPROTO_TCP, listed_by: "ss -tlpn" };
        let mut caps = CapsReport {
            requested: config.requested(),
            allowed_missing: config.shared.allowed_missing,
            ..CapsReport::default()
        };
        let socket = options::create(kind, address)?;
        let fd = socket.as_fd();
        // Accepted connections inherit all of this.
        options::apply(fd, &config.shared, &mut caps);
        // Connections of a lane that was closed a moment ago must not keep its address.
        options::set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, address, "SO_REUSEADDR")?;
        let tcp = libc::IPPROTO_TCP;
        options::set(fd, tcp, libc::TCP_NODELAY, 1, address, "TCP_NODELAY")?;
        options::set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, address, "SO_KEEPALIVE")?;
        let seconds = config.keepalive_s as c_int;
        options::set(fd, tcp, libc::TCP_KEEPIDLE, seconds, address, "TCP_KEEPIDLE")?;
        options::set(fd, tcp, libc::TCP_KEEPINTVL, seconds, address, "TCP_KEEPINTVL")?;
        options::set(fd, tcp, libc::TCP_KEEPCNT, KEEPALIVES, address, "TCP_KEEPCNT")?;
        caps.admit(NAME, |_| None)?;
        options::bind(fd, kind, address)?;
        sys::listen(fd, config.backlog).map_err(|e| {
            if e.raw_os_error() == Some(libc::EADDRINUSE) {
                return LaneError::Busy {
                    lane: NAME.to_owned(),
                    name: address.to_string(),
                    why: "another socket listens here".to_owned(),
                    hint: "`ss -tlpn` names its owner; stop it, or give all of them reuseport"
                        .to_owned(),
                };
            }
            LaneError::os(NAME, format!("listen at {address}"), e, "see `dmesg`")
        })?;
        let local = sys::local_address(fd).map_err(|e| {
            LaneError::os(NAME, format!("ask for the address of {address}"), e, "see `dmesg`")
        })?;
        caps.fact("local_address", local);
        caps.fact("backlog_asked", config.backlog);
        caps.fact("backlog", config.backlog.min(somaxconn()));
        caps.fact("buffer_bytes", config.buffer_bytes);
        caps.fact("queue_bytes", config.queue_bytes);
        caps.fact("close_ms", config.close_ns / 1_000_000);
        caps.fact("keepalive_s", config.keepalive_s);
        Ok(Listener {
            socket: Some(socket),
            local,
            pending: false,
            rests: false,
            caps,
            counters: Counters::default(),
        })
    }
}

fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn lacks_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

/// The kernel's bound of every backlog; none where it cannot be read.
fn somaxconn() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX)
}

impl Lane for TcpLane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.listeners.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        // The kernel refuses for want of memory only; then a wait ends when its time is up.
        let _ = sys::epoll_add(self.epoll.as_fd(), bell.as_fd(), libc::EPOLLIN, BELL);
        self.bell = Some(bell.clone());
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        let pending = self.listeners.iter().any(|listener| listener.pending && !listener.rests);
        if self.events_pending > 0 || pending || self.called || !self.table.ready.is_empty() {
            return Ok(Wake::Ready);
        }
        self.listeners[0].counters.waits += 1;
        self.events_pending = sys::epoll_wait(self.epoll.as_fd(), &mut self.events, timeout)
            .map_err(|e| LaneError::os(NAME, "wait for connections", e, "see `dmesg`"))?;
        Ok(if self.events_pending > 0 { Wake::Ready } else { Wake::Timeout })
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.listeners[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        self.listeners[port.index()].counters.clone()
    }
}

impl StreamLane for TcpLane {
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError> {
        self.look()?;
        let mut served = self.accept(app);
        if self.table.ready.is_empty() && !self.called {
            self.listeners[0].counters.polls_empty += 1;
            return Ok(0);
        }
        mem::swap(&mut self.table.ready, &mut self.serving);
        // First what was queued in earlier turns: replies of this one must not leave with it. What was
        // queued for a connection that has just opened is of this one.
        for i in 0..self.serving.len() {
            let slot = self.serving[i];
            if let Some(conn) = &mut self.table.slots[slot] {
                conn.listed = false;
                if matches!(conn.stage, Stage::Open | Stage::Closing) && !conn.dirty {
                    self.flush(slot);
                }
            }
        }
        for i in 0..self.serving.len() {
            let slot = self.serving[i];
            let Some(conn) = &self.table.slots[slot] else { continue };
            match conn.stage {
                Stage::Open if !conn.broken => served += usize::from(self.look_at(slot, app)),
                Stage::Lingering => self.linger(slot),
                Stage::Open | Stage::Closing | Stage::Aborted(_) => {}
            }
        }
        // One reading per turn, when its bytes have been shown: no earlier than they arrived.
        let turn = Turn { now_ns: clock.now_ns() };
        if mem::take(&mut self.called) {
            app.on_turn_end(turn, &mut Out { table: &mut self.table });
        }
        self.flush_dirty(app, turn);
        for i in 0..self.serving.len() {
            let slot = self.serving[i];
            if self.table.slots[slot].is_some() {
                self.settle(slot, app, turn);
            }
        }
        self.serving.clear();
        Ok(served)
    }

    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        self.listeners.iter_mut().for_each(|listener| listener.rests = false);
        self.reserve.renew();
        let mut out = Out { table: &mut self.table };
        app.on_tick(turn, &mut out);
        app.on_turn_end(turn, &mut out);
        self.called = false;
        self.flush_dirty(app, turn);
        self.expire(app, turn);
        Ok(())
    }

    fn finish<A: StreamApp>(&mut self, app: &mut A, _turn: Turn) {
        for listener in &mut self.listeners {
            listener.socket = None;
            listener.pending = false;
        }
        for slot in 0..self.table.slots.len() {
            let Some(conn) = &mut self.table.slots[slot] else { continue };
            let (id, stage) = (conn.id, conn.stage);
            // What the kernel takes at once still leaves, and what arrived is taken from it, so that
            // closing does not reset what is on its way.
            conn.write(&mut self.listeners[conn.port].counters);
            let _ = sys::finish_sending(conn.socket().as_fd());
            conn.readable = true;
            self.linger(slot);
            self.remove(slot);
            if stage != Stage::Lingering {
                app.on_close(id, Close::Stop);
            }
        }
        self.table.ready.clear();
        self.table.dirty.clear();
        self.called = false;
    }
}
