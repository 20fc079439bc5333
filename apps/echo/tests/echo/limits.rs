//! The rate limits, by values of time, in all three forms.

use crate::{
    Outcome, Sent,
    build::{arp, ping4, ping6, solicitation, v6},
    program::{Program, XDP_TX},
    referee::referee,
    rows::responder,
    run,
};
use laneway_bpf::{RunInput, prog_run};
use laneway_echo::{Config, Fate, Fates, Limits, Rate};
use std::thread;

const SECOND: u64 = 1_000_000_000;

fn limited(per_source: Option<(u32, u32)>, global: Option<(u32, u32)>) -> Config {
    let rate = |(per_second, burst)| Rate { per_second, burst };
    let (per_source, global) = (per_source.map(rate), global.map(rate));
    Config { limits: Limits { per_source, global, sources_max: 4096 }, ..responder() }
}

/// A ping of this source, of either family by turns.
fn ping(source: u8, at_ns: u64) -> Sent {
    let bytes = match source % 2 {
        0 => ping4().with(|p| p.source[3] = 100 + source).frame(),
        _ => ping6().with(|p| p.source = v6(100 + source)).frame(),
    };
    Sent { at_ns, bytes }
}

/// Runs all three forms, and returns the result that they agree on.
fn agreed(config: &Config, frames: &[Sent]) -> (Vec<Outcome>, Fates) {
    let (outcomes, fates) = run(config, frames);
    if let Some(referee) = referee() {
        assert_eq!(referee.run(config, frames), outcomes);
    }
    if let Some(mut program) = Program::load(config) {
        program.agrees("limits", frames, &outcomes);
        program.forget();
        program.agrees("limits, once more", frames, &outcomes);
    }
    (outcomes, fates)
}

#[test]
fn a_source_is_answered_its_burst_and_then_its_rate() {
    let pings = (0..300).map(|i| ping(0, SECOND + i * SECOND / 100)).collect::<Vec<_>>();
    let (outcomes, fates) = agreed(&limited(Some((10, 5)), None), &pings);
    let answers = |range: std::ops::Range<usize>| {
        outcomes[range].iter().filter(|o| o.fate.is_answer()).count()
    };
    // 5 at once, then one per 100 ms.
    assert_eq!((answers(0..5), answers(5..10), answers(100..200)), (5, 0, 10));
    assert_eq!(fates.of(Fate::DroppedSourceLimit) + fates.answered(), 300);
}

#[test]
fn sources_do_not_use_up_each_others_rate_but_the_global_one() {
    let pings: Vec<Sent> = (0..40).flat_map(|source| [ping(source, 9), ping(source, 9)]).collect();
    let (_, fates) = agreed(&limited(Some((10, 1)), None), &pings);
    assert_eq!((fates.answered(), fates.of(Fate::DroppedSourceLimit)), (40, 40));
    let (_, fates) = agreed(&limited(Some((10, 1)), Some((10, 30))), &pings);
    assert_eq!((fates.answered(), fates.of(Fate::DroppedGlobalLimit)), (30, 10));
}

#[test]
fn neighbours_are_answered_while_pings_are_not() {
    let config = limited(Some((1, 1)), Some((1, 1)));
    let mut frames = vec![ping(0, 5), ping(0, 5), ping(1, 5)];
    for _ in 0..10 {
        let asked = [arp().frame(), solicitation().frame()];
        frames.extend(asked.map(|bytes| Sent { at_ns: 5, bytes }));
    }
    let (_, fates) = agreed(&config, &frames);
    assert_eq!((fates.of(Fate::AnsweredArp), fates.of(Fate::AnsweredNd)), (10, 10));
    assert_eq!(fates.dropped(), 2);
}

#[test]
fn the_defaults_answer_a_thousand_at_once_and_no_more() {
    let config = Config { limits: Limits::default(), ..responder() };
    let pings: Vec<Sent> = (0..1100).map(|_| ping(0, 77)).collect();
    let (_, fates) = agreed(&config, &pings);
    assert_eq!((fates.answered(), fates.of(Fate::DroppedSourceLimit)), (1000, 100));
}

#[test]
fn strange_clocks_are_agreed_on() {
    let times = [0, u64::MAX, u64::MAX - 1, 0, 1, 5 * SECOND, 4 * SECOND, 0, u64::MAX, u64::MAX];
    let pings: Vec<Sent> =
        times.iter().flat_map(|&at_ns| [ping(0, at_ns), ping(1, at_ns)]).collect();
    let (_, fates) = agreed(&limited(Some((1, 2)), Some((10, 3))), &pings);
    assert!(fates.answered() > 4, "{fates:?}");
}

#[test]
fn in_the_kernel_a_limit_holds_over_all_cpus() {
    const WORKERS: usize = 4;
    const PINGS: usize = 1000;
    for (per_source, global, admitted) in [
        (Some((1, 300)), None, 300),
        (None, Some((1, 500)), 500),
        (Some((1, 300)), Some((1, 200)), 200),
    ] {
        let Some(program) = Program::load(&limited(per_source, global)) else { return };
        let (fd, asked) = (program.loaded().program(), ping(0, 7 * SECOND));
        let run_some = || {
            let input =
                RunInput { frame: &asked.bytes, meta: &asked.at_ns.to_ne_bytes(), repeat: 1 };
            let runs = (0..PINGS).map(|_| prog_run(fd, input).unwrap_or_else(|e| panic!("{e}")));
            runs.filter(|output| output.verdict == XDP_TX).count()
        };
        let answered: usize = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(run_some)).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        });
        assert_eq!(answered, admitted);
    }
}
