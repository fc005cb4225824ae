//! Feeds libFuzzer's inputs to the entry `wire::websocket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::websocket(data));
