//! The journal on a simulated disk: random lives and deaths, every byte cut and flipped, every refusal.

mod every_byte;
mod refusals;
mod room;
mod simulation;
mod store;
