//! Programs on the kernel's own tracepoints (`tp_btf/...`, `raw_tp/...`), as the lab's CPU meter
//! uses them: all programs of an object attached at once, detached together.

use crate::{
    BpfError, Maps,
    load::{self, libbpf},
};
use laneway_core::ConfigValue;
use libbpf_rs::Link;

/// An object whose programs are attached to the places that their section names say. Detached
/// when this is dropped, or when the process ends in whatever way.
pub struct Tracing {
    /// Declared first: detach, then free the maps.
    links: Vec<Link>,
    maps: Maps,
}

impl Tracing {
    /// Loads `object` with its constants set and attaches all its programs.
    ///
    /// # Errors
    /// As for [`Loaded::load`](crate::Loaded::load); [`BpfError::Os`] naming the program that
    /// could not be attached (no such tracepoint).
    pub fn attach(name: &str, object: &[u8], config: &[ConfigValue]) -> Result<Self, BpfError> {
        let maps = Maps::new(name, load::load(load::open(name, object, config)?, name)?)?;
        let links = maps
            .object()
            .progs_mut()
            .map(|program| {
                let place = program.section().to_string_lossy().into_owned();
                program.attach().map_err(|e| libbpf(format!("attach `{name}` to {place}"), &e))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Tracing { links, maps })
    }

    /// The object's maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Detaches all programs; the maps stay readable. Not at once when another thread is just
    /// starting a process: its child holds a copy of the links until it executes its program.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}
