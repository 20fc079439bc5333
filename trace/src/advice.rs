//! What to try, and what not to.
//!
//! First comes a cure for each cause, in the order of causes: what it can win at most is the share of the cause, and the
//! command would show that it wins nothing. Then the rules about the recording itself, and about what was looked for.
//!
//! A rule names the findings it needs and those that forbid it. It never fires on withheld data. Advice that was
//! considered and is not given is reported with its reason, because "raise the mempool cache" is what
//! people try first where pools are. Every advice names the experiment that would prove it wrong. No advice speaks of
//! lanes, pools or pinning that the trace does not show.

use crate::detect::{Detector, Facts};
use crate::model::Model;
use crate::result::{Advice, CalibrationSource, Cause, CauseKind, Finding, SilentAdvice, State};

/// Refills must take this share of productive time before the cache is to blame.
const REFILL_SHARE_MIN: f64 = 0.1;
/// Idle share from which blocking instead of spinning is worth a thought.
const IDLE_SHARE_MIN: f64 = 0.5;
/// The tracer's share of call time from which the rest is doubtful.
const OVERHEAD_SHARE_MIN: f64 = 0.25;

/// What the rules look at.
struct Evidence<'a> {
    model: &'a Model,
    findings: &'a [Finding],
    facts: &'a Facts,
    exclude: &'a [String],
    control: bool,
    causes: &'a [Cause],
}

/// What a rule decides: because, or why not; `None` where it does not apply at all.
type Decision = Option<Result<String, String>>;

struct Rule {
    name: &'static str,
    text: &'static str,
    expected: &'static str,
    confirm: &'static str,
    decide: fn(&Evidence<'_>) -> Decision,
}

const RULES: &[Rule] = &[
    Rule {
        name: "raise the mempool cache",
        text: "Raise the per-core cache of the mempool (testpmd --mbcache, lane knob cache).",
        expected: "fewer fills from the backend, less time per packet in mempool functions",
        confirm: "laneway race tap, claims on the cache (250 against 512 and 0)",
        decide: raise_cache,
    },
    Rule {
        name: "enlarge the mempool",
        text: "Give the pool more buffers: in-use peaks reach its size.",
        expected: "no failed allocations, and no receive drops for want of a buffer",
        confirm: "laneway race tap, claims on the mempool",
        decide: enlarge_pool,
    },
    Rule {
        name: "give the thread its CPU",
        text: "The CPU was shared, slower or taken away at times: look at what else runs on it, at its clock, and at steal in a guest.",
        expected: "one speed instead of two",
        confirm: "laneway trace record --kernel -- COMMAND",
        decide: own_cpu,
    },
    Rule {
        name: "record the kernel's side",
        text: "Record again with the kernel join (laneway trace record --kernel), so that silences get a cause.",
        expected: "each stall named: preempted, waiting, interrupt or system call",
        confirm: "laneway trace record --kernel -- COMMAND",
        decide: kernel_join,
    },
    Rule {
        name: "trace less",
        text: "Leave small helpers out of the instrumentation (-finstrument-functions-exclude-function-list) and record again; the list is below.",
        expected: "a packet rate near the uninstrumented one, and figures that are the program's",
        confirm: "laneway trace diff WITH_ALL WITHOUT_HELPERS",
        decide: trace_less,
    },
    Rule {
        name: "state the slow-down",
        text: "Run the same traffic once without instrumentation and give its rate (--control-pps PPS): the quotient is what tracing costs.",
        expected: "a slow-down factor beside every figure",
        confirm: "laneway trace analyze DIR --control-pps PPS",
        decide: control_run,
    },
    Rule {
        name: "keep every event",
        text: "Enlarge the tracer's buffers (lttng --subbuf-size, --num-subbuf) or trace a shorter time: there are holes.",
        expected: "no discarded events, so that maxima, stalls and periods can be stated",
        confirm: "laneway trace record --lttng --sub-buffers 64 -- COMMAND",
        decide: keep_events,
    },
    Rule {
        name: "look for what recurs",
        text: "Something recurs at the period found. Compare it with timers of the program, statistics output, the tick of the kernel.",
        expected: "the period gone, or moved with the timer that is changed",
        confirm: "laneway trace diff BEFORE AFTER",
        decide: recurring,
    },
    Rule {
        name: "block when idle",
        text: "Let the worker block, or spin a while and then block, when there is nothing to receive.",
        expected: "the same packets for a fraction of the CPU; a wake-up more of latency",
        confirm: "laneway race lanes --wakeup",
        decide: block_when_idle,
    },
];

/// Advice given, and advice considered but not given.
pub(crate) fn all(
    model: &Model,
    findings: &[Finding],
    facts: &Facts,
    exclude: &[String],
    control: bool,
    causes: &[Cause],
) -> (Vec<Advice>, Vec<SilentAdvice>) {
    let evidence = Evidence { model, findings, facts, exclude, control, causes };
    let mut given: Vec<Advice> = causes.iter().filter_map(cure).collect();
    let mut silent = Vec::new();
    for rule in RULES {
        match (rule.decide)(&evidence) {
            Some(Ok(_)) if given.iter().any(|advice| advice.rule == rule.name) => {}
            Some(Ok(because)) => given.push(Advice {
                rule: rule.name.to_owned(),
                text: rule.text.to_owned(),
                because,
                expected: rule.expected.to_owned(),
                confirm: rule.confirm.to_owned(),
            }),
            Some(Err(why)) => silent.push(SilentAdvice {
                rule: rule.name.to_owned(),
                text: rule.text.to_owned(),
                why,
            }),
            None => {}
        }
    }
    (given, silent)
}

/// What to do about a cause; nothing where another cause says it.
fn cure(cause: &Cause) -> Option<Advice> {
    const KERNEL: &str = "laneway trace record --kernel -- COMMAND";
    const DIFF: &str = "laneway trace diff BEFORE AFTER";
    let detail = &cause.detail;
    let (rule, text, confirm) = match cause.cause {
        // Overload, or what keeps the worker from its queue, says what to do about it.
        CauseKind::Loss => return None,
        CauseKind::Overload if detail == "bursts" => (
            "hold the bursts",
            "Give the queue more room (ring or socket buffer), or let the worker look sooner: it has time to spare.".to_owned(),
            "the same run with twice the room, and its lost packets",
        ),
        CauseKind::Overload => (
            "take more or offer less",
            "Spread the packets over more workers, make the work per packet cheaper, or offer less.".to_owned(),
            "the same run with --workers 2, or at a tenth less, and its lost packets",
        ),
        CauseKind::Preempted => (
            "give the thread its CPU",
            format!(
                "Keep {} off the CPU of the worker.",
                if detail.is_empty() { "others" } else { detail.as_str() }
            ),
            KERNEL,
        ),
        CauseKind::SystemCall => (
            "move the call",
            format!("Move {detail} out of the worker, to a thread that may wait."),
            KERNEL,
        ),
        CauseKind::Sleep => {
            ("do not sleep", "Let nothing in the worker sleep while packets may come.".to_owned(), KERNEL)
        }
        CauseKind::Lock => (
            "hold the lock for less",
            "Hold the lock that it waits for, if it is one, for less time, or let the worker share nothing."
                .to_owned(),
            KERNEL,
        ),
        CauseKind::PageFaults => (
            "touch memory before",
            "Touch the memory before packets come (populate or lock it), and use it again.".to_owned(),
            KERNEL,
        ),
        CauseKind::ColdStart => (
            "begin before packets come",
            "Let packets come once the program has touched its memory.".to_owned(),
            KERNEL,
        ),
        CauseKind::Interrupts => (
            "move the interrupts",
            format!("Let another CPU take them ({detail}): interrupt affinity, RPS."),
            KERNEL,
        ),
        CauseKind::Housekeeping => (
            "move the housekeeping",
            format!("Move {detail} out of the worker, or cut it into pieces that a queue can wait for."),
            DIFF,
        ),
        CauseKind::SlowFunction => {
            ("make the function cheaper", format!("Make {detail} cheaper, or call it less often."), DIFF)
        }
        CauseKind::Imbalance => (
            "spread the load",
            "Spread flows more evenly over the workers.".to_owned(),
            "the same run, and packets by worker",
        ),
        CauseKind::FarEnd => (
            "send in step with the way out",
            "A faster way out, a longer queue there, or less to send: sends are refused.".to_owned(),
            "the same run at a tenth less, and its refused packets",
        ),
        CauseKind::Allocation => (
            "take memory less often",
            "Take buffers in batches, or use them again.".to_owned(),
            DIFF,
        ),
        CauseKind::Tracer => return None,
    };
    let expected = match cause.lost_packets {
        Some(lost) => format!("at most {lost} packets more"),
        None => format!("at most {:.1} % of the worker's time", 100.0 * cause.share),
    };
    let because = match cause.cause.name() {
        name if detail.is_empty() => name.to_owned(),
        name => format!("{name} ({detail})"),
    };
    Some(Advice {
        rule: rule.to_owned(),
        text,
        because: format!("{because}: {}", cause.sentence),
        expected,
        confirm: confirm.to_owned(),
    })
}

impl Evidence<'_> {
    fn finding(&self, detector: Detector) -> &Finding {
        &self.findings[detector.place()]
    }

    fn fired(&self, detector: Detector) -> bool {
        self.finding(detector).state == State::Fired
    }

    fn says(&self, detector: Detector) -> String {
        let finding = self.finding(detector);
        format!("{}: {}", finding.id, finding.sentence)
    }

    /// The advice rests on a detector that could not look.
    fn unknown(&self, detector: Detector) -> Option<String> {
        let state = self.finding(detector).state;
        matches!(state, State::Withheld | State::NotMeasurable).then(|| self.says(detector))
    }
}

fn raise_cache(evidence: &Evidence<'_>) -> Decision {
    let is_pool =
        |row: &crate::model::Row| row.name.contains("mempool") || row.name.contains("pktmbuf");
    if evidence.model.pools.pools.is_empty() && !evidence.model.rows.iter().any(is_pool) {
        return None;
    }
    if let Some(why) = evidence.unknown(Detector::MempoolCycle) {
        return Some(Err(why));
    }
    let facts = evidence.facts;
    let costly = facts.refill_share > REFILL_SHARE_MIN;
    if evidence.fired(Detector::CommonSlowness) {
        return Some(Err(format!(
            "The CPU explains the slow times. {}",
            evidence.says(Detector::CommonSlowness)
        )));
    }
    if evidence.fired(Detector::MempoolCycle) && (facts.failures > 0 || costly) {
        return Some(Ok(evidence.says(Detector::MempoolCycle)));
    }
    let mut why = vec![evidence.finding(Detector::MempoolCycle).sentence.clone()];
    if facts.refills > 0 {
        why.push(format!(
            "Fills take {:.1} % of the productive time, below the {:.0} % at which the cache is worth touching.",
            100.0 * facts.refill_share,
            100.0 * REFILL_SHARE_MIN
        ));
    }
    if facts.idle_share > IDLE_SHARE_MIN && !facts.lossy {
        why.push(format!(
            "{:.0} % of the time is idle and nothing is lost: buffers limit nothing.",
            100.0 * facts.idle_share
        ));
    }
    if evidence.model.calibration.overhead_share > OVERHEAD_SHARE_MIN {
        why.push("What allocation seems to cost is mostly the tracer's small calls.".to_owned());
    }
    let mut instead = Vec::new();
    if !evidence.exclude.is_empty()
        || evidence.model.calibration.overhead_share > OVERHEAD_SHARE_MIN
    {
        instead.push("exclude helpers from the instrumentation");
    }
    if evidence.model.counts.kernel == 0 {
        instead.push("add a kernel trace");
    }
    if !instead.is_empty() {
        why.push(format!("Instead: {}.", instead.join(", ")));
    }
    Some(Err(why.join(" ")))
}

fn enlarge_pool(evidence: &Evidence<'_>) -> Decision {
    (evidence.facts.failures > 0).then(|| Ok(evidence.says(Detector::MempoolCycle)))
}

fn own_cpu(evidence: &Evidence<'_>) -> Decision {
    if evidence.fired(Detector::CommonSlowness) {
        return Some(Ok(evidence.says(Detector::CommonSlowness)));
    }
    if evidence.finding(Detector::Stalls).state == State::Withheld {
        return Some(Err(evidence.says(Detector::Stalls)));
    }
    let unattributed = evidence.facts.unattributed_stalls > 0
        && !evidence.causes.iter().any(|cause| cause.cause == CauseKind::Preempted);
    unattributed.then(|| {
        Err("Stalls were seen, but without kernel events nothing says that the CPU was taken."
            .to_owned())
    })
}

fn kernel_join(evidence: &Evidence<'_>) -> Decision {
    let stalls = evidence.facts.unattributed_stalls > 0 && evidence.fired(Detector::Stalls);
    let missing = evidence.model.counts.kernel == 0;
    let blind = evidence.finding(Detector::Crossings).state == State::NotMeasurable || stalls;
    match (missing, stalls) {
        (true, true) => Some(Ok(evidence.says(Detector::Stalls))),
        (true, false) if blind && evidence.model.calls() > 0 => Some(Ok(
            "No kernel event is in the trace: wall time is all that is known, so preemption, system calls and interrupts look alike.".to_owned(),
        )),
        _ => None,
    }
}

fn trace_less(evidence: &Evidence<'_>) -> Decision {
    let overhead = evidence.model.calibration.overhead_share;
    if evidence.model.calibration.source == CalibrationSource::None {
        return None;
    }
    (overhead > OVERHEAD_SHARE_MIN).then(|| {
        Ok(format!(
            "{:.0} % of the traced time is the tracer's; functions called over 100,000 times for less than 10 us: {}.",
            100.0 * overhead,
            evidence.exclude.len()
        ))
    })
}

fn control_run(evidence: &Evidence<'_>) -> Decision {
    let overhead = evidence.model.calibration.overhead_share;
    (!evidence.control && overhead > OVERHEAD_SHARE_MIN).then(|| {
        Ok(format!("{:.0} % of the traced time is the tracer's, so the program ran at another speed than it does alone.", 100.0 * overhead))
    })
}

fn keep_events(evidence: &Evidence<'_>) -> Decision {
    (evidence.model.counts.losses > 0).then(|| Ok(evidence.says(Detector::Health)))
}

fn recurring(evidence: &Evidence<'_>) -> Decision {
    match (
        evidence.fired(Detector::Period),
        evidence.fired(Detector::MempoolCycle) && evidence.facts.failures == 0,
    ) {
        (true, true) => Some(Err(evidence.says(Detector::MempoolCycle))),
        (true, false) => Some(Ok(evidence.says(Detector::Period))),
        _ => None,
    }
}

fn block_when_idle(evidence: &Evidence<'_>) -> Decision {
    let idle = evidence.facts.idle_share > IDLE_SHARE_MIN;
    match (idle, evidence.facts.lossy) {
        (true, false) => Some(Ok(evidence.says(Detector::EmptyPolls))),
        (true, true) => {
            Some(Err(format!("There is loss or queueing. {}", evidence.says(Detector::EmptyPolls))))
        }
        _ => None,
    }
}
