//! The arm: one lane, the extractor, the ledger's sink; a worker thread that races and a control
//! thread that talks.

use super::{ChildEnd, memory, pipe};
use crate::plan::{ArmReport, ArmSetup, Order, Ready, Reply};
use crate::registry::{Place, Registry};
use crate::sink::{LedgerSink, Seen, Tell};
use laneway_core::{CapsReport, Counters};
use laneway_engine::Control;
use laneway_features::{Config, Disposition};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a worker may take to answer; it ticks every 10 ms.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Is an arm until told to stop, or until its lane fails.
///
/// # Errors
/// When nobody says what to be, or the worker panicked.
pub fn serve(registry: &(impl Registry + Sync)) -> Result<ChildEnd, String> {
    let setup: ArmSetup = pipe::setup()?;
    let control = Control::default();
    let (tell, tells) = mpsc::channel();
    let (answers, seen) = mpsc::channel();
    let (opened, caps) = mpsc::channel();
    // What the extractor keeps is not to go on into the stack where the lane can prevent it: an
    // interface that is read by one consumer, as behind a mirror port.
    let config =
        Config { disposition: Disposition::Drop, number_from_mac: true, ..Config::default() };
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let sink = LedgerSink::new(tells, answers, setup.plant);
            let place = Place { lane: &setup.lane, interface: &setup.interface, cpu: setup.cpu };
            let done = registry.run_features(place, &config, sink, &control, |caps| {
                // The control thread waits for it.
                let _ = opened.send(caps.clone());
            });
            drop(opened);
            match done {
                Ok(_) => ChildEnd::Done,
                Err(error) => {
                    pipe::reply(&Reply::Failed(error.to_string()));
                    ChildEnd::FailureTold
                }
            }
        });
        if let Ok(caps) = caps.recv() {
            pipe::reply(&Reply::Ready(Ready { caps: caps.clone() }));
            converse(&control, &tell, &seen, caps);
        }
        control.stop.request();
        worker.join().map_err(|_| "the arm's worker panicked".to_owned())
    })
}

/// Obeys until told to stop, or the worker is gone.
fn converse(
    control: &Control,
    tell: &mpsc::Sender<Tell>,
    seen: &mpsc::Receiver<Seen>,
    mut caps: CapsReport,
) {
    loop {
        match pipe::order() {
            Order::Stop => return,
            Order::Segment(plan) => {
                if tell.send(Tell::Segment(plan)).is_err() {
                    return;
                }
            }
            Order::Report => {
                // The sink is told before the worker is looked at, so the same tick serves both.
                if tell.send(Tell::Report).is_err() {
                    return;
                }
                let Some(run) = control.watch.look(ANSWER_MAX) else { return };
                let Ok(seen) = seen.recv_timeout(ANSWER_MAX) else { return };
                let mut lane = Counters::default();
                for port in &run.ports {
                    lane.merge(&port.counters);
                    caps.clone_from(&port.caps);
                }
                pipe::reply(&Reply::Report(Box::new(ArmReport {
                    lane,
                    app: run.app,
                    segments: seen.segments,
                    foreign: seen.foreign,
                    memory: memory::read(&caps),
                })));
            }
        }
    }
}
