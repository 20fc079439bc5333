//! Several workers on simulated links: which worker runs where, and how they end together.

use laneway_core::{App, Burst, Counters, FrameApp, LaneError, PortId, Turn};
use laneway_engine::{
    Control, Ended, RunReport, Stop, WORKERS_MAX, Worker, WorkerFailed, WorkerId, Workers,
    WorkersFailed, pin_to_cpu, run_frames, usable_cpus,
};
use laneway_sim::SimLane;
use laneway_spec::IdlePolicy;
use laneway_testkit::{skip, udp_frames};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering},
    thread,
    time::Duration,
};

const PORT: PortId = PortId(0);

/// Counts what it is shown.
#[derive(Default)]
struct Count(Counters);

impl App for Count {
    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl FrameApp for Count {
    fn on_burst(&mut self, _: PortId, burst: &mut Burst, _: Turn) {
        self.0.rx_frames += burst.len() as u64;
    }
}

/// The first two CPUs, or a printed reason why there are not so many.
fn two_cpus() -> Option<[usize; 2]> {
    let cpus = usable_cpus().expect("Linux tells");
    cpus.first_chunk().copied().or_else(|| {
        skip("two workers need two CPUs");
        None
    })
}

/// A worker on a link of its own on which `frames` frames arrive. With `ends` it ends after them.
fn count(control: &Control, frames: usize, ends: bool) -> Result<RunReport, WorkerFailed> {
    let (mut lane, world) = SimLane::open(&"sim".parse().expect("a spec"), 1)?;
    udp_frames(0, frames, 64).iter().for_each(|frame| world.inject(PORT, frame));
    if ends {
        world.finish();
    }
    let mut app = Count::default();
    Ok(run_frames(&mut lane, &mut app, &world.clock(), IdlePolicy::Block, control)?)
}

fn gone() -> LaneError {
    LaneError::Gone { lane: "sim".into(), name: "link7".into() }
}

fn failure(
    workers: &Workers,
    failing: impl Fn(&Worker<'_>) -> WorkerFailed + Sync,
) -> WorkersFailed {
    let outcome = workers.run(&|worker| match worker.id {
        WorkerId(1) => Err(failing(worker)),
        _ => {
            worker.all_open()?;
            count(&worker.control, 10, false)
        }
    });
    outcome.expect_err("a worker failed")
}

#[test]
fn the_calling_thread_acts_once_when_all_are_open_and_not_when_one_fails_before() {
    let Some(cpus) = two_cpus() else { return };
    let (caller, acted) = (thread::current().id(), Arc::new(Mutex::new(Vec::new())));
    let stop = Stop::new();
    let (noted, ends) = (Arc::clone(&acted), stop.clone());
    let act = move || {
        noted.lock().unwrap().push(thread::current().id());
        ends.request();
    };
    let workers = Workers::new(&cpus, stop).unwrap().when_open(Arc::new(act));
    let run = |worker: &Worker<'_>| {
        worker.all_open()?;
        count(&worker.control, 10, false)
    };
    // Without the act they would not end.
    workers.run(&run).expect("all ended as they were ordered");
    assert_eq!(*acted.lock().unwrap(), [caller]);
    failure(&workers, |_| gone().into());
    assert_eq!(acted.lock().unwrap().len(), 1);
}

#[test]
fn each_worker_runs_on_its_cpu_and_reports_for_itself() {
    let Some(cpus) = two_cpus() else { return };
    // Borrowed, as a topology or a table of the caller would be.
    let (frames, places) = ([300, 500], Mutex::new(Vec::new()));
    let workers = Workers::new(&cpus, Stop::new()).unwrap();
    let report = workers
        .run(&|worker| {
            let on = usable_cpus().expect("Linux tells");
            places.lock().unwrap().push((worker.id, worker.cpu, on));
            worker.all_open()?;
            count(&worker.control, frames[worker.id.0], true)
        })
        .unwrap();
    let mut places = places.into_inner().unwrap();
    places.sort();
    let expected = [0, 1].map(|i| (WorkerId(i), cpus[i], vec![cpus[i]]));
    assert_eq!(places, expected);
    let each: Vec<_> = report.runs().map(|run| run.counters().rx_frames).collect();
    assert_eq!(each, [300, 500]);
    assert_eq!((report.counters().rx_frames, report.app_counters().rx_frames), (800, 800));
    assert_eq!(
        report.workers.iter().map(|w| (w.worker, w.cpu)).collect::<Vec<_>>(),
        [(WorkerId(0), cpus[0]), (WorkerId(1), cpus[1])]
    );
}

#[test]
fn a_stop_from_outside_ends_all() {
    let Some(cpus) = two_cpus() else { return };
    let stop = Stop::new();
    let workers = Workers::new(&cpus, stop.clone()).unwrap();
    let running = AtomicUsize::new(0);
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while running.load(Ordering::SeqCst) < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            stop.request();
        });
        workers.run(&|worker| {
            worker.all_open()?;
            running.fetch_add(1, Ordering::SeqCst);
            count(&worker.control, 10, false)
        })
    });
    let report = report.unwrap();
    assert!(report.runs().all(|run| run.ended == Ended::Stopped) && report.runs().count() == 2);
}

#[test]
fn the_first_failure_ends_the_others_and_all_reports_are_kept() {
    let Some(cpus) = two_cpus() else { return };
    let workers = Workers::new(&cpus, Stop::new()).unwrap();
    let failed = failure(&workers, |worker| {
        worker.all_open().expect("the other one opens");
        let report = count(&worker.control, 7, true).expect("sim does not fail");
        let report = RunReport { ended: Ended::Failed, ..report };
        WorkerFailed::Run(laneway_engine::RunFailed { error: gone(), report: Box::new(report) })
    });
    assert_eq!(failed.worker, WorkerId(1));
    assert!(failed.to_string().starts_with("worker 1: ") && failed.to_string().contains("link7"));
    let ended: Vec<_> = failed.report.runs().map(|run| run.ended).collect();
    assert_eq!(ended, [Ended::Stopped, Ended::Failed]);
    let seen: Vec<_> = failed.report.runs().map(|run| run.counters().rx_frames).collect();
    assert_eq!(seen[1], 7);
    assert!(matches!(LaneError::from(failed), LaneError::Gone { .. }));
}

#[test]
fn no_worker_waits_for_one_that_cannot_open() {
    let Some(cpus) = two_cpus() else { return };
    let workers = Workers::new(&cpus, Stop::new()).unwrap();
    let failed = failure(&workers, |_| gone().into());
    assert_eq!((failed.worker, failed.report.runs().count()), (WorkerId(1), 0));
    assert_eq!(failed.report.workers.len(), 2);
}

#[test]
fn a_panic_ends_the_others_and_goes_on_in_the_caller() {
    let Some(cpus) = two_cpus() else { return };
    for opens_first in [true, false] {
        let workers = Workers::new(&cpus, Stop::new()).unwrap();
        let others = AtomicUsize::new(0);
        let run = AssertUnwindSafe(|| {
            workers.run(&|worker| {
                if worker.id == WorkerId(1) {
                    if opens_first {
                        worker.all_open()?;
                    }
                    panic!("the app divides by zero");
                }
                let outcome = worker.all_open().and_then(|()| count(&worker.control, 1, false));
                others.fetch_add(1, Ordering::SeqCst);
                outcome
            })
        });
        let payload = std::panic::catch_unwind(run).expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref(), Some(&"the app divides by zero"));
        assert_eq!(others.into_inner(), 1, "the other one ended");
    }
}

#[test]
fn a_worker_whose_input_ends_leaves_the_others_alone() {
    let Some(cpus) = two_cpus() else { return };
    let stop = Stop::new();
    let workers = Workers::new(&cpus, stop.clone()).unwrap();
    let report = workers.run(&|worker| {
        // The first never comes to the gate: that it has ended is as good.
        if worker.id == WorkerId(0) {
            return count(&worker.control, 5, true);
        }
        worker.all_open()?;
        assert!(!stop.is_due(0), "no stop was asked for");
        count(&worker.control, 6, true)
    });
    let report = report.unwrap();
    assert!(report.runs().all(|run| run.ended == Ended::Exhausted));
    assert_eq!(report.counters().rx_frames, 11);
}

#[test]
fn each_worker_can_be_looked_at_while_it_runs() {
    let Some(cpus) = two_cpus() else { return };
    let stop = Stop::new();
    let workers = Workers::new(&cpus, stop.clone()).unwrap();
    let (mine, ended) = thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let look = |worker| {
                let watch = workers.watch(WorkerId(worker)).expect("there are two");
                watch.look(Duration::from_secs(60)).expect("a running worker answers")
            };
            let looks = [look(0), look(1)];
            stop.request();
            looks
        });
        let ended = workers.run(&|worker| count(&worker.control, 10 + worker.id.0, false));
        (looker.join().expect("the looker does not panic"), ended.unwrap())
    });
    for (look, run) in mine.iter().zip(ended.runs()) {
        assert_eq!((look.ended, run.ended), (Ended::Running, Ended::Stopped));
        assert_eq!(look.counters().rx_frames, run.counters().rx_frames);
    }
    assert!(workers.watch(WorkerId(2)).is_none());
}

#[test]
fn cpus_that_make_no_sense_are_refused_with_the_reason() {
    let refusal = |cpus: &[usize]| Workers::new(cpus, Stop::new()).unwrap_err().to_string();
    assert!(refusal(&[]).contains("1 to 64 CPUs"), "{}", refusal(&[]));
    let many: Vec<usize> = (0..=WORKERS_MAX).collect();
    assert!(refusal(&many).contains("65 CPUs"), "{}", refusal(&many));
    assert!(refusal(&[0, 1, 0]).contains("CPU 0`: it was given twice"), "{}", refusal(&[0, 1, 0]));
}

#[test]
fn a_cpu_that_is_not_there_is_named_and_no_worker_runs() {
    let missing = usize::MAX;
    assert!(pin_to_cpu(missing).is_err());
    let first = usable_cpus().unwrap()[0];
    let workers = Workers::new(&[first, missing], Stop::new()).unwrap();
    let failed = workers
        .run(&|worker| {
            worker.all_open()?;
            count(&worker.control, 1, false)
        })
        .unwrap_err();
    assert!(failed.to_string().contains(&format!("no CPU `{missing}`")), "{failed}");
    assert_eq!(failed.report.runs().count(), 0);
}
