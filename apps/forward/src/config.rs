//! What a run of the forwarder is asked to do; the same for every lane and placement.

use crate::{
    Bounds, QUEUES_MAX, RuleRefused,
    bridge::{AGE_NS_DEFAULT, STATIONS_DEFAULT, STATIONS_MAX},
    config_error::ConfigError,
    route::{Neighbour, Route},
    routes::Routes,
};
use laneway_core::{PortId, PortMask};
use laneway_spec::nearest;
use laneway_wire::Mac;
use std::str::FromStr;

/// What is done with a frame that no rule decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Out of the other port of the pair, as it is. A port without a partner sends back.
    #[default]
    Io,
    /// As `io`, with the sending port's own address as source and its configured peer's as
    /// destination.
    Mac,
    /// As `io`, with source and destination MAC exchanged.
    MacSwap,
    /// As `io`, with MAC addresses, IP addresses and ports exchanged, as far as they are there.
    FiveTupleSwap,
    /// A learning bridge over all ports, per VLAN.
    L2,
    /// A router: longest prefix, TTL, checksum, configured neighbours.
    L3,
    /// Receive only.
    Drop,
}

impl Mode {
    /// All modes.
    pub const ALL: &[Mode] =
        &[Mode::Io, Mode::Mac, Mode::MacSwap, Mode::FiveTupleSwap, Mode::L2, Mode::L3, Mode::Drop];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Io => "io",
            Mode::Mac => "mac",
            Mode::MacSwap => "macswap",
            Mode::FiveTupleSwap => "5tswap",
            Mode::L2 => "l2",
            Mode::L3 => "l3",
            Mode::Drop => "drop",
        }
    }
}

impl FromStr for Mode {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Mode, ConfigError> {
        let found = Mode::ALL.iter().find(|mode| mode.word() == text);
        found.copied().ok_or_else(|| {
            let words: Vec<&str> = Mode::ALL.iter().map(|mode| mode.word()).collect();
            let near = nearest(text, &words).map(|near| format!("; did you mean `{near}`?"));
            ConfigError::Word {
                what: "mode",
                found: text.to_owned(),
                expected: format!(
                    "one of {} (l2 is a bridge, l3 a router){}",
                    words.join(" "),
                    near.unwrap_or_default()
                ),
            }
        })
    }
}

/// The knobs of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is done with a frame that no rule decided on.
    pub mode: Mode,
    /// Ports of the lane, 1 to 32.
    pub ports: usize,
    /// Queues that rules may name, 1 to [`QUEUES_MAX`].
    pub queues: u16,
    /// Own link addresses by port: sources in `mac` and `l3`, and in `l3` the destination that frames
    /// to be routed must have. Ports beyond the list send from `02:00:00:00:01:<port>` and take all.
    pub own: Vec<Mac>,
    /// Link addresses at the other end by port, for mode `mac`; beyond the list testpmd's own
    /// `02:00:00:00:00:<port>`.
    pub peers: Vec<Mac>,
    /// Routes of mode `l3`.
    pub routes: Vec<Route>,
    /// Neighbours of mode `l3`.
    pub neighbours: Vec<Neighbour>,
    /// Stations that mode `l2` can know at a time.
    pub stations_max: usize,
    /// How long it knows a station that is silent.
    pub age_ns: u64,
    /// So that no sender can choose addresses that fall together in its table.
    pub hash_seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Mode::Io,
            ports: 2,
            queues: 1,
            own: Vec::new(),
            peers: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            stations_max: STATIONS_DEFAULT,
            age_ns: AGE_NS_DEFAULT,
            hash_seed: 0,
        }
    }
}

impl Config {
    /// What rules of this run can name.
    pub fn bounds(&self) -> Bounds {
        Bounds { ports: self.ports, queues: self.queues }
    }

    /// The other port of the pair (0 and 1, 2 and 3, ...); the port itself without one.
    pub fn partner(&self, port: PortId) -> PortId {
        let other = port.0 ^ 1;
        if (other as usize) < self.ports { PortId(other) } else { port }
    }

    pub(crate) fn own_mac(&self, port: usize) -> Mac {
        self.own.get(port).copied().unwrap_or([2, 0, 0, 0, 1, port as u8])
    }

    pub(crate) fn peer_mac(&self, port: usize) -> Mac {
        self.peers.get(port).copied().unwrap_or([2, 0, 0, 0, 0, port as u8])
    }

    /// Whether this can run.
    ///
    /// # Errors
    /// One sentence with the value and what to try.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.tables().map(drop)
    }

    /// Checks everything and makes the table of routes, if the mode has one.
    pub(crate) fn tables(&self) -> Result<Option<Routes>, ConfigError> {
        for (what, len, max) in [
            ("ports", self.ports, PortMask::PORTS_MAX),
            ("queues", usize::from(self.queues), QUEUES_MAX),
            ("stations", self.stations_max, STATIONS_MAX),
        ] {
            if len == 0 {
                return Err(ConfigError::None { what });
            }
            if len > max {
                return Err(ConfigError::TooMany { what, len, max });
            }
        }
        for route in &self.routes {
            let wrong = |why: RuleRefused| ConfigError::Route {
                to: format!("{}/{}", route.address, route.bits),
                why: why.to_string(),
            };
            self.bounds().check_port(route.port.0).map_err(wrong)?;
        }
        match self.mode {
            Mode::L3 => Routes::new(&self.routes, &self.neighbours).map(Some),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_pair_as_testpmd_pairs_them() {
        let pairs = |ports: usize| -> Vec<u32> {
            let config = Config { ports, ..Config::default() };
            (0..ports as u32).map(|port| config.partner(PortId(port)).0).collect()
        };
        assert_eq!(pairs(1), [0]);
        assert_eq!(pairs(2), [1, 0]);
        assert_eq!(pairs(5), [1, 0, 3, 2, 4]);
    }

    #[test]
    fn routes_and_neighbours_are_read_from_text() {
        let route: Route = "10.9.8.7/8 via 192.0.2.1 port 1".parse().expect("a route");
        assert_eq!(
            (route.address.to_string(), route.bits, route.port.0),
            ("10.0.0.0".into(), 8, 1)
        );
        assert!(route.gateway.is_some());
        assert_eq!("::/0 port 0".parse::<Route>().expect("a route").gateway, None);
        for bad in ["10.0.0.0/33 port 0", "10.0.0.0 port 0", "10.0.0.0/8 via ::1 port 0", "x"] {
            bad.parse::<Route>().expect_err(bad);
        }
        let neighbour: Neighbour = "::1 2:0:0:0:0:9".parse().expect("a neighbour");
        assert_eq!(neighbour.mac, [2, 0, 0, 0, 0, 9]);
        "::1 2:0:0:0:0".parse::<Neighbour>().expect_err("five bytes");
    }

    #[test]
    fn what_cannot_run_says_why() {
        let why = |config: Config| config.check().expect_err("refused").to_string();
        assert!(why(Config { ports: 33, ..Config::default() }).contains("32 are the most"));
        assert!(why(Config { queues: 0, ..Config::default() }).contains("at least 1"));
        let routes = vec!["10.0.0.0/8 port 2".parse().expect("a route")];
        let config = Config { mode: Mode::L3, routes, ..Config::default() };
        assert!(why(config).contains("route to 10.0.0.0/8: there is no port 2"));
        let mode = "macswp".parse::<Mode>().expect_err("no mode").to_string();
        assert!(mode.contains("did you mean `macswap`?"), "{mode}");
    }
}
