//! The program `laneway`: arguments and printing only.
//!
//! ```text
//!   start ─▶ arguments ─▶ verbs/* ─▶ registry ─▶ engine, lanes, apps
//!                            └─▶ terminal (what a person or a program reads)
//! ```
//!
//! What happens is decided below: lanes, apps and the lab do the work, [`laneway_registry`] joins a lane to
//! an app by name, and this crate reads what was asked for and prints the result. It holds no
//! loop over frames and opens no socket.
//!
//! What must always hold: an error is one sentence on standard error with the value and what to
//! try; the exit code is one of [`Exit`]; rows and JSON alone go to standard output; a reader that
//! closes it ends the program quietly.
#![forbid(unsafe_code)]

mod arguments;
mod command_line;
mod replay;
mod shipped;
mod verbs;

use arguments::{Arguments, Verb};
use clap::{ArgMatches, FromArgMatches};

use laneway_kinds::{AppCommand, AppVerb, LaneKind};
use laneway_lab::ChildEnd;
use laneway_linux::HostSettings;
use laneway_registry::{AppTable, AppWalker, Apps, LaneTable, Lanes};
use laneway_terminal as terminal;
pub use laneway_terminal::{Exit, Failure};
use std::ffi::OsString;
use std::io;
use std::marker::PhantomData;
use std::process::ExitCode;
use verbs::{RunVerb, TableVerb};

/// Runs the program for these arguments, the program's name first: the lanes and apps of this build.
pub fn start(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Without a type parameter, so that it is compiled here and not once more in every binary.
    fn of_this_build(given: Vec<OsString>) -> ExitCode {
        run::<Apps, Lanes>(given)
    }
    of_this_build(arguments.into_iter().collect())
}

/// Runs the program with an app of the user's in front of those of this build: it gets `run`, `race`, `--trace` and
/// every lane for itself.
pub fn start_with_app<A: AppCommand<Report: Clone> + 'static>(
    arguments: impl IntoIterator<Item = OsString>,
) -> ExitCode {
    run::<(A, Apps), Lanes>(arguments.into_iter().collect())
}

/// Runs the program with a lane of the user's in front of those of this build: every app runs on it, can be raced on it
/// where its ports are interfaces, and `lanes` and `gen` know it.
pub fn start_with_lane<K: LaneKind>(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<Apps, (K, Lanes)>(arguments.into_iter().collect())
}

/// The apps of a table as verbs of `run`, on the lanes of a table.
fn verbs_of<P: AppTable, L: LaneTable>() -> Vec<Box<dyn RunVerb>> {
    struct Verbs<L>(Vec<Box<dyn RunVerb>>, PhantomData<fn() -> L>);

    impl<L: LaneTable> AppWalker for Verbs<L> {
        fn meet<A: AppCommand<Report: Clone> + 'static>(&mut self) {
            self.0.push(Box::new(TableVerb::<A, L>::new()));
        }
    }

    let mut verbs = Verbs::<L>(Vec::new(), PhantomData);
    P::walk(&mut verbs);
    verbs.0
}

fn run<P: AppTable, L: LaneTable>(given: Vec<OsString>) -> ExitCode {
    let apps = verbs_of::<P, L>();
    let outcome = parse(&given, &apps).and_then(|parsed| match parsed {
        Parsed::Run(arguments) => dispatch::<P, L>(arguments, &apps),
        Parsed::Own(verb, matches, json) => {
            give_back(json);
            (verb.run)(&matches, json)
        }
        Parsed::Answered => Ok(Exit::Done),
    });
    terminal::conclude(outcome).into()
}

enum Parsed {
    Run(Arguments),
    /// A verb of an app, what was given to it, and whether JSON is asked for.
    Own(AppVerb, ArgMatches, bool),
    /// Help or the version was printed.
    Answered,
}

fn parse(given: &[OsString], apps: &[Box<dyn RunVerb>]) -> Result<Parsed, Failure> {
    let command = command_line::command(apps);
    let matched = command.clone().try_get_matches_from(given);
    let read = matched.and_then(|matches| {
        let own = matches.subcommand().and_then(|(name, own)| {
            let mut verbs = apps.iter().flat_map(|app| app.verbs());
            Some((verbs.find(|verb| verb.name == name)?, own.clone()))
        });
        match own {
            Some((verb, own)) => Ok(Parsed::Own(verb, own, matches.get_flag("json"))),
            None => Arguments::from_arg_matches(&matches).map(Parsed::Run),
        }
    });
    match read {
        Ok(parsed) => Ok(parsed),
        Err(error) if error.exit_code() == 0 => {
            terminal::print(&error.render().to_string())?;
            Ok(Parsed::Answered)
        }
        Err(error) => Err(Failure::usage(&error, &command_line::command_named(&command, given))),
    }
}

/// A failed child of a race has reported the failure to its parent, if there is one, and the parent prints it.
fn child(outcome: Result<ChildEnd, String>) -> Result<Exit, Failure> {
    match outcome.map_err(Failure::input)? {
        ChildEnd::Done => Ok(Exit::Done),
        ChildEnd::FailureReported => Ok(Exit::BadInput),
    }
}

/// Undoes what an earlier run changed on this host that was killed before it could.
fn give_back(json: bool) {
    let done = HostSettings::of_this_host().give_back();
    if json {
        return;
    }
    match done {
        Ok(all) => all.iter().for_each(|it| {
            let (setting, left, now) = (it.setting.display(), it.left, it.now);
            let process = it.process;
            terminal::note(&match it.found == left {
                true => format!(
                    "gave {setting} back: {left} became {now}; process {process} had been killed"
                ),
                false => format!(
                    "left {setting} at {now}: process {process}, which was killed, had made it \
                     {left}, and another program changed it since"
                ),
            });
        }),
        // A process that may not undo it did not change it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => terminal::note(&format!(
            "cannot give back what a killed run changed on this host: {error}; a later run tries again"
        )),
    }
}

/// One line per verb.
fn dispatch<P: AppTable, L: LaneTable>(
    arguments: Arguments,
    apps: &[Box<dyn RunVerb>],
) -> Result<Exit, Failure> {
    let json = arguments.json;
    // The children of a race come and go while it measures.
    if !matches!(arguments.verb, Verb::Arm | Verb::Generate) {
        give_back(json);
    }
    match arguments.verb {
        Verb::Lanes => verbs::lanes::run::<L>(json),
        Verb::Run { app } => verbs::run::run(&app, apps, json),
        Verb::Gen { what } => verbs::generate::run::<L>(&what, json),
        Verb::Race(arguments) => verbs::race::run::<P, L>(&arguments, json),
        Verb::Trace { what } => verbs::trace::run(&what, json),
        Verb::Report(arguments) => verbs::report::run(&arguments, json),
        Verb::Doctor(arguments) => verbs::doctor::run(&arguments, apps, json),
        Verb::Arm => child(laneway_lab::serve_arm::<P, L>()),
        Verb::Generate => child(laneway_lab::serve_generator::<L>()),
        Verb::Completions { shell } => verbs::completions::run(shell, apps, json),
        Verb::Manual { out } => verbs::manual::run::<L>(&out, apps, json),
    }
}
