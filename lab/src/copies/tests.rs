//! Both far ends: run on bytes, and on a bench that foreign programs send to.

use super::*;
use crate::apps::{Flood, LabApp};
use crate::bench::{Bench, Instruments};
use crate::fanout::Fanout;
use crate::permitted::permitted;
use crate::result::Placement;
use crate::timetable::Times;
use crate::traffic::{PAYLOAD_AT, Replayable, Sending, TrafficPlan};
use laneway_bpf::{RunInput, prog_run, prog_run_train};
use laneway_kinds::AppFacts;
use laneway_netns::can_create;
use laneway_testkit::skip;
use std::fmt::Write as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

const FRAMES: u32 = 400;
const FAR_ENDS: [FarEnd; 2] = [FarEnd::Trains, FarEnd::Frames];

fn plan(far_end: FarEnd, payload_bytes: u16) -> FanoutPlan {
    let fanout = Fanout { groups: 3, outputs: 5, cables: 2, limit_mbit: None, far_end };
    let source = crate::addresses::GENERATOR;
    FanoutPlan { fanout, payload_bytes, run: 4, source }
}

fn segment(segment: u8, t0_ns: u64) -> SegmentPlan {
    SegmentPlan { segment, t0_ns, frames: FRAMES, interval_ns: 1, burst: 1, entry: 0 }
}

/// The far ends, without cables; `None` where programs cannot be loaded.
fn copies(plan: FanoutPlan) -> Option<Copies> {
    let times = Timetable::default();
    let cables: Result<_, BpfError> = (0..plan.fanout.cables)
        .map(|cable| {
            Ok(Cable { _attached: Attached::Nowhere, loaded: load(&plan, cable, &times)? })
        })
        .collect();
    Some(Copies { cables: permitted(cables)?, plan, times })
}

/// Datagram `number` of segment 3, as it comes out of an output of this place on its cable.
fn copy(plan: FanoutPlan, number: u32, place: u16) -> Vec<u8> {
    let traffic = Replayable::prepare(&TrafficPlan::Fanout(plan), &Times::Steady).unwrap();
    let template = traffic.template(number);
    let mut frame = vec![0; template.frame.len()];
    template.write(&mut frame, [0; 6], 3, number, 0);
    let port = plan.fanout.first_group().port() + place;
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

fn run(copies: &Copies, cable: usize, frame: &[u8]) {
    let program = copies.cables[cable].loaded.program();
    match copies.plan.fanout.far_end {
        FarEnd::Trains => run_train(copies, cable, frame, 0),
        FarEnd::Frames => {
            let output = prog_run(program, RunInput { frame, ..RunInput::default() });
            assert_eq!(output.expect("it runs").verdict, 1, "dropped");
        }
    }
}

fn run_train(copies: &Copies, cable: usize, frame: &[u8], each: u16) {
    let verdict = prog_run_train(copies.cables[cable].loaded.program(), frame, each);
    assert_eq!(verdict.expect("it runs"), 2, "dropped");
}

/// What these datagrams are, all to the same output, when the kernel makes a train of them.
fn train(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut train = datagrams[0].clone();
    for datagram in &datagrams[1..] {
        train.extend_from_slice(&datagram[PAYLOAD_AT..]);
    }
    for (at, from) in [(16, 14), (38, 34)] {
        let bytes = (train.len() - from) as u16;
        train[at..at + 2].copy_from_slice(&bytes.to_be_bytes());
    }
    train
}

#[test]
fn every_copy_counts_once_at_its_own_output() {
    FAR_ENDS.into_iter().for_each(counts_once);
}

fn counts_once(far_end: FarEnd) {
    let plan = plan(far_end, 100);
    let Some(copies) = copies(plan) else { return };
    copies.expect(&segment(3, 1_000)).unwrap();
    // Cable 0 has outputs 0, 2 and 4, cable 1 has outputs 1 and 3.
    for (cable, place, numbers) in
        [(0, 0, &[0, 1, 8, 5][..]), (0, 2, &[0, 64, 399]), (1, 1, &[0, 0, 1])]
    {
        for &number in numbers {
            run(&copies, cable, &copy(plan, number, place));
        }
    }
    let (copied, trips) = copies.read().unwrap();
    assert_eq!((copied.by_output, copied.by_cable), (vec![4, 0, 0, 2, 3], vec![7, 2]));
    assert_eq!((copied.distinct, copied.duplicates, copied.reordered), (9, 1, 1));
    assert_eq!((copied.foreign, copied.strangers, copied.wrong.len()), (0, 0, 0));
    // Numbers 0, 8, 0, 64 and 0.
    assert_eq!(trips.n(), 5);
    assert!(0 < copied.first_ns && copied.first_ns <= copied.last_ns);
    // What another segment ticked off is forgotten.
    copies.expect(&segment(3, 2_000)).unwrap();
    run(&copies, 0, &copy(plan, 1, 2));
    let (copied, _) = copies.read().unwrap();
    assert_eq!((copied.by_output, copied.duplicates), (vec![0, 0, 0, 0, 1], 0));
}

#[test]
fn copies_of_a_limited_cable_are_counted_and_not_timed() {
    let mut plan = plan(FarEnd::Trains, 100);
    plan.fanout.limit_mbit = Some(5);
    let Some(copies) = copies(plan) else { return };
    copies.expect(&segment(3, 1_000)).unwrap();
    for (cable, number) in [(0, 0), (0, 8), (1, 0)] {
        run(&copies, cable, &copy(plan, number, 0));
    }
    let (copied, trips) = copies.read().unwrap();
    assert_eq!((copied.by_cable, trips.n()), (vec![2, 1], 1));
}

#[test]
fn what_no_relay_should_send_is_counted_apart() {
    FAR_ENDS.into_iter().for_each(are_counted_apart);
}

fn are_counted_apart(far_end: FarEnd) {
    let plan = plan(far_end, 200);
    let Some(copies) = copies(plan) else { return };
    copies.expect(&segment(3, 1_000)).unwrap();
    let whole = copy(plan, 64, 0);
    run(&copies, 0, &whole);
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = copy(plan, 64, 1);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    // A third output is on the first cable only.
    run(&copies, 1, &copy(plan, 64, 2));
    run(&copies, 0, &changed(33, &[4]));
    // It was group 2's turn, not group 3's; its complement off by one; a word spoilt; two bytes too few; a segment that
    // is none.
    run(&copies, 0, &changed(33, &[3]));
    run(&copies, 0, &changed(PAYLOAD_AT + 7, &[0]));
    run(&copies, 0, &changed(PAYLOAD_AT + 16 + 8 * 22, &[1, 2]));
    run(&copies, 0, &changed(38, &[0, 206]));
    run(&copies, 0, &changed(PAYLOAD_AT + 1, &[9, 0, 0, 0, 64, 253, 246]));
    // A fragment, and something that is no IP.
    run(&copies, 0, &changed(20, &[0x20]));
    run(&copies, 0, &[0; 60]);
    let (copied, _) = copies.read().unwrap();
    let wrong = BTreeMap::from([(UNKNOWN, 2), (MISLED, 1), (SPOILT, 3)]);
    assert_eq!((copied.distinct, copied.foreign, copied.strangers), (1, 1, 2));
    assert_eq!(copied.wrong, wrong);
    assert_eq!(copied.seen(), 8);
}

#[test]
fn the_longest_and_the_shortest_payload_are_compared_to_their_end() {
    let both = |payload_bytes| FAR_ENDS.map(|far_end| (far_end, payload_bytes));
    for (far_end, payload_bytes) in [18, 24, 1_472].into_iter().flat_map(both) {
        let plan = plan(far_end, payload_bytes);
        let Some(copies) = copies(plan) else { return };
        copies.expect(&segment(3, 1_000)).unwrap();
        run(&copies, 1, &copy(plan, 128, 0));
        let (copied, _) = copies.read().unwrap();
        assert_eq!((copied.distinct, copied.wrong.len()), (1, 0), "{payload_bytes}");
    }
}

#[test]
fn each_datagram_of_a_train_is_ticked_off_at_its_own_offset() {
    let plan = plan(FarEnd::Trains, 100);
    let Some(copies) = copies(plan) else { return };
    copies.expect(&segment(3, 1_000)).unwrap();
    let of = |numbers: &[u32]| -> Vec<u8> {
        let copies: Vec<Vec<u8>> = numbers.iter().map(|number| copy(plan, *number, 1)).collect();
        train(&copies)
    };
    // Number 13 is missing, 14 is there twice, 25 is before 24, and 16 is another group's.
    run_train(&copies, 0, &of(&[12, 14, 14, 15, 25, 24, 26, 16]), 100);
    run_train(&copies, 0, &of(&[0, 1, 2, 3]), 100);
    // The tail is cut: two datagrams and a half.
    let mut cut = of(&[36, 37, 38]);
    cut.truncate(cut.len() - 50);
    for (at, from) in [(16, 14), (38, 34)] {
        let bytes = (cut.len() - from) as u16;
        cut[at..at + 2].copy_from_slice(&bytes.to_be_bytes());
    }
    run_train(&copies, 0, &cut, 100);
    // Datagrams of another length, and of no output.
    run_train(&copies, 0, &of(&[48, 49]), 50);
    run_train(&copies, 1, &train(&[copy(plan, 60, 2), copy(plan, 61, 2)]), 100);
    let (copied, trips) = copies.read().unwrap();
    assert_eq!((copied.by_output[2], copied.distinct), (12, 12));
    assert_eq!((copied.duplicates, copied.reordered), (1, 5));
    assert_eq!((copied.trains, copied.in_trains), (5, 8 + 4 + 3 + 4 + 2));
    let wrong = BTreeMap::from([(UNKNOWN, 2), (MISLED, 1), (SPOILT, 5)]);
    assert_eq!((copied.wrong, copied.foreign, copied.strangers), (wrong, 0, 0));
    // Numbers 24 and 0.
    assert_eq!(trips.n(), 2);
}

/// Sends what the lines of a file say: group, port, source, bytes of each datagram of a train (0: none is one),
/// payload.
const SENDER: &str = "
import socket, sys
lines = [line.split() for line in open(sys.argv[1])]
sends = [(s, int(each), bytes.fromhex(data), (group, int(port))) for group, port, s, each, data in lines]
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
out.setsockopt(socket.SOL_SOCKET, 32, 1 << 26) # SO_SNDBUFFORCE: what waits in a ring is the sender's
for source, each, data, to in sends:
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(source))
    out.setsockopt(socket.IPPROTO_UDP, 103, each)
    out.sendto(data, to)
";

/// A bench whose far ends receive in softirqs, or in threads on this CPU; `None` with the reason reported.
fn bench(plan: FanoutPlan, far_napi_cpu: Option<usize>) -> Option<Bench> {
    can_create().map_err(skip).ok()?;
    if Command::new("python3").arg("--version").output().is_err() {
        skip("no python3 in PATH");
        return None;
    }
    let [arm_cpu, napi_cpu, generator_cpu] = [0; 3];
    let sentence = String::new();
    let placement = Placement {
        arm_cpu,
        napi_cpu,
        generator_cpu,
        far_napi_cpu,
        sentence,
        tso: false,
        napi_first: false,
    };
    let app = AppFacts { race: plan.fanout.raced(Flood::FACTS.race), ..Flood::FACTS };
    let (times, timetable) = (Times::Steady, Timetable::default());
    let sending = Sending { traffic: TrafficPlan::Fanout(plan), times, timetable };
    let instruments = permitted(Instruments::attach(&sending, false))?;
    Some(Bench::create(placement, &app, &sending, instruments).unwrap())
}

/// A line of [`SENDER`]'s: these numbers to the output of this place on its cable, as a train if there are several.
fn line(plan: FanoutPlan, numbers: &[u32], cable: u8, place: u16) -> String {
    let group = plan.fanout.groups().nth((numbers[0] / plan.run % 3) as usize).unwrap();
    let mut line = format!(
        "{} {} {} {} ",
        group.ip(),
        group.port() + place,
        crate::fanout::onward_address(cable),
        if numbers.len() > 1 { plan.payload_bytes } else { 0 }
    );
    for &number in numbers {
        for byte in &copy(plan, number, place)[PAYLOAD_AT..] {
            write!(line, "{byte:02x}").unwrap();
        }
    }
    line + "\n"
}

/// Has the lines sent by an arm of the bench, before everything else on CPU `first_on` if there is one.
fn send(bench: &Bench, lines: &str, first_on: Option<usize>) {
    let path = std::env::temp_dir().join(format!(
        "laneway-copies-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    std::fs::write(&path, lines).unwrap();
    let path_text = path.display().to_string();
    let mut words = vec!["python3".to_owned(), "-c".into(), SENDER.into(), path_text];
    if let Some(cpu) = first_on {
        let before = ["chrt", "--fifo", "50", "taskset", "-c"].map(str::to_owned);
        words.splice(0..0, before.into_iter().chain([cpu.to_string()]));
    }
    let output = bench.sut().0.enter(|| Command::new(&words[0]).args(&words[1..]).output());
    let _ = std::fs::remove_file(&path);
    let output = output.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What arrived in the end.
fn arrived(bench: &Bench, wanted: u64) -> (Copied, u64) {
    let mut last = (Copied::default(), 0);
    for _ in 0..500 {
        let copied = bench.far_end_counts().unwrap().copied.unwrap();
        last = (copied, bench.losses().unwrap().return_ring_full);
        if last.0.seen() + last.1 >= wanted {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    last
}

#[test]
fn both_far_ends_count_the_same_traffic_alike_and_trains_arrive_uncut() {
    let mut counted = Vec::new();
    for far_end in FAR_ENDS {
        let mut plan = plan(far_end, 1_316);
        plan.run = 16;
        let Some(bench) = bench(plan, None) else { return };
        bench.expect(&segment(3, 1_000)).unwrap();
        let numbers = |from: u32| (from..from + 16).collect::<Vec<_>>();
        let mut lines = String::new();
        for (cable, place) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] {
            for from in [0, 16, 48, 32] {
                lines += &line(plan, &numbers(from), cable, place);
            }
            lines += &line(plan, &[64], cable, place);
        }
        // One that is missing, one that is there twice, and a train to no output.
        lines += &line(plan, &[80, 81, 83, 84, 84, 85], 1, 0);
        lines += &line(plan, &[86, 87], 1, 2);
        send(&bench, &lines, None);
        let (copied, refused) = arrived(&bench, 5 * 65 + 8);
        assert_eq!(refused, 0, "{far_end:?}: {copied:?}");
        let trains = (copied.trains, copied.in_trains);
        let uncut = if far_end == FarEnd::Trains { (22, 5 * 64 + 8) } else { (0, 0) };
        assert_eq!(trains, uncut, "{far_end:?}");
        let Copied { distinct, duplicates, reordered, foreign, wrong, by_output, .. } = copied;
        assert_eq!((distinct, duplicates, reordered), (5 * 65 + 5, 1, 5 * 16), "{far_end:?}");
        assert_eq!(wrong, BTreeMap::from([(UNKNOWN, 2)]), "{far_end:?}");
        counted.push((foreign, by_output));
    }
    assert_eq!(counted[0], counted[1]);
    assert_eq!(counted[0], (0, vec![65, 70, 65, 65, 65]));
}

#[test]
fn what_a_full_ring_refuses_is_counted_by_datagram() {
    for far_end in FAR_ENDS {
        let mut plan = plan(far_end, 100);
        plan.run = 16;
        let Some(bench) = bench(plan, Some(0)) else { return };
        bench.claim_napi_threads(1).unwrap();
        bench.expect(&segment(3, 1_000)).unwrap();
        // 300 trains of 16 while no thread receives: the ring has room for 256 packets.
        let numbers: Vec<u32> = (0..16).collect();
        let lines = line(plan, &numbers, 0, 1).repeat(300);
        send(&bench, &lines, Some(0));
        let (copied, refused) = arrived(&bench, 300 * 16);
        assert_eq!(copied.seen() + refused, 300 * 16, "{far_end:?}: {copied:?}");
        assert!(refused >= 16 * 40, "{far_end:?}: {refused}");
        assert_eq!(copied.in_trains, copied.seen() * u64::from(far_end == FarEnd::Trains));
    }
}
