//! Feeds libFuzzer's inputs to the entry `archive::mitm`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::archive::mitm(data));
