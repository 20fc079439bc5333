//! Files that tests read: the tree's own captures, and captures and traces from elsewhere where the environment names
//! them.
//!
//! `LANEWAY_CAPTURES` names a folder of captures, searched with all folders in it; `LANEWAY_TRACES` one of recorded
//! traces. A relative name starts at the tree's root, where `make test` runs. Without the variable a test says
//! so and goes on with what the tree holds. A variable that names no such folder, or one that holds nothing, is
//! a mistake to mend: the test fails, or it would pass for having read nothing.

use crate::skip;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Names the folder of captures.
const CAPTURES: &str = "LANEWAY_CAPTURES";
/// Names the folder of recorded traces.
const TRACES: &str = "LANEWAY_TRACES";

/// A capture file: pcap or pcapng, perhaps compressed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaptureFile {
    /// Its path from the tree's root, or from the folder that `LANEWAY_CAPTURES` names.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// The root of the source tree.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two folders below the root")
}

/// The captures that the tree holds, by name. Never empty.
pub fn shipped_captures() -> Vec<CaptureFile> {
    let found = captures_in(&root().join("scenarios/captures"), root());
    found.unwrap_or_else(|why| panic!("{why}"))
}

/// The captures of the folder that `LANEWAY_CAPTURES` names, by name. Empty without the variable, which is reported.
///
/// # Panics
/// If the variable names no folder that can be read, or one without captures.
pub fn foreign_captures() -> Vec<CaptureFile> {
    let found = match folder(CAPTURES, env::var_os(CAPTURES), root()) {
        Ok(Some(folder)) => captures_in(&folder, &folder),
        Ok(None) => {
            skip(format!("captures from elsewhere: {CAPTURES} names no folder of them"));
            Ok(Vec::new())
        }
        Err(why) => Err(why),
    };
    found.unwrap_or_else(|why| panic!("{why}"))
}

/// The captures that the tree holds, then those of [`foreign_captures`].
///
/// # Panics
/// As [`foreign_captures`].
pub fn captures() -> Vec<CaptureFile> {
    [shipped_captures(), foreign_captures()].concat()
}

/// The file of this name in the folder that `LANEWAY_TRACES` names; `None`, which is reported, without the variable.
///
/// # Panics
/// If the variable names no folder, or one without this file.
pub fn trace_file(name: &str) -> Option<PathBuf> {
    let folder = folder(TRACES, env::var_os(TRACES), root()).unwrap_or_else(|why| panic!("{why}"));
    let Some(folder) = folder else {
        skip(format!("trace {name}: {TRACES} names no folder of recorded traces"));
        return None;
    };
    let file = folder.join(name);
    assert!(file.is_file(), "{TRACES} names {}, which holds no {name}", folder.display());
    Some(file)
}

/// The folder that an environment variable of this value names, if it names one. Nothing is no name.
fn folder(variable: &str, value: Option<OsString>, from: &Path) -> Result<Option<PathBuf>, String> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let folder = from.join(value);
    match folder.is_dir() {
        true => Ok(Some(folder)),
        false => Err(format!(
            "{variable} names {}, which is no folder: name one, or unset it",
            folder.display()
        )),
    }
}

/// The captures in `folder` and the folders in it, named from `base`, by name.
fn captures_in(folder: &Path, base: &Path) -> Result<Vec<CaptureFile>, String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let unreadable = |why| format!("cannot list {}: {why}", folder.display());
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = entry.path();
            // A link to a folder could lead around in a circle.
            if entry.file_type().map_err(unreadable)?.is_dir() {
                folders.push(path);
            } else if entry.file_name().to_string_lossy().contains(".pcap") && path.is_file() {
                let name = path.strip_prefix(base).unwrap_or(&path).display().to_string();
                found.push(CaptureFile { name, path });
            }
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(format!("{} holds no file that is named .pcap or .pcapng", folder.display())),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own, removed at the end.
    struct Temporary(PathBuf);

    impl Drop for Temporary {
        fn drop(&mut self) {
            // Nothing is left to do about a folder that cannot be removed.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn temporary(test: &str) -> Temporary {
        let path = env::temp_dir().join(format!("laneway-files-{test}-{}", std::process::id()));
        fs::create_dir(&path).expect("the folder for temporary files can be written");
        Temporary(path)
    }

    #[test]
    fn the_root_holds_the_tree() {
        assert!(root().join("Cargo.lock").is_file(), "{}", root().display());
    }

    #[test]
    fn the_shipped_captures_are_named_from_the_root_in_order() {
        let names: Vec<String> = shipped_captures().into_iter().map(|file| file.name).collect();
        assert!(names.iter().any(|name| name == "scenarios/captures/tiny.pcap"), "{names:?}");
        assert!(names.is_sorted());
    }

    #[test]
    fn captures_are_found_in_folders_in_folders_and_nothing_else_is() {
        let here = temporary("found");
        fs::create_dir_all(here.0.join("b/c.pcap.d")).expect("it is ours");
        for name in ["z.pcap", "b/c.pcap.d/a.pcapng.zst", "b/notes", "b/y.pcap.gz"] {
            fs::write(here.0.join(name), name).expect("it is ours");
        }
        std::os::unix::fs::symlink(&here.0, here.0.join("b/around.pcap")).expect("it is ours");
        let found = captures_in(&here.0, &here.0).expect("it holds captures");
        let names: Vec<&str> = found.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["b/c.pcap.d/a.pcapng.zst", "b/y.pcap.gz", "z.pcap"]);
        assert!(found.iter().all(|file| file.path == here.0.join(&file.name)));
    }

    #[test]
    fn a_variable_that_names_no_folder_is_a_mistake_and_none_is_a_skip() {
        let here = temporary("mistakes");
        fs::write(here.0.join("file"), "").expect("it is ours");
        let folder = |value: Option<&str>| folder("CAPS", value.map(OsString::from), &here.0);
        assert_eq!(folder(None), Ok(None));
        assert_eq!(folder(Some("")), Ok(None));
        assert_eq!(folder(Some(".")), Ok(Some(here.0.join("."))), "from the root");
        let absolute = here.0.to_str().expect("it is text");
        assert_eq!(folder(Some(absolute)), Ok(Some(here.0.clone())));
        for gone in ["gone", "file"] {
            let why = folder(Some(gone)).expect_err("it is no folder");
            let path = here.0.join(gone).display().to_string();
            assert!(why.starts_with("CAPS names ") && why.contains(&path), "{why}");
        }
        let why = captures_in(&here.0, &here.0).expect_err("it holds none");
        assert!(why.contains("holds no file"), "{why}");
    }
}
