//! Feeds libFuzzer's inputs to the entry `wire::socks5`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::socks5(data));
