//! The value store on disk: values beyond memory in an LSM tree, by fjall.
//!
//! ```text
//!   worker ── put ──▶ waiting ── writer ──▶ LSM tree      forget: behind every question asked before it
//!          ── ask ──▶ questions ── reader ──▶ answers ── bell ──▶ the worker
//!             ╰─ a value that still waits is answered at once
//! ```
//!
//! Two threads do all of it, and the worker's loop never waits for the disk: a point read takes microseconds from the
//! page cache and milliseconds from a disk, and would hold up every client; the engine makes a writer that is ahead of
//! its compaction wait, so the reader is another thread. They run where the worker runs, as do the engine's own: a
//! pinned worker shares its CPU with them.
//!
//! The log is what makes writes durable, and this is none: it begins empty at each start, nothing in it is ever made
//! durable, and its folder goes with the run, or with the next start if that was killed. So a value that is spilled is
//! written a second time, in exchange for its memory and for nothing else, and no state of the folder can contradict
//! the log. (A value of the engine's own journal in the place of ours would have every LPUSH write the whole list: the
//! log has commands.) The engine buffers in a journal of its own, which cannot be turned off.
//!
//! What must always hold: a value can be asked for from `put` to `forget`; the waiting values are bounded; one that the
//! engine refused stays in memory, and no further one is taken.

use crate::data::ValueStore;
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use laneway_core::Bell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Its folder in that of the log.
pub(crate) const FOLDER: &str = "values.lsm";

/// Beyond so many bytes that wait to be written no further value is taken.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// What the engine is given at once.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_FORGOTTEN_MAX: usize = 4096;
/// Memory of the engine: what it writes next, and the blocks it has read. `maxmemory` is not for these.
const MEMTABLE_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 16 << 20;
/// What the engine's own journals take on the disk at most, and the least that it lets them.
const JOURNALS_BYTES: u64 = 64 << 20;
/// Files of the engine that are open at a time.
pub(crate) const FILES_MAX: usize = 64;

/// A value store in a folder, for one worker.
pub struct LsmValues {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread of it does.
type Body = fn(&Shared, &Engine);

struct Shared {
    mail: Mutex<Mail>,
    /// Wakes the writer, the reader, and the worker that waits.
    for_writer: Condvar,
    for_reader: Condvar,
    for_worker: Condvar,
    has_answers: AtomicBool,
    disk_bytes: AtomicU64,
    bell: Option<Bell>,
}

#[derive(Default)]
struct Mail {
    /// Values that are not in the engine yet, by their numbers, which is their order.
    waiting: BTreeMap<u64, Arc<[u8]>>,
    waiting_bytes: usize,
    /// The writer has begun with all up to this one.
    begun: u64,
    /// What is to be forgotten, behind so many questions.
    forgotten: VecDeque<(u64, u64)>,
    questions: VecDeque<u64>,
    /// Questions to the reader so far, and those it has answered.
    asked: u64,
    answered: u64,
    answers: Vec<(u64, Result<Vec<u8>, String>)>,
    /// The worker found no room, and is to be notified when there is some.
    wants_room: bool,
    failed: Option<String>,
    /// The reader has ended before its time.
    is_unread: bool,
    is_ending: bool,
}

impl Mail {
    fn has_room(&self) -> bool {
        self.waiting_bytes < WAITING_BYTES_MAX && self.failed.is_none()
    }

    fn may_forget(&self) -> bool {
        self.forgotten.front().is_some_and(|(behind, _)| *behind <= self.answered)
    }

    fn has_to_write(&self) -> bool {
        self.failed.is_none()
            && (self.may_forget()
                || self.waiting.last_key_value().is_some_and(|(last, _)| *last > self.begun))
    }
}

impl fmt::Debug for LsmValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LsmValues").finish_non_exhaustive()
    }
}

/// Removes what a run that was killed has left. The folder of the log must be locked.
///
/// # Errors
/// What is in the way, and what to try.
pub(crate) fn remove_left(log_folder: &Path) -> Result<(), String> {
    let folder = log_folder.join(FOLDER);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!(
            "{} cannot be removed, where an earlier run had values beyond memory: {error}; remove it by hand",
            folder.display()
        )),
        _ => Ok(()),
    }
}

impl LsmValues {
    /// An empty value store in the folder of a log, which must be locked; the bell rings when there is an answer, or
    /// room.
    ///
    /// # Errors
    /// What is in the way, and what to try.
    pub fn open(log_folder: &Path, bell: Option<Bell>) -> Result<LsmValues, String> {
        remove_left(log_folder)?;
        let folder = log_folder.join(FOLDER);
        let unopened = |why: &dyn fmt::Display| {
            format!(
                "values beyond memory cannot be stored in {}: {why}; look at the device, or start with --store log",
                folder.display()
            )
        };
        let engine = Engine::open(&folder).map_err(|error| unopened(&error))?;
        let shared = Arc::new(Shared {
            mail: Mutex::default(),
            for_writer: Condvar::new(),
            for_reader: Condvar::new(),
            for_worker: Condvar::new(),
            has_answers: AtomicBool::new(false),
            disk_bytes: AtomicU64::new(0),
            bell,
        });
        let mut values = LsmValues { shared, threads: Vec::new() };
        let engine = Arc::new(engine);
        for (name, body) in [("values-write", Shared::write as Body), ("values-read", Shared::read)]
        {
            let (shared, engine) = (Arc::clone(&values.shared), Arc::clone(&engine));
            let thread = Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || body(&shared, &engine));
            values.threads.push(thread.map_err(|error| unopened(&error))?);
        }
        Ok(values)
    }
}

impl Drop for LsmValues {
    fn drop(&mut self) {
        self.shared.mail().is_ending = true;
        self.shared.for_writer.notify_all();
        self.shared.for_reader.notify_all();
        for thread in self.threads.drain(..) {
            // What it had to report is reported already.
            let _ = thread.join();
        }
    }
}

impl ValueStore for LsmValues {
    fn has_room(&self) -> bool {
        let mut mail = self.shared.mail();
        let has_room = mail.has_room();
        mail.wants_room |= !has_room;
        has_room
    }

    fn put(&mut self, number: u64, value: Vec<u8>) {
        let mut mail = self.shared.mail();
        mail.waiting_bytes += value.len();
        mail.waiting.insert(number, value.into());
        self.shared.for_writer.notify_one();
    }

    fn forget(&mut self, number: u64) {
        let mut mail = self.shared.mail();
        // What the engine does not have, or will not receive any more.
        if number > mail.begun || mail.failed.is_some() {
            if let Some(value) = mail.waiting.remove(&number) {
                mail.waiting_bytes -= value.len();
            }
            return;
        }
        let behind = mail.asked;
        mail.forgotten.push_back((behind, number));
        self.shared.for_writer.notify_one();
    }

    fn ask(&mut self, number: u64) {
        let mut mail = self.shared.mail();
        if let Some(value) = mail.waiting.get(&number).map(|value| value.to_vec()) {
            mail.answers.push((number, Ok(value)));
            self.shared.wake(&mail);
            return;
        }
        mail.questions.push_back(number);
        mail.asked += 1;
        if mail.is_unread {
            return self.shared.refuse(&mut mail);
        }
        self.shared.for_reader.notify_one();
    }

    fn answers(&mut self) -> Vec<(u64, Result<Vec<u8>, String>)> {
        // Pairs with the store in `tell`: what it says is in the mail.
        if !self.shared.has_answers.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.shared.mail().answers)
    }

    fn wait(&mut self) {
        let is_nothing = |mail: &mut Mail| mail.answers.is_empty() && !mail.has_room();
        let asked = |mail: &mut Mail| mail.answers.is_empty() && mail.answered < mail.asked;
        let mail = self.shared.mail();
        // A command that has asked waits for the answer, others for room.
        let waited = match mail.answered < mail.asked {
            true => self.shared.for_worker.wait_while(mail, asked),
            false if mail.failed.is_some() => return,
            false => self.shared.for_worker.wait_while(mail, is_nothing),
        };
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self) -> Option<String> {
        self.shared.mail().failed.clone()
    }

    fn disk_bytes(&self) -> u64 {
        self.shared.disk_bytes.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker has something to look at.
    fn wake(&self, _mail: &Mail) {
        self.has_answers.store(true, Ordering::Release);
        self.for_worker.notify_all();
        self.bell.iter().for_each(Bell::ring);
    }

    /// Answers all questions by why there is no answer.
    fn refuse(&self, mail: &mut Mail) {
        while let Some(number) = mail.questions.pop_front() {
            mail.answers.push((number, Err(format!("value {number} cannot be read: {BROKEN}"))));
            mail.answered += 1;
        }
        self.wake(mail);
    }

    /// Answers questions until the end.
    fn read(&self, engine: &Engine) {
        let _end = ThreadEnd(self);
        loop {
            let is_idle = |mail: &mut Mail| mail.questions.is_empty() && !mail.is_ending;
            let mail = self.for_reader.wait_while(self.mail(), is_idle);
            let mut mail = mail.unwrap_or_else(PoisonError::into_inner);
            let Some(number) = mail.questions.front().copied().filter(|_| !mail.is_ending) else {
                return;
            };
            drop(mail);
            let answer = engine.read(number);
            mail = self.mail();
            if mail.questions.pop_front().is_none() {
                // The writer has ended, and the caller was informed.
                return;
            }
            mail.answers.push((number, answer));
            mail.answered += 1;
            self.wake(&mail);
            if mail.may_forget() {
                self.for_writer.notify_one();
            }
        }
    }

    /// Writes and forgets until the end.
    fn write(&self, engine: &Engine) {
        let _end = ThreadEnd(self);
        loop {
            let is_idle = |mail: &mut Mail| !mail.has_to_write() && !mail.is_ending;
            let mail = self.for_writer.wait_while(self.mail(), is_idle);
            let mut mail = mail.unwrap_or_else(PoisonError::into_inner);
            if mail.is_ending {
                return;
            }
            let (mut batch, mut bytes) = (Vec::new(), 0);
            for (number, value) in mail.waiting.range(mail.begun + 1..) {
                batch.push((*number, Arc::clone(value)));
                bytes += value.len();
                if bytes >= BATCH_BYTES {
                    break;
                }
            }
            mail.begun = batch.last().map_or(mail.begun, |(last, _)| *last);
            let mut forgotten = Vec::new();
            while forgotten.len() < BATCH_FORGOTTEN_MAX
                && mail.may_forget()
                && let Some((_, number)) = mail.forgotten.pop_front()
            {
                forgotten.push(number);
            }
            drop(mail);
            let written = engine.write(&batch, &forgotten);
            let disk_bytes = engine.values.disk_space();
            self.disk_bytes.store(disk_bytes, Ordering::Relaxed);
            let mut mail = self.mail();
            match written {
                // What was not written stays, and can be asked for.
                Err(why) => mail.failed = Some(why),
                Ok(()) => {
                    for (number, _) in &batch {
                        if let Some(value) = mail.waiting.remove(number) {
                            mail.waiting_bytes -= value.len();
                        }
                    }
                }
            }
            if mail.wants_room && (mail.has_room() || mail.failed.is_some()) {
                mail.wants_room = false;
                self.for_worker.notify_all();
                self.bell.iter().for_each(Bell::ring);
            }
        }
    }
}

const BROKEN: &str = "a thread of the value store has ended by a panic, whose message is above";

/// The end of a thread: no other thread waits for one that has ended before its time.
struct ThreadEnd<'a>(&'a Shared);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut mail = self.0.mail();
        mail.failed = Some(BROKEN.to_owned());
        mail.is_unread = true;
        self.0.refuse(&mut mail);
    }
}

/// The LSM tree. Dropping it removes the folder.
struct Engine {
    // In front of the database, which the keyspace is a part of.
    values: Keyspace,
    database: Database,
    folder: PathBuf,
}

impl Engine {
    fn open(folder: &Path) -> Result<Engine, fjall::Error> {
        let database = Database::builder(folder)
            .temporary(true)
            .manual_journal_persist(true)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_cached_files(Some(FILES_MAX))
            .max_journaling_size(JOURNALS_BYTES)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .manual_journal_persist(true)
                .expect_point_read_hits(true)
        };
        let values = database.keyspace("values", options)?;
        Ok(Engine { values, database, folder: folder.to_owned() })
    }

    fn read(&self, number: u64) -> Result<Vec<u8>, String> {
        let folder = self.folder.display();
        match self.values.get(number.to_be_bytes()) {
            Ok(Some(value)) => Ok(value.to_vec()),
            Ok(None) => Err(format!("value {number} is not in {folder}")),
            Err(error) => Err(format!("value {number} cannot be read from {folder}: {error}")),
        }
    }

    /// Numbers are written in their order, so that the tables of the tree do not overlap and compaction moves most of
    /// them whole.
    fn write(&self, values: &[(u64, Arc<[u8]>)], forgotten: &[u64]) -> Result<(), String> {
        let mut batch = self.database.batch();
        for (number, value) in values {
            batch.insert(&self.values, number.to_be_bytes(), &value[..]);
        }
        for number in forgotten {
            batch.remove(&self.values, number.to_be_bytes());
        }
        batch.commit().map_err(|error| {
            format!("values cannot be written to {}: {error}", self.folder.display())
        })
    }
}
