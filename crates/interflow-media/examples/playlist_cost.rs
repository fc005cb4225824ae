//! Measures the cost of rewriting playlists and parsing manifests: `cargo run --release -p interflow-media --example
//! playlist_cost`. An argument selects the rows whose names contain it.

use std::time::{Duration, Instant};

use interflow_media::dash::to_hls::{self, HlsOptions, PlaylistHeader, PlaylistPeriod, UrlKind};
use interflow_media::dash::{model, segments, xml};
use interflow_media::endpoint::ChildUrls;
use interflow_media::hls::rewrite::SegmentEncryption;
use interflow_media::hls::{HlsRewriteOptions, UriReplacer, UriRole, rewrite};
use interflow_media::relay::BaseUrl;
use interflow_media::relay::address::push_value;
use interflow_media::token::{LinkGrant, LinkKeys};

/// Inserts child URLs, as the endpoints do.
struct Ours(ChildUrls);

impl UriReplacer for Ours {
    fn write_uri(&mut self, kind: UriRole, address: &str, _: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        let path = if kind == UriRole::Segment { "/proxy/hls/segment.ts" } else { "/proxy/stream" };
        let from = self.0.write_prefix(path, out);
        out.extend_from_slice(b"d=");
        push_value(address.as_bytes(), out);
        self.0.write_signature(out, from);
    }
}

fn iptv(channels: usize) -> Vec<u8> {
    let mut text = "#EXTM3U url-tvg=\"http://guide.test/epg.xml.gz\"\n".to_owned();
    for n in 0..channels {
        text.push_str(&format!(
            "#EXTINF:-1 tvg-id=\"ch{n}.test\" tvg-name=\"Channel {n}\" tvg-logo=\"http://logos.test/{n}.png\" group-title=\"Group {}\",Channel {n} HD\nhttp://line.test:8080/live/user/password/{n}.ts\n",
            n % 50
        ));
    }
    text.into_bytes()
}

fn media(segments: usize) -> Vec<u8> {
    let mut text =
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-MEDIA-SEQUENCE:1\n#EXT-X-MAP:URI=\"init.mp4\"\n"
            .to_owned();
    for n in 0..segments {
        text.push_str(&format!("#EXTINF:6.00000,\nvideo/1080p/segment_{n:06}.m4s?token=abcdef0123456789\n"));
    }
    text.into_bytes()
}

/// A manifest of about a megabyte: 40 representations with a timeline each.
fn manifest() -> String {
    let runs: String = (0..900).map(|n| format!("<S t=\"{}\" d=\"{}\"/>", n * 180_000, 180_000 + n % 7)).collect();
    let mut text = "<MPD type=\"static\" mediaPresentationDuration=\"PT1800S\"><Period>".to_owned();
    for n in 0..40 {
        text.push_str(&format!(
            "<AdaptationSet id=\"{n}\" mimeType=\"video/mp4\" codecs=\"avc1.64001f\"><SegmentTemplate timescale=\"90000\" media=\"$RepresentationID$/$Time$.m4s\" initialization=\"$RepresentationID$/i.mp4\"><SegmentTimeline>{runs}</SegmentTimeline></SegmentTemplate><Representation id=\"v{n}\" bandwidth=\"{}\" width=\"640\" height=\"{}\"/></AdaptationSet>",
            100_000 * (n + 1),
            100 + n
        ));
    }
    text + "</Period></MPD>"
}

/// The multivariant playlist and one track's playlist, from the manifest's text.
fn as_hls(text: &str, base: &BaseUrl) -> usize {
    let root = xml::read(text.as_bytes()).expect("a well-formed manifest");
    let manifest = model::read(&root, base).expect("a manifest that makes sense");
    let period = &manifest.periods[0];
    let master = to_hls::master(period, &HlsOptions::default(), |track| track.profile()).expect("within bounds");
    let track = to_hls::tracks(period).next().expect("it has tracks");
    let segments = segments::list(track.own, period, &manifest, 0.0).expect("within bounds");
    let parts = [PlaylistPeriod { period, track, segments, init: None }];
    let media = to_hls::media(&manifest, &parts, PlaylistHeader::default(), |wanted| match wanted {
        UrlKind::Init(_) => Some("i.mp4".to_owned()),
        UrlKind::Segment(_, segment) => segment.address.clone(),
    })
    .expect("within bounds");
    master.len() + media.len()
}

fn best(mut work: impl FnMut() -> usize) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..15 {
        let begun = Instant::now();
        std::hint::black_box(work());
        best = best.min(begun.elapsed());
    }
    best
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let keys = LinkKeys::new(&[("0".into(), vec![7; 32])]).expect("a key of 32 bytes will do");
    let base = BaseUrl::parse("https://origin.test/live/master.m3u8").expect("a well-formed address");
    let token = keys.seal(&LinkGrant { child: true, ..LinkGrant::default() });
    println!("{:<34} {:>10} {:>12} {:>10}", "playlist", "bytes", "best", "MB/s");
    for (name, text) in [
        ("IPTV, 30,000 channels", iptv(30_000)),
        ("IPTV, 100,000 channels", iptv(100_000)),
        ("media, 50 KB", media(700)),
    ] {
        for (how, hide, sealed) in [("open", false, false), ("signed", false, true), ("hidden", true, true)] {
            let name = format!("{name}, {how}");
            if !name.contains(&only) {
                continue;
            }
            let key = sealed.then(|| (token.as_str(), keys.child_key(&token).expect("its key is there")));
            let mut place = Ours(ChildUrls::new("http://127.0.0.1:7071/media", key, hide));
            let took = best(|| rewrite(&text, &base, &HlsRewriteOptions::default(), &mut place).len());
            let speed = text.len() as f64 / took.as_secs_f64() / 1e6;
            println!("{:<34} {:>10} {:>12.1?} {:>10.0}", name, text.len(), took, speed);
        }
    }
    if !"manifest, 40 representations".contains(&only) {
        return;
    }
    let text = manifest();
    let took = best(|| as_hls(&text, &base));
    let speed = text.len() as f64 / took.as_secs_f64() / 1e6;
    println!("{:<34} {:>10} {:>12.1?} {:>10.0}", "manifest, 40 representations", text.len(), took, speed);
}
