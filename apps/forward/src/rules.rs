//! The rule set: testpmd's `flow` commands, and the way of a change to the workers.
//!
//! ```text
//!   run("flow create ...") ─▶ pending ─ commit ─▶ spare table ══ swap ══ live table
//!                                                      ▲                    │ one slot per worker
//!                            all workers have left it ─┘                    ▼
//!                                                       RuleFeed::take, between two bursts
//! ```
//!
//! There are two tables. Workers read one, the owner of the set changes the other and then offers it;
//! a worker takes what is offered at a burst boundary, so every frame sees one whole set. When all
//! have left the older table it takes the same changes and waits for the next turn. So adding a rule
//! costs the same in a set of any size and nothing is copied. While a worker has not moved yet, a
//! commit says [`Commit::Waiting`] and changes nothing.
//!
//! Counters belong to a worker and to a rule's slot, not to a table: a swap keeps them. The slot of a
//! rule that is gone rests until nobody can count there any more.
//!
//! Where the rules of a run are executed is one [`Place`]: a lane shows its frames to user space, or
//! the kernel half has them. A port that takes rules itself ([`Offload`]) is offered each one once it is
//! in force, if no rule that comes before it can match the same frames: the port decides before all
//! software does. The software keeps the rule for whatever the port does not recognise, so what a
//! frame meets is the same with and without the port.
//!
//! For the kernel half there is one [`Bank`], which knows what the kernel has, and a commit is the list of
//! what changes there ([`Change`]); the next one waits until the kernel has it.

use crate::{
    bank::{Bank, Change, KERNEL_ENTRIES_MAX, Whole},
    compile::{Bounds, Compiled, Effects, Entry, RuleRefused, compile},
    decide::Decision,
    fate::Fate,
    fields::{Fields, Parsed},
    grammar::{Action, Attributes, Command, Rule},
    offload::{can_meet, port_rule},
    parser::{SyntaxError, parse_command},
    table::{SIDE_BY_SIDE, Shape, Table},
    tuple::{Found, SLOTS_MAX},
};
use laneway_core::Bell;
use laneway_flow::{Offload, PortHits};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Rules of a set.
pub const RULES_MAX: usize = 1 << 17;
/// Masks and values of a set in user space, after ranges became prefixes.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Groups of a port that hold rules at a time.
pub const GROUPS_MAX: usize = 64;
/// Changes between two commits.
pub const CHANGES_MAX: usize = 1 << 19;
/// A port that takes rules is offered them while it has no more than this: each is compared with all
/// that come before it.
pub const OFFERED_RULES_MAX: usize = 256;
/// Sets of slots: of rules that are live, that rest, and that the next commit brings.
const SLOT_SETS: usize = 3;
/// Slots that a set may come to use.
pub(crate) const SLOTS_USED_MAX: usize = RULES_MAX * SLOT_SETS;
const _: () = assert!(SLOTS_USED_MAX <= SLOTS_MAX);
/// Lowest bits of a rank: the rule's turn among those of its priority.
const TURN_BITS: u32 = 40;

/// Where a rule is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By the port itself.
    Offloaded,
    /// By the XDP program, from its maps.
    Kernel,
    /// By the worker.
    User,
}

impl Place {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Place::Offloaded => "offloaded",
            Place::Kernel => "kernel",
            Place::User => "user",
        }
    }
}

/// Where a rule is executed, and why there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where.
    pub place: Place,
    /// Why, as part of a sentence.
    pub reason: Cow<'static, str>,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It is no command.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The rule cannot be.
    #[error("port {port}: flow rule refused: {why}")]
    Refused {
        /// The port of the rule.
        port: u16,
        /// The reason.
        why: RuleRefused,
    },
    /// There is no such rule.
    #[error("Flow rule #{id} not found on port {port}; `flow list {port}` shows what is there")]
    NotFound {
        /// The port asked about.
        port: u16,
        /// The number asked for.
        id: u32,
    },
    /// A file of rules has a line that cannot be.
    #[error("line {line}: {why}")]
    InFile {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        why: Box<CommandError>,
    },
    /// A file of rules holds another command.
    #[error("only `flow create` can stand in a file of rules: it says what the set is")]
    NotCreate,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The workers see the changes from their next burst on, or there were none.
    Done,
    /// A worker has not yet taken the set before this one; the changes are kept. Try again.
    Waiting,
}

/// What a rule has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Frames.
    pub frames: u64,
    /// Bytes, as received.
    pub bytes: u64,
}

struct Installed {
    rule: Rule,
    rank: u64,
    slot: u32,
    /// What the slot had counted before this rule.
    before: Hits,
    placement: Placement,
    at_port: AtPort,
    /// What it matched in the port, up to when it was last taken away from there.
    at_port_before: PortHits,
}

impl Installed {
    fn drops(&self) -> bool {
        self.rule.actions.contains(&Action::Drop)
    }
}

/// How a rule stands with the port that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtPort {
    /// No port takes rules, or it does not take this one.
    Never,
    /// It is offered with the next commit.
    Waiting,
    /// Not offered while this rule, which may match the same frames, comes before it.
    Behind(u32),
    /// The port has it.
    Taken,
}

/// The rules of all ports of a run, and their one owner.
pub struct RuleSet {
    bounds: Bounds,
    ports: Vec<BTreeMap<u32, Installed>>,
    /// By port: how many rules each group has.
    groups: Vec<BTreeMap<u32, usize>>,
    rules_max: usize,
    rules: usize,
    entries_max: usize,
    entries: usize,
    turn: u64,
    /// Rules of later turns have been in no table yet.
    turn_committed: u64,
    slots: Slots,
    target: Target,
    offload: Option<Box<dyn Offload>>,
    /// By port: the rules that are not [`AtPort::Never`].
    candidates: Vec<BTreeSet<u32>>,
}

/// The places of rules in the counters.
#[derive(Default)]
struct Slots {
    /// Slots below this have been used.
    used: u32,
    free: Vec<u32>,
    /// Of rules that the live table no longer has; the spare one may.
    resting: Vec<u32>,
    /// Of rules that the next commit takes out.
    leaving: Vec<u32>,
}

impl Slots {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// All workers have left the table before the live one.
    fn wake(&mut self) {
        self.free.append(&mut self.resting);
        self.resting = std::mem::take(&mut self.leaving);
    }
}

enum Target {
    User(Publisher),
    Kernel(Box<KernelPublisher>),
}

impl RuleSet {
    /// An empty set for lanes that show frames to user space.
    pub fn for_user(bounds: Bounds) -> RuleSet {
        let table = Table::new(bounds.ports);
        let publisher = Publisher {
            live: Arc::new(table.clone()),
            spare: Arc::new(table),
            backlog: Vec::new(),
            pending: Vec::new(),
            workers: Vec::new(),
        };
        RuleSet::new(bounds, Target::User(publisher), RULES_MAX, ENTRIES_MAX)
    }

    /// An empty set for the kernel half.
    pub fn for_kernel(bounds: Bounds) -> RuleSet {
        let publisher = KernelPublisher {
            shared: Arc::default(),
            bank: Bank::new(),
            changed: false,
            is_read: false,
        };
        RuleSet::new(bounds, Target::Kernel(Box::new(publisher)), RULES_MAX, KERNEL_ENTRIES_MAX)
    }

    fn new(bounds: Bounds, target: Target, rules_max: usize, entries_max: usize) -> RuleSet {
        let ports = (0..bounds.ports).map(|_| BTreeMap::new()).collect();
        RuleSet {
            bounds,
            ports,
            groups: vec![BTreeMap::new(); bounds.ports],
            rules_max,
            rules: 0,
            entries_max,
            entries: 0,
            turn: 0,
            turn_committed: 0,
            slots: Slots::default(),
            target,
            offload: None,
            candidates: vec![BTreeSet::new(); bounds.ports],
        }
    }

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

    /// Carries out a line of testpmd's `flow` command and gives what testpmd prints. Workers see a
    /// change after [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`CommandError`]; nothing has changed then.
    pub fn run(&mut self, line: &str) -> Result<String, CommandError> {
        self.execute(parse_command(line)?)
    }

    /// As [`run`](Self::run), of a command that has been read.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn execute(&mut self, command: Command) -> Result<String, CommandError> {
        match command {
            Command::Validate(port, rule) => {
                self.check(port, &rule).map_err(|why| CommandError::Refused { port, why })?;
                Ok("Flow rule validated\n".to_owned())
            }
            Command::Create(port, rule) => {
                let id = self.create(port, rule)?;
                Ok(format!("Flow rule #{id} created\n"))
            }
            Command::Destroy(port, ids) => {
                ids.iter().try_for_each(|id| self.installed(port, *id).map(drop))?;
                let mut said = String::new();
                for id in ids {
                    // Named twice in one line: gone the first time.
                    if self.destroy(port, id).is_ok() {
                        let _ = writeln!(said, "Flow rule #{id} destroyed");
                    }
                }
                Ok(said)
            }
            Command::Flush(port) => self.flush(port).map(|()| String::new()),
            Command::Query(port, id) => self.query(port, id),
            Command::List(port, groups) => self.list(port, &groups),
        }
    }

    /// Replaces the whole set by the `flow create` lines of a file; empty lines and lines that begin
    /// with `#` do not count. Returns how many rules there are now.
    ///
    /// # Errors
    /// [`CommandError::InFile`] for the first line that cannot be; nothing has changed then.
    pub fn load(&mut self, text: &str) -> Result<usize, CommandError> {
        let (mut rules, mut entries) = (Vec::new(), 0);
        let mut trial = self.target.trial();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let in_file = |why| CommandError::InFile { line: number, why: Box::new(why) };
            let (port, rule) = match parse_command(line) {
                Ok(Command::Create(port, rule)) => (port, rule),
                Ok(_) => return Err(in_file(CommandError::NotCreate)),
                Err(error) => return Err(in_file(error.into())),
            };
            let refused = |why| in_file(CommandError::Refused { port, why });
            self.bounds.check_port(port.into()).map_err(refused)?;
            let compiled = compile(&rule, self.bounds).map_err(refused)?;
            entries += compiled.entries.len();
            self.check_room(rules.len(), entries).map_err(refused)?;
            if let Some(bank) = &mut trial {
                let place = (rank(&rule, rules.len() as u64 + 1), 0);
                let Attributes { group, .. } = rule.attributes;
                let Compiled { entries, effects } = compiled;
                bank.insert(port as u8, group, place, &entries, effects).map_err(refused)?;
            }
            rules.push((number, port, rule));
        }
        // One for each rule, and one for each port's former rules.
        if self.target.changes() + rules.len() + self.ports.len() > CHANGES_MAX {
            let what = "the list of changes that wait for a commit";
            let why = RuleRefused::Full { what, max: CHANGES_MAX };
            return Err(CommandError::Refused { port: 0, why });
        }
        let mut groups: Vec<(u16, u32)> =
            rules.iter().map(|(_, port, rule)| (*port, rule.attributes.group)).collect();
        groups.sort_unstable();
        groups.dedup();
        for port in 0..self.ports.len() as u16 {
            if groups.iter().filter(|(of, _)| *of == port).count() > GROUPS_MAX {
                let why = RuleRefused::Full { what: "the list of groups", max: GROUPS_MAX };
                return Err(CommandError::Refused { port, why });
            }
        }
        for port in 0..self.ports.len() as u16 {
            self.flush(port)?;
        }
        let count = rules.len();
        for (line, port, rule) in rules {
            let created = self.create(port, rule);
            created.map_err(|why| CommandError::InFile { line, why: Box::new(why) })?;
        }
        Ok(count)
    }

    /// Rules over all ports.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// True when no port has a rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ports that rules can be given to; their numbers are `0..ports`.
    pub fn ports(&self) -> u16 {
        self.ports.len() as u16 // at most 32
    }

    /// The rules of a port by number, and where each is executed; none of a port that is not there.
    pub fn rules(&self, port: u16) -> impl Iterator<Item = (u32, &Rule, &Placement)> {
        let rules = self.ports.get(usize::from(port)).into_iter().flatten();
        rules.map(|(id, installed)| (*id, &installed.rule, &installed.placement))
    }

    /// Where a rule is executed, and why there.
    ///
    /// # Errors
    /// [`CommandError::NotFound`].
    pub fn placement(&self, port: u16, id: u32) -> Result<&Placement, CommandError> {
        self.installed(port, id).map(|installed| &installed.placement)
    }

    /// What a rule has matched since it was created, over all workers.
    ///
    /// # Errors
    /// [`CommandError::NotFound`].
    pub fn hits(&self, port: u16, id: u32) -> Result<Hits, CommandError> {
        let installed = self.installed(port, id)?;
        let now = self.target.hits(installed.slot);
        let mut hits = Hits {
            frames: now.frames.saturating_sub(installed.before.frames),
            bytes: now.bytes.saturating_sub(installed.before.bytes),
        };
        // What the port dropped nobody else has seen; everything else is counted by who received it.
        if installed.drops() {
            let there = match &self.offload {
                Some(offload) if installed.at_port == AtPort::Taken => offload.hits(port, id),
                _ => PortHits::default(),
            };
            hits.frames += installed.at_port_before.frames + there.frames;
            hits.bytes += installed.at_port_before.bytes + there.bytes;
        }
        Ok(hits)
    }

    /// How the live set is looked up; the kernel's may have changes that wait for a commit.
    pub fn shape(&self) -> Shape {
        match &self.target {
            Target::User(publisher) => publisher.live.shape(),
            Target::Kernel(publisher) => {
                let (masks, in_line) = publisher.bank.shape();
                let bytes = publisher.bank.memory_bytes();
                Shape { entries: self.entries, masks, in_line, bytes }
            }
        }
    }

    /// The live set for one more worker, and the way of later ones to it. `None` for a set of the
    /// kernel half.
    pub fn feed(&mut self) -> Option<RuleFeed> {
        let Target::User(publisher) = &mut self.target else { return None };
        let hits = (0..self.rules_max * SLOT_SETS).map(|_| Default::default()).collect();
        let shared = Arc::new(Shared {
            is_new: AtomicBool::new(false),
            next: Mutex::new(None),
            hits,
            bell: OnceLock::new(),
        });
        publisher.workers.push(shared.clone());
        Some(RuleFeed { table: publisher.live.clone(), shared })
    }

    /// The way of this set to the kernel half. `None` for a set of user space.
    pub fn kernel_feed(&mut self) -> Option<KernelFeed> {
        let Target::Kernel(publisher) = &mut self.target else { return None };
        publisher.is_read = true;
        *lock(&publisher.shared.next) = Handover::Nothing;
        publisher.bank.settle();
        let (first, shared) = (publisher.bank.whole(), publisher.shared.clone());
        Some(KernelFeed { first, slots: self.slots.used, shared })
    }

    /// Offers all changes since the last commit to the workers, as one, and then new rules to the ports.
    pub fn commit(&mut self) -> Commit {
        let done = self.commit_to_workers();
        if done == Commit::Done && self.offload.is_some() {
            (0..self.ports()).for_each(|port| self.offer(port));
        }
        done
    }

    fn commit_to_workers(&mut self) -> Commit {
        match &mut self.target {
            Target::User(publisher) => match publisher.commit() {
                None => return Commit::Waiting,
                Some(false) => return Commit::Done,
                Some(true) => {}
            },
            Target::Kernel(publisher) => match publisher.commit(&self.slots) {
                None => return Commit::Waiting,
                Some(false) => return Commit::Done,
                Some(true) => {}
            },
        }
        self.slots.wake();
        self.turn_committed = self.turn;
        Commit::Done
    }

    /// Whether one more rule fits beside so many, with which there are so many masks and values.
    fn check_room(&self, rules: usize, entries: usize) -> Result<(), RuleRefused> {
        if rules < self.rules_max && entries <= self.entries_max {
            return Ok(());
        }
        Err(if rules >= self.rules_max {
            RuleRefused::Full { what: "the set", max: self.rules_max }
        } else {
            let what = "the table of masks and values";
            RuleRefused::Full { what, max: self.entries_max }
        })
    }

    fn check(&self, port: u16, rule: &Rule) -> Result<Compiled, RuleRefused> {
        self.bounds.check_port(port.into())?;
        let compiled = compile(rule, self.bounds)?;
        let full = |what, max| Err(RuleRefused::Full { what, max });
        self.check_room(self.rules, self.entries + compiled.entries.len())?;
        if let Target::Kernel(publisher) = &self.target {
            publisher.bank.check(port as u8, rule.attributes.group, &compiled.entries)?;
        }
        if self.target.changes() >= CHANGES_MAX {
            return full("the list of changes that wait for a commit", CHANGES_MAX);
        }
        let groups = &self.groups[usize::from(port)];
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&rule.attributes.group) {
            return full("the list of groups", GROUPS_MAX);
        }
        Ok(compiled)
    }

    fn create(&mut self, port: u16, rule: Rule) -> Result<u32, CommandError> {
        let refused = |why| CommandError::Refused { port, why };
        let compiled = self.check(port, &rule).map_err(refused)?;
        let rules = &self.ports[usize::from(port)];
        // As testpmd numbers: one more than the newest rule that is left.
        let id = match rules.last_key_value() {
            None => 0,
            Some((last, _)) => last.checked_add(1).ok_or_else(|| {
                refused(RuleRefused::Full { what: "the list of numbers", max: u32::MAX as usize })
            })?,
        };
        self.turn += 1;
        let rank = rank(&rule, self.turn);
        let slot = self.slots.take();
        let before = self.target.hits(slot);
        let mut installed = Installed {
            rule,
            rank,
            slot,
            before,
            placement: self.in_software(None),
            at_port: AtPort::Never,
            at_port_before: PortHits::default(),
        };
        if self.offload.is_some() {
            installed.at_port = AtPort::Waiting;
            self.give_way(port, rank, id, &compiled.entries);
            self.candidates[usize::from(port)].insert(id);
        }
        self.entries += compiled.entries.len();
        self.target.insert(port, &installed, compiled);
        self.rules += 1;
        let group = installed.rule.attributes.group;
        *self.groups[usize::from(port)].entry(group).or_default() += 1;
        self.ports[usize::from(port)].insert(id, installed);
        Ok(id)
    }

    /// Where the software executes rules, and the reason why no port does.
    fn in_software(&self, why_not_at_port: Option<String>) -> Placement {
        let (place, reason) = match &self.target {
            Target::User(_) => {
                (Place::User, "the lane shows its frames to user space and its ports take no rules")
            }
            Target::Kernel(_) => (Place::Kernel, "the lane executes rules in its XDP program"),
        };
        Placement { place, reason: why_not_at_port.map_or_else(|| reason.into(), Cow::from) }
    }

    /// Takes those rules back from the port that come after a new one and may match the same frames.
    fn give_way(&mut self, port: u16, rank: u64, id: u32, entries: &[Entry]) {
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

    fn entries_of(&self, rule: &Rule) -> Vec<Entry> {
        compile(rule, self.bounds).expect("it was compiled before").entries
    }

    /// The port no longer has the rule, which stands behind another one now.
    fn take_back(&mut self, port: u16, id: u32, first: u32) {
        let placement = self.in_software(Some(behind(first)));
        let rule = self.ports[usize::from(port)].get_mut(&id);
        let (Some(rule), Some(offload)) = (rule, &mut self.offload) else { return };
        let hits = offload.remove(port, id);
        rule.at_port_before.frames += hits.frames;
        rule.at_port_before.bytes += hits.bytes;
        (rule.at_port, rule.placement) = (AtPort::Behind(first), placement);
    }

    /// Offers a port the rules that wait for it, in their order.
    fn offer(&mut self, port: u16) {
        let at = usize::from(port);
        let rules = &self.ports[at];
        let is_waiting = |id: &&u32| rules.get(id).is_some_and(|r| r.at_port == AtPort::Waiting);
        let mut waiting: Vec<(u64, u32)> =
            self.candidates[at].iter().filter(is_waiting).map(|id| (rules[id].rank, *id)).collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_unstable();
        let known: Vec<(u64, u32, Vec<Entry>)> = match rules.len() {
            len if len > OFFERED_RULES_MAX => Vec::new(),
            _ => rules.iter().map(|(id, r)| (r.rank, *id, self.entries_of(&r.rule))).collect(),
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
                    let placement = Placement { place: Place::Offloaded, reason: reason.into() };
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

    /// Offers a port one rule, if no other one in `known` that may match the same frames comes before.
    fn offer_one(
        &mut self,
        port: u16,
        id: u32,
        rank: u64,
        known: &[(u64, u32, Vec<Entry>)],
    ) -> Result<(), (AtPort, String)> {
        let never = |why: String| (AtPort::Never, why);
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
        let rule = &self.ports[usize::from(port)][&id].rule;
        let said =
            port_rule(rule).map_err(|why| never(format!("no port is asked, because {why}")))?;
        let Some(offload) = &mut self.offload else { return Err(never("no port is there".into())) };
        offload.install(port, id, &said).map_err(|why| never(format!("the port refuses it: {why}")))
    }

    fn destroy(&mut self, port: u16, id: u32) -> Result<(), CommandError> {
        self.installed(port, id)?;
        let Some(gone) = self.ports[usize::from(port)].remove(&id) else { return Ok(()) };
        self.forget(port, id, &gone, true);
        Ok(())
    }

    /// What is left to do for a rule that is no longer listed.
    fn forget(&mut self, port: u16, id: u32, gone: &Installed, from_table: bool) {
        self.rules -= 1;
        let (groups, group) = (&mut self.groups[usize::from(port)], gone.rule.attributes.group);
        if let Some(rules) = groups.get_mut(&group) {
            *rules -= 1;
            if *rules == 0 {
                groups.remove(&group);
            }
        }
        // A rule that came and went between two commits was in no table: nobody counts for it.
        if gone.rank & ((1 << TURN_BITS) - 1) > self.turn_committed {
            self.slots.free.push(gone.slot);
        } else {
            self.slots.leaving.push(gone.slot);
        }
        if self.offload.is_some() {
            self.forget_at_port(port, id, gone);
        }
        let compiled = compile(&gone.rule, self.bounds).expect("it was compiled before");
        self.entries -= compiled.entries.len();
        if from_table {
            self.target.remove(port, gone, compiled);
        }
    }

    /// Takes it from the port, and lets those that stood behind it try again.
    fn forget_at_port(&mut self, port: u16, id: u32, gone: &Installed) {
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

    fn flush(&mut self, port: u16) -> Result<(), CommandError> {
        self.check_port(port)?;
        let rules = std::mem::take(&mut self.ports[usize::from(port)]);
        if !rules.is_empty() {
            self.target.clear(port);
        }
        for (id, gone) in &rules {
            self.forget(port, *id, gone, false);
        }
        Ok(())
    }

    fn query(&self, port: u16, id: u32) -> Result<String, CommandError> {
        let installed = self.installed(port, id)?;
        let counts = u8::from(installed.rule.actions.contains(&Action::Count));
        let Hits { frames, bytes } = match counts {
            1 => self.hits(port, id)?,
            _ => Hits::default(),
        };
        Ok(format!(
            "COUNT:\n hits_set: {counts}\n bytes_set: {counts}\n hits: {frames}\n bytes: {bytes}\n"
        ))
    }

    fn list(&self, port: u16, groups: &[u32]) -> Result<String, CommandError> {
        self.check_port(port)?;
        let rules = &self.ports[usize::from(port)];
        if rules.is_empty() {
            return Ok(String::new());
        }
        let mut listed: Vec<(u32, u32, u32, &Rule)> = rules
            .iter()
            .map(|(id, r)| (r.rule.attributes.group, r.rule.attributes.priority, *id, &r.rule))
            .filter(|(group, ..)| groups.is_empty() || groups.contains(group))
            .collect();
        listed.sort_unstable_by_key(|(group, priority, id, _)| (*group, *priority, *id));
        let mut said = "ID\tGroup\tPrio\tAttr\tRule\n".to_owned();
        for (group, priority, id, rule) in listed {
            let ingress = if rule.attributes.ingress { 'i' } else { '-' };
            let transfer = if rule.attributes.transfer { 't' } else { '-' };
            let _ = write!(said, "{id}\t{group}\t{priority}\t{ingress}-{transfer}\t");
            for item in &rule.pattern {
                let _ = write!(said, "{} ", item.kind.word().to_uppercase());
            }
            said.push_str("=>");
            for action in &rule.actions {
                let _ = write!(said, " {}", action.word().to_uppercase());
            }
            said.push('\n');
        }
        Ok(said)
    }

    fn check_port(&self, port: u16) -> Result<(), CommandError> {
        let checked = self.bounds.check_port(port.into());
        checked.map(drop).map_err(|why| CommandError::Refused { port, why })
    }

    fn installed(&self, port: u16, id: u32) -> Result<&Installed, CommandError> {
        self.check_port(port)?;
        self.ports[usize::from(port)].get(&id).ok_or(CommandError::NotFound { port, id })
    }
}

/// Why a rule is not offered to the port.
fn behind(id: u32) -> String {
    format!("rule #{id} comes before it and may match the same frames")
}

/// Where a rule stands in its group: by priority, and among equals by age.
fn rank(rule: &Rule, turn: u64) -> u64 {
    u64::from(rule.attributes.priority) << TURN_BITS | turn
}

impl Target {
    fn hits(&self, slot: u32) -> Hits {
        match self {
            Target::Kernel(publisher) => {
                lock(&publisher.shared.hits).get(slot as usize).copied().unwrap_or_default()
            }
            Target::User(publisher) => {
                let mut sum = Hits::default();
                for worker in &publisher.workers {
                    let Count { frames, bytes } = &worker.hits[slot as usize];
                    sum.frames += frames.load(Ordering::Relaxed);
                    sum.bytes += bytes.load(Ordering::Relaxed);
                }
                sum
            }
        }
    }

    /// An empty one, to try a set on, where some sets have no room.
    fn trial(&self) -> Option<Bank> {
        match self {
            Target::User(_) => None,
            Target::Kernel(_) => Some(Bank::new()),
        }
    }

    /// Changes that wait for a commit, where they are kept one by one.
    fn changes(&self) -> usize {
        match self {
            Target::User(publisher) => publisher.pending.len(),
            Target::Kernel(_) => 0,
        }
    }

    fn insert(&mut self, port: u16, rule: &Installed, compiled: Compiled) {
        let (place, group) = ((rule.rank, rule.slot), rule.rule.attributes.group);
        match self {
            Target::Kernel(publisher) => {
                publisher.changed = true;
                let Compiled { entries, effects } = compiled;
                let inserted = publisher.bank.insert(port as u8, group, place, &entries, effects);
                inserted.expect("there was room when it was checked");
            }
            Target::User(publisher) => publisher.pending.push(Op::Insert {
                port: usize::from(port),
                group,
                place,
                entries: compiled.entries,
                effects: Box::new(compiled.effects),
            }),
        }
    }

    fn remove(&mut self, port: u16, rule: &Installed, compiled: Compiled) {
        let (group, rank, entries) = (rule.rule.attributes.group, rule.rank, compiled.entries);
        match self {
            Target::Kernel(publisher) => {
                publisher.changed = true;
                publisher.bank.remove(port as u8, group, rank, &entries);
            }
            Target::User(publisher) => {
                let port = usize::from(port);
                publisher.pending.push(Op::Remove { port, group, rank, entries });
            }
        }
    }

    fn clear(&mut self, port: u16) {
        match self {
            Target::Kernel(publisher) => {
                publisher.changed = true;
                publisher.bank.clear(port as u8);
            }
            Target::User(publisher) => {
                publisher.pending.push(Op::Clear { port: usize::from(port) });
            }
        }
    }
}

/// A change of a table.
enum Op {
    Insert {
        port: usize,
        group: u32,
        place: (u64, u32),
        entries: Vec<Entry>,
        effects: Box<Effects>,
    },
    Remove {
        port: usize,
        group: u32,
        rank: u64,
        entries: Vec<Entry>,
    },
    Clear {
        port: usize,
    },
}

impl Op {
    fn apply(&self, table: &mut Table) {
        match self {
            Op::Insert { port, group, place, entries, effects } => {
                table.insert(*port, *group, *place, entries, **effects);
            }
            Op::Remove { port, group, rank, entries } => {
                table.remove(*port, *group, *rank, entries);
            }
            Op::Clear { port } => table.clear(*port),
        }
    }
}

struct Publisher {
    /// What was offered last.
    live: Arc<Table>,
    /// What was offered before that; changed when no worker has it any more.
    spare: Arc<Table>,
    /// Changes that `live` has and `spare` has not.
    backlog: Vec<Op>,
    /// Changes that neither has.
    pending: Vec<Op>,
    workers: Vec<Arc<Shared>>,
}

impl Publisher {
    /// `None` while a worker still has the spare table, else whether there was anything to do.
    fn commit(&mut self) -> Option<bool> {
        if self.pending.is_empty() {
            self.catch_up();
            return Some(false);
        }
        // A worker that has ended takes nothing any more; what it counted stays.
        for worker in self.workers.iter().filter(|worker| Arc::strong_count(worker) == 1) {
            lock(&worker.next).take();
        }
        // Synchronises with the workers' drops: whoever had it has stopped reading.
        let spare = Arc::get_mut(&mut self.spare)?;
        self.backlog.drain(..).for_each(|op| op.apply(spare));
        self.pending.iter().for_each(|op| op.apply(spare));
        std::mem::swap(&mut self.live, &mut self.spare);
        self.backlog = std::mem::take(&mut self.pending);
        for worker in self.workers.iter().filter(|worker| Arc::strong_count(worker) > 1) {
            *lock(&worker.next) = Some(self.live.clone());
            // Pairs with the load in `RuleFeed::take`.
            worker.is_new.store(true, Ordering::Release);
            worker.bell.get().inspect(|bell| bell.ring());
        }
        self.catch_up();
        Some(true)
    }

    /// Brings the spare table up to date if no worker has it: after many rules were loaded before the workers
    /// began, the first rule that is added to them costs no more than the second.
    fn catch_up(&mut self) {
        if let Some(spare) = Arc::get_mut(&mut self.spare) {
            self.backlog.drain(..).for_each(|op| op.apply(spare));
        }
    }
}

/// Between the set and one worker.
struct Shared {
    is_new: AtomicBool,
    /// The slot: the latest set that the worker has not taken yet.
    next: Mutex<Option<Arc<Table>>>,
    /// By rule slot; the worker alone writes.
    hits: Box<[Count]>,
    /// Rung when there is a new set.
    bell: OnceLock<Bell>,
}

#[derive(Default)]
struct Count {
    frames: AtomicU64,
    bytes: AtomicU64,
}

/// A worker's end: the rules it executes now, and its counters.
pub struct RuleFeed {
    table: Arc<Table>,
    shared: Arc<Shared>,
}

/// The header fields of a frame that rules look at.
#[derive(Clone, Debug)]
pub struct Headers(Fields);

impl Headers {
    /// Those of this frame.
    pub fn of(frame: &[u8]) -> Headers {
        Headers(Parsed::of(frame).fields)
    }
}

impl RuleFeed {
    /// Runs the rules of a port on a frame of `bytes` bytes with these headers, as a worker does, and
    /// counts; the fate, if the rules decide it. Nothing is done to a frame.
    #[inline]
    pub fn judge(&self, port: u16, headers: &Headers, bytes: u64) -> Option<Fate> {
        let mut fields = headers.0;
        self.decide(usize::from(port), &mut fields, bytes).fate
    }

    /// As [`judge`](Self::judge), of the frames of a burst, as a worker does it; `bytes` and `told` have
    /// the frames' places in `headers`.
    #[inline]
    pub fn judge_burst(
        &self,
        port: u16,
        headers: &[Headers],
        bytes: impl Fn(usize) -> u64,
        mut told: impl FnMut(usize, Option<Fate>),
    ) {
        for (part, headers) in headers.chunks(SIDE_BY_SIDE).enumerate() {
            let mut first = [Found::NOBODY; SIDE_BY_SIDE];
            let first = &mut first[..headers.len()];
            self.find_first(usize::from(port), |i| &headers[i].0, first);
            for (i, (headers, first)) in headers.iter().zip(first).enumerate() {
                let (at, mut fields) = (part * SIDE_BY_SIDE + i, headers.0);
                let decision = self.decide_from(usize::from(port), *first, &mut fields, bytes(at));
                told(at, decision.fate);
            }
        }
    }

    /// Has `bell` rung whenever there is a new set.
    #[must_use]
    pub fn with_bell(self, bell: &Bell) -> RuleFeed {
        self.shared.bell.get_or_init(|| bell.clone());
        self
    }

    /// Moves to the latest set, if there is a new one. Between bursts; does not wait, and frees
    /// nothing: the set's owner keeps both tables.
    #[inline]
    pub fn take(&mut self) {
        if self.shared.is_new.load(Ordering::Acquire)
            && let Ok(mut next) = self.shared.next.try_lock()
            && let Some(table) = next.take()
        {
            self.shared.is_new.store(false, Ordering::Relaxed);
            self.table = table;
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self, port: usize) -> bool {
        self.table.is_empty(port)
    }

    /// The first match of each of the frames with these fields, for [`decide_from`](Self::decide_from).
    #[inline]
    pub(crate) fn find_first<'a>(
        &self,
        port: usize,
        fields: impl Fn(usize) -> &'a Fields,
        found: &mut [Found],
    ) {
        self.table.find_first(port, fields, found);
    }

    /// Runs the rules of a port on the fields of a frame of `bytes` bytes.
    #[inline]
    pub(crate) fn decide(&self, port: usize, fields: &mut Fields, bytes: u64) -> Decision {
        let mut first = [Found::NOBODY];
        self.find_first(port, |_| fields, &mut first);
        self.decide_from(port, first[0], fields, bytes)
    }

    /// As [`decide`](Self::decide), of a frame whose first match is known.
    #[inline]
    pub(crate) fn decide_from(
        &self,
        port: usize,
        first: Found,
        fields: &mut Fields,
        bytes: u64,
    ) -> Decision {
        let hits = &self.shared.hits;
        self.table.decide(port, first, fields, |slot| {
            // Loads and stores instead of additions: this worker alone writes.
            let add = |counter: &AtomicU64, n: u64| {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            };
            let Count { frames, bytes: total } = &hits[slot as usize];
            add(frames, 1);
            add(total, bytes);
        })
    }
}

struct KernelPublisher {
    shared: Arc<KernelShared>,
    /// The rules with all changes so far.
    bank: Bank,
    changed: bool,
    /// There is a kernel half that takes changes; before that a commit only prepares the first set.
    is_read: bool,
}

impl KernelPublisher {
    /// `None` while the kernel does not have the changes before, else whether there was anything to do.
    fn commit(&mut self, slots: &Slots) -> Option<bool> {
        let mut next = lock(&self.shared.next);
        if !matches!(*next, Handover::Nothing) {
            return None;
        }
        self.bank.settle();
        if !std::mem::take(&mut self.changed) {
            return Some(false);
        }
        let change = self.bank.commit();
        if self.is_read {
            let (slots, frees_slots) = (slots.used, !slots.leaving.is_empty());
            *next = Handover::Waits(KernelChange { change, slots, frees_slots });
            self.shared.bell.get().inspect(|bell| bell.ring());
        } else {
            self.bank.settle();
        }
        Some(true)
    }
}

/// A change on its way into the kernel.
pub(crate) struct KernelChange {
    pub(crate) change: Change,
    /// Rules have slots below this.
    pub(crate) slots: u32,
    /// Rules are gone, whose slots will be used again.
    pub(crate) frees_slots: bool,
}

/// The slot between the set and the kernel half.
#[derive(Default)]
enum Handover {
    /// The kernel has everything.
    #[default]
    Nothing,
    /// For the tick behind the bell.
    Waits(KernelChange),
    /// The kernel half is at it.
    InHand,
}

/// Between the set and the user side of the kernel half.
#[derive(Default)]
struct KernelShared {
    next: Mutex<Handover>,
    /// By rule slot, as last read from the kernel; none of later slots.
    hits: Mutex<Vec<Hits>>,
    /// Rung when a change waits.
    bell: OnceLock<Bell>,
}

/// The kernel half's end: changes to carry out, counters to report.
pub struct KernelFeed {
    /// What the kernel begins with; taken out when that is described.
    pub(crate) first: Whole,
    /// Rules have slots below this to begin with.
    pub(crate) slots: u32,
    shared: Arc<KernelShared>,
}

impl KernelFeed {
    /// Has `bell` rung whenever a change waits.
    #[must_use]
    pub fn with_bell(self, bell: &Bell) -> KernelFeed {
        self.shared.bell.get_or_init(|| bell.clone());
        self
    }

    /// A change that waits. A commit waits until it is [`taken`](Self::taken).
    pub(crate) fn next(&self) -> Option<KernelChange> {
        let mut next = lock(&self.shared.next);
        match std::mem::take(&mut *next) {
            Handover::Waits(change) => {
                *next = Handover::InHand;
                Some(change)
            }
            other => {
                *next = other;
                None
            }
        }
    }

    /// The change is in force and no CPU executes what was before it any more.
    pub(crate) fn taken(&self) {
        *lock(&self.shared.next) = Handover::Nothing;
    }

    /// What was counted, by slot; all that there are.
    pub(crate) fn report(&self, hits: Vec<Hits>) {
        *lock(&self.shared.hits) = hits;
    }
}

/// Whoever panicked while holding one of these locks had written nothing or everything.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KERNEL_LINE_MAX, KERNEL_MASKS_MAX};
    use laneway_flow::PortRule;
    use laneway_testkit::UdpFrame;

    const BOUNDS: Bounds = Bounds { ports: 2, queues: 4 };

    fn set() -> RuleSet {
        RuleSet::for_user(BOUNDS)
    }

    #[track_caller]
    fn run(set: &mut RuleSet, line: &str) -> String {
        set.run(line).unwrap_or_else(|e| panic!("{e}"))
    }

    fn decide(feed: &RuleFeed, destination_port: u16) -> Decision {
        let frame = UdpFrame { destination_port, ..UdpFrame::default() }.build();
        feed.decide(0, &mut Parsed::of(&frame).fields, frame.len() as u64)
    }

    const DROP_53: &str =
        "flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end actions drop / count / end";

    #[test]
    fn numbers_and_answers_are_those_of_testpmd() {
        let mut set = set();
        for id in 0..3 {
            assert_eq!(run(&mut set, DROP_53), format!("Flow rule #{id} created\n"));
        }
        assert_eq!(run(&mut set, "flow destroy 0 rule 2"), "Flow rule #2 destroyed\n");
        assert_eq!(run(&mut set, "flow destroy 0 rule 0"), "Flow rule #0 destroyed\n");
        let queue = "flow create 0 group 0 priority 5 transfer pattern vlan / ipv6 / end \
                     actions queue index 1 / end";
        assert_eq!(run(&mut set, queue), "Flow rule #2 created\n");
        run(&mut set, "flow create 0 group 1 ingress pattern end actions drop / end");
        assert_eq!(
            run(&mut set, "flow list 0"),
            "ID\tGroup\tPrio\tAttr\tRule\n\
             1\t0\t0\ti--\tETH IPV4 UDP => DROP COUNT\n\
             2\t0\t5\t--t\tVLAN IPV6 => QUEUE\n\
             3\t1\t0\ti--\t=> DROP\n"
        );
        assert!(run(&mut set, "flow list 0 group 1").ends_with("3\t1\t0\ti--\t=> DROP\n"));
        assert_eq!(run(&mut set, "flow list 1"), "");
        let validate = DROP_53.replace("create", "validate");
        assert_eq!(run(&mut set, &validate), "Flow rule validated\n");
        assert_eq!(set.len(), 3);
        assert_eq!(run(&mut set, "flow flush 0"), "");
        assert!(set.is_empty());
        assert_eq!(run(&mut set, DROP_53), "Flow rule #0 created\n");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let mut set = set();
        let why = set.run("flow destroy 0 rule 7").expect_err("no such rule").to_string();
        assert!(why.contains("#7 not found"), "{why}");
        let why = set.run("flow list 2").expect_err("no such port").to_string();
        assert!(why.contains("ports are 0 to 1"), "{why}");
        run(&mut set, DROP_53);
        set.run("flow destroy 0 rule 0 rule 9").expect_err("one of them is not there");
        assert_eq!(set.len(), 1, "nothing was destroyed");
    }

    #[test]
    fn a_worker_sees_a_change_after_it_took_the_set_and_counts_across_swaps() {
        let mut set = set();
        let mut feed = set.feed().expect("a set of user space");
        run(&mut set, DROP_53);
        assert_eq!(decide(&feed, 53).fate, None);
        assert_eq!(set.commit(), Commit::Done);
        assert_eq!(decide(&feed, 53).fate, None, "not yet taken");
        feed.take();
        assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
        for _ in 0..3 {
            run(&mut set, &DROP_53.replace("53", "99"));
            assert_eq!(set.commit(), Commit::Done);
            feed.take();
        }
        assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
        assert_eq!(
            run(&mut set, "flow query 0 0 count"),
            "COUNT:\n hits_set: 1\n bytes_set: 1\n hits: 2\n bytes: 128\n"
        );
    }

    #[test]
    fn a_commit_that_changes_something_rings_every_worker() {
        let bells = [(); 2].map(|()| Bell::new().expect("a descriptor"));
        let mut set = set();
        let _feeds = bells.each_ref().map(|bell| set.feed().expect("a feed").with_bell(bell));
        assert_eq!(set.commit(), Commit::Done);
        assert!(bells.iter().all(|bell| !bell.answer()), "nothing changed");
        run(&mut set, DROP_53);
        assert_eq!(set.commit(), Commit::Done);
        assert!(bells.iter().all(Bell::answer));
    }

    #[test]
    fn a_change_that_waits_for_the_kernel_rings_its_worker() {
        let bell = Bell::new().expect("a descriptor");
        let mut set = RuleSet::for_kernel(BOUNDS);
        let _feed = set.kernel_feed().expect("a set of the kernel").with_bell(&bell);
        run(&mut set, DROP_53);
        assert!(!bell.answer(), "nothing is committed yet");
        assert_eq!(set.commit(), Commit::Done);
        assert!(bell.answer());
    }

    #[test]
    fn a_commit_waits_for_the_slowest_worker_and_keeps_the_changes() {
        let mut set = set();
        let (mut quick, mut slow) = (set.feed().expect("a feed"), set.feed().expect("a feed"));
        run(&mut set, DROP_53);
        assert_eq!(set.commit(), Commit::Done);
        quick.take();
        run(&mut set, &DROP_53.replace("53", "54"));
        assert_eq!(set.commit(), Commit::Waiting);
        assert_eq!(decide(&slow, 53).fate, None);
        slow.take();
        assert_eq!(set.commit(), Commit::Done);
        for feed in [&mut quick, &mut slow] {
            feed.take();
            assert_eq!(decide(feed, 54).fate, Some(Fate::RuleDrop));
        }
        // One that ended does not hold up the others.
        run(&mut set, "flow destroy 0 rule 0");
        assert_eq!(set.commit(), Commit::Done);
        drop(slow);
        quick.take();
        run(&mut set, "flow flush 0");
        assert_eq!(set.commit(), Commit::Done);
        quick.take();
        assert_eq!(decide(&quick, 54).fate, None);
    }

    #[test]
    fn a_new_rule_does_not_inherit_the_counts_of_one_that_is_gone() {
        let mut set = set();
        let mut feed = set.feed().expect("a feed");
        for _ in 0..20 {
            run(&mut set, DROP_53);
            assert_eq!(set.commit(), Commit::Done);
            feed.take();
            decide(&feed, 53);
            assert_eq!(set.hits(0, 0).expect("it is there").frames, 1);
            run(&mut set, "flow destroy 0 rule 0");
            assert_eq!(set.commit(), Commit::Done);
            // The worker has not moved: what it counts now must not reach the next rule.
            decide(&feed, 53);
            feed.take();
        }
        assert!(set.slots.used <= 4, "slots are used again: {}", set.slots.used);
    }

    #[test]
    fn the_counter_of_a_rule_that_is_gone_rests_while_a_worker_may_still_count_there() {
        let mut set = set();
        let mut feed = set.feed().expect("a feed");
        run(&mut set, DROP_53);
        assert_eq!(set.commit(), Commit::Done);
        feed.take();
        run(&mut set, "flow destroy 0 rule 0");
        assert_eq!(set.commit(), Commit::Done);
        run(&mut set, DROP_53);
        // The worker has not moved: it counts for the rule that is gone.
        assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
        feed.take();
        assert_eq!(set.commit(), Commit::Done);
        assert_eq!(set.hits(0, 0).expect("it is there"), Hits::default());
    }

    #[test]
    fn a_file_replaces_the_set_as_a_whole_or_not_at_all() {
        let mut set = set();
        let mut feed = set.feed().expect("a feed");
        run(&mut set, &DROP_53.replace("53", "1"));
        let file = format!("# ours\n\n{DROP_53}\n{}\n", DROP_53.replace("53", "54"));
        let broken = format!("{file}flow crate 0\n");
        let why = set.load(&broken).expect_err("line 5").to_string();
        assert!(why.starts_with("line 5: ") && set.len() == 1, "{why}");
        assert!(set.load("flow flush 0").is_err());
        assert_eq!(set.load(&file), Ok(2));
        assert_eq!(set.commit(), Commit::Done);
        feed.take();
        assert_eq!(decide(&feed, 1).fate, None);
        assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
        assert_eq!(decide(&feed, 54).fate, Some(Fate::RuleDrop));
    }

    /// Takes rules whose priority is even, and has counted 40 frames more than their number.
    struct Even(Arc<Mutex<Vec<u32>>>);

    impl Offload for Even {
        fn install(&mut self, _port: u16, id: u32, rule: &PortRule) -> Result<(), String> {
            if rule.priority % 2 == 1 {
                return Err("an odd priority".to_owned());
            }
            lock(&self.0).push(id);
            Ok(())
        }

        fn remove(&mut self, port: u16, id: u32) -> PortHits {
            lock(&self.0).retain(|other| *other != id);
            self.hits(port, id)
        }

        fn hits(&self, _port: u16, id: u32) -> PortHits {
            PortHits { frames: u64::from(id) + 40, bytes: 0 }
        }
    }

    /// A set over ports that take even priorities, and what they have.
    fn offered() -> (RuleSet, Arc<Mutex<Vec<u32>>>) {
        let (mut set, taken) = (set(), Arc::default());
        set.offer_to(Box::new(Even(Arc::clone(&taken))));
        (set, taken)
    }

    fn create(set: &mut RuleSet, priority: u32, udp_port: &str) {
        let line = DROP_53
            .replace("ingress", &format!("priority {priority} ingress"))
            .replace("53", udp_port);
        run(set, &line);
        assert_eq!(set.commit(), Commit::Done);
    }

    fn places(set: &RuleSet) -> Vec<&'static str> {
        set.rules(0).map(|(_, _, placement)| placement.place.name()).collect()
    }

    #[track_caller]
    fn because(set: &RuleSet, id: u32, part: &str) {
        let reason = &set.placement(0, id).expect("it is there").reason;
        assert!(reason.contains(part), "{reason}");
    }

    #[test]
    fn rules_are_offloaded_where_the_port_can_and_no_rule_before_it_may_match_the_same() {
        let (mut set, taken) = offered();
        create(&mut set, 2, "53");
        create(&mut set, 6, "54");
        assert_eq!(places(&set), ["offloaded"; 2]);
        create(&mut set, 3, "54");
        assert_eq!(places(&set), ["offloaded", "user", "user"], "#2 comes before #1");
        because(&set, 1, "rule #2 comes before it");
        because(&set, 2, "refuses it: an odd priority");
        create(&mut set, 4, "54");
        create(&mut set, 8, "55");
        assert_eq!(places(&set), ["offloaded", "user", "user", "user", "offloaded"]);
        // A port has no order among equals.
        create(&mut set, 8, "55");
        because(&set, 5, "rule #4 comes before it");
        assert_eq!(*lock(&taken), [0, 4]);
        assert_eq!(set.shape().entries, 6, "the worker has all of them");
    }

    #[test]
    fn a_rule_is_offered_again_when_the_one_before_it_has_gone() {
        let (mut set, taken) = offered();
        create(&mut set, 6, "54");
        create(&mut set, 3, "54");
        assert_eq!(places(&set), ["user", "user"]);
        run(&mut set, "flow destroy 0 rule 1");
        assert_eq!(places(&set), ["user"], "not in force");
        assert_eq!(set.commit(), Commit::Done);
        assert_eq!((places(&set), lock(&taken).clone()), (vec!["offloaded"], vec![0]));
        run(&mut set, "flow flush 0");
        assert!(lock(&taken).is_empty());
    }

    #[test]
    fn what_the_port_dropped_and_what_it_let_through_are_one_count() {
        let (mut set, _) = offered();
        let mut feed = set.feed().expect("a set of user space");
        create(&mut set, 2, "53");
        feed.take();
        let frames = |set: &RuleSet| set.hits(0, 0).expect("it is there").frames;
        assert_eq!(frames(&set), 40);
        assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop), "the port let it through");
        assert_eq!(frames(&set), 41);
        // It gives way to a rule that the port refuses, and what it had counted there stays.
        create(&mut set, 1, "53");
        assert_eq!((places(&set), frames(&set)), (vec!["user", "user"], 41));
    }

    #[test]
    fn rules_of_before_are_offered_and_taken_back_when_the_port_closes() {
        let (mut set, taken) = (set(), Arc::default());
        create(&mut set, 2, "53");
        because(&set, 0, "take no rules");
        set.offer_to(Box::new(Even(Arc::clone(&taken))));
        assert_eq!(set.commit(), Commit::Done);
        assert_eq!(places(&set), ["offloaded"]);
        set.withdraw();
        assert!(lock(&taken).is_empty());
        assert_eq!(places(&set), ["offloaded"], "where it was executed");
        assert_eq!(set.hits(0, 0).expect("it is there").frames, 40);
    }

    #[test]
    fn what_cannot_be_said_to_a_port_stays_with_the_worker_and_says_why() {
        let (mut set, taken) = offered();
        run(&mut set, "flow create 0 ingress pattern eth / ipv4 / end actions dec_ttl / end");
        assert_eq!(set.commit(), Commit::Done);
        because(&set, 0, "no port is asked, because of `dec_ttl`");
        assert!(lock(&taken).is_empty());
    }

    #[test]
    fn a_port_is_not_offered_sets_too_large_to_compare() {
        let (mut set, taken) = offered();
        for port in 0..=OFFERED_RULES_MAX {
            run(&mut set, &DROP_53.replace("53", &port.to_string()));
        }
        assert_eq!(set.commit(), Commit::Done);
        assert!(lock(&taken).is_empty());
        because(&set, 0, "up to 256 rules");
    }

    #[test]
    fn every_rule_says_where_it_is_executed_and_why() {
        let mut user = set();
        run(&mut user, DROP_53);
        assert_eq!(user.placement(0, 0).expect("there").place, Place::User);
        let mut kernel = RuleSet::for_kernel(BOUNDS);
        run(&mut kernel, DROP_53);
        let placement = kernel.placement(0, 0).expect("there");
        assert_eq!(placement.place, Place::Kernel);
        assert!(placement.reason.contains("XDP"), "{placement:?}");
    }

    #[test]
    fn a_full_table_of_the_kernel_half_is_said_before_anything_changes() {
        let mut set = RuleSet::for_kernel(BOUNDS);
        // Equal values: each mask has one of them, and the line the rest.
        for _ in 0..KERNEL_MASKS_MAX + KERNEL_LINE_MAX {
            run(&mut set, DROP_53);
        }
        let shape = set.shape();
        assert_eq!((shape.masks, shape.in_line), (KERNEL_MASKS_MAX, KERNEL_LINE_MAX));
        let why = set.run(DROP_53).expect_err("full").to_string();
        assert!(why.contains("no room for 1 more") && why.contains("128 masks"), "{why}");
        assert!(why.contains("tries 64") && why.contains("up to 131072 rules"), "{why}");
        assert_eq!((set.len(), set.shape()), (KERNEL_MASKS_MAX + KERNEL_LINE_MAX, shape));
        // A value that a mask has free.
        run(&mut set, &DROP_53.replace("53", "54"));
        let range = DROP_53.replace("dst is 53", "dst spec 1 dst last 65534");
        set.run("flow flush 0").expect("it is there");
        run(&mut set, &range);
        assert_eq!(
            set.shape().entries,
            30,
            "one rule, as many masks and values as its range needs"
        );
    }

    #[test]
    fn a_file_that_does_not_fit_the_kernel_half_says_the_line_and_changes_nothing() {
        let mut set = RuleSet::for_kernel(BOUNDS);
        run(&mut set, DROP_53);
        let file = format!("{DROP_53}\n").repeat(KERNEL_MASKS_MAX + KERNEL_LINE_MAX);
        let why = set.load(&format!("{file}{DROP_53}")).expect_err("one too many").to_string();
        assert!(why.starts_with("line 193: ") && why.contains("no room"), "{why}");
        assert_eq!(set.len(), 1);
        assert_eq!(set.load(&file), Ok(192), "beside those that it replaces");
    }
}
