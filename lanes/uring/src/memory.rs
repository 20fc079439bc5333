//! Memory that the kernel reads and writes while requests are in flight: one mapping that never
//! moves.
//!
//! What must always hold: nothing makes a Rust reference to bytes that the kernel may write; this
//! crate hands the kernel pointers and makes references only to what it owns at that moment. A
//! mapping is shared by the lane and its [`Ring`](crate::ring::Ring), so that it lives until the ring
//! has seen every request end. Pages are committed by the kernel when they are first touched.

use std::{
    io,
    ptr::{self, NonNull},
};

/// One anonymous mapping, zeroed.
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes` of zeroed memory at a page boundary.
    pub(crate) fn map(bytes: usize) -> io::Result<Memory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(address) if base != libc::MAP_FAILED => Ok(Memory { base: address, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Commits the pages now rather than under traffic. Kernels before 5.14 refuse, and then they
    /// come when touched.
    pub(crate) fn populate(&self) {
        let base = self.base.as_ptr().cast();
        // SAFETY: the range is this mapping; populating changes no contents.
        unsafe { libc::madvise(base, self.bytes, libc::MADV_POPULATE_WRITE) };
    }

    /// Length of the mapping.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// First byte of the mapping.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of byte `at`.
    ///
    /// # Panics
    /// Outside the mapping.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        assert!(at < self.bytes, "offset {at} is outside the lane's memory");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// The address of a `T` at byte `at`, wholly inside and aligned.
    ///
    /// # Panics
    /// Outside the mapping, or unaligned.
    pub(crate) fn at_typed<T>(&self, at: usize) -> *mut T {
        assert!(
            at + size_of::<T>() <= self.bytes && at.is_multiple_of(align_of::<T>()),
            "offset {at} cannot hold a record of {} bytes",
            size_of::<T>()
        );
        self.at(at).cast()
    }

    /// The bytes `at..at + bytes`, to read.
    ///
    /// # Panics
    /// Outside the mapping.
    ///
    /// # Safety
    /// While the slice lives neither the kernel nor another thread writes there.
    pub(crate) unsafe fn slice(&self, at: usize, bytes: usize) -> &[u8] {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "{bytes} bytes at {at}");
        // SAFETY: at <= bytes of the mapping.
        let start = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: inside the mapping, which is initialised (zeroed at birth); nothing writes, as the
        // caller promises.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }

    /// The bytes `at..at + bytes`, to write.
    ///
    /// # Panics
    /// Outside the mapping.
    ///
    /// # Safety
    /// While the slice lives neither the kernel nor another thread reads or writes there.
    #[expect(clippy::mut_from_ref, reason = "disjoint parts are borrowed; the caller proves it")]
    pub(crate) unsafe fn slice_mut(&self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "{bytes} bytes at {at}");
        // SAFETY: at <= bytes of the mapping.
        let start = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: inside the mapping, which is initialised (zeroed at birth); nothing else uses it, as
        // the caller promises.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped. The last owner is gone, and one of the owners is
        // the ring, which lets go only when no request is in flight.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "outside the lane's memory")]
    fn an_offset_beyond_the_end_is_refused() {
        Memory::map(4096).expect("a page is to be had").at(4096);
    }

    #[test]
    #[should_panic(expected = "cannot hold a record")]
    fn a_record_across_the_end_is_refused() {
        Memory::map(4096).expect("a page is to be had").at_typed::<u64>(4092);
    }
}
