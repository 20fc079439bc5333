//! What the race tells its child processes and what they answer: one JSON object per line.
//!
//! A trial is two fresh processes, the arm and the generator. Both walk the same segments; the
//! schedule of a segment is fixed before it starts, so the arm's sink knows when every frame was
//! due without anything being written into the frame but its number.

use crate::arrivals::Arrived;
use crate::client::{Asked, Asking, ClientPlan, Reopened};
use crate::fanout::FanoutPlan;
use crate::result::{GeneratorReport, Memory};
use crate::round_trips::RoundTrips;
use crate::segment::{Plant, SegmentPlan, SegmentSeen};
use crate::timetable::Times;
use crate::traffic::TrafficPlan;
use laneway_core::{CapsReport, Counters};
use laneway_kinds::{AppFacts, Peer, Traffic};
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

/// How long a child that is to end may take before it is killed.
pub(crate) const CHILD_END_MAX: Duration = Duration::from_secs(3);

/// What a lane hands to an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Ethernet frames to any address.
    #[default]
    Frames,
    /// Datagrams that are addressed to it.
    Datagrams,
}

/// The first line to an arm: what to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArmSetup {
    /// Name of its app.
    pub app: String,
    /// The app's arguments, beside those that say where it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The foreign program, if it is one.
    pub peer: Option<Peer>,
    /// False of a program that receives and does not say how much.
    pub counts: bool,
    /// Lane spec; of a peer, its device, or its command line.
    pub lane: String,
    /// Payload of what it is sent, bytes, where all of it has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u16>,
    /// The client that asks it over connections, if that is its traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientPlan>,
    /// What is to be copied where, if that is its traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fanout: Option<FanoutPlan>,
    /// Interfaces of its namespace, one per port.
    pub interfaces: Vec<String>,
    /// Where it listens if it sees datagrams, or what it answers for; one per port.
    pub addresses: Vec<SocketAddrV4>,
    /// Where what it sends on goes to.
    pub onward: SocketAddrV4,
    /// When what it is sent is due.
    #[serde(default, skip_serializing_if = "Times::is_steady")]
    pub times: Times,
    /// CPU of the worker.
    pub cpu: usize,
    /// Its fault, if any.
    pub plant: Plant,
    /// Of `dpdk-testpmd`: its forwarding mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Trace the worker. An arm that is measured has none, unless the scenario measures tracing itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TracePlan>,
}

impl ArmSetup {
    /// The row of its app, as it is raced.
    pub(crate) fn raced(&self, app: &AppFacts) -> AppFacts {
        let race = match (&self.client, &self.fanout) {
            (Some(client), _) => app.race.under(Traffic::Tcp(client.protocol)),
            (None, Some(plan)) => plan.fanout.raced(app.race),
            (None, None) => app.race,
        };
        AppFacts { race, ..*app }
    }
}

/// What of an arm is traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracePlan {
    /// Where the trace goes; it is there and empty. None: to a folder of the arm's own that goes with it, because
    /// what is asked is what recording costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Longest stretch of a segment that is recorded, ns, and nothing else is. None: everything is.
    pub window_ns_max: Option<u64>,
    /// Bytes of its file.
    pub file_bytes_max: u64,
}

/// What became of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnd {
    /// Records in its file.
    pub records: u64,
    /// Records that found no room in the ring or in the file.
    pub lost: u64,
}

/// The first line to a generator: what to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GeneratorSetup {
    /// What to send.
    pub traffic: TrafficPlan,
    /// When it is due.
    pub times: Times,
    /// How frames enter the wire.
    pub way: WayIn,
    /// Destination of every frame.
    pub destination: [u8; 6],
    /// CPU of the sender.
    pub cpu: usize,
}

/// How frames enter a wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WayIn {
    /// Made by the kernel (XDP live frames).
    Live {
        /// Index of the interface of its namespace that they leave by.
        ifindex: u32,
        /// It is a TAP device.
        to_tap: bool,
    },
    /// Sent on a lane.
    Lane {
        /// Its spec.
        lane: String,
        /// Interface of its namespace.
        interface: String,
    },
    /// By sockets of the kernel's, where a client asks.
    Sockets,
    /// Sent by the first of a lane's two ports, whose second is the far end: what comes out of the
    /// arm there is ticked off by the generator itself.
    BothEnds {
        /// The lane's spec.
        lane: String,
        /// Names of its ports.
        ports: [String; 2],
    },
}

/// From the race to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Generator: send this. Arm: this is coming.
    Segment(SegmentPlan),
    /// Client: ask this.
    Ask(Asking),
    /// Arm, and a generator that is the far end, too: report what there is so far. Client: see to the connections.
    Report,
    /// End.
    Stop,
}

/// From a child to the race.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// Set up and waiting.
    Ready(Ready),
    /// Generator: a segment is sent.
    Sent(GeneratorReport),
    /// Client: every request of a segment has an end.
    Asked(Box<Asked>),
    /// Client: the connections are seen to.
    Reopened(Reopened),
    /// Arm: the state when [`Order::Report`] was handled.
    Report(Box<ArmReport>),
    /// Generator that is the far end, too: the same of the far end.
    FarEnd(FarEndReport),
    /// Arm that was traced: it has stopped, and its trace is complete.
    Traced(TraceEnd),
    /// It failed; one sentence.
    Failed(String),
}

/// A child that is set up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// What the lane obtained; for the generator, of its own lane.
    pub caps: CapsReport,
    /// Of an arm: what its lane hands to the app, so how frames must be addressed.
    pub shape: Shape,
    /// Of an arm: processes besides its own whose time is the arm's.
    pub processes: Vec<u32>,
}

/// An arm's state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ArmReport {
    /// The lane's counters, the kernel's read afresh: cumulative over the process.
    pub lane: Counters,
    /// The app's counters, cumulative.
    pub app: Counters,
    /// What the sink saw of the segment that was announced last.
    pub segment: Option<SegmentSeen>,
    /// Records of all segments, those that arrived twice included.
    pub records: u64,
    /// Records of frames that no announced segment sent.
    pub foreign: u64,
    /// Latencies of wake-up probes, ns, in order of arrival; at most [`PROBES_MAX`].
    pub wakeups_ns: Vec<u64>,
    /// Memory now.
    pub memory: Memory,
}

/// What a generator that is the far end, too, has to say of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FarEndReport {
    /// The outcome of the segment under way.
    pub arrived: Arrived,
    /// How long sampled frames of it took since they were due.
    pub trips: RoundTrips,
    /// Frames that found no room in front of the arm, cumulative.
    pub ring_full: u64,
    /// Frames that left the arm and could not be taken over, cumulative.
    pub receive: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_that_is_not_traced_is_sent_nothing_about_traces() {
        let setup = ArmSetup {
            app: "forward".to_owned(),
            arguments: Vec::new(),
            peer: None,
            counts: true,
            lane: "packet".to_owned(),
            payload_bytes: None,
            client: None,
            fanout: None,
            interfaces: vec!["sut0".to_owned()],
            addresses: Vec::new(),
            onward: SocketAddrV4::new([10, 0, 0, 1].into(), 1),
            times: Times::Steady,
            cpu: 0,
            plant: Plant::None,
            mode: None,
            trace: None,
        };
        let line = serde_json::to_string(&setup).unwrap();
        assert!(!line.contains("trace"), "{line}");
        assert_eq!(serde_json::from_str::<ArmSetup>(&line).unwrap(), setup);
    }

    #[test]
    fn orders_travel_as_one_line() {
        let line = serde_json::to_string(&Order::Report).unwrap();
        assert_eq!(line, "\"report\"");
        assert_eq!(serde_json::from_str::<Order>(&line).unwrap(), Order::Report);
    }
}
