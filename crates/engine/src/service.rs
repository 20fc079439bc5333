//! The loop for lanes that carry datagrams or streams.
//!
//! Both lanes do a whole round themselves ([`DatagramLane::serve`], [`StreamLane::serve`]): what they
//! read, and what an answer costs, is theirs. What is left is when to serve, tick, block and stop,
//! and that is the same for both.

use crate::{
    Control, Ended, PortReport, RunFailed, RunReport,
    idle::Pace,
    probe::Probe,
    rounds::{TracedDatagrams, TracedStreams},
};
use laneway_core::{
    CapsReport, Clock, ClockDomain, Counters, DatagramApp, DatagramLane, IdlePolicy, LaneError,
    PortId, StreamApp, StreamLane, Turn, Wake,
};
use laneway_tracer::points;
use std::time::Duration;

/// Runs a datagram app on a lane until `control` says stop, the app wants to end, or nothing can come
/// any more.
///
/// # Errors
/// When the lane fails; the report up to there comes with the error.
///
/// # Panics
/// If `clock` is not of the lane's clock domain.
pub fn run_datagrams<L: DatagramLane, A: DatagramApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    run(&mut Datagrams { lane, app }, clock, idle, control)
}

/// Runs a stream app on a lane, as [`run_datagrams`]. At the end every connection is closed.
///
/// # Errors
/// When the lane fails; the report up to there comes with the error.
///
/// # Panics
/// If `clock` is not of the lane's clock domain.
pub fn run_streams<L: StreamLane, A: StreamApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    run(&mut Streams { lane, app }, clock, idle, control)
}

/// A lane and an app of one shape.
trait Service {
    fn name(&self) -> &'static str;
    fn ports(&self) -> usize;
    fn clock_domain(&self) -> ClockDomain;
    fn serve(&mut self, clock: &impl Clock, probe: &mut Probe) -> Result<usize, LaneError>;
    fn tick(&mut self, turn: Turn) -> Result<(), LaneError>;
    fn finish(&mut self, turn: Turn);
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError>;
    fn due_ns(&self) -> Option<u64>;
    fn exhausted(&self) -> bool;
    fn wants_stop(&self) -> bool;
    fn caps(&self, port: PortId) -> &CapsReport;
    fn counters(&mut self, port: PortId) -> Counters;
    fn app_counters(&self) -> &Counters;
}

struct Datagrams<'a, L, A> {
    lane: &'a mut L,
    app: &'a mut A,
}

struct Streams<'a, L, A> {
    lane: &'a mut L,
    app: &'a mut A,
}

/// What both shapes pass on unchanged.
macro_rules! pass_on {
    () => {
        fn name(&self) -> &'static str {
            self.lane.name()
        }
        fn ports(&self) -> usize {
            self.lane.ports()
        }
        fn clock_domain(&self) -> ClockDomain {
            self.lane.clock_domain()
        }
        fn tick(&mut self, turn: Turn) -> Result<(), LaneError> {
            self.lane.tick(self.app, turn)
        }
        fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
            self.lane.wait(timeout)
        }
        fn due_ns(&self) -> Option<u64> {
            self.lane.due_ns()
        }
        fn exhausted(&self) -> bool {
            self.lane.exhausted()
        }
        fn wants_stop(&self) -> bool {
            self.app.wants_stop()
        }
        fn caps(&self, port: PortId) -> &CapsReport {
            self.lane.caps(port)
        }
        fn counters(&mut self, port: PortId) -> Counters {
            self.lane.counters(port)
        }
        fn app_counters(&self) -> &Counters {
            self.app.counters()
        }
    };
}

impl<L: DatagramLane, A: DatagramApp> Service for Datagrams<'_, L, A> {
    pass_on!();

    fn serve(&mut self, clock: &impl Clock, probe: &mut Probe) -> Result<usize, LaneError> {
        let mut app = TracedDatagrams::new(self.app, probe);
        let served = self.lane.serve(&mut app, clock)?;
        app.end_round(served);
        Ok(served)
    }

    fn finish(&mut self, turn: Turn) {
        self.app.on_stop(turn);
    }
}

impl<L: StreamLane, A: StreamApp> Service for Streams<'_, L, A> {
    pass_on!();

    fn serve(&mut self, clock: &impl Clock, probe: &mut Probe) -> Result<usize, LaneError> {
        let mut app = TracedStreams::new(self.app, probe);
        let served = self.lane.serve(&mut app, clock)?;
        app.end_round(served);
        Ok(served)
    }

    fn finish(&mut self, turn: Turn) {
        self.lane.finish(self.app, turn);
        self.app.on_stop(turn);
    }
}

fn run(
    service: &mut impl Service,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    let name = service.name();
    assert_eq!(clock.domain(), service.clock_domain(), "the worker's clock and lane {name}");
    let mut pace = Pace::new(clock, idle);
    let mut probe = Probe::of(control);
    let outcome = turns(service, &mut pace, control, &mut probe);
    service.finish(Turn { now_ns: pace.read() });
    probe.count_transmits(&ports(service), |port| service.counters(port));
    match outcome {
        Ok(ended) => Ok(report(service, &pace, ended)),
        Err(error) => {
            let report = report(service, &pace, Ended::Failed);
            Err(RunFailed { error, report: Box::new(report) })
        }
    }
}

fn turns(
    service: &mut impl Service,
    pace: &mut Pace<'_, impl Clock>,
    control: &Control,
    probe: &mut Probe,
) -> Result<Ended, LaneError> {
    let ports = ports(service);
    loop {
        if control.stop.is_due(pace.now_ns) {
            return Ok(Ended::Stopped);
        }
        if service.wants_stop() {
            return Ok(Ended::App);
        }
        let served = service.serve(pace.clock, probe)?;
        if served > 0 {
            pace.read();
        }
        if pace.tick_is_due() {
            let watched = control.watch.is_wanted();
            let began = probe.now();
            service.tick(Turn { now_ns: pace.now_ns })?;
            probe.called(points::APP_TICK, began, 0);
            probe.count_transmits(&ports, |port| service.counters(port));
            if watched {
                control.watch.publish(report(service, pace, Ended::Running));
            }
        }
        if served > 0 {
            pace.worked();
            continue;
        }
        if service.exhausted() {
            return Ok(Ended::Exhausted);
        }
        if let Some(timeout) = pace.found_nothing(&control.stop, service.due_ns(), None) {
            let began = probe.now();
            service.wait(timeout)?;
            probe.called(points::WAIT, began, 0);
            pace.blocked();
        }
    }
}

fn ports(service: &impl Service) -> Vec<PortId> {
    (0..service.ports()).map(|port| PortId(port as u8)).collect()
}

fn report(service: &mut impl Service, pace: &Pace<'_, impl Clock>, ended: Ended) -> RunReport {
    let mut reports = Vec::with_capacity(service.ports());
    for port in ports(service) {
        let caps = service.caps(port).clone();
        reports.push(PortReport { caps, counters: service.counters(port) });
    }
    pace.report(service.name(), ended, reports, service.app_counters())
}
