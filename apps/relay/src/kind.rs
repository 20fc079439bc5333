//! App `relay` as a row of the table of apps.
//!
//! **What its workers share**: the book of rules, of which each has the rules that are its by their ids. **What is
//! each worker's own**: the sockets of its rules and what became of its datagrams. A rule is never two workers', since
//! a group's datagrams go to every socket that is its member.

use crate::{
    book::Book,
    kernel::{KernelRelay, KernelRules, KernelWorker, resolve::Wire},
    report::{NAME, RelayReport},
    talks::Talks,
    user::Relay,
};
use laneway_core::{KernelApp, KernelHalf, LaneError};
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, Forbidden, KernelOffer, LaneFacts, NoApp, Own, Place,
    RaceFacts, RunReport, Service, Shape,
};
use std::{collections::BTreeMap, sync::Arc};

/// The row.
#[derive(Debug)]
pub struct RelayKind;

/// A run under the rules of a book.
pub struct RelayRun {
    pub(crate) book: Arc<Book>,
    /// Its addresses on each interface, where the lane has a stack of its own or runs its kernel half.
    pub(crate) own: Vec<Own>,
    /// It gives up what it needs no more, and this becomes of other system calls; None: it keeps all.
    pub(crate) confined: Option<Forbidden>,
    pub(crate) talks: Talks,
}

impl RelayRun {
    /// A run under these rules.
    pub fn new(book: Arc<Book>) -> RelayRun {
        RelayRun { book, own: Vec::new(), confined: None, talks: Talks::default() }
    }

    /// The rules.
    pub fn book(&self) -> &Arc<Book> {
        &self.book
    }
}

impl AppKind for RelayKind {
    const FACTS: AppFacts = AppFacts {
        name: NAME,
        about: "copies UDP datagrams of groups and hosts to groups and hosts, by rules changed while it runs",
        race: RaceFacts::COPIED,
    };
    type Run = RelayRun;
    type Report = RelayReport;
    type Frames = NoApp;
    type Datagrams = Relay;
    type Streams = NoApp;
    type Kernel = KernelWorker;

    fn shape(_run: &RelayRun, lane: &LaneFacts) -> Result<Shape, LaneError> {
        let in_kernel = lane.carries.has(Shape::Kernel);
        Ok(if in_kernel { Shape::Kernel } else { Shape::Datagrams })
    }

    fn asks(run: &RelayRun) -> Asks {
        // Its ports are opened by its rules.
        let service = Service { own: run.own.clone(), ..Service::default() };
        Asks { service, keeps_flows: true, outlives_interfaces: true, ..Asks::default() }
    }

    fn datagrams(run: &RelayRun, place: Place<'_>) -> Result<Relay, LaneError> {
        Ok(Relay::new(run.book.mailbox(place.worker), place.bell, !run.own.is_empty()))
    }

    fn kernel(
        run: &RelayRun,
        place: Place<'_>,
        offer: &dyn KernelOffer,
    ) -> Result<KernelWorker, LaneError> {
        let (Some(groups), Some(neighbours)) = (offer.group_holder(), offer.link_addresses())
        else {
            return Err(LaneError::Refused {
                lane: Self::FACTS.name.to_owned(),
                name: place.interfaces.join(","),
                why: "the lane does not let the kernel join groups there".to_owned(),
                hint: "use lane xdp, socket or uring".to_owned(),
            });
        };
        let wires = place.interfaces.iter().zip(place.ifindexes).zip(&run.own);
        let wires = wires.map(|((name, ifindex), own)| Wire {
            name: (*name).to_owned(),
            ifindex: *ifindex,
            own: own.clone(),
        });
        let mailbox = run.book.mailbox(place.worker);
        KernelWorker::new(mailbox, place.bell, wires.collect(), groups, neighbours)
    }

    fn sample_half() -> Option<KernelHalf> {
        Some(KernelRelay::new(KernelRules::default(), 1).half())
    }
}

impl Conclude<RelayReport> for Relay {
    fn conclude(self, _run: &RunReport) -> RelayReport {
        let failure = self.failure().map(str::to_owned);
        RelayReport {
            fates: *self.fates(),
            copies: *self.copies(),
            passed: BTreeMap::new(),
            failure,
        }
    }
}
