//! Why a BPF object could not be loaded, attached or read, as sentences.
//!
//! [`BpfError::in_lane`] turns one into the contract's [`LaneError`] for the lane that asked.

use crate::XdpMode;
use laneway_core::LaneError;
use libbpf_rs::ErrorKind;
use std::io;

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// A capability is missing (or, before Linux 5.11, the locked-memory limit is too low).
    #[error("not permitted to {doing}; {PRIVILEGES}")]
    NotPermitted {
        /// What was tried.
        doing: String,
    },
    /// The kernel publishes no type information.
    #[error(
        "cannot {doing}: this kernel has no /sys/kernel/btf/vmlinux; \
         use one built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf {
        /// What was tried.
        doing: String,
    },
    /// The kernel had no memory for it.
    #[error("no memory to {doing}; {SMALLER}")]
    NoMemory {
        /// What was tried.
        doing: String,
    },
    /// The kernel's verifier refused it.
    #[error("the kernel's verifier refused `{object}`; the end of its log:\n{log}")]
    Verifier {
        /// The object.
        object: String,
        /// The last lines of the log.
        log: String,
    },
    /// The object and what was asked of it do not fit together.
    #[error("BPF object `{object}`: {why}")]
    Object {
        /// The object.
        object: String,
        /// What does not fit, with the names and sizes.
        why: String,
    },
    /// No such interface in the thread's network namespace.
    #[error("there is no interface `{interface}` in this network namespace; see `ip link`")]
    NoInterface {
        /// The name asked for.
        interface: String,
    },
    /// Another XDP program is attached.
    #[error("`{interface}` is busy: {holder}; {FREE_IT}")]
    Busy {
        /// The interface.
        interface: String,
        /// What is attached, with its program id.
        holder: String,
    },
    /// The driver cannot run the program in this mode.
    #[error("`{interface}` refuses {mode} XDP: {source}")]
    ModeRefused {
        /// The interface.
        interface: String,
        /// The mode asked for.
        mode: XdpMode,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call failed in another way.
    #[error("failed to {doing}: {source}")]
    Os {
        /// The call and its object.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

const PRIVILEGES: &str = "run as root, or grant CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON \
                          (before Linux 5.11 also raise `ulimit -l`)";
/// As `make vm-test` shows; another kernel's verifier may differ.
const HAS_LOADED: &str = "on Linux 6.1, 6.12 and 6.18 it is known to load: on these and newer ones please \
                          report the log with the kernel's release, on older ones use 6.1 or later";
const SMALLER: &str = "try smaller rings and maps, or raise the memory limit of the control group";
const FREE_IT: &str = "`ip link set dev IFACE xdp off` removes a program that no link holds, \
                       else end the process that holds the link";

impl BpfError {
    /// Sorts a failed call into the variant that helps most.
    pub(crate) fn os(doing: impl Into<String>, source: io::Error) -> Self {
        let doing = doing.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => BpfError::NotPermitted { doing },
            Some(libc::ENOMEM) => BpfError::NoMemory { doing },
            _ => BpfError::Os { doing, source },
        }
    }

    /// The error of the call that just failed in this thread.
    pub(crate) fn last_os(doing: impl Into<String>) -> Self {
        Self::os(doing, io::Error::last_os_error())
    }

    /// A libbpf call answered `code`: negative is an error number.
    pub(crate) fn check(code: i32, doing: impl FnOnce() -> String) -> Result<i32, Self> {
        if code >= 0 {
            return Ok(code);
        }
        Err(Self::os(doing(), io::Error::from_raw_os_error(-code)))
    }

    /// The same failure in the words of the contract.
    pub fn in_lane(self, lane: &str) -> LaneError {
        let lane = lane.to_owned();
        match self {
            BpfError::NotPermitted { doing } => {
                LaneError::NotPermitted { lane, doing, hint: PRIVILEGES.to_owned() }
            }
            BpfError::NoInterface { interface } => LaneError::no_interface(&lane, &interface),
            BpfError::Busy { interface, holder } => {
                LaneError::Busy { lane, name: interface, why: holder, hint: FREE_IT.to_owned() }
            }
            BpfError::ModeRefused { interface, mode, source } => LaneError::Os {
                lane,
                doing: format!("attach to `{interface}` in {mode} mode"),
                source,
                hint: "ask for xdp:generic, or see the requirements in lanes/xdp/README.md"
                    .to_owned(),
            },
            BpfError::Object { object, why } => LaneError::Input { lane, name: object, why },
            BpfError::Os { doing, source } => {
                LaneError::Os { lane, doing, source, hint: "see `dmesg` for details".to_owned() }
            }
            BpfError::Verifier { ref object, .. } => LaneError::Os {
                doing: format!("load `{object}`"),
                hint: HAS_LOADED.to_owned(),
                source: io::Error::other(self),
                lane,
            },
            BpfError::NoMemory { ref doing } => LaneError::Os {
                doing: doing.clone(),
                source: io::ErrorKind::OutOfMemory.into(),
                hint: SMALLER.to_owned(),
                lane,
            },
            BpfError::NoBtf { ref doing } => LaneError::Os {
                doing: doing.clone(),
                source: io::ErrorKind::Unsupported.into(),
                hint: self.to_string(),
                lane,
            },
        }
    }
}

/// A libbpf-rs failure as one of ours; its error chain ends in the system's error number.
pub(crate) fn libbpf(doing: String, error: &libbpf_rs::Error) -> BpfError {
    match error.kind() {
        ErrorKind::PermissionDenied => BpfError::NotPermitted { doing },
        ErrorKind::OutOfMemory => BpfError::NoMemory { doing },
        _ => BpfError::Os { doing, source: io::Error::other(format!("{error:#}")) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_names_the_privileges() {
        let error = BpfError::os("load `x`", io::Error::from_raw_os_error(libc::EPERM));
        let LaneError::NotPermitted { hint, .. } = error.in_lane("xdp") else { panic!() };
        assert!(hint.contains("CAP_BPF"), "{hint}");
    }

    #[test]
    fn every_variant_keeps_its_names_in_the_contract() {
        let source = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let (object, interface) = (String::from("half"), String::from("eth9"));
        for (error, want) in [
            (BpfError::Verifier { object: object.clone(), log: "R1 invalid".into() }, "R1 invalid"),
            (BpfError::Object { object, why: "no map".into() }, "half: no map"),
            (BpfError::NoInterface { interface: interface.clone() }, "eth9"),
            (BpfError::Busy { interface: interface.clone(), holder: "id 7".into() }, "id 7"),
            (
                BpfError::ModeRefused { interface, mode: XdpMode::Native, source: source() },
                "native",
            ),
            (BpfError::NoMemory { doing: "make a ring".into() }, "smaller rings"),
            (BpfError::NoBtf { doing: "load `x`".into() }, "CONFIG_DEBUG_INFO_BTF"),
            (BpfError::os("poll", source()), "poll"),
        ] {
            let text = error.in_lane("xdp").to_string();
            assert!(text.starts_with("xdp: ") && text.contains(want), "{text}");
        }
    }
}
