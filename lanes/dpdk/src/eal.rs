//! DPDK's environment abstraction layer (EAL): started once per process, for all lanes.
//!
//! DPDK cannot be started twice, nor with other memory the second time, so the first lane decides and
//! a later one that asks for something else is refused with the reason. The EAL starts on a thread of
//! its own, which ends at once: the caller's affinity and signal mask stay as they were, and DPDK's
//! helper threads live in the process's first network namespace, not in one that a lane's thread
//! happens to stand in.
//!
//! What must always hold: set-up calls are made under one lock ([`Setup`]); a worker's thread is known
//! to DPDK while it has a lane ([`Lcore`]), or its pool would work without a cache; nothing is mounted
//! or left in the file system (`--in-memory`, or `--no-shconf` without huge pages). DPDK's log is kept for
//! errors, never printed.

use crate::{
    config::{Config, Memory, NAME},
    device::Device,
    hugepages,
    shim::{Shim, package_of},
};
use laneway_core::{Cap, LaneError};
use std::{
    cell::Cell,
    ffi::{CStr, CString, c_int},
    fs, io,
    marker::PhantomData,
    mem,
    os::fd::AsRawFd,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// Lines of DPDK's log that an error repeats.
const LOG_LINES_SHOWN: usize = 4;
/// At least what the shim keeps.
const LOG_BYTES: usize = 8192;

/// DPDK, started.
pub(crate) struct Eal {
    pub(crate) shim: Shim,
    huge: bool,
    memory_mb: usize,
    serial: AtomicU32,
    setup: Mutex<()>,
}

/// What became of the start.
enum State {
    New,
    Up(&'static Eal),
    Failed(String),
}

static STATE: Mutex<State> = Mutex::new(State::New);

/// Leave to make set-up calls.
pub(crate) struct Setup<'e> {
    eal: &'e Eal,
    _lock: MutexGuard<'e, ()>,
}

impl Eal {
    /// DPDK as `config` wants it: started now, or earlier and fitting.
    ///
    /// # Errors
    /// No DPDK, no huge pages, a failed start, or an earlier start with other memory.
    pub(crate) fn get(config: &Config) -> Result<&'static Eal, LaneError> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Up(eal) => {
                eal.check(config)?;
                return Ok(eal);
            }
            State::Failed(why) => {
                return Err(LaneError::Refused {
                    lane: NAME.to_owned(),
                    name: "DPDK".to_owned(),
                    why: format!("it could not be started earlier in this process: {why}"),
                    hint: "start the program again".to_owned(),
                });
            }
            State::New => {}
        }
        let huge = wants_huge(config)?;
        // A failure up to here leaves DPDK untouched: another lane may try again.
        let shim = Shim::load()?;
        let eal: &'static Eal = Box::leak(Box::new(Eal {
            shim,
            huge,
            memory_mb: config.memory_mb,
            serial: AtomicU32::new(0),
            setup: Mutex::new(()),
        }));
        match eal.start(config) {
            Ok(()) => {
                *state = State::Up(eal);
                Ok(eal)
            }
            Err(e) => {
                *state = State::Failed(e.to_string());
                Err(e)
            }
        }
    }

    fn start(&'static self, config: &Config) -> Result<(), LaneError> {
        let arguments = start_arguments(config, self.huge)?;
        let run = move || {
            // Best effort: without the privilege the helpers stay where the caller is.
            let _ = enter_first_namespace();
            let mut words: Vec<_> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
            let count = words.len() as c_int;
            words.push(std::ptr::null_mut());
            // SAFETY: `count` terminated strings and a null pointer, alive across the call; DPDK
            // copies what it keeps and reorders the pointers only.
            unsafe { (self.shim.eal_start)(count, words.as_mut_ptr()) }
        };
        let setup = self.setup();
        let thread = thread::Builder::new().name("dpdk-start".to_owned()).spawn(run);
        let doing = "start DPDK";
        let thread = thread.map_err(|e| LaneError::os(NAME, doing, e, "see `ulimit -u`"))?;
        let code = thread.join().expect("the start makes one C call, which cannot panic");
        if code < 0 {
            let hint = if self.huge {
                "huge pages may be short: try hugepages=64, or no-huge"
            } else {
                "memory may be short: lower mem="
            };
            return Err(setup.failed(doing, code, hint));
        }
        self.remove_runtime_folder();
        Ok(())
    }

    /// DPDK makes a folder for files of its own, although it is asked to keep none. Its name is this
    /// process's; the folder above goes if nothing else uses it.
    fn remove_runtime_folder(&self) {
        // SAFETY: no arguments.
        let text = unsafe { (self.shim.runtime_folder)() };
        // SAFETY: a terminated string that DPDK keeps.
        let folder = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        let folder = Path::new(&folder);
        if fs::remove_dir(folder).is_ok()
            && let Some(above) = folder.parent()
        {
            let _ = fs::remove_dir(above);
        }
    }

    /// Refuses a lane that wants other memory than DPDK was started with.
    fn check(&self, config: &Config) -> Result<(), LaneError> {
        let has = if self.huge { "with huge pages" } else { "without huge pages" };
        let want = match config.memory {
            Memory::Huge | Memory::Reserve(_) if !self.huge => "hugepages",
            Memory::Ordinary if self.huge => "no-huge",
            _ => return Ok(()),
        };
        if want == "hugepages" && config.allowed_missing.has(Cap::HugePages) {
            return Ok(());
        }
        Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: want.to_owned(),
            why: format!("an earlier lane of this process started DPDK {has}, once and for all"),
            hint: "give all dpdk lanes of one process the same memory knobs".to_owned(),
        })
    }

    /// True when packet memory lies in huge pages.
    pub(crate) fn is_huge(&self) -> bool {
        self.huge
    }

    /// Memory of the process without huge pages, in MiB.
    pub(crate) fn memory_mb(&self) -> usize {
        self.memory_mb
    }

    /// A number that no other object of this process has in its name.
    pub(crate) fn serial(&self) -> u32 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Leave to make set-up calls; blocks while another thread makes some.
    pub(crate) fn setup(&self) -> Setup<'_> {
        let lock = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let setup = Setup { eal: self, _lock: lock };
        // What was logged before is about something else.
        setup.log();
        setup
    }

    /// DPDK's version, as it says it.
    pub(crate) fn version(&self) -> String {
        // SAFETY: no arguments.
        let text = unsafe { (self.shim.version)() };
        // SAFETY: DPDK returns a constant, terminated string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Where DPDK looks for drivers.
    fn driver_folder(&self) -> String {
        // SAFETY: no arguments.
        let text = unsafe { (self.shim.driver_folder)() };
        // SAFETY: a constant, terminated string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Refuses a driver whose plug-in is not installed.
    ///
    /// # Errors
    /// [`LaneError::NotFound`] with the package to install.
    pub(crate) fn check_driver(&self, device: &Device) -> Result<(), LaneError> {
        let folder = self.driver_folder();
        let Some(driver) = device.driver() else { return Ok(()) };
        // A DPDK that was built statically has its drivers inside and no such folder.
        if folder.is_empty() || !Path::new(&folder).parent().is_some_and(Path::exists) {
            return Ok(());
        }
        // The folder's name ends with the number that libraries and packages carry: pmds-23.0.
        let number = folder.rsplit_once('-').map_or("", |(_, number)| number);
        let library = format!("librte_{}.so.{number}", driver.name());
        if Path::new(&folder).join(&library).exists() {
            return Ok(());
        }
        let package = package_of(&library).unwrap_or_else(|| "dpdk".to_owned());
        Err(LaneError::NotFound {
            lane: NAME.to_owned(),
            what: "DPDK driver",
            name: driver.name().to_owned(),
            hint: format!(
                "{folder}/{library} is missing: `apt-get install {package}`, or `apt-get install \
                 dpdk` for all drivers"
            ),
        })
    }
}

impl Setup<'_> {
    /// The shim's functions.
    pub(crate) fn shim(&self) -> &Shim {
        &self.eal.shim
    }

    /// Takes what DPDK logged since the last time.
    pub(crate) fn log(&self) -> String {
        let mut text = vec![0u8; LOG_BYTES];
        // SAFETY: room for that many bytes.
        let bytes = unsafe { (self.eal.shim.log_take)(text.as_mut_ptr(), text.len()) };
        text.truncate(bytes);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The error for a set-up call that returned `code`, with DPDK's own last words.
    pub(crate) fn failed(&self, doing: impl Into<String>, code: c_int, hint: &str) -> LaneError {
        let last = last_lines(&self.log());
        let hint = match last.is_empty() {
            true => hint.to_owned(),
            false => format!("{hint}; DPDK says: {last}"),
        };
        // Many drivers return -1 for whatever went wrong; as an error number it would say "not
        // permitted".
        let source = match code {
            -1 => io::Error::other("no error number"),
            _ => io::Error::from_raw_os_error(code.saturating_abs()),
        };
        LaneError::Os { lane: NAME.to_owned(), doing: doing.into(), source, hint }
    }
}

/// True when this thread has the capabilities that network devices need.
pub(crate) fn is_privileged() -> bool {
    /// CAP_NET_ADMIN and CAP_NET_RAW.
    const NEEDED: u64 = 1 << 12 | 1 << 13;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & NEEDED == NEEDED)
}

/// The last lines of a log as one. Indented lines are help texts.
fn last_lines(log: &str) -> String {
    let says = |line: &&str| !line.is_empty() && !line.starts_with([' ', '\t']);
    let lines: Vec<&str> = log.lines().map(str::trim_end).filter(says).collect();
    let first = lines.len().saturating_sub(LOG_LINES_SHOWN);
    lines[first..].join(" | ")
}

/// Whether DPDK is to start with huge pages.
fn wants_huge(config: &Config) -> Result<bool, LaneError> {
    let free = hugepages::free_pages();
    match config.memory {
        Memory::Either => Ok(free > 0),
        Memory::Ordinary => Ok(false),
        Memory::Reserve(_) | Memory::Huge if free > 0 => Ok(true),
        Memory::Reserve(_) | Memory::Huge if config.allowed_missing.has(Cap::HugePages) => {
            Ok(false)
        }
        Memory::Reserve(_) | Memory::Huge => Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: "hugepages".to_owned(),
            why: "no huge page of 2 MiB is free on this machine".to_owned(),
            hint: "reserve some with hugepages=64 (given back with the lane) or \
                   `sysctl vm.nr_hugepages=64`, or use no-huge"
                .to_owned(),
        }),
    }
}

/// DPDK's command line.
fn start_arguments(config: &Config, huge: bool) -> Result<Vec<CString>, LaneError> {
    let cpu = first_cpu()
        .map_err(|e| LaneError::os(NAME, "read this thread's affinity", e, "see `taskset -p`"))?;
    let mut words: Vec<String> =
        ["laneway", "--no-telemetry", "--file-prefix"].map(str::to_owned).to_vec();
    words.push(format!("laneway-{}", std::process::id()));
    // Its own number for the thread is 0, on whichever CPU: DPDK has 128 of them (RTE_MAX_LCORE), machines have more.
    words.extend(["--lcores".to_owned(), format!("0@{cpu}")]);
    match &config.device {
        Device::Pci(addresses) => {
            // Only these: DPDK would take every device that is bound to a user driver.
            words.extend(addresses.iter().flat_map(|a| ["-a".to_owned(), a.clone()]));
        }
        _ => words.extend(["--no-pci".to_owned(), "--iova-mode=va".to_owned()]),
    }
    if huge {
        words.push("--in-memory".to_owned());
    } else {
        // DPDK has no --in-memory without huge pages; this is what it means for ordinary ones.
        words.extend(["--no-shconf", "--no-huge", "-m"].map(str::to_owned));
        words.push(config.memory_mb.to_string());
    }
    let terminated = |word| CString::new(word).expect("numbers, addresses and our own words");
    Ok(words.into_iter().map(terminated).collect())
}

/// The first CPU that this thread may run on.
fn first_cpu() -> io::Result<usize> {
    // SAFETY: a set of bits; zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: room for a set and its size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let count = 8 * size_of_val(&set);
    // SAFETY: `cpu` is within the set.
    let first = (0..count).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    first.ok_or_else(|| io::Error::other("it may run nowhere"))
}

/// Moves this thread to the network namespace of the process's main thread.
fn enter_first_namespace() -> io::Result<()> {
    let namespace = fs::File::open("/proc/self/ns/net")?;
    // SAFETY: a descriptor that is open during the call; only this thread moves.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

thread_local! {
    /// Lanes of this thread.
    static LANES: Cell<usize> = const { Cell::new(0) };
    /// True when DPDK gave this thread a number.
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// This thread's place among DPDK's workers (an lcore), shared by all lanes of the thread. Without
/// one (DPDK has 128) everything works, but pools bypass their caches.
pub(crate) struct Lcore {
    eal: &'static Eal,
    /// It belongs to the thread that made it.
    _here: PhantomData<*const ()>,
}

impl Lcore {
    /// Makes this thread known to DPDK.
    pub(crate) fn enter(eal: &'static Eal) -> Lcore {
        if LANES.replace(LANES.get() + 1) == 0 {
            let _setup = eal.setup();
            // SAFETY: no arguments; called once per thread, under the lock.
            REGISTERED.set(unsafe { (eal.shim.thread_register)() } == 0);
        }
        Lcore { eal, _here: PhantomData }
    }

    /// True when this thread's pools work with their caches.
    pub(crate) fn has_cache(&self) -> bool {
        REGISTERED.get()
    }
}

impl Drop for Lcore {
    fn drop(&mut self) {
        if LANES.replace(LANES.get() - 1) == 1 && REGISTERED.replace(false) {
            let _setup = self.eal.setup();
            // SAFETY: this thread was registered, and no lane of it is left.
            unsafe { (self.eal.shim.thread_unregister)() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(spec: &str, huge: bool) -> String {
        let config = Config::read(&spec.parse().expect("well formed"), 1).expect("valid");
        let words = start_arguments(&config, huge).expect("this thread runs somewhere");
        words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nothing_is_mounted_and_no_device_is_taken_unasked() {
        let line = arguments("dpdk:net_null,mem=64", false);
        for word in ["--no-shconf", "--no-telemetry", "--no-pci", "--no-huge -m 64"] {
            assert!(line.contains(word), "{line}");
        }
        let cpu = first_cpu().expect("this thread runs somewhere");
        assert!(line.contains(&format!("--lcores 0@{cpu} ")), "{line}");
        let line = arguments("dpdk:pci=0000:01:00.0", true);
        assert!(line.contains("-a 0000:01:00.0") && !line.contains("--no-pci"), "{line}");
        assert!(line.contains("--in-memory") && !line.contains("--no-huge"), "{line}");
    }

    #[test]
    fn an_error_repeats_the_last_lines_of_the_log() {
        let log = "one\ntwo\n\nEAL: three\n  --help\nfour\nfive\nsix\n";
        assert_eq!(last_lines(log), "EAL: three | four | five | six");
        assert_eq!(last_lines(""), "");
    }
}
