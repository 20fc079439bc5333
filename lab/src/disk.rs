//! A folder on a disk, for an arm that keeps data: what it has in memory alone is no store's log.
//!
//! It lies where files outlast a restart (`/var/tmp`, file-hierarchy(7)), is empty, private, and goes with the
//! arm. What an arm that was killed left there its race removes, or, if that was killed as well, the next arm. What a
//! sync costs there is reported beside the figures, since they are figures of that disk too.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where folders are.
const PLACE: &str = "/var/tmp";
/// In front of the number of the process that has one.
const NAME: &str = "laneway-arm-";
/// Syncs that are timed, each of so many bytes.
const SYNCS: usize = 15;
const SYNC_BYTES: usize = 4_096;

/// The folder; removed with all in it when this is dropped.
pub(crate) struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Makes it.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn create() -> Result<Disk, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Only its being another each time matters.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(PLACE).join(format!("{NAME}{}-{number}", std::process::id()));
        let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
        remove_left_over();
        // One of this name is of a process that had our number before us.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Disk { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is: its file system, and what a sync takes there.
    pub(crate) fn fact(&self) -> String {
        let kind = file_system(&self.path).unwrap_or_else(|| "a file system".to_owned());
        match sync_time(&self.path.join("sync")) {
            Ok(took) => format!(
                "{kind}, fdatasync of {SYNC_BYTES} bytes {:.0} us (median of {SYNCS})",
                took.as_secs_f64() * 1e6
            ),
            Err(error) => format!("{kind}, whose fdatasync fails: {error}"),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is left the next arm removes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of a process that was killed.
pub(crate) fn remove_of(process: u32) {
    remove(|pid| pid == process);
}

/// Removes the folders of processes that are gone.
fn remove_left_over() {
    remove(|pid| !Path::new(&format!("/proc/{pid}")).exists());
}

/// Removes the folders of these processes; what cannot be removed, a later arm tries to.
fn remove(is_it: impl Fn(u32) -> bool) {
    for entry in fs::read_dir(PLACE).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(NAME)) else { continue };
        if pid.split('-').next().and_then(|pid| pid.parse().ok()).is_some_and(&is_it) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The median time of a sync behind a short write.
fn sync_time(path: &Path) -> io::Result<Duration> {
    let mut file = File::create(path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[0x5a; SYNC_BYTES])?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed());
    }
    fs::remove_file(path)?;
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

/// The type of the file system that `path` lies on (proc_pid_mountinfo(5)): that of the longest mount point above it.
fn file_system(path: &Path) -> Option<String> {
    let text = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    let mounts = text.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        Some((place.split(' ').nth(4)?, kind.split(' ').next()?))
    });
    let above = mounts.filter(|(place, _)| path.starts_with(place));
    // Of two on the same place the later one is seen.
    above.max_by_key(|(place, _)| place.len()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_empty_says_what_it_lies_on_and_goes() {
        let disk = Disk::create().unwrap();
        let path = disk.path().to_owned();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        let fact = disk.fact();
        assert!(fact.contains("fdatasync of 4096 bytes"), "{fact}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::write(path.join("left"), "x").unwrap();
        drop(disk);
        assert!(!path.exists());
        // No process has this number (proc_sys_kernel(5): pid_max is at most 2^22).
        let unowned = Path::new(PLACE).join(format!("{NAME}4194305-0"));
        fs::create_dir_all(&unowned).unwrap();
        drop(Disk::create().unwrap());
        assert!(!unowned.exists());
    }
}
