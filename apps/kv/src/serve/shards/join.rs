//! One reply of the replies of all workers.
//!
//! Every worker answers its part by version 2 of the protocol; what is joined is written by the version that the client
//! speaks. An error of any part is the reply, the first one's by worker, except where a row says otherwise.

use super::info;
use laneway_resp::{Reply, Value, ValueLimits, Values};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

/// How replies become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// All say the same.
    Same,
    /// A number: the sum.
    Sum,
    /// A number: the least.
    Least,
    /// Arrays: all elements.
    Elements,
    /// Arrays of names: each once, in order.
    Names,
    /// Arrays of names: how many there are, each counted once.
    CountOfNames,
    /// Arrays of names, each followed by a number: the sums.
    SumOfPairs,
    /// Something or nothing: one of the somethings, by chance.
    AnyOne,
    /// CLIENT KILL: a sum; or OK if one says so.
    Killed,
    /// Texts of lines that begin with a number: in its order.
    Lines,
    /// INFO.
    Info,
    /// MEMORY STATS.
    Figures,
    /// SLOWLOG GET: the newest of all.
    Newest,
    /// ACL LOG: the same, by their age.
    Youngest,
}

/// Writes the one reply to a command of these parts.
pub(crate) fn join(join: Join, args: &[&[u8]], parts: &[Vec<u8>], out: &mut Reply) {
    let values: Option<Vec<Value>> = parts.iter().map(|part| value_of(part)).collect();
    let Some(values) = values else {
        return out.error("ERR a worker's part of the reply cannot be read");
    };
    let error = values.iter().find_map(|value| match value {
        Value::Error(text) => Some(text),
        _ => None,
    });
    if let Some(text) = error {
        let ok = Value::Simple(b"OK".to_vec());
        if join == Join::Killed && values.contains(&ok) {
            return out.ok();
        }
        return out.error_bytes(text);
    }
    match join {
        Join::Same => write(&values[0], out),
        Join::Killed if matches!(values[0], Value::Simple(_)) => out.ok(),
        Join::Sum | Join::Killed => out.integer(values.iter().map(number).sum()),
        Join::Least => out.integer(values.iter().map(number).min().unwrap_or(0)),
        Join::Elements => {
            write(&Value::Array(values.into_iter().flat_map(elements).collect()), out)
        }
        Join::Names => {
            write(&Value::Array(names(values).into_iter().map(Value::Bulk).collect()), out)
        }
        Join::CountOfNames => out.integer(names(values).len() as i64),
        Join::SumOfPairs => sum_of_pairs(values, out),
        Join::AnyOne => {
            let some: Vec<&Value> = values.iter().filter(|value| **value != Value::Null).collect();
            let drawn = RandomState::new().hash_one(some.len()) as usize;
            match some.get(drawn % some.len().max(1)) {
                Some(value) => write(value, out),
                None => out.null(),
            }
        }
        Join::Lines => {
            let texts = values.iter().map(text);
            let mut lines: Vec<String> = texts
                .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            lines.sort_by_key(|line| {
                let digits = line.chars().skip_while(|c| !c.is_ascii_digit());
                digits.take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().ok()
            });
            out.text(&lines.into_iter().map(|line| line + "\n").collect::<String>());
        }
        Join::Info => {
            let texts: Vec<String> = values.iter().map(text).collect();
            out.text(&info::join(&texts));
        }
        Join::Figures => figures(values, out),
        Join::Newest => newest(values, args, out),
        Join::Youngest => youngest(values, args, out),
    }
}

fn value_of(bytes: &[u8]) -> Option<Value> {
    // It is of this store's own, and may be as long as it is.
    let limits = ValueLimits { line_bytes_max: bytes.len().max(64), ..ValueLimits::default() };
    let (taken, value) = Values::new().next(bytes, &limits).ok()?;
    value.filter(|_| taken == bytes.len())
}

/// Version 2 has no other kinds.
fn write(value: &Value, out: &mut Reply) {
    match value {
        Value::Simple(text) => out.simple(&String::from_utf8_lossy(text)),
        Value::Error(text) => out.error_bytes(text),
        Value::Integer(number) => out.integer(*number),
        Value::Bulk(bytes) => out.bulk(bytes),
        Value::Array(elements) => {
            out.array(elements.len());
            elements.iter().for_each(|element| write(element, out));
        }
        _ => out.null(),
    }
}

fn number(value: &Value) -> i64 {
    if let Value::Integer(number) = value { *number } else { 0 }
}

fn elements(value: Value) -> Vec<Value> {
    if let Value::Array(elements) = value { elements } else { Vec::new() }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

fn names(values: Vec<Value>) -> BTreeSet<Vec<u8>> {
    let all = values.into_iter().flat_map(elements);
    all.filter_map(|name| if let Value::Bulk(name) = name { Some(name) } else { None }).collect()
}

/// Pairs stand in the same order in all parts.
fn sum_of_pairs(values: Vec<Value>, out: &mut Reply) {
    let mut parts = values.into_iter().map(elements);
    let mut sums = parts.next().unwrap_or_default();
    for part in parts {
        for (sum, more) in sums.iter_mut().zip(&part) {
            if let Value::Integer(sum) = sum {
                *sum += number(more);
            }
        }
    }
    write(&Value::Array(sums), out);
}

fn figures(values: Vec<Value>, out: &mut Reply) {
    let mut sums: Vec<(Vec<u8>, i64)> = Vec::new();
    for part in values {
        for (at, pair) in elements(part).chunks(2).enumerate() {
            let [Value::Bulk(name), figure] = pair else { continue };
            match sums.get_mut(at) {
                Some((_, sum)) => *sum += number(figure),
                None => sums.push((name.clone(), number(figure))),
            }
        }
    }
    let of =
        |wanted: &[u8]| sums.iter().find(|(name, _)| name == wanted).map_or(0, |(_, sum)| *sum);
    let per_key = of(b"dataset.bytes").checked_div(of(b"keys.count")).unwrap_or(0);
    out.map(sums.len());
    for (name, sum) in &sums {
        out.bulk(name);
        out.integer(if name == b"keys.bytes-per-key" { per_key } else { *sum });
    }
}

/// Entries are numbered and timed: `[id, seconds, ...]`.
fn newest(values: Vec<Value>, args: &[&[u8]], out: &mut Reply) {
    let count = args.get(2).and_then(|text| laneway_resp::integer(text)).unwrap_or(10);
    let mut entries: Vec<Value> = values.into_iter().flat_map(elements).collect();
    let at = |entry: &Value| match entry {
        Value::Array(fields) => (fields.get(1).map_or(0, number), fields.first().map_or(0, number)),
        _ => (0, 0),
    };
    entries.sort_by_key(|entry| std::cmp::Reverse(at(entry)));
    entries.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    write(&Value::Array(entries), out);
}

/// Entries are names and values: `[..., age-seconds, 0.5, client-info, ...]`.
fn youngest(values: Vec<Value>, args: &[&[u8]], out: &mut Reply) {
    if let Value::Simple(_) = values[0] {
        return out.ok();
    }
    const AGE: usize = 11;
    let count = args.get(2).and_then(|text| laneway_resp::integer(text)).unwrap_or(10);
    let mut entries: Vec<(f64, Vec<Value>)> = values
        .into_iter()
        .flat_map(elements)
        .map(elements)
        .map(|fields| {
            (fields.get(AGE).and_then(|age| text(age).parse().ok()).unwrap_or(0.0), fields)
        })
        .collect();
    entries.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    entries.truncate(usize::try_from(count).unwrap_or(0));
    out.array(entries.len());
    for (age_s, fields) in entries {
        out.map(fields.len() / 2);
        for (at, field) in fields.iter().enumerate() {
            if at == AGE { out.double(age_s) } else { write(field, out) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_resp::Protocol;

    fn joined(how: Join, args: &str, parts: &[&str]) -> String {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        let args: Vec<&[u8]> = args.split(' ').map(str::as_bytes).collect();
        let mut out = Reply::new(Protocol::Resp3);
        join(how, &args, &parts, &mut out);
        String::from_utf8_lossy(out.bytes()).into_owned()
    }

    #[test]
    fn attempts_of_all_workers_are_one_log() {
        let attempt = |object: &str, age: &str| {
            let names = ["reason", "context", "object", "username", "age-seconds", "client-info"];
            let values = ["key", "toplevel", object, "ann", age, "id=1"];
            let mut out = Reply::default();
            out.array(14);
            out.bulk(b"count");
            out.integer(1);
            for (name, value) in names.iter().zip(values) {
                out.bulk(name.as_bytes());
                out.bulk(value.as_bytes());
            }
            String::from_utf8_lossy(out.bytes()).into_owned()
        };
        let first = format!("*2\r\n{}{}", attempt("a", "0.5"), attempt("b", "10"));
        let second = format!("*1\r\n{}", attempt("c", "2"));
        let log = joined(Join::Youngest, "acl log 2", &[&first, &second]);
        assert!(log.starts_with("*2\r\n%7\r\n"), "{log}");
        let places = ["\r\na\r\n", ",0.5\r\n", "\r\nc\r\n", ",2\r\n"].map(|text| log.find(text));
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{log}");
        assert!(!log.contains("\r\nb\r\n"), "{log}");
    }

    #[test]
    fn parts_become_one_reply() {
        for (how, parts, reply) in [
            (Join::Same, ["+OK\r\n", "+OK\r\n"], "+OK\r\n"),
            (Join::Same, ["+OK\r\n", "-ERR no\r\n"], "-ERR no\r\n"),
            (Join::Sum, [":2\r\n", ":40\r\n"], ":42\r\n"),
            (Join::Least, [":2\r\n", ":40\r\n"], ":2\r\n"),
            (Join::Elements, ["*1\r\n$1\r\na\r\n", "*0\r\n"], "*1\r\n$1\r\na\r\n"),
            (
                Join::Names,
                ["*2\r\n$1\r\nb\r\n$1\r\nc\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"],
                "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
            ),
            (Join::CountOfNames, ["*1\r\n$1\r\nb\r\n", "*1\r\n$1\r\nb\r\n"], ":1\r\n"),
            (
                Join::SumOfPairs,
                ["*2\r\n$1\r\nb\r\n:1\r\n", "*2\r\n$1\r\nb\r\n:2\r\n"],
                "*2\r\n$1\r\nb\r\n:3\r\n",
            ),
            (Join::AnyOne, ["$-1\r\n", "$1\r\nk\r\n"], "$1\r\nk\r\n"),
            (Join::AnyOne, ["$-1\r\n", "$-1\r\n"], "_\r\n"),
            (Join::Killed, ["-ERR No such client\r\n", "+OK\r\n"], "+OK\r\n"),
            (Join::Killed, [":0\r\n", ":1\r\n"], ":1\r\n"),
            (
                Join::Lines,
                ["$11\r\nid=2\nid=11\n\r\n", "$5\r\nid=3\n\r\n"],
                "=20\r\ntxt:id=2\nid=3\nid=11\n\r\n",
            ),
            (
                Join::Newest,
                ["*2\r\n*2\r\n:2\r\n:7\r\n*2\r\n:0\r\n:5\r\n", "*1\r\n*2\r\n:1\r\n:6\r\n"],
                "*2\r\n*2\r\n:2\r\n:7\r\n*2\r\n:1\r\n:6\r\n",
            ),
            (Join::Youngest, ["+OK\r\n", "+OK\r\n"], "+OK\r\n"),
            (Join::Sum, [":2\r\n", ""], "-ERR a worker's part of the reply cannot be read\r\n"),
        ] {
            assert_eq!(joined(how, "slowlog get 2", &parts), reply, "{how:?} of {parts:?}");
        }
    }
}
