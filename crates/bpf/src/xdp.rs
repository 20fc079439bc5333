//! Attaching an XDP program to an interface, and knowing what was obtained.
//!
//! By link only: the attachment lives as long as a file descriptor of this process, so no exit can
//! leave it behind. The mode is asked for explicitly and read back from the kernel; there is no
//! silent fall-back. Interfaces are those of the calling thread's network namespace.

use crate::{BpfError, inner, maps::LANE, program};
use laneway_core::LaneError;
use libbpf_rs::{
    libbpf_sys::{
        BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_link_create, bpf_link_create_opts,
        bpf_link_detach, bpf_xdp_query, bpf_xdp_query_opts,
    },
    query::{LinkInfo, LinkTypeInfo},
};
use std::{
    ffi::CString,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before a socket buffer is made.
    Native,
    /// In the core, on a socket buffer: works everywhere, saves little.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

/// What is attached to an interface, as the kernel tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// Program id in the driver.
    pub native: Option<u32>,
    /// Program id in the core.
    pub generic: Option<u32>,
    /// Program id in the hardware.
    pub offloaded: Option<u32>,
}

/// An attached program. Dropping it detaches.
#[derive(Debug)]
pub struct XdpLink {
    link: OwnedFd,
    mode: XdpMode,
    program_id: u32,
    ifindex: u32,
}

impl XdpLink {
    /// Attaches `program` to `interface` in exactly `mode`.
    ///
    /// # Errors
    /// [`BpfError::NoInterface`]; [`BpfError::Busy`] naming the program that is attached already,
    /// in whichever mode; [`BpfError::ModeRefused`] when the driver cannot (no native XDP, MTU or
    /// queue count unfit); [`BpfError::NotPermitted`].
    pub fn attach(
        program: BorrowedFd<'_>,
        interface: &str,
        mode: XdpMode,
    ) -> Result<Self, BpfError> {
        let ifindex = ifindex(interface)?;
        let opts = bpf_link_create_opts {
            sz: size_of::<bpf_link_create_opts>() as _,
            flags: match mode {
                XdpMode::Native => XDP_FLAGS_DRV_MODE,
                XdpMode::Generic => XDP_FLAGS_SKB_MODE,
            },
            ..Default::default()
        };
        // SAFETY: `opts` is a whole structure of the length it says, live during the call.
        let link = unsafe {
            bpf_link_create(program.as_raw_fd(), ifindex as i32, BPF_XDP, &raw const opts)
        };
        if link < 0 {
            return Err(refused(interface, mode, io::Error::from_raw_os_error(-link)));
        }
        // SAFETY: the call answered a new descriptor without another owner.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        let program_id = program::id(program)?;
        // Read back: what counts is not what was asked for.
        let attached = attachment(interface)?;
        let mode = match program_id {
            id if attached.native == Some(id) => XdpMode::Native,
            id if attached.generic == Some(id) => XdpMode::Generic,
            id => {
                let source = io::Error::other(format!("program {id} is not there: {attached:?}"));
                return Err(BpfError::ModeRefused {
                    interface: interface.to_owned(),
                    mode,
                    source,
                });
            }
        };
        Ok(XdpLink { link, mode, program_id, ifindex })
    }

    /// The mode that was obtained, as read back after attaching.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The kernel's number of the attached program.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }

    /// The interface's number at the time of attaching.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// False when the interface has disappeared: the kernel cuts the link then. Costs a system
    /// call, works from any network namespace and through renames.
    ///
    /// # Errors
    /// [`BpfError::Os`] when the kernel does not tell.
    pub fn is_attached(&self) -> Result<bool, BpfError> {
        let info = LinkInfo::from_fd(self.link.as_fd())
            .map_err(|e| crate::error::libbpf("ask about an XDP link".to_owned(), &e))?;
        Ok(matches!(info.info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex != 0))
    }
}

impl Drop for XdpLink {
    fn drop(&mut self) {
        // Closing alone is not enough: a child process that another thread is forking right now
        // holds a copy of the descriptor until it executes its program. Seen in tests.
        // SAFETY: the descriptor is open until after this call. It fails only when the interface
        // is gone, and then nothing is attached.
        unsafe { bpf_link_detach(self.link.as_raw_fd()) };
    }
}

/// What is attached to `interface` now.
///
/// # Errors
/// [`BpfError::NoInterface`], or what the kernel answers.
pub fn attachment(interface: &str) -> Result<Attachment, BpfError> {
    let ifindex = ifindex(interface)?;
    let mut opts =
        bpf_xdp_query_opts { sz: size_of::<bpf_xdp_query_opts>() as _, ..Default::default() };
    // SAFETY: `opts` is a whole structure of the length it says, written only during the call.
    let code = unsafe { bpf_xdp_query(ifindex as i32, 0, &raw mut opts) };
    BpfError::check(code, || format!("ask what runs on `{interface}`"))?;
    let id = |id: u32| (id != 0).then_some(id);
    Ok(Attachment {
        native: id(opts.drv_prog_id),
        generic: id(opts.skb_prog_id),
        offloaded: id(opts.hw_prog_id),
    })
}

/// Waits until no CPU runs a program that was detached before the call, or has an entry in hand that was removed before
/// it, so that maps and rings are final.
///
/// # Errors
/// The kernel waits in no way that is known here.
pub fn wait_for_programs() -> Result<(), LaneError> {
    wait_by(membarrier).map_err(|error| error.in_lane(LANE))
}

/// By `membarrier`, where it waits: a kernel with `nohz_full` CPUs refuses (EINVAL), for it would not hear of those.
fn wait_by(membarrier: impl FnOnce() -> i32) -> Result<(), BpfError> {
    match membarrier() {
        0 => Ok(()),
        _ => inner::wait_for_readers(),
    }
}

fn membarrier() -> i32 {
    /// Not in the libc crate: membarrier(2), wait for a grace period of all running code.
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes three integers, touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) as i32 }
}

fn refused(interface: &str, mode: XdpMode, source: io::Error) -> BpfError {
    let name = interface.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            BpfError::NotPermitted { doing: format!("attach an XDP program to `{interface}`") }
        }
        Some(libc::ENODEV) => BpfError::NoInterface { interface: name },
        // EEXIST: a program in the other mode; the two cannot be active together.
        Some(libc::EBUSY | libc::EEXIST) => {
            BpfError::Busy { interface: name, holder: holder(interface) }
        }
        _ => BpfError::ModeRefused { interface: name, mode, source },
    }
}

fn holder(interface: &str) -> String {
    let found = attachment(interface).unwrap_or_default();
    let names =
        [("native", found.native), ("generic", found.generic), ("offloaded", found.offloaded)];
    match names.iter().find_map(|(mode, id)| Some((mode, (*id)?))) {
        Some((mode, id)) => {
            let name = program::name_of(id).map_or_else(String::new, |name| format!(" `{name}`"));
            format!("XDP program {id}{name} is attached ({mode} mode)")
        }
        None => "the driver is in use by another XDP user (an AF_XDP socket?)".to_owned(),
    }
}

/// The number of an interface of the thread's network namespace.
pub(crate) fn ifindex(interface: &str) -> Result<u32, BpfError> {
    let missing = || BpfError::NoInterface { interface: interface.to_owned() };
    let name = CString::new(interface).map_err(|_| missing())?;
    // SAFETY: `name` is a C string, live during the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(missing()),
        ifindex => Ok(ifindex),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_membarrier_is_refused_a_map_of_maps_waits() {
        assert!(wait_by(|| 0).is_ok());
        match wait_by(|| -1) {
            Ok(()) => {}
            Err(BpfError::NotPermitted { doing }) => eprintln!("skipped: not permitted to {doing}"),
            Err(error) => panic!("{error}"),
        }
    }
}
