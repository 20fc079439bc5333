//! Names for what events carry as numbers.
//!
//! Filled while a trace is read (modules of the statedump, names a reader gave numbers to) and asked afterwards. An address
//! is looked up in the symbols of the module it lies in, and only if the file on this machine is the one that was traced
//! (same build id); what cannot be named is `module+0xoffset`, or the bare address, never a guess.

mod elf;
mod listing;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use self::listing::{ListingError, ListingPlace};

use self::elf::Image;
use self::listing::Listing;
use crate::event::FunctionKey;
use crate::pairs::CallPair;

/// Most modules that are kept.
const MODULES_MAX: usize = 65_536;
/// Most names of functions, and of points, that a reader gives numbers to; those beyond are one.
const NAMES_MAX: usize = 1 << 20;
/// The name of all points beyond.
const FURTHER_POINTS: &str = "(further points)";
/// Most pools.
const POOLS_MAX: usize = 65_535;

/// What is known of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// As the linker or the producer calls it; `module+0xoffset` or `0xaddress` if unknown.
    pub name: String,
    /// As a person writes it (C++, Rust); equal to `name` for C.
    pub demangled: String,
    /// File name of the program or library without its folders; empty if unknown.
    pub module: String,
    /// Source file; `None` without debug information.
    pub file: Option<String>,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// Functions whose code was inlined at this very address, innermost first, without the function itself.
    pub inlined: Vec<String>,
    /// A symbol was found. If not, `name` is made up of module and offset.
    pub known: bool,
}

/// A program or library in the traced process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Process it was loaded in, 0 if unknown.
    pub pid: u32,
    /// Its first address there.
    pub base: u64,
    /// Bytes it takes there.
    pub bytes: u64,
    /// Where its file was.
    pub path: PathBuf,
    /// Its addresses are relative to `base`.
    pub position_independent: bool,
    /// Build id, empty if unknown.
    pub build_id: Vec<u8>,
}

impl Module {
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset < self.bytes)
    }
}

/// What a trace tells about a process besides its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessFact {
    Module { pid: u32, base: u64, bytes: u64, path: PathBuf, position_independent: bool },
    BuildId { pid: u32, base: u64, id: Vec<u8> },
    Pool { address: u64, name: String },
    Task { key: FunctionKey, name: String },
}

/// By path and build id.
type Images = HashMap<(PathBuf, Vec<u8>), Option<Arc<Image>>>;

/// Names of one trace.
#[derive(Debug, Default)]
pub struct Symbols {
    modules: Vec<Module>,
    /// Each of them, so that none is added twice, and the last one of a process at an address.
    known_modules: HashSet<(u32, u64, PathBuf)>,
    latest_modules: HashMap<(u32, u64), usize>,
    /// Events that are calls, as the user tells them.
    pub(crate) calls: Vec<CallPair>,
    points: Vec<String>,
    point_numbers: HashMap<String, u32>,
    /// Addresses of pools by their number.
    pools: Vec<u64>,
    pool_names: HashMap<u64, String>,
    /// Names that the trace itself gives to keys, and the module they are in.
    given: HashMap<u64, (String, String)>,
    numbers: HashMap<(String, String), u64>,
    listings: Vec<Listing>,
    /// Files that were looked into; `None` if they are not what was traced.
    images: Mutex<Images>,
}

impl Symbols {
    /// What is known of the function `key`. Slow (it may read debug information): ask once per function.
    pub fn function(&self, key: FunctionKey) -> Function {
        let address = key.0;
        if let Some((name, module)) = self.given.get(&address) {
            return named(name.clone(), module.clone());
        }
        // The last one reported is the one that is there now.
        let module = self.modules.iter().rev().find(|module| module.contains(address));
        for listing in &self.listings {
            if let Some((name, of)) = listing.find(address, &self.modules) {
                return named(name, of);
            }
        }
        let Some(module) = module else {
            let name = format!("{address:#x}");
            return Function { demangled: name.clone(), name, ..Function::default() };
        };
        let inside = if module.position_independent { address - module.base } else { address };
        let image = self.image(module);
        let found = image.and_then(|image| image.function(inside, module.position_independent));
        match found {
            Some(function) => Function { module: module.name(), ..function },
            None => {
                let name = format!("{}+{inside:#x}", module.name());
                Function {
                    demangled: name.clone(),
                    name,
                    module: module.name(),
                    ..Function::default()
                }
            }
        }
    }

    fn image(&self, module: &Module) -> Option<Arc<Image>> {
        if module.build_id.is_empty() {
            return None;
        }
        let key = (module.path.clone(), module.build_id.clone());
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images
            .entry(key)
            .or_insert_with(|| Image::find(&module.path, &module.build_id).map(Arc::new))
            .clone()
    }

    /// Name of a [`Kind::Point`](crate::Kind::Point): `lib.ethdev.configure`.
    pub fn point(&self, point: u32) -> Option<&str> {
        self.points.get(usize::try_from(point).ok()?).map(String::as_str)
    }

    /// Names of all points by their number.
    pub fn points(&self) -> &[String] {
        &self.points
    }

    /// Name of a pool, or its address where it was created before the trace began.
    pub fn pool(&self, pool: u16) -> Option<String> {
        let address = self.pools.get(usize::from(pool))?;
        Some(self.pool_names.get(address).cloned().unwrap_or_else(|| format!("{address:#x}")))
    }

    /// Programs and libraries, in the order in which the trace tells them.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Adds what `nm` printed (plain or `.gz`), for a program whose file is not on this machine or has no symbols. Returns
    /// how many functions it names.
    ///
    /// # Errors
    /// [`ListingError`] if the file cannot be read or names no function, or its place cannot be found.
    pub fn add_listing(
        &mut self,
        path: &Path,
        place: &ListingPlace,
    ) -> Result<usize, ListingError> {
        let listing = Listing::read(path, place)?;
        let functions = listing.functions();
        self.listings.push(listing);
        Ok(functions)
    }

    /// Tries the bytes of a listing and of an ELF file, for the fuzzer.
    pub(crate) fn try_listing(bytes: &[u8], place: &ListingPlace) -> Option<Vec<(u64, u64)>> {
        let listing = Listing::read_from(bytes, Path::new("listing"), place).ok()?;
        let found = listing.find(0x1000, &[]);
        assert!(found.is_none_or(|(name, _)| !name.is_empty()), "a function has a name");
        Some(listing.extents().collect())
    }

    /// Addresses and sizes of the functions of an ELF file in memory, for the fuzzer.
    pub(crate) fn try_elf(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
        let (symbols, _) = elf::symbols_of(bytes, None)?;
        Some(symbols.into_iter().map(|(address, size, _)| (address, size)).collect())
    }

    pub(crate) fn learn(&mut self, fact: ProcessFact) {
        match fact {
            ProcessFact::Module { pid, base, bytes, path, position_independent } => {
                if self.modules.len() < MODULES_MAX
                    && self.known_modules.insert((pid, base, path.clone()))
                {
                    let build_id = Vec::new();
                    self.latest_modules.insert((pid, base), self.modules.len());
                    self.modules.push(Module {
                        pid,
                        base,
                        bytes,
                        path,
                        position_independent,
                        build_id,
                    });
                }
            }
            ProcessFact::BuildId { pid, base, id } => {
                let latest = self.latest_modules.get(&(pid, base)).copied();
                if let Some(module) = latest.and_then(|at| self.modules.get_mut(at)) {
                    module.build_id = id;
                }
            }
            ProcessFact::Pool { address, name } => {
                if self.pool_names.len() < POOLS_MAX {
                    self.pool_names.insert(address, name);
                }
            }
            ProcessFact::Task { key, name } => self.name_function(key, &name),
        }
    }

    pub(crate) fn number_point(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.point_numbers.get(name) {
            return number;
        }
        let name = if self.points.len() < NAMES_MAX { name } else { FURTHER_POINTS };
        let next = u32::try_from(self.points.len()).unwrap_or(u32::MAX);
        *self.point_numbers.entry(name.to_owned()).or_insert_with(|| {
            self.points.push(name.to_owned());
            next
        })
    }

    pub(crate) fn name_pool(&mut self, pool: u16, address: u64) {
        if usize::from(pool) == self.pools.len() {
            self.pools.push(address);
        }
    }

    /// The key of a function that the trace knows by its name only.
    pub(crate) fn number_function(&mut self, name: &str, module: &str) -> FunctionKey {
        let pair = (name.to_owned(), module.to_owned());
        if let Some(&number) = self.numbers.get(&pair) {
            return FunctionKey(number);
        }
        if self.numbers.len() >= NAMES_MAX {
            self.given.entry(u64::MAX).or_insert_with(|| ("(further names)".into(), String::new()));
            return FunctionKey(u64::MAX);
        }
        let number = self.numbers.len() as u64;
        self.numbers.insert(pair.clone(), number);
        self.given.insert(number, pair);
        FunctionKey(number)
    }

    /// The trace itself names this address.
    pub(crate) fn name_function(&mut self, key: FunctionKey, name: &str) {
        if self.given.len() < NAMES_MAX && !self.given.contains_key(&key.0) {
            self.given.insert(key.0, (name.to_owned(), String::new()));
        }
    }
}

fn named(name: String, module: String) -> Function {
    let demangled = addr2line::demangle_auto(name.as_str().into(), None).into_owned();
    Function { name, demangled, module, known: true, ..Function::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_beyond_the_limit_are_one() {
        let mut symbols = Symbols::default();
        for name in 0..NAMES_MAX {
            symbols.number_function(&name.to_string(), "");
        }
        let further = ["a", "b"].map(|name| symbols.number_function(name, ""));
        assert_eq!(further, [FunctionKey(u64::MAX); 2]);
        assert_eq!(symbols.function(further[0]).name, "(further names)");
        let known = symbols.number_function("7", "");
        assert_eq!(known, FunctionKey(7), "what is known keeps its key");
    }

    #[test]
    fn points_beyond_the_limit_are_one() {
        let mut symbols = Symbols::default();
        for name in 0..NAMES_MAX {
            symbols.number_point(&name.to_string());
        }
        let further = ["a", "b", "a"].map(|name| symbols.number_point(name));
        assert_eq!(further, [NAMES_MAX as u32; 3]);
        assert_eq!(symbols.point(further[0]), Some("(further points)"));
        assert_eq!(symbols.points().len(), NAMES_MAX + 1);
        assert_eq!(symbols.number_point("7"), 7, "what is known keeps its number");
    }
}
