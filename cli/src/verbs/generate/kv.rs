//! `laneway gen kv`: the client of races of a store, by hand.

use super::tcp::ByHand;
use crate::arguments::KvArguments;
use laneway_kinds::Protocol;
use laneway_lab::client::{ClientPlan, Pace, Store, Until};
use laneway_terminal::{Exit, Failure};

/// How many of the requests over connections get a value.
const GET_SHARE: f64 = 0.5;

pub(super) fn run(arguments: &KvArguments, json: bool) -> Result<Exit, Failure> {
    // A datagram gets; it sets nothing.
    let usual_share = if arguments.udp.is_some() { 1.0 } else { GET_SHARE };
    let get_share = arguments.get_share.unwrap_or(usual_share);
    // It is any store, and how often a GET found nothing is printed.
    let store = Store { keys: arguments.keys, get_share, zipf: arguments.zipf, forgets: true };
    let plan = ClientPlan {
        to: arguments.to,
        protocol: Protocol::Resp,
        connections: arguments.connections,
        in_flight: arguments.pipeline,
        request_bytes: arguments.value_bytes.0,
        store: Some(store),
        datagrams: arguments.udp.map(|at| at.unwrap_or(arguments.to)),
        timeout_ms: arguments.timeout_ms,
        seed: arguments.seed,
    };
    let by_hand = ByHand {
        source: "kv",
        plan,
        pace: arguments.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second }),
        until: match arguments.requests {
            Some(requests) => Until::Requests(requests),
            None => Until::Time(arguments.duration),
        },
        cpu: arguments.cpu,
    };
    by_hand.ask(json)
}
