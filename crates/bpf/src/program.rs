//! Facts about a loaded program, and programs that another process has loaded.

use crate::{BpfError, error::libbpf};
use libbpf_rs::{
    ErrorKind, Program,
    libbpf_sys::{BPF_PROG_TYPE_XDP, bpf_prog_get_info_by_fd, bpf_prog_info},
};
use std::{
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// The kernel's number of the program behind `program`.
pub(crate) fn id(program: BorrowedFd<'_>) -> Result<u32, BpfError> {
    Ok(info(program)?.id)
}

/// The name of the program of this number; `None` if it is gone, or may not be asked about.
pub(crate) fn name_of(id: u32) -> Option<String> {
    let program = Program::fd_from_id(id).ok()?;
    Some(name(&info(program.as_fd()).ok()?))
}

fn info(program: BorrowedFd<'_>) -> Result<bpf_prog_info, BpfError> {
    let mut info = bpf_prog_info::default();
    let mut info_bytes = size_of::<bpf_prog_info>() as u32;
    // SAFETY: `info` is as long as `info_bytes` says, and all its pointers are null with length
    // zero, so the kernel writes nowhere else.
    let code =
        unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut info_bytes) };
    BpfError::check(code, || "ask the kernel about a program".to_owned())?;
    Ok(info)
}

fn name(info: &bpf_prog_info) -> String {
    let bytes =
        info.name.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect::<Vec<_>>();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An XDP program that another process has loaded. It stays loaded at least as long as this.
#[derive(Debug)]
pub struct XdpProgram {
    program: OwnedFd,
    id: u32,
    name: String,
}

impl XdpProgram {
    /// Finds it by the kernel's number, such as `42`, or by where it is pinned, such as
    /// `/sys/fs/bpf/filter`.
    ///
    /// # Errors
    /// [`BpfError::Object`] when there is none, or one of another type; [`BpfError::NotPermitted`].
    pub fn find(text: &str) -> Result<XdpProgram, BpfError> {
        let wrong = |why: &str| BpfError::Object { object: text.to_owned(), why: why.to_owned() };
        let found = match text.parse::<u32>() {
            Ok(id) => Program::fd_from_id(id),
            Err(_) if text.contains('/') => Program::fd_from_pinned_path(text),
            Err(_) => {
                return Err(wrong(
                    "this is neither the number of a BPF program, such as 42, nor where one is \
                     pinned, such as /sys/fs/bpf/filter; `bpftool prog list` shows them",
                ));
            }
        };
        let program = found.map_err(|error| match error.kind() {
            ErrorKind::NotFound if text.contains('/') => wrong(
                "nothing is pinned there; pin a program with `bpftool prog pin id N PATH`, or give its \
                 number (`ip netns exec` hides /sys/fs/bpf)",
            ),
            ErrorKind::NotFound => wrong(
                "the kernel has no BPF program of this number; `bpftool prog list` shows them",
            ),
            // The kernel answers so for a file that is none of its own, too.
            _ if text.contains('/') => wrong(
                "this is no pinned BPF program, or none that this user may open; as root, pin one \
                 with `bpftool prog pin id N PATH`",
            ),
            _ => libbpf(format!("open BPF program {text}"), &error),
        })?;
        let info = info(program.as_fd())?;
        let name = name(&info);
        if info.type_ != BPF_PROG_TYPE_XDP {
            let why = format!(
                "program {} `{name}` is no XDP program, so none can call it; `bpftool prog list` \
                 shows types",
                info.id
            );
            return Err(wrong(&why));
        }
        Ok(XdpProgram { program, id: info.id, name })
    }

    /// The kernel's number of it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name, of which the kernel keeps 15 bytes.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl fmt::Display for XdpProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XDP program {} `{}`", self.id, self.name)
    }
}
