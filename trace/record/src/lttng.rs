//! A session of LTTng for one instrumented program.
//!
//! Everything that LTTng keeps per user (settings, sockets, its daemon's state) goes into a folder of its own under the
//! temporary folder, by `LTTNG_HOME`. Only root's daemon has its sockets at a fixed place, `/var/run/lttng`, where
//! traced programs look for them: if a daemon runs there, it is used; else one is started, and ended with the session.
//!
//! What must always hold: the session, and what was started for it, is gone when [`LttngSession`] is, however it goes.

use crate::{RecordError, program};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The channel's name, which names its files.
pub const CHANNEL: &str = "channel0";

/// How long the daemon is waited for, to get ready and to end.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where root's daemon has its sockets.
const ROOT_RUN_FOLDER: &str = "/var/run/lttng";
const PACKAGE_TOOLS: &str = "lttng-tools";
const PACKAGE_UST: &str = "liblttng-ust-dev";

/// Which of LTTng's two recorders of function calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Entry and exit name the function: survives loss.
    #[default]
    Verbose,
    /// The exit is an empty event: half the data, sound only if nothing is lost.
    Fast,
}

impl Profile {
    fn library(self) -> &'static str {
        match self {
            Profile::Verbose => "liblttng-ust-cyg-profile.so",
            Profile::Fast => "liblttng-ust-cyg-profile-fast.so",
        }
    }
}

/// What happens to an event when no sub-buffer is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// It is discarded and counted: the program's timing stays what it is.
    #[default]
    Discard,
    /// The program waits for the consumer: nothing is lost, and times are distorted.
    Block,
}

/// How a session is set up.
#[derive(Clone, Copy, Debug)]
pub struct LttngOptions {
    /// Which recorder.
    pub profile: Profile,
    /// Bytes of a sub-buffer; a power of two.
    pub sub_buffer_bytes: u64,
    /// Sub-buffers per CPU; a power of two.
    pub sub_buffers: u32,
    /// What happens when all are full.
    pub full: Full,
}

impl Default for LttngOptions {
    /// 64 MiB per CPU: the consumer may be away for a third of a second at a million events a second.
    fn default() -> Self {
        LttngOptions {
            profile: Profile::default(),
            sub_buffer_bytes: 4 << 20,
            sub_buffers: 16,
            full: Full::default(),
        }
    }
}

/// What a session left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LttngSummary {
    /// Its folder.
    pub path: PathBuf,
    /// Bytes of all files in it.
    pub bytes: u64,
    /// What `lttng stop` warned of (discarded events), one per line.
    pub warnings: Vec<String>,
}

/// A session that is recording.
pub struct LttngSession {
    /// Declared in the order in which they must go: session, daemon, folder.
    session: Option<String>,
    daemon: Option<Daemon>,
    home: Home,
    lttng: PathBuf,
    library: PathBuf,
    output: PathBuf,
    full: Full,
}

impl LttngSession {
    /// Makes a session that writes into `output` and starts it.
    ///
    /// # Errors
    /// [`RecordError::Missing`] with the Debian package where LTTng is not installed; [`RecordError::Refused`]
    /// with LTTng's own words.
    pub fn start(output: &Path, options: LttngOptions) -> Result<LttngSession, RecordError> {
        let missing = |program, package| RecordError::Missing { program, package };
        let lttng = program::find("lttng").ok_or_else(|| missing("lttng", PACKAGE_TOOLS))?;
        let sessiond = program::find("lttng-sessiond")
            .ok_or_else(|| missing("lttng-sessiond", PACKAGE_TOOLS))?;
        let library = library(options.profile.library())
            .ok_or_else(|| missing(options.profile.library(), PACKAGE_UST))?;
        let mut session = LttngSession {
            session: None,
            daemon: None,
            home: Home::make()?,
            lttng,
            library,
            output: output.to_owned(),
            full: options.full,
        };
        session.ensure_daemon(&sessiond)?;
        session.create(options)?;
        Ok(session)
    }

    /// What the program to be traced needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut environment = vec![
            ("LD_PRELOAD", preload),
            ("LTTNG_HOME", self.home.0.clone().into_os_string()),
            // Milliseconds that a program waits at its start for the daemon to set it up; -1 for ever. Without it the
            // first events are missing.
            ("LTTNG_UST_REGISTER_TIMEOUT", "10000".into()),
        ];
        if self.full == Full::Block {
            environment.push(("LTTNG_UST_ALLOW_BLOCKING", "1".into()));
        }
        environment
    }

    /// Stops recording, writes what is in the buffers, and takes everything down.
    ///
    /// # Errors
    /// [`RecordError::Refused`] when LTTng refuses; everything is taken down all the same.
    pub fn finish(mut self) -> Result<LttngSummary, RecordError> {
        let Some(name) = self.session.take() else { unreachable!("a session ends once") };
        let stopped = self.run(&["stop", &name]);
        let destroyed = self.run(&["destroy", &name]);
        let printed = stopped?;
        destroyed?;
        let warnings = printed.lines().map(str::trim).filter(|line| line.starts_with("Warning"));
        Ok(LttngSummary {
            path: self.output.clone(),
            bytes: folder_bytes(&self.output),
            warnings: warnings.map(ToOwned::to_owned).collect(),
        })
    }

    fn ensure_daemon(&mut self, sessiond: &Path) -> Result<(), RecordError> {
        if geteuid().is_root() && self.run(&["list"]).is_ok() {
            return Ok(());
        }
        let mut daemon = Daemon::start(sessiond, &self.home)?;
        let began = Instant::now();
        while self.run(&["list"]).is_err() {
            if daemon.has_ended() || began.elapsed() > PATIENCE {
                return Err(RecordError::NotReady {
                    program: "lttng-sessiond",
                    seconds: PATIENCE.as_secs(),
                    printed: daemon.printed(),
                });
            }
            thread::sleep(LOOK_INTERVAL);
        }
        self.daemon = Some(daemon);
        Ok(())
    }

    fn create(&mut self, options: LttngOptions) -> Result<(), RecordError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-{}-{number}", process::id());
        let output = format!("--output={}", self.output.display());
        self.run(&["create", &name, &output])?;
        self.session = Some(name.clone());
        let session = format!("--session={name}");
        let channel = format!("--channel={CHANNEL}");
        let size = format!("--subbuf-size={}", options.sub_buffer_bytes);
        let count = format!("--num-subbuf={}", options.sub_buffers);
        let mut enable =
            vec!["enable-channel", "--userspace", &session, "--discard", &size, &count];
        if options.full == Full::Block {
            enable.push("--blocking-timeout=inf");
        }
        enable.push(CHANNEL);
        self.run(&enable)?;
        // The second one says which library lies where, without which addresses mean nothing.
        for events in ["lttng_ust_cyg_profile*", "lttng_ust_statedump:*"] {
            self.run(&["enable-event", "--userspace", &session, &channel, events])?;
        }
        let mut context = vec!["add-context", "--userspace", &session, &channel];
        context.extend(["--type=vpid", "--type=vtid", "--type=procname"]);
        self.run(&context)?;
        self.run(&["start", &name])?;
        Ok(())
    }

    fn run(&self, arguments: &[&str]) -> Result<String, RecordError> {
        let mut command = Command::new(&self.lttng);
        command.arg("--no-sessiond").args(arguments).env("LTTNG_HOME", &self.home.0);
        program::run(&mut command)
    }
}

impl Drop for LttngSession {
    fn drop(&mut self) {
        if let Some(name) = self.session.take() {
            // On the way out of a failure: the daemon ends next, and with it the session in any case.
            let _ = self.run(&["destroy", "--no-wait", &name]);
        }
    }
}

/// The folder for what LTTng keeps per user.
struct Home(PathBuf);

impl Home {
    fn make() -> Result<Home, RecordError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("laneway-lttng-{}-{number}", process::id()));
        // Its sockets take orders: no other user may open them.
        DirBuilder::new().mode(0o700).create(&path).map_err(|source| RecordError::File {
            doing: "make the folder",
            path: path.clone(),
            source,
        })?;
        Ok(Home(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What resists stays in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Our own session daemon.
struct Daemon {
    child: Child,
    log: PathBuf,
    /// Its sockets' folder, if it was not there before.
    made: Option<PathBuf>,
}

impl Daemon {
    fn start(sessiond: &Path, home: &Home) -> Result<Daemon, RecordError> {
        let run_folder = Path::new(ROOT_RUN_FOLDER);
        let made = (geteuid().is_root() && !run_folder.exists()).then(|| run_folder.to_owned());
        let log = home.0.join("sessiond.log");
        let file = |source| RecordError::File { doing: "make", path: log.clone(), source };
        let output = fs::File::create(&log).map_err(file)?;
        let errors = output.try_clone().map_err(file)?;
        // Ends with us even if we are killed, where the program that arranges this is there.
        let mut command = match program::find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM"]).arg(sessiond);
                command
            }
            None => Command::new(sessiond),
        };
        command
            .arg("--no-kernel")
            .env("LTTNG_HOME", &home.0)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        // Ctrl-C is for the command that is recorded; the daemon still has to write its buffers.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|source| RecordError::Command {
            command: sessiond.display().to_string(),
            source,
        })?;
        Ok(Daemon { child, log, made })
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    fn printed(&self) -> String {
        let printed = fs::read_to_string(&self.log).unwrap_or_default();
        let printed = program::last_lines(&printed);
        if printed.is_empty() { "it printed nothing".to_owned() } else { printed }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| !self.has_ended()) {
            let _ = kill_process(pid, Signal::TERM);
            let began = Instant::now();
            while !self.has_ended() && began.elapsed() < PATIENCE {
                thread::sleep(LOOK_INTERVAL);
            }
        }
        // Both fail on a daemon that has ended in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.made {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Where the dynamic linker would find a library, in the usual places of Debian and others.
fn library(name: &str) -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    let folders = [multiarch.as_str(), "/usr/local/lib", "/usr/lib64", "/usr/lib"];
    // The name without a version comes with the development package, the other one with the library itself.
    let names = [name.to_owned(), format!("{name}.1"), format!("{name}.0")];
    let places =
        folders.iter().flat_map(|folder| names.iter().map(|name| Path::new(folder).join(name)));
    places.into_iter().find(|place| place.exists())
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    bytes.sum()
}
