//! What may be said on the command line. Reading it decides nothing and touches nothing.

mod generate;
mod record;
mod trace;

pub(crate) use generate::{Generator, ReplayArguments};
pub(crate) use record::RecordArguments;
pub(crate) use trace::{
    AnalyzeArguments, DiffArguments, ExportArguments, ExportFormat, KnowledgeArguments, TraceVerb,
};

use crate::verbs::RunVerb;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use laneway_spec::LaneSpec;
use laneway_terminal::duration;

use laneway_features::{Format, Level, Profile};
use std::ffi::OsString;
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
    /// Extract packet or flow features from capture files, on all cores
    #[command(after_help = FEATURES_EXAMPLES, arg_required_else_help = true)]
    Features(OfflineArguments),
    /// Send traffic: replay captures
    #[command(after_help = generate::EXAMPLES, arg_required_else_help = true)]
    Gen {
        #[command(subcommand)]
        what: Generator,
    },
    /// Race lanes against each other: interleaved blocks, closed ledgers, verdicts, a report page
    #[command(after_help = RACE_EXAMPLES, arg_required_else_help = true)]
    Race(Box<RaceArguments>),
    /// Say why a lane is slow from a trace of it, with evidence
    #[command(after_help = trace::EXAMPLES, arg_required_else_help = true)]
    Trace {
        #[command(subcommand)]
        what: TraceVerb,
    },
    /// Make the report of a race again from its result file
    #[command(after_help = REPORT_EXAMPLES, arg_required_else_help = true)]
    Report {
        /// The folder that the race wrote
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
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
}

/// The command that the arguments name, as far as they name one: `laneway run features`.
pub(crate) fn command_named(command: &Command, given: &[OsString]) -> String {
    let mut command = command;
    let mut name = command.get_name().to_owned();
    for word in given.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(deeper) = command.find_subcommand(word) else { break };
        command = deeper;
        name = format!("{name} {word}");
    }
    name
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

const FEATURES_EXAMPLES: &str = "\
Reads pcap and pcapng, micro- and nanosecond, plain or inside gzip or zstd; `-` is standard input.
A file that is cut short or damaged keeps its rows up to there: that is said, and the exit code is 2.
Rows are written to OUT.partial, which becomes OUT at the end. Parquet and Arrow files say whether they are complete.

Examples:
  laneway features capture.pcap -o packets.parquet
  laneway features a.pcap b.pcapng.zst -o flows.parquet --level flow --profile full
  laneway features capture.pcap --filter 'eth / ipv4 / udp dst is 53 / end' | head";

const RACE_EXAMPLES: &str = "\
Builds two network namespaces joined by a cable, runs every arm in every block as a fresh process, and
removes everything. The first arm is the base of every comparison; it runs twice per block, for the
noise floor. Needs root. Stop everything else on the machine first.

Exit codes: 0 done, 1 a stated goal was missed, 2 it could not be run, 3 inconclusive or interrupted,
4 invalid: a ledger is open, the generator was late, or the host was busy.

Examples:
  sudo laneway race features
  sudo laneway race features --full --out out/full
  sudo laneway race features --pcap mine.pcap --lane packet:ring --lane xdp --load 500000
  sudo laneway race lanes --variant count-64
  sudo laneway race lanes --wakeup
  sudo laneway race tap --trace
  sudo laneway race scenarios/features.toml --generator packet --load 100000";

const REPORT_EXAMPLES: &str = "\
Example:
  laneway report out/race-features";

const CHILD_EXAMPLES: &str = "\
It is the inside of `laneway race`, which tells it on standard input what to be.";

const COMPLETIONS_EXAMPLES: &str = "\
Example:
  laneway completions bash > /etc/bash_completion.d/laneway";

/// The app of a run. One has a verb of its own; the others are a table's, whose verbs are put behind it.
#[derive(Debug)]
pub(crate) enum RunApp {
    /// Packet and flow features for machine learning.
    Features(Box<LiveArguments>),
    /// An app of the table, by name, and what was said to it.
    Table(String, ArgMatches),
}

impl FromArgMatches for RunApp {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RunApp, clap::Error> {
        let Some((name, own)) = matches.subcommand() else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        Ok(match name {
            FEATURES => RunApp::Features(Box::new(LiveArguments::from_arg_matches(own)?)),
            name => RunApp::Table(name.to_owned(), own.clone()),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = RunApp::from_arg_matches(matches)?;
        Ok(())
    }
}

const FEATURES: &str = "features";

impl Subcommand for RunApp {
    fn augment_subcommands(command: Command) -> Command {
        let features = Command::new(FEATURES)
            .about("Packet and flow features for machine learning")
            .after_help(RUN_FEATURES_EXAMPLES);
        command.subcommand_required(true).subcommand(LiveArguments::augment_args(features))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        RunApp::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name == FEATURES
    }
}

/// What every run of an app of a table is told.
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
    /// Use interfaces that carry a default route as well
    #[arg(long)]
    pub(crate) force: bool,
}

/// The whole command line: every app of the table under `run`, and the apps' own verbs beside it.
pub(crate) fn command(apps: &[Box<dyn RunVerb>]) -> Command {
    let add = |run: Command| apps.iter().fold(run, |run, app| run.subcommand(app.command()));
    let verbs = apps.iter().flat_map(|app| app.verbs()).map(|verb| (verb.command)());
    Arguments::command().mut_subcommand("run", add).subcommands(verbs)
}

const RUN_FEATURES_EXAMPLES: &str = "\
Ends at Ctrl-C, after --duration or --count, or when a capture file is at its end; what each port
obtained and the ledger of all frames go to standard error. An interface that carries a default
route is refused without --force. Several workers write to one output, in no fixed order; each
numbers its own packet rows.

Examples:
  sudo laneway run features --lane xdp --on eth1 -o packets.parquet --duration 60
  sudo laneway run features --lane xdp --on eth1 --level flow --in-kernel -o flows.arrow
  sudo laneway run features --lane afxdp:copy --on eth1,eth2 --drop -o - --format jsonl | jq .
  sudo laneway run features --lane packet:ring --on eth1 --workers 2 --level flow -o flows.parquet
  laneway run features --lane pcap --on capture.pcap -o packets.csv";

/// What both extractors, live and offline, are told.
#[derive(Args, Debug)]
pub(crate) struct ExtractArguments {
    /// Where rows go; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Format of the rows [default: what FILE ends in; csv on standard output]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    pub(crate) format: Option<Format>,
    /// A row per packet, or one per flow when it ends
    #[arg(long, default_value = "packet", value_parser = level_parser())]
    pub(crate) level: Level,
    /// Columns of flow rows: integers only, or derived floats as well
    #[arg(long, default_value = "core", value_parser = profile_parser())]
    pub(crate) profile: Profile,
    /// Keep one frame in N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: u32,
    /// At most N records per second (per worker; per CPU on lane xdp) [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate_max: Option<u32>,
    /// Keep what a flow rule matches, such as 'eth / ipv4 / udp dst is 53 / end'
    #[arg(long, value_name = "RULE")]
    pub(crate) filter: Option<String>,
    /// Flows at a time; beyond it the least recently used one ends [default: 262144; 65536 in the kernel]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) flows_max: Option<u32>,
    /// A flow ends when no packet came for this long; or `never`
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = timeout)]
    pub(crate) idle_timeout: Duration,
    /// A flow ends when it has lasted this long; or `never`
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = timeout)]
    pub(crate) active_timeout: Duration,
    /// A flow ends when RST or both FINs were seen and no packet came for this long, or a new SYN; `never`:
    /// they end no flow [default: 5s, or the idle timeout if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) end_timeout: Option<Duration>,
    /// Packets of a flow whose length, gap, direction and flags are kept, at most 32
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=FIRST_PACKETS_MAX))]
    pub(crate) first_packets: u8,
    /// Exit with 1 if anything was lost that was not left out as asked
    #[arg(long)]
    pub(crate) strict: bool,
}

const FIRST_PACKETS_MAX: i64 = laneway_flow::PPI_PACKETS_MAX as i64;

/// The most workers of an offline run: beyond it they only wait for each other.
const WORKERS_MAX: i64 = 256;

#[derive(Args, Debug)]
pub(crate) struct RaceArguments {
    /// A scenario file, or the name of a shipped one: features, lanes, ping, tap,
    /// forward, tracer
    #[arg(value_name = "APP|SCENARIO.toml")]
    pub(crate) scenario: String,
    /// Race these lane specs instead of the scenario's arms; the first is the base
    #[arg(long, value_name = "SPEC")]
    pub(crate) lane: Vec<String>,
    /// Of a scenario with variants, race only these
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Vec<String>,
    /// No race: per arm and idle policy, what waiting costs and how late the first packet is seen
    #[arg(long, conflicts_with = "variant")]
    pub(crate) wakeup: bool,
    /// The short version, about 3 minutes per variant [the default]
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// The long version, about an hour
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
    /// Blocks to run; even
    #[arg(long, value_name = "N")]
    pub(crate) blocks: Option<usize>,
    /// Length of a segment, ms
    #[arg(long, value_name = "MS")]
    pub(crate) segment_ms: Option<u64>,
    /// Times that a disturbed load is offered again, on average over all; a busy host needs more [default: 3]
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<usize>,
    /// Seed of block order and resampling
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Behind the last block, trace each arm of ours once at the last load and say why it is as it is; what
    /// is measured is the same with and without
    #[arg(long, conflicts_with = "wakeup")]
    pub(crate) trace: bool,
    /// Where to write result.json, report.html, report.md, trials/ and traces/ [default: out/race-NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct OfflineArguments {
    /// Capture files, read one after the other; `-` is standard input. Flows end with each file, unless
    /// --join is given
    #[arg(required = true, value_name = "PCAP")]
    pub(crate) captures: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) extract: ExtractArguments,
    /// The captures are parts of one, as tcpdump -C and -G write them: flows go on from one to the next
    #[arg(long)]
    pub(crate) join: bool,
    /// Threads [default: all cores]; with more than one, flow rows come in no fixed order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    pub(crate) workers: Option<u16>,
    /// Show no progress (nor is it shown where standard error is no terminal)
    #[arg(long)]
    pub(crate) no_progress: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LiveArguments {
    /// Lane and knobs, such as packet:ring, xdp, afxdp:copy,frames=8192; `laneway lanes` lists them
    #[arg(long, value_name = "SPEC")]
    pub(crate) lane: LaneSpec,
    /// Interfaces, or capture files on lane pcap, separated by commas
    #[arg(long, value_name = "IFACE", value_delimiter = ',', required = true)]
    pub(crate) on: Vec<String>,
    #[command(flatten)]
    pub(crate) extract: ExtractArguments,
    /// Put flows together in the kernel (lane xdp, level flow)
    #[arg(long)]
    pub(crate) in_kernel: bool,
    /// Frames go on to the kernel's stack after they were looked at: a monitor [the default, but on lanes
    /// where that costs a system call per frame, which ask for one of the two]
    #[arg(long, conflicts_with = "drop")]
    pub(crate) pass: bool,
    /// Frames end here, where the lane can take them away from the kernel (xdp, afxdp)
    #[arg(long)]
    pub(crate) drop: bool,
    /// End after this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// End after N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Keep the worker on this CPU
    #[arg(long, value_name = "CPU", conflicts_with_all = ["workers", "cpus"])]
    pub(crate) cpu: Option<usize>,
    /// Threads, each with a CPU and a lane of its own; the kernel or the device spreads flows over them
    /// (lanes packet, afxdp and dpdk) [default: 1, on no CPU in particular]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=LIVE_WORKERS_MAX))]
    pub(crate) workers: Option<u8>,
    /// CPUs of the workers, such as 0,2 or 4-7 [default: the first that may be used]
    #[arg(long, value_name = "LIST", value_parser = cpu_range, value_delimiter = ',')]
    pub(crate) cpus: Vec<RangeInclusive<usize>>,
    /// Keep the thread that writes the rows on this CPU [default: those that no worker is kept on]
    #[arg(long, value_name = "CPU")]
    pub(crate) writer_cpu: Option<usize>,
    /// Trace the workers into this folder, a file each; `laneway trace analyze DIR` reads it
    #[arg(long, value_name = "DIR")]
    pub(crate) trace: Option<PathBuf>,
    /// Use interfaces that carry a default route as well
    #[arg(long)]
    pub(crate) force: bool,
}

/// The most workers of a live run.
const LIVE_WORKERS_MAX: i64 = laneway_engine::WORKERS_MAX as i64;

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

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::NAMES.map(|(name, ..)| name))
        .map(|name| Format::from_name(&name).expect("only names of formats come through"))
}

fn profile_parser() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::NAMES)
        .map(|name| Profile::from_name(&name).expect("only names of profiles come through"))
}

fn level_parser() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(["packet", "flow"])
        .map(|name| if name == "flow" { Level::Flow } else { Level::Packet })
}

/// The timeout that is never reached.
pub(crate) const NEVER: Duration = Duration::from_nanos(laneway_flow::NEVER_NS);

/// A time as in [`duration`], or `never`.
fn timeout(text: &str) -> Result<Duration, String> {
    if text == "never" { Ok(NEVER) } else { duration(text).map_err(|e| format!("{e}, or never")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard;
    use laneway_registry::Lanes;

    fn whole() -> Command {
        command(&standard::<Lanes>())
    }

    #[test]
    fn a_timeout_may_be_never() {
        assert_eq!(timeout("never"), Ok(NEVER));
        assert_eq!(timeout("48h"), Ok(Duration::from_secs(48 * 3600)));
        assert!(timeout("often").unwrap_err().ends_with(", or never"));
    }

    #[test]
    fn the_arguments_fit_together() {
        whole().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        fn check(command: &Command) {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(name == "help" || help.contains("laneway "), "{name} shows no example");
            command.get_subcommands().for_each(check);
        }
        check(&whole());
    }

    #[test]
    fn help_says_what_an_app_and_its_own_verbs_do() {
        let (whole, apps) = (whole(), standard::<Lanes>());
        let about = |command: Option<&Command>| command.unwrap().get_about().unwrap().to_string();
        let run = whole.find_subcommand("run").unwrap();
        for app in &apps {
            let facts = app.facts();
            assert_eq!(about(run.find_subcommand(facts.name)), facts.about);
        }
        let rules = about(whole.find_subcommand("rules"));
        assert_eq!(rules, "Talk to a running forwarder about its flow rules");
    }

    #[test]
    fn the_command_is_named_as_deep_as_it_was() {
        let name = |words: &[&str]| {
            command_named(&whole(), &words.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(name(&["laneway", "run", "features", "--lane"]), "laneway run features");
        assert_eq!(name(&["x", "run", "feature"]), "laneway run");
        assert_eq!(name(&[]), "laneway");
    }

    #[test]
    fn cpus_are_numbers_and_ranges() {
        assert_eq!((cpu_range("3"), cpu_range("4-7")), (Ok(3..=3), Ok(4..=7)));
        for text in ["", "a", "7-4", "1-", "-1", "70000"] {
            assert!(cpu_range(text).is_err(), "{text:?}");
        }
    }
}
