//! Feeds libFuzzer's inputs to the entry `archive::pcapng`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| interflow_fuzz::archive::pcapng(data));
