//! Rows from the workers of a live run to their output: each worker copies its rows into a buffer, and
//! one thread makes columns of full buffers, encodes them and writes them.
//!
//! ```text
//!   worker 0   RowSink ── full buffers ──┐                    the writer's thread
//!   worker 1   RowSink ── full buffers ──┴─▶ queue ─▶ Tables::batch ─▶ Output::write
//!                 ▲                                          │
//!                 └──────────── empty buffers ◀──────────────┘
//! ```
//!
//! A worker that polls a lane must not wait for a disk, so all it does for a row is to copy it. The
//! buffers of a sink are the bound of its queue: one is filled, the others are full and wait, or are
//! empty and come back. A sink makes another buffer only when its queue is deeper than ever before, so a
//! run allocates in its beginning and not while it goes on. When all are full, a sink loses rows and
//! counts their frames ([`Sink::lost_frames`]), or waits for the writer, as [`WhenFull`] says.
//!
//! What must always hold: a row is in the output or its frames are counted as lost; a row that was
//! taken is never lost later, unless the output fails, which ends the run; rows of one sink keep their
//! order. When a [`RowWriter`] is gone its thread has ended, and so has the partial file of an output
//! that was not finished.

use crate::{
    config::{Config, Level},
    output::{Output, OutputError},
    rows::{FLOW_ROWS, PACKET_ROWS, Rows, Tables},
    sink::Sink,
};
use laneway_flow::{EndedFlow, Record};
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender, SyncSender, TryRecvError},
    },
    thread::{self, JoinHandle},
};

/// Packet rows of one worker that may wait for the writer: 1.3 s at 400,000/s, 58 MB.
pub(crate) const PACKET_ROWS_WAITING: usize = 1 << 19;

/// How long rows may wait for a batch to fill on a live lane, ns.
const LINGER_NS: u64 = 200_000_000;

/// What a sink does with a row when all its buffers are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It loses the row and counts its frames: on a live lane, where waiting loses frames too, and
    /// under a name that says nothing of the reason.
    Lose,
    /// It waits for the writer: on a capture, which does not run away.
    Wait,
}

/// The bounds of the queue between workers and writer.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Sinks that are made at most: the workers of the run.
    pub sinks_max: usize,
    /// Batches per sink that may wait for the writer, the one it is at included.
    pub batches_max: usize,
    /// What happens beyond that.
    pub when_full: WhenFull,
}

impl Queue {
    /// For as many workers with this configuration. At level `flow` a whole flow table fits, because
    /// all flows of a table may end at once.
    pub fn new(config: &Config, workers: usize, when_full: WhenFull) -> Queue {
        let batches_max = match config.level {
            Level::Packet => PACKET_ROWS_WAITING / PACKET_ROWS,
            Level::Flow => config.flows_max_or_default().div_ceil(FLOW_ROWS) + 1,
        };
        Queue { sinks_max: workers.max(1), batches_max, when_full }
    }
}

/// What goes through the queue.
enum Message {
    /// From now on this sink's empty buffers go back here.
    Sink(usize, Sender<Rows>),
    /// A buffer of this sink.
    Rows(usize, Rows),
}

struct Shared {
    level: Level,
    queue: Queue,
    sinks: AtomicUsize,
    /// Tells every sink, so that a worker without rows ends, too.
    has_failed: AtomicBool,
}

/// The thread that writes the rows of all workers to one output.
pub struct RowWriter {
    shared: Arc<Shared>,
    /// `None` once it is over.
    running: Option<Running>,
}

struct Running {
    messages: SyncSender<Message>,
    thread: JoinHandle<Result<Output, OutputError>>,
}

impl RowWriter {
    /// Starts the thread, which makes rows into columns of `tables` and writes them to `output`. It may
    /// run where the calling thread may, so it is started before a worker is pinned.
    ///
    /// # Errors
    /// [`OutputError::Io`] when no thread can be started.
    pub fn start(tables: Tables, output: Output, queue: Queue) -> Result<RowWriter, OutputError> {
        // As many messages as there can be: a send never waits.
        let (messages, received) = mpsc::sync_channel(queue.sinks_max * (queue.batches_max + 2));
        let shared = Arc::new(Shared {
            level: tables.level(),
            queue,
            sinks: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        });
        let path = output.path().to_owned();
        let writer_shared = shared.clone();
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || write(&received, &tables, output, &writer_shared.has_failed))
            .map_err(|error| OutputError::no_thread(path, error))?;
        Ok(RowWriter { shared, running: Some(Running { messages, thread }) })
    }

    /// One more sink, for a worker of its own.
    ///
    /// # Panics
    /// If more sinks are made than the queue was made for.
    pub fn sink(&self) -> RowSink {
        let (home, empty) = mpsc::channel();
        // Relaxed: only the number counts.
        let number = self.shared.sinks.fetch_add(1, Ordering::Relaxed);
        assert!(number < self.shared.queue.sinks_max, "a sink per worker");
        let running = self.running.as_ref().expect("a writer ends when it is consumed");
        let messages = running.messages.clone();
        // A writer that is gone has failed, which the sink sees at its first row.
        let _ = messages.send(Message::Sink(number, home));
        RowSink {
            shared: self.shared.clone(),
            number,
            messages,
            empty,
            rows: None,
            made: 0,
            when_full: self.shared.queue.when_full,
            written_ns: 0,
            lost_frames: 0,
        }
    }

    /// Waits until all rows are written and gives the output back, ready to be finished.
    ///
    /// # Errors
    /// The first error of writing.
    ///
    /// # Panics
    /// If a sink is still there (its rows would be missing), and with a panic of the thread.
    pub fn into_output(mut self) -> Result<Output, OutputError> {
        // This one and the thread's.
        assert!(Arc::strong_count(&self.shared) <= 2, "every sink is closed before the output");
        let running = self.running.take().expect("a writer ends when it is consumed");
        running.end().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Running {
    fn end(self) -> thread::Result<Result<Output, OutputError>> {
        let Running { messages, thread } = self;
        // The thread ends when no sender of messages is left.
        drop(messages);
        thread.join()
    }
}

impl Drop for RowWriter {
    /// Of a run that did not come to its end: its partial file is gone when this returns.
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // What it would say has no hearer: the run has an error of its own, or panics.
            drop(running.end());
        }
    }
}

/// The body of the writer's thread: ends when all sinks are closed.
fn write(
    received: &Receiver<Message>,
    tables: &Tables,
    mut output: Output,
    has_failed: &AtomicBool,
) -> Result<Output, OutputError> {
    let mut homes: Vec<Option<Sender<Rows>>> = Vec::new();
    let mut failed = None;
    loop {
        let message = match received.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                if failed.is_none()
                    && let Err(error) = output.pass_on()
                {
                    failed = Some(error);
                    has_failed.store(true, Ordering::Relaxed);
                }
                let Ok(message) = received.recv() else { break };
                message
            }
        };
        match message {
            Message::Sink(number, home) => {
                homes.resize_with(homes.len().max(number + 1), || None);
                homes[number] = Some(home);
            }
            Message::Rows(number, mut rows) => {
                let written = match rows.take(tables) {
                    Some(batch) if failed.is_none() => output.write(&batch),
                    _ => Ok(()),
                };
                if let Err(error) = written {
                    failed = Some(error);
                    // Relaxed, as where it is read: the flag carries no data, only itself.
                    has_failed.store(true, Ordering::Relaxed);
                }
                if let Some(home) = homes.get(number).and_then(Option::as_ref) {
                    // A sink that is closed needs its buffers no more.
                    let _ = home.send(rows);
                }
            }
        }
    }
    match failed {
        None => Ok(output),
        Some(error) => Err(error),
    }
}

/// One worker's end of the queue.
pub struct RowSink {
    shared: Arc<Shared>,
    number: usize,
    messages: SyncSender<Message>,
    empty: Receiver<Rows>,
    /// The buffer that is being filled; `None` when it went to the writer and no other was asked for.
    rows: Option<Rows>,
    /// Buffers of this sink, wherever they are.
    made: usize,
    when_full: WhenFull,
    written_ns: u64,
    lost_frames: u64,
}

impl RowSink {
    /// True when a row would be taken now. One that is not given for the want of room is to be counted:
    /// [`lose_packet`](Self::lose_packet), [`lose_flow`](Self::lose_flow).
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.rows.is_none() {
            self.rows = self.spare().or_else(|| self.awaited());
        }
        self.rows.is_some()
    }

    /// Counts a frame whose row was not given because there was no room.
    #[inline]
    pub fn lose_packet(&mut self) {
        self.lost_frames += 1;
    }

    /// Counts the frames of a flow whose row was not given because there was no room.
    pub fn lose_flow(&mut self, ended: &EndedFlow<'_>) {
        self.lost_frames += ended.flow.pkts();
    }

    /// A buffer that is empty, or one more while the bound allows it.
    fn spare(&mut self) -> Option<Rows> {
        match self.empty.try_recv() {
            Ok(rows) => Some(rows),
            Err(_) if self.made < self.shared.queue.batches_max => {
                self.made += 1;
                Some(Rows::with_room(self.shared.level))
            }
            Err(_) => None,
        }
    }

    /// The next buffer that comes back, if this sink waits; `None` also when the writer is gone.
    fn awaited(&mut self) -> Option<Rows> {
        match self.when_full {
            WhenFull::Lose => None,
            WhenFull::Wait => self.empty.recv().ok(),
        }
    }

    fn hand_over(&mut self, rows: Rows) {
        if self.messages.send(Message::Rows(self.number, rows)).is_err() {
            // The thread panicked: the panic goes on where the output is asked for.
            self.shared.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Hands over the buffer if it is full.
    #[inline]
    fn pass_on(&mut self) {
        if let Some(rows) = self.rows.take_if(|rows| rows.is_full()) {
            self.hand_over(rows);
        }
    }

    /// Hands over what is left. What failed, [`RowWriter::into_output`] tells.
    pub fn close(mut self) {
        if let Some(rows) = self.rows.take_if(|rows| !rows.is_empty()) {
            self.hand_over(rows);
        }
    }
}

impl Sink for RowSink {
    #[inline]
    fn packet(&mut self, record: &Record) {
        if !self.has_room() {
            return self.lose_packet();
        }
        if let Some(rows) = &mut self.rows {
            rows.packet(record);
        }
        self.pass_on();
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        if !self.has_room() {
            return self.lose_flow(ended);
        }
        if let Some(rows) = &mut self.rows {
            rows.flow(ended);
        }
        self.pass_on();
    }

    fn tick(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.written_ns) < LINGER_NS {
            return;
        }
        self.written_ns = now_ns;
        // Without another buffer the rows may as well wait here, where the next ones find room.
        if self.rows.as_ref().is_some_and(|rows| !rows.is_empty())
            && let Some(spare) = self.spare()
            && let Some(rows) = self.rows.replace(spare)
        {
            self.hand_over(rows);
        }
    }

    fn take_time(&mut self) {
        self.when_full = WhenFull::Wait;
    }

    fn lost_frames(&self) -> u64 {
        self.lost_frames
    }

    fn is_done(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed)
    }
}
