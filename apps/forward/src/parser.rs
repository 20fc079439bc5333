//! Text to [`Command`]: testpmd's `flow` line, word by word.
//!
//! Every error shows the column, what stood there and what was expected, with the nearest word where
//! a word was meant. What is understood but cannot be done (an inner header behind `vxlan`, `egress`)
//! is refused by name: there is no partial match. Words stand between blanks, `/` too.
//!
//! What must always hold: any text gives a command or an error that points into it.

use crate::grammar::{Action, Attributes, Command, Item, Rule};
use laneway_flow::pattern::{Notation, SyntaxError, Words};

/// Values of `rss queues` and of the lists of `destroy` and `list`.
const LIST_MAX: usize = 256;
/// Actions in a rule.
const ACTIONS_MAX: usize = 16;
/// The highest priority number; a rank has so many bits for it.
pub const PRIORITY_MAX: u32 = (1 << 24) - 1;

/// Reads a line: `flow create 0 ingress pattern eth / ipv4 / end actions drop / end`.
///
/// # Errors
/// [`SyntaxError`], with the place and what was expected there.
pub fn parse_command(line: &str) -> Result<Command, SyntaxError> {
    let mut words = Words::new(line)?;
    words.keyword(&["flow"])?;
    let verb = words.keyword(&["create", "validate", "list", "query", "destroy", "flush"])?;
    let port = words.number("a port number", u16::MAX.into())? as u16;
    let command = match verb {
        "create" => Command::Create(port, rule(&mut words)?),
        "validate" => Command::Validate(port, rule(&mut words)?),
        "flush" => Command::Flush(port),
        "query" => {
            let id = words.number("a rule number", u32::MAX.into())? as u32;
            words.keyword(&["count"])?;
            Command::Query(port, id)
        }
        "destroy" => {
            let ids = list(&mut words, "rule")?;
            if ids.is_empty() {
                return Err(words.wrong("expected `rule` and a number"));
            }
            Command::Destroy(port, ids)
        }
        _ => Command::List(port, list(&mut words, "group")?),
    };
    words.end()?;
    Ok(command)
}

/// What a line of the console can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Nothing: it is empty, or begins with `#`.
    Nothing,
    /// A `flow` command.
    Flow(Command),
    /// `show stats`
    ShowStats,
    /// `show rules [<port>]`
    ShowRules(Option<u16>),
    /// `help`
    Help,
    /// `quit`
    Quit,
}

/// Reads a line of the console: a `flow` command, `show stats`, `show rules`, `help`, `quit`.
///
/// # Errors
/// As for [`parse_command`].
pub fn parse_line(line: &str) -> Result<Line, SyntaxError> {
    let mut words = Words::new(line)?;
    if words.peek().is_none_or(|word| word.starts_with('#')) {
        return Ok(Line::Nothing);
    }
    let line = match words.keyword(&["flow", "show", "help", "quit"])? {
        "flow" => return parse_command(line).map(Line::Flow),
        "help" => Line::Help,
        "quit" => Line::Quit,
        _ => match words.keyword(&["stats", "rules"])? {
            "stats" => Line::ShowStats,
            _ if words.peek().is_none() => Line::ShowRules(None),
            _ => Line::ShowRules(Some(words.number("a port number", u16::MAX.into())? as u16)),
        },
    };
    words.end()?;
    Ok(line)
}

/// Reads a rule as it stands behind `flow create <port>`, which is how it prints itself.
///
/// # Errors
/// As for [`parse_command`].
pub fn parse_rule(text: &str) -> Result<Rule, SyntaxError> {
    let mut words = Words::new(text)?;
    let rule = rule(&mut words)?;
    words.end()?;
    Ok(rule)
}

fn list(words: &mut Words<'_>, word: &'static str) -> Result<Vec<u32>, SyntaxError> {
    let mut values = Vec::new();
    while words.peek().is_some() {
        if values.len() == LIST_MAX {
            return Err(words.wrong(format!("but {LIST_MAX} are the most in one line")));
        }
        words.keyword(&[word])?;
        values.push(words.number("a number", u32::MAX.into())? as u32);
    }
    Ok(values)
}

fn rule(words: &mut Words<'_>) -> Result<Rule, SyntaxError> {
    let mut attributes = Attributes::default();
    let (mut has_group, mut has_priority) = (false, false);
    const WORDS: [&str; 6] = ["group", "priority", "ingress", "egress", "transfer", "pattern"];
    loop {
        let (before, word) = (words.place(), words.keyword(&WORDS)?);
        let again = |words: &mut Words<'_>| Err(words.wrong_at(before, "but it was given before"));
        match word {
            "group" if has_group => return again(words),
            "group" => {
                has_group = true;
                attributes.group = words.number("a group number", u32::MAX.into())? as u32;
            }
            "priority" if has_priority => return again(words),
            "priority" => {
                has_priority = true;
                attributes.priority = words.number("a priority", u128::from(PRIORITY_MAX))? as u32;
            }
            "ingress" if attributes.ingress => return again(words),
            "ingress" => attributes.ingress = true,
            "transfer" if attributes.transfer => return again(words),
            "transfer" => attributes.transfer = true,
            "egress" => {
                let why = "but rules apply to what comes in; expected `ingress` or `transfer`";
                return Err(words.wrong_at(before, why));
            }
            _ if !attributes.ingress && !attributes.transfer => {
                let why = "expected `ingress` or `transfer` before it";
                return Err(words.wrong_at(before, why));
            }
            _ => break,
        }
    }
    let pattern = pattern(words)?;
    words.keyword(&["actions"])?;
    let actions = actions(words)?;
    Ok(Rule { attributes, pattern, actions })
}

fn pattern(words: &mut Words<'_>) -> Result<Vec<Item>, SyntaxError> {
    let mut items: Vec<Item> = Vec::new();
    while let Some(item) = words.item(&items, &["end"])? {
        items.push(item);
        words.keyword(&["/"])?;
    }
    Ok(items)
}

const ACTION_WORDS: [&str; 18] = [
    "drop",
    "queue",
    "rss",
    "port_id",
    "jump",
    "passthru",
    "count",
    "mark",
    "set_mac_src",
    "set_mac_dst",
    "set_ipv4_src",
    "set_ipv4_dst",
    "set_ipv6_src",
    "set_ipv6_dst",
    "set_tp_src",
    "set_tp_dst",
    "dec_ttl",
    "end",
];

fn actions(words: &mut Words<'_>) -> Result<Vec<Action>, SyntaxError> {
    let mut actions: Vec<Action> = Vec::new();
    loop {
        let (place, word) = (words.place(), words.keyword(&ACTION_WORDS)?);
        if word == "end" {
            break;
        }
        if actions.len() == ACTIONS_MAX {
            return Err(words.wrong_at(place, format!("but {ACTIONS_MAX} actions are the most")));
        }
        if actions.iter().any(|action| action.word() == word) {
            return Err(words.wrong_at(place, "but a rule does each thing once"));
        }
        let action = action(words, word)?;
        if action.is_fate()
            && let Some(other) = actions.iter().find(|other| other.is_fate())
        {
            let why = format!("but `{}` has decided where the frame goes", other.word());
            return Err(words.wrong_at(place, why));
        }
        actions.push(action);
        words.keyword(&["/"])?;
    }
    if actions.is_empty() {
        return Err(words.wrong_at(words.place() - 1, "but a rule has at least one action"));
    }
    Ok(actions)
}

fn action(words: &mut Words<'_>, word: &str) -> Result<Action, SyntaxError> {
    let argument = |words: &mut Words<'_>, name: &'static str, max: u128| {
        words.keyword(&[name])?;
        words.number("a number", max)
    };
    let mac = |words: &mut Words<'_>| {
        words.keyword(&["mac_addr"])?;
        let bytes = words.value(Notation::Mac)?.to_be_bytes();
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[10..]);
        Ok(mac)
    };
    let ipv4 = |words: &mut Words<'_>| {
        words.keyword(&["ipv4_addr"])?;
        Ok((words.value(Notation::Ipv4)? as u32).into())
    };
    let ipv6 = |words: &mut Words<'_>| {
        words.keyword(&["ipv6_addr"])?;
        Ok(words.value(Notation::Ipv6)?.into())
    };
    Ok(match word {
        "drop" => Action::Drop,
        "passthru" => Action::Passthru,
        "count" => Action::Count,
        "dec_ttl" => Action::DecTtl,
        "queue" => Action::Queue(argument(words, "index", u16::MAX.into())? as u16),
        "port_id" => {
            if words.peek() == Some("original") {
                return Err(words.wrong("but only `id` and a number can stand here"));
            }
            Action::PortId(argument(words, "id", u8::MAX.into())? as u8)
        }
        "jump" => Action::Jump(argument(words, "group", u32::MAX.into())? as u32),
        "mark" => Action::Mark(argument(words, "id", u32::MAX.into())? as u32),
        "set_mac_src" => Action::SetMacSrc(mac(words)?),
        "set_mac_dst" => Action::SetMacDst(mac(words)?),
        "set_ipv4_src" => Action::SetIpv4Src(ipv4(words)?),
        "set_ipv4_dst" => Action::SetIpv4Dst(ipv4(words)?),
        "set_ipv6_src" => Action::SetIpv6Src(ipv6(words)?),
        "set_ipv6_dst" => Action::SetIpv6Dst(ipv6(words)?),
        "set_tp_src" => Action::SetTpSrc(argument(words, "port", u16::MAX.into())? as u16),
        "set_tp_dst" => Action::SetTpDst(argument(words, "port", u16::MAX.into())? as u16),
        _ => Action::Rss(rss_queues(words)?),
    })
}

fn rss_queues(words: &mut Words<'_>) -> Result<Vec<u16>, SyntaxError> {
    match words.peek() {
        Some("/") => return Ok(Vec::new()),
        Some("types" | "func" | "level" | "key" | "key_len") => {
            let why = "but the hash is over addresses and ports and cannot be set; \
                       expected `queues` or `/`";
            return Err(words.wrong(why));
        }
        _ => words.keyword(&["queues", "/"])?,
    };
    let mut queues = Vec::new();
    while words.peek() != Some("end") {
        if queues.len() == crate::QUEUES_MAX {
            return Err(words.wrong(format!("but {} queues are the most", crate::QUEUES_MAX)));
        }
        queues.push(words.number("a queue number or `end`", u16::MAX.into())? as u16);
    }
    words.keyword(&["end"])?;
    if queues.is_empty() {
        return Err(words.wrong_at(words.place() - 1, "expected a queue number before it"));
    }
    Ok(queues)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::grammar::{ItemKind, Test};
    use laneway_flow::pattern::{HeaderKind, TEXT_BYTES_MAX};
    use proptest::{collection::vec, prelude::*};

    const FOUNDING: &str = "flow create 0 ingress pattern eth / ipv4 src is 10.0.0.0/8 / \
                            udp dst is 53 / end actions queue index 0 / count / end";

    fn test() -> impl Strategy<Value = (usize, u128, u128, u128)> {
        (any::<usize>(), any::<u128>(), any::<u128>(), any::<u128>())
    }

    fn item(kind: ItemKind, drawn: Vec<(usize, u128, u128, u128)>) -> Item {
        let mut tests: Vec<Test> = Vec::new();
        for field in kind.fields() {
            let place = kind.fields().iter().position(|other| std::ptr::eq(other, field));
            let found = drawn.iter().find(|(at, ..)| Some(at % kind.fields().len()) == place);
            let Some((_, a, b, mask)) = found else { continue };
            // Whole, prefix and odd masks; single values and ranges.
            let mask = match mask % 3 {
                0 => field.full(),
                1 => field.prefix_mask((mask >> 8) as u32 % (field.bits + 1)),
                _ => mask & field.full(),
            };
            let (a, b) = (a & mask, if b % 2 == 0 { *a } else { *b } & mask);
            if mask != 0 {
                tests.push(Test { field, spec: a.min(b), last: a.max(b), mask });
            }
        }
        Item { kind, tests }
    }

    pub(crate) fn rules() -> impl Strategy<Value = Rule> {
        let attributes = (any::<u32>(), 0..=PRIORITY_MAX, any::<bool>()).prop_map(
            |(group, priority, transfer)| Attributes {
                group,
                priority,
                ingress: !transfer || group % 2 == 0,
                transfer,
            },
        );
        let headers = prop::sample::subsequence(ItemKind::ALL.to_vec(), 0..=5);
        let pattern = (headers, vec(vec(test(), 0..4), 6)).prop_map(|(kinds, tests)| {
            let mut items: Vec<Item> = Vec::new();
            for (kind, tests) in kinds.into_iter().zip(tests) {
                if items.last().is_none_or(|last| last.kind.layer() < kind.layer()) {
                    items.push(item(kind, tests));
                }
            }
            items
        });
        let fate = prop_oneof![
            Just(Action::Drop),
            any::<u16>().prop_map(Action::Queue),
            vec(any::<u16>(), 0..4).prop_map(Action::Rss),
            any::<u8>().prop_map(Action::PortId),
            any::<u32>().prop_map(Action::Jump),
            Just(Action::Passthru),
        ];
        let other = vec![
            Action::Count,
            Action::Mark(7),
            Action::SetMacSrc([1, 2, 3, 4, 5, 6]),
            Action::SetMacDst([0xff; 6]),
            Action::SetIpv4Src([10, 0, 0, 1].into()),
            Action::SetIpv6Dst([7; 16].into()),
            Action::SetTpSrc(0),
            Action::SetTpDst(65535),
            Action::DecTtl,
        ];
        let actions =
            (fate, prop::sample::subsequence(other, 0..=9)).prop_map(|(fate, mut actions)| {
                actions.push(fate);
                actions
            });
        (attributes, pattern, actions).prop_map(|(attributes, pattern, actions)| Rule {
            attributes,
            pattern,
            actions,
        })
    }

    proptest! {
        #[test]
        fn what_a_rule_prints_parses_to_the_same_rule(rule in rules()) {
            let text = rule.to_string();
            prop_assert_eq!(parse_rule(&text).unwrap_or_else(|e| panic!("{e}")), rule);
        }

        #[test]
        fn any_text_gives_a_command_or_an_error_that_points_into_it(
            text in "\\PC{0,80}", cut in 0usize..200
        ) {
            let broken: String = FOUNDING.chars().take(cut).chain(text.chars()).collect();
            for text in [&text, &broken] {
                if let Err(error) = parse_command(text) {
                    prop_assert!(error.column <= text.chars().count() + 1);
                    prop_assert!(error.to_string().contains('^'));
                }
            }
        }
    }

    #[test]
    fn the_rule_of_the_founding_report_is_understood() {
        let Ok(Command::Create(0, rule)) = parse_command(FOUNDING) else { panic!("{FOUNDING}") };
        assert_eq!(
            rule.to_string(),
            "ingress pattern eth / ipv4 src spec 10.0.0.0 src prefix 8 / udp dst is 53 / \
             end actions queue index 0 / count / end"
        );
    }

    #[test]
    fn the_other_commands_are_understood() {
        for (line, command) in [
            ("flow destroy 1 rule 3 rule 4", Command::Destroy(1, vec![3, 4])),
            ("flow flush 2", Command::Flush(2)),
            ("flow query 0 7 count", Command::Query(0, 7)),
            ("flow list 0", Command::List(0, vec![])),
            ("flow list 0 group 1 group 2", Command::List(0, vec![1, 2])),
        ] {
            assert_eq!(parse_command(line).unwrap_or_else(|e| panic!("{e}")), command);
        }
    }

    #[track_caller]
    fn refuses(line: &str, column: usize, found: &str, expected: &str) {
        let error = parse_command(line).expect_err(line);
        assert_eq!((error.column, error.found.as_str()), (column, found), "{error}");
        assert!(error.expected.contains(expected), "{error}");
    }

    #[test]
    fn errors_show_the_place_what_stood_there_and_what_was_expected() {
        refuses("flow crate 0", 6, "crate", "did you mean `create`?");
        refuses("flow create x", 13, "x", "a port number");
        refuses("flow create 0 pattern eth / end", 15, "pattern", "`ingress`");
        refuses("flow create 0 egress pattern", 15, "egress", "what comes in");
        let pattern = |rest: &str| format!("flow create 0 ingress pattern {rest}");
        refuses(&pattern("eth / ipv4 scr is 1.2.3.4 / end"), 42, "scr", "did you mean `src`?");
        refuses(&pattern("eth / ipv4 src is 1.2.3 / end"), 49, "1.2.3", "an IPv4 address");
        refuses(&pattern("ipv4 src is 1.2.3.4/33 / end"), 43, "1.2.3.4/33", "0 to 32 bits");
        refuses(&pattern("udp dst is 70000 / end"), 42, "70000", "65535 is the most");
        refuses(&pattern("udp / ipv4 / end"), 37, "ipv4", "behind `udp`");
        refuses(&pattern("ipv4 / ipv6 / end"), 38, "ipv6", "behind `ipv4`");
        refuses(&pattern("vxlan / eth / end"), 39, "eth", "inside VXLAN");
        refuses(&pattern("udp dst mask 3 / end"), 35, "dst", "needs a value");
        refuses(&pattern("udp dst spec 9 dst last 3 / end"), 35, "dst", "range");
        refuses(&pattern("udp dst is 9 dst is 3 / end"), 48, "is", "already");
        refuses(&pattern("eth / end"), 40, "", "`actions`");
        let actions = |rest: &str| pattern(&format!("end actions {rest}"));
        refuses(&actions("drop / queue index 0 / end"), 50, "queue", "`drop` has decided");
        refuses(&actions("count / count / end"), 51, "count", "once");
        refuses(&actions("end"), 43, "end", "at least one");
        refuses(&actions("queue 0 / end"), 49, "0", "`index`");
        refuses(&actions("rss types ip end / end"), 47, "types", "cannot be set");
        refuses(&actions("drop / end more"), 54, "more", "the end of the line");
    }

    #[test]
    fn the_caret_stands_below_the_word() {
        let error = parse_command("flow crate 0").expect_err("no verb").to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[1].find("crate"), lines[2].find('^'), "{error}");
    }

    #[test]
    fn a_line_beyond_the_limit_is_refused_whatever_it_holds() {
        let line = format!("flow create 0 {}", "é".repeat(TEXT_BYTES_MAX));
        assert!(parse_command(&line).expect_err("too long").expected.contains("the most"));
    }
}
