//! Chrome trace JSON: an array of events, or an object with `traceEvents`.
//!
//! Parsed as a stream, event by event; what is kept of each is 24 bytes. Read are `X` (a call), `B` and `E`, `i` (a
//! point), `C` (a counter: its first number) and the names of threads (`M`). Times are microseconds from a moment that
//! the format does not tell. The closing bracket may be missing, as the format allows; what else does not parse ends
//! the reading, with its offset.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::about::ReadError;
use crate::delivery::Delivery;
use crate::event::{Damage, Event, FunctionKey, Kind, Thread};
use crate::shelf::Shelf;
use crate::symbols::Symbols;

/// True if `start`, the first bytes of a file, looks like JSON.
pub(crate) fn is(start: &[u8]) -> bool {
    let mut bytes = start.iter().skip_while(|byte| byte.is_ascii_whitespace());
    matches!(bytes.next(), Some(b'{' | b'['))
}

/// One event, as far as it is used.
#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: Option<f64>,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(default)]
    pid: Option<Label>,
    #[serde(default)]
    tid: Option<Label>,
    #[serde(default)]
    args: Option<Args>,
}

/// A number or text; anything else is nothing.
#[derive(Debug, Default)]
enum Label {
    Whole(i128),
    Number(f64),
    Text(String),
    #[default]
    Other,
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Label;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_u64<E>(self, value: u64) -> Result<Label, E> {
                Ok(Label::Whole(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Label, E> {
                Ok(Label::Whole(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Label, E> {
                Ok(Label::Number(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Label, E> {
                Ok(Label::Text(value.to_owned()))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Label, E> {
                Ok(Label::Other)
            }
            fn visit_unit<E>(self) -> Result<Label, E> {
                Ok(Label::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Label, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Label::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Label, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Label::Other)
            }
        }
        input.deserialize_any(Any)
    }
}

impl Label {
    /// The number of a process or thread, or the text of what is none: a handle of 64 bits, a name.
    fn number(self) -> Result<u32, String> {
        match self {
            Self::Whole(number) => u32::try_from(number).map_err(|_| number.to_string()),
            Self::Number(number) if number == f64::from(number as u32) => Ok(number as u32),
            Self::Number(number) => Err(number.to_string()),
            Self::Text(text) => Err(text),
            Self::Other => Ok(0),
        }
    }
}

/// Arguments: the first number, and the text called `name`.
#[derive(Debug, Default)]
struct Args {
    number: Option<f64>,
    name: Option<String>,
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Args;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Args, A::Error> {
                let mut args = Args::default();
                while let Some((key, value)) = map.next_entry::<String, Label>()? {
                    match value {
                        Label::Whole(number) if args.number.is_none() => {
                            args.number = Some(number as f64);
                        }
                        Label::Number(number) if args.number.is_none() => {
                            args.number = Some(number);
                        }
                        Label::Text(text) if key == "name" => args.name = Some(text),
                        _ => {}
                    }
                }
                Ok(args)
            }
            fn visit_unit<E>(self) -> Result<Args, E> {
                Ok(Args::default())
            }
            fn visit_str<E>(self, _: &str) -> Result<Args, E> {
                Ok(Args::default())
            }
        }
        input.deserialize_any(Any)
    }
}

/// The document: passes each event on as it is parsed.
struct Document<'t, 's>(&'t mut Taker<'s>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events or an object with `traceEvents`")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        rows(self.0, seq)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        struct List<'t, 's>(&'t mut Taker<'s>);
        impl<'de> DeserializeSeed<'de> for List<'_, '_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
                input.deserialize_seq(self)
            }
        }
        impl<'de> Visitor<'de> for List<'_, '_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of events")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
                rows(self.0, seq)
            }
        }
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                map.next_value_seed(List(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn rows<'de, A: SeqAccess<'de>>(taker: &mut Taker<'_>, mut seq: A) -> Result<(), A::Error> {
    while let Some(row) = seq.next_element::<Row>()? {
        taker.take(row);
    }
    Ok(())
}

struct Taker<'s> {
    shelf: &'s mut Shelf,
    symbols: &'s mut Symbols,
    skipped: u64,
}

impl Taker<'_> {
    fn take(&mut self, row: Row) {
        let mut of = String::new();
        let mut number = |label: Label| {
            label.number().unwrap_or_else(|text| {
                // `ab` of process `c` is not `b` of process `ca`.
                if !of.is_empty() {
                    of.push(' ');
                }
                of.push_str(&text);
                0
            })
        };
        let pid = number(row.pid.unwrap_or_default());
        // uftrace writes the thread as `pid` and no `tid`.
        let tid = row.tid.map_or(pid, number);
        let thread = Thread { pid, tid, name: of.clone() };
        if row.ph == "M" {
            if let ("thread_name", Some(name)) =
                (row.name.as_str(), row.args.and_then(|args| args.name))
            {
                let place = self.shelf.thread(&thread, &of);
                self.shelf.rename(place, name);
            }
            return;
        }
        let Some(time_ns) = row.ts.map(nanoseconds) else {
            self.skipped += 1;
            return;
        };
        let place = self.shelf.thread(&thread, &of);
        let kind = match row.ph.as_str() {
            "X" => {
                let key = self.function(&row.name);
                let end = time_ns.saturating_add(nanoseconds(row.dur.unwrap_or(0.0)));
                self.shelf.span(place, time_ns, end, Kind::Enter(key), Kind::Leave(key));
                return;
            }
            "B" => Kind::Enter(self.function(&row.name)),
            "E" if row.name.is_empty() => Kind::LeaveInnermost,
            "E" => Kind::Leave(self.function(&row.name)),
            "i" | "I" | "R" => Kind::Point { point: self.point(&row.name), value: 0 },
            "C" => {
                let number = row.args.and_then(|args| args.number).unwrap_or(0.0);
                Kind::Point { point: self.point(&row.name), value: number as u64 }
            }
            _ => {
                self.skipped += 1;
                return;
            }
        };
        self.shelf.put(place, Event { time_ns, kind });
    }

    /// The key of a function; what is left out needs none.
    fn function(&mut self, name: &str) -> FunctionKey {
        if self.shelf.is_full() { FunctionKey(0) } else { self.symbols.number_function(name, "") }
    }

    /// ... and the number of a point.
    fn point(&mut self, name: &str) -> u32 {
        if self.shelf.is_full() { 0 } else { self.symbols.number_point(name) }
    }
}

fn nanoseconds(microseconds: f64) -> u64 {
    (microseconds * 1000.0).round() as u64 // saturates, and 0 for what is negative or no number
}

/// Counts what was read, for the offset of a damage, and keeps its first byte and the last one that is no blank.
struct Counted<R> {
    input: R,
    bytes: u64,
    first: Option<u8>,
    last: Option<u8>,
}

impl<R> Counted<R> {
    /// True for an array without its closing bracket, which the format allows: the last thing in it is whole.
    fn ends_open(&self) -> bool {
        self.first == Some(b'[') && matches!(self.last, Some(b'}' | b',' | b'['))
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        let read_bytes = &buffer[..read];
        self.first = self.first.or_else(|| read_bytes.first().copied());
        let last = read_bytes.iter().rfind(|byte| !byte.is_ascii_whitespace());
        self.last = last.copied().or(self.last);
        Ok(read)
    }
}

/// Passes all events on; `path` is what the input is called.
///
/// # Errors
/// [`ReadError`] if `file` fails.
pub(crate) fn read(
    mut file: impl BufRead,
    path: &Path,
    delivery: &mut Delivery<'_>,
    symbols: &mut Symbols,
) -> Result<(), ReadError> {
    let io = |offset, source| ReadError::Io { path: path.into(), offset, source };
    let empty = file.fill_buf().map_err(|source| io(0, source))?.is_empty();
    let place = path.display().to_string();
    let mut shelf = Shelf::default();
    let mut skipped = 0;
    if !empty {
        let mut taker = Taker { shelf: &mut shelf, symbols, skipped: 0 };
        let mut counted = Counted { input: file, bytes: 0, first: None, last: None };
        let mut input = serde_json::Deserializer::from_reader(&mut counted);
        let done = Document(&mut taker).deserialize(&mut input);
        skipped = taker.skipped;
        if let Err(error) = done {
            let offset = counted.bytes;
            if error.is_io() {
                return Err(io(offset, error.into()));
            }
            if !(error.is_eof() && counted.ends_open()) {
                let what = format!("{error}; what follows is left out");
                delivery.damage(Damage { place: place.clone(), offset, what });
                shelf.cut();
            }
        }
    }
    if skipped > 0 {
        let what = format!(
            "{skipped} events of a kind that is not read (flows, asynchronous, without time)"
        );
        delivery.damage(Damage { place: place.clone(), offset: 0, what });
    }
    shelf.deliver(&place, delivery);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Producer;
    use crate::testing::{Log, read_text};

    fn check(json: &str) -> Log {
        let log = read_text(json);
        assert_eq!(log.producer, Some(Producer::Chrome));
        log
    }

    #[test]
    fn spans_nest_however_they_are_written() {
        // The inner one is written first, because it ends first; it begins together with the outer one.
        let log = check(
            r#"{"displayTimeUnit": "ns", "traceEvents": [
                {"ph": "X", "name": "inner", "ts": 1, "dur": 2, "pid": 7, "tid": 8, "args": {"a": [1, {"b": null}]}},
                {"ph": "X", "name": "outer", "ts": 1, "dur": 5.5, "pid": 7, "tid": 8},
                {"ph": "X", "name": "next", "ts": 3, "dur": 0, "pid": 7, "tid": 8},
                {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "worker"}}]}"#,
        );
        assert_eq!(
            log.calls(),
            [
                "1000 +outer",
                "1000 +inner",
                "3000 -inner",
                "3000 +next",
                "3000 -next",
                "6500 -outer"
            ]
        );
        assert_eq!(log.threads[0].name, "worker");
    }

    #[test]
    fn of_equal_spans_the_last_written_is_the_innermost() {
        let span = |name: &str, dur: u32| {
            format!(r#"{{"ph":"X","name":"{name}","ts":1,"dur":{dur},"pid":7,"tid":8}}"#)
        };
        let spans = [span("a", 2), span("b", 2), span("c", 2), span("d", 0), span("e", 0)];
        assert_eq!(
            check(&format!("[{}]", spans.join(","))).calls(),
            [
                "1000 +a", "1000 +b", "1000 +c", "1000 +d", "1000 -d", "1000 +e", "1000 -e",
                "3000 -c", "3000 -b", "3000 -a"
            ]
        );
    }

    #[test]
    fn what_has_no_room_on_the_shelf_is_not_named() {
        let (mut shelf, mut symbols) = (Shelf::of(1), Symbols::default());
        let mut taker = Taker { shelf: &mut shelf, symbols: &mut symbols, skipped: 0 };
        for (ph, name) in [("i", "kept"), ("i", "a"), ("C", "b"), ("B", "c"), ("X", "d")] {
            let text = format!(r#"{{"ph":"{ph}","name":"{name}","ts":1,"pid":1,"tid":"{name}"}}"#);
            taker.take(serde_json::from_str(&text).expect("a row"));
        }
        assert_eq!(symbols.points(), ["kept"]);
        assert!(symbols.function(FunctionKey(0)).name.starts_with("0x"), "no function is named");
    }

    #[test]
    fn an_array_may_lack_its_end_and_nothing_else() {
        let open = r#"[{"ph":"B","name":"f","ts":1,"pid":1,"tid":1},
            {"ph":"E","ts":2,"pid":1,"tid":1},"#;
        let log = check(open);
        assert_eq!(log.events.len(), 2);
        assert_eq!(log.events[1].2.kind, Kind::LeaveInnermost);
        assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
        assert!(log.losses.is_empty(), "{:?}", log.losses);
        let log = check(&open[..open.len() - 12]);
        assert_eq!((log.events.len(), log.read.damages.len()), (1, 1));
        assert!(log.read.damages[0].offset > 0);
        let (loss, threads, before) = &log.losses[0];
        assert_eq!((loss.from_ns, loss.to_ns, loss.events), (1000, 1000, None));
        assert_eq!((log.losses.len(), threads.len(), *before), (1, 1, 1));
    }

    #[test]
    fn threads_are_known_by_process_and_number_and_large_numbers_by_their_text() {
        let spans = |threads: [(&str, &str); 2]| {
            let span = |(pid, tid): (&str, &str)| {
                format!(r#"{{"ph":"X","name":"f","ts":1,"dur":2,"pid":{pid},"tid":{tid}}}"#)
            };
            check(&format!("[{}]", threads.map(span).join(",")))
        };
        for threads in [
            [("0", "7"), ("1", "7")],
            [("1", "7"), ("0", "7")],
            [("3", "8589934592"), ("3", "8589934593")],
            [("3", "18446744073709551614"), ("3", "18446744073709551615")],
            [("3", "-1"), ("3", "0")],
            [(r#""c""#, r#""ab""#), (r#""ca""#, r#""b""#)],
        ] {
            let log = spans(threads);
            assert_eq!(log.threads.len(), 2, "{threads:?}: {:?}", log.threads);
            assert_eq!(log.events.len(), 4);
        }
        assert_eq!(spans([("3", "7"), ("3", "7.0")]).threads.len(), 1);
        assert_eq!(spans([("3", "8589934592"), ("3", "1")]).threads[0].name, "8589934592");
    }

    #[test]
    fn counters_and_points_keep_name_and_value() {
        let log = check(
            r#"[{"ph":"C","name":"free","ts":0.5,"pid":"a","args":{"mbufs":12}},
                {"ph":"i","name":"mark","ts":1,"pid":"a"},{"ph":"s","ts":1}]"#,
        );
        assert_eq!(log.events[0].2.kind, Kind::Point { point: 0, value: 12 });
        assert_eq!(log.events[1].2.kind, Kind::Point { point: 1, value: 0 });
        assert!(log.read.damages[0].what.contains("1 events"), "{:?}", log.read.damages);
    }
}
