//! The usual topology: a generator and a system under test, each in its namespace, joined by one cable.
//!
//! The interfaces are always `gen0` and `sut0`, so that reports of different runs read alike; the namespaces have no
//! names, only labels. Placement is part of the topology: with NAPI CPUs given, an end's receive work runs in pinned
//! kernel threads; without, it runs on whichever core sends. [`Topology::describe`] reads everything back at the moment
//! it is called, so call it after programs were attached, and beside every number publish what it says.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::interface::{InterfaceState, interface_state};
use crate::napi::{NapiThread, napi_threads, set_threaded};
use crate::{Error, Namespace, VethOptions, VethPair};

const GENERATOR_INTERFACE: &str = "gen0";
const SUT_INTERFACE: &str = "sut0";

/// A topology, as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyOptions {
    /// First part of the namespaces' labels.
    pub prefix: String,
    /// The cable; end `a` is the generator's, end `b` the system's under test.
    pub veth: VethOptions,
    /// CPUs for the NAPI threads of the generator's end, thread i on entry i modulo the length; `None` is unthreaded.
    pub generator_napi_cpus: Option<Vec<usize>>,
    /// The same for the end of the system under test.
    pub sut_napi_cpus: Option<Vec<usize>>,
}

impl TopologyOptions {
    /// The default cable, unthreaded.
    pub fn new(prefix: impl Into<String>) -> Self {
        TopologyOptions {
            prefix: prefix.into(),
            veth: VethOptions::default(),
            generator_napi_cpus: None,
            sut_napi_cpus: None,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let (generator, sut) = (&self.veth.a.offloads, &self.veth.b.offloads);
        let wishes =
            [(&self.generator_napi_cpus, generator, sut), (&self.sut_napi_cpus, sut, generator)];
        for (cpus, own, peer) in wishes {
            let Some(cpus) = cpus else { continue };
            if cpus.is_empty() {
                return Err(Error::Conflict(
                    "threaded NAPI was asked for with an empty list of CPUs; name at least one",
                ));
            }
            if !own.gro {
                return Err(Error::Conflict(
                    "threaded NAPI on veth needs GRO on at the same end; set gro",
                ));
            }
            if peer.tso {
                return Err(Error::Conflict(
                    "threaded NAPI on veth needs TSO off at the peer, or it never starts; clear tso",
                ));
            }
        }
        Ok(())
    }
}

/// One side of a topology.
#[derive(Debug)]
pub struct Side {
    /// Where it lives.
    pub namespace: Namespace,
    /// Its interface.
    pub interface: &'static str,
    /// The pinned threads that do its receive work; empty if unthreaded.
    pub napi_threads: Vec<NapiThread>,
}

/// Two namespaces joined by one cable, removed when dropped.
#[derive(Debug)]
pub struct Topology {
    pair: VethPair, // first, so that the cable goes before the rooms it joins
    /// The traffic generator's side, interface `gen0`.
    pub generator: Side,
    /// The side of the system under test, interface `sut0`.
    pub sut: Side,
}

impl Topology {
    /// Builds it; on failure nothing of it remains.
    pub fn create(options: &TopologyOptions) -> Result<Topology, Error> {
        options.check()?;
        let generator = Namespace::create(&format!("{}-gen", options.prefix))?;
        let sut = Namespace::create(&format!("{}-sut", options.prefix))?;
        let pair =
            VethPair::create(&generator, GENERATOR_INTERFACE, &sut, SUT_INTERFACE, &options.veth)?;
        Ok(Topology {
            pair,
            generator: Side::new(generator, GENERATOR_INTERFACE, &options.generator_napi_cpus)?,
            sut: Side::new(sut, SUT_INTERFACE, &options.sut_napi_cpus)?,
        })
    }

    /// Makes the system under test know the generator's addresses, whatever a program there did to its interface; see
    /// [`VethPair::renew_neighbours`].
    pub fn renew_neighbours(&self) -> Result<(), Error> {
        self.pair.renew_neighbours()
    }

    /// Reads everything that was set, and its surroundings, back from the kernel.
    pub fn describe(&self) -> Result<TopologyRecord, Error> {
        const RELEASE: &str = "/proc/sys/kernel/osrelease";
        let release = fs::read_to_string(RELEASE).map_err(Error::path("read", RELEASE))?;
        Ok(TopologyRecord {
            kernel_release: release.trim().to_owned(),
            generator: self.generator.describe()?,
            sut: self.sut.describe()?,
        })
    }
}

impl Side {
    fn new(
        namespace: Namespace,
        interface: &'static str,
        napi_cpus: &Option<Vec<usize>>,
    ) -> Result<Side, Error> {
        let mut napi_threads = Vec::new();
        if let Some(cpus) = napi_cpus {
            napi_threads = namespace.enter(|| set_threaded(interface, true))??;
            for (thread, &cpu) in napi_threads.iter_mut().zip(cpus.iter().cycle()) {
                thread.pin(cpu)?;
            }
        }
        Ok(Side { namespace, interface, napi_threads })
    }

    /// Reads this side back from the kernel, NAPI threads included.
    pub fn describe(&self) -> Result<SideRecord, Error> {
        let (state, found) = self.namespace.enter(|| {
            Ok::<_, Error>((interface_state(self.interface)?, napi_threads(self.interface)?))
        })??;
        let napi_threads = match found {
            Some(threads) => threads,
            None => {
                let mut threads = self.napi_threads.clone();
                threads.iter_mut().try_for_each(NapiThread::refresh)?;
                threads
            }
        };
        Ok(SideRecord {
            namespace: self.namespace.label().to_owned(),
            interface: self.interface.to_owned(),
            state,
            napi_threads,
        })
    }
}

/// A topology, as read back; for the result file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyRecord {
    /// As `uname -r` prints it.
    pub kernel_release: String,
    /// The generator's side.
    pub generator: SideRecord,
    /// The side of the system under test.
    pub sut: SideRecord,
}

/// One side of a topology, as read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideRecord {
    /// Its namespace's label.
    pub namespace: String,
    /// Its interface's name.
    pub interface: String,
    /// Its interface's state.
    #[serde(flatten)]
    pub state: InterfaceState,
    /// The kernel threads that do its receive work, with the CPUs they may use.
    pub napi_threads: Vec<NapiThread>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_threading_that_would_never_start() {
        let check = |change: fn(&mut TopologyOptions), part: &str| {
            let mut options = TopologyOptions::new("x");
            options.sut_napi_cpus = Some(vec![0]);
            change(&mut options);
            let sentence = options.check().expect_err(part).to_string();
            assert!(sentence.contains(part), "{sentence}");
        };
        check(|options| options.sut_napi_cpus = Some(vec![]), "empty list");
        check(|options| options.veth.b.offloads.gro = false, "needs GRO");
        check(|options| options.veth.a.offloads.tso = true, "needs TSO off at the peer");
    }
}
