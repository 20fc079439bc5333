//! Which CPUs a thread may run on: one worker, one core.

use laneway_core::LaneError;
use rustix::{
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Keeps the calling thread on `cpu`.
///
/// # Errors
/// When there is no such CPU, or this process may not use it.
pub fn pin_to_cpu(cpu: usize) -> Result<(), LaneError> {
    set_affinity(&[cpu], "pin itself to")
}

/// Lets the calling thread run on these CPUs only, as long as `start` takes. A thread that `start` starts
/// may use them for good, because threads inherit this.
///
/// # Errors
/// When one of them is not there, or this process may not use it; `start` is not called then.
pub fn starting_on<R>(cpus: &[usize], start: impl FnOnce() -> R) -> Result<R, LaneError> {
    let before = usable_cpus()?;
    set_affinity(cpus, "start a thread on")?;
    let started = start();
    set_affinity(&before, "go back to")?;
    Ok(started)
}

fn set_affinity(cpus: &[usize], doing: &str) -> Result<(), LaneError> {
    let names: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let name = names.join(",");
    let not_found = || LaneError::NotFound {
        lane: "worker".to_owned(),
        what: "CPU",
        name: name.clone(),
        hint: "`nproc` and `taskset -p $$` show the CPUs that this process may use".to_owned(),
    };
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(not_found());
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|errno| match errno {
        Errno::INVAL => not_found(),
        errno => LaneError::os(
            "worker",
            format!("{doing} CPU {name}"),
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
    fn a_thread_keeps_the_cpus_that_it_was_started_on_and_its_starter_its_own() {
        // A thread of its own: the affinity ends with it.
        let starter = std::thread::spawn(|| {
            let before = usable_cpus().unwrap();
            let last = before[before.len() - 1];
            let started = starting_on(&[last], || std::thread::spawn(|| usable_cpus().unwrap()));
            assert_eq!(started.unwrap().join().unwrap(), [last]);
            assert_eq!(usable_cpus().unwrap(), before);
            assert!(starting_on(&[CpuSet::MAX_CPU], || panic!("it is not there")).is_err());
        });
        starter.join().unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        for cpu in [CpuSet::MAX_CPU - 1, usize::MAX] {
            let message = pin_to_cpu(cpu).unwrap_err().to_string();
            assert!(message.contains(&format!("no CPU `{cpu}`")), "{message}");
        }
    }
}
