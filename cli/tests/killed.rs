//! A race that is killed leaves nothing on the host: no process, no namespace, no interface, no BPF program. Killed is
//! the race alone, whose children then end by themselves, or every process of it, at random moments.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod shipped;
#[expect(dead_code, reason = "a race that is killed has no result")]
mod turn;

use laneway_bpf::XdpProgram;
use laneway_netns::Namespace;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use turn::Turn;

/// Races per test.
const DRAWS: u32 = 3;
/// From the moment that arm and generator are there to the kill, ms, at most.
const MOMENT_MS_MAX: u64 = 1_500;
/// How long a start may take on a busy host, and an end that nothing hurries.
const PATIENCE: Duration = Duration::from_secs(120);
/// In the environment of the race, and so of every process that it starts.
const MARK: &str = "LANEWAY_KILLED_TEST";

/// A race that runs, and all that is known of it.
struct Running {
    race: Child,
    mark: String,
}

impl Running {
    fn start(folder: &Path, draw: u32, segment_ms: &str) -> Running {
        let mark = format!("{MARK}={}-{draw}", std::process::id());
        let (name, value) = mark.split_once('=').expect("as written above");
        let race = shipped::race(folder, "features", &[])
            .args(["--lane", "packet", "--lane", "xdp", "--load", "20000"])
            .args(["--generations", "40", "--rounds", "1", "--segment-ms", segment_ms])
            .env(name, value)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        Running { race, mark }
    }

    /// Every process of it, with the verb that it runs if it is this program.
    fn processes(&self) -> Vec<(u32, String)> {
        let all = fs::read_dir("/proc").expect("lists").flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter_map(|id: u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
            environment.split(|&byte| byte == 0).find(|word| *word == self.mark.as_bytes())?;
            let line = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
            Some((id, line.split('\0').nth(1).unwrap_or_default().to_owned()))
        })
        .collect()
    }

    /// Waits until a process runs `verb`.
    fn child(&self, verb: &str) -> u32 {
        let mut found = None;
        let is_there = wait(|| {
            found = self.processes().into_iter().find(|(_, is)| is == verb).map(|(id, _)| id);
            found.is_some()
        });
        assert!(is_there, "no `{verb}` in {:?}", self.processes());
        found.expect("as asserted")
    }

    /// Numbers of the BPF programs that its processes have open.
    fn programs(&self) -> BTreeSet<u32> {
        let mut programs = BTreeSet::new();
        for (id, _) in self.processes() {
            let infos = fs::read_dir(format!("/proc/{id}/fdinfo")).into_iter().flatten().flatten();
            for info in infos.filter_map(|entry| fs::read_to_string(entry.path()).ok()) {
                let number = info.lines().find_map(|line| line.strip_prefix("prog_id:"));
                programs.extend(number.and_then(|number| number.trim().parse::<u32>().ok()));
            }
        }
        programs
    }

    fn kill(&mut self, everything: bool) {
        if everything {
            // What is started meanwhile is found by the next look.
            let killed = wait(|| {
                let processes = self.processes();
                for &(id, _) in &processes {
                    let id = Pid::from_raw(id.cast_signed()).expect("not 0");
                    // It may have ended.
                    let _ = kill_process(id, Signal::KILL);
                }
                processes.is_empty()
            });
            assert!(killed, "{:?}", self.processes());
        } else {
            self.race.kill().expect("it is our child");
        }
        self.race.wait().expect("it is our child");
    }
}

/// Should an assertion fail.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.race.kill();
        let _ = self.race.wait();
    }
}

/// Waits for the condition, and returns whether it was met.
fn wait(mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

fn exists(program: u32) -> bool {
    match XdpProgram::find(&program.to_string()) {
        Ok(_) => true,
        Err(error) => !error.to_string().contains("no BPF program of this number"),
    }
}

/// A cable from `ours` into the namespace of a process: the kernel deletes both ends with that namespace, which no
/// name tells of.
fn lay_probe(ours: &Namespace, name: &str, process: u32) -> bool {
    let process = process.to_string();
    let link = ["link", "add", name, "type", "veth", "peer", "name", name, "netns", &process];
    let added = ours.enter(|| Command::new("ip").args(link).output()).expect("enters");
    added.expect("ip runs").status.success()
}

fn probes(ours: &Namespace) -> Vec<String> {
    let names = || {
        let entries = fs::read_dir("/sys/class/net").expect("lists").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("probe")).collect()
    };
    ours.enter(names).expect("enters")
}

fn leaves_nothing(test: &str, everything: bool, segment_ms: &str) {
    let Some(turn) = Turn::new(test) else { return };
    let before = fs::read_dir("/run/netns").into_iter().flatten().count();
    for draw in 0..DRAWS {
        let ours = Namespace::create("probes").expect("a namespace");
        let mut running = Running::start(&turn.folder, draw, segment_ms);
        let moment_ms = RandomState::new().hash_one(draw) % MOMENT_MS_MAX;
        let laid = wait(|| {
            // A trial may end between looking and laying: then the next one has both.
            let (arm, generator) = (running.child("arm"), running.child("generate"));
            [("probe0", arm), ("probe1", generator)].into_iter().all(|(name, process)| {
                probes(&ours).iter().any(|laid| laid == name) || lay_probe(&ours, name, process)
            })
        });
        assert!(laid && probes(&ours).len() == 2, "{:?}", probes(&ours));
        thread::sleep(Duration::from_millis(moment_ms));
        let programs = running.programs();
        assert!(!programs.is_empty(), "the CPU meter alone has several");
        running.kill(everything);
        let killed = format!("draw {draw}, killed after {moment_ms} ms");
        assert!(wait(|| running.processes().is_empty()), "{killed}: {:?}", running.processes());
        assert!(wait(|| probes(&ours).is_empty()), "{killed}: a namespace is left");
        let left = || programs.iter().filter(|&&program| exists(program)).collect::<Vec<_>>();
        assert!(wait(|| left().is_empty()), "{killed}: BPF programs {:?}", left());
        for name in ["gen0", "sut0"] {
            assert!(!Path::new("/sys/class/net").join(name).exists(), "{killed}: {name} is left");
        }
    }
    let after = fs::read_dir("/run/netns").into_iter().flatten().count();
    assert!(after <= before, "a namespace has a name");
}

#[test]
fn a_race_that_is_killed_with_all_its_children_leaves_nothing() {
    leaves_nothing("killed-all", true, "700");
}

#[test]
fn the_children_of_a_race_that_is_killed_end_and_leave_nothing() {
    // Busy for longer than this test waits.
    leaves_nothing("killed-race", false, "600000");
}

#[test]
fn what_a_killed_run_changed_is_given_back_by_the_next_one_whatever_that_is_for() {
    let Some(turn) = Turn::new("given-back") else { return };
    let records = Path::new("/run/laneway/restore");
    if fs::create_dir_all(records).is_err() {
        println!("skipped: {} cannot be written", records.display());
        return;
    }
    let setting = turn.folder.join("setting");
    fs::write(&setting, "96\n").expect("writable");
    // No process has an id beyond 4194304.
    let record = records.join(format!("4194305-0-{}", std::process::id()));
    let text = format!("base 32\nadded 64\nsetting {}\n", setting.display());
    fs::write(&record, text).expect("root may");
    let output = Command::new(env!("CARGO_BIN_EXE_laneway")).args(["completions", "bash"]).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&setting).expect("it is there"), "32");
    assert!(!record.exists());
}
