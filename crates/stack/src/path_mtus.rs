//! Path MTUs that routers reported: believed for a while, of so many destinations.

use crate::{config::HostLimits, siphash::Keyed};
use std::{collections::HashMap, net::IpAddr};

/// Destinations whose path takes less than our own link.
pub(crate) struct PathMtus {
    limits: HostLimits,
    known: HashMap<IpAddr, PathMtu, Keyed>,
}

#[derive(Clone, Copy)]
struct PathMtu {
    bytes: usize,
    until_ns: u64,
}

impl PathMtus {
    pub(crate) fn new(limits: HostLimits, secret: [u64; 2]) -> PathMtus {
        PathMtus { limits, known: HashMap::with_hasher(Keyed(secret)) }
    }

    /// Takes note of a smaller one; false if it changes nothing.
    pub(crate) fn learn(&mut self, destination: IpAddr, bytes: usize, now_ns: u64) -> bool {
        let until_ns = now_ns.saturating_add(self.limits.path_mtu_ns);
        if let Some(known) = self.known.get_mut(&destination) {
            if now_ns < known.until_ns && known.bytes <= bytes {
                return false;
            }
        } else if self.known.len() >= self.limits.path_mtus_max {
            self.known.retain(|_, known| now_ns < known.until_ns);
            if self.known.len() >= self.limits.path_mtus_max {
                return false;
            }
        }
        self.known.insert(destination, PathMtu { bytes, until_ns });
        true
    }

    /// What is known of the path to `destination`.
    pub(crate) fn get(&mut self, destination: IpAddr, now_ns: u64) -> Option<usize> {
        if self.known.is_empty() {
            return None;
        }
        let known = *self.known.get(&destination)?;
        if now_ns >= known.until_ns {
            self.known.remove(&destination);
            return None;
        }
        Some(known.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_mtus(max: usize) -> PathMtus {
        PathMtus::new(HostLimits { path_mtus_max: max, ..HostLimits::default() }, [3, 4])
    }

    #[test]
    fn a_path_mtu_shrinks_and_is_forgotten() {
        let there: IpAddr = "10.0.0.9".parse().unwrap();
        let mut known = path_mtus(8);
        assert!(known.learn(there, 1400, 0) && known.learn(there, 1300, 0));
        assert!(!known.learn(there, 1350, 0));
        assert_eq!(known.get(there, 1), Some(1300));
        assert_eq!(known.get(there, HostLimits::default().path_mtu_ns), None);
    }

    #[test]
    fn what_strangers_tell_of_paths_is_bounded() {
        let mut known = path_mtus(8);
        let believed = (0..100).filter(|&i| known.learn([10, 0, 0, i].into(), 1300, 0)).count();
        assert_eq!((believed, known.known.len()), (8, 8));
    }
}
