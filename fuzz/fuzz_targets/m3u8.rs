//! Feeds libFuzzer's inputs to the entry `media::m3u8`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::media::m3u8(data));
