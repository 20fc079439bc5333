//! Segments that a live connection takes only in part, or not at all, although their ends are right.

#![forbid(unsafe_code)]
#[expect(dead_code, reason = "each test file uses a part")]
mod apps;
#[expect(dead_code, reason = "each test file uses a part")]
mod far;
#[expect(dead_code, reason = "each test file uses a part")]
mod segments;

use apps::Server;
use far::{Bench, PORT, config, near};
use laneway_core::{Close, Lane, StreamLane};
use laneway_wire::{Tcp, tcp_flags};
use segments::{answers, opened, segment, segment_with};
use std::net::SocketAddr;

fn from() -> SocketAddr {
    "10.0.1.9:5000".parse().unwrap()
}

/// What the far end sends with these flags and numbers, and nothing behind them.
fn bare(flags: u16, (sequence, ack): (u32, u32)) -> Vec<u8> {
    segment(from(), near(7), flags, sequence, ack)
}

/// A connection over which four bytes were echoed, and which the peer has finished if it `finishes`; and the numbers of
/// what the peer sends next.
fn live(finishes: bool) -> (Bench<Server>, (u32, u32)) {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    let own = opened(&mut bench, from());
    let words = segment_with(from(), near(7), (tcp_flags::ACK, 1001, own), 4096, b"echo");
    assert_eq!(answers(&mut bench, &words).len(), 1);
    let mut next = (1005, own.wrapping_add(4));
    assert_eq!(answers(&mut bench, &bare(tcp_flags::ACK, next)), []);
    if finishes {
        let fin = answers(&mut bench, &bare(tcp_flags::FIN | tcp_flags::ACK, next));
        assert!(fin.iter().any(|tcp| tcp.flags & tcp_flags::FIN != 0), "{fin:?}");
        next = (next.0 + 1, next.1.wrapping_add(1));
    }
    (bench, next)
}

#[test]
fn a_syn_for_a_live_connection_is_answered_with_the_numbers_of_now() {
    for (sequence, finishes) in [(9_000_000, false), (1010, false), (9_000_000, true)] {
        for flags in [tcp_flags::SYN, tcp_flags::SYN | tcp_flags::ACK] {
            let (mut bench, next) = live(finishes);
            let syn = bare(flags, (sequence, if flags == tcp_flags::SYN { 0 } else { next.1 }));
            bench.world.inject(PORT, &syn);
            let acks = answers(&mut bench, &syn);
            assert_eq!(acks.len(), 1, "of two in one turn: {acks:?}");
            assert_eq!((acks[0].flags, acks[0].window), (tcp_flags::ACK, 16 << 10));
            assert_eq!((acks[0].acknowledgement, acks[0].sequence), next);
            let events = bench.stack.events();
            assert_eq!((events.challenges_sent, events.challenges_suppressed), (1, 1));
            // A peer that has restarted knows nothing of the connection, and resets it.
            let reset = bare(tcp_flags::RST, (acks[0].acknowledgement, 0));
            assert_eq!(answers(&mut bench, &reset), []);
            let why = if finishes { Close::Peer } else { Close::Error };
            assert_eq!(bench.app.closed, [why]);
            let again = answers(&mut bench, &bare(tcp_flags::SYN, (sequence, 0)));
            let flags: Vec<_> = again.iter().map(|tcp| tcp.flags).collect();
            assert_eq!(flags, [tcp_flags::SYN | tcp_flags::ACK]);
        }
    }
}

#[test]
fn a_reset_ends_a_connection_by_the_next_number_alone() {
    let window_bytes = 16 << 10;
    for finishes in [false, true] {
        for (ahead, bytes, challenges) in [
            (1, 0, 1),
            (window_bytes - 1, 0, 1),
            (window_bytes, 0, 0),
            (-1, 0, 0),
            (-1, 4, 0),
            (i32::MIN, 0, 0),
        ] {
            let (mut bench, next) = live(finishes);
            let numbers = (tcp_flags::RST, next.0.wrapping_add_signed(ahead), 0);
            let guess = segment_with(from(), near(7), numbers, 0, &vec![0; bytes]);
            let acks = answers(&mut bench, &guess);
            assert_eq!(acks.len(), challenges, "{ahead}, {bytes} bytes: {acks:?}");
            for ack in acks {
                assert_eq!(ack.flags, tcp_flags::ACK);
                assert_eq!((ack.acknowledgement, ack.sequence), next);
            }
            assert_eq!(bench.stack.connections().total, 1, "{ahead}, {bytes} bytes");
            assert_eq!(answers(&mut bench, &bare(tcp_flags::RST, (next.0, 0))), []);
            assert_eq!(bench.stack.connections().total, 0);
        }
    }
}

#[test]
fn a_connection_challenges_twice_a_second() {
    let (mut bench, next) = live(false);
    for round in 1..=10 {
        for _ in 0..3 {
            answers(&mut bench, &bare(tcp_flags::RST, (next.0 + 1, 0)));
        }
        assert_eq!(bench.stack.events().challenges_sent, round);
        let now_ns = bench.now_ns();
        bench.world.advance_to(now_ns + 500_000_000);
    }
    assert_eq!(bench.stack.events().challenges_suppressed, 20);
}

#[test]
fn text_behind_an_acknowledgement_that_was_overtaken_is_taken() {
    let (mut bench, (text, own)) = live(false);
    let words = |sequence, ack, window, bytes: &[u8]| {
        segment_with(from(), near(7), (tcp_flags::ACK, sequence, ack), window, bytes)
    };
    let received = |bench: &mut Bench<Server>| bench.stack.counters(PORT).rx_bytes;
    let sent_back = |answers: &[Tcp]| answers.iter().any(|tcp| tcp.flags & tcp_flags::PSH != 0);
    // Both were sent around the acknowledgement of the echo, and arrive the other way round.
    let (late, next) = (own.wrapping_sub(4), own);
    assert!(!sent_back(&answers(&mut bench, &words(text + 4, next, 4096, b"next"))));
    let too_late = own.wrapping_sub((64 << 10) + 1);
    assert!(!sent_back(&answers(&mut bench, &words(text, too_late, 4096, b"long"))));
    assert_eq!(received(&mut bench), 4, "what is older than a window is a stranger's");
    // The window is as old as the acknowledgement: by it nothing could be sent.
    assert!(sent_back(&answers(&mut bench, &words(text, late, 0, b"late"))));
    assert_eq!((received(&mut bench), bench.app.closed.len()), (12, 0));
}

#[test]
fn an_old_acknowledgement_without_text_is_no_duplicate() {
    let (mut bench, (text, own)) = live(false);
    let words = segment_with(from(), near(7), (tcp_flags::ACK, text, own), 4096, b"more");
    assert_eq!(answers(&mut bench, &words).len(), 1);
    for _ in 0..4 {
        let old = bare(tcp_flags::ACK, (text + 4, own.wrapping_sub(4)));
        assert_eq!(answers(&mut bench, &old), [], "nothing is sent again");
    }
}

#[test]
fn a_reset_behind_a_timeout_has_the_number_behind_all_that_was_sent() {
    let mut bench = Bench::new("sim", &config(&["10.0.0.1:7"]), Server::echo());
    bench.app.greeting = &[7; 5 * 536];
    let own = answers(&mut bench, &bare(tcp_flags::SYN, (1000, 0)))[0].sequence.wrapping_add(1);
    bench.world.inject(PORT, &bare(tcp_flags::ACK, (1001, own)));
    let clock = bench.world.clock();
    // The ends of the segments sent, none of which is acknowledged.
    let (mut last, mut highest) = (0, 0);
    for _ in 0..100 {
        bench.stack.serve(&mut bench.app, &clock).unwrap();
        for arrival in bench.world.collect(PORT) {
            if arrival.bytes[12..14] == [8, 0] {
                let tcp = Tcp::parse(&arrival.bytes[34..]).unwrap();
                let total_bytes = u16::from_be_bytes([arrival.bytes[16], arrival.bytes[17]]);
                let end = tcp.sequence.wrapping_add(u32::from(total_bytes) - 40);
                last = end.wrapping_sub(own);
                highest = last.max(highest);
            }
        }
        let now_ns = bench.now_ns();
        bench.world.advance_to(now_ns + 100_000_000);
    }
    assert!(highest > 536 && last < highest, "{last} of {highest} bytes were sent again");
    bench.app.aborts = true;
    let words = segment_with(from(), near(7), (tcp_flags::ACK, 1001, own), 4096, b"stop");
    let resets = answers(&mut bench, &words);
    assert_eq!(bench.app.closed, [Close::App]);
    let resets: Vec<_> = resets.iter().filter(|tcp| tcp.flags & tcp_flags::RST != 0).collect();
    assert_eq!(resets.len(), 1);
    assert_eq!(resets[0].sequence, own.wrapping_add(highest));
}
