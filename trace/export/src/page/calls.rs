//! The call chart: in which calls the busiest threads were over the whole span, drawn without a script.
//!
//! A column is a bucket of time, a row a depth. From the top of a column downwards stands the call in which most of the bucket was
//! spent, then what it called that took most, down to where it did the work itself. Neighbours with the same call are one box.
//! A column without a box is time in no call.

use super::{function_name, thread_name};
use crate::figure::{duration_ns, moment};
use laneway_page::document::gap;
use laneway_page::drawing::{Anchor, Drawing};
use laneway_page::markup::{escape, put};
use laneway_trace::result::{Analysis, Course};
use std::collections::HashMap;

/// Deepest calls that are drawn; further in, nothing is.
const DEPTH_MAX: usize = 14;
/// Threads with a chart.
const CHARTS_MAX: usize = 8;
const WIDTH: f64 = 1_000.0;
const ROW: f64 = 17.0;
const AXIS: f64 = 18.0;
/// Boxes at least so wide have a name in them; a letter is about so wide.
const NAME_WIDTH_MIN: f64 = 48.0;
const LETTER: f64 = 6.2;

pub(super) fn section(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"calls\">Call chart</h2>\n");
    let drawn = analysis.courses.iter().take(CHARTS_MAX);
    let charts: Vec<String> = drawn.filter_map(|course| chart(analysis, course)).collect();
    if charts.is_empty() {
        gap(out, "The trace has no calls.");
        out.push_str("</section>\n");
        return;
    }
    out.push_str(
        "<p class=\"quiet\">Per thread, over the whole span: from the top down the call that took most of each moment, what it \
         called that took most, and so on to where the work was done. Colours are layers. Point at a box for its name and time.</p>\n",
    );
    charts.iter().for_each(|chart| out.push_str(chart));
    let more = analysis.courses.len().saturating_sub(CHARTS_MAX);
    if more > 0 {
        put!(out, "<p class=\"quiet\">{more} more threads are not drawn.</p>\n");
    }
    out.push_str("</section>\n");
}

/// The calls of one bucket, outermost first: those with most time.
fn path(analysis: &Analysis, cells: &[[u64; 2]]) -> Vec<u64> {
    // Time with all that is called from there, by context.
    let mut whole: HashMap<u64, u64> = HashMap::new();
    let mut below: HashMap<Option<u64>, Vec<u64>> = HashMap::new();
    for &[context, ns] in cells {
        let mut next = Some(context);
        while let Some(at) = next {
            let row = usize::try_from(at).ok().and_then(|at| analysis.contexts.get(at));
            let Some(row) = row else { break };
            let parent = row.parent.map(u64::from);
            let sum = whole.entry(at).or_insert_with(|| {
                below.entry(parent).or_default().push(at);
                0
            });
            *sum += ns;
            next = parent;
        }
    }
    let own: HashMap<u64, u64> = cells.iter().map(|&[context, ns]| (context, ns)).collect();
    let mut path: Vec<u64> = Vec::new();
    while path.len() < DEPTH_MAX {
        let above = path.last().copied();
        let called = below.get(&above).into_iter().flatten();
        let Some(&most) = called.max_by_key(|&&at| (whole[&at], std::cmp::Reverse(at))) else {
            break;
        };
        // It did more itself than in any one call.
        if above.is_some_and(|above| own.get(&above).is_some_and(|&own| own > whole[&most])) {
            break;
        }
        path.push(most);
    }
    path
}

/// A box: its calls from one column up to another.
struct Box {
    from: usize,
    to: usize,
    depth: usize,
    context: u64,
}

fn boxes(analysis: &Analysis, course: &Course) -> Vec<Box> {
    let mut done: Vec<Box> = Vec::new();
    let mut open: Vec<Box> = Vec::new();
    for (column, cells) in course.buckets.iter().enumerate() {
        let path = path(analysis, cells);
        let same = open.iter().zip(&path).take_while(|(open, at)| open.context == **at).count();
        done.extend(open.drain(same..));
        open.iter_mut().for_each(|open| open.to = column + 1);
        let new = path.iter().enumerate().skip(same);
        open.extend(new.map(|(depth, &context)| Box {
            from: column,
            to: column + 1,
            depth,
            context,
        }));
    }
    done.extend(open);
    done
}

fn chart(analysis: &Analysis, course: &Course) -> Option<String> {
    let boxes = boxes(analysis, course);
    let rows = boxes.iter().map(|drawn| drawn.depth + 1).max()?;
    let columns = course.buckets.len();
    let column = WIDTH / columns as f64;
    let height = rows as f64 * ROW + AXIS;
    let mut drawing = Drawing::new(WIDTH, height);
    let at_ns = |column: usize| course.start_ns + column as u64 * course.bucket_ns;
    for drawn in &boxes {
        let (from, to) = (drawn.from as f64 * column, drawn.to as f64 * column);
        let y = drawn.depth as f64 * ROW;
        let row = usize::try_from(drawn.context).ok().and_then(|at| analysis.contexts.get(at))?;
        let layer = analysis.functions[row.function as usize].layer.index();
        let name = function_name(analysis, row.function);
        let length_ns = (drawn.to - drawn.from) as u64 * course.bucket_ns;
        let start = moment(at_ns(drawn.from));
        drawing.rect(
            &format!("f{layer}"),
            (from, y),
            ((to - from - 0.3).max(0.3), ROW - 1.0),
            &format!("{name}, from {start} for {}", duration_ns(length_ns)),
        );
        if to - from >= NAME_WIDTH_MIN {
            let letters = ((to - from - 6.0) / LETTER) as usize;
            let words = super::shortened(&name, letters.max(3));
            drawing.text("in", (from + 3.0, y + ROW - 5.0), Anchor::Start, &words);
        }
    }
    for part in 0..=4 {
        let anchor = match part {
            0 => Anchor::Start,
            4 => Anchor::End,
            _ => Anchor::Middle,
        };
        let x = WIDTH * part as f64 / 4.0;
        drawing.text("axis", (x, height - 4.0), anchor, &moment(at_ns(columns * part / 4)));
    }
    let thread = thread_name(analysis, course.thread);
    Some(format!(
        "<figure class=\"calls\"><figcaption>{}, a column is {}</figcaption>{}</figure>\n",
        escape(&thread),
        duration_ns(course.bucket_ns),
        drawing.finish(&format!("Call chart of {thread}"), "")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_the_same_call_are_one_box() {
        // Buckets are in rx_burst (2 below 1 below 0) or in what it calls (3), in turns of 50, and a fifth of each in 1.
        let analysis = crate::example::analysis();
        let boxes = boxes(&analysis, &analysis.courses[0]);
        let found: Vec<_> = boxes.iter().map(|b| (b.depth, b.context, b.from, b.to)).collect();
        assert!(found.contains(&(0, 0, 0, 200)) && found.contains(&(1, 1, 0, 200)), "{found:?}");
        let deepest = |context| found.iter().filter(|found| found.1 == context).count();
        assert_eq!((deepest(2), deepest(3)), (1, 2), "{found:?}");
    }

    #[test]
    fn a_chart_is_drawn_of_any_numbers() {
        let mut analysis = crate::example::analysis();
        analysis.courses[0].buckets = vec![vec![[99, 5]], vec![], vec![[5, 0]]];
        assert!(chart(&analysis, &analysis.courses[0]).is_some_and(|svg| !svg.contains("NaN")));
        analysis.courses[0].buckets = vec![vec![], vec![]];
        assert!(chart(&analysis, &analysis.courses[0]).is_none());
        let mut page = String::new();
        section(&mut page, &analysis);
        assert!(page.contains("has no calls"));
    }
}
