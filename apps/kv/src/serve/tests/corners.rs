//! Corners in which clients would see something else than of Redis, or the server would pay for what it need not.

use super::behaviour::talk;
use super::durable::logged;
use super::shards::Crew;
use super::*;

#[test]
fn a_client_that_spoils_its_own_transaction_is_noted_once() {
    let mut world = World::new();
    let conn = world.open();
    let keys: Vec<String> = (0..1_000).map(|number| format!("k{number}")).collect();
    let (pairs, keys) = (keys.join(" v "), keys.join(" "));
    talk(&mut world, conn, &[(&format!("MSET {pairs} v"), "+OK\r\n")]);
    talk(&mut world, conn, &[(&format!("WATCH {keys}"), "+OK\r\n")]);
    for _ in 0..100 {
        talk(&mut world, conn, &[("SWAPDB 0 1", "+OK\r\n"), ("SET k1 v", "+OK\r\n")]);
    }
    assert_eq!(world.kv.server.watched.spoiled.len(), 1);
    talk(&mut world, conn, &[("MULTI", "+OK\r\n"), ("PING", "+QUEUED\r\n"), ("EXEC", "*-1\r\n")]);
    assert!(world.kv.server.watched.spoiled.is_empty());
    talk(&mut world, conn, &[("WATCH k1", "+OK\r\n"), ("MULTI", "+OK\r\n"), ("EXEC", "*0\r\n")]);
}

#[test]
fn no_key_goes_to_a_database_that_there_is_not() {
    const OUT_OF_RANGE: &str = "-ERR DB index is out of range\r\n";
    let mut config = Config::default();
    config.data.databases = 4;
    let mut world = World::with(config, None);
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("SET k v", "+OK\r\n"),
            ("SELECT 4", OUT_OF_RANGE),
            ("MOVE k 4", OUT_OF_RANGE),
            ("MOVE k -1", OUT_OF_RANGE),
            ("COPY k k DB 4", OUT_OF_RANGE),
            ("SWAPDB 0 4", OUT_OF_RANGE),
            ("SWAPDB 15 0", OUT_OF_RANGE),
            ("DBSIZE", ":1\r\n"),
            ("COPY k k DB 3", ":1\r\n"),
            ("MOVE k 2", ":1\r\n"),
            ("SWAPDB 1 2", "+OK\r\n"),
            ("CONFIG SET hz 20", "+OK\r\n"),
            ("SWAPDB 1 4", OUT_OF_RANGE),
            ("SELECT 3", "+OK\r\n"),
            ("DBSIZE", ":1\r\n"),
        ],
    );
    let copy = array("COPY k k DB 7 REPLACE");
    let why = "a record's `COPY` fails: -ERR DB index is out of range; raise --databases";
    assert_eq!(world.kv.restore(&copy), Err(why.to_owned()));
}

/// A client that is idle for more than three seconds is closed.
fn impatient() -> World {
    let config = Config { idle_s: 3, ..Config::default() };
    World::with(config, None)
}

/// Passes in steps that are shorter than an idle client has.
fn pass_s(world: &mut World, seconds: u64) {
    (0..seconds).for_each(|_| world.pass_ms(1_000));
}

fn assert_ends_when_idle(world: &mut World, conn: ConnId) {
    assert!(!world.peer(conn).is_closed, "it is not idle");
    pass_s(world, 3);
    assert!(!world.peer(conn).is_closed, "it is not idle for so long");
    pass_s(world, 2);
    assert!(world.peer(conn).is_closed);
}

#[test]
fn a_client_that_has_waited_is_not_idle_when_it_is_answered() {
    for replies in ["ON", "OFF"] {
        let mut world = impatient();
        let conn = world.open();
        world.ask(conn, &format!("CLIENT REPLY {replies}"));
        assert_eq!(world.ask(conn, "BLPOP l 0"), "");
        pass_s(&mut world, 10);
        let giver = world.open();
        assert_eq!(world.ask(giver, "RPUSH l a"), ":1\r\n");
        assert_ends_when_idle(&mut world, conn);
        // Its time ends in the tick that looks for idle clients.
        let conn = world.open();
        world.ask(conn, &format!("CLIENT REPLY {replies}"));
        assert_eq!(world.ask(conn, "BLPOP l 10"), "");
        pass_s(&mut world, 10);
        assert_eq!(world.received(conn), if replies == "ON" { "*-1\r\n" } else { "" });
        assert_ends_when_idle(&mut world, conn);
    }
}

#[test]
fn a_client_that_sends_or_takes_a_long_value_is_not_idle() {
    let mut world = impatient();
    let conn = world.open();
    let set = array(&format!("SET k {}", "v".repeat(100)));
    for piece in set.chunks(set.len().div_ceil(10)) {
        world.arrive(conn, piece);
        pass_s(&mut world, 1);
    }
    assert_eq!(world.received(conn), "+OK\r\n");
    world.peer(conn).room = 0;
    world.arrive(conn, &array("GET k"));
    for _ in 0..10 {
        world.peer(conn).room = 10;
        world.kv.on_room(conn, &mut world.peers);
        pass_s(&mut world, 1);
    }
    assert_eq!(world.received(conn).len(), 100);
    world.peer(conn).room = 100;
    world.kv.on_room(conn, &mut world.peers);
    world.turn();
    assert_ends_when_idle(&mut world, conn);
}

#[test]
fn a_client_whose_command_is_held_back_is_not_idle() {
    let mut world = impatient();
    let (conn, operator) = (world.open(), world.open());
    assert_eq!(world.ask(operator, "CLIENT PAUSE 10000 WRITE"), "+OK\r\n");
    assert_eq!(world.ask(conn, "SET k 1"), "");
    pass_s(&mut world, 10);
    assert_eq!(world.received(conn), "+OK\r\n");
    assert!(world.peer(operator).is_closed, "this one was");
    assert_ends_when_idle(&mut world, conn);
    let other = world.open();
    assert_eq!(world.ask(other, "GET k"), "$1\r\n1\r\n");
}

#[test]
fn a_write_is_refused_for_memory_only_when_nothing_can_go() {
    let mut world = World::new();
    let conn = world.open();
    for from in (0..50_000).step_by(1_000) {
        let pairs: Vec<String> = (from..from + 1_000).map(|key| format!("k{key} v")).collect();
        talk(&mut world, conn, &[(&format!("MSET {}", pairs.join(" ")), "+OK\r\n")]);
    }
    let tenth = world.kv.server.store.used_bytes() / 10;
    let lower = format!("CONFIG SET maxmemory {tenth} maxmemory-policy");
    talk(&mut world, conn, &[(&format!("{lower} allkeys-lru"), "+OK\r\n"), ("SET k v", "+OK\r\n")]);
    assert_eq!(world.kv.server.store.counts().evicted, 10_000, "a command evicts no more");
    assert!(world.kv.server.store.is_over_limit());
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    talk(&mut world, conn, &[(&format!("{lower} noeviction"), "+OK\r\n"), ("SET k v", refused)]);
}

/// As `redis-server` 7.0 has it, where a hash is not configured otherwise.
#[test]
fn a_hash_of_512_fields_is_packed() {
    let mut world = World::new();
    let conn = world.open();
    for (fields, encoding) in
        [(128, "listpack"), (129, "listpack"), (512, "listpack"), (513, "hashtable")]
    {
        let pairs: Vec<String> = (0..fields).map(|field| format!("f{field} v")).collect();
        let set = format!("HSET h {}", pairs.join(" "));
        assert_eq!(world.ask(conn, &set), format!(":{fields}\r\n"));
        let encoded = format!("${}\r\n{encoding}\r\n", encoding.len());
        assert_eq!(world.ask(conn, "OBJECT ENCODING h"), encoded, "{fields}");
        let is_whole = world.ask(conn, "HSCAN h 0").starts_with("*2\r\n$1\r\n0\r\n");
        assert_eq!(is_whole, encoding == "listpack", "{fields}");
        let drawn = world.ask(conn, "HRANDFIELD h -1000");
        let drawn: Vec<&str> = drawn.lines().skip(2).step_by(2).collect();
        let is_one = |field: &&str| field[1..].parse::<i32>().is_ok_and(|number| number < fields);
        assert!(drawn.len() == 1_000 && drawn.iter().all(is_one), "{drawn:?}");
        assert_eq!(world.ask(conn, "DEL h"), ":1\r\n");
    }
}

/// Beside `redis-server`: `paused_clients_see_what_they_see_of_redis`.
#[test]
fn no_key_goes_while_clients_are_paused() {
    let (mut world, memory) = logged(Fsync::No);
    world.kv.serve_datagrams(Allowed(Vec::new()), None);
    let (conn, operator, listener) = (world.open(), world.open(), world.open());
    talk(&mut world, operator, &[("CONFIG SET notify-keyspace-events Ex", "+OK\r\n")]);
    world.ask(listener, "PSUBSCRIBE *");
    let set = ["SET k v PX 5", "SET w v PX 5", "SET x v PX 5"].map(|set| (set, "+OK\r\n"));
    talk(&mut world, conn, &set);
    talk(&mut world, operator, &[("CLIENT PAUSE 100000 WRITE", "+OK\r\n")]);
    let records = memory.borrow().records.len();
    world.pass_ms(10);
    talk(
        &mut world,
        conn,
        &[
            ("GET k", "$-1\r\n"),
            ("EXISTS k w", ":0\r\n"),
            ("TTL k", ":-2\r\n"),
            ("OBJECT ENCODING k", "$-1\r\n"),
            ("MEMORY USAGE k", "$-1\r\n"),
            ("KEYS *", "*0\r\n"),
            ("DBSIZE", ":3\r\n"),
            // It was gone before it was watched, and is so when it goes.
            ("WATCH w", "+OK\r\n"),
            ("MULTI", "+OK\r\n"),
            ("GET w", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n$-1\r\n"),
            ("WATCH w", "+OK\r\n"),
        ],
    );
    assert_eq!(world.datagram("127.0.0.1:5000", "GET k"), ["$-1\r\n"]);
    world.pass_ms(1);
    assert_eq!((memory.borrow().records.len(), world.received(listener)), (records, String::new()));
    assert_eq!(world.kv.server.store.counts().expired, 0);
    // Another client watches one that is there, and one whose time is up and that another sets.
    let watcher = world.open();
    talk(&mut world, watcher, &[("WATCH x", "+OK\r\n")]);
    talk(&mut world, operator, &[("CLIENT UNPAUSE", "+OK\r\n")]);
    world.pass_ms(1);
    assert_eq!(world.kv.server.store.counts().expired, 3);
    assert_eq!(world.received(listener).matches("__keyevent@0__:expired").count(), 3);
    assert!(memory.borrow().records.len() > records);
    talk(&mut world, operator, &[("DBSIZE", ":0\r\n"), ("SET x v", "+OK\r\n")]);
    for (conn, reply) in [(conn, "*1\r\n+PONG\r\n"), (watcher, "*-1\r\n")] {
        talk(&mut world, conn, &[("MULTI", "+OK\r\n"), ("PING", "+QUEUED\r\n"), ("EXEC", reply)]);
    }
}

#[test]
fn what_writes_during_a_pause_deletes_what_is_due() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    talk(&mut world, conn, &[("RPUSH l a", ":1\r\n"), ("PEXPIRE l 5", ":1\r\n")]);
    // Not by a tick, which would delete it.
    world.now_us.set(world.now_us.get() + 10_000);
    let lines = ["MULTI", "CLIENT PAUSE 1000", "LLEN l", "RPUSH l b", "LRANGE l 0 -1", "EXEC"];
    world.arrive(conn, &lines.map(array).concat());
    let replies = "*4\r\n+OK\r\n:0\r\n:1\r\n*1\r\n$1\r\nb\r\n";
    assert!(world.received(conn).ends_with(replies));
    let last = memory.borrow().records.last().cloned().expect("it is logged");
    let logged = String::from_utf8_lossy(&last).into_owned();
    assert!(logged.contains("DEL\r\n$1\r\nl") && logged.contains("RPUSH"), "{logged}");
}

/// As `redis-server` 7.0.15 sends them.
#[test]
fn messages_to_oneself_are_sent_though_replies_are_left_out() {
    fn pushed(parts: &[&str]) -> String {
        let part = |part: &&str| match part.strip_prefix(':') {
            Some(_) => format!("{part}\r\n"),
            None => format!("${}\r\n{part}\r\n", part.len()),
        };
        format!(">{}\r\n{}", parts.len(), parts.iter().map(part).collect::<String>())
    }
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    world.ask(conn, "HELLO 3");
    let message = pushed(&["message", "c", "x"]);
    let inside = [
        pushed(&["subscribe", "d", ":2"]),
        pushed(&["message", "d", "y"]),
        pushed(&["psubscribe", "d*", ":3"]),
        pushed(&["message", "d", "z"]),
        pushed(&["pmessage", "d*", "d", "z"]),
    ];
    talk(
        &mut world,
        conn,
        &[
            ("SUBSCRIBE c", &pushed(&["subscribe", "c", ":1"])),
            ("CLIENT REPLY OFF", ""),
            ("PUBLISH c x", &message),
            ("SPUBLISH s x", ""),
            ("SSUBSCRIBE s", &pushed(&["ssubscribe", "s", ":1"])),
            ("SPUBLISH s x", &pushed(&["smessage", "s", "x"])),
            ("GET k", ""),
            ("MULTI", ""),
            ("SUBSCRIBE d", ""),
            ("GET k", ""),
            ("PUBLISH d y", ""),
            ("PSUBSCRIBE d*", ""),
            ("PUBLISH d z", ""),
            ("EXEC", &inside.concat()),
            ("UNSUBSCRIBE d", &pushed(&["unsubscribe", "d", ":2"])),
            ("CLIENT REPLY ON", "+OK\r\n"),
            ("CLIENT REPLY SKIP", ""),
            ("PUBLISH c x", &message),
            ("PUBLISH c x", &format!("{message}:1\r\n")),
            ("CLIENT REPLY OFF", ""),
        ],
    );
    talk(&mut world, operator, &[("CLIENT PAUSE 1000 WRITE", "+OK\r\n")]);
    talk(&mut world, conn, &[("PUBLISH c x", "")]);
    talk(&mut world, operator, &[("CLIENT UNPAUSE", "+OK\r\n")]);
    assert_eq!(world.received(conn), message, "it was held back");
}

#[test]
fn a_message_that_finds_no_room_behind_what_is_left_out_is_not_lost_silently() {
    let mut config = Config::default();
    (config.normal.hard_bytes, config.pubsub.hard_bytes) = (4000, 4000);
    let mut world = World::with(config, None);
    let conn = world.open();
    world.ask(conn, "HELLO 3");
    for line in ["SUBSCRIBE c", "CLIENT REPLY OFF", "MULTI", "MGET k k k", "SUBSCRIBE d"] {
        world.ask(conn, line);
    }
    let other = world.open();
    talk(&mut world, other, &[(&format!("SET k {}", "v".repeat(1600)), "+OK\r\n")]);
    talk(&mut world, conn, &[("EXEC", "")]);
    assert!(world.peer(conn).is_aborted);
}

/// `redis-server` 7.0.15 adds without looking, so that such a pause is none there; later versions refuse it.
#[test]
fn a_time_that_cannot_be_counted_is_refused() {
    const OUT_OF_RANGE: &str = "-ERR timeout is out of range\r\n";
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("CLIENT PAUSE 9223372036854775807", OUT_OF_RANGE),
            ("CLIENT PAUSE 9223372036854775807 WRITE", OUT_OF_RANGE),
            (
                "CLIENT PAUSE 9223372036854775808",
                "-ERR timeout is not an integer or out of range\r\n",
            ),
            ("WAIT 1 9223372036854775807", OUT_OF_RANGE),
            ("WAIT 0 9223372036854775807", OUT_OF_RANGE),
            ("PING", "+PONG\r\n"),
            ("CLIENT PAUSE 0", "+OK\r\n"),
            ("PING", "+PONG\r\n"),
            ("CLIENT PAUSE 9223370000000000000", "+OK\r\n"),
            ("PING", ""),
        ],
    );
}

#[test]
fn names_that_are_listened_to_at_several_workers_are_counted_once() {
    let mut crew = Crew::new(2);
    let (one, other) = (crew.open(0), crew.open(1));
    for (conn, lines) in [
        (one, ["SUBSCRIBE news ''", "PSUBSCRIBE n* o*", "SSUBSCRIBE s"]),
        (other, ["SUBSCRIBE news more", "PSUBSCRIBE n*", "SSUBSCRIBE s t"]),
    ] {
        lines.iter().for_each(|line| drop(crew.ask(conn, line)));
    }
    for worker in [0, 1] {
        let asker = crew.open(worker);
        assert!(crew.ask(asker, "PUBSUB CHANNELS").starts_with("*3\r\n"));
        assert!(crew.ask(asker, "PUBSUB SHARDCHANNELS").starts_with("*2\r\n"));
        assert_eq!(crew.ask(asker, "PUBSUB NUMPAT"), ":2\r\n");
        let info = crew.ask(asker, "INFO stats");
        for line in ["pubsub_channels:3", "pubsub_patterns:2", "pubsubshard_channels:2"] {
            assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}: {info}");
        }
    }
}

#[test]
fn clients_that_are_left_with_nothing_keep_their_places() {
    let mut world = World::new();
    let giver = world.open();
    let lines = ["BLPOP l 0", "BZPOPMIN l 0", "BLMOVE l m LEFT LEFT 0", "BRPOP l 0", "BLPOP l 0"];
    let waiters = lines.map(|line| {
        let conn = world.open();
        assert_eq!(world.ask(conn, line), "");
        conn
    });
    let popped = |element: &str| format!("*2\r\n$1\r\nl\r\n$1\r\n{element}\r\n");
    let mut given = |line: &str| {
        assert!(world.ask(giver, line).starts_with(':'), "{line}");
        waiters.map(|conn| world.received(conn))
    };
    let none = String::new;
    assert_eq!(
        given("RPUSH l a b"),
        [popped("a"), none(), "$1\r\nb\r\n".to_owned(), none(), none()]
    );
    assert_eq!(
        given("ZADD l 1 x"),
        [none(), "*3\r\n$1\r\nl\r\n$1\r\nx\r\n$1\r\n1\r\n".to_owned(), none(), none(), none()]
    );
    assert_eq!(given("RPUSH l c d"), [none(), none(), none(), popped("d"), popped("c")]);
    assert!(world.kv.server.waiters.is_empty());
}

#[test]
fn who_ends_a_pause_hears_what_it_held_back() {
    let mut world = World::new();
    let (conn, speaker) = (world.open(), world.open());
    for line in ["HELLO 3", "SUBSCRIBE c", "CLIENT PAUSE 1000 WRITE"] {
        world.ask(conn, line);
    }
    assert_eq!(world.ask(speaker, "PUBLISH c x"), "");
    let message = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";
    assert_eq!(world.ask(conn, "CLIENT UNPAUSE"), format!("+OK\r\n{message}"));
    assert_eq!(world.received(speaker), ":1\r\n");
}
