//! An interface by name: index, MTU, link type, whether it is up, its XDP program, what its driver dropped.
//!
//! Asked by rtnetlink (RTM_GETLINK), which needs no privilege and, unlike the interface ioctls, no unsafe code. An
//! [`Interface`] keeps its socket, so it goes on speaking of the namespace it was found in. A name may come to
//! mean another interface later; an index does not, so everything after [`Interface::find`] asks by index.
//!
//! It changes nothing; an [`Undo`] is only the words (RTM_SETLINK) of what another process may have to send.

use crate::vlan::TAG_BYTES;
use laneway_core::LaneError;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::{
    fs, io,
    os::fd::{OwnedFd, RawFd},
    path::Path,
};

/// Bytes of an Ethernet header, which the MTU does not count.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes that a buffer grows to by itself for its interface's frames: jumbo frames, and not what loopback may carry.
pub const BUFFER_BYTES_MAX: usize = 1 << 14;
/// The kernel's bound on names, with the terminating zero (IFNAMSIZ).
pub const NAME_BYTES_MAX: usize = 16;

/// Bytes of an answer: a link's attributes take about 2 KiB, most for a device with many statistics.
const ANSWER_BYTES: usize = 16 * 1024;
/// `struct nlmsghdr`, `struct ifinfomsg`, `struct nlattr`, bytes.
pub(crate) const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
pub(crate) const ATTRIBUTE_BYTES: usize = 4;
/// Position of `tx_dropped` in `struct rtnl_link_stats64`, bytes.
const TX_DROPPED_AT: usize = 7 * 8;
/// An attribute's type without the bits that describe its value (`NLA_TYPE_MASK`).
const ATTRIBUTE_TYPE: u16 = 0x3fff;
/// What IFLA_XDP consists of, and a flag of the kernel's (`linux/if_link.h`).
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
/// The part of IFLA_LINKINFO that names the kind of a virtual interface (`linux/if_link.h`).
const IFLA_INFO_KIND: u16 = 1;
const XDP_FLAGS_REPLACE: u32 = 1 << 4;

/// An interface, found by name.
#[derive(Debug)]
pub struct Interface {
    name: String,
    found: Facts,
    netlink: OwnedFd,
}

/// What the kernel says of an interface at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number in its namespace.
    pub index: u32,
    /// `IFF_*`.
    pub flags: u32,
    /// `ARPHRD_*`.
    pub link_type: u16,
    /// Longest payload of a frame, without the Ethernet header.
    pub mtu_bytes: usize,
    /// Frames that the kernel wanted to send by it and its driver dropped: on a tap, those not fetched in time.
    pub tx_dropped: u64,
    /// One end of a virtual cable: its driver is veth.
    pub is_veth: bool,
    /// The XDP program that its driver runs.
    pub native: Option<ProgramId>,
    /// The XDP program that the kernel runs in the driver's stead.
    pub generic: Option<ProgramId>,
}

/// The kernel's number of a loaded program.
pub type ProgramId = u32;

/// Where an interface's XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum XdpPlace {
    /// In the stack (`XDP_FLAGS_SKB_MODE`).
    Generic = 1 << 1,
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native = 1 << 2,
}

/// What is to be taken off an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The interface's number.
    pub index: u32,
    /// End promiscuous mode as an administrator set it (`IFF_PROMISC`).
    pub promiscuous: bool,
    /// Take this program off, if it is there still. The descriptor is one of the sender of the message.
    pub program: Option<(XdpPlace, RawFd)>,
}

impl Undo {
    /// The message to send on a NETLINK_ROUTE socket, with CAP_NET_ADMIN. No answer is asked for.
    pub fn message(&self) -> Vec<u8> {
        let change = if self.promiscuous { libc::IFF_PROMISC as u32 } else { 0 };
        let mut message = link_message(libc::RTM_SETLINK, self.index, change);
        if let Some((place, fd)) = self.program {
            let mut parts = Vec::new();
            push_attribute(&mut parts, IFLA_XDP_FD, &(-1i32).to_ne_bytes());
            push_attribute(&mut parts, IFLA_XDP_EXPECTED_FD, &fd.to_ne_bytes());
            let flags = place as u32 | XDP_FLAGS_REPLACE;
            push_attribute(&mut parts, IFLA_XDP_FLAGS, &flags.to_ne_bytes());
            push_attribute(&mut message, libc::IFLA_XDP | libc::NLA_F_NESTED as u16, &parts);
        }
        finish(message)
    }
}

impl Facts {
    /// Administratively up.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// The longest frame that may leave: the header, the MTU and, as the kernel grants, a VLAN tag (it refuses four
    /// bytes too many that are none).
    pub fn frame_bytes_max(&self) -> usize {
        ETHERNET_BYTES + self.mtu_bytes + TAG_BYTES
    }

    /// Bytes of a buffer for one frame: as many as its frames have, at least so many, and no more than
    /// [`BUFFER_BYTES_MAX`] for that.
    pub fn buffer_bytes(&self, at_least: usize) -> usize {
        at_least.max(self.frame_bytes_max().min(BUFFER_BYTES_MAX))
    }

    /// Its frames begin with an Ethernet header (loopback's do).
    pub fn is_ethernet(&self) -> bool {
        matches!(self.link_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK)
    }
}

impl Interface {
    /// Finds `name` in this thread's network namespace, for `lane`.
    ///
    /// # Errors
    /// [`LaneError::NotFound`] when it is not there.
    pub fn find(lane: &'static str, name: &str) -> Result<Interface, LaneError> {
        if !is_name(name) {
            return Err(LaneError::no_interface(lane, name));
        }
        let found = netlink_socket().and_then(|netlink| {
            let found = ask(&netlink, Which::Name(name))?;
            Ok(Interface { name: name.to_owned(), found, netlink })
        });
        found.map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => LaneError::no_interface(lane, name),
            _ => LaneError::os(lane, format!("look up interface `{name}`"), error, "see `ip link`"),
        })
    }

    /// The name it was found by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.found.index
    }

    /// What the kernel reported of it when it was found.
    pub fn found(&self) -> Facts {
        self.found
    }

    /// What the kernel says of it now.
    ///
    /// # Errors
    /// ENODEV when it is gone.
    pub fn facts(&self) -> io::Result<Facts> {
        ask(&self.netlink, Which::Index(self.found.index))
    }

    /// Its MTU now, without the Ethernet header.
    ///
    /// # Errors
    /// ENODEV when it is gone.
    pub fn mtu_bytes(&self) -> io::Result<usize> {
        Ok(self.facts()?.mtu_bytes)
    }

    /// True while it exists and is up.
    pub fn is_up(&self) -> bool {
        self.facts().is_ok_and(|facts| facts.is_up())
    }

    /// Refuses for `lane` what could not carry Ethernet frames when it was found.
    ///
    /// # Errors
    /// [`LaneError::Refused`] without Ethernet headers; ENETDOWN, with the command to try, when it is not up.
    pub fn check_usable(&self, lane: &'static str) -> Result<(), LaneError> {
        let name = &self.name;
        if !self.found.is_ethernet() {
            return Err(LaneError::Refused {
                lane: lane.to_owned(),
                name: name.to_owned(),
                why: format!(
                    "its frames have no Ethernet header (link type {})",
                    self.found.link_type
                ),
                hint: "use an Ethernet-like interface: veth, tap, bridge, or a device".to_owned(),
            });
        }
        if !self.found.is_up() {
            let down = io::Error::from_raw_os_error(libc::ENETDOWN);
            let hint = format!("try `ip link set dev {name} up`");
            return Err(LaneError::os(lane, format!("use interface `{name}`"), down, &hint));
        }
        Ok(())
    }
}

/// True for a text that can be an interface's name (`dev_valid_name` in the kernel; a comma would end a device
/// argument of DPDK).
pub fn is_name(name: &str) -> bool {
    (1..NAME_BYTES_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.bytes().any(|b| matches!(b, b'/' | b':' | b',' | 0) || b.is_ascii_whitespace())
}

/// What sysfs says of an interface of this process's network namespace, without the end of the line; nothing where
/// there is no such interface or file.
pub fn sysfs(interface: &str, file: &str) -> Option<String> {
    let path = Path::new("/sys/class/net").join(interface).join(file);
    is_name(interface).then(|| fs::read_to_string(path).ok())?.map(|text| text.trim().to_owned())
}

/// How a link is asked for.
#[derive(Clone, Copy)]
enum Which<'a> {
    Name(&'a str),
    Index(u32),
}

/// NETLINK_ROUTE is protocol 0.
pub(crate) fn netlink_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

fn ask(netlink: &OwnedFd, which: Which<'_>) -> io::Result<Facts> {
    send(netlink, &question(which), SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    let (len, _) = recv(netlink, answer.as_mut_slice(), RecvFlags::empty())?;
    facts(&answer[..len])
}

/// RTM_GETLINK for one interface.
fn question(which: Which<'_>) -> Vec<u8> {
    let (index, name) = match which {
        Which::Name(name) => (0, name),
        Which::Index(index) => (index, ""),
    };
    let mut message = link_message(libc::RTM_GETLINK, index, 0);
    if !name.is_empty() {
        push_attribute(&mut message, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    }
    finish(message)
}

/// A request about interface `index` that clears the flags `change`, still without its length.
fn link_message(kind: u16, index: u32, change: u32) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES + LINK_BYTES];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&index.to_ne_bytes());
    message[HEADER_BYTES + 12..].copy_from_slice(&change.to_ne_bytes());
    message
}

pub(crate) fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Writes a message's length.
pub(crate) fn finish(mut message: Vec<u8>) -> Vec<u8> {
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message
}

/// Reads RTM_NEWLINK, or the error in its place.
fn facts(answer: &[u8]) -> io::Result<Facts> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "netlink's answer is cut short");
    let u16_at = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16_at(4).ok_or_else(broken)?;
    if libc::c_int::from(kind) == libc::NLMSG_ERROR {
        let code = u32_at(HEADER_BYTES).ok_or_else(broken)?;
        return Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()));
    }
    let mut facts = Facts {
        link_type: u16_at(HEADER_BYTES + 2).ok_or_else(broken)?,
        index: u32_at(HEADER_BYTES + 4).ok_or_else(broken)?,
        flags: u32_at(HEADER_BYTES + 8).ok_or_else(broken)?,
        mtu_bytes: 0,
        tx_dropped: 0,
        is_veth: false,
        native: None,
        generic: None,
    };
    let attributes = answer.get(HEADER_BYTES + LINK_BYTES..).ok_or_else(broken)?;
    each_attribute(attributes, |kind, value| {
        match kind {
            libc::IFLA_MTU => facts.mtu_bytes = number(value)? as usize,
            libc::IFLA_STATS64 if value.len() >= TX_DROPPED_AT + 8 => {
                let bytes = value[TX_DROPPED_AT..][..8].try_into().ok()?;
                facts.tx_dropped = u64::from_ne_bytes(bytes);
            }
            libc::IFLA_LINKINFO => each_attribute(value, |kind, value| {
                if kind == IFLA_INFO_KIND {
                    facts.is_veth = value.strip_suffix(&[0]) == Some(b"veth");
                }
                Some(())
            })?,
            libc::IFLA_XDP => each_attribute(value, |kind, value| {
                match kind {
                    IFLA_XDP_DRV_PROG_ID => facts.native = Some(number(value)?),
                    IFLA_XDP_SKB_PROG_ID => facts.generic = Some(number(value)?),
                    _ => {}
                }
                Some(())
            })?,
            _ => {}
        }
        Some(())
    })
    .ok_or_else(broken)?;
    Ok(facts)
}

/// Shows `each` type and value in a run of attributes, until one is cut short (`None`) or `each` says so.
pub(crate) fn each_attribute(
    mut bytes: &[u8],
    mut each: impl FnMut(u16, &[u8]) -> Option<()>,
) -> Option<()> {
    while bytes.len() >= ATTRIBUTE_BYTES {
        let len = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        let kind = u16::from_ne_bytes([bytes[2], bytes[3]]) & ATTRIBUTE_TYPE;
        each(kind, bytes.get(ATTRIBUTE_BYTES..len)?)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(())
}

/// The number that a value begins with.
fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_is_found_and_has_an_mtu() {
        let lo = Interface::find("test", "lo").unwrap();
        assert_eq!((lo.name(), lo.index()), ("lo", 1));
        let facts = lo.facts().unwrap();
        assert!(facts.is_ethernet() && facts.mtu_bytes > 1000, "{facts:?}");
        assert_eq!(facts.is_up(), lo.is_up());
    }

    #[test]
    fn an_unknown_interface_is_named() {
        for name in
            ["no-such-if0", "", "a-name-that-is-too-long-to-exist", "a,b", "a/b", "a b", ".."]
        {
            let message = Interface::find("test", name).expect_err("not found").to_string();
            assert!(message.contains(&format!("no interface `{name}`")), "{message}");
        }
    }

    #[test]
    fn the_kernels_own_counters_agree() {
        let dev = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let row =
            dev.lines().find_map(|line| line.trim().strip_prefix("lo:")).expect("lo is there");
        let dropped: u64 = row.split_whitespace().nth(11).unwrap().parse().unwrap();
        assert_eq!(Interface::find("test", "lo").unwrap().facts().unwrap().tx_dropped, dropped);
    }

    #[test]
    fn an_interface_that_is_gone_is_an_error() {
        let netlink = netlink_socket().unwrap();
        let error = ask(&netlink, Which::Index(u32::MAX >> 1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn an_undo_asks_for_what_it_names_and_nothing_else() {
        let promiscuous = Undo { index: 7, promiscuous: true, program: None }.message();
        assert_eq!(promiscuous.len(), HEADER_BYTES + LINK_BYTES);
        // Read as an answer, what it clears and sets stands where an interface's flags do.
        let read = facts(&promiscuous).unwrap();
        assert_eq!((read.index, read.flags), (7, 0));
        assert_eq!(promiscuous[HEADER_BYTES + 12..], (libc::IFF_PROMISC as u32).to_ne_bytes());
        let program =
            Undo { index: 7, promiscuous: false, program: Some((XdpPlace::Native, 2)) }.message();
        assert_eq!(program[HEADER_BYTES + 12..][..4], [0; 4], "no flag changes");
        let mut parts = Vec::new();
        each_attribute(&program[HEADER_BYTES + LINK_BYTES..], |kind, value| {
            assert_eq!(kind, libc::IFLA_XDP);
            each_attribute(value, |kind, value| {
                parts.push((kind, number(value)?));
                Some(())
            })
        })
        .unwrap();
        let flags = 1 << 2 | XDP_FLAGS_REPLACE;
        assert_eq!(
            parts,
            [(IFLA_XDP_FD, u32::MAX), (IFLA_XDP_EXPECTED_FD, 2), (IFLA_XDP_FLAGS, flags)]
        );
        let len = u32::from_ne_bytes(program[..4].try_into().unwrap());
        assert_eq!(len as usize, program.len());
    }

    proptest! {
        #[test]
        fn any_answer_is_facts_or_an_error(answer in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = facts(&answer);
        }

        #[test]
        fn any_attributes_are_facts_or_an_error(attributes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut answer = question(Which::Index(1));
            answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
            answer.extend(attributes);
            let _ = facts(&answer);
        }
    }
}
