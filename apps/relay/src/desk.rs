//! The desk between clients that change rules and the workers that carry the change out.
//!
//! ```text
//!   book ── post ──▶ Mailbox ── bell ──▶ worker: prepare, commit or give up, tell ── answer ──▶ book
//! ```
//!
//! A worker may begin with sockets that another relay handed over, and hand its own over to a successor: see
//! `handover`.
//!
//! One order and one answer at a time per worker. A worker looks when its bell has rung, never per datagram.
//! What must always hold: a worker that has ended answers every order, by not being there.

use crate::{
    live::WorkerState,
    rule::{Rule, RuleId},
};
use laneway_core::{Bell, Membership};
use laneway_linux::Links;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// What becomes of a worker's rules: these go, then those come. A rule that is in both keeps the outputs that
/// are the same, with what they counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// Rules that go.
    pub(crate) remove: Vec<RuleId>,
    /// Rules that come.
    pub(crate) add: Vec<Arc<Rule>>,
    /// Which of them may come before their interfaces are there.
    pub(crate) waiting: Waiting,
}

/// Rules by id.
pub(crate) type InForce = BTreeMap<RuleId, Arc<Rule>>;

/// What is done about a rule whose interface is not there.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// It waits.
    Any,
    /// It waits if one of these rules is on the interface; else the name is taken for a mistake.
    Known(Arc<InForce>),
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::Known(Arc::default())
    }
}

impl Change {
    /// True when it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// What a worker is to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Open what a change needs; what is in force stays in force. With the flag it comes into force as soon
    /// as that is done.
    Prepare(Change, bool),
    /// Put what was prepared in force, and close what nothing needs any more.
    Commit,
    /// Close what was opened for it.
    Abandon,
    /// Report what every rule has done, and so many outputs.
    State(usize),
    /// Share the sockets that rules receive at.
    Share,
    /// Receive no more, and answer when all that was received has left.
    Cease,
    /// Receive: again, or from sockets that were handed over.
    Receive,
}

/// A socket that rules receive at, as it goes from one relay to its successor.
#[derive(Debug)]
pub(crate) struct SharedInput {
    /// Where it is.
    pub(crate) bind: SocketAddr,
    /// The interface that it is kept to.
    pub(crate) interface: Option<String>,
    /// What it is a member of.
    pub(crate) memberships: Vec<Membership>,
    /// The rules about what it receives.
    pub(crate) rules: Vec<RuleId>,
    /// Itself, with what is queued there.
    pub(crate) socket: OwnedFd,
}

/// What a worker says of an order.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It cannot be, and nothing is changed.
    Failed(String),
    /// What was asked.
    State(WorkerState),
    /// The sockets; none where the lane's ports are no sockets of the kernel.
    Shared(Option<Vec<SharedInput>>),
}

/// Between the book and one worker.
#[derive(Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    answered: Condvar,
}

#[derive(Default)]
struct Inside {
    bell: Option<Bell>,
    order: Option<Order>,
    answer: Option<Answer>,
    /// What the worker begins with, until it takes it.
    handed: Vec<SharedInput>,
    /// The interfaces that there are, if that is news.
    links: Option<Arc<Links>>,
    /// The worker has ended, or will never begin.
    is_over: bool,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The worker has ended.
    Over,
    /// It did not answer in time.
    Late,
}

impl Mailbox {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Every change of it is one assignment: a panic leaves nothing half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker is there; it hears this bell, which is rung where an order waits already.
    pub(crate) fn attend(&self, bell: &Bell) {
        let mut inside = self.inside();
        if inside.order.is_some() || inside.links.is_some() {
            bell.ring();
        }
        inside.bell = Some(bell.clone());
    }

    /// Hands a worker that has not begun the sockets of another.
    pub(crate) fn hand(&self, inputs: Vec<SharedInput>) {
        self.inside().handed = inputs;
    }

    /// The worker's side: the sockets that it was handed, once.
    pub(crate) fn handed(&self) -> Vec<SharedInput> {
        std::mem::take(&mut self.inside().handed)
    }

    /// The worker's side: the order that waits.
    pub(crate) fn take(&self) -> Option<Order> {
        self.inside().order.take()
    }

    /// The worker's side: the interfaces that there are, if that is news.
    pub(crate) fn take_links(&self) -> Option<Arc<Links>> {
        self.inside().links.take()
    }

    /// Sends the worker the interfaces that there are.
    pub(crate) fn send_links(&self, links: &Arc<Links>) {
        let mut inside = self.inside();
        inside.links = Some(Arc::clone(links));
        if let Some(bell) = &inside.bell {
            bell.ring();
        }
    }

    /// The worker's side: the result of the order.
    pub(crate) fn answer(&self, answer: Answer) {
        self.inside().answer = Some(answer);
        self.answered.notify_all();
    }

    /// The worker is not there any more.
    pub(crate) fn close(&self) {
        self.inside().is_over = true;
        self.answered.notify_all();
    }

    /// Gives an order; the answer to an earlier one is forgotten.
    pub(crate) fn post(&self, order: Order) {
        let mut inside = self.inside();
        inside.answer = None;
        inside.order = Some(order);
        if let Some(bell) = &inside.bell {
            bell.ring();
        }
    }

    /// Waits for the answer to the last order.
    pub(crate) fn wait(&self, patience: Duration) -> Result<Answer, NoAnswer> {
        let begun = Instant::now();
        let mut inside = self.inside();
        loop {
            if let Some(answer) = inside.answer.take() {
                return Ok(answer);
            }
            if inside.is_over {
                return Err(NoAnswer::Over);
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(NoAnswer::Late);
            }
            let waited = self.answered.wait_timeout(inside, left);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
