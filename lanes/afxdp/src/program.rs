//! The redirect program of one interface: loaded, told its socket, attached until dropped; and the
//! way back for frames that the app passes to the kernel's stack.
//!
//! Assumes `bpf/afxdp.bpf.c` and that the calling thread stays in the network namespace of the
//! interface. What must always hold: the socket is in the map before the program is attached, and
//! nothing is pinned. What it does not do: it never looks at a frame.

use crate::config::NAME;
use laneway_bpf::{BpfError, LiveFrames, Loaded, XdpLink, XdpMode, live_frames};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/afxdp.bpf.o"));
/// Names in `afxdp.bpf.c`.
const SOCKETS_MAP: &str = "xsks";
const REDIRECT: &str = "lw_redirect";
const REDIRECT_FRAGS: &str = "lw_redirect_frags";
const PASS: &str = "lw_pass";
const GENERIC: &str = "lw_generic";

/// An attached program. Dropping it detaches.
pub(crate) struct Program {
    link: XdpLink,
    loaded: Loaded,
    ifindex: u32,
}

impl Program {
    /// Loads the program, makes it redirect `queue` of `interface` to `socket`, and attaches it in
    /// exactly `mode`.
    ///
    /// # Errors
    /// As [`Loaded::load`] and [`XdpLink::attach`]; a mode that the driver refuses is told apart.
    pub(crate) fn attach(
        interface: &str,
        queue: u32,
        socket: BorrowedFd<'_>,
        mode: XdpMode,
        multi_buffer: bool,
    ) -> Result<Program, AttachError> {
        let other = |e: BpfError| AttachError::Other(e.in_lane(NAME));
        let generic =
            ConfigValue { name: GENERIC, bytes: vec![u8::from(mode == XdpMode::Generic)] };
        let loaded = Loaded::load(&KernelHalf {
            name: NAME,
            object: OBJECT,
            program: if multi_buffer { REDIRECT_FRAGS } else { REDIRECT },
            config: vec![generic],
            entries: Vec::new(),
            map_sizes: Vec::new(),
            records: None,
            drops_map: None,
            seen_map: None,
        })
        .map_err(other)?;
        let socket = socket.as_raw_fd().to_ne_bytes();
        loaded
            .maps()
            .put(SOCKETS_MAP, &queue.to_ne_bytes(), &socket)
            .map_err(AttachError::Other)?;
        let link = XdpLink::attach(loaded.program(), interface, mode).map_err(|e| match e {
            BpfError::ModeRefused { source, .. } => AttachError::ModeRefused(source),
            e => other(e),
        })?;
        Ok(Program { ifindex: link.ifindex(), link, loaded })
    }

    /// The mode that was obtained, as read back.
    pub(crate) fn mode(&self) -> XdpMode {
        self.link.mode()
    }

    /// The kernel's number of the program.
    pub(crate) fn id(&self) -> u32 {
        self.link.program_id()
    }

    /// Gives one frame to the stack as if it had just been received; false when the kernel refuses
    /// (a frame longer than one page can carry). A system call that costs far more than receiving
    /// the frame did.
    pub(crate) fn pass(&self, frame: &[u8]) -> bool {
        let program = self.loaded.maps().program(PASS).expect("afxdp.bpf.c has this program");
        let live =
            LiveFrames { frame, meta: &[], frames: 1, batch: 1, ingress_ifindex: self.ifindex };
        live_frames(program, live).is_ok()
    }
}

/// Why a program is not attached.
pub(crate) enum AttachError {
    /// The driver refuses this mode.
    ModeRefused(io::Error),
    /// Anything else.
    Other(LaneError),
}
