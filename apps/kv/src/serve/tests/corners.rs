//! Corners in which clients would see something else than of Redis, or the server would pay for what it need not.

use super::behaviour::talk;
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
