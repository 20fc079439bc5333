//! Trace analysis: say why a lane is slow, with evidence.
#![forbid(unsafe_code)]
