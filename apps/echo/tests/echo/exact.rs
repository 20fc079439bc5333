//! Rust, the C headers on the host, and the loaded program: one fate and the same bytes for every row
//! of the table and every frame of every capture.

use crate::{
    Sent,
    build::{ping4, ping6, sum},
    captures::{asked_for, captures, variants},
    config,
    program::{Program, XDP_PASS, XDP_TX, load, runs},
    referee::referee,
    rows::{frames, responder, rows},
    run,
};
use laneway_bpf::{Loaded, RunInput, prog_run};
use laneway_core::{KernelApp, KernelHalf};
use laneway_echo::{Class, Config, Fate, Fates, KernelEcho, TTL_DEFAULT};
use laneway_testkit::skip;

/// Every switch that changes an answer, and more addresses than the program has as constants.
fn configs() -> [Config; 4] {
    let more = ["10.99.0.1", "10.99.0.2"].map(|a| a.parse().expect("an address"));
    [
        responder(),
        Config { addresses: [&responder().addresses[..], &more].concat(), ..responder() },
        Config { ttl_marker: Some(96), ..responder() },
        Config { answer_neighbours: false, ..responder() },
    ]
}

#[test]
fn the_referee_agrees_on_every_row() {
    let Some(referee) = referee() else { return };
    let (rows, frames) = (rows(), frames(&rows()));
    for config in configs() {
        let (ours, _) = run(&config, &frames);
        for ((row, ours), theirs) in rows.iter().zip(ours).zip(referee.run(&config, &frames)) {
            assert_eq!(ours, theirs, "{}", row.what);
        }
    }
}

#[test]
fn the_loaded_program_agrees_on_every_row() {
    let frames = frames(&rows());
    for config in configs() {
        let Some(mut program) = Program::load(&config) else { return };
        let (ours, _) = run(&config, &frames);
        program.agrees("rows", &frames, &ours);
    }
}

/// A ping whose ICMP checksum is `checksum`, and whose identification is such that `checksum` is that
/// of its IPv4 header too, with a TTL that depends on it.
fn with_checksum(checksum: u16) -> [Sent; 2] {
    let bare =
        ping4().with(|p| p.data.clear()).with(|p| p.ttl = (checksum >> 8) as u8 ^ checksum as u8);
    let (mut v4, mut v6) = (bare.frame(), ping6().with(|p| p.rest.truncate(4)).frame());
    v4[18..20].fill(0);
    v4[24..26].copy_from_slice(&checksum.to_be_bytes());
    let identification = !sum(&[&v4[14..34]]);
    v4[18..20].copy_from_slice(&identification.to_be_bytes());
    v4[36..38].copy_from_slice(&checksum.to_be_bytes());
    v6[56..58].copy_from_slice(&checksum.to_be_bytes());
    [v4, v6].map(|bytes| Sent { at_ns: 0, bytes })
}

#[test]
fn every_one_of_65536_checksums_is_followed_alike_by_all_three() {
    let frames: Vec<Sent> = (0..=u16::MAX).flat_map(with_checksum).collect();
    let (ours, fates) = run(&responder(), &frames);
    assert_eq!((fates.of(Fate::AnsweredEchoV4), fates.of(Fate::AnsweredEchoV6)), (65_536, 65_536));
    for outcome in ours.iter().step_by(2) {
        assert_eq!(sum(&[&outcome.bytes[14..34]]), 0xffff, "the header sums up");
    }
    if let Some(referee) = referee() {
        assert!(referee.run(&responder(), &frames) == ours, "the referee gives other bytes");
    }
    if let Some(mut program) = Program::load(&responder()) {
        program.agrees("checksums", &frames, &ours);
    }
}

#[test]
fn all_three_agree_on_every_capture() {
    let config = asked_for(captures());
    let (referee, mut program) = (referee(), Program::load(&config));
    let (mut all, mut cannot_run) = (Fates::default(), 0);
    for capture in captures() {
        let frames = variants(&capture.frames);
        let (ours, fates) = run(&config, &frames);
        all.merge(&fates);
        if let Some(referee) = referee {
            for ((sent, ours), theirs) in
                frames.iter().zip(&ours).zip(referee.run(&config, &frames))
            {
                assert!(*ours == theirs, "{}: {sent:02x?} {ours:02x?} {theirs:02x?}", capture.name);
            }
        }
        if let Some(program) = &mut program {
            program.agrees(&capture.name, &frames, &ours);
            cannot_run += frames.iter().filter(|sent| !runs(sent)).count();
        }
    }
    if cannot_run > 0 {
        skip(format!(
            "{cannot_run} frames that BPF_PROG_RUN does not take (below 14 bytes, or huge)"
        ));
    }
    for fate in [Fate::AnsweredEchoV4, Fate::AnsweredEchoV6, Fate::AnsweredArp, Fate::AnsweredNd] {
        assert!(all.of(fate) > 5, "only {} frames have fate {fate:?}", all.of(fate));
    }
    assert!(all.dropped() > 20 && all.passed() > 1000, "{all:?}");
}

/// A responder for whatever is asked for answers and drops what the responder of the table does; only
/// what the latter passes as not its own may be another's.
#[test]
fn the_table_of_fates_holds_every_question() {
    let (rows, table) = (rows(), &captures()[..1]);
    let mut config = asked_for(table);
    config.addresses.extend(responder().addresses);
    config.addresses.sort_unstable();
    config.addresses.dedup();
    let (outcomes, _) = run(&config, &table[0].frames);
    let is_passed = |fate: Fate| fate.class() == Class::Passed;
    for (row, outcome) in rows.iter().zip(outcomes).filter(|(row, _)| !is_passed(row.fate)) {
        assert_eq!(outcome.fate, row.fate, "{}", row.what);
    }
}

#[test]
fn what_is_passed_goes_on_to_the_next_program() {
    let first = KernelEcho::new(&config(&["10.77.0.9"])).unwrap();
    let Some(second) = Program::load(&config(&["fd00:77::9"])) else { return };
    let half = first.before(second.loaded().program()).half();
    answers_in_turn(half, &second);
}

#[test]
fn a_program_without_fragments_is_called_by_a_responder_without_them_alone() {
    let (first, second) = (config(&["10.77.0.9"]), config(&["fd00:77::9"]));
    let app = || KernelEcho::new(&first).unwrap();
    let (Some(whole), Some(linear)) = (Program::load(&second), Program::load_linear(&second))
    else {
        return;
    };
    let refused = |half| Loaded::load(&half).is_err();
    assert!(refused(app().before(linear.loaded().program()).half()));
    assert!(refused(app().before_linear(whole.loaded().program()).half()));
    answers_in_turn(app().before_linear(linear.loaded().program()).half(), &linear);
}

/// The first answers for 10.77.0.9, the second for fd00:77::9, and the rest passes.
fn answers_in_turn(half: KernelHalf, second: &Program) {
    let Some(chained) = load(half) else { return };
    let verdict = |bytes: Vec<u8>| {
        let input = RunInput { frame: &bytes, meta: &[], repeat: 1 };
        let output = prog_run(chained.program(), input).unwrap_or_else(|e| panic!("{e}"));
        (output.verdict, output.frame)
    };
    assert_eq!(verdict(ping4().frame()), (XDP_TX, ping4().reply(TTL_DEFAULT)), "by the first");
    assert_eq!(verdict(ping6().frame()), (XDP_TX, ping6().reply(TTL_DEFAULT)), "by the second");
    let foreign = ping4().with(|p| p.destination[3] = 77).frame();
    assert_eq!(verdict(foreign.clone()), (XDP_PASS, foreign.clone()), "by neither");
    // On its own the second knows nothing of the first's address.
    let sent = Sent { at_ns: 0, bytes: ping4().frame() };
    assert_eq!(second.verdict(&sent), (XDP_PASS, sent.bytes.clone()));
}
