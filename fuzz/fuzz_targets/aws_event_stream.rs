//! Feeds libFuzzer's inputs to the entry `wire::aws_event_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::wire::aws_event_stream(data));
