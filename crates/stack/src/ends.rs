//! What names a connection: its two ends.

use std::net::SocketAddr;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}
