//! The apps and lanes that a race may name: those of the program, and the lab's own apps.

use crate::apps::{Across, Bounce, Count, Flood, LabKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use laneway_kinds::{
    AppCommand, AppFacts, ArmPlace, Failure, LaneFacts, LaneKind, Peer, Ports, Traffic, Wiring,
};
use laneway_registry::{AppTable, AppVisitor, LaneTable, LaneVisitor, apps, facts_of};
use laneway_spec::{LaneSpec, nearest};
use std::marker::PhantomData;

/// The lab's apps in front of a program's.
pub(crate) type Raced<P> =
    (LabKind<Count>, (LabKind<Bounce>, (LabKind<Across>, (LabKind<Flood>, P))));

/// Whether a table has an app of this name.
pub(crate) fn has<P: AppTable>(name: &str) -> bool {
    apps::<P>().iter().any(|facts| facts.name == name)
}

/// What a race asks of the tables. Everything is asked by name, because a scenario has names.
pub trait Tables: Sync {
    /// The app's row.
    ///
    /// # Errors
    /// A sentence with the nearest name.
    fn app(&self, name: &str) -> Result<&'static AppFacts, String>;

    /// Checks the arguments of an arm as far as that can be done without its interfaces.
    ///
    /// # Errors
    /// A sentence with the value and what to try.
    fn check_arm(&self, app: &str, arguments: &[String], traffic: Traffic) -> Result<(), String>;

    /// The mode in which `dpdk-testpmd` does what the app does with these arguments.
    fn testpmd_mode(&self, app: &str, arguments: &[String]) -> Option<&'static str>;

    /// The lane's row, and what is at the other end of its ports.
    ///
    /// # Errors
    /// A sentence with the value and what to try.
    fn lane(&self, spec: &str) -> Result<(&'static LaneFacts, Wiring), String>;
}

/// The tables `P` of apps and `L` of lanes.
#[derive(Debug)]
pub struct TablesOf<P, L>(PhantomData<fn() -> (P, L)>);

impl<P, L> TablesOf<P, L> {
    /// Those of the types.
    pub const fn new() -> TablesOf<P, L> {
        TablesOf(PhantomData)
    }
}

impl<P, L> Default for TablesOf<P, L> {
    fn default() -> TablesOf<P, L> {
        TablesOf::new()
    }
}

impl<P: AppTable, L: LaneTable> Tables for TablesOf<P, L> {
    fn app(&self, name: &str) -> Result<&'static AppFacts, String> {
        if has::<P>(name) && has::<Raced<()>>(name) {
            let why = "the lab has an app of that name, for its own races: give yours another";
            return Err(why.to_owned());
        }
        let rows = apps::<Raced<P>>();
        rows.iter().find(|facts| facts.name == name).copied().ok_or_else(|| {
            let names: Vec<&str> = rows.iter().map(|facts| facts.name).collect();
            let meant = match nearest(name, &names) {
                Some(name) => format!("did you mean `{name}`? "),
                None => String::new(),
            };
            format!("{meant}the apps are {}", names.join(", "))
        })
    }

    fn check_arm(&self, app: &str, arguments: &[String], traffic: Traffic) -> Result<(), String> {
        struct Check<'a>(&'a [String], Traffic);

        impl AppVisitor for Check<'_> {
            type Out = Result<(), String>;

            fn visit<A: AppCommand<Report: Clone> + 'static>(self) -> Self::Out {
                A::check_arm(&parse::<A>(self.0)?, self.1)
            }
        }

        let visited = Raced::<P>::visit(app, Check(arguments, traffic));
        visited.unwrap_or_else(|_| Err(format!("there is no app `{app}`")))
    }

    fn testpmd_mode(&self, app: &str, arguments: &[String]) -> Option<&'static str> {
        struct Mode<'a>(&'a [String]);

        impl AppVisitor for Mode<'_> {
            type Out = Option<&'static str>;

            fn visit<A: AppCommand<Report: Clone> + 'static>(self) -> Self::Out {
                A::testpmd_mode(&parse::<A>(self.0).ok()?)
            }
        }

        Raced::<P>::visit(app, Mode(arguments)).ok().flatten()
    }

    fn lane(&self, spec: &str) -> Result<(&'static LaneFacts, Wiring), String> {
        struct Wired<'a>(&'a LaneSpec);

        impl LaneVisitor for Wired<'_> {
            type Out = Result<Wiring, String>;

            fn visit<K: LaneKind>(self) -> Self::Out {
                K::wiring(self.0)
            }
        }

        let spec: LaneSpec = spec.parse().map_err(|error| format!("{error}"))?;
        let facts = facts_of::<L>(&spec).map_err(|error| error.to_string())?;
        let instead = match facts.ports {
            Ports::Interfaces | Ports::Devices => None,
            Ports::Files => Some("its ports are files"),
            Ports::Simulated => Some("its ports are simulated"),
        };
        if let Some(what) = instead {
            return Err(format!(
                "{what}, and what a race sends comes by a cable: race lanes on interfaces"
            ));
        }
        match L::visit(facts.name, Wired(&spec)) {
            Ok(wiring) => Ok((facts, wiring?)),
            Err(_) => unreachable!("the table has just named lane {}", facts.name),
        }
    }
}

/// The words that tell an arm's app what to do, as a user types them behind `run APP`: where it is, then what the
/// scenario says. What the scenario says as well is left out of the first, because `run` takes nothing twice.
///
/// # Errors
/// A sentence with the value.
pub fn arm_words<A: AppCommand<Report: Clone>>(
    place: &ArmPlace<'_>,
    arguments: &[String],
) -> Result<Vec<String>, String> {
    let given = arm_matches::<A>(arguments)?;
    let command = own::<A>();
    let names = |arg: &Arg, word: &str| {
        let long = word.strip_prefix("--").is_some_and(|name| arg.get_long() == Some(name));
        long || arg.get_short().is_some_and(|short| word == format!("-{short}"))
    };
    let is_given = |word: &str| {
        let mut known = command.get_arguments().filter(|arg| names(arg, word));
        known.any(|arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine))
    };
    let place = A::place(place);
    let options = place.chunk_by(|_, word| !word.starts_with('-'));
    let kept = options.filter(|option| !is_given(&option[0])).flatten();
    Ok(kept.chain(arguments).cloned().collect())
}

/// What an app makes of such words, read as `run` reads them.
///
/// # Errors
/// A sentence with the value.
pub fn arm_matches<A: AppCommand<Report: Clone>>(words: &[String]) -> Result<ArgMatches, String> {
    own::<A>().try_get_matches_from(words).map_err(unread::<A>)
}

/// The arguments of an app.
///
/// # Errors
/// A sentence with the value.
pub(crate) fn parse<A: AppCommand<Report: Clone>>(
    words: &[String],
) -> Result<A::Arguments, String> {
    A::Arguments::from_arg_matches(&arm_matches::<A>(words)?).map_err(unread::<A>)
}

fn own<A: AppCommand<Report: Clone>>() -> Command {
    A::Arguments::augment_args(Command::new(A::FACTS.name).no_binary_name(true))
}

fn unread<A: AppCommand<Report: Clone>>(error: clap::Error) -> String {
    sentence_of(Failure::usage(&error, &format!("{} run {}", program(), A::FACTS.name)))
}

/// The sentence of a failure.
pub(crate) fn sentence_of(failure: Failure) -> String {
    match failure {
        Failure::Because(_, sentence) | Failure::Help(sentence) => sentence,
        Failure::ReaderGone => "its standard output has no reader".to_owned(),
    }
}

/// What this program is called, for commands that a user types.
pub(crate) fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "laneway".into(), |name| name.display().to_string())
}

/// What the ports of an arm are: those of its lane, or of the device that a peer is given.
pub(crate) fn wiring(tables: &dyn Tables, peer: Option<Peer>, lane: &str) -> Wiring {
    match peer {
        None => tables.lane(lane).map_or(Wiring::Cables, |(_, wiring)| wiring),
        Some(Peer::Testpmd) if crate::testpmd::is_tap(lane) => Wiring::Taps,
        Some(_) => Wiring::Cables,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_registry::Lanes;

    const TABLES: TablesOf<(LabKind<Count>, ()), Lanes> = TablesOf::new();

    #[test]
    fn an_app_with_the_name_of_one_of_the_labs_is_not_mistaken_for_it() {
        let why = TABLES.app("count").unwrap_err();
        assert!(why.contains("the lab has an app of that name"), "{why}");
        assert_eq!(TABLES.app("bounce").unwrap().name, "bounce");
    }

    #[test]
    fn a_lane_without_interfaces_has_no_wire_in_a_race() {
        for (spec, part) in [("pcap", "its ports are files"), ("sim", "its ports are simulated")] {
            let why = TABLES.lane(spec).unwrap_err();
            assert!(why.contains(part) && why.contains("by a cable"), "{why}");
        }
        let bounce = TABLES.app("bounce").unwrap();
        let taps = crate::wire::objection(&Wiring::Taps, bounce);
        assert!(taps.is_some_and(|why| why.contains("TAP device")));
        assert_eq!(crate::wire::objection(&Wiring::Cables, bounce), None);
    }
}
