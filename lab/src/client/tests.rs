//! The client against servers of this process that do right or wrong, over loopback.

mod datagrams;
mod store;

use super::*;
use crate::client::segment::Asking;
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Serves each connection by `serve`, in a thread of its own, until the test ends.
fn server(
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            // How it ends is what the client is asked about.
            thread::spawn(move || drop(serve(stream)));
        }
    });
    at
}

/// Sends back what `change` makes of each piece.
fn echo(mut stream: TcpStream, mut change: impl FnMut(&mut Vec<u8>) -> bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = vec![0; 4_096];
    loop {
        let n = stream.read(&mut bytes)?;
        let mut piece = bytes[..n].to_vec();
        if n == 0 || !change(&mut piece) {
            return Ok(());
        }
        stream.write_all(&piece)?;
    }
}

fn plan(to: SocketAddr, connections: u32, in_flight: u32) -> ClientPlan {
    ClientPlan {
        to,
        protocol: Protocol::Echo,
        connections,
        in_flight,
        request_bytes: [40, 60],
        store: None,
        datagrams: None,
        timeout_ms: 300,
        seed: 7,
    }
}

/// So many requests, one per `interval_us`.
fn open_loop(frames: u32, interval_us: u64) -> Asking {
    let t0_ns = MonotonicClock.now_ns() + 2_000_000;
    let interval_ns = interval_us * 1_000;
    let schedule = SegmentPlan { segment: 1, entry: 0, t0_ns, frames, interval_ns, burst: 1 };
    Asking { schedule, is_closed: false, requests: None }
}

/// So many ms.
fn closed_loop(ms: u32) -> Asking {
    let Asking { schedule, .. } = open_loop(ms, 1_000);
    Asking { schedule, is_closed: true, requests: None }
}

fn client(plan: &ClientPlan) -> Client<SameBytes> {
    Client::open(plan, Timetable::default()).expect("it listens")
}

fn asked(client: &mut Client<SameBytes>, asking: Asking) -> Asked {
    let asked = client.ask(asking, || false).expect("there is epoll");
    let ledger = asked.ledger();
    assert!(ledger.is_closed(), "{asked:?}");
    assert!(client.connections.iter().all(|connection| connection.in_flight() == 0));
    assert_eq!(asked.round_trips.n(), asked.answered);
    let missing = asked.round_trips.figures().summary.missing;
    assert_eq!(missing, asked.due - asked.answered);
    asked
}

fn fates(asked: &Asked) -> BTreeMap<&str, u64> {
    asked.fates.iter().map(|(name, n)| (name.as_str(), *n)).collect()
}

#[test]
fn every_request_of_an_open_loop_is_answered_on_its_connection() {
    let at = server(|stream| echo(stream, |_| true));
    let mut client = client(&plan(at, 7, 2));
    for _ in 0..2 {
        let asked = asked(&mut client, open_loop(100, 200));
        assert_eq!((asked.due, asked.answered, asked.unasked), (100, 100, 0));
        assert_eq!((asked.generator.sent, asked.bytes[0]), (100, asked.bytes[1]));
        assert_eq!(asked.connections, crate::result::Connections { open: 7, ..Default::default() });
        assert_eq!(client.reopen().unwrap(), Reopened::default());
    }
}

#[test]
fn a_closed_loop_keeps_every_connection_full_and_ends_with_nothing_in_flight() {
    let at = server(|stream| echo(stream, |_| true));
    let mut client = client(&plan(at, 3, 4));
    let asked = asked(&mut client, closed_loop(30));
    assert!(asked.due > 12, "{asked:?}");
    assert_eq!((asked.answered, asked.fates.len()), (asked.due, 0));
}

#[test]
fn a_closed_loop_that_most_connections_get_no_answer_in_is_not_delivered() {
    // A pool of ten threads, with a connection each for as long as it lives: the others wait for one.
    let served = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let at = server(move |stream| {
        if served.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 10 {
            return echo(stream, |_| true);
        }
        thread::sleep(Duration::from_secs(30));
        Ok(())
    });
    let plan = ClientPlan { timeout_ms: 2_000, ..plan(at, 100, 1) };
    let mut client = client(&plan);
    let asked = asked(&mut client, store::requests(20_000));
    let ledger = asked.ledger();
    assert_eq!((asked.loops, ledger.delivered), ([100, 90], 19_910));
    assert!(ledger.loss_share() < 0.005 && !ledger.delivers(), "{ledger:?}");
    // Those that were given up are opened again, and have no answer again.
    assert_eq!(client.reopen().unwrap().reopened, 90);
    let open = client.ask(open_loop(100, 100), || false).unwrap();
    assert_eq!((open.loops, open.answered), ([0, 0], 10));
}

#[test]
fn what_waits_behind_a_stall_is_as_late_as_it_was_due() {
    let stall = Duration::from_millis(120);
    let at = server(move |stream| {
        let mut n = 0;
        echo(stream, move |_| {
            n += 1;
            if n == 10 {
                thread::sleep(stall);
            }
            true
        })
    });
    let plan = ClientPlan { timeout_ms: 5_000, ..plan(at, 1, 1) };
    // Of 100 requests, one each ms, those that are due while it stalls wait for its end.
    let asked = asked(&mut client(&plan), open_loop(100, 1_000));
    assert_eq!(asked.answered, 100);
    let figures = asked.round_trips.figures().summary;
    assert!(figures.p50_ns.unwrap() > 30_000_000, "{figures:?}");
    assert!(figures.max_ns.unwrap() >= 110_000_000, "{figures:?}");
    // Which is not the client's lateness.
    assert!(asked.generator.achieved_pps > asked.generator.asked_pps * 0.5, "{asked:?}");
}

#[test]
fn one_that_never_answers_or_never_reads_times_out() {
    for reads in [true, false] {
        let at = server(move |mut stream| {
            let mut bytes = vec![0; 4_096];
            while reads && stream.read(&mut bytes)? > 0 {}
            thread::sleep(Duration::from_secs(5));
            Ok(())
        });
        let plan = ClientPlan { request_bytes: [REQUEST_BYTES_MAX; 2], ..plan(at, 2, 64) };
        let mut client = client(&plan);
        let asked = asked(&mut client, open_loop(140, 10));
        assert_eq!((asked.due, asked.answered, asked.connections.lost), (140, 0, 2));
        assert_eq!(fates(&asked), [("timed out", 128), ("timed out unasked", 12)].into());
        let again = client.reopen().unwrap();
        assert_eq!(again, Reopened { reopened: 2, ..Reopened::default() });
    }
}

#[test]
fn one_that_closes_after_some_requests_loses_the_rest_and_is_opened_again() {
    let at = server(|stream| {
        let mut n = 0;
        echo(stream, move |_| {
            n += 1;
            n <= 5
        })
    });
    let mut client = client(&plan(at, 2, 1));
    let first = asked(&mut client, open_loop(40, 500));
    assert_eq!((first.answered, fates(&first)), (10, [("connection lost", 30)].into()));
    assert_eq!(client.reopen().unwrap().reopened, 2);
    // One that ends with the last answer is found out in between.
    let second = asked(&mut client, open_loop(10, 500));
    assert_eq!((second.answered, second.fates.len()), (10, 0));
}

#[test]
fn a_reset_is_a_loss_and_a_listener_that_is_gone_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut client = client(&plan(at, 3, 2));
    let streams: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
    for stream in &streams {
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    }
    drop((streams, listener));
    let lost = asked(&mut client, open_loop(9, 100));
    assert_eq!((lost.answered, fates(&lost)), (0, [("connection lost", 9)].into()));
    assert_eq!(client.reopen().unwrap().reopened, 0);
    for asking in [open_loop(9, 100), closed_loop(5)] {
        let refused = asked(&mut client, asking);
        let n = if asking.is_closed { 3 } else { 9 };
        assert_eq!((refused.due, fates(&refused)), (n, [("connection refused", n)].into()));
    }
    let why = Client::<SameBytes>::open(&plan(at, 3, 2), Timetable::default())
        .err()
        .expect("no server listens");
    assert!(why.contains("connection 1 of 3 to TCP 127.0.0.1") && why.contains("refused"), "{why}");
}

#[test]
fn a_wrong_byte_ends_its_connection_and_is_reported() {
    let at = server(|stream| {
        let mut n = 0;
        echo(stream, move |piece| {
            n += piece.len();
            if n > 200 {
                piece[0] ^= 1;
            }
            true
        })
    });
    let mut client = client(&plan(at, 1, 1));
    let asked = asked(&mut client, open_loop(30, 200));
    assert!((3..=5).contains(&asked.answered), "{asked:?}");
    let behind = 29 - asked.answered;
    assert_eq!(fates(&asked), [("answered wrongly", 1), ("behind a wrong answer", behind)].into());
    assert!(asked.wrong.as_ref().is_some_and(|why| why.contains("was returned as")), "{asked:?}");
}

#[test]
fn what_waits_behind_a_wrong_byte_is_booked_once() {
    // The first connection is answered wrongly, when more is due on it; the other is never answered, so the client
    // gives up in the end, which closes that one.
    let wrongs = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let at = server(move |stream| {
        let is_wrong = wrongs.swap(false, std::sync::atomic::Ordering::Relaxed);
        echo(stream, move |piece| {
            thread::sleep(Duration::from_millis(if is_wrong { 30 } else { 5_000 }));
            piece[0] ^= 1;
            is_wrong
        })
    });
    let asked = asked(&mut client(&plan(at, 2, 1)), open_loop(40, 1_000));
    assert_eq!((asked.due, asked.answered, asked.connections.lost), (40, 0, 2));
    let ends = [
        ("answered wrongly", 1),
        ("behind a wrong answer", 19),
        ("timed out", 1),
        ("timed out unasked", 19),
    ];
    assert_eq!(fates(&asked), ends.into());
}

#[test]
fn bytes_without_a_request_are_no_answer() {
    // Garbage at once; more than was asked for; every answer twice.
    let greets = server(|mut stream| {
        stream.write_all(b"220 welcome\r\n")?;
        echo(stream, |_| true)
    });
    let adds = server(|stream| {
        echo(stream, |piece| {
            piece.push(b'!');
            true
        })
    });
    let doubles = server(|stream| {
        echo(stream, |piece| {
            piece.extend_from_within(..);
            true
        })
    });
    for at in [greets, adds, doubles] {
        let mut client = client(&plan(at, 1, 1));
        let first = asked(&mut client, open_loop(5, 2_000));
        let later = client.reopen().unwrap();
        let wrong = first.fates.get(WRONG).copied().unwrap_or(0);
        assert!(first.unasked + wrong + later.unasked > 0, "{first:?} {later:?}");
        assert!(first.answered <= 1, "{first:?}");
    }
}

#[test]
fn a_client_that_is_to_end_does_and_closes_its_ledger() {
    let at = server(|stream| echo(stream, |_| true));
    let mut client = client(&plan(at, 2, 1));
    for asking in
        [open_loop(1_000_000, 1_000), Asking { is_closed: true, ..open_loop(1_000_000, 1_000) }]
    {
        let began = MonotonicClock.now_ns();
        let is_over = || MonotonicClock.now_ns() > began + 20_000_000;
        let asked = client.ask(asking, is_over).unwrap();
        assert!(asked.ledger().is_closed() && asked.answered == asked.due, "{asked:?}");
        assert!(asked.due < 1_000_000);
    }
}

#[test]
fn a_thousand_connections_are_opened_and_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let plan = plan(at, CONNECTIONS_MAX, 1);
    if open::allow_descriptors(2 * CONNECTIONS_MAX).is_err() {
        return laneway_testkit::skip(
            "too few descriptors for both ends of a thousand connections",
        );
    }
    // One thread for all of them: what is asked is short, and answered in the order of the connections.
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> =
            listener.incoming().take(CONNECTIONS_MAX as usize).flatten().collect();
        let mut bytes = [0; 64];
        for stream in &mut streams {
            let n = stream.read(&mut bytes).unwrap();
            stream.write_all(&bytes[..n]).unwrap();
        }
        thread::sleep(Duration::from_secs(60));
    });
    let plan = ClientPlan { timeout_ms: 20_000, ..plan };
    let asked = asked(&mut client(&plan), open_loop(CONNECTIONS_MAX, 10));
    assert_eq!(asked.answered, 1_000);
}

#[test]
fn a_plan_that_cannot_be_is_refused_with_what_it_may_be() {
    let good = plan("127.0.0.1:7".parse().unwrap(), 1, 1);
    assert_eq!(good.check(), Ok(()));
    for (bad, name, part) in [
        (ClientPlan { connections: 0, ..good.clone() }, "connections", "1 to 1000"),
        (ClientPlan { connections: 1_001, ..good.clone() }, "connections", "1 to 1000"),
        (ClientPlan { in_flight: 0, ..good.clone() }, "in_flight", "1 to 1024"),
        (ClientPlan { timeout_ms: 0, ..good.clone() }, "timeout_ms", "1 to 60000"),
        (
            ClientPlan { request_bytes: [0, 9], ..good.clone() },
            "request_bytes",
            "the shorter first",
        ),
        (
            ClientPlan { request_bytes: [9, 8], ..good.clone() },
            "request_bytes",
            "the shorter first",
        ),
        (
            ClientPlan {
                connections: 1_000,
                in_flight: 1_024,
                request_bytes: [1, 65_536],
                ..good.clone()
            },
            "connections x in_flight x request_bytes",
            "at most 256 MiB",
        ),
    ] {
        let (what, _, hint) = bad.check().unwrap_err();
        assert!(what == name && hint.contains(part), "{what}: {hint}");
    }
}

#[test]
fn an_answer_that_comes_late_counts_as_one_and_not_as_the_time_it_took() {
    // The first connection is answered long behind the end.
    let stalls = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let at = server(move |stream| {
        let mut is_first = stalls.swap(false, std::sync::atomic::Ordering::Relaxed);
        echo(stream, move |_| {
            if std::mem::take(&mut is_first) {
                thread::sleep(Duration::from_millis(400));
            }
            true
        })
    });
    let plan = ClientPlan { timeout_ms: 5_000, ..plan(at, 2, 1) };
    let mut client = client(&plan);
    let asked = asked(&mut client, open_loop(20, 1_000));
    assert_eq!((asked.answered, asked.in_time[1]), (20, 20_000_000));
    // Those of the other connection, as far as this machine is quick.
    assert!(asked.in_time[0] <= 10, "{asked:?}");
    assert!(asked.last_ns - asked.first_ns > 300_000_000);
    let closed = client.ask(closed_loop(50), || false).unwrap();
    assert_eq!(closed.in_time[1], 45_000_000);
    assert!(closed.in_time[0] <= closed.answered, "{closed:?}");
}
