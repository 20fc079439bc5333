//! App `relay` as a row of the table of apps.
//!
//! **What its workers share**: the book of rules, of which each has the rules that are its by their ids. **What is
//! each worker's own**: the sockets of its rules and what became of its datagrams. A rule is never two workers', since
//! a group's datagrams go to every socket that is its member.

use crate::{
    book::Book,
    command::Talks,
    user::{Copies, Fates, Relay},
};
use laneway_core::LaneError;
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, LaneFacts, NoApp, Own, Place, RaceFacts, Report, RunReport,
    Service, Shape,
};
use std::sync::Arc;

/// The row.
#[derive(Debug)]
pub struct RelayKind;

/// A run under the rules of a book.
pub struct RelayRun {
    pub(crate) book: Arc<Book>,
    /// Who it is on each interface, where the lane has a stack of its own.
    pub(crate) own: Vec<Own>,
    pub(crate) talks: Talks,
}

impl RelayRun {
    /// A run under these rules.
    pub fn new(book: Arc<Book>) -> RelayRun {
        RelayRun { book, own: Vec::new(), talks: Talks::default() }
    }

    /// The rules.
    pub fn book(&self) -> &Arc<Book> {
        &self.book
    }
}

/// What became of a worker's datagrams and of their copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayReport {
    /// Of what it was shown.
    pub fates: Fates,
    /// Of what its rules asked for.
    pub copies: Copies,
    /// Why the rules that it began with could not be had.
    pub failure: Option<String>,
}

impl Report for RelayReport {
    fn merge(&mut self, other: &RelayReport) {
        self.fates.merge(&other.fates);
        self.copies.merge(&other.copies);
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }

    fn failure(&self) -> Option<LaneError> {
        let why = self.failure.clone()?;
        let name = RelayKind::FACTS.name.to_owned();
        Some(LaneError::Input { lane: name, name: "the rules".to_owned(), why })
    }
}

impl AppKind for RelayKind {
    const FACTS: AppFacts = AppFacts {
        name: "relay",
        about: "copies UDP datagrams of groups and hosts to groups and hosts, by rules changed while it runs",
        race: RaceFacts::COPIED,
    };
    type Run = RelayRun;
    type Report = RelayReport;
    type Frames = NoApp;
    type Datagrams = Relay;
    type Streams = NoApp;
    type Kernel = NoApp;

    fn shape(_run: &RelayRun, _lane: &LaneFacts) -> Result<Shape, LaneError> {
        Ok(Shape::Datagrams)
    }

    fn asks(run: &RelayRun) -> Asks {
        // Its ports are opened by its rules.
        let service = Service { own: run.own.clone(), ..Service::default() };
        Asks { service, keeps_flows: true, never_transmits: false }
    }

    fn datagrams(run: &RelayRun, place: Place<'_>) -> Result<Relay, LaneError> {
        Ok(Relay::new(run.book.mailbox(place.worker), place.bell))
    }
}

impl Conclude<RelayReport> for Relay {
    fn conclude(self, _run: &RunReport) -> RelayReport {
        let failure = self.failure().map(str::to_owned);
        RelayReport { fates: *self.fates(), copies: *self.copies(), failure }
    }
}
