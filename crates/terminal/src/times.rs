//! Times as people type them.

use std::time::Duration;

/// The longest time that may be given: beyond a year it is a typing error.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// A time: a number of seconds, or one with `ms`, `s`, `m` or `h`; more than 0 and at most a year.
///
/// # Errors
/// What it may be.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("use a number with ms, s, m or h, such as 500ms or 30m".to_owned()),
    };
    let seconds: f64 = digits
        .parse()
        .map_err(|_| "use a number of seconds, or such as 500ms or 30m".to_owned())?;
    match Duration::try_from_secs_f64(seconds * unit_s) {
        Ok(duration) if (Duration::from_nanos(1)..=DURATION_MAX).contains(&duration) => {
            Ok(duration)
        }
        _ => Err("use more than 0 and at most a year".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_a_unit_is_given() {
        let parsed = ["2", "0.5", "500ms", "30m", "24h"].map(|text| duration(text).unwrap());
        assert_eq!(parsed.map(|d| d.as_millis()), [2000, 500, 500, 1_800_000, 86_400_000]);
        for text in ["", "s", "0", "-1", "1d", "nan", "inf", "1e99", "500 ms", "9000h", "3\u{b5}s"]
        {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }
}
