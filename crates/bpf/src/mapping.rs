//! A piece of a BPF map's memory shared with the kernel; unmapped on drop.
//!
//! Only says where the memory is and how long it is; what may be read or written there, and in
//! which order, is the business of [`rings`](crate::rings).

use crate::BpfError;
use std::{
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
};

/// What the process may do with the memory.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing about it is tied to the thread that
// made it. It is not `Sync`: the ring protocol has one consumer.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` of the map behind `fd`, from `offset_bytes` on (a multiple of the page size).
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset_bytes: usize,
        bytes: usize,
        access: Access,
    ) -> Result<Self, BpfError> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let doing = || format!("map {bytes} bytes of a BPF map into memory");
        let offset = libc::off_t::try_from(offset_bytes).expect("offsets are at most a page");
        // SAFETY: a null hint lets the kernel choose the place, so no memory of ours is replaced;
        // the descriptor is borrowed and thus open.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(BpfError::last_os(doing()));
        }
        let start = NonNull::new(start.cast()).expect("mmap answers an address or MAP_FAILED");
        Ok(Mapping { start, bytes })
    }

    /// The first byte; page-aligned.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; references into it borrow `self`, so none is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Bytes per page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every Linux has a page size")
}
