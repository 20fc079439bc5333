//! One event, or as many plain ones as follow each other, on the stack of its thread: the rules of the machine.

use laneway_trace_read::{Event, FunctionKey, Kind, PAGE_FAULT};

use super::{
    Counts, DEPTH_MAX, NO_KEY, Numbers, OpenCall, PseudoCall, SPAN_NS_MAX, STACK_MAX, ThreadState,
    number, pass_up, unwind,
};
use crate::calls;
use crate::histogram::{Histogram, bucket_of};
use crate::ledger::STRETCH_NS_MIN;
use crate::points::{Pools, Queue};
use crate::result::TIME_LINES_MAX;
use crate::tree::{NONE, Tree};
use crate::worst::Join;

/// An event that the kernel reports, of any thread.
const fn is_kernels(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::SwitchedOut { .. }
            | Kind::SwitchedIn
            | Kind::TookOver(_)
            | Kind::WokenBy(_)
            | Kind::InterruptIn(_)
            | Kind::InterruptOut(_)
            | Kind::SyscallIn(_)
            | Kind::SyscallOut(_)
            | Kind::Returned(_)
    )
}

/// Is the innermost system call one that gives packets away?
fn is_sending(stack: &[OpenCall]) -> bool {
    let call = stack.iter().rev().find(|frame| frame.function == PseudoCall::Syscall as u32);
    call.is_some_and(|call| {
        matches!(calls::kind(call.detail), calls::Kind::Send | calls::Kind::Transfer)
    }) && stack.last().is_some_and(|top| top.detail != PAGE_FAULT)
}

/// Everything one event touches, borrowed once per stride.
pub(super) struct Step<'a> {
    pub(super) thread: u32,
    pub(super) state: &'a mut ThreadState,
    pub(super) tree: &'a mut Tree,
    pub(super) pools: &'a mut Pools,
    pub(super) counts: &'a mut Counts,
    pub(super) gaps: &'a mut Histogram,
    pub(super) keys: &'a mut Vec<FunctionKey>,
    pub(super) numbers: &'a mut Numbers,
}

impl Step<'_> {
    /// Follows plain events and returns how many that were; the first that is not is left as it was.
    #[inline]
    pub(super) fn calls(&mut self, events: &[Event]) -> usize {
        let state = &mut *self.state;
        if !state.started || state.unsound || state.signalled || !state.worst.began(state.last_ns) {
            return 0;
        }
        let longest_ns = state.worst.longest_ns().min(STRETCH_NS_MIN - 1);
        let end_ns = state.series.open_end_ns().min(state.course.open_end_ns());
        let believed = state.anonymous && !state.lossy;
        let (mut last_ns, mut just_left) = (state.last_ns, state.just_left);
        let (mut entries, mut exits) = (0, 0);
        for event in events {
            let now = event.time_ns;
            if now < last_ns || now - last_ns > longest_ns || now >= end_ns {
                break;
            }
            let since_ns = now - last_ns;
            let depth = state.stack.len();
            let Some(top) = state.stack.last_mut() else { break };
            // The ledger has what the kernel does.
            if top.function < PseudoCall::ALL.len() as u32 {
                break;
            }
            let enters = match event.kind {
                Kind::Enter(key) => Some(key),
                Kind::Leave(key) if key == top.key => None,
                Kind::LeaveInnermost if believed => None,
                _ => break,
            };
            if let Some(key) = enters {
                let Some(child) = self.tree.recall(top.node, key) else { break };
                if depth >= DEPTH_MAX {
                    break;
                }
                let Some(spent) = state.spent.get_mut(top.node as usize) else { break };
                *spent += since_ns;
                self.tree.nodes[top.node as usize].self_ns += since_ns;
                state.series.sum(top.function).self_ns += since_ns;
                if std::mem::take(&mut just_left) {
                    self.gaps.record(bucket_of(since_ns));
                }
                let node = &self.tree.nodes[child as usize];
                top.children |= node.bit();
                state.stack.push(OpenCall {
                    node: child,
                    function: node.function,
                    key,
                    start_ns: now,
                    children: 0,
                    foreign_ns: 0,
                    asynchronous: false,
                    detail: 0,
                });
                entries += 1;
            } else {
                if top.key == NO_KEY {
                    break;
                }
                let Some(node) = self.tree.nodes.get_mut(top.node as usize) else { break };
                let Some(spent) = state.spent.get_mut(top.node as usize) else { break };
                *spent += since_ns;
                node.self_ns += since_ns;
                let bucket = node.call(top.start_ns, now - top.start_ns, top.children, self.thread);
                let cell = state.series.sum(top.function);
                cell.self_ns += since_ns;
                cell.call(bucket);
                state.stack.pop();
                just_left = true;
                exits += 1;
            }
            last_ns = now;
        }
        let followed = entries + exits;
        if followed > 0 {
            state.worst.heard(last_ns);
            state.ledger.passed(last_ns);
            state.series.events(followed as u32); // at most a stride
            state.entries += entries as u64;
        }
        (state.last_ns, state.just_left) = (last_ns, just_left);
        self.counts.entries += entries as u64;
        self.counts.exits += exits as u64;
        followed
    }

    /// Any event.
    #[inline(never)]
    pub(super) fn event(&mut self, event: &Event) {
        let origin = *self.counts.origin_ns.get_or_insert(event.time_ns);
        let mut now = event.time_ns;
        if now.abs_diff(origin) > SPAN_NS_MAX {
            self.counts.clock_jumps += 1;
            now = self.state.last_ns.max(origin);
        }
        if self.state.started {
            if now < self.state.last_ns {
                self.counts.clock_backwards += 1;
                now = self.state.last_ns;
            }
        } else {
            self.begin(&mut now);
        }
        if self.state.course.is_over(now) {
            let state = &mut *self.state;
            let top = state.stack.last().map_or(NONE, |frame| frame.node);
            state.course.cross(&state.spent, top, state.last_ns, now);
        }
        self.state.series.events(1);
        if self.state.recorded_from_ns.is_none() && !is_kernels(event.kind) {
            let began_ns = match event.kind {
                Kind::EmptyRun { lasted_ns, .. } => now.saturating_sub(lasted_ns.into()),
                _ => now,
            };
            self.state.recorded_from_ns = Some(began_ns.max(self.state.first_ns));
        }
        match event.kind {
            Kind::Enter(key) => self.enter(key, now),
            Kind::Leave(key) => self.leave(key, now),
            Kind::LeaveInnermost => self.leave_innermost(now),
            _ => self.point(event.kind, now),
        }
        self.state.last_ns = now;
    }

    #[cold]
    fn begin(&mut self, now: &mut u64) {
        let state = &mut *self.state;
        if *now < state.last_ns {
            self.counts.clock_backwards += 1;
            *now = state.last_ns;
        }
        state.started = true;
        state.first_ns = state.first_ns.min(*now);
        state.last_ns = *now;
        state.series.reach(*now);
        state.worst.resume(*now);
        if self.thread < TIME_LINES_MAX as u32 {
            state.course.begin(*now);
        }
        // What lies between is counted for no CPU.
        state.ran.until_ns = *now;
    }

    /// Charges the time since the last event to the innermost call.
    #[inline]
    fn settle(&mut self, now: u64) {
        let state = &mut *self.state;
        if let Some(top) = state.stack.last() {
            let since = now - state.last_ns;
            if let Some(node) = self.tree.nodes.get_mut(top.node as usize) {
                node.self_ns += since;
            }
            state.series.spend(top.function, state.last_ns, now);
            if top.function < PseudoCall::ALL.len() as u32
                && top.function >= PseudoCall::Preempted as u32
            {
                let detail = top.detail;
                match top.function {
                    function if function == PseudoCall::Syscall as u32 => {
                        state.ledger.in_call(since)
                    }
                    function if function == PseudoCall::Preempted as u32 => state.ledger.off(since),
                    function if function == PseudoCall::Waiting as u32 => state.ledger.off(since),
                    function if function == PseudoCall::OtherFunctions as u32 => {
                        state.ledger.own(since)
                    }
                    // What a send does at once in the name of the receiver is the send's.
                    _ if is_sending(&state.stack) => state.ledger.in_call(since),
                    _ => state.ledger.interrupted(detail, since),
                }
            } else {
                state.ledger.own(since);
            }
            let place = top.node as usize;
            if place >= state.spent.len() && top.node != NONE {
                state.spent.resize(self.tree.nodes.len().max(place + 1), 0);
            }
            if let Some(spent) = state.spent.get_mut(place) {
                *spent += since;
            }
        } else {
            state.ledger.own(now - state.last_ns);
            state.series.reach(now);
        }
    }

    /// The innermost call that is the program's own.
    fn innermost(&self) -> u32 {
        let kernel = PseudoCall::Preempted as u32..PseudoCall::OtherFunctions as u32;
        let own = self.state.stack.iter().rev().find(|frame| !kernel.contains(&frame.function));
        own.map_or(NONE, |frame| frame.node)
    }

    /// A function event: the stretch of silence before it ends.
    #[inline]
    fn note(&mut self, now: u64) {
        if self.state.worst.is_long(now) {
            let stack = &self.state.stack;
            if let Some(top) = stack.last() {
                let functions = stack.iter().map(|frame| frame.function);
                self.state.worst.consider(top.node, top.function, now, functions);
            }
        }
        self.state.worst.heard(now);
    }

    /// A function event, once its time is settled: the stretch before it is booked.
    #[inline]
    fn book(&mut self, now: u64) {
        let node = self.innermost();
        self.state.ledger.program(now, node, None);
    }

    /// The same at a point: without calls around it, what it ends is a call of its own.
    fn note_point(&mut self, own: PseudoCall, now: u64) {
        if self.state.stack.is_empty()
            && self.state.points.running()
            && self.state.worst.is_long(now)
        {
            let node = self.tree.child(NONE, own as u32);
            self.state.worst.consider(node, own as u32, now, std::iter::once(own as u32));
        }
        self.note(now);
    }

    #[inline]
    fn enter(&mut self, key: FunctionKey, now: u64) {
        self.counts.entries += 1;
        self.state.entries += 1;
        if self.state.unsound {
            self.counts.unsound += 1;
            return;
        }
        self.settle(now);
        self.note(now);
        self.book(now);
        if std::mem::take(&mut self.state.just_left) && !self.state.stack.is_empty() {
            self.gaps.record(bucket_of(now - self.state.last_ns));
        }
        if self.state.stack.len() >= STACK_MAX {
            self.state.too_deep += 1;
            self.state.beyond += 1;
            return;
        }
        let function = number(self.numbers, self.keys, key);
        let asynchronous = std::mem::take(&mut self.state.signalled);
        if function == PseudoCall::OtherFunctions as u32 {
            self.counts.functions_refused += 1;
            self.push(function, NO_KEY, now, asynchronous, 0);
        } else {
            self.push(function, key, now, asynchronous, 0);
        }
    }

    fn push(&mut self, function: u32, key: FunctionKey, now: u64, asynchronous: bool, detail: u32) {
        let state = &mut *self.state;
        let too_deep = state.stack.len() >= DEPTH_MAX;
        if too_deep {
            state.too_deep += 1;
        }
        let parent = match state.stack.last() {
            Some(top) if !asynchronous || too_deep => top.node,
            _ => NONE,
        };
        let mut node = if too_deep { NONE } else { self.tree.child(parent, function) };
        if node == NONE {
            // No room: the call is charged to its caller's context.
            node = parent;
        } else {
            if let Some(top) = state.stack.last_mut()
                && !asynchronous
            {
                top.children |= self.tree.nodes[node as usize].bit();
            }
            if asynchronous {
                self.tree.nodes[node as usize].asynchronous = true;
            } else if key != NO_KEY {
                self.tree.remember(parent, key, node);
            }
        }
        state.stack.push(OpenCall {
            node,
            function,
            key: if asynchronous || too_deep { NO_KEY } else { key },
            start_ns: now,
            children: 0,
            foreign_ns: 0,
            asynchronous,
            detail,
        });
    }

    #[inline]
    fn leave(&mut self, key: FunctionKey, now: u64) {
        self.counts.exits += 1;
        if self.state.unsound {
            self.counts.unsound += 1;
            return;
        }
        self.settle(now);
        self.note(now);
        self.book(now);
        if self.state.beyond > 0 {
            self.state.beyond -= 1;
            return;
        }
        let function = number(self.numbers, self.keys, key);
        match self.state.stack.last() {
            Some(top) if top.function == function => self.pop(now),
            _ => self.leave_other(function, now),
        }
        self.state.just_left = true;
    }

    #[cold]
    fn leave_other(&mut self, function: u32, now: u64) {
        // Of a very deep stack only the inner part is searched: each of many exits without a call would go through all
        // of it.
        let from = self.state.stack.len().saturating_sub(DEPTH_MAX);
        let inner = &self.state.stack[from..];
        let found = inner.iter().rposition(|frame| frame.function == function);
        let Some(depth) = found.map(|at| from + at) else {
            self.counts.unmatched += 1;
            return;
        };
        self.counts.mismatched += 1;
        self.counts.cut += (self.state.stack.len() - depth - 1) as u64;
        unwind(self.state, self.tree, depth + 1, now);
        self.pop(now);
    }

    fn leave_innermost(&mut self, now: u64) {
        self.counts.exits += 1;
        self.state.anonymous = true;
        if self.state.lossy && !self.state.unsound {
            self.state.unsound = true;
            self.counts.cut += self.state.stack.len() as u64;
            unwind(self.state, self.tree, 0, now);
        }
        if self.state.unsound {
            self.counts.unsound += 1;
            return;
        }
        self.settle(now);
        self.note(now);
        self.book(now);
        if self.state.beyond > 0 {
            self.state.beyond -= 1;
        } else if self.state.stack.is_empty() {
            self.counts.unmatched += 1;
        } else {
            self.pop(now);
        }
        self.state.just_left = true;
    }

    /// Closes the innermost call, seen whole.
    #[inline]
    fn pop(&mut self, now: u64) {
        let state = &mut *self.state;
        let Some(frame) = state.stack.pop() else { return };
        let duration = now - frame.start_ns;
        let own = duration.saturating_sub(frame.foreign_ns);
        if state.stack.len() < DEPTH_MAX
            && let Some(node) = self.tree.nodes.get_mut(frame.node as usize)
        {
            let bucket = node.call(frame.start_ns, own, frame.children, self.thread);
            state.series.call(frame.function, bucket);
        }
        pass_up(state, frame, duration);
    }

    /// A call that is reported only when it is over, begun at most `lasted_ns` before now. Gives its context and its
    /// length.
    fn past_call(&mut self, own: PseudoCall, calls: u64, lasted_ns: u64, now: u64) -> (u32, u64) {
        let begin = now.saturating_sub(lasted_ns).max(self.state.last_ns);
        self.settle(begin);
        self.state.last_ns = begin;
        self.push(own as u32, NO_KEY, begin, false, 0);
        self.settle(now);
        self.state.last_ns = now;
        let node = self.state.stack.last().map_or(NONE, |frame| frame.node);
        self.pop(now);
        if let Some(node) = self.tree.nodes.get_mut(node as usize) {
            node.calls += calls.saturating_sub(1);
        }
        self.state.just_left = false;
        (node, now - begin)
    }

    fn point(&mut self, kind: Kind, now: u64) {
        self.state.just_left = false;
        let since = now - self.state.last_ns;
        let alone = self.state.stack.is_empty();
        // Without calls around it a point ends the time since the event before it.
        let call_ns = if alone && self.state.points.running() { since } else { 0 };
        match kind {
            Kind::Receive { port, queue, asked, got } => {
                let own = if got == 0 { PseudoCall::EmptyPolls } else { PseudoCall::Receive };
                self.counts.receives += 1;
                self.state.points.receive((port, queue), asked, got, call_ns, now);
                self.state.series.packets(u32::from(got));
                let off_cpu_ns = self.state.off_cpu_ns();
                let idle_ns = self.state.points.round(got == 0, now, off_cpu_ns);
                self.state.series.idle(idle_ns);
                self.after(own, call_ns, now);
            }
            Kind::EmptyRun { queue, polls, lasted_ns } => {
                self.empty_run(queue, polls, lasted_ns, now)
            }
            Kind::Send { port, queue, asked, sent } => {
                self.state.points.send((port, queue), asked, sent, call_ns, now);
                self.after(PseudoCall::Send, call_ns, now);
            }
            Kind::Pool { action, pool, buffers } => {
                self.pools.used(self.thread, pool, action, buffers, now);
                self.after(PseudoCall::PoolUse, call_ns, now);
            }
            Kind::Dropped { port, packets, reason } => {
                self.state.drop(port, reason, packets.into());
                // By the clock of the counter, and no end of anything.
                self.settle(now);
            }
            Kind::Signal(_) => {
                self.state.signals += 1;
                self.settle(now);
                self.state.signalled = true;
            }
            Kind::Point { point, .. } => {
                self.state.points.other(point, now);
                self.note_point(PseudoCall::OtherPoint, now);
                self.after(PseudoCall::OtherPoint, call_ns, now);
            }
            Kind::Enter(_) | Kind::Leave(_) | Kind::LeaveInnermost => {}
            _ => self.kernel(kind, now),
        }
    }

    /// Polls that found nothing, reported afterwards.
    fn empty_run(&mut self, queue: Option<Queue>, polls: u32, lasted_ns: u32, now: u64) {
        let since = now - self.state.last_ns;
        let node = self.innermost();
        self.state.worst.excuse();
        self.note(now);
        let lasted = u64::from(lasted_ns).min(since);
        self.state.points.empty_run(queue, polls, lasted, now);
        let off_cpu_ns = self.state.off_cpu_ns();
        self.state.points.rounds(lasted, now, off_cpu_ns);
        self.state.series.idle(lasted);
        let (polling, spent_ns) =
            self.past_call(PseudoCall::EmptyPolls, u64::from(polls), lasted, now);
        // The ledger has it, by queue, and with the system calls that were such polls.
        if let Some(spent) = self.state.spent.get_mut(polling as usize) {
            *spent = spent.saturating_sub(spent_ns);
        }
        self.state.course.spend(polling, now - spent_ns, now);
        self.state.ledger.program(now, node, Some((queue, u64::from(lasted_ns))));
    }

    /// What the kernel tells of the thread.
    fn kernel(&mut self, kind: Kind, now: u64) {
        self.counts.kernel += 1;
        self.state.kernel_events += 1;
        match kind {
            Kind::SwitchedOut { runnable } => {
                self.state.switches += 1;
                let own = if runnable { PseudoCall::Preempted } else { PseudoCall::Waiting };
                self.open(own, now, u32::from(runnable));
                self.state.ledger.leaves();
            }
            Kind::TookOver(task) => {
                self.settle(now);
                self.state.ledger.took_over(task);
            }
            Kind::WokenBy(task) => {
                self.settle(now);
                let off = [PseudoCall::Preempted as u32, PseudoCall::Waiting as u32];
                if self.state.stack.last().is_some_and(|frame| off.contains(&frame.function)) {
                    self.state.ledger.woken_by(task);
                }
            }
            Kind::SwitchedIn => self.close(&[PseudoCall::Preempted, PseudoCall::Waiting], now),
            Kind::InterruptIn(PAGE_FAULT) => self.open(PseudoCall::PageFault, now, PAGE_FAULT),
            Kind::InterruptOut(PAGE_FAULT) => self.close(&[PseudoCall::PageFault], now),
            Kind::InterruptIn(vector) => self.open(PseudoCall::Interrupt, now, vector),
            Kind::InterruptOut(_) => self.close(&[PseudoCall::Interrupt], now),
            Kind::SyscallIn(call) => {
                self.state.syscalls += 1;
                self.open(PseudoCall::Syscall, now, call);
            }
            Kind::Returned(value) => {
                self.settle(now);
                self.state.ledger.returned(value);
            }
            Kind::SyscallOut(_) => self.close(&[PseudoCall::Syscall], now),
            _ => {}
        }
    }

    /// After a point: its time is a call of its own, or belongs to the call around it.
    fn after(&mut self, own: PseudoCall, call_ns: u64, now: u64) {
        self.note_point(own, now);
        let mut node = self.innermost();
        if self.state.stack.is_empty() && call_ns > 0 {
            node = self.past_call(own, 1, call_ns, now).0;
        } else {
            self.settle(now);
        }
        self.state.ledger.program(now, node, None);
        self.state.points.run();
    }

    fn open(&mut self, own: PseudoCall, now: u64, detail: u32) {
        self.settle(now);
        if self.state.stack.len() < STACK_MAX {
            self.push(own as u32, NO_KEY, now, false, detail);
        }
    }

    /// Ends the innermost of these, if one is open; the kernel's view begins at any time.
    fn close(&mut self, owns: &[PseudoCall], now: u64) {
        self.settle(now);
        let is_one = |function: u32| owns.iter().any(|&own| own as u32 == function);
        let Some(depth) = self.state.stack.iter().rposition(|frame| is_one(frame.function)) else {
            return;
        };
        let frame = self.state.stack[depth];
        let lasted = now - frame.start_ns;
        let join = match frame.function {
            function if function == PseudoCall::Preempted as u32 => Join::Preempted,
            function if function == PseudoCall::Waiting as u32 => Join::Waiting,
            function if function == PseudoCall::Interrupt as u32 => Join::Interrupt,
            function if function == PseudoCall::PageFault as u32 => Join::PageFault,
            _ => Join::Syscall,
        };
        match join {
            Join::Preempted | Join::Waiting => {
                let below = self.state.stack[..depth].iter().rev();
                let mut calls = below.filter(|frame| frame.function == PseudoCall::Syscall as u32);
                let call = calls.next().map(|frame| frame.detail);
                let node = self.innermost();
                self.state.ledger.comes(join == Join::Preempted, call, node);
            }
            Join::Syscall => self.state.ledger.call_ends(frame.detail),
            Join::Interrupt | Join::PageFault => {}
        }
        self.state.kernel_ns[join as usize] += lasted;
        self.state.worst.join(join, lasted);
        // The same event may have been lost for what the kernel nested inside.
        unwind(self.state, self.tree, depth + 1, now);
        self.pop(now);
    }
}
