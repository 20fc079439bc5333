//! The settings that are looked at, and where they are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A number below `/proc/sys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// The largest send buffer that may be asked for.
    WmemMax,
    /// The largest receive buffer that may be asked for.
    RmemMax,
    /// Groups that a socket may be a member of.
    IgmpMaxMemberships,
    /// Frames that one round of the kernel's receive work takes.
    NetdevBudget,
    /// Frames that may wait for a CPU behind a device without a queue of its own, such as a veth.
    NetdevMaxBacklog,
}

impl Setting {
    /// Every one.
    pub const ALL: [Setting; 5] = [
        Setting::WmemMax,
        Setting::RmemMax,
        Setting::IgmpMaxMemberships,
        Setting::NetdevBudget,
        Setting::NetdevMaxBacklog,
    ];

    /// As sysctl(8) calls it.
    pub fn name(self) -> &'static str {
        match self {
            Setting::WmemMax => "net.core.wmem_max",
            Setting::RmemMax => "net.core.rmem_max",
            Setting::IgmpMaxMemberships => "net.ipv4.igmp_max_memberships",
            Setting::NetdevBudget => "net.core.netdev_budget",
            Setting::NetdevMaxBacklog => "net.core.netdev_max_backlog",
        }
    }

    /// The most that can be had of it: it is an `int`, and of what a socket asks for the kernel takes no more than half
    /// of that, because it doubles it.
    pub fn most(self) -> u64 {
        match self {
            Setting::WmemMax | Setting::RmemMax => i32::MAX as u64 / 2,
            Setting::IgmpMaxMemberships | Setting::NetdevBudget | Setting::NetdevMaxBacklog => {
                i32::MAX as u64
            }
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.name() == name)
    }
}

/// Where settings are: `/proc/sys`, or a folder like it.
#[derive(Clone, Debug)]
pub struct Sysctls(PathBuf);

impl Sysctls {
    /// Those of this machine, and of the calling thread's network namespace where it has its own.
    pub fn of_this_host() -> Sysctls {
        Sysctls::below("/proc/sys")
    }

    /// Those below `folder`.
    pub fn below(folder: impl Into<PathBuf>) -> Sysctls {
        Sysctls(folder.into())
    }

    /// The number of any setting.
    pub(crate) fn number(&self, name: &str) -> io::Result<u64> {
        let path = self.path(name);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("no number: {text:?}"));
        text.trim().parse().map_err(|_| at(&path)(wrong()))
    }

    /// What it is now; nothing where this namespace does not have it.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn read(&self, setting: Setting) -> io::Result<Option<u64>> {
        match self.number(setting.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            number => number.map(Some),
        }
    }

    /// Changes it.
    pub(crate) fn write(&self, setting: Setting, value: u64) -> io::Result<()> {
        let path = self.path(setting.name());
        fs::write(&path, value.to_string()).map_err(at(&path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name.replace('.', "/"))
    }
}

/// Says in the error which file it is about.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}
