//! Asking the kernel which NAPI instances an interface has, and which thread runs each.
//!
//! Speaks generic netlink to the family `netdev` (NAPI_GET since kernel 6.8), the only exact answer: names of kernel
//! threads repeat when two namespaces use the same interface name, and are cut to 15 characters on older kernels.
//! Kernels without it yield `None`, and the caller finds threads by name. Reads only; one request at a time; answers
//! are bounds-checked because they are bytes like any others.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::Error;

// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_DUMP: u16 = 0x300;
const MESSAGE_HEADER_BYTES: usize = 16;
// linux/genetlink.h
const GENL_HEADER_BYTES: usize = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/netdev.h
const NETDEV_FAMILY: &[u8] = b"netdev\0";
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_PID: u16 = 4;

/// The kernel answers at once; this bounds a wait for an answer that never comes.
const ANSWER_WAIT_MS: i64 = 1_000;
/// Netlink dumps come in parts of at most 32 KiB.
const ANSWER_BYTES_MAX: usize = 32 * 1024;

/// One NAPI instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Napi {
    /// Unique on the whole machine while it exists.
    pub(crate) id: u32,
    /// The kernel thread that runs it, if threaded.
    pub(crate) pid: Option<u32>,
}

/// Lists the NAPI instances of an interface of the current namespace; `None` if this kernel cannot say.
pub(crate) fn napi_instances(ifindex: u32) -> Result<Option<Vec<Napi>>, Error> {
    let socket = open().map_err(Error::system("open a generic netlink socket"))?;
    let failed = Error::system::<Errno>("ask the kernel for NAPI instances by netlink");

    let name = attribute(CTRL_ATTR_FAMILY_NAME, NETDEV_FAMILY);
    let request = message(GENL_ID_CTRL, NLM_F_REQUEST, CTRL_CMD_GETFAMILY, &name);
    let mut family = None;
    let answered = exchange(&socket, &request, |attributes| {
        family = find(attributes, CTRL_ATTR_FAMILY_ID).and_then(as_u16).or(family);
    });
    let family = match (answered, family) {
        (Ok(()), Some(family)) => family,
        (Ok(()), None) | (Err(Errno::ENOENT), _) => return Ok(None),
        (Err(errno), _) => return Err(failed(errno)),
    };

    let interface = attribute(NETDEV_A_NAPI_IFINDEX, &ifindex.to_ne_bytes());
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = message(family, flags, NETDEV_CMD_NAPI_GET, &interface);
    let mut instances = Vec::new();
    let answered = exchange(&socket, &request, |attributes| {
        if let Some(id) = find(attributes, NETDEV_A_NAPI_ID).and_then(as_u32) {
            let pid = find(attributes, NETDEV_A_NAPI_PID).and_then(as_u32).filter(|&pid| pid != 0);
            instances.push(Napi { id, pid });
        }
    });
    match answered {
        Ok(()) => {
            instances.sort_by_key(|napi| napi.id);
            Ok(Some(instances))
        }
        Err(Errno::EOPNOTSUPP) => Ok(None), // the family is older than this request
        Err(errno) => Err(failed(errno)),
    }
}

fn open() -> Result<OwnedFd, Errno> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkGeneric,
    )?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(ANSWER_WAIT_MS))?;
    Ok(socket)
}

/// Sends one request and hands the attributes of each answer to `each`, until the kernel says it is done.
fn exchange(socket: &OwnedFd, request: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    send(socket.as_raw_fd(), request, MsgFlags::empty())?;
    let is_dump = u16::from_ne_bytes([request[6], request[7]]) & NLM_F_DUMP == NLM_F_DUMP;
    let mut buffer = vec![0; ANSWER_BYTES_MAX];
    loop {
        let length = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Err(Errno::EINTR) => continue,
            result => result?,
        };
        match read_answer(&buffer[..length], &mut each)? {
            Progress::More if is_dump => {}
            Progress::More | Progress::Done => return Ok(()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

/// Walks the messages of one datagram.
fn read_answer(mut rest: &[u8], each: &mut impl FnMut(&[u8])) -> Result<Progress, Errno> {
    while let Some(header) = rest.get(..MESSAGE_HEADER_BYTES) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let body = rest.get(MESSAGE_HEADER_BYTES..length).ok_or(Errno::EBADMSG)?;
        match kind {
            NLMSG_ERROR => {
                let code = body.get(..4).and_then(as_u32).ok_or(Errno::EBADMSG)?.cast_signed();
                return match code {
                    0 => Ok(Progress::Done),
                    code => Err(Errno::from_raw(code.saturating_neg())),
                };
            }
            NLMSG_DONE => {
                // A dump that fails half-way carries its error here.
                let code = body.get(..4).and_then(as_u32).unwrap_or(0).cast_signed();
                return match code {
                    code if code < 0 => Err(Errno::from_raw(code.saturating_neg())),
                    _ => Ok(Progress::Done),
                };
            }
            _ => each(body.get(GENL_HEADER_BYTES..).ok_or(Errno::EBADMSG)?),
        }
        rest = rest.get(aligned(length)..).unwrap_or(&[]);
    }
    Ok(Progress::More)
}

/// The value of the first attribute of this kind.
fn find(mut rest: &[u8], kind: u16) -> Option<&[u8]> {
    const NESTED_AND_ORDER_BITS: u16 = 0xc000;
    loop {
        let header = rest.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let found = u16::from_ne_bytes([header[2], header[3]]) & !NESTED_AND_ORDER_BITS;
        let value = rest.get(4..length)?;
        if found == kind {
            return Some(value);
        }
        rest = rest.get(aligned(length)..)?;
    }
}

fn message(kind: u16, flags: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = MESSAGE_HEADER_BYTES + GENL_HEADER_BYTES + attributes.len();
    let length = u32::try_from(length).expect("our requests are tens of bytes");
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]); // sequence and port: one request at a time, to the kernel
    bytes.extend([command, 1, 0, 0]); // version 1, reserved
    bytes.extend(attributes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("our attributes are a few bytes");
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn as_u16(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?))
}

fn as_u32(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_every_message_of_a_datagram() {
        let id = attribute(NETDEV_A_NAPI_ID, &261u32.to_ne_bytes());
        let one = message(20, 0, NETDEV_CMD_NAPI_GET, &id);
        let mut ids = Vec::new();
        let mut each = |attributes: &[u8]| ids.push(find(attributes, 2).and_then(as_u32));
        let progress = read_answer(&[one.clone(), one].concat(), &mut each);
        assert_eq!(progress, Ok(Progress::More));
        assert_eq!(ids, [Some(261), Some(261)]);
    }

    #[test]
    fn an_error_message_becomes_its_errno() {
        let mut bytes = message(NLMSG_ERROR, 0, 0, &[]);
        bytes[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(read_answer(&bytes, &mut |_| {}), Err(Errno::ENOENT));
    }

    #[test]
    fn a_length_that_does_not_advance_ends_the_walk() {
        assert_eq!(find(&[0; 64], 1), None);
        assert_eq!(read_answer(&[0; 64], &mut |_| {}), Err(Errno::EBADMSG));
    }

    proptest! {
        #[test]
        fn attributes_survive_their_bytes(
            first in (3u16..100, proptest::collection::vec(any::<u8>(), 0..40)),
            second in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let bytes = [attribute(first.0, &first.1), attribute(2, &second)].concat();
            prop_assert_eq!(find(&bytes, 2), Some(second.as_slice()));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_answer(&bytes, &mut |attributes| { let _ = find(attributes, 2); });
        }
    }
}
