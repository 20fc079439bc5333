//! What a file says about itself: text lines of a key and a value, so that `strings` shows them and a
//! later version can add some.

use crate::{Calibration, Point, PointId, Shape};
use std::fmt::Write as _;

/// The program that wrote a file, by which clock, with which points.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Name of the host.
    pub host: String,
    /// The command line, or what else the writer calls itself.
    pub program: String,
    /// Ticks per second, as estimated at the start.
    pub ticks_per_s: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC at the start of the session, ns: one for all files of it,
    /// so that they stay on one axis.
    pub unix_offset_ns: i64,
    /// What recording an event costs here; none where it was not measured.
    pub calibration: Option<Calibration>,
    /// The points that records may name.
    pub points: Vec<Point>,
}

/// A thread whose records a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its name: `worker-0`.
    pub name: String,
    /// The CPU that it is pinned to.
    pub cpu: Option<u32>,
    /// Its queue of each port, which with one worker per queue is the worker's number.
    pub queue: u16,
}

/// Most letters of a thread's name that are read: the kernel has 15 bytes.
const NAME_CHARS_MAX: usize = 255;

impl ThreadInfo {
    /// The calling thread, under this name.
    pub fn current(name: impl Into<String>) -> ThreadInfo {
        ThreadInfo {
            pid: std::process::id(),
            tid: ThreadInfo::current_tid(),
            name: name.into(),
            cpu: None,
            queue: 0,
        }
    }

    /// The kernel's number of the calling thread.
    pub(crate) fn current_tid() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("pid {}\ntid {}\nqueue {}\n", self.pid, self.tid, self.queue);
        if let Some(cpu) = self.cpu {
            line(&mut text, "cpu", &cpu.to_string());
        }
        line(&mut text, "name", &self.name);
        text
    }

    pub(crate) fn parse(text: &[u8]) -> ThreadInfo {
        let mut thread = ThreadInfo::default();
        for (key, value) in lines(&String::from_utf8_lossy(text)) {
            match key {
                "pid" => thread.pid = value.parse().unwrap_or(0),
                "tid" => thread.tid = value.parse().unwrap_or(0),
                "queue" => thread.queue = value.parse().unwrap_or(0),
                "cpu" => thread.cpu = value.parse().ok(),
                "name" => thread.name = value.chars().take(NAME_CHARS_MAX).collect(),
                _ => {} // of a later version
            }
        }
        thread
    }
}

impl Header {
    /// What this host and program would say; no calibration, a tick is a nanosecond.
    pub fn of_this_program() -> Header {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Header {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            program: words.join(" "),
            ticks_per_s: 1_000_000_000,
            unix_offset_ns: crate::SyncPoint::of_monotonic().unix_offset_ns(),
            calibration: None,
            points: crate::points::all(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        line(&mut text, "host", &self.host);
        line(&mut text, "program", &self.program);
        line(&mut text, "ticks_per_s", &self.ticks_per_s.to_string());
        line(&mut text, "unix_offset_ns", &self.unix_offset_ns.to_string());
        if let Some(cost) = self.calibration {
            line(&mut text, "call_inside_ns", &cost.inside_ns.to_string());
            line(&mut text, "call_whole_ns", &cost.whole_ns.to_string());
        }
        for point in &self.points {
            line(&mut text, "point", &point.to_string());
        }
        text
    }

    /// Reads the header's text.
    ///
    /// # Errors
    /// With the line without which no record means anything.
    pub(crate) fn parse(text: &[u8]) -> Result<Header, String> {
        let text = String::from_utf8_lossy(text);
        let mut header = Header {
            host: String::new(),
            program: String::new(),
            ticks_per_s: 0,
            unix_offset_ns: 0,
            calibration: None,
            points: Vec::new(),
        };
        let (mut inside_ns, mut whole_ns, mut offset) = (None, None, None);
        for (key, value) in lines(&text) {
            match key {
                "host" => value.clone_into(&mut header.host),
                "program" => value.clone_into(&mut header.program),
                "ticks_per_s" => header.ticks_per_s = value.parse().unwrap_or(0),
                "unix_offset_ns" => offset = value.parse().ok(),
                "call_inside_ns" => inside_ns = cost(value),
                "call_whole_ns" => whole_ns = cost(value),
                "point" => header.points.extend(point(value)),
                _ => {} // of a later version
            }
        }
        if header.ticks_per_s == 0 {
            return Err("it says no `ticks_per_s`".to_owned());
        }
        header.unix_offset_ns = offset.ok_or("it says no `unix_offset_ns`")?;
        header.calibration = match (inside_ns, whole_ns) {
            (Some(inside_ns), Some(whole_ns)) => Some(Calibration { inside_ns, whole_ns }),
            _ => None,
        };
        Ok(header)
    }
}

/// A cost that can be one.
fn cost(text: &str) -> Option<f64> {
    text.parse().ok().filter(|ns: &f64| ns.is_finite() && *ns >= 0.0)
}

/// `16 function lane.settle`
fn point(text: &str) -> Option<Point> {
    let mut words = text.splitn(3, ' ');
    let id = PointId(words.next()?.parse().ok()?);
    let shape = Shape::from_name(words.next()?);
    Some(Point { id, shape, name: words.next()?.to_owned() })
}

fn line(text: &mut String, key: &str, value: &str) {
    // A value is one line, whatever the command line had in it.
    let value = value.replace(|c: char| c.is_control(), " ");
    let _ = writeln!(text, "{key} {value}"); // writing to a string cannot fail
}

fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.trim_end_matches('\0').split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_header_of_this_program_is_read_as_it_was_written() {
        let calibration = Some(Calibration { inside_ns: 7.5, whole_ns: 21.25 });
        let header = Header { calibration, ..Header::of_this_program() };
        assert_eq!(Header::parse(header.text().as_bytes()), Ok(header));
    }

    #[test]
    fn a_header_without_clock_is_refused_by_name() {
        assert!(Header::parse(b"host x\n").unwrap_err().contains("ticks_per_s"));
        assert!(Header::parse(b"ticks_per_s 5\n").unwrap_err().contains("unix_offset_ns"));
    }

    proptest! {
        #[test]
        fn a_thread_is_read_as_it_was_written(
            pid: u32, tid: u32, name in "[a-z][a-z0-9/:-]{0,20}", cpu: Option<u32>, queue: u16,
        ) {
            let thread = ThreadInfo { pid, tid, name, cpu, queue };
            prop_assert_eq!(ThreadInfo::parse(thread.text().as_bytes()), thread);
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::parse(&text);
            let _ = ThreadInfo::parse(&text);
        }
    }
}
