//! System calls by number: what they are called and what they are for.
//!
//! Numbers are those of the machine that analyses. The reader gives them to traces that name calls (LTTng's); one of our
//! own recorder from another architecture is named wrongly, because it holds the numbers of the machine it was made on.

/// What a system call is for, as far as a worker's time is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes packets; tells when there are none.
    Receive,
    /// Gives packets away.
    Send,
    /// Moves bytes of packets or of files; which is not known.
    Transfer,
    /// Waits until something is there.
    Wait,
    /// Lets time pass.
    Sleep,
    /// Waits for another thread: for a lock that it holds, or for something to do. A futex is either.
    Lock,
    /// Anything else.
    Other,
}

macro_rules! calls {
    ($table:ident, $($kind:ident: $($name:ident $number:ident,)+;)+) => {
        const $table: &[(i64, &str, Kind)] =
            &[$($((libc::$number, stringify!($name), Kind::$kind),)+)+];
    };
}

calls! { CALLS,
    Receive: recvfrom SYS_recvfrom, recvmsg SYS_recvmsg, recvmmsg SYS_recvmmsg,;
    Send: sendto SYS_sendto, sendmsg SYS_sendmsg, sendmmsg SYS_sendmmsg,;
    Transfer: read SYS_read, write SYS_write, readv SYS_readv, writev SYS_writev, pread64 SYS_pread64,
        pwrite64 SYS_pwrite64, preadv SYS_preadv, pwritev SYS_pwritev, sendfile SYS_sendfile, splice SYS_splice,;
    Wait: ppoll SYS_ppoll, pselect6 SYS_pselect6, epoll_pwait SYS_epoll_pwait, epoll_pwait2 SYS_epoll_pwait2,
        io_uring_enter SYS_io_uring_enter, accept SYS_accept, accept4 SYS_accept4,;
    Sleep: nanosleep SYS_nanosleep, clock_nanosleep SYS_clock_nanosleep,;
    Lock: futex SYS_futex, futex_waitv SYS_futex_waitv,;
    Other: sched_yield SYS_sched_yield, mmap SYS_mmap, munmap SYS_munmap, mprotect SYS_mprotect, madvise SYS_madvise,
        mremap SYS_mremap, brk SYS_brk, ioctl SYS_ioctl, fcntl SYS_fcntl, fsync SYS_fsync, fdatasync SYS_fdatasync,
        sync SYS_sync, syncfs SYS_syncfs, sync_file_range SYS_sync_file_range, openat SYS_openat, close SYS_close,
        fstat SYS_fstat, newfstatat SYS_newfstatat, statx SYS_statx, lseek SYS_lseek, ftruncate SYS_ftruncate,
        fallocate SYS_fallocate, unlinkat SYS_unlinkat, renameat2 SYS_renameat2, getdents64 SYS_getdents64,
        getsockopt SYS_getsockopt, setsockopt SYS_setsockopt, socket SYS_socket, bind SYS_bind, connect SYS_connect,
        clone SYS_clone, clone3 SYS_clone3, execve SYS_execve, exit SYS_exit, exit_group SYS_exit_group,
        wait4 SYS_wait4, waitid SYS_waitid, kill SYS_kill, tgkill SYS_tgkill, rt_sigaction SYS_rt_sigaction,
        rt_sigprocmask SYS_rt_sigprocmask, rt_sigreturn SYS_rt_sigreturn, rt_sigtimedwait SYS_rt_sigtimedwait,
        getpid SYS_getpid, gettid SYS_gettid, getrusage SYS_getrusage, getrandom SYS_getrandom, getcpu SYS_getcpu,
        clock_gettime SYS_clock_gettime, gettimeofday SYS_gettimeofday, timerfd_create SYS_timerfd_create,
        timerfd_settime SYS_timerfd_settime, eventfd2 SYS_eventfd2, pipe2 SYS_pipe2, membarrier SYS_membarrier,
        sched_setaffinity SYS_sched_setaffinity, sched_setscheduler SYS_sched_setscheduler,
        epoll_ctl SYS_epoll_ctl, bpf SYS_bpf, perf_event_open SYS_perf_event_open, mlock SYS_mlock, rseq SYS_rseq,
        io_uring_setup SYS_io_uring_setup, io_uring_register SYS_io_uring_register, prctl SYS_prctl,;
}

#[cfg(target_arch = "x86_64")]
calls! { OLD_CALLS,
    Wait: poll SYS_poll, select SYS_select, epoll_wait SYS_epoll_wait,;
    Other: open SYS_open, stat SYS_stat, lstat SYS_lstat, unlink SYS_unlink,
        rename SYS_rename, mkdir SYS_mkdir, pause SYS_pause, fork SYS_fork, vfork SYS_vfork, access SYS_access,;
}

/// Newer architectures have none of the calls that others replace.
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[(i64, &str, Kind)] = &[];

fn all() -> impl Iterator<Item = &'static (i64, &'static str, Kind)> {
    CALLS.iter().chain(OLD_CALLS)
}

fn find(number: u32) -> Option<&'static (i64, &'static str, Kind)> {
    all().find(|call| call.0 == i64::from(number))
}

/// What a function that bears the name of a call is for.
pub(crate) fn kind_of_name(name: &str) -> Option<Kind> {
    all().find(|call| call.1 == name).map(|call| call.2)
}

/// Its name, or its number where the table has none.
pub(crate) fn name(number: u32) -> String {
    find(number).map_or_else(|| format!("system call {number}"), |call| call.1.to_owned())
}

/// What it is for.
pub(crate) fn kind(number: u32) -> Kind {
    find(number).map_or(Kind::Other, |call| call.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_this_machines_numbers() {
        let number = |of: libc::c_long| u32::try_from(of).expect("numbers are small");
        assert_eq!(name(number(libc::SYS_recvfrom)), "recvfrom");
        assert_eq!(kind(number(libc::SYS_futex)), Kind::Lock);
        assert_eq!((name(99_999).as_str(), kind(99_999)), ("system call 99999", Kind::Other));
        // What a kernel's tracer names is given a number by the reader, and its name again by this table.
        for &(number, known, _) in all() {
            let read = laneway_trace_read::syscall_number(known);
            assert_eq!((i64::from(read), name(read).as_str()), (number, known));
        }
        let mut numbers: Vec<i64> = all().map(|call| call.0).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "each number once");
    }
}
