//! Which arms race: those of the scenario, the base once more, and which are left out, and why.

use super::{Length, Options, trial_plan};
use crate::bench::Bench;
use crate::error::RaceError;
use crate::ping;
use crate::scenario::{ArmPlan, Extent, Scenario};
use crate::segment::Plant;
use crate::traffic::Sending;
use crate::trial;
use laneway_kinds::Peer;
use std::sync::atomic::Ordering;

pub(super) fn extent_of(scenario: &Scenario, length: Length) -> &Extent {
    match length {
        Length::Quick => &scenario.quick,
        Length::Full => &scenario.full,
    }
}

/// The version of the real ping, where one is to run; where there is none, none is to run.
pub(super) fn pinging(scenario: &mut Scenario) -> Option<String> {
    let echo = scenario.ping.as_mut().filter(|echo| echo.pings > 0)?;
    let version = ping::version();
    if version.is_none() {
        echo.pings = 0;
    }
    version
}

/// The arms that the scenario itself keeps for the long version, a sentence each.
pub(super) fn left_out(scenario: &Scenario, length: Length) -> Vec<String> {
    let arms = scenario.arms.iter().filter(|arm| !runs(arm, length));
    let why = "it runs in the long version only (--full), or by name (--lane)";
    arms.map(|arm| format!("skipped: arm `{}`: {why}", arm.name)).collect()
}

/// Whether the scenario lets an arm take part.
pub(super) fn runs(arm: &ArmPlan, length: Length) -> bool {
    length == Length::Full || !arm.full_only
}

/// Takes out the optional arms that do not start, and gives a sentence for each.
pub(super) fn leave_out(
    bench: &Bench,
    scenario: &Scenario,
    extent: &Extent,
    sending: &Sending,
    entrants: &mut Vec<Entrant>,
    options: &Options<'_>,
) -> Result<Vec<String>, RaceError> {
    let mut skipped = Vec::new();
    let mut running = Vec::new();
    for entrant in entrants.drain(..) {
        if options.interrupted.load(Ordering::Relaxed) {
            return Err(RaceError::Interrupted);
        }
        if entrant.optional {
            // Of a lane that no wire can be laid to, the arm would open something else.
            if entrant.peer.is_none()
                && let Err(why) = options.tables.lane(&entrant.lane)
            {
                skipped.push(format!("skipped: arm `{}`: {why}", entrant.name));
                continue;
            }
            let plan = trial_plan(scenario, extent, sending, &entrant, [0, 0], options);
            if let Err(error) = trial::start_arm(bench, &plan) {
                skipped.push(format!("skipped: {error}"));
                continue;
            }
        }
        running.push(entrant);
    }
    *entrants = running;
    Ok(skipped)
}

/// An arm as it starts.
pub(crate) struct Entrant {
    pub(super) name: String,
    pub(super) lane: String,
    pub(super) peer: Option<Peer>,
    pub(super) counts: bool,
    pub(super) optional: bool,
    pub(super) note: String,
    pub(super) plant: Plant,
    pub(super) arguments: Vec<String>,
    pub(super) is_traced: bool,
    pub(super) is_alone: bool,
    pub(super) is_unlimited: bool,
    pub(super) is_by_datagrams: bool,
    pub(super) is_noise_floor: bool,
}

/// The scenario's arms with the base's twin in second place.
pub(super) fn entrants(scenario: &Scenario, length: Length) -> Vec<Entrant> {
    let mut entrants: Vec<Entrant> = scenario
        .arms
        .iter()
        .filter(|arm| runs(arm, length))
        .map(|arm| Entrant {
            name: arm.name.clone(),
            lane: arm.what().to_owned(),
            peer: arm.program(),
            counts: arm.counts,
            optional: arm.optional,
            note: arm.note.clone(),
            plant: arm.plant,
            arguments: scenario.arguments_of(arm).to_vec(),
            is_traced: arm.trace,
            is_alone: arm.alone,
            is_unlimited: arm.unlimited,
            is_by_datagrams: arm.datagrams,
            is_noise_floor: false,
        })
        .collect();
    let base = &entrants[0];
    let twin = Entrant {
        name: format!("{} again", base.name),
        lane: base.lane.clone(),
        peer: base.peer,
        counts: base.counts,
        optional: false,
        note: "the base once more: what differs here is noise".to_owned(),
        plant: base.plant,
        arguments: base.arguments.clone(),
        is_traced: base.is_traced,
        is_alone: false,
        is_unlimited: base.is_unlimited,
        is_by_datagrams: base.is_by_datagrams,
        is_noise_floor: true,
    };
    entrants.insert(1, twin);
    entrants
}

pub(super) fn entrants_names(entrants: &[Entrant]) -> Vec<String> {
    entrants.iter().map(|entrant| entrant.name.clone()).collect()
}

/// Its loads, as in `at 5000/s`.
pub(super) fn load_names(extent: &Extent) -> Vec<String> {
    let mut names: Vec<String> = extent.loads_pps.iter().map(|pps| format!("{pps}/s")).collect();
    let without_rate = match (extent.topspeed, extent.closed_loop) {
        (true, _) => Some("top speed"),
        (_, true) => Some("closed loop"),
        _ => None,
    };
    if let (Some(last), Some(name)) = (names.last_mut(), without_rate) {
        *last = name.to_owned();
    }
    let counted = names.iter_mut().rev().zip(extent.closed_requests.iter().rev());
    counted.for_each(|(name, requests)| *name = format!("closed loop of {requests} requests"));
    if let (Some(load), Some(share)) = (extent.own_load(), extent.own_share) {
        names[load] = format!("{:.0} % of its closed loop", share * 100.0);
    }
    names
}
