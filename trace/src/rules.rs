//! What names mean: layers, polls, packets, signal handlers, and which two events are one call. Data; the code only matches.
//!
//! The names that are known are a table ([`rules.toml`](rules.toml)), and a file of the user's is read as the same table: its rows
//! come first, and the first that matches wins. So a framework of one's own is analysed like DPDK.

use std::sync::{Arc, LazyLock};

use laneway_trace_read::CallPair;
use serde::Deserialize;
use toml::Spanned;

use crate::result::Layer;

/// The names that are known.
const COMMON: &str = include_str!("rules.toml");
/// Longest file of rules.
const FILE_BYTES_MAX: usize = 1 << 20;

static KNOWN: LazyLock<Arc<Rules>> = LazyLock::new(|| {
    let rules = Table::read(COMMON).and_then(|table| table.rules(COMMON));
    Arc::new(rules.expect("the table of this crate is tested"))
});

/// What names mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    calls: Vec<CallPair>,
    layers: Vec<(String, Layer)>,
    polls: Vec<PollRule>,
    received: Vec<[String; 2]>,
    sent: Vec<[String; 2]>,
    receiving: Vec<String>,
    sending: Vec<String>,
    refills: Vec<String>,
    handlers: Vec<String>,
    memory: Vec<String>,
}

impl Default for Rules {
    /// As [`Rules::known`].
    fn default() -> Self {
        (**Self::known()).clone()
    }
}

/// The tables as they are written; each may be left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Table {
    calls: Vec<CallRule>,
    idle: Vec<String>,
    layers: Vec<(String, Layer)>,
    polls: Vec<Spanned<PollRule>>,
    received: Vec<[String; 2]>,
    sent: Vec<[String; 2]>,
    receiving: Vec<String>,
    sending: Vec<String>,
    refills: Vec<String>,
    handlers: Vec<String>,
    memory: Vec<String>,
}

/// Two events that are one call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallRule {
    begin: Spanned<String>,
    end: Spanned<String>,
    name: Option<Spanned<String>>,
}

/// A call that looks for packets. Of one path only the outermost that matches counts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PollRule {
    function: String,
    /// It found something if it called one of these.
    #[serde(default)]
    found: Vec<String>,
    /// It found nothing if it called one of these.
    #[serde(default)]
    found_nothing: Vec<String>,
}

impl Table {
    fn read(text: &str) -> Result<Table, String> {
        if text.len() > FILE_BYTES_MAX {
            let bytes = text.len();
            return Err(format!(
                "{bytes} bytes are more than the {FILE_BYTES_MAX} of a file of rules"
            ));
        }
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or_else(String::new, |span| place(text, span.start));
            format!("{at}{}", error.message())
        })
    }

    fn rules(self, text: &str) -> Result<Rules, String> {
        let mut polls = Vec::with_capacity(self.polls.len());
        for rule in self.polls {
            let at = rule.span().start;
            let rule = rule.into_inner();
            if rule.found.is_empty() && rule.found_nothing.is_empty() {
                return Err(format!(
                    "{}`{}` needs `found` or `found_nothing`: names of functions that it calls where there was a packet, or none",
                    place(text, at),
                    rule.function
                ));
            }
            polls.push(rule);
        }
        let mut calls = Vec::with_capacity(self.calls.len());
        for rule in &self.calls {
            let begin = rule.begin.get_ref();
            let name = rule.name.as_ref().map_or(begin, Spanned::get_ref);
            let parts = [Some(&rule.begin), Some(&rule.end), rule.name.as_ref()];
            for part in parts.into_iter().flatten() {
                let stars = part.get_ref().matches('*').count();
                let same = stars == begin.matches('*').count();
                if part.get_ref().is_empty() || stars > 1 || !same {
                    return Err(format!(
                        "{}`{}`: the names of an event that begins a call, of the one that ends it, and of the call have one `*` each, for the same text, or none",
                        place(text, part.span().start),
                        part.get_ref()
                    ));
                }
            }
            if begin == rule.end.get_ref() {
                let at = place(text, rule.end.span().start);
                return Err(format!("{at}`{begin}` cannot both begin a call and end it"));
            }
            calls.push(CallPair {
                begin: begin.clone(),
                end: rule.end.get_ref().clone(),
                name: name.clone(),
            });
        }
        let idle = self.idle.into_iter().map(|name| (name, Layer::Idle));
        Ok(Rules {
            calls,
            layers: idle.chain(self.layers).collect(),
            polls,
            received: self.received,
            sent: self.sent,
            receiving: self.receiving,
            sending: self.sending,
            refills: self.refills,
            handlers: self.handlers,
            memory: self.memory,
        })
    }
}

/// `line 3, column 7: `
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    format!("line {line}, column {}: ", before[start..].chars().count() + 1)
}

impl Rules {
    /// The names of DPDK, of our own tracer, of system calls and of common libraries.
    pub fn known() -> &'static Arc<Rules> {
        &KNOWN
    }

    /// The rows of a file (TOML), and behind them the known ones.
    ///
    /// # Errors
    /// The line, the column, and what is wrong there.
    pub fn of_file(text: &str) -> Result<Rules, String> {
        let mut rules = Table::read(text)?.rules(text)?;
        let known = Self::known();
        rules.calls.extend_from_slice(&known.calls);
        rules.layers.extend_from_slice(&known.layers);
        rules.polls.extend_from_slice(&known.polls);
        rules.received.extend_from_slice(&known.received);
        rules.sent.extend_from_slice(&known.sent);
        rules.receiving.extend_from_slice(&known.receiving);
        rules.sending.extend_from_slice(&known.sending);
        rules.refills.extend_from_slice(&known.refills);
        rules.handlers.extend_from_slice(&known.handlers);
        rules.memory.extend_from_slice(&known.memory);
        Ok(rules)
    }

    /// Events that are calls, for [`Trace::open_with`](laneway_trace_read::Trace::open_with).
    pub fn calls(&self) -> &[CallPair] {
        &self.calls
    }

    /// Does it take or give back memory?
    pub(crate) fn takes_memory(&self, name: &str) -> bool {
        any(&self.memory, name) || self.layer(name) == Some(Layer::Mempool)
    }

    /// The layer a name belongs to by itself.
    pub(crate) fn layer(&self, name: &str) -> Option<Layer> {
        self.layers.iter().find(|(pattern, _)| matches(pattern, name)).map(|&(_, layer)| layer)
    }

    /// Is this a poll, by one of its children?
    pub(crate) fn poll_child(&self, poll: &str, child: &str) -> Option<PollResult> {
        let rule = self.polls.iter().find(|rule| matches(&rule.function, poll))?;
        if any(&rule.found, child) {
            Some(PollResult::Productive)
        } else if any(&rule.found_nothing, child) {
            Some(PollResult::Empty)
        } else {
            None
        }
    }

    pub(crate) fn is_received(&self, caller: &str, callee: &str) -> bool {
        self.received.iter().any(|[from, to]| matches(from, caller) && matches(to, callee))
    }

    pub(crate) fn is_sent(&self, caller: &str, callee: &str) -> bool {
        self.sent.iter().any(|[from, to]| matches(from, caller) && matches(to, callee))
    }

    pub(crate) fn is_receive_root(&self, name: &str) -> bool {
        any(&self.receiving, name)
    }

    pub(crate) fn is_send_root(&self, name: &str) -> bool {
        any(&self.sending, name)
    }

    pub(crate) fn is_refill(&self, name: &str) -> bool {
        any(&self.refills, name)
    }

    pub(crate) fn is_handler(&self, name: &str) -> bool {
        any(&self.handlers, name)
    }
}

/// The layer that a name belongs to by the known names.
pub(crate) fn layer(name: &str) -> Option<Layer> {
    Rules::known().layer(name)
}

/// Is it a fill of a cache, by the known names?
pub(crate) fn is_refill(name: &str) -> bool {
    Rules::known().is_refill(name)
}

/// What a child says about the poll that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollResult {
    /// The poll found packets.
    Productive,
    /// The poll found nothing.
    Empty,
}

/// Does `name` have the form of `pattern`?
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(mut part) = parts.next() else { return rest.is_empty() };
    // Each part at its first place leaves most to those behind it; the last one ends the name.
    for next in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        (rest, part) = (behind, next);
    }
    rest.ends_with(part)
}

fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("read", "read", true),
            ("read", "readv", false),
            ("rte_eth_*", "rte_eth_rx_burst", true),
            ("*_rx_burst*", "pmd_rx_burst", true),
            ("*_rx_burst*", "pmd_tx_burst", false),
            ("rte_*_trace_*", "rte_mempool_trace_get_bulk", true),
            ("a*", "a", true),
            ("*", "", true),
            ("*b", "äb", true),
            ("ab*ba", "abba", true),
            ("ab*ba", "aba", false),
            ("*ab*ab", "xabab", true),
            ("*ab*ab", "xab", false),
            ("a*b*c", "abbc", true),
            ("a**c", "ac", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_tracer_of_a_thing_is_not_the_thing() {
        assert_eq!(Rules::known().layer("rte_ethdev_trace_rx_burst"), Some(Layer::Tracer));
        assert_eq!(Rules::known().layer("rte_mempool_trace_get_bulk"), Some(Layer::Tracer));
        assert_eq!(Rules::known().layer("__rte_trace_point_fp_is_enabled"), Some(Layer::Tracer));
        assert_eq!(Rules::known().layer("rte_ethdev_get_name"), Some(Layer::Ethdev));
    }

    #[test]
    fn what_testpmd_calls_per_packet_falls_into_its_layer() {
        for (name, expected) in [
            ("pkt_burst_io_forward", Some(Layer::Application)),
            ("rte_eth_rx_burst", Some(Layer::Ethdev)),
            ("pmd_rx_burst", Some(Layer::Driver)),
            ("tap_write_mbufs", Some(Layer::Driver)),
            ("rte_pktmbuf_alloc", Some(Layer::Mempool)),
            ("rte_mempool_do_generic_get", Some(Layer::Mempool)),
            ("rte_memcpy", None),
            ("ptype_l3_ip", None),
        ] {
            assert_eq!(Rules::known().layer(name), expected, "{name}");
        }
    }

    #[test]
    fn rows_of_a_file_come_before_those_that_are_known() {
        let text = "
idle = ['fw_sleep*']
layers = [['rte_eth_*', 'driver'], ['fw_*', 'application']]
polls = [{ function = 'fw_poll', found = ['fw_deliver'] }]
received = [['fw_poll', 'fw_deliver']]
receiving = ['fw_poll']
calls = [{ begin = 'fw:*_on', end = 'fw:*_off', name = 'fw.*' }]
";
        let rules = Rules::of_file(text).expect("a good file");
        assert_eq!(rules.layer("fw_sleep_long"), Some(Layer::Idle));
        assert_eq!(rules.layer("rte_eth_rx_burst"), Some(Layer::Driver));
        assert_eq!(rules.layer("rte_mempool_get"), Some(Layer::Mempool));
        assert_eq!(rules.poll_child("fw_poll", "fw_deliver"), Some(PollResult::Productive));
        assert!(rules.is_received("fw_poll", "fw_deliver") && rules.is_receive_root("fw_poll"));
        assert_eq!(rules.calls()[0].end, "fw:*_off");
        assert_eq!(Rules::of_file(""), Ok(Rules::default()));
    }

    #[test]
    fn an_error_of_a_file_has_its_line_and_its_column() {
        for (text, at, what) in [
            ("idle = 1", "line 1, column 8: ", "sequence"),
            ("\n\nfoo = []", "line 3, column 1: ", "unknown field `foo`"),
            ("layers = [\n  ['a', 'drive'],\n]", "line 2, column 9: ", "unknown variant"),
            ("polls = [\n  { function = 'a' },\n]", "line 2, column 3: ", "`a` needs `found`"),
            ("calls = [{ begin = 'a*', end = 'b' }]", "line 1, column 32: ", "`b`: the names"),
            ("calls = [{ begin = '', end = 'b' }]", "line 1, column 20: ", "have one `*`"),
            ("calls = [{ begin = 'a', end = 'a' }]", "line 1, column 31: ", "cannot both begin"),
            ("calls = [{ begin = 'a**', end = 'b**' }]", "line 1, column 20: ", "one `*` each"),
            ("a = [", "line 1, column", ""),
        ] {
            let error = Rules::of_file(text).expect_err(text);
            assert!(error.starts_with(at) && error.contains(what), "{text}: {error}");
        }
        assert!(Rules::of_file(&"#".repeat(FILE_BYTES_MAX + 1)).is_err());
    }
}
