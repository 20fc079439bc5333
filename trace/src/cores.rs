//! What the threads of a trace have to do with CPUs, and with the span as a whole: rows for each.

use std::collections::BTreeMap;

use crate::model::Model;
use crate::result::{CORE_THREADS_MAX, COURSES_MAX, CoreRow, Course, ThreadRow};

/// How far the threads used each CPU. Of a thread that was on several, idle polls are shared out by time.
pub(crate) fn rows(model: &Model, threads: &[ThreadRow]) -> Vec<CoreRow> {
    let mut cores: BTreeMap<Option<u32>, CoreRow> = BTreeMap::new();
    for ((number, state), row) in (0_u64..).zip(&model.states).zip(threads) {
        let ran = state.ran.by_cpu.iter().map(|&(cpu, ns)| (cpu, ns.max(0).unsigned_abs()));
        let whole: u64 = ran.clone().map(|(_, ns)| ns).sum();
        for (cpu, ns) in ran.filter(|&(_, ns)| ns > 0) {
            let core = cores.entry(cpu).or_insert_with(|| CoreRow {
                cpu,
                used_ns: 0,
                share: 0.0,
                idle_ns: 0,
                threads: Vec::new(),
            });
            core.used_ns = core.used_ns.saturating_add(ns);
            let idle_ns = row.idle_ns as f64 * ns as f64 / whole as f64;
            core.idle_ns += (idle_ns as u64).min(ns);
            core.threads.push([number, ns]);
        }
    }
    let span_ns = model.span.length_ns.max(1) as f64;
    let mut rows: Vec<CoreRow> = cores.into_values().collect();
    for core in &mut rows {
        core.share = core.used_ns as f64 / span_ns;
        core.threads.sort_by_key(|&[thread, ns]| (std::cmp::Reverse(ns), thread));
        core.threads.truncate(CORE_THREADS_MAX);
    }
    rows
}

/// Where the busiest threads were.
pub(crate) fn courses(model: &Model) -> Vec<Course> {
    let states = (0..)
        .zip(&model.states)
        .filter(|(_, state)| state.course.buckets.iter().any(|cells| !cells.is_empty()));
    states
        .take(COURSES_MAX)
        .map(|(thread, state)| Course {
            thread,
            start_ns: model.since(state.course.start_ns()),
            bucket_ns: state.course.bucket_ns,
            buckets: state
                .course
                .buckets
                .iter()
                .map(|cells| cells.iter().map(|&(node, ns)| [node.into(), ns]).collect())
                .collect(),
        })
        .collect()
}
