//! The model as rows: functions, contexts, threads, layers, polls, pools, time lines and the worst calls.

use std::collections::BTreeMap;

use laneway_trace_read::{FunctionKey, Kind};

use super::Order;
use crate::detect::{cause, cause_name};
use crate::histogram::Histogram;
use crate::machine::PseudoCall;
use crate::model::{Context, Model};
use crate::result::*;
use crate::series::OTHERS;
use crate::worst::Captured;

/// Points of a pool's course in a result.
const POOL_POINTS_MAX: usize = 512;

/// Turns the model into rows of a result.
pub(super) struct Writer<'a> {
    pub(super) model: &'a Model,
    pub(super) order: &'a Order,
    /// Maxima are reported: few enough calls are cut.
    pub(super) maxima: bool,
}

/// The large ones.
pub(super) struct Tables {
    pub(super) functions: Vec<FunctionRow>,
    pub(super) contexts: Vec<ContextRow>,
    pub(super) time_lines: Vec<TimeLine>,
}

impl Writer<'_> {
    pub(super) fn tables(&self) -> Tables {
        Tables {
            functions: self.functions(),
            contexts: self.contexts(),
            time_lines: self.time_lines(),
        }
    }

    fn function(&self, row: u32) -> u32 {
        self.order.of_row[row as usize]
    }

    fn durations(&self, contexts: &[(u32, &Context)], histogram: &Histogram) -> Durations {
        let n: u64 = contexts.iter().map(|(_, context)| context.calls).sum();
        let (mut whole, mut squares, mut min) = (0.0, 0.0, u64::MAX);
        let mut longest: Option<Longest> = None;
        for (at, context) in contexts.iter().filter(|(_, context)| context.calls > 0) {
            whole += context.whole_ns as f64;
            squares += context.squares;
            min = min.min(context.min_ns);
            if longest.is_none_or(|longest| context.max_ns > longest.duration_ns) {
                longest = Some(Longest {
                    duration_ns: context.max_ns,
                    at_ns: self.model.since(context.max_at_ns),
                    thread: context.max_thread,
                    context: *at,
                });
            }
        }
        let mean = (n > 0).then(|| whole / n as f64);
        let [p50_ns, p90_ns, p99_ns, p999_ns] = histogram.percentiles([0.5, 0.9, 0.99, 0.999]);
        Durations {
            n,
            min_ns: (n > 0).then_some(min),
            avg_ns: mean,
            sd_ns: mean.map(|mean| (squares / n as f64 - mean * mean).max(0.0).sqrt()),
            p50_ns,
            p90_ns,
            p99_ns,
            p999_ns,
            max: longest.filter(|_| self.maxima),
        }
    }

    fn functions(&self) -> Vec<FunctionRow> {
        let model = self.model;
        let traced = (model.traced_ns() as f64).max(1.0);
        let corrected: f64 = model.rows.iter().map(|row| row.self_corrected_ns).sum();
        let packets = model.packets.received.filter(|&packets| packets > 0);
        let rows = self.order.functions.iter().map(|&row| &model.rows[row as usize]);
        rows.map(|row| {
            let contexts: Vec<(u32, &Context)> =
                row.contexts.iter().map(|&at| (at, &model.contexts[at as usize])).collect();
            // Where most of its time is, not idle time: that is how often it was called in vain.
            let mut best = (Layer::Other, -1.0);
            for (_, context) in &contexts {
                if context.self_ns as f64 > best.1 {
                    best = (context.layer, context.self_ns as f64);
                }
            }
            FunctionRow {
                name: row.name.clone(),
                layer: best.0,
                calls: row.calls,
                cut: row.cut,
                calls_per_packet: packets.map(|packets| row.calls as f64 / packets as f64),
                total_ns: row.total_ns,
                self_ns: row.self_ns,
                total_corrected_ns: row.total_corrected_ns,
                self_corrected_ns: row.self_corrected_ns,
                share: row.self_ns as f64 / traced,
                share_corrected: row.self_corrected_ns / corrected.max(1.0),
                dominated: row.dominated,
                asynchronous: row.asynchronous,
                durations: self.durations(&contexts, &row.histogram),
                histogram: row.histogram.coarse(),
            }
        })
        .collect()
    }

    fn contexts(&self) -> Vec<ContextRow> {
        let contexts = (0u32..).zip(&self.model.contexts);
        contexts
            .map(|(at, context)| ContextRow {
                parent: context.parent,
                function: self.function(context.row),
                calls: context.calls,
                cut: context.cut,
                total_ns: context.total_ns,
                self_ns: context.self_ns,
                total_corrected_ns: context.total_corrected_ns,
                self_corrected_ns: context.self_corrected_ns,
                idle_ns: context.idle_ns,
                durations: self.durations(&[(at, context)], &context.histogram),
            })
            .collect()
    }

    pub(super) fn threads(&self) -> Vec<ThreadRow> {
        let model = self.model;
        let states = model.states.iter().zip(&model.timed);
        states
            .map(|(state, timed)| {
                let (mut traced, mut idle, mut packets) = (0, 0.0, 0.0);
                for cell in timed.buckets.iter().flat_map(|bucket| &bucket.cells) {
                    traced += cell.self_ns;
                    if cell.function != OTHERS {
                        let row = &model.rows[cell.function as usize];
                        idle += cell.self_ns as f64 * row.layer_shares[Layer::Idle.index()];
                        packets += f64::from(cell.calls) * row.packet_share;
                    }
                }
                let polled: u64 = state.points.polls.iter().map(|row| row.packets).sum();
                let [preempted_ns, waiting_ns, interrupt_ns, syscall_ns, _] = state.kernel_ns;
                let stays = &state.points.stays;
                let [p50_ns, p99_ns] = stays.percentiles([0.5, 0.99]);
                let timed = stays.total();
                ThreadRow {
                    pid: state.thread.pid,
                    tid: state.thread.tid,
                    name: state.thread.name.clone(),
                    cpus: state.cpus.clone(),
                    events: state.events,
                    first_ns: model.since(state.first_ns.min(state.last_ns)),
                    last_ns: model.since(state.last_ns),
                    traced_ns: traced,
                    idle_ns: idle as u64,
                    preempted_ns,
                    waiting_ns,
                    interrupt_ns,
                    syscall_ns,
                    packets: if model.counts.receives > 0 {
                        polled
                    } else {
                        packets.round() as u64
                    },
                    in_worker: (timed > 0).then_some(InWorker { packets: timed, p50_ns, p99_ns }),
                }
            })
            .collect()
    }

    pub(super) fn layers(&self) -> Vec<LayerRow> {
        let model = self.model;
        let figures = Layer::ALL.map(|layer| (layer, model.layer_ns(layer)));
        let traced: u64 = figures.iter().map(|(_, (raw, _))| raw).sum();
        let corrected: f64 = figures.iter().map(|(_, (_, corrected))| corrected).sum();
        let packets = model.packets.received.filter(|&packets| packets > 0);
        figures
            .iter()
            .map(|&(layer, (self_ns, corrected_ns))| LayerRow {
                layer,
                self_ns,
                corrected_ns,
                share: self_ns as f64 / traced.max(1) as f64,
                share_corrected: corrected_ns / corrected.max(1.0),
                ns_per_packet: packets.map(|packets| corrected_ns / packets as f64),
            })
            .collect()
    }

    pub(super) fn polls(&self) -> Vec<PollRow> {
        let model = self.model;
        let mut rows = Vec::new();
        for (thread, state) in (0u32..).zip(&model.states) {
            for row in &state.points.polls {
                let productive = row.polls - row.empty;
                let mean = row.packets as f64 / productive.max(1) as f64;
                let variance = row.squares as f64 / productive.max(1) as f64 - mean * mean;
                rows.push(PollRow {
                    thread,
                    port: row.queue.map(|queue| queue.0),
                    queue: row.queue.map(|queue| queue.1),
                    polls: row.polls,
                    empty: row.empty,
                    packets: row.packets,
                    full: row.full,
                    empty_ns: row.empty_ns,
                    productive_ns: row.productive_ns,
                    packets_per_productive: (productive > 0).then_some(mean),
                    packets_sd: (productive > 0).then(|| variance.max(0.0).sqrt()),
                    sizes: (0u64..)
                        .zip(&row.sizes)
                        .filter(|&(_, &polls)| polls > 0)
                        .map(|(size, &polls)| [size, polls])
                        .collect(),
                });
            }
        }
        if rows.is_empty() {
            let received = model.packets.received;
            rows.extend(model.polls.iter().map(|row| {
                let productive = row.polls - row.empty;
                let packets = if model.polls.len() == 1 { received } else { None };
                PollRow {
                    thread: model.contexts[row.context as usize].max_thread,
                    port: None,
                    queue: None,
                    polls: row.polls,
                    empty: row.empty,
                    packets: packets.unwrap_or(0),
                    full: 0,
                    empty_ns: row.empty_ns,
                    productive_ns: row.productive_ns,
                    packets_per_productive: packets
                        .filter(|_| productive > 0)
                        .map(|packets| packets as f64 / productive as f64),
                    packets_sd: None,
                    sizes: Vec::new(),
                }
            }));
        }
        rows
    }

    pub(super) fn sends(&self) -> Vec<SendRow> {
        let states = (0u32..).zip(&self.model.states);
        states
            .flat_map(|(thread, state)| {
                state.points.sends.iter().map(move |row| SendRow {
                    thread,
                    port: row.queue.0,
                    queue: row.queue.1,
                    calls: row.calls,
                    asked: row.asked,
                    sent: row.sent,
                    short: row.short,
                    first_short_ns: row.first_short_ns.map(|at| self.model.since(at)),
                })
            })
            .collect()
    }

    pub(super) fn pools(&self) -> Vec<PoolRow> {
        let pools = self.model.pools.pools.iter();
        pools
            .map(|pool| {
                let mut buffers = pool.refill_buffers.clone();
                buffers.sort_unstable();
                let mut intervals: Vec<u64> =
                    pool.intervals.iter().map(|&(taken, _)| taken).collect();
                intervals.sort_unstable();
                let course = pool.course();
                let step = course.len().div_ceil(POOL_POINTS_MAX).max(1);
                PoolRow {
                    pool: pool.pool,
                    taken: pool.taken,
                    given: pool.given,
                    in_use_max: pool.in_use_max(),
                    refills: pool.refills,
                    refill_buffers: buffers.get(buffers.len() / 2).map(|&n| u64::from(n)),
                    refill_interval: (intervals.len() >= 8)
                        .then(|| intervals[intervals.len() / 2] as f64),
                    drains: pool.drains,
                    failures: pool.failures,
                    first_failure_ns: pool.first_failure_ns.map(|at| self.model.since(at)),
                    in_use: course
                        .iter()
                        .step_by(step)
                        .map(|&(at, in_use)| [self.model.since(at) as i64, in_use])
                        .collect(),
                }
            })
            .collect()
    }

    pub(super) fn points(&self, names: &[String]) -> Vec<PointRow> {
        let mut rows: BTreeMap<u32, PointRow> = BTreeMap::new();
        let all = self.model.states.iter().flat_map(|state| &state.points.others);
        for (&point, other) in all {
            let name = || match names.get(point as usize) {
                Some(name) => name.clone(),
                None => format!("point {point}"),
            };
            let (first_ns, last_ns) =
                (self.model.since(other.first_ns), self.model.since(other.last_ns));
            let row = rows.entry(point).or_insert_with(|| PointRow {
                name: name(),
                count: 0,
                threads: 0,
                first_ns,
                last_ns,
            });
            row.count += other.count;
            row.threads += 1;
            row.first_ns = row.first_ns.min(first_ns);
            row.last_ns = row.last_ns.max(last_ns);
        }
        let mut rows: Vec<PointRow> = rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }

    fn time_lines(&self) -> Vec<TimeLine> {
        let model = self.model;
        let threads = (0u32..).zip(&model.timed).take(TIME_LINES_MAX);
        threads
            .map(|(thread, timed)| {
                let timed = timed.reduced(TIME_BUCKETS_MAX);
                let buckets = timed
                    .buckets
                    .iter()
                    .map(|bucket| {
                        let mut shares = [0.0; Layer::ALL.len()];
                        let mut top: Vec<[u64; 2]> = Vec::new();
                        let mut packets = f64::from(bucket.packets);
                        for cell in &bucket.cells {
                            let part = cell.self_ns as f64 / timed.width_ns as f64;
                            if cell.function == OTHERS {
                                shares[Layer::Other.index()] += part;
                                continue;
                            }
                            let row = &model.rows[cell.function as usize];
                            for (share, of_row) in shares.iter_mut().zip(row.layer_shares) {
                                *share += part * of_row;
                            }
                            packets += f64::from(cell.calls) * row.packet_share;
                            top.push([u64::from(self.function(cell.function)), cell.self_ns]);
                        }
                        top.sort_by_key(|entry| std::cmp::Reverse(entry[1]));
                        top.truncate(TOP_FRAMES_MAX);
                        TimeBucket {
                            shares: shares.iter().map(|&share| share as f32).collect(),
                            top,
                            events: bucket.events,
                            packets: packets.round() as u32,
                        }
                    })
                    .collect();
                TimeLine {
                    thread,
                    start_ns: model.since(timed.start_ns),
                    width_ns: timed.width_ns,
                    buckets,
                }
            })
            .collect()
    }

    pub(super) fn worst(&self) -> (Vec<WorstCall>, Vec<Window>) {
        let model = self.model;
        if !self.maxima {
            return (Vec::new(), Vec::new());
        }
        let mut silences: Vec<(u32, &crate::worst::Silence)> = (0u32..)
            .zip(&model.states)
            .flat_map(|(thread, state)| state.worst.silences.iter().map(move |one| (thread, one)))
            .collect();
        silences.sort_by_key(|(_, silence)| std::cmp::Reverse(silence.length_ns));
        silences.truncate(WORST_MAX);
        let mut windows = Vec::new();
        let worst = silences
            .into_iter()
            .map(|(thread, silence)| {
                let stack: Vec<u32> = silence
                    .stack
                    .iter()
                    .map(|&number| self.function(model.row_of[number as usize]))
                    .collect();
                let window = silence.window.as_ref().map(|captured| {
                    windows.push(self.window(thread, &stack, captured));
                    windows.len() as u32 - 1
                });
                WorstCall {
                    thread,
                    function: self.function(model.row_of[silence.function as usize]),
                    context: silence.node,
                    at_ns: model.since(silence.at_ns),
                    duration_ns: silence.length_ns,
                    stack,
                    cause: cause_name(cause(silence)).to_owned(),
                    window,
                }
            })
            .collect();
        (worst, windows)
    }

    fn window(&self, thread: u32, stack: &[u32], captured: &Captured) -> Window {
        // A function that was left out of the table, because no call of it was counted, has no number.
        let is_listed = |function: &u32| (*function as usize) < self.order.functions.len();
        let of_key = |key: FunctionKey| {
            self.model.keys.get(&key).map(|&row| self.function(row)).filter(is_listed)
        };
        let mut open = stack[..captured.kept.min(stack.len())].to_vec();
        open.extend(captured.open.iter().filter_map(|&key| of_key(key)));
        // A window of a thread without calls has the name of its own pseudo call as stack.
        let own: Vec<&str> = PseudoCall::ALL.iter().map(|own| own.name()).collect();
        open.retain(|&function| {
            let row = self.order.functions.get(function as usize);
            row.is_some_and(|&row| !own.contains(&self.model.rows[row as usize].name.as_str()))
        });
        let events = captured.events.iter().map(|event| {
            let (what, function, value) = match event.kind {
                Kind::Enter(key) => (What::Enter, of_key(key), 0),
                Kind::Leave(key) => (What::Leave, of_key(key), 0),
                Kind::LeaveInnermost => (What::Leave, None, 0),
                Kind::Receive { got, .. } => (What::Receive, None, u64::from(got)),
                Kind::EmptyRun { polls, .. } => (What::EmptyRun, None, u64::from(polls)),
                Kind::Send { sent, .. } => (What::Send, None, u64::from(sent)),
                Kind::Pool { buffers, .. } => (What::Pool, None, u64::from(buffers)),
                Kind::SwitchedOut { runnable } => (What::SwitchedOut, None, u64::from(runnable)),
                Kind::SwitchedIn => (What::SwitchedIn, None, 0),
                Kind::InterruptIn(vector) => (What::InterruptIn, None, u64::from(vector)),
                Kind::InterruptOut(vector) => (What::InterruptOut, None, u64::from(vector)),
                Kind::SyscallIn(call) => (What::SyscallIn, None, u64::from(call)),
                Kind::SyscallOut(call) => (What::SyscallOut, None, u64::from(call)),
                Kind::Signal(signal) => (What::Signal, None, u64::from(signal)),
                Kind::TookOver(_) => (What::TookOver, None, 0),
                Kind::WokenBy(_) => (What::WokenBy, None, 0),
                Kind::Returned(value) => (What::Returned, None, value.unsigned_abs().into()),
                Kind::Dropped { packets, .. } => (What::Dropped, None, packets.into()),
                Kind::Point { value, .. } => (What::Point, None, value),
            };
            WindowEvent { at_ns: self.model.since(event.time_ns), what, function, value }
        });
        Window { thread, stack: open, events: events.collect() }
    }
}
