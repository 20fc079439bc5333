//! Which crates may depend on which.
//!
//! `cli, python` -> `lab` -> `registry` -> `{engine, lanes, apps}` -> `kinds` -> `{flow, terminal, ...}` -> `spec` ->
//! `core`; `wire` stands beside it, `bpf`, `stack` and `tls` stand below those that use them.
//! A crate may skip a level, never climb one, and never reaches sideways: what two need goes down
//! into a named crate. The table below is the picture in ARCHITECTURE.md, row by row.

use super::{Violation, numbered};
use crate::tree::Tree;
use crate::workspace::{Dependency, Member, Use};

/// A kind of crate: its folders (`x/*` is every folder directly in `x`) and the kinds it may use.
struct Role {
    name: &'static str,
    folders: &'static [&'static str],
    may_use: &'static [&'static str],
}

const ROLES: &[Role] = &[
    Role { name: "wire", folders: &["crates/wire"], may_use: &[] },
    Role { name: "core", folders: &["crates/core"], may_use: &[] },
    Role { name: "random", folders: &["crates/random"], may_use: &[] },
    Role { name: "spec", folders: &["crates/spec"], may_use: &["core"] },
    Role {
        name: "shared",
        folders: &[
            "crates/capture",
            "crates/confine",
            "crates/control",
            "crates/doctor",
            "crates/flow",
            "crates/journal",
            "crates/linux",
            "crates/metrics",
            "crates/page",
            "crates/resp",
            "crates/terminal",
            "crates/tracer",
        ],
        may_use: &["random", "spec", "core", "wire"],
    },
    Role {
        name: "stack",
        folders: &["crates/stack"],
        may_use: &["kinds", "random", "spec", "core", "wire"],
    },
    Role { name: "tls", folders: &["crates/tls"], may_use: &["kinds", "spec", "core", "wire"] },
    Role { name: "bpf", folders: &["crates/bpf"], may_use: &["spec", "core", "wire"] },
    Role {
        name: "engine",
        folders: &["crates/engine"],
        may_use: &["kinds", "shared", "bpf", "spec", "core", "wire"],
    },
    Role {
        name: "kinds",
        folders: &["crates/kinds"],
        may_use: &["shared", "spec", "core", "wire"],
    },
    Role {
        name: "lane",
        folders: &["lanes/*"],
        may_use: &["kinds", "shared", "bpf", "random", "spec", "core", "wire"],
    },
    Role {
        name: "app",
        folders: &["apps/*"],
        may_use: &["kinds", "shared", "bpf", "tls", "random", "spec", "core", "wire"],
    },
    Role { name: "stats", folders: &["crates/stats"], may_use: &["random"] },
    Role { name: "netns", folders: &["lab/netns"], may_use: &["shared", "spec", "core", "wire"] },
    Role { name: "trace-read", folders: &["trace/read"], may_use: &["shared"] },
    Role {
        name: "trace",
        folders: &["trace"],
        may_use: &["trace-read", "stats", "random", "shared"],
    },
    Role {
        name: "trace-export",
        folders: &["trace/export"],
        may_use: &["trace", "trace-read", "stats", "shared"],
    },
    Role {
        name: "trace-record",
        folders: &["trace/record"],
        may_use: &["trace-read", "shared", "bpf", "spec", "core", "wire"],
    },
    Role {
        name: "trace-planted",
        folders: &["trace/planted"],
        may_use: &["trace", "trace-read", "random"],
    },
    Role {
        name: "trace-gallery",
        folders: &["trace/gallery"],
        may_use: &["netns", "random", "shared", "spec", "core", "wire"],
    },
    Role {
        name: "lab",
        folders: &["lab"],
        may_use: &[
            "registry", "kinds", "engine", "stats", "netns", "stack", "random", "shared", "bpf",
            "spec", "core", "wire",
        ],
    },
    Role {
        name: "registry",
        folders: &["registry"],
        may_use: &[
            "engine", "lane", "app", "kinds", "stack", "shared", "bpf", "spec", "core", "wire",
        ],
    },
    Role {
        name: "front",
        folders: &["cli", "python"],
        may_use: &[
            "lab",
            "registry",
            "kinds",
            "engine",
            "stats",
            "netns",
            "stack",
            "shared",
            "bpf",
            "spec",
            "core",
            "wire",
            "trace",
            "trace-read",
            "trace-export",
            "trace-record",
        ],
    },
    Role {
        name: "testkit",
        folders: &["crates/testkit"],
        may_use: &["engine", "netns", "random", "shared", "bpf", "spec", "core", "wire"],
    },
    Role {
        name: "example",
        folders: &["examples/*"],
        may_use: &["front", "kinds", "shared", "spec", "core", "wire"],
    },
    Role {
        name: "bench",
        folders: &["bench"],
        may_use: &[
            "app",
            "lane",
            "kinds",
            "stack",
            "trace-read",
            "testkit",
            "shared",
            "spec",
            "core",
            "wire",
        ],
    },
    Role { name: "bpf-build", folders: &["crates/bpf-build"], may_use: &[] },
    Role { name: "xtask", folders: &["xtask"], may_use: &[] },
];

/// What any crate's tests may use besides, and nothing else may.
const IN_TESTS: &[&str] = &["testkit", "netns", "random"];

/// What the tests of an app, of the engine, of the stack or of TLS may use besides: a world to run in. The crate itself
/// still knows no lane.
const WORLDS: &[&str] = &["engine", "lane"];
const RUN_IN_WORLDS: &[&str] = &["engine", "stack", "tls", "app"];

/// What the tests of the lab and of the program may use besides: both are made for any lane and app, and are tried
/// with some.
const ROWS: &[&str] = &["lane", "app"];
const TRIED_WITH_ROWS: &[&str] = &["lab", "front"];

/// What the tests of the analysis may use besides: traces whose truth is known.
const TRUTHS: &[&str] = &["trace-planted"];
const TRIED_WITH_TRUTHS: &[&str] = &["trace"];

/// What the tests of the program may use besides: the judge of what it says of a trace, which runs it as a process.
const JUDGES: &[&str] = &["trace-gallery"];
const JUDGED: &[&str] = &["front"];

/// What any crate's build script may use; a build script uses nothing else of ours.
const IN_BUILD_SCRIPTS: &[&str] = &["bpf-build"];

pub(super) fn check(tree: &Tree, members: &[Member]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for member in members {
        let manifest = format!("{}/Cargo.toml", member.folder);
        let Some(role) = role_of(&member.folder) else {
            violations.push(Violation::new(
                &manifest,
                1,
                "arrows",
                format!(
                    "`{}` has no role; put it in a folder of ROLES in \
                     xtask/src/tidy/arrows.rs, or add a row there",
                    member.name
                ),
            ));
            continue;
        };
        for dependency in &member.dependencies {
            if let Some(what) = complaint(member, role, dependency) {
                let line = line_naming(tree, &manifest, &dependency.name);
                violations.push(Violation::new(&manifest, line, "arrows", what));
            }
        }
    }
    violations
}

fn complaint(member: &Member, role: &Role, dependency: &Dependency) -> Option<String> {
    let folder = dependency.folder.as_deref()?;
    let (from, to) = (&member.name, &dependency.name);
    let Some(used) = role_of(folder) else {
        return Some(format!(
            "`{from}` depends on `{to}` in `{folder}`, which is no crate of ours"
        ));
    };
    let (allowed, place) = match dependency.used_in {
        Use::Normal => (role.may_use.to_vec(), ""),
        Use::Test => {
            let worlds = if RUN_IN_WORLDS.contains(&role.name) { WORLDS } else { &[] };
            let rows = if TRIED_WITH_ROWS.contains(&role.name) { ROWS } else { &[] };
            let truths = if TRIED_WITH_TRUTHS.contains(&role.name) { TRUTHS } else { &[] };
            let judges = if JUDGED.contains(&role.name) { JUDGES } else { &[] };
            ([role.may_use, IN_TESTS, worlds, rows, truths, judges].concat(), " in its tests")
        }
        Use::Build => (IN_BUILD_SCRIPTS.to_vec(), " in its build script"),
    };
    if allowed.contains(&used.name) {
        return None;
    }
    let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
    Some(format!(
        "`{from}` ({}) depends on `{to}` ({}){place}, but may use only: \
         {allowed}; move what both need down into a named crate",
        role.name, used.name
    ))
}

fn role_of(folder: &str) -> Option<&'static Role> {
    let matches = |pattern: &&str| match pattern.strip_suffix("/*") {
        Some(parent) => folder.rsplit_once('/').is_some_and(|(above, _)| above == parent),
        None => folder == *pattern,
    };
    ROLES.iter().find(|role| role.folders.iter().any(matches))
}

fn line_naming(tree: &Tree, manifest: &str, dependency: &str) -> usize {
    let text = tree.text(manifest).unwrap_or_default();
    numbered(text.lines())
        .find(|(_, line)| {
            line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        })
        .map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::member_of;

    fn complaints(from: &str, to: &str, used_in: Use) -> usize {
        check(&Tree::default(), &[member_of("a", from, &[("b", to, used_in)])]).len()
    }

    #[test]
    fn arrows_of_the_design_are_allowed() {
        for (from, to) in [
            ("crates/spec", "crates/core"),
            ("crates/flow", "crates/spec"),
            ("crates/flow", "crates/core"),
            ("lanes/xdp", "crates/bpf"),
            ("apps/features", "crates/flow"),
            ("registry", "lanes/packet"),
            ("registry", "apps/features"),
            ("lab", "registry"),
            ("cli", "lab"),
            ("python", "crates/engine"),
        ] {
            assert_eq!(complaints(from, to, Use::Normal), 0, "{from} -> {to}");
        }
    }

    #[test]
    fn climbing_and_reaching_sideways_are_refused() {
        for (from, to) in [
            ("crates/wire", "crates/core"),
            ("crates/core", "crates/flow"),
            ("crates/flow", "crates/resp"),
            ("crates/flow", "crates/engine"),
            ("lanes/xdp", "lanes/afxdp"),
            ("lanes/xdp", "apps/features"),
            ("apps/features", "apps/echo"),
            ("lab", "cli"),
            ("crates/stats", "lab"),
        ] {
            assert_eq!(complaints(from, to, Use::Normal), 1, "{from} -> {to}");
            assert_eq!(complaints(from, to, Use::Test), 1, "{from} -> {to} in tests");
        }
    }

    #[test]
    fn an_app_and_the_engine_meet_lanes_in_their_tests_only() {
        for from in ["apps/features", "crates/engine"] {
            assert_eq!(complaints(from, "lanes/pcap", Use::Test), 0);
            assert_eq!(complaints(from, "lanes/pcap", Use::Normal), 1);
        }
    }

    #[test]
    fn the_table_alone_knows_lanes_and_apps_and_the_tests_of_lab_and_program_meet_some() {
        for from in ["lab", "cli"] {
            for to in ["lanes/sim", "apps/echo"] {
                assert_eq!(complaints(from, to, Use::Test), 0, "{from} -> {to} in tests");
                assert_eq!(complaints(from, to, Use::Normal), 1, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn the_judge_of_traces_knows_no_analysis_and_judges_the_program_in_its_tests_alone() {
        for to in ["trace", "trace/read", "trace/record"] {
            assert_eq!(complaints("trace/gallery", to, Use::Normal), 1, "{to}");
        }
        assert_eq!(complaints("cli", "trace/gallery", Use::Test), 0);
        assert_eq!(complaints("cli", "trace/gallery", Use::Normal), 1);
        assert_eq!(complaints("trace", "trace/gallery", Use::Test), 1);
        assert_eq!(complaints("trace", "trace/planted", Use::Test), 0);
        assert_eq!(complaints("trace", "trace/planted", Use::Normal), 1);
    }

    #[test]
    fn the_testkit_is_for_tests_and_bpf_build_for_build_scripts() {
        assert_eq!(complaints("lanes/sim", "crates/testkit", Use::Test), 0);
        assert_eq!(complaints("lanes/sim", "lab/netns", Use::Test), 0);
        assert_eq!(complaints("lanes/sim", "crates/testkit", Use::Normal), 1);
        assert_eq!(complaints("lanes/xdp", "crates/bpf-build", Use::Build), 0);
        assert_eq!(complaints("lanes/xdp", "crates/bpf-build", Use::Normal), 1);
        assert_eq!(complaints("lanes/xdp", "crates/core", Use::Build), 1);
    }

    #[test]
    fn outside_crates_are_not_our_business() {
        assert_eq!(complaints("crates/wire", "", Use::Normal), 0);
    }

    #[test]
    fn a_crate_in_no_known_folder_needs_a_row() {
        let violations = check(&Tree::default(), &[member_of("a", "extras/a", &[])]);
        assert!(violations[0].what.contains("no role"));
    }

    #[test]
    fn the_line_of_the_dependency_is_named() {
        let tree = Tree::of(&[(
            "lanes/a/Cargo.toml",
            "[dependencies]\nb-c = \"1\"\nb.workspace = true\n",
        )]);
        let member = member_of("a", "lanes/a", &[("b", "lanes/b", Use::Normal)]);
        assert_eq!(check(&tree, &[member])[0].line, 3);
    }
}
