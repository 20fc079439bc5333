//! Small drawings that need no script: packets per poll, buffers in use.

use crate::figure::moment;
use laneway_page::drawing::{Anchor, Drawing, Scale};
use laneway_page::number::{count, percent};
use laneway_trace::result::{PollRow, PoolRow};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 170.0;
/// Edges of the plot.
const LEFT: f64 = 52.0;
const RIGHT: f64 = WIDTH - 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = HEIGHT - 34.0;
/// Bars; further sizes share one with their neighbours.
const BARS_MAX: u64 = 64;

/// A line across the plot with its value.
fn level(drawing: &mut Drawing, y: f64, words: &str) {
    drawing.line("grid", (LEFT, y), (RIGHT, y));
    drawing.text("axis", (LEFT - 5.0, y + 4.0), Anchor::End, words);
}

/// Polls by packets found; without the empty ones, whose number would hide all others and stands beside.
pub(super) fn poll_sizes(row: &PollRow, title: &str) -> String {
    let productive: Vec<[u64; 2]> =
        row.sizes.iter().copied().filter(|[packets, _]| *packets > 0).collect();
    let largest = productive.last().map_or(1, |[packets, _]| *packets);
    let per_bar = largest.div_ceil(BARS_MAX).max(1);
    let bars_count = largest.div_ceil(per_bar);
    let mut bars: Vec<u64> = vec![0; usize::try_from(bars_count).unwrap_or(1)];
    for [packets, polls] in &productive {
        let at = usize::try_from((packets - 1) / per_bar).unwrap_or(0);
        bars[at] += polls;
    }
    let most = bars.iter().copied().max().unwrap_or(1).max(1);
    let y = Scale::linear(0.0, most as f64, BOTTOM, TOP);
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    for part in [most, most / 2] {
        level(&mut drawing, y.at(part as f64), &count(part));
    }
    let step = (RIGHT - LEFT) / bars.len() as f64;
    for (at, polls) in bars.iter().enumerate() {
        // A single poll among many is still a mark.
        let top = if *polls > 0 { y.at(*polls as f64).min(BOTTOM - 1.0) } else { BOTTOM };
        let (low, up) = (at as u64 * per_bar + 1, ((at as u64 + 1) * per_bar).min(largest));
        let sizes = if low == up { low.to_string() } else { format!("{low} to {up}") };
        drawing.rect(
            "fill",
            (LEFT + at as f64 * step + step * 0.08, top),
            ((step * 0.84).min(40.0), BOTTOM - top),
            &format!("{sizes} packets: {} polls", count(*polls)),
        );
    }
    let label_every = bars.len().div_ceil(8);
    for at in (0..bars.len()).step_by(label_every) {
        let x = LEFT + at as f64 * step + (step * 0.5).min(21.7);
        let size = (at as u64 * per_bar + 1).to_string();
        drawing.text("axis", (x, BOTTOM + 13.0), Anchor::Middle, &size);
    }
    let empty = percent(row.empty as f64 / (row.polls as f64).max(1.0));
    let words = format!("packets in a poll; {} polls ({empty}) found none", count(row.empty));
    drawing.text("axis", (f64::midpoint(WIDTH, LEFT), HEIGHT - 4.0), Anchor::Middle, &words);
    drawing.finish(title, "")
}

/// Buffers in use over time.
pub(super) fn in_use(row: &PoolRow, title: &str) -> String {
    let low = row.in_use.iter().map(|point| point[1]).min().unwrap_or(0).min(0) as f64;
    let high = row.in_use.iter().map(|point| point[1]).max().unwrap_or(1).max(1) as f64;
    let first = row.in_use.first().map_or(0, |point| point[0]) as f64;
    let last = row.in_use.last().map_or(1, |point| point[0]) as f64;
    let x = Scale::linear(first, last, LEFT, RIGHT);
    let y = Scale::linear(low, high, BOTTOM, TOP);
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    for n in if low < 0.0 { vec![low, 0.0, high] } else { vec![0.0, high] } {
        level(&mut drawing, y.at(n), &format!("{n:.0}"));
    }
    let points: Vec<(f64, f64)> =
        row.in_use.iter().map(|point| (x.at(point[0] as f64), y.at(point[1] as f64))).collect();
    drawing.path("curve", &points);
    let moment_of = |at: f64| moment(at.max(0.0) as u64);
    drawing.text("axis", (LEFT, BOTTOM + 14.0), Anchor::Start, &moment_of(first));
    drawing.text("axis", (RIGHT, BOTTOM + 14.0), Anchor::End, &moment_of(last));
    drawing.finish(title, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn odd_figures_draw_no_odd_numbers() {
        let analysis = example::analysis();
        let mut poll = analysis.polls[0].clone();
        for sizes in [vec![[0, 9]], vec![[1_024, u64::MAX / 2]], vec![[1, 1]]] {
            poll.sizes = sizes;
            assert!(!poll_sizes(&poll, "t").contains("NaN"), "{:?}", poll.sizes);
        }
        let mut pool = analysis.pools[0].clone();
        pool.in_use = vec![[5, -3], [5, -3]];
        let svg = in_use(&pool, "t");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
