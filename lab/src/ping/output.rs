//! What `ping` prints, read without knowing its words: the programs of different makers, versions and
//! languages agree on `name=number` and on the order of the figures, not on names.
//!
//! ```text
//!   64 bytes from 10.77.0.3: icmp_seq=1 ttl=64 time=0.045 ms        a reply: seq=, then a hop limit,
//!   64 Bytes von 10.77.0.3: icmp_seq=1 ttl=64 Zeit=0,045 ms          then a time, by = or <
//!   3 packets transmitted, 3 received, 0% packet loss, time 4ms      counts: the line with a %
//!   rtt min/avg/max/mdev = 0.029/0.034/0.041/0.005 ms                figures with / after a =
//! ```
//!
//! What must always hold: any text gives an answer or a sentence, never a panic; a line that is no
//! reply (an ICMP error, a warning) is passed over; a figure that cannot be is none.

/// Most lines read: two per ping, and some.
const LINES_MAX: usize = 65_536;
/// A time beyond this is a damaged line.
const TIME_MS_MAX: f64 = 1e7;

/// What it printed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PingOutput {
    /// Requests sent.
    pub(super) sent: u64,
    /// Requests replied to.
    pub(super) received: u64,
    /// Lines of a reply to a request that had one.
    pub(super) duplicates: u64,
    /// The highest number of a request that was replied to, counted from 1; 0: none was.
    pub(super) last_replied: u64,
    /// Round trips in order of arrival, ns; duplicates left out.
    pub(super) replies_ns: Vec<u64>,
    /// min, avg, max and, where it tells, mdev (or stddev); ms.
    pub(super) summary_ms: Option<[Option<f64>; 4]>,
}

/// Reads all that was printed.
///
/// # Errors
/// A sentence, where there is no summary of counts.
pub(super) fn read(text: &str) -> Result<PingOutput, String> {
    let mut replies_ns = Vec::new();
    let (mut duplicates, mut last_replied, mut from_zero) = (0, 0, false);
    let mut counts = None;
    let mut summary_ms = None;
    for line in text.lines().take(LINES_MAX) {
        if let Some((number, ns)) = reply_of(line) {
            last_replied = last_replied.max(number);
            // BusyBox counts from 0.
            from_zero |= number == 0;
            // Every program marks it alike.
            if line.contains("DUP!") {
                duplicates += 1;
            } else {
                replies_ns.push(ns);
            }
        } else if let Some(found) = counts_of(line) {
            counts = Some(found);
        } else if let Some(found) = figures_of(line) {
            summary_ms = Some(found);
        }
    }
    last_replied += u64::from(from_zero);
    let (sent, received) = counts.ok_or("it printed no summary of what was sent and received")?;
    Ok(PingOutput { sent, received, duplicates, last_replied, replies_ns, summary_ms })
}

/// The number of the request and the round trip, of a reply's line.
fn reply_of(line: &str) -> Option<(u64, u64)> {
    let mut values = line.match_indices(['=', '<']);
    let (seq_at, _) = values.next()?;
    let name = line[..seq_at].rsplit(|c: char| c.is_whitespace()).next()?;
    // icmp_seq, icmp_req (before 2012), seq (BusyBox).
    if !(name.ends_with("seq") || name.ends_with("req")) {
        return None;
    }
    let request = number(&line[seq_at + 1..])? as u64;
    let (hops_at, _) = values.next()?;
    number(&line[hops_at + 1..])?;
    let (time_at, _) = values.next()?;
    Some((request, to_ns(number(&line[time_at + 1..])?)?))
}

/// Sent and received: the first two whole numbers of the line with a percentage. Those with a sign
/// (`+2 duplicates`, `+1 errors`) are neither.
fn counts_of(line: &str) -> Option<(u64, u64)> {
    if !line.contains(['%', '\u{ff05}', '\u{66a}']) {
        return None;
    }
    let mut words = line.split(|c: char| c.is_whitespace() || ",;:".contains(c));
    let mut whole = words.by_ref().filter_map(|word| {
        word.parse::<u64>().ok().filter(|_| word.bytes().all(|b| b.is_ascii_digit()))
    });
    let sent = whole.next()?;
    let received = whole.next()?;
    (received <= sent).then_some((sent, received))
}

/// Three or four figures with slashes between them, behind an equals sign.
fn figures_of(line: &str) -> Option<[Option<f64>; 4]> {
    let (_, figures) = line.rsplit_once('=')?;
    let word = figures.split_whitespace().next()?;
    let mut found = [None; 4];
    let mut n = 0;
    for (place, part) in word.split('/').enumerate() {
        // The unit may stand at the last without a space.
        let value = number(part)?;
        *found.get_mut(place)? = Some(value);
        n += 1;
    }
    (n >= 3).then_some(found)
}

/// The number that `text` begins with, with a decimal point or comma.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    let digits = text[..end.unwrap_or(text.len())].trim_end_matches(['.', ',']);
    let value: f64 = digits.replace(',', ".").parse().ok()?;
    (value <= TIME_MS_MAX).then_some(value)
}

fn to_ns(ms: f64) -> Option<u64> {
    (0.0..=TIME_MS_MAX).contains(&ms).then(|| (ms * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPUTILS: &str = "\
PING 10.77.0.3 (10.77.0.3) 56(84) bytes of data.
64 bytes from 10.77.0.3: icmp_seq=1 ttl=64 time=0.045 ms
64 bytes from 10.77.0.3: icmp_seq=2 ttl=64 time=1.04 ms
64 bytes from 10.77.0.3: icmp_seq=2 ttl=64 time=1.10 ms (DUP!)
From 10.77.0.1 icmp_seq=3 Destination Host Unreachable
64 bytes from 10.77.0.3: icmp_seq=4 ttl=64 time=12 ms

--- 10.77.0.3 ping statistics ---
4 packets transmitted, 3 received, +1 duplicates, +1 errors, 25% packet loss, time 3004ms
rtt min/avg/max/mdev = 0.045/4.361/12.000/5.417 ms, pipe 2
";

    #[test]
    fn replies_duplicates_counts_and_figures_of_iputils_are_read() {
        let output = read(IPUTILS).unwrap();
        assert_eq!((output.sent, output.received, output.duplicates), (4, 3, 1));
        assert_eq!(output.last_replied, 4);
        assert_eq!(output.replies_ns, [45_000, 1_040_000, 12_000_000]);
        assert_eq!(output.summary_ms, Some([Some(0.045), Some(4.361), Some(12.0), Some(5.417)]));
    }

    #[test]
    fn other_makers_versions_and_languages_read_alike() {
        let lines = [
            "64 bytes from 10.0.0.1: seq=0 ttl=64 time=0.045 ms", // BusyBox
            "64 bytes from 10.0.0.1: icmp_req=1 ttl=64 time=0.045 ms", // iputils before 2012
            "64 bytes from 10.0.0.1: icmp_seq=0 ttl=64 time=0,045 ms", // inetutils, German
            "64 Bytes von 10.0.0.1: icmp_seq=1 ttl=64 Zeit=0.045 ms",
            "64 octets de 10.0.0.1 : icmp_seq=1 ttl=64 temps=0.045 ms",
            "64 \u{431}\u{430}\u{439}\u{442} \u{438}\u{437} 10.0.0.1: icmp_seq=1 ttl=64 \
             \u{432}\u{440}\u{435}\u{43c}\u{44f}=0,045 \u{43c}\u{441}",
            "64 \u{30d0}\u{30a4}\u{30c8}\u{5fdc}\u{7b54} 10.0.0.1: icmp_seq=1 ttl=64 \
             \u{6642}\u{9593}=0.045\u{30df}\u{30ea}\u{79d2}",
            "64 bytes from fd00::1: icmp_seq=1 hlim=64 time=0.045 ms", // BSD
            "[1763729346.12] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.045 ms", // -D
        ];
        for line in lines {
            assert_eq!(reply_of(line).map(|(_, ns)| ns), Some(45_000), "{line}");
        }
        assert_eq!(
            reply_of("64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time<1 ms"),
            Some((1, 1_000_000))
        );
        for (line, expected) in [
            ("3 packets transmitted, 2 packets received, 33% packet loss", (3, 2)),
            ("3 Pakete übertragen, 2 empfangen, 33% packet loss, time 4ms", (3, 2)),
            ("3 paquets transmis, 2 reçus, +1 erreurs, 33,3333% packet loss, time 2043ms", (3, 2)),
            ("5 packets transmitted, 5 packets received, +2 duplicates, 0.0% packet loss", (5, 5)),
        ] {
            assert_eq!(counts_of(line), Some(expected), "{line}");
        }
        let three = [Some(0.06), Some(0.066), Some(0.071), None];
        assert_eq!(figures_of("round-trip min/avg/max = 0.060/0.066/0.071 ms"), Some(three));
        let four = [Some(0.06), Some(0.066), Some(0.071), Some(0.01)];
        for line in [
            "round-trip min/avg/max/stddev = 0,060/0,066/0,071/0,010 ms",
            "rtt min/avg/max/mdev = 0.060/0.066/0.071/0.010ms",
        ] {
            assert_eq!(figures_of(line), Some(four), "{line}");
        }
    }

    #[test]
    fn what_is_no_reply_is_passed_over() {
        for line in [
            "",
            "=",
            "<<<",
            "icmp_seq=",
            "From 10.77.0.1 icmp_seq=3 Destination Host Unreachable",
            "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64",
            "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=",
            "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=-5 ms",
            "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=1e300 ms x",
            "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=99999999999999999999 ms",
            "64 bytes from 10.0.0.1: icmp_seq=x ttl=64 time=1 ms",
            "mdev = 1/2/3 ms",
            "\u{1b}[2Jicmp\u{0}seq=1",
        ] {
            let taken = reply_of(line);
            // An exponent is no number of ping's: it is cut off, not believed.
            assert!(taken.is_none() || line.contains("1e300"), "{line}: {taken:?}");
        }
        for line in ["100%", "3 packets, 100%", "2 sent, 3 received, 0%", "-3 a, -2 b, 0%"] {
            assert_eq!(counts_of(line), None, "{line}");
        }
        for line in ["= 1/2 ms", "= 1/2/3/4/5 ms", "a = b/c/d", "1/2/3"] {
            assert_eq!(figures_of(line), None, "{line}");
        }
    }

    #[test]
    fn a_text_without_a_summary_is_refused_in_a_sentence() {
        for text in ["", "ping: connect: Network is unreachable\n", "64 bytes\n%\n"] {
            assert!(read(text).unwrap_err().contains("no summary"), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_an_answer(text in "(?s).{0,200}") {
            let _ = read(&text);
        }

        #[test]
        fn a_damaged_output_gives_an_answer(cut in 0..IPUTILS.len(), at in 0..IPUTILS.len()) {
            let mut bytes = IPUTILS.as_bytes()[..cut].to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 0xa5;
            }
            if let Ok(output) = read(&String::from_utf8_lossy(&bytes)) {
                proptest::prop_assert!(output.received <= output.sent && output.replies_ns.len() <= 4);
            }
        }
    }
}
