//! What to try, and what not to (specification 6.6).
//!
//! A rule names the findings it needs and those that forbid it. It never fires on withheld data. Advice that was
//! considered and is not given is told with its reason, because "raise the mempool cache" is what
//! people try first. Every advice names the experiment that would prove it wrong.

use crate::detect::Facts;
use crate::model::Model;
use crate::result::{Advice, CalibrationSource, Finding, SilentAdvice, State};

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
        text: "Pin the worker to a CPU that nothing else uses (isolcpus, IRQ affinity, no SMT sibling at work), and look at steal in a guest.",
        expected: "one speed instead of two, and stalls by preemption gone",
        confirm: "laneway trace record --kernel -- COMMAND, pinned and not",
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
        expected: "no discarded events, so that maxima, stalls and periods can be told",
        confirm: "laneway trace record --lttng --sub-buffers 64 -- COMMAND",
        decide: keep_events,
    },
    Rule {
        name: "try another lane",
        text: "Race this lane against af_packet and AF_XDP: the way through the kernel costs more than the program.",
        expected: "fewer crossings per packet, less time per packet",
        confirm: "laneway race tap",
        decide: other_lane,
    },
    Rule {
        name: "send in step with the way out",
        text: "Longer transmit rings, larger send batches, or a faster way out: send is refused packets.",
        expected: "no refused packets at the same offered load",
        confirm: "laneway race lanes --lane dpdk:net_af_packet --lane dpdk:net_af_packet,txd=4096",
        decide: backpressure,
    },
    Rule {
        name: "spread the load",
        text: "Spread flows over queues and workers (RSS, fanout), or add workers: the busiest has more than it can take at once.",
        expected: "the busiest queue near the mean, fewer full bursts",
        confirm: "laneway run features --lane packet --on INTERFACE --workers 2",
        decide: spread,
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
) -> (Vec<Advice>, Vec<SilentAdvice>) {
    let evidence = Evidence { model, findings, facts, exclude, control };
    let (mut given, mut silent) = (Vec::new(), Vec::new());
    for rule in RULES {
        match (rule.decide)(&evidence) {
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

impl Evidence<'_> {
    /// The finding of detector `number` (1 to 12).
    fn finding(&self, number: usize) -> &Finding {
        &self.findings[number - 1]
    }

    fn fired(&self, number: usize) -> bool {
        self.finding(number).state == State::Fired
    }

    fn says(&self, number: usize) -> String {
        let finding = self.finding(number);
        format!("{}: {}", finding.id, finding.sentence)
    }

    /// The advice rests on a detector that could not look.
    fn unknown(&self, number: usize) -> Option<String> {
        let state = self.finding(number).state;
        matches!(state, State::Withheld | State::NotMeasurable).then(|| self.says(number))
    }
}

fn raise_cache(evidence: &Evidence<'_>) -> Decision {
    if let Some(why) = evidence.unknown(6) {
        return Some(Err(why));
    }
    let facts = evidence.facts;
    let costly = facts.refill_share > REFILL_SHARE_MIN;
    if evidence.fired(5) {
        return Some(Err(format!("The CPU explains the slow times. {}", evidence.says(5))));
    }
    if evidence.fired(6) && (facts.failures > 0 || costly) {
        return Some(Ok(evidence.says(6)));
    }
    let mut why = vec![evidence.finding(6).sentence.clone()];
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
    instead.push("compare net_tap with af_packet or AF_XDP");
    why.push(format!("Instead: {}.", instead.join(", ")));
    Some(Err(why.join(" ")))
}

fn enlarge_pool(evidence: &Evidence<'_>) -> Decision {
    (evidence.facts.failures > 0).then(|| Ok(evidence.says(6)))
}

fn own_cpu(evidence: &Evidence<'_>) -> Decision {
    if evidence.fired(5) {
        return Some(Ok(evidence.says(5)));
    }
    if evidence.finding(7).state == State::Withheld {
        return Some(Err(evidence.says(7)));
    }
    match evidence.facts {
        Facts { preempted_stalls, .. } if *preempted_stalls > 0 => Some(Ok(evidence.says(7))),
        Facts { unattributed_stalls, .. } if *unattributed_stalls > 0 => Some(Err(
            "Stalls were seen, but without kernel events nothing says that the CPU was taken."
                .to_owned(),
        )),
        _ => None,
    }
}

fn kernel_join(evidence: &Evidence<'_>) -> Decision {
    let stalls = evidence.facts.unattributed_stalls > 0 && evidence.fired(7);
    let missing = evidence.model.counts.kernel == 0;
    let blind = evidence.finding(8).state == State::NotMeasurable || stalls;
    match (missing, stalls) {
        (true, true) => Some(Ok(evidence.says(7))),
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
    (evidence.model.counts.losses > 0).then(|| Ok(evidence.says(12)))
}

fn other_lane(evidence: &Evidence<'_>) -> Decision {
    match evidence.finding(8).state {
        State::Fired => Some(Ok(evidence.says(8))),
        State::NotMeasurable | State::Withheld => Some(Err(evidence.says(8))),
        State::Silent => None,
    }
}

fn backpressure(evidence: &Evidence<'_>) -> Decision {
    evidence.fired(10).then(|| Ok(evidence.says(10)))
}

fn spread(evidence: &Evidence<'_>) -> Decision {
    evidence.fired(9).then(|| Ok(evidence.says(9)))
}

fn recurring(evidence: &Evidence<'_>) -> Decision {
    match (evidence.fired(4), evidence.fired(6) && evidence.facts.failures == 0) {
        (true, true) => Some(Err(evidence.says(6))),
        (true, false) => Some(Ok(evidence.says(4))),
        _ => None,
    }
}

fn block_when_idle(evidence: &Evidence<'_>) -> Decision {
    let idle = evidence.facts.idle_share > IDLE_SHARE_MIN;
    match (idle, evidence.facts.lossy) {
        (true, false) => Some(Ok(evidence.says(1))),
        (true, true) => Some(Err(format!("There is loss or queueing. {}", evidence.says(1)))),
        _ => None,
    }
}
