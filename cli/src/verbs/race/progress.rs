//! What a user who waits for a race sees: how long it may take, before it starts, and then one line, rewritten in
//! place on a terminal and repeated now and then where standard error is none.

use laneway_lab::race::{Expected, Progress};
use laneway_terminal as terminal;
use std::time::{Duration, Instant};

/// Between two lines where none can be rewritten.
const REPEAT: Duration = Duration::from_secs(10);

/// What is printed before a race starts.
pub(super) fn announced(title: &str, expected: &Expected) -> String {
    let Expected { arms, loads, generations, round, least, most } = *expected;
    let loads = if loads == 1 { "1 load".to_owned() } else { format!("{loads} loads") };
    let time = match least == most {
        true => format!("takes about {}", spoken(most)),
        false => format!(
            "takes {} if all is decided early, {} at most (--time)",
            spoken(least),
            spoken(most)
        ),
    };
    format!(
        "{title}: {time}; {arms} arms, the base twice, at {loads}: {:.1} s a round, up to {generations} generations",
        round.as_secs_f64()
    )
}

/// A time as a person would state an estimate.
fn spoken(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        s @ 0..120 => format!("{s} s"),
        s => format!("{} min", s.div_ceil(60)),
    }
}

/// How far a race is, in a line of at most 79 columns.
fn line(progress: &Progress<'_>) -> String {
    let Progress { generations: [done, planned], time: [so_far, most], .. } = progress;
    if progress.is_traced {
        let names: Vec<&str> = progress.trials.iter().map(|trial| trial.arm.as_str()).collect();
        return format!("traced {}", names.join(", "));
    }
    let [open, all] = progress.undecided;
    format!(
        "{:.0} s of {:.0} s, generation {done} of {planned}: {} of {all} verdicts decided",
        so_far.as_secs_f64(),
        most.as_secs_f64(),
        all - open
    )
}

/// Removes the line, where it is one that is rewritten.
pub(super) fn clear() {
    if terminal::stderr_is_terminal() {
        terminal::show_progress("");
    }
}

/// The line; removed when dropped, so that whatever is printed next stands alone.
pub(super) struct ProgressLine {
    is_rewritten: bool,
    pace: Pace,
    began: Instant,
}

impl ProgressLine {
    pub(super) fn new() -> ProgressLine {
        let is_rewritten = terminal::stderr_is_terminal();
        if is_rewritten {
            terminal::show_progress("starting the arms");
        }
        ProgressLine { is_rewritten, pace: Pace::default(), began: Instant::now() }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        if self.is_rewritten {
            terminal::show_progress(&line(progress));
        } else if self.pace.is_due(self.began.elapsed()) {
            terminal::note(&line(progress));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        clear();
    }
}

/// When a line is due again.
#[derive(Default)]
struct Pace {
    due: Duration,
}

impl Pace {
    /// Whether it is by now, since the start; the first at once.
    fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + REPEAT;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn how_long_it_may_take_is_printed_first() {
        let expected = Expected {
            arms: 5,
            loads: 2,
            generations: 25,
            round: Duration::from_millis(1_600),
            least: Duration::from_millis(12_600),
            most: seconds(77),
        };
        assert_eq!(
            announced("features", &expected),
            "features: takes 13 s if all is decided early, 77 s at most (--time); 5 arms, the base twice, at 2 loads: \
             1.6 s a round, up to 25 generations"
        );
        let counted = Expected { loads: 1, least: seconds(601), most: seconds(601), ..expected };
        let text = announced("t", &counted);
        assert!(
            text.starts_with("t: takes about 11 min; 5 arms, the base twice, at 1 load:"),
            "{text}"
        );
    }

    #[test]
    fn the_line_fits_a_terminal_and_says_what_is_decided() {
        let progress = Progress {
            generations: [1_000, 1_000],
            rounds: 40_000,
            time: [seconds(86_400); 2],
            undecided: [300, 1_280],
            trials: &[],
            is_traced: false,
        };
        let text = line(&progress);
        assert_eq!(
            text,
            "86400 s of 86400 s, generation 1000 of 1000: 980 of 1280 verdicts decided"
        );
        assert!(text.len() < 80);
    }

    #[test]
    fn where_it_cannot_be_rewritten_the_line_comes_every_ten_seconds() {
        let mut pace = Pace::default();
        let due = [3, 6, 12, 13, 22, 24, 60].map(|s| pace.is_due(seconds(s)));
        assert_eq!(due, [true, false, false, true, false, true, true]);
    }
}
