//! Where a reply of Redis's and one of ours may differ, and which commands no judge can compare.

/// Commands that draw, that wait for long or that are the server's to refuse: a strange argument may have made them so.
pub(crate) fn is_by_chance(args: &[Vec<u8>]) -> bool {
    let count = args.get(2).map_or(&b""[..], Vec::as_slice);
    match args[0].as_slice() {
        b"object" => !matches!(args.get(1).map(Vec::as_slice), Some(b"encoding" | b"refcount")),
        b"scan" => !is_plain(args.get(1)),
        b"sscan" | b"hscan" | b"zscan" => !is_plain(args.get(2)),
        // Ranges by member mean something where all scores are the same.
        b"zadd" if args.get(1).is_some_and(|key| key == b"lex") => {
            args[2..].iter().step_by(2).any(|score| score != b"0")
        }
        b"spop" => count != b"9223372036854775807" && count != b"x",
        b"srandmember" | b"hrandfield" | b"zrandmember" => count != b"0",
        b"blpop" | b"brpop" | b"blmove" | b"brpoplpush" | b"blmpop" | b"bzpopmin" | b"bzpopmax"
        | b"bzmpop" => args.iter().any(|arg| arg == b"-0" || arg == b"+1"),
        _ => false,
    }
}

/// A cursor that both sides understand alike.
fn is_plain(cursor: Option<&Vec<u8>>) -> bool {
    matches!(cursor.map(Vec::as_slice), Some(b"0" | b"x" | b""))
}

/// Replies whose elements come in an order of chance.
pub(crate) fn is_unordered(args: &[Vec<u8>]) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    const UNORDERED: [&str; 12] = [
        "smembers", "sinter", "sunion", "sdiff", "spop", "hgetall", "hkeys", "hvals", "keys",
        "scan", "sscan", "hscan",
    ];
    UNORDERED.contains(&name.as_str()) || name == "zscan"
}

/// The elements of a reply, sorted. Pairs may be separated: no reply here has two pairs of the same parts in other
/// ways.
pub(crate) fn sorted(reply: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

/// What may differ.
pub(crate) fn is_excused(args: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    match name.as_str() {
        // Inside MULTI Redis says nothing as a value; at the end of a wait, as an array.
        "blmove" | "brpoplpush" => ours == b"$-1\r\n" && theirs == b"*-1\r\n",
        // Whether two keys hold the same small number as one object.
        "object" => theirs == b":1\r\n",
        // Relative deadlines are a millisecond apart on the two sides.
        "pexpiretime" | "expiretime" | "ttl" => {
            let number = |reply: &[u8]| {
                String::from_utf8_lossy(reply).trim().trim_start_matches(':').parse::<i64>()
            };
            matches!((number(ours), number(theirs)), (Ok(one), Ok(other)) if one > 0 && (one - other).abs() < 60_000)
        }
        _ => false,
    }
}
