//! Files that have their name only when they are whole.
//!
//! What is written is `<name>.partial` until it is committed. What is there already is never written into: a file of
//! that name may be what another run writes, or reads. A device or a pipe has no partial name, and a symbolic link
//! stays one: renaming over either would replace it, `/dev/null` of a whole host included.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Partial files that runs on one name may leave or have at a time.
const PARTIAL_FILES_MAX: usize = 100;
/// Symbolic links on the way to a file; what the kernel bears itself.
const LINKS_MAX: usize = 40;

/// The name a file has until it is whole. The file is removed when this is dropped before.
#[derive(Debug)]
pub struct PartialName {
    now: PathBuf,
    then: PathBuf,
    is_kept: bool,
}

impl PartialName {
    /// Creates what becomes `path`: `<path>.partial`, or `<path>.1.partial` and so on beside others. A device or a pipe
    /// of that name is opened, and has no partial name.
    ///
    /// # Errors
    /// The system's, if the file cannot be created, and [`io::ErrorKind::AlreadyExists`] beside a hundred others.
    pub fn create(path: &Path) -> io::Result<(File, Option<PartialName>)> {
        let then = behind_links(path);
        let Some(file) = then.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
        };
        match fs::metadata(&then) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                return Ok((File::options().write(true).open(&then)?, None));
            }
            _ => {}
        }
        let mut refusal = None;
        for number in 0..PARTIAL_FILES_MAX {
            let mut name = file.to_owned();
            if number > 0 {
                name.push(format!(".{number}"));
            }
            name.push(".partial");
            let now = then.with_file_name(name);
            match File::create_new(&now) {
                Ok(file) => return Ok((file, Some(PartialName { now, then, is_kept: false }))),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
    }

    /// The name that the file has now.
    pub fn path(&self) -> &Path {
        &self.now
    }

    /// Gives the file its name, in place of a file that has it.
    ///
    /// # Errors
    /// The system's, if it cannot be renamed; it is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        fs::rename(&self.now, &self.then)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for PartialName {
    fn drop(&mut self) {
        if !self.is_kept {
            // No caller can act on a failure here, and the name states that the file is not whole.
            fs::remove_file(&self.now).ok();
        }
    }
}

/// The file that symbolic links lead to, whether it is there or not.
fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        // A process's own descriptors look like links, to names that may be none.
        let Ok(target) = fs::read_link(&path) else { break };
        if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            break;
        }
        path = match path.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    path
}

/// A file under a [`PartialName`] until it is committed, with a buffer; removed when dropped before that.
#[derive(Debug)]
pub struct PartialFile {
    file: BufWriter<File>,
    name: Option<PartialName>,
    path: PathBuf,
}

impl PartialFile {
    /// Begins `path`, as [`PartialName::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(path: impl AsRef<Path>) -> io::Result<PartialFile> {
        let path = path.as_ref().to_owned();
        let (file, name) = PartialName::create(&path)?;
        Ok(PartialFile { file: BufWriter::new(file), name, path })
    }

    /// The name that it gets, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name that it has now, if that is another.
    pub fn partial_path(&self) -> Option<&Path> {
        self.name.as_ref().map(PartialName::path)
    }

    /// Flushes, and gives the file its name.
    ///
    /// # Errors
    /// When flushing or renaming fails; the partial file is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.name.take().map_or(Ok(()), PartialName::commit)
    }

    /// Puts the file's name into an error that travels through `io::Write`.
    fn named(&self, error: io::Error) -> io::Error {
        let path = self.partial_path().unwrap_or(&self.path);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.named(error))
    }
}
