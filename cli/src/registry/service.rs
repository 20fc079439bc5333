//! Lanes that carry datagrams or streams: the kernel's sockets, or a stack in user space on a lane
//! that carries frames.
//!
//! Assumes what the registry assumes. What must always hold: an app is given the same shape on every
//! lane, whoever's stack is below. What it does not do: it looks for no addresses; whoever asks says
//! what the stack's own are.

use super::{Lane, WithFrameLane, give_frame_lane, refused};
use laneway_core::{DatagramLane, FrameLane, LaneError, StreamLane};
use laneway_socket::{TcpLane, UdpLane};
use laneway_spec::LaneSpec;
use laneway_stack::{DatagramStack, InterfaceConfig, StackConfig, StreamStack};
use laneway_uring::{UringTcp, UringUdp};
use std::net::SocketAddr;

/// Where a datagram or stream app listens.
#[derive(Clone, Debug)]
pub struct Service<'a> {
    /// The addresses; port `i` of the lane is `listen[i]`.
    pub listen: &'a [SocketAddr],
    /// The interfaces, for lanes that carry frames.
    pub interfaces: &'a [&'a str],
    /// Who we are on each of them, for the stack.
    pub own: Vec<InterfaceConfig>,
    /// Time to live of what the stack sends; its own default if not given.
    pub hop_limit: Option<u8>,
}

impl Service<'_> {
    /// What a stack on a lane of frames is told.
    pub(crate) fn stack(&self) -> StackConfig {
        // The list of interfaces is replaced as a whole.
        let nobody = InterfaceConfig::new([0; 6], Vec::new());
        let mut config = StackConfig::new(nobody, self.listen.to_vec());
        config.interfaces.clone_from(&self.own);
        // The interface stays the kernel's, which has addresses and programs of its own there.
        config.pass_rest = true;
        if let Some(hop_limit) = self.hop_limit {
            config.hop_limit = hop_limit;
        }
        config
    }
}

/// What is done with a datagram lane once it is open; compiled once per lane.
pub(crate) trait OnDatagramLane {
    /// What comes of it.
    type Out;

    /// The lane's datagrams are stamped with `CLOCK_MONOTONIC`.
    fn on_lane<L: DatagramLane>(self, lane: &mut L) -> Self::Out;
}

/// What is done with a stream lane once it is open; compiled once per lane.
pub(crate) trait OnStreamLane {
    /// What comes of it.
    type Out;

    /// The lane's timers run on `CLOCK_MONOTONIC`.
    fn on_lane<L: StreamLane>(self, lane: &mut L) -> Self::Out;
}

/// True for lanes whose datagrams and streams are the kernel's: they need no interface.
pub fn is_the_kernels(lane: Lane) -> bool {
    matches!(lane, Lane::Socket | Lane::Uring)
}

/// True for lanes that datagrams and streams go over by way of a stack of ours.
pub fn takes_a_stack(lane: Lane) -> bool {
    matches!(lane, Lane::Packet | Lane::AfXdp | Lane::Dpdk)
}

/// Opens the lane that `spec` names for datagrams.
///
/// # Errors
/// When it cannot be opened, or carries none.
pub(crate) fn with_datagram_lane<V: OnDatagramLane>(
    spec: &LaneSpec,
    service: &Service<'_>,
    force: bool,
    then: V,
) -> Result<V::Out, LaneError> {
    let entry = Lane::of(spec)?;
    match entry.lane {
        Lane::Socket => Ok(then.on_lane(&mut UdpLane::open(spec, service.listen)?)),
        Lane::Uring => Ok(then.on_lane(&mut UringUdp::open(spec, service.listen)?)),
        lane if takes_a_stack(lane) => {
            let stacked = DatagramsOn { config: service.stack(), then };
            give_frame_lane(spec, service.interfaces, force, stacked)?
        }
        _ => Err(refused(entry, spec, "it carries no datagrams", HINT)),
    }
}

/// Opens the lane that `spec` names for streams.
///
/// # Errors
/// When it cannot be opened, or carries none.
pub(crate) fn with_stream_lane<V: OnStreamLane>(
    spec: &LaneSpec,
    service: &Service<'_>,
    force: bool,
    then: V,
) -> Result<V::Out, LaneError> {
    let entry = Lane::of(spec)?;
    match entry.lane {
        Lane::Socket => Ok(then.on_lane(&mut TcpLane::open(spec, service.listen)?)),
        Lane::Uring => Ok(then.on_lane(&mut UringTcp::open(spec, service.listen)?)),
        lane if takes_a_stack(lane) => {
            let stacked = StreamsOn { config: service.stack(), then };
            give_frame_lane(spec, service.interfaces, force, stacked)?
        }
        _ => Err(refused(entry, spec, "it carries no streams", HINT)),
    }
}

/// What to use instead of a lane that has no such shape.
const HINT: &str = "use socket, uring, packet, afxdp or dpdk";

/// Datagrams over a stack on whatever lane it is given.
pub(crate) struct DatagramsOn<V> {
    pub(crate) config: StackConfig,
    pub(crate) then: V,
}

impl<V: OnDatagramLane> WithFrameLane for DatagramsOn<V> {
    type Out = Result<V::Out, LaneError>;

    fn with_lane<L: FrameLane>(self, lane: L) -> Self::Out {
        Ok(self.then.on_lane(&mut DatagramStack::new(lane, &self.config)?))
    }
}

/// Streams over a stack on whatever lane it is given.
pub(crate) struct StreamsOn<V> {
    pub(crate) config: StackConfig,
    pub(crate) then: V,
}

impl<V: OnStreamLane> WithFrameLane for StreamsOn<V> {
    type Out = Result<V::Out, LaneError>;

    fn with_lane<L: FrameLane>(self, lane: L) -> Self::Out {
        Ok(self.then.on_lane(&mut StreamStack::new(lane, &self.config)?))
    }
}
