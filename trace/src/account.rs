//! Where every nanosecond of a worker went: made before any detector looks at anything.
//!
//! The parts add up to the span of the worker exactly. What the kernel did, and polls reported afterwards, are in the
//! thread's [`Ledger`](crate::ledger::Ledger); what its functions had is known per context. Of that, stretches far
//! longer than the function usually takes are taken out: with the kernel's events they are the function's doing,
//! without them their cause is unknown. What is left is work, by layer, less what the tracer costs.
//!
//! Time between the calls of our own loop is the loop's. A remainder that nothing explains is unknown, and reported as
//! unknown.

use std::collections::HashMap;

use laneway_trace_read::{FunctionKey, PAGE_FAULT, SOFTIRQ_BASE};

use crate::calls::{self, Kind};
use crate::ledger::{Paused, STRETCH_NS_MIN, Sum, Taken};
use crate::machine::{PseudoCall, ThreadState};
use crate::model::Model;
use crate::result::{
    ACCOUNTS_MAX, Account, AccountPart, CalibrationSource, Layer, PARTS_MAX, Part,
};
use crate::tree::NONE;

/// Share of a worker's time from which something is worth saying.
pub(crate) const SHARE_MIN: f64 = 0.01;
/// A stretch so many times as long as a call of its function usually is none of its usual work ...
const PAUSE_FACTOR: u64 = 10;
/// ... and it is at least so long, ns.
const PAUSE_NS_MIN: u64 = 50_000;
/// A function that is called once in so many rounds of its caller, or more rarely, and so long each time, ns, is no
/// work on packets.
const RARE_ROUNDS: u64 = 20;
const RARE_NS_MIN: u64 = 200_000;
/// A call is one per packet, or one per poll, if it calls another function so many times.
const BATCH: u64 = 4;
/// A thread does work if it has this share of what the busiest has.
const WORKER_SHARE: f64 = 0.25;
/// Our own loop's point for time that passes: no packet needs it.
const TICK: &str = "app.tick";
/// How the kernel calls the idle task of a CPU, but for its number.
const IDLE_TASK: &str = "swapper/";
/// From a wake-up to the CPU, where no task had it and it took no longer than that.
const WAKE_UP: &str = "waking up";
/// Where no function is open.
const OUTSIDE: &str = "outside of traced calls";

/// A worker, its account, and what the causes are looked for in.
#[derive(Debug)]
pub(crate) struct TracedWorker {
    pub(crate) account: Account,
    /// Parts that kept it from polling, with the moments at which they began.
    pub(crate) gaps: Vec<Gap>,
    /// Work by row of the model, corrected, ns.
    pub(crate) functions: Vec<(u32, f64)>,
    /// How long it was in which function on its CPU, by row of the model, polls that found nothing and the tracer
    /// included, ns: where something that takes the CPU unseen would find it.
    pub(crate) present: HashMap<u32, u64>,
    /// What the kernel did is recorded.
    pub(crate) joined: bool,
    /// It polls for packets, and those polls are known.
    pub(crate) polls: bool,
}

/// What keeps a worker from its loop.
#[derive(Debug, Clone)]
pub(crate) struct Gap {
    pub(crate) part: Part,
    /// The thread, the thing, or the place.
    pub(crate) name: String,
    /// Of a thread that is blocked: what for.
    pub(crate) kind: Kind,
    pub(crate) by: String,
    pub(crate) ns: u64,
    pub(crate) times: u64,
    pub(crate) longest_ns: u64,
    /// Mean moment, as a share of the span.
    pub(crate) when: f64,
    pub(crate) moments: Vec<u64>,
    /// Its usual call is long: it does not only happen there.
    pub(crate) is_its_own: bool,
}

impl TracedWorker {
    /// Share of its time in a part.
    pub(crate) fn share(&self, part: Part) -> f64 {
        self.rows(part).map(|row| row.share).sum()
    }

    pub(crate) fn rows(&self, part: Part) -> impl Iterator<Item = &AccountPart> {
        self.account.parts.iter().filter(move |row| row.part == part)
    }

    /// Time in which it had nothing to do.
    pub(crate) fn spare(&self) -> f64 {
        self.share(Part::EmptyPolls) + self.share(Part::Waiting)
    }

    /// Share of its time that it waits for other threads, where that is no fault: a worker that does not poll may wait
    /// for something to do.
    pub(crate) fn awaits_others(&self) -> f64 {
        let waits = self.gaps.iter().filter(|gap| !self.polls && gap.kind == Kind::Lock);
        waits.map(|gap| gap.ns).sum::<u64>() as f64 / self.account.span_ns.max(1) as f64
    }

    /// Is the cost of the tracer known well enough to blame what is left?
    pub(crate) fn is_cost_known(&self, model: &Model) -> bool {
        let unsure: u64 = self.rows(Part::Tracer).map(|row| row.uncertainty_ns).sum();
        let work = self.share(Part::Work) * self.account.span_ns as f64;
        match model.calibration.source {
            CalibrationSource::None => model.calls() == 0,
            _ => (unsure as f64) < 0.5 * work,
        }
    }
}

/// The workers, the busiest first.
pub(crate) fn workers(model: &Model) -> Vec<TracedWorker> {
    let mut workers: Vec<TracedWorker> =
        (0..model.states.len()).filter_map(|thread| Books::new(model, thread)?.close()).collect();
    if workers.iter().any(|worker| worker.polls) {
        workers.retain(|worker| worker.polls);
    }
    let busy = |worker: &TracedWorker| -> u64 {
        let on = |part: &&AccountPart| {
            !matches!(part.part, Part::Waiting | Part::Blocked | Part::Preempted)
        };
        worker.account.parts.iter().filter(on).map(|part| part.ns).sum()
    };
    let busiest = workers.iter().map(busy).max().unwrap_or(0) as f64;
    workers.retain(|worker| worker.polls || busy(worker) as f64 >= WORKER_SHARE * busiest);
    workers.sort_by_key(|worker| std::cmp::Reverse((busy(worker), worker.account.span_ns)));
    workers.truncate(ACCOUNTS_MAX);
    workers
}

/// An account while it is made.
struct Books<'a> {
    model: &'a Model,
    thread: usize,
    state: &'a ThreadState,
    joined: bool,
    parts: HashMap<(Part, String), (u64, f64)>,
    gaps: Vec<Gap>,
    functions: HashMap<u32, f64>,
    present: HashMap<u32, u64>,
}

impl<'a> Books<'a> {
    /// `None` for a thread of which the program tells nothing.
    fn new(model: &'a Model, thread: usize) -> Option<Self> {
        let state = &model.states[thread];
        let ledger = &state.ledger;
        (state.is_programs() && ledger.last_ns > ledger.first_ns).then(|| Self {
            model,
            thread,
            state,
            joined: state.kernel_events > 0,
            parts: HashMap::new(),
            gaps: Vec::new(),
            functions: HashMap::new(),
            present: HashMap::new(),
        })
    }

    fn close(mut self) -> Option<TracedWorker> {
        let ledger = &self.state.ledger;
        let span_ns = ledger.last_ns - ledger.first_ns;
        self.add(Part::Unknown, "events are missing", ledger.missing_ns, 0.0);
        self.add(Part::Unknown, "", ledger.others_ns, 0.0);
        for (taken, sum) in &ledger.rows {
            self.taken(*taken, sum);
        }
        let rare = self.rare();
        for (node, &spent) in self.state.spent.iter().enumerate() {
            if spent > 0 && node < self.model.contexts.len() {
                self.context(node as u32, spent, rare[node]);
            }
        }
        self.outside();
        self.balance(span_ns);
        let polls = !self.state.points.polls.is_empty()
            || self.model.polls.iter().any(|poll| {
                self.state.spent.get(poll.context as usize).is_some_and(|&spent| spent > 0)
            });
        let mut functions: Vec<(u32, f64)> = self.functions.into_iter().collect();
        functions.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let packets = self.state.points.polls.iter().map(|row| row.packets).sum();
        Some(TracedWorker {
            account: Account {
                thread: self.thread as u32,
                name: self.state.thread.name.clone(),
                span_ns,
                packets,
                parts: parts(self.parts, span_ns),
            },
            gaps: self.gaps,
            functions,
            present: self.present,
            joined: self.joined,
            polls,
        })
    }

    fn add(&mut self, part: Part, detail: &str, ns: u64, uncertainty_ns: f64) {
        if ns == 0 {
            return;
        }
        let sum = self.parts.entry((part, detail.to_owned())).or_default();
        *sum = (sum.0 + ns, sum.1 + uncertainty_ns);
    }

    fn named(&self, key: Option<FunctionKey>) -> &str {
        key.and_then(|key| self.model.named.get(&key)).map_or("", String::as_str)
    }

    fn when(&self, sum: &Sum) -> f64 {
        let span_ns = (self.state.ledger.last_ns - self.state.ledger.first_ns) as f64;
        sum.moment / (sum.ns as f64).max(1.0) / span_ns.max(1.0)
    }

    /// What the kernel did, or a run of empty polls.
    fn taken(&mut self, taken: Taken, sum: &Sum) {
        let mut gap = Gap {
            part: Part::Unknown,
            name: String::new(),
            kind: Kind::Other,
            by: String::new(),
            ns: sum.ns,
            times: sum.times,
            longest_ns: sum.longest_ns,
            when: self.when(sum),
            moments: sum.moments.clone(),
            is_its_own: true,
        };
        match taken {
            Taken::Empty(Some((port, queue))) => {
                let detail = format!("port {port} queue {queue}");
                return self.add(Part::EmptyPolls, &detail, sum.ns, 0.0);
            }
            Taken::Empty(None) => return self.add(Part::EmptyPolls, "", sum.ns, 0.0),
            Taken::FoundNothing(call) => {
                return self.add(Part::EmptyPolls, &calls::name(call), sum.ns, 0.0);
            }
            Taken::Interrupt(PAGE_FAULT) => gap.part = Part::PageFaults,
            Taken::Interrupt(vector) => {
                gap.part = Part::Interrupts;
                gap.name = interrupt(vector);
            }
            Taken::Queued { behind, long } => {
                let name = self.named(behind);
                let is_idle = name.is_empty() || name.starts_with(IDLE_TASK);
                let (part, name) = match (is_idle, long) {
                    (true, false) => (Part::Waiting, WAKE_UP),
                    (true, true) => (Part::Preempted, ""),
                    (false, _) => (Part::Preempted, name),
                };
                (gap.part, gap.name) = (part, name.to_owned());
            }
            Taken::Blocked { call, node, by } => {
                gap.by = match self.named(by) {
                    "" if by.is_some() => "an interrupt".to_owned(),
                    name => name.to_owned(),
                };
                (gap.name, gap.kind) = match call {
                    Some(call) => (calls::name(call), calls::kind(call)),
                    None => self.blocked_in(node),
                };
                // Its timer ends a sleep: a name is that of a task which the timer's interrupt met.
                if gap.kind == Kind::Sleep {
                    gap.by.clear();
                }
                gap.part = match gap.kind {
                    Kind::Wait | Kind::Receive => Part::Waiting,
                    Kind::Sleep if self.sleeps_when_idle(call, node) => Part::Waiting,
                    _ => Part::Blocked,
                };
            }
            Taken::Syscall(call) => {
                (gap.kind, gap.name) = (calls::kind(call), calls::name(call));
                if gap.kind == Kind::Sleep && self.sleeps_when_idle(Some(call), NONE) {
                    return self.add(Part::Waiting, &gap.name, sum.ns, 0.0);
                }
                let usual = match gap.kind {
                    Kind::Receive | Kind::Send | Kind::Wait => sum.ns,
                    Kind::Transfer => sum.ns - sum.long_ns,
                    Kind::Sleep | Kind::Lock | Kind::Other => 0,
                };
                self.add(Part::Work, Layer::Kernel.name(), usual, 0.0);
                gap.ns -= usual;
                gap.part = Part::SystemCall;
            }
        }
        let detail = match gap.by.as_str() {
            "" => gap.name.clone(),
            by if gap.part == Part::Blocked => format!("{}, woken by {by}", gap.name),
            _ => gap.name.clone(),
        };
        self.add(gap.part, &detail, gap.ns, 0.0);
        if gap.ns > 0 && gap.part != Part::Waiting {
            self.gaps.push(gap);
        }
    }

    /// Where system calls are not recorded, the function names what a thread is blocked in.
    fn blocked_in(&self, node: u32) -> (String, Kind) {
        let Some(context) = self.model.contexts.get(node as usize) else {
            return (String::new(), Kind::Wait);
        };
        let name = &self.model.rows[context.row as usize].name;
        let kind = match calls::kind_of_name(name) {
            Some(kind) => kind,
            None if context.layer == Layer::OffCpu => Kind::Wait,
            None => Kind::Other,
        };
        (name.clone(), kind)
    }

    /// A loop that sleeps after nearly every poll that found nothing waits for packets, in its way. It sleeps in this
    /// call, or, where calls are not recorded, in this context, by any waker.
    fn sleeps_when_idle(&self, call: Option<u32>, node: u32) -> bool {
        let here = |taken: &Taken| match *taken {
            Taken::Blocked { call: other, node: there, .. } => (other, there) == (call, node),
            _ => false,
        };
        let all = self.state.ledger.rows.iter();
        let times: u64 = all.filter(|(taken, _)| here(taken)).map(|(_, sum)| sum.times).sum();
        let recorded: u64 = self.state.points.polls.iter().map(|row| row.empty).sum();
        let called: u64 = self.model.polls.iter().map(|poll| poll.empty).sum();
        let rows = self.state.ledger.rows.iter();
        let returned: u64 = rows
            .filter(|(taken, _)| matches!(taken, Taken::FoundNothing(_)))
            .map(|(_, sum)| sum.times)
            .sum();
        let empty = if recorded > 0 { recorded } else { called.max(returned) };
        empty > 0 && 2 * times >= empty
    }

    /// Contexts that are called rarely and take long, and all below them: by the outermost, `NONE` elsewhere.
    fn rare(&self) -> Vec<u32> {
        let contexts = &self.model.contexts;
        let mut rounds: HashMap<Option<u32>, u64> = HashMap::new();
        for context in contexts.iter().filter(|context| !context.own) {
            let most = rounds.entry(context.parent).or_default();
            *most = (*most).max(context.calls);
        }
        let receives: Vec<bool> = contexts
            .iter()
            .map(|context| {
                let name = &self.model.rows[context.row as usize].name;
                self.model.rules.is_receive_root(name) || self.model.rules.is_send_root(name)
            })
            .collect();
        let mut rare = vec![NONE; contexts.len()];
        for (at, context) in contexts.iter().enumerate() {
            if let Some(above) = context.parent.map(|parent| rare[parent as usize])
                && above != NONE
            {
                rare[at] = above;
                continue;
            }
            let most = rounds.get(&context.parent).copied().unwrap_or(0);
            let calls = context.calls.max(1);
            let mean_ns = context.whole_ns / calls;
            let batches = context
                .children
                .iter()
                .any(|&child| contexts[child as usize].calls >= BATCH * calls)
                && mean_ns < 10 * RARE_NS_MIN;
            let name = &self.model.rows[context.row as usize].name;
            let is_rare = context.calls > 0
                && context.calls.saturating_mul(RARE_ROUNDS) <= most
                && mean_ns >= RARE_NS_MIN
                && !batches;
            if !context.own
                && !receives[at]
                && context.layer != Layer::OffCpu
                && (is_rare || name == TICK)
            {
                rare[at] = at as u32;
            }
        }
        rare
    }

    /// What a context had of the thread's time.
    fn context(&mut self, node: u32, spent: u64, rare: u32) {
        let model = self.model;
        let context = &model.contexts[node as usize];
        if self.is_kernels(context.row) {
            return;
        }
        let row = &model.rows[context.row as usize];
        let whole = (context.self_ns as f64).max(1.0);
        let part_of = spent as f64 / whole;
        let mut left = spent;
        // A handler that is asynchronous, or a point's own time, is not corrected.
        let cost_ns = (part_of * (whole - context.self_corrected_ns)).max(0.0) as u64;
        let unsure = part_of * context.calls as f64 * model.calibration.uncertainty_ns;
        let unsure = if context.own { 0.0 } else { unsure.min(spent as f64) };
        if rare == NONE {
            left -= self.pauses(node, left);
            if context.layer != Layer::OffCpu {
                *self.present.entry(context.row).or_default() += left;
            }
        }
        let tracer = match context.layer {
            Layer::Tracer => left,
            // What was taken out above were no calls that it made longer.
            _ => cost_ns.min(left),
        };
        self.add(Part::Tracer, "", tracer, unsure);
        left -= tracer;
        if rare != NONE {
            let top = &model.contexts[rare as usize];
            let name = model.rows[top.row as usize].name.clone();
            self.add(Part::Function, &name, left, unsure);
            self.rare_gap(rare, &name, left);
            return;
        }
        if context.layer == Layer::OffCpu {
            return self.add(Part::Waiting, &row.name, left, 0.0);
        }
        let idle = (context.idle_ns as f64 / whole * left as f64) as u64;
        self.add(Part::EmptyPolls, "", idle, unsure * idle as f64 / (left.max(1)) as f64);
        left -= idle;
        self.add(Part::Work, context.layer.name(), left, unsure);
        *self.functions.entry(context.row).or_default() += left as f64;
    }

    fn is_kernels(&self, row: u32) -> bool {
        let kernel = [
            PseudoCall::Preempted,
            PseudoCall::Waiting,
            PseudoCall::Interrupt,
            PseudoCall::Syscall,
            PseudoCall::PageFault,
        ];
        kernel.iter().any(|&own| self.model.row_of[own as usize] == row)
    }

    /// Takes out stretches of a context that are far longer than its calls usually are; how long they were together,
    /// ns.
    fn pauses(&mut self, node: u32, left: u64) -> u64 {
        let Some(paused) = self.state.ledger.paused.get(&node) else { return 0 };
        let context = &self.model.contexts[node as usize];
        if context.layer == Layer::OffCpu || context.layer == Layer::Tracer {
            return 0;
        }
        let usual = context.histogram.quantile(0.5).unwrap_or(0);
        let name = self.model.rows[context.row as usize].name.clone();
        let least_ns = (PAUSE_FACTOR * usual).max(PAUSE_NS_MIN);
        self.pause(&name, paused, least_ns, left)
    }

    fn pause(&mut self, name: &str, paused: &Paused, least_ns: u64, left: u64) -> u64 {
        let (ns, times) = paused.beyond(least_ns);
        let ns = ns.min(left);
        if ns == 0 {
            return 0;
        }
        // What no function had may be the loop, or a hypervisor that took the CPU: the kernel cannot tell either.
        let (part, detail) = match self.joined && name != OUTSIDE {
            true => (Part::Function, name.to_owned()),
            false if name == OUTSIDE => (Part::Unknown, name.to_owned()),
            false => (Part::Unknown, format!("in {name}")),
        };
        self.add(part, &detail, ns, 0.0);
        let ledger = &self.state.ledger;
        let span_ns = (ledger.last_ns - ledger.first_ns) as f64;
        let moments = paused.moments.iter().filter(|moment| moment.1 >= least_ns);
        let moments: Vec<u64> = moments.map(|moment| moment.0).collect();
        let sum: f64 = moments.iter().map(|&at| at.saturating_sub(ledger.first_ns) as f64).sum();
        self.gaps.push(Gap {
            part,
            name: name.to_owned(),
            kind: Kind::Other,
            by: String::new(),
            ns,
            times,
            longest_ns: paused.longest_ns,
            when: sum / (moments.len() as f64).max(1.0) / span_ns.max(1.0),
            moments,
            is_its_own: false,
        });
        ns
    }

    fn rare_gap(&mut self, top: u32, name: &str, ns: u64) {
        if ns == 0 {
            return;
        }
        let context = &self.model.contexts[top as usize];
        let known = self.gaps.iter_mut().find(|gap| gap.part == Part::Function && gap.name == name);
        if let Some(gap) = known {
            gap.ns += ns;
            return;
        }
        let below = self.state.ledger.paused.iter().filter(|(node, _)| {
            **node == top || self.model.ancestors_or_none(**node).any(|above| above == top)
        });
        let mut moments: Vec<u64> = below
            .flat_map(|(_, paused)| paused.moments.iter())
            .filter(|moment| moment.1 >= PAUSE_NS_MIN)
            .map(|moment| moment.0)
            .collect();
        moments.sort_unstable();
        self.gaps.push(Gap {
            part: Part::Function,
            name: name.to_owned(),
            kind: Kind::Other,
            by: String::new(),
            ns,
            times: context.calls,
            longest_ns: context.max_ns,
            when: 0.5,
            moments,
            is_its_own: true,
        });
    }

    /// Long stretches in which nothing was open.
    fn outside(&mut self) {
        let Some(paused) = self.state.ledger.paused.get(&NONE) else { return };
        let paused = paused.clone();
        self.pause(OUTSIDE, &paused, STRETCH_NS_MIN, u64::MAX);
    }

    /// The rest, which is what the loop does between its calls; or less than nothing, where clocks were rounded.
    fn balance(&mut self, span_ns: u64) {
        let sum: u64 = self.parts.values().map(|part| part.0).sum();
        if sum <= span_ns {
            self.add(Part::Work, Layer::Application.name(), span_ns - sum, 0.0);
            return;
        }
        let mut over = sum - span_ns;
        while over > 0 {
            let Some(largest) = self.parts.values_mut().max_by_key(|part| part.0) else { return };
            let less = over.min(largest.0);
            largest.0 -= less;
            over -= less;
            if less == 0 {
                return;
            }
        }
    }
}

/// Rows of a result, largest first; what is beyond their limit is added up by kind.
fn parts(sums: HashMap<(Part, String), (u64, f64)>, span_ns: u64) -> Vec<AccountPart> {
    let row = |part: Part, detail: String, ns: u64, unsure: f64| AccountPart {
        part,
        detail,
        ns,
        share: ns as f64 / span_ns.max(1) as f64,
        uncertainty_ns: unsure as u64,
    };
    let sums = sums.into_iter().filter(|(_, sum)| sum.0 > 0);
    let mut rows: Vec<AccountPart> =
        sums.map(|((part, detail), (ns, unsure))| row(part, detail, ns, unsure)).collect();
    rows.sort_by(|a, b| {
        b.ns.cmp(&a.ns).then(a.part.cmp(&b.part)).then_with(|| a.detail.cmp(&b.detail))
    });
    let kinds = Part::ALL.len();
    if rows.len() <= PARTS_MAX {
        return rows;
    }
    for left in rows.split_off(PARTS_MAX - kinds) {
        match rows.iter_mut().find(|row| row.part == left.part && row.detail == "others") {
            Some(others) => {
                others.ns += left.ns;
                others.share += left.share;
                others.uncertainty_ns += left.uncertainty_ns;
            }
            None => rows.push(AccountPart { detail: "others".to_owned(), ..left }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows
}

/// What an interrupt is called.
fn interrupt(vector: u32) -> String {
    /// `softirq_to_name` of the kernel, kernel/softirq.c.
    const SOFTIRQS: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    match vector.checked_sub(SOFTIRQ_BASE) {
        Some(softirq) => match SOFTIRQS.get(softirq as usize) {
            Some(name) => format!("softirq {name}"),
            None => format!("softirq {softirq}"),
        },
        None => format!("interrupt {vector}"),
    }
}
