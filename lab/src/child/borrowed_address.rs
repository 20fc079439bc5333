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
        call("ip", &["address", "add", &format!("{address}/32"), "dev", interface])?;
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
