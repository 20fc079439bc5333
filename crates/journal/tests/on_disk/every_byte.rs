//! Every file of a small journal is cut at every byte, and every byte of it is flipped (of the zeros that were only
//! allocated, some): a start hands over a beginning of what was appended and says what it left out, or it is refused
//! with the reason. A run of the tests tries one byte in [`STEP_SHORT`], from one on that it draws; `make soak
//! APP=journal` tries them all.

use crate::effort;
use crate::store::{Values, apply, start, values_of};
use laneway_journal::faults::Disk;
use laneway_journal::{OpenError, Policy, Recovered};
use laneway_random::Random;

/// Odd, so that a step meets every bit and both kinds of start.
const STEP_SHORT: u64 = 7;
/// Files of any bytes.
const ROUNDS: u64 = 3_000;
const ROUNDS_SHORT: u64 = 1_500;

/// A journal of some segments, with a snapshot or without, and the records that were appended to it.
struct Small {
    disk: Disk,
    /// What a store holds that has done so many of them.
    truth: Vec<Values>,
}

/// Closed at its end, or killed.
fn small(policy: Policy, has_snapshot: bool, is_closed: bool) -> Small {
    let (disk, mut random, mut truth) = (Disk::new(7), Random::seeded(11), Vec::new());
    let (mut journal, mut writer, ..) = start(&disk, policy).expect("nothing fails");
    let mut values = Values::new();
    for round in 0..24 {
        for _ in 0..2 {
            // Short ones, so that every byte can be tried.
            let key = random.below(6) as u8;
            let added = vec![key; random.below(300) as usize];
            let mut record = vec![key];
            record.extend((added.len() as u32).to_le_bytes());
            record.extend(&added);
            apply(&mut values, &record, |_| true);
            journal.append(&record).expect("there is room");
            truth.push(record);
        }
        journal.commit();
        writer.turn();
        if has_snapshot && round == 6 {
            let mut snapshot = journal.begin_snapshot().expect("the first");
            for (key, value) in &values {
                snapshot
                    .entry(journal.last(), &[&[*key], &value[..]].concat())
                    .expect("there is room");
                writer.turn();
            }
            journal.finish_snapshot(snapshot).expect("nothing fails");
            writer.turn();
        }
    }
    if is_closed {
        journal.close().expect("nothing fails");
        writer.turn();
    }
    let truth = (0..=truth.len()).map(|records| values_of(&truth[..records])).collect();
    Small { disk, truth }
}

impl Small {
    fn last(&self) -> usize {
        self.truth.len() - 1
    }

    /// Each file, and where in it something is tried.
    fn places(&self, seed: u64) -> Vec<(String, Vec<u8>, Vec<usize>)> {
        let step = effort::of(1, STEP_SHORT) as usize;
        let begin = seed as usize % step;
        let place = |name: String| {
            let content = self.disk.content(&name).expect("it is listed");
            let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let zeros = (written..content.len()).step_by(61);
            let places = (begin..written).step_by(step).chain(zeros).collect();
            (name, content, places)
        };
        self.disk.names().into_iter().map(place).collect()
    }

    /// The same files on another disk, one of them changed.
    fn with(&self, name: &str, changed: &[u8], is_other_boot: bool) -> Disk {
        let disk = Disk::new(1);
        for name in self.disk.names() {
            disk.put(&name, &self.disk.content(&name).expect("it is listed"));
        }
        disk.put(name, changed);
        if is_other_boot {
            disk.restart();
        }
        disk
    }

    /// Starts, and checks that what is handed over was appended; `None` when it is refused.
    fn start(&self, disk: &Disk, what: &str) -> Option<Recovered> {
        match start(disk, Policy::Always) {
            Ok((_, _, recovered, values)) => {
                let truth = self.truth.get(recovered.last.0 as usize);
                assert_eq!(Some(&values), truth, "{what}: {recovered}");
                Some(recovered)
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("data/"), "{what}: it names the file: {text}");
                assert!(!matches!(error, OpenError::Io { .. }), "{what}: {text}");
                None
            }
        }
    }
}

fn says_so(recovered: &Recovered) -> bool {
    recovered.torn.is_some() || recovered.damaged_snapshot.is_some() || !recovered.was_closed
}

fn each(with: impl Fn(&Small, &str, bool)) {
    for policy in [Policy::Always, Policy::EverySecond, Policy::No] {
        for (has_snapshot, is_closed) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let small = small(policy, has_snapshot, is_closed);
            let whole = small.start(&small.with("-", b"", false), "nothing").expect("it is whole");
            assert_eq!(whole.last.0 as usize, small.last());
            assert_eq!((whole.snapshot.is_some(), whole.was_closed), (has_snapshot, is_closed));
            assert!(whole.segments > 1, "a journal of several: {whole}");
            let what = format!("{policy}, snapshot {has_snapshot}, closed {is_closed}");
            with(&small, &what, is_closed);
        }
    }
}

#[test]
fn every_file_cut_at_every_byte_starts_with_a_beginning_and_says_so_or_says_why_not() {
    let seed = effort::seed();
    each(|small, what, _| {
        let (mut started, mut refused) = (0, 0);
        for (name, content, places) in small.places(seed) {
            for length in places {
                let what = format!("{what}: {name} cut to {length}");
                let disk = small.with(&name, &content[..length], length % 2 == 0);
                match small.start(&disk, &what) {
                    Some(recovered) => {
                        let is_all = recovered.last.0 as usize == small.last();
                        assert!(is_all || says_so(&recovered), "{what}: {recovered}");
                        started += 1;
                    }
                    None => refused += 1,
                }
            }
        }
        assert!(started > 0 && refused > 0, "{what}: {started} started, {refused} refused");
    });
}

#[test]
fn every_flipped_byte_of_any_file_is_reported() {
    let seed = effort::seed();
    each(|small, what, is_closed| {
        let mut refused = 0;
        for (name, content, places) in small.places(seed) {
            for at in places {
                let mut changed = content.clone();
                changed[at] ^= 1 << (at % 8);
                let what = format!("{what}: {name} flipped at {at}");
                let disk = small.with(&name, &changed, at % 2 == 0);
                match small.start(&disk, &what) {
                    Some(recovered) => {
                        let is_reported =
                            recovered.torn.is_some() || recovered.damaged_snapshot.is_some();
                        assert!(
                            is_reported || (is_closed && !recovered.was_closed),
                            "{what}: {recovered}"
                        );
                    }
                    None => refused += 1,
                }
            }
        }
        assert!(refused > 0, "{what}");
    });
}

#[test]
fn any_bytes_in_any_file_are_refused_or_cut_off() {
    let small = small(Policy::EverySecond, true, false);
    let seed = effort::seed();
    let (mut random, places) = (Random::seeded(seed), small.places(seed));
    for round in 0..effort::of(ROUNDS, ROUNDS_SHORT) {
        let (name, mut content, _) = places[random.below(places.len() as u64) as usize].clone();
        // Behind a head that is whole, or not; lengths that reach about as far as the file are among them.
        let begin =
            if random.is_heads() { 64 } else { random.below(content.len() as u64) as usize };
        content.truncate(begin);
        while content.len() < begin + 1_000 {
            let word = random.draw() >> random.below(64);
            content.extend(word.to_le_bytes());
        }
        let disk = small.with(&name, &content, random.is_heads());
        if let Some(recovered) = small.start(&disk, &format!("round {round}: {name}")) {
            assert!(says_so(&recovered), "round {round}: {name}: {recovered}");
        }
    }
}
