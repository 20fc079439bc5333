//! CPUs that do not sleep while a race measures, where a scenario asks for that (`awake`).
//!
//! A CPU with nothing to do takes time to wake, and a virtual one may have been given to another guest meanwhile: the
//! generator's next burst is late by milliseconds, and all figures scatter more. The kernel can wait for work
//! in a loop instead, which takes time from no task: a request for a wake-up latency of 0 us, which lasts as long as
//! its file is open, so as long as this process at most (Documentation/power/pm_qos_interface.rst). The meter books
//! that loop as idle.
//!
//! It holds for all CPUs. On the arm's the time to wake is part of what a lane that blocks costs, so it is no default.
//! A program of the policy SCHED_IDLE on the generator's CPU alone is no way around: where each session has its share
//! (sched_autogroup), it competes as its session, and the scheduler let it run for 3 to 5 ms beside a client that was
//! woken (EEVDF protects a slice; seen on 6.18).

use crate::error::RaceError;
use std::fs::{self, File, OpenOptions};
use std::io::Write;

/// A request for the longest time that a CPU may take to wake, as four bytes, us.
const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";
/// What sends CPUs to sleep; `none` where the kernel only halts them, and heeds no such request.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// CPUs are awake until this is dropped.
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// Asks the kernel that no CPU takes any time to wake.
    ///
    /// # Errors
    /// When it takes no such request.
    pub(crate) fn request() -> Result<Awake, RaceError> {
        let failed = |why: String| RaceError::Child {
            what: "`awake`".to_owned(),
            why: format!("{why}; leave it out, or boot with idle=poll"),
        };
        let driver = fs::read_to_string(IDLE_DRIVER).unwrap_or_default();
        if matches!(driver.trim(), "" | "none") {
            return Err(failed(format!(
                "no idle driver ({IDLE_DRIVER}), so the kernel halts CPUs in spite of such a request"
            )));
        }
        let request = || {
            let mut file = OpenOptions::new().write(true).open(LATENCY_DEVICE)?;
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok(Awake { _request: file })
        };
        request().map_err(|error: std::io::Error| failed(format!("{LATENCY_DEVICE}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_testkit::skip;
    use std::io::Read;

    fn requested_us() -> std::io::Result<i32> {
        let mut bytes = [0; 4];
        File::open(LATENCY_DEVICE)?.read_exact(&mut bytes)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    #[test]
    fn a_request_lasts_as_long_as_the_race() {
        // Other programs of this host may ask for the same; the kernel heeds the strictest.
        let before = match requested_us() {
            Ok(us) => us,
            Err(why) => return skip(format!("{LATENCY_DEVICE}: {why}")),
        };
        match Awake::request() {
            Ok(_awake) => assert_eq!(requested_us().unwrap(), 0),
            Err(why) => {
                assert!(why.to_string().contains("leave it out"), "{why}");
                return skip(why);
            }
        }
        assert_eq!(requested_us().unwrap(), before);
    }
}
