//! What clients and operators see.

use super::*;
use crate::serve::ClientsMemory;
use std::time::{Duration, Instant};

/// Asks each line of one client and compares the replies.
pub(super) fn talk(world: &mut World, conn: ConnId, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(world.ask(conn, line), *reply, "{line}");
    }
}

#[test]
fn connections_say_who_they_are() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("PING", "+PONG\r\n"),
            ("ping hi", "$2\r\nhi\r\n"),
            ("ECHO hi", "$2\r\nhi\r\n"),
            ("SELECT 3", "+OK\r\n"),
            ("SELECT 16", "-ERR DB index is out of range\r\n"),
            ("SELECT a", "-ERR value is not an integer or out of range\r\n"),
            (
                "SELECT 2147483648",
                "-ERR value is out of range, value must between -2147483648 and 2147483647\r\n",
            ),
            ("CLIENT ID", ":1\r\n"),
            ("CLIENT GETNAME", "$-1\r\n"),
            ("CLIENT SETNAME me", "+OK\r\n"),
            ("CLIENT GETNAME", "$2\r\nme\r\n"),
            (
                "CLIENT SETNAME 'a b'",
                "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
            ),
            ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
            ("RESET", "+RESET\r\n"),
            ("CLIENT GETNAME", "$-1\r\n"),
        ],
    );
    let hello = world.ask(conn, "HELLO 3 SETNAME you");
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello}");
    talk(&mut world, conn, &[("GET nothing", "_\r\n"), ("QUIT", "+OK\r\n")]);
    assert!(world.peer(conn).is_closed);
}

#[test]
fn what_is_no_command_gets_the_errors_of_redis() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' \r\n"),
            ("get", "-ERR wrong number of arguments for 'get' command\r\n"),
            ("CONFIG", "-ERR wrong number of arguments for 'config' command\r\n"),
            ("CONFIG nosuch", "-ERR unknown subcommand 'nosuch'. Try CONFIG HELP.\r\n"),
            ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"),
            ("'' x", "-ERR unknown command '', with args beginning with: 'x' \r\n"),
            ("GET|x", "-ERR unknown command 'GET|x', with args beginning with: \r\n"),
            (
                "CONFIG|GET port",
                "-ERR unknown command 'CONFIG|GET', with args beginning with: 'port' \r\n",
            ),
            ("ACL|WHOAMI", "-ERR unknown command 'ACL|WHOAMI', with args beginning with: \r\n"),
        ],
    );
    let long = "x".repeat(300);
    let reply = world.ask(conn, &format!("{long} {long}"));
    assert_eq!(
        reply,
        format!("-ERR unknown command '{0}', with args beginning with: '{0}' \r\n", &long[..128])
    );
    world.arrive(conn, b"*1\r\n$-2\r\n");
    assert_eq!(world.received(conn), "-ERR Protocol error: invalid bulk length\r\n");
    assert!(world.peer(conn).is_closed, "what follows has no meaning");
}

#[test]
fn transactions_are_done_whole_or_not_at_all() {
    let mut world = World::new();
    let (conn, other) = (world.open(), world.open());
    talk(
        &mut world,
        conn,
        &[
            ("EXEC", "-ERR EXEC without MULTI\r\n"),
            ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
            ("MULTI", "+OK\r\n"),
            ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
            ("WATCH k", "-ERR WATCH inside MULTI is not allowed\r\n"),
            ("SET k 1", "+QUEUED\r\n"),
            ("INCR k", "+QUEUED\r\n"),
        ],
    );
    assert_eq!(world.ask(other, "GET k"), "$-1\r\n", "nothing is done before EXEC");
    talk(
        &mut world,
        conn,
        &[
            ("EXEC", "*2\r\n+OK\r\n:2\r\n"),
            ("MULTI", "+OK\r\n"),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
            ("MULTI", "+OK\r\n"),
            ("INCR k", "+QUEUED\r\n"),
            ("DISCARD", "+OK\r\n"),
            ("GET k", "$1\r\n2\r\n"),
            ("MULTI", "+OK\r\n"),
            ("BLPOP l 0", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n*-1\r\n"),
            ("PING", "+PONG\r\n"),
        ],
    );
}

#[test]
fn a_watched_key_that_changes_spoils_the_transaction() {
    let mut world = World::new();
    let (conn, other) = (world.open(), world.open());
    for (change, is_spoiled) in
        [("SET k 2", true), ("SET j 2", false), ("GET k", false), ("FLUSHALL", true)]
    {
        world.ask(conn, "SET k 1");
        talk(
            &mut world,
            conn,
            &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n"), ("PING", "+QUEUED\r\n")],
        );
        world.ask(other, change);
        let reply = if is_spoiled { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
        assert_eq!(world.ask(conn, "EXEC"), reply, "{change}");
    }
    world.ask(conn, "WATCH k");
    world.ask(conn, "SET k 5");
    talk(
        &mut world,
        conn,
        &[("MULTI", "+OK\r\n"), ("EXEC", "*-1\r\n"), ("MULTI", "+OK\r\n"), ("EXEC", "*0\r\n")],
    );
    world.ask(conn, "WATCH k");
    world.close(conn);
    assert!(world.kv.server.watched.is_empty(), "no client watches any more");
}

#[test]
fn a_watched_key_whose_time_is_up_spoils_the_transaction_before_it_is_deleted() {
    let mut world = World::new();
    let conn = world.open();
    for (ms, reply) in [(50, "*1\r\n+OK\r\n"), (51, "*-1\r\n")] {
        talk(&mut world, conn, &[("SET k v PX 50", "+OK\r\n"), ("WATCH k", "+OK\r\n")]);
        // Not by a tick, which would delete it.
        world.now_us.set(world.now_us.get() + ms * 1000);
        talk(
            &mut world,
            conn,
            &[("MULTI", "+OK\r\n"), ("SET other 1", "+QUEUED\r\n"), ("EXEC", reply)],
        );
    }
    // One that was gone before it was watched stays so.
    talk(
        &mut world,
        conn,
        &[
            ("WATCH k", "+OK\r\n"),
            ("MULTI", "+OK\r\n"),
            ("PING", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n+PONG\r\n"),
        ],
    );
}

/// What Redis's own tests of transactions ask (tests/unit/multi.tcl and type/set.tcl of 7.0.15).
#[test]
fn a_watched_key_that_stays_as_it_is_spoils_nothing() {
    // Before WATCH, by the client; behind it, by another.
    let cases: [(&[&str], &[&str], bool); 16] = [
        (&[], &["FLUSHALL"], false),
        (&[], &["FLUSHDB"], false),
        (&["SET k 1"], &["FLUSHDB"], true),
        (&[], &["SWAPDB 0 1"], false),
        (&["SET k 1"], &["SWAPDB 0 1"], true),
        (&["SELECT 1", "SET k 1", "SELECT 0"], &["SWAPDB 0 1"], true),
        (&["SET k 1"], &["SWAPDB 0 0"], false),
        // A trimmed list is another to Redis, whatever is left of it.
        (&["RPUSH k a b"], &["LTRIM k 0 -1"], true),
        (&[], &["LTRIM k 0 -1"], false),
        (&["SADD s a b", "SADD k a"], &["SMOVE s k a"], false),
        (&["SADD s a b", "SADD k a"], &["SMOVE s k b"], true),
        (&["SETBIT k 7 1"], &["SETBIT k 7 1", "BITFIELD k SET u8 0 1"], false),
        (&["SETBIT k 7 1"], &["SETBIT k 7 0"], true),
        (&["SETBIT k 7 1"], &["BITFIELD k SET u8 0 2"], true),
        (&["SETBIT k 7 1"], &["SETBIT k 8 0"], true),
        // Due before it is watched: its end is no change behind it.
        (&["SET k 1 PX 1", "wait"], &["GET k", "DBSIZE"], false),
    ];
    for (before, behind, is_spoiled) in cases {
        let mut world = World::new();
        let (conn, other) = (world.open(), world.open());
        for line in before {
            match *line {
                "wait" => world.now_us.set(world.now_us.get() + 10_000),
                line => drop(world.ask(conn, line)),
            }
        }
        talk(
            &mut world,
            conn,
            &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n"), ("PING", "+QUEUED\r\n")],
        );
        for line in behind {
            world.ask(other, line);
        }
        let reply = if is_spoiled { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
        assert_eq!(world.ask(conn, "EXEC"), reply, "{before:?}, then {behind:?}");
    }
}

#[test]
fn a_database_that_takes_the_place_of_another_serves_who_waits_there() {
    let mut world = World::new();
    let (waiter, other) = (world.open(), world.open());
    talk(&mut world, other, &[("SELECT 1", "+OK\r\n"), ("RPUSH l a b", ":2\r\n")]);
    assert_eq!(world.ask(waiter, "BLPOP none l 0"), "", "it waits");
    talk(&mut world, other, &[("SWAPDB 0 1", "+OK\r\n")]);
    assert_eq!(world.received(waiter), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
    talk(&mut world, waiter, &[("LLEN l", ":1\r\n")]);
}

/// As `redis-server` 7.0.15 answers: what is queued takes memory, whatever it does.
#[test]
fn a_transaction_without_memory_queues_nothing() {
    const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let mut world = World::new();
    let conn = world.open();
    let discarded = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    talk(&mut world, conn, &[("SET k 1", "+OK\r\n"), ("CONFIG SET maxmemory 1", "+OK\r\n")]);
    for line in ["GET k", "SET k 2", "DEL k", "PING", "MULTI", "WATCH k"] {
        talk(&mut world, conn, &[("MULTI", "+OK\r\n"), (line, OOM), ("EXEC", discarded)]);
    }
    talk(&mut world, conn, &[("MULTI", "+OK\r\n"), ("EXEC", "*0\r\n")]);
    talk(&mut world, conn, &[("MULTI", "+OK\r\n"), ("DISCARD", "+OK\r\n")]);
    talk(
        &mut world,
        conn,
        &[("MULTI", "+OK\r\n"), ("RESET", "+RESET\r\n"), ("GET k", "$1\r\n1\r\n")],
    );
}

#[test]
fn a_transaction_that_finds_no_memory_at_its_end_is_discarded() {
    let mut world = World::new();
    let (conn, other) = (world.open(), world.open());
    const NO_MEMORY: &str = "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > \
                             'maxmemory'.\r\n";
    for (queued, reply) in
        [(["SET k 2", "GET k"], NO_MEMORY), (["GET k", "TTL k"], "*2\r\n$1\r\n1\r\n:-1\r\n")]
    {
        talk(&mut world, other, &[("CONFIG SET maxmemory 0", "+OK\r\n"), ("SET k 1", "+OK\r\n")]);
        world.ask(conn, "MULTI");
        talk(&mut world, conn, &queued.map(|line| (line, "+QUEUED\r\n")));
        world.ask(other, "CONFIG SET maxmemory 1");
        talk(&mut world, conn, &[("EXEC", reply), ("EXEC", "-ERR EXEC without MULTI\r\n")]);
    }
}

/// What Redis's own tests of CLIENT PAUSE ask (tests/unit/pause.tcl of 7.0.15).
#[test]
fn a_pause_of_writes_holds_back_transactions_that_write() {
    let mut world = World::new();
    let (conn, other) = (world.open(), world.open());
    for (queued, reply) in [("SET k 2", "*1\r\n+OK\r\n"), ("GET k", "*1\r\n$1\r\n1\r\n")] {
        let is_write = queued.starts_with("SET");
        talk(
            &mut world,
            conn,
            &[("SET k 1", "+OK\r\n"), ("MULTI", "+OK\r\n"), (queued, "+QUEUED\r\n")],
        );
        talk(&mut world, other, &[("CLIENT PAUSE 60000 WRITE", "+OK\r\n")]);
        assert_eq!(world.ask(conn, "EXEC"), if is_write { "" } else { reply }, "{queued}");
        let info = world.ask(other, "INFO clients");
        assert!(info.contains(&format!("blocked_clients:{}\r\n", u8::from(is_write))), "{info}");
        talk(&mut world, other, &[("CLIENT UNPAUSE", "+OK\r\n")]);
        assert_eq!(world.received(conn), if is_write { reply } else { "" }, "{queued}");
    }
}

#[test]
fn no_key_expires_or_is_evicted_during_a_pause() {
    let mut world = World::new();
    let (conn, other) = (world.open(), world.open());
    talk(&mut world, conn, &[("SET k 1 PX 10", "+OK\r\n"), ("SET n 1", "+OK\r\n")]);
    talk(
        &mut world,
        conn,
        &[
            ("CLIENT PAUSE 100000 WRITE", "+OK\r\n"),
            ("CONFIG SET maxmemory-policy allkeys-random maxmemory 1", "+OK\r\n"),
        ],
    );
    world.pass_ms(1000);
    assert_eq!(world.ask(other, "SET m 1"), "");
    talk(&mut world, conn, &[("DBSIZE", ":2\r\n"), ("CONFIG SET maxmemory 0", "+OK\r\n")]);
    talk(&mut world, conn, &[("CLIENT UNPAUSE", "+OK\r\n")]);
    assert_eq!(world.received(other), "+OK\r\n");
    world.pass_ms(1);
    talk(&mut world, conn, &[("DBSIZE", ":2\r\n"), ("GET k", "$-1\r\n")]);
}

/// Redis does a command that it held back from its beginning.
#[test]
fn what_a_pause_held_back_is_let_in_as_if_it_had_just_arrived() {
    let mut world = World::new();
    let (conn, other, operator) = (world.open(), world.open(), world.open());
    world.ask(operator, "ACL SETUSER u on nopass ~* +@all");
    assert_eq!(world.ask(conn, "AUTH u x"), "+OK\r\n");
    world.ask(operator, "SET k 3");
    talk(&mut world, other, &[("MULTI", "+OK\r\n"), ("SET k 2", "+QUEUED\r\n")]);
    world.ask(operator, "CLIENT PAUSE 100000 WRITE");
    assert_eq!(world.ask(conn, "SET k 1"), "");
    assert_eq!(world.ask(other, "EXEC"), "");
    assert_eq!(world.ask(operator, "ACL SETUSER u -set"), "+OK\r\n");
    assert_eq!(world.ask(operator, "CONFIG SET maxmemory 1"), "+OK\r\n");
    assert_eq!(world.ask(operator, "CLIENT UNPAUSE"), "+OK\r\n");
    let denied = "-NOPERM this user has no permissions to run the 'set' command\r\n";
    assert_eq!(world.received(conn), denied);
    let discarded = "-EXECABORT Transaction discarded because of: OOM command not allowed when \
                     used memory > 'maxmemory'.\r\n";
    assert_eq!(world.received(other), discarded);
    assert_eq!(world.ask(operator, "GET k"), "$1\r\n3\r\n");
}

#[test]
fn a_client_that_has_hung_up_waits_for_no_data_however_late_it_begins_to() {
    let mut world = World::new();
    let (conn, other, operator) = (world.open(), world.open(), world.open());
    world.ask(operator, "CLIENT PAUSE 100000 WRITE");
    assert_eq!(world.ask(conn, "BLPOP l 0"), "");
    world.arrive(other, &[array("SET k 1"), array("BLPOP l 0")].concat());
    for one in [conn, other] {
        world.finish(one);
        assert!(!world.peer(one).is_closed, "it has asked before");
    }
    world.ask(operator, "CLIENT UNPAUSE");
    assert_eq!((world.received(conn), world.received(other)), (String::new(), "+OK\r\n".into()));
    assert!(world.peer(conn).is_closed && world.peer(other).is_closed);
    assert!(world.ask(operator, "INFO clients").contains("blocked_clients:0\r\n"));
}

#[test]
fn a_limit_that_is_lowered_holds_though_nothing_is_written() {
    let mut world = World::new();
    let conn = world.open();
    let pairs: Vec<String> = (0..3000).map(|key| format!("k{key} v")).collect();
    assert_eq!(world.ask(conn, &format!("MSET {}", pairs.join(" "))), "+OK\r\n");
    let used = world.kv.server.store.used_bytes();
    assert_eq!(world.ask(conn, &format!("CONFIG SET maxmemory {}", used / 8)), "+OK\r\n");
    world.pass_ms(1);
    assert_eq!(world.ask(conn, "DBSIZE"), ":3000\r\n", "no policy allows a key to go");
    world.ask(conn, "CONFIG SET maxmemory-policy allkeys-random");
    world.pass_ms(1);
    assert_eq!(world.ask(conn, "DBSIZE"), ":1000\r\n", "a bounded number of keys per tick");
    world.pass_ms(1);
    assert!(!world.kv.server.store.is_over_limit());
}

#[test]
fn the_memory_of_a_key_grows_with_it() {
    let mut world = World::new();
    let conn = world.open();
    let usages = ["SET k 1", "APPEND k 100000000000000000000", "DEL k", "RPUSH k a"].map(|line| {
        world.ask(conn, line);
        let usage = world.ask(conn, "MEMORY USAGE k SAMPLES 0");
        usage.trim_end().trim_start_matches(':').parse::<i64>().unwrap_or(-1)
    });
    let [small, longer, gone, list] = usages;
    assert!(small > 0 && longer > small && list > small, "{usages:?}");
    assert_eq!(gone, -1);
    talk(
        &mut world,
        conn,
        &[
            ("MEMORY USAGE none", "$-1\r\n"),
            ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error\r\n"),
            ("MEMORY USAGE k SAMPLES", "-ERR syntax error\r\n"),
            ("MEMORY USAGE k OTHER 1", "-ERR syntax error\r\n"),
        ],
    );
}

#[test]
fn messages_reach_everybody_who_listens() {
    let mut world = World::new();
    let (two, three, speaker) = (world.open(), world.open(), world.open());
    world.ask(three, "HELLO 3");
    talk(
        &mut world,
        two,
        &[
            (
                "SUBSCRIBE a b",
                "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
            ),
            (
                "GET k",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context\r\n",
            ),
            ("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
        ],
    );
    talk(
        &mut world,
        three,
        &[("PSUBSCRIBE ?", ">3\r\n$10\r\npsubscribe\r\n$1\r\n?\r\n:1\r\n"), ("GET k", "_\r\n")],
    );
    talk(
        &mut world,
        speaker,
        &[
            ("PUBLISH a hi", ":2\r\n"),
            ("PUBLISH none", "-ERR wrong number of arguments for 'publish' command\r\n"),
            ("PUBLISH long hi", ":0\r\n"),
            ("PUBSUB CHANNELS", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("PUBSUB NUMSUB a x", "*4\r\n$1\r\na\r\n:1\r\n$1\r\nx\r\n:0\r\n"),
            ("PUBSUB NUMPAT", ":1\r\n"),
        ],
    );
    assert_eq!(world.received(two), "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n");
    assert_eq!(world.received(three), ">4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\na\r\n$2\r\nhi\r\n");
    talk(
        &mut world,
        two,
        &[
            ("UNSUBSCRIBE a", "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n"),
            ("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n"),
            ("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"),
        ],
    );
    world.close(three);
    assert_eq!(world.ask(speaker, "PUBLISH a hi"), ":0\r\n");
}

#[test]
fn channels_of_shards_have_names_of_their_own() {
    let mut world = World::new();
    let (two, three, speaker) = (world.open(), world.open(), world.open());
    world.ask(three, "HELLO 3");
    let confirmed = |verb: &str, name: &str, count: u8| {
        format!("*3\r\n${}\r\n{verb}\r\n$1\r\n{name}\r\n:{count}\r\n", verb.len())
    };
    talk(
        &mut world,
        two,
        &[
            (
                "SSUBSCRIBE a b",
                &(confirmed("ssubscribe", "a", 1) + &confirmed("ssubscribe", "b", 2)),
            ),
            ("SUBSCRIBE c", &confirmed("subscribe", "c", 1)),
            ("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
        ],
    );
    assert!(world.ask(two, "GET k").starts_with("-ERR Can't execute 'get'"));
    talk(&mut world, three, &[("SSUBSCRIBE a", ">3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n")]);
    talk(
        &mut world,
        speaker,
        &[
            ("SPUBLISH a hi", ":2\r\n"),
            ("SPUBLISH c hi", ":0\r\n"),
            ("PUBLISH a hi", ":0\r\n"),
            ("PUBSUB SHARDCHANNELS", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("PUBSUB SHARDCHANNELS b*", "*1\r\n$1\r\nb\r\n"),
            ("PUBSUB SHARDNUMSUB a x", "*4\r\n$1\r\na\r\n:2\r\n$1\r\nx\r\n:0\r\n"),
            ("PUBSUB CHANNELS", "*1\r\n$1\r\nc\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SSUBSCRIBE a", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client\r\n"),
        ],
    );
    assert_eq!(world.received(two), "*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$2\r\nhi\r\n");
    assert_eq!(world.received(three), ">3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$2\r\nhi\r\n");
    assert!(world.ask(three, "CLIENT INFO").contains(" sub=0 psub=0 ssub=1 "));
    talk(
        &mut world,
        two,
        &[
            ("SUNSUBSCRIBE a", &confirmed("sunsubscribe", "a", 1)),
            ("UNSUBSCRIBE", &confirmed("unsubscribe", "c", 0)),
            ("SUNSUBSCRIBE", &confirmed("sunsubscribe", "b", 0)),
            ("SUNSUBSCRIBE", "*3\r\n$12\r\nsunsubscribe\r\n$-1\r\n:0\r\n"),
            ("GET k", "$-1\r\n"),
        ],
    );
    world.close(three);
    talk(&mut world, speaker, &[("SPUBLISH a hi", ":0\r\n")]);
    world.ask(speaker, "ACL SETUSER ann on nopass &news +@all");
    const NO_CHANNEL: &str =
        "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
    talk(
        &mut world,
        two,
        &[
            ("AUTH ann x", "+OK\r\n"),
            ("SPUBLISH news x", ":0\r\n"),
            ("SPUBLISH other x", NO_CHANNEL),
            ("SSUBSCRIBE other", NO_CHANNEL),
        ],
    );
}

/// As redis-server 7.0 has it: only where elements are listed, `*` alone means the empty one as well.
#[test]
fn no_pattern_but_the_empty_one_fits_what_is_empty() {
    let mut world = World::new();
    let (conn, listener) = (world.open(), world.open());
    world.ask(listener, "PSUBSCRIBE *");
    talk(
        &mut world,
        conn,
        &[
            ("PUBLISH '' m", ":0\r\n"),
            ("PUBLISH a m", ":1\r\n"),
            ("SET '' x", "+OK\r\n"),
            ("KEYS *", "*1\r\n$0\r\n\r\n"),
            ("KEYS **", "*0\r\n"),
            ("KEYS ''", "*1\r\n$0\r\n\r\n"),
            ("SCAN 0 MATCH *", "*2\r\n$1\r\n0\r\n*1\r\n$0\r\n\r\n"),
            ("SCAN 0 MATCH **", "*2\r\n$1\r\n0\r\n*0\r\n"),
            ("HSET h '' v", ":1\r\n"),
            ("HSCAN h 0 MATCH *", "*2\r\n$1\r\n0\r\n*2\r\n$0\r\n\r\n$1\r\nv\r\n"),
            ("HSCAN h 0 MATCH **", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ],
    );
    world.ask(listener, "PUNSUBSCRIBE");
    world.ask(listener, "PSUBSCRIBE ''");
    talk(&mut world, conn, &[("PUBLISH '' m", ":1\r\n")]);
    world.ask(listener, "SUBSCRIBE ''");
    talk(
        &mut world,
        conn,
        &[("PUBSUB CHANNELS *", "*0\r\n"), ("PUBSUB CHANNELS", "*1\r\n$0\r\n\r\n")],
    );
}

#[test]
fn a_listener_that_reads_nothing_is_cut_off() {
    let mut config = Config::default();
    config.pubsub.hard_bytes = 1000;
    let mut world = World::with(config, None);
    let (listener, speaker) = (world.open(), world.open());
    world.ask(listener, "SUBSCRIBE a");
    world.peer(listener).room = 0;
    for _ in 0..100 {
        world.ask(speaker, "PUBLISH a 0123456789");
    }
    assert!(world.peer(listener).is_aborted);
    assert!(
        world
            .ask(speaker, "INFO stats")
            .contains("client_output_buffer_limit_disconnections:1\r\n")
    );
}

#[test]
fn a_reply_longer_than_a_client_may_be_owed_cuts_it_off_and_does_what_was_asked() {
    let mut config = Config::default();
    config.normal.hard_bytes = 4000;
    let mut world = World::with(config, None);
    let other = world.open();
    let value = "v".repeat(1600);
    talk(&mut world, other, &[(&format!("MSET k {value} n 0"), "+OK\r\n")]);
    talk(&mut world, other, &[("SADD s a", ":1\r\n"), ("RPUSH l a", ":1\r\n")]);
    for line in ["MGET k k k", "SRANDMEMBER s -1000", "MGET k k n k"] {
        let conn = world.open();
        world.arrive(conn, &[array(line), array("INCR n")].concat());
        assert_eq!(world.received(conn), "", "{line}");
        assert!(world.peer(conn).is_aborted, "{line}");
    }
    talk(&mut world, other, &[("GET n", "$1\r\n0\r\n")]);
    let conn = world.open();
    let lines = ["MULTI", "GET k", "GET k", "GET k", "INCR n", "LPOP l", "GETEX k x", "EXEC"];
    world.arrive(conn, &lines.map(array).concat());
    assert!(world.peer(conn).is_aborted, "the whole reply counts");
    talk(&mut world, other, &[("GET n", "$1\r\n1\r\n"), ("LLEN l", ":0\r\n")]);
    assert!(
        world.ask(other, "INFO stats").contains("client_output_buffer_limit_disconnections:4\r\n")
    );
}

#[test]
fn a_reply_that_is_left_out_may_be_of_any_length() {
    let mut config = Config::default();
    config.normal.hard_bytes = 4000;
    let mut world = World::with(config, None);
    let conn = world.open();
    let value = "v".repeat(1600);
    talk(&mut world, conn, &[(&format!("SET k {value}"), "+OK\r\n")]);
    let lines = ["CLIENT REPLY OFF", "MGET k k k", "CLIENT REPLY ON", "ECHO a"];
    world.arrive(conn, &lines.map(array).concat());
    assert_eq!(world.received(conn), "+OK\r\n$1\r\na\r\n");
    talk(&mut world, conn, &[("CONFIG SET client-output-buffer-limit 'normal 0 0 0'", "+OK\r\n")]);
    assert!(world.ask(conn, "MGET k k k").ends_with(&format!("{value}\r\n")));
}

/// Each step took as long as the square of the keys: minutes of a worker.
#[test]
fn who_waits_for_many_keys_holds_up_no_other() {
    let mut world = World::new();
    let (waiter, other) = (world.open(), world.open());
    let keys: Vec<String> = (0..100_000).map(|number| format!("k{number}")).collect();
    let (wait, began) = (format!("BLPOP {} 0", keys.join(" ")), Instant::now());
    talk(
        &mut world,
        other,
        &[("MULTI", "+OK\r\n"), (&wait, "+QUEUED\r\n"), ("EXEC", "*1\r\n*-1\r\n")],
    );
    assert_eq!(world.ask(waiter, &wait), "");
    let texts = keys[..99_999].join(" v ");
    assert_eq!(world.ask(other, &format!("MSET {texts} v")), "+OK\r\n", "they are no lists");
    assert_eq!(world.ask(other, "RPUSH k99999 a"), ":1\r\n");
    assert_eq!(world.received(waiter), "*2\r\n$6\r\nk99999\r\n$1\r\na\r\n");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn who_waits_is_served_in_turn() {
    let mut world = World::new();
    let (first, second, third, giver) = (world.open(), world.open(), world.open(), world.open());
    assert_eq!(world.ask(first, "BLPOP l 0"), "");
    assert_eq!(world.ask(second, "BLPOP other l 5"), "");
    assert_eq!(world.ask(third, "BLPOP l 0"), "");
    assert!(world.peer(first).is_paused, "no more of a blocked client is read");
    world.arrive(first, &array("PING"));
    assert!(world.ask(giver, "INFO clients").contains("blocked_clients:3\r\n"));
    assert_eq!(world.ask(giver, "SET l text"), "+OK\r\n");
    assert_eq!(world.received(first), "", "a value of another kind is none");
    world.ask(giver, "DEL l");
    assert_eq!(world.ask(giver, "RPUSH l a b"), ":2\r\n");
    assert_eq!(world.received(first), "*2\r\n$1\r\nl\r\n$1\r\na\r\n+PONG\r\n");
    assert_eq!(world.received(second), "*2\r\n$1\r\nl\r\n$1\r\nb\r\n");
    assert_eq!(world.received(third), "");
    assert_eq!(world.ask(second, "BLPOP l 5"), "");
    assert!(world.kv.due_ns().is_some_and(|due| due == 5_000_000_000), "{:?}", world.kv.due_ns());
    world.pass_ms(4_999);
    assert_eq!(world.received(second), "");
    world.pass_ms(1);
    assert_eq!(world.received(second), "*-1\r\n", "its time is up");
    assert_eq!(world.ask(second, "BLMOVE l m LEFT LEFT 5"), "");
    world.pass_ms(5_000);
    assert_eq!(world.received(second), "*-1\r\n", "an array in Redis 7.0, too");
    assert_eq!(world.kv.due_ns(), None);
    world.finish(third);
    assert!(world.peer(third).is_closed, "who hangs up waits no longer");
    world.close(third);
    assert_eq!(world.ask(giver, "RPUSH l c"), ":1\r\n");
}

#[test]
fn a_waiter_is_served_from_the_key_that_is_ready_whatever_its_others_are() {
    let mut world = World::new();
    let (waiter, mover, giver) = (world.open(), world.open(), world.open());
    assert_eq!(world.ask(waiter, "BLPOP k l 0"), "");
    assert_eq!(world.ask(giver, "SET k text"), "+OK\r\n");
    assert_eq!(world.ask(giver, "RPUSH l a"), ":1\r\n");
    assert_eq!(world.received(waiter), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
    assert_eq!(
        world.ask(waiter, "BZMPOP 0 2 k z MIN"),
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
    );
    // Where it would go is looked at when there is something to move.
    assert_eq!(world.ask(mover, "BLMOVE l k LEFT LEFT 0"), "");
    assert_eq!(world.ask(giver, "RPUSH l b"), ":1\r\n");
    assert!(world.received(mover).starts_with("-WRONGTYPE "));
    assert_eq!(world.ask(giver, "LRANGE l 0 -1"), "*1\r\n$1\r\nb\r\n");
}

#[test]
fn a_transaction_serves_who_waits_when_it_is_done() {
    let mut world = World::new();
    let (waiter, giver) = (world.open(), world.open());
    world.ask(waiter, "BLPOP l 0");
    world.ask(giver, "MULTI");
    world.ask(giver, "RPUSH l a");
    world.ask(giver, "DEL l");
    world.ask(giver, "EXEC");
    assert_eq!(world.received(waiter), "", "what was there only in between was never there");
    world.ask(giver, "RPUSH l a");
    assert_eq!(world.received(waiter), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
}

#[test]
fn an_operator_frees_and_ends_clients() {
    let mut world = World::new();
    let (waiter, victim, operator) = (world.open(), world.open(), world.open());
    world.ask(waiter, "BLPOP l 0");
    talk(
        &mut world,
        operator,
        &[
            ("CLIENT UNBLOCK 1", ":1\r\n"),
            ("CLIENT UNBLOCK 1", ":0\r\n"),
            ("CLIENT UNBLOCK 99", ":0\r\n"),
        ],
    );
    assert_eq!(world.received(waiter), "*-1\r\n");
    world.ask(waiter, "BLPOP l 0");
    world.ask(operator, "CLIENT UNBLOCK 1 ERROR");
    assert_eq!(world.received(waiter), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    let list = world.ask(operator, "CLIENT LIST");
    assert_eq!(list.matches("addr=127.0.0.1:40000").count(), 3, "{list}");
    talk(
        &mut world,
        operator,
        &[("CLIENT KILL ID 2", ":1\r\n"), ("CLIENT KILL 10.0.0.1:1", "-ERR No such client\r\n")],
    );
    assert!(world.peer(victim).is_aborted);
    assert_eq!(world.ask(operator, "CLIENT KILL TYPE normal SKIPME no"), ":2\r\n");
    assert!(world.peer(operator).is_closed && world.peer(waiter).is_aborted);
}

#[test]
fn a_client_that_was_cut_off_takes_nothing_and_does_nothing() {
    let mut world = World::new();
    let (operator, waiter, held) = (world.open(), world.open(), world.open());
    world.ask(waiter, "BLPOP l 0");
    world.ask(operator, "CLIENT PAUSE 100000 WRITE");
    world.ask(held, "SET k 1");
    let lines = ["CLIENT KILL ID 2", "CLIENT KILL ID 3", "CLIENT UNPAUSE", "RPUSH l x"];
    let bytes: Vec<u8> = lines.iter().flat_map(|line| array(line)).collect();
    world.arrive(operator, &bytes);
    assert_eq!(world.received(operator), ":1\r\n:1\r\n+OK\r\n:1\r\n");
    assert_eq!(world.ask(operator, "LLEN l"), ":1\r\n");
    assert_eq!(world.ask(operator, "EXISTS k"), ":0\r\n");
}

#[test]
fn a_pause_holds_commands_back_and_loses_none() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    assert_eq!(world.ask(operator, "CLIENT PAUSE 1000 WRITE"), "+OK\r\n");
    assert_eq!(world.ask(conn, "GET k"), "$-1\r\n");
    assert_eq!(world.ask(conn, "SET k 1"), "");
    world.arrive(conn, &array("GET k"));
    world.pass_ms(999);
    assert_eq!(world.received(conn), "");
    world.pass_ms(1);
    assert_eq!(world.received(conn), "+OK\r\n$1\r\n1\r\n");
    world.ask(operator, "CLIENT PAUSE 100000");
    assert_eq!(world.ask(conn, "GET k"), "");
    assert_eq!(world.ask(operator, "CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(world.received(conn), "$1\r\n1\r\n");
}

#[test]
fn a_reader_that_is_slow_gets_everything_and_stops_its_own_input() {
    let mut world = World::new();
    let conn = world.open();
    let value = "v".repeat(1 << 20);
    world.ask(conn, &format!("SET k {value}"));
    world.peer(conn).room = 1000;
    let many = 40;
    world.arrive(conn, &array("GET k").repeat(many));
    assert!(world.peer(conn).is_paused, "it reads nothing, so no more of it is read");
    assert!(!world.peer(conn).unread.is_empty());
    let mut all = world.received(conn);
    let len = "$1048576\r\n".len() + value.len() + 2;
    while all.len() < many * len {
        world.peer(conn).room = 3 << 20;
        world.kv.on_room(conn, &mut world.peers);
        world.turn();
        let more = world.received(conn);
        assert!(!more.is_empty(), "room is used");
        all += &more;
    }
    assert_eq!(all, format!("$1048576\r\n{value}\r\n").repeat(many));
    assert!(!world.peer(conn).is_paused);
}

#[test]
fn a_peer_that_has_finished_is_answered_before_it_is_closed() {
    let mut world = World::new();
    let conn = world.open();
    world.peer(conn).room = 3;
    world.arrive(conn, &array("PING"));
    world.finish(conn);
    assert!(!world.peer(conn).is_closed, "it is owed a reply");
    world.peer(conn).room = 100;
    world.kv.on_room(conn, &mut world.peers);
    assert_eq!(world.received(conn), "+PONG\r\n");
    assert!(world.peer(conn).is_closed);
}

#[test]
fn replies_that_are_not_wanted_are_left_out() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("CLIENT REPLY SKIP", ""),
            ("PING", ""),
            ("PING", "+PONG\r\n"),
            ("CLIENT REPLY OFF", ""),
            ("PING", ""),
            ("CLIENT REPLY ON", "+OK\r\n"),
        ],
    );
}

#[test]
fn replies_that_are_not_wanted_are_left_out_when_a_wait_ends() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    for wait in ["BLPOP nokey 1", "BZPOPMIN nokey 1", "BLMOVE nokey other LEFT LEFT 1"] {
        for end in ["time", "CLIENT UNBLOCK 1", "CLIENT UNBLOCK 1 ERROR"] {
            let mut is_silent = |mode: &str| {
                talk(&mut world, conn, &[(mode, ""), (wait, "")]);
                match end {
                    "time" => world.pass_ms(1000),
                    end => assert_eq!(world.ask(operator, end), ":1\r\n", "{wait}"),
                }
                assert_eq!(world.received(conn), "", "{mode}, {wait}, {end}");
            };
            is_silent("CLIENT REPLY SKIP");
            is_silent("CLIENT REPLY OFF");
            talk(&mut world, conn, &[("CLIENT REPLY ON", "+OK\r\n"), ("PING", "+PONG\r\n")]);
        }
    }
}

#[test]
fn a_browser_that_is_made_to_speak_to_the_store_does_nothing() {
    for first in [
        &b"POST / HTTP/1.1\r\n"[..],
        b"hOst: 127.0.0.1:6379\r\n",
        b"*1\r\n$4\r\npost\r\n",
        b"*2\r\n$5\r\nHOST:\r\n$1\r\nx\r\n",
        b"MULTI\r\nPOST\r\n",
    ] {
        let mut world = World::new();
        let (conn, operator) = (world.open(), world.open());
        let rest: &[u8] = b"SET k 1\r\nEXEC\r\nSET k 2\r\n";
        world.arrive(conn, &[first, rest].concat());
        assert!(world.peer(conn).is_aborted, "{first:?}");
        assert_eq!(world.received(conn), "", "{first:?}");
        assert_eq!(world.ask(operator, "GET k"), "$-1\r\n", "{first:?}");
        let info = world.ask(operator, "INFO stats");
        assert!(info.contains("\r\nhttp_disconnections:1\r\n"), "{info}");
    }
    let mut world = World::with(Config::default(), Some("secret"));
    let conn = world.open();
    world.arrive(conn, b"POST / HTTP/1.1\r\n");
    assert!(world.peer(conn).is_aborted, "a stranger, too");
}

#[test]
fn strangers_are_kept_out() {
    let mut world = World::new();
    let stranger = world.open_from("192.0.2.7:4000");
    assert!(world.received(stranger).starts_with("-DENIED Redis is running in protected mode"));
    assert!(world.peer(stranger).is_closed);
    let mapped = world.open_from("[::ffff:127.0.0.1]:4000");
    assert_eq!(world.ask(mapped, "PING"), "+PONG\r\n");

    let mut world = World::with(Config::default(), Some("secret"));
    let conn = world.open_from("192.0.2.7:4000");
    talk(
        &mut world,
        conn,
        &[
            ("PING", "-NOAUTH Authentication required.\r\n"),
            ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
            (
                "AUTH default wrong",
                "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            ),
            (
                "AUTH nobody secret",
                "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            ),
        ],
    );
    assert!(world.ask(conn, "HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(world.ask(conn, "HELLO 2 AUTH default secret").starts_with("*14\r\n"));
    talk(&mut world, conn, &[("PING", "+PONG\r\n"), ("RESET", "+RESET\r\n")]);
    world.arrive(conn, b"*11\r\n");
    assert_eq!(world.received(conn), "-ERR Protocol error: unauthenticated multibulk length\r\n");
}

#[test]
fn tls_at_a_plain_port_gets_one_sentence_and_is_counted() {
    let mut world = World::new();
    let (hello, operator) = (world.open(), world.open());
    world.arrive(hello, &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    let reply = world.received(hello);
    assert!(
        reply.starts_with("-ERR TLS is not spoken at this port") && reply.ends_with("\r\n"),
        "{reply}"
    );
    assert_eq!(reply.lines().count(), 1);
    assert!(world.peer(hello).is_closed);
    let info = world.ask(operator, "INFO stats");
    assert!(info.contains("\r\ntls_at_plain_port:1\r\n"), "{info}");
    // The same byte within a command is one like any other, wherever it is cut.
    world.arrive(operator, b"*2\r\n$4\r\nECHO\r\n$1\r\n");
    world.arrive(operator, b"\x16\r\n");
    assert_eq!(world.received(operator), "$1\r\n\u{16}\r\n");
}

#[test]
fn clients_with_too_much_memory_are_cut_off_the_greatest_first() {
    let bytes = ClientsMemory::Bytes(3 << 20);
    cut_off_the_greatest(Config { clients_memory: bytes, ..Config::default() });
    // The same, of what data may have.
    let mut config = Config { clients_memory: ClientsMemory::Percent(5), ..Config::default() };
    config.data.memory_bytes_max = Some(60 << 20);
    cut_off_the_greatest(config);
}

#[test]
fn the_memory_of_clients_is_a_number_or_a_share_of_what_data_may_have() {
    let mut world = World::with(Config::default(), None);
    let conn = world.open();
    let get = "CONFIG GET maxmemory-clients";
    for (value, shown) in [("5%", "5%"), ("100mb", "104857600"), ("0%", "0%"), ("100%", "100%")] {
        assert_eq!(world.ask(conn, &format!("CONFIG SET maxmemory-clients {value}")), "+OK\r\n");
        let reply = world.ask(conn, get);
        assert!(reply.ends_with(&format!("\r\n{shown}\r\n")), "{value}: {reply}");
    }
    for value in ["101%", "-5%", "%", "5%%", "5 %", "300%", "much"] {
        let refused = world.ask(conn, &format!("CONFIG SET maxmemory-clients '{value}'"));
        assert!(refused.starts_with("-ERR CONFIG SET failed"), "{value}: {refused}");
    }
    assert!(world.ask(conn, get).ends_with("\r\n100%\r\n"));
    // Without a limit of the data there is none of clients.
    assert_eq!(ClientsMemory::Percent(5).bytes_max(None), None);
    assert_eq!(ClientsMemory::Percent(0).bytes_max(Some(1 << 30)), None);
    assert_eq!(ClientsMemory::Percent(50).bytes_max(Some(usize::MAX)), Some(usize::MAX / 2));
}

#[test]
fn clients_are_looked_after_though_the_clock_is_set_back() {
    let clients_memory = ClientsMemory::Bytes(3 << 20);
    let mut world = World::with(Config { clients_memory, ..Config::default() }, None);
    let conn = world.open();
    world.pass_ms(7_200_000);
    world.now_us.set(world.now_us.get() - 3_600_000_000);
    world.arrive(conn, format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 8 << 20).as_bytes());
    world.arrive(conn, &vec![b'x'; 4 << 20]);
    world.pass_ms(1_000);
    assert!(world.peer(conn).is_aborted);
}

fn cut_off_the_greatest(config: Config) {
    let mut world = World::with(config, None);
    let (greatest, great, small, spared) = (world.open(), world.open(), world.open(), world.open());
    assert_eq!(world.ask(spared, "CLIENT NO-EVICT on"), "+OK\r\n");
    for (conn, bytes) in [(greatest, 2 << 20), (great, 1 << 20), (spared, 2 << 20)] {
        let begun = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 4 << 20);
        world.arrive(conn, begun.as_bytes());
        world.arrive(conn, &vec![b'x'; bytes]);
    }
    world.pass_ms(1_000);
    let is_cut = |world: &mut World, conn| world.peer(conn).is_aborted;
    assert!(is_cut(&mut world, greatest) && !is_cut(&mut world, small));
    assert!(!is_cut(&mut world, spared), "who may not be evicted stays");
    let info = world.ask(small, "INFO stats");
    let evicted = info.lines().find_map(|line| line.strip_prefix("evicted_clients:"));
    assert!(matches!(evicted, Some("1" | "2")), "{info}");
    assert_eq!(world.ask(small, "CONFIG SET maxmemory-clients 0"), "+OK\r\n");
}

/// As redis-server 7.0 reads it; found by commands drawn at random.
#[test]
fn bits_are_counted_before_a_unit_is_read_that_is_none_where_there_are_none() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("SET k foobar", "+OK\r\n"),
            ("BITCOUNT k -1 -2 more", ":0\r\n"),
            ("BITCOUNT k -2 -1 more", "-ERR syntax error\r\n"),
            ("BITCOUNT k 0 -1 bit", ":26\r\n"),
            ("BITCOUNT none 0 -1 more", ":0\r\n"),
            ("BITCOUNT k -1 much more", "-ERR value is not an integer or out of range\r\n"),
        ],
    );
}

/// The longest string here is shorter than Redis's.
#[test]
fn bits_behind_the_longest_string_are_zeros_to_who_reads_them() {
    const REFUSED: &str = "-ERR bit offset is not an integer or out of range\r\n";
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("SET k x", "+OK\r\n"),
            ("GETBIT k 1073741824", ":0\r\n"),
            ("GETBIT none 4294967295", ":0\r\n"),
            ("GETBIT none 4294967296", REFUSED),
            ("BITFIELD_RO k GET u8 1073741824", "*1\r\n:0\r\n"),
            ("BITFIELD k GET u8 #536870911", "*1\r\n:0\r\n"),
            ("BITFIELD k GET u8 4294967295", "*1\r\n:0\r\n"),
            ("BITFIELD k GET u8 #536870912", REFUSED),
            ("BITFIELD k GET u8 4294967295 SET u8 0 120", "*2\r\n:0\r\n:120\r\n"),
            ("BITFIELD k SET u8 1073741824 1", REFUSED),
            ("BITFIELD k INCRBY u8 536870912 1", REFUSED),
            ("SETBIT k 1073741824 1", REFUSED),
            ("SETBIT k 536870912 1", REFUSED),
        ],
    );
}

/// What the C library reads for redis-server.
#[test]
fn numbers_may_be_hexadecimal_where_redis_reads_them_so() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("INCRBYFLOAT n 0x10", "$2\r\n16\r\n"),
            ("HINCRBYFLOAT h f 0x1p-1", "$3\r\n0.5\r\n"),
            ("INCRBYFLOAT n 0x", "-ERR value is not a valid float\r\n"),
            ("ZADD z 0x10 a -0x.8 b", ":2\r\n"),
            ("ZSCORE z a", "$2\r\n16\r\n"),
            ("ZADD z 0x1p1024 m", "-ERR value is not a valid float\r\n"),
            ("ZINCRBY z 0x1 b", "$3\r\n0.5\r\n"),
            ("ZCOUNT z (0x0 0x10", ":2\r\n"),
            ("ZCOUNT z 0x 1", "-ERR min or max is not a float\r\n"),
            ("BLPOP none 0xg", "-ERR timeout is not a float or out of range\r\n"),
            ("BLPOP none 0x1p70", "-ERR timeout is negative\r\n"),
            ("BLPOP none 0x2", ""),
        ],
    );
    world.pass_ms(2_000);
    assert_eq!(world.received(conn), "*-1\r\n");
}

#[test]
fn a_cursor_is_read_as_the_c_library_reads_it() {
    let mut world = World::new();
    let conn = world.open();
    world.ask(conn, "SADD s a");
    for cursor in ["-1", "18446744073709551615"] {
        for scan in ["SCAN", "SSCAN none"] {
            let line = format!("{scan} {cursor}");
            assert_eq!(world.ask(conn, &line), "*2\r\n$1\r\n0\r\n*0\r\n", "{line}");
        }
    }
    for cursor in ["0", "+0", "-0", "''"] {
        let reply = world.ask(conn, &format!("SCAN {cursor}"));
        assert_eq!(reply, "*2\r\n$1\r\n0\r\n*1\r\n$1\r\ns\r\n", "{cursor}");
    }
    for cursor in ["x", "-", "+", "-+1", "' 1'", "'1 '", "18446744073709551616", "0x1"] {
        let reply = world.ask(conn, &format!("SCAN {cursor}"));
        assert_eq!(reply, "-ERR invalid cursor\r\n", "{cursor}");
    }
}

#[test]
fn what_is_out_of_range_is_refused_in_the_words_of_redis() {
    const NOT_SYMMETRIC: &str = "-ERR value is out of range, value must between -9223372036854775807 and \
                                 9223372036854775807\r\n";
    const OUT_OF_RANGE: &str = "-ERR value is out of range\r\n";
    const SYNTAX: &str = "-ERR syntax error\r\n";
    let mut world = World::new();
    let conn = world.open();
    let wrong = |container: &str, sub: &str| {
        format!(
            "-ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {container} HELP.\r\n"
        )
    };
    talk(
        &mut world,
        conn,
        &[
            ("SRANDMEMBER k -9223372036854775808", NOT_SYMMETRIC),
            ("HRANDFIELD k -9223372036854775808", NOT_SYMMETRIC),
            ("ZRANDMEMBER k -9223372036854775808 withscores", NOT_SYMMETRIC),
            ("HRANDFIELD k -4611686018427387904 withvalues X", SYNTAX),
            ("HRANDFIELD k -4611686018427387904 X", SYNTAX),
            ("HRANDFIELD k 4611686018427387904 withvalues", OUT_OF_RANGE),
            ("HRANDFIELD k 4611686018427387903 withvalues", "*0\r\n"),
            ("ZRANDMEMBER k 9223372036854775807 WITHSCORES", OUT_OF_RANGE),
            ("ZRANDMEMBER k 9223372036854775807", "*0\r\n"),
            ("CLIENT PAUSE -1", "-ERR timeout is negative\r\n"),
            ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range\r\n"),
            ("CLIENT PAUSE -1 x", "-ERR CLIENT PAUSE mode must be WRITE or ALL\r\n"),
            ("CLIENT PAUSE 1 all x", &wrong("CLIENT", "PAUSE")),
            ("SLOWLOG get -1 x", &wrong("SLOWLOG", "get")),
            ("pubsub CHANNELS a b", &wrong("PUBSUB", "CHANNELS")),
        ],
    );
}

#[test]
fn a_range_has_one_order_and_one_kind() {
    let mut world = World::new();
    let conn = world.open();
    for range in [
        "0 -1 REV REV",
        "- + BYSCORE BYLEX",
        "- + BYLEX BYSCORE",
        "- + BYLEX BYLEX",
        "0 1 BYSCORE BYSCORE",
        "0 1 BYSCORE REV LIMIT 0 1 REV",
    ] {
        for command in [format!("ZRANGE none {range}"), format!("ZRANGESTORE to none {range}")] {
            assert_eq!(world.ask(conn, &command), "-ERR syntax error\r\n", "{command}");
        }
    }
    talk(
        &mut world,
        conn,
        &[
            ("ZADD z 1 a", ":1\r\n"),
            ("ZRANGE z 0 -1 WITHSCORES WITHSCORES", "*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
            ("ZRANGE z 0 1 BYSCORE LIMIT 0 0 LIMIT 0 2", "*1\r\n$1\r\na\r\n"),
        ],
    );
}

#[test]
fn more_clients_than_files_cannot_be_configured() {
    let config = Config { clients_limit: 958, ..Config::default() };
    let mut world = World::with(config, None);
    let conn = world.open();
    let refused = world.ask(conn, "CONFIG SET maxclients 959");
    assert!(
        refused.contains("is not able to handle the specified number of clients, try with 958")
    );
    assert_eq!(world.ask(conn, "CONFIG SET maxclients 958"), "+OK\r\n");
}

#[test]
fn garbage_before_the_password_gets_an_error_or_nothing_and_never_more() {
    for garbage in [
        &b"\0\x01\x02\r\n"[..],
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
        b"*-2\r\n*1\r\n$-2\r\n",
        b"*1\r\n$9223372036854775808\r\n",
        b"GET k\r\n*1\r\n$16385\r\n",
        b"\xff\xfe\xfd",
    ] {
        let mut world = World::with(Config::default(), Some("secret"));
        let (conn, operator) = (world.open(), world.open());
        world.arrive(conn, garbage);
        let reply = world.received(conn);
        assert!(reply.lines().all(|line| line.starts_with('-')), "{garbage:?}: {reply}");
        world.ask(operator, "AUTH secret");
        assert_eq!(world.ask(operator, "DBSIZE"), ":0\r\n");
    }
}

#[test]
fn sixty_four_thousand_arguments_are_one_command() {
    let mut world = World::new();
    let conn = world.open();
    let args: Vec<String> = (0..65_535).map(|number| format!("k{number}")).collect();
    assert_eq!(world.ask(conn, &format!("DEL {}", args.join(" "))), ":0\r\n");
    let pairs = args.join(" v ");
    assert_eq!(world.ask(conn, &format!("MSET {pairs} v")), "+OK\r\n");
    assert_eq!(world.ask(conn, "DBSIZE"), ":65535\r\n");
}

#[test]
fn no_more_clients_than_allowed() {
    let config = Config { clients_max: 2, ..Config::default() };
    let mut world = World::with(config, None);
    let (first, _second, third) = (world.open(), world.open(), world.open());
    assert_eq!(world.received(third), "-ERR max number of clients reached\r\n");
    assert!(world.peer(third).is_closed);
    world.close(third);
    world.close(first);
    let fourth = world.open();
    assert_eq!(world.ask(fourth, "PING"), "+PONG\r\n");
}

#[test]
fn users_may_do_what_their_rules_say() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    talk(
        &mut world,
        operator,
        &[
            (
                "ACL SETUSER bob on >pw ~b:* %R~r:* &news +@read +set -dbsize +publish +subscribe +auth",
                "+OK\r\n",
            ),
            (
                "ACL SETUSER bob +nosuch",
                "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL\r\n",
            ),
            ("ACL USERS", "*2\r\n$3\r\nbob\r\n$7\r\ndefault\r\n"),
            ("ACL WHOAMI", "$7\r\ndefault\r\n"),
            ("ACL DELUSER default", "-ERR The 'default' user cannot be removed\r\n"),
        ],
    );
    let list = world.ask(operator, "ACL LIST");
    assert!(
        list.contains("user bob on #")
            && list.contains(" ~b:* %R~r:* resetchannels &news -@all +@read +set"),
        "{list}"
    );
    let no_command =
        |name| format!("-NOPERM this user has no permissions to run the '{name}' command\r\n");
    let no_key =
        "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";
    talk(
        &mut world,
        conn,
        &[
            ("AUTH bob pw", "+OK\r\n"),
            ("SET b:1 x", "+OK\r\n"),
            ("GET b:1", "$1\r\nx\r\n"),
            ("GET r:1", "$-1\r\n"),
            ("SET r:1 x", no_key),
            ("SET c x", no_key),
            ("DBSIZE", &no_command("dbsize")),
            ("CONFIG GET save", &no_command("config|get")),
            ("PUBLISH news x", ":0\r\n"),
            (
                "PUBLISH other x",
                "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n",
            ),
        ],
    );
    talk(&mut world, operator, &[("ACL DELUSER bob nobody", ":1\r\n")]);
    assert!(world.peer(conn).is_aborted, "a deleted user's connections end");
}

#[test]
fn a_user_that_is_changed_stays_one_whatever_place_is_free() {
    let mut world = World::new();
    let (operator, conn) = (world.open(), world.open());
    talk(
        &mut world,
        operator,
        &[("ACL SETUSER a", "+OK\r\n"), ("ACL SETUSER b on >p ~* +@all", "+OK\r\n")],
    );
    talk(&mut world, conn, &[("AUTH b p", "+OK\r\n"), ("SET k 1", "+OK\r\n")]);
    talk(
        &mut world,
        operator,
        &[
            ("ACL DELUSER a", ":1\r\n"),
            ("ACL SETUSER b -@all", "+OK\r\n"),
            ("ACL USERS", "*2\r\n$1\r\nb\r\n$7\r\ndefault\r\n"),
        ],
    );
    let denied = "-NOPERM this user has no permissions to run the 'get' command\r\n";
    talk(&mut world, conn, &[("GET k", denied)]);
    talk(&mut world, operator, &[("ACL DELUSER b", ":1\r\n")]);
    assert!(world.peer(conn).is_aborted, "its client has its place");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    talk(&mut world, operator, &[("AUTH b p", wrong), ("ACL SETUSER c", "+OK\r\n")]);
    assert_eq!(world.kv.server.users.users.len(), 3, "a free place is used again");
}

#[test]
fn a_listener_that_may_listen_no_more_is_cut_off() {
    for (listens, rights, is_lost) in [
        ("SUBSCRIBE news", "resetchannels", true),
        ("SUBSCRIBE news", "resetchannels &n*", false),
        ("SUBSCRIBE news", "-@all", false),
        ("SUBSCRIBE news", "reset", true),
        ("PSUBSCRIBE n*", "resetchannels &n*", false),
        ("PSUBSCRIBE n*", "resetchannels &*s", true),
        ("PSUBSCRIBE n*", "allchannels", false),
        ("SSUBSCRIBE news", "resetchannels &old", true),
        ("SSUBSCRIBE news", "resetchannels &news", false),
        ("PING", "resetchannels", false),
    ] {
        let mut world = World::new();
        let (operator, conn, other) = (world.open(), world.open(), world.open());
        world.ask(operator, "ACL SETUSER ann on nopass &news &n* +@all");
        for conn in [conn, operator] {
            world.ask(conn, "HELLO 3 AUTH ann x");
            world.ask(conn, listens);
        }
        world.ask(other, "SUBSCRIBE news");
        let set = format!("ACL SETUSER ann {rights}");
        assert_eq!(world.ask(operator, &set), "+OK\r\n");
        assert_eq!(world.peer(conn).is_aborted, is_lost, "{listens}, {rights}");
        assert_eq!(world.peer(operator).is_closed, is_lost, "behind the answer: {rights}");
        assert!(!world.peer(other).is_aborted, "another user");
    }
    // What it began to listen to as another user is looked at when its own user loses something, as by Redis.
    let mut world = World::new();
    let (operator, conn) = (world.open(), world.open());
    world.ask(operator, "ACL SETUSER ann on nopass &old +@all");
    for line in ["HELLO 3", "SUBSCRIBE news", "AUTH ann x"] {
        world.ask(conn, line);
    }
    for (rights, is_lost) in [("&more", false), ("resetchannels &more", true)] {
        world.ask(operator, &format!("ACL SETUSER ann {rights}"));
        assert_eq!(world.peer(conn).is_aborted, is_lost, "{rights}");
    }
}

/// As the specifications of keys of redis-server 7.0 say what a command does with each of its keys.
#[test]
fn a_key_that_is_only_read_needs_the_right_to_read_alone() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    let rules = "%R~r* %W~w* ~a* +@all on nopass";
    talk(&mut world, operator, &[(&format!("ACL SETUSER ann {rules}"), "+OK\r\n")]);
    talk(&mut world, conn, &[("AUTH ann x", "+OK\r\n")]);
    for line in [
        "COPY r1 w1",
        "BITOP AND w1 r1 r2",
        "SUNIONSTORE w1 r1 r2",
        "SINTERSTORE w1 r1 r2",
        "SDIFFSTORE w1 r1 r2",
        "ZUNIONSTORE w1 2 r1 r2",
        "ZINTERSTORE w1 2 r1 r2",
        "ZDIFFSTORE w1 2 r1 r2",
        "ZRANGESTORE w1 r1 0 -1",
        "BITFIELD r1 GET u8 0 OVERFLOW WRAP GET u8 8",
        "BITFIELD r1",
        "LMOVE a1 w1 LEFT LEFT",
        "RPOPLPUSH a1 w1",
        "SMOVE a1 w1 m",
        "RENAME a1 w1",
        "RENAMENX a1 w1",
        "BITFIELD a1 GET u8 0 SET u8 0 1",
    ] {
        let reply = world.ask(conn, line);
        assert!(!reply.starts_with("-NOPERM"), "{line}: {reply}");
    }
    for line in [
        "COPY w1 a1",
        "COPY r1 r2",
        "BITOP AND w1 w2",
        "BITOP AND r1 r2",
        "SUNIONSTORE w1 r1 w2",
        "ZUNIONSTORE r1 1 r2",
        "ZUNIONSTORE w1 2 r1 w2",
        "ZRANGESTORE w1 w2 0 -1",
        "BITFIELD r1 GET u8 0 SET u8 0 1",
        "BITFIELD r1 INCRBY u8 0 1",
        "BITFIELD r1 nosuch",
        "BITFIELD w1 GET u8 0",
        "BITFIELD w1 SET u8 0 1",
        "LMOVE r1 a1 LEFT LEFT",
        "LMOVE w1 a1 LEFT LEFT",
        "LMOVE a1 r1 LEFT LEFT",
        "RPOPLPUSH r1 a1",
        "SMOVE r1 a1 m",
        "RENAME r1 a1",
        "RENAME w1 a1",
    ] {
        let reply = world.ask(conn, line);
        assert!(reply.starts_with("-NOPERM"), "{line}: {reply}");
    }
    // The rights to one pattern are one rule; those of two patterns are not added up.
    let rules = "reset on nopass +@all %R~k %W~k %R~ab* %W~a*";
    talk(&mut world, operator, &[(&format!("ACL SETUSER ann {rules}"), "+OK\r\n")]);
    let list = world.ask(operator, "ACL LIST");
    assert!(list.contains(" ~k %R~ab* %W~a* "), "{list}");
    talk(&mut world, conn, &[("LPOP k", "$-1\r\n"), ("SET ab x", "+OK\r\n")]);
    assert!(world.ask(conn, "LPOP ab").starts_with("-NOPERM"));
}

#[test]
fn a_user_is_shown_as_redis_shows_it() {
    let mut world = World::new();
    let operator = world.open();
    const WRONG_HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase \
                              hexadecimal characters\r\n";
    let wrong = |rule: &str| format!("-ERR Error in ACL SETUSER modifier '{rule}': {WRONG_HASH}");
    for rule in ["#abc", "!abc", &format!("#{}", "z".repeat(64))] {
        assert_eq!(world.ask(operator, &format!("ACL SETUSER u {rule}")), wrong(rule));
    }
    for (rules, text) in [
        ("", "off resetchannels -@all"),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        ("on nopass sanitize-payload", "on nopass sanitize-payload resetchannels -@all"),
        ("reset &c* ~k", "off sanitize-payload ~k resetchannels &c* -@all"),
    ] {
        assert_eq!(world.ask(operator, &format!("ACL SETUSER u {rules}")), "+OK\r\n");
        let list = world.ask(operator, "ACL LIST");
        assert!(list.contains(&format!("\r\nuser u {text}\r\n")), "{rules}: {list}");
    }
    let user = world.ask(operator, "ACL GETUSER u");
    assert!(user.contains("*2\r\n$3\r\noff\r\n$16\r\nsanitize-payload\r\n"), "{user}");
}

#[test]
fn rights_that_were_lost_before_exec_are_said_so() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    world.ask(operator, "ACL SETUSER ann on nopass ~* &* +@all");
    world.ask(conn, "AUTH ann x");
    for (queued, lost, kind, why) in [
        ("GET k", "-get", "command", "no permission to execute the command or subcommand"),
        ("SET k 1", "resetkeys", "key", "no permission to touch the specified keys"),
        (
            "PUBLISH c x",
            "resetchannels",
            "channel",
            "no permission to access one of the channels used as arguments",
        ),
    ] {
        talk(&mut world, conn, &[("MULTI", "+OK\r\n"), (queued, "+QUEUED\r\n")]);
        talk(&mut world, operator, &[(&format!("ACL SETUSER ann {lost}"), "+OK\r\n")]);
        assert_eq!(
            world.ask(conn, "EXEC"),
            format!(
                "*1\r\n-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
                 call. This command is no longer allowed for the following reason: {why}\r\n"
            )
        );
        let log = world.ask(operator, "ACL LOG 1");
        assert!(log.contains(&format!("\r\n{kind}\r\n$7\r\ncontext\r\n$5\r\nmulti\r\n")), "{log}");
    }
}

#[test]
fn what_users_were_not_allowed_is_kept() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    let wrong = "-ERR unknown subcommand or wrong number of arguments for 'LOG'. Try ACL HELP.\r\n";
    talk(
        &mut world,
        operator,
        &[
            ("ACL SETUSER bob on >pw ~b* +get +publish +auth", "+OK\r\n"),
            ("ACL LOG", "*0\r\n"),
            ("ACL LOG x", "-ERR value is not an integer or out of range\r\n"),
            ("ACL LOG 1 2", wrong),
        ],
    );
    for line in [
        "AUTH bob pw",
        "GET c",
        "GET c",
        "CONFIG GET x",
        "PUBLISH x y",
        "AUTH bob no",
        "AUTH who no",
    ] {
        world.ask(conn, line);
    }
    world.pass_ms(1500);
    let log = world.ask(operator, "ACL LOG");
    let entry = |count: u8, reason: &str, object: &str, user: &str| {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let text =
            [("reason", reason), ("context", "toplevel"), ("object", object), ("username", user)]
                .map(|(name, value)| bulk(name) + &bulk(value))
                .concat();
        let age = bulk("age-seconds") + &bulk("1.5");
        format!("*14\r\n$5\r\ncount\r\n:{count}\r\n{text}{age}$11\r\nclient-info\r\n")
    };
    let mut at = 0;
    for wanted in [
        entry(1, "auth", "AUTH", "who"),
        entry(1, "auth", "AUTH", "bob"),
        entry(1, "channel", "x", "bob"),
        entry(1, "command", "config|get", "bob"),
        entry(2, "key", "c", "bob"),
    ] {
        let found = log[at..].find(&wanted).unwrap_or_else(|| panic!("{wanted} is not in {log}"));
        at += found + 1;
    }
    assert!(log.starts_with("*5\r\n") && log.contains("id=1 addr="), "{log}");
    assert!(world.ask(operator, "ACL LOG 2").starts_with("*2\r\n*14\r\n"));
    talk(
        &mut world,
        operator,
        &[("ACL LOG -1", "*0\r\n"), ("ACL LOG RESET", "+OK\r\n"), ("ACL LOG", "*0\r\n")],
    );
}

#[test]
fn rights_are_tried_without_the_command() {
    let mut world = World::new();
    let operator = world.open();
    world.ask(operator, "ACL SETUSER bob >pw ~b* &ch +get +publish");
    let may_not =
        |what: &str| format!("${}\r\nThis user has no permissions to {what}\r\n", what.len() + 32);
    talk(
        &mut world,
        operator,
        &[
            ("ACL DRYRUN none get k", "-ERR User 'none' not found\r\n"),
            ("ACL DRYRUN bob get b1", "+OK\r\n"),
            ("ACL DRYRUN bob get c1", &may_not("access the 'c1' key")),
            ("ACL DRYRUN bob publish ch x", "+OK\r\n"),
            ("ACL DRYRUN bob publish x y", &may_not("access the 'x' channel")),
            ("ACL DRYRUN bob config get x", &may_not("run the 'config|get' command")),
            ("ACL DRYRUN bob auth x y", "+OK\r\n"),
            ("ACL DRYRUN bob nosuch", "-ERR Command 'nosuch' not found\r\n"),
            ("ACL DRYRUN bob config nosuch", "-ERR Command 'config' not found\r\n"),
            ("ACL DRYRUN bob config", "-ERR wrong number of arguments for 'config' command\r\n"),
            ("ACL DRYRUN bob get", "-ERR wrong number of arguments for 'get' command\r\n"),
            ("ACL LOG", "*0\r\n"),
        ],
    );
}

#[test]
fn passwords_are_drawn_as_long_as_asked() {
    const WRONG: &str = "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
                         number up to 4096\r\n";
    let mut world = World::new();
    let conn = world.open();
    let (one, other) = (world.ask(conn, "ACL GENPASS"), world.ask(conn, "ACL GENPASS"));
    assert!(one.starts_with("$64\r\n") && one != other, "{one} {other}");
    assert!(one[5..69].bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{one}");
    for (bits, digits) in [(1, 1), (4, 1), (5, 2), (4096, 1024)] {
        let password = world.ask(conn, &format!("ACL GENPASS {bits}"));
        assert!(password.starts_with(&format!("${digits}\r\n")), "{bits}: {password}");
    }
    talk(
        &mut world,
        conn,
        &[
            ("ACL GENPASS 0", WRONG),
            ("ACL GENPASS -1", WRONG),
            ("ACL GENPASS 4097", WRONG),
            ("ACL GENPASS x", "-ERR value is not an integer or out of range\r\n"),
        ],
    );
}

#[test]
fn configuration_is_set_whole_and_no_path_from_the_wire() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("CONFIG GET maxclients", "*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n"),
            ("CONFIG SET maxclients 50 timeout 3", "+OK\r\n"),
            ("CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$1\r\n3\r\n"),
            (
                "CONFIG SET maxclients 60 timeout x",
                "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer\r\n",
            ),
            ("CONFIG GET maxclients", "*2\r\n$10\r\nmaxclients\r\n$2\r\n50\r\n"),
            (
                "CONFIG SET dir /etc",
                "-ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config\r\n",
            ),
            (
                "CONFIG SET tls-key-file /etc/shadow",
                "-ERR CONFIG SET failed (possibly related to argument 'tls-key-file') - can't set protected config\r\n",
            ),
            (
                "CONFIG SET databases 1",
                "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config\r\n",
            ),
            (
                "CONFIG SET nosuch 1",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n",
            ),
        ],
    );
    world.pass_ms(3_600);
    assert!(world.peer(conn).is_closed, "timeout 3: an idle client is closed");
}

#[test]
fn what_config_set_refuses_is_worded_as_redis_words_it() {
    let mut world = World::new();
    let conn = world.open();
    let failed = |name: &str, why: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}\r\n")
    };
    let slower = "slowlog-log-slower-than";
    let unparsed = "argument couldn't be parsed into an integer";
    talk(
        &mut world,
        conn,
        &[
            ("CONFIG SET", "-ERR wrong number of arguments for 'config|set' command\r\n"),
            ("CONFIG SET hz", "-ERR wrong number of arguments for 'config|set' command\r\n"),
            ("CONFIG SET hz 10 timeout", "-ERR syntax error\r\n"),
            // The first wrong name, as it was given, and only then the first wrong value.
            (
                "CONFIG SET maxmemory abc Nosuch 1 databases 3",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'Nosuch'\r\n",
            ),
            (
                "CONFIG SET hz x DATABASES 3 nosuch 1",
                &failed("DATABASES", "can't set immutable config"),
            ),
            ("CONFIG SET Hz x", &failed("hz", unparsed)),
            ("CONFIG SET hz x HZ 10", &failed("HZ", "duplicate parameter")),
            ("CONFIG SET hz 20 timeout x", &failed("timeout", unparsed)),
            ("CONFIG GET hz", "*2\r\n$2\r\nhz\r\n$2\r\n10\r\n"),
            (
                "CONFIG SET maxmemory-policy x",
                &failed(
                    "maxmemory-policy",
                    "argument(s) must be one of the following: volatile-lru, volatile-lfu, \
                     volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, \
                     noeviction",
                ),
            ),
            ("CONFIG SET slowlog-log-slower-than x", &failed(slower, unparsed)),
            ("CONFIG SET slowlog-log-slower-than +5", &failed(slower, unparsed)),
            (
                "CONFIG SET slowlog-log-slower-than -2",
                &failed(slower, "argument must be between -1 and 9223372036854775807 inclusive"),
            ),
        ],
    );
}

#[test]
fn what_changes_nothing_can_be_configured_all_the_same() {
    let mut world = World::new();
    let conn = world.open();
    let failed = |name: &str, why: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}\r\n")
    };
    let list = "list-max-listpack-size";
    talk(
        &mut world,
        conn,
        &[
            ("CONFIG SET hash-max-listpack-entries 100", "+OK\r\n"),
            (
                "CONFIG GET hash-max-ziplist-entries",
                "*2\r\n$24\r\nhash-max-ziplist-entries\r\n$3\r\n100\r\n",
            ),
            (
                "CONFIG SET zset-max-ziplist-value -1",
                &failed(
                    "zset-max-ziplist-value",
                    "argument must be between 0 and 9223372036854775807 inclusive",
                ),
            ),
            ("CONFIG SET list-max-listpack-size -9", "+OK\r\n"),
            (
                "CONFIG SET list-max-listpack-size 3000000000",
                &failed(list, "argument must be between -2147483648 and 2147483647 inclusive"),
            ),
            ("CONFIG SET notify-keyspace-events ''", "+OK\r\n"),
            ("CONFIG SET save ''", "+OK\r\n"),
            (
                "CONFIG SET save '900 1'",
                &failed(
                    "save",
                    "snapshots begin as the log grows (auto-aof-rewrite-percentage), only '' can be set",
                ),
            ),
            ("CONFIG SET notify-keyspace-events KEg$lshzxetd", "+OK\r\n"),
            (
                "CONFIG GET notify-keyspace-events",
                "*2\r\n$22\r\nnotify-keyspace-events\r\n$3\r\nAKE\r\n",
            ),
            ("CONFIG SET notify-keyspace-events nmAK", "+OK\r\n"),
            (
                "CONFIG GET notify-keyspace-events",
                "*2\r\n$22\r\nnotify-keyspace-events\r\n$3\r\nAKm\r\n",
            ),
            (
                "CONFIG SET notify-keyspace-events KEq",
                &failed(
                    "notify-keyspace-events",
                    "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
                ),
            ),
        ],
    );
    assert!(world.ask(conn, "CONFIG GET *listpack*").starts_with("*10\r\n"));
}

#[test]
fn a_shutdown_that_contradicts_itself_is_none() {
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error\r\n"),
            ("SHUTDOWN ABORT NOW", "-ERR syntax error\r\n"),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n"),
        ],
    );
    assert!(!world.kv.wants_stop());
}

#[test]
fn slow_commands_are_kept_and_counted() {
    let mut world = World::new();
    let conn = world.open();
    world.ask(conn, "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2");
    world.ask(conn, "SET k 1");
    talk(&mut world, conn, &[("SLOWLOG LEN", ":2\r\n"), ("SLOWLOG RESET", "+OK\r\n")]);
    let entry = world.ask(conn, "SLOWLOG GET 1");
    assert!(entry.contains("$7\r\nSLOWLOG\r\n$5\r\nRESET\r\n"), "{entry}");
    assert!(world.ask(conn, "INFO commandstats").contains("cmdstat_set:calls=1,"));
    world.ask(conn, "nosuch");
    assert!(world.ask(conn, "INFO errorstats").contains("errorstat_ERR:count=1"));
    world.ask(conn, "CONFIG RESETSTAT");
    assert!(!world.ask(conn, "INFO errorstats").contains("errorstat_ERR"));
}

/// As `redis-server` 7.0.15 shows them.
#[test]
fn no_password_is_among_the_slow_commands() {
    let mut world = World::new();
    let conn = world.open();
    world.ask(conn, "CONFIG SET slowlog-log-slower-than 0");
    let hidden = "(redacted)";
    for (line, shown) in [
        ("AUTH secret", format!("AUTH {hidden}")),
        ("AUTH name secret", format!("AUTH {hidden} {hidden}")),
        ("HELLO 2 AUTH name secret SETNAME n", format!("HELLO 2 AUTH {hidden} {hidden} SETNAME n")),
        ("HELLO 2 SETNAME auth", "HELLO 2 SETNAME auth".to_owned()),
        ("ACL SETUSER bob on >secret", format!("ACL SETUSER {hidden} {hidden} {hidden}")),
        ("ACL GETUSER bob", "ACL GETUSER bob".to_owned()),
        ("ACL DELUSER bob", "ACL DELUSER bob".to_owned()),
        (
            "CONFIG SET hz 10 RequirePass secret masterauth secret",
            format!("CONFIG SET hz 10 RequirePass {hidden} masterauth {hidden}"),
        ),
        ("CONFIG SET requirepass secret hz", format!("CONFIG SET requirepass {hidden} hz")),
        ("CONFIG SET tls-key-file-pass secret", format!("CONFIG SET tls-key-file-pass {hidden}")),
        ("GET auth", "GET auth".to_owned()),
    ] {
        world.ask(conn, "SLOWLOG RESET");
        world.ask(conn, line);
        let entry = world.ask(conn, "SLOWLOG GET 1");
        let words: Vec<&str> = shown.split(' ').collect();
        let bulks: Vec<String> =
            words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let args = format!("\r\n*{}\r\n{}$15\r\n", words.len(), bulks.concat());
        assert!(entry.contains(&args), "{line}: {entry}");
    }
}

#[test]
fn the_table_describes_itself() {
    const NO_KEYS: &str = "-ERR Invalid arguments specified for command\r\n";
    let mut world = World::new();
    let conn = world.open();
    let info = world.ask(conn, "COMMAND INFO get nosuch");
    assert!(
        info.starts_with(
            "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
        ),
        "{info}"
    );
    assert!(info.ends_with("\r\n$-1\r\n"));
    let third = world.open();
    world.ask(third, "HELLO 3");
    // As `redis-server` 7.0.15 writes what has none of it.
    assert!(world.ask(third, "COMMAND INFO get nosuch").ends_with("\r\n~0\r\n~0\r\n~0\r\n_\r\n"));
    assert!(world.ask(third, "COMMAND INFO slowlog").contains("\r\n~0\r\n~0\r\n*4\r\n*10\r\n"));
    talk(
        &mut world,
        conn,
        &[
            ("COMMAND GETKEYS BLPOP a b 0", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("COMMAND GETKEYS PING x", "-ERR The command has no key arguments\r\n"),
            ("COMMAND GETKEYS ZUNIONSTORE d 2 a b", "*3\r\n$1\r\nd\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("COMMAND GETKEYS ZUNIONSTORE d 0 a b", NO_KEYS),
            ("COMMAND GETKEYS ZUNIONSTORE d x a b", NO_KEYS),
            ("COMMAND GETKEYS ZUNIONSTORE d 3 a b", NO_KEYS),
            ("COMMAND GETKEYS LMPOP -1 a b LEFT", NO_KEYS),
            ("COMMAND GETKEYS NOSUCH a", "-ERR Invalid command specified\r\n"),
            ("COMMAND LIST FILTERBY PATTERN ge?", "*1\r\n$3\r\nget\r\n"),
        ],
    );
    assert!(world.ask(conn, "COMMAND DOCS get").starts_with("*2\r\n$3\r\nget\r\n"));
    let names: Vec<&str> =
        world.kv.server.table.rows().iter().map(|row| row.command.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "each name is there once");
}

#[test]
fn what_ends_leaves_nothing() {
    let mut world = World::new();
    let keeper = world.open();
    for line in [
        "SUBSCRIBE a",
        "PSUBSCRIBE a*",
        "SSUBSCRIBE a",
        "WATCH k",
        "MULTI",
        "BLPOP l 100",
        "BLPOP l m 0",
    ] {
        let conn = world.open();
        world.ask(conn, line);
        world.close(conn);
    }
    let held = world.open();
    world.ask(keeper, "CLIENT PAUSE 1000");
    world.ask(held, "SET k 1");
    world.close(held);
    world.pass_ms(1000);
    let server = &world.kv.server;
    assert_eq!((server.clients.len(), server.waiters.count()), (1, 0));
    let channels = &server.channels;
    let listened_to = [&channels.channels, &channels.patterns, &channels.shards];
    assert!(listened_to.iter().all(|names| names.is_empty()), "{channels:?}");
    assert!(server.watched.is_empty() && server.waiters.is_empty() && world.kv.due_ns().is_none());
}

#[test]
fn what_clients_of_replicas_and_clusters_ask_is_answered() {
    const NO_CLUSTER: &str = "-ERR This instance has cluster support disabled\r\n";
    let mut world = World::new();
    let conn = world.open();
    talk(
        &mut world,
        conn,
        &[
            ("ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"),
            ("READONLY", NO_CLUSTER),
            ("READWRITE", NO_CLUSTER),
            ("ASKING", NO_CLUSTER),
            ("CLUSTER INFO", NO_CLUSTER),
            ("CLUSTER slots", NO_CLUSTER),
            ("CLUSTER", "-ERR wrong number of arguments for 'cluster' command\r\n"),
            ("CLUSTER nosuch", "-ERR unknown subcommand 'nosuch'. Try CLUSTER HELP.\r\n"),
            ("CLUSTER SLOTS x", "-ERR wrong number of arguments for 'cluster|slots' command\r\n"),
            ("CLIENT GETREDIR", ":-1\r\n"),
            (
                "CLIENT TRACKINGINFO",
                "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n",
            ),
            ("MEMORY PURGE", "+OK\r\n"),
            ("MEMORY MALLOC-STATS", "$45\r\nStats not supported for the current allocator\r\n"),
        ],
    );
    assert!(world.ask(conn, "MEMORY DOCTOR").starts_with('$'));
    for name in
        ["ACL", "CLIENT", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "PUBSUB", "SLOWLOG", "OBJECT"]
    {
        let help = world.ask(conn, &format!("{name} help"));
        let title = format!("+{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n");
        assert!(help.contains(&title) && help.contains("\r\n+HELP\r\n"), "{help}");
    }
}

#[test]
fn a_client_waits_in_vain_for_replicas() {
    let mut world = World::new();
    let (conn, operator) = (world.open(), world.open());
    talk(
        &mut world,
        conn,
        &[
            ("WAIT 0 0", ":0\r\n"),
            ("WAIT -1 0", ":0\r\n"),
            ("WAIT x 0", "-ERR value is not an integer or out of range\r\n"),
            ("WAIT 0 x", "-ERR timeout is not an integer or out of range\r\n"),
            ("WAIT 0 -1", "-ERR timeout is negative\r\n"),
            ("MULTI", "+OK\r\n"),
            ("WAIT 1 0", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n:0\r\n"),
            ("WAIT 1 50", ""),
        ],
    );
    world.pass_ms(49);
    assert_eq!(world.received(conn), "");
    world.pass_ms(1);
    assert_eq!(world.received(conn), ":0\r\n");
    for (end, reply) in
        [("TIMEOUT", ":0\r\n"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")]
    {
        talk(&mut world, conn, &[("WAIT 1 0", "")]);
        assert_eq!(world.ask(operator, &format!("CLIENT UNBLOCK 1 {end}")), ":1\r\n");
        assert_eq!(world.received(conn), reply);
    }
    talk(
        &mut world,
        conn,
        &[
            ("WAIT 2 9223372036854775807", "-ERR timeout is out of range\r\n"),
            ("WAIT 2 9223370000000000000", ""),
        ],
    );
    world.close(conn);
    assert!(world.kv.server.waiters.is_empty() && world.kv.due_ns().is_none());
}

#[test]
fn shutdown_ends_the_run() {
    let mut world = World::new();
    let conn = world.open();
    assert_eq!(world.ask(conn, "SHUTDOWN maybe"), "-ERR syntax error\r\n");
    assert!(!world.kv.wants_stop());
    assert_eq!(world.ask(conn, "SHUTDOWN NOSAVE"), "");
    assert!(world.kv.wants_stop());
}
