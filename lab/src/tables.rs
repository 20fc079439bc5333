//! The apps and lanes that a race may name: those of the program, and the lab's own apps.

use crate::apps::{Across, Bounce, Count, LabKind};
use clap::{Args, Command, FromArgMatches};
use laneway_kinds::{AppCommand, AppFacts, LaneFacts, LaneKind, Peer, Traffic, Wiring};
use laneway_registry::{AppTable, AppVisitor, LaneTable, LaneVisitor, apps, facts_of};
use laneway_spec::{LaneSpec, nearest};
use std::marker::PhantomData;

/// The lab's apps in front of a program's.
pub(crate) type Raced<P> = (LabKind<Count>, (LabKind<Bounce>, (LabKind<Across>, P)));

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
        match L::visit(facts.name, Wired(&spec)) {
            Ok(wiring) => Ok((facts, wiring?)),
            Err(_) => unreachable!("the table has just named lane {}", facts.name),
        }
    }
}

/// The arguments of an app, as `run` reads them. What stands later overrules what stands in front: an arm's own
/// arguments come behind those that say where it is.
///
/// # Errors
/// A sentence with the value.
pub(crate) fn parse<A: AppCommand<Report: Clone>>(
    words: &[String],
) -> Result<A::Arguments, String> {
    let command = Command::new(A::FACTS.name).no_binary_name(true).args_override_self(true);
    let matches = A::Arguments::augment_args(command).try_get_matches_from(words);
    let arguments = matches.and_then(|matches| A::Arguments::from_arg_matches(&matches));
    arguments.map_err(|error| {
        let text = error.render().to_string();
        let about = text.split("\n\nUsage:").next().unwrap_or(&text);
        about.split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

/// What the ports of an arm are: those of its lane, or of the device that a peer is given.
pub(crate) fn wiring(tables: &dyn Tables, peer: Option<Peer>, lane: &str) -> Wiring {
    match peer {
        None => tables.lane(lane).map_or(Wiring::Cables, |(_, wiring)| wiring),
        Some(Peer::Testpmd) if crate::testpmd::is_tap(lane) => Wiring::Taps,
        Some(_) => Wiring::Cables,
    }
}
