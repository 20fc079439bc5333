//! Commands, cut anywhere, are the same commands; hostile bytes are Redis's own errors and take no memory.

use laneway_resp::{Limits, Parser, ProtocolError, command};
use proptest::prelude::*;

type Commands = Vec<Vec<Vec<u8>>>;

/// Shows the pieces one after the other, whatever was not taken first, as a lane does.
fn read(pieces: &[&[u8]], limits: &Limits) -> Result<Commands, (Commands, ProtocolError)> {
    let mut parser = Parser::new();
    let (mut commands, mut unread) = (Vec::new(), Vec::new());
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            let step = match parser.next(&unread, limits) {
                Ok(step) => step,
                Err(error) => return Err((commands, error)),
            };
            let command = step.command.map(|args| args.iter().map(<[u8]>::to_vec).collect());
            let consumed = step.consumed;
            unread.drain(..consumed);
            let Some(command) = command else { break };
            commands.push(command);
        }
        assert!(unread.is_empty(), "what is unfinished the parser keeps itself");
    }
    Ok(commands)
}

fn whole(bytes: &[u8]) -> Result<Commands, String> {
    read(&[bytes], &Limits::default()).map_err(|(_, error)| error.to_string())
}

fn args(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn arrays_and_inline_commands_follow_each_other() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n\r\n*0\r\n*-1\r\n SET  k 'a b' \"\\x41\\n\"\n*1\r\n$0\r\n\r\n";
    assert_eq!(
        whole(bytes).unwrap(),
        [args(&["GET", "k"]), args(&["PING"]), args(&["SET", "k", "a b", "A\n"]), args(&[""])]
    );
}

#[test]
fn errors_are_those_of_redis() {
    for (bytes, text) in [
        (&b"*a\r\n"[..], "Protocol error: invalid multibulk length"),
        (b"*9223372036854775808\r\n", "Protocol error: invalid multibulk length"),
        (b"*1048577\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\nGET\r\n", "Protocol error: expected '$', got 'G'"),
        (b"*1\r\n\r\n", "Protocol error: expected '$', got '\r'"),
        (b"*1\r\n$-2\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$\r\n", "Protocol error: invalid bulk length"),
        (b"GET \"k\r\n", "Protocol error: unbalanced quotes in request"),
        (b"GET 'k'x\r\n", "Protocol error: unbalanced quotes in request"),
    ] {
        assert_eq!(whole(bytes).unwrap_err(), text, "{:?}", String::from_utf8_lossy(bytes));
    }
    for (first, text) in [
        ("a", "Protocol error: too big inline request"),
        ("*", "Protocol error: too big mbulk count string"),
        ("*1\r\n$", "Protocol error: too big bulk count string"),
    ] {
        let bytes = [first.as_bytes(), &[b'1'; 65_537]].concat();
        assert_eq!(whole(&bytes).unwrap_err(), text);
    }
}

#[test]
fn a_stranger_gets_ten_short_arguments() {
    let stranger = Limits { is_stranger: true, ..Limits::default() };
    let error = |bytes: &[u8]| read(&[bytes], &stranger).unwrap_err().1.to_string();
    assert_eq!(error(b"*11\r\n"), "Protocol error: unauthenticated multibulk length");
    assert_eq!(error(b"*1\r\n$16385\r\n"), "Protocol error: unauthenticated bulk length");
    let mut allowed = Vec::new();
    command(&[&[b'a'; 16_384][..]; 10], &mut allowed);
    assert_eq!(read(&[&allowed], &stranger).unwrap()[0].len(), 10);
}

#[test]
fn lengths_take_no_memory_before_their_bytes() {
    let mut parser = Parser::new();
    let limits = Limits::default();
    let step = parser.next(b"*1048576\r\n$536870912\r\nabc", &limits).unwrap();
    assert!(step.command.is_none());
    assert!(parser.memory_bytes() < 4096, "{}", parser.memory_bytes());
}

#[test]
fn a_query_has_a_limit_of_its_own() {
    let limits = Limits { query_bytes_max: 1000, ..Limits::default() };
    let mut bytes = b"*3\r\n".to_vec();
    for _ in 0..3 {
        bytes.extend(b"$400\r\n");
        bytes.extend([b'a'; 400]);
        bytes.extend(b"\r\n");
    }
    let pieces: Vec<&[u8]> = bytes.chunks(7).collect();
    assert_eq!(read(&pieces, &limits).unwrap_err().1, ProtocolError::LongQuery);
}

#[test]
fn a_long_value_is_taken_as_it_comes_and_given_back() {
    let value = vec![b'v'; 3 << 20];
    let mut bytes = Vec::new();
    command(&[b"SET", b"k", &value], &mut bytes);
    command(&[b"PING"], &mut bytes);
    let (mut parser, limits) = (Parser::new(), Limits::default());
    let mut found = 0;
    for piece in bytes.chunks(1460) {
        let mut at = 0;
        loop {
            let step = parser.next(&piece[at..], &limits).unwrap();
            at += step.consumed;
            match step.command {
                None => break,
                Some(args) => found += args.iter().map(<[u8]>::len).sum::<usize>(),
            }
        }
        assert_eq!(at, piece.len());
        assert!(parser.kept_bytes() <= bytes.len());
    }
    assert_eq!(found, 3 + 1 + value.len() + 4);
    assert!(parser.next(b"", &limits).unwrap().command.is_none());
    assert!(parser.memory_bytes() < 8192, "an idle parser keeps no value's memory");
}

#[derive(Clone, Debug)]
enum Sent {
    Array(Vec<Vec<u8>>),
    Inline(Vec<String>),
    Empty(&'static str),
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        4 => proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..6)
            .prop_map(Sent::Array),
        2 => proptest::collection::vec("[a-z0-9]{1,8}", 1..5).prop_map(Sent::Inline),
        1 => prop_oneof![Just("\r\n"), Just("\n"), Just("*0\r\n"), Just("*-1\r\n"), Just("  \r\n")]
            .prop_map(Sent::Empty),
    ]
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_commands(
        sent in proptest::collection::vec(sent(), 1..8),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12)
    ) {
        let (mut bytes, mut wanted) = (Vec::new(), Commands::new());
        for one in &sent {
            match one {
                Sent::Array(list) => {
                    let list: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
                    command(&list, &mut bytes);
                    wanted.push(list.iter().map(|arg| arg.to_vec()).collect());
                }
                Sent::Inline(words) => {
                    bytes.extend(words.join(" ").bytes());
                    bytes.extend(b"\r\n");
                    wanted.push(words.iter().map(|word| word.clone().into_bytes()).collect());
                }
                Sent::Empty(text) => bytes.extend(text.bytes()),
            }
        }
        let limits = Limits::default();
        prop_assert_eq!(read(&[&bytes], &limits).unwrap(), wanted.clone());
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let pieces: Vec<&[u8]> = ends.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces, &limits).unwrap(), wanted.clone());
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&single, &limits).unwrap(), wanted);
    }

    #[test]
    fn any_bytes_give_the_same_commands_and_error_however_cut(
        bytes in proptest::collection::vec(
            prop_oneof![4 => proptest::sample::select(&b"*$\r\n0123 -\"'\\x"[..]), 1 => any::<u8>()], 0..120),
        at in any::<proptest::sample::Index>()
    ) {
        let limits = Limits { line_bytes_max: 40, query_bytes_max: 1 << 20, ..Limits::default() };
        let cut = at.index(bytes.len() + 1);
        let pieces = [&bytes[..cut], &bytes[cut..]];
        prop_assert_eq!(read(&pieces, &limits), read(&[&bytes], &limits));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&single, &limits), read(&[&bytes], &limits));
    }
}
