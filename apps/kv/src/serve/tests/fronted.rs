//! The server in front of a cluster that answers when the test lets it.

use super::*;
use crate::upstream::{Answer, Far, Report, Request};
use std::cell::RefCell;
use std::collections::VecDeque;

/// A cluster: what it was asked, and what it reports next.
#[derive(Debug, Default)]
struct Cluster {
    asked: Vec<u64>,
    reports: VecDeque<Report>,
}

#[derive(Debug)]
struct Handle(Rc<RefCell<Cluster>>);

impl Far for Handle {
    fn now_us(&self) -> u64 {
        0
    }

    fn ask(&mut self, requests: std::vec::Drain<'_, Request>) {
        self.0.borrow_mut().asked.extend(requests.map(|request| request.id));
    }

    fn report(&mut self) -> Option<Report> {
        self.0.borrow_mut().reports.pop_front()
    }
}

#[test]
fn commands_wait_while_many_bytes_of_them_are_on_their_way() {
    let mut world = World::new();
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    world.kv.join_cluster(Box::new(Handle(cluster.clone())), 1_000_000);
    let clients = [(); 4].map(|()| world.open());
    let [copier, writer, reader, other] = clients;
    let slot = slot_of(b"copy");
    let owner = Report::Owner { first: slot, last: slot, node: 0 };
    let confirmed = Report::Confirmed { node: 0, sent_us: 0 };
    cluster.borrow_mut().reports.extend([owner, confirmed]);
    world.pass_ms(1);
    assert_eq!(world.ask(copier, "GET copy"), "");
    let value = laneway_resp::Value::Bulk(b"1".to_vec());
    let answer = Answer::Filled { value, left_ms: -1, is_covered: true };
    cluster.borrow_mut().reports.push_back(Report::Answer { id: 0, answer });
    world.pass_ms(1);
    assert_eq!(world.received(copier), "$1\r\n1\r\n");

    world.ask(writer, &format!("SET long {}", "v".repeat(64 << 20)));
    assert_eq!(cluster.borrow().asked, [0, 1]);
    for (conn, line) in [(reader, "GET none"), (other, "SET k 1")] {
        assert_eq!(world.ask(conn, line), "");
        assert!(world.peer(conn).is_paused);
    }
    assert_eq!(cluster.borrow().asked, [0, 1], "no more are sent");
    assert_eq!(world.ask(copier, "GET copy"), "$1\r\n1\r\n", "the copy is here");
    assert_eq!(world.ask(copier, "PING"), "+PONG\r\n");
    let ok = |id| Report::Answer { id, answer: Answer::Raw(b"+OK\r\n".to_vec()) };
    cluster.borrow_mut().reports.push_back(ok(1));
    world.pass_ms(1);
    assert_eq!(world.received(writer), "+OK\r\n");
    assert_eq!(cluster.borrow().asked, [0, 1, 2, 3]);
    cluster.borrow_mut().reports.push_back(ok(3));
    world.pass_ms(1);
    assert_eq!(world.received(other), "+OK\r\n");
}
