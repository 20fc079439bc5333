//! Settings of the host that are restored, even where the process that changed them was killed.
//!
//! ```text
//!   add:        lock ─▶ read ─▶ write a record ─▶ write the setting ─▶ unlock
//!   give_back:  lock ─▶ for every record of a process that is gone ─▶
//!               is the setting what that process left? write it back ─▶ remove the record
//! ```
//!
//! A setting is a file with a number, below `/proc/sys` or `/sys`, and a change adds to it, so that several processes
//! can share one (huge pages). A record lies in `/run/laneway/restore`, which no boot survives, like the settings.
//!
//! What must always hold: the record is there before the change is made and goes after the change is undone; only a
//! process that lives has a change without a later run that undoes it; a setting that is no longer what was
//! left is another program's by now, and stays. What it cannot know is whether a process of another pid namespace
//! lives: see [`Process`].

use crate::Process;
use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Where the records of this host lie.
const FOLDER: &str = "/run/laneway/restore";
/// Held while records and settings are compared or changed.
const LOCK: &str = ".lock";
/// Settings that each network namespace has for itself: the path alone does not say which one is meant.
const OF_THE_NAMESPACE: &str = "/proc/sys/net";
/// The network namespace of the calling thread; its inode number stands for it.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Tells the records of one process apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Settings of a host, and where their changes are recorded.
#[derive(Clone, Debug)]
pub struct HostSettings {
    folder: PathBuf,
}

/// A change that this process has made and has not undone.
#[derive(Debug)]
pub struct Change {
    record: PathBuf,
    lock: PathBuf,
    before: u64,
    after: u64,
}

/// A change that was undone, or had to stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenBack {
    /// The file.
    pub setting: PathBuf,
    /// What the process left there: the setting goes back only from this.
    pub left: u64,
    /// What was found.
    pub found: u64,
    /// What it is now: `found`, if that is not what was left.
    pub now: u64,
    /// Id of the process that had changed it.
    pub process: u32,
}

/// A change, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    setting: PathBuf,
    /// What the setting would be without any change that is recorded.
    base: u64,
    added: u64,
    /// Inode number of the network namespace, if the setting is one of those.
    namespace: Option<u64>,
}

impl HostSettings {
    /// This machine's.
    pub fn of_this_host() -> HostSettings {
        HostSettings::recorded_in(FOLDER)
    }

    /// Settings whose changes are recorded in `folder`.
    pub fn recorded_in(folder: impl Into<PathBuf>) -> HostSettings {
        HostSettings { folder: folder.into() }
    }

    /// Adds to the number in the file `setting`, as this process. Between the record and the change `recorded` is
    /// called, for a guard that is to know of the record.
    ///
    /// # Errors
    /// The record or the setting cannot be written; then neither is left. Or the setting cannot be read behind the
    /// change: then the record stays, for the guard or a later run.
    pub fn add(
        &self,
        setting: &Path,
        added: u64,
        recorded: impl FnOnce(&Change) -> io::Result<()>,
    ) -> io::Result<Change> {
        fs::create_dir_all(&self.folder).map_err(at(&self.folder))?;
        let _lock = self.lock()?;
        let before = number(setting)?;
        let namespace = match setting.starts_with(OF_THE_NAMESPACE) {
            true => Some(namespace()?),
            false => None,
        };
        let mut record = Record { setting: setting.to_owned(), base: 0, added, namespace };
        record.base = before.saturating_sub(record.added_by(&self.records()?));

        // Relaxed: only uniqueness matters.
        let name = format!("{}-{}", Process::this()?, NEXT.fetch_add(1, Ordering::Relaxed));
        let (record_path, lock) = (self.folder.join(name), self.folder.join(LOCK));
        let mut change = Change { record: record_path, lock, before, after: before };
        let made = File::create_new(&change.record)
            .and_then(|mut file| file.write_all(record.to_text().as_bytes()))
            .map_err(at(&change.record))
            .and_then(|()| recorded(&change))
            .and_then(|()| write(setting, before.saturating_add(added)));
        match made {
            Ok(()) => {
                change.after = number(setting)?;
                Ok(change)
            }
            Err(error) => {
                // What is left of it is removed by a later run.
                let _ = fs::remove_file(&change.record);
                Err(error)
            }
        }
    }

    /// Undoes what processes changed that are gone, as far as the calling thread's network namespace has it; says
    /// nothing where nothing ever changed.
    ///
    /// # Errors
    /// Records cannot be read, or settings not be written; such a record stays for a later run.
    pub fn give_back(&self) -> io::Result<Vec<GivenBack>> {
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let here = namespace()?;
        let mut all = Vec::new();
        loop {
            let records = self.records()?;
            let elsewhere = |record: &Record| record.namespace.filter(|&inode| inode != here);
            let gone = records.iter().find(|(_, process, record)| {
                !process.is_alive() && elsewhere(record).is_none_or(|inode| !is_held(inode))
            });
            let Some((path, process, record)) = gone else { return Ok(all) };
            if elsewhere(record).is_some() {
                // The setting went with its namespace.
                fs::remove_file(path).map_err(at(path))?;
                continue;
            }
            // A process that adds to a setting adds to what others left there.
            let left = record.base.saturating_add(record.added_by(&records));
            match number(&record.setting) {
                Ok(found) => {
                    let mut now = found;
                    if found == left {
                        now = left.saturating_sub(record.added);
                        write(&record.setting, now)?;
                    }
                    let (setting, process) = (record.setting.clone(), process.id());
                    all.push(GivenBack { setting, left, found, now, process });
                }
                // An interface or a driver that is gone took its settings along.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            fs::remove_file(path).map_err(at(path))?;
        }
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.folder.join(LOCK);
        let file = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        file.lock().map_err(at(&path))?;
        Ok(file)
    }

    /// All that are recorded. What a process that is gone left half-written is removed: its change was not made yet.
    fn records(&self) -> io::Result<Vec<(PathBuf, Process, Record)>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(at(&self.folder))? {
            let entry = entry.map_err(at(&self.folder))?;
            let (path, name) = (entry.path(), entry.file_name());
            let process = name.to_str().and_then(|name| name.rsplit_once('-'));
            let Some(process) = process.and_then(|(process, _)| process.parse::<Process>().ok())
            else {
                continue; // the lock
            };
            let text = match fs::read_to_string(&path) {
                // Its process undid the change meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.map_err(at(&path))?,
            };
            match Record::parse(&text) {
                Some(record) => records.push((path, process, record)),
                None if process.is_alive() => {}
                None => fs::remove_file(&path).map_err(at(&path))?,
            }
        }
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(records)
    }
}

impl Change {
    /// The record's file. The process that undoes the change removes it, holding [`lock_path`](Change::lock_path).
    pub fn record_path(&self) -> &Path {
        &self.record
    }

    /// What the setting was.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// What the setting was found to be behind the change, read before any other run could undo its own: the kernel may
    /// grant less than was added (huge pages).
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The file to lock (flock(2), exclusively) while the change is undone and the record removed.
    pub fn lock_path(&self) -> &Path {
        &self.lock
    }

    /// The change is undone.
    pub fn forget(&self) {
        // A record that stays is found to be of no use by a later run.
        let _ = fs::remove_file(&self.record);
    }
}

impl Record {
    /// What those of `records` add that are about the same number.
    fn added_by(&self, records: &[(PathBuf, Process, Record)]) -> u64 {
        let is_same =
            |other: &&Record| (&self.setting, self.namespace) == (&other.setting, other.namespace);
        let records = records.iter().map(|(_, _, record)| record).filter(is_same);
        records.fold(0, |sum, record| sum.saturating_add(record.added))
    }

    /// One line per field; the setting last, because it is the only text, and a line end behind it, because a record
    /// may be cut short.
    fn to_text(&self) -> String {
        let mut text = format!("base {}\nadded {}\n", self.base, self.added);
        if let Some(namespace) = self.namespace {
            let _ = writeln!(text, "namespace {namespace}");
        }
        let _ = writeln!(text, "setting {}", self.setting.display());
        text
    }

    fn parse(text: &str) -> Option<Record> {
        let lines: Vec<&str> = text.strip_suffix('\n')?.split('\n').collect();
        let field =
            |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let namespace = field("namespace").map(str::parse).transpose().ok()?;
        let [base, added] = [field("base")?, field("added")?].map(str::parse);
        Some(Record {
            setting: field("setting")?.into(),
            base: base.ok()?,
            added: added.ok()?,
            namespace,
        })
    }
}

/// Says in the error which file it is about.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

fn number(setting: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(setting).map_err(at(setting))?;
    text.trim().parse().map_err(|_| {
        at(setting)(io::Error::new(io::ErrorKind::InvalidData, format!("no number: {text:?}")))
    })
}

fn write(setting: &Path, value: u64) -> io::Result<()> {
    fs::write(setting, value.to_string()).map_err(at(setting))
}

/// Whether a process that we may look at is in the network namespace of this inode number or has it open, or it is
/// mounted (`ip netns add`).
fn is_held(inode: u64) -> bool {
    let link = format!("net:[{inode}]");
    let is_it = |path: PathBuf| fs::read_link(path).is_ok_and(|target| target == Path::new(&link));
    let holds = |process: PathBuf| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        is_it(process.join("ns/net")) || open.map(|entry| entry.path()).any(is_it)
    };
    let is_process = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (Ok(mounts), Ok(processes)) =
        (fs::read_to_string("/proc/self/mountinfo"), fs::read_dir("/proc"))
    else {
        return true;
    };
    let mut processes = processes.flatten().map(|entry| entry.path()).filter(is_process);
    mounts.contains(&link) || processes.any(holds)
}

fn namespace() -> io::Result<u64> {
    Ok(fs::metadata(NAMESPACE).map_err(at(Path::new(NAMESPACE)))?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{env, process};

    /// A host with one setting in a folder, removed at the end.
    struct Host {
        folder: PathBuf,
        setting: PathBuf,
        settings: HostSettings,
    }

    impl Host {
        fn new(name: &str, value: u64) -> Host {
            let folder = env::temp_dir().join(format!("laneway-settings-{name}-{}", process::id()));
            fs::create_dir_all(&folder).unwrap();
            let setting = folder.join("nr_hugepages");
            fs::write(&setting, format!("{value}\n")).unwrap();
            Host { settings: HostSettings::recorded_in(folder.join("restore")), setting, folder }
        }

        fn add(&self, added: u64) -> Change {
            self.settings.add(&self.setting, added, |_| Ok(())).unwrap()
        }

        /// As [`add`](Host::add), by a process that was killed since.
        fn add_and_die(&self, added: u64) {
            let record = self.add(added).record;
            let name = record.file_name().unwrap().to_str().unwrap().to_owned();
            let (_, number) = name.rsplit_once('-').unwrap();
            // Nothing was started with the machine's first tick and this id.
            fs::rename(&record, record.with_file_name(format!("{}-0-{number}", process::id())))
                .unwrap();
        }

        fn value(&self) -> u64 {
            number(&self.setting).unwrap()
        }

        fn records(&self) -> usize {
            self.settings.records().unwrap().len()
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn what_a_killed_process_added_goes_back_and_what_a_living_one_added_stays() {
        let host = Host::new("killed", 10);
        host.add_and_die(64);
        let living = host.add(32);
        host.add_and_die(8);
        assert_eq!(host.value(), 10 + 64 + 32 + 8);
        let back = host.settings.give_back().unwrap();
        let went: Vec<u64> = back.iter().map(|it| it.found - it.now).collect();
        assert_eq!((went.len(), went.iter().sum::<u64>()), (2, 72));
        assert_eq!((host.value(), host.records()), (42, 1));
        fs::write(&host.setting, "10").unwrap();
        living.forget();
        assert_eq!(host.settings.give_back().unwrap(), []);
        assert_eq!((host.value(), host.records()), (10, 0));
    }

    #[test]
    fn a_process_that_ended_in_order_between_others_does_not_confuse_the_account() {
        let host = Host::new("between", 0);
        let first = host.add(64);
        host.add_and_die(32);
        fs::write(&host.setting, "32").unwrap(); // the first gives back what it added
        first.forget();
        host.settings.give_back().unwrap();
        assert_eq!(host.value(), 0);
    }

    #[test]
    fn a_setting_that_somebody_changed_since_stays() {
        let host = Host::new("changed", 0);
        host.add_and_die(64);
        fs::write(&host.setting, "100\n").unwrap();
        let back = host.settings.give_back().unwrap();
        assert_eq!((back[0].left, back[0].found, back[0].now), (64, 100, 100));
        assert_eq!((host.value(), host.records()), (100, 0));
    }

    #[test]
    fn a_setting_of_another_network_namespace_waits_for_a_run_in_there() {
        let host = Host::new("namespace", 1);
        // No process has an id beyond 4194304.
        let path = host.folder.join("restore/4194305-0-0");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let write = |namespace| {
            let record = Record {
                setting: host.setting.clone(),
                base: 0,
                added: 1,
                namespace: Some(namespace),
            };
            fs::write(&path, record.to_text()).unwrap();
        };
        let here = namespace().unwrap();
        // Another that has a process, where there is one that can be seen.
        let links = fs::read_dir("/proc").unwrap().flatten();
        let links = links.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok());
        let inodes = links.filter_map(|link| {
            link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
        });
        if let Some(other) = inodes.into_iter().find(|&inode: &u64| inode != here) {
            write(other);
            assert_eq!(host.settings.give_back().unwrap(), []);
            // Unless it ended meanwhile.
            assert_eq!(path.exists(), is_held(other));
        }
        write(here);
        assert_eq!(host.settings.give_back().unwrap().len(), 1);
        assert_eq!((host.value(), path.exists()), (0, false));
        // That of a namespace that is gone went with it.
        write(1);
        assert_eq!(host.settings.give_back().unwrap(), []);
        assert_eq!((host.value(), path.exists()), (0, false));
        assert!(is_held(here));
    }

    #[test]
    fn a_change_that_fails_leaves_neither_record_nor_change() {
        let host = Host::new("fails", 5);
        let refused = host.settings.add(&host.setting, 1, |change| {
            assert!(change.record_path().exists() && change.lock_path().exists());
            assert_eq!(host.value(), 5, "the record comes first");
            Err(io::Error::other("the guard is gone"))
        });
        assert!(refused.unwrap_err().to_string().contains("the guard is gone"));
        let nowhere = host.folder.join("nowhere");
        let error = host.settings.add(&nowhere, 1, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
        assert_eq!((host.value(), host.records()), (5, 0));
    }

    #[test]
    fn a_record_cut_short_is_of_a_change_that_was_not_made() {
        let host = Host::new("cut", 64);
        host.add_and_die(0);
        let whole = Record { setting: host.setting.clone(), base: 0, added: 64, namespace: None };
        let whole = whole.to_text();
        let path = host.folder.join("restore/4194305-0-0");
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            host.settings.give_back().unwrap();
            assert_eq!((host.value(), path.exists()), (64, false), "{len}");
        }
    }

    #[test]
    fn a_host_that_was_never_changed_is_not_written_to() {
        let host = Host::new("never", 1);
        assert_eq!(host.settings.give_back().unwrap(), []);
        assert!(!host.folder.join("restore").exists());
    }

    proptest! {
        #[test]
        fn records_survive_their_text(base: u64, added: u64, namespace: Option<u64>, name in "[a-z_ 0-9-]{1,20}") {
            let setting = Path::new("/sys").join(name);
            let record = Record { setting, base, added, namespace };
            prop_assert_eq!(Record::parse(&record.to_text()), Some(record));
        }

        #[test]
        fn any_text_is_a_record_or_none(text in any::<String>()) {
            let _ = Record::parse(&text);
        }
    }
}
