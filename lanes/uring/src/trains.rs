//! Sending datagrams: slots of lane memory, gathered into trains, one `SENDMSG` request each.
//!
//! ```text
//!   free ──open──▶ gathering (this turn) ──flush──▶ in flight ──last completion──▶ free
//! ```
//!
//! A slot is one message: a list of pieces to one destination. A piece is bytes that the app wrote
//! into the slot's own memory, or bytes of a provided buffer that the app forwards; such a buffer is
//! held until the message has left, so forwarding copies nothing in user space. Where UDP_SEGMENT is
//! on, datagrams of one size to one destination share a slot by the kernel's rules: at most 64, at
//! most 65,507 bytes, and only the last may be shorter. Datagrams to one destination keep their
//! order, because only the youngest slot of a destination takes more.
//!
//! The kernel carries out what it is handed in order, and goes on behind one that it refused. A goal that is `in_order`
//! has at most one message of its egress with the kernel, so that one that must be sent again overtakes nothing and is
//! not overtaken; the others wait for its outcome, which comes with the call that hands it over. So it is with a train
//! of longer segments than any that the egress has sent yet: the kernel may refuse it, and it leaves one by one then.
//!
//! Nothing ever waits for room in a socket: MSG_DONTWAIT makes a full one a counted drop, and lets a
//! request complete within the call that submits it.
//!
//! What must always hold: header, pieces and bytes of a slot are written only while it is not in
//! flight. Slot memory and the memory of pieces were given to [`Ring::keep`].

use crate::{
    address,
    memory::Memory,
    ring::{Completion, Ring},
    sys,
    token::{Kind, token},
};
use io_uring::{opcode, types};
use laneway_core::DropReason;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::{BorrowedFd, RawFd},
    rc::Rc,
};

/// The kernel's bound on the datagrams of one train (128 on newer kernels).
const SEGMENTS_MAX: usize = 64;
/// The longest UDP payload in an IPv4 packet.
const TRAIN_BYTES_MAX: usize = 65_507;
/// Bytes of a slot's own memory: more than any datagram has, so that the kernel judges its length.
pub(crate) const SLOT_BYTES: usize = 1 << 16;
/// A message may be tried so often because of what became of earlier datagrams.
pub(crate) const REPEATS_MAX: u32 = 16;
/// How many slots back an unfinished train is looked for.
const LOOKBACK_SLOTS: usize = 32;
/// Segments up to this length fit every path (IPv6's least MTU of 1280): if the kernel does not take
/// a train of them, it takes none.
const SEGMENT_BYTES_SAFE: usize = 1232;
/// `struct cmsghdr` and a segment size, aligned.
const CONTROL_BYTES: usize = 24;
/// Memory pages of a message that a zero-copy send can name (MAX_SKB_FRAGS).
const PAGES_MAX: usize = 17;
const PAGE_BYTES: usize = 4096;
/// `IORING_SEND_ZC_REPORT_USAGE`.
const REPORT_USAGE: u16 = 1 << 3;

/// What the kernel reads of one message.
#[repr(C)]
struct Header {
    message: libc::msghdr,
    name: [u8; address::BYTES],
    control: [u8; CONTROL_BYTES],
    pieces: [libc::iovec; SEGMENTS_MAX],
}

/// A provided buffer that a piece lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) buffer: u16,
}

/// What the lane knows of one message.
#[derive(Clone, Copy, Debug)]
struct Slot {
    egress: u16,
    destination: SocketAddr,
    in_order: bool,
    segment_bytes: usize,
    segments: usize,
    bytes: usize,
    /// Bytes of its own memory that are used.
    own_bytes: usize,
    pieces: usize,
    /// No further datagram fits behind the last.
    is_full: bool,
    holds: [Option<Hold>; SEGMENTS_MAX],
}

impl Slot {
    fn takes(&self, segment_bytes: usize, bytes: usize) -> bool {
        let segments = bytes.div_ceil(segment_bytes.max(1));
        let same = segment_bytes == self.segment_bytes
            || (bytes < self.segment_bytes && bytes == segment_bytes);
        !self.is_full
            && bytes > 0
            && same
            && self.segments + segments <= SEGMENTS_MAX
            && self.bytes + bytes <= TRAIN_BYTES_MAX
            && self.pieces < SEGMENTS_MAX
    }
}

/// What became of a message.
pub(crate) struct Outcome {
    pub(crate) egress: usize,
    pub(crate) segments: usize,
    pub(crate) segment_bytes: usize,
    pub(crate) bytes: usize,
    pub(crate) result: io::Result<usize>,
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Messages that the ring took.
    pub(crate) taken: usize,
    /// Messages that are still gathered.
    pub(crate) left: usize,
}

/// The send slots of one worker.
pub(crate) struct Trains {
    headers: Rc<Memory>,
    bytes: Rc<Memory>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Slots filled in this turn, in order.
    gathering: Vec<u32>,
    /// Of the last flush, those that it left; empty in between, and the memory of the other one.
    held_back: Vec<u32>,
    /// By egress.
    exits: Vec<Exit>,
    zero_copy_bytes: usize,
}

/// What is known of an egress.
#[derive(Clone, Copy, Debug)]
struct Exit {
    socket: RawFd,
    /// A message that others are not to overtake is with the kernel, and its outcome has not come.
    is_awaited: bool,
    /// The kernel has taken a train of segments of this length.
    proven_bytes: usize,
}

impl Exit {
    /// Of a place without a port: the kernel refuses what is sent there.
    const CLOSED: Exit = Exit { socket: -1, is_awaited: false, proven_bytes: 0 };
}

/// What a slot is made of when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Its place.
    pub(crate) egress: u16,
    pub(crate) destination: SocketAddr,
    /// It may have to be sent again, and what is behind it waits until that is known.
    pub(crate) in_order: bool,
    /// Trains of segments up to this length may be made; 0: none.
    pub(crate) segment_bytes_max: usize,
}

impl Trains {
    /// `count` slots. Messages of `zero_copy_bytes` and more are sent without a copy.
    pub(crate) fn new(
        ring: &mut Ring,
        count: usize,
        zero_copy_bytes: Option<usize>,
    ) -> io::Result<Trains> {
        let headers = Rc::new(Memory::map(count * size_of::<Header>())?);
        let bytes = Rc::new(Memory::map(count * SLOT_BYTES)?);
        ring.keep(&headers);
        ring.keep(&bytes);
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into();
        let slot = Slot {
            egress: 0,
            destination: nowhere,
            in_order: false,
            segment_bytes: 0,
            segments: 0,
            bytes: 0,
            own_bytes: 0,
            pieces: 0,
            is_full: false,
            holds: [None; SEGMENTS_MAX],
        };
        Ok(Trains {
            headers,
            bytes,
            slots: vec![slot; count].into_boxed_slice(),
            // The last freed is used first: its memory is warm.
            free: (0..count as u32).rev().collect(),
            gathering: Vec::with_capacity(count),
            held_back: Vec::with_capacity(count),
            exits: Vec::new(),
            zero_copy_bytes: zero_copy_bytes.unwrap_or(usize::MAX),
        })
    }

    /// A port has this place, of which nothing else is known. Its socket is open until the kernel has every message.
    pub(crate) fn enter(&mut self, egress: u16, socket: RawFd) {
        let egress = usize::from(egress);
        self.exits.resize(self.exits.len().max(egress + 1), Exit::CLOSED);
        self.exits[egress] = Exit { socket, ..Exit::CLOSED };
    }

    /// The port of this place is gone.
    pub(crate) fn leave(&mut self, egress: u16) {
        if let Some(exit) = self.exits.get_mut(usize::from(egress)) {
            *exit = Exit::CLOSED;
        }
    }

    /// True when a slot can be opened.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The slot whose train a datagram to `goal` may join: the youngest to that destination.
    fn joinable(&self, goal: Goal) -> Option<u32> {
        if goal.segment_bytes_max == 0 {
            return None;
        }
        let recent = self.gathering.iter().rev().take(LOOKBACK_SLOTS);
        let mut same = recent.filter(|&&slot| {
            let slot = &self.slots[slot as usize];
            slot.egress == goal.egress && slot.destination == goal.destination
        });
        same.next().copied()
    }

    /// True when a datagram of `bytes` that is written now joins a train.
    pub(crate) fn joins(&self, goal: Goal, bytes: usize) -> bool {
        self.joinable(goal).is_some_and(|slot| {
            let state = &self.slots[slot as usize];
            state.takes(bytes, bytes) && SLOT_BYTES - state.own_bytes >= bytes
        })
    }

    /// Takes a free slot for a message to `goal`.
    fn open(&mut self, goal: Goal) -> Option<u32> {
        let slot = self.free.pop()?;
        let state = &mut self.slots[slot as usize];
        state.egress = goal.egress;
        state.destination = goal.destination;
        state.in_order = goal.in_order;
        state.segment_bytes = 0;
        state.segments = 0;
        state.bytes = 0;
        state.own_bytes = 0;
        state.pieces = 0;
        state.is_full = false;
        self.gathering.push(slot);
        Some(slot)
    }

    /// Adds a piece; `start` lies in kept memory.
    fn add(
        &mut self,
        slot: u32,
        goal: Goal,
        start: *mut u8,
        (segment_bytes, bytes): (usize, usize),
        hold: Option<Hold>,
    ) {
        let state = &mut self.slots[slot as usize];
        if state.segments == 0 {
            state.segment_bytes = segment_bytes;
            state.is_full = segment_bytes == 0 || segment_bytes > goal.segment_bytes_max;
        }
        state.segments += bytes.div_ceil(segment_bytes.max(1)).max(1);
        state.bytes += bytes;
        state.is_full |= !bytes.is_multiple_of(state.segment_bytes.max(1));
        let header = self.headers.at_typed::<Header>(slot as usize * size_of::<Header>());
        // SAFETY: inside the mapping; the slot is gathering, so the kernel does not read it.
        let header = unsafe { &mut *header };
        // Only pieces of the slot's own memory grow: neighbours elsewhere may be of two mappings.
        let own = state.pieces.checked_sub(1).filter(|&last| state.holds[last].is_none());
        let grown = own.map(|last| &mut header.pieces[last]).filter(|piece| {
            hold.is_none() && start as usize == piece.iov_base as usize + piece.iov_len
        });
        match grown {
            Some(piece) => piece.iov_len += bytes,
            None => {
                header.pieces[state.pieces] =
                    libc::iovec { iov_base: start.cast(), iov_len: bytes };
                state.holds[state.pieces] = hold;
                state.pieces += 1;
            }
        }
    }

    /// Adds what `write` puts into lane memory, at most `bytes_max` bytes of it. False when there is
    /// no slot, and then `write` may not have been called.
    #[must_use]
    pub(crate) fn write(
        &mut self,
        goal: Goal,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let offered = bytes_max.min(SLOT_BYTES);
        let joined = self.joinable(goal).filter(|&slot| {
            let state = &self.slots[slot as usize];
            !state.is_full && SLOT_BYTES - state.own_bytes >= offered
        });
        let Some(slot) = joined.or_else(|| self.open(goal)) else { return false };
        let at = slot as usize * SLOT_BYTES + self.slots[slot as usize].own_bytes;
        let memory = self.bytes.clone();
        // SAFETY: a slot that gathers is not in flight, and its own memory from `own_bytes` on is in
        // no piece yet.
        let room = unsafe { memory.slice_mut(at, offered) };
        let bytes = write(room).min(offered);
        let is_new = self.slots[slot as usize].segments == 0;
        let (slot, at) = if is_new || self.slots[slot as usize].takes(bytes, bytes) {
            (slot, at)
        } else {
            // It does not fit behind the others after all: a slot of its own.
            let Some(own) = self.open(goal) else { return false };
            let own_at = own as usize * SLOT_BYTES;
            // SAFETY: as above, for the slot just opened; the two do not overlap.
            unsafe { memory.slice_mut(own_at, bytes) }.copy_from_slice(&room[..bytes]);
            (own, own_at)
        };
        self.slots[slot as usize].own_bytes += bytes;
        let start = memory.base().as_ptr().wrapping_add(at);
        self.add(slot, goal, start, (bytes, bytes), None);
        true
    }

    /// Adds bytes that lie in a provided buffer, which stays held until they have left. False when
    /// there is no slot.
    ///
    /// # Safety
    /// The bytes lie in memory that the ring keeps, and nothing writes them until
    /// [`finish`](Self::finish) gives `hold` back.
    #[must_use]
    pub(crate) unsafe fn refer(
        &mut self,
        goal: Goal,
        (start, bytes): (*mut u8, usize),
        segment_bytes: usize,
        hold: Hold,
    ) -> bool {
        let joined = self
            .joinable(goal)
            .filter(|&slot| self.slots[slot as usize].takes(segment_bytes, bytes));
        let Some(slot) = joined.or_else(|| self.open(goal)) else { return false };
        self.add(slot, goal, start, (segment_bytes, bytes), Some(hold));
        true
    }

    /// Hands gathered messages to the ring, in order. Those that it does not take, and those that wait for the outcome
    /// of another, are left gathered.
    pub(crate) fn flush(&mut self, ring: &mut Ring) -> Flushed {
        let mut flushed = Flushed::default();
        let mut is_full = false;
        let gathering = std::mem::take(&mut self.gathering);
        for &slot in &gathering {
            let state = &self.slots[slot as usize];
            let egress = usize::from(state.egress);
            let exit = self.exits.get(egress).copied().unwrap_or(Exit::CLOSED);
            if is_full || exit.is_awaited {
                self.held_back.push(slot);
                continue;
            }
            let is_proven = state.segments <= 1 || state.segment_bytes <= exit.proven_bytes;
            let in_order = state.in_order || !is_proven;
            let socket = types::Fd(exit.socket);
            let message = self.head(slot);
            let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u32;
            let request = if state.bytes >= self.zero_copy_bytes && self.pages(slot) <= PAGES_MAX {
                opcode::SendMsgZc::new(socket, message).flags(flags).ioprio(REPORT_USAGE).build()
            } else {
                opcode::SendMsg::new(socket, message).flags(flags).build()
            };
            // SAFETY: header and bytes lie in memory that `new` (or the caller of `refer`) gave to
            // the ring; a slot in flight is not written before its last completion.
            if !unsafe { ring.push(request, token(Kind::Send, 0, slot)) } {
                is_full = true;
                self.held_back.push(slot);
                continue;
            }
            flushed.taken += 1;
            if in_order {
                self.slots[slot as usize].in_order = true;
                if let Some(exit) = self.exits.get_mut(egress) {
                    exit.is_awaited = true;
                }
            }
        }
        flushed.left = self.held_back.len();
        self.gathering = std::mem::replace(&mut self.held_back, gathering);
        self.held_back.clear();
        flushed
    }

    /// Writes the message header of a slot and says where it is.
    fn head(&self, slot: u32) -> *const libc::msghdr {
        let state = &self.slots[slot as usize];
        let header = self.headers.at_typed::<Header>(slot as usize * size_of::<Header>());
        // SAFETY: inside the mapping; the slot is not in flight yet.
        let header = unsafe { &mut *header };
        let name_bytes = address::write(&mut header.name, state.destination);
        let message = &mut header.message;
        message.msg_name = header.name.as_mut_ptr().cast();
        message.msg_namelen = name_bytes as libc::socklen_t;
        message.msg_iov = header.pieces.as_mut_ptr();
        message.msg_iovlen = state.pieces as _;
        message.msg_control = std::ptr::null_mut();
        message.msg_controllen = 0;
        if state.segments > 1 {
            // CMSG_LEN of a u16; the kernel reads no further.
            let length = size_of::<libc::cmsghdr>() + size_of::<u16>();
            header.control[..8].copy_from_slice(&length.to_ne_bytes());
            header.control[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
            header.control[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
            header.control[16..18].copy_from_slice(&(state.segment_bytes as u16).to_ne_bytes());
            message.msg_control = header.control.as_mut_ptr().cast();
            message.msg_controllen = CONTROL_BYTES as _;
        }
        &raw const *message
    }

    fn pages(&self, slot: u32) -> usize {
        self.pieces(slot)
            .map(|(start, bytes)| (start as usize % PAGE_BYTES + bytes).div_ceil(PAGE_BYTES))
            .sum()
    }

    /// The pieces of a slot. Only the lane's own record and header are read.
    fn pieces(&self, slot: u32) -> impl Iterator<Item = (*const u8, usize)> {
        let header = self.headers.at_typed::<Header>(slot as usize * size_of::<Header>());
        // SAFETY: inside the mapping; the kernel never writes it, and we only while it gathers.
        let pieces = unsafe { &(*header).pieces };
        pieces[..self.slots[slot as usize].pieces]
            .iter()
            .map(|piece| (piece.iov_base.cast_const().cast(), piece.iov_len))
    }

    /// True while a message of any egress is not done.
    pub(crate) fn are_under_way(&self) -> bool {
        self.free.len() < self.slots.len()
    }

    /// True while a message of this egress is not done.
    pub(crate) fn is_under_way(&self, egress: u16) -> bool {
        self.slots.iter().any(|slot| slot.pieces > 0 && slot.egress == egress)
    }

    /// What became of slot `slot`, if this completion says so (a notification does not).
    pub(crate) fn outcome(&mut self, slot: u32, completion: Completion) -> Option<Outcome> {
        let state = self.slots.get(slot as usize)?;
        if completion.is_notification() {
            return None;
        }
        let egress = usize::from(state.egress);
        let result = completion.outcome();
        if let Some(exit) = self.exits.get_mut(egress).filter(|_| state.in_order) {
            exit.is_awaited = false;
            if result.is_ok() && state.segments > 1 {
                exit.proven_bytes = exit.proven_bytes.max(state.segment_bytes);
            }
        }
        Some(Outcome {
            egress,
            segments: state.segments,
            segment_bytes: state.segment_bytes,
            bytes: state.bytes,
            result,
        })
    }

    /// Sends the datagrams of a slot one by one, by plain calls: for the one time that the kernel
    /// refuses a train, and for a message that failed with the error of an earlier one. `again` is asked of each
    /// error whether it says nothing of the datagram, `each` is given the length and the result.
    pub(crate) fn send_apart(
        &self,
        slot: u32,
        socket: BorrowedFd<'_>,
        again: impl Fn(&io::Error) -> bool,
        mut each: impl FnMut(usize, io::Result<()>),
    ) {
        let state = &self.slots[slot as usize];
        for (start, bytes) in self.pieces(slot) {
            // SAFETY: the piece lies in kept memory that nothing writes until `finish`.
            let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
            for datagram in bytes.chunks(state.segment_bytes.max(1)) {
                let send = || sys::send_to(socket, datagram, state.destination);
                let mut sent = send();
                for _ in 0..REPEATS_MAX {
                    if !matches!(&sent, Err(error) if again(error)) {
                        break;
                    }
                    sent = send();
                }
                each(datagram.len(), sent);
            }
        }
    }

    /// After the last completion of a slot: it is free again. `release` is given every hold.
    pub(crate) fn finish(&mut self, slot: u32, mut release: impl FnMut(Hold)) {
        let state = &mut self.slots[slot as usize];
        for hold in state.holds[..state.pieces].iter_mut().filter_map(Option::take) {
            release(hold);
        }
        state.pieces = 0;
        self.free.push(slot);
    }
}

#[cfg(test)]
impl Trains {
    /// Takes what is gathered, as if it had been sent: destination, segment size and bytes of each.
    pub(crate) fn take(&mut self) -> Vec<(SocketAddr, usize, Vec<u8>)> {
        let mut taken = Vec::new();
        for slot in std::mem::take(&mut self.gathering) {
            // SAFETY: memory of this test's slots, which nothing writes now.
            let bytes = self
                .pieces(slot)
                .flat_map(|(at, n)| unsafe { std::slice::from_raw_parts(at, n) }.to_vec());
            let bytes = bytes.collect();
            let state = &self.slots[slot as usize];
            taken.push((state.destination, state.segment_bytes, bytes));
            self.finish(slot, |_| ());
        }
        taken
    }
}

/// What a refused send costs.
pub(crate) fn drop_reason(error: &io::Error) -> DropReason {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => DropReason::TxTooLong,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EAFNOSUPPORT) => DropReason::NoRoute,
        // The interface that the socket is kept to is down, or no more.
        Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => DropReason::NoRoute,
        Some(libc::EAGAIN) => DropReason::TxSocketFull,
        Some(libc::ENOBUFS) => DropReason::TxInterfaceFull,
        _ => DropReason::TxRefused,
    }
}

/// The longest segments that trains may be made of after one of `segment_bytes` was refused; nothing
/// if the refusal was not about trains.
pub(crate) fn fall_back(error: &io::Error, segment_bytes: usize) -> Option<usize> {
    match error.raw_os_error() {
        // The path cannot cut: no checksum offload, IPsec, or an old driver.
        Some(libc::EIO) => Some(0),
        // A segment longer than the path's MTU (EINVAL from older kernels, EMSGSIZE from newer ones; a
        // train as a whole is never too long), which says nothing about shorter ones.
        Some(libc::EINVAL | libc::EMSGSIZE) if segment_bytes > SEGMENT_BYTES_SAFE => {
            Some(SEGMENT_BYTES_SAFE)
        }
        Some(libc::EINVAL | libc::EMSGSIZE) => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn goal(port: u16, segment_bytes_max: usize) -> Goal {
        let destination = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into();
        Goal { egress: 0, destination, in_order: false, segment_bytes_max }
    }

    /// Slots, or a printed reason why there is no ring.
    fn trains(count: usize) -> Option<(Ring, Trains)> {
        let mut ring = Ring::open(4).map_err(laneway_testkit::skip).ok()?;
        let trains = Trains::new(&mut ring, count, None).expect("memory");
        Some((ring, trains))
    }

    fn write(trains: &mut Trains, goal: Goal, bytes: usize, fill: u8) -> bool {
        trains.write(goal, 1500, |room| {
            room[..bytes].fill(fill);
            bytes
        })
    }

    /// Per gathered slot: destination port, segment size, and its bytes.
    fn gathered(trains: &Trains) -> Vec<(u16, usize, Vec<u8>)> {
        let bytes = |slot| {
            let pieces = trains.pieces(slot);
            // SAFETY: memory of this test's slots, which nothing writes now.
            pieces
                .flat_map(|(at, n)| unsafe { std::slice::from_raw_parts(at, n) }.to_vec())
                .collect()
        };
        let slot = |&slot: &u32| {
            let state = &trains.slots[slot as usize];
            (state.destination.port(), state.segment_bytes, bytes(slot))
        };
        trains.gathering.iter().map(slot).collect()
    }

    #[test]
    fn equal_datagrams_to_one_destination_are_one_train() {
        let Some((_ring, mut trains)) = trains(8) else { return };
        for fill in 0..3 {
            assert!(write(&mut trains, goal(1, 1500), 100, fill));
        }
        assert!(write(&mut trains, goal(1, 1500), 40, 3)); // shorter: the last
        assert!(write(&mut trains, goal(1, 1500), 40, 4)); // so this begins another
        let slots = gathered(&trains);
        let expected = [[0; 100].as_slice(), &[1; 100], &[2; 100], &[3; 40]].concat();
        assert_eq!(slots[0], (1, 100, expected));
        assert_eq!(slots[1], (1, 40, vec![4; 40]));
    }

    #[test]
    fn without_trains_every_datagram_has_its_slot() {
        let Some((_ring, mut trains)) = trains(4) else { return };
        for fill in 0..4 {
            assert!(write(&mut trains, goal(1, 0), 100, fill));
        }
        assert_eq!(gathered(&trains).len(), 4);
        assert!(!trains.has_free());
        assert!(!trains.write(goal(1, 0), 100, |_| panic!("there is no memory")));
    }

    #[test]
    fn an_empty_datagram_travels_alone() {
        let Some((_ring, mut trains)) = trains(8) else { return };
        for bytes in [100, 0, 0, 100] {
            assert!(write(&mut trains, goal(1, 1500), bytes, 7));
        }
        let lengths: Vec<_> = gathered(&trains).iter().map(|(.., bytes)| bytes.len()).collect();
        assert_eq!(lengths, [100, 0, 0, 100]);
        assert!(trains.gathering.iter().all(|&slot| trains.slots[slot as usize].segments == 1));
    }

    #[test]
    fn a_refusal_turns_trains_off_or_shortens_them() {
        let of = |code, bytes| fall_back(&io::Error::from_raw_os_error(code), bytes);
        assert_eq!(of(libc::EIO, 100), Some(0));
        assert_eq!(of(libc::EINVAL, 100), Some(0));
        assert_eq!(of(libc::EINVAL, 1400), Some(SEGMENT_BYTES_SAFE));
        assert_eq!(of(libc::EMSGSIZE, 1400), Some(SEGMENT_BYTES_SAFE));
        assert_eq!(of(libc::EAGAIN, 100), None);
    }

    #[test]
    fn a_refused_send_has_its_reason() {
        let of = |code| drop_reason(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::EMSGSIZE), DropReason::TxTooLong);
        assert_eq!(of(libc::ENETUNREACH), DropReason::NoRoute);
        assert_eq!(of(libc::EAGAIN), DropReason::TxSocketFull);
        assert_eq!(of(libc::ENOBUFS), DropReason::TxInterfaceFull);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Cut at their segment size, the gathered trains are the datagrams of each destination in
        /// order, and every train obeys the kernel's rules.
        #[test]
        fn trains_are_the_datagrams_in_order(
            sends in prop::collection::vec((1u16..4, prop_oneof![Just(0usize), Just(700), 1usize..1500]), 1..300),
        ) {
            let Some((_ring, mut trains)) = trains(512) else { return Ok(()) };
            let mut expected = vec![Vec::new(); 4];
            for (i, &(port, bytes)) in sends.iter().enumerate() {
                prop_assert!(write(&mut trains, goal(port, 1500), bytes, i as u8));
                expected[usize::from(port)].push(vec![i as u8; bytes]);
            }
            let mut got = vec![Vec::new(); 4];
            for (port, segment_bytes, bytes) in gathered(&trains) {
                let segments = bytes.len().div_ceil(segment_bytes.max(1));
                prop_assert!(segments <= SEGMENTS_MAX && bytes.len() <= TRAIN_BYTES_MAX);
                let datagrams = &mut got[usize::from(port)];
                match bytes.is_empty() {
                    true => datagrams.push(Vec::new()),
                    false => datagrams.extend(bytes.chunks(segment_bytes).map(<[u8]>::to_vec)),
                }
            }
            prop_assert_eq!(got, expected);
        }
    }
}
