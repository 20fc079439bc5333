//! Values beyond memory: clients that wait for one, clients that do not, and what becomes of them, on a value store
//! that answers when the test lets it.

use super::durable::logged;
use super::*;
use crate::ValueStore;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A value store in memory.
#[derive(Debug, Default)]
struct Shelf {
    values: BTreeMap<u64, Vec<u8>>,
    /// Put before, and forgotten.
    forgotten: u64,
    answers: Vec<(u64, Result<Vec<u8>, String>)>,
    /// No answer is given yet.
    is_silent: bool,
    is_full: bool,
    failed: Option<String>,
    /// What is asked for is lost.
    is_broken: bool,
}

#[derive(Debug)]
struct Handle(Rc<RefCell<Shelf>>);

impl ValueStore for Handle {
    fn has_room(&self) -> bool {
        !self.0.borrow().is_full
    }

    fn put(&mut self, number: u64, value: Vec<u8>) {
        let before = self.0.borrow_mut().values.insert(number, value);
        assert_eq!(before, None, "a number is given once");
    }

    fn forget(&mut self, number: u64) {
        let mut shelf = self.0.borrow_mut();
        assert!(shelf.values.remove(&number).is_some(), "{number} is forgotten once");
        shelf.forgotten += 1;
    }

    fn ask(&mut self, number: u64) {
        let mut shelf = self.0.borrow_mut();
        let value =
            shelf.values.get(&number).cloned().expect("only values that are there are asked for");
        let answer = if shelf.is_broken { Err("the disk is gone".to_owned()) } else { Ok(value) };
        shelf.answers.push((number, answer));
    }

    fn answers(&mut self) -> Vec<(u64, Result<Vec<u8>, String>)> {
        let mut shelf = self.0.borrow_mut();
        if shelf.is_silent { Vec::new() } else { std::mem::take(&mut shelf.answers) }
    }

    fn wait(&mut self) {
        self.0.borrow_mut().is_silent = false;
    }

    fn failed(&self) -> Option<String> {
        self.0.borrow().failed.clone()
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

const LONG: usize = 600;
/// Room for some values of that length, and for all keys.
const MEMORY_BYTES_MAX: usize = 3_500;

fn spill(world: &mut World) -> Rc<RefCell<Shelf>> {
    let shelf = Rc::new(RefCell::new(Shelf::default()));
    world.kv.server.config.data.memory_bytes_max = Some(MEMORY_BYTES_MAX);
    // A sample in which the oldest is.
    world.kv.server.config.data.samples = 256;
    world.kv.server.share_settings();
    world.kv.spill_to(Box::new(Handle(shelf.clone())));
    shelf
}

fn value(letter: &str) -> String {
    letter.repeat(LONG)
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A server with the keys `a` to `j`, of which the first were spilled.
fn spilled() -> (World, Rc<RefCell<Shelf>>, ConnId) {
    let mut world = World::new();
    let shelf = spill(&mut world);
    let conn = world.open();
    for letter in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert_eq!(world.ask(conn, &format!("SET {letter} {}", value(letter))), "+OK\r\n");
        world.pass_ms(100);
    }
    assert!(world.kv.server.store.used_bytes() <= MEMORY_BYTES_MAX);
    assert!((5..10).contains(&shelf.borrow().values.len()), "{}", shelf.borrow().values.len());
    (world, shelf, conn)
}

/// What a client receives by a command, and by the turn in which its values are there.
fn reply_to(world: &mut World, conn: ConnId, line: &str) -> String {
    let reply = world.ask(conn, line);
    world.turn();
    reply + &world.received(conn)
}

fn info(world: &mut World, name: &str) -> u64 {
    let conn = world.open();
    let reply = world.ask(conn, "INFO memory");
    let found = reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("{name}: {reply}")).parse().expect("a number")
}

#[test]
fn a_command_waits_for_its_value_and_others_go_on() {
    let (mut world, shelf, conn) = spilled();
    let other = world.open();
    shelf.borrow_mut().is_silent = true;
    world.arrive(conn, &[array("GET a"), array("STRLEN b"), array("PING")].concat());
    assert_eq!(world.received(conn), "");
    assert!(world.peer(conn).is_paused, "no more of its input is read");
    assert_eq!(world.ask(other, "GET j"), bulk(&value("j")), "a value in memory");
    // What asks for no value has none to wait for.
    for (line, reply) in [
        ("EXISTS a none", ":1\r\n"),
        ("TYPE a", "+string\r\n"),
        ("TTL a", ":-1\r\n"),
        ("EXPIRE c 1000", ":1\r\n"),
        ("TTL c", ":1000\r\n"),
        ("DBSIZE", ":10\r\n"),
        ("GET none", "$-1\r\n"),
        ("SET d short KEEPTTL", "+OK\r\n"),
        ("DEL e", ":1\r\n"),
    ] {
        assert_eq!(world.ask(other, line), reply, "{line}");
    }
    shelf.borrow_mut().is_silent = false;
    world.turn();
    world.turn();
    assert_eq!(world.received(conn), bulk(&value("a")) + ":600\r\n+PONG\r\n", "in their order");
    assert!(!world.peer(conn).is_paused);
    assert_eq!(world.ask(other, "GET d"), "$5\r\nshort\r\n");
    assert_eq!(world.ask(other, "TTL c"), ":1000\r\n");
    assert_eq!(reply_to(&mut world, other, "GET c"), bulk(&value("c")));
    assert_eq!(world.ask(other, "TTL c"), ":1000\r\n");
    assert_eq!(info(&mut world, "lsm_waited"), 0, "the loop never waited");
    assert!(world.kv.server.store.used_bytes() <= MEMORY_BYTES_MAX);
}

/// What a value store is asked to do is undone when the keys are gone: nothing stays there for ever.
#[test]
fn the_value_store_forgets_what_nothing_names() {
    let (mut world, shelf, conn) = spilled();
    for letter in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "a", "b", "c"] {
        assert_eq!(reply_to(&mut world, conn, &format!("GET {letter}")), bulk(&value(letter)));
        world.pass_ms(100);
    }
    for line in ["APPEND c x", "DEL d", "SET e 1", "RENAME f g"] {
        reply_to(&mut world, conn, line);
    }
    assert!(info(&mut world, "lsm_unwritten") > 0, "what did not change is not written again");
    world.ask(conn, "SET z v");
    world.ask(conn, "FLUSHALL");
    for _ in 0..10 {
        world.pass_ms(1);
    }
    let shelf = shelf.borrow();
    assert!(shelf.values.is_empty() && shelf.forgotten > 8, "{:?}", shelf.values.keys());
    assert_eq!(world.kv.server.store.used_bytes(), 0);
}

#[test]
fn a_client_that_leaves_while_waiting_gets_nothing_and_one_that_has_finished_its_reply() {
    let (mut world, shelf, conn) = spilled();
    let (leaves, finishes, silent) = (world.open(), world.open(), world.open());
    shelf.borrow_mut().is_silent = true;
    world.ask(silent, "CLIENT REPLY OFF");
    for one in [leaves, finishes, silent] {
        assert_eq!(world.ask(one, "GET a"), "");
    }
    world.close(leaves);
    // Another client gets its place, and waits for another value.
    let next = world.open();
    assert_eq!(world.ask(next, "GET b"), "");
    world.finish(finishes);
    assert!(!world.peer(finishes).is_closed);
    shelf.borrow_mut().is_silent = false;
    world.turn();
    assert_eq!(world.received(finishes), bulk(&value("a")));
    assert!(world.peer(finishes).is_closed);
    assert_eq!(world.received(next), bulk(&value("b")));
    assert_eq!(world.ask(silent, "CLIENT REPLY ON"), "+OK\r\n", "and nothing before it");
    assert_eq!(world.ask(conn, "PING"), "+PONG\r\n");
}

#[test]
fn a_value_that_is_lost_is_an_error_and_never_an_absent_key() {
    let (mut world, shelf, conn) = spilled();
    shelf.borrow_mut().is_broken = true;
    let lost = "ERR the disk is gone; the log has it: look at the device, then restart\r\n";
    for line in ["GET a", "INCR a", "APPEND a x", "MGET j a", "RENAME a k", "COPY a k", "LPUSH a x"]
    {
        assert_eq!(reply_to(&mut world, conn, line), format!("-{lost}"), "{line}");
    }
    assert_eq!(world.ask(conn, "EXISTS a k"), ":1\r\n");
    world.ask(conn, "MULTI");
    world.ask(conn, "SET n 1");
    world.ask(conn, "GET a");
    let refused = reply_to(&mut world, conn, "EXEC");
    assert!(refused.starts_with("-EXECABORT") && refused.contains("the disk is gone"), "{refused}");
    assert_eq!(world.ask(conn, "EXISTS n"), ":0\r\n", "no part of it was done");
    // What stands in the place of a lost value does not need it.
    assert_eq!(world.ask(conn, "SET a new"), "+OK\r\n");
    assert_eq!(world.ask(conn, "GET a"), "$3\r\nnew\r\n");
}

/// A client writes until it has to wait.
fn write_until_held(world: &mut World, conn: ConnId) {
    let mut sent = 0;
    while world.ask(conn, &format!("SET more{sent} {}", value("m"))) == "+OK\r\n" {
        sent += 1;
        assert!(sent < 10, "memory is bounded all the same");
    }
}

#[test]
fn writes_wait_while_the_value_store_is_behind_and_reads_do_not() {
    let (mut world, shelf, conn) = spilled();
    let other = world.open();
    shelf.borrow_mut().is_full = true;
    write_until_held(&mut world, conn);
    assert!(world.peer(conn).is_paused);
    assert_eq!(world.ask(other, "PING"), "+PONG\r\n");
    assert_eq!(world.ask(other, "EXISTS a"), ":1\r\n");
    shelf.borrow_mut().is_full = false;
    world.turn();
    assert_eq!(world.received(conn), "+OK\r\n");
    world.turn();
    assert!(world.kv.server.store.used_bytes() <= MEMORY_BYTES_MAX);
}

#[test]
fn writes_go_on_wherever_in_a_turn_the_value_store_has_room_again() {
    let (mut world, shelf, conn) = spilled();
    let other = world.open();
    shelf.borrow_mut().is_full = true;
    write_until_held(&mut world, conn);
    shelf.borrow_mut().is_full = false;
    // What another client writes spills, so nothing is behind when the turn ends.
    assert_eq!(world.ask(other, &format!("SET other {}", value("o"))), "+OK\r\n");
    assert_eq!(world.received(conn), "+OK\r\n");
}

#[test]
fn where_keys_alone_are_too_many_the_policy_decides() {
    let (mut world, shelf, conn) = spilled();
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let mut number = 0;
    while world.ask(conn, &format!("SET key:{number} {number}")) == "+OK\r\n" {
        number += 1;
    }
    assert!(number > 30);
    assert_eq!(world.ask(conn, &format!("SET key:{number} {number}")), refused);
    assert_eq!(world.ask(conn, "CONFIG SET maxmemory-policy allkeys-lru"), "+OK\r\n");
    assert_eq!(world.ask(conn, &format!("SET key:{number} {number}")), "+OK\r\n");
    // The value store ends: nothing more is spilled, and what it has is still there.
    shelf.borrow_mut().failed = Some("it has failed".to_owned());
    assert_eq!(world.ask(conn, "CONFIG SET maxmemory-policy noeviction"), "+OK\r\n");
    let mut last = String::new();
    for more in 0..200 {
        last = world.ask(conn, &format!("SET other:{more} {}", value("o")));
    }
    assert_eq!(last, refused);
    let reply = world.ask(conn, "INFO memory");
    assert!(reply.contains("lsm_error:it has failed\r\n"), "{reply}");
}

#[test]
fn transactions_waiting_clients_and_many_keys_have_their_values() {
    let (mut world, shelf, conn) = spilled();
    let other = world.open();
    for line in ["MULTI", "APPEND a 1", "GET b", "STRLEN a", "SELECT 1", "GET a"] {
        world.ask(conn, line);
    }
    let reply = reply_to(&mut world, conn, "EXEC");
    let wanted = format!("*5\r\n:601\r\n{}:601\r\n+OK\r\n$-1\r\n", bulk(&value("b")));
    assert_eq!(reply, wanted);
    assert_eq!(world.ask(conn, "SELECT 0"), "+OK\r\n");
    // More than memory has room for at once.
    let reply = reply_to(&mut world, conn, "MGET a b c d e f g h i j");
    assert!(reply.starts_with("*10\r\n$601\r\n") && reply.len() > 10 * LONG, "{}", reply.len());
    // A client waits for a key, and what it moves goes to one whose value is on the disk.
    for number in 0..100 {
        world.ask(conn, &format!("RPUSH into {number}-{}", "x".repeat(30)));
    }
    world.pass_ms(100);
    for letter in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        reply_to(&mut world, conn, &format!("GET {letter}"));
        world.pass_ms(100);
    }
    assert_eq!(world.ask(other, "BLMOVE from into LEFT LEFT 0"), "");
    world.turn();
    shelf.borrow_mut().is_silent = true;
    for letter in ["a", "b", "c"] {
        world.ask(conn, &format!("SET {letter} {}", value("y")));
        world.pass_ms(100);
    }
    assert_eq!(world.ask(conn, "RPUSH from moved"), ":1\r\n");
    assert_eq!(world.received(other), "$5\r\nmoved\r\n");
    shelf.borrow_mut().is_silent = false;
    assert_eq!(reply_to(&mut world, conn, "LLEN into"), ":101\r\n");
    assert!(info(&mut world, "lsm_waited") > 0, "that could not be foreseen");
}

/// A snapshot, and the log that is done again, by a start with little memory.
#[test]
fn a_start_spills_what_it_reads_and_a_lost_value_ends_a_snapshot_alone() {
    let (mut world, memory) = logged(Fsync::No);
    let shelf = spill(&mut world);
    let conn = world.open();
    for letter in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        world.ask(conn, &format!("SET {letter} {}", value(letter)));
        world.ask(conn, &format!("RPUSH list{letter} {} {}", value("x"), letter));
    }
    shelf.borrow_mut().is_broken = true;
    assert_eq!(world.ask(conn, "BGSAVE"), "+Background saving started\r\n");
    for _ in 0..20 {
        world.pass_ms(1);
    }
    let reply = world.ask(conn, "INFO persistence");
    assert!(reply.contains("rdb_last_bgsave_status:err\r\n"), "{reply}");
    assert!(
        reply.contains("last_bgsave_error:the disk is gone; the log goes on as before"),
        "{reply}"
    );
    shelf.borrow_mut().is_broken = false;
    assert_eq!(world.ask(conn, "BGSAVE"), "+Background saving started\r\n");
    world.turn();
    let records = memory.borrow().records.len();
    // While it is made, everything changes.
    for letter in ["a", "b", "c", "d"] {
        world.ask(conn, &format!("DEL {letter}"));
        world.ask(conn, &format!("LPUSH list{letter} y"));
        world.turn();
    }
    for _ in 0..20 {
        world.pass_ms(1);
    }
    world.received(conn);
    assert!(world.ask(conn, "INFO persistence").contains("rdb_saves:1\r\n"));
    let mut again = World::new();
    let other = spill(&mut again);
    for piece in &memory.borrow().pieces {
        again.kv.load(piece).expect("what was saved");
    }
    for record in &memory.borrow().records[records..] {
        again.kv.restore(record).expect("what was logged");
    }
    assert!(again.kv.server.store.used_bytes() <= MEMORY_BYTES_MAX);
    assert!(other.borrow().values.len() > 8);
    let conn = again.open();
    for letter in ["a", "d", "e", "h"] {
        let is_there = letter >= "e";
        let wanted = if is_there { bulk(&value(letter)) } else { "$-1\r\n".to_owned() };
        assert_eq!(reply_to(&mut again, conn, &format!("GET {letter}")), wanted, "{letter}");
        let list = format!("{}{}", bulk(&value("x")), bulk(letter));
        let wanted =
            if is_there { format!("*2\r\n{list}") } else { format!("*3\r\n$1\r\ny\r\n{list}") };
        let range = reply_to(&mut again, conn, &format!("LRANGE list{letter} 0 -1"));
        assert_eq!(range, wanted, "{letter}");
    }
}

/// A database whose values are all too short to be spilled keeps none of another in memory.
#[test]
fn values_of_every_database_are_spilled() {
    for _ in 0..20 {
        let mut world = World::new();
        let shelf = spill(&mut world);
        let conn = world.open();
        for number in 0..20 {
            assert_eq!(world.ask(conn, &format!("SET k{number} {number}")), "+OK\r\n");
        }
        world.ask(conn, "SELECT 7");
        for letter in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(world.ask(conn, &format!("SET {letter} {}", value(letter))), "+OK\r\n");
        }
        assert!(!shelf.borrow().values.is_empty());
    }
}
