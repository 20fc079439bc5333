//! Lane `afxdp` on veth cables: the conformance suite in each mode, what the lane promises beyond it,
//! and several workers on one interface. Needs root; without it every test says so and is skipped.

#[path = "../../../packet/tests/veth/cables.rs"]
mod cables;
mod conformance;
mod kernel;
mod steering;
mod world;
