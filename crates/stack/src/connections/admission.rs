//! Who may open a connection, and which one makes room for it.

use super::{Connections, LEND_FRAMES_MAX};
use crate::{
    connection::{Connection, Ends, Phase},
    host::Host,
    isn,
};
use std::net::IpAddr;

impl Connections {
    /// Finds a slot for a newcomer.
    pub(super) fn admit(
        &mut self,
        host: &mut Host,
        ends: Ends,
        (port, link): (u8, u8),
        now_ns: u64,
    ) -> Result<u32, Refusal> {
        let from_there = self.per_source.get(&ends.remote.ip()).copied().unwrap_or(0);
        if from_there as usize >= self.limits.per_source_max {
            return Err(Refusal { answered: true });
        }
        if self.half_open >= self.limits.half_open_max {
            return Err(Refusal { answered: false });
        }
        if self.index.len() >= self.limits.connections_max && !self.evict_lingering() {
            return Err(Refusal { answered: true });
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Connection::new(&self.limits, ends));
            self.wheel.add_entry();
            (self.slots.len() - 1) as u32
        });
        let mtu_bytes = host.mtu_to(ends.remote.ip(), usize::from(link), now_ns);
        let sequence = isn::initial_sequence(self.secret, &ends, now_ns);
        let connection = &mut self.slots[slot as usize];
        connection.port = port;
        connection.link = link;
        let drawn = (isn::seed_for(sequence), mtu_bytes);
        let listens = connection.listen(ends, drawn, &self.limits, self.hop_limit, now_ns);
        debug_assert!(listens, "a cleared socket listens");
        let deadline_ns = connection.deadline_ns;
        self.index.insert(ends, slot);
        *self.per_source.entry(ends.remote.ip()).or_insert(0) += 1;
        self.half_open += 1;
        self.wheel.set(slot, deadline_ns, now_ns);
        Ok(slot)
    }

    /// One connection less counts for this source.
    pub(super) fn uncount(&mut self, source: IpAddr) {
        if let Some(count) = self.per_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.per_source.remove(&source);
            }
        }
    }

    /// Makes room by ending the oldest connection that the app knows to be closed.
    pub(super) fn evict_lingering(&mut self) -> bool {
        while let Some((slot, generation)) = self.lingerers.pop_front() {
            if self.lingers(slot, generation) {
                self.release(slot);
                return true;
            }
        }
        false
    }

    fn lingers(&self, slot: u32, generation: u32) -> bool {
        let connection = &self.slots[slot as usize];
        connection.generation == generation && connection.phase == Phase::Lingering
    }

    pub(super) fn linger(&mut self, slot: u32) {
        if self.lingering >= self.limits.lingering_max {
            self.evict_lingering();
        }
        let connection = &mut self.slots[slot as usize];
        connection.phase = Phase::Lingering;
        connection.deadline_ns = self.now_ns.saturating_add(self.limits.linger_ns);
        self.lingering += 1;
        self.lingerers.push_back((slot, connection.generation));
        let source = connection.ends.remote.ip();
        self.uncount(source);
        // One that outlives all that came after it keeps their entries in the queue.
        if self.lingerers.len() > 2 * self.limits.lingering_max + LEND_FRAMES_MAX {
            let mut lingerers = std::mem::take(&mut self.lingerers);
            lingerers.retain(|&(slot, generation)| self.lingers(slot, generation));
            self.lingerers = lingerers;
        }
    }
}

/// Why a newcomer finds no room, and whether it is told.
pub(super) struct Refusal {
    pub(super) answered: bool,
}
