//! Replies that wait for the log, and a log that is done again.

use super::*;
use std::cell::RefCell;

/// A log in memory, durable when the test says so.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) records: Vec<Vec<u8>>,
    pub(super) durable: u64,
    pub(super) failed: Option<String>,
    pub(super) is_full: bool,
    pub(super) pieces: Vec<Vec<u8>>,
    /// The writer takes no piece now.
    pub(super) is_behind: bool,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) bytes: LogBytes,
}

#[derive(Debug)]
struct Handle(Rc<RefCell<Memory>>, Fsync);

impl Log for Handle {
    fn append(&mut self, record: &[u8]) -> Result<u64, NotTaken> {
        let mut memory = self.0.borrow_mut();
        if memory.failed.is_some() {
            return Err(NotTaken::Ended);
        }
        if memory.is_full {
            return Err(NotTaken::Full);
        }
        memory.records.push(record.to_vec());
        Ok(memory.records.len() as u64)
    }

    fn commit(&mut self) {}

    fn take_all(&mut self) {
        self.0.borrow_mut().is_full = false;
    }

    fn close(&mut self) {}

    fn record_bytes_max(&self) -> usize {
        1000
    }

    fn last(&self) -> u64 {
        self.0.borrow().records.len() as u64
    }

    fn durable(&self) -> u64 {
        self.0.borrow().durable
    }

    fn failed(&self) -> Option<String> {
        self.0.borrow().failed.clone()
    }

    fn fsync(&self) -> Fsync {
        self.1
    }

    fn begin_snapshot(&mut self) -> Result<(), NotTaken> {
        let mut memory = self.0.borrow_mut();
        memory.snapshot = Some(Snapshot::Writing);
        memory.pieces.clear();
        Ok(())
    }

    fn give_piece(&mut self, piece: &[u8]) -> Result<(), NotTaken> {
        let mut memory = self.0.borrow_mut();
        if memory.is_behind {
            return Err(NotTaken::Full);
        }
        memory.pieces.push(piece.to_vec());
        Ok(())
    }

    fn finish_snapshot(&mut self) {
        let mut memory = self.0.borrow_mut();
        memory.snapshot = Some(Snapshot::InPlace);
        let snapshot = memory.pieces.iter().map(|piece| piece.len() as u64).sum();
        memory.bytes = LogBytes { snapshot, records: 0 };
    }

    fn give_up_snapshot(&mut self) {}

    fn snapshot(&self) -> Snapshot {
        self.0.borrow().snapshot.clone().unwrap_or(Snapshot::None)
    }

    fn bytes(&self) -> LogBytes {
        self.0.borrow().bytes
    }
}

pub(super) fn logged(fsync: Fsync) -> (World, Rc<RefCell<Memory>>) {
    let mut world = World::new();
    let memory = join(&mut world, fsync);
    (world, memory)
}

/// The server joins a log in which nothing is yet.
pub(super) fn join(world: &mut World, fsync: Fsync) -> Rc<RefCell<Memory>> {
    let memory = Rc::new(RefCell::new(Memory::default()));
    world.kv.join_log(Box::new(Handle(memory.clone(), fsync)), String::new());
    memory
}

#[test]
fn a_key_that_is_touched_and_not_logged_is_not_waited_for() {
    let (mut world, memory) = logged(Fsync::Always);
    let conn = world.open();
    world.ask(conn, "RPUSH l a b");
    memory.borrow_mut().durable = 1;
    world.turn();
    assert_eq!(world.received(conn), ":2\r\n");
    // A WATCH sees the change; the log records nothing.
    assert_eq!(world.ask(conn, "LTRIM l 0 -1"), "+OK\r\n");
    assert_eq!(world.ask(conn, "LLEN l"), ":2\r\n");
    assert_eq!(memory.borrow().records.len(), 1);
}

#[test]
fn always_answers_when_the_record_is_durable_and_not_before() {
    let (mut world, memory) = logged(Fsync::Always);
    let (writer, reader) = (world.open(), world.open());
    assert_eq!(world.ask(writer, "SET k 1"), "");
    assert_eq!(world.ask(writer, "PING"), "", "replies of a client stay in order");
    assert_eq!(world.ask(reader, "GET other"), "$-1\r\n", "the loop goes on");
    assert_eq!(world.ask(reader, "GET k"), "", "who reads it would see what may be lost");
    assert_eq!(world.ask(reader, "DBSIZE"), "");
    memory.borrow_mut().durable = 1;
    world.turn();
    assert_eq!(world.received(writer), "+OK\r\n+PONG\r\n");
    assert_eq!(world.received(reader), "$1\r\n1\r\n:1\r\n");
    assert_eq!(world.ask(reader, "GET k"), "$1\r\n1\r\n");
    assert_eq!(world.ask(writer, "MULTI"), "+OK\r\n");
    assert_eq!(world.ask(writer, "PING"), "+QUEUED\r\n");
    assert_eq!(world.ask(writer, "INCR k"), "+QUEUED\r\n");
    assert_eq!(world.ask(writer, "EXEC"), "", "no part of a transaction's reply is early");
    memory.borrow_mut().durable = 2;
    world.turn();
    assert_eq!(world.received(writer), "*2\r\n+PONG\r\n:2\r\n");
}

#[test]
fn who_reads_an_emptied_database_waits_as_well() {
    let (mut world, memory) = logged(Fsync::Always);
    let (writer, reader) = (world.open(), world.open());
    world.ask(writer, "SET k 1");
    memory.borrow_mut().durable = 1;
    world.turn();
    assert_eq!(world.received(writer), "+OK\r\n");
    world.ask(writer, "FLUSHALL");
    assert_eq!(world.ask(reader, "GET k"), "", "the flush may be lost, and the key be there again");
    memory.borrow_mut().durable = 2;
    world.turn();
    assert_eq!(world.received(reader), "$-1\r\n");
}

#[test]
fn a_turn_is_one_record() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let (first, second) = (world.open(), world.open());
    world
        .peer(first)
        .unread
        .extend([array("SET a 1"), array("SELECT 2"), array("INCR b")].concat());
    world.arrive(second, &array("SET c 3"));
    assert_eq!(world.received(first), "+OK\r\n+OK\r\n:1\r\n", "everysec answers at once");
    let wanted = [
        array("SELECT 0"),
        array("SET a 1"),
        array("SELECT 2"),
        array("INCR b"),
        array("SELECT 0"),
        array("SET c 3"),
    ];
    assert_eq!(memory.borrow().records, [wanted.concat()]);
    world.ask(first, "GET b");
    assert_eq!(memory.borrow().records.len(), 1, "what changes nothing is not logged");
}

#[test]
fn a_log_is_done_again_at_the_start() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    for line in ["SET a 1", "SELECT 3", "INCR a", "INCR a", "RPUSH l x y", "BLPOP l 0", "DEL none"]
    {
        world.ask(conn, line);
    }
    let mut again = World::new();
    for record in &memory.borrow().records {
        again.kv.restore(record).expect("what was logged");
    }
    let conn = again.open();
    assert_eq!(again.ask(conn, "GET a"), "$1\r\n1\r\n");
    again.ask(conn, "SELECT 3");
    assert_eq!(again.ask(conn, "GET a"), "$1\r\n2\r\n");
    assert_eq!(again.ask(conn, "BLPOP l 0"), "*2\r\n$1\r\nl\r\n$1\r\ny\r\n");
    for (record, why) in [
        (&b"*1\r\n$4\r\nPING\r\n"[..], "a record has the command `PING`, which writes nothing"),
        (b"*1\r\n$1\r\nX\r\n", "a record has the command `X`, which there is not"),
        (
            b"*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n",
            "a record selects a database that there is not; raise --databases",
        ),
        (b"*1\r\n$4\r\nPI", "a record ends inside a command"),
        (b"*x\r\n", "Protocol error: invalid multibulk length"),
    ] {
        assert_eq!(again.kv.restore(record), Err(why.to_owned()));
    }
}

#[test]
fn a_log_that_failed_ends_writes_and_no_reads() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let conn = world.open();
    let notes = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&notes);
    world.kv.when_log_fails(move |why| noted.borrow_mut().push(why.to_owned()));
    world.ask(conn, "SET k 1");
    assert!(notes.borrow().is_empty());
    memory.borrow_mut().failed = Some("No space left on device".to_owned());
    assert_eq!(
        world.ask(conn, "SET k 2"),
        "-MISCONF Errors writing to the AOF file: No space left on device\r\n"
    );
    assert_eq!(world.ask(conn, "GET k"), "$1\r\n1\r\n");
    assert!(world.ask(conn, "INFO persistence").contains("aof_last_write_status:err"));
    assert_eq!(*notes.borrow(), ["No space left on device"], "once, when it fails");
}

#[test]
fn writes_wait_while_the_log_has_no_room() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let (conn, reader) = (world.open(), world.open());
    memory.borrow_mut().is_full = true;
    assert_eq!(world.ask(conn, "SET k 1"), "+OK\r\n");
    assert_eq!(world.ask(conn, "SET k 2"), "", "the record before is not in the log yet");
    assert_eq!(world.ask(reader, "GET k"), "$1\r\n1\r\n");
    memory.borrow_mut().is_full = false;
    world.turn();
    assert_eq!(world.received(conn), "+OK\r\n");
    world.turn();
    let wanted = [
        [array("SELECT 0"), array("SET k 1")].concat(),
        [array("SELECT 0"), array("SET k 2")].concat(),
    ];
    assert_eq!(memory.borrow().records, wanted);
}

#[test]
fn who_waits_for_a_record_that_is_lost_is_not_answered() {
    let (mut world, memory) = logged(Fsync::Always);
    let (writer, reader) = (world.open(), world.open());
    assert_eq!(world.ask(writer, "SET k 1"), "");
    memory.borrow_mut().failed = Some("the disk is gone".to_owned());
    world.turn();
    assert!(world.peer(writer).is_aborted && world.received(writer).is_empty());
    assert_eq!(world.ask(reader, "GET other"), "$-1\r\n");
}

/// A reply that is empty waits as well, and what it waits for is not forgotten with the bytes before it.
#[test]
fn what_waits_behind_sent_bytes_goes_on_waiting() {
    let (mut world, memory) = logged(Fsync::Always);
    let conn = world.open();
    let pipeline = [array("PING"), array("CLIENT REPLY SKIP"), array("SET a 1")].concat();
    world.arrive(conn, &pipeline);
    assert_eq!(world.received(conn), "+PONG\r\n");
    assert_eq!(world.ask(conn, "SET b 2"), "", "its record is not durable");
    memory.borrow_mut().durable = 1;
    world.turn();
    assert_eq!(world.received(conn), "");
    memory.borrow_mut().durable = 2;
    world.turn();
    assert_eq!(world.received(conn), "+OK\r\n");
}

#[test]
fn a_transaction_whose_reply_is_left_out_is_waited_for_all_the_same() {
    let (mut world, memory) = logged(Fsync::Always);
    let (conn, other) = (world.open(), world.open());
    world.ask(other, "SET a 1");
    for line in ["CLIENT REPLY OFF", "MULTI", "GET a", "SET b 2", "EXEC", "CLIENT REPLY ON"] {
        assert_eq!(world.ask(conn, line), "", "{line}");
    }
    memory.borrow_mut().durable = 1;
    world.turn();
    assert_eq!(world.ask(conn, "SET c 3"), "", "neither record is durable");
    memory.borrow_mut().durable = 2;
    world.turn();
    assert_eq!(world.received(conn), "+OK\r\n");
    memory.borrow_mut().durable = 3;
    world.turn();
    assert_eq!(world.received(conn), "+OK\r\n");
}

#[test]
fn a_stop_gives_the_log_what_it_had_no_room_for() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let (conn, other) = (world.open(), world.open());
    memory.borrow_mut().is_full = true;
    assert_eq!(world.ask(conn, "SET k 1"), "+OK\r\n");
    assert_eq!(world.ask(other, "SET k 2"), "", "what is not done is not answered");
    world.kv.on_stop(Turn { now_ns: 0 });
    assert_eq!(memory.borrow().records, [[array("SELECT 0"), array("SET k 1")].concat()]);
}

/// Writes that waited are let in as those that have just arrived.
#[test]
fn writes_that_a_pause_held_back_make_no_record_too_long() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let (operator, value) = (world.open(), "v".repeat(600));
    world.ask(operator, "CLIENT PAUSE 100000 WRITE");
    let conns = ["a", "b", "c"].map(|key| {
        let conn = world.open();
        assert_eq!(world.ask(conn, &format!("SET {key} {value}")), "");
        conn
    });
    memory.borrow_mut().is_full = true;
    assert_eq!(world.ask(operator, "CLIENT UNPAUSE"), "+OK\r\n");
    let replies = conns.map(|conn| world.received(conn));
    assert_eq!(replies, ["+OK\r\n", "", ""], "two records wait for room, and no third");
    assert_eq!(world.ask(operator, "DBSIZE"), ":1\r\n");
    memory.borrow_mut().is_full = false;
    world.turn();
    assert_eq!(conns.map(|conn| world.received(conn)), ["", "+OK\r\n", "+OK\r\n"]);
    world.turn();
    let lens: Vec<usize> = memory.borrow().records.iter().map(Vec::len).collect();
    assert!(lens.len() == 3 && lens.iter().all(|&len| len <= 1000), "{lens:?}");
}

#[test]
fn writes_go_on_wherever_in_a_turn_the_log_has_room_again() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let (conn, other) = (world.open(), world.open());
    let value = "v".repeat(600);
    memory.borrow_mut().is_full = true;
    assert_eq!(world.ask(conn, &format!("SET k {value}")), "+OK\r\n");
    assert_eq!(world.ask(conn, "SET k 2"), "");
    memory.borrow_mut().is_full = false;
    // The log takes the record while room is made for this one.
    assert_eq!(world.ask(other, &format!("SET other {value}")), "+OK\r\n");
    assert_eq!(world.received(conn), "+OK\r\n");
}

#[test]
fn what_no_record_can_hold_is_refused_before_it_is_done() {
    let (mut world, memory) = logged(Fsync::EverySecond);
    let conn = world.open();
    let value = "v".repeat(600);
    let both = [array(&format!("SET a {value}")), array(&format!("SET b {value}"))].concat();
    world.arrive(conn, &both);
    assert_eq!(world.received(conn), "+OK\r\n+OK\r\n");
    assert_eq!(memory.borrow().records.len(), 2, "a turn of two records");
    let long = "v".repeat(1000);
    assert!(
        world.ask(conn, &format!("SET a {long}")).starts_with("-ERR the log takes no command of")
    );
    world.ask(conn, "MULTI");
    world.ask(conn, &format!("SET a {value}x"));
    world.ask(conn, &format!("SET b {value}x"));
    assert!(
        world.ask(conn, "EXEC").starts_with("-EXECABORT Transaction discarded: the log takes no")
    );
    assert_eq!(world.ask(conn, "GET a"), format!("$600\r\n{value}\r\n"));
}

/// Some commands have more to log than clients send: a record that would be too long ends, and another begins.
#[test]
fn what_a_command_does_is_in_as_many_records_as_it_needs() {
    let (mut world, memory) = logged(Fsync::Always);
    let conn = world.open();
    let mut records = 0;
    let mut durable = |world: &mut World| {
        let last = memory.borrow().records.len();
        memory.borrow_mut().durable = last as u64;
        world.turn();
        last - std::mem::replace(&mut records, last)
    };
    for number in 0..10 {
        world.ask(conn, &format!("SADD s {number}{}", "m".repeat(300)));
        world.ask(conn, &format!("SET {number}{} v PX 1", "k".repeat(300)));
    }
    durable(&mut world);
    world.received(conn);
    // Not by a tick: the reads delete what is due.
    world.now_us.set(START_US + 10_000);
    let keys: Vec<String> = (0..10).map(|number| format!("{number}{}", "k".repeat(300))).collect();
    let due: Vec<u8> = array(&format!("EXISTS {}", keys.join(" ")));
    memory.borrow_mut().is_full = true;
    world.arrive(conn, &due);
    assert_eq!(world.received(conn), "");
    memory.borrow_mut().is_full = false;
    world.turn();
    assert!(durable(&mut world) > 3);
    assert_eq!(world.received(conn), ":0\r\n", "behind the last of them");
    let bytes_max = memory.borrow().records.iter().map(Vec::len).max();
    assert!(bytes_max <= Some(1000), "{bytes_max:?}");

    let mut again = World::new();
    for record in &memory.borrow().records {
        again.kv.restore(record).expect("what was logged");
    }
    let conn = again.open();
    assert_eq!(again.ask(conn, "DBSIZE"), ":1\r\n");
}

#[test]
fn a_record_may_have_more_arguments_than_a_client_sends() {
    const MEMBERS: usize = (1 << 20) + 100;
    let members: Vec<String> = (0..MEMBERS).map(|number| number.to_string()).collect();
    let mut words: Vec<&[u8]> = vec![b"SADD", b"s"];
    words.extend(members.iter().map(|member| member.as_bytes()));
    let mut record = Vec::new();
    laneway_resp::command(&words, &mut record);
    let mut world = World::new();
    world.kv.restore(&record).expect("it is what an older version wrote");
    let conn = world.open();
    assert_eq!(world.ask(conn, "SCARD s"), format!(":{MEMBERS}\r\n"));
}

#[test]
fn what_a_log_did_last_is_no_part_of_the_first_record() {
    let mut record = Vec::new();
    for args in
        [&[&b"RPUSH"[..], b"l", b"a"][..], &[b"SET", b"k", b"1", b"PXAT", b"99999999999999"]]
    {
        laneway_resp::command(args, &mut record);
    }
    let mut world = World::new();
    world.kv.restore(&record).expect("it is a record");
    let memory = join(&mut world, Fsync::EverySecond);
    let conn = world.open();
    assert!(world.ask(conn, "GET l").starts_with("-WRONGTYPE"));
    assert_eq!(memory.borrow().records.len(), 0);
    assert_eq!(world.ask(conn, "SET x 1"), "+OK\r\n");
    let records = memory.borrow().records.concat();
    let text = String::from_utf8_lossy(&records).into_owned();
    assert!(text.contains("SET\r\n$1\r\nx") && !text.contains("PXAT"), "{text}");
}
