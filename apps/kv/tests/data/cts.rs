//! The compatibility test suite for Redis (`cts.json`): every case up to version 7.0 whose commands are all commands of
//! the data. `LANEWAY_CTS=FILE` names it; without the variable it is looked for beside the tree.
use crate::client::{Args, Local, find, shown};
use laneway_kv::Store;
use serde_json::Value;

const VERSION_MAX: [u64; 3] = [7, 0, u64::MAX];
/// What the least of servers knows besides.
const SERVER: [&str; 1] = ["select"];

#[test]
fn the_cases_on_data_pass() {
    let (named, beside) = (std::env::var_os("LANEWAY_CTS"), laneway_testkit::root());
    let file = match &named {
        Some(file) => beside.join(file),
        None => beside.join("../shared/kv/cts.json"),
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(why) if named.is_some() => panic!("LANEWAY_CTS names {}: {why}", file.display()),
        Err(_) => return laneway_testkit::skip("LANEWAY_CTS names no cts.json"),
    };
    let cases: Vec<Value> = serde_json::from_str(&text).expect("cts.json is JSON");
    let (mut passed, mut failed, mut others) = (0, Vec::new(), 0);
    for case in &cases {
        let commands: Vec<Args> = case["command"]
            .as_array()
            .expect("a case has commands")
            .iter()
            .map(|command| words(command.as_str().expect("a command is text")))
            .collect();
        let knows = |args: &Args| {
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let name = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
            find(&args).is_some() || SERVER.contains(&name.as_str())
        };
        let is_for_cluster = case["tags"] == "cluster";
        if !is_in_version(case) || is_for_cluster || !commands.iter().all(knows) {
            others += 1;
            continue;
        }
        match run(case, &commands) {
            Ok(()) => passed += 1,
            Err(why) => failed.push(format!("{}: {why}", case["name"])),
        }
    }
    eprintln!(
        "cts.json: {passed} of {} cases on data pass, {others} others",
        passed + failed.len()
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn is_in_version(case: &Value) -> bool {
    let since = case["since"].as_str().unwrap_or("0");
    let numbers: Vec<u64> = since.split('.').map(|n| n.parse().unwrap_or(0)).collect();
    numbers.as_slice() <= VERSION_MAX.as_slice()
}

/// Words between blanks; quotes hold blanks, and `\xff` is a byte.
fn words(command: &str) -> Args {
    let (mut args, mut word, mut quoted) = (Args::new(), None::<Vec<u8>>, false);
    let mut bytes = command.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            b' ' if !quoted => args.extend(word.take()),
            b'\\' if quoted => {
                let escaped = match bytes.next() {
                    Some(b'x') => {
                        let digits =
                            [bytes.next(), bytes.next()].map(|digit| digit.unwrap_or(b'0'));
                        let digits = String::from_utf8_lossy(&digits).into_owned();
                        u8::from_str_radix(&digits, 16).expect("two digits")
                    }
                    Some(b'n') => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    other => other.unwrap_or(b'\\'),
                };
                word.get_or_insert_default().push(escaped);
            }
            byte => word.get_or_insert_default().push(byte),
        }
    }
    args.extend(word);
    args
}

fn run(case: &Value, commands: &[Args]) -> Result<(), String> {
    let is_binary = case["command_binary"] == true;
    let mut local = Local::new(Store::with_seed(1), 1_700_000_000_000);
    let results = case["result"].as_array().expect("a case has results");
    for (args, expected) in commands.iter().zip(results) {
        let args: Args = match is_binary {
            true => args.iter().map(|arg| unescaped(arg)).collect(),
            false => args.clone(),
        };
        let reply = local.ask(&args);
        let found = value(&mut &reply[..]);
        let found = if case["sort_result"] == true { sorted(found) } else { found };
        let expected = expected.clone();
        let expected = if case["sort_result"] == true { sorted(expected) } else { expected };
        if !is_same(&found, &expected) {
            let command = args.iter().map(|arg| shown(arg)).collect::<Vec<_>>().join(" ");
            return Err(format!("{command}: {found} and not {expected}"));
        }
    }
    Ok(())
}

/// Escapes of a case that holds bytes.
fn unescaped(arg: &[u8]) -> Vec<u8> {
    let quoted = [b"\"", arg, b"\""].concat();
    words(&String::from_utf8_lossy(&quoted)).swap_remove(0)
}

/// A reply as cts.json writes it.
fn value(reply: &mut &[u8]) -> Value {
    let end = reply.iter().position(|byte| *byte == b'\r').expect("a line ends");
    let line = String::from_utf8_lossy(&reply[1..end]).into_owned();
    let kind = reply[0];
    *reply = &reply[end + 2..];
    let len = line.parse::<i64>();
    match (kind, len) {
        (b':', Ok(number)) => number.into(),
        (b'$' | b'*', Ok(-1)) => Value::Null,
        (b'$', Ok(len)) => {
            let (text, rest) = reply.split_at(len as usize);
            *reply = &rest[2..];
            String::from_utf8_lossy(text).into_owned().into()
        }
        (b'*', Ok(len)) => (0..len).map(|_| value(reply)).collect(),
        _ => line.into(),
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Array(mut elements) => {
            elements.sort_by_key(Value::to_string);
            elements.into()
        }
        value => value,
    }
}

/// The same, or numbers that are as near as their text.
fn is_same(found: &Value, expected: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::String(text) => text.parse::<f64>().ok(),
        value => value.as_f64(),
    };
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(one, other)| is_same(one, other))
        }
        _ if found == expected => true,
        _ => match (number(found), number(expected)) {
            (Some(one), Some(other)) => (one - other).abs() < 1e-9,
            _ => false,
        },
    }
}
