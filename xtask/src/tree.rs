//! The repository's files as one value, so that every rule can be tried on a few lines in memory.
//!
//! Holds what git would commit: tracked files and new ones that `.gitignore` does not name, as text
//! where they are text. Paths are relative to the root, with `/`. Captures and other bytes are
//! known by name only. It does not know crates (see `workspace`) and never writes.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::Trouble;
use crate::source::{Line, split};

/// Files above this size are data, whatever they contain: rules about lines do not apply.
const TEXT_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Path to text; `None` for bytes that are not text.
    files: BTreeMap<String, Option<Text>>,
}

/// A text file; split into code, comments and strings when a rule asks first, and once for all rules.
#[derive(Debug)]
struct Text {
    text: String,
    lines: OnceCell<Vec<Line>>,
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text { text, lines: OnceCell::new() }
    }
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self, Trouble> {
        let listing = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(root)
            .output()
            .map_err(|e| Trouble(format!("git ls-files did not start: {e}; install git")))?;
        if !listing.status.success() {
            return Err(Trouble(format!(
                "git ls-files failed in {}: {}; tidy needs a git checkout",
                root.display(),
                String::from_utf8_lossy(&listing.stderr).trim()
            )));
        }
        let mut files = BTreeMap::new();
        for path in listing.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let path = String::from_utf8_lossy(path).into_owned();
            let on_disk = root.join(&path);
            // A tracked file that was just deleted is still listed.
            let Ok(status) = on_disk.symlink_metadata() else { continue };
            let text = if status.is_file() && status.len() <= TEXT_BYTES_MAX {
                let bytes = std::fs::read(&on_disk)
                    .map_err(|e| Trouble(format!("cannot read {}: {e}", on_disk.display())))?;
                String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
            } else {
                None
            };
            files.insert(path, text.map(Text::from));
        }
        Ok(Self { files })
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Every text file: path and contents.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter_map(|(path, file)| Some((path.as_str(), file.as_ref()?.text.as_str())))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        Some(&self.files.get(path)?.as_ref()?.text)
    }

    /// The lines of a source file; none of what is no text.
    pub(crate) fn lines(&self, path: &str) -> &[Line] {
        let file = self.files.get(path).and_then(Option::as_ref);
        file.map_or(&[], |file| file.lines.get_or_init(|| split(&file.text)))
    }

    pub(crate) fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    pub(crate) fn has_folder(&self, path: &str) -> bool {
        path.is_empty() || self.paths().any(|file| is_below(file, path))
    }
}

/// Whether `path` lies in `folder`, at any depth.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The name after the last dot of the file name, or the file name where it has none.
pub(crate) fn kind(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
impl Tree {
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files =
            files.iter().map(|(path, text)| (path.to_string(), Some(text.to_string().into())));
        Self { files: files.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_not_its_longer_named_neighbour() {
        assert!(is_below("crates/bpf/src/lib.rs", "crates/bpf"));
        assert!(!is_below("crates/bpf-build/src/lib.rs", "crates/bpf"));
    }

    #[test]
    fn the_kind_of_a_file_without_a_dot_is_its_name() {
        assert_eq!(kind("lanes/xdp/bpf/pass.bpf.c"), "c");
        assert_eq!(kind("docs/Makefile"), "Makefile");
    }
}
