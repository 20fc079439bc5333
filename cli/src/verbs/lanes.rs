//! `laneway lanes`: what this machine can do, asked by doing it.
//!
//! Every mode of every lane is opened on a veth pair in a network namespace of its own, and what it
//! obtained is read back; pair and namespaces are removed at once, and the machine's interfaces are
//! never touched. What a veth cannot (zero copy) may be possible on another interface: the answer
//! says where it was asked.

use crate::exit::{Exit, Failure};
use crate::registry::{self, LANES, Lane, LaneEntry};
use crate::{interrupt, terminal};
use laneway_core::{Cap, CapsReport, LaneError};
use laneway_netns::{Topology, TopologyOptions, can_create};
use serde::Serialize;
use serde_json::json;

/// One mode of a lane.
#[derive(Debug, Serialize)]
struct Mode {
    spec: &'static str,
    /// What was asked for and obtained; nothing where the mode is not to be had.
    caps: Option<CapsReport>,
    missing: Option<Missing>,
}

/// Why a mode is not to be had.
#[derive(Clone, Debug, Serialize)]
struct Missing {
    what: String,
    /// What adds it.
    command: Option<String>,
}

pub(crate) fn run(json: bool) -> Result<Exit, Failure> {
    let world = World::make(json)?;
    let answers: Vec<(&LaneEntry, Vec<Mode>)> = LANES
        .iter()
        .map(|entry| (entry, entry.modes.iter().map(|spec| world.ask(entry, spec)).collect()))
        .collect();
    let asked_on = match &world {
        World::Veth(_) => "a veth pair in a network namespace of its own, removed again",
        World::None(_) => "nothing: no network namespace can be made here",
    };
    drop(world);
    if json {
        let lanes: Vec<serde_json::Value> = answers
            .iter()
            .map(|(entry, modes)| {
                json!({ "lane": entry.name, "about": entry.about, "modes": modes })
            })
            .collect();
        let value = json!({ "verb": "lanes", "asked_on": asked_on, "lanes": lanes });
        terminal::print_json(&value, false)?;
    } else {
        let mut text = String::new();
        for (entry, modes) in &answers {
            text.push_str(&format!("{:<8} {}\n", entry.name, entry.about));
            modes.iter().for_each(|mode| text.push_str(&mode.line(entry)));
        }
        text.push_str(&format!("asked on {asked_on}\n"));
        terminal::print(&text)?;
    }
    Ok(Exit::Done)
}

impl Mode {
    fn line(&self, entry: &LaneEntry) -> String {
        let spec = self.spec;
        match (&self.caps, &self.missing) {
            (Some(caps), _) if entry.lane == Lane::Pcap => {
                debug_assert!(caps.facts.is_empty(), "a file obtains nothing from a machine");
                format!("  yes  {spec:<18} needs no privilege\n")
            }
            (Some(caps), _) => {
                let names: Vec<&str> = caps.obtained.iter().map(|cap| cap.name()).collect();
                let names = if names.is_empty() { "no extras".to_owned() } else { names.join(" ") };
                format!("  yes  {spec:<18} {names}\n")
            }
            (None, missing) => {
                let what = missing.as_ref().map_or("", |missing| missing.what.as_str());
                let mut line = format!("  no   {spec:<18} {what}\n");
                if let Some(command) = missing.as_ref().and_then(|m| m.command.as_ref()) {
                    line.push_str(&format!("       {:<18} try: {command}\n", ""));
                }
                line
            }
        }
    }
}

/// Where lanes are asked.
enum World {
    Veth(Box<Topology>),
    None(Missing),
}

impl World {
    fn make(json: bool) -> Result<World, Failure> {
        // Ctrl-C in the middle leaves no namespace behind.
        interrupt::on_signal(None, json, || {
            let _ = laneway_netns::cleanup_all();
            std::process::exit(Exit::Inconclusive as i32);
        })?;
        let made = can_create().and_then(|()| Topology::create(&TopologyOptions::new("lanes")));
        Ok(match made {
            Ok(topology) => World::Veth(Box::new(topology)),
            Err(error) => {
                let command = match &error {
                    laneway_netns::Error::Unprivileged { .. } => {
                        Some("sudo laneway lanes".to_owned())
                    }
                    laneway_netns::Error::ToolMissing { package, .. } => {
                        Some(format!("sudo apt-get install -y {package}"))
                    }
                    _ => None,
                };
                World::None(Missing { what: error.to_string(), command })
            }
        })
    }

    fn ask(&self, entry: &LaneEntry, spec: &'static str) -> Mode {
        let parsed = spec.parse().expect("the registry's modes are specs; its test reads each");
        let answer = match (entry.lane, self) {
            (Lane::Pcap | Lane::Sim, _) => registry::probe(&parsed, "").map_err(|e| missing(&e)),
            (_, World::None(missing)) => Err(missing.clone()),
            (_, World::Veth(topology)) => {
                let interface = topology.sut.interface;
                let inside = || registry::probe(&parsed, interface).map_err(|e| missing(&e));
                topology
                    .sut
                    .namespace
                    .enter(inside)
                    .unwrap_or_else(|e| Err(Missing { what: e.to_string(), command: None }))
            }
        };
        match answer {
            Ok(caps) => Mode { spec, caps: Some(caps), missing: None },
            Err(missing) => Mode { spec, caps: None, missing: Some(missing) },
        }
    }
}

/// What a lane that does not open is short of.
fn missing(error: &LaneError) -> Missing {
    let (what, command) = match error {
        LaneError::CapMissing { cap: Cap::ZeroCopy, .. } => (
            "not on veth: zero copy takes an interface whose driver has it".to_owned(),
            Some("ethtool -i IFACE".to_owned()),
        ),
        LaneError::NotPermitted { .. } => {
            (error.to_string(), Some("sudo laneway lanes".to_owned()))
        }
        // Hints put the command to type between backquotes.
        LaneError::Os { hint, .. } => {
            (error.to_string(), hint.split('`').nth(1).map(str::to_owned))
        }
        _ => (error.to_string(), None),
    };
    Missing { what, command }
}
