//! The workers that a command concerns: the worker that has its keys, all workers, or that of its client.
//!
//! By the table of commands with keys, and by the one here without. What is in neither is done where its client is.

use super::join::Join;
use crate::command::{Command, Flags};

/// The workers that a command concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Its client alone.
    Client,
    /// The worker that has its keys.
    Keys,
    /// The worker that its cursor names.
    Cursor,
    /// All workers; their replies become one.
    All(Join),
}

const ALL: &[(&str, Join)] = &[
    ("acl|deluser", Join::Same),
    ("acl|log", Join::Youngest),
    ("acl|setuser", Join::Same),
    ("bgrewriteaof", Join::Same),
    ("bgsave", Join::Same),
    ("client|kill", Join::Killed),
    ("client|list", Join::Lines),
    ("client|pause", Join::Same),
    ("client|unblock", Join::Sum),
    ("client|unpause", Join::Same),
    ("config|resetstat", Join::Same),
    ("config|set", Join::Same),
    ("dbsize", Join::Sum),
    ("flushall", Join::Same),
    ("flushdb", Join::Same),
    ("info", Join::Info),
    ("keys", Join::Elements),
    ("lastsave", Join::Least),
    ("memory|stats", Join::Figures),
    ("publish", Join::Sum),
    ("pubsub|channels", Join::Names),
    ("pubsub|numpat", Join::CountOfNames),
    ("pubsub|numsub", Join::SumOfPairs),
    ("pubsub|shardchannels", Join::Names),
    ("pubsub|shardnumsub", Join::SumOfPairs),
    ("randomkey", Join::AnyOne),
    ("save", Join::Same),
    ("slowlog|get", Join::Newest),
    ("slowlog|len", Join::Sum),
    ("slowlog|reset", Join::Same),
    ("spublish", Join::Sum),
    ("swapdb", Join::Same),
];

/// The workers that a row of the table of commands concerns.
pub(crate) fn reach_of(command: &Command) -> Reach {
    if command.keys.first > 0 || command.keys.numkeys > 0 {
        return Reach::Keys;
    }
    if command.name == "scan" {
        return Reach::Cursor;
    }
    let found = ALL.iter().find(|(name, _)| *name == command.name);
    found.map_or(Reach::Client, |(_, join)| Reach::All(*join))
}

/// True if a command may be part of a transaction, which is done at the worker that has its keys.
pub(crate) fn may_be_queued(command: &Command, reach: Reach) -> bool {
    match reach {
        Reach::Keys => true,
        // These say the same wherever they are done.
        Reach::Client => {
            command.flags.has(Flags::NO_MULTI)
                || command.name.starts_with("command")
                || matches!(command.name, "ping" | "echo" | "select" | "time" | "client|id")
        }
        Reach::Cursor | Reach::All(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::COMMANDS;
    use crate::serve::rows;

    #[test]
    fn every_name_is_a_command_without_keys() {
        let (table, _) = rows::all();
        for (name, join) in ALL {
            let row = table.rows().iter().find(|row| row.command.name == *name);
            let command = row.unwrap_or_else(|| panic!("`{name}` is no command")).command;
            assert_eq!(reach_of(&command), Reach::All(*join), "{name}");
        }
    }

    #[test]
    fn no_command_on_data_is_left_to_the_worker_of_its_client() {
        for command in COMMANDS.iter().copied().flatten() {
            let has_data = command.flags.has(Flags::WRITE) || command.flags.has(Flags::READONLY);
            let is_left = reach_of(command) == Reach::Client;
            assert!(!(has_data && is_left), "{} would see one shard alone", command.name);
        }
    }
}
