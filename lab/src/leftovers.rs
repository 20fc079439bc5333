//! What a program of others leaves in the namespace of its arm, and what the process that kept it left there because it
//! was killed: the next arm on those cables is to find what this one found.
//!
//! What is there is known by the command that takes it away, so that what is there beyond that later is what to run.
//! Links go with their addresses, and addresses with the routes that the kernel made for them, so a command may have
//! nothing left to do. What was changed or taken away is not put back, but for [`NO_PINGS`].

use laneway_netns::{Error, Namespace, WeakNamespace};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// Where the kernel is asked to leave pings to others, in the namespace of the thread.
pub(crate) const NO_PINGS: &str = "/proc/sys/net/ipv4/icmp_echo_ignore_all";

/// A program and its arguments.
type Removal = Vec<String>;

/// What a namespace held when an arm began; what it holds beyond that is removed when this is dropped, behind the arm.
pub(crate) struct Leftovers {
    namespace: WeakNamespace,
    before: BTreeSet<Removal>,
    no_pings: Option<String>,
}

impl Leftovers {
    /// Looks at `namespace`.
    ///
    /// # Errors
    /// When it cannot be entered.
    pub(crate) fn of(namespace: &Namespace) -> Result<Leftovers, Error> {
        let (before, no_pings) =
            namespace.enter(|| (removals(), fs::read_to_string(NO_PINGS).ok()))?;
        Ok(Leftovers { namespace: namespace.downgrade(), before, no_pings })
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        let remove = || {
            for removal in removals().difference(&self.before) {
                printed(removal);
            }
            if let Some(before) = &self.no_pings {
                let _ = fs::write(NO_PINGS, before.trim_end());
            }
        };
        // It may have gone, with all that lay in it.
        let _ = self.namespace.enter(remove);
    }
}

/// What takes away each thing in the namespace of the calling thread that a program may have made.
fn removals() -> BTreeSet<Removal> {
    let mut all = BTreeSet::new();
    let mut add = |words: &[&str]| {
        all.insert(words.iter().map(|&word| word.to_owned()).collect());
    };
    for line in lines("ip -o link show") {
        let Some(name) = line.split_whitespace().nth(1) else { continue };
        // `sut0@if7:`
        let name = name.split(['@', ':']).next().unwrap_or(name);
        add(&["ip", "link", "del", "dev", name]);
        let modes = line.split_whitespace().filter_map(|word| word.split('/').next());
        for mode in modes.filter(|mode| ["xdp", "xdpgeneric"].contains(mode)) {
            add(&["ip", "link", "set", "dev", name, mode, "off"]);
        }
    }
    for line in lines("ip -o address show") {
        // `7: sut0    inet 10.77.0.2/24 scope global sut0`. Those of a link are the kernel's.
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, name, "inet" | "inet6", address, ..] = words[..]
            && !address.starts_with("fe80:")
        {
            add(&["ip", "address", "del", address, "dev", name]);
        }
    }
    for family in ["-4", "-6"] {
        for line in lines(&format!("ip {family} route show table all")) {
            let words = route(&line);
            if !words.is_empty() {
                add(&[&["ip", family, "route", "del"][..], &words].concat());
            }
        }
    }
    for line in lines("tc qdisc show") {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            // The kernel's own has no handle.
            ["qdisc", _, "0:", ..] => {}
            ["qdisc", kind @ ("clsact" | "ingress"), _, "dev", name, ..] => {
                add(&["tc", "qdisc", "del", "dev", name, kind]);
            }
            ["qdisc", _, _, "dev", name, "root", ..] => {
                add(&["tc", "qdisc", "del", "dev", name, "root"]);
            }
            _ => {}
        }
    }
    for line in lines("nft list tables") {
        if let ["table", family, name] = line.split_whitespace().collect::<Vec<_>>()[..] {
            add(&["nft", "delete", "table", family, name]);
        }
    }
    all
}

/// A route as it is named to be removed; nothing of one that the kernel made, or of the next hops of another.
fn route(line: &str) -> Vec<&str> {
    if line.starts_with(char::is_whitespace) || line.contains(" proto kernel") {
        return Vec::new();
    }
    // Of what stands there beside it, some is no part of its name.
    let words = line.split_whitespace();
    words.filter(|word| !["linkdown", "dead", "offload", "trap"].contains(word)).collect()
}

fn lines(command: &str) -> Vec<String> {
    let words: Removal = command.split(' ').map(str::to_owned).collect();
    printed(&words).lines().map(str::to_owned).collect()
}

/// What a program prints; nothing if it is not there, or fails.
fn printed(words: &[String]) -> String {
    let Some((program, arguments)) = words.split_first() else { return String::new() };
    let mut command = Command::new(program);
    let ran = command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    ran.map_or_else(|_| String::new(), |ran| String::from_utf8_lossy(&ran.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_netns::can_create;
    use laneway_testkit::skip;

    fn run(line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = Command::new(words[0]).args(&words[1..]).output().expect("it is there");
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    #[test]
    fn what_was_not_there_is_removed_and_what_was_stays() {
        if can_create().map_err(skip).is_err() {
            return;
        }
        let namespace = Namespace::create("leftovers").unwrap();
        let all = || namespace.enter(removals).unwrap();
        namespace
            .enter(|| {
                run("ip link add sut0 type veth peer name sut1");
                run("ip address add 10.77.0.2/24 dev sut0");
                run("ip link set dev sut0 up");
                run("ip link set dev sut1 up");
                run("ip route add 10.60.0.0/16 dev sut0");
                run("tc qdisc add dev sut1 root pfifo limit 100");
            })
            .unwrap();
        let before = all();
        let shown = format!("{before:?}");
        for part in ["10.77.0.2/24", "10.60.0.0/16", r#""sut1", "root""#] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let leftovers = Leftovers::of(&namespace).unwrap();
        namespace
            .enter(|| {
                run("ip link add left type veth peer name right");
                run("ip address add 10.9.9.9/24 dev sut0");
                run("ip route add 10.61.0.0/16 via 10.77.0.9 metric 7");
                run("ip route add blackhole 10.62.0.0/16 table 99");
                run("tc qdisc add dev sut0 clsact");
                run("tc qdisc add dev sut0 root pfifo limit 100");
                fs::write(NO_PINGS, "1").unwrap();
            })
            .unwrap();
        assert!(all().len() >= before.len() + 6, "{:?}", all());
        drop(leftovers);
        assert_eq!(all(), before);
        let no_pings = namespace.enter(|| fs::read_to_string(NO_PINGS)).unwrap().unwrap();
        assert_eq!(no_pings.trim(), "0");
    }

    #[test]
    fn routes_of_the_kernel_are_its_own() {
        for line in [
            "local 10.77.0.2 dev sut0 table local proto kernel scope host src 10.77.0.2",
            "\tnexthop via 10.77.0.9 dev sut0 weight 1",
        ] {
            assert_eq!(route(line), [""; 0], "{line}");
        }
        let down = route("10.1.0.0/16 dev sut0 scope link linkdown");
        assert_eq!(down.join(" "), "10.1.0.0/16 dev sut0 scope link");
    }
}
