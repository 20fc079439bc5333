//! An output that is to be opened: where it is, its format, and what it says about its origin.

use crate::{Config, Format, Level, Output, OutputError, Profile, Provenance, Tables};
use laneway_terminal::{Failure, path_json};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// A file, or standard output, that rows of a run will go to.
pub(crate) struct OutputPlan {
    path: PathBuf,
    format: Format,
    pub(crate) profile: Profile,
    provenance: Provenance,
}

impl OutputPlan {
    pub(crate) fn new(path: PathBuf, format: Format, profile: Profile, level: Level) -> OutputPlan {
        let provenance = Provenance::new(level, profile.name());
        OutputPlan { path, format, profile, provenance }
    }

    /// Adds a fact to what the output says about its origin.
    pub(crate) fn fact(&mut self, name: &str, value: impl ToString) {
        self.provenance.fact(name, value);
    }

    /// Opens the output; `offset_ns` turns record time into Unix time.
    pub(crate) fn open(
        &self,
        config: &Config,
        offset_ns: i64,
    ) -> Result<(Tables, Output), OutputError> {
        let tables = Tables::new(config, self.profile, offset_ns);
        let output = Output::open(&self.path, self.format, tables.schema(), &self.provenance)?;
        Ok((tables, output))
    }

    /// True when rows go nowhere: what a lane alone costs.
    pub(crate) fn is_none(&self) -> bool {
        OutputPlan::is_nowhere(&self.path)
    }

    /// True when a name stands for no output.
    pub(crate) fn is_nowhere(path: &Path) -> bool {
        path == Path::new("none")
    }

    /// True when a name stands for standard output.
    pub(crate) fn is_stdout(path: &Path) -> bool {
        path == Path::new("-")
    }

    /// True when rows go to standard output.
    pub(crate) fn to_stdout(&self) -> bool {
        OutputPlan::is_stdout(&self.path)
    }

    /// The output's name, for a person.
    pub(crate) fn name(&self) -> String {
        match self.file() {
            None => "standard output".to_owned(),
            Some(path) => path.display().to_string(),
        }
    }

    /// The output's file, for a program.
    pub(crate) fn json(&self) -> Option<Value> {
        self.file().map(path_json)
    }

    /// The output's file.
    pub(crate) fn file(&self) -> Option<&Path> {
        (!self.to_stdout() && !self.is_none()).then_some(&self.path)
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

/// What a failed output means for the program.
impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Failure {
        match error {
            OutputError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                Failure::ReaderGone
            }
            error => Failure::input(error),
        }
    }
}
