//! A relay is followed by another process without a gap: the successor asks on the control socket, and is given the
//! rules, the sockets that receive, with what is queued there, and the control socket.
//!
//! ```text
//!   successor                               this relay, which relays all the while
//!     handover ────────────────────────────▶ shares rules and sockets, and goes on
//!     opens its lane, its outputs, adopts the sockets, which it holds
//!     take ────────────────────────────────▶ holds its inputs; what it had received leaves
//!            ◀── ceased ──────────────────── from here on neither receives, and the kernel queues
//!     receives
//!     taken ───────────────────────────────▶ ends; its outputs' counts are its own
//! ```
//!
//! What must always hold: at no time do two processes take from one socket, but where a successor's report is late:
//! then this relay has gone on, and the report ends it. One successor at a time has an offer. Whatever the successor
//! does instead of its next line, be it to die, this relay goes on. Where this relay dies in the middle, the successor
//! has what it needs, and goes on with it. A change of rules that this relay answers as done is the successor's, too.
//!
//! On lanes without sockets of the kernel's own the successor is given the rules alone, this relay ends first, and
//! what arrives in between is lost; the offer says so.

pub(crate) mod asked;

pub use asked::Asked;

use crate::{
    book::{Book, Share},
    check::Policy,
    console::Request,
    desk::SharedInput,
    rule::{Rule, RuleId},
};
use laneway_control::{
    AnswerWriter, Client, ClientError, ControlSocket, Heard, LineAnswer, Reaction,
};
use laneway_core::Membership;
use laneway_linux::Cidr;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The format of the messages here. A change of a line's meaning counts it up.
pub(crate) const FORMAT: u32 = 1;
/// What `take_wait` of a run is.
pub(crate) const TAKE_WAIT: Duration = Duration::from_secs(10);
/// How long a successor that asks waits until another that asked before is gone.
const PLACE_WAIT: Duration = Duration::from_secs(2);
/// How long this relay keeps the conversation open while it ends.
const END_WAIT: Duration = Duration::from_secs(60);

/// What it is given, in one line; descriptors go along: the control socket, then the sockets in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Offer {
    format: u32,
    /// What `take` has to name.
    offer: u64,
    lane: String,
    workers: usize,
    allow: Vec<Cidr>,
    local_groups: bool,
    rule: Vec<Rule>,
    /// Empty where the successor is given none.
    sockets: Vec<Described>,
    /// The control socket comes first.
    control: bool,
    /// What is lost, where something is.
    lost: Option<String>,
}

/// A socket that comes along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Described {
    worker: usize,
    bind: SocketAddr,
    interface: Option<String>,
    memberships: Vec<Member>,
    rules: Vec<RuleId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    group: IpAddr,
    interface: Option<String>,
    source: Option<IpAddr>,
}

impl From<Membership> for Member {
    fn from(Membership { group, interface, source }: Membership) -> Member {
        Member { group, interface, source }
    }
}

impl From<Member> for Membership {
    fn from(Member { group, interface, source }: Member) -> Membership {
        Membership { group, interface, source }
    }
}

/// The relay that is followed.
pub(crate) struct Predecessor {
    pub(crate) book: Arc<Book>,
    /// Its lane, as the user wrote it.
    pub(crate) lane: String,
    /// Another descriptor of its control socket.
    pub(crate) listener: Box<dyn Fn() -> Option<OwnedFd> + Send + Sync>,
    /// Ends the run; true: a successor is spoken to at the same path.
    pub(crate) leave: Box<dyn Fn(bool) + Send + Sync>,
    /// What the last offer was.
    pub(crate) last: Mutex<Option<Last>>,
    pub(crate) succession: Arc<Succession>,
    /// How long a successor may take from the report that neither receives to its own that it does: [`TAKE_WAIT`].
    pub(crate) take_wait: Duration,
}

/// The one successor that has an offer. Of two, the second would take the end of this relay for its death, and go on
/// beside the first.
#[derive(Default)]
pub(crate) struct Succession {
    stage: Mutex<Stage>,
    has_changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Free,
    /// To this process, where it is known.
    Offered(Option<i32>),
    /// A successor receives.
    Followed,
}

/// A successor that has an offer, until its conversation ends.
struct Seat(Arc<Succession>);

impl Succession {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        // It is one assignment.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat, as soon as one that has left is gone.
    fn enter(self: &Arc<Succession>) -> Result<Seat, String> {
        let is_offered = |stage: &mut Stage| matches!(stage, Stage::Offered(_));
        let waited = self.has_changed.wait_timeout_while(self.stage(), PLACE_WAIT, is_offered);
        let (mut stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::Free => *stage = Stage::Offered(None),
            Stage::Offered(pid) => {
                let pid = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
                return Err(format!(
                    "another relay{pid} is about to take over; wait for it, or end it"
                ));
            }
            Stage::Followed => return Err("another relay has taken over; ask that one".to_owned()),
        }
        drop(stage);
        Ok(Seat(Arc::clone(self)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut stage = self.0.stage();
        if matches!(*stage, Stage::Offered(_)) {
            *stage = Stage::Free;
            self.0.has_changed.notify_all();
        }
    }
}

impl Seat {
    /// The successor is this process.
    fn name(&self, pid: Option<i32>) {
        let mut stage = self.0.stage();
        if matches!(*stage, Stage::Offered(_)) {
            *stage = Stage::Offered(pid);
        }
    }
}

/// What was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    /// The set of rules.
    generation: u64,
    with_sockets: bool,
    with_control: bool,
    /// The successor has not reported in time that it receives, and this relay goes on; it may report yet.
    is_late: bool,
}

impl Predecessor {
    /// Answers `handover`.
    pub(crate) fn offer(self: &Arc<Self>, asked: &Asked) -> LineAnswer {
        let offered = self.succession.enter().and_then(|seat| Ok((seat, self.prepare(asked)?)));
        match offered {
            Err(why) => wrong(&why),
            Ok((seat, (line, descriptors))) => LineAnswer::Streamed(Box::new(move |writer| {
                seat.name(writer.peer_pid());
                writer.keep(seat);
                write_with(writer, &line, &descriptors)
            })),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        // It is one assignment.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run: another receives from now on, and what is left here is not offered again.
    fn follow(&self, last: Last) {
        *self.succession.stage() = Stage::Followed;
        // Who waits for a seat waits for nothing.
        self.succession.has_changed.notify_all();
        (self.leave)(last.with_control);
    }

    fn prepare(&self, asked: &Asked) -> Result<(String, Vec<OwnedFd>), String> {
        let Asked { format, workers, sockets, control } = *asked;
        if format != FORMAT {
            return Err(format!(
                "this relay hands over in format {FORMAT}, and its successor knows format {format}; end it and start the other"
            ));
        }
        let Share { rules, generation, inputs } = self.book.share()?;
        let own = self.book.workers();
        if sockets && inputs.is_some() && workers != own {
            return Err(format!(
                "this relay has {own} workers, each with sockets of its own, and its successor {workers}; give it --workers {own}"
            ));
        }
        let lost = match (&inputs, sockets) {
            (Some(_), true) => None,
            (Some(_), false) => Some(
                "what is queued in its sockets, and what arrives until the successor's lane is open",
            ),
            (None, _) => Some("what arrives between its end and the first burst of its successor"),
        };
        let inputs = inputs.filter(|_| sockets).unwrap_or_default();
        let with_sockets = lost.is_none();
        let mut descriptors = Vec::new();
        if control {
            let listener = (self.listener)();
            descriptors.push(
                listener.ok_or(
                    "there is no descriptor left for the control socket; raise `ulimit -n`",
                )?,
            );
        }
        let mut described = Vec::new();
        for (worker, inputs) in inputs.into_iter().enumerate() {
            for SharedInput { bind, interface, memberships, rules, socket } in inputs {
                let memberships = memberships.into_iter().map(Member::from).collect();
                described.push(Described { worker, bind, interface, memberships, rules });
                descriptors.push(socket);
            }
        }
        let Policy { allow, local_groups, .. } = self.book.policy();
        let offer = Offer {
            format: FORMAT,
            offer: generation,
            lane: self.lane.clone(),
            workers: own,
            allow: allow.clone(),
            local_groups: *local_groups,
            rule: rules,
            sockets: described,
            control,
            lost: lost.map(str::to_owned),
        };
        let line = serde_json::to_string(&offer).map_err(|error| error.to_string())?;
        let last = Last { generation, with_sockets, with_control: control, is_late: false };
        *self.last() = Some(last);
        Ok((line, descriptors))
    }

    /// Answers `take`.
    pub(crate) fn take(self: &Arc<Self>, offer: u64) -> LineAnswer {
        let last = *self.last();
        let Some(last) = last.filter(|last| last.generation == offer) else {
            let why =
                format!("nothing was offered as {offer}, or not any more; ask for `handover`");
            return wrong(&why);
        };
        let this = Arc::clone(self);
        LineAnswer::Streamed(Box::new(move |writer| {
            if !last.with_sockets {
                let kept = match this.book.keep(offer) {
                    Ok(kept) => kept,
                    Err(why) => return writer.write(&json!({ "error": why }).to_string()),
                };
                writer.write(&json!({ "ends": true }).to_string())?;
                kept.over();
                this.follow(last);
                // The conversation ends when the run has.
                writer.reaction(END_WAIT);
                return Ok(());
            }
            let ceased = match this.book.cease(offer) {
                Ok(ceased) => ceased,
                Err(why) => return writer.write(&json!({ "error": why }).to_string()),
            };
            writer.write(&json!({ "ceased": true }).to_string())?;
            // With any answer it is there to receive; one that is gone does not, and one that is silent not yet.
            match writer.reaction(this.take_wait) {
                Reaction::Speaks => {
                    ceased.over();
                    this.follow(last);
                }
                Reaction::Listens => *this.last() = Some(Last { is_late: true, ..last }),
                Reaction::Left => {}
            }
            Ok(())
        }))
    }

    /// Answers `taken`. In time, it was heard before; late, there are two, and this one ends.
    pub(crate) fn taken(&self) -> LineAnswer {
        let late = self.last().filter(|last| last.is_late);
        let Some(last) = late.filter(|_| *self.succession.stage() != Stage::Followed) else {
            return LineAnswer::Done(json!({}).to_string());
        };
        match self.book.cease(last.generation) {
            Err(why) => wrong(&why),
            Ok(ceased) => {
                ceased.over();
                self.follow(last);
                LineAnswer::Done(json!({}).to_string())
            }
        }
    }
}

fn wrong(why: &str) -> LineAnswer {
    LineAnswer::Wrong(json!({ "error": why }).to_string())
}

/// Writes a line with as many descriptors as go along, and the rest beside further lines.
fn write_with(
    writer: &mut AnswerWriter<'_>,
    line: &str,
    descriptors: &[OwnedFd],
) -> Result<(), laneway_control::Gone> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let first = borrowed.len().min(laneway_control::DESCRIPTORS_MAX);
    writer.hand(line, &borrowed[..first])?;
    for more in borrowed[first..].chunks(laneway_control::DESCRIPTORS_MAX) {
        writer.hand(&json!({ "more": more.len() }).to_string(), more)?;
    }
    Ok(())
}

/// The relay that follows.
pub(crate) struct Successor {
    client: Client,
    offer: Offer,
    control: Option<ControlSocket>,
    sockets: Vec<OwnedFd>,
}

/// How a running relay ceased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All that it had received has left.
    Whole,
    /// It is gone: what it had received and not sent is lost.
    Gone,
}

impl Successor {
    /// Asks the relay whose control socket is at `path`.
    ///
    /// # Errors
    /// There is none, it does not hand over, or not to this one.
    pub(crate) fn ask(path: &Path, asked: &Asked) -> Result<Successor, String> {
        let of = |why: &dyn std::fmt::Display| format!("the relay at {}: {why}", path.display());
        let line = serde_json::to_string(&Request::Handover(asked.clone()));
        let line = line.map_err(|error| of(&error))?;
        let mut client = Client::connect(path).map_err(|error| error.to_string())?;
        let answer = client.ask(&line).map_err(|error| error.to_string())?;
        let first = answer.lines.first().map_or("", String::as_str);
        if answer.is_refused {
            let why = error_of(first);
            // What a relay says that has no such command.
            let hint = match why.contains("unknown variant") {
                true => "; it is of a version that hands nothing over: end it, and start this one",
                false => "",
            };
            return Err(of(&format!("{why}{hint}")));
        }
        let message: serde_json::Value = serde_json::from_str(first).map_err(|error| of(&error))?;
        if message["format"] != FORMAT {
            return Err(of(&format!(
                "it hands over in format {}, and this one knows format {FORMAT}; end it, and start this one",
                message["format"]
            )));
        }
        let offer: Offer = serde_json::from_value(message).map_err(|error| of(&error))?;
        let mut descriptors = answer.descriptors.into_iter();
        // Before anything is taken: a successor that is not spoken to at the path leaves the relay as it is.
        let control = offer.control.then(|| descriptors.next()).flatten();
        let control = control.map(|listener| ControlSocket::adopt(&client, listener));
        let control = control.transpose().map_err(|why| of(&why))?;
        let sockets: Vec<OwnedFd> = descriptors.collect();
        let is_whole = control.is_some() == offer.control && sockets.len() == offer.sockets.len();
        if !is_whole || offer.sockets.iter().any(|it| it.worker >= asked.workers) {
            return Err(of(&"it sent other descriptors than it named; try again"));
        }
        Ok(Successor { client, offer, control, sockets })
    }

    /// The rules to go on with.
    pub(crate) fn rules(&mut self) -> Vec<Rule> {
        std::mem::take(&mut self.offer.rule)
    }

    /// What the running relay may send to.
    pub(crate) fn permitted(&self) -> (&[Cidr], bool) {
        (&self.offer.allow, self.offer.local_groups)
    }

    /// What is lost, where something is.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.offer.lost.as_deref()
    }

    /// Gives the workers of a book that have not begun the sockets received with the offer.
    pub(crate) fn hand_to(&mut self, book: &Book) {
        let mut by_worker: Vec<Vec<SharedInput>> =
            (0..book.workers()).map(|_| Vec::new()).collect();
        let sockets = self.offer.sockets.drain(..).zip(self.sockets.drain(..));
        for (Described { worker, bind, interface, memberships, rules }, socket) in sockets {
            let memberships = memberships.into_iter().map(Membership::from).collect();
            by_worker[worker].push(SharedInput { bind, interface, memberships, rules, socket });
        }
        for (worker, inputs) in by_worker.into_iter().enumerate() {
            book.hand(worker, inputs);
        }
    }

    /// Has the running relay cease: when this returns neither receives.
    ///
    /// # Errors
    /// It goes on: why.
    pub(crate) fn take(&mut self) -> Result<Taken, String> {
        let line = serde_json::to_string(&Request::Take { offer: self.offer.offer });
        let line = line.map_err(|error| error.to_string())?;
        let answer = self.client.say(&line, &[]).and_then(|()| self.client.hear());
        let text = match answer {
            Ok(Heard::Line(text) | Heard::Wrong(text)) => text,
            Ok(Heard::End) => return Err("it gave no answer, and goes on".to_owned()),
            Err(error) if has_gone(&error) => return Ok(Taken::Gone),
            Err(error) => return Err(error.to_string()),
        };
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        match answer["ceased"] == true || answer["ends"] == true {
            true => Ok(Taken::Whole),
            false => Err(error_of(&text)),
        }
    }

    /// Reports that this one receives.
    ///
    /// # Errors
    /// It was too late: the other goes on. Why.
    pub(crate) fn taken(&mut self) -> Result<(), String> {
        let line = serde_json::to_string(&Request::Taken {}).map_err(|error| error.to_string())?;
        let mut heard = self.client.say(&line, &[]).and_then(|()| self.client.hear());
        if matches!(heard, Ok(Heard::End)) {
            // That was the end of the answer to `take`.
            heard = self.client.hear();
        }
        match heard {
            Ok(Heard::Wrong(text)) => Err(error_of(&text)),
            // One that is gone needs no report.
            Ok(Heard::Line(_) | Heard::End) | Err(_) => Ok(()),
        }
    }

    /// Waits until the process that was followed has closed its lane.
    ///
    /// # Errors
    /// It takes longer than it may.
    pub(crate) fn wait_for_end(&mut self) -> Result<(), String> {
        loop {
            match self.client.hear() {
                Ok(_) => {}
                Err(error) if has_gone(&error) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// True while it has the control socket of the relay that is followed.
    pub(crate) fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// The control socket, once.
    pub(crate) fn control(&mut self) -> Option<ControlSocket> {
        self.control.take()
    }
}

/// True where the other end is closed, and no answer late.
fn has_gone(error: &ClientError) -> bool {
    match error {
        ClientError::NotListening { .. } => true,
        ClientError::Lost { is_over, .. } => *is_over,
        ClientError::Several => false,
    }
}

/// The reason that an answer gives.
fn error_of(text: &str) -> String {
    let answer = serde_json::from_str::<serde_json::Value>(text).ok();
    let why = answer.as_ref().and_then(|answer| answer["error"].as_str());
    why.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests;
