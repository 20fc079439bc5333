//! Network namespaces without a name, which end with their holder.
//!
//! A [`Namespace`] is a descriptor: a short-lived thread moves into a new network namespace and opens it, and nothing
//! is written to the file system. The kernel removes a namespace, with its links and what is attached to them, when the
//! last descriptor of it is closed and no process runs in it any more. Both end with a process however it ends, so
//! there is nothing to sweep up. A namespace starts silent: loopback up, no duplicate address detection, no router
//! solicitations.
//!
//! What must always hold: the descriptor is closed on exec, so no child keeps a namespace by accident; a child that was
//! started inside keeps it alive on purpose. Dropping a namespace deletes its veth pairs at once, so that such a
//! straggler can neither send nor receive. End your own processes first.
//!
//! [`Namespace::enter`] changes only a thread of its own: the calling thread never leaves its namespace, so no error
//! path can strand it in the wrong one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Weak};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use crate::Error;
use crate::tool::{ETHTOOL, IP};

/// The network namespace of the calling thread, as a file to open.
const OWN: &str = "/proc/thread-self/ns/net";

/// File systems that live below `/sys` and stay reachable inside [`Namespace::enter`]: BPF pins, cgroups, tracing.
const KEPT_BELOW_SYS: [&str; 4] = ["fs/bpf", "fs/cgroup", "kernel/debug", "kernel/tracing"];

/// Becomes its arguments, with a `/sys` that shows the network namespace it runs in. Where a thread inside that
/// namespace starts it, `/sys` is that one already, and the kernel refuses to mount the same one on itself (EBUSY).
const WITH_OWN_SYSFS: &str = r#"
why=$(LC_ALL=C mount -t sysfs -o nosuid,nodev,noexec laneway /sys 2>&1) || case $why in
    *"already mounted"*) ;;
    *) echo "$why" >&2; exit 126 ;;
esac
exec "$0" "$@""#;

/// Bits of the capability sets in `/proc/<pid>/status`.
const CAPABILITIES_NEEDED: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// A network namespace without a name, removed when dropped.
///
/// ```no_run
/// let namespace = laneway_netns::Namespace::create("doc")?;
/// let links = namespace.enter(|| std::fs::read_dir("/sys/class/net").map(Iterator::count))?;
/// assert_eq!(links.ok(), Some(1)); // only lo
/// # Ok::<(), laneway_netns::Error>(())
/// ```
#[derive(Debug)]
pub struct Namespace {
    label: String,
    file: Arc<File>,
}

/// A namespace as long as its owner keeps it, for what lies in it.
#[derive(Debug)]
pub struct WeakNamespace(Weak<File>);

impl Namespace {
    /// Makes one. The label stands in records; it need not be unique.
    ///
    /// Fails without privilege (see [`can_create`]) or without `ip`.
    pub fn create(label: &str) -> Result<Namespace, Error> {
        let file = on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
            File::open(OWN).map_err(Error::path("open", OWN))
        })??;
        let namespace = Namespace { label: label.to_owned(), file: Arc::new(file) };
        namespace.enter(silence)??;
        Ok(namespace)
    }

    /// What it is called in records.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// A path that stands for the namespace while this value lives, for programs that take one
    /// (`nsenter --net=PATH`, `ip link set sut0 netns PATH`).
    pub fn path(&self) -> PathBuf {
        // Not /proc/self: a child of ours may be the one that opens it.
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()))
    }

    /// The same, without keeping it.
    pub fn downgrade(&self) -> WeakNamespace {
        WeakNamespace(Arc::downgrade(&self.file))
    }

    /// Runs `action` on a fresh thread inside the namespace, waits for it, and returns its value.
    ///
    /// There, sockets and child processes belong to the namespace, and `/sys/class/net` (a private mount) shows its
    /// interfaces; BPF pins, cgroups and tracing stay where they were. Sockets made there keep working after the
    /// return. A panic of `action` continues in the caller. Read `/proc/thread-self/net`, not `/proc/net`: the latter
    /// follows the process's main thread.
    pub fn enter<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T, Error> {
        enter_file(&self.file, action)
    }

    /// A command that will run `program` inside the namespace; add arguments and streams as usual.
    ///
    /// `nsenter`, `unshare` and `sh` become the program one after the other (so the child's process id is the
    /// program's), which gives it a `/sys` of its own: `/sys/class/net` shows the namespace's interfaces, while BPF
    /// pins, cgroups and tracing below `/sys` are hidden from it. A child that is started within
    /// [`enter`](Namespace::enter) sees them, too.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display()));
        command.args(["--", "unshare", "--mount", "--propagation", "slave", "--"]);
        command.args(["sh", "-c", WITH_OWN_SYSFS]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // There is nothing more to do about a failure: the kernel deletes them with the last process inside.
        let _ = self.enter(delete_veth_links);
    }
}

impl WeakNamespace {
    /// As [`Namespace::enter`]; `None` when the namespace is gone.
    pub fn enter<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Option<Result<T, Error>> {
        self.0.upgrade().map(|file| enter_file(&file, action))
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
    on_own_thread(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS))?
        .map_err(refused)?;
    IP.run(&["-V"])?;
    ETHTOOL.run(&["--version"])?;
    Ok(())
}

fn refused(errno: Errno) -> Error {
    Error::Unprivileged { missing: format!("unshare(2) says `{}`", errno.desc()) }
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

fn enter_file<T: Send>(file: &File, action: impl FnOnce() -> T + Send) -> Result<T, Error> {
    on_own_thread(|| {
        setns(file, CloneFlags::CLONE_NEWNET).map_err(Error::system("enter a namespace"))?;
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

/// Where it lies: a folder that every glibc system has.
const MEMORY: &str = "/dev/shm";

/// An empty folder in memory, for the calling process alone: it lies in a mount namespace of its own and goes with
/// it, however the process ends. To be called before the process has a second thread, which would not see it.
///
/// # Errors
/// Without the privilege to mount.
pub fn memory_folder() -> Result<PathBuf, Error> {
    own_mounts()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("laneway"), MEMORY, Some("tmpfs"), flags, Some("size=75%,mode=0700"))
        .map_err(|errno| Error::path("mount tmpfs on", MEMORY)(errno.into()))?;
    Ok(PathBuf::from(MEMORY))
}

/// Puts the calling thread into a mount namespace of its own. No thread outside it sees what is mounted there.
fn own_mounts() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(Error::system("unshare the mount namespace"))?;
    // Not shared, or what is mounted here would appear in the whole machine. Slave rather than private, so that what is
    // mounted and unmounted outside is so here too.
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)
        .map_err(Error::system("make the mounts of this thread follow the outer ones"))
}

/// Gives the calling thread a `/sys` that shows its network namespace, in a mount namespace of its own.
fn show_own_sysfs() -> Result<(), Error> {
    const SYS: &str = "/sys";
    own_mounts()?;
    let none = None::<&str>;

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
}
