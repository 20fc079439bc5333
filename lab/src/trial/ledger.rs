//! The ledger of a segment: what was offered and not delivered is named by what the lane, the peer, the far end and the
//! kernel counted, each within its bounds. What no counter names stays unexplained.

use super::walk::{State, Walk};
use super::{
    BULK_FRAMES_MAX, CHANGED, JOINED, REDIRECT_LOSSES, REST_OF_BULK, REST_OF_TRAIN, RETURN_QUEUE,
    RETURN_RING, TRAIN_DATAGRAMS_MAX, UNCOUNTED,
};
use crate::ping::PingTrial;
use crate::plan::WayIn;
use crate::result::{GeneratorReport, Ledger, NOT_SENT, REFUSED};
use crate::segment::{SegmentPlan, SegmentSeen};
use crate::tables::Tables;
use laneway_core::{Cap, Counters, DropReason};

impl Walk<'_> {
    /// Where every frame of a segment and every ping `beside` it went, by what was counted since
    /// `before`. The counters know no difference: a queue that was full when a ping arrived counts it, too.
    pub(super) fn ledger(
        &self,
        schedule: &SegmentPlan,
        sent: &GeneratorReport,
        after: &State,
        seen: &SegmentSeen,
        beside: Option<&PingTrial>,
    ) -> Ledger {
        let Walk { plan, before, wire, way, .. } = self;
        let caps = &self.arm.ready.caps;
        // What is lost in front of the arm is lost to every output.
        let copies = plan.sending.traffic.copies();
        let planned = u64::from(schedule.frames);
        let mut ledger = self.delivered(schedule, after, seen);
        if let Some(pinged) = beside {
            ledger.offered += pinged.sent;
            ledger.delivered += pinged.replied;
        }
        let mut name = |place: &str, n: u64| {
            if n > 0 {
                *ledger.drops.entry(place.to_owned()).or_insert(0) += n;
            }
        };
        let not_sent = planned.saturating_sub(sent.sent + sent.refused);
        name(NOT_SENT, not_sent * copies);
        let ring_full = after.wire.ring_full - before.wire.ring_full;
        // The kernel may report each frame that the ring refused to the lane (ENOBUFS), which counts
        // it, too, or offers it again: sendmmsg reports only a refusal of the first. So what the lane
        // gave up is lost, and the ring's own count may be higher. Live frames and AF_XDP get no such
        // report.
        let (by_ring, by_generator) = match way {
            WayIn::Lane { lane, .. } if counts_refusals(plan.tables, lane) => {
                let lost = ring_full.min(sent.refused);
                (lost, sent.refused - lost)
            }
            _ => (ring_full, sent.refused),
        };
        name(REFUSED, by_generator * copies);
        name(wire.ring(), by_ring * copies);
        // A frame that an XDP program cannot redirect into a socket is counted by the driver and by
        // the socket, which knows the reason.
        let redirects = caps.obtained.has(Cap::NativeXdp) || caps.by_redirect;
        let by_socket = |state: &State| match redirects {
            true => REDIRECT_LOSSES.iter().map(|&reason| state.arm.lane.drops(reason)).sum::<u64>(),
            false => 0,
        };
        let receive = after.wire.receive - before.wire.receive;
        let by_peer = plan.peer.is_some();
        let by_socket = if by_peer { 0 } else { by_socket(after) - by_socket(before) };
        name("veth receive", receive.saturating_sub(by_socket) * copies);
        let mut counted =
            |before: &Counters, after: &Counters, ours: &dyn Fn(DropReason) -> u64| {
                for (reason, n) in after.nonzero_drops() {
                    let n = n.saturating_sub(before.drops(reason));
                    let each = if is_of_a_copy(reason) { 1 } else { copies };
                    name(reason.name(), n.saturating_sub(ours(reason)) * each);
                }
            };
        if !by_peer {
            // What the lane says of a tap's queue is the interface's counter, named above already.
            let is_the_rings = |reason| reason == DropReason::RxQueueFull && wire.is_tap();
            let ours = |reason| if is_the_rings(reason) { ring_full } else { 0 };
            counted(&before.arm.lane, &after.arm.lane, &ours);
            counted(&before.arm.app, &after.arm.app, &|_| 0);
        }
        let merged_losses = after.arm.lane.drops(DropReason::RxQueueFull)
            - before.arm.lane.drops(DropReason::RxQueueFull);
        if caps.joins_fragments {
            name(JOINED, (after.wire.joined - before.wire.joined) * copies);
        }
        name("far end receive", after.wire.return_receive - before.wire.return_receive);
        ledger.balance();
        if !by_peer && caps.obtained.has(Cap::Gro) {
            train_losses(&mut ledger, merged_losses * copies);
        }
        changed_on_the_way(&mut ledger, after.changed().saturating_sub(before.changed()));
        let ring_full_behind = after.wire.return_ring_full - before.wire.return_ring_full;
        return_losses(&mut ledger, RETURN_RING, ring_full_behind);
        let queue_full = after.wire.return_queue_full - before.wire.return_queue_full;
        return_losses(&mut ledger, RETURN_QUEUE, queue_full);
        if let WayIn::Live { to_tap: true, .. } = way {
            let received = after.arm.lane.rx_frames - before.arm.lane.rx_frames;
            bulk_losses(&mut ledger, ring_full, sent.sent.saturating_sub(received + ring_full));
        }
        if !plan.counts {
            leave_unknown(&mut ledger);
        } else if by_peer {
            peer_losses(&mut ledger, &before.arm.lane, &after.arm.lane);
        }
        if beside.is_some() {
            refused_pings(&mut ledger, wire.ring());
        }
        ledger
    }

    /// The ledger without drops: what was offered, what was delivered, and what is wrong with it.
    fn delivered(&self, schedule: &SegmentPlan, after: &State, seen: &SegmentSeen) -> Ledger {
        let Walk { plan, before, .. } = self;
        let copies = plan.sending.traffic.copies();
        let planned = u64::from(schedule.frames);
        let strays = after.arm.foreign - before.arm.foreign;
        // Records of an earlier segment that arrived late: its ledger was closed without them.
        let late = (after.arm.records - before.arm.records).saturating_sub(match plan.peer {
            None if plan.app.race.counted.by_witness() => seen.records(),
            _ => u64::MAX,
        });
        let copied = after.far_end.copied.as_ref();
        let wrong = copied.iter().flat_map(|copied| &copied.wrong);
        Ledger {
            offered: planned * copies,
            copies: plan.sending.traffic.fanout().map(|_| copies),
            is_first_limited: plan
                .sending
                .traffic
                .fanout()
                .is_some_and(|plan| !plan.fanout.is_timed(0)),
            by_cable: copied.map_or_else(Vec::new, |copied| copied.by_cable.clone()),
            trains: copied.map_or(0, |copied| copied.trains),
            in_trains: copied.map_or(0, |copied| copied.in_trains),
            wrong: wrong.map(|(what, n)| ((*what).to_owned(), *n)).collect(),
            delivered: match (before.returned(schedule.segment), after.returned(schedule.segment)) {
                // The counter is the bench's: other trials had segments of this number, too.
                (Some(before), Some(after)) => after - before,
                _ => seen.delivered,
            },
            duplicates: seen.duplicates,
            reordered: seen.reordered,
            foreign: seen.foreign + strays + late,
            ..Ledger::default()
        }
    }
}

/// Whether what is counted under this reason is one copy on its way out, and not a datagram that all copies would have
/// been made of.
pub(super) fn is_of_a_copy(reason: DropReason) -> bool {
    use DropReason as Of;
    match reason {
        Of::TxRefused
        | Of::TxTooLong
        | Of::TxNoPort
        | Of::TxSocketFull
        | Of::TxInterfaceFull
        | Of::NoNeighbour
        | Of::NoRoute
        | Of::TtlExpired
        | Of::Sampled
        | Of::RateLimited
        | Of::SinkFull => true,
        Of::RxQueueFull
        | Of::RxNoFrame
        | Of::RxError
        | Of::RxTooLong
        | Of::RecordRingFull
        | Of::LinkLoss
        | Of::LinkQueueFull
        | Of::Filtered
        | Of::FlowTableFull
        | Of::LinkTypeUnknown
        | Of::Malformed
        | Of::BadChecksum
        | Of::NotForUs
        | Of::NoListener
        | Of::Fragment
        | Of::ConnTableFull
        | Of::PassRefused => false,
    }
}

/// Whether each frame that the ring refused is reported to the lane that sends.
pub(super) fn counts_refusals(tables: &dyn Tables, lane: &str) -> bool {
    tables.lane(lane).is_ok_and(|(facts, _)| facts.counts_refusals)
}

/// Names the rest of the bulks that a tap's queue refused. Live frames come to it in bulks of up to
/// [`BULK_FRAMES_MAX`]; at the first that finds no room the device counts one (`tx_dropped`) and the
/// kernel frees the rest of the bulk, which no interface counts. So named is what is missing, if it
/// did not get as far as the arm (`in_front`, by the arm's own receive counter), and no more than the
/// refused bulks can have held: a frame lost elsewhere stays unexplained.
pub(super) fn bulk_losses(ledger: &mut Ledger, refused_bulks: u64, in_front: u64) {
    let missing = u64::try_from(ledger.unexplained).unwrap_or(0);
    let n = missing.min(in_front).min(refused_bulks * (BULK_FRAMES_MAX - 1));
    if n > 0 {
        ledger.drops.insert(REST_OF_BULK.to_owned(), n);
        ledger.balance();
    }
}

/// Names the rest of the trains that a socket's full queue refused. Of datagrams that GRO merged, up to
/// [`TRAIN_DATAGRAMS_MAX`], the kernel counts one (`sk_drops`) for all. So named is what is missing, and no more than
/// the refused trains can have held: a datagram lost elsewhere stays unexplained.
pub(super) fn train_losses(ledger: &mut Ledger, refused_trains: u64) {
    let missing = u64::try_from(ledger.unexplained).unwrap_or(0);
    let n = missing.min(refused_trains * (TRAIN_DATAGRAMS_MAX - 1));
    if n > 0 {
        ledger.drops.insert(REST_OF_TRAIN.to_owned(), n);
        ledger.balance();
    }
}

/// Names what is missing behind a foreign program. It counts what it likes, some of it once more
/// than the kernel did: so its counters name what no counter of the kernel does, and nothing beyond it.
pub(super) fn peer_losses(ledger: &mut Ledger, before: &Counters, after: &Counters) {
    for (reason, n) in after.nonzero_drops() {
        let missing = u64::try_from(ledger.unexplained).unwrap_or(0);
        let n = n.saturating_sub(before.drops(reason)).min(missing);
        if n > 0 {
            ledger.drops.insert(format!("peer: {}", reason.name()), n);
            ledger.balance();
        }
    }
    if ledger.unexplained > 0 {
        ledger.drops.insert(UNCOUNTED.to_owned(), ledger.unexplained as u64);
        ledger.balance();
    }
}

/// Of a program that does not say what it received, what no counter of the kernel names may have been received or lost.
pub(super) fn leave_unknown(ledger: &mut Ledger) {
    ledger.unknown = Some(u64::try_from(ledger.unexplained).unwrap_or(0));
    ledger.balance();
}

/// Takes off what a full ring counted of pings that were no requests: `ping` receives ENOBUFS for one that was
/// refused, tries again, and counts what left. How often, it does not report, so these are the frames that the ring
/// claims beyond what is missing.
pub(super) fn refused_pings(ledger: &mut Ledger, ring: &str) {
    let beyond = u64::try_from(-ledger.unexplained).unwrap_or(0);
    if let Some(refused) = ledger.drops.get_mut(ring) {
        *refused -= beyond.min(*refused);
        ledger.drops.retain(|_, n| *n > 0);
        ledger.balance();
    }
}

/// Names what was returned otherwise than it was sent, as far as it is missing: a program may send more.
pub(super) fn changed_on_the_way(ledger: &mut Ledger, changed: u64) {
    let n = changed.min(u64::try_from(ledger.unexplained).unwrap_or(0));
    if n > 0 {
        ledger.drops.insert(CHANGED.to_owned(), n);
        ledger.balance();
    }
}

/// Names the frames that a full ring on the way back, or the queue in front of it, refused. Such a refusal is reported
/// to some lanes, which count it, too; the frames that both have counted are those that both together claim beyond
/// what is missing.
pub(super) fn return_losses(ledger: &mut Ledger, place: &str, ring_full: u64) {
    let refused = [DropReason::TxRefused, DropReason::TxInterfaceFull];
    let by_lane = refused.iter().filter_map(|reason| ledger.drops.get(reason.name())).sum();
    let beyond = ring_full as i64 - ledger.unexplained;
    let by_both = beyond.clamp(0, ring_full.min(by_lane) as i64) as u64;
    if ring_full > by_both {
        ledger.drops.insert(place.to_owned(), ring_full - by_both);
    }
    ledger.balance();
}
