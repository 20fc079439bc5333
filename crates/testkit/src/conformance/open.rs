//! Opening and closing: knobs, capabilities, idle policies, stop.

use super::{
    Rig,
    bench::{Bench, knobs, ok, spec},
};
use crate::refusal::refusal;
use crate::{skip, udp_frames};
use laneway_core::{Cap, FrameLane, Lane, LaneError, PortId};
use laneway_spec::SpecError;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

const PORT: PortId = PortId(0);

/// A worker without traffic sees its stop flag within one turn, because no call of the lane keeps
/// it; and what it leaves lets the same lane open again at once.
pub fn a_worker_stops_and_the_lane_opens_again<R: Rig>(rig: &mut R) {
    /// Turns without traffic before another thread asks for the stop.
    const TURNS_BEFORE: usize = 20;
    for _ in 0..2 {
        let mut bench = Bench::open(rig, "", 1, &[]);
        let (stop, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let stopper = scope.spawn(|| {
                while turns.load(Ordering::SeqCst) < TURNS_BEFORE {
                    std::thread::sleep(Duration::from_micros(100));
                }
                stop.store(true, Ordering::SeqCst);
                turns.load(Ordering::SeqCst)
            });
            while !stop.load(Ordering::SeqCst) {
                ok(bench.lane.receive(PORT));
                ok(bench.lane.settle(PORT));
                ok(bench.lane.wait(Duration::from_millis(2)));
                turns.fetch_add(1, Ordering::SeqCst);
            }
            let turns_at_stop = stopper.join().expect("setting a flag does not panic");
            assert!(turns.load(Ordering::SeqCst) <= turns_at_stop + 1);
        });
    }
    let sent = udp_frames(0, 4, 64);
    let mut bench = Bench::open(rig, "", 1, &sent);
    assert_eq!(bench.pump(PORT, &sent, |_, _, _| ()), sent.len());
}

/// What was asked for and cannot be had fails the opening, unless `allow=` names it; then the
/// report says so.
pub fn an_impossible_capability_is_refused_unless_allowed<R: Rig>(rig: &mut R) {
    let is = rig.properties();
    let Some(impossible) = is.impossible else {
        return skip("nothing that the lane can be asked for is impossible here");
    };
    let (cap, asking) = (impossible.cap, spec(is.spec, impossible.knobs));
    match rig.open(&asking, 1) {
        Err(LaneError::CapMissing { cap: missing, .. }) => assert_eq!(missing, cap),
        Err(e) => panic!("`{asking}` must fail because {} is missing, not: {e}", cap.name()),
        Ok(_) => panic!("`{asking}` opened without {}", cap.name()),
    }
    let allowing = knobs(impossible.knobs, &format!("allow={}", cap.name()));
    let bench = Bench::open(rig, &allowing, 1, &[]);
    let report = bench.lane.caps(PORT);
    assert!(report.requested.has(cap), "{report:?}");
    assert!(!report.obtained.has(cap), "{report:?}");
    assert!(report.allowed_missing.has(cap), "{report:?}");
}

/// Every port has a report that admits itself and tells the truth about transmitting.
pub fn every_port_reports_its_capabilities<R: Rig>(rig: &mut R) {
    let is = rig.properties();
    let bench = Bench::open(rig, "", is.ports_max, &[]);
    for port in (0..is.ports_max).map(|p| PortId(p as u32)) {
        let report = bench.lane.caps(port);
        ok(report.admit(bench.lane.name(), |_| None));
        assert_eq!(report.obtained.has(Cap::Transmit), is.transmits, "port {}", port.0);
    }
    assert_eq!(spec(is.spec, "").lane(), bench.lane.name());
}

/// A misspelt knob names the right one.
pub fn an_unknown_knob_is_refused_with_a_suggestion<R: Rig>(rig: &mut R) {
    let spec = spec(rig.properties().spec, "brust=8");
    match refusal(rig.open(&spec, 1), &spec) {
        SpecError::UnknownKnob { knob, nearest, .. } => {
            assert_eq!((knob.as_str(), nearest.as_deref()), ("brust", Some("burst")));
        }
        e => panic!("`{spec}` must fail for its knob, not: {e}"),
    }
}

/// All forms of `idle=` open, and traffic flows; anything else is refused.
pub fn every_idle_policy_is_accepted<R: Rig>(rig: &mut R) {
    for policy in ["idle=spin", "idle=block", "idle=adaptive", "idle=adaptive:200"] {
        let sent = udp_frames(0, 4, 64);
        let mut bench = Bench::open(rig, policy, 1, &sent);
        assert_eq!(bench.pump(PORT, &sent, |_, _, _| ()), sent.len(), "{policy}");
    }
    refuses_value(rig, "idle", "sleepy");
}

/// A burst of no frames, or of more than the contract's bound, is refused.
pub fn a_burst_outside_its_bounds_is_refused<R: Rig>(rig: &mut R) {
    refuses_value(rig, "burst", "0");
    refuses_value(rig, "burst", &(laneway_core::BURST_FRAMES_MAX + 1).to_string());
}

fn refuses_value<R: Rig>(rig: &mut R, knob: &str, value: &str) {
    let spec = spec(rig.properties().spec, &format!("{knob}={value}"));
    match refusal(rig.open(&spec, 1), &spec) {
        SpecError::BadValue { knob: named, .. } => assert_eq!(named, knob),
        e => panic!("`{spec}` must fail for its value, not: {e}"),
    }
}
