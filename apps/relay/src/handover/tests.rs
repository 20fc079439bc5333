//! Relays of other versions, and relays that end in the middle, as a successor meets them.

use super::*;
use crate::desk::{Answer, Order};
use laneway_control::{Answerer, ControlSocket};
use laneway_core::Bell;
use std::{
    net::UdpSocket,
    path::PathBuf,
    process,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::{self, JoinHandle},
};

/// Says the same to every client, with so many sockets beside it.
struct Parrot(String, usize);

impl Answerer for Parrot {
    fn answer(&self, _line: &str) -> LineAnswer {
        match self.0.starts_with("{\"error\"") {
            true => LineAnswer::Wrong(self.0.clone()),
            false => {
                let socket = || UdpSocket::bind("127.0.0.1:0").expect("a free port").into();
                LineAnswer::Handed(self.0.clone(), (0..self.1).map(|_| socket()).collect())
            }
        }
    }
}

fn parrot(says: &str, sockets: usize) -> (ControlSocket, PathBuf) {
    served(Arc::new(Parrot(says.to_owned(), sockets)))
}

fn served(answerer: Arc<dyn Answerer>) -> (ControlSocket, PathBuf) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("laneway-handover-{}-{n}", process::id()));
    let mut socket = ControlSocket::open(&path).expect("a free path");
    socket.serve(answerer).expect("a thread");
    (socket, path)
}

/// A relay without rules, whose worker has no sockets to share.
struct Running {
    predecessor: Arc<Predecessor>,
    /// How often its end was asked for.
    ends: Arc<AtomicU32>,
    path: PathBuf,
    _socket: ControlSocket,
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Running {
    fn new() -> Running {
        Running::with(Duration::from_millis(20))
    }

    /// One that waits so long for a successor's report.
    fn with(take_wait: Duration) -> Running {
        let book = Arc::new(Book::new(Vec::new(), Policy::default(), 1).expect("an empty set"));
        let (mailbox, is_over) = (book.mailbox(0), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        let worker = thread::spawn(move || {
            let bell = Bell::new().expect("a descriptor");
            mailbox.attend(&bell);
            while !over.load(Ordering::Relaxed) {
                bell.wait(Duration::from_millis(5));
                bell.answer();
                if let Some(order) = mailbox.take() {
                    mailbox.answer(match order {
                        Order::Share => Answer::Shared(Some(Vec::new())),
                        _ => Answer::Done,
                    });
                }
            }
        });
        let ends = Arc::new(AtomicU32::new(0));
        let ended = Arc::clone(&ends);
        let predecessor = Arc::new(Predecessor {
            book,
            lane: "socket".to_owned(),
            listener: Box::new(|| None),
            leave: Box::new(move |_| {
                ended.fetch_add(1, Ordering::SeqCst);
            }),
            last: Mutex::default(),
            succession: Arc::default(),
            take_wait,
        });
        let (_socket, path) = served(Arc::new(Speaks(Arc::clone(&predecessor))));
        Running { predecessor, ends, path, _socket, is_over, worker: Some(worker) }
    }

    fn ends(&self) -> u32 {
        self.ends.load(Ordering::SeqCst)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.worker.take().map(JoinHandle::join);
    }
}

struct Speaks(Arc<Predecessor>);

impl Answerer for Speaks {
    fn answer(&self, line: &str) -> LineAnswer {
        match serde_json::from_str(line).expect("a successor's line") {
            Request::Handover(asked) => self.0.offer(&asked),
            Request::Take { offer } => self.0.take(offer),
            Request::Taken {} => self.0.taken(),
            other => panic!("{other:?} is no successor's"),
        }
    }
}

fn ask(path: &Path) -> Result<Successor, String> {
    ask_with(path, true)
}

fn ask_with(path: &Path, sockets: bool) -> Result<Successor, String> {
    let asked = Asked { format: FORMAT, workers: 1, sockets, control: false };
    Successor::ask(path, &asked)
}

/// A rule that needs no permission.
fn rule() -> Rule {
    let text = r#"{"input":{"group":"239.1.1.1","port":5000},"outputs":[{"destination":"239.2.2.2:5000"}]}"#;
    serde_json::from_str(text).expect("a rule")
}

fn offer() -> Offer {
    let socket = Described {
        worker: 0,
        bind: "0.0.0.0:5000".parse().expect("an address"),
        interface: Some("eth1".to_owned()),
        memberships: vec![Member {
            group: "239.1.1.1".parse().expect("an address"),
            interface: Some("eth1".to_owned()),
            source: None,
        }],
        rules: Vec::new(),
    };
    Offer {
        format: FORMAT,
        offer: 7,
        lane: "socket".to_owned(),
        workers: 1,
        allow: vec!["192.0.2.0/24".parse().expect("a network")],
        local_groups: false,
        rule: Vec::new(),
        sockets: vec![socket],
        control: false,
        lost: None,
    }
}

fn text(offer: &Offer) -> String {
    serde_json::to_string(offer).expect("values")
}

#[test]
fn a_relay_of_another_version_is_distinguished_from_one_that_refuses() {
    for (says, parts) in [
        (
            r#"{"error":"unknown variant `handover`, expected one of `list`, `add`"}"#,
            &["of a version that hands nothing over"][..],
        ),
        (r#"{"format":2,"sockets":"otherwise"}"#, &["format 2", "format 1"]),
        (r#"{"error":"this relay has 2 workers"}"#, &["this relay has 2 workers"]),
        ("no JSON", &["the relay at"]),
    ] {
        let (_socket, path) = parrot(says, 0);
        let Err(why) = ask(&path) else { panic!("{says}: it was asked in vain") };
        parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
    }
}

#[test]
fn what_comes_along_is_what_was_named() {
    let mut foreign = offer();
    foreign.sockets[0].worker = 1;
    for (says, sockets) in [(text(&offer()), 0), (text(&offer()), 2), (text(&foreign), 1)] {
        let (_socket, path) = parrot(&says, sockets);
        let Err(why) = ask(&path) else { panic!("{says}: taken with {sockets} sockets") };
        assert!(why.contains("descriptors"), "{why}");
    }
    let (_socket, path) = parrot(&text(&offer()), 1);
    let successor = ask(&path).expect("as named");
    assert_eq!((successor.sockets.len(), successor.lost()), (1, None));
    assert_eq!(successor.permitted().0, &offer().allow[..]);
}

#[test]
fn one_that_ends_in_the_middle_leaves_its_sockets_and_one_that_refuses_goes_on() {
    let (socket, path) = parrot(&text(&offer()), 1);
    let mut successor = ask(&path).expect("as named");
    drop(socket);
    assert_eq!(successor.take(), Ok(Taken::Gone));
    assert_eq!(successor.taken(), Ok(()));
    assert_eq!(successor.wait_for_end(), Ok(()));
    // One that says something else has not ceased.
    let (_socket, path) = parrot(&text(&offer()), 1);
    let mut successor = ask(&path).expect("as named");
    successor.take().expect_err("its answer was another");
}

/// Why there is no offer.
fn refused(path: &Path) -> String {
    match ask(path) {
        Err(why) => why,
        Ok(_) => panic!("there is an offer"),
    }
}

#[test]
fn of_two_successors_one_has_an_offer_and_behind_it_none() {
    let relay = Running::new();
    let first = ask(&relay.path).expect("an offer");
    let why = refused(&relay.path);
    let known = format!("another relay (process {}) is about to take over", process::id());
    assert!(why.contains(&known), "{why}");
    // One that leaves makes room.
    drop(first);
    let mut next = ask(&relay.path).expect("an offer");
    assert_eq!((next.take(), next.taken(), relay.ends()), (Ok(Taken::Whole), Ok(()), 1));
    drop(next);
    let why = refused(&relay.path);
    assert!(why.contains("another relay has taken over"), "{why}");
    assert_eq!(relay.ends(), 1);
}

#[test]
fn a_late_report_ends_the_relay_unless_its_rules_have_changed_meanwhile() {
    for has_changed in [false, true] {
        let relay = Running::new();
        let mut late = ask(&relay.path).expect("an offer");
        assert_eq!(late.take(), Ok(Taken::Whole));
        // Not before the time is up and the relay goes on.
        relay.predecessor.book.begun().expect("it goes on");
        assert_eq!(relay.ends(), 0);
        if has_changed {
            relay.predecessor.book.replace(Vec::new(), false).expect("an empty set");
            let why = late.taken().expect_err("the other has other rules");
            assert!(why.contains("have changed"), "{why}");
        } else {
            assert_eq!(late.taken(), Ok(()));
        }
        assert_eq!(relay.ends(), u32::from(!has_changed));
    }
}

#[test]
fn a_change_that_waits_for_its_turn_when_another_takes_over_is_refused() {
    for sockets in [true, false] {
        // Until the successor reports, however slow this machine is.
        let relay = Running::with(Duration::from_secs(60));
        let mut next = ask_with(&relay.path, sockets).expect("an offer");
        assert_eq!(next.take(), Ok(Taken::Whole));
        let book = Arc::clone(&relay.predecessor.book);
        let change = thread::spawn(move || book.add(vec![rule()], false));
        if sockets {
            assert_eq!(next.taken(), Ok(()));
        }
        let why = change.join().expect("it does not panic").expect_err("another has the rules");
        assert!(why.contains("another relay has taken over"), "{why}");
        assert_eq!(relay.predecessor.book.rules().len(), 0);
    }
}

#[test]
fn a_relay_whose_rules_have_changed_since_they_were_shared_does_not_end() {
    for sockets in [true, false] {
        let relay = Running::new();
        let mut next = ask_with(&relay.path, sockets).expect("an offer");
        relay.predecessor.book.add(vec![rule()], false).expect("it goes on");
        let why = next.take().expect_err("the other has other rules");
        assert!(why.contains("have changed") && relay.ends() == 0, "{why}");
        relay.predecessor.book.add(Vec::new(), false).expect("it goes on");
    }
}
