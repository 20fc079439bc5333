//! What a reader of a result must know of its arms before its figures.

use super::contest::Contest;
use super::entrants::{Entrant, entrants_names};
use super::{analyse, capacities, clients, pings, traced};
use crate::copies;
use crate::fanout::FarEnd;
use crate::result::Segment;
use crate::scenario::OTHERS_MAX;
use crate::tables::{Tables, wiring};
use crate::trial::{self, Trial};
use laneway_kinds::{AppFacts, Counted, Wiring};

/// What is known of a race when all is measured.
pub(super) struct Known<'a> {
    pub(super) contest: Contest<'a>,
    pub(super) app: &'a AppFacts,
    pub(super) segments: &'a [Segment],
    pub(super) trials: &'a [Trial],
    /// The version of the real ping, if it ran.
    pub(super) program: Option<&'a str>,
    pub(super) saturating_pps: Option<u64>,
}

impl Known<'_> {
    /// What a reader must know of it, beside the figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let Contest { options, scenario, sending, extent, entrants, own_pps, .. } = self.contest;
        let Known { app, segments, trials, program, saturating_pps, .. } = *self;
        let mut notes = Vec::new();
        if app.race.counted == Counted::Replies {
            notes.extend(pings::notes(scenario, program));
        }
        if scenario.others_max > OTHERS_MAX {
            notes.push(format!(
                "this scenario lets other programs use {:.0} % of a CPU, more than the usual {:.0} %: \
                 its rates and latencies may be theirs",
                scenario.others_max * 100.0,
                OTHERS_MAX * 100.0
            ));
        }
        notes.extend(analyse::left_out(segments));
        notes.extend(analyse::silent(segments, &entrants_names(entrants)));
        let wired = |entrant: &Entrant| wiring(options.tables, entrant.peer, &entrant.lane);
        let is_shared = |entrant: &Entrant| matches!(wired(entrant), Wiring::SharedMemory { .. });
        if app.race.counted.comes_out() && !entrants.iter().all(is_shared) {
            let by = match scenario.generator_napi_cpu {
                Some(_) => "threads of that side",
                None => "the softirq of the sender",
            };
            let fanout = sending.traffic.fanout().map(|plan| plan.fanout);
            let program = fanout.map_or("an XDP program", |fanout| fanout.far_end.program());
            notes.push(format!(
                "delivered is what was received on the generator's side, counted and dropped there by {program} in {by}"
            ));
            if fanout.is_some_and(|fanout| fanout.far_end == FarEnd::Trains) {
                notes.push(copies::trains_note(segments, &entrants_names(entrants)));
            }
        }
        if let Some(client) = sending.traffic.client() {
            notes.extend(clients::notes(
                client,
                segments,
                &entrants_names(entrants),
                own_pps,
                extent,
            ));
        }
        if extent.topspeed {
            notes.push(topspeed_note(segments, entrants, extent.loads_pps.len() - 1));
        } else if let Some(pps) = saturating_pps.filter(|_| !extent.closed_loop) {
            notes.push(format!(
                "{pps}/s is the saturating load: at most {:.0} % of the highest that the generator was seen to keep \
                 against every arm before the first generation, and one that it has headroom at, rounded down, the same \
                 for all. It is no \
                 sustainable rate, and latency at it is that of full queues",
                100.0 * trial::KEPT_SHARE
            ));
        }
        notes.extend(capacities::note(scenario));
        notes.extend(traced::measured_notes(trials, entrants));
        if entrants.iter().any(|entrant| wired(entrant) == Wiring::Taps) {
            notes.push(taps_note(app));
        }
        notes.extend(shared_memory_note(options.tables, entrants));
        notes.extend(uncounted_note(entrants));
        notes
    }
}

/// What a reader must know of the load that is no schedule.
fn topspeed_note(segments: &[Segment], entrants: &[Entrant], load: usize) -> String {
    let sent = entrants.iter().enumerate().filter_map(|(arm, entrant)| {
        let of_arm = segments.iter().filter(|s| s.arm == arm && s.load == load);
        let rates: Vec<f64> = of_arm.map(|s| s.generator.achieved_pps).collect();
        let [median, ..] = analyse::spread(&rates)?;
        Some(format!("{} {:.0}", entrant.name, median / 1e3))
    });
    format!(
        "top speed is no schedule: every arm was sent the same number of frames, as fast as the generator \
         could beside it, so it has no latency, and a rate there is what the arm took while the generator \
         did what it could; sent, median, thousand/s: {}",
        sent.collect::<Vec<_>>().join(", ")
    )
}

/// What a reader must know of arms on TAP devices.
fn taps_note(app: &AppFacts) -> String {
    let written = match app.race.counted {
        Counted::Answered => {
            "What the arm writes goes to the client's sockets within the system call that writes it"
        }
        _ => {
            "What the queue refuses is the device's tx_dropped, here `tap queue full`. What the arm writes to the \
             other device is counted and dropped within the system call that writes it"
        }
    };
    format!(
        "an arm on TAP devices has no NAPI thread: the generator's CPU puts each frame into the queue of the device, \
         and the arm reads it from there by a system call. {written}"
    )
}

/// What a reader must know of arms on shared memory; `None` where there are none.
pub(super) fn shared_memory_note(tables: &dyn Tables, entrants: &[Entrant]) -> Option<String> {
    let is_one = |entrant: &&Entrant| {
        matches!(wiring(tables, entrant.peer, &entrant.lane), Wiring::SharedMemory { .. })
    };
    let names = entrants.iter().filter(is_one).map(|entrant| format!("`{}`", entrant.name));
    let names = names.collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "on shared memory, which nothing of the kernel's reaches: {names}. Generator and far end \
             are there one process of the lab that polls both ends on the generator's CPU: it copies \
             each frame into the ring in front of the arm (what that refuses is `memif ring full`), \
             takes out what the arm sent on, counts and drops it, without an XDP program. So of a driver, \
             a softirq and the counting, which are in every other arm's CPU time, it has nothing, it \
             is offered what a process can make, and what arrives has arrived in that process's hands: compare its \
             rate, its CPU time and its latency with that in mind"
        )
    })
}

/// What a reader must know of arms that do not say what they received; `None` where there are none.
fn uncounted_note(entrants: &[Entrant]) -> Option<String> {
    let silent = entrants.iter().filter(|entrant| !entrant.counts);
    let names: Vec<String> = silent.map(|entrant| format!("`{}`", entrant.name)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "delivered is unknown of {}: nothing of it says what it received. Its CPU time is per offered packet, \
             received or not, where that of others is per delivered record, so one that loses packets looks cheaper; \
             it has no rate, no loss and no capacity",
            names.join(", ")
        )
    })
}
