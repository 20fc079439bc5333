//! Damaged frames: nothing panics, all three forms agree, and what holds for every frame holds.

use crate::{
    Sent,
    build::sum,
    captures::captures,
    program::{Program, runs},
    referee::referee,
    rows::{frames, responder, rows},
    run,
};
use laneway_echo::{Config, Fate, Limits, Rate};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};

/// Damaged frames per case.
const FRAMES: usize = 300;
/// Most damage lies in the headers.
const HEADERS_BYTES: usize = 100;

/// What is done to a frame.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    Grow(Vec<u8>),
    /// Bytes of the same frame at another place.
    Move(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => any::<Index>().prop_map(Damage::Cut),
        1 => proptest::collection::vec(any::<u8>(), 1..90).prop_map(Damage::Grow),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Damage::Move(from, to)),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let reach = bytes.len().min(HEADERS_BYTES);
    match damage {
        Damage::Grow(more) => bytes.extend(more),
        _ if reach == 0 => {}
        Damage::Flip(at, bit) => bytes[at.index(reach)] ^= 1 << bit,
        Damage::Set(at, byte) => bytes[at.index(reach)] = *byte,
        Damage::Cut(at) => bytes.truncate(at.index(reach)),
        Damage::Move(from, to) => bytes[to.index(reach)] = bytes[from.index(reach)],
    }
}

/// The rows of the table and the odd frames of captures, damaged or not.
fn damaged() -> impl Strategy<Value = Vec<Sent>> {
    let mut seeds = frames(&rows());
    seeds.extend(captures().iter().flat_map(|c| c.frames.iter().take(1)).take(200).cloned());
    let one = (any::<Index>(), proptest::collection::vec(damage(), 0..4), 0u64..50_000_000);
    proptest::collection::vec(one, 1..FRAMES).prop_map(move |choices| {
        let mut at_ns = 1_000_000_000;
        let frames = choices.into_iter().map(|(seed, damages, step_ns)| {
            let mut bytes = seed.get(&seeds).bytes.clone();
            damages.iter().for_each(|d| apply(d, &mut bytes));
            at_ns += step_ns;
            Sent { at_ns, bytes }
        });
        frames.collect()
    })
}

fn limited() -> Config {
    let limits = Limits {
        per_source: Some(Rate { per_second: 20, burst: 3 }),
        global: Some(Rate { per_second: 30, burst: 5 }),
        sources_max: 1024,
    };
    Config { limits, ..responder() }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    })
}

/// True if the ICMP message of an IPv4 or IPv6 packet behind tags sums up.
fn sums_up(frame: &[u8]) -> bool {
    let mut at = 14;
    while matches!(u16::from_be_bytes([frame[at - 2], frame[at - 1]]), 0x8100 | 0x88a8 | 0x9100) {
        at += 4;
    }
    let packet = &frame[at..];
    let length = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 4 {
        assert_eq!(sum(&[&packet[..20]]), 0xffff, "the IPv4 header sums up");
        return sum(&[&packet[20..length(2)]]) == 0xffff;
    }
    let bytes = (length(4) as u32).to_be_bytes();
    let message = &packet[40..40 + length(4)];
    sum(&[&packet[8..40], &bytes, &[0, 0, 0, 58], message]) == 0xffff
}

#[test]
fn an_answer_sums_up_exactly_if_its_question_did() {
    runner(150)
        .run(&damaged(), |frames| {
            let (outcomes, fates) = run(&responder(), &frames);
            assert_eq!(fates.total(), frames.len() as u64);
            for (sent, outcome) in frames.iter().zip(outcomes) {
                if matches!(outcome.fate, Fate::AnsweredEchoV4 | Fate::AnsweredEchoV6) {
                    assert_eq!(sums_up(&sent.bytes), sums_up(&outcome.bytes));
                }
                if outcome.fate == Fate::AnsweredNd {
                    assert!(sums_up(&outcome.bytes));
                }
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn an_answer_is_nothing_that_we_would_answer() {
    // Or two responders could be set on each other.
    runner(60)
        .run(&damaged(), |frames| {
            let (outcomes, _) = run(&responder(), &frames);
            let answers = outcomes.into_iter().filter(|o| o.fate.is_answer());
            for answer in answers {
                // To the sender, as if it were a responder too.
                let mut bytes = answer.bytes;
                bytes[..6].copy_from_slice(&crate::MAC);
                let (again, _) = run(&responder(), &[Sent { at_ns: 0, bytes }]);
                assert!(!again[0].fate.is_answer(), "{:?}", again[0]);
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn any_bytes_have_a_fate() {
    let noise = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..50);
    runner(200)
        .run(&noise, |noise| {
            let frames: Vec<Sent> =
                noise.into_iter().map(|bytes| Sent { at_ns: 0, bytes }).collect();
            let (_, fates) = run(&responder(), &frames);
            assert_eq!(fates.total(), frames.len() as u64);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_referee_agrees_on_damaged_frames() {
    let Some(referee) = referee() else { return };
    runner(40)
        .run(&damaged(), |frames| {
            for config in [responder(), limited()] {
                let (ours, _) = run(&config, &frames);
                for ((sent, ours), theirs) in
                    frames.iter().zip(&ours).zip(referee.run(&config, &frames))
                {
                    assert!(*ours == theirs, "{sent:02x?} {ours:02x?} {theirs:02x?}");
                }
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_loaded_program_agrees_on_damaged_frames() {
    for config in [responder(), limited()] {
        let Some(program) = Program::load(&config) else { return };
        let program = std::cell::RefCell::new(program);
        runner(25)
            .run(&damaged(), |mut frames| {
                frames.retain(runs);
                let (ours, _) = run(&config, &frames);
                program.borrow().forget();
                program.borrow_mut().agrees("damaged", &frames, &ours);
                Ok(())
            })
            .unwrap_or_else(|e| panic!("{e}"));
    }
}
