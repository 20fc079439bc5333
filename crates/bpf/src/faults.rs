//! Events of the kernel's that run a program whenever a page fault of a program in user space has been served.

use crate::{BpfError, error, load};
use libbpf_rs::{Link, ProgramMut, libbpf_sys};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
};

/// The kernel raises one or the other at the end of a fault, when what was missing is there (`mm_account_fault`).
const SERVED: [u32; 2] =
    [libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS_MIN, libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ];

/// One event per CPU and kind of fault; each runs what is attached to it, every time.
///
/// # Errors
/// Those of `perf_event_open(2)`.
pub(crate) fn open() -> Result<Vec<OwnedFd>, BpfError> {
    let mut events = Vec::new();
    for cpu in 0..load::possible_cpus()? {
        for kind in SERVED {
            match open_one(kind, cpu as i32) {
                Ok(event) => events.push(event),
                // A CPU that is possible and not there.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => {
                    return Err(BpfError::os("listen to page faults".to_owned(), error));
                }
            }
        }
    }
    Ok(events)
}

fn open_one(kind: u32, cpu: i32) -> io::Result<OwnedFd> {
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: kind.into(),
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    // A fault of the kernel's own, in a copy from or to user space, is part of its system call.
    attributes.set_exclude_kernel(1);
    let (any_process, no_group) = (-1, -1);
    // SAFETY: the structure is whole, of the length it says, and live during the call, which only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            any_process,
            cpu,
            no_group,
            libc::c_ulong::from(libbpf_sys::PERF_FLAG_FD_CLOEXEC),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Has every event run the program until the links end.
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    events: Vec<OwnedFd>,
    name: &str,
) -> Result<Vec<Link>, BpfError> {
    let attach = |event: OwnedFd| {
        let link = program.attach_perf_event(event.as_raw_fd());
        let link =
            link.map_err(|e| error::libbpf(format!("attach `{name}` to page faults"), &e))?;
        // The link closes it.
        let _ = event.into_raw_fd();
        Ok(link)
    };
    events.into_iter().map(attach).collect()
}
