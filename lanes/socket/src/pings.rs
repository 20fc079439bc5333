//! Pings on raw sockets: which messages a socket is shown, and that no other program answers them.
//!
//! A raw socket sees a copy. The kernel has the packet as well and answers it, and so does every other
//! program with a socket at the address: each ping would get two replies. So a lane for pings takes the
//! address for itself among programs like this one, and is refused unless the kernel's own answers are
//! off. It switches them off only when asked to, only in a network namespace that is not the machine's
//! first, and back on when it is dropped.
//!
//! What must always hold: the setting that was found is the one that is left, on every exit; after a kill that
//! no process can catch, the next run in this namespace gives it back ([`HostSettings`]). What it does not do: it knows
//! no other responder than the kernel and runs of this lane.

use crate::{config::NAME, sys};
use laneway_core::LaneError;
use laneway_linux::{Change, HostSettings};
use std::{
    ffi::c_int,
    fs::{self, File, OpenOptions},
    io,
    net::SocketAddr,
    os::{
        fd::BorrowedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as LocalAddress, UnixDatagram},
    },
    path::Path,
};

const ECHO_REQUEST_V4: u32 = 8;
const ECHO_REQUEST_V6: u32 = 128;
/// Not in the libc crate: include/uapi/linux/icmp.h and icmpv6.h.
const SOL_RAW: c_int = 255;
const ICMP_FILTER: c_int = 1;
const ICMPV6_FILTER: c_int = 1;

/// A setting that only the machine's first network namespace has.
const FIRST_ONLY: &str = "/proc/sys/net/core/dev_weight";
/// Where the settings of this thread's network namespace lie.
const SETTINGS: &str = "/proc/sys/net";

/// Has the kernel hand over echo requests and nothing else.
pub(crate) fn show_requests_alone(
    socket: BorrowedFd<'_>,
    address: SocketAddr,
) -> Result<(), LaneError> {
    // A bit that is set keeps that type out.
    let set = if address.is_ipv4() {
        sys::set_option(socket, SOL_RAW, ICMP_FILTER, [!(1u32 << ECHO_REQUEST_V4)])
    } else {
        let mut out = [u32::MAX; 8];
        out[(ECHO_REQUEST_V6 / 32) as usize] &= !(1 << (ECHO_REQUEST_V6 % 32));
        sys::set_option(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, out)
    };
    set.map_err(|e| {
        let doing = format!("ask for echo requests alone at {}", address.ip());
        LaneError::os(NAME, doing, e, "this lane needs Linux 5.11 or newer")
    })
}

/// The pings to some addresses are this lane's alone until it is dropped.
pub(crate) struct Alone {
    /// Names that no two sockets of a network namespace can have.
    taken: Vec<UnixDatagram>,
    silenced: Vec<Silenced>,
}

impl Alone {
    /// Takes the addresses `listen`; with `mute`, silences the kernel where it would answer.
    pub(crate) fn take(listen: &[SocketAddr], mute: bool) -> Result<Alone, LaneError> {
        let mut alone = Alone { taken: Vec::new(), silenced: Vec::new() };
        for address in listen {
            let ip = address.ip().to_string();
            let held = "another run answers the pings to it, and each would be answered twice";
            alone.hold(&format!("laneway/pings/{ip}"), &ip, held)?;
        }
        for is_ipv4 in [true, false] {
            let Some(address) = listen.iter().find(|a| a.is_ipv4() == is_ipv4) else { continue };
            let setting = Setting::of(is_ipv4);
            if !setting.kernel_answers()? {
                continue;
            }
            let ip = address.ip().to_string();
            if !mute {
                return Err(refused(
                    ip,
                    "the kernel answers pings in this network namespace, so each would be answered \
                     twice",
                    format!(
                        "switch its answers off with `sysctl -w {}=1`, or, in a network namespace \
                         that is not the machine's first, for as long as this runs with \
                         socket:raw,mute",
                        setting.name
                    ),
                ));
            }
            if Path::new(FIRST_ONLY).exists() {
                return Err(refused(
                    ip,
                    "mute would switch off the answers of the whole machine, which is not this \
                     run's to do",
                    format!(
                        "run in a network namespace of its own, or decide so yourself with `sysctl \
                         -w {}=1` and leave mute out",
                        setting.name
                    ),
                ));
            }
            let held = "another run has switched the kernel's answers off and will switch them on";
            alone.hold(&format!("laneway/mute/{}", setting.name), setting.name, held)?;
            alone.silenced.push(Silenced::new(&setting, is_ipv4)?);
        }
        Ok(alone)
    }

    /// For the report: why the kernel does not answer.
    pub(crate) fn kernel_answers(&self, is_ipv4: bool) -> &'static str {
        match self.silenced.iter().any(|silenced| silenced.is_ipv4 == is_ipv4) {
            true => "off while this runs",
            false => "off before",
        }
    }

    /// Takes a name that is free again when its socket is closed, however that comes about.
    fn hold(&mut self, key: &str, name: &str, held: &str) -> Result<(), LaneError> {
        let taken = LocalAddress::from_abstract_name(key)
            .and_then(|address| UnixDatagram::bind_addr(&address));
        match taken {
            Ok(socket) => self.taken.push(socket),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                return Err(LaneError::Busy {
                    lane: NAME.to_owned(),
                    name: name.to_owned(),
                    why: held.to_owned(),
                    hint: "end it (`ss -xlp` and `ss -wlpn` name it), or have one run answer for \
                           all addresses"
                        .to_owned(),
                });
            }
            Err(e) => {
                let doing = format!("take the pings to {name} for this run");
                return Err(LaneError::os(NAME, doing, e, "see `dmesg`"));
            }
        }
        Ok(())
    }
}

fn refused(name: String, why: &str, hint: String) -> LaneError {
    LaneError::Refused { lane: NAME.to_owned(), name, why: why.to_owned(), hint }
}

/// Whether the kernel leaves pings of a family alone: `1`, or `0`.
struct Setting {
    name: &'static str,
    path: String,
}

impl Setting {
    fn of(is_ipv4: bool) -> Setting {
        let (name, file) = match is_ipv4 {
            true => ("net.ipv4.icmp_echo_ignore_all", "ipv4/icmp_echo_ignore_all"),
            false => ("net.ipv6.icmp.echo_ignore_all", "ipv6/icmp/echo_ignore_all"),
        };
        Setting { name, path: format!("{SETTINGS}/{file}") }
    }

    fn kernel_answers(&self) -> Result<bool, LaneError> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(text.trim() == "0"),
            // A kernel without this family answers nothing.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => {
                Err(LaneError::os(NAME, format!("read {}", self.path), e, "is /proc mounted?"))
            }
        }
    }
}

/// The kernel does not answer until this is dropped.
struct Silenced {
    is_ipv4: bool,
    /// Stays that of the namespace it was opened in, wherever this is dropped.
    setting: File,
    change: Change,
}

impl Silenced {
    fn new(setting: &Setting, is_ipv4: bool) -> Result<Silenced, LaneError> {
        let silence = || -> io::Result<(File, Change)> {
            let file = OpenOptions::new().write(true).open(&setting.path)?;
            let path = Path::new(&setting.path);
            let change = HostSettings::of_this_host().add(path, 1, |_| Ok(()))?;
            Ok((file, change))
        };
        let (file, change) = silence().map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                LaneError::NotPermitted {
                    lane: NAME.to_owned(),
                    doing: format!("set {} to 1 ({e})", setting.name),
                    hint:
                        "run as root with a writable /proc/sys and /run, or set it beforehand and \
                           leave mute out"
                            .to_owned(),
                }
            }
            _ => LaneError::os(NAME, format!("set {} to 1", setting.name), e, "see `dmesg`"),
        })?;
        Ok(Silenced { is_ipv4, setting: file, change })
    }
}

impl Drop for Silenced {
    fn drop(&mut self) {
        // The kernel takes a setting at offset 0 only. It fails when the namespace is gone, and then
        // nothing answers there anyway.
        let _ = std::os::unix::fs::FileExt::write_all_at(&self.setting, b"0", 0);
        self.change.forget();
    }
}
