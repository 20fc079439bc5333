//! Maps of maps: what an object declares of the maps in one, and new maps of that shape.
//!
//! Readers go through the outer map for every frame, so a change of many entries is one: the new map is
//! filled before any program reads it and put in place of the former. The kernel answers that call when no
//! program runs that may have found the former map, and frees it when its last reader has gone. A second
//! table beside the first and a number that says which is in force would do the same for tables of one
//! size; this way each table is as large as it has to be, there may be any number of them, and no entry
//! is ever written or taken out where a program reads.

use crate::{BpfError, error::libbpf};
use libbpf_rs::{
    AsRawLibbpf, MapHandle, MapType, OpenObject,
    libbpf_sys::{
        bpf_map__inner_map, bpf_map__key_size, bpf_map__map_flags, bpf_map__type,
        bpf_map__value_size, bpf_map_create_opts, bpf_map_update_elem,
    },
};
use std::{
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
};

/// The shape of the maps in a map of maps.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    /// The map of maps.
    pub(crate) outer: String,
    pub(crate) ty: MapType,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    flags: u32,
}

impl Inner {
    /// Those of every map of maps of an object. Only before it is loaded: then libbpf forgets them, and
    /// the kernel does not tell.
    pub(crate) fn all(object: &OpenObject) -> Vec<Inner> {
        let shape = |map: libbpf_rs::OpenMap<'_>| {
            // SAFETY: the pointer is that of a map of `object`, which is open and not loaded. The answer
            // is null for what is no map of maps.
            let inner = unsafe { bpf_map__inner_map(map.as_libbpf_object().as_ptr()) };
            let inner = NonNull::new(inner)?.as_ptr();
            Some(Inner {
                outer: map.name().to_string_lossy().into_owned(),
                // SAFETY: libbpf's own map, part of the one above; so below.
                ty: MapType::from(unsafe { bpf_map__type(inner) }),
                // SAFETY: as above.
                key_bytes: unsafe { bpf_map__key_size(inner) },
                // SAFETY: as above.
                value_bytes: unsafe { bpf_map__value_size(inner) },
                // SAFETY: as above.
                flags: unsafe { bpf_map__map_flags(inner) },
            })
        };
        object.maps().filter_map(shape).collect()
    }

    /// A new map of this shape with room for `entries`, of which one at least.
    pub(crate) fn create(&self, entries: usize) -> Result<MapHandle, BpfError> {
        let doing = || format!("create a map of {entries} entries for map `{}`", self.outer);
        let max_entries = u32::try_from(entries.max(1)).unwrap_or(u32::MAX);
        if max_entries > crate::ENTRIES_MAX {
            let why = format!("it may have {} entries at most", crate::ENTRIES_MAX);
            return Err(BpfError::Os { doing: doing(), source: std::io::Error::other(why) });
        }
        let opts = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            map_flags: self.flags,
            ..Default::default()
        };
        let (key, value) = (self.key_bytes, self.value_bytes);
        MapHandle::create(self.ty, Some(&self.outer), key, value, max_entries, &opts)
            .map_err(|e| libbpf(doing(), &e))
    }
}

/// Waits until no program runs that may have found what was taken away before the call, by a change of a map of maps:
/// the kernel answers that behind a grace period (`maybe_wait_bpf_programs`, 5.0 and later), whatever its CPUs are.
pub(crate) fn wait_for_readers() -> Result<(), BpfError> {
    let doing = || "wait until no program runs that was there before".to_owned();
    let map = |ty, name, opts: &bpf_map_create_opts| {
        MapHandle::create(ty, Some(name), 4, 4, 1, opts).map_err(|e| libbpf(doing(), &e))
    };
    let mut opts =
        bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
    let inner = map(MapType::Array, "lw_inner", &opts)?;
    let fd = inner.as_fd().as_raw_fd();
    opts.inner_map_fd = fd as u32;
    let outer = map(MapType::ArrayOfMaps, "lw_outer", &opts)?;
    let (key, outer) = (0u32, outer.as_fd().as_raw_fd());
    // SAFETY: a map that lives, with a key and a value of four bytes each as it was made, both only read.
    let code =
        unsafe { bpf_map_update_elem(outer, (&raw const key).cast(), (&raw const fd).cast(), 0) };
    BpfError::check(code, doing).map(drop)
}
