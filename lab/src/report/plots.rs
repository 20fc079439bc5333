//! The five plots of a race, as SVG.
//!
//! Each shows what was measured and nothing between: lines join medians of neighbouring loads and
//! say so, whiskers are the lowest and highest block, and a panel without figures says why instead
//! of showing an empty frame. Both scopes of latency get panels of their own and never share an
//! axis.

use super::table::{Scope, closing, loss_places, losses};
use super::wording::{
    arm_name, effect, estimated_effect, interval, is_noise_floor, is_scheduled, load_name,
    scheduled, summary_of, timed,
};
use crate::result::{Finding, RaceResult, Summary};
use laneway_page::drawing::{
    Anchor, Drawing, PART_STYLES, SERIES_STYLES, Scale, latency_tick, linear_tick,
};
use laneway_page::markup::{escape, put};
use laneway_page::number::{count, duration, figure, percent, short};
use laneway_stats::{CurvePoint, LatencySummary, Scale as EffectScale};

/// CPU contexts that are the arm's own, in the order stacked, from the app outwards; the others are in no figure.
const CONTEXTS: [&str; 3] = ["arm", "napi thread", "softirq net_rx"];
/// Characters of an arm's name that fit beside a bar.
const BAR_NAME_CHARS: usize = 22;

/// The key of arms to marker, dash and colour.
pub(super) fn legend(result: &RaceResult) -> String {
    let mut out = String::from("<ul class=\"legend\" aria-label=\"Arms\">\n");
    for (index, arm) in result.arms.iter().enumerate() {
        let mut sample = Drawing::new(34.0, 14.0);
        sample.line(&format!("curve a{}", index % SERIES_STYLES), (1.0, 7.0), (33.0, 7.0));
        sample.marker(index, arm.is_noise_floor, (17.0, 7.0), 4.5, "");
        let role = match (index, arm.is_noise_floor) {
            (0, _) => " (base)",
            (_, true) => " (A/A pair)",
            _ => "",
        };
        put!(
            &mut out,
            "<li>{}{}{role}</li>\n",
            sample.finish(&format!("mark of {}", arm.name), ""),
            escape(&arm.name)
        );
    }
    out.push_str("</ul>\n");
    out
}

/// Delivered against offered rate.
pub(super) fn rate_against_load(result: &RaceResult) -> String {
    against_load(
        result,
        &AgainstLoad {
            title: "Delivered rate against offered load",
            axis: "delivered, records/s",
            unit: "records/s",
            gap: "No block gave a valid rate.",
            has_ideal: true,
        },
        |summary| summary.records_per_s,
    )
}

/// CPU time per delivered record against offered rate.
pub(super) fn cpu_against_load(result: &RaceResult) -> String {
    against_load(
        result,
        &AgainstLoad {
            title: "CPU time per delivered record against offered load",
            axis: "CPU per record, ns",
            unit: "ns per record",
            gap: "No CPU time was measured.",
            has_ideal: false,
        },
        |summary| summary.cpu_ns_per_record,
    )
}

/// The words of a plot against the load.
struct AgainstLoad<'a> {
    title: &'a str,
    axis: &'a str,
    unit: &'a str,
    /// Shown when there is nothing to draw.
    gap: &'a str,
    /// Whether the value would equal the load if nothing were lost.
    has_ideal: bool,
}

/// Median, minimum and maximum over rounds against the offered load, a line for each arm.
fn against_load(
    result: &RaceResult,
    words: &AgainstLoad<'_>,
    value: impl Fn(&Summary) -> Option<[f64; 3]>,
) -> String {
    let value = |summary| value(summary).filter(|values| values.iter().all(|v| v.is_finite()));
    let values: Vec<[f64; 3]> = result.summaries.iter().filter_map(value).collect();
    if values.is_empty() || scheduled(result).next().is_none() {
        return format!("<p class=\"gap\">{}</p>\n", words.gap);
    }
    let (left, right, top, bottom) = (60.0, 448.0, 12.0, 256.0);
    let mut drawing = Drawing::new(460.0, 302.0);
    let offered_max = scheduled(result).map(|(_, pps)| pps).max().unwrap_or(0) as f64;
    let value_max = values.iter().map(|[_, _, max]| *max).fold(0.0, f64::max);
    let high = if words.has_ideal { value_max.max(offered_max) } else { value_max };
    let x = Scale::linear(0.0, offered_max * 1.06, left, right);
    let y = Scale::linear(0.0, high * 1.06, bottom, top);
    load_axes(&mut drawing, &x, &y, (left, right, top, bottom));
    drawing.upright_text("axis", (14.0, (top + bottom) / 2.0), words.axis);
    drawing.text("axis", ((left + right) / 2.0, 296.0), Anchor::Middle, "offered, frames/s");
    if words.has_ideal {
        drawing.line("ideal", (x.at(0.0), y.at(0.0)), (x.at(offered_max), y.at(offered_max)));
    }
    // Rates of arms that lose nothing are equal; other values seldom are, and need no room.
    let step_aside = if words.has_ideal { step_aside(result, &x) } else { 0.0 };
    for arm in 0..result.arms.len() {
        let aside = (arm as f64 - (result.arms.len() as f64 - 1.0) / 2.0) * step_aside;
        let mut points = Vec::new();
        for (load, pps) in scheduled(result) {
            if let Some(values) = summary_of(result, arm, load).and_then(value) {
                points.push((x.at(pps as f64), load, values));
            }
        }
        let line: Vec<_> = points.iter().map(|&(px, _, [median, ..])| (px, y.at(median))).collect();
        drawing.path(&format!("curve a{}", arm % SERIES_STYLES), &line);
        for (px, load, [median, min, max]) in points {
            let px = px + aside;
            let class = format!("whisker a{}", arm % SERIES_STYLES);
            drawing.line(&class, (px, y.at(min)), (px, y.at(max)));
            for end in [min, max] {
                drawing.line(&class, (px - 3.0, y.at(end)), (px + 3.0, y.at(end)));
            }
            let title = format!(
                "{} at {}: {} {}, blocks {} to {}",
                arm_name(result, arm),
                load_name(result, load),
                figure(median),
                words.unit,
                figure(min),
                figure(max)
            );
            drawing.marker(arm, is_noise_floor(result, arm), (px, y.at(median)), 4.2, &title);
        }
    }
    let description = format!(
        "One line per arm through the median over rounds at each offered load; whiskers from the \
         lowest to the highest block.{}",
        if words.has_ideal { " On the dotted line every offered frame is delivered." } else { "" }
    );
    format!("<div class=\"plot\">{}</div>\n", drawing.finish(words.title, &description))
}

/// How far apart the marks of two arms stand at the same load. Arms share the loads: on one spot
/// the last one drawn would hide the others. Where loads are close there is less room.
fn step_aside(result: &RaceResult, x: &Scale) -> f64 {
    let mut places: Vec<f64> = scheduled(result).map(|(_, pps)| x.at(pps as f64)).collect();
    places.sort_by(f64::total_cmp);
    let narrowest = places.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min);
    (narrowest * 0.8 / result.arms.len().max(1) as f64).min(8.0)
}

/// Grid, ticks and frame of a plot against the load.
fn load_axes(drawing: &mut Drawing, x: &Scale, y: &Scale, frame: (f64, f64, f64, f64)) {
    let (left, right, top, bottom) = frame;
    for tick in y.ticks(6) {
        drawing.line("grid", (left, y.at(tick)), (right, y.at(tick)));
        drawing.text("tick", (left - 6.0, y.at(tick) + 4.0), Anchor::End, &short(tick));
    }
    for tick in x.ticks(6) {
        drawing.line("grid", (x.at(tick), top), (x.at(tick), bottom));
        drawing.text("tick", (x.at(tick), bottom + 17.0), Anchor::Middle, &short(tick));
    }
    drawing.line("frame", (left, bottom), (right, bottom));
    drawing.line("frame", (left, top), (left, bottom));
}

/// Latency by percentile of one scope, one panel per load, all on the same axes.
pub(super) fn latency_panels(result: &RaceResult, scope: Scope) -> String {
    let curve = |summary: &Summary| -> Vec<CurvePoint> {
        match scope {
            Scope::WireToApp => summary.wire_to_app_curve.clone(),
            Scope::AppOnly => summary.app_only_curve.clone(),
            Scope::RoundTrip => summary.rtt_curve.clone(),
            Scope::DueToArrival => summary.due_to_arrival_curve.clone(),
        }
    };
    let points: Vec<CurvePoint> = result.summaries.iter().flat_map(curve).collect();
    if points.is_empty() {
        return format!(
            "<p class=\"gap\">No latency of scope {} has the 100 samples that a percentile needs.</p>\n",
            scope.name()
        );
    }
    let values = || points.iter().map(|point| (point.value_ns as f64).max(1.0));
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let decades = points.iter().map(|point| -point.beyond.log10()).fold(1.0, f64::max);
    let mut out = String::from("<div class=\"panels wide\">\n");
    for load in timed(result) {
        let title =
            format!("Latency by percentile, {}, at {}", scope.name(), load_name(result, load));
        let (left, right, top, bottom) = (56.0, 352.0, 26.0, 218.0);
        let mut drawing = Drawing::new(360.0, 258.0);
        let y = Scale::log(low, high, bottom, top);
        let x = Scale::linear(0.0, decades * 1.02, left, right);
        drawing.text("head", (left, 16.0), Anchor::Start, &load_name(result, load));
        for tick in y.ticks(7) {
            drawing.line("grid", (left, y.at(tick)), (right, y.at(tick)));
            drawing.text("tick", (left - 5.0, y.at(tick) + 4.0), Anchor::End, &latency_tick(tick));
        }
        for (beyond, label) in [
            (0.5f64, "50"),
            (0.1, "90"),
            (0.01, "99"),
            (1e-3, "99.9"),
            (1e-4, "99.99"),
            (1e-5, "99.999"),
        ] {
            let at = -beyond.log10();
            if x.holds(at) {
                drawing.line("grid", (x.at(at), top), (x.at(at), bottom));
                drawing.text("tick", (x.at(at), bottom + 16.0), Anchor::Middle, label);
            }
        }
        drawing.line("frame", (left, bottom), (right, bottom));
        drawing.line("frame", (left, top), (left, bottom));
        drawing.text("axis", ((left + right) / 2.0, 250.0), Anchor::Middle, "percentile, %");
        let mut drawn = 0;
        for arm in 0..result.arms.len() {
            let Some(summary) = summary_of(result, arm, load) else { continue };
            let line: Vec<_> = curve(summary)
                .iter()
                .map(|point| (x.at(-point.beyond.log10()), y.at(point.value_ns as f64)))
                .collect();
            drawn += usize::from(!line.is_empty());
            drawing.path(&format!("curve a{}", arm % SERIES_STYLES), &line);
            if let Some(latency) = scope.summary(summary) {
                latency_marks(&mut drawing, result, (arm, load), latency, &x, &y);
            }
        }
        if drawn == 0 {
            let at = ((left + right) / 2.0, (top + bottom) / 2.0);
            drawing.text("axis", at, Anchor::Middle, "fewer than 100 samples");
        }
        out.push_str(&drawing.finish(
            &title,
            "Latency on a logarithmic axis against the percentile on an axis where each further \
             nine takes the same room; one curve per arm, marked at 50, 90, 99 and 99.9 %.",
        ));
    }
    out.push_str("</div>\n");
    out
}

/// Marks the percentiles of the tables on a curve.
fn latency_marks(
    drawing: &mut Drawing,
    result: &RaceResult,
    (arm, load): (usize, usize),
    latency: &LatencySummary,
    x: &Scale,
    y: &Scale,
) {
    let LatencySummary { n, p50_ns, p90_ns, p99_ns, p999_ns, .. } = *latency;
    for (label, beyond, value) in [
        ("50", 0.5f64, p50_ns),
        ("90", 0.1, p90_ns),
        ("99", 0.01, p99_ns),
        ("99.9", 0.001, p999_ns),
    ] {
        let Some(ns) = value else { continue };
        let title = format!(
            "{} at {}: {label} % within {} ({} samples)",
            arm_name(result, arm),
            load_name(result, load),
            duration(ns as f64),
            count(n)
        );
        let at = (x.at(-beyond.log10()), y.at(ns as f64));
        drawing.marker(arm, is_noise_floor(result, arm), at, 3.6, &title);
    }
}

/// One stacked bar.
struct Bar {
    load: usize,
    arm: usize,
    /// Index of the part and its value.
    parts: Vec<(usize, f64)>,
    /// Words at the end of the bar, and whether they report a fault.
    total: (String, bool),
    /// Median, minimum and maximum over rounds, drawn across the bar.
    whisker: Option<[f64; 3]>,
}

/// CPU time per delivered record by context.
pub(super) fn cpu_stacks(result: &RaceResult) -> String {
    let mut names: Vec<String> = CONTEXTS.map(str::to_owned).into();
    let occurs = |name: &String| {
        result.summaries.iter().any(|summary| {
            summary.contexts_ns_per_record.get(name).is_some_and(|&ns| ns.is_finite() && ns > 0.0)
        })
    };
    names.retain(occurs);
    let bars = bars(result, |summary| {
        let parts = names
            .iter()
            .enumerate()
            .filter_map(|(part, name)| Some((part, *summary.contexts_ns_per_record.get(name)?)));
        let total = match summary.cpu_ns_per_record {
            Some([median, ..]) => format!("{} ns", figure(median)),
            None => "not measured".to_owned(),
        };
        (parts.collect(), (total, false), summary.cpu_ns_per_record)
    });
    stacks(
        result,
        &Stacks {
            title: "CPU time per delivered record by context",
            description: "One bar per arm and load; the line across is the median over rounds, from the \
                          lowest to the highest, and so is the figure at the end.",
            axis: "CPU time per delivered record, ns",
            gap: "No CPU time was measured.",
            names: &names,
        },
        &bars,
        |value| format!("{} ns per record", figure(value)),
    )
}

/// Lost frames by place, as shares of the offered.
pub(super) fn loss_stacks(result: &RaceResult) -> String {
    let ledgers = || result.summaries.iter().filter_map(losses);
    let mut names = loss_places(ledgers());
    let unexplained = names.len();
    let is_open = ledgers().any(|ledger| ledger.unexplained != 0);
    if is_open {
        names.push("unexplained".to_owned());
    }
    let bars = bars(result, |summary| {
        let Some(ledger) = losses(summary) else {
            return (Vec::new(), ("no segment of use".to_owned(), false), None);
        };
        let share = |frames: u64| frames as f64 / ledger.offered.max(1) as f64 * 100.0;
        let mut parts: Vec<(usize, f64)> = names[..unexplained]
            .iter()
            .enumerate()
            .filter_map(|(part, name)| Some((part, share(*ledger.drops.get(name)?))))
            .collect();
        if is_open {
            parts.push((unexplained, share(ledger.unexplained.unsigned_abs())));
        }
        let (closing, is_closed) = closing(ledger);
        let lost = ledger.offered.saturating_sub(ledger.delivered);
        let total = if ledger.unknown.is_some() {
            closing
        } else if is_closed {
            format!("{} lost", count(lost))
        } else {
            format!("{} lost, {closing}", count(lost))
        };
        (parts, (total, !is_closed), None)
    });
    stacks(
        result,
        &Stacks {
            title: "Lost frames by place",
            description: "One bar per arm and load: share of the offered frames lost at each \
                          named place, in the segments that the rate is made of; the number of frames at the end.",
            axis: "share of the offered frames, %",
            gap: if ledgers().next().is_none() {
                "No ledger was recorded of a segment that rates are made of."
            } else {
                "No arm lost a frame at any load in the segments that rates are made of, and their ledgers are closed."
            },
            names: &names,
        },
        &bars,
        |value| percent(value / 100.0),
    )
}

type BarParts = (Vec<(usize, f64)>, (String, bool), Option<[f64; 3]>);

fn bars(result: &RaceResult, of: impl Fn(&Summary) -> BarParts) -> Vec<Bar> {
    let mut bars = Vec::new();
    for load in 0..result.loads_pps.len() {
        for arm in 0..result.arms.len() {
            let (parts, total, whisker) = match summary_of(result, arm, load) {
                Some(summary) => of(summary),
                None => (Vec::new(), ("did not run".to_owned(), false), None),
            };
            bars.push(Bar { load, arm, parts, total, whisker });
        }
    }
    bars
}

/// The words of a stacked plot.
struct Stacks<'a> {
    title: &'a str,
    description: &'a str,
    axis: &'a str,
    /// Shown when there is nothing to stack.
    gap: &'a str,
    names: &'a [String],
}

fn stacks(
    result: &RaceResult,
    words: &Stacks<'_>,
    bars: &[Bar],
    show: impl Fn(f64) -> String,
) -> String {
    if words.names.is_empty() {
        return format!("<p class=\"gap\">{}</p>\n", words.gap);
    }
    let mut out = String::from("<ul class=\"legend\" aria-label=\"Parts\">\n");
    for (part, name) in words.names.iter().enumerate() {
        let mut sample = Drawing::new(14.0, 14.0);
        sample.rect(&part_class(part, name), (1.0, 1.0), (12.0, 12.0), "");
        put!(
            &mut out,
            "<li>{}{}</li>\n",
            sample.finish(&format!("mark of {name}"), ""),
            escape(name)
        );
    }
    out.push_str("</ul>\n");

    let loads = result.loads_pps.len() as f64;
    let (left, right, top) = (160.0, 660.0, 8.0);
    let (row, heading) = (21.0, 26.0);
    let bottom = top + bars.len() as f64 * row + loads * heading;
    let reach = |bar: &Bar| {
        let stacked: f64 = bar.parts.iter().map(|(_, value)| value.max(0.0)).sum();
        stacked.max(bar.whisker.map_or(0.0, |[_, _, max]| max))
    };
    let largest = bars.iter().map(reach).fold(0.0, f64::max);
    let x = Scale::linear(0.0, largest, left, right);
    let mut drawing = Drawing::new(820.0, bottom + 42.0);
    let ticks = x.ticks(7);
    let step = if ticks.len() > 1 { ticks[1] - ticks[0] } else { 1.0 };
    for &tick in &ticks {
        drawing.line("grid", (x.at(tick), top), (x.at(tick), bottom));
        let label = linear_tick(tick, step);
        drawing.text("tick", (x.at(tick), bottom + 16.0), Anchor::Middle, &label);
    }
    drawing.text("axis", ((left + right) / 2.0, bottom + 36.0), Anchor::Middle, words.axis);
    let mut y = top;
    let mut load = None;
    for bar in bars {
        if load.replace(bar.load) != Some(bar.load) {
            let name = load_name(result, bar.load);
            drawing.text("head", (8.0, y + 18.0), Anchor::Start, &format!("offered {name}"));
            y += heading;
        }
        let name = arm_name(result, bar.arm);
        let short_name = clipped(&name, BAR_NAME_CHARS);
        drawing.text("tick", (left - 8.0, y + 14.0), Anchor::End, &short_name);
        let mut value_so_far = 0.0;
        for &(part, value) in &bar.parts {
            let value = value.max(0.0);
            let (from, to) = (x.at(value_so_far), x.at(value_so_far + value));
            value_so_far += value;
            if value == 0.0 {
                continue;
            }
            let part_name = &words.names[part];
            let title =
                format!("{name} at {}: {part_name} {}", load_name(result, bar.load), show(value));
            // A loss that exists stays visible, however small its share.
            let size = ((to - from).max(0.8), row - 5.0);
            drawing.rect(&part_class(part, part_name), (from, y + 2.0), size, &title);
        }
        if let Some([median, min, max]) = bar.whisker {
            let middle = y + 2.0 + (row - 5.0) / 2.0;
            drawing.line("over", (x.at(min), middle), (x.at(max), middle));
            drawing.line("over", (x.at(median), y), (x.at(median), y + row - 1.0));
        }
        let class = if bar.total.1 { "tick bad" } else { "tick" };
        let at = (x.at(reach(bar)) + 8.0, y + 14.0);
        drawing.text(class, at, Anchor::Start, &bar.total.0);
        y += row;
    }
    drawing.line("frame", (left, top), (left, bottom));
    put!(
        &mut out,
        "<div class=\"plot\">{}</div>\n",
        drawing.finish(words.title, words.description)
    );
    out
}

fn part_class(part: usize, name: &str) -> String {
    match (name, part / PART_STYLES) {
        ("unexplained", _) => "part fault".to_owned(),
        (_, 0) => format!("part k{part}"),
        _ => format!("part again k{}", part % PART_STYLES),
    }
}

/// Every pair as a dot: the effects of one metric in time order, one panel per arm.
pub(super) fn block_panels(result: &RaceResult, metric: &str) -> String {
    let mut out = String::from("<div class=\"panels\">\n");
    for arm in 0..result.arms.len() {
        let findings: Vec<&Finding> = result
            .findings
            .iter()
            .filter(|finding| finding.metric == metric && finding.arm == arm)
            .collect();
        if !findings.is_empty() {
            out.push_str(&block_panel(result, metric, arm, &findings));
        }
    }
    out.push_str("</div>\n");
    out
}

fn block_panel(result: &RaceResult, metric: &str, arm: usize, findings: &[&Finding]) -> String {
    let (left, right, top, bottom) = (50.0, 272.0, 26.0, 136.0);
    let mut drawing = Drawing::new(280.0, 172.0);
    let name = arm_name(result, arm);
    let aa = if is_noise_floor(result, arm) { " (A/A pair)" } else { "" };
    drawing.text("head", (left, 16.0), Anchor::Start, &format!("{}{aa}", clipped(&name, 22)));

    let scale = findings[0].comparison.rule.scale;
    // A share is shown in %, as everywhere else.
    let factor =
        if scale == EffectScale::Difference && findings[0].unit == "share" { 100.0 } else { 1.0 };
    let threshold = findings.iter().map(|f| f.judgement.threshold).fold(0.0, f64::max);
    let (low, high) = effect_range(findings, scale, threshold);
    let y = Scale::linear(low * factor, high * factor, bottom, top);
    let ticks = y.ticks(4);
    let step = if ticks.len() > 1 { ticks[1] - ticks[0] } else { 1.0 };
    for &tick in &ticks {
        drawing.line("grid", (left, y.at(tick)), (right, y.at(tick)));
        drawing.text("tick", (left - 5.0, y.at(tick) + 4.0), Anchor::End, &linear_tick(tick, step));
    }
    let none = if scale == EffectScale::Ratio { 1.0 } else { 0.0 };
    if y.holds(none) {
        drawing.line("ideal", (left, y.at(none)), (right, y.at(none)));
    }

    let slot = (right - left) / findings.len() as f64;
    // Labels of loads that would touch are left out from the second on.
    let label_every = (44.0 / slot).ceil().max(1.0) as usize;
    for (index, finding) in findings.iter().enumerate() {
        let from = left + slot * index as f64;
        if index > 0 {
            drawing.line("grid", (from, top), (from, bottom));
        }
        if index % label_every == 0 {
            let pps = result.loads_pps.get(finding.load).copied().unwrap_or(0);
            let at = (from + slot / 2.0, bottom + 15.0);
            let name = match is_scheduled(result, finding.load) {
                true => format!("{}/s", short(pps as f64)),
                false if result.own_load() == Some(finding.load) => "own".to_owned(),
                false if result.closed_loop => match result.requests_of(finding.load) {
                    Some(requests) => short(requests as f64),
                    None => "closed".to_owned(),
                },
                false => "top".to_owned(),
            };
            drawing.text("tick", at, Anchor::Middle, &name);
        }
        pair_dots(&mut drawing, result, finding, &y, factor, (from + 3.0, slot - 6.0));
    }
    drawing.line("frame", (left, bottom), (right, bottom));
    drawing.line("frame", (left, top), (left, bottom));
    drawing.text(
        "axis",
        ((left + right) / 2.0, 168.0),
        Anchor::Middle,
        "load, rounds in time order",
    );
    drawing.finish(
        &format!("{metric}: effect of each block, {name} against the base"),
        "One dot per pair in time order within each load; the line is the effect and the band its \
         interval; the dotted line is no effect.",
    )
}

/// Dots, effect and interval of one load.
fn pair_dots(
    drawing: &mut Drawing,
    result: &RaceResult,
    finding: &Finding,
    y: &Scale,
    factor: f64,
    (from, width): (f64, f64),
) {
    let comparison = &finding.comparison;
    let scale = comparison.rule.scale;
    let class = finding.arm % SERIES_STYLES;
    if let Some(band) = comparison.interval {
        let (upper, lower) = (y.at(band.upper * factor), y.at(band.lower * factor));
        let title = format!(
            "{} at {}: {} {}, {}",
            arm_name(result, finding.arm),
            load_name(result, finding.load),
            estimated_effect(finding),
            interval(finding).unwrap_or_default(),
            finding.judgement.verdict
        );
        let size = (width, (lower - upper).max(1.0));
        drawing.rect(&format!("band a{class}"), (from, upper), size, &title);
    }
    if let Some(estimate) = comparison.estimate {
        let at = y.at(estimate * factor);
        drawing.line(&format!("median a{class}"), (from, at), (from + width, at));
    }
    let pairs = comparison.effects.iter().map(|effect| effect.pair + 1).max().unwrap_or(1);
    let place = |pair: usize| from + (pair as f64 + 0.5) * width / pairs as f64;
    let radius = (width / pairs as f64 / 3.0).clamp(1.2, 3.4);
    for dot in &comparison.effects {
        let title = format!(
            "{} at {}, generation {}, pair {}: {}",
            arm_name(result, finding.arm),
            load_name(result, finding.load),
            dot.generation + 1,
            dot.pair + 1,
            effect(dot.value, scale, &finding.unit)
        );
        let at = (place(dot.pair), y.at(dot.value * factor));
        drawing.marker(finding.arm, is_noise_floor(result, finding.arm), at, radius, &title);
    }
}

/// Ends of the axis of a panel: all dots and intervals, some room, and never so narrow that
/// scatter far below the threshold fills the panel.
fn effect_range(findings: &[&Finding], scale: EffectScale, threshold: f64) -> (f64, f64) {
    let values = findings.iter().flat_map(|finding| {
        let band = finding.comparison.interval;
        let ends = band.into_iter().flat_map(|band| [band.lower, band.upper]);
        finding.comparison.effects.iter().map(|effect| effect.value).chain(ends)
    });
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return if scale == EffectScale::Ratio { (0.5, 1.5) } else { (-1.0, 1.0) };
    }
    let middle = (low + high) / 2.0;
    let narrowest = match scale {
        EffectScale::Ratio => 2.0 * threshold * middle.abs(),
        EffectScale::Difference => 2.0 * threshold,
    };
    let span = (high - low).max(narrowest).max(1e-9);
    let (low, high) = (middle - span * 0.58, middle + span * 0.58);
    // A ratio is above zero, and an axis that is not says nothing.
    if scale == EffectScale::Ratio { (low.max(0.0), high) } else { (low, high) }
}

/// The first `chars` characters, with an ellipsis where something was cut.
fn clipped(name: &str, chars: usize) -> String {
    if name.chars().count() <= chars {
        return name.to_owned();
    }
    let mut kept: String = name.chars().take(chars - 1).collect();
    kept.push('\u{2026}');
    kept
}
