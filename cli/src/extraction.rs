//! From arguments to a run of the extractor: its configuration, its output, and what the output says
//! about how it came to be.

use crate::arguments::{ExtractArguments, NEVER};
use laneway_features::{Config, Format, Ledger, Output, OutputError, Profile, Provenance, Tables};
use laneway_flow::{FlowLimits, RecordMatch, RuleError};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the tail of a closed connection may take, unless the idle timeout is shorter.
const END_LINGER: Duration = Duration::from_secs(5);

/// A run of the extractor, checked before anything is opened.
pub(crate) struct Extraction {
    pub(crate) config: Config,
    pub(crate) profile: Profile,
    pub(crate) format: Format,
    path: PathBuf,
    provenance: Provenance,
}

impl ExtractArguments {
    /// Checks what can be checked without touching anything.
    pub(crate) fn plan(&self) -> Result<Extraction, Failure> {
        let format = self.output_format()?;
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
        laneway_features::check(&config).map_err(Failure::input)?;
        let mut provenance = Provenance::new(self.level, self.profile.name());
        provenance.fact("sample", config.sample);
        provenance.fact("rate_max", config.rate_max);
        provenance.fact("filter", self.filter.as_deref().unwrap_or(""));
        provenance.fact("idle_timeout_ns", config.limits.idle_ns());
        provenance.fact("active_timeout_ns", config.limits.active_ns());
        provenance.fact("end_timeout_ns", config.limits.end_ns());
        provenance.fact("first_packets", config.first_packets);
        let (profile, path) = (self.profile, self.output.clone());
        Ok(Extraction { config, profile, format, path, provenance })
    }

    fn output_format(&self) -> Result<Format, Failure> {
        let to_stdout = is_stdout(&self.output);
        let format = match self.format {
            Some(format) => format,
            None if to_stdout => Format::Csv,
            None => Format::from_suffix(&self.output).ok_or_else(|| {
                let path = self.output.display().to_string();
                Failure::input(OutputError::UnknownFormat { path })
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

impl Extraction {
    /// Adds a fact to what the output says about its origin.
    pub(crate) fn fact(&mut self, name: &str, value: impl ToString) {
        self.provenance.fact(name, value);
    }

    /// Opens the output; `offset_ns` turns record time into Unix time.
    pub(crate) fn open_output(&self, offset_ns: i64) -> Result<(Tables, Output), Failure> {
        let tables = Tables::new(&self.config, self.profile, offset_ns);
        let output = Output::open(&self.path, self.format, tables.schema(), &self.provenance);
        Ok((tables, output.map_err(output_failure)?))
    }

    /// True when rows go to standard output.
    pub(crate) fn to_stdout(&self) -> bool {
        is_stdout(&self.path)
    }

    /// The output's name, for a person.
    pub(crate) fn output_name(&self) -> String {
        if self.to_stdout() {
            "standard output".to_owned()
        } else {
            self.path.display().to_string()
        }
    }

    /// The output's file.
    pub(crate) fn output_file(&self) -> Option<&Path> {
        (!self.to_stdout()).then_some(&self.path)
    }

    /// What is left of a run that did not come to the end of its input, for a person.
    pub(crate) fn what_is_kept(&self) -> &'static str {
        if self.format.has_metadata() {
            "the rows up to there are kept, marked as incomplete"
        } else {
            "the rows up to there are kept"
        }
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn nanos(duration: Duration) -> u64 {
    // Arguments are at most a year, or `NEVER`.
    duration.as_nanos() as u64
}

/// The error without its drawing, on one line.
fn rule_sentence(error: &RuleError) -> String {
    let at = error.text.get(..error.at).map_or(error.at, |before| before.chars().count());
    format!("--filter '{}', character {}: {}", error.text, at + 1, error.message)
}

/// What a failed output means for the program.
pub(crate) fn output_failure(error: OutputError) -> Failure {
    match error {
        OutputError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
            Failure::ReaderGone
        }
        error => Failure::input(error),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_rule_is_told_on_one_line_with_its_place() {
        let error = "eth / ipv5 / end".parse::<RecordMatch>().unwrap_err();
        let sentence = rule_sentence(&error);
        assert!(sentence.starts_with("--filter 'eth / ipv5 / end', character 7: "), "{sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}
