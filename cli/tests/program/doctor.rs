//! `laneway doctor`: what it says and what it leaves alone. What it changes and puts back is tried in `crates/doctor`,
//! on settings of a namespace and of a folder, never on this machine's.

use crate::output::{Folder, laneway};
use std::fs;

/// More than any machine has room for.
const LOAD: [&str; 9] =
    ["doctor", "--app", "echo", "--rate", "10000000", "--size", "1316", "--stall", "1s"];

#[test]
fn the_founding_reports_limit_is_millions() {
    let output = laneway(["doctor", "--depth", "128", "--stall", "3.26us"]).done().lines();
    assert!(
        output[0].contains("39,263,803/s") && output[0].contains("39.264 million"),
        "{output:?}"
    );
    let output = laneway(["doctor", "--depth", "1024", "--stall", "3.26us", "--json"]).done();
    assert_eq!(output.json()["carried_per_s"], 314_110_429);
}

#[test]
fn what_is_too_small_is_reported_with_its_sum_and_written_for_sysctl() {
    let folder = Folder::new();
    let file = folder.file("90-laneway.conf");
    let output = laneway([&LOAD[..], &["--output", &file]].concat());
    let printed = output.lines().join("\n");
    assert_eq!(output.code, Some(1), "{printed} {}", output.err);
    for part in [
        "net.core.wmem_max: too small: ",
        "10000000/s x 1 s = 10000000 datagrams x 2304 bytes of truesize (1316 bytes of payload",
        "should be 11,520,000,000, and the most that can be had is 1,073,741,823: lower the rate",
        "a socket: asked for 1073741823, granted ",
        "--fix --undo FILE",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# laneway doctor --app echo --rate 10000000 "), "{text}");
    assert!(text.contains("\nnet.core.wmem_max = 1073741823\n"), "{text}");

    let output = laneway([&LOAD[..], &["--outputs", "8", "--json"]].concat());
    let json = output.json();
    assert_eq!(json["send_bytes"], 10_000_000_u64 * 2304);
    assert_eq!(json["ring_depth"], 1 << 27);
    let short = json["findings"].as_array().unwrap().iter().filter(|it| it["short"] == true);
    assert!(short.count() > 0, "{json:#}");
    assert_eq!(json["findings"][0]["most_in_vain"], 1_073_741_823);
}

#[test]
fn what_cannot_be_is_refused_with_what_to_try_and_changes_nothing() {
    let folder = Folder::new();
    let foreign = folder.file("foreign.conf");
    fs::write(&foreign, "net.core.wmem_max = 1\n").unwrap();
    laneway(["doctor", "--undo", &foreign]).refused(2, &["line 1", "nothing was changed"]);
    laneway(["doctor", "--undo", "/nowhere/undo"]).refused(2, &["/nowhere/undo"]);
    let with = |more: &[&str]| laneway([&LOAD[..], more].concat());
    with(&["--fix"]).refused(2, &["--undo"]);
    with(&["--undo", &foreign]).refused(2, &["add --fix"]);
    with(&["--outputs", "0"]).refused(2, &["0 outputs"]);
    let app = ["doctor", "--app", "forward", "--rate", "1", "--size", "1", "--stall", "1s"];
    laneway(app).refused(2, &["app forward asks nothing", "echo"]);
    laneway(["doctor", "--rate", "1"]).refused(2, &["--app"]);
    assert!(fs::exists(&foreign).unwrap());
}
