//! What may be said to `laneway rules`.

use clap::Args;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
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

#[derive(Args, Debug)]
pub(crate) struct RulesArguments {
    /// The socket of a running `laneway run forward --control PATH`
    #[arg(long, value_name = "PATH")]
    pub(crate) control: PathBuf,
    /// Commands, in their order [default: the lines of standard input]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
