//! `laneway lanes`: what this machine can do, asked by doing it.
//!
//! Every mode of every lane is opened and closed again, and what it obtained is read back: sockets on
//! the loopback address, and what needs an interface on a veth pair in a network namespace of its own.
//! Pair and namespaces are removed at once, and the machine's interfaces are never touched. What a veth
//! cannot (zero copy) may be possible on another interface: the answer says where it was asked.

use laneway_core::{Cap, CapsReport, LaneError};
use laneway_kinds::{LaneFacts, Mode, Needs, Ports};
use laneway_netns::{Namespace, Topology, TopologyOptions, can_create};
use laneway_registry::{LaneTable, lanes, probe};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde::Serialize;
use serde_json::json;

/// What a mode of a lane answered.
#[derive(Debug, Serialize)]
struct Answer {
    spec: &'static str,
    /// What was asked for and obtained; nothing where the mode is not to be had.
    caps: Option<CapsReport>,
    missing: Option<Missing>,
}

/// Why a mode is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Missing {
    what: String,
    /// What adds it, in words; nothing where the command says all.
    remedy: Option<String>,
    /// What adds it, to be typed.
    command: Option<String>,
}

pub(crate) fn run<L: LaneTable>(json: bool) -> Result<Exit, Failure> {
    let world = World::make(json)?;
    let answers: Vec<(&LaneFacts, Vec<Answer>)> =
        lanes::<L>().into_iter().map(|lane| (lane, world.ask_all::<L>(lane.modes))).collect();
    let asked_on = match &world {
        World::Veth(_) => {
            "a veth pair in a network namespace of its own, removed again; sockets on loopback"
        }
        World::None(_) => "the loopback address alone: no network namespace can be made here",
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
        terminal::print(&page(&answers, asked_on))?;
    }
    Ok(Exit::Done)
}

/// The answers for a person.
fn page(answers: &[(&LaneFacts, Vec<Answer>)], asked_on: &str) -> String {
    let modes = || answers.iter().flat_map(|(_, modes)| modes);
    let spec_chars = modes().map(|mode| mode.spec.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (entry, modes) in answers {
        text.push_str(&format!("{:<8} {}\n", entry.name, entry.about));
        let mut above = None;
        for mode in modes {
            text.push_str(&mode.lines(entry, spec_chars, above));
            above = mode.missing.as_ref();
        }
    }
    let (had, all) = (modes().filter(|mode| mode.caps.is_some()).count(), modes().count());
    text.push_str(&format!("\n{had} of {all} modes are to be had here. Asked on {asked_on}.\n"));
    text
}

impl Answer {
    /// One line, and what to do below it; not again where the mode `above` misses the same.
    fn lines(&self, entry: &LaneFacts, spec_chars: usize, above: Option<&Missing>) -> String {
        let spec = self.spec;
        match (&self.caps, &self.missing) {
            (Some(_), _) if entry.ports == Ports::Files => {
                format!("  yes  {spec:<spec_chars$}  needs no privilege\n")
            }
            (Some(caps), _) => {
                let names: Vec<&str> = caps.obtained.iter().map(|cap| cap.name()).collect();
                let names = if names.is_empty() { "no extras".to_owned() } else { names.join(" ") };
                format!("  yes  {spec:<spec_chars$}  {names}\n")
            }
            (None, missing) => {
                let Some(missing) = missing else { return String::new() };
                if above == Some(missing) {
                    return format!("  no   {spec:<spec_chars$}  likewise\n");
                }
                let mut lines = format!("  no   {spec:<spec_chars$}  {}\n", missing.what);
                // The command alone can be typed; words are for what no command adds.
                let remedy = match (&missing.command, &missing.remedy) {
                    (Some(command), _) => Some(format!("to add it: {command}")),
                    (None, remedy) => remedy.clone(),
                };
                if let Some(remedy) = remedy {
                    lines.push_str(&format!("       {:<spec_chars$}  {remedy}\n", ""));
                }
                lines
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
        terminal::on_signal(None, json, || std::process::exit(Exit::Inconclusive as i32))?;
        let made = can_create().and_then(|()| Topology::create(&TopologyOptions::new("lanes")));
        Ok(match made {
            Ok(topology) => World::Veth(Box::new(topology)),
            Err(error) => {
                let command = match &error {
                    laneway_netns::Error::Unprivileged { .. } => Some(AS_ROOT.to_owned()),
                    laneway_netns::Error::ToolMissing { package, .. } => {
                        Some(as_root(&format!("apt-get install -y {package}")))
                    }
                    _ => None,
                };
                World::None(Missing { what: error.to_string(), remedy: None, command })
            }
        })
    }

    /// Asks every mode and tells them in their order. DPDK starts once per process, with huge pages or
    /// without, so huge pages are asked for first: where there are none, it is not started by that.
    fn ask_all<L: LaneTable>(&self, modes: &[Mode]) -> Vec<Answer> {
        let wants_huge = |mode: &Mode| mode.spec.ends_with("hugepages");
        let mut order: Vec<usize> = (0..modes.len()).collect();
        order.sort_by_key(|&i| !wants_huge(&modes[i]));
        let mut answers: Vec<(usize, Answer)> = order
            .into_iter()
            .map(|i| {
                let spec = modes[i].spec;
                let answer = match self.answer::<L>(&modes[i]) {
                    Ok(caps) => Answer { spec, caps: Some(caps), missing: None },
                    Err(missing) => Answer { spec, caps: None, missing: Some(missing) },
                };
                (i, answer)
            })
            .collect();
        answers.sort_by_key(|&(i, _)| i);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn answer<L: LaneTable>(&self, mode: &Mode) -> Result<CapsReport, Missing> {
        let ask = |interface: &str| probe::<L>(mode, interface).map_err(|e| missing(&e));
        match (mode.needs, self) {
            (Needs::Nothing, _) | (Needs::Name, World::None(_)) => ask(""),
            (_, World::None(missing)) => Err(missing.clone()),
            (_, World::Veth(topology)) => {
                inside(&topology.sut.namespace, || ask(topology.sut.interface))
            }
        }
    }
}

fn inside<T: Send>(
    namespace: &Namespace,
    ask: impl FnOnce() -> Result<T, Missing> + Send,
) -> Result<T, Missing> {
    let cannot =
        |e: laneway_netns::Error| Missing { what: e.to_string(), remedy: None, command: None };
    namespace.enter(ask).unwrap_or_else(|e| Err(cannot(e)))
}

/// How this verb is run with every privilege.
const AS_ROOT: &str = "sudo laneway lanes";

/// Programs that change the machine, which only root may.
const NEED_ROOT: [&str; 6] = ["apt-get", "sysctl", "ip", "ethtool", "modprobe", "mount"];

/// A command as the user must type it.
fn as_root(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && NEED_ROOT.contains(&program) {
        format!("sudo {command}")
    } else {
        command.to_owned()
    }
}

/// What a lane that does not open is short of.
fn missing(error: &LaneError) -> Missing {
    // Hints put the command to type between backquotes.
    let typed = |hint: &str| hint.split('`').nth(1).map(as_root);
    let (what, hint) = match error {
        LaneError::CapMissing { cap: Cap::ZeroCopy, .. } => {
            let what = "veth has no zero copy; an interface whose driver has it would".to_owned();
            let remedy = Some("`ethtool -i IFACE` names the driver of an interface".to_owned());
            return Missing { what, remedy, command: None };
        }
        LaneError::CapMissing { cap, needs: Some(needs), .. } => (
            format!("{} needs {needs}; this is Linux {}", cap.name(), laneway_linux::release()),
            None,
        ),
        LaneError::CapMissing { cap, .. } => {
            (format!("{} is not to be had on this kernel and device", cap.name()), None)
        }
        LaneError::NotPermitted { doing, hint, .. } => {
            let command = typed(hint)
                .or_else(|| (!rustix::process::geteuid().is_root()).then(|| AS_ROOT.to_owned()));
            let what = format!("not permitted to {doing}");
            return Missing { what, remedy: Some(hint.clone()), command };
        }
        LaneError::NotFound { what, name, hint, .. } => {
            (format!("there is no {what} `{name}`"), Some(hint))
        }
        LaneError::Busy { name, why, hint, .. } => (format!("`{name}` is busy: {why}"), Some(hint)),
        LaneError::Refused { why, hint, .. } => (why.clone(), Some(hint)),
        LaneError::Os { doing, source, hint, .. } => {
            (format!("cannot {doing}: {source}"), Some(hint))
        }
        LaneError::Spec(_) | LaneError::Gone { .. } | LaneError::Input { .. } => {
            (error.to_string(), None)
        }
    };
    Missing { what, remedy: hint.cloned(), command: hint.and_then(|hint| typed(hint)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_registry::Lanes;

    #[test]
    fn a_hint_becomes_the_command_between_its_backquotes() {
        let error = LaneError::NotFound {
            lane: "dpdk".to_owned(),
            what: "shared library",
            name: "librte_ethdev.so.23".to_owned(),
            hint: "`apt-get install librte-ethdev23` brings it".to_owned(),
        };
        let missing = missing(&error);
        assert_eq!(missing.what, "there is no shared library `librte_ethdev.so.23`");
        let command = missing.command.unwrap();
        assert!(command.ends_with("apt-get install librte-ethdev23"), "{command}");
    }

    #[test]
    fn a_forbidden_ring_names_the_setting_and_its_command() {
        let hint = "kernel.io_uring_disabled is 2; try `sysctl -w kernel.io_uring_disabled=0`";
        let error = LaneError::NotPermitted {
            lane: "uring".to_owned(),
            doing: "set up an io_uring".to_owned(),
            hint: hint.to_owned(),
        };
        let missing = missing(&error);
        assert_eq!(missing.what, "not permitted to set up an io_uring");
        assert!(missing.command.unwrap().ends_with("sysctl -w kernel.io_uring_disabled=0"));
        assert_eq!(missing.remedy.as_deref(), Some(hint));
    }

    #[test]
    fn the_page_counts_modes_and_puts_the_command_below_what_is_missing() {
        let no = Missing {
            what: "no huge page is free".to_owned(),
            remedy: Some("reserve some".to_owned()),
            command: Some("sysctl vm.nr_hugepages=64".to_owned()),
        };
        let modes = vec![
            Answer { spec: "sim", caps: Some(CapsReport::default()), missing: None },
            Answer { spec: "sim:long=knob", caps: None, missing: Some(no.clone()) },
            Answer { spec: "sim:other", caps: None, missing: Some(no) },
        ];
        let entry = lanes::<Lanes>().into_iter().find(|lane| lane.name == "sim").unwrap();
        let page = page(&[(entry, modes)], "nothing");
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[1], "  yes  sim            no extras");
        assert_eq!(lines[2], "  no   sim:long=knob  no huge page is free");
        assert_eq!(lines[3], "                      to add it: sysctl vm.nr_hugepages=64");
        assert_eq!(lines[4], "  no   sim:other      likewise", "stated once");
        assert!(page.contains("1 of 3 modes"), "{page}");
    }
}
