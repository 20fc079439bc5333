//! What the kernel knows of its neighbours' link addresses (RTM_GETNEIGH of one entry, Linux 5.0), for a program that
//! sends frames beside it.
//!
//! It asks when it is asked, and keeps nothing but the numbers of interfaces. What the kernel does not answer, for
//! whichever reason, is not known here.

use crate::{
    Interface,
    interface::{HEADER_BYTES, each_attribute, finish, netlink_socket, push_attribute},
};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::{collections::HashMap, net::IpAddr, os::fd::OwnedFd};

/// `struct ndmsg`, and an answer with all attributes, bytes.
const NEIGHBOUR_BYTES: usize = 12;
const ANSWER_BYTES: usize = 1024;
/// `NUD_*`: states in which the address is right, and those in which it is used until it is probed.
const CONFIRMED: u16 = libc::NUD_REACHABLE | libc::NUD_PERMANENT | libc::NUD_NOARP;
const DOUBTED: u16 = libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE;

/// The kernel's table of neighbours.
#[derive(Debug)]
pub struct NeighbourTable {
    lane: &'static str,
    netlink: Option<OwnedFd>,
    /// By name; 0 for one that was not found.
    indexes: HashMap<String, u32>,
    /// Of the last question.
    sequence: u32,
}

impl NeighbourTable {
    /// That of this thread's network namespace, for `lane`.
    pub fn new(lane: &'static str) -> NeighbourTable {
        NeighbourTable {
            lane,
            netlink: netlink_socket().ok(),
            indexes: HashMap::new(),
            sequence: 0,
        }
    }

    /// The link address of `address` on `interface`, and whether the kernel is sure of it.
    pub fn find(&mut self, interface: &str, address: IpAddr) -> Option<([u8; 6], bool)> {
        let index = match self.indexes.get(interface) {
            Some(index) => *index,
            None => {
                let index = Interface::find(self.lane, interface).map_or(0, |i| i.index());
                self.indexes.insert(interface.to_owned(), index);
                index
            }
        };
        let netlink = self.netlink.as_ref().filter(|_| index != 0)?;
        self.sequence = self.sequence.wrapping_add(1);
        send(netlink, &question(index, address, self.sequence), SendFlags::empty()).ok()?;
        loop {
            let mut answer = [0; ANSWER_BYTES];
            let (len, _) = recv(netlink, answer.as_mut_slice(), RecvFlags::empty()).ok()?;
            // Another is that of a question whose answer was not waited for.
            if answer[8..12] == self.sequence.to_ne_bytes() {
                return entry(&answer[..len]);
            }
        }
    }
}

/// RTM_GETNEIGH for one address.
fn question(index: u32, address: IpAddr, sequence: u32) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES + NEIGHBOUR_BYTES];
    message[4..6].copy_from_slice(&libc::RTM_GETNEIGH.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&index.to_ne_bytes());
    let family = match address {
        IpAddr::V4(v4) => {
            push_attribute(&mut message, libc::NDA_DST, &v4.octets());
            libc::AF_INET
        }
        IpAddr::V6(v6) => {
            push_attribute(&mut message, libc::NDA_DST, &v6.octets());
            libc::AF_INET6
        }
    };
    message[HEADER_BYTES] = family as u8;
    finish(message)
}

/// Reads RTM_NEWNEIGH; nothing of an error or an entry that has no address yet.
fn entry(answer: &[u8]) -> Option<([u8; 6], bool)> {
    let u16_at = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if u16_at(4)? != libc::RTM_NEWNEIGH {
        return None;
    }
    let state = u16_at(HEADER_BYTES + 8)?;
    let attributes = answer.get(HEADER_BYTES + NEIGHBOUR_BYTES..)?;
    let mut mac = None;
    each_attribute(attributes, |kind, value| {
        if kind == libc::NDA_LLADDR {
            mac = value.try_into().ok();
        }
        Some(())
    })?;
    let is_known = state & (CONFIRMED | DOUBTED) != 0;
    mac.filter(|_| is_known).map(|mac| (mac, state & CONFIRMED != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(state: u16, mac: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES + NEIGHBOUR_BYTES];
        message[4..6].copy_from_slice(&libc::RTM_NEWNEIGH.to_ne_bytes());
        message[HEADER_BYTES + 8..HEADER_BYTES + 10].copy_from_slice(&state.to_ne_bytes());
        push_attribute(&mut message, libc::NDA_LLADDR, mac);
        finish(message)
    }

    #[test]
    fn an_entry_is_sure_doubted_or_none() {
        let mac = [2, 0, 0, 0, 0, 1];
        assert_eq!(entry(&answer(libc::NUD_PERMANENT, &mac)), Some((mac, true)));
        assert_eq!(entry(&answer(libc::NUD_STALE, &mac)), Some((mac, false)));
        assert_eq!(entry(&answer(libc::NUD_FAILED, &mac)), None);
        assert_eq!(entry(&answer(libc::NUD_REACHABLE, &mac[..4])), None, "no address of Ethernet");
        assert_eq!(question(7, IpAddr::from([10, 0, 0, 1]), 1).len(), 28 + 4 + 4);
    }

    #[test]
    fn what_the_kernel_does_not_know_is_not_known() {
        let mut table = NeighbourTable::new("here");
        let absent = "192.0.2.77".parse().expect("an address");
        assert_eq!(table.find("lo", absent), None);
        assert_eq!(table.find("nowhere0", absent), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = entry(&bytes);
            let _ = entry(&[&answer(libc::NUD_STALE, &[])[..], &bytes].concat());
        }
    }
}
