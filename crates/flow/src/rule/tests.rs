//! What is read, what is refused, and where the caret stands.

use super::*;
use crate::pattern::TEXT_BYTES_MAX;

fn message(text: &str) -> String {
    text.parse::<RecordMatch>().expect_err(text).to_string()
}

#[test]
fn errors_point_at_the_word_and_suggest_the_nearest() {
    assert_eq!(
        message("eth / ipv4 / tcp dest is 80"),
        "flow rule, column 18: found `dest`, expected one of src dst flags /; did you mean `dst`?\n  \
         eth / ipv4 / tcp dest is 80\n                   ^"
    );
    assert!(message("eth / ip4").contains("did you mean `ipv4`?"));
    assert!(message("eth/ipv4").contains("put blanks around `/`"));
    assert!(message("udp src si 5").contains("did you mean `is`?"));
}

#[test]
fn errors_say_what_is_missing_at_the_end() {
    for text in ["", "eth /", "udp src", "udp src is", "eth or"] {
        let error = text.parse::<Rule>().unwrap_err();
        assert_eq!(error.column, text.len() + 1, "{error}");
        assert!(error.sentence().contains("found the end of the line, expected"), "{error}");
    }
}

#[test]
fn values_must_fit_their_field() {
    assert!(message("vlan vid is 4096").contains("4095 is the most"));
    assert!(message("ipv4 src is 10.0.0.0/33").contains("0 to 32 bits"));
    assert!(message("ipv4 src is ::1").contains("an IPv4 address"));
    assert!(message("udp src is 80/8").contains("a number"));
    assert!(message("udp src spec 9 src last 8").contains("last is below spec"));
}

#[test]
fn conditions_are_given_once_and_completely() {
    assert!(message("udp src is 1 src is 2").contains("has that already"));
    assert!(message("udp src spec 1 src last 2 src last 3").contains("already"));
    assert!(message("udp src last 2").contains("needs a value: `src is` or `src spec`"));
}

#[test]
fn a_range_may_have_a_mask() {
    let rule: RecordMatch =
        "udp src spec 0x1000 src last 0x2fff src mask 0xf000".parse().expect("a rule");
    assert_eq!(rule.count(), 2);
}

#[test]
fn a_text_beyond_the_limit_is_refused_and_not_repeated_whole() {
    let text = "é".repeat(TEXT_BYTES_MAX);
    let error = format!("a{text}").parse::<Rule>().unwrap_err();
    assert!(error.expected.contains("8193 bytes; 4096 are the most"), "{error}");
    assert_eq!(error.line.len(), TEXT_BYTES_MAX - 1);
    assert!(error.to_string().len() < 3 * TEXT_BYTES_MAX);
}

#[test]
fn what_can_never_match_is_refused() {
    assert!(message("ipv4 proto is 6 / udp").contains("never match: `udp` contradicts"));
    assert!(message("vlan vid is 5 tci is 6").contains("`vlan tci is 6` contradicts"));
    assert!(message("ipv6 / icmp").contains("icmp6"));
    assert!(message("tcp / ipv4").contains("cannot stand behind `tcp`"));
    assert!(message("vlan / vlan / vlan").contains("2 of them are the most"));
}

#[test]
fn more_pairs_than_fit_are_refused_by_name() {
    assert!(message("udp src spec 1 src last 65534").contains("more than 16"));
    let many = vec!["udp src is 1"; 17].join(" or ");
    assert!(message(&many).contains("takes 17 value/mask pairs"));
    let fits = vec!["udp src is 1"; 16].join(" or ");
    assert_eq!(fits.parse::<RecordMatch>().unwrap().count(), 16);
}

#[test]
fn a_huge_product_of_ranges_is_refused_quickly() {
    let r = |name: &str| format!("{name} spec ::1 {name} last ffff::fffe");
    assert!(message(&format!("ipv6 {} {}", r("src"), r("dst"))).contains("more than 16"));
}

#[test]
fn fields_lie_where_the_record_has_them() {
    let (_, _, layout) = Record::C_LAYOUT;
    for (name, at) in [
        ("src_ip", SRC_IP),
        ("dst_ip", DST_IP),
        ("src_port", SRC_PORT),
        ("dst_port", DST_PORT),
        ("eth_type", ETH_TYPE),
        ("vlan_tci", VLAN_TCI),
        ("vlan_tci2", VLAN_TCI2),
        ("tcp_flags", TCP_FLAGS),
        ("proto", PROTO),
        ("ttl", TTL),
        ("tos", TOS),
        ("icmp_type", ICMP_TYPE),
        ("icmp_code", ICMP_CODE),
        ("has", HAS),
    ] {
        assert!(layout.contains(&(name, at)), "{name}");
    }
}

#[test]
fn items_that_are_not_named_do_not_constrain() {
    let rule: RecordMatch = "pattern eth / ipv4 / end".parse().unwrap();
    let mut record = Record { has: Has::IPV4.with(Has::VLAN), ..Record::default() };
    assert!(rule.matches(&record));
    record.has = Has::IPV6;
    assert!(!rule.matches(&record));
    let any: RecordMatch = "eth".parse().unwrap();
    assert!(any.matches(&Record::default()));
}

#[test]
fn the_caret_stands_under_the_word_behind_wide_characters() {
    let error = "eth / ipv4 src is é zz is".parse::<Rule>().unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    let caret = lines[2].chars().position(|c| c == '^').unwrap();
    assert_eq!(lines[1].chars().nth(caret), Some('é'), "{error}");
}
