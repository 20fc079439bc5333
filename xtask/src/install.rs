//! The Debian packages that building, racing and testing need, each with its reason.
//!
//! Assumes Debian 12 or newer with the Rust toolchain in place. As root it installs what is missing
//! and starts no service; otherwise it prints the command and stops. Removes nothing, adds no
//! package source, and downloads nothing but Debian's packages.

use std::process::{Command, Stdio};

use crate::Trouble;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Build,
    Race,
    Test,
    Vm,
}

struct Package {
    name: &'static str,
    group: Group,
    why: &'static str,
}

const PACKAGES: &[Package] = &[
    need(
        "gcc",
        Group::Build,
        "links Rust programs; compiles vendored libbpf and the host half of shared headers",
    ),
    need("libc6-dev", Group::Build, "the C library's headers, which gcc only recommends"),
    need("make", Group::Build, "builds vendored libbpf"),
    need("pkg-config", Group::Build, "tells libbpf's build where libelf and zlib are"),
    need("clang-19", Group::Build, "compiles the eBPF programs"),
    need("libbpf-dev", Group::Build, "bpf_helpers.h, which the eBPF programs include"),
    need("libelf-dev", Group::Build, "libbpf reads eBPF object files with it"),
    need("zlib1g-dev", Group::Build, "libelf's compressed sections"),
    need("iproute2", Group::Race, "`ip`: namespaces, veth pairs and their addresses"),
    need(
        "ethtool",
        Group::Race,
        "reads and sets a veth's offloads, so that a result can state them",
    ),
    need(
        "libdpdk-dev",
        Group::Race,
        "lane dpdk: its shim is compiled where this is, and DPDK's drivers come with it",
    ),
    need("dpdk-dev", Group::Race, "dpdk-testpmd, the yardstick of lanes afxdp and dpdk"),
    need("util-linux", Group::Race, "`setpriv`: a peer ends with the race that started it"),
    need("iputils-ping", Group::Test, "a real ICMP peer"),
    need("iputils-arping", Group::Test, "a real ARP peer"),
    need("hping3", Group::Test, "pings with options, fragments and odd lengths"),
    need("nmap", Group::Test, "`nping`, an ICMP peer that builds its own packets"),
    need("netcat-openbsd", Group::Test, "a real UDP and TCP peer"),
    need("socat", Group::Test, "a real UDP and TCP peer, for bulk transfers too"),
    need("smcroute", Group::Test, "the kernel's multicast routing, a peer of races of a relay"),
    need("curl", Group::Test, "a real HTTP client over our TCP"),
    need(
        "redis-server",
        Group::Test,
        "a store of keys and values, the referee and peer of races of one",
    ),
    need("redis-tools", Group::Test, "`redis-cli`, a real RESP client over our TCP"),
    need("openssl", Group::Test, "a second opinion on TLS, in each of its versions"),
    need("iperf3", Group::Test, "a real bulk TCP client over our TCP"),
    need("bpftool", Group::Test, "pins a foreign program, beside which ours runs"),
    need("babeltrace2", Group::Test, "a second opinion on every event of a trace"),
    need("lttng-tools", Group::Test, "records the traces that `trace record --lttng` sets up"),
    need("liblttng-ust-dev", Group::Test, "cyg_profile, which traces an instrumented program"),
    need("tcpreplay", Group::Test, "a second opinion on replayed captures"),
    need("tcpdump", Group::Test, "a second opinion on frames and capture files"),
    need("tshark", Group::Test, "a second opinion on parsed columns"),
    need("python3-venv", Group::Test, "an environment for NFStream, whose flows ours must equal"),
    need(
        "user-mode-linux",
        Group::Test,
        "a kernel with tc flower, by which a TAP port of DPDK executes rules",
    ),
    need("busybox", Group::Test, "starts and ends that kernel"),
    need("jq", Group::Test, "reads what `--json` prints, in the guide's commands"),
    need("valgrind", Group::Test, "counts instructions, for `make bench-quick`"),
    need("gzip", Group::Test, "writes compressed captures that lane pcap must read"),
    need("zstd", Group::Test, "writes compressed captures that lane pcap must read"),
    need("qemu-system-x86", Group::Vm, "boots the kernels that Laneway says it runs on"),
    need("cpio", Group::Vm, "packs the first files of such a guest"),
    need("xz-utils", Group::Vm, "unpacks the modules of such a kernel"),
];

/// Crates that do not build without the build packages; whatever depends on them does not either.
pub(crate) const NEED_BUILD_PACKAGES: &[&str] = &["laneway-bpf-build", "libbpf-rs", "libbpf-sys"];

/// A service that a package brings must not start on a machine that only wants to build: Debian
/// asks `policy-rc.d`, and 101 means no. The shell removes it however apt ends, signals included;
/// a policy of the machine's own is left alone, one left by a killed run is taken over.
const APT: &str = r#"
set -eu
policy=/usr/sbin/policy-rc.d
mark='written by laneway xtask install'
if [ ! -e "$policy" ] || grep -qs "$mark" "$policy"; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" > "$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo 'xtask: apt-get update failed; trying with the lists at hand' >&2
apt-get install -y -qq --no-install-recommends \
    -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"
"#;

const fn need(name: &'static str, group: Group, why: &'static str) -> Package {
    Package { name, group, why }
}

/// The groups that the flags name. Each includes those before it: building, racing, testing, guests.
pub(crate) fn groups(flags: &[&str]) -> Result<Vec<Group>, Trouble> {
    let mut groups = vec![Group::Build];
    for flag in flags {
        match *flag {
            "--build" => {}
            "--race" => groups.push(Group::Race),
            "--test" => groups.extend([Group::Race, Group::Test]),
            "--vm" => groups.extend([Group::Race, Group::Test, Group::Vm]),
            other => {
                return Err(Trouble(format!(
                    "no group `{other}`; there are --build, --race, --test and --vm"
                )));
            }
        }
    }
    Ok(groups)
}

/// What `groups` need: one line per package, with its reason.
pub(crate) fn table(groups: &[Group]) -> String {
    lines(&wanted(groups))
}

/// The missing packages of `groups`; `None` where dpkg cannot tell.
pub(crate) fn missing(groups: &[Group]) -> Option<Vec<&'static str>> {
    let missing = missing_packages(groups)?;
    Some(missing.iter().map(|package| package.name).collect())
}

/// Makes sure that the packages of `groups` are there, or says what to do.
pub(crate) fn install(groups: &[Group]) -> Result<(), Trouble> {
    let Some(missing) = missing_packages(groups) else {
        return Err(Trouble(format!(
            "no dpkg-query here, so packages cannot be checked; on Debian these are needed, find \
             your system's names for them:\n{}",
            table(groups)
        )));
    };
    if missing.is_empty() {
        println!("install: all {} packages are there", wanted(groups).len());
        return Ok(());
    }
    print!("install: missing {} packages:\n{}", missing.len(), lines(&missing));
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !is_root() {
        return Err(Trouble(format!(
            "installing needs root; run:\n  sudo apt-get update && sudo apt-get install -y \
             --no-install-recommends {}",
            names.join(" ")
        )));
    }
    let status = Command::new("sh")
        .args(["-c", APT, "xtask-install"])
        .args(&names)
        .stdin(Stdio::null())
        .status()
        .map_err(|e| Trouble(format!("sh did not start: {e}")))?;
    if !status.success() {
        return Err(Trouble(format!(
            "apt-get ended with {status}; its message is above; packages: {}",
            names.join(" ")
        )));
    }
    println!("install: done");
    Ok(())
}

fn wanted(groups: &[Group]) -> Vec<&'static Package> {
    PACKAGES.iter().filter(|package| groups.contains(&package.group)).collect()
}

fn missing_packages(groups: &[Group]) -> Option<Vec<&'static Package>> {
    let wanted = wanted(groups);
    // One call for all; it exits 1 as soon as one is unknown, which is not an error here.
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(wanted.iter().map(|package| package.name))
        .output()
        .ok()?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(wanted.into_iter().filter(|package| !is_installed(&listing, package.name)).collect())
}

fn is_installed(listing: &str, name: &str) -> bool {
    listing.lines().any(|line| line.split_once(' ') == Some((name, "installed")))
}

fn lines(packages: &[&Package]) -> String {
    packages.iter().map(|package| format!("  {:<14} {}\n", package.name, package.why)).collect()
}

/// Whether the effective user is root, as the kernel states it; no C call, so no unsafe code.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_user(&status) == Some("0")
}

/// The second of the four numbers in `Uid: real effective saved filesystem`.
fn effective_user(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(flags: &[&str]) -> Vec<&'static str> {
        let groups = groups(flags).expect("the flags of this test are known");
        wanted(&groups).iter().map(|package| package.name).collect()
    }

    #[test]
    fn testing_includes_racing_and_racing_includes_building() {
        assert!(names(&[]).contains(&"clang-19"));
        assert!(!names(&["--build"]).contains(&"ethtool"));
        assert!(names(&["--race"]).contains(&"ethtool"));
        assert!(!names(&["--race"]).contains(&"tshark"));
        assert!(!names(&["--test"]).contains(&"qemu-system-x86"));
        assert_eq!(names(&["--vm"]).len(), PACKAGES.len());
    }

    #[test]
    fn every_package_is_listed_once_and_gives_a_reason() {
        for package in PACKAGES {
            assert_eq!(PACKAGES.iter().filter(|p| p.name == package.name).count(), 1);
            assert!(!package.why.is_empty(), "{}", package.name);
        }
    }

    #[test]
    fn an_unknown_group_is_refused_by_name() {
        let trouble = groups(&["--all"]).expect_err("no such group");
        assert!(trouble.to_string().contains("--all"));
    }

    #[test]
    fn a_removed_package_whose_settings_remain_is_missing() {
        let listing = "gcc installed\nmake config-files\n";
        assert!(is_installed(listing, "gcc"));
        assert!(!is_installed(listing, "make"));
        assert!(!is_installed(listing, "gc"));
    }

    #[test]
    fn the_effective_user_decides() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t1000\t1000\n"), Some("0"));
        assert_eq!(effective_user(""), None);
    }
}
