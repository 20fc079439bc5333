//! The C functions of `shim/laneway_dpdk.c`: their declarations, and how they are loaded.
//!
//! The shared object travels inside the program (an empty file if DPDK was missing at build time) and
//! is handed to the dynamic linker by a descriptor of memory, so nothing is written to disk and
//! DPDK's own libraries are looked for only now. What must always hold: records and signatures here
//! equal those in the C file. What it does not do: it calls none of them.

use crate::config::NAME;
use laneway_core::LaneError;
use laneway_flow::{HEADER_BYTES_MAX, HEADERS_MAX};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    fs::File,
    io::{self, Write},
    os::fd::{AsRawFd, FromRawFd},
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/laneway_dpdk.so"));

/// `struct lw_frame`: one frame on its way through the shim.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShimFrame {
    /// The mbuf's distance from the pool's first byte, in units of [`UNIT_BYTES`].
    pub(crate) number: u32,
    /// From the first byte of the buffer to the first of the frame.
    pub(crate) data_off: u16,
    /// Transmit: references to add first, because the frame leaves by further ports as well.
    pub(crate) references: u16,
    /// Length.
    pub(crate) bytes: u32,
}

/// What [`ShimFrame::number`] counts in: mbufs begin at cache lines.
pub(crate) const UNIT_BYTES: usize = 64;

/// `struct lw_queue`: one queue of a port and the pool it works with.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ShimQueue {
    pub(crate) pool: *mut c_void,
    pub(crate) base: usize,
    pub(crate) port: u16,
    pub(crate) queue: u16,
    pub(crate) checksums: u32,
    /// Received frames of so many bytes or more were cut by the kernel; 0: none are.
    pub(crate) cut_at: u32,
    /// Received frames that no single mbuf could hold, and those that were cut.
    pub(crate) too_long: u64,
    /// Received frames that had to be copied when the pool had no mbuf left.
    pub(crate) no_mbuf: u64,
    /// Received frames that were copied into one mbuf with full headroom.
    pub(crate) copies: u64,
    /// Received frames that the device found bad.
    pub(crate) bad_checksum: u64,
}

/// `struct lw_port_info`: what a device can do.
#[repr(C)]
pub(crate) struct PortInfo {
    pub(crate) rx_queues_max: u32,
    pub(crate) tx_queues_max: u32,
    pub(crate) frame_bytes_max: u32,
    pub(crate) mtu_max: u32,
    pub(crate) rx_checksums: u32,
    pub(crate) tx_checksums: u32,
    /// Frames of several mbufs can be sent.
    pub(crate) tx_segments: u32,
    /// Bit 0: the device takes a hash key of the length that makes it symmetric.
    pub(crate) rss: u32,
    pub(crate) driver: [u8; 64],
}

/// `struct lw_port_conf`: what a port is asked for, and then what it has.
#[repr(C)]
pub(crate) struct PortConf {
    pub(crate) pool: *mut c_void,
    pub(crate) rx_queues: u16,
    pub(crate) tx_queues: u16,
    pub(crate) rx_descriptors: u16,
    pub(crate) tx_descriptors: u16,
    pub(crate) mtu: u16,
    pub(crate) checksums: u8,
    pub(crate) rx_interrupts: u8,
    /// Fields of a frame that choose its queue, asked for and then granted (`RTE_ETH_RSS_*`).
    pub(crate) rss: u64,
}

/// `struct lw_queue_stats`: what a device counted for one queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueStats {
    pub(crate) rx_frames: u64,
    pub(crate) tx_frames: u64,
    pub(crate) tx_bytes: u64,
}

/// `struct lw_stats`: what a device counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortStats {
    pub(crate) missed: u64,
    pub(crate) no_mbuf: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_errors: u64,
    pub(crate) tx_bytes: u64,
}

/// `struct lw_flow_item`: a header that must be there.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ShimItem {
    pub(crate) header: u32,
    pub(crate) spec: [u8; HEADER_BYTES_MAX],
    pub(crate) last: [u8; HEADER_BYTES_MAX],
    pub(crate) mask: [u8; HEADER_BYTES_MAX],
}

/// `struct lw_flow_rule`: a whole rule.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ShimRule {
    pub(crate) priority: u32,
    pub(crate) items: u32,
    pub(crate) actions: u32,
    pub(crate) mark: u32,
    pub(crate) queue: u16,
    pub(crate) zeros: [u16; 3],
    pub(crate) item: [ShimItem; HEADERS_MAX],
}

macro_rules! shim {
    ($($name:ident = $symbol:literal ($($arg:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions, by the names of the C file without their prefix.
        pub(crate) struct Shim {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)+
        }

        impl Shim {
            /// Looks every function up.
            fn bind(library: *mut c_void) -> io::Result<Shim> {
                Ok(Shim {
                    $($name: {
                        let address = symbol(library, $symbol)?;
                        // SAFETY: the C file gives this name to a function of this signature, and
                        // the library is never unloaded.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $result)?,
                            >(address)
                        }
                    },)+
                })
            }
        }
    };
}

shim! {
    log_take = c"lw_log_take" (*mut u8, usize) -> usize;
    version = c"lw_version" () -> *const c_char;
    driver_folder = c"lw_driver_folder" () -> *const c_char;
    runtime_folder = c"lw_runtime_folder" () -> *const c_char;
    eal_start = c"lw_eal_start" (c_int, *mut *mut c_char) -> c_int;
    thread_register = c"lw_thread_register" () -> c_int;
    thread_unregister = c"lw_thread_unregister" ();
    pool_make = c"lw_pool_make" (*const c_char, u32, u32, u16, c_int, *mut *mut c_void) -> c_int;
    pool_span = c"lw_pool_span" (*mut c_void, *mut usize, *mut usize) -> c_int;
    pool_free = c"lw_pool_free" (*mut c_void);
    pool_buffer_at = c"lw_pool_buffer_at" (*mut c_void) -> u32;
    pool_in_use = c"lw_pool_in_use" (*mut c_void) -> u32;
    device_add = c"lw_device_add" (*const c_char, *const c_char, *const c_char, *mut u16) -> c_int;
    device_remove = c"lw_device_remove" (*const c_char, *const c_char) -> c_int;
    port_info = c"lw_port_info" (u16, *mut PortInfo) -> c_int;
    port_start = c"lw_port_start" (u16, *mut PortConf) -> c_int;
    port_set_mtu = c"lw_port_set_mtu" (u16, u16) -> c_int;
    port_link = c"lw_port_link" (u16) -> c_int;
    port_close = c"lw_port_close" (u16);
    port_stats = c"lw_port_stats" (u16, *mut PortStats) -> c_int;
    port_promiscuous = c"lw_port_promiscuous" (u16, c_int) -> c_int;
    queue_stats = c"lw_queue_stats" (u16, u16, *mut QueueStats) -> c_int;
    rx_interrupt_fd = c"lw_rx_interrupt_fd" (u16, u16) -> c_int;
    rx_interrupt = c"lw_rx_interrupt" (u16, u16, c_int) -> c_int;
    receive = c"lw_receive" (*mut ShimQueue, *mut ShimFrame, u16) -> u16;
    read_and_free = c"lw_read_and_free" (*mut ShimQueue, u16, *mut u64) -> u16;
    lend = c"lw_lend" (*mut ShimQueue, *mut ShimFrame, u16) -> u16;
    free = c"lw_free" (*mut ShimQueue, *const u32, u32);
    transmit = c"lw_transmit" (*mut ShimQueue, *const ShimFrame, u32) -> u32;
    flow_create = c"lw_flow_create" (u16, *const ShimRule, *mut *mut c_void, *mut u8, usize) -> c_int;
    flow_destroy = c"lw_flow_destroy" (u16, *mut c_void) -> c_int;
    flow_flush = c"lw_flow_flush" (u16) -> c_int;
    flow_query = c"lw_flow_query" (u16, *mut c_void, *mut u64, *mut u64) -> c_int;
    flow_describe = c"lw_flow_describe" (*const ShimRule, *mut u8, usize) -> c_int;
    copy = c"lw_copy" (*mut ShimQueue, *const ShimFrame, *mut ShimFrame) -> bool;
    gather = c"lw_gather" (*mut ShimQueue, *const u8, u16, *const ShimFrame, *mut ShimFrame) -> bool;
}

impl Shim {
    /// Loads the shim and, with it, DPDK's libraries. They stay until the process ends.
    ///
    /// # Errors
    /// A build without the shim, or a library that is missing here.
    pub(crate) fn load() -> Result<Shim, LaneError> {
        if OBJECT.is_empty() {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: "libdpdk".to_owned(),
                why: "this program was built on a machine without DPDK, so it carries no shim"
                    .to_owned(),
                hint: "`apt-get install libdpdk-dev dpdk pkg-config`, then build it again"
                    .to_owned(),
            });
        }
        let failed = |e| LaneError::os(NAME, "load the DPDK shim", e, "see `ldconfig -p`");
        let file = in_memory(OBJECT).map_err(failed)?;
        let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        // SAFETY: a terminated string. The constructors of DPDK's libraries only register drivers
        // and log types.
        let library =
            unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(missing_library(&linker_error()));
        }
        Shim::bind(library).map_err(failed)
    }

    /// True when the program carries a shim.
    pub(crate) fn is_built() -> bool {
        !OBJECT.is_empty()
    }
}

/// A file in memory with these bytes.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: a terminated string and a flag.
    let fd = unsafe { libc::memfd_create(c"laneway-dpdk".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, nothing else has it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}

fn symbol(library: *mut c_void, name: &CStr) -> io::Result<*mut c_void> {
    // SAFETY: an open library and a terminated string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(io::Error::other(linker_error())) } else { Ok(address) }
}

/// The dynamic linker's last error.
fn linker_error() -> String {
    // SAFETY: no arguments.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker gives no reason".to_owned();
    }
    // SAFETY: a terminated string that stays until this thread calls the linker again.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// `librte_ethdev.so.23: cannot open shared object file: ...` names the library, and Debian's
/// packages are named after their libraries.
fn missing_library(reason: &str) -> LaneError {
    let name = reason.split(':').next().unwrap_or("").trim().to_owned();
    let package = package_of(&name);
    let all = "`apt-get install dpdk` brings all of DPDK";
    LaneError::NotFound {
        lane: NAME.to_owned(),
        what: "shared library",
        hint: match package {
            Some(package) => format!(
                "`apt-get install {package}` brings it, {all}; the dynamic linker says: {reason}"
            ),
            None => format!("{all}; the dynamic linker says: {reason}"),
        },
        name,
    }
}

/// Debian's package of a library: `librte_net_af_xdp.so.23` is in `librte-net-af-xdp23`, and
/// `librte_net_mlx5.so.23` in `librte-net-mlx5-23`.
pub(crate) fn package_of(library: &str) -> Option<String> {
    let (stem, number) = library.split_once(".so.")?;
    let number = number.split('.').next()?;
    let stem = stem.replace('_', "-");
    let joint = if stem.ends_with(|c: char| c.is_ascii_digit()) { "-" } else { "" };
    (!number.is_empty()).then(|| format!("{stem}{joint}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let reason = "librte_ethdev.so.23: cannot open shared object file: No such file";
        let sentence = missing_library(reason).to_string();
        assert!(sentence.contains("no shared library `librte_ethdev.so.23`"), "{sentence}");
        assert!(sentence.contains("apt-get install librte-ethdev23"), "{sentence}");
    }

    #[test]
    fn packages_are_named_as_debian_does() {
        for (library, package) in [
            ("librte_net_af_packet.so.23", Some("librte-net-af-packet23")),
            ("librte_net_e1000.so.23.0", Some("librte-net-e1000-23")),
            ("librte_eal.so", None),
            ("", None),
        ] {
            assert_eq!(package_of(library).as_deref(), package, "{library}");
        }
    }

    #[test]
    fn records_have_the_size_they_have_in_c() {
        assert_eq!(size_of::<ShimFrame>(), 12);
        assert_eq!(size_of::<ShimQueue>(), 64);
        assert_eq!(size_of::<PortInfo>(), 96);
        assert_eq!(size_of::<PortConf>(), 32);
        assert_eq!(size_of::<QueueStats>(), 24);
        assert_eq!(size_of::<PortStats>(), 40);
        assert_eq!((size_of::<ShimItem>(), size_of::<ShimRule>()), (124, 1016));
    }
}
