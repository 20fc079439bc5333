//! Lane `socket`: UDP, TCP and raw sockets, the way to the network that every program knows.
//!
//! [`UdpLane`] carries datagrams and is the baseline that other lanes are compared with: without
//! knobs it makes one `recvmsg` and one `sendmsg` per datagram. `batch=N` makes one call for many,
//! `gso` and `gro` one for a train of equal datagrams. With `raw=` the same lane carries what
//! follows the IP header of another protocol, such as ICMP, and with `raw` alone pings, of which it
//! makes sure that no other program answers them. [`TcpLane`] carries streams, by edge-triggered epoll.
//!
//! ```text
//!  datagrams:  socket ─recvmsg─▶ receive buffers ─▶ batch ─▶ app ─forward─▶ trains ─sendmsg─▶ socket
//!                                (borrowed for a round)     └─send─▶ own bytes ─┘
//!  streams:    socket ─recv─▶ one buffer ─▶ app ─▶ queue of the connection ─send─▶ socket
//!                             (what the app leaves is kept)     (after the turn has ended)
//! ```
//!
//! What must always hold: every datagram that reached a socket is shown or counted, and every one an
//! app sends is sent or counted; a connection's bytes arrive and leave in order, within its limits;
//! per datagram nothing is allocated, and per turn nothing in steady state.
//!
//! What it does not do: it puts no fragments together itself, answers no query about groups (the kernel
//! does), and shares nothing between workers (several open the same address with `reuseport`). `README.md` lists
//! knobs and limits.

mod config;
mod conn;
mod control;
mod inbox;
mod kind;
mod options;
mod outbox;
mod pings;
mod port;
mod sys;
mod tcp;
mod train;
mod udp;

pub use kind::SocketKind;
pub use tcp::TcpLane;
pub use udp::UdpLane;
