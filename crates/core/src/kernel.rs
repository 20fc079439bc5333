//! Apps whose decision runs in the kernel. Their kernel half is data, and the `xdp` lane runs any.

use crate::{App, Counters, Lane, LaneError, Turn};

/// A constant of the program's read-only data, set before it is loaded: the verifier prunes by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue {
    /// The `const volatile` global's name.
    pub name: &'static str,
    /// Its value, exactly as long as the global, in host byte order.
    pub bytes: Vec<u8>,
}

/// The stream of fixed-size records that a kernel half emits: one BPF ring buffer per CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordStream {
    /// Name of the array-of-maps of ring buffers, indexed by CPU.
    pub map: &'static str,
    /// Bytes per record.
    pub record_bytes: usize,
    /// Bytes of each ring; a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// Name of an array map of one `u32` for adaptive wake-up: 0 while the lane is awake, otherwise
    /// the bytes in the ring, headers included, at which the program wakes it. The program looks
    /// between reserving and submitting a record; it sets the word to 0 and wakes once per sleep.
    pub wanted_map: &'static str,
}

/// What stands under a key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapValue {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Of a map of devices: the interface of this number, and the half's program (section `xdp/devmap`)
    /// that each frame runs through on its way out there.
    Exit(u32, &'static str),
    /// Of a map of maps: a new map of the shape that the object declares, with these entries and room
    /// for them alone. Readers see the former map or this one, never half of a change.
    Map(Vec<(Vec<u8>, MapValue)>),
}

/// An in-kernel app, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHalf {
    /// For messages and program names.
    pub name: &'static str,
    /// The compiled BPF object (ELF).
    pub object: &'static [u8],
    /// Name of the XDP program in it.
    pub program: &'static str,
    /// Constants to set.
    pub config: Vec<ConfigValue>,
    /// Map entries to write before the program is attached: map, key, value.
    pub entries: Vec<(&'static str, Vec<u8>, MapValue)>,
    /// Sizes of maps that differ from the object's: map, entries.
    pub map_sizes: Vec<(&'static str, u32)>,
    /// Its records, if it emits any.
    pub records: Option<RecordStream>,
    /// Per-CPU array of `u64` indexed by drop-reason code, read into the lane's counters.
    pub drops_map: Option<&'static str>,
    /// Per-CPU array with one entry of two `u64`, frames and bytes seen.
    pub seen_map: Option<&'static str>,
}

impl KernelHalf {
    /// A program as its object has it: nothing is set, and it has neither records nor counters.
    pub fn new(name: &'static str, object: &'static [u8], program: &'static str) -> KernelHalf {
        KernelHalf {
            name,
            object,
            program,
            config: Vec::new(),
            entries: Vec::new(),
            map_sizes: Vec::new(),
            records: None,
            drops_map: None,
            seen_map: None,
        }
    }
}

/// The maps of a loaded kernel half, for its user-space part. Every method fails when the map does
/// not exist or the kernel refuses.
pub trait KernelMaps {
    /// Visits every entry of a map: key and value bytes; for a per-CPU map the values of all CPUs
    /// one after the other, each padded to 8 bytes.
    fn visit(&self, map: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError>;

    /// Looks up one entry: its value bytes, as [`visit`](Self::visit) shows them; none if it is not there.
    fn look_up(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, LaneError> {
        let mut found = None;
        self.visit(map, &mut |at, value| {
            if at == key {
                found = Some(value.to_vec());
            }
        })?;
        Ok(found)
    }

    /// Removes one entry of a hash map; one that is not there is no error.
    fn remove(&self, map: &str, key: &[u8]) -> Result<(), LaneError>;

    /// Writes one entry; for a per-CPU map the same value on every CPU.
    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), LaneError>;

    /// As [`put`](Self::put), of any value. A map that was replaced has no reader any more.
    fn set(&self, map: &str, key: &[u8], value: &MapValue) -> Result<(), LaneError>;

    /// What the kernel dropped of the frames that the half sent out by the interface of this number.
    fn exit_drops(&self, _ifindex: u32) -> Counters {
        Counters::default()
    }
}

/// The user-space part of an in-kernel app.
pub trait KernelApp: App {
    /// What the lane is to load.
    fn half(&self) -> KernelHalf;

    /// A run of whole records from one ring, in order. The memory is the kernel's: look, do not keep.
    /// `turn` is read once for all that the rings held.
    fn on_records(&mut self, records: &[u8], turn: Turn);

    /// Time has passed; the maps may be read (accumulators, counters).
    fn on_tick(&mut self, _maps: &dyn KernelMaps, _turn: Turn) {}

    /// Program detached, rings drained: read the maps a last time. [`App::on_stop`] follows.
    fn on_detached(&mut self, _maps: &dyn KernelMaps, _turn: Turn) {}
}

/// A lane that runs kernel halves. One port reports what the program saw and dropped on all interfaces.
/// Its clock is [`ClockDomain::Monotonic`](crate::ClockDomain::Monotonic), the one that eBPF reads.
pub trait KernelLane: Lane {
    /// Hands over what the rings hold now, in runs of whole records; returns the number of records.
    fn receive(&mut self, each: impl FnMut(&[u8])) -> Result<usize, LaneError>;

    /// Detaches from every interface; the maps stay readable.
    fn detach(&mut self);

    /// The half's maps.
    fn maps(&self) -> &dyn KernelMaps;
}
