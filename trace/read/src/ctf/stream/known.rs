//! What a stream has named so far: its threads, the tasks of its CPU, its pools.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};

use super::NAME_BYTES_MAX;
use crate::block::{Block, Who};
use crate::event::FunctionKey;
use crate::symbols::ProcessFact;

/// Most threads of a stream; those beyond it are one.
const THREADS_MAX: usize = 65_536;

/// Threads seen on a stream.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// The one of the last event, to be compared first: hashing each event would cost more than decoding it.
    last: Option<(u32, u32, u32)>,
    last_name: [u8; NAME_BYTES_MAX],
    last_name_bytes: usize,
    numbers: HashMap<(u32, u32), u32>,
    pub(super) names: Vec<Vec<u8>>,
    /// Their numbers are those of the host, and processes are not known.
    pub(super) of_host: bool,
    /// The one on the CPU of this stream; `None` where it is not known, before the first switch and behind a loss.
    pub(super) on_cpu: Option<u32>,
    /// Interrupts and softirqs that have the CPU, one within the other.
    pub(super) interrupts: u32,
    /// The task there, the idle one included, and those that are named already.
    pub(super) task: Option<FunctionKey>,
    tasks_named: HashSet<FunctionKey>,
}

impl Threads {
    #[inline]
    pub(super) fn number(&mut self, pid: u32, tid: u32, name: &[u8], block: &mut Block) -> u32 {
        if let Some((last_pid, last_tid, number)) = self.last
            && last_pid == pid
            && last_tid == tid
            && same(name, &self.last_name, self.last_name_bytes)
        {
            return number;
        }
        self.find(pid, tid, name, block)
    }

    /// The key of a task by its name, which is reported once.
    pub(super) fn task(&mut self, name: &[u8], block: &mut Block) -> FunctionKey {
        let name = String::from_utf8_lossy(shown(name)).into_owned();
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        let key = FunctionKey(TASK_KEYS | hasher.finish() >> 32);
        if self.tasks_named.len() < THREADS_MAX && self.tasks_named.insert(key) {
            block.facts.push(ProcessFact::Task { key, name });
        }
        key
    }

    #[cold]
    fn find(&mut self, pid: u32, tid: u32, name: &[u8], block: &mut Block) -> u32 {
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let full = self.numbers.len() >= THREADS_MAX;
        let key = if full && !self.numbers.contains_key(&(pid, tid)) { (0, 0) } else { (pid, tid) };
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(key).or_insert(next);
        let shown = shown(name);
        let known = self.names.get(number as usize);
        if known.map(Vec::as_slice) != Some(shown) {
            let who = Who {
                pid: key.0,
                tid: Some(key.1),
                of_host: self.of_host,
                name: String::from_utf8_lossy(shown).into_owned(),
            };
            block.threads.push((number, who));
            match self.names.get_mut(number as usize) {
                Some(known) => *known = shown.to_vec(),
                None => self.names.push(shown.to_vec()),
            }
        }
        self.last = Some((pid, tid, number));
        self.last_name[..name.len()].copy_from_slice(name);
        self.last_name_bytes = name.len();
        number
    }
}

/// Keys of tasks: no address has them.
const TASK_KEYS: u64 = 0x7461_736b << 32;

/// A name without what fills its field up.
fn shown(name: &[u8]) -> &[u8] {
    &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())]
}

/// `name` is the first `bytes` of `last`. Names of LTTng have 17 bytes: two overlapping loads instead of a call.
#[inline]
fn same(name: &[u8], last: &[u8; NAME_BYTES_MAX], bytes: usize) -> bool {
    match (<&[u8; 17]>::try_from(name), last.first_chunk::<17>()) {
        (Ok(name), Some(last)) => bytes == 17 && name == last,
        _ => {
            let name = &name[..name.len().min(NAME_BYTES_MAX)];
            last.get(..bytes) == Some(name)
        }
    }
}

/// Pools seen on a stream.
#[derive(Debug, Default)]
pub(super) struct Pools {
    last: Option<(u64, u16)>,
    numbers: HashMap<u64, u16>,
}

impl Pools {
    #[inline]
    pub(super) fn number(&mut self, address: u64, block: &mut Block) -> u16 {
        block.has_pools = true;
        if let Some((last, number)) = self.last
            && last == address
        {
            return number;
        }
        let next = u16::try_from(self.numbers.len()).unwrap_or(u16::MAX);
        let number = match self.numbers.get(&address) {
            Some(&number) => number,
            None if next == u16::MAX => next, // more pools than numbers: the last number is all others
            None => {
                block.pools.push(address);
                self.numbers.insert(address, next);
                next
            }
        };
        self.last = Some((address, number));
        number
    }
}
