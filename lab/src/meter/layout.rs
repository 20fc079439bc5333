//! The bytes of `bpf/meter.h`, and nothing else.

use super::Owner;

/// Arms that have a number; `LW_ARMS`.
pub(super) const ARMS: usize = 33;
/// The codes of `enum lw_owner`.
const FIRST_ARM: usize = 4;
const FIRST_GENERATOR: usize = FIRST_ARM + ARMS;
pub(super) const OWNERS: usize = FIRST_GENERATOR + ARMS;

/// Room for the events of owners; `LW_OWNER_ROOM`.
const OWNER_ROOM: usize = 128;

/// Which part of an owner's time; the codes of `enum lw_part`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Part {
    /// Its tasks.
    Task = 0,
    /// The threads that poll its interfaces.
    Napi = 1,
    /// Softirq that polls its interfaces, or sends by them.
    NetRx = 2,
    /// Beside it: receive softirq that polled nothing.
    BesideNetRx = 3,
    /// Beside it: transmit softirq.
    BesideNetTx = 4,
    /// Beside it: every other softirq.
    BesideSoftirq = 5,
    /// Beside it: device interrupts.
    BesideHardirq = 6,
}

pub(super) const PARTS: usize = 7;
/// What is an owner's own, and what stands beside it.
pub(super) const OWN: [Part; 3] = [Part::Task, Part::Napi, Part::NetRx];
pub(super) const BESIDE: [Part; 4] =
    [Part::BesideNetRx, Part::BesideNetTx, Part::BesideSoftirq, Part::BesideHardirq];

/// Time by owner and part, ns.
pub(super) type Cells = [[u64; PARTS]; OWNERS];
pub(super) const NOTHING: Cells = [[0; PARTS]; OWNERS];

/// Places of the words in `struct lw_meter`.
const DONE: usize = 0;
const SINCE: usize = 1;
const TASK: usize = 2;
const CONTEXT: usize = 3;
const DEVICE: usize = 4;
const PENDING: usize = 5;
const EVENTS: usize = 6;
const TABLE: usize = 7;
/// Behind the table: what is unnamed, three words of the task that runs, and pending events; then events by owner.
const OWN_EVENTS: usize = TABLE + OWNERS * PARTS + 5;
const BEGUN: usize = OWN_EVENTS + OWNER_ROOM;
pub(super) const METER_WORDS: usize = BEGUN + 1;

/// The task that runs, as in `struct lw_who`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) owner: Owner,
    pub(super) part: Part,
}

impl Who {
    pub(super) fn bytes(self) -> [u8; 8] {
        let [owner, part] = [code(self.owner), self.part as u32].map(u32::to_ne_bytes);
        [owner, part].concat().try_into().expect("two times four bytes")
    }
}

/// The code of an owner.
pub(super) fn code(owner: Owner) -> u32 {
    index(owner) as u32
}

/// Its row in the table.
pub(super) fn index(owner: Owner) -> usize {
    let numbered = |first: usize, arm: usize| {
        assert!(arm < ARMS, "arm {arm}: the meter has places for {ARMS}");
        first + arm
    };
    match owner {
        Owner::Foreign => 0,
        Owner::Idle => 1,
        Owner::Lab => 2,
        Owner::Host => 3,
        Owner::Arm(arm) => numbered(FIRST_ARM, arm),
        Owner::Generator(arm) => numbered(FIRST_GENERATOR, arm),
    }
}

/// What the kernel gave, as words.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Whether nothing was booked while these words were copied.
pub(super) fn is_whole(words: &[u64]) -> bool {
    words[DONE] == words[BEGUN]
}

/// Whether the CPU is online: a possible one that is not has no events.
pub(super) fn is_online(words: &[u64]) -> bool {
    words[SINCE] != 0
}

/// Events that the CPU booked.
pub(super) fn events(words: &[u64]) -> u64 {
    words[EVENTS]
}

/// Of these, those of what is an owner's own, by owner.
pub(super) fn own_events(words: &[u64]) -> &[u64] {
    &words[OWN_EVENTS..OWN_EVENTS + OWNERS]
}

/// Adds the time of one CPU up to `now_ns` to `cells`.
pub(super) fn add_to(cells: &mut Cells, words: &[u64], now_ns: u64) {
    for (cell, word) in cells.iter_mut().flatten().zip(&words[TABLE..]) {
        *cell = cell.wrapping_add(*word);
    }
    let mut add = |who: (usize, usize), ns: u64| {
        if let Some(cell) = cells.get_mut(who.0).and_then(|row| row.get_mut(who.1)) {
            *cell = cell.wrapping_add(ns);
        }
    };
    let (task, device) = (pair(words[TASK]), pair(words[DEVICE]));
    let beside = |part: Part| (task.0, part as usize);
    let open = match pair(words[CONTEXT]).0 {
        0 => task,
        1 | 5 => device,
        2 => beside(Part::BesideNetTx),
        3 => beside(Part::BesideSoftirq),
        _ => beside(Part::BesideHardirq),
    };
    add(open, now_ns.saturating_sub(words[SINCE]));
    // A guess, the device polled or sent by last, that the end of the softirq puts right.
    add(device, words[PENDING]);
}

/// The two halves of a word that holds two, in the order of their declaration.
fn pair(word: u64) -> (usize, usize) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| {
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    (half(0), half(4))
}

#[cfg(test)]
pub(super) mod example {
    use super::*;

    /// One CPU's `struct lw_meter`, as words.
    pub(crate) struct Cpu(pub(crate) Vec<u64>);

    impl Cpu {
        pub(crate) fn running(since_ns: u64, who: Who) -> Cpu {
            let mut words = vec![0; METER_WORDS];
            (words[SINCE], words[TASK]) = (since_ns, word(who.bytes()));
            Cpu(words)
        }

        /// In a softirq or interrupt with this code.
        pub(crate) fn in_context(mut self, code: u32) -> Cpu {
            self.0[CONTEXT] = word([code.to_ne_bytes(), [0; 4]].concat().try_into().unwrap());
            self
        }

        pub(crate) fn polled(mut self, who: Who, pending_ns: u64) -> Cpu {
            (self.0[DEVICE], self.0[PENDING]) = (word(who.bytes()), pending_ns);
            self
        }

        pub(crate) fn counted(mut self, owner: Owner, events: u64) -> Cpu {
            self.0[OWN_EVENTS + index(owner)] = events;
            self
        }

        pub(crate) fn booked(mut self, owner: Owner, part: Part, ns: u64) -> Cpu {
            self.0[TABLE + index(owner) * PARTS + part as usize] = ns;
            self
        }
    }

    fn word(bytes: [u8; 8]) -> u64 {
        u64::from_ne_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_header_holds_the_same_table() {
        let header = include_str!("../../bpf/meter.h");
        for line in [
            format!("#define LW_ARMS {ARMS}"),
            format!("LW_OWNER_ARM = {FIRST_ARM},"),
            format!("LW_PART_COUNT = {PARTS},"),
            format!("#define LW_OWNER_ROOM {OWNER_ROOM}"),
            format!("LW_PART_NET_RX = {},", Part::NetRx as u32),
            format!("LW_PART_BESIDE_HARDIRQ = {},", Part::BesideHardirq as u32),
        ] {
            assert!(header.contains(&line), "bpf/meter.h lacks `{line}`");
        }
    }

    #[test]
    fn owners_have_a_place_each() {
        let arms = (0..ARMS).flat_map(|arm| [Owner::Arm(arm), Owner::Generator(arm)]);
        let all = [Owner::Foreign, Owner::Idle, Owner::Lab, Owner::Host].into_iter().chain(arms);
        let mut places: Vec<usize> = all.map(index).collect();
        places.sort_unstable();
        assert_eq!(places, (0..OWNERS).collect::<Vec<_>>());
    }

    #[test]
    #[should_panic(expected = "arm 33: the meter has places for 33")]
    fn an_arm_beyond_the_last_has_none() {
        index(Owner::Arm(ARMS));
    }
}
