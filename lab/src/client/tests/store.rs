//! The client of a store against servers of this process that do right or lie, over loopback.

use super::*;
use crate::client::honest::{Honest, bulk};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

pub(super) const KEYS: u32 = 20;

/// Serves a store whose answers `change` makes of the right ones: of the `n`th on its connection, from 0. What it makes
/// empty ends the connection.
fn store(change: impl Fn(usize, Vec<u8>) -> Vec<u8> + Send + Sync + Clone + 'static) -> SocketAddr {
    let shared = Arc::new(Mutex::new(Honest::default()));
    server(move |mut stream| {
        stream.set_nodelay(true)?;
        let (mut bytes, mut asked, mut n) = (vec![0; 4_096], Vec::new(), 0);
        loop {
            let read = stream.read(&mut bytes)?;
            asked.extend_from_slice(&bytes[..read]);
            for answer in shared.lock().unwrap().answer(&mut asked) {
                let answer = change(n, answer);
                if answer.is_empty() {
                    return Ok(());
                }
                stream.write_all(&answer)?;
                n += 1;
            }
            if read == 0 {
                return Ok(());
            }
        }
    })
}

pub(super) fn of_store(
    to: SocketAddr,
    connections: u32,
    in_flight: u32,
    get_share: f64,
) -> ClientPlan {
    let store = Some(Store { keys: KEYS, get_share, zipf: Some(0.9), forgets: false });
    ClientPlan {
        protocol: Protocol::Resp,
        request_bytes: [20, 90],
        store,
        timeout_ms: 20_000,
        ..plan(to, connections, in_flight)
    }
}

fn opened(plan: &ClientPlan) -> Client<Values> {
    Client::open(plan, Timetable::default()).expect("it listens")
}

/// A closed loop of so many requests, which may take long.
pub(super) fn requests(n: u32) -> Asking {
    Asking { requests: NonZeroU32::new(n), ..closed_loop(60_000) }
}

fn heard(client: &mut Client<Values>, asking: Asking) -> Asked {
    let asked = client.ask(asking, || false).expect("there is epoll");
    assert!(asked.ledger().is_closed(), "{asked:?}");
    asked
}

#[test]
fn every_key_is_set_once_and_then_as_many_requests_are_asked_as_are_wanted() {
    let at = store(|_, answer| answer);
    let mut client = opened(&of_store(at, 3, 4, 0.7));
    assert_eq!(client.prepare(|| false), Ok(KEYS.into()));
    // A schedule begins when it is made, so each is made when it is asked.
    let makes: [fn() -> Asking; 4] =
        [|| requests(1), || requests(2), || requests(1_000), || open_loop(100, 100)];
    for make in makes {
        let asking = make();
        let n = asking.requests.map_or(100, NonZeroU32::get);
        let asked = heard(&mut client, asking);
        assert_eq!((asked.due, asked.answered, &asked.wrong), (n.into(), n.into(), &None));
        assert_eq!(asked.kinds.values().sum::<u64>(), u64::from(n));
        assert_eq!(asked.kinds["GET, nothing"], 0);
        assert_eq!(asked.in_time[0], u64::from(n));
        if n == 1_000 {
            assert!(asked.kinds["SET"] > 100 && asked.kinds["GET, a value"] > 500, "{asked:?}");
        }
    }
}

#[test]
fn a_store_that_lies_is_not_believed() {
    /// What a liar makes of right answers.
    type Lie = fn(Vec<u8>) -> Vec<u8>;
    let value = |answer: &[u8]| answer.starts_with(b"$") && !answer.starts_with(b"$-");
    let lies: [(Lie, &str); 6] = [
        (|_| bulk(&[7; 40]), "40 bytes that were never set for it"),
        (
            |mut answer| {
                let at = answer.len() - 3;
                answer[at] ^= 0x40;
                answer
            },
            "a value of",
        ),
        // One byte fewer than was set, and whole as a reply.
        (
            |answer| {
                let head = answer.iter().position(|&byte| byte == b'\n').unwrap();
                bulk(&answer[head + 1..answer.len() - 3])
            },
            "bytes of a value of",
        ),
        (|_| b"-ERR out of order\r\n".to_vec(), "the error `ERR out of order`"),
        (|_| b"+OK\r\n".to_vec(), "the status `OK`"),
        (|_| b"$1000000\r\n".to_vec(), "`$1000000`"),
    ];
    for (lie, part) in lies {
        let at =
            store(move |n, answer| if n > 30 && value(&answer) { lie(answer) } else { answer });
        let mut client = opened(&of_store(at, 1, 4, 1.0));
        client.prepare(|| false).unwrap();
        let asked = heard(&mut client, requests(200));
        assert_eq!(asked.fates[WRONG], 1, "{asked:?}");
        let why = asked.wrong.unwrap();
        assert!(why.contains("GET key:0000000000") && why.contains(part), "{why}");
        assert!(asked.due < 200 && asked.connections.lost == 1);
    }
}

#[test]
fn a_value_that_stops_short_times_out_and_one_that_dies_is_lost() {
    let short = store(|n, mut answer| {
        answer.truncate(if n == 25 { 3 } else { usize::MAX });
        answer
    });
    // It is asked for so many that it would take a minute to give up by the clock of the schedule.
    let patient = ClientPlan { timeout_ms: 3_000, ..of_store(short, 1, 1, 1.0) };
    let mut client = opened(&patient);
    client.prepare(|| false).unwrap();
    let asked = heard(&mut client, requests(50));
    assert_eq!((asked.answered, fates(&asked)), (5, [("timed out", 1)].into()));

    let dies = store(|n, answer| if n < 30 { answer } else { Vec::new() });
    let mut client = opened(&of_store(dies, 1, 2, 1.0));
    client.prepare(|| false).unwrap();
    let asked = heard(&mut client, requests(50));
    assert_eq!(asked.answered, 10, "{asked:?}");
    assert_eq!(fates(&asked), [("connection lost", 2)].into());
    // No connection is left to ask the rest.
    assert_eq!(asked.due, 12);
}

#[test]
fn a_store_that_cannot_be_filled_is_not_asked() {
    let full = store(|n, answer| match n {
        0..10 => answer,
        _ => b"-OOM command not allowed when used memory > 'maxmemory'.\r\n".to_vec(),
    });
    let mut client = opened(&of_store(full, 1, 1, 1.0));
    let why = client.prepare(|| false).unwrap_err();
    for part in ["of 20 requests", "10 were", "SET key:000000000010", "OOM", "1 answered wrongly"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_closed_loop_of_requests_is_shared_by_those_that_are_there() {
    let at = server(|stream| echo(stream, |_| true));
    let mut client = client(&plan(at, 7, 3));
    for n in [1, 6, 20, 500] {
        let asked = asked(&mut client, requests(n));
        assert_eq!((asked.due, asked.answered, asked.fates.len()), (n.into(), n.into(), 0));
        assert!(asked.in_time == [n.into(), asked.in_time[1]] && asked.in_time[1] > 0);
    }
}

#[test]
fn a_plan_has_a_store_where_its_protocol_has_values_and_nowhere_else() {
    let good = of_store("127.0.0.1:6379".parse().unwrap(), 1, 1, 0.5);
    assert_eq!(good.check(), Ok(()));
    let store = good.store.unwrap();
    for (bad, name, part) in [
        (ClientPlan { store: None, ..good.clone() }, "store", "keys = 100_000"),
        (ClientPlan { protocol: Protocol::Echo, ..good.clone() }, "store", "leave it out"),
        (ClientPlan { request_bytes: [15, 64], ..good.clone() }, "request_bytes", "16 to 1048576"),
        (
            ClientPlan { store: Some(Store { keys: 0, ..store }), ..good.clone() },
            "store.keys",
            "1 to 10000000",
        ),
    ] {
        let (what, _, hint) = bad.check().unwrap_err();
        assert!(what == name && hint.contains(part), "{what}: {hint}");
    }
    let sentence = good.sentence();
    for part in ["50 % GET of 20 keys, by Zipf's law (0.9)", "values of 20 to 90 bytes"] {
        assert!(sentence.contains(part), "{sentence}");
    }
}
