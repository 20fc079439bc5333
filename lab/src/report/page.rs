//! The report as one HTML file.
//!
//! The first screen answers: how did it end, what is better or worse than the base and by how
//! much, how noisy was the bench. Plots follow, then the tables they were drawn from, then all that
//! is needed to doubt it or to run it again. The file asks the network for nothing (a content
//! policy in its head forbids it), needs no script, and prints.

use super::pings;
use super::plots;
use super::table::{self as race_table, Scope};
use super::why;
use super::wording::{
    Missing, arm_name, base_name, caps, claim_figure, claim_word, direction, disclaimer, doubt,
    effect_note, estimated_effect, generator_lines, glyph, goal_word, half_width, interval,
    is_noise_floor, load_name, machine_lines, metrics, missing_caps, noise_floor_beside,
    noise_floor_gap, outcome_sentence, outcome_word, plural, scope, shell_command, threshold,
};
use crate::result::{ClaimStatus, Finding, GoalStatus, Outcome, RaceResult};
use laneway_page::document::{self, facts, list};
use laneway_page::markup::{escape, put};
use laneway_page::number::{ABSENT, count, figure, percent, utc};
use laneway_page::script;
use laneway_page::table::{self, Table, absent};
use serde_json::Value;

const STYLE: &str = include_str!("../../assets/report.css");
/// With more loads than this the state of the bench stands below the verdicts, not beside them.
const LOADS_BESIDE_MAX: usize = 3;

/// The whole page.
pub(super) fn page(result: &RaceResult) -> String {
    let title = format!("{}: {}", result.title, outcome_word(result.outcome));
    let mut out = document::begin(&title, STYLE);
    heading(&mut out, result);
    out.push_str("<main>\n");
    first_screen(&mut out, result);
    plot_sections(&mut out, result);
    let mut tables = pings::tables(result);
    tables.extend([race_table::rates(result), race_table::ledger(result)]);
    tables.extend(Scope::tabled(result).map(|scope| race_table::latency(result, scope)));
    tables.push(race_table::memory(result));
    out.push_str("<section>\n<h2 id=\"figures\">Figures</h2>\n");
    for table in &tables {
        table::html(&mut out, table);
    }
    let findings = race_table::findings(result);
    folded_table(
        &mut out,
        &format!(
            "{} with the base, with all they rest on",
            plural(findings.rows.len(), "comparison")
        ),
        &findings,
    );
    out.push_str("</section>\n");
    whys(&mut out, result);
    modes(&mut out, result);
    bench(&mut out, result);
    let (generator, segments) = (race_table::generator(result), race_table::segments(result));
    traffic(&mut out, result, &generator);
    out.push_str("<section>\n<h2 id=\"segments\">Segments</h2>\n");
    put!(&mut out, "<p>{}</p>\n", escape(&segments_sentence(result)));
    folded_table(&mut out, "Every segment in time order, with its ledger", &segments);
    out.push_str("</section>\n");
    again(&mut out, result);
    let explained: Vec<&Table> = tables.iter().chain([&findings, &generator, &segments]).collect();
    method(&mut out, result, &explained);
    put!(
        &mut out,
        "</main>\n<footer><p>laneway {}, schema {}. Written from result.json; one file per trial lies \
         beside it.</p></footer>\n",
        escape(&result.version),
        escape(&result.schema)
    );
    document::end(&mut out, &[script::READINGS, script::TABLES]);
    out
}

fn heading(out: &mut String, result: &RaceResult) {
    put!(
        out,
        "<header>\n<h1>{}</h1>\n<p class=\"sub\">app <b>{}</b>, {}, {} at {}; {}, {}&#160;s; \
         laneway {}</p>\n<nav aria-label=\"Sections\"><a href=\"#verdicts\">Verdicts</a> \
         <a href=\"#plots\">Plots</a> <a href=\"#figures\">Figures</a> {}\
         <a href=\"#modes\">Modes</a> <a href=\"#bench\">Bench</a> \
         <a href=\"#traffic\">Traffic</a> <a href=\"#segments\">Segments</a> \
         <a href=\"#again\">Run it again</a> <a href=\"#method\">Method</a></nav>\n</header>\n",
        escape(&result.title),
        escape(&result.app),
        plural(result.arms.len(), "arm"),
        plural(result.rounds, "round"),
        plural(result.loads_pps.len(), "load"),
        utc(result.started_unix_ns),
        figure(result.seconds),
        escape(&result.version),
        if result.traces.is_empty() { "" } else { "<a href=\"#why\">Why</a> " }
    );
}

fn first_screen(out: &mut String, result: &RaceResult) {
    let class = match result.outcome {
        Outcome::Done => "done",
        Outcome::GoalMissed => "missed",
        Outcome::Inconclusive => "open",
        Outcome::Invalid => "invalid",
    };
    put!(
        out,
        "<section class=\"outcome {class}\">\n<p><strong>{}</strong> {} \
         <span class=\"quiet\">Exit code {}.</span></p>\n",
        outcome_word(result.outcome),
        escape(&outcome_sentence(result)),
        result.outcome.exit_code()
    );
    list(out, "reasons", &result.invalid);
    list(out, "reasons", &result.too_few);
    out.push_str("</section>\n");

    // Beside more than a few loads there is no room for a second column.
    let many = if result.loads_pps.len() > LOADS_BESIDE_MAX { " many" } else { "" };
    put!(out, "<div class=\"first{many}\">\n<section>\n");
    verdict_matrix(out, result);
    goals(out, result);
    claims(out, result);
    out.push_str("</section>\n<aside>\n");
    noise_floor(out, result);
    out.push_str("<h3>Machine</h3>\n");
    let clean = if result.machine.findings.is_empty() { "state" } else { "state found" };
    list(out, clean, &machine_lines(result));
    out.push_str("<h3>Generator</h3>\n");
    list(out, "state", &generator_lines(result));
    out.push_str("<h3>Placement</h3>\n");
    put!(out, "<p>{}</p>\n", escape(&result.placement.sentence));
    if !result.notes.is_empty() {
        out.push_str("<h3>Notes</h3>\n");
        list(out, "state", &result.notes);
    }
    out.push_str("</aside>\n</div>\n");
}

/// Metric by arm, one column per load; the A/A pair stands apart.
fn verdict_matrix(out: &mut String, result: &RaceResult) {
    let base = base_name(result);
    put!(out, "<h2 id=\"verdicts\">Verdicts against {}</h2>\n", escape(&base));
    let judged: Vec<&Finding> =
        result.findings.iter().filter(|f| !is_noise_floor(result, f.arm)).collect();
    if judged.is_empty() {
        out.push_str("<p class=\"gap\">No arm was compared with the base.</p>\n");
        return;
    }
    if let Some(disclaimer) = disclaimer(result) {
        put!(out, "<p class=\"bad\">{disclaimer}</p>\n");
    }
    let loads = loads_of(&judged);
    put!(
        out,
        "<p class=\"quiet\">Effect over {}, verdict; below it the interval (95 % if not stated), and the noise floor \
         (A/A: half-width of the base against itself).</p>\n\
         <div class=\"scroll\" tabindex=\"0\">\n<table class=\"verdicts\">\n<thead><tr>\
         <th scope=\"col\">arm</th>",
        plural(result.rounds, "round")
    );
    for &load in &loads {
        put!(out, "<th scope=\"col\">offered {}</th>", escape(&load_name(result, load)));
    }
    out.push_str("</tr></thead>\n");
    for metric in metrics(result) {
        let of_metric: Vec<&Finding> =
            judged.iter().copied().filter(|f| f.metric == metric).collect();
        let Some(first) = of_metric.first() else { continue };
        put!(
            out,
            "<tbody>\n<tr><th class=\"metric\" scope=\"rowgroup\" colspan=\"{}\"><div>{} \
             <span>{}; {}; {}</span></div></th></tr>\n",
            loads.len() + 1,
            escape(metric),
            direction(first.comparison.rule.direction),
            escape(&effect_note(result, metric)),
            scope(metric)
        );
        for arm in 0..result.arms.len() {
            if !of_metric.iter().any(|f| f.arm == arm) {
                continue;
            }
            put!(out, "<tr><th scope=\"row\">{}</th>", escape(&arm_name(result, arm)));
            for &load in &loads {
                match of_metric.iter().find(|f| f.arm == arm && f.load == load) {
                    Some(finding) => verdict_cell(out, result, finding),
                    None => absent(out, "not compared at this load"),
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n</div>\n");
    doubts(out, result);
}

fn loads_of(findings: &[&Finding]) -> Vec<usize> {
    let mut loads: Vec<usize> = findings.iter().map(|finding| finding.load).collect();
    loads.sort_unstable();
    loads.dedup();
    loads
}

fn verdict_cell(out: &mut String, result: &RaceResult, finding: &Finding) {
    let verdict = finding.judgement.verdict;
    let title = doubt(finding).unwrap_or_else(|| format!("threshold {}", threshold(finding)));
    put!(
        out,
        "<td class=\"verdict {verdict}\" title=\"{}\"><b>{}</b> <span class=\"word\">{} {verdict}\
         </span><span class=\"basis\"><span>{}</span> <span>{}</span></span></td>",
        escape(&title),
        escape(&estimated_effect(finding)),
        glyph(verdict),
        escape(&interval(finding).unwrap_or_else(|| "no interval".to_owned())),
        escape(&noise_floor_beside(result, finding))
    );
}

fn doubts(out: &mut String, result: &RaceResult) {
    let lines: Vec<String> = result
        .findings
        .iter()
        .filter_map(|finding| {
            Some(format!(
                "{}, {} at {}: {}",
                finding.metric,
                arm_name(result, finding.arm),
                load_name(result, finding.load),
                doubt(finding)?
            ))
        })
        .collect();
    if !lines.is_empty() {
        put!(
            out,
            "<details>\n<summary>Inconclusive: {} of {}, with the reasons</summary>\n",
            lines.len(),
            result.findings.len()
        );
        list(out, "doubts", &lines);
        out.push_str("</details>\n");
    }
}

fn noise_floor(out: &mut String, result: &RaceResult) {
    out.push_str("<h3>Noise floor: the base against itself</h3>\n");
    if let Some(gap) = noise_floor_gap(result) {
        put!(out, "<p class=\"gap\">{gap}</p>\n");
        return;
    }
    let pair: Vec<&Finding> =
        result.findings.iter().filter(|f| is_noise_floor(result, f.arm)).collect();
    out.push_str("<div class=\"scroll\" tabindex=\"0\">\n<table class=\"noise\">\n<thead><tr><th scope=\"col\">metric</th>");
    let loads = loads_of(&pair);
    for &load in &loads {
        put!(out, "<th scope=\"col\">{}</th>", escape(&load_name(result, load)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for metric in metrics(result) {
        put!(out, "<tr><th scope=\"row\">{}</th>", escape(metric));
        for &load in &loads {
            match pair.iter().find(|f| f.metric == metric && f.load == load) {
                Some(finding) => put!(
                    out,
                    "<td class=\"verdict {0}\" title=\"{1} {2}\">{3} <span \
                     class=\"word\">{4} {0}</span></td>",
                    finding.judgement.verdict,
                    escape(&estimated_effect(finding)),
                    escape(&interval(finding).unwrap_or_default()),
                    escape(&half_width(finding).unwrap_or_else(|| ABSENT.to_owned())),
                    glyph(finding.judgement.verdict)
                ),
                None => absent(out, "not compared at this load"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str(
        "</tbody>\n</table>\n</div>\n<p class=\"quiet\">Half-width of the interval of the A/A pair, and \
         its own verdict. Any but \u{201c}same\u{201d} is the bench: too noisy, or partial to an \
         order.</p>\n",
    );
}

fn goals(out: &mut String, result: &RaceResult) {
    out.push_str("<h2 id=\"goals\">Goals</h2>\n");
    if result.goals.is_empty() {
        out.push_str("<p class=\"gap\">The scenario states no goal.</p>\n");
        return;
    }
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\">\n<table class=\"goals\">\n<thead><tr><th scope=\"col\">goal</th>\
         <th scope=\"col\">measured</th><th scope=\"col\">status</th></tr></thead>\n<tbody>\n",
    );
    for goal in &result.goals {
        let class = match goal.status {
            GoalStatus::Met => "better",
            GoalStatus::Missed => "worse",
            GoalStatus::Inconclusive => "inconclusive",
        };
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"verdict {class}\">\
             <span class=\"word\">{}</span></td></tr>\n",
            escape(&goal.goal),
            escape(&goal.measured),
            goal_word(goal.status)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn claims(out: &mut String, result: &RaceResult) {
    if result.claims.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"claims\">Claims</h2>\n<div class=\"scroll\" tabindex=\"0\">\n\
         <table class=\"goals\">\n<thead><tr><th scope=\"col\">claim</th><th scope=\"col\">that is</th>\
         <th scope=\"col\">measured</th><th scope=\"col\">answer</th></tr></thead>\n<tbody>\n",
    );
    for claim in &result.claims {
        let class = match claim.status {
            ClaimStatus::Confirmed => "better",
            ClaimStatus::Refuted => "worse",
            ClaimStatus::Inconclusive => "inconclusive",
            ClaimStatus::Unanswered | ClaimStatus::ForTrace => "same",
        };
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"verdict {class}\">\
             <span class=\"word\">{}</span></td></tr>\n",
            escape(&claim.says),
            escape(&claim.test),
            escape(&claim_figure(claim)),
            claim_word(claim.status)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn plot_sections(out: &mut String, result: &RaceResult) {
    out.push_str("<section>\n<h2 id=\"plots\">Plots</h2>\n");
    let legend = plots::legend(result);
    put!(
        out,
        "<figure>\n<figcaption><h3>Rate and CPU against offered load</h3><p>Median over rounds; \
         whiskers from the lowest to the highest block; lines only join the medians. On the dotted \
         line every offered frame is delivered; there the marks of one load stand side by side, \
         so that equal arms all show.</p></figcaption>\n{legend}<div class=\"pair\">{}{}</div>\n\
         </figure>\n",
        plots::rate_against_load(result),
        plots::cpu_against_load(result)
    );
    for &scope in Scope::of(result) {
        put!(
            out,
            "<figure>\n<figcaption><h3>Latency by percentile, {}</h3><p>From {}. All rounds merged; \
             a curve ends where fewer than 50 samples lie beyond. The panels of a scope share their \
             axes; scopes do not, and are never compared.</p></figcaption>\n{legend}{}</figure>\n",
            scope.name(),
            scope.span().trim_start_matches("from "),
            plots::latency_panels(result, scope)
        );
    }
    put!(
        out,
        "<figure>\n<figcaption><h3>CPU by context</h3><p>CPU time of the arm per delivered \
         record, generator and other programs left out. \
         The line across each bar and the figure at its end are the median over rounds, \
         the line reaching from the lowest to the highest.</p></figcaption>\n{}</figure>\n",
        plots::cpu_stacks(result)
    );
    out.push_str(
        "<figure>\n<figcaption><h3>Every pair as a dot</h3><p>Effect of each segment against the \
         base of the same round, in time order within each load; line: effect; band: its interval; \
         dotted: no effect. Each panel has its own axis, so that scatter and drift show: compare \
         arms in the table of verdicts, not here.</p></figcaption>\n",
    );
    if result.findings.is_empty() {
        out.push_str("<p class=\"gap\">Nothing was compared.</p>\n");
    }
    for metric in metrics(result) {
        put!(
            out,
            "<h4>{} <span class=\"quiet\">{}</span></h4>\n{}",
            escape(metric),
            escape(&effect_note(result, metric)),
            plots::block_panels(result, metric)
        );
    }
    put!(
        out,
        "</figure>\n<figure>\n<figcaption><h3>Loss by place</h3><p>Share of the offered frames \
         lost at each named place, in the segments that the rate is made of; the count at the end of the \
         bar. The ledger below is of all segments.</p></figcaption>\n{}</figure>\n</section>\n",
        plots::loss_stacks(result)
    );
}

/// How many segments there are, and how many cannot be used.
fn segments_sentence(result: &RaceResult) -> String {
    let all = result.segments.len();
    let invalid = result.segments.iter().filter(|segment| !segment.invalid.is_empty()).count();
    let open = result.segments.iter().filter(|segment| !segment.ledger.is_closed()).count();
    format!(
        "{}, each one dot of the plots; {} invalid; the ledger of {} does not close.",
        plural(all, "segment"),
        count(invalid as u64),
        count(open as u64)
    )
}

/// A table too long to stand open between others.
fn folded_table(out: &mut String, summary: &str, table: &Table) {
    put!(out, "<details>\n<summary>{}</summary>\n", escape(summary));
    table::html(out, table);
    out.push_str("</details>\n");
}

/// Why each arm is as it is, by its trace.
fn whys(out: &mut String, result: &RaceResult) {
    if result.traces.is_empty() {
        return;
    }
    put!(
        out,
        "<section>\n<h2 id=\"why\">{}</h2>\n<p>{}</p>\n",
        escape(why::HEADING),
        escape(&why::preface(result))
    );
    for table in why::tables(result, true) {
        table::html(out, &table);
    }
    for (arm, lines) in why::explanations(result) {
        put!(out, "<h3>{}</h3>\n", escape(&arm));
        list(out, "state", &lines);
    }
    out.push_str("</section>\n");
}

fn modes(out: &mut String, result: &RaceResult) {
    out.push_str(
        "<section>\n<h2 id=\"modes\">Modes asked for and obtained</h2>\n\
         <div class=\"scroll\" tabindex=\"0\">\n<table class=\"modes\">\n<thead><tr>\
         <th scope=\"col\">arm</th><th scope=\"col\">lane spec</th>\
         <th scope=\"col\">what it does</th><th scope=\"col\">asked for</th>\
         <th scope=\"col\">obtained</th><th scope=\"col\">missing</th>\
         <th scope=\"col\">read back</th></tr></thead>\n<tbody>\n",
    );
    for arm in &result.arms {
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td>",
            escape(&arm.name),
            escape(&arm.spec()),
            escape(&arm.note),
            caps(arm.caps.requested),
            caps(arm.caps.obtained)
        );
        match missing_caps(arm) {
            Some(Missing { words, is_allowed: true }) => put!(out, "<td>{words}</td>"),
            Some(Missing { words, .. }) => put!(out, "<td class=\"bad\">{words}</td>"),
            None => out.push_str("<td>none</td>"),
        }
        out.push_str("<td>");
        facts(out, arm.caps.facts.iter().map(|(name, value)| (name.clone(), value.clone())));
        out.push_str("</td></tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

fn bench(out: &mut String, result: &RaceResult) {
    let (machine, placement) = (&result.machine, &result.placement);
    out.push_str("<section>\n<h2 id=\"bench\">Bench</h2>\n<div class=\"columns\">\n<div>\n");
    out.push_str("<h3>Machine</h3>\n");
    let state = [
        ("steal".to_owned(), percent(machine.steal_share)),
        ("load average before".to_owned(), figure(machine.load_before)),
    ];
    let found = machine.facts.iter().map(|(name, value)| (name.clone(), value.clone()));
    facts(out, found.chain(state));
    put!(out, "</div>\n<div>\n<h3>Placement</h3>\n<p>{}</p>\n", escape(&placement.sentence));
    let cpus = [
        ("arm's worker", placement.arm_cpu),
        ("receive stack (NAPI)", placement.napi_cpu),
        ("generator", placement.generator_cpu),
    ];
    facts(out, cpus.map(|(role, cpu)| (role.to_owned(), format!("CPU {cpu}"))));
    out.push_str("</div>\n<div>\n<h3>Topology, as read back</h3>\n");
    let mut lines = Vec::new();
    flatten(&result.topology, "", &mut lines);
    facts(out, lines);
    out.push_str("</div>\n</div>\n</section>\n");
}

/// Leaves of a JSON value with their paths.
fn flatten(value: &Value, path: &str, lines: &mut Vec<(String, String)>) {
    let below = |key: &str| {
        if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(value, &below(key), lines));
        }
        Value::Array(list) if list.iter().any(|item| item.is_object() || item.is_array()) => {
            for (index, value) in list.iter().enumerate() {
                flatten(value, &below(&index.to_string()), lines);
            }
        }
        Value::Array(list) => {
            let words: Vec<String> = list.iter().map(leaf).collect();
            lines.push((path.to_owned(), words.join(", ")));
        }
        other => lines.push((path.to_owned(), leaf(other))),
    }
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => ABSENT.to_owned(),
        other => other.to_string(),
    }
}

fn traffic(out: &mut String, result: &RaceResult, generator: &Table) {
    let traffic = &result.traffic;
    out.push_str("<section>\n<h2 id=\"traffic\">Traffic</h2>\n");
    let lines = [
        ("capture", traffic.capture.clone()),
        ("SHA-256", traffic.sha256.clone()),
        (
            "frames",
            format!(
                "{} in the capture, {} replayed",
                count(traffic.frames as u64),
                count(traffic.replayed as u64)
            ),
        ),
        ("mean frame", format!("{} bytes", figure(traffic.mean_frame_bytes))),
        ("generator", traffic.generator.clone()),
        ("schedule", traffic.schedule.clone()),
    ];
    facts(out, lines.map(|(name, value)| (name.to_owned(), value)));
    table::html(out, generator);
    out.push_str("</section>\n");
}

fn again(out: &mut String, result: &RaceResult) {
    put!(
        out,
        "<section>\n<h2 id=\"again\">Run it again</h2>\n<pre><code>{}</code></pre>\n<p>Or save the \
         scenario below as <code>again.toml</code> and run \
         <code>laneway race again.toml</code>. Seed of block order and resampling: \
         <code>{}</code>.</p>\n<details>\n<summary>Scenario, as it ran</summary>\n\
         <pre><code>{}</code></pre>\n</details>\n</section>\n",
        escape(&shell_command(&result.command)),
        escape(&result.seed),
        escape(&result.scenario)
    );
}

fn method(out: &mut String, result: &RaceResult, tables: &[&Table]) {
    out.push_str("<section class=\"method\">\n<h2 id=\"method\">Method</h2>\n<ul>\n");
    let mut sentences: Vec<String> = vec![
        "All arms are alive at once, each on its own cables. In a round each is offered a short segment, in \
         shuffled and then reversed order, while the others are stopped; an arm is compared with the base of \
         the same round. After some rounds all processes are replaced: the generation of processes, never \
         the segment or the frame, is the unit of each interval."
            .to_owned(),
        "A verdict comes from the interval of the effect: better or worse when it lies \
         wholly beyond the threshold, same when wholly inside and as narrow as asked, else \
         inconclusive. The threshold is the larger of what matters and the half-width of the A/A \
         pair. Intervals hold at every look at once, so a race may end as soon as it is decided; arms and \
         loads of a metric share its error rate."
            .to_owned(),
        "A dash is a figure that could not be measured; its reason shows on hover. A percentile is \
         given only if at least 50 samples lie beyond it."
            .to_owned(),
    ];
    let scopes = Scope::of(result);
    sentences.extend(
        scopes
            .iter()
            .map(|scope| format!("Scope \u{201c}{}\u{201d}: {}.", scope.name(), scope.span())),
    );
    sentences.extend(match scopes {
        [] | [Scope::DueToArrival] => None,
        [_] if result.ping.is_none() => None,
        [_] => Some(
            "Round trips of our probe and of ping end at different places; no figure of one is set \
             against the other."
                .to_owned(),
        ),
        [..] => Some(
            "These scopes are different quantities; no figure of one is set against the other."
                .to_owned(),
        ),
    });
    sentences.push("Units: 1 MiB = 1,048,576 bytes; k = 1000; 1 \u{b5}s = 1000 ns.".to_owned());
    let mut meters: Vec<&str> = Vec::new();
    for segment in &result.segments {
        let meter = segment.cpu.method.as_str();
        if !meter.is_empty() && !meters.contains(&meter) {
            meters.push(meter);
        }
    }
    sentences.extend(meters.iter().map(|meter| format!("CPU meter: {meter}")));
    for sentence in &sentences {
        put!(out, "<li>{}</li>\n", escape(sentence));
    }
    out.push_str("</ul>\n<details>\n<summary>What each column means</summary>\n");
    for table in tables {
        put!(out, "<h3>{}</h3>\n", escape(&table.caption));
        facts(
            out,
            table.columns.iter().map(|column| {
                let unit = if column.unit.is_empty() {
                    String::new()
                } else {
                    format!(", {}", column.unit)
                };
                (format!("{}{unit}", column.head), column.note.clone())
            }),
        );
    }
    out.push_str("</details>\n</section>\n");
}
