//! A lane as a row of a table: its facts, and how it is opened, shared and closed.

use crate::{GroupHolder, LaneFacts, LinkAddresses, Mode, Ports, Shape, Sharing, Wiring};
use laneway_core::{
    CapsReport, DatagramLane, FrameLane, KernelHalf, KernelLane, Lane, LaneError, PortId,
    StreamLane,
};
use laneway_flow::Offload;
use laneway_spec::LaneSpec;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What a run asks of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The lane and its knobs.
    pub spec: &'a LaneSpec,
    /// What the app wants to be handed.
    pub shape: Shape,
    /// Interfaces of the calling thread's network namespace, or files; one per port.
    pub interfaces: &'a [&'a str],
    /// Where the kernel's sockets listen, one per port. Empty on lanes that carry frames.
    pub listen: &'a [SocketAddr],
    /// How many workers share it; at least 1.
    pub workers: usize,
    /// Use interfaces that carry a default route as well.
    pub force: bool,
    /// The packets of a flow must be one worker's.
    pub keeps_flows: bool,
    /// A stack of our own takes the frames: what the kernel or a neighbour put together may be longer than a frame of
    /// the wire, and is as welcome.
    pub for_stack: bool,
    /// The app sends nothing: a kernel half only passes and drops.
    pub never_transmits: bool,
    /// A kernel half goes on where one of several interfaces is gone.
    pub outlives_interfaces: bool,
}

impl<'a> Opening<'a> {
    /// One worker that wants `shape` on `interfaces`.
    pub fn on(spec: &'a LaneSpec, shape: Shape, interfaces: &'a [&'a str]) -> Opening<'a> {
        Opening {
            spec,
            shape,
            interfaces,
            listen: &[],
            workers: 1,
            force: false,
            keeps_flows: false,
            for_stack: false,
            never_transmits: false,
            outlives_interfaces: false,
        }
    }
}

/// Any free port of the loopback address.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A lane, as a row of a table. Each lane implements it once, in its own folder.
///
/// What a lane does not have stays as it is here: the types of [`crate::NoLane`], and functions
/// that refuse. [`LaneFacts::carries`] says what it has; a caller asks that before it opens.
pub trait LaneKind: 'static {
    /// Facts that hold with every knob.
    const FACTS: LaneFacts;

    /// Its ports for frames, of one worker.
    type Frames: FrameLane;
    /// Its ports for datagrams, of one worker.
    type Datagrams: DatagramLane;
    /// Its listeners and connections, of one worker.
    type Streams: StreamLane;
    /// A kernel half at work on it.
    type Kernel: KernelLane;
    /// What all workers of a run have in common.
    type Shared: Sync;

    /// Opens what the workers have in common: what spreads work over them. Checks the spec as far as that can
    /// be done without a worker's part.
    ///
    /// # Errors
    /// When it cannot be opened, or not for so many workers.
    fn share(opening: &Opening<'_>) -> Result<Self::Shared, LaneError>;

    /// Opens the frames of worker `worker`, on its thread.
    ///
    /// # Errors
    /// When they cannot be opened, or the lane carries none.
    fn frames(_shared: &Self::Shared, _worker: usize) -> Result<Self::Frames, LaneError> {
        Err(absent(&Self::FACTS, Shape::Frames))
    }

    /// Opens the datagrams of worker `worker`, on its thread.
    ///
    /// # Errors
    /// As [`frames`](Self::frames).
    fn datagrams(_shared: &Self::Shared, _worker: usize) -> Result<Self::Datagrams, LaneError> {
        Err(absent(&Self::FACTS, Shape::Datagrams))
    }

    /// Opens the streams of worker `worker`, on its thread.
    ///
    /// # Errors
    /// As [`frames`](Self::frames).
    fn streams(_shared: &Self::Shared, _worker: usize) -> Result<Self::Streams, LaneError> {
        Err(absent(&Self::FACTS, Shape::Streams))
    }

    /// Loads and attaches a kernel half.
    ///
    /// # Errors
    /// As [`frames`](Self::frames).
    fn kernel(_shared: &Self::Shared, _half: KernelHalf) -> Result<Self::Kernel, LaneError> {
        Err(absent(&Self::FACTS, Shape::Kernel))
    }

    /// What is at the other end of its ports with these knobs.
    ///
    /// # Errors
    /// Why nothing can be there, and what to change.
    fn wiring(_spec: &LaneSpec) -> Result<Wiring, String> {
        Ok(Wiring::Cables)
    }

    /// Whether the kernel would take a half: loads it and lets it go again.
    ///
    /// # Errors
    /// Why it does not.
    fn check(_half: &KernelHalf) -> Result<(), LaneError> {
        Err(absent(&Self::FACTS, Shape::Kernel))
    }

    /// Closes a worker's frames after its run: what a file still lacks is written.
    ///
    /// # Errors
    /// When that fails; the run itself went well.
    fn close(_frames: Self::Frames) -> Result<(), LaneError> {
        Ok(())
    }

    /// The ports' own execution of flow rules, where they have one.
    fn offload(_shared: &Self::Shared) -> Option<Box<dyn Offload>> {
        None
    }

    /// What makes the kernel a member of groups on the interfaces of a worker's frames, or of a kernel half. Where the
    /// kernel does not see them there is none, and a stack in user space reports memberships itself.
    fn group_holder(_shared: &Self::Shared) -> Option<Box<dyn GroupHolder>> {
        None
    }

    /// What the kernel knows of neighbours on these interfaces, where they are the kernel's too.
    fn link_addresses(_shared: &Self::Shared) -> Option<Box<dyn LinkAddresses>> {
        None
    }

    /// Opens a mode as an app would, closes it, and gives what its port asked for and obtained. `half` is a kernel
    /// half for lanes that run one.
    ///
    /// # Errors
    /// Why the mode cannot be had here.
    fn probe(
        mode: &Mode,
        interface: &str,
        half: fn() -> Option<KernelHalf>,
    ) -> Result<CapsReport, LaneError> {
        let spec: LaneSpec = mode.spec.parse()?;
        let interfaces = [interface];
        let mut opening = Opening::on(&spec, mode.shape, &interfaces);
        opening.never_transmits = true;
        if matches!(mode.shape, Shape::Datagrams | Shape::Streams) {
            opening.interfaces = &[];
            opening.listen = &[ANYWHERE];
        }
        let shared = Self::share(&opening)?;
        let port = PortId(0);
        Ok(match mode.shape {
            Shape::Frames => Self::frames(&shared, 0)?.caps(port).clone(),
            Shape::Datagrams => Self::datagrams(&shared, 0)?.caps(port).clone(),
            Shape::Streams => Self::streams(&shared, 0)?.caps(port).clone(),
            Shape::Kernel => match half() {
                Some(half) => Self::kernel(&shared, half)?.caps(port).clone(),
                None => {
                    let hint = "add an app with one to the table of apps";
                    return Err(refused(&Self::FACTS, mode.spec, "no app has a kernel half", hint));
                }
            },
        })
    }

    /// Refuses several workers where nothing spreads work over them.
    ///
    /// # Errors
    /// With the reason.
    fn refuse_workers(opening: &Opening<'_>) -> Result<(), LaneError> {
        match (Self::FACTS.sharing)(opening.shape) {
            Sharing::Alone { why, hint } if opening.workers > 1 => {
                Err(refused(&Self::FACTS, "several workers", why, hint))
            }
            Sharing::Alone { .. } | Sharing::Spread => Ok(()),
        }
    }
}

impl LaneFacts {
    /// The error for what this lane refuses.
    pub fn refuse(&self, name: &str, why: &str, hint: &str) -> LaneError {
        refused(self, name, why, hint)
    }

    /// True when a port is an interface that is there before the lane is opened.
    pub fn has_interfaces(&self) -> bool {
        matches!(self.ports, Ports::Interfaces)
    }
}

fn refused(facts: &LaneFacts, name: &str, why: &str, hint: &str) -> LaneError {
    LaneError::Refused {
        lane: facts.name.to_owned(),
        name: name.to_owned(),
        why: why.to_owned(),
        hint: hint.to_owned(),
    }
}

fn absent(facts: &LaneFacts, shape: Shape) -> LaneError {
    let why = format!("it carries no {shape}");
    refused(facts, shape.name(), &why, "`laneway lanes` lists what each lane carries")
}

/// An [`Opening`] that outlives what it was read from: for lanes whose workers have nothing else in common.
#[derive(Clone, Debug)]
pub struct Request {
    /// The lane and its knobs.
    pub spec: LaneSpec,
    /// Interfaces or files, one per port.
    interfaces: Vec<String>,
    /// Where the kernel's sockets listen.
    pub listen: Vec<SocketAddr>,
    /// Use interfaces that carry a default route as well.
    pub force: bool,
    /// The app sends nothing.
    pub never_transmits: bool,
    /// A kernel half goes on where one of several interfaces is gone.
    pub outlives_interfaces: bool,
}

impl Request {
    /// The interfaces, as lanes take them.
    pub fn interfaces(&self) -> Vec<&str> {
        self.interfaces.iter().map(String::as_str).collect()
    }
}

impl Opening<'_> {
    /// A copy that may be kept.
    pub fn to_request(&self) -> Request {
        Request {
            spec: self.spec.clone(),
            interfaces: self.interfaces.iter().map(|&name| name.to_owned()).collect(),
            listen: self.listen.to_vec(),
            force: self.force,
            never_transmits: self.never_transmits,
            outlives_interfaces: self.outlives_interfaces,
        }
    }

    /// The request of sockets that share their addresses (SO_REUSEPORT) where there are several workers.
    ///
    /// # Errors
    /// Where they cannot: an address without a port would be another for each, or the spec forbids it.
    pub fn to_sockets(&self, facts: &LaneFacts) -> Result<Request, LaneError> {
        let mut request = self.to_request();
        if self.workers == 1 {
            return Ok(request);
        }
        let refuse = |why: &str, hint: &str| Err(facts.refuse("several workers", why, hint));
        if let Some(any) = self.listen.iter().find(|address| address.port() == 0) {
            let why = format!("each would get another port for {any}");
            return refuse(&why, "name the port that they are to share");
        }
        if !self.spec.knobs().flag("reuseport")? {
            if self.spec.to_string().contains("reuseport=") {
                return refuse("they share an address by reuseport", "leave reuseport=off out");
            }
            request.spec = with_knob(self.spec, "reuseport")?;
        }
        Ok(request)
    }
}

/// The spec with one more knob.
///
/// # Errors
/// When the spec has that knob.
pub fn with_knob(spec: &LaneSpec, knob: &str) -> Result<LaneSpec, LaneError> {
    let text = spec.to_string();
    let joint = if text.contains(':') { ',' } else { ':' };
    Ok(format!("{text}{joint}{knob}").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keeps, NoLane, Shapes};
    use laneway_core::ClockDomain;

    struct Sockets;

    impl LaneKind for Sockets {
        const FACTS: LaneFacts = LaneFacts {
            name: "sockets",
            about: "for tests",
            readme: "",
            clock: ClockDomain::Monotonic,
            carries: Shapes::DATAGRAMS,
            takes_stack: false,
            ports: Ports::Interfaces,
            named_ports: |_| Vec::new(),
            confirms_late: false,
            counts_refusals: false,
            passing_costs: None,
            sharing: |shape| match shape {
                Shape::Datagrams => Sharing::Spread,
                _ => Sharing::Alone { why: "it is alone", hint: "use one" },
            },
            modes: &[],
            keeps: |_| Keeps::NOTHING,
            why_not: None,
        };
        type Frames = NoLane;
        type Datagrams = NoLane;
        type Streams = NoLane;
        type Kernel = NoLane;
        type Shared = Request;

        fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
            Self::refuse_workers(opening)?;
            opening.to_sockets(&Self::FACTS)
        }
    }

    #[test]
    fn workers_share_an_address_by_a_knob_that_the_spec_may_have() {
        let at: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let share = |text: &str, workers, listen: SocketAddr| {
            let spec: LaneSpec = text.parse().unwrap();
            let listen = [listen];
            let opening =
                Opening { workers, listen: &listen, ..Opening::on(&spec, Shape::Datagrams, &[]) };
            Sockets::share(&opening).map(|request| request.spec.to_string())
        };
        assert_eq!(share("sockets", 1, at).unwrap(), "sockets");
        assert_eq!(share("sockets", 2, at).unwrap(), "sockets:reuseport");
        assert_eq!(share("sockets:a=1", 2, at).unwrap(), "sockets:a=1,reuseport");
        assert_eq!(share("sockets:reuseport", 2, at).unwrap(), "sockets:reuseport");
        assert!(share("sockets:reuseport=off", 2, at).is_err());
        assert!(share("sockets", 2, "127.0.0.1:0".parse().unwrap()).is_err());
    }

    #[test]
    fn a_shape_that_is_absent_and_a_worker_too_many_are_refused_with_a_reason() {
        let spec: LaneSpec = "sockets".parse().unwrap();
        let opening = Opening { workers: 2, ..Opening::on(&spec, Shape::Streams, &[]) };
        let why = Sockets::share(&opening).unwrap_err().to_string();
        assert!(why.contains("it is alone"), "{why}");
        let shared = Sockets::share(&Opening::on(&spec, Shape::Frames, &[])).unwrap();
        let Err(why) = Sockets::frames(&shared, 0);
        assert!(why.to_string().contains("carries no frames"), "{why}");
    }
}
