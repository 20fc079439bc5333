//! What the server has for GET over UDP: who may ask, the answers that wait, the cache and the counts.
//! [`udp`](super::udp) is what it does with it.

use crate::get::cache::Cache;
use crate::get::{Allowed, Fate, Requests};
use laneway_core::{KernelMaps, LaneError, PortId, Turn};
use laneway_resp::Reply;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// How often the counts of the kernel half are read.
const COUNTS_NS: u64 = 10_000_000;

/// An answer that waits for a record of the log.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) record: u64,
    pub(super) port: PortId,
    pub(super) to: SocketAddr,
    pub(super) fate: Fate,
    pub(super) bytes: Box<[u8]>,
}

/// What the server has for datagrams.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// The networks that may ask, if any may.
    pub(super) allowed: Option<Allowed>,
    pub(super) requests: Requests,
    pub(super) reply: Reply,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) fates: [u64; Fate::ALL.len()],
    /// What the kernel half answers from, if there is one.
    pub(crate) cache: Option<Cache>,
    counts_ns: u64,
}

impl Datagrams {
    pub(crate) fn new(allowed: Allowed, cache: Option<Cache>) -> Datagrams {
        Datagrams { allowed: Some(allowed), cache, ..Datagrams::default() }
    }

    /// True if the cache has keys that a change must reach.
    pub(crate) fn caches(&self) -> bool {
        self.cache.as_ref().is_some_and(Cache::has_keys)
    }

    /// The value of a key is another now; of every key of a database if there is none.
    pub(crate) fn touched(&mut self, database: usize, key: Option<&[u8]>) {
        let Some(cache) = self.cache.as_mut().filter(|_| database == 0) else { return };
        match key {
            Some(key) => cache.forget(key),
            None => cache.forget_all(),
        }
    }

    /// What any user may read may have changed.
    pub(crate) fn forget_all(&mut self) {
        self.cache.iter_mut().for_each(Cache::forget_all);
    }

    /// What became of datagrams and of the kernel's frames, by name; nothing if none are served.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        if self.allowed.is_none() {
            return Vec::new();
        }
        let own = Fate::ALL.into_iter().map(|fate| (fate.name(), self.fates[fate.index()]));
        own.chain(self.cache.iter().flat_map(Cache::fates)).collect()
    }

    /// Gives up the replies that wait: they will not be sent.
    pub(crate) fn give_up(&mut self) {
        self.fates[Fate::NotDurable.index()] += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Makes the kernel half's maps agree with the replies about to be sent, and reads its counts from time to time.
    pub(crate) fn agree(&mut self, maps: &dyn KernelMaps, turn: Turn) -> Result<(), LaneError> {
        let Some(cache) = &mut self.cache else { return Ok(()) };
        cache.agree(maps)?;
        if turn.now_ns >= self.counts_ns {
            self.counts_ns = turn.now_ns + COUNTS_NS;
            cache.read_fates(maps)?;
        }
        Ok(())
    }
}
