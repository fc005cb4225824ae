//! Entries for the documents and links of `interflow-media`: no input makes them panic, and bytes that are not URLs are unchanged.

use bytes::Bytes;
use interflow_media::bmff::{BoxNode, boxes};
use interflow_media::cenc::{CencDecrypter, ContentKey, ContentKeyRing, IndexProbe};
use interflow_media::dash::{model, segments, to_mpd, xml};
use interflow_media::hls::rewrite::SegmentEncryption;
use interflow_media::hls::segment_skip::{SkipRanges, skip_segments};
use interflow_media::hls::variant_filter::{VariantChoice, filter_variants};
use interflow_media::hls::{HlsRewriteOptions, UriReplacer, UriRole, rewrite};
use interflow_media::relay::BaseUrl;
use interflow_media::remux::{RemuxOptions, TsMuxer};
use interflow_media::sample_aes::{SampleAesTs, iv_from_sequence};
use interflow_media::token::{LinkKeys, read_legacy};

/// One entry over the inputs of one target.
pub type Entry = fn(&[u8]);

/// Every entry with the name of its target.
pub const ENTRIES: [(&str, Entry); 5] =
    [("m3u8", m3u8), ("mpd", mpd), ("media_token", media_token), ("bmff", bmff), ("mpeg_ts", mpeg_ts)];

/// The key of the seeds.
const KEY: [u8; 16] = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();

/// An MP4: displayed as a tree, decrypted whole and in pieces with the same result, probed for an index, remuxed to MPEG-TS.
pub fn bmff(data: &[u8]) {
    for b in boxes(data, 0).flatten() {
        let node = BoxNode::read(&b);
        assert_eq!(node.size, Some(b.whole.len() as u64));
    }
    let keys = ContentKeyRing::any(ContentKey(KEY));
    let decrypt = |step: usize| {
        let mut decrypter = CencDecrypter::new(keys.clone());
        let mut out = Vec::new();
        let taken = data.chunks(step).try_for_each(|c| decrypter.push(Bytes::copy_from_slice(c), &mut out));
        taken.and_then(|()| decrypter.finish()).map(|()| out.concat()).ok()
    };
    let whole = decrypt(data.len().max(1));
    assert!(whole == decrypt(97));
    let mut probe = IndexProbe::new(keys.clone(), data.len() as u64);
    while let Some(range) = probe.next_range() {
        let Some(part) = data.get(range.start as usize..range.end as usize) else { break };
        if probe.push(range.start, part).is_err() {
            break;
        }
    }
    let Some(clear) = whole else { return };
    assert_eq!(clear.len(), data.len());
    if let Ok(muxer) = TsMuxer::new(&clear, RemuxOptions::default()) {
        let mut out = Vec::new();
        let mut segment = muxer.segment();
        if segment.push(Bytes::from(clear), &mut out).is_ok() && segment.finish(&mut out).is_ok() {
            assert!(out.concat().chunks(188).all(|p| p.len() == 188 && p[0] == 0x47));
        }
    }
}

/// A transport stream with SAMPLE-AES: input and output have the same number of packets, however the input is split.
pub fn mpeg_ts(data: &[u8]) {
    let decrypt = |step: usize| {
        let mut ts = SampleAesTs::new(&ContentKey(KEY), iv_from_sequence(1));
        let mut out = Vec::new();
        let taken = data.chunks(step).try_for_each(|c| ts.push(c, &mut out));
        taken.and_then(|()| ts.finish(&mut out)).map(|()| out.concat()).ok()
    };
    let whole = decrypt(data.len().max(1));
    assert!(whole == decrypt(61));
    assert!(whole.is_none_or(|out| out.len() == data.len()));
}

fn base() -> BaseUrl {
    BaseUrl::parse("https://origin.test/a/b").expect("a well-formed address")
}

/// Removes every URL.
struct Nothing;

impl UriReplacer for Nothing {
    fn write_uri(&mut self, _: UriRole, _: &str, _: Option<&SegmentEncryption>, _: &mut Vec<u8>) {}
}

/// A playlist through every pass. Without its URLs it is never longer than before.
pub fn m3u8(data: &[u8]) {
    let left = rewrite(data, &base(), &HlsRewriteOptions::default(), &mut Nothing);
    assert!(left.len() <= data.len());
    rewrite(data, &base(), &HlsRewriteOptions { apply_keys: true, ..HlsRewriteOptions::default() }, &mut Nothing);
    filter_variants(data, VariantChoice::Height(720));
    skip_segments(data, &SkipRanges::read("0-5,9-10").unwrap_or_default());
}

/// A manifest: parsed, its segments listed, rewritten, and parsed again.
pub fn mpd(data: &[u8]) {
    let Ok(mut root) = xml::read(data) else { return };
    let Ok(manifest) = model::read(&root, &base()) else { return };
    for period in manifest.periods.iter().take(4) {
        for set in period.sets.iter().take(4) {
            for own in set.representations.iter().take(4) {
                let _ = segments::list(own, period, &manifest, 1e9);
            }
        }
    }
    let mut link = |_: to_mpd::ManifestUrlKind<'_>| "http://us/x".to_owned();
    if to_mpd::rewrite(&mut root, &manifest, "http://us/", true, 64 << 20, &mut link).is_err() {
        return;
    }
    let mut out = String::new();
    root.write(&mut out);
    assert!(xml::read(out.as_bytes()).is_ok());
}

/// An unsealed link is never accepted.
pub fn media_token(data: &[u8]) {
    let keys = LinkKeys::new(&[("a".into(), vec![7; 32])]).expect("a key that will do");
    let token = String::from_utf8_lossy(data);
    assert!(keys.open(&token).is_err());
    let _ = read_legacy(&token, "password");
    if let Ok(child) = keys.child_key("i1.a.x") {
        assert!(child.open("/p", &token).is_err());
    }
}
