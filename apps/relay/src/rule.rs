//! A rule as people write it: where datagrams come in, and where a copy of each goes.
//!
//! One schema for the file (TOML) and for the control socket (JSON). A rule is known by its input: the same
//! input has the same id in every run, whatever is done with what comes in. It checks nothing ([`crate::check`])
//! and opens nothing.

use laneway_core::{Membership, PortPlan, WhenFull};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    str::FromStr,
};

/// Bytes that an output with `when_full = "oldest"` keeps waiting, unless its rule says how many.
pub(crate) const QUEUE_BYTES_DEFAULT: usize = 1 << 20;
/// Time to live of what goes to one host, unless the rule says.
pub const TTL_HOST: u8 = 64;
/// Time to live of what goes to a group, unless the rule says: the network of the interface, and no further
/// (RFC 1112, section 6.1).
pub const TTL_GROUP: u8 = 1;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it relays.
    pub input: Input,
    /// Where each datagram goes.
    pub outputs: Vec<Output>,
    /// Bytes of payload per second that it relays; what exceeds them is dropped before any output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// Which datagrams a rule is about: those to a group, to an address of ours, or to any address of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The interface that they come in on; for a group, where the route to it leads if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The group that they are sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<IpAddr>,
    /// The address of ours that they are sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Sent to any address of ours of this family: in place of `group` and `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// The UDP port that they are sent to.
    pub port: u16,
    /// The senders that may send them; all, if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What an output drops when it can send no more now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Full {
    /// What does not fit.
    #[default]
    Newest,
    /// What has waited longest: for live video.
    Oldest,
}

/// Where a copy of each datagram goes, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The group or host, and the UDP port.
    pub destination: SocketAddr,
    /// The interface that it leaves by; where the route to the destination leads if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The address of ours that it leaves from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Time to live, or hop limit: by itself [`TTL_GROUP`] to a group, [`TTL_HOST`] to a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// Differentiated services code point, below 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Priority in the queue of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// What it drops when it is full.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when_full: Full,
    /// With `when_full = "oldest"`: bytes of payload that may wait, by itself [`QUEUE_BYTES_DEFAULT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<usize>,
    /// Bytes of payload per second; what exceeds them is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// One datagram of so many is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<NonZeroU32>,
    /// Members on this machine receive what goes to a group.
    #[serde(default, skip_serializing_if = "is_default")]
    pub multicast_loop: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Input {
    /// The address that datagrams are sent to: a group, one of ours, or the unspecified one for any of ours.
    /// None where the rule names none or several; the check refuses that.
    pub fn destination(&self) -> Option<IpAddr> {
        match (self.group, self.address, self.family) {
            (Some(group), None, None) => Some(group),
            (None, Some(address), None) => Some(address),
            (None, None, Some(Family::Ipv4)) => Some(Ipv4Addr::UNSPECIFIED.into()),
            (None, None, Some(Family::Ipv6)) => Some(Ipv6Addr::UNSPECIFIED.into()),
            _ => None,
        }
    }

    /// Where the socket is that receives it: groups share one per UDP port and interface, distinguished
    /// by destination.
    pub fn bind(&self) -> Option<SocketAddr> {
        let ip = match self.destination()? {
            IpAddr::V4(group) if group.is_multicast() => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(group) if group.is_multicast() => Ipv6Addr::UNSPECIFIED.into(),
            ip => ip,
        };
        Some(SocketAddr::new(ip, self.port))
    }

    /// What its socket has to be a member of.
    pub fn memberships(&self) -> Vec<Membership> {
        let Some(group) = self.group else { return Vec::new() };
        let member = |source| Membership { group, interface: self.interface.clone(), source };
        match &self.sources[..] {
            [] => vec![member(None)],
            sources => sources.iter().map(|source| member(Some(*source))).collect(),
        }
    }

    /// The plan of a port that receives it, and nothing else yet.
    pub fn plan(&self) -> Option<PortPlan> {
        let bind = self.bind()?;
        let memberships = self.memberships();
        Some(PortPlan { interface: self.interface.clone(), memberships, ..PortPlan::at(bind) })
    }
}

/// The senders that may, as the input's, or all.
pub(crate) fn admits(sources: &[IpAddr], source: IpAddr) -> bool {
    sources.is_empty() || sources.contains(&source)
}

impl Rule {
    /// True where its input or an output is on this interface.
    pub(crate) fn names(&self, interface: &str) -> bool {
        let outputs = self.outputs.iter().map(|output| &output.interface);
        [&self.input.interface].into_iter().chain(outputs).flatten().any(|name| name == interface)
    }

    /// What people call one of its outputs: `5d0c1a2b3c4d tv to 192.0.2.9:6000 by eth2`.
    pub(crate) fn label(&self, output: &Output) -> String {
        let id = RuleId::of(&self.input);
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let by = output.interface.as_ref().map_or_else(String::new, |name| format!(" by {name}"));
        format!("{id}{name} to {}{by}", output.destination)
    }
}

impl Output {
    /// An output with everything else at its default.
    pub fn to(destination: SocketAddr, interface: Option<String>) -> Output {
        Output {
            destination,
            interface,
            source: None,
            ttl: None,
            dscp: None,
            priority: None,
            when_full: Full::Newest,
            queue_bytes: None,
            bytes_per_second: None,
            sample: None,
            multicast_loop: false,
        }
    }

    /// The plan of the port that it leaves through.
    pub fn plan(&self) -> PortPlan {
        let ip = self.destination.ip();
        let any: IpAddr =
            if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let ttl = if ip.is_multicast() { TTL_GROUP } else { TTL_HOST };
        PortPlan {
            interface: self.interface.clone(),
            source: self.source,
            hop_limit: Some(self.ttl.unwrap_or(ttl)),
            dscp: self.dscp,
            priority: self.priority,
            multicast_loop: self.multicast_loop,
            when_full: match self.when_full {
                Full::Newest => WhenFull::Newest,
                Full::Oldest => {
                    WhenFull::Oldest { bytes: self.queue_bytes.unwrap_or(QUEUE_BYTES_DEFAULT) }
                }
            },
            // Without it a full queue of the interface is a loss without a name.
            tells_full_queue: true,
            // What a fragment loses has no name, either.
            fragments: false,
            ..PortPlan::at(SocketAddr::new(any, 0))
        }
    }
}

/// `239.1.1.1:5000 on eth1 from 192.0.2.7`.
impl fmt::Display for Input {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination() {
            Some(ip) => write!(out, "{}", SocketAddr::new(ip, self.port))?,
            None => write!(out, "port {}", self.port)?,
        }
        if let Some(interface) = &self.interface {
            write!(out, " on {interface}")?;
        }
        let mut between = " from ";
        for source in &self.sources {
            write!(out, "{between}{source}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// The number of a rule: a hash of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RuleId(u64);

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 12;

impl RuleId {
    /// The id of every rule with this input. The order of its sources does not matter.
    pub fn of(input: &Input) -> RuleId {
        let mut sources = input.sources.clone();
        sources.sort_unstable();
        let text = Input { sources, ..input.clone() }.to_string();
        // FNV-1a: the same in every build and on every machine, as an id must be.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        RuleId((hash ^ hash >> 48) & ((1 << (4 * ID_DIGITS)) - 1))
    }

    /// Which of so many workers has the rule.
    pub(crate) fn worker(self, workers: usize) -> usize {
        (self.0 % workers as u64) as usize
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:0width$x}", self.0, width = ID_DIGITS)
    }
}

impl FromStr for RuleId {
    type Err = String;

    fn from_str(text: &str) -> Result<RuleId, String> {
        let is_id = text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
        id.map(RuleId).ok_or_else(|| {
            format!("`{text}` is no rule's id; ids are {ID_DIGITS} hexadecimal digits, as `laneway relay list` shows")
        })
    }
}

impl TryFrom<String> for RuleId {
    type Error = String;

    fn try_from(text: String) -> Result<RuleId, String> {
        text.parse()
    }
}

impl From<RuleId> for String {
    fn from(id: RuleId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> Input {
        toml::from_str(text).expect("well formed")
    }

    #[test]
    fn an_id_is_the_inputs_own_and_is_read_back() {
        let one = input("group = '239.1.1.1'\nport = 5000\nsources = ['192.0.2.7', '192.0.2.8']");
        let turned =
            input("group = '239.1.1.1'\nport = 5000\nsources = ['192.0.2.8', '192.0.2.7']");
        let id = RuleId::of(&one);
        assert_eq!(id, RuleId::of(&turned));
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in [
            "group = '239.1.1.1'\nport = 5000",
            "group = '239.1.1.1'\nport = 5001\nsources = ['192.0.2.7', '192.0.2.8']",
            "interface = 'eth1'\ngroup = '239.1.1.1'\nport = 5000\nsources = ['192.0.2.7', '192.0.2.8']",
        ] {
            assert_ne!(RuleId::of(&input(other)), id, "{other}");
        }
        // Written down: a new build must find the rules of an old one.
        assert_eq!(
            RuleId::of(&input("group = '239.1.1.1'\nport = 5000")).to_string(),
            "e428028f6e16"
        );
        for wrong in ["", "12", "0123456789abc", "+123456789ab", "zzzzzzzzzzzz"] {
            assert!(wrong.parse::<RuleId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn groups_of_a_port_share_a_socket_and_hosts_have_their_own() {
        let bind = |text| input(text).bind().map(|bind| bind.to_string());
        assert_eq!(bind("group = '239.1.1.1'\nport = 5").as_deref(), Some("0.0.0.0:5"));
        assert_eq!(bind("group = 'ff05::1'\nport = 5").as_deref(), Some("[::]:5"));
        assert_eq!(bind("address = '192.0.2.1'\nport = 5").as_deref(), Some("192.0.2.1:5"));
        assert_eq!(bind("family = 'ipv6'\nport = 5").as_deref(), Some("[::]:5"));
        assert_eq!(bind("port = 5"), None);
        assert_eq!(bind("family = 'ipv4'\naddress = '192.0.2.1'\nport = 5"), None);
    }

    #[test]
    fn a_field_left_out_has_a_value_that_does_not_depend_on_the_kernel() {
        let plan = |text: &str| toml::from_str::<Output>(text).expect("well formed").plan();
        let host = plan("destination = '192.0.2.1:5'");
        let group = plan("destination = '[ff05::1]:5'\nwhen_full = 'oldest'");
        assert_eq!((host.hop_limit, group.hop_limit), (Some(TTL_HOST), Some(TTL_GROUP)));
        assert_eq!(host.when_full, WhenFull::Newest);
        assert_eq!(group.when_full, WhenFull::Oldest { bytes: QUEUE_BYTES_DEFAULT });
        assert!(group.bind.is_ipv6() && !group.multicast_loop && group.tells_full_queue);
    }
}
