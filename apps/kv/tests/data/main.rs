//! The data of the store: judged by Redis 7.0 itself and by the compatibility test suite for it, replayed from its log,
//! and loaded from its snapshots.

#[path = "../client/mod.rs"]
mod client;
mod commands;
mod corners;
mod cts;
mod excused;
mod judge;
mod replay;
mod uses;
