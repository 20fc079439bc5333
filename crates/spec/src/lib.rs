//! Lane specs: `afxdp:copy,frames=4096` is a lane and its knobs.
//!
//! A lane reads its knobs through [`Knobs`], which remembers what was asked, so that a knob that no
//! lane reads is an error with the nearest valid name, never silently ignored.

#![forbid(unsafe_code)]

mod idle;

pub use idle::IdlePolicy;

use laneway_core::{BURST_FRAMES_DEFAULT, BURST_FRAMES_MAX, Cap, CapSet, LaneError};
use std::{cell::RefCell, fmt, ops::RangeInclusive, str::FromStr};

/// A lane with its knobs, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    lane: String,
    knobs: Vec<(String, Option<String>)>,
}

/// What is wrong with a spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Empty lane name, empty knob, or a knob given twice.
    #[error(
        "lane spec `{spec}`: {why}; write LANE[:KNOB[=VALUE],...], for example afxdp:copy,frames=4096"
    )]
    Syntax {
        /// The whole spec.
        spec: String,
        /// What is wrong.
        why: String,
    },
    /// No lane of this name.
    #[error("there is no lane `{lane}`{}; the lanes are {known}", did_you_mean(nearest))]
    UnknownLane {
        /// The name given.
        lane: String,
        /// The most similar name.
        nearest: Option<String>,
        /// All names.
        known: String,
    },
    /// The lane has no such knob.
    #[error("lane {lane} has no knob `{knob}`{}; its knobs are {known}", did_you_mean(nearest))]
    UnknownKnob {
        /// The lane.
        lane: String,
        /// The knob given.
        knob: String,
        /// The most similar knob.
        nearest: Option<String>,
        /// All knobs.
        known: String,
    },
    /// The knob's value does not fit.
    #[error("{lane}:{knob}={value}: {want}")]
    BadValue {
        /// The lane.
        lane: String,
        /// The knob.
        knob: String,
        /// The value given.
        value: String,
        /// What would fit.
        want: String,
    },
}

impl From<SpecError> for LaneError {
    fn from(error: SpecError) -> LaneError {
        LaneError::Spec(Box::new(error))
    }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
}

impl LaneSpec {
    /// The lane's name.
    pub fn lane(&self) -> &str {
        &self.lane
    }

    /// True when the spec names one of these knobs, with any value.
    pub fn names_any(&self, knobs: &[&str]) -> bool {
        self.knobs.iter().any(|(name, _)| knobs.contains(&name.as_str()))
    }

    /// Opens the knobs for reading.
    pub fn knobs(&self) -> Knobs<'_> {
        Knobs { spec: self, known: RefCell::new(Vec::new()) }
    }

    /// The spec without the knobs of these names: what reads them itself gives the lane the rest.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> LaneSpec {
        let knobs = self.knobs.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        LaneSpec { lane: self.lane.clone(), knobs: knobs.cloned().collect() }
    }

    /// The error for a lane that is not among `known`.
    pub fn unknown_lane(&self, known: &[&str]) -> SpecError {
        SpecError::UnknownLane {
            lane: self.lane.clone(),
            nearest: nearest(&self.lane, known),
            known: known.join(", "),
        }
    }
}

impl FromStr for LaneSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let syntax = |why: &str| SpecError::Syntax { spec: text.to_owned(), why: why.to_owned() };
        let (lane, rest) = match text.split_once(':') {
            None => (text, None),
            Some((lane, rest)) => (lane, Some(rest)),
        };
        if lane.is_empty() || !lane.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(syntax("the lane's name is missing or not a word"));
        }
        let mut knobs: Vec<(String, Option<String>)> = Vec::new();
        for knob in rest.into_iter().flat_map(|r| r.split(',')) {
            let (name, value) = match knob.split_once('=') {
                None => (knob, None),
                Some((name, value)) => (name, Some(value.to_owned())),
            };
            if name.is_empty() {
                return Err(syntax("an empty knob"));
            }
            if knobs.iter().any(|(n, _)| n == name) && name != "allow" {
                return Err(syntax(&format!("knob `{name}` is given twice")));
            }
            knobs.push((name.to_owned(), value));
        }
        Ok(LaneSpec { lane: lane.to_owned(), knobs })
    }
}

impl fmt::Display for LaneSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lane)?;
        for (i, (name, value)) in self.knobs.iter().enumerate() {
            f.write_str(if i == 0 { ":" } else { "," })?;
            f.write_str(name)?;
            if let Some(value) = value {
                write!(f, "={value}")?;
            }
        }
        Ok(())
    }
}

/// Reads the knobs of a spec. Call [`Knobs::finish`] when every knob has been asked for.
pub struct Knobs<'a> {
    spec: &'a LaneSpec,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Knobs<'a> {
    fn find(&self, name: &'static str) -> Option<&'a (String, Option<String>)> {
        let mut known = self.known.borrow_mut();
        // One that is read twice is listed once.
        if !known.contains(&name) {
            known.push(name);
        }
        self.spec.knobs.iter().find(|(n, _)| n == name)
    }

    /// The error for a value that does not fit.
    pub fn bad(&self, knob: &str, value: &str, want: impl Into<String>) -> SpecError {
        SpecError::BadValue {
            lane: self.spec.lane.clone(),
            knob: knob.to_owned(),
            value: value.to_owned(),
            want: want.into(),
        }
    }

    /// A knob without a value: `copy`. Also understands `copy=on|off`.
    ///
    /// # Errors
    /// For another value.
    pub fn flag(&self, name: &'static str) -> Result<bool, SpecError> {
        match self.find(name) {
            None => Ok(false),
            Some((_, None)) => Ok(true),
            Some((_, Some(v))) if v == "on" => Ok(true),
            Some((_, Some(v))) if v == "off" => Ok(false),
            Some((_, Some(v))) => Err(self.bad(name, v, "use on or off, or leave the value out")),
        }
    }

    /// A knob with a value as text.
    ///
    /// # Errors
    /// When the knob is there without a value.
    pub fn text(&self, name: &'static str) -> Result<Option<&'a str>, SpecError> {
        match self.find(name) {
            None => Ok(None),
            Some((_, Some(v))) if !v.is_empty() => Ok(Some(v)),
            Some(_) => Err(self.bad(name, "", "a value is missing")),
        }
    }

    /// A whole number within `range`; understands the suffixes k, m (powers of 1024).
    ///
    /// # Errors
    /// For anything else, naming the range.
    pub fn number(
        &self,
        name: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Result<usize, SpecError> {
        let Some(text) = self.text(name)? else { return Ok(default) };
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
            Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
            _ => (text, 1),
        };
        match digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit)) {
            Some(n) if range.contains(&n) => Ok(n),
            _ => Err(self.bad(
                name,
                text,
                format!("use a whole number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// A whole number that must be a power of two, as ring sizes are.
    ///
    /// # Errors
    /// As [`Knobs::number`], and for other numbers.
    pub fn power_of_two(
        &self,
        name: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Result<usize, SpecError> {
        let n = self.number(name, default, range)?;
        if n.is_power_of_two() {
            return Ok(n);
        }
        let (below, above) = (n.next_power_of_two() / 2, n.next_power_of_two());
        Err(self.bad(
            name,
            &n.to_string(),
            format!("must be a power of two: try {below} or {above}"),
        ))
    }

    /// The `idle` knob that every lane has.
    ///
    /// # Errors
    /// For an unknown policy.
    pub fn idle(&self) -> Result<IdlePolicy, SpecError> {
        match self.text("idle")? {
            None => Ok(IdlePolicy::default()),
            Some(text) => text.parse().map_err(|want: String| self.bad("idle", text, want)),
        }
    }

    /// The `burst` knob that every frame lane has.
    ///
    /// # Errors
    /// Outside `1..=BURST_FRAMES_MAX`.
    pub fn burst(&self) -> Result<usize, SpecError> {
        self.number("burst", BURST_FRAMES_DEFAULT, 1..=BURST_FRAMES_MAX)
    }

    /// The capabilities named by `allow=` knobs: their absence is accepted.
    ///
    /// # Errors
    /// For a name that is no capability.
    pub fn allowed_missing(&self) -> Result<CapSet, SpecError> {
        self.known.borrow_mut().push("allow");
        let mut set = CapSet::default();
        for (_, value) in self.spec.knobs.iter().filter(|(n, _)| n == "allow") {
            let value = value.as_deref().unwrap_or("");
            let Some(cap) = Cap::ALL.iter().find(|c| c.name() == value) else {
                let names: Vec<_> = Cap::ALL.iter().map(|c| c.name()).collect();
                return Err(self.bad("allow", value, format!("use one of {}", names.join(", "))));
            };
            set = set.with(*cap);
        }
        Ok(set)
    }

    /// Refuses knobs that the lane has not read.
    ///
    /// # Errors
    /// [`SpecError::UnknownKnob`] with the nearest valid name.
    pub fn finish(self) -> Result<(), SpecError> {
        let known = self.known.into_inner();
        match self.spec.knobs.iter().find(|(n, _)| !known.contains(&n.as_str())) {
            None => Ok(()),
            Some((knob, _)) => Err(SpecError::UnknownKnob {
                lane: self.spec.lane.clone(),
                knob: knob.clone(),
                nearest: nearest(knob, &known),
                known: known.join(", "),
            }),
        }
    }
}

/// The candidate most similar to `word` (edit distance at most a third of its length, at least 2).
pub fn nearest(word: &str, candidates: &[&str]) -> Option<String> {
    let limit = (word.len() / 3).max(2);
    candidates
        .iter()
        .map(|c| (strsim::levenshtein(word, c), *c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> LaneSpec {
        text.parse().unwrap()
    }

    #[test]
    fn prints_what_it_parses() {
        for text in ["packet", "afxdp:copy,frames=4096", "pcap:out=a.pcap"] {
            assert_eq!(spec(text).to_string(), text);
        }
    }

    #[test]
    fn knobs_are_left_out_by_name() {
        let whole = spec("packet:ring,window=64k,batch");
        assert_eq!(whole.without(&["window", "conns"]), spec("packet:ring,batch"));
        assert_eq!(whole.without(&["ring", "window", "batch"]).to_string(), "packet");
    }

    #[test]
    fn refuses_what_is_not_a_spec() {
        for text in ["", ":copy", "a b", "afxdp:", "afxdp:copy,,", "afxdp:frames=1,frames=2"] {
            assert!(text.parse::<LaneSpec>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_unread_knob_is_an_error_that_names_the_nearest() {
        let s = spec("afxdp:frame=4096");
        let knobs = s.knobs();
        assert_eq!(knobs.number("frames", 64, 1..=9999).unwrap(), 64);
        let message = knobs.finish().unwrap_err().to_string();
        assert!(message.contains("did you mean `frames`?"), "{message}");
    }

    #[test]
    fn numbers_know_their_range_and_units() {
        let s = spec("packet:ring=16m,bad=7x,big=99,odd=48");
        let k = s.knobs();
        assert_eq!(k.number("ring", 0, 0..=1 << 30).unwrap(), 16 << 20);
        assert!(k.number("bad", 0, 0..=9).unwrap_err().to_string().contains("from 0 to 9"));
        assert!(k.number("big", 0, 0..=9).is_err());
        assert!(k.power_of_two("odd", 1, 1..=64).unwrap_err().to_string().contains("32 or 64"));
    }

    #[test]
    fn absence_is_allowed_only_by_a_capability_name() {
        assert!(spec("x:allow=zero-copy").knobs().allowed_missing().unwrap().has(Cap::ZeroCopy));
        assert!(spec("x:allow=speed").knobs().allowed_missing().is_err());
    }

    #[test]
    fn the_nearest_lane_is_suggested_only_when_near() {
        assert_eq!(nearest("afxpd", &["afxdp", "packet"]).as_deref(), Some("afxdp"));
        assert_eq!(nearest("quantum", &["afxdp", "packet"]), None);
    }
}
