//! What the app is asked to do, checked before anything runs.
//!
//! What must always hold: a `Checked` value exists only for a consistent configuration, and both
//! placements are made from it, so that neither can be given what the other refuses.

use crate::{
    own::{AnsweredAddresses, is_sender},
    schedule::{PER_SECOND_MAX, Rate, Schedule},
};
use laneway_wire::Mac;
use std::net::IpAddr;

/// The most addresses that one app answers for.
pub const ADDRESSES_MAX: usize = 1024;
/// The TTL and hop limit of answers unless a marker is set: what Linux sends with.
pub const TTL_DEFAULT: u8 = 64;
/// Sources whose rates are known at a time, unless asked otherwise.
pub const SOURCES_DEFAULT: usize = 1 << 15;
/// The most that may be asked for; user space keeps about 44 bytes for each, the kernel about 100.
pub const SOURCES_MAX: usize = 1 << 20;

/// What to answer for, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The addresses of ours, 1 to [`ADDRESSES_MAX`]. The machine's own stack must not have them:
    /// where the lane shows copies (`packet`), it would answer as well.
    pub addresses: Vec<IpAddr>,
    /// The MAC address that those addresses are at. Frames to another one are passed.
    pub mac: Mac,
    /// TTL and hop limit of answers, 1 to 255: a mark by which one sees that this program answered. `None` is
    /// [`TTL_DEFAULT`].
    pub ttl_marker: Option<u8>,
    /// How many echo requests are answered.
    pub limits: Limits,
    /// Answer ARP requests and neighbour solicitations for the addresses. Without it the far end must
    /// know the MAC address.
    pub answer_neighbours: bool,
}

/// How many questions are answered. A worker shares nothing, so in user space every limit is one
/// worker's; in the kernel it holds over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For each source address; `None` is no limit.
    pub per_source: Option<Rate>,
    /// For all together; `None` is no limit.
    pub global: Option<Rate>,
    /// Sources known at a time, 1 to [`SOURCES_MAX`]. When full, the one not seen for longest is
    /// forgotten, and starts anew when it comes back: what sources made up by the thousand get in
    /// this way is bounded by the global limit. The kernel finds that source only roughly.
    pub sources_max: usize,
}

impl Default for Limits {
    /// 1,000 per second and at once for a source (a `ping -f -c 1000` is answered in full), 100,000 per
    /// second and 10,000 at once for all.
    fn default() -> Self {
        Limits {
            per_source: Some(Rate { per_second: 1_000, burst: 1_000 }),
            global: Some(Rate { per_second: 100_000, burst: 10_000 }),
            sources_max: SOURCES_DEFAULT,
        }
    }
}

impl Limits {
    /// Answers everything. For measurements, and where something else limits.
    pub fn none() -> Limits {
        Limits { per_source: None, global: None, sources_max: 1 }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (which, rate) in [("per-source", self.per_source), ("global", self.global)] {
            let Some(Rate { per_second, burst }) = rate else { continue };
            if !(1..=PER_SECOND_MAX).contains(&per_second) {
                return Err(ConfigError::Rate { which, per_second });
            }
            if burst == 0 {
                return Err(ConfigError::Burst { which });
            }
        }
        match self.sources_max {
            1..=SOURCES_MAX => Ok(()),
            sources => Err(ConfigError::Sources { sources }),
        }
    }
}

impl Config {
    /// Answers for `addresses` at `mac`, neighbours included, with the default limits and no marker.
    pub fn new(mac: Mac, addresses: impl IntoIterator<Item = IpAddr>) -> Config {
        Config {
            addresses: addresses.into_iter().collect(),
            mac,
            ttl_marker: None,
            limits: Limits::default(),
            answer_neighbours: true,
        }
    }

    /// Says what is wrong with the configuration, if anything is.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=ADDRESSES_MAX).contains(&self.addresses.len()) {
            return Err(ConfigError::Addresses { addresses: self.addresses.len() });
        }
        if let Some(&address) = self.addresses.iter().find(|a| !is_sender(a.to_canonical())) {
            return Err(ConfigError::Address { address });
        }
        if self.mac[0] & 1 != 0 {
            return Err(ConfigError::Mac { mac: self.mac });
        }
        if self.ttl_marker == Some(0) {
            return Err(ConfigError::Ttl);
        }
        self.limits.check()
    }

    pub(crate) fn checked(&self) -> Result<Checked, ConfigError> {
        self.check()?;
        Ok(Checked {
            own: AnsweredAddresses::new(self.mac, &self.addresses, self.answer_neighbours),
            ttl: self.ttl_marker.unwrap_or(TTL_DEFAULT),
            per_source: Schedule::of_frames(self.limits.per_source),
            global: Schedule::of_frames(self.limits.global),
            sources_max: self.limits.sources_max,
        })
    }
}

/// A configuration without contradictions, in the form that both placements work with.
pub(crate) struct Checked {
    pub(crate) own: AnsweredAddresses,
    pub(crate) ttl: u8,
    pub(crate) per_source: Schedule,
    pub(crate) global: Schedule,
    pub(crate) sources_max: usize,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// None, or more than [`ADDRESSES_MAX`].
    #[error("echo cannot answer for {addresses} addresses; give 1 to {ADDRESSES_MAX}")]
    Addresses {
        /// How many were given.
        addresses: usize,
    },
    /// An address that no interface can have.
    #[error(
        "{address} is no address of one host (group, broadcast, loopback, or reserved); give one \
         that the far end can send to"
    )]
    Address {
        /// The address.
        address: IpAddr,
    },
    /// A group address.
    #[error(
        "{mac:02x?} is a group's MAC address; give the interface's own, or any with an even first byte"
    )]
    Mac {
        /// The address.
        mac: Mac,
    },
    /// A TTL of 0 ends on the first hop.
    #[error("a TTL marker of 0 would have every answer thrown away; use 1 to 255")]
    Ttl,
    /// A rate of 0, or one that cannot be distinguished from none.
    #[error(
        "a {which} limit of {per_second} per second cannot be; use 1 to {PER_SECOND_MAX}, or none"
    )]
    Rate {
        /// `per-source` or `global`.
        which: &'static str,
        /// What was asked for.
        per_second: u32,
    },
    /// A burst of 0 would answer nothing.
    #[error("a {which} limit with a burst of 0 answers nothing; use 1 or more")]
    Burst {
        /// `per-source` or `global`.
        which: &'static str,
    },
    /// No source, or more than [`SOURCES_MAX`].
    #[error("the rates of {sources} sources cannot be kept; use 1 to {SOURCES_MAX}")]
    Sources {
        /// What was asked for.
        sources: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new([2, 0, 0, 0, 0, 1], ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()])
    }

    fn refused(change: impl Fn(&mut Config), part: &str) {
        let mut config = config();
        config.check().unwrap();
        change(&mut config);
        let sentence = config.check().expect_err(part).to_string();
        assert!(sentence.contains(part), "{sentence}");
    }

    #[test]
    fn each_contradiction_is_refused_with_its_value() {
        refused(|c| c.addresses.clear(), "0 addresses");
        refused(|c| c.addresses = vec!["10.0.0.1".parse().unwrap(); 1025], "1025 addresses");
        refused(|c| c.mac[0] = 0x33, "[33, ");
        refused(|c| c.ttl_marker = Some(0), "TTL");
        refused(|c| c.limits.sources_max = 0, "0 sources");
        let no_rate = Some(Rate { per_second: 0, burst: 1 });
        refused(|c| c.limits.per_source = no_rate, "per-source limit of 0");
        let no_burst = Some(Rate { per_second: 1, burst: 0 });
        refused(|c| c.limits.global = no_burst, "global limit with a burst of 0");
    }

    #[test]
    fn addresses_that_no_host_has_are_refused() {
        let bad = ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"];
        for address in bad.into_iter().chain(["::ffff:127.0.0.1"]) {
            refused(|c| c.addresses.push(address.parse().unwrap()), address);
        }
    }

    #[test]
    fn the_defaults_limit() {
        assert!(config().limits.per_source.is_some() && config().limits.global.is_some());
    }
}
