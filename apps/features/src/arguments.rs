//! Arguments of both extractors, live and offline.

use crate::{Config, Format, Ledger, Level, OutputError, Profile, plan::OutputPlan};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use laneway_flow::{FlowLimits, RecordMatch, pattern::SyntaxError};
use laneway_terminal::{self as terminal, Exit, Failure, duration};
use std::path::PathBuf;
use std::time::Duration;

/// How long the tail of a closed connection may take, unless the idle timeout is shorter.
const END_LINGER: Duration = Duration::from_secs(5);

const FIRST_PACKETS_MAX: i64 = laneway_flow::PPI_PACKETS_MAX as i64;

/// The timeout that is never reached.
const NEVER: Duration = Duration::from_nanos(laneway_flow::NEVER_NS);

#[derive(Args, Debug)]
pub(crate) struct ExtractArguments {
    /// Where rows go; `-` is standard output, and of a live lane `none` is nowhere: what the lane alone costs
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Format of the rows [default: what FILE ends in; csv on standard output]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    format: Option<Format>,
    /// A row per packet, or one per flow when it ends
    #[arg(long, default_value = "packet", value_parser = level_parser())]
    level: Level,
    /// Columns of flow rows: integers only, or derived floats as well
    #[arg(long, default_value = "core", value_parser = profile_parser())]
    profile: Profile,
    /// Keep one frame in N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// At most N records per second (per worker; per CPU on lane xdp) [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate_max: Option<u32>,
    /// Keep what a flow rule matches, such as 'eth / ipv4 / udp dst is 53 / end'
    #[arg(long, value_name = "RULE")]
    filter: Option<String>,
    /// Flows at a time; beyond it the least recently used one ends [default: 262144; 65536 in the kernel]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    flows_max: Option<u32>,
    /// A flow ends without a packet for this long; or `never`
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = timeout)]
    idle_timeout: Duration,
    /// A flow ends when it has lasted this long; or `never`
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = timeout)]
    active_timeout: Duration,
    /// A flow ends without a packet for this long behind RST or both FINs, or at a new SYN; `never`:
    /// they end no flow [default: 5s, or the idle timeout if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    end_timeout: Option<Duration>,
    /// Packets of a flow whose length, gap, direction and flags are kept, at most 32
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=FIRST_PACKETS_MAX))]
    first_packets: u8,
    /// Exit with 1 if anything was lost that was not left out as asked
    #[arg(long)]
    pub(crate) strict: bool,
}

impl ExtractArguments {
    /// What is extracted and where it goes, checked as far as it can be without touching anything.
    pub(crate) fn plan(&self) -> Result<(Config, OutputPlan), Failure> {
        let format = self.output_format()?;
        self.refuse_unused()?;
        let idle_ns = nanos(self.idle_timeout);
        let end_ns = match self.end_timeout {
            None => idle_ns.min(nanos(END_LINGER)),
            Some(NEVER) => 0,
            Some(linger) => nanos(linger),
        };
        let limits = FlowLimits::new(idle_ns, nanos(self.active_timeout), end_ns);
        let filter = self.filter.as_deref().map(str::parse::<RecordMatch>).transpose();
        let config = Config {
            level: self.level,
            sample: self.sample,
            rate_max: self.rate_max.unwrap_or(0),
            filter: filter.map_err(|error| Failure::input(rule_sentence(&error)))?,
            limits: limits.map_err(Failure::input)?,
            flows_max: self.flows_max.unwrap_or(0) as usize,
            first_packets: usize::from(self.first_packets),
            ..Config::default()
        };
        crate::check(&config).map_err(Failure::input)?;
        let mut output = OutputPlan::new(self.output.clone(), format, self.profile, config.level);
        output.fact("sample", config.sample);
        output.fact("rate_max", config.rate_max);
        output.fact("filter", self.filter.as_deref().unwrap_or(""));
        output.fact("idle_timeout_ns", config.limits.idle_ns());
        output.fact("active_timeout_ns", config.limits.active_ns());
        output.fact("end_timeout_ns", config.limits.end_ns());
        output.fact("first_packets", config.first_packets);
        Ok((config, output))
    }

    /// What is of flow rows alone is refused where there are none.
    fn refuse_unused(&self) -> Result<(), Failure> {
        let flags = [
            (self.profile == Profile::Full, "--profile full", "columns of flow rows"),
            (self.first_packets > 0, "--first-packets", "packets of a flow"),
        ];
        match flags.into_iter().find(|(is_given, ..)| *is_given && self.level == Level::Packet) {
            None => Ok(()),
            Some((_, flag, what)) => Err(Failure::input(format!(
                "{flag} cannot be used here: it keeps {what}; add --level flow"
            ))),
        }
    }

    fn output_format(&self) -> Result<Format, Failure> {
        let to_stdout = OutputPlan::is_stdout(&self.output);
        let format = match self.format {
            Some(format) => format,
            None if to_stdout || OutputPlan::is_nowhere(&self.output) => Format::Csv,
            None => Format::from_suffix(&self.output).ok_or_else(|| {
                let path = self.output.display().to_string();
                OutputError::UnknownFormat { path }
            })?,
        };
        if to_stdout && format.is_binary() && terminal::stdout_is_terminal() {
            let name = Format::NAMES.iter().find(|(_, f, _)| *f == format).map_or("", |(n, ..)| n);
            return Err(Failure::input(format!(
                "standard output is a terminal, which cannot show {name}; name a file with -o, \
                 or use --format csv or jsonl"
            )));
        }
        Ok(format)
    }
}

fn nanos(duration: Duration) -> u64 {
    // Arguments are at most a year, or `NEVER`.
    duration.as_nanos() as u64
}

/// The error without its drawing, on one line.
fn rule_sentence(error: &SyntaxError) -> String {
    format!("--filter '{}', column {}: {}", error.line, error.column, error.sentence())
}

/// Fails if anything was lost and that matters.
pub(crate) fn strictly(ledger: &Ledger, strict: bool) -> Result<Exit, Failure> {
    if !strict || ledger.lost() == 0 {
        return Ok(Exit::Done);
    }
    let lost: Vec<String> = ledger.losses().iter().map(|(name, n)| format!("{n} {name}")).collect();
    Err(Failure::Because(
        Exit::GoalMissed,
        format!("--strict: lost {}; the rows are kept", lost.join(", ")),
    ))
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

/// A time as in [`duration`], or `never`.
fn timeout(text: &str) -> Result<Duration, String> {
    if text == "never" { Ok(NEVER) } else { duration(text).map_err(|e| format!("{e}, or never")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_may_be_never() {
        assert_eq!(timeout("never"), Ok(NEVER));
        assert_eq!(timeout("48h"), Ok(Duration::from_secs(48 * 3600)));
        assert!(timeout("often").unwrap_err().ends_with(", or never"));
    }

    #[test]
    fn a_wrong_rule_is_refused_on_one_line_with_its_place() {
        let error = "eth / ipv5 / end".parse::<RecordMatch>().unwrap_err();
        let sentence = rule_sentence(&error);
        assert!(sentence.starts_with("--filter 'eth / ipv5 / end', column 7: "), "{sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}
