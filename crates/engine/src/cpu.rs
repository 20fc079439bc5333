//! One worker, one core.

use laneway_core::LaneError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on `cpu`.
///
/// # Errors
/// When there is no such CPU, or this process may not use it.
pub fn pin_to_cpu(cpu: usize) -> Result<(), LaneError> {
    let not_found = || LaneError::NotFound {
        lane: "worker".to_owned(),
        what: "CPU",
        name: cpu.to_string(),
        hint: "`nproc` and `taskset -p $$` show the CPUs that this process may use".to_owned(),
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(not_found());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| match errno {
        rustix::io::Errno::INVAL => not_found(),
        errno => LaneError::os(
            "worker",
            format!("pin itself to CPU {cpu}"),
            errno.into(),
            "leave the CPU out to run unpinned",
        ),
    })
}

/// The CPUs that the calling thread may run on, lowest first.
///
/// # Errors
/// When the kernel does not tell.
pub fn usable_cpus() -> Result<Vec<usize>, LaneError> {
    let allowed = sched_getaffinity(None).map_err(|errno| {
        let hint = "name the CPUs instead";
        LaneError::os("worker", "ask which CPUs it may use", errno.into(), hint)
    })?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_its_cpu_only() {
        // A thread of its own: the affinity ends with it.
        let pinned = std::thread::spawn(|| {
            let cpu = usable_cpus().unwrap()[0];
            pin_to_cpu(cpu).unwrap();
            assert_eq!(usable_cpus().unwrap(), [cpu]);
        });
        pinned.join().unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        for cpu in [CpuSet::MAX_CPU - 1, usize::MAX] {
            let message = pin_to_cpu(cpu).unwrap_err().to_string();
            assert!(message.contains(&format!("no CPU `{cpu}`")), "{message}");
        }
    }
}
