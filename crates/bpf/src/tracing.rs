//! Programs on the kernel's own tracepoints (`tp_btf/...`, `raw_tp/...`), as the lab's CPU meter
//! uses them: all programs of an object attached at once, detached together.
//!
//! Those whose section begins with `?` are optional: all of them are attached, or none where the kernel has not what
//! they need. A program of section `?perf_event` runs at the end of every page fault of a program in user space.

use crate::{BpfError, Maps, Rings, error::libbpf, faults, load};
use laneway_core::{ConfigValue, RecordStream};
use libbpf_rs::{Btf, Link, OpenObject, btf::types::Typedef};
use std::os::fd::OwnedFd;

/// An object whose programs are attached to the places that their section names say. Detached
/// when this is dropped, or when the process ends in any way.
pub struct Tracing {
    /// Declared first: detach, then free the maps.
    links: Vec<Link>,
    rings: Option<Rings>,
    maps: Maps,
    left_out: Option<String>,
}

impl Tracing {
    /// Loads `object` with its constants set and attaches all its programs.
    ///
    /// # Errors
    /// As for [`Loaded::load`](crate::Loaded::load); [`BpfError::Os`] naming the program that
    /// could not be attached (no such tracepoint).
    pub fn attach(name: &str, object: &[u8], config: &[ConfigValue]) -> Result<Self, BpfError> {
        Tracing::attach_with(name, object, config, None)
    }

    /// As [`attach`](Self::attach), for an object whose programs emit a stream of records.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach).
    pub fn attach_recording(
        name: &str,
        object: &[u8],
        config: &[ConfigValue],
        records: &RecordStream,
    ) -> Result<Self, BpfError> {
        Tracing::attach_with(name, object, config, Some(records))
    }

    fn attach_with(
        name: &str,
        object: &[u8],
        config: &[ConfigValue],
        records: Option<&RecordStream>,
    ) -> Result<Self, BpfError> {
        let mut object = load::open(name, object, config)?;
        let (mut faults, left_out) = match include_optional(&mut object) {
            Ok(faults) => (faults, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let prepared = match records {
            None => None,
            Some(stream) => Some((stream, load::prepare_rings(&mut object, name, stream)?)),
        };
        let maps = Maps::new(name, load::load(object, name)?, Vec::new())?;
        // Before the programs run: their first record finds its ring.
        let rings = match prepared {
            None => None,
            Some((stream, made)) => Some(load::connect_rings(&maps, name, stream, made)?),
        };
        let mut links = Vec::new();
        for program in maps.object().progs_mut().filter(|program| program.autoload()) {
            let place = program.section().to_string_lossy().into_owned();
            if place == FAULTS {
                links.extend(faults::attach(&program, std::mem::take(&mut faults), name)?);
                continue;
            }
            let link = program.attach();
            links.push(link.map_err(|e| libbpf(format!("attach `{name}` to {place}"), &e))?);
        }
        Ok(Tracing { links, rings, maps, left_out })
    }

    /// Why the object's optional programs are not attached, if so.
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// The rings of the programs' records, if they emit any; readable after [`detach`](Self::detach).
    pub fn rings(&mut self) -> Option<&mut Rings> {
        self.rings.as_mut()
    }

    /// The object's maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Detaches all programs; maps and rings stay readable. Not at once when another thread is just
    /// starting a process: its child holds a copy of the links until it executes its program.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}

/// The section of programs that run at the end of a page fault.
const FAULTS: &str = "perf_event";

/// Has the object's optional programs loaded, and gives the events that run one of them.
///
/// # Errors
/// What this kernel has not, in words.
fn include_optional(object: &mut OpenObject) -> Result<Vec<OwnedFd>, String> {
    // libbpf forgets the `?` of a section and remembers that its program is not to be loaded unless asked for.
    let mut programs: Vec<_> = object.progs_mut().filter(|program| !program.autoload()).collect();
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let kernel = Btf::from_vmlinux().map_err(|e| format!("the kernel's types: {e:#}"))?;
    let mut faults = Vec::new();
    for program in &programs {
        let section = program.section().to_string_lossy();
        if let Some(point) = section.strip_prefix("tp_btf/") {
            let its_type = kernel.type_by_name::<Typedef<'_>>(&format!("btf_trace_{point}"));
            its_type.ok_or_else(|| format!("this kernel has no tracepoint `{point}`"))?;
        } else if section == FAULTS {
            faults = faults::open().map_err(|e| e.to_string())?;
        }
    }
    programs.iter_mut().for_each(|program| program.set_autoload(true));
    Ok(faults)
}
