//! Rule sets as text: the file (TOML), the control socket's messages (JSON), and the file that is written again.
//!
//! What is wrong is reported with its line. It reads from nowhere and writes nowhere.

use crate::{
    check::{Policy, can_bind, check, links},
    rule::Rule,
};
use laneway_linux::Cidr;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use toml::Spanned;

/// Bytes of a file of rules: ten thousand rules of some dozen outputs.
pub(crate) const FILE_BYTES_MAX: usize = 64 << 20;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleFile {
    /// Networks whose hosts may be sent to.
    pub allow: Vec<Cidr>,
    /// Groups of one network's own protocols may be relayed.
    pub local_groups: bool,
    /// The rules, in their order.
    pub rules: Vec<Rule>,
    /// The line that each begins at, from 1.
    lines: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(default)]
    allow: Vec<Cidr>,
    #[serde(default)]
    local_groups: bool,
    #[serde(default)]
    rule: Vec<Spanned<Rule>>,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    allow: &'a [Cidr],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    local_groups: bool,
    rule: &'a [Rule],
}

/// What a deserializer says, with the range or the form of a value in place of its type in Rust.
pub(crate) fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 9] = [
        ("expected u8", "use 0 to 255"),
        ("expected u16", "use 0 to 65535"),
        ("expected a nonzero u32", "use 1 to 4294967295"),
        ("expected u64", "use a number from 0 on"),
        ("expected usize", "use a number from 0 on"),
        ("expected a sequence", "use a list in brackets, such as [\"192.0.2.7\"]"),
        ("expected a boolean", "use true or false"),
        (
            "invalid IP address syntax",
            "this is no IP address; use one such as 239.1.1.1 or ff15::1",
        ),
        (
            "invalid socket address syntax",
            "this is no address with a port; use one such as 198.51.100.4:6000 or [ff15::1]:5000",
        ),
    ];
    WORDS.iter().fold(message.to_owned(), |text, (type_of, words)| {
        // A longer name may begin like it: `expected u8` is no part of `expected u80`.
        let ends =
            |at: usize| !text[at + type_of.len()..].starts_with(|c: char| c.is_alphanumeric());
        match text.find(type_of).filter(|at| ends(*at)) {
            Some(_) => text.replace(type_of, words),
            None => text,
        }
    })
}

impl RuleFile {
    /// A file of these rules.
    pub fn of(rules: Vec<Rule>) -> RuleFile {
        RuleFile { rules, ..RuleFile::default() }
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// The line, the column and what was expected there.
    pub fn from_toml(text: &str) -> Result<RuleFile, String> {
        if text.len() > FILE_BYTES_MAX {
            return Err(format!("{} bytes are more than {FILE_BYTES_MAX}", text.len()));
        }
        let read: Read = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or_else(String::new, |span| place(text, span));
            format!("{at}{}", in_words(error.message()))
        })?;
        // Lines are counted on from rule to rule, so that a long file is gone through once.
        let (mut line, mut from) = (1, 0);
        let lines = read.rule.iter().map(|rule| {
            let at = rule.span().start.clamp(from, text.len());
            line += text.as_bytes()[from..at].iter().filter(|byte| **byte == b'\n').count();
            from = at;
            line
        });
        let lines = lines.collect();
        let rules = read.rule.into_iter().map(Spanned::into_inner).collect();
        Ok(RuleFile { allow: read.allow, local_groups: read.local_groups, rules, lines })
    }

    /// The file as TOML.
    ///
    /// # Panics
    /// Never: every value of a rule is one that TOML has.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.written()).expect("a rule is made of tables, lists, text and numbers")
    }

    /// The same members as JSON.
    ///
    /// # Panics
    /// Never: every value of a rule is one that JSON has.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self.written())
            .expect("a rule is made of objects, lists, text and numbers")
    }

    fn written(&self) -> Written<'_> {
        let RuleFile { allow, local_groups, rules, .. } = self;
        Written { allow, local_groups: *local_groups, rule: rules }
    }

    /// What the file permits, with what the command line adds.
    pub fn policy(&self, allow: &[Cidr], local_groups: bool) -> Policy {
        Policy {
            allow: self.allow.iter().chain(allow).copied().collect(),
            local_groups: self.local_groups || local_groups,
            is_own: can_bind,
            links,
            ..Policy::default()
        }
    }

    /// Checks the rules.
    ///
    /// # Errors
    /// What is wrong, with the line that its rule begins at.
    pub fn check(&self, policy: &Policy) -> Result<(), String> {
        check(&self.rules.iter().collect::<Vec<_>>(), policy).map_err(|error| {
            match error.at.and_then(|at| self.lines.get(at)) {
                Some(line) => format!("line {line}: {error}"),
                None => error.to_string(),
            }
        })
    }
}

/// `line 3, column 7: `, both from 1.
fn place(text: &str, span: Range<usize>) -> String {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    format!("line {line}, column {column}: ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXAMPLE: &str = r#"allow = ["198.51.100.0/24"]

[[rule]]
input = { interface = "eth1", group = "239.1.1.1", port = 5000, sources = ["192.0.2.7"] }
outputs = [ { destination = "198.51.100.4:6000", interface = "eth2", dscp = 34, when_full = "oldest" },
            { destination = "239.2.2.2:5000", interface = "eth3", ttl = 4 } ]

[[rule]]
name = "six"
input = { family = "ipv6", port = 7 }
outputs = [ { destination = "[ff15::7]:7", sample = 10, bytes_per_second = 1000000 } ]
"#;

    #[test]
    fn the_example_is_read_passes_and_is_written_again() {
        let file = RuleFile::from_toml(EXAMPLE).expect("well formed");
        file.check(&file.policy(&[], false)).expect("passes");
        assert_eq!((file.rules.len(), &file.lines[..]), (2, &[3, 8][..]));
        let again = RuleFile::from_toml(&file.to_toml()).expect("well formed");
        assert_eq!((again.rules, again.allow), (file.rules.clone(), file.allow));
        // JSON is the same schema.
        let json = serde_json::to_string(&file.rules).expect("values");
        assert_eq!(serde_json::from_str::<Vec<Rule>>(&json).expect("read back"), file.rules);
    }

    #[test]
    fn a_value_out_of_its_range_is_refused_with_the_range_and_no_type_of_ours() {
        for (from, to, words) in [
            ("ttl = 4", "ttl = 256", "`256`, use 0 to 255"),
            ("port = 5000", "port = 70000", "`70000`, use 0 to 65535"),
            ("sample = 10", "sample = 0", "use 1 to 4294967295"),
            ("\"239.1.1.1\"", "\"239.1.1\"", "no IP address; use one such as"),
            ("\"239.2.2.2:5000\"", "\"239.2.2.2\"", "with a port; use one such as"),
            ("[\"192.0.2.7\"]", "\"192.0.2.7\"", "use a list in brackets"),
        ] {
            let why = RuleFile::from_toml(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
            assert!(why.starts_with("line ") && why.contains(words), "{why}");
            assert!(!why.contains("u8") && !why.contains("u16") && !why.contains("u32"), "{why}");
        }
        assert_eq!(in_words("expected u80"), "expected u80");
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        for (from, to, says) in [
            ("port = 5000", "port = 70000", "line 4, column 59: "),
            ("dscp", "dcsp", "line 5, "),
            ("dscp", "dcsp", "unknown field `dcsp`"),
            ("\"239.1.1.1\"", "\"239.1.1\"", "line 4, "),
            ("[[rule]]\nname", "[[rules]]\nname", "unknown field `rules`"),
            ("sample = 10", "sample = 0", "line 11, "),
            ("[\"198.51.100.0/24\"]", "[\"198.51.100.0/33\"]", "line 1, "),
            ("]\n\n[[rule]]\ninput", "\n\n[[rule]]\ninput", "line "),
        ] {
            assert!(EXAMPLE.contains(from), "{from}");
            let text = EXAMPLE.replacen(from, to, 1);
            let error = RuleFile::from_toml(&text).expect_err(to);
            assert!(error.contains(says), "{to}: {error}");
        }
        let file =
            RuleFile::from_toml(&EXAMPLE.replace("port = 7 ", "port = 0 ")).expect("well formed");
        let error = file.check(&file.policy(&[], false)).expect_err("port 0");
        assert!(error.starts_with("line 8: rule 2 `six`"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}", begin in 0usize..4) {
            let begin = ["", "[[rule]]\n", "allow = [", "[[rule]]\ninput = { group = "][begin];
            let _ = RuleFile::from_toml(&format!("{begin}{text}"));
        }
    }
}
