//! Which interfaces there are, followed as they come and go (rtnetlink, RTMGRP_LINK and the groups of addresses and
//! routes).
//!
//! ```text
//!   kernel ─ news ─▶ LinkWatch::wait ─▶ LinkWatch::look: all interfaces, afresh ─▶ Links
//! ```
//!
//! What the news say is not read: each is a reason to look at everything, and so is an overflow of the socket that
//! carries them. So none can be missed, none has to be believed, and many are one. What must always hold: a
//! change before a wait that ends is in the look behind it.

use crate::interface::{HEADER_BYTES, each_attribute, finish, netlink_socket, push_attribute};
use laneway_core::Bell;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
        netlink::SocketAddrNetlink, recv, send, socket_with,
    },
};
use std::{collections::BTreeMap, io, os::fd::OwnedFd};

/// Groups of `linux/rtnetlink.h`: links, and addresses and routes, which a socket may wait for as well.
const RTMGRP_LINK: u32 = 0x1;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;
/// `RTEXT_FILTER_SKIP_STATS`: an answer without counters is a tenth as long.
const SKIP_STATS: u32 = 1 << 3;
/// Other names of an interface (`linux/if_link.h`).
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
/// `struct ifinfomsg`, and where its index and flags begin, bytes.
const LINK_BYTES: usize = 16;
const INDEX_AT: usize = HEADER_BYTES + 4;
const FLAGS_AT: usize = HEADER_BYTES + 8;
/// A part of a dump; the kernel makes none longer.
const PART_BYTES: usize = 64 * 1024;
/// Dumps that changes spoil, one after the other, before the last is taken as it is.
const DUMPS_MAX: usize = 16;
/// News that are taken at a time; what is left ends the next wait.
const NEWS_MAX: usize = 1024;

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number. Another interface of the same name has another one.
    pub index: u32,
    /// Administratively up.
    pub is_up: bool,
}

/// All interfaces of a network namespace at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links(BTreeMap<String, Link>);

impl Links {
    /// The interface that is called so now, by its name or one of its others.
    pub fn find(&self, name: &str) -> Option<Link> {
        self.0.get(name).copied()
    }

    /// True while there is an interface with this number.
    pub fn has(&self, index: u32) -> bool {
        self.0.values().any(|link| link.index == index)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Link)> for Links {
    fn from_iter<T: IntoIterator<Item = (String, Link)>>(links: T) -> Links {
        Links(links.into_iter().collect())
    }
}

/// Hears when interfaces, addresses and routes come, go and change.
#[derive(Debug)]
pub struct LinkWatch {
    news: OwnedFd,
    questions: OwnedFd,
}

impl LinkWatch {
    /// Begins to hear those of this thread's network namespace.
    ///
    /// # Errors
    /// No descriptor is left, or the kernel refuses the groups.
    pub fn open() -> io::Result<LinkWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let news = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        let addresses = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
        let groups = RTMGRP_LINK | addresses | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
        bind(&news, &SocketAddrNetlink::new(0, groups))?;
        Ok(LinkWatch { news, questions: netlink_socket()? })
    }

    /// All interfaces now.
    ///
    /// # Errors
    /// The kernel's, which has none in its manual but a lack of memory.
    pub fn look(&self) -> io::Result<Links> {
        let mut dumps = 0;
        loop {
            dumps += 1;
            let (links, is_spoiled) = self.dump()?;
            if !is_spoiled || dumps == DUMPS_MAX {
                // What spoiled it is news, which end the next wait.
                return Ok(links);
            }
        }
    }

    /// Blocks until there are news (true), or until `bell` is rung (false). May end early with news.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, bell: &Bell) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.news, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if bell.is_rung() {
            return Ok(false);
        }
        self.forget()?;
        Ok(true)
    }

    /// Takes the news that are there, with any contents.
    fn forget(&self) -> io::Result<()> {
        let mut bytes = [0; 1];
        for _ in 0..NEWS_MAX {
            match recv(&self.news, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                // There were more than the socket has room for; the look finds what they reported.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// One dump of all links; true when they changed meanwhile.
    fn dump(&self) -> io::Result<(Links, bool)> {
        send(&self.questions, &question(), SendFlags::empty())?;
        let mut dump = Dump::default();
        let mut part = vec![0; PART_BYTES];
        while !dump.is_over {
            let (len, _) = recv(&self.questions, part.as_mut_slice(), RecvFlags::empty())?;
            dump.read(&part[..len.min(PART_BYTES)])?;
        }
        Ok((Links(dump.links), dump.is_spoiled))
    }
}

/// RTM_GETLINK for all.
fn question() -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES + LINK_BYTES];
    message[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    push_attribute(&mut message, libc::IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes());
    finish(message)
}

/// What a dump has reported so far.
#[derive(Default)]
struct Dump {
    links: BTreeMap<String, Link>,
    is_spoiled: bool,
    is_over: bool,
}

impl Dump {
    /// Reads one part: messages, one behind the other.
    fn read(&mut self, mut part: &[u8]) -> io::Result<()> {
        if part.is_empty() {
            return Err(broken());
        }
        while !part.is_empty() {
            let len = u32_at(part, 0).ok_or_else(broken)? as usize;
            let message = part.get(..len).filter(|_| len >= HEADER_BYTES).ok_or_else(broken)?;
            part = part.get(len.next_multiple_of(4)..).unwrap_or_default();
            self.is_spoiled |= i32::from(u16_at(message, 6)) & libc::NLM_F_DUMP_INTR != 0;
            match i32::from(u16_at(message, 4)) {
                libc::NLMSG_DONE => {
                    self.is_over = true;
                    return Ok(());
                }
                libc::NLMSG_ERROR => {
                    let code = u32_at(message, HEADER_BYTES).ok_or_else(broken)? as i32;
                    return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                }
                kind if kind == i32::from(libc::RTM_NEWLINK) => {
                    self.link(message).ok_or_else(broken)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn link(&mut self, message: &[u8]) -> Option<()> {
        let flags = u32_at(message, FLAGS_AT)?;
        let link =
            Link { index: u32_at(message, INDEX_AT)?, is_up: flags & libc::IFF_UP as u32 != 0 };
        let mut name = |value: &[u8]| {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            self.links.insert(String::from_utf8_lossy(text).into_owned(), link);
        };
        each_attribute(message.get(HEADER_BYTES + LINK_BYTES..)?, |kind, value| {
            match kind {
                libc::IFLA_IFNAME => name(value),
                IFLA_PROP_LIST => each_attribute(value, |kind, value| {
                    if kind == IFLA_ALT_IFNAME {
                        name(value);
                    }
                    Some(())
                })?,
                _ => {}
            }
            Some(())
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_ne_bytes([two[0], two[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "netlink's list of interfaces is cut short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, flags: u16, index: u32, names: &[&str]) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES + LINK_BYTES];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[6..8].copy_from_slice(&flags.to_ne_bytes());
        message[INDEX_AT..INDEX_AT + 4].copy_from_slice(&index.to_ne_bytes());
        message[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        let mut others = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let name = [name.as_bytes(), &[0]].concat();
            match at {
                0 => push_attribute(&mut message, libc::IFLA_IFNAME, &name),
                _ => push_attribute(&mut others, IFLA_ALT_IFNAME, &name),
            }
        }
        push_attribute(&mut message, IFLA_PROP_LIST, &others);
        finish(message)
    }

    #[test]
    fn loopback_is_there_and_a_bell_ends_a_wait() {
        let watch = LinkWatch::open().unwrap();
        let links = watch.look().unwrap();
        assert_eq!(links.find("lo").map(|link| link.index), Some(1), "{links:?}");
        assert!(!links.is_empty() && links.find("no-such-if0").is_none());
        assert!(links.has(1) && !links.has(0));
        let bell = Bell::new().unwrap();
        bell.ring();
        // News of others may come first.
        while watch.wait(&bell).unwrap() {}
    }

    #[test]
    fn a_dump_has_every_name_and_says_when_it_was_spoiled() {
        let mut dump = Dump::default();
        let one = message(libc::RTM_NEWLINK, 0, 5, &["eth5", "uplink", "cable-to-the-roof"]);
        let two = message(libc::RTM_NEWLINK, libc::NLM_F_DUMP_INTR as u16, 6, &["eth6"]);
        dump.read(&[one, two].concat()).unwrap();
        assert!(dump.is_spoiled && !dump.is_over);
        dump.read(&message(libc::NLMSG_DONE as u16, 0, 0, &[])).unwrap();
        assert!(dump.is_over);
        let links = Links(dump.links);
        let index = |name: &str| links.find(name).map(|link| link.index);
        assert_eq!(index("eth5"), Some(5));
        assert_eq!(index("cable-to-the-roof"), index("uplink"));
        assert_eq!((index("eth6"), index("eth7"), links.len()), (Some(6), None, 4));
    }

    proptest! {
        #[test]
        fn any_dump_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Dump::default().read(&bytes);
            let whole = message(libc::RTM_NEWLINK, 0, 5, &["eth5"]);
            let _ = Dump::default().read(&[whole, bytes].concat());
        }
    }
}
