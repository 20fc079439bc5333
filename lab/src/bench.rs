//! The bench of a race: a cable between two namespaces, the CPU meter, and who runs where.
//!
//! Dropping it removes everything.

use crate::meter::{Class, Meter};
use crate::race::RaceError;
use crate::result::Placement;
use laneway_netns::{
    Namespace, Topology, TopologyOptions, TopologyRecord, VethOptions, driver_counters,
    interface_counters, napi_threads,
};

/// Room for a second VLAN tag on top of the usual 1500.
const MTU_BYTES: u32 = 1504;
/// Where frames go: an address that nobody owns, so that no stack answers.
pub(crate) const DESTINATION: [u8; 6] = [0x02, 0x4c, 0x57, 0xff, 0xff, 0xfe];

/// The bench.
pub(crate) struct Bench {
    topology: Topology,
    meter: Meter,
    placement: Placement,
}

/// What the cable lost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireLosses {
    /// No room in the receiver's ring.
    pub(crate) ring_full: u64,
    /// The receiving driver could not take a frame over.
    pub(crate) receive: u64,
}

impl Bench {
    /// Builds it.
    pub(crate) fn create(placement: Placement) -> Result<Bench, RaceError> {
        let meter = Meter::attach()?;
        let mut options = TopologyOptions::new("race");
        options.veth = VethOptions { mtu_bytes: MTU_BYTES, ..VethOptions::default() };
        options.sut_napi_cpus = Some(vec![placement.napi_cpu]);
        let topology = Topology::create(&options)?;
        Ok(Bench { topology, meter, placement })
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    pub(crate) fn generator(&self) -> (&Namespace, &'static str) {
        (&self.topology.generator.namespace, self.topology.generator.interface)
    }

    pub(crate) fn sut(&self) -> (&Namespace, &'static str) {
        (&self.topology.sut.namespace, self.topology.sut.interface)
    }

    /// The state of everything, as read back now.
    pub(crate) fn describe(&self) -> Result<TopologyRecord, RaceError> {
        Ok(self.topology.describe()?)
    }

    /// Finds the NAPI threads of the tested interface as they are now (a lane that opens may have
    /// restarted them), keeps them on their CPU, and books their time as theirs.
    pub(crate) fn claim_napi_threads(&self) -> Result<(), RaceError> {
        let sut = &self.topology.sut;
        let found = sut.namespace.enter(|| napi_threads(sut.interface))??;
        let mut threads = found.unwrap_or_else(|| sut.napi_threads.clone());
        for thread in &mut threads {
            thread.pin(self.placement.napi_cpu)?;
            self.meter.classify(thread.pid, Class::Napi)?;
        }
        Ok(())
    }

    /// Reads what the cable lost.
    pub(crate) fn losses(&self) -> Result<WireLosses, RaceError> {
        let (generator, near) = self.generator();
        let (sut, far) = self.sut();
        let near = generator.enter(|| interface_counters(near))??;
        let driver = sut.enter(|| driver_counters(far))??;
        // `rx_queue_0_drops` and so on; `rx_queue_0_xdp_drops` are a program's verdicts, no loss.
        let is_loss = |name: &str| {
            name.starts_with("rx_queue_") && name.ends_with("_drops") && !name.contains("xdp")
        };
        let receive = driver.iter().filter(|(name, _)| is_loss(name)).map(|(_, n)| n).sum();
        Ok(WireLosses { ring_full: near.tx_dropped, receive })
    }
}
