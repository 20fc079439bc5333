//! SLOWLOG: the commands that took longest, a bounded number of them, without the passwords in them.

use std::collections::VecDeque;

/// Arguments of a command that are kept, and bytes of each; as Redis does.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) at_s: u64,
    pub(crate) took_us: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) name: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct Slowlog {
    entries: VecDeque<Entry>,
    next_id: u64,
    /// Left out from one number to the next: other workers have them.
    skipped_ids: u64,
}

impl Slowlog {
    /// From now on entries have numbers that no other of so many workers gives.
    pub(crate) fn number_for(&mut self, worker: usize, workers: usize) {
        (self.next_id, self.skipped_ids) = (worker as u64, workers as u64 - 1);
    }

    pub(crate) fn add(
        &mut self,
        now_us: u64,
        took_us: u64,
        (command, args): (&str, &[&[u8]]),
        client: (String, &[u8]),
        len_max: usize,
    ) {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        let whole = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
        for (at, arg) in args[..whole].iter().enumerate() {
            if is_secret(command, args, at) {
                kept.push(b"(redacted)".to_vec());
                continue;
            }
            let mut text = arg[..arg.len().min(ARG_BYTES_MAX)].to_vec();
            if arg.len() > ARG_BYTES_MAX {
                let more = arg.len() - ARG_BYTES_MAX;
                text.extend(format!("... ({more} more bytes)").bytes());
            }
            kept.push(text);
        }
        if whole < args.len() {
            let more = args.len() - whole;
            kept.push(format!("... ({more} more arguments)").into_bytes());
        }
        let (peer, name) = client;
        self.entries.push_front(Entry {
            id: self.next_id,
            at_s: now_us / 1_000_000,
            took_us,
            args: kept,
            peer,
            name: name.into(),
        });
        self.next_id += 1 + self.skipped_ids;
        self.entries.truncate(len_max);
    }

    /// The newest first.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// True if a command's argument at that place is a password, or a user's name beside one: what Redis keeps out of its
/// log, and what it takes no care of where the command is in error.
fn is_secret(command: &str, args: &[&[u8]], at: usize) -> bool {
    let is_word = |at: usize, word: &[u8]| args[at].eq_ignore_ascii_case(word);
    match command {
        "auth" => at >= 1,
        "hello" => (at.saturating_sub(2).max(1)..at).any(|before| is_word(before, b"auth")),
        "acl|setuser" => at >= 2,
        "config|set" => at >= 3 && SECRET_PARAMETERS.iter().any(|name| is_word(at - 1, name)),
        _ => false,
    }
}

/// Parameters of Redis whose values are secrets.
const SECRET_PARAMETERS: &[&[u8]] = &[
    b"masterauth",
    b"masteruser",
    b"requirepass",
    b"tls-client-key-file-pass",
    b"tls-key-file-pass",
];
