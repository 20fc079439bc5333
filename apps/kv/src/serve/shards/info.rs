//! INFO of all workers as one text.
//!
//! A line is summed over the workers if it is a number on all, unless a row says otherwise; so are the fields of a line
//! that has some (`db0`, `cmdstat_get`). Other texts that differ stand behind each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// How a line of several workers is one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// That of worker 0.
    First,
    Most,
    Least,
    Sum,
    /// Names, as [`names`] writes them: how many there are, each counted once.
    Names,
}

/// Lines that are not summed. Times of something that has not been are -1.
const RULES: &[(&str, Rule)] = &[
    ("aof_current_rewrite_time_sec", Rule::Most),
    ("aof_enabled", Rule::First),
    ("aof_last_rewrite_time_sec", Rule::Most),
    ("aof_rewrite_in_progress", Rule::Most),
    ("aof_rewrite_scheduled", Rule::Most),
    ("aof_synced_commands_max", Rule::Most),
    ("arch_bits", Rule::First),
    ("client_recent_max_output_buffer", Rule::Most),
    ("cluster_enabled", Rule::First),
    ("connected_slaves", Rule::First),
    ("hz", Rule::First),
    ("laneway_version", Rule::First),
    ("laneway_workers", Rule::First),
    ("loading", Rule::Most),
    ("maxclients", Rule::First),
    ("maxmemory", Rule::First),
    ("maxmemory_per_worker", Rule::First),
    ("process_id", Rule::First),
    ("pubsub_channels", Rule::Names),
    ("pubsub_patterns", Rule::Names),
    ("pubsubshard_channels", Rule::Names),
    ("rdb_bgsave_in_progress", Rule::Most),
    ("rdb_current_bgsave_time_sec", Rule::Most),
    ("rdb_last_bgsave_time_sec", Rule::Most),
    ("rdb_last_save_time", Rule::Least),
    ("rdb_saves", Rule::Least),
    ("redis_version", Rule::First),
    ("run_id", Rule::First),
    ("server_time_usec", Rule::First),
    ("tcp_port", Rule::First),
    ("uptime_in_days", Rule::First),
    ("uptime_in_seconds", Rule::First),
    ("used_cpu_sys", Rule::First),
    ("used_cpu_sys_children", Rule::First),
    ("used_cpu_user", Rule::First),
    ("used_cpu_user_children", Rule::First),
    ("used_memory_rss", Rule::First),
];

/// Names of any bytes in a worker's line, for all workers to count each once.
pub(crate) fn names<'a>(names: impl Iterator<Item = &'a [u8]>) -> String {
    let mut text = String::new();
    for name in names {
        // An empty one is one, too.
        text.push(if text.is_empty() { '=' } else { ',' });
        for byte in name {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

/// A line's name, with what each worker says.
type Line<'a> = (&'a str, Vec<&'a str>);

/// One text of those of all workers.
pub(crate) fn join(texts: &[String]) -> String {
    // In the order in which they are seen first.
    let mut sections: Vec<(&str, Vec<Line<'_>>)> = Vec::new();
    for text in texts {
        let mut at = 0;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# ") {
                at = sections.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    sections.push((name, Vec::new()));
                    sections.len() - 1
                });
            } else if let Some((name, value)) = line.split_once(':')
                && let Some((_, lines)) = sections.get_mut(at)
            {
                match lines.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => values.push(value),
                    None => lines.push((name, vec![value])),
                }
            }
        }
    }
    let mut text = String::new();
    for (name, mut lines) in sections {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text += &format!("# {name}\r\n");
        if name == "Keyspace" {
            // A database that worker 0 has no keys of stands in its place all the same.
            lines.sort_by_key(|(name, _)| name.trim_start_matches("db").parse::<u32>().ok());
        }
        for (name, values) in lines {
            text += &format!("{name}:{}\r\n", one(name, &values));
        }
    }
    text
}

/// One value of those of all workers.
fn one(name: &str, values: &[&str]) -> String {
    let rule = RULES.iter().find(|(known, _)| *known == name).map_or(Rule::Sum, |(_, rule)| *rule);
    if rule == Rule::Names {
        let lists = values.iter().filter_map(|value| value.strip_prefix('='));
        let names: BTreeSet<&str> = lists.flat_map(|list| list.split(',')).collect();
        return names.len().to_string();
    }
    if rule == Rule::First || values.iter().all(|value| *value == values[0] && !is_number(value)) {
        return if values[0].contains('=') { sum_of_fields(values) } else { values[0].to_owned() };
    }
    let numbers: Option<Vec<i128>> = values.iter().map(|value| value.parse().ok()).collect();
    if let Some(numbers) = numbers {
        let number = match rule {
            Rule::Most => numbers.iter().copied().max().unwrap_or(0),
            Rule::Least => numbers.iter().copied().min().unwrap_or(0),
            _ => numbers.iter().sum(),
        };
        return number.to_string();
    }
    if values.iter().all(|value| value.contains('=')) {
        return sum_of_fields(values);
    }
    // One that failed is what an operator looks for.
    if values.contains(&"err") { "err".to_owned() } else { values.join("; ") }
}

fn is_number(value: &str) -> bool {
    value.parse::<i128>().is_ok()
}

/// `calls=1,usec=7,usec_per_call=7.00`.
fn sum_of_fields(values: &[&str]) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, value) in
        values.iter().flat_map(|value| value.split(',')).filter_map(|f| f.split_once('='))
    {
        if !order.contains(&name) {
            order.push(name);
        }
        *sums.entry(name).or_default() += value.parse().unwrap_or(0);
    }
    let of = |name| sums.get(name).copied().unwrap_or(0);
    let fields = order.iter().map(|&name| match name {
        "usec_per_call" => format!("{name}={:.2}", of("usec") as f64 / of("calls").max(1) as f64),
        name => format!("{name}={}", of(name)),
    });
    fields.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_summed_and_facts_are_not() {
        let texts = [
            "# Server\r\nrun_id:a1\r\nhz:10\r\nlast_status:ok\r\n\r\n# Keyspace\r\ndb1:keys=2,expires=1,avg_ttl=0\r\n",
            "# Server\r\nrun_id:b2\r\nhz:10\r\nlast_status:err\r\n\r\n# Keyspace\r\ndb0:keys=5,expires=0,avg_ttl=0\r\n\
             db1:keys=1,expires=0,avg_ttl=0\r\n",
        ];
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        assert_eq!(
            join(&texts),
            "# Server\r\nrun_id:a1\r\nhz:10\r\nlast_status:err\r\n\r\n# Keyspace\r\n\
             db0:keys=5,expires=0,avg_ttl=0\r\ndb1:keys=3,expires=1,avg_ttl=0\r\n"
        );
    }

    #[test]
    fn a_line_is_one_by_its_rule() {
        for (name, values, value) in [
            ("connected_clients", ["2", "3"], "5"),
            ("connected_clients", ["2", "2"], "4"),
            ("maxclients", ["7", "7"], "7"),
            ("rdb_last_bgsave_time_sec", ["-1", "3"], "3"),
            ("rdb_last_save_time", ["9", "8"], "8"),
            ("appendfsync", ["always", "always"], "always"),
            ("aof_recovered", ["2 records", "1 record"], "2 records; 1 record"),
            ("pubsub_channels", ["", ""], "0"),
            ("pubsub_channels", ["=", ""], "1"),
            ("pubsub_patterns", ["=31,,32", "=32,"], "3"),
            (
                "cmdstat_get",
                ["calls=1,usec=3,usec_per_call=3.00", "calls=3,usec=5,usec_per_call=1.67"],
                "calls=4,usec=8,usec_per_call=2.00",
            ),
            (
                "cmdstat_get",
                ["calls=1,usec=3,usec_per_call=3.00", "calls=1,usec=3,usec_per_call=3.00"],
                "calls=2,usec=6,usec_per_call=3.00",
            ),
        ] {
            assert_eq!(one(name, &values), value, "{name} of {values:?}");
        }
    }
}
