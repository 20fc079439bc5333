//! The forwarder on lanes: simulated links with seeded loss, capture files, and real cables in
//! namespaces with the lanes `packet`, `afxdp` and `xdp`.

mod expected;
mod files;
mod sim;
mod veth;
