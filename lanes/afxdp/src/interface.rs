//! An interface with its queues, which only this lane asks for (`ethtool -l`).
//!
//! Assumes Linux's interface ioctls; everything is about the network namespace of the calling thread. What it does not
//! do: it changes nothing.

use crate::{
    config::{Config, NAME},
    sys::{self, Channels},
};
use laneway_core::{LaneError, PortMask};
use laneway_linux::refuse_default_route;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// An interface, asked by name.
pub(crate) struct Interface {
    linux: laneway_linux::Interface,
    control: OwnedFd,
}

impl Interface {
    /// Finds `name` in this thread's network namespace.
    ///
    /// # Errors
    /// [`LaneError::NotFound`] when it is not there.
    pub(crate) fn find(name: &str) -> Result<Interface, LaneError> {
        let linux = laneway_linux::Interface::find(NAME, name)?;
        let control = sys::socket(libc::AF_INET, libc::SOCK_DGRAM).map_err(|e| {
            LaneError::os(NAME, format!("ask about interface `{name}`"), e, "see `ip link`")
        })?;
        Ok(Interface { linux, control })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.linux.name()
    }

    /// Its index.
    pub(crate) fn index(&self) -> u32 {
        self.linux.index()
    }

    /// Its MTU in bytes, without the Ethernet header.
    pub(crate) fn mtu_bytes(&self) -> io::Result<u32> {
        Ok(self.linux.mtu_bytes()? as u32) // 32 bits in the kernel, too
    }

    /// True of one end of a virtual cable: what arrives is as another program of this machine left it.
    pub(crate) fn is_veth(&self) -> bool {
        self.linux.found().is_veth
    }

    /// True while the interface exists and is up.
    pub(crate) fn is_up(&self) -> bool {
        self.linux.is_up()
    }

    /// Its queues; `None` when the driver does not say.
    pub(crate) fn channels(&self) -> Option<Channels> {
        sys::interface_channels(self.control.as_fd(), self.name()).ok()
    }

    /// Refuses a queue that the interface does not have; says what would give it that queue.
    ///
    /// # Errors
    /// [`LaneError::Refused`] with the number of queues there are.
    pub(crate) fn check_queue(&self, queue: u32) -> Result<(), LaneError> {
        match self.channels() {
            Some(channels) if queue >= channels.rx => Err(no_queue(self.name(), queue, channels)),
            _ => Ok(()),
        }
    }
}

fn no_queue(name: &str, queue: u32, channels: Channels) -> LaneError {
    let want = queue + 1;
    let hint = if want <= channels.max_combined {
        format!(
            "raise the number with `ethtool -L {name} combined {want}`, or use fewer workers or a lower queue="
        )
    } else if want <= channels.max_rx {
        format!(
            "raise the number with `ethtool -L {name} rx {want} tx {want}`, or use fewer workers or a lower queue="
        )
    } else {
        let most = channels.max_combined.max(channels.max_rx);
        format!(
            "it can have at most {most} (`ethtool -l {name}`): use fewer workers or a lower queue="
        )
    };
    LaneError::Refused {
        lane: NAME.to_owned(),
        name: name.to_owned(),
        why: format!("it has {} receive queues, so no queue {queue}", channels.rx),
        hint,
    }
}

/// Checks that a lane may have ports on these, without asking about any.
pub(crate) fn check_names(interfaces: &[&str]) -> Result<(), LaneError> {
    let refused = |name: &str, why: &str, hint: &str| LaneError::Refused {
        lane: NAME.to_owned(),
        name: name.to_owned(),
        why: why.to_owned(),
        hint: hint.to_owned(),
    };
    if interfaces.is_empty() {
        return Err(refused("", "no interface was given", "name at least one"));
    }
    if let Some(name) = interfaces.get(PortMask::PORTS_MAX) {
        let why = format!("a lane has at most {} ports", PortMask::PORTS_MAX);
        return Err(refused(name, &why, "use several workers"));
    }
    match (1..interfaces.len()).find(|&i| interfaces[..i].contains(&interfaces[i])) {
        Some(i) => Err(refused(interfaces[i], "it was given twice", "name each interface once")),
        None => Ok(()),
    }
}

/// Finds an interface that this lane may be opened on.
pub(crate) fn find(name: &str, config: &Config, force: bool) -> Result<Interface, LaneError> {
    let interface = Interface::find(name)?;
    let refused = |why: String, hint: &str| LaneError::Refused {
        lane: NAME.to_owned(),
        name: name.to_owned(),
        why,
        hint: hint.to_owned(),
    };
    if !force {
        let hint = "use another interface, or insist with --force";
        refuse_default_route(NAME, name, "its traffic would go to the app", hint)?;
    }
    interface.check_queue(config.queue)?;
    if !interface.is_up() {
        let hint = format!("try `ip link set dev {name} up`");
        return Err(refused("it is down".to_owned(), &hint));
    }
    Ok(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_not_there_is_refused_with_the_count_and_the_command() {
        let sentence = |max_combined, max_rx| {
            no_queue("eth7", 5, Channels { rx: 2, max_combined, max_rx }).to_string()
        };
        for (text, words) in [
            (sentence(8, 0), "`ethtool -L eth7 combined 6`"),
            (sentence(0, 8), "`ethtool -L eth7 rx 6 tx 6`"),
            (sentence(0, 4), "at most 4"),
            (sentence(4, 0), "at most 4"),
        ] {
            assert!(text.contains("2 receive queues, so no queue 5"), "{text}");
            assert!(text.contains(words), "{text}");
        }
    }
}
