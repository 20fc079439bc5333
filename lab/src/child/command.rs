//! An arm that is any program, by its command line: started, seen to be ready, asked for what it prints,
//! and ended here.
//!
//! ```text
//!   start ─▶ ready: it listens at its address, or has lived for a while on its interface
//!         ─▶ asked: what is to send datagrams back gets some, and they must come back as they went; what is to
//!            answer over connections is asked over three
//!         ─▶ raced: counted at the far end, or by the counter that it prints
//! ```
//!
//! What the program does wrong ends the arm with a sentence and the end of its output. Its processes are given to
//! the race, whose meter books their time as the arm's. What it does not tell (latency, which packets it got) stays
//! empty. It is alone in its namespaces, so every listener there is its own.

mod output;
mod probe;
mod program;
mod sockets;

use super::borrowed_address::BorrowedAddress;
use super::forwarders::is_attached;
use super::{memory, pipe};
use crate::command::{CommandLine, Site, Task, find};
use crate::leftovers::NO_PINGS;
use crate::plan::{ArmReport, ArmSetup, Order, Ready, Reply, Shape};
use crate::result::Memory;
use crate::segment::SegmentSeen;
use laneway_core::{CapsReport, Counters};
use laneway_engine::{pin_to_cpu, usable_cpus};
use laneway_kinds::AppFacts;
use program::Program;
use sockets::{Listener, Transport, has_raw_socket, listeners};
use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(10);
/// Between two looks at one that is not ready; where XDP programs are looked for, which takes a program, too.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_FOR_XDP: Duration = Duration::from_millis(100);
/// Looks whether a program has ended whose connection did.
const ENDED_LOOKS: usize = 15;
/// How long a program that was given an interface is left alone: once something of it is seen, and if nothing is. It
/// may work by means that cannot be seen.
const SETTLE_SEEN: Duration = Duration::from_millis(150);
const SETTLE_UNSEEN: Duration = Duration::from_secs(2);
/// How long the next line with a counter is waited for.
const COUNTER_MAX: Duration = Duration::from_millis(1_500);
/// Payload that a program is asked with where the traffic has none of its own.
const PAYLOAD_BYTES: u16 = 64;

/// Is the program's keeper until asked to stop.
///
/// # Errors
/// A sentence on what the program did wrong.
pub(super) fn obey(setup: &ArmSetup, app: &AppFacts) -> Result<(), String> {
    let mut kept = Kept::start(setup, app, READY_MAX)?;
    pipe::reply(&Reply::Ready(kept.ready.clone()));
    loop {
        match pipe::order() {
            Order::Stop => return Ok(()),
            Order::Segment(plan) => kept.expect(plan.segment),
            Order::Ask(_) => {}
            Order::Report => pipe::reply(&Reply::Report(Box::new(kept.report()?))),
        }
    }
}

/// A program that is ready; it is ended, and what it borrowed taken back, when this is dropped.
struct Kept<'a> {
    /// Declared first: it ends before its address goes.
    program: Program,
    /// What it received is known from its counter, and from nothing else.
    is_asked: bool,
    /// The one CPU that it may use.
    cpu: usize,
    ready: Ready,
    /// What it had in memory when that was last looked at.
    memory: Memory,
    /// The last segment that was announced.
    segment: Option<SegmentSeen>,
    /// Its counter when the last segment was announced.
    before: u64,
    /// Nothing was sent since: its counter is unchanged.
    is_fresh: bool,
    _answering: Vec<(BorrowedAddress<'a>, Option<Silenced>)>,
}

impl<'a> Kept<'a> {
    /// Starts the program of `setup` and waits until it is ready, for at most `patience`.
    fn start(setup: &'a ArmSetup, app: &AppFacts, patience: Duration) -> Result<Kept<'a>, String> {
        let task = Task::of(app);
        let line = CommandLine::read(&setup.lane, app)?;
        let address = *setup.addresses.first().ok_or("it has no address")?;
        let site = Site {
            address,
            onward: setup.onward,
            interfaces: &setup.interfaces,
            fanout: setup.fanout.map(|plan| plan.fanout),
            cpu: setup.cpu,
        };
        let words = line.fill(&site);
        find(words.first().ok_or("it has no program")?)?;
        let answering = match task {
            Task::Answer => vec![answering(&setup.interfaces, address)?],
            // What is asked over connections goes to the same address, which no interface has.
            Task::Serve => vec![(borrowed(&setup.interfaces, address)?, None)],
            _ => Vec::new(),
        };
        let readers = readers(usable_cpus().map_err(|error| error.to_string())?, setup.cpu);
        // What we do for it when we are asked is done beside it, and not on the generator's CPU.
        pin_to_cpu(setup.cpu).map_err(|error| error.to_string())?;
        let is_asked = task == Task::Receive && setup.counts;
        let program = Program::start(&words, is_asked, &readers)?;
        let mut starting = Starting {
            program,
            line: &line,
            task,
            counts: setup.counts,
            address,
            patience,
            interfaces: &setup.interfaces,
        };
        let mut facts = vec![starting.settled()?];
        facts.extend(starting.asked(setup)?);
        let program = starting.program;
        program.check_cpu(setup.cpu)?;
        let mut caps = CapsReport::default();
        let shown = shlex::try_join(words.iter().map(String::as_str));
        caps.fact("program", shown.unwrap_or_else(|_| words.join(" ")));
        caps.fact("ready", facts.join("; "));
        let shape = if line.listens() { Shape::Datagrams } else { Shape::Frames };
        let ready = Ready { caps, shape, processes: program.processes() };
        Ok(Kept {
            before: program.output.counter().unwrap_or(0),
            memory: memory_of(&program.own(), &ready.caps),
            program,
            is_asked,
            cpu: setup.cpu,
            ready,
            segment: None,
            is_fresh: false,
            _answering: answering,
        })
    }

    /// A segment is coming.
    fn expect(&mut self, segment: u8) {
        self.before = self.program.output.counter().unwrap_or(0);
        self.is_fresh = true;
        self.segment = Some(SegmentSeen { segment, ..SegmentSeen::default() });
    }

    /// Its state.
    fn report(&mut self) -> Result<ArmReport, String> {
        self.program.check()?;
        self.program.check_cpu(self.cpu)?;
        let is_fresh = std::mem::take(&mut self.is_fresh);
        if !is_fresh {
            // To divide many shared pages takes time, which there is not in front of a segment that was announced.
            self.memory = memory_of(&self.program.own(), &self.ready.caps);
        }
        let mut lane = Counters::default();
        if self.is_asked {
            lane.rx_frames = self.counter(is_fresh)?;
            if let Some(segment) = &mut self.segment {
                segment.delivered = lane.rx_frames - self.before;
            }
        }
        Ok(ArmReport {
            segment: self.segment.clone(),
            records: lane.rx_frames,
            memory: self.memory.clone(),
            lane,
            ..ArmReport::default()
        })
    }

    /// What it has received by now: by the next line that says so, unless nothing can have come since the last.
    fn counter(&self, is_fresh: bool) -> Result<u64, String> {
        let output = &self.program.output;
        let counter = if is_fresh { output.counter() } else { output.next_counter(COUNTER_MAX) };
        match counter.unwrap_or(0) {
            now if now < self.before => Err(format!(
                "its counter fell from {} to {now}; print how much was received since the start",
                self.before
            )),
            now => Ok(now),
        }
    }
}

/// A program that is not ready yet.
struct Starting<'a> {
    program: Program,
    line: &'a CommandLine,
    task: Task,
    /// One that receives says how much.
    counts: bool,
    address: SocketAddrV4,
    /// Those that are its own.
    interfaces: &'a [String],
    patience: Duration,
}

impl Starting<'_> {
    /// Waits until it listens, or has settled on its interface, and says which.
    fn settled(&mut self) -> Result<String, String> {
        let listens = self.line.listens();
        let settles = !listens || self.line.is_given_interface();
        let began = Instant::now();
        let mut seen: Option<Instant> = None;
        loop {
            self.program.check()?;
            let heard = listeners().into_iter().find(|listener| self.is_heard_by(listener));
            if let Some(listener) = heard.filter(|_| listens) {
                return Ok(format!("it listens on {listener}"));
            }
            if !settles {
                if began.elapsed() > self.patience {
                    return Err(self.deaf());
                }
            } else if seen.is_some_and(|since| since.elapsed() > SETTLE_SEEN) {
                return Ok("it has a socket or an XDP program on its interface".to_owned());
            } else if began.elapsed() > SETTLE_UNSEEN.min(self.patience) {
                return Ok(
                    "it was given time; no socket and no XDP program of it was seen".to_owned()
                );
            } else if seen.is_none() && self.is_seen() {
                seen = Some(Instant::now());
            }
            thread::sleep(if settles { LOOK_FOR_XDP } else { LOOK });
        }
    }

    /// Whether what it will be sent comes to this listener.
    fn is_heard_by(&self, listener: &Listener) -> bool {
        listener.hears(self.transport(), self.address)
    }

    /// What carries what it will be sent.
    fn transport(&self) -> Transport {
        if self.task == Task::Serve { Transport::Tcp } else { Transport::Udp }
    }

    /// Whether something of it works on frames.
    fn is_seen(&self) -> bool {
        has_raw_socket() || self.interfaces.iter().any(|interface| is_attached(interface))
    }

    /// What to say of one that does not listen where it should.
    fn deaf(&self) -> String {
        let opened: Vec<String> = listeners().iter().map(Listener::to_string).collect();
        let instead = match opened.as_slice() {
            [] => "on nothing at all".to_owned(),
            _ => format!("on {}", opened.join(", ")),
        };
        format!(
            "it did not listen on {} {} within {:.0} s, but {instead}; its address is `{{address}}`, its port \
             `{{port}}`; {}",
            self.transport(),
            self.address,
            self.patience.as_secs_f64(),
            self.program.output.last_words()
        )
    }

    /// Tries what can be tried before the race, and says what was.
    fn asked(&mut self, setup: &ArmSetup) -> Result<Option<String>, String> {
        let payload_bytes = setup.payload_bytes.unwrap_or(PAYLOAD_BYTES);
        let listens = listeners().iter().any(|listener| self.is_heard_by(listener));
        match (self.task, &setup.client) {
            (Task::Serve, Some(client)) if listens => {
                let asked = probe::converse(client);
                // The end of a program is heard of behind that of its connections, and says more.
                let looks = if asked.is_err() { ENDED_LOOKS } else { 0 };
                for _ in 0..looks {
                    self.program.check()?;
                    thread::sleep(LOOK);
                }
                self.program.check()?;
                asked.map(Some).map_err(|why| self.complaint(why))
            }
            (Task::SendBack, _) if listens => {
                let asked = probe::ask(self.address, payload_bytes);
                self.program.check()?;
                match asked {
                    Ok(()) => Ok(Some(format!(
                        "datagrams of {payload_bytes} bytes were returned unchanged"
                    ))),
                    // Bound to its interface, it hears no sender on this host.
                    Err(_) if self.line.is_given_interface() => Ok(None),
                    Err(why) => Err(self.complaint(why)),
                }
            }
            (Task::Receive, _) if !self.counts => {
                Ok(Some("it prints no counter: delivered is unknown".to_owned()))
            }
            (Task::Receive, _) => self.counter_seen().map(Some),
            _ => Ok(None),
        }
    }

    /// What to say of one that does not answer as it should.
    fn complaint(&self, why: String) -> String {
        let why = self.by_ipv6_alone().unwrap_or(why);
        format!("{why}; {}", self.program.output.last_words())
    }

    /// That it listens for IPv6 alone, if so: the kernel's table does not show it.
    fn by_ipv6_alone(&self) -> Option<String> {
        let listeners = listeners().into_iter().filter(|it| self.is_heard_by(it));
        let listeners: Vec<SocketAddr> = listeners.map(|listener| listener.at).collect();
        let at = listeners.first().filter(|_| listeners.iter().all(SocketAddr::is_ipv6))?;
        probe::is_refused(self.transport(), self.address)
            .then(|| format!("it listens on {at} for IPv6 alone; it is asked over IPv4"))
    }

    /// Waits for its first counter: without one what it received is not known.
    fn counter_seen(&mut self) -> Result<String, String> {
        let began = Instant::now();
        while self.program.output.counter().is_none() {
            self.program.check()?;
            if began.elapsed() > self.patience {
                return Err(format!(
                    "it printed no counter within {:.0} s, and nothing else tells what a program received that sends \
                     nothing: print lines with `received=N`, N counted since the start, at once and then ten times \
                     a second or so, and flush each, because what goes into a pipe is held back; or race it for its CPU time \
                     alone, as one that does not count (`counts = false`, --arm-uncounted); {}",
                    self.patience.as_secs_f64(),
                    self.program.output.last_words()
                ));
            }
            thread::sleep(LOOK);
        }
        Ok("delivered is the counter that it prints".to_owned())
    }
}

/// CPUs on which what a program prints is read: any but its own. Where only one more is left, the generator's, it is
/// wherever there is time, since a program whose output is not read stands still.
fn readers(usable: Vec<usize>, own: usize) -> Vec<usize> {
    let others: Vec<usize> = usable.iter().copied().filter(|cpu| *cpu != own).collect();
    if others.len() > 1 { others } else { usable }
}

/// The memory of all its processes; what they share is counted once.
fn memory_of(processes: &[u32], caps: &CapsReport) -> Memory {
    let each = processes.iter().map(|id| memory::part_of_process(&id.to_string(), caps));
    each.fold(Memory::default(), |sum, memory| Memory {
        rss_bytes: sum.rss_bytes + memory.rss_bytes,
        locked_bytes: sum.locked_bytes + memory.locked_bytes,
        huge_bytes: sum.huge_bytes + memory.huge_bytes,
        ..sum
    })
}

/// Gives the interface the address whose pings the program answers, and keeps the kernel from answering them.
fn answering(
    interfaces: &[String],
    at: SocketAddrV4,
) -> Result<(BorrowedAddress<'_>, Option<Silenced>), String> {
    Ok((borrowed(interfaces, at)?, Some(Silenced::new()?)))
}

/// Gives the interface the address that the program answers at.
fn borrowed(interfaces: &[String], at: SocketAddrV4) -> Result<BorrowedAddress<'_>, String> {
    BorrowedAddress::new(interfaces.first().ok_or("it has no interface")?, *at.ip())
}

/// The kernel answers no pings until this is dropped.
struct Silenced {
    before: String,
}

impl Silenced {
    fn new() -> Result<Silenced, String> {
        let failed =
            |error| format!("cannot keep the kernel from answering pings, by {NO_PINGS}: {error}");
        let before = fs::read_to_string(NO_PINGS).map_err(failed)?;
        fs::write(NO_PINGS, "1").map_err(failed)?;
        Ok(Silenced { before })
    }
}

impl Drop for Silenced {
    fn drop(&mut self) {
        // The namespace goes at the end of the race, whatever comes of this.
        let _ = fs::write(NO_PINGS, self.before.trim_end());
    }
}

#[cfg(test)]
mod tests;
