//! Lane `dpdk` as a row of the table of lanes: ports are opened once, each worker has a queue of each.

use crate::{DpdkLane, DpdkPorts, FlowRules, config::Config, device::Device};
use laneway_core::{CapsReport, ClockDomain, KernelHalf, Lane, LaneError, PortId};
use laneway_flow::Offload;
use laneway_kinds::{
    Keeps, LaneFacts, LaneKind, Mode, Needs, NoLane, Opening, Ports, Shape, Shapes, Sharing, Wiring,
};
use laneway_spec::LaneSpec;

/// The row.
#[derive(Debug)]
pub struct DpdkKind;

/// What the workers of a run have in common.
pub struct DpdkShared {
    ports: DpdkPorts,
    never_transmits: bool,
}

/// The device whose ports are TAP interfaces that it makes, and the one whose ports are shared memory.
const TAP: &str = "net_tap";
const MEMIF: &str = "net_memif";
/// The roles of the two sides of shared memory.
const SERVER: &str = "role=server";
const CLIENT: &str = "role=client";

/// The interface that a driver creates for a mode that is tried, or the name of a port that is none.
const OWN_INTERFACE: &str = "lwprobe0";

/// The addresses of `pci=`.
fn named_ports(spec: &LaneSpec) -> Vec<String> {
    // What is wrong with the spec the lane says when it opens.
    match Config::read(spec, 1).map(|config| config.device) {
        Ok(Device::Pci(addresses)) => addresses,
        _ => Vec::new(),
    }
}

const MODES: &[Mode] = &[
    Mode::new("dpdk:net_af_packet", Shape::Frames, Needs::Interface),
    Mode::new("dpdk:net_af_xdp", Shape::Frames, Needs::Interface),
    Mode::new("dpdk:net_tap", Shape::Frames, Needs::OwnInterface),
    Mode::new("dpdk:net_memif,role=server", Shape::Frames, Needs::Name),
    Mode::new("dpdk:net_pcap", Shape::Frames, Needs::Interface),
    Mode::new("dpdk:net_ring", Shape::Frames, Needs::Name),
    Mode::new("dpdk:net_null", Shape::Frames, Needs::Name),
    Mode::new("dpdk:net_null,hugepages", Shape::Frames, Needs::Name),
];

impl LaneKind for DpdkKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "dpdk",
        about: "DPDK's ports, loaded at run time",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Monotonic,
        carries: Shapes::FRAMES,
        takes_stack: true,
        ports: Ports::Devices,
        named_ports,
        confirms_late: false,
        counts_refusals: false,
        passing_costs: None,
        sharing: |_| Sharing::Spread,
        modes: MODES,
        keeps: |_| {
            Keeps::All(
                "DPDK starts threads of its own before there is a lane, and its drivers ask for privileges as they go",
            )
        },
        why_not: None,
    };
    type Frames = DpdkLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = DpdkShared;

    fn share(opening: &Opening<'_>) -> Result<DpdkShared, LaneError> {
        let Opening { spec, interfaces, force, workers, never_transmits, .. } = *opening;
        let ports = DpdkPorts::open(spec, interfaces, force, workers)?;
        Ok(DpdkShared { ports, never_transmits })
    }

    fn frames(shared: &DpdkShared, worker: usize) -> Result<DpdkLane, LaneError> {
        let lane = DpdkLane::open_shared(&shared.ports, worker)?;
        // What is only read may be as it is.
        Ok(if shared.never_transmits { lane } else { lane.finishing_checksums() })
    }

    fn wiring(spec: &LaneSpec) -> Result<Wiring, String> {
        let text = spec.to_string();
        let words = || text.split([':', ',']);
        let is_on = |device| words().any(|word| word == device);
        if is_on(TAP) {
            return Ok(Wiring::Taps);
        }
        if !is_on(MEMIF) {
            return Ok(Wiring::Cables);
        }
        if !is_on(SERVER) {
            return Err(format!(
                "this side is there first, and the other end comes to it: add `,{SERVER}`"
            ));
        }
        // The same with the other role, so that both agree on everything else; and polling, because it must not
        // slow the other end down.
        let other_ends = format!("{},{CLIENT},idle=spin", spec.without(&["role", "idle"]));
        Ok(Wiring::SharedMemory { other_ends })
    }

    fn offload(shared: &DpdkShared) -> Option<Box<dyn Offload>> {
        Some(Box::new(FlowRules::new(&shared.ports)))
    }

    fn probe(
        mode: &Mode,
        interface: &str,
        _half: fn() -> Option<KernelHalf>,
    ) -> Result<CapsReport, LaneError> {
        let spec = mode.spec.parse()?;
        let name = if mode.needs == Needs::Interface { interface } else { OWN_INTERFACE };
        let ports = Self::share(&Opening::on(&spec, Shape::Frames, &[name]))?;
        Ok(Self::frames(&ports, 0)?.caps(PortId(0)).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wiring(spec: &str) -> Result<Wiring, String> {
        DpdkKind::wiring(&spec.parse().expect("a spec"))
    }

    #[test]
    fn the_device_says_what_is_at_the_other_end() {
        for (spec, expected) in [
            ("dpdk:net_tap", Wiring::Taps),
            ("dpdk:burst=256,net_tap", Wiring::Taps),
            ("dpdk:net_af_xdp", Wiring::Cables),
        ] {
            assert_eq!(wiring(spec), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn a_spec_of_pci_devices_names_its_ports() {
        let named = |spec: &str| (DpdkKind::FACTS.named_ports)(&spec.parse().expect("a spec"));
        let two = ["0000:01:00.0", "0000:01:00.1"].map(str::to_owned);
        assert_eq!(named("dpdk:pci=0000:01:00.0+0000:01:00.1,csum"), two);
        assert!(named("dpdk:net_af_packet").is_empty() && named("dpdk:pci=nonsense").is_empty());
    }

    #[test]
    fn the_other_ends_of_shared_memory_agree_on_everything_but_the_role_and_poll() {
        for (ours, theirs) in [
            ("dpdk:net_memif,role=server", "dpdk:net_memif,role=client,idle=spin"),
            ("dpdk:role=server,net_memif", "dpdk:net_memif,role=client,idle=spin"),
            ("dpdk:idle=block,net_memif,role=server", "dpdk:net_memif,role=client,idle=spin"),
            (
                "dpdk:net_memif,rxd=512,idle=block,role=server,socket=@a,id=7",
                "dpdk:net_memif,rxd=512,socket=@a,id=7,role=client,idle=spin",
            ),
        ] {
            let other_ends = theirs.to_owned();
            assert_eq!(wiring(ours), Ok(Wiring::SharedMemory { other_ends }));
        }
        let why = wiring("dpdk:net_memif").expect_err("no server would be there");
        assert!(why.contains("add `,role=server`"), "{why}");
    }
}
