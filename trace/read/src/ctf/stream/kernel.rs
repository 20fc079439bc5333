//! Events of the kernel's tracer: each is the thread's that is on the CPU of the stream.

use super::super::plan::Kernel;
use super::walked::Picked;
use super::{Stream, saturate};
use crate::block::Block;
use crate::event::{Event, Kind};

/// Softirqs count from here among interrupts.
const SOFTIRQ_BASE: u32 = 1 << 16;
/// Bits of a task's state that say what it waits for, or that it is gone (`TASK_REPORT` of the kernel).
const TASK_REPORT: u64 = 0xff;

impl Stream {
    /// Delivers an event of the kernel's tracer, to the thread on the CPU.
    pub(super) fn kernel(
        &mut self,
        of: Kernel,
        picked: &Picked,
        cpu: Option<u32>,
        time_ns: u64,
        block: &mut Block,
    ) {
        if of == Kernel::Switch {
            let number = |name: &str| picked.numbers.get(name).copied().unwrap_or(0);
            let name = |name: &str| picked.texts.get(name).map_or(&[][..], Vec::as_slice);
            let (prev, next) = (number("prev_tid") as u32, number("next_tid") as u32);
            let runnable = number("prev_state") & TASK_REPORT == 0;
            // Task 0 is the idle one.
            if prev != 0 {
                let thread = self.threads.number(0, prev, name("prev_comm"), block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::SwitchedOut { runnable } });
                let task = self.threads.task(name("next_comm"), block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::TookOver(task) });
            }
            // No interrupt is left by a switch, so that one whose end is missing does not count for ever.
            (self.threads.on_cpu, self.threads.interrupts) = (None, 0);
            // A thread that is woken in the idle task's name is woken by an interrupt, which has no name.
            let by = if next == 0 { &[][..] } else { name("next_comm") };
            self.threads.task = Some(self.threads.task(by, block));
            if next != 0 {
                let thread = self.threads.number(0, next, name("next_comm"), block);
                // Who had the CPU until now: behind that one it waited since it was woken.
                let task = self.threads.task(name("prev_comm"), block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::TookOver(task) });
                block.push(thread, cpu, Event { time_ns, kind: Kind::SwitchedIn });
                self.threads.on_cpu = Some(thread);
            }
            return;
        }
        if of == Kernel::Waking {
            let woken = picked.numbers.get("tid").copied().unwrap_or(0) as u32;
            let name = picked.texts.get("comm").map_or(&[][..], Vec::as_slice);
            if let (true, Some(task)) = (woken != 0, self.threads.task) {
                // An interrupt has no name, and the task that it stopped is not what lets the other go on.
                let is_interrupted = self.threads.interrupts > 0;
                let task = if is_interrupted { self.threads.task(&[], block) } else { task };
                let thread = self.threads.number(0, woken, name, block);
                block.push(thread, cpu, Event { time_ns, kind: Kind::WokenBy(task) });
            }
            return;
        }
        let interrupts = &mut self.threads.interrupts;
        match of {
            Kernel::InterruptIn | Kernel::SoftirqIn | Kernel::HandlerIn(_) => {
                *interrupts = interrupts.saturating_add(1);
            }
            Kernel::InterruptOut | Kernel::SoftirqOut | Kernel::HandlerOut(_) => {
                *interrupts = interrupts.saturating_sub(1);
            }
            _ => {}
        }
        let Some(thread) = self.threads.on_cpu else { return };
        let mut push = |thread: u32, kind| block.push(thread, cpu, Event { time_ns, kind });
        let number = saturate::<u32>(picked.values[0]);
        let softirq = SOFTIRQ_BASE.saturating_add(number);
        match of {
            Kernel::Switch | Kernel::Waking => {}
            Kernel::InterruptIn => push(thread, Kind::InterruptIn(number)),
            Kernel::InterruptOut => push(thread, Kind::InterruptOut(number)),
            Kernel::SoftirqIn => push(thread, Kind::InterruptIn(softirq)),
            Kernel::SoftirqOut => push(thread, Kind::InterruptOut(softirq)),
            Kernel::SyscallIn(call) => push(thread, Kind::SyscallIn(call)),
            Kernel::SyscallOut(call) => push(thread, Kind::SyscallOut(call)),
            Kernel::Point(point) | Kernel::HandlerIn(point) | Kernel::HandlerOut(point) => {
                push(thread, Kind::Point { point, value: picked.values[0] });
            }
        }
    }
}
