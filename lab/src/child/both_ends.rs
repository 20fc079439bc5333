//! A generator that is the far end, too: a worker thread that polls both ports of its lane from the
//! start to the end, and a control thread that talks. Both stay on the generator's CPU.

use super::pipe;
use crate::generate::{BothEnds, FarEndMessage};
use crate::lane_target::LaneTarget;
use crate::plan::{FarEndReport, GeneratorSetup, Order, Ready, Reply};
use crate::tally::TallyOrder;
use crate::traffic::Replayable;
use laneway_core::{CapsReport, DropReason};
use laneway_engine::{Control, RunReport};
use laneway_registry::LaneTable;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How long it may take until the first frame comes through the arm: its lane may still be
/// shaking hands.
const THROUGH_MAX: Duration = Duration::from_secs(10);
/// How long the worker may take to answer; it ticks every 10 ms.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Is one until asked to stop.
///
/// # Errors
/// A sentence: its lane cannot be opened or fails, or nothing comes through.
pub(super) fn serve<L: LaneTable>(
    place: LaneTarget<'_>,
    setup: &GeneratorSetup,
    traffic: &Replayable,
) -> Result<(), String> {
    let control = Control::default();
    let (sender, orders) = mpsc::channel();
    let (says, messages) = mpsc::channel();
    let (opened, open) = mpsc::channel();
    thread::scope(|scope| {
        let control = &control;
        let worker = scope.spawn(move || {
            let number_at = setup.traffic.number_at();
            let mut app = BothEnds::new(traffic, setup.destination, number_at, orders, says);
            place.run::<_, L>(&mut app, control, |caps| {
                // The control thread waits for it.
                let _ = opened.send(caps.clone());
            })
        });
        let talked = match open.recv() {
            Ok(caps) => Talk { control, orders: sender, messages }.until_stopped(caps),
            // It says below why it did not open.
            Err(_) => Ok(()),
        };
        control.stop.request();
        let ran = worker.join().map_err(|_| "the generator's worker panicked".to_owned())?;
        // A worker that failed is the reason, whatever the talk's result.
        ran.map_err(|e| e.to_string()).and(talked)
    })
}

/// The control thread's side.
struct Talk<'a> {
    control: &'a Control,
    orders: Sender<TallyOrder>,
    messages: Receiver<FarEndMessage>,
}

impl Talk<'_> {
    fn until_stopped(self, caps: CapsReport) -> Result<(), String> {
        match self.messages.recv_timeout(THROUGH_MAX) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "no frame passed through the arm within {} s; see that its rules let the first \
                     frame of the traffic through",
                    THROUGH_MAX.as_secs()
                ));
            }
        }
        pipe::reply(&Reply::Ready(Ready { caps, ..Ready::default() }));
        loop {
            let reply = match pipe::order() {
                Order::Segment(plan) => self.send(TallyOrder::Segment(plan)),
                Order::Report | Order::Ask(_) => self.report(),
                Order::Stop => return Ok(()),
            };
            // A worker that is gone says itself why.
            let Some(reply) = reply else { return Ok(()) };
            pipe::reply(&reply);
        }
    }

    /// Has a segment sent; `None` when the worker is gone.
    fn send(&self, segment: TallyOrder) -> Option<Reply> {
        self.orders.send(segment).ok()?;
        match self.messages.recv().ok()? {
            FarEndMessage::Sent(report) => Some(Reply::Sent(report)),
            FarEndMessage::Through | FarEndMessage::Arrived(..) => None,
        }
    }

    /// What arrived, and what the lane counted; `None` when the worker is gone.
    fn report(&self) -> Option<Reply> {
        // The app receives its order before the worker is looked at, so the same tick serves both.
        self.orders.send(TallyOrder::Report).ok()?;
        let run = self.control.watch.look(ANSWER_MAX)?;
        let FarEndMessage::Arrived(arrived, trips) = self.messages.recv_timeout(ANSWER_MAX).ok()?
        else {
            return None;
        };
        Some(Reply::FarEnd(FarEndReport { arrived, trips, ..counted(&run) }))
    }
}

/// What both ports lost: the first had frames for the arm, the second frames of it.
fn counted(run: &RunReport) -> FarEndReport {
    let [entry, exit] = [0, 1].map(|port| run.ports.get(port).map(|port| &port.counters));
    FarEndReport {
        ring_full: entry.map_or(0, |counters| counters.drops(DropReason::TxRefused)),
        receive: exit.map_or(0, |counters| counters.lost()),
        ..FarEndReport::default()
    }
}
