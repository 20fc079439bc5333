//! What the meter costs those whom it watches.
//!
//! ```text
//! cargo test --release -p laneway-lab --lib meter::cost -- --ignored --nocapture
//! ```
//!
//! A UDP server on CPU 0 answers a client on CPU 1 over the loopback interface, 32 datagrams under way, so that
//! softirqs and switches, where the meter's programs run, are as frequent per datagram as they get. Windows with the
//! meter and without alternate in pairs, in random order; compared is how many round trips a window has.

use super::Meter;
use laneway_engine::pin_to_cpu;
use laneway_stats::{BlockOrder, quantile};
use laneway_testkit::skip;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

const PAIRS: usize = 300;
const WINDOW: Duration = Duration::from_millis(100);
const UNDER_WAY: usize = 32;
/// The last datagram of all.
const END: &[u8] = b"end";

fn echo(server: &UdpSocket) {
    let mut bytes = [0; 64];
    pin_to_cpu(0).expect("CPU 0 is there");
    while let Ok((length, sender)) = server.recv_from(&mut bytes) {
        if &bytes[..length] == END {
            return;
        }
        server.send_to(&bytes[..length], sender).expect("the client is there");
    }
}

/// Round trips of a window.
fn round_trips(client: &UdpSocket) -> u32 {
    let mut bytes = [0; 64];
    for _ in 0..UNDER_WAY {
        client.send(&[0; 32]).expect("the server is there");
    }
    let (began, mut trips) = (Instant::now(), 0);
    while began.elapsed() < WINDOW {
        client.recv(&mut bytes).expect("loopback loses none of so few");
        client.send(&[0; 32]).expect("the server is there");
        trips += 1;
    }
    for _ in 0..UNDER_WAY {
        client.recv(&mut bytes).expect("loopback loses none of so few");
    }
    trips
}

#[test]
#[ignore = "long: a minute, part of `make bench`"]
fn throughput_with_the_meter_over_that_without() {
    if let Err(why) = Meter::attach() {
        return skip(why);
    }
    let server = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    client.connect(server.local_addr().expect("it is bound")).expect("loopback is up");
    let serving = thread::spawn(move || echo(&server));
    pin_to_cpu(1).expect("CPU 1 is there");
    round_trips(&client);
    let order = BlockOrder::new(2, PAIRS, 7).expect("two arms");
    let mut ratios = Vec::new();
    for pair in order.blocks() {
        let mut trips = [0.0; 2];
        for &arm in pair {
            let meter = (arm == 1).then(|| Meter::attach().expect("it could be attached before"));
            trips[arm] = f64::from(round_trips(&client));
            drop(meter);
        }
        ratios.push(trips[1] / trips[0]);
    }
    client.send(END).expect("the server is there");
    serving.join().expect("the server ends when it is asked to");
    // The interval of the median by the sign test: 1.96 deviations of a fair coin.
    let half = 0.98 / (PAIRS as f64).sqrt();
    let [low, median, high] =
        [0.5 - half, 0.5, 0.5 + half].map(|share| quantile(&ratios, share).expect("ratios"));
    eprintln!(
        "throughput with the meter over that without: {median:.4} ({low:.4} to {high:.4}), {PAIRS} pairs of windows of {WINDOW:?}"
    );
}
