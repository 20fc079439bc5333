//! The addresses of a service on each interface, where a stack in user space is below it.

use crate::{Failure, LaneFacts, Own};
use laneway_core::LaneError;
use laneway_linux::{Mac, sysfs};
use std::net::{IpAddr, SocketAddr};

impl Own {
    /// The stacks of a service that listens at `listen`: it has those addresses and `others`, and answers at `mac` or
    /// at the interfaces' own. None where the sockets are the kernel's.
    ///
    /// # Errors
    /// No interface, no address, or an interface without a link address: what to give.
    pub fn of_service(
        lane: &LaneFacts,
        interfaces: &[String],
        listen: &[SocketAddr],
        others: &[IpAddr],
        mac: Option<Mac>,
    ) -> Result<Vec<Own>, Failure> {
        if lane.is_the_kernels() {
            return Ok(Vec::new());
        }
        if interfaces.is_empty() {
            return Err(Failure::input(format!(
                "lane {} needs the interfaces to listen on: give --on IFACE, or use lane socket or uring",
                lane.name
            )));
        }
        let mut addresses: Vec<IpAddr> = others.to_vec();
        for ip in listen.iter().map(SocketAddr::ip) {
            if !ip.is_unspecified() && !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        if addresses.is_empty() {
            return Err(Failure::input(
                "which addresses are ours? The stack has none of its own: give --address ADDR, or --listen \
                 with an address",
            ));
        }
        // Every question for them is from this link, and answers go back to the source of their question:
        // no prefix need be known, and no router.
        let addresses: Vec<(IpAddr, u8)> = addresses.iter().map(|&ip| (ip, 0)).collect();
        interfaces
            .iter()
            .map(|name| {
                let mac = link_address(lane, name, mac)?;
                // An interface that the lane creates has the usual MTU.
                let mtu_bytes = sysfs(name, "mtu").and_then(|text| text.parse().ok());
                Ok(Own { mac: mac.0, addresses: addresses.clone(), mtu_bytes })
            })
            .collect()
    }
}

/// The link address to answer at on an interface: as given, or its own.
///
/// # Errors
/// It has none: what to give.
pub fn link_address(lane: &LaneFacts, name: &str, given: Option<Mac>) -> Result<Mac, Failure> {
    let found = sysfs(name, "address").and_then(|text| text.parse::<Mac>().ok());
    match (given, found.filter(|mac| mac.is_assignable())) {
        (Some(mac), _) => Ok(mac),
        (None, Some(mac)) => Ok(mac),
        // Captures, and devices that the lane makes, have none before they are there.
        (None, None) if !lane.has_interfaces() => Err(Failure::input(format!(
            "`{name}` has no MAC address to answer at; give --mac, such as 02:00:00:00:00:09"
        ))),
        (None, None) if sysfs(name, "address").is_some() => Err(Failure::input(format!(
            "interface `{name}` has no MAC address of its own; give --mac, such as 02:00:00:00:00:09"
        ))),
        (None, None) => Err(LaneError::no_interface(lane.name, name).into()),
    }
}
