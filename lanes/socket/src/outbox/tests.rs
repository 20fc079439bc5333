//! What leaves an outbox, on a kernel that refuses as configured.

use super::*;
use laneway_core::Payload;
use std::{cell::RefCell, net::UdpSocket};

const PORT: PortId = PortId(0);

/// A kernel that refuses what it is configured to refuse, and keeps the datagrams it took.
#[derive(Default)]
struct Fussy {
    /// Trains are refused with this error, but for those of datagrams up to so many bytes.
    trains: Option<i32>,
    trains_bytes_max: usize,
    /// Datagrams to this UDP port are refused, alone or in trains, with this error.
    port: Option<(u16, i32)>,
    /// One call is interrupted before anything is taken.
    interrupted: bool,
    took: Rc<RefCell<Took>>,
}

#[derive(Default)]
struct Took {
    /// Destination port and bytes.
    datagrams: Vec<(u16, Vec<u8>)>,
    calls: usize,
}

impl Transmit for Fussy {
    unsafe fn transmit(
        &mut self,
        _socket: BorrowedFd<'_>,
        messages: &mut [libc::mmsghdr],
    ) -> io::Result<usize> {
        let mut took = self.took.borrow_mut();
        took.calls += 1;
        if mem::take(&mut self.interrupted) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        for (i, message) in messages.iter().enumerate() {
            let header = &message.msg_hdr;
            // SAFETY: the caller promises a name of at least an IPv4 address.
            let name = unsafe { *header.msg_name.cast::<libc::sockaddr_in>() };
            let port = u16::from_be(name.sin_port);
            let mut bytes = Vec::new();
            for v in 0..header.msg_iovlen {
                // SAFETY: the caller promises so many vectors.
                let vector = unsafe { *header.msg_iov.wrapping_add(v) };
                // SAFETY: the caller promises that they are readable.
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
                });
            }
            let segment = if header.msg_controllen == 0 {
                None
            } else {
                // SAFETY: the only control here is a segment size: header, then two bytes.
                let at = unsafe { header.msg_control.cast::<u8>().add(16) };
                // SAFETY: as above; the bytes may lie at any address.
                Some(usize::from(unsafe { at.cast::<u16>().read_unaligned() }))
            };
            let refusal = match (self.port, segment, self.trains) {
                (Some((refused, error)), ..) if refused == port => Some(error),
                (_, Some(bytes), Some(error)) if bytes > self.trains_bytes_max => Some(error),
                _ => None,
            };
            match refusal {
                Some(error) if i == 0 => return Err(io::Error::from_raw_os_error(error)),
                Some(_) => return Ok(i),
                None => {}
            }
            let pieces = bytes.chunks(segment.unwrap_or(bytes.len()).max(1));
            took.datagrams.extend(pieces.map(|piece| (port, piece.to_vec())));
        }
        Ok(messages.len())
    }
}

fn outbox(messages: usize, kernel: Fussy) -> (Outbox<Fussy>, Rc<RefCell<Took>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let took = kernel.took.clone();
    let mut outbox = Outbox::new(messages, kernel);
    let exit = Exit::new(Rc::new(socket.into()), true, (false, None), true);
    assert_eq!(outbox.open(exit), PORT);
    (outbox, took)
}

fn exit(outbox: &Outbox<Fussy>) -> &Exit {
    outbox.exit(PORT).expect("the port is open")
}

fn to(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn send_all(outbox: &mut Outbox<Fussy>, sends: &[(u16, Vec<u8>)]) {
    let mut out = Out::of_tick(outbox);
    for (port, bytes) in sends {
        out.send(PORT, to(*port), bytes.len(), |room| {
            room.copy_from_slice(bytes);
            bytes.len()
        });
    }
    assert_eq!(out.finish(), 0);
}

fn train(bytes: &[u8], segment_bytes: usize) -> Datagram<'_> {
    let (payload, source, destination) = (Payload::own(bytes), to(1), to(2));
    let is_broadcast = false;
    Datagram { payload, segment_bytes, source, destination, is_broadcast, ingress: PORT, ts_ns: 0 }
}

fn sends(port: u16, count: u8, bytes: usize) -> Vec<(u16, Vec<u8>)> {
    (0..count).map(|i| (port, vec![i; bytes])).collect()
}

#[test]
fn a_refused_train_is_sent_again_cut_and_no_other_is_tried() {
    for error in [libc::EIO, libc::EINVAL] {
        for messages in [1, 8] {
            let kernel = Fussy { trains: Some(error), ..Fussy::default() };
            let (mut outbox, took) = outbox(messages, kernel);
            let mut wanted = sends(7, 20, 300);
            wanted.push((7, vec![9; 100]));
            send_all(&mut outbox, &wanted);
            assert_eq!(took.borrow().datagrams, wanted, "the same batch, whole");
            assert_eq!(exit(&outbox).gave_up_gso, Some(error));
            assert_eq!(exit(&outbox).counters.tx_frames, 21);
            assert_eq!(exit(&outbox).counters.lost(), 0);
            let calls = took.borrow().calls;
            assert_eq!(calls, 1 + 21usize.div_ceil(messages));
            send_all(&mut outbox, &wanted);
            assert_eq!(took.borrow().datagrams.len(), 42);
            assert_eq!(took.borrow().calls, calls + 21usize.div_ceil(messages), "sticky");
            // A train that arrived as one is cut as well, before it is refused again.
            let calls = took.borrow().calls;
            let mut out = Out::of_tick(&mut outbox);
            out.forward(&train(&[5; 500], 250), PORT, to(7));
            out.finish();
            assert_eq!(took.borrow().calls, calls + 2usize.div_ceil(messages));
        }
    }
}

#[test]
fn a_destination_that_is_refused_anyway_does_not_cost_the_others_their_trains() {
    let kernel = Fussy { port: Some((5, libc::EINVAL)), ..Fussy::default() };
    let (mut outbox, took) = outbox(8, kernel);
    let mut all = sends(7, 3, 300);
    all.extend(sends(5, 3, 300));
    all.extend(sends(7, 3, 300));
    send_all(&mut outbox, &all);
    all.retain(|(port, _)| *port == 7);
    assert_eq!(took.borrow().datagrams, all);
    assert_eq!(exit(&outbox).gave_up_gso, None);
    assert_eq!(exit(&outbox).counters.drops(DropReason::TxRefused), 3);
}

#[test]
fn a_train_too_long_for_the_path_is_cut_without_giving_up_trains() {
    let kernel = Fussy { trains: Some(libc::EMSGSIZE), ..Fussy::default() };
    let (mut outbox, took) = outbox(8, kernel);
    let wanted = sends(7, 5, 300);
    send_all(&mut outbox, &wanted);
    assert_eq!(took.borrow().datagrams, wanted);
    assert_eq!(exit(&outbox).gave_up_gso, None);
}

#[test]
fn a_train_too_long_for_the_path_costs_no_trains_on_an_older_kernel_either() {
    let trains = Some(libc::EINVAL);
    let (mut outbox, took) =
        outbox(8, Fussy { trains, trains_bytes_max: 1472, ..Fussy::default() });
    let mut wanted = Vec::new();
    for (bytes, calls) in [(1473, 2), (300, 1), (1473, 2)] {
        let before = took.borrow().calls;
        send_all(&mut outbox, &sends(7, 5, bytes));
        wanted.extend(sends(7, 5, bytes));
        assert_eq!(took.borrow().datagrams, wanted);
        assert_eq!(took.borrow().calls - before, calls, "{bytes} bytes");
        assert_eq!(exit(&outbox).gave_up_gso, None, "{bytes} bytes");
    }
}

#[test]
fn what_the_kernel_says_decides_the_drop_reason() {
    for (error, reason) in [
        (libc::EAGAIN, DropReason::TxSocketFull),
        (libc::ENOBUFS, DropReason::TxInterfaceFull),
        (libc::EPERM, DropReason::TxRefused),
        (libc::EMSGSIZE, DropReason::TxTooLong),
        (libc::ENETUNREACH, DropReason::NoRoute),
        (libc::ENODEV, DropReason::NoRoute),
    ] {
        let kernel = Fussy { port: Some((5, error)), ..Fussy::default() };
        let (mut outbox, took) = outbox(8, kernel);
        send_all(&mut outbox, &[(7, vec![1; 9]), (5, vec![2; 9]), (7, vec![3; 9])]);
        assert_eq!(took.borrow().datagrams, [(7, vec![1; 9]), (7, vec![3; 9])]);
        assert_eq!(exit(&outbox).counters.drops(reason), 1);
        assert_eq!(exit(&outbox).counters.lost(), 1);
    }
}

#[test]
fn a_signal_costs_nothing() {
    let (mut outbox, took) = outbox(8, Fussy { interrupted: true, ..Fussy::default() });
    let wanted = sends(7, 2, 30);
    send_all(&mut outbox, &wanted);
    assert_eq!(took.borrow().datagrams, wanted);
}

#[test]
fn equal_sends_cost_one_call() {
    let (mut outbox, took) = outbox(1, Fussy::default());
    send_all(&mut outbox, &sends(7, 64, 900));
    assert_eq!(took.borrow().calls, 1);
    assert_eq!(took.borrow().datagrams, sends(7, 64, 900));
}

#[test]
fn more_than_the_outbox_holds_leaves_in_order() {
    let (mut outbox, took) = outbox(8, Fussy::default());
    let mut wanted = sends(7, 200, 9000);
    wanted.extend((0..2 * PIECES_MAX).map(|i| (7 + (i % 2) as u16, vec![i as u8; 3])));
    send_all(&mut outbox, &wanted);
    assert!(took.borrow().datagrams == wanted, "every datagram, in order");
    assert_eq!(exit(&outbox).counters.tx_frames, wanted.len() as u64);
}

#[test]
fn bytes_of_the_apps_own_are_kept_until_they_leave() {
    let (mut outbox, took) = outbox(8, Fussy::default());
    let mut out = Out::of_tick(&mut outbox);
    for i in 0..4u8 {
        let mine = vec![i; 500];
        out.forward(&train(&mine, 200), PORT, to(7));
    }
    out.finish();
    let lengths: Vec<_> = took.borrow().datagrams.iter().map(|(_, d)| d.len()).collect();
    assert_eq!(lengths, [200, 200, 100].repeat(4));
    assert!(took.borrow().datagrams.chunks(3).zip(0u8..).all(|(three, i)| {
        three.iter().all(|(_, datagram)| datagram.iter().all(|byte| *byte == i))
    }));
    assert_eq!(exit(&outbox).counters.copies, 4);
}

/// Forwards with `manner` the second of three arrivals, of bytes 10 to 19; what left, and what was
/// copied for it.
fn forward_second(manner: impl FnOnce(Datagram<'_>) -> Datagram<'_>) -> (Vec<u8>, u64) {
    let (mut outbox, took) = outbox(8, Fussy::default());
    let received = Vec::from_iter(0..30);
    let arrivals = [0, 10, 20].map(|at| Arrival {
        at,
        bytes: 10,
        segment_bytes: 10,
        source: to(1),
        destination: None,
        is_broadcast: false,
        interface: 0,
        answer_from: None,
        real_ns: None,
    });
    let payload = outbox.key.mark(&received[10..20], 1);
    let datagram = manner(Datagram { payload, ..train(&[], 10) });
    let mut out = Out {
        outbox: &mut outbox,
        received: &received,
        arrivals: &arrivals,
        ingress: Some(PORT),
        answered: 0,
        no_port: 0,
    };
    out.forward(&datagram, PORT, to(7));
    out.finish();
    let copies = exit(&outbox).counters.copies;
    let (_, bytes) = took.borrow_mut().datagrams.remove(0);
    (bytes, copies)
}

#[test]
fn received_bytes_leave_from_where_they_lie_whole_or_in_part() {
    assert_eq!(forward_second(|whole| whole), ((10..20).collect(), 0));
    let sent = forward_second(|whole| {
        let payload = whole.payload.narrowed(2..9).narrowed(1..4);
        Datagram { payload, ..whole }
    });
    assert_eq!(sent, (vec![13, 14, 15], 0));
}

#[test]
fn bytes_that_the_lane_did_not_receive_are_copied() {
    let marked_by_another = PayloadKey::unique().mark(&[99; 10], 1);
    for payload in [Payload::own(&[99; 10]), marked_by_another] {
        let sent = forward_second(|whole| Datagram { payload, ..whole });
        assert_eq!(sent, (vec![99; 10], 1));
    }
}

#[test]
fn a_destination_without_port_is_refused_before_the_kernel_is_asked() {
    let (mut outbox, took) = outbox(8, Fussy::default());
    send_all(&mut outbox, &sends(0, 3, 10));
    assert_eq!(took.borrow().calls, 0);
    assert_eq!(exit(&outbox).counters.drops(DropReason::TxRefused), 3);
}
