//! Feeds libFuzzer's inputs to the entry `wire::h1_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::h1_request(data));
