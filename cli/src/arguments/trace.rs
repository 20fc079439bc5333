//! The arguments of `laneway trace`.

use super::record::{self, RecordArguments};
use clap::{Args, Subcommand, ValueEnum};
use laneway_trace::Rules;
use laneway_trace::text::Style;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) const EXAMPLES: &str = "\
Examples:
  sudo laneway trace record --kernel --out trace/ -- laneway run forward --lane packet --on eth1,eth2
  laneway trace analyze trace/ --html trace.html
  laneway trace diff before/ after/
  laneway trace export trace/ --format perfetto -o trace.perfetto";

const ANALYZE_EXAMPLES: &str = "\
Reads traces of LTTng-UST and DPDK (folders), of laneway's own tracer, Chrome JSON, uftrace dumps and
perf script text. What was read and what is missing comes first; a cause is named only with its proof.
A damaged trace is read as far as it goes: a note says so, and the exit code is 2. With --json the
whole result goes to standard output.

Where the traced program is not on this machine, or has no symbols, give what `nm PROGRAM` prints.

Examples:
  laneway trace analyze trace/ --symbols testpmd.nm.gz --html trace.html --csv tables/
  laneway trace analyze trace/ --control-pps 20000 --json > trace.json
  laneway trace analyze trace/ --from 1.2s --to 1.3s --thread worker-0 --full-names
  laneway trace analyze trace/ --rules framework.toml
  laneway trace analyze trace/ --call-cost 187,54 --flamegraph flames.svg";

const DIFF_EXAMPLES: &str = "\
Compares recordings after with recordings before, per packet where all tell packets: load, stalls, layers,
functions, percentiles. Two runs of one program differ as well, so a verdict needs at least three
recordings of each side, best made in turns (before, after, before, after, ...): a drift of the machine
is then no change. With fewer the differences are shown without a verdict.

Examples:
  laneway trace diff before/ after/
  laneway trace diff --before a1/ a2/ a3/ --after b1/ b2/ b3/
  laneway trace diff before/ after/ --symbols testpmd.nm.gz --flamegraph difference.svg";

const EXPORT_EXAMPLES: &str = "\
perfetto and chrome open in ui.perfetto.dev, chrome also in chrome://tracing; speedscope opens in
speedscope.app, one file per thread; collapsed is what flame graph programs read. csv, parquet and
speedscope write a folder. What is left out, and why, stands at the end and in the output.

Times are counted from the begin of the trace (1.5s, 300ms, 20us, 0), or are times of day in UTC (14:03:07.25).

Examples:
  laneway trace export trace/ --format perfetto -o trace.perfetto
  laneway trace export trace/ --format chrome --from 1.2s --to 1.3s -o trace.json
  laneway trace export trace/ --format chrome --longer-than 1us --thread 4711 -o trace.json
  laneway trace export trace/ --format collapsed --raw -o stacks.txt
  laneway trace export trace/ --format parquet -o tables/";

#[derive(Debug, Subcommand)]
pub(crate) enum TraceVerb {
    /// Say where the time goes and why a lane is slow, with evidence
    #[command(after_help = ANALYZE_EXAMPLES, arg_required_else_help = true)]
    Analyze(Box<AnalyzeArguments>),
    /// Compare two traces
    #[command(after_help = DIFF_EXAMPLES, arg_required_else_help = true)]
    Diff(Box<DiffArguments>),
    /// Write a trace as other programs read it
    #[command(after_help = EXPORT_EXAMPLES, arg_required_else_help = true)]
    Export(Box<ExportArguments>),
    /// Record a command: what it does, and what the kernel does to it
    #[command(after_help = record::EXAMPLES, arg_required_else_help = true)]
    Record(Box<RecordArguments>),
}

/// What is known of a trace beyond what it holds.
#[derive(Args, Debug, Default)]
pub(crate) struct KnowledgeArguments {
    /// What `nm PROGRAM` printed, plain or gzip, for functions that have no name otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) symbols: Option<PathBuf>,
    /// What the tracer costs per call, ns: inside the called function's time, and outside of it
    /// [default: what the trace tells, else estimated from its shortest calls]
    #[arg(long, value_name = "INSIDE,OUTSIDE", value_parser = call_cost)]
    pub(crate) call_cost: Option<CallCost>,
    /// What names of a framework mean: its polls, packets and idle functions, events that are calls (TOML, see the
    /// guide)
    #[arg(long, value_name = "FILE", value_parser = rules)]
    pub(crate) rules: Option<Arc<Rules>>,
}

impl KnowledgeArguments {
    /// What names mean.
    pub(crate) fn rules(&self) -> &Arc<Rules> {
        self.rules.as_ref().unwrap_or_else(|| Rules::known())
    }
}

/// A file of rules.
fn rules(path: &str) -> Result<Arc<Rules>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Rules::of_file(&text).map(Arc::new)
}

/// Which part of a trace is looked at.
#[derive(Args, Debug, Default)]
pub(crate) struct PartArguments {
    /// Nothing before this moment: a time from the begin of the trace, or of the day in UTC (14:03:07.25)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) from: Option<Moment>,
    /// Nothing at or after this moment
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) to: Option<Moment>,
    /// Only this thread: its number, or its name if no other has it
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Option<String>,
}

/// A moment of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So long after its first event, ns.
    Since(u64),
    /// A time of day in UTC, ns from midnight.
    OfDay(u64),
}

/// How a text is written.
#[derive(Args, Debug, Default)]
pub(crate) struct StyleArguments {
    /// Print whole names below rows whose name was cut
    #[arg(long)]
    full_names: bool,
}

impl StyleArguments {
    pub(crate) fn style(&self) -> Style {
        Style { full_names: self.full_names }
    }
}

#[derive(Args, Debug)]
pub(crate) struct AnalyzeArguments {
    /// Traces: folders or files, each analysed by itself
    #[arg(required = true, value_name = "PATH")]
    pub(crate) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) knowledge: KnowledgeArguments,
    #[command(flatten)]
    pub(crate) part: PartArguments,
    #[command(flatten)]
    pub(crate) style: StyleArguments,
    /// Packets per second of the same program without instrumentation
    #[arg(long, alias = "control", value_name = "N", value_parser = super::generate::rate)]
    pub(crate) control_pps: Option<f64>,
    /// Packets that were dropped elsewhere during the trace: interface counters, a ledger
    #[arg(long, value_name = "N")]
    pub(crate) drops: Option<u64>,
    /// Write the page: one offline file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Write the tables as CSV: functions, contexts, layers, polls, findings
    #[arg(long, value_name = "DIR")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a flame graph of the corrected time
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) flamegraph: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArguments {
    /// The recording to compare with, and the one that is compared
    #[arg(value_names = ["BEFORE", "AFTER"], num_args = 2, required_unless_present = "before")]
    pub(crate) two: Vec<PathBuf>,
    /// Recordings to compare with
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "after", conflicts_with = "two")]
    pub(crate) before: Vec<PathBuf>,
    /// Recordings that are compared
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "before")]
    pub(crate) after: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) knowledge: KnowledgeArguments,
    #[command(flatten)]
    pub(crate) part: PartArguments,
    #[command(flatten)]
    pub(crate) style: StyleArguments,
    /// Write a differential flame graph of the corrected time, of the first recording of each side
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) flamegraph: Option<PathBuf>,
}

impl DiffArguments {
    /// The recordings of both sides.
    pub(crate) fn sides(&self) -> [&[PathBuf]; 2] {
        match self.two.as_slice() {
            [before, after] => [std::slice::from_ref(before), std::slice::from_ref(after)],
            _ => [&self.before, &self.after],
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct ExportArguments {
    /// The trace: a folder or a file
    #[arg(value_name = "PATH")]
    pub(crate) trace: PathBuf,
    /// What to write
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: ExportFormat,
    /// Where to: a file; a folder for speedscope, csv and parquet
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) knowledge: KnowledgeArguments,
    #[command(flatten)]
    pub(crate) part: PartArguments,
    /// Only calls that lasted at least so long
    #[arg(long, value_name = "TIME", value_parser = offset_ns)]
    pub(crate) longer_than: Option<u64>,
    /// collapsed: time as recorded, the tracer's cost included
    #[arg(long)]
    pub(crate) raw: bool,
}

/// What an export looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Perfetto's protobuf
    Perfetto,
    /// Chrome's trace JSON
    Chrome,
    /// Speedscope's evented JSON, one file per thread
    Speedscope,
    /// Stacks with their self time, one per line
    Collapsed,
    /// Tables: functions, contexts, layers, polls, findings
    Csv,
    /// Tables: functions, contexts, and every call
    Parquet,
}

/// What the tracer costs per call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallCost {
    pub(crate) inside_ns: f64,
    pub(crate) outside_ns: f64,
}

/// The most that a tracer may cost per call: beyond a millisecond it is a typing error.
const CALL_COST_NS_MAX: f64 = 1e6;

/// `187,54`: ns inside and outside.
fn call_cost(text: &str) -> Result<CallCost, String> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(ns) if (0.0..=CALL_COST_NS_MAX).contains(&ns) => Ok(ns),
        _ => Err(format!(
            "use two numbers of ns from 0 to {CALL_COST_NS_MAX}, inside and outside the call, such as 187,54"
        )),
    };
    let (inside, outside) = text.split_once(',').unwrap_or((text, "0"));
    Ok(CallCost { inside_ns: number(inside)?, outside_ns: number(outside)? })
}

/// The longest time from the begin of a trace: a year, in ns.
const OFFSET_NS_MAX: f64 = 366.0 * 24.0 * 3600e9;

/// A time from the begin of a trace: a number of seconds, or one with ns, us, ms or s.
fn offset_ns(text: &str) -> Result<u64, String> {
    const HELP: &str = "use a number with ns, us, ms or s, such as 300ms or 1.5s";
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match &text[digits.len()..] {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return Err(HELP.to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_| HELP.to_owned())?;
    match (number * unit_ns).round() {
        ns if (0.0..=OFFSET_NS_MAX).contains(&ns) => Ok(ns as u64),
        _ => Err("use 0 or more, and at most a year".to_owned()),
    }
}

/// A moment: a time from the begin of the trace, or a time of day.
fn moment(text: &str) -> Result<Moment, String> {
    if !text.contains(':') {
        return offset_ns(text).map(Moment::Since);
    }
    const HELP: &str = "use hours, minutes and seconds in UTC, such as 14:03:07 or 14:03:07.25";
    let parts: Vec<&str> = text.split(':').collect();
    let (&[hours, minutes], seconds) = parts.split_at_checked(2).ok_or(HELP)? else {
        return Err(HELP.to_owned());
    };
    let seconds = match seconds {
        [] => "0",
        &[seconds] => seconds,
        _ => return Err(HELP.to_owned()),
    };
    let whole = |text: &str, below: u64| match text.parse::<u64>() {
        Ok(number) if number < below && text.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => Err(HELP.to_owned()),
    };
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if fraction.is_empty() || fraction.len() > 9 {
        return Err(HELP.to_owned());
    }
    let fraction_ns = whole(&format!("{fraction:0<9}"), 1_000_000_000)?;
    let seconds = whole(hours, 24)? * 3_600 + whole(minutes, 60)? * 60 + whole(seconds, 60)?;
    Ok(Moment::OfDay(seconds * 1_000_000_000 + fraction_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_trace_go_down_to_nanoseconds() {
        let parsed = ["0", "1.5", "300ms", "20us", "7ns"].map(|text| offset_ns(text).unwrap());
        assert_eq!(parsed, [0, 1_500_000_000, 300_000_000, 20_000, 7]);
        for text in ["", "-1", "1h", "nan", "1e99", "5 ms"] {
            assert!(offset_ns(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_moment_is_a_time_of_the_trace_or_of_the_day() {
        assert_eq!(moment("1.5s"), Ok(Moment::Since(1_500_000_000)));
        assert_eq!(moment("00:01"), Ok(Moment::OfDay(60_000_000_000)));
        assert_eq!(moment("14:03:07.25"), Ok(Moment::OfDay(50_587_250_000_000)));
        assert_eq!(moment("23:59:59.999999999"), Ok(Moment::OfDay(86_399_999_999_999)));
        for text in [
            "24:00",
            "1:60",
            "1:2:60",
            "1:2:3:4",
            ":",
            "1:",
            "1:2:3.",
            "1:2:3.1234567890",
            "+1:2",
            "1:-2",
        ] {
            assert!(moment(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_call_costs_inside_and_perhaps_outside() {
        assert_eq!(call_cost("187,54"), Ok(CallCost { inside_ns: 187.0, outside_ns: 54.0 }));
        assert_eq!(call_cost("20"), Ok(CallCost { inside_ns: 20.0, outside_ns: 0.0 }));
        for text in ["", ",", "1,2,3", "-1,0", "nan", "1e9,0"] {
            assert!(call_cost(text).is_err(), "{text:?}");
        }
    }
}
