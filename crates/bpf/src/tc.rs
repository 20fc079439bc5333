//! Attaching a program to what an interface receives, behind its driver and before its stack (tc ingress).
//!
//! By link (tcx) since Linux 6.6: like an XDP program it then ends with this process. Before that the only way is a
//! filter of a `clsact` qdisc, which stays with the interface: so attach to interfaces that the caller made and that
//! end with it. Interfaces are those of the calling thread's network namespace.

use crate::{BpfError, xdp::ifindex};
use libbpf_rs::libbpf_sys::{
    BPF_TC_INGRESS, BPF_TCX_INGRESS, bpf_link_create, bpf_link_detach, bpf_tc_attach, bpf_tc_hook,
    bpf_tc_hook_create, bpf_tc_opts,
};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

/// An attached program. Dropping it detaches, where it is held by a link.
#[derive(Debug)]
pub struct TcIngress {
    /// `None`: a filter, which goes with its interface.
    link: Option<OwnedFd>,
}

impl TcIngress {
    /// Attaches `program` to what `interface` receives.
    ///
    /// # Errors
    /// [`BpfError::NoInterface`]; [`BpfError::NotPermitted`]; [`BpfError::Os`] when the kernel has neither way
    /// (CONFIG_NET_CLS_BPF, CONFIG_NET_SCH_INGRESS).
    pub fn attach(program: BorrowedFd<'_>, interface: &str) -> Result<TcIngress, BpfError> {
        let ifindex = ifindex(interface)? as i32;
        // SAFETY: takes three integers; no options are given.
        let link =
            unsafe { bpf_link_create(program.as_raw_fd(), ifindex, BPF_TCX_INGRESS, ptr::null()) };
        match -link {
            // A kernel that does not know the attach type.
            libc::EINVAL => return TcIngress::attach_filter(program, interface),
            code if code > 0 => return Err(refused(interface, code)),
            _ => {}
        }
        // SAFETY: the call returned a new descriptor that nothing else owns.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        Ok(TcIngress { link: Some(link) })
    }

    /// As [`attach`](Self::attach), by a filter whatever the kernel can do.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach).
    pub fn attach_filter(program: BorrowedFd<'_>, interface: &str) -> Result<TcIngress, BpfError> {
        let hook = bpf_tc_hook {
            sz: size_of::<bpf_tc_hook>() as _,
            ifindex: ifindex(interface)? as i32,
            attach_point: BPF_TC_INGRESS,
            ..Default::default()
        };
        let mut made = hook;
        // SAFETY: `made` is a whole structure of the length it says, live during the call.
        let code = unsafe { bpf_tc_hook_create(&raw mut made) };
        // EEXIST: the interface has one.
        if code < 0 && code != -libc::EEXIST {
            return Err(refused(interface, -code));
        }
        let mut opts = bpf_tc_opts {
            sz: size_of::<bpf_tc_opts>() as _,
            prog_fd: program.as_raw_fd(),
            ..Default::default()
        };
        // SAFETY: both are whole structures of the lengths they say, live during the call.
        let code = unsafe { bpf_tc_attach(&raw const hook, &raw mut opts) };
        if code < 0 {
            return Err(refused(interface, -code));
        }
        Ok(TcIngress { link: None })
    }

    /// Whether a link holds it, which ends with this process.
    pub fn is_link(&self) -> bool {
        self.link.is_some()
    }
}

impl Drop for TcIngress {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            // As for an XDP link: a child that is being forked may hold a copy of the descriptor.
            // SAFETY: the descriptor is open until after this call. It fails only when the interface is gone, and
            // then nothing is attached.
            unsafe { bpf_link_detach(link.as_raw_fd()) };
        }
    }
}

fn refused(interface: &str, code: i32) -> BpfError {
    let doing = format!("attach a program to what `{interface}` receives (tc ingress)");
    BpfError::os(doing, io::Error::from_raw_os_error(code))
}
