//! Ports of datagrams as values: what one is to be, and how they come and go while a lane runs.

use crate::{Counters, Lane, LaneError, PortId};
use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
};

/// Bytes that a socket of frames or datagrams may queue on its way in, unless something else is asked for: what arrives
/// while the worker waits some milliseconds for its CPU. The kernel's own 208 KiB hold some ninety datagrams of 1316
/// bytes, which at 20,000/s are 4 ms.
pub const RCVBUF_BYTES_DEFAULT: usize = 4 << 20;

/// What a port of datagrams is to be. Inputs and outputs are alike: a port receives what its address is
/// sent, and what leaves through it leaves as it says. What is not given stays as the lane's spec has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Where it receives: an address of ours, a group, or all of a family. UDP port 0: any free one.
    pub bind: SocketAddr,
    /// The one interface that it receives from and sends to.
    pub interface: Option<String>,
    /// The groups whose datagrams it receives; of what is sent to groups no other then.
    pub memberships: Vec<Membership>,
    /// The address of ours that its datagrams leave from, where `bind` is none.
    pub source: Option<IpAddr>,
    /// Time to live, or hop limit, of what it sends, groups included.
    pub hop_limit: Option<u8>,
    /// Differentiated services code point of what it sends, below 64.
    pub dscp: Option<u8>,
    /// Priority in the queue of the interface.
    pub priority: Option<u32>,
    /// Members on this machine receive what it sends to a group.
    pub multicast_loop: bool,
    /// Bytes that it may queue on the way in.
    pub rcvbuf_bytes: Option<usize>,
    /// Bytes that it may queue on the way out.
    pub sndbuf_bytes: Option<usize>,
    /// What goes when what it is to send does not fit.
    pub when_full: WhenFull,
    /// The kernel tells what the queue of the interface did not take, so that it is counted (IP_RECVERR). The
    /// port then also hears what became of earlier datagrams.
    pub tells_full_queue: bool,
    /// What is longer than the interface's MTU leaves in fragments, where the lane makes some. Else it is dropped
    /// and counted as too long.
    pub fragments: bool,
    /// Its name, for readers of its counters.
    pub label: Option<String>,
}

impl PortPlan {
    /// A port at this address, with nothing else asked for.
    pub fn at(bind: SocketAddr) -> PortPlan {
        PortPlan {
            bind,
            interface: None,
            memberships: Vec::new(),
            source: None,
            hop_limit: None,
            dscp: None,
            priority: None,
            multicast_loop: true,
            rcvbuf_bytes: None,
            sndbuf_bytes: None,
            when_full: WhenFull::Newest,
            tells_full_queue: false,
            fragments: true,
            label: None,
        }
    }
}

/// What goes when a port can send no more now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// What does not fit.
    #[default]
    Newest,
    /// What has waited longest, in a queue of so many bytes of payload: for live video.
    Oldest {
        /// What may wait.
        bytes: usize,
    },
}

/// A group that a port receives, from any sender or from one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// The group; of the family of the port's address.
    pub group: IpAddr,
    /// Where its traffic is asked for; where the route to it leads if not given.
    pub interface: Option<String>,
    /// The only sender that is listened to.
    pub source: Option<IpAddr>,
}

/// The ports of a lane of datagrams, as its app may change them
/// ([`DatagramApp::on_ports`](crate::DatagramApp::on_ports)).
///
/// A number is never used again. What the kernel granted is read back into [`Lane::caps`].
pub trait DatagramPorts: Lane {
    /// Opens a port. It is one of the next round.
    ///
    /// # Errors
    /// What of the plan cannot be had, and the port is not there; a lane whose ports are fixed when it is
    /// opened refuses all.
    fn open_port(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        Err(self.fixed(plan.bind.to_string()))
    }

    /// Closes a port, and returns what it counted. From then on it receives nothing, and what is sent
    /// through it names a port that is not there.
    ///
    /// # Errors
    /// There is no such port, or the lane's ports are fixed.
    fn close_port(&mut self, port: PortId) -> Result<Counters, LaneError> {
        Err(self.fixed(format!("port {}", port.0)))
    }

    /// Makes a port a member of a group. There is no bound on groups but the system's.
    ///
    /// # Errors
    /// There is no such port, it is a member already, or what the kernel says.
    fn join(&mut self, port: PortId, _membership: &Membership) -> Result<(), LaneError> {
        Err(self.fixed(format!("port {}", port.0)))
    }

    /// Ends a membership, be it of the port's plan or of [`join`](Self::join).
    ///
    /// # Errors
    /// There is no such port or membership, or what the kernel says.
    fn leave(&mut self, port: PortId, _membership: &Membership) -> Result<(), LaneError> {
        Err(self.fixed(format!("port {}", port.0)))
    }

    /// Another descriptor of a port's socket, with which another process can go on where this one ends
    /// ([`adopt_port`](Self::adopt_port)). None where ports are no sockets of the kernel.
    ///
    /// # Errors
    /// There is no such port, or no descriptor left.
    fn share_port(&mut self, _port: PortId) -> Result<Option<OwnedFd>, LaneError> {
        Ok(None)
    }

    /// Goes on with the socket of a port that another process opened by this plan, with its memberships and with
    /// what is queued there. The port is [held](Self::hold_port): it receives nothing yet.
    ///
    /// # Errors
    /// The socket is not what the plan says or receives what this lane cannot take apart, or ports are no sockets
    /// of the kernel.
    fn adopt_port(&mut self, plan: &PortPlan, _socket: OwnedFd) -> Result<PortId, LaneError> {
        Err(self.fixed(plan.bind.to_string()))
    }

    /// Holds a port, which then takes nothing from its socket, or lets it receive again. What was taken before is
    /// shown.
    ///
    /// # Errors
    /// There is no such port, or ports are no sockets of the kernel.
    fn hold_port(&mut self, port: PortId, _is_held: bool) -> Result<(), LaneError> {
        Err(self.fixed(format!("port {}", port.0)))
    }

    /// True when everything that was received by ports that are held now has been shown, and everything that was
    /// sent has left or was dropped. Asked between two rounds.
    fn has_settled(&mut self) -> bool {
        true
    }

    /// The address that a port is bound to, with the UDP port that was chosen for it.
    fn bound(&self, _port: PortId) -> Option<SocketAddr> {
        None
    }

    /// The refusal of a lane whose ports are fixed.
    #[doc(hidden)]
    fn fixed(&self, name: String) -> LaneError {
        LaneError::Refused {
            lane: self.name().to_owned(),
            name,
            why: "its ports are those that it was opened with".to_owned(),
            hint: "name every address when the run begins, or use a lane of kernel sockets"
                .to_owned(),
        }
    }
}
