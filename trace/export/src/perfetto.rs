//! Perfetto's protobuf: threads as tracks, calls as slices, polls and bursts as counters, findings as instants.
//!
//! Only the few messages that are needed are declared ([`message`]), by hand, with the field numbers of Perfetto's
//! published `.proto` files; so neither its tree nor `protoc` is needed. Every packet belongs to one sequence with
//! incremental state: names are written once and referred to by number.
//!
//! Times are nanoseconds since the epoch on the trace's default clock, and a clock snapshot tells that it shows real
//! time.

use crate::chrome::loss_name;
use crate::moments::{Curve, Curves, Mark, Point, instant_name};
use crate::names::{Interned, Names, category};
use crate::nest::{CallFrame, Calls, Ended, LeftOut};
use crate::output::{ExportError, Output, Written};
use laneway_trace_read::{Kind, Loss, Thread, ThreadId};
use message::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, Interned as InternedData,
    InternedName, ProcessDescriptor, ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::io::Write;

pub mod message;

/// Bytes after which no further call is written: Perfetto's page holds about 2 GB.
pub const PERFETTO_BYTES_MAX: u64 = 1 << 30;

const SEQUENCE: u32 = 1;
const SEQUENCE_STARTS: u32 = 1;
const NEEDS_SEQUENCE: u32 = 2;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
const UNIT_COUNT: i32 = 2;
const CLOCK_REALTIME: u32 = 1;
const CLOCK_BOOTTIME: u32 = 6;
/// Tracks are numbered by kind, so that numbers of one kind never meet those of another.
const THREAD_TRACKS: u64 = 1 << 40;
const PROCESS_TRACKS: u64 = 2 << 40;
const CURVE_TRACKS: u64 = 3 << 40;
const FINDINGS_TRACK: u64 = 4 << 40;
/// Numbers of invented processes and threads lie above those that Linux gives (`PID_MAX_LIMIT`).
const INVENTED_FROM: u64 = 1 << 22;

/// Writes Perfetto's protobuf.
pub struct Perfetto<'n, W> {
    out: Output<W>,
    names: &'n dyn Names,
    origin_ns: u64,
    bytes_max: u64,
    interned: Interned,
    threads: HashSet<ThreadId>,
    pids: HashSet<u32>,
    tids: HashSet<(u32, u32)>,
    curve_tracks: HashMap<Curve, u64>,
    curves: Curves,
    calls: u64,
    buffer: Vec<u8>,
}

impl<'n, W: Write> Perfetto<'n, W> {
    /// Writes to `to`; `origin_ns` is the first event of the trace, ns since the epoch.
    pub fn new(to: W, names: &'n dyn Names, origin_ns: u64) -> Self {
        let mut perfetto = Perfetto {
            out: Output::new(to),
            names,
            origin_ns,
            bytes_max: PERFETTO_BYTES_MAX,
            interned: Interned::default(),
            threads: HashSet::new(),
            pids: HashSet::new(),
            tids: HashSet::new(),
            curve_tracks: HashMap::new(),
            curves: Curves::default(),
            calls: 0,
            buffer: Vec::new(),
        };
        let clock = |clock_id| Clock { clock_id: Some(clock_id), timestamp: Some(origin_ns) };
        perfetto.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(CLOCK_BOOTTIME), clock(CLOCK_REALTIME)],
            }),
            sequence_flags: Some(SEQUENCE_STARTS),
            ..TracePacket::default()
        });
        perfetto
    }

    /// Writes no further call after `bytes_max` bytes in place of [`PERFETTO_BYTES_MAX`].
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Writes `marks` and what was left out, and ends the file.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(mut self, marks: &[Mark], left_out: LeftOut) -> Result<Written, ExportError> {
        let mut points = Vec::new();
        self.curves.finish(|point| points.push(point));
        points.iter().for_each(|point| self.point(point));
        self.track(TrackDescriptor {
            uuid: Some(FINDINGS_TRACK),
            name: Some("findings".to_owned()),
            ..TrackDescriptor::default()
        });
        for mark in marks {
            let track = mark.thread.filter(|id| self.threads.contains(id));
            let uuid = track.map_or(FINDINGS_TRACK, thread_track);
            self.instant(
                mark.time_ns,
                uuid,
                &mark.title,
                "finding",
                vec![text("detail", &mark.detail)],
            );
        }
        let missing = left_out.words();
        if !missing.is_empty() {
            let title = "not in this export";
            let why = vec![text("left out", &missing)];
            self.instant(self.origin_ns, FINDINGS_TRACK, title, "export", why);
        }
        let calls = self.calls;
        let (_, bytes) = self.out.finish()?;
        Ok(Written { calls, bytes, files: 1, left_out })
    }

    /// A packet is field 1 of the trace: its tag, its length, itself.
    fn packet(&mut self, mut packet: TracePacket) {
        const TAG_OF_PACKET: u8 = 1 << 3 | 2;
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        self.buffer.clear();
        self.buffer.push(TAG_OF_PACKET);
        packet.encode_length_delimited(&mut self.buffer).expect("a Vec takes everything");
        self.out.put(&self.buffer);
    }

    fn track(&mut self, descriptor: TrackDescriptor) {
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
    }

    fn event(&mut self, time_ns: u64, event: TrackEvent, interned: Option<InternedData>) {
        self.packet(TracePacket {
            timestamp: Some(time_ns),
            sequence_flags: Some(NEEDS_SEQUENCE),
            track_event: Some(event),
            interned_data: interned,
            ..TracePacket::default()
        });
    }

    fn instant(
        &mut self,
        time_ns: u64,
        track: u64,
        name: &str,
        category: &str,
        debug_annotations: Vec<DebugAnnotation>,
    ) {
        let event = TrackEvent {
            r#type: Some(INSTANT),
            track_uuid: Some(track),
            name: Some(name.to_owned()),
            categories: vec![category.to_owned()],
            debug_annotations,
            ..TrackEvent::default()
        };
        self.event(time_ns, event, None);
    }

    fn point(&mut self, point: &Point) {
        let next = CURVE_TRACKS + self.curve_tracks.len() as u64;
        let known = self.curve_tracks.get(&point.curve).copied();
        let uuid = known.unwrap_or_else(|| {
            self.curve_tracks.insert(point.curve, next);
            let name = point.curve.name(self.names);
            self.track(TrackDescriptor {
                uuid: Some(next),
                name: Some(name),
                counter: Some(CounterDescriptor { unit: Some(UNIT_COUNT) }),
                ..TrackDescriptor::default()
            });
            next
        });
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(uuid),
            counter_value: Some(point.value),
            ..TrackEvent::default()
        };
        self.event(point.time_ns, event, None);
    }
}

fn thread_track(id: ThreadId) -> u64 {
    THREAD_TRACKS + u64::from(id.0)
}

fn text(name: &str, value: &str) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        string_value: Some(value.to_owned()),
        bool_value: None,
    }
}

impl<W: Write> Calls for Perfetto<'_, W> {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        let invented = (INVENTED_FROM + u64::from(id.0)) as i32;
        let pid = if thread.pid == 0 { 1 } else { thread.pid };
        if self.pids.insert(pid) {
            self.track(TrackDescriptor {
                uuid: Some(PROCESS_TRACKS + u64::from(pid)),
                process: Some(ProcessDescriptor {
                    pid: Some(pid as i32),
                    process_name: Some(thread.name.clone()),
                }),
                ..TrackDescriptor::default()
            });
        }
        let is_known = thread.tid != 0 && self.tids.insert((pid, thread.tid));
        let tid = if is_known { thread.tid as i32 } else { invented };
        self.threads.insert(id);
        self.track(TrackDescriptor {
            uuid: Some(thread_track(id)),
            parent_uuid: Some(PROCESS_TRACKS + u64::from(pid)),
            thread: Some(ThreadDescriptor {
                pid: Some(pid as i32),
                tid: Some(tid),
                thread_name: Some(thread.name.clone()),
            }),
            ..TrackDescriptor::default()
        });
    }

    fn begin(&mut self, thread: ThreadId, time_ns: u64, frame: CallFrame) {
        self.calls += 1;
        let (number, fresh) = self.interned.number(self.names, frame);
        // Numbers of interned names begin at 1: 0 means none.
        let iid = number as u64 + 1;
        let interned = fresh.map(|name| InternedData {
            event_names: vec![InternedName { iid: Some(iid), name: Some(name) }],
        });
        let is_function = matches!(frame, CallFrame::Function(_));
        let event = TrackEvent {
            r#type: Some(SLICE_BEGIN),
            track_uuid: Some(thread_track(thread)),
            name_iid: Some(iid),
            // Nearly every call is one of a function: only the others need a word.
            categories: if is_function { Vec::new() } else { vec![category(frame).to_owned()] },
            ..TrackEvent::default()
        };
        self.event(time_ns, event, interned);
    }

    fn end(&mut self, thread: ThreadId, ended: &Ended) {
        let cut = DebugAnnotation {
            name: Some("cut".to_owned()),
            bool_value: Some(true),
            string_value: None,
        };
        let event = TrackEvent {
            r#type: Some(SLICE_END),
            track_uuid: Some(thread_track(thread)),
            debug_annotations: if ended.is_cut { vec![cut] } else { Vec::new() },
            ..TrackEvent::default()
        };
        self.event(ended.ended_ns, event, None);
    }

    fn moment(&mut self, thread: ThreadId, time_ns: u64, kind: &Kind) {
        let mut points = Vec::new();
        self.curves.moment(thread, time_ns, kind, |point| points.push(point));
        points.iter().for_each(|point| self.point(point));
        if let Some(name) = instant_name(self.names, kind) {
            self.instant(time_ns, thread_track(thread), &name, "point", Vec::new());
        }
    }

    fn lost(&mut self, thread: ThreadId, time_ns: u64, loss: &Loss) {
        let place = vec![text("place", &loss.place)];
        self.instant(time_ns, thread_track(thread), &loss_name(loss), "loss", place);
    }

    fn is_full(&self) -> bool {
        self.out.bytes() >= self.bytes_max || self.out.has_failed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::nest::{Nest, Selection};

    fn exported(bytes_max: u64) -> (Vec<u8>, Written) {
        let mut bytes = Vec::new();
        let perfetto = Perfetto::new(&mut bytes, &example::Hostile, example::ORIGIN_NS)
            .with_bytes_max(bytes_max);
        let mut nest = Nest::new(perfetto, Selection::default());
        example::trace(&mut nest);
        let (perfetto, left_out) = nest.finish();
        let written = perfetto.finish(&example::marks(), left_out).unwrap();
        assert_eq!(written.bytes, bytes.len() as u64);
        (bytes, written)
    }

    fn packets(bytes: &[u8]) -> Vec<TracePacket> {
        message::Trace::decode(bytes).expect("valid protobuf").packet
    }

    #[test]
    fn slices_balance_per_track_and_their_times_never_fall() {
        let (bytes, written) = exported(u64::MAX);
        let mut depth = HashMap::<u64, (i64, u64)>::new();
        let mut begun = 0;
        for packet in packets(&bytes) {
            let (Some(event), Some(time)) = (packet.track_event, packet.timestamp) else {
                continue;
            };
            let change = match event.r#type {
                Some(SLICE_BEGIN) => 1,
                Some(SLICE_END) => -1,
                _ => continue,
            };
            begun += u64::from(change == 1);
            let (open, last) = depth.entry(event.track_uuid.unwrap()).or_default();
            *open += change;
            assert!(*open >= 0 && time >= *last);
            *last = time;
        }
        assert_eq!(begun, written.calls);
        assert!(depth.values().all(|(open, _)| *open == 0), "{depth:?}");
    }

    #[test]
    fn names_are_written_once_before_their_first_use() {
        let (bytes, _) = exported(u64::MAX);
        let mut names = HashMap::new();
        for packet in packets(&bytes) {
            for name in packet.interned_data.into_iter().flat_map(|data| data.event_names) {
                assert!(names.insert(name.iid.unwrap(), name.name.unwrap()).is_none());
            }
            let iid = packet.track_event.and_then(|event| event.name_iid);
            assert!(iid.is_none_or(|iid| names.contains_key(&iid)));
        }
        assert!(names.values().any(|name| name == example::HOSTILE_NAME));
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn every_track_that_is_used_is_described_before() {
        let (bytes, _) = exported(u64::MAX);
        let mut described = Vec::new();
        for packet in packets(&bytes) {
            described.extend(packet.track_descriptor.and_then(|track| track.uuid));
            if let Some(event) = packet.track_event {
                assert!(described.contains(&event.track_uuid.unwrap()), "{event:?}");
            }
        }
        let found = described.len();
        described.sort_unstable();
        described.dedup();
        assert_eq!(described.len(), found, "no track is described twice");
    }

    /// Reads the wire format without prost: a check that shares nothing with the writer.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let (&byte, rest) = bytes.split_first().expect("a varint ends");
                *bytes = rest;
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Number(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(value)
                }
                other => panic!("wire type {other}"),
            };
            found.push((tag >> 3, field));
        }
        found
    }

    #[derive(Debug, PartialEq)]
    enum Field<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    #[test]
    fn the_wire_holds_the_published_field_numbers() {
        let (bytes, written) = exported(u64::MAX);
        let trace = fields(&bytes);
        assert!(trace.iter().all(|(number, _)| *number == 1));
        let (mut begins, mut cut, mut named) = (0, 0, 0);
        for (_, packet) in &trace {
            let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
            let packet = fields(packet);
            assert!(packet.contains(&(10, Field::Number(1))), "trusted_packet_sequence_id");
            let Some((_, Field::Bytes(event))) = packet.iter().find(|(n, _)| *n == 11) else {
                continue;
            };
            assert!(packet.iter().any(|(n, _)| *n == 8), "timestamp");
            let event = fields(event);
            begins += u64::from(event.contains(&(9, Field::Number(1))));
            named += u64::from(event.iter().any(|(n, _)| *n == 10));
            cut += u64::from(event.iter().any(|(n, field)| {
                matches!(field, Field::Bytes(b) if *n == 4 && fields(b).contains(&(2, Field::Number(1))))
            }));
        }
        assert_eq!((begins, named, cut), (written.calls, written.calls, written.left_out.cut));
    }

    #[test]
    fn a_full_file_is_still_whole() {
        let (bytes, written) = exported(300);
        assert!(written.left_out.no_room > 0);
        let events = packets(&bytes).into_iter().filter_map(|p| p.track_event);
        let events = events.filter(|e| e.name.as_deref() == Some("not in this export"));
        assert_eq!(events.count(), 1);
    }
}
