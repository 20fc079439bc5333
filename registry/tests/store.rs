//! The store on kernel sockets, on io_uring and through the stack, asked by Redis's own programs. Whether every request
//! is answered, never how fast.

#[path = "store/in_front.rs"]
mod in_front;
#[path = "store/judged.rs"]
mod judged;
#[path = "store/over_udp.rs"]
mod over_udp;
mod secure;

/// What the commands of the judge, which are those of `apps/kv`, name.
mod client {
    /// A command's arguments, its name first.
    pub(crate) type Args = Vec<Vec<u8>>;
}

use clap::{Args, Command as Words, FromArgMatches};
use laneway_engine::{Control, Stop, Workers};
use laneway_kinds::{AppCommand, On};
use laneway_kv::{KvArguments, KvKind, KvRun};
use laneway_linux::usable_cpus;
use laneway_netns::{Mac, Namespace, Offloads, VethEnd, VethOptions, VethPair};
use laneway_registry::{Crew, Lanes, Order, facts_of, run};
use laneway_spec::LaneSpec;
use laneway_testkit::skip;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};

/// How long a program may take on a busy machine, seconds.
const PATIENCE_S: &str = "120";

/// The first of the programs that is not there.
fn missing(programs: &[&'static str]) -> Option<&'static str> {
    programs.iter().copied().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        !command.status().is_ok_and(|status| status.success())
    })
}

/// The run that these words ask for.
fn plan(spec: &LaneSpec, interfaces: &[String], words: &[&str], workers: usize) -> KvRun {
    let command = KvArguments::augment_args(Words::new("kv").no_binary_name(true));
    let matches = command.try_get_matches_from(words).expect("words of the store");
    let arguments = KvArguments::from_arg_matches(&matches).expect("words of the store");
    let lane = facts_of::<Lanes>(spec).expect("a lane of the table");
    KvKind::plan(&arguments, On { spec, lane, interfaces, workers }).expect("a run")
}

/// Serves in `near` while `client` asks; the run ends by SHUTDOWN, or by the end of the client.
fn served(
    near: &Namespace,
    spec: &str,
    interfaces: &[&str],
    words: &[&str],
    client: impl FnOnce(&Stop),
) {
    served_by(&[], near, spec, interfaces, words, client);
}

/// The same by a worker on each of these CPUs; by one on any if none is named.
fn served_by(
    cpus: &[usize],
    near: &Namespace,
    spec: &str,
    interfaces: &[&str],
    words: &[&str],
    client: impl FnOnce(&Stop),
) {
    // Workers on the same CPUs as another test's would wait for each other longer than a client does.
    static PINNED: Mutex<()> = Mutex::new(());
    let _pinned = (cpus.len() > 1).then(|| PINNED.lock().unwrap_or_else(PoisonError::into_inner));
    let spec: LaneSpec = spec.parse().expect("a lane spec");
    let stop = Stop::new();
    let control = Control::from(stop.clone());
    let (is_open, opened) = mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let inside = near.enter(|| {
                let names: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
                let plan = plan(&spec, &names, words, cpus.len().max(1));
                let workers =
                    (cpus.len() > 1).then(|| Workers::new(cpus, stop.clone()).expect("their CPUs"));
                let crew = match &workers {
                    Some(workers) => Crew::Workers(workers),
                    None => Crew::Here { control: &control, cpu: None },
                };
                let order = Order { spec: &spec, interfaces, force: false, crew };
                let is_open = Mutex::new(is_open);
                run::<KvKind, Lanes>(&plan, order, &|_, _| {
                    // The client is gone only where the test has failed already.
                    let _ = is_open.lock().expect("no panic holds it").send(());
                })
            });
            inside.expect("its namespace is there")
        });
        // An end without a word is the server's failure, reported below.
        if opened.recv().is_ok() {
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&stop)));
            if asked.is_err() {
                stop.request();
            }
            let ran = server.join().expect("the server does not panic").expect("the lane opens");
            asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(ran.failure.is_none(), "{:?}", ran.failure);
        } else {
            let ran = server.join().expect("the server does not panic");
            panic!("the server did not begin: {:?}", ran.err());
        }
    });
}

/// What a line of shell says at `far`.
fn output_of(far: &Namespace, line: &str) -> String {
    let mut command = far.command("timeout");
    command.args([PATIENCE_S, "sh", "-c", line]).stdin(Stdio::null());
    let output = command.output().expect("the far end runs programs");
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Asks a store at `host`, and shuts it down.
fn ask(far: &Namespace, host: &str, long_bytes: usize) {
    let cli = format!("redis-cli -h {host}");
    for (line, reply) in [
        (format!("{cli} PING"), "PONG\n"),
        (format!("{cli} SET k 'a value'"), "OK\n"),
        (format!("{cli} GET k"), "a value\n"),
        (format!("{cli} -3 GET none"), "\n"),
        (format!("{cli} NOSUCH"), "ERR unknown command 'NOSUCH', with args beginning with: \n\n"),
        (
            format!("printf 'MULTI\\nINCR n\\nINCR n\\nEXEC\\n' | {cli}"),
            "OK\nQUEUED\nQUEUED\n1\n2\n",
        ),
    ] {
        assert_eq!(output_of(far, &line), reply, "{line}");
    }
    let piped = output_of(far, &format!("yes 'INCR piped' | head -n 5000 | {cli} --pipe"));
    assert!(piped.contains("errors: 0, replies: 5000"), "{piped}");
    assert_eq!(output_of(far, &format!("{cli} GET piped")), "5000\n");
    let value = output_of(
        far,
        &format!(
            "head -c {long_bytes} /dev/zero | tr '\\0' x | {cli} -x SET long; {cli} GET long | wc -c"
        ),
    );
    assert_eq!(value, format!("OK\n{}\n", long_bytes + 1), "a long value, there and back");
    for pipeline in [1, 16] {
        let line = format!(
            "redis-benchmark -h {host} -q -c 20 -n 2000 -P {pipeline} -r 100 -t ping,set,get,incr,rpush"
        );
        let bench = output_of(far, &line);
        assert_eq!(bench.matches("requests per second").count(), 6, "{bench}");
        assert!(!bench.to_lowercase().contains("error"), "{bench}");
    }
    let info = output_of(far, &format!("{cli} INFO"));
    assert!(info.contains("redis_version:") && info.contains("connected_clients:1\r\n"), "{info}");
    output_of(far, &format!("{cli} SHUTDOWN NOSAVE"));
}

/// A namespace, if the machine and the programs are there for it.
fn namespace(label: &str) -> Option<Namespace> {
    if let Some(program) = missing(&["redis-cli", "redis-benchmark"]) {
        skip(format!("the program `{program}` is not installed"));
        return None;
    }
    Namespace::create(label).map_err(skip).ok()
}

fn by_kernel_sockets(spec: &str) {
    let Some(near) = namespace("near") else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    served(&near, spec, &[], &[], |_| ask(&near, "127.0.0.1", 3_000_000));
}

#[test]
fn redis_programs_are_served_by_kernel_sockets() {
    by_kernel_sockets("socket");
}

#[test]
fn redis_programs_are_served_by_io_uring() {
    by_kernel_sockets("uring");
}

/// Two CPUs, if there are so many.
fn two_cpus() -> Option<Vec<usize>> {
    let cpus = usable_cpus().expect("the kernel says which");
    if cpus.len() < 2 {
        skip("two workers need two CPUs");
        return None;
    }
    Some(cpus[..2].to_vec())
}

/// What one worker is asked, of two; and what only several can be asked.
fn by_two_workers(spec: &str) {
    let (Some(near), Some(cpus)) = (namespace("near"), two_cpus()) else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    served_by(&cpus, &near, spec, &[], &[], |_| {
        let cli = "redis-cli -h 127.0.0.1";
        let lines = "seq 5000 | sed 's/.*/SET key:& &/'";
        let piped = output_of(&near, &format!("{lines} | {cli} --pipe"));
        assert!(piped.contains("errors: 0, replies: 5000"), "{piped}");
        let lines = "seq 5000 | sed 's/.*/INCR key:&/'";
        let piped = output_of(&near, &format!("{lines} | {cli} --pipe"));
        assert!(piped.contains("errors: 0, replies: 5000"), "{piped}");
        for (line, reply) in [
            ("DBSIZE", "5000\n"),
            ("GET key:77", "78\n"),
            ("--scan | sort -u | wc -l", "5000\n"),
            ("KEYS 'key:4[0-9]' | wc -l", "10\n"),
            ("MGET key:1 key:2", "CROSSSLOT Keys in request don't hash to the same slot\n\n"),
            ("FLUSHALL", "OK\n"),
            ("DBSIZE", "0\n"),
        ] {
            assert_eq!(output_of(&near, &format!("{cli} {line}")), reply, "{line}");
        }
        // Some of them are of either worker, wherever the kernel puts the connections.
        let waiting: Vec<String> = (0..4).map(|n| format!("{cli} BLPOP l{n} 60 &")).collect();
        let pushing: Vec<String> = (0..4)
            .map(|n| format!("until [ $({cli} RPUSH l{n} v{n}) -ge 0 ]; do :; done;"))
            .collect();
        let popped = output_of(&near, &format!("{} {} wait", waiting.join(" "), pushing.join(" ")));
        assert!((0..4).all(|n| popped.contains(&format!("l{n}\nv{n}\n"))), "{popped}");
        assert!(output_of(&near, &format!("{cli} INFO server")).contains("laneway_workers:2\r\n"));
        ask(&near, "127.0.0.1", 3_000_000);
    });
}

#[test]
fn redis_programs_are_served_by_two_workers_on_kernel_sockets() {
    by_two_workers("socket");
}

#[test]
fn redis_programs_are_served_by_two_workers_on_io_uring() {
    by_two_workers("uring");
}

/// A log for each of two workers, of which the next start has all again, and which one worker does not take.
#[test]
fn what_two_workers_logged_is_there_again_for_two() {
    let (Some(near), Some(cpus)) = (namespace("near"), two_cpus()) else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    let folder =
        Folder(std::env::temp_dir().join(format!("laneway-store-two-{}", std::process::id())));
    let dir = folder.0.display().to_string();
    let words = ["--appendonly", "yes", "--dir", &dir, "--appendfsync", "always"];
    let cli = "redis-cli -h 127.0.0.1";
    served_by(&cpus, &near, "socket", &[], &words, |_| {
        let lines = "seq 2000 | sed 's/.*/SET key:& value:&/'";
        let piped = output_of(&near, &format!("{lines} | {cli} --pipe"));
        assert!(piped.contains("errors: 0, replies: 2000"), "{piped}");
        assert_eq!(output_of(&near, &format!("{cli} SAVE")), "OK\n");
        assert_eq!(output_of(&near, &format!("{cli} SET key:1 another")), "OK\n");
        output_of(&near, &format!("{cli} SHUTDOWN"));
    });
    served_by(&cpus, &near, "socket", &[], &words, |_| {
        assert_eq!(output_of(&near, &format!("{cli} DBSIZE")), "2000\n");
        assert_eq!(output_of(&near, &format!("{cli} GET key:1")), "another\n");
        assert_eq!(output_of(&near, &format!("{cli} GET key:1999")), "value:1999\n");
        let info = output_of(&near, &format!("{cli} INFO persistence"));
        assert!(info.contains("rdb_last_load_keys_loaded:2000\r\n"), "{info}");
        output_of(&near, &format!("{cli} SHUTDOWN"));
    });
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing is left to do about a folder that cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// How many files have such an end to their names.
    fn count(&self, end: &str) -> usize {
        let files = std::fs::read_dir(&self.0).expect("the store has made it");
        let names = files.map(|file| file.expect("it can be read").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(end)).count()
    }
}

/// Saves in all three ways while a client writes, and starts again from what was saved.
fn saved_by(spec: &str, more: &[&str]) {
    let Some(near) = namespace("near") else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    let name = format!("laneway-store-{spec}-{}-{}", more.len(), std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let dir = folder.0.display().to_string();
    let words = [&["--dir", &dir], more].concat();
    let cli = "redis-cli -h 127.0.0.1";
    let until = |line: &str, wanted: &str| {
        let shell = format!("until {cli} {line} | grep -q '{wanted}'; do sleep 0.01; done");
        output_of(&near, &shell);
    };
    served(&near, spec, &[], &words, |_| {
        let lines = "seq 20000 | sed 's/.*/SET key:& value:&/'";
        let piped = output_of(&near, &format!("{lines} | {cli} --pipe"));
        assert!(piped.contains("errors: 0, replies: 20000"), "{piped}");
        assert_eq!(output_of(&near, &format!("{cli} SAVE")), "OK\n");
        assert_eq!((folder.count(".snapshot"), folder.count(".log")), (1, 1));
        let began = output_of(&near, &format!("{cli} BGSAVE"));
        assert_eq!(began, "Background saving started\n");
        let piped = output_of(&near, &format!("yes 'INCR n' | head -n 20000 | {cli} --pipe"));
        assert!(piped.contains("errors: 0, replies: 20000"), "{piped}");
        until("INFO persistence", "rdb_bgsave_in_progress:0");
        let began = output_of(&near, &format!("{cli} BGREWRITEAOF"));
        assert_eq!(began, "Background append only file rewriting started\n");
        let piped = output_of(&near, &format!("yes 'INCR n' | head -n 20000 | {cli} --pipe"));
        assert!(piped.contains("errors: 0, replies: 20000"), "{piped}");
        until("INFO persistence", "aof_rewrite_in_progress:0");
        let info = output_of(&near, &format!("{cli} INFO persistence"));
        for line in ["rdb_saves:3", "rdb_last_bgsave_status:ok", "aof_last_bgrewrite_status:ok"] {
            assert!(info.contains(line), "{info}");
        }
        output_of(&near, &format!("{cli} SHUTDOWN"));
    });
    served(&near, spec, &[], &words, |_| {
        let info = output_of(&near, &format!("{cli} INFO persistence"));
        let loaded = info.contains("rdb_last_load_keys_loaded:20001\r\n");
        assert!(loaded && info.contains("of the snapshot from sequence number"), "{info}");
        assert_eq!(output_of(&near, &format!("{cli} DBSIZE")), "20001\n");
        assert_eq!(output_of(&near, &format!("{cli} GET n")), "40000\n");
        assert_eq!(output_of(&near, &format!("{cli} GET key:777")), "value:777\n");
        output_of(&near, &format!("{cli} SHUTDOWN"));
    });
}

#[test]
fn what_was_saved_is_there_again_by_kernel_sockets() {
    saved_by("socket", &["--store", "log"]);
}

#[test]
fn what_was_saved_is_there_again_by_io_uring() {
    saved_by("uring", &["--appendonly", "yes"]);
}

/// The same where most values are on the disk: half a million bytes of memory, and keys that take nearly all of it.
#[test]
fn what_was_saved_from_the_disk_is_there_again() {
    for spec in ["socket", "uring"] {
        saved_by(spec, &["--store", "lsm", "--maxmemory", "2mb", "--appendfsync", "always"]);
    }
}

fn through_the_stack(cpus: &[usize]) {
    let (Some(near), Some(far)) = (namespace("near"), namespace("far")) else { return };
    let near_end = VethEnd::new(Mac([2, 0, 0, 0, 0, 1]), &[]).expect("no address");
    let options = VethOptions {
        // Segments that GRO has merged are longer than the lane's frames: the lane drops them, and TCP crawls.
        a: VethEnd { offloads: Offloads { gro: false, ..near_end.offloads }, ..near_end },
        b: VethEnd::new(Mac([2, 0, 0, 0, 0, 2]), &["10.77.0.2/24"]).expect("an address"),
        ..VethOptions::default()
    };
    let _cable = VethPair::create(&near, "near0", &far, "far0", &options).expect("a cable");
    let words = ["--listen", "10.77.0.1:6379", "--protected-mode", "no"];
    served_by(cpus, &near, "packet", &["near0"], &words, |_| ask(&far, "10.77.0.1", 100_000));
}

#[test]
fn redis_programs_are_served_through_the_stack() {
    through_the_stack(&[]);
}

#[test]
fn redis_programs_are_served_by_two_workers_through_the_stack() {
    if let Some(cpus) = two_cpus() {
        through_the_stack(&cpus);
    }
}

#[test]
fn a_client_of_another_machine_is_refused_until_there_is_a_password() {
    let (Some(near), Some(far)) = (namespace("near"), namespace("far")) else { return };
    let options = VethOptions {
        a: VethEnd::new(Mac([2, 0, 0, 0, 0, 1]), &["10.77.0.1/24"]).expect("an address"),
        b: VethEnd::new(Mac([2, 0, 0, 0, 0, 2]), &["10.77.0.2/24"]).expect("an address"),
        ..VethOptions::default()
    };
    let _cable = VethPair::create(&near, "near0", &far, "far0", &options).expect("a cable");
    served(&near, "socket", &[], &["--listen", "10.77.0.1:6379"], |stop| {
        let denied = output_of(&far, "redis-cli -h 10.77.0.1 PING");
        assert!(denied.contains("DENIED Redis is running in protected mode"), "{denied}");
        // By an address of this machine that is no loopback address it is a stranger as well.
        let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()));
        let denied = output_of(&near, "redis-cli -h 10.77.0.1 PING");
        assert!(denied.contains("DENIED"), "{denied}");
        stop.request();
    });
    let words = ["--listen", "10.77.0.1:6379", "--requirepass", "secret"];
    served(&near, "socket", &[], &words, |_| {
        let cli = "redis-cli -h 10.77.0.1";
        assert_eq!(output_of(&far, &format!("{cli} PING")), "NOAUTH Authentication required.\n\n");
        let wrong = output_of(&far, &format!("{cli} --no-auth-warning -a wrong PING"));
        assert!(wrong.contains("WRONGPASS"), "{wrong}");
        let cli = format!("{cli} --no-auth-warning -a secret");
        assert_eq!(output_of(&far, &format!("{cli} PING")), "PONG\n");
        output_of(&far, &format!("{cli} SHUTDOWN"));
    });
}
