//! The relay of one worker, over datagrams.
//!
//! ```text
//!   batch of one port ─▶ rule of each datagram ─▶ by rule:  for each output: every datagram of the rule
//! ```
//!
//! Outputs are the outer loop and datagrams the inner one, so what a batch brings leaves each output as one
//! train; a train that arrived whole leaves whole. Nothing waits for a batch to fill. Rules change between two
//! rounds of the lane, here on the worker's own thread, a bounded number of calls at a time: a rule set is
//! prepared beside the one in force, then takes its place at once (`work`). A port whose interface goes is closed,
//! and opened again when there is one of that name (`berth`, `seats`).
//!
//! What must always hold: every datagram that is shown is relayed or counted by why not; every copy is handed to
//! the lane or counted by why not; what a change could not open leaves nothing behind. Per datagram nothing is
//! allocated.

mod berth;
mod leftover;
mod seats;
mod work;

use crate::{
    desk::{Answer, Mailbox},
    live::{DELAY_CLASSES, Delays, OutputState, RuleState, WorkerState},
    rule::{Output, Rule, RuleId, admits},
};
use berth::Berth;
use laneway_core::{
    App, Bell, Counters, Datagram, DatagramApp, DatagramOut, DatagramPorts, DropReason, PortId,
    Turn,
};
use laneway_linux::{Links, chosen_interface};
use leftover::{Leftover, SeatId};
use seats::Seats;
use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};
use work::{Begun, Look, Work};

/// Batches are counted by powers of two up to this one, 2^15 datagrams.
const BATCH_CLASSES: usize = 16;
/// What a rate allows at once: a tenth of a second's. What is longer is owed.
const BURST_PARTS: u64 = 10;
const NS_PER_S: u128 = 1_000_000_000;

/// What became of datagrams that were shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// A copy was made for every output of the rule.
    pub relayed: u64,
    /// No rule is about where it was sent to; under [`DropReason::NoListener`].
    pub no_rule: u64,
    /// The rule lists other senders; under [`DropReason::Filtered`].
    pub other_source: u64,
    /// Beyond what the rule relays per second; under [`DropReason::RateLimited`].
    pub rate_limited: u64,
}

impl Fates {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Fates { relayed, no_rule, other_source, rate_limited } = self;
        relayed + no_rule + other_source + rate_limited
    }

    /// Adds another worker's.
    pub fn merge(&mut self, other: &Fates) {
        self.relayed += other.relayed;
        self.no_rule += other.no_rule;
        self.other_source += other.other_source;
        self.rate_limited += other.rate_limited;
    }
}

/// What became of the copies that rules asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Relayed datagrams times outputs.
    pub asked: u64,
    /// Given to the lane, whose counters tell what it sent.
    pub handed: u64,
    /// Left out by an output's `sample`.
    pub sampled_out: u64,
    /// Beyond an output's `bytes_per_second`.
    pub rate_limited: u64,
    /// Left out, because the output's interface was not there; by a kernel half, also because it was down or its
    /// MTU too small.
    pub passed_over: u64,
}

impl Copies {
    /// Adds another worker's.
    pub fn merge(&mut self, other: &Copies) {
        self.asked += other.asked;
        self.handed += other.handed;
        self.sampled_out += other.sampled_out;
        self.rate_limited += other.rate_limited;
        self.passed_over += other.passed_over;
    }
}

/// The relay of one worker.
pub struct Relay {
    mailbox: Arc<Mailbox>,
    bell: Bell,
    rules: Vec<Option<Box<Live>>>,
    free: Vec<u32>,
    by_id: HashMap<RuleId, u32>,
    seats: Seats,
    work: Work,
    leftovers: Vec<Leftover>,
    /// The answer that is due when nothing is left over.
    due: Option<Answer>,
    /// The interfaces that there are, where a watch follows them.
    links: Option<Arc<Links>>,
    look: Option<Look>,
    /// A port may wait for something that is reported to the worker.
    waits: bool,
    /// The kernel may choose another interface for a group by now; when that was last looked at.
    has_new_routes: bool,
    looked_ns: u64,
    /// The lane has a stack of its own, with the interfaces that it began with.
    has_own_stack: bool,
    /// The rule of each datagram of a batch, and its place there; keeps its memory.
    order: Vec<(u32, u32)>,
    /// What was relayed in this round and bears a stamp: as much as the lane shows in one. Keeps its memory.
    stamped: Vec<Stamped>,
    counters: Counters,
    fates: Fates,
    copies: Copies,
    batches: [u64; BATCH_CLASSES],
    reads: u64,
    failure: Option<String>,
}

/// Datagrams that were relayed, until the lane has sent their copies.
struct Stamped {
    /// The place of their rule.
    rule: u32,
    ts_ns: u64,
    datagrams: u64,
}

/// A rule in force.
struct Live {
    id: RuleId,
    rule: Arc<Rule>,
    seat: SeatId,
    bucket: Option<Bucket>,
    outputs: Vec<Exit>,
    datagrams: u64,
    bytes: u64,
    rate_limited: u64,
    delays: Delays,
}

/// An output in force.
#[derive(Clone, Debug)]
struct Exit {
    berth: Berth,
    destination: SocketAddr,
    /// It takes every datagram, and has a port.
    is_plain: bool,
    bucket: Option<Bucket>,
    sample: Option<NonZeroU32>,
    /// Datagrams that sampling has seen.
    seen: u64,
    sampled_out: u64,
    rate_limited: u64,
    /// While it had no port.
    absent: u64,
    /// What its ports had counted that were closed.
    past: Option<Box<Counters>>,
}

/// Admits so many bytes per second, and at least what it has begun to admit.
#[derive(Clone, Debug)]
struct Bucket {
    bytes_per_second: u64,
    /// May be owed: a train is admitted whole.
    tokens: i64,
    /// Billionths of a token that have come beside.
    rest: u128,
    at_ns: u64,
}

impl Bucket {
    fn new(bytes_per_second: u64) -> Bucket {
        let mut bucket = Bucket { bytes_per_second, tokens: 0, rest: 0, at_ns: 0 };
        bucket.tokens = bucket.burst();
        bucket
    }

    fn burst(&self) -> i64 {
        let burst = (self.bytes_per_second / BURST_PARTS).max(1);
        i64::try_from(burst).unwrap_or(i64::MAX)
    }

    fn admits(&mut self, bytes: usize, now_ns: u64) -> bool {
        let passed = now_ns.saturating_sub(self.at_ns);
        // Parts of a token are kept: of a rate that is asked about often they are much of it.
        let come = u128::from(passed) * u128::from(self.bytes_per_second) + self.rest;
        self.rest = come % NS_PER_S;
        let come = i64::try_from(come / NS_PER_S).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_add(come).min(self.burst());
        self.at_ns = self.at_ns.max(now_ns);
        let is_in = self.tokens > 0;
        if is_in {
            self.tokens -= i64::try_from(bytes).unwrap_or(i64::MAX);
        }
        is_in
    }
}

impl Relay {
    /// A relay without rules, which takes its orders from this mailbox.
    pub(crate) fn new(mailbox: Arc<Mailbox>, bell: &Bell, has_own_stack: bool) -> Relay {
        mailbox.attend(bell);
        Relay {
            mailbox,
            bell: bell.clone(),
            rules: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            seats: Seats::new(chosen_interface),
            work: Work::Nothing,
            leftovers: Vec::new(),
            due: None,
            links: None,
            look: None,
            waits: false,
            has_new_routes: false,
            looked_ns: 0,
            has_own_stack,
            order: Vec::new(),
            stamped: Vec::new(),
            counters: Counters::default(),
            fates: Fates::default(),
            copies: Copies::default(),
            batches: [0; BATCH_CLASSES],
            reads: 0,
            failure: None,
        }
    }

    /// What became of the datagrams that it was shown.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }

    /// What became of the copies that its rules asked for.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Why it wants to stop: its first rules cannot be had.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn live(&self, id: RuleId) -> Option<&Live> {
        self.rules[*self.by_id.get(&id)? as usize].as_deref()
    }

    /// What every rule has done, and so many outputs: each may cost a system call, and datagrams wait meanwhile.
    fn state(&self, ports: &mut impl DatagramPorts, outputs_max: usize) -> WorkerState {
        let mut left = outputs_max;
        let rules = self.rules.iter().flatten();
        let rules = rules.map(|live| {
            let waits = self.seats.get(live.seat).and_then(|seat| seat.berth.waits.as_deref());
            let shown = live.outputs.len().min(left);
            left -= shown;
            live.state(waits, shown, |port| ports.counters(port))
        });
        let rules = rules.collect();
        let Fates { no_rule, other_source, .. } = self.fates;
        let unmatched = [("no_rule", no_rule), ("other_source", other_source)];
        let unmatched = unmatched.into_iter().filter(|(_, n)| *n > 0);
        let used = self.batches.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        WorkerState {
            rules,
            unmatched: unmatched.map(|(why, n)| (why.to_owned(), n)).collect(),
            batches: self.batches[..used].to_vec(),
            reads: self.reads,
            datagrams: self.fates.total(),
            interfaces: BTreeMap::new(),
        }
    }

    /// Finds the rule of every datagram of a batch; counts those that have none.
    fn sort(&mut self, batch: &[Datagram<'_>]) {
        let Relay { seats, rules, order, fates, counters, .. } = self;
        order.clear();
        let input = batch.first().and_then(|first| seats.of_port(first.ingress));
        // Most batches have one group and one sender.
        let mut last: Option<((IpAddr, bool, IpAddr), u32)> = None;
        for (at, datagram) in batch.iter().enumerate() {
            let (to, from) = (datagram.destination.ip(), datagram.source.ip());
            let ends = (to, datagram.is_broadcast, from);
            if let Some((_, rule)) = last.filter(|last| last.0 == ends) {
                order.push((rule, at as u32));
                continue;
            }
            let about = input.map_or(&[][..], |input| input.about(to, datagram.is_broadcast));
            let admitted = about.iter().copied().find(|slot| {
                let live = rules[*slot as usize].as_ref();
                live.is_some_and(|live| admits(&live.rule.input.sources, from))
            });
            match admitted {
                Some(rule) => {
                    last = Some((ends, rule));
                    order.push((rule, at as u32));
                }
                None if about.is_empty() => {
                    fates.no_rule += count(datagram);
                    counters.drop_many(DropReason::NoListener, count(datagram));
                }
                None => {
                    fates.other_source += count(datagram);
                    counters.drop_many(DropReason::Filtered, count(datagram));
                }
            }
        }
        if order.first().map(|first| first.0) != order.last().map(|last| last.0)
            || !order.is_sorted()
        {
            order.sort_unstable();
        }
    }
}

impl Live {
    /// A rule that is opened; `before` is the one of the same input, which goes.
    fn new(id: RuleId, rule: Arc<Rule>, begun: Begun, mut before: Option<&mut Live>) -> Live {
        let opened = begun.outputs.into_iter().zip(&rule.outputs);
        let outputs = opened.map(|(opened, output)| {
            let kept = opened.kept.zip(before.as_deref_mut());
            match kept {
                Some((i, live)) => live.outputs[i].keep(),
                None => Exit::new(opened.berth, output),
            }
        });
        let outputs = outputs.collect();
        // Its memory is there before the first datagram.
        let none = Delays { classes: vec![0; DELAY_CLASSES], sum_ns: 0 };
        // What is owed stays owed, or every change would let as much through at once again.
        let kept = before.as_ref().and_then(|live| live.bucket.clone());
        let bucket = rule.bytes_per_second.map(|rate| {
            let kept = kept.filter(|bucket| bucket.bytes_per_second == rate);
            kept.unwrap_or_else(|| Bucket::new(rate))
        });
        let (datagrams, bytes, rate_limited, delays) = before.map_or((0, 0, 0, none), |live| {
            (live.datagrams, live.bytes, live.rate_limited, live.delays.clone())
        });
        let seat = begun.seat;
        Live { id, rule, seat, bucket, outputs, datagrams, bytes, rate_limited, delays }
    }

    /// Where what it is about is sent to.
    fn destination(&self) -> IpAddr {
        self.rule.input.destination().expect("the rule was checked")
    }

    fn state(
        &self,
        waits: Option<&str>,
        shown: usize,
        mut counters: impl FnMut(PortId) -> Counters,
    ) -> RuleState {
        let outputs = self.rule.outputs.iter().zip(&self.outputs[..shown]).map(|(output, exit)| {
            let mut counted = exit.berth.port.map(&mut counters).unwrap_or_default();
            exit.past.iter().for_each(|past| counted.merge(past));
            counted.drop_many(DropReason::Sampled, exit.sampled_out);
            counted.drop_many(DropReason::RateLimited, exit.rate_limited);
            counted.drop_many(DropReason::NoRoute, exit.absent);
            let drops = counted.nonzero_drops();
            OutputState {
                destination: output.destination.to_string(),
                interface: output.interface.clone(),
                missing: exit.berth.waits.as_deref().map(str::to_owned),
                sent: counted.tx_frames,
                bytes: counted.tx_bytes,
                drops: drops.map(|(reason, n)| (reason.name().to_owned(), n)).collect(),
            }
        });
        RuleState {
            id: self.id,
            name: self.rule.name.clone(),
            input: self.rule.input.to_string(),
            missing: waits.map(str::to_owned),
            datagrams: self.datagrams,
            bytes: self.bytes,
            rate_limited: self.rate_limited,
            delays: self.delays.clone(),
            outputs: outputs.collect(),
        }
    }
}

impl Exit {
    fn new(berth: Berth, output: &Output) -> Exit {
        let mut exit = Exit {
            berth,
            destination: output.destination,
            is_plain: false,
            bucket: output.bytes_per_second.map(Bucket::new),
            sample: output.sample,
            seen: 0,
            sampled_out: 0,
            rate_limited: 0,
            absent: 0,
            past: None,
        };
        exit.settle_plain();
        exit
    }

    /// To be called whenever its port has come or gone.
    fn settle_plain(&mut self) {
        self.is_plain = self.berth.port.is_some() && self.bucket.is_none() && self.sample.is_none();
    }

    /// The same output of another rule, with its port and all that it counted.
    fn keep(&mut self) -> Exit {
        let kept = self.clone();
        self.berth = Berth::default();
        kept
    }

    /// Sends a copy, as far as sample and rate let it: what sampling leaves out costs no rate. Returns the copies
    /// handed on, and their bytes.
    fn send<O: DatagramOut>(
        &mut self,
        datagram: &Datagram<'_>,
        now_ns: u64,
        copies: &mut Copies,
        out: &mut O,
    ) -> (u64, u64) {
        let (n, bytes) = (count(datagram), datagram.payload.len());
        let Some(port) = self.berth.port else {
            self.absent += n;
            copies.passed_over += n;
            return (0, 0);
        };
        if self.is_plain {
            out.forward(datagram, port, self.destination);
            copies.handed += n;
            return (n, bytes as u64);
        }
        let Some(sample) = self.sample.map(|sample| u64::from(sample.get())) else {
            if !self.admits(bytes, now_ns) {
                self.rate_limited += n;
                copies.rate_limited += n;
                return (0, 0);
            }
            out.forward(datagram, port, self.destination);
            copies.handed += n;
            return (n, bytes as u64);
        };
        let (mut picked, mut sent) = (0, (0, 0));
        // The first of every so many, wherever trains begin and end.
        let first = (sample - self.seen % sample) % sample;
        for at in (first..n).step_by(sample as usize) {
            let begin = at as usize * datagram.segment_bytes;
            let end = bytes.min(begin + datagram.segment_bytes);
            picked += 1;
            if !self.admits(end - begin, now_ns) {
                continue;
            }
            let one = Datagram {
                payload: datagram.payload.narrowed(begin..end),
                segment_bytes: end - begin,
                ..*datagram
            };
            out.forward(&one, port, self.destination);
            sent = (sent.0 + 1, sent.1 + (end - begin) as u64);
        }
        self.seen += n;
        self.sampled_out += n - picked;
        copies.sampled_out += n - picked;
        self.rate_limited += picked - sent.0;
        copies.rate_limited += picked - sent.0;
        copies.handed += sent.0;
        sent
    }

    fn admits(&mut self, bytes: usize, now_ns: u64) -> bool {
        self.bucket.as_mut().is_none_or(|bucket| bucket.admits(bytes, now_ns))
    }
}

/// Datagrams of a train; one without payload is one all the same.
fn count(datagram: &Datagram<'_>) -> u64 {
    datagram.payload.len().div_ceil(datagram.segment_bytes.max(1)).max(1) as u64
}

/// A sentence about a rule.
pub(crate) fn in_rule(rule: &Rule, why: String) -> String {
    let called = rule.name.as_ref().map_or_else(String::new, |name| format!("`{name}` "));
    format!("rule {called}({}): {why}", rule.input)
}

impl App for Relay {
    fn on_stop(&mut self, _turn: Turn) {
        self.mailbox.close();
    }

    fn wants_stop(&self) -> bool {
        self.failure.is_some()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Relay {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        self.sort(batch);
        let Relay { rules, order, stamped, fates, copies, counters, .. } = self;
        let mut shown = 0;
        for datagram in batch {
            shown += count(datagram);
            counters.rx_bytes += datagram.payload.len() as u64;
        }
        counters.rx_frames += shown;
        self.reads += batch.len() as u64;
        self.batches[(shown.max(1).ilog2() as usize).min(BATCH_CLASSES - 1)] += 1;
        for of_rule in order.chunk_by_mut(|a, b| a.0 == b.0) {
            let Some(live) = rules[of_rule[0].0 as usize].as_deref_mut() else { continue };
            let mut relayed = 0;
            for (rule, at) in &mut *of_rule {
                let datagram = &batch[*at as usize];
                let (n, bytes) = (count(datagram), datagram.payload.len());
                live.datagrams += n;
                live.bytes += bytes as u64;
                if live.bucket.as_mut().is_some_and(|bucket| !bucket.admits(bytes, turn.now_ns)) {
                    live.rate_limited += n;
                    fates.rate_limited += n;
                    counters.drop_many(DropReason::RateLimited, n);
                    *rule = HELD_BACK;
                } else {
                    relayed += n;
                    // A lane without stamps of the kernel's gives the time of now.
                    if datagram.ts_ns < turn.now_ns {
                        stamped.push(Stamped { rule: *rule, ts_ns: datagram.ts_ns, datagrams: n });
                    }
                }
            }
            fates.relayed += relayed;
            copies.asked += relayed * live.outputs.len() as u64;
            for exit in &mut live.outputs {
                for (_, at) in of_rule.iter().filter(|(rule, _)| *rule != HELD_BACK) {
                    let sent = exit.send(&batch[*at as usize], turn.now_ns, copies, out);
                    counters.tx_frames += sent.0;
                    counters.tx_bytes += sent.1;
                }
            }
        }
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, _out: &mut O) {
        self.look_at_routes(turn.now_ns);
    }

    fn on_ports<P: DatagramPorts>(&mut self, ports: &mut P, _turn: Turn) {
        self.turn_rules(ports);
    }

    fn awaits_sent(&self) -> bool {
        !self.stamped.is_empty()
    }

    fn on_sent(&mut self, turn: Turn) {
        for Stamped { rule, ts_ns, datagrams } in self.stamped.drain(..) {
            if let Some(live) = self.rules[rule as usize].as_deref_mut() {
                live.delays.count(turn.now_ns.saturating_sub(ts_ns), datagrams);
            }
        }
    }
}

/// In place of its rule's number: the rule's rate holds the datagram back.
const HELD_BACK: u32 = u32::MAX;

impl Drop for Relay {
    fn drop(&mut self) {
        // A worker that ends in a panic answers no caller either.
        self.mailbox.close();
    }
}

#[cfg(test)]
mod tests;
