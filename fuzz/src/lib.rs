//! The bodies of the fuzz targets, one per reader of foreign bytes.
//!
//! A target takes any bytes and panics when a promise is broken; returning is the proof that none was. The same
//! bodies run under libFuzzer (`fuzz_targets/`), in the replayer (`src/bin/replay.rs`) and in `cargo test`, so that a
//! find can be reproduced with a stable compiler and nothing else.
//!
//! Deterministic: no clock, no randomness, no file. Assumes nothing about the bytes; their length is the fuzzer's to
//! bound.
#![forbid(unsafe_code)]

mod mutate;

pub use mutate::{Mutator, samples};

use laneway_control::{Next, next_line};
use laneway_features::{Stamp, parse};
use laneway_flow::pattern::TEXT_BYTES_MAX;
use laneway_flow::{RECORD_BYTES, Record, Rule};
use laneway_resp::{Limits, Parser, ProtocolError, ValueLimits, Values};
use laneway_relay::{Policy, Request, RuleFile};
use laneway_wire::{
    ETHERNET_BYTES, Ethernet, Extension, ICMP_BYTES, IPV4_BYTES_MIN, IPV6_BYTES, Icmp, Ipv4, Ipv6,
    SCTP_BYTES, Sctp, TCP_BYTES_MIN, Tcp, TcpOptions, UDP_BYTES, Udp, VLAN_BYTES, VlanTag,
    checksum,
};
use std::io::BufReader;

/// A target by its name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As in `cargo fuzz run NAME`, and the name of its folder of seeds.
    pub name: &'static str,
    /// Runs it once.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", run: wire },
    Target { name: "pcap", run: pcap },
    Target { name: "rule", run: rule },
    Target { name: "relay", run: relay },
    Target { name: "control", run: control },
    Target { name: "features", run: features },
    Target { name: "resp", run: resp },
    Target { name: "trace_ctf", run: trace_ctf },
    Target { name: "trace_own", run: trace_own },
    Target { name: "trace_chrome", run: trace_chrome },
    Target { name: "trace_uftrace", run: trace_uftrace },
    Target { name: "trace_perf", run: trace_perf },
    Target { name: "trace_symbols", run: trace_symbols },
];

/// Parses `data` as every header: what was parsed is emitted as the same bytes, and the checksum of a header that was
/// sealed is right.
///
/// # Panics
/// When that does not hold.
pub fn wire(data: &[u8]) {
    /// `parsed` of the first bytes of `data` writes those bytes again, but for `reserved` bits of one byte.
    fn emits<const N: usize>(
        data: &[u8],
        emitted: Option<bool>,
        out: [u8; N],
        reserved: (usize, u8),
    ) {
        assert_eq!(emitted.is_none(), data.len() < N, "{N} bytes are all a header needs");
        if emitted.is_some() {
            let mut want = [0; N];
            want.copy_from_slice(&data[..N]);
            want[reserved.0] &= !reserved.1;
            assert!(emitted == Some(true) && out == want, "emit undoes parse");
        }
    }
    const NONE: (usize, u8) = (0, 0);

    let mut out = [0; ETHERNET_BYTES];
    emits(data, Ethernet::parse(data).ok().map(|h| h.emit(&mut out)), out, NONE);
    let mut out = [0; VLAN_BYTES];
    emits(data, VlanTag::parse(data).ok().map(|h| h.emit(&mut out)), out, NONE);
    let mut out = [0; UDP_BYTES];
    emits(data, Udp::parse(data).ok().map(|h| h.emit(&mut out)), out, NONE);
    let mut out = [0; TCP_BYTES_MIN];
    emits(data, Tcp::parse(data).ok().map(|h| h.emit(&mut out)), out, (12, 0x0e));
    assert_eq!(Icmp::parse(data).is_ok(), data.len() >= ICMP_BYTES);
    assert_eq!(Sctp::parse(data).is_ok(), data.len() >= SCTP_BYTES);
    assert!(TcpOptions::new(data).count() <= data.len(), "every option takes a byte");

    if let Ok(ip) = Ipv4::parse(data) {
        let mut out = [0; IPV4_BYTES_MIN];
        emits(data, Some(ip.emit(&mut out)), out, NONE);
        assert!((IPV4_BYTES_MIN..=60).contains(&ip.header_bytes));
        assert!(ip.header_bytes <= usize::from(ip.total_bytes));
        let mut sealed = data.to_vec();
        assert_eq!(Ipv4::seal(&mut sealed), data.len() >= ip.header_bytes);
        if let Some(header) = sealed.get(..ip.header_bytes) {
            assert_eq!(checksum::of(header), 0);
        }
    }
    if let Ok(ip) = Ipv6::parse(data) {
        let mut out = [0; IPV6_BYTES];
        emits(data, Some(ip.emit(&mut out)), out, NONE);
    }
    if let Some((&kind, header)) = data.split_first()
        && let Ok(extension) = Extension::parse(kind, header)
    {
        assert!((8..=2048).contains(&extension.bytes), "a walk along extensions gets on");
    }
    let (even, rest) = data.split_at((data.len() / 2) & !1);
    let parts = checksum::fold(checksum::sum(even) + checksum::sum(rest));
    assert_eq!(parts, checksum::fold(checksum::sum(data)), "sums of parts add up");
}

/// Reads `data` as a capture, plain or compressed, in every way there is; they agree, and each record has an Ethernet
/// form or a reason why not.
///
/// # Panics
/// When that does not hold.
pub fn pcap(data: &[u8]) {
    laneway_capture::fuzz_reader(data);
}

/// Reads `data` as a relay's file of rules, and each line of it as what is said to its control socket: what is read
/// is written and read again the same, and a set that passes the check does so again.
///
/// # Panics
/// When that does not hold.
pub fn relay(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        if let Ok(request) = serde_json::from_str::<Request>(line) {
            let again = serde_json::to_string(&request).expect("a request is made of values");
            assert_eq!(serde_json::from_str::<Request>(&again).ok().as_ref(), Some(&request));
        }
    }
    let file = match RuleFile::from_toml(text) {
        Ok(file) => file,
        Err(why) => return assert!(!why.is_empty(), "a person reads it"),
    };
    let written = file.to_toml();
    let again = RuleFile::from_toml(&written).expect("what was written");
    assert_eq!(
        (&again.rules, &again.allow, again.local_groups),
        (&file.rules, &file.allow, file.local_groups)
    );
    // Its own addresses are asked of no kernel.
    let policy = Policy {
        allow: file.allow.clone(),
        local_groups: file.local_groups,
        ..Policy::default()
    };
    let passes = |file: &RuleFile| file.check(&policy).is_ok();
    assert_eq!(passes(&file), passes(&again));
}

/// Reads what a client says, behind the longest line that may be and the size of reads, line by line: each is what
/// stands before its end, however it arrives, and none is kept that is longer.
///
/// # Panics
/// When that does not hold.
pub fn control(data: &[u8]) {
    let [bytes_max, chunk, text @ ..] = data else { return };
    let (bytes_max, chunk) = (usize::from(*bytes_max) + 1, usize::from(*chunk) + 1);
    let mut input = BufReader::with_capacity(chunk, text);
    let (mut line, mut wanted) = (Vec::new(), text.split_inclusive(|byte| *byte == b'\n'));
    loop {
        let next = next_line(&mut input, &mut line, bytes_max).expect("bytes are always there");
        let Some(whole) = wanted.next() else {
            return assert_eq!(next, Next::Nothing);
        };
        let is_ended = whole.ends_with(b"\n");
        let text = whole.strip_suffix(b"\n").unwrap_or(whole);
        let text = text.strip_suffix(b"\r").filter(|_| is_ended).unwrap_or(text);
        let is_long = text.len() > bytes_max;
        assert!(line.len() <= bytes_max + 2 && whole.starts_with(&line));
        assert_eq!(
            next,
            match (is_ended, is_long) {
                (true, false) => Next::Line,
                (true, true) => Next::Long,
                (false, _) => Next::Unended,
            }
        );
        assert!(is_long || line == text);
    }
}

/// Parses the bytes before the first zero as a flow rule, and matches the bytes behind it as a record: the rule's
/// canonical text is the same rule, and the ways to match agree.
///
/// # Panics
/// When that does not hold.
pub fn rule(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let rule: Rule = match text.parse() {
        Ok(rule) => rule,
        Err(error) => {
            // A person reads this: it must be possible to print it.
            assert!(error.to_string().lines().count() >= 3, "message, text, caret");
            return;
        }
    };
    let compiled = rule.compile();
    let canonical = rule.to_string();
    if canonical.len() <= TEXT_BYTES_MAX {
        let again: Rule = canonical.parse().expect("the canonical text is a rule");
        assert_eq!(again.to_string(), canonical, "and its own canonical text");
        assert_eq!(again.compile().ok(), compiled.as_ref().ok().copied(), "of the same meaning");
    }
    let Ok(compiled) = compiled else { return };
    let mut bytes = [0; RECORD_BYTES];
    let behind = data.get(end + 1..).unwrap_or_default();
    let len = behind.len().min(RECORD_BYTES);
    bytes[..len].copy_from_slice(&behind[..len]);
    let matches = compiled.matches_bytes(&bytes);
    if let Some(record) = Record::from_bytes(&bytes)
        && record.to_bytes() == bytes
    {
        assert_eq!(compiled.matches(&record), matches);
    }
}

/// Extracts the features of `data` as a frame: the record survives its bytes, its lengths lie within the frame, and a
/// longer capture of the same frame does not take anything back.
///
/// # Panics
/// When that does not hold.
pub fn features(data: &[u8]) {
    let stamp = Stamp { ts_ns: 1, seq_no: 2, wire_len: data.len() as u32, ..Stamp::default() };
    let record = parse(data, stamp);
    assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record), "the layout keeps it all");
    assert_eq!((record.cap_len as usize, record.frame_len as usize), (data.len(), data.len()));
    assert!(
        usize::from(record.l3_hdr_len) + usize::from(record.l4_hdr_len) <= 60 + 40 + 8 * 2048,
        "headers have limits"
    );
    if let Some((_, shorter)) = data.split_last() {
        let less = parse(shorter, stamp);
        assert!(record.has.contains(less.has), "{less:?} is a prefix of {record:?}");
    }
}

/// Reads `data` as what a client sends, and as what a server answers, whole and byte by byte: the same commands, the
/// same replies and the same errors, and everything is taken.
///
/// # Panics
/// When that does not hold.
pub fn resp(data: &[u8]) {
    /// Shows `data` in pieces: what was read, and why it ended.
    fn pieces<T, E>(
        data: &[u8],
        len: usize,
        mut next: impl FnMut(&[u8]) -> Result<(usize, Option<T>), E>,
    ) -> (Vec<T>, Option<E>) {
        let mut read = Vec::new();
        for piece in data.chunks(len.max(1)) {
            let mut at = 0;
            loop {
                let (taken, one) = match next(&piece[at..]) {
                    Ok(step) => step,
                    Err(error) => return (read, Some(error)),
                };
                at += taken;
                let Some(one) = one else { break };
                read.push(one);
            }
            assert_eq!(at, piece.len(), "what is unfinished the reader keeps itself");
        }
        (read, None)
    }
    let limits = Limits { line_bytes_max: 64, query_bytes_max: 1 << 20, ..Limits::default() };
    let commands = |len| {
        let mut parser = Parser::new();
        pieces(data, len, |shown| {
            let step = parser.next(shown, &limits)?;
            let command = step.command.map(|args| args.iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
            Ok::<_, ProtocolError>((step.consumed, command))
        })
    };
    assert_eq!(commands(data.len()), commands(1));
    let values = |len| {
        let (mut values, limits) = (Values::new(), ValueLimits::default());
        pieces(data, len, |shown| values.next(shown, &limits))
    };
    assert_eq!(values(data.len()), values(1));
}

/// Reads `data` as a CTF trace: metadata and two streams, each behind its length (4 bytes, little-endian): threads come
/// before their events, in the order of time, and reading twice gives the same.
///
/// # Panics
/// When that does not hold.
pub fn trace_ctf(data: &[u8]) {
    laneway_trace_read::fuzz::ctf(data);
}

/// Reads `data` as a file of our own tracer, with the same promises but the order.
///
/// # Panics
/// When that does not hold.
pub fn trace_own(data: &[u8]) {
    laneway_trace_read::fuzz::own(data);
}

/// Reads `data` as Chrome JSON, likewise.
///
/// # Panics
/// When that does not hold.
pub fn trace_chrome(data: &[u8]) {
    laneway_trace_read::fuzz::chrome(data);
}

/// Reads `data` as text of `uftrace dump`, likewise.
///
/// # Panics
/// When that does not hold.
pub fn trace_uftrace(data: &[u8]) {
    laneway_trace_read::fuzz::uftrace(data);
}

/// Reads `data` as text of `perf script`, likewise.
///
/// # Panics
/// When that does not hold.
pub fn trace_perf(data: &[u8]) {
    laneway_trace_read::fuzz::perf(data);
}

/// Reads `data` as a listing of `nm`, plain or packed, and as an ELF file: functions are told once per address.
///
/// # Panics
/// When that does not hold.
pub fn trace_symbols(data: &[u8]) {
    laneway_trace_read::fuzz::symbols(data);
}
