//! `laneway trace record`: a command run, and a folder left for `trace analyze`.

use crate::arguments::RecordArguments;
use laneway_page::text::grouped;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use laneway_trace_export::Survey;
use laneway_trace_read::Trace;
use laneway_trace_record::{Full, LttngOptions, Plan, Profile, Recorded, Urgency, With, record};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::thread;

pub(super) fn run(arguments: &RecordArguments, json: bool) -> Result<Exit, Failure> {
    let plan = plan(arguments);
    let urgency = Urgency::new();
    listen(&urgency)?;
    let recorded = record(&plan, &urgency).map_err(Failure::input)?;
    if json {
        terminal::print_json(&as_json(arguments, &recorded), false)?;
    } else {
        terminal::note(summary(arguments, &recorded).trim_end());
    }
    if let Some(why) = nothing(arguments) {
        return Err(Failure::input(why));
    }
    judge(&recorded)
}

/// Recordings up to this size are looked into: a larger one holds events.
const LOOKED_INTO_BYTES: u64 = 16 << 20;

/// Why what the command was traced with recorded nothing; `None` if it did record something.
fn nothing(arguments: &RecordArguments) -> Option<String> {
    let out = arguments.out.display();
    let (why, calls_only) = if let Some(pattern) = &arguments.dpdk {
        let why = format!(
            "no event of `{pattern}` was recorded in {out}: points of the fast path (lib.ethdev.rx.burst, \
             lib.mempool.*) exist only in a DPDK that was built with -Denable_trace_fp=true, which Debian's is \
             not, and others are written only by a program that ends with rte_eal_cleanup"
        );
        (why, false)
    } else if arguments.lttng || arguments.lttng_fast {
        let why = format!(
            "no call was recorded in {out}: the command is not instrumented; build it with \
             -finstrument-functions, or name the program itself behind `--`"
        );
        (why, true)
    } else {
        return None;
    };
    let folders = fs::read_dir(&arguments.out).ok()?.flatten().map(|entry| entry.path());
    for folder in folders.filter(|path| path.is_dir()) {
        // A folder without a trace holds no events, either.
        let Ok(mut trace) = Trace::open(&folder) else { continue };
        let bytes: u64 = trace.about().files.iter().map(|(_, bytes)| bytes).sum();
        if bytes > LOOKED_INTO_BYTES {
            return None;
        }
        let read = trace.read(&mut Survey::default()).ok()?;
        if if calls_only { read.entries > 0 } else { read.events > 0 } {
            return None;
        }
    }
    Some(why)
}

fn plan(arguments: &RecordArguments) -> Plan {
    let with = if let Some(pattern) = &arguments.dpdk {
        With::Dpdk(pattern.clone())
    } else if arguments.lttng || arguments.lttng_fast {
        With::Lttng(LttngOptions {
            profile: if arguments.lttng_fast { Profile::Fast } else { Profile::Verbose },
            sub_buffer_bytes: u64::from(arguments.sub_buffer) << 20,
            sub_buffers: arguments.sub_buffers,
            full: if arguments.block { Full::Block } else { Full::Discard },
        })
    } else if arguments.kernel_only {
        With::Nothing
    } else {
        With::Itself
    };
    Plan {
        command: arguments.command.clone(),
        folder: arguments.out.clone(),
        with,
        kernel: arguments.kernel || arguments.kernel_only,
    }
}

/// From now on a signal is a call to end the command: this process ends when its recording is whole.
fn listen(urgency: &Urgency) -> Result<(), Failure> {
    let cannot = |error| Failure::input(format!("cannot listen for Ctrl-C: {error}; try again"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(cannot)?;
    let urgency = urgency.clone();
    let listen = move || signals.forever().for_each(|_| urgency.rise());
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(cannot)?;
    Ok(())
}

fn as_json(arguments: &RecordArguments, recorded: &Recorded) -> Value {
    let command: Vec<_> =
        arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let kernel = recorded.kernel.as_ref().map(|kernel| {
        json!({
            "file": terminal::path_json(&kernel.path),
            "threads": kernel.threads,
            "events": kernel.events,
            "lost": kernel.lost,
            "processes_not_followed": kernel.not_followed,
            "without_page_faults": kernel.without_faults,
        })
    });
    let lttng = recorded.lttng.as_ref().map(
        |lttng| json!({ "folder": terminal::path_json(&lttng.path), "bytes": lttng.bytes, "warnings": lttng.warnings }),
    );
    json!({
        "verb": "trace record",
        "command": command,
        "out": terminal::path_json(&arguments.out),
        "exit_code": recorded.ended.code,
        "signal": recorded.ended.signal,
        "interrupted": recorded.ended.interrupted,
        "lasted_ns": recorded.ended.lasted.as_nanos() as u64,
        "kernel": kernel,
        "lttng": lttng,
    })
}

fn summary(arguments: &RecordArguments, recorded: &Recorded) -> String {
    let mut text = String::new();
    if let Some(kernel) = &recorded.kernel {
        text.push_str(&format!(
            "kernel: {} events of {} threads, {} lost\n",
            grouped(kernel.events),
            kernel.threads,
            grouped(kernel.lost)
        ));
        if kernel.not_followed > 0 {
            let processes = grouped(kernel.not_followed);
            text.push_str(&format!("kernel: {processes} processes were not followed\n"));
        }
        if let Some(why) = &kernel.without_faults {
            text.push_str(&format!("kernel: without page faults: {why}\n"));
        }
    }
    if let Some(lttng) = &recorded.lttng {
        text.push_str(&format!("lttng: {} bytes\n", grouped(lttng.bytes)));
        for warning in &lttng.warnings {
            text.push_str(&format!("lttng: {warning}\n"));
        }
    }
    text.push_str(&format!("laneway trace analyze {}\n", arguments.out.display()));
    text
}

/// A recording of a command that failed is a recording; the user who asked for it should know.
fn judge(recorded: &Recorded) -> Result<Exit, Failure> {
    let ended = recorded.ended;
    match (ended.code, ended.signal) {
        _ if ended.interrupted => Ok(Exit::Inconclusive),
        (Some(0), _) => Ok(Exit::Done),
        (Some(code), _) => Err(Failure::Because(
            Exit::Inconclusive,
            format!("the command ended with exit code {code}; what it did until then is recorded"),
        )),
        (None, signal) => Err(Failure::Because(
            Exit::Inconclusive,
            format!(
                "the command was ended by signal {}; what it did until then is recorded",
                signal.unwrap_or(0)
            ),
        )),
    }
}
