//! A connection to a socket's file, which waits no longer than it may.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to the socket at `path`, which may take so long where as many clients as it may keep wait to be accepted;
/// `WouldBlock` if none was accepted by then. None: no time at all.
pub(crate) fn connect(path: &Path, wait: Option<Duration>) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = match wait {
        None => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(_) => SocketFlags::CLOEXEC,
    };
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let socket = UnixStream::from(socket);
    socket.set_write_timeout(wait)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}
