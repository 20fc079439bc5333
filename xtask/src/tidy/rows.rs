//! A lane or an app is named in its own folder and in one row of a table: no product code elsewhere names it.
//!
//! Code names one by its crate, by a variant of an enum that is called like it, or by a text that is its name and
//! nothing else. Product code is what stands under `src/` outside tests. Names are those of the folders, so a new lane
//! is held to it from its first day. Names of lanes and apps are words as well: where a word means something else, a
//! row of [`WORDS`] says what. Sentences for people (a help text, an example) may name anything.

use super::Violation;
use super::product::{Product, products};
use crate::source::{Line, identifiers};
use crate::tree::Tree;

/// Where rows are: the tables, and what is compiled beside them.
const TABLES: &[&str] = &["registry/", "xtask/", "fuzz/", "examples/", "bench/"];

/// What runs the built program and types lanes and apps as its users do: a judge of what it says.
const USERS: &[&str] = &["trace/gallery/"];

/// A name that is another word: the name, where it is said (an enum's variant, or a file or folder), what it means.
/// A crate's path means nothing else anywhere.
const WORDS: &[(&str, &[&str], &str)] = &[
    ("dpdk", &["trace/"], "who wrote a trace: DPDK's own tracepoints"),
    ("dpdk", &["With::", "cli/src/arguments/record.rs"], "a tracer that `trace record` starts"),
    ("echo", &["Manner::"], "what the far end of a conformance test does with the bytes"),
    (
        "echo",
        &["Protocol::", "crates/kinds/src/race.rs"],
        "the protocol of RFC 862, which a client speaks",
    ),
    (
        "echo",
        &["apps/kv/src/serve/rows.rs", "apps/kv/src/serve/shards/reach.rs"],
        "a command of Redis",
    ),
    ("features", &["cli/src/shipped.rs"], "a scenario"),
    ("forward", &["Direction::", "Of::"], "a direction of a flow"),
    ("forward", &["cli/src/shipped.rs"], "a scenario"),
    ("kv", &["Generator::", "cli/src/verbs/generate/kv.rs"], "the verb that asks a store"),
    ("kv", &["cli/src/shipped.rs"], "a scenario"),
    ("packet", &["Level::", "apps/features/src/"], "rows for packets, not for flows"),
    ("packet", &["lab/src/apps.rs", "trace/src/detect/"], "what is counted"),
    ("pcap", &["crates/capture/", "cli/src/replay/", "Layout::"], "the format of a file"),
    ("pcap", &["Generator::", "cli/src/verbs/generate.rs"], "the verb that replays captures"),
    ("relay", &["cli/src/shipped.rs"], "a scenario"),
    ("socket", &["lab/src/child/smcroute.rs"], "how a daemon is spoken to"),
    // What `lanes/dpdk` runs on are drivers of DPDK with names of their own.
    ("afxdp", &["lanes/dpdk/"], "a driver of DPDK"),
    ("packet", &["lanes/dpdk/"], "a socket of a driver of DPDK"),
    ("pcap", &["lanes/dpdk/"], "a driver of DPDK"),
    ("socket", &["lanes/dpdk/"], "a path that a driver of DPDK is given"),
    ("xdp", &["lanes/dpdk/"], "a socket of a driver of DPDK"),
    (
        "xdp",
        &["LinkTypeInfo::", "ProgramAttachType::", "lab/src/"],
        "the kernel's hook, as `ip` and `ethtool` call it",
    ),
    ("xdp", &["crates/bpf/src/maps.rs"], "the one lane that has maps, in what its errors say"),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let folders: Vec<(&str, &str)> = tree
        .texts()
        .filter_map(|(path, _)| {
            let (kind, rest) = path.split_once('/')?;
            let (name, file) = rest.split_once('/')?;
            (matches!(kind, "lanes" | "apps") && file == "Cargo.toml").then_some((kind, name))
        })
        .collect();
    let mut violations = Vec::new();
    for (path, product) in products(tree).iter().filter(|(path, _)| !is_named_freely(path)) {
        for named in product.names() {
            let folder = folders.iter().find(|(folder, name)| {
                named.is(name)
                    && !path.starts_with(&format!("{folder}/{name}/"))
                    && !named.is_word(name, path)
            });
            violations.extend(folder.map(|(folder, name)| {
                let what = format!(
                    "{} outside {folder}/{name} and the table; make what is asked of it a column of \
                     `crates/kinds`{}",
                    named.shown(),
                    named.otherwise(),
                );
                Violation::new(path, named.line, "row", what)
            }));
        }
    }
    violations
}

/// Whether a file may name lanes and apps: a table, or what types them as users do.
fn is_named_freely(path: &str) -> bool {
    TABLES.iter().chain(USERS).any(|folder| path.starts_with(folder))
}

/// How code may name a lane or an app.
#[derive(Debug, PartialEq, Eq)]
enum By {
    /// `laneway_NAME`.
    Crate,
    /// A variant of the enum; that of a path is as the path spells it.
    Variant { of: String },
    /// The whole of a text.
    Text,
}

/// A word that may be a name.
#[derive(Debug)]
struct Named {
    line: usize,
    by: By,
    word: String,
}

impl Named {
    fn is(&self, name: &str) -> bool {
        match self.by {
            By::Variant { .. } => self.word.eq_ignore_ascii_case(name),
            By::Crate | By::Text => self.word == name,
        }
    }

    /// True where the word means something else there.
    fn is_word(&self, name: &str, path: &str) -> bool {
        let is_there = |place: &&str| match (place.strip_suffix("::"), &self.by) {
            (Some(wanted), By::Variant { of }) => wanted == of,
            (Some(_), _) => false,
            (None, by) => *by != By::Crate && path.starts_with(place),
        };
        WORDS.iter().any(|(word, places, _)| *word == name && places.iter().any(is_there))
    }

    fn shown(&self) -> String {
        match &self.by {
            By::Crate => format!("`laneway_{}`", self.word),
            By::Variant { of } => format!("variant `{of}::{}`", self.word),
            By::Text => format!("the text `{}`", self.word),
        }
    }

    fn otherwise(&self) -> &'static str {
        match self.by {
            By::Crate => "",
            By::Variant { .. } | By::Text => {
                ", or say in WORDS of xtask/src/tidy/rows.rs what else the word means"
            }
        }
    }
}

impl Product<'_> {
    fn names(&self) -> Vec<Named> {
        let mut names = self.crates();
        names.extend(self.texts());
        names.extend(self.paths());
        names.extend(self.variants());
        names
    }

    fn crates(&self) -> Vec<Named> {
        let of_line = |(number, line, _): &(usize, &Line, _)| {
            let words = identifiers(&line.code).filter_map(|word| word.strip_prefix("laneway_"));
            words
                .map(|word| Named { line: *number, by: By::Crate, word: word.to_owned() })
                .collect::<Vec<_>>()
        };
        self.lines.iter().flat_map(of_line).collect()
    }

    /// Texts that begin and end on one line.
    fn texts(&self) -> Vec<Named> {
        let mut names = Vec::new();
        let mut is_open = false;
        for (number, line, shown) in &self.lines {
            // Columns of code are those of the line; its quotes are those around texts.
            let mut from = None;
            for (column, _) in line.code.chars().enumerate().filter(|(_, c)| *c == '"') {
                if is_open && let Some(from) = from {
                    let word = shown.get(from..column).unwrap_or_default().iter().collect();
                    names.push(Named { line: *number, by: By::Text, word });
                }
                is_open = !is_open;
                from = is_open.then_some(column + 1);
            }
        }
        names
    }

    /// `Type::Word`: what stands in front of a variant is a type.
    fn paths(&self) -> Vec<Named> {
        let mut names = Vec::new();
        for (number, line, _) in &self.lines {
            let parts: Vec<&str> = line.code.split("::").collect();
            for pair in parts.windows(2) {
                let of = identifiers(pair[0]).last().filter(|of| pair[0].ends_with(of));
                let word = identifiers(pair[1]).next().filter(|word| pair[1].starts_with(word));
                if let (Some(of), Some(word)) = (of, word)
                    && is_camel(of)
                    && is_camel(word)
                {
                    let by = By::Variant { of: of.to_owned() };
                    names.push(Named { line: *number, by, word: word.to_owned() });
                }
            }
        }
        names
    }

    /// What the bodies of enums declare.
    fn variants(&self) -> Vec<Named> {
        let mut names = Vec::new();
        let mut of: Option<String> = None;
        let mut depth = 0;
        let mut before = String::new();
        let marks = |code: &str| tokens(code).into_iter().map(str::to_owned).collect::<Vec<_>>();
        for (number, token) in self.lines.iter().flat_map(|(number, line, _)| {
            marks(&line.code).into_iter().map(move |mark| (*number, mark))
        }) {
            if before == "enum" {
                (of, depth) = (Some(token.clone()), 0);
            }
            if let Some(name) = &of {
                match token.as_str() {
                    "{" | "(" | "[" => depth += 1,
                    "}" | ")" | "]" => depth -= 1,
                    word if depth == 1 && is_camel(word) && matches!(&*before, "{" | "," | "]") => {
                        let by = By::Variant { of: name.clone() };
                        names.push(Named { line: number, by, word: word.to_owned() });
                    }
                    _ => {}
                }
                if depth == 0 && token == "}" {
                    of = None;
                }
            }
            before = token;
        }
        names
    }
}

/// True for the name of a type or of a variant; false for a constant.
fn is_camel(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase)
}

/// Words and marks, one by one.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = match is_part(first) {
            true => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(files: &[(&str, &str)]) -> Vec<Violation> {
        let folders = [
            ("lanes/packet/Cargo.toml", ""),
            ("lanes/pcap/Cargo.toml", ""),
            ("lanes/afxdp/Cargo.toml", ""),
            ("apps/echo/Cargo.toml", ""),
            ("apps/forward/Cargo.toml", ""),
        ];
        check(&Tree::of(&[&folders, files].concat()))
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        violations(&[(path, text)]).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_lane_is_named_in_its_folder_and_the_table_alone() {
        for text in [
            "use laneway_packet::PacketLane;\n\nuse laneway_core::Lane;\n",
            "let lane = Lane::Packet;",
            "enum Lane { Packet }",
            "let lane = \"packet\";",
        ] {
            assert_eq!(lines("cli/src/verbs/run.rs", text), [1], "{text}");
            assert_eq!(lines("crates/stack/src/lib.rs", text), [1], "{text}");
            for own in ["lanes/packet/src/lib.rs", "registry/src/lanes.rs", "cli/tests/gen.rs"] {
                assert!(lines(own, text).is_empty(), "{own}: {text}");
            }
        }
    }

    #[test]
    fn tests_inside_a_file_may_run_in_a_world() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use laneway_packet::PacketLane;\n}\n";
        assert!(lines("crates/engine/src/run.rs", text).is_empty());
        assert_eq!(lines("lab/src/traffic.rs", "use laneway_pcap::PcapLane;\n"), [1]);
        assert_eq!(lines("crates/flow/src/key.rs", "use laneway_echo::Echo;\n"), [1]);
    }

    #[test]
    fn a_module_that_only_tests_have_is_a_test_and_what_follows_it_is_not() {
        let report = "#[cfg(test)]\nmod example;\n\nconst LANE: &str = \"packet\";\n";
        let example = ("lab/src/report/example.rs", "const LANE: &str = \"packet\";\n");
        let found = violations(&[("lab/src/report.rs", report), example]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("lab/src/report.rs", 4));
        assert_eq!(violations(&[("lab/src/lib.rs", ""), example]).len(), 1);
        let at_the_top = ("lab/src/lib.rs", "#[cfg(test)]\nmod example;\n");
        let beside = ("lab/src/example.rs", "use laneway_echo::Echo;\n");
        assert!(violations(&[at_the_top, beside]).is_empty());
    }

    #[test]
    fn a_variant_is_found_where_it_is_used_however_it_is_spelt() {
        for text in
            ["App::Forward", "Some(App::Forward)", "App::Forward { mode }", "Lane::AfXdp(x)"]
        {
            assert_eq!(lines("lab/src/a.rs", text), [1], "{text}");
        }
        for text in [
            "laneway_kinds::Forward",
            "forward::Forward",
            "Forward::new()",
            "App::Forwarder",
            "App::forward()",
            "Caps::FORWARD",
            "Vec::<Forward>::new()",
            "/// as App::Forward does",
            "a(\"App::Forward\")",
        ] {
            assert!(lines("lab/src/a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_variant_is_found_where_it_is_declared() {
        for text in [
            "enum App {\n    Echo,\n}",
            "enum App {\n    Echo(u8),\n}",
            "enum App {\n    Echo { a: u8 },\n}",
            "enum App {\n    Count, Echo\n}",
            "enum App<T> {\n    Count(Vec<T>), #[serde(rename = \"x\")] Echo = 1,\n}",
            "pub(crate) enum App\nwhere A: B { Count { a: u8 }, Echo }",
        ] {
            let found = violations(&[("lab/src/a.rs", text)]);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].what.starts_with("variant `App::Echo`"), "{}", found[0].what);
        }
        for text in [
            "enum App {\n    Service(Echo),\n}",
            "enum App {\n    Service {\n        inner: Echo,\n    },\n}",
            "enum App {\n    Pair(u8, Echo),\n}",
            "enum App {\n    Count,\n}\nstruct Echo;",
            "struct Echo {\n    a: u8,\n}",
            "enum App {\n    Echoes,\n}\nfn a() { b(1, Echo) }",
        ] {
            assert!(lines("lab/src/a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_text_is_a_name_when_it_is_nothing_else() {
        for text in
            ["f(\"echo\")", "f('\"', \"a\", \"echo\")", "f(\"a\\\"\", r#\"echo\"#)", "b\"echo\""]
        {
            assert_eq!(lines("lab/src/a.rs", text), [1], "{text}");
        }
        assert_eq!(lines("lab/src/a.rs", "f(\"of\nmany \\\n lines\", \"echo\")"), [3]);
        for text in [
            "f(\"an echo\")",
            "f(\"echo:a=1\")",
            "f(\"a\", echo, \"b\")",
            "// \"echo\"",
            "f(\"Echo\")",
            "f(\"of\necho\nlines\")",
            "f(\"of\necho\", \"lines\")",
        ] {
            assert!(lines("lab/src/a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_word_of_another_meaning_is_no_name_and_never_a_crate() {
        assert!(lines("crates/flow/src/a.rs", "enum Direction {\n    Forward = 0,\n}").is_empty());
        assert!(lines("apps/features/src/a.rs", "Direction::Forward").is_empty());
        assert_eq!(lines("crates/flow/src/a.rs", "App::Forward"), [1]);
        assert!(lines("cli/src/shipped.rs", "name: \"forward\",").is_empty());
        assert_eq!(lines("cli/src/lib.rs", "name: \"forward\","), [1]);
        assert_eq!(lines("cli/src/shipped.rs", "use laneway_forward::Forward;"), [1]);
        assert_eq!(lines("lanes/dpdk/src/a.rs", "use laneway_pcap::PcapLane;"), [1]);
        assert!(WORDS.iter().all(|(.., meaning)| !meaning.is_empty()));
    }
}
