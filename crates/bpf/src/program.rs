//! Facts about a loaded program.

use crate::BpfError;
use libbpf_rs::libbpf_sys::{bpf_prog_get_info_by_fd, bpf_prog_info};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel's number of the program behind `program`.
pub(crate) fn id(program: BorrowedFd<'_>) -> Result<u32, BpfError> {
    let mut info = bpf_prog_info::default();
    let mut info_bytes = size_of::<bpf_prog_info>() as u32;
    // SAFETY: `info` is as long as `info_bytes` says, and all its pointers are null with length
    // zero, so the kernel writes nowhere else.
    let code =
        unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut info_bytes) };
    BpfError::check(code, || "ask the kernel about a program".to_owned())?;
    Ok(info.id)
}
