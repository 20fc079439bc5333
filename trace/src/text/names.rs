//! Names in columns: cut in the middle, so that begin and end stay, and never two equal for different names.
//!
//! `std::map<...>::find` and `std::map<...>::erase` differ at the end, overloads in the middle. A name that was cut
//! shows a `~` where letters are missing; where that would make two rows equal, the letters that tell them apart are
//! shown.

use std::collections::{HashMap, HashSet};

/// Stands for what was cut.
const CUT: char = '~';
/// Letters that stand before a difference that is shown.
const BEFORE: usize = 6;

/// A label of at most `columns` letters for each name, in their order; equal only where the names are.
pub(super) fn labels<'a>(names: impl Iterator<Item = &'a str>, columns: usize) -> Vec<String> {
    let names: Vec<Vec<char>> = names.map(clean).collect();
    let mut labels: Vec<String> = names.iter().map(|name| middle_cut(name, columns)).collect();
    let mut equal: HashMap<&String, Vec<usize>> = HashMap::new();
    for (at, label) in labels.iter().enumerate() {
        equal.entry(label).or_default().push(at);
    }
    let mut groups: Vec<Vec<usize>> = equal.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    for group in groups {
        let first = &names[group[0]];
        let common = |name: &Vec<char>| first.iter().zip(name).take_while(|(a, b)| a == b).count();
        let others = group.iter().map(|&at| &names[at]).filter(|name| *name != first);
        // Where the first of them goes another way; none does if all are one name.
        let Some(apart) = others.map(common).min() else { continue };
        for at in group {
            labels[at] = around(&names[at], apart, columns);
        }
    }
    number_equal(&names, labels, columns)
}

/// One name of at most `columns` letters.
pub(super) fn label(name: &str, columns: usize) -> String {
    middle_cut(&clean(name), columns)
}

/// Control characters are shown as `?`: names come from files.
fn clean(name: &str) -> Vec<char> {
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn middle_cut(name: &[char], columns: usize) -> String {
    if name.len() <= columns {
        return name.iter().collect();
    }
    let tail = columns.saturating_sub(1) / 2;
    let head = &name[..columns.saturating_sub(tail + 1)];
    head.iter().chain([&CUT]).chain(&name[name.len() - tail..]).collect()
}

/// A few letters of the begin, and those around the place where names part.
fn around(name: &[char], apart: usize, columns: usize) -> String {
    let head = columns / 4;
    let from = apart.saturating_sub(BEFORE);
    if name.len() <= columns || from <= head {
        let kept: String = name.iter().take(columns.saturating_sub(1)).collect();
        return if name.len() <= columns { name.iter().collect() } else { format!("{kept}{CUT}") };
    }
    let begin: String = name[..head].iter().collect();
    let rest = &name[from.min(name.len())..];
    let room = columns.saturating_sub(head + 1);
    if rest.len() <= room {
        return format!("{begin}{CUT}{}", rest.iter().collect::<String>());
    }
    let shown: String = rest[..room.saturating_sub(1)].iter().collect();
    format!("{begin}{CUT}{shown}{CUT}")
}

/// What is equal all the same, though the names are not, gets a number.
fn number_equal(names: &[Vec<char>], labels: Vec<String>, columns: usize) -> Vec<String> {
    let mut label_of: HashMap<&Vec<char>, String> = HashMap::new();
    let mut used: HashSet<String> = HashSet::new();
    for (name, label) in names.iter().zip(labels) {
        if label_of.contains_key(name) {
            continue;
        }
        let numbered = (2..).map(|number: u32| {
            let number = format!("{CUT}{number}");
            let kept = label.chars().take(columns.saturating_sub(number.len()));
            kept.chain(number.chars()).collect::<String>()
        });
        let mut candidates = std::iter::once(label.clone()).chain(numbered);
        let free = candidates.find(|candidate| !used.contains(candidate)).unwrap_or(label);
        used.insert(free.clone());
        label_of.insert(name, free);
    }
    names.iter().map(|name| label_of[name].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn begin_and_end_stay_and_short_names_are_whole() {
        assert_eq!(label("rte_eth_rx_burst", 30), "rte_eth_rx_burst");
        let long = "std::map<std::string, std::vector<int>>::erase";
        assert_eq!(label(long, 20), "std::map<s~>>::erase");
        assert_eq!(label("a\u{1b}[31mb", 10), "a?[31mb");
    }

    #[test]
    fn names_that_differ_in_the_middle_show_where() {
        let of = |middle: &str| {
            format!("std::unordered_map<std::string, {middle}, std::hash<std::string>>::find")
        };
        let names = [of("Flow"), of("Rule"), "short".to_owned(), of("Flow")];
        let labels = labels(names.iter().map(String::as_str), 28);
        assert_eq!(labels[0], "std::un~ring, Flow, std::ha~");
        assert_eq!(labels[1], "std::un~ring, Rule, std::ha~");
        assert_eq!((labels[2].as_str(), &labels[3]), ("short", &labels[0]), "one name, one label");
    }

    proptest! {
        #[test]
        fn labels_are_equal_only_where_names_are(
            names in prop::collection::vec("[ab]{0,24}", 0..24), columns in 8usize..16,
        ) {
            let labels = labels(names.iter().map(String::as_str), columns);
            for (a, one) in names.iter().zip(&labels) {
                prop_assert!(one.chars().count() <= columns, "{one}");
                for (b, other) in names.iter().zip(&labels) {
                    prop_assert_eq!(a == b, one == other, "{} {}", a, b);
                }
            }
        }
    }
}
