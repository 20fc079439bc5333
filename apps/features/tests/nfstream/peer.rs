//! The foreign side: NFStream in a Python environment of its own.

use crate::{
    captures::{Capture, Folder},
    flows::{Columns, Flow, Place, mapped},
};
use laneway_testkit::foreign;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const PACKAGE: &str = "nfstream==6.6.0";
/// How long NFStream may take for all captures before it is taken for hung: it reads on for ever
/// where its capture library reports the same error again and again.
const RUN_SECONDS_MAX: u64 = 600;

/// A Python that has NFStream.
///
/// # Errors
/// Why there is none.
pub(crate) fn python() -> Result<PathBuf, String> {
    foreign::python_with(env!("CARGO_TARGET_TMPDIR"), PACKAGE)
}

/// NFStream's flows of each capture, or why it cannot read it.
pub(crate) fn flows(
    python: &Path,
    captures: &[Capture],
    columns: &Columns,
    folder: &Folder,
) -> Vec<Result<Vec<Flow>, String>> {
    let (out, complaints) = (folder.path("nfstream.jsonl"), folder.path("nfstream.stderr"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nfstream/run_nfstream.py");
    // Isolated: nothing but the environment's own packages is imported. A process group of its own,
    // because NFStream starts further processes.
    let child = Command::new(python)
        .arg("-I")
        .arg(script)
        .arg(&out)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&complaints).expect("our own folder"))
        .process_group(0)
        .spawn()
        .expect("the environment has a Python");
    let paths: Vec<_> = captures.iter().map(|capture| capture.path.to_string_lossy()).collect();
    let paths = serde_json::to_vec(&paths).expect("strings are JSON");
    if !finish(child, &paths) {
        let printed = fs::read(&complaints).unwrap_or_default();
        let why = foreign::last_line(&printed).unwrap_or_default();
        panic!("NFStream failed: {why}; remove {} to have it installed anew", python.display());
    }

    let mut lines = BufReader::new(fs::File::open(&out).expect("NFStream's results")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line per capture").expect("a readable line");
        serde_json::from_str(&line).expect("a line of JSON")
    };
    let header = next();
    let names: Vec<&str> =
        header["columns"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    let reader = Reader::new(&names, columns);
    captures
        .iter()
        .map(|_| {
            let result = next();
            match result["error"].as_str() {
                Some(why) => Err(why.to_owned()),
                None => {
                    let flows = result["flows"].as_array().expect("a list of flows");
                    Ok(flows.iter().map(|flow| reader.flow(flow)).collect())
                }
            }
        })
        .collect()
}

/// Sends the child its input and waits for it; whether it succeeded.
fn finish(mut child: Child, input: &[u8]) -> bool {
    let mut stdin = child.stdin.take().expect("piped");
    // A child that fails early has closed its end; its message says why.
    let _ = stdin.write_all(input);
    drop(stdin);
    let deadline = Instant::now() + Duration::from_secs(RUN_SECONDS_MAX);
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            return status.success();
        }
        if Instant::now() > deadline {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            panic!("NFStream did not finish within {RUN_SECONDS_MAX} s");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where in a row of NFStream's the values lie.
struct Reader {
    identity: [usize; 7],
    integers: Vec<usize>,
    floats: Vec<usize>,
}

impl Reader {
    fn new(names: &[&str], columns: &Columns) -> Reader {
        let place = |name: &str| {
            let place = names.iter().position(|n| *n == name);
            place.unwrap_or_else(|| panic!("NFStream has no column {name}"))
        };
        Reader {
            identity: Columns::IDENTITY.map(|(_, theirs)| place(theirs)),
            integers: columns.integers.iter().map(|column| place(&column.theirs)).collect(),
            floats: columns.floats.iter().map(|column| place(&column.theirs)).collect(),
        }
    }

    fn flow(&self, row: &Value) -> Flow {
        let [src_ip, dst_ip, src_port, dst_port, proto, version, vlan] = self.identity;
        let ip = |at: usize| {
            let text = row[at].as_str().expect("an address is text");
            mapped(text.parse().expect("an address"))
        };
        // Unsigned in NFStream; a time before 1970 has wrapped.
        let integer = |at: usize| row[at].as_u64().expect("a number") as i64;
        Flow {
            place: Place {
                proto: integer(proto) as u8,
                version: integer(version) as u8,
                vlan: integer(vlan) as u16,
                source: (ip(src_ip), integer(src_port) as u16),
                destination: (ip(dst_ip), integer(dst_port) as u16),
            },
            integers: self.integers.iter().map(|at| integer(*at)).collect(),
            floats: self.floats.iter().map(|at| row[*at].as_f64().expect("a number")).collect(),
        }
    }
}
