//! Memberships of ports: which groups are heard where, and how they are reported.

use super::DatagramStack;
use crate::{
    host::Host,
    ports::{Heard, Port},
};
use laneway_core::{FrameLane, LaneError, Membership};

impl<L: FrameLane> DatagramStack<L> {
    /// What a membership means that a port is to have.
    pub(super) fn heard(&self, port: &Port, membership: &Membership) -> Result<Heard, LaneError> {
        let heard = self.meant(port, membership)?;
        if port.is_member(heard) {
            return Err(LaneError::Refused {
                lane: self.lane.name().to_owned(),
                name: name_of(membership),
                why: "the port is a member already".to_owned(),
                hint: "leave it out".to_owned(),
            });
        }
        Ok(heard)
    }

    /// What a membership of a port means here.
    pub(super) fn meant(&self, port: &Port, membership: &Membership) -> Result<Heard, LaneError> {
        let Membership { group, interface, source } = membership;
        let (lane, name) = (self.lane.name().to_owned(), name_of(membership));
        let refused = |why: &str, hint: &str| {
            let (lane, name) = (lane.clone(), name.clone());
            Err(LaneError::Refused { lane, name, why: why.to_owned(), hint: hint.to_owned() })
        };
        let v4 = port.bound.is_ipv4();
        if !group.is_multicast() {
            return refused("that is no group", "groups are 224.0.0.0/4 and ff00::/8");
        }
        if group.is_ipv4() != v4 || source.is_some_and(|source| source.is_ipv4() != v4) {
            let hint = format!("the port is at {}; open one of the other family", port.bound);
            return refused("it is of another family than the port", &hint);
        }
        if source.is_some_and(|source| source.is_multicast() || source.is_unspecified()) {
            return refused("a sender is one host", "name its address, or none for all");
        }
        if !port.bound.ip().is_multicast() && !port.bound.ip().is_unspecified() {
            let hint = "bind to the group, or to all addresses";
            return refused("a port at the address of one host receives no group", hint);
        }
        let by_name = interface.as_ref().map(|name| {
            self.host.interface_named(name).ok_or_else(|| LaneError::NotFound {
                lane: lane.clone(),
                what: "interface",
                name: name.clone(),
                hint: "a stack has the interfaces that its lane was opened with".to_owned(),
            })
        });
        let found = || self.host.interface_for(v4).unwrap_or(0) as u8;
        let interface = by_name.transpose()?.or(port.interface).unwrap_or_else(found);
        Ok((interface, *group, *source))
    }

    /// One more hears a group.
    pub(super) fn enter(&mut self, heard: Heard, membership: &Membership) -> Result<(), LaneError> {
        let (interface, group, source) = heard;
        if self.host.members.len() >= self.groups_max {
            return Err(LaneError::Refused {
                lane: self.lane.name().to_owned(),
                name: name_of(membership),
                why: format!("{} groups are heard already", self.host.members.len()),
                hint: "leave some, or use more workers".to_owned(),
            });
        }
        if self.host.members.join(interface, group, source)
            && let Some(holder) = &mut self.holder
            && let Err(error) = holder.join(&named(&self.host, heard))
        {
            self.host.members.leave(interface, group, source);
            return Err(error);
        }
        Ok(())
    }

    /// One hears it no longer.
    pub(super) fn exit(&mut self, heard: Heard) -> Result<(), LaneError> {
        let (interface, group, source) = heard;
        if self.host.members.leave(interface, group, source)
            && let Some(holder) = &mut self.holder
        {
            return holder.leave(&named(&self.host, heard));
        }
        Ok(())
    }

    /// Forgets all memberships of a port that is no more.
    pub(super) fn exit_all(&mut self, port: &Port) {
        for heard in port.memberships() {
            // What the kernel does not let go of goes with the holder; no port here hears it.
            let _ = self.exit(heard);
        }
    }
}

/// What is heard, for callers that know interfaces by name.
pub(super) fn named(host: &Host, (interface, group, source): Heard) -> Membership {
    let interface = Some(host.interfaces[usize::from(interface)].name.clone());
    Membership { group, interface, source }
}

/// A group as people write it: `239.1.1.1 from 192.0.2.7 on eth1`.
pub(super) fn name_of(membership: &Membership) -> String {
    let mut name = membership.group.to_string();
    if let Some(source) = membership.source {
        name += &format!(" from {source}");
    }
    if let Some(interface) = &membership.interface {
        name += &format!(" on {interface}");
    }
    name
}
