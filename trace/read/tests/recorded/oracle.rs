//! babeltrace2, the reader of others, and what it says of a trace beside what this crate says.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use laneway_trace_read::Trace;

/// babeltrace2's text, line by line.
pub(crate) struct Babeltrace {
    child: Child,
}

impl Babeltrace {
    pub(crate) fn start(path: &Path) -> Option<Self> {
        let child = Command::new("babeltrace2")
            .args(["--clock-seconds", "--no-delta"])
            .arg(path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self { child }),
            Err(error) => {
                println!("skipped: babeltrace2 cannot be run: {error}");
                None
            }
        }
    }

    pub(crate) fn lines(&mut self) -> impl Iterator<Item = String> {
        let output = self.child.stdout.take().expect("piped above, taken once");
        BufReader::new(output).lines().map(|line| line.expect("babeltrace2 writes text"))
    }
}

impl Drop for Babeltrace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `[12.345] host name: { ...` to nanoseconds, name and fields.
pub(crate) fn parts(line: &str) -> Option<(u64, &str, &str)> {
    let (time, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let (seconds, part) = time.split_once('.')?;
    let time_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + part.parse::<u64>().ok()?;
    let (names, fields) = rest.split_once(": {")?;
    let name = names.rsplit(' ').next()?;
    Some((time_ns, name, fields))
}

pub(crate) fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = fields.split_once(&format!(" {name} = "))?;
    let end = rest.find([',', ' ']).unwrap_or(rest.len());
    Some(rest[..end].trim_matches('"'))
}

pub(crate) fn number(fields: &str, name: &str) -> u64 {
    let text = field(fields, name).unwrap_or_else(|| panic!("no {name} in {fields}"));
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).expect("a number"),
        None => text.parse().expect("a number"),
    }
}

/// All records of both, moment by moment: what happened in the same nanosecond has no order between streams.
pub(crate) fn same_records(path: &Path) -> Option<u64> {
    let mut oracle = Babeltrace::start(path)?;
    let mut theirs = oracle.lines().peekable();
    let trace = Trace::open(path).expect("a trace");
    let mut count = 0;
    let mut ours: Vec<String> = Vec::new();
    let mut at = 0;
    let mut compare = |ours: &mut Vec<String>, at: u64| {
        let mut expected = Vec::new();
        while let Some(line) = theirs.peek()
            && let Some((time_ns, name, fields)) = parts(line)
            && time_ns == at
        {
            expected.push(format!("{name}: {{{fields}"));
            theirs.next();
        }
        ours.sort();
        expected.sort();
        assert_eq!(*ours, expected, "at {at} ns");
        ours.clear();
    };
    trace
        .records(&mut |record| {
            if record.time_ns != at {
                compare(&mut ours, at);
                at = record.time_ns;
            }
            ours.push(format!("{}: {}", record.name, record.fields));
            count += 1;
        })
        .expect("files can be read");
    compare(&mut ours, at);
    assert_eq!(theirs.next(), None, "babeltrace2 has more");
    Some(count)
}
