//! Drawing: scales with round ticks, and the few SVG shapes that plots need.
//!
//! Colours and dashes live in the style sheet of the page (classes `a0` to `a7` for series, `k0` to `k7` for parts of a
//! stack), so that light, dark and print need one drawing. Series differ by marker and dash too, never by colour alone.
//! Each mark carries a `<title>`: a browser shows it on hover without any script.

use crate::markup::{escape, put};
use crate::number::{duration, figure, short};

/// Series distinguished by colour, marker and dash; more series begin again.
pub const SERIES_STYLES: usize = 8;
/// Parts of a stack distinguished by colour; further parts are hatched too.
pub const PART_STYLES: usize = 8;

/// Maps values to positions between two pixels.
pub struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    from_px: f64,
    to_px: f64,
}

impl Scale {
    /// Equal steps. Ends that are not finite or not apart are replaced by some that are.
    pub fn linear(low: f64, high: f64, from_px: f64, to_px: f64) -> Self {
        let low = if low.is_finite() { low } else { 0.0 };
        let high = if high.is_finite() && high > low { high } else { low + 1.0 };
        Self { low, high, is_log: false, from_px, to_px }
    }

    /// Equal factors, a factor of ten at least, ends on 1, 2 or 5 times a power of ten.
    pub fn log(low: f64, high: f64, from_px: f64, to_px: f64) -> Self {
        let low = if low.is_finite() && low > 0.0 { low } else { 1.0 };
        let high = if high.is_finite() && high > low { high } else { low };
        let below = |value: f64| {
            let decade = 10f64.powf(value.log10().floor());
            [5.0, 2.0, 1.0].map(|m| m * decade).into_iter().find(|&end| end <= value * 1.000_001)
        };
        let low = below(low).unwrap_or(low);
        let above = |value: f64| {
            let decade = 10f64.powf(value.log10().floor());
            [1.0, 2.0, 5.0, 10.0].map(|m| m * decade).into_iter().find(|&end| end >= value)
        };
        let high = above(high).unwrap_or(high).max(low * 10.0);
        Self { low, high, is_log: true, from_px, to_px }
    }

    /// Position of `value`; what lies outside is put at the end, what is no number at the low end.
    pub fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value };
        let share = if self.is_log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from_px + share.clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    /// Whether `value` lies within the ends.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round values to label, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.is_log { self.log_ticks(wanted) } else { self.linear_ticks(wanted) }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / wanted.max(1) as f64;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * decade)
            .into_iter()
            .find(|&step| step >= rough * 0.999)
            .unwrap_or(rough);
        let first = (self.low / step - 1e-9).ceil();
        let last = (self.high / step + 1e-9).floor();
        // Whole multiples, not a running sum, so that zero is exactly zero.
        (0..=(last - first).clamp(0.0, 100.0) as u32)
            .map(|i| (first + f64::from(i)) * step)
            .collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = |multiples: &[f64]| -> Vec<f64> {
            (first..=last)
                .flat_map(|decade| multiples.iter().map(move |m| m * 10f64.powi(decade)))
                .filter(|&tick| tick >= self.low * 0.999 && tick <= self.high * 1.001)
                .collect()
        };
        let fine = all(&[1.0, 2.0, 5.0]);
        if fine.len() <= wanted + 2 { fine } else { all(&[1.0]) }
    }
}

/// Corners of a plus sign within a circle of radius 1.3.
const PLUS: [(f64, f64); 12] = [
    (-0.4, -1.2),
    (0.4, -1.2),
    (0.4, -0.4),
    (1.2, -0.4),
    (1.2, 0.4),
    (0.4, 0.4),
    (0.4, 1.2),
    (-0.4, 1.2),
    (-0.4, 0.4),
    (-1.2, 0.4),
    (-1.2, -0.4),
    (-0.4, -0.4),
];

/// One drawing under construction.
pub struct Drawing {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Text begins here.
    Start,
    /// Text is centred here.
    Middle,
    /// Text ends here.
    End,
}

impl Drawing {
    /// An empty drawing.
    pub fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        put!(
            &mut self.body,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\n",
            from.0,
            from.1,
            to.0,
            to.1
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.len() < 2 {
            return;
        }
        put!(&mut self.body, "<polyline class=\"{class}\" points=\"");
        for (x, y) in points {
            put!(&mut self.body, "{x:.1},{y:.1} ");
        }
        put!(&mut self.body, "\"/>\n");
    }

    /// A filled box, from its top left corner.
    pub fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), title: &str) {
        put!(
            &mut self.body,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0)
        );
        if !title.is_empty() {
            put!(&mut self.body, "<title>{}</title>", escape(title));
        }
        put!(&mut self.body, "</rect>\n");
    }

    /// Words.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        put!(
            &mut self.body,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Words from bottom to top, centred.
    pub fn upright_text(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = at;
        put!(
            &mut self.body,
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n",
            escape(text)
        );
    }

    /// The marker of a series, hollow for one that is another's control.
    pub fn marker(&mut self, series: usize, is_hollow: bool, at: (f64, f64), r: f64, title: &str) {
        let (x, y) = at;
        let hollow = if is_hollow { " hollow" } else { "" };
        put!(&mut self.body, "<g class=\"mark a{}{hollow}\">", series % SERIES_STYLES);
        if !title.is_empty() {
            put!(&mut self.body, "<title>{}</title>", escape(title));
        }
        let polygon = |corners: &[(f64, f64)]| {
            let points: Vec<String> = corners
                .iter()
                .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * r, y + dy * r))
                .collect();
            format!("<polygon points=\"{}\"/>", points.join(" "))
        };
        let shape = match series % SERIES_STYLES {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"/>"),
            1 => polygon(&PLUS),
            2 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            3 => polygon(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            4 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            5 => polygon(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            6 => polygon(&[(-1.2, -0.6), (1.2, -0.6), (1.2, 0.6), (-1.2, 0.6)]),
            _ => polygon(&[(-0.6, -1.2), (0.6, -1.2), (0.6, 1.2), (-0.6, 1.2)]),
        };
        put!(&mut self.body, "{shape}</g>\n");
    }

    /// The finished element, with a description for readers who cannot see it.
    pub fn finish(self, title: &str, description: &str) -> String {
        let Self { body, width, height } = self;
        let mut svg = String::with_capacity(body.len() + 400);
        put!(
            &mut svg,
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n\
             <desc>{}</desc>\n{body}</svg>\n",
            escape(title),
            escape(title),
            escape(description)
        );
        svg
    }
}

/// Tick label of a latency: `10 µs`, without needless digits.
pub fn latency_tick(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{} ns", short(ns)),
        ns if ns < 1e6 => format!("{} \u{b5}s", short(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", short(ns / 1e6)),
        _ => duration(ns),
    }
}

/// Tick label of a value on a linear axis whose ticks are `step` apart: just enough decimals.
pub fn linear_tick(value: f64, step: f64) -> String {
    if value.abs() >= 1e3 || step >= 1e3 {
        return short(value);
    }
    if step < 1e-6 {
        return figure(value);
    }
    let decimals = usize::try_from(-(step * 1.000_001).log10().floor() as i64).unwrap_or(0);
    format!("{value:.decimals$}").replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let ticks = Scale::linear(0.0, 420_000.0, 0.0, 100.0).ticks(5);
        assert_eq!(ticks, [0.0, 100_000.0, 200_000.0, 300_000.0, 400_000.0]);
        let ticks = Scale::log(300.0, 40_000.0, 0.0, 100.0).ticks(8);
        assert_eq!(ticks.len(), 8, "{ticks:?}");
    }

    #[test]
    fn odd_ends_still_give_positions_on_the_drawing() {
        for (low, high) in [(0.0, 0.0), (f64::NAN, 1.0), (5.0, 5.0), (1.0, f64::INFINITY)] {
            for scale in [Scale::linear(low, high, 10.0, 90.0), Scale::log(low, high, 90.0, 10.0)] {
                for value in [-1.0, 0.0, 5.0, 1e300, f64::NAN, f64::INFINITY] {
                    assert!((10.0..=90.0).contains(&scale.at(value)), "{low} {high} {value}");
                }
                assert!(scale.ticks(5).iter().all(|tick| tick.is_finite()));
            }
        }
    }

    #[test]
    fn tick_labels_have_the_decimals_their_step_needs() {
        assert_eq!(linear_tick(0.5, 0.25), "0.5");
        assert_eq!(linear_tick(0.18, 0.02), "0.18");
        assert_eq!(linear_tick(300.0, 100.0), "300");
        assert_eq!(linear_tick(0.0, 1e5), "0");
    }
}
