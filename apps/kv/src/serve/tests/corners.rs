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
