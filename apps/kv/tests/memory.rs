//! What a key costs in memory that is resident. A program of its own: other tests would take memory beside it.

use laneway_kv::{Call, DATA_COMMANDS, Effects, Run, Store};
use laneway_resp::Reply;

const KEYS: usize = 1_000_000;
/// Redis 7.0 takes some 160 bytes for a key of 16 bytes with a value of 64; ours at most 1.1 times that.
const KEY_BYTES_MAX: usize = 176;

/// Bytes of this program that are resident.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says so");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has the line");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<usize>().expect("a number") * 1024
}

#[test]
fn a_million_small_keys_take_no_more_than_in_redis() {
    let rows = DATA_COMMANDS.iter().copied().flatten();
    let set = rows.into_iter().find(|row| row.name == "set").expect("SET is a command");
    let Run::Data(run) = set.run else { panic!("SET is of the data") };
    let (mut store, value) = (Store::with_seed(1), [b'v'; 64]);
    let (mut reply, mut effects) = (Reply::default(), Effects::default());
    let before = resident_bytes();
    for number in 0..KEYS {
        let key = format!("key:{number:012}");
        let args: &[&[u8]] = &[b"set", key.as_bytes(), &value];
        let (reply, effects) = (&mut reply, &mut effects);
        run(&mut Call {
            args,
            store: &mut store,
            database: 0,
            reply,
            now_ms: 1,
            ready: None,
            effects,
        });
        reply.clear();
    }
    let (taken, counted) = (resident_bytes() - before, store.used_bytes());
    eprintln!("{} bytes per key are resident, {} counted", taken / KEYS, counted / KEYS);
    assert!(taken <= KEYS * KEY_BYTES_MAX, "{taken} bytes for {KEYS} keys");
    // The count is what maxmemory goes by: near what is taken.
    assert!(counted.abs_diff(taken) * 5 <= taken, "{counted} bytes counted, {taken} taken");
}
