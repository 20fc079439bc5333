//! The journal on a simulated disk: random lives and deaths, bytes cut and flipped, every refusal.

mod effort;
mod every_byte;
mod refusals;
mod room;
mod rounds;
mod simulation;
mod store;
