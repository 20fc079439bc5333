//! Files that have their name only when they are complete.

use laneway_capture::PartialFile;
use laneway_terminal::Failure;
use laneway_trace_read::is_part;
use std::fs;
use std::io;
use std::path::Path;

/// Writes the whole of a file.
pub(super) fn write(
    path: &Path,
    write: impl FnOnce(&mut PartialFile) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = PartialFile::create(path).and_then(|mut output| {
        write(&mut output)?;
        output.commit()
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

/// Refuses an output that would replace what it is made from: the trace, or a file of the folder that is one.
pub(super) fn keep(trace: &Path, output: &Path) -> Result<(), Failure> {
    let (Ok(trace), Ok(there)) = (trace.canonicalize(), output.canonicalize()) else {
        return Ok(());
    };
    // A trace in CTF may be named by the file that describes it.
    let whole: &Path = match trace.parent() {
        Some(folder) if trace.is_file() && trace.ends_with("metadata") => folder,
        _ => &trace,
    };
    let is_of_it = there.starts_with(whole) && there.is_file() && is_part(&there);
    if there == trace || is_of_it {
        return Err(Failure::input(format!(
            "{} would replace the trace; name another place",
            output.display()
        )));
    }
    Ok(())
}
