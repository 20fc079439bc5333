//! The memory of one port: the ring, if there is one, and behind it a pool of buffers, in one
//! mapping, so that one burst can show frames of both.
//!
//! ```text
//!   0                     ring_bytes                                    bytes
//!   │ block │ block │ ... │ buffer │ buffer │ buffer │ ...              │
//!     the socket's pages    anonymous pages, touched at open
//! ```
//!
//! What must always hold: nothing makes a Rust reference into the mapping except `laneway-core`
//! (through the [`Region`]); this lane uses pointers and hands them to the kernel.

use laneway_core::Region;
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    rc::Rc,
};

pub(crate) struct Memory {
    base: NonNull<u8>,
    region: Rc<Region>,
}

/// Unmaps when the lane and its bursts are gone.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Maps the ring of `socket` (which must have one of `ring_bytes`, or `ring_bytes` is 0) and
    /// `pool_bytes` of ordinary memory behind it.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        ring_bytes: usize,
        pool_bytes: usize,
    ) -> io::Result<Memory> {
        let bytes = ring_bytes + pool_bytes;
        let (access, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, private | libc::MAP_ANONYMOUS, -1, 0)
        };
        let base = address(base)?;
        let mapping = Mapping { base, bytes };
        if ring_bytes > 0 {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = base.as_ptr().cast();
            // SAFETY: replaces the first `ring_bytes` of the mapping made above, which nothing knows
            // yet.
            let ring = unsafe { libc::mmap(at, ring_bytes, access, flags, socket.as_raw_fd(), 0) };
            address(ring)?;
        }
        // SAFETY: ring_bytes <= bytes, the length of the mapping.
        let pool = unsafe { base.as_ptr().add(ring_bytes) };
        // Page faults now rather than under traffic. Kernels before 5.14 refuse, and then they come
        // later. SAFETY: the range is the rest of the mapping; populating changes no contents.
        unsafe { libc::madvise(pool.cast(), pool_bytes, libc::MADV_POPULATE_WRITE) };
        // SAFETY: mapped readable and writable until the owner is dropped; this crate makes no
        // reference to it.
        let region = unsafe { Region::mapped(base, bytes, Box::new(mapping)) };
        Ok(Memory { base, region })
    }

    /// The region that bursts are made over.
    pub(crate) fn region(&self) -> Rc<Region> {
        self.region.clone()
    }

    /// The address of byte `at`.
    ///
    /// # Panics
    /// Outside the mapping.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        assert!(at < self.region.bytes(), "offset {at} is outside the lane's memory");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// The address of a `T` at byte `at`, wholly inside and aligned.
    ///
    /// # Panics
    /// Outside the mapping, or unaligned.
    pub(crate) fn at_typed<T>(&self, at: usize) -> *mut T {
        assert!(
            at + size_of::<T>() <= self.region.bytes() && at.is_multiple_of(align_of::<T>()),
            "offset {at} cannot hold a record of {} bytes",
            size_of::<T>()
        );
        self.at(at).cast()
    }
}

fn address(mapped: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    match NonNull::new(mapped.cast()) {
        Some(address) if mapped != libc::MAP_FAILED => Ok(address),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that Memory::map mapped; the Region that owned this is gone, and
        // with it every burst.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
