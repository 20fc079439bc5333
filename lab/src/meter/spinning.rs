//! How much of an arm's time was spent on looking for what was not there.

/// What an arm did in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    /// Receive calls that found nothing (`Counters::polls_empty`).
    pub polls_empty: u64,
    /// Its own time, ns (tasks, NAPI threads, softirq of its interfaces).
    pub own_ns: u64,
}

/// Time of `window` that went into empty polls, ns: as many as there were, at the price that one has while nothing
/// is sent (`idle`), and never more than the arm's own time. It is part of the arm's price, and only shown: an arm
/// that spins would be free if it were taken off.
pub fn spun_ns(window: Polling, idle: Polling) -> u64 {
    if idle.polls_empty == 0 {
        return 0;
    }
    let spun =
        u128::from(window.polls_empty) * u128::from(idle.own_ns) / u128::from(idle.polls_empty);
    u64::try_from(spun).unwrap_or(u64::MAX).min(window.own_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE: Polling = Polling { polls_empty: 1_000, own_ns: 200_000 };

    #[test]
    fn an_empty_poll_costs_what_it_does_while_nothing_is_sent() {
        assert_eq!(spun_ns(Polling { polls_empty: 300, own_ns: 1_000_000 }, IDLE), 60_000);
    }

    #[test]
    fn who_was_never_seen_polling_does_not_spin() {
        let never = Polling { polls_empty: 0, own_ns: 50 };
        assert_eq!(spun_ns(Polling { polls_empty: 3, own_ns: 1_000 }, never), 0);
    }

    proptest! {
        #[test]
        fn nobody_spins_longer_than_it_runs(
            [polls_empty, own_ns, idle_polls, idle_ns] in any::<[u64; 4]>(),
        ) {
            let window = Polling { polls_empty, own_ns };
            let idle = Polling { polls_empty: idle_polls, own_ns: idle_ns };
            prop_assert!(spun_ns(window, idle) <= own_ns);
        }
    }
}
