//! Our own tracer: 16-byte records of what a worker does, in a ring per thread, and the file they are written to.
#![forbid(unsafe_code)]
