//! Entries for the documents and links of `interflow-media`: no bytes make them panic, and what is no address stays.

use interflow_media::dash::{model, segments, to_mpd, xml};
use interflow_media::hls::rewrite::Crypt;
use interflow_media::hls::skip::{Stretches, cut};
use interflow_media::hls::variants::{Wish, keep};
use interflow_media::hls::{Kind, Options, Place, rewrite};
use interflow_media::relay::Base;
use interflow_media::token::{LinkKeys, read_legacy};

/// One entry over the inputs of one target.
pub type Entry = fn(&[u8]);

/// Every entry with the name of its target.
pub const ENTRIES: [(&str, Entry); 3] = [("m3u8", m3u8), ("mpd", mpd), ("media_token", media_token)];

fn base() -> Base {
    Base::read("https://origin.test/a/b").expect("a well-formed address")
}

/// Leaves nothing where an address was.
struct Nothing;

impl Place for Nothing {
    fn put(&mut self, _: Kind, _: &str, _: Option<&Crypt>, _: &mut Vec<u8>) {}
}

/// A playlist through every pass. What is left once addresses are out is never more than there was.
pub fn m3u8(data: &[u8]) {
    let left = rewrite(data, &base(), &Options::default(), &mut Nothing);
    assert!(left.len() <= data.len());
    rewrite(data, &base(), &Options { apply_keys: true, ..Options::default() }, &mut Nothing);
    keep(data, Wish::Height(720));
    cut(data, &Stretches::read("0-5,9-10"));
}

/// A manifest read, its segments listed, and written again as a manifest that can be read.
pub fn mpd(data: &[u8]) {
    let Ok(mut root) = xml::read(data) else { return };
    let Ok(manifest) = model::read(&root, &base()) else { return };
    for period in manifest.periods.iter().take(4) {
        for set in period.sets.iter().take(4) {
            for own in set.representations.iter().take(4) {
                segments::list(own, period, &manifest, 1e9);
            }
        }
    }
    to_mpd::rewrite(&mut root, &manifest, "http://us/", true, &mut |_| "http://us/x".to_owned());
    let mut out = String::new();
    root.write(&mut out);
    assert!(xml::read(out.as_bytes()).is_ok());
}

/// A link that nobody sealed is never opened.
pub fn media_token(data: &[u8]) {
    let keys = LinkKeys::new(&[("a".into(), vec![7; 32])]).expect("a key that will do");
    let token = String::from_utf8_lossy(data);
    assert!(keys.open(&token).is_err());
    let _ = read_legacy(&token, "password");
    if let Ok(child) = keys.child_key("i1.a.x") {
        assert!(child.open("/p", &token).is_err());
    }
}
