//! Bytes of a Unix socket with the descriptors that travel beside them (SCM_RIGHTS).
//!
//! What must always hold: a descriptor that arrives is owned from that moment on, and closed when it is not taken; no
//! more are kept than may be.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Descriptors of one message: as many as the kernel takes (SCM_MAX_FD).
pub const DESCRIPTORS_MAX: usize = 253;
/// Room for them in a message.
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// What comes out of a socket.
pub(crate) struct Wire<'a> {
    socket: &'a UnixStream,
    kept: Vec<OwnedFd>,
    kept_max: usize,
    /// Some had no room, with us or in this process's table.
    is_short: bool,
}

impl<'a> Wire<'a> {
    /// Keeps up to `kept_max` descriptors between two calls of [`arrived`](Self::arrived).
    pub(crate) fn new(socket: &'a UnixStream, kept_max: usize) -> Wire<'a> {
        Wire { socket, kept: Vec::new(), kept_max, is_short: false }
    }

    /// The descriptors that arrived since the last call; none of them when some are missing.
    pub(crate) fn arrived(&mut self) -> Result<Vec<OwnedFd>, Missing> {
        let kept = std::mem::take(&mut self.kept);
        if std::mem::take(&mut self.is_short) { Err(Missing) } else { Ok(kept) }
    }
}

/// Descriptors were lost on their way.
#[derive(Debug)]
pub(crate) struct Missing;

impl Read for Wire<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let (mut parts, flags) = ([IoSliceMut::new(bytes)], RecvFlags::CMSG_CLOEXEC);
        let received = recvmsg(self.socket, &mut parts, &mut beside, flags)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    match self.kept.len() < self.kept_max {
                        true => self.kept.push(descriptor),
                        false => self.is_short = true,
                    }
                }
            }
        }
        self.is_short |= received.flags.contains(ReturnFlags::CTRUNC);
        Ok(received.bytes)
    }
}

/// Sends all the bytes, of which there are some, and the descriptors beside the first of them.
pub(crate) fn send(
    mut socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if descriptors.is_empty() {
        return socket.write_all(bytes);
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        let why = format!("{} descriptors; {DESCRIPTORS_MAX} go with a message", descriptors.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
    })?;
    socket.write_all(&bytes[sent..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_arrive_beside_their_bytes_and_too_many_are_none() {
        let (one, two) = UnixStream::pair().unwrap();
        let (mut kept, gone) = UnixStream::pair().unwrap();
        send(&one, b"ab", &[gone.as_fd(), gone.as_fd()]).unwrap();
        drop(gone);
        let mut bytes = [0; 9];
        let mut wire = Wire::new(&two, 2);
        assert_eq!(wire.read(&mut bytes).unwrap(), 2);
        let mut arrived = wire.arrived().unwrap();
        assert_eq!(arrived.len(), 2);
        UnixStream::from(arrived.remove(0)).write_all(b"!").unwrap();
        drop(arrived);
        let mut read = String::new();
        kept.read_to_string(&mut read).unwrap();
        assert_eq!(read, "!", "and closed when no process has them");

        send(&one, b"c", &[one.as_fd(); 3]).unwrap();
        assert_eq!(wire.read(&mut bytes).unwrap(), 1);
        assert!(wire.arrived().is_err());
        assert!(wire.arrived().unwrap().is_empty(), "once");
        assert!(send(&one, b"d", &[one.as_fd(); DESCRIPTORS_MAX + 1]).is_err());
        send(&one, b"e", &[one.as_fd(); DESCRIPTORS_MAX]).unwrap();
    }
}
