//! Relays of other versions, and relays that end in the middle, as a successor meets them.

use super::*;
use laneway_control::{Answerer, ControlSocket};
use std::{
    net::UdpSocket,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU32, Ordering},
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
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("laneway-handover-{}-{n}", process::id()));
    let mut socket = ControlSocket::open(&path).expect("a free path");
    socket.serve(Arc::new(Parrot(says.to_owned(), sockets))).expect("a thread");
    (socket, path)
}

fn ask(path: &Path) -> Result<Successor, String> {
    let asked = Asked { format: FORMAT, workers: 1, sockets: true, control: false };
    Successor::ask(path, &asked)
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
    successor.taken();
    assert_eq!(successor.wait_for_end(), Ok(()));
    // One that says something else has not ceased.
    let (_socket, path) = parrot(&text(&offer()), 1);
    let mut successor = ask(&path).expect("as named");
    successor.take().expect_err("its answer was another");
}
