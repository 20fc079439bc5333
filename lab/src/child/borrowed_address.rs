//! An address that an interface has for as long as a foreign program answers for it.

use super::forwarders::call;
use std::net::Ipv4Addr;

/// An address on an interface, taken off again when this is dropped.
pub(super) struct BorrowedAddress<'a> {
    pub(super) interface: &'a str,
    pub(super) address: Ipv4Addr,
}

impl<'a> BorrowedAddress<'a> {
    pub(super) fn new(
        interface: &'a str,
        address: Ipv4Addr,
    ) -> Result<BorrowedAddress<'a>, String> {
        // One whose keeper was killed may be there still.
        call("ip", &["address", "replace", &format!("{address}/32"), "dev", interface])?;
        Ok(BorrowedAddress { interface, address })
    }
}

impl Drop for BorrowedAddress<'_> {
    fn drop(&mut self) {
        // The namespace that it lies in goes at the end of the race, whatever comes of this.
        let address = format!("{}/32", self.address);
        let _ = call("ip", &["address", "del", &address, "dev", self.interface]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_netns::{Namespace, can_create};
    use laneway_testkit::skip;

    #[test]
    fn an_address_that_is_there_already_is_borrowed_and_taken_back() {
        if can_create().map_err(skip).is_err() {
            return;
        }
        let namespace = Namespace::create("borrowed").unwrap();
        let done = namespace.enter(|| {
            let there = || call("ip", &["address", "add", "10.77.0.3/32", "dev", "lo"]);
            there().unwrap();
            drop(BorrowedAddress::new("lo", Ipv4Addr::new(10, 77, 0, 3)).unwrap());
            there()
        });
        assert_eq!(done.unwrap(), Ok(()));
    }
}
