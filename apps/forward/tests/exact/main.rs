//! The headline: user space, the kernel half's header on the host, and the loaded XDP program decide
//! alike and leave the same bytes, on every frame of every capture, under every rule set and mode.
//!
//! What needs root or a compiler says so when it is not there.

mod captures;
mod large;
mod made;
mod outcome;
mod referee;
mod sets;

use captures::frames;
use laneway_core::{App, KernelApp, Turn};
use laneway_forward::{Config, Fate, Forward, KernelForward, Mode, RuleSet};
use laneway_testkit::Random;
use made::{FRAMES_PER_KIND, mapped, networks};
use outcome::{Outcome, in_the_kernel, in_user_space, load};
use referee::referee;
use sets::{BY_HAND, fill_both, rule};

/// Modes that both placements have.
const MODES: [Mode; 6] =
    [Mode::Io, Mode::Mac, Mode::MacSwap, Mode::FiveTupleSwap, Mode::L3, Mode::Drop];
const RANDOM_SETS: u64 = 12;
/// Frames of captures with a few bytes changed or cut off.
const DAMAGED_FRAMES: usize = 6000;

fn config(mode: Mode) -> Config {
    let routes = [
        "0.0.0.0/0 via 192.0.2.1 port 1",
        "10.0.0.0/8 port 1",
        "10.0.0.0/30 via 192.0.2.9 port 0",
        "192.168.0.0/16 via 192.0.2.1 port 0",
        "2001:db8::/32 port 0",
        "2001:db8::/64 via fe80::1 port 1",
        "2000::/3 via fe80::2 port 1",
    ];
    let neighbours =
        ["192.0.2.1 02:00:00:00:00:aa", "fe80::1 02:00:00:00:00:bb", "10.0.0.9 02:00:00:00:00:cc"];
    Config {
        mode,
        queues: 4,
        routes: routes.map(|text| text.parse().expect("a route")).to_vec(),
        neighbours: neighbours.map(|text| text.parse().expect("a neighbour")).to_vec(),
        ..Config::default()
    }
}

fn assert_same(what: &str, frames: &[Vec<u8>], ours: &[Outcome], theirs: &[Outcome]) {
    assert_eq!(ours.len(), theirs.len());
    for ((ours, theirs), frame) in ours.iter().zip(theirs).zip(frames) {
        assert!(ours == theirs, "{what}: of {frame:02x?}\nours {ours:02x?}\ntheirs {theirs:02x?}");
    }
}

/// What was compared.
struct Compared {
    /// What user space decided.
    outcomes: Vec<Outcome>,
    matches: u64,
    /// That both sets had room for.
    rules: usize,
    /// That the kernel half looks up.
    masks: usize,
}

/// Compares the three on these frames under one set and mode.
fn compare(what: &str, config: &Config, lines: &[String], frames: &[Vec<u8>]) -> Compared {
    let (mut for_kernel, mut for_user) =
        (RuleSet::for_kernel(config.bounds()), RuleSet::for_user(config.bounds()));
    fill_both(&mut for_kernel, &mut for_user, lines.iter().cloned());
    let feed = (!lines.is_empty()).then(|| for_kernel.kernel_feed()).flatten();
    let mut kernel = KernelForward::new(config, &[1, 1], feed).unwrap_or_else(|e| panic!("{e}"));
    let feed = for_user.feed().expect("a set of user space");
    let mut user = Forward::new(config.clone()).expect("it was accepted above").with_rules(feed);

    let ours = in_user_space(&mut user, config.ports, frames);
    let hits = |set: &RuleSet| -> Vec<_> { (0..).map_while(|id| set.hits(0, id).ok()).collect() };
    let matches: u64 = hits(&for_user).iter().map(|hits| hits.frames).sum();
    if let Some(referee) = referee() {
        let (theirs, referees_matches) = referee.run(&kernel.half(), frames);
        assert_same(&format!("{what}, referee"), frames, &ours, &theirs);
        assert_eq!(matches, referees_matches, "{what}");
    }
    if let Some(loaded) = load(kernel.half()) {
        let theirs = in_the_kernel(&loaded, frames);
        assert_same(&format!("{what}, kernel"), frames, &ours, &theirs);
        kernel.on_detached(loaded.maps(), Turn::default());
        assert!(kernel.failure().is_none(), "{:?}", kernel.failure());
        assert_eq!(kernel.stats(), user.stats(), "{what}");
        assert_eq!(hits(&for_kernel), hits(&for_user), "{what}");
        let (in_kernel, in_user) = (kernel.counters(), user_counters(&user));
        assert_eq!((in_kernel.rx_frames, in_kernel.rx_bytes), in_user, "{what}");
    }
    let (rules, masks) = (for_user.len(), for_kernel.shape().masks);
    Compared { outcomes: ours, matches, rules, masks }
}

fn user_counters(user: &Forward) -> (u64, u64) {
    let counters = App::counters(user);
    (counters.rx_frames, counters.rx_bytes)
}

#[test]
fn every_mode_without_rules_is_the_same_everywhere() {
    let mut seen = Vec::new();
    for mode in MODES {
        let Compared { outcomes, matches, .. } = compare(mode.word(), &config(mode), &[], frames());
        assert_eq!(matches, 0);
        seen.extend(outcomes.iter().map(|outcome| outcome.fate));
    }
    // Strict about the addresses of frames.
    let own = vec![[2, 0, 0, 0, 0, 1]; 2];
    let Compared { outcomes, .. } =
        compare("l3, own address", &Config { own, ..config(Mode::L3) }, &[], frames());
    seen.extend(outcomes.iter().map(|outcome| outcome.fate));
    for fate in Fate::ALL {
        let has = seen.contains(fate);
        let needs_rules_or_a_bridge = matches!(fate, Fate::RuleDrop | Fate::Flooded | Fate::NoPort);
        assert_eq!(has, !needs_rules_or_a_bridge, "{}", fate.name());
    }
}

#[test]
fn a_neighbour_of_one_family_is_none_of_the_other() {
    let mut config = config(Mode::L3);
    config.routes.push("::/0 port 1".parse().expect("a route"));
    let compared = compare("a mapped address", &config, &[], &mapped());
    let fates: Vec<Fate> = compared.outcomes.iter().map(|outcome| outcome.fate).collect();
    assert_eq!(fates, [Fate::Forwarded, Fate::NoNeighbour]);
}

#[test]
fn rules_written_by_hand_are_the_same_everywhere() {
    for (number, set) in BY_HAND.iter().enumerate() {
        let lines: Vec<String> = set.lines().map(str::to_owned).collect();
        let mode = MODES[number % MODES.len()];
        for mode in [mode, Mode::L3] {
            let what = format!("set {number} in {}", mode.word());
            let matches = compare(&what, &config(mode), &lines, frames()).matches;
            assert!(matches > 50, "{what}: {matches} matches show nothing");
        }
    }
}

#[test]
fn frames_made_by_hand_match_and_fail_as_they_were_made_to() {
    let compared = compare("networks", &config(Mode::L3), &[BY_HAND[0].to_owned()], &networks());
    assert_eq!(compared.matches, FRAMES_PER_KIND as u64);
    let unrouted = compared.outcomes.iter().filter(|outcome| outcome.fate == Fate::NoRoute);
    assert_eq!(unrouted.count(), FRAMES_PER_KIND);
}

#[test]
fn rules_drawn_at_random_are_the_same_everywhere() {
    let mut matches_all = 0;
    for seed in 1..=RANDOM_SETS {
        let mut draw = Random::seeded(seed);
        let rules = 1 + draw.below(40);
        let lines: Vec<String> = (0..rules).map(|_| rule(&mut draw, frames())).collect();
        let mode = MODES[draw.below(MODES.len() as u64) as usize];
        let what = format!("seed {seed} in {}", mode.word());
        matches_all += compare(&what, &config(mode), &lines, frames()).matches;
    }
    assert!(matches_all > 10_000, "{matches_all} matches show nothing");
}

#[test]
fn damaged_frames_have_one_fate_and_it_is_the_same_everywhere() {
    let mut draw = Random::seeded(99);
    let mut damaged = Vec::with_capacity(DAMAGED_FRAMES);
    while damaged.len() < DAMAGED_FRAMES {
        let mut frame = frames()[draw.below(frames().len() as u64) as usize].clone();
        // Mostly where headers are.
        for _ in 0..=draw.below(4) {
            let at = draw.below(frame.len().min(90) as u64) as usize;
            frame[at] = match draw.below(3) {
                0 => draw.below(256) as u8,
                1 => frame[at] ^ 1 << draw.below(8),
                _ => [0, 0xff, 0x45, 0x60][draw.below(4) as usize],
            };
        }
        if draw.below(3) == 0 {
            frame.truncate(14 + draw.below(frame.len() as u64 - 13) as usize);
        }
        damaged.push(frame);
    }
    let lines: Vec<String> =
        BY_HAND[2..].iter().flat_map(|set| set.lines()).map(str::to_owned).collect();
    let strict = |config: Config| Config { own: vec![[2, 0, 0, 0, 0, 1]; 2], ..config };
    compare("damaged, l3", &config(Mode::L3), &[], &damaged);
    compare("damaged, own address", &strict(config(Mode::L3)), &[], &damaged);
    for mode in MODES {
        let matches = compare(mode.word(), &config(mode), &lines, &damaged).matches;
        assert!(matches > 1000, "{matches} matches show nothing");
    }
}

#[test]
fn a_set_that_is_swapped_under_way_is_the_new_one_from_then_on() {
    let config = config(Mode::Io);
    let mut set = RuleSet::for_kernel(config.bounds());
    let feed = set.kernel_feed().expect("a set of the kernel half");
    let mut app = KernelForward::new(&config, &[1, 1], Some(feed)).expect("it can run");
    let Some(loaded) = load(app.half()) else { return };
    let some = &frames()[..50];
    let fates =
        |loaded| -> Vec<Fate> { in_the_kernel(loaded, some).iter().map(|o| o.fate).collect() };
    assert!(fates(&loaded).iter().all(|fate| *fate == Fate::Forwarded));
    for turn in 0..5u64 {
        let drop = "flow create 0 ingress pattern end actions drop / count / end";
        set.run(drop).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(set.commit(), laneway_forward::Commit::Done);
        set.run("flow validate 0 ingress pattern end actions drop / end").expect("valid");
        app.on_tick(loaded.maps(), Turn { now_ns: turn });
        assert!(app.failure().is_none(), "{:?}", app.failure());
        assert!(fates(&loaded).iter().all(|fate| *fate == Fate::RuleDrop), "turn {turn}");
        app.on_detached(loaded.maps(), Turn::default());
        assert_eq!(set.hits(0, 0).expect("there").frames, 50, "a slot starts from zero");
        set.run("flow flush 0").expect("there");
        assert_eq!(set.commit(), laneway_forward::Commit::Done);
        app.on_tick(loaded.maps(), Turn { now_ns: turn });
        assert!(fates(&loaded).iter().all(|fate| *fate == Fate::Forwarded), "turn {turn}");
    }
}

#[test]
fn a_frame_for_a_port_that_has_gone_is_lost_by_that_name() {
    let app = KernelForward::new(&config(Mode::Io), &[1, 1], None).expect("it can run");
    let mut half = app.half();
    // As the kernel leaves the map when the interface goes.
    half.entries.retain(|(map, key, _)| *map != "egress" || key[0] != 1);
    let Some(loaded) = load(half) else { return };
    for outcome in in_the_kernel(&loaded, &frames()[..20]) {
        assert_eq!((outcome.fate, outcome.sent), (Fate::NoPort, None));
    }
}

#[test]
fn a_commit_waits_until_the_kernel_half_has_taken_the_former_one() {
    let config = config(Mode::Io);
    let mut set = RuleSet::for_kernel(config.bounds());
    let _feed = set.kernel_feed().expect("a set of the kernel half");
    for want in [laneway_forward::Commit::Done, laneway_forward::Commit::Waiting] {
        set.run("flow create 0 ingress pattern end actions drop / end").expect("a rule");
        assert_eq!(set.commit(), want);
    }
}
