//! Times as the page of a trace shows them, beyond what every report shows.

use laneway_page::number::{duration, tied};

/// A whole number of nanoseconds, as [`duration`].
pub(crate) fn duration_ns(ns: u64) -> String {
    if ns < 1000 { tied(&ns.to_string(), "ns") } else { duration(ns as f64) }
}

/// A place on the time line of a trace: to the microsecond, because one looks it up elsewhere.
pub(crate) fn moment(ns: u64) -> String {
    tied(&format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000), "s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_are_whole_and_places_have_microseconds() {
        assert_eq!(duration_ns(375), "375\u{a0}ns");
        assert_eq!(duration_ns(22_400_000), "22.4\u{a0}ms");
        assert_eq!(moment(1_500_001_999), "1.500001\u{a0}s");
    }
}
