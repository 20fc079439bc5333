//! Opening an object, setting what the half wants set, loading it.
//!
//! Order matters and is fixed here: constants and sizes before the load (so that the verifier
//! removes what is switched off), rings into the array of maps and map entries after it, all
//! before the caller can attach the program.

use crate::{BpfError, Maps, Rings, error::libbpf, inner::Inner, messages, signals::Undisturbed};
use laneway_core::{ConfigValue, KernelHalf, RecordStream};
use libbpf_rs::{
    AsRawLibbpf, Btf, ErrorKind, MapCore, MapFlags, MapHandle, MapType, ObjectBuilder, OpenObject,
    Program, ProgramAttachType,
    btf::types::{DataSec, Var},
    libbpf_sys::{BPF_F_MMAPABLE, bpf_program__set_log_buf},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

/// The most entries a half may ask for in one map; the kernel's memory is preallocated.
pub const ENTRIES_MAX: u32 = 1 << 24;

/// Bytes of verifier log that are kept; the kernel keeps the end of a longer one.
const LOG_BYTES: usize = 256 << 10;
/// Lines of verifier log in an error; the last ones say what is wrong.
const LOG_LINES: usize = 12;

/// A loaded kernel half. Pinned to nothing: maps and program end with this value (the program
/// stays as long as an [`XdpLink`](crate::XdpLink) has it attached).
pub struct Loaded {
    rings: Option<Rings>,
    maps: Maps,
    program: &'static str,
}

impl Loaded {
    /// Loads `half`: constants set, maps resized, rings made, entries written. The half's program is
    /// loaded for an interface, the object's others for what their sections say (`xdp/devmap`).
    ///
    /// # Errors
    /// [`BpfError::Object`] when a program, map or constant is missing or has another size than
    /// the half says; [`BpfError::Verifier`] with the end of the log; [`BpfError::NotPermitted`],
    /// [`BpfError::NoBtf`], [`BpfError::NoMemory`] as named.
    pub fn load(half: &KernelHalf) -> Result<Self, BpfError> {
        Loaded::load_as(half, Some(ProgramAttachType::Xdp))
    }

    /// As [`load`](Self::load), for a program that is not attached to an interface but put into a CPUMAP
    /// (`BPF_XDP_CPUMAP`): the kernel takes it nowhere else.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_for_cpumap(half: &KernelHalf) -> Result<Self, BpfError> {
        Loaded::load_as(half, Some(ProgramAttachType::XdpCpumap))
    }

    /// As [`load`](Self::load), for a program of section `tc`, which a [`TcIngress`](crate::TcIngress) attaches.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_for_tc(half: &KernelHalf) -> Result<Self, BpfError> {
        // Linux before 6.6 knows no such place, later ones take it from the link.
        Loaded::load_as(half, None)
    }

    fn load_as(half: &KernelHalf, place: Option<ProgramAttachType>) -> Result<Self, BpfError> {
        let mut object = open(half.name, half.object, &half.config)?;
        match object.progs_mut().find(|p| p.name() == half.program) {
            Some(mut program) => place.into_iter().for_each(|at| program.set_attach_type(at)),
            None => return Err(wrong(half.name, format!("it has no program `{}`", half.program))),
        }
        for &(map, entries) in &half.map_sizes {
            resize(&mut object, half.name, map, entries)?;
        }
        let inners = Inner::all(&object);
        let ring_maps = match &half.records {
            None => Vec::new(),
            Some(stream) => prepare_rings(&mut object, half.name, stream)?,
        };
        let maps = Maps::new(half.name, load(object, half.name)?, inners)?;
        for (map, key, value) in &half.entries {
            maps.write(map, key, value)?;
        }
        let rings = match &half.records {
            None => None,
            Some(stream) => Some(connect_rings(&maps, half.name, stream, ring_maps)?),
        };
        Ok(Loaded { rings, maps, program: half.program })
    }

    /// The half's program, to attach or to run.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.maps.program(self.program).expect("load has checked that the program exists")
    }

    /// The kernel's number of the program.
    ///
    /// # Errors
    /// [`BpfError::Os`] when the kernel does not tell.
    pub fn program_id(&self) -> Result<u32, BpfError> {
        crate::program::id(self.program())
    }

    /// True if the object has programs for the way out (section `xdp/devmap`).
    pub fn has_exit_programs(&self) -> bool {
        let is_one = |p: Program<'_>| matches!(p.attach_type(), ProgramAttachType::XdpDevmap);
        self.maps.object().progs().any(is_one)
    }

    /// The half's maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The half's record rings, if it emits records.
    pub fn rings(&mut self) -> Option<&mut Rings> {
        self.rings.as_mut()
    }
}

/// Opens an object from memory and sets its constants.
pub(crate) fn open(
    name: &str,
    object: &[u8],
    config: &[ConfigValue],
) -> Result<OpenObject, BpfError> {
    messages::collect();
    let refused = |why: String| wrong(name, why);
    let mut object = ObjectBuilder::default()
        .name(name)
        .and_then(|builder| builder.open_memory(object))
        .map_err(|e| refused(format!("{e:#}; {}", messages::collected())))?;
    for value in config {
        set_constant(&mut object, name, value)?;
    }
    Ok(object)
}

/// Loads an opened object; reports the lines of libbpf and the verifier when that fails.
pub(crate) fn load(mut object: OpenObject, name: &str) -> Result<libbpf_rs::Object, BpfError> {
    let mut log = vec![0u8; LOG_BYTES];
    for program in object.progs_mut() {
        // SAFETY: the program belongs to the open object; libbpf uses the buffer only while it
        // loads, which is below, and `log` lives longer than that.
        let code = unsafe {
            bpf_program__set_log_buf(
                program.as_libbpf_object().as_ptr(),
                log.as_mut_ptr().cast(),
                log.len() as _,
            )
        };
        BpfError::check(code, || format!("give `{name}` a log buffer"))?;
    }
    let undisturbed = Undisturbed::new();
    let loaded = object.load();
    drop(undisturbed);
    loaded.map_err(|e| {
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]);
        explain(name, &log, &messages::collected(), &e)
    })
}

/// Which of the usual causes made a load fail.
fn explain(name: &str, log: &str, printed: &str, error: &libbpf_rs::Error) -> BpfError {
    let doing = format!("load `{name}`");
    if printed.contains("BTF") && !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return BpfError::NoBtf { doing };
    }
    // The verifier's own answers; with others it did not come to its end, and its log says nothing.
    let is_verdict = matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::PermissionDenied | ErrorKind::Other
    );
    if is_verdict && !log.trim().is_empty() {
        return BpfError::Verifier { object: name.to_owned(), log: last_lines(log) };
    }
    match libbpf(doing, error) {
        BpfError::Os { doing, source } if !printed.is_empty() => {
            let why = format!("{source} ({})", last_lines(printed));
            BpfError::Os { doing, source: io::Error::new(source.kind(), why) }
        }
        other => other,
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn wrong(object: &str, why: String) -> BpfError {
    BpfError::Object { object: object.to_owned(), why }
}

/// Writes a constant into the read-only data, at the place that the object's own BTF names.
fn set_constant(object: &mut OpenObject, name: &str, value: &ConfigValue) -> Result<(), BpfError> {
    let raw = object.as_libbpf_object();
    // SAFETY: the pointer is the open object's, which outlives `btf`: both end in this function.
    let btf = Btf::from_bpf_object(unsafe { raw.as_ref() })
        .map_err(|e| wrong(name, format!("its type information is unreadable: {e:#}")))?
        .ok_or_else(|| wrong(name, "it has no type information; compile it with -g".to_owned()))?;
    let section: DataSec<'_> = btf
        .type_by_name(".rodata")
        .ok_or_else(|| wrong(name, format!("it has no constants, so no `{}`", value.name)))?;
    let mut names = Vec::new();
    let place = section.iter().find_map(|place| {
        let variable = btf.type_by_id::<Var<'_>>(place.ty)?;
        let found = variable.name()?.to_str()?;
        names.push(found.to_owned());
        (found == value.name).then_some(place.offset as usize..place.offset as usize + place.size)
    });
    let Some(place) = place else {
        let known = names.join(", ");
        return Err(wrong(name, format!("it has no constant `{}`; it has {known}", value.name)));
    };
    if place.len() != value.bytes.len() {
        return Err(wrong(
            name,
            format!(
                "constant `{}` is {} bytes long and was given {}",
                value.name,
                place.len(),
                value.bytes.len()
            ),
        ));
    }
    let mut map = object
        .maps_mut()
        .find(|m| m.name().as_encoded_bytes().ends_with(b".rodata"))
        .ok_or_else(|| wrong(name, "its read-only data has no map".to_owned()))?;
    map.initial_value_mut()
        .and_then(|data| data.get_mut(place))
        .ok_or_else(|| wrong(name, format!("`{}` lies outside its read-only data", value.name)))?
        .copy_from_slice(&value.bytes);
    Ok(())
}

fn resize(
    object: &mut OpenObject,
    name: &str,
    map_name: &str,
    entries: u32,
) -> Result<(), BpfError> {
    if !(1..=ENTRIES_MAX).contains(&entries) {
        return Err(wrong(
            name,
            format!("map `{map_name}` cannot have {entries} entries; use 1 to {ENTRIES_MAX}"),
        ));
    }
    let mut map = object
        .maps_mut()
        .find(|m| m.name() == map_name)
        .ok_or_else(|| wrong(name, format!("it has no map `{map_name}`")))?;
    map.set_max_entries(entries).map_err(|e| libbpf(format!("resize map `{map_name}`"), &e))
}

/// Makes one ring per possible CPU and prepares the two maps of the stream for them.
pub(crate) fn prepare_rings(
    object: &mut OpenObject,
    name: &str,
    stream: &RecordStream,
) -> Result<Vec<MapHandle>, BpfError> {
    let bytes = stream.ring_bytes;
    if !bytes.is_power_of_two() || !(RING_BYTES).contains(&bytes) {
        return Err(wrong(
            name,
            format!(
                "rings of {bytes} bytes cannot be; use a power of two from {} to {}",
                RING_BYTES.start(),
                RING_BYTES.end()
            ),
        ));
    }
    // Half a ring: a record as long as the ring can never be reserved, its header has no place.
    if stream.record_bytes == 0 || stream.record_bytes > bytes as usize / 2 {
        return Err(wrong(
            name,
            format!("records of {} bytes do not fit rings of {bytes}", stream.record_bytes),
        ));
    }
    let rings = (0..possible_cpus()?)
        .map(|_| Rings::create_map("lw_records", bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let has = |map: &str, ty: MapType, object: &OpenObject| {
        object.maps().any(|m| m.name() == map && m.map_type() == ty)
    };
    if !has(stream.map, MapType::ArrayOfMaps, object) {
        return Err(wrong(name, format!("it has no array of maps `{}`", stream.map)));
    }
    if !has(stream.wanted_map, MapType::Array, object) {
        return Err(wrong(name, format!("it has no array `{}`", stream.wanted_map)));
    }
    for mut map in object.maps_mut() {
        if map.name() == stream.map {
            map.set_max_entries(rings.len() as u32)
                .and_then(|()| map.set_inner_map_fd(rings[0].as_fd()))
                .map_err(|e| libbpf(format!("prepare map `{}`", stream.map), &e))?;
        } else if map.name() == stream.wanted_map {
            let flags = map.map_flags() | BPF_F_MMAPABLE;
            map.set_map_flags(flags)
                .map_err(|e| libbpf(format!("prepare map `{}`", stream.wanted_map), &e))?;
        }
    }
    Ok(rings)
}

const RING_BYTES: std::ops::RangeInclusive<u32> = crate::RING_BYTES_MIN..=crate::RING_BYTES_MAX;

/// Puts the rings where the program looks them up, and maps them into memory.
pub(crate) fn connect_rings(
    maps: &Maps,
    name: &str,
    stream: &RecordStream,
    rings: Vec<MapHandle>,
) -> Result<Rings, BpfError> {
    let outer = maps.find(stream.map).expect("prepare_rings has found it");
    for (cpu, ring) in (0u32..).zip(&rings) {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&ring.as_fd());
        outer
            .update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| libbpf(format!("put the ring of CPU {cpu} into `{}`", stream.map), &e))?;
    }
    let wanted = maps.find(stream.wanted_map).expect("prepare_rings has found it");
    Rings::map(name, rings, wanted.as_fd(), stream.record_bytes)
}

/// Possible CPUs: what per-CPU maps and rings are counted by.
///
/// # Errors
/// [`BpfError::Os`] when the kernel does not tell.
pub fn possible_cpus() -> Result<usize, BpfError> {
    libbpf_rs::num_possible_cpus().map_err(|e| libbpf("count the possible CPUs".to_owned(), &e))
}
