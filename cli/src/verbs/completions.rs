//! `laneway completions`: a script that teaches a shell the verbs and their options.

use crate::command_line::command;
use crate::verbs::RunVerb;
use clap_complete::Shell;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::json;

pub(crate) fn run(shell: Shell, apps: &[Box<dyn RunVerb>], json: bool) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(apps), "laneway", &mut script);
    let script = String::from_utf8_lossy(&script);
    if json {
        let value = json!({ "verb": "completions", "shell": shell.to_string(), "script": script });
        terminal::print_json(&value, false)?;
    } else {
        terminal::print(&script)?;
    }
    Ok(Exit::Done)
}
