//! `laneway trace`: both recorded traces, and everything that is no trace. `LANEWAY_TRACES` names the folder of the
//! recorded traces; without it, tests that need them are skipped and say so.

use laneway_testkit::{skip, trace_file};
use laneway_tracer::{Session, SessionOptions, ThreadInfo, points};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laneway-trace-{}-{n}", std::process::id()));
        fs::create_dir(&path).expect("the temporary folder is writable");
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Unpacks a recorded trace into it; `None`, with the reason printed, where there is none.
    fn unpacked(&self, name: &str) -> Option<PathBuf> {
        let archive = trace_file(&format!("{name}.tar.zst"))?;
        let to = self.path(name);
        fs::create_dir(&to).expect("the folder is ours");
        let tar =
            Command::new("tar").arg("--zstd").arg("-xf").arg(&archive).arg("-C").arg(&to).output();
        match tar {
            Ok(output) if output.status.success() => Some(to),
            Ok(output) => {
                skip(format!("tar: {}", String::from_utf8_lossy(&output.stderr)));
                None
            }
            Err(error) => {
                skip(format!("tar: {error}"));
                None
            }
        }
    }

    /// What lies in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is ours");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn trace(words: &str, paths: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("trace");
    for word in words.split_whitespace() {
        match paths.iter().find(|(name, _)| *name == word) {
            Some((_, path)) => command.arg(path),
            None => command.arg(word),
        };
    }
    command.output().expect("the program starts")
}

#[track_caller]
fn done(output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One sentence on standard error, exit code 2, each part in it.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let sentence = printed.trim_end();
    assert_eq!(sentence.lines().count(), 1, "not one sentence: {sentence}");
    assert!(sentence.starts_with("laneway: "), "{sentence}");
    for part in parts {
        assert!(sentence.contains(part), "`{part}` is missing in: {sentence}");
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() { waiting.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn the_recorded_lttng_trace_is_read_to_the_last_event_and_shown() {
    let folder = Folder::new();
    let Some(recorded) = folder.unpacked("testpmd-tap-lttng") else { return };
    let listing = trace_file("testpmd.nm.gz").expect("it is beside the recordings");
    let (html, csv, svg) = (folder.path("t.html"), folder.path("csv"), folder.path("t.svg"));
    let paths = [
        ("TRACE", recorded.as_path()),
        ("NM", &listing),
        ("HTML", &html),
        ("CSV", &csv),
        ("SVG", &svg),
    ];
    let out =
        trace("analyze TRACE --symbols NM --html HTML --csv CSV --flamegraph SVG --json", &paths);
    let result: Value = serde_json::from_str(&done(&out)).expect("standard output is JSON");
    assert_eq!(result["coverage"]["entries"], 875_676);
    assert_eq!(result["coverage"]["exits"], 875_677);
    let names: Vec<&str> = result["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    assert!(names.contains(&"pkt_burst_io_forward"), "{names:?}");
    let page = fs::read_to_string(&html).expect("the page was written");
    assert!(page.contains("pkt_burst_io_forward") && page.ends_with("</html>\n"));
    assert!(page.len() < 6_000_000, "{} bytes", page.len());
    let functions = fs::read_to_string(csv.join("functions.csv")).expect("it was written");
    assert_eq!(functions.lines().count(), names.len() + 1);
    assert!(fs::read_to_string(&svg).expect("it was written").ends_with("</svg>\n"));
    assert_eq!(folder.names(), ["csv", "t.html", "t.svg", "testpmd-tap-lttng"]);
}

#[test]
fn the_recorded_dpdk_trace_tells_its_polls() {
    let folder = Folder::new();
    let Some(recorded) = folder.unpacked("testpmd-tap-rte") else { return };
    let paths = [("TRACE", recorded.as_path())];
    let result: Value =
        serde_json::from_str(&done(&trace("analyze TRACE --json", &paths))).expect("JSON");
    let polls = result["polls"].as_array().expect("a list");
    assert!(!polls.is_empty());
    let text = done(&trace("analyze TRACE", &paths));
    assert!(text.lines().count() > 20, "{text}");
}

#[test]
fn a_window_of_a_trace_is_exported_in_every_format_and_says_what_is_missing() {
    let folder = Folder::new();
    let Some(recorded) = folder.unpacked("testpmd-tap-lttng") else { return };
    let out = folder.path("out");
    let paths = [("TRACE", recorded.as_path()), ("OUT", &out)];
    for format in ["perfetto", "chrome"] {
        let line = format!("export TRACE --format {format} --from 10ms --to 20ms -o OUT");
        let output = trace(&line, &paths);
        done(&output);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("outside the selection"), "{format}: {printed}");
        assert!(fs::metadata(&out).expect("it was written").len() > 1_000, "{format}");
        if format == "chrome" {
            let text = fs::read_to_string(&out).expect("it was written");
            let value: Value = serde_json::from_str(&text).expect("valid JSON");
            assert!(value["otherData"]["left_out"]["outside"].as_u64() > Some(0));
        }
        fs::remove_file(&out).expect("it is a file");
    }
    done(&trace("export TRACE --format speedscope --longer-than 100us -o OUT", &paths));
    let files = files_in(&out);
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).expect("it was written");
        assert!(text.len() < 50_000_000);
        serde_json::from_str::<Value>(&text).expect("valid JSON");
    }
    fs::remove_dir_all(&out).expect("it is a folder");
    done(&trace("export TRACE --format collapsed -o OUT", &paths));
    let text = fs::read_to_string(&out).expect("it was written");
    assert!(text.lines().all(|line| {
        line.rsplit_once(' ').is_some_and(|(_, ns)| ns.parse::<u64>().is_ok_and(|ns| ns > 0))
    }));
    fs::remove_file(&out).expect("it is a file");
    done(&trace("export TRACE --format parquet --longer-than 100us -o OUT", &paths));
    for table in ["functions", "contexts", "calls"] {
        let bytes = fs::read(out.join(format!("{table}.parquet"))).expect("it was written");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{table}");
    }
}

#[test]
fn a_trace_does_not_differ_from_itself() {
    let folder = Folder::new();
    let Some(recorded) = folder.unpacked("testpmd-tap-rte") else { return };
    let svg = folder.path("d.svg");
    let paths = [("TRACE", recorded.as_path()), ("SVG", &svg)];
    let out = trace("diff TRACE TRACE --json --flamegraph SVG", &paths);
    let difference: Value = serde_json::from_str(&done(&out)).expect("JSON");
    let tables = difference["tables"].as_array().expect("a list");
    let rows: Vec<&Value> =
        tables.iter().flat_map(|table| table["rows"].as_array().expect("a list")).collect();
    assert!(rows.len() > 5, "{difference}");
    for row in rows {
        assert_eq!(row["verdict"], "no_verdict", "{row}");
        let neutral = if row["scale"] == "ratio" { 1.0 } else { 0.0 };
        assert!(row["change"].as_f64().is_none_or(|change| (change - neutral).abs() < 1e-9));
    }
    assert!(svg.is_file());
    let text = done(&trace("diff TRACE TRACE", &paths));
    assert!(text.contains("No verdict") && text.contains("--before A1 A2 A3"), "{text}");
    let line = "diff --before TRACE TRACE --after TRACE";
    refused(&trace(line, &paths), &["given twice", "leave one out"]);
}

#[test]
fn a_part_of_a_trace_is_analysed_by_time_and_thread() {
    let folder = Folder::new();
    let Some(recorded) = folder.unpacked("testpmd-tap-lttng") else { return };
    let paths = [("TRACE", recorded.as_path())];
    let analysed = |options: &str| -> Value {
        let out = trace(&format!("analyze TRACE --json {options}"), &paths);
        serde_json::from_str(&done(&out)).expect("JSON")
    };
    let whole = analysed("");
    let part = analysed("--from 10ms --to 20ms");
    let length = |of: &Value| of["coverage"]["span"]["length_ns"].as_u64().expect("a length");
    assert!(length(&part) <= 10_000_000 && length(&part) > 9_000_000, "{}", length(&part));
    let start = |of: &Value| of["coverage"]["span"]["start_ns"].as_u64().expect("a start");
    assert!(start(&part) >= start(&whole) + 10_000_000);
    let limits = part["coverage"]["limits"].to_string();
    assert!(limits.contains("only a part of the trace is analysed"), "{limits}");
    // The same part by its time of day.
    let of_day = |ns: u64| {
        let ns = ns % 86_400_000_000_000;
        let seconds = ns / 1_000_000_000;
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        format!("{hours:02}:{minutes:02}:{:02}.{:09}", seconds % 60, ns % 1_000_000_000)
    };
    let from = of_day(start(&whole) + 10_000_000);
    let to = of_day(start(&whole) + 20_000_000);
    let by_day = analysed(&format!("--from {from} --to {to}"));
    assert_eq!(by_day["functions"], part["functions"]);
    let busiest = whole["threads"].as_array().expect("a list").iter();
    let busiest = busiest.max_by_key(|row| row["events"].as_u64()).expect("a thread");
    let alone = analysed(&format!("--thread {}", busiest["tid"]));
    assert_eq!(alone["threads"].as_array().expect("a list").len(), 1);
    assert_eq!(alone["threads"][0]["events"], busiest["events"]);
    refused(&trace("analyze TRACE --from 99:00", &paths), &["hours, minutes and seconds"]);
    refused(&trace("analyze TRACE --thread nobody", &paths), &["means no thread"]);
}

#[test]
fn a_damaged_trace_is_read_as_far_as_it_goes_and_says_so() {
    let folder = Folder::new();
    let Some(recorded) = folder.unpacked("testpmd-tap-lttng") else { return };
    let largest = files_in(&recorded).into_iter().max_by_key(|file| file.metadata().unwrap().len());
    let largest = largest.expect("the archive holds files");
    let bytes = fs::read(&largest).expect("readable");
    fs::write(&largest, &bytes[..bytes.len() / 2 + 1_234]).expect("writable");
    let html = folder.path("t.html");
    let paths = [("TRACE", recorded.as_path()), ("HTML", &html)];
    let output = trace("analyze TRACE --json --html HTML", &paths);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    let last = printed.trim_end().lines().last().expect("it says something");
    assert!(last.contains("byte ") && last.contains("what could be read is shown"), "{printed}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON all the same");
    let entries = result["coverage"]["entries"].as_u64().expect("a count");
    assert!((100_000..875_676).contains(&entries), "{entries}");
    assert!(fs::read_to_string(&html).expect("written").contains("could not be read"));
}

#[test]
fn what_is_no_trace_is_refused_in_one_sentence() {
    let folder = Folder::new();
    let (text, empty, gone) = (folder.path("notes"), folder.path("empty"), folder.path("gone"));
    fs::write(&text, "dear diary").expect("writable");
    fs::create_dir(&empty).expect("writable");
    let out = folder.path("o");
    for (path, parts) in [
        (&text, &["notes", "is not a trace", "metadata"][..]),
        (&empty, &["empty", "is not a trace", "metadata"]),
        (&gone, &["gone", "No such file"]),
    ] {
        let paths = [("TRACE", path.as_path()), ("OUT", out.as_path())];
        for line in
            ["analyze TRACE --html OUT", "diff TRACE TRACE", "export TRACE --format chrome -o OUT"]
        {
            refused(&trace(line, &paths), parts);
        }
    }
    assert_eq!(folder.names(), ["empty", "notes"], "nothing is left behind");
}

/// A recording of one call in `folder`; its file.
fn recorded(folder: &Path) -> PathBuf {
    let session = Session::create(folder, SessionOptions::default()).expect("writable");
    let mut recorder = session.recorder(&ThreadInfo::current("worker-0")).expect("the first");
    let from = recorder.now();
    recorder.called(points::APP_FRAMES, from, from + 1_000, 1);
    drop(recorder);
    session.finish().expect("written").remove(0).path
}

#[test]
fn no_output_replaces_a_file_of_the_trace_it_is_made_from() {
    let folder = Folder::new();
    let (own, ctf, link) = (folder.path("own"), folder.path("ctf"), folder.path("link"));
    let file = recorded(&own);
    symlink(&file, &link).expect("the folder is ours");
    fs::create_dir(&ctf).expect("the folder is ours");
    let (described, stream) = (ctf.join("metadata"), ctf.join("stream_0"));
    fs::write(&described, "/* CTF 1.8 */").expect("writable");
    fs::write(&stream, "events").expect("writable");
    for (whole, part) in [
        (&own, &file),
        (&own, &link),
        (&file, &link),
        (&ctf, &described),
        (&ctf, &stream),
        (&described, &stream),
    ] {
        let before = fs::read(part).expect("readable");
        let paths = [("TRACE", whole.as_path()), ("OUT", part.as_path())];
        for line in [
            "export TRACE --format chrome -o OUT",
            "export TRACE --format collapsed -o OUT",
            "analyze TRACE --html OUT",
            "analyze TRACE --flamegraph OUT",
            "diff TRACE TRACE --flamegraph OUT",
        ] {
            refused(&trace(line, &paths), &["would replace the trace", "another place"]);
        }
        assert_eq!(fs::read(part).expect("still there"), before);
    }

    // What is no part of it may lie beside it, and may be made again.
    let page = own.join("page.html");
    let paths = [("TRACE", own.as_path()), ("PAGE", &page)];
    for _ in 0..2 {
        done(&trace("analyze TRACE --html PAGE", &paths));
    }
    assert!(page.is_file());
}

#[test]
fn wrong_options_are_refused_with_what_to_use() {
    let folder = Folder::new();
    let here = folder.path("t");
    fs::create_dir(&here).expect("writable");
    let paths = [("TRACE", here.as_path())];
    for (line, parts) in [
        ("analyse TRACE", &["'analyse'", "'analyze'"][..]),
        ("export TRACE --format perfeto -o o", &["'perfeto'", "'perfetto'"]),
        ("export TRACE --format csv --from 1s -o o", &["--from", "--format perfetto"]),
        ("export TRACE --format chrome --raw -o o", &["--raw", "collapsed"]),
        ("export TRACE --format chrome --from 1h -o o", &["'1h'", "300ms"]),
        ("analyze TRACE TRACE --html o", &["--html", "2 are given"]),
        ("analyze TRACE --call-cost many", &["'many'", "187,54"]),
        ("record --out TRACE --block -- true", &["--lttng|--lttng-fast"]),
        ("analyze TRACE --symbols nowhere.nm", &["--symbols", "nowhere.nm", "No such file"]),
    ] {
        refused(&trace(line, &paths), parts);
    }
}

#[test]
fn a_program_given_for_its_symbols_is_distinguished_from_a_listing() {
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_BIN_EXE_laneway"));
    let paths = [("TRACE", folder.0.as_path()), ("ELF", program)];
    refused(&trace("analyze TRACE --symbols ELF", &paths), &["is a program", "nm "]);
}
