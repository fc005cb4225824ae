//! Feeds libFuzzer's inputs to the entry `media::mpeg_ts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::media::mpeg_ts(data));
