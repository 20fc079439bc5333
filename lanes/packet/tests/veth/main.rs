//! Lane `packet` on real interfaces: the conformance suite in each mode, and what the suite does not
//! ask. Needs root; without it every test says so and is skipped.

mod behaviour;
mod cables;
mod conformance;
mod workers;
mod world;
