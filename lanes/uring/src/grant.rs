//! What the ring and its kernel granted, written into the reports of the ports.

use crate::{
    config::{Common, NAME},
    ring::Ring,
};
use io_uring::opcode;
use laneway_core::{Cap, CapSet, CapsReport, Counters, DropReason, LaneError};
use std::io;

/// A ring and what it can do.
pub(crate) struct Grant {
    pub(crate) ring: Ring,
    pub(crate) obtained: CapSet,
}

impl Grant {
    /// Opens the ring that the knobs ask for.
    pub(crate) fn open(common: &Common) -> Result<Grant, LaneError> {
        let ring = Ring::open(common.depth)?;
        // DEFER_TASKRUN is younger than multishot receives: a ring that opened has them.
        let mut obtained = CapSet::default().with(Cap::Transmit).with(Cap::Multishot);
        if let Some(micros) = common.napi_us {
            obtained = obtained.with_if(Cap::BusyPoll, ring.busy_poll(micros).is_ok());
        }
        obtained = obtained.with_if(Cap::Bundle, ring.has_bundles());
        let zero_copy =
            ring.supports(opcode::SendMsgZc::CODE) && ring.supports(opcode::SendZc::CODE);
        obtained = obtained.with_if(Cap::SendZeroCopy, zero_copy);
        Ok(Grant { ring, obtained })
    }

    /// Writes into the report of a port what the ring has of what was asked for.
    pub(crate) fn report(&self, common: &Common, caps: &mut CapsReport) -> Result<(), LaneError> {
        report(&self.ring, self.obtained, common, caps)
    }
}

/// Writes into the report of a port what a ring that obtained this has of what was asked for.
pub(crate) fn report(
    ring: &Ring,
    obtained: CapSet,
    common: &Common,
    caps: &mut CapsReport,
) -> Result<(), LaneError> {
    for cap in obtained.iter().filter(|&cap| caps.requested.has(cap)) {
        caps.obtained = caps.obtained.with(cap);
    }
    caps.allowed_missing = common.allowed_missing;
    caps.fact("sq_entries", ring.requests_max());
    caps.fact("cq_entries", ring.completions_max());
    caps.fact("ring_registered", ring.is_registered());
    caps.fact("ring_setup", "single-issuer, defer-taskrun");
    if let Some(micros) = common.napi_us {
        caps.fact("napi_busy_poll_us", micros);
    }
    caps.admit(NAME, needs)
}

/// Which kernel has what the lane can do without.
fn needs(cap: Cap) -> Option<&'static str> {
    match cap {
        Cap::Bundle => Some("Linux 6.10"),
        // Of a ring: `IORING_REGISTER_NAPI`.
        Cap::BusyPoll => Some("Linux 6.9"),
        Cap::SendZeroCopy => Some("Linux 6.1"),
        _ => None,
    }
}

/// Writes into a report, and into the counters of port 0, what happened to the ring of the worker.
pub(crate) fn report_counts(
    ring: &mut Ring,
    caps: &mut CapsReport,
    counters: Option<&mut Counters>,
) {
    let counts = ring.counts();
    caps.fact("ring_enters", counts.enters);
    caps.fact("cq_overflows", counts.overflows);
    caps.fact("cq_lost", counts.lost);
    if let Some(counters) = counters {
        counters.drop_many(DropReason::RxError, counts.lost);
    }
}

/// The end of a lane whose ring failed.
pub(crate) fn ring_failed(error: io::Error) -> LaneError {
    LaneError::os(
        NAME,
        "enter the ring",
        error,
        "EBADR: the kernel had no memory for a completion, raise depth=; EEXIST: the lane was moved \
         to another thread",
    )
}
