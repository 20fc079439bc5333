//! What a run happens in: a folder, two network namespaces with cables between them, and the programs.
//!
//! Everything goes with its value: the namespaces are descriptors, the folder is removed, and a program that was
//! started ends by itself after the time it was given, should this process be killed before it could end it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use serde_json::Value;

/// Longest that a program may take beyond the time it was given: DPDK starts slowly, LTTng ends slowly.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most characters of a program's last words that are reported.
const WORDS_MAX: usize = 400;

/// Why a run has no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMade {
    /// The machine lacks what it needs.
    Skipped(String),
    /// It did not become what it should be: a healthy one lost packets, an overload none.
    Missed(String),
    /// Something failed that should not.
    Failed(String),
}

impl From<laneway_netns::Error> for NotMade {
    fn from(error: laneway_netns::Error) -> NotMade {
        NotMade::Failed(error.to_string())
    }
}

/// The programs, and where recordings go.
#[derive(Debug)]
pub struct World {
    laneway: PathBuf,
    worker: Result<PathBuf, String>,
    folder: PathBuf,
    quick: bool,
    keeps: bool,
    pub(crate) tracer: OnceLock<Result<f64, NotMade>>,
}

impl World {
    /// With the program `laneway`, recordings below `folder`, and the instrumented program compiled in `programs`, from
    /// where it must be allowed to run; both folders exist. `quick`: recordings of a third of the time.
    #[must_use]
    pub fn new(laneway: &Path, folder: &Path, programs: &Path, quick: bool) -> World {
        World {
            laneway: laneway.to_owned(),
            worker: compile(programs),
            folder: folder.to_owned(),
            quick,
            keeps: false,
            tracer: OnceLock::new(),
        }
    }

    /// Leaves the last recording of each kind in the folder.
    #[must_use]
    pub fn keeping(self) -> World {
        World { keeps: true, ..self }
    }

    /// Clears away what lies in `name`'s folder, unless it is to stay.
    pub(crate) fn clear(&self, name: &str) {
        if !self.keeps {
            // What cannot be removed goes with the folder around it.
            let _ = fs::remove_dir_all(self.folder.join(name));
        }
    }

    /// The program `laneway`.
    #[must_use]
    pub fn laneway(&self) -> &Path {
        &self.laneway
    }

    /// The instrumented program.
    ///
    /// # Errors
    /// It could not be compiled.
    pub fn worker(&self) -> Result<&Path, NotMade> {
        self.worker.as_deref().map_err(|why| NotMade::Skipped(why.clone()))
    }

    /// An empty folder for one run.
    ///
    /// # Errors
    /// What the file system says.
    pub fn folder(&self, name: &str) -> Result<PathBuf, NotMade> {
        let folder = self.folder.join(name);
        let failed = |error: io::Error| {
            NotMade::Failed(format!("cannot make {}: {error}", folder.display()))
        };
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::create_dir(&folder).map_err(failed)?;
        Ok(folder)
    }

    /// How long a recording of `milliseconds` is here.
    #[must_use]
    pub fn time_ms(&self, milliseconds: u64) -> u64 {
        if self.quick { milliseconds / 3 } else { milliseconds }
    }
}

const SOURCE: &str = include_str!("../program/worker.c");

fn compile(folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("laneway-gallery-worker");
    let source = program.with_extension("c");
    fs::write(&source, SOURCE)
        .map_err(|error| format!("cannot write {}: {error}", source.display()))?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-g", "-finstrument-functions", "-pthread", "-o"]).args([&program, &source]);
    let output =
        cc.output().map_err(|error| format!("no C compiler (apt install gcc): {error}"))?;
    if output.status.success() {
        Ok(program)
    } else {
        Err(format!("cc: {}", last_words(&output.stderr)))
    }
}

/// A generator's side and a worker's side, joined by cables `gen0` to `sut0`, `gen1` to `sut1`, ...
#[derive(Debug)]
pub(crate) struct Cables {
    _pairs: Vec<VethPair>, // first, so that they go before what they join
    /// Where traffic comes from.
    pub(crate) generator: Namespace,
    /// Where the worker is.
    pub(crate) worker: Namespace,
}

impl Cables {
    /// So many of them, of one queue.
    ///
    /// # Errors
    /// Skipped without the privilege.
    pub(crate) fn lay(count: u8) -> Result<Cables, NotMade> {
        can_create().map_err(|error| NotMade::Skipped(error.to_string()))?;
        let generator = Namespace::create("gallery-gen")?;
        let worker = Namespace::create("gallery-sut")?;
        let mut pairs = Vec::new();
        for n in 0..count {
            let end = |side: u8| {
                let address = format!("10.77.{n}.{side}/24");
                VethEnd::new(mac(n, side), &[address.as_str()])
                    .map_err(|e| NotMade::Failed(e.to_string()))
            };
            let options = VethOptions { a: end(1)?, b: end(2)?, ..VethOptions::default() };
            let (a, b) = (format!("gen{n}"), format!("sut{n}"));
            pairs.push(VethPair::create(&generator, &a, &worker, &b, &options)?);
        }
        Ok(Cables { _pairs: pairs, generator, worker })
    }
}

/// The address of an end: `side` 1 is the generator's, 2 the worker's.
#[must_use]
pub(crate) fn mac(cable: u8, side: u8) -> Mac {
    Mac([0x02, 0x4c, 0x57, 0, cable, side])
}

/// A program that runs beside this one, and ends with its value.
#[derive(Debug)]
pub(crate) struct Running {
    child: Option<Child>,
    name: String,
}

impl Running {
    /// Starts `command`; what it prints is kept.
    ///
    /// # Errors
    /// It did not start.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Running, NotMade> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| NotMade::Failed(format!("{name} did not start: {error}")))?;
        Ok(Running { child: Some(child), name: name.to_owned() })
    }

    /// Its process.
    #[must_use]
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Whether it runs still.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks it to end, as Ctrl-C does; `child_only` where it is the recorder of what shall end.
    ///
    /// # Errors
    /// It could not be asked. One that has ended is no error: it is waited for next.
    pub(crate) fn interrupt(&mut self, child_only: bool) -> Result<(), NotMade> {
        if !self.runs() {
            return Ok(());
        }
        let pid = self.pid();
        let whom = if child_only {
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
        } else {
            // Not reaped before it is waited for, so the number is its own.
            pid.to_string()
        };
        let asked = Command::new("sh").args(["-c", &format!("kill -INT {whom}")]).output();
        asked.map(|_| ()).map_err(|error| NotMade::Failed(format!("no sh: {error}")))
    }

    /// Waits until it ends by itself, and gives what it printed.
    ///
    /// # Errors
    /// It did not end, or not well; with its last words.
    pub(crate) fn end(mut self) -> Result<Output, NotMade> {
        let Some(mut child) = self.child.take() else {
            return Err(NotMade::Failed(format!("{} was waited for twice", self.name)));
        };
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let reader = |stream: Option<Box<dyn io::Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // What cannot be read is missing from its words, no more.
                stream.map(|mut stream| stream.read_to_end(&mut bytes));
                bytes
            })
        };
        let out = reader(out.map(|s| Box::new(s) as Box<dyn io::Read + Send>));
        let error = reader(error.map(|s| Box::new(s) as Box<dyn io::Read + Send>));
        let status = wait(&mut child, &self.name)?;
        let output = Output {
            status,
            stdout: out.join().unwrap_or_default(),
            stderr: error.join().unwrap_or_default(),
        };
        if output.status.success() {
            Ok(output)
        } else {
            let words = last_words(&output.stderr);
            Err(NotMade::Failed(format!("{} ended with {status}: {words}", self.name)))
        }
    }
}

fn wait(child: &mut Child, name: &str) -> Result<ExitStatus, NotMade> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
            other => {
                // It is ours, and was started a moment ago; that it may have ended meanwhile is no error.
                let _ = child.kill();
                let _ = child.wait();
                return Err(NotMade::Failed(match other {
                    Err(error) => format!("{name} cannot be waited for: {error}"),
                    _ => format!("{name} did not end within {PATIENCE:?}"),
                }));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The end of what a program printed, on one line.
#[must_use]
pub(crate) fn last_words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let skip = text.chars().count().saturating_sub(WORDS_MAX);
    text.chars().skip(skip).collect()
}

/// A program's JSON.
///
/// # Errors
/// It is none, with the program's name.
pub(crate) fn json(name: &str, bytes: &[u8]) -> Result<Value, NotMade> {
    serde_json::from_slice(bytes).map_err(|error| {
        NotMade::Failed(format!("{name} printed no JSON: {error}: {}", last_words(bytes)))
    })
}
