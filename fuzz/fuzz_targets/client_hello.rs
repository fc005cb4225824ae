//! Feeds libFuzzer's inputs to the entry `wire::client_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::client_hello(data));
