//! A real process on real files, killed at a random moment, again and again: all that it had reported as written
//! is there.
//!
//! The process is this program again, in another test that does nothing unless it is asked to. It writes what it has
//! acknowledged to a pipe; what it wrote there before it died is read to the end.

use laneway_core::Bell;
use laneway_journal::{Journal, Options, Policy, Recovered, Restored, Sequence, SnapshotState};
use laneway_random::Random;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Kills per policy: of `make soak APP=journal`, and of a run of the tests.
const ROUNDS: u64 = 100;
const ROUNDS_SHORT: u64 = 10;
/// Set: a soak.
const ALL: &str = "LANEWAY_JOURNAL_ALL";
/// Where the process that is killed works, and by which policy.
const FOLDER: &str = "LANEWAY_JOURNAL_FOLDER";
const POLICY: &str = "LANEWAY_JOURNAL_POLICY";

/// What a store holds that has done all records so far: a number that every one of them changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    records: u64,
    sum: u64,
}

impl Sum {
    fn add(&mut self, record: &[u8]) {
        self.records += 1;
        for byte in record {
            self.sum = (self.sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn restore(&mut self, restored: Restored<'_>) -> Result<(), String> {
        match restored {
            Restored::Entry { captured, bytes } => {
                let sum = bytes.try_into().map_err(|_| "an entry of another length")?;
                *self = Sum { records: captured.0, sum: u64::from_le_bytes(sum) };
            }
            Restored::Record { sequence, bytes } => {
                assert_eq!(sequence.0, self.records + 1, "no gap, no repetition");
                self.add(bytes);
            }
        }
        Ok(())
    }
}

/// The record of this number, on both sides.
fn record(sequence: u64) -> Vec<u8> {
    let mut random = Random::seeded(sequence);
    let length = if random.below(50) == 0 { 100_000 } else { random.below(700) };
    (0..length).map(|_| random.draw() as u8).collect()
}

fn open(folder: &Path, policy: Policy, bell: Option<Bell>) -> (Journal, Recovered, Sum) {
    let mut sum = Sum::default();
    let options = Options {
        policy,
        segment_bytes: 64 << 10,
        ring_when_written: policy != Policy::Always,
        bell,
        ..Options::default()
    };
    let opened = Journal::open(folder, options, |restored| sum.restore(restored));
    let (journal, recovered) = opened.unwrap_or_else(|error| panic!("{error}"));
    (journal, recovered, sum)
}

#[test]
fn the_process_that_is_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let policy: Policy = env::var(POLICY).expect("given with it").parse().expect("written by us");
    let bell = Bell::new().expect("a descriptor");
    let (mut journal, _, mut sum) = open(Path::new(&folder), policy, Some(bell.clone()));
    let mut random = Random::seeded(sum.sum);
    let mut acknowledged = journal.last();
    loop {
        for _ in 0..random.below(4) {
            let record = record(journal.last().0 + 1);
            if journal.append(&record).is_err() {
                break;
            }
            sum.add(&record);
        }
        journal.commit();
        if random.below(12) == 0 && journal.snapshot() != SnapshotState::Writing {
            let mut snapshot = journal.begin_snapshot().expect("none is being made");
            snapshot.entry(journal.last(), &sum.sum.to_le_bytes()).expect("there is room");
            journal.finish_snapshot(snapshot).expect("nothing fails");
        }
        // Mostly without waiting, so that batches of several turns are under way.
        if random.below(3) == 0 {
            bell.wait(Duration::from_millis(5));
            bell.answer();
        }
        let kept = if policy == Policy::Always { journal.durable() } else { journal.written() };
        if kept > acknowledged {
            acknowledged = kept;
            // The checker is gone: the end.
            if writeln!(io::stdout(), "kept {acknowledged}").is_err() {
                return;
            }
        }
    }
}

/// Ends with the test, however that ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn kill_at_random(policy: Policy) {
    let name = format!("laneway-journal-killed-{policy}-{}", std::process::id());
    let folder = Folder(env::temp_dir().join(name));
    let mut random = Random::seeded(u64::from(std::process::id()));
    let mut truth = vec![Sum::default()];
    let (mut snapshots, mut before) = (0, Sequence(0));
    let rounds = if env::var_os(ALL).is_some() { ROUNDS } else { ROUNDS_SHORT };
    for round in 0..rounds {
        let program = env::current_exe().expect("a test knows its program");
        let mut process = Process(
            Command::new(program)
                .args(["--exact", "the_process_that_is_killed", "--nocapture"])
                .envs([(FOLDER, folder.0.as_os_str()), (POLICY, policy.name().as_ref())])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .expect("this program starts"),
        );
        let mut kept = before;
        let (mut lines, kill_at) = (0, 1 + random.below(60));
        let pipe = process.0.stdout.take().expect("it is piped");
        for line in BufReader::new(pipe).lines() {
            // The harness says what it does, too; the last line may be cut.
            let line = line.expect("the pipe is ours");
            let number = line.strip_prefix("kept ").and_then(|number| number.parse().ok());
            kept = kept.max(Sequence(number.unwrap_or(0)));
            lines += u64::from(number.is_some());
            if lines == kill_at {
                process.0.kill().expect("it runs until then");
            }
        }
        assert!(lines >= kill_at, "round {round}: it ended by itself");
        drop(process);
        let (journal, recovered, sum) = open(&folder.0, policy, None);
        assert!(recovered.last >= kept, "round {round}: {kept} was acknowledged; {recovered}");
        while truth.len() as u64 <= recovered.last.0 {
            let mut next = truth[truth.len() - 1];
            next.add(&record(truth.len() as u64));
            truth.push(next);
        }
        assert_eq!(sum, truth[recovered.last.0 as usize], "round {round}: {recovered}");
        snapshots += u64::from(recovered.snapshot.is_some());
        before = recovered.last;
        drop(journal);
    }
    assert!(snapshots > 0, "starts from snapshots are among them");
}

#[test]
fn what_was_durable_survives_kills_under_always() {
    kill_at_random(Policy::Always);
}

#[test]
fn what_was_written_survives_kills_under_everysec() {
    kill_at_random(Policy::EverySecond);
}

#[test]
fn what_was_written_survives_kills_under_no() {
    kill_at_random(Policy::No);
}
