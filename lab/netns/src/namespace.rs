//! Named network namespaces that end with their owner.
//!
//! A [`Namespace`] is made by `ip netns add`, so every tool sees it under its name in `/run/netns`. It starts silent:
//! loopback up, no duplicate address detection, no router solicitations. Removing one first deletes its veth pairs and
//! then its name, in that order, because the kernel keeps a namespace (and its links) alive for as long as a process
//! runs in it: with the links gone, a straggler can neither send nor block the name. End your own processes first.
//!
//! What must always hold: a name in `/run/netns` of our form belongs to a living process or is removable. The set of
//! this process's names is kept beside the values, so that [`cleanup_all`] reaches namespaces whose owners are blocked
//! or leaked, and [`sweep_stale`] reads ownership from the name alone.
//!
//! [`Namespace::enter`] changes only a thread of its own: the calling thread never leaves its namespace, so no error
//! path can strand it in the wrong one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use crate::Error;
use crate::owner::{OwnedName, Owner};
use crate::tool::{ETHTOOL, IP};

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// File systems that live below `/sys` and stay reachable inside [`Namespace::enter`]: BPF pins, cgroups, tracing.
const KEPT_BELOW_SYS: [&str; 4] = ["fs/bpf", "fs/cgroup", "kernel/debug", "kernel/tracing"];

/// Bits of the capability sets in `/proc/<pid>/status`.
const CAPABILITIES_NEEDED: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// The names this process made and has not removed.
struct Registry {
    names: BTreeSet<String>,
    next_sequence: u64,
    /// Set by `cleanup_all`: the process is about to end.
    is_ending: bool,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { names: BTreeSet::new(), next_sequence: 0, is_ending: false });

fn registry() -> MutexGuard<'static, Registry> {
    // A panic under the lock leaves a set that is still true, and clean-up after a panic is the point.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A named network namespace, removed when dropped.
///
/// ```no_run
/// let namespace = laneway_netns::Namespace::create("doc")?;
/// let links = namespace.enter(|| std::fs::read_dir("/sys/class/net").map(Iterator::count))?;
/// assert_eq!(links.ok(), Some(1)); // only lo
/// # Ok::<(), laneway_netns::Error>(())
/// ```
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes `/run/netns/lw-<prefix>-<pid>-<start>-<n>`; the prefix is 1 to 32 of a-z, 0-9 and `-`.
    ///
    /// Fails without privilege (see [`can_create`]), without `ip`, or after [`cleanup_all`].
    pub fn create(prefix: &str) -> Result<Namespace, Error> {
        OwnedName::check_prefix(prefix)?;
        let owner = Owner::this_process()?;
        let namespace = {
            // Held while `ip` runs: cleanup_all then sees either nothing or a finished, registered namespace.
            let mut registry = registry();
            if registry.is_ending {
                return Err(Error::Ending);
            }
            let sequence = registry.next_sequence;
            registry.next_sequence += 1;
            let name = OwnedName { prefix: prefix.to_owned(), owner, sequence }.to_string();
            IP.run(&["netns", "add", &name])?;
            registry.names.insert(name.clone());
            Namespace { name }
        };
        namespace.enter(silence)??; // on failure the value drops here and takes the namespace along
        Ok(namespace)
    }

    /// The name `ip netns` lists.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for the namespace, for programs that take a path.
    pub fn path(&self) -> PathBuf {
        Path::new(NAMES).join(&self.name)
    }

    /// Runs `action` on a fresh thread inside the namespace, waits for it, and returns its value.
    ///
    /// There, sockets and child processes belong to the namespace, and `/sys/class/net` (a private mount) shows its
    /// interfaces; BPF pins, cgroups and tracing stay where they were. Sockets made there keep working after the
    /// return. A panic of `action` continues in the caller. Read `/proc/thread-self/net`, not `/proc/net`: the latter
    /// follows the process's main thread.
    pub fn enter<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T, Error> {
        enter_named(&self.name, action)
    }

    /// A command that will run `program` inside the namespace; add arguments and streams as usual.
    ///
    /// It is `ip netns exec`, which becomes the program (so the child's process id is the program's) and mounts a
    /// `/sys` of its own: `/sys/class/net` shows the namespace's interfaces, while BPF pins, cgroups and tracing below
    /// `/sys` are hidden from the program.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Removes the namespace now and says how it went; dropping does the same silently.
    pub fn remove(self) -> Result<(), Error> {
        remove_registered(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A drop has nobody to tell. On failure the name stays registered for cleanup_all, and after that it is
        // stale, and a later sweep_stale takes it.
        let _ = remove_registered(&self.name);
    }
}

/// Whether this process can make namespaces and cables; the error says what is missing.
///
/// It checks the capabilities, makes and leaves an anonymous namespace, and asks for `ip` and `ethtool`.
pub fn can_create() -> Result<(), Error> {
    let path = Path::new("/proc/thread-self/status");
    let status = fs::read_to_string(path).map_err(Error::path("read", path))?;
    let missing = missing_capabilities(&status)
        .ok_or_else(|| Error::unreadable("capabilities in /proc/thread-self/status", &status))?;
    if !missing.is_empty() {
        return Err(Error::Unprivileged { missing: format!("no {}", missing.join(", no ")) });
    }
    // A seccomp filter or a lockdown can refuse what the capabilities allow.
    on_own_thread(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS))?.map_err(
        |errno| Error::Unprivileged { missing: format!("unshare(2) says `{}`", errno.desc()) },
    )?;
    IP.run(&["-V"])?;
    ETHTOOL.run(&["--version"])?;
    Ok(())
}

/// Removes every namespace this process made, whoever holds the value, and lets it make no more.
///
/// For the end of a program on SIGINT or SIGTERM, from an ordinary thread (never from a signal handler: it locks and
/// runs programs). Safe to call twice and beside running drops. All are tried; the first failure is returned.
pub fn cleanup_all() -> Result<(), Error> {
    registry().is_ending = true;
    let names: Vec<String> = registry().names.iter().cloned().collect();
    first_error(names.iter().map(|name| remove_registered(name)))
}

/// Removes the namespaces of our naming whose owner is dead, and returns their names.
///
/// Namespaces of living processes and all foreign names are left alone; safe beside other sweepers. All are tried;
/// the first failure is returned.
pub fn sweep_stale() -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(NAMES) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::path("list", NAMES)(error)),
    };
    let mut stale = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::path("list", NAMES))?;
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str() else { continue }; // never ours
        if OwnedName::parse(name).is_some_and(|parsed| !parsed.owner.is_alive()) {
            stale.push(name.to_owned());
        }
    }
    first_error(stale.iter().map(|name| remove_named(name)))?;
    Ok(stale)
}

fn first_error(results: impl Iterator<Item = Result<(), Error>>) -> Result<(), Error> {
    // Collected first: one failure must not stop the rest from being tried.
    let results: Vec<_> = results.collect();
    results.into_iter().collect()
}

fn remove_registered(name: &str) -> Result<(), Error> {
    if !registry().names.contains(name) {
        return Ok(()); // cleanup_all was here
    }
    remove_named(name)?;
    registry().names.remove(name);
    Ok(())
}

fn remove_named(name: &str) -> Result<(), Error> {
    // Best effort: a namespace whose maker died half-way has a name but nothing behind it, and must still go.
    let _ = enter_named(name, delete_veth_links);
    match IP.run(&["netns", "del", name]) {
        Err(_) if !Path::new(NAMES).join(name).exists() => Ok(()), // somebody else removed it meanwhile
        result => result.map(drop),
    }
}

/// Deletes every veth link of the current namespace; each takes its peer in the other namespace along.
fn delete_veth_links() -> Result<(), Error> {
    let listing = IP.run(&["-o", "link", "show", "type", "veth"])?;
    for line in listing.lines() {
        // `3: sut0@if2: <BROADCAST,...`
        let Some(interface) = line.split_ascii_whitespace().nth(1) else { continue };
        let interface = interface.split(['@', ':']).next().unwrap_or(interface);
        IP.run(&["link", "del", "dev", interface])?;
    }
    Ok(())
}

/// Turns off what the kernel would send on its own. Acts on the current namespace, before any link exists.
fn silence() -> Result<(), Error> {
    IP.run(&["link", "set", "dev", "lo", "up"])?;
    // `all` as well as `default`: for accept_dad the larger of `all` and the interface's own value counts.
    for scope in ["all", "default"] {
        for setting in ["accept_dad", "router_solicitations"] {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/{setting}");
            match fs::write(&path, "0") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // a kernel without IPv6
                result => result.map_err(Error::path("write 0 to", path))?,
            }
        }
    }
    Ok(())
}

pub(crate) fn enter_named<T: Send>(
    name: &str,
    action: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    let path = Path::new(NAMES).join(name);
    on_own_thread(|| {
        let file = File::open(&path).map_err(Error::path("open namespace", &path))?;
        setns(&file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Error::path("enter namespace", &path)(errno.into()))?;
        show_own_sysfs()?;
        Ok(action())
    })?
}

fn on_own_thread<T: Send>(action: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("laneway-netns".to_owned())
            .spawn_scoped(scope, action)
            .map_err(Error::system("start a thread"))?;
        thread.join().or_else(|cause| panic::resume_unwind(cause))
    })
}

/// Gives the calling thread a `/sys` that shows its network namespace, in a mount namespace of its own.
fn show_own_sysfs() -> Result<(), Error> {
    const SYS: &str = "/sys";
    unshare(CloneFlags::CLONE_NEWNS).map_err(Error::system("unshare the mount namespace"))?;
    // Not shared, or our /sys would appear in the whole machine. Slave rather than private, so that what is mounted and
    // unmounted outside (the names of other namespaces, above all) is so here too.
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)
        .map_err(Error::system("make the mounts of this thread follow the outer ones"))?;

    let outer = open(SYS, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| Error::path("open", SYS)(errno.into()))?;
    let outer = File::from(outer);
    let outer_device = outer.metadata().map_err(Error::path("inspect", SYS))?.dev();

    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("laneway"), SYS, Some("sysfs"), flags, none)
        .map_err(|errno| Error::path("mount sysfs on", SYS)(errno.into()))?;

    for kept in KEPT_BELOW_SYS {
        // The covered mounts stay reachable through the descriptor.
        let source = format!("/proc/thread-self/fd/{}/{kept}", outer.as_raw_fd());
        let is_mounted =
            Path::new(&source).metadata().is_ok_and(|metadata| metadata.dev() != outer_device);
        if is_mounted {
            let target = Path::new(SYS).join(kept);
            mount(Some(source.as_str()), &target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
                .map_err(|errno: Errno| Error::path("keep the mount on", &target)(errno.into()))?;
        }
    }
    Ok(())
}

/// Names the needed capabilities that `CapEff` lacks; `None` if the text has no such line.
fn missing_capabilities(status: &str) -> Option<Vec<&'static str>> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    let lacking = |&(bit, _): &(u32, &str)| mask & (1 << bit) == 0;
    Some(CAPABILITIES_NEEDED.iter().filter(|need| lacking(need)).map(|&(_, name)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_capability_is_missing() {
        let check = |status: &str, expected: Option<&[&str]>| {
            assert_eq!(missing_capabilities(status).as_deref(), expected, "{status}");
        };
        check("Name:\tx\nCapEff:\t000001ffffffffff\n", Some(&[]));
        check("CapEff:\t0000000000001000\n", Some(&["CAP_SYS_ADMIN"]));
        check("CapEff:\t0000000000000000\n", Some(&["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]));
        check("Name:\tx\n", None);
    }

    #[test]
    fn refuses_a_prefix_that_would_not_parse_back() {
        for prefix in ["", "Race", "a/b", "a b", "..", &"x".repeat(33)] {
            assert!(matches!(Namespace::create(prefix), Err(Error::BadName { .. })), "{prefix}");
        }
    }
}
