//! Feeds libFuzzer's inputs to the entry `wire::h1_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::h1_response(data));
