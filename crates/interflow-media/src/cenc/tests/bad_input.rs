//! Missing keys, malformed boxes, false sizes: an error that names the cause, never a panic, never ciphertext.

use proptest::prelude::*;

use super::super::InitSegment;
use super::super::decrypter::DecryptLimits;
use super::*;

fn error(data: &[u8]) -> String {
    decrypt(data).unwrap_err().to_string()
}

#[test]
fn unknown_kid_is_reported_before_any_media_output() {
    let spec = Spec { kid: [0xdd; 16], ..Spec::of(b"cenc") };
    let samples = samples(3, 1);
    let (init, segment) = (one_track(&spec), segment(&spec, &samples));
    let mut out = Vec::new();
    let mut decrypter = CencDecrypter::new(ring());
    let all = Bytes::from([init.clone(), segment].concat());
    let e = decrypter.push(all, &mut out).unwrap_err();
    assert_eq!(e, CencError::NoKey { kid: KeyId([0xdd; 16]), track: 1 });
    assert!(e.to_string().contains("dddddddddddddddddddddddddddddddd") && e.to_string().contains("track 1"));
    assert_eq!(out.concat().len(), init.len(), "the init segment only");
    assert_eq!(decrypter.push(Bytes::from_static(b"more"), &mut out), Err(e.clone()), "nothing after an error");
    assert_eq!(decrypter.finish(), Err(e.clone()));
    assert_eq!(InitSegment::parse(&init).unwrap().check_keys(&ring()), Err(e.clone()));
    let error = interflow_types::Error::from(e);
    assert_eq!(
        (error.kind(), error.error_source()),
        (interflow_types::ErrorKind::Denied, interflow_types::ErrorSource::Client)
    );
}

#[test]
fn a_stream_fails_where_its_key_changes_to_an_unknown_one() {
    let spec = Spec::of(b"cenc");
    let unknown = Spec { kid: [0xdd; 16], ..spec };
    let (first, second) = (samples(3, 1), samples(4, 2));
    // The fragment's own groups rotate the key of all of its samples.
    let sgpd = boxed(b"sgpd", &[&words(&[1 << 24]), b"seig", &words(&[20, 1]), &unknown.group()]);
    let sbgp = boxed(b"sbgp", &[&words(&[0]), b"seig", &words(&[1, second.len() as u32, 0x1_0001])]);
    let rotated =
        moof(|n| vec![traf(1, &[sgpd.clone(), sbgp.clone(), trun(n + 8, sizes(&second)), unknown.senc(&second)])]);
    let good = [one_track(&spec), segment(&spec, &first)].concat();
    let sealed = mdat(&sealed(&unknown, &second));
    let all = [good.clone(), rotated, sealed.clone()].concat();
    let expected = decrypt(&good).unwrap();
    for step in [1, 61, 500, usize::MAX] {
        let (mut out, mut decrypter) = (Vec::new(), CencDecrypter::new(ring()));
        let failed = all
            .chunks(step.min(all.len()))
            .find_map(|piece| decrypter.push(Bytes::copy_from_slice(piece), &mut out).err());
        assert_eq!(failed, Some(CencError::NoKey { kid: KeyId([0xdd; 16]), track: 1 }), "in pieces of {step} bytes");
        let out = out.concat();
        assert!(out == expected, "what came before the change is in clear, and nothing of what follows comes out");
        assert!(decrypter.finish().is_err(), "what was cut off is not a whole stream");
    }
}

#[test]
fn inconsistent_encryption_boxes_are_refused_by_name() {
    let spec = Spec::of(b"cenc");
    let one = samples(3, 1);
    let init = one_track(&spec);
    let media = mdat(&sealed(&spec, &one));
    let with = |boxes: &dyn Fn(i32) -> Vec<Vec<u8>>| {
        [init.clone(), moof(|n| vec![traf(1, &boxes(n))]), media.clone()].concat()
    };
    let run = |n: i32| trun(n + 8, sizes(&one));
    let mut off_by_one = one.clone();
    off_by_one[1].subsamples[0].1 += 1;
    let saio = |at: u32| boxed(b"saio", &[&words(&[0, 1, at])]);
    let far = boxed(b"sbgp", &[&words(&[0]), b"seig", &words(&[1, 3, 7])]);
    for (data, parts) in [
        (with(&|n| vec![run(n)]), &["`traf`", "neither senc nor saiz"][..]),
        (with(&|n| vec![run(n), spec.senc(&one[..2])]), &["`senc`", "2 entries for 3 samples"]),
        (with(&|n| vec![run(n), spec.senc(&off_by_one)]), &["`senc`", "add up to"]),
        (with(&|n| vec![trun(n + 9, sizes(&one)), spec.senc(&one)]), &["before the fragment", "or over"]),
        (with(&|_| vec![trun(0, sizes(&one)), spec.senc(&one)]), &["before the fragment"]),
        (with(&|n| vec![run(n), spec.saiz(&one)]), &["no saio"]),
        (with(&|n| vec![run(n), spec.saiz(&one), saio((n as u32).wrapping_sub(2))]), &["saio points past"]),
        (with(&|n| vec![run(n), spec.saiz(&one), saio(1 << 30)]), &["`mdat`", "not supported"]),
        (with(&|n| vec![run(n), spec.senc(&one), far.clone()]), &["key group 7"]),
        ([moof(|n| vec![traf(1, &[run(n)])]), media.clone()].concat(), &["no init segment", "track 1"]),
        ([init.clone(), moof(|n| vec![traf(9, &[run(n)])])].concat(), &["no init segment", "track 9"]),
        (media.clone(), &["before its index", "byte 0"]),
        ([&[0, 0, 0, 0][..], b"moov"].concat(), &["`moov`", "size of 0"]),
        ([&words(&[1])[..], b"moof", &[0xff; 8]].concat(), &["`moof`", "at the most"]),
        ([&words(&[4])[..], b"moof"].concat(), &["`moof`", "smaller than its header"]),
    ] {
        let e = error(&data);
        assert!(parts.iter().all(|p| e.contains(p)), "{parts:?} in: {e}");
    }
}

#[test]
fn truncated_stream_is_an_error_at_any_cut() {
    let spec = Spec::of(b"cbcs");
    let samples = samples(3, 1);
    let data = [one_track(&spec), boxed(b"free", &[b"abc"]), segment(&spec, &samples)].concat();
    let clear = decrypt(&data).unwrap();
    // An empty stream is rejected.
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let size = u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
        // The media data must follow the `moof`.
        if &data[at + 4..at + 8] != b"moof" {
            ends.push(at + size as usize);
        }
        at += size as usize;
    }
    for cut in 0..data.len() {
        let mut decrypter = CencDecrypter::new(ring());
        let mut out = Vec::new();
        decrypter.push(Bytes::copy_from_slice(&data[..cut]), &mut out).unwrap();
        assert!(clear.starts_with(&out.concat()), "what came out before byte {cut} is right");
        assert_eq!(decrypter.finish().is_ok(), ends.contains(&cut), "{cut} of {}", data.len());
    }
}

#[test]
fn index_size_and_buffered_media_are_limited() {
    let spec = Spec::of(b"cenc");
    let samples = samples(3, 1);
    let total: usize = sizes(&samples).sum();
    let limits = DecryptLimits { index: 4096, waiting: 100 };
    let behind = moof(|n| {
        let saio = boxed(b"saio", &[&words(&[0, 1, n as u32 + 8 + total as u32])]);
        vec![traf(1, &[trun(n + 8, sizes(&samples)), spec.saiz(&samples), saio])]
    });
    let data = [one_track(&spec), behind, mdat(&[sealed(&spec, &samples).concat(), vec![0; 300]])].concat();
    let mut decrypter = CencDecrypter::new(ring());
    decrypter.limits = limits;
    let e = decrypt_in(&mut decrypter, &data, 50).unwrap_err().to_string();
    assert!(e.contains("`mdat`") && e.contains("100 are held"), "{e}");
    let mut decrypter = CencDecrypter::new(ring());
    decrypter.limits = limits;
    let e = decrypt_in(&mut decrypter, &[&words(&[5000])[..], b"moov", &[0; 5000]].concat(), 50).unwrap_err();
    assert!(matches!(e, CencError::TooLarge { size: 5000, limit: 4096, .. }), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn flipped_bytes_never_panic_nor_change_the_length(
        scheme in 0_usize..4,
        flips in prop::collection::vec((0_usize..4000, any::<u8>()), 1..6),
        step in 1_usize..900,
    ) {
        let spec = Spec::of([b"cenc", b"cens", b"cbc1", b"cbcs"][scheme]);
        let samples = samples(4, 3);
        let mut data = [one_track(&spec), segment(&spec, &samples)].concat();
        for (at, byte) in flips {
            let n = data.len();
            data[at % n] = byte;
        }
        if let Ok(out) = decrypt_in(&mut CencDecrypter::new(ring()), &data, step) {
            prop_assert_eq!(out.len(), data.len());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decrypt_in(&mut CencDecrypter::new(ContentKeyRing::any(ContentKey(KEY))), &data, 13);
    }
}

#[test]
fn media_of_a_fragment_that_describes_no_sample_is_an_error() {
    let spec = Spec::of(b"cenc");
    let samples = samples(3, 1);
    let whole = [one_track(&spec), segment(&spec, &samples)].concat();
    for (kind, size) in [(b"traf", None), (b"trun", None), (b"tfhd", Some(0_u32))] {
        let mut damaged = whole.clone();
        let at = damaged.windows(4).rposition(|w| w == kind).unwrap();
        match size {
            Some(size) => damaged[at - 4..at].copy_from_slice(&size.to_be_bytes()),
            None => damaged[at] = b'X',
        }
        let (mut out, mut decrypter) = (Vec::new(), CencDecrypter::new(ring()));
        let result = decrypter.push(Bytes::from(damaged), &mut out).and_then(|()| decrypter.finish());
        assert!(result.is_err(), "{}", String::from_utf8_lossy(kind));
        let sealed = mdat(&sealed(&spec, &samples));
        assert!(!out.concat().ends_with(&sealed[8..]), "{}", String::from_utf8_lossy(kind));
    }
}
