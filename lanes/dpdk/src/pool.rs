//! The mbufs of one lane: one pool for all its ports, so that a frame goes from port to port without
//! being moved.
//!
//! Assumes that DPDK finds the memory in one piece, as it does unless huge pages are nearly used up.
//! What must always hold: the region covers every mbuf, and lives until the lane and every held frame
//! are gone. Frames are told by the mbuf's distance from the region's start.

use crate::{
    config::{Config, Memory},
    device::Device,
    eal::Eal,
    hugepages::{self, Reservation},
    shim::{ShimFrame, UNIT_BYTES},
};
use laneway_core::{LaneError, Region, Slot};
use std::{
    ffi::{CString, c_void},
    ptr::NonNull,
    rc::Rc,
};

/// Bytes of an mbuf and its pool entry beside the buffer, for messages.
const MBUF_BYTES_BESIDE: usize = 192;

/// One pool.
pub(crate) struct Pool {
    region: Rc<Region>,
    handle: *mut c_void,
    layout: Layout,
    mbufs: usize,
    eal: &'static Eal,
}

/// Where frames lie in the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Address of the region's first byte.
    pub(crate) base: usize,
    /// From an mbuf to its buffer.
    buffer_at: usize,
    /// Bytes of a buffer.
    buffer_bytes: usize,
}

impl Layout {
    /// The slot of a frame that the shim described.
    #[inline]
    pub(crate) fn slot(self, frame: &ShimFrame, ts_ns: u64) -> Slot {
        let room_start = frame.number as usize * UNIT_BYTES + self.buffer_at;
        Slot {
            frame: frame.number,
            room_start,
            start: room_start + usize::from(frame.data_off),
            len: frame.bytes,
            room_end: room_start + self.buffer_bytes,
            wire_len: frame.bytes,
            ts_ns,
        }
    }

    /// The shim's description of a slot, wherever the app moved its ends.
    #[inline]
    pub(crate) fn frame(self, slot: &Slot) -> ShimFrame {
        let room_start = slot.frame as usize * UNIT_BYTES + self.buffer_at;
        ShimFrame {
            number: slot.frame,
            data_off: (slot.start - room_start) as u16,
            references: 0,
            bytes: slot.len,
        }
    }
}

/// Gives the memory back, then the huge pages it lay in.
struct Owner {
    eal: &'static Eal,
    handle: *mut c_void,
    _reservation: Option<Reservation>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _setup = self.eal.setup();
        // SAFETY: made by `Pool::make`; the ports are closed (they go before the lane's pool) and the
        // last frame that lay in it is gone with the region.
        unsafe { (self.eal.shim.pool_free)(self.handle) };
    }
}

impl Pool {
    /// mbufs for `ports` ports.
    ///
    /// # Errors
    /// When memory is short, or comes in pieces.
    pub(crate) fn make(
        eal: &'static Eal,
        config: &Config,
        ports: usize,
        reservation: Option<Reservation>,
    ) -> Result<Pool, LaneError> {
        let mbufs = config.mbufs_per_port * ports;
        let name = CString::new(format!("laneway{}", eal.serial())).expect("no zero in it");
        let doing = format!("make a pool of {mbufs} mbufs of {} bytes", config.buffer_bytes());
        let room = u16::try_from(config.buffer_bytes()).expect("the frame knob is bounded");
        let hint = shortage(eal, config, mbufs);
        let setup = eal.setup();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a terminated string and room for a pointer.
        let code = unsafe {
            (eal.shim.pool_make)(
                name.as_ptr(),
                mbufs as u32,
                config.cache_mbufs as u32,
                room,
                i32::from(!matches!(config.device, Device::Pci(_))),
                &mut handle,
            )
        };
        if code < 0 {
            return Err(setup.failed(doing, code, &hint));
        }
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: a pool, just made, and room for two numbers.
        let code = unsafe { (eal.shim.pool_span)(handle, &mut base, &mut bytes) };
        let failure = (code < 0).then(|| setup.failed(doing, code, &hint));
        drop(setup);
        // From here on the owner frees the pool, whatever happens.
        let owner = Owner { eal, handle, _reservation: reservation };
        if let Some(failure) = failure {
            return Err(failure);
        }
        // SAFETY: a pool.
        let buffer_at = unsafe { (eal.shim.pool_buffer_at)(handle) } as usize;
        let start = NonNull::new(base as *mut u8).expect("DPDK maps nothing at address 0");
        // SAFETY: DPDK keeps the pool's memory mapped until `owner` frees it, it is one piece (just
        // checked), and nobody makes Rust references into it.
        let region = unsafe { Region::mapped(start, bytes, Box::new(owner)) };
        let layout = Layout { base, buffer_at, buffer_bytes: config.buffer_bytes() };
        Ok(Pool { region, handle, layout, mbufs, eal })
    }

    /// The memory.
    pub(crate) fn region(&self) -> &Rc<Region> {
        &self.region
    }

    /// DPDK's pool, for the shim.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.handle
    }

    /// Where frames lie.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// mbufs in all.
    pub(crate) fn mbufs(&self) -> usize {
        self.mbufs
    }

    /// mbufs that are not free: with a device, in a burst, or held. Slow; for tests and reports.
    pub(crate) fn mbufs_in_use(&self) -> usize {
        // SAFETY: the pool lives as long as `self.region`.
        unsafe { (self.eal.shim.pool_in_use)(self.handle) as usize }
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
