//! Sets that the kernel half looks up by mask: up to 100,000 rules, drawn sets of few masks, and sets that
//! change under way, one rule or many at a time.

use crate::{
    Compared, assert_same,
    captures::frames,
    compare, config,
    outcome::{in_the_kernel, in_user_space, load},
    sets::{large_rule, rule},
};
use laneway_bpf::{Loaded, RunInput, prog_run};
use laneway_core::{KernelApp, Turn};
use laneway_forward::{Commit, Config, Forward, KernelForward, Mode, RuleSet};
use laneway_testkit::{Random, UdpFrame};
use proptest::{collection::vec, prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn sets_of_any_size_are_the_same_everywhere() {
    let mut draw = Random::seeded(7);
    for (count, mode) in [(10, Mode::Io), (1_000, Mode::L3), (100_000, Mode::Mac)] {
        let lines: Vec<String> = (0..count).map(|_| large_rule(&mut draw, frames())).collect();
        let what = format!("{count} rules");
        let Compared { matches, rules, masks, .. } =
            compare(&what, &config(mode), &lines, frames());
        assert!(rules > count * 9 / 10, "{what}: {rules} have room");
        assert!(count == 10 || (masks > 10 && matches > 1_000), "{what}: {masks}, {matches}");
    }
}

#[test]
fn drawn_sets_that_fill_line_and_masks_are_the_same_everywhere() {
    for seed in 1..=4 {
        let mut draw = Random::seeded(1_000 + seed);
        let lines: Vec<String> = (0..600).map(|_| rule(&mut draw, frames())).collect();
        let what = format!("filled, seed {seed}");
        let filled = compare(&what, &config(Mode::Io), &lines, frames());
        assert!(filled.masks > 20 && filled.matches > 1_000, "{what}: {}", filled.masks);
    }
}

/// Says `flow create` with parts chosen by these numbers: few masks, so that many rules share one.
fn small_rule((pattern, value, group, priority, action): (u8, u8, u8, u8, u8)) -> String {
    let port = 50 + value;
    let pattern = match pattern {
        0 => format!("eth / ipv4 dst is 10.0.0.{value}"),
        1 => format!("ipv4 src is 10.0.0.{value}"),
        2 => format!("ipv4 / udp dst is {port}"),
        3 => format!("ipv4 dst spec 10.0.0.{value} dst prefix 30"),
        4 => format!("udp dst spec 50 dst last {port}"),
        5 => format!("ipv4 dst is 10.0.0.{value} / udp dst is {port}"),
        _ => "ipv4 / udp".to_owned(),
    };
    let (group, to) = (group.saturating_sub(2), value / 2);
    let with_udp = pattern.contains("udp");
    let with_ip = pattern.contains("ipv4");
    let action = match action {
        0 => "drop".to_owned(),
        1 => format!("queue index {}", value % 4),
        2 => "port_id id 1".to_owned(),
        3 => "count".to_owned(),
        4 if with_ip => format!("set_ipv4_dst ipv4_addr 10.0.0.{to} / passthru"),
        5 if with_udp => format!("set_tp_dst port {} / passthru", 50 + to),
        6 => format!("jump group {}", group + 1),
        7 if with_ip => format!("set_ipv4_src ipv4_addr 10.0.0.{to} / jump group {}", group + 1),
        _ => format!("mark id {value} / passthru"),
    };
    format!(
        "flow create 0 group {group} priority {priority} ingress pattern {pattern} / end \
         actions {action} / end"
    )
}

/// One set in both places, changed alike.
struct Both {
    kernel: RuleSet,
    user: RuleSet,
    ids: Vec<u32>,
}

impl Both {
    fn new(config: &Config) -> Both {
        let (kernel, user) =
            (RuleSet::for_kernel(config.bounds()), RuleSet::for_user(config.bounds()));
        Both { kernel, user, ids: Vec::new() }
    }

    fn flush(&mut self) {
        for set in [&mut self.kernel, &mut self.user] {
            set.run("flow flush 0").expect("it is there");
        }
        self.ids.clear();
    }

    /// Puts the changes in force in both places.
    fn take(&mut self, app: &mut KernelForward, loaded: &Loaded) {
        assert_eq!((self.kernel.commit(), self.user.commit()), (Commit::Done, Commit::Done));
        app.on_tick(loaded.maps(), Turn::default());
        assert!(app.failure().is_none(), "{:?}", app.failure());
    }

    fn assert_same_hits(&self) {
        for id in &self.ids {
            assert_eq!(self.kernel.hits(0, *id), self.user.hits(0, *id), "rule {id}");
        }
    }

    fn create(&mut self, line: &str) {
        let Ok(answer) = self.kernel.run(line) else { return };
        assert_eq!(self.user.run(line).as_ref(), Ok(&answer), "{line}");
        let id = answer.trim_start_matches("Flow rule #").trim_end_matches(" created\n");
        self.ids.push(id.parse().expect("a number"));
    }

    fn destroy(&mut self, at: usize) {
        let line = format!("flow destroy 0 rule {}", self.ids.swap_remove(at));
        assert_eq!(self.kernel.run(&line), self.user.run(&line));
    }
}

#[test]
fn small_sets_are_matched_in_the_kernel_as_in_user_space() {
    let config = config(Mode::Io);
    let mut both = Both::new(&config);
    // One program for all sets: each replaces the one before.
    let mut app = KernelForward::new(&config, &[1, 1], both.kernel.kernel_feed()).expect("can run");
    let feed = both.user.feed().expect("a set of user space");
    let mut user = Forward::new(config.clone()).expect("it can run").with_rules(feed);
    let Some(loaded) = load(app.half()) else { return };
    let rules = vec((0u8..7, 0u8..14, 0u8..5, 0u8..4, 0u8..10), 1..160);
    let odd = vec((0u8..15, 0u8..15, 0u8..15), 40);
    let mut runner = TestRunner::new(ProptestConfig { cases: 64, ..ProptestConfig::default() });
    let (mut masks, mut lines) = (0, 0);
    for _ in 0..runner.config().cases {
        let drawn = (&rules, &odd).new_tree(&mut runner).expect("nothing is filtered").current();
        let (rules, odd) = drawn;
        let frames: Vec<Vec<u8>> = odd
            .into_iter()
            .map(|(source, destination, port)| {
                let frame = UdpFrame {
                    source: [10, 0, 0, source].into(),
                    destination: [10, 0, 0, destination].into(),
                    destination_port: 50 + u16::from(port),
                    ..UdpFrame::default()
                };
                frame.build()
            })
            .collect();
        let text: Vec<String> = rules.into_iter().map(small_rule).collect();
        both.flush();
        text.iter().for_each(|line| both.create(line));
        both.take(&mut app, &loaded);
        let ours = in_user_space(&mut user, config.ports, &frames);
        assert_same(&text.join("\n"), &frames, &ours, &in_the_kernel(&loaded, &frames));
        app.on_detached(loaded.maps(), Turn::default());
        both.assert_same_hits();
        masks += both.kernel.shape().masks;
        lines += both.kernel.shape().in_line;
    }
    assert!(masks > 20 && lines > 200, "{masks} masks and {lines} in the line show nothing");
}

/// What a rule with a range rewrites may lie in another part of the range.
#[test]
fn a_rule_that_rewrites_within_its_own_range_matches_once() {
    let config = config(Mode::Io);
    let mut both = Both::new(&config);
    both.create(
        "flow create 0 ingress pattern eth / ipv4 / udp dst spec 50 dst last 60 / end \
         actions set_tp_dst port 60 / dec_ttl / passthru / end",
    );
    assert_eq!((both.kernel.commit(), both.user.commit()), (Commit::Done, Commit::Done));
    let mut app = KernelForward::new(&config, &[1, 1], both.kernel.kernel_feed()).expect("can run");
    let feed = both.user.feed().expect("a set of user space");
    let mut user = Forward::new(config.clone()).expect("it can run").with_rules(feed);
    let Some(loaded) = load(app.half()) else { return };
    let frames: Vec<Vec<u8>> = (49..=61)
        .map(|destination_port| UdpFrame { destination_port, ..UdpFrame::default() }.build())
        .collect();
    // In the line alone, then beside masks.
    for masks in [false, true] {
        let ours = in_user_space(&mut user, config.ports, &frames);
        assert_same("a range", &frames, &ours, &in_the_kernel(&loaded, &frames));
        app.on_detached(loaded.maps(), Turn::default());
        assert_eq!(both.user.hits(0, 0).expect("it is there").frames, 11 * (1 + u64::from(masks)));
        both.assert_same_hits();
        assert_eq!(both.kernel.shape().masks > 0, masks);
        (0..40).for_each(|i| {
            both.create(&format!(
                "flow create 0 group 1 ingress pattern ipv4 dst is 10.9.0.{i} / end actions drop / end"
            ));
        });
        both.take(&mut app, &loaded);
    }
}

#[test]
fn a_set_that_changes_under_way_stays_the_same_everywhere() {
    let config = config(Mode::Io);
    let mut both = Both::new(&config);
    let mut draw = Random::seeded(31);
    (0..500).for_each(|_| both.create(&large_rule(&mut draw, frames())));
    assert_eq!((both.kernel.commit(), both.user.commit()), (Commit::Done, Commit::Done));
    let mut app = KernelForward::new(&config, &[1, 1], both.kernel.kernel_feed()).expect("can run");
    let feed = both.user.feed().expect("a set of user space");
    let mut user = Forward::new(config.clone()).expect("it can run").with_rules(feed);
    let Some(loaded) = load(app.half()) else { return };
    let some: Vec<Vec<u8>> = frames().iter().step_by(23).cloned().collect();
    for turn in 0..24usize {
        // One, some, and more than a bank can name.
        let changes = [1, 3, 40, 150][turn % 4];
        for _ in 0..changes {
            if draw.below(2) == 0 || both.ids.is_empty() {
                both.create(&large_rule(&mut draw, frames()));
            } else {
                both.destroy(draw.below(both.ids.len() as u64) as usize);
            }
        }
        if turn == 17 {
            both.flush();
            (0..200).for_each(|_| both.create(&large_rule(&mut draw, frames())));
        }
        both.take(&mut app, &loaded);
        let ours = in_user_space(&mut user, config.ports, &some);
        assert_same(&format!("turn {turn}"), &some, &ours, &in_the_kernel(&loaded, &some));
    }
    app.on_detached(loaded.maps(), Turn::default());
    both.assert_same_hits();
    assert!(both.kernel.shape().masks > 5, "{:?}", both.kernel.shape());
}

/// Two rules that only together say one number: each frame must meet both of one set.
fn pair(number: u16) -> [String; 2] {
    let port = 1_000 + number;
    let low = number as u8;
    [
        format!(
            "flow create 0 ingress pattern ipv4 dst is 10.0.0.2 / udp / end \
             actions set_tp_dst port {port} / passthru / end"
        ),
        format!(
            "flow create 0 priority 1 ingress pattern udp dst is {port} / end \
             actions set_mac_dst mac_addr 02:00:00:00:00:{low:02x} / count / end"
        ),
    ]
}

#[test]
fn no_frame_is_matched_against_half_a_set_while_sets_are_swapped() {
    const SWAPS: u16 = 200;
    let config = config(Mode::Io);
    let mut set = RuleSet::for_kernel(config.bounds());
    // So that the masks of the pair are looked up.
    for i in 0..100 {
        for pattern in [
            format!("ipv4 dst is 10.9.9.{i} / udp / end"),
            format!("udp dst is {} / end", 7_000 + i),
        ] {
            set.run(&format!("flow create 0 ingress pattern {pattern} actions drop / end"))
                .unwrap_or_else(|e| panic!("{e}"));
        }
    }
    pair(0).iter().for_each(|line| drop(set.run(line).unwrap_or_else(|e| panic!("{e}"))));
    assert_eq!((set.commit(), set.shape().in_line), (Commit::Done, 0));
    let mut app = KernelForward::new(&config, &[1, 1], set.kernel_feed()).expect("it can run");
    let Some(loaded) = load(app.half()) else { return };
    let destination = [10, 0, 0, 2].into();
    let frame = UdpFrame { destination, ..UdpFrame::default() }.build();
    let (stop, runs, program) = (AtomicBool::new(false), AtomicU64::new(0), loaded.program());
    let run = || {
        let mut latest = 0;
        while !stop.load(Ordering::Relaxed) {
            let input = RunInput { frame: &frame, ..RunInput::default() };
            let out = prog_run(program, input).unwrap_or_else(|e| panic!("{e}")).frame;
            let number = u16::from_be_bytes([out[36], out[37]]).wrapping_sub(1_000);
            // Mode io, so nothing else writes the address.
            assert_eq!(out[5], number as u8, "port {number} of one set, address of another");
            assert!(number >= latest, "an older set was in force again");
            latest = number;
            runs.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let runner = scope.spawn(run);
        let mut ids = [200, 201];
        for number in 1..=SWAPS {
            // The new ones first: so they get numbers and places of their own.
            let new = pair(number).map(|line| set.run(&line).unwrap_or_else(|e| panic!("{e}")));
            set.run(&format!("flow destroy 0 rule {} rule {}", ids[0], ids[1])).expect("there");
            ids = new.map(|answer| {
                let id = answer.trim_start_matches("Flow rule #").trim_end_matches(" created\n");
                id.parse().expect("a number")
            });
            assert_eq!(set.commit(), Commit::Done);
            app.on_tick(loaded.maps(), Turn::default());
            assert!(app.failure().is_none(), "{:?}", app.failure());
            if runner.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(runs.into_inner() > u64::from(SWAPS), "frames were under way all the time");
    assert!(set.shape().masks <= 4, "what is gone leaves its mask: {:?}", set.shape());
}
