//! Routes and neighbours as they are written.

use crate::config_error::ConfigError;
use laneway_core::PortId;
use laneway_wire::Mac;
use std::{net::IpAddr, str::FromStr};

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix; bits beyond its length are zero.
    pub address: IpAddr,
    /// Its length.
    pub bits: u32,
    /// The next hop; `None` when the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The port to leave by.
    pub port: PortId,
}

impl FromStr for Route {
    type Err = ConfigError;

    /// `10.0.0.0/8 via 192.0.2.1 port 1`, `2001:db8::/64 port 0`.
    fn from_str(text: &str) -> Result<Route, ConfigError> {
        let wrong = |expected: &str| ConfigError::Word {
            what: "route",
            found: text.to_owned(),
            expected: expected.to_owned(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (prefix, gateway, port) = match words[..] {
            [prefix, "port", port] => (prefix, None, port),
            [prefix, "via", gateway, "port", port] => (prefix, Some(gateway), port),
            _ => return Err(wrong("`PREFIX/BITS [via ADDRESS] port N`")),
        };
        let parsed = prefix.split_once('/').and_then(|(address, bits)| {
            Some((address.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?))
        });
        let (address, bits) =
            parsed.ok_or_else(|| wrong("an address, `/` and a number of bits"))?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        if bits > bits_max {
            return Err(wrong(&format!("at most {bits_max} bits")));
        }
        let gateway = match gateway.map(str::parse::<IpAddr>) {
            None => None,
            Some(Ok(gateway)) if gateway.is_ipv4() == address.is_ipv4() => Some(gateway),
            Some(_) => return Err(wrong("a next hop of the same family behind `via`")),
        };
        let port = port.parse().map_err(|_| wrong("a port number behind `port`"))?;
        let address = match address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                IpAddr::V4((u32::from(ip) & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                IpAddr::V6((u128::from(ip) & mask).into())
            }
        };
        Ok(Route { address, bits, gateway, port: PortId(port) })
    }
}

/// A neighbour's link address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: Mac,
}

impl FromStr for Neighbour {
    type Err = ConfigError;

    /// `192.0.2.1 02:00:00:00:00:09`
    fn from_str(text: &str) -> Result<Neighbour, ConfigError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match words[..] {
            [address, mac] => address.parse().ok().zip(parse_mac(mac)),
            _ => None,
        };
        parsed.map(|(address, mac)| Neighbour { address, mac }).ok_or_else(|| ConfigError::Word {
            what: "neighbour",
            found: text.to_owned(),
            expected: "an address and a MAC address, as `192.0.2.1 02:00:00:00:00:09`".to_owned(),
        })
    }
}

/// Six hexadecimal bytes with colons.
pub fn parse_mac(text: &str) -> Option<Mac> {
    let value = laneway_flow::pattern::Notation::Mac.parse(text)?;
    value.to_be_bytes()[10..].try_into().ok()
}
