//! Symbols and debug information of ELF files, found by build id.
//!
//! Looked for on this machine only: the file where it was when traced, and `/usr/lib/debug/.build-id`. A file with another
//! build id is another program and is not used. Files are read, not trusted: what cannot be parsed has no symbols.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::Function;

/// Largest file that is looked into.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Deepest inlining that is told.
const INLINED_MAX: usize = 64;

/// A program or library on this machine that is the one that was traced.
pub(super) struct Image {
    /// Address, size and name of functions, by address.
    symbols: Vec<(u64, u64, String)>,
    /// First address of its first segment.
    first: u64,
    lines: Option<Mutex<addr2line::Loader>>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("symbols", &self.symbols.len()).finish_non_exhaustive()
    }
}

impl Image {
    /// The image with this build id: the file at `path`, its debug file, or both.
    pub(super) fn find(path: &Path, build_id: &[u8]) -> Option<Self> {
        let mut image = None;
        for candidate in [debug_path(build_id), Some(path.to_path_buf())].into_iter().flatten() {
            let Some((symbols, first)) = symbols(&candidate, build_id) else { continue };
            let image = image.get_or_insert(Self { symbols: Vec::new(), first, lines: None });
            if symbols.len() > image.symbols.len() {
                image.symbols = symbols;
            }
            if image.lines.is_none() {
                let loader = addr2line::Loader::new(&candidate).ok();
                image.lines = loader.map(Mutex::new);
            }
        }
        image
    }

    /// The function that contains `inside`: an offset from the base, or an address if not position independent.
    pub(super) fn function(&self, inside: u64, position_independent: bool) -> Option<Function> {
        let address = if position_independent { inside.checked_add(self.first)? } else { inside };
        let behind = self.symbols.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.symbols.get(behind.checked_sub(1)?)?;
        // Hand-written code has no size: it is found by its start.
        if address - start >= (*size).max(1) {
            return None;
        }
        let mut function = super::named(name.clone(), String::new());
        if let Some(lines) = &self.lines
            && let Ok(lines) = lines.lock()
        {
            if let Ok(Some(location)) = lines.find_location(address) {
                function.file = location.file.map(str::to_owned);
                function.line = location.line;
            }
            if let Ok(mut frames) = lines.find_frames(address) {
                let mut names = Vec::new();
                while let Ok(Some(frame)) = frames.next() {
                    let name = frame
                        .function
                        .and_then(|name| name.demangle().ok().map(std::borrow::Cow::into_owned));
                    names.extend(name);
                    if names.len() > INLINED_MAX {
                        break;
                    }
                }
                names.pop(); // the function itself
                function.inlined = names;
            }
        }
        Some(function)
    }
}

fn debug_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug").into())
}

/// Functions and first address of the ELF file at `path`, if it has this build id.
#[expect(clippy::type_complexity, reason = "rows of a table and one number")]
fn symbols(path: &Path, build_id: &[u8]) -> Option<(Vec<(u64, u64, String)>, u64)> {
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    symbols_of(&bytes, Some(build_id))
}

/// The same of a file's bytes; without `build_id`, whatever its own is.
#[expect(clippy::type_complexity, reason = "rows of a table and one number")]
pub(super) fn symbols_of(
    bytes: &[u8],
    build_id: Option<&[u8]>,
) -> Option<(Vec<(u64, u64, String)>, u64)> {
    let elf = object::File::parse(bytes).ok()?;
    let own = elf.build_id().ok()?;
    if build_id.is_some_and(|wanted| own != Some(wanted)) {
        return None;
    }
    let first = elf.segments().map(|segment| segment.address()).min().unwrap_or(0) & !4095;
    let mut rows: Vec<(u64, u64, bool, String)> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            Some((symbol.address(), symbol.size(), symbol.is_local(), name.to_owned()))
        })
        .collect();
    // Of several names of one address: the longest code, then a global one, then the first of the alphabet.
    rows.sort_by(|a, b| (a.0, b.1, a.2, &a.3).cmp(&(b.0, a.1, b.2, &b.3)));
    rows.dedup_by_key(|row| row.0);
    let rows = rows.into_iter().map(|(address, size, _, name)| (address, size, name)).collect();
    Some((rows, first))
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
mod tests {
    use super::*;

    #[test]
    fn this_very_test_program_names_its_functions_with_line() {
        let path = std::env::current_exe().expect("a test is a program");
        let bytes = std::fs::read(&path).expect("that can be read");
        let elf = object::File::parse(bytes.as_slice()).expect("an ELF file");
        let Ok(Some(id)) = elf.build_id() else {
            println!("skipped: this program was linked without a build id");
            return;
        };
        let image = Image::find(&path, id).expect("its own build id");
        let symbol = elf
            .symbols()
            .find(|symbol| {
                let name = symbol.name().unwrap_or_default();
                name.contains("this_very_test_program") && symbol.size() > 0
            })
            .expect("not stripped");
        let function =
            image.function(symbol.address() - image.first, true).expect("its own symbol");
        assert!(function.known && function.demangled.contains("this_very_test_program"));
        assert!(function.file.is_some_and(|file| file.ends_with("elf.rs")));
        assert!(function.line.is_some());
        assert!(Image::find(&path, &[1, 2, 3]).is_none(), "another build id is another program");
    }
}
