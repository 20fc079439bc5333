//! Speedscope's published file format (its `src/lib/file-format-spec.ts`, from which it makes
//! `file-format-schema.json`), written down by hand as a check: which keys there are, which must be there, what values
//! they take.
//!
//! The types of the specification and the constraints in its comments, both: order of time, balance of opens and
//! closes, indices within their arrays. Stricter in one thing: an unknown key is refused, because a misspelt optional
//! one would otherwise pass. For tests.

use serde_json::{Map, Value};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
const UNITS: [&str; 6] =
    ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"];
/// JavaScript's numbers are exact up to here.
const EXACT_MAX: u64 = 1 << 53;

type Checked<T = ()> = Result<T, String>;

/// Is this a `FileFormat.File`? Says where it is not.
pub(super) fn check(file: &Value) -> Checked {
    let required = ["$schema", "shared", "profiles"];
    let file = object(file, "file", &required, &["name", "activeProfileIndex", "exporter"])?;
    if file["$schema"] != SCHEMA {
        return Err(format!("$schema is {}", file["$schema"]));
    }
    for key in ["name", "exporter"] {
        file.get(key).map_or(Ok(""), |value| string(value, key))?;
    }
    let shared = object(&file["shared"], "shared", &["frames"], &[])?;
    let frames = array(&shared["frames"], "frames")?;
    frames.iter().try_for_each(check_frame)?;
    let profiles = array(&file["profiles"], "profiles")?;
    // Its reader takes the name of the first where the file has none.
    if profiles.is_empty() {
        return Err("there is no profile".to_owned());
    }
    if let Some(active) = file.get("activeProfileIndex")
        && number(active, "activeProfileIndex")? >= profiles.len() as u64
    {
        return Err(format!("activeProfileIndex is {active} of {}", profiles.len()));
    }
    profiles.iter().try_for_each(|profile| check_profile(profile, frames.len()))
}

fn check_frame(frame: &Value) -> Checked {
    let frame = object(frame, "frame", &["name"], &["file", "line", "col"])?;
    string(&frame["name"], "frame.name")?;
    frame.get("file").map_or(Ok(""), |file| string(file, "frame.file"))?;
    for key in ["line", "col"] {
        frame.get(key).map_or(Ok(0), |value| number(value, key))?;
    }
    Ok(())
}

/// An `EventedProfile`; of the other type we write none.
fn check_profile(profile: &Value, frames: usize) -> Checked {
    let required = ["type", "name", "unit", "startValue", "endValue", "events"];
    let profile = object(profile, "profile", &required, &[])?;
    if profile["type"] != "evented" {
        return Err(format!("profile.type is {}", profile["type"]));
    }
    string(&profile["name"], "profile.name")?;
    let unit = string(&profile["unit"], "profile.unit")?;
    if !UNITS.contains(&unit) {
        return Err(format!("profile.unit is {unit:?}"));
    }
    let start = number(&profile["startValue"], "startValue")?;
    let end = number(&profile["endValue"], "endValue")?;
    if end < start {
        return Err(format!("endValue {end} is before startValue {start}"));
    }
    let (mut open, mut last) = (Vec::new(), start);
    for event in array(&profile["events"], "events")? {
        let event = object(event, "event", &["type", "at", "frame"], &[])?;
        let at = number(&event["at"], "event.at")?;
        if !(last..=end).contains(&at) {
            return Err(format!("an event at {at} comes after {last}, and the end is {end}"));
        }
        last = at;
        let frame = number(&event["frame"], "event.frame")?;
        if frame >= frames as u64 {
            return Err(format!("frame {frame} of {frames}"));
        }
        match string(&event["type"], "event.type")? {
            "O" => open.push(frame),
            "C" if open.last() == Some(&frame) => _ = open.pop(),
            "C" => return Err(format!("frame {frame} is closed while {open:?} are open")),
            other => return Err(format!("event.type is {other:?}")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are never closed")) }
}

fn object<'v>(
    value: &'v Value,
    what: &str,
    required: &[&str],
    optional: &[&str],
) -> Checked<&'v Map<String, Value>> {
    let map = value.as_object().ok_or_else(|| format!("{what} is no object"))?;
    if let Some(missing) = required.iter().find(|key| !map.contains_key(**key)) {
        return Err(format!("{what} has no {missing}"));
    }
    let is_known = |key: &&String| [required, optional].concat().contains(&key.as_str());
    match map.keys().find(|key| !is_known(key)) {
        Some(unknown) => Err(format!("{what} has {unknown}, which the format does not know")),
        None => Ok(map),
    }
}

fn array<'v>(value: &'v Value, what: &str) -> Checked<&'v Vec<Value>> {
    value.as_array().ok_or_else(|| format!("{what} is no array"))
}

fn string<'v>(value: &'v Value, what: &str) -> Checked<&'v str> {
    value.as_str().ok_or_else(|| format!("{what} is no string"))
}

/// A number as we write them: whole, not negative, exact in JavaScript.
fn number(value: &Value, what: &str) -> Checked<u64> {
    let number = value.as_u64().filter(|&number| number <= EXACT_MAX);
    number.ok_or_else(|| format!("{what} is {value}, no whole number that JavaScript keeps"))
}
