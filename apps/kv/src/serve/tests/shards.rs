//! Several workers, one behind the other on one thread: what each says to the others arrives when the test lets it.

use super::*;
use crate::serve::{ClientsMemory, Exchange};
use laneway_core::Bell;
use laneway_testkit::Random;
use std::collections::VecDeque;

/// A client: its worker, and its connection there.
pub(super) type Conn = (usize, ConnId);

/// Workers of one store.
pub(super) struct Crew {
    pub(super) worlds: Vec<World>,
    bells: Vec<Bell>,
}

impl Crew {
    pub(super) fn new(workers: usize) -> Crew {
        Crew::with(workers, Config::default())
    }

    pub(super) fn with(workers: usize, config: Config) -> Crew {
        Crew::of((0..workers).map(|_| World::with(config.clone(), None)).collect())
    }

    pub(super) fn of(mut worlds: Vec<World>) -> Crew {
        let exchange = Exchange::new(worlds.len());
        let bells: Vec<Bell> = worlds.iter().map(|_| Bell::new().expect("a descriptor")).collect();
        for (worker, world) in worlds.iter_mut().enumerate() {
            world.kv.take_seat(exchange.seat(worker, &bells[worker]).expect("it is free"));
        }
        Crew { worlds, bells }
    }

    pub(super) fn open(&mut self, worker: usize) -> Conn {
        (worker, self.worlds[worker].open())
    }

    /// A worker hears what it is rung for; false if that is nothing.
    fn hear(&mut self, worker: usize) -> bool {
        let is_rung = self.bells[worker].answer();
        if is_rung {
            self.worlds[worker].pass_ms(0);
        }
        is_rung
    }

    /// Until no worker has anything to say.
    fn settle(&mut self) {
        while (0..self.worlds.len()).filter(|&worker| self.hear(worker)).count() > 0 {}
    }

    fn arrive(&mut self, (worker, conn): Conn, bytes: &[u8]) {
        self.worlds[worker].arrive(conn, bytes);
    }

    pub(super) fn received(&mut self, (worker, conn): Conn) -> String {
        self.worlds[worker].received(conn)
    }

    pub(super) fn ask(&mut self, conn: Conn, line: &str) -> String {
        self.arrive(conn, &array(line));
        self.settle();
        self.received(conn)
    }

    fn talk(&mut self, conn: Conn, lines: &[(&str, &str)]) {
        for (line, reply) in lines {
            assert_eq!(self.ask(conn, line), *reply, "{line}");
        }
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        self.worlds.iter_mut().for_each(|world| world.pass_ms(ms));
        self.settle();
    }
}

/// Of two workers the first has `b` (slot 3300), the second `a` (15495).
#[test]
fn every_client_sees_every_key() {
    let mut crew = Crew::new(2);
    let (one, other) = (crew.open(0), crew.open(1));
    for (conn, value) in [(one, "1"), (other, "2")] {
        for key in ["a", "b", "{a}x", "{b}x"] {
            assert_eq!(crew.ask(conn, &format!("SET {key} {value}")), "+OK\r\n");
        }
        let reply = format!("$1\r\n{value}\r\n");
        for asked in [one, other] {
            for key in ["a", "b", "{a}x", "{b}x"] {
                assert_eq!(crew.ask(asked, &format!("GET {key}")), reply, "{key}");
            }
        }
    }
    let keys = |world: &World| world.kv.server.store.databases().map(|d| d.keys).sum::<usize>();
    assert_eq!(crew.worlds.iter().map(keys).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn replies_of_a_pipeline_are_in_order_and_so_is_what_it_does() {
    let mut crew = Crew::new(3);
    let conn = crew.open(1);
    let (mut pipeline, mut replies) = (Vec::new(), String::new());
    for number in 0..400 {
        pipeline.extend(array(&format!("SET key{number} {number}")));
        pipeline.extend(array(&format!("APPEND {{key{number}}} x")));
        pipeline.extend(array("NOSUCH"));
        pipeline.extend(array(&format!("INCR n{}", number % 7)));
        pipeline.extend(array(&format!("GET key{number}")));
        replies += "+OK\r\n:1\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n";
        replies += &format!(":{}\r\n", number / 7 + 1);
        replies += &format!("${}\r\n{number}\r\n", number.to_string().len());
    }
    crew.arrive(conn, &pipeline);
    crew.settle();
    assert_eq!(crew.received(conn), replies);
    assert!(!crew.worlds[1].peer(conn.1).is_paused);
}

#[test]
fn what_is_done_here_waits_for_what_is_on_its_way() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    let pipeline = [array("SET a 1"), array("SET b 2"), array("GET a"), array("PING")].concat();
    crew.arrive(conn, &pipeline);
    let other = crew.open(0);
    crew.arrive(other, &array("GET b"));
    assert_eq!(crew.received(other), "$-1\r\n", "`b` is not set before `a` is");
    assert_eq!(crew.received(conn), "");
    assert!(crew.worlds[0].peer(conn.1).is_paused);
    crew.settle();
    assert_eq!(crew.received(conn), "+OK\r\n+OK\r\n$1\r\n1\r\n+PONG\r\n");
}

#[test]
fn keys_of_a_command_are_of_one_slot() {
    let mut crew = Crew::new(2);
    let crossing = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    for worker in [0, 1] {
        let conn = crew.open(worker);
        crew.talk(
            conn,
            &[
                ("MSET {a}1 x {a}2 y", "+OK\r\n"),
                ("MGET {a}1 {a}2", "*2\r\n$1\r\nx\r\n$1\r\ny\r\n"),
                ("MGET a b", crossing),
                ("MSET a 1 b 2", crossing),
                ("DEL a b", crossing),
                ("RENAME a b", crossing),
                ("ZUNIONSTORE a 2 b d", crossing),
                // Of the same worker, which another number of workers would part.
                ("EXISTS b c", crossing),
                ("EXISTS b", ":0\r\n"),
                ("MGET", "-ERR wrong number of arguments for 'mget' command\r\n"),
            ],
        );
    }
}

#[test]
fn a_transaction_is_done_where_its_keys_are() {
    let mut crew = Crew::new(2);
    for worker in [0, 1] {
        let (conn, other) = (crew.open(worker), crew.open(1 - worker));
        for key in ["a", "b"] {
            let queued = "+QUEUED\r\n";
            let lines = [
                ("FLUSHALL".to_owned(), "+OK\r\n"),
                ("MULTI".to_owned(), "+OK\r\n"),
                (format!("INCR {key}"), queued),
                ("SELECT 1".to_owned(), queued),
                (format!("INCR {key}"), queued),
                (format!("BLPOP {{{key}}}l 0"), queued),
                (
                    format!("INCR {{{key}}}l x"),
                    "-ERR wrong number of arguments for 'incr' command\r\n",
                ),
                (
                    "EXEC".to_owned(),
                    "-EXECABORT Transaction discarded because of previous errors.\r\n",
                ),
                ("MULTI".to_owned(), "+OK\r\n"),
                (format!("INCR {key}"), queued),
                ("SELECT 1".to_owned(), queued),
                (format!("SET {key} v"), queued),
                (format!("LPUSH {key} v"), queued),
                (format!("BLPOP {{{key}}}l 0"), queued),
                (
                    "EXEC".to_owned(),
                    "*5\r\n:1\r\n+OK\r\n+OK\r\n-WRONGTYPE Operation against a key holding the wrong kind of \
                     value\r\n*-1\r\n",
                ),
                (format!("GET {key}"), "$1\r\nv\r\n"),
                ("SELECT 0".to_owned(), "+OK\r\n"),
                (format!("GET {key}"), "$1\r\n1\r\n"),
                // A write of any client to a watched key spoils it.
                (format!("WATCH {key}"), "+OK\r\n"),
                ("MULTI".to_owned(), "+OK\r\n"),
                (format!("INCR {key}"), queued),
                ("EXEC".to_owned(), "*1\r\n:2\r\n"),
                (format!("WATCH {key}"), "+OK\r\n"),
            ];
            for (line, reply) in &lines {
                assert_eq!(crew.ask(conn, line), *reply, "{line} at {worker}");
            }
            assert_eq!(crew.ask(other, &format!("INCR {key}")), ":3\r\n");
            crew.talk(conn, &[("MULTI", "+OK\r\n"), ("PING", queued), ("EXEC", "*-1\r\n")]);
            crew.ask(conn, &format!("WATCH {key}"));
            crew.talk(
                conn,
                &[
                    ("MULTI", "+OK\r\n"),
                    ("EXEC", "*0\r\n"),
                    ("EXEC", "-ERR EXEC without MULTI\r\n"),
                ],
            );
            for end in ["UNWATCH", "MULTI"] {
                crew.ask(conn, &format!("WATCH {key}"));
                crew.ask(conn, end);
                if end == "MULTI" {
                    assert_eq!(crew.ask(conn, "DISCARD"), "+OK\r\n");
                }
                crew.ask(other, &format!("INCR {key}"));
                crew.talk(
                    conn,
                    &[("MULTI", "+OK\r\n"), ("PING", queued), ("EXEC", "*1\r\n+PONG\r\n")],
                );
            }
        }
    }
}

#[test]
fn what_a_transaction_cannot_be_is_refused_when_it_is_queued() {
    let mut crew = Crew::new(2);
    let crossing = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    for worker in [0, 1] {
        let conn = crew.open(worker);
        crew.talk(
            conn,
            &[
                ("MULTI", "+OK\r\n"),
                ("INCR a", "+QUEUED\r\n"),
                ("INCR b", crossing),
                ("EXEC", aborted),
                ("WATCH a", "+OK\r\n"),
                ("WATCH b", crossing),
                ("INCR b", ":1\r\n"),
                ("MULTI", "+OK\r\n"),
                ("INCR b", crossing),
                ("EXEC", aborted),
                ("MULTI", "+OK\r\n"),
                ("EXEC", "*0\r\n"),
                ("MULTI", "+OK\r\n"),
            ],
        );
        for line in
            ["DBSIZE", "PUBLISH c m", "SUBSCRIBE c", "SCAN 0", "HELLO 3", "CLIENT SETNAME x"]
        {
            let reply = crew.ask(conn, line);
            assert!(reply.contains("cannot be part of a transaction"), "{line}: {reply}");
        }
        crew.talk(conn, &[("EXEC", aborted), ("DEL b", ":1\r\n")]);
    }
}

#[test]
fn who_waits_for_data_of_another_worker_gets_them() {
    let mut crew = Crew::new(2);
    let (conn, other) = (crew.open(0), crew.open(1));
    let popped = "*2\r\n$1\r\na\r\n$1\r\nx\r\n";
    assert_eq!(crew.ask(conn, "BLPOP a 0"), "");
    assert_eq!(crew.ask(conn, "PING"), "", "behind it");
    let list = crew.ask(other, "CLIENT LIST");
    assert!(list.contains("id=1 ") && list.contains("flags=b "), "{list}");
    assert!(crew.ask(other, "INFO clients").contains("blocked_clients:1\r\n"));
    assert_eq!(crew.ask(other, "RPUSH a x y"), ":2\r\n");
    assert_eq!(crew.received(conn), format!("{popped}+PONG\r\n"));
    // In time, by the word of an operator, and with a half-closed or closed connection.
    crew.ask(other, "DEL a");
    assert_eq!(crew.ask(conn, "BLPOP a 0.5"), "");
    crew.pass_ms(501);
    assert_eq!(crew.received(conn), "*-1\r\n");
    assert_eq!(crew.ask(conn, "BLPOP a 0"), "");
    assert_eq!(crew.ask(other, "CLIENT UNBLOCK 1 ERROR"), ":1\r\n");
    assert_eq!(crew.received(conn), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    assert_eq!(crew.ask(other, "CLIENT UNBLOCK 1"), ":0\r\n");
    assert_eq!(crew.ask(conn, "BLPOP a 0"), "");
    crew.worlds[0].finish(conn.1);
    crew.settle();
    assert!(crew.worlds[0].peer(conn.1).is_closed);
    let gone = crew.open(0);
    assert_eq!(crew.ask(gone, "BLPOP a 0"), "");
    crew.worlds[0].close(gone.1);
    crew.worlds[0].close(conn.1);
    crew.settle();
    assert_eq!(crew.ask(other, "RPUSH a x"), ":1\r\n");
    assert_eq!(crew.ask(other, "LLEN a"), ":1\r\n", "no client takes it any more");
    assert!(crew.ask(other, "INFO clients").contains("blocked_clients:0\r\n"));
}

#[test]
fn a_reply_that_is_on_its_way_when_the_peer_has_finished_arrives() {
    let mut crew = Crew::new(2);
    let (conn, other) = (crew.open(0), crew.open(1));
    crew.ask(other, "RPUSH a x");
    crew.arrive(conn, &[array("BLPOP a 0"), array("SET a 1"), array("GET a")].concat());
    crew.worlds[0].finish(conn.1);
    assert!(!crew.worlds[0].peer(conn.1).is_closed);
    crew.settle();
    let reply = "*2\r\n$1\r\na\r\n$1\r\nx\r\n+OK\r\n$1\r\n1\r\n";
    assert_eq!(crew.received(conn), reply);
    assert!(crew.worlds[0].peer(conn.1).is_closed);
}

#[test]
fn messages_reach_listeners_of_all_workers() {
    let mut crew = Crew::new(2);
    let (one, other, speaker) = (crew.open(0), crew.open(1), crew.open(1));
    crew.ask(one, "SUBSCRIBE news");
    crew.ask(other, "PSUBSCRIBE n*");
    crew.ask(one, "PSUBSCRIBE n*");
    assert_eq!(crew.ask(speaker, "PUBLISH news hi"), ":3\r\n");
    let message = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\nhi\r\n";
    let of_pattern = "*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$2\r\nhi\r\n";
    assert_eq!(crew.received(one), format!("{message}{of_pattern}"));
    assert_eq!(crew.received(other), of_pattern);
    crew.ask(one, "SSUBSCRIBE of-shard");
    crew.ask(other, "SSUBSCRIBE of-shard");
    assert_eq!(crew.ask(speaker, "SPUBLISH of-shard hi"), ":2\r\n");
    let of_shard = "*3\r\n$8\r\nsmessage\r\n$8\r\nof-shard\r\n$2\r\nhi\r\n";
    assert_eq!([one, other].map(|conn| crew.received(conn)), [of_shard; 2]);
    crew.talk(
        speaker,
        &[
            ("PUBSUB SHARDCHANNELS", "*1\r\n$8\r\nof-shard\r\n"),
            ("PUBSUB SHARDNUMSUB of-shard", "*2\r\n$8\r\nof-shard\r\n:2\r\n"),
            ("PUBLISH other hi", ":0\r\n"),
            ("PUBSUB CHANNELS", "*1\r\n$4\r\nnews\r\n"),
            ("PUBSUB NUMSUB news x", "*4\r\n$4\r\nnews\r\n:1\r\n$1\r\nx\r\n:0\r\n"),
            ("PUBSUB NUMPAT", ":1\r\n"),
        ],
    );
}

#[test]
fn what_concerns_all_workers_is_of_all() {
    let mut crew = Crew::new(3);
    let conns: Vec<Conn> = (0..3).map(|worker| crew.open(worker)).collect();
    for number in 0..300 {
        crew.ask(conns[number % 3], &format!("SET key{number} {number}"));
    }
    for &conn in &conns {
        assert_eq!(crew.ask(conn, "DBSIZE"), ":300\r\n");
        assert!(crew.ask(conn, "KEYS *").starts_with("*300\r\n"));
        assert!(crew.ask(conn, "INFO keyspace").contains("db0:keys=300,expires=0"));
        assert!(crew.ask(conn, "RANDOMKEY").contains("key"));
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let reply = crew.ask(conn, &format!("SCAN {cursor} COUNT 7"));
            let mut words = reply.split("\r\n").filter(|word| !word.starts_with(['*', '$']));
            cursor = words.next().expect("a cursor").to_owned();
            seen.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
            if cursor == "0" {
                break;
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 300, "every key is seen");
    }
    let info = crew.ask(conns[1], "INFO");
    for line in ["laneway_workers:3", "connected_clients:3", "total_connections_received:3"] {
        assert!(info.contains(&format!("{line}\r\n")), "{line}: {info}");
    }
    crew.talk(
        conns[2],
        &[
            ("CONFIG SET maxmemory 3000000", "+OK\r\n"),
            ("CONFIG GET maxmemory", "*2\r\n$9\r\nmaxmemory\r\n$7\r\n3000000\r\n"),
            (
                "CONFIG SET maxmemory x",
                "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - \
              argument must be a memory value\r\n",
            ),
            ("ACL SETUSER bob on nopass ~* +@all", "+OK\r\n"),
            ("FLUSHALL", "+OK\r\n"),
        ],
    );
    for world in &crew.worlds {
        assert_eq!(world.kv.server.store.settings().memory_bytes_max, Some(1_000_000));
        assert_eq!(world.kv.server.store.databases().map(|d| d.keys).sum::<usize>(), 0);
    }
    for &conn in &conns {
        assert_eq!(crew.ask(conn, "AUTH bob x"), "+OK\r\n");
        assert!(
            crew.ask(conn, "INFO memory")
                .contains("maxmemory:3000000\r\nmaxmemory_per_worker:1000000")
        );
    }
    assert_eq!(
        crew.ask(conns[0], "INFO commandstats").matches("cmdstat_flushall:calls=1,").count(),
        1
    );
}

#[test]
fn a_watched_key_whose_time_is_up_spoils_the_transaction_wherever_the_key_is() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    for key in ["a", "b"] {
        crew.talk(conn, &[(&format!("SET {key} v PX 50"), "+OK\r\n")]);
        crew.talk(conn, &[(&format!("WATCH {key}"), "+OK\r\n"), ("MULTI", "+OK\r\n")]);
        for world in &crew.worlds {
            world.now_us.set(world.now_us.get() + 51_000);
        }
        let set = format!("SET {{{key}}}x 1");
        crew.talk(conn, &[(&set, "+QUEUED\r\n"), ("EXEC", "*-1\r\n")]);
    }
}

#[test]
fn a_listener_that_may_listen_no_more_is_cut_off_at_every_worker() {
    let mut crew = Crew::new(3);
    let operator = crew.open(1);
    crew.talk(operator, &[("ACL SETUSER ann on nopass &news +@all", "+OK\r\n")]);
    let conns: Vec<Conn> = (0..3).map(|worker| crew.open(worker)).collect();
    for &conn in &conns {
        crew.ask(conn, "AUTH ann x");
        crew.ask(conn, "SUBSCRIBE news");
    }
    crew.talk(operator, &[("ACL SETUSER ann resetchannels", "+OK\r\n")]);
    for (worker, conn) in conns {
        assert!(crew.worlds[worker].peer(conn).is_aborted, "worker {worker}");
    }
}

/// A command that waits for others of its client is admitted again, and counted once.
#[test]
fn what_a_user_may_not_do_is_one_attempt_whenever_it_is_done() {
    let mut crew = Crew::new(2);
    let (operator, conn) = (crew.open(0), crew.open(0));
    crew.talk(operator, &[("ACL SETUSER ann on nopass ~* +get +auth", "+OK\r\n")]);
    crew.talk(conn, &[("AUTH ann x", "+OK\r\n")]);
    // The GET is on its way to the other worker when the SET arrives.
    crew.arrive(conn, &[array("GET a"), array("SET b 1")].concat());
    crew.settle();
    let denied = "-NOPERM this user has no permissions to run the 'set' command\r\n";
    assert_eq!(crew.received(conn), format!("$-1\r\n{denied}"));
    let log = crew.ask(operator, "ACL LOG");
    assert!(log.starts_with("*1\r\n*14\r\n$5\r\ncount\r\n:1\r\n"), "{log}");
}

#[test]
fn operators_see_and_end_the_clients_of_all_workers() {
    let mut crew = Crew::new(2);
    let conns: Vec<Conn> = (0..4).map(|n| crew.open(n % 2)).collect();
    let ids: Vec<String> = conns.iter().map(|&conn| crew.ask(conn, "CLIENT ID")).collect();
    assert_eq!(ids, [":1\r\n", ":2\r\n", ":3\r\n", ":4\r\n"]);
    // Each has guests by now, which are no clients.
    conns.iter().for_each(|&conn| drop((crew.ask(conn, "GET a"), crew.ask(conn, "GET b"))));
    let list = crew.ask(conns[1], "CLIENT LIST");
    assert_eq!(list.matches(" age=").count(), 4, "{list}");
    assert_eq!(crew.ask(conns[1], "CLIENT KILL ID 3"), ":1\r\n");
    assert!(crew.worlds[0].peer(conns[2].1).is_aborted);
    crew.worlds[0].close(conns[2].1);
    assert_eq!(crew.ask(conns[1], "CLIENT KILL TYPE normal SKIPME yes"), ":2\r\n");
    for conn in [conns[0], conns[3]] {
        assert!(crew.worlds[conn.0].peer(conn.1).is_aborted);
        crew.worlds[conn.0].close(conn.1);
    }
    assert_eq!(crew.ask(conns[1], "CLIENT KILL TYPE normal SKIPME no"), ":1\r\n");
    assert!(crew.worlds[1].peer(conns[1].1).is_closed, "it is sent the reason, then closed");
    let conn = crew.open(1);
    assert_eq!(crew.ask(conn, "CLIENT KILL 1.2.3.4:5"), "-ERR No such client\r\n");
}

#[test]
fn a_pause_is_of_all_workers() {
    let mut crew = Crew::new(2);
    let (one, other) = (crew.open(0), crew.open(1));
    assert_eq!(crew.ask(one, "CLIENT PAUSE 1000 WRITE"), "+OK\r\n");
    for key in ["a", "b"] {
        assert_eq!(crew.ask(other, &format!("GET {key}")), "$-1\r\n");
    }
    assert_eq!(crew.ask(other, "SET a 1"), "");
    assert_eq!(crew.ask(one, "SET a 2"), "");
    assert_eq!(crew.ask(one, "GET a"), "", "behind it");
    crew.pass_ms(1001);
    assert_eq!(crew.received(other), "+OK\r\n");
    assert_eq!(crew.received(one), "+OK\r\n$1\r\n2\r\n");
}

#[test]
fn a_client_that_has_hung_up_waits_for_no_data_at_another_worker() {
    let mut crew = Crew::new(2);
    let (conn, other, operator) = (crew.open(0), crew.open(0), crew.open(0));
    crew.ask(operator, "CLIENT PAUSE 100000 WRITE");
    assert_eq!(crew.ask(conn, "BLPOP a 0"), "");
    crew.arrive(other, &[array("SET b 1"), array("BLPOP a 0")].concat());
    for one in [conn, other] {
        crew.worlds[0].finish(one.1);
    }
    crew.settle();
    crew.ask(operator, "CLIENT UNPAUSE");
    assert_eq!((crew.received(conn), crew.received(other)), (String::new(), "+OK\r\n".into()));
    for one in [conn, other] {
        assert!(crew.worlds[0].peer(one.1).is_closed);
    }
    assert!(crew.ask(operator, "INFO clients").contains("blocked_clients:0\r\n"));
}

/// What a client does not read is bounded, wherever its keys are.
#[test]
fn a_reader_that_is_slow_gets_no_more_from_another_worker_than_it_reads() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    let value = "v".repeat(1 << 20);
    crew.ask(conn, &format!("SET a {value}"));
    crew.worlds[0].peer(conn.1).room = 0;
    let many = 100;
    crew.arrive(conn, &array("GET a").repeat(many));
    crew.settle();
    let mut all = String::new();
    let reply = format!("$1048576\r\n{value}\r\n");
    while all.len() < many * reply.len() {
        let key = crew.worlds[0].kv.server.clients.key_of(conn.1).expect("it is there");
        let owed = crew.worlds[0].kv.server.clients.get(key).map_or(0, |client| client.owed());
        assert!(owed <= OWED_BYTES_MAX + OWED_BYTES_MAX / 2 + 2 * reply.len(), "{owed} bytes");
        let world = &mut crew.worlds[0];
        world.peer(conn.1).room = 3 << 20;
        world.kv.on_room(conn.1, &mut world.peers);
        world.turn();
        crew.settle();
        let more = crew.received(conn);
        assert!(!more.is_empty(), "room is used");
        all += &more;
    }
    assert!(all == reply.repeat(many));
}

#[test]
fn a_reply_longer_than_a_client_may_be_owed_is_built_by_no_worker() {
    let mut config = Config::default();
    config.normal.hard_bytes = 4000;
    let mut crew = Crew::with(2, config);
    let other = crew.open(0);
    let value = "v".repeat(1600);
    crew.ask(other, &format!("SET a {value}"));
    for key in 0..180 {
        crew.ask(other, &format!("SET long-enough-a-name-{key} 1"));
    }
    // One at another worker, and one of parts each of which is short enough.
    for line in ["MGET a a a", "KEYS long*"] {
        let conn = crew.open(0);
        crew.arrive(conn, &[array(line), array("SET a 1")].concat());
        crew.settle();
        assert_eq!(crew.received(conn), "", "{line}");
        assert!(crew.worlds[0].peer(conn.1).is_aborted, "{line}");
        crew.worlds[0].close(conn.1);
        crew.settle();
    }
    let info = crew.ask(other, "INFO stats");
    assert!(info.contains("client_output_buffer_limit_disconnections:2\r\n"), "{info}");
}

#[test]
fn clients_are_counted_over_all_workers_and_the_rest_are_refused() {
    let mut crew = Crew::with(2, Config { clients_max: 2, ..Config::default() });
    let (one, _other, third) = (crew.open(0), crew.open(1), crew.open(1));
    assert_eq!(crew.received(third), "-ERR max number of clients reached\r\n");
    crew.worlds[1].close(third.1);
    crew.worlds[0].close(one.1);
    let fourth = crew.open(1);
    assert_eq!(crew.ask(fourth, "PING"), "+PONG\r\n");
}

#[test]
fn shutdown_ends_every_worker() {
    let mut crew = Crew::new(2);
    let (one, other) = (crew.open(0), crew.open(1));
    crew.arrive(one, &array("SET a 1"));
    crew.arrive(other, &array("SHUTDOWN NOSAVE"));
    assert!(crew.worlds.iter().all(|world| world.kv.wants_stop()));
    assert!(crew.bells.iter().all(Bell::is_rung), "one that waits hears of it");
    assert_eq!(crew.received(one), "", "what is on its way is not answered");
}

/// A worker that does nothing for a while holds up its own keys' clients, and what waits for it is bounded.
#[test]
fn a_slow_worker_holds_back_those_that_ask_it_alone() {
    let mut crew = Crew::new(2);
    let value = "x".repeat(10_000);
    let clients: Vec<Conn> = (0..50).map(|_| crew.open(0)).collect();
    for &conn in &clients {
        let pipeline: Vec<u8> =
            (0..200).flat_map(|n| array(&format!("SET {{a}}{n} {value}"))).collect();
        crew.arrive(conn, &pipeline);
    }
    let waiting: usize = clients.iter().map(|conn| crew.worlds[0].peer(conn.1).unread.len()).sum();
    let asked = 50 * 200 * 10_000;
    assert!(asked - waiting < 24 << 20, "{} bytes are in queues", asked - waiting);
    assert!(clients.iter().all(|conn| crew.worlds[0].peer(conn.1).is_paused));
    let other = crew.open(0);
    crew.arrive(other, &array("SET b 1"));
    assert_eq!(crew.received(other), "+OK\r\n");
    crew.settle();
    for &conn in &clients {
        assert_eq!(crew.received(conn), "+OK\r\n".repeat(200));
        assert!(!crew.worlds[0].peer(conn.1).is_paused);
    }
}

#[test]
fn under_always_an_answer_waits_for_the_log_of_the_keys_worker() {
    let (first, of_first) = durable::logged(Fsync::Always);
    let (second, of_second) = durable::logged(Fsync::Always);
    let mut crew = Crew::of(vec![first, second]);
    let (one, other) = (crew.open(0), crew.open(1));
    assert_eq!(crew.ask(one, "SET a 1"), "");
    assert_eq!(crew.ask(other, "GET a"), "");
    assert_eq!(crew.ask(other, "SET b 1"), "", "behind it");
    of_second.borrow_mut().durable = 1;
    crew.pass_ms(1);
    assert_eq!(crew.received(one), "+OK\r\n");
    assert_eq!(crew.received(other), "$1\r\n1\r\n");
    of_first.borrow_mut().durable = 1;
    crew.pass_ms(1);
    assert_eq!(crew.received(other), "+OK\r\n");
    assert_eq!(crew.ask(one, "FLUSHALL"), "");
    of_first.borrow_mut().durable = 2;
    crew.pass_ms(1);
    assert_eq!(crew.received(one), "", "a part of it is not durable");
    of_second.borrow_mut().durable = 2;
    crew.pass_ms(1);
    assert_eq!(crew.received(one), "+OK\r\n");
    // No reply reports that the log has failed: the client is cut off.
    assert_eq!(crew.ask(one, "SET a 1"), "");
    of_second.borrow_mut().failed = Some("no disk".to_owned());
    crew.pass_ms(1);
    crew.settle();
    assert!(crew.worlds[0].peer(one.1).is_aborted);
    assert_eq!(crew.ask(other, "SET a 1"), "-MISCONF Errors writing to the AOF file: no disk\r\n");
    let reply = crew.open(0);
    assert!(crew.ask(reply, "SET a 1").starts_with("-MISCONF"));
}

/// Workers are heard in an order by chance, clients write and read numbers that only grow: a client that reads behind
/// an answered write sees it or a later one, and of one connection each reply is that of its command.
#[test]
fn a_read_behind_an_answered_write_never_sees_the_older_value() {
    let seed = laneway_testkit::soak::seed();
    let mut draw = Random::seeded(seed);
    for _ in 0..30 {
        let workers = 2 + draw.index(3);
        let mut crew = Crew::new(workers);
        let clients: Vec<Conn> = (0..6).map(|n| crew.open(n % workers)).collect();
        // By client, what its replies must be: the number of a write, or a read of a key that was at least so high.
        let mut owed: Vec<VecDeque<(usize, u64, bool)>> = vec![VecDeque::new(); clients.len()];
        let (mut written, mut answered) = ([0; 4], [0; 4]);
        for _ in 0..600 {
            match draw.index(4) {
                0 => {
                    let worker = draw.index(workers);
                    crew.hear(worker);
                }
                kind => {
                    let (client, key) = (draw.index(clients.len()), draw.index(4));
                    let is_write = kind == 1;
                    if is_write {
                        written[key] += 1;
                        owed[client].push_back((key, written[key], true));
                        crew.arrive(clients[client], &array(&format!("INCR key{key}")));
                    } else {
                        owed[client].push_back((key, answered[key], false));
                        crew.arrive(clients[client], &array(&format!("INCRBY key{key} 0")));
                    }
                }
            }
            for (client, &conn) in clients.iter().enumerate() {
                for reply in crew.received(conn).lines() {
                    let (key, least, is_write) = owed[client].pop_front().expect("it was asked");
                    let number: u64 = reply[1..].parse().expect("a number");
                    if is_write {
                        answered[key] = answered[key].max(number);
                    } else {
                        assert!(
                            number >= least,
                            "seed {seed}: {number} of key{key}, {least} was confirmed"
                        );
                    }
                }
            }
        }
        crew.settle();
        for (client, &conn) in clients.iter().enumerate() {
            let replies = crew.received(conn).lines().count();
            assert_eq!(replies, owed[client].len(), "seed {seed}");
        }
        for (key, &number) in written.iter().enumerate() {
            let conn = clients[0];
            assert_eq!(crew.ask(conn, &format!("INCRBY key{key} 0")), format!(":{number}\r\n"));
        }
    }
}

#[test]
fn the_memory_of_clients_is_divided_over_the_workers() {
    let config = Config { clients_memory: ClientsMemory::Bytes(6 << 20), ..Config::default() };
    let mut crew = Crew::with(3, config);
    let (great, small) = (crew.open(0), crew.open(1));
    // Unfinished commands of 4 MiB and of 1 MiB: less than all may have, and more than a third of it.
    for (conn, bytes) in [(great, 4 << 20), (small, 1 << 20)] {
        crew.arrive(conn, format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 8 << 20).as_bytes());
        crew.arrive(conn, &vec![b'x'; bytes]);
    }
    crew.pass_ms(1_000);
    let is_cut = |(worker, conn): Conn, crew: &mut Crew| crew.worlds[worker].peer(conn).is_aborted;
    assert!(is_cut(great, &mut crew) && !is_cut(small, &mut crew));
}

#[test]
fn a_reply_that_did_not_fit_cuts_off_who_wants_no_more_replies() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    assert_eq!(
        crew.ask(conn, "CONFIG SET client-output-buffer-limit 'normal 10000 0 0'"),
        "+OK\r\n"
    );
    for key in ["a", "b"] {
        assert_eq!(crew.ask(conn, &format!("SET {key} {}", "v".repeat(6_000))), "+OK\r\n");
    }
    crew.worlds[0].peer(conn.1).room = 0;
    // The other worker's answer arrives when this one has the next command.
    crew.arrive(conn, &[array("GET b"), array("GET a"), array("CLIENT REPLY OFF")].concat());
    crew.settle();
    assert!(crew.worlds[0].peer(conn.1).is_aborted);
}
