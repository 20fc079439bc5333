//! One mode of a lane, opened and closed again, to see what it obtains.
//!
//! Assumes that the calling thread stands in the network namespace of the interface, which is a
//! cable's end that nobody else uses. What must always hold: nothing is left when it returns, also
//! where a lane makes interfaces of its own. DPDK is started at most once per process and stays, without
//! a file: the modes asked after the first one find it running.

use super::{Lane, OnFrameLane, with_frame_lane};
use laneway_core::{CapsReport, FrameLane, Lane as _, LaneError, PortId};
use laneway_features::Config;
use laneway_sim::SimLane;
use laneway_socket::UdpLane;
use laneway_spec::LaneSpec;
use laneway_uring::{UringTcp, UringUdp};
use laneway_xdp::XdpLane;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Any free port of the loopback address.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The interface that a driver creates, or the name of a port that is none.
const OWN_INTERFACE: &str = "lwprobe0";

/// What a mode is asked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing that not everybody has: a file, a simulated link, the loopback address.
    Nothing,
    /// Nothing either, but it takes a name of the network namespace that somebody else may have: to be
    /// asked in one of its own where there is one.
    Name,
    /// Leave to create an interface.
    OwnInterface,
    /// An interface with a cable.
    Interface,
}

/// What `spec` must be given to be asked.
///
/// # Errors
/// When there is no such lane.
pub fn needs(spec: &LaneSpec) -> Result<Needs, LaneError> {
    Ok(match Lane::of(spec)?.lane {
        Lane::Socket | Lane::Uring | Lane::Pcap | Lane::Sim => Needs::Nothing,
        Lane::Packet | Lane::Xdp | Lane::AfXdp => Needs::Interface,
        Lane::Dpdk => match driver(spec).as_str() {
            "net_memif" | "net_ring" | "net_null" => Needs::Name,
            "net_tap" => Needs::OwnInterface,
            _ => Needs::Interface,
        },
    })
}

/// The first knob, which for lane `dpdk` is the driver.
fn driver(spec: &LaneSpec) -> String {
    let text = spec.to_string();
    let knobs = text.split_once(':').map_or("", |(_, knobs)| knobs);
    knobs.split(',').next().unwrap_or_default().to_owned()
}

/// Opens the lane of `spec` on `interface` as an app would, closes it, and gives what its port asked
/// for and obtained. What [`needs`] no interface is given none; lane `pcap` obtains nothing from a
/// machine and gives an empty report.
///
/// # Errors
/// Why the lane cannot be opened.
pub fn probe(spec: &LaneSpec, interface: &str) -> Result<CapsReport, LaneError> {
    let port = PortId(0);
    match Lane::of(spec)?.lane {
        Lane::Xdp => {
            let half = laneway_features::half(&Config::default());
            let options =
                laneway_xdp::Options { never_transmits: true, ..laneway_xdp::Options::default() };
            Ok(XdpLane::open(spec, &[interface], half, options)?.caps(port).clone())
        }
        Lane::Socket => Ok(UdpLane::open(spec, &[ANYWHERE])?.caps(port).clone()),
        // Streams have a knob of their own; what is left is asked for by datagrams.
        Lane::Uring if driver(spec) == "bundle" => {
            Ok(UringTcp::open(spec, &[ANYWHERE])?.caps(port).clone())
        }
        Lane::Uring => Ok(UringUdp::open(spec, &[ANYWHERE])?.caps(port).clone()),
        Lane::Pcap => Ok(CapsReport::default()),
        Lane::Sim => Ok(SimLane::open(spec, 1)?.0.caps(port).clone()),
        Lane::Packet | Lane::AfXdp | Lane::Dpdk => {
            let name = match needs(spec)? {
                Needs::Interface => interface,
                Needs::OwnInterface | Needs::Name | Needs::Nothing => OWN_INTERFACE,
            };
            with_frame_lane(spec, &[name], false, Look)
        }
    }
}

/// Only looks at what a lane obtained.
struct Look;

impl OnFrameLane for Look {
    type Out = CapsReport;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> CapsReport {
        lane.caps(PortId(0)).clone()
    }
}
