//! Feeds libFuzzer's inputs to the entry `query::query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::query::query(data));
