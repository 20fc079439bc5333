//! `laneway run APP --metrics ADDR`: what is shown while it runs, read as Prometheus reads it, against the account at
//! the end.

use crate::live::{Running, world};
use crate::output::laneway;
use laneway_netns::Topology;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Datagrams of a test.
const DATAGRAMS: u64 = 40;

/// Says it and gives the answer.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = client.write_all(request);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The page's samples.
fn read(address: SocketAddr) -> BTreeMap<String, f64> {
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: laneway\r\n\r\n");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{head}"
    );
    by_promtool(page);
    strictly(page)
}

/// Prometheus' own opinion, where it is installed.
fn by_promtool(page: &str) {
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut tool) = tool.spawn() else { return };
    tool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b':')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

/// Labels between their braces, each a name and a quoted text.
fn labels(text: &str) -> usize {
    let (mut rest, mut count) = (text, 0);
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        assert!(is_name(name) && !name.contains(':'), "{text}");
        let mut escaped = false;
        let end = value.char_indices().find(|(_, c)| {
            let is_end = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        let (end, _) = end.unwrap_or_else(|| panic!("{text}"));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
        count += 1;
    }
    count
}

/// Reads text format 0.0.4 as it is written down, and no more leniently.
fn strictly(page: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut seen, mut current) = (BTreeMap::new(), BTreeSet::new(), ("", ""));
    let mut lines = page.strip_suffix('\n').expect("the last line ends").split('\n');
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a text");
            assert!(is_name(name) && !text.is_empty() && seen.insert(name), "once: {line}");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
            let kind = kind.filter(|(of, _)| *of == name).expect("TYPE follows HELP").1;
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            current = (name, kind);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().unwrap();
        let family = match current.1 {
            "histogram" => {
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end))
            }
            _ => Some(name),
        };
        assert_eq!(family, Some(current.0), "its family is above it: {line}");
        if let Some((_, inner)) = series.split_once('{') {
            assert!(labels(inner.strip_suffix('}').expect("closed")) > 0, "{line}");
        }
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value >= 0.0, "{line}");
        assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {series}");
    }
    samples
}

/// The sum over all series of a family.
fn sum(page: &BTreeMap<String, f64>, family: &str) -> u64 {
    let of = |series: &&String| series.split('{').next() == Some(family);
    page.keys().filter(of).map(|series| page[series]).sum::<f64>() as u64
}

/// A figure of the account.
fn figure(printed: &str, name: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.trim().strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no `{name}` in {printed}"));
    let number = line.split_whitespace().next().unwrap_or_else(|| panic!("{line}"));
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("{line}"))
}

/// Asks so many times and has every answer.
fn echoed(world: &Topology, to: SocketAddr) {
    let asked = || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 64];
        for i in 0..DATAGRAMS {
            socket.send_to(&i.to_be_bytes(), to).unwrap();
            let (bytes, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!((&answer[..bytes], from), (&i.to_be_bytes()[..], to));
        }
    };
    world.generator.namespace.enter(asked).unwrap();
}

#[test]
fn figures_shown_while_it_runs_are_those_of_the_account_and_hostile_readers_do_no_harm() {
    let Some(world) = world() else { return };
    for spec in ["socket:batch=8", "uring"] {
        let words =
            ["echo", "--lane", spec, "--udp", "--listen", "10.77.0.2:7777", "--metrics", "0"];
        let mut running = Running::app(&world, &words);
        running.await_line("echoing datagrams");
        running.await_line("limits: ");
        let line = running.await_line("metrics at http://127.0.0.1:");
        let address = line.trim().strip_prefix("metrics at http://").unwrap();
        let address: SocketAddr = address.strip_suffix("/metrics").unwrap().parse().unwrap();

        // One that never ends, one that is none, and some that take their time, while it works.
        let here = &world.sut.namespace;
        let slow: Vec<TcpStream> = here
            .enter(|| {
                let endless = ask(address, &b"GET /metrics HTTP/1.1\r\nx: y\r\n".repeat(10_000));
                assert!(endless.is_empty() || endless.starts_with("HTTP/1.1 431 "), "{endless}");
                let binary = ask(address, b"\x16\x03\x01\x00\xff\x00\r\n\r\n");
                assert!(binary.starts_with("HTTP/1.1 400 "), "{binary}");
                let connect = || TcpStream::connect(address).unwrap();
                (0..3).map(|_| connect()).collect()
            })
            .unwrap();
        echoed(&world, "10.77.0.2:7777".parse().unwrap());

        // What a worker says is up to a tick old.
        let since = Instant::now();
        let page = loop {
            let page = here.enter(|| read(address)).unwrap();
            if sum(&page, "laneway_port_tx_frames_total") >= DATAGRAMS {
                break page;
            }
            assert!(since.elapsed() < PATIENCE, "{page:#?}");
            thread::yield_now();
        };
        running.signal(Signal::INT);
        let output = running.end().done();
        drop(slow);

        assert_eq!(figure(&output.err, "datagrams seen"), DATAGRAMS, "{}", output.err);
        for family in ["port_rx_frames", "port_tx_frames", "app_rx_frames"] {
            let shown = sum(&page, &format!("laneway_{family}_total"));
            assert_eq!(shown, DATAGRAMS, "{spec}: {family} in {page:#?}");
        }
        assert_eq!(sum(&page, "laneway_port_rx_bytes_total"), 8 * DATAGRAMS);
        assert_eq!(sum(&page, "laneway_drops_total"), 0, "{page:#?}");
        let run = page.keys().find(|series| series.starts_with("laneway_run_info{")).unwrap();
        assert!(run.contains("app=\"echo\"") && run.contains(&format!("lane=\"{spec}\"")), "{run}");
        let port = "worker=\"0\",port=\"0\",place=\"at 10.77.0.2:7777\"";
        assert!(page.contains_key(&format!("laneway_port_rx_frames_total{{{port}}}")), "{page:#?}");
        assert_eq!(page["laneway_workers{heard=\"yes\"}"], 1.0);
    }
}

#[test]
fn an_address_that_cannot_be_is_refused_before_anything_is_opened() {
    let run = |metrics: &[&str]| {
        let words = ["run", "echo", "--lane", "socket", "--udp", "--listen", "127.0.0.1:0"];
        laneway([&words[..], metrics].concat())
    };
    let anywhere = ["--metrics-anywhere", "127.0.0.1:9100"];
    run(&["--metrics", "0.0.0.0:9100"]).refused(2, &[&["0.0.0.0:9100"], &anywhere[..]].concat());
    run(&["--metrics", "192.0.2.1:9100", "--metrics-anywhere"])
        .refused(2, &["192.0.2.1:9100", "free port"]);
    run(&["--metrics", "here"]).refused(2, &["here", "127.0.0.1:9100"]);
    run(&["--metrics-anywhere"]).refused(2, &["--metrics"]);
}
