//! `laneway doctor`: what an app asks of this host for a load, and settings that are changed and put back.

use super::RunVerb;
use crate::arguments::DoctorArguments;
use laneway_doctor::{
    Examined, Finding, Load, PutBack, Sysctls, carried_per_s, examine, fix, sysctl_file, undo,
};
use laneway_page::text::grouped;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub(crate) fn run(
    arguments: &DoctorArguments,
    apps: &[Box<dyn RunVerb>],
    json: bool,
) -> Result<Exit, Failure> {
    let sysctls = Sysctls::of_this_host();
    let stall_ns = arguments.stall.map_or(0, |stall| stall.as_nanos() as u64);
    if let Some(depth) = arguments.depth {
        return carried(depth, stall_ns, json);
    }
    let (Some(app), Some(rate_per_s), Some(bytes)) =
        (&arguments.app, arguments.rate, arguments.size)
    else {
        return put_back(arguments.undo.as_deref(), &sysctls, json);
    };
    if let (Some(path), false) = (&arguments.undo, arguments.fix) {
        let path = path.display();
        return Err(Failure::input(format!(
            "--undo {path} beside --app {app} is where --fix keeps what the settings were; add --fix, or give \
             --undo {path} alone to put them back"
        )));
    }
    let load =
        Load { rate_per_s, bytes, stall_ns, outputs: arguments.outputs, groups: arguments.groups };
    let mut asking = apps.iter().filter(|verb| !verb.asks_of_host().is_empty());
    let Some(row) = asking.clone().find(|verb| verb.facts().name == app) else {
        let names: Vec<&str> = asking.by_ref().map(|verb| verb.facts().name).collect();
        return Err(Failure::input(format!(
            "app {app} asks nothing of the host that a load depends on; these do: {}",
            names.join(", ")
        )));
    };
    let look = || examine(row.asks_of_host(), &load, &sysctls).map_err(Failure::input);
    let examined = look()?;
    if let Some(path) = &arguments.output {
        let heading = format!(
            "laneway doctor --app {app} --rate {rate_per_s} --size {bytes} --stall {stall_ns}ns --outputs {} \
             --groups {}",
            load.outputs, load.groups
        );
        fs::write(path, sysctl_file(&examined, &heading)).map_err(|error| {
            Failure::input(format!("cannot write {}: {error}; name another file", path.display()))
        })?;
    }
    let short = examined.short();
    let mut changed = Vec::new();
    if let (true, Some(path), false) = (arguments.fix, &arguments.undo, short.is_empty()) {
        changed = fix(&short, &sysctls, path).map_err(Failure::input)?;
    }
    // What a socket is granted depends on what was changed.
    let examined = if changed.is_empty() { examined } else { look()? };
    let is_short = examined.findings.iter().any(Finding::is_short);
    if json {
        terminal::print_json(&as_json(app, &load, &examined, &changed), false)?;
    } else {
        terminal::print(&text(app, &examined, &changed, arguments.undo.as_deref()))?;
    }
    Ok(if is_short { Exit::GoalMissed } else { Exit::Done })
}

/// What a ring carries.
fn carried(depth: u64, latency_ns: u64, json: bool) -> Result<Exit, Failure> {
    let per_s = carried_per_s(depth, latency_ns);
    if json {
        let value = json!({
            "verb": "doctor", "depth": depth, "latency_ns": latency_ns, "carried_per_s": per_s
        });
        terminal::print_json(&value, false)?;
    } else {
        terminal::print(&format!(
            "{depth} in flight / {} us each = {}/s, which is {:.3} million per second\n",
            latency_ns as f64 / 1e3,
            grouped(per_s),
            per_s as f64 / 1e6
        ))?;
    }
    Ok(Exit::Done)
}

fn put_back(path: Option<&Path>, sysctls: &Sysctls, json: bool) -> Result<Exit, Failure> {
    let path = path.ok_or_else(|| {
        Failure::input("for which load? Give --app, --rate, --size and --stall, or --undo FILE")
    })?;
    let all = undo(path, sysctls).map_err(Failure::input)?;
    let stays = all.iter().any(|back| back.now != back.before);
    if json {
        let changes: Vec<Value> = all.iter().map(change).collect();
        terminal::print_json(&json!({ "verb": "doctor", "put_back": changes }), false)?;
    } else {
        let line = |back: &PutBack| match back.now == back.before {
            true => format!("{}: {} as before\n", back.setting.name(), back.now),
            false => format!(
                "{}: left at {}; it was {} before, was made {}, and another program changed it since\n",
                back.setting.name(),
                back.now,
                back.before,
                back.left
            ),
        };
        terminal::print(&all.iter().map(line).collect::<String>())?;
    }
    Ok(if stays { Exit::GoalMissed } else { Exit::Done })
}

fn text(app: &str, examined: &Examined, changed: &[PutBack], undo: Option<&Path>) -> String {
    let mut text = String::new();
    for finding in &examined.findings {
        let needed = grouped(finding.needed);
        let in_vain = finding.most_in_vain().map_or_else(String::new, |most| {
            let most = grouped(most);
            format!(", and the most that can be had is {most}: lower the rate or shorten the stall")
        });
        let found = match finding.found {
            Some(found) if finding.is_short() => {
                format!("too small: {}, should be {needed}{in_vain}", grouped(found))
            }
            Some(found) => format!("ok: {}, {needed} are needed", grouped(found)),
            None if finding.setting.is_some() => {
                format!("not to be seen in this network namespace; {needed} are needed{in_vain}")
            }
            None => format!("use {needed}"),
        };
        text.push_str(&format!("{}: {found}\n  why: {}\n", finding.name, finding.why));
        if let Some(granted) = &finding.granted {
            text.push_str(&format!("  a socket: {granted}\n"));
        }
    }
    for back in changed {
        text.push_str(&format!(
            "changed {}: {} -> {}\n",
            back.setting.name(),
            back.before,
            back.now
        ));
    }
    if let (false, Some(undo)) = (changed.is_empty(), undo) {
        text.push_str(&format!("as they were again: laneway doctor --undo {}\n", undo.display()));
    } else if !examined.short().is_empty() {
        text.push_str(&format!(
            "to change what is too small for {app}: --output FILE writes it for /etc/sysctl.d, --fix --undo FILE \
             does it now\n"
        ));
    }
    text
}

fn as_json(app: &str, load: &Load, examined: &Examined, changed: &[PutBack]) -> Value {
    let finding = |it: &Finding| {
        json!({
            "name": it.name,
            "found": it.found,
            "needed": it.needed,
            "short": it.is_short(),
            "most_in_vain": it.most_in_vain(),
            "why": it.why,
            "granted": it.granted,
        })
    };
    let sizes = &examined.sizes;
    json!({
        "verb": "doctor",
        "app": app,
        "rate_per_s": load.rate_per_s,
        "bytes": load.bytes,
        "stall_ns": load.stall_ns,
        "outputs": load.outputs,
        "groups": load.groups,
        "datagrams_in": sizes.datagrams_in,
        "datagrams_out": sizes.datagrams_out,
        "ring_depth": sizes.ring_depth,
        "truesize": sizes.truesize,
        "receive_bytes": sizes.receive_bytes,
        "send_bytes": sizes.send_bytes,
        "findings": examined.findings.iter().map(finding).collect::<Vec<Value>>(),
        "changed": changed.iter().map(change).collect::<Vec<Value>>(),
    })
}

fn change(it: &PutBack) -> Value {
    json!({
        "name": it.setting.name(),
        "before": it.before,
        "left": it.left,
        "found": it.found,
        "now": it.now,
    })
}
