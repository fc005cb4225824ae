//! Measures the cost of decryption: a 4.36 MB segment through the whole pipeline, the bare cipher over the same bytes,
//! and `openssl speed`. Run it with `cargo run --release -p interflow-media --example cenc_cost`;
//! `bench/media/costs.py` compares other programs.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use interflow_media::cenc::{AesKey, CencDecrypter, ContentKey, ContentKeyRing, CtrCipher, InitSegment};

/// Bytes of media data in the segment.
const SEGMENT: usize = 4_360_000;
/// Samples in it, as in six seconds at 25 frames a second.
const SAMPLES: usize = 150;
/// Clear bytes at the start of each sample: a slice header.
const CLEAR: usize = 120;
/// Rounds, of which the median and the best are reported.
const ROUNDS: usize = 60;
/// The buffer size for measuring AES by itself.
const BLOCK: usize = 4 << 20;

fn main() {
    let mut words = std::env::args().skip(1);
    if let (Some("--write"), Some(folder)) = (words.next().as_deref(), words.next()) {
        // Written so that other programs can be measured with the same bytes.
        for (name, data) in [("init.mp4", init_segment(b"cenc", 0)), ("segment.m4s", media_segment())] {
            std::fs::write(format!("{folder}/{name}"), data).expect("the folder can be written to");
        }
        return;
    }
    println!("{:<34} {:>10} {:>10} {:>8}", "4.36 MB segment", "median us", "best us", "GB/s");
    for (name, scheme, pattern) in
        [("cenc", b"cenc", 0), ("cens 1:9", b"cens", 0x19), ("cbc1", b"cbc1", 0), ("cbcs 1:9", b"cbcs", 0x19)]
    {
        let init = InitSegment::parse(&init_segment(scheme, pattern)).expect("the init segment is whole");
        let ring = ContentKeyRing::any(ContentKey([7; 16]));
        let segment = media_segment();
        for (how, chunk) in [("one chunk", usize::MAX), ("64 KiB chunks", 64 << 10), ("shared 64 KiB chunks", 64 << 10)]
        {
            let shared = how.starts_with("shared");
            let times = measure(|| {
                let chunks: Vec<Bytes> = segment.chunks(chunk.min(segment.len())).map(Bytes::copy_from_slice).collect();
                let held = if shared { chunks.clone() } else { Vec::new() };
                let mut decrypter = CencDecrypter::for_segment(ring.clone(), init.clone());
                let mut out = Vec::with_capacity(2 * chunks.len());
                let start = Instant::now();
                for chunk in chunks {
                    decrypter.push(chunk, &mut out).expect("the segment decrypts");
                }
                decrypter.finish().expect("the segment is whole");
                let took = start.elapsed();
                drop((held, out));
                took
            });
            report(&format!("{name}, {how}"), &times, SEGMENT);
        }
    }
    let key = AesKey::new(&ContentKey([7; 16]));
    let mut data = BytesMut::zeroed(SEGMENT);
    let bare = measure(|| {
        let start = Instant::now();
        CtrCipher::new([1; 16]).apply(&key, &mut data);
        start.elapsed()
    });
    report("bare AES-CTR, same bytes", &bare, SEGMENT);
    let mut data = BytesMut::zeroed(BLOCK);
    let block = measure(|| {
        let start = Instant::now();
        CtrCipher::new([1; 16]).apply(&key, &mut data);
        start.elapsed()
    });
    report("bare AES-CTR, 4 MiB", &block, BLOCK);
    match openssl() {
        Some(theirs) => {
            let ours = BLOCK as f64 / median(&block).as_secs_f64() / 1e9;
            println!("openssl speed, 4 MiB: {theirs:.2} GB/s; ours / theirs = {:.2}", ours / theirs);
        }
        None => println!("openssl is not installed: no ratio"),
    }
}

fn measure(mut one: impl FnMut() -> Duration) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| one()).collect();
    times.sort_unstable();
    times
}

fn median(times: &[Duration]) -> Duration {
    times[times.len() / 2]
}

fn report(name: &str, times: &[Duration], bytes: usize) {
    let gigabytes = bytes as f64 / median(times).as_secs_f64() / 1e9;
    println!("{name:<34} {:>10} {:>10} {gigabytes:>8.2}", median(times).as_micros(), times[0].as_micros());
}

/// GB/s of `openssl speed` over blocks of 4 MiB on one core.
fn openssl() -> Option<f64> {
    let output = Command::new("openssl")
        .args(["speed", "-elapsed", "-mr", "-seconds", "2", "-bytes", "4194304", "-evp", "aes-128-ctr"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|l| l.starts_with("+F:"))?;
    line.rsplit(':').next()?.trim().parse::<f64>().ok().map(|bytes| bytes / 1e9)
}

fn boxed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&(8 + content.len() as u32).to_be_bytes()[..], kind, &content].concat()
}

fn init_segment(scheme: &[u8; 4], pattern: u8) -> Vec<u8> {
    let tenc = boxed(b"tenc", &[&[u8::from(pattern != 0), 0, 0, 0, 0, pattern, 1, 16], &[9; 16]]);
    let schm = boxed(b"schm", &[&[0; 4], scheme, &[0, 1, 0, 0]]);
    let sinf = boxed(b"sinf", &[&boxed(b"frma", &[b"avc1"]), &schm, &boxed(b"schi", &[&tenc])]);
    let entry = boxed(b"encv", &[&[0; 78], &sinf]);
    let stbl = boxed(b"stbl", &[&boxed(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], &entry])]);
    let header = [&[0; 12][..], &90_000_u32.to_be_bytes(), &[0; 8]].concat();
    let hdlr = boxed(b"hdlr", &[&[0; 8], b"vide", &[0; 13]]);
    let mdia = boxed(b"mdia", &[&boxed(b"mdhd", &[&header]), &hdlr, &boxed(b"minf", &[&stbl])]);
    let tkhd = boxed(b"tkhd", &[&[0; 12], &[0, 0, 0, 1], &[0; 68]]);
    boxed(b"moov", &[&boxed(b"trak", &[&tkhd, &mdia]), &boxed(b"mvex", &[])])
}

fn media_segment() -> Vec<u8> {
    let size = (SEGMENT / SAMPLES) as u32;
    let mut senc = vec![0, 0, 0, 2];
    senc.extend((SAMPLES as u32).to_be_bytes());
    for i in 0..SAMPLES as u8 {
        senc.extend([i; 16]);
        senc.extend([0, 1, 0, CLEAR as u8]);
        senc.extend((size - CLEAR as u32).to_be_bytes());
    }
    let tfhd = boxed(b"tfhd", &[&[0, 2, 0, 0x10, 0, 0, 0, 1], &size.to_be_bytes()]);
    let moof = |data_offset: u32| {
        let trun = boxed(b"trun", &[&[0, 0, 0, 1], &(SAMPLES as u32).to_be_bytes(), &data_offset.to_be_bytes()]);
        boxed(b"moof", &[&boxed(b"traf", &[&tfhd, &trun, &boxed(b"senc", &[&senc])])])
    };
    let length = moof(0).len() as u32;
    let media: Vec<u8> = (0..size as usize * SAMPLES).map(|i| (i * 31) as u8).collect();
    [moof(length + 8), boxed(b"mdat", &[&media])].concat()
}
