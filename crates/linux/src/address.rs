//! Addresses as people write them: a MAC and an IP address with its prefix length.
//!
//! Both print and parse the way `ip` does, and travel through serde as that text, so a record reads like a command
//! line. Neither looks at the network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Text that is not an address of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct AddressError {
    text: String,
    expected: &'static str,
}

/// An Ethernet address, six bytes in wire order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether an interface may carry it: not a group address, not all zeros.
    pub fn is_assignable(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for Mac {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refused = || AddressError {
            text: text.to_owned(),
            expected: "a MAC address such as 02:00:00:00:00:01",
        };
        let mut bytes = [0; 6];
        let mut groups = text.split(':');
        for byte in &mut bytes {
            let group = groups.next().ok_or_else(refused)?;
            // from_str_radix alone would accept "+1".
            if group.len() != 2 || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(refused());
            }
            *byte = u8::from_str_radix(group, 16).map_err(|_| refused())?;
        }
        if groups.next().is_some() { Err(refused()) } else { Ok(Mac(bytes)) }
    }
}

/// An interface's IP address with the prefix length of its network, as in `10.0.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: IpAddr,
    prefix_bits: u8,
}

impl Cidr {
    /// Pairs an address with a prefix length of at most 32 (IPv4) or 128 (IPv6) bits.
    pub fn new(address: impl Into<IpAddr>, prefix_bits: u8) -> Result<Self, AddressError> {
        let address = address.into();
        let prefix_bits_max = if address.is_ipv4() { 32 } else { 128 };
        if prefix_bits > prefix_bits_max {
            return Err(AddressError {
                text: format!("{address}/{prefix_bits}"),
                expected: "an address whose prefix fits (0-32 for IPv4, 0-128 for IPv6)",
            });
        }
        Ok(Cidr { address, prefix_bits })
    }

    /// The address itself.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Length of the network part, bits.
    pub fn prefix_bits(self) -> u8 {
        self.prefix_bits
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix_bits)
    }
}

impl FromStr for Cidr {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refused = || AddressError {
            text: text.to_owned(),
            expected: "an address with a prefix length such as 10.0.0.1/24",
        };
        let (address, prefix) = text.split_once('/').ok_or_else(refused)?;
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let prefix_bits: u8 = prefix.parse().map_err(|_| refused())?;
        Cidr::new(address, prefix_bits)
    }
}

macro_rules! serde_as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = AddressError;
            fn try_from(text: String) -> Result<Self, AddressError> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}
serde_as_text!(Mac);
serde_as_text!(Cidr);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refuses_text_that_only_resembles_an_address() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "+2:00:00:00:00:01", "2:0:0:0:0:1"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
        for text in ["10.0.0.1", "10.0.0.1/33", "10.0.0.1/-1", "fd00::1/129", "a/24"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn mac_survives_its_text(bytes: [u8; 6]) {
            prop_assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
        }

        #[test]
        fn cidr_survives_its_text(address: IpAddr, prefix_bits in 0u8..=32) {
            let cidr = Cidr::new(address, prefix_bits).expect("32 bits fit both families");
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
        }
    }
}
