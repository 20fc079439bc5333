//! The last step of every reader: counts what is passed to the consumer, numbers threads, keeps damages.
//!
//! Readers of text hand in one event at a time and get batches; the reader of CTF hands in whole runs.

use std::collections::{HashMap, HashSet};

use crate::about::{DAMAGES_MAX, Read};
use crate::event::{Consumer, Damage, Event, FunctionKey, Kind, Loss, Thread, ThreadId};

/// Events a reader of text collects before it passes them on.
const BATCH_EVENTS: usize = 1024;

/// Most threads of a trace; those beyond are one.
pub(crate) const THREADS_MAX: usize = 1 << 18;
/// What tells that one apart, and its name.
pub(crate) const FURTHER_THREADS: &str = "(further threads)";

/// All threads beyond [`THREADS_MAX`].
pub(crate) fn further_threads() -> Thread {
    Thread { pid: 0, tid: 0, name: FURTHER_THREADS.into() }
}

pub(crate) struct Delivery<'c> {
    consumer: &'c mut dyn Consumer,
    read: Read,
    /// Threads by process, thread and, if they are known by a name only, the name.
    ids: HashMap<(u32, u32, String), ThreadId>,
    /// Threads by their number on the host.
    of_host: HashMap<u32, ThreadId>,
    /// Those that some stream knows by that number alone.
    by_number: HashSet<ThreadId>,
    batch: Vec<Event>,
    batch_of: Option<(ThreadId, Option<u32>)>,
}

impl<'c> Delivery<'c> {
    pub(crate) fn new(consumer: &'c mut dyn Consumer) -> Self {
        Self {
            consumer,
            read: Read::default(),
            ids: HashMap::new(),
            of_host: HashMap::new(),
            by_number: HashSet::new(),
            batch: Vec::with_capacity(BATCH_EVENTS),
            batch_of: None,
        }
    }

    /// The number of a thread; announces it if it is new or has a new name. `of` tells threads apart that have no number.
    pub(crate) fn thread(&mut self, thread: Thread, of: &str) -> ThreadId {
        let key = (thread.pid, thread.tid, of.to_owned());
        let next = ThreadId(u32::try_from(self.read.threads.len()).unwrap_or(u32::MAX));
        let known = self.ids.get(&key).copied();
        // A thread that was known by its number alone has a process now. Where each thread is named with its process,
        // process 0 is one like others.
        let of_kernel = self.of_host.get(&thread.tid).filter(|id| {
            of.is_empty()
                && self.by_number.contains(id)
                && self.read.threads.get(id.0 as usize).is_some_and(|thread| thread.pid == 0)
        });
        let Some(id) =
            known.or_else(|| of_kernel.copied()).or_else(|| self.has_room().then_some(next))
        else {
            return self.further(next);
        };
        self.ids.insert(key, id);
        if of.is_empty() {
            self.of_host.entry(thread.tid).or_insert(id);
        }
        self.announce(id, thread)
    }

    fn has_room(&self) -> bool {
        self.ids.len() < THREADS_MAX
    }

    /// The one that stands for all further threads; `next` if it is the first of them.
    fn further(&mut self, next: ThreadId) -> ThreadId {
        let id = *self.ids.entry((0, 0, FURTHER_THREADS.into())).or_insert(next);
        self.announce(id, further_threads())
    }

    /// The same for a thread of which only its number on the host is known, and a name.
    pub(crate) fn thread_of_host(&mut self, thread: Thread) -> ThreadId {
        let id = match self.of_host.get(&thread.tid).copied() {
            // Its process named it better.
            Some(id)
                if self.read.threads.get(id.0 as usize).is_some_and(|thread| thread.pid != 0) =>
            {
                id
            }
            Some(id) => self.announce(id, thread),
            None => self.thread(thread, ""),
        };
        self.by_number.insert(id);
        id
    }

    fn announce(&mut self, id: ThreadId, thread: Thread) -> ThreadId {
        match self.read.threads.get_mut(id.0 as usize) {
            Some(known) if *known == thread => return id,
            Some(known) => *known = thread.clone(),
            None => self.read.threads.push(thread.clone()),
        }
        self.flush();
        self.consumer.thread(id, &thread);
        id
    }

    /// Events of one thread in time order, counted by the caller.
    pub(crate) fn run(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        if self.read.events == 0 {
            self.read.from_ns = first.time_ns;
        }
        self.read.from_ns = self.read.from_ns.min(first.time_ns);
        self.read.to_ns = self.read.to_ns.max(last.time_ns);
        self.read.events += events.len() as u64;
        self.consumer.events(id, cpu, events);
    }

    /// Counts records and events of calls.
    pub(crate) fn count(&mut self, records: u64, entries: u64, exits: u64) {
        self.read.records += records;
        self.read.entries += entries;
        self.read.exits += exits;
    }

    /// Counts records that tell about a process and give no event.
    pub(crate) fn describing(&mut self, records: u64) {
        self.read.describing += records;
    }

    /// One event; passed on with others of its thread, in the order of coming.
    pub(crate) fn event(&mut self, id: ThreadId, cpu: Option<u32>, event: Event) {
        if self.batch_of != Some((id, cpu)) || self.batch.len() >= BATCH_EVENTS {
            self.flush();
            self.batch_of = Some((id, cpu));
        }
        let (entries, exits) = match event.kind {
            Kind::Enter(_) => (1, 0),
            Kind::Leave(_) | Kind::LeaveInnermost => (0, 1),
            _ => (0, 0),
        };
        self.count(1, entries, exits);
        self.batch.push(event);
    }

    /// Passes on what was collected.
    pub(crate) fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some((id, cpu)) = self.batch_of.take() {
            self.run(id, cpu, &batch);
        }
        self.batch = batch;
        self.batch.clear();
    }

    pub(crate) fn sample(
        &mut self,
        id: ThreadId,
        cpu: Option<u32>,
        time_ns: u64,
        weight: u64,
        stack: &[FunctionKey],
    ) {
        self.flush();
        self.read.records += 1;
        self.read.samples += 1;
        if self.read.samples == 1 {
            self.read.from_ns = time_ns;
        }
        self.read.from_ns = self.read.from_ns.min(time_ns);
        self.read.to_ns = self.read.to_ns.max(time_ns);
        self.consumer.sample(id, cpu, time_ns, weight, stack);
    }

    pub(crate) fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        self.flush();
        self.read.losses += 1;
        self.read.discarded = self.read.discarded.saturating_add(loss.events.unwrap_or(0));
        self.consumer.lost(loss, threads);
    }

    pub(crate) fn damage(&mut self, damage: Damage) {
        if self.read.damages.len() < DAMAGES_MAX {
            self.read.damages.push(damage);
        } else {
            self.read.damages_more += 1;
        }
    }

    pub(crate) fn damages_more(&mut self, count: u64) {
        self.read.damages_more += count;
    }

    pub(crate) fn finish(mut self) -> Read {
        self.flush();
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Log;

    #[test]
    fn threads_beyond_the_limit_are_one() {
        let mut log = Log::default();
        let mut delivery = Delivery::new(&mut log);
        let thread = |tid: usize| Thread { pid: 1, tid: tid as u32, name: "worker".into() };
        for tid in 0..THREADS_MAX {
            delivery.thread(thread(tid), "");
        }
        let further = ThreadId(THREADS_MAX as u32);
        assert_eq!(delivery.thread(thread(THREADS_MAX), ""), further);
        assert_eq!(delivery.thread(thread(THREADS_MAX + 1), "of"), further);
        assert_eq!(delivery.thread_of_host(thread(THREADS_MAX + 2)), further);
        assert_eq!(delivery.thread(thread(7), ""), ThreadId(7), "what is known keeps its number");
        let read = delivery.finish();
        assert_eq!(read.threads.len(), THREADS_MAX + 1);
        assert_eq!(log.threads[THREADS_MAX], further_threads());
    }
}
