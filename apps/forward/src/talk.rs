//! The conversation on standard input: a line, its answer, until there are no more.

use crate::Console;
use laneway_control::{Answerer, LineAnswer, Next, next_line};
use laneway_flow::pattern::TEXT_BYTES_MAX;
use laneway_terminal as terminal;
use std::io::BufRead;
use std::sync::Arc;

/// The console that answers, and how.
pub(crate) struct Talk {
    pub(crate) console: Arc<Console>,
    /// Ends the run.
    pub(crate) stop: Arc<dyn Fn() + Send + Sync>,
    /// Standard output is for JSON, so answers go to standard error.
    pub(crate) json: bool,
}

impl Talk {
    /// Reads commands until there are no more. The run goes on then; `quit` ends it.
    pub(crate) fn listen(self, mut input: impl BufRead) {
        let mut line = Vec::new();
        // Of a line that is too long so much is kept that the parser finds it so.
        while let Ok(Next::Line | Next::Long | Next::Unended) =
            next_line(&mut input, &mut line, TEXT_BYTES_MAX)
        {
            let answer = match self.console.answer(&String::from_utf8_lossy(&line)) {
                LineAnswer::Done(answer) | LineAnswer::Wrong(answer) => answer,
                LineAnswer::Quit => return (self.stop)(),
                LineAnswer::Handed(..) | LineAnswer::Streamed(_) => {
                    unreachable!("no command hands over or goes on")
                }
            };
            if self.json {
                terminal::note(answer.trim_end());
            } else if terminal::print(&answer).is_err() {
                return (self.stop)();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, LiveStats, RuleSet};
    use std::sync::atomic::{AtomicBool, Ordering};

    const DROP: &str = "flow create 0 ingress pattern eth / ipv4 / end actions drop / count / end";

    #[test]
    fn quit_ends_the_run_and_what_comes_behind_it_is_not_read() {
        let rules = RuleSet::for_user(Bounds { ports: 2, queues: 1 });
        let console = Arc::new(Console::new(rules, LiveStats::default()));
        let ended = Arc::new(AtomicBool::new(false));
        let to_end = Arc::clone(&ended);
        let stop = Arc::new(move || to_end.store(true, Ordering::Relaxed));
        let talk = Talk { console: Arc::clone(&console), stop, json: true };
        let long = format!("{DROP}\n\n{}\n{DROP}\nquit\n{DROP}\n", "x".repeat(3 * TEXT_BYTES_MAX));
        talk.listen(long.as_bytes());
        assert!(ended.load(Ordering::Relaxed));
        assert_eq!(console.rules().len(), 2);
    }
}
