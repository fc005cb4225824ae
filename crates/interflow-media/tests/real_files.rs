//! Files created by shaka-packager and ffmpeg: one H.264 source in each scheme, with equal results.

use bytes::Bytes;
use interflow_media::bmff::{Movie, MovieFragment, boxes, codec_string};
use interflow_media::cenc::{
    CencDecrypter, CencError, ContentKey, ContentKeyRing, IndexProbe, InitSegment, KeyId, ProtectionScheme,
};

const KEY: [u8; 16] = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
const KID: KeyId = KeyId(0xa1b2_c3d4_e5f6_0718_293a_4b5c_6d7e_8f90_u128.to_be_bytes());

fn seed(name: &str) -> Vec<u8> {
    let path: std::path::PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "bmff", name].iter().collect();
    std::fs::read(path).expect("a seed")
}

fn ring() -> ContentKeyRing {
    ContentKeyRing::from_pairs([(KID, ContentKey(KEY))])
}

fn decrypt(data: Vec<u8>, keys: ContentKeyRing) -> Result<Vec<u8>, CencError> {
    let mut decrypter = CencDecrypter::new(keys);
    let mut out = Vec::new();
    decrypter.push(Bytes::from(data), &mut out)?;
    decrypter.finish()?;
    Ok(out.concat())
}

/// The samples of all fragments.
fn samples(data: &[u8]) -> Vec<Vec<u8>> {
    let all: Vec<_> = boxes(data, 0).map(|b| b.expect("whole boxes")).collect();
    let moov = all.iter().find(|b| b.kind() == b"moov").expect("a moov");
    let movie = Movie::read(moov).expect("a movie");
    let moofs = all.iter().filter(|b| b.kind() == b"moof").map(|b| MovieFragment::read(b).expect("a fragment"));
    let placed = moofs.flat_map(|f| f.locate_samples(|id| movie.track(id).expect("a track").defaults).expect("places"));
    placed.flatten().map(|p| data[p.offset as usize..][..p.size as usize].to_vec()).collect()
}

#[test]
fn every_scheme_decrypts_to_the_same_media() {
    let clear = ["cenc", "cens", "cbc1", "cbcs"].map(|scheme| {
        let sealed = seed(scheme);
        let init = InitSegment::parse(&sealed).unwrap();
        assert_eq!(init.kids(), [KID]);
        assert_eq!(init.protected().next().unwrap().protection.scheme.as_str(), scheme);
        let clear = decrypt(sealed.clone(), ring()).unwrap();
        assert_eq!(clear.len(), sealed.len());
        assert!(samples(&clear) != samples(&sealed));
        samples(&clear)
    });
    assert_eq!(clear[0].len(), 5);
    assert!(clear.windows(2).all(|pair| pair[0] == pair[1]));
    // Five frames of NAL units whose lengths add up.
    for sample in &clear[0] {
        let mut rest = &sample[..];
        while !rest.is_empty() {
            let n = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            rest = &rest[4 + n..];
        }
    }
}

#[test]
fn trailing_index_is_found_and_the_codec_identified() {
    let data = seed("progressive");
    let mut probe = IndexProbe::new(ring(), data.len() as u64);
    while let Some(range) = probe.next_range() {
        probe.push(range.start, &data[range.start as usize..range.end as usize]).unwrap();
    }
    let file = probe.finish().unwrap().expect("a progressive file");
    let entry = &file.init().movie.tracks[0].entries[0];
    assert_eq!((codec_string(entry), entry.format.to_string()), ("mp4a.40.2".into(), "mp4a".into()));
    assert_eq!(file.init().protected().next().unwrap().protection.scheme, ProtectionScheme::Cenc);
}

#[test]
fn a_key_for_another_id_is_refused() {
    let other = ContentKeyRing::from_pairs([(KeyId([1; 16]), ContentKey(KEY))]);
    assert_eq!(decrypt(seed("cbcs"), other), Err(CencError::NoKey { kid: KID, track: 1 }));
}

#[test]
fn damage_is_reported_before_any_media_output() {
    let whole = seed("cenc");
    let fragment = boxes(&whole, 0).flatten().find(|b| b.kind() == b"moof").expect("a fragment").offset as usize;
    let init = || InitSegment::parse(&whole[..fragment]).unwrap();
    let media = &whole[fragment..];
    let mdat = boxes(media, 0).flatten().find(|b| b.kind() == b"mdat").expect("media data").offset as usize;
    let mut past_the_end = media.to_vec();
    past_the_end[..4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    let mut long_media = media.to_vec();
    long_media[mdat..mdat + 4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    let noise: Vec<u8> = (0..4000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let no_index = media[mdat..].to_vec();
    let page = b"<!DOCTYPE html><html><body>expired</body></html>".to_vec();
    for (name, data) in [
        ("nothing", Vec::new()),
        ("noise", noise),
        ("a page", page),
        ("a fragment that reaches past the end", past_the_end),
        ("media data that reaches past the end", long_media),
        ("media data that nothing describes", no_index),
    ] {
        let mut decrypter = CencDecrypter::for_segment(ring(), init()).with_length(Some(data.len() as u64));
        let mut out = Vec::new();
        let done = decrypter.push(Bytes::from(data), &mut out).and_then(|()| decrypter.finish());
        assert!(done.is_err() && !decrypter.has_media(), "{name}: {done:?}");
    }
    // Truncated input: earlier output is valid, and the end is an error.
    let mut decrypter = CencDecrypter::for_segment(ring(), init());
    let mut out = Vec::new();
    decrypter.push(Bytes::copy_from_slice(&media[..mdat + 100]), &mut out).unwrap();
    assert!(decrypter.has_media() && decrypter.finish().is_err());
}
