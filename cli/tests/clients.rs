//! Client libraries of others see the same of a store of ours as of `redis-server`.
//!
//! ```text
//!   redis-py, ioredis, go-redis ─▶ the script in `clients` ─▶ redis-server ─▶ lines ─╮
//!                                                     ╰─▶ store on a lane ─▶ lines ─▶ equal?
//! ```
//!
//! A script uses its library as a user of it would (pools, pipelines, transactions, messages, iterators, many threads)
//! and prints a line for each step. Where a library cannot be had, the test says why and is skipped.

#![forbid(unsafe_code)]

mod world;

use laneway_testkit::{foreign, skip};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use world::{REDIS, Running, STORE, World};

/// Seconds that a script may take on a busy machine.
const SCRIPT_SECONDS_MAX: &str = "180";
/// Connections that a script has open at a time, at most.
const CONNECTIONS: u64 = 200;
const WORKERS_TWO: &[&str] = &["--workers", "2"];

/// A client library and a script that uses it.
struct Library {
    /// The command line, but for the address of the server.
    command: fn() -> Result<Vec<OsString>, String>,
    /// Versions of the protocol that the script can ask for.
    protocols: &'static [&'static str],
}

const REDIS_PY: Library = Library {
    command: || {
        let python = foreign::python_with(TARGET, "redis==8.1.0")?;
        Ok(vec![python.into(), "-I".into(), source("redis_py.py").into()])
    },
    protocols: &["2", "3"],
};

const IOREDIS: Library = Library {
    command: || {
        let folder = foreign::obtained(Path::new(TARGET).join("ioredis-5.8.2"), |made| {
            let install = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
            let to = ["--fetch-retries", "1", "--prefix"];
            foreign::ran(Command::new("npm").args(install).args(to).arg(made).arg("ioredis@5.8.2"))
        })?;
        // A module is looked for beside the script and in the folders above it.
        let script = folder.join("ioredis.cjs");
        fs::copy(source("ioredis.cjs"), &script).map_err(|why| why.to_string())?;
        Ok(vec!["node".into(), script.into()])
    },
    protocols: &["2"],
};

const GO_REDIS: Library = Library {
    command: || {
        let program = Path::new(TARGET).join("go_redis");
        let mut build = Command::new("go");
        build.arg("build").arg("-o").arg(&program).arg(".").current_dir(source("go_redis"));
        foreign::ran(build.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=readonly"))?;
        Ok(vec![program.into()])
    },
    protocols: &["2", "3"],
};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// The script's lines of the server on `lane`, for each version of the protocol.
fn lines(
    lane: &str,
    more: &[&str],
    library: &Library,
    command: &[OsString],
) -> Option<Vec<String>> {
    let world = World::new(lane)?;
    let _running: Running = world.start(lane, CONNECTIONS, more);
    let mut lines = Vec::new();
    for protocol in library.protocols {
        let script = world
            .far
            .command("timeout")
            .arg(SCRIPT_SECONDS_MAX)
            .args(command)
            .args([&STORE.ip().to_string(), &STORE.port().to_string(), *protocol])
            .output()
            .expect("coreutils are there");
        let said = String::from_utf8_lossy(&script.stderr);
        let printed = String::from_utf8_lossy(&script.stdout);
        assert!(
            script.status.success(),
            "the script failed on {lane:?} {more:?} by RESP{protocol}, {}: {said}\n{printed}",
            script.status
        );
        lines.extend(printed.lines().map(|line| format!("RESP{protocol} {line}")));
    }
    Some(lines)
}

/// Runs the library's script against `redis-server` and our store, and compares line by line.
fn see_the_same(library: &Library) {
    if Command::new("redis-server").arg("--version").output().is_err() {
        return skip("there is no redis-server; apt-get install redis-server");
    }
    let command = match (library.command)() {
        Ok(command) => command,
        Err(why) => return skip(why),
    };
    let Some(theirs) = lines(REDIS, &[], library, &command) else { return };
    assert!(theirs.len() > 10, "the script has hardly a step: {theirs:?}");
    for (lane, more) in
        [("socket", &[][..]), ("uring", &[]), ("packet", &[]), ("socket", WORKERS_TWO)]
    {
        let Some(ours) = lines(lane, more, library, &command) else { return };
        let differing: Vec<String> = theirs
            .iter()
            .zip(&ours)
            .filter(|(theirs, ours)| theirs != ours)
            .map(|(theirs, ours)| format!("  redis-server {theirs}\n  ours         {ours}\n"))
            .collect();
        assert!(
            differing.is_empty() && theirs.len() == ours.len(),
            "{lane} {more:?}: {} lines against {}, differing:\n{}",
            ours.len(),
            theirs.len(),
            differing.concat()
        );
    }
}

#[test]
fn redis_py_sees_what_it_sees_of_redis() {
    see_the_same(&REDIS_PY);
}

#[test]
fn ioredis_sees_what_it_sees_of_redis() {
    see_the_same(&IOREDIS);
}

#[test]
fn go_redis_sees_what_it_sees_of_redis() {
    see_the_same(&GO_REDIS);
}
