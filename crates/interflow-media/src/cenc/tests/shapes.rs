//! Fragmented files: schemes, IVs, patterns, positions of the auxiliary information, tracks, runs, groups.

use proptest::prelude::*;

use super::*;

const SENC: [u8; 16] = *b"\xa2\x39\x4f\x52\x5a\x9b\x4f\x14\xa2\x44\x6c\x42\x7c\x64\x8d\xf4";
const TENC: [u8; 16] = *b"\x89\x74\xdb\xce\x7b\xe7\x4c\x51\x84\xf9\x71\x48\xf9\x88\x25\x54";

#[test]
fn every_scheme_decrypts_with_and_without_subsamples_patterns_and_own_ivs() {
    for scheme in [b"cenc", b"cens", b"cbc1", b"cbcs"] {
        let spec = Spec::of(scheme);
        let pattern_free = Spec { pattern: (0, 0), ..spec };
        let wide = Spec { pattern: (5 * spec.pattern.0, spec.pattern.1 / 3), ..spec };
        let short = Spec { iv_size: 8, ..spec };
        let constant = Spec { iv_size: 0, ..spec };
        for spec in [spec, pattern_free, wide, short, constant] {
            for samples in [samples(7, 3), whole_samples(7, 3)] {
                check(&[one_track(&spec), segment(&spec, &samples)].concat(), &plain(&samples));
            }
        }
    }
}

#[test]
fn sample_without_auxiliary_data_is_decrypted_whole_with_the_constant_iv() {
    let spec = Spec { iv_size: 0, pattern: (0, 0), ..Spec::of(b"cbcs") };
    let samples = whole_samples(5, 1);
    let head = moof(|n| vec![traf(1, &[trun(n + 8, sizes(&samples))])]);
    check(&[one_track(&spec), head, mdat(&sealed(&spec, &samples))].concat(), &plain(&samples));
}

#[test]
fn decrypted_init_segment_has_the_original_sample_formats() {
    let spec = Spec::of(b"cbcs");
    let data =
        init(&[track(1, b"vide", &[spec.video_entry()], &[]), track(2, b"soun", &[spec.audio_entry()], &[])], &[]);
    let out = check(&data, &[]);
    let movie = super::super::InitSegment::parse(&out).unwrap();
    let formats: Vec<_> = movie.movie.tracks.iter().map(|t| t.entries[0].kind.to_string()).collect();
    assert_eq!(formats, ["avc1", "mp4a"]);
    assert!(!movie.is_protected() && movie.pssh.is_empty());
    assert!(movie.movie.tracks[0].entries[0].child(b"avcC").is_some());
}

#[test]
fn auxiliary_data_may_precede_the_run_be_piff_or_only_in_saio() {
    let spec = Spec { iv_size: 8, ..Spec::of(b"cenc") };
    let samples = samples(6, 9);
    let information: Vec<u8> = samples.iter().flat_map(|s| spec.information(s)).collect();
    let saio = |version: u8, offset: u32| match version {
        0 => boxed(b"saio", &[&words(&[0, 1, offset])]),
        _ => boxed(b"saio", &[&words(&[1 << 24 | 1]), b"cenc", &words(&[0, 1, 0, offset])]),
    };
    let piff = user_box(&SENC, &[&words(&[2, samples.len() as u32]), &information]);
    let over = [&[0, 0, 1, 8][..], &spec.other().kid].concat();
    let over = user_box(&SENC, &[&words(&[3]), &over, &words(&[samples.len() as u32]), &information]);
    let run = |n: i32| trun(n + 8, sizes(&samples));
    let media = mdat(&sealed(&spec, &samples));
    let tail = boxed(b"free", &[&information]);
    for (name, head, media) in [
        ("before", moof(|n| vec![traf(1, &[spec.senc(&samples), run(n)])]), media.clone()),
        ("piff", moof(|n| vec![traf(1, &[piff.clone(), run(n)])]), media.clone()),
        ("piff override", moof(|n| vec![traf(1, &[run(n), over.clone()])]), mdat(&sealed(&spec.other(), &samples))),
        (
            "saio in the moof",
            moof(|n| {
                let at = (n as u32).wrapping_sub(information.len() as u32);
                vec![traf(1, &[run(n), spec.saiz(&samples), saio(0, at)]), tail.clone()]
            }),
            media.clone(),
        ),
        (
            "saio version 1 with type",
            moof(|n| {
                let at = (n as u32).wrapping_sub(information.len() as u32);
                vec![traf(1, &[saio(1, at), spec.saiz(&samples), run(n)]), tail.clone()]
            }),
            media.clone(),
        ),
    ] {
        println!("{name}");
        check(&[one_track(&spec), head, media].concat(), &plain(&samples));
    }
}

#[test]
fn auxiliary_data_in_mdat_is_awaited_before_and_after_the_samples() {
    for scheme in [b"cenc", b"cbcs"] {
        let spec = Spec { iv_size: 16, ..Spec::of(scheme) };
        let samples = samples(6, 9);
        let information: Vec<u8> = samples.iter().flat_map(|s| spec.information(s)).collect();
        let total: usize = sizes(&samples).sum();
        let before = moof(|n| {
            let saio = boxed(b"saio", &[&words(&[0, 1, n as u32 + 8])]);
            vec![traf(1, &[trun(n + 8 + information.len() as i32, sizes(&samples)), spec.saiz(&samples), saio])]
        });
        let media = mdat(&[information.clone(), sealed(&spec, &samples).concat()]);
        check(&[one_track(&spec), before, media].concat(), &plain(&samples));
        let behind = moof(|n| {
            let saio = boxed(b"saio", &[&words(&[0, 1, n as u32 + 8 + total as u32])]);
            vec![traf(1, &[trun(n + 8, sizes(&samples)), spec.saiz(&samples), saio])]
        });
        let media = mdat(&[sealed(&spec, &samples).concat(), information.clone()]);
        check(&[one_track(&spec), behind, media].concat(), &[plain(&samples), information].concat());
    }
}

#[test]
fn runs_have_their_own_offsets_and_auxiliary_data() {
    let spec = Spec { iv_size: 8, ..Spec::of(b"cenc") };
    let (one, two) = (samples(3, 1), samples(4, 2));
    let aux = |s: &[Plain]| s.iter().flat_map(|s| spec.information(s)).collect::<Vec<u8>>();
    let (aux1, aux2) = (aux(&one), aux(&two));
    let (size1, all) = (sizes(&one).sum::<usize>(), [one.clone(), two.clone()].concat());
    let head = moof(|n| {
        let first = n + 8 + aux1.len() as i32;
        let second_aux = first + size1 as i32;
        let saio = boxed(b"saio", &[&words(&[0, 2, n as u32 + 8, second_aux as u32])]);
        let second = trun(second_aux + aux2.len() as i32, sizes(&two));
        vec![traf(1, &[trun(first, sizes(&one)), second, spec.saiz(&all), saio])]
    });
    let media = mdat(&[aux1.clone(), sealed(&spec, &one).concat(), aux2.clone(), sealed(&spec, &two).concat()]);
    let out = check(&[one_track(&spec), head, media].concat(), &plain(&two));
    assert!(out.windows(size1).any(|w| w == plain(&one)));
}

#[test]
fn interleaved_tracks_have_their_own_scheme_and_key() {
    let (video, audio) = (Spec::of(b"cbcs"), Spec { iv_size: 8, ..Spec::of(b"cenc") }.other());
    let (v, a) = (samples(4, 1), whole_samples(4, 2));
    let order: Vec<Vec<u8>> =
        sealed(&video, &v).into_iter().zip(sealed(&audio, &a)).flat_map(|(v, a)| [v, a]).collect();
    let clear: Vec<u8> = v.iter().zip(&a).flat_map(|(v, a)| [v.data.clone(), a.data.clone()]).flatten().collect();
    let head = moof(|n| {
        let (mut runs, mut at) = ([Vec::new(), Vec::new()], n + 8);
        for (i, piece) in order.iter().enumerate() {
            runs[i % 2].push(trun(at, [piece.len()].into_iter()));
            at += piece.len() as i32;
        }
        let [mut first, mut second] = runs;
        first.push(video.senc(&v));
        second.push(audio.senc(&a));
        vec![traf(1, &first), traf(2, &second)]
    });
    let init = init(
        &[track(1, b"vide", &[video.video_entry()], &[]), track(2, b"soun", &[audio.audio_entry()], &[])],
        &[trex(1, 1, 0), trex(2, 1, 0)],
    );
    check(&[init, head, mdat(&order)].concat(), &clear);
}

#[test]
fn clear_lead_and_trex_defaults_are_applied() {
    let spec = Spec::of(b"cenc");
    let samples = samples(3, 4);
    let entries = [spec.video_entry(), clear_entry()];
    let init = init(&[track(1, b"vide", &entries, &[])], &[trex(1, 2, 100)]);
    // According to trex the samples are clear and 100 bytes long; the second fragment overrides that.
    let lead = moof(|n| vec![traf(1, &[boxed(b"trun", &[&words(&[1, 2, n as u32 + 8])])])]);
    let clear = vec![0x77; 200];
    let tail = moof(|n| {
        let tfhd = boxed(b"tfhd", &[&words(&[0x2_0002, 1, 1])]);
        vec![boxed(b"traf", &[&tfhd, &trun(n + 8, sizes(&samples)), &spec.senc(&samples)])]
    });
    let lead = [lead, mdat(std::slice::from_ref(&clear))].concat();
    let all = [init, lead.clone(), tail, mdat(&sealed(&spec, &samples))].concat();
    let out = check(&all, &plain(&samples));
    assert!(out.windows(lead.len()).any(|w| w == lead), "what was clear is untouched");
}

#[test]
fn keys_rotate_by_local_and_global_groups_and_some_samples_are_clear() {
    let spec = Spec { iv_size: 8, ..Spec::of(b"cenc") };
    let all = samples(6, 5);
    let sealed: Vec<Vec<u8>> = (all.iter().enumerate())
        .map(|(i, s)| match i {
            0 | 1 => spec.encrypt(s),
            2 | 3 => spec.other().encrypt(s),
            _ => s.data.clone(),
        })
        .collect();
    let aux: Vec<u8> = all[..4].iter().flat_map(|s| spec.information(s)).collect();
    // A clear sample has no IV; with the flag for subsamples it still has their count.
    let senc = boxed(b"senc", &[&words(&[2, 6]), &aux, &[0; 4]]);
    let clear_group = [&[0, 0, 0, 0][..], &[0; 16]].concat();
    let sgpd = |groups: &[Vec<u8>]| {
        boxed(b"sgpd", &[&words(&[1 << 24]), b"seig", &words(&[20, groups.len() as u32]), &groups.concat()])
    };
    let local = sgpd(&[spec.other().group(), clear_group]);
    let sbgp = boxed(b"sbgp", &[&words(&[0]), b"seig", &words(&[3, 2, 1, 2, 0x1_0001, 2, 0x1_0002])]);
    let head = moof(|n| vec![traf(1, &[local.clone(), sbgp.clone(), trun(n + 8, sizes(&all)), senc.clone()])]);
    // The track's own tenc names an unknown key: groups override it for every sample.
    let unknown = Spec { kid: [0; 16], ..spec };
    let init = init(&[track(1, b"vide", &[unknown.video_entry()], &sgpd(&[spec.group()]))], &[trex(1, 1, 0)]);
    check(&[init, head, mdat(&sealed)].concat(), &plain(&all));
}

#[test]
fn piff_tracks_are_decrypted_in_both_ciphers() {
    for (algorithm, scheme) in [(1, b"cenc"), (2, b"cbc1")] {
        let spec = Spec::of(scheme);
        let samples = samples(4, 6);
        let tenc = user_box(&TENC, &[&words(&[0, algorithm << 8 | 16]), &KID]);
        let sinf = Spec { scheme: *b"piff", ..spec }.sinf(b"avc1", &tenc);
        let init = init(&[track(1, b"vide", &[boxed(b"encv", &[&[0; 78], &sinf])], &[])], &[trex(1, 1, 0)]);
        let information: Vec<u8> = samples.iter().flat_map(|s| spec.information(s)).collect();
        let senc = user_box(&SENC, &[&words(&[2, samples.len() as u32]), &information]);
        let head = moof(|n| vec![traf(1, &[trun(n + 8, sizes(&samples)), senc.clone()])]);
        check(&[init, head, mdat(&sealed(&spec, &samples))].concat(), &plain(&samples));
    }
}

#[test]
fn consecutive_fragments_of_every_layout_are_decrypted() {
    let spec = Spec::of(b"cbc1");
    let (one, two) = (samples(3, 1), samples(5, 2));
    let mut data = [one_track(&spec), boxed(b"styp", &[b"msdh"]), segment(&spec, &one)].concat();
    // An absolute base that counts from the start of the file, and a run before it.
    let start = data.len() as u64;
    let head = moof(|n| {
        let base = start + n as u64 + 1000;
        let tfhd = boxed(b"tfhd", &[&words(&[1, 1, (base >> 32) as u32, base as u32])]);
        vec![boxed(b"traf", &[&tfhd, &trun(16 - 1000, sizes(&one)), &spec.senc(&one)])]
    });
    data.extend(head);
    let media = sealed(&spec, &one).concat();
    data.extend([&words(&[1])[..], b"mdat", &(16 + media.len() as u64).to_be_bytes(), &media].concat());
    data.extend(moof(|n| vec![traf(1, &[trun(n + 8, sizes(&two)), spec.senc(&two)])]));
    data.extend([&words(&[0])[..], b"mdat", &sealed(&spec, &two).concat()].concat());
    let out = check(&data, &plain(&two));
    assert_eq!(out.windows(plain(&one).len()).filter(|w| *w == plain(&one)).count(), 2);
}

#[test]
fn clear_media_is_unchanged_without_keys() {
    let init = init(&[track(1, b"vide", &[clear_entry()], &[])], &[trex(1, 1, 0)]);
    let samples = samples(3, 1);
    let head = moof(|n| vec![traf(1, &[trun(n + 8, sizes(&samples))])]);
    let data = [init, head, mdat(&[plain(&samples)])].concat();
    let out = decrypt_in(&mut CencDecrypter::new(ContentKeyRing::default()), &data, 100).unwrap();
    assert!(out.ends_with(&plain(&samples)));
}

#[test]
fn media_is_decrypted_in_place_as_it_arrives() {
    let spec = Spec::of(b"cenc");
    let samples = samples(20, 1);
    let init = super::super::InitSegment::parse(&one_track(&spec)).unwrap();
    let segment = segment(&spec, &samples);
    let moof = u32::from_be_bytes(segment[..4].try_into().unwrap()) as usize;
    let mut decrypter = CencDecrypter::for_segment(ring(), init);
    let mut out = Vec::new();
    decrypter.push(Bytes::copy_from_slice(&segment[..moof + 8 + 10]), &mut out).unwrap();
    assert_eq!(out.concat().len(), moof + 18, "the first byte of the first sample needs nothing behind it");
    let chunk = Bytes::copy_from_slice(&segment[moof + 18..]);
    let place = chunk.as_ptr();
    out.clear();
    decrypter.push(chunk, &mut out).unwrap();
    assert_eq!((out.len(), out[0].as_ptr()), (1, place), "decrypted where it lay");
    decrypter.finish().unwrap();
}

#[test]
fn a_shared_chunk_is_not_modified() {
    let spec = Spec::of(b"cenc");
    let samples = samples(5, 1);
    let data = Bytes::from([one_track(&spec), segment(&spec, &samples)].concat());
    let (held, before) = (data.clone(), data.to_vec());
    let mut out = Vec::new();
    CencDecrypter::new(ring()).push(data, &mut out).unwrap();
    assert!(out.concat().ends_with(&plain(&samples)));
    assert_eq!(held, before);
}

proptest! {
    #[test]
    fn output_is_independent_of_segmentation(scheme in 0_usize..4, aux_behind: bool, cuts in prop::collection::vec(1_usize..400, 1..60)) {
        let spec = Spec::of([b"cenc", b"cens", b"cbc1", b"cbcs"][scheme]);
        let samples = samples(5, 8);
        let information: Vec<u8> = samples.iter().flat_map(|s| spec.information(s)).collect();
        let total: u32 = sizes(&samples).sum::<usize>() as u32;
        let data = if aux_behind {
            let head = moof(|n| {
                let saio = boxed(b"saio", &[&words(&[0, 1, n as u32 + 8 + total])]);
                vec![traf(1, &[trun(n + 8, sizes(&samples)), spec.saiz(&samples), saio])]
            });
            [one_track(&spec), head, mdat(&[sealed(&spec, &samples).concat(), information])].concat()
        } else {
            [one_track(&spec), segment(&spec, &samples)].concat()
        };
        let whole = decrypt(&data).unwrap();
        let mut decrypter = CencDecrypter::new(ring());
        let (mut out, mut rest) = (Vec::new(), &data[..]);
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            decrypter.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
            rest = after;
            if rest.is_empty() { break }
        }
        decrypter.finish().unwrap();
        prop_assert!(out.concat() == whole);
        prop_assert!(whole.windows(total as usize).any(|w| w == plain(&samples)));
    }
}
