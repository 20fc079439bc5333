//! What is open while a relay runs, for programs that change its rules, follow it, or watch over it as a service.
//!
//! What must always hold: the control socket's file goes with the run, unless a successor is spoken to there; a run
//! that follows another serves no client, and receives nothing, before the other has ceased.

use crate::{
    book::Book,
    console::{Request, answer},
    handover::{Predecessor, Successor, TAKE_WAIT, Taken},
    links::Follower,
};
use laneway_control::{Answerer, ControlSocket, LineAnswer};
use laneway_kinds::{Failure, Session};
use laneway_linux::monotonic_ns;
use laneway_terminal::{Supervisor, note};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// How often a watcher receives the state.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// What is open for others.
#[derive(Default)]
pub(crate) struct Talks {
    /// Where the control socket is to be.
    pub(crate) control: Option<PathBuf>,
    /// It is the one of the relay that is followed.
    pub(crate) adopts_control: bool,
    /// The relay that is followed, from the plan to the beginning.
    pub(crate) followed: Mutex<Option<Successor>>,
    /// What is lost with it, where something is.
    pub(crate) lost: Option<String>,
    shared: Arc<Shared>,
    /// From the beginning to the end: the watch that tells of interfaces.
    follower: Mutex<Option<Follower>>,
}

/// What the run's helpers have in common.
#[derive(Default)]
struct Shared {
    /// From the beginning to the end.
    socket: Mutex<Option<ControlSocket>>,
    /// A successor is spoken to where this run was.
    is_followed: AtomicBool,
    /// Why another relay could not be followed.
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn socket(&self) -> MutexGuard<'_, Option<ControlSocket>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the control socket; its file stays where a successor is spoken to.
    fn close(&self) {
        let Some(socket) = self.socket().take() else { return };
        if self.is_followed.load(Ordering::Relaxed) {
            socket.let_go();
        }
    }
}

impl Talks {
    /// Opens what must be open before the lane is, and has a helper see to the rest.
    pub(crate) fn begin(
        &self,
        book: &Arc<Book>,
        lane: String,
        session: &Session<'_>,
    ) -> Result<(), Failure> {
        match session.helpers(|| Follower::begin(book))? {
            Ok(follower) => {
                *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(follower);
            }
            Err(error) if !session.json => note(&format!(
                "interfaces that come and go are not followed: the kernel does not tell of them ({error})"
            )),
            Err(_) => {}
        }
        let speaker = self.speaker(book, lane, session);
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(path) = self.control.as_ref().filter(|_| !self.adopts_control) {
            // Locked until it is there: a client that asks at once for the socket finds it.
            let mut place = self.shared.socket();
            let mut socket = ControlSocket::open(path).map_err(Failure::input)?;
            let speaker = Arc::clone(&speaker);
            session.helpers(|| socket.serve(speaker))?.map_err(Failure::input)?;
            *place = Some(socket);
        }
        let supervisor = Supervisor::of_environment();
        let json = session.json;
        if followed.is_none() && !supervisor.is_there() && json {
            return Ok(());
        }
        let (book, shared) = (Arc::clone(book), Arc::clone(&self.shared));
        let stop = Arc::clone(&session.stop);
        let follows = followed.is_some();
        let help = move || {
            let done = match followed {
                None => book.begun(),
                Some(followed) => follow(&book, followed, speaker, &shared),
            };
            match done {
                Ok(()) => {
                    supervisor.ready();
                    if let Some(line) = in_force(&book).filter(|_| !json) {
                        note(&line);
                    }
                }
                // The run says itself why the rules that it begins with cannot be had.
                Err(_) if !follows => {}
                Err(why) => {
                    let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert(why);
                    stop();
                }
            }
        };
        let start = || thread::Builder::new().name("beginning".to_owned()).spawn(help).map(drop);
        session.helpers(start)?.map_err(Failure::input)
    }

    fn speaker(&self, book: &Arc<Book>, lane: String, session: &Session<'_>) -> Arc<Speaker> {
        let (listening, leaving) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let stop = Arc::clone(&session.stop);
        let listener = move || listening.socket().as_ref()?.listener().ok();
        let leave = move |is_followed| {
            leaving.is_followed.store(is_followed, Ordering::Relaxed);
            stop();
        };
        let predecessor = Predecessor {
            book: Arc::clone(book),
            lane,
            listener: Box::new(listener),
            leave: Box::new(leave),
            last: Mutex::default(),
            succession: Arc::default(),
            take_wait: TAKE_WAIT,
        };
        let supervisor = Supervisor::of_environment();
        Arc::new(Speaker { predecessor: Arc::new(predecessor), supervisor })
    }

    /// Closes everything. From here on no client changes what is reported.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        Supervisor::of_environment().stopping();
        drop(self.follower.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.shared.close();
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().map_or(Ok(()), |why| Err(Failure::input(why)))
    }
}

/// What is reported when the first rules are in force; nothing where they cannot be had, which the run reports itself.
fn in_force(book: &Book) -> Option<String> {
    let state = book.state().ok()?;
    let (rules, waiting) = (state.rules.len(), state.waiting());
    let outputs: usize = state.rules.iter().map(|rule| rule.outputs.len()).sum();
    let waits = match waiting {
        0 => String::new(),
        n => format!("; {n} of them wait for an interface, see `laneway relay status`"),
    };
    Some(format!("relaying by {rules} rules with {outputs} outputs{waits}; Ctrl-C ends"))
}

/// Goes on where another relay ceases.
fn follow(
    book: &Book,
    mut followed: Successor,
    speaker: Arc<Speaker>,
    shared: &Shared,
) -> Result<(), String> {
    // Its sockets are adopted when the first rules are in force.
    book.begun()?;
    if followed.lost().is_none() {
        let taken = followed.take().map_err(|why| format!("cannot take over: {why}"))?;
        book.receive()?;
        if taken == Taken::Whole {
            followed.taken().map_err(|why| format!("cannot take over: {why}"))?;
        }
    }
    let Some(mut control) = followed.control() else { return Ok(()) };
    // Locked until it is there: a client that has waited to ask asks at once.
    let mut place = shared.socket();
    match control.serve(speaker) {
        Ok(()) => *place = Some(control),
        // The other has ceased, and without this one no relay is left.
        Err(why) => note(&format!("relaying, but {why}")),
    }
    Ok(())
}

/// Answers the clients of the socket.
struct Speaker {
    predecessor: Arc<Predecessor>,
    supervisor: Supervisor,
}

impl Answerer for Speaker {
    fn answer(&self, line: &str) -> LineAnswer {
        if line.trim().is_empty() {
            return LineAnswer::Done(String::new());
        }
        let book = &self.predecessor.book;
        match serde_json::from_str(line) {
            Ok(Request::Watch {}) => {
                let book = Arc::clone(book);
                LineAnswer::Streamed(Box::new(move |writer| {
                    loop {
                        writer.write(&answer(&book, r#"{"command":"status"}"#))?;
                        writer.wait(WATCH_INTERVAL)?;
                    }
                }))
            }
            Ok(Request::Handover(asked)) => self.predecessor.offer(&asked),
            Ok(Request::Take { offer }) => self.predecessor.take(offer),
            Ok(Request::Taken {}) => self.predecessor.taken(),
            Ok(Request::Replace { .. }) => {
                self.supervisor.reloading(Duration::from_nanos(monotonic_ns()));
                let answer = line_answer(answer(book, line));
                self.supervisor.ready();
                answer
            }
            _ => line_answer(answer(book, line)),
        }
    }

    fn line_bytes_max(&self) -> usize {
        crate::file::FILE_BYTES_MAX
    }
}

fn line_answer(answer: String) -> LineAnswer {
    // The console's own word for a refusal, which a program reads; a person reads the socket's.
    if answer.starts_with("{\"error\"") {
        LineAnswer::Wrong(answer)
    } else {
        LineAnswer::Done(answer)
    }
}
