//! What is true of a recording, written down before any analysis sees it.
//!
//! A truth comes from what was done (which fault was planted) and from instruments that are no part of the trace half:
//! the run's ledger, the scheduler's accounts in `/proc`, the program's own counters. It is a file of the recording's
//! folder ([`FILE`]) by the time the analysis starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// The truth's file, beside the trace's folder.
pub const FILE: &str = "truth.json";

/// A cause, by the word that a result has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the words are those of the result's schema and of the README")]
pub enum Word {
    Loss,
    Overload,
    Preempted,
    SystemCall,
    Sleep,
    Lock,
    PageFaults,
    Interrupts,
    Housekeeping,
    SlowFunction,
    Imbalance,
    FarEnd,
    Allocation,
    Tracer,
    ColdStart,
}

impl Word {
    /// All of them, with their spelling.
    pub const ALL: [(Word, &str); 15] = [
        (Word::Loss, "loss"),
        (Word::Overload, "overload"),
        (Word::Preempted, "preempted"),
        (Word::SystemCall, "system-call"),
        (Word::Sleep, "sleep"),
        (Word::Lock, "lock"),
        (Word::PageFaults, "page-faults"),
        (Word::Interrupts, "interrupts"),
        (Word::Housekeeping, "housekeeping"),
        (Word::SlowFunction, "slow-function"),
        (Word::Imbalance, "imbalance"),
        (Word::FarEnd, "far-end"),
        (Word::Allocation, "allocation"),
        (Word::Tracer, "tracer"),
        (Word::ColdStart, "cold-start"),
    ];

    /// Its spelling.
    #[must_use]
    pub fn text(self) -> &'static str {
        Word::ALL.iter().find(|(word, _)| *word == self).expect("ALL has every word").1
    }
}

/// A cause that is true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// What.
    pub cause: Word,
    /// The detail names one of these (parts of a text, in any case of letters); empty: whatever it names.
    pub names: Vec<String>,
}

impl From<Word> for Cause {
    fn from(cause: Word) -> Cause {
        Cause { cause, names: Vec::new() }
    }
}

impl Cause {
    /// A cause whose detail must name one of `names`.
    #[must_use]
    pub fn naming(cause: Word, names: &[&str]) -> Cause {
        Cause { cause, names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// Whether this is the cause that was named.
    #[must_use]
    pub fn is(&self, cause: &str, detail: &str) -> bool {
        let detail = detail.to_lowercase();
        self.cause.text() == cause
            && (self.names.is_empty()
                || self.names.iter().any(|name| detail.contains(&name.to_lowercase())))
    }
}

/// How large the planted cause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Time of the worker, ns: between these, which differ by what else took the CPU meanwhile.
    Time {
        /// At least.
        low_ns: u64,
        /// At most.
        high_ns: u64,
    },
    /// Packets lost.
    Packets(u64),
}

/// All that is true of one recording.
#[derive(Debug, Clone, Serialize)]
pub struct Truth {
    /// Kind of situation.
    pub kind: String,
    /// Repeats it, with the kind's name.
    pub seed: u64,
    /// What was drawn.
    pub parameters: BTreeMap<String, f64>,
    /// Nothing is wrong.
    pub healthy: bool,
    /// One of these must be named first; empty where nothing is wrong.
    pub first: Vec<Cause>,
    /// True as well: may be named, behind the first.
    pub also: Vec<Cause>,
    /// False: must not be named.
    pub never: Vec<Word>,
    /// Size of the planted cause, where it is known.
    pub size: Option<Size>,
    /// By which words it has that size.
    pub sized: Vec<Word>,
    /// How often the planted cause recurs, where it does by a clock, ns.
    pub period_ns: Option<u64>,
    /// Which instruments it is known from, with their readings.
    pub known_from: Vec<String>,
    /// Packets lost outside of the trace, which the user tells the analysis.
    pub drops: Option<u64>,
    /// What the trace does not show, by a word of it: right as well is a result that says it cannot tell of that, and
    /// names nothing but what is true besides.
    pub cannot_be_answered: Option<&'static str>,
}

impl Truth {
    /// What is true whatever the recording shows: `first` (empty: nothing is wrong) and `also`; every other word is false.
    #[must_use]
    pub fn new(kind: &str, seed: u64, first: Vec<Cause>, also: Vec<Cause>) -> Truth {
        let mut truth = Truth {
            kind: kind.to_owned(),
            seed,
            parameters: BTreeMap::new(),
            healthy: first.is_empty(),
            first,
            also,
            never: Vec::new(),
            size: None,
            sized: Vec::new(),
            period_ns: None,
            known_from: Vec::new(),
            drops: None,
            cannot_be_answered: None,
        };
        truth.close();
        truth
    }

    /// The planted cause is so large, by whichever of `words` it is called.
    pub fn measure(&mut self, size: Size, words: &[Word]) {
        (self.size, self.sized) = (Some(size), words.to_vec());
    }

    /// Adds where an instrument is named that it is known from.
    pub fn know(&mut self, from: impl Into<String>) {
        self.known_from.push(from.into());
    }

    /// Adds a cause that an instrument found beside the planted one.
    pub fn add(&mut self, cause: Cause) {
        self.also.push(cause);
        self.close();
    }

    fn close(&mut self) {
        let is_true = |word| self.first.iter().chain(&self.also).any(|cause| cause.cause == word);
        self.never =
            Word::ALL.iter().map(|(word, _)| *word).filter(|word| !is_true(*word)).collect();
    }

    /// What is not well formed in it.
    #[must_use]
    pub fn complaint(&self) -> Option<&'static str> {
        let size_is_none = match self.size {
            Some(Size::Packets(packets)) => packets == 0,
            Some(Size::Time { low_ns, high_ns }) => low_ns == 0 || high_ns < low_ns,
            None => false,
        };
        if self.healthy != self.first.is_empty() {
            Some("healthy, and something must be named first; or the other way round")
        } else if size_is_none {
            Some("the planted cause has no size: it did not happen")
        } else if self.known_from.is_empty() {
            Some("no instrument is named that it is known from")
        } else {
            None
        }
    }

    /// Writes it into `folder`.
    ///
    /// # Errors
    /// What the file system says, with the file's name.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let file = folder.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_spelt_as_the_schema_has_it() {
        for (word, text) in Word::ALL {
            assert_eq!(serde_json::to_value(word).expect("a word"), text);
            assert_eq!(word.text(), text);
        }
    }

    #[test]
    fn a_cause_that_is_not_true_must_not_be_named() {
        let mut truth = Truth::new("k", 1, vec![Word::Loss.into()], vec![Word::Overload.into()]);
        assert_eq!(truth.never.len(), Word::ALL.len() - 2);
        truth.add(Cause::naming(Word::Preempted, &["cc1"]));
        assert!(!truth.never.contains(&Word::Preempted));
    }

    #[test]
    fn a_detail_is_recognised_by_a_part_of_it() {
        let cause = Cause::naming(Word::Loss, &["queue_full", "no_frame"]);
        assert!(cause.is("loss", "port 0: rx_Queue_Full"));
        assert!(!cause.is("loss", "tx_refused") && !cause.is("overload", "rx_queue_full"));
        assert!(Cause::from(Word::Loss).is("loss", ""));
    }

    #[test]
    fn a_truth_that_did_not_happen_is_not_well_formed() {
        let mut truth = Truth::new("k", 1, vec![Word::Loss.into()], vec![]);
        assert!(truth.complaint().is_some());
        truth.know("the ledger");
        assert_eq!(truth.complaint(), None);
        truth.size = Some(Size::Packets(0));
        assert!(truth.complaint().is_some());
    }
}
