//! The rules that a run begins with: those of a file, then those of the command line.
//!
//! What must always hold: a rule that cannot be is refused in one sentence with its place, before anything is opened.

use crate::config::Config;
use crate::console::Console;
use crate::live::LiveStats;
use crate::parser::parse_command;
use crate::rules::{CommandError, RuleSet};
use laneway_kinds::{Failure, LaneFacts, Shape};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file of rules: as many as the largest set has, and some.
const RULES_FILE_BYTES_MAX: u64 = 256 << 20;

/// The rules to begin with.
#[derive(Default)]
pub(crate) struct Given {
    /// The console that answers about them.
    pub(crate) console: Option<Arc<Console>>,
    /// What was answered to those of the command line.
    pub(crate) answers: String,
}

/// A set of the rules of `file` and then of `lines`, of the shape that it has on the lane.
///
/// # Errors
/// The first rule that cannot be, with its place.
pub(crate) fn given(
    file: Option<&Path>,
    lines: &[String],
    lane: &LaneFacts,
    config: &Config,
) -> Result<Given, Failure> {
    // Nothing reads the set yet, so nothing makes a commit wait.
    let set = match lane.carries.has(Shape::Kernel) {
        true => RuleSet::for_kernel(config.bounds()),
        false => RuleSet::for_user(config.bounds()),
    };
    let console = Console::new(set, LiveStats::default());
    if let Some(path) = file {
        let text = read_rules(path)?;
        console.load(&text).map_err(|error| in_file(path, &text, &error))?;
    }
    let mut answers = String::new();
    for line in lines {
        let command = parse_command(line).map_err(CommandError::from);
        let answer = command.and_then(|command| console.execute(command));
        answers += &answer
            .map_err(|error| Failure::input(one_line(&format!("--rule '{line}'"), 0, &error)))?;
    }
    Ok(Given { console: Some(Arc::new(console)), answers })
}

fn read_rules(path: &Path) -> Result<String, Failure> {
    let cannot = |why: String| {
        Failure::input(format!("cannot read the rules of {}: {why}; check --rules", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
    file.take(RULES_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| cannot(error.to_string()))?;
    if text.len() as u64 > RULES_FILE_BYTES_MAX {
        return Err(cannot(format!("it has more than {RULES_FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The place in the file, line and column, and what is wrong there.
fn in_file(path: &Path, text: &str, error: &CommandError) -> Failure {
    let CommandError::InFile { line, why } = error else {
        return Failure::input(one_line(&path.display().to_string(), 0, error));
    };
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let indent = whole.chars().take_while(|c| c.is_whitespace()).count();
    Failure::input(one_line(&format!("{}, line {line}", path.display()), indent, why))
}

/// The error in one sentence; `indent` characters stand in front of what was read.
fn one_line(place: &str, indent: usize, error: &CommandError) -> String {
    let CommandError::Syntax(wrong) = error else { return format!("{place}: {error}") };
    let found = match wrong.found.as_str() {
        "" => "the end of the line".to_owned(),
        word => format!("`{word}`"),
    };
    format!("{place}, column {}: found {found}, {}", wrong.column + indent, wrong.expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Bounds;
    use laneway_kinds::Exit;

    const DROP: &str = "flow create 0 ingress pattern eth / ipv4 / end actions drop / count / end";

    fn set() -> RuleSet {
        RuleSet::for_user(Bounds { ports: 2, queues: 1 })
    }

    fn sentence(failure: &Failure) -> &str {
        let Failure::Because(Exit::BadInput, sentence) = failure else { panic!("{failure:?}") };
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        sentence
    }

    #[test]
    fn an_error_in_a_file_shows_line_and_column_of_the_file() {
        let path = Path::new("rules.txt");
        for (text, place) in [
            (
                format!("# ours\n{DROP}\n   flow crate 0\n"),
                "rules.txt, line 3, column 9: found `crate`",
            ),
            (format!("{DROP} more"), "rules.txt, line 1, column 75: found `more`"),
            ("flow flush 0".to_owned(), "rules.txt, line 1: only `flow create`"),
            (DROP.replace("create 0", "create 7"), "rules.txt, line 1: port 7: flow rule refused"),
        ] {
            let error = set().load(&text).unwrap_err();
            let failure = in_file(path, &text, &error);
            assert!(sentence(&failure).starts_with(place), "{} / {place}", sentence(&failure));
        }
    }
}
