//! What the meter costs the processes that it watches.
//!
//! At the beginning of a race [`event_ns`] measures what an event costs here. The race counts the events of each arm,
//! and so says how much of an arm's CPU time is the meter's. At worst, where every datagram has a softirq of its own:
//!
//! ```text
//! cargo test --release -p laneway-lab --lib meter::cost -- --ignored --nocapture
//! ```

use super::{Meter, Owner};
use crate::error::RaceError;
use laneway_core::Clock;
use laneway_engine::{MonotonicClock, pin_to_cpu};
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

/// Windows without the meter and with it, of which the quickest count: other programs only ever add to one.
const ROUNDS: usize = 8;
const WINDOWS: usize = 4;
/// Datagrams of a window: some 2 ms.
const DATAGRAMS: u64 = 500;
/// As whose this process is metered meanwhile.
const WEIGHED: Owner = Owner::Arm(0);
/// Events of a datagram below which nothing is known: it crosses loopback in a softirq, entry, poll and exit.
const EVENTS_MIN: f64 = 2.0;

/// What an event of the meter costs on this machine, ns: datagrams to ourselves over loopback, each with a softirq of
/// its own, with the meter and without. `None` where nothing can be sent there, or where what is measured is no cost.
///
/// # Errors
/// As for [`Meter::attach`].
pub(super) fn event_ns() -> Result<Option<f64>, RaceError> {
    // On a thread of its own, so that this one stays where it may run.
    thread::scope(|scope| scope.spawn(weigh).join()).unwrap_or(Ok(None))
}

fn weigh() -> Result<Option<f64>, RaceError> {
    let Some(socket) = to_itself() else { return Ok(None) };
    // Where it is not allowed, events of two CPUs are counted together; the cost of each is the same.
    let _ = pin_to_cpu(0);
    let (mut without_ns, mut with_ns, mut events) = (u64::MAX, u64::MAX, 0);
    for _ in 0..ROUNDS {
        for _ in 0..WINDOWS {
            without_ns = without_ns.min(window(&socket).unwrap_or(u64::MAX));
        }
        let meter = Meter::attach()?;
        meter.classify(std::process::id(), WEIGHED)?;
        // It is an arm's from its next switch.
        thread::sleep(Duration::from_millis(1));
        let start = meter.read()?;
        for _ in 0..WINDOWS {
            with_ns = with_ns.min(window(&socket).unwrap_or(u64::MAX));
        }
        events += meter.read()?.since(&start).own_events(WEIGHED);
    }
    let datagrams = DATAGRAMS * (ROUNDS * WINDOWS) as u64;
    let per_datagram = events as f64 / datagrams as f64;
    let more_ns = with_ns.saturating_sub(without_ns) as f64 / DATAGRAMS as f64;
    let known = with_ns < u64::MAX && more_ns > 0.0 && per_datagram >= EVENTS_MIN;
    Ok(known.then(|| more_ns / per_datagram))
}

/// A socket that receives what it sends.
fn to_itself() -> Option<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect(socket.local_addr().ok()?).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// How long a window took, ns; `None` where a datagram did not arrive in the softirq that sending it raised.
fn window(socket: &UdpSocket) -> Option<u64> {
    let mut bytes = [0; 64];
    let start_ns = MonotonicClock.now_ns();
    for _ in 0..DATAGRAMS {
        socket.send(&[0; 32]).ok()?;
        socket.recv(&mut bytes).ok()?;
    }
    Some(MonotonicClock.now_ns() - start_ns)
}

#[cfg(test)]
mod tests {
    //! A UDP server on CPU 0 answers a client on CPU 1 over the loopback interface, 32 datagrams under way, so that
    //! softirqs and switches, where the meter's programs run, are as frequent per datagram as they get. Windows with
    //! the meter and without alternate in pairs, in random order; compared is how many round trips a window has.

    use super::*;
    use crate::permitted::permitted;
    use laneway_stats::{BlockOrder, quantile};
    use laneway_testkit::skip;
    use std::time::Instant;

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
        if permitted(Meter::attach()).is_none() {
            return;
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
                let meter =
                    (arm == 1).then(|| Meter::attach().expect("it could be attached before"));
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

    #[test]
    fn an_event_costs_something_and_less_than_a_datagram() {
        match permitted(event_ns()) {
            None => {}
            Some(None) => skip("nothing can be weighed on loopback here"),
            Some(Some(ns)) => assert!((1.0..10_000.0).contains(&ns), "{ns} ns"),
        }
    }
}
