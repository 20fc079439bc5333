//! The maps of a loaded object, by name.
//!
//! Reads in batches where the kernel can (hash and array maps, per-CPU or not), entry by entry
//! where it cannot.

use crate::{BpfError, inner::Inner, load};
use laneway_core::{KernelMaps, LaneError, MapValue};
use libbpf_rs::{
    Map, MapCore, MapHandle, MapType, Object, ProgramAttachType,
    libbpf_sys::{
        bpf_map_batch_opts, bpf_map_delete_elem, bpf_map_get_info_by_fd, bpf_map_get_next_key,
        bpf_map_info, bpf_map_lookup_batch, bpf_map_lookup_elem, bpf_map_update_elem,
    },
};
use std::{
    borrow::Cow,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr, thread,
    time::Duration,
};

/// Entries read by one call to begin with; doubled when a bucket of the kernel's holds more.
const BATCH_ENTRIES: u32 = 256;
/// How often a write is tried again for want of memory, and how long apart.
const TRIES_MAX: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// The kernel's own "not supported", which has no name in libc.
const ENOTSUPP: i32 = 524;
/// A kernel half runs on no other lane, so its maps speak in its name.
pub(crate) const LANE: &str = "xdp";

/// The maps (and programs) of a loaded object.
pub struct Maps {
    object: Object,
    name: String,
    cpus: usize,
    inners: Vec<Inner>,
}

impl Maps {
    /// `inners` are the shapes of the maps in the object's maps of maps.
    pub(crate) fn new(name: &str, object: Object, inners: Vec<Inner>) -> Result<Self, BpfError> {
        Ok(Maps { object, name: name.to_owned(), cpus: load::possible_cpus()?, inners })
    }

    /// The map's descriptor, for system calls that this crate does not offer.
    pub fn fd(&self, map: &str) -> Option<BorrowedFd<'_>> {
        let raw = self.find(map)?.as_fd().as_raw_fd();
        // SAFETY: the descriptor belongs to `self.object` and is open as long as `self`.
        Some(unsafe { BorrowedFd::borrow_raw(raw) })
    }

    /// The kernel's number of a map, by which tracepoints name it.
    ///
    /// # Errors
    /// [`BpfError::Object`] when there is no such map; [`BpfError::Os`] when the kernel does not tell.
    pub fn id(&self, map: &str) -> Result<u32, BpfError> {
        let shape = self.shape(map)?;
        let mut info = bpf_map_info::default();
        let mut info_bytes = size_of::<bpf_map_info>() as u32;
        // SAFETY: `info` is as long as `info_bytes` says, and has no pointers.
        let code = unsafe {
            bpf_map_get_info_by_fd(shape.fd.as_raw_fd(), &raw mut info, &raw mut info_bytes)
        };
        BpfError::check(code, || format!("ask the kernel about map `{map}`"))?;
        Ok(info.id)
    }

    /// The descriptor of a program of the object.
    pub fn program(&self, program: &str) -> Option<BorrowedFd<'_>> {
        let raw = self.object.progs().find(|p| p.name() == program)?.as_fd().as_raw_fd();
        // SAFETY: as in `fd`.
        Some(unsafe { BorrowedFd::borrow_raw(raw) })
    }

    /// How many values an entry of a per-CPU map has: the possible CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Adds up the `u64` words of every entry of a per-CPU map over all CPUs: for each entry, in
    /// the map's order, as many sums as its value has words.
    ///
    /// # Errors
    /// As for [`KernelMaps::visit`].
    pub fn per_cpu_sums(&self, map: &str) -> Result<Vec<u64>, LaneError> {
        let words = self.shape(map).map_err(|e| e.in_lane(LANE))?.value_bytes / 8 / self.cpus;
        let mut sums = Vec::new();
        self.visit(map, &mut |_, values| sums.extend(sum_per_cpu(values, words)))?;
        Ok(sums)
    }

    /// [`KernelMaps::set`] with this crate's own error.
    pub(crate) fn write(&self, map: &str, key: &[u8], value: &MapValue) -> Result<(), BpfError> {
        let shape = self.shape(map)?;
        match value {
            MapValue::Map(entries) => {
                let Some(inner) = self.inners.iter().find(|inner| inner.outer == map) else {
                    return Err(self.wrong(format!("map `{map}` is no map of maps")));
                };
                // The outer map keeps it.
                let new = self.fill(inner, entries)?;
                let fd = new.as_fd().as_raw_fd().to_ne_bytes();
                self.write_bytes(&shape, key, &fd)
            }
            other => self.write_bytes(&shape, key, &self.bytes(&shape, other)?),
        }
    }

    /// A new map in no other one, with these entries.
    fn fill(&self, inner: &Inner, entries: &[(Vec<u8>, MapValue)]) -> Result<MapHandle, BpfError> {
        let map = inner.create(entries.len())?;
        let shape = Shape::new(&map, map.as_fd(), &inner.outer, self.cpus);
        for (key, value) in entries {
            self.write_bytes(&shape, key, &self.bytes(&shape, value)?)?;
        }
        Ok(map)
    }

    /// A value as the kernel takes it, but for a map.
    fn bytes<'a>(&self, shape: &Shape<'_>, value: &'a MapValue) -> Result<Cow<'a, [u8]>, BpfError> {
        let wrong = |why: String| Err(self.wrong(why));
        match *value {
            MapValue::Bytes(ref bytes) => Ok(Cow::Borrowed(bytes)),
            MapValue::Map(_) => wrong(format!("maps in `{}` hold no maps", shape.name)),
            MapValue::Exit(..) if !matches!(shape.ty, MapType::Devmap | MapType::DevmapHash) => {
                wrong(format!("map `{}` is no map of devices", shape.name))
            }
            MapValue::Exit(ifindex, name) => {
                let Some(program) = self.object.progs().find(|p| p.name() == name) else {
                    return wrong(format!("it has no program `{name}`"));
                };
                if !matches!(program.attach_type(), ProgramAttachType::XdpDevmap) {
                    return wrong(format!(
                        "program `{name}` cannot run on the way out; put it into section `xdp/devmap`"
                    ));
                }
                // struct bpf_devmap_val
                let program = program.as_fd().as_raw_fd();
                Ok(Cow::Owned([ifindex.to_ne_bytes(), program.to_ne_bytes()].concat()))
            }
        }
    }

    fn write_bytes(&self, shape: &Shape<'_>, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        if key.len() != shape.key_bytes || value.len() != shape.one_value_bytes {
            return Err(self.wrong(format!(
                "map `{}` has keys of {} and values of {} bytes, and was given {} and {}",
                shape.name,
                shape.key_bytes,
                shape.one_value_bytes,
                key.len(),
                value.len()
            )));
        }
        shape.put(key, value)
    }

    fn wrong(&self, why: String) -> BpfError {
        BpfError::Object { object: self.name.clone(), why }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Map<'_>> {
        self.object.maps().find(|m| m.name() == name)
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    fn shape(&self, name: &str) -> Result<Shape<'_>, BpfError> {
        let map = self.find(name).ok_or_else(|| self.wrong(format!("it has no map `{name}`")))?;
        // SAFETY: as in `fd`.
        let fd = unsafe { BorrowedFd::borrow_raw(map.as_fd().as_raw_fd()) };
        Ok(Shape::new(&map, fd, name, self.cpus))
    }
}

impl KernelMaps for Maps {
    fn visit(&self, map: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
        let shape = self.shape(map).map_err(|e| e.in_lane(LANE))?;
        shape.walk(each).map_err(|e| e.in_lane(LANE))
    }

    fn look_up(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, LaneError> {
        let shape = self.shape(map).map_err(|e| e.in_lane(LANE))?;
        if key.len() != shape.key_bytes {
            let (want, got) = (shape.key_bytes, key.len());
            let why = format!("map `{map}` has keys of {want} bytes and was given {got}");
            return Err(self.wrong(why).in_lane(LANE));
        }
        shape.look_up(key).map_err(|code| shape.refused("read", code).in_lane(LANE))
    }

    fn remove(&self, map: &str, key: &[u8]) -> Result<(), LaneError> {
        let shape = self.shape(map).map_err(|e| e.in_lane(LANE))?;
        let refused = |why| self.wrong(why).in_lane(LANE);
        if !shape.ty.is_hash_map() {
            let why = format!("map `{map}` is no hash map, so its entries cannot be removed");
            return Err(refused(why));
        }
        if key.len() != shape.key_bytes {
            let (want, got) = (shape.key_bytes, key.len());
            return Err(refused(format!(
                "map `{map}` has keys of {want} bytes and was given {got}"
            )));
        }
        shape.remove(key).map_err(|e| e.in_lane(LANE))
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), LaneError> {
        let shape = self.shape(map).map_err(|e| e.in_lane(LANE))?;
        self.write_bytes(&shape, key, value).map_err(|e| e.in_lane(LANE))
    }

    fn set(&self, map: &str, key: &[u8], value: &MapValue) -> Result<(), LaneError> {
        self.write(map, key, value).map_err(|e| e.in_lane(LANE))
    }
}

/// Adds up per-CPU values as [`KernelMaps::visit`] hands them out: `values` is one value per CPU,
/// each of `words` native `u64`; returns the sum per word.
pub fn sum_per_cpu(values: &[u8], words: usize) -> Vec<u64> {
    let mut sums = vec![0u64; words];
    for (i, word) in values.chunks_exact(8).enumerate() {
        let word = u64::from_ne_bytes(word.try_into().expect("chunks of eight bytes"));
        sums[i % words] = sums[i % words].wrapping_add(word);
    }
    sums
}

/// A map with the lengths that its calls need.
struct Shape<'a> {
    fd: BorrowedFd<'a>,
    name: String,
    ty: MapType,
    key_bytes: usize,
    /// What the kernel reads and writes per entry: for a per-CPU map all CPUs, each padded to 8.
    value_bytes: usize,
    one_value_bytes: usize,
    entries: u32,
}

impl<'a> Shape<'a> {
    fn new(map: &impl MapCore, fd: BorrowedFd<'a>, name: &str, cpus: usize) -> Shape<'a> {
        let value_bytes = map.value_size() as usize;
        let per_cpu = map.map_type().is_percpu();
        Shape {
            fd,
            name: name.to_owned(),
            ty: map.map_type(),
            key_bytes: map.key_size() as usize,
            value_bytes: if per_cpu { value_bytes.next_multiple_of(8) * cpus } else { value_bytes },
            one_value_bytes: value_bytes,
            entries: map.max_entries(),
        }
    }

    fn walk(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), BpfError> {
        if self.key_bytes == 0 || self.value_bytes == 0 {
            return Err(self.refused("walk", libc::EINVAL));
        }
        match self.walk_in_batches(each) {
            // The type has no batch operations (before any entry was shown).
            Err(Failed { code: libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL, shown: false }) => {
                self.walk_by_entry(each)
            }
            Err(Failed { code, .. }) => Err(self.refused("read", code)),
            Ok(()) => Ok(()),
        }
    }

    fn walk_in_batches(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Failed> {
        let opts =
            bpf_map_batch_opts { sz: size_of::<bpf_map_batch_opts>() as _, ..Default::default() };
        let mut batch = BATCH_ENTRIES.min(self.entries).max(1);
        let (mut keys, mut values) = self.buffers(batch);
        // The kernel's place marker: a key, or for hash maps a bucket number of four bytes.
        let mut from = vec![0u8; self.key_bytes.max(4)];
        let mut to = from.clone();
        let (mut first, mut shown) = (true, false);
        loop {
            let mut count = batch;
            // SAFETY: keys and values have room for `batch` entries, the markers for a key or a
            // bucket number; a null marker means "from the start".
            let code = unsafe {
                bpf_map_lookup_batch(
                    self.fd.as_raw_fd(),
                    if first { ptr::null_mut() } else { from.as_mut_ptr().cast() },
                    to.as_mut_ptr().cast(),
                    keys.as_mut_ptr().cast(),
                    values.as_mut_ptr().cast(),
                    &raw mut count,
                    &raw const opts,
                )
            };
            if code == -libc::ENOSPC && batch < self.entries {
                // One bucket of the hash holds more than a batch; it comes whole or not at all.
                batch = batch.saturating_mul(2).min(self.entries);
                (keys, values) = self.buffers(batch);
                continue;
            }
            // "No such entry" marks the end, and the last entries come with it.
            if code < 0 && code != -libc::ENOENT {
                return Err(Failed { code: -code, shown });
            }
            let count = count.min(batch) as usize;
            let entries = keys.chunks_exact(self.key_bytes);
            for (key, value) in entries.zip(values.chunks_exact(self.value_bytes)).take(count) {
                each(key, value);
                shown = true;
            }
            if code < 0 {
                return Ok(());
            }
            std::mem::swap(&mut from, &mut to);
            first = false;
        }
    }

    fn walk_by_entry(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), BpfError> {
        let (mut key, mut value) = self.buffers(1);
        let mut next = key.clone();
        let mut first = true;
        // A program may add entries as fast as we walk: the bound ends the walk all the same.
        for _ in 0..u64::from(self.entries) * 2 {
            let from = if first { ptr::null() } else { key.as_ptr().cast() };
            // SAFETY: `from` is null or a key, `next` has room for a key.
            let code = unsafe {
                bpf_map_get_next_key(self.fd.as_raw_fd(), from, next.as_mut_ptr().cast())
            };
            match code {
                0.. => std::mem::swap(&mut key, &mut next),
                code if code == -libc::ENOENT => return Ok(()),
                code => return Err(self.refused("walk", -code)),
            }
            first = false;
            match self.read(&key, &mut value) {
                Ok(true) => each(&key, &value),
                // It was removed between the two calls.
                Ok(false) => {}
                Err(code) => return Err(self.refused("read", code)),
            }
        }
        Ok(())
    }

    /// The value of `key`, a key of the map's length; the code of the error.
    fn look_up(&self, key: &[u8]) -> Result<Option<Vec<u8>>, i32> {
        let (_, mut value) = self.buffers(1);
        self.read(key, &mut value).map(|is_there| is_there.then_some(value))
    }

    /// Reads the value of `key` into what [`buffers`](Self::buffers) made; false if there is none.
    fn read(&self, key: &[u8], value: &mut [u8]) -> Result<bool, i32> {
        assert!(
            key.len() == self.key_bytes && value.len() == self.value_bytes,
            "as long as the map declares"
        );
        let (fd, room) = (self.fd.as_raw_fd(), value.as_mut_ptr().cast());
        // SAFETY: `key` is a key, `value` has room for the values of all CPUs, as was just checked.
        match unsafe { bpf_map_lookup_elem(fd, key.as_ptr().cast(), room) } {
            0.. => Ok(true),
            code if code == -libc::ENOENT => Ok(false),
            code => Err(-code),
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        let padded: Vec<u8>;
        let values = if self.ty.is_percpu() {
            let one_padded = self.one_value_bytes.next_multiple_of(8);
            let mut one = value.to_vec();
            one.resize(one_padded, 0);
            padded = one.repeat(self.value_bytes / one_padded);
            &padded
        } else {
            value
        };
        let code = insist(|| {
            // SAFETY: `key` is as long as a key, `values` as the values of all CPUs; both are only
            // read. 0 is BPF_ANY: create or replace.
            unsafe {
                bpf_map_update_elem(
                    self.fd.as_raw_fd(),
                    key.as_ptr().cast(),
                    values.as_ptr().cast(),
                    0,
                )
            }
        });
        let doing = || {
            format!("write an entry of map `{}`, which has room for {}", self.name, self.entries)
        };
        BpfError::check(code, doing).map(drop)
    }

    fn remove(&self, key: &[u8]) -> Result<(), BpfError> {
        // SAFETY: `key` is as long as a key and only read.
        match unsafe { bpf_map_delete_elem(self.fd.as_raw_fd(), key.as_ptr().cast()) } {
            code if code == -libc::ENOENT => Ok(()),
            code => BpfError::check(code, || format!("remove an entry of map `{}`", self.name))
                .map(drop),
        }
    }

    fn buffers(&self, entries: u32) -> (Vec<u8>, Vec<u8>) {
        let entries = entries as usize;
        (vec![0; entries * self.key_bytes], vec![0; entries * self.value_bytes])
    }

    fn refused(&self, doing: &str, code: i32) -> BpfError {
        let source = std::io::Error::from_raw_os_error(code);
        BpfError::os(format!("{doing} map `{}`", self.name), source)
    }
}

/// A batch call that failed, and whether entries were shown before.
struct Failed {
    code: i32,
    shown: bool,
}

/// Asks again where the kernel had no memory at hand, as its own tests do (`can_retry` of test_maps.c): the elements of
/// a map that is not allocated ahead come from a small list of each CPU, which is filled again a moment later.
fn insist(mut update: impl FnMut() -> i32) -> i32 {
    for _ in 0..TRIES_MAX {
        match update() {
            code if [-libc::ENOMEM, -libc::EBUSY, -libc::EAGAIN].contains(&code) => {
                thread::sleep(TRY_AGAIN);
            }
            code => return code,
        }
    }
    update()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_finds_no_memory_is_tried_again_and_not_for_ever() {
        let mut answers = [-libc::ENOMEM, -libc::EBUSY, 0, -libc::ENOMEM].into_iter();
        assert_eq!(insist(|| answers.next().unwrap()), 0);
        assert_eq!(answers.len(), 1);
        for (code, asked) in [(-libc::ENOMEM, TRIES_MAX + 1), (-libc::E2BIG, 1)] {
            let mut tries = 0;
            let refuse = || {
                tries += 1;
                code
            };
            assert_eq!(insist(refuse), code);
            assert_eq!(tries, asked);
        }
    }

    #[test]
    fn sums_each_word_over_all_cpus() {
        let values: Vec<u8> =
            [1u64, 100, 2, 200, u64::MAX, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(sum_per_cpu(&values, 2), [2, 300]);
    }
}
