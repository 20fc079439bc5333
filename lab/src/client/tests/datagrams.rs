//! The client of a store that is asked by datagrams, against servers of this process that do right or lie, over
//! loopback.

use super::store::{KEYS, of_store, requests};
use super::*;
use crate::client::honest::Honest;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

/// Where a store takes connections and datagrams. To the `n`th datagram, from 0, it sends what `change` makes of the
/// right reply.
fn store(
    change: impl Fn(usize, Vec<u8>) -> Vec<Vec<u8>> + Send + 'static,
) -> (SocketAddr, SocketAddr) {
    let shared = Arc::new(Mutex::new(Honest::default()));
    let by_streams = Arc::clone(&shared);
    let streams = server(move |mut stream| {
        let (mut bytes, mut asked) = (vec![0; 4_096], Vec::new());
        loop {
            let read = stream.read(&mut bytes)?;
            asked.extend_from_slice(&bytes[..read]);
            let answers = by_streams.lock().unwrap().answer(&mut asked);
            stream.write_all(&answers.concat())?;
            if read == 0 {
                return Ok(());
            }
        }
    });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let datagrams = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 4_096];
        let mut n = 0;
        while let Ok((read, from)) = socket.recv_from(&mut bytes) {
            let mut asked = bytes[8..read].to_vec();
            // What stands behind the command is padding.
            let length = asked.iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
            assert!(asked[length..].iter().all(|&byte| byte == 0));
            asked.truncate(length);
            let answer = shared.lock().unwrap().answer(&mut asked).concat();
            let reply = [&bytes[..8], &answer].concat();
            assert!(reply.len() <= read, "the request has room for its reply");
            for reply in change(n, reply) {
                socket.send_to(&reply, from).unwrap();
            }
            n += 1;
        }
    });
    (streams, datagrams)
}

fn plan_of((streams, datagrams): (SocketAddr, SocketAddr), sockets: u32) -> ClientPlan {
    ClientPlan { datagrams: Some(datagrams), ..of_store(streams, sockets, 1, 1.0) }
}

fn opened(plan: &ClientPlan) -> Client<Gets> {
    let begun = Client::opened(plan, Timetable::default(), || false);
    let (client, opening) = begun.expect("it is there");
    assert_eq!(opening, u64::from(KEYS), "keys are set over connections");
    client
}

fn heard(client: &mut Client<Gets>, asking: Asking) -> Asked {
    let asked = client.ask(asking, || false).expect("there is epoll");
    assert!(asked.ledger().is_closed(), "{asked:?}");
    asked
}

#[test]
fn values_are_got_by_datagrams_in_both_loops() {
    let mut client = opened(&plan_of(store(|_, reply| vec![reply]), 5));
    for asking in [requests(1), requests(1_000), open_loop(100, 100)] {
        let n = asking.requests.map_or(100, |n| n.get());
        let asked = heard(&mut client, asking);
        assert_eq!((asked.due, asked.answered, &asked.wrong), (n.into(), n.into(), &None));
        assert_eq!(asked.kinds["GET, a value"], u64::from(n));
        assert_eq!(client.reopen().unwrap(), Reopened::default());
    }
}

#[test]
fn datagrams_that_lie_are_not_believed() {
    /// What a liar makes of a right reply.
    type Lie = fn(Vec<u8>) -> Vec<Vec<u8>>;
    let lies: [(Lie, &str); 8] = [
        (
            |mut reply| {
                let at = reply.len() - 3;
                reply[at] ^= 1;
                vec![reply]
            },
            "whose byte",
        ),
        (
            |mut reply| {
                reply[1] = reply[1].wrapping_add(1);
                vec![reply]
            },
            "was asked",
        ),
        // The second copy is there when the next is asked.
        (|reply| vec![reply.clone(), reply], "was asked"),
        (
            |mut reply| {
                reply[3] = 1;
                vec![reply]
            },
            "no reply in one datagram",
        ),
        (|reply| vec![reply[..reply.len() - 1].to_vec()], "no whole reply"),
        (|reply| vec![[&reply[..], b"+"].concat()], "1 bytes behind its reply"),
        (|reply| vec![[&reply[..8], b"-TOOLONG 99\r\n"].concat()], "the error `TOOLONG 99`"),
        (|reply| vec![reply[..5].to_vec()], "fewer than a frame has"),
    ];
    for (lie, part) in lies {
        let at = store(move |n, reply| if n == 30 { lie(reply) } else { vec![reply] });
        let mut client = opened(&plan_of(at, 1));
        let asked = heard(&mut client, requests(200));
        assert_eq!(asked.fates.get(WRONG), Some(&1), "{part}: {asked:?}");
        let why = asked.wrong.unwrap();
        assert!(why.contains("GET key:0000000000") && why.contains(part), "{why}");
        assert!(asked.due < 200 && asked.connections.lost == 1);
    }
}

#[test]
fn a_datagram_that_comes_when_none_was_asked_for_is_noticed() {
    let at = store(|n, reply| vec![reply; if n == 9 { 2 } else { 1 }]);
    let mut client = opened(&plan_of(at, 1));
    let asked = heard(&mut client, requests(10));
    assert_eq!(asked.answered, 10);
    let mut found = Reopened::default();
    // The second copy may still be on its way.
    for _ in 0..1_000 {
        found = client.reopen().unwrap();
        if found.lost > 0 {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((found.lost, found.unasked, found.reopened), (1, 1, 1));
    assert_eq!(heard(&mut client, requests(10)).answered, 10);
}

#[test]
fn a_datagram_that_is_lost_has_timed_out_and_one_to_a_closed_port_was_refused() {
    let at = store(|n, reply| if n == 20 { Vec::new() } else { vec![reply] });
    let patient = ClientPlan { timeout_ms: 2_000, ..plan_of(at, 1) };
    let mut client = opened(&patient);
    let asked = heard(&mut client, requests(50));
    assert_eq!((asked.answered, fates(&asked)), (20, [("timed out", 1)].into()));
    assert_eq!(client.reopen().unwrap().reopened, 1);
    assert_eq!(heard(&mut client, requests(50)).answered, 50);

    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (streams, _) = store(|_, reply| vec![reply]);
    let mut client = opened(&plan_of((streams, closed), 1));
    let asked = heard(&mut client, requests(50));
    assert_eq!((asked.due, fates(&asked)), (1, [("connection refused", 1)].into()));
}

#[test]
fn datagrams_get_and_never_set_one_at_a_time() {
    let good = plan_of(store(|_, reply| vec![reply]), 3);
    assert_eq!(good.check(), Ok(()));
    let store = good.store.unwrap();
    let none = ClientPlan { store: None, protocol: Protocol::Echo, ..good.clone() };
    for (bad, part) in [
        (ClientPlan { in_flight: 2, ..good.clone() }, "in_flight = 1"),
        (
            ClientPlan { store: Some(Store { get_share: 0.9, ..store }), ..good.clone() },
            "get_share = 1",
        ),
        (none, "give a store"),
        (ClientPlan { request_bytes: [16, 1_401], ..good.clone() }, "16 to 1400"),
    ] {
        let (_, _, hint) = bad.check().unwrap_err();
        assert!(hint.contains(part), "{hint}");
    }
    assert!(good.sentence().starts_with("3 sockets of datagrams to 127.0.0.1:"));
}
