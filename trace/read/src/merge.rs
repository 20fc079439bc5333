//! Streams of one or several traces, decoded ahead on other threads and put in order per thread.
//!
//! ```text
//! worker: picks the stream with the fewest blocks ready -> decodes a block -> ready
//! caller: takes a block of each stream -> everything up to the earliest end of a block is complete -> per thread: as it
//!         is, or merged by time where a thread was seen on several streams -> consumer -> empty blocks go back
//! ```
//!
//! What must hold: at most [`AHEAD`] blocks per stream wait, so memory does not grow with the trace; a loss is
//! reported when everything before it was delivered and nothing behind it; the order does not depend on how the
//! workers were scheduled.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::about::ReadError;
use crate::block::{Block, Source};
use crate::delivery::Delivery;
use crate::event::{Event, Kind, Thread, ThreadId};
use crate::symbols::Symbols;

/// Blocks of a stream that wait to be consumed.
const AHEAD: usize = 3;
/// Most decoding threads.
const WORKERS_MAX: usize = 8;

/// What workers and the caller share.
struct Desk<'s> {
    slots: Vec<Slot<'s>>,
    spare: Vec<Block>,
    failed: Option<ReadError>,
    /// The caller is gone, or a reader failed: workers go home.
    closed: bool,
}

/// One stream as workers see it.
struct Slot<'s> {
    /// `None` while a worker has it, and at its end.
    stream: Option<Box<dyn Source + 's>>,
    ready: VecDeque<Block>,
    ended: bool,
}

struct Shared<'s> {
    desk: Mutex<Desk<'s>>,
    /// A block became ready, or a worker failed.
    ready: Condvar,
    /// There is room for a block again, or it is over.
    room: Condvar,
}

impl<'s> Shared<'s> {
    fn lock(&self) -> MutexGuard<'_, Desk<'s>> {
        // A worker that panicked left nothing half done that is used again: it owned its stream and its block.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let _gone = Gone(self);
        let mut desk = self.lock();
        loop {
            if desk.closed {
                return;
            }
            let next = (0..desk.slots.len())
                .filter(|&at| desk.slots[at].stream.is_some() && desk.slots[at].ready.len() < AHEAD)
                .min_by_key(|&at| desk.slots[at].ready.len());
            let Some(at) = next else {
                if desk.slots.iter().all(|slot| slot.ended) {
                    return;
                }
                desk = self.room.wait(desk).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(mut stream) = desk.slots[at].stream.take() else { continue };
            let mut block = desk.spare.pop().unwrap_or_default();
            drop(desk);
            let filled = stream.fill(&mut block);
            desk = self.lock();
            match filled {
                Ok(()) => {
                    let slot = &mut desk.slots[at];
                    slot.ended = block.ended;
                    slot.ready.push_back(block);
                    if slot.ended {
                        self.room.notify_all();
                    } else {
                        slot.stream = Some(stream);
                        // It waited for this stream, if it waited.
                        self.room.notify_one();
                    }
                }
                Err(error) => {
                    desk.failed = Some(error);
                    desk.closed = true;
                    self.room.notify_all();
                }
            }
            self.ready.notify_one();
        }
    }

    /// The next block of stream `at`; `None` if a reader failed.
    fn take(&self, at: usize, spare: Option<Block>) -> Option<Block> {
        let mut desk = self.lock();
        desk.spare.extend(spare);
        loop {
            if let Some(block) = desk.slots[at].ready.pop_front() {
                self.room.notify_one();
                return Some(block);
            }
            if desk.closed {
                return None;
            }
            desk = self.ready.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Sends the others home when a worker ends for whatever reason in the middle of work, or the caller does.
struct Gone<'a, 's>(&'a Shared<'s>);

impl Drop for Gone<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().closed = true;
            self.0.ready.notify_all();
            self.0.room.notify_all();
        }
    }
}

/// One stream as the caller sees it.
struct StreamCursor {
    block: Block,
    /// Next event of the block.
    at: usize,
    /// Run it lies in.
    run: usize,
    threads: Vec<ThreadId>,
    pools: Vec<u16>,
    ended: bool,
}

/// Reads all streams to their end.
///
/// # Errors
/// [`ReadError`] if the file system fails.
pub(crate) fn read(
    streams: Vec<Box<dyn Source + '_>>,
    delivery: &mut Delivery<'_>,
    symbols: &mut Symbols,
) -> Result<(), ReadError> {
    let places: Vec<String> = streams.iter().map(|stream| stream.place().to_owned()).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.saturating_sub(1).clamp(1, WORKERS_MAX).min(streams.len().max(1));
    let slot = |stream| Slot { stream: Some(stream), ready: VecDeque::new(), ended: false };
    let desk = Desk {
        slots: streams.into_iter().map(slot).collect(),
        spare: Vec::new(),
        failed: None,
        closed: false,
    };
    let shared = Shared { desk: Mutex::new(desk), ready: Condvar::new(), room: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| shared.work());
        }
        let _gone = Gone(&shared); // the consumer may panic: workers must not wait for it
        let mut merge = Merge {
            lanes: Vec::new(),
            pools: HashMap::new(),
            parts: Vec::new(),
            order: Vec::new(),
            merged: Vec::new(),
            places: &places,
        };
        merge.run(&shared, delivery, symbols);
        let mut desk = shared.lock();
        desk.closed = true;
        let failed = desk.failed.take();
        drop(desk);
        shared.room.notify_all();
        failed.map_or(Ok(()), Err)
    })
}

struct Merge<'p> {
    lanes: Vec<StreamCursor>,
    pools: HashMap<u64, u16>,
    /// What each thread has in this round, by its number.
    parts: Vec<Vec<Part>>,
    /// Threads of this round in the order of their first event.
    order: Vec<ThreadId>,
    merged: Vec<Event>,
    places: &'p [String],
}

/// Events of one thread in a row, in the block of one stream.
#[derive(Clone, Copy, Debug)]
struct Part {
    lane: usize,
    from: usize,
    to: usize,
    cpu: Option<u32>,
}

/// The CPU of all parts that tell one, if it is the same.
fn common_cpu(parts: &[Part]) -> Option<u32> {
    let mut cpus = parts.iter().filter_map(|part| part.cpu);
    let first = cpus.next()?;
    cpus.all(|cpu| cpu == first).then_some(first)
}

impl Merge<'_> {
    fn run(&mut self, shared: &Shared<'_>, delivery: &mut Delivery<'_>, symbols: &mut Symbols) {
        for at in 0..self.places.len() {
            self.lanes.push(StreamCursor {
                block: Block::default(),
                at: 0,
                run: 0,
                threads: Vec::new(),
                pools: Vec::new(),
                ended: false,
            });
            if !self.refill(at, shared, delivery, symbols) {
                return;
            }
        }
        loop {
            // A stream with nothing left in its block decides how far the others may go; get its next block first.
            for at in 0..self.lanes.len() {
                while self.lanes[at].at == self.lanes[at].block.events.len()
                    && self.lanes[at].block.loss.is_none()
                    && !self.lanes[at].ended
                {
                    if !self.refill(at, shared, delivery, symbols) {
                        return;
                    }
                }
            }
            let open = |lane: &StreamCursor| {
                !lane.ended || lane.at < lane.block.events.len() || lane.block.loss.is_some()
            };
            if !self.lanes.iter().any(open) {
                return;
            }
            // Everything up to here is in the blocks: what comes later in a stream is not earlier than its last event.
            let limit = self
                .lanes
                .iter()
                .filter(|lane| !lane.ended || lane.block.loss.is_some())
                .map(|lane| {
                    let last = lane.block.events.last().map_or(0, |event| event.time_ns);
                    lane.block.loss.as_ref().map_or(last, |loss| loss.from_ns.max(last))
                })
                .min()
                .unwrap_or(u64::MAX);
            self.deliver(limit, delivery);
            for at in 0..self.lanes.len() {
                let lane = &mut self.lanes[at];
                if lane.at == lane.block.events.len()
                    && lane.block.loss.as_ref().is_some_and(|loss| loss.from_ns <= limit)
                    && let Some(loss) = lane.block.loss.take()
                {
                    let mut threads = match lane.block.loss_of {
                        Some(only) => {
                            lane.threads.get(only as usize).copied().into_iter().collect()
                        }
                        None => lane.threads.clone(),
                    };
                    threads.sort_unstable();
                    threads.dedup();
                    delivery.lost(&loss, &threads);
                }
            }
        }
    }

    /// Takes the next block of a stream and tells what it brings besides events; false if a reader failed.
    fn refill(
        &mut self,
        at: usize,
        shared: &Shared<'_>,
        delivery: &mut Delivery<'_>,
        symbols: &mut Symbols,
    ) -> bool {
        let lane = &mut self.lanes[at];
        let spare = std::mem::take(&mut lane.block);
        let spare = (spare.events.capacity() > 0).then_some(spare);
        let Some(mut block) = shared.take(at, spare) else { return false };
        delivery.count(block.records, block.entries, block.exits);
        delivery.describing(block.describing);
        for (number, who) in block.threads.drain(..) {
            // A stream that names no thread is one by itself, identified by its place.
            let of = if who.tid.is_some() { "" } else { self.places[at].as_str() };
            let thread = Thread { pid: who.pid, tid: who.tid.unwrap_or(0), name: who.name };
            let id = if who.of_host {
                delivery.thread_of_host(thread)
            } else {
                delivery.thread(thread, of)
            };
            match lane.threads.get_mut(number as usize) {
                Some(known) => *known = id,
                None => lane.threads.push(id),
            }
        }
        for address in block.pools.drain(..) {
            let next = u16::try_from(self.pools.len()).unwrap_or(u16::MAX);
            let pool = *self.pools.entry(address).or_insert(next);
            symbols.name_pool(pool, address);
            lane.pools.push(pool);
        }
        if block.has_pools {
            for event in &mut block.events {
                if let Kind::Pool { pool, .. } = &mut event.kind {
                    *pool = lane.pools.get(usize::from(*pool)).copied().unwrap_or(u16::MAX);
                }
            }
        }
        block.facts.drain(..).for_each(|fact| symbols.learn(fact));
        block.damages.drain(..).for_each(|damage| delivery.damage(damage));
        delivery.damages_more(block.damages_more);
        lane.ended = block.ended;
        lane.block = block;
        (lane.at, lane.run) = (0, 0);
        true
    }

    /// Passes on all events up to `limit`.
    fn deliver(&mut self, limit: u64, delivery: &mut Delivery<'_>) {
        self.parts.iter_mut().for_each(Vec::clear);
        self.order.clear();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let events = &lane.block.events;
            let end = match events.last() {
                Some(last) if last.time_ns <= limit => events.len(),
                _ => lane.at + events[lane.at..].partition_point(|event| event.time_ns <= limit),
            };
            while lane.at < end {
                let Some(run) = lane.block.runs.get(lane.run) else { break };
                let to = run.end.min(end);
                if let Some(&id) = lane.threads.get(run.thread as usize) {
                    let number = id.0 as usize;
                    if self.parts.len() <= number {
                        self.parts.resize(number + 1, Vec::new());
                    }
                    let parts = &mut self.parts[number];
                    if parts.is_empty() {
                        self.order.push(id);
                    }
                    parts.push(Part { lane: index, from: lane.at, to, cpu: run.cpu });
                }
                lane.at = to;
                lane.run += usize::from(to == run.end);
            }
        }
        for &id in &self.order {
            let Some(parts) = self.parts.get_mut(id.0 as usize) else { continue };
            let one_stream = parts.windows(2).all(|pair| pair[0].lane == pair[1].lane);
            if !one_stream {
                parts.sort_by_key(|part| self.lanes[part.lane].block.events[part.from].time_ns);
            }
            let events = |part: &Part| &self.lanes[part.lane].block.events[part.from..part.to];
            let apart = one_stream
                || parts.windows(2).all(|pair| {
                    let last = events(&pair[0]).last().map_or(0, |event| event.time_ns);
                    events(&pair[1]).first().is_none_or(|first| first.time_ns >= last)
                });
            if apart {
                parts.iter().for_each(|part| delivery.run(id, part.cpu, events(part)));
            } else {
                // The thread moved to another CPU between taking its buffer and writing to it: order by time. The
                // sort is stable, and finds runs that are in order already.
                self.merged.clear();
                parts.iter().for_each(|part| self.merged.extend_from_slice(events(part)));
                self.merged.sort_by_key(|event| event.time_ns);
                delivery.run(id, common_cpu(parts), &self.merged);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panicking_worker_frees_the_caller() {
        let shared = Shared {
            desk: Mutex::new(Desk {
                slots: Vec::new(),
                spare: Vec::new(),
                failed: None,
                closed: false,
            }),
            ready: Condvar::new(),
            room: Condvar::new(),
        };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _gone = Gone(&shared);
            std::panic::resume_unwind(Box::new("planted"));
        }));
        assert!(ended.is_err() && shared.lock().closed);
    }
}
