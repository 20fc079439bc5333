//! Symbols and debug information of ELF files, found by build id.
//!
//! Looked for on this machine only: the file where it was when traced, and `/usr/lib/debug/.build-id`. A file with another
//! build id is another program and is not used. Files are read, not trusted: what cannot be parsed has no symbols.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

use super::Function;

/// Largest file that is looked into.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// How much of a file is read at once, bytes.
const PIECE_BYTES: u64 = 64 << 10;
/// Deepest inlining that is reported.
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
    // Most of such a file is debug information, which is not read here.
    symbols_of(&ReadCache::new(Window::of(file)), Some(build_id))
}

/// A file that is read in pieces around where it is asked, because names are asked for one by one.
struct Window {
    file: File,
    at: u64,
    piece_at: u64,
    piece: Vec<u8>,
}

impl Window {
    fn of(file: File) -> Self {
        Self { file, at: 0, piece_at: 0, piece: Vec::new() }
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // From the end only the file itself knows.
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
            SeekFrom::End(_) => self.file.seek(to)?,
        };
        Ok(self.at)
    }
}

impl Read for Window {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let is_inside = |at: u64| {
            at.checked_sub(self.piece_at).is_some_and(|inside| inside < self.piece.len() as u64)
        };
        if !is_inside(self.at) {
            self.piece.clear();
            self.piece_at = self.at - self.at % PIECE_BYTES;
            self.file.seek(SeekFrom::Start(self.piece_at))?;
            self.file.by_ref().take(PIECE_BYTES).read_to_end(&mut self.piece)?;
        }
        let inside = usize::try_from(self.at - self.piece_at).unwrap_or(usize::MAX);
        let read = Read::read(&mut self.piece.get(inside..).unwrap_or_default(), to)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The same of any data; without `build_id`, whatever its own is.
#[expect(clippy::type_complexity, reason = "rows of a table and one number")]
pub(super) fn symbols_of<'a>(
    data: impl ReadRef<'a>,
    build_id: Option<&[u8]>,
) -> Option<(Vec<(u64, u64, String)>, u64)> {
    let elf = object::File::parse(data).ok()?;
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
    use crate::testing::Folder;
    use object::ObjectSection;

    #[test]
    fn a_file_in_pieces_has_the_symbols_of_its_bytes() {
        let path = std::env::current_exe().expect("a test is a program");
        let bytes = std::fs::read(&path).expect("that can be read");
        let mut window = Window::of(File::open(&path).expect("that can be opened"));
        let whole = symbols_of(bytes.as_slice(), None).expect("an ELF file");
        assert_eq!(symbols_of(&ReadCache::new(&mut window), None), Some(whole));
        // Across a piece's end, at the file's end and behind it.
        let len = bytes.len() as u64;
        for at in [0, PIECE_BYTES - 3, PIECE_BYTES, 5, len - 2, len, len + PIECE_BYTES] {
            let (mut read, from) = (Vec::new(), at.min(len) as usize);
            window.seek(SeekFrom::Start(at)).expect("it only notes the place");
            window.by_ref().take(9).read_to_end(&mut read).expect("that can be read");
            assert_eq!(read, bytes[from..(from + 9).min(bytes.len())], "{at}");
        }
    }

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

    /// A program of a few functions, one inlined, with debug information.
    const PROGRAM: &str =
        "static inline __attribute__((always_inline)) int twice(int n) { volatile int m = n; return m + n; }
struct pair { int a, b; };
int work(struct pair *p) { for (int i = 0; i < p->b; i++) p->a += twice(i) ^ p->b; return p->a; }
int main(int n, char **v) { struct pair p = { n, v[0][0] }; return work(&p); }
";

    #[test]
    fn damaged_debug_information_misleads_but_never_panics() {
        let folder = Folder::new();
        let (source, program) = (folder.write("a.c", PROGRAM.as_bytes()), folder.path().join("a"));
        let mut cc = std::process::Command::new("cc");
        cc.args(["-g", "-O1", "-fno-inline-functions", "-Wl,--build-id", "-o"])
            .args([&program, &source]);
        if !cc.status().is_ok_and(|status| status.success()) {
            return println!("skipped: no cc");
        }
        let whole = std::fs::read(&program).expect("just made");
        let elf = object::File::parse(whole.as_slice()).expect("an ELF file");
        let id = elf.build_id().ok().flatten().expect("asked for").to_owned();
        let debug: Vec<std::ops::Range<usize>> = elf
            .sections()
            .filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug")))
            .filter_map(|section| section.file_range())
            .map(|(at, bytes)| at as usize..(at + bytes) as usize)
            .collect();
        let (symbols, first) = symbols_of(whole.as_slice(), None).expect("an ELF file");
        let work = symbols.iter().find(|symbol| symbol.2 == "work").expect("not stripped");
        let inside: Vec<u64> = (work.0..work.0 + work.1).map(|address| address - first).collect();
        let tell = |image: &Image| -> Vec<Function> {
            inside.iter().filter_map(|&at| image.function(at, true)).collect()
        };
        let functions = tell(&Image::find(&program, &id).expect("its own build id"));
        assert!(
            functions.iter().any(|function| function.inlined == ["twice"]),
            "{:?}",
            functions[0]
        );
        let mut random = laneway_testkit::Random::seeded(7);
        let mut below = |n: usize| random.index(n);
        let mut misled = 0;
        for _ in 0..2_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + below(8) {
                let section = &debug[below(debug.len())];
                let at = section.start + below(section.len());
                bytes[at] = [0, 0xff, 0x80, below(256) as u8][below(4)];
            }
            folder.write("a", &bytes);
            let image = Image::find(&program, &id).expect("its symbols are whole");
            misled += u32::from(tell(&image) != functions);
        }
        assert!(misled > 100, "the damage is looked at: {misled}");
    }
}
