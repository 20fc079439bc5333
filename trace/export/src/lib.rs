//! What an analysed trace looks like elsewhere.
#![forbid(unsafe_code)]
