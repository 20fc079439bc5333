//! A socket that takes the place of another, in the middle of a connection.

use super::*;
use laneway_wire::Tcp;

#[test]
fn a_socket_that_takes_over_has_the_numbers_and_windows_of_now() {
    let limits = TcpLimits { rx_bytes: 40_960, window_bytes_max: 1 << 20, ..TcpLimits::default() };
    for (local, remote) in [("10.0.0.1:7", "10.0.0.2:9"), ("[fd00::1]:7", "[fd00::2]:9")] {
        let ends = Ends { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
        let (mut reply, mut sent) = (Reply::new(), Vec::new());
        let mut connection = Connection::new(&limits, ends);
        assert!(connection.listen(ends, (isn::seed_for(77), 1500), &limits, 64, 0));
        let options = SynOptions { mss_bytes: 1460, window_shift: Some(7), permits_sack: true };
        connection.meet(u32::MAX, options, &limits, 0);
        connection.imagine_syn((u32::MAX, 500), (&mut reply, &mut sent), 0);
        let at = ip::header_bytes(ends.local.ip());
        assert_eq!(
            SynOptions::parse(&sent[at..], sent.len() - at).window_shift,
            Some(5),
            "for 1 MiB"
        );
        let mut tell = |connection: &mut Connection, sequence, bytes| {
            let segment = Imagined::segment(ends, (sequence, 78, 500), bytes);
            connection.receive(segment.bytes(), &mut reply, 0);
            Tcp::parse(reply.bytes().get(at..).unwrap_or_default()).ok()
        };
        assert_eq!(tell(&mut connection, 0, 0), None);
        assert_eq!(tell(&mut connection, 0, 10), None);
        connection.consume(10);
        connection.phase = Phase::Open;
        connection.opened(0);
        connection.received.window = 500;
        assert_eq!(connection.wanted_bytes(), None);
        connection.growth.wants_receive = true;
        let wanted = connection.wanted_bytes().expect("nothing is under way");
        assert_eq!(wanted, (81_920, limits.tx_bytes));
        let room = (&mut Reply::new(), &mut sent);
        assert!(connection.grow(wanted, (&limits, 64), room, 0));
        assert_eq!(connection.wanted_bytes(), None);
        assert_eq!((connection.received.end, connection.readable()), (10, 0));
        assert_eq!(connection.due_ns(0), Some(0), "the window is announced at once");
        // Behind the window: refused, with the numbers and the window of now.
        let answer = tell(&mut connection, 10 + 81_920, 1).expect("an acknowledgement");
        assert_eq!((answer.sequence, answer.acknowledgement), (78, 10));
        assert_eq!(answer.window, 2560, "81,920 bytes");
        tell(&mut connection, 10, 12);
        assert_eq!((connection.received.end, connection.readable()), (22, 12));
        connection.shrink(limits.rx_bytes, limits.tx_bytes);
        assert_eq!(connection.buffers_bytes(), limits.rx_bytes + limits.tx_bytes);
    }
}
