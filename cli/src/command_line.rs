//! The whole command line: the verbs of [`arguments`](crate::arguments), every app of the table under `run`, and the
//! apps' own verbs beside it.

use crate::arguments::Arguments;
use crate::verbs::RunVerb;
use clap::{Command, CommandFactory};
use std::ffi::OsString;

/// Where the apps' own verbs stand in the list of verbs.
const BEHIND_RUN: usize = 3;

/// The whole command line: every app of the table under `run`, and the apps' own verbs beside it.
pub(crate) fn command(apps: &[Box<dyn RunVerb>]) -> Command {
    let add = |run: Command| apps.iter().fold(run, |run, app| run.subcommand(app.command()));
    let verbs = apps.iter().flat_map(|app| app.verbs());
    let verbs = verbs.map(|verb| (verb.command)().display_order(BEHIND_RUN));
    Arguments::command().mut_subcommand("run", add).subcommands(verbs)
}

/// The command that the arguments name, as far as they name one: `laneway run features`.
pub(crate) fn command_named(command: &Command, given: &[OsString]) -> String {
    let mut command = command;
    let mut name = command.get_name().to_owned();
    for word in given.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(deeper) = command.find_subcommand(word) else { break };
        command = deeper;
        name = format!("{name} {word}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs_of;
    use laneway_registry::{Apps, Lanes};

    fn whole() -> Command {
        command(&verbs_of::<Apps, Lanes>())
    }

    #[test]
    fn the_arguments_fit_together() {
        whole().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        fn check(command: &Command) {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(name == "help" || help.contains("laneway "), "{name} shows no example");
            command.get_subcommands().for_each(check);
        }
        check(&whole());
    }

    #[test]
    fn the_command_is_named_as_deep_as_it_was() {
        let name = |words: &[&str]| {
            command_named(&whole(), &words.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(name(&["laneway", "run", "features", "--lane"]), "laneway run features");
        assert_eq!(name(&["x", "run", "feature"]), "laneway run");
        assert_eq!(name(&[]), "laneway");
    }
}
