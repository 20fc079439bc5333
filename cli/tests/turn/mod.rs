//! A folder for a race, and the turn to run it: each race pins its children to the same two CPUs, so two at once would
//! starve each other's arms and lose what neither loses alone.

use laneway_lab::result::RaceResult;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// The folder, removed at the end, and the turn, given back then.
pub(crate) struct Turn {
    pub(crate) folder: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// `None` where races cannot be run; the reason is printed.
    pub(crate) fn new(name: &str) -> Option<Turn> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = laneway_netns::can_create() {
            println!("skipped: {why}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Some(Turn { folder, _turn: turn })
    }

    /// What the race wrote into this folder of its folder.
    pub(crate) fn result(&self, folder: &str) -> RaceResult {
        let path = self.folder.join(folder).join("result.json");
        let text = std::fs::read_to_string(path).expect("the race wrote its result");
        serde_json::from_str(&text).expect("a result")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Left-overs in the temporary folder are harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
