//! Executing rules on one frame: from the first match to the fate, however the matches are found.
//!
//! Rules see the fields as earlier rules have left them. The frame itself is not touched here; see
//! [`crate::edit`]. The kernel half does the same (`lw_match_step`), in one pass where it
//! has no masks to look up (`lw_rule_step`).

use crate::{
    compile::{Effects, effect},
    fate::Fate,
    fields::{Fields, at, has},
};

/// What rules decided on a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The frame's fate, if the rules decided it; otherwise the mode does.
    pub(crate) fate: Option<Fate>,
    /// With [`Fate::Forwarded`]: the port to leave by.
    pub(crate) port: u8,
    /// The queue chosen last.
    pub(crate) queue: Option<u8>,
    /// The mark set last.
    pub(crate) mark: u32,
}

/// A rule that matches: its rank in the group, its place in the counters, what it does.
pub(crate) struct Match<'a> {
    pub(crate) rank: u64,
    pub(crate) slot: u32,
    pub(crate) effects: &'a Effects,
}

/// Runs the rules of a port on `fields`, of which `first` is the first rule of group 0 that matches.
/// `find` gives the first rule of a group that matches and has a rank above the given one; `hit` counts a
/// match. Ends because ranks and groups only rise.
#[inline]
pub(crate) fn decide<'a>(
    fields: &mut Fields,
    first: Option<Match<'a>>,
    find: impl Fn(u32, &Fields, u64) -> Option<Match<'a>>,
    mut hit: impl FnMut(u32),
) -> Decision {
    let mut decision = Decision::default();
    let (mut group, mut next) = (0, first);
    while let Some(Match { rank, slot, effects }) = next {
        hit(slot);
        if effects.flags & effect::DROP != 0 {
            decision.fate = Some(Fate::RuleDrop);
            return decision;
        }
        if !edit(fields, effects) {
            decision.fate = Some(Fate::TtlExpired);
            return decision;
        }
        if effects.flags & effect::MARK != 0 {
            decision.mark = effects.mark;
        }
        if effects.flags & effect::QUEUE != 0 {
            decision.queue = Some(queue(fields, effects));
        }
        if effects.flags & effect::PORT != 0 {
            (decision.fate, decision.port) = (Some(Fate::Forwarded), effects.port);
            return decision;
        }
        next = match effects.flags {
            flags if flags & effect::JUMP != 0 => {
                group = effects.group;
                find(group, fields, 0)
            }
            flags if flags & effect::PASSTHRU != 0 => find(group, fields, rank),
            _ => return decision,
        };
    }
    decision
}

/// Changes the fields as the rule says; false when the time to live is used up.
fn edit(fields: &mut Fields, effects: &Effects) -> bool {
    let flags = effects.flags;
    if flags & effect::DEC_TTL != 0 {
        let ttl = fields.u8(at::TTL);
        if ttl <= 1 {
            return false;
        }
        fields.set(at::TTL, &[ttl - 1]);
    }
    let sets: [(u32, usize, &[u8]); 6] = [
        (effect::MAC_SRC, at::ETH_SRC, &effects.mac_src),
        (effect::MAC_DST, at::ETH_DST, &effects.mac_dst),
        (effect::IP_SRC, at::SRC_IP, &effects.ip_src),
        (effect::IP_DST, at::DST_IP, &effects.ip_dst),
        (effect::TP_SRC, at::SRC_PORT, &effects.tp_src),
        (effect::TP_DST, at::DST_PORT, &effects.tp_dst),
    ];
    for (bit, at, value) in sets {
        if flags & bit != 0 {
            fields.set(at, value);
        }
    }
    true
}

/// The queue for a frame: the same for both directions of a conversation.
fn queue(fields: &Fields, effects: &Effects) -> u8 {
    let count = u32::from(effects.queues_len.max(1));
    let choice = if count == 1 { 0 } else { spread(fields) % count };
    effects.queues[choice as usize]
}

/// A symmetric hash of addresses, ports and protocol.
fn spread(fields: &Fields) -> u32 {
    let ports = match fields.has(has::TCP | has::UDP) {
        true => u64::from(fields.u16(at::SRC_PORT) ^ fields.u16(at::DST_PORT)),
        false => 0,
    };
    let source = [fields.bytes(at::SRC_IP, 8), fields.bytes(at::SRC_IP + 8, 8)];
    let destination = [fields.bytes(at::DST_IP, 8), fields.bytes(at::DST_IP + 8, 8)];
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let mixed = (number(source[0]) ^ number(destination[0])).rotate_left(17)
        ^ (number(source[1]) ^ number(destination[1]))
        ^ ports << 8
        ^ u64::from(fields.u8(at::PROTO));
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
