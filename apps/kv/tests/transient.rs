//! What a command takes beside the data while it is done. A program of its own: other tests would take memory as well.

use laneway_kv::{Call, DATA_COMMANDS, Effects, Run, Store};
use laneway_resp::Reply;

const SOURCES: usize = 64;
const SOURCE_BYTES: usize = 1 << 20;

/// Bytes of this program that are resident, or were at most.
fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says so");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it has the line");
    let kilobytes = line.split_whitespace().next().expect("a number");
    kilobytes.parse::<usize>().expect("a number") * 1024
}

fn ask(store: &mut Store, args: &[&[u8]]) {
    let rows = DATA_COMMANDS.iter().copied().flatten();
    let row = rows.into_iter().find(|row| row.name.as_bytes() == args[0]).expect("a command");
    let Run::Data(run) = row.run else { panic!("{} is the server's", row.name) };
    let (mut reply, mut effects) = (Reply::default(), Effects::default());
    let (reply, effects) = (&mut reply, &mut effects);
    run(&mut Call { args, store, database: 0, reply, now_ms: 1, ready: None, effects });
    assert!(!reply.bytes().starts_with(b"-"), "{:?}", String::from_utf8_lossy(reply.bytes()));
}

#[test]
fn bitop_of_many_keys_takes_one_result() {
    let mut store = Store::with_seed(1);
    let keys: Vec<String> = (0..SOURCES).map(|number| format!("k{number}")).collect();
    let value = vec![b'v'; SOURCE_BYTES];
    keys.iter().for_each(|key| ask(&mut store, &[b"set", key.as_bytes(), &value]));
    let before = status_bytes("VmRSS:");
    let head = [&b"bitop"[..], b"or", b"result"].into_iter();
    let args: Vec<&[u8]> = head.chain(keys.iter().map(String::as_bytes)).collect();
    ask(&mut store, &args);
    let taken = status_bytes("VmHWM:").saturating_sub(before);
    assert!(taken < 8 * SOURCE_BYTES, "{taken} bytes for {SOURCES} keys of {SOURCE_BYTES}");
}
