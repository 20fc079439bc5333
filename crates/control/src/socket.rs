//! The socket's file, and which clients may speak there.
//!
//! ```text
//!   open ─▶ serve ─▶ clients come and go ─▶ drop: no new client, answers under way are finished, the file goes
//!                └─▶ listener ─(descriptor)─▶ a successor: adopt ─▶ serve;   here: let_go, the file stays
//! ```

use crate::answer::Answerer;
use crate::client::Client;
use crate::connect::connect;
use crate::talk::{converse, refuse};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, getsockname, sockopt};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Clients at a time; further ones are refused.
pub const CLIENTS_MAX: usize = 8;
/// A client that takes no answer for so long is left.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// After a client could not be accepted: descriptors may be short, and come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often a folder that another program has locked is asked for, and how long apart.
const LOCK_TRIES: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;

/// Why there is no socket to speak at.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the control socket {}: {why}; {hint}", path.display())]
pub struct ControlError {
    path: PathBuf,
    why: String,
    hint: &'static str,
}

/// A socket's file, which is removed with it.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: another file of the same name is not ours to remove.
    identity: (u64, u64),
    serving: Option<Serving>,
    /// Another process serves it, still or from now on: its file is not ours to remove.
    is_let_go: bool,
}

impl ControlSocket {
    /// Opens the socket at `path`; clients wait until it is served.
    ///
    /// # Errors
    /// What is in the way there, and what to try.
    pub fn open(path: &Path) -> Result<ControlSocket, ControlError> {
        let cannot = |why: &dyn Display, hint| ControlError::new(path, why, hint);
        let os =
            |error: io::Error| cannot(&error, "choose a path in a folder that you may write to");
        // Two programs that find the same leftover must not replace each other's: one at a time.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or_else(|| Path::new("."))).map_err(os)?;
        lock(&folder).map_err(|why| {
            cannot(
                &why,
                "choose a path in a folder that only you may open, or end that program (lslocks)",
            )
        })?;
        let listener = match bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_room(path).map_err(|why| cannot(&why, "choose another path"))?;
                bind(path)
            }
            bound => bound,
        };
        ControlSocket::of(listener.map_err(os)?, path).map_err(os)
    }

    /// Takes over the socket that the app at the far end of `client` listens on: by the descriptor that
    /// [`listener`](Self::listener) gave there. Until it is served here it is that app's, and so is the file.
    ///
    /// # Errors
    /// It is no socket that listens, or another than the one where the client was accepted.
    pub fn adopt(client: &Client, listener: OwnedFd) -> Result<ControlSocket, ControlError> {
        let path = client.path();
        let hint = "take the descriptor that the process at this path handed over";
        let cannot = |why: &dyn Display| ControlError::new(path, why, hint);
        if !sockopt::socket_acceptconn(&listener).unwrap_or(false) {
            return Err(cannot(&"the descriptor is no socket that listens"));
        }
        // The kernel's own name of each: that of this path here may be another, by a link or another folder.
        let bound = getsockname(&listener).map_err(|error| cannot(&error))?;
        if client.accepted_at().map_err(|error| cannot(&error))? != Some(bound) {
            return Err(cannot(&"the descriptor is a socket of another path"));
        }
        // The file itself, not a link to it, is what goes with the run.
        let file = fs::canonicalize(path);
        let socket = file.and_then(|file| ControlSocket::of(UnixListener::from(listener), &file));
        let mut socket = socket.map_err(|error| cannot(&error))?;
        socket.is_let_go = true;
        Ok(socket)
    }

    fn of(listener: UnixListener, path: &Path) -> io::Result<ControlSocket> {
        // Of two processes that listen on it while one hands it over, one is first to accept.
        listener.set_nonblocking(true)?;
        let file = fs::symlink_metadata(path)?;
        let identity = (file.dev(), file.ino());
        let path = path.to_owned();
        Ok(ControlSocket { listener, path, identity, serving: None, is_let_go: false })
    }

    /// Serves clients from now on, on threads of their own, until the socket is dropped. A former server
    /// accepts no new client.
    ///
    /// # Errors
    /// There is no thread or no descriptor left for it.
    pub fn serve(&mut self, answerer: Arc<dyn Answerer>) -> Result<(), ControlError> {
        let cannot =
            |error: io::Error| ControlError::new(&self.path, &error, "raise `ulimit -n` and `-u`");
        let listener = self.listener.try_clone().map_err(cannot)?;
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        let clients = Arc::new(Clients::default());
        let admitted = Arc::clone(&clients);
        let accept = move || accept(&listener, &theirs, &admitted, &answerer);
        thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(cannot)?;
        self.serving = Some(Serving { _hangs_up: ours, clients });
        self.is_let_go = false;
        Ok(())
    }

    /// The listening socket, for a successor to [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// There is no descriptor left for it.
    pub fn listener(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// A successor serves clients: answers under way are finished, and the file stays.
    pub fn let_go(mut self) {
        self.is_let_go = true;
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).map(|file| (file.dev(), file.ino()));
        if !self.is_let_go && there.is_ok_and(|there| there == self.identity) {
            // A program that made it unremovable meanwhile has to remove it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl ControlError {
    fn new(path: &Path, why: &dyn Display, hint: &'static str) -> ControlError {
        ControlError { path: path.to_owned(), why: why.to_string(), hint }
    }
}

/// A listening socket whose file is the owner's alone from its first moment on: the file takes the mode
/// that the socket has when it is bound.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let socket = File::from(socket);
    socket.set_permissions(Permissions::from_mode(0o600))?;
    let socket = OwnedFd::from(socket);
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket without a listener.
fn make_room(path: &Path) -> Result<(), String> {
    let file = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !file.file_type().is_socket() {
        return Err("a file that is no socket is there".to_owned());
    }
    match connect(path, None) {
        Ok(_) => Err("another program is listening there".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err("a program is listening there that answers no client".to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("a socket is there that cannot be asked: {error}")),
    }
}

/// Locks a folder: only while a socket's file is made there, so one that stays locked is another program's doing.
fn lock(folder: &File) -> Result<(), String> {
    for _ in 0..LOCK_TRIES {
        match folder.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error.to_string()),
        }
    }
    Err("another program keeps its folder locked".to_owned())
}

/// Ends with it: the thread that accepts, and every conversation behind its present answer.
#[derive(Debug)]
struct Serving {
    /// The far end of what the accepting thread looks at.
    _hangs_up: UnixStream,
    clients: Arc<Clients>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        clients.is_over = true;

        for client in clients.here.values() {
            // One that has left needs no telling.
            let _ = client.shutdown(Shutdown::Read);
        }
    }
}

/// The clients being served.
#[derive(Debug, Default)]
struct Clients(Mutex<Here>);

#[derive(Debug, Default)]
struct Here {
    here: BTreeMap<u64, Arc<UnixStream>>,
    next: u64,
    is_over: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Here> {
        // Nothing between its changes panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Strikes a client off when its conversation ends, however it ends.
struct Seat {
    clients: Arc<Clients>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.lock().here.remove(&self.number);
    }
}

/// Accepts clients until the far end of `hangs_up` is gone.
fn accept(
    listener: &UnixListener,
    hangs_up: &UnixStream,
    clients: &Arc<Clients>,
    answerer: &Arc<dyn Answerer>,
) {
    loop {
        let mut polled =
            [PollFd::new(listener, PollFlags::IN), PollFd::new(hangs_up, PollFlags::IN)];
        if poll(&mut polled, None).is_err() {
            continue; // interrupted
        }
        if !polled[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((client, _)) => admit(client, clients, answerer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

fn admit(client: UnixStream, clients: &Arc<Clients>, answerer: &Arc<dyn Answerer>) {
    if client.set_write_timeout(Some(WRITE_WAIT)).is_err() {
        return;
    }
    // A refused client may be gone already.
    if let Err(stranger) = is_known(&client) {
        let _ = refuse(&client, &format!("{stranger}; be the user of this process, or root"));
        return;
    }
    let client = Arc::new(client);
    let mut here = clients.lock();
    if here.is_over {
        return;
    }
    if here.here.len() >= CLIENTS_MAX {
        drop(here);
        let _ = refuse(&client, &format!("{CLIENTS_MAX} clients are the most; try again later"));
        return;
    }
    let number = here.next;
    here.next += 1;
    here.here.insert(number, Arc::clone(&client));
    drop(here);
    let seat = Seat { clients: Arc::clone(clients), number };
    let answerer = Arc::clone(answerer);
    let talk = move || {
        let _seat = seat;
        // A client that is gone needs no answer.
        let _ = converse(&client, &*answerer);
    };
    // Without a thread the connection closes, which the client sees.
    let _ = thread::Builder::new().name("control-client".to_owned()).spawn(talk);
}

/// Whether the client is the user of this process, or root; which other user, if not.
fn is_known(client: &UnixStream) -> Result<(), String> {
    let known = |uid: rustix::process::Uid| uid.is_root() || uid == geteuid();
    match sockopt::socket_peercred(client) {
        Ok(peer) if known(peer.uid) => Ok(()),
        Ok(peer) => Err(format!("user {} may not speak here", peer.uid.as_raw())),
        Err(error) => Err(format!("it is not known who speaks: {error}")),
    }
}

#[cfg(test)]
mod tests;
