//! Banks beside a model: what the kernel finds is what a search through all entries finds.

use super::*;
use crate::fields::Fields;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

/// What `bpf/forward.h` reads, read here: a bank and a hash table.
#[derive(Clone, Default)]
struct Kernel {
    bank: Vec<u8>,
    entries: HashMap<Vec<u8>, Vec<u8>>,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Kernel {
    /// Carries out a change; `look` is called after each step with true once the new set is in force.
    fn take(&mut self, change: Change, mut look: impl FnMut(&Kernel, bool)) {
        for (key, value) in change.added {
            let before = self.entries.insert(key, value.clone());
            assert!(before.is_none_or(|before| before == value), "an entry was written again");
        }
        look(self, false);
        self.bank = change.bank;
        look(self, true);
        for key in change.removed {
            assert!(self.entries.remove(&key).is_some(), "it was there");
        }
        look(self, true);
        if let Some(bank) = change.settled {
            self.bank = bank;
            look(self, true);
        }
    }

    /// Rank and slot of the first rule that matches above a rank.
    fn find(&self, port: u8, group: u32, fields: &Fields, above: u64) -> Option<(u64, u32)> {
        let bank = &self.bank[..];
        let [lines, masks, gone] = [8, 12, 16].map(|at| u32_at(bank, at) as usize);
        let gone: Vec<u32> = (0..gone).map(|i| u32_at(bank, 24 + 4 * i)).collect();
        let first = usize::from(bank[24 + 4 * GONE_MAX + usize::from(port)]);
        let rules = 24 + 4 * GONE_MAX + PortMask::PORTS_MAX;
        let mut best: Option<(u64, u32)> = None;
        let is_before = |rank, best: Option<(u64, u32)>| best.is_none_or(|(b, _)| rank < b);
        let mask_at = rules + KERNEL_LINE_MAX * RULE_BYTES;
        for at in (first..masks).map(|i| mask_at + i * TUPLE_BYTES) {
            if bank[at + 96] != port {
                break;
            }
            let of = u32_at(bank, at + 88);
            if of != group {
                if of > group {
                    break;
                }
                continue;
            }
            if !is_before(u64_at(bank, at + 80), best) {
                break;
            }
            let has = u64_at(bank, at + 72);
            if fields.word(WORDS - 1) & has != has {
                continue;
            }
            let mut key = Vec::new();
            (0..WORDS).for_each(|w| {
                key.extend((fields.word(w) & u64_at(bank, at + 8 * w)).to_ne_bytes());
            });
            key[KEY_BYTES - 4..].copy_from_slice(&bank[at + 92..at + 96]);
            let Some(entry) = self.entries.get(&key) else { continue };
            let (rank, slot) = (u64_at(entry, 0), u32_at(entry, 16 + 12));
            let is_there = u64_at(entry, 8) <= u64_at(bank, 0) && !gone.contains(&slot);
            if is_there && rank > above && is_before(rank, best) {
                best = Some((rank, slot));
            }
        }
        for at in (0..lines).map(|i| rules + i * RULE_BYTES) {
            let matches = (0..WORDS).all(|w| {
                fields.word(w) & u64_at(bank, at + 8 * w) == u64_at(bank, at + 72 + 8 * w)
            });
            let rank = u64_at(bank, at + 144);
            let is_ours = bank[at + 244] == port && u32_at(bank, at + 240) == group;
            if is_ours && matches && rank > above && is_before(rank, best) {
                best = Some((rank, u32_at(bank, at + 152 + 12)));
            }
        }
        best
    }
}

fn new_kernel(bank: &Bank) -> Kernel {
    let Whole { bank, entries } = bank.whole();
    Kernel { bank, entries: entries.into_iter().collect() }
}

#[derive(Clone, Debug)]
struct Known {
    port: u8,
    group: u32,
    rank: u64,
    slot: u32,
    entry: Entry,
}

type Model = BTreeMap<u64, Known>;

fn by_brute_force(
    model: &Model,
    port: u8,
    group: u32,
    fields: &Fields,
    above: u64,
) -> Option<(u64, u32)> {
    let matches = |known: &&Known| {
        known.port == port
            && known.group == group
            && known.rank > above
            && known.entry.matches(fields)
    };
    model.values().find(matches).map(|known| (known.rank, known.slot))
}

/// An entry that asks `bytes` bytes of an address and has-bits `has`.
fn entry(bytes: usize, value: u8, has: u8) -> Entry {
    let words = |fields: &Fields| std::array::from_fn(|w| fields.word(w));
    let (mut mask, mut values) = (Fields::default(), Fields::default());
    mask.set(at::DST_IP + 12, &[0xff; 4][..bytes]);
    values.set(at::DST_IP + 12, &[value; 4][..bytes]);
    for fields in [&mut mask, &mut values] {
        fields.set(at::HAS + 1, &[has]);
    }
    Entry { mask: words(&mask), value: words(&values) }
}

fn fields(value: u8, odd: u8, has: u8) -> Fields {
    let mut fields = Fields::default();
    fields.set(at::DST_IP + 12, &[value, value, value, odd]);
    fields.set(at::HAS + 1, &[has]);
    fields
}

/// What every frame meets, whatever comes before.
fn agree(kernel: &Kernel, model: &Model) -> Result<(), TestCaseError> {
    for value in 0..20 {
        for (odd, has) in [(value, 1), (value, 3), (0xee, 3)] {
            let fields = fields(value, odd, has);
            for (port, group) in [(0, 0), (0, 1), (1, 0), (1, 7)] {
                let mut above = 0;
                loop {
                    let expected = by_brute_force(model, port, group, &fields, above);
                    prop_assert_eq!(kernel.find(port, group, &fields, above), expected);
                    let Some((rank, _)) = expected else { break };
                    above = rank;
                }
            }
        }
    }
    Ok(())
}

/// Mostly such that many entries share a mask.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 0usize..3, 6 => 3usize..=4]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn at_every_step_of_a_change_the_kernel_has_the_old_set_or_the_new_one(
        steps in vec((0u8..64, bytes(), 0u8..20, 1u64..4, 0usize..4, any::<u16>()), 1..400),
    ) {
        let mut bank = Bank::new();
        let (mut kernel, mut old): (Kernel, Model) = (new_kernel(&bank), Model::new());
        let mut new = old.clone();
        for (i, (kind, bytes, value, priority, place, which)) in steps.into_iter().enumerate() {
            let (port, group) = [(0, 0), (0, 1), (1, 0), (1, 7)][place];
            match kind {
                0..40 => {
                    let (rank, slot) = (priority << 40 | (i as u64 + 1), i as u32);
                    let entry = entry(bytes, value, 1 | (value & 2));
                    let entries = [entry];
                    if bank.insert(port, group, (rank, slot), &entries, Effects::default()).is_ok() {
                        new.insert(rank, Known { port, group, rank, slot, entry });
                    }
                }
                40..56 if !new.is_empty() => {
                    let at = usize::from(which) % new.len();
                    let gone = new.values().nth(at).expect("it is there").clone();
                    new.remove(&gone.rank);
                    bank.remove(gone.port, gone.group, gone.rank, &[gone.entry]);
                }
                59 => {
                    new.retain(|_, known| known.port != port);
                    bank.clear(port);
                }
                56..59 => {
                    let change = bank.commit();
                    let mut agreed = Ok(());
                    kernel.take(change, |kernel, is_new| {
                        let seen = agree(kernel, if is_new { &new } else { &old });
                        if agreed.is_ok() {
                            agreed = seen;
                        }
                    });
                    agreed?;
                    bank.settle();
                    old = new.clone();
                    // A reader that begins now begins with the same.
                    agree(&new_kernel(&bank), &new)?;
                    prop_assert_eq!(new_kernel(&bank).entries, kernel.entries.clone());
                }
                _ => {}
            }
            prop_assert!(bank.masks.len() <= KERNEL_MASKS_MAX && bank.line.len() <= KERNEL_LINE_MAX);
        }
    }
}

/// Different values of one mask.
fn numbered(i: u32) -> Entry {
    let words = |fields: &Fields| std::array::from_fn(|w| fields.word(w));
    let (mut mask, mut value) = (Fields::default(), Fields::default());
    mask.set(at::DST_IP + 12, &[0xff; 4]);
    value.set(at::DST_IP + 12, &i.to_be_bytes());
    Entry { mask: words(&mask), value: words(&value) }
}

fn with_numbered(count: u32) -> (Bank, Kernel) {
    let mut bank = Bank::new();
    for i in 0..count {
        let place = (u64::from(i) + 1, i);
        bank.insert(0, 0, place, &[numbered(i)], Effects::default()).expect("there is room");
    }
    bank.commit();
    bank.settle();
    let kernel = new_kernel(&bank);
    (bank, kernel)
}

fn finds(kernel: &Kernel, i: u32) -> Option<u32> {
    let mut fields = Fields::default();
    fields.set(at::DST_IP + 12, &i.to_be_bytes());
    kernel.find(0, 0, &fields, 0).map(|(_, slot)| slot)
}

#[test]
fn one_more_rule_is_one_entry_and_one_bank_in_a_set_of_any_size() {
    let (mut bank, mut kernel) = with_numbered(10_000);
    assert_eq!(bank.shape(), (1, 0));
    bank.insert(0, 0, (20_000, 10_000), &[numbered(10_000)], Effects::default()).expect("room");
    let change = bank.commit();
    assert_eq!((change.added.len(), change.removed.len()), (1, 0));
    assert!(change.settled.is_none());
    kernel.take(change, |_, _| ());
    bank.settle();
    assert_eq!(finds(&kernel, 10_000), Some(10_000));
    bank.remove(0, 0, 20_000, &[numbered(10_000)]);
    let change = bank.commit();
    assert_eq!((change.added.len(), change.removed.len()), (0, 1));
    kernel.take(change, |kernel, is_new| assert_eq!(finds(kernel, 10_000).is_none(), is_new));
}

#[test]
fn where_more_rules_leave_than_a_bank_can_name_the_rest_moves_to_a_new_id() {
    let (mut bank, mut kernel) = with_numbered(1_000);
    let gone = GONE_MAX as u32 + 1;
    (0..gone).for_each(|i| bank.remove(0, 0, u64::from(i) + 1, &[numbered(i)]));
    bank.insert(0, 0, (5_000, 5_000), &[numbered(5_000)], Effects::default()).expect("room");
    let change = bank.commit();
    assert_eq!((change.added.len(), change.removed.len()), (1_001 - gone as usize, 1_000));
    assert!(change.settled.is_none(), "no rule is named");
    kernel.take(change, |kernel, is_new| {
        assert_eq!(finds(kernel, 0), (!is_new).then_some(0));
        assert_eq!(finds(kernel, gone), Some(gone));
        assert_eq!(finds(kernel, 5_000), is_new.then_some(5_000));
    });
    bank.settle();
    assert_eq!((kernel.entries.len(), bank.entries.len()), (936, 936));
}

#[test]
fn few_entries_of_a_mask_are_tried_in_the_line_and_many_looked_up() {
    let few = MASK_ENTRIES_MIN as u32 - 1;
    assert_eq!(with_numbered(few).0.shape(), (0, few as usize));
    assert_eq!(with_numbered(few + 1).0.shape(), (1, 0));
    // Equal values would need a mask each: they stay, while there is room.
    let mut bank = Bank::new();
    for i in 0..KERNEL_LINE_MAX as u64 {
        bank.insert(0, 0, (i + 1, 0), &[numbered(7)], Effects::default()).expect("room");
    }
    assert_eq!(bank.shape(), (0, KERNEL_LINE_MAX));
    bank.insert(0, 0, (100, 0), &[numbered(7)], Effects::default()).expect("a mask");
    assert_eq!(bank.shape(), (1, KERNEL_LINE_MAX));
}

#[test]
fn sizes_are_those_of_the_header() {
    let header = include_str!("../../bpf/forward.h");
    let says = |line: String| assert!(header.contains(&line), "bpf/forward.h lacks `{line}`");
    says(format!("#define LW_LINE_MAX {KERNEL_LINE_MAX}"));
    says(format!("#define LW_TUPLES_MAX {KERNEL_MASKS_MAX}"));
    says(format!("#define LW_GONE_MAX {GONE_MAX}"));
    for (name, bytes) in [
        ("effects", EFFECTS_BYTES),
        ("rule", RULE_BYTES),
        ("tuple", TUPLE_BYTES),
        ("key", KEY_BYTES),
        ("entry", ENTRY_BYTES),
        ("bank", BANK_BYTES),
    ] {
        says(format!("sizeof(struct lw_{name}) == {bytes}"));
    }
    assert_eq!(Bank::new().whole().bank.len(), BANK_BYTES);
    let (key, value) = &with_numbered(100).0.whole().entries[0];
    assert_eq!((key.len(), value.len()), (KEY_BYTES, ENTRY_BYTES));
}
