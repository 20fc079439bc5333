//! Packet time: from the stamps of a capture to a clock that flows can live by.
//!
//! Stamps are not always in order. Queues of one card are written one after the other, captures are
//! merged, clocks are set, and a frame may hold a stamp from nowhere. The clock makes of each stamp the
//! frame's *flow time*, on one line that never runs back by more than [`BEHIND_NS`]:
//!
//! * A stamp at most [`AHEAD_NS`] ahead of the clock, or at most [`BEHIND_NS`] behind it, is *in order*:
//!   it is its own flow time. The clock is the latest of them.
//! * A stamp further ahead counts for the flow of its frame, but moves the clock only when the next
//!   frame is that far ahead, too; then to the earlier of both.
//! * A stamp further behind counts at the clock's time. When the next one is not before it, the
//!   stamps have *stepped back*: from then on all count from the clock's time on, by one offset. The
//!   offset before is kept beside it, so that frames of two clocks may follow each other in turns.
//!
//! The first stamp is no better than the second: if that is further behind, the clock starts with it.
//!
//! So one wrong stamp has no effect on another frame, and two in a row are believed. What comes out
//! depends on the order of the stamps alone. It is the counterpart of `struct lw_clock` (flow.h).

use crate::{Has, Record};

/// How far one stamp alone may move the clock.
pub const AHEAD_NS: u64 = 1_000_000_000;
/// How far behind the clock a stamp is still in order: what is late by [`AHEAD_NS`] stays in order
/// although one stamp has moved the clock by as much.
pub const BEHIND_NS: u64 = 2 * AHEAD_NS;

/// How the stamps were ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Stamps before that of an earlier frame, by at most [`BEHIND_NS`]: in order.
    pub late: u64,
    /// Stamps further from the clock that the next one did not confirm.
    pub strays: u64,
    /// Times that the stamps stepped back.
    pub steps: u64,
    /// Frames that the capture has no time for.
    pub untimed: u64,
}

impl Disorder {
    /// Adds what another clock saw.
    pub fn merge(&mut self, other: &Disorder) {
        self.late += other.late;
        self.strays += other.strays;
        self.steps += other.steps;
        self.untimed += other.untimed;
    }
}

/// When a frame was, for flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The frame's flow time in ns.
    pub time_ns: u64,
    /// No flow time of a later frame is before this.
    pub floor_ns: u64,
}

/// The clock. See the module's paragraph.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketClock {
    /// Stamps seen, up to 2: from then on the floor holds.
    stamps: u8,
    now_ns: u64,
    offset_ns: u64,
    other_offset_ns: u64,
    /// The last stamp, where it was out of order and nothing has confirmed it.
    suspect_ns: Option<u64>,
    disorder: Disorder,
}

impl PacketClock {
    /// The moment of the next record.
    #[inline]
    pub fn tick(&mut self, record: &Record) -> Moment {
        let time_ns = self.time_of(record);
        Moment { time_ns, floor_ns: self.floor_ns() }
    }

    /// Moves the clock on without a record: the source's clock is known to have got here.
    pub fn advance(&mut self, now_ns: u64) {
        self.stamps = 2;
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// The clock's time in ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// No flow time of a later frame is before this. A flow that has ended by it has ended.
    #[inline]
    pub fn floor_ns(&self) -> u64 {
        if self.stamps < 2 { 0 } else { self.now_ns.saturating_sub(BEHIND_NS) }
    }

    /// How the stamps were ordered so far.
    pub fn disorder(&self) -> &Disorder {
        &self.disorder
    }

    #[inline]
    fn time_of(&mut self, record: &Record) -> u64 {
        if record.has.contains(Has::NO_TIME) {
            self.disorder.untimed += 1;
            return self.now_ns;
        }
        let stamp_ns = record.ts_ns;
        if self.stamps < 2 {
            self.stamps += 1;
            if self.stamps == 1 {
                self.now_ns = stamp_ns;
            } else if self.is_behind(stamp_ns) {
                self.suspect_ns = Some(self.now_ns);
                self.now_ns = stamp_ns;
                return stamp_ns;
            }
        }
        let mut time_ns = stamp_ns.saturating_add(self.offset_ns);
        if self.is_out_of_order(time_ns) {
            let other_ns = stamp_ns.saturating_add(self.other_offset_ns);
            if self.is_out_of_order(other_ns) {
                return self.out_of_order(stamp_ns, time_ns);
            }
            time_ns = other_ns;
        }
        if self.suspect_ns.take().is_some() {
            self.disorder.strays += 1;
        }
        if time_ns < self.now_ns {
            self.disorder.late += 1;
        } else {
            self.now_ns = time_ns;
        }
        time_ns
    }

    #[inline]
    fn is_ahead(&self, time_ns: u64) -> bool {
        time_ns > self.now_ns.saturating_add(AHEAD_NS)
    }

    #[inline]
    fn is_behind(&self, time_ns: u64) -> bool {
        time_ns < self.now_ns.saturating_sub(BEHIND_NS)
    }

    #[inline]
    fn is_out_of_order(&self, time_ns: u64) -> bool {
        self.is_ahead(time_ns) || self.is_behind(time_ns)
    }

    #[cold]
    fn out_of_order(&mut self, stamp_ns: u64, time_ns: u64) -> u64 {
        let suspect_ns = self.suspect_ns.replace(stamp_ns);
        let before_ns = suspect_ns.map(|ns| ns.saturating_add(self.offset_ns));
        if time_ns > self.now_ns {
            match before_ns {
                Some(before_ns) if self.is_ahead(before_ns) => {
                    self.now_ns = before_ns.min(time_ns);
                    // The earlier of both is confirmed; the later may be far beyond it.
                    self.disorder.strays += u64::from(self.is_ahead(before_ns));
                }
                before => self.disorder.strays += u64::from(before.is_some()),
            }
            if !self.is_ahead(time_ns) {
                self.suspect_ns = None;
                self.now_ns = self.now_ns.max(time_ns);
            }
            return time_ns;
        }
        match (suspect_ns, before_ns) {
            (Some(suspect_ns), Some(before_ns))
                if self.is_behind(before_ns) && stamp_ns.saturating_add(AHEAD_NS) >= suspect_ns =>
            {
                self.disorder.steps += 1;
                self.other_offset_ns = self.offset_ns;
                // The first of the two counted at the clock's time, and still does.
                self.offset_ns = self.now_ns - suspect_ns;
                let time_ns = stamp_ns.saturating_add(self.offset_ns);
                if !self.is_ahead(time_ns) {
                    self.suspect_ns = None;
                    self.now_ns = self.now_ns.max(time_ns);
                }
                time_ns
            }
            _ => {
                self.disorder.strays += u64::from(suspect_ns.is_some());
                self.now_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const START_NS: u64 = 1_700_000_000 * S;

    /// Flow times and disorder of frames stamped so many seconds behind the start.
    fn times(stamps_s: &[i64]) -> (Vec<i64>, Disorder) {
        let mut clock = PacketClock::default();
        let at = |s: i64| START_NS.wrapping_add_signed(s * S as i64);
        let times = stamps_s.iter().map(|s| {
            let record = Record { ts_ns: at(*s), ..Record::default() };
            (clock.tick(&record).time_ns as i64 - START_NS as i64) / S as i64
        });
        (times.collect(), *clock.disorder())
    }

    #[test]
    fn one_wrong_stamp_moves_no_other_frame() {
        for wrong in [3600, -3600, 3, -4] {
            for at in 0..6usize {
                let mut stamps = [0, 0, 1, 1, 2, 2];
                stamps[at] += wrong;
                let (times, disorder) = times(&stamps);
                let others = |list: &[i64]| -> Vec<i64> {
                    list.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, t)| *t).collect()
                };
                let right = others(&[0, 0, 1, 1, 2, 2]);
                assert_eq!(others(&times), right, "{wrong} at {at}: {times:?}");
                assert_eq!(disorder.steps, 0, "{wrong} at {at}: {disorder:?}");
            }
        }
    }

    #[test]
    fn a_quiet_link_is_quiet_for_its_flows_and_moves_the_clock_one_frame_later() {
        let (times, disorder) = times(&[0, 600, 1200, 1200, 1800]);
        assert_eq!(times, [0, 600, 1200, 1200, 1800]);
        assert_eq!(disorder, Disorder::default());
    }

    #[test]
    fn time_goes_on_where_stamps_step_back_and_where_they_return() {
        let (times, disorder) = times(&[0, 1, -3600, -3599, -3598, -3597, 5, 6]);
        assert_eq!(times, [0, 1, 1, 2, 3, 4, 5, 6]);
        assert_eq!((disorder.steps, disorder.strays), (1, 0));
    }

    #[test]
    fn a_frame_without_a_time_counts_at_the_clocks() {
        let mut clock = PacketClock::default();
        clock.tick(&Record { ts_ns: START_NS, ..Record::default() });
        let record = Record { has: Has::NO_TIME, ..Record::default() };
        assert_eq!(clock.tick(&record).time_ns, START_NS);
        assert_eq!((clock.now_ns(), clock.disorder().untimed), (START_NS, 1));
    }

    proptest! {
        #[test]
        fn no_flow_time_is_before_the_floor_that_was_promised(
            stamps in proptest::collection::vec(
                prop_oneof![3 => START_NS..START_NS + 9 * S, 1 => any::<u64>()], 1..200),
        ) {
            let mut clock = PacketClock::default();
            let mut floor_ns = 0;
            for ts_ns in stamps {
                let moment = clock.tick(&Record { ts_ns, ..Record::default() });
                prop_assert!(moment.time_ns >= floor_ns && moment.floor_ns >= floor_ns);
                floor_ns = moment.floor_ns;
            }
        }

        #[test]
        fn what_is_late_by_no_more_than_a_second_keeps_its_time(
            steps in proptest::collection::vec((0u64..S, 0..S), 1..200),
        ) {
            let mut clock = PacketClock::default();
            let mut now_ns = START_NS;
            for (step_ns, late_ns) in steps {
                now_ns += step_ns;
                let ts_ns = now_ns - late_ns;
                let moment = clock.tick(&Record { ts_ns, ..Record::default() });
                prop_assert_eq!(moment.time_ns, ts_ns);
            }
            prop_assert_eq!(clock.disorder().steps, 0);
        }
    }
}
