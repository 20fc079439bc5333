//! What every stream lane must do, one function per behaviour.
//!
//! What the suite assumes beyond the wording of the contract: a connection that the lane cannot take for
//! want of room is closed or reset at once and counted under `conn_table_full`.

use super::stream_probe::Conn;
use super::{
    AMPLIFIED_BYTES, Door, Manner, Order, PeerId, PeerRead, SILENT_TURNS, StreamProbe, StreamRig,
    WAIT, WAITS_MAX, ok, payload, ring_after_ticks, spec, stop_after_ticks,
};
use crate::refusal::refusal;
use crate::{hearing, patience::Patience, skip};
use laneway_core::{
    App, Bell, Clock, Close, ConnId, DropReason, Lane, LaneError, PortId, StreamLane, Turn, Wake,
};
use laneway_engine::{Control, Ended, Stop, run_streams};
use laneway_random::Random;
use laneway_spec::{IdlePolicy, SpecError};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// A far end reads at most so many bytes at a time.
const READ_BYTES_MAX: usize = 1 << 16;
/// More than any lane and kernel queue for one connection, by far.
const UNQUEUEABLE_BYTES: usize = 64 << 20;

/// A lane on the bench, with its app and its far end.
struct Bench<'r, R: StreamRig> {
    rig: &'r mut R,
    lane: R::Lane,
    clock: R::Clock,
    probe: StreamProbe,
}

impl<'r, R: StreamRig> Bench<'r, R> {
    fn open(rig: &'r mut R, knobs: &str, ports: usize, manner: Manner) -> Self {
        let spec = spec(rig.properties().spec, knobs);
        let opened = rig.open(&spec, ports);
        let lane = opened.unwrap_or_else(|e| panic!("`{spec}` with {ports} ports: {e}"));
        assert_eq!(lane.ports(), ports, "ports of `{spec}`");
        let clock = rig.clock();
        assert_eq!(clock.domain(), lane.clock_domain(), "the rig's clock and the lane's");
        Bench { rig, lane, clock, probe: StreamProbe::new(manner) }
    }

    fn turn(&self) -> Turn {
        Turn { now_ns: self.clock.now_ns() }
    }

    fn serve(&mut self) -> usize {
        ok(self.lane.serve(&mut self.probe, &self.clock))
    }

    /// Serves while `step` says that it did something or waits for something; `step` gives true
    /// once what it waits for is there. Returns whether that happened before patience ended.
    fn serve_until(&mut self, mut step: impl FnMut(&mut Self) -> Progress) -> bool {
        let mut patience = Patience::new(WAITS_MAX);
        while !patience.is_over() {
            let served = self.serve();
            match step(self) {
                Progress::Done => return true,
                Progress::Nothing if served == 0 => patience.wait(|| ok(self.lane.wait(WAIT))),
                Progress::Some | Progress::Nothing => patience.note_arrival(),
            }
        }
        false
    }

    /// A connection that the app has been notified of.
    fn connect(&mut self, port: PortId) -> PeerId {
        let peer = self.rig.connect(port);
        self.until_open(peer);
        peer
    }

    fn until_open(&mut self, peer: PeerId) {
        let opened = self.serve_until(|bench| {
            let address = bench.rig.address(peer);
            let conn = bench.probe.with_peer(address);
            Progress::done_if(conn.is_some_and(|(_, conn)| conn.closed.is_none()))
        });
        assert!(opened, "the connection of {peer:?} was not accepted");
    }

    /// Writes all of `bytes` from the far end, serving meanwhile.
    fn write(&mut self, peer: PeerId, bytes: &[u8]) {
        let mut at = 0;
        let written = self.serve_until(|bench| {
            let took = bench.rig.write(peer, &bytes[at..]);
            at += took;
            if at == bytes.len() { Progress::Done } else { Progress::some_if(took > 0) }
        });
        assert!(written, "the far end could write {at} of {} bytes", bytes.len());
    }

    /// Reads at the far end, serving meanwhile, until `wanted` bytes arrived or the connection ended.
    fn read(&mut self, peer: PeerId, wanted: usize) -> (Vec<u8>, Option<PeerRead>) {
        let mut bytes = Vec::new();
        let mut end = None;
        self.serve_until(|bench| {
            if bytes.len() >= wanted {
                return Progress::Done;
            }
            match bench.rig.read(peer, READ_BYTES_MAX.min(wanted - bytes.len())) {
                PeerRead::Bytes(more) => {
                    bench.probe.returned_bytes += more.len();
                    bytes.extend(more);
                    Progress::Some
                }
                PeerRead::Nothing => Progress::Nothing,
                last => {
                    end = Some(last);
                    Progress::Done
                }
            }
        });
        (bytes, end)
    }

    /// What the far end reads after the last byte it is owed.
    fn read_end(&mut self, peer: PeerId) -> Option<PeerRead> {
        let (more, end) = self.read(peer, 1);
        assert!(more.is_empty(), "{} bytes that no peer sent", more.len());
        end
    }

    fn until_closed(&mut self, peer: PeerId) -> Close {
        let address = self.rig.address(peer);
        let why = |probe: &StreamProbe| probe.with_peer(address).and_then(|(_, conn)| conn.closed);
        self.serve_until(|bench| Progress::done_if(why(&bench.probe).is_some()));
        why(&self.probe)
            .unwrap_or_else(|| panic!("the end was not reported to the app, of {peer:?}"))
    }

    /// The name by which the app knows a connection.
    fn conn(&self, peer: PeerId) -> ConnId {
        let address = self.rig.address(peer);
        let conn = self.probe.with_peer(address);
        conn.unwrap_or_else(|| panic!("{peer:?} was never opened")).0
    }

    fn tick(&mut self) {
        let turn = self.turn();
        ok(self.lane.tick(&mut self.probe, turn));
    }

    /// Has the app do this on a tick.
    fn order(&mut self, orders: impl IntoIterator<Item = Order>) {
        self.probe.orders.extend(orders);
        self.tick();
    }

    /// Serves and ticks until `is_done`.
    fn tick_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        self.serve_until(|bench| {
            bench.tick();
            Progress::done_if(is_done(bench))
        })
    }

    /// Gives what is on its way the time that a whole exchange with another peer takes, and more.
    fn pass_turns(&mut self, other: PeerId) {
        for sequence in 0..SILENT_TURNS as u64 {
            let sent = payload(sequence, 100);
            self.write(other, &sent);
            assert_same(&self.read(other, sent.len()).0, &sent, "the other's echo");
        }
    }

    /// What the far end reads while the lane does nothing.
    fn read_unserved(&mut self, peer: PeerId, wanted: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..WAITS_MAX {
            match self.rig.read(peer, wanted - bytes.len()) {
                PeerRead::Bytes(more) => bytes.extend(more),
                PeerRead::Nothing => std::thread::sleep(WAIT),
                end => panic!("{end:?} after {} bytes", bytes.len()),
            }
            if bytes.len() == wanted {
                break;
            }
        }
        bytes
    }

    fn taken(&self, peer: PeerId) -> &[u8] {
        let address = self.rig.address(peer);
        self.probe.with_peer(address).map_or(&[], |(_, conn)| &conn.taken)
    }
}

/// What one step of a bench found.
enum Progress {
    Done,
    Some,
    Nothing,
}

impl Progress {
    fn done_if(yes: bool) -> Progress {
        if yes { Progress::Done } else { Progress::Nothing }
    }

    fn some_if(yes: bool) -> Progress {
        if yes { Progress::Some } else { Progress::Nothing }
    }
}

/// Compares streams without printing megabytes.
fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    let same = got.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let (got, wanted) = (got.len(), wanted.len());
    assert!(same == wanted && got == wanted, "{what}: {same} same bytes of {got} for {wanted}");
}

/// However bytes are cut on their way in, they are shown in order, and what the app sends leaves in
/// order.
pub fn bytes_come_back_in_pieces_of_any_size<R: StreamRig>(rig: &mut R) {
    const PIECES: [usize; 10] = [1, 2, 3, 7, 100, 1459, 1461, 5000, 40_000, 1];
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let peer = bench.connect(PORT);
    for (sequence, bytes) in (0..).zip(PIECES) {
        let sent = payload(sequence, bytes);
        let mut back = Vec::new();
        let mut at = 0;
        let returned = bench.serve_until(|bench| {
            at += bench.rig.write(peer, &sent[at..]);
            match bench.rig.read(peer, READ_BYTES_MAX) {
                PeerRead::Bytes(more) => back.extend(more),
                PeerRead::Nothing => {}
                end => panic!("{end:?} after {} bytes", back.len()),
            }
            Progress::done_if(back.len() >= sent.len())
        });
        assert!(returned, "{} of {bytes} bytes were returned", back.len());
        assert_same(&back, &sent, "the echo");
    }
}

/// Bytes behind urgent data, all of which have arrived, are shown without a further one. The urgent byte may be left
/// out of the stream or not (RFC 6093, 2 and 3).
pub fn urgent_data_holds_back_nothing_behind_it<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let peer = bench.connect(PORT);
    for round in 1..=2 {
        if !bench.rig.write_urgent(peer, b"AB") {
            return skip("the far end has no urgent data");
        }
        assert_eq!(bench.rig.write(peer, b"CD"), 2);
        let wanted = [b"ACD".repeat(round), b"ABCD".repeat(round)];
        let shown = bench
            .serve_until(|bench| Progress::done_if(wanted.iter().any(|w| w == bench.taken(peer))));
        assert!(shown, "{} bytes were shown in round {round}", bench.taken(peer).len());
    }
}

/// A new connection is reported to the app with its peer's address, its port and the listening address.
pub fn a_connection_is_reported_with_its_peer_and_its_port<R: StreamRig>(rig: &mut R) {
    let ports = rig.properties().ports_max.min(2);
    let mut bench = Bench::open(rig, "", ports, Manner::Echo);
    for port in (0..ports).map(|port| PortId(port as u32)) {
        let peer = bench.connect(port); // fails unless the address fits
        let sent = payload(u64::from(port.0), 64);
        bench.write(peer, &sent);
        assert_same(&bench.read(peer, sent.len()).0, &sent, "the echo");
        assert_eq!(bench.lane.counters(port).rx_bytes, 64, "counted on port {}", port.0);
        assert_eq!(bench.probe.conns[&bench.conn(peer)].port, port);
    }
    assert_eq!(bench.probe.open(), ports);
    let locals: BTreeSet<_> = bench.probe.conns.values().map(|conn| conn.local).collect();
    assert_eq!(locals.len(), ports, "each port has a listening address of its own");
}

/// What the app leaves is kept and shown again, first, when more has come.
pub fn bytes_not_consumed_are_shown_again_with_the_rest<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Lines);
    let peer = bench.connect(PORT);
    for (pieces, piece) in [&b"un"[..], b"finish", b"ed\nand\nhalf"].into_iter().enumerate() {
        bench.write(peer, piece);
        // Each piece is shown before the next is written, so that lines are truly in pieces.
        let address = bench.rig.address(peer);
        let shown = bench.serve_until(|bench| {
            let conn = bench.probe.with_peer(address);
            Progress::done_if(conn.is_some_and(|(_, conn)| conn.shown.len() > pieces))
        });
        assert!(shown, "a piece was not shown");
    }
    let whole = b"unfinished\nand\n";
    assert_same(&bench.read(peer, whole.len()).0, whole, "the whole lines");
    assert_same(bench.taken(peer), whole, "what was consumed");
    bench.write(peer, b" done\n");
    assert_same(&bench.read(peer, 10).0, b"half done\n", "the line that was in halves");
}

/// While a peer does not read, the app is refused, bytes wait, nothing is lost, and everything
/// flows again when it reads.
pub fn a_full_send_queue_refuses_and_loses_nothing<R: StreamRig>(rig: &mut R) {
    /// Turns without any progress after which everything is full, if the app was refused; if not, what
    /// is on its way has not arrived.
    const STALLED_TURNS: usize = 20;
    let knobs = rig.properties().small_queues;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Echo);
    let peer = bench.connect(PORT);
    let mut sent = Vec::new();
    let mut stalled = 0;
    let mut patience = Patience::new(WAITS_MAX);
    // Where a piece is taken beyond a full queue, the app is shown no more, and never refused.
    let has_slack = bench.rig.queue_slack_bytes() > 0;
    while !patience.is_over() && (stalled < STALLED_TURNS || bench.probe.refused == 0 && !has_slack)
    {
        let piece = payload(sent.len() as u64, 4096);
        let took = bench.rig.write(peer, &piece);
        sent.extend_from_slice(&piece[..took]);
        let before = bench.taken(peer).len();
        bench.serve();
        if took == 0 && bench.taken(peer).len() == before {
            stalled += 1;
            patience.wait(|| ok(bench.lane.wait(Duration::from_millis(1))));
        } else {
            stalled = 0;
            patience.note_arrival();
        }
        assert!(sent.len() < UNQUEUEABLE_BYTES, "no queue of this connection is bounded");
    }
    let is_reported = bench.probe.refused > 0 || has_slack;
    assert!(is_reported, "a full queue was never reported to the app");
    assert!(bench.taken(peer).len() < sent.len(), "the app took more than could be answered");
    let (back, end) = bench.read(peer, sent.len());
    assert_eq!(end, None);
    assert_same(&back, &sent, "the echo");
    assert_eq!(bench.lane.counters(PORT).tx_bytes, sent.len() as u64);
}

/// What the app left because its queue was full is shown again when that has drained, although
/// nothing new comes.
pub fn what_a_full_queue_left_is_shown_again_by_itself<R: StreamRig>(rig: &mut R) {
    const BYTES: usize = 3000;
    let knobs = rig.properties().small_queues;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Amplify);
    let peer = bench.connect(PORT);
    let sent = payload(8, BYTES);
    bench.write(peer, &sent);
    let (back, end) = bench.read(peer, BYTES * AMPLIFIED_BYTES);
    assert_eq!(end, None);
    let wanted: Vec<u8> = sent.iter().flat_map(|byte| [*byte; AMPLIFIED_BYTES]).collect();
    assert_same(&back, &wanted, "the long answer");
}

/// A queue takes what fits of a send and nothing behind it; what was taken leaves.
pub fn a_send_longer_than_the_queue_is_taken_in_part<R: StreamRig>(rig: &mut R) {
    const LONG_BYTES: usize = 1 << 20;
    let knobs = rig.properties().small_queues;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Take);
    let peer = bench.connect(PORT);
    let (conn, long) = (bench.conn(peer), payload(1, LONG_BYTES));
    // One that knows no room: what is owed is not paid.
    bench.order([Order::Send(conn, long.clone()), Order::Send(conn, vec![0]), Order::Close(conn)]);
    let taken = bench.probe.took[0];
    assert!(0 < taken && taken < LONG_BYTES, "{taken} of {LONG_BYTES} bytes were taken at once");
    assert_eq!(bench.probe.took[1], 0, "a full queue takes nothing");
    let (back, _) = bench.read(peer, taken);
    assert_same(&back, &long[..taken], "what was taken");
    assert_eq!(bench.read_end(peer), Some(PeerRead::End));
}

/// An app whose send took less than given is notified once when there is room again, whether or not
/// there are bytes to be shown.
pub fn room_is_reported_once_without_unread_bytes<R: StreamRig>(rig: &mut R) {
    const LONG_BYTES: usize = 3 << 20;
    let knobs = rig.properties().small_queues;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Take);
    let peer = bench.connect(PORT);
    let (conn, long) = (bench.conn(peer), payload(2, LONG_BYTES));
    bench.order([Order::Send(conn, long.clone())]);
    // As much as an empty queue has room for.
    let queue_bytes = bench.probe.took[0] + bench.rig.queue_slack_bytes();
    assert!(queue_bytes < LONG_BYTES);
    // The probe refuses room that does not follow such a send.
    let (back, end) = bench.read(peer, LONG_BYTES);
    assert_eq!(end, None);
    assert_same(&back, &long, "what was sent whenever there was room");
    let conn = &bench.probe.conns[&conn];
    assert!(conn.rooms > 0 && conn.shown.is_empty(), "{} times room", conn.rooms);
    let most = conn.queued_bytes_max;
    assert!(most <= queue_bytes, "{most} bytes were queued, and a queue has {queue_bytes}");
}

/// Nothing can be queued for a connection that the app has closed, whose end was reported to it, or that
/// never existed; and nothing else can be done with it.
pub fn a_gone_connection_takes_nothing<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let (one, another) = (bench.connect(PORT), bench.connect(PORT));
    let conn = bench.conn(one);
    let send = |conn| Order::Send(conn, b"more".to_vec());
    bench.order([send(conn), Order::Close(conn), send(conn)]);
    assert_eq!(bench.probe.took, [4, 0]);
    assert_eq!(bench.until_closed(one), Close::App);
    for gone in [conn, ConnId(conn.0 ^ 1 << 40), ConnId(u64::MAX)] {
        let ends = [Order::Close(gone), Order::Abort(gone)];
        bench.order([send(gone), Order::Pause(gone), Order::Resume(gone)].into_iter().chain(ends));
        assert_eq!(bench.probe.took.pop(), Some(0), "{gone:?} took something");
    }
    assert_same(&bench.read(one, 4).0, b"more", "what was sent before the close");
    assert_eq!(bench.read_end(one), Some(PeerRead::End));
    bench.pass_turns(another);
}

/// A paused connection shows nothing; when it is resumed it shows everything in order, what the app had
/// left and what has come meanwhile.
pub fn a_paused_connection_shows_nothing_until_it_is_resumed<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Lines);
    let (peer, other) = (bench.connect(PORT), bench.connect(PORT));
    let conn = bench.conn(peer);
    bench.write(peer, b"some");
    let is_shown = |bench: &mut Bench<'_, R>| !bench.probe.conns[&conn].shown.is_empty();
    assert!(bench.serve_until(|bench| Progress::done_if(is_shown(bench))));
    bench.order([Order::Pause(conn)]);
    bench.write(peer, b"thing\nand");
    let line = b"the other line is as long as what it takes to be seen by a peer\n";
    for _ in 0..SILENT_TURNS {
        bench.write(other, line);
        assert_same(&bench.read(other, line.len()).0, line, "the other's echo");
    }
    bench.write(peer, b" more\n");
    assert_eq!(bench.probe.conns[&conn].shown, [4], "the probe refuses what is shown meanwhile");
    // Nothing else wakes the lane.
    bench.order([Order::Resume(conn)]);
    let whole = b"something\nand more\n";
    assert_same(&bench.read(peer, whole.len()).0, whole, "the lines");
    // Paused and resumed without anything new: what was left is shown again.
    bench.write(peer, b"rest");
    assert!(bench.serve_until(|bench| {
        let left = bench.probe.conns[&conn].shown.last() == Some(&4);
        Progress::done_if(left)
    }));
    let times = bench.probe.conns[&conn].shown.len();
    bench.order([Order::Pause(conn), Order::Resume(conn)]);
    let is_again = |bench: &mut Bench<'_, R>| bench.probe.conns[&conn].shown.len() > times;
    assert!(bench.serve_until(|bench| Progress::done_if(is_again(bench))), "not shown again");
}

/// The peer of a paused connection must wait before the lane has taken much, and nothing is lost.
pub fn a_paused_connection_is_read_up_to_a_bound<R: StreamRig>(rig: &mut R) {
    const STALLED_TURNS: usize = 20;
    let knobs = rig.properties().small_queues;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Take);
    let peer = bench.connect(PORT);
    let conn = bench.conn(peer);
    bench.order([Order::Pause(conn)]);
    let (mut sent, mut stalled) = (Vec::new(), 0);
    while stalled < STALLED_TURNS {
        let piece = payload(sent.len() as u64, 1 << 16);
        let took = bench.rig.write(peer, &piece);
        sent.extend_from_slice(&piece[..took]);
        stalled = if took == 0 { stalled + 1 } else { 0 };
        bench.serve();
        ok(bench.lane.wait(Duration::from_millis(1)));
        assert!(sent.len() < UNQUEUEABLE_BYTES, "a paused connection is read for ever");
    }
    bench.order([Order::Resume(conn)]);
    let all = |bench: &mut Bench<'_, R>| bench.taken(peer).len() == sent.len();
    assert!(bench.serve_until(|bench| Progress::done_if(all(bench))), "bytes are missing");
    assert_same(bench.taken(peer), &sent, "what was sent");
}

/// The app is notified of the end of a peer whose connection is paused, before it is shown the last bytes.
pub fn a_paused_connection_that_finishes_is_reported_at_once<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Take);
    bench.probe.owes = true;
    let peer = bench.connect(PORT);
    let conn = bench.conn(peer);
    bench.order([Order::Pause(conn)]);
    bench.write(peer, b"last words");
    bench.rig.finish(peer);
    let is_finished = |bench: &mut Bench<'_, R>| bench.probe.conns[&conn].finished;
    assert!(bench.serve_until(|bench| Progress::done_if(is_finished(bench))), "not reported");
    assert_same(bench.taken(peer), b"", "what is shown meanwhile");
    bench.order([Order::Resume(conn)]);
    let is_taken = |bench: &mut Bench<'_, R>| bench.taken(peer).len() == 10;
    assert!(bench.serve_until(|bench| Progress::done_if(is_taken(bench))), "not shown");
    bench.order([Order::Close(conn)]);
    assert_eq!(bench.until_closed(peer), Close::Peer);
    assert_eq!(bench.read_end(peer), Some(PeerRead::End));
}

/// One peer that does not read costs another nothing but the turn.
pub fn a_slow_reader_does_not_hold_up_others<R: StreamRig>(rig: &mut R) {
    const STALLED_TURNS: usize = 20;
    let knobs = rig.properties().small_queues;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Echo);
    let (slow, quick) = (bench.connect(PORT), bench.connect(PORT));
    let mut stalled = 0;
    while stalled < STALLED_TURNS {
        let took = bench.rig.write(slow, &[0x5a; 4096]);
        bench.serve();
        if took == 0 {
            stalled += 1;
            ok(bench.lane.wait(Duration::from_millis(1)));
        }
    }
    for sequence in 0..20 {
        let sent = payload(sequence, 700);
        bench.write(quick, &sent);
        assert_same(&bench.read(quick, sent.len()).0, &sent, "the quick peer's echo");
    }
}

/// After a half close the app still sees all bytes that arrived, and the peer still gets all bytes that
/// were sent. Then the end is reported to both.
pub fn a_peer_that_finishes_gets_all_it_is_owed<R: StreamRig>(rig: &mut R) {
    for bytes in [0, 1, 30_000] {
        let mut bench = Bench::open(rig, "", 1, Manner::Echo);
        let peer = bench.connect(PORT);
        let sent = payload(1, bytes);
        bench.write(peer, &sent);
        bench.rig.finish(peer);
        let (back, _) = bench.read(peer, bytes);
        assert_same(&back, &sent, "the echo");
        assert_eq!(bench.read_end(peer), Some(PeerRead::End));
        assert_eq!(bench.until_closed(peer), Close::Peer);
        assert_eq!(bench.probe.open(), 0);
    }
}

/// A peer that has finished sending is still sent what the app finds out later, and is closed when the
/// app closes.
pub fn a_reply_that_is_owed_reaches_a_peer_that_has_finished<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::OnTick);
    bench.probe.owes = true;
    // Nothing is paid on a tick before the order.
    bench.probe.until_bell = true;
    let (peer, other) = (bench.connect(PORT), bench.connect(PORT));
    let (conn, sent) = (bench.conn(peer), payload(3, 2000));
    bench.write(peer, &sent);
    bench.rig.finish(peer);
    let is_finished = |bench: &mut Bench<'_, R>| bench.probe.conns[&conn].finished;
    assert!(bench.serve_until(|bench| Progress::done_if(is_finished(bench))), "not reported");
    assert_same(bench.taken(peer), &sent, "what was sent before the end");
    for turn in 0..3 {
        bench.write(other, b"turn");
        let has_come = |bench: &mut Bench<'_, R>| bench.taken(other).len() == 4 * (turn + 1);
        assert!(bench.serve_until(|bench| Progress::done_if(has_come(bench))));
        bench.tick();
        assert_eq!(bench.rig.read(peer, 1), PeerRead::Nothing, "closed, or paid too early");
    }
    assert_eq!(bench.probe.conns[&conn].closed, None);
    bench.order([Order::PayAndClose(conn)]);
    assert_same(&bench.read(peer, sent.len()).0, &sent, "the late reply");
    assert_eq!(bench.read_end(peer), Some(PeerRead::End));
    assert_eq!(bench.until_closed(peer), Close::Peer);
}

/// A peer that has sent more than the app saw before it closed is not reset before it has its answer.
pub fn a_close_over_unread_bytes_costs_the_peer_nothing<R: StreamRig>(rig: &mut R) {
    /// Less than any lane throws away before it loses its patience.
    const PIECES: usize = 64;
    const PIECE_BYTES: usize = 1 << 14;
    let mut bench = Bench::open(rig, "", 1, Manner::Take);
    let (peer, answer) = (bench.connect(PORT), payload(4, 300));
    let conn = bench.conn(peer);
    bench.order([Order::Pause(conn)]);
    // Some have come, some wait in the far end.
    for _ in 0..PIECES {
        bench.rig.write(peer, &[0x42; PIECE_BYTES]);
        bench.serve();
    }
    bench.order([Order::Send(conn, answer.clone()), Order::Close(conn)]);
    assert_same(&bench.read(peer, answer.len()).0, &answer, "the answer");
    assert_eq!(bench.read_end(peer), Some(PeerRead::End));
    assert_eq!(bench.until_closed(peer), Close::App);
}

/// Connections whose peers take nothing of what is queued end all the same, with a reset.
pub fn a_close_towards_a_peer_that_never_reads_ends<R: StreamRig>(rig: &mut R) {
    /// Longer than a peer may put an acknowledgement off.
    const STALLED_TURNS: usize = 30;
    let knobs = rig.properties().hasty_close;
    let mut bench = Bench::open(rig, knobs, 1, Manner::Take);
    let (silent, talker) = (bench.connect(PORT), bench.connect(PORT));
    let conns = [bench.conn(silent), bench.conn(talker)];
    let send = |conn| Order::Send(conn, vec![0x5a; UNQUEUEABLE_BYTES]);
    bench.order(conns.map(send));
    let (mut owed_bytes, mut stalled) = (0, 0);
    while stalled < STALLED_TURNS {
        bench.serve();
        ok(bench.lane.wait(WAIT));
        let now_owed = bench.probe.conns.values().map(Conn::owed_bytes).sum();
        stalled = if now_owed == owed_bytes { stalled + 1 } else { 0 };
        owed_bytes = now_owed;
    }
    // Without room, too, no more is queued than an empty queue took.
    bench.order(conns.map(send));
    let queue_bytes = bench.probe.took[0] + bench.rig.queue_slack_bytes();
    for conn in bench.probe.conns.values() {
        let most = conn.queued_bytes_max;
        assert!(most <= queue_bytes, "{most} bytes were queued, and a queue has {queue_bytes}");
    }
    bench.order(conns.map(Order::Close));
    let ended = bench.tick_until(|bench| {
        // What a peer sends meanwhile is no sign that it reads.
        bench.rig.write(talker, &[0x42; 100]);
        bench.probe.open() == 0
    });
    assert!(ended, "{} of two connections do not end", bench.probe.open());
    assert!(bench.probe.conns.values().all(|conn| conn.closed == Some(Close::Error)));
    let (_, end) = bench.read(silent, UNQUEUEABLE_BYTES);
    assert_eq!(end, Some(PeerRead::Reset));
}

/// `abort` ends a connection at once, by a reset, without what is queued.
pub fn an_abort_resets_and_drops_what_is_queued<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let (peer, other) = (bench.connect(PORT), bench.connect(PORT));
    let conn = bench.conn(peer);
    bench.order([Order::Send(conn, payload(1, 900)), Order::Abort(conn)]);
    assert_eq!(bench.until_closed(peer), Close::App);
    assert_eq!(bench.read(peer, 1), (Vec::new(), Some(PeerRead::Reset)));
    bench.pass_turns(other);
    // One that is being closed can be aborted as well.
    let late = bench.connect(PORT);
    let conn = bench.conn(late);
    bench.order([Order::Send(conn, payload(1, 900)), Order::Close(conn), Order::Abort(conn)]);
    assert_eq!(bench.until_closed(late), Close::App);
    assert_eq!(bench.read(late, 1), (Vec::new(), Some(PeerRead::Reset)));
}

/// A connection that has just opened can be answered and closed, or aborted, before it says anything.
pub fn an_app_may_answer_and_close_when_a_connection_opens<R: StreamRig>(rig: &mut R) {
    const ANSWER: &[u8] = b"-ERR max number of clients reached\r\n";
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    bench.probe.door = Door::Answer(ANSWER);
    let peer = bench.rig.connect(PORT);
    assert_same(&bench.read(peer, ANSWER.len()).0, ANSWER, "the answer");
    assert_eq!(bench.read_end(peer), Some(PeerRead::End));
    assert_eq!(bench.until_closed(peer), Close::App);
    bench.probe.door = Door::Abort;
    let peer = bench.rig.connect(PORT);
    assert_eq!(bench.read(peer, 1), (Vec::new(), Some(PeerRead::Reset)));
    assert_eq!(bench.until_closed(peer), Close::App);
    bench.probe.door = Door::Open;
    let peer = bench.connect(PORT);
    bench.pass_turns(peer);
}

/// `close` lets what was queued before it leave, and ends in order.
pub fn a_close_by_the_app_lets_queued_bytes_leave<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::EchoAndClose);
    let peer = bench.connect(PORT);
    let sent = payload(3, 900);
    assert_eq!(bench.rig.write(peer, &sent), sent.len());
    let (back, _) = bench.read(peer, sent.len());
    assert_same(&back, &sent, "the echo");
    assert_eq!(bench.read_end(peer), Some(PeerRead::End));
    assert_eq!(bench.until_closed(peer), Close::App);
}

/// A reset is reported as an error, and the other connections do not notice.
pub fn a_reset_ends_only_its_connection<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let (one, another) = (bench.connect(PORT), bench.connect(PORT));
    bench.write(one, b"unread");
    bench.rig.reset(one);
    assert_eq!(bench.until_closed(one), Close::Error);
    let sent = payload(4, 500);
    bench.write(another, &sent);
    assert_same(&bench.read(another, sent.len()).0, &sent, "the other's echo");
    assert_eq!(bench.probe.open(), 1);
}

/// What is queued while bytes are shown stays until the app's turn has ended.
pub fn replies_leave_only_after_the_turn_ended<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let peers = [bench.connect(PORT), bench.connect(PORT)];
    let Some(mut first) = bench.rig.arrivals(peers[0]) else {
        return skip("the far end cannot look for arrivals while the lane is in its turn");
    };
    let mut second = bench.rig.arrivals(peers[1]).expect("one far end can look, so can the other");
    bench.probe.arrivals = Some(Box::new(move || {
        // What left early has this long to arrive; if that is too short, the fault goes unseen.
        std::thread::sleep(Duration::from_millis(2));
        first() || second()
    }));
    for sequence in 0..5 {
        let sent = payload(sequence, 300);
        for peer in peers {
            assert_eq!(bench.rig.write(peer, &sent), sent.len());
        }
        for peer in peers {
            assert_same(&bench.read(peer, sent.len()).0, &sent, "the echo");
        }
        // A later turn must not take the next round's bytes for early ones.
        while bench.serve() > 0 {}
    }
    assert!(bench.probe.turn_ends > 0, "no turn ended");
    assert!(bench.probe.looks > 0, "no turn could be looked at");
    assert_eq!(bench.probe.early, 0, "replies left before their turn ended");
    bench.probe.arrivals = None;
    bench.probe.manner = Manner::AtTurnEnd;
    let sent = payload(9, 300);
    bench.write(peers[0], &sent);
    assert_same(&bench.read(peers[0], sent.len()).0, &sent, "what was queued at the turn's end");
}

/// Whatever the app was called for, its turn ends, and soon.
pub fn a_turn_ends_whenever_the_app_was_called<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Take);
    let ends = |bench: &mut Bench<'_, R>, what: &str| {
        let before = bench.probe.turn_ends;
        let is_over = |bench: &mut Bench<'_, R>| !bench.probe.is_in_turn;
        let ended = bench.serve_until(|bench| Progress::done_if(is_over(bench)));
        assert!(ended && bench.probe.turn_ends >= before, "no turn ended behind {what}");
    };
    let (one, another) = (bench.connect(PORT), bench.connect(PORT));
    ends(&mut bench, "an opening");
    assert!(bench.probe.turn_ends > 0, "no turn ended without bytes");
    bench.write(one, b"some");
    bench.serve_until(|bench| Progress::done_if(bench.taken(one).len() == 4));
    ends(&mut bench, "bytes");
    bench.rig.reset(one);
    assert_eq!(bench.until_closed(one), Close::Error);
    ends(&mut bench, "a reset");
    bench.rig.finish(another);
    assert_eq!(bench.until_closed(another), Close::Peer);
    ends(&mut bench, "a close");
    let before = bench.probe.turn_ends;
    bench.tick();
    assert_eq!(bench.probe.turn_ends, before + 1, "a tick ends a turn");
}

/// What the app queues on a tick leaves before the tick returns, or as soon as the peer takes it.
pub fn what_a_tick_sends_leaves_a_stream<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::OnTick);
    let peer = bench.connect(PORT);
    let sent = payload(5, 800);
    bench.write(peer, &sent);
    bench.serve_until(|bench| Progress::done_if(bench.taken(peer).len() == sent.len()));
    for _ in 0..SILENT_TURNS {
        bench.serve();
        assert_eq!(bench.rig.read(peer, 1), PeerRead::Nothing, "bytes left without a tick");
    }
    let turn = bench.turn();
    ok(bench.lane.tick(&mut bench.probe, turn));
    assert_same(&bench.read(peer, sent.len()).0, &sent, "what the tick sent");
}

/// Connections that come and go have ids of their own.
pub fn a_connection_id_is_never_used_again<R: StreamRig>(rig: &mut R) {
    const COMINGS: usize = 40;
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    for coming in 1..=COMINGS {
        let peer = bench.rig.connect(PORT); // the probe refuses an id that it knows
        let opened =
            bench.serve_until(|bench| Progress::done_if(bench.probe.conns.len() == coming));
        assert!(opened, "connection {coming} was not accepted");
        bench.rig.finish(peer);
        let closed = bench.serve_until(|bench| Progress::done_if(bench.probe.open() == 0));
        assert!(closed, "connection {coming} did not end");
        bench.rig.reset(peer);
    }
    let ids: BTreeSet<_> = bench.probe.conns.keys().collect();
    assert_eq!(ids.len(), COMINGS);
}

/// Two hundred connections (or as many as the rig has) are served, each with its own bytes.
pub fn many_connections_are_served_at_once<R: StreamRig>(rig: &mut R) {
    const MANY: usize = 200;
    let count = rig.properties().peers_max.min(MANY);
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let peers: Vec<PeerId> = (0..count).map(|_| bench.connect(PORT)).collect();
    assert_eq!(bench.probe.open(), count);
    for round in 0..2 {
        let sent: Vec<_> = (0..count as u64).map(|i| payload(round * 1000 + i, 300)).collect();
        for (peer, bytes) in peers.iter().zip(&sent) {
            bench.write(*peer, bytes);
        }
        for (peer, bytes) in peers.iter().zip(&sent) {
            assert_same(&bench.read(*peer, bytes.len()).0, bytes, "the echo");
        }
    }
    for peer in &peers {
        bench.rig.finish(*peer);
    }
    assert!(bench.serve_until(|bench| Progress::done_if(bench.probe.open() == 0)));
    let reported =
        bench.probe.conns.values().filter(|conn| conn.closed == Some(Close::Peer)).count();
    assert_eq!(reported, count);
}

/// A value of many megabytes is taken and answered as it comes, however it is cut, and others are served
/// meanwhile.
pub fn megabytes_cut_at_random_come_back_beside_small_requests<R: StreamRig>(rig: &mut R) {
    const LONG_BYTES: usize = 64 << 20;
    const PIECE_BYTES_MAX: usize = 100_000;
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let (peer, other) = (bench.connect(PORT), bench.connect(PORT));
    let (sent, small) = (payload(5, LONG_BYTES), payload(6, 100));
    let (mut at, mut received, mut answered) = (0, 0, 0);
    let (mut asked_bytes, mut answer_bytes, mut random) = (0, 0, Random::seeded(1));
    let returned = bench.serve_until(|bench| {
        let end = LONG_BYTES.min(at + 1 + random.index(PIECE_BYTES_MAX));
        let written = bench.rig.write(peer, &sent[at..end]);
        at += written;
        asked_bytes += bench.rig.write(other, &small[asked_bytes..]);
        if let PeerRead::Bytes(more) = bench.rig.read(other, small.len()) {
            answer_bytes += more.len();
        }
        if answer_bytes == small.len() {
            answered += 1;
            (asked_bytes, answer_bytes) = (0, 0);
        }
        let bytes = match bench.rig.read(peer, READ_BYTES_MAX) {
            PeerRead::Bytes(more) => more,
            PeerRead::Nothing => Vec::new(),
            end => panic!("{end:?} after {received} bytes"),
        };
        assert!(
            sent[received..].starts_with(&bytes),
            "other bytes were returned behind {received}"
        );
        received += bytes.len();
        if received == LONG_BYTES {
            return Progress::Done;
        }
        Progress::some_if(written + bytes.len() > 0)
    });
    assert!(returned, "{received} of {LONG_BYTES} bytes were returned");
    assert!(answered > 10, "{answered} small requests were answered meanwhile");
}

/// Connections that find no room are ended and counted; those that have some go on, and room that
/// becomes free is used.
pub fn connections_beyond_the_limit_are_counted<R: StreamRig>(rig: &mut R) {
    let Some((knobs, limit)) = rig.properties().few_connections else {
        return skip("the lane has no limit that the rig could reach");
    };
    let mut bench = Bench::open(rig, knobs, 1, Manner::Echo);
    let peers: Vec<PeerId> = (0..limit).map(|_| bench.connect(PORT)).collect();
    let refused = bench.rig.connect(PORT);
    let turned_away = bench.serve_until(|bench| {
        let end = bench.rig.read(refused, 1);
        Progress::done_if(matches!(end, PeerRead::End | PeerRead::Reset))
    });
    assert!(turned_away, "connection {} of {limit} was not turned away", limit + 1);
    assert_eq!(bench.lane.counters(PORT).drops(DropReason::ConnTableFull), 1);
    assert_eq!(bench.probe.open(), limit);
    let sent = payload(6, 64);
    bench.write(peers[limit - 1], &sent);
    assert_same(&bench.read(peers[limit - 1], sent.len()).0, &sent, "the echo");
    bench.rig.finish(peers[0]);
    assert_eq!(bench.until_closed(peers[0]), Close::Peer);
    let late = bench.connect(PORT);
    bench.write(late, &sent);
    assert_same(&bench.read(late, sent.len()).0, &sent, "the late peer's echo");
}

/// `finish` ends every connection, tells the app why, and lets what was queued leave.
pub fn finish_closes_every_connection_for_the_stop<R: StreamRig>(rig: &mut R) {
    const COUNT: usize = 5;
    let count = rig.properties().peers_max.min(COUNT);
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let peers: Vec<PeerId> = (0..count).map(|_| bench.connect(PORT)).collect();
    let turn = bench.turn();
    bench.lane.finish(&mut bench.probe, turn);
    assert!(bench.probe.conns.values().all(|conn| conn.closed == Some(Close::Stop)));
    for peer in peers {
        let mut patience = Patience::new(WAITS_MAX);
        let ended = loop {
            let end = bench.rig.read(peer, 1);
            if end != PeerRead::Nothing || patience.is_over() {
                break matches!(end, PeerRead::End | PeerRead::Reset);
            }
            patience.wait(|| ok(bench.lane.wait(WAIT)));
        };
        assert!(ended, "{peer:?} was not sent the end");
    }
}

/// Counters equal what the app consumed and sent, in bytes.
pub fn stream_counters_match_what_was_seen<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let peers = [bench.connect(PORT), bench.connect(PORT)];
    let sent = payload(7, 1200);
    for peer in peers {
        bench.write(peer, &sent);
        assert_same(&bench.read(peer, sent.len()).0, &sent, "the echo");
    }
    let counters = bench.lane.counters(PORT);
    assert_eq!((counters.rx_bytes, counters.tx_bytes), (2400, 2400), "{counters:?}");
    assert!((1..=2400).contains(&counters.rx_frames), "{counters:?}");
    assert!((1..=2400).contains(&counters.tx_frames), "{counters:?}");
    assert_eq!(counters.lost(), 0, "{counters:?}");
}

/// A wait without traffic comes to its end and says so; a connection or bytes make it ready, and it
/// takes nothing away.
pub fn a_stream_wait_is_ready_with_traffic_and_times_out_without<R: StreamRig>(rig: &mut R) {
    /// Early wake-ups are allowed, but not for ever.
    const ATTEMPTS: usize = 50;
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    let times_out = |bench: &mut Bench<'_, R>| {
        (0..ATTEMPTS).any(|_| {
            bench.serve();
            ok(bench.lane.wait(Duration::from_millis(2))) == Wake::Timeout
        })
    };
    let is_ready = |bench: &mut Bench<'_, R>| {
        (0..WAITS_MAX).any(|_| ok(bench.lane.wait(Duration::from_millis(50))) == Wake::Ready)
    };
    assert!(times_out(&mut bench), "no wait without traffic times out");
    let peer = bench.rig.connect(PORT);
    assert!(is_ready(&mut bench), "no wait with a connection is ready");
    bench.until_open(peer);
    assert!(times_out(&mut bench), "an idle connection keeps waits from timing out");
    assert_eq!(bench.rig.write(peer, b"some"), 4);
    assert!(is_ready(&mut bench), "no wait with bytes is ready");
    assert_same(&bench.read(peer, 4).0, b"some", "the echo");
}

/// A bell rung before a wait ends it.
pub fn a_bell_rung_before_a_stream_wait_ends_it<R: StreamRig>(rig: &mut R) {
    let Bench { mut lane, mut probe, clock, .. } = Bench::open(rig, "", 1, Manner::Echo);
    hearing::before(&mut lane, &mut |lane| {
        ok(lane.serve(&mut probe, &clock));
    });
}

/// A bell rung by another thread during a wait ends it.
pub fn a_bell_rung_during_a_stream_wait_ends_it<R: StreamRig>(rig: &mut R) {
    let Bench { mut lane, mut probe, clock, .. } = Bench::open(rig, "", 1, Manner::Echo);
    hearing::during(&mut lane, &mut |lane| {
        ok(lane.serve(&mut probe, &clock));
    });
}

/// A worker that waits calls its app when another thread rings, and the replies that it sends then
/// leave, though nothing arrived.
pub fn what_a_bell_releases_leaves_a_stream<R: StreamRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Manner::OnTick);
    bench.probe.until_bell = true;
    let peer = bench.connect(PORT);
    let sent = payload(8, 700);
    bench.write(peer, &sent);
    let taken = |bench: &mut Bench<'_, R>| Progress::done_if(bench.taken(peer).len() == sent.len());
    assert!(bench.serve_until(taken));
    let bell = Bell::new().unwrap_or_else(|e| panic!("no bell: {e}"));
    let control = Control { bell: Some(bell.clone()), ..Control::default() };
    let ticks = Arc::clone(&bench.probe.ticks);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| ring_after_ticks(&ticks, &bell));
        let Bench { lane, probe, clock, .. } = &mut bench;
        run_streams(lane, probe, clock, IdlePolicy::Block, &control)
    });
    let report = ran.unwrap_or_else(|failed| panic!("the worker failed: {}", failed.error));
    assert_eq!((report.ended, bench.probe.bells), (Ended::App, 1));
    assert_same(&bench.read(peer, sent.len()).0, &sent, "the reply");
}

/// What the app sends behind a bell, at the end of its turn too, leaves before the next turn.
pub fn what_a_bell_releases_leaves_in_that_turn<R: StreamRig>(rig: &mut R) {
    for manner in [Manner::OnTick, Manner::AtTurnEnd] {
        let mut bench = Bench::open(rig, "", 1, manner);
        bench.probe.until_bell = true;
        let peer = bench.connect(PORT);
        let sent = payload(9, 700);
        bench.write(peer, &sent);
        let taken = |bench: &mut Bench<'_, R>| bench.taken(peer).len() == sent.len();
        assert!(bench.serve_until(|bench| Progress::done_if(taken(bench))));
        bench.serve();
        // What the engine does with a bell.
        let turn = bench.turn();
        bench.probe.on_bell(turn);
        bench.tick();
        assert_same(&bench.read_unserved(peer, sent.len()), &sent, "the reply");
    }
}

/// A worker that waits calls its app at the time that the app names.
pub fn a_due_time_of_the_app_comes_before_the_tick<R: StreamRig>(rig: &mut R) {
    const DUE_AFTER_NS: u64 = 1_000_000;
    let mut bench = Bench::open(rig, "", 1, Manner::Echo);
    bench.probe.due_after_ns = Some(DUE_AFTER_NS);
    let Bench { lane, probe, clock, .. } = &mut bench;
    // A busy machine is late now and then, but not always.
    let ran = run_streams(lane, probe, clock, IdlePolicy::Block, &Control::default());
    let report = ran.unwrap_or_else(|failed| panic!("the worker failed: {}", failed.error));
    assert!(bench.probe.early_ticks > 0, "of {} ticks none was early", report.turns);
    assert!(report.waits > 0, "a worker without traffic blocks");
}

/// A worker without traffic ends when it is asked to from another thread, tells its app once, and
/// the lane opens again at once at the same address.
pub fn a_stream_worker_stops_and_the_lane_opens_again<R: StreamRig>(rig: &mut R) {
    for _ in 0..2 {
        let mut bench = Bench::open(rig, "", 1, Manner::Echo);
        let peer = bench.connect(PORT);
        bench.write(peer, b"some");
        assert_same(&bench.read(peer, 4).0, b"some", "the echo");
        let stop = Stop::new();
        let control = Control::from(stop.clone());
        let ticks = Arc::clone(&bench.probe.ticks);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| stop_after_ticks(&ticks, &stop));
            let Bench { lane, probe, clock, .. } = &mut bench;
            run_streams(lane, probe, clock, IdlePolicy::Block, &control)
        });
        let report = ran.unwrap_or_else(|failed| panic!("the worker failed: {}", failed.error));
        assert_eq!((report.ended, bench.probe.stops), (Ended::Stopped, 1));
        assert!(report.waits > 0, "a worker without traffic blocks");
        assert!(ticks.load(Ordering::SeqCst) > 0, "the app ticks without traffic");
        assert_eq!(bench.probe.open(), 0, "every connection ends with the worker");
        assert!(bench.probe.conns.values().all(|conn| conn.closed == Some(Close::Stop)));
    }
}

/// What was asked for and cannot be had fails the opening, unless `allow=` names it; then the
/// report says so.
pub fn an_impossible_capability_of_a_stream_is_refused_unless_allowed<R: StreamRig>(rig: &mut R) {
    let is = rig.properties();
    let Some(impossible) = is.impossible else {
        return skip("nothing that the lane can be asked for is impossible here");
    };
    let (cap, asking) = (impossible.cap, spec(is.spec, impossible.knobs));
    match rig.open(&asking, 1) {
        Err(LaneError::CapMissing { cap: missing, .. }) => assert_eq!(missing, cap),
        Err(e) => panic!("`{asking}` must fail because {} is missing, not: {e}", cap.name()),
        Ok(_) => panic!("`{asking}` opened without {}", cap.name()),
    }
    let allowing = format!("{},allow={}", impossible.knobs, cap.name());
    let bench = Bench::open(rig, &allowing, 1, Manner::Echo);
    let report = bench.lane.caps(PORT);
    assert!(report.requested.has(cap), "{report:?}");
    assert!(!report.obtained.has(cap), "{report:?}");
    assert!(report.allowed_missing.has(cap), "{report:?}");
}

/// Every port has a report that admits itself.
pub fn every_listening_port_reports_its_capabilities<R: StreamRig>(rig: &mut R) {
    let ports = rig.properties().ports_max;
    let bench = Bench::open(rig, "", ports, Manner::Take);
    for port in (0..ports).map(|p| PortId(p as u32)) {
        ok(bench.lane.caps(port).admit(bench.lane.name(), |_| None));
    }
}

/// A misspelt knob is refused with the right one, not ignored.
pub fn an_unknown_knob_of_a_stream_is_refused_with_a_suggestion<R: StreamRig>(rig: &mut R) {
    let (misspelt, right) = rig.properties().misspelt;
    let spec = spec(rig.properties().spec, misspelt);
    match refusal(rig.open(&spec, 1), &spec) {
        SpecError::UnknownKnob { knob, nearest, .. } => {
            assert_eq!((knob.as_str(), nearest.as_deref()), (misspelt, Some(right)));
        }
        e => panic!("`{spec}` must fail for its knob, not: {e}"),
    }
}

/// All forms of `idle=` open, and traffic flows; anything else is refused.
pub fn every_idle_policy_of_a_stream_is_accepted<R: StreamRig>(rig: &mut R) {
    for policy in ["idle=spin", "idle=block", "idle=adaptive", "idle=adaptive:200"] {
        let mut bench = Bench::open(rig, policy, 1, Manner::Echo);
        let peer = bench.connect(PORT);
        bench.write(peer, b"some");
        assert_same(&bench.read(peer, 4).0, b"some", "the echo");
    }
    let spec = spec(rig.properties().spec, "idle=sleepy");
    match refusal(rig.open(&spec, 1), &spec) {
        SpecError::BadValue { knob, .. } => assert_eq!(knob, "idle"),
        e => panic!("`{spec}` must fail for its value, not: {e}"),
    }
}
