//! Lane `afxdp` on veth cables: the conformance suite in each mode, what the lane promises beyond it,
//! and several workers on one interface. Needs root; without it every test says so and is skipped.

mod conformance;
mod kernel;
mod steering;
mod world;
