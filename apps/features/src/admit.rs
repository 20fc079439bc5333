//! Which frames become records: sampling, capture filter, rate limit, in this order and with the same arithmetic as
//! the kernel half (`admit`, `lw_filter_admits`, `within_rate`). Times may be wrong here, as those of a capture are
//! another clock's; that of the kernel half goes forwards.

use crate::config::{Config, RATE_BURST_NS};
use laneway_core::DropReason;
use laneway_flow::{BEHIND_NS, Has, Record, RecordMatch};

/// The knobs that leave frames out, and their state.
#[derive(Debug)]
pub(crate) struct Admission {
    sample: u64,
    filter: Option<RecordMatch>,
    rate_interval_ns: u64,
    rate_due_ns: u64,
}

impl Admission {
    pub(crate) fn new(config: &Config) -> Admission {
        Admission {
            sample: u64::from(config.sample.max(1)),
            filter: config.filter,
            rate_interval_ns: config.rate_interval_ns(),
            rate_due_ns: 0,
        }
    }

    /// Before the frame is parsed, by its number alone.
    #[inline]
    pub(crate) fn samples(&self, number: u64) -> bool {
        self.sample == 1 || number.is_multiple_of(self.sample)
    }

    /// After it is parsed.
    #[inline]
    pub(crate) fn admits(&mut self, record: &Record) -> Result<(), DropReason> {
        if let Some(filter) = &self.filter
            && !filter.matches(record)
        {
            return Err(DropReason::Filtered);
        }
        if self.rate_interval_ns > 0 && !record.has.contains(Has::NO_TIME) {
            let due_ns = self.due_ns(record.ts_ns);
            if due_ns - record.ts_ns > RATE_BURST_NS {
                return Err(DropReason::RateLimited);
            }
            // Wraps as the kernel half's: only a stamp in the year 2554 gets there.
            self.rate_due_ns = due_ns.wrapping_add(self.rate_interval_ns);
        }
        Ok(())
    }

    /// When the next record is due. Frames in their order, or late by no more than flows allow, never leave it this far
    /// ahead: the stamp that put it there was wrong, or the clock was set back, and the schedule begins anew.
    #[inline]
    fn due_ns(&self, ts_ns: u64) -> u64 {
        let ahead_ns_max = RATE_BURST_NS + self.rate_interval_ns + BEHIND_NS;
        let due_ns = self.rate_due_ns.max(ts_ns);
        if due_ns - ts_ns > ahead_ns_max { ts_ns } else { due_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_flow::Has;
    use proptest::prelude::*;

    #[test]
    fn a_rate_limit_holds_over_time_and_allows_a_burst() {
        let mut admission = Admission::new(&Config { rate_max: 1000, ..Config::default() });
        let at = |ms: u64| Record { ts_ns: 1_000_000_000 + ms * 1_000_000, ..Record::default() };
        let at_once = (0..100).filter(|_| admission.admits(&at(0)).is_ok()).count();
        assert_eq!(at_once, 11, "10 ms worth of 1000/s, and the one due now");
        assert_eq!(admission.admits(&at(0)), Err(DropReason::RateLimited));
        assert_eq!((1..=1000).filter(|&ms| admission.admits(&at(ms)).is_ok()).count(), 1000);
    }

    #[test]
    fn a_wrong_time_stamp_costs_no_frame_behind_it() {
        let second_ns = 1_000_000_000u64;
        let admitted = |stamps: &mut dyn Iterator<Item = u64>| {
            let mut admission = Admission::new(&Config { rate_max: 1000, ..Config::default() });
            stamps
                .filter(|&ts_ns| admission.admits(&Record { ts_ns, ..Record::default() }).is_ok())
                .count()
        };
        let in_order = |n: u64| n * second_ns;
        assert_eq!(
            admitted(&mut (1..=100).map(|n| if n == 3 { u64::MAX / 2 } else { in_order(n) })),
            100
        );
        let set_back = |n| in_order(if n < 50 { 10_000 + n } else { n });
        assert_eq!(admitted(&mut (1..=100).map(set_back)), 100);
    }

    #[test]
    fn frames_without_a_time_are_not_limited_by_it() {
        let mut admission = Admission::new(&Config { rate_max: 1000, ..Config::default() });
        let timeless = Record { has: Has::NO_TIME, ..Record::default() };
        assert_eq!((0..100).filter(|_| admission.admits(&timeless).is_ok()).count(), 100);
    }

    #[test]
    fn what_the_filter_leaves_out_does_not_use_up_the_rate() {
        let filter = Some("ipv6".parse().expect("a rule"));
        let mut admission = Admission::new(&Config { rate_max: 100, filter, ..Config::default() });
        let four = Record { has: Has::IPV4, ..Record::default() };
        for _ in 0..1000 {
            assert_eq!(admission.admits(&four), Err(DropReason::Filtered));
        }
        assert_eq!(admission.admits(&Record { has: Has::IPV6, ..four }), Ok(()));
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_than_its_rate_and_one_burst(
            rate_max in 1u32..2_000_000_000,
            gaps in proptest::collection::vec(0u64..5_000_000, 1..500),
        ) {
            let mut admission = Admission::new(&Config { rate_max, ..Config::default() });
            let mut now_ns = 1_000_000_000u64;
            let mut admitted_ns = Vec::new();
            for gap_ns in gaps {
                now_ns += gap_ns;
                let record = Record { ts_ns: now_ns, ..Record::default() };
                if admission.admits(&record).is_ok() {
                    admitted_ns.push(now_ns);
                }
            }
            prop_assert!(!admitted_ns.is_empty(), "the first is always admitted");
            let rate = u128::from(rate_max);
            for (i, first_ns) in admitted_ns.iter().enumerate() {
                let stretch_ns = admitted_ns[admitted_ns.len() - 1] - first_ns + RATE_BURST_NS;
                let bound = u128::from(stretch_ns) * rate / 1_000_000_000 + 1;
                prop_assert!(((admitted_ns.len() - i) as u128) <= bound);
            }
        }

        #[test]
        fn any_order_of_time_stamps_is_survived(
            rate_max in any::<u32>(),
            stamps in proptest::collection::vec(any::<u64>(), 0..200),
        ) {
            let mut admission = Admission::new(&Config { rate_max, ..Config::default() });
            for ts_ns in stamps {
                let admitted = admission.admits(&Record { ts_ns, ..Record::default() });
                prop_assert!(matches!(admitted, Ok(()) | Err(DropReason::RateLimited)));
            }
        }
    }

    #[test]
    fn sampling_keeps_every_nth_by_number() {
        let admission = Admission::new(&Config { sample: 4, ..Config::default() });
        assert_eq!((0..16).filter(|&n| admission.samples(n)).count(), 4);
    }
}
