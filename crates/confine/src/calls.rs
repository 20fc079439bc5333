//! The system calls that a running program makes, as a filter of the kernel's (seccomp).
//!
//! A list of what is allowed, by what it is for; a call that is not on it is forbidden, programs to execute and
//! processes to start first of all. `clone` is allowed for threads only. `clone3` has its flags in memory, where no
//! filter can read them, so it is answered as a kernel answers that does not have it, and the C library takes
//! `clone`.

use crate::ConfineError;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::{collections::BTreeMap, env::consts::ARCH};

/// A family of system calls that some runs make and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Of an io_uring that is open.
    IoUring,
    /// Of eBPF maps and programs.
    Bpf,
}

/// What becomes of a call that is not allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forbidden {
    /// It fails, with EPERM.
    #[default]
    Fail,
    /// It is made, and the kernel's audit log names it: to find out what a filter would stop.
    Log,
    /// The process ends, with SIGSYS.
    Kill,
}

impl Forbidden {
    pub(crate) fn effect(self) -> &'static str {
        match self {
            Forbidden::Fail => "fail",
            Forbidden::Log => "are logged",
            Forbidden::Kill => "end the process",
        }
    }

    fn action(self) -> SeccompAction {
        match self {
            Forbidden::Fail => SeccompAction::Errno(libc::EPERM as u32),
            Forbidden::Log => SeccompAction::Log,
            Forbidden::Kill => SeccompAction::KillProcess,
        }
    }
}

/// Files that are open, and those that a run reads (facts of the host) and writes (traces, a socket's file).
const FILES: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
];

/// Threads, their clocks, their signals, and their identity. `clone` is apart.
const THREADS: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_uname,
];

const SOCKETS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

/// Older forms of some of them, which later processors were never given.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

const OF_IO_URING: &[c_long] = &[libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
const OF_BPF: &[c_long] = &[libc::SYS_bpf];

/// What the kernel is given, in this order. Of two answers it takes the stricter one.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Answers `clone3` as if there were none.
    old: BpfProgram,
    /// Allows what is on the list.
    list: BpfProgram,
}

impl Filter {
    pub(crate) fn new(calls: &[Calls], forbidden: Forbidden) -> Result<Filter, ConfineError> {
        let hint = "this processor is none that system calls are filtered on";
        let failed =
            |why: &dyn ToString| ConfineError::new("filter system calls", why.to_string(), hint);
        let program = |rules, mismatch, matched| -> Result<BpfProgram, ConfineError> {
            let arch = TargetArch::try_from(ARCH).map_err(|why| failed(&why))?;
            let filter = SeccompFilter::new(rules, mismatch, matched, arch);
            filter.and_then(TryInto::try_into).map_err(|why| failed(&why))
        };
        let absent = SeccompAction::Errno(libc::ENOSYS as u32);
        let old = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let old = program(old, SeccompAction::Allow, absent)?;

        let thread = libc::CLONE_THREAD as u64;
        let is_thread = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(thread),
            thread,
        );
        let is_thread = is_thread.and_then(|condition| SeccompRule::new(vec![condition]));
        let is_thread = is_thread.map_err(|why| failed(&why))?;
        let families = calls.iter().map(|calls| match calls {
            Calls::IoUring => OF_IO_URING,
            Calls::Bpf => OF_BPF,
        });
        let all = [FILES, MEMORY, THREADS, SOCKETS, OLDER].into_iter().chain(families).flatten();
        let mut list: BTreeMap<i64, Vec<SeccompRule>> =
            all.map(|call| (*call, Vec::new())).collect();
        // The other filter has answered.
        list.insert(libc::SYS_clone3, Vec::new());
        list.insert(libc::SYS_clone, vec![is_thread]);
        let list = program(list, forbidden.action(), SeccompAction::Allow)?;
        Ok(Filter { old, list })
    }

    /// For the calling thread and those that it starts.
    pub(crate) fn apply(&self) -> Result<(), ConfineError> {
        // The list last: a second filter is a call that it does not have.
        for program in [&self.old, &self.list] {
            apply_filter(program).map_err(|why| {
                let hint = "this kernel needs CONFIG_SECCOMP_FILTER; keep all privileges";
                ConfineError::new("filter system calls", why, hint)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_call_is_listed_twice_and_none_starts_a_program() {
        let lists = [FILES, MEMORY, THREADS, SOCKETS, OLDER, OF_IO_URING, OF_BPF];
        let all: Vec<c_long> = lists.into_iter().flatten().copied().collect();
        let once: BTreeSet<c_long> = all.iter().copied().collect();
        assert_eq!(once.len(), all.len());
        for never in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_capset,
            libc::SYS_setuid,
            libc::SYS_init_module,
            libc::SYS_process_vm_writev,
        ] {
            assert!(!once.contains(&never), "{never}");
        }
    }
}
