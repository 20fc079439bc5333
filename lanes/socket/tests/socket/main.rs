//! Lane `socket` against far ends of the test's own, which share no code with it: the conformance
//! suites in each mode, what the suites do not ask, and programs that nobody here wrote.
//!
//! Most worlds are the loopback addresses; those that need more are namespaces, which need root.
//! Without it those tests say so and are skipped.

mod behaviour;
mod datagrams;
mod peers;
mod pings;
mod place;
mod raw;
mod streams;
