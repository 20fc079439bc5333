//! TCP against hosts at the far end of simulated links that lose, reorder and duplicate.

#![forbid(unsafe_code)]
#[expect(dead_code, reason = "each test file uses a part")]
mod apps;
mod far;
mod segments;

use apps::Server;
use far::{Bench, FAR_MAC, PORT, config, framed, near};
use laneway_core::{Close, DropReason, Lane, StreamLane};
use laneway_stack::ConnectionCounts;
use laneway_wire::{Ipv4, Tcp, checksum, protocol, tcp_flags};
use proptest::prelude::*;
use segments::{answers, collected, frame_behind, opened, segment, segment_with, syn, syn_with};
use smoltcp::socket::tcp::State;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Bytes that depend on their place and on `seed`.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8) ^ seed) as u8).collect()
}

#[test]
fn bytes_come_back_exactly_whatever_the_link_does() {
    const BYTES: usize = 50_000;
    for loss in ["0.001", "0.01", "0.05"] {
        for seed in 1..=4 {
            let spec = format!(
                "sim:seed={seed},loss={loss},dup=0.01,reorder=0.02,reorder_us=300,delay_us=50,jitter_us=20"
            );
            let config = config(&["10.0.0.1:7", "[fd00::1]:7"]);
            let mut bench = Bench::new(&spec, &config, Server::echo());
            let to = [near(7), "[fd00::1]:7".parse().unwrap(), near(7)];
            let fars = to.map(|to| bench.connect(to));
            for (i, far) in fars.iter().enumerate() {
                bench.far(*far).write(&bytes(i as u64, BYTES));
            }
            let all_back = |bench: &mut Bench<Server>| {
                fars.iter().all(|far| bench.far(*far).received.len() >= BYTES)
            };
            assert!(bench.until(10 * MINUTE, all_back), "{spec}: bytes are missing");
            for (i, far) in fars.iter().enumerate() {
                assert!(bench.far(*far).received == bytes(i as u64, BYTES), "{spec}: {far}");
                bench.far(*far).finish();
            }
            assert!(bench.until(10 * MINUTE, |b| b.app.open.is_empty()), "{spec}: no end");
            assert_eq!(bench.app.closed, [Close::Peer; 3], "{spec}");
            assert!(bench.until(10 * MINUTE, |b| b.stack.connections().total == 0), "{spec}");
        }
    }
}

#[test]
fn ten_thousand_connections_are_served_at_once_and_their_memory_used_again() {
    const COUNT: usize = 10_000;
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.half_open_max = COUNT;
    (config.tcp.rx_bytes, config.tcp.tx_bytes) = (2048, 2048);
    let spec = "sim:frames=4096,queue=65536,burst=64,delay_us=10";
    let mut bench = Bench::new(spec, &config, Server::echo());
    bench.far_bytes = 64;
    for round in 0..2 {
        let fars: Vec<_> = (0..COUNT).map(|_| bench.connect(near(7))).collect();
        for (i, far) in fars.iter().enumerate() {
            bench.far(*far).write(&bytes(i as u64, 40));
        }
        assert!(bench.until(MINUTE, |b| b.app.opened == (round + 1) * COUNT), "not all opened");
        assert_eq!(bench.stack.connections().total, COUNT);
        let all_back = |b: &mut Bench<Server>| b.fars.values().all(|far| far.received.len() == 40);
        assert!(bench.until(MINUTE, all_back), "not all were answered");
        for (i, far) in fars.iter().enumerate() {
            assert_eq!(bench.far(*far).received, bytes(i as u64, 40));
            bench.far(*far).finish();
        }
        assert!(bench.until(MINUTE, |b| b.stack.connections().total == 0), "not all ended");
        assert_eq!(bench.stack.connections().slots, COUNT, "slots serve again");
        assert_eq!(bench.app.closed.len(), (round + 1) * COUNT);
        bench.fars.clear();
    }
    assert_eq!(bench.stack.counters(PORT).drops(DropReason::ConnTableFull), 0);
}

#[test]
fn a_flood_of_syns_is_bounded_and_starves_no_open_connection() {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.half_open_max = 100;
    let mut bench = Bench::new("sim:frames=4096,queue=8192", &config, Server::echo());
    let far = bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.app.opened == 1));
    for round in 1..=20u8 {
        for i in 0..250u8 {
            let from = SocketAddr::new(Ipv4Addr::new(10, 0, 200 + round, i + 1).into(), 999);
            bench.world.inject(PORT, &syn(from, near(7)));
        }
        bench.far(far).write(&bytes(1, 100));
        let want = usize::from(round) * 100;
        assert!(bench.until(MINUTE, |b| b.far(far).received.len() == want), "starved");
        assert!(bench.stack.connections().half_open <= 100);
        assert!(bench.stack.connections().slots <= 101);
    }
    assert!(bench.stack.events().syn_cookies_sent > 4000);
    let lost = bench.stack.counters(PORT).lost();
    assert_eq!(lost, 0, "every SYN was answered");
    assert!(bench.until(MINUTE, |b| b.stack.connections().half_open == 0));
    let cookies = bench.stack.events().syn_cookies_sent;
    bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.app.opened == 2));
    assert_eq!(bench.stack.events().syn_cookies_sent, cookies, "none while there is room");
}

#[test]
fn newcomers_connect_during_a_flood_whatever_the_link_does() {
    const BYTES: usize = 20_000;
    let drawn = laneway_testkit::seed();
    for loss in ["0", "0.01", "0.05"] {
        // At 99 a newcomer's first segments were late, and an acknowledgement of its was reset once.
        for seed in [1, 2, 99, drawn] {
            let spec = format!(
                "sim:frames=4096,queue=8192,seed={seed},loss={loss},dup=0.01,reorder=0.02,reorder_us=300,delay_us=50,jitter_us=20"
            );
            let mut config = config(&["10.0.0.1:7", "[fd00::1]:7"]);
            config.tcp.half_open_max = 16;
            let mut bench = Bench::new(&spec, &config, Server::echo());
            let to = [near(7), "[fd00::1]:7".parse().unwrap()];
            let mut source = u32::from(Ipv4Addr::new(10, 0, 8, 0));
            let mut flood = |bench: &mut Bench<Server>| {
                for _ in 0..40 {
                    source += 1;
                    let from = SocketAddr::new(Ipv4Addr::from_bits(source).into(), 999);
                    bench.world.inject(PORT, &syn(from, near(7)));
                }
                bench.step();
            };
            (0..5).for_each(|_| flood(&mut bench));
            let mut fars = Vec::new();
            for round in 0..200 {
                if round % 20 == 0 {
                    let far = bench.connect(to[fars.len() % to.len()]);
                    bench.far(far).write(&bytes(fars.len() as u64, BYTES));
                    fars.push(far);
                }
                flood(&mut bench);
                assert!(bench.stack.connections().half_open <= 16, "{spec}");
            }
            for (i, far) in fars.iter().enumerate() {
                let is_back = |b: &mut Bench<Server>| b.far(*far).received.len() >= BYTES;
                assert!(bench.until(10 * MINUTE, is_back), "{spec}: bytes of {far} are missing");
                assert!(bench.far(*far).received == bytes(i as u64, BYTES), "{spec}: {far}");
            }
            // Before anyone finishes: the second copy of a last acknowledgement is rightly reset (RFC 9293, 3.10.7.1).
            assert_eq!(bench.stack.events().resets_sent, 0, "{spec}");
            fars.iter().for_each(|far| bench.far(*far).finish());
            assert!(bench.until(10 * MINUTE, |b| b.stack.connections().total == 0), "{spec}");
            assert_eq!(bench.app.closed, [Close::Peer; 10], "{spec}");
            let events = bench.stack.events();
            assert!(events.syn_cookies_redeemed >= 5, "{spec}: {events:?}");
        }
    }
}

/// A stack that keeps nothing of a SYN, and the number with which it answers one.
fn with_cookies(from: SocketAddr, options: &[u8]) -> (Bench<Server>, Tcp) {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.half_open_max = 0;
    let mut bench = Bench::new("sim", &config, Server::echo());
    bench.world.inject(PORT, &syn_with(from, near(7), options));
    let clock = bench.world.clock();
    bench.stack.serve(&mut bench.app, &clock).unwrap();
    let answer = collected(&bench)[0];
    assert_eq!(answer.flags, tcp_flags::SYN | tcp_flags::ACK);
    assert_eq!(bench.stack.connections(), ConnectionCounts::default(), "nothing is kept");
    (bench, answer)
}

#[test]
fn a_cookie_opens_a_connection_for_its_own_peer_alone() {
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    let (mut bench, answer) = with_cookies(from, &[]);
    assert_eq!((answer.acknowledgement, answer.header_bytes), (1001, 24), "an MSS, no more");
    assert_eq!(answer.window, 16 << 10);
    let own = answer.sequence.wrapping_add(1);
    let ack = |from, sequence, own| segment(from, near(7), tcp_flags::ACK, sequence, own);
    for forged in [
        ack("10.0.1.8:5000".parse().unwrap(), 1001, own),
        ack("10.0.1.9:5001".parse().unwrap(), 1001, own),
        ack(from, 1002, own),
        ack(from, 1001, own ^ 1 << 20),
    ] {
        // It may be a later one of a newcomer whose first is on its way.
        assert_eq!(answers(&mut bench, &forged), []);
    }
    let forged = segment(from, near(7), tcp_flags::ACK | tcp_flags::SYN, 1001, own);
    let reset = answers(&mut bench, &forged);
    assert_eq!((reset.len(), reset[0].flags), (1, tcp_flags::RST));
    assert_eq!((bench.app.opened, bench.stack.events().syn_cookies_redeemed), (0, 0));
    assert_eq!(answers(&mut bench, &ack(from, 1001, own)), []);
    assert_eq!((bench.app.opened, bench.stack.events().syn_cookies_redeemed), (1, 1));
    let rst = segment(from, near(7), tcp_flags::RST, 1001, 0);
    assert_eq!(answers(&mut bench, &rst), []);
    assert_eq!(bench.app.closed, [Close::Error]);
    for (minutes, redeemed) in [(1, 2), (2, 2)] {
        let now_ns = bench.now_ns();
        bench.world.advance_to(now_ns + minutes * MINUTE.as_nanos() as u64);
        // A younger one keeps cookies believable at all.
        answers(&mut bench, &syn("10.0.1.7:5000".parse().unwrap(), near(7)));
        assert_eq!(answers(&mut bench, &ack(from, 1001, own)), []);
        let events = bench.stack.events();
        assert_eq!(events.syn_cookies_redeemed, redeemed, "after {minutes} minutes more");
        bench.world.inject(PORT, &rst);
        bench.step();
    }
    // Once none is out, what is of no connection is reset again.
    let now_ns = bench.now_ns();
    bench.world.advance_to(now_ns + 3 * MINUTE.as_nanos() as u64);
    let reset = answers(&mut bench, &ack(from, 1001, own));
    assert_eq!((reset.len(), reset[0].flags), (1, tcp_flags::RST));
    assert_eq!((bench.app.opened, bench.stack.events().syn_cookies_redeemed), (2, 2));
}

#[test]
fn who_has_no_cookie_is_reset_when_none_was_sent() {
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    let (mut bench, answer) = with_cookies(from, &[]);
    let now_ns = bench.now_ns();
    let own = answer.sequence.wrapping_add(1);
    let second = segment_with(from, near(7), (tcp_flags::ACK, 1401, own), 4096, &bytes(1, 100));
    assert_eq!(answers(&mut bench, &second), [], "the first segment may be lost");
    bench.world.advance_to(now_ns + 2 * MINUTE.as_nanos() as u64);
    assert_eq!(answers(&mut bench, &second)[0].flags, tcp_flags::RST);
    assert_eq!(bench.stack.counters(PORT).drops(DropReason::NoListener), 2);
}

#[test]
fn a_segment_with_bytes_brings_a_cookie_back_and_segments_keep_to_its_mss() {
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    // An MSS of 1310, a window scale of 7, selective acknowledgements.
    let options = [2, 4, 5, 30, 1, 3, 3, 7, 1, 1, 4, 2];
    let (mut bench, answer) = with_cookies(from, &options);
    let numbers = (tcp_flags::ACK, 1001, answer.sequence.wrapping_add(1));
    let data = segment_with(from, near(7), numbers, 60_000, &bytes(1, 1400));
    // In one burst with an acknowledgement alone, and twice.
    bench.world.inject(PORT, &segment(from, near(7), numbers.0, numbers.1, numbers.2));
    bench.world.inject(PORT, &data);
    bench.world.inject(PORT, &data);
    bench.longest = 0;
    assert!(bench.until(MINUTE, |b| b.longest > 0));
    assert_eq!(bench.longest, 14 + 40 + 1300);
    assert_eq!((bench.app.opened, bench.stack.events().syn_cookies_redeemed), (1, 1));
}

#[test]
fn a_cookie_is_taken_although_a_second_syn_has_found_room() {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.half_open_max = 1;
    let mut bench = Bench::new("sim", &config, Server::echo());
    let at = |port| SocketAddr::new([10, 0, 1, 9].into(), port);
    let first = answers(&mut bench, &syn(at(1), near(7)));
    let own = |answers: &[Tcp]| {
        let syn_ack = answers.iter().find(|tcp| tcp.flags & tcp_flags::SYN != 0);
        syn_ack.expect("a SYN-ACK").sequence.wrapping_add(1)
    };
    let cookie = own(&answers(&mut bench, &syn(at(2), near(7))));
    answers(&mut bench, &segment(at(1), near(7), tcp_flags::ACK, 1001, own(&first)));
    assert_eq!((bench.app.opened, bench.stack.connections().half_open), (1, 0));
    let other = own(&answers(&mut bench, &syn(at(2), near(7))));
    assert_eq!((other == cookie, bench.stack.connections().half_open), (false, 1));
    answers(&mut bench, &segment(at(2), near(7), tcp_flags::ACK, 1001, cookie));
    assert_eq!((bench.app.opened, bench.stack.connections().half_open), (2, 0));
    assert_eq!(bench.stack.events().resets_sent, 0);
}

#[test]
fn syns_beyond_the_rate_of_cookies_are_dropped_and_counted() {
    for (per_second, sent) in [(0, 0), (300, 3)] {
        let mut config = config(&["10.0.0.1:7"]);
        (config.tcp.half_open_max, config.tcp.syn_cookies_per_second) = (0, per_second);
        let mut bench = Bench::new("sim", &config, Server::echo());
        for port in 1..=10 {
            let from = SocketAddr::new([10, 0, 1, 9].into(), port);
            bench.world.inject(PORT, &syn(from, near(7)));
        }
        let clock = bench.world.clock();
        bench.stack.serve(&mut bench.app, &clock).unwrap();
        assert_eq!(bench.stack.events().syn_cookies_sent, sent);
        assert_eq!(bench.stack.counters(PORT).drops(DropReason::ConnTableFull), 10 - sent);
    }
}

#[test]
fn connections_beyond_a_limit_are_reset_and_counted() {
    for (per_source, half_open_max) in [(false, 9), (true, 9), (false, 0), (true, 0)] {
        let mut config = config(&["10.0.0.1:7"]);
        config.tcp.half_open_max = half_open_max;
        if per_source {
            config.tcp.per_source_max = 2;
        } else {
            config.tcp.connections_max = 2;
        }
        let mut bench = Bench::new("sim", &config, Server::echo());
        let fars: Vec<_> = (0..3).map(|_| bench.connect(near(7))).collect();
        let turned_away =
            |b: &mut Bench<Server>| b.app.opened == 2 && b.far(fars[2]).state() == State::Closed;
        assert!(bench.until(MINUTE, turned_away));
        assert_eq!(bench.stack.counters(PORT).drops(DropReason::ConnTableFull), 1);
        bench.far(fars[0]).finish();
        assert!(bench.until(MINUTE, |b| b.app.closed == [Close::Peer]));
        let late = bench.connect(near(7));
        assert!(bench.until(MINUTE, |b| b.far(late).state() == State::Established));
    }
}

#[test]
fn the_stop_of_more_connections_than_may_linger_reaches_every_peer() {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.lingering_max = 2;
    let mut bench = Bench::new("sim", &config, Server::echo());
    let fars: Vec<_> = (0..5).map(|_| bench.connect(near(7))).collect();
    assert!(bench.until(MINUTE, |b| b.app.opened == 5));
    let turn = laneway_core::Turn { now_ns: bench.now_ns() };
    bench.stack.finish(&mut bench.app, turn);
    assert_eq!(bench.app.closed, [Close::Stop; 5]);
    let all_know =
        |b: &mut Bench<Server>| fars.iter().all(|far| b.far(*far).state() == State::CloseWait);
    assert!(bench.until(MINUTE, all_know), "not every peer was sent a FIN");
}

#[test]
fn a_turn_that_ends_more_connections_than_may_linger_cuts_none_of_them_off() {
    let from = |port| SocketAddr::new([10, 0, 1, 9].into(), port);
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.lingering_max = 2;
    for aborts in [true, false] {
        let mut bench = Bench::new("sim", &config, Server::echo());
        (bench.app.one_shot, bench.app.aborts) = (true, aborts);
        // The peer's numbers are those of an answered byte; that of our FIN is not acknowledged.
        let ask = |own: u32| (tcp_flags::ACK, 1001, own);
        let take = |own: u32| (tcp_flags::ACK, 1002, own.wrapping_add(1));
        let owns: Vec<u32> = (1..=5).map(|port| opened(&mut bench, from(port))).collect();
        let turn = |bench: &mut Bench<Server>, first: u16, owns: &[u32], asks: bool| {
            for (port, own) in (first..).zip(owns) {
                let (numbers, bytes) =
                    if asks { (ask(*own), &b"x"[..]) } else { (take(*own), &b""[..]) };
                let frame = segment_with(from(port), near(7), numbers, 4096, bytes);
                bench.world.inject(PORT, &frame);
            }
            let clock = bench.world.clock();
            bench.stack.serve(&mut bench.app, &clock).unwrap();
            collected(bench)
        };
        let ends = turn(&mut bench, 1, &owns, true);
        let end = if aborts { tcp_flags::RST } else { tcp_flags::FIN };
        assert_eq!(ends.iter().filter(|tcp| tcp.flags & end != 0).count(), 5, "{ends:?}");
        if aborts {
            assert_eq!(bench.stack.connections().total, 0);
            continue;
        }
        turn(&mut bench, 1, &owns, false);
        assert_eq!((bench.app.closed.len(), bench.stack.connections().lingering), (5, 5));
        // From then on there is room for those above the limit only until others end.
        for (port, lingering) in [(6, 4), (7, 3), (8, 2), (9, 2)] {
            let own = opened(&mut bench, from(port));
            turn(&mut bench, port, &[own], true);
            turn(&mut bench, port, &[own], false);
            assert_eq!(bench.stack.connections().lingering, lingering, "port {port}");
        }
    }
}

#[test]
fn the_end_that_closes_first_and_how_is_reported() {
    let mut bench = Bench::new("sim:delay_us=100", &config(&["10.0.0.1:7"]), Server::echo());
    let (one, two) = (bench.connect(near(7)), bench.connect(near(7)));
    assert!(bench.until(MINUTE, |b| b.app.opened == 2));
    bench.far(one).abort();
    assert!(bench.until(MINUTE, |b| b.app.closed == [Close::Error]));
    bench.app.one_shot = true;
    bench.far(two).write(b"last words");
    assert!(bench.until(MINUTE, |b| b.app.closed == [Close::Error, Close::App]));
    assert!(bench.until(MINUTE, |b| b.far(two).state() == State::CloseWait));
    assert_eq!(bench.far(two).received, b"last words");
    bench.far(two).finish();
    // Our end closed first, so it waits in TIME-WAIT, and then is gone.
    assert!(bench.until(MINUTE, |b| b.stack.connections().total == 0));
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    let far = bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.app.opened == 1));
    bench.fars.remove(&far);
    assert!(!bench.until(4 * MINUTE, |b| !b.app.closed.is_empty()));
    assert!(bench.until(2 * MINUTE, |b| b.app.closed == [Close::Error]));
    assert!(bench.until(MINUTE, |b| b.stack.connections().total == 0));
}

#[test]
fn an_idle_connection_with_a_living_peer_stays() {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    let far = bench.connect(near(7));
    assert!(!bench.until(10 * MINUTE, |b| !b.app.closed.is_empty()));
    bench.far(far).write(b"still here");
    assert!(bench.until(MINUTE, |b| b.far(far).received == b"still here"));
}

#[test]
fn the_stop_ends_every_connection() {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    let fars = [bench.connect(near(7)), bench.connect(near(7))];
    assert!(bench.until(MINUTE, |b| b.app.opened == 2));
    let turn = laneway_core::Turn { now_ns: bench.now_ns() };
    bench.stack.finish(&mut bench.app, turn);
    assert_eq!(bench.app.closed, [Close::Stop; 2]);
    assert!(
        bench.until(MINUTE, |b| { fars.iter().all(|far| b.far(*far).state() == State::CloseWait) })
    );
    let late = bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.far(late).state() == State::Closed), "it listens no more");
}

#[test]
fn segments_of_no_connection_are_reset_at_a_bounded_rate() {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.resets_per_second = 10;
    let mut bench = Bench::new("sim", &config, Server::echo());
    bench.step();
    collected(&bench);
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    bench.world.inject(PORT, &segment(from, near(7), tcp_flags::ACK, 5, 77));
    bench.world.inject(PORT, &syn(from, near(8)));
    bench.world.inject(PORT, &segment(from, near(7), tcp_flags::RST, 5, 77));
    let clock = bench.world.clock();
    bench.stack.serve(&mut bench.app, &clock).unwrap();
    let resets = collected(&bench);
    assert_eq!(resets.len(), 2, "{resets:?}");
    assert_eq!((resets[0].flags, resets[0].sequence), (tcp_flags::RST, 77));
    assert_eq!(resets[1].flags, tcp_flags::RST | tcp_flags::ACK);
    assert_eq!(resets[1].acknowledgement, 1001);
    for _ in 0..50 {
        bench.world.inject(PORT, &segment(from, near(7), tcp_flags::ACK, 5, 77));
    }
    bench.stack.serve(&mut bench.app, &clock).unwrap();
    assert_eq!(collected(&bench).len(), 8);
    assert_eq!(bench.stack.events().resets_suppressed, 42);
    assert_eq!(bench.stack.counters(PORT).drops(DropReason::NoListener), 53);
}

#[test]
fn a_damaged_segment_is_counted_and_changes_nothing() {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    let mut damaged = syn("10.0.1.9:5000".parse().unwrap(), near(7));
    damaged[40] ^= 1;
    bench.world.inject(PORT, &damaged);
    bench.step();
    assert_eq!(bench.stack.counters(PORT).drops(DropReason::BadChecksum), 1);
    assert_eq!(bench.stack.connections().total, 0);
}

#[test]
fn with_pass_rest_the_kernel_gets_what_no_port_here_listens_to() {
    let mut config = config(&["10.0.0.1:7"]);
    config.pass_rest = true;
    let mut bench = Bench::new("sim", &config, Server::echo());
    bench.world.inject(PORT, &syn("10.0.1.9:5000".parse().unwrap(), near(8)));
    bench.world.inject(PORT, &[0xff; 60]);
    bench.step();
    let counters = bench.stack.counters(PORT);
    assert_eq!((counters.passed, counters.lost()), (2, 0), "{counters:?}");
}

#[test]
fn a_handshake_in_one_burst_with_the_end_of_another_has_numbers_of_its_own() {
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    let first = answers(&mut bench, &syn(from, near(7)))[0].sequence;
    let now_ns = bench.now_ns();
    bench.world.advance_to(now_ns + 4_000_000);
    bench.world.inject(PORT, &segment(from, near(7), tcp_flags::RST, 1001, 0));
    // Of what the reset has ended nothing is left, a listener least of all.
    bench.world.inject(PORT, &segment(from, near(7), tcp_flags::ACK, 1001, first.wrapping_add(1)));
    let answers = answers(&mut bench, &syn(from, near(7)));
    let flags: Vec<_> = answers.iter().map(|tcp| tcp.flags).collect();
    assert_eq!(flags, [tcp_flags::RST, tcp_flags::SYN | tcp_flags::ACK]);
    // Between the same ends, they grow by one every 4 us (RFC 6528).
    assert_eq!(answers[1].sequence, first.wrapping_add(1000));
    assert_eq!(bench.stack.events().resets_sent, 1);
    let counts = bench.stack.connections();
    assert_eq!((counts.total, counts.half_open, counts.slots), (1, 1, 1));
}

#[test]
fn a_peer_whose_reset_and_next_syn_come_in_one_burst_is_never_reset() {
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    let syn = syn(from, near(7));
    let segment = |flags, (sequence, ack)| segment(from, near(7), flags, sequence, ack);
    // What the app has seen of the connection that the reset ends: that it opened, that it closed, nothing.
    for (opened, one_shot) in [(1, false), (1, true), (0, false)] {
        let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
        bench.app.one_shot = one_shot;
        let own = answers(&mut bench, &syn)[0].sequence.wrapping_add(1);
        let mut next = (1001, own);
        bench.world.inject(PORT, &segment(tcp_flags::ACK, next));
        if opened == 1 {
            assert_eq!(answers(&mut bench, &[0xff; 60]), []);
        }
        if one_shot {
            let words = segment_with(from, near(7), (tcp_flags::ACK, 1001, own), 4096, b"over");
            assert!(!answers(&mut bench, &words).is_empty());
            assert_eq!(bench.app.closed, [], "the echo is on its way");
            next = (1005, own.wrapping_add(4));
            let end = answers(&mut bench, &segment(tcp_flags::ACK, next));
            assert_eq!(bench.app.closed, [Close::App]);
            assert!(end.iter().all(|tcp| tcp.flags & tcp_flags::RST == 0), "{end:?}");
        }
        assert_eq!(bench.app.opened, opened);
        bench.world.inject(PORT, &segment(tcp_flags::RST, (next.0, 0)));
        let is_dropped = opened == 1 && !one_shot;
        let flags: Vec<_> = answers(&mut bench, &syn).iter().map(|tcp| tcp.flags).collect();
        if is_dropped {
            assert_eq!((flags, &bench.app.closed[..]), (vec![], &[Close::Error][..]));
            let again = answers(&mut bench, &syn);
            assert_eq!(again.len(), 1, "{again:?}");
            assert_eq!(again[0].flags, tcp_flags::SYN | tcp_flags::ACK);
        } else {
            assert_eq!(flags, [tcp_flags::SYN | tcp_flags::ACK], "{opened} {one_shot}");
        }
        let counts = bench.stack.connections();
        assert_eq!((counts.total, counts.half_open, counts.slots), (1, 1, 1));
    }
}

/// A SYN with `options_bytes` of options, none of which says anything.
fn long_syn(source_port: u16, options_bytes: usize) -> Vec<u8> {
    let tcp = Tcp {
        source_port,
        destination_port: 7,
        sequence: 1000,
        acknowledgement: 0,
        header_bytes: 20 + options_bytes,
        flags: tcp_flags::SYN,
        window: 4096,
        checksum: 0,
        urgent: 0,
    };
    let mut segment = vec![0; 20];
    assert!(tcp.emit(&mut segment));
    segment.resize(20 + options_bytes, 1);
    segment
}

#[test]
fn a_peer_whose_fin_and_next_syn_come_in_one_burst_ends_the_connection_before() {
    let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    bench.app.one_shot = true;
    let own = opened(&mut bench, from);
    let words = segment_with(from, near(7), (tcp_flags::ACK, 1001, own), 4096, b"over");
    let last = answers(&mut bench, &words);
    assert!(last.iter().any(|tcp| tcp.flags & tcp_flags::FIN != 0), "{last:?}");
    assert_eq!(bench.app.closed, [], "the echo is on its way");
    // It acknowledges the echo and the FIN behind it.
    let fin = (tcp_flags::FIN | tcp_flags::ACK, 1005, own.wrapping_add(5));
    bench.world.inject(PORT, &segment_with(from, near(7), fin, 4096, &[]));
    let syn = syn(from, near(7));
    let syn_acks = |answers: &[Tcp]| {
        answers.iter().filter(|tcp| tcp.flags == tcp_flags::SYN | tcp_flags::ACK).count()
    };
    assert_eq!(syn_acks(&answers(&mut bench, &syn)), 0, "the app has not been notified");
    assert_eq!(bench.app.closed, [Close::App]);
    assert_eq!(syn_acks(&answers(&mut bench, &syn)), 1);
    let counts = bench.stack.connections();
    assert_eq!((counts.total, counts.half_open, counts.slots), (1, 1, 1));
}

#[test]
fn a_syn_behind_other_headers_is_answered_as_any_other() {
    let v6: (IpAddr, IpAddr) = ("fd00::9".parse().unwrap(), "fd00::1".parse().unwrap());
    let v4 = ("10.0.1.9".parse().unwrap(), near(7).ip());
    let long = [&[60, 1][..], &[0; 14], &[protocol::TCP, 0, 1, 4, 0, 0, 0, 0]].concat();
    let between = [
        (v6, 0, &[protocol::TCP, 0, 5, 2, 0, 0, 1, 0][..]),
        (v6, 0, &[protocol::TCP, 0, 0x1e, 4, 1, 2, 3, 4]),
        (v6, 0, &long),
        (v6, 43, &[protocol::TCP, 0, 4, 0, 0, 0, 0, 0]),
        (v6, 44, &[protocol::TCP, 0, 0, 0, 1, 2, 3, 4]),
        (v6, 60, &[protocol::TCP, 0, 1, 4, 0, 0, 0, 0]),
        (v4, protocol::TCP, &[7, 7, 4, 0, 0, 0, 0, 0]),
    ];
    for options_bytes in [0, 8, 40] {
        let mut bench = Bench::new("sim", &config(&["10.0.0.1:7", "[fd00::1]:7"]), Server::echo());
        for (port, (ends, first, between)) in (5000..).zip(between) {
            let syn = frame_behind(ends, (first, between), &long_syn(port, options_bytes));
            let answers = answers(&mut bench, &syn);
            let flags: Vec<_> = answers.iter().map(|tcp| tcp.flags).collect();
            let case = format!("{options_bytes} bytes of options behind {first} {between:?}");
            assert_eq!(flags, [tcp_flags::SYN | tcp_flags::ACK], "{case}");
            let mut request = vec![0; 20];
            let tcp = Tcp {
                source_port: port,
                destination_port: 7,
                sequence: 1001,
                acknowledgement: answers[0].sequence.wrapping_add(1),
                header_bytes: 20,
                flags: tcp_flags::ACK,
                ..answers[0]
            };
            assert!(tcp.emit(&mut request));
            request.extend_from_slice(b"request");
            bench.world.inject(PORT, &frame_behind(ends, (first, between), &request));
            bench.longest = 0;
            bench.step();
            assert_eq!(bench.longest, 14 + if ends == v4 { 20 } else { 40 } + 27, "{case}");
        }
        assert_eq!((bench.app.opened, bench.stack.connections().total), (7, 7));
        assert_eq!(bench.stack.events().icmp_errors_sent, 0);
    }
}

#[test]
fn an_option_that_asks_to_be_known_has_its_packet_dropped() {
    let ends = ("fd00::9".parse().unwrap(), "fd00::1".parse().unwrap());
    for first in [0, 60] {
        for option in [0x40, 0x80, 0xc2, 0xfe] {
            let mut bench = Bench::new("sim", &config(&["[fd00::1]:7"]), Server::echo());
            let between = [protocol::TCP, 0, 0, option, 3, 1, 2, 3];
            let syn = frame_behind(ends, (first, &between), &long_syn(5000, 0));
            assert_eq!(answers(&mut bench, &syn), [], "{option:x} in {first}");
            assert_eq!(bench.stack.connections().total, 0);
            assert_eq!(bench.stack.counters(PORT).drops(DropReason::NoListener), 1);
        }
    }
}

#[test]
fn answers_go_to_the_mac_that_a_connection_comes_from() {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    bench.world.inject(PORT, &syn("172.16.0.1:5000".parse().unwrap(), near(7)));
    let clock = bench.world.clock();
    bench.stack.serve(&mut bench.app, &clock).unwrap();
    let arrivals = bench.world.collect(PORT);
    let answer = arrivals.iter().find(|a| a.bytes[12..14] == [8, 0]).expect("a SYN-ACK");
    assert_eq!(answer.bytes[..6], FAR_MAC, "no route was needed");
}

/// A router's message that a segment of ours to `far` is longer than its path takes.
fn too_big(far: SocketAddr, mtu_bytes: u16) -> Vec<u8> {
    let SocketAddr::V4(remote) = far else { panic!("IPv4") };
    // Type 3, code 4; then the quoted segment of ours.
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend_from_slice(&mtu_bytes.to_be_bytes());
    let quoted = segment(near(7), far, tcp_flags::ACK, 1, 1);
    message.extend_from_slice(&quoted[14..]);
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = quoted[14..34].to_vec();
    packet[2..4].copy_from_slice(&(20 + message.len() as u16).to_be_bytes());
    packet[9] = protocol::ICMP;
    packet[12..16].copy_from_slice(&remote.ip().octets());
    packet[16..20].copy_from_slice(&[10, 0, 0, 1]);
    assert!(Ipv4::seal(&mut packet));
    packet.extend_from_slice(&message);
    framed(&packet)
}

#[test]
fn a_reported_path_mtu_shortens_the_segments_of_its_connection() {
    // However many other paths are known, and however many connections use this one.
    for (path_mtus_max, learned) in [(1024, 2), (0, 0)] {
        let mut config = config(&["10.0.0.1:7"]);
        (config.tcp.tx_bytes, config.limits.path_mtus_max) = (16_384, path_mtus_max);
        let mut bench = Bench::new("sim:delay_us=50", &config, Server::echo());
        let fars = [bench.connect(near(7)), bench.connect(near(7))];
        for far in fars {
            bench.longest = 0;
            bench.far(far).write(&bytes(1, 20_000));
            assert!(bench.until(MINUTE, |b| b.far(far).received.len() == 20_000));
            assert_eq!(bench.longest, 1514);
        }
        // Which connection hears what, and what it sends then; what is known of the path goes for both.
        let known = if path_mtus_max > 0 { 900 } else { 950 };
        for (far, mtu_bytes, sends) in
            [(0, 1000, 1000), (1, 1000, 1000), (1, 1200, 1000), (0, 900, 900), (1, 950, known)]
        {
            let far = fars[far];
            bench.world.inject(PORT, &too_big(far, mtu_bytes));
            assert!(!bench.until(Duration::from_millis(1), |_| false));
            bench.longest = 0;
            let all = bench.far(far).received.len() + 20_000;
            bench.far(far).write(&bytes(2, 20_000));
            assert!(bench.until(MINUTE, |b| b.far(far).received.len() == all));
            assert_eq!(bench.longest, 14 + sends, "{far}: {mtu_bytes}, table of {path_mtus_max}");
        }
        assert_eq!(bench.stack.events().path_mtus_learned, learned);
    }
}

#[test]
fn a_request_longer_than_the_receive_buffer_is_shown_whole_up_to_the_limit() {
    let mut config = config(&["10.0.0.1:7"]);
    (config.tcp.rx_bytes, config.tcp.unread_bytes_max) = (2048, 30_000);
    let mut bench = Bench::new("sim:delay_us=50", &config, Server::http());
    let far = bench.connect(near(7));
    let request = |bytes: usize| [vec![b'x'; bytes], b"\r\n\r\n".to_vec()].concat();
    for bytes in [25_000, 10, 29_000] {
        bench.far(far).received.clear();
        bench.far(far).write(&request(bytes));
        let answered = bench.until(MINUTE, |b| b.far(far).received.ends_with(b"laneway"));
        assert!(answered, "{bytes} bytes");
    }
    bench.far(far).write(&request(40_000));
    assert!(bench.until(MINUTE, |b| b.app.closed == [Close::Error]));
    assert!(bench.until(MINUTE, |b| b.far(far).state() == State::Closed), "it was reset");
}

#[test]
fn a_reply_longer_than_the_send_buffer_and_the_queue_leaves_whole() {
    const LONG: usize = 40_000;
    let long = |bytes: &[u8], reply: &mut Vec<u8>| {
        reply.resize(usize::from(bytes[0]) * 10_000, 0x77);
        1
    };
    let mut config = config(&["10.0.0.1:7"]);
    (config.tcp.tx_bytes, config.tcp.backlog_bytes_max) = (2048, LONG - 2048);
    let mut bench = Bench::new("sim:delay_us=50", &config, Server::new(long));
    let far = bench.connect(near(7));
    bench.far(far).write(&[4, 4, 1]);
    assert!(bench.until(MINUTE, |b| b.far(far).received.len() == 2 * LONG + 10_000));
    assert!(bench.app.closed.is_empty());
    bench.far(far).write(&[5]);
    assert!(bench.until(MINUTE, |b| b.far(far).received.len() == 2 * LONG + 60_000));
}

const MIB: usize = 1 << 20;
/// A round trip takes 50 ms.
const FAR_AWAY: &str = "sim:frames=8192,queue=16384,delay_us=25000";

/// Uses up what it is shown.
fn sink() -> Server {
    Server::new(|bytes, _| bytes.len())
}

/// Answers each byte by 8 MiB.
fn source() -> Server {
    Server::new(|_, reply| {
        *reply = bytes(9, 8 * MIB);
        1
    })
}

/// How long 8 MiB take from or to a peer far away, when windows may grow to `window_bytes_max`.
fn stream_ns(app: fn() -> Server, receives: bool, window_bytes_max: usize) -> u64 {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.window_bytes_max = window_bytes_max;
    let mut bench = Bench::new(FAR_AWAY, &config, app());
    bench.far_bytes = if receives { 2 * MIB } else { MIB / 8 };
    let far = bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.app.opened == 1));
    let began_ns = bench.now_ns();
    if receives {
        bench.far(far).write(&bytes(9, 8 * MIB));
        let is_there = |b: &mut Bench<Server>| b.stack.counters(PORT).rx_bytes == 8 * MIB as u64;
        assert!(bench.until(10 * MINUTE, is_there));
    } else {
        bench.far(far).write(&[1]);
        let is_there = |b: &mut Bench<Server>| b.far(far).received.len() == 8 * MIB;
        assert!(bench.until(10 * MINUTE, is_there));
        assert!(bench.far(far).received == bytes(9, 8 * MIB));
    }
    let counts = bench.stack.connections();
    assert_eq!(counts.grown, usize::from(window_bytes_max > 64 << 10));
    let took_ns = bench.now_ns() - began_ns;
    bench.far(far).finish();
    assert!(bench.until(MINUTE, |b| b.stack.connections().total == 0));
    assert_eq!((bench.app.closed, bench.stack.connections().grown_bytes), (vec![Close::Peer], 0));
    took_ns
}

#[test]
fn a_stream_over_a_long_path_is_four_times_as_quick_with_windows_that_grow() {
    for (app, receives) in [(sink as fn() -> Server, true), (source, false)] {
        let start_bytes = if receives { 16 << 10 } else { 64 << 10 };
        let fixed_ns = stream_ns(app, receives, start_bytes);
        let grown_ns = stream_ns(app, receives, MIB);
        assert!(grown_ns * 4 <= fixed_ns, "{grown_ns} of {fixed_ns} ns, receives: {receives}");
    }
}

/// How long 8 MiB take to a peer a millisecond away over a link that loses frames of both directions.
fn lossy_ns(loss: &str, seed: u64) -> u64 {
    let spec = format!("sim:frames=4096,queue=8192,seed={seed},loss={loss},delay_us=500");
    let mut bench = Bench::new(&spec, &config(&["10.0.0.1:7"]), source());
    bench.far_bytes = MIB / 8;
    let far = bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.app.opened == 1), "{spec}");
    let began_ns = bench.now_ns();
    bench.far(far).write(&[1]);
    let is_there = |b: &mut Bench<Server>| b.far(far).received.len() == 8 * MIB;
    assert!(bench.until(10 * MINUTE, is_there), "{spec}");
    assert!(bench.far(far).received == bytes(9, 8 * MIB), "{spec}");
    bench.now_ns() - began_ns
}

/// smoltcp's timer is a second at least. Of some sixty losses several are in one window, of what was sent again, or of
/// the last segments: each would wait for it.
#[test]
fn what_is_lost_is_sent_again_in_round_trips_and_not_in_seconds() {
    for loss in ["0.001", "0.01"] {
        for seed in 1..=4 {
            let took_ns = lossy_ns(loss, seed);
            assert!(
                took_ns < 6_000_000_000,
                "{loss} lost, seed {seed}: {} ms",
                took_ns / 1_000_000
            );
        }
    }
}

/// Of what we send first, or answer to what was in one burst with the end of the handshake: all copies but the last are
/// lost, which smoltcp's timer sends.
#[test]
fn first_bytes_that_a_silent_link_loses_arrive_soon_after() {
    const LONG: &[u8] = &[7; 4000];
    let answer = |asked: &[u8], reply: &mut Vec<u8>| {
        reply.extend_from_slice(LONG);
        asked.len()
    };
    for (greeting, request) in [(LONG, &b""[..]), (&b""[..], b"request")] {
        let mut bench =
            Bench::new("sim:delay_us=500", &config(&["10.0.0.1:7"]), Server::new(answer));
        bench.app.greeting = greeting;
        let far = bench.connect(near(7));
        bench.far(far).write(request);
        assert!(bench.until(MINUTE, |b| b.stack.counters(PORT).tx_bytes > 0));
        let away = bench.fars.remove(&far).expect("it was connected");
        assert!(!bench.until(Duration::from_millis(500), |_| false));
        bench.fars.insert(far, away);
        let is_there = |b: &mut Bench<Server>| b.far(far).received == LONG;
        assert!(bench.until(Duration::from_secs(10), is_there), "asked: {request:?}");
    }
}

#[test]
fn bytes_are_exact_while_windows_grow_whatever_the_link_does() {
    const BYTES: usize = 60_000;
    for loss in ["0", "0.001", "0.01"] {
        for seed in 1..=2 {
            let spec = format!(
                "sim:seed={seed},loss={loss},dup=0.01,reorder=0.02,reorder_us=300,delay_us=500,jitter_us=20"
            );
            let mut config = config(&["10.0.0.1:7", "[fd00::1]:7"]);
            (config.tcp.rx_bytes, config.tcp.tx_bytes) = (4096, 4096);
            let to = [near(7), "[fd00::1]:7".parse().unwrap()];

            // There and back, with a rest behind each round.
            let mut bench = Bench::new(&spec, &config, Server::echo());
            bench.far_bytes = 32 << 10;
            let fars = to.map(|to| bench.connect(to));
            let mut rounds = Vec::new();
            for round in 0..5 {
                rounds.extend(bytes(round, BYTES));
                for far in fars {
                    bench.far(far).write(&bytes(round, BYTES));
                    let is_back = |b: &mut Bench<Server>| b.far(far).received.len() >= rounds.len();
                    assert!(bench.until(10 * MINUTE, is_back), "{spec}: bytes are missing");
                    assert!(bench.far(far).received == rounds, "{spec}: {far}");
                }
            }
            assert!(bench.stack.events().buffers_grown > 1, "{spec}: {:?}", bench.stack.events());
            assert_eq!(bench.stack.counters(PORT).rx_bytes, rounds.len() as u64, "{spec}");

            // Answers of a byte, which look like keep-alives.
            let answer = |asked: &[u8], reply: &mut Vec<u8>| {
                reply.push(b'.');
                asked.len()
            };
            let mut bench = Bench::new(&spec, &config, Server::new(answer));
            bench.far_bytes = 32 << 10;
            let far = bench.connect(near(7));
            for round in 1..=3 {
                bench.far(far).write(&bytes(1, 4 * BYTES));
                let is_there = |b: &mut Bench<Server>| {
                    let counters = b.stack.counters(PORT);
                    let answers = b.far(far).received.len() as u64;
                    counters.rx_bytes == round * 4 * BYTES as u64 && answers == counters.tx_bytes
                };
                assert!(bench.until(10 * MINUTE, is_there), "{spec}: bytes are missing");
                // Before a rest, no buffer can grow.
                assert!(!bench.until(Duration::from_millis(100), |_| false));
            }
            assert!(bench.stack.events().buffers_grown > 0, "{spec}: {:?}", bench.stack.events());

            // Longer than anything that is queued.
            let answer = |asked: &[u8], reply: &mut Vec<u8>| {
                *reply = bytes(u64::from(asked[0]), 4 * BYTES);
                1
            };
            let mut bench = Bench::new(&spec, &config, Server::new(answer));
            for to in to {
                let far = bench.connect(to);
                bench.far(far).write(&[5, 6]);
                let is_there = |b: &mut Bench<Server>| b.far(far).received.len() >= 8 * BYTES;
                assert!(bench.until(10 * MINUTE, is_there), "{spec}: bytes are missing");
                let want = [bytes(5, 4 * BYTES), bytes(6, 4 * BYTES)].concat();
                assert!(bench.far(far).received == want, "{spec}: {far}");
            }
            assert!(bench.stack.events().buffers_grown > 1, "{spec}: {:?}", bench.stack.events());
        }
    }
}

#[test]
fn memory_by_which_connections_grow_is_bounded_and_given_back() {
    let mut config = config(&["10.0.0.1:7"]);
    config.tcp.grown_bytes_max = 100_000;
    let mut bench = Bench::new("sim:frames=4096,queue=8192,delay_us=5000", &config, sink());
    bench.far_bytes = MIB;
    for round in 1..=2u64 {
        let fars: Vec<_> = (0..4).map(|_| bench.connect(near(7))).collect();
        for far in &fars {
            bench.far(*far).write(&bytes(1, MIB));
        }
        let (mut grown_bytes, mut largest) = (0, 0);
        let all = round * 4 * MIB as u64;
        let all_there = |b: &mut Bench<Server>| {
            grown_bytes = b.stack.connections().grown_bytes;
            largest = grown_bytes.max(largest);
            b.stack.counters(PORT).rx_bytes == all
        };
        assert!(bench.until(MINUTE, all_there));
        // 16 KiB more for each of the four, and 32 KiB more for one of them.
        assert_eq!((grown_bytes, largest), (96 << 10, 96 << 10));
        assert_eq!(bench.stack.connections().grown, 4);
        fars.iter().for_each(|far| bench.far(*far).abort());
        assert!(bench.until(MINUTE, |b| b.stack.connections().total == 0));
        let counts = bench.stack.connections();
        assert_eq!((counts.grown, counts.grown_bytes, counts.slots), (0, 0, 4));
    }
}

#[test]
fn a_slow_stream_and_an_app_that_reads_late_leave_windows_as_they_are() {
    let mut bench = Bench::new("sim:delay_us=5000", &config(&["10.0.0.1:7"]), sink());
    let far = bench.connect(near(7));
    assert!(bench.until(MINUTE, |b| b.app.opened == 1));
    for second in 1..=100 {
        bench.far(far).write(&bytes(1, 1000));
        assert!(!bench.until(Duration::from_secs(1), |_| false));
        assert_eq!(bench.stack.counters(PORT).rx_bytes, second * 1000);
    }
    // All is left unread until 30,000 bytes have come.
    bench.app = Server::new(|bytes, _| if bytes.len() < 30_000 { 0 } else { bytes.len() });
    let late = bench.connect(near(7));
    bench.far(late).write(&bytes(1, 29_000));
    assert!(bench.until(MINUTE, |b| b.stack.counters(PORT).rx_bytes == 129_000));
    assert_eq!((bench.stack.events().buffers_grown, bench.stack.connections().grown), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Segments with right checksums behind any options and extension headers, of a connection or not, and any bytes
    /// behind a sound IP header: the stack goes on, and the next client is served.
    #[test]
    fn any_headers_before_a_segment_are_survived(
        packets in proptest::collection::vec(
            (
                proptest::collection::vec((any::<prop::sample::Index>(), 0usize..3, any::<u64>(), any::<bool>()), 0..4),
                (any::<bool>(), 0usize..11, proptest::collection::vec(any::<u8>(), 40)),
                (0u16..0x40, any::<bool>(), 0usize..11, proptest::collection::vec(any::<u8>(), 20..120)),
                0u8..4,
            ), 1..12),
    ) {
        let mut bench = Bench::new("sim", &config(&["10.0.0.1:7", "[fd00::1]:7"]), Server::echo());
        let v6: (IpAddr, IpAddr) = ("fd00::9".parse().unwrap(), "fd00::1".parse().unwrap());
        let v4 = ("10.0.1.9".parse().unwrap(), near(7).ip());
        for (headers, (is_v4, words, options), (flags, is_sound, tcp_words, segment), how) in packets {
            let kinds: Vec<u8> = headers.iter().map(|(kind, ..)| *kind.get(&[0, 43, 44, 60, 135])).collect();
            let mut between = Vec::new();
            for (i, (_, units, noise, is_quiet)) in headers.iter().enumerate() {
                between.extend([*kinds.get(i + 1).unwrap_or(&protocol::TCP), *units as u8]);
                let noise = if *is_quiet { 0 } else { *noise };
                between.extend(noise.to_be_bytes().iter().cycle().take(6 + units * 8));
            }
            let first = *kinds.first().unwrap_or(&protocol::TCP);
            let mut segment = segment;
            if is_sound {
                let tcp = Tcp {
                    source_port: 5000,
                    destination_port: 7,
                    sequence: 1000,
                    acknowledgement: 0,
                    header_bytes: 20 + (tcp_words * 4).min(segment.len() - 20) / 4 * 4,
                    flags: if how < 2 { tcp_flags::SYN } else { flags },
                    window: 4096,
                    checksum: 0,
                    urgent: 0,
                };
                prop_assert!(tcp.emit(&mut segment));
            }
            let frame = match is_v4 {
                true => frame_behind(v4, (first, &options[..words * 4]), &segment),
                false => frame_behind(v6, (first, &between), &segment),
            };
            bench.world.inject(PORT, &frame);
            if how % 2 == 0 {
                bench.step();
            }
        }
        let far = bench.connect(near(7));
        bench.far(far).write(b"still there?");
        prop_assert!(bench.until(MINUTE, |b| b.far(far).received == b"still there?"));
        prop_assert_eq!(bench.stack.events().icmp_errors_sent, 0);
    }

    /// Segments with right checksums and any numbers, flags and windows, near the true ones or not,
    /// in every state of a connection: the stack goes on, and the next client is served.
    #[test]
    fn any_segments_of_a_connection_are_survived(
        segments in proptest::collection::vec(
            (0u16..0x40, -6000i32..6000, -6000i32..6000, any::<u16>(), 0usize..1460, 0u8..4, 0u64..3000), 1..40),
        closes: bool, cookies: bool
    ) {
        let mut config = config(&["10.0.0.1:7"]);
        if cookies {
            config.tcp.half_open_max = 0;
        }
        (config.tcp.rx_bytes, config.tcp.tx_bytes) = (2048, 2048);
        let mut bench = Bench::new("sim", &config, Server::echo());
        bench.app.one_shot = closes;
        let from: SocketAddr = "10.0.1.9:5000".parse().unwrap();
        bench.world.inject(PORT, &syn(from, near(7)));
        let clock = bench.world.clock();
        bench.stack.serve(&mut bench.app, &clock).unwrap();
        let own = collected(&bench)[0].sequence;
        bench.world.inject(PORT, &segment(from, near(7), tcp_flags::ACK, 1001, own.wrapping_add(1)));
        bench.stack.serve(&mut bench.app, &clock).unwrap();
        for (flags, sequence, ack, window, length, exact, pause_ms) in segments {
            // Half of the numbers are the right ones, so that states beyond the first are reached.
            let sequence = if exact & 1 == 0 { 0 } else { sequence };
            let ack = if exact & 2 == 0 { 0 } else { ack };
            let numbers = (
                flags | tcp_flags::ACK,
                1001u32.wrapping_add_signed(sequence),
                own.wrapping_add(1).wrapping_add_signed(ack),
            );
            let frame = segment_with(from, near(7), numbers, window, &bytes(1, length));
            bench.world.inject(PORT, &frame);
            bench.stack.serve(&mut bench.app, &clock).unwrap();
            let now_ns = bench.now_ns();
            bench.world.advance_to(now_ns + pause_ms * 1_000_000);
            bench.stack.serve(&mut bench.app, &clock).unwrap();
        }
        let far = bench.connect(near(7));
        bench.far(far).write(b"still there?");
        prop_assert!(bench.until(MINUTE, |b| b.far(far).received == b"still there?"));
        prop_assert!(bench.stack.connections().total <= 2);
    }
}
