//! The kernel join: `bpf/join.bpf.c` attached, and what it tells written to a file.
//!
//! One thread loads, attaches, drains and writes. Rings are per CPU, so a thread that migrates leaves its events in
//! two of them: what was drained is sorted by time, and what is younger than [`SETTLED_NS`] waits for
//! the next round, when nothing older can still come.
//!
//! What must always hold: programs are detached before the last records are read, and on every way out, because links
//! end with their descriptors; an event that found no room is counted, and recorded in every thread as a hole.

use crate::RecordError;
use laneway_bpf::{Moderation, Rings, Tracing};
use laneway_core::{ConfigValue, KernelMaps, RecordStream};
use laneway_tracer::{
    FILE_BYTES_MAX, FileWriter, Header, PointId, Record, Shape, SyncPoint, ThreadInfo, points,
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::HashMap,
    fs, mem,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The compiled programs.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/join.bpf.o"));

/// Bytes of the ring of each CPU: 50,000 events, which at a million a second is ten rounds.
pub const RING_BYTES: u32 = 1 << 21;

/// How long a round waits for events.
const ROUND: Duration = Duration::from_millis(5);
/// Events that are younger than this wait for the next round: a program that an interrupt holds up submits its record
/// late.
const SETTLED_NS: u64 = 2_000_000;
/// Between two readings of the clocks.
const SYNC_NS: u64 = 1_000_000_000;
/// Threads of one file; events of more are counted as lost.
const THREADS_MAX: usize = 1 << 16;
/// The number of a system call whose entry was not seen: it began before the join, or a ring was full.
const SYSCALL_UNKNOWN: u64 = 0xffff_ffff;
/// Bytes of `struct lw_join`.
const EVENT_BYTES: usize = 32;

/// Whose threads are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Of the processes that this process starts while the join is attached, and of theirs.
    Children,
    /// Of these processes, by number, and of those they start.
    Processes(Vec<u32>),
}

/// What a join left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSummary {
    /// Its file.
    pub path: PathBuf,
    /// Threads seen.
    pub threads: usize,
    /// Events written.
    pub events: u64,
    /// Events that found no room in a ring, or none in the file.
    pub lost: u64,
    /// Processes that were not followed, because too many were.
    pub not_followed: u64,
    /// Why page faults are not in it, if so.
    pub without_faults: Option<String>,
}

/// An attached join, writing.
pub struct KernelJoin {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<KernelSummary, RecordError>>>,
}

impl KernelJoin {
    /// Attaches the programs and starts to write to `path`. Process numbers are those of the machine's own PID
    /// namespace.
    ///
    /// # Errors
    /// [`RecordError::Kernel`] without CAP_BPF and CAP_PERFMON, or on a kernel without one of the tracepoints;
    /// [`RecordError::Trace`] when the file cannot be made.
    pub fn attach(path: &Path, follow: &Follow) -> Result<KernelJoin, RecordError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let (path, follow) = (path.to_owned(), follow.clone());
        let work = {
            let stop = Arc::clone(&stop);
            move || {
                let mut join = match Join::open(&path, &follow, 0) {
                    Ok(join) => {
                        // The thread that waits for this exists: it waits below.
                        let _ = ready.send(());
                        join
                    }
                    // The sender is dropped unused: the caller then joins this thread and gets the error.
                    Err(error) => return Err(error),
                };
                join.run(&stop)
            }
        };
        let thread = thread::Builder::new()
            .name("kernel-join".to_owned())
            .spawn(work)
            .map_err(RecordError::Thread)?;
        let mut join = KernelJoin { stop, thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(join),
            Err(mpsc::RecvError) => match join.end() {
                Ok(summary) => unreachable!("a join that never began wrote {summary:?}"),
                Err(error) => Err(error),
            },
        }
    }

    /// Detaches the programs, writes what they reported until then, and ends the file.
    ///
    /// # Errors
    /// [`RecordError`], of whatever went wrong since it was attached.
    pub fn finish(mut self) -> Result<KernelSummary, RecordError> {
        self.end()
    }

    fn end(&mut self) -> Result<KernelSummary, RecordError> {
        // Relaxed: the flag carries nothing; joining orders what the thread did.
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for KernelJoin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // No caller is left to receive the result.
            let _ = thread.join();
        }
    }
}

/// One event, as `struct lw_join` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    ts_ns: u64,
    value: u64,
    tgid: u32,
    tid: u32,
    cpu: u32,
    point: u16,
    small: u16,
}

impl Event {
    fn parse(bytes: &[u8; EVENT_BYTES]) -> Event {
        let u64_at = |at: usize| {
            u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight of the event's bytes"))
        };
        let u32_at = |at: usize| {
            u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four of the event's bytes"))
        };
        let last = u32_at(28);
        let (point, small) = if cfg!(target_endian = "little") {
            (last as u16, (last >> 16) as u16)
        } else {
            ((last >> 16) as u16, last as u16)
        };
        Event {
            ts_ns: u64_at(0),
            value: u64_at(8),
            tgid: u32_at(16),
            tid: u32_at(20),
            cpu: u32_at(24),
            point,
            small,
        }
    }
}

/// The join's thread.
struct Join {
    tracing: Tracing,
    file: Option<FileWriter>,
    /// Drained and not written, in no order.
    waiting: Vec<Event>,
    tracks: Tracks,
    lost_in_rings: u64,
    synced_ns: u64,
}

impl Join {
    /// Switches away from process `overlooked` are not taken notice of, as some kernels do not report some; 0: all are.
    fn open(path: &Path, follow: &Follow, overlooked: u32) -> Result<Join, RecordError> {
        let mut header = Header::of_this_program();
        // A file that has these points counts what is lost; this one does not.
        header.points.retain(|point| point.shape != Shape::Dropped);
        let mut file = FileWriter::create(path, &header, FILE_BYTES_MAX)?;
        file.sync(SyncPoint::of_monotonic())?;
        let parent = match follow {
            Follow::Children => std::process::id(),
            Follow::Processes(_) => 0,
        };
        let config = [("lw_parent", parent), ("overlooked", overlooked)]
            .map(|(name, pid)| ConfigValue { name, bytes: pid.to_ne_bytes().to_vec() });
        let stream = RecordStream {
            map: "rings",
            record_bytes: EVENT_BYTES,
            ring_bytes: RING_BYTES,
            wanted_map: "wanted",
        };
        let attached = Tracing::attach_recording("join", OBJECT, &config, &stream);
        let mut tracing = match attached {
            Ok(tracing) => tracing,
            Err(error) => {
                // A file that says nothing would be taken for a trace in which nothing happened.
                drop(file);
                let _ = fs::remove_file(path);
                return Err(error.into());
            }
        };
        if let Follow::Processes(processes) = follow {
            for tgid in processes {
                let one = 1u32.to_ne_bytes();
                tracing.maps().put("followed", &tgid.to_ne_bytes(), &one)?;
            }
        }
        // A wake-up is an interrupt on the CPU under test; a round later is soon enough.
        rings(&mut tracing).moderate(Moderation { records: usize::MAX, delay: ROUND });
        Ok(Join {
            tracing,
            file: Some(file),
            waiting: Vec::new(),
            tracks: Tracks::default(),
            lost_in_rings: 0,
            synced_ns: monotonic_ns(),
        })
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<KernelSummary, RecordError> {
        while !stop.load(Ordering::Relaxed) {
            rings(&mut self.tracing).wait(ROUND)?;
            self.drain()?;
            self.write(monotonic_ns().saturating_sub(SETTLED_NS))?;
        }
        self.tracing.detach();
        // A program that was running when its link went submits within microseconds.
        thread::sleep(Duration::from_nanos(SETTLED_NS));
        self.drain()?;
        self.write(u64::MAX)?;
        let mut file = self.file.take().expect("the file is finished once");
        file.sync(SyncPoint::of_monotonic())?;
        let not_followed = self.drops()?[1];
        let lost = self.lost_in_rings + self.tracks.lost;
        let (path, threads) = (file.path().to_owned(), self.tracks.by_tid.len());
        file.finish(lost)?;
        let without_faults = self.tracing.left_out().map(str::to_owned);
        let events = self.tracks.events;
        Ok(KernelSummary { path, threads, events, lost, not_followed, without_faults })
    }

    fn drain(&mut self) -> Result<(), RecordError> {
        let waiting = &mut self.waiting;
        rings(&mut self.tracing).consume(|bytes| {
            let bytes = bytes.first_chunk().expect("the rings have checked the length");
            waiting.push(Event::parse(bytes));
        })?;
        Ok(())
    }

    /// Writes what happened before `until_ns`.
    fn write(&mut self, until_ns: u64) -> Result<(), RecordError> {
        self.waiting.sort_by_key(|event| event.ts_ns);
        let settled = self.waiting.partition_point(|event| event.ts_ns < until_ns);
        let file = self.file.as_mut().expect("the file is finished once");
        for event in self.waiting.drain(..settled) {
            self.tracks.write(event, file)?;
        }
        self.tracks.flush(file)?;
        let now_ns = monotonic_ns();
        if now_ns - self.synced_ns >= SYNC_NS {
            file.sync(SyncPoint::of_monotonic())?;
            self.synced_ns = now_ns;
        }
        let lost = self.drops()?[0];
        if lost > self.lost_in_rings {
            let more = lost - self.lost_in_rings;
            self.lost_in_rings = lost;
            let file = self.file.as_mut().expect("the file is finished once");
            self.tracks.write_hole(more, now_ns.min(until_ns), file)?;
        }
        Ok(())
    }

    /// Events that found no room; processes that were not followed.
    fn drops(&self) -> Result<[u64; 2], RecordError> {
        let mut drops = [0; 2];
        let sums = self.tracing.maps().per_cpu_sums("drops")?;
        drops.iter_mut().zip(sums).for_each(|(drop, sum)| *drop = sum);
        Ok(drops)
    }
}

fn rings(tracing: &mut Tracing) -> &mut Rings {
    tracing.rings().expect("the join declares its records")
}

/// Every thread's way into the file.
#[derive(Default)]
struct Tracks {
    by_tid: HashMap<u32, Track>,
    events: u64,
    /// Events that the file had no room for.
    lost: u64,
}

struct Track {
    number: u16,
    cpu: u32,
    /// The time that the batch counts from, and that of its last record.
    base_ns: u64,
    last_ns: u64,
    /// The system call that it is in, by number.
    syscall: u64,
    batch: Vec<Record>,
}

impl Tracks {
    fn write(&mut self, event: Event, file: &mut FileWriter) -> Result<(), RecordError> {
        if !self.by_tid.contains_key(&event.tid) {
            if self.by_tid.len() >= THREADS_MAX {
                self.lost += 1;
                return Ok(());
            }
            let number = file.thread(&thread_of(event))?;
            let track = Track {
                number,
                cpu: event.cpu,
                base_ns: event.ts_ns,
                last_ns: event.ts_ns,
                syscall: SYSCALL_UNKNOWN,
                batch: Vec::new(),
            };
            self.by_tid.insert(event.tid, track);
        }
        let track = self.by_tid.get_mut(&event.tid).expect("it is there, or was just put there");
        let delta_ns = event.ts_ns.saturating_sub(track.last_ns);
        if track.cpu != event.cpu || u32::try_from(delta_ns).is_err() {
            let lost = track.flush(file)?;
            self.lost += lost;
            track.cpu = event.cpu;
            track.base_ns = track.last_ns.max(event.ts_ns);
            track.last_ns = track.base_ns;
        }
        let delta = event.ts_ns.saturating_sub(track.last_ns) as u32;
        track.last_ns += u64::from(delta);
        let point = PointId(event.point);
        let value = match point {
            points::SYSCALL_IN => {
                track.syscall = event.value;
                event.value
            }
            points::SYSCALL_OUT => {
                mem::replace(&mut track.syscall, SYSCALL_UNKNOWN) | returned(event.value) << 32
            }
            _ => event.value,
        };
        track.batch.push(Record { delta, point, small: event.small, value });
        self.events += 1;
        Ok(())
    }

    fn flush(&mut self, file: &mut FileWriter) -> Result<(), RecordError> {
        for track in self.by_tid.values_mut() {
            self.lost += track.flush(file)?;
        }
        Ok(())
    }

    /// Some thread lost `events`: the first one gets a hole with the number, the others a hole of 0, because the
    /// events may have been theirs.
    fn write_hole(
        &mut self,
        events: u64,
        at_ns: u64,
        file: &mut FileWriter,
    ) -> Result<(), RecordError> {
        let mut number = events;
        for track in self.by_tid.values_mut() {
            let at_ns = at_ns.max(track.last_ns);
            track.base_ns = at_ns;
            track.last_ns = at_ns;
            let hole = Record { delta: 0, point: points::LOST, small: 0, value: number };
            track.batch.push(hole);
            track.flush(file)?;
            number = 0;
        }
        Ok(())
    }
}

impl Track {
    /// Gives how many the file had no room for.
    fn flush(&mut self, file: &mut FileWriter) -> Result<u64, RecordError> {
        if self.batch.is_empty() {
            return Ok(0);
        }
        let written = file.records(self.number, Some(self.cpu), self.base_ns, &self.batch)?;
        let lost = if written { 0 } else { self.batch.len() as u64 };
        self.batch.clear();
        self.base_ns = self.last_ns;
        Ok(lost)
    }
}

/// What a system call returned, in 32 bits: errors as they are, large numbers as the largest.
fn returned(value: u64) -> u64 {
    let clipped = (value as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    u64::from(clipped as u32)
}

/// Its name, as far as it still has one: a thread that has ended has no name left.
fn thread_of(event: Event) -> ThreadInfo {
    let place = format!("/proc/{}/task/{}/comm", event.tgid, event.tid);
    let name = fs::read_to_string(place).map(|name| name.trim().to_owned());
    ThreadInfo {
        pid: event.tgid,
        tid: event.tid,
        name: name.unwrap_or_else(|_| format!("thread {}", event.tid)),
        cpu: None,
        queue: 0,
    }
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_bpf::BpfError;
    use laneway_tracer::{Happening, TraceFile, What};
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    /// A program on CPU 0 until this is dropped.
    struct OnCpu0(Child);

    impl OnCpu0 {
        fn start(command: &[&str]) -> OnCpu0 {
            let mut taskset = Command::new("taskset");
            taskset.args(["-c", "0"]).args(command).stdout(Stdio::piped());
            OnCpu0(taskset.spawn().unwrap())
        }

        fn busy() -> OnCpu0 {
            OnCpu0::start(&["sh", "-c", "while :; do :; done"])
        }

        fn ran_ns(&self) -> u64 {
            let text = fs::read_to_string(format!("/proc/{}/schedstat", self.0.id())).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        }
    }

    impl Drop for OnCpu0 {
        fn drop(&mut self) {
            // Both can only fail if it has ended meanwhile.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// What is recorded of a program meanwhile, or nothing (with a message) where this machine cannot record it.
    #[allow(clippy::print_stdout, reason = "a test that is skipped says so where cargo shows it")]
    fn recorded(
        followed: &OnCpu0,
        overlooked: u32,
        meanwhile: impl FnOnce(),
    ) -> Option<Vec<Happening>> {
        let path = std::env::temp_dir().join(format!("laneway-join-{}.lwt", followed.0.id()));
        let follow = Follow::Processes(vec![followed.0.id()]);
        let mut join = match Join::open(&path, &follow, overlooked) {
            Ok(join) => join,
            Err(RecordError::Kernel(
                why @ (BpfError::NotPermitted { .. } | BpfError::NoBtf { .. }),
            )) => {
                println!("skipped: {why}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || join.run(&stop))
        };
        meanwhile();
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap().unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        let file = TraceFile::open(&bytes).unwrap();
        Some(file.happenings().collect())
    }

    /// Without that, the thread would count as off its CPU from a switch to the overlooked one to the next but one.
    #[test]
    fn a_thread_is_on_its_cpu_again_though_the_switch_was_not_reported() {
        let (followed, overlooked) = (OnCpu0::busy(), OnCpu0::busy());
        let mut ran = 0;
        let happenings = recorded(&followed, overlooked.0.id(), || {
            let before = followed.ran_ns();
            thread::sleep(Duration::from_millis(500));
            ran = followed.ran_ns() - before;
        });
        let Some(happenings) = happenings else { return };
        let mut on_ns = 0;
        let mut switched_in_ns = None;
        for Happening { time_ns, what, .. } in happenings {
            match what {
                What::SwitchedIn => {
                    assert_eq!(switched_in_ns.replace(time_ns), None, "it switched in twice")
                }
                // Of the first stay only the end is in the file.
                What::SwitchedOut { .. } => {
                    on_ns += time_ns - switched_in_ns.take().unwrap_or(time_ns)
                }
                _ => {}
            }
        }
        let (on, ran) = (on_ns as f64, ran as f64);
        assert!(
            (on - ran).abs() < 0.2 * ran,
            "on its CPU for {on} ns by the trace, {ran} by the scheduler"
        );
    }

    /// A program that sleeps again and again, as soon as it does.
    fn sleeper() -> OnCpu0 {
        let script = "import time\nprint(flush=True)\nwhile True: time.sleep(0.002)";
        let mut sleeper = OnCpu0::start(&["python3", "-c", script]);
        let mut started = sleeper.0.stdout.take().unwrap();
        started.read_exact(&mut [0]).unwrap();
        sleeper
    }

    #[test]
    fn a_timer_wakes_in_the_name_of_no_task_and_the_thread_is_behind_the_one_that_has_its_cpu() {
        let (_busy, sleeper) = (OnCpu0::busy(), sleeper());
        let happenings = recorded(&sleeper, 0, || thread::sleep(Duration::from_secs(1)));
        let Some(happenings) = happenings else { return };
        let comes = happenings.windows(2).filter_map(|pair| match (pair[0].what, pair[1].what) {
            (What::TookOver(task), What::SwitchedIn) if pair[0].time_ns == pair[1].time_ns => {
                Some(task.name())
            }
            _ => None,
        });
        let comes: Vec<String> = comes.collect();
        // The CPU is never idle.
        let is_task = |name: &String| !name.is_empty() && !name.starts_with("swapper/");
        assert!(!comes.is_empty() && comes.iter().all(is_task), "{comes:?}");
        let wakers = happenings.iter().filter_map(|happening| match happening.what {
            What::WokenBy(task) => Some(task.name()),
            _ => None,
        });
        let wakers: Vec<String> = wakers.collect();
        // A lock of the kernel may be another's now and then.
        let named = wakers.iter().filter(|name| !name.is_empty()).count();
        assert!(!wakers.is_empty() && 2 * named < wakers.len(), "{wakers:?}");
    }

    #[test]
    fn the_programs_and_the_tracer_number_points_alike() {
        let header = include_str!("../bpf/join.h");
        let value = |name: &str| -> u64 {
            let line = header
                .lines()
                .find(|line| line.starts_with(&format!("#define {name} ")))
                .unwrap_or_else(|| panic!("{name} is not defined"));
            line.split_whitespace().nth(2).unwrap().parse().unwrap()
        };
        for (name, point) in [
            ("LW_JOIN_SWITCHED_OUT", points::SWITCHED_OUT),
            ("LW_JOIN_SWITCHED_IN", points::SWITCHED_IN),
            ("LW_JOIN_IRQ_IN", points::IRQ_IN),
            ("LW_JOIN_IRQ_OUT", points::IRQ_OUT),
            ("LW_JOIN_SOFTIRQ_IN", points::SOFTIRQ_IN),
            ("LW_JOIN_SOFTIRQ_OUT", points::SOFTIRQ_OUT),
            ("LW_JOIN_SYSCALL_IN", points::SYSCALL_IN),
            ("LW_JOIN_SYSCALL_OUT", points::SYSCALL_OUT),
            ("LW_JOIN_NAPI_POLL", points::NAPI_POLL),
            ("LW_JOIN_SIGNAL", points::SIGNAL),
            ("LW_JOIN_TASK", points::TASK),
            ("LW_JOIN_TOOK_OVER", points::TOOK_OVER),
            ("LW_JOIN_WOKEN_BY", points::WOKEN_BY),
        ] {
            assert_eq!(value(name), u64::from(point.0), "{name}");
        }
    }

    #[test]
    fn an_event_is_read_from_its_bytes() {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..8].copy_from_slice(&1u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&2u64.to_ne_bytes());
        for (at, value) in [(16, 3u32), (20, 4), (24, 5)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[28..30].copy_from_slice(&6u16.to_ne_bytes());
        bytes[30..].copy_from_slice(&7u16.to_ne_bytes());
        let event = Event::parse(&bytes);
        assert_eq!((event.ts_ns, event.value, event.tgid, event.tid), (1, 2, 3, 4));
        assert_eq!((event.cpu, event.point, event.small), (5, 6, 7));
    }
}
