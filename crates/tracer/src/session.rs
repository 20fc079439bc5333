//! One run's folder of traces: a file per thread, written by one thread for all.
//!
//! The drainer empties every ring each [`DRAIN_INTERVAL`] and writes a [`SyncPoint`](crate::SyncPoint) each second. It
//! is started by the creator of the session, so it runs where that thread may run, not on a worker's CPU, if workers
//! pin themselves afterwards.
//!
//! A session that is to tell of one stretch of a longer run is given its [window](Session::keep_only): what ended
//! outside of it is taken from the rings and not written.
//!
//! What must always hold: a file's holes are recorded in it, also those at its end and those that a full disk or
//! the limit of bytes made; dropping a session ends its thread and its files.

use crate::{
    FileWriter, Header, Record, Recorder, ThreadInfo, Ticks, TraceError, calibrate, points,
    ring::{Consumer, ring},
    write::after,
};
use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Records of a ring unless asked otherwise: 4 MiB, a tenth of a second at 2.6 million events a second.
pub const RING_RECORDS: usize = 1 << 18;
/// The smallest ring.
pub const RING_RECORDS_MIN: usize = 1 << 6;
/// The largest ring: 256 MiB.
pub const RING_RECORDS_MAX: usize = 1 << 24;
/// Threads of one session.
pub const THREADS_MAX: usize = 256;
/// Bytes of one file unless asked otherwise: more than an analysis of one run needs, less than a disk.
pub const FILE_BYTES_MAX: u64 = 4 << 30;

/// How often rings are emptied.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);
/// Rounds of the drainer between two syncs: a second.
const SYNC_ROUNDS: u32 = 200;

/// The limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Records per ring: a power of two from [`RING_RECORDS_MIN`] to [`RING_RECORDS_MAX`].
    pub ring_records: usize,
    /// Bytes per file; what comes later is counted as lost.
    pub file_bytes_max: u64,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions { ring_records: RING_RECORDS, file_bytes_max: FILE_BYTES_MAX }
    }
}

/// Traces being written into one folder.
pub struct Session {
    folder: PathBuf,
    options: SessionOptions,
    ticks: Ticks,
    header: Header,
    shared: Arc<Shared>,
    drainer: Option<JoinHandle<()>>,
}

/// What became of one thread's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSummary {
    /// Its file.
    pub path: PathBuf,
    /// The thread's name.
    pub name: String,
    /// Records in the file.
    pub records: u64,
    /// Records that found no room in the ring, or none in the file.
    pub lost: u64,
}

#[derive(Default)]
struct Shared {
    tracks: Mutex<Vec<Track>>,
    /// What is written, in ticks; None is everything.
    window: Mutex<Option<RangeInclusive<u64>>>,
    finish: AtomicBool,
}

impl Session {
    /// Makes the folder if need be, measures what recording costs here, and starts the drainer.
    ///
    /// # Errors
    /// [`TraceError`], when a limit cannot be, or the folder cannot be made, or a thread not be started.
    pub fn create(folder: &Path, options: SessionOptions) -> Result<Session, TraceError> {
        let asked = options.ring_records;
        let (min, max) = (RING_RECORDS_MIN, RING_RECORDS_MAX);
        if !asked.is_power_of_two() || !(min..=max).contains(&asked) {
            return Err(TraceError::Ring { asked, min, max });
        }
        fs::create_dir_all(folder).map_err(|source| TraceError::File {
            doing: "make the folder",
            path: folder.to_owned(),
            source,
            hint: "name a folder that can be written",
        })?;
        let ticks = Ticks::new();
        let ticks_per_s = ticks.per_second();
        let header = Header {
            ticks_per_s,
            unix_offset_ns: ticks.sync().unix_offset_ns(),
            calibration: Some(calibrate(&ticks, ticks_per_s)),
            ..Header::of_this_program()
        };
        let shared = Arc::new(Shared::default());
        let drainer = {
            let (shared, ticks) = (Arc::clone(&shared), ticks.clone());
            thread::Builder::new()
                .name("trace".to_owned())
                .spawn(move || drain(&shared, &ticks))
                .map_err(|source| TraceError::Drainer { source })?
        };
        let folder = folder.to_owned();
        Ok(Session { folder, options, ticks, header, shared, drainer: Some(drainer) })
    }

    /// Where files go.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A recorder for one thread, whose file is `NAME.lwt`. May be given to another thread, which then
    /// [adopts](Recorder::adopt) it, or takes it from a [`TraceSlot`](crate::TraceSlot).
    ///
    /// # Errors
    /// [`TraceError`], when the file is there already or cannot be made, or there are too many threads.
    pub fn recorder(&self, thread: &ThreadInfo) -> Result<Recorder, TraceError> {
        let name = thread.name.replace(['/', '\0'], "-");
        let path = self.folder.join(format!("{name}.{}", crate::EXTENSION));
        let mut tracks = self.shared.tracks();
        if tracks.len() >= THREADS_MAX {
            return Err(TraceError::Threads { max: THREADS_MAX });
        }
        let mut file = FileWriter::create(&path, &self.header, self.options.file_bytes_max)?;
        file.sync(self.ticks.sync())?;
        let tid = Arc::new(AtomicU32::new(thread.tid));
        let began = self.ticks.now();
        let (producer, ring) = ring(self.options.ring_records);
        tracks.push(Track {
            ring,
            thread: Some(thread.clone()),
            tid: Arc::clone(&tid),
            cpu: thread.cpu,
            at: began,
            batch: Vec::new(),
            reported: 0,
            unsaved: 0,
            outside: 0,
            file: Some(file),
            failed: None,
            summary: ThreadSummary { path, name: thread.name.clone(), records: 0, lost: 0 },
        });
        Ok(Recorder::new(self.ticks.clone(), producer, began, tid))
    }

    /// From now on only what ends within `window_ns`, CLOCK_MONOTONIC, is written; the rest is left out and is not
    /// counted as lost. Call this before the window begins: it does not apply to records that the drainer took
    /// before the call. A window that is over leaves out all later records.
    pub fn keep_only(&self, window_ns: RangeInclusive<u64>) {
        let now = self.ticks.sync();
        let ticks = |at_ns: u64| {
            let from_now = i128::from(at_ns) - i128::from(now.monotonic_ns);
            let ticks = from_now * i128::from(self.header.ticks_per_s) / 1_000_000_000;
            u64::try_from(i128::from(now.ticks) + ticks).unwrap_or(if ticks < 0 {
                0
            } else {
                u64::MAX
            })
        };
        let window = ticks(*window_ns.start())..=ticks(*window_ns.end());
        *self.shared.window() = Some(window);
    }

    /// Writes what is still in the rings and ends the files. What a recorder that is still in use writes
    /// from now on is lost.
    ///
    /// # Errors
    /// [`TraceError`] of the first file that could not be written; all are ended.
    pub fn finish(mut self) -> Result<Vec<ThreadSummary>, TraceError> {
        self.end_drainer();
        let tracks = std::mem::take(&mut *self.shared.tracks());
        let mut summaries = Vec::with_capacity(tracks.len());
        let mut first_failure = None;
        for track in tracks {
            match track.failed {
                Some(error) => drop(first_failure.get_or_insert(error)),
                None => summaries.push(track.summary),
            }
        }
        first_failure.map_or(Ok(summaries), Err)
    }

    fn end_drainer(&mut self) {
        // Relaxed: the flag carries nothing; joining orders what the drainer did.
        self.shared.finish.store(true, Ordering::Relaxed);
        if let Some(drainer) = self.drainer.take() {
            drainer.thread().unpark();
            // A drainer that panicked has reported that on standard error; its files lack their ends.
            let _ = drainer.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_drainer();
    }
}

impl Shared {
    fn tracks(&self) -> MutexGuard<'_, Vec<Track>> {
        // A track is pushed whole, and changed by the drainer alone.
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window(&self) -> MutexGuard<'_, Option<RangeInclusive<u64>>> {
        // It is replaced whole.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The drainer's thread.
fn drain(shared: &Shared, ticks: &Ticks) {
    let mut round = 0;
    loop {
        let finish = shared.finish.load(Ordering::Relaxed);
        round = (round + 1) % SYNC_ROUNDS;
        let sync = (finish || round == 0).then(|| ticks.sync());
        let window = shared.window().clone();
        for track in shared.tracks().iter_mut() {
            // Asked before the ring is emptied: what is there after it is all there will be.
            let ends = finish || track.ring.is_closed();
            track.drain(ticks, window.as_ref());
            if let Some(sync) = sync {
                track.write(|file| file.sync(sync).map(|()| true));
            }
            if ends {
                track.end(ticks);
            }
        }
        if finish {
            return;
        }
        thread::park_timeout(DRAIN_INTERVAL);
    }
}

/// Whether a record that ended at `at`, the one before it at `before`, belongs to the window; a hole does if
/// any of it may.
fn is_within(window: &RangeInclusive<u64>, before: u64, at: u64, is_hole: bool) -> bool {
    match is_hole {
        true => before <= *window.end() && at >= *window.start(),
        false => window.contains(&at),
    }
}

/// One thread's way from its ring to its file.
struct Track {
    ring: Consumer,
    /// None once the file announces it.
    thread: Option<ThreadInfo>,
    /// The thread that adopted the recorder.
    tid: Arc<AtomicU32>,
    cpu: Option<u32>,
    /// The time of the record taken last.
    at: u64,
    batch: Vec<Record>,
    /// Refused records that the file tells of.
    reported: u64,
    /// Records taken that the file had no room for and does not tell of.
    unsaved: u64,
    /// Refused records outside of the window.
    outside: u64,
    /// None once it is ended or failed.
    file: Option<FileWriter>,
    failed: Option<TraceError>,
    summary: ThreadSummary,
}

impl Track {
    fn drain(&mut self, ticks: &Ticks, window: Option<&RangeInclusive<u64>>) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut base = self.at;
        let (mut at, mut reported, mut outside) = (base, 0, 0);
        let slots = RING_RECORDS_MAX; // all that is there; a ring is no larger
        self.ring.take(slots, |words| {
            let record = Record::from_words(words);
            let before = at;
            at = after(at, record);
            let hole = if record.point == points::LOST { record.value } else { 0 };
            if window.is_some_and(|window| !is_within(window, before, at, hole > 0)) {
                outside += hole;
                // Those that are left out lie before the batch, or behind all of it.
                if batch.is_empty() {
                    base = at;
                }
                return;
            }
            reported += hole;
            batch.push(record);
        });
        self.at = at;
        self.outside += outside;
        if !batch.is_empty() {
            self.announce();
            let cpu = self.cpu;
            let saved = self.write(|file| file.records(0, cpu, base, &batch));
            if saved {
                self.reported += reported;
            } else {
                // A hole that could not be saved is still known from the ring's own count.
                let holes = batch.iter().filter(|record| record.point == points::LOST).count();
                self.unsaved += (batch.len() - holes) as u64;
                self.at = ticks.now().max(at);
            }
        }
        batch.clear();
        self.batch = batch;
    }

    /// Says whose records these are, once: when there are some, the recording thread is settled.
    fn announce(&mut self) {
        if let Some(mut thread) = self.thread.take() {
            // Relaxed: it was stored before the first record, which the ring has ordered.
            thread.tid = self.tid.load(Ordering::Relaxed);
            self.write(|file| file.thread(&thread).map(|_| true));
        }
    }

    /// Tells what is missing at the end and ends the file.
    fn end(&mut self, ticks: &Ticks) {
        if self.file.is_none() {
            return;
        }
        self.announce();
        let lost = self.ring.lost() + self.unsaved - self.outside;
        let unreported = lost - self.reported;
        if unreported > 0 {
            let base = ticks.now().max(self.at);
            let hole = Record { delta: 0, point: points::LOST, small: 0, value: unreported };
            let cpu = self.cpu;
            // Its room was not kept free: a file at its limit tells only the number, in its end.
            self.write(|file| file.records(0, cpu, base, &[hole]));
        }
        self.write(|file| file.sync(ticks.sync()).map(|()| true));
        self.summary.lost = lost;
        if let Some(file) = self.file.take() {
            match file.finish(lost) {
                Ok(records) => self.summary.records = records,
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// False when it was not written: the file is full, or failed now or earlier.
    fn write(&mut self, write: impl FnOnce(&mut FileWriter) -> Result<bool, TraceError>) -> bool {
        let Some(file) = &mut self.file else { return false };
        match write(file) {
            Ok(written) => written,
            Err(error) => {
                self.failed = Some(error);
                self.file = None;
                false
            }
        }
    }
}
