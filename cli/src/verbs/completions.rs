//! `laneway completions`: a script that teaches a shell the verbs and their options.

use crate::arguments::Arguments;
use crate::exit::{Exit, Failure};
use crate::terminal;
use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

pub(crate) fn run(shell: Shell, json: bool) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "laneway", &mut script);
    let script = String::from_utf8_lossy(&script);
    if json {
        let value = json!({ "verb": "completions", "shell": shell.to_string(), "script": script });
        terminal::print_json(&value, false)?;
    } else {
        terminal::print(&script)?;
    }
    Ok(Exit::Done)
}
