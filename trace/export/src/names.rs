//! Names for the numbers of a trace, asked for once per number.
//!
//! Names come from traced programs and are hostile: each exporter escapes them for its format.

use crate::nest::CallFrame;
use laneway_trace_read::FunctionKey;
use std::collections::HashMap;

/// Tells what the numbers in events mean.
pub trait Names {
    /// A function.
    fn function(&self, key: FunctionKey) -> String;

    /// A point that the analysis has no rule for.
    fn point(&self, point: u32) -> String {
        format!("point {point}")
    }

    /// A pool of buffers.
    fn pool(&self, pool: u16) -> String {
        format!("pool {pool}")
    }
}

/// What a frame is called.
pub(crate) fn frame_name(names: &dyn Names, frame: CallFrame) -> String {
    match frame {
        CallFrame::Function(key) => names.function(key),
        CallFrame::Syscall(number) => format!("system call {number}"),
        CallFrame::Interrupt(vector) => format!("interrupt {vector}"),
        CallFrame::OffCpu { runnable: true } => "off CPU (preempted)".to_owned(),
        CallFrame::OffCpu { runnable: false } => "off CPU (waiting)".to_owned(),
    }
}

/// Numbers the names that were used, in the order of first use.
///
/// Two functions of one name share a number: exports show names, and a name written twice is only larger.
#[derive(Default)]
pub(crate) struct Interned {
    by_frame: HashMap<CallFrame, usize>,
    by_name: HashMap<String, usize>,
}

impl Interned {
    /// The number of the frame's name, and the name itself if it has not been used before.
    pub(crate) fn number(
        &mut self,
        names: &dyn Names,
        frame: CallFrame,
    ) -> (usize, Option<String>) {
        if let Some(&number) = self.by_frame.get(&frame) {
            return (number, None);
        }
        let name = frame_name(names, frame);
        let next = self.by_name.len();
        let (number, fresh) = match self.by_name.get(&name) {
            Some(&number) => (number, None),
            None => {
                self.by_name.insert(name.clone(), next);
                (next, Some(name))
            }
        };
        self.by_frame.insert(frame, number);
        (number, fresh)
    }
}

/// A category for colouring and filtering.
pub(crate) fn category(frame: CallFrame) -> &'static str {
    match frame {
        CallFrame::Function(_) => "function",
        CallFrame::Syscall(_) => "syscall",
        CallFrame::Interrupt(_) => "interrupt",
        CallFrame::OffCpu { .. } => "off-cpu",
    }
}
