//! Listings as `nm` prints them: `address [size] letter name`, one function a line.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::Module;
use crate::event::FunctionKey;

/// Most bytes of a listing, unpacked.
const BYTES_MAX: u64 = 1 << 30;
/// A program begins at a page.
const PAGE: u64 = 4096;

/// Where the program of a listing lay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListingPlace {
    /// Where the trace says that the module with this file name is (`dpdk-testpmd`).
    Module(String),
    /// This much is to be added to the addresses of the listing; 0 for a program that is not position independent.
    Bias(u64),
    /// Where these addresses, which must be first addresses of functions, fit; for traces without statedump.
    Fit(Vec<FunctionKey>),
}

/// Why a listing is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// The file system returned an error.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The listing.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// It holds no functions.
    #[error(
        "{path} names no function in {lines} lines; give the output of `nm PROGRAM`, plain or gzip"
    )]
    Empty {
        /// The listing.
        path: PathBuf,
        /// Lines read.
        lines: u64,
    },
    /// The addresses fit nowhere, or in several places.
    #[error(
        "{fitting} of {addresses} addresses fit {path} at best; it is of another build, or the place must be given"
    )]
    NoFit {
        /// The listing.
        path: PathBuf,
        /// Addresses that are functions of the listing at the best place.
        fitting: usize,
        /// Addresses given.
        addresses: usize,
    },
}

#[derive(Debug)]
pub(super) struct Listing {
    /// Address, size (0 if not given), name; by address.
    symbols: Vec<(u64, u64, String)>,
    place: AddressBase,
}

#[derive(Debug)]
enum AddressBase {
    Module(String),
    Bias(u64),
}

impl Listing {
    pub(super) fn read(path: &Path, place: &ListingPlace) -> Result<Self, ListingError> {
        let io = |source| ListingError::Io { path: path.into(), source };
        Self::read_from(BufReader::new(File::open(path).map_err(io)?), path, place)
    }

    /// The same of any input; `path` is what it is called.
    pub(super) fn read_from(
        mut input: impl BufRead,
        path: &Path,
        place: &ListingPlace,
    ) -> Result<Self, ListingError> {
        let io = |source| ListingError::Io { path: path.into(), source };
        let packed = input.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]);
        let plain: Box<dyn Read + '_> = if packed {
            Box::new(flate2::bufread::MultiGzDecoder::new(input))
        } else {
            Box::new(input)
        };
        let mut symbols = Vec::new();
        let mut lines = 0;
        for line in BufReader::new(plain.take(BYTES_MAX)).split(b'\n') {
            lines += 1;
            symbols.extend(symbol(&String::from_utf8_lossy(&line.map_err(io)?)));
        }
        if symbols.is_empty() {
            return Err(ListingError::Empty { path: path.into(), lines });
        }
        // Of several names of one address the first of the alphabet, so that the choice does not depend on nm's order.
        symbols.sort();
        symbols.dedup_by_key(|(address, ..)| *address);
        let place = match place {
            ListingPlace::Module(name) => AddressBase::Module(name.clone()),
            ListingPlace::Bias(bias) => AddressBase::Bias(*bias),
            ListingPlace::Fit(keys) => AddressBase::Bias(fit(path, &symbols, keys)?),
        };
        Ok(Self { symbols, place })
    }

    /// Addresses and sizes, ascending.
    pub(super) fn extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.symbols.iter().map(|&(address, size, _)| (address, size))
    }

    pub(super) fn functions(&self) -> usize {
        self.symbols.len()
    }

    /// Name and module of the function that contains `address`.
    pub(super) fn find(&self, address: u64, modules: &[Module]) -> Option<(String, String)> {
        let (inside, module) = match &self.place {
            AddressBase::Bias(bias) => (address.checked_sub(*bias)?, String::new()),
            AddressBase::Module(name) => {
                let mut latest = modules.iter().rev();
                let module =
                    latest.find(|module| module.contains(address) && module.name() == *name)?;
                let bias = if module.position_independent { module.base } else { 0 };
                (address - bias, name.clone())
            }
        };
        let behind = self.symbols.partition_point(|(start, ..)| *start <= inside);
        let (start, size, name) = self.symbols.get(behind.checked_sub(1)?)?;
        // Without a size a function ends where the next begins; the last one has no end and is found by its start only.
        let last = behind == self.symbols.len();
        let within = if *size > 0 { inside - start < *size } else { !last || inside == *start };
        within.then(|| (name.clone(), module))
    }
}

fn symbol(line: &str) -> Option<(u64, u64, String)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let second = words.next()?;
    let (size, letter) = match second.len() {
        1 => (0, second),
        _ => (u64::from_str_radix(second, 16).ok()?, words.next()?),
    };
    let code = ["t", "T", "w", "W", "i", "u"].contains(&letter);
    let name = words.next()?;
    code.then(|| (address, size, name.to_owned()))
}

fn fit(
    path: &Path,
    symbols: &[(u64, u64, String)],
    keys: &[FunctionKey],
) -> Result<u64, ListingError> {
    let starts: HashSet<u64> = symbols.iter().map(|(start, ..)| *start).collect();
    let fitting =
        |bias: u64| keys.iter().filter(|key| starts.contains(&key.0.wrapping_sub(bias))).count();
    let mut best = (0, 0);
    let mut rivals = 0;
    if let Some(first) = keys.first() {
        for (start, ..) in symbols {
            let Some(bias) = first.0.checked_sub(*start).filter(|bias| bias % PAGE == 0) else {
                continue;
            };
            let count = fitting(bias);
            if count > best.0 {
                best = (count, bias);
                rivals = 0;
            } else if count == best.0 {
                rivals += 1;
            }
        }
    }
    if best.0 * 10 < keys.len() * 9 || best.0 == 0 || rivals > 0 {
        return Err(ListingError::NoFit {
            path: path.into(),
            fitting: best.0,
            addresses: keys.len(),
        });
    }
    Ok(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nm_are_read_with_and_without_size() {
        assert_eq!(symbol("0000000000083000 t _init"), Some((0x83000, 0, "_init".into())));
        assert_eq!(
            symbol("0000000000083000 0000000000000010 T f"),
            Some((0x83000, 16, "f".into()))
        );
        assert_eq!(symbol("                 U malloc"), None);
        assert_eq!(symbol("0000000000083000 d data"), None);
        assert_eq!(symbol("nonsense"), None);
    }

    #[test]
    fn addresses_find_their_place_or_are_refused() {
        let symbols: Vec<(u64, u64, String)> =
            [0x1000, 0x1230, 0x2560].map(|start| (start, 0, format!("f{start:x}"))).into();
        let keys = |bias: u64| [0x1230, 0x2560, 0x1000].map(|start| FunctionKey(start + bias));
        assert_eq!(fit(Path::new("x"), &symbols, &keys(0x5_6000)).ok(), Some(0x5_6000));
        assert!(fit(Path::new("x"), &symbols, &keys(0x5_6001)).is_err());
        assert!(fit(Path::new("x"), &symbols, &[]).is_err());
    }
}
