//! TCP echo (RFC 862): the bytes of a connection are sent back on it, in order.
//!
//! Back-pressure is the stream's own: bytes that the connection's send queue does not take are not
//! consumed, the lane shows them again, and in the end the peer's window closes. The app keeps no byte
//! and no state per connection. There are no rate limits: a peer that has completed a handshake is who
//! it says, and gets no more than it sends; the lane bounds how many there are.

use laneway_core::{App, Close, ConnId, Counters, Opened, StreamApp, StreamOut};

/// The echo service over streams.
#[derive(Debug, Default)]
pub struct TcpEcho {
    counters: Counters,
    open: u64,
    accepted: u64,
    failed: u64,
}

impl TcpEcho {
    /// An echo service.
    pub fn new() -> TcpEcho {
        TcpEcho::default()
    }

    /// Connections that are open now.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Connections so far.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Connections that ended in an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }
}

impl App for TcpEcho {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for TcpEcho {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {
        self.accepted += 1;
        self.open += 1;
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let consumed = out.send(conn, bytes);
        // A turn that brought bytes and moved none is counted all the same: it was one.
        self.counters.rx_frames += 1;
        self.counters.tx_frames += u64::from(consumed > 0);
        self.counters.rx_bytes += consumed as u64;
        self.counters.tx_bytes += consumed as u64;
        consumed
    }

    fn on_close(&mut self, _conn: ConnId, why: Close) {
        self.open = self.open.saturating_sub(1);
        self.failed += u64::from(why == Close::Error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::PortId;
    use proptest::prelude::*;

    /// A queue that takes what fits, as lanes' do.
    #[derive(Default)]
    struct Queue {
        bytes: Vec<u8>,
        room: usize,
    }

    impl StreamOut for Queue {
        fn send(&mut self, _conn: ConnId, bytes: &[u8]) -> usize {
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.bytes.extend_from_slice(&bytes[..taken]);
            taken
        }

        fn queued(&self, _conn: ConnId) -> usize {
            self.bytes.len()
        }

        fn close(&mut self, _conn: ConnId) {
            panic!("an echo leaves closing to its peer");
        }

        fn abort(&mut self, _conn: ConnId) {
            panic!("an echo leaves closing to its peer");
        }

        fn pause(&mut self, _conn: ConnId) {
            panic!("an echo waits for room only");
        }

        fn resume(&mut self, _conn: ConnId) {
            panic!("an echo waits for room only");
        }
    }

    proptest! {
        #[test]
        fn all_bytes_come_back_in_order_however_slowly_the_queue_drains(
            bytes in proptest::collection::vec(any::<u8>(), 0..20_000),
            drained in proptest::collection::vec(0usize..4000, 1..20)
        ) {
            let (mut echo, conn) = (TcpEcho::new(), ConnId(1));
            let mut queue = Queue::default();
            let mut shown = 0;
            for drain in drained.into_iter().chain([bytes.len()]) {
                queue.room += drain;
                if shown < bytes.len() {
                    shown += echo.on_bytes(conn, &bytes[shown..], &mut queue);
                }
                prop_assert_eq!(&queue.bytes, &bytes[..shown], "consumed is what was taken");
            }
            prop_assert_eq!(&queue.bytes, &bytes);
            prop_assert_eq!(echo.counters().tx_bytes, bytes.len() as u64);
        }
    }

    #[test]
    fn connections_are_counted() {
        let mut echo = TcpEcho::new();
        let [peer, local] = ["10.0.0.1:5000", "10.0.0.2:7"].map(|text| text.parse().unwrap());
        let opened = |i| Opened { conn: ConnId(i), peer, local, port: PortId(0) };
        (0..3).for_each(|i| echo.on_open(opened(i), &mut Queue::default()));
        echo.on_close(ConnId(0), Close::Peer);
        echo.on_close(ConnId(1), Close::Error);
        assert_eq!((echo.open(), echo.accepted(), echo.failed()), (1, 3, 1));
    }
}
