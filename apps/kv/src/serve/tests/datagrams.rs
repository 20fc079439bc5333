//! GET over UDP beside connections: rights, and answers that wait for the log.

use super::durable::logged;
use super::*;
use laneway_core::Payload;
use std::net::SocketAddr;

/// What was sent, behind its eight bytes.
#[derive(Default)]
struct Sent(Vec<String>);

impl DatagramOut for Sent {
    fn forward(&mut self, _: &Datagram<'_>, _: PortId, _: SocketAddr) {}

    fn send(
        &mut self,
        _: PortId,
        _: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let mut room = vec![0; bytes_max];
        let bytes = write(&mut room);
        assert_eq!(room[..8], [7, 7, 0, 0, 0, 1, 0, 0], "the number is the question's");
        self.0.push(String::from_utf8_lossy(&room[8..bytes]).into_owned());
    }
}

impl World {
    /// A datagram comes from there, or with an empty command only a tick; what is sent.
    pub(super) fn datagram(&mut self, from: &str, line: &str) -> Vec<String> {
        self.datagram_as(false, 100, from, line)
    }

    /// The same, perhaps to all hosts of the network, with so many bytes that only make it longer.
    fn datagram_as(
        &mut self,
        is_broadcast: bool,
        padding: usize,
        from: &str,
        line: &str,
    ) -> Vec<String> {
        let mut bytes = vec![7, 7, 0, 0, 0, 1, 0, 0];
        bytes.extend(array(line));
        bytes.resize(bytes.len() + padding, 0);
        let datagram = Datagram {
            payload: Payload::own(&bytes),
            segment_bytes: bytes.len(),
            source: from.parse().unwrap(),
            destination: "10.0.0.9:6379".parse().unwrap(),
            is_broadcast,
            ingress: PortId(0),
            ts_ns: 0,
        };
        let batch = [datagram];
        let mut sent = Sent::default();
        let shown = if line.is_empty() { &[][..] } else { &batch[..] };
        self.kv.on_datagrams(shown, Turn::default(), &mut sent);
        sent.0
    }

    fn count(&self, name: &str) -> u64 {
        let counts = self.kv.datagrams();
        counts.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name}")).1
    }
}

fn allowed() -> Allowed {
    Allowed(vec!["10.0.0.0/8".parse().unwrap()])
}

const ASKER: &str = "10.0.0.1:5000";

#[test]
fn a_datagram_asks_as_the_default_user_and_reads_its_rights_anew() {
    let mut world = World::new();
    world.kv.serve_datagrams(allowed(), None);
    let operator = world.open();
    world.ask(operator, "SET k 1");
    assert_eq!(world.datagram(ASKER, "GET k"), ["$1\r\n1\r\n"]);
    assert_eq!(world.datagram("11.0.0.1:5000", "GET k"), [""; 0]);
    assert_eq!(world.datagram("10.0.0.1:53", "GET k"), [""; 0]);
    assert_eq!(
        world.datagram_as(true, 100, ASKER, "GET k"),
        [""; 0],
        "each host there would answer"
    );
    assert_eq!(world.count("udp_dropped_source"), 3);
    world.ask(operator, "ACL SETUSER default resetkeys ~other");
    assert!(world.datagram(ASKER, "GET k")[0].starts_with("-NOPERM"));
    world.ask(operator, "ACL SETUSER default allkeys");
    world.ask(operator, "CONFIG SET requirepass secret");
    assert_eq!(world.datagram(ASKER, "GET k"), ["-NOAUTH Authentication required.\r\n"]);
    assert_eq!((world.count("udp_hit"), world.count("udp_error")), (1, 2));
}

#[test]
fn a_key_whose_time_has_come_is_gone_and_logged_so() {
    let (mut world, memory) = logged(Fsync::No);
    world.kv.serve_datagrams(allowed(), None);
    let client = world.open();
    world.ask(client, "SET k 1 PX 5");
    world.now_us.set(START_US + 6_000);
    assert_eq!(world.datagram(ASKER, "GET k"), ["$-1\r\n"]);
    assert_eq!(memory.borrow().records.len(), 2, "its deletion is in the log");
}

#[test]
fn an_answer_waits_until_what_it_tells_is_durable_and_is_lost_with_the_log() {
    let (mut world, memory) = logged(Fsync::Always);
    world.kv.serve_datagrams(allowed(), None);
    let writer = world.open();
    world.ask(writer, "SET k 1");
    assert_eq!(world.datagram(ASKER, "GET k"), [""; 0]);
    assert_eq!(world.datagram(ASKER, "GET other"), ["$-1\r\n"], "others are answered meanwhile");
    assert_eq!(world.datagram(ASKER, ""), [""; 0]);
    memory.borrow_mut().durable = 1;
    assert_eq!(world.datagram(ASKER, ""), ["$1\r\n1\r\n"]);
    world.turn();
    world.ask(writer, "SET k 2");
    assert_eq!(world.datagram(ASKER, "GET k"), [""; 0]);
    memory.borrow_mut().failed = Some("the disk is gone".to_owned());
    assert_eq!(world.datagram(ASKER, ""), [""; 0]);
    assert_eq!(world.count("udp_dropped_not_durable"), 1);
    assert_eq!(world.count("udp_hit"), 1);
}

#[test]
fn answers_that_wait_are_bounded() {
    let (mut world, memory) = logged(Fsync::Always);
    world.kv.serve_datagrams(allowed(), None);
    let writer = world.open();
    world.ask(writer, "SET k 1");
    for _ in 0..2000 {
        assert_eq!(world.datagram(ASKER, "GET k"), [""; 0]);
    }
    assert_eq!(world.count("udp_dropped_not_durable"), 2000 - 1024);
    memory.borrow_mut().durable = 1;
    assert_eq!(world.datagram(ASKER, "").len(), 1024);
}

#[test]
fn a_value_that_no_datagram_has_room_for_is_not_copied_for_one() {
    let cache = CacheSetup { listen: Vec::new(), allowed: Vec::new(), slots: 16 };
    let mut world = World::new();
    world.kv.serve_datagrams(allowed(), Some(cache));
    let operator = world.open();
    for (bytes, padding, reply) in [
        (1 << 20, 0, "-TOOLONG 1048588\r\n"),
        (1 << 20, 2_000, "-TOOLONG 1048588\r\n"),
        (1_450, 2_000, "-TOOLONG 1459\r\n"),
        (1_440, 2_000, "-TOOLONG 1449\r\n"),
        (1_436, 2_000, "-TOOLONG 1445\r\n"),
        (1_435, 2_000, ""),
        (20, 0, "-TOOLONG 27\r\n"),
        (3, 0, "$3\r\nvvv\r\n"),
    ] {
        let value = "v".repeat(bytes);
        world.ask(operator, &format!("SET k {value}"));
        let whole = format!("${bytes}\r\n{value}\r\n");
        let wanted = if reply.is_empty() { whole.as_str() } else { reply };
        assert_eq!(world.datagram_as(false, padding, ASKER, "GET k"), [wanted], "{bytes}");
        let kept_bytes = world.kv.server.datagrams.reply.capacity();
        assert!(kept_bytes <= 4 << 10, "{kept_bytes}");
        // The kernel half is given whole values alone, and none that is longer than it answers.
        assert_eq!(world.kv.server.datagrams.caches(), bytes < 1_000, "{bytes}");
    }
    assert_eq!((world.count("udp_too_long"), world.count("udp_hit")), (6, 2));
    world.ask(operator, "RPUSH l a");
    assert_eq!(world.datagram_as(false, 0, ASKER, "GET l"), ["-WRONGTYPE\r\n"]);
}
