//! Flow rows against NFStream 6.6.0, an independent program, on every capture at hand.
//!
//! ```text
//!   capture ─┬─▶ NFStream, from PyPI, in an environment of its own ───────────▶ flows ─┐
//!            └─▶ our reader ─▶ view: frames as NFStream sees them ─▶ offline ─▶ rows  ─┴▶ equal
//! ```
//!
//! NFStream reads the captures themselves. Where it sees a frame otherwise than we do, `view` says
//! so by a named rule, changes our side only, and every rule's frames are counted and printed. What
//! the rules leave must be equal: which flows there are, addresses, ports, protocol, VLAN, direction,
//! packets, bytes by all four definitions, flags, times in ms, gaps, lengths, why a flow was cut.
//! Counters are equal as integers, means and deviations to a relative 1e-12.
//!
//! Needs Python 3 with `venv`, and the package index once; says so where they are missing.

mod captures;
mod flows;
mod ours;
mod peer;
mod view;

use captures::{Capture, Folder};
use flows::{Columns, Comparison};
use laneway_testkit::skip;
use std::io::Write;
use view::Rule;

/// Of NFStream's flows, the share that rules may take away: a rule that grows into an excuse fails
/// the test.
const EXCLUDED_PERCENT_MAX: usize = 7;

#[test]
fn flow_rows_equal_nfstreams() {
    let python = match peer::python() {
        Ok(python) => python,
        Err(why) => return skip(why),
    };
    let folder = Folder::new();
    let mut captures = captures::all(&folder);
    let columns = Columns::new();
    let theirs = peer::flows(&python, &captures, &columns, &folder);
    let ours = ours::flows(&captures, &columns, &folder);

    let mut comparison = Comparison::new(columns);
    for ((capture, ours), theirs) in captures.iter_mut().zip(&ours).zip(theirs) {
        let theirs = theirs.unwrap_or_else(|why| {
            capture.leave_out(format!("NFStream cannot read it: {why}"));
            Vec::new()
        });
        comparison.capture(capture, ours, &theirs);
    }
    report(&captures, &comparison);
    let differences = &comparison.differences;
    assert!(
        differences.is_empty(),
        "{} differences, the first of them:\n{}",
        differences.len(),
        differences[..differences.len().min(20)].join("\n")
    );
    let (compared, excluded) = (comparison.flows, comparison.excluded_theirs());
    assert!(compared > 0, "nothing was compared");
    assert!(
        excluded * 100 <= (compared + excluded) * EXCLUDED_PERCENT_MAX,
        "rules exclude {excluded} of NFStream's {} flows, more than {EXCLUDED_PERCENT_MAX} %",
        compared + excluded
    );
}

#[test]
fn every_column_that_names_one_of_nfstreams_is_compared_with_it() {
    let columns = Columns::new();
    let compared: Vec<(&str, &str)> = [&columns.integers, &columns.floats]
        .into_iter()
        .flatten()
        .map(|column| (column.ours.as_str(), column.theirs.as_str()))
        .chain(Columns::IDENTITY)
        .collect();
    let aliases = ours::aliases();
    assert!(!aliases.is_empty(), "flow columns name NFStream's");
    for (ours, theirs) in &aliases {
        let pair = (ours.as_str(), theirs.as_str());
        assert!(compared.contains(&pair), "{ours} says it is NFStream's {theirs}, which is not so");
    }
}

/// What was compared and what was not, past the harness's capture of output.
fn report(captures: &[Capture], comparison: &Comparison) {
    let records: usize = captures.iter().map(|capture| capture.records).sum();
    let mut lines = format!(
        "nfstream: {} captures of {records} frames; {} flows and {} packets compared\n",
        captures.len(),
        comparison.flows,
        comparison.packets
    );
    for rule in Rule::ALL {
        let frames: usize = captures.iter().map(|c| c.by_rule[rule as usize]).sum();
        if frames > 0 {
            lines += &format!("  {frames} frames: {}\n", rule.why());
        }
    }
    lines += &format!(
        "  {} flows without bytes of layer 4: NFStream does not decode their protocol\n",
        comparison.opaque
    );
    for (why, [ours, theirs]) in &comparison.excluded {
        lines += &format!("  {ours} flows of ours, {theirs} of NFStream's not compared: {why}\n");
    }
    // Losing the lines to a closed stderr is no reason to fail the test.
    let _ = std::io::stderr().write_all(lines.as_bytes());
}
