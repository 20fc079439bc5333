//! Where a port of a rule is, or is to be when its interface is there.

use laneway_core::{DatagramPorts, LaneError, PortId, PortPlan};
use laneway_linux::Links;

/// Where a port is, or why there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Berth {
    pub(super) port: Option<PortId>,
    /// The number of the interface that it was opened on; 0 where no interface is named or known.
    ifindex: u32,
    /// What it waits for.
    pub(super) waits: Option<Box<str>>,
}

/// What interfaces make of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is there, or has nothing to wait for.
    Nothing,
    /// It may be had now.
    Open,
    /// Its interface is gone; another one may have the name.
    Close,
}

impl Berth {
    /// Opens a port. Where its interface is not there and `may_wait` says so, it is opened later.
    pub(super) fn open(
        plan: &PortPlan,
        ports: &mut impl DatagramPorts,
        links: &Links,
        may_wait: bool,
    ) -> Result<Berth, LaneError> {
        match ports.open_port(plan) {
            Ok(port) => Ok(Berth::at(port, plan.interface.as_deref(), links)),
            Err(error) if may_wait && is_absent(&error) => {
                Ok(Berth { waits: plan.interface.as_deref().map(no_interface), ..Berth::default() })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn at(port: PortId, interface: Option<&str>, links: &Links) -> Berth {
        let link = interface.and_then(|name| links.find(name));
        Berth { port: Some(port), ifindex: link.map_or(0, |link| link.index), waits: None }
    }

    /// What is to be done, as interfaces are now.
    pub(super) fn need(&self, interface: Option<&str>, links: &Links) -> Need {
        let now = interface.map(|name| links.find(name).map_or(0, |link| link.index));
        match (self.port, now) {
            (Some(_), None) | (None, Some(0)) => Need::Nothing,
            (None, _) => Need::Open,
            (Some(_), Some(index)) if index == self.ifindex => Need::Nothing,
            (Some(_), Some(_)) => Need::Close,
        }
    }

    /// Its port was closed, because its interface is gone.
    pub(super) fn lost(&mut self, interface: Option<&str>) {
        *self = Berth { waits: interface.map(no_interface), ..Berth::default() };
    }

    /// Tries again to open a port that waits. What cannot be had now is what it waits for.
    pub(super) fn retry(
        &mut self,
        plan: &PortPlan,
        ports: &mut impl DatagramPorts,
        links: &Links,
    ) -> Option<PortId> {
        let interface = plan.interface.as_deref();
        match ports.open_port(plan) {
            Ok(port) => *self = Berth::at(port, interface, links),
            Err(error) if is_absent(&error) => self.lost(interface),
            Err(error) => self.waits = Some(error.to_string().into()),
        }
        self.port
    }
}

/// True for the answer of a lane that does not find the interface.
pub(super) fn is_absent(error: &LaneError) -> bool {
    matches!(error, LaneError::NotFound { what: "interface", .. })
}

fn no_interface(name: &str) -> Box<str> {
    format!("there is no interface `{name}`").into()
}
