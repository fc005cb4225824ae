//! Feeds libFuzzer's inputs to the entry `media::mpd`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::media::mpd(data));
