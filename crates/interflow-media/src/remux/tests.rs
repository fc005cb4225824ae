//! Whole segments, from hand-made fragments to packets that are read back.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::packets::PACKET;
use super::*;
use crate::cenc::test_media::{Spec, boxed, mdat, moof, track, traf, trex, words};

fn aac_entry() -> Vec<u8> {
    let esds = [&[0, 0, 0, 0, 3, 22, 0, 0, 0, 4, 17, 0x40, 0x15][..], &[0; 11], &[5, 2, 0x11, 0x90]].concat();
    boxed(b"mp4a", &[&[0; 28], &boxed(b"esds", &[&esds])])
}

fn avc_entry() -> Vec<u8> {
    let avcc = [1, 0x64, 0, 0x1f, 0xff, 0xe1, 0, 2, 0x67, 1, 1, 0, 2, 0x68, 2];
    boxed(b"avc1", &[&[0; 78], &boxed(b"avcC", &[&avcc])])
}

fn init(tracks: &[Vec<u8>]) -> Vec<u8> {
    let mvhd = boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]]);
    boxed(b"moov", &[&mvhd, &tracks.concat(), &boxed(b"mvex", &[&trex(1, 1, 0), &trex(2, 1, 0)])])
}

/// Video of three access units with a picture out of order, and audio of five frames.
fn segment(start: u32) -> Vec<u8> {
    let video = [100_usize, 50, 500].map(|n| [&(n as u32).to_be_bytes()[..], &vec![0x65; n]].concat());
    let audio: Vec<Vec<u8>> = (0..5).map(|i| vec![i; 200]).collect();
    let head = moof(|n| {
        let mut run = words(&[0x0100_0f01, 3, n as u32 + 8]);
        for (i, (composition, v)) in [3000_i32, 6000, 0].iter().zip(&video).enumerate() {
            run.extend(words(&[3000, v.len() as u32, if i == 0 { 0 } else { 0x1_0000 }, *composition as u32]));
        }
        let at = n as u32 + 8 + video.concat().len() as u32;
        let tfdt = |t: u32| boxed(b"tfdt", &[&words(&[0, t])]);
        let audio_run = boxed(b"trun", &[&words(&[0x301, 5, at]), &words(&[1920, 200].repeat(5))]);
        vec![traf(1, &[tfdt(start), boxed(b"trun", &[&run])]), traf(2, &[tfdt(start), audio_run])]
    });
    [boxed(b"styp", &[b"msdh"]), head, mdat(&[video.concat(), audio.concat()])].concat()
}

fn muxed(init: &[u8], segment: &[u8], step: usize) -> Result<Vec<u8>, RemuxError> {
    let mut ts = TsMuxer::new(init, RemuxOptions { shift: 0, ..RemuxOptions::default() })?.segment();
    let mut out = Vec::new();
    for piece in segment.chunks(step) {
        ts.push(Bytes::copy_from_slice(piece), &mut out)?;
    }
    ts.finish(&mut out)?;
    Ok(out.concat())
}

/// PES packets by PID, and how many packets each PID had.
fn read(ts: &[u8]) -> BTreeMap<u16, (usize, Vec<Vec<u8>>)> {
    let mut found: BTreeMap<u16, (usize, Vec<Vec<u8>>)> = BTreeMap::new();
    for p in ts.chunks(PACKET) {
        assert_eq!((p[0], p.len()), (0x47, PACKET));
        let pid = u16::from_be_bytes([p[1], p[2]]) & 0x1fff;
        let (count, pes) = found.entry(pid).or_default();
        assert_eq!(usize::from(p[3] & 15), *count % 16, "the counter of PID {pid:#x}");
        *count += 1;
        let skip = if p[3] & 0x20 != 0 { 1 + usize::from(p[4]) } else { 0 };
        if p[1] & 0x40 != 0 {
            pes.push(Vec::new());
        }
        pes.last_mut().unwrap().extend_from_slice(&p[4 + skip..]);
    }
    found
}

fn time(b: &[u8]) -> u64 {
    let [a, b, c, d, e] = [b[0] >> 1 & 7, b[1], b[2] >> 1, b[3], b[4] >> 1].map(u64::from);
    a << 30 | b << 22 | c << 15 | d << 7 | e
}

fn both() -> Vec<u8> {
    init(&[track(1, b"vide", &[avc_entry()], &[]), track(2, b"soun", &[aac_entry()], &[])])
}

#[test]
fn access_units_keep_their_timestamps_and_counters_continue() {
    let ts = muxed(&both(), &segment(90_000), usize::MAX).unwrap();
    let found = read(&ts);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 0x100, 0x101, 0x1000]);
    assert!(found.values().all(|(count, _)| count % 16 == 0));
    let video = &found[&0x100].1;
    let dts = |p: &[u8]| if p[7] & 0x40 != 0 { time(&p[14..]) } else { 0 };
    let times: Vec<_> = video.iter().map(|p| (time(&p[9..]), dts(p))).collect();
    assert_eq!(times, [(93_000, 90_000), (99_000, 93_000), (96_000, 0)]);
    let sets = [0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 2, 0, 0, 0, 1, 0x65];
    assert!(video[0][19..].starts_with(&sets));
    assert!(video[1][19..].starts_with(&[0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x65]));
    let audio = &found[&0x101].1;
    assert_eq!((audio.len(), time(&audio[0][9..])), (1, 90_000));
    assert_eq!(audio[0].len(), 14 + 5 * 207);
    assert_eq!(usize::from(u16::from_be_bytes([audio[0][4], audio[0][5]])), audio[0].len() - 6);
}

#[test]
fn negative_composition_offset_moves_decoding_earlier() {
    let mut data = segment(90_000);
    let at = data.windows(12).position(|w| w == words(&[3000, 104, 0])).unwrap() + 12;
    data[at..at + 4].copy_from_slice(&(-3000_i32).to_be_bytes());
    let found = read(&muxed(&both(), &data, usize::MAX).unwrap());
    let video = &found[&0x100].1;
    assert_eq!((time(&video[0][9..]), video[0][7]), (87_000, 0x80), "shown when it is decoded");
}

#[test]
fn unsupported_formats_are_refused_with_the_reason() {
    let opus = boxed(b"Opus", &[&[0; 28], &boxed(b"dOps", &[&[0; 11]])]);
    let sealed = Spec::of(b"cenc").audio_entry();
    for (entry, part) in
        [(opus, "`Opus` cannot"), (sealed, "decrypt it first"), (boxed(b"mp4a", &[&[0; 28]]), "no `esds`")]
    {
        let e = muxed(&init(&[track(1, b"soun", &[entry], &[])]), &[], 1).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
    assert_eq!(muxed(&init(&[]), &[], 1), Err(RemuxError::NoTracks));
    assert!(muxed(&[], &[], 1).unwrap_err().to_string().contains("`moov`"));
}

#[test]
fn damaged_segments_end_in_an_error() {
    let data = segment(0);
    let run = data.windows(4).position(|w| w == b"trun").unwrap();
    for (name, at) in [("the length of a NAL unit", data.len() - 1000 - 500 - 1), ("the size of a trun", run - 2)] {
        let mut data = data.clone();
        data[at] = 0xfe;
        assert!(muxed(&both(), &data, usize::MAX).is_err(), "{name}");
    }
    for cut in [5, 60, data.len() - 1] {
        assert!(muxed(&both(), &data[..cut], usize::MAX).is_err(), "{cut} bytes");
    }
    let options = RemuxOptions { limit: 100, ..RemuxOptions::default() };
    let mut ts = TsMuxer::new(&both(), options).unwrap().segment();
    assert!(matches!(ts.push(Bytes::from(data), &mut Vec::new()), Err(RemuxError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn packets_are_independent_of_segmentation(step in 1_usize..300) {
        prop_assert!(muxed(&both(), &segment(7), step) == muxed(&both(), &segment(7), usize::MAX));
    }

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((0_usize..2000, any::<u8>()), 1..6)) {
        let mut data = segment(7);
        for (at, byte) in flips {
            let n = data.len();
            data[at % n] = byte;
        }
        let _ = muxed(&both(), &data, 100);
    }
}
