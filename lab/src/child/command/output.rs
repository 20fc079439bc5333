//! What a program prints: the end of it, to explain a failure; its counter; and that it ended.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of its output that are kept.
const TAIL_BYTES_MAX: usize = 4_096;
/// Longest line that is read as a line; of a longer one, only this much is.
const LINE_BYTES_MAX: usize = 4_096;
/// How long the outputs of a program that ended are waited for, before its last words are taken: a descendant may
/// hold them open for as long as it likes.
const OUTPUTS_END_WAIT: Duration = Duration::from_millis(200);
/// Read at once: a program may print much, and what that takes is not its own.
const CHUNK_BYTES: usize = 1 << 16;
/// The name of the threads that read.
pub(super) const READER: &str = "program-output";
/// In front of the counter, in a line of its standard output.
const COUNTER: &str = "received=";

/// What lines of a standard output mean.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// In front of the status of the program, which has ended: a line that no program prints.
    pub(super) mark: String,
    /// Some of the others have a counter.
    pub(super) has_counters: bool,
}

/// What a program printed so far.
#[derive(Debug, Default)]
pub(super) struct ProgramOutput {
    tail: VecDeque<u8>,
    /// What its standard output has of a line that is not whole.
    line: Vec<u8>,
    /// The last counter, and how many it printed.
    counter: Option<(u64, u64)>,
    /// The status of the program, once it ended.
    status: Option<i32>,
    /// Outputs that are still read.
    open: usize,
}

impl ProgramOutput {
    /// Takes in a piece of one of the two outputs; lines mean something on standard output only. The line that reports
    /// the end of the program is none of its own.
    fn hear(&mut self, bytes: &[u8], lines: Option<&Lines>) {
        let Some(lines) = lines else { return self.keep(bytes) };
        let (mut kept, mut at) = (0, 0);
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let from = at;
            at += piece.len();
            let is_whole = piece.last() == Some(&b'\n');
            let is_end = if is_whole && self.line.is_empty() {
                self.read_line(piece, lines)
            } else {
                let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
                self.line.extend(&piece[..piece.len().min(room)]);
                is_whole && {
                    let line = std::mem::take(&mut self.line);
                    self.read_line(&line, lines)
                }
            };
            if is_end {
                self.keep(&bytes[kept..from]);
                kept = at;
            }
        }
        self.keep(&bytes[kept..]);
    }

    /// Takes in a line; whether it reports the end of the program.
    fn read_line(&mut self, line: &[u8], lines: &Lines) -> bool {
        let line = &line[..line.len().min(LINE_BYTES_MAX)];
        if let Some(status) = line.strip_prefix(lines.mark.as_bytes()) {
            let status = std::str::from_utf8(status).ok().and_then(|it| it.trim_end().parse().ok());
            self.status = status.or(Some(-1));
            return true;
        }
        let counter = || counter(&String::from_utf8_lossy(line));
        if let Some(value) = lines.has_counters.then(counter).flatten() {
            let printed = self.counter.map_or(0, |(_, printed)| printed);
            self.counter = Some((value, printed + 1));
        }
        false
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..]);
        let beyond = self.tail.len().saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..beyond);
    }

    /// The end of what it printed, on one line and without anything that a terminal would obey; `None` if that is
    /// nothing.
    fn words(&self) -> Option<String> {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let words: Vec<&str> = text.split_whitespace().collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// The counter of a line: the number behind the last `received=` that stands alone.
fn counter(line: &str) -> Option<u64> {
    let words = line.split_whitespace().rev();
    words.filter_map(|word| word.strip_prefix(COUNTER)).find_map(|number| number.parse().ok())
}

/// The outputs of a program, read by threads that end with them.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    output: Arc<(Mutex<ProgramOutput>, Condvar)>,
}

impl Output {
    /// Reads `from` until it ends, in a thread of its own, which may run where this one may; `lines` are those of a
    /// standard output.
    ///
    /// # Errors
    /// Without a thread.
    pub(super) fn read(
        &self,
        mut from: impl Read + Send + 'static,
        lines: Option<Lines>,
    ) -> io::Result<()> {
        let output = Arc::clone(&self.output);
        self.output().open += 1;
        let read = move || {
            let mut chunk = vec![0; CHUNK_BYTES];
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                output
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .hear(&chunk[..n], lines.as_ref());
                output.1.notify_all();
            }
            output.0.lock().unwrap_or_else(PoisonError::into_inner).open -= 1;
            output.1.notify_all();
        };
        thread::Builder::new().name(READER.to_owned()).spawn(read).map(drop)
    }

    fn output(&self) -> MutexGuard<'_, ProgramOutput> {
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status of the program, once it ended.
    pub(super) fn status(&self) -> Option<i32> {
        self.output().status
    }

    /// A sentence with the end of what it printed. Of a program that ended, the end of both outputs is waited for: its
    /// status and its complaint are on different ones.
    pub(super) fn last_words(&self) -> String {
        let output = self.output();
        let is_coming = |output: &mut ProgramOutput| output.status.is_some() && output.open > 0;
        let waited = self.output.1.wait_timeout_while(output, OUTPUTS_END_WAIT, is_coming);
        let (output, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match output.words() {
            Some(words) => format!("its output: {words}"),
            None => "it printed nothing".to_owned(),
        }
    }

    /// The last counter that it printed, if any.
    pub(super) fn counter(&self) -> Option<u64> {
        self.output().counter.map(|(value, _)| value)
    }

    /// The next counter that it prints; if that takes longer than `patience`, the last one.
    pub(super) fn next_counter(&self, patience: Duration) -> Option<u64> {
        let until = Instant::now() + patience;
        let mut output = self.output();
        let before = output.counter.map(|(_, printed)| printed);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_new = output.counter.map(|(_, printed)| printed) != before;
            if is_new || left.is_zero() || output.status.is_some() {
                return output.counter.map(|(value, _)| value);
            }
            let waited = self.output.1.wait_timeout(output, left);
            output = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(has_counters: bool) -> Lines {
        Lines { mark: "mark 7: ".to_owned(), has_counters }
    }

    fn heard(pieces: &[&str]) -> ProgramOutput {
        let mut output = ProgramOutput::default();
        pieces.iter().for_each(|piece| output.hear(piece.as_bytes(), Some(&lines(true))));
        output
    }

    #[test]
    fn the_last_counter_counts_wherever_it_stands_in_its_line() {
        for (line, value) in [
            ("received=12", Some(12)),
            ("1.5 s: received=7 lost=2\n", Some(7)),
            ("received=1 received=2", Some(2)),
            ("received=x received=3", Some(3)),
            ("notreceived=4", None),
            ("received= 4", None),
            ("received=-4", None),
            ("received=18446744073709551616", None),
            ("listening on 7000", None),
        ] {
            assert_eq!(counter(line), value, "{line}");
        }
        let output = heard(&["rece", "ived=1\nreceived=2\nrec", "eived=3"]);
        assert_eq!(output.counter, Some((2, 2)), "the third has no end yet");
    }

    #[test]
    fn the_end_of_the_program_is_no_line_of_its_own() {
        let output = heard(&["half a li", "ne\n\nmark 7: 143\n"]);
        assert_eq!((output.status, output.words().as_deref()), (Some(143), Some("half a line")));
        assert_eq!(heard(&["mark 8: 1\n", "a mark 7: 1\n"]).status, None);
        assert_eq!(heard(&["mark 7: x\n"]).status, Some(-1));
        let split = heard(&["one\nma", "rk 7", ": 5\n"]);
        assert_eq!(split.status, Some(5));
        let within = heard(&["one\nmark 7: 0\nleft behind\n"]);
        assert_eq!(within.words().as_deref(), Some("one left behind"));
    }

    #[test]
    fn counters_are_looked_for_where_some_are_wanted() {
        let mut output = ProgramOutput::default();
        output.hear(b"received=5\nrecei", Some(&lines(false)));
        output.hear(b"ved=6\nmark 7: 2\n", Some(&lines(false)));
        assert_eq!((output.counter, output.status), (None, Some(2)));
        assert_eq!(output.words().as_deref(), Some("received=5 received=6"));
    }

    #[test]
    fn the_end_of_its_output_is_bounded_and_obeyed_by_no_terminal() {
        let flood = "x".repeat(3 * LINE_BYTES_MAX);
        let output = heard(&[&flood, &flood, "\nthe \u{1b}[31mend\r\n"]);
        assert!(output.tail.len() <= TAIL_BYTES_MAX && output.line.len() <= LINE_BYTES_MAX);
        let words = output.words().unwrap();
        assert!(words.ends_with("the [31mend"), "{words}");
        assert_eq!(heard(&[" \n"]).words(), None);
    }

    /// The complaint of a program that has ended is read late, as by a thread that had no CPU.
    #[test]
    fn the_last_words_of_a_program_that_ended_are_waited_for_and_not_for_ever() {
        use std::os::unix::net::UnixStream;
        let output = Output::default();
        let (complaint, mut program) = UnixStream::pair().unwrap();
        output.read(complaint, None).unwrap();
        output.read(&b"mark 7: 3\n"[..], Some(lines(false))).unwrap();
        while output.status().is_none() {
            thread::yield_now();
        }
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            io::Write::write_all(&mut program, b"oh no").unwrap();
        });
        assert_eq!(output.last_words(), "its output: oh no");
        late.join().unwrap();
        let (held, _open) = UnixStream::pair().unwrap();
        output.read(held, None).unwrap();
        assert_eq!(output.last_words(), "its output: oh no", "a descendant holds an output open");
    }

    #[test]
    fn what_comes_on_the_other_output_is_kept_and_counts_nothing() {
        let mut output = ProgramOutput::default();
        output.hear(b"received=5\nmark 7: 0\n", None);
        assert_eq!((output.counter, output.status), (None, None));
        assert_eq!(output.words().as_deref(), Some("received=5 mark 7: 0"));
    }
}
