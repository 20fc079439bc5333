//! Programs on the kernel's own tracepoints (`tp_btf/...`, `raw_tp/...`), as the lab's CPU meter
//! uses them: all programs of an object attached at once, detached together.

use crate::{
    BpfError, Maps, Rings,
    load::{self, libbpf},
};
use laneway_core::{ConfigValue, RecordStream};
use libbpf_rs::Link;

/// An object whose programs are attached to the places that their section names say. Detached
/// when this is dropped, or when the process ends in any way.
pub struct Tracing {
    /// Declared first: detach, then free the maps.
    links: Vec<Link>,
    rings: Option<Rings>,
    maps: Maps,
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
        let links = maps
            .object()
            .progs_mut()
            .map(|program| {
                let place = program.section().to_string_lossy().into_owned();
                program.attach().map_err(|e| libbpf(format!("attach `{name}` to {place}"), &e))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Tracing { links, rings, maps })
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
