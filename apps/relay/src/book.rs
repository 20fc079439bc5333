//! The rules of a running relay: what is in force, and how it changes.
//!
//! ```text
//!   next set ─ check ─▶ what goes, what comes ─▶ each worker's share ─▶ prepare ─▶ all could? ─▶ commit
//!                                                                                 └▶ one could not: abandon
//! ```
//!
//! A successor is given all of it by `share`, and goes on where `cease` ends.
//!
//! A rule is one worker's, by its id, because a socket of its own receives what each rule is about. What must
//! always hold: a change is in force on every worker when it is answered without an error, and on none when
//! there is one; the set that is in force has passed the check as a whole.

use crate::{
    check::{Policy, check, check_sources},
    desk::{Answer, Change, InForce, Mailbox, NoAnswer, Order, SharedInput, Waiting},
    live::WorkerState,
    rule::{Rule, RuleId},
    sockets::check_change,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How long a worker may take: ten thousand sockets of some 100 us each, and as much again.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long what was received may take to leave: queues of slow outputs included.
const CEASE_PATIENCE: Duration = Duration::from_secs(10);

/// The rules of a run, for all clients that change them or ask about them.
pub struct Book {
    policy: Policy,
    workers: Vec<Arc<Mailbox>>,
    /// Only the holder of this may give orders and wait for answers.
    turn: Mutex<Phase>,
    /// Changed by the holder of the turn. Never held while a caller waits for a worker: a worker that begins asks
    /// for the rules itself.
    rules: Mutex<Arc<InForce>>,
    /// How many sets have been in force.
    generation: AtomicU64,
}

/// How far a run is with its rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is an order that no caller has waited for.
    #[default]
    Beginning,
    /// Every worker has the rules that it begins with.
    Begun,
    /// Another relay has them, and changes them from now on.
    Over,
}

/// What a relay has, for its successor.
pub(crate) struct Share {
    /// The rules in force.
    pub(crate) rules: Vec<Rule>,
    /// Which set of rules that is.
    pub(crate) generation: u64,
    /// The sockets of each worker; none where the lane's ports are no sockets of the kernel.
    pub(crate) inputs: Option<Vec<Vec<SharedInput>>>,
}

/// A relay whose rules do not change until this is dropped. Where it has ceased, it receives nothing, and what it had
/// received has left; then it receives again.
pub(crate) struct Kept<'a> {
    book: &'a Book,
    turn: MutexGuard<'a, Phase>,
    has_ceased: bool,
}

impl Kept<'_> {
    /// Another relay has the rules, and receives, from now on: here nothing changes any more, not even for callers that
    /// wait for their turn already.
    pub(crate) fn over(mut self) {
        *self.turn = Phase::Over;
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.has_ceased && *self.turn != Phase::Over {
            // A worker that has ended receives no more anyway.
            let _ = self.book.order_all(|| Order::Receive, PATIENCE);
        }
    }
}

/// What a change did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Rules that were added, or took the place of one with the same input.
    pub added: Vec<RuleId>,
    /// Rules that went.
    pub removed: Vec<RuleId>,
    /// Rules of the new set that were in force already, untouched.
    pub kept: usize,
}

impl Book {
    /// The rules of a run of so many workers. Each finds its share when it begins.
    ///
    /// # Errors
    /// What is wrong with the set.
    pub fn new(rules: Vec<Rule>, policy: Policy, workers: usize) -> Result<Book, String> {
        check(&rules.iter().collect::<Vec<_>>(), &policy).map_err(|why| why.to_string())?;
        check_sources(&rules, &policy)?;
        let workers = (0..workers.max(1)).map(|_| Arc::new(Mailbox::default())).collect();
        let rules = by_id(rules);
        let book = Book {
            policy,
            workers,
            turn: Mutex::default(),
            rules: Mutex::default(),
            generation: AtomicU64::new(0),
        };
        // Interfaces may come behind a relay that begins with the machine.
        let shares = book.shares(&[], rules.values(), &Waiting::Any);
        for (worker, change) in shares.into_iter().enumerate() {
            book.workers[worker].post(Order::Prepare(change, true));
        }
        book.put_in_force(rules);
        Ok(book)
    }

    pub(crate) fn mailbox(&self, worker: usize) -> Arc<Mailbox> {
        Arc::clone(&self.workers[worker])
    }

    fn in_turn(&self) -> Result<MutexGuard<'_, Phase>, String> {
        // A turn that ended in a panic had put nothing in force, or all.
        let mut phase = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match *phase {
            Phase::Beginning => {
                (0..self.workers.len()).try_for_each(|worker| self.done(worker))?;
                *phase = Phase::Begun;
            }
            Phase::Begun => {}
            Phase::Over => return Err("another relay has taken over; ask that one".to_owned()),
        }
        Ok(phase)
    }

    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_in_force(&self, rules: InForce) {
        // Read by the holder of the turn, as this is written.
        self.generation.fetch_add(1, Ordering::Relaxed);
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// The rules in force, by id.
    pub fn rules(&self) -> Vec<(RuleId, Arc<Rule>)> {
        self.in_force().iter().map(|(id, rule)| (*id, Arc::clone(rule))).collect()
    }

    /// The workers, for the watch that tells them of interfaces.
    pub(crate) fn mailboxes(&self) -> &[Arc<Mailbox>] {
        &self.workers
    }

    /// Adds rules; one with the input of a rule that is there takes its place. A rule on an interface that is not
    /// there is refused, unless another rule is on it already, or `waits` says that it waits.
    ///
    /// # Errors
    /// What is wrong, or cannot be had; then nothing has changed.
    pub fn add(&self, rules: Vec<Rule>, waits: bool) -> Result<Changed, String> {
        let _turn = self.in_turn()?;
        let mut next = InForce::clone(&self.in_force());
        let mut seen = by_id(Vec::new());
        for rule in rules {
            let (id, rule) = (RuleId::of(&rule.input), Arc::new(rule));
            if seen.insert(id, Arc::clone(&rule)).is_some() {
                return Err(format!(
                    "rule {id} ({}) is there twice; put its outputs into one",
                    rule.input
                ));
            }
            next.insert(id, rule);
        }
        check(&next.values().map(|rule| &**rule).collect::<Vec<_>>(), &self.policy)
            .map_err(|why| why.to_string())?;
        let mut changed = self.change(next, waits)?;
        changed.kept = 0;
        Ok(changed)
    }

    /// Removes rules.
    ///
    /// # Errors
    /// An id that no rule has; then nothing has changed.
    pub fn remove(&self, ids: &[RuleId]) -> Result<Changed, String> {
        let _turn = self.in_turn()?;
        let mut next = InForce::clone(&self.in_force());
        for id in ids {
            if next.remove(id).is_none() {
                return Err(format!(
                    "there is no rule {id}; `laneway relay list` shows those that are"
                ));
            }
        }
        let mut changed = self.change(next, false)?;
        changed.kept = 0;
        Ok(changed)
    }

    /// Puts another set in the place of the one in force. Rules that are in both are not touched. Interfaces that
    /// are not there are as for [`add`](Self::add).
    ///
    /// # Errors
    /// What is wrong, or cannot be had; then nothing has changed.
    pub fn replace(&self, rules: Vec<Rule>, waits: bool) -> Result<Changed, String> {
        let _turn = self.in_turn()?;
        // As a list, so that two rules with one input are found, in the order that they were given.
        check(&rules.iter().collect::<Vec<_>>(), &self.policy).map_err(|why| why.to_string())?;
        self.change(by_id(rules), waits)
    }

    /// What is permitted beside the rules.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many workers share the rules.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Gives a worker that has not begun the sockets of another relay's.
    pub(crate) fn hand(&self, worker: usize, inputs: Vec<SharedInput>) {
        self.workers[worker].hand(inputs);
    }

    /// Waits until every worker has the rules that it begins with.
    ///
    /// # Errors
    /// Why one could not have them.
    pub(crate) fn begun(&self) -> Result<(), String> {
        self.in_turn().map(drop)
    }

    /// What a successor needs. Everything goes on meanwhile.
    ///
    /// # Errors
    /// A worker that has ended or has no descriptor left.
    pub(crate) fn share(&self) -> Result<Share, String> {
        let _turn = self.in_turn()?;
        let rules = self.in_force().values().map(|rule| Rule::clone(rule)).collect();
        let generation = self.generation.load(Ordering::Relaxed);
        let answers = self.order_all(|| Order::Share, PATIENCE)?;
        let inputs = answers.into_iter().map(|answer| match answer {
            Answer::Shared(inputs) => inputs,
            Answer::Done | Answer::Failed(_) | Answer::State(_) => None,
        });
        Ok(Share { rules, generation, inputs: inputs.collect() })
    }

    /// Keeps the rules as they were shared.
    ///
    /// # Errors
    /// They have changed since.
    pub(crate) fn keep(&self, generation: u64) -> Result<Kept<'_>, String> {
        let turn = self.in_turn()?;
        if self.generation.load(Ordering::Relaxed) != generation {
            return Err("its rules have changed meanwhile; try again".to_owned());
        }
        Ok(Kept { book: self, turn, has_ceased: false })
    }

    /// Keeps the rules, has every worker receive no more, and waits until what it received has left.
    ///
    /// # Errors
    /// The rules have changed since they were shared, or something does not leave; then everything goes on.
    pub(crate) fn cease(&self, generation: u64) -> Result<Kept<'_>, String> {
        let mut kept = self.keep(generation)?;
        kept.has_ceased = true;
        self.order_all(|| Order::Cease, CEASE_PATIENCE)
            .map_err(|why| format!("what it has received does not leave, so it goes on: {why}"))?;
        Ok(kept)
    }

    /// Has every worker receive from the sockets that it was handed.
    ///
    /// # Errors
    /// A worker that cannot, or has ended.
    pub(crate) fn receive(&self) -> Result<(), String> {
        let _turn = self.in_turn()?;
        self.order_all(|| Order::Receive, PATIENCE).map(drop)
    }

    /// The holder of the turn gives every worker an order; all their answers, or the first failure.
    fn order_all(
        &self,
        order: impl Fn() -> Order,
        patience: Duration,
    ) -> Result<Vec<Answer>, String> {
        self.workers.iter().for_each(|worker| worker.post(order()));
        let answers = self.workers.iter().map(|worker| match worker.wait(patience) {
            Ok(Answer::Failed(why)) => Err(why),
            Ok(answer) => Ok(answer),
            Err(why) => Err(no_answer(why)),
        });
        // Each is waited for, whatever another says.
        answers.collect::<Vec<_>>().into_iter().collect()
    }

    /// The holder of the turn puts another set in force, which was checked by itself. What is left of one needs no
    /// check.
    fn change(&self, next: InForce, waits: bool) -> Result<Changed, String> {
        let now = self.in_force();
        if self.policy.socket_workers > 0 {
            check_change(&now, &next, self.policy.socket_workers)?;
        }
        let gone = now.iter().filter(|(id, rule)| next.get(id) != Some(rule));
        let gone: Vec<RuleId> = gone.map(|(id, _)| *id).collect();
        let come = next.iter().filter(|(id, rule)| now.get(id) != Some(rule));
        let come: Vec<(RuleId, &Arc<Rule>)> = come.map(|(id, rule)| (*id, rule)).collect();
        check_sources(come.iter().map(|(_, rule)| &***rule), &self.policy)?;
        let waiting = if waits { Waiting::Any } else { Waiting::Known(Arc::clone(&now)) };
        let shares = self.shares(&gone, come.iter().map(|(_, rule)| *rule), &waiting);
        let asked: Vec<usize> = (0..shares.len()).filter(|at| !shares[*at].is_empty()).collect();
        for (worker, share) in shares.into_iter().enumerate().filter(|(_, share)| !share.is_empty())
        {
            self.workers[worker].post(Order::Prepare(share, false));
        }
        let mut answers =
            asked.iter().map(|worker| self.done(*worker)).collect::<Vec<_>>().into_iter();
        if let Some(why) = answers.find_map(Result::err) {
            asked.iter().for_each(|worker| self.workers[*worker].post(Order::Abandon));
            asked.iter().for_each(|worker| drop(self.done(*worker)));
            return Err(why);
        }
        asked.iter().for_each(|worker| self.workers[*worker].post(Order::Commit));
        let answers: Vec<_> =
            asked.iter().map(|worker| self.workers[*worker].wait(PATIENCE)).collect();
        // One that fails has what it had. Where another has not, the run ends by the failure.
        let has_failed =
            |answer: &Result<Answer, NoAnswer>| matches!(answer, Ok(Answer::Failed(_)));
        let is_refused = !answers.is_empty() && answers.iter().all(has_failed);
        let changed = Changed {
            added: come.iter().map(|(id, _)| *id).collect(),
            removed: gone.into_iter().filter(|id| !next.contains_key(id)).collect(),
            kept: next.len() - come.len(),
        };
        if !is_refused {
            self.put_in_force(next);
        }
        answers.into_iter().map(outcome).collect::<Result<Vec<()>, String>>()?;
        Ok(changed)
    }

    /// What each worker's part of a change is.
    fn shares<'a>(
        &self,
        gone: &[RuleId],
        come: impl IntoIterator<Item = &'a Arc<Rule>>,
        waiting: &Waiting,
    ) -> Vec<Change> {
        let empty = Change { waiting: waiting.clone(), ..Change::default() };
        let mut shares = vec![empty; self.workers.len()];
        let worker = |id: RuleId| id.worker(self.workers.len());
        gone.iter().for_each(|id| shares[worker(*id)].remove.push(*id));
        for rule in come {
            shares[worker(RuleId::of(&rule.input))].add.push(Arc::clone(rule));
        }
        shares
    }

    fn done(&self, worker: usize) -> Result<(), String> {
        outcome(self.workers[worker].wait(PATIENCE))
    }

    /// What every rule has done, by all workers.
    ///
    /// # Errors
    /// A worker that has ended, or does not answer.
    pub fn state(&self) -> Result<WorkerState, String> {
        self.state_with(usize::MAX)
    }

    /// What every rule has done, with what at least so many outputs have, if there are as many.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub(crate) fn state_with(&self, outputs: usize) -> Result<WorkerState, String> {
        let _turn = self.in_turn()?;
        let mut all = WorkerState::default();
        for answer in self.order_all(|| Order::State(outputs), PATIENCE)? {
            if let Answer::State(state) = answer {
                all.merge(state);
            }
        }
        all.rules.sort_by_key(|rule| rule.id);
        Ok(all)
    }
}

fn by_id(rules: Vec<Rule>) -> InForce {
    rules.into_iter().map(|rule| (RuleId::of(&rule.input), Arc::new(rule))).collect()
}

fn outcome(answer: Result<Answer, NoAnswer>) -> Result<(), String> {
    match answer {
        Ok(Answer::Done | Answer::State(_) | Answer::Shared(_)) => Ok(()),
        Ok(Answer::Failed(why)) => Err(why),
        Err(why) => Err(no_answer(why)),
    }
}

fn no_answer(why: NoAnswer) -> String {
    match why {
        NoAnswer::Over => "the relay is ending".to_owned(),
        NoAnswer::Late => format!(
            "a worker has not answered for {} s; whether the change is in force is not known: see `laneway relay status`",
            PATIENCE.as_secs()
        ),
    }
}
