//! The calling-context tree of all threads, as it grows while events come in.
//!
//! Finding the child that a call leads to is the hot path: a direct-mapped cache from (parent, key of the
//! function) to the child answers it without numbering the function and without guessing, so that there is nothing to
//! mispredict in code that calls now this and now that. A miss goes through one map over (parent, function).
//!
//! A context also tells its calls apart by *which* children they called. Names are not known while
//! reading, so an empty poll cannot be recognised here; but it calls fewer children than a productive one, and
//! that is kept: up to [`VARIANTS_MAX`] sets of children, each with its calls and time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use laneway_trace_read::FunctionKey;

use crate::histogram::{Histogram, bucket_of};
use crate::result::CONTEXTS_MAX;

/// No context.
pub(crate) const NONE: u32 = u32::MAX;
/// Entries of the cache of children; as many contexts as are ever hot at a time fit in it.
const CACHE_BITS: u32 = 12;
/// Sets of children that are distinguished per context; calls of further sets count in the last.
pub(crate) const VARIANTS_MAX: usize = 8;

/// Calls that called the same children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Bit n: the child with ordinal n was called; bit 63 stands for all from there on.
    pub(crate) children: u64,
    pub(crate) calls: u64,
    pub(crate) total_ns: u64,
}

/// One context.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    pub(crate) function: u32,
    /// Its place among its siblings, in order of first call.
    pub(crate) ordinal: u32,
    children: u32,
    last_variant: u32,
    pub(crate) asynchronous: bool,
    pub(crate) calls: u64,
    pub(crate) cut: u64,
    /// Of calls seen whole.
    pub(crate) whole_ns: u64,
    /// Of the others, as far as seen.
    pub(crate) cut_ns: u64,
    pub(crate) self_ns: u64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) max_at_ns: u64,
    pub(crate) max_thread: u32,
    pub(crate) squares: f64,
    pub(crate) histogram: Histogram,
    pub(crate) variants: Vec<Variant>,
}

/// All contexts. Parents come before children.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    index: HashMap<(u32, u32), u32, BuildHasherDefault<Mixer>>,
    cache: Box<[Cached; 1 << CACHE_BITS]>,
    roots: u32,
    /// Calls that found no room for a context of their own.
    pub(crate) refused: u64,
}

/// The last child found for this entry; without a parent it is empty.
#[derive(Debug, Clone, Copy)]
struct Cached {
    key: FunctionKey,
    parent: u32,
    child: u32,
}

impl Default for Tree {
    fn default() -> Self {
        let empty = Cached { key: FunctionKey(0), parent: NONE, child: NONE };
        Self {
            nodes: Vec::new(),
            index: HashMap::default(),
            cache: Box::new([empty; 1 << CACHE_BITS]),
            roots: 0,
            refused: 0,
        }
    }
}

impl Tree {
    /// The context of the function with this key below `parent`, if [`Tree::remember`] stored it lately.
    #[inline]
    pub(crate) fn recall(&self, parent: u32, key: FunctionKey) -> Option<u32> {
        let cached = self.cache[place(parent, key)];
        (cached.key == key && cached.parent == parent && parent != NONE).then_some(cached.child)
    }

    /// Keeps what [`Tree::child`] found for the function with this key, and for no other.
    pub(crate) fn remember(&mut self, parent: u32, key: FunctionKey, child: u32) {
        self.cache[place(parent, key)] = Cached { key, parent, child };
    }

    /// The context of `function` called from `parent` ([`NONE`]: a root); [`NONE`] if there is no room for it.
    pub(crate) fn child(&mut self, parent: u32, function: u32) -> u32 {
        match self.index.get(&(parent, function)) {
            Some(&found) => found,
            None => self.add(parent, function).unwrap_or(NONE),
        }
    }

    fn add(&mut self, parent: u32, function: u32) -> Option<u32> {
        if self.nodes.len() >= CONTEXTS_MAX {
            self.refused += 1;
            return None;
        }
        let added = self.nodes.len() as u32;
        let siblings = match self.nodes.get_mut(parent as usize) {
            Some(parent) => &mut parent.children,
            None => &mut self.roots,
        };
        let ordinal = *siblings;
        *siblings += 1;
        self.nodes.push(Node::new(parent, function, ordinal));
        self.index.insert((parent, function), added);
        Some(added)
    }
}

/// Where the cache keeps a pair; addresses of functions differ in their middle bits most.
#[inline]
fn place(parent: u32, key: FunctionKey) -> usize {
    let mixed = (key.0 ^ (u64::from(parent) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - CACHE_BITS)) as usize
}

impl Node {
    fn new(parent: u32, function: u32, ordinal: u32) -> Self {
        Self {
            parent,
            function,
            ordinal,
            children: 0,
            last_variant: 0,
            asynchronous: false,
            calls: 0,
            cut: 0,
            whole_ns: 0,
            cut_ns: 0,
            self_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            max_at_ns: 0,
            max_thread: 0,
            squares: 0.0,
            histogram: Histogram::default(),
            variants: Vec::new(),
        }
    }

    /// The bit of this context in its parent's set of children.
    #[inline]
    pub(crate) fn bit(&self) -> u64 {
        1 << self.ordinal.min(63)
    }

    /// A call was seen whole; returns the histogram bucket of its duration.
    #[inline]
    pub(crate) fn call(
        &mut self,
        start_ns: u64,
        duration_ns: u64,
        children: u64,
        thread: u32,
    ) -> u32 {
        self.calls += 1;
        self.whole_ns += duration_ns;
        // Signed, because that conversion is one instruction; 292 years are enough.
        let duration = duration_ns.min(i64::MAX as u64) as i64 as f64;
        self.squares += duration * duration;
        if duration_ns > self.max_ns || self.calls == 1 {
            self.max_ns = duration_ns;
            self.max_at_ns = start_ns;
            self.max_thread = thread;
        }
        self.min_ns = self.min_ns.min(duration_ns);
        let bucket = bucket_of(duration_ns);
        self.histogram.record(bucket);
        match self.variants.get_mut(self.last_variant as usize) {
            Some(variant) if variant.children == children => {
                variant.calls += 1;
                variant.total_ns += duration_ns;
            }
            _ => self.call_of_other_variant(children, duration_ns),
        }
        bucket
    }

    fn call_of_other_variant(&mut self, children: u64, duration_ns: u64) {
        let place = match self.variants.iter().position(|variant| variant.children == children) {
            Some(place) => place,
            None if self.variants.len() < VARIANTS_MAX => {
                self.variants.push(Variant { children, calls: 0, total_ns: 0 });
                self.variants.len() - 1
            }
            None => {
                // Many sets of children: the last one stands for the rest, as their union.
                self.variants[VARIANTS_MAX - 1].children |= children;
                VARIANTS_MAX - 1
            }
        };
        self.variants[place].calls += 1;
        self.variants[place].total_ns += duration_ns;
        self.last_variant = place as u32;
    }
}

/// Multiplies and folds: keys are two small numbers, and no program chooses them to collide.
#[derive(Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value.wrapping_add(1)) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
