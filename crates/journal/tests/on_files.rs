//! The journal on files of the machine, with its thread.

use laneway_core::Bell;
use laneway_journal::{
    Journal, OpenError, Options, Policy, Recovered, Restored, Sequence, SnapshotState,
};
use laneway_testkit::skip;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = env::temp_dir().join(format!("laneway-journal-{test}-{}", std::process::id()));
        fs::create_dir(&path).expect("the folder for temporary files can be written");
        Folder(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("above").join("data")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing is left to do about a folder that cannot be removed.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(folder: &Path, options: Options) -> Result<(Journal, Recovered, Vec<Vec<u8>>), OpenError> {
    let mut restored = Vec::new();
    let (journal, recovered) = Journal::open(folder, options, |one| {
        let (Restored::Entry { bytes, .. } | Restored::Record { bytes, .. }) = one;
        restored.push(bytes.to_vec());
        Ok(())
    })?;
    Ok((journal, recovered, restored))
}

fn opened(folder: &Path, options: Options) -> (Journal, Recovered, Vec<Vec<u8>>) {
    open(folder, options).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(folder: &Path) -> OpenError {
    match open(folder, Options::default()) {
        Ok((_, recovered, _)) => panic!("started: {recovered}"),
        Err(error) => error,
    }
}

/// Waits as long as it takes, for something that the bell says.
fn wait_until(bell: &Bell, is_so: impl Fn() -> bool) {
    while !is_so() {
        bell.wait(Duration::MAX);
        bell.answer();
    }
}

#[test]
fn the_bell_says_when_a_record_is_durable_under_every_policy_that_makes_it_so() {
    for policy in [Policy::Always, Policy::EverySecond] {
        let folder = Folder::new(policy.name());
        let bell = Bell::new().expect("a descriptor");
        let options = Options { policy, bell: Some(bell.clone()), ..Options::default() };
        let (mut journal, recovered, _) = opened(&folder.data(), options);
        assert_eq!(recovered.to_string(), "the journal is empty");
        for text in ["one", "two"] {
            let sequence = journal.append(text.as_bytes()).expect("there is room");
            journal.commit();
            wait_until(&bell, || journal.durable() >= sequence);
        }
        journal.close().expect("nothing fails");
        let (_, recovered, restored) = opened(&folder.data(), Options::default());
        assert_eq!(restored, [b"one", b"two"]);
        assert!(recovered.was_closed && recovered.torn.is_none(), "{recovered}");
    }
}

#[test]
fn segments_are_filled_and_go_when_a_snapshot_stands_for_them() {
    let folder = Folder::new("segments");
    let bell = Bell::new().expect("a descriptor");
    let options =
        Options { bell: Some(bell.clone()), segment_bytes: 16 << 10, ..Options::default() };
    let (mut journal, ..) = opened(&folder.data(), options.clone());
    let record = |number: u64| number.to_le_bytes().repeat(100);
    for number in 1..=200 {
        journal.append(&record(number)).expect("there is room");
        journal.commit();
    }
    let mut snapshot = journal.begin_snapshot().expect("the first");
    snapshot.entry(journal.last(), b"all of them").expect("there is room");
    journal.finish_snapshot(snapshot).expect("nothing fails");
    wait_until(&bell, || journal.snapshot() != SnapshotState::Writing);
    let in_place = SnapshotState::InPlace { from: Sequence(200), entries: 1 };
    assert_eq!((journal.snapshot(), journal.figures().segments), (in_place, 1));
    journal.append(&record(201)).expect("there is room");
    journal.close().expect("nothing fails");
    let (journal, recovered, restored) = opened(&folder.data(), options);
    assert_eq!(restored, [b"all of them".to_vec(), record(201)]);
    assert_eq!((recovered.snapshot, recovered.last), (Some(Sequence(200)), Sequence(201)));
    drop(journal);
}

#[test]
fn a_segment_takes_its_space_at_once_and_gives_back_what_is_left() {
    let folder = Folder::new("space");
    let (mut journal, ..) = opened(&folder.data(), Options::default());
    let name = folder.data().join(format!("{:020}.log", 1));
    assert_eq!(fs::metadata(&name).expect("it is there").len(), Options::default().segment_bytes);
    journal.append(b"1234567").expect("there is room");
    journal.close().expect("nothing fails");
    // Head; mark, record; mark.
    assert_eq!(fs::metadata(&name).expect("it is there").len(), 64 + 24 + 24 + 24);
}

#[test]
fn data_is_for_its_user_alone() {
    let folder = Folder::new("mode");
    drop(opened(&folder.data(), Options::default()));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder.data()), 0o700);
    for file in fs::read_dir(folder.data()).expect("ours") {
        let file = file.expect("ours");
        assert_eq!(mode(&file.path()), 0o600, "{}", file.path().display());
    }
}

#[test]
fn a_second_server_is_refused_until_the_first_is_gone() {
    let folder = Folder::new("second");
    let (first, ..) = opened(&folder.data(), Options::default());
    let error = refusal(&folder.data());
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("above/data is in use by another server"), "{error}");
    drop(first);
    drop(opened(&folder.data(), Options::default()));
}

#[test]
fn a_folder_that_cannot_be_one_is_refused() {
    let folder = Folder::new("unusable");
    let file = folder.0.join("file");
    fs::write(&file, "text").expect("it is ours");
    for path in [file.clone(), file.join("below"), PathBuf::from("/proc/journal")] {
        let error = refusal(&path);
        assert!(matches!(error, OpenError::Folder { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("write to"), "{text}");
    }
}

#[test]
fn a_link_in_place_of_a_segment_is_not_followed() {
    let folder = Folder::new("link");
    drop(opened(&folder.data(), Options::default()));
    let (name, elsewhere) = (folder.data().join(format!("{:020}.log", 1)), folder.0.join("else"));
    fs::rename(&name, &elsewhere).expect("ours");
    std::os::unix::fs::symlink(&elsewhere, &name).expect("ours");
    let error = refusal(&folder.data());
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[test]
fn no_wish_for_room_is_forgotten_however_it_falls() {
    for policy in [Policy::No, Policy::Always] {
        let folder = Folder::new(&format!("room-{policy}"));
        let bell = Bell::new().expect("a descriptor");
        let options = Options {
            policy,
            bell: Some(bell.clone()),
            waiting_bytes_max: 1 << 10,
            ..Options::default()
        };
        let (mut journal, ..) = opened(&folder.data(), options);
        let mut refused = 0;
        while refused < 300 {
            if journal.append(&[7; 200]).is_err() {
                refused += 1;
                journal.commit();
                // For ever, if its ring is lost.
                while !journal.has_room(200) {
                    bell.wait(Duration::MAX);
                    bell.answer();
                }
            }
            // In the middle of what the writer does, and at its end.
            if refused % 3 == 0 {
                journal.commit();
            }
        }
        let last = journal.last();
        journal.close().expect("nothing fails");
        let (_, recovered, _) = opened(&folder.data(), Options::default());
        assert_eq!((recovered.last, recovered.was_closed), (last, true));
    }
}

/// Where there is a file system of [`SMALL_BYTES`], for the test that another one starts.
const SMALL_DISK: &str = "LANEWAY_JOURNAL_SMALL_DISK";
const SMALL_BYTES: usize = 256 << 10;

#[test]
fn a_disk_that_is_full_is_reported_and_costs_nothing_that_was_durable() {
    if !rustix::process::geteuid().is_root() {
        return skip("a file system of its own needs root");
    }
    let folder = Folder::new("full");
    let program = env::current_exe().expect("a test knows its program");
    // The mount is in a namespace of the shell, and ends with it.
    let script = format!(
        "mount -t tmpfs -o size={SMALL_BYTES} small \"$1\" || exit 77; \
         exec \"$2\" --exact on_a_small_disk --nocapture"
    );
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args([folder.0.as_os_str(), program.as_os_str()])
        .env(SMALL_DISK, &folder.0)
        .output();
    match ran {
        Err(error) => skip(format!("unshare: {error}")),
        Ok(ran) if ran.status.code() == Some(77) => skip("no tmpfs can be mounted here"),
        Ok(ran) => {
            let printed = String::from_utf8_lossy(&ran.stdout);
            let complaint = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success() && printed.contains("1 passed"), "{printed}{complaint}");
        }
    }
}

#[test]
fn on_a_small_disk() {
    let Some(folder) = env::var_os(SMALL_DISK).map(PathBuf::from) else { return };
    let data = folder.join("data");
    // Longer than the disk, from the first segment on.
    let error = refusal(&data);
    assert!(matches!(error, OpenError::Full { .. }), "{error}");
    assert!(error.to_string().contains("is full: a segment takes 67108864 bytes"), "{error}");
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; SMALL_BYTES / 4]).expect("there is room");
    let bell = Bell::new().expect("a descriptor");
    let options = Options {
        policy: Policy::Always,
        segment_bytes: 32 << 10,
        bell: Some(bell.clone()),
        ..Options::default()
    };
    let (mut journal, ..) = opened(&data, options.clone());
    while journal.append(&[7; 1000]).is_ok() {
        let last = journal.last();
        journal.commit();
        wait_until(&bell, || journal.durable() >= last || journal.failed().is_some());
    }
    let failure = journal.failed().expect("it is full").clone();
    assert!(failure.is_full() && failure.to_string().contains("start again"), "{failure}");
    let durable = journal.durable();
    assert!(durable > Sequence(64), "{durable} records of 1,000 bytes");
    assert_eq!(journal.close(), Err(failure));
    // There is still no room for a segment.
    let error = open(&data, options.clone()).map(|_| ()).expect_err("it is full");
    assert!(matches!(error, OpenError::Full { .. }), "{error}");
    fs::remove_file(&ballast).expect("ours");
    let (_, recovered, restored) = opened(&data, options);
    assert!(recovered.last >= durable, "{durable} were durable: {recovered}");
    assert!(restored.iter().all(|record| *record == [7; 1000]));
}
