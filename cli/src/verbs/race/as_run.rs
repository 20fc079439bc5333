//! What is raced is what is run: an arm of ours departs from the defaults of `run` by what its scenario says and by
//! where it is, and a user can type all of it.

use crate::{command_line, verbs_of};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use laneway_kinds::{AppCommand, ArmPlace, Confinement, Fanout, FanoutOutput, On, Privileges};
use laneway_lab::scenario::Scenario;
use laneway_lab::{TablesOf, arm_matches, arm_words};
use laneway_registry::{AppTable, AppVisitor, Apps, Lanes, apps, facts_of};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

/// The arguments that state the place of an arm of each app, and no others.
const PLACES: &[(&str, &[&str])] = &[
    ("echo", &["address", "listen", "mac", "tcp"]),
    ("features", &["number_from_mac", "output", "writer_cpu"]),
    ("forward", &[]),
    ("kv", &["dir", "listen", "mac", "protected_mode"]),
    ("relay", &["address", "input", "output"]),
];

/// An arm of a scenario.
struct Arm<'a> {
    lane: &'a str,
    place: ArmPlace<'a>,
    arguments: &'a [String],
}

impl AppVisitor for Arm<'_> {
    type Out = ();

    fn visit<A: AppCommand<Report: Clone> + 'static>(self) {
        let Arm { lane, place, arguments } = self;
        let name = A::FACTS.name;
        let words = arm_words::<A>(&place, arguments).expect("the scenario was checked");
        let common = ["laneway", "run", name, "--lane", lane, "--on", "sut0,sut1", "--cpu", "0"];
        let line = common.into_iter().chain(words.iter().map(String::as_str));
        let typed = command_line::command(&verbs_of::<Apps, Lanes>()).try_get_matches_from(line);
        let typed = typed.unwrap_or_else(|error| panic!("{name} on {lane}: {error}"));
        let (_, run) = typed.subcommand().expect("run");
        let (_, typed) = run.subcommand().expect("the app");
        let read = |words: &[String]| arm_matches::<A>(words).expect("the scenario was checked");
        let (arm, arguments, defaults) = (read(&words), read(arguments), read(&[]));
        // What either gives up once its lanes are open.
        let spec = lane.parse().expect("it was checked");
        let interfaces = ["sut0", "sut1"].map(str::to_owned);
        let on = On { spec: &spec, lane: place.lane, interfaces: &interfaces, workers: 1 };
        let confined = |by: &ArgMatches| -> Option<String> {
            let arguments = A::Arguments::from_arg_matches(by).expect("they were parsed");
            // An app at the kernel's sockets refuses interfaces that it has no use for; elsewhere it asks for their
            // addresses, and these are not there.
            let planned = A::plan(&arguments, on)
                .or_else(|_| A::plan(&arguments, On { interfaces: &[], ..on }))
                .ok()?;
            let privileges = Privileges::of::<A>(&planned, on, false).expect("on this processor");
            privileges.confinement().as_ref().map(Confinement::to_string)
        };
        assert_eq!(confined(&arm), confined(typed), "{name} on {lane}");
        let gives_up = on.lane.is_the_kernels() && name == "relay";
        assert!(!gives_up || confined(&arm).is_some(), "{name} on {lane} keeps what it had");

        let (_, placed) = PLACES.iter().find(|(app, _)| *app == name).expect("an app of the list");
        for argument in A::Arguments::augment_args(Command::new(name)).get_arguments() {
            let id = argument.get_id().as_str();
            let is_given = |by: &ArgMatches| by.value_source(id) == Some(ValueSource::CommandLine);
            let value = |of: &ArgMatches| {
                of.get_raw(id).map(|words| words.map(ToOwned::to_owned).collect::<Vec<_>>())
            };
            assert_eq!(value(&arm), value(typed), "{name} on {lane}: {id}");
            let source = if is_given(&arguments) { &arguments } else { &defaults };
            let is_placed = placed.contains(&id) && !is_given(&arguments);
            assert!(is_placed || value(&arm) == value(source), "{name} on {lane}: {id} departs");
        }
    }
}

#[test]
fn an_arm_is_what_a_user_can_type_and_departs_by_its_scenario_and_its_place_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let files = std::fs::read_dir(folder).expect("they ship").flatten().map(|file| file.path());
    let mut raced = BTreeSet::new();
    let interfaces = ["sut0", "sut1"].map(str::to_owned);
    let addresses: [SocketAddr; 1] = [([10, 77, 0, 3], 7).into()];
    let group = "239.77.0.1:7000".parse().expect("an address");
    let source = [10, 78, 0, 2].into();
    let outputs = [FanoutOutput { interface: "sut1", source, port: 7_000 }];
    let fanout = Fanout {
        input: "sut0",
        address: [10, 77, 0, 2].into(),
        groups: &[group],
        outputs: &outputs,
    };
    for file in files.filter(|path| path.extension().is_some_and(|kind| kind == "toml")) {
        let mut scenario = Scenario::load(&file).expect("it ships");
        scenario.check(&TablesOf::<Apps, Lanes>::new()).expect("it ships");
        for (_, race) in scenario.races(&[]).expect("it was checked") {
            for arm in race.arms.iter().filter(|arm| arm.peer.is_none() && arm.command.is_none()) {
                let spec = arm.lane.parse().expect("it was checked");
                // Lanes that this build does not have are left out of a race as well.
                let Ok(lane) = facts_of::<Lanes>(&spec) else { continue };
                let place = ArmPlace {
                    lane,
                    cpu: 0,
                    interfaces: &interfaces,
                    addresses: &addresses,
                    fanout: race.fanout.map(|_| fanout),
                    protocol: race.client.map(|asks| asks.protocol()),
                    mac: [2, 0, 0, 0, 0, 9],
                    onward: addresses[0],
                    memory: Path::new("/memory"),
                    disk: Some(Path::new("/disk")),
                };
                let arguments = race.arguments_of(arm);
                match Apps::visit(&race.app, Arm { lane: &arm.lane, place, arguments }) {
                    Ok(()) => _ = raced.insert(race.app.clone()),
                    Err(_) => assert!(arguments.is_empty(), "the lab's own apps have no options"),
                }
            }
        }
    }
    let names: BTreeSet<String> = apps::<Apps>().iter().map(|app| app.name.to_owned()).collect();
    assert_eq!(raced, names, "every app of the table is raced");
}
