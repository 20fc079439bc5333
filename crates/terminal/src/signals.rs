//! Ctrl-C and friends: the first signal ends a run properly, a later one at once.
//!
//! A thread of its own takes the signals as values, so that everything may be done there that a
//! signal handler may not do. XDP programs, sockets and namespaces go with the process at every end.

use crate::{Failure, note};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// A signal so soon behind the first is the same wish: `timeout` and supervisors send one to a process and to its
/// group, and a terminal sends its own beside theirs.
const SAME_WISH: Duration = Duration::from_millis(500);

/// From now on, runs `first` at the first SIGINT, SIGTERM or SIGHUP, and says so unless standard
/// error carries JSON; at one that is half a second or more behind it removes `leftover` and ends the process.
///
/// # Errors
/// When the signals cannot be listened for.
pub fn on_signal(
    leftover: Option<PathBuf>,
    json: bool,
    first: impl FnOnce() + Send + 'static,
) -> Result<(), Failure> {
    let cannot = |error| Failure::input(format!("cannot listen for Ctrl-C: {error}; try again"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(cannot)?;
    let listen = move || {
        let mut first = Some(first);
        let mut asked = None;
        for signal in signals.forever() {
            match first.take() {
                Some(first) => {
                    first();
                    if !json {
                        note("laneway: finishing; a second signal ends at once");
                    }
                    // Behind the note, which may wait for a full pipe.
                    asked = Some(Instant::now());
                }
                None if asked.is_some_and(|asked| asked.elapsed() < SAME_WISH) => {}
                None => {
                    if let Some(path) = &leftover {
                        let _ = fs::remove_file(path);
                    }
                    process::exit(128 + signal);
                }
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(cannot)?;
    Ok(())
}
