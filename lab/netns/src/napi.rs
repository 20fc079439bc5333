//! Threaded NAPI: moving an interface's receive work from the sender into kernel threads that can be pinned.
//!
//! On veth the receiver's NAPI otherwise runs on the sender's core, which makes CPU cost unattributable. The threads
//! exist only while NAPI runs (GRO on, or an XDP program attached) and are new ones after the interface was down or
//! its queues changed: find and pin them again then. On veth, TSO must be off at the peer, or NAPI may never be woken.
//!
//! Every thread returned belongs to the interface asked for, and says by which proof ([`NapiProof`]); a name alone is
//! not one, since namespaces may repeat interface names. Nothing here measures: accounting by process id is the lab's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::interface::{
    POLL_INTERVAL_MS, check_name, ifindex, is_threaded, queue_count, read_text, sysfs_path,
};
use crate::{Error, netdev};

/// How long new threads may take to appear, milliseconds.
const THREADS_WAIT_MS: u64 = 1_000;
/// Where kernels that cut a thread's name cut it, bytes.
const COMM_BYTES_MAX: usize = 15;
/// Locked while threads are distinguished by appearance, so that two processes of ours do not mix up theirs.
const APPEARANCE_LOCK: &str = "/run";

/// How we know that a thread belongs to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NapiProof {
    /// The kernel reported it (netlink family `netdev`, kernel 6.8 and later).
    Kernel,
    /// It carries the interface's name and appeared when threading was turned on here.
    Appeared,
}

/// A kernel thread that runs one NAPI instance of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiThread {
    /// Its process id, for accounting.
    pub pid: u32,
    /// Its name, `napi/<interface>-<id>`; older kernels cut it to 15 characters.
    pub name: String,
    /// The CPUs it may run on, as last read back.
    pub cpus: Vec<usize>,
    /// How we know it is the interface's.
    pub proof: NapiProof,
}

impl NapiThread {
    fn read(pid: u32, proof: NapiProof) -> Result<NapiThread, Error> {
        Ok(NapiThread { pid, name: thread_name(pid)?, cpus: affinity(pid)?, proof })
    }

    /// Lets the thread run on `cpu` only, and reads that back.
    pub fn pin(&mut self, cpu: usize) -> Result<(), Error> {
        self.refresh()?;
        if cpu >= CpuSet::count() {
            return Err(Error::OutOfRange {
                what: "CPU number",
                value: cpu as u64,
                min: 0,
                max: CpuSet::count() as u64 - 1,
            });
        }
        let mut cpus = CpuSet::new();
        cpus.set(cpu).map_err(Error::system("name a CPU"))?;
        let refused = |got: String| Error::NotApplied {
            setting: "CPU affinity".to_owned(),
            interface: self.name.clone(),
            asked: format!("CPU {cpu}"),
            got,
        };
        match sched_setaffinity(as_pid(self.pid), &cpus) {
            Err(Errno::EINVAL) => return Err(refused("no such CPU in this machine".to_owned())),
            result => result.map_err(Error::system("pin a NAPI thread"))?,
        }
        let got = affinity(self.pid)?;
        if got != [cpu] {
            return Err(refused(format!("CPUs {got:?}")));
        }
        self.cpus = got;
        Ok(())
    }

    /// Reads its affinity again; fails if the thread has ended (its interface went down or lost its NAPI).
    pub fn refresh(&mut self) -> Result<(), Error> {
        let name = thread_name(self.pid)?;
        if name != self.name {
            // The id was given to another process.
            let path = format!("/proc/{}", self.pid);
            let gone = io::Error::new(io::ErrorKind::NotFound, "the thread has ended");
            return Err(Error::path("find the NAPI thread as", path)(gone));
        }
        self.cpus = affinity(self.pid)?;
        Ok(())
    }
}

/// Turns threaded NAPI of `interface` on or off, reads that back, and returns its threads (none when off).
///
/// Needs NAPI to run: the interface up, with GRO on or an XDP program attached. Waits at most a second for the
/// threads. On kernels before 6.8, fails when threading was on already: which thread belongs to which interface is
/// unknown then.
pub fn set_threaded(interface: &str, on: bool) -> Result<Vec<NapiThread>, Error> {
    check_name(interface)?;
    if !on {
        write_threaded(interface, false)?;
        return Ok(Vec::new());
    }
    match netdev::napi_instances(ifindex(interface)?)? {
        Some(_) => {
            write_threaded(interface, true)?;
            threads_by_kernel(interface)
        }
        None => threads_by_appearance(interface),
    }
}

/// Finds the threads that run the NAPI of `interface` now; empty if it is not threaded.
///
/// `None` on kernels before 6.8, which cannot be asked: keep what [`set_threaded`] returned.
pub fn napi_threads(interface: &str) -> Result<Option<Vec<NapiThread>>, Error> {
    let Some(instances) = netdev::napi_instances(ifindex(interface)?)? else { return Ok(None) };
    let pids = instances.into_iter().filter_map(|napi| napi.pid);
    pids.map(|pid| NapiThread::read(pid, NapiProof::Kernel)).collect::<Result<_, _>>().map(Some)
}

fn write_threaded(interface: &str, on: bool) -> Result<(), Error> {
    let path = sysfs_path(interface, "threaded")?;
    let value = if on { "1" } else { "0" };
    fs::write(&path, value).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::EOPNOTSUPP as i32 => {
            Error::NoNapi { interface: interface.to_owned() }
        }
        _ => Error::path("set threaded NAPI by", path)(error),
    })?;
    if is_threaded(interface)? == on {
        return Ok(());
    }
    Err(Error::NotApplied {
        setting: "threaded".to_owned(),
        interface: interface.to_owned(),
        asked: value.to_owned(),
        got: read_text(interface, "threaded")?,
    })
}

fn threads_by_kernel(interface: &str) -> Result<Vec<NapiThread>, Error> {
    let ifindex = ifindex(interface)?;
    await_threads(interface, || {
        let instances = netdev::napi_instances(ifindex)?.unwrap_or_default();
        let pids: Vec<u32> = instances.iter().filter_map(|napi| napi.pid).collect();
        Ok(Sighting { expected: instances.len().max(1), pids, proof: NapiProof::Kernel })
    })
}

/// For kernels that cannot be asked: the threads of this name that were not there before.
fn threads_by_appearance(interface: &str) -> Result<Vec<NapiThread>, Error> {
    let lock = File::open(APPEARANCE_LOCK).map_err(Error::path("open", APPEARANCE_LOCK))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, errno)| Error::path("lock", APPEARANCE_LOCK)(errno.into()))?;
    // A NAPI instance of veth serves one receive queue.
    let expected = queue_count(interface, "rx-")? as usize;
    let before = threads_named_for(interface)?;
    write_threaded(interface, true)?;
    await_threads(interface, || {
        let pids = threads_named_for(interface)?.difference(&before).copied().collect();
        Ok(Sighting { expected, pids, proof: NapiProof::Appeared })
    })
}

struct Sighting {
    expected: usize,
    pids: Vec<u32>,
    proof: NapiProof,
}

fn await_threads(
    interface: &str,
    mut look: impl FnMut() -> Result<Sighting, Error>,
) -> Result<Vec<NapiThread>, Error> {
    let started = Instant::now();
    loop {
        let Sighting { expected, pids, proof } = look()?;
        if pids.len() == expected {
            return pids.into_iter().map(|pid| NapiThread::read(pid, proof)).collect();
        }
        if started.elapsed() >= Duration::from_millis(THREADS_WAIT_MS) {
            return Err(Error::NapiThreads {
                interface: interface.to_owned(),
                found: pids.len(),
                expected,
                waited_ms: THREADS_WAIT_MS,
            });
        }
        thread::sleep(Duration::from_millis(POLL_INTERVAL_MS));
    }
}

fn threads_named_for(interface: &str) -> Result<BTreeSet<u32>, Error> {
    let mut pids = BTreeSet::new();
    for entry in fs::read_dir("/proc").map_err(Error::path("list", "/proc"))? {
        let entry = entry.map_err(Error::path("list", "/proc"))?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that ended since the listing is not a thread we look for.
        if thread_name(pid).is_ok_and(|name| is_named_for(&name, interface)) {
            pids.insert(pid);
        }
    }
    Ok(pids)
}

/// Whether a thread's name, whole or cut to 15 characters, is that of a NAPI thread of `interface`.
fn is_named_for(name: &str, interface: &str) -> bool {
    let stem = format!("napi/{interface}-");
    let was_cut = name.len() == COMM_BYTES_MAX;
    match name.strip_prefix(&stem) {
        Some(id) => id.bytes().all(|byte| byte.is_ascii_digit()) && (was_cut || !id.is_empty()),
        None => was_cut && stem.starts_with(name),
    }
}

fn thread_name(pid: u32) -> Result<String, Error> {
    let path = format!("/proc/{pid}/comm");
    let name = fs::read_to_string(&path).map_err(Error::path("read", path))?;
    Ok(name.trim_end().to_owned())
}

fn affinity(pid: u32) -> Result<Vec<usize>, Error> {
    let cpus = sched_getaffinity(as_pid(pid)).map_err(Error::system("read CPU affinity"))?;
    Ok((0..CpuSet::count()).filter(|&cpu| cpus.is_set(cpu).unwrap_or(false)).collect())
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{Namespace, VethOptions, VethPair, can_create};

    #[test]
    fn recognises_whole_and_cut_names_of_its_own_interface_only() {
        let check = |name: &str, interface: &str, expected: bool| {
            assert_eq!(is_named_for(name, interface), expected, "{name} for {interface}");
        };
        check("napi/sut0-261", "sut0", true);
        check("napi/sut0-261", "sut", false);
        check("napi/sut0-261", "sut01", false);
        check("napi/sut0-2-261", "sut0", false);
        check("napi/sut0-", "sut0", false);
        check("kworker/0:1", "sut0", false);
        // cut to 15 characters: inside the number, at the dash, inside the interface's name
        check("napi/abcdefg-26", "abcdefg", true);
        check("napi/abcdefghi-", "abcdefghi", true);
        check("napi/abcdefghij", "abcdefghijklmno", true);
        check("napi/abcdefghij", "abcdefghxx", false);
        // newer kernels print the whole name
        check("napi/abcdefghijklmno-261", "abcdefghijklmno", true);
    }

    #[test]
    fn appearance_finds_the_threads_that_the_kernel_names() {
        if let Err(error) = can_create() {
            let _ = io::stderr().write_all(format!("skipped: {error}\n").as_bytes());
            return;
        }
        // A twin elsewhere has threads of the same name.
        let rooms =
            ["appear", "twin"].map(|prefix| Namespace::create(prefix).expect("a namespace"));
        let options = VethOptions { queues: 2, ..VethOptions::default() };
        let _pairs = rooms.each_ref().map(|room| {
            VethPair::create(room, "appear0", room, "appear1", &options).expect("a cable")
        });
        let [namespace, twin] = rooms;
        let twins = twin.enter(|| threads_by_appearance("appear0")).expect("enters");
        assert_eq!(twins.expect("two threads appear").len(), 2);
        let (appeared, reported) = namespace
            .enter(|| (threads_by_appearance("appear0"), napi_threads("appear0")))
            .expect("enters");
        let pids = |threads: Vec<NapiThread>| -> BTreeSet<u32> {
            threads.into_iter().map(|thread| thread.pid).collect()
        };
        let appeared = appeared.expect("two threads appear");
        assert!(appeared.iter().all(|thread| thread.proof == NapiProof::Appeared));
        match reported.expect("reads") {
            Some(reported) => assert_eq!(pids(appeared), pids(reported)),
            None => {
                let _ = io::stderr().write_all(b"skipped: this kernel cannot name threads\n");
            }
        }
    }
}
