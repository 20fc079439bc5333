//! `laneway features`: capture files to rows, on all cores.
//!
//! What a person of tcpdump and tshark expects: a file that is cut short or damaged gives its rows
//! up to there, a warning, and a non-zero exit code (2). A name that is no capture at all is refused
//! before anything is written.

use crate::arguments::{ExtractArguments, strictly};
use crate::captures::{CaptureSource, UnreadLinks};
use crate::offline::{self, Progress, Summary};
use crate::{Ledger, Level};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use laneway_core::DropReason;
use laneway_kinds::AppVerb;
use laneway_page::text::grouped;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Rows name their capture by a number of 16 bits.
const CAPTURES_MAX: usize = 1 << 16;
/// A run shorter than this shows no progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// The most workers: beyond it they only wait for each other.
const WORKERS_MAX: i64 = 256;

const NAME: &str = "features";

/// The verb.
pub(crate) const VERB: AppVerb = AppVerb { name: NAME, command, run };

const HELP: &str = "\
Reads pcap and pcapng, micro- and nanosecond, plain or inside gzip or zstd; `-` is standard input.
A file that is cut short or damaged keeps its rows up to there: a note says so, and the exit code is 2.
Rows are written to OUT.partial, which becomes OUT at the end. Parquet and Arrow files say whether they are complete.

Examples:
  laneway features capture.pcap -o packets.parquet
  laneway features a.pcap b.pcapng.zst -o flows.parquet --level flow --profile full
  laneway features capture.pcap --filter 'eth / ipv4 / udp dst is 53 / end' | head";

/// Its options.
#[derive(Args, Debug)]
struct OfflineArguments {
    /// Capture files, read one after the other; `-` is standard input. Flows end with each file, unless
    /// --join is given
    #[arg(required = true, value_name = "PCAP")]
    captures: Vec<PathBuf>,
    #[command(flatten)]
    extract: ExtractArguments,
    /// The captures are parts of one, as tcpdump -C and -G write them: flows go on from one to the next
    #[arg(long)]
    join: bool,
    /// Threads [default: all cores]; with more than one, flow rows come in no fixed order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    workers: Option<u16>,
    /// Show no progress (nor is it shown where standard error is no terminal)
    #[arg(long)]
    no_progress: bool,
}

fn command() -> Command {
    OfflineArguments::augment_args(Command::new(NAME))
        .about("Extract packet or flow features from capture files, on all cores")
        .after_help(HELP)
        .arg_required_else_help(true)
}

fn run(matches: &ArgMatches, json: bool) -> Result<Exit, Failure> {
    let arguments = OfflineArguments::from_arg_matches(matches).map_err(Failure::input)?;
    extract(&arguments, json)
}

fn extract(arguments: &OfflineArguments, json: bool) -> Result<Exit, Failure> {
    let captures = &arguments.captures;
    if captures.len() > CAPTURES_MAX {
        return Err(Failure::input(format!(
            "{} captures are too many for one output; give at most {CAPTURES_MAX}",
            captures.len()
        )));
    }
    let (mut config, mut plan) = arguments.extract.plan()?;
    if plan.is_none() {
        return Err(Failure::input(
            "-o none is for `run`, to see what a lane costs; name a file with -o",
        ));
    }
    if arguments.join && config.level == Level::Packet {
        return Err(Failure::input("--join joins flows; add --level flow"));
    }
    config.join = arguments.join;
    plan.fact("join", arguments.join);
    let unread = UnreadLinks::default();
    let sources = open_all(captures, plan.file(), &unread)?;
    for (index, source) in sources.iter().enumerate() {
        plan.fact(&format!("source.{index}"), source.path().display());
    }
    let (_, output) = plan.open(&config, 0)?;

    let progress = Arc::new(Progress::default());
    let stopped = progress.clone();
    let partial = output.partial_path().map(Path::to_owned);
    terminal::on_signal(partial, json, move || {
        // Relaxed: the flag carries no data, only itself.
        stopped.stop.store(true, Ordering::Relaxed);
    })?;
    let workers = match arguments.workers {
        Some(workers) => usize::from(workers),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let started = Instant::now();
    let at = AtomicUsize::new(0);
    let taken = sources.into_iter().enumerate().map(|(index, source)| {
        at.store(index, Ordering::Relaxed);
        source
    });
    let ledger_of =
        |summary: &Summary| Ledger::of_captures(progress.frames.load(Ordering::Relaxed), summary);
    let shown = !arguments.no_progress && terminal::stderr_is_terminal();
    let summary = thread::scope(|scope| {
        let (over, ended) = mpsc::channel::<()>();
        if shown {
            let (progress, at) = (&progress, &at);
            scope.spawn(move || show(progress, at, captures, started, &ended));
        }
        let losses = |summary: &Summary| ledger_of(summary).losses();
        let summary =
            offline::run(&config, plan.profile, taken, output, workers, &progress, losses);
        drop(over);
        summary
    })?;
    let ledger = ledger_of(&summary);

    if json {
        let value = json!({
            "verb": "features",
            "captures": captures.iter().map(|path| terminal::path_json(path)).collect::<Vec<_>>(),
            "output": plan.json(),
            "rows": summary.rows,
            "ledger": ledger,
            "closed": ledger.is_closed(),
            "link_types_unknown": unread.described().into_iter().collect::<BTreeMap<_, _>>(),
            "evicted_flows": summary.evicted,
            "damaged": summary.damaged,
            "interrupted": summary.interrupted,
            "elapsed_ns": started.elapsed().as_nanos() as u64,
            "workers": workers,
        });
        terminal::print_json(&value, plan.to_stdout())?;
    } else {
        print_summary(&summary, &ledger, captures.len(), &plan.name(), started.elapsed());
        for (link, frames) in unread.described() {
            let frames = grouped(frames);
            terminal::note(&format!("{frames} frames of link type {link} were not understood"));
        }
        if captures.len() > 1 && config.level == Level::Flow && !arguments.join {
            terminal::note(
                "flows ended with each capture; if these are parts of one, --join lets them go on",
            );
        }
    }
    let exit = conclude(&summary, &ledger, plan.what_is_kept(), arguments.extract.strict)?;
    let unknown = ledger.drops.get(&DropReason::LinkTypeUnknown).copied().unwrap_or(0);
    if ledger.seen > 0 && unknown == ledger.seen {
        let links: Vec<String> = unread.described().into_iter().map(|(link, _)| link).collect();
        return Err(Failure::input(format!(
            "no frame could be read: link type {}; capture on an interface that shows Ethernet or IP",
            links.join(", ")
        )));
    }
    Ok(exit)
}

/// Opens every capture, before anything is written.
fn open_all(
    captures: &[impl AsRef<Path>],
    output: Option<&Path>,
    unread: &UnreadLinks,
) -> Result<Vec<CaptureSource>, Failure> {
    let mut sources = Vec::with_capacity(captures.len());
    for path in captures.iter().map(AsRef::as_ref) {
        keep(path, output)?;
        sources.push(CaptureSource::open(path, unread).map_err(|error| unreadable(path, &error))?);
    }
    Ok(sources)
}

/// Refuses rows that would replace the capture that they are of.
pub(crate) fn keep(capture: &Path, output: Option<&Path>) -> Result<(), Failure> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let written = output.and_then(identity);
    if written.is_some() && identity(capture) == written {
        return Err(Failure::input(format!(
            "{}: the rows would replace the capture; name another file with -o",
            capture.display()
        )));
    }
    Ok(())
}

fn unreadable(path: &Path, error: &laneway_capture::ReadError) -> Failure {
    Failure::input(match error {
        laneway_capture::ReadError::Open { .. } => {
            format!("{error}; check its name and your rights")
        }
        _ => format!("{}: {error}", path.display()),
    })
}

fn print_summary(
    summary: &Summary,
    ledger: &Ledger,
    captures: usize,
    output: &str,
    elapsed: Duration,
) {
    if summary.damaged.len() > 1 {
        for damaged in &summary.damaged {
            terminal::note(&format!("laneway: warning: {damaged}"));
        }
    }
    let seconds = elapsed.as_secs_f64();
    terminal::note(&format!(
        "{} rows from {} {} to {output} in {seconds:.1} s",
        grouped(summary.rows),
        captures,
        if captures == 1 { "capture" } else { "captures" },
    ));
    terminal::note(ledger.table().trim_end());
    if summary.evicted > 0 {
        terminal::note(&format!(
            "{} flows were cut because the table was full; raise --flows-max",
            grouped(summary.evicted)
        ));
    }
}

fn conclude(summary: &Summary, ledger: &Ledger, kept: &str, strict: bool) -> Result<Exit, Failure> {
    if let Some(complaint) = ledger.complaint() {
        return Err(Failure::Because(Exit::Invalid, complaint));
    }
    if !summary.damaged.is_empty() {
        let what = match summary.damaged.as_slice() {
            [one] => one.clone(),
            several => format!("{} captures could not be read to the end", several.len()),
        };
        return Err(Failure::input(format!("{what}; {kept}")));
    }
    if summary.interrupted {
        return Err(Failure::Because(
            Exit::Inconclusive,
            format!("interrupted: {kept}; run it again for the rest"),
        ));
    }
    strictly(ledger, strict)
}

/// Shows how far the run has come until it is over.
fn show(
    progress: &Progress,
    at: &AtomicUsize,
    captures: &[impl AsRef<Path>],
    started: Instant,
    ended: &mpsc::Receiver<()>,
) {
    let mut wait = PROGRESS_AFTER;
    let mut was_shown = false;
    while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(wait) {
        let index = at.load(Ordering::Relaxed);
        let (bytes, total) =
            (progress.bytes.load(Ordering::Relaxed), progress.bytes_total.load(Ordering::Relaxed));
        let frames = progress.frames.load(Ordering::Relaxed);
        let name = captures.get(index).map(|path| path.as_ref().display().to_string());
        terminal::show_progress(&progress_line(
            (index, captures.len(), &name.unwrap_or_default()),
            (bytes, total),
            frames,
            started.elapsed(),
        ));
        was_shown = true;
        wait = PROGRESS_INTERVAL;
    }
    if was_shown {
        terminal::show_progress("");
    }
}

fn progress_line(
    (index, captures, name): (usize, usize, &str),
    (bytes, total): (u64, u64),
    frames: u64,
    elapsed: Duration,
) -> String {
    let part = match bytes.checked_mul(100).and_then(|b| b.checked_div(total)) {
        Some(percent) => format!("{:>3} %", percent.min(100)),
        None => format!("{} MB", bytes / 1_000_000),
    };
    let rate = frames as f64 / elapsed.as_secs_f64().max(1e-9) / 1e6;
    let which = if captures > 1 { format!(" ({}/{captures})", index + 1) } else { String::new() };
    format!("{part}  {} frames  {rate:.2} M/s  {name}{which}", grouped(frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_part_frames_rate_and_file() {
        let two = Duration::from_secs(2);
        assert_eq!(
            progress_line((1, 3, "b.pcap"), (25, 100), 4_000_000, two),
            " 25 %  4,000,000 frames  2.00 M/s  b.pcap (2/3)"
        );
        assert_eq!(
            progress_line((0, 1, "-"), (7_000_000, 0), 0, two),
            "7 MB  0 frames  0.00 M/s  -",
            "a pipe has no known end"
        );
    }
}
