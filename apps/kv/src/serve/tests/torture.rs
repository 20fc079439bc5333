//! Random pipelines, cut at random, get the same replies as each command alone.

use super::*;
use proptest::prelude::*;

fn command() -> impl Strategy<Value = String> {
    let key = || proptest::sample::select(vec!["a", "b", "list"]);
    let line = |verb: &'static str| key().prop_map(move |key| format!("{verb} {key}"));
    prop_oneof![
        4 => line("GET"),
        3 => (key(), "[a-z0-9]{0,9}").prop_map(|(key, value)| format!("SET {key} '{value}'")),
        2 => line("INCR"),
        1 => line("DEL"),
        2 => (key(), "[a-z]{1,200}").prop_map(|(key, value)| format!("RPUSH {key} {value}")),
        1 => line("WATCH"),
        1 => proptest::sample::select(vec![
            "PING", "MULTI", "EXEC", "DISCARD", "UNWATCH", "SELECT 1", "SELECT 0", "NOSUCH x", "GET",
            "HELLO 3", "HELLO 2", "RESET", "CLIENT GETNAME", "CLIENT REPLY SKIP", "SUBSCRIBE news", "UNSUBSCRIBE",
            "PUBLISH news hi", "DBSIZE", "COMMAND COUNT", "CONFIG GET maxc*", "FLUSHALL",
        ]).prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_replies(
        lines in proptest::collection::vec(command(), 1..40),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
        rooms in proptest::collection::vec(0usize..300, 0..20)
    ) {
        let mut alone = World::new();
        let conn = alone.open();
        let wanted: String = lines.iter().map(|line| alone.ask(conn, line)).collect();

        let mut world = World::new();
        let conn = world.open();
        world.peer(conn).room = 0;
        let bytes: Vec<u8> = lines.iter().flat_map(|line| array(line)).collect();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let mut rooms = rooms.into_iter().chain(std::iter::once(usize::MAX));
        for pair in ends.windows(2) {
            world.arrive(conn, &bytes[pair[0]..pair[1]]);
            world.peer(conn).room = rooms.next().unwrap_or(usize::MAX);
            world.kv.on_room(conn, &mut world.peers);
            world.turn();
        }
        world.peer(conn).room = usize::MAX;
        world.kv.on_room(conn, &mut world.peers);
        world.turn();
        prop_assert_eq!(world.received(conn), wanted);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in any::<proptest::sample::Index>()) {
        let mut world = World::new();
        let conn = world.open();
        let cut = cut.index(bytes.len() + 1);
        world.arrive(conn, &bytes[..cut]);
        world.arrive(conn, &bytes[cut..]);
        let other = world.open();
        prop_assert_eq!(world.ask(other, "PING"), "+PONG\r\n");
    }
}
