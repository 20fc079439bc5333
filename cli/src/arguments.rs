//! The arguments of the command line. Reading it decides nothing and touches nothing.

mod doctor;
mod generate;
mod record;
mod trace;

pub(crate) use doctor::DoctorArguments;
pub(crate) use generate::{Generator, KvArguments, McastArguments, ReplayArguments, TcpArguments};
pub(crate) use record::RecordArguments;
pub(crate) use trace::{
    AnalyzeArguments, DiffArguments, ExportArguments, ExportFormat, KnowledgeArguments, Moment,
    PartArguments, TraceVerb,
};

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use laneway_spec::LaneSpec;
use laneway_terminal::duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  laneway lanes
  laneway features capture.pcapng -o packets.parquet
  laneway run features --lane xdp --on eth1 --level flow -o flows.parquet

Exit codes: 0 done, 1 a stated goal was missed (--strict), 2 bad usage or input, 3 inconclusive or
interrupted, 4 invalid run (its ledger is open).";

/// Runs a packet application on any Linux I/O path ("lane"), and says what became of every frame.
#[derive(Debug, Parser)]
#[command(name = "laneway", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_required = true, infer_long_args = false)]
pub(crate) struct Arguments {
    /// Say it as JSON, on standard output (on standard error when rows go to standard output)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// What this machine can do: each lane, the modes it obtains, and what is missing for the rest
    #[command(after_help = LANES_EXAMPLES)]
    Lanes,
    /// Run an app on a lane
    #[command(after_help = RUN_EXAMPLES, arg_required_else_help = true)]
    Run {
        #[command(subcommand)]
        app: RunApp,
    },
    /// Send traffic: replay captures, ask a server
    #[command(after_help = generate::EXAMPLES, arg_required_else_help = true)]
    Gen {
        #[command(subcommand)]
        what: Generator,
    },
    /// Race lanes against each other: arms in turn, closed ledgers, verdicts, a report page
    #[command(after_help = RACE_EXAMPLES, arg_required_else_help = true)]
    Race(Box<RaceArguments>),
    /// Say why a lane is slow from a trace of it, with evidence
    #[command(after_help = trace::EXAMPLES, arg_required_else_help = true)]
    Trace {
        #[command(subcommand)]
        what: TraceVerb,
    },
    /// Make the report of a race again from its result file, or a page of the claims or figures of several
    #[command(after_help = REPORT_EXAMPLES, arg_required_else_help = true)]
    Report(ReportArguments),
    /// Say what an app asks of this host for a load: what is, what should be, and why
    #[command(after_help = doctor::EXAMPLES, arg_required_else_help = true)]
    Doctor(DoctorArguments),
    /// Be an arm of a race
    #[command(hide = true, after_help = CHILD_EXAMPLES)]
    Arm,
    /// Be the generator of a race
    #[command(hide = true, after_help = CHILD_EXAMPLES)]
    Generate,
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES, arg_required_else_help = true)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages, completion scripts and the tables of the reference to a folder
    #[command(after_help = MANUAL_EXAMPLES, arg_required_else_help = true)]
    Manual {
        /// The folder; it is created where it is not there
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

const LANES_EXAMPLES: &str = "\
Opens every mode of every lane and closes it again: sockets and io_uring on the loopback address,
the rest on a veth pair in a network namespace of its own, which is removed. The machine's
interfaces are not touched. Lanes that need root say so without it. Each `no` names what is missing
and, below it, the command that adds it.

Examples:
  sudo laneway lanes
  sudo laneway lanes --json | jq '.lanes[].modes[] | select(.missing) | .spec'";

const RUN_EXAMPLES: &str = "\
Examples:
  sudo laneway run features --lane packet:ring --on eth1 --duration 10 -o packets.csv
  sudo laneway run echo --lane xdp --on eth1 --address 192.0.2.9
  laneway run echo --lane socket --udp --listen 0.0.0.0:7007";

const RACE_EXAMPLES: &str = "\
Builds two network namespaces joined by a cable for each arm, keeps all arms alive, offers a load to one after
the other in short segments, starts them afresh every few rounds, and removes everything. The first arm is the
base of every comparison; it runs twice, for the noise floor. It ends when every verdict is decided, or with
--time. What other programs use is in no figure; where they leave too few segments whole, there is no verdict.
Needs root.

Exit codes: 0 done, 1 a stated goal was missed, 2 it could not be run, 3 not decided or interrupted,
4 invalid: a ledger is open, a frame was delivered twice, or the meter does not close.

Examples:
  sudo laneway race features
  sudo laneway race features --full --out out/full
  sudo laneway race features --time 60 --verbose
  sudo laneway race udp-echo --arm './my-server --listen {address}:{port}'
  sudo laneway race tcp-echo --variant c100 --arm './my-server --listen {address}:{port}'
  sudo laneway race features --pcap mine.pcap --lane packet:ring --lane xdp --load 500000
  sudo laneway race lanes --variant count-64
  sudo laneway race lanes --wakeup
  sudo laneway race tap --trace
  sudo laneway race scenarios/features.toml --generator packet --load 100000";

const REPORT_EXAMPLES: &str = "\
Examples:
  laneway report out/race-features
  laneway report --claims out/race-features out/race-ping/* out/race-tap > founding-reports.md
  laneway report --figures out/race-features out/race-ping/* out/race-tap > figures.md";

const CHILD_EXAMPLES: &str = "\
It is the inside of `laneway race`, which tells it on standard input what to be.";

const COMPLETIONS_EXAMPLES: &str = "\
Example:
  laneway completions bash > /etc/bash_completion.d/laneway";

const MANUAL_EXAMPLES: &str = "\
Example:
  laneway manual --out /tmp/laneway && man /tmp/laneway/man/laneway-race.1";

/// The app of a run, by name, and its arguments. The verbs are those of a table, and are put behind it.
#[derive(Debug)]
pub(crate) struct RunApp {
    pub(crate) name: String,
    pub(crate) matches: ArgMatches,
}

impl FromArgMatches for RunApp {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RunApp, clap::Error> {
        let Some((name, own)) = matches.subcommand() else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        Ok(RunApp { name: name.to_owned(), matches: own.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = RunApp::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for RunApp {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommand_required(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command
    }

    fn has_subcommand(_name: &str) -> bool {
        false
    }
}

/// Arguments of every run, whichever the app.
#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// Lane and knobs, such as xdp, afxdp, socket:batch=64; `laneway lanes` lists them
    #[arg(long, value_name = "SPEC")]
    pub(crate) lane: LaneSpec,
    /// Interfaces, or capture files on lane pcap, separated by commas
    #[arg(long, value_name = "IFACE", value_delimiter = ',')]
    pub(crate) on: Vec<String>,
    /// End after this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Keep the worker on this CPU
    #[arg(long, value_name = "CPU", conflicts_with_all = ["workers", "cpus"])]
    pub(crate) cpu: Option<usize>,
    /// Threads, each with a CPU and a lane of its own; the kernel or the device spreads the work over them
    /// [default: 1, on no CPU in particular]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=LIVE_WORKERS_MAX))]
    pub(crate) workers: Option<u8>,
    /// CPUs of the workers, such as 0,2 or 4-7 [default: the first that may be used]
    #[arg(long, value_name = "LIST", value_parser = cpu_range, value_delimiter = ',')]
    pub(crate) cpus: Vec<RangeInclusive<usize>>,
    /// Trace the workers into this folder, a file each; `laneway trace analyze DIR` reads it
    #[arg(long, value_name = "DIR")]
    pub(crate) trace: Option<PathBuf>,
    /// Show what is counted at this address, such as 127.0.0.1:9100, or a port of 127.0.0.1 (0: any that is free),
    /// as Prometheus reads it: http://ADDR/metrics
    #[arg(long, value_name = "ADDR", value_parser = metrics_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Show it at an address that other machines reach, too
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_anywhere: bool,
    /// Use interfaces that carry a default route as well
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// The folder that the race wrote, or its result.json
    #[arg(value_name = "DIR", required = true)]
    pub(crate) races: Vec<PathBuf>,
    /// Instead, print one page of Markdown: what was claimed, what was measured, and how, race after race
    #[arg(long)]
    pub(crate) claims: bool,
    /// Instead, print one page of Markdown: each question that the races asked, with the figure, verdict, commit and
    /// command of the newest valid race that answers it
    #[arg(long, conflicts_with = "claims")]
    pub(crate) figures: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RaceArguments {
    #[arg(value_name = "APP|SCENARIO.toml", help = crate::shipped::help())]
    pub(crate) scenario: String,
    /// Race these lane specs instead of the scenario's arms; the first is the base
    #[arg(long, value_name = "SPEC")]
    pub(crate) lane: Vec<String>,
    /// Race this program as well: its command line, in which {address}, {port} and the like are filled in
    /// (docs/guide/any-program.md)
    #[arg(long, value_name = "COMMAND", conflicts_with = "wakeup")]
    pub(crate) arm: Vec<String>,
    /// The same of a program that receives and does not print how much: only its CPU time is compared, per offered
    /// packet
    #[arg(long, value_name = "COMMAND", conflicts_with = "wakeup")]
    pub(crate) arm_uncounted: Vec<String>,
    /// Of a scenario with variants, race only these
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Vec<String>,
    /// No race: per arm and idle policy, what waiting costs and how late the first packet is seen
    #[arg(long, conflicts_with = "variant")]
    pub(crate) wakeup: bool,
    /// The short version, a minute or two per variant [the default]
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// The long version, ten minutes or more per variant
    #[arg(long)]
    pub(crate) full: bool,
    /// Replay this capture
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// How frames enter the wire: live (XDP live frames), or a lane that transmits, such as packet
    #[arg(long, value_name = "WAY")]
    pub(crate) generator: Option<String>,
    /// Offered loads, frames per second, separated by commas
    #[arg(long, value_name = "PPS", value_delimiter = ',')]
    pub(crate) load: Vec<u64>,
    /// How long arms are measured at most; the race ends earlier when every verdict is decided. With --wakeup, how
    /// long all of it takes
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time: Option<u64>,
    /// Generations of fresh processes that the time is divided among
    #[arg(long, value_name = "N")]
    pub(crate) generations: Option<usize>,
    /// Rounds in each generation instead of a time; nothing ends earlier
    #[arg(long, value_name = "N", conflicts_with = "time")]
    pub(crate) rounds: Option<usize>,
    /// Length of a segment, ms
    #[arg(long, value_name = "MS")]
    pub(crate) segment_ms: Option<u64>,
    /// Seed of the order of the arms
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Keep every CPU from sleep meanwhile: narrower intervals on a virtual machine whose hypervisor is busy, and
    /// kinder to lanes that block
    #[arg(long, conflicts_with = "wakeup")]
    pub(crate) awake: bool,
    /// Behind the last generation, trace each arm of ours once at the last load and say why it is as it is; what
    /// is measured is the same with and without
    #[arg(long, conflicts_with = "wakeup")]
    pub(crate) trace: bool,
    /// Print the whole report, not only the answer
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Where to write result.json, report.html, report.md, trials/ and traces/ [default: out/race-NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The most workers of a live run.
const LIVE_WORKERS_MAX: i64 = laneway_engine::WORKERS_MAX as i64;

/// An address with a port, or a port of this machine alone.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok();
    let port = || Some(SocketAddr::from((Ipv4Addr::LOCALHOST, text.parse().ok()?)));
    address.or_else(port).ok_or_else(|| {
        "use an address with a port, such as 127.0.0.1:9100 or [::1]:9100, or a port".to_owned()
    })
}

/// `4`, or `4-7`.
fn cpu_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| {
        text.parse::<u16>()
            .map(usize::from)
            .map_err(|_| "use numbers of CPUs, such as 0,2 or 4-7".to_owned())
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first)?..=number(last)?;
    if range.is_empty() { Err(format!("{last} comes before {first}")) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_at_an_address_or_a_port_of_this_machine() {
        let address = |text: &str| metrics_address(text).map(|address| address.to_string());
        assert_eq!(address("9100").as_deref(), Ok("127.0.0.1:9100"));
        assert_eq!(address("[::1]:0").as_deref(), Ok("[::1]:0"));
        for text in ["", "localhost:9", "127.0.0.1", "70000", ":9100"] {
            assert!(metrics_address(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn cpus_are_numbers_and_ranges() {
        assert_eq!((cpu_range("3"), cpu_range("4-7")), (Ok(3..=3), Ok(4..=7)));
        for text in ["", "a", "7-4", "1-", "-1", "70000"] {
            assert!(cpu_range(text).is_err(), "{text:?}");
        }
    }
}
