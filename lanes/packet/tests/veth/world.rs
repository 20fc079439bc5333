//! Three cables, and the lane opened at their near ends.

use crate::cables::{Cables, Inside, NEAR, PORTS_MAX, silent};
use laneway_core::LaneError;
use laneway_packet::{FanoutGroup, OpenOptions, PacketLane};
use laneway_spec::LaneSpec;
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
    ///
    /// Each in a fan-out group of its own, unless the spec names one: another test's child process has a
    /// copy of every descriptor between its fork and its exec, and the socket of a lane that was closed
    /// would go on taking its share of the group's frames for so long.
    pub(crate) fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<PacketLane, LaneError> {
        self.refresh();
        let _inside = Inside::enter(&self.near);
        let options = OpenOptions::default();
        PacketLane::open_in(FanoutGroup::unique(), spec, &NEAR[..ports], options)
    }

    /// Opens the lane of one worker of the run that has `group`, on port 0.
    pub(crate) fn open_worker(
        &self,
        group: FanoutGroup,
        spec: &LaneSpec,
    ) -> Result<PacketLane, LaneError> {
        let _inside = Inside::enter(&self.near);
        PacketLane::open_in(group, spec, &NEAR[..1], OpenOptions::default())
    }

    /// Opens the lane on named interfaces of the near namespace.
    pub(crate) fn open_on(
        &self,
        spec: &LaneSpec,
        interfaces: &[&str],
        options: OpenOptions,
    ) -> Result<PacketLane, LaneError> {
        let _inside = Inside::enter(&self.near);
        PacketLane::open(spec, interfaces, options)
    }
}
