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
//! rule that is gone rests until no worker can count there any more.
//!
//! Where the rules of a run are executed is one [`ExecutionPlace`]: a lane shows its frames to user space, or
//! the kernel half has them. A port that takes rules itself ([`Offload`]) is offered each one once it is
//! in force, if no rule that comes before it can match the same frames: the port decides before all
//! software does. The software keeps the rule for whatever the port does not recognise, so what a
//! frame meets is the same with and without the port.
//!
//! For the kernel half there is one [`Bank`], which knows what the kernel has, and a commit is the list of
//! what changes there ([`Change`]); the next one waits until the kernel has it.

mod kernel;
mod offers;
mod workers;

use crate::{
    bank::{Bank, KERNEL_ENTRIES_MAX},
    compile::{Bounds, Compiled, Entry, RULES_MAX, RuleRefused, compile},
    grammar::{Action, Attributes, Command, Rule},
    parser::parse_command,
    table::{Shape, Table},
    tuple::SLOTS_MAX,
};
pub(crate) use kernel::KernelChange;
pub use kernel::KernelFeed;
use kernel::{Handover, KernelPublisher};
use laneway_flow::pattern::{HeaderKind as _, SyntaxError};
use laneway_flow::{Offload, PortHits};
use offers::AtPort;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use workers::{Count, Op, Publisher, Shared};
pub use workers::{Headers, RuleFeed};

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
pub enum ExecutionPlace {
    /// By the port itself.
    Offloaded,
    /// By the XDP program, from its maps.
    Kernel,
    /// By the worker.
    User,
}

impl ExecutionPlace {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            ExecutionPlace::Offloaded => "offloaded",
            ExecutionPlace::Kernel => "kernel",
            ExecutionPlace::User => "user",
        }
    }
}

/// Where a rule is executed, and why there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where.
    pub place: ExecutionPlace,
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
                let mut text = String::new();
                for id in ids {
                    // Named twice in one line: gone the first time.
                    if self.destroy(port, id).is_ok() {
                        let _ = writeln!(text, "Flow rule #{id} destroyed");
                    }
                }
                Ok(text)
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
        // What the port dropped is counted by the port alone; everything else is counted by its receiver.
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
            if installed.rule.attributes.group == 0 {
                self.give_way(port, rank, id, &compiled.entries);
            }
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

    fn entries_of(&self, rule: &Rule) -> Vec<Entry> {
        compile(rule, self.bounds).expect("it was compiled before").entries
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
        // A rule that was added and removed between two commits was in no table: no worker counts for it.
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
        let mut text = "ID\tGroup\tPrio\tAttr\tRule\n".to_owned();
        for (group, priority, id, rule) in listed {
            let ingress = if rule.attributes.ingress { 'i' } else { '-' };
            let transfer = if rule.attributes.transfer { 't' } else { '-' };
            let _ = write!(text, "{id}\t{group}\t{priority}\t{ingress}-{transfer}\t");
            for item in &rule.pattern {
                let _ = write!(text, "{} ", item.kind.word().to_uppercase());
            }
            text.push_str("=>");
            for action in &rule.actions {
                let _ = write!(text, " {}", action.word().to_uppercase());
            }
            text.push('\n');
        }
        Ok(text)
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

/// Updates under these locks are atomic with respect to panics.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
