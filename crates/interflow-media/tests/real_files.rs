//! Files that shaka-packager and ffmpeg made: one H.264 source under each scheme, which must come out the same.

use bytes::Bytes;
use interflow_media::bmff::{Fragment, Movie, boxes, codec_string};
use interflow_media::cenc::{Decrypter, Error, Init, Key, KeyRing, Kid, Probe, Scheme};

const KEY: [u8; 16] = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
const KID: Kid = Kid(0xa1b2_c3d4_e5f6_0718_293a_4b5c_6d7e_8f90_u128.to_be_bytes());

fn seed(name: &str) -> Vec<u8> {
    let path: std::path::PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "bmff", name].iter().collect();
    std::fs::read(path).expect("a seed")
}

fn ring() -> KeyRing {
    KeyRing::from_pairs([(KID, Key(KEY))])
}

fn decrypt(data: Vec<u8>, keys: KeyRing) -> Result<Vec<u8>, Error> {
    let mut decrypter = Decrypter::new(keys);
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
    let moofs = all.iter().filter(|b| b.kind() == b"moof").map(|b| Fragment::read(b).expect("a fragment"));
    let placed = moofs.flat_map(|f| f.place(|id| movie.track(id).expect("a track").defaults).expect("places"));
    placed.flatten().map(|p| data[p.offset as usize..][..p.size as usize].to_vec()).collect()
}

#[test]
fn one_source_comes_out_the_same_under_every_scheme() {
    let clear = ["cenc", "cens", "cbc1", "cbcs"].map(|scheme| {
        let sealed = seed(scheme);
        let init = Init::parse(&sealed).unwrap();
        assert_eq!(init.kids(), [KID]);
        assert_eq!(init.protected().next().unwrap().protection.scheme.as_str(), scheme);
        let clear = decrypt(sealed.clone(), ring()).unwrap();
        assert_eq!(clear.len(), sealed.len());
        assert!(samples(&clear) != samples(&sealed));
        samples(&clear)
    });
    assert_eq!(clear[0].len(), 5);
    assert!(clear.windows(2).all(|pair| pair[0] == pair[1]));
    // Five frames of NAL units with lengths that add up.
    for sample in &clear[0] {
        let mut rest = &sample[..];
        while !rest.is_empty() {
            let n = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            rest = &rest[4 + n..];
        }
    }
}

#[test]
fn an_index_at_the_end_is_found_and_the_codec_named() {
    let data = seed("progressive");
    let mut probe = Probe::new(ring(), data.len() as u64);
    while let Some(range) = probe.wants() {
        probe.give(range.start, &data[range.start as usize..range.end as usize]).unwrap();
    }
    let file = probe.finish().unwrap().expect("a progressive file");
    let entry = &file.init().movie.tracks[0].entries[0];
    assert_eq!((codec_string(entry), entry.format.to_string()), ("mp4a.40.2".into(), "mp4a".into()));
    assert_eq!(file.init().protected().next().unwrap().protection.scheme, Scheme::Cenc);
}

#[test]
fn a_key_for_another_id_is_refused() {
    let other = KeyRing::from_pairs([(Kid([1; 16]), Key(KEY))]);
    assert_eq!(decrypt(seed("cbcs"), other), Err(Error::NoKey { kid: KID, track: 1 }));
}
