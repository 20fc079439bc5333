//! Which interface the kernel chooses for a group where a membership names none: that of the route to the group, as
//! `ip_mc_find_dev` (IPv4) and `ipv6_sock_mc_join` look it up. Here it is asked for (RTM_GETROUTE), so that the
//! owner of a membership knows which membership to leave when the kernel would choose another, and when to join again.
//!
//! It asks when it is asked, and keeps nothing. What the kernel does not answer, for any reason, is not known
//! here.

use crate::interface::{HEADER_BYTES, each_attribute, finish, netlink_socket, push_attribute};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::IpAddr;

/// `struct rtmsg`, and an answer with all attributes, bytes.
const ROUTE_BYTES: usize = 12;
const ANSWER_BYTES: usize = 1024;

/// The number of the interface that the kernel would choose for `group` now, in this thread's network namespace. None
/// where it has no route there.
pub fn chosen_interface(group: IpAddr) -> Option<u32> {
    let netlink = netlink_socket().ok()?;
    send(&netlink, &question(group), SendFlags::empty()).ok()?;
    let mut answer = [0; ANSWER_BYTES];
    let (len, _) = recv(&netlink, answer.as_mut_slice(), RecvFlags::empty()).ok()?;
    way_out(answer.get(..len)?)
}

/// RTM_GETROUTE for one address.
fn question(group: IpAddr) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES + ROUTE_BYTES];
    message[4..6].copy_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let (family, bits) = match group {
        IpAddr::V4(v4) => {
            push_attribute(&mut message, libc::RTA_DST, &v4.octets());
            (libc::AF_INET, 32)
        }
        IpAddr::V6(v6) => {
            push_attribute(&mut message, libc::RTA_DST, &v6.octets());
            (libc::AF_INET6, 128)
        }
    };
    (message[HEADER_BYTES], message[HEADER_BYTES + 1]) = (family as u8, bits);
    finish(message)
}

/// Reads RTM_NEWROUTE; nothing of an error, or of a route that leads nowhere.
fn way_out(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != libc::RTM_NEWROUTE {
        return None;
    }
    let mut index = None;
    each_attribute(answer.get(HEADER_BYTES + ROUTE_BYTES..)?, |kind, value| {
        if kind == libc::RTA_OIF {
            index = value.first_chunk().map(|number| u32::from_ne_bytes(*number));
        }
        Some(())
    })?;
    index.filter(|index| *index != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(kind: u16, index: u32) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES + ROUTE_BYTES];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        push_attribute(&mut message, libc::RTA_DST, &[239, 1, 1, 1]);
        push_attribute(&mut message, libc::RTA_OIF, &index.to_ne_bytes());
        finish(message)
    }

    #[test]
    fn the_kernel_leads_to_loopback_by_loopback() {
        assert_eq!(chosen_interface([127, 0, 0, 1].into()), Some(1));
    }

    #[test]
    fn a_route_has_an_interface_and_an_error_has_none() {
        assert_eq!(way_out(&answer(libc::RTM_NEWROUTE, 7)), Some(7));
        assert_eq!(way_out(&answer(libc::RTM_NEWROUTE, 0)), None);
        assert_eq!(way_out(&answer(libc::NLMSG_ERROR as u16, 7)), None);
        let question = question("ff15::1".parse().expect("an address"));
        assert_eq!(question.len(), HEADER_BYTES + ROUTE_BYTES + 4 + 16);
        assert_eq!(question[HEADER_BYTES..HEADER_BYTES + 2], [libc::AF_INET6 as u8, 128]);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..60) {
            let _ = way_out(&bytes);
            let whole = answer(libc::RTM_NEWROUTE, 7);
            let _ = way_out(&whole[..cut.min(whole.len())]);
        }
    }
}
