//! Events of keys, as those who listen receive them. Which command has which is for the judge of the data.

use super::durable::logged;
use super::shards::Crew;
use super::*;

/// The messages in what a listener received, as `channel message`; of a pattern, too.
fn messages(received: &str) -> Vec<String> {
    let texts: Vec<&str> = received.split("\r\n").collect();
    let starts = (0..texts.len()).filter(|&at| matches!(texts[at], "message" | "pmessage"));
    let message = |at: usize| {
        let at = if texts[at] == "pmessage" { at + 2 } else { at };
        format!("{} {}", texts[at + 2], texts[at + 4])
    };
    starts.map(message).collect()
}

fn set_up(world: &mut World, classes: &str) -> (ConnId, ConnId) {
    let (writer, listener) = (world.open(), world.open());
    assert_eq!(
        world.ask(writer, &format!("CONFIG SET notify-keyspace-events {classes}")),
        "+OK\r\n"
    );
    world.ask(listener, "PSUBSCRIBE __key*");
    (writer, listener)
}

#[test]
fn listeners_receive_the_events_of_keys_in_their_order() {
    let mut world = World::new();
    let (writer, listener) = set_up(&mut world, "KEA");
    world.ask(writer, "SET k 1 EX 10");
    assert_eq!(
        messages(&world.received(listener)),
        [
            "__keyspace@0__:k set",
            "__keyevent@0__:set k",
            "__keyspace@0__:k expire",
            "__keyevent@0__:expire k"
        ]
    );
    world.ask(writer, "CONFIG SET notify-keyspace-events El$g");
    for line in ["SELECT 3", "MULTI", "RPUSH l a", "INCR k", "LPOP l", "HSET h f v", "EXEC"] {
        world.ask(writer, line);
    }
    assert_eq!(
        messages(&world.received(listener)),
        [
            "__keyevent@3__:rpush l",
            "__keyevent@3__:incrby k",
            "__keyevent@3__:lpop l",
            "__keyevent@3__:del l"
        ]
    );
    world.ask(writer, "CONFIG SET notify-keyspace-events Esgn");
    for line in ["SADD a m", "SMOVE a b m"] {
        world.ask(writer, line);
    }
    assert_eq!(
        messages(&world.received(listener)),
        ["new a", "sadd a", "srem a", "del a", "new b", "sadd b"]
            .map(|event| format!("__keyevent@3__:{event}"))
    );
    world.ask(writer, "CONFIG SET notify-keyspace-events A");
    world.ask(writer, "SET k 1");
    assert_eq!(world.received(listener), "", "no kind of channel is wanted");
}

#[test]
fn a_client_receives_the_events_of_what_it_and_those_it_serves_do() {
    let mut world = World::new();
    let (writer, _) = set_up(&mut world, "Kl");
    let (first, second) = (world.open(), world.open());
    for waiter in [first, second] {
        world.ask(waiter, "HELLO 3");
    }
    world.ask(first, "PSUBSCRIBE __key*");
    world.ask(first, "BLPOP l 0");
    world.ask(second, "BLPOP l 0");
    world.ask(writer, "RPUSH l a b");
    let received = world.received(first);
    let wanted = ["rpush", "lpop", "lpop"].map(|event| format!("__keyspace@0__:l {event}"));
    assert_eq!(messages(&received), wanted, "{received}");
    assert!(received.contains("*2\r\n$1\r\nl\r\n$1\r\na\r\n"), "{received}");
}

#[test]
fn who_begins_to_listen_behind_a_change_hears_nothing_of_it() {
    let mut world = World::new();
    let (writer, listener) = set_up(&mut world, "KA");
    world.close(listener);
    // In one turn, at the end of which events are published.
    world.arrive(writer, &[array("SET k 1"), array("SUBSCRIBE __keyspace@0__:k")].concat());
    assert_eq!(messages(&world.received(writer)), [""; 0]);
}

#[test]
fn a_key_whose_time_is_up_has_its_event_when_it_is_deleted() {
    let mut world = World::new();
    let (writer, listener) = set_up(&mut world, "KA");
    let ms = START_US / 1000;
    // It is due at once, and the command that sets it does not delete it.
    world.ask(writer, &format!("SET k v PXAT {}", ms - 1));
    let wanted = ["set", "expire"].map(|event| format!("__keyspace@0__:k {event}"));
    assert_eq!(messages(&world.received(listener)), wanted);
    world.pass_ms(20);
    assert_eq!(messages(&world.received(listener)), ["__keyspace@0__:k expired"]);
}

#[test]
fn no_event_leaves_before_its_record_is_durable() {
    let (mut world, memory) = logged(Fsync::Always);
    let (writer, listener) = set_up(&mut world, "K$l");
    world.received(listener);
    world.ask(writer, "SET k 1");
    world.ask(writer, "LPUSH l a");
    world.turn();
    assert_eq!(world.received(listener), "");
    for (durable, wanted) in [(1, "__keyspace@0__:k set"), (2, "__keyspace@0__:l lpush")] {
        memory.borrow_mut().durable = durable;
        world.turn();
        assert_eq!(messages(&world.received(listener)), [wanted]);
    }
    world.ask(writer, "SET k 2");
    memory.borrow_mut().failed = Some("full".to_owned());
    world.turn();
    memory.borrow_mut().durable = 3;
    world.turn();
    assert_eq!(world.received(listener), "", "it may be lost");
}

#[test]
fn events_reach_the_listeners_of_other_workers_and_wait_for_room_there() {
    let mut crew = Crew::new(2);
    let (here, there) = (crew.open(0), crew.open(1));
    assert_eq!(crew.ask(here, "CONFIG SET notify-keyspace-events K$"), "+OK\r\n");
    crew.ask(there, "PSUBSCRIBE __key*");
    let mut wanted = Vec::new();
    for key in ["a", "b"] {
        crew.ask(here, &format!("SET {key} 1"));
        wanted.push(format!("__keyspace@0__:{key} set"));
    }
    assert_eq!(messages(&crew.received(there)), wanted);
    crew.ask(there, "PUNSUBSCRIBE");
    let mut bytes = Vec::new();
    (0..50_000).for_each(|_| bytes.extend(array("SET b 1")));
    // Without a listener there, nothing waits for that worker.
    crew.worlds[0].arrive(here.1, &bytes);
    assert_eq!(crew.received(here).matches("+OK").count(), 50_000);
    crew.ask(there, "SUBSCRIBE __keyspace@0__:b");
    crew.received(there);
    // The other worker stands still: what its queue does not take waits, and so do writes, but not for good.
    for _ in 0..20 {
        crew.worlds[0].arrive(here.1, &bytes);
    }
    assert!(crew.worlds[0].kv.server.notifications.is_behind());
    crew.pass_ms(0);
    crew.pass_ms(20);
    assert_eq!(messages(&crew.received(there)).len(), 20 * 50_000);
    assert_eq!(crew.received(here).matches("+OK").count(), 20 * 50_000);
}

#[test]
fn a_listener_of_too_much_is_cut_off_in_the_middle_of_a_command() {
    let mut world = World::new();
    let (writer, _) = set_up(&mut world, "KEA");
    world.ask(writer, "CONFIG SET client-output-buffer-limit 'pubsub 100000 0 0'");
    let listener = world.open();
    world.ask(listener, "HELLO 3");
    let patterns: Vec<String> = (0..100).map(|n| format!("*{}", "?*".repeat(n % 3 + 1))).collect();
    world.ask(listener, &format!("PSUBSCRIBE {}", patterns.join(" ")));
    world.peer(listener).room = 0;
    let keys: Vec<String> = (0..1_000).map(|n| format!("key{n} v")).collect();
    // It is its own listener, too.
    world.arrive(listener, &array(&format!("MSET {}", keys.join(" "))));
    assert!(world.peer(listener).is_aborted);
    let clients = &world.kv.server.clients;
    let key = clients.key_of(listener).expect("its end was not seen yet");
    let kept = clients.get(key).map(|client| client.out.len());
    assert!(kept.is_some_and(|bytes| bytes < 101_000), "{kept:?}");
}
