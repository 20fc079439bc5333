//! What is bounded, and what happens when it is full: the writer that is behind, the disk that is full or fails, and a
//! snapshot beside them.

use crate::store::{options, start_with};
use laneway_core::Bell;
use laneway_journal::faults::{Disk, Fault};
use laneway_journal::{
    Journal, Next, OpenError, Options, Policy, Recovered, Refused, Sequence, SnapshotRefused,
    SnapshotState, Writer,
};

/// A record that the store of these tests can read: a key and nothing added.
const RECORD: &[u8] = &[0, 0, 0, 0, 0];
/// Its bytes in a file.
const RECORD_ITEM_BYTES: usize = 24;

fn started(disk: &Disk, options: Options) -> (Journal, Writer, Recovered) {
    let (journal, writer, recovered, _) = start_with(disk, options).expect("nothing fails");
    (journal, writer, recovered)
}

fn with_bell(disk: &Disk, policy: Policy) -> (Journal, Writer, Bell) {
    let bell = Bell::new().expect("a descriptor");
    let options = Options { bell: Some(bell.clone()), ..options(disk, policy) };
    let (journal, writer, _) = started(disk, options);
    (journal, writer, bell)
}

#[test]
fn a_writer_that_is_behind_leaves_no_room_and_rings_when_there_is_some() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, bell) = with_bell(&disk, Policy::No);
    let mut taken = 0;
    while journal.append(RECORD).is_ok() {
        taken += 1;
        journal.commit();
    }
    assert_eq!(journal.append(RECORD), Err(Refused::NoRoom));
    let max = journal.options().waiting_bytes_max;
    assert_eq!(
        (taken, journal.waiting_bytes()),
        (max / RECORD_ITEM_BYTES, taken * RECORD_ITEM_BYTES)
    );
    assert!(!bell.is_rung() && !journal.has_room(RECORD.len()));
    writer.turn();
    assert!(bell.answer(), "the worker waits for it");
    assert_eq!(journal.append(RECORD), Ok(Sequence(taken as u64 + 1)));
    assert_eq!(journal.written(), Sequence(taken as u64));
    journal.commit();
    writer.turn();
    assert!(!bell.is_rung(), "no worker waits, and nothing has become durable");
}

#[test]
fn a_turn_too_long_to_be_copied_waits_on_the_workers_side_and_keeps_its_place() {
    let disk = Disk::new(1);
    let bell = Bell::new().expect("a descriptor");
    let options = Options {
        bell: Some(bell.clone()),
        waiting_bytes_max: 4 << 20,
        ..options(&disk, Policy::Always)
    };
    let (mut journal, mut writer, _) = started(&disk, options.clone());
    let mut long = vec![3];
    long.extend((700_000u32).to_le_bytes());
    long.resize(700_005, 1);
    for record in [RECORD, &long, RECORD, RECORD] {
        journal.append(record).expect("there is room");
        journal.commit();
    }
    writer.turn();
    assert_eq!(journal.durable(), Sequence(1), "the long one is still with the worker");
    assert!(bell.answer());
    journal.append(RECORD).expect("there is room");
    journal.commit();
    writer.turn();
    assert_eq!((journal.durable(), journal.waiting_bytes()), (Sequence(5), 0));
    drop((journal, writer));
    let (_, _, recovered) = started(&disk, options);
    assert_eq!((recovered.records, recovered.last), (5, Sequence(5)));
}

#[test]
fn a_caller_that_ends_is_not_refused_and_a_close_makes_all_of_it_durable() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, _) = with_bell(&disk, Policy::No);
    let mut taken = 0;
    while journal.append(RECORD).is_ok() {
        taken += 1;
        journal.commit();
    }
    journal.take_all();
    for more in 1..=3 {
        assert_eq!(journal.append(RECORD), Ok(Sequence(taken + more)));
        journal.commit();
    }
    let max = journal.record_bytes_max();
    assert_eq!(journal.append(&vec![0; max + 1]), Err(Refused::TooLong { bytes: max + 1, max }));
    drop(journal);
    while writer.turn() != Next::Ended {}
    drop(writer);
    disk.restart();
    let (_, _, recovered) = started(&disk, options(&disk, Policy::No));
    assert_eq!(recovered.last, Sequence(taken + 3));
}

#[test]
fn a_record_that_no_journal_takes_is_distinguished_from_one_that_has_to_wait() {
    let disk = Disk::new(1);
    let (mut journal, ..) = with_bell(&disk, Policy::No);
    let max = journal.record_bytes_max();
    assert_eq!(journal.append(&vec![0; max + 1]), Err(Refused::TooLong { bytes: max + 1, max }));
    assert_eq!(journal.append(&vec![0; max]), Ok(Sequence(1)));
    assert_eq!(journal.append(RECORD), Err(Refused::NoRoom));
}

#[test]
fn under_always_a_batch_is_durable_when_it_is_written_and_the_bell_rings() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, bell) = with_bell(&disk, Policy::Always);
    for _ in 0..3 {
        journal.append(RECORD).expect("there is room");
        journal.commit();
    }
    assert_eq!(journal.durable(), Sequence(0));
    assert_eq!(writer.turn(), Next::Idle);
    assert_eq!((journal.written(), journal.durable()), (Sequence(3), Sequence(3)));
    assert!(bell.answer());
    let figures = journal.figures();
    assert_eq!((figures.batches, figures.syncs, figures.segments), (1, 1, 1), "one write for all");
}

#[test]
fn under_everysec_a_sync_is_due_in_time_and_what_may_be_lost_is_bounded() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, bell) = with_bell(&disk, Policy::EverySecond);
    journal.append(RECORD).expect("there is room");
    journal.commit();
    let Next::At(due_ns) = writer.turn() else { panic!("a sync is due") };
    assert_eq!((journal.written(), journal.durable()), (Sequence(1), Sequence(0)));
    assert!(due_ns < 1_000_000_000 && !bell.is_rung());
    disk.pass_ns(due_ns - 1);
    assert_eq!(writer.turn(), Next::At(due_ns), "not yet");
    // The writer does not get on: a second after the commit nothing more is taken.
    disk.pass_ns(1_000_000_001 - due_ns);
    assert!(journal.append(RECORD).is_ok(), "a second is what may be lost");
    journal.commit();
    disk.pass_ns(1);
    assert_eq!(journal.append(RECORD), Err(Refused::NoRoom));
    writer.turn();
    assert!(bell.answer() && journal.durable() == Sequence(2));
    assert!(journal.append(RECORD).is_ok());
}

#[test]
fn what_may_be_lost_is_bounded_while_a_turn_is_left_on_the_workers_side() {
    let disk = Disk::new(1);
    let options = Options { waiting_bytes_max: 4 << 20, ..options(&disk, Policy::EverySecond) };
    let (mut journal, mut writer, _) = started(&disk, options);
    let mut commit = |bytes: usize| {
        journal.append(&vec![0; bytes]).expect("there is room");
        journal.commit();
    };
    commit(1 << 10);
    writer.turn();
    commit(1 << 10);
    commit(300 << 10);
    // The writer is in a sync that takes long.
    disk.pass_ns(1_100_000_000);
    assert!(!journal.has_room(10));
    writer.turn();
    journal.commit();
    writer.turn();
    disk.pass_ns(1_000_000_000);
    writer.turn();
    assert!(journal.has_room(10) && journal.durable() == Sequence(3));
}

#[test]
fn a_writer_that_waits_for_the_kernel_alone_is_rung_when_it_has_it() {
    let disk = Disk::new(1);
    let bell = Bell::new().expect("a descriptor");
    let options =
        Options { bell: Some(bell.clone()), ring_when_written: true, ..options(&disk, Policy::No) };
    let (mut journal, mut writer, _) = started(&disk, options);
    journal.append(RECORD).expect("there is room");
    journal.commit();
    writer.turn();
    assert!(bell.answer());
}

#[test]
fn a_write_or_a_sync_that_fails_is_the_last_and_what_was_durable_stays() {
    // The batch of the second record: write, then sync.
    for (offset, fault) in
        [(0, Fault::NoSpace), (0, Fault::Io), (1, Fault::Io), (1, Fault::NoSpace)]
    {
        let disk = Disk::new(1);
        let (mut journal, mut writer, bell) = with_bell(&disk, Policy::Always);
        journal.append(RECORD).expect("there is room");
        journal.commit();
        writer.turn();
        assert!(bell.answer());
        journal.append(RECORD).expect("there is room");
        journal.commit();
        disk.fail_at(disk.operations() + offset, fault);
        assert_eq!(writer.turn(), Next::Ended);
        let failure = journal.failed().expect("it has failed");
        assert_eq!(failure.is_full(), fault == Fault::NoSpace, "{failure}");
        assert!(failure.to_string().contains(" data/00000000000000000001.log: "), "{failure}");
        assert!(bell.answer() && journal.durable() == Sequence(1));
        assert_eq!(journal.append(RECORD), Err(Refused::Failed));
        assert!(matches!(journal.begin_snapshot(), Err(SnapshotRefused::Ended)));
        let operations = disk.operations();
        assert_eq!((writer.turn(), disk.operations()), (Next::Ended, operations), "not again");
        journal.close().expect_err("it says so once more");
        drop(writer);
        disk.restart();
        let (_, _, recovered) = started(&disk, options(&disk, Policy::Always));
        assert!(recovered.last >= Sequence(1), "{recovered}");
    }
}

#[test]
fn a_journal_that_has_failed_keeps_its_folder_until_it_is_gone() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, _) = with_bell(&disk, Policy::Always);
    journal.append(RECORD).expect("there is room");
    journal.commit();
    // Behind zeros and the record.
    disk.fail_at(disk.operations() + 2, Fault::Io);
    assert_eq!(writer.turn(), Next::Ended);
    drop(writer); // as its thread does
    let second = start_with(&disk, options(&disk, Policy::Always)).map(|_| ());
    assert!(matches!(second, Err(OpenError::InUse { .. })), "{second:?}");
    drop(journal);
    started(&disk, options(&disk, Policy::Always));
}

#[test]
fn what_a_start_shows_behind_a_failed_sync_is_made_durable_by_it() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, _) = with_bell(&disk, Policy::Always);
    journal.append(RECORD).expect("there is room");
    journal.commit();
    // Behind zeros and the record.
    disk.fail_at(disk.operations() + 2, Fault::Io);
    assert_eq!(writer.turn(), Next::Ended);
    drop((journal, writer));
    // The kernel shows the record and has dropped it.
    let (journal, writer, recovered) = started(&disk, options(&disk, Policy::Always));
    assert_eq!(recovered.last, Sequence(1));
    drop((journal, writer));
    disk.restart();
    let (_, _, recovered) = started(&disk, options(&disk, Policy::Always));
    assert_eq!(recovered.last, Sequence(1), "it was shown, so it stays");
}

#[test]
fn a_snapshot_that_fails_takes_only_itself_with_it() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, bell) = with_bell(&disk, Policy::Always);
    journal.append(RECORD).expect("there is room");
    journal.commit();
    writer.turn();
    let mut snapshot = journal.begin_snapshot().expect("the first");
    assert!(matches!(journal.begin_snapshot(), Err(SnapshotRefused::Running)));
    disk.fail_at(disk.operations(), Fault::NoSpace);
    bell.answer();
    writer.turn();
    assert!(bell.answer());
    let SnapshotState::Failed(failure) = journal.snapshot() else { panic!("it has failed") };
    assert!(failure.is_full(), "{failure}");
    let full = vec![0; 2000];
    assert_eq!(snapshot.entry(Sequence(1), &full), Ok(()), "not handed over yet");
    assert_eq!(snapshot.entry(Sequence(1), &full), Err(SnapshotRefused::Ended));
    assert_eq!(journal.finish_snapshot(snapshot), Err(SnapshotRefused::Ended));
    assert!(journal.append(RECORD).is_ok() && journal.failed().is_none());
    let mut snapshot = journal.begin_snapshot().expect("the next");
    snapshot.entry(journal.last(), &[0]).expect("there is room");
    journal.finish_snapshot(snapshot).expect("nothing fails");
    writer.turn();
    let in_place = SnapshotState::InPlace { from: Sequence(2), entries: 1 };
    assert_eq!(journal.snapshot(), in_place);
}

#[test]
fn a_snapshot_goes_in_steps_and_has_no_room_while_the_writer_is_behind() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, bell) = with_bell(&disk, Policy::EverySecond);
    let mut snapshot = journal.begin_snapshot().expect("the first");
    let entry = [&[5][..], &[7; 600]].concat();
    let mut given = 0;
    while snapshot.entry(Sequence(0), &entry).is_ok() {
        given += 1;
    }
    assert_eq!(given, 2, "a chunk with the writer, one filling");
    assert_eq!(snapshot.entry(Sequence(0), &entry), Err(SnapshotRefused::NoRoom));
    writer.turn();
    assert!(bell.answer(), "there is room for more");
    snapshot.entry(Sequence(0), &entry).expect("there is room");
    // Given up: nothing of it is left.
    drop(snapshot);
    writer.turn();
    assert_eq!(journal.snapshot(), SnapshotState::None);
    assert!(disk.names().iter().all(|name| name.ends_with(".log")), "{:?}", disk.names());
    assert!(journal.begin_snapshot().is_ok());
}

#[test]
fn a_snapshot_waits_for_the_log_that_it_knows() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, _) = with_bell(&disk, Policy::No);
    journal.append(RECORD).expect("there is room");
    let mut snapshot = journal.begin_snapshot().expect("the first");
    journal.append(RECORD).expect("there is room");
    snapshot.entry(journal.last(), &[0]).expect("there is room");
    journal.finish_snapshot(snapshot).expect("nothing fails");
    writer.turn();
    assert_eq!(journal.durable(), Sequence(2), "under any policy");
    let in_place = SnapshotState::InPlace { from: Sequence(1), entries: 1 };
    assert_eq!(journal.snapshot(), in_place);
}

#[test]
fn a_journal_that_is_dropped_is_closed() {
    let disk = Disk::new(1);
    let (mut journal, mut writer, _) = with_bell(&disk, Policy::No);
    journal.append(RECORD).expect("there is room");
    drop(journal); // not committed
    assert_eq!(writer.turn(), Next::Ended);
    drop(writer);
    disk.restart();
    let (_, _, recovered) = started(&disk, options(&disk, Policy::No));
    assert!(recovered.was_closed && recovered.last == Sequence(1), "{recovered}");
}
