//! Random work on a simulated disk, and the power cut, the process killed or the device failing at a random operation:
//! what was durable is there again, in its order, and every start says what it did.

use crate::effort;
use crate::store::{KEYS, Values, apply, record, start, values_of};
use laneway_journal::faults::{Disk, Fault};
use laneway_journal::{
    Journal, Next, Policy, Recovered, Refused, SnapshotRefused, SnapshotState, SnapshotWriter,
    Writer,
};
use laneway_random::Random;
use std::mem;

/// A second, in nanoseconds.
const SECOND_NS: u64 = 1_000_000_000;
/// Worlds per policy: of a soak, and of a run of the tests, whose worlds are others each time.
const WORLDS: u64 = 300;
const WORLDS_SHORT: u64 = 80;
const LIVES: usize = 5;

/// What a run has met: a simulation that meets nothing shows nothing.
#[derive(Debug, Default)]
struct Met {
    cuts: u64,
    kills: u64,
    failures: u64,
    closes: u64,
    torn: u64,
    lost: u64,
    snapshots: u64,
    started_from_snapshots: u64,
    cut_in_open: u64,
    refused: u64,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Cut,
    Kill,
    Fault(Fault),
    Close,
}

/// One disk, and what was ever appended to it.
struct World {
    disk: Disk,
    random: Random,
    policy: Policy,
    /// The records that the next start may hand over, and when each was committed.
    truth: Vec<(Vec<u8>, u64)>,
    /// So many of them it must.
    floor: u64,
    /// So many as long as the power stays: the kernel has them.
    floor_with_power: u64,
    are_syncs_slow: bool,
    met: Met,
}

/// A running journal.
struct Life {
    journal: Journal,
    writer: Writer,
    values: Values,
    snapshot: Option<(SnapshotWriter, u64)>,
    next: Next,
}

impl World {
    fn new(seed: u64, policy: Policy, are_syncs_slow: bool) -> World {
        let disk = Disk::new(seed);
        if are_syncs_slow {
            disk.slow_syncs(2 * SECOND_NS);
        }
        let (random, met) = (Random::seeded(seed ^ 0x5eed), Met::default());
        World {
            disk,
            random,
            policy,
            truth: Vec::new(),
            floor: 0,
            floor_with_power: 0,
            are_syncs_slow,
            met,
        }
    }

    fn run(&mut self) {
        for _ in 0..LIVES {
            let fate = match self.random.below(8) {
                0 => Fate::Close,
                1 => Fate::Kill,
                2 => Fate::Fault(Fault::Io),
                3 => Fate::Fault(Fault::NoSpace),
                _ => Fate::Cut,
            };
            let at = self.disk.operations() + self.random.below(150);
            match fate {
                Fate::Cut => self.disk.cut_power_at(at),
                Fate::Fault(fault) => self.disk.fail_at(at, fault),
                Fate::Kill | Fate::Close => {}
            }
            let Some(mut life) = self.start() else { continue };
            for _ in 0..self.random.below(120) {
                self.step(&mut life);
                if self.disk.is_cut() || life.journal.failed().is_some() {
                    break;
                }
            }
            self.end(life, fate);
            self.disk.repair();
        }
        assert!(self.start().is_some_and(|life| life.journal.failed().is_none()), "nothing fails");
    }

    /// Starts, again where the power is cut or the device fails meanwhile; `None` when it was.
    fn start(&mut self) -> Option<Life> {
        match start(&self.disk, self.policy) {
            Ok((journal, writer, recovered, values)) => {
                self.check(&recovered, &values);
                Some(Life { journal, writer, values, snapshot: None, next: Next::Idle })
            }
            Err(error) => {
                self.met.cut_in_open += 1;
                if self.disk.is_cut() {
                    self.restart();
                }
                self.disk.repair();
                // Nothing but the fault may be in its way.
                let (journal, writer, recovered, values) = start(&self.disk, self.policy)
                    .unwrap_or_else(|again| panic!("first {error}, then {again}"));
                self.check(&recovered, &values);
                drop((journal, writer));
                // Nothing of it was closed: a kill.
                None
            }
        }
    }

    /// What a start handed over is what was appended, and none of it is missing that must not be.
    fn check(&mut self, recovered: &Recovered, values: &Values) {
        let last = recovered.last.0;
        let floor = self.floor.max(self.floor_with_power);
        assert!(last >= floor, "{floor} must be there: {recovered}");
        assert!(last <= self.truth.len() as u64, "{recovered}");
        let there: Vec<Vec<u8>> =
            self.truth[..last as usize].iter().map(|(record, _)| record.clone()).collect();
        assert_eq!(*values, values_of(&there), "{recovered}");
        if last < self.truth.len() as u64 {
            self.met.lost += 1;
            assert!(!recovered.was_closed, "a loss is reported: {recovered}");
            self.check_loss(last as usize);
        }
        self.met.torn += u64::from(recovered.torn.is_some());
        self.met.started_from_snapshots += u64::from(recovered.snapshot.is_some());
        self.truth.truncate(last as usize);
        // What a start has handed over is durable.
        (self.floor, self.floor_with_power) = (last, last);
    }

    /// Under `everysec`, the commits of one second at most.
    fn check_loss(&self, first: usize) {
        if self.policy != Policy::EverySecond {
            return;
        }
        let (first_ns, last_ns) = (self.truth[first].1, self.truth[self.truth.len() - 1].1);
        assert!(last_ns - first_ns <= SECOND_NS, "commits of {} ns are lost", last_ns - first_ns);
        if !self.are_syncs_slow {
            let ago_ns = self.disk.now_ns() - first_ns;
            assert!(ago_ns <= SECOND_NS, "a commit of {ago_ns} ns ago is lost");
        }
    }

    fn step(&mut self, life: &mut Life) {
        match self.random.below(20) {
            0..=9 => self.turn(life),
            10..=15 => life.next = life.writer.turn(),
            16 | 17 => {
                let ns = self.random.below(SECOND_NS);
                if self.are_syncs_slow && self.random.is_heads() {
                    // The writer does not get on.
                    self.disk.pass_ns(ns);
                } else {
                    self.pass(life, ns);
                }
            }
            _ => self.go_on_with_snapshot(life),
        }
        self.floor = self.floor.max(life.journal.durable().0);
    }

    /// A turn of the worker: some records, one commit.
    fn turn(&mut self, life: &mut Life) {
        for _ in 0..self.random.below(4) {
            let record = record(&mut self.random);
            match life.journal.append(&record) {
                Ok(sequence) => {
                    assert_eq!(sequence.0, self.truth.len() as u64 + 1);
                    apply(&mut life.values, &record, |_| true);
                    self.truth.push((record, self.disk.now_ns()));
                }
                Err(Refused::NoRoom) => self.met.refused += 1,
                Err(error) => assert!(life.journal.failed().is_some(), "{error}"),
            }
        }
        life.journal.awaited(self.random.below(4) as u32);
        life.journal.commit();
        assert!(life.journal.waiting_bytes() <= life.journal.options().waiting_bytes_max);
    }

    /// Lets time pass, in which the writer does what is due when it is.
    fn pass(&mut self, life: &mut Life, ns: u64) {
        let end_ns = self.disk.now_ns() + ns;
        life.next = life.writer.turn();
        while let Next::At(due_ns) | Next::Held { until_ns: due_ns, .. } = life.next
            && due_ns <= end_ns
        {
            self.disk.pass_ns(due_ns.saturating_sub(self.disk.now_ns()));
            life.next = life.writer.turn();
        }
        // What was to come behind a failure is not waited for.
        if life.next != Next::Ended {
            self.disk.pass_ns(end_ns.saturating_sub(self.disk.now_ns()));
        }
    }

    /// Some steps of the walk over all keys, each key as it is then.
    fn go_on_with_snapshot(&mut self, life: &mut Life) {
        let Some((mut snapshot, mut key)) = life.snapshot.take() else {
            if let SnapshotState::InPlace { .. } = life.journal.snapshot() {
                self.met.snapshots += 1;
            }
            match life.journal.begin_snapshot() {
                Ok(snapshot) => life.snapshot = Some((snapshot, 0)),
                Err(SnapshotRefused::Running) => {}
                Err(error) => assert!(life.journal.failed().is_some(), "{error}"),
            }
            return;
        };
        for _ in 0..self.random.below(KEYS) {
            if key == KEYS {
                // One in some is given up.
                if self.random.below(8) > 0 && life.journal.finish_snapshot(snapshot).is_err() {
                    assert_ne!(life.journal.snapshot(), SnapshotState::Writing);
                }
                return;
            }
            if let Some(value) = life.values.get(&(key as u8)) {
                let entry = [&[key as u8], &value[..]].concat();
                match snapshot.entry(life.journal.last(), &entry) {
                    Ok(()) => {}
                    Err(SnapshotRefused::NoRoom) => break,
                    Err(SnapshotRefused::Ended) => return,
                    Err(error) => panic!("{error}"),
                }
            }
            key += 1;
        }
        life.snapshot = Some((snapshot, key));
    }

    fn end(&mut self, mut life: Life, fate: Fate) {
        // The power goes although the operation for it did not come.
        let is_cut = self.disk.is_cut() || fate == Fate::Cut || self.random.below(3) == 0;
        if life.journal.failed().is_some() && !self.disk.is_cut() {
            self.met.failures += 1;
        } else if fate == Fate::Close && !self.disk.is_cut() {
            self.met.closes += 1;
            let last = life.journal.last().0;
            life.journal.close().expect("nothing fails");
            while life.writer.turn() != Next::Ended {}
            self.floor = last;
            return;
        }
        if is_cut {
            self.met.cuts += 1;
        } else {
            self.met.kills += 1;
            // The kernel has it, unless a sync has failed: then it may show it, and owes nothing.
            if life.journal.failed().is_none() {
                self.floor_with_power = life.journal.written().0;
            }
        }
        drop(life);
        if is_cut {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.disk.restart();
        self.floor_with_power = self.floor;
    }
}

fn simulate(policy: Policy, are_syncs_slow: bool) {
    let mut total = Met::default();
    let first = effort::seed();
    for seed in first..first + effort::of(WORLDS, WORLDS_SHORT) {
        let mut world = World::new(seed, policy, are_syncs_slow);
        let run = std::panic::AssertUnwindSafe(|| world.run());
        if std::panic::catch_unwind(run).is_err() {
            panic!("policy {policy}, seed {seed}");
        }
        let met = mem::take(&mut world.met);
        total.cuts += met.cuts;
        total.kills += met.kills;
        total.failures += met.failures;
        total.closes += met.closes;
        total.torn += met.torn;
        total.lost += met.lost;
        total.snapshots += met.snapshots;
        total.started_from_snapshots += met.started_from_snapshots;
        total.cut_in_open += met.cut_in_open;
        total.refused += met.refused;
    }
    let Met { cuts, kills, failures, closes, torn, lost, .. } = total;
    assert!([cuts, kills, failures, closes, torn, lost].iter().all(|met| *met > 0), "{total:?}");
    let Met { snapshots, started_from_snapshots, cut_in_open, refused, .. } = total;
    let more = [snapshots, started_from_snapshots, cut_in_open];
    assert!(more.iter().all(|met| *met > 0), "{total:?}");
    assert!(refused > 0 || !are_syncs_slow, "{total:?}");
}

#[test]
fn nothing_durable_is_lost_under_always() {
    simulate(Policy::Always, false);
}

#[test]
fn at_most_a_second_is_lost_under_everysec() {
    simulate(Policy::EverySecond, false);
}

#[test]
fn at_most_a_second_of_commits_is_lost_under_everysec_while_syncs_take_longer() {
    simulate(Policy::EverySecond, true);
}

#[test]
fn what_is_there_is_whole_and_in_order_under_no() {
    simulate(Policy::No, false);
}
