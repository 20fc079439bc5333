//! The crate against the running kernel. Needs root; says so and passes otherwise.

#[path = "support/exits.rs"]
mod exits;
mod support;

use exits::{exits, scattering};
use laneway_bpf::{
    BpfError, LiveFrames, Loaded, Moderation, RunInput, TcIngress, Tracing, XdpLink, XdpMode,
    attachment, live_frames, prog_run, prog_run_train,
};
use laneway_core::{ConfigValue, DropReason, KernelHalf, KernelMaps, MapValue, Wake};
use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use support::{
    Receiver, Record, Sender, cable, frame, ifindex, in_namespace, ip, skipped, verdict,
};

const COUNT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_count.bpf.o"));
const EXITS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_exits.bpf.o"));
const INGRESS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_ingress.bpf.o"));
const REFUSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_refused.bpf.o"));
const TRACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_trace.bpf.o"));

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(20);
const BRIEFLY: Duration = Duration::from_millis(30);
/// Waits of 10 ms for frames on their way.
const WAITS_MAX: usize = 3000;

fn half() -> KernelHalf {
    support::half(COUNT, 1 << 16, Vec::new())
}

fn load(half: &KernelHalf) -> Loaded {
    Loaded::load(half).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs the program once after the other: a signal would end a call that repeats in its middle.
fn run(loaded: &Loaded, frame: &[u8], times: u32) {
    for _ in 0..times {
        prog_run(loaded.program(), RunInput { frame, meta: &[], repeat: 1 }).unwrap();
    }
}

fn take(loaded: &mut Loaded) -> Vec<Record> {
    let mut records = Vec::new();
    loaded.rings().unwrap().consume(|bytes| records.push(Record::read(bytes))).unwrap();
    records
}

fn seen_frames(loaded: &Loaded) -> u64 {
    loaded.maps().per_cpu_sums("seen").unwrap()[0]
}

fn ring_full(loaded: &Loaded) -> u64 {
    loaded.maps().per_cpu_sums("drops").unwrap()[DropReason::RecordRingFull as usize]
}

#[test]
fn a_run_sees_metadata_and_constants_and_leaves_a_record() {
    if skipped() {
        return;
    }
    let mut half = half();
    half.config = vec![
        verdict(XDP_PASS),
        ConfigValue { name: "tag", bytes: 0xfeed_u64.to_ne_bytes().to_vec() },
    ];
    let mut loaded = load(&half);
    let meta = 0x1122_3344_5566_7788_u64.to_ne_bytes();
    let input = RunInput { frame: &frame(99), meta: &meta, repeat: 1 };
    let output = prog_run(loaded.program(), input).unwrap();
    assert_eq!((output.verdict, output.frame, output.meta), (XDP_PASS, frame(99), meta.to_vec()));
    let records = take(&mut loaded);
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].n, records[0].meta, records[0].len, records[0].tag),
        (0, u64::from_ne_bytes(meta), 99, 0xfeed)
    );
}

/// Counts nothing and is counted nowhere: what matters is that it interrupts.
extern "C" fn interrupted(_: libc::c_int) {}

#[test]
fn a_thread_that_is_interrupted_all_the_time_loads_its_program() {
    if skipped() {
        return;
    }
    let handler = interrupted as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    // SAFETY: no arguments.
    let loader = unsafe { libc::pthread_self() };
    let is_loaded = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_loaded.load(Ordering::Relaxed) {
                // SAFETY: that thread waits for this one.
                unsafe { libc::pthread_kill(loader, libc::SIGUSR2) };
            }
        });
        let results: Vec<_> = (0..20).map(|_| Loaded::load(&half()).map(drop)).collect();
        is_loaded.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap_or_else(|e| panic!("{e}")));
    });
}

#[test]
fn a_run_without_metadata_has_none() {
    if skipped() {
        return;
    }
    let mut loaded = load(&half());
    run(&loaded, &frame(60), 1);
    assert_eq!(take(&mut loaded)[0].meta, 0);
}

#[test]
fn a_frame_longer_than_a_page_runs_when_the_program_takes_fragments() {
    if skipped() {
        return;
    }
    let mut loaded = load(&half());
    let input = RunInput { frame: &frame(9000), meta: &[], repeat: 1 };
    assert_eq!(prog_run(loaded.program(), input).unwrap().frame, frame(9000));
    assert_eq!(take(&mut loaded)[0].len, 9000);
}

#[test]
fn a_full_ring_counts_what_it_refuses() {
    if skipped() {
        return;
    }
    let mut loaded = load(&support::half(COUNT, 4096, Vec::new()));
    run(&loaded, &frame(60), 5000);
    let records = take(&mut loaded).len() as u64;
    assert!((1..5000).contains(&records), "{records}");
    assert_eq!(records + ring_full(&loaded), 5000);
    // Space has been given back: the next frames are recorded again.
    run(&loaded, &frame(60), 3);
    assert_eq!(take(&mut loaded).len(), 3);
}

#[test]
fn records_survive_the_wrap_of_the_ring_in_order() {
    if skipped() {
        return;
    }
    let mut loaded = load(&support::half(COUNT, 4096, Vec::new()));
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for _ in 0..30 {
        run(&loaded, &frame(60), 37);
        for record in take(&mut loaded) {
            let next = next.entry(record.cpu).or_default();
            assert_eq!(record.n, *next, "CPU {}", record.cpu);
            *next += 1;
        }
    }
    assert_eq!(next.values().sum::<u64>(), 30 * 37);
    assert_eq!(ring_full(&loaded), 0);
}

#[test]
fn discarded_records_are_not_shown() {
    if skipped() {
        return;
    }
    let config = vec![ConfigValue { name: "discard_odd", bytes: vec![1] }];
    let mut loaded = load(&support::half(COUNT, 1 << 16, config));
    run(&loaded, &frame(60), 100);
    let records = take(&mut loaded);
    assert!(records.iter().all(|r| r.n % 2 == 0));
    // Each CPU counts from 0, and the thread may have been moved between two runs.
    let mut even = 0;
    let mut each = |_: &[u8], cpus: &[u8]| {
        for frames_and_bytes in cpus.chunks_exact(16) {
            let frames = u64::from_ne_bytes(frames_and_bytes[..8].try_into().unwrap());
            even += frames.div_ceil(2);
        }
    };
    loaded.maps().visit("seen", &mut each).unwrap();
    assert_eq!((seen_frames(&loaded), records.len() as u64), (100, even));
}

#[test]
fn a_wrong_record_length_is_an_error_not_a_guess() {
    if skipped() {
        return;
    }
    let mut half = half();
    half.records.as_mut().unwrap().record_bytes = 24;
    let mut loaded = load(&half);
    run(&loaded, &frame(60), 1);
    let error = loaded.rings().unwrap().consume(|_| panic!("shown")).unwrap_err().to_string();
    assert!(error.contains("32 bytes") && error.contains("24"), "{error}");
}

#[test]
fn waiting_times_out_on_empty_rings_and_answers_at_once_on_others() {
    if skipped() {
        return;
    }
    let mut loaded = load(&half());
    let rings = loaded.rings().unwrap();
    assert_eq!(rings.wait(Duration::from_millis(1)).unwrap(), Wake::Timeout);
    run(&loaded, &frame(60), 1);
    let rings = loaded.rings().unwrap();
    assert_eq!(rings.wait(PATIENCE).unwrap(), Wake::Ready);
    assert_eq!(rings.consume(|_| ()).unwrap(), 1);
    assert_eq!(rings.wait(Duration::from_millis(1)).unwrap(), Wake::Timeout);
}

#[test]
fn the_program_wakes_a_sleeper_and_leaves_the_awake_alone() {
    if skipped() {
        return;
    }
    let mut loaded = load(&half());
    let program = loaded.program().try_clone_to_owned().unwrap();
    let wanted = || {
        let mut value = 0;
        loaded.maps().visit("wanted", &mut |_, v| value = v[0]).unwrap();
        value
    };
    assert_eq!(wanted(), 0);
    let sender = thread::spawn(move || {
        // Whether this comes before or during the sleep, the sleeper must return.
        thread::sleep(Duration::from_millis(30));
        let input = RunInput { frame: &frame(60), meta: &[], repeat: 1 };
        prog_run(program.as_fd(), input).unwrap();
    });
    let wake = loaded.rings().unwrap().wait(PATIENCE).unwrap();
    sender.join().unwrap();
    assert_eq!(wake, Wake::Ready);
    let mut value = 9;
    loaded.maps().visit("wanted", &mut |_, v| value = v[0]).unwrap();
    assert_eq!(value, 0, "awake again");
}

/// What a reader that has just read a record sees of `bursts` sent while it sleeps. Each but the first
/// is sent when the reader has been woken and has taken what there was, or has slept on for `between`.
fn woken_with(moderation: Moderation, bursts: &'static [u32], between: Duration) -> usize {
    let mut loaded = load(&half());
    let program = loaded.program().try_clone_to_owned().unwrap();
    let rings = loaded.rings().unwrap();
    rings.moderate(moderation);
    run(&loaded, &frame(60), 1);
    assert_eq!(take(&mut loaded).len(), 1);
    let (woken, is_woken) = mpsc::channel();
    let sender = thread::spawn(move || {
        for (i, &repeat) in bursts.iter().enumerate() {
            match i {
                // Whether the reader sleeps already is all the same.
                0 => thread::sleep(BRIEFLY),
                _ => drop(is_woken.recv_timeout(between)),
            }
            let input = RunInput { frame: &frame(60), meta: &[], repeat };
            prog_run(program.as_fd(), input).unwrap();
        }
    });
    let rings = loaded.rings().unwrap();
    while rings.wait(PATIENCE).unwrap() == Wake::Timeout {}
    let records = take(&mut loaded).len();
    // A sender that has ended already needs no word.
    let _ = woken.send(());
    sender.join().unwrap();
    records
}

#[test]
fn while_records_flow_a_sleeper_is_woken_for_a_number_of_them() {
    if skipped() {
        return;
    }
    // The second burst is enough by itself: the sender may have moved to another CPU's ring.
    let moderation = Moderation { records: 8, delay: PATIENCE };
    assert!(woken_with(moderation, &[4, 8], BRIEFLY) >= 8);
    let at_once = Moderation { records: 1, delay: PATIENCE };
    assert_eq!(woken_with(at_once, &[1, 7], PATIENCE), 1);
}

#[test]
fn a_record_without_company_waits_no_longer_than_the_delay() {
    if skipped() {
        return;
    }
    let moderation = Moderation { records: 1000, delay: Duration::from_millis(1) };
    assert_eq!(woken_with(moderation, &[1], BRIEFLY), 1);
}

#[test]
fn maps_are_resized_written_visited_and_emptied() {
    if skipped() {
        return;
    }
    let mut half = half();
    half.map_sizes = vec![("lengths", 9000), ("lengths_per_cpu", 9000)];
    for map in ["lengths", "lengths_per_cpu"] {
        half.entries.push((
            map,
            60u32.to_ne_bytes().to_vec(),
            MapValue::Bytes(vec![0; if map == "lengths" { 8 } else { 4 }]),
        ));
    }
    let loaded = load(&half);
    let maps = loaded.maps();
    run(&loaded, &frame(60), 7);
    let read = |values: &[u8], bytes: usize| -> u64 {
        values
            .chunks_exact(8)
            .map(|v| {
                if bytes == 8 { u64::from_ne_bytes(v.try_into().unwrap()) } else { u64::from(v[0]) }
            })
            .sum()
    };
    for (map, bytes) in [("lengths", 8), ("lengths_per_cpu", 4)] {
        for length in 1000u32..7000 {
            let mut value = vec![0; bytes];
            value[0] = 1;
            maps.put(map, &length.to_ne_bytes(), &value).unwrap();
        }
        let cpus = if bytes == 8 { 1 } else { maps.cpus() as u64 };
        let mut visited = BTreeMap::new();
        maps.visit(map, &mut |k, v| {
            visited.insert(k.to_vec(), read(v, bytes));
        })
        .unwrap();
        assert_eq!(visited.len(), 6001, "{map}");
        assert_eq!(visited[&60u32.to_ne_bytes().to_vec()], 7);
        assert_eq!(visited[&1000u32.to_ne_bytes().to_vec()], cpus);
        // Twice: an entry that is not there is no error.
        for key in visited.keys().chain(visited.keys()) {
            maps.remove(map, key).unwrap();
        }
        maps.visit(map, &mut |_, _| panic!("{map} is not empty")).unwrap();
    }
}

#[test]
fn a_map_without_batch_operations_is_visited_entry_by_entry() {
    in_namespace(|| {
        let mut half = half();
        let lo = ifindex("lo").to_ne_bytes().to_vec();
        for port in [1u32, 6] {
            half.entries.push(("ports", port.to_ne_bytes().to_vec(), MapValue::Bytes(lo.clone())));
        }
        let mut ports = Vec::new();
        load(&half).maps().visit("ports", &mut |k, v| ports.push((k[0], v.to_vec()))).unwrap();
        assert_eq!(ports, [(1, lo.clone()), (6, lo)]);
    });
}

#[test]
fn an_entry_names_a_program_and_a_map_of_entries_is_swapped_whole() {
    in_namespace(|| {
        for (left, right) in [("in", "inner"), ("one", "far1"), ("two", "far2")] {
            cable(left, right);
        }
        // A veth takes redirected frames where the far end has a program.
        let pass = load(&support::half(COUNT, 1 << 16, vec![verdict(XDP_PASS)]));
        let _ends = ["far1", "far2"]
            .map(|end| XdpLink::attach(pass.program(), end, XdpMode::Native).unwrap());
        let loaded = load(&scattering(EXITS, exits(&["one", "two"])));
        let _link = XdpLink::attach(loaded.program(), "inner", XdpMode::Generic).unwrap();
        let (first, second, sender) =
            (Receiver::on("far1"), Receiver::on("far2"), Sender::on("in"));
        let stamped = |interface: &str, bytes: usize| {
            let mut frame = frame(bytes);
            frame[11] = ifindex(interface) as u8;
            frame
        };
        sender.send(&frame(60));
        assert_eq!(first.receive(), stamped("one", 60));
        assert_eq!(second.receive(), stamped("two", 60));
        // One entry where there were two, and back.
        let zero = 0u32.to_ne_bytes();
        loaded.maps().set("exits", &zero, &exits(&["two"])).unwrap();
        sender.send(&frame(70));
        assert_eq!(second.receive(), stamped("two", 70));
        loaded.maps().set("exits", &zero, &exits(&["two", "one"])).unwrap();
        sender.send(&frame(80));
        assert_eq!(second.receive(), stamped("two", 80));
        assert_eq!(first.receive(), stamped("one", 80), "nothing of 70 bytes was in between");
    });
}

#[test]
fn values_that_a_map_cannot_hold_are_refused_by_name() {
    if skipped() {
        return;
    }
    let loaded = load(&scattering(EXITS, MapValue::Map(Vec::new())));
    let key = 1u32.to_ne_bytes().to_vec();
    let of = |value: MapValue| MapValue::Map(vec![(0u32.to_ne_bytes().to_vec(), value)]);
    for (map, value, want) in [
        ("seen", MapValue::Map(Vec::new()), "`seen` is no map of maps"),
        ("seen", MapValue::Exit(1, "stamp"), "`seen` is no map of devices"),
        ("exits", of(MapValue::Exit(1, "stomp")), "no program `stomp`"),
        ("exits", of(MapValue::Exit(1, "scatter")), "put it into section `xdp/devmap`"),
        ("exits", of(MapValue::Map(Vec::new())), "hold no maps"),
        ("exits", of(MapValue::Bytes(vec![0; 4])), "values of 8 bytes, and was given 4 and 4"),
        ("exits", of(MapValue::Exit(0x7fff_ffff, "stamp")), "write an entry of map `exits`"),
    ] {
        let refused = loaded.maps().set(map, &key, &value).unwrap_err().to_string();
        assert!(refused.contains(want), "{refused}");
    }
}

#[test]
fn without_privilege_the_error_names_the_capabilities() {
    if skipped() {
        return;
    }
    let refused = thread::spawn(|| {
        // SAFETY: three integers. The bare system call changes this thread alone, which takes its
        // capabilities and ends.
        let code = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(code, 0);
        Loaded::load(&half()).err().expect("must be refused")
    })
    .join()
    .unwrap();
    assert!(matches!(&refused, BpfError::NotPermitted { .. }), "{refused}");
    assert!(refused.to_string().contains("CAP_BPF"), "{refused}");
}

#[test]
fn what_a_map_cannot_do_is_reported() {
    if skipped() {
        return;
    }
    let loaded = load(&half());
    let maps = loaded.maps();
    let missing = maps.visit("nothing", &mut |_, _| ()).unwrap_err().to_string();
    assert!(missing.contains("no map `nothing`"), "{missing}");
    let array = maps.remove("seen", &[0; 4]).unwrap_err().to_string();
    assert!(array.contains("cannot be removed"), "{array}");
    let long = maps.remove("lengths", &[0; 8]).unwrap_err().to_string();
    assert!(long.contains("keys of 4"), "{long}");
    let short = maps.put("lengths", &[1, 2], &[0; 8]).unwrap_err().to_string();
    assert!(short.contains("keys of 4"), "{short}");
}

#[test]
fn a_half_that_does_not_fit_its_object_is_refused_by_name() {
    if skipped() {
        return;
    }
    let refusal = |change: &dyn Fn(&mut KernelHalf)| {
        let mut half = half();
        change(&mut half);
        Loaded::load(&half).err().expect("must be refused").to_string()
    };
    let constant = |name: &'static str, bytes: usize| {
        move |half: &mut KernelHalf| {
            half.config = vec![ConfigValue { name, bytes: vec![0; bytes] }];
        }
    };
    for (refusal, want) in [
        (refusal(&|h| h.program = "main"), "no program `main`"),
        (refusal(&constant("speed", 4)), "no constant `speed`; it has"),
        (refusal(&constant("verdict", 8)), "4 bytes long and was given 8"),
        (refusal(&|h| h.map_sizes = vec![("lenghts", 4)]), "no map `lenghts`"),
        (refusal(&|h| h.map_sizes = vec![("lengths", 0)]), "cannot have 0 entries"),
        (refusal(&|h| h.records.as_mut().unwrap().ring_bytes = 5000), "power of two"),
        (refusal(&|h| h.records.as_mut().unwrap().map = "seen"), "no array of maps `seen`"),
        (refusal(&|h| h.records.as_mut().unwrap().wanted_map = "x"), "no array `x`"),
        (refusal(&|h| h.object = b"not an object"), "test_count"),
    ] {
        assert!(refusal.contains(want), "{refusal}");
    }
}

#[test]
fn the_verifiers_reason_is_in_the_error() {
    if skipped() {
        return;
    }
    let refused = KernelHalf {
        name: "test_refused",
        object: REFUSED,
        program: "refused",
        records: None,
        ..half()
    };
    let error = Loaded::load(&refused).err().expect("must be refused");
    let BpfError::Verifier { log, .. } = &error else { panic!("{error:?}") };
    assert!(log.contains("invalid access to packet"), "{log}");
    assert!(log.lines().count() <= 12, "{log}");
}

#[test]
fn each_mode_is_obtained_as_asked_and_ends_with_the_link() {
    in_namespace(|| {
        cable("left", "right");
        let loaded = load(&half());
        let id = loaded.program_id().unwrap();
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let link = XdpLink::attach(loaded.program(), "right", mode).unwrap();
            assert_eq!((link.mode(), link.program_id()), (mode, id));
            let found = attachment("right").unwrap();
            let (here, there) = match mode {
                XdpMode::Native => (found.native, found.generic),
                XdpMode::Generic => (found.generic, found.native),
            };
            assert_eq!((here, there), (Some(id), None));
            drop(link);
            assert_eq!(attachment("right").unwrap(), Default::default());
        }
    });
}

#[test]
fn a_driver_without_native_mode_refuses_it() {
    in_namespace(|| {
        let loaded = load(&half());
        let refused = XdpLink::attach(loaded.program(), "lo", XdpMode::Native).unwrap_err();
        let BpfError::ModeRefused { mode: XdpMode::Native, source, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(source.raw_os_error(), Some(libc::EOPNOTSUPP));
        XdpLink::attach(loaded.program(), "lo", XdpMode::Generic).unwrap();
    });
}

#[test]
fn a_busy_interface_names_the_program_that_holds_it() {
    in_namespace(|| {
        cable("left", "right");
        let (first, second) = (load(&half()), load(&half()));
        let _link = XdpLink::attach(first.program(), "right", XdpMode::Native).unwrap();
        let holder = format!("XDP program {}", first.program_id().unwrap());
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let busy = XdpLink::attach(second.program(), "right", mode).unwrap_err();
            assert!(matches!(&busy, BpfError::Busy { .. }), "{busy}");
            assert!(busy.to_string().contains(&holder), "{busy}");
        }
    });
}

#[test]
fn a_link_notices_that_its_interface_is_gone() {
    in_namespace(|| {
        cable("left", "right");
        let loaded = load(&half());
        let link = XdpLink::attach(loaded.program(), "right", XdpMode::Native).unwrap();
        assert!(link.is_attached().unwrap());
        ip("link set right name renamed");
        assert!(link.is_attached().unwrap(), "a rename is no disappearance");
        ip("link del left");
        assert!(!link.is_attached().unwrap());
    });
}

#[test]
fn frames_of_a_socket_become_records_in_order_in_both_modes() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        in_namespace(move || {
            cable("left", "right");
            let mut loaded = load(&half());
            let link = XdpLink::attach(loaded.program(), "right", mode).unwrap();
            let sender = Sender::on("left");
            for length in 60..460 {
                sender.send(&frame(length));
            }
            let mut records = Vec::new();
            // While records flow a wait is short: the rest may still be in the receiver's softirq.
            for _ in 0..WAITS_MAX {
                records.extend(take(&mut loaded));
                if records.len() >= 400 {
                    break;
                }
                loaded.rings().unwrap().wait(Duration::from_millis(10)).unwrap();
            }
            assert_eq!(records.len(), 400);
            drop(link);
            assert_eq!(seen_frames(&loaded), 400);
            let mut cpus: BTreeMap<u32, Vec<Record>> = BTreeMap::new();
            for record in records {
                cpus.entry(record.cpu).or_default().push(record);
            }
            for of_cpu in cpus.values() {
                assert!(of_cpu.windows(2).all(|w| w[0].n + 1 == w[1].n), "{of_cpu:?}");
            }
        });
    }
}

#[test]
fn a_frame_that_the_program_passes_goes_on_to_the_stack() {
    in_namespace(|| {
        cable("left", "right");
        let loaded = load(&support::half(COUNT, 4096, vec![verdict(XDP_PASS)]));
        let _link = XdpLink::attach(loaded.program(), "right", XdpMode::Native).unwrap();
        let stack = Receiver::on("right");
        Sender::on("left").send(&frame(88));
        assert_eq!(stack.receive(), frame(88));
    });
}

#[test]
fn live_frames_cross_a_cable_and_every_one_is_counted() {
    in_namespace(|| {
        cable("left", "right");
        let generator = load(&support::half(COUNT, 4096, vec![verdict(XDP_TX)]));
        let mut sink = load(&support::half(COUNT, 1 << 20, vec![verdict(XDP_DROP)]));
        // The generator's end needs XDP too, or its receive queue is not registered.
        let _left = XdpLink::attach(generator.program(), "left", XdpMode::Native).unwrap();
        let right = XdpLink::attach(sink.program(), "right", XdpMode::Native).unwrap();
        // veth itself drops what its 256 slots cannot take, so half as many are on their way at a time.
        const ROUNDS: u64 = 32;
        const FRAMES: u64 = 128;
        let mut records = 0;
        for round in 1..=ROUNDS {
            let live = LiveFrames {
                frame: &frame(64),
                meta: &[],
                frames: FRAMES as u32,
                batch: 64,
                ingress_ifindex: ifindex("left"),
            };
            live_frames(generator.program(), live).unwrap();
            assert_eq!(seen_frames(&generator), round * FRAMES);
            for _ in 0..WAITS_MAX {
                records += take(&mut sink).len() as u64;
                if records >= round * FRAMES {
                    break;
                }
                sink.rings().unwrap().wait(Duration::from_millis(10)).unwrap();
            }
            assert_eq!(records, round * FRAMES);
        }
        drop(right);
        assert_eq!((seen_frames(&sink), ring_full(&sink)), (records, 0));
    });
}

#[test]
fn a_batch_of_live_frames_has_a_limit() {
    if skipped() {
        return;
    }
    let loaded = load(&half());
    let live =
        LiveFrames { frame: &frame(64), meta: &[], frames: 1, batch: 257, ingress_ifindex: 0 };
    let refused = live_frames(loaded.program(), live).unwrap_err().to_string();
    assert!(refused.contains("use 1 to 256"), "{refused}");
}

#[test]
fn tracepoints_count_until_they_are_detached() {
    if skipped() {
        return;
    }
    let mut tracing = Tracing::attach("test_trace", TRACE, &[]).unwrap();
    for _ in 0..50 {
        thread::sleep(Duration::from_micros(50));
    }
    tracing.detach();
    // A process that another test is starting may hold the links for a moment.
    let read = || tracing.maps().per_cpu_sums("events").unwrap();
    let quiet = (0..500).any(|_| {
        let before = read();
        thread::sleep(Duration::from_millis(5));
        read() == before
    });
    assert!(quiet, "still counting");
    assert!(read()[0] >= 50 && read()[1] >= 1, "{:?}", read());
}

fn ingress() -> Loaded {
    let half = KernelHalf::new("ingress", INGRESS, "take");
    Loaded::load_for_tc(&half).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_program_behind_the_driver_runs_on_trains_of_bytes() {
    if skipped() {
        return;
    }
    let loaded = ingress();
    for (bytes, gso_size) in [(60, 0), (600, 100)] {
        assert_eq!(prog_run_train(loaded.program(), &frame(bytes), gso_size).unwrap(), 2);
    }
    assert_eq!(loaded.maps().per_cpu_sums("seen").unwrap(), [2, 100]);
    assert!(prog_run_train(loaded.program(), &frame(13), 0).is_err());
}

#[test]
fn a_program_behind_the_driver_takes_what_arrives_until_it_is_dropped() {
    in_namespace(|| {
        cable("left0", "right0");
        cable("left1", "right1");
        let loaded = ingress();
        let attached = TcIngress::attach(loaded.program(), "right0").unwrap();
        // What an older kernel has.
        let filter = TcIngress::attach_filter(loaded.program(), "right1").unwrap();
        assert!(!filter.is_link());
        let seen = || loaded.maps().per_cpu_sums("seen").unwrap()[0];
        let senders = ["left0", "left1"].map(Sender::on);
        for (sender, wanted) in senders.iter().zip([1, 2]) {
            let before = seen();
            sender.send(&frame(60));
            for _ in 0..WAITS_MAX {
                if seen() > before {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(seen(), wanted);
        }
        if attached.is_link() {
            drop(attached);
            let receiver = Receiver::on("right0");
            senders[0].send(&frame(77));
            assert_eq!(receiver.receive().len(), 77);
            assert_eq!(seen(), 2);
        }
        let missing = TcIngress::attach(loaded.program(), "nowhere0").unwrap_err();
        assert!(matches!(missing, BpfError::NoInterface { .. }), "{missing}");
    });
}
