//! Counting: a case is run twice under valgrind, which tells how many instructions each run took.

use crate::cases::Case;
use std::env;
use std::process::{Command, Stdio};

/// The longer run does so many times the work of the shorter one.
const LONGER: u64 = 3;

/// Instructions per unit of work.
///
/// # Errors
/// Valgrind is not installed, or the program failed under it.
pub(crate) fn per_unit(case: &Case) -> Result<f64, String> {
    let short = instructions(case.name, case.times)?;
    let long = instructions(case.name, LONGER * case.times)?;
    let units = (LONGER - 1) * case.times * case.units;
    Ok(long.saturating_sub(short) as f64 / units as f64)
}

fn instructions(name: &str, times: u64) -> Result<u64, String> {
    let program = env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", name, &times.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|why| format!("cannot run valgrind: {why}; apt-get install valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("case {name} under valgrind: {}\n{text}", output.status));
    }
    total(&text).ok_or_else(|| format!("valgrind reported no instructions:\n{text}"))
}

/// Of the line `==12== I   refs:      1,234,567`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("refs:") && line.contains(" I "))?;
    let number: String = line.rsplit(':').next()?.chars().filter(char::is_ascii_digit).collect();
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_that_of_instructions() {
        let text = "==7== Cachegrind, a cache and branch-prediction profiler\n==7== \n\
                    ==7== I   refs:      1,234,567\n==7== I1  misses:        9\n";
        assert_eq!(total(text), Some(1_234_567));
        assert_eq!(total("==7== D   refs:  12"), None);
    }
}
