//! Chrome's trace JSON, as Perfetto and `chrome://tracing` open it.
//!
//! One object per call (`X`), so nesting is a matter of times alone; [`Nest`](crate::Nest) sees to it. Where a call and
//! its caller begin in the same nanosecond (at the edge of a window all open calls do), readers take the order of the
//! file for the order of the calls: there the caller stands first, and its callee is held back until the caller has
//! ended. Times are microseconds with three decimals from the origin of the export: counted from the epoch they would
//! need more digits than a JavaScript number has. What was left out stands in `otherData`, at the end of the file.

use crate::moments::{Curves, Mark, Point, instant_name};
use crate::names::{Interned, Names, category};
use crate::nest::{CallFrame, Calls, Ended, LeftOut};
use crate::output::{ExportError, Output, Written};
use laneway_trace_read::{Kind, Loss, Thread, ThreadId};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// Bytes after which no further call is written: `chrome://tracing` gives up on more.
pub const CHROME_BYTES_MAX: u64 = 256 << 20;
/// Calls held back for one caller; further ones, of a clock that stands still, are written as they end.
const HELD_MAX: usize = 4096;
/// Threads of one process have numbers below this; those that we must invent lie above (`PID_MAX_LIMIT`).
const INVENTED_FROM: u64 = 1 << 22;

#[derive(Clone, Copy)]
struct Numbers {
    pid: u64,
    tid: u64,
}

/// A call that has begun, and the ended calls in it that began in the same moment, as JSON text.
struct Open {
    began_ns: u64,
    held: Vec<String>,
}

/// Writes Chrome JSON.
pub struct Chrome<'n, W> {
    out: Output<W>,
    names: &'n dyn Names,
    origin_ns: u64,
    bytes_max: u64,
    interned: Interned,
    /// Names as JSON text, by their number.
    quoted: Vec<String>,
    threads: HashMap<ThreadId, Numbers>,
    used: HashSet<(u64, u64)>,
    open: HashMap<ThreadId, Vec<Open>>,
    curves: Curves,
    calls: u64,
    is_first: bool,
}

impl<'n, W: Write> Chrome<'n, W> {
    /// Writes to `to`; times count from `origin_ns`, the first event of the trace, ns since the epoch.
    pub fn new(to: W, names: &'n dyn Names, origin_ns: u64) -> Self {
        let mut out = Output::new(to);
        out.put(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        Chrome {
            out,
            names,
            origin_ns,
            bytes_max: CHROME_BYTES_MAX,
            interned: Interned::default(),
            quoted: Vec::new(),
            threads: HashMap::new(),
            used: HashSet::new(),
            open: HashMap::new(),
            curves: Curves::default(),
            calls: 0,
            is_first: true,
        }
    }

    /// Writes no further call after `bytes_max` bytes in place of [`CHROME_BYTES_MAX`].
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Writes `marks` and what was left out, and ends the file.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(mut self, marks: &[Mark], left_out: LeftOut) -> Result<Written, ExportError> {
        let mut points = Vec::new();
        self.curves.finish(|point| points.push(point));
        points.iter().for_each(|point| self.point(point));
        for mark in marks {
            let place = mark.thread.map(|id| self.numbers(id));
            let (scope, pid, tid) = place.map_or(("g", 1, 0), |n| ("t", n.pid, n.tid));
            let time = self.time(mark.time_ns);
            let (name, detail) = (json!(mark.title), json!(mark.detail));
            self.object(&format!(
                "{{\"ph\":\"i\",\"s\":\"{scope}\",\"cat\":\"finding\",\"name\":{name},\"pid\":{pid},\
                 \"tid\":{tid},\"ts\":{time},\"args\":{{\"detail\":{detail}}}}}"
            ));
        }
        let about = json!({
            "written_by": concat!("laneway ", env!("CARGO_PKG_VERSION")),
            "origin_unix_ns": self.origin_ns.to_string(),
            "left_out": left_out,
        });
        self.out.put(format!("\n],\"otherData\":{about}}}\n").as_bytes());
        let calls = self.calls;
        let (_, bytes) = self.out.finish()?;
        Ok(Written { calls, bytes, files: 1, left_out })
    }

    fn object(&mut self, text: &str) {
        self.out.put(if self.is_first { b"\n" } else { b",\n" });
        self.is_first = false;
        self.out.put(text.as_bytes());
    }

    /// Microseconds since the origin, exact to the nanosecond.
    fn time(&self, time_ns: u64) -> String {
        match time_ns.checked_sub(self.origin_ns) {
            Some(ns) => format!("{}.{:03}", ns / 1000, ns % 1000),
            None => {
                let ns = self.origin_ns - time_ns;
                format!("-{}.{:03}", ns / 1000, ns % 1000)
            }
        }
    }

    /// Numbers of a thread; no two threads share a pair.
    fn numbers(&mut self, id: ThreadId) -> Numbers {
        let invented = Numbers { pid: 1, tid: INVENTED_FROM + u64::from(id.0) };
        self.threads.get(&id).copied().unwrap_or(invented)
    }

    fn point(&mut self, point: &Point) {
        let pid = match point.curve {
            crate::moments::Curve::Polls(id) => self.numbers(id).pid,
            _ => 1,
        };
        let name = json!(point.curve.name(self.names));
        let (time, value) = (self.time(point.time_ns), point.value);
        self.object(&format!(
            "{{\"ph\":\"C\",\"name\":{name},\"pid\":{pid},\"ts\":{time},\"args\":{{\"value\":{value}}}}}"
        ));
    }

    fn quoted(&mut self, frame: CallFrame) -> usize {
        let (number, fresh) = self.interned.number(self.names, frame);
        if let Some(name) = fresh {
            self.quoted.push(json!(name).to_string());
        }
        number
    }
}

impl<W: Write> Calls for Chrome<'_, W> {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        let pid = u64::from(thread.pid.max(1));
        let mut numbers = Numbers { pid, tid: u64::from(thread.tid) };
        if numbers.tid == 0 || !self.used.insert((numbers.pid, numbers.tid)) {
            numbers.tid = INVENTED_FROM + u64::from(id.0);
        }
        self.threads.insert(id, numbers);
        let Numbers { pid, tid } = numbers;
        let name = json!(thread.name);
        self.object(&format!(
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}}"
        ));
    }

    fn begin(&mut self, thread: ThreadId, began_ns: u64, _: CallFrame) {
        self.open.entry(thread).or_default().push(Open { began_ns, held: Vec::new() });
    }

    fn end(&mut self, thread: ThreadId, ended: &Ended) {
        self.calls += 1;
        let number = self.quoted(ended.frame);
        let Numbers { pid, tid } = self.numbers(thread);
        let lasted_ns = ended.ended_ns.saturating_sub(ended.began_ns);
        let text = format!(
            "{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{}.{:03}{}}}",
            category(ended.frame),
            self.quoted[number],
            self.time(ended.began_ns),
            lasted_ns / 1000,
            lasted_ns % 1000,
            if ended.is_cut { ",\"args\":{\"cut\":true},\"cname\":\"terrible\"" } else { "" }
        );
        let open = self.open.entry(thread).or_default();
        let held = open.pop().map(|call| call.held).unwrap_or_default();
        let caller = open.last_mut().filter(|caller| {
            caller.began_ns == ended.began_ns && caller.held.len() + held.len() < HELD_MAX
        });
        match caller {
            Some(caller) => caller.held.extend(std::iter::once(text).chain(held)),
            None => std::iter::once(&text).chain(&held).for_each(|text| self.object(text)),
        }
    }

    fn moment(&mut self, thread: ThreadId, time_ns: u64, kind: &Kind) {
        let mut points = Vec::new();
        self.curves.moment(thread, time_ns, kind, |point| points.push(point));
        points.iter().for_each(|point| self.point(point));
        if let Some(name) = instant_name(self.names, kind) {
            let Numbers { pid, tid } = self.numbers(thread);
            let (name, time) = (json!(name), self.time(time_ns));
            self.object(&format!(
                "{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"point\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}}}"
            ));
        }
    }

    fn lost(&mut self, thread: ThreadId, time_ns: u64, loss: &Loss) {
        let Numbers { pid, tid } = self.numbers(thread);
        let name = json!(loss_name(loss));
        let time = self.time(time_ns);
        self.object(&format!(
            "{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"loss\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}}}"
        ));
    }

    fn is_full(&self) -> bool {
        self.out.bytes() >= self.bytes_max || self.out.has_failed()
    }
}

/// A hole, in a few words.
pub(crate) fn loss_name(loss: &Loss) -> String {
    match loss.events {
        Some(events) => format!("{events} events lost"),
        None => "events lost, not counted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::nest::{Nest, Selection};
    use serde_json::Value;

    fn exported(selection: Selection, bytes_max: u64) -> (Value, Written) {
        let mut bytes = Vec::new();
        let chrome = Chrome::new(&mut bytes, &example::Hostile, example::ORIGIN_NS)
            .with_bytes_max(bytes_max);
        let mut nest = Nest::new(chrome, selection);
        example::trace(&mut nest);
        let (chrome, left_out) = nest.finish();
        let written = chrome.finish(&example::marks(), left_out).unwrap();
        assert_eq!(written.bytes, bytes.len() as u64);
        (serde_json::from_slice(&bytes).expect("valid JSON"), written)
    }

    fn of_phase<'v>(value: &'v Value, phase: &str) -> Vec<&'v Value> {
        value["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == phase).collect()
    }

    #[test]
    fn calls_carry_exact_times_and_hostile_names() {
        let (value, written) = exported(Selection::default(), u64::MAX);
        let calls = of_phase(&value, "X");
        assert_eq!(calls.len() as u64, written.calls);
        let inner = calls.iter().find(|call| call["dur"] == 1.5).unwrap();
        assert_eq!(inner["ts"], 0.25);
        assert_eq!(inner["name"], example::HOSTILE_NAME);
        let cut: Vec<_> = calls.iter().filter(|call| call["args"]["cut"] == true).collect();
        assert_eq!(cut.len() as u64, written.left_out.cut);
        assert!(!cut.is_empty());
    }

    #[test]
    fn of_calls_that_begin_together_the_caller_stands_first() {
        let from_ns = Some(example::ORIGIN_NS + 1_000);
        let (value, written) = exported(Selection { from_ns, ..Selection::default() }, u64::MAX);
        let calls = of_phase(&value, "X");
        assert_eq!(calls.len() as u64, written.calls);
        // Function 1 calls function 2, and both are open at the begin of the window.
        let of_worker: Vec<_> = calls
            .iter()
            .filter(|call| call["ts"] == 1.0 && call["tid"] == 41)
            .map(|call| call["dur"].as_f64().unwrap())
            .collect();
        assert_eq!(of_worker, [1.0, 0.75]);
    }

    #[test]
    fn threads_with_one_number_stay_apart() {
        let (value, _) = exported(Selection::default(), u64::MAX);
        let names = of_phase(&value, "M");
        let mut numbers: Vec<_> =
            names.iter().map(|e| (e["pid"].as_u64(), e["tid"].as_u64())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), names.len());
    }

    #[test]
    fn curves_and_marks_are_there() {
        let (value, _) = exported(Selection::default(), u64::MAX);
        let curves = of_phase(&value, "C");
        assert!(curves.iter().any(|c| c["name"] == "port 0 queue 1: frames per poll"));
        let instants = of_phase(&value, "i");
        assert!(instants.iter().any(|i| i["cat"] == "finding" && i["s"] == "g"));
        assert!(instants.iter().any(|i| i["name"] == "7 events lost"));
    }

    #[test]
    fn a_full_file_is_still_valid_and_says_what_is_missing() {
        let (value, written) = exported(Selection::default(), 200);
        assert!(written.left_out.no_room > 0);
        assert_eq!(value["otherData"]["left_out"]["no_room"], written.left_out.no_room);
    }
}
