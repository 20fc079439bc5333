//! Small drawings that need no script: packets per poll, buffers in use.

use crate::figure::moment;
use laneway_page::markup::{escape, put};
use laneway_page::number::{count, percent};
use laneway_trace::result::{PollRow, PoolRow};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;
/// Bars; further sizes share one with their neighbours.
const BARS_MAX: u64 = 64;

fn begin(svg: &mut String, title: &str) {
    put!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" width=\"{WIDTH:.0}\" height=\"{HEIGHT:.0}\" role=\"img\" \
         aria-label=\"{}\">\n",
        escape(title)
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    put!(
        svg,
        "<text class=\"axis\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
        escape(words)
    );
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
    let mut svg = String::new();
    begin(&mut svg, title);
    let step = (WIDTH - LEFT - RIGHT) / bars.len() as f64;
    for part in [most, most / 2] {
        let y = HEIGHT - BOTTOM - part as f64 / most as f64 * (HEIGHT - BOTTOM - TOP);
        put!(
            &mut svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n",
            WIDTH - RIGHT
        );
        text(&mut svg, LEFT - 5.0, y + 4.0, "end", &count(part));
    }
    for (at, polls) in bars.iter().enumerate() {
        let high = *polls as f64 / most as f64 * (HEIGHT - BOTTOM - TOP);
        // A single poll among many is still a mark.
        let high = if *polls > 0 { high.max(1.0) } else { 0.0 };
        let (low, up) = (at as u64 * per_bar + 1, ((at as u64 + 1) * per_bar).min(largest));
        let sizes = if low == up { low.to_string() } else { format!("{low} to {up}") };
        put!(
            &mut svg,
            "<rect class=\"fill\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\"><title>{sizes} packets: {} polls</title></rect>\n",
            LEFT + at as f64 * step + step * 0.08,
            HEIGHT - BOTTOM - high,
            (step * 0.84).min(40.0),
            count(*polls)
        );
    }
    let label_every = bars.len().div_ceil(8);
    for at in (0..bars.len()).step_by(label_every) {
        let x = LEFT + at as f64 * step + (step * 0.5).min(21.7);
        text(&mut svg, x, HEIGHT - BOTTOM + 13.0, "middle", &(at as u64 * per_bar + 1).to_string());
    }
    let empty = percent(row.empty as f64 / (row.polls as f64).max(1.0));
    let words = format!("packets in a poll; {} polls ({empty}) found none", count(row.empty));
    text(&mut svg, (WIDTH + LEFT) / 2.0, HEIGHT - 4.0, "middle", &words);
    svg.push_str("</svg>");
    svg
}

/// Buffers in use over time.
pub(super) fn in_use(row: &PoolRow, title: &str) -> String {
    let low = row.in_use.iter().map(|point| point[1]).min().unwrap_or(0).min(0) as f64;
    let high = row.in_use.iter().map(|point| point[1]).max().unwrap_or(1).max(1) as f64;
    let first = row.in_use.first().map_or(0, |point| point[0]) as f64;
    let last = row.in_use.last().map_or(1, |point| point[0]) as f64;
    let x = |at: f64| LEFT + (at - first) / (last - first).max(1.0) * (WIDTH - LEFT - RIGHT);
    let y = |n: f64| HEIGHT - BOTTOM - (n - low) / (high - low) * (HEIGHT - BOTTOM - TOP);
    let mut svg = String::new();
    begin(&mut svg, title);
    for level in if low < 0.0 { vec![low, 0.0, high] } else { vec![0.0, high] } {
        put!(
            &mut svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\n",
            WIDTH - RIGHT,
            y(level)
        );
        text(&mut svg, LEFT - 5.0, y(level) + 4.0, "end", &format!("{level:.0}"));
    }
    svg.push_str("<polyline class=\"curve\" points=\"");
    for point in &row.in_use {
        put!(&mut svg, "{:.1},{:.1} ", x(point[0] as f64), y(point[1] as f64));
    }
    svg.push_str("\"/>\n");
    let moment_of = |at: f64| moment(at.max(0.0) as u64);
    text(&mut svg, LEFT, HEIGHT - BOTTOM + 14.0, "start", &moment_of(first));
    text(&mut svg, WIDTH - RIGHT, HEIGHT - BOTTOM + 14.0, "end", &moment_of(last));
    svg.push_str("</svg>");
    svg
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
