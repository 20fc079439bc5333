//! Rule sets to compare placements under: written by hand, and drawn at random around the values that
//! the captures hold.

use laneway_forward::{CommandError, RuleRefused, RuleSet};
use laneway_testkit::Random;

/// Each is a whole set.
pub(crate) const BY_HAND: &[&str] = &[
    "flow create 0 ingress pattern eth / ipv4 src is 10.0.0.0/8 / udp dst is 53 / end \
     actions queue index 0 / count / end",
    "flow create 0 ingress pattern eth / ipv4 / tcp dst spec 80 dst last 1024 / end actions drop / end\n\
     flow create 0 ingress pattern eth / ipv4 / udp / end actions port_id id 1 / count / end\n\
     flow create 0 ingress pattern ipv6 / end actions port_id id 0 / end",
    "flow create 0 ingress pattern ipv4 / udp / end actions set_ipv4_src ipv4_addr 192.0.2.77 / \
     set_ipv4_dst ipv4_addr 198.51.100.3 / set_tp_src port 4711 / set_tp_dst port 1 / dec_ttl / \
     set_mac_src mac_addr 02:11:22:33:44:55 / count / end\n\
     flow create 0 ingress pattern ipv4 / tcp / end actions set_ipv4_src ipv4_addr 255.255.255.255 / \
     set_tp_dst port 65535 / end\n\
     flow create 0 ingress pattern ipv6 / tcp / end actions set_ipv6_src ipv6_addr 2001:db8::77 / \
     set_tp_src port 0 / dec_ttl / end\n\
     flow create 0 ingress pattern ipv6 / end actions set_ipv6_dst ipv6_addr ::1 / \
     set_mac_dst mac_addr 02:aa:bb:cc:dd:ee / end\n\
     flow create 0 ingress pattern ipv4 / end actions set_ipv4_dst ipv4_addr 10.9.8.7 / end",
    "flow create 0 priority 9 ingress pattern end actions drop / end\n\
     flow create 0 priority 1 ingress pattern ipv4 / end actions passthru / mark id 7 / \
     set_ipv4_dst ipv4_addr 10.0.0.2 / end\n\
     flow create 0 priority 2 ingress pattern ipv4 dst is 10.0.0.2 / udp / end \
     actions jump group 5 / set_tp_dst port 99 / end\n\
     flow create 0 priority 3 ingress pattern ipv4 / end actions rss queues 0 2 3 end / end\n\
     flow create 0 group 5 ingress pattern udp dst is 99 / end actions jump group 6 / end\n\
     flow create 0 group 5 priority 1 ingress pattern end actions drop / end\n\
     flow create 0 group 6 ingress pattern udp src spec 1 src last 1023 / end \
     actions queue index 1 / end",
    "flow create 0 ingress pattern vlan vid is 5 / end actions port_id id 1 / end\n\
     flow create 0 ingress pattern vlan / vlan vid spec 1 vid last 9 / end actions queue index 2 / end\n\
     flow create 0 ingress pattern vlan pcp is 3 / ipv6 / end actions drop / end\n\
     flow create 0 ingress pattern udp / vxlan vni is 5 / end actions drop / count / end\n\
     flow create 0 ingress pattern eth type is 0x0806 / end actions drop / end\n\
     flow create 0 ingress pattern eth dst spec 01:00:00:00:00:00 dst mask 01:00:00:00:00:00 / end \
     actions queue index 3 / end",
    "flow create 0 ingress pattern icmp type is 8 / end actions set_mac_dst mac_addr 2:0:0:0:0:9 / end\n\
     flow create 0 ingress pattern icmp6 type spec 128 type last 137 / end actions drop / end\n\
     flow create 0 ingress pattern tcp flags spec 2 flags mask 0x12 / end actions rss / end\n\
     flow create 0 ingress pattern ipv4 ttl spec 1 ttl last 63 / end actions dec_ttl / end\n\
     flow create 0 ingress pattern ipv4 fragment_offset spec 0x2000 fragment_offset mask 0x3fff / end \
     actions drop / end\n\
     flow create 0 ingress pattern ipv4 tos spec 0 tos mask 3 / end actions rss queues 1 3 end / end",
];

/// A rule that has something to do with one of the frames.
pub(crate) fn rule(draw: &mut Random, frames: &[Vec<u8>]) -> String {
    let frame = &frames[draw.below(frames.len() as u64) as usize];
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let word = |at: usize| u16::from_be_bytes([byte(at), byte(at + 1)]);
    let is_v6 = word(12) == 0x86dd;
    let mut pattern: Vec<String> = Vec::new();
    if draw.below(3) == 0 {
        pattern.push(match draw.below(2) {
            0 => "eth".to_owned(),
            _ => format!("eth type is {}", word(12)),
        });
    }
    let (ip, l4) = if is_v6 { ("ipv6", 54) } else { ("ipv4", 34) };
    if draw.below(5) != 0 {
        let side = draw.one_of(&["src", "dst"]);
        let from = if side == "src" { 0 } else { 1 };
        let address = match is_v6 {
            true => (0..8)
                .map(|i| format!("{:x}", word(22 + 16 * from + 2 * i)))
                .collect::<Vec<_>>()
                .join(":"),
            false => {
                (0..4).map(|i| byte(26 + 4 * from + i).to_string()).collect::<Vec<_>>().join(".")
            }
        };
        let bits = draw.below(if is_v6 { 129 } else { 33 });
        pattern.push(match draw.below(4) {
            0 => ip.to_owned(),
            1 => format!("{ip} {side} is {address}"),
            2 => format!("{ip} proto is {}", byte(if is_v6 { 20 } else { 23 })),
            _ => format!("{ip} {side} spec {address} {side} prefix {bits}"),
        });
    }
    let l4_name = match byte(if is_v6 { 20 } else { 23 }) {
        6 => Some("tcp"),
        17 => Some("udp"),
        1 => Some("icmp"),
        58 => Some("icmp6"),
        _ => None,
    };
    let has_ports = matches!(l4_name, Some("tcp" | "udp"));
    let mut names_l4 = false;
    if let Some(name) = l4_name.filter(|_| draw.below(2) == 0) {
        names_l4 = true;
        let (side, at) = if draw.below(2) == 0 { ("src", l4) } else { ("dst", l4 + 2) };
        let first = word(at) & !(draw.below(64) as u16);
        pattern.push(match draw.below(3) {
            0 if has_ports => format!("{name} {side} is {}", word(at)),
            1 if has_ports => format!("{name} {side} spec {first} {side} last {}", first | 63),
            _ => name.to_owned(),
        });
    }
    let names_ip = pattern.iter().any(|item| item.starts_with(ip));
    let mut actions: Vec<String> = Vec::new();
    if names_ip && draw.below(3) == 0 {
        let to = if is_v6 { "2001:db8::9".to_owned() } else { format!("10.0.0.{}", draw.below(4)) };
        let side = draw.one_of(&["src", "dst"]);
        actions.push(format!("set_{ip}_{side} {ip}_addr {to}"));
    }
    if names_ip && draw.below(4) == 0 {
        actions.push("dec_ttl".to_owned());
    }
    if names_l4 && has_ports && draw.below(2) == 0 {
        actions.push(format!("set_tp_{} port {}", draw.one_of(&["src", "dst"]), draw.below(100)));
    }
    if draw.below(4) == 0 {
        actions.push(format!("set_mac_dst mac_addr 02:00:00:00:00:{:02x}", draw.below(256)));
    }
    let group = draw.below(3);
    let fate = match draw.below(8) {
        0 => "drop".to_owned(),
        1 => format!("queue index {}", draw.below(4)),
        2 => "rss".to_owned(),
        3 => format!("port_id id {}", draw.below(2)),
        4 | 5 => "passthru".to_owned(),
        6 => format!("jump group {}", group + 1),
        _ => "count".to_owned(),
    };
    actions.push(fate);
    pattern.push("end".to_owned());
    actions.push("end".to_owned());
    format!(
        "flow create 0 group {group} priority {} ingress pattern {} actions {}",
        draw.below(6),
        pattern.join(" / "),
        actions.join(" / ")
    )
}

/// A rule of a large set: nearly all of them have values of their own under few masks, at mixed
/// priorities and in two groups; prefixes overlap, and some have the address of one of the frames.
pub(crate) fn large_rule(draw: &mut Random, frames: &[Vec<u8>]) -> String {
    let frame = &frames[draw.below(frames.len() as u64) as usize];
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let is_v6 = byte(12) == 0x86 && byte(13) == 0xdd;
    let (side, from) = if draw.below(2) == 0 { ("src", 0) } else { ("dst", 1) };
    let is_strange = draw.below(8) != 0;
    let (ip, address, bits) = if is_v6 {
        let words = (0..8).map(|i| {
            let at = 22 + 16 * from + 2 * i;
            let is_drawn = is_strange && i >= 2;
            let word = u16::from_be_bytes([byte(at), byte(at + 1)]);
            format!("{:x}", if is_drawn { draw.below(1 << 16) as u16 } else { word })
        });
        let address = words.collect::<Vec<_>>().join(":");
        ("ipv6", address, [48, 64, 96, 128][draw.below(4) as usize])
    } else {
        let bytes = (0..4).map(|i| {
            let is_drawn = is_strange && i >= 1;
            if is_drawn { draw.below(256) as u8 } else { byte(26 + 4 * from + i) }.to_string()
        });
        let address = bytes.collect::<Vec<_>>().join(".");
        ("ipv4", address, [20, 24, 28, 30, 32][draw.below(5) as usize])
    };
    let l4 = match byte(if is_v6 { 20 } else { 23 }) {
        6 if draw.below(3) == 0 => "tcp / ",
        17 if draw.below(3) == 0 => "udp / ",
        _ => "",
    };
    let group = u64::from(draw.below(4) == 0);
    let action = match draw.below(10) {
        0 => "drop".to_owned(),
        1 => format!("queue index {} / count", draw.below(4)),
        2 => "port_id id 1".to_owned(),
        3 | 4 => format!("jump group {}", group + 1),
        5 => format!("set_mac_dst mac_addr 02:00:00:00:00:{:02x} / passthru", draw.below(256)),
        6 => "dec_ttl / passthru".to_owned(),
        7 => format!("mark id {} / count", draw.below(9)),
        _ => "passthru".to_owned(),
    };
    format!(
        "flow create 0 group {group} priority {} ingress pattern {ip} {side} spec {address} \
         {side} prefix {bits} / {l4}end actions {action} / end",
        draw.below(6)
    )
}

/// Fills both sets with the same rules: those that the smaller one has room for.
pub(crate) fn fill_both(
    kernel: &mut RuleSet,
    user: &mut RuleSet,
    lines: impl Iterator<Item = String>,
) {
    for line in lines {
        match kernel.run(&line) {
            Ok(answer) => assert_eq!(user.run(&line), Ok(answer), "{line}"),
            Err(CommandError::Refused { why: RuleRefused::Full { .. }, .. }) => break,
            // Drawn parts may contradict each other.
            Err(CommandError::Refused { why: RuleRefused::Contradiction { .. }, .. }) => {}
            Err(CommandError::Refused { why: RuleRefused::FullInKernel { .. }, .. }) => {}
            Err(error) => panic!("{line}: {error}"),
        }
    }
    kernel.commit();
    user.commit();
}
