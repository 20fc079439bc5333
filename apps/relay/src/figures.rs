//! The figures of a running relay, as readers of metrics get them.

use crate::{book::Book, live::WorkerState};
use laneway_metrics::{Family, Kind, Page};

/// Outputs whose figures are shown one by one to readers of metrics; `laneway relay status` has those of all.
const OUTPUTS_SHOWN_MAX: usize = 1024;

const RULES: Family = Family::gauge("laneway_relay_rules", "Rules in force.");
const OUTPUTS: Family = Family::gauge("laneway_relay_outputs", "Outputs of all rules.");
const OUTPUTS_LEFT_OUT: Family = Family::gauge(
    "laneway_relay_outputs_left_out",
    "Outputs beyond the first 1024, whose own figures are not on this page.",
);
const RULE_DATAGRAMS: Family = Family::counter(
    "laneway_relay_rule_datagrams_total",
    "Datagrams received by the rule's input, by rule.",
);
const RULE_LIMITED: Family = Family::counter(
    "laneway_relay_rule_rate_limited_total",
    "Datagrams beyond the rule's bytes_per_second, by rule.",
);
const OUTPUT_SENT: Family =
    Family::counter("laneway_relay_output_sent_total", "Copies that left, by rule and output.");
const OUTPUT_DROPS: Family = Family::counter(
    "laneway_relay_output_drops_total",
    "Copies that did not leave, by rule, output and reason.",
);
const RULE_DELAYS: Family = Family {
    name: "laneway_relay_rule_delay_seconds",
    kind: Kind::Histogram,
    help: "Time from the kernel's stamp on a datagram to the end of the send calls of its round, by rule; lanes with stamps.",
};
const INTERFACE_DROPS: Family = Family::counter(
    "laneway_relay_interface_drops_total",
    "Copies that a driver did not take, by interface and reason: on lane xdp.",
);
const BATCHES: Family = Family {
    name: "laneway_relay_batch_datagrams",
    kind: Kind::Histogram,
    help: "Datagrams that a worker was shown at a time.",
};

/// Adds what a relay has, and what it has done.
pub(crate) fn add(book: &Book, page: &mut Page) {
    let rules = book.rules();
    let outputs: usize = rules.iter().map(|(_, rule)| rule.outputs.len()).sum();
    page.add(&RULES, &[], rules.len() as u64);
    page.add(&OUTPUTS, &[], outputs as u64);
    page.add(&OUTPUTS_LEFT_OUT, &[], outputs.saturating_sub(OUTPUTS_SHOWN_MAX) as u64);
    // Each may cost the worker a system call, and datagrams wait meanwhile.
    if let Ok(state) = book.state_with(OUTPUTS_SHOWN_MAX) {
        figures(&state, page);
    }
}

/// What every rule has done, and as many outputs as are shown, as figures.
fn figures(state: &WorkerState, page: &mut Page) {
    // Classes are powers of two: 1, 2 to 3, 4 to 7.
    let limits = (1..).map(|class| f64::from(2u32.pow(class) - 1));
    let buckets: Vec<(f64, u64)> = limits.zip(state.batches.iter().copied()).collect();
    // A kernel half is shown none.
    let shown = if state.reads > 0 { state.datagrams } else { 0 };
    page.add_histogram(&BATCHES, &[], &buckets, 0, shown as f64);
    let mut outputs_left = OUTPUTS_SHOWN_MAX;
    for rule in &state.rules {
        let id = rule.id.to_string();
        let of_rule = [("rule", id.as_str()), ("name", rule.name.as_deref().unwrap_or_default())];
        page.add(&RULE_DATAGRAMS, &of_rule, rule.datagrams);
        page.add(&RULE_LIMITED, &of_rule, rule.rate_limited);
        if let Some((beyond, classes)) = rule.delays.classes.split_last()
            && !rule.delays.is_empty()
        {
            let limits = (0..).map(|class| f64::from(1u32 << class) / 1e6);
            let buckets: Vec<(f64, u64)> = limits.zip(classes.iter().copied()).collect();
            let sum = rule.delays.sum_ns as f64 / 1e9;
            page.add_histogram(&RULE_DELAYS, &of_rule, &buckets, *beyond, sum);
        }
        let shown = rule.outputs.len().min(outputs_left);
        outputs_left -= shown;
        for output in &rule.outputs[..shown] {
            let by = output.interface.as_deref().unwrap_or_default();
            let of_output = [
                ("rule", id.as_str()),
                ("destination", output.destination.as_str()),
                ("interface", by),
            ];
            page.add(&OUTPUT_SENT, &of_output, output.sent);
            for (reason, n) in &output.drops {
                let [rule, destination, interface] = of_output;
                page.add(&OUTPUT_DROPS, &[rule, destination, interface, ("reason", reason)], *n);
            }
        }
    }
    for (interface, drops) in &state.interfaces {
        for (reason, n) in drops {
            page.add(&INTERFACE_DROPS, &[("interface", interface), ("reason", reason)], *n);
        }
    }
}
