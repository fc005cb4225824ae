//! Feeds libFuzzer's inputs to the entry `llm::llm_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::llm::llm_stream(data));
