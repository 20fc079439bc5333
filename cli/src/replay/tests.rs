//! The app on a simulated link, whose clock is exact, and into captures.

use super::*;
use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::Clock;
use laneway_engine::{Control, RunReport, Stop, run_frames};
use laneway_sim::{Arrival, SimLane};
use laneway_spec::IdlePolicy;
use laneway_spec::LaneSpec;
use laneway_testkit::udp_frames;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process};

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("laneway-replay-{}-{n}", process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// A capture of these frames, with these distances between them.
    fn capture(&self, name: &str, link: LinkType, frames: &[Vec<u8>], step_ns: u64) -> PathBuf {
        let path = self.0.join(name);
        let mut writer = Writer::create(&path, Layout::Pcapng, &[link]).unwrap();
        for (i, frame) in (0..).zip(frames) {
            let ts_ns = 1_700_000_000_000_000_000 + i * step_ns;
            let wire_len = frame.len() as u32;
            writer.write(&Record { ts_ns, interface: 0, link, wire_len, data: frame }).unwrap();
        }
        writer.commit().unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const KEPT: Pacing = Pacing::Capture { multiplier: 1.0 };

fn plan(captures: &[&Path], pacing: Pacing) -> Plan {
    Plan {
        captures: captures.iter().map(|path| path.to_path_buf()).collect(),
        passes: Some(1),
        pacing,
        preload: false,
        unique_ip: false,
        count: None,
    }
}

/// Replays on a link; what arrived, what the run says, and the app.
fn on_sim(plan: &Plan) -> (Vec<Arrival>, RunReport, Replay) {
    on_link("sim", plan)
}

fn on_link(spec: &str, plan: &Plan) -> (Vec<Arrival>, RunReport, Replay) {
    let spec: LaneSpec = spec.parse().unwrap();
    let (mut lane, world) = SimLane::open(&spec, 1).unwrap();
    let mut replay = Replay::new(plan).unwrap();
    let (idle, control) = (IdlePolicy::Block, Control::default());
    let report = run_frames(&mut lane, &mut replay, &world.clock(), idle, &control).unwrap();
    // What is on the wire yet arrives.
    world.advance_to(world.clock().now_ns() + 1_000_000_000);
    (world.collect(PortId(0)), report, replay)
}

fn bytes(arrived: &[Arrival]) -> Vec<&[u8]> {
    arrived.iter().map(|arrival| &arrival.bytes[..]).collect()
}

#[test]
fn frames_come_as_they_are_in_order_and_none_too_early() {
    let folder = Folder::new();
    let frames = udp_frames(0, 300, 70);
    let path = folder.capture("a.pcapng", LinkType::Ethernet, &frames, 40_000);
    for preload in [false, true] {
        let (arrived, report, replay) = on_sim(&Plan { preload, ..plan(&[&path], KEPT) });
        assert_eq!(bytes(&arrived), frames);
        let first_ns = arrived[0].at_ns;
        for (i, arrival) in (0..).zip(&arrived) {
            assert!(arrival.at_ns - first_ns >= i * 40_000, "frame {i} is early");
        }
        let sent = replay.sent();
        assert_eq!(sent.due_ns, 299 * 40_000);
        assert!(sent.last_ns - sent.first_ns >= sent.due_ns);
        assert_eq!((report.counters().tx_frames, report.app.tx_bytes), (300, 300 * 70));
        assert_eq!(replay.late().unwrap().n, 300);
        assert!(replay.is_done() && replay.failure().is_none());
    }
}

#[test]
fn a_rate_holds_over_passes_and_captures_and_a_count_ends_it() {
    let folder = Folder::new();
    let (a, b) = (udp_frames(0, 5, 60), udp_frames(5, 3, 60));
    let (path_a, path_b) = (
        folder.capture("a.pcapng", LinkType::Ethernet, &a, 1),
        folder.capture("b.pcapng", LinkType::Ethernet, &b, 1_000_000_000),
    );
    let pacing = Pacing::Frames { per_second: 1_000.0 };
    let endless = Plan { passes: None, count: Some(19), ..plan(&[&path_a, &path_b], pacing) };
    let (arrived, _, replay) = on_sim(&endless);
    let expected: Vec<Vec<u8>> = a.iter().chain(&b).cycle().take(19).cloned().collect();
    assert_eq!(bytes(&arrived), expected);
    assert_eq!((replay.sent().due_ns, replay.passes()), (18_000_000, 3));
    let (arrived, _, replay) = on_sim(&plan(&[&path_a], Pacing::Topspeed));
    assert_eq!((arrived.len(), replay.late()), (5, None));
}

/// Of 300 frames at top speed a queue of 8 refused most, and they were given up.
#[test]
fn at_top_speed_frames_wait_for_a_full_queue_and_none_is_lost() {
    let folder = Folder::new();
    let frames = udp_frames(0, 300, 60);
    let path = folder.capture("a.pcapng", LinkType::Ethernet, &frames, 1_000);
    let plan = plan(&[&path], Pacing::Topspeed);
    let (arrived, report, replay) = on_link("sim:queue=8,delay_us=50", &plan);
    assert_eq!(bytes(&arrived), frames);
    let counters = report.counters();
    assert_eq!((counters.tx_frames, counters.lost()), (300, 0));
    assert!(counters.tx_retries > 0 && replay.is_done());
}

#[test]
fn other_addresses_come_with_every_further_pass_and_with_none_before() {
    let folder = Folder::new();
    let frames = udp_frames(0, 2, 60);
    let path = folder.capture("a.pcapng", LinkType::Ethernet, &frames, 1_000);
    let unique = Plan { passes: Some(3), unique_ip: true, ..plan(&[&path], KEPT) };
    let (arrived, ..) = on_sim(&unique);
    let addresses: Vec<&[u8]> = arrived.iter().map(|arrival| &arrival.bytes[26..34]).collect();
    assert_eq!(addresses[0], &frames[0][26..34]);
    assert_eq!(
        (addresses[0], addresses[2], addresses[4]),
        (addresses[1], addresses[3], addresses[5])
    );
    assert!(addresses[0] != addresses[2] && addresses[2] != addresses[4]);
}

#[test]
fn what_is_no_frame_or_too_long_for_the_lane_is_left_out_and_counted() {
    let folder = Folder::new();
    let mut frames = udp_frames(0, 3, 60);
    frames[1].truncate(13);
    let path = folder.capture("a.pcapng", LinkType::Ethernet, &frames, 1_000);
    let foreign = folder.capture("b.pcapng", LinkType::Other(147), &frames[..1], 1_000);
    let long = folder.capture("c.pcapng", LinkType::Ethernet, &[vec![1; 9_000]], 1_000);
    let (arrived, report, replay) = on_sim(&plan(&[&path, &foreign, &long], KEPT));
    assert_eq!(bytes(&arrived), [&frames[0][..], &frames[2]]);
    let dropped: Vec<_> = report.app.nonzero_drops().collect();
    let expected =
        [(DropReason::TxTooLong, 1), (DropReason::LinkTypeUnknown, 1), (DropReason::Malformed, 1)];
    assert_eq!(dropped, expected);
    assert!(replay.is_done());
    // Nothing to be had from another pass: it ends all the same.
    let endless = Plan { passes: None, count: Some(9), ..plan(&[&long], Pacing::Topspeed) };
    let (arrived, _, replay) = on_sim(&endless);
    assert!(arrived.is_empty() && replay.is_done());
    assert!(replay.failure().unwrap().contains("no frame of the captures fits"));
    let (arrived, _, replay) = on_sim(&Plan { passes: None, ..plan(&[&foreign], KEPT) });
    assert!(arrived.is_empty() && replay.is_done());
}

#[test]
fn a_damaged_capture_is_sent_up_to_the_damage_which_is_reported() {
    let folder = Folder::new();
    let frames = udp_frames(0, 4, 60);
    let path = folder.capture("a.pcapng", LinkType::Ethernet, &frames, 1_000);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let (arrived, _, replay) = on_sim(&plan(&[&path], KEPT));
    assert_eq!(bytes(&arrived), &frames[..3]);
    let failure = replay.failure().unwrap();
    assert!(failure.contains("a.pcapng") && failure.contains("cut short"), "{failure}");
    let refused = Replay::new(&Plan { preload: true, ..plan(&[&path], KEPT) }).err().unwrap();
    assert!(refused.contains("cut short"), "{refused}");
}

#[test]
fn a_name_that_is_no_capture_is_refused_before_anything_is_sent() {
    let folder = Folder::new();
    let text = folder.0.join("notes");
    fs::write(&text, "dear diary, today").unwrap();
    let missing = folder.0.join("gone.pcap");
    for (path, part) in [(&text, "not a capture"), (&missing, "No such file")] {
        let refused = Replay::new(&plan(&[path], KEPT)).err().unwrap();
        assert!(refused.contains(part) && refused.contains(path.to_str().unwrap()), "{refused}");
    }
    let again = Plan { passes: Some(2), ..plan(&[Path::new("-")], KEPT) };
    let refused = Replay::new(&again).err().unwrap();
    assert!(refused.contains("--preload"), "{refused}");
}

#[test]
fn a_capture_that_is_written_has_the_times_at_which_frames_were_due() {
    let folder = Folder::new();
    let frames = udp_frames(0, 4, 60);
    let path = folder.capture("a.pcapng", LinkType::Ethernet, &frames, 1_000);
    let pacing = Pacing::Frames { per_second: 10.0 };
    for (name, duration, expected) in
        [("o.pcapng", None, 8), ("o.pcap", Some(Duration::from_millis(300)), 3)]
    {
        let twice = Plan { passes: Some(2), ..plan(&[&path], pacing) };
        let mut replay = Replay::new(&twice).unwrap();
        let out = folder.0.join(name);
        let recording = Recording::begin(&out).unwrap();
        let recorded = recording.record(&mut replay, duration, &Stop::new()).unwrap();
        assert_eq!((recorded.tx_frames, recorded.tx_bytes), (expected, expected * 60));
        let mut reader = Reader::open(&out).unwrap();
        for i in 0..expected {
            let record = reader.next_record().unwrap().unwrap();
            assert_eq!(record.ts_ns, 1_700_000_000_000_000_000 + i * 100_000_000);
            assert_eq!(record.data, frames[i as usize % 4]);
        }
        assert!(reader.next_record().unwrap().is_none());
        let dropped = reader.interfaces()[0].dropped;
        assert_eq!(dropped, name.ends_with("ng").then_some(0), "{name}: statistics");
    }
}
