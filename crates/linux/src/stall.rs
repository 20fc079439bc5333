//! How long a transmit queue has taken nothing: the bound on keeping frames for it.

/// The longest that a queue may take nothing while a lane keeps frames for it. Slow links stand still for
/// milliseconds; one that is dead must not keep its frames for ever.
const STALL_NS_MAX: u64 = 1_000_000_000;

/// A queue that refuses. Time arrives as a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    since_ns: Option<u64>,
}

impl Stall {
    /// The queue took something.
    pub fn ended(&mut self) {
        self.since_ns = None;
    }

    /// The queue is full at `now_ns`. True while what it refused is worth keeping; false, once, when it has
    /// taken nothing for a second.
    pub fn is_bearable(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let is_bearable = now_ns.saturating_sub(since_ns) < STALL_NS_MAX;
        if !is_bearable {
            self.ended();
        }
        is_bearable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_kept_for_a_second_from_the_last_one_taken() {
        let mut stall = Stall::default();
        assert!(stall.is_bearable(5) && stall.is_bearable(STALL_NS_MAX));
        stall.ended();
        assert!(stall.is_bearable(STALL_NS_MAX + 4) && stall.is_bearable(2 * STALL_NS_MAX + 3));
        assert!(!stall.is_bearable(2 * STALL_NS_MAX + 4));
        assert!(stall.is_bearable(2 * STALL_NS_MAX + 5), "a new stall");
    }
}
