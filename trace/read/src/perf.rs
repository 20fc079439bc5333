//! What `perf script` prints: samples with their stacks.
//!
//! ```text
//! comm 23631/23632 [001] 37278.210980:     250000 cpu-clock:
//!             e4dd _dl_relocate_object+0x8bd (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)
//!            1de39 dl_main+0x1e79 (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)
//!
//! ```
//!
//! A sample is no call: it is passed on by [`Consumer::sample`](crate::Consumer::sample). Times are those of perf's
//! clock, as a rule the monotonic one; the moment of its zero is not stated.

use std::io::{BufRead, Read as _};
use std::path::Path;

use crate::about::ReadError;
use crate::delivery::Delivery;
use crate::event::{Damage, FunctionKey, Thread};
use crate::symbols::Symbols;
use crate::uftrace::{LINE_BYTES_MAX, seconds_ns};

/// Deepest stack that is kept; the outer rest is left out.
const STACK_MAX: usize = 1024;
/// Longest time that is looked at, with the blank before it: a line of colons would take the square of its length.
const TIME_BYTES_MAX: usize = 40;

/// True if `start`, the first bytes of a file, looks like the output of `perf script`.
pub(crate) fn is(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| head(line).is_some())
}

struct Head<'a> {
    thread: Thread,
    cpu: Option<u32>,
    time_ns: u64,
    weight: u64,
    /// What follows the name of the event: a frame, if stacks were not recorded.
    frame: &'a str,
}

fn head(line: &str) -> Option<Head<'_>> {
    if line.starts_with(char::is_whitespace)
        && line.trim_start().starts_with(|c: char| c.is_ascii_hexdigit())
    {
        // A frame begins with a tab and an address; a head may be padded, but has a time.
        if !line.contains(": ") && !line.trim_end().ends_with(':') {
            return None;
        }
    }
    // `comm pid[/tid] [cpu] time: period event:`; comm may contain blanks, so the time is looked for first.
    let mut blank = None;
    let (before, time_ns, after) = line.bytes().enumerate().find_map(|(at, byte)| match byte {
        b' ' => {
            blank = Some(at);
            None
        }
        b':' => {
            let start = blank.filter(|start| at - start <= TIME_BYTES_MAX)?;
            let time = seconds_ns(&line[start + 1..at])?;
            Some((&line[..start], time, &line[at + 1..]))
        }
        _ => None,
    })?;
    let mut words: Vec<&str> = before.split_whitespace().collect();
    let bracketed = |word: &&str| word.strip_prefix('[')?.strip_suffix(']')?.parse::<u32>().ok();
    let cpu = words.last().and_then(bracketed);
    if cpu.is_some() {
        words.pop();
    }
    let number = words.pop()?;
    let (pid, tid) = match number.split_once('/') {
        Some((pid, tid)) => (pid.parse().ok()?, tid.parse().ok()?),
        None => (0, number.parse().ok()?),
    };
    let name = words.join(" ");
    let after = after.trim_start();
    let (weight, event) = match after.split_once(char::is_whitespace) {
        Some((period, rest)) if period.bytes().all(|byte| byte.is_ascii_digit()) => {
            (period.parse().ok()?, rest.trim_start())
        }
        _ => (1, after),
    };
    let frame = event.split_once(char::is_whitespace).map_or("", |(_, frame)| frame.trim());
    Some(Head { thread: Thread { pid, tid, name }, cpu, time_ns, weight, frame })
}

/// `e4dd _dl_relocate_object+0x8bd (/usr/lib/ld.so)`
fn frame(line: &str, symbols: &mut Symbols) -> Option<FunctionKey> {
    let line = line.trim();
    let (address, rest) = line.split_once(' ').unwrap_or((line, ""));
    let address = u64::from_str_radix(address, 16).ok()?;
    let (name, module) = match rest.rsplit_once(" (") {
        Some((name, module)) => (name, module.trim_end_matches(')')),
        None => (rest, ""),
    };
    let module = module.rsplit('/').next().unwrap_or(module);
    let name = match name.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => name,
    };
    Some(if name.is_empty() || name == "[unknown]" {
        let known = module.is_empty() || module == "[unknown]";
        let name = if known { format!("{address:#x}") } else { format!("{module}+{address:#x}") };
        symbols.number_function(&name, module)
    } else {
        symbols.number_function(name, module)
    })
}

/// Passes all samples on; `path` is what the input is called.
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
    let mut stack: Vec<FunctionKey> = Vec::new();
    let mut open: Option<(Thread, Option<u32>, u64, u64)> = None;
    let (mut offset, mut bytes) = (0, Vec::new());
    loop {
        bytes.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(|source| io(offset, source))? as u64;
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end();
        // Without stacks, perf pads the name at the beginning of a head with blanks, and no empty line follows.
        let begun = if line.is_empty() { None } else { head(line) };
        let inside = begun.is_none() && line.starts_with(char::is_whitespace) && open.is_some();
        if read == 0 || line.is_empty() || begun.is_some() {
            if let Some((thread, cpu, time_ns, weight)) = open.take() {
                let id = delivery.thread(thread, "");
                delivery.sample(id, cpu, time_ns, weight, &stack);
            }
            stack.clear();
        }
        if read == 0 {
            return Ok(());
        }
        if let Some(head) = begun {
            stack.extend(frame(head.frame, symbols));
            open = Some((head.thread, head.cpu, head.time_ns, head.weight));
        } else if inside {
            match frame(line, symbols) {
                Some(key) if stack.len() < STACK_MAX => stack.push(key),
                Some(_) => {}
                None => delivery.damage(Damage {
                    place: place.clone(),
                    offset,
                    what: format!(
                        "a frame that is not understood: {:?}",
                        crate::about::shortened(line)
                    ),
                }),
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            delivery.damage(Damage {
                place: place.clone(),
                offset,
                what: format!("a line that is not understood: {:?}", crate::about::shortened(line)),
            });
        }
        offset += read;
    }
}

#[cfg(test)]
mod tests {
    use crate::Producer;
    use crate::testing::read_text;

    #[test]
    fn samples_keep_thread_time_weight_and_stack() {
        let log = read_text(
            "# header\nweb server 7/8 [001]  10.5:     250000 cpu-clock:pppH: \n\
             \t    e4dd inner+0x8bd (/usr/lib/ld.so)\n\t 1 [unknown] ([unknown])\n\t 2 [unknown] (/x/lib.so)\n\n\
             a 9 11.000001: cycles:  ff f+0x1 (k)\n",
        );
        assert_eq!(log.producer, Some(Producer::Perf));
        assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
        let (thread, cpu, time_ns, weight, stack) = &log.samples[0];
        assert_eq!(log.threads[*thread].name, "web server");
        assert_eq!((log.threads[*thread].pid, log.threads[*thread].tid), (7, 8));
        assert_eq!((*cpu, *time_ns, *weight), (Some(1), 10_500_000_000, 250_000));
        let names: Vec<&str> = stack.iter().map(|key| log.names[key].as_str()).collect();
        assert_eq!(names, ["inner", "0x1", "lib.so+0x2"]);
        let (thread, cpu, time_ns, weight, stack) = &log.samples[1];
        assert_eq!(
            (log.threads[*thread].tid, *cpu, *time_ns, *weight),
            (9, None, 11_000_001_000, 1)
        );
        assert_eq!(log.names[&stack[0]], "f");
    }

    #[test]
    fn samples_without_stacks_follow_each_other_line_by_line() {
        let log = read_text(
            "            perf  9 [000] 11.000001: 1 cycles:  ff f+0x1 (k)\n\
             \x20           bash 10 [001] 11.000002: 2 cycles:  fe g+0x1 (k)\n\
             \x20        swapper  0 [001] 11.000003: 3 cycles:  fd f+0x2 (k)\n",
        );
        assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
        let found = log.samples.iter().map(|(thread, _, time_ns, weight, stack)| {
            let names: Vec<&str> = stack.iter().map(|key| log.names[key].as_str()).collect();
            (log.threads[*thread].name.as_str(), *time_ns, *weight, names)
        });
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                ("perf", 11_000_001_000, 1, vec!["f"]),
                ("bash", 11_000_002_000, 2, vec!["g"]),
                ("swapper", 11_000_003_000, 3, vec!["f"]),
            ]
        );
    }

    #[test]
    fn lines_that_are_no_sample_are_reported() {
        let log = read_text("a 9 11.000001: 1 cycles: \n\t zz\n\nnonsense\n");
        assert_eq!(log.samples.len(), 1);
        let offsets: Vec<u64> = log.read.damages.iter().map(|damage| damage.offset).collect();
        assert_eq!(offsets, [26, 32]);
    }
}
