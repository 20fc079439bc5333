//! Real programs as clients: ping, arping, netcat, socat, curl, redis-cli and iperf3.

use crate::{
    apps::{Server, iperf::Iperf},
    world::{NEAR_V4, NEAR_V6, Open, World, config, open_afxdp, open_packet},
};
use laneway_afxdp::AfXdp;
use laneway_core::{
    App, Close, Counters, Datagram, DatagramApp, DatagramOut, DropReason, FrameLane, Lane, PortId,
    StreamApp, Turn,
};
use laneway_engine::{Control, MonotonicClock, Stop, run_datagrams, run_streams};
use laneway_packet::PacketLane;
use laneway_spec::IdlePolicy;
use laneway_stack::{DatagramStack, HostEvents, StackConfig, StreamStack};
use laneway_testkit::skip;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Output, Stdio},
};

/// The lane below the stack, unless a test is about lanes.
const LANE: &str = "packet:mmsg=32";
/// How long a line may take on a busy machine.
const PATIENCE_S: &str = "120";
const FAR: [&str; 2] = ["10.77.0.2/24", "fd77::2/64"];

/// The world, if it can be made and every program is there.
fn world(programs: &[&str]) -> Option<World> {
    are_there(programs).then(|| World::new(&FAR).map_err(skip).ok())?
}

fn are_there(programs: &[&str]) -> bool {
    for program in programs {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .stdout(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            skip(format!("the program `{program}` is not installed"));
            return false;
        }
    }
    true
}

fn listen(port: u16) -> [SocketAddr; 2] {
    [NEAR_V4, NEAR_V6].map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
}

/// Runs shell lines at the far end, one after the other.
fn far(world: &World, lines: &[String]) -> Vec<Output> {
    let run = |line: &String| {
        let mut command = world.far.command("timeout");
        command.args([PATIENCE_S, "sh", "-c", line]).stdin(Stdio::null());
        command.output().expect("the far end runs programs")
    };
    lines.iter().map(run).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Serves an app over TCP while the far end runs `lines`.
fn serve_streams<A: StreamApp>(
    world: &World,
    port: u16,
    app: A,
    lines: &[String],
) -> (Vec<Output>, A, Counters) {
    let config = config(&listen(port));
    let (outputs, app, mut stack) =
        serve_streams_while(world, LANE, &config, app, || far(world, lines));
    (outputs, app, stack.counters(PortId(0)))
}

/// Serves an app over TCP while a client does its work.
fn serve_streams_while<A: StreamApp, T: Send>(
    world: &World,
    spec: &str,
    config: &StackConfig,
    app: A,
    client: impl FnOnce() -> T + Send,
) -> (T, A, StreamStack<PacketLane>) {
    serve_streams_on(world, (open_packet, spec), config, app, client)
}

/// The same on another lane.
fn serve_streams_on<L: FrameLane, A: StreamApp, T: Send>(
    world: &World,
    (open, spec): (Open<L>, &str),
    config: &StackConfig,
    mut app: A,
    client: impl FnOnce() -> T + Send,
) -> (T, A, StreamStack<L>) {
    let lane = world.open(open, &spec.parse().unwrap());
    let lane = lane.unwrap_or_else(|e| panic!("{e}"));
    let mut stack = StreamStack::new(lane, config).unwrap();
    let stop = Stop::new();
    let done = std::thread::scope(|scope| {
        let (stop, control) = (stop.clone(), Control::from(stop));
        let client = scope.spawn(move || {
            let done = client();
            stop.request();
            done
        });
        let ran = run_streams(&mut stack, &mut app, &MonotonicClock, IdlePolicy::Block, &control);
        ran.unwrap_or_else(|failed| panic!("{}", failed.error));
        client.join().expect("the client's thread ends")
    });
    (done, app, stack)
}

/// Sends every datagram back.
struct Echo(Counters);

impl App for Echo {
    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl DatagramApp for Echo {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            out.forward(datagram, datagram.ingress, datagram.source);
        }
    }
}

fn serve_datagrams(world: &World, lines: &[String]) -> (Vec<Output>, HostEvents, Counters) {
    let lane = world.open(open_packet, &"packet:mmsg=32".parse().unwrap());
    let lane = lane.unwrap_or_else(|e| panic!("{e}"));
    let mut stack = DatagramStack::new(lane, &config(&listen(7))).unwrap();
    let stop = Stop::new();
    let outputs = std::thread::scope(|scope| {
        let (stop, control) = (stop.clone(), Control::from(stop));
        let client = scope.spawn(move || {
            let outputs = far(world, lines);
            stop.request();
            outputs
        });
        let (clock, mut app) = (MonotonicClock, Echo(Counters::default()));
        let ran = run_datagrams(&mut stack, &mut app, &clock, IdlePolicy::Block, &control);
        ran.unwrap_or_else(|failed| panic!("{}", failed.error));
        client.join().expect("the client's thread ends")
    });
    let counters = stack.counters(PortId(0));
    (outputs, stack.events(), counters)
}

#[test]
fn ping_gets_its_answers_over_both_ip_versions() {
    let Some(world) = world(&["ping"]) else { return };
    // All three at once: ping then has seen no answer when it decides how long it waits for them.
    let lines = [
        format!("ping -c 3 -l 3 -W 30 {NEAR_V4}"),
        format!("ping -c 3 -l 3 -W 30 -s 1400 {NEAR_V4}"),
        format!("ping -6 -c 3 -l 3 -W 30 {NEAR_V6}"),
        format!("ping -6 -c 3 -l 3 -W 30 -s 1400 {NEAR_V6}"),
    ];
    let (outputs, events, _) = serve_datagrams(&world, &lines);
    for (line, output) in lines.iter().zip(&outputs) {
        assert!(output.status.success(), "{line}: {}", text(output));
        assert!(text(output).contains(" 0% packet loss"), "{line}: {}", text(output));
    }
    assert_eq!(events.echoes_answered, 12);
}

#[test]
fn arping_finds_the_address_and_no_second_owner() {
    let Some(world) = world(&["arping"]) else { return };
    let lines = [
        format!("arping -f -I far0 -w 30 {NEAR_V4}"),
        format!("arping -D -I far0 -w 30 {NEAR_V4}"),
        "arping -D -I far0 -c 1 10.77.0.99".to_owned(),
    ];
    let (outputs, ..) = serve_datagrams(&world, &lines);
    assert!(text(&outputs[0]).contains("02:4C:57:53:00:01"), "{}", text(&outputs[0]));
    // With -D the program succeeds when nothing answers.
    assert!(!outputs[1].status.success(), "a probe for duplicates is answered");
    assert!(outputs[2].status.success(), "{}", text(&outputs[2]));
}

#[test]
fn netcat_and_socat_get_their_datagrams_back() {
    let Some(world) = world(&["nc", "socat"]) else { return };
    // Each ends with its answer: netcat after one datagram, socat after as many bytes as were sent.
    let lines = [
        format!("echo from netcat | nc -u -W 1 -w 30 {NEAR_V4} 7"),
        format!("echo from netcat | nc -u -W 1 -w 30 {NEAR_V6} 7"),
        format!("echo from socat | socat -t 30 - UDP4:{NEAR_V4}:7,readbytes=11"),
        format!("echo from socat | socat -t 30 - UDP6:[{NEAR_V6}]:7,readbytes=11"),
        format!("echo unheard | socat -t 30 - UDP4:{NEAR_V4}:9"),
    ];
    let (outputs, events, counters) = serve_datagrams(&world, &lines);
    for (line, output) in lines.iter().zip(&outputs).take(4) {
        assert!(text(output).starts_with("from "), "{line}: {}", text(output));
    }
    assert!(text(&outputs[4]).contains("refused"), "{}", text(&outputs[4]));
    assert!(events.icmp_errors_sent >= 1);
    // netcat tries IPv4 ports more than once before it sends.
    assert!(counters.tx_frames >= 2 && counters.rx_frames == counters.tx_frames, "{counters:?}");
}

/// Lines that send megabytes to the echo server at the near end, and print the sums of both ways.
fn megabytes() -> [String; 3] {
    const BYTES: usize = 3 << 20;
    let source = format!("head -c {BYTES} /dev/urandom | tee /tmp/lw-stack-$$ ");
    let judge = "sha256sum; sha256sum < /tmp/lw-stack-$$; rm -f /tmp/lw-stack-$$";
    [
        format!("{source} | nc -N {NEAR_V4} 7 | {judge}"),
        format!("{source} | nc -N {NEAR_V6} 7 | {judge}"),
        format!("{source} | socat -t 30 - TCP4:{NEAR_V4}:7 | {judge}"),
    ]
}

/// What those lines printed is twice the same, and nothing was too long or wrong for the stack.
fn passed_unchanged(outputs: &[Output], app: &Server, counters: &Counters) {
    for (line, output) in megabytes().iter().zip(outputs) {
        let printed = text(output);
        let sums: Vec<&str> = printed.lines().collect();
        assert!(sums.len() == 2 && sums[0] == sums[1], "{line}: {printed}");
    }
    assert_eq!(app.closed, [Close::Peer; 3], "{counters:?}");
    for reason in [DropReason::RxTooLong, DropReason::BadChecksum, DropReason::Malformed] {
        assert_eq!(counters.drops(reason), 0, "{counters:?}");
    }
}

#[test]
fn megabytes_pass_through_tcp_unchanged() {
    let Some(world) = world(&["nc", "socat", "sha256sum"]) else { return };
    let (outputs, app, counters) = serve_streams(&world, 7, Server::echo(), &megabytes());
    passed_unchanged(&outputs, &app, &counters);
}

#[test]
fn megabytes_pass_from_a_neighbour_that_leaves_checksums_and_segments_to_a_device() {
    if !are_there(&["nc", "socat", "sha256sum"]) {
        return;
    }
    for spec in ["packet:frame=65k", "packet:mmsg=32,frame=65k", "packet:ring"] {
        let Some(world) = World::plain(&FAR).map_err(skip).ok() else { return };
        let (outputs, app, mut stack) =
            serve_streams_while(&world, spec, &config(&listen(7)), Server::echo(), || {
                far(&world, &megabytes())
            });
        let counters = stack.counters(PortId(0));
        passed_unchanged(&outputs, &app, &counters);
        let finished = stack.lane().caps(PortId(0)).facts.get("checksums_finished").cloned();
        let finished: u64 = finished.expect("some were").parse().expect("a number");
        assert!(finished > 100, "{spec}: {finished}");
        // 9 MiB are 144 frames of 64 KiB, the longest there are, and in segments of the wire more than 6,000.
        let frames = counters.rx_frames;
        assert!((144..5_000).contains(&frames), "{spec}: {frames} frames, cut by none");
    }
}

/// The program in its driver has the neighbour cut its segments (`veth_xdp_set`), and leaves checksums to it.
#[test]
fn megabytes_pass_on_afxdp_from_a_neighbour_that_leaves_checksums_to_a_device() {
    if !are_there(&["nc", "socat", "sha256sum"]) {
        return;
    }
    let Some(world) = World::plain(&FAR).map_err(skip).ok() else { return };
    let open: Open<AfXdp> = |spec| Ok(open_afxdp(spec)?.finishing_checksums());
    let client = || far(&world, &megabytes());
    let (outputs, app, mut stack) =
        serve_streams_on(&world, (open, "afxdp"), &config(&listen(7)), Server::echo(), client);
    let counters = stack.counters(PortId(0));
    passed_unchanged(&outputs, &app, &counters);
    let finished = stack.lane().caps(PortId(0)).facts.get("checksums_finished").cloned();
    let finished: u64 = finished.expect("they are counted").parse().expect("a number");
    assert!(finished > 6_000, "{finished} of {counters:?}");
}

#[test]
fn curl_fetches_a_page_again_and_again() {
    let Some(world) = world(&["curl"]) else { return };
    let lines = [
        format!("curl -s -m 60 http://{NEAR_V4}/"),
        format!("curl -s -g -m 60 'http://[{NEAR_V6}]/'"),
        format!("curl -s -m 60 'http://{NEAR_V4}/?[1-50]'"),
        format!("curl -s -m 60 http://{NEAR_V4}:81/"),
    ];
    let (outputs, app, _) = serve_streams(&world, 80, Server::http(), &lines);
    assert_eq!(text(&outputs[0]), "hello from laneway");
    assert_eq!(text(&outputs[1]), "hello from laneway");
    assert_eq!(text(&outputs[2]), "hello from laneway".repeat(50));
    assert_eq!(outputs[3].status.code(), Some(7), "a refused connection");
    assert_eq!(app.opened, 3, "one connection serves fifty requests");
}

#[test]
fn the_kernel_connects_by_syn_cookies() {
    let Some(world) = world(&["curl", "nc", "sha256sum"]) else { return };
    let mut config = config(&listen(80));
    config.tcp.half_open_max = 0;
    let pages = [
        format!("curl -s -m 60 http://{NEAR_V4}/"),
        format!("curl -s -g -m 60 'http://[{NEAR_V6}]/'"),
        format!("curl -s -m 60 -H 'Connection: close' 'http://{NEAR_V4}/?[1-50]'"),
    ];
    let client = || far(&world, &pages);
    let (outputs, app, stack) = serve_streams_while(&world, LANE, &config, Server::http(), client);
    assert_eq!(text(&outputs[0]), "hello from laneway");
    assert_eq!(text(&outputs[1]), "hello from laneway");
    assert_eq!(text(&outputs[2]), "hello from laneway".repeat(50));
    let events = stack.events();
    assert_eq!(events.syn_cookies_redeemed as usize, app.opened, "{events:?}");
    assert!(events.syn_cookies_sent >= events.syn_cookies_redeemed, "{events:?}");
    drop(stack);

    let source = "head -c 1000000 /dev/urandom | tee /tmp/lw-stack-cookie-$$ ";
    let judge = "sha256sum; sha256sum < /tmp/lw-stack-cookie-$$; rm -f /tmp/lw-stack-cookie-$$";
    let lines = [NEAR_V4, NEAR_V6].map(|ip| format!("{source} | nc -N {ip} 80 | {judge}"));
    let client = || far(&world, &lines);
    let (outputs, _, stack) = serve_streams_while(&world, LANE, &config, Server::echo(), client);
    for (line, output) in lines.iter().zip(&outputs) {
        let printed = text(output);
        let sums: Vec<&str> = printed.lines().collect();
        assert!(sums.len() == 2 && sums[0] == sums[1], "{line}: {printed}");
    }
    assert_eq!(stack.events().syn_cookies_redeemed, 2);
}

#[test]
fn buffers_grow_under_a_stream_of_the_kernel() {
    const BYTES: usize = 8 << 20;
    let pattern = || (0..BYTES as u32).map(|i| (i.wrapping_mul(31) ^ i >> 8) as u8);
    let Some(world) = world(&[]) else { return };
    for ip in [NEAR_V4, NEAR_V6] {
        let to = SocketAddr::new(ip.parse().unwrap(), 7);
        // A one is answered by the pattern, all else is used up.
        let app = Server::new(|bytes, reply| {
            if bytes[0] == 1 {
                reply.extend((0..BYTES as u32).map(|i| (i.wrapping_mul(31) ^ i >> 8) as u8));
            }
            1 + bytes[1..].iter().take_while(|byte| **byte != 1).count()
        });
        let client = || -> std::io::Result<bool> {
            let entered = world.far.enter(move || TcpStream::connect(to));
            let mut stream = entered.expect("the namespace is there")?;
            stream.write_all(&vec![0; BYTES])?;
            stream.write_all(&[1])?;
            let mut received = vec![0; BYTES];
            stream.read_exact(&mut received)?;
            Ok(received.into_iter().eq(pattern()))
        };
        let (done, _, mut stack) =
            serve_streams_while(&world, LANE, &config(&listen(7)), app, client);
        assert!(done.expect("the connection holds"), "{ip}: other bytes than were sent");
        let received = |port| stack.counters(PortId(port)).rx_bytes;
        assert_eq!([0, 1].map(received).iter().sum::<u64>(), BYTES as u64 + 1, "{ip}");
        let events = stack.events();
        assert!(events.buffers_grown > 0, "{ip}: {events:?}");
    }
}

#[test]
fn redis_cli_pings() {
    let Some(world) = world(&["redis-cli"]) else { return };
    let lines = [
        format!("redis-cli -h {NEAR_V4} PING"),
        format!("yes PING | head -n 500 | redis-cli -h {NEAR_V4} | sort | uniq -c"),
        format!("yes PING | head -n 2000 | redis-cli -h {NEAR_V4} --pipe"),
    ];
    let (outputs, ..) = serve_streams(&world, 6379, Server::resp(), &lines);
    assert_eq!(text(&outputs[0]).trim(), "PONG");
    assert_eq!(text(&outputs[1]).split_whitespace().collect::<Vec<_>>(), ["500", "PONG"]);
    // The pipe mode ends with an ECHO of its own making, whose answer it waits for.
    assert!(text(&outputs[2]).contains("errors: 0, replies: 2000"), "{}", text(&outputs[2]));
    assert!(outputs[2].status.success());
}

#[test]
fn iperf3_and_the_server_count_the_same_bytes() {
    let Some(world) = world(&["iperf3", "ping"]) else { return };
    let lines = [
        format!("iperf3 -c {NEAR_V4} -n 4M --json"),
        format!("iperf3 -c {NEAR_V6} -n 4M --json"),
        format!("iperf3 -c {NEAR_V4} -n 4M -P 4 --json"),
        format!("iperf3 -c {NEAR_V4} -n 4M -R --json"),
        // Its answer says that all before it was received, the last word of the last test included.
        format!("ping -c 1 -W 30 {NEAR_V4}"),
    ];
    let (outputs, app, counters) = serve_streams(&world, 5201, Iperf::default(), &lines);
    for (line, output) in lines.iter().zip(&outputs) {
        assert!(output.status.success(), "{line}: {}", text(output));
    }
    assert_eq!(app.tests.len(), 4);
    let sent: u64 = outputs[..3].iter().map(|o| bytes_of(&text(o), "\"sum_sent\"")).sum();
    assert!(sent >= 3 * (4 << 20) && app.received == sent, "{} of {sent} bytes", app.received);
    // In reverse the client stops when it has enough; what was on its way then is lost.
    let received = bytes_of(&text(&outputs[3]), "\"sum_received\"");
    assert!(received >= 4 << 20 && received <= app.tests[3], "{received} of {}", app.tests[3]);
    for reason in [DropReason::RxTooLong, DropReason::BadChecksum, DropReason::Malformed] {
        assert_eq!(counters.drops(reason), 0, "{counters:?}");
    }
}

/// The `bytes` of one sum in iperf3's report.
fn bytes_of(report: &str, sum: &str) -> u64 {
    let sum = &report[report.rfind(sum).expect("the report has it")..];
    let value = &sum[sum.find("\"bytes\":").expect("a sum has bytes") + 8..];
    value[..value.find(',').expect("more follows")].trim().parse().expect("a number")
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind() {
    let Some(world) = world(&["nc"]) else { return };
    let client = || {
        let mut nc = world.far.command("nc");
        nc.args([NEAR_V4, "7"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut nc = nc.spawn().expect("it was found a moment ago");
        // Its answer says that it is connected.
        let asked = nc.stdin.as_mut().expect("piped").write_all(b"hello\n");
        let mut answer = String::new();
        let answered = BufReader::new(nc.stdout.as_mut().expect("piped")).read_line(&mut answer);
        nc.kill().expect("it is our child");
        nc.wait().expect("it is our child");
        (asked.and(answered).is_ok(), answer)
    };
    let (printed, app, _) =
        serve_streams_while(&world, LANE, &config(&listen(7)), Server::echo(), client);
    assert_eq!(printed, (true, "hello\n".to_owned()));
    assert_eq!(app.opened, 1);
    assert_eq!(app.closed.len(), 1);
}
