//! `dpdk-testpmd`, the test program of DPDK, as a peer: started with one virtual device per port,
//! asked for its port statistics on standard input, asked to quit at the end.
//!
//! ```text
//!   count ─▶ forward mode rxonly     bounce ─▶ macswap     across ─▶ io (port 0 to port 1)
//!   echo ─▶ icmpecho                 forward ─▶ io, mac, macswap or 5tswap, as the scenario says
//! ```
//!
//! Its device is a text like a lane spec: `net_tap:burst=32,mbcache=512`. Some words are options of the
//! program ([`OPTIONS`]), the others go to the device.
//!
//! Assumes the program in PATH, `setpriv` (util-linux), which has the kernel kill it when this
//! process dies, however, and `stdbuf` (coreutils). Memory lies in huge pages where enough are free, else in ordinary
//! ones (`--no-huge`); which, is a fact of the report. It polls, so its CPU is full at any load.

use crate::program_end::end;
use laneway_core::{CapsReport, Counters, DropReason};
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The program.
const PROGRAM: &str = "dpdk-testpmd";
/// Virtual devices that can be raced: those that sit on an interface.
pub(crate) const DEVICES: [&str; 2] = ["net_af_xdp", "net_af_packet"];
/// The one that makes its interfaces itself. Generator and far end are configured for it.
const TAP: &str = "net_tap";
/// The mode that sends nothing.
const RECEIVES_ONLY: &str = "rxonly";

/// Whether `lane`, a device with its arguments, is that one.
pub(crate) fn is_tap(lane: &str) -> bool {
    lane.split(':').next() == Some(TAP)
}
/// Words of a device text that are options of the program: name, option, and least and most.
const OPTIONS: [(&str, &str, u32, u32); 5] = [
    ("burst", "--burst", 1, 512),
    ("rxq", "--rxq", 1, 16),
    ("txq", "--txq", 1, 16),
    ("mbcache", "--mbcache", 0, 512),
    ("mempool", "--total-num-mbufs", 1_024, 1 << 20),
];
/// What it prints when it waits for a command.
const PROMPT: &str = "testpmd> ";
/// Ends the statistics of forwarding, over all ports.
const FORWARD_END: &str = "Accumulated forward statistics for all ports";
/// Ends the statistics of a port.
const PORT_END: &str = "Tx-bps:";
/// Memory it is given, MiB.
const MEMORY_MIB: u64 = 192;
/// Packet buffers; of 2176 bytes each.
const BUFFERS: u32 = 32_768;
/// Frames per burst: ours.
const BURST_FRAMES: u32 = laneway_core::BURST_FRAMES_DEFAULT as u32;
/// How long it may take to start, and to answer.
const START_MAX: Duration = Duration::from_secs(25);
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Characters of its output that are kept for an error.
const TAIL_CHARS: usize = 400;

/// A device text, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The driver's name.
    pub(crate) driver: String,
    /// The arguments of the device, as DPDK reads them.
    arguments: Vec<String>,
    /// The options of the program beyond our own choice, one by one.
    options: Vec<(&'static str, u32)>,
}

impl Device {
    /// Reads `net_tap:burst=32,persist`.
    ///
    /// # Errors
    /// A sentence: a number that is none, or beyond its limits.
    pub(crate) fn read(text: &str) -> Result<Device, String> {
        let (driver, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut device =
            Device { driver: driver.to_owned(), arguments: Vec::new(), options: Vec::new() };
        for word in rest.split(',').filter(|word| !word.is_empty()) {
            let (name, number) = word.split_once('=').unwrap_or((word, ""));
            let Some(&(_, option, least, most)) = OPTIONS.iter().find(|known| known.0 == name)
            else {
                device.arguments.push(word.to_owned());
                continue;
            };
            match number.parse() {
                Ok(number) if (least..=most).contains(&number) => {
                    device.options.push((option, number));
                }
                _ => return Err(format!("{name}= of {PROGRAM} is {least} to {most}")),
            }
        }
        Ok(device)
    }

    fn option(&self, option: &str) -> Option<u32> {
        self.options.iter().rev().find(|(name, _)| *name == option).map(|(_, number)| *number)
    }
}

/// The running program; ended when this is dropped.
pub(crate) struct Testpmd {
    child: Child,
    commands: ChildStdin,
    output: Receiver<Vec<u8>>,
    interfaces: Vec<String>,
    /// Whether it sends, and so may fail to.
    sends: bool,
    /// Where it makes a folder of its own, whether it needs one or not; removed with it.
    runtime: PathBuf,
    caps: CapsReport,
}

impl Testpmd {
    /// Starts it on `interfaces` with device `device` (`net_af_xdp`, or with arguments
    /// `net_af_packet:qdisc_bypass=1`), forwarding in `mode` on `cpu`. It gets none of the app's arguments: flow rules
    /// are ours.
    ///
    /// # Errors
    /// A sentence: it is not installed, it does not start, or it says why it cannot.
    pub(crate) fn start(
        mode: &str,
        device: &str,
        interfaces: &[String],
        cpu: usize,
    ) -> Result<Testpmd, String> {
        if !is_installed() {
            return Err(format!("{PROGRAM} is not installed; try `apt install dpdk-dev`"));
        }
        let read = Device::read(device)?;
        let huge = huge_pages_free_mib() >= MEMORY_MIB;
        let arguments = arguments(mode, &read, interfaces, cpu, huge);
        let runtime = std::env::temp_dir().join(format!("laneway-testpmd-{}", std::process::id()));
        fs::create_dir_all(&runtime)
            .map_err(|e| format!("cannot make {}: {e}; set TMPDIR", runtime.display()))?;
        let mut child = Command::new("setpriv")
            // It prints by stdio, which holds back what goes into a pipe.
            .args(["--pdeathsig", "KILL", "--", "stdbuf", "--output=L", PROGRAM])
            .args(&arguments)
            .env("RUNTIME_DIRECTORY", &runtime)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| {
                let _ = fs::remove_dir_all(&runtime);
                format!("cannot start setpriv (package util-linux): {e}")
            })?;
        let commands = child.stdin.take().expect("it was asked for");
        let (send, output) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|o| Box::new(o) as Box<dyn Read + Send>),
            child.stderr.take().map(|o| Box::new(o) as Box<dyn Read + Send>),
        ];
        for mut from in outputs.into_iter().flatten() {
            let send = send.clone();
            // Ends with the program's output.
            thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut chunk) {
                    if send.send(chunk[..n].to_vec()).is_err() {
                        return;
                    }
                }
            });
        }
        let mut caps = CapsReport::default();
        caps.fact("program", PROGRAM);
        caps.fact("device", device);
        caps.fact("forward_mode", mode);
        caps.fact("burst_frames", read.option("--burst").unwrap_or(BURST_FRAMES));
        for (option, number) in &read.options {
            caps.fact(option.trim_start_matches('-'), number);
        }
        caps.fact("memory", if huge { "huge pages" } else { "ordinary pages (--no-huge)" });
        let interfaces = interfaces.to_vec();
        let sends = mode != RECEIVES_ONLY;
        let mut program = Testpmd { child, commands, output, interfaces, sends, runtime, caps };
        let greeting = program.hear(START_MAX, |output| output.contains(PROMPT))?;
        if let Some(version) = greeting.split("RTE Version: '").nth(1) {
            let version = version.split('\'').next().unwrap_or_default();
            program.caps.fact("version", version);
        }
        program.ask("start", ANSWER_MAX, |output| output.contains(PROMPT))?;
        Ok(program)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it was started with.
    pub(crate) fn caps(&self) -> CapsReport {
        self.caps.clone()
    }

    /// Its port statistics, summed over ports, and what it received and could not send. Some of what
    /// it says it missed is also counted by the interface; the keeper of a ledger has to know.
    ///
    /// # Errors
    /// When it does not answer, or not what was asked.
    pub(crate) fn counters(&mut self) -> Result<Counters, String> {
        let ports = self.interfaces.len();
        let output = self.ask("show port stats all", ANSWER_MAX, |output| {
            output.matches(PORT_END).count() >= ports
                && output.rfind(PROMPT) > output.rfind(PORT_END)
        })?;
        let none = |output: &str| format!("{PROGRAM} gave no statistics: {}", tail(output));
        let mut counters = parse(&output, ports).ok_or_else(|| none(&output))?;
        if self.sends {
            let output = self.ask("show fwd stats all", ANSWER_MAX, |output| {
                output.rfind(PROMPT) > output.rfind(FORWARD_END) && output.contains(FORWARD_END)
            })?;
            let unsent = unsent(&output).ok_or_else(|| none(&output))?;
            counters.set_drops(DropReason::TxRefused, unsent);
        }
        Ok(counters)
    }

    fn ask(
        &mut self,
        command: &str,
        patience: Duration,
        is_whole: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        // What it printed unasked, since.
        while self.output.try_recv().is_ok() {}
        writeln!(self.commands, "{command}")
            .and_then(|()| self.commands.flush())
            .map_err(|e| format!("{PROGRAM} takes no commands any more: {e}"))?;
        self.hear(patience, is_whole)
    }

    /// Reads what it prints until that is whole.
    fn hear(
        &mut self,
        patience: Duration,
        is_whole: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let until = Instant::now() + patience;
        let mut output = String::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(chunk) => output.push_str(&String::from_utf8_lossy(&chunk)),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let seconds = patience.as_secs();
                    return Err(format!(
                        "{PROGRAM} did not answer within {seconds} s: {}",
                        tail(&output)
                    ));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(format!("{PROGRAM} ended: {}", tail(&output)));
                }
            }
            if is_whole(&output) {
                return Ok(output);
            }
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = writeln!(self.commands, "quit").and_then(|()| self.commands.flush());
        end(&mut self.child);
        // What is left in a temporary folder is harmless.
        let _ = fs::remove_dir_all(&self.runtime);
        // Its device attaches an XDP program that outlives a process that was killed. Nothing to do
        // where none is attached, or the interface is gone.
        for interface in &self.interfaces {
            for mode in ["xdp", "xdpgeneric"] {
                let _ = Command::new("ip")
                    .args(["link", "set", "dev", interface, mode, "off"])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
        }
    }
}

fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file())
}

fn huge_pages_free_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    number("HugePages_Free:") * number("Hugepagesize:") / 1024
}

fn arguments(
    mode: &str,
    device: &Device,
    interfaces: &[String],
    cpu: usize,
    huge: bool,
) -> Vec<String> {
    let driver = &device.driver;
    let rest: String = device.arguments.iter().map(|word| format!(",{word}")).collect();
    // The first thread takes commands and sleeps; the second forwards.
    let lcores = format!("0@{cpu},1@{cpu}");
    let mut words: Vec<String> =
        ["--lcores", &lcores, "-v", "--no-pci", "--no-telemetry"].map(str::to_owned).into();
    // Either way it shares nothing with other DPDK programs.
    let memory: &[&str] = if huge { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    words.extend(memory.iter().map(|&word| word.to_owned()));
    words.extend(["-m".to_owned(), MEMORY_MIB.to_string()]);
    for (port, interface) in interfaces.iter().enumerate() {
        words.extend(["--vdev".to_owned(), format!("{driver}{port},iface={interface}{rest}")]);
    }
    words.extend(["--".to_owned(), "-i".to_owned()]);
    words.push(format!("--forward-mode={mode}"));
    let ours = [("--burst", BURST_FRAMES), ("--total-num-mbufs", BUFFERS)];
    let ours = ours.into_iter().filter(|(option, _)| device.option(option).is_none());
    words.extend(
        ours.chain(device.options.iter().copied()).map(|(option, n)| format!("{option}={n}")),
    );
    words
}

/// Frames and bytes out of `show port stats all`.
fn parse(output: &str, ports: usize) -> Option<Counters> {
    let all = |name: &str| -> Vec<u64> {
        let numbers = output.split(name).skip(1);
        numbers.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
    };
    let sum = |name: &str| {
        let numbers = all(name);
        (numbers.len() == ports).then(|| numbers.iter().sum::<u64>())
    };
    let mut counters = Counters::default();
    counters.rx_frames = sum("RX-packets:")?;
    counters.rx_bytes = sum("RX-bytes:")?;
    counters.tx_frames = sum("TX-packets:")?;
    counters.tx_bytes = sum("TX-bytes:")?;
    counters.set_drops(DropReason::RxQueueFull, sum("RX-missed:")?);
    counters.set_drops(DropReason::RxError, sum("RX-errors:")?);
    counters.set_drops(DropReason::RxNoFrame, sum("RX-nombuf:")?);
    Some(counters)
}

/// Frames that it received and no port took, out of `show fwd stats all`.
fn unsent(output: &str) -> Option<u64> {
    let all = output.split(FORWARD_END).nth(1)?;
    all.split("TX-dropped:").nth(1)?.split_whitespace().next()?.parse().ok()
}

/// The end of what it printed, on one line.
fn tail(output: &str) -> String {
    let words: Vec<&str> = output.split_whitespace().collect();
    let line = words.join(" ");
    let skip = line.chars().count().saturating_sub(TAIL_CHARS);
    line.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATISTICS: &str = "
  ######################## NIC statistics for port 0  ########################
  RX-packets: 1200       RX-missed: 3          RX-bytes:  72000
  RX-errors: 0
  RX-nombuf:  0
  TX-packets: 7          TX-errors: 0          TX-bytes:  420

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ############################################################################

  ######################## NIC statistics for port 1  ########################
  RX-packets: 5          RX-missed: 0          RX-bytes:  300
  RX-errors: 0
  RX-nombuf:  0
  TX-packets: 1193       TX-errors: 0          TX-bytes:  71580

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ############################################################################
testpmd> ";

    #[test]
    fn statistics_are_summed_over_ports_and_must_be_whole() {
        let counters = parse(STATISTICS, 2).unwrap();
        assert_eq!((counters.rx_frames, counters.tx_frames), (1205, 1200));
        assert_eq!((counters.rx_bytes, counters.tx_bytes), (72_300, 72_000));
        assert_eq!(counters.drops(DropReason::RxQueueFull), 3);
        assert_eq!(parse(STATISTICS, 1), None);
        assert_eq!(parse("testpmd> ", 1), None);
    }

    #[test]
    fn each_port_gets_a_device_on_its_interface() {
        let interfaces = ["sut0".to_owned(), "sut1".to_owned()];
        let device = Device::read("net_af_packet:qdisc_bypass=1").unwrap();
        let words = arguments("io", &device, &interfaces, 3, false);
        let line = words.join(" ");
        assert!(line.contains("--lcores 0@3,1@3"), "{line}");
        assert!(line.contains("--vdev net_af_packet1,iface=sut1,qdisc_bypass=1"), "{line}");
        assert!(line.contains("--no-huge") && line.contains("--forward-mode=io"), "{line}");
    }

    #[test]
    fn some_words_of_a_device_are_the_programs_own_options_and_take_the_place_of_ours() {
        let device = Device::read("net_tap:burst=32,persist,mbcache=512").unwrap();
        let interfaces = ["tap0".to_owned()];
        let words = arguments("io", &device, &interfaces, 0, true);
        let line = words.join(" ");
        assert!(line.contains("--vdev net_tap0,iface=tap0,persist "), "{line}");
        assert!(line.contains("--burst=32") && line.contains("--mbcache=512"), "{line}");
        assert_eq!(line.matches("--burst").count(), 1, "{line}");
        let refused = Device::read("net_tap:burst=0").unwrap_err();
        assert!(refused.contains("burst= of dpdk-testpmd is 1 to 512"), "{refused}");
    }

    #[test]
    fn what_it_could_not_send_is_read_over_all_ports() {
        let output = "
  ---------------------- Forward statistics for port 1  ----------------------
  RX-packets: 9              RX-dropped: 0             RX-total: 9
  TX-packets: 5              TX-dropped: 4             TX-total: 9
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 12             RX-dropped: 0             RX-total: 12
  TX-packets: 5              TX-dropped: 7             TX-total: 12
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++
testpmd> ";
        assert_eq!(unsent(output), Some(7));
        assert_eq!(unsent("testpmd> "), None);
    }

    #[test]
    fn an_answer_that_is_an_error_is_reported_by_its_end() {
        let output = format!("{}\n EAL: cannot\n\tprobe", "x".repeat(1000));
        assert!(tail(&output).ends_with("EAL: cannot probe") && tail(&output).len() <= TAIL_CHARS);
    }
}
