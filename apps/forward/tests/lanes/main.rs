//! The forwarder on lanes: simulated links with seeded loss, capture files, and real cables in
//! namespaces with the lanes `packet`, `afxdp` and `xdp`, for a moment and for as long as one asks.

mod cables;
mod expected;
mod files;
mod sim;
mod soak;
mod veth;
