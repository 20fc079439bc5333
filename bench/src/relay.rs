//! Turns of a relay: datagrams come in for one group, and leave to eight.

use laneway_core::{App, Bell, DatagramApp, DatagramLane, PortId, Turn};
use laneway_kinds::{AppKind, Place};
use laneway_relay::{Book, Input, Output, Policy, RelayKind, RelayRun, Rule};
use laneway_sim::SimLane;
use laneway_stack::{DatagramStack, InterfaceConfig, StackConfig};
use laneway_testkit::UdpFrame;
use std::net::Ipv4Addr;
use std::sync::Arc;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
/// The link address of [`GROUP`] (RFC 1112, section 6.4).
const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 1, 1, 1];
const DATAGRAMS: u64 = 64;
const OUTPUTS: u8 = 8;
/// What one turn sends.
pub(crate) const COPIES: u64 = DATAGRAMS * OUTPUTS as u64;
const PAYLOAD_BYTES: usize = 1_316;
const HEADER_BYTES: usize = 42;

fn rule() -> Rule {
    Rule {
        name: None,
        input: Input {
            interface: None,
            group: Some(GROUP.into()),
            address: None,
            family: None,
            port: 5000,
            sources: Vec::new(),
        },
        outputs: (0..OUTPUTS).map(|n| Output::to(([239, 2, 0, n], 6000).into(), None)).collect(),
        bytes_per_second: None,
    }
}

/// A relay in force on a stack of simulated links, and one turn of it.
pub(crate) fn turns() -> Box<dyn FnMut()> {
    let book = Arc::new(Book::new(vec![rule()], Policy::default(), 1).expect("a rule"));
    let run = RelayRun::new(book);
    let spec = "sim:frames=16384,queue=65536".parse().expect("a spec");
    let (lane, world) = SimLane::open(&spec, 1).expect("a simulated lane opens");
    let interface = InterfaceConfig::new(NEAR_MAC, vec![(NEAR.into(), 8)]);
    let mut stack =
        DatagramStack::new(lane, &StackConfig::new(interface, Vec::new())).expect("a stack");
    let bell = Bell::new().expect("a descriptor");
    let place =
        Place { worker: 0, workers: 1, interfaces: &[], ifindexes: &[], caps: &[], bell: &bell };
    let mut relay = RelayKind::datagrams(&run, place).expect("a relay");
    let turn = Turn::default();
    // Its first rules are in force behind a bounded number of turns; each rings for the next.
    while bell.answer() {
        relay.on_bell(turn);
        relay.on_ports(&mut stack, turn);
    }
    let frames: Vec<Vec<u8>> = (0..DATAGRAMS)
        .map(|sequence| {
            let frame = UdpFrame {
                destination_mac: GROUP_MAC,
                source: Ipv4Addr::new(10, 0, 0, 2),
                destination: GROUP,
                destination_port: 5000,
                sequence,
                bytes: HEADER_BYTES + PAYLOAD_BYTES,
                ..UdpFrame::default()
            };
            frame.build()
        })
        .collect();
    Box::new(move || {
        frames.iter().for_each(|frame| world.inject(PortId(0), frame));
        let mut seen = 0;
        while seen < DATAGRAMS as usize {
            let served = stack.serve(&mut relay, &world.clock());
            seen += served.expect("a simulated lane does not fail");
        }
        let sent = world.collect(PortId(0)).len() as u64;
        assert!(sent >= COPIES, "{sent} frames left, of {COPIES} copies");
    })
}
