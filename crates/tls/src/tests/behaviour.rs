//! Everything that can be right or wrong with a connection, on a lane that records; no socket, no clock but the test's.

use super::{NAME, Trust};
use crate::session::Stage;
use crate::{ClientCertificates, Counts, PemFiles, Reason, Settings, Tls};
use laneway_core::{App, Close, ConnId, Opened, PortId, StreamApp, StreamOut, Turn};
use laneway_testkit::Authority;
use laneway_testkit::service::{Manner, Order, StreamProbe};
use proptest::prelude::*;
use rustls::ClientConnection;
use rustls::version::{TLS12, TLS13};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::rc::Rc;

/// One connection as the lane sees it.
#[derive(Debug, Default)]
struct Wire {
    to_peer: Vec<u8>,
    /// Bytes that the queue takes before the peer reads.
    room: usize,
    is_refused: bool,
    unread: Vec<u8>,
    is_paused: bool,
    is_closed: bool,
    is_aborted: bool,
}

impl Wire {
    fn is_over(&self) -> bool {
        self.is_closed || self.is_aborted
    }
}

#[derive(Debug, Default)]
struct Wires(BTreeMap<ConnId, Wire>);

impl StreamOut for Wires {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let Some(wire) = self.0.get_mut(&conn) else { return 0 };
        assert!(!wire.is_over(), "nothing is sent behind the end");
        assert!(!wire.is_refused, "nothing is sent before there is room");
        let taken = bytes.len().min(wire.room);
        wire.room -= taken;
        wire.is_refused = taken < bytes.len();
        wire.to_peer.extend_from_slice(&bytes[..taken]);
        taken
    }

    fn queued(&self, conn: ConnId) -> usize {
        self.0.get(&conn).map_or(0, |wire| wire.to_peer.len())
    }

    fn close(&mut self, conn: ConnId) {
        let wire = self.0.get_mut(&conn).expect("it is there");
        assert!(!std::mem::replace(&mut wire.is_closed, true), "closed once");
    }

    fn abort(&mut self, conn: ConnId) {
        self.0.get_mut(&conn).expect("it is there").is_aborted = true;
    }

    fn pause(&mut self, conn: ConnId) {
        self.0.get_mut(&conn).expect("it is there").is_paused = true;
    }

    fn resume(&mut self, conn: ConnId) {
        self.0.get_mut(&conn).expect("it is there").is_paused = false;
    }
}

struct World {
    tls: Tls<StreamProbe>,
    counts: Rc<Counts>,
    wires: Wires,
    now_ns: u64,
    next: u64,
}

const PLAIN: PortId = PortId(0);
const SECRET: PortId = PortId(1);

impl World {
    /// Port 0 is plain, port 1 speaks TLS.
    fn new(mut settings: Settings, manner: Manner) -> World {
        settings.first_port = SECRET.0;
        let counts = Rc::new(Counts::default());
        let tls = Tls::new(StreamProbe::new(manner), Some(settings), Rc::clone(&counts));
        World { tls, counts, wires: Wires::default(), now_ns: 1_000, next: 0 }
    }

    fn open_at(&mut self, port: PortId) -> ConnId {
        self.next += 1;
        let conn = ConnId(self.next);
        self.wires.0.insert(conn, Wire { room: usize::MAX, ..Wire::default() });
        let peer = format!("192.0.2.7:{}", 10_000 + self.next).parse().expect("an address");
        let local = "192.0.2.1:6380".parse().expect("an address");
        self.tls.on_open(Opened { conn, peer, local, port }, &mut self.wires);
        self.turn();
        conn
    }

    fn open(&mut self) -> ConnId {
        self.open_at(SECRET)
    }

    fn turn(&mut self) {
        self.tls.on_turn_end(Turn { now_ns: self.now_ns }, &mut self.wires);
    }

    fn tick(&mut self) {
        self.tls.on_tick(Turn { now_ns: self.now_ns }, &mut self.wires);
        self.turn();
    }

    fn order(&mut self, order: Order) {
        let counts = Rc::clone(&self.counts);
        let empty = Tls::new(StreamProbe::default(), None, counts);
        let (mut probe, rest) = std::mem::replace(&mut self.tls, empty).with(());
        probe.orders.push(order);
        self.tls = rest.with(probe).1;
        self.tick();
    }

    fn wire(&mut self, conn: ConnId) -> &mut Wire {
        self.wires.0.get_mut(&conn).expect("it is there")
    }

    /// Bytes of the peer come; all that may be shown is, in turns of their own.
    fn come(&mut self, conn: ConnId, bytes: &[u8]) {
        self.wire(conn).unread.extend_from_slice(bytes);
        self.show();
    }

    fn show(&mut self) {
        loop {
            let mut is_moved = false;
            let conns: Vec<ConnId> = self.wires.0.keys().copied().collect();
            for conn in conns {
                let wire = self.wire(conn);
                if wire.unread.is_empty() || wire.is_paused || wire.is_refused || wire.is_over() {
                    continue;
                }
                let bytes = std::mem::take(&mut wire.unread);
                let taken = self.tls.on_bytes(conn, &bytes, &mut self.wires);
                self.wire(conn).unread = bytes[taken..].to_vec();
                is_moved |= taken > 0;
            }
            self.turn();
            if !is_moved {
                return;
            }
        }
    }

    /// The peer reads: so much room there is again.
    fn make_room(&mut self, conn: ConnId, room: usize) {
        let wire = self.wire(conn);
        wire.room = room;
        if std::mem::take(&mut wire.is_refused) {
            self.tls.on_room(conn, &mut self.wires);
        }
        self.show();
    }

    fn end_of_peer(&mut self, conn: ConnId) {
        self.tls.on_finish(conn, &mut self.wires);
        self.turn();
    }

    fn gone(&mut self, conn: ConnId, why: Close) {
        self.wires.0.remove(&conn);
        self.tls.on_close(conn, why);
        self.turn();
    }

    fn taken(&self, conn: ConnId) -> &[u8] {
        &self.tls.app().conns[&conn].taken
    }

    fn knows(&self, conn: ConnId) -> bool {
        self.tls.app().conns.contains_key(&conn)
    }

    fn ended(&self, conn: ConnId) -> Option<Close> {
        self.tls.app().conns[&conn].closed
    }

    fn only(&self, reason: Reason) {
        for other in Reason::ALL {
            assert_eq!(self.counts.of(other), u64::from(other == reason), "{}", other.name());
        }
    }
}

/// What a client wants to send.
fn records(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("memory takes everything");
    }
    bytes
}

/// What has come for a client; its complaint, if it has one.
fn hear(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("memory gives everything");
        let state = client.process_new_packets()?;
        let mut piece = vec![0; state.plaintext_bytes_to_read()];
        client.reader().read_exact(&mut piece).expect("so many are there");
        plain.extend(piece);
    }
    Ok(plain)
}

/// Both ends talk until neither has anything to send; returns the plaintext that the client received.
fn talk(
    world: &mut World,
    conn: ConnId,
    client: &mut ClientConnection,
) -> Result<Vec<u8>, rustls::Error> {
    let mut plain = Vec::new();
    loop {
        let sent = records(client);
        if !sent.is_empty() && !world.wire(conn).is_over() {
            world.come(conn, &sent);
        }
        let received = std::mem::take(&mut world.wire(conn).to_peer);
        if sent.is_empty() && received.is_empty() {
            return Ok(plain);
        }
        plain.extend(hear(client, &received)?);
    }
}

/// A connection whose handshake is done.
fn joined(trust: &Trust, world: &mut World) -> (ConnId, ClientConnection) {
    let (conn, mut client) = (world.open(), trust.client(None, &[&TLS13]));
    talk(world, conn, &mut client).expect("a handshake");
    assert!(world.knows(conn));
    (conn, client)
}

fn say(client: &mut ClientConnection, bytes: &[u8]) -> Vec<u8> {
    client.writer().write_all(bytes).expect("memory takes everything");
    records(client)
}

fn unasked(trust: &Trust) -> Settings {
    trust.settings(|_| ClientCertificates::Unasked)
}

#[test]
fn a_connection_cut_at_every_byte_says_the_same() {
    let trust = Trust::new();
    for version in [&TLS12, &TLS13] {
        let mut world = World::new(unasked(&trust), Manner::Echo);
        let (conn, mut client) = (world.open(), trust.client(None, &[version]));
        let mut plain = Vec::new();
        client.writer().write_all(b"hello").expect("it is kept until it may be sent");
        for _ in 0..4 {
            for byte in records(&mut client) {
                world.come(conn, &[byte]);
            }
            let received = std::mem::take(&mut world.wire(conn).to_peer);
            for byte in received {
                plain.extend(hear(&mut client, &[byte]).expect("TLS"));
            }
        }
        assert_eq!(plain, b"hello");
        assert_eq!(world.counts.handshakes(), 1);
        assert_eq!(world.tls.kept_bytes(), 0, "an idle connection keeps nothing");
    }
}

#[test]
fn a_plain_port_beside_it_stays_plain() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Echo);
    let (secret, mut client) = joined(&trust, &mut world);
    let plain = world.open_at(PLAIN);
    world.come(plain, b"in the clear");
    assert_eq!(world.wire(plain).to_peer, b"in the clear");
    let sent = say(&mut client, b"in secret");
    world.come(secret, &sent);
    assert_eq!(talk(&mut world, secret, &mut client).expect("TLS"), b"in secret");
}

#[test]
fn what_is_no_tls_gets_one_sentence_and_is_counted() {
    let trust = Trust::new();
    for bytes in
        [&b"*1\r\n$4\r\nPING\r\n"[..], b"PING\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0", b"\x16\x02"]
    {
        let mut world = World::new(unasked(&trust), Manner::Echo);
        let conn = world.open();
        world.come(conn, bytes);
        assert_eq!(world.wire(conn).to_peer, b"-ERR TLS is spoken here\r\n", "{bytes:?}");
        assert!(world.wire(conn).is_closed);
        world.gone(conn, Close::App);
        assert!(!world.knows(conn), "the app never hears of it");
        world.only(Reason::NotTls);
    }
}

#[test]
fn a_handshake_that_makes_no_sense_is_answered_by_an_alert() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Echo);
    let conn = world.open();
    world.come(conn, &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    let answer = world.wire(conn).to_peer.clone();
    assert!(answer.starts_with(&[21, 3]), "{answer:?}");
    assert!(world.wire(conn).is_closed);
    world.only(Reason::Handshake);
}

#[test]
fn a_handshake_has_its_time_and_no_more() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Echo);
    let (silent, (done, _client)) = (world.open(), joined(&trust, &mut world));
    let until_ns = world.now_ns + 10_000_000_000;
    assert_eq!(world.tls.due_ns(), Some(until_ns));
    world.now_ns = until_ns - 1;
    world.tick();
    assert!(!world.wire(silent).is_aborted);
    world.now_ns = until_ns;
    world.tick();
    assert!(world.wire(silent).is_aborted && !world.wire(done).is_over());
    assert_eq!(world.tls.due_ns(), None);
    world.gone(silent, Close::App);
    world.only(Reason::Slow);
}

#[test]
fn so_many_handshakes_at_a_time_and_no_more() {
    let trust = Trust::new();
    let mut settings = unasked(&trust);
    settings.limits.handshakes_max = 2;
    let mut world = World::new(settings, Manner::Echo);
    let conns = [world.open(), world.open(), world.open()];
    assert_eq!(conns.map(|conn| world.wire(conn).is_aborted), [false, false, true]);
    world.gone(conns[2], Close::App);
    world.only(Reason::TooMany);
    // One that is done, or gone, makes room.
    let mut client = trust.client(None, &[&TLS13]);
    talk(&mut world, conns[0], &mut client).expect("a handshake");
    world.gone(conns[1], Close::Error);
    let more = [world.open(), world.open(), world.open()];
    assert_eq!(more.map(|conn| world.wire(conn).is_aborted), [false, false, true]);
}

#[test]
fn a_turn_takes_a_bounded_number_of_steps_and_the_next_goes_on() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Echo);
    let mut clients: Vec<_> =
        (0..40).map(|_| (world.open(), trust.client(None, &[&TLS13]))).collect();
    for (conn, client) in &mut clients {
        let hello = records(client);
        let taken = world.tls.on_bytes(*conn, &hello, &mut world.wires);
        world.wire(*conn).unread = hello[taken..].to_vec();
    }
    let answered =
        |world: &World| world.wires.0.values().filter(|one| !one.to_peer.is_empty()).count();
    assert_eq!(answered(&world), 16, "in one turn");
    // One that waits and is finished by its peer is no broken one yet.
    let last = clients[39].0;
    world.tls.on_finish(last, &mut world.wires);
    world.turn();
    world.show();
    assert_eq!(answered(&world), 40);
    assert!(world.wire(last).is_closed, "the rest of it will never come");
    clients.pop();
    for (conn, client) in &mut clients {
        talk(&mut world, *conn, client).expect("a handshake");
    }
    assert_eq!(world.counts.handshakes(), 39);
    world.only(Reason::BrokenOff);
}

#[test]
fn certificates_of_clients_are_asked_for_as_configured() {
    let trust = Trust::new();
    let ours = trust.authority.issue("client", &[]);
    let strange = Authority::new("tests of another authority").issue("client", &[]);
    // A chain that no record holds: its message comes in several.
    let names: Vec<String> = (0..1200).map(|at| format!("name-{at}.laneway.test")).collect();
    let long =
        trust.authority.issue("client", &names.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(long.certificate_pem.len() > 20_000);
    type Clients = fn(std::path::PathBuf) -> ClientCertificates;
    let cases: [(Clients, _, bool); 8] = [
        (|_| ClientCertificates::Unasked, None, true),
        (|_| ClientCertificates::Unasked, Some(&strange), true),
        (ClientCertificates::Optional, None, true),
        (ClientCertificates::Optional, Some(&ours), true),
        (ClientCertificates::Optional, Some(&strange), false),
        (ClientCertificates::Required, Some(&ours), true),
        (ClientCertificates::Required, Some(&long), true),
        (ClientCertificates::Required, None, false),
    ];
    for version in [&TLS12, &TLS13] {
        for (at, (clients, own, is_taken)) in cases.iter().enumerate() {
            let mut world = World::new(trust.settings(*clients), Manner::Echo);
            let (conn, mut client) = (world.open(), trust.client(*own, &[version]));
            let talked = talk(&mut world, conn, &mut client);
            assert_eq!(world.knows(conn), *is_taken, "case {at}");
            assert_eq!(talked.is_ok(), *is_taken, "case {at}: {talked:?}");
            if !is_taken {
                world.only(Reason::Certificate);
                assert!(world.wire(conn).is_closed);
            }
        }
    }
}

#[test]
fn a_client_that_does_not_trust_the_server_is_counted() {
    let (trust, other) = (Trust::new(), Trust::new());
    let mut world = World::new(unasked(&trust), Manner::Echo);
    let (conn, mut client) = (world.open(), other.client(None, &[&TLS13]));
    talk(&mut world, conn, &mut client).expect_err("another issuer");
    let alert = records(&mut client);
    world.come(conn, &alert);
    assert!(world.wire(conn).is_closed && !world.knows(conn));
    world.only(Reason::Alert);
}

#[test]
fn an_end_without_a_close_alert_is_reported_and_counted_as_truncated() {
    let trust = Trust::new();
    for has_word in [true, false] {
        let mut world = World::new(unasked(&trust), Manner::Echo);
        let (conn, mut client) = joined(&trust, &mut world);
        let sent = say(&mut client, b"last");
        world.come(conn, &sent);
        if has_word {
            client.send_close_notify();
            let word = records(&mut client);
            world.come(conn, &word);
            assert!(world.tls.app().conns[&conn].finished, "the word is the end");
        }
        world.end_of_peer(conn);
        assert!(world.tls.app().conns[&conn].finished);
        assert!(world.wire(conn).is_closed);
        world.gone(conn, Close::Peer);
        assert_eq!(world.ended(conn), Some(Close::Peer));
        assert_eq!(world.counts.of(Reason::Truncated), u64::from(!has_word));
    }
}

#[test]
fn a_record_that_was_changed_ends_the_connection_as_an_error() {
    let trust = Trust::new();
    for change in [0usize, 1, 20] {
        let mut world = World::new(unasked(&trust), Manner::Take);
        let (conn, mut client) = joined(&trust, &mut world);
        let good = say(&mut client, b"good");
        world.come(conn, &good);
        let mut bad = say(&mut client, b"and then some more");
        bad[change] ^= 0x40;
        world.come(conn, &bad);
        assert!(world.wire(conn).is_over(), "byte {change}");
        world.gone(conn, Close::App);
        assert_eq!((world.taken(conn), world.ended(conn)), (&b"good"[..], Some(Close::Error)));
        world.only(Reason::Record);
    }
}

#[test]
fn keys_may_change_under_way() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Echo);
    let (conn, mut client) = joined(&trust, &mut world);
    for round in 0..5u8 {
        client.refresh_traffic_keys().expect("TLS 1.3 has this");
        let sent = say(&mut client, &[round; 40_000]);
        world.come(conn, &sent);
        assert_eq!(talk(&mut world, conn, &mut client).expect("TLS"), [round; 40_000]);
    }
}

#[test]
fn a_close_waits_for_room_and_not_for_ever() {
    let trust = Trust::new();
    for reads in [true, false] {
        let mut world = World::new(unasked(&trust), Manner::Take);
        let (conn, mut client) = joined(&trust, &mut world);
        world.wire(conn).room = 100;
        world.order(Order::Send(conn, vec![7; 5_000]));
        assert_eq!(world.tls.app().took, [5_000], "one record is taken beyond the queue");
        world.order(Order::Send(conn, vec![8; 5_000]));
        assert_eq!(world.tls.app().took, [5_000, 0]);
        world.order(Order::Close(conn));
        assert!(!world.wire(conn).is_over());
        if reads {
            world.make_room(conn, 10_000);
            assert!(world.wire(conn).is_closed);
            let received = std::mem::take(&mut world.wire(conn).to_peer);
            assert_eq!(hear(&mut client, &received).expect("TLS"), [7; 5_000]);
            let state = client.process_new_packets().expect("TLS");
            assert!(state.peer_has_closed(), "close_notify is behind it");
        } else {
            world.now_ns = world.tls.due_ns().expect("a closing has its time");
            world.tick();
            assert!(world.wire(conn).is_aborted);
            world.gone(conn, Close::App);
            assert_eq!(world.ended(conn), Some(Close::Error));
            world.only(Reason::Unsent);
        }
    }
}

#[test]
fn an_app_that_leaves_too_much_loses_the_connection() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Lines);
    let (conn, mut client) = joined(&trust, &mut world);
    for _ in 0..40 {
        let sent = say(&mut client, &[b'x'; 10_000]);
        world.come(conn, &sent);
    }
    assert!(world.wire(conn).is_over(), "a line that never ends");
    world.only(Reason::Unread);
}

#[test]
fn a_handshake_under_way_at_the_stop_is_counted_and_not_reported() {
    let trust = Trust::new();
    let mut world = World::new(unasked(&trust), Manner::Take);
    let ((open, _client), begun) = (joined(&trust, &mut world), world.open());
    world.gone(begun, Close::Stop);
    world.gone(open, Close::Stop);
    assert_eq!(world.ended(open), Some(Close::Stop));
    world.only(Reason::BrokenOff);
    assert_eq!(world.tls.sessions(), 0);
}

#[test]
fn files_that_make_no_server_are_refused_with_what_is_wrong() {
    let trust = Trust::new();
    let folder = &trust.folder.0;
    let good = trust.files(|_| ClientCertificates::Unasked);
    let other = trust.authority.issue(NAME, &[NAME]).write(folder, "other");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the folder is the test's own");
        path
    };
    let none = folder.join("none.crt");
    let empty = write("empty.crt", "");
    let damaged = write("damaged.crt", "-----BEGIN CERTIFICATE-----\nMIIB!\n");
    let long = write("long.crt", &"x".repeat((1 << 20) + 1));
    let with = |change: &dyn Fn(&mut PemFiles)| {
        let mut files = good.clone();
        change(&mut files);
        match Settings::read(&files, 0) {
            Ok(_) => panic!("{files:?} make a server"),
            Err(error) => error.to_string(),
        }
    };
    for (refusal, parts) in [
        (with(&|f| f.certificate = none.clone()), ["none.crt", "No such file"]),
        (with(&|f| f.key = none.clone()), ["none.crt", "No such file"]),
        (with(&|f| f.certificate = folder.clone()), ["laneway-tls-", "directory"]),
        (with(&|f| f.certificate = empty.clone()), ["empty.crt", "no certificate"]),
        (with(&|f| f.certificate = damaged.clone()), ["damaged.crt", "no certificate"]),
        (with(&|f| f.certificate = long.clone()), ["long.crt", "longer than"]),
        (with(&|f| f.key = f.certificate.clone()), ["server.crt", "no private key"]),
        (with(&|f| f.key = other.1.clone()), ["other.key", "server.crt"]),
        (
            with(&|f| f.clients = ClientCertificates::Required(empty.clone())),
            ["empty.crt", "no certificate"],
        ),
    ] {
        assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the bytes are cut, whatever room there is, the app and the client get the same bytes in the same order.
    #[test]
    fn any_cut_and_any_room_give_the_same_bytes(
        lengths in proptest::collection::vec(1usize..30_000, 1..8),
        cuts in proptest::collection::vec(1usize..20_000, 1..40),
        rooms in proptest::collection::vec(0usize..30_000, 0..40),
    ) {
        let trust = Trust::new();
        let mut world = World::new(unasked(&trust), Manner::Echo);
        let (conn, mut client) = joined(&trust, &mut world);
        let sent: Vec<u8> = lengths.iter().zip(1u8..).flat_map(|(length, byte)| vec![byte; *length]).collect();
        let mut wire = Vec::new();
        for piece in sent.chunks(10_000) {
            wire.extend(say(&mut client, piece));
        }
        let (mut at, mut back) = (0, Vec::new());
        let mut rooms = rooms.into_iter();
        let mut cuts = cuts.into_iter().cycle();
        for _ in 0..10_000 {
            let end = wire.len().min(at + cuts.next().expect("it goes on for ever"));
            world.wire(conn).unread.extend_from_slice(&wire[at..end]);
            at = end;
            world.make_room(conn, rooms.next().unwrap_or(usize::MAX));
            let received = std::mem::take(&mut world.wire(conn).to_peer);
            back.extend(hear(&mut client, &received).expect("TLS"));
            if back.len() == sent.len() {
                break;
            }
        }
        prop_assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
        prop_assert_eq!(world.tls.kept_bytes(), 0);
    }

    /// Whatever is changed on the way, nothing panics, and the app gets a beginning of what was sent.
    #[test]
    fn any_change_on_the_way_is_survived(
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        step in 0usize..3,
    ) {
        let trust = Trust::new();
        let mut world = World::new(unasked(&trust), Manner::Take);
        let (conn, mut client) = (world.open(), trust.client(None, &[&TLS13]));
        client.writer().write_all(b"what was sent").expect("it is kept");
        for now in 0..3 {
            let mut sent = records(&mut client);
            if now == step && !sent.is_empty() {
                let at = at.index(sent.len());
                sent[at] = byte;
            }
            if !world.wire(conn).is_over() {
                world.come(conn, &sent);
            }
            let received = std::mem::take(&mut world.wire(conn).to_peer);
            if hear(&mut client, &received).is_err() {
                break;
            }
        }
        if world.knows(conn) {
            prop_assert!(b"what was sent".starts_with(world.taken(conn)));
        }
        world.now_ns += 20_000_000_000;
        world.tick();
        let is_there = world.knows(conn) && world.tls.stage(conn) == Some(Stage::Open);
        prop_assert!(is_there || world.wire(conn).is_over());
    }
}
