//! `laneway rules`: the client of a forwarder's control socket.
//!
//! Says one command at a time and prints its answer as it comes; the protocol is that of `laneway_control`. Answers go
//! to standard output, refusals to standard error, and a refusal does not keep the commands behind it from being sent.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use laneway_control::{Client, Heard};
use laneway_kinds::{AppVerb, Exit, Failure};
use laneway_terminal as terminal;
use serde_json::{Value, json};
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

const HELP: &str = "\
Commands are those of `laneway run forward --interactive`: flow create|validate|list|query|destroy|flush,
show stats, show rules [PORT], help. Without one they are read from standard input, line by line. Each
is answered before the next is sent. Exit code 2 if any was refused.

The socket speaks lines, so `socat - UNIX-CONNECT:PATH` does as well: every line is a command, every
answer ends with an empty line, and that to a refused command begins with `error: `.

Examples:
  laneway rules --control /run/forward.sock 'flow list 0' 'show stats'
  laneway rules --control /run/forward.sock \\
      'flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end actions drop / count / end'
  laneway rules --control /run/forward.sock < rules.txt";

/// Its options.
#[derive(Args, Debug)]
struct RulesArguments {
    /// The socket of a running `laneway run forward --control PATH`
    #[arg(long, value_name = "PATH")]
    control: PathBuf,
    /// Commands, in their order [default: the lines of standard input]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// The verb.
pub(crate) const VERB: AppVerb = AppVerb { name: "rules", command, run };

fn command() -> Command {
    let command = RulesArguments::augment_args(Command::new(VERB.name));
    let command = command.about("Talk to a running forwarder about its flow rules");
    command.after_help(HELP).arg_required_else_help(true)
}

fn run(matches: &ArgMatches, json: bool) -> Result<Exit, Failure> {
    let arguments = RulesArguments::from_arg_matches(matches)
        .map_err(|error| Failure::input(error.to_string()))?;
    let mut asking = Asking::connect(&arguments.control, json)?;
    if arguments.command.is_empty() {
        for line in io::stdin().lock().lines() {
            let line = line.map_err(|error| {
                Failure::input(format!("cannot read commands from standard input: {error}"))
            })?;
            asking.send(&line)?;
        }
    }
    arguments.command.iter().try_for_each(|line| asking.send(line))?;
    asking.conclude()
}

struct Asking<'a> {
    path: &'a Path,
    client: Client,
    json: bool,
    answers: Vec<Value>,
    sent: usize,
    refused: usize,
}

impl<'a> Asking<'a> {
    fn connect(path: &'a Path, json: bool) -> Result<Asking<'a>, Failure> {
        let client = Client::connect(path).map_err(|error| {
            Failure::input(format!(
                "{error}; is `laneway run forward --control {}` running?",
                path.display()
            ))
        })?;
        Ok(Asking { path, client, json, answers: Vec::new(), sent: 0, refused: 0 })
    }

    /// Says a line and prints what is answered.
    fn send(&mut self, line: &str) -> Result<(), Failure> {
        self.client.say(line, &[]).map_err(Failure::input)?;
        let mut answer = Vec::new();
        let mut is_refusal = false;
        loop {
            let heard = self.client.hear().map_err(Failure::input)?;
            let is_first = !is_refusal;
            is_refusal |= matches!(heard, Heard::Wrong(_));
            match heard {
                Heard::End => break,
                Heard::Line(text) | Heard::Wrong(text) if self.json => answer.push(text),
                Heard::Line(text) => terminal::print(&format!("{text}\n"))?,
                Heard::Wrong(text) if is_first => terminal::note(&format!("error: {text}")),
                Heard::Wrong(text) => terminal::note(&text),
            }
        }
        self.sent += 1;
        self.refused += usize::from(is_refusal);
        if self.json {
            self.answers.push(json!({ "command": line, "done": !is_refusal, "lines": answer }));
        }
        Ok(())
    }

    fn conclude(self) -> Result<Exit, Failure> {
        if self.json {
            let Asking { path, answers, .. } = &self;
            terminal::print_json(
                &json!({ "verb": "rules", "control": terminal::path_json(path), "commands": answers }),
                false,
            )?;
        }
        match self.refused {
            0 => Ok(Exit::Done),
            refused => Err(Failure::input(format!(
                "{refused} of {} commands refused; what was expected stands above, and `laneway rules \
                 --control {} help` shows them all",
                self.sent,
                self.path.display()
            ))),
        }
    }
}
