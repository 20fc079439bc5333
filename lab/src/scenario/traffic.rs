//! What a scenario's values ask to be sent, and when.

use super::{Asks, SOCKETS, Scenario, Sizes, value};
use crate::addresses::{ECHO, GENERATOR, SERVICE, SUT};
use crate::client::ClientPlan;
use crate::error::ScenarioError;
use crate::fanout::{Fanout, FanoutPlan};
use crate::timetable::{Spacing, Times};
use crate::traffic::{
    FRAME_BYTES_MAX, FRAME_BYTES_UNTAGGED_MAX, PAYLOAD_BYTES, Payloads, TrafficPlan,
};
use laneway_kinds::{AppFacts, Protocol, Traffic};

impl Scenario {
    /// What is sent to this app.
    pub(crate) fn traffic(&self, app: &AppFacts) -> Result<TrafficPlan, ScenarioError> {
        let kind = self.traffic_kind(app)?;
        Ok(match (kind, &self.capture) {
            (Traffic::Capture { tagged }, Some(path)) => {
                let frame_bytes_max =
                    if tagged { FRAME_BYTES_MAX } else { FRAME_BYTES_UNTAGGED_MAX };
                TrafficPlan::Capture { path: path.clone(), frame_bytes_max }
            }
            (Traffic::Pings, _) => TrafficPlan::Ping {
                payload_bytes: self.payload_bytes.unwrap_or(0),
                source: *GENERATOR.ip(),
                destination: ECHO,
            },
            (Traffic::Tcp(protocol), _) => {
                let asks = self.client.expect("it makes the traffic what it is");
                TrafficPlan::Tcp(asks.plan(protocol, self.seed))
            }
            (Traffic::Fanout, _) => TrafficPlan::Fanout(FanoutPlan {
                fanout: self.fanout.expect("it makes the traffic what it is"),
                payload_bytes: self.payload_bytes.unwrap_or(0),
                run: self.burst,
                source: GENERATOR,
            }),
            _ => TrafficPlan::Udp {
                payloads: match self.sizes {
                    Some(Sizes::Imix) => Payloads::Imix,
                    None => Payloads::Fixed(self.payload_bytes.unwrap_or(0)),
                },
                source: GENERATOR,
                destination: SUT,
            },
        })
    }

    /// When that is due.
    pub(crate) fn times(&self, traffic: &TrafficPlan) -> Times {
        match (self.arrivals, traffic) {
            (Spacing::Poisson, _) => Times::Poisson { seed: self.seed },
            (Spacing::Capture, TrafficPlan::Capture { path, frame_bytes_max }) => {
                Times::Capture { path: path.clone(), frame_bytes_max: *frame_bytes_max }
            }
            (Spacing::Steady | Spacing::Capture, _) => Times::Steady,
        }
    }

    /// Which of an app's kinds of traffic this scenario has.
    pub(super) fn traffic_kind(&self, app: &AppFacts) -> Result<Traffic, ScenarioError> {
        if let Some(sizes) = self.sizes {
            return self.mixed(sizes, app);
        }
        let kinds = app.race.traffic;
        if let Some(asks) = &self.client {
            return self.asked_kind(app, asks);
        }
        if let Some(fanout) = &self.fanout {
            return self.copied_kind(app, fanout);
        }
        if kinds == [Traffic::Fanout] {
            let hint = "give `[fanout]` with groups, outputs and cables";
            return Err(value(
                format!("the section `[fanout]` of app {}", app.name),
                "missing",
                hint,
            ));
        }
        let is_capture = |kind: &Traffic| matches!(kind, Traffic::Capture { .. });
        let capture = kinds.iter().copied().find(is_capture);
        let is_asked = |kind: &Traffic| matches!(kind, Traffic::Tcp(_) | Traffic::Fanout);
        let made = kinds.iter().copied().find(|kind| !is_capture(kind) && !is_asked(kind));
        let what = format!("the traffic of app {}", app.name);
        match (&self.capture, self.payload_bytes, capture, made) {
            (Some(_), None, Some(kind), _) => Ok(kind),
            (None, Some(bytes), _, Some(kind)) if PAYLOAD_BYTES.contains(&bytes) => Ok(kind),
            (None, Some(bytes), _, Some(_)) => {
                let hint = format!("{} to {}", PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
                Err(value("payload_bytes", bytes, hint))
            }
            (_, _, Some(_), Some(_)) => {
                Err(value(what, "both or none", "give `capture` or `payload_bytes`, one of them"))
            }
            (_, _, Some(_), None) => {
                Err(value(what, "not a capture", "give `capture`, and no `payload_bytes`"))
            }
            (_, _, None, _) => {
                let hint = "give `payload_bytes`, and no `capture`: its frames are made here";
                Err(value(what, "a capture", hint))
            }
        }
    }

    /// The same of a mix of sizes.
    pub(super) fn mixed(&self, sizes: Sizes, app: &AppFacts) -> Result<Traffic, ScenarioError> {
        let Sizes::Imix = sizes;
        if self.capture.is_some() || self.payload_bytes.is_some() {
            let hint = "give `sizes`, `payload_bytes` or `capture`, one of them";
            return Err(value("sizes", "imix", hint));
        }
        if !app.race.traffic.contains(&Traffic::Udp) {
            let hint = format!("app {} is not sent UDP made here: leave it out", app.name);
            return Err(value("sizes", "imix", hint));
        }
        Ok(Traffic::Udp)
    }

    /// The kind of traffic of a scenario with fan-out.
    pub(super) fn copied_kind(
        &self,
        app: &AppFacts,
        fanout: &Fanout,
    ) -> Result<Traffic, ScenarioError> {
        if !app.race.traffic.contains(&Traffic::Fanout) {
            let hint = "this app is sent nothing to copy: take `[fanout]` out";
            return Err(value("app", app.name, hint));
        }
        fanout.check().map_err(|(what, is, hint)| value(format!("fanout.{what}"), is, hint))?;
        if self.capture.is_some() || self.sizes.is_some() || self.client.is_some() {
            let hint = "its datagrams are made here: leave `capture`, `sizes` and `[client]` out";
            return Err(value("the traffic of a scenario with `[fanout]`", "both", hint));
        }
        let hint = || format!("{} to {}", PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
        match self.payload_bytes {
            Some(bytes) if PAYLOAD_BYTES.contains(&bytes) => Ok(Traffic::Fanout),
            Some(bytes) => Err(value("payload_bytes", bytes, hint())),
            None => Err(value("payload_bytes", "missing", hint())),
        }
    }

    /// The kind of traffic of a scenario with a client.
    pub(super) fn asked_kind(&self, app: &AppFacts, asks: &Asks) -> Result<Traffic, ScenarioError> {
        let kind = app.race.traffic.iter().find_map(|&kind| match kind {
            Traffic::Tcp(protocol) => Some((kind, protocol)),
            Traffic::Capture { .. } | Traffic::Udp | Traffic::Pings | Traffic::Fanout => None,
        });
        let Some((kind, protocol)) = kind else {
            let hint = "nothing is asked of this app over connections: take `[client]` out";
            return Err(value("app", app.name, hint));
        };
        if self.capture.is_some() || self.payload_bytes.is_some() || self.sizes.is_some() {
            let hint =
                "a client makes its own requests: leave `capture`, `payload_bytes` and `sizes` out";
            return Err(value("the traffic of a scenario with `[client]`", "both", hint));
        }
        if self.generator != SOCKETS {
            let hint = format!("`{SOCKETS}`: a client asks over the kernel's");
            return Err(value("generator", &self.generator, hint));
        }
        let plan = asks.plan(protocol, self.seed);
        plan.check().map_err(|(what, is, hint)| value(format!("client.{what}"), is, hint))?;
        Ok(kind)
    }
}

impl Asks {
    /// What it says over its connections.
    pub fn protocol(&self) -> Protocol {
        self.store.map_or(Protocol::Echo, |_| Protocol::Resp)
    }

    pub(super) fn plan(&self, protocol: Protocol, seed: u64) -> ClientPlan {
        ClientPlan {
            to: SERVICE.into(),
            protocol,
            connections: self.connections,
            in_flight: self.in_flight,
            request_bytes: self.request_bytes,
            store: self.store,
            datagrams: None,
            timeout_ms: self.timeout_ms,
            seed,
        }
    }
}
