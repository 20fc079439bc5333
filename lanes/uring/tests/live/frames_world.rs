//! The world of the frame tests: three cables, and the lane opened at their near ends.

use crate::cables::{Cables, Inside, NEAR, PORTS_MAX, silent};
use laneway_core::LaneError;
use laneway_spec::LaneSpec;
use laneway_uring::{OpenOptions, UringFrames};
use std::ops::{Deref, DerefMut};

/// The cables, as where this lane lives.
pub(crate) struct World(Cables);

impl Deref for World {
    type Target = Cables;

    fn deref(&self) -> &Cables {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Cables {
        &mut self.0
    }
}

impl World {
    /// Builds it, or says why that cannot be done here.
    pub(crate) fn new() -> Result<World, String> {
        Cables::new(PORTS_MAX, silent()).map(World)
    }

    /// Opens the lane on the first `ports` near ends, with far ends that have received nothing.
    pub(crate) fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UringFrames, LaneError> {
        self.refresh();
        self.open_on(spec, &NEAR[..ports], OpenOptions::default())
    }

    /// Opens the lane on named interfaces of the near namespace.
    pub(crate) fn open_on(
        &self,
        spec: &LaneSpec,
        interfaces: &[&str],
        options: OpenOptions,
    ) -> Result<UringFrames, LaneError> {
        let _inside = Inside::enter(&self.near);
        UringFrames::open(spec, interfaces, options)
    }
}
