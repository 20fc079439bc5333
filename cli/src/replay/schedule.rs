//! When each frame is due: the capture's times, or a rate.
//!
//! Times count from the first frame and never go back. In the capture's own time a further capture, or
//! a further pass, begins when the one before has ended, and a record that is earlier than the one
//! before it is due together with it, and so is one for which the capture has no time.

/// What decides when a frame is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pacing {
    /// The capture's times, so many times as fast.
    Capture {
        /// Above 0.
        multiplier: f64,
    },
    /// A frame every so often.
    Frames {
        /// Frames per second, above 0.
        per_second: f64,
    },
    /// As long as the frames before it take at a rate.
    Bits {
        /// Bits per second, above 0.
        per_second: f64,
    },
    /// At once.
    Topspeed,
}

/// The times of one replay.
#[derive(Debug)]
pub(super) struct Schedule {
    pacing: Pacing,
    frames: u64,
    bits: u64,
    /// When the capture that is being read began, and its own time then, once it has one.
    began_ns: u64,
    began_ts_ns: Option<u64>,
    latest_ns: u64,
}

impl Schedule {
    pub(super) fn new(pacing: Pacing) -> Schedule {
        Schedule { pacing, frames: 0, bits: 0, began_ns: 0, began_ts_ns: None, latest_ns: 0 }
    }

    /// When the next frame, captured at `ts_ns` if that is known, is due; `begins` for the first of a capture.
    pub(super) fn next_ns(&mut self, ts_ns: Option<u64>, bytes: usize, begins: bool) -> u64 {
        if begins {
            (self.began_ns, self.began_ts_ns) = (self.latest_ns, None);
        }
        let at_ns = match self.pacing {
            Pacing::Capture { multiplier } => {
                let since =
                    |ts_ns: u64| ts_ns.saturating_sub(*self.began_ts_ns.get_or_insert(ts_ns));
                // Without a time it is due together with the one before.
                let since_ns = ts_ns.map_or(0, since);
                // Whole numbers where they will do: nothing is rounded at the capture's own speed.
                let since_ns = if multiplier == 1.0 {
                    since_ns
                } else {
                    (since_ns as f64 / multiplier) as u64
                };
                self.began_ns.saturating_add(since_ns)
            }
            Pacing::Frames { per_second } => (self.frames as f64 * 1e9 / per_second) as u64,
            Pacing::Bits { per_second } => (self.bits as f64 * 1e9 / per_second) as u64,
            Pacing::Topspeed => 0,
        };
        self.frames += 1;
        self.bits += bytes as u64 * 8;
        self.latest_ns = self.latest_ns.max(at_ns);
        self.latest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times<T: Copy + Into<Option<u64>>>(pacing: Pacing, frames: &[(T, usize, bool)]) -> Vec<u64> {
        let mut schedule = Schedule::new(pacing);
        frames
            .iter()
            .map(|&(ts_ns, bytes, begins)| schedule.next_ns(ts_ns.into(), bytes, begins))
            .collect()
    }

    #[test]
    fn a_capture_keeps_its_distances_and_the_next_begins_where_it_ended() {
        let frames = [
            (1_000, 60, true),
            (1_500, 60, false),
            (1_200, 60, false),
            (2_000, 60, false),
            (70, 60, true),
            (80, 60, false),
        ];
        let once = Pacing::Capture { multiplier: 1.0 };
        assert_eq!(times(once, &frames), [0, 500, 500, 1_000, 1_000, 1_010]);
        let fast = Pacing::Capture { multiplier: 10.0 };
        assert_eq!(times(fast, &frames), [0, 50, 50, 100, 100, 101]);
    }

    /// A time of 0 would have the next frame wait for as long as since 1970.
    #[test]
    fn a_frame_without_a_time_is_due_with_the_one_before() {
        let now: u64 = 1_700_000_000_000_000_000;
        let frames = [
            (None, 60, true),
            (Some(now), 60, false),
            (Some(now + 500), 60, false),
            (None, 60, false),
            (Some(now + 700), 60, false),
            (None, 60, true),
            (Some(70), 60, false),
            (Some(80), 60, false),
        ];
        let once = Pacing::Capture { multiplier: 1.0 };
        assert_eq!(times(once, &frames), [0, 0, 500, 500, 700, 700, 700, 710]);
    }

    #[test]
    fn a_rate_is_met_from_the_first_frame_on_whatever_the_capture_says() {
        let frames = [(9, 1_000, true), (3, 500, false), (7, 60, true)];
        let thousand = Pacing::Frames { per_second: 1_000.0 };
        assert_eq!(times(thousand, &frames), [0, 1_000_000, 2_000_000]);
        let megabit = Pacing::Bits { per_second: 1e6 };
        assert_eq!(times(megabit, &frames), [0, 8_000_000, 12_000_000]);
        assert_eq!(times(Pacing::Topspeed, &frames), [0, 0, 0]);
    }
}
