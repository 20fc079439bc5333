//! The mbufs of one run: one pool for all ports and workers, so that a frame goes from port to port
//! without being moved, and each worker's view of it.
//!
//! Assumes that DPDK finds the memory in one piece, as it does unless huge pages are nearly used up.
//! What must always hold: the region covers every mbuf, and lives until the devices and every
//! lane are gone. Frames are known by the mbuf's distance from the region's start. DPDK's
//! pool may be used by several threads at a time; each has a cache of its own.

use crate::{
    config::{Config, Memory},
    device::Device,
    eal::{Eal, Setup},
    hugepages::{self, Reservation},
    shim::{ShimFrame, UNIT_BYTES},
};
use laneway_core::{FrameSpan, LaneError, Region};
use std::{
    ffi::{CString, c_void},
    ptr::NonNull,
    rc::Rc,
    sync::Arc,
};

/// Bytes of an mbuf and its pool entry beside the buffer, for messages.
const MBUF_BYTES_BESIDE: usize = 192;

/// DPDK's pool, shared by devices and workers.
pub(crate) struct SharedPool {
    eal: &'static Eal,
    handle: *mut c_void,
    /// The first byte of its memory.
    start: NonNull<u8>,
    bytes: usize,
    layout: Layout,
    mbufs: usize,
    _reservation: Option<Arc<Reservation>>,
}

// SAFETY: the pointers are to memory of DPDK's that no thread owns, and the reservation is a descriptor
// and a number; freeing may be done by any thread, under the EAL's lock.
unsafe impl Send for SharedPool {}
// SAFETY: nothing of it changes but DPDK's pool, whose gets, puts and counts may be made by several
// threads at a time (its default ring has several producers and consumers).
unsafe impl Sync for SharedPool {}

/// One worker's view of the pool.
pub(crate) struct Pool {
    region: Rc<Region>,
    shared: Arc<SharedPool>,
}

/// Where frames lie in the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Address of the region's first byte.
    pub(crate) base: usize,
    /// From an mbuf to its buffer.
    buffer_at: usize,
    /// Bytes of a buffer.
    buffer_bytes: u32,
}

impl Layout {
    /// Number and span of a frame that the shim described.
    #[inline]
    pub(crate) fn span(self, frame: &ShimFrame, ts_ns: u64) -> (u32, FrameSpan) {
        let headroom = u32::from(frame.data_off);
        let span = FrameSpan {
            start: frame.number as usize * UNIT_BYTES + self.buffer_at + headroom as usize,
            ts_ns,
            len: frame.bytes,
            wire_len: frame.bytes,
            headroom,
            len_max: self.buffer_bytes.saturating_sub(headroom),
        };
        (frame.number, span)
    }

    /// The shim's description of a frame, wherever the app moved its ends.
    #[inline]
    pub(crate) fn frame(self, number: u32, span: &FrameSpan) -> ShimFrame {
        self.part(number, span.start, span.len)
    }

    /// The shim's description of some bytes of a frame.
    #[inline]
    pub(crate) fn part(self, number: u32, start: usize, bytes: u32) -> ShimFrame {
        let room_start = number as usize * UNIT_BYTES + self.buffer_at;
        ShimFrame { number, data_off: (start - room_start) as u16, references: 0, bytes }
    }
}

/// Gives the memory back, then the huge pages it lay in.
impl Drop for SharedPool {
    fn drop(&mut self) {
        let _setup = self.eal.setup();
        // SAFETY: made by `SharedPool::make`; the devices, the lanes and the frames that lay in it each
        // had a share of this value, so all of them are gone.
        unsafe { (self.eal.shim.pool_free)(self.handle) };
    }
}

impl SharedPool {
    /// mbufs for `ports` ports of each worker.
    ///
    /// # Errors
    /// When memory is short, or comes in pieces.
    pub(crate) fn make(
        eal: &'static Eal,
        config: &Config,
        ports: usize,
        reservation: Option<Arc<Reservation>>,
    ) -> Result<SharedPool, LaneError> {
        let mbufs = config.mbufs_per_port * ports * config.workers;
        let name = CString::new(format!("laneway{}", eal.serial())).expect("no zero in it");
        let doing = format!("make a pool of {mbufs} mbufs of {} bytes", config.buffer_bytes());
        let room = u16::try_from(config.buffer_bytes()).expect("the frame knob is bounded");
        let hint = shortage(eal, config, mbufs);
        let failed = |setup: &Setup<'_>, code| setup.failed(&*doing, code, &hint);
        let Ok(count) = u32::try_from(mbufs) else {
            return Err(failed(&eal.setup(), -libc::ENOMEM));
        };
        let setup = eal.setup();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a terminated string and room for a pointer.
        let code = unsafe {
            (eal.shim.pool_make)(
                name.as_ptr(),
                count,
                config.cache_mbufs as u32,
                room,
                i32::from(!matches!(config.device, Device::Pci(_))),
                &mut handle,
            )
        };
        if code < 0 {
            return Err(failed(&setup, code));
        }
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: a pool, just made, and room for two numbers.
        let code = unsafe { (eal.shim.pool_span)(handle, &mut base, &mut bytes) };
        let failure = (code < 0).then(|| failed(&setup, code));
        drop(setup);
        // SAFETY: a pool.
        let buffer_at = unsafe { (eal.shim.pool_buffer_at)(handle) } as usize;
        let start = NonNull::new(base as *mut u8).expect("DPDK maps nothing at address 0");
        let layout = Layout { base, buffer_at, buffer_bytes: u32::from(room) };
        // From here on the value frees the pool at every exit.
        let pool =
            SharedPool { eal, handle, start, bytes, layout, mbufs, _reservation: reservation };
        failure.map_or(Ok(pool), Err)
    }

    /// DPDK's pool, for the shim.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.handle
    }

    /// mbufs in all.
    pub(crate) fn mbufs(&self) -> usize {
        self.mbufs
    }

    /// Bytes of its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Pool {
    /// A view for the calling thread.
    pub(crate) fn of(shared: &Arc<SharedPool>) -> Pool {
        let owner = Box::new(shared.clone());
        // SAFETY: DPDK keeps the pool's memory mapped until the last share is dropped, of which the
        // region has one; it is one piece (checked when it was made), and nothing makes Rust references
        // into it. Regions of several workers cover the same bytes; frames in them belong to one.
        let region = unsafe { Region::mapped(shared.start, shared.bytes, owner) };
        Pool { region, shared: shared.clone() }
    }

    /// The memory.
    pub(crate) fn region(&self) -> &Rc<Region> {
        &self.region
    }

    /// DPDK's pool, for the shim.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.shared.handle
    }

    /// Where frames lie.
    pub(crate) fn layout(&self) -> Layout {
        self.shared.layout
    }

    /// mbufs that are not free: with a device or in a burst, of any worker. Slow; for tests and
    /// reports.
    pub(crate) fn mbufs_in_use(&self) -> usize {
        // SAFETY: the pool lives as long as `self.shared`.
        unsafe { (self.shared.eal.shim.pool_in_use)(self.shared.handle) as usize }
    }
}

/// What to try when the pool does not fit.
fn shortage(eal: &Eal, config: &Config, mbufs: usize) -> String {
    let need = mbufs * (config.buffer_bytes() + MBUF_BYTES_BESIDE);
    let need_mb = need.div_ceil(1 << 20);
    if !eal.is_huge() {
        return format!(
            "it needs about {need_mb} MiB in one piece and DPDK has {} MiB for the whole process: \
             raise mem= (on the first dpdk lane), or lower mempool= or frame=",
            eal.memory_mb()
        );
    }
    let pages = need.div_ceil(hugepages::PAGE_BYTES);
    let free = hugepages::free_pages();
    let knob = match config.memory {
        Memory::Reserve(asked) => format!("raise hugepages={asked}"),
        _ => format!("reserve more with hugepages={}", pages + 8),
    };
    format!(
        "it needs about {pages} huge pages in one piece, {free} are free: {knob}, or lower mempool="
    )
}
