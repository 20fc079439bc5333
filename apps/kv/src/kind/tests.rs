use super::*;
use crate::file_log;
use crate::serve::World;
use laneway_core::{App, Bell, ClockDomain, Turn};
use laneway_journal::faults::{Disk, Fault};
use laneway_journal::{Journal, Next, Options};
use std::path::Path;

#[test]
fn what_was_logged_is_there_again_at_the_next_start() {
    let folder = std::env::temp_dir().join(format!("laneway-kv-{}", run_id()));
    let run = KvRun {
        service: Service::default(),
        config: Config::default(),
        password: None,
        udp: None,
        log: Some((folder.clone(), Policy::Always)),
        folders: OnceLock::new(),
        spills: false,
        exchange: None,
        tls: None,
        upstream: None,
    };
    let bell = Bell::new().expect("a descriptor");
    let place =
        || Place { worker: 0, workers: 1, interfaces: &[], ifindexes: &[], caps: &[], bell: &bell };
    let first = KvKind::streams(&run, place()).expect("a new folder");
    let second = KvKind::streams(&run, place()).map(|_| ());
    let why = second.expect_err("one server at a time").to_string();
    assert!(why.contains("is in use by another server"), "{why}");
    let reply = crate::serve::answer(first.with(()).0, &[b"SET", b"k", b"v"]);
    assert_eq!(reply, "+OK\r\n");
    let again = KvKind::streams(&run, place()).expect("the same folder");
    assert_eq!(crate::serve::answer(again.with(()).0, &[b"GET", b"k"]), "$1\r\nv\r\n");
    std::fs::remove_dir_all(folder).expect("it was made here");
}

#[test]
fn a_log_is_of_one_number_of_workers() {
    let folder = std::env::temp_dir().join(format!("laneway-kv-{}", run_id()));
    let run = |workers: usize| KvRun {
        service: Service::default(),
        config: Config::default(),
        password: None,
        udp: None,
        log: Some((folder.clone(), Policy::Always)),
        folders: OnceLock::new(),
        spills: false,
        exchange: (workers > 1).then(|| Exchange::new(workers)),
        tls: None,
        upstream: None,
    };
    let bell = Bell::new().expect("a descriptor");
    let begin = |run: &KvRun, worker, workers| {
        let (interfaces, ifindexes, caps, bell) = (&[][..], &[][..], &[][..], &bell);
        KvKind::streams(run, Place { worker, workers, interfaces, ifindexes, caps, bell })
    };
    let two = run(2);
    let (first, _second) = (begin(&two, 0, 2).expect("new"), begin(&two, 1, 2).expect("new"));
    // Of the first worker's slots.
    assert_eq!(crate::serve::answer(first.with(()).0, &[b"SET", b"b", b"v"]), "+OK\r\n");
    for (workers, also) in [(1, "start with --workers 2"), (3, "and this run has 3")] {
        let why = begin(&run(workers), 0, workers).map(|_| ()).expect_err("of another number");
        assert!(why.to_string().contains(also), "{why}");
    }
    let again = begin(&run(2), 0, 2).expect("the same number");
    assert_eq!(crate::serve::answer(again.with(()).0, &[b"GET", b"b"]), "$1\r\nv\r\n");
    std::fs::remove_dir_all(&folder).expect("it was made here");
    let one = begin(&run(1), 0, 1).expect("a new folder");
    assert_eq!(crate::serve::answer(one.with(()).0, &[b"SET", b"b", b"v"]), "+OK\r\n");
    let why = begin(&run(2), 1, 2).map(|_| ()).expect_err("of one worker").to_string();
    assert!(why.contains("is of 1 worker, and this run has 2"), "{why}");
    std::fs::remove_dir_all(&folder).expect("it was made here");
}

/// All folders are there before any has a log, so one that is missing later was taken away.
#[test]
fn a_workers_folder_that_is_missing_is_refused_and_not_replaced() {
    let folder = Folder::new();
    let data = folder.0.join("data");
    let prepare = || prepare_folders(&data, 2);
    let [first, second] = [0, 1].map(|worker| shard_folder(&data, worker, 2).0);
    assert_eq!(prepare(), Ok(()));
    assert!(first.is_dir() && second.is_dir());
    // A first start that was cut off.
    std::fs::remove_dir(&second).expect("it is empty");
    assert_eq!(prepare(), Ok(()));
    std::fs::write(first.join("00000000000000000001.log"), b"").expect("a folder of ours");
    assert_eq!(prepare(), Ok(()), "the other has not begun");
    let aside = folder.0.join("aside");
    std::fs::rename(&second, &aside).expect("a folder of ours");
    let why = prepare().expect_err("its keys are missing");
    assert!(
        why.contains("`shard-1-of-2` is missing") && why.contains("put the folder back"),
        "{why}"
    );
    assert!(!second.exists());
    std::fs::rename(&aside, &second).expect("a folder of ours");
    assert_eq!(prepare(), Ok(()));
}

/// A run of one worker whose data are in this folder.
fn run_in(folder: &Path, spills: bool) -> KvRun {
    let mut config = Config::default();
    config.data.memory_bytes_max = spills.then_some(10_000);
    KvRun {
        service: Service::default(),
        config,
        password: None,
        udp: None,
        log: Some((folder.to_owned(), Policy::Always)),
        folders: OnceLock::new(),
        spills,
        exchange: None,
        tls: None,
        upstream: None,
    }
}

fn begin(run: &KvRun) -> Result<Kv, String> {
    let bell = Bell::new().expect("a descriptor");
    let (interfaces, ifindexes, caps) = (&[][..], &[][..], &[][..]);
    let place = Place { worker: 0, workers: 1, interfaces, ifindexes, caps, bell: &bell };
    KvKind::streams(run, place).map(|tls| tls.with(()).0).map_err(|error| error.to_string())
}

/// A folder of the test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let folder = std::env::temp_dir().join(format!("laneway-kv-{}", run_id()));
        std::fs::create_dir(&folder).expect("no folder has that name");
        Folder(folder)
    }

    /// Names in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.expect("it can be read").file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed does not change what the test has seen.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Values beyond memory are there at the next start, and in no folder before it: they are the log's.
#[test]
fn values_beyond_memory_are_restored_from_the_log_and_leave_nothing() {
    let folder = Folder::new();
    let run = run_in(&folder.0, true);
    let values = folder.0.join(crate::lsm::FOLDER);
    for round in 0..4_u8 {
        // What a killed run has left is no obstacle, whatever became of it.
        if round == 2 {
            std::fs::create_dir_all(values.join("keyspaces")).expect("a folder of ours");
            std::fs::write(values.join("0.jnl"), b"torn").expect("a folder of ours");
        }
        let kv = begin(&run).expect("it starts");
        assert!(values.is_dir());
        let second = begin(&run).map(drop).expect_err("one server at a time");
        assert!(second.contains("is in use by another server"), "{second}");
        assert!(values.is_dir(), "the second server has removed nothing");
        let key = format!("key:{round}");
        let mut ask = vec![(vec![b"MSET".to_vec()], "+OK\r\n".to_owned())];
        for number in 0..40 {
            ask[0].0.extend([format!("{key}:{number}").into_bytes(), vec![b'a' + round; 1_000]]);
        }
        for before in 0..=round {
            let text = char::from(b'a' + before).to_string().repeat(1_000);
            let get = vec![b"GET".to_vec(), format!("key:{before}:7").into_bytes()];
            ask.push((get, format!("$1000\r\n{text}\r\n")));
        }
        let asked: Vec<Vec<&[u8]>> =
            ask.iter().map(|(args, _)| args.iter().map(Vec::as_slice).collect()).collect();
        let reply = crate::serve::answers(kv, &asked);
        for ((_, wanted), reply) in ask.iter().zip(reply) {
            assert!(reply == *wanted, "round {round}: {} bytes", reply.len());
        }
        assert!(!values.exists(), "it went with the run: {:?}", folder.names());
    }
    // A start without it removes what is left of it.
    std::fs::create_dir(&values).expect("a folder of ours");
    let reply = crate::serve::answer(
        begin(&run_in(&folder.0, false)).expect("the log alone is enough"),
        &[b"STRLEN", b"key:3:39"],
    );
    assert_eq!(reply, ":1000\r\n");
    assert!(!values.exists());
}

/// One sentence each, which says what is in the way and what to try.
#[test]
fn folders_that_cannot_be_used_are_refused() {
    let refusal = |run: &KvRun| begin(run).map(drop).expect_err("it cannot start");
    let folder = Folder::new();
    let file = folder.0.join("file");
    std::fs::write(&file, b"a file").expect("a folder of ours");
    for in_the_way in [file.clone(), file.join("below")] {
        let why = refusal(&run_in(&in_the_way, false));
        assert!(why.contains(&in_the_way.display().to_string()), "{why}");
        assert!(why.contains("Not a directory") || why.contains("File exists"), "{why}");
    }
    // No user, root included, can write there.
    let why = refusal(&run_in(Path::new("/proc/self/fdinfo/data"), false));
    assert!(why.contains("/proc/self/fdinfo/data") && why.contains("os error"), "{why}");
    std::fs::remove_file(&file).expect("it was made here");
    let values = folder.0.join(crate::lsm::FOLDER);
    std::fs::write(&values, b"a file").expect("a folder of ours");
    let why = refusal(&run_in(&folder.0, true));
    assert!(why.contains("values.lsm cannot be removed") && why.contains("by hand"), "{why}");
    assert_eq!(std::fs::read(&values).expect("it is as it was"), b"a file");
    std::fs::remove_file(&values).expect("it was made here");
    drop(begin(&run_in(&folder.0, false)).expect("now it starts"));
}

/// Every place of a log's head and records: what a start does with it is to go on, or to say why not and change
/// nothing.
#[test]
fn a_log_that_was_changed_is_refused_by_what_is_wrong_with_it() {
    let folder = Folder::new();
    let run = run_in(&folder.0, true);
    for number in 0..3 {
        let key = format!("key:{number}");
        let kv = begin(&run).expect("it starts");
        assert_eq!(crate::serve::answer(kv, &[b"SET", key.as_bytes(), &[b'v'; 100]]), "+OK\r\n");
    }
    let logs: Vec<String> =
        folder.names().into_iter().filter(|name| name.ends_with(".log")).collect();
    let first = folder.0.join(&logs[0]);
    let bytes = std::fs::read(&first).expect("the first segment");
    let changed = |at: usize| {
        let mut other = bytes.clone();
        other[at] ^= 0x40;
        std::fs::write(&first, &other).expect("a folder of ours");
        let begun = begin(&run).map(drop);
        (begun, std::fs::read(&first).expect("it is there") == other)
    };
    for at in (0..24).chain([64, 100, 150]) {
        if at >= bytes.len() {
            break;
        }
        let (begun, is_as_it_was) = changed(at);
        if let Err(why) = begun {
            assert!(why.contains(&logs[0]) && is_as_it_was, "byte {at}: {why}");
        }
    }
    // A hole: records that are in no segment.
    std::fs::write(&first, &bytes).expect("a folder of ours");
    if logs.len() > 2 {
        std::fs::rename(folder.0.join(&logs[1]), folder.0.join("aside")).expect("it is there");
        let why = begin(&run).map(drop).expect_err("a hole");
        assert!(why.contains("missing") || why.contains("hole"), "{why}");
    }
}

/// What could not be made durable is in the report, whose failure is the exit code of the run: before the end or at it.
#[test]
fn a_log_that_fails_at_the_end_is_the_failure_of_the_run() {
    for (fails, policy) in [(true, Policy::No), (true, Policy::Always), (false, Policy::No)] {
        let mut world = World::new();
        let disk = Disk::new(1);
        let (segment_bytes, clock) = (4096, disk.clock());
        let options = Options { policy, segment_bytes, clock, ..Options::default() };
        let files = Box::new(disk.clone());
        let opened = Journal::open_by_hand(files, Path::new("data"), options, |_| Ok(()));
        let (journal, mut writer, recovered) = opened.expect("an empty disk");
        file_log::join(&mut world.kv, journal, &recovered).expect("there is nothing in it");
        let conn = world.open();
        world.ask(conn, "SET k v");
        if policy == Policy::No {
            writer.turn();
        }
        world.kv.on_stop(Turn { now_ns: 0 });
        // Under `always` behind zeros and the record.
        let before = if policy == Policy::No { 0 } else { 2 };
        if fails {
            disk.fail_at(disk.operations() + before, Fault::Io);
        }
        while writer.turn() != Next::Ended {}
        let report = world.kv.conclude(&RunReport::begun("socket", ClockDomain::Monotonic));
        let why = report.failure().map(|error| error.to_string());
        assert_eq!(why.is_some(), fails, "{policy}: {why:?}");
        if let Some(why) = why {
            let what = "kv: the log has failed: cannot sync data/00000000000000000001.log: ";
            assert!(why.starts_with(what), "{policy}: {why}");
        }
    }
}
