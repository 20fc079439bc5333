//! The redirect program of one interface: loaded, attached until the last lane that uses it is gone,
//! and configured with the socket that serves each queue; and the way back for frames that the app
//! passes to the kernel's stack.
//!
//! Assumes `bpf/afxdp.bpf.c` and that the thread that attaches stands in the network namespace of
//! the interface. What must always hold: a queue without a socket goes to the kernel's stack; an
//! entry leaves the map with the lane that made it; nothing is pinned. After attaching, all is done
//! by file descriptors, so that workers on several threads share a program without a lock. What it
//! does not do: it never looks at a frame.

use crate::{
    config::{Config, NAME},
    interface::Interface,
    sys,
};
use laneway_bpf::{BpfError, LiveFrames, Loaded, XdpLink, XdpMode, live_frames};
use laneway_core::{Cap, ConfigValue, KernelHalf, LaneError};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
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
    /// The XSKMAP.
    sockets: OwnedFd,
    /// The program that gives frames back.
    pass: OwnedFd,
}

impl Program {
    /// Loads the program and attaches it to `interface` in exactly the mode of `config`. No queue
    /// has a socket yet.
    ///
    /// # Errors
    /// As [`Loaded::load`] and [`XdpLink::attach`]; [`LaneError::CapMissing`] where the driver
    /// refuses native mode and its absence is allowed.
    pub(crate) fn attach(config: &Config, interface: &Interface) -> Result<Program, LaneError> {
        let in_lane = |e: BpfError| e.in_lane(NAME);
        let mode = if config.generic { XdpMode::Generic } else { XdpMode::Native };
        let loaded = Loaded::load(&KernelHalf {
            config: vec![ConfigValue { name: GENERIC, bytes: vec![u8::from(config.generic)] }],
            ..KernelHalf::new(
                NAME,
                OBJECT,
                if config.multi_buffer { REDIRECT_FRAGS } else { REDIRECT },
            )
        })
        .map_err(in_lane)?;
        let keep = |fd: Option<BorrowedFd<'_>>| {
            let fd = fd.expect("afxdp.bpf.c has this map and this program");
            fd.try_clone_to_owned().map_err(|e| {
                LaneError::os(NAME, "keep the program's files open", e, "raise `ulimit -n`")
            })
        };
        let sockets = keep(loaded.maps().fd(SOCKETS_MAP))?;
        let pass = keep(loaded.maps().program(PASS))?;
        let link = XdpLink::attach(loaded.program(), interface.name(), mode);
        let link = link.map_err(|e| refusal(config, interface, mode, e))?;
        Ok(Program { link, sockets, pass })
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
        let ingress_ifindex = self.link.ifindex();
        let live = LiveFrames { frame, meta: &[], frames: 1, batch: 1, ingress_ifindex };
        live_frames(self.pass.as_fd(), live).is_ok()
    }
}

/// A queue whose frames go to a socket. Dropping it gives them back to the stack.
pub(crate) struct Registration {
    program: Arc<Program>,
    queue: u32,
}

impl Registration {
    /// From now on `program` redirects frames of `queue` to `socket`, which must be bound to it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(
        program: Arc<Program>,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<Registration, LaneError> {
        sys::put_socket(program.sockets.as_fd(), queue, socket).map_err(|e| {
            let doing = format!("tell the program which socket serves queue {queue}");
            LaneError::os(NAME, doing, e, "see `dmesg`")
        })?;
        Ok(Registration { program, queue })
    }

    /// The program that redirects.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Fails when the kernel has done so itself, because the interface is gone.
        let _ = sys::remove_socket(self.program.sockets.as_fd(), self.queue);
    }
}

/// Why a program is not attached.
fn refusal(config: &Config, interface: &Interface, mode: XdpMode, error: BpfError) -> LaneError {
    let source: io::Error = match error {
        BpfError::ModeRefused { source, .. } => source,
        e => return e.in_lane(NAME),
    };
    // Leave the choice to `allow=`.
    if !config.generic && config.allowed_missing.has(Cap::NativeXdp) {
        return LaneError::CapMissing { lane: NAME.to_owned(), cap: Cap::NativeXdp, needs: None };
    }
    LaneError::Os {
        lane: NAME.to_owned(),
        doing: format!("attach the {mode} XDP program to `{}`", interface.name()),
        source,
        hint: "an MTU beyond one page needs sg; a driver without native XDP needs generic, \
               or allow=native-xdp"
            .to_owned(),
    }
}
