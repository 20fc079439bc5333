//! `laneway rules`: the client of a forwarder's control socket.
//!
//! Says one command at a time and prints its answer as it comes; the protocol is that of `control.rs`. Answers go to
//! standard output, refusals to standard error, and a refusal does not keep the commands behind it from being said.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use laneway_kinds::{AppVerb, Exit, Failure};
use laneway_terminal as terminal;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any command waits to be in force.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// How the first line of a refusal begins.
const REFUSED: &str = "error: ";

const HELP: &str = "\
Commands are those of `laneway run forward --interactive`: flow create|validate|list|query|destroy|flush,
show stats, show rules [PORT], help. Without one they are read from standard input, line by line. Each
is answered before the next is said. Exit code 2 if any was refused.

The socket speaks lines, so `socat - UNIX-CONNECT:PATH` does as well: every line is a command, every
answer ends with an empty line, and that to a refused command begins with `error: `.

Examples:
  laneway rules --control /run/forward.sock 'flow list 0' 'show stats'
  laneway rules --control /run/forward.sock \\
      'flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end actions drop / count / end'
  laneway rules --control /run/forward.sock < rules.txt";

/// What may be said to it.
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
    let mut client = Client::connect(&arguments.control, json)?;
    if arguments.command.is_empty() {
        for line in io::stdin().lock().lines() {
            let line = line.map_err(|error| {
                Failure::input(format!("cannot read commands from standard input: {error}"))
            })?;
            client.say(&line)?;
        }
    }
    arguments.command.iter().try_for_each(|line| client.say(line))?;
    client.conclude()
}

struct Client<'a> {
    path: &'a Path,
    input: BufReader<UnixStream>,
    json: bool,
    told: Vec<Value>,
    said: usize,
    refused: usize,
}

impl<'a> Client<'a> {
    fn connect(path: &'a Path, json: bool) -> Result<Client<'a>, Failure> {
        let socket = UnixStream::connect(path).and_then(|socket| {
            socket.set_read_timeout(Some(ANSWER_WAIT))?;
            socket.set_write_timeout(Some(ANSWER_WAIT))?;
            Ok(socket)
        });
        let socket = socket.map_err(|error| {
            Failure::input(format!(
                "cannot talk to {}: {error}; is `laneway run forward --control {0}` running?",
                path.display()
            ))
        })?;
        let input = BufReader::new(socket);
        Ok(Client { path, input, json, told: Vec::new(), said: 0, refused: 0 })
    }

    /// Says a line and prints what is answered.
    fn say(&mut self, line: &str) -> Result<(), Failure> {
        if line.contains('\n') {
            return Err(Failure::input(
                "a command is one line; give each as an argument of its own",
            ));
        }
        let path = self.path.display().to_string();
        let lost = |error: io::Error| {
            let why = match error.kind() {
                io::ErrorKind::WouldBlock => {
                    format!("it gave no answer for {} s", ANSWER_WAIT.as_secs())
                }
                _ => error.to_string(),
            };
            Failure::input(format!("lost {path} at `{line}`: {why}; it may have ended"))
        };
        self.input.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(lost)?;
        let mut answer = Vec::new();
        let mut is_refusal = false;
        loop {
            let mut text = String::new();
            if self.input.read_line(&mut text).map_err(lost)? == 0 {
                // It ends the conversation after `quit`, as it was asked to.
                let is_end = line.trim() == "quit" && answer.is_empty();
                return if is_end {
                    Ok(())
                } else {
                    Err(lost(io::ErrorKind::UnexpectedEof.into()))
                };
            }
            let text = text.trim_end_matches('\n');
            if text.is_empty() {
                break;
            }
            is_refusal |= answer.is_empty() && text.starts_with(REFUSED);
            if self.json {
                answer.push(text.strip_prefix(REFUSED).unwrap_or(text).to_owned());
            } else {
                answer.push(String::new());
                match is_refusal {
                    true => terminal::note(text),
                    false => terminal::print(&format!("{text}\n"))?,
                }
            }
        }
        self.said += 1;
        self.refused += usize::from(is_refusal);
        if self.json {
            self.told.push(json!({ "command": line, "done": !is_refusal, "lines": answer }));
        }
        Ok(())
    }

    fn conclude(self) -> Result<Exit, Failure> {
        if self.json {
            let Client { path, told, .. } = &self;
            terminal::print_json(
                &json!({ "verb": "rules", "control": terminal::path_json(path), "commands": told }),
                false,
            )?;
        }
        match self.refused {
            0 => Ok(Exit::Done),
            refused => Err(Failure::input(format!(
                "{refused} of {} commands refused; what was expected stands above, and `laneway rules \
                 --control {} help` shows them all",
                self.said,
                self.path.display()
            ))),
        }
    }
}
