//! A relay as a service: what it gives up once it runs, how another process goes on where it ends, and what it
//! tells the service manager that started it.

use super::*;
use std::io::Write as _;
use std::os::unix::net::{UnixDatagram, UnixStream};

/// Bits of capability sets.
const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const BPF: u64 = 1 << 39;

impl Running {
    fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// What the kernel says of each of its threads: name, and lines of its status.
    fn threads(&self) -> Vec<(String, BTreeMap<String, String>)> {
        let folder = format!("/proc/{}/task", self.id());
        let tasks = fs::read_dir(folder).expect("it runs");
        let status = |task: PathBuf| {
            let text = fs::read_to_string(task.join("status")).ok()?;
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let lines: BTreeMap<String, String> =
                lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
            Some((lines["Name"].clone(), lines))
        };
        tasks.filter_map(|task| status(task.expect("a folder").path())).collect()
    }

    /// Waits until it has ended by itself, and no longer than patience lasts; what it left.
    fn output(mut self) -> Output {
        let child = self.child.take().expect("it is ended once");
        let id = Pid::from_child(&child);
        let (ended, is_ended) = mpsc::channel();
        // What it writes at its end is more than a pipe holds, so it is read meanwhile.
        let reader = thread::spawn(move || {
            let output = child.wait_with_output().unwrap();
            let _ = ended.send(());
            output
        });
        if is_ended.recv_timeout(PATIENCE).is_err() {
            let _ = kill_process(id, Signal::KILL);
        }
        reader.join().unwrap()
    }

    /// As [`output`](Self::output), because another follows; its account.
    #[track_caller]
    fn followed_by(self, next: Running) -> (Running, Value) {
        let output = self.output();
        if output.status.code() != Some(0) {
            let next = next.end();
            panic!(
                "it ended with {}: {}; its successor: {}",
                output.status,
                text(&output.stderr),
                text(&next.stderr)
            );
        }
        (next, serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

/// Every thread has these capabilities and no others, and can gain none.
#[track_caller]
fn is_confined(running: &Running, lane: &str, kept: u64) {
    let threads = running.threads();
    assert!(threads.len() > 1, "{lane}: {threads:?}");
    for (name, status) in threads {
        let set = |member: &str| u64::from_str_radix(&status[member], 16).unwrap();
        for (member, wanted) in
            [("CapEff", kept), ("CapPrm", kept), ("CapBnd", kept), ("CapInh", 0), ("CapAmb", 0)]
        {
            assert_eq!(set(member), wanted, "{lane}: thread {name}: {member}");
        }
        assert_eq!((&*status["NoNewPrivs"], &*status["Seccomp"]), ("1", "2"), "{lane}: {name}");
    }
}

#[test]
fn a_run_keeps_what_live_rules_need_and_rules_still_come_and_go() {
    let Some(world) = World::new() else { return };
    let _pass = world.sink.enter(|| PassGuard::attach("dst0").unwrap()).unwrap();
    let first = |group: &str, port: u16| {
        format!(
            "allow = [\"198.51.100.0/24\"]\n[[rule]]\n\
             input = {{ interface = \"in0\", group = \"{group}\", port = {port} }}\n\
             outputs = [ {{ destination = \"198.51.100.4:6000\", interface = \"out0\" }} ]\n"
        )
    };
    let rules = world.rules("first.toml", &first("239.1.1.1", 5000));
    let more = world.rules("more.toml", &first("239.1.1.2", 5001));
    let privileged = world.rules("low.toml", &first("239.1.1.1", 500));
    let own: &[&str] = &["--address", ADDRESSES];
    for (lane, rest, rules, kept) in [
        ("socket", &[][..], &rules, 0),
        ("socket:batch=64,gso,gro", &["--workers", "2"][..], &rules, 0),
        ("socket:rcvbuf=8m", &[], &rules, NET_ADMIN),
        ("socket", &[], &privileged, NET_BIND_SERVICE),
        ("uring", &["--metrics", "127.0.0.1:0"], &rules, 0),
        ("uring", &["--duration", "1h"], &privileged, NET_BIND_SERVICE),
        ("packet", own, &rules, NET_RAW),
        ("afxdp", own, &rules, NET_RAW | NET_ADMIN | BPF),
        ("xdp", own, &rules, NET_ADMIN | BPF),
    ] {
        let running = world.start(lane, &[&["--config", rules], rest].concat());
        is_confined(&running, lane, kept);
        let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:6000"));
        world.done(&["add", &more]);
        let mut bytes = [0; 16];
        source.send_to(b"there", "239.1.1.2:5001").unwrap();
        let n = receive(&sink, &mut bytes).unwrap_or_else(|e| panic!("{lane}: {e}"));
        assert_eq!(&bytes[..n], b"there", "{lane}");
        // Threads that were started to answer are confined like the others.
        is_confined(&running, lane, kept);
        running.account(lane);
    }
}

#[test]
fn privileges_are_kept_where_that_is_asked_for_and_what_is_given_up_is_reported() {
    let Some(world) = World::new() else { return };
    let rule = |port| {
        format!(
            "[[rule]]\ninput = {{ interface = \"in0\", group = \"239.1.1.1\", port = {port} }}\n\
             outputs = [ {{ destination = \"239.2.2.2:5000\", interface = \"out0\" }} ]\n"
        )
    };
    let low = world.rules("low.toml", &rule(500));
    let running = world.start("socket", &[]);
    refused(&world.ask(&["add", &low]), &["500", "CAP_NET_BIND_SERVICE"]);
    running.account("socket");
    let running = world.start("socket", &["--keep-privileges"]);
    for (name, status) in running.threads() {
        assert_eq!((&*status["NoNewPrivs"], &*status["Seccomp"]), ("0", "0"), "{name}");
    }
    world.done(&["add", &low]);
    running.account("socket");
    // Nothing that a run does is stopped, or it would be dead.
    let running = world.start("uring:gso,gro", &["--forbidden-calls", "kill"]);
    let high = world.rules("high.toml", &rule(5000));
    world.done(&["replace", &high]);
    world.done(&["status"]);
    running.account("uring");
}

/// What one sender has sent, by number, while relays follow each other.
fn numbered<R>(world: &World, test: impl FnOnce() -> R) -> (R, Vec<u32>, u32) {
    let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:6000"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut n = 0u32;
            while !is_over.load(Ordering::Relaxed) {
                source.send_to(&n.to_be_bytes(), "239.9.9.9:5000").unwrap();
                n += 1;
                // So that a socket has room for as long as a busy machine leaves every process waiting.
                thread::sleep(Duration::from_millis(2));
            }
            source.send_to(&u32::MAX.to_be_bytes(), "239.9.9.9:5000").unwrap();
            n
        });
        let receiver = scope.spawn(|| {
            let (mut numbers, mut bytes) = (Vec::new(), [0; 4]);
            while receive(&sink, &mut bytes).is_ok() && bytes != [0xff; 4] {
                numbers.push(u32::from_be_bytes(bytes));
            }
            numbers
        });
        let over = Over(&is_over);
        let done = test();
        drop(over);
        (done, receiver.join().unwrap(), sender.join().unwrap())
    })
}

/// Begins a relay that is to follow the one at the control socket, whose path it spells in its own way.
fn follow(world: &World, lane: &str, rest: &[&str]) -> Running {
    let control = world.folder.file("./relay.sock");
    let mut command = world.relay.command(LANEWAY);
    command.args(["run", "relay", "--json", "--lane", lane, "--take-over", &control]);
    command.args(["--control", &control]).args(rest);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running { child: Some(command.spawn().unwrap()) }
}

#[test]
fn ten_successors_in_a_row_lose_nothing_double_nothing_and_keep_the_order() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", &many_rules(60, 7001));
    for lanes in
        [["socket", "socket"], ["uring", "uring"], ["socket:batch=64,gso,gro", "uring:gso,gro"]]
    {
        let two = ["--workers", "2"];
        let first = world.start(lanes[0], &[&["--config", &rules][..], &two].concat());
        let before = world.done(&["list"]);
        let mut relayed = 0;
        let (last, received, sent) = numbered(&world, || {
            let mut running = first;
            for turn in 1..=10 {
                let lane = lanes[turn % 2];
                let (next, account) = running.followed_by(follow(&world, lane, &two));
                assert!(account["closed"] == true, "{account:#}");
                relayed += account["fates"]["relayed"].as_u64().unwrap();
                running = next;
            }
            running
        });
        assert!(
            received.iter().copied().eq(0..sent),
            "{lanes:?}: {sent} sent, {} received, first wrong {:?}",
            received.len(),
            received.iter().zip(0u32..).find(|(a, b)| *a != b)
        );
        // The last has all the rules, all the groups, and is spoken to where the first was.
        assert_eq!(world.done(&["list"]), before);
        let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:7001"));
        for n in [0u8, 7, 59] {
            source.send_to(&[n], (Ipv4Addr::new(239, 1, 0, n), 5000)).unwrap();
            let mut bytes = [0; 4];
            assert_eq!(receive(&sink, &mut bytes).unwrap(), 1, "{lanes:?}");
            assert_eq!(bytes[0], n, "{lanes:?}");
        }
        let account = last.account(lanes[0]);
        relayed += account["fates"]["relayed"].as_u64().unwrap();
        assert_eq!(relayed, u64::from(sent) + 1 + 3, "{lanes:?}: of all of them together");
        assert!(!PathBuf::from(world.control()).exists(), "the last removes the socket");
    }
}

#[test]
fn whatever_a_successor_does_instead_the_relay_goes_on() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", &many_rules(1, 7001));
    for lane in ["socket", "uring"] {
        let running = world.start(lane, &["--config", &rules]);
        let say = |socket: &mut UnixStream, line: &str| -> String {
            socket.write_all(format!("{line}\n").as_bytes()).unwrap();
            let mut answer = String::new();
            BufReader::new(&*socket).read_line(&mut answer).unwrap();
            answer
        };
        let asks = |format: u32| {
            format!(
                "{{\"command\":\"handover\",\"format\":{format},\"workers\":1,\"sockets\":true,\"control\":true}}"
            )
        };
        let (_, received, sent) = numbered(&world, || {
            let connect = || UnixStream::connect(world.control()).unwrap();
            // Another version.
            let answer = say(&mut connect(), &asks(99));
            assert!(answer.starts_with("error: ") && answer.contains("format 99"), "{answer}");
            // One that leaves with the sockets, which go with it.
            let answer = say(&mut connect(), &asks(1));
            assert!(answer.contains("\"sockets\":[{"), "{answer}");
            // One that has asked for nothing, and one that leaves when no relay receives.
            let answer = say(&mut connect(), r#"{"command":"take","offer":77}"#);
            assert!(answer.contains("77"), "{answer}");
            let mut client = connect();
            let offer: Value = serde_json::from_str(&say(&mut client, &asks(1))).unwrap();
            let mut end = [0];
            io::Read::read(&mut client, &mut end).ok();
            let take = format!("{{\"command\":\"take\",\"offer\":{}}}", offer["offer"]);
            assert_eq!(say(&mut client, &take), "{\"ceased\":true}\n");
            drop(client);
            // It is there, and rules may change again; then an old offer is none.
            let answer = world.done(&["status"]);
            assert!(answer.contains("untouched"), "{answer}");
            let more = world.rules("more.toml", &many_rules(3, 7001));
            world.done(&["replace", &more]);
            assert!(say(&mut connect(), &take).contains("error"));
            // A program that is no relay's successor in any way.
            let output = follow(&world, lane, &["--workers", "2"]).output();
            refused(&output, &["2", "--workers 1"]);
        });
        assert!(
            received.iter().copied().eq(0..sent),
            "{lane}: {sent} sent, {} received",
            received.len()
        );
        running.account(lane);
    }
}

#[test]
fn on_lanes_without_sockets_of_the_kernels_a_successor_has_the_rules_and_says_what_is_lost() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", &many_rules(3, 7001));
    let own = ["--address", ADDRESSES];
    let first = world.start("packet", &[&["--config", &rules][..], &own].concat());
    let before = world.done(&["list"]);
    let mut command = world.relay.command(LANEWAY);
    let control = world.control();
    command.args(["run", "relay", "--lane", "packet", "--take-over", &control]);
    command.args(["--control", &control]).args(own);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let second = Running { child: Some(command.spawn().unwrap()) };
    let (second, _) = first.followed_by(second);
    let begun = Instant::now();
    while world.ask(&["status"]).status.code() != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "it does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.done(&["list"]), before);
    let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:7001"));
    source.send_to(b"there", "239.1.0.1:5000").unwrap();
    let mut bytes = [0; 16];
    assert_eq!(receive(&sink, &mut bytes).unwrap(), 5);
    let printed = text(&second.end().stderr);
    assert!(printed.contains("lost by taking over: what arrives between"), "{printed}");
    // No relay is left to follow.
    let output = follow(&world, "socket", &[]).output();
    refused(&output, &["cannot talk to"]);
}

#[test]
fn the_service_manager_is_notified_when_it_relays_reads_rules_again_and_ends() {
    let Some(world) = World::new() else { return };
    let path = world.folder.file("notify");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
    let notified = || {
        let mut bytes = [0; 256];
        let n = supervisor.recv(&mut bytes).expect("the relay reports its state");
        text(&bytes[..n])
    };
    let rules = world.rules("rules.toml", &many_rules(1, 7001));
    let control = world.control();
    let mut command = world.relay.command(LANEWAY);
    command.args(["run", "relay", "--json", "--lane", "socket", "--control", &control]);
    command.args(["--config", &rules]).env("NOTIFY_SOCKET", &path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running { child: Some(command.spawn().unwrap()) };
    assert_eq!(notified(), "READY=1\n");
    is_confined(&running, "socket", 0);
    world.done(&["replace", &rules]);
    let reloading = notified();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(notified(), "READY=1\n");
    running.account("socket");
    assert_eq!(notified(), "STOPPING=1\n");
}

/// A unit that ships, with this program in place of the installed one.
fn unit(name: &str) -> String {
    let path = format!("{}/../contrib/systemd/{name}.service", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).expect("it ships").replace("/usr/bin/laneway", LANEWAY)
}

#[test]
fn the_units_commands_are_commands() {
    let folder = Folder::new();
    let place = folder.file("");
    // All of a command is understood, and what is missing is the file; of the store, which would begin, a word in
    // addition.
    for (name, begins, more, why) in [
        ("laneway-relay", "ExecStart=", "", ["cannot read", "relay.toml"]),
        ("laneway-relay", "ExecReload=", "", ["cannot read", "relay.toml"]),
        (
            "laneway-kv",
            "ExecStart=",
            " --tls-listen 127.0.0.1:1",
            ["--tls-cert-file", "--tls-key-file"],
        ),
    ] {
        let unit = unit(name);
        let line = unit.lines().find_map(|line| line.strip_prefix(begins)).expect(begins);
        let line = line.replace("${CONFIGURATION_DIRECTORY}", &place);
        let line = line.replace("${RUNTIME_DIRECTORY}", &place);
        let line = line.replace("${STATE_DIRECTORY}", &place) + more;
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        refused(&laneway(&words), &why);
    }
}

#[test]
fn systemd_takes_the_units() {
    let folder = Folder::new();
    for name in ["laneway-relay", "laneway-kv"] {
        let path = folder.file(&format!("{name}.service"));
        fs::write(&path, unit(name)).unwrap();
        let verified = Command::new("systemd-analyze").args(["verify", &path]).output();
        let Ok(output) = verified else { return skip("systemd-analyze is not installed") };
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        // What is wrong with other units of the host is none of ours.
        let ours: Vec<&str> = printed.lines().filter(|line| line.contains(name)).collect();
        assert!(ours.is_empty(), "{printed}");
    }
}
