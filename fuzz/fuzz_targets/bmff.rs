//! Feeds libFuzzer's inputs to the entry `media::bmff`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::media::bmff(data));
