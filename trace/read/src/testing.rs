//! For tests of this crate: a consumer that keeps everything, files that are removed, and a writer of CTF.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    Consumer, Event, FunctionKey, Kind, Loss, OpenError, Producer, Read, Thread, ThreadId, Trace,
};

/// A sample as it was delivered.
type Sample = (usize, Option<u32>, u64, u64, Vec<FunctionKey>);

/// Everything a trace delivered.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) producer: Option<Producer>,
    pub(crate) threads: Vec<Thread>,
    /// Thread, CPU, event; in the order of delivery.
    pub(crate) events: Vec<(usize, Option<u32>, Event)>,
    /// ... and how many events were delivered before.
    pub(crate) losses: Vec<(Loss, Vec<ThreadId>, usize)>,
    /// Thread, CPU, time, weight, stack.
    pub(crate) samples: Vec<Sample>,
    pub(crate) names: HashMap<FunctionKey, String>,
    pub(crate) read: Read,
}

impl Log {
    /// Times and functions as `1000 +name`, `2000 -name`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let shown = |event: &Event| match event.kind {
            Kind::Enter(key) => format!("{} +{}", event.time_ns, self.names[&key]),
            Kind::Leave(key) => format!("{} -{}", event.time_ns, self.names[&key]),
            other => format!("{} {other:?}", event.time_ns),
        };
        self.events.iter().map(|(_, _, event)| shown(event)).collect()
    }
}

impl Consumer for Log {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        match self.threads.get_mut(id.0 as usize) {
            Some(known) => *known = thread.clone(),
            None => {
                assert_eq!(id.0 as usize, self.threads.len(), "threads are counted from 0");
                self.threads.push(thread.clone());
            }
        }
    }
    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        assert!(!events.is_empty() && (id.0 as usize) < self.threads.len());
        self.events.extend(events.iter().map(|&event| (id.0 as usize, cpu, event)));
    }
    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        self.losses.push((loss.clone(), threads.to_vec(), self.events.len()));
    }
    fn sample(
        &mut self,
        id: ThreadId,
        cpu: Option<u32>,
        time_ns: u64,
        weight: u64,
        stack: &[FunctionKey],
    ) {
        self.samples.push((id.0 as usize, cpu, time_ns, weight, stack.to_vec()));
    }
}

/// A directory that is removed with what is in it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir()
            .join(format!("laneway-trace-read-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("the folder for temporary files can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads what lies at `path`.
pub(crate) fn read(path: &Path) -> Result<Log, OpenError> {
    let mut trace = Trace::open(path)?;
    let mut log = Log { producer: Some(trace.about().producer), ..Log::default() };
    log.read = trace.read(&mut log).expect("files can be read");
    let keys: Vec<FunctionKey> = log
        .events
        .iter()
        .filter_map(|(_, _, event)| match event.kind {
            Kind::Enter(key) | Kind::Leave(key) | Kind::TookOver(key) | Kind::WokenBy(key) => {
                Some(key)
            }
            _ => None,
        })
        .chain(log.samples.iter().flat_map(|sample| sample.4.iter().copied()))
        .collect();
    for key in keys {
        log.names.entry(key).or_insert_with(|| trace.symbols().function(key).name);
    }
    assert_eq!(log.read.events as usize, log.events.len(), "events are counted");
    Ok(log)
}

/// Reads a file with this text.
pub(crate) fn read_text(text: &str) -> Log {
    let folder = Folder::new();
    read(&folder.write("trace", text.as_bytes())).expect("a trace")
}
