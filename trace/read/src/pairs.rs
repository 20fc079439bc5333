//! Which two events are one call, by their names.
//!
//! Programs report a call by two events of any names. Common endings (`x_begin` and `x_end`) are known; the user gives
//! others as a [`CallPair`]. Two events are a call only if the trace has both.

use std::collections::HashSet;

/// The names of an event that begins a call, of the event that ends it, and of the call.
///
/// A `*` in all three stands for the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPair {
    /// The event at which it begins.
    pub begin: String,
    /// The event at which it ends.
    pub end: String,
    /// What it is called.
    pub name: String,
}

/// Ends of the names of two events that are one call.
const ENDINGS: [(&str, &str); 8] = [
    ("begin", "end"),
    ("entry", "exit"),
    ("enter", "exit"),
    ("enter", "leave"),
    ("start", "stop"),
    ("start", "end"),
    ("start", "done"),
    ("start", "finish"),
];

/// The name of the call that the event `name` begins (true) or ends, if `names` has the other event, too.
pub(crate) fn call_of(
    name: &str,
    names: &HashSet<&str>,
    given: &[CallPair],
) -> Option<(String, bool)> {
    let by_pair = given.iter().find_map(|pair| {
        let sides = [(&pair.begin, &pair.end, true), (&pair.end, &pair.begin, false)];
        sides.into_iter().find_map(|(mine, other, begins)| {
            let text = starred(mine, name)?;
            let has_other = names.contains(other.replacen('*', text, 1).as_str());
            has_other.then(|| (pair.name.replacen('*', text, 1), begins))
        })
    });
    by_pair.or_else(|| {
        // What LTTng tells of the process is no program's.
        let (call, begins) = by_ending(name, names).filter(|_| !name.starts_with("lttng_ust_"))?;
        Some((call.to_owned(), begins))
    })
}

/// The text for which `*` stands in `pattern`, if that has the form of `name`; empty without a star.
fn starred<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((front, back)) => name.strip_prefix(front)?.strip_suffix(back),
    }
}

/// By a common ending. In front of the word stands a sign, so that `friend` and `friegin` are no pair.
fn by_ending<'n>(name: &'n str, names: &HashSet<&str>) -> Option<(&'n str, bool)> {
    let stem = |word: &str| {
        let stem = name.strip_suffix(word)?;
        stem.ends_with(['_', '.', ':', '-']).then_some(stem)
    };
    ENDINGS.iter().find_map(|&(begin, end)| {
        let (stem, begins, other) = match (stem(begin), stem(end)) {
            (Some(stem), _) => (stem, true, end),
            (None, Some(stem)) => (stem, false, begin),
            (None, None) => return None,
        };
        let bare = stem.trim_end_matches(['_', '.', ':', '-']);
        let is_pair = !bare.is_empty() && names.contains(format!("{stem}{other}").as_str());
        is_pair.then_some((bare, begins))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_events_are_one_call_by_their_names() {
        let names = HashSet::from([
            "p:work_begin",
            "p:work_end",
            "p:req-start",
            "p:req-done",
            "p:lone_entry",
            "tend",
            "tbegin",
            "_end",
            "_begin",
        ]);
        let found = |name| by_ending(name, &names);
        assert_eq!(found("p:work_begin"), Some(("p:work", true)));
        assert_eq!(found("p:work_end"), Some(("p:work", false)));
        assert_eq!(found("p:req-start"), Some(("p:req", true)));
        assert_eq!(found("p:req-done"), Some(("p:req", false)));
        assert_eq!((found("p:lone_entry"), found("tend"), found("_end")), (None, None, None));
    }

    #[test]
    fn pairs_that_are_given_come_before_common_endings() {
        let names = HashSet::from([
            "fw:rx_on",
            "fw:rx_off",
            "fw:lone_on",
            "go",
            "halt",
            "w_begin",
            "w_end",
        ]);
        let pair = |begin: &str, end: &str, name: &str| CallPair {
            begin: begin.into(),
            end: end.into(),
            name: name.into(),
        };
        let given =
            [pair("fw:*_on", "fw:*_off", "fw.*"), pair("go", "halt", "run"), pair("w_*", "*", "x")];
        let found = |name| call_of(name, &names, &given);
        assert_eq!(found("fw:rx_on"), Some(("fw.rx".into(), true)));
        assert_eq!(found("fw:rx_off"), Some(("fw.rx".into(), false)));
        assert_eq!(
            (found("go"), found("halt")),
            (Some(("run".into(), true)), Some(("run".into(), false)))
        );
        assert_eq!(found("w_begin"), Some(("w".into(), true)));
        assert_eq!((found("fw:lone_on"), found("fw:"), found("other")), (None, None, None));
        // Front and back of a pattern may not share letters.
        assert_eq!(starred("ab*ba", "aba"), None);
    }
}
