//! Which frames become records: sampling, capture filter, rate limit, in this order and with the
//! same arithmetic as the kernel half (`admit`, `lw_filter_admits`, `within_rate`).

use crate::config::{Config, RATE_BURST_NS};
use laneway_core::DropReason;
use laneway_flow::{Record, RecordMatch};

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
            filter: config.filter.clone(),
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
        if self.rate_interval_ns > 0 {
            let due_ns = self.rate_due_ns.max(record.ts_ns);
            if due_ns - record.ts_ns > RATE_BURST_NS {
                return Err(DropReason::RateLimited);
            }
            self.rate_due_ns = due_ns + self.rate_interval_ns;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn sampling_keeps_every_nth_by_number() {
        let admission = Admission::new(&Config { sample: 4, ..Config::default() });
        assert_eq!((0..16).filter(|&n| admission.samples(n)).count(), 4);
    }
}
