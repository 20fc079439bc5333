//! The machine's numbers with names and rules applied: what tables and detectors are made from.
//!
//! Done once, after reading. Contexts keep the tree's numbers; functions of one name (inlined copies at
//! several addresses) share a row. Nothing here looks at events any more.
//!
//! Two things are reckoned here and not read. *Idle time* of producers without poll events: the time of
//! calls that called nothing which finding a packet would have called is exact; how it spreads over what
//! they did call is shared out by calls per variant. *Corrected time*: see [`Model::correct`].

use std::collections::HashMap;
use std::sync::Arc;

use laneway_trace_read::FunctionKey;

use crate::histogram::Histogram;
use crate::ledger::Taken;
use crate::machine::{Counts, Machine, PseudoCall, ThreadState};
use crate::points::Pools;
use crate::result::{Calibration, CalibrationSource, Layer, Packets, Span};
use crate::rules::{PollResult, Rules};
use crate::series::{OTHERS, Timed};
use crate::tree::{NONE, Variant};

/// A name of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// As a person writes it; module and offset, or the address, if unknown.
    pub text: String,
    /// A symbol was found.
    pub known: bool,
}

/// Leaf calls needed to estimate what the tracer costs.
const LEAVES_MIN: u64 = 1_000;
/// Largest cost per call that is believed to be a tracer's, ns. Longer shortest calls did work.
const COST_NS_MAX: u64 = 1_000;
/// A usual call costs at most so many times what the cheapest does; what is longer did work.
const USUAL_MAX: u64 = 2;
/// Parents under which a function must appear to be a handler by habit alone.
const HANDLER_PARENTS_MIN: usize = 3;
/// ... and in at most this share of the calls of each of them.
const HANDLER_SHARE_MAX: f64 = 0.05;
/// Correction beyond this share of the raw self time: the instrumentation dominates.
const DOMINATED_SHARE: f64 = 0.5;
/// A call in the program may cost so much more or less than one that was measured alone, as a share.
const MEASURED_APART: f64 = 0.25;
/// What the shortest leaf may do of its own, ns: a function that only reads a clock takes so long.
pub(crate) const LEAF_NS: f64 = 20.0;
/// A wrapper and what it wraps may differ by the calls that are open where the trace begins or ends.
const WRAPPER_CALLS_APART: u64 = 2;

/// A context with everything known of it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) parent: Option<u32>,
    pub(crate) children: Vec<u32>,
    pub(crate) row: u32,
    pub(crate) layer: Layer,
    pub(crate) asynchronous: bool,
    pub(crate) calls: u64,
    pub(crate) cut: u64,
    pub(crate) total_ns: u64,
    pub(crate) self_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) total_corrected_ns: f64,
    pub(crate) self_corrected_ns: f64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) max_at_ns: u64,
    pub(crate) max_thread: u32,
    pub(crate) whole_ns: u64,
    pub(crate) squares: f64,
    pub(crate) histogram: Histogram,
    pub(crate) variants: Vec<Variant>,
    bit: u64,
    pub(crate) own: bool,
}

/// A function over all its contexts.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) known: bool,
    pub(crate) own: bool,
    pub(crate) asynchronous: bool,
    pub(crate) contexts: Vec<u32>,
    pub(crate) calls: u64,
    pub(crate) cut: u64,
    pub(crate) total_ns: u64,
    pub(crate) self_ns: u64,
    pub(crate) total_corrected_ns: f64,
    pub(crate) self_corrected_ns: f64,
    pub(crate) dominated: bool,
    pub(crate) histogram: Histogram,
    /// Share of its self time per layer, in [`Layer::ALL`]'s order; idle time under idle.
    pub(crate) layer_shares: [f64; Layer::ALL.len()],
    /// Share of its self time, without idle, under receiving and under sending.
    pub(crate) receive_share: f64,
    pub(crate) send_share: f64,
    /// Share of its calls that stand for one received packet each.
    pub(crate) packet_share: f64,
}

/// Polls known from calls only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallPolls {
    pub(crate) context: u32,
    pub(crate) polls: u64,
    pub(crate) empty: u64,
    pub(crate) empty_ns: u64,
    pub(crate) productive_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Model {
    /// What names mean.
    pub(crate) rules: Arc<Rules>,
    pub(crate) counts: Counts,
    pub(crate) span: Span,
    /// The part of it in which the program recorded something: the kernel's view begins before, and goes on.
    pub(crate) recorded: Span,
    pub(crate) contexts: Vec<Context>,
    pub(crate) rows: Vec<Row>,
    pub(crate) states: Vec<ThreadState>,
    /// Per thread; cells carry rows.
    pub(crate) timed: Vec<Timed>,
    pub(crate) pools: Pools,
    pub(crate) calibration: Calibration,
    pub(crate) packets: Packets,
    pub(crate) polls: Vec<CallPolls>,
    /// Names of tasks and of reasons for loss.
    pub(crate) named: HashMap<FunctionKey, String>,
    /// Row by the machine's number of a function.
    pub(crate) row_of: Vec<u32>,
    pub(crate) keys: HashMap<FunctionKey, u32>,
    pub(crate) refused_contexts: u64,
}

impl Model {
    /// `measured`: inside and outside cost of a call in ns, if they were measured.
    pub(crate) fn new(
        mut machine: Machine,
        name: &mut dyn FnMut(FunctionKey) -> Name,
        measured: Option<(f64, f64)>,
        rules: Arc<Rules>,
    ) -> Self {
        machine.finish();
        let (mut rows, row_of) = rows(&machine.keys, name);
        let named = named(&machine.states, name);
        let mut contexts = contexts(&mut machine, &row_of, &rows);
        detach_handlers(&mut contexts, &mut rows, &rules);
        add_children(&mut contexts);
        set_layers(&mut contexts, &rows, &rules);
        let polls = find_idle(&mut contexts, &rows, &rules);
        let span = span(&machine.states);
        let mut timed = Vec::new();
        for state in &mut machine.states {
            let series = std::mem::replace(&mut state.series, crate::series::Series::new(1));
            timed.push(by_row(series.finish(), &row_of, rows.len()));
        }
        let keys = machine.keys.iter().zip(&row_of).skip(PseudoCall::ALL.len());
        let keys = keys.map(|(&key, &row)| (key, row)).collect();
        let recorded = recorded(&machine.states, span);
        let packets =
            packets(&contexts, &rows, &machine.states, &machine.counts, (recorded, &rules));
        let mut model = Self {
            calibration: calibration(&contexts, &machine.gaps, measured),
            counts: machine.counts,
            span,
            contexts,
            rows,
            rules,
            recorded,
            states: machine.states,
            timed,
            pools: machine.pools,
            packets,
            polls,
            named,
            row_of,
            keys,
            refused_contexts: machine.tree.refused,
        };
        model.correct();
        model.fill_rows();
        model
    }

    /// Takes the tracer's cost off:
    /// self' = self - calls inside - child calls outside, total' = total - calls inside - (inside + outside)
    /// calls of all descendants; never below 0.
    fn correct(&mut self) {
        let Calibration { inside_ns, outside_ns, .. } = self.calibration;
        let traced = |context: &Context| {
            if context.own { 0.0 } else { (context.calls + context.cut) as f64 }
        };
        let mut descendants = vec![0.0; self.contexts.len()];
        let mut children = vec![0.0; self.contexts.len()];
        for index in (0..self.contexts.len()).rev() {
            if let Some(parent) = self.contexts[index].parent {
                let calls = traced(&self.contexts[index]);
                children[parent as usize] += calls;
                descendants[parent as usize] += calls + descendants[index];
            }
        }
        let (mut cost, mut whole) = (0.0, 0.0);
        for (index, context) in self.contexts.iter_mut().enumerate() {
            let calls = traced(context);
            let self_cost = calls * inside_ns + children[index] * outside_ns;
            let total_cost = calls * inside_ns + (inside_ns + outside_ns) * descendants[index];
            context.self_corrected_ns = (context.self_ns as f64 - self_cost).max(0.0);
            context.total_corrected_ns = (context.total_ns as f64 - total_cost).max(0.0);
            whole += context.self_ns as f64;
            cost += context.self_ns as f64 - context.self_corrected_ns;
        }
        self.calibration.overhead_share = if whole > 0.0 { cost / whole } else { 0.0 };
    }

    fn fill_rows(&mut self) {
        let under = |root: &dyn Fn(&str) -> bool| {
            let mut inside = vec![false; self.contexts.len()];
            for (index, context) in self.contexts.iter().enumerate() {
                inside[index] = root(&self.rows[context.row as usize].name)
                    || context.parent.is_some_and(|parent| inside[parent as usize]);
            }
            inside
        };
        let receiving = under(&|name| self.rules.is_receive_root(name));
        let sending = under(&|name| self.rules.is_send_root(name));
        for (index, context) in self.contexts.iter().enumerate() {
            let recursive = self
                .ancestors(index as u32)
                .any(|above| self.contexts[above as usize].row == context.row);
            let per_packet = self.stands_for_packet(context);
            let busy = (context.self_ns - context.idle_ns) as f64;
            let row = &mut self.rows[context.row as usize];
            row.contexts.push(index as u32);
            row.calls += context.calls;
            row.cut += context.cut;
            row.self_ns += context.self_ns;
            row.self_corrected_ns += context.self_corrected_ns;
            if !recursive {
                row.total_ns += context.total_ns;
                row.total_corrected_ns += context.total_corrected_ns;
            }
            row.histogram.merge(&context.histogram);
            row.layer_shares[context.layer.index()] += busy;
            row.layer_shares[Layer::Idle.index()] += context.idle_ns as f64;
            row.receive_share += if receiving[index] { busy } else { 0.0 };
            row.send_share += if sending[index] { busy } else { 0.0 };
            row.packet_share += if per_packet { context.calls as f64 } else { 0.0 };
        }
        for row in &mut self.rows {
            let whole = (row.self_ns as f64).max(1.0);
            row.layer_shares.iter_mut().for_each(|share| *share /= whole);
            row.receive_share /= whole;
            row.send_share /= whole;
            row.packet_share /= (row.calls as f64).max(1.0);
            row.dominated = !row.own
                && row.self_ns > 0
                && row.self_corrected_ns < (1.0 - DOMINATED_SHARE) * row.self_ns as f64;
        }
    }

    fn stands_for_packet(&self, context: &Context) -> bool {
        context.parent.is_some_and(|parent| {
            let caller = &self.rows[self.contexts[parent as usize].row as usize].name;
            self.rules.is_received(caller, &self.rows[context.row as usize].name)
        })
    }

    /// Contexts above one, innermost first.
    pub(crate) fn ancestors(&self, context: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.contexts[context as usize].parent;
        std::iter::from_fn(move || {
            let above = next?;
            next = self.contexts[above as usize].parent;
            Some(above)
        })
    }

    /// As [`ancestors`](Self::ancestors); no context has none.
    pub(crate) fn ancestors_or_none(&self, context: u32) -> impl Iterator<Item = u32> + '_ {
        let known = (context as usize) < self.contexts.len();
        known.then(|| self.ancestors(context)).into_iter().flatten()
    }

    /// All traced self time, ns.
    pub(crate) fn traced_ns(&self) -> u64 {
        self.contexts.iter().map(|context| context.self_ns).sum()
    }

    /// Self and corrected time of a layer, ns.
    pub(crate) fn layer_ns(&self, layer: Layer) -> (u64, f64) {
        let mut sum = (0, 0.0);
        for context in &self.contexts {
            let idle_share = context.idle_ns as f64 / (context.self_ns as f64).max(1.0);
            let idle_corrected = context.self_corrected_ns * idle_share;
            if context.layer == layer {
                sum.0 += context.self_ns - context.idle_ns;
                sum.1 += context.self_corrected_ns - idle_corrected;
            }
            if layer == Layer::Idle {
                sum.0 += context.idle_ns;
                sum.1 += idle_corrected;
            }
        }
        sum
    }

    /// Calls of which a part is missing, as a share of all.
    pub(crate) fn cut_share(&self) -> f64 {
        let calls = self.calls();
        let cut = self.counts.cut as f64;
        if cut == 0.0 { 0.0 } else { cut / (calls as f64 + cut) }
    }

    /// Traced calls seen whole.
    pub(crate) fn calls(&self) -> u64 {
        self.contexts.iter().filter(|context| !context.own).map(|context| context.calls).sum()
    }

    /// The time from the start of the trace, ns.
    pub(crate) fn since(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.span.start_ns)
    }
}

impl Context {
    /// Children called by most calls.
    pub(crate) fn usual_children(&self) -> u32 {
        let most = self.variants.iter().max_by_key(|variant| variant.calls);
        most.map_or(0, |variant| variant.children.count_ones())
    }

    /// One set of children covers this share of the calls: they did the same thing.
    pub(crate) fn uniformity(&self) -> f64 {
        let most = self.variants.iter().map(|variant| variant.calls).max().unwrap_or(0);
        most as f64 / (self.calls as f64).max(1.0)
    }
}

/// Names that are no functions'.
fn named(
    states: &[ThreadState],
    name: &mut dyn FnMut(FunctionKey) -> Name,
) -> HashMap<FunctionKey, String> {
    let mut keys: Vec<FunctionKey> = Vec::new();
    for state in states {
        keys.extend(state.dropped.iter().map(|row| row.1));
        keys.extend(state.ledger.rows.keys().filter_map(|taken| match *taken {
            Taken::Queued { behind, .. } => behind,
            Taken::Blocked { by, .. } => by,
            _ => None,
        }));
    }
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| (key, name(key).text)).collect()
}

fn rows(keys: &[FunctionKey], name: &mut dyn FnMut(FunctionKey) -> Name) -> (Vec<Row>, Vec<u32>) {
    let mut rows: Vec<Row> = Vec::new();
    let mut by_name: HashMap<String, u32> = HashMap::new();
    let mut row_of = Vec::with_capacity(keys.len());
    for (number, &key) in keys.iter().enumerate() {
        let own = PseudoCall::ALL.get(number);
        let Name { text, known } = match own {
            Some(own) => Name { text: own.name().to_owned(), known: true },
            None => name(key),
        };
        let row = *by_name.entry(text.clone()).or_insert_with(|| {
            rows.push(Row {
                name: text,
                known,
                own: own.is_some(),
                asynchronous: false,
                contexts: Vec::new(),
                calls: 0,
                cut: 0,
                total_ns: 0,
                self_ns: 0,
                total_corrected_ns: 0.0,
                self_corrected_ns: 0.0,
                dominated: false,
                histogram: Histogram::default(),
                layer_shares: [0.0; Layer::ALL.len()],
                receive_share: 0.0,
                send_share: 0.0,
                packet_share: 0.0,
            });
            rows.len() as u32 - 1
        });
        row_of.push(row);
    }
    (rows, row_of)
}

fn contexts(machine: &mut Machine, row_of: &[u32], rows: &[Row]) -> Vec<Context> {
    let nodes = std::mem::take(&mut machine.tree.nodes).into_iter();
    nodes
        .map(|node| {
            let row = row_of[node.function as usize];
            let bit = node.bit();
            Context {
                parent: (node.parent != NONE).then_some(node.parent),
                children: Vec::new(),
                row,
                layer: Layer::Other,
                asynchronous: node.asynchronous,
                calls: node.calls,
                cut: node.cut,
                total_ns: node.whole_ns + node.cut_ns,
                self_ns: node.self_ns,
                idle_ns: 0,
                total_corrected_ns: 0.0,
                self_corrected_ns: 0.0,
                min_ns: node.min_ns,
                max_ns: node.max_ns,
                max_at_ns: node.max_at_ns,
                max_thread: node.max_thread,
                whole_ns: node.whole_ns,
                squares: node.squares,
                histogram: node.histogram,
                variants: node.variants,
                bit,
                own: rows[row as usize].own,
            }
        })
        .collect()
}

/// Takes handlers out of the functions they interrupted: by name, or by habit (rarely, under many that call nothing else).
fn detach_handlers(contexts: &mut [Context], rows: &mut [Row], rules: &Rules) {
    let mut others = vec![0u32; contexts.len()];
    let mut of_row: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    for (at, context) in contexts.iter().enumerate() {
        if let Some(parent) = context.parent {
            others[parent as usize] += 1;
        }
        of_row[context.row as usize].push(at);
    }
    for (row, all) in rows.iter_mut().zip(of_row) {
        if row.own {
            continue;
        }
        let placed: Vec<usize> =
            all.iter().copied().filter(|&at| contexts[at].parent.is_some()).collect();
        let habit = || {
            let parents = placed.iter().filter_map(|&at| contexts[at].parent);
            let lonely = parents.clone().filter(|&parent| others[parent as usize] == 1).count();
            let rare = placed.iter().all(|&at| {
                let parent = contexts[at].parent.map_or(0, |parent| {
                    let parent = &contexts[parent as usize];
                    parent.calls + parent.cut
                });
                (contexts[at].calls as f64) <= HANDLER_SHARE_MAX * parent as f64
            });
            let mut callers: Vec<u32> =
                parents.map(|parent| contexts[parent as usize].row).collect();
            callers.sort_unstable();
            callers.dedup();
            callers.len() >= HANDLER_PARENTS_MIN && lonely >= 2 && rare
        };
        let by_signal = all.iter().any(|&at| contexts[at].asynchronous);
        if !(by_signal || rules.is_handler(&row.name) || habit()) {
            continue;
        }
        row.asynchronous = true;
        for at in placed {
            let took = contexts[at].total_ns;
            let mut above = contexts[at].parent.take();
            contexts[at].asynchronous = true;
            while let Some(parent) = above {
                let parent = &mut contexts[parent as usize];
                parent.total_ns = parent.total_ns.saturating_sub(took);
                parent.whole_ns = parent.whole_ns.min(parent.total_ns);
                above = parent.parent;
            }
        }
    }
}

fn add_children(contexts: &mut [Context]) {
    for index in 0..contexts.len() {
        if let Some(parent) = contexts[index].parent {
            contexts[parent as usize].children.push(index as u32);
        }
    }
}

fn set_layers(contexts: &mut [Context], rows: &[Row], rules: &Rules) {
    let by_name: Vec<Option<Layer>> = rows.iter().map(|row| rules.layer(&row.name)).collect();
    for index in 0..contexts.len() {
        let row = contexts[index].row as usize;
        let inherited = contexts[index].parent.map(|parent| contexts[parent as usize].layer);
        let root = if rows[row].known { Layer::Application } else { Layer::Other };
        contexts[index].layer = by_name[row].or(inherited).unwrap_or(root);
    }
}

/// Finds polls that found nothing and shares their time out over what they called.
fn find_idle(contexts: &mut [Context], rows: &[Row], rules: &Rules) -> Vec<CallPolls> {
    let mut polls = Vec::new();
    let mut covered = vec![false; contexts.len()];
    for index in 0..contexts.len() {
        if contexts[index].layer == Layer::Idle {
            contexts[index].idle_ns = contexts[index].self_ns;
            continue;
        }
        if let Some(parent) = contexts[index].parent
            && covered[parent as usize]
        {
            covered[index] = true;
            continue;
        }
        let (mut productive, mut empty) = (0, 0);
        let poll = &rows[contexts[index].row as usize].name;
        for &child in &contexts[index].children {
            let child = &contexts[child as usize];
            match rules.poll_child(poll, &rows[child.row as usize].name) {
                Some(PollResult::Productive) => productive |= child.bit,
                Some(PollResult::Empty) => empty |= child.bit,
                None => {}
            }
        }
        if productive | empty == 0 {
            continue;
        }
        covered[index] = true;
        let found_nothing = |variant: &&Variant| {
            variant.children & productive == 0 && (empty == 0 || variant.children & empty != 0)
        };
        let idle: Vec<Variant> =
            contexts[index].variants.iter().filter(found_nothing).copied().collect();
        let empty_ns: u64 = idle.iter().map(|variant| variant.total_ns).sum();
        let context = &contexts[index];
        polls.push(CallPolls {
            context: index as u32,
            polls: context.calls,
            empty: idle.iter().map(|variant| variant.calls).sum(),
            empty_ns: empty_ns.min(context.total_ns),
            productive_ns: context.total_ns.saturating_sub(empty_ns),
        });
        share_idle(contexts, index, &idle, empty_ns as f64);
    }
    for poll in &polls {
        share_idle_outwards(contexts, poll);
    }
    polls
}

/// What only wraps a poll, one call for one, found nothing as often as that did, and takes as long either way.
fn share_idle_outwards(contexts: &mut [Context], poll: &CallPolls) {
    let share = poll.empty as f64 / poll.polls.max(1) as f64;
    let mut at = poll.context as usize;
    while let Some(parent) = contexts[at].parent {
        at = parent as usize;
        let wrapper = &mut contexts[at];
        if wrapper.layer != Layer::Ethdev
            || wrapper.calls.abs_diff(poll.polls) > WRAPPER_CALLS_APART
        {
            return;
        }
        wrapper.idle_ns = (share * wrapper.self_ns as f64) as u64;
    }
}

/// Gives `idle_ns` of a context's calls of the variants `idle` to itself and what they called.
fn share_idle(contexts: &mut [Context], index: usize, idle: &[Variant], idle_ns: f64) {
    let mut left = idle_ns;
    for child in contexts[index].children.clone() {
        let child = child as usize;
        let bit = contexts[child].bit;
        let calling = |variants: &[Variant]| -> f64 {
            let calling = variants.iter().filter(|variant| variant.children & bit != 0);
            calling.map(|variant| variant.calls).sum::<u64>() as f64
        };
        let (of_idle, of_all) = (calling(idle), calling(&contexts[index].variants));
        if of_idle == 0.0 || of_all == 0.0 {
            continue;
        }
        let mut wanted = contexts[child].calls as f64 * of_idle / of_all;
        // An empty poll calls the least: its children's calls are those with the fewest children themselves.
        let mut variants = contexts[child].variants.clone();
        variants.sort_by_key(|variant| variant.children.count_ones());
        let (mut took, mut chosen) = (0.0, Vec::new());
        for variant in variants {
            if wanted < 1.0 {
                break;
            }
            let part = (wanted / variant.calls as f64).min(1.0);
            took += part * variant.total_ns as f64;
            wanted -= part * variant.calls as f64;
            chosen.push(Variant {
                calls: (part * variant.calls as f64) as u64,
                total_ns: (part * variant.total_ns as f64) as u64,
                ..variant
            });
        }
        let took = took.min(left);
        left -= took;
        // Off the CPU is off the CPU, also when it happens to an empty poll.
        if contexts[child].layer != Layer::OffCpu {
            share_idle(contexts, child, &chosen, took);
        }
    }
    let context = &mut contexts[index];
    context.idle_ns = (context.idle_ns + left.max(0.0) as u64).min(context.self_ns);
}

fn span(states: &[ThreadState]) -> Span {
    let seen = || states.iter().filter(|state| state.events > 0);
    let start_ns = seen().map(|state| state.first_ns).min().unwrap_or(0);
    let end_ns = seen().map(|state| state.last_ns).max().unwrap_or(0);
    Span { start_ns, length_ns: end_ns - start_ns }
}

/// From the first event of the program's own to the last event of a thread that has such.
fn recorded(states: &[ThreadState], span: Span) -> Span {
    let recorded =
        || states.iter().filter_map(|state| Some((state.recorded_from_ns?, state.last_ns)));
    let Some(start_ns) = recorded().map(|(first, _)| first).min() else { return span };
    let end_ns = recorded().map(|(_, last)| last).max().unwrap_or(start_ns);
    Span { start_ns, length_ns: end_ns.saturating_sub(start_ns) }
}

fn by_row(mut timed: Timed, row_of: &[u32], rows: usize) -> Timed {
    let mut places = vec![OTHERS; rows];
    for bucket in &mut timed.buckets {
        let mut merged: Vec<crate::series::Cell> = Vec::with_capacity(bucket.cells.len());
        for cell in &bucket.cells {
            let Some(&row) = row_of.get(cell.function as usize) else {
                merged.push(*cell);
                continue;
            };
            match merged.get_mut(places[row as usize] as usize) {
                Some(mine) if mine.function == row => mine.add(*cell),
                _ => {
                    places[row as usize] = merged.len() as u32;
                    merged.push(crate::series::Cell { function: row, ..*cell });
                }
            }
        }
        bucket.cells = merged;
    }
    timed
}

fn packets(
    contexts: &[Context],
    rows: &[Row],
    states: &[ThreadState],
    counts: &Counts,
    (span, rules): (Span, &Rules),
) -> Packets {
    let polled: u64 =
        states.iter().flat_map(|state| &state.points.polls).map(|row| row.packets).sum();
    let sends = || states.iter().flat_map(|state| &state.points.sends);
    let by_calls = |is: &dyn Fn(&str, &str) -> bool| {
        let mut found: Option<(u64, String)> = None;
        for context in contexts {
            let Some(parent) = context.parent else { continue };
            let caller = &rows[contexts[parent as usize].row as usize].name;
            let callee = &rows[context.row as usize].name;
            if is(caller, callee) {
                let sum =
                    found.get_or_insert_with(|| (0, format!("calls of {callee} by {caller}")));
                sum.0 += context.calls;
            }
        }
        found
    };
    let (received, sent, source) = if counts.receives > 0 {
        let sent = sends().next().map(|_| sends().map(|row| row.sent).sum());
        (Some(polled), sent, "counted by each poll".to_owned())
    } else {
        let sent = by_calls(&|from, to| rules.is_sent(from, to)).map(|(calls, _)| calls);
        match by_calls(&|from, to| rules.is_received(from, to)) {
            Some((calls, how)) => (Some(calls), sent, how),
            None => {
                (None, sent, "nothing in the trace tells how many packets there were".to_owned())
            }
        }
    };
    let seconds = recorded_ns(span, &counts.holes) as f64 / 1e9;
    let per_second = received.filter(|_| seconds > 0.0).map(|received| received as f64 / seconds);
    Packets { received, sent, source, per_second }
}

/// What of the span lies outside all holes: rates are rates of what was recorded.
pub(crate) fn recorded_ns(span: Span, holes: &[(u64, u64)]) -> u64 {
    let (start, end) = (span.start_ns, span.start_ns + span.length_ns);
    let mut holes: Vec<_> =
        holes.iter().map(|&(from, to)| (from.clamp(start, end), to.clamp(start, end))).collect();
    holes.sort_unstable();
    let (mut missing_ns, mut seen_to) = (0, start);
    for (from, to) in holes {
        missing_ns += to.saturating_sub(from.max(seen_to));
        seen_to = seen_to.max(to);
    }
    span.length_ns - missing_ns
}

fn calibration(
    contexts: &[Context],
    gaps: &Histogram,
    measured: Option<(f64, f64)>,
) -> Calibration {
    let found = |source, inside_ns, outside_ns, uncertainty_ns| Calibration {
        source,
        inside_ns,
        outside_ns,
        uncertainty_ns,
        overhead_share: 0.0,
    };
    if let Some((inside_ns, outside_ns)) = measured {
        let whole = inside_ns + outside_ns;
        return found(CalibrationSource::Measured, inside_ns, outside_ns, MEASURED_APART * whole);
    }
    // A leaf is still one where the kernel interrupts it.
    let is_leaf = |context: &&Context| {
        !context.own && context.children.iter().all(|&child| contexts[child as usize].own)
    };
    let mut leaves = Histogram::default();
    for context in contexts.iter().filter(is_leaf) {
        leaves.merge(&context.histogram);
    }
    let shortest = leaves.quantile(0.01).filter(|_| leaves.total() >= LEAVES_MIN);
    match shortest {
        Some(inside) if inside <= COST_NS_MAX => {
            let outside = gaps.quantile(0.01).filter(|&gap| gap <= COST_NS_MAX);
            let outside = outside.filter(|_| gaps.total() >= LEAVES_MIN).unwrap_or(0);
            // A usual call costs more than the cheapest: as much as half of the calls of the shortest leaf do at least.
            let usual = contexts.iter().filter(is_leaf).filter(|leaf| leaf.calls >= LEAVES_MIN);
            let usual = usual.filter_map(|leaf| leaf.histogram.quantile(0.5)).min();
            let usual = usual.unwrap_or(inside).clamp(inside, USUAL_MAX * inside.max(1));
            let times = usual as f64 / inside.max(1) as f64;
            // What the shortest leaf did itself is not the tracer's.
            let apart = (usual.saturating_sub(inside) as f64).max(LEAF_NS);
            found(CalibrationSource::Estimated, usual as f64, times * outside as f64, apart)
        }
        _ => found(CalibrationSource::None, 0.0, 0.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_holes_is_not_recorded_time() {
        let span = Span { start_ns: 100, length_ns: 1_000 };
        assert_eq!(recorded_ns(span, &[]), 1_000);
        assert_eq!(
            recorded_ns(span, &[(600, 800), (200, 300), (250, 400)]),
            600,
            "holes may overlap"
        );
        assert_eq!(
            recorded_ns(span, &[(0, 150), (1_000, 9_000)]),
            850,
            "and reach beyond the span"
        );
        assert_eq!(
            recorded_ns(span, &[(300, 200)]),
            1_000,
            "a hole that ends before it begins is none"
        );
    }
}
