//! What a start refuses, each with the file, the value and what to try; and what it does not refuse, but says.

use crate::store::{options, start, start_with};
use laneway_journal::faults::{Disk, Fault};
use laneway_journal::{OpenError, Options, Policy, Sequence, Shard};

/// Records, each committed and written by itself, of a key and `length` bytes.
fn fill(disk: &Disk, policy: Policy, records: usize, length: usize) {
    let (mut journal, mut writer, ..) = start(disk, policy).expect("nothing fails");
    append(&mut journal, &mut writer, records, length);
}

fn append(
    journal: &mut laneway_journal::Journal,
    writer: &mut laneway_journal::Writer,
    records: usize,
    length: usize,
) {
    for _ in 0..records {
        let mut record = vec![1];
        record.extend((length as u32).to_le_bytes());
        record.resize(5 + length, 9);
        journal.append(&record).expect("there is room");
        journal.commit();
        writer.turn();
    }
}

fn snapshot(journal: &mut laneway_journal::Journal, writer: &mut laneway_journal::Writer) {
    let mut snapshot = journal.begin_snapshot().expect("the first");
    snapshot.entry(journal.last(), &[1, 2, 3]).expect("there is room");
    journal.finish_snapshot(snapshot).expect("nothing fails");
    writer.turn();
}

fn change(disk: &Disk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = disk.content(name).expect("it is there");
    change(&mut content);
    disk.put(name, &content);
}

fn refusal(disk: &Disk, policy: Policy) -> OpenError {
    match start(disk, policy) {
        Ok((_, _, recovered, _)) => panic!("started: {recovered}"),
        Err(error) => error,
    }
}

/// Where the record of this number begins in a segment.
fn place_of(content: &[u8], sequence: u64) -> usize {
    let number = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().expect("four"));
    let mut at = 64;
    // Marks have the highest bit in their length.
    while number(at + 4) >> 31 == 1 || u64::from(number(at + 8)) != sequence {
        at += 16 + (number(at + 4) as usize & 0x7fff_ffff).next_multiple_of(8);
    }
    at
}

fn segment(first: u64) -> String {
    format!("{first:020}.log")
}

#[test]
fn a_hole_between_segments_is_refused_with_its_ends() {
    let disk = Disk::new(1);
    fill(&disk, Policy::Always, 12, 1500);
    let names: Vec<String> = disk.names();
    assert!(names.len() > 3, "{names:?}");
    disk.take_away(&names[1]);
    let error = refusal(&disk, Policy::Always);
    let text = error.to_string();
    assert!(matches!(error, OpenError::Hole { .. }), "{text}");
    assert!(text.contains(&names[2]) && text.contains("are missing"), "{text}");
    disk.take_away(&names[0]);
    let text = refusal(&disk, Policy::Always).to_string();
    assert!(text.starts_with("sequence numbers 1 to "), "{text}");
}

#[test]
fn a_bad_record_with_a_good_one_behind_it_is_refused() {
    // Under `always` the next batch says that it was durable; under the others the machine has not started anew since.
    for policy in [Policy::Always, Policy::EverySecond, Policy::No] {
        let disk = Disk::new(1);
        fill(&disk, policy, 6, 100);
        let place = place_of(&disk.content(&segment(1)).expect("it is there"), 3);
        change(&disk, &segment(1), |content| content[place + 60] ^= 1);
        let error = refusal(&disk, policy);
        let OpenError::Damaged { sequence, offset, .. } = &error else { panic!("{error}") };
        assert_eq!((*sequence, *offset), (Sequence(3), place as u64), "{error}");
    }
}

#[test]
fn the_same_in_what_was_never_durable_is_cut_off_behind_a_cut_of_the_power() {
    for (policy, is_refused) in [(Policy::Always, true), (Policy::No, false)] {
        let disk = Disk::new(1);
        fill(&disk, policy, 6, 100);
        let place = place_of(&disk.content(&segment(1)).expect("it is there"), 3);
        change(&disk, &segment(1), |content| content[place + 60] ^= 1);
        disk.restart(); // another start of the machine
        match start(&disk, policy) {
            Ok((_, _, recovered, _)) => {
                assert!(!is_refused, "{recovered}");
                let torn = recovered.torn.expect("it is reported");
                assert_eq!((torn.from, recovered.last), (Sequence(3), Sequence(2)));
                assert!(torn.bytes > 4 * 128, "{recovered}");
            }
            Err(error) => assert!(is_refused, "{error}"),
        }
    }
}

#[test]
fn a_torn_record_at_the_end_is_cut_off_and_its_bytes_are_counted() {
    let disk = Disk::new(1);
    fill(&disk, Policy::No, 3, 100);
    // A mark of 24 bytes, a record of 128: the last bytes of the last one are lost.
    let end = 64 + 3 * (24 + 128);
    change(&disk, &segment(1), |content| {
        content[end - 10..].fill(0);
    });
    let (_, _, recovered, _) = start(&disk, Policy::No).expect("a torn end is no damage");
    let torn = recovered.torn.expect("it is reported");
    assert_eq!((torn.from, torn.bytes), (Sequence(3), 128 - 10));
    assert_eq!(recovered.last, Sequence(2));
    let text = recovered.to_string();
    assert!(text.contains("118 bytes from sequence number 3 on were torn"), "{text}");
    // Once.
    let (_, _, recovered, _) = start(&disk, Policy::Always).expect("mended");
    assert_eq!((recovered.torn, recovered.last), (None, Sequence(2)));
}

#[test]
fn the_last_record_that_was_durable_is_not_taken_for_a_torn_end() {
    let disk = Disk::new(1);
    fill(&disk, Policy::Always, 3, 100);
    let place = place_of(&disk.content(&segment(1)).expect("it is there"), 3);
    change(&disk, &segment(1), |content| content[place + 60] ^= 1);
    let error = refusal(&disk, Policy::Always);
    assert!(matches!(error, OpenError::Damaged { sequence: Sequence(3), .. }), "{error}");
}

#[test]
fn another_version_is_refused() {
    let disk = Disk::new(1);
    fill(&disk, Policy::Always, 3, 100);
    change(&disk, &segment(1), |content| content[8] = 7);
    let error = refusal(&disk, Policy::Always);
    assert!(matches!(error, OpenError::Version { found: 7, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("version 7") && text.contains(&segment(1)), "{text}");
}

#[test]
fn another_shard_and_another_number_of_shards_are_refused() {
    for shard in [Shard { number: 1, count: 2 }, Shard { number: 0, count: 4 }] {
        let disk = Disk::new(1);
        let mut asked = options(&disk, Policy::Always);
        asked.shard = Shard { number: 0, count: 2 };
        drop(start_with(&disk, asked.clone()).expect("nothing fails"));
        let Err(error) = start_with(&disk, Options { shard, ..asked }) else { panic!("started") };
        let text = error.to_string();
        assert!(text.contains("shard 0 of 2") && text.contains(&shard.to_string()), "{text}");
    }
}

#[test]
fn a_second_server_is_refused_as_long_as_the_first_is_there() {
    let disk = Disk::new(1);
    let first = start(&disk, Policy::Always).expect("nothing fails");
    let error = refusal(&disk, Policy::Always);
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(first);
    assert!(start(&disk, Policy::Always).is_ok());
}

#[test]
fn a_full_disk_is_distinguished_from_a_broken_one() {
    for (fault, wanted) in
        [(Fault::NoSpace, "is full: a segment takes 4096 bytes"), (Fault::Io, "failed")]
    {
        for operation in 0..8 {
            let disk = Disk::new(1);
            disk.fail_at(operation, fault);
            let Err(error) = start(&disk, Policy::Always) else {
                assert!(operation > 6, "there is an operation {operation}");
                continue;
            };
            // The first makes names durable: what fails there is no want of space.
            let text = error.to_string();
            assert!(operation == 0 || text.contains(wanted), "operation {operation}: {text}");
            start(&disk, Policy::Always).expect("nothing fails any more");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_refused_where_its_segments_are_gone_and_left_out_where_they_are_there() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, ..) = start(&disk, Policy::Always).expect("nothing fails");
    append(&mut journal, &mut writer, 3, 100);
    snapshot(&mut journal, &mut writer);
    let first = disk.content(&segment(1)).expect("nothing is behind the snapshot");
    append(&mut journal, &mut writer, 2, 100);
    assert!(!disk.names().contains(&segment(1)) && disk.names().contains(&segment(4)));
    drop((journal, writer));
    let name = format!("{:020}.snapshot", 3);
    change(&disk, &name, |content| content[80] ^= 1);
    let error = refusal(&disk, Policy::Always);
    assert!(matches!(error, OpenError::Snapshot { missing: Sequence(1), .. }), "{error}");
    // Put back, as the sentence says.
    disk.put(&segment(1), &first);
    let (mut journal, mut writer, recovered, values) =
        start(&disk, Policy::Always).expect("the segments are there");
    assert_eq!((recovered.snapshot, recovered.records), (None, 5));
    assert_eq!(values[&1].len(), 500);
    let text = recovered.to_string();
    assert!(text.contains(&name) && text.contains("is damaged (at byte 64"), "{text}");
    // The next one stands for several segments.
    append(&mut journal, &mut writer, 9, 1500);
    snapshot(&mut journal, &mut writer);
    drop((journal, writer));
    assert!(!disk.names().contains(&name) && !disk.names().contains(&segment(1)));
    let name = format!("{:020}.snapshot", 14);
    change(&disk, &name, |content| content[80] ^= 1);
    let error = refusal(&disk, Policy::Always);
    assert!(matches!(error, OpenError::Snapshot { missing: Sequence(1), .. }), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
}

#[test]
fn a_snapshot_without_the_log_that_it_was_made_from_is_refused() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, ..) = start(&disk, Policy::Always).expect("nothing fails");
    append(&mut journal, &mut writer, 3, 100);
    snapshot(&mut journal, &mut writer);
    drop((journal, writer));
    let end = 64 + 24 + 128;
    change(&disk, &segment(1), |content| content.truncate(end));
    let error = refusal(&disk, Policy::Always);
    assert!(
        matches!(error, OpenError::Short { end: Sequence(1), through: Sequence(3), .. }),
        "{error}"
    );
    disk.take_away(&segment(1));
    let error = refusal(&disk, Policy::Always);
    assert!(matches!(error, OpenError::Short { .. }), "{error}");
}

#[test]
fn what_the_caller_cannot_take_ends_the_start_with_its_words() {
    let disk = Disk::new(1);
    fill(&disk, Policy::Always, 3, 100);
    let files = Box::new(disk.clone());
    let opened = laneway_journal::Journal::open_by_hand(
        files,
        std::path::Path::new("data"),
        options(&disk, Policy::Always),
        |_| Err("an unknown command".to_owned()),
    );
    let Err(error) = opened else { panic!("started") };
    let text = error.to_string();
    assert!(text.contains("number 1") && text.contains("an unknown command"), "{text}");
}

#[test]
fn a_record_longer_than_what_is_read_at_a_time_is_checked_to_its_end() {
    let disk = Disk::new(1);
    let long = Options { waiting_bytes_max: 8 << 20, ..options(&disk, Policy::No) };
    let (mut journal, mut writer, ..) = start_with(&disk, long).expect("nothing fails");
    append(&mut journal, &mut writer, 3, 3 << 20);
    drop((journal, writer));
    let (.., recovered, values) = start(&disk, Policy::Always).expect("it is whole");
    assert_eq!((recovered.records, values[&1].len()), (3, 9 << 20));
    disk.take_away(&segment(4)); // of this start
    change(&disk, &segment(3), |content| content[(2 << 20) + 77] ^= 1);
    let (.., recovered, values) = start(&disk, Policy::Always).expect("its end is torn");
    assert_eq!((recovered.last, values[&1].len()), (Sequence(2), 6 << 20));
    assert_eq!(recovered.torn.map(|torn| torn.from), Some(Sequence(3)));
}
