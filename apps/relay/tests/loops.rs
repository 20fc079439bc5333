//! Rules that would send in a circle, by what a kernel has: link-local addresses, and an interface of two names.

use laneway_netns::{Namespace, can_create};
use laneway_relay::RuleFile;
use laneway_testkit::skip;
use std::fs;

/// Why a file of one rule is refused, in the calling thread's namespace; an empty text where it is not.
fn refused(input: &str, output: &str) -> String {
    let file = format!(
        "allow = ['fe80::/10']\n[[rule]]\ninput = {{ {input}, port = 5000 }}\noutputs = [ {{ {output} }} ]\n"
    );
    let file = RuleFile::from_toml(&file).expect("well formed");
    file.check(&file.policy(&[], false)).err().unwrap_or_default()
}

#[test]
fn a_circle_is_seen_through_link_local_addresses_and_other_names() {
    if let Err(reason) = can_create() {
        return skip(reason);
    }
    let namespace = Namespace::create("loops").expect("a namespace");
    let ip = |arguments: &str| {
        let done = namespace.command("ip").args(arguments.split(' ')).status().expect("ip runs");
        assert!(done.success(), "ip {arguments}");
    };
    ip("link add name eth0 type veth peer name far0");
    ip("link property add dev eth0 altname enp3s0");
    for name in ["eth0", "far0"] {
        ip(&format!("link set {name} addrgenmode none"));
        let on = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        namespace.enter(|| fs::write(on, "0")).expect("a namespace").expect("it is ours");
        ip(&format!("link set {name} up"));
    }
    ip("address add fe80::5/64 dev eth0 nodad");
    namespace
        .enter(|| {
            let index = |name: &str| {
                let index = fs::read_to_string(format!("/sys/class/net/{name}/ifindex"));
                index.expect("it is there").trim().to_owned()
            };
            let any = "family = 'ipv6'";
            let (eth0, far0) = (index("eth0"), index("far0"));
            for (output, is_loop) in [
                (format!("destination = '[fe80::5%{eth0}]:5000'"), true),
                ("destination = '[fe80::5]:5000', interface = 'eth0'".to_owned(), true),
                ("destination = '[fe80::5]:5000', interface = 'enp3s0'".to_owned(), true),
                (format!("destination = '[fe80::5%{far0}]:5000'"), false),
                ("destination = '[fe80::5]:5000', interface = 'far0'".to_owned(), false),
                (format!("destination = '[fe80::6%{eth0}]:5000'"), false),
            ] {
                let why = refused(any, &output);
                assert_eq!(why.contains("come in again"), is_loop, "{output}: {why}");
                assert_eq!(why.is_empty(), !is_loop, "{output}: {why}");
            }
            for (output, is_loop) in [("eth0", true), ("enp3s0", true), ("far0", false)] {
                let to = format!("destination = '239.1.1.1:5000', interface = '{output}'");
                let why = refused("group = '239.1.1.1', interface = 'eth0'", &to);
                assert_eq!(why.contains("come in again"), is_loop, "{output}: {why}");
            }
        })
        .expect("a namespace");
}
