//! Feeds libFuzzer's inputs to the entry `media::media_token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::media::media_token(data));
