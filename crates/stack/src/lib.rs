//! A network stack in user space: datagram and stream apps on lanes that carry frames.
//!
//! ```text
//!   DatagramApp          StreamApp
//!       │                    │
//!  DatagramStack<L>     StreamStack<L>        UDP; TCP (smoltcp's, one per connection)
//!       └────────┬───────────┘
//!              host                           our addresses, ARP and ND, ICMP, routes
//!                │
//!           L: FrameLane                      packet, afxdp, dpdk, sim, ...
//! ```
//!
//! [`DatagramStack`] and [`StreamStack`] give the two shapes of the contract that the sockets of the
//! kernel would give, over any [`FrameLane`](laneway_core::FrameLane). Addresses are the stack's own
//! ([`StackConfig`]); the kernel can keep the rest of the interface (`pass_rest`).
//!
//! What must always hold: nothing that strangers send makes it panic, grow beyond a named limit, or
//! answer more often than a rate limit says; every frame is delivered, answered, passed or counted;
//! nothing allocates per packet once buffers have grown to what traffic needs; time comes as values.
//!
//! What it does not do: it fragments nothing and puts no fragments together; it opens no connections;
//! it sends no router solicitations, makes no addresses by itself, and probes for no duplicates (it
//! announces its addresses, and defends them). It tells routers of its groups (IGMPv3, MLDv2), or has
//! the kernel do so ([`DatagramStack::with_holder`]).
//!
//! It computes and checks every checksum, and takes segments of TCP of any length that the lane shows
//! whole. Lane `packet` finishes checksums that were left to a device, and shows what was put together.
//! Other lanes hear of neither: on veth, turn `tx-checksumming`, `tso`, `gso` and `tx-udp-segmentation`
//! off at the kernel's end, or such packets are counted as `bad_checksum` and `rx_too_long`.
#![forbid(unsafe_code)]

mod address;
mod arp;
mod config;
mod connection;
mod connections;
mod cookie;
mod datagram;
mod device;
mod ends;
mod growth;
mod host;
mod icmp;
mod ip;
mod isn;
mod knobs;
mod limit;
mod listen;
mod members;
mod nd;
mod neighbour;
mod outbox;
mod path_mtus;
mod ports;
mod recovery;
mod report;
mod reset;
mod resolve;
mod sent;
mod sequence;
mod siphash;
mod stream;
mod syn;
mod turn;
mod udp;
mod wheel;

pub use config::{
    ADDRESSES_MAX, HostLimits, InterfaceConfig, LISTEN_MAX, MTU_BYTES_MAX, MTU_BYTES_MIN,
    StackConfig, TcpLimits,
};
pub use connections::ConnectionCounts;
pub use datagram::DatagramStack;
pub use host::HostEvents;
pub use stream::StreamStack;
