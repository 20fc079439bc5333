//! One segment of a client: what is due is asked, what comes is checked, and what is left at the end gets a name.

use super::connection::{Link, Moved};
use super::conversation::Conversation;
use super::tally::{Asked, Fate, Tally};
use super::{Client, Wrong};
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

/// The start of a closed loop is this part of it, and no longer than that.
const START_PARTS: u64 = 10;
const START_NS_MAX: u64 = 100_000_000;
/// Of one that has so many requests, each connection begins so long behind the one before: a hundred thousand per
/// second are what a server takes up, and the ring between is not full of them.
const START_EACH_NS: u64 = 10_000;
/// How much later than the last request of an open loop its answer counts for the rate.
const LAST_NS: u64 = 15_000_000;

/// What is to be asked in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asking {
    /// When each request is due; of a closed loop, only from when until when requests are.
    pub schedule: SegmentPlan,
    /// Each connection is to have as many requests outstanding as it may.
    pub is_closed: bool,
    /// Of such a one: it ends when so many were due over all connections, if that is before the schedule does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<NonZeroU32>,
}

impl Asking {
    /// When nothing more is due, CLOCK_MONOTONIC ns.
    fn end_ns(&self, timetable: &Timetable) -> u64 {
        let interval_ns = if self.is_closed { self.schedule.interval_ns } else { 0 };
        timetable.end_ns(&self.schedule) + interval_ns
    }
}

/// A segment under way.
struct Course {
    asking: Asking,
    timetable: Timetable,
    tally: Tally,
    /// Requests of the schedule that have been due; of a closed loop, connections that have begun.
    next: u32,
    /// When the last that were due were looked at.
    looked_ns: u64,
    /// When nothing more is due, CLOCK_MONOTONIC ns: as was asked for, unless it was ended before.
    end_ns: u64,
    /// Of a closed loop of so many requests: those that are still to be due.
    left: u32,
    /// When the last answer was received, or the last connection was to begin.
    heard_ns: u64,
}

impl<C: Conversation> Client<C> {
    /// Asks as `asking` says, until each request has an end; `is_over` ends it before.
    ///
    /// # Errors
    /// When there is no epoll any more.
    pub(crate) fn ask(
        &mut self,
        asking: Asking,
        is_over: impl Fn() -> bool,
    ) -> Result<Asked, String> {
        let mut course = Course {
            asking,
            timetable: self.timetable.clone(),
            tally: Tally::default(),
            next: 0,
            looked_ns: asking.schedule.t0_ns,
            end_ns: asking.end_ns(&self.timetable),
            left: asking.requests.map_or(u32::MAX, NonZeroU32::get),
            heard_ns: asking.schedule.t0_ns,
        };
        let before = C::kinds(&self.terms);
        let t0_ns = asking.schedule.t0_ns;
        let all = self.connections.len() as u32;
        self.connections.iter_mut().for_each(|connection| connection.begin(t0_ns));
        let patience_ns = u64::from(self.plan.timeout_ms) * 1_000_000;
        loop {
            let mut now_ns = MonotonicClock.now_ns();
            if is_over() {
                course.end_ns = course.end_ns.min(now_ns.max(t0_ns));
            }
            if now_ns >= t0_ns {
                self.take_up(&mut course, now_ns);
            }
            now_ns = MonotonicClock.now_ns();
            let next_ns = course.next_ns(all);
            let is_past = now_ns >= course.end_ns || asking.requests.is_some();
            if is_past && next_ns.is_none() && course.tally.open() == 0 {
                break;
            }
            let given_up_ns = patience_ns
                + match asking.requests {
                    // It has no end of its own: it is waited as long for any answer.
                    Some(_) => course.heard_ns.max(next_ns.unwrap_or(0)).min(course.end_ns),
                    None => course.end_ns,
                };
            if now_ns >= given_up_ns {
                self.give_up(&mut course);
                break;
            }
            let is_open = now_ns < course.end_ns && asking.requests.is_none();
            let quiet_ns = if is_open { course.end_ns } else { given_up_ns };
            let wake_ns = next_ns.unwrap_or(quiet_ns);
            self.wait(Duration::from_nanos(wake_ns.saturating_sub(now_ns)))?;
            self.move_on(&mut course);
        }
        let kinds = C::kinds(&self.terms).into_iter().zip(before);
        let kinds = kinds.map(|((name, after), (_, before))| (name.to_owned(), after - before));
        Ok(Asked { kinds: kinds.collect(), ..course.close(all) })
    }

    /// Takes up what is due by now.
    fn take_up(&mut self, course: &mut Course, now_ns: u64) {
        let all = self.connections.len() as u32;
        while course.next_ns(all).is_some_and(|due_ns| due_ns <= now_ns) {
            let at = (course.next % all) as usize;
            course.next += 1;
            course.looked_ns = now_ns;
            if course.asking.is_closed {
                self.begin(course, at);
                continue;
            }
            course.tally.due(1);
            match self.connections[at].link() {
                Link::Closed(fate, _) => course.tally.ended(*fate, 1),
                Link::Open(_) | Link::Opening(_) => {
                    self.connections[at].due += 1;
                    self.pump(course, at, now_ns);
                }
            }
        }
    }

    /// Begins the closed loop of a connection. One that is not there has one request, which ends so.
    fn begin(&mut self, course: &mut Course, at: usize) {
        // What has no time of its own is due when its connection has its turn.
        let now_ns = MonotonicClock.now_ns();
        course.tally.began();
        if let Link::Closed(fate, _) = self.connections[at].link() {
            let fate = *fate;
            let due = course.more(1, now_ns);
            course.tally.broke();
            course.tally.ended(fate, due.into());
            return;
        }
        self.connections[at].due += course.more(self.plan.in_flight, now_ns);
        self.connections[at].free_ns = now_ns;
        self.pump(course, at, now_ns);
    }

    /// Asks what is due on a connection and has room; of a closed loop, all of it was due at `now_ns`.
    fn pump(&mut self, course: &mut Course, at: usize, now_ns: u64) {
        let all = self.connections.len() as u32;
        let connection = &mut self.connections[at];
        let mut is_new = false;
        while connection.taken < connection.due
            && connection.in_flight() < self.plan.in_flight as usize
        {
            let due_ns = match course.asking.is_closed {
                true => now_ns,
                false => course.due_ns(connection.number + connection.taken * all),
            };
            // What had to wait for an answer was not the client's to send before.
            let could_ns = due_ns.max(connection.free_ns);
            course.tally.asked(MonotonicClock.now_ns().saturating_sub(could_ns));
            connection.ask(due_ns);
            is_new = true;
        }
        if is_new {
            self.flush(course, at);
        }
    }

    fn flush(&mut self, course: &mut Course, at: usize) {
        match self.connections[at].flush(&self.epoll) {
            Moved::Bytes(bytes) => course.tally.moved([bytes as u64, 0]),
            Moved::Ended(fate, why) => self.lose(course, at, fate, why),
        }
    }

    /// Sees to every connection that has something.
    fn move_on(&mut self, course: &mut Course) {
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let at = event.data.u64() as usize;
            self.flush(course, at);
            self.listen(course, at);
        }
        self.events = events;
    }

    /// Reads once what a connection has; epoll tells of the rest again.
    fn listen(&mut self, course: &mut Course, at: usize) {
        let read = match self.connections[at].read(&mut self.bytes) {
            Moved::Bytes(0) => return,
            Moved::Bytes(read) => read,
            Moved::Ended(fate, why) => return self.lose(course, at, fate, why),
        };
        let now_ns = MonotonicClock.now_ns();
        let all = self.connections.len() as u32;
        let connection = &mut self.connections[at];
        course.tally.moved([0, read as u64]);
        let is_in_time = course.counted_ns(all).contains(&now_ns);
        let mut answered = 0;
        let heard = connection.hear(&self.bytes[..read], |due_ns| {
            course.tally.answered(due_ns, now_ns, is_in_time);
            answered += 1;
        });
        if let Err(wrong) = heard {
            return self.disbelieve(course, at, &wrong);
        }
        if answered == 0 {
            return;
        }
        connection.free_ns = now_ns;
        course.heard_ns = now_ns;
        if course.asking.is_closed && now_ns < course.end_ns {
            connection.due += course.more(answered, now_ns);
        }
        self.pump(course, at, now_ns);
    }

    /// A wrong answer: what comes behind it means nothing, so the connection is given up.
    fn disbelieve(&mut self, course: &mut Course, at: usize, wrong: &Wrong) {
        course.tally.wrong(wrong.to_string());
        let wronged = match (wrong, self.connections[at].in_flight()) {
            (Wrong::Unasked { .. }, _) | (_, 0) => {
                course.tally.unasked();
                0
            }
            _ => {
                course.tally.ended(Fate::Wrong, 1);
                1
            }
        };
        let gone = self.part(course, at, Fate::BehindWrong, wrong.to_string());
        course.tally.ended(Fate::BehindWrong, gone - wronged);
    }

    /// A connection has gone, and with it all that was due on it.
    fn lose(&mut self, course: &mut Course, at: usize, fate: Fate, why: String) {
        let gone = self.part(course, at, fate, why);
        course.tally.ended(fate, gone);
    }

    /// Closes a connection: how many requests were asked on it or waited for it, which are the caller's to account for,
    /// once.
    fn part(&mut self, course: &mut Course, at: usize, fate: Fate, why: String) -> u64 {
        let connection = &mut self.connections[at];
        let waiting = u64::from(connection.due - connection.taken);
        connection.taken = connection.due;
        course.tally.lost();
        let gone = connection.close(fate, why) as u64 + waiting;
        if course.asking.is_closed && gone > 0 {
            course.tally.broke();
        }
        gone
    }

    /// The wait is over. A connection with an answer still to come would have it in the next segment.
    fn give_up(&mut self, course: &mut Course) {
        for connection in &mut self.connections {
            let waiting = u64::from(connection.due - connection.taken);
            course.tally.ended(Fate::NeverAsked, waiting);
            connection.taken = connection.due;
            if connection.in_flight() > 0 {
                let why = "a request on it was not answered in time".to_owned();
                let lost = connection.close(Fate::TimedOut, why);
                course.tally.lost();
                if course.asking.is_closed {
                    course.tally.broke();
                }
                course.tally.ended(Fate::TimedOut, lost as u64);
            }
        }
    }
}

impl Course {
    /// Up to `n` more requests of a closed loop are due now; how many are, of one that has a number of them.
    fn more(&mut self, n: u32, now_ns: u64) -> u32 {
        let due = n.min(self.left);
        if self.asking.requests.is_some() {
            self.left -= due;
            if self.left == 0 {
                self.end_ns = self.end_ns.min(now_ns);
            }
        }
        self.tally.due(due.into());
        due
    }

    /// Over how long the connections of a closed loop begin, one after the other, ns: a thousand at once would be lost
    /// in part, since a cable's ring has room for 256.
    fn start_ns(&self, connections: u32) -> u64 {
        if self.asking.requests.is_some() {
            return START_EACH_NS * u64::from(connections);
        }
        let length_ns = self.asking.end_ns(&self.timetable) - self.asking.schedule.t0_ns;
        (length_ns / START_PARTS).min(START_NS_MAX)
    }

    /// When a request of an open loop is due.
    fn due_ns(&self, number: u32) -> u64 {
        self.timetable.due_ns(&self.asking.schedule, number)
    }

    /// When the next request is due, or the next connection of a closed loop begins; `None` if none is before the end.
    fn next_ns(&self, connections: u32) -> Option<u64> {
        let Asking { schedule, is_closed, .. } = self.asking;
        let (all, at_ns) = match is_closed {
            true => {
                let start_ns = self.start_ns(connections);
                let part = u64::from(self.next) * start_ns / u64::from(connections);
                (connections, schedule.t0_ns + part)
            }
            false => (schedule.frames, self.due_ns(self.next)),
        };
        (self.next < all && self.left > 0 && at_ns <= self.end_ns).then_some(at_ns)
    }

    /// When answers count for the rate: in a closed loop from when all connections have begun to the end, so that one
    /// that was lost and sent again counts as one and not as the time it took; else until what was due last had time to
    /// be answered.
    fn counted_ns(&self, connections: u32) -> Range<u64> {
        let t0_ns = self.asking.schedule.t0_ns;
        match (self.asking.is_closed, self.asking.requests) {
            (true, None) => t0_ns + self.start_ns(connections)..self.end_ns,
            (true, Some(_)) => t0_ns..u64::MAX,
            (false, _) => t0_ns..self.end_ns + LAST_NS,
        }
    }

    fn close(self, connections: u32) -> Asked {
        let Asking { schedule, is_closed, requests } = self.asking;
        let rate = |n: u64, ns: u64| n as f64 * 1e9 / ns.max(1) as f64;
        let took_ns = self.looked_ns.saturating_sub(schedule.t0_ns);
        let length_ns = self.end_ns - schedule.t0_ns;
        let (rates, counted_for_ns) = match (is_closed, requests) {
            // How long it takes is what is asked.
            (true, Some(_)) => {
                let all_ns = self.tally.last_ns().saturating_sub(schedule.t0_ns);
                let asked = rate(self.tally.all_asked(), all_ns);
                ([asked, asked], all_ns)
            }
            // It has no rate to be behind of, but it may have begun late.
            (true, None) => {
                let asked = rate(self.tally.all_asked(), length_ns);
                let most_ns = 2 * self.start_ns(connections);
                let begun = asked * (most_ns as f64 / took_ns.max(1) as f64).min(1.0);
                let counted_ns = self.counted_ns(connections);
                ([asked, begun], counted_ns.end.saturating_sub(counted_ns.start))
            }
            (false, _) => {
                let taken_up = rate(self.next.into(), took_ns + schedule.interval_ns);
                ([self.timetable.rate_pps(&schedule), taken_up], length_ns + schedule.interval_ns)
            }
        };
        self.tally.close(connections, counted_for_ns, rates)
    }
}
