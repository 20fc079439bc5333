//! What a run of the app reports at its end, and by which name.

use crate::user::{Copies, Fates};
use laneway_core::LaneError;
use laneway_kinds::Report;
use std::collections::BTreeMap;

/// The name of the app.
pub(crate) const NAME: &str = "relay";

/// What became of a worker's datagrams and of their copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayReport {
    /// Of what it was shown.
    pub fates: Fates,
    /// Of what its rules asked for.
    pub copies: Copies,
    /// What a kernel half left to the kernel for other reasons, by name.
    pub passed: BTreeMap<&'static str, u64>,
    /// Why the rules that it began with could not be had, or the kernel's maps not be read or written.
    pub failure: Option<String>,
}

impl Report for RelayReport {
    fn merge(&mut self, other: &RelayReport) {
        self.fates.merge(&other.fates);
        self.copies.merge(&other.copies);
        other.passed.iter().for_each(|(why, n)| *self.passed.entry(why).or_default() += n);
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }

    fn failure(&self) -> Option<LaneError> {
        let why = self.failure.clone()?;
        let name = NAME.to_owned();
        Some(LaneError::Input { lane: name, name: "the rules".to_owned(), why })
    }
}
