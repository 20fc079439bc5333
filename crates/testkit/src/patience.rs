//! How long a behaviour waits for traffic that is on its way: a bounded number of waits of which each
//! takes its time.
//!
//! A lane may answer a wait at once and then have nothing to show, for as long as the machine keeps it
//! from getting on: a hypervisor takes a CPU away in the middle of a delivery. A count of such waits
//! would be over in microseconds, so this one naps before it asks a second time. What must always
//! hold: `waits_max` waits in vain take at least half as many naps. Does not judge a lane that is
//! awake for nothing; the behaviours that count turns do.

use laneway_core::{ClockDomain, Wake};
use std::{thread, time::Duration};

/// What a wait should have taken that ended at once for nothing.
const NAP: Duration = Duration::from_millis(10);

/// Waits so far, and how the last one ended.
pub struct Patience {
    waits_left: usize,
    is_woken: bool,
    nap: Duration,
}

impl Patience {
    /// For so many waits in vain.
    pub fn new(waits_max: usize) -> Patience {
        Patience { waits_left: waits_max, is_woken: false, nap: NAP }
    }

    /// The same on this lane's clock: where time is virtual nothing comes of a nap.
    pub fn on(self, clock: ClockDomain) -> Patience {
        let nap = if clock == ClockDomain::Virtual { Duration::ZERO } else { self.nap };
        Patience { nap, ..self }
    }

    /// No wait is left.
    pub fn is_over(&self) -> bool {
        self.waits_left == 0
    }

    /// Something arrived, so that the last wait was not in vain.
    pub fn note_arrival(&mut self) {
        self.is_woken = false;
    }

    /// Waits as `wait` does, after a nap if the last one promised what did not come.
    pub fn wait(&mut self, wait: impl FnOnce() -> Wake) {
        if self.is_woken {
            thread::sleep(self.nap);
        }
        self.waits_left = self.waits_left.saturating_sub(1);
        self.is_woken = wait() == Wake::Ready;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_after_so_many_waits_however_they_end() {
        for wake in [Wake::Timeout, Wake::Ready] {
            let (mut patience, mut waits) = (Patience::new(3), 0);
            while !patience.is_over() {
                waits += 1;
                patience.wait(|| wake);
            }
            assert_eq!(waits, 3, "{wake:?}");
        }
    }

    #[test]
    fn only_a_wake_that_nothing_arrived_after_makes_it_nap() {
        let mut patience = Patience::new(9);
        assert!(!patience.is_woken);
        patience.wait(|| Wake::Timeout);
        assert!(!patience.is_woken, "the wait took its time");
        patience.wait(|| Wake::Ready);
        assert!(patience.is_woken);
        patience.note_arrival();
        assert!(!patience.is_woken, "the promise was kept");
    }
}
