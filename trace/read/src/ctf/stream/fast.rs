//! The fast path: events of known layout, of which only what is wanted is loaded.

use super::super::layout::{Spot, SpotKind, advance, mask};
use super::super::plan::{EventPlan, Role, StreamPlan};
use super::known::{Pools, Threads};
use super::{Halt, meaning, saturate};
use crate::block::{BLOCK_EVENTS, Block};
use crate::event::{Event, FunctionKey, Kind};

pub(super) const COMPACT: u8 = 0;
pub(super) const LARGE: u8 = 1;
pub(super) const DPDK: u8 = 2;

/// The fast path and all it touches.
pub(super) struct Fast<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    /// Offset of `bytes` from the start of the packet, bytes, modulo 2^64.
    pub(super) origin: u64,
    pub(super) class: &'a StreamPlan,
    pub(super) cpu: Option<u32>,
    pub(super) pid: u32,
    pub(super) clock: u64,
    pub(super) last_ns: u64,
    /// Where process and thread lie as 8 bytes in a row, and a name of 17 behind: what LTTng writes.
    pub(super) who: Option<(usize, usize)>,
    /// Those bytes in the event before, and the number of its thread; one comparison finds it again.
    pub(super) before: Option<(u64, [u8; 17], u32)>,
    pub(super) threads: &'a mut Threads,
    pub(super) pools: &'a mut Pools,
    pub(super) block: &'a mut Block,
}

macro_rules! loads {
    ($name:ident, $number:ty, $bytes:literal) => {
        #[inline]
        fn $name<const BIG: bool>(bytes: &[u8], at: usize) -> Option<$number> {
            let found = bytes.get(at..at + $bytes)?.first_chunk::<$bytes>()?;
            Some(if BIG {
                <$number>::from_be_bytes(*found)
            } else {
                <$number>::from_le_bytes(*found)
            })
        }
    };
}
loads!(load_16, u16, 2);
loads!(load_32, u32, 4);
loads!(load_64, u64, 8);

/// The 17 bytes of a name of LTTng.
#[inline(always)]
fn load_name(body: &[u8], at: usize) -> Option<[u8; 17]> {
    body.get(at..at + 17)?.first_chunk().copied()
}

/// The integer at `spot` of `body`, sign extended.
#[inline(always)]
fn load(body: &[u8], spot: Spot) -> Option<u64> {
    let SpotKind::Whole { big_endian, signed } = spot.kind else { return None };
    let run = body.get(spot.offset..spot.offset + spot.bytes)?;
    let raw = match (spot.bytes, big_endian) {
        (8, false) => load_64::<false>(run, 0)?,
        (8, true) => load_64::<true>(run, 0)?,
        (4, false) => load_32::<false>(run, 0)?.into(),
        (4, true) => load_32::<true>(run, 0)?.into(),
        (2, false) => load_16::<false>(run, 0)?.into(),
        (2, true) => load_16::<true>(run, 0)?.into(),
        _ => (*run.first()?).into(),
    };
    let unused = 64 - 8 * spot.bytes as u32;
    Some(if signed { (((raw << unused) as i64) >> unused) as u64 } else { raw })
}

impl Fast<'_> {
    /// Decodes events while they are plain. What it stops at was not touched.
    pub(super) fn events<const FORM: u8, const BIG: bool>(&mut self) -> Halt {
        let who = self.class.who;
        let names_thread = who.names_thread;
        if names_thread && (who.tid.is_none() && who.pid.is_none()) {
            return Halt::Odd; // the thread is stated where only a walk finds it
        }
        loop {
            self.calls::<FORM, BIG>();
            if self.block.events.len() >= BLOCK_EVENTS {
                return Halt::Full;
            }
            if self.event::<FORM, BIG>(names_thread).is_none() {
                return Halt::Odd;
            }
        }
    }

    /// Id and clock of the event at `at`, and where its context begins; `before` is the clock of the event before.
    #[inline(always)]
    fn head<const FORM: u8, const BIG: bool>(
        &self,
        at: usize,
        before: u64,
    ) -> Option<(u32, u64, usize)> {
        let bytes = self.bytes;
        Some(match FORM {
            COMPACT => {
                let word = load_32::<BIG>(bytes, at)?;
                let (id, time) =
                    if BIG { (word >> 27, word & 0x7ff_ffff) } else { (word & 31, word >> 5) };
                if id == 31 {
                    let id = load_32::<BIG>(bytes, at + 1)?;
                    (id, load_64::<BIG>(bytes, at + 5)?, at + 13)
                } else {
                    (id, advance(before, time.into(), 27), at + 4)
                }
            }
            LARGE => {
                let id = load_16::<BIG>(bytes, at)?;
                if id == 65_535 {
                    let id = load_32::<BIG>(bytes, at + 2)?;
                    (id, load_64::<BIG>(bytes, at + 6)?, at + 14)
                } else {
                    let time = load_32::<BIG>(bytes, at + 2)?;
                    (id.into(), advance(before, time.into(), 32), at + 6)
                }
            }
            _ => {
                let packet = self.origin.wrapping_add(at as u64);
                let start = at + (packet.next_multiple_of(8) - packet) as usize;
                let word = load_64::<BIG>(bytes, start)?;
                let (time, id) = if BIG {
                    (word >> 16, word as u32 & 0xffff)
                } else {
                    (word & mask(48), (word >> 48) as u32)
                };
                (id, advance(before, time, 48), start + 8)
            }
        })
    }

    /// Decodes calls and exits of the thread of the event before, until one is not, or the block is full. Leaves what
    /// it stops at as it was; does to the others what [`Fast::event`] would.
    #[inline]
    fn calls<const FORM: u8, const BIG: bool>(&mut self) {
        let (Some((ids_at, name_at)), Some((ids, name, thread))) = (self.who, self.before) else {
            return;
        };
        let (class, bytes) = (self.class, self.bytes);
        let (mut at, mut clock, mut last_ns) = (self.at, self.clock, self.last_ns);
        let (begin, mut entries) = (self.block.events.len(), 0);
        while self.block.events.len() < BLOCK_EVENTS {
            let Some((id, now, start)) = self.head::<FORM, BIG>(at, clock) else { break };
            let Some(call) = class.call(id) else { break };
            let time_ns = class.scale.ns(now);
            let end = start + call.bytes as usize;
            let Some(body) = bytes.get(start..end) else { break };
            if now < clock || time_ns < last_ns || load_64::<false>(body, ids_at) != Some(ids) {
                break;
            }
            let Some(of) = load_name(body, name_at) else { break };
            let Some(address) = load_64::<BIG>(body, call.address as usize) else { break };
            if of != name {
                break;
            }
            let key = FunctionKey(address);
            let kind = if call.enters { Kind::Enter(key) } else { Kind::Leave(key) };
            entries += u64::from(call.enters);
            self.block.events.push(Event { time_ns, kind });
            (at, clock, last_ns) = (end, now, time_ns);
        }
        let decoded = (self.block.events.len() - begin) as u64;
        if decoded > 0 {
            self.block.extend_run(thread, self.cpu);
            self.block.records += decoded;
            self.block.entries += entries;
            self.block.exits += decoded - entries;
        }
        (self.at, self.clock, self.last_ns) = (at, clock, last_ns);
    }

    #[inline(never)]
    fn event<const FORM: u8, const BIG: bool>(&mut self, names_thread: bool) -> Option<()> {
        let bytes = self.bytes;
        let (id, clock, start) = self.head::<FORM, BIG>(self.at, self.clock)?;
        let time_ns = self.class.scale.ns(clock);
        if clock < self.clock || time_ns < self.last_ns {
            return None;
        }
        let plan: &EventPlan = self.class.kind(id.into())?;
        let fixed = plan.fixed.as_ref()?;
        let end = start + fixed.bytes;
        let body = bytes.get(start..end)?;
        let thread = self.thread(body, names_thread)?;
        let kind = match (plan.role, fixed.address) {
            (Role::Enter, Some(address)) => {
                let key = FunctionKey(load_64::<BIG>(body, address)?);
                self.block.entries += 1;
                Kind::Enter(key)
            }
            (Role::Leave, Some(address)) => {
                let key = FunctionKey(load_64::<BIG>(body, address)?);
                self.block.exits += 1;
                Kind::Leave(key)
            }
            _ => self.other(plan, body)?,
        };
        self.clock = clock;
        self.last_ns = time_ns;
        self.at = end;
        self.block.records += 1;
        self.block.push(thread, self.cpu, Event { time_ns, kind });
        Some(())
    }

    /// The event that is no plain call.
    #[inline(never)]
    fn other(&mut self, plan: &EventPlan, body: &[u8]) -> Option<Kind> {
        let fixed = plan.fixed.as_ref()?;
        let values = |index: usize| match fixed.spots[index] {
            Some(spot) => load(body, spot),
            None => Some(0),
        };
        Some(match plan.role {
            Role::Enter => {
                self.block.entries += 1;
                Kind::Enter(FunctionKey(values(0)?))
            }
            Role::Leave => {
                self.block.exits += 1;
                Kind::Leave(FunctionKey(values(0)?))
            }
            Role::LeaveInnermost => {
                self.block.exits += 1;
                Kind::LeaveInnermost
            }
            Role::Pool(action) => {
                let pool = self.pools.number(values(0)?, self.block);
                Kind::Pool { action, pool, buffers: saturate(values(1)?) }
            }
            Role::Tells(_) | Role::Kernel(_) => return None,
            Role::Begin(key) => {
                self.block.entries += 1;
                Kind::Enter(key)
            }
            Role::End(key) => {
                self.block.exits += 1;
                Kind::Leave(key)
            }
            role => meaning(role, [values(0)?, values(1)?, values(2)?]),
        })
    }

    /// The number of the thread that the context in `body` tells.
    #[inline]
    fn thread(&mut self, body: &[u8], names_thread: bool) -> Option<u32> {
        let row = match self.who {
            Some((ids, name)) => {
                let (ids, name) = (load_64::<false>(body, ids)?, load_name(body, name)?);
                if let Some((last_ids, last_name, number)) = self.before
                    && last_ids == ids
                    && last_name == name
                {
                    return Some(number);
                }
                Some((ids, name))
            }
            None => None,
        };
        let number = self.find_thread(body, names_thread)?;
        self.before = row.map(|(ids, name)| (ids, name, number));
        Some(number)
    }

    #[inline(never)]
    fn find_thread(&mut self, body: &[u8], names_thread: bool) -> Option<u32> {
        Some(if names_thread {
            let who = self.class.who;
            let pid = match who.pid {
                Some(spot) => load(body, spot)?,
                None => self.pid.into(),
            };
            let tid = match who.tid {
                Some(spot) => load(body, spot)?,
                None => 0,
            };
            let name = match who.name {
                Some(spot) => body.get(spot.offset..spot.offset + spot.bytes)?,
                None => &[],
            };
            self.threads.number(pid as u32, tid as u32, name, self.block)
        } else {
            0
        })
    }
}
