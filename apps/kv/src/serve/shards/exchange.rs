//! Messages between the workers of one store: a bounded queue for each pair, and each worker's bell.
//!
//! ```text
//!   worker 0: push ... push ─ flush, once per turn ─▶ a batch ─▶ queue 0→1 ─ bell of 1 ─▶ take, once a bell: worker 1
//!                                                                 ◀─ queue 1→0 ─ bell of 0 ─
//! ```
//!
//! What a turn has for a worker is one batch: its messages, and all their bytes behind each other. A queue holds
//! [`QUEUE_BATCHES`]; what it does not take waits here and grows, so [`Seat::is_full`] says when nothing more should be
//! begun. Answers are pushed nevertheless: they are bounded by what a client may be owed. So every worker can always
//! take what is there, and none waits for another.
//!
//! What must always hold: messages of one worker to another arrive in their order, once each, until one of them ends;
//! what a worker that has ended was sent is dropped, as its clients are.

use super::super::key::Key;
use laneway_core::Bell;
use laneway_resp::Protocol;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Batches in one queue.
const QUEUE_BATCHES: usize = 16;
/// A batch of so many messages or bytes is sent at once; one that the queue does not take holds back the asking
/// clients.
const BATCH_MESSAGES_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A client of a worker: its place in the worker's table, and its number, which no other client of the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientRef {
    pub(crate) key: Key,
    pub(crate) id: u64,
}

/// How a command is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It is this worker's by its keys; or it concerns all, and this one is to lead.
    Whole,
    /// A part of what concerns all workers: here, and answered by version 2 of the protocol.
    Part,
    /// It belongs to the transaction whose EXEC follows. It is not answered.
    Queued,
}

/// What a command needs to know of its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) how: How,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) user: usize,
}

/// What becomes of a client with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on.
    Open,
    /// It is closed when it has been sent what it is owed.
    Closed,
    /// It is cut off: what it waits for will never be.
    CutOff,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// A client asks here for the first time.
    Visit { from: ClientRef, peer: SocketAddr, local: SocketAddr },
    /// A client's command, of so many arguments.
    Ask { from: ClientRef, asking: Asking, args: usize },
    /// The client watches nothing any more.
    Unwatch(ClientRef),
    /// The client has finished sending: if it waits for data, it gets none.
    Finish(ClientRef),
    /// The client has read most of what it was sent, and is sent more.
    Read(ClientRef),
    /// The client is gone.
    Gone(ClientRef),
    /// A message to who listens to a channel: both are its arguments. None is sent to a worker that is full.
    Publish,
    /// Replies to the next so many commands of a client, which has that database selected now; the bytes are its
    /// argument.
    Answer { to: ClientRef, commands: usize, database: usize, fate: Fate },
}

/// What one turn has for one worker.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    messages: Vec<Message>,
    /// The lengths of all arguments, in their order.
    lens: Vec<usize>,
    bytes: Vec<u8>,
}

impl Batch {
    fn push(&mut self, message: Message, args: &[&[u8]]) {
        self.messages.push(message);
        for arg in args {
            self.lens.push(arg.len());
            self.bytes.extend_from_slice(arg);
        }
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= BATCH_MESSAGES_MAX || self.bytes.len() >= BATCH_BYTES_MAX
    }

    /// Shows each message with its arguments.
    pub(crate) fn each(&self, mut show: impl FnMut(Message, &[&[u8]])) {
        let (mut lens, mut rest) = (self.lens.iter(), &self.bytes[..]);
        let mut args: Vec<&[u8]> = Vec::new();
        for &message in &self.messages {
            let count = match message {
                Message::Ask { args, .. } => args,
                Message::Answer { .. } => 1,
                Message::Publish => 2,
                _ => 0,
            };
            args.clear();
            for &len in lens.by_ref().take(count) {
                let (arg, behind) = rest.split_at(len);
                args.push(arg);
                rest = behind;
            }
            show(message, &args);
        }
    }
}

/// What all workers have in common.
#[derive(Debug)]
struct Common {
    /// The bell of each worker that has begun.
    bells: Box<[OnceLock<Bell>]>,
    /// SHUTDOWN was asked for.
    is_stopping: AtomicBool,
    /// Clients of all workers.
    clients: AtomicUsize,
    /// The workers that have listeners to messages.
    listening: Box<[AtomicBool]>,
}

/// The seats of all workers, to be taken by each.
pub struct Exchange {
    seats: Mutex<Vec<Option<Seat>>>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl Exchange {
    /// A queue from each of `workers` to each other.
    pub fn new(workers: usize) -> Exchange {
        let common = Arc::new(Common {
            bells: (0..workers).map(|_| OnceLock::new()).collect(),
            is_stopping: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            listening: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut seats: Vec<Seat> = (0..workers)
            .map(|worker| Seat {
                worker,
                common: common.clone(),
                batches: (0..workers).map(|_| Batch::default()).collect(),
                to: Vec::new(),
                from: Vec::new(),
            })
            .collect();
        for from in 0..workers {
            for to in 0..workers {
                let (sender, receiver) = sync_channel(QUEUE_BATCHES);
                // The worker's own messages need no queue.
                seats[from].to.push((from != to).then_some(sender));
                seats[to].from.push((from != to).then_some(receiver));
            }
        }
        Exchange { seats: Mutex::new(seats.into_iter().map(Some).collect()) }
    }

    /// The seat of a worker, once; its bell is rung when there is something for it.
    pub fn seat(&self, worker: usize, bell: &Bell) -> Option<Seat> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = seats.get_mut(worker)?.take()?;
        // It is set once, because the seat is taken once.
        let _ = seat.common.bells[worker].set(bell.clone());
        Some(seat)
    }
}

/// One worker's ends of all queues.
#[derive(Debug)]
pub struct Seat {
    worker: usize,
    common: Arc<Common>,
    /// What is not in a queue yet, by worker.
    batches: Vec<Batch>,
    to: Vec<Option<SyncSender<Batch>>>,
    from: Vec<Option<Receiver<Batch>>>,
}

impl Seat {
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    pub(crate) fn workers(&self) -> usize {
        self.batches.len()
    }

    /// Adds a message for a worker, perhaps this one. Its arguments are copied.
    pub(crate) fn push(&mut self, to: usize, message: Message, args: &[&[u8]]) {
        self.batches[to].push(message, args);
    }

    /// True while no further command should be begun at that worker: its queue is full, and so is what waits for it.
    pub(crate) fn is_full(&mut self, to: usize) -> bool {
        self.batches[to].is_full() && !self.send(to)
    }

    /// Puts what there is into the queues.
    pub(crate) fn flush(&mut self) {
        for to in 0..self.batches.len() {
            if !self.batches[to].messages.is_empty() {
                self.send(to);
            }
        }
    }

    /// Puts a batch into its queue, if there is room, and rings.
    fn send(&mut self, to: usize) -> bool {
        let Some(sender) = &self.to[to] else { return false };
        match sender.try_send(std::mem::take(&mut self.batches[to])) {
            Ok(()) => {
                self.ring(to);
                true
            }
            Err(TrySendError::Full(batch)) => {
                self.batches[to] = batch;
                false
            }
            // That worker has ended, and the others are about to.
            Err(TrySendError::Disconnected(_)) => true,
        }
    }

    fn ring(&self, worker: usize) {
        // One that has not begun looks into its queues when it does.
        if let Some(bell) = self.common.bells[worker].get() {
            bell.ring();
        }
    }

    /// Takes the batches of a worker that are there, as many as a queue holds.
    pub(crate) fn take(&mut self, from: usize) -> Vec<Batch> {
        let Some(receiver) = &self.from[from] else { return Vec::new() };
        let batches: Vec<Batch> = receiver.try_iter().take(QUEUE_BATCHES).collect();
        if batches.len() == QUEUE_BATCHES {
            // It may wait for room, and there may be more.
            self.ring(from);
            self.ring(self.worker);
        }
        batches
    }

    /// Takes what this worker has for itself.
    pub(crate) fn take_own(&mut self) -> Option<Batch> {
        let own = &mut self.batches[self.worker];
        (!own.messages.is_empty()).then(|| std::mem::take(own))
    }

    /// Every worker is to end.
    pub(crate) fn stop_all(&self) {
        self.common.is_stopping.store(true, Ordering::Relaxed);
        // A worker that does not see it at once sees it behind its bell.
        (0..self.workers()).for_each(|worker| self.ring(worker));
    }

    /// True when every worker is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.common.is_stopping.load(Ordering::Relaxed)
    }

    /// Has the others send messages here, or no longer.
    pub(crate) fn listen(&self, listens: bool) {
        // Before the client is answered that it listens, so that it misses nothing that is done behind that.
        self.common.listening[self.worker].store(listens, Ordering::Release);
    }

    /// True if another worker has listeners to messages.
    pub(crate) fn is_listening(&self, worker: usize) -> bool {
        worker != self.worker && self.common.listening[worker].load(Ordering::Acquire)
    }

    /// Counts one client more, unless all workers together have `max`.
    pub(crate) fn enter(&self, max: usize) -> bool {
        // It counts, and orders nothing.
        let has_room = self.common.clients.fetch_add(1, Ordering::Relaxed) < max;
        if !has_room {
            self.leave();
        }
        has_room
    }

    /// Counts one client less.
    pub(crate) fn leave(&self) {
        self.common.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats() -> (Seat, Seat, Bell) {
        let exchange = Exchange::new(2);
        let (bell, other) = (Bell::new().expect("a descriptor"), Bell::new().expect("another"));
        let first = exchange.seat(0, &bell).expect("it is free");
        assert!(exchange.seat(0, &bell).is_none(), "a seat is taken once");
        (first, exchange.seat(1, &other).expect("it is free"), other)
    }

    const GONE: fn(u64) -> Message = |id| Message::Gone(ClientRef { key: 0, id });

    fn numbers(batches: &[Batch]) -> Vec<u64> {
        let mut numbers = Vec::new();
        for batch in batches {
            batch.each(|message, _| {
                let Message::Gone(ClientRef { id, .. }) = message else { panic!("{message:?}") };
                numbers.push(id);
            });
        }
        numbers
    }

    #[test]
    fn what_a_queue_does_not_take_waits_in_its_order() {
        let (mut first, mut second, bell) = seats();
        let mut sent = 0;
        while !first.is_full(1) {
            first.push(1, GONE(sent), &[]);
            sent += 1;
            if sent % 100 == 0 {
                first.flush();
            }
            assert!(sent < 1 << 20, "a queue has an end");
        }
        // Answers go on behind it.
        first.push(1, GONE(sent), &[]);
        assert!(bell.answer());
        let mut seen = numbers(&second.take(0));
        assert!(second.from[0].is_some() && bell.answer(), "it looks again");
        first.flush();
        seen.extend(numbers(&second.take(0)));
        assert_eq!(seen, (0..=sent).collect::<Vec<u64>>());
        assert!(!first.is_full(1));
    }

    #[test]
    fn arguments_arrive_as_they_were() {
        let (mut first, mut second, _) = seats();
        let asking = Asking { how: How::Whole, database: 3, protocol: Protocol::Resp3, user: 1 };
        let from = ClientRef { key: 7, id: 9 };
        first.push(1, Message::Ask { from, asking, args: 3 }, &[b"set", b"", b"\r\n\0"]);
        first.push(1, GONE(1), &[]);
        let fate = Fate::Open;
        first.push(1, Message::Answer { to: from, commands: 1, database: 0, fate }, &[b"+OK\r\n"]);
        first.flush();
        let mut seen = Vec::new();
        for batch in second.take(0) {
            batch.each(|_, args| seen.push(args.concat()));
        }
        assert_eq!(seen, [&b"set\r\n\0"[..], b"", b"+OK\r\n"]);
    }

    #[test]
    fn clients_are_counted_over_all_workers() {
        let (first, second, _) = seats();
        assert!(first.enter(2) && second.enter(2) && !first.enter(2) && !second.enter(2));
        second.leave();
        assert!(first.enter(2));
    }
}
