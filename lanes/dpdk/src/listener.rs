//! The listening sockets that net_memif leaves behind.
//!
//! With DPDK 22.11.11 a server's socket still listens after its last port is removed (seen), so that an
//! abstract name would stay taken. In an older source the driver also frees what DPDK's interrupt
//! thread is given when a client connects. So the lane counts the ports per socket and, after the last
//! one, puts a counter that is never raised in the descriptor's place: the socket is closed, and
//! what DPDK may still poll exists.
//!
//! Assumes that ports come and go under the EAL's lock. What it does not do: it never touches a
//! socket that does not listen on the name given.

use crate::wake;
use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{Mutex, PoisonError},
};

/// Ports per socket.
static USERS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// One server port's use of a socket; the last to go closes it.
pub(crate) struct Listener {
    /// A path, or an abstract name after `@`.
    socket: String,
}

impl Listener {
    /// When the port was added, so that the driver is known to listen.
    pub(crate) fn new(socket: &str) -> Listener {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        *users.entry(socket.to_owned()).or_default() += 1;
        Listener { socket: socket.to_owned() }
    }
}

/// After the port is removed.
impl Drop for Listener {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let left = users.get_mut(&self.socket).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            users.remove(&self.socket);
            let ours =
                wake::open_sockets().into_iter().filter(|&(fd, _)| listens(fd, &self.socket));
            ours.for_each(|(fd, _)| silence(fd));
        }
    }
}

/// True for a Unix socket that listens on this name.
fn listens(fd: RawFd, socket: &str) -> bool {
    let option = |name| wake::option(fd, libc::SOL_SOCKET, name);
    if option(libc::SO_DOMAIN) != Some(libc::AF_UNIX) || option(libc::SO_ACCEPTCONN) != Some(1) {
        return false;
    }
    // SAFETY: made of integers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: room for an address of that many bytes.
    if unsafe { libc::getsockname(fd, (&raw mut address).cast(), &mut bytes) } != 0 {
        return false;
    }
    let mut name: Vec<u8> = address.sun_path.iter().map(|&c| c as u8).collect();
    if socket.starts_with('@') {
        name[0] = b'@';
    }
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name[..end] == *socket.as_bytes()
}

/// Closes what `fd` is and makes it a counter that stays at zero.
fn silence(fd: RawFd) {
    // SAFETY: plain integers.
    let counter = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if counter < 0 {
        return; // The socket stays as the driver left it.
    }
    // SAFETY: just made, nothing else has it.
    let counter = unsafe { OwnedFd::from_raw_fd(counter) };
    // SAFETY: plain integers; `fd` is the driver's, which freed what knew of it.
    unsafe { libc::dup3(counter.as_raw_fd(), fd, libc::O_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    };

    #[test]
    fn the_last_user_of_a_name_closes_its_socket_and_no_other() {
        let name = |which| format!("laneway-listener-{which}-{}", std::process::id());
        let address = |which| SocketAddr::from_abstract_name(name(which)).expect("short");
        let left = UnixListener::bind_addr(&address("left")).expect("no socket has the name");
        let _other = UnixListener::bind_addr(&address("other")).expect("no socket has the name");
        let users = [0; 2].map(|_| Listener::new(&format!("@{}", name("left"))));
        let connects = |which| UnixStream::connect_addr(&address(which)).is_ok();
        let [first, last] = users;
        drop(first);
        assert!(connects("left"));
        drop(last);
        assert!(!connects("left") && connects("other"));
        assert!(wake::is_counter(left.as_raw_fd()));
    }
}
