//! Random commands, most of them well formed.

use crate::client::Args;
use laneway_testkit::Random;

/// Commands as they may look: each word in capitals stands for something drawn, `A|B` for one of both, `[A]` for
/// perhaps, `A...` for one to five of it.
const FORMS: &[&str] = &[
    "get KEY",
    "set KEY VALUE",
    "set KEY NUMBER",
    "set KEY VALUE SETOPT SETOPT",
    "setnx KEY VALUE",
    "setex KEY TIME VALUE",
    "psetex KEY BIGTIME VALUE",
    "getex KEY [GETOPT]",
    "getdel KEY",
    "getset KEY VALUE",
    "mget KEY...",
    "mset KEY VALUE KEY VALUE [KEY]",
    "msetnx KEY VALUE KEY VALUE",
    "append KEY VALUE",
    "strlen KEY",
    "incr KEY",
    "decr KEY",
    "incrby KEY NUMBER",
    "decrby KEY NUMBER",
    "incrbyfloat KEY FLOAT",
    "getrange KEY INDEX INDEX",
    "substr KEY INDEX INDEX",
    "setrange KEY OFFSET VALUE",
    "lcs KEY KEY [LCSOPT] [LCSOPT]",
    "setbit KEY OFFSET BIT",
    "getbit KEY OFFSET",
    "bitcount KEY",
    "bitcount KEY INDEX INDEX [UNIT]",
    "bitpos KEY BIT",
    "bitpos KEY BIT INDEX",
    "bitpos KEY BIT INDEX INDEX [UNIT]",
    "bitop BITOP KEY KEY [KEY]",
    "bitfield KEY BITSTEP... ",
    "bitfield_ro KEY get FIELD OFFSET",
    "del KEY...",
    "unlink KEY",
    "exists KEY...",
    "type KEY",
    "ttl KEY",
    "expiretime KEY",
    "pexpiretime KEY",
    "expire KEY TIME [EXPOPT] [EXPOPT]",
    "pexpire KEY BIGTIME [EXPOPT]",
    "expireat KEY AT [EXPOPT]",
    "pexpireat KEY ATMS [EXPOPT]",
    "persist KEY",
    "rename KEY KEY",
    "renamenx KEY KEY",
    "copy KEY KEY [replace]",
    "copy KEY KEY db DB [replace]",
    "touch KEY...",
    "move KEY DB",
    "object encoding KEY",
    "object refcount KEY",
    "dbsize",
    "swapdb DB DB",
    "flushdb FLUSH",
    "flushall more",
    "lpush KEY VALUE...",
    "rpush KEY VALUE...",
    "lpushx KEY VALUE...",
    "rpushx KEY VALUE...",
    "lpop KEY [COUNT]",
    "rpop KEY [COUNT]",
    "llen KEY",
    "lindex KEY INDEX",
    "linsert KEY SIDE VALUE VALUE",
    "lrange KEY INDEX INDEX",
    "lrem KEY INDEX VALUE",
    "lset KEY INDEX VALUE",
    "ltrim KEY INDEX INDEX",
    "lpos KEY VALUE [LPOSOPT] [LPOSOPT]",
    "lmove KEY KEY END END",
    "rpoplpush KEY KEY",
    "lmpop COUNT KEY KEY END [COUNTOPT]",
    "lmpop 1 KEY END [COUNTOPT]",
    "sadd KEY MEMBER...",
    "sadd KEY NUMBER...",
    "srem KEY MEMBER...",
    "smembers KEY",
    "sismember KEY MEMBER",
    "smismember KEY MEMBER...",
    "scard KEY",
    "spop KEY 9223372036854775807",
    "srandmember KEY 0",
    "smove KEY KEY MEMBER",
    "sinter KEY...",
    "sinterstore KEY KEY...",
    "sintercard COUNT KEY KEY [LIMIT]",
    "sunion KEY...",
    "sunionstore KEY KEY...",
    "sdiff KEY...",
    "sdiffstore KEY KEY...",
    "sscan KEY CURSOR count 1000 [SCANOPT]",
    "hset KEY MEMBER VALUE MEMBER VALUE",
    "hset KEY MEMBER NUMBER",
    "hset KEY MEMBER VALUE [MEMBER]",
    "hmset KEY MEMBER VALUE",
    "hsetnx KEY MEMBER VALUE",
    "hget KEY MEMBER",
    "hmget KEY MEMBER...",
    "hgetall KEY",
    "hdel KEY MEMBER...",
    "hexists KEY MEMBER",
    "hincrby KEY MEMBER NUMBER",
    "hincrbyfloat KEY MEMBER FLOAT",
    "hkeys KEY",
    "hvals KEY",
    "hlen KEY",
    "hstrlen KEY MEMBER",
    "hrandfield KEY 0 [withvalues]",
    "hscan KEY CURSOR count 1000 [SCANOPT]",
    "hset hash PAIRS",
    "hset hash MEMBER VALUE",
    "hdel hash MEMBER...",
    "hscan hash 0 count 100000",
    "hgetall hash",
    "object encoding hash",
    "del hash",
    "zadd KEY SCORE MEMBER SCORE MEMBER",
    "zadd KEY SCORE MEMBER SCORE MEMBER",
    "zadd KEY ZADDOPT SCORE MEMBER [SCORE] [MEMBER]",
    "zadd KEY ZADDOPT ZADDOPT SCORE MEMBER",
    "zincrby KEY SCORE MEMBER",
    "zrem KEY MEMBER...",
    "zcard KEY",
    "zscore KEY MEMBER",
    "zmscore KEY MEMBER...",
    "zrank KEY MEMBER",
    "zrevrank KEY MEMBER",
    "zpopmin KEY [COUNT]",
    "zpopmax KEY [COUNT]",
    "zmpop COUNT KEY KEY MINMAX [COUNTOPT]",
    "zmpop 1 KEY MINMAX [COUNTOPT]",
    "zrandmember KEY 0 [withscores]",
    "zscan KEY CURSOR count 1000 [SCANOPT]",
    "zrange KEY INDEX INDEX [withscores] [rev]",
    "zrange KEY BOUND BOUND byscore [rev] [LIMITS] [withscores]",
    "zrange lex LEX LEX bylex [rev] [LIMITS]",
    "zrange lex INDEX INDEX [LIMITS] [bylex]",
    "zrangestore KEY KEY INDEX INDEX [rev]",
    "zrangestore KEY KEY BOUND BOUND byscore [LIMITS] [withscores]",
    "zrevrange KEY INDEX INDEX [withscores]",
    "zrangebyscore KEY BOUND BOUND [withscores] [LIMITS]",
    "zrevrangebyscore KEY BOUND BOUND [withscores] [LIMITS]",
    "zrangebylex lex LEX LEX [LIMITS]",
    "zrevrangebylex lex LEX LEX [LIMITS]",
    "zadd lex 0 MEMBER 0 MEMBER",
    "zadd lex 0 MEMBER 0 MEMBER",
    "zadd lex 0 MEMBER",
    "zcount KEY BOUND BOUND",
    "zlexcount lex LEX LEX",
    "zremrangebyrank KEY INDEX INDEX",
    "zremrangebyscore KEY BOUND BOUND",
    "zremrangebylex lex LEX LEX",
    "zunion 2 KEY KEY [WEIGHTS] [AGGREGATE] [withscores]",
    "zinter 2 KEY KEY [WEIGHTS] [AGGREGATE] [withscores]",
    "zdiff COUNT KEY KEY [withscores]",
    "zunionstore KEY 2 KEY KEY [WEIGHTS] [AGGREGATE]",
    "zinterstore KEY 2 KEY KEY [WEIGHTS] [AGGREGATE]",
    "zdiffstore KEY 2 KEY KEY",
    "zintercard COUNT KEY KEY [LIMIT]",
    "scan CURSOR count 1000 [SCANOPT] [TYPEOPT]",
    "keys PATTERN",
    "select DB",
    "blpop KEY KEY WAIT",
    "brpop KEY WAIT",
    "blmove KEY KEY END END WAIT",
    "brpoplpush KEY KEY WAIT",
    "blmpop WAIT 1 KEY END [COUNTOPT]",
    "bzpopmin KEY KEY WAIT",
    "bzpopmax KEY WAIT",
    "bzmpop WAIT 1 KEY MINMAX",
];

/// A command.
pub(crate) fn command(draw: &mut Random) -> Args {
    let form = FORMS[draw.index(FORMS.len())];
    let mut args = Vec::new();
    for word in form.split_whitespace() {
        if let Some(word) = word.strip_prefix('[') {
            if draw.index(3) == 0 {
                args.extend(meant(word.trim_end_matches(']'), draw));
            }
        } else if let Some(word) = word.strip_suffix("...") {
            for _ in 0..1 + draw.index(5) {
                args.extend(meant(word, draw));
            }
        } else {
            args.extend(meant(word, draw));
        }
    }
    // Now and then one argument too many, too few, or a strange one.
    match draw.index(60) {
        0 => args.push(b"more".to_vec()),
        1 if args.len() > 1 => drop(args.pop()),
        2 if args.len() > 1 => {
            let at = 1 + draw.index(args.len() - 1);
            let strange =
                ["", "-1", "x", "9223372036854775808", "1e400", "nan", "+1", " 1", "(", "-0"];
            args[at] = draw.one_of(&strange).as_bytes().to_vec();
        }
        _ => {}
    }
    args
}

/// What a word of a form stands for.
fn meant(word: &str, draw: &mut Random) -> Args {
    let text = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Args>();
    let numbers =
        ["0", "1", "-1", "7", "100", "-100", "3000", "9223372036854775807", "-9223372036854775808"];
    let floats = [
        "0.1",
        "1",
        "-2.5",
        "3e5",
        "1e-5",
        "0.30000000000000004",
        "1000.1",
        "inf",
        "1e19",
        "-0.7",
        "123456789.123456789",
    ];
    let one = match word {
        "KEY" => return vec![format!("k{}", draw.index(12)).into_bytes()],
        "MEMBER" => {
            return vec![match draw.index(12) {
                0 => vec![b'm'; 60 + draw.index(10)],
                n => format!("m{}", draw.index(if n < 6 { 10 } else { 300 })).into_bytes(),
            }];
        }
        "PAIRS" => {
            // Up to the most that Redis keeps in a listpack, and more.
            let pairs = [1, 128, 129, 511, 512, 513][draw.index(6)];
            return (0..pairs).flat_map(|n| [format!("m{n}").into(), b"v".to_vec()]).collect();
        }
        "VALUE" => {
            return vec![match draw.index(16) {
                0 => vec![b'v'; 30 + draw.index(60)],
                1 => vec![b'x'; draw.index(5000)],
                2 => (0..draw.index(40)).map(|_| draw.draw() as u8).collect(),
                3 => draw.one_of(&numbers).into(),
                _ => draw.one_of(&["a", "b", "abc", "hello", "", "ohmytext", "mynewtext"]).into(),
            }];
        }
        "NUMBER" => match draw.index(2) {
            0 => return vec![draw.index(700).to_string().into_bytes()],
            _ => draw.one_of(&numbers),
        },
        "FLOAT" => draw.one_of(&floats),
        "SCORE" => match draw.index(2) {
            0 => return vec![draw.index(50).to_string().into_bytes()],
            _ => draw.one_of(&["0.1", "-1.5", "inf", "-inf", "1e20", "0.2", "3", "-0", "17.25"]),
        },
        "INDEX" => draw.one_of(&["0", "1", "-1", "2", "-2", "5", "-7", "100", "-100", "3000"]),
        "OFFSET" => draw.one_of(&["0", "1", "7", "8", "30", "100", "1023", "#2", "-1"]),
        "COUNT" => draw.one_of(&["0", "1", "2", "2", "2", "3", "20"]),
        "BIT" => draw.one_of(&["0", "1", "1", "2"]),
        "UNIT" => draw.one_of(&["bit", "byte", "BIT"]),
        "BITOP" => draw.one_of(&["and", "or", "xor", "not"]),
        "FIELD" => draw.one_of(&["u8", "i8", "u1", "i64", "u63", "i5", "u64", "u13"]),
        "BITSTEP" => match draw.index(4) {
            0 => return [text("get"), meant("FIELD", draw), meant("OFFSET", draw)].concat(),
            1 => {
                return [
                    text("set"),
                    meant("FIELD", draw),
                    meant("OFFSET", draw),
                    meant("NUMBER", draw),
                ]
                .concat();
            }
            2 => {
                return [
                    text("incrby"),
                    meant("FIELD", draw),
                    meant("OFFSET", draw),
                    meant("NUMBER", draw),
                ]
                .concat();
            }
            _ => draw.one_of(&["overflow sat", "overflow wrap", "overflow fail"]),
        },
        "SETOPT" => draw.one_of(&[
            "nx",
            "xx",
            "get",
            "keepttl",
            "ex 1000",
            "px 1000000",
            "exat 33177117420",
            "pxat 33177117420000",
            "ex 0",
            "px -1",
        ]),
        "GETOPT" => draw.one_of(&["persist", "ex 1000", "pxat 33177117420000", "exat 1", "ex 0"]),
        "LCSOPT" => draw.one_of(&["len", "idx", "minmatchlen 2", "withmatchlen"]),
        "TIME" => draw.one_of(&["100", "1000", "5000", "0", "-1", "9223372036854775807"]),
        "BIGTIME" => draw.one_of(&["100000", "1000000", "-1", "9223372036854775807"]),
        "AT" => draw.one_of(&["33177117420", "33177117421", "1", "-1"]),
        "ATMS" => draw.one_of(&["33177117420000", "33177117421499", "1"]),
        "EXPOPT" => draw.one_of(&["nx", "xx", "gt", "lt", "zz"]),
        "DB" => draw.one_of(&["0", "0", "0", "1", "1", "99"]),
        "FLUSH" => draw.one_of(&["more", "async"]),
        "SIDE" => draw.one_of(&["before", "after"]),
        "END" => draw.one_of(&["left", "right"]),
        "MINMAX" => draw.one_of(&["min", "max"]),
        "COUNTOPT" => draw.one_of(&["count 1", "count 2", "count 30", "count 0"]),
        "LPOSOPT" => draw.one_of(&[
            "rank 1", "rank -1", "rank 2", "rank 0", "count 0", "count 2", "maxlen 3", "maxlen 0",
        ]),
        "LIMIT" => draw.one_of(&["limit 0", "limit 1", "limit 5", "limit -1"]),
        "LIMITS" => {
            draw.one_of(&["limit 0 1", "limit 1 2", "limit 0 -1", "limit -1 5", "limit 2 100"])
        }
        "CURSOR" => draw.one_of(&["0", "0", "0", "x"]),
        "SCANOPT" => draw.one_of(&[
            "count 100000",
            "count 100000 match *1*",
            "match m[1-3]* count 100000",
            "count 0",
            "match",
        ]),
        "TYPEOPT" => draw.one_of(&["type string", "type list", "type zset", "type none"]),
        "PATTERN" => draw.one_of(&["*", "k1*", "k?", "k[1-4]", "[^k]*", "nothing"]),
        "ZADDOPT" => draw.one_of(&["nx", "xx", "gt", "lt", "ch", "incr"]),
        "BOUND" => draw.one_of(&["-inf", "+inf", "0", "10", "(10", "(3", "30", "-1.5", "(inf"]),
        "LEX" => draw.one_of(&["-", "+", "[m1", "(m1", "[m2", "[m", "(z", "m"]),
        "WEIGHTS" => draw.one_of(&["weights 1 2", "weights 0.5 -1", "weights inf 0", "weights 1"]),
        "AGGREGATE" => {
            draw.one_of(&["aggregate sum", "aggregate min", "aggregate max", "aggregate avg"])
        }
        "WAIT" => draw.one_of(&["0.001", "0.001", "0.001", "-1", "x"]),
        other => other,
    };
    text(one)
}
