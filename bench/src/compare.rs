//! The baseline file, and what a count is worth beside it.

use crate::cases::{self, CASES, Case};
use crate::count;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// More instructions than this, as a share of the baseline, break the check.
const GROWTH_MAX: f64 = 0.05;
const HEADING: &str =
    "# Instructions per unit of work, release build; `make bench-quick ARGS=update` writes it.\n";

/// Instructions per unit, by case.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    instructions: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Within the limit.
    Same,
    /// More than the limit allows.
    Grew,
    /// So much less that the baseline no longer guards it.
    Shrank,
    /// The baseline does not have the case.
    New,
}

fn judge(before: Option<f64>, now: f64) -> Outcome {
    match before {
        None => Outcome::New,
        Some(before) if now > before * (1.0 + GROWTH_MAX) => Outcome::Grew,
        Some(before) if now < before * (1.0 - GROWTH_MAX) => Outcome::Shrank,
        Some(_) => Outcome::Same,
    }
}

/// Counts these cases, or all, and prints each beside the baseline. True if none grew too much.
pub(crate) fn check(baseline: &Path, names: &[&str]) -> Result<bool, String> {
    let known = read(baseline)?;
    let chosen: Vec<&Case> = match names {
        [] => CASES.iter().collect(),
        names => names.iter().map(|name| cases::find(name)).collect::<Result<_, _>>()?,
    };
    println!("{:<14} {:>12} {:>12} {:>9}", "case", "baseline", "now", "change");
    let mut is_sound = true;
    for case in chosen {
        let now = count::per_unit(case)?;
        let before = known.instructions.get(case.name).copied();
        let outcome = judge(before, now);
        let change = before
            .map_or_else(String::new, |before| format!("{:+.1} %", 100.0 * (now / before - 1.0)));
        let before = before.map_or_else(|| "-".to_owned(), |before| format!("{before:.1}"));
        let note = match outcome {
            Outcome::Same => "",
            Outcome::Grew => "  GREW",
            Outcome::Shrank => "  cheaper: write the baseline anew",
            Outcome::New => "  not in the baseline: write it anew",
        };
        println!("{:<14} {before:>12} {now:>12.1} {change:>9}  per {}{note}", case.name, case.unit);
        is_sound &= outcome != Outcome::Grew;
    }
    if !is_sound {
        println!(
            "a hot path takes more than {:.0} % more instructions than {} says; mend it, or write the \
             baseline anew and say why in the commit: make bench-quick ARGS=update",
            100.0 * GROWTH_MAX,
            baseline.display()
        );
    }
    Ok(is_sound)
}

/// Counts every case and writes the baseline.
pub(crate) fn update(baseline: &Path) -> Result<bool, String> {
    let mut counted = Baseline::default();
    for case in CASES {
        let now = count::per_unit(case)?;
        println!("{:<14} {now:>12.1} per {}", case.name, case.unit);
        counted.instructions.insert(case.name.to_owned(), (now * 10.0).round() / 10.0);
    }
    let text = toml::to_string(&counted).map_err(|why| why.to_string())?;
    fs::write(baseline, format!("{HEADING}{text}"))
        .map_err(|why| format!("cannot write {}: {why}", baseline.display()))?;
    Ok(true)
}

fn read(path: &Path) -> Result<Baseline, String> {
    let text = fs::read_to_string(path).map_err(|why| {
        format!("cannot read {}: {why}; make bench-quick ARGS=update writes it", path.display())
    })?;
    toml::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_limit_breaks_the_check_and_nothing_else_does() {
        assert_eq!(judge(Some(100.0), 104.9), Outcome::Same);
        assert_eq!(judge(Some(100.0), 105.1), Outcome::Grew);
        assert_eq!(judge(Some(100.0), 94.9), Outcome::Shrank);
        assert_eq!(judge(None, 100.0), Outcome::New);
    }

    #[test]
    fn the_committed_baseline_has_every_case() {
        let known = read(&crate::baseline()).unwrap_or_else(|why| panic!("{why}"));
        let missing: Vec<_> =
            CASES.iter().filter(|case| !known.instructions.contains_key(case.name)).collect();
        assert!(
            missing.is_empty(),
            "{:?}",
            missing.iter().map(|case| case.name).collect::<Vec<_>>()
        );
    }
}
