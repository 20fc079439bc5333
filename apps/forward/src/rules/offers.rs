//! What a port is offered, and what it takes back: the port decides before all software does.

use super::{ExecutionPlace, Installed, OFFERED_RULES_MAX, Placement, RuleSet, Target};
use crate::{
    compile::Entry,
    offload::{can_meet, port_rule},
};
use laneway_flow::Offload;
use std::borrow::Cow;

impl RuleSet {
    /// From the next [`commit`](Self::commit) on offers the rules to the ports themselves, those that
    /// are there as well as those to come. Where another [`Offload`] was in use before, its rules are
    /// left to it.
    pub fn offer_to(&mut self, offload: Box<dyn Offload>) {
        self.offload = Some(offload);
        for (rules, candidates) in self.ports.iter_mut().zip(&mut self.candidates) {
            candidates.clear();
            for (id, rule) in rules.iter_mut() {
                rule.at_port = AtPort::Waiting;
                candidates.insert(*id);
            }
        }
    }

    /// Takes all rules back from the ports, whose lane is about to close. What they matched there, and
    /// where they were executed, can still be asked for.
    pub fn withdraw(&mut self) {
        let Some(mut offload) = self.offload.take() else { return };
        for ((port, rules), candidates) in (0..).zip(&mut self.ports).zip(&mut self.candidates) {
            for id in std::mem::take(candidates) {
                let Some(rule) = rules.get_mut(&id) else { continue };
                if rule.at_port == AtPort::Taken {
                    let hits = offload.remove(port, id);
                    rule.at_port_before.frames += hits.frames;
                    rule.at_port_before.bytes += hits.bytes;
                }
                rule.at_port = AtPort::Never;
            }
        }
    }

    /// Where the software executes rules, and the reason why no port does.
    pub(super) fn in_software(&self, why_not_at_port: Option<String>) -> Placement {
        let (place, reason) = match &self.target {
            Target::User(_) => (
                ExecutionPlace::User,
                "the lane shows its frames to user space and its ports take no rules",
            ),
            Target::Kernel(_) => {
                (ExecutionPlace::Kernel, "the lane executes rules in its XDP program")
            }
        };
        Placement { place, reason: why_not_at_port.map_or_else(|| reason.into(), Cow::from) }
    }

    /// Takes those rules back from the port that come after a new one of the first group and may match the same frames.
    /// A rule of another group sees no frame that a rule of the first did not send there, and that one counts.
    pub(super) fn give_way(&mut self, port: u16, rank: u64, id: u32, entries: &[Entry]) {
        let rules = &self.ports[usize::from(port)];
        let meets = |theirs: &&u32| {
            let Some(later) = rules.get(theirs) else { return false };
            later.at_port == AtPort::Taken
                && later.rank > rank
                && can_meet(entries, &self.entries_of(&later.rule))
        };
        let later: Vec<u32> =
            self.candidates[usize::from(port)].iter().filter(meets).copied().collect();
        later.into_iter().for_each(|theirs| self.take_back(port, theirs, id));
    }

    /// The port no longer has the rule, which stands behind another one now.
    pub(super) fn take_back(&mut self, port: u16, id: u32, first: u32) {
        let placement = self.in_software(Some(behind(first)));
        let rule = self.ports[usize::from(port)].get_mut(&id);
        let (Some(rule), Some(offload)) = (rule, &mut self.offload) else { return };
        let hits = offload.remove(port, id);
        rule.at_port_before.frames += hits.frames;
        rule.at_port_before.bytes += hits.bytes;
        (rule.at_port, rule.placement) = (AtPort::Behind(first), placement);
    }

    /// Offers a port the rules that wait for it, in their order.
    pub(super) fn offer(&mut self, port: u16) {
        let at = usize::from(port);
        let rules = &self.ports[at];
        let is_waiting = |id: &&u32| rules.get(id).is_some_and(|r| r.at_port == AtPort::Waiting);
        let mut waiting: Vec<(u64, u32)> =
            self.candidates[at].iter().filter(is_waiting).map(|id| (rules[id].rank, *id)).collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_unstable();
        let known: Vec<(u64, u32, Vec<Entry>)> = match self.groups[at].get(&0) {
            Some(&len) if len > OFFERED_RULES_MAX => Vec::new(),
            _ => rules
                .iter()
                .filter(|(_, r)| r.rule.attributes.group == 0)
                .map(|(id, r)| (r.rank, *id, self.entries_of(&r.rule)))
                .collect(),
        };
        for (rank, id) in waiting {
            let (at_port, placement) = match self.offer_one(port, id, rank, &known) {
                Ok(()) => {
                    let reason = match &self.target {
                        Target::User(_) => {
                            "the port takes it; the worker has it, too, for frames \
                                            that the port does not recognise"
                        }
                        Target::Kernel(_) => {
                            "the port takes it; the XDP program has it, too, for \
                                              frames that the port does not recognise"
                        }
                    };
                    let placement =
                        Placement { place: ExecutionPlace::Offloaded, reason: reason.into() };
                    (AtPort::Taken, placement)
                }
                Err((at_port, why)) => (at_port, self.in_software(Some(why))),
            };
            if at_port == AtPort::Never {
                self.candidates[at].remove(&id);
            }
            if let Some(rule) = self.ports[at].get_mut(&id) {
                (rule.at_port, rule.placement) = (at_port, placement);
            }
        }
    }

    /// Offers a port one rule, if no other one in `known`, the rules of the first group, that may match the same frames
    /// comes before.
    pub(super) fn offer_one(
        &mut self,
        port: u16,
        id: u32,
        rank: u64,
        known: &[(u64, u32, Vec<Entry>)],
    ) -> Result<(), (AtPort, String)> {
        let never = |why: String| (AtPort::Never, why);
        let rule = &self.ports[usize::from(port)][&id].rule;
        let port_rule =
            port_rule(rule).map_err(|why| never(format!("no port is asked, because {why}")))?;
        let Some((.., entries)) = known.iter().find(|(_, other, _)| *other == id) else {
            return Err(never(format!(
                "a port is offered sets of up to {OFFERED_RULES_MAX} rules"
            )));
        };
        let first = known
            .iter()
            .filter(|(other, ..)| *other < rank)
            .find(|(.., theirs)| can_meet(entries, theirs));
        if let Some((_, other, _)) = first {
            return Err((AtPort::Behind(*other), behind(*other)));
        }
        let Some(offload) = &mut self.offload else { return Err(never("no port is there".into())) };
        offload
            .install(port, id, &port_rule)
            .map_err(|why| never(format!("the port refuses it: {why}")))
    }

    /// Takes it from the port, and lets those that stood behind it try again.
    pub(super) fn forget_at_port(&mut self, port: u16, id: u32, gone: &Installed) {
        if let (AtPort::Taken, Some(offload)) = (gone.at_port, &mut self.offload) {
            offload.remove(port, id);
        }
        let candidates = &mut self.candidates[usize::from(port)];
        candidates.remove(&id);
        let rules = &mut self.ports[usize::from(port)];
        for other in candidates.iter() {
            if let Some(rule) = rules.get_mut(other)
                && rule.at_port == AtPort::Behind(id)
            {
                rule.at_port = AtPort::Waiting;
            }
        }
    }
}

/// How a rule stands with the port that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtPort {
    /// No port takes rules, or it does not take this one.
    Never,
    /// It is offered with the next commit.
    Waiting,
    /// Not offered while this rule, which may match the same frames, comes before it.
    Behind(u32),
    /// The port has it.
    Taken,
}

/// Why a rule is not offered to the port.
pub(super) fn behind(id: u32) -> String {
    format!("rule #{id} comes before it and may match the same frames")
}
