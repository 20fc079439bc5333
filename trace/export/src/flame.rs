//! Calling contexts as a tree of widths, as collapsed stacks, and as flame graphs.
//!
//! A frame is as wide as the self time of itself and all it calls, added up here, not taken from totals: so a caller is
//! never narrower than its callees together, whatever a correction did to one of them.

use crate::markup::shown;
use laneway_page::markup::{escape, put};
use laneway_page::number::{duration, figure, percent};
use laneway_trace::result::{Analysis, ContextRow, Layer};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Which time makes a frame wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// As recorded, the tracer's cost included.
    Raw,
    /// Less the tracer's cost.
    Corrected,
    /// Less the tracer's cost, and without polls that found nothing.
    Productive,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 3] = [Measure::Raw, Measure::Corrected, Measure::Productive];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Raw => "raw",
            Measure::Corrected => "corrected for the tracer",
            Measure::Productive => "corrected, without empty polls",
        }
    }

    /// Self time of a context, ns.
    #[must_use]
    pub fn self_ns(self, row: &ContextRow) -> f64 {
        let productive = 1.0 - row.idle_ns as f64 / (row.self_ns as f64).max(1.0);
        match self {
            Measure::Raw => row.self_ns as f64,
            Measure::Corrected => row.self_corrected_ns,
            Measure::Productive => row.self_corrected_ns * productive.clamp(0.0, 1.0),
        }
    }
}

/// Width of every context, ns: its own self time and that of all below it.
#[must_use]
pub(crate) fn widths(contexts: &[ContextRow], measure: Measure) -> Vec<f64> {
    let mut widths: Vec<f64> = contexts.iter().map(|row| measure.self_ns(row)).collect();
    // Parents stand before their children, so from the end on every width is complete when it is added.
    for at in (0..contexts.len()).rev() {
        if let Some(parent) = contexts[at].parent.and_then(|parent| usize::try_from(parent).ok())
            && parent < at
        {
            widths[parent] += widths[at];
        }
    }
    widths
}

fn function_name(analysis: &Analysis, row: &ContextRow) -> String {
    let at = usize::try_from(row.function).unwrap_or(usize::MAX);
    analysis.functions.get(at).map_or_else(|| "?".to_owned(), |function| shown(&function.name))
}

fn layer_of(analysis: &Analysis, row: &ContextRow) -> Layer {
    let at = usize::try_from(row.function).unwrap_or(usize::MAX);
    analysis.functions.get(at).map_or(Layer::Other, |function| function.layer)
}

/// Writes one line per context, `outermost;...;innermost ns`: what flame graph programs read. Lines are in the order
/// of the contexts; those without self time have none.
///
/// # Errors
/// What `to` says.
pub fn write_collapsed(
    analysis: &Analysis,
    measure: Measure,
    to: &mut impl Write,
) -> io::Result<()> {
    for (at, row) in analysis.contexts.iter().enumerate() {
        let self_ns = measure.self_ns(row).round();
        if self_ns < 1.0 {
            continue;
        }
        let path: Vec<String> = path(&analysis.contexts, at)
            .into_iter()
            .map(|at| function_name(analysis, &analysis.contexts[at]).replace([';', ' '], "_"))
            .collect();
        writeln!(to, "{} {self_ns:.0}", path.join(";"))?;
    }
    Ok(())
}

/// The contexts from a root to `at`.
fn path(contexts: &[ContextRow], at: usize) -> Vec<usize> {
    let mut path = vec![at];
    let mut here = at;
    while let Some(parent) = contexts[here].parent.and_then(|parent| usize::try_from(parent).ok())
        && parent < here
    {
        path.push(parent);
        here = parent;
    }
    path.reverse();
    path
}

const WIDTH: f64 = 1200.0;
const ROW: f64 = 19.0;
const HEAD: f64 = 74.0;
/// Frames narrower than this are left out, and counted.
const NARROWEST: f64 = 0.4;
/// About the width of a letter, from which it follows how many fit.
const LETTER: f64 = 6.3;

/// A frame of a drawing.
struct Box {
    x: f64,
    width: f64,
    depth: usize,
    class: String,
    name: String,
    title: String,
}

const STYLE: &str = "\
svg{background:#fdfdfc;font:12px system-ui,'DejaVu Sans',sans-serif}text{fill:#1c1d20}\
.f rect{stroke:#fdfdfc;stroke-width:.6}.head{font-size:15px;font-weight:600}.f text{pointer-events:none;fill:#14151a}\
.l0{fill:#e69f00}.l1{fill:#56b4e9}.l2{fill:#4fbf9a}.l3{fill:#dba0c2}.l4{fill:#ef8a52}.l5{fill:#a9abb2}\
.l6{fill:#d9dade}.l7{fill:#9d8fe0}.l8{fill:#f0e442}\
.g3{fill:#ef7f45}.g2{fill:#f5a77d}.g1{fill:#f9d3bf}.s{fill:#e4e4e0}.d1{fill:#c7dff1}.d2{fill:#8fc1e6}.d3{fill:#5b9fd6}\
@media(prefers-color-scheme:dark){svg{background:#17181b}text{fill:#e9e9e6}.f rect{stroke:#17181b}}";

/// A flame graph: the outermost calls below, what they call above, width by `measure`, colour by layer.
///
/// Without script; a frame tells its figures on hover, and names its layer there too.
#[must_use]
pub fn flame_graph(analysis: &Analysis, measure: Measure) -> String {
    let contexts = &analysis.contexts;
    let widths = widths(contexts, measure);
    let (places, narrow) = layout(contexts, &widths);
    let total: f64 = total(contexts, &widths);
    let boxes = places.iter().map(|place| {
        let row = &contexts[place.at];
        let layer = layer_of(analysis, row);
        let name = function_name(analysis, row);
        let title = format!(
            "{name}\n{}, {} of all; self {}; {} calls; {}",
            duration(widths[place.at]),
            percent(widths[place.at] / total),
            duration(measure.self_ns(row)),
            row.calls,
            layer.name()
        );
        let class = format!("l{}", layer.index());
        Box { x: place.x, width: place.width, depth: place.depth, class, name, title }
    });
    let head = format!("Self time, {}: {} in all", measure.name(), duration(total));
    let legend: Vec<(String, &str)> = Layer::ALL
        .iter()
        .filter(|layer| contexts.iter().any(|row| layer_of(analysis, row) == **layer))
        .map(|layer| (format!("l{}", layer.index()), layer.name()))
        .collect();
    drawing(&head, &narrow_note(narrow), &legend, boxes.collect())
}

fn narrow_note(narrow: usize) -> String {
    match narrow {
        0 => "every frame is drawn".to_owned(),
        narrow => format!("{narrow} frames are too narrow to draw"),
    }
}

struct Rectangle {
    at: usize,
    x: f64,
    width: f64,
    depth: usize,
}

fn total(contexts: &[ContextRow], widths: &[f64]) -> f64 {
    let roots = contexts.iter().zip(widths).filter(|(row, _)| row.parent.is_none());
    roots.map(|(_, width)| width).sum::<f64>().max(1.0)
}

/// Where each frame that is wide enough stands, and how many are not.
fn layout(contexts: &[ContextRow], widths: &[f64]) -> (Vec<Rectangle>, usize) {
    let scale = WIDTH / total(contexts, widths);
    // Where the next child of each context begins.
    let mut next: Vec<f64> = vec![0.0; contexts.len()];
    let mut depth: Vec<usize> = vec![0; contexts.len()];
    let mut next_root = 0.0;
    let mut places = Vec::new();
    let mut narrow = 0;
    for (at, row) in contexts.iter().enumerate() {
        let width = widths[at] * scale;
        let parent = row.parent.and_then(|parent| usize::try_from(parent).ok());
        let x = match parent.filter(|&parent| parent < at) {
            Some(parent) => {
                depth[at] = depth[parent] + 1;
                let x = next[parent];
                next[parent] += width;
                x
            }
            None => {
                let x = next_root;
                next_root += width;
                x
            }
        };
        next[at] = x;
        if width >= NARROWEST {
            places.push(Rectangle { at, x, width, depth: depth[at] });
        } else {
            narrow += 1;
        }
    }
    (places, narrow)
}

fn drawing(head: &str, note: &str, legend: &[(String, &str)], boxes: Vec<Box>) -> String {
    let rows = boxes.iter().map(|b| b.depth + 1).max().unwrap_or(1);
    let height = HEAD + rows as f64 * ROW + 6.0;
    let mut svg = String::with_capacity(boxes.len() * 200 + 2_000);
    put!(
        &mut svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{0}\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <text class=\"head\" x=\"8\" y=\"22\">{0}</text><text x=\"8\" y=\"42\">{1}</text>\n",
        escape(head),
        escape(note)
    );
    let mut x = 8.0;
    for (class, name) in legend {
        put!(
            &mut svg,
            "<rect class=\"{class}\" x=\"{x:.0}\" y=\"51\" width=\"12\" height=\"12\"/><text x=\"{:.0}\" y=\"61\">{}</text>\n",
            x + 16.0,
            escape(name)
        );
        x += 34.0 + name.chars().count() as f64 * 6.6;
    }
    for Box { x, width, depth, class, name, title } in &boxes {
        let y = height - 6.0 - (*depth as f64 + 1.0) * ROW;
        put!(
            &mut svg,
            "<g class=\"f\"><title>{}</title><rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" \
             height=\"{:.1}\" rx=\"1.5\"/>",
            escape(title),
            ROW - 1.0
        );
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        if letters >= 3 {
            put!(
                &mut svg,
                "<text x=\"{:.2}\" y=\"{:.1}\">{}</text>",
                x + 3.0,
                y + 13.0,
                escape(&clipped(name, letters))
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// At most so many letters of a name.
fn clipped(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    let mut clipped: String = name.chars().take(letters.saturating_sub(1)).collect();
    clipped.push('\u{2026}');
    clipped
}

/// A context found in one or both traces: self time per unit in each.
#[derive(Default)]
struct Pair {
    base: f64,
    other: f64,
}

/// A differential flame graph: widths of `other`, colour and sign by how its self time differs from that of `base`.
///
/// Times are set against packets where both traces know them, else against all traced time, so that a longer trace is
/// no slower one. What only `base` has is not drawn, and counted in the head.
#[must_use]
pub fn difference_graph(base: &Analysis, other: &Analysis, measure: Measure) -> String {
    let per_packet = |analysis: &Analysis| {
        analysis.packets.received.filter(|&packets| packets > 0).map(|packets| packets as f64)
    };
    let (units, unit) = match (per_packet(base), per_packet(other)) {
        (Some(base), Some(other)) => ([base, other], "ns per packet"),
        _ => {
            let all = |a: &Analysis| total(&a.contexts, &widths(&a.contexts, measure)) / 100.0;
            ([all(base), all(other)], "% of traced time")
        }
    };
    let mut pairs: BTreeMap<Vec<String>, Pair> = BTreeMap::new();
    for (at, row) in base.contexts.iter().enumerate() {
        pairs.entry(names_to(base, at)).or_default().base += measure.self_ns(row) / units[0];
    }
    for (at, row) in other.contexts.iter().enumerate() {
        pairs.entry(names_to(other, at)).or_default().other += measure.self_ns(row) / units[1];
    }
    let gone: f64 = pairs.values().filter(|pair| pair.other == 0.0).map(|pair| pair.base).sum();
    let contexts = &other.contexts;
    let widths = widths(contexts, measure);
    let (places, narrow) = layout(contexts, &widths);
    let boxes = places.iter().map(|place| {
        let pair = pairs.get(&names_to(other, place.at));
        let (was, is) = pair.map_or((0.0, 0.0), |pair| (pair.base, pair.other));
        let (class, sign) = shade(was, is);
        let name = function_name(other, &contexts[place.at]);
        let title = format!(
            "{name}\nself {} {unit}, was {}{}",
            figure(is),
            figure(was),
            if was > 0.0 { format!(" ({}x)", figure(is / was)) } else { String::new() }
        );
        let name = format!("{sign}{name}");
        Box {
            x: place.x,
            width: place.width,
            depth: place.depth,
            class: class.to_owned(),
            name,
            title,
        }
    });
    let head =
        format!("Self time of the second trace against the first, {unit}, {}", measure.name());
    let note = format!(
        "{}; {} {unit} of the first trace have no counterpart",
        narrow_note(narrow),
        figure(gone)
    );
    let legend = [
        ("g3", "\u{25b2} twice and more, or new"),
        ("g1", "\u{25b2} more"),
        ("s", "within 5 %"),
        ("d1", "\u{25bc} less"),
        ("d3", "\u{25bc} half and below"),
    ]
    .map(|(class, name)| (class.to_owned(), name));
    drawing(&head, &note, &legend, boxes.collect())
}

fn names_to(analysis: &Analysis, at: usize) -> Vec<String> {
    let path = path(&analysis.contexts, at);
    path.into_iter().map(|at| function_name(analysis, &analysis.contexts[at])).collect()
}

/// Class of the colour, and the sign that says the same without colour.
fn shade(was: f64, is: f64) -> (&'static str, &'static str) {
    match is / was.max(f64::MIN_POSITIVE) {
        _ if was == 0.0 && is == 0.0 => ("s", ""),
        ratio if ratio >= 2.0 => ("g3", "\u{25b2} "),
        ratio if ratio >= 1.25 => ("g2", "\u{25b2} "),
        ratio if ratio > 1.05 => ("g1", "\u{25b2} "),
        ratio if ratio <= 0.5 => ("d3", "\u{25bc} "),
        ratio if ratio <= 0.8 => ("d2", "\u{25bc} "),
        ratio if ratio < 0.95 => ("d1", "\u{25bc} "),
        _ => ("s", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use proptest::prelude::*;

    #[test]
    fn collapsed_stacks_add_up_to_all_self_time() {
        let analysis = example::analysis();
        let mut bytes = Vec::new();
        write_collapsed(&analysis, Measure::Raw, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let sum: u64 =
            text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, analysis.contexts.iter().map(|row| row.self_ns).sum::<u64>());
        assert!(text.lines().any(|line| line.starts_with("main;io_forward;rx_burst ")), "{text}");
    }

    #[test]
    fn a_flame_graph_escapes_names_and_stays_in_its_frame() {
        let svg = flame_graph(&example::analysis(), Measure::Corrected);
        assert!(!svg.contains("<b>"), "a name reached the drawing unescaped");
        for part in svg.split("<rect").skip(1) {
            let value = |name: &str| -> f64 {
                let (_, rest) = part.split_once(&format!(" {name}=\"")).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            };
            assert!(value("x") >= 0.0 && value("x") + value("width") <= WIDTH + 0.1);
        }
    }

    #[test]
    fn a_trace_does_not_differ_from_itself() {
        let analysis = example::analysis();
        let svg = difference_graph(&analysis, &analysis, Measure::Raw);
        let frames = svg.split("<g class=\"f\">").skip(1);
        assert!(frames.clone().count() > 3);
        assert!(frames.clone().all(|frame| frame.contains("class=\"s\"")), "{svg}");
    }

    #[test]
    fn a_slower_function_is_marked_by_sign_and_colour() {
        let base = example::analysis();
        let mut other = example::analysis();
        let slower = other.contexts.iter().position(|row| row.self_ns > 0).unwrap();
        other.contexts[slower].self_ns *= 3;
        let svg = difference_graph(&base, &other, Measure::Raw);
        assert!(svg.contains("class=\"g3\"") && svg.contains(">\u{25b2} "), "{svg}");
    }

    proptest! {
        #[test]
        fn no_caller_is_narrower_than_what_it_calls(
            rows in prop::collection::vec((any::<prop::sample::Index>(), 0u64..1_000, 0.0f64..1_000.0), 1..60),
        ) {
            let contexts: Vec<ContextRow> = rows
                .iter()
                .enumerate()
                .map(|(at, (parent, self_ns, corrected))| {
                    let parent = (at > 0).then(|| parent.index(at) as u32);
                    example::context(parent, 0, 1, *self_ns, *corrected)
                })
                .collect();
            for measure in Measure::ALL {
                let widths = widths(&contexts, measure);
                let mut inside = vec![0.0; contexts.len()];
                for (row, width) in contexts.iter().zip(&widths) {
                    if let Some(parent) = row.parent {
                        inside[parent as usize] += width;
                    }
                }
                for (width, inside) in widths.iter().zip(&inside) {
                    prop_assert!(*width >= inside - 1e-6);
                }
            }
        }
    }
}
