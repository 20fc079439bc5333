//! The packets of a stream: their headers, how far they reach, and what was lost between two.

use std::sync::Arc;

use super::super::layout::{Bits, State, Stop, Value, Visit, Whole, mask, walk};
use super::super::plan::Plan;
use super::super::types::{Duty, Range};
use super::{EVENT_BYTES_MAX, NAME_BYTES_MAX, Packet, Stream};
use crate::about::ReadError;
use crate::block::{Block, Who};

const PACKET_MAGIC: u64 = 0xc1fc_1fc1;

impl Stream {
    /// Reads the header of the next packet; false at the end of the stream.
    pub(super) fn open_packet(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        let start = self.next_packet;
        if start >= self.length {
            return Ok(false);
        }
        let plan = Arc::clone(&self.plan);
        self.state.clock = self.epoch_ticks;
        let Some(Opened { head, stream, at, clock }) = self.read_header(&plan, start, block)?
        else {
            self.lose(self.last_ns, None, block);
            return Ok(false);
        };
        if head.of_another && !std::mem::replace(&mut self.of_another, true) {
            let what = "a packet whose uuid is not that of the metadata; it is read as if it were";
            block.damage(&self.place, start, what.into());
        }
        let scale = plan.streams[stream].scale; // `header` returns an index of this list
        let Some(Extent { packet_bytes, content_bits, is_cut }) =
            self.extent(&head, at, start, block)
        else {
            self.lose(self.last_ns, None, block);
            return Ok(false);
        };
        let begin_ns = scale.ns(clock);
        if let (Some(head), Some(last)) = (head.sequence, self.sequence)
            && head.saturating_sub(last) > 1
        {
            self.lose(begin_ns, None, block);
        }
        let lost = self.lost_before(&head, start, block);
        self.discarded = head.discarded.map(|(count, _)| count).or(self.discarded);
        self.sequence = head.sequence.or(self.sequence);
        self.state.clock = clock;
        self.at = at;
        self.packet = Some(Packet {
            plan: stream,
            start,
            content_bits,
            next: start.saturating_add(packet_bytes),
            cpu: head.cpu,
            end_ns: head.end_ticks.map(|ticks| scale.ns(ticks)),
            timed: head.timed,
            lost,
            is_cut,
            held: None,
        });
        self.threads.of_host = plan.streams[stream].kernel;
        if !plan.streams[stream].who.names_thread && !plan.streams[stream].kernel {
            // The stream is a thread of its own.
            let name = if head.name.is_empty() {
                head.cpu.map_or_else(|| self.place.clone(), |cpu| format!("cpu {cpu}"))
            } else {
                String::from_utf8_lossy(&head.name).into_owned()
            };
            if self.threads.names.is_empty() {
                self.threads.names.push(Vec::new());
                block.threads.push((0, Who { pid: plan.pid, tid: None, of_host: false, name }));
            }
        }
        Ok(true)
    }

    /// The header of the packet at `start`; `None` if there is none that can be read.
    fn read_header(
        &mut self,
        plan: &Plan,
        start: u64,
        block: &mut Block,
    ) -> Result<Option<Opened>, ReadError> {
        let mut need = 4096;
        loop {
            let bytes = self.window_from(start, need)?;
            let length = bytes.len();
            let mut state = std::mem::take(&mut self.state);
            let skip = (start - self.window_at) as usize;
            let mut bits = Bits {
                bytes: self.window.get(skip..self.filled).unwrap_or_default(),
                at: 0,
                origin: 0,
            };
            let mut head = Header::default();
            let found = header(plan, &mut bits, &mut state, &mut head);
            let (at, clock) = (bits.at, state.clock);
            self.state = state;
            match found {
                Ok(stream) => return Ok(Some(Opened { head, stream, at, clock })),
                Err(Stop::Short) if length >= need && need < EVENT_BYTES_MAX => need *= 4,
                Err(stop) => {
                    let what = match stop {
                        Stop::Short => format!(
                            "the file ends within the header of a packet, {length} bytes behind its start"
                        ),
                        Stop::Wrong(what) => format!("{what}; the rest of the file is left out"),
                    };
                    block.damage(&self.place, start, what);
                    return Ok(None);
                }
            }
        }
    }

    /// How far the packet reaches whose header ends at bit `at`. `None` where its length makes no sense, so that the
    /// place of the next one is unknown.
    fn extent(&self, head: &Header, at: u64, start: u64, block: &mut Block) -> Option<Extent> {
        let left = self.length - start;
        let packet_bytes = match head.packet_bits {
            None => left,
            Some(bits) if bits == 0 || bits % 8 != 0 || bits < at => {
                let what = format!(
                    "a packet of {bits} bits, of which its header takes {at}; the rest of the file is left out"
                );
                block.damage(&self.place, start, what);
                return None;
            }
            Some(bits) => bits / 8,
        };
        let mut content_bits = head.content_bits.unwrap_or_else(|| packet_bytes.saturating_mul(8));
        if content_bits > packet_bytes.saturating_mul(8) || content_bits < at {
            let what = format!(
                "a packet of {packet_bytes} bytes claims {content_bits} bits of content; it is read to its end"
            );
            block.damage(&self.place, start, what);
            content_bits = packet_bytes.saturating_mul(8);
        }
        let mut is_cut = false;
        if packet_bytes > left {
            let what = format!(
                "the file ends {left} bytes behind the start of a packet of {packet_bytes}; what is there is read"
            );
            block.damage(&self.place, start, what);
            is_cut = content_bits > left * 8;
            content_bits = content_bits.min(left * 8);
        }
        Some(Extent { packet_bytes, content_bits, is_cut })
    }

    /// Events that were discarded before this packet's end and after the one before it, by the counts of both.
    fn lost_before(&self, head: &Header, start: u64, block: &mut Block) -> u64 {
        // What a first packet counts was lost in this file only if it is the first of the session.
        let first = head.sequence == Some(0);
        match (head.discarded, self.discarded) {
            (Some((count, _)), None) => {
                if first {
                    count
                } else {
                    0
                }
            }
            (Some((count, bits)), Some(before)) => {
                let lost = count.wrapping_sub(before) & mask(bits);
                if lost > mask(bits) / 2 {
                    let what =
                        format!("the count of discarded events goes back from {before} to {count}");
                    block.damage(&self.place, start, what);
                    0
                } else {
                    lost
                }
            }
            (None, _) => 0,
        }
    }
}

/// How far a packet reaches.
struct Extent {
    packet_bytes: u64,
    /// Those of it that are there.
    content_bits: u64,
    /// The file ends before its content does.
    is_cut: bool,
}

/// A packet whose header was read.
struct Opened {
    head: Header,
    /// Which of the plan's streams it is of.
    stream: usize,
    /// Bit behind the header.
    at: u64,
    /// The clock there, in ticks.
    clock: u64,
}

/// What the header and context of a packet tell.
#[derive(Clone, Debug, Default)]
struct Header {
    magic: Option<u64>,
    uuid: Vec<u8>,
    /// Not that of the metadata.
    of_another: bool,
    stream: Option<u64>,
    timed: bool,
    end_ticks: Option<u64>,
    content_bits: Option<u64>,
    packet_bits: Option<u64>,
    sequence: Option<u64>,
    /// The count and its width in bits.
    discarded: Option<(u64, u32)>,
    cpu: Option<u32>,
    name: Vec<u8>,
}

impl Visit for Header {
    fn whole(&mut self, name: Option<&str>, value: Value, whole: &Whole, _: &[Range]) {
        let value = value.raw;
        match whole.duty {
            Some(Duty::Magic) => self.magic = Some(value),
            Some(Duty::Uuid) => self.uuid.push(value as u8),
            Some(Duty::StreamClass) => self.stream = Some(value),
            Some(Duty::PacketBegin) => self.timed = true,
            Some(Duty::PacketEnd) => self.end_ticks = Some(value),
            Some(Duty::ContentBits) => self.content_bits = Some(value),
            Some(Duty::PacketBits) => self.packet_bits = Some(value),
            Some(Duty::PacketNumber) => self.sequence = Some(value),
            Some(Duty::Discarded) => self.discarded = Some((value, whole.bits)),
            Some(Duty::EventClass) => {}
            // DPDK writes all ones for a thread that is bound to no CPU.
            None if name == Some("cpu_id") => {
                self.cpu = u32::try_from(value).ok().filter(|&cpu| cpu != u32::MAX);
            }
            None => {}
        }
    }

    fn text(&mut self, name: Option<&str>, text: &[u8]) {
        if name == Some("name") {
            self.name = text[..text.len().min(NAME_BYTES_MAX)].to_vec();
        }
    }
}

/// Reads header and context of a packet; returns the index of its class.
fn header(
    plan: &Plan,
    bits: &mut Bits<'_>,
    state: &mut State,
    head: &mut Header,
) -> Result<usize, Stop> {
    if let Some(node) = &plan.packet_header {
        walk(node, bits, state, head)?;
    }
    if let Some(magic) = head.magic.filter(|&magic| magic != PACKET_MAGIC) {
        let swapped = u64::from((magic as u32).swap_bytes()) == PACKET_MAGIC;
        let hint = if swapped { ", in the other byte order than the metadata says" } else { "" };
        return Err(Stop::Wrong(format!("no packet: magic is {magic:#010x}{hint}")));
    }
    head.of_another = plan.uuid.is_some_and(|uuid| !head.uuid.is_empty() && head.uuid != uuid);
    let found = match head.stream {
        Some(id) => plan.streams.iter().position(|stream| stream.id == id),
        None => (!plan.streams.is_empty()).then_some(0),
    };
    let stream = found.ok_or_else(|| {
        let id = head.stream.map_or_else(|| "?".into(), |id| id.to_string());
        Stop::Wrong(format!("a packet of stream class {id}, which the metadata does not declare"))
    })?;
    if let Some(node) = &plan.streams[stream].packet_context {
        walk(node, bits, state, head)?;
    }
    Ok(stream)
}
