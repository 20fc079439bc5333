//! `make gallery`: runs of every kind, a row each, and what is asked of them.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use laneway_terminal::{Exit, Failure, conclude, note, print, show_progress, stderr_is_terminal};
use laneway_trace_gallery::{HEAD, KINDS, Kind, Outcome, Table, World};

/// Puts `laneway trace analyze` on trial: real situations with a known cause, parameters drawn from a seed.
#[derive(Debug, Parser)]
#[command(name = "laneway-trace-gallery", version)]
struct Arguments {
    /// The program on trial
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/laneway")]
    laneway: PathBuf,
    /// Runs of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u64,
    /// Where parameters are drawn from; run i of a kind has SEED + i [default: the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// This kind alone; several, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kind: Vec<String>,
    /// No run begins later than this
    #[arg(long, value_name = "MINUTES", default_value_t = 88)]
    minutes: u64,
    /// Leave the last recording of each kind, with its truth and its analysis, in this folder, which is empty or not
    /// there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Recordings of a third of the time
    #[arg(long)]
    quick: bool,
    /// Say what kinds there are
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    conclude(gallery(&arguments)).into()
}

/// A folder that goes with the value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Where it is in memory of this process's own, it goes with that in any case.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gallery(arguments: &Arguments) -> Result<Exit, Failure> {
    if arguments.list {
        for kind in KINDS {
            let word = if kind.healthy { "healthy" } else { "" };
            print(&format!("{:<26} {word:<8} {}\n", kind.name, kind.about))?;
        }
        return Ok(Exit::Done);
    }
    let kinds = wanted(&arguments.kind)?;
    let laneway = fs::canonicalize(&arguments.laneway).map_err(|error| {
        let hint = "cargo build --release -p laneway-cli builds it";
        Failure::input(format!("cannot run {}: {error}; {hint}", arguments.laneway.display()))
    })?;
    let (folder, _guard) = folder(arguments.keep.as_ref())?;
    let seed = arguments.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() % 1_000_000
    });
    print(&format!("seed {seed}, {} runs of {} kinds\n", arguments.runs, kinds.len()))?;
    // Beside this program: memory of one's own may be mounted so that nothing is run from there.
    let own = std::env::current_exe().map_err(|error| {
        Failure::input(format!("where this program lies is not known: {error}"))
    })?;
    let programs = own.parent().unwrap_or(&folder);
    let mut world = World::new(&laneway, &folder, programs, arguments.quick);
    if arguments.keep.is_some() {
        world = world.keeping();
    }
    let limit = Duration::from_secs(arguments.minutes * 60);
    let progress = stderr_is_terminal();
    let table = Table::fill(&world, &kinds, seed, arguments.runs, limit, |kind, seed, outcome| {
        let words = match outcome {
            Outcome::NotMade(_) => "not made",
            Outcome::NoCauses(_) => "no causes in this result",
            Outcome::Judged(verdict) if verdict.right && verdict.first => "right",
            Outcome::Judged(verdict) if verdict.silent => "silent",
            Outcome::Judged(_) => "missed",
        };
        let line = format!("{} {seed}: {words}", kind.name);
        if progress { show_progress(&line) } else { note(&line) }
    });
    if progress {
        show_progress("");
    }
    print_table(&table, arguments)
}

fn wanted(names: &[String]) -> Result<Vec<Kind>, Failure> {
    if names.is_empty() {
        return Ok(KINDS.to_vec());
    }
    let find = |name: &String| {
        let kind = KINDS.iter().find(|kind| kind.name == name).copied();
        kind.ok_or_else(|| Failure::input(format!("no kind `{name}`; --list says what there is")))
    };
    names.iter().map(find).collect()
}

/// Where recordings go: in memory of this process's own, so that nothing stays however it ends, if it may mount.
fn folder(keep: Option<&PathBuf>) -> Result<(PathBuf, Option<Folder>), Failure> {
    if let Some(keep) = keep {
        let failed = |error| Failure::input(format!("cannot make {}: {error}", keep.display()));
        fs::create_dir_all(keep).map_err(failed)?;
        if fs::read_dir(keep).map_err(failed)?.next().is_some() {
            let words = "is not empty: recordings need a folder of their own";
            return Err(Failure::input(format!("{} {words}", keep.display())));
        }
        Ok((fs::canonicalize(keep).map_err(failed)?, None))
    } else {
        let above = laneway_netns::memory_folder().unwrap_or_else(|_| std::env::temp_dir());
        let folder = above.join(format!("laneway-gallery-{}", process::id()));
        fs::create_dir(&folder).map_err(|error| {
            Failure::input(format!("cannot make {}: {error}", folder.display()))
        })?;
        Ok((folder.clone(), Some(Folder(folder))))
    }
}

fn print_table(table: &Table, arguments: &Arguments) -> Result<Exit, Failure> {
    let mut text = format!("{HEAD}\n");
    for (kind, row) in &table.rows {
        text.push_str(&format!("{}\n", row.line(kind)));
    }
    for (kind, row) in table.rows.iter().filter(|(_, row)| !row.misses.is_empty()) {
        text.push_str(&format!("\n{}\n", kind.name));
        for (seed, words) in &row.misses {
            text.push_str(&format!("  SEED={seed} RUNS=1 KIND={}: {words}\n", kind.name));
        }
    }
    if table.rounds < arguments.runs {
        let rounds = table.rounds;
        text.push_str(&format!(
            "\nended by its time: {rounds} of {} rounds whole\n",
            arguments.runs
        ));
    }
    if !table.is_judged() {
        text.push_str("\nno verdict: no run was judged\n");
        print(&text)?;
        return Ok(Exit::Inconclusive);
    }
    let goals = table.goals();
    text.push('\n');
    for (words, met) in &goals {
        text.push_str(&format!("{} {words}\n", if *met { "met   " } else { "missed" }));
    }
    print(&text)?;
    Ok(if goals.iter().all(|(_, met)| *met) { Exit::Done } else { Exit::GoalMissed })
}
