//! Feeds libFuzzer's inputs to the entry `wire::proxy_protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::proxy_protocol(data));
