//! One module per verb; each gives an exit code, or the sentence of an error.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod lanes;
pub(crate) mod manual;
pub(crate) mod race;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod trace;

pub(crate) use run::{RunVerb, TableVerb};
