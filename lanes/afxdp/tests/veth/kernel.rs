//! What this lane promises beyond the contract: modes, refusals, multi-buffer, the way back to the
//! kernel's stack, and that nothing stays behind. On veth cables, so copy mode only.

use crate::{
    cables::{FAR, NEAR, set_link, silent},
    world::{World, ip},
};
use laneway_afxdp::AfXdp;
use laneway_core::{
    Cap, DropReason, FrameLane, HEADROOM_BYTES_MIN, Lane, LaneError, PortId, Verdict, Wake,
};
use laneway_spec::LaneSpec;
use laneway_testkit::{Patience, UdpFrame, sequence, skip, udp_frames, young_enough};
use std::{net::UdpSocket, time::Duration};

const PORT: PortId = PortId(0);
/// Receives, with a wait before each, that a test is ready to do for its frames.
const TURNS_MAX: usize = 3000;
const TURN: Duration = Duration::from_millis(10);

fn spec(text: &str) -> LaneSpec {
    text.parse().expect("a spec")
}

fn open(text: &str) -> Result<AfXdp, LaneError> {
    AfXdp::open(&spec(text), &NEAR[..1], false)
}

#[track_caller]
fn refusal(text: &str) -> String {
    open(text).err().unwrap_or_else(|| panic!("{text} was not refused")).to_string()
}

/// A world, or a skip that says why not.
macro_rules! world {
    ($($args:tt)*) => {
        match World::new($($args)*) {
            Ok(world) => world,
            Err(reason) => return skip(reason),
        }
    };
}

/// A lane on the first two interfaces with frames of several buffers, or a skip where the kernel is too old.
macro_rules! lane_of_several_buffers {
    () => {{
        let opened = AfXdp::open(&spec("afxdp:sg"), &NEAR[..2], false);
        if let Err(reason) = young_enough(&opened) {
            return skip(reason);
        }
        opened.unwrap()
    }};
}

/// Receives `frames` of ours on a port and gives each burst's verdict to all of them.
fn settle_all(lane: &mut AfXdp, port: PortId, frames: usize, verdict: Verdict) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut patience = Patience::new(TURNS_MAX);
    while seen.len() < frames && !patience.is_over() {
        patience.wait(|| lane.wait(TURN).expect("the interface is there"));
        let burst = lane.receive(port).expect("the interface is there");
        if !burst.is_empty() {
            patience.note_arrival();
        }
        for i in 0..burst.len() {
            seen.extend(sequence(burst.frame(i).bytes));
            burst.set_verdict(i, verdict);
        }
        lane.settle(port).expect("the interface is there");
    }
    assert_eq!(seen.len(), frames, "frames received");
    seen
}

#[test]
fn zero_copy_on_veth_is_refused_unless_its_absence_is_allowed() {
    let _world = world!(2, 1500, 1);
    let message = refusal("afxdp:zero-copy");
    assert!(
        message.contains("zero-copy was asked for and not obtained")
            && message.contains("allow=zero-copy"),
        "{message}"
    );
    let lane = AfXdp::open(&spec("afxdp:zero-copy,allow=zero-copy"), &NEAR[..2], false).unwrap();
    for port in [PortId(0), PortId(1)] {
        let report = lane.caps(port);
        assert_eq!(report.missing().iter().collect::<Vec<_>>(), [Cap::ZeroCopy]);
        assert_eq!(report.facts["copy_mode"], "copy");
    }
}

#[test]
fn nothing_stays_attached_after_a_drop() {
    let _world = world!(1, 1500, 1);
    for text in ["afxdp", "afxdp:generic", "afxdp:sg,allow=multi-buffer"] {
        let lane = open(text).unwrap();
        let attached = laneway_bpf::attachment(NEAR[0]).unwrap();
        let native = lane.caps(PORT).obtained.has(Cap::NativeXdp);
        assert_eq!(native, text != "afxdp:generic");
        assert_eq!((attached.native.is_some(), attached.generic.is_some()), (native, !native));
        drop(lane);
        assert_eq!(laneway_bpf::attachment(NEAR[0]).unwrap(), Default::default(), "{text}");
    }
    refusal("afxdp:zero-copy");
    assert_eq!(laneway_bpf::attachment(NEAR[0]).unwrap(), Default::default());
}

#[test]
fn a_second_lane_on_the_same_queue_is_refused_with_its_holder() {
    let _world = world!(1, 1500, 1);
    let _first = open("afxdp").unwrap();
    let message = refusal("afxdp");
    assert!(message.contains("`near0` is busy"), "{message}");
}

#[test]
fn a_received_frame_has_headroom_and_a_monotonic_stamp() {
    let world = world!(1, 1500, 1);
    for text in ["afxdp", "afxdp:generic"] {
        let mut lane = open(text).unwrap();
        world.inject(0, &udp_frames(0, 8, 64));
        let mut seen = 0;
        for _ in 0..TURNS_MAX {
            lane.wait(TURN).unwrap();
            let burst = lane.receive(PORT).unwrap();
            for i in 0..burst.len() {
                seen += 1;
                assert!(burst.frame(i).ts_ns > 0);
                assert!(burst.frame_mut(i).headroom() >= HEADROOM_BYTES_MIN);
            }
            lane.settle(PORT).unwrap();
            if seen >= 8 {
                break;
            }
        }
        assert_eq!(seen, 8, "{text}");
        assert_eq!(lane.caps(PORT).facts["headroom_bytes"], "256");
    }
}

#[test]
fn forwarding_between_ports_copies_nothing_and_loses_no_frame() {
    let world = world!(2, 1500, 1);
    let mut lane = AfXdp::open(&spec("afxdp"), &NEAR[..2], false).unwrap();
    let frames: usize = lane.caps(PORT).facts["umem_frames"].parse().unwrap();
    let umem_bytes: u64 = lane.caps(PORT).facts["umem_bytes"].parse().unwrap();
    assert_eq!(lane.caps(PORT).kernel_memory.pinned_bytes, umem_bytes);
    for round in 0..40 {
        world.inject(0, &udp_frames(round * 64, 64, 300));
        settle_all(&mut lane, PORT, 64, Verdict::TxTo(PortId(1)));
        assert_eq!(lane.census().total(), frames);
        assert_eq!(world.receive(1, 64).len(), 64);
    }
    let counters = lane.counters(PortId(1));
    assert_eq!((counters.tx_frames, counters.copies, counters.lost()), (40 * 64, 0, 0));
}

#[test]
fn a_frame_of_several_buffers_travels_whole() {
    let world = world!(2, 9000, 1);
    let mut lane = lane_of_several_buffers!();
    for bytes in [1792, 1793, 3000, 9014] {
        let sent = udp_frames(bytes as u64, 3, bytes);
        world.inject(0, &sent);
        let mut received = Vec::new();
        for _ in 0..TURNS_MAX {
            if received.len() >= sent.len() {
                break;
            }
            lane.wait(TURN).unwrap();
            let burst = lane.receive(PORT).unwrap();
            for i in 0..burst.len() {
                let mut whole = burst.frame(i).bytes.to_vec();
                burst.tails(i).for_each(|tail| whole.extend_from_slice(tail));
                assert_eq!(burst.frame(i).wire_len as usize, whole.len());
                received.push(whole);
                burst.set_verdict(i, Verdict::TxTo(PortId(1)));
            }
            lane.settle(PORT).unwrap();
        }
        assert!(received == sent, "{bytes} bytes in");
        assert!(world.receive(1, sent.len()) == sent, "{bytes} bytes out");
    }
    assert_eq!(lane.counters(PORT).lost() + lane.counters(PortId(1)).lost(), 0);
}

#[test]
fn a_frame_of_more_buffers_than_the_kernel_sends_is_counted_once() {
    const LONGEST_BYTES: usize = 17 * (2048 - 256);
    let world = world!(2, 65_535, 1);
    let mut lane = lane_of_several_buffers!();
    for (sequence, bytes, sent) in [(0, LONGEST_BYTES, 1), (1, LONGEST_BYTES + 1, 0)] {
        world.inject(0, &udp_frames(sequence, 1, bytes));
        settle_all(&mut lane, PORT, 1, Verdict::TxTo(PortId(1)));
        assert_eq!(world.receive(1, sent).len(), sent, "{bytes} bytes");
    }
    assert_eq!(lane.counters(PortId(1)).drops(DropReason::TxTooLong), 1);
    // Reaps what was sent.
    lane.lend(PortId(1), 0).unwrap();
    assert_eq!(lane.census().transmitting, 0);
}

#[test]
fn each_of_the_kernels_losses_has_its_own_name() {
    const FRAMES: usize = 500;
    let world = world!(1, 1500, 1);
    for (text, reason) in
        [("afxdp:rx=64", DropReason::RxQueueFull), ("afxdp:fill=64", DropReason::RxNoFrame)]
    {
        let mut lane = open(text).unwrap();
        world.inject(0, &udp_frames(0, FRAMES, 64));
        let lost = FRAMES as u64 - 64;
        // Received earlier, some would make room for others.
        let all_counted = (0..TURNS_MAX).any(|_| {
            let is_counted = lane.counters(PORT).lost() >= lost;
            if !is_counted {
                std::thread::sleep(TURN);
            }
            is_counted
        });
        assert!(all_counted, "{text}: {:?}", lane.counters(PORT));
        settle_all(&mut lane, PORT, 64, Verdict::Drop);
        let counters = lane.counters(PORT);
        assert_eq!((counters.drops(reason), counters.lost()), (lost, lost), "{text}");
    }
}

#[test]
fn without_multi_buffer_a_frame_longer_than_a_umem_frame_is_counted() {
    let world = world!(1, 3000, 1);
    let mut lane = open("afxdp").unwrap();
    world.inject(0, &udp_frames(0, 5, 2500));
    world.inject(0, &udp_frames(5, 1, 100));
    assert_eq!(settle_all(&mut lane, PORT, 1, Verdict::Drop), [5]);
    assert_eq!(lane.counters(PORT).drops(DropReason::RxTooLong), 5);
}

#[test]
fn an_mtu_beyond_a_page_needs_multi_buffer() {
    let _world = world!(1, 9000, 1);
    let message = refusal("afxdp");
    assert!(message.contains("`near0`") && message.contains("needs sg"), "{message}");
}

#[test]
fn a_passed_frame_reaches_the_kernels_stack() {
    for text in ["afxdp", "afxdp:generic"] {
        let world = match World::with_addresses(1, 1500, 1, [&["10.9.0.1/24"], &["10.9.0.2/24"]]) {
            Ok(world) => world,
            Err(reason) => return skip(reason),
        };
        let socket = UdpSocket::bind("10.9.0.1:4001").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut lane = open(text).unwrap();
        let frames: Vec<Vec<u8>> = (0..3)
            .map(|sequence| {
                UdpFrame {
                    destination_mac: silent().a.mac.0,
                    source: [10, 9, 0, 2].into(),
                    destination: [10, 9, 0, 1].into(),
                    sequence,
                    bytes: 500,
                    ..UdpFrame::default()
                }
                .build()
            })
            .collect();
        world.inject(0, &frames[..2]);
        settle_all(&mut lane, PORT, 2, Verdict::Pass);
        let mut payload = [0u8; 1000];
        for frame in &frames[..2] {
            let bytes = socket.recv(&mut payload).expect(text);
            assert_eq!(payload[..bytes], frame[42..], "{text}");
        }
        // The frame after a passed one is ours again.
        world.inject(0, &frames[2..]);
        assert_eq!(settle_all(&mut lane, PORT, 1, Verdict::Drop), [2], "{text}");
        assert_eq!((lane.counters(PORT).passed, lane.counters(PORT).lost()), (2, 0), "{text}");
    }
}

/// The driver drops each of them as the first of a call, whose place in the ring no kernel shows: they were
/// counted as sent.
#[test]
fn frames_that_a_link_without_carrier_drops_are_counted() {
    const FRAMES: usize = 40;
    let world = world!(1, 1500, 1);
    let mut lane = open("afxdp").unwrap();
    world.inject(0, &udp_frames(0, FRAMES, 100));
    let mut received = 0;
    let mut patience = Patience::new(TURNS_MAX);
    while received < FRAMES && !patience.is_over() {
        patience.wait(|| lane.wait(TURN).expect("the interface is there"));
        let burst = lane.receive(PORT).expect("the interface is there");
        if received == 0 && !burst.is_empty() {
            // The near end has no carrier then.
            set_link(&world.far, FAR[0], &["down"]);
        }
        received += burst.len();
        for i in 0..burst.len() {
            burst.set_verdict(i, Verdict::Tx);
        }
        lane.settle(PORT).expect("the interface is up");
    }
    let mut patience = Patience::new(TURNS_MAX);
    while lane.counters(PORT).drops(DropReason::TxRefused) < FRAMES as u64 && !patience.is_over() {
        patience.wait(|| lane.wait(TURN).expect("the interface is there"));
        lane.receive(PORT).expect("the interface is there");
    }
    let counters = lane.counters(PORT);
    assert_eq!((received, counters.tx_frames, counters.tx_bytes), (FRAMES, 0, 0));
    assert_eq!(counters.drops(DropReason::TxRefused), FRAMES as u64);
}

/// They were lost, or left behind those that waited behind them. Before Linux 6.17 the kernel does not show which
/// they are: there they are counted.
#[test]
fn frames_of_a_source_wait_for_a_carrier_and_leave_in_order() {
    const FRAMES: usize = 40;
    let world = world!(1, 1500, 1);
    let mut lane = open("afxdp").unwrap();
    let frames = udp_frames(0, FRAMES, 100);
    set_link(&world.far, FAR[0], &["down"]);
    let burst = lane.lend(PORT, FRAMES).expect("the lane lends");
    assert_eq!(burst.len(), FRAMES);
    for (i, bytes) in frames.iter().enumerate() {
        let mut frame = burst.frame_mut(i);
        assert!(frame.set_len(bytes.len()));
        frame.bytes_mut().copy_from_slice(bytes);
        frame.set_verdict(Verdict::Tx);
    }
    lane.settle(PORT).expect("the interface is up");
    for _ in 0..3 {
        lane.wait(Duration::ZERO).expect("the interface is up");
    }
    set_link(&world.far, FAR[0], &["up"]);
    let mut patience = Patience::new(TURNS_MAX);
    let mut arrived = Vec::new();
    let is_decided = |lane: &mut AfXdp, arrived: usize| {
        arrived as u64 + lane.counters(PORT).drops(DropReason::TxRefused) >= FRAMES as u64
    };
    while !is_decided(&mut lane, arrived.len()) && !patience.is_over() {
        patience.wait(|| lane.wait(TURN).expect("the interface is there"));
        lane.receive(PORT).expect("the interface is there");
        arrived.extend(world.receive(0, 0));
    }
    let counters = lane.counters(PORT);
    let lost = FRAMES - arrived.len();
    assert_eq!(arrived, frames[lost..], "in order, each once");
    assert_eq!((counters.tx_frames, counters.lost()), (arrived.len() as u64, lost as u64));
    if !laneway_linux::is_older_than(6, 17) {
        assert!(
            lost == 0 && counters.tx_retries > 0,
            "{lost} lost, {} tried again",
            counters.tx_retries
        );
    }
}

#[test]
fn a_deleted_interface_ends_the_wait() {
    let _world = world!(1, 1500, 1);
    let mut lane = open("afxdp").unwrap();
    assert_eq!(lane.wait(Duration::from_millis(1)).unwrap(), Wake::Timeout);
    ip(&["link", "del", NEAR[0]]);
    let e = lane.wait(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(&e, LaneError::Gone { name, .. } if name == NEAR[0]), "{e}");
    assert!(lane.receive(PORT).is_err());
    lane.counters(PORT);
}

#[test]
fn an_interface_set_down_ends_a_worker_that_never_waits() {
    let _world = world!(1, 1500, 1);
    let mut lane = open("afxdp:idle=spin").unwrap();
    ip(&["link", "set", NEAR[0], "down"]);
    let ended = (0..100_000).any(|_| matches!(lane.receive(PORT), Err(LaneError::Gone { .. })));
    assert!(ended);
}

#[test]
fn the_interface_of_the_default_route_is_refused_without_force() {
    let _world = match World::with_addresses(1, 1500, 1, [&["10.9.0.1/24"], &["10.9.0.2/24"]]) {
        Ok(world) => world,
        Err(reason) => return skip(reason),
    };
    ip(&["route", "add", "default", "via", "10.9.0.2"]);
    let message = refusal("afxdp");
    assert!(message.contains("default route") && message.contains("--force"), "{message}");
    assert!(AfXdp::open(&spec("afxdp"), &NEAR[..1], true).is_ok());
}

#[test]
fn queues_are_reported_and_one_that_is_not_there_is_refused() {
    let _world = world!(1, 1500, 2);
    let lane = open("afxdp:queue=1").unwrap();
    assert_eq!(
        (&*lane.caps(PORT).facts["rx_queues"], &*lane.caps(PORT).facts["queue"]),
        ("2", "1")
    );
    assert!(lane.caps(PORT).notes.is_empty(), "queue 0 was left out on purpose");
    drop(lane);
    let first = open("afxdp").unwrap();
    let notes = &first.caps(PORT).notes;
    assert!(
        notes.len() == 1 && notes[0].contains("by 2 queues, and no worker serves the last 1"),
        "{notes:?}"
    );
    drop(first);
    let message = refusal("afxdp:queue=2");
    assert!(message.contains("2 receive queues, so no queue 2"), "{message}");
    assert!(message.contains("at most 2"), "the cable was made with two: {message}");
}

#[test]
fn a_queue_that_could_be_had_comes_with_the_command_that_makes_it() {
    let _world = world!(1, 1500, 2);
    let set = ["-L", NEAR[0], "rx", "1", "tx", "1"];
    let status = std::process::Command::new("ethtool").args(set).status();
    if !status.is_ok_and(|status| status.success()) {
        return skip("this veth does not change its number of queues");
    }
    let message = refusal("afxdp:queue=1");
    assert!(message.contains("1 receive queues, so no queue 1"), "{message}");
    assert!(message.contains("`ethtool -L near0 rx 2 tx 2`"), "{message}");
}

#[test]
fn a_umem_of_impossible_size_is_refused_with_the_value_and_the_fix() {
    let _world = world!(1, 1500, 1);
    let message = refusal("afxdp:frames=2m");
    assert!(message.contains("2m") && message.contains("from 1 to 1048576"), "{message}");
    let message = refusal("afxdp:frames=100");
    assert!(
        message.contains("100 frames per port") && message.contains("raise frames="),
        "{message}"
    );
    let message = refusal("afxdp:queue=64");
    assert!(message.contains("64") && message.contains("from 0 to 63"), "{message}");
    assert_eq!(laneway_bpf::attachment(NEAR[0]).unwrap(), Default::default());
}

#[test]
fn busy_polling_reports_what_was_granted_and_receives() {
    let world = world!(1, 1500, 1);
    let mut lane = open("afxdp:busy_poll=20,busy_budget=32").unwrap();
    assert!(lane.caps(PORT).obtained.has(Cap::BusyPoll));
    assert_eq!(lane.caps(PORT).facts["busy_poll_us"], "20");
    world.inject(0, &udp_frames(0, 64, 64));
    settle_all(&mut lane, PORT, 64, Verdict::Drop);
}

#[test]
fn a_limit_on_locked_memory_is_named_with_its_value() {
    let _world = world!(1, 1500, 1);
    let limit_bytes = {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is ours.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
        limit.rlim_cur
    };
    let frames = limit_bytes / 2048 + 4096;
    if frames > 1 << 18 {
        return skip(format!("RLIMIT_MEMLOCK is {limit_bytes} bytes: too high to be reached"));
    }
    drop_cap_ipc_lock();
    let message = refusal(&format!("afxdp:frames={frames}"));
    for words in ["RLIMIT_MEMLOCK", &limit_bytes.to_string(), "ulimit -l", "lower frames="] {
        assert!(message.contains(words), "{message}");
    }
}

/// Takes CAP_IPC_LOCK from the effective set of this thread, which ends with the test.
fn drop_cap_ipc_lock() {
    const CAP_IPC_LOCK: u32 = 14;
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: the layouts of __user_cap_header_struct and two of __user_cap_data_struct; 0 is this
    // thread.
    let read = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(read, 0);
    sets[0][0] &= !(1 << CAP_IPC_LOCK);
    // SAFETY: as above.
    let written = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(written, 0);
}

#[test]
fn huge_pages_are_used_or_their_lack_is_explained() {
    let _world = world!(1, 1500, 1);
    match open("afxdp:hugepages") {
        Ok(lane) => assert_eq!(lane.caps(PORT).facts["umem_hugepages"], "yes"),
        Err(e) => {
            let message = e.to_string();
            assert!(message.contains("sysctl vm.nr_hugepages=4"), "{message}");
        }
    }
}

#[test]
fn what_cannot_be_a_port_is_refused_by_name() {
    let _world = world!(1, 1500, 1);
    let open =
        |names: &[&str]| AfXdp::open(&spec("afxdp"), names, false).err().unwrap().to_string();
    assert!(open(&["no-such-if"]).contains("no interface `no-such-if`"));
    assert!(open(&[NEAR[0], NEAR[0]]).contains("given twice"));
    assert!(open(&[]).contains("no interface was given"));
}
