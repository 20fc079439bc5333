//! Files that have their name only when they are complete.

use laneway_terminal::Failure;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file under construction, named `OUT.partial`; removed when it is dropped unfinished.
pub(super) struct Output {
    path: PathBuf,
    file: BufWriter<File>,
    is_finished: bool,
}

impl Output {
    /// Begins `path`.
    pub(super) fn create(path: &Path) -> io::Result<Output> {
        let file = File::create(partial(path))?;
        Ok(Output { path: path.to_owned(), file: BufWriter::new(file), is_finished: false })
    }

    /// Gives the file its name.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        fs::rename(partial(&self.path), &self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_finished {
            // The reason why it is unfinished is reported already.
            let _ = fs::remove_file(partial(&self.path));
        }
    }
}

fn partial(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".partial");
    PathBuf::from(name)
}

/// Writes the whole of a file.
pub(super) fn write(
    path: &Path,
    write: impl FnOnce(&mut Output) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = Output::create(path).and_then(|mut output| {
        write(&mut output)?;
        output.finish()
    });
    written.map_err(|error| failure(path, &error))
}

/// Makes a folder for several files.
pub(super) fn folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| failure(path, &error))
}

/// What a failed output means for the program.
pub(super) fn failure(path: &Path, error: &io::Error) -> Failure {
    let try_this = match error.kind() {
        io::ErrorKind::NotFound => "create the folder first",
        io::ErrorKind::PermissionDenied => "name a place that you may write to",
        io::ErrorKind::StorageFull => "free some room or name another place",
        _ => "name another place",
    };
    Failure::input(format!("cannot write {}: {error}; {try_this}", path.display()))
}

/// Refuses an output that would replace what it is made from.
pub(super) fn keep(trace: &Path, output: &Path) -> Result<(), Failure> {
    let same = match (trace.canonicalize(), output.canonicalize()) {
        (Ok(trace), Ok(output)) => trace == output,
        _ => false,
    };
    if same {
        return Err(Failure::input(format!(
            "{} would replace the trace; name another place",
            output.display()
        )));
    }
    Ok(())
}
