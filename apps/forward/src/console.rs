//! The conversation about a run's rules: one executor of commands, for every client.
//!
//! A file, the command line, standard input and the control socket all come here, so a command means
//! the same and is answered the same everywhere. Several may talk at once: each command is carried out
//! whole, under the one lock of the rule set. What must always hold: any line is answered, and a change
//! that is answered without an error is in force, or the answer says that it is not yet. It reads from
//! nowhere and prints nothing.

use crate::{
    fate::Fate,
    grammar::Command,
    live::LiveStats,
    parser::{Line, parse_line},
    rules::{CommandError, Commit, RuleSet},
};
use laneway_control::{Answerer, LineAnswer};
use laneway_flow::pattern::TEXT_BYTES_MAX;
use std::{
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// How often a commit is tried. A worker takes a set with its next burst, or when its bell rings.
pub const COMMITS_MAX: usize = 5_000;
/// Between two tries.
const COMMIT_INTERVAL: Duration = Duration::from_millis(1);

const HELP: &str = "\
flow create PORT [group N] [priority N] ingress|transfer pattern ITEM / ... / end actions ACTION / ... / end
flow validate PORT ...          whether such a rule could be
flow list PORT [group N]...     the rules of a port
flow query PORT ID count        what a rule has matched
flow destroy PORT rule ID ...   takes rules out
flow flush PORT                 takes all rules of a port out
show stats                      frames by what became of them
show rules [PORT]               every rule, what it matched, where it is executed and why there
help                            this
quit                            ends the conversation; on standard input the run as well
";

/// The rule set of a run, for all clients that ask about it.
pub struct Console {
    rules: Mutex<RuleSet>,
    live: LiveStats,
}

impl Console {
    /// A conversation about this set, in a run whose workers speak through `live`.
    pub fn new(rules: RuleSet, live: LiveStats) -> Console {
        Console { rules: Mutex::new(rules), live }
    }

    /// The set's own lock, for a run that takes its feeds.
    pub fn shared(&self) -> &Mutex<RuleSet> {
        &self.rules
    }

    /// The set, for what is reported at the end.
    pub fn rules(&self) -> MutexGuard<'_, RuleSet> {
        // Updates of the set are atomic with respect to panics.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of the frames so far.
    pub fn live(&self) -> &LiveStats {
        &self.live
    }

    /// As [`answer`](Answerer::answer), of a command that has been read.
    ///
    /// # Errors
    /// As [`RuleSet::run`].
    pub fn execute(&self, command: Command) -> Result<String, CommandError> {
        let changes =
            matches!(command, Command::Create(..) | Command::Destroy(..) | Command::Flush(..));
        let mut answer = self.rules().execute(command)?;
        // Twice: the second is done when the kernel half has taken what the first one offered.
        if changes && !(self.commit() && self.commit()) {
            answer.push_str("not in force yet: the worker is busy; the change is kept\n");
        }
        Ok(answer)
    }

    /// Replaces the whole set by a file's, as [`RuleSet::load`]; true when it is in force.
    ///
    /// # Errors
    /// As [`RuleSet::load`].
    pub fn load(&self, text: &str) -> Result<bool, CommandError> {
        self.rules().load(text)?;
        Ok(self.commit())
    }

    fn commit(&self) -> bool {
        (0..COMMITS_MAX).any(|_| {
            let is_done = self.rules().commit() == Commit::Done;
            if !is_done {
                thread::sleep(COMMIT_INTERVAL);
            }
            is_done
        })
    }

    fn stats(&self) -> String {
        let stats = self.live.sum();
        let mut answer = format!("frames {}\n", stats.total());
        for fate in Fate::ALL {
            let _ = writeln!(answer, "{} {}", fate.name(), stats.frames(*fate));
        }
        for (queue, frames) in stats.queue_frames.iter().enumerate().filter(|(_, n)| **n > 0) {
            let _ = writeln!(answer, "queue {queue} {frames}");
        }
        let _ = writeln!(answer, "rules {}", self.rules().len());
        answer
    }

    fn show_rules(&self, port: Option<u16>) -> LineAnswer {
        let rules = self.rules();
        if let Some(port) = port.filter(|port| *port >= rules.ports()) {
            let last = rules.ports() - 1;
            return LineAnswer::Wrong(format!("there is no port {port}; ports are 0 to {last}\n"));
        }
        let mut answer = String::new();
        for port in (0..rules.ports()).filter(|of| port.is_none_or(|port| port == *of)) {
            for (id, rule, placement) in rules.rules(port) {
                let hits = rules.hits(port, id).unwrap_or_default();
                let _ = writeln!(
                    answer,
                    "port {port} rule {id} hits {} bytes {} place {} ({}): {rule}",
                    hits.frames,
                    hits.bytes,
                    placement.place.name(),
                    placement.reason
                );
            }
        }
        LineAnswer::Done(answer)
    }
}

impl Answerer for Console {
    /// Carries a line out and answers when its change is in force.
    fn answer(&self, line: &str) -> LineAnswer {
        match parse_line(line) {
            Err(error) => LineAnswer::Wrong(format!("{error}\n")),
            Ok(Line::Nothing) => LineAnswer::Done(String::new()),
            Ok(Line::Quit) => LineAnswer::Quit,
            Ok(Line::Help) => LineAnswer::Done(HELP.to_owned()),
            Ok(Line::ShowStats) => LineAnswer::Done(self.stats()),
            Ok(Line::ShowRules(port)) => self.show_rules(port),
            Ok(Line::Flow(command)) => match self.execute(command) {
                Ok(answer) => LineAnswer::Done(answer),
                Err(error) => LineAnswer::Wrong(format!("{error}\n")),
            },
        }
    }

    fn line_bytes_max(&self) -> usize {
        TEXT_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bounds;
    use proptest::prelude::*;

    const DROP: &str = "flow create 0 ingress pattern udp dst is 53 / end actions drop / end";

    fn console() -> Console {
        let rules = RuleSet::for_user(Bounds { ports: 2, queues: 1 });
        Console::new(rules, LiveStats::default())
    }

    #[track_caller]
    fn done(console: &Console, line: &str) -> String {
        match console.answer(line) {
            LineAnswer::Done(answer) => answer,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn wrong(console: &Console, line: &str) -> String {
        match console.answer(line) {
            LineAnswer::Wrong(answer) => answer,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_answered_in_force_and_errors_with_their_place() {
        let console = console();
        let feed = console.rules().feed();
        assert_eq!(done(&console, DROP), "Flow rule #0 created\n");
        assert_eq!(console.rules().shape().entries, 1, "committed");
        let answer = wrong(&console, "flow crate 0");
        assert!(answer.contains("column 6") && answer.contains('^'), "{answer}");
        assert!(wrong(&console, "shw stats").contains("did you mean `show`?"));
        assert!(wrong(&console, "show stat").contains("did you mean `stats`?"));
        assert!(wrong(&console, "show rules 7").contains("ports are 0 to 1"));
        assert!(wrong(&console, "help me").contains("the end of the line"));
        assert!(matches!(console.answer(" quit "), LineAnswer::Quit));
        drop(feed);
    }

    #[test]
    fn what_is_asked_for_is_shown() {
        let console = console();
        done(&console, DROP);
        let rules = done(&console, "show rules");
        let start =
            "port 0 rule 0 hits 0 bytes 0 place user (the lane shows its frames to user space";
        assert!(rules.starts_with(start), "{rules}");
        assert!(rules.trim_end().ends_with("udp dst is 53 / end actions drop / end"), "{rules}");
        assert_eq!(done(&console, "show rules 1"), "");
        let stats = done(&console, "show stats");
        assert!(stats.starts_with("frames 0\nforwarded 0\n"), "{stats}");
        assert!(stats.ends_with("rules 1\n"), "{stats}");
        for verb in ["create", "validate", "list", "query", "destroy", "flush"] {
            assert!(done(&console, "help").contains(&format!("flow {verb} ")), "{verb}");
        }
    }

    #[test]
    fn empty_lines_and_comments_are_answered_with_nothing() {
        let console = console();
        for line in ["", "  ", "# flow flush 0"] {
            assert_eq!(done(&console, line), "", "{line:?}");
        }
    }

    #[test]
    fn a_change_that_no_worker_takes_is_kept_and_reported_as_late() {
        let console = console();
        let feed = console.rules().feed().expect("a set of user space");
        done(&console, DROP);
        // The worker has taken neither, so the second one finds no table to change.
        console.rules().execute(Command::Flush(0)).expect("a command");
        assert_eq!(console.rules().commit(), Commit::Waiting);
        drop(feed);
        assert_eq!(done(&console, DROP), "Flow rule #0 created\n");
    }

    proptest! {
        #[test]
        fn any_line_is_answered_in_whole_lines(line in "\\PC{0,60}", begins in 0usize..5) {
            let begin = ["", "flow ", "show ", "flow create 0 ingress pattern ", "flow list "][begins];
            let console = console();
            if let LineAnswer::Done(answer) | LineAnswer::Wrong(answer) = console.answer(&format!("{begin}{line}")) {
                prop_assert!(answer.is_empty() || answer.ends_with('\n'), "{answer:?}");
            }
        }
    }
}
