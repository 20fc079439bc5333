//! What every lane must do for its bell, in every shape.
//!
//! A lane that is deaf fails here where its waits take no real time or end early by themselves; elsewhere
//! the test does not come to its end. No wall-clock time is asserted.

use laneway_core::{Bell, Lane, LaneError, Wake};
use std::{thread, time::Duration};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);
/// Early wake-ups are allowed, but not for ever.
const ATTEMPTS: usize = 50;

/// A turn of a lane: takes what makes a wait ready.
pub type Taking<'a, L> = &'a mut dyn FnMut(&mut L);

/// A bell rung before a wait ends it, and every one until it is answered; then it is silent.
pub fn before<L: Lane>(lane: &mut L, turn: Taking<'_, L>) {
    let bell = Bell::new().unwrap_or_else(|e| panic!("no bell: {e}"));
    lane.hear(&bell);
    for _ in 0..2 {
        times_out(lane, turn);
        thread::scope(|scope| drop(scope.spawn(|| bell.ring())));
        for wait in 0..3 {
            assert_eq!(ok(lane.wait(HOUR)), Wake::Ready, "wait {wait} with a bell that rings");
            turn(lane);
        }
        assert!(bell.answer() && !bell.answer(), "the lane leaves the answer to the engine");
    }
    times_out(lane, turn);
}

/// A bell rung by another thread while the lane waits ends the wait.
pub fn during<L: Lane>(lane: &mut L, turn: Taking<'_, L>) {
    let bell = Bell::new().unwrap_or_else(|e| panic!("no bell: {e}"));
    lane.hear(&bell);
    for nap_ms in [0, 1, 5, 20] {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(nap_ms));
                bell.ring();
            });
            while !bell.is_rung() {
                turn(lane);
                ok(lane.wait(HOUR)); // may wake early, for another reason
            }
        });
        assert_eq!(ok(lane.wait(HOUR)), Wake::Ready);
        assert!(bell.answer());
    }
}

fn times_out<L: Lane>(lane: &mut L, turn: Taking<'_, L>) {
    let is_silent = (0..ATTEMPTS).any(|_| {
        turn(lane);
        ok(lane.wait(Duration::from_millis(2))) == Wake::Timeout
    });
    assert!(is_silent, "no wait times out although the bell is silent");
}

fn ok<T>(result: Result<T, LaneError>) -> T {
    result.unwrap_or_else(|e| panic!("the lane failed: {e}"))
}
