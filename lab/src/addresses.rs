//! The places on a bench: the addresses and interfaces of generator, arm and far ends, the same on every one.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Where frames go: an address that no host owns, so that no stack answers.
pub(crate) const DESTINATION: [u8; 6] = [0x02, 0x4c, 0x57, 0xff, 0xff, 0xfe];

/// Hardware address of the arm's end of the first cable.
pub(crate) const SUT_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0, 0, 2];

/// Interfaces of the cables on the way out: the far end's, and the arm's.
pub(crate) const ONWARD: [[&str; 2]; 8] = [
    ["gen1", "sut1"],
    ["gen2", "sut2"],
    ["gen3", "sut3"],
    ["gen4", "sut4"],
    ["gen5", "sut5"],
    ["gen6", "sut6"],
    ["gen7", "sut7"],
    ["gen8", "sut8"],
];

/// What an app answers for that is pinged, or asked over connections. Not the interface's own address: only an arm that
/// is the kernel's stack may have it, or both would answer.
pub(crate) const ECHO: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// UDP or TCP port that the arm listens on.
pub(crate) const PORT: u16 = 7_000;

/// UDP port that the generator sends from.
pub(crate) const GENERATOR_PORT: u16 = 7_001;

/// Where the generator's frames come from.
pub(crate) const GENERATOR: SocketAddrV4 = address(77, 1, GENERATOR_PORT);

/// Where they go, as datagrams.
pub(crate) const SUT: SocketAddrV4 = address(77, 2, PORT);

/// The arm's address on the second cable.
pub(crate) const SUT_SECOND: SocketAddrV4 = address(78, 2, PORT);

/// The far end of the second cable.
pub(crate) const FAR_END: SocketAddrV4 = address(78, 1, GENERATOR_PORT);

/// Where an arm listens that is asked over connections.
pub(crate) const SERVICE: SocketAddrV4 = SocketAddrV4::new(ECHO, PORT);

const fn address(net: u8, host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, net, 0, host), port)
}

/// The arm's interface on a cable on the way out, 0 being the first.
pub(crate) fn onward_interface(cable: u8) -> &'static str {
    ONWARD[usize::from(cable)][1]
}
