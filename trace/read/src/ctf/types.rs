//! Types as metadata declares them.
//!
//! Shared where metadata names them twice, and so are their names and labels; `nodes` and `depth` of each type bound
//! what expanding it once can cost, so that a few lines of hostile metadata cannot grow into gigabytes of layout.

use std::sync::Arc;

use super::lexer::{Misread, TextPosition};

/// Deepest nesting of types.
pub(super) const DEPTH_MAX: u32 = 32;
/// Most types that one type may contain, counted as often as they occur.
pub(super) const NODES_MAX: u32 = 65_536;

/// Most classes of streams, and of clocks.
pub(super) const CLASSES_MAX: usize = 4096;

/// A declared type.
#[derive(Clone, Debug)]
pub(super) struct Type {
    pub(super) kind: Arc<Kind>,
    pub(super) nodes: u32,
    pub(super) depth: u32,
}

/// What a type is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Integer(Integer),
    Float(Float),
    Enumeration {
        of: Integer,
        ranges: Arc<[Range]>,
    },
    Text,
    Struct {
        fields: Vec<Field>,
        align_bits: u32,
    },
    Array {
        of: Type,
        length: u64,
    },
    Sequence {
        of: Type,
        length: String,
    },
    /// Which option is there: by the labels of the tag, which are their names, or by `ranges` of the tag's values, one
    /// list per option. `optional`: for other values there is nothing.
    Variant {
        tag: Option<String>,
        options: Arc<[Field]>,
        ranges: Option<Vec<Vec<[i128; 2]>>>,
        optional: bool,
    },
}

/// An integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    /// 1 to 64.
    pub(super) bits: u32,
    pub(super) align_bits: u32,
    pub(super) signed: bool,
    /// `None`: as the trace says.
    pub(super) big_endian: Option<bool>,
    /// A character of text.
    pub(super) text: bool,
    /// 2, 8, 10 or 16: how a person wants to see it.
    pub(super) base: u32,
    /// Its value sets this clock.
    pub(super) clock: Option<Arc<str>>,
    /// LEB128: as many bytes as the value needs; `bits` is then 64.
    pub(super) variable: bool,
    /// What it says to a reader. TSDL says it by the name of the member.
    pub(super) duty: Option<Duty>,
}

/// What a field says to a reader about its packet or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Magic,
    /// A byte of the trace's UUID.
    Uuid,
    StreamClass,
    PacketBegin,
    PacketEnd,
    PacketBits,
    ContentBits,
    PacketNumber,
    Discarded,
    EventClass,
}

impl Duty {
    /// By the name of a member in CTF 1.8.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "magic" => Self::Magic,
            "uuid" => Self::Uuid,
            "stream_id" => Self::StreamClass,
            "timestamp_begin" => Self::PacketBegin,
            "timestamp_end" => Self::PacketEnd,
            "packet_size" => Self::PacketBits,
            "content_size" => Self::ContentBits,
            "packet_seq_num" => Self::PacketNumber,
            "events_discarded" => Self::Discarded,
            "id" => Self::EventClass,
            _ => return None,
        })
    }
}

/// A floating-point number of 32 or 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Float {
    pub(super) bits: u32,
    pub(super) align_bits: u32,
    pub(super) big_endian: Option<bool>,
}

/// A label of an enumeration and the values it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) label: Arc<str>,
    pub(super) first: i128,
    pub(super) last: i128,
}

/// A member of a struct or variant.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: Arc<str>,
    pub(super) of: Type,
}

impl Type {
    /// A type of this kind, or `None` if it would break a limit.
    pub(super) fn new(kind: Kind) -> Option<Self> {
        let (mut nodes, mut depth) = (1_u32, 0);
        let mut add = |inner: &Self| {
            nodes = nodes.saturating_add(inner.nodes);
            depth = depth.max(inner.depth);
        };
        match &kind {
            Kind::Integer(_) | Kind::Float(_) | Kind::Enumeration { .. } | Kind::Text => {}
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| add(&field.of)),
            Kind::Variant { options, .. } => options.iter().for_each(|option| add(&option.of)),
            Kind::Array { of, .. } | Kind::Sequence { of, .. } => add(of),
        }
        let depth = depth + 1;
        (nodes <= NODES_MAX && depth <= DEPTH_MAX).then(|| Self {
            kind: Arc::new(kind),
            nodes,
            depth,
        })
    }
}

/// A whole trace as its metadata declares it.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// CTF 2: names are what they are, and duties are declared.
    pub(super) second: bool,
    /// Of the block about the whole trace.
    pub(super) place: TextPosition,
    pub(super) big_endian: Option<bool>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) packet_header: Option<Type>,
    pub(super) env: Vec<(String, String)>,
    pub(super) clocks: Vec<ClockClass>,
    pub(super) streams: Vec<StreamClass>,
    pub(super) events: Vec<EventClass>,
    /// What was skipped: attributes and blocks this reader does not know.
    pub(super) unknown: Vec<Misread>,
}

/// A clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClockClass {
    pub(super) name: String,
    pub(super) frequency_hz: u64,
    pub(super) offset_s: i64,
    pub(super) offset_ticks: u64,
}

/// A class of streams.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamClass {
    pub(super) place: TextPosition,
    pub(super) id: u64,
    pub(super) packet_context: Option<Type>,
    pub(super) event_header: Option<Type>,
    pub(super) event_context: Option<Type>,
}

/// A class of events.
#[derive(Clone, Debug, Default)]
pub(super) struct EventClass {
    pub(super) place: TextPosition,
    pub(super) id: u64,
    /// `None`: of the only class of streams.
    pub(super) stream_id: Option<u64>,
    pub(super) name: String,
    pub(super) context: Option<Type>,
    pub(super) fields: Option<Type>,
}

impl Metadata {
    /// Adds what the declarations leave out and a reader takes as declared: a class of streams if there are events and
    /// none, and the only class for events that name none.
    pub(super) fn complete(&mut self) {
        if self.streams.is_empty() && !self.events.is_empty() {
            let place = self.events[0].place;
            self.streams.push(StreamClass { place, ..StreamClass::default() });
        }
        let only = match self.streams.as_slice() {
            [only] => only.id,
            _ => 0,
        };
        self.events.iter_mut().for_each(|event| event.stream_id = event.stream_id.or(Some(only)));
    }
}
