//! What cannot be raced, before anything is made: every value of a scenario is held against what its app, its arms and
//! its traffic allow, and a refusal names the value and what it may be.

use super::{
    ALONE, ARMS_MAX, ArmPlan, BY_UDP, CAPACITY_STEPS_MAX, CAPACITY_TRIALS_MAX, CLOSED_REQUESTS_MAX,
    CapacityPlan, Extent, GENERATIONS_MAX, LOAD_PPS_MAX, LOADS_MAX, OWN_SHARES,
    PING_INTERVAL_US_MAX, PING_LOAD_PPS_MAX, ROUNDS_MAX, SEGMENT_MS_MAX, SEGMENT_MS_MIN, Scenario,
    TIME_S_MAX, TRACED, UNLIMITED, value,
};
use crate::arrivals::ARRIVALS_MAX;
use crate::child::redis_knobs;
use crate::command::{CommandLine, find};
use crate::copies;
use crate::error::ScenarioError;
use crate::ping::PINGS_MAX;
use crate::replies::REQUESTS_MAX;
use crate::result::own_load;
use crate::segment::{Plant, SEGMENTS_MAX};
use crate::tables::Tables;
use crate::testpmd::{DEVICES, Device, is_tap};
use crate::timetable::Spacing;
use crate::wire;
use laneway_kinds::{AppFacts, Counted, Peer, Shape};
use laneway_spec::LaneSpec;

impl Scenario {
    /// What is true of the arms whatever the app is.
    pub(super) fn check_arms(&self) -> Result<(), ScenarioError> {
        if self.arms.is_empty() {
            return Err(value("the number of arms", 0, format!("1 to {ARMS_MAX}")));
        }
        for (i, arm) in self.arms.iter().enumerate() {
            if self.arms[..i].iter().any(|other| other.name == arm.name) {
                let hint = "give each its own `name`";
                return Err(value("the name of two arms", &arm.name, hint));
            }
            if arm.optional && i == 0 {
                let hint = "the base of every comparison must run: leave `optional` out";
                return Err(value("`optional` of the first arm", arm.optional, hint));
            }
            if arm.full_only && i == 0 {
                let hint = "the base of every comparison must run: leave `full_only` out";
                return Err(value("`full_only` of the first arm", arm.full_only, hint));
            }
            if arm.alone && i == 0 {
                let hint =
                    "what is alone is compared with the base among others: leave `alone` out";
                return Err(value("`alone` of the first arm", arm.alone, hint));
            }
            if arm.alone && !arm.name.contains(ALONE) {
                let hint = format!("an arm that is raced alone says `{ALONE}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
            if arm.unlimited && !self.fanouts().any(|fanout| fanout.limit_mbit.is_some()) {
                let hint =
                    "no output is limited here: give `fanout` a `limit_mbit`, or leave it out";
                return Err(value(format!("`unlimited` of arm `{}`", arm.name), true, hint));
            }
            if arm.unlimited && !arm.name.contains(UNLIMITED) {
                let hint = format!("an arm without the limit of the others says `{UNLIMITED}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
            if arm.datagrams && !arm.name.contains(BY_UDP) {
                let hint = format!("an arm that is asked by datagrams says `{BY_UDP}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
            check_kind(arm)?;
            if arm.trace && arm.program().is_some() {
                let hint = "our tracer is in our workers only: leave `trace` out";
                return Err(value("`trace` of a peer", &arm.name, hint));
            }
            if arm.trace && !arm.name.contains(TRACED) {
                let hint = format!("an arm that is traced while it is measured says `{TRACED}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
        }
        Ok(())
    }

    /// What depends on the app: its arguments, its peers, the ports that it can have.
    pub(super) fn check_app(
        &self,
        app: &AppFacts,
        tables: &dyn Tables,
    ) -> Result<(), ScenarioError> {
        let traffic = self.traffic_kind(app)?;
        if !(1..=256).contains(&self.burst) {
            return Err(value("burst", self.burst, "1 to 256"));
        }
        self.check_ping(app)?;
        self.check_capacity(app)?;
        self.check_spacing()?;
        self.check_arrivals(app)?;
        self.check_client(app, tables)?;
        for arm in &self.arms {
            let lane_of = || format!("lane of arm `{}`", arm.name);
            let arguments = self.arguments_of(arm);
            // A peer is given none of the app's arguments.
            if arm.program() != Some(Peer::RedisServer) {
                tables.check_arm(app.name, arguments, traffic).map_err(|why| {
                    value(format!("arguments of arm `{}`", arm.name), arguments.join(" "), why)
                })?;
            }
            if arm.plant != Plant::None
                && (arm.program().is_some() || !app.race.counted.by_witness())
            {
                let hint = "faults are planted in our own arms, of apps that tick packets off";
                return Err(value("plant", format!("{:?}", arm.plant), hint));
            }
            if let Plant::Slow { share } = arm.plant
                && !(0.0..=10.0).contains(&share)
            {
                return Err(value("plant.slow.share", share, "0 to 10"));
            }
            match arm.program() {
                Some(Peer::Command) => check_command(arm, app)?,
                None => {
                    if let Err(error) = arm.lane.parse::<LaneSpec>() {
                        return Err(value(lane_of(), &arm.lane, error.to_string()));
                    }
                    // A lane that this program does not know is left out with its reason where the arm is optional.
                    let wiring = match tables.lane(&arm.lane) {
                        Ok((_, wiring)) => wiring,
                        Err(_) if arm.optional => continue,
                        Err(why) => return Err(value(lane_of(), &arm.lane, why)),
                    };
                    if let Some(why) = wire::objection(&wiring, app) {
                        return Err(value(lane_of(), &arm.lane, why));
                    }
                }
                Some(peer) if !app.race.peers.contains(&peer) => {
                    let hint = match app.race.peers {
                        [] => "it has no peers: nothing of others does the same".to_owned(),
                        peers => {
                            let names: Vec<&str> = peers.iter().map(|peer| peer.name()).collect();
                            format!("its peers are {}", names.join(", "))
                        }
                    };
                    return Err(value(format!("a peer of app {}", app.name), peer.name(), hint));
                }
                Some(Peer::Testpmd) => {
                    let device =
                        Device::read(&arm.lane).map_err(|why| value(lane_of(), &arm.lane, why))?;
                    let has_far_end =
                        matches!(app.race.counted, Counted::Forwarded | Counted::Replies);
                    if is_tap(&arm.lane) && !has_far_end {
                        return Err(value(lane_of(), &arm.lane, wire::NO_CABLE));
                    }
                    if !is_tap(&arm.lane) && !DEVICES.contains(&device.driver.as_str()) {
                        let hint = format!("the devices are {}", DEVICES.join(", "));
                        return Err(value(lane_of(), &arm.lane, hint));
                    }
                }
                Some(Peer::RedisServer) => {
                    redis_knobs(&arm.lane).map_err(|why| value(lane_of(), &arm.lane, why))?;
                }
                Some(Peer::Smcroute)
                    if self.fanout.as_ref().is_some_and(|fanout| !fanout.is_over_interfaces()) =>
                {
                    let hint = "the kernel routes groups and rewrites no port: leave this arm out, or give as many \
                                `cables` as `outputs`";
                    return Err(value(format!("peer of arm `{}`", arm.name), "smcroute", hint));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A capture's own times are those of its frames.
    pub(super) fn check_spacing(&self) -> Result<(), ScenarioError> {
        let has_its_own = self.arrivals == Spacing::Capture;
        if has_its_own && self.capture.is_none() {
            let hint = "frames made here have no times of their own: use `steady` or `poisson`";
            return Err(value("arrivals", self.arrivals.name(), hint));
        }
        if has_its_own && self.burst != 1 {
            let hint = "with `arrivals = \"capture\"` each frame has its own time: give 1";
            return Err(value("burst", self.burst, hint));
        }
        Ok(())
    }

    /// Frames of a segment for which there is room at the far end, where they are ticked off there.
    pub(super) fn room(&self, app: &AppFacts) -> Result<Option<u32>, ScenarioError> {
        Ok(match (app.race.counted, self.traffic(app)?.fanout()) {
            (Counted::Forwarded, _) => Some(ARRIVALS_MAX),
            (Counted::Copies, Some(plan)) => Some(copies::frames_max(plan)),
            _ => None,
        })
    }

    /// A search is made of segments of packets, and says something of arms whose packets are counted.
    pub(super) fn check_capacity(&self, app: &AppFacts) -> Result<(), ScenarioError> {
        let Some(CapacityPlan { pps, loss_max, steps, ms, trials }) = self.capacity else {
            return Ok(());
        };
        if matches!(app.race.counted, Counted::Replies | Counted::Answered) {
            let hint = "of pings it is in `[ping]`, and of a client the closed loop: take `[capacity]` out";
            return Err(value("app", app.name, hint));
        }
        let [low, high] = pps;
        if !(1..high).contains(&low) || high > LOAD_PPS_MAX {
            let hint = format!("two rates in rising order, at most {LOAD_PPS_MAX}");
            return Err(value("capacity.pps", format!("{pps:?}"), hint));
        }
        if !(0.0..=0.5).contains(&loss_max) {
            let hint = "0 to 0.5, a share: 0.001 is 0.1 %";
            return Err(value("capacity.loss_max", loss_max, hint));
        }
        // One that asks the highest rate alone knows nothing of an arm that does not carry that.
        if !(2..=CAPACITY_STEPS_MAX).contains(&steps) {
            return Err(value("capacity.steps", steps, format!("2 to {CAPACITY_STEPS_MAX}")));
        }
        if !(1..=CAPACITY_TRIALS_MAX).contains(&trials) {
            return Err(value("capacity.trials", trials, format!("1 to {CAPACITY_TRIALS_MAX}")));
        }
        if !(50..=60_000).contains(&ms) {
            return Err(value("capacity.ms", ms, "50 to 60000"));
        }
        let most = high.saturating_mul(ms) / 1000;
        let room = self.room(app)?.unwrap_or(u32::MAX);
        if most >= u64::from(room) {
            let hint = format!("below {room}: shorten `ms`, or search lower");
            return Err(value("the number of frames of a trial of the highest rate", most, hint));
        }
        Ok(())
    }

    /// Of what is counted one by one at the far end there is room for so many.
    pub(super) fn check_arrivals(&self, app: &AppFacts) -> Result<(), ScenarioError> {
        let Some(room) = self.room(app)? else { return Ok(()) };
        for extent in [&self.quick, &self.full] {
            let most =
                extent.loads_pps.last().map_or(0, |pps| pps.saturating_mul(extent.segment_ms));
            if most / 1000 > u64::from(room) {
                let hint = format!("at most {room}: shorten segment_ms, or lower the load");
                return Err(value(
                    "the number of frames of the longest segment",
                    most / 1000,
                    hint,
                ));
            }
        }
        Ok(())
    }

    /// A closed loop is a client's, and what is a generator's is not.
    pub(super) fn check_client(
        &self,
        app: &AppFacts,
        tables: &dyn Tables,
    ) -> Result<(), ScenarioError> {
        let is_asked = app.race.counted == Counted::Answered;
        self.check_datagrams()?;
        if self.tso && !is_asked {
            let hint = "what is sent is made frame by frame: give `[client]`, or leave it out";
            return Err(value("tso", true, hint));
        }
        if self.tso {
            for arm in self.arms.iter().filter(|arm| arm.program().is_none()) {
                let Ok((lane, _)) = tables.lane(&arm.lane) else { continue };
                if !lane.carries.has(Shape::Streams) {
                    let hint = "its TCP is our own, and sees segments that no wire carries, without checksums: leave it \
                                out of this variant (`arms`), or `tso`";
                    return Err(value(format!("tso with arm `{}`", arm.name), true, hint));
                }
            }
        }
        for extent in [&self.quick, &self.full] {
            if extent.closed_loop && !is_asked {
                let hint = "only a client waits for answers: give `[client]`, or leave it out";
                return Err(value("closed_loop", true, hint));
            }
            if !extent.closed_requests.is_empty() && !extent.closed_loop {
                let hint = "they are those of a closed loop: give `closed_loop = true`";
                return Err(value(
                    "closed_requests",
                    format!("{:?}", extent.closed_requests),
                    hint,
                ));
            }
            if let Some(share) = extent.own_share
                && !extent.closed_loop
            {
                let hint = "it is a share of what an arm answers in a closed loop: give `closed_loop = true`";
                return Err(value("own_share", share, hint));
            }
            if is_asked && (extent.saturate || extent.topspeed) {
                let hint = "a client has no rate that saturates: give `closed_loop = true` instead";
                return Err(value("saturate or topspeed with `[client]`", true, hint));
            }
        }
        Ok(())
    }

    /// An arm that is asked by datagrams is a store of ours, and what is asked is what datagrams can say.
    fn check_datagrams(&self) -> Result<(), ScenarioError> {
        for arm in self.arms.iter().filter(|arm| arm.datagrams) {
            let name = || format!("`datagrams` of arm `{}`", arm.name);
            if arm.program().is_some() {
                let hint = "no peer is asked by datagrams: leave it out";
                return Err(value(name(), true, hint));
            }
            let Some(asks) = self.client.filter(|asks| asks.store.is_some()) else {
                let hint = "values of a store are got by them: give `[client]` with a `store`";
                return Err(value(name(), true, hint));
            };
            let plan = asks.plan(asks.protocol(), self.seed).by_datagrams();
            plan.check().map_err(|(what, is, hint)| {
                value(format!("{what} of the client of arm `{}`", arm.name), is, hint)
            })?;
        }
        Ok(())
    }

    pub(super) fn check_ping(&self, app: &AppFacts) -> Result<(), ScenarioError> {
        let has_replies = app.race.counted == Counted::Replies;
        let Some(ping) = &self.ping else {
            return match has_replies {
                true => {
                    let hint = "give `[ping]` with pings, ping_interval_us, loss_max, \
                                capacity_pps, capacity_steps and capacity_ms";
                    Err(value(format!("the section `[ping]` of app {}", app.name), "missing", hint))
                }
                false => Ok(()),
            };
        };
        if !has_replies {
            let hint = "`[ping]` belongs to an app whose replies are counted; take it out";
            return Err(value("app", app.name, hint));
        }
        if ping.pings > PINGS_MAX {
            return Err(value("ping.pings", ping.pings, format!("0 to {PINGS_MAX}")));
        }
        if !(100..=PING_INTERVAL_US_MAX).contains(&ping.ping_interval_us) {
            let hint = format!("100 to {PING_INTERVAL_US_MAX}");
            return Err(value("ping.ping_interval_us", ping.ping_interval_us, hint));
        }
        if ping.ping_load_pps > PING_LOAD_PPS_MAX {
            let hint = format!(
                "0 to {PING_LOAD_PPS_MAX}: beyond it the generator's CPU has no time left for ping"
            );
            return Err(value("ping.ping_load_pps", ping.ping_load_pps, hint));
        }
        if !(0.0..=0.5).contains(&ping.loss_max) {
            let hint = "0 to 0.5, a share: 0.005 is 0.5 %";
            return Err(value("ping.loss_max", ping.loss_max, hint));
        }
        if ping.capacity_steps == 1 || ping.capacity_steps > CAPACITY_STEPS_MAX {
            let hint = format!("0, or 2 to {CAPACITY_STEPS_MAX}");
            return Err(value("ping.capacity_steps", ping.capacity_steps, hint));
        }
        if !(50..=60_000).contains(&ping.capacity_ms) {
            return Err(value("ping.capacity_ms", ping.capacity_ms, "50 to 60000"));
        }
        let [low, high] = ping.capacity_pps;
        if !(1..high).contains(&low) || high > LOAD_PPS_MAX {
            let hint = format!("two rates in rising order, at most {LOAD_PPS_MAX}");
            return Err(value("ping.capacity_pps", format!("{:?}", ping.capacity_pps), hint));
        }
        // Each step of a search may be asked twice.
        let loads_max = (SEGMENTS_MAX - 2 * CAPACITY_STEPS_MAX as usize) / 4;
        for extent in [&self.quick, &self.full] {
            if extent.loads_pps.len() > loads_max {
                let hint = format!("1 to {loads_max} beside a capacity search");
                return Err(value("the number of loads", extent.loads_pps.len(), hint));
            }
        }
        let segments = [&self.quick, &self.full]
            .map(|extent| (extent.loads_pps.last().copied().unwrap_or(0), extent.segment_ms));
        for (pps, ms) in segments.into_iter().chain([(high, ping.capacity_ms)]) {
            let most = pps.saturating_mul(ms) / 1000;
            if most > u64::from(REQUESTS_MAX) {
                let hint = format!("at most {REQUESTS_MAX}: shorten it, or lower the load");
                return Err(value("the number of requests of the longest segment", most, hint));
            }
        }
        Ok(())
    }
}

/// An arm is a lane, a peer or a program.
pub(super) fn check_kind(arm: &ArmPlan) -> Result<(), ScenarioError> {
    let what = |field: &str| format!("`{field}` of arm `{}`", arm.name);
    if arm.peer == Some(Peer::Command) {
        let hint =
            "give the program's command line instead: command = \"my-server {address} {port}\"";
        return Err(value(what("peer"), Peer::Command.name(), hint));
    }
    let Some(command) = &arm.command else {
        if !arm.counts {
            let hint = "it is for programs that receive, by their `command`: leave it out";
            return Err(value(what("counts"), arm.counts, hint));
        }
        let hint = "give it a `lane`, or a `command`";
        return if arm.lane.is_empty() {
            Err(value(what("lane"), "missing", hint))
        } else {
            Ok(())
        };
    };
    let alone = "a program is configured by its `command` alone: leave this out, or the command";
    if !arm.lane.is_empty() {
        return Err(value(what("lane"), &arm.lane, alone));
    }
    if let Some(peer) = arm.peer {
        return Err(value(what("peer"), peer.name(), alone));
    }
    if let Some(arguments) = &arm.arguments {
        return Err(value(what("arguments"), format!("{arguments:?}"), alone));
    }
    if command.trim().is_empty() {
        return Err(value(what("command"), "empty", "give the program and its arguments"));
    }
    Ok(())
}

/// The command line of an arm must be one, and its program be there unless it is optional.
pub(super) fn check_command(arm: &ArmPlan, app: &AppFacts) -> Result<(), ScenarioError> {
    let refused = |why| value(format!("command of arm `{}`", arm.name), arm.what(), why);
    let line = CommandLine::read(arm.what(), app).map_err(refused)?;
    match line.program().filter(|_| !arm.optional) {
        Some(program) => find(program).map(drop).map_err(refused),
        None => Ok(()),
    }
}

impl Extent {
    /// Which of the loads, when all were found, is the one at which every arm has a rate of its own.
    pub(crate) fn own_load(&self) -> Option<usize> {
        own_load(self.own_share, self.loads_pps.len(), self.closed_requests.len())
    }

    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        let loads = &self.loads_pps;
        let rising = loads.is_sorted_by(|a, b| a < b);
        let possible = loads.iter().all(|load| (1..=LOAD_PPS_MAX).contains(load));
        let needs_load = loads.is_empty() && !self.closed_loop;
        if needs_load || loads.len() > LOADS_MAX || !rising || !possible {
            let hint = format!(
                "1 to {LOADS_MAX} loads in rising order, each 1 to {LOAD_PPS_MAX} frames/s"
            );
            return Err(value("loads_pps", format!("{loads:?}"), hint));
        }
        let counts = &self.closed_requests;
        // The load that is a share of its own has the number behind the last.
        let owns = usize::from(self.own_share.is_some());
        let first = loads.last().map_or(1, |load| load + 1) + owns as u64;
        let rising = counts.is_sorted_by(|a, b| a < b);
        let possible = counts.iter().all(|n| (first..=CLOSED_REQUESTS_MAX).contains(n));
        if counts.len() + loads.len() + owns > LOADS_MAX || !rising || !possible {
            let hint = format!(
                "numbers in rising order, above the last load and at most {CLOSED_REQUESTS_MAX}; with the loads at most \
                 {LOADS_MAX}"
            );
            return Err(value("closed_requests", format!("{counts:?}"), hint));
        }
        if let Some(share) = self.own_share.filter(|share| !OWN_SHARES.contains(share)) {
            let (least, most) = (OWN_SHARES.start(), OWN_SHARES.end());
            return Err(value("own_share", share, format!("a share from {least} to {most}: 0.5")));
        }
        if !(SEGMENT_MS_MIN..=SEGMENT_MS_MAX).contains(&self.segment_ms) {
            let hint = format!("{SEGMENT_MS_MIN} to {SEGMENT_MS_MAX}");
            return Err(value("segment_ms", self.segment_ms, hint));
        }
        if !(1..=TIME_S_MAX).contains(&self.time_s) {
            return Err(value("time_s", self.time_s, format!("1 to {TIME_S_MAX} seconds")));
        }
        if let Some(rounds) = self.rounds
            && !(1..=ROUNDS_MAX).contains(&rounds)
        {
            return Err(value("rounds", rounds, format!("1 to {ROUNDS_MAX} in a generation")));
        }
        if !(1..=GENERATIONS_MAX).contains(&self.generations) {
            let hint = format!("1 to {GENERATIONS_MAX}; an interval needs 3");
            return Err(value("generations", self.generations, hint));
        }
        if [self.saturate, self.topspeed, self.closed_loop].iter().filter(|is| **is).count() > 1 {
            let hint = "give `saturate`, `topspeed` or `closed_loop`: a goal without a load means the one there is";
            return Err(value("the loads without a rate", "several", hint));
        }
        let most = loads.last().copied().unwrap_or(0).saturating_mul(self.segment_ms) / 1000;
        if most >= u64::from(u32::MAX) {
            let hint = "frames per segment must stay below 2^32: shorten segment_ms";
            return Err(value("the number of frames of the longest segment", most, hint));
        }
        Ok(())
    }
}
