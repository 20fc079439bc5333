//! Several workers on one interface: one program and one map of sockets, a queue for each worker.
//!
//! An interface has one XDP program, so the lanes of several workers share it. The owner of the
//! workers attaches the programs once; each worker, on its own thread, opens a lane on its own queue
//! and enters its socket. The device (its RSS hash) decides which queue a flow takes, so a flow stays
//! with one worker.
//!
//! Assumes that all threads stand in the network namespace of the interfaces. What must always hold:
//! the programs are detached when the steering and every lane opened with it are dropped, in any
//! order and on any thread; nothing of it is touched per frame. What it does not do: it sets no RSS
//! table and no number of queues (`ethtool -X`, `-L`).

use crate::{
    config::{self, Config, QUEUES_MAX},
    interface::{check_names, find},
    program::Program,
};
use laneway_bpf::XdpMode;
use laneway_core::{Cap, LaneError};
use laneway_spec::LaneSpec;
use std::sync::Arc;

/// The attached programs of some interfaces. Clones share them.
#[derive(Clone)]
pub struct Steering {
    ports: Arc<[Steered]>,
    /// As the spec asks.
    config: Config,
}

/// One interface with its program.
struct Steered {
    interface: String,
    program: Arc<Program>,
}

impl Steering {
    /// Attaches a program to each of `interfaces`, in this thread's network namespace, for as many
    /// `workers`. Until a worker opens a lane, every frame goes to the kernel's stack.
    ///
    /// # Errors
    /// As [`AfXdp::open`](crate::AfXdp::open), for all that needs no socket.
    pub fn attach<S: AsRef<str>>(
        spec: &LaneSpec,
        interfaces: &[S],
        workers: usize,
        force: bool,
    ) -> Result<Steering, LaneError> {
        config::check_lane(spec)?;
        let mut config = Config::read(spec)?;
        config.queues_end =
            config.queue + u32::try_from(workers).unwrap_or(u32::MAX).min(QUEUES_MAX as u32);
        let interfaces: Vec<&str> = interfaces.iter().map(AsRef::as_ref).collect();
        check_names(&interfaces)?;
        match attach_all(&config, &interfaces, force) {
            Err(LaneError::CapMissing { cap: Cap::NativeXdp, .. }) => {
                let mut less = config.clone();
                less.do_without(Cap::NativeXdp);
                attach_all(&less, &interfaces, force)
            }
            attached => attached,
        }
        .map(|ports| Steering { ports, config })
    }

    /// What the spec asks for.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// True when the programs run in the core: asked for, or the fallback that the spec allows.
    pub(crate) fn is_generic(&self) -> bool {
        self.ports.iter().any(|port| port.program.mode() == XdpMode::Generic)
    }

    /// The interfaces and their programs, by port.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&str, &Arc<Program>)> {
        self.ports.iter().map(|port| (port.interface.as_str(), &port.program))
    }
}

fn attach_all(
    config: &Config,
    interfaces: &[&str],
    force: bool,
) -> Result<Arc<[Steered]>, LaneError> {
    interfaces
        .iter()
        .map(|name| {
            let interface = find(name, config, force)?;
            let program = Arc::new(Program::attach(config, &interface)?);
            Ok(Steered { interface: (*name).to_owned(), program })
        })
        .collect()
}

/// Workers take it to their threads.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Steering>();
};
