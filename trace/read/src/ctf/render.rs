//! Fields of an event as text, in the words of babeltrace2: what a person compares, and what tests compare exactly.

use std::fmt::Write as _;

use super::layout::{Shape, Value, Visit, Whole};
use super::types::Range;

/// Draws values as they are read.
#[derive(Debug, Default)]
pub(super) struct Render {
    text: String,
    /// For each bracket: elements so far, and whether they are numbered.
    open: Vec<(u64, bool)>,
    packet: bool,
}

impl Render {
    /// What was drawn.
    pub(super) fn drawn(&self) -> &str {
        &self.text
    }

    pub(super) fn length(&self) -> usize {
        self.text.len()
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.open.clear();
    }

    /// Begins with what was drawn before.
    pub(super) fn begin(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Forgets what was drawn beyond `length`.
    pub(super) fn cut(&mut self, length: usize) {
        self.text.truncate(length);
        self.open.clear();
    }

    /// Begins the next part of the event.
    pub(super) fn scope(&mut self, packet: bool) {
        self.packet = packet;
        self.open.clear();
        if !self.text.is_empty() {
            self.text.push_str(", ");
        }
    }

    fn name(&mut self, name: Option<&str>) {
        if let Some((count, numbered)) = self.open.last_mut() {
            self.text.push_str(if *count == 0 { " " } else { ", " });
            if *numbered {
                let _ = write!(self.text, "[{count}] = ");
            }
            *count += 1;
        }
        if let Some(name) = name {
            let _ = write!(self.text, "{name} = ");
        }
    }
}

fn number(value: Value, whole: &Whole) -> String {
    let raw = value.raw & super::layout::mask(whole.bits);
    match whole.base {
        16 => format!("0x{raw:X}"),
        8 => format!("0{raw:o}"),
        2 => format!("0b{raw:b}"),
        _ if value.signed => (value.raw as i64).to_string(),
        _ => raw.to_string(),
    }
}

impl Visit for Render {
    fn whole(&mut self, name: Option<&str>, value: Value, whole: &Whole, labels: &[Range]) {
        // What a packet says of itself is not about its events.
        if self.packet && whole.duty.is_some() {
            return;
        }
        self.name(name);
        let shown = number(value, whole);
        if labels.is_empty() {
            self.text.push_str(&shown);
            return;
        }
        let wide = if value.signed { i128::from(value.raw as i64) } else { i128::from(value.raw) };
        let label = labels.iter().find(|range| (range.first..=range.last).contains(&wide));
        let label =
            label.map_or_else(|| "<unknown>".into(), |range| format!("\"{}\"", range.label));
        let _ = write!(self.text, "( {label} : container = {shown} )");
    }

    fn float(&mut self, name: Option<&str>, value: f64) {
        self.name(name);
        let _ = write!(self.text, "{value}");
    }

    fn text(&mut self, name: Option<&str>, text: &[u8]) {
        self.name(name);
        let _ = write!(self.text, "\"{}\"", String::from_utf8_lossy(text));
    }

    fn open(&mut self, name: Option<&str>, shape: Shape) {
        self.name(name);
        self.text.push_str(match shape {
            Shape::Struct | Shape::Variant => "{",
            Shape::Array => "[",
        });
        self.open.push((0, shape == Shape::Array));
    }

    fn close(&mut self, shape: Shape) {
        self.open.pop();
        self.text.push_str(match shape {
            Shape::Struct | Shape::Variant => " }",
            Shape::Array => " ]",
        });
    }
}
