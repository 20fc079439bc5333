//! A simulated disk for tests: it keeps what was synced, and of the rest what its seed says.
//!
//! ```text
//!   write ──▶ now (what a reader sees)
//!        ╲──▶ unsynced ── sync ──▶ durable ──┐
//!                     ╲── power cut: every sector of it is kept or lost, one is torn, in any order ──▶ the next start
//! ```
//!
//! Every call that changes something is an operation with a number. A test cuts the power in the middle of one
//! ([`Disk::cut_power_at`]) or has one fail ([`Disk::fail_at`]). A sync that fails drops what it had to write, and a
//! reader still sees it: so do kernels. Names are kept or lost like bytes, each rename as a whole; a sync of names that
//! fails keeps them for the next, because file systems keep names in a log of their own and stop without it.
//!
//! Used by the tests of this crate and of crates that store by it; no product code opens one.

use crate::files::{Files, FolderLock, OpenFile};
use crate::options::Clock;
use laneway_random::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Kept or lost as a whole, but for the one that is torn.
const SECTOR_BYTES: usize = 512;

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full: a part of a write is done.
    NoSpace,
    /// The device fails: a part of a write is done; a sync loses what it had to write.
    Io,
}

/// A simulated disk with one folder. Clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    clock: Arc<AtomicU64>,
    is_locked: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    random: Random,
    files: Vec<Content>,
    /// What a reader finds, by name.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names, each kept or lost as a whole.
    unsynced_names: Vec<Vec<(String, Option<usize>)>>,
    operations: u64,
    cut_at: Option<u64>,
    faults: BTreeMap<u64, Fault>,
    is_cut: bool,
    boot: u64,
    /// The shortest and the longest sync.
    sync_ns: [u64; 2],
}

/// What goes on while the disk syncs.
type Meanwhile = Box<dyn FnMut() + Send>;

/// A file.
#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Bytes { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Bytes { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Change::Length(length) => content.resize(*length, 0),
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Disk {
    /// An empty disk.
    pub fn new(seed: u64) -> Disk {
        let state = State {
            random: Random::seeded(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            operations: 0,
            cut_at: None,
            faults: BTreeMap::new(),
            is_cut: false,
            boot: 1,
            sync_ns: [0; 2],
        };
        Disk {
            state: Arc::new(Mutex::new(state)),
            meanwhile: Arc::default(),
            clock: Arc::default(),
            is_locked: Arc::default(),
        }
    }

    /// Its clock, for [`Options`](crate::Options): stands still unless it is set, or a sync takes time.
    pub fn clock(&self) -> Clock {
        Clock::Simulated(Arc::clone(&self.clock))
    }

    /// Lets time pass.
    pub fn pass_ns(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    /// What its clock says.
    pub fn now_ns(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// From now on a sync takes a time below this.
    pub fn slow_syncs(&self, ns_max: u64) {
        self.syncs_take([0, ns_max.saturating_sub(1)]);
    }

    /// From now on a sync takes a time between these two, both included.
    pub fn syncs_take(&self, ns: [u64; 2]) {
        self.state().sync_ns = ns;
    }

    /// From now on this is called in every sync of a file, when its time has passed and before it is done.
    pub fn meanwhile(&self, does: impl FnMut() + Send + 'static) {
        *self.meanwhile.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(does));
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Cuts the power in the middle of the operation with this number, the first of which is 0.
    pub fn cut_power_at(&self, operation: u64) {
        self.state().cut_at = Some(operation);
    }

    /// Lets the operation with this number fail.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.state().faults.insert(operation, fault);
    }

    /// Forgets what [`cut_power_at`](Self::cut_power_at) and [`fail_at`](Self::fail_at) have asked for.
    pub fn repair(&self) {
        let mut state = self.state();
        state.cut_at = None;
        state.faults.clear();
    }

    /// Whether the power was cut: every operation since has failed.
    pub fn is_cut(&self) -> bool {
        self.state().is_cut
    }

    /// Starts again behind a cut of the power, now at the latest: what was not synced is kept or lost as the seed says.
    /// The journal that had the folder must be gone.
    pub fn restart(&self) {
        let mut state = self.state();
        let State { random, files, names, durable_names, unsynced_names, .. } = &mut *state;
        for change in unsynced_names.drain(..) {
            if random.is_heads() {
                apply_names(durable_names, &change);
            }
        }
        names.clone_from(durable_names);
        for file in files.iter_mut() {
            file.lose(random);
        }
        state.boot += 1;
        state.is_cut = false;
        drop(state);
        self.repair();
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// What is in a file, `None` where it is not there.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|file| state.files[*file].now.clone())
    }

    /// Puts a file there, durably: for tests that damage one. Is no operation.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let content =
            Content { now: bytes.to_vec(), durable: bytes.to_vec(), unsynced: Vec::new() };
        state.files.push(content);
        let file = state.files.len() - 1;
        state.names.insert(name.to_owned(), file);
        state.durable_names.insert(name.to_owned(), file);
    }

    /// Takes a file away, durably. Is no operation.
    pub fn take_away(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    fn go_on(&self) {
        let mut meanwhile = self.meanwhile.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(does) = meanwhile.as_mut() {
            does();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn apply_names(names: &mut BTreeMap<String, usize>, change: &[(String, Option<usize>)]) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

impl Content {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// What a cut of the power leaves.
    fn lose(&mut self, random: &mut Random) {
        let mut sectors: Vec<Change> = Vec::new();
        for change in self.unsynced.drain(..) {
            match change {
                Change::Length(_) => sectors.push(change),
                Change::Bytes { offset, bytes } => {
                    let mut begin = 0;
                    while begin < bytes.len() {
                        let to_next = SECTOR_BYTES - (offset + begin) % SECTOR_BYTES;
                        let end = bytes.len().min(begin + to_next);
                        let bytes = bytes[begin..end].to_vec();
                        sectors.push(Change::Bytes { offset: offset + begin, bytes });
                        begin = end;
                    }
                }
            }
        }
        // Sometimes all of it is kept, or none; mostly some.
        let kept_of_8 = random.below(9);
        sectors.retain(|_| random.below(8) < kept_of_8);
        if let Some(torn) = sectors.len().checked_sub(1).map(|last| random.below(last as u64 + 1))
            && let Change::Bytes { bytes, .. } = &mut sectors[torn as usize]
        {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        }
        for sector in sectors {
            sector.apply(&mut self.durable);
        }
        self.now.clone_from(&self.durable);
    }
}

impl State {
    /// Counts an operation: what happens to it.
    fn begin(&mut self) -> Result<(), Stop> {
        if self.is_cut {
            return Err(Stop::Fault(Fault::Io));
        }
        let operation = self.operations;
        self.operations += 1;
        if self.cut_at == Some(operation) {
            self.is_cut = true;
            return Err(Stop::Cut);
        }
        self.faults.get(&operation).map_or(Ok(()), |fault| Err(Stop::Fault(*fault)))
    }

    /// A change of names, which is done, or kept or lost where the power is cut in its middle.
    fn change_names(&mut self, change: Vec<(String, Option<usize>)>) -> io::Result<()> {
        match self.begin() {
            Err(Stop::Fault(fault)) => Err(fault.into()),
            done => {
                apply_names(&mut self.names, &change);
                self.unsynced_names.push(change);
                done.map_err(io::Error::from)
            }
        }
    }

    fn file_of(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Why an operation is not done, or not to its end.
enum Stop {
    Cut,
    Fault(Fault),
}

impl From<Stop> for io::Error {
    fn from(stop: Stop) -> io::Error {
        match stop {
            Stop::Cut => Fault::Io.into(),
            Stop::Fault(fault) => fault.into(),
        }
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        match fault {
            Fault::NoSpace => io::ErrorKind::StorageFull.into(),
            Fault::Io => io::Error::other("the device failed"),
        }
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let file = self.state().file_of(name)?;
        Ok(Box::new(Opened { disk: self.clone(), file }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let mut state = self.state();
        let file = state.files.len();
        state.files.push(Content::default());
        state.change_names(vec![(name.to_owned(), Some(file))])?;
        Ok(Box::new(Opened { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let file = state.file_of(from)?;
        state.change_names(vec![(from.to_owned(), None), (to.to_owned(), Some(file))])
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.file_of(name)?;
        state.change_names(vec![(name.to_owned(), None)])
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        let done = state.begin();
        let State { durable_names, unsynced_names, .. } = &mut *state;
        match done {
            Ok(()) => {
                for change in unsynced_names.drain(..) {
                    apply_names(durable_names, &change);
                }
                Ok(())
            }
            Err(stop) => Err(stop.into()),
        }
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        if self.is_locked.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(Some(Box::new(Locked(Arc::clone(&self.is_locked)))))
    }

    fn boot(&self) -> u64 {
        self.state().boot
    }

    fn random(&self) -> u64 {
        self.state().random.draw()
    }
}

/// Gives the folder back.
#[derive(Debug)]
struct Locked(Arc<AtomicBool>);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// An open file of a disk.
struct Opened {
    disk: Disk,
    file: usize,
}

impl Opened {
    fn change_length(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.begin();
        if matches!(done, Err(Stop::Fault(_))) {
            return done.map_err(io::Error::from);
        }
        let length = usize::try_from(bytes).expect("a small file");
        state.files[self.file].change(Change::Length(length));
        done.map_err(io::Error::from)
    }
}

impl OpenFile for Opened {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.file].now.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state();
        let content = &state.files[self.file].now;
        let begin = usize::try_from(offset).map_or(content.len(), |begin| begin.min(content.len()));
        let read = into.len().min(content.len() - begin);
        into[..read].copy_from_slice(&content[begin..begin + read]);
        Ok(read)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.begin();
        let written = match done {
            Ok(()) => bytes.len(),
            Err(_) if bytes.is_empty() => 0,
            // A device that is gone takes nothing more.
            Err(Stop::Fault(Fault::Io)) if state.is_cut => 0,
            Err(_) => state.random.below(bytes.len() as u64) as usize,
        };
        let offset = usize::try_from(offset).expect("a small file");
        let bytes = bytes[..written].to_vec();
        state.files[self.file].change(Change::Bytes { offset, bytes });
        done.map_err(io::Error::from)
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        self.change_length(bytes)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.change_length(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let [least, most] = state.sync_ns;
        if most > 0 {
            let ns = least + state.random.below(most - least + 1);
            self.disk.pass_ns(ns);
            drop(state);
            self.disk.go_on();
            state = self.disk.state();
        }
        match state.begin() {
            Ok(()) => state.files[self.file].sync(),
            Err(Stop::Fault(fault)) => {
                // A reader sees it, and no later sync writes it.
                state.files[self.file].unsynced.clear();
                return Err(fault.into());
            }
            Err(stop) => return Err(stop.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_stays_and_of_the_rest_some() {
        let (mut kept, mut lost) = (0, 0);
        for seed in 0..200 {
            let disk = Disk::new(seed);
            let mut file = disk.create("a").expect("there is power");
            file.write_at(0, &[1; 2000]).expect("there is power");
            file.sync().expect("there is power");
            disk.sync_names().expect("there is power");
            file.write_at(0, &[2; 1000]).expect("there is power");
            disk.restart();
            let content = disk.content("a").expect("its name was synced");
            assert_eq!(content.len(), 2000);
            assert!(content[1000..].iter().all(|byte| *byte == 1));
            kept += content.iter().filter(|byte| **byte == 2).count();
            lost += content[..1000].iter().filter(|byte| **byte == 1).count();
        }
        assert!(kept > 20_000 && lost > 20_000, "{kept} bytes kept, {lost} lost");
    }

    #[test]
    fn a_failed_sync_shows_what_it_has_lost_until_the_power_is_cut() {
        let disk = Disk::new(1);
        let mut file = disk.create("a").expect("there is power");
        disk.sync_names().expect("there is power");
        file.write_at(0, b"gone").expect("there is power");
        disk.fail_at(disk.operations(), Fault::Io);
        file.sync().expect_err("it fails");
        file.sync().expect("the next one says that all is well");
        assert_eq!(disk.content("a").expect("there"), b"gone");
        disk.restart();
        assert_eq!(disk.content("a").expect("there"), b"");
    }

    #[test]
    fn the_power_is_cut_in_the_middle_of_one_operation_and_all_later_ones_fail() {
        let disk = Disk::new(1);
        let mut file = disk.create("a").expect("there is power");
        disk.cut_power_at(1);
        file.write_at(0, &[1; 100]).expect_err("the power is cut");
        assert!(disk.is_cut() && disk.content("a").expect("there").len() < 100);
        file.sync().expect_err("there is no power");
        disk.restart();
        assert!(!disk.is_cut());
    }
}
