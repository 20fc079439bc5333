//! Every command of the guide (`docs/guide`), as it stands there, must succeed.
//!
//! ```text
//!   here (eth1 192.0.2.9, eth2 198.51.100.9) ══ two cables ══ far (192.0.2.1, 198.51.100.1)
//! ```
//!
//! A block of shell commands is a script. The words behind `sh` say where it is run: nothing, on this machine; `far`,
//! on the other; `end`, on this one when what earlier blocks left running has ended. A block that ends with `&` goes on
//! running; while one does, another that fails is tried again, as a user would do who typed too early.
//!
//! Of races the time alone is cut, and one that is not decided by then is taken as done.
#![forbid(unsafe_code)]

use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_testkit::skip;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide");
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/captures/tiny.pcap");
/// Chapters whose commands other tests run, with programs that those bring.
const ELSEWHERE: [&str; 2] = ["any-program.md", "your-own-app.md"];
/// A script is tried so many times, so far apart, while another one runs.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(200);
/// What stands in front of every script.
const PROLOGUE: &str = r#"
sudo() { "$@"; }
laneway() { if [ "$1" = race ]; then command laneway "$@" || [ $? = 3 ]; else command laneway "$@"; fi; }
"#;
/// Races of the guide take this long, and in the tests less.
const RACE_TIME: (&str, &str) = ("--time 60", "--time 3");

#[derive(Debug, PartialEq, Eq)]
enum Where {
    Here,
    Far,
    HereAtTheEnd,
}

#[derive(Debug)]
struct Script {
    place: Where,
    text: String,
}

/// The blocks of a chapter.
fn scripts(chapter: &str) -> Vec<Script> {
    let text = fs::read_to_string(Path::new(GUIDE).join(chapter)).expect("a chapter");
    let (mut scripts, mut open): (Vec<Script>, Option<Option<Script>>) = (Vec::new(), None);
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let place = match info.split_whitespace().collect::<Vec<_>>().as_slice() {
                    ["sh"] => Some(Where::Here),
                    ["sh", "far"] => Some(Where::Far),
                    ["sh", "end"] => Some(Where::HereAtTheEnd),
                    ["sh", ..] => panic!("{chapter}: a block `{info}`"),
                    _ => None,
                };
                open = Some(place.map(|place| Script { place, text: String::new() }));
            }
            (Some(_), Some(_)) => scripts.extend(open.take().flatten()),
            (Some(Some(script)), None) => script.text += &format!("{line}\n"),
            _ => {}
        }
    }
    scripts
}

/// A script that runs, with all that it started; ended when a test fails.
struct Running(Child);

impl Running {
    fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("it is ours")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let group = Pid::from_child(&self.0);
            // It may have ended meanwhile.
            let _ = kill_process_group(group, Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

struct World {
    here: Namespace,
    far: Namespace,
    _cables: [VethPair; 2],
    folder: PathBuf,
    /// Races keep their processes on the same two CPUs, so chapters take turns.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl World {
    fn new(chapter: &str) -> Option<World> {
        if let Err(why) = can_create() {
            skip(why);
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder =
            std::env::temp_dir().join(format!("laneway-guide-{chapter}-{}", process::id()));
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        let create = |label| Namespace::create(label).expect("root may");
        let (here, far) = (create("guide-here"), create("guide-far"));
        let cable = |n: u8, network: &str| {
            let name = format!("eth{n}");
            let end = |host: u8| {
                let address = format!("{network}.{host}/24");
                VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x38, n, host]), &[&address])
                    .expect("an address")
            };
            let options = VethOptions { a: end(9), b: end(1), ..VethOptions::default() };
            VethPair::create(&here, &name, &far, &name, &options).expect("a cable")
        };
        let cables = [cable(1, "192.0.2"), cable(2, "198.51.100")];
        symlink(env!("CARGO_BIN_EXE_laneway"), folder.join("laneway")).expect("a new folder");
        fs::copy(CAPTURE, folder.join("capture.pcap")).expect("the capture ships");
        Some(World { here, far, _cables: cables, folder, _turn: turn })
    }

    fn output(&self) -> PathBuf {
        self.folder.join("output")
    }

    /// Starts a script; what it prints goes to the file `output`.
    fn start(&self, script: &Script) -> Running {
        let folder = &self.folder;
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let mut text = script.text.replace(RACE_TIME.0, RACE_TIME.1);
        if text.trim_end().ends_with('&') {
            text += "wait $!\n";
        }
        let output = File::options().create(true).append(true).open(self.output());
        let output = output.expect("the folder is ours");
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &format!("{PROLOGUE}{text}")]);
        command.env("PATH", path).current_dir(folder).process_group(0);
        command.stdin(Stdio::null()).stderr(output.try_clone().expect("a file")).stdout(output);
        let namespace = if script.place == Where::Far { &self.far } else { &self.here };
        // A child that is started inside sees `/sys/kernel/tracing`, which races and recorders need.
        Running(namespace.enter(|| command.spawn()).expect("a namespace").expect("bash is there"))
    }

    fn fail(&self, chapter: &str, script: &Script, status: ExitStatus) -> ! {
        let output = fs::read_to_string(self.output()).unwrap_or_default();
        let tail: Vec<&str> = output.lines().rev().take(60).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        panic!("{chapter}: {status}\n{}\n--- printed:\n{}", script.text, tail.join("\n"));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs every script of a chapter.
fn run(chapter: &str) {
    let Some(world) = World::new(chapter.trim_end_matches(".md")) else { return };
    let mut running: Vec<(Running, Script)> = Vec::new();
    let finish = |running: &mut Vec<(Running, Script)>| {
        for (mut child, script) in running.drain(..) {
            let status = child.wait();
            if !status.success() {
                world.fail(chapter, &script, status);
            }
        }
    };
    for script in scripts(chapter) {
        if script.place == Where::HereAtTheEnd {
            finish(&mut running);
        }
        let mut child = world.start(&script);
        if script.text.trim_end().ends_with('&') {
            running.push((child, script));
            continue;
        }
        let mut tries = if running.is_empty() { 1 } else { TRIES };
        loop {
            let status = child.wait();
            tries -= 1;
            match status.success() {
                true => break,
                false if tries == 0 => world.fail(chapter, &script, status),
                false => thread::sleep(PAUSE),
            }
            child = world.start(&script);
        }
    }
    finish(&mut running);
}

macro_rules! chapters {
    ($($test:ident: $chapter:literal,)*) => {
        const CHAPTERS: &[&str] = &[$($chapter),*];
        $(#[test]
        fn $test() {
            run($chapter);
        })*
    };
}

chapters! {
    a_first_race: "first-race.md",
    reading_a_report: "reading-a-report.md",
    choosing_a_lane: "choosing-a-lane.md",
    what_a_veth_shows: "veth.md",
    features_for_models: "features.md",
    forwarding_and_its_rules: "forwarding.md",
    the_relay: "relay.md",
    the_store: "store.md",
    traces: "traces.md",
}

#[test]
fn every_chapter_is_in_the_book_and_its_commands_are_run() {
    let summary = fs::read_to_string(Path::new(GUIDE).join("SUMMARY.md")).expect("a summary");
    let mut files: Vec<String> = fs::read_dir(GUIDE)
        .expect("the guide")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    files.sort_unstable();
    for file in &files {
        assert!(summary.contains(&format!("({file})")), "SUMMARY.md lacks {file}");
        let is_run = CHAPTERS.contains(&file.as_str()) || ELSEWHERE.contains(&file.as_str());
        assert!(is_run || scripts(file).is_empty(), "no test runs the commands of {file}");
    }
    for chapter in CHAPTERS {
        assert!(!scripts(chapter).is_empty(), "{chapter} has no commands");
    }
}
