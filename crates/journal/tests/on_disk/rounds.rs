//! Clients whose requests wait for a sync each, under `always`, in the time of a simulated disk: how many are answered
//! per time that a sync takes.
//!
//! A client asks, is answered when its record is durable, and asks again. What a server takes for a request, and what
//! the way to the client and back takes, is given; what a sync takes is drawn anew for each. The time is that of the
//! disk's clock, so whatever the machine does, the same seed has the same figures.

use crate::effort;
use laneway_journal::faults::Disk;
use laneway_journal::{Figures, Journal, Next, Options, Policy};
use laneway_random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

const US: u64 = 1_000;
/// Of the machine that the figures of docs/measurements are of: a request of a server, and of a client.
const REQUEST_NS: u64 = 4 * US;
const WAY_NS: u64 = 30 * US;
/// A reply of many that leave together.
const REPLY_NS: u64 = US;

/// A server and its clients.
struct World {
    disk: Disk,
    journal: Journal,
    /// When which client asks, the earliest first.
    asks: BinaryHeap<Reverse<(u64, u64)>>,
    /// Those that are not answered: client, record, when it asked.
    open: VecDeque<(u64, u64, u64)>,
    /// When the server is done with what it has.
    free_ns: u64,
    answered: u64,
    latency_ns: u64,
}

impl World {
    /// Takes what was asked by now.
    fn serve(&mut self) {
        let now_ns = self.disk.now_ns();
        while let Some(&Reverse((at_ns, client))) = self.asks.peek() {
            let done_ns = at_ns.max(self.free_ns) + REQUEST_NS;
            if done_ns > now_ns {
                return;
            }
            self.asks.pop();
            self.free_ns = done_ns;
            let record = self.journal.append(&[0, 0, 0, 0, 0]).expect("there is room");
            self.journal.awaited(1);
            self.journal.commit();
            self.open.push_back((client, record.0, at_ns));
        }
    }

    /// Answers what is durable; a client asks again after its way and `pause_ns`.
    fn answer(&mut self, mut pause_ns: impl FnMut() -> u64) {
        let (now_ns, durable) = (self.disk.now_ns(), self.journal.durable().0);
        let mut sent_ns = now_ns;
        while let Some((client, _, asked_ns)) =
            self.open.pop_front_if(|(_, record, _)| *record <= durable)
        {
            self.answered += 1;
            self.latency_ns += now_ns - asked_ns;
            sent_ns += REPLY_NS;
            self.asks.push(Reverse((sent_ns + WAY_NS + pause_ns(), client)));
        }
    }
}

/// The result: requests, the time, the sum of latencies, and what the journal did.
struct Measured {
    requests: f64,
    ns: f64,
    latency_ns: f64,
    figures: Figures,
}

impl Measured {
    /// Of the best there can be: all clients have each sync.
    fn of_ideal(&self, clients: u64) -> f64 {
        let sync_ns = self.figures.sync_ns as f64 / self.figures.syncs as f64;
        self.requests / self.ns * sync_ns / clients as f64
    }
}

/// So many clients; each pauses below `pause_ns_max` before it asks again.
fn run(clients: u64, sync_ns: [u64; 2], pause_ns_max: u64, for_ns: u64) -> Measured {
    let mut random = Random::seeded(effort::seed());
    let disk = Disk::new(random.draw());
    let (policy, clock) = (Policy::Always, disk.clock());
    let options = Options { policy, clock, segment_bytes: 1 << 20, ..Options::default() };
    let files = Box::new(disk.clone());
    let opened = Journal::open_by_hand(files, Path::new("data"), options, |_| Ok(()));
    let (journal, mut writer, _) = opened.expect("nothing fails");
    let asks = (0..clients).map(|client| Reverse((random.below(WAY_NS), client))).collect();
    let world = World {
        disk: disk.clone(),
        journal,
        asks,
        open: VecDeque::new(),
        free_ns: 0,
        answered: 0,
        latency_ns: 0,
    };
    let world = Arc::new(Mutex::new(world));
    // The server goes on while the disk syncs.
    let meanwhile = Arc::clone(&world);
    disk.meanwhile(move || meanwhile.lock().expect("no panic").serve());
    disk.syncs_take(sync_ns);
    while disk.now_ns() < for_ns {
        let next = writer.turn();
        let mut world = world.lock().expect("no panic");
        world.answer(|| random.below(pause_ns_max + 1));
        world.serve();
        let has_waiting = world.journal.waiting_bytes() > 0;
        // The writer sleeps: until its time has come, or the next request is with the server.
        let asked_ns =
            world.asks.peek().map(|Reverse((at_ns, _))| (*at_ns).max(world.free_ns) + REQUEST_NS);
        let until_ns = match next {
            Next::Held { until_ns, .. } => asked_ns.map_or(until_ns, |ns| ns.min(until_ns)),
            _ if has_waiting => continue,
            _ => asked_ns.expect("a client that does not wait asks again"),
        };
        disk.pass_ns(until_ns.saturating_sub(disk.now_ns()));
        world.serve();
    }
    let world = world.lock().expect("no panic");
    Measured {
        requests: world.answered as f64,
        ns: disk.now_ns() as f64,
        latency_ns: world.latency_ns as f64,
        figures: world.journal.figures(),
    }
}

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn few_clients_have_one_sync_a_round_and_not_two() {
    for (clients, least) in [(1, 0.88), (2, 0.86), (10, 0.78), (30, 0.62)] {
        let measured = run(clients, [300 * US, 400 * US], 0, SECOND_NS);
        let part = measured.of_ideal(clients);
        assert!(part > least, "{clients} clients: {part:.3} of ideal, {:?}", measured.figures);
    }
}

#[test]
fn the_rate_follows_what_a_sync_takes() {
    let rate = |sync_us: u64| {
        let measured = run(10, [sync_us * US; 2], 0, 4 * SECOND_NS);
        measured.requests / measured.ns * (sync_us * US) as f64
    };
    for sync_us in [300, 1_000, 4_000] {
        let per_sync = rate(sync_us);
        assert!(per_sync > 7.5, "{per_sync:.2} requests in {sync_us} us");
    }
}

#[test]
fn where_the_server_is_the_limit_syncs_go_on_beside_it() {
    for clients in [300, 1_000] {
        let measured = run(clients, [300 * US, 400 * US], 0, SECOND_NS);
        let of_server = measured.requests * REQUEST_NS as f64 / measured.ns;
        assert!(of_server > 0.9, "{clients} clients: {of_server:.3}, {:?}", measured.figures);
        let Figures { syncs, synced_commands, .. } = measured.figures;
        assert!(synced_commands / syncs > 40, "{:?}", measured.figures);
    }
}

#[test]
fn who_does_not_ask_again_at_once_is_hardly_held_for_others() {
    // Forty clients that pause for up to 8 ms: three or four requests come during a sync.
    let measured = run(40, [300 * US; 2], 8_000 * US, 2 * SECOND_NS);
    let latency_us = measured.latency_ns / measured.requests / 1e3;
    // Half a sync of another, then one of its own.
    assert!(latency_us < 300.0 * 1.65, "{latency_us:.0} us, {:?}", measured.figures);
    let Figures { syncs, holds, .. } = measured.figures;
    assert!(holds * 8 < syncs, "{:?}", measured.figures);
}
