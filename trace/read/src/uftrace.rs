//! What `uftrace dump` prints: one line per record, file after file.
//!
//! ```text
//! reading 7461.dat
//! 35472.316780696   7461: [entry] main(55ec8b18127c) depth: 0
//! 35472.316855526   7461: [exit ] main(55ec8b18127c) depth: 0
//! 35472.316855540   7461: [lost ] 12 records
//! 35472.317010796   7463: [event] linux:sched-in(200001)
//! ```
//!
//! The text and not the directory of data: that format packs arguments by descriptions of uftrace's own, and changes
//! with it. Times are those of the monotonic clock; the moment of its zero is not stated. Scheduling events come from
//! another file than calls, so all is sorted before it is passed on.

use std::io::{BufRead, Read as _};
use std::path::Path;

use crate::about::ReadError;
use crate::delivery::Delivery;
use crate::event::{Damage, Event, FunctionKey, Kind, Thread};
use crate::shelf::Shelf;
use crate::symbols::Symbols;

/// Longest line that is read; longer ones are cut in pieces, which are reported as not understood.
pub(crate) const LINE_BYTES_MAX: u64 = 64 << 10;

/// True if `start`, the first bytes of a file, looks like the output of `uftrace dump`.
pub(crate) fn is(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    text.starts_with("uftrace file header:")
        || text.starts_with("reading ")
            && text.lines().next().is_some_and(|line| line.ends_with(".dat"))
        || text
            .lines()
            .find(|line| !line.trim().is_empty())
            .is_some_and(|line| record(line).is_some())
}

struct Line<'a> {
    time_ns: u64,
    tid: u32,
    what: &'a str,
    rest: &'a str,
}

fn record(line: &str) -> Option<Line<'_>> {
    let (time, rest) = line.trim_start().split_once(' ')?;
    let (tid, rest) = rest.trim_start().split_once(": [")?;
    let (what, rest) = rest.split_once(']')?;
    Some(Line {
        time_ns: seconds_ns(time)?,
        tid: tid.parse().ok()?,
        what: what.trim(),
        rest: rest.trim(),
    })
}

/// `12.345678901` in nanoseconds; up to nine digits behind the point.
pub(crate) fn seconds_ns(text: &str) -> Option<u64> {
    let (seconds, part) = text.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(part) || part.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(9 - u32::try_from(part.len()).ok()?);
    let part = part.parse::<u64>().ok()? * scale;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}

/// Passes all events on; `path` is what the input is called.
///
/// # Errors
/// [`ReadError`] if `input` fails.
pub(crate) fn read(
    mut input: impl BufRead,
    path: &Path,
    delivery: &mut Delivery<'_>,
    symbols: &mut Symbols,
) -> Result<(), ReadError> {
    let io = |offset, source| ReadError::Io { path: path.into(), offset, source };
    let place = path.display().to_string();
    let mut shelf = Shelf::default();
    let (mut offset, mut bytes) = (0, Vec::new());
    loop {
        bytes.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(|source| io(offset, source))? as u64;
        if read == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end();
        match record(line) {
            Some(line) => {
                let thread = Thread { pid: 0, tid: line.tid, name: format!("thread {}", line.tid) };
                let on = shelf.thread(&thread, "");
                let is_kept = !shelf.is_full();
                match event(&line, is_kept, symbols) {
                    Some(kind) => shelf.put(on, Event { time_ns: line.time_ns, kind }),
                    None if line.what == "lost" => {
                        let events =
                            line.rest.split_whitespace().find_map(|word| word.parse().ok());
                        shelf.lost(on, line.time_ns, events);
                    }
                    None if line.what == "args" || line.what == "retval" => {}
                    None => delivery.damage(Damage {
                        place: place.clone(),
                        offset,
                        what: format!("a record `{}` that is not understood", line.what),
                    }),
                }
            }
            None if line.is_empty()
                || line.starts_with("uftrace file header:")
                || line.starts_with("reading ")
                || line.trim_start().starts_with("args[")
                || line.trim_start().starts_with("retval") => {}
            None => delivery.damage(Damage {
                place: place.clone(),
                offset,
                what: format!("a line that is not understood: {:?}", crate::about::shortened(line)),
            }),
        }
        offset += read;
    }
    shelf.deliver(&place, delivery);
    Ok(())
}

/// What the record of a line is; `is_kept`: it needs its names.
fn event(line: &Line<'_>, is_kept: bool, symbols: &mut Symbols) -> Option<Kind> {
    match line.what {
        "entry" | "exit" => {
            let (name, rest) = line.rest.rsplit_once('(')?;
            let (address, _) = rest.split_once(')')?;
            let key = FunctionKey(u64::from_str_radix(address, 16).ok()?);
            if is_kept {
                symbols.name_function(key, name);
            }
            Some(if line.what == "entry" { Kind::Enter(key) } else { Kind::Leave(key) })
        }
        "event" => {
            let (name, _) = line.rest.rsplit_once('(').unwrap_or((line.rest, ""));
            Some(match name {
                "linux:sched-in" => Kind::SwitchedIn,
                "linux:sched-out" => Kind::SwitchedOut { runnable: false },
                "linux:sched-out (pre-empted)" => Kind::SwitchedOut { runnable: true },
                other if is_kept => Kind::Point { point: symbols.number_point(other), value: 0 },
                _ => Kind::Point { point: 0, value: 0 },
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Producer;
    use crate::testing::read_text;

    #[test]
    fn calls_and_switches_are_put_in_order() {
        let log = read_text(
            "uftrace file header: magic = 4674\n\nreading 7.dat\n\
             10.000000100      7: [entry] operator()(55) depth: 0\n\
             10.000000900      7: [exit ] operator()(55) depth: 0\n\
             10.000000100      7: [args ] length = 8\n  args[0] d64: 0x0\n\
             reading perf-cpu0.dat\n\
             10.000000300      7: [event] linux:sched-out (pre-empted)(200007)\n\
             10.000000500      7: [event] linux:sched-in(200001)\n",
        );
        assert_eq!(log.producer, Some(Producer::Uftrace));
        assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
        let kinds: Vec<Kind> = log.events.iter().map(|event| event.2.kind).collect();
        let key = FunctionKey(0x55);
        assert_eq!(
            kinds,
            [
                Kind::Enter(key),
                Kind::SwitchedOut { runnable: true },
                Kind::SwitchedIn,
                Kind::Leave(key)
            ]
        );
        assert_eq!(log.events[0].2.time_ns, 10_000_000_100);
        assert_eq!(log.names[&key], "operator()");
    }

    #[test]
    fn losses_and_foreign_lines_are_reported() {
        let log = read_text("reading 7.dat\n1.000000001 7: [lost ] 12 records\nhello\n");
        assert_eq!(log.losses[0].0.events, Some(12));
        assert!(log.read.damages[0].what.contains("hello"));
        assert_eq!(log.read.damages[0].offset, 48);
    }

    #[test]
    fn a_loss_is_reported_where_it_happened_and_for_its_thread() {
        let log = read_text(
            "reading 7.dat\n\
             10.000000100      7: [entry] a(55) depth: 0\n\
             10.000000400      7: [lost ] 12 records\n\
             10.000000900      7: [exit ] a(55) depth: 0\n\
             reading 8.dat\n\
             10.000000050      8: [entry] b(66) depth: 0\n\
             10.000000060      8: [lost ] records\n",
        );
        let ns = 10_000_000_000;
        let found = log.losses.iter().map(|(loss, threads, before)| {
            let tids: Vec<u32> = threads.iter().map(|id| log.threads[id.0 as usize].tid).collect();
            (loss.from_ns - ns, loss.to_ns - ns, loss.events, tids, *before)
        });
        assert_eq!(
            found.collect::<Vec<_>>(),
            [(100, 400, Some(12), vec![7], 1), (50, 60, None, vec![8], 3)]
        );
        assert_eq!(log.read.discarded, 12);
    }

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds_ns("35472.316776277"), Some(35_472_316_776_277));
        assert_eq!(seconds_ns("1.5"), Some(1_500_000_000));
        assert_eq!(seconds_ns("1.0000000001"), None);
        assert_eq!(seconds_ns("99999999999999999999.5"), None);
        assert_eq!(seconds_ns("-1.5"), None);
    }
}
