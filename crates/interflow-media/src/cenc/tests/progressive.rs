//! Progressive files: index before or after the media, decrypted as a stream and by range.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{IndexProbe, ProgressiveFile};
use super::*;

/// Where the IVs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aux {
    Senc,
    Media,
}

/// A file with two tracks, interleaved in chunks of two samples, and its clear content.
fn file(spec: &Spec, index_first: bool, aux: Aux) -> (Vec<u8>, Vec<u8>) {
    let other = Spec { iv_size: 8, ..Spec::of(b"cenc") }.other();
    let tracks = [(*spec, samples(6, 1)), (other, whole_samples(6, 2))];
    let moov = |media: u32| {
        let mut at = media;
        let mut chunks = [Vec::new(), Vec::new()];
        for chunk in 0..3 {
            for (track, (_, samples)) in tracks.iter().enumerate() {
                chunks[track].push(at);
                at += sizes(&samples[2 * chunk..2 * chunk + 2]).sum::<usize>() as u32;
            }
        }
        let mut traks = Vec::new();
        for (i, (spec, samples)) in tracks.iter().enumerate() {
            let mut stsz = words(&[0, 0, 6]);
            sizes(samples).for_each(|s| stsz.extend((s as u32).to_be_bytes()));
            let mut tables = [
                boxed(b"stsz", &[&stsz]),
                boxed(b"stco", &[&words(&[0, 3]), &words(&chunks[i])]),
                boxed(b"stsc", &[&words(&[0, 1, 1, 2, 1])]),
                boxed(b"stts", &[&words(&[0, 1, 6, 3000])]),
            ]
            .concat();
            let information: Vec<u8> = samples.iter().flat_map(|s| spec.information(s)).collect();
            match aux {
                Aux::Senc => tables.extend(spec.senc(samples)),
                Aux::Media => {
                    tables.extend(spec.saiz(samples));
                    tables.extend(boxed(b"saio", &[&words(&[0, 1, at])]));
                    at += information.len() as u32;
                }
            }
            let entry = if i == 0 { spec.video_entry() } else { spec.audio_entry() };
            traks.extend(track(i as u32 + 1, if i == 0 { b"vide" } else { b"soun" }, &[entry], &tables));
        }
        boxed(b"moov", &[&boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]]), &traks])
    };
    let (mut sealed_media, mut clear) = (Vec::new(), Vec::new());
    for chunk in 0..3 {
        for (spec, samples) in &tracks {
            sealed_media.extend(sealed(spec, &samples[2 * chunk..2 * chunk + 2]).concat());
            clear.extend(plain(&samples[2 * chunk..2 * chunk + 2]));
        }
    }
    let mut tail = Vec::new();
    if aux == Aux::Media {
        tail = tracks.iter().flat_map(|(spec, s)| s.iter().flat_map(|s| spec.information(s))).collect();
    }
    let ftyp = boxed(b"ftyp", &[b"isom"]);
    let media = mdat(&[sealed_media, tail.clone()]);
    let data = if index_first {
        let start = ftyp.len() + moov(0).len() + 8;
        [ftyp, moov(start as u32), media].concat()
    } else {
        let start = ftyp.len() + 8;
        [ftyp, media, moov(start as u32)].concat()
    };
    clear.extend(tail);
    (data, clear)
}

fn open(data: &[u8], step: usize) -> Result<Option<Arc<ProgressiveFile>>, CencError> {
    let mut probe = IndexProbe::new(ring(), data.len() as u64);
    while let Some(range) = probe.next_range() {
        let end = (range.end as usize).min((range.start as usize).saturating_add(step));
        probe.push(range.start, &data[range.start as usize..end])?;
    }
    probe.finish()
}

fn range(file: &Arc<ProgressiveFile>, data: &[u8], wanted: std::ops::Range<u64>, step: usize) -> Vec<u8> {
    let cover = file.cover(wanted.clone());
    assert!(cover.start <= wanted.start && cover.end >= wanted.end && cover.end <= data.len() as u64);
    let mut decrypter = file.range(wanted);
    let mut out = Vec::new();
    for piece in data[cover.start as usize..cover.end as usize].chunks(step) {
        decrypter.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
    }
    decrypter.finish().unwrap();
    out.concat()
}

#[test]
fn a_file_with_its_index_first_decrypts_as_a_stream() {
    for scheme in [b"cenc", b"cens", b"cbc1", b"cbcs"] {
        for aux in [Aux::Senc, Aux::Media] {
            let (data, clear) = file(&Spec::of(scheme), true, aux);
            check(&data, &clear);
        }
    }
}

#[test]
fn trailing_index_is_an_error_in_a_stream_and_found_by_a_probe() {
    for aux in [Aux::Senc, Aux::Media] {
        let (data, clear) = file(&Spec::of(b"cbcs"), false, aux);
        assert!(matches!(decrypt(&data), Err(CencError::IndexAtEnd { offset: 12 })));
        for step in [40, 1000, usize::MAX] {
            let file = open(&data, step).unwrap().unwrap();
            let out = range(&file, &data, 0..data.len() as u64, 77);
            assert_eq!((out.len(), &out[20..20 + clear.len()]), (data.len(), &clear[..]));
            assert!(!out.windows(4).any(|w| w == b"sinf" || w == b"encv"));
        }
    }
}

#[test]
fn fragmented_and_other_files_have_no_sample_index() {
    let spec = Spec::of(b"cenc");
    let fragmented = [one_track(&spec), segment(&spec, &samples(2, 1))].concat();
    assert!(open(&fragmented, 4096).unwrap().is_none());
    assert!(open(&boxed(b"free", &[&[0; 40]]), 4096).unwrap().is_none());
    assert!(open(&boxed(b"moov", &[&[0; 40]])[..20], 4096).is_err(), "the end is missing");
    assert!(open(&[1, 2, 3], 4096).is_err());
}

#[test]
fn probe_refuses_missing_keys_and_auxiliary_data_beyond_the_file() {
    let spec = Spec { kid: [3; 16], ..Spec::of(b"cenc") };
    let (data, _) = file(&spec, false, Aux::Senc);
    assert!(matches!(open(&data, 4096).err(), Some(CencError::NoKey { kid: KeyId([3, ..]), track: 1 })));
    let (data, _) = file(&Spec::of(b"cenc"), true, Aux::Media);
    let cut = &data[..data.len() - 10];
    assert!(open(cut, 4096).err().unwrap().to_string().contains("behind the end of the file"));
}

proptest! {
    #[test]
    fn decrypted_range_equals_that_part_of_the_whole(scheme in 0_usize..4, index_first: bool, a in 0_usize..10_000, b in 0_usize..10_000, step in 1_usize..500) {
        let (data, _) = file(&Spec::of([b"cenc", b"cens", b"cbc1", b"cbcs"][scheme]), index_first, Aux::Senc);
        let file = open(&data, 300).unwrap().unwrap();
        let whole = range(&file, &data, 0..data.len() as u64, 4096);
        let (a, b) = (a % data.len(), b % data.len() + 1);
        let (a, b) = (a.min(b), a.max(b));
        prop_assert!(range(&file, &data, a as u64..b as u64, step) == whole[a..b]);
    }
}
