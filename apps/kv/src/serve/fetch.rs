//! Commands that wait for values which are not in memory, while others go on.
//!
//! ```text
//!   admitted ─▶ a key's value was spilled ─▶ asked for, the command is kept
//!       ··· bell: all are there ─▶ done, then spilled down again
//! ```
//!
//! What a command names is known before it is done, by the table of commands, so all its values are asked for at once
//! and the loop goes on. What cannot be known so, which is the other key of a client that has waited for data, and
//! values that were spilled again while the last of a command's was on its way, is fetched while the command is done
//! ([`Store::fetch_now`]): that stops the worker for a read each, and INFO counts it (`lsm_waited`).
//!
//! What must always hold: a client whose command waits is held as by CLIENT PAUSE, so its replies keep their order;
//! what is over the limit goes at the end of every turn, and where the value store is behind, writes wait as they do
//! for a full log.
//!
//! [`Store::fetch_now`]: crate::data::Store::fetch_now

use super::client::{Client, Kept};
use super::fetching::Waiting;
use super::server::Server;
use crate::command::{Command, Run};
use crate::data::Spilling;

/// Values that one turn spills at most.
const SPILLED_MAX: usize = 10_000;

impl Server {
    /// Keeps a client's command until its values are in memory; false if they are.
    pub(crate) fn awaits_values(
        &mut self,
        client: &mut Client,
        index: usize,
        args: &[&[u8]],
    ) -> bool {
        if !self.store.can_spill() {
            return false;
        }
        let command = self.table.command(index);
        let database = client.database;
        let mut values = self.store.fetch(&command, database, args);
        if command.name == "exec" {
            for kept in client.transaction.iter().flat_map(|transaction| &transaction.queued) {
                let queued = self.table.command(kept.index);
                values.extend(self.store.fetch(&queued, database, &kept.args()));
            }
            values.sort_unstable();
            values.dedup();
        }
        if values.is_empty() {
            return false;
        }
        let number = self.fetching.next;
        self.fetching.next += 1;
        for value in &values {
            self.fetching.by_value.entry(*value).or_default().push(number);
        }
        let waiting = Waiting { client: client.key, left: values.len(), lost: None };
        self.fetching.waiting.insert(number, waiting);
        client.postponed = Some(Box::new(Kept::new(index, args)));
        true
    }

    /// Brings the values that a command lacks into memory at once; why not, if one is lost.
    pub(crate) fn fetch_now(
        &mut self,
        command: &Command,
        database: usize,
        args: &[&[u8]],
    ) -> Result<(), String> {
        if !self.store.can_spill() || !matches!(command.run, Run::Data(_)) {
            return Ok(());
        }
        self.store.fetch_now(command, database, args).map_err(|why| lost(&why))
    }

    /// Does the commands whose values are there, and then what keeps memory within its limit.
    pub(crate) fn go_on_fetching(&mut self) {
        if !self.store.can_spill() {
            return;
        }
        let mut answered = self.store.answered();
        while !answered.is_empty() {
            for (value, result) in answered {
                self.value_is_there(value, &result);
            }
            // While commands were done others may have been answered.
            answered = self.store.answered();
        }
        self.spill_excess();
    }

    /// Does the commands that have waited for this value last.
    fn value_is_there(&mut self, value: u64, result: &Result<(), String>) {
        for number in self.fetching.by_value.remove(&value).into_iter().flatten() {
            let Some(waiting) = self.fetching.waiting.get_mut(&number) else { continue };
            waiting.left -= 1;
            if let Err(why) = result {
                waiting.lost = Some(why.clone());
            }
            if waiting.left == 0
                && let Some(waiting) = self.fetching.waiting.remove(&number)
            {
                self.do_fetched(waiting);
            }
        }
    }

    fn do_fetched(&mut self, Waiting { client, lost: why, .. }: Waiting) {
        match why {
            None => drop(self.try_kept(client)),
            Some(why) => {
                let Some(mut client) = self.clients.take(client) else { return };
                if let Some(kept) = client.postponed.take() {
                    self.refuse(&mut client, Some(kept.index), lost(&why).as_bytes());
                    self.note_taken(&mut client);
                }
                self.clients.put_back(client);
            }
        }
    }

    /// Spills what is over the limit, a bounded part of it.
    fn spill_excess(&mut self) {
        self.fetching.is_behind = false;
        for _ in 0..SPILLED_MAX {
            if !self.store.is_over_limit() || !self.spill_one() {
                break;
            }
        }
    }

    /// Spills one value; false if none can be spilled, or not now.
    pub(crate) fn spill_one(&mut self) -> bool {
        let spilled = self.store.spill_one(self.time.now_ms());
        self.fetching.is_behind = spilled == Spilling::Behind;
        spilled == Spilling::Done
    }
}

fn lost(why: &str) -> String {
    format!("ERR {why}; the log has it: look at the device, then restart")
}
