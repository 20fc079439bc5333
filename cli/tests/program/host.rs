//! What the verbs say about the machine and about themselves.

use crate::output::{RunOutput, command, laneway, words};
use laneway_netns::can_create;
use laneway_testkit::skip;
use std::process::Command;

#[test]
fn help_of_every_verb_shows_an_example() {
    for verb in ["lanes", "run", "run features", "run echo", "features", "completions", "manual"] {
        let output = laneway(words(verb).into_iter().chain(["--help"])).done();
        let help = output.lines().join("\n");
        assert!(
            help.contains(&format!("  laneway {verb}"))
                || help.contains(&format!("  sudo laneway {verb}")),
            "{help}"
        );
    }
}

#[test]
fn without_arguments_the_help_is_the_answer_and_nothing_was_done() {
    let output = laneway([] as [&str; 0]);
    assert_eq!(output.code, Some(2));
    assert!(output.out.is_empty() && output.err.contains("Commands:"), "{}", output.err);
}

#[test]
fn completions_name_the_verbs_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let plain = laneway(["completions", shell]).done();
        assert!(plain.lines().iter().any(|line| line.contains("lanes")), "{shell}");
        let json = laneway(["completions", shell, "--json"]).done().json();
        assert_eq!(json["script"].as_str().unwrap().as_bytes(), plain.out, "{shell}");
    }
}

#[test]
fn the_manual_has_a_page_for_every_verb_and_the_tables_of_the_code() {
    let folder = std::env::temp_dir().join(format!("laneway-manual-{}", std::process::id()));
    let json = laneway(["manual", "--json", "--out", folder.to_str().unwrap()]).done().json();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert!(read("man/laneway-run-echo.1").contains(".TH"), "{json}");
    assert!(!folder.join("man/laneway-arm.1").exists(), "what no user calls has no page");
    assert!(read("completions/_laneway").contains("lanes"));
    assert!(read("reference/lanes.md").contains("`afxdp`"));
    assert!(read("reference/drop-reasons.md").contains("`rx_queue_full`"));
    let columns = read("reference/features-flows.md");
    assert!(columns.contains("| first_ts |"), "{columns}");
    std::fs::remove_dir_all(&folder).unwrap();
    let output = laneway(["manual", "--out", "/proc/nowhere"]);
    assert!(output.code == Some(2) && output.err.contains("/proc/nowhere"), "{}", output.err);
}

#[test]
fn a_closed_standard_output_ends_every_printing_verb_quietly() {
    for verb in ["lanes", "completions bash", "--help"] {
        // The reader ends without reading.
        let script = format!("{} {verb} | true; exit ${{PIPESTATUS[0]}}", crate::output::LANEWAY);
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let output = RunOutput::of(output);
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{verb}");
    }
}

#[test]
fn every_lane_is_asked_and_says_what_it_has_or_lacks() {
    if let Err(why) = can_create() {
        return skip(why);
    }
    let child = command(["lanes", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = RunOutput::of(child.wait_with_output().unwrap()).done();
    let json = output.json();
    let lanes = json["lanes"].as_array().unwrap();
    let names: Vec<&str> = lanes.iter().map(|lane| lane["lane"].as_str().unwrap()).collect();
    assert_eq!(names, ["packet", "socket", "uring", "xdp", "afxdp", "dpdk", "pcap", "sim"]);
    assert_eq!(output.err, "", "no lane says anything of its own");
    for lane in lanes {
        for mode in lane["modes"].as_array().unwrap() {
            let obtained = !mode["caps"].is_null();
            assert!(obtained != mode["missing"].is_object(), "one or the other: {mode}");
            let everywhere = ["packet", "socket", "xdp:generic", "pcap", "sim"];
            assert!(obtained || !everywhere.iter().any(|spec| mode["spec"] == *spec), "{mode}");
            // Something to type, or at least to do.
            let missing = &mode["missing"];
            let helps = missing["command"].is_string() || missing["remedy"].is_string();
            assert!(obtained || helps, "{mode}");
        }
    }
}

#[test]
fn asking_twice_gives_the_same_answers_and_leaves_no_trace_of_dpdk() {
    let answers = || -> Vec<String> {
        let child = command(["lanes"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let folder = format!("/run/dpdk/laneway-{}", child.id());
        let output = RunOutput::of(child.wait_with_output().unwrap()).done();
        assert!(!std::fs::exists(&folder).unwrap(), "{folder} is left");
        let links = Command::new("ip").args(["-br", "link"]).output().unwrap().stdout;
        assert!(!String::from_utf8(links).unwrap().contains("lwprobe"), "an interface is left");
        output.lines()
    };
    assert_eq!(answers(), answers());
}

#[test]
fn without_privilege_lanes_say_what_is_missing_and_how_to_get_it() {
    let Some(mut unprivileged) = crate::live::as_unprivileged(&["lanes", "--json"]) else { return };
    let output = RunOutput::of(unprivileged.output().unwrap()).done();
    for lane in output.json()["lanes"].as_array().unwrap() {
        for mode in lane["modes"].as_array().unwrap() {
            match lane["lane"].as_str().unwrap() {
                "pcap" | "sim" | "socket" => assert!(mode["missing"].is_null(), "{mode}"),
                // Whether io_uring and DPDK without devices are there is another matter.
                "uring" | "dpdk" => {
                    assert_ne!(mode["missing"]["command"], "laneway lanes", "{mode}");
                }
                _ => {
                    assert_eq!(mode["missing"]["command"], "sudo laneway lanes", "{mode}");
                    let what = mode["missing"]["what"].as_str().unwrap();
                    assert!(what.contains("CAP_SYS_ADMIN"), "{what}");
                }
            }
        }
    }
}
