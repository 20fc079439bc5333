//! A page of figures in Prometheus' text format, version 0.0.4.
//!
//! What must always hold: each family has its `HELP` and `TYPE` once, in front of all of its samples; a name is one
//! that Prometheus reads, and any text is a label's value.

use std::fmt::Write as _;

/// Samples of a page; what is beyond is left out and counted.
pub const SAMPLES_MAX: usize = 200_000;

/// How many did not fit.
const LEFT_OUT: Family =
    Family::gauge("laneway_samples_left_out", "Samples for which this page had no room.");

/// How a figure behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many were at most so large, by limit.
    Histogram,
}

impl Kind {
    /// Its name in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Figures of one name, distinguished by labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Begins with `laneway_`, says its unit, and ends in `_total` if it is a counter.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it says, in a sentence.
    pub help: &'static str,
}

impl Family {
    /// A figure that only grows; `name` ends in `_total`.
    pub const fn counter(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: Kind::Counter, help }
    }

    /// A figure that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: Kind::Gauge, help }
    }
}

/// Figures to be served, in the order in which their families were first added.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<(Family, String)>,
    samples: usize,
    left_out: u64,
}

impl Page {
    /// An empty page.
    pub fn new() -> Page {
        Page::default()
    }

    /// Adds a sample of a counter or a gauge.
    pub fn add(&mut self, family: &Family, labels: &[(&str, &str)], value: u64) {
        self.sample(family, "", labels, &value.to_string());
    }

    /// Adds a time, in seconds as Prometheus has them.
    pub fn add_ns(&mut self, family: &Family, labels: &[(&str, &str)], value_ns: u64) {
        let text = format!("{}.{:09}", value_ns / 1_000_000_000, value_ns % 1_000_000_000);
        self.sample(family, "", labels, &text);
    }

    /// Adds a histogram: how many are at most as large as each limit and larger than the one before, in ascending
    /// order; how many are beyond the last; and the sum of all.
    pub fn add_histogram(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        buckets: &[(f64, u64)],
        beyond: u64,
        sum: f64,
    ) {
        if self.samples + buckets.len() + 3 > SAMPLES_MAX {
            self.left_out += buckets.len() as u64 + 3;
            return;
        }
        let mut count = 0;
        for (limit, n) in buckets {
            count += n;
            let limit = limit.to_string();
            let labels = [labels, &[("le", limit.as_str())]].concat();
            self.sample(family, "_bucket", &labels, &count.to_string());
        }
        count += beyond;
        let labels_all = [labels, &[("le", "+Inf")]].concat();
        self.sample(family, "_bucket", &labels_all, &count.to_string());
        self.sample(family, "_sum", labels, &sum.to_string());
        self.sample(family, "_count", labels, &count.to_string());
    }

    fn sample(&mut self, family: &Family, suffix: &str, labels: &[(&str, &str)], value: &str) {
        debug_assert!(is_good(family), "{family:?}");
        if self.samples >= SAMPLES_MAX {
            self.left_out += 1;
            return;
        }
        self.samples += 1;
        // There are a few dozen families, and their samples come one behind the other.
        let at = match self.families.iter().rposition(|(known, _)| known.name == family.name) {
            Some(at) => at,
            None => {
                self.families.push((*family, String::new()));
                self.families.len() - 1
            }
        };
        let text = &mut self.families[at].1;
        text.push_str(family.name);
        text.push_str(suffix);
        for (i, (name, value)) in labels.iter().enumerate() {
            let _ = write!(text, "{}{name}=\"", if i == 0 { '{' } else { ',' });
            escape(text, value, true);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }

    /// The text.
    pub fn render(mut self) -> String {
        let left_out = self.left_out;
        self.samples = 0;
        self.add(&LEFT_OUT, &[], left_out);
        let mut text = String::new();
        for (Family { name, kind, help }, samples) in &self.families {
            let _ = write!(text, "# HELP {name} ");
            escape(&mut text, help, false);
            let _ = writeln!(text, "\n# TYPE {name} {}", kind.name());
            text.push_str(samples);
        }
        text
    }
}

/// Backslash and line end are escaped everywhere, quotes in labels.
fn escape(to: &mut String, text: &str, is_label: bool) {
    for c in text.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if is_label => to.push_str("\\\""),
            c => to.push(c),
        }
    }
}

fn is_good(family: &Family) -> bool {
    let is_total = family.name.ends_with("_total");
    family.name.starts_with("laneway_")
        && family.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && is_total == (family.kind == Kind::Counter)
        && !family.help.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Family = Family::counter("laneway_a_total", "With a \\ and\na line.");
    const B: Family = Family::gauge("laneway_b", "B.");
    const H: Family = Family { name: "laneway_h_seconds", kind: Kind::Histogram, help: "H." };

    #[test]
    fn a_family_stands_together_with_its_help_once() {
        let mut page = Page::new();
        page.add(&A, &[], 1);
        page.add_ns(&B, &[("x", "a\"b\\c\nd")], 1_500_000_000);
        page.add(&A, &[("y", "2")], u64::MAX);
        page.add_histogram(&H, &[("z", "0")], &[(0.001, 2), (0.01, 3)], 4, 0.5);
        assert_eq!(
            page.render(),
            "# HELP laneway_a_total With a \\\\ and\\na line.\n# TYPE laneway_a_total counter\n\
             laneway_a_total 1\nlaneway_a_total{y=\"2\"} 18446744073709551615\n\
             # HELP laneway_b B.\n# TYPE laneway_b gauge\n\
             laneway_b{x=\"a\\\"b\\\\c\\nd\"} 1.500000000\n\
             # HELP laneway_h_seconds H.\n# TYPE laneway_h_seconds histogram\n\
             laneway_h_seconds_bucket{z=\"0\",le=\"0.001\"} 2\n\
             laneway_h_seconds_bucket{z=\"0\",le=\"0.01\"} 5\n\
             laneway_h_seconds_bucket{z=\"0\",le=\"+Inf\"} 9\n\
             laneway_h_seconds_sum{z=\"0\"} 0.5\nlaneway_h_seconds_count{z=\"0\"} 9\n\
             # HELP laneway_samples_left_out Samples for which this page had no room.\n\
             # TYPE laneway_samples_left_out gauge\nlaneway_samples_left_out 0\n"
        );
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_reported() {
        let mut page = Page::new();
        for _ in 0..SAMPLES_MAX + 5 {
            page.add(&B, &[], 0);
        }
        page.add_histogram(&H, &[], &[(1.0, 1)], 0, 1.0);
        let text = page.render();
        assert!(text.ends_with("\nlaneway_samples_left_out 9\n"));
        assert_eq!(text.lines().count(), SAMPLES_MAX + 2 + 3);
    }

    proptest! {
        #[test]
        fn any_label_stays_on_its_line(value in any::<String>()) {
            let mut page = Page::new();
            page.add(&B, &[("x", &value)], 7);
            let text = page.render();
            let line = text.split('\n').find(|line| line.starts_with("laneway_b{")).unwrap();
            let inner = line.strip_prefix("laneway_b{x=\"").unwrap().strip_suffix("\"} 7").unwrap();
            let read = inner.replace("\\\\", "\0").replace("\\n", "\n").replace("\\\"", "\"");
            prop_assume!(!value.contains('\0'));
            prop_assert_eq!(read.replace('\0', "\\"), value);
        }
    }
}
