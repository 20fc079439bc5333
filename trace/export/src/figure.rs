//! Figures as people read them: every digit of what was counted, three of what was measured, the unit tied to it.

/// Stands for a figure that is not there.
pub(crate) const ABSENT: &str = "\u{2013}";
/// Between groups of three digits: narrow, and no line break.
const GROUP: char = '\u{202f}';
/// Between a number and its unit: no line break.
const TIE: char = '\u{a0}';

/// A count: every digit.
pub(crate) fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// A measured value: three significant digits.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The formatter rounds first: 999.6 has four digits before the point, not three.
    let scientific = format!("{:.2e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an e");
    let exponent: i32 = exponent.parse().expect("{:e} writes a whole exponent");
    let sign = if value < 0.0 { "\u{2212}" } else { "" };
    if !(-4..15).contains(&exponent) {
        return format!("{sign}{mantissa}e{exponent}");
    }
    let decimals = usize::try_from(2 - exponent).unwrap_or(0);
    let rounded: f64 = scientific.parse().expect("{:e} writes a number");
    format!("{sign}{}", grouped(&format!("{rounded:.decimals$}")))
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    tied(&figure(share * 100.0), "%")
}

/// A number with its unit.
pub(crate) fn tied(number: &str, unit: &str) -> String {
    format!("{number}{TIE}{unit}")
}

/// A time in the unit that leaves one to three digits before the point.
pub(crate) fn duration(ns: f64) -> String {
    let (scale, unit) = match ns.abs() {
        ns if ns < 999.5 => (1.0, "ns"),
        ns if ns < 999.5e3 => (1e3, "\u{b5}s"),
        ns if ns < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    tied(&figure(ns / scale), unit)
}

/// A whole number of nanoseconds, likewise.
pub(crate) fn duration_ns(ns: u64) -> String {
    if ns < 1000 { tied(&ns.to_string(), "ns") } else { duration(ns as f64) }
}

/// A place on the time line of a trace: to the microsecond, because one looks it up elsewhere.
pub(crate) fn moment(ns: u64) -> String {
    format!("{}.{:06}{TIE}s", ns / 1_000_000_000, ns / 1000 % 1_000_000)
}

/// A moment as `2026-11-21 07:55:26 UTC`.
pub(crate) fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years (146,097 days): with the year beginning in March the leap day is
    // its last, so months follow from the day by arithmetic alone.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

fn grouped(digits: &str) -> String {
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(GROUP);
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits_and_counts_all() {
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(figure(999.6), "1\u{202f}000");
        assert_eq!(figure(0.012_34), "0.0123");
        assert_eq!(figure(f64::NAN), ABSENT);
        assert_eq!(percent(0.993), "99.3\u{a0}%");
    }

    #[test]
    fn times_change_unit_where_the_digits_would_overflow() {
        assert_eq!(duration(999.7), "1.00\u{a0}\u{b5}s");
        assert_eq!(duration_ns(375), "375\u{a0}ns");
        assert_eq!(duration_ns(22_400_000), "22.4\u{a0}ms");
        assert_eq!(moment(1_500_001_999), "1.500001\u{a0}s");
    }

    #[test]
    fn moments_follow_the_calendar() {
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_247_726_000_000_000), "2026-11-21 07:55:26 UTC");
    }
}
