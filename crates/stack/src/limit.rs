//! A bound on how often something may happen, on time as a value.

/// A token bucket: `per_second` on average, `burst` at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// What one token costs in nanoseconds; 0 where the rate is 0 and nothing is ever allowed.
    token_ns: u64,
    /// What can be saved up.
    full_ns: u64,
    saved_ns: u64,
    at_ns: u64,
}

impl RateLimit {
    /// Starts full. A rate of 0 allows nothing.
    pub(crate) fn new(per_second: u32, burst: u32) -> RateLimit {
        let token_ns = 1_000_000_000u64.checked_div(u64::from(per_second)).unwrap_or(0);
        let full_ns = token_ns * u64::from(burst.max(1));
        RateLimit { token_ns, full_ns, saved_ns: full_ns, at_ns: 0 }
    }

    /// True if it may happen now, and counts it.
    pub(crate) fn allow(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns.max(self.at_ns);
        self.saved_ns = self.saved_ns.saturating_add(passed_ns).min(self.full_ns);
        if self.token_ns == 0 || self.saved_ns < self.token_ns {
            return false;
        }
        self.saved_ns -= self.token_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_the_burst_and_then_the_rate() {
        let mut limit = RateLimit::new(10, 3);
        let now = 5_000_000_000;
        assert_eq!((0..10).filter(|_| limit.allow(now)).count(), 3);
        assert!(!limit.allow(now + 99_000_000));
        assert!(limit.allow(now + 100_000_000) && !limit.allow(now + 100_000_000));
    }

    #[test]
    fn a_rate_of_nothing_allows_nothing() {
        let mut limit = RateLimit::new(0, 5);
        assert!(!limit.allow(0) && !limit.allow(u64::MAX));
    }
}
