//! Longest prefix match and next hops, for IPv4 and IPv6.
//!
//! A compressed trie of 64-way nodes (Asai and Ohara, "Poptrie", SIGCOMM 2015): a node is 24 bytes,
//! two bit maps tell which of its 64 parts have a node of their own and where the next hop changes,
//! and a count of bits finds them in two dense arrays. Chosen because routes come from configuration
//! and never change during a run: it is built once, needs no fixed 32 MB as DIR-24-8 does, and serves
//! both families with the same lines: at most 6 steps for IPv4, 22 for IPv6.
//!
//! Memory is bounded by [`ROUTES_MAX`]: a route adds at most one node per six bits of its length and
//! two leaves. The tests compare it with a linear search.

use crate::{
    config_error::ConfigError,
    route::{Neighbour, Route},
};
use laneway_core::PortId;
use laneway_wire::Mac;
use std::{collections::HashMap, net::IpAddr};

/// Routes of both families together.
pub const ROUTES_MAX: usize = 1 << 17;
/// Neighbours of both families together.
pub const NEIGHBOURS_MAX: usize = 1 << 16;

/// Bits per step.
const STRIDE: u32 = 6;
/// The leaf of addresses that no route covers.
const NO_HOP: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Parts that have a node of their own.
    inner: u64,
    /// Parts at which, among those that have none, the leaf differs from the one before.
    starts: u64,
    nodes: u32,
    leaves: u32,
}

/// Prefixes of one family; addresses are numbers with the highest bit first, on the left.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    leaves: Vec<u32>,
}

/// A prefix and what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) address: u128,
    pub(crate) bits: u32,
    pub(crate) hop: u32,
}

impl Trie {
    /// Builds it; of equal prefixes the last one counts.
    pub(crate) fn new(mut prefixes: Vec<Prefix>) -> Trie {
        // Stable, so that of equals the last stays last.
        prefixes.sort_by_key(|prefix| (prefix.address, prefix.bits));
        let mut trie = Trie { nodes: vec![Node::default()], leaves: Vec::new() };
        trie.build(0, 0, &prefixes, [NO_HOP; 64]);
        trie
    }

    /// Fills a node that covers the address bits from `depth` on. `prefixes` are those that end in it
    /// or below, `hops` what its parts lead to without them.
    fn build(&mut self, node: usize, depth: u32, prefixes: &[Prefix], mut hops: [u32; 64]) {
        let mut lengths = [0; 64];
        let mut inner = 0u64;
        for prefix in prefixes {
            let part = part_of(prefix.address, depth);
            if prefix.bits > depth + STRIDE {
                inner |= 1 << part;
                continue;
            }
            let covered = 1usize << (depth + STRIDE - prefix.bits).min(STRIDE);
            for at in part..(part + covered).min(64) {
                if prefix.bits >= lengths[at] {
                    (lengths[at], hops[at]) = (prefix.bits, prefix.hop);
                }
            }
        }
        let (nodes, leaves) = (self.nodes.len(), self.leaves.len());
        let mut starts = 0u64;
        for (part, &hop) in hops.iter().enumerate() {
            let is_leaf = inner >> part & 1 == 0;
            let is_first = self.leaves.len() == leaves;
            if is_leaf && (is_first || self.leaves.last() != Some(&hop)) {
                starts |= 1 << part;
                self.leaves.push(hop);
            }
        }
        self.nodes.resize(nodes + inner.count_ones() as usize, Node::default());
        self.nodes[node] = Node { inner, starts, nodes: nodes as u32, leaves: leaves as u32 };
        for (next, part) in (nodes..).zip((0..64).filter(|part| inner >> part & 1 == 1)) {
            let from = prefixes.partition_point(|p| part_of(p.address, depth) < part);
            let to = prefixes.partition_point(|p| part_of(p.address, depth) <= part);
            let below: Vec<Prefix> =
                prefixes[from..to].iter().filter(|p| p.bits > depth + STRIDE).copied().collect();
            self.build(next, depth + STRIDE, &below, [hops[part]; 64]);
        }
    }

    #[inline]
    pub(crate) fn find(&self, address: u128) -> Option<u32> {
        let (mut node, mut depth) = (self.nodes[0], 0);
        loop {
            let part = part_of(address, depth);
            // All parts up to this one; for the last one the shift empties and wraps to all ones.
            let upto = (2u64 << part).wrapping_sub(1);
            if node.inner >> part & 1 == 0 {
                let at = node.leaves + (node.starts & upto).count_ones() - 1;
                let hop = self.leaves[at as usize];
                return (hop != NO_HOP).then_some(hop);
            }
            node = self.nodes[(node.nodes + (node.inner & upto).count_ones() - 1) as usize];
            depth += STRIDE;
        }
    }
}

/// The six bits of an address from `depth` on; beyond its end zeros.
#[inline]
fn part_of(address: u128, depth: u32) -> usize {
    (address << depth >> (128 - STRIDE)) as usize
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) port: PortId,
    /// The next hop's link address. `None` for a gateway without a neighbour entry, and for hosts of
    /// the link itself, which are looked up one by one.
    pub(crate) mac: Option<Mac>,
    pub(crate) is_link: bool,
}

/// Routes and neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    v4: Trie,
    v6: Trie,
    hops: Vec<Hop>,
    neighbours: HashMap<IpAddr, Mac>,
}

impl Routes {
    pub(crate) fn new(routes: &[Route], neighbours: &[Neighbour]) -> Result<Routes, ConfigError> {
        for (what, len, max) in
            [("routes", routes.len(), ROUTES_MAX), ("neighbours", neighbours.len(), NEIGHBOURS_MAX)]
        {
            if len > max {
                return Err(ConfigError::TooMany { what, len, max });
            }
        }
        let neighbours: HashMap<IpAddr, Mac> =
            neighbours.iter().map(|n| (n.address, n.mac)).collect();
        let (mut v4, mut v6, mut hops) = (Vec::new(), Vec::new(), Vec::new());
        for (hop, route) in (0..).zip(routes) {
            let (address, family) = match route.address {
                IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, &mut v4),
                IpAddr::V6(ip) => (u128::from(ip), &mut v6),
            };
            family.push(Prefix { address, bits: route.bits, hop });
            hops.push(Hop {
                port: route.port,
                mac: route.gateway.and_then(|gateway| neighbours.get(&gateway).copied()),
                is_link: route.gateway.is_none(),
            });
        }
        Ok(Routes { v4: Trie::new(v4), v6: Trie::new(v6), hops, neighbours })
    }

    /// The hop for an address as [`Trie`] has it.
    #[inline]
    pub(crate) fn find(&self, is_v4: bool, address: u128) -> Option<&Hop> {
        let trie = if is_v4 { &self.v4 } else { &self.v6 };
        trie.find(address).map(|hop| &self.hops[hop as usize])
    }

    /// The link address of the next hop on the way to `address`.
    #[inline]
    pub(crate) fn mac(&self, hop: &Hop, is_v4: bool, address: u128) -> Option<Mac> {
        if !hop.is_link {
            return hop.mac;
        }
        let address = match is_v4 {
            true => IpAddr::V4(((address >> 96) as u32).into()),
            false => IpAddr::V6(address.into()),
        };
        self.neighbours.get(&address).copied()
    }

    pub(crate) fn hops(&self) -> &[Hop] {
        &self.hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn by_brute_force(prefixes: &[Prefix], address: u128) -> Option<u32> {
        let covers = |p: &&Prefix| {
            (address ^ p.address) & u128::MAX.checked_shl(128 - p.bits).unwrap_or(0) == 0
        };
        let mut best: Option<&Prefix> = None;
        for prefix in prefixes.iter().filter(covers) {
            if best.is_none_or(|best| prefix.bits >= best.bits) {
                best = Some(prefix);
            }
        }
        best.map(|prefix| prefix.hop)
    }

    /// Prefixes of all lengths that share much, so that they nest.
    fn prefixes() -> impl Strategy<Value = Vec<Prefix>> {
        let one = (any::<u128>(), any::<u128>(), 0u32..=128, 0u32..200, 0u32..4);
        vec(one, 0..80).prop_map(|drawn| {
            let prefix = |(a, b, bits, hop, spread): (u128, u128, u32, u32, u32)| {
                let address = if spread == 0 { a } else { b & (0x0101 << (spread * 37)) };
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                Prefix { address: address & mask, bits, hop }
            };
            drawn.into_iter().map(prefix).collect()
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_linear_search_finds(prefixes in prefixes(), others in vec(any::<u128>(), 8)) {
            let trie = Trie::new(prefixes.clone());
            for address in prefixes
                .iter()
                .flat_map(|p| [p.address, p.address.wrapping_sub(1), p.address | !0 >> p.bits.min(127)])
                .chain(others)
            {
                prop_assert_eq!(trie.find(address), by_brute_force(&prefixes, address));
            }
        }

        #[test]
        fn memory_is_bounded_by_the_number_of_routes(prefixes in prefixes()) {
            let trie = Trie::new(prefixes.clone());
            prop_assert!(trie.nodes.len() <= 1 + prefixes.len() * 22);
            prop_assert!(trie.leaves.len() <= trie.nodes.len() + 2 * prefixes.len() * 22);
        }
    }

    #[test]
    fn a_default_route_covers_everything_and_no_route_nothing() {
        assert_eq!(Trie::new(Vec::new()).find(7), None);
        let all = Trie::new(vec![Prefix { address: 0, bits: 0, hop: 3 }]);
        assert_eq!((all.find(0), all.find(u128::MAX)), (Some(3), Some(3)));
    }
}
