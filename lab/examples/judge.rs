//! The judge on trial: races of one program against itself, and against copies of it that cost more by a known amount.
//!
//! Question: how often does a race claim a difference that is none, and how often does it find one that is there?
//!
//! ```text
//! cargo run --release -p laneway-lab --example judge -- \
//!     target/release/laneway [RACES [SECONDS [SEED [KINDS [awake]]]]]
//! ```
//!
//! What is judged is the binary that users run, from outside: a scenario with two command arms, both a copy of this
//! very program under another name, answering datagrams. The kinds take turns, each with a size drawn at random; KINDS
//! is `all`, `even` (the two without a difference), or a share such as `0.05`: nothing but programs slower by that.
//! `awake` keeps every CPU from sleep, as `laneway race --awake` does.
//!
//! | kind | the second arm |
//! |---|---|
//! | same | is the first once more |
//! | slower | burns CPU time beside each datagram, and writes down how much: 3 to 30 % of what the first costs |
//! | hog | is the first once more; while it is not parked, this program burns 6 to 20 % of the CPU beside it |
//!
//! A false claim is a verdict of "better" or "worse", in any metric, of the kinds `same` and `hog`. Of the kind
//! `slower`, printed are whether the interval of CPU per record excludes 1 and whether it holds the truth, which is
//! reckoned from what the programs wrote down themselves. Exit status 1 if more than 5 % of the races claim falsely.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use laneway_engine::pin_to_cpu;
use laneway_testkit::Random;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::error::Error;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fs, process};

const RACES_DEFAULT: usize = 100;
const SECONDS_DEFAULT: u64 = 60;
/// Races that may claim falsely, as a share of those without a difference.
const FALSE_MAX: f64 = 0.05;
/// Names of the two programs, as /proc shows them.
const NAMES: [&str; 2] = ["judged-a", "judged-b"];
/// Datagrams between two entries in a program's book.
const BOOKED_EVERY: u64 = 100;
/// What both programs burn beside each datagram. Reading the clock twice takes some hundred nanoseconds, and less
/// than that cannot be burned: without this a small share of a fast program's cost would be no difference at all.
const BOTH_BURN_NS: u64 = 1_000;
/// A hog's period: it burns its share of this and sleeps for the rest.
const PERIOD: Duration = Duration::from_millis(5);
/// How long the cost of the first program is measured before the first race, of which a share is planted, s.
const WEIGH_SECONDS: u64 = 12;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Same,
    Slower(f64),
    Hog(f64),
}

/// Which kinds of race there are.
#[derive(Clone, Copy, Debug)]
enum Kinds {
    All,
    Even,
    Slower(f64),
}

impl Kinds {
    fn parse(text: &str) -> Result<Kinds, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(Kinds::All),
            ("even", _) => Ok(Kinds::Even),
            (_, Ok(share)) if share > 0.0 && share <= 1.0 => Ok(Kinds::Slower(share)),
            _ => Err(format!("kinds are all, even, or a share such as 0.05, not `{text}`")),
        }
    }

    fn draw(self, race: usize, random: &mut Random) -> Kind {
        let turn = match self {
            Kinds::Slower(share) => return Kind::Slower(share),
            Kinds::Even => race % 2 * 2,
            Kinds::All => race % 3,
        };
        match turn {
            0 => Kind::Same,
            1 => Kind::Slower(random.between(0.03, 0.30)),
            _ => Kind::Hog(random.between(0.06, 0.20)),
        }
    }
}

/// This thread's CPU time.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn burn(ns: u64) -> u64 {
    let began = cpu_ns();
    loop {
        let burned = cpu_ns() - began;
        if burned >= ns {
            return burned;
        }
    }
}

/// A program that is judged: sends every datagram back, burns `extra_ns` more beside each than both burn, and keeps
/// book of datagrams and nanoseconds burned, so that they differ in the amount alone.
fn serve(address: &str, extra_ns: u64, book: &str) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind(address)?;
    let book = format!("{book}.{}", process::id());
    let mut bytes = [0; 2048];
    let (mut answered, mut burned_ns) = (0, 0);
    loop {
        let (length, sender) = socket.recv_from(&mut bytes)?;
        burned_ns += burn(BOTH_BURN_NS + extra_ns);
        socket.send_to(&bytes[..length], sender)?;
        answered += 1;
        if answered % BOOKED_EVERY == 0 {
            fs::write(&book, format!("{answered} {burned_ns}"))?;
        }
    }
}

/// Nanoseconds burned per datagram, of all processes that kept this book.
fn burned_ns(book: &Path) -> Result<f64, Box<dyn Error>> {
    let name = book.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut answered, mut burned) = (0.0, 0.0);
    for file in fs::read_dir(book.parent().ok_or("a book lies in a folder")?)? {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with(&format!("{name}.")) {
            let text = fs::read_to_string(file.path())?;
            let mut numbers = text.split_whitespace().map(str::parse::<f64>);
            answered += numbers.next().transpose()?.unwrap_or(0.0);
            burned += numbers.next().transpose()?.unwrap_or(0.0);
            fs::remove_file(file.path())?;
        }
    }
    Ok(if answered > 0.0 { burned / answered } else { 0.0 })
}

/// A foreign program that runs beside one arm only.
struct Hog {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Hog {
    fn beside(name: &'static str, share: f64) -> Hog {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let busy_ns = (PERIOD.as_nanos() as f64 * share) as u64;
        let thread = thread::spawn(move || {
            let _ = pin_to_cpu(0);
            while !over.load(Ordering::Relaxed) {
                if is_awake(name) {
                    burn(busy_ns);
                    thread::sleep(PERIOD.mul_f64(1.0 - share));
                } else {
                    thread::sleep(PERIOD);
                }
            }
        });
        Hog { is_over, thread }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

/// Whether a process of this name is there and not stopped.
fn is_awake(name: &str) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let mut stats = processes.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_to_string(entry.path().join("stat")).ok()
    });
    let name = format!("({name}) ");
    stats.any(|stat| stat.split_once(&name).is_some_and(|(_, state)| !state.starts_with('T')))
}

fn scenario(trial: &Trial, seed: u64, extra_ns: u64) -> String {
    let Trial { folder, seconds, awake, .. } = trial;
    let command = |name: &str, extra_ns: u64| {
        let program = folder.join(name);
        let book = folder.join(format!("{name}.book"));
        format!(
            "[[arm]]\nname = \"{name}\"\nnote = \"judged\"\ncommand = \"{} serve {{address}}:{{port}} {extra_ns} {}\"\n",
            program.display(),
            book.display()
        )
    };
    let length = format!(
        "loads_pps = [10_000]\nsegment_ms = 100\ntime_s = {seconds}\ngenerations = {}\n",
        (seconds / 2).clamp(6, 40)
    );
    format!(
        "title = \"the judge on trial\"\napp = \"bounce\"\npayload_bytes = 64\n\
         generator = \"packet:mmsg=64,qdisc_bypass\"\nburst = 16\nlate_p99_us_max = 200\nmatters = 0.03\n\
         arm_cpu = 0\ngenerator_cpu = 1\nawake = {awake}\nseed = {seed}\n[quick]\n{length}[full]\n{length}{}{}",
        command(NAMES[0], 0),
        command(NAMES[1], extra_ns)
    )
}

/// What a race reported of the second program.
struct Reported {
    outcome: String,
    seconds: f64,
    /// CPU per record: estimate, and the interval's ends.
    cpu: [Option<f64>; 3],
    /// `metric verdict` of each difference that was claimed.
    claimed: Vec<String>,
    /// CPU per record of the first program, ns.
    base_ns: Option<f64>,
}

impl Reported {
    fn read(result: &Value, seconds: f64) -> Reported {
        let all = |name: &str| result[name].as_array().cloned().unwrap_or_default();
        let arm = all("arms").iter().position(|arm| arm["name"] == NAMES[1]).unwrap_or(2);
        let findings: Vec<Value> =
            all("findings").into_iter().filter(|f| f["arm"] == arm).collect();
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let claimed = findings.iter().filter_map(|finding| {
            let verdict = text(&finding["judgement"]["verdict"]);
            let is_claim = matches!(verdict.as_str(), "better" | "worse");
            is_claim.then(|| format!("{} {verdict}", text(&finding["metric"])))
        });
        let cpu = findings.iter().find(|f| f["metric"] == "CPU per record");
        let cpu = cpu.map_or(&Value::Null, |finding| &finding["comparison"]);
        let interval = &cpu["interval"];
        let base = all("summaries").into_iter().find(|s| s["arm"] == 0);
        Reported {
            outcome: text(&result["outcome"]),
            seconds,
            cpu: [&cpu["estimate"], &interval["lower"], &interval["upper"]].map(Value::as_f64),
            claimed: claimed.collect(),
            base_ns: base.and_then(|base| base["cpu_ns_per_record"][0].as_f64()),
        }
    }
}

struct Trial {
    laneway: PathBuf,
    folder: PathBuf,
    seconds: u64,
    awake: bool,
    base_ns: f64,
}

impl Trial {
    /// One race: its verdict, and what is true of CPU per record.
    fn race(&mut self, kind: Kind, seed: u64) -> Result<(Reported, f64), Box<dyn Error>> {
        let extra_ns = match kind {
            Kind::Slower(share) => (share * self.base_ns) as u64,
            Kind::Same | Kind::Hog(_) => 0,
        };
        let (file, out) = (self.folder.join("judge.toml"), self.folder.join("out"));
        fs::write(&file, scenario(self, seed, extra_ns))?;
        let hog = match kind {
            Kind::Hog(share) => Some(Hog::beside(NAMES[1], share)),
            Kind::Same | Kind::Slower(_) => None,
        };
        let began = std::time::Instant::now();
        let mut race = Command::new(&self.laneway);
        race.arg("race").arg(&file).arg("--out").arg(&out);
        let ended = race.stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let seconds = began.elapsed().as_secs_f64();
        if let Some(hog) = hog {
            hog.end();
        }
        let ended = ended?;
        let text = fs::read_to_string(out.join("result.json")).map_err(|error| {
            format!("{error}; the race printed: {}", String::from_utf8_lossy(&ended.stderr))
        })?;
        fs::remove_dir_all(&out)?;
        let reported = Reported::read(&serde_json::from_str(&text)?, seconds);
        let [a, b] = NAMES.map(|name| burned_ns(&self.folder.join(format!("{name}.book"))));
        // What the first burns is in its own cost as well.
        let base_ns = reported.base_ns.unwrap_or(self.base_ns);
        self.base_ns = base_ns;
        Ok((reported, 1.0 + (b? - a?) / base_ns))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for such files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// How often it was right.
#[derive(Default)]
struct Score {
    even: usize,
    claimed_falsely: usize,
    slower: usize,
    found: usize,
    covered: usize,
    undecided: usize,
}

impl Score {
    fn add(&mut self, kind: Kind, reported: &Reported, truth: f64) {
        let [_, lower, upper] = reported.cpu;
        let (Some(lower), Some(upper)) = (lower, upper) else {
            self.undecided += 1;
            return;
        };
        match kind {
            Kind::Slower(_) => {
                self.slower += 1;
                self.found += usize::from(lower > 1.0);
                self.covered += usize::from((lower..=upper).contains(&truth));
            }
            Kind::Same | Kind::Hog(_) => {
                self.even += 1;
                self.claimed_falsely += usize::from(!reported.claimed.is_empty());
            }
        }
    }
}

fn judge(
    laneway: &str,
    kinds: Kinds,
    races: usize,
    (seconds, seed): (u64, u64),
    awake: bool,
) -> Result<bool, Box<dyn Error>> {
    let folder = env::temp_dir().join(format!("laneway-judge-{}", process::id()));
    fs::create_dir_all(&folder)?;
    for name in NAMES {
        fs::copy(env::current_exe()?, folder.join(name))?;
    }
    let laneway = fs::canonicalize(laneway).map_err(|error| format!("{laneway}: {error}"))?;
    let mut trial = Trial { laneway, folder, seconds: WEIGH_SECONDS, awake, base_ns: 0.0 };
    let (mut random, mut score) = (Random::seeded(seed), Score::default());
    println!("{races} races of at most {seconds} s, seed {seed}, kinds {kinds:?}, awake: {awake}");
    trial.race(Kind::Same, seed)?;
    if trial.base_ns <= 0.0 {
        return Err("too few segments were whole to measure what the first program costs".into());
    }
    trial.seconds = seconds;
    for race in 0..races {
        let kind = kinds.draw(race, &mut random);
        let (reported, truth) = trial.race(kind, seed.wrapping_add(race as u64) >> 1)?;
        score.add(kind, &reported, truth);
        let number =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
        let [estimate, lower, upper] = reported.cpu.map(number);
        println!(
            "{race:>3} {:<14} truth {truth:.3}  CPU {estimate} ({lower} to {upper})  {} {:.0} s  claims: {}",
            format!("{kind:.2?}"),
            reported.outcome,
            reported.seconds,
            reported.claimed.join(", ")
        );
    }
    println!(
        "no difference: {} of {} races claimed one; slower: {} of {} found, {} covered; without an interval: {}",
        score.claimed_falsely,
        score.even,
        score.found,
        score.slower,
        score.covered,
        score.undecided
    );
    Ok(score.claimed_falsely as f64 <= FALSE_MAX * score.even as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["serve", address, extra_ns, book] = words[..] {
        return serve(address, extra_ns.parse()?, book);
    }
    let [laneway, numbers @ ..] = &words[..] else {
        return Err(
            "give the program to judge: target/release/laneway [RACES [SECONDS [SEED [KINDS [awake]]]]]"
                .into(),
        );
    };
    let number =
        |at: usize, default: u64| numbers.get(at).map_or(Ok(default), |n| n.parse::<u64>());
    let races = number(0, RACES_DEFAULT as u64)? as usize;
    let seconds = number(1, SECONDS_DEFAULT)?;
    let drawn = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let kinds = numbers.get(3).map_or(Ok(Kinds::All), |text| Kinds::parse(text))?;
    let awake = match numbers.get(4) {
        None => false,
        Some(&"awake") => true,
        Some(word) => return Err(format!("the last word is `awake`, not `{word}`").into()),
    };
    if judge(laneway, kinds, races, (seconds, number(2, drawn as u64)?), awake)? {
        return Ok(());
    }
    eprintln!("more than {FALSE_MAX} of the races without a difference claimed one");
    process::exit(1)
}
