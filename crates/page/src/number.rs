//! Numbers as people read them: three significant digits for what was measured, every digit for
//! what was counted or asked for, groups of three apart, the unit never left out.
//!
//! Groups are kept apart by a narrow space and a number is tied to its unit by a hard space, which
//! suits a page. [`plain`] turns both into what suits a terminal. Nothing here knows what a number
//! means, and no value, however odd, makes these functions fail: what is not finite shows as
//! [`ABSENT`].

/// Between groups of three digits: narrow, and no line break.
const GROUP: char = '\u{202f}';
/// Between a number and its unit: no line break.
const TIE: char = '\u{a0}';
/// The smallest percentage that is shown by its digits.
const PERCENT_MIN: f64 = 0.001;
/// Stands for a figure that is not there.
pub const ABSENT: &str = "\u{2013}";

/// A count or a setting: every digit.
pub fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// The noun that goes with a count: `hole` for 1, `holes` for anything else. For nouns that take an s.
pub fn nouns(n: u64, noun: &str) -> String {
    format!("{noun}{}", if n == 1 { "" } else { "s" })
}

/// A count that may be negative, with its sign.
pub fn signed_count(n: i64) -> String {
    let sign = if n < 0 { "\u{2212}" } else { "+" };
    format!("{sign}{}", count(n.unsigned_abs()))
}

/// A measured value: three significant digits.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // Let the formatter round first: 999.6 has four digits before the point, not three.
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

/// A ratio: three decimals around one, where the third one matters.
pub fn ratio(value: f64) -> String {
    if (0.1..10.0).contains(&value) { format!("{value:.3}") } else { figure(value) }
}

/// A share as a percentage; of one below [`PERCENT_MIN`] only that.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent != 0.0 && percent.abs() < PERCENT_MIN {
        return tied(&format!("<{PERCENT_MIN}"), "%");
    }
    tied(&figure(percent), "%")
}

/// A confidence in percent, rounded down so that none shows as certainty: 95, 97.5, 99.9.
pub fn confidence_percent(confidence: f64) -> f64 {
    // 0.95 of 1,000 may be a hair less than 950.
    (confidence * 1e3 + 1e-6).floor() / 10.0
}

/// A number with its unit.
pub fn tied(number: &str, unit: &str) -> String {
    format!("{number}{TIE}{unit}")
}

/// A time in the unit that leaves one to three digits before the point.
pub fn duration(ns: f64) -> String {
    let (scale, unit) = match ns.abs() {
        ns if ns < 999.5 => (1.0, "ns"),
        ns if ns < 999.5e3 => (1e3, "\u{b5}s"),
        ns if ns < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    tied(&figure(ns / scale), unit)
}

/// A rate per second in the shortest form, for axes: `50k`, `1.2M`.
pub fn short(value: f64) -> String {
    let (scale, prefix) = match value.abs() {
        v if v < 1e3 => (1.0, ""),
        v if v < 1e6 => (1e3, "k"),
        v if v < 1e9 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    let scaled = (value / scale * 1e3).round() / 1e3;
    format!("{scaled}{prefix}")
}

/// A moment as `2026-11-21 07:55:26 UTC`.
pub fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years (146,097 days): with the year beginning
    // in March the leap day is its last, so months follow from the day by arithmetic alone.
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

/// The same text for terminals and Markdown: commas and ordinary spaces.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            GROUP => ',',
            TIE => ' ',
            '\u{2212}' => '-',
            '\u{2013}' => '-',
            '\u{b5}' => 'u',
            other => other,
        })
        .collect()
}

/// Sets a narrow space between groups of three digits before the point.
fn grouped(digits: &str) -> String {
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let mut text = String::with_capacity(digits.len() + 8);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            text.push(GROUP);
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_values_have_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.012_345, "0.0123"),
            (0.999_6, "1.00"),
            (12.345, "12.3"),
            (999.6, "1,000"),
            (123_456.0, "123,000"),
            (-5.0, "-5.00"),
            (1.5e18, "1.50e18"),
            (2e-7, "2.00e-7"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(plain(&figure(value)), expected);
        }
    }

    #[test]
    fn a_percentage_too_small_to_be_measured_is_shown_as_that() {
        let shares = [0.0, 1.12e-7, -1.12e-7, 1e-5, 0.0123];
        let shown = shares.map(|share| plain(&percent(share)));
        assert_eq!(shown, ["0 %", "<0.001 %", "<0.001 %", "0.00100 %", "1.23 %"]);
    }

    #[test]
    fn no_confidence_is_shown_as_certainty() {
        let shown = [0.95, 0.975, 0.99, 0.9975, 0.99999].map(confidence_percent);
        assert_eq!(shown, [95.0, 97.5, 99.0, 99.7, 99.9]);
        assert_eq!(confidence_percent(1.0 - 0.05), 95.0);
    }

    #[test]
    fn one_is_one_and_none_are_many() {
        assert_eq!([0, 1, 2].map(|n| nouns(n, "hole")), ["holes", "hole", "holes"]);
    }

    #[test]
    fn counts_keep_every_digit() {
        assert_eq!(plain(&count(12_345_678)), "12,345,678");
        assert_eq!(plain(&count(999)), "999");
        assert_eq!(plain(&signed_count(-1_234)), "-1,234");
    }

    #[test]
    fn times_change_unit_where_the_digits_would_overflow() {
        for (ns, expected) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (999.7, "1.00 us"),
            (41_250.0, "41.2 us"),
            (2.5e6, "2.50 ms"),
            (7e9, "7.00 s"),
        ] {
            assert_eq!(plain(&duration(ns)), expected);
        }
    }

    #[test]
    fn ratios_keep_the_third_decimal_around_one() {
        assert_eq!((ratio(1.0034).as_str(), ratio(0.0123).as_str()), ("1.003", "0.0123"));
        assert_eq!(ratio(12.34), "12.3");
    }

    #[test]
    fn moments_follow_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_247_726_000_000_000), "2026-11-21 07:55:26 UTC");
    }
}
