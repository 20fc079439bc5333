//! What clients and their data are called by.

/// A client's place in the table of clients.
pub(crate) type Key = u32;

/// A key of a database.
pub(crate) type DataKey = (usize, Box<[u8]>);
