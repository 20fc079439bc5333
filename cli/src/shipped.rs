//! The scenarios of this build, inside the program, so that `laneway race NAME` works wherever it lies.
//!
//! In the repository the files are read instead: what a user edits there is what is raced. Elsewhere a
//! scenario is laid into the race's own folder first, with its capture, where it can be read and changed.

use laneway_kinds::AppFacts;
use laneway_lab::scenario::Scenario;
use laneway_spec::nearest;
use laneway_terminal::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// A scenario and what it replays.
struct Shipped {
    name: &'static str,
    text: &'static str,
    capture: Option<Capture>,
}

struct Capture {
    /// From the scenario's folder.
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/", $name, ".toml"))
    };
}

macro_rules! capture {
    ($path:literal) => {
        Some(Capture {
            path: $path,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/", $path)),
        })
    };
}

static SHIPPED: &[Shipped] = &[
    Shipped { name: "fanout", text: text!("fanout"), capture: None },
    Shipped {
        name: "features",
        text: text!("features"),
        capture: capture!("captures/mixed.pcap.zst"),
    },
    Shipped {
        name: "features-goals",
        text: text!("features-goals"),
        capture: capture!("captures/mixed.pcap.zst"),
    },
    Shipped { name: "forward", text: text!("forward"), capture: None },
    Shipped { name: "kv", text: text!("kv"), capture: None },
    Shipped { name: "kv-echo", text: text!("kv-echo"), capture: None },
    Shipped { name: "lanes", text: text!("lanes"), capture: None },
    Shipped { name: "parked", text: text!("parked"), capture: None },
    Shipped { name: "ping", text: text!("ping"), capture: None },
    Shipped { name: "relay", text: text!("relay"), capture: None },
    Shipped { name: "tap", text: text!("tap"), capture: capture!("captures/tiny.pcap") },
    Shipped { name: "tcp-echo", text: text!("tcp-echo"), capture: None },
    Shipped { name: "tracer", text: text!("tracer"), capture: None },
    Shipped { name: "udp-echo", text: text!("udp-echo"), capture: None },
];

/// Where the scenarios lie, below the repository.
const SCENARIOS: &str = "scenarios";
/// Where one is laid that does not, below the race's folder.
const LAID: &str = "scenario";

/// A scenario that was asked for, and what has to be written before it can be raced.
pub(crate) struct ResolvedScenario {
    pub(crate) scenario: Scenario,
    laid: Option<(&'static Shipped, PathBuf)>,
}

impl ResolvedScenario {
    /// Reads `given`: a file, or the name of a scenario, whose race writes to `out`. A user who names one of
    /// the `apps` gets an error that says what is missing.
    pub(crate) fn read(
        given: &str,
        out: &Path,
        apps: &[&AppFacts],
    ) -> Result<ResolvedScenario, Failure> {
        if Path::new(given).extension().is_some() {
            let scenario = Scenario::load(Path::new(given)).map_err(Failure::input)?;
            return Ok(ResolvedScenario { scenario, laid: None });
        }
        if let Some(file) = in_the_repository(given) {
            let scenario = Scenario::load(&file).map_err(Failure::input)?;
            return Ok(ResolvedScenario { scenario, laid: None });
        }
        let shipped = SHIPPED.iter().find(|shipped| shipped.name == given);
        let Some(shipped) = shipped else { return Err(unknown(given, apps)) };
        let folder = out.join(LAID);
        let scenario = Scenario::read(shipped.text, given, &folder).map_err(Failure::input)?;
        Ok(ResolvedScenario { scenario, laid: Some((shipped, folder)) })
    }

    /// Writes the files that the race needs, unless the scenario was read from a file.
    pub(crate) fn extract(&self) -> Result<(), Failure> {
        let Some((shipped, folder)) = &self.laid else { return Ok(()) };
        let text = (format!("{}.toml", shipped.name), shipped.text.as_bytes());
        let capture = shipped.capture.as_ref().map(|c| (c.path.to_owned(), c.bytes));
        for (path, bytes) in [Some(text), capture].into_iter().flatten() {
            let path = folder.join(path);
            let parent = path.parent().expect("it is in the folder");
            let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes));
            written.map_err(|error| {
                let path = path.display();
                Failure::input(format!(
                    "cannot write {path}: {error}; give another folder with --out"
                ))
            })?;
        }
        Ok(())
    }
}

/// What a race may be asked for, for `--help`.
pub(crate) fn help() -> String {
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    format!("A scenario file, or the name of a shipped one: {}", names.join(", "))
}

/// The scenario's file beside the current folder, or beside the repository that the program was built in.
fn in_the_repository(name: &str) -> Option<PathBuf> {
    let file = Path::new(SCENARIOS).join(format!("{name}.toml"));
    let program = std::env::current_exe().unwrap_or_default();
    let places = [Path::new(".")].into_iter().chain(program.ancestors().skip(1));
    places.map(|place| place.join(&file)).find(|path| path.is_file())
}

fn unknown(given: &str, apps: &[&AppFacts]) -> Failure {
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let meant = match nearest(given, &names) {
        Some(name) => format!(" (did you mean `{name}`?)"),
        None => String::new(),
    };
    let is_app = match apps.iter().any(|facts| facts.name == given) {
        true => format!(": it is an app, which a scenario names (app = \"{given}\")"),
        false => String::new(),
    };
    Failure::input(format!(
        "there is no scenario `{given}`{is_app}{meant}; the scenarios are {}; or give a file (.toml)",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_repository_is_inside_with_what_it_replays() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SCENARIOS);
        let files = fs::read_dir(&folder).unwrap().flatten().map(|file| file.path());
        let scenarios = files.filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
        let mut names: Vec<String> =
            scenarios.map(|path| path.file_stem().unwrap().display().to_string()).collect();
        names.sort();
        assert_eq!(names, SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>());
        for shipped in SHIPPED {
            let scenario = Scenario::read(shipped.text, shipped.name, Path::new("x")).unwrap();
            let capture = shipped.capture.as_ref().map(|c| Path::new("x").join(c.path));
            assert_eq!(scenario.capture, capture, "{}", shipped.name);
        }
    }

    #[test]
    fn a_scenario_is_laid_with_its_capture_and_can_be_read_there() {
        let folder = std::env::temp_dir().join(format!("laneway-laid-{}", std::process::id()));
        let shipped = SHIPPED.iter().find(|shipped| shipped.name == "tap").unwrap();
        let scenario = Scenario::read(shipped.text, "tap", &folder).unwrap();
        let asked =
            ResolvedScenario { scenario: scenario.clone(), laid: Some((shipped, folder.clone())) };
        asked.extract().unwrap();
        let again = Scenario::load(&folder.join("tap.toml")).unwrap();
        assert!(again == scenario && again.capture.unwrap().is_file());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_mistyped_name_is_answered_with_the_nearest() {
        let Err(Failure::Because(_, sentence)) =
            ResolvedScenario::read("pnig", Path::new("x"), &[])
        else {
            panic!("there is no such scenario");
        };
        assert!(sentence.contains("did you mean `ping`") && sentence.contains("tap"), "{sentence}");
    }
}
