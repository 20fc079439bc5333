//! The client of a store against a real `redis-server`, in a namespace of its own, whose own counters say what was
//! asked.

use super::*;
use crate::child::forwarders::call;
use crate::client::{Answered, ClientPlan, Pace, Store, Until, ask};
use crate::command::find;
use laneway_kinds::Protocol;
use laneway_netns::{Namespace, can_create};
use laneway_testkit::skip;
use std::num::NonZeroU32;

const ADDRESS: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 6_379);
const KEYS: u32 = 300;

/// What `INFO all` says of these: calls of SET and GET, GETs that found something, and that did not.
fn counters() -> [u64; 4] {
    let mut stream = TcpStream::connect(ADDRESS).unwrap();
    stream.set_read_timeout(Some(READY_MAX)).unwrap();
    stream.write_all(b"INFO all\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    ["cmdstat_set:calls=", "cmdstat_get:calls=", "keyspace_hits:", "keyspace_misses:"].map(|name| {
        let digits = answer.split_once(name).map_or("0", |(_, rest)| rest);
        digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    })
}

/// Asks it, and holds what the client says against what the server does.
fn referee(plan: &ClientPlan, pace: Pace, requests: u32) -> Answered {
    let before = counters();
    let until = Until::Requests(NonZeroU32::new(requests).unwrap());
    let answered = ask(plan, pace, until, || false).unwrap();
    let after = counters();
    let [sets, gets, hits, misses] = [0, 1, 2, 3].map(|at| after[at] - before[at]);
    let ledger = &answered.ledger;
    assert_eq!((&answered.wrong, ledger.is_closed()), (&None, true), "{answered:?}");
    assert_eq!((ledger.offered, ledger.delivered), (requests.into(), requests.into()));
    assert_eq!(answered.opening, u64::from(KEYS));
    let kind = |name: &str| answered.kinds[name];
    assert_eq!(sets, kind("SET") + answered.opening);
    assert_eq!(gets, kind("GET, a value") + kind("GET, nothing"));
    assert_eq!((hits, misses), (kind("GET, a value"), kind("GET, nothing")));
    answered
}

/// Whether there is a server and leave to make a namespace for it.
fn namespace() -> Option<Namespace> {
    can_create().map_err(skip).ok()?;
    find(PROGRAM).map_err(skip).ok()?;
    let namespace = Namespace::create("redis").unwrap();
    namespace.enter(|| call("ip", &["link", "set", "dev", "lo", "up"])).unwrap().unwrap();
    Some(namespace)
}

#[test]
fn a_real_server_counts_what_the_client_says_it_asked() {
    let Some(namespace) = namespace() else { return };
    let plan = |connections, in_flight, request_bytes, get_share, zipf| ClientPlan {
        to: ADDRESS.into(),
        protocol: Protocol::Resp,
        connections,
        in_flight,
        request_bytes,
        store: Some(Store { keys: KEYS, get_share, zipf, forgets: false }),
        datagrams: None,
        timeout_ms: 30_000,
        seed: 9,
    };
    namespace
        .enter(|| {
            let _server = RedisServer::start(Knobs::default(), ADDRESS, 0).unwrap();
            referee(&plan(3, 16, [64, 64], 0.8, Some(0.99)), Pace::Closed, 3_000);
            referee(&plan(1, 1, [16, 40_000], 0.5, None), Pace::Closed, 200);
            referee(&plan(50, 1, [64, 64], 0.0, None), Pace::Open { per_second: 5_000.0 }, 500);
            let answered = referee(&plan(100, 4, [64, 64], 1.0, None), Pace::Closed, 1_000);
            assert_eq!(answered.kinds["GET, nothing"], 0);
        })
        .unwrap();
}

#[test]
fn a_server_with_a_log_says_where_it_keeps_it_and_leaves_nothing() {
    let Some(namespace) = namespace() else { return };
    namespace
        .enter(|| {
            let knobs = Knobs::read("redis-server:appendfsync=always").unwrap();
            let mut server = RedisServer::start(knobs, ADDRESS, 0).unwrap();
            server.check().unwrap();
            let folder = server.disk.path().to_owned();
            assert!(folder.join("appendonlydir").exists());
            let [(_, program), (_, disk)] = server.facts(knobs);
            assert!(program.ends_with("--appendonly yes --appendfsync always"), "{program}");
            assert!(disk.contains("fdatasync"), "{disk}");
            // The address is taken.
            let second = RedisServer::start(Knobs::default(), ADDRESS, 0).err();
            drop(server);
            assert!(!folder.exists() && TcpStream::connect(ADDRESS).is_err());
            let why = second.expect("two cannot listen there");
            assert!(why.contains("redis-server ended"), "{why}");
        })
        .unwrap();
}
