//! Target `control` under libFuzzer; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| laneway_fuzz::control(data));
