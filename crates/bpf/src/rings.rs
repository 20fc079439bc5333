//! The record rings of a kernel half: one BPF ring buffer per possible CPU, read through memory
//! shared with the kernel, and a word that says whether a reader is asleep.
//!
//! A ring per CPU because producers of one ring share its lock: two already cost two thirds of the
//! rate of one. Wake-ups are adaptive: the word is 0 while the reader is awake, otherwise how many
//! bytes must be pending in a ring before the program wakes it; the program sets it to 0 when it
//! does. So a busy reader costs the data path no interrupt.
//!
//! **A wake-up is dear**: `bpf_ringbuf_submit` wakes through `irq_work`, an interrupt to the own CPU,
//! which on a virtual machine leaves the guest; it was 37 % of what the receive thread spent per
//! record at 200,000/s (docs/measurements/features.md). So a reader that has just read records asks
//! for [`Moderation::records`] of them before it is woken and looks by itself after
//! [`Moderation::delay`], as TPACKET_V3 does with a block and its timeout; one that found none for
//! a whole delay asks for the first record.
//!
//! **The sleep protocol and its remaining race.** To sleep, [`Rings::wait`] stores what it waits for
//! into the word, issues a full fence, looks at every ring once more (a record still being written
//! counts as present) and only then blocks. A program that reserves, then executes a full barrier (any
//! atomic read-modify-write, such as `__sync_fetch_and_add` on a counter), then reads the word,
//! cannot be missed. A program without the barrier may read the word before its reservation is
//! visible to us: for the length of a store buffer (tens of nanoseconds) it may see 0 while we see
//! an empty ring. The record then waits for the next record or for the timeout of `wait`,
//! whichever is first; nothing is lost. So: always pass a timeout that the latency goal can bear.
//!
//! **A record that is not finished** is there for some hundred nanoseconds, unless its CPU was taken
//! away in between: an interrupt, or a hypervisor that runs another guest for milliseconds. Then
//! nothing wakes us (the program has read the word already, and epoll calls the ring readable), so
//! [`Rings::wait`] looks for as long as a record takes and then from nap to nap.
//!
//! What must always hold: one consumer per ring (this value), and ring memory outlives every
//! record slice handed out.

use crate::{
    BpfError,
    mapping::{Access, Mapping, page_bytes},
    ring::{Consumer, GIVE_BACK, LOOK, RingMemory, slot_bytes},
};
use laneway_core::Wake;
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys::bpf_map_create_opts};
use std::{
    hint, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    slice,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence},
    thread,
    time::{Duration, Instant},
};

/// Looks at an unfinished record before the first nap: a few microseconds, many times what a program
/// takes to fill it.
const LOOKS: usize = 256;
/// Between two looks at a record whose program was interrupted.
const NAP: Duration = Duration::from_micros(50);

/// The smallest ring: a page.
pub const RING_BYTES_MIN: u32 = 1 << 12;
/// The largest ring that a half may ask for, per CPU.
pub const RING_BYTES_MAX: u32 = 1 << 30;

/// How many wake-ups a reader can do without while records flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Records pending in one ring that are worth a wake-up; 1 wakes for each first one.
    pub records: usize,
    /// The longest a record waits for company.
    pub delay: Duration,
}

impl Default for Moderation {
    /// Either takes over at 256,000 records/s.
    fn default() -> Self {
        Moderation { records: 256, delay: Duration::from_millis(1) }
    }
}

/// All rings of one kernel half, with its wake-up word. One thread consumes.
pub struct Rings {
    /// Indexed by CPU. Declared before the maps, so that memory is unmapped before they close.
    consumers: Vec<Consumer<Shared>>,
    wanted: Wanted,
    epoll: OwnedFd,
    record_bytes: usize,
    moderation: Moderation,
    /// Records were read since the last wait: more will come soon.
    flowing: bool,
    /// The event that is not a ring's ended the wait.
    is_heard: bool,
    object: String,
    _maps: Vec<MapHandle>,
}

impl Rings {
    /// Creates a ring map; the rings of a half are made before it is loaded, because an array of
    /// maps needs one of them as its prototype.
    pub(crate) fn create_map(name: &str, ring_bytes: u32) -> Result<MapHandle, BpfError> {
        let opts =
            bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        MapHandle::create(MapType::RingBuf, Some(name), 0, 0, ring_bytes, &opts)
            .map_err(|e| crate::error::libbpf(format!("create a ring of {ring_bytes} bytes"), &e))
    }

    /// Maps every ring and the word into memory.
    pub(crate) fn map(
        object: &str,
        maps: Vec<MapHandle>,
        wanted: BorrowedFd<'_>,
        record_bytes: usize,
    ) -> Result<Self, BpfError> {
        // SAFETY: no memory is passed; the answer is a new descriptor or -1.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(BpfError::last_os("create an epoll descriptor"));
        }
        // SAFETY: just created, and no other owner has it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let mut consumers = Vec::with_capacity(maps.len());
        for map in &maps {
            let shared = Shared::map(map.as_fd(), map.max_entries() as usize)?;
            watch(epoll.as_fd(), map.as_fd(), RING)
                .map_err(|e| BpfError::os("watch a ring with epoll", e))?;
            let position = shared.consumed().load(Ordering::Relaxed);
            consumers.push(Consumer::new(shared, position));
        }
        Ok(Rings {
            consumers,
            wanted: Wanted::map(wanted)?,
            epoll,
            record_bytes,
            moderation: Moderation::default(),
            flowing: false,
            is_heard: false,
            object: object.to_owned(),
            _maps: maps,
        })
    }

    /// How many rings there are: one per possible CPU.
    pub fn rings(&self) -> usize {
        self.consumers.len()
    }

    /// Shows every finished record of every ring, each ring in order, and returns how many there
    /// were. A run is one record: in a BPF ring an 8-byte header stands before each, so records
    /// are never adjacent. Bounded: what is produced during the call waits for the next one.
    ///
    /// # Errors
    /// [`BpfError::Object`] when the program emits a record of another length than it declared.
    pub fn consume(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, BpfError> {
        let mut records = 0;
        for cpu in 0..self.consumers.len() {
            records += self.consume_cpu(cpu, &mut each)?;
        }
        Ok(records)
    }

    /// As [`consume`](Self::consume), the ring of one CPU (below [`rings`](Self::rings)).
    ///
    /// # Errors
    /// As for [`consume`](Self::consume).
    #[inline]
    pub fn consume_cpu(
        &mut self,
        cpu: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<usize, BpfError> {
        let want = self.record_bytes;
        let mut other = None;
        let records = self.consumers[cpu].consume(&mut |record: &[u8]| {
            if record.len() == want {
                each(record);
            } else {
                other = Some(record.len());
            }
        });
        self.flowing |= records > 0;
        match other {
            None => Ok(records),
            Some(got) => Err(BpfError::Object {
                object: self.object.clone(),
                why: format!("it emitted a record of {got} bytes and declared {want}"),
            }),
        }
    }

    /// True when a ring holds a record, finished or not.
    pub fn has_any(&self) -> bool {
        self.consumers.iter().any(Consumer::has_any)
    }

    /// From now on a [`wait`](Self::wait) ends as well when `event` is readable; it is not read.
    ///
    /// # Errors
    /// [`BpfError::Os`] when the kernel refuses to watch it.
    pub fn hear(&mut self, event: BorrowedFd<'_>) -> Result<(), BpfError> {
        watch(self.epoll.as_fd(), event, EVENT).map_err(|e| BpfError::os("watch an event", e))
    }

    /// Sets how many wake-ups the reader can do without.
    pub fn moderate(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// Blocks until a ring has a finished record, or the event that it [hears](Self::hear), at most for `timeout`
    /// (rounded up to milliseconds); a signal counts as a timeout. While records flow it blocks for more than one,
    /// within the limits of [`Moderation`].
    ///
    /// # Errors
    /// [`BpfError::Os`] when the kernel refuses to wait.
    pub fn wait(&mut self, timeout: Duration) -> Result<Wake, BpfError> {
        self.is_heard = false;
        let flowing = std::mem::take(&mut self.flowing);
        let worth_bytes = if flowing { self.worth_bytes() } else { 1 };
        let timeout = if worth_bytes > 1 { timeout.min(self.moderation.delay) } else { timeout };
        self.wanted.store(worth_bytes);
        // Our store of the word must be visible before we look at the rings: pairs with the
        // barrier (see the module's text) between a program's reservation and its load.
        fence(Ordering::SeqCst);
        let begun = Instant::now();
        let is_worth_it = |ring: &Consumer<Shared>| ring.pending_bytes() >= worth_bytes as usize;
        let woken = match self.consumers.iter().any(is_worth_it) {
            true => Ok(Wake::Ready),
            false => self.block(timeout),
        };
        self.wanted.store(0);
        if self.is_heard {
            return woken.map(|_| Wake::Ready);
        }
        if woken? == Wake::Timeout && !self.has_any() {
            return Ok(Wake::Timeout);
        }
        let left = timeout.saturating_sub(begun.elapsed());
        Ok(until_finished(|| self.consumers.iter().any(Consumer::has_finished), left))
    }

    /// Pending bytes that are worth a wake-up; never so many that the ring would fill up first.
    fn worth_bytes(&self) -> u32 {
        if self.moderation.records <= 1 {
            return 1;
        }
        let ring_bytes = self.consumers.first().map_or(0, Consumer::ring_bytes);
        let bytes = self.moderation.records.saturating_mul(slot_bytes(self.record_bytes));
        bytes.min(ring_bytes / 4).max(1) as u32
    }

    fn block(&mut self, timeout: Duration) -> Result<Wake, BpfError> {
        let ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for exactly the one event that is asked for.
        let events = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, ms) };
        match events {
            1.. => {
                self.is_heard = event.u64 == EVENT;
                Ok(Wake::Ready)
            }
            0 => Ok(Wake::Timeout),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(Wake::Timeout),
                e => Err(BpfError::os("wait for records", e)),
            },
        }
    }
}

/// What epoll calls a ring, and the event that is none.
const RING: u64 = 0;
const EVENT: u64 = 1;

/// Has `epoll` tell by `token` when `fd` is readable.
fn watch(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
    let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: both descriptors are open; the kernel copies `event` during the call.
    match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Looks until `is_finished`, at most for `timeout`; without a nap while a program is at work.
fn until_finished(is_finished: impl Fn() -> bool, timeout: Duration) -> Wake {
    for _ in 0..LOOKS {
        if is_finished() {
            return Wake::Ready;
        }
        hint::spin_loop();
    }
    let since = Instant::now();
    loop {
        thread::sleep(NAP.min(timeout));
        match is_finished() {
            true => return Wake::Ready,
            false if since.elapsed() >= timeout => return Wake::Timeout,
            false => {}
        }
    }
}

/// The kernel's memory of one ring: a page with our position, a page with the kernel's position,
/// then the data twice in a row (the last two read-only).
struct Shared {
    consumer: Mapping,
    producer: Mapping,
    page_bytes: usize,
    data_bytes: usize,
}

impl Shared {
    fn map(ring: BorrowedFd<'_>, data_bytes: usize) -> Result<Self, BpfError> {
        let page_bytes = page_bytes();
        Ok(Shared {
            consumer: Mapping::new(ring, 0, page_bytes, Access::ReadWrite)?,
            producer: Mapping::new(ring, page_bytes, page_bytes + 2 * data_bytes, Access::Read)?,
            page_bytes,
            data_bytes,
        })
    }

    fn consumed(&self) -> &AtomicUsize {
        // SAFETY: the page is mapped for writing as long as `self`, page-aligned, and its first
        // word is the consumer position, an `unsigned long`.
        unsafe { self.consumer.start().cast().as_ref() }
    }
}

impl RingMemory for Shared {
    fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    #[inline]
    fn produced(&self) -> usize {
        // SAFETY: mapped as long as `self`, page-aligned; the first word of the second page is the
        // producer position, an `unsigned long`. A load needs no write access.
        let produced: &AtomicUsize = unsafe { self.producer.start().cast().as_ref() };
        produced.load(LOOK)
    }

    #[inline]
    fn give_back(&self, position: usize) {
        self.consumed().store(position, GIVE_BACK);
    }

    #[inline]
    fn header(&self, at: usize) -> u32 {
        assert!(
            at < self.data_bytes && at.is_multiple_of(8),
            "positions are masked, slots aligned"
        );
        // SAFETY: `at` lies in the first copy of the data, which starts a page into the mapping.
        let header = unsafe { self.producer.start().add(self.page_bytes + at) };
        // SAFETY: mapped as long as `self`, aligned to 8; the kernel writes this word atomically.
        let header: &AtomicU32 = unsafe { header.cast().as_ref() };
        header.load(LOOK)
    }

    #[inline]
    fn look<R>(&self, at: usize, len: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        // A header follows the last byte of data only through the second copy.
        assert!(
            at <= self.data_bytes && len <= self.data_bytes,
            "the kernel reserves no more than a ring"
        );
        // SAFETY: `at` is at most the length of the first copy, a page into the mapping.
        let record = unsafe { self.producer.start().add(self.page_bytes + at) };
        // SAFETY: `at + len` is at most both copies. The program finished writing these bytes
        // before it cleared the busy bit that the caller saw cleared, and no producer writes them until
        // the position passes them, which happens after `look` returns.
        look(unsafe { slice::from_raw_parts(record.as_ptr(), len) })
    }
}

/// The wake-up word: the first `u32` of an array map that is mapped into memory.
struct Wanted(Mapping);

impl Wanted {
    fn map(map: BorrowedFd<'_>) -> Result<Self, BpfError> {
        Ok(Wanted(Mapping::new(map, 0, page_bytes(), Access::ReadWrite)?))
    }

    fn store(&self, value: u32) {
        // SAFETY: mapped for writing as long as `self`, page-aligned; programs only load it, or
        // store whole words.
        let word: &AtomicU32 = unsafe { self.0.start().cast().as_ref() };
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_record_about_to_be_finished_costs_no_nap() {
        let looks = Cell::new(0);
        let is_finished = || looks.replace(looks.get() + 1) == LOOKS - 1;
        assert_eq!(until_finished(is_finished, Duration::MAX), Wake::Ready);
        assert_eq!(looks.get(), LOOKS);
    }

    #[test]
    fn a_program_without_its_cpu_is_waited_for_asleep() {
        let looks = Cell::new(0);
        let is_finished = || looks.replace(looks.get() + 1) == LOOKS + 2;
        assert_eq!(until_finished(is_finished, Duration::from_secs(3600)), Wake::Ready);

        // Within the timeout only so many naps fit: a worker does not spin.
        looks.set(0);
        let timeout = 20 * NAP;
        let never = || looks.replace(looks.get() + 1) == usize::MAX;
        assert_eq!(until_finished(never, timeout), Wake::Timeout);
        assert!((LOOKS + 1..=LOOKS + 20).contains(&looks.get()), "{} looks", looks.get());
    }
}
