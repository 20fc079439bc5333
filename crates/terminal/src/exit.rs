//! How the program ends: exit codes, and the one sentence of an error.

use crate::note;
use laneway_core::LaneError;
use laneway_spec::nearest;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes; a stable surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A stated goal was missed: with `--strict`, something was lost.
    GoalMissed = 1,
    /// Bad usage or input: nothing was begun, or an input could not be read to its end.
    BadInput = 2,
    /// Inconclusive: interrupted before the end of the input.
    Inconclusive = 3,
    /// The run is invalid: its ledger is open.
    Invalid = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a verb ended early.
#[derive(Debug)]
pub enum Failure {
    /// With this code, for the reason that the sentence gives.
    Because(Exit, String),
    /// The reader of standard output has closed it. Nothing is wrong, and no reader is left.
    ReaderGone,
    /// No verb was given: the help says what there is.
    Help(String),
}

impl Failure {
    /// Bad usage or input.
    pub fn input(why: impl ToString) -> Failure {
        Failure::Because(Exit::BadInput, why.to_string())
    }

    /// The sentence of an argument that cannot be understood; `verb` is the command whose help
    /// explains it.
    pub fn usage(error: &clap::Error, verb: &str) -> Failure {
        let text = error.render().to_string();
        match error.kind() {
            clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Failure::Help(text),
            _ => Failure::input(one_sentence(&text, verb)),
        }
    }
}

impl From<LaneError> for Failure {
    /// The lane's sentence; with the nearest name, where an interface does not exist.
    fn from(error: LaneError) -> Failure {
        Failure::from(&error)
    }
}

impl From<&LaneError> for Failure {
    fn from(error: &LaneError) -> Failure {
        let mut sentence = error.to_string();
        if let LaneError::NotFound { what: "interface", name, .. } = error {
            let there = interface_names();
            let names: Vec<&str> = there.iter().map(String::as_str).collect();
            if let Some(nearest) = nearest(name, &names) {
                sentence.push_str(&format!(" (did you mean `{nearest}`?)"));
            }
        }
        Failure::input(sentence)
    }
}

/// As far as they can be listed.
fn interface_names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(Path::new("/sys/class/net")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The paragraphs in front of the usage as one line, and where to find an example.
fn one_sentence(text: &str, verb: &str) -> String {
    let about = text.split("\n\nUsage:").next().unwrap_or(text);
    let about = about.split("\n\nFor more information").next().unwrap_or(about);
    let paragraphs = about.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let line = words.join(" ");
        line.trim_start_matches("error: ").trim_start_matches("tip: ").to_owned()
    });
    let about: Vec<String> = paragraphs.filter(|paragraph| !paragraph.is_empty()).collect();
    format!("{}; `{verb} --help` shows an example", about.join("; "))
}

/// Says what is left to say, once, and gives the code.
pub fn conclude(outcome: Result<Exit, Failure>) -> Exit {
    match outcome {
        Ok(exit) => exit,
        Err(Failure::ReaderGone) => Exit::Done,
        Err(Failure::Help(help)) => {
            note(help.trim_end());
            Exit::BadInput
        }
        Err(Failure::Because(exit, sentence)) => {
            note(&format!("laneway: {sentence}"));
            exit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_error_becomes_one_line_with_its_tip() {
        let text = "error: unrecognized subcommand 'feature'\n\n  tip: a similar subcommand exists: \
                    'features'\n\nUsage: laneway run <COMMAND>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_sentence(text, "laneway run"),
            "unrecognized subcommand 'feature'; a similar subcommand exists: 'features'; \
             `laneway run --help` shows an example"
        );
    }

    #[test]
    fn missing_arguments_are_listed_in_the_line() {
        let text = "error: the following required arguments were not provided:\n  --lane <SPEC>\n  \
                    --on <IFACE>\n\nUsage: laneway run features --lane <SPEC>\n";
        assert_eq!(
            one_sentence(text, "laneway run features"),
            "the following required arguments were not provided: --lane <SPEC> --on <IFACE>; \
             `laneway run features --help` shows an example"
        );
    }
}
