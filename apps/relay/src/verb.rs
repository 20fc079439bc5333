//! `laneway relay`: checks a file of rules, or asks a running relay about its rules and has it change them.
//!
//! Files are read here and rules go over the socket, so the relay itself opens no file while it runs.

use crate::{
    RuleFile, WorkerState,
    console::Request,
    rule::{Rule, RuleId},
};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use laneway_control::{Client, Heard};
use laneway_kinds::{AppVerb, Exit, Failure};
use laneway_linux::Cidr;
use laneway_page::text::grouped;
use laneway_terminal as terminal;
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const HELP: &str = "\
Rules of a file are those of `laneway run relay --help`. A change is answered when every worker has
taken it; a file that is wrong in one line changes nothing. Exit code 2 if something was refused.

The socket speaks lines of JSON, so `socat - UNIX-CONNECT:PATH` does as well:
  {\"command\":\"add\",\"rule\":[{\"input\":{\"group\":\"239.1.1.1\",\"port\":5000},
                            \"outputs\":[{\"destination\":\"239.2.2.2:5000\"}]}]}

Examples:
  laneway relay check relay.toml
  laneway relay replace relay.toml --control /run/relay.sock
  laneway relay remove 5d0c1a2b3c4d --control /run/relay.sock
  laneway relay save --control /run/relay.sock > now.toml";

/// The verb.
pub(crate) const VERB: AppVerb = AppVerb { name: "relay", command, run };

#[derive(Args, Debug)]
struct At {
    /// The socket of a running `laneway run relay --control PATH`
    #[arg(long, value_name = "PATH")]
    control: PathBuf,
}

#[derive(Args, Debug)]
struct Permitted {
    /// Networks whose hosts may be sent to, beside those of the file, separated by commas
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    allow: Vec<Cidr>,
    /// Groups of one network's own protocols may be relayed
    #[arg(long)]
    local_groups: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Say what is wrong with a file of rules, without a running relay
    #[command(after_help = "Example:\n  laneway relay check relay.toml --allow 198.51.100.0/24")]
    Check {
        /// The file (TOML)
        file: PathBuf,
        #[command(flatten)]
        permitted: Permitted,
    },
    /// Show the rules in force
    #[command(after_help = "Example:\n  laneway relay list --control /run/relay.sock")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Add the rules of a file; one with the input of a rule that is there takes its place
    #[command(after_help = "Example:\n  laneway relay add more.toml --control /run/relay.sock")]
    Add {
        /// The file (TOML)
        file: PathBuf,
        /// Take rules whose interfaces are not there; they begin when these appear
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        at: At,
    },
    /// Remove rules
    #[command(
        after_help = "Example:\n  laneway relay remove 970c153d947a --control /run/relay.sock"
    )]
    Remove {
        /// Their ids, as `list` shows them
        #[arg(required = true)]
        id: Vec<RuleId>,
        #[command(flatten)]
        at: At,
    },
    /// Put the rules of a file in the place of all; those that are in both are not touched
    #[command(
        after_help = "Example:\n  laneway relay replace relay.toml --control /run/relay.sock"
    )]
    Replace {
        /// The file (TOML)
        file: PathBuf,
        /// Take rules whose interfaces are not there; they begin when these appear
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        at: At,
    },
    /// Write the rules in force, and what is permitted, as a file to standard output
    #[command(after_help = "Example:\n  laneway relay save --control /run/relay.sock > now.toml")]
    Save {
        #[command(flatten)]
        at: At,
    },
    /// Show what every rule and output has done
    #[command(after_help = "Example:\n  laneway relay status --control /run/relay.sock")]
    Status {
        #[command(flatten)]
        at: At,
    },
    /// Show it again every second, until Ctrl-C
    #[command(after_help = "Example:\n  laneway relay watch --control /run/relay.sock")]
    Watch {
        #[command(flatten)]
        at: At,
    },
}

fn command() -> Command {
    let command = Verb::augment_subcommands(Command::new(VERB.name));
    let command = command.about("Check rules of a relay, or talk to a running one about them");
    command.after_help(HELP).subcommand_required(true).arg_required_else_help(true)
}

fn run(matches: &ArgMatches, json: bool) -> Result<Exit, Failure> {
    let verb =
        Verb::from_arg_matches(matches).map_err(|error| Failure::input(error.to_string()))?;
    match verb {
        Verb::Check { file, permitted } => check(&file, &permitted, json),
        Verb::List { at } => list(&at, json),
        Verb::Add { file, wait, at } => {
            changed(&at, &Request::Add { rule: rules(&file)?, wait }, json)
        }
        Verb::Remove { id, at } => changed(&at, &Request::Remove { id }, json),
        Verb::Replace { file, wait, at } => {
            changed(&at, &Request::Replace { rule: rules(&file)?, wait }, json)
        }
        Verb::Save { at } => save(&at, json),
        Verb::Status { at } => {
            let state = ask(&at, &Request::Status {})?;
            show(&state, json)?;
            Ok(Exit::Done)
        }
        Verb::Watch { at } => watch(&at, json),
    }
}

/// Reads a file of rules.
pub(crate) fn read(path: &Path) -> Result<RuleFile, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("cannot read {}: {error}", path.display())))?;
    RuleFile::from_toml(&text).map_err(|why| Failure::input(format!("{}: {why}", path.display())))
}

/// The rules of a file. Whether they may be is the relay's to say: it knows what is allowed there.
fn rules(path: &Path) -> Result<Vec<Rule>, Failure> {
    Ok(read(path)?.rules)
}

fn check(path: &Path, permitted: &Permitted, json: bool) -> Result<Exit, Failure> {
    let file = read(path)?;
    file.check(&file.policy(&permitted.allow, permitted.local_groups))
        .map_err(|why| Failure::input(format!("{}: {why}", path.display())))?;
    let outputs: usize = file.rules.iter().map(|rule| rule.outputs.len()).sum();
    if json {
        terminal::print_json(
            &serde_json::json!({ "rules": file.rules.len(), "outputs": outputs }),
            false,
        )?;
    } else {
        let rules = file.rules.len();
        terminal::print(&format!(
            "{}: {rules} rules with {outputs} outputs, nothing wrong\n",
            path.display()
        ))?;
    }
    Ok(Exit::Done)
}

/// Asks a running relay.
fn ask(at: &At, request: &Request) -> Result<Value, Failure> {
    let line = serde_json::to_string(request).map_err(Failure::input)?;
    let answer = laneway_control::ask(&at.control, &line).map_err(|error| {
        let path = at.control.display();
        Failure::input(format!("{error}; is `laneway run relay --control {path}` running?"))
    })?;
    let text = answer.lines.concat();
    if !answer.is_refused {
        return serde_json::from_str(&text).map_err(|error| {
            Failure::input(format!(
                "{} answered with what is no JSON: {error}; is it a relay?",
                at.control.display()
            ))
        });
    }
    let why = serde_json::from_str::<Value>(&text).ok();
    let why = why.as_ref().and_then(|value| value["error"].as_str());
    Err(Failure::input(why.unwrap_or(&text)))
}

fn changed(at: &At, request: &Request, json: bool) -> Result<Exit, Failure> {
    let answer = ask(at, request)?;
    if json {
        terminal::print_json(&answer, false)?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for (member, word) in [("removed", "removed"), ("added", "in force")] {
        for id in answer[member].as_array().into_iter().flatten() {
            let _ = writeln!(text, "rule {} {word}", id.as_str().unwrap_or("?"));
        }
    }
    match answer["kept"].as_u64() {
        Some(kept) if kept > 0 => {
            let _ = writeln!(text, "{kept} rules untouched");
        }
        _ if text.is_empty() => text.push_str("nothing to change\n"),
        _ => {}
    }
    terminal::print(&text)?;
    Ok(Exit::Done)
}

fn unread(error: serde_json::Error) -> Failure {
    Failure::input(format!("an answer that cannot be read: {error}"))
}

/// The rules of an answer to [`Request::List`].
fn in_force(mut answer: Value) -> Result<Vec<(RuleId, Rule)>, Failure> {
    let rules = answer["rules"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let read = rules.into_iter().map(|mut rule| {
        let id = rule.as_object_mut().and_then(|members| members.remove("id")).unwrap_or_default();
        Ok((serde_json::from_value(id)?, serde_json::from_value(rule)?))
    });
    read.collect::<Result<_, serde_json::Error>>().map_err(unread)
}

fn list(at: &At, json: bool) -> Result<Exit, Failure> {
    let answer = ask(at, &Request::List {})?;
    if json {
        terminal::print_json(&answer, false)?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for (id, rule) in in_force(answer)? {
        let name = rule.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let _ = writeln!(text, "{id}{name}: {}", rule.input);
        for output in &rule.outputs {
            let by = output.interface.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let _ = writeln!(text, "    to {}{by}", output.destination);
        }
    }
    if text.is_empty() {
        text.push_str("no rules\n");
    }
    terminal::print(&text)?;
    Ok(Exit::Done)
}

/// Writes a file that another run can begin with: what is permitted stands in it.
fn save(at: &At, json: bool) -> Result<Exit, Failure> {
    let mut answer = ask(at, &Request::List {})?;
    let allow = serde_json::from_value(answer["allow"].take()).map_err(unread)?;
    let local_groups = serde_json::from_value(answer["local_groups"].take()).map_err(unread)?;
    let rules = in_force(answer)?.into_iter().map(|(_, rule)| rule).collect();
    let mut file = RuleFile::of(rules);
    (file.allow, file.local_groups) = (allow, local_groups);
    if json {
        terminal::print_json(&file.to_json(), false)?;
    } else {
        terminal::print(&file.to_toml())?;
    }
    Ok(Exit::Done)
}

fn show(state: &Value, json: bool) -> Result<(), Failure> {
    if json {
        terminal::print_json(state, false)?;
        return Ok(());
    }
    let state: WorkerState = serde_json::from_value(state.clone()).map_err(unread)?;
    terminal::print(&table(&state))?;
    Ok(())
}

/// What every rule has done, for a person.
fn table(state: &WorkerState) -> String {
    let mut text = String::new();
    for rule in &state.rules {
        let name = rule.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let _ = writeln!(text, "{}{name}: {}", rule.id, rule.input);
        let _ = write!(text, "  {:>15} datagrams", grouped(rule.datagrams));
        if rule.rate_limited > 0 {
            let _ = write!(text, ", {} beyond the rule's rate", grouped(rule.rate_limited));
        }
        let waits = |waits: &Option<String>| {
            waits.as_ref().map_or_else(String::new, |why| format!("; waits: {why}"))
        };
        let _ = writeln!(text, "{}", waits(&rule.missing));
        if !rule.delays.is_empty() {
            let below = |share| match rule.delays.below_us(share) {
                Some(us) => format!("below {} us", grouped(us)),
                None => "longer".to_owned(),
            };
            let (most, nearly_all) = (below(500), below(990));
            let _ = writeln!(
                text,
                "                  stamp to sent: half {most}, 99 of 100 {nearly_all}"
            );
        }
        for output in &rule.outputs {
            let by = output.interface.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let _ =
                write!(text, "  {:>15} sent to {}{by}", grouped(output.sent), output.destination);
            for (reason, n) in &output.drops {
                let _ = write!(text, ", {reason} {}", grouped(*n));
            }
            let _ = writeln!(text, "{}", waits(&output.missing));
        }
    }
    for (why, n) in &state.unmatched {
        let _ = writeln!(text, "{} datagrams with {why}", grouped(*n));
    }
    for (interface, drops) in &state.interfaces {
        for (reason, n) in drops {
            let _ = writeln!(text, "{} copies by {interface} with {reason}", grouped(*n));
        }
    }
    let _ = write!(text, "{} datagrams", grouped(state.datagrams));
    let _ = match state.reads {
        // The kernel's, which reads none for us.
        0 if state.datagrams > 0 => writeln!(text),
        reads => {
            let per_read = state.datagrams as f64 / reads.max(1) as f64;
            writeln!(text, ", {per_read:.1} per read")
        }
    };
    let batches = state.batches.iter().enumerate().filter(|(_, n)| **n > 0);
    for (class, n) in batches {
        let (from, to) = (1u64 << class, (2u64 << class) - 1);
        let size = if from == to { from.to_string() } else { format!("{from} to {to}") };
        let _ = writeln!(text, "  {:>15} batches of {size}", grouped(*n));
    }
    text
}

/// Longer than a relay waits between two answers.
const WATCH_PATIENCE: Duration = Duration::from_secs(60);

fn watch(at: &At, json: bool) -> Result<Exit, Failure> {
    let line = serde_json::to_string(&Request::Watch {}).map_err(Failure::input)?;
    let mut client = Client::connect(&at.control).map_err(Failure::input)?;
    client.wait_at_most(Some(WATCH_PATIENCE)).map_err(Failure::input)?;
    client.say(&line, &[]).map_err(Failure::input)?;
    loop {
        match client.hear().map_err(Failure::input)? {
            Heard::Line(line) => {
                let state: Value = serde_json::from_str(&line).map_err(Failure::input)?;
                if let Some(why) = state["error"].as_str() {
                    return Err(Failure::input(why));
                }
                if !json && terminal::stdout_is_terminal() {
                    // Home, and clear what is below.
                    terminal::print("\u{1b}[H\u{1b}[J")?;
                }
                show(&state, json)?;
            }
            Heard::Wrong(why) => return Err(Failure::input(why)),
            Heard::End => return Ok(Exit::Done),
        }
    }
}
