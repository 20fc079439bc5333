//! One rate limit: a virtual schedule (GCRA) whose only state is when the next question is due; a question may come so
//! much before that. The kernel half keeps the same schedules by the same rules (`lw_echo_admit` in `bpf/echo.h`).

/// The fastest rate that can be distinguished from none: schedules count whole nanoseconds.
pub const PER_SECOND_MAX: u32 = 100_000_000;

/// So many per second on average, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// 1 to [`PER_SECOND_MAX`].
    pub per_second: u32,
    /// At least 1.
    pub burst: u32,
}

/// A schedule this far ahead, and farther than any schedule gets by itself, is of a clock that has
/// since been set back (a capture that starts over): it begins anew.
const CLOCK_STEP_NS: u64 = 1_000_000_000;

/// A schedule that tolerates so much may be kept by a clock that is one tick of the kernel's timer behind
/// (1 to 10 ms, by its configuration).
const COARSE_TOLERANCE_NS_MIN: u64 = 50_000_000;

/// A rate as both placements keep it. Mirror of `struct lw_echo_schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Nanoseconds per question; 0 is no limit.
    interval_ns: u64,
    /// How much too early a question may come.
    tolerance_ns: u64,
    /// See [`CLOCK_STEP_NS`].
    step_ns: u64,
}

impl Schedule {
    /// For questions that come one by one.
    pub(crate) fn of_frames(rate: Option<Rate>) -> Schedule {
        let Some(rate) = rate else {
            return Schedule { interval_ns: 0, tolerance_ns: u64::MAX, step_ns: u64::MAX };
        };
        // Rounded up: never faster than asked.
        let interval_ns = 1_000_000_000u64.div_ceil(u64::from(rate.per_second.max(1)));
        let tolerance_ns = interval_ns * u64::from(rate.burst.saturating_sub(1));
        let step_ns = tolerance_ns + interval_ns + CLOCK_STEP_NS;
        Schedule { interval_ns, tolerance_ns, step_ns }
    }

    /// For questions that come in trains: a train puts the schedule far ahead by right, which cannot
    /// be distinguished from a clock set back. Live lanes have none.
    pub(crate) fn of_trains(rate: Option<Rate>) -> Schedule {
        Schedule { step_ns: u64::MAX, ..Schedule::of_frames(rate) }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.interval_ns == 0
    }

    /// True when a clock that is a tick behind keeps it well enough: it then admits up to a tick's worth
    /// of questions sooner or later than the exact one, and as many in the long run.
    pub(crate) fn is_wide(&self) -> bool {
        self.is_off() || self.tolerance_ns >= COARSE_TOLERANCE_NS_MIN
    }

    /// The kernel half's form.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let words = [self.interval_ns, self.tolerance_ns, self.step_ns];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Admits `count` questions at once, or none of them. They are admitted if the first of them is
    /// due, and all are charged: a train is answered whole, and paid for afterwards.
    #[inline]
    pub(crate) fn admit(&self, due_ns: &mut u64, now_ns: u64, count: u64) -> bool {
        let mut due = (*due_ns).max(now_ns);
        if due - now_ns > self.step_ns {
            due = now_ns;
        }
        if due - now_ns > self.tolerance_ns {
            return false;
        }
        *due_ns = due.saturating_add(self.interval_ns.saturating_mul(count));
        true
    }
}
