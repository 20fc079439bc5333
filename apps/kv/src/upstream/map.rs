//! What a cluster says of itself: addresses, owners of slots, and where else to ask.

use laneway_resp::{Value, integer};
use std::fmt;
use std::str::FromStr;

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name or an address, as it was given.
    pub host: String,
    /// Its port for clients.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let bad = || format!("`{text}` is no address of a node; use HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok().filter(|&port| port > 0).ok_or_else(bad)?;
        if host.is_empty() || host.len() > HOST_BYTES_MAX {
            return Err(bad());
        }
        Ok(Address { host: host.to_owned(), port })
    }
}

/// The longest name of a host (RFC 1035).
const HOST_BYTES_MAX: usize = 255;

/// A user and a password.
pub type Login = (String, String);

/// The nodes that a URL names, and how one logs in there.
pub type Named = (Vec<Address>, Option<Login>);

/// Which cluster is in the back, and how long it is waited for.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Nodes that are asked for the others.
    pub seeds: Vec<Address>,
    /// Its user and password, if it wants some.
    pub login: Option<Login>,
    /// How old a value may be that is read here: microseconds since the last sign of its node.
    pub bound_us: u64,
    /// How long an answer is waited for, redirections and a failover included, microseconds.
    pub patience_us: u64,
}

/// How an address of a cluster begins.
const SCHEME: &str = "redis-cluster://";

impl UpstreamSettings {
    /// Reads `redis-cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]`.
    ///
    /// # Errors
    /// The text is not of this form.
    pub fn parse(text: &str) -> Result<Named, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| {
            format!("`{text}`: use {SCHEME}HOST:PORT, with more nodes behind commas")
        })?;
        let (login, nodes) = match rest.rsplit_once('@') {
            Some((login, nodes)) => {
                let parts = login.split_once(':');
                let (user, password) = parts.ok_or_else(|| {
                    "what stands before @ is USER:PASSWORD, or :PASSWORD".to_owned()
                })?;
                let user = if user.is_empty() { "default" } else { user };
                (Some((user.to_owned(), password.to_owned())), nodes)
            }
            None => (None, rest),
        };
        let seeds: Result<Vec<Address>, String> = nodes.split(',').map(str::parse).collect();
        Ok((seeds?, login))
    }
}

/// Where else a command is to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot belongs to that node.
    Moved(u16, Address),
    /// This once, behind ASKING.
    Ask(Address),
    /// Later: keys are moving, a node is loading, or the cluster is down.
    Later,
}

/// What an error of a node at `from` means for the command that it answers; nothing if it is the command's own.
pub(super) fn redirect(error: &[u8], from: &Address) -> Option<Redirect> {
    let mut words = error.split(|&byte| byte == b' ');
    let code = words.next()?;
    if [&b"TRYAGAIN"[..], b"CLUSTERDOWN", b"LOADING", b"MASTERDOWN", b"READONLY"].contains(&code) {
        return Some(Redirect::Later);
    }
    if !matches!(code, b"MOVED" | b"ASK") {
        return None;
    }
    let slot = slot(integer(words.next()?)?)?;
    let text = std::str::from_utf8(words.next()?).ok()?;
    // Without a host it is the one that answers (cluster-preferred-endpoint-type unknown-endpoint).
    let address = match text.strip_prefix(':').or_else(|| text.strip_prefix("?:")) {
        Some(port) => Address { host: from.host.clone(), port: port.parse().ok()? },
        None => text.parse().ok()?,
    };
    Some(if code == b"ASK" { Redirect::Ask(address) } else { Redirect::Moved(slot, address) })
}

/// The owner of some slots, and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    /// The owner, then its replicas.
    pub(super) nodes: Vec<Address>,
}

/// Reads the reply to CLUSTER SLOTS of a node at `from`; nothing if it is none.
pub(super) fn ranges(reply: &Value, from: &Address) -> Option<Vec<Range>> {
    let Value::Array(rows) = reply else { return None };
    rows.iter().map(|row| range(row, from)).collect()
}

fn range(row: &Value, from: &Address) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [Value::Integer(first), Value::Integer(last), nodes @ ..] = &row[..] else { return None };
    let (first, last) = (slot(*first)?, slot(*last)?);
    let nodes: Option<Vec<Address>> = nodes.iter().map(|node| address(node, from)).collect();
    let nodes = nodes.filter(|nodes| !nodes.is_empty() && first <= last)?;
    Some(Range { first, last, nodes })
}

fn address(node: &Value, from: &Address) -> Option<Address> {
    let Value::Array(node) = node else { return None };
    let host = match node.first()? {
        Value::Bulk(host) | Value::Simple(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8(host.clone()).ok().filter(|host| host.len() <= HOST_BYTES_MAX)?
        }
        _ => from.host.clone(),
    };
    let Value::Integer(port) = node.get(1)? else { return None };
    Some(Address { host, port: u16::try_from(*port).ok()? })
}

fn slot(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|&slot| usize::from(slot) < 16_384)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Address {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_of_clusters() {
        let (seeds, login) = UpstreamSettings::parse("redis-cluster://a:1,[::1]:2").expect("two");
        assert_eq!((seeds, login), (vec![at("a:1"), at("[::1]:2")], None));
        let (_, login) = UpstreamSettings::parse("redis-cluster://:p@ss@a:1").expect("a password");
        assert_eq!(login, Some(("default".to_owned(), "p@ss".to_owned())));
        for bad in ["redis://a:1", "redis-cluster://", "redis-cluster://a", "redis-cluster://a:0"] {
            assert!(UpstreamSettings::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn redirections_are_those_of_the_specification() {
        let from = at("n:7");
        let moved = Redirect::Moved(3999, at("127.0.0.1:6381"));
        assert_eq!(redirect(b"MOVED 3999 127.0.0.1:6381", &from), Some(moved));
        let same = Redirect::Moved(3999, at("n:6381"));
        assert_eq!(redirect(b"MOVED 3999 :6381", &from), Some(same));
        assert_eq!(redirect(b"ASK 1 [::1]:2", &from), Some(Redirect::Ask(at("[::1]:2"))));
        assert_eq!(redirect(b"CLUSTERDOWN The cluster is down", &from), Some(Redirect::Later));
        for other in [&b"MOVED 16384 a:1"[..], b"MOVED", b"WRONGTYPE x", b"ERR MOVED 1 a:1", b""] {
            assert_eq!(redirect(other, &from), None);
        }
    }
}
