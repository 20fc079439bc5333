//! What the journal asks of a file system: the files of one folder, by name.
//!
//! Two implementations: [`Folder`] is the real one. [`faults::Disk`](crate::faults::Disk) is simulated: it loses what
//! was not synced, cuts the power and fails when a test says so. A call does one operation, so that a test can fail
//! any.

use rustix::fs::{
    AtFlags, Dir, FallocateFlags, Mode, OFlags, fallocate, fdatasync, fsync, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

/// The file whose lock a running journal holds.
const LOCK_NAME: &str = "lock";

/// Has a folder for one journal, until it is dropped.
pub type FolderLock = Box<dyn fmt::Debug + Send + Sync>;

/// The files of one folder.
pub trait Files: Send {
    /// The names of all files.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that is there, to read and to write.
    ///
    /// # Errors
    /// It is not there, or cannot be opened.
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Makes an empty file, in place of one of this name.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Gives a file another name, in place of one of that name.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when all names of the folder are durable.
    ///
    /// # Errors
    /// The device failed; what is durable is not known.
    fn sync_names(&self) -> io::Result<()>;

    /// Takes the folder for this journal alone, until what is returned is dropped; `None` when another has it.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn lock(&self) -> io::Result<Option<FolderLock>>;

    /// Which start of the machine this is; 0 when that is not known.
    fn boot(&self) -> u64;

    /// A number that cannot be guessed.
    fn random(&self) -> u64;
}

/// An open file.
#[expect(clippy::len_without_is_empty, reason = "a file of a journal is never empty")]
pub trait OpenFile: Send {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The device failed.
    fn len(&self) -> io::Result<u64>;

    /// Reads what is at `offset`, up to the length of `into`, and returns how much: less only at the end of the file.
    ///
    /// # Errors
    /// The device failed.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// There is no room, or the device failed; a part may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes it `bytes` long and takes the space for that, so that a later write finds it.
    ///
    /// # Errors
    /// There is no room.
    fn allocate(&mut self, bytes: u64) -> io::Result<()>;

    /// Cuts it to `bytes`.
    ///
    /// # Errors
    /// The device failed.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;

    /// Returns when all that was written, and what is needed to read it, is durable.
    ///
    /// # Errors
    /// The device failed; what is durable is not known.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the machine. Held by a descriptor: it may be renamed meanwhile.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// The folder at `path`, made when it is not there.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let changed = names_changed(path, |folder| folder.exists());
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(rustix::fs::CWD, path, flags, Mode::empty())?;
        for above in changed {
            // A parent that may not be read is not ours to make durable.
            let _ = File::open(above).and_then(|above| above.sync_all());
        }
        Ok(Folder(folder))
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?))
    }
}

/// The folders that get a name when `path` is made, from the deepest that `is_there` down: without a sync of each a cut
/// of the power takes all that is below. Of a path that is there its own parent, because who made it may not have
/// made its name durable.
fn names_changed(path: &Path, is_there: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let mut changed = Vec::new();
    for made in path.ancestors() {
        let Some(above) = made.parent() else { break };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        changed.push(above);
        if is_there(made) || is_there(above) {
            break;
        }
    }
    changed.reverse();
    changed
}

impl Files for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            // A name that is no text is none of ours.
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(self.file(name, OFlags::empty())?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(self.file(name, OFlags::CREATE | OFlags::TRUNC)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        let file = self.file(LOCK_NAME, OFlags::CREATE)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn boot(&self) -> u64 {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    }

    fn random(&self) -> u64 {
        // Keyed by the operating system's randomness.
        RandomState::new().build_hasher().finish()
    }
}

impl OpenFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match FileExt::read_at(self, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        match fallocate(&*self, FallocateFlags::empty(), 0, bytes) {
            // Not every file system can; there a write may still find it full.
            Err(Errno::OPNOTSUPP) => self.set_len(bytes),
            done => Ok(done?),
        }
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(fdatasync(&*self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_that_gets_a_name_is_synced() {
        for (path, there, changed) in [
            ("data", "", vec!["."]),
            ("data", "data", vec!["."]),
            ("a/b/c", "", vec![".", "a", "a/b"]),
            ("a/b/c", "a", vec!["a", "a/b"]),
            ("a/b/c", "a/b/c", vec!["a/b"]),
            ("/a/b/", "", vec!["/", "/a"]),
            ("/a/b", "/a/b", vec!["/a"]),
            ("./a", "", vec!["."]),
            ("/", "/", vec![]),
        ] {
            let is_there = |folder: &Path| {
                [".", "/"].map(Path::new).contains(&folder) || Path::new(there).starts_with(folder)
            };
            let changed: Vec<&Path> = changed.into_iter().map(Path::new).collect();
            assert_eq!(
                names_changed(Path::new(path), is_there),
                changed,
                "{path}, {there} is there"
            );
        }
    }
}
