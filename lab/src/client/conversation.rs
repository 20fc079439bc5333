//! What a connection carries: how a request is written, and when an answer is whole.
//!
//! Another protocol is another [`Conversation`]; it does no input and no output, so it is tested without any.

use super::ClientPlan;
use super::draws::{Draws, POOL_BYTES};
use super::keys::Shelf;
use std::fmt;
use std::rc::Rc;

/// Both ends of a conversation over one connection, as its client sees them.
pub(crate) trait Conversation: Sized {
    /// Each request is a datagram, and so is each answer.
    const IS_BY_DATAGRAMS: bool = false;

    /// Connection `number`, opened for the `turn`th time, about to ask its first request.
    fn begin(terms: &Rc<Terms>, number: u32, turn: u32) -> Self;

    /// Writes the next request behind what `out` holds.
    fn ask(&mut self, out: &mut Vec<u8>);

    /// Requests to be asked, over all connections, before anything is due.
    fn opening(_terms: &Terms) -> u32 {
        0
    }

    /// How often each kind of answer was received, over all connections, where there is more than one.
    fn kinds(_terms: &Terms) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Takes the next bytes of answers, cut wherever the network cut them, or one datagram: how many answers are whole
    /// by them.
    ///
    /// # Errors
    /// What is wrong with the answer behind those that were whole; nothing that comes later means anything.
    fn hear(&mut self, bytes: &[u8]) -> (u32, Result<(), Wrong>);
}

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It has another byte than it must have.
    Byte {
        /// Where in the answer, from 0.
        at: usize,
        /// Bytes that it must have.
        of: usize,
        /// As it must be.
        wanted: u8,
        /// As it was received.
        received: u8,
    },
    /// It is another answer than this request can have.
    Reply {
        /// What was asked.
        to: String,
        /// What was received.
        received: String,
    },
    /// Something arrived when every request was answered, so many bytes of it.
    Unasked {
        /// Bytes beyond the last answer.
        bytes: usize,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Byte { at, of, wanted, received } => {
                write!(
                    f,
                    "of {of} bytes, byte {at} was returned as {received:#04x}, not {wanted:#04x}"
                )
            }
            Wrong::Reply { to, received } => write!(f, "{to} was answered with {received}"),
            Wrong::Unasked { bytes } => write!(f, "{bytes} bytes were received without a request"),
        }
    }
}

/// What all connections of a client have in common.
#[derive(Debug)]
pub(crate) struct Terms {
    request_bytes: [u32; 2],
    seed: u64,
    /// Contents are pieces of this: drawing each byte anew would take the client's CPU.
    pool: Vec<u8>,
    /// Of a store: what was set of it so far.
    shelf: Option<Shelf>,
}

impl Terms {
    /// Of the client of `plan`.
    pub(crate) fn new(plan: &ClientPlan) -> Terms {
        let [least, most] = plan.request_bytes;
        let mut draws = Draws::seeded(plan.seed);
        let words = (POOL_BYTES + most as usize).div_ceil(8);
        let pool = (0..words).flat_map(|_| draws.next().to_le_bytes()).collect();
        let shelf = plan.store.map(Shelf::new);
        Terms { request_bytes: [least, most], seed: plan.seed, pool, shelf }
    }

    /// Where the draws of connection `number` begin, opened for the `turn`th time.
    pub(super) fn draws(&self, number: u32, turn: u32) -> Draws {
        // Two draws apart, so that no connection repeats the bytes of its neighbour.
        let mut of =
            Draws::seeded(self.seed ^ (u64::from(turn) << 32 | u64::from(number)).rotate_left(17));
        Draws::seeded(of.next())
    }

    /// Requests of so many bytes.
    pub(super) fn request_bytes(&self) -> [u32; 2] {
        self.request_bytes
    }

    /// A piece of what is random: bytes `at..at + length` of it, `at` below [`POOL_BYTES`].
    pub(super) fn piece(&self, at: usize, length: usize) -> &[u8] {
        &self.pool[at..at + length]
    }

    /// The seed of all.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// What was set so far; there is one where values are asked for.
    pub(super) fn shelf(&self) -> &Shelf {
        self.shelf.as_ref().expect("a plan whose protocol has values has a store")
    }
}
