//! What an analysis reports, held against what is true.
//!
//! Reads the JSON that `laneway trace analyze --json` prints, and of it only what a user reads first: the ranked causes,
//! and the accounts whose parts must add up. It knows no detector. A result without causes (an older schema) is
//! reported as such, not as silence.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::truth::{Size, Truth};

/// How far a size may be from the truth.
pub const SIZE_TOLERANCE: f64 = 0.2;

/// One cause of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedCause {
    /// Its word.
    pub cause: String,
    /// Which.
    pub detail: String,
    /// Share of the worker's span.
    pub share: f64,
    /// The span of that worker, or of the only one, ns.
    pub span_ns: Option<f64>,
    /// Packets lost by it.
    pub lost_packets: Option<u64>,
    /// `high`, `medium` or `low`.
    pub confidence: String,
    /// The 95 % interval of its period, ns, if the result gives one.
    pub period_ns: Option<RangeInclusive<u64>>,
}

/// What a run comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct RunScore {
    /// A true cause is named and no false one; of a healthy run: none is named.
    pub right: bool,
    /// A true cause is named first.
    pub first: bool,
    /// A cause is named that is not true.
    pub wrong: bool,
    /// Such a one at confidence "high".
    pub wrong_high: bool,
    /// Nothing is named although something is wrong.
    pub silent: bool,
    /// The size is within [`SIZE_TOLERANCE`]; `None` where there is none to compare.
    pub size: Option<bool>,
    /// The interval of its period holds the true one; `None` where none is given, or none is known.
    pub period: Option<bool>,
    /// What was named and what is true, in a line.
    pub words: String,
    /// An account whose parts do not add up to its span.
    pub unclosed: Option<String>,
}

/// The causes of a result, or why there are none to judge.
///
/// # Errors
/// A sentence: the result has no list of causes, or one that is not of the agreed shape.
pub fn reported_causes(result: &Value) -> Result<Vec<ReportedCause>, String> {
    let Some(causes) = result.get("causes") else {
        return Err("no causes in this result".to_owned());
    };
    let causes = causes.as_array().ok_or("`causes` is not a list")?;
    causes.iter().map(|cause| one(result, cause)).collect()
}

fn one(result: &Value, cause: &Value) -> Result<ReportedCause, String> {
    let text = |field: &str| {
        let value = cause.get(field).and_then(Value::as_str);
        value.map(str::to_owned).ok_or_else(|| format!("a cause without `{field}`: {cause}"))
    };
    let thread = cause.get("thread").and_then(Value::as_u64);
    let accounts = result.get("accounts").and_then(Value::as_array);
    let account = accounts.and_then(|accounts| match thread {
        Some(thread) => accounts.iter().find(|account| account["thread"].as_u64() == Some(thread)),
        None => accounts.first(),
    });
    Ok(ReportedCause {
        cause: text("cause")?,
        detail: text("detail")?,
        share: cause
            .get("share")
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("a cause without `share`: {cause}"))?,
        span_ns: account.and_then(|account| account["span_ns"].as_f64()),
        lost_packets: cause.get("lost_packets").and_then(Value::as_u64),
        confidence: text("confidence")?,
        period_ns: cause["period_ns"].as_u64().map(|ns| {
            let half = cause["period_half_ns"].as_u64().unwrap_or(0);
            ns.saturating_sub(half)..=ns + 1 + half
        }),
    })
}

/// The first account whose parts do not add up to its span, in a sentence.
#[must_use]
pub fn unclosed(result: &Value) -> Option<String> {
    let accounts = result.get("accounts")?.as_array()?;
    accounts.iter().find_map(|account| {
        let span = account["span_ns"].as_u64()?;
        let sum: u64 = account["parts"].as_array()?.iter().filter_map(|p| p["ns"].as_u64()).sum();
        (sum != span).then(|| format!("{}: parts of {sum} ns in a span of {span}", account["name"]))
    })
}

/// What a result says that it cannot tell.
#[must_use]
pub fn unanswered(result: &Value) -> Vec<String> {
    let withheld = result["coverage"]["withheld"].as_array().into_iter().flatten();
    let mut unanswered: Vec<String> =
        withheld.filter_map(|row| row["what"].as_str()).map(str::to_owned).collect();
    if result["losses"]["known"] == Value::Bool(false) {
        unanswered.push("losses".to_owned());
    }
    unanswered
}

/// Judges `reported`, and what the result reports as [`unanswered`], by `truth`.
#[must_use]
pub fn judge(
    truth: &Truth,
    reported: &[ReportedCause],
    unanswered: &[String],
    unclosed: Option<String>,
) -> RunScore {
    let is_first = |s: &ReportedCause| truth.first.iter().any(|c| c.is(&s.cause, &s.detail));
    let is_true =
        |s: &ReportedCause| is_first(s) || truth.also.iter().any(|c| c.is(&s.cause, &s.detail));
    let named = reported.iter().find(|s| is_first(s));
    let wrong: Vec<&ReportedCause> = reported.iter().filter(|s| !is_true(s)).collect();
    let declines = truth.cannot_be_answered.is_some_and(|what| {
        named.is_none() && wrong.is_empty() && unanswered.iter().any(|words| words.contains(what))
    });
    let right = wrong.is_empty() && (truth.healthy || named.is_some() || declines);
    RunScore {
        right,
        first: if truth.healthy || declines {
            right
        } else {
            reported.first().is_some_and(is_first)
        },
        wrong: !wrong.is_empty(),
        wrong_high: wrong.iter().any(|s| s.confidence == "high"),
        silent: reported.is_empty() && !truth.healthy && !declines,
        size: reported
            .iter()
            .find(|s| is_first(s) && sized(truth, s))
            .and_then(|s| size_is_right(truth.size?, s)),
        period: named.and_then(|s| Some(s.period_ns.as_ref()?.contains(&truth.period_ns?))),
        words: words(truth, reported),
        unclosed,
    }
}

fn sized(truth: &Truth, reported: &ReportedCause) -> bool {
    truth.sized.iter().any(|word| word.text() == reported.cause)
}

/// Whether a size is near the truth; `None` where the result has nothing to compare.
fn size_is_right(size: Size, reported: &ReportedCause) -> Option<bool> {
    let (low, high, reported) = match size {
        Size::Packets(packets) => {
            (packets as f64, packets as f64, reported.lost_packets.unwrap_or(0) as f64)
        }
        Size::Time { low_ns, high_ns } => {
            (low_ns as f64, high_ns as f64, reported.share * reported.span_ns?)
        }
    };
    Some(reported >= low * (1.0 - SIZE_TOLERANCE) && reported <= high * (1.0 + SIZE_TOLERANCE))
}

fn words(truth: &Truth, reported: &[ReportedCause]) -> String {
    let named: Vec<String> = reported
        .iter()
        .take(4)
        .map(|s| {
            let every = s.period_ns.as_ref().filter(|_| truth.period_ns.is_some());
            let every = every.map_or_else(String::new, |ns| {
                format!(
                    ", every {:.3} to {:.3} ms",
                    *ns.start() as f64 / 1e6,
                    *ns.end() as f64 / 1e6
                )
            });
            let lost = s.lost_packets.map_or_else(String::new, |n| format!(", {n} lost"));
            format!(
                "{}({}) {:.1} %{lost}{every} {}",
                s.cause,
                s.detail,
                s.share * 100.0,
                s.confidence
            )
        })
        .collect();
    let named = if named.is_empty() { "nothing".to_owned() } else { named.join("; ") };
    let first: Vec<String> =
        truth.first.iter().map(|c| format!("{}({})", c.cause.text(), c.names.join("|"))).collect();
    let first = if first.is_empty() { "healthy".to_owned() } else { first.join(" or ") };
    let size = match truth.size {
        Some(Size::Packets(packets)) => format!(", {packets} packets"),
        Some(Size::Time { low_ns, high_ns }) => {
            format!(", {:.1} to {:.1} ms", low_ns as f64 / 1e6, high_ns as f64 / 1e6)
        }
        None => String::new(),
    };
    let every =
        truth.period_ns.map_or_else(String::new, |ns| format!(", every {:.3} ms", ns as f64 / 1e6));
    format!("named {named}; true: {first}{size}{every}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::{Cause, Word};
    use serde_json::json;

    fn result(causes: Value) -> Value {
        json!({
            "causes": causes,
            "accounts": [{"thread": 3, "name": "w", "span_ns": 1000, "parts": [{"ns": 400}, {"ns": 600}]}],
        })
    }

    fn cause(word: &str, detail: &str, share: f64, lost: Option<u64>, confidence: &str) -> Value {
        json!({"cause": word, "detail": detail, "thread": 3, "share": share, "lost_packets": lost,
               "confidence": confidence})
    }

    fn verdict(truth: &Truth, causes: Value) -> RunScore {
        let result = result(causes);
        judge(
            truth,
            &reported_causes(&result).expect("it has causes"),
            &unanswered(&result),
            unclosed(&result),
        )
    }

    fn lossy() -> Truth {
        let also = vec![Word::Overload.into()];
        let mut truth =
            Truth::new("k", 1, vec![Cause::naming(Word::Loss, &["rx_queue_full"])], also);
        truth.measure(Size::Packets(1_000), &[Word::Loss]);
        truth
    }

    #[test]
    fn a_result_without_causes_is_not_silence() {
        assert_eq!(
            reported_causes(&json!({"findings": []})),
            Err("no causes in this result".to_owned())
        );
        assert!(reported_causes(&json!({"causes": 7})).is_err());
        assert!(reported_causes(&json!({"causes": [{"cause": "loss"}]})).is_err());
    }

    #[test]
    fn the_true_cause_first_with_its_size_is_right() {
        let causes = json!([
            cause("loss", "port 0 rx_queue_full", 0.5, Some(1_150), "high"),
            cause("overload", "", 0.9, None, "high"),
        ]);
        let v = verdict(&lossy(), causes);
        assert!(v.right && v.first && !v.wrong && !v.silent && v.size == Some(true), "{v:?}");
        let causes = json!([cause("loss", "rx_queue_full", 0.5, Some(1_300), "high")]);
        assert_eq!(verdict(&lossy(), causes).size, Some(false));
    }

    #[test]
    fn a_true_cause_behind_another_is_not_first_and_a_false_one_is_wrong() {
        let behind = json!([
            cause("overload", "", 0.9, None, "high"),
            cause("loss", "rx_queue_full", 0.5, Some(1_000), "high"),
        ]);
        let v = verdict(&lossy(), behind);
        assert!(v.right && !v.first && !v.wrong, "{v:?}");
        let wrong = json!([
            cause("loss", "tx_refused", 0.5, Some(1_000), "medium"),
            cause("allocation", "", 0.2, None, "high"),
        ]);
        let v = verdict(&lossy(), wrong);
        assert!(!v.right && !v.first && v.wrong && v.wrong_high && v.size.is_none(), "{v:?}");
    }

    #[test]
    fn silence_is_right_of_the_healthy_alone() {
        let v = verdict(&lossy(), json!([]));
        assert!(v.silent && !v.right && !v.wrong, "{v:?}");
        let healthy = Truth::new("k", 1, vec![], vec![Word::ColdStart.into()]);
        let v = verdict(&healthy, json!([]));
        assert!(v.right && v.first && !v.silent, "{v:?}");
        assert!(verdict(&healthy, json!([cause("cold-start", "", 0.02, None, "low")])).right);
        let v = verdict(&healthy, json!([cause("lock", "", 0.02, None, "low")]));
        assert!(v.wrong && !v.wrong_high && !v.right, "{v:?}");
    }

    #[test]
    fn what_a_trace_does_not_show_may_be_left_open_and_not_denied() {
        let mut truth = Truth::new("k", 1, vec![Word::Overload.into()], vec![]);
        truth.cannot_be_answered = Some("losses");
        let judged = |known: bool, causes: Value| {
            let mut result = result(causes);
            result["losses"] = json!({"known": known, "rows": []});
            judge(
                &truth,
                &reported_causes(&result).expect("it has causes"),
                &unanswered(&result),
                None,
            )
        };
        let open = judged(false, json!([]));
        assert!(open.right && open.first && !open.silent, "{open:?}");
        let denied = judged(true, json!([]));
        assert!(!denied.right && !denied.first && denied.silent, "{denied:?}");
        let named = judged(false, json!([cause("overload", "rate", 0.9, None, "low")]));
        assert!(named.right && named.first, "{named:?}");
        assert!(!judged(false, json!([cause("lock", "", 0.9, None, "low")])).right);
        truth.cannot_be_answered = Some("page faults");
        truth.add(Word::SystemCall.into());
        let mut result = result(json!([cause("system-call", "madvise", 0.1, None, "high")]));
        let judged = |result: &Value| {
            judge(
                &truth,
                &reported_causes(result).expect("it has causes"),
                &unanswered(result),
                None,
            )
        };
        assert!(!judged(&result).right, "it does not say that it cannot tell");
        result["coverage"] = json!({"withheld": [{"what": "time in page faults", "why": ""}]});
        assert!(judged(&result).right && judged(&result).first);
    }

    #[test]
    fn time_is_compared_by_the_span_of_the_worker() {
        let mut truth = Truth::new("k", 1, vec![Word::Lock.into(), Word::Sleep.into()], vec![]);
        truth.measure(Size::Time { low_ns: 300, high_ns: 400 }, &[Word::Lock]);
        let size =
            |word, share| verdict(&truth, json!([cause(word, "", share, None, "high")])).size;
        assert_eq!((size("lock", 0.25), size("lock", 0.47)), (Some(true), Some(true)));
        assert_eq!((size("lock", 0.23), size("lock", 0.49)), (Some(false), Some(false)));
        // The second word is allowed, and its size is not the one that was measured.
        assert_eq!(size("sleep", 0.01), None);
    }

    #[test]
    fn a_period_is_true_or_not_reported() {
        let mut truth = Truth::new("k", 1, vec![Word::Housekeeping.into()], vec![]);
        let period = |truth: &Truth, ns: Value, half: u64| {
            let mut reported = cause("housekeeping", "", 0.2, None, "high");
            (reported["period_ns"], reported["period_half_ns"]) = (ns, json!(half));
            verdict(truth, json!([reported])).period
        };
        assert_eq!(period(&truth, json!(5_000), 10), None, "none is known");
        truth.period_ns = Some(5_000);
        assert_eq!(period(&truth, Value::Null, 0), None, "none is reported");
        assert_eq!(period(&truth, json!(4_995), 10), Some(true));
        assert_eq!(period(&truth, json!(4_980), 10), Some(false));
    }

    #[test]
    fn an_account_that_does_not_add_up_is_reported() {
        let mut result = result(json!([]));
        assert_eq!(unclosed(&result), None);
        result["accounts"][0]["parts"][0]["ns"] = json!(399);
        assert!(unclosed(&result).is_some_and(|words| words.contains("999")));
    }
}
