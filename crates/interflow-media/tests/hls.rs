//! Rewritten playlists: each tag that contains a URL, and everything else unchanged.

use interflow_media::hls::define::PlaylistVariables;
use interflow_media::hls::rewrite::{SegmentEncryption, extension, is_playlist_address};
use interflow_media::hls::{HlsRewriteOptions, UriReplacer, UriRole, rewrite, rewrite_within};
use interflow_media::relay::BaseUrl;
use proptest::prelude::*;

/// Writes `<Kind|address>`, and how the segment is encrypted.
struct Marks;

impl UriReplacer for Marks {
    fn write_uri(&mut self, kind: UriRole, address: &str, crypt: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        let crypt =
            crypt.map(|c| format!("|{}|{}|{}", c.method, c.key.as_deref().unwrap_or("own"), c.iv)).unwrap_or_default();
        out.extend_from_slice(format!("<{kind:?}|{address}{crypt}>").as_bytes());
    }

    fn inline(&self, address: &str) -> Option<String> {
        address.ends_with("/inline").then(|| "data:,x".to_owned())
    }
}

fn rewritten_with(text: &str, options: &HlsRewriteOptions) -> String {
    let base = BaseUrl::parse("https://o.test/a/b.m3u8?q=7").unwrap();
    String::from_utf8(rewrite(text.as_bytes(), &base, options, &mut Marks)).unwrap()
}

fn rewritten(text: &str) -> String {
    rewritten_with(text, &HlsRewriteOptions::default())
}

/// Accepts header fields after URLs, and writes them.
#[derive(Default)]
struct Fields(String);

impl UriReplacer for Fields {
    fn write_uri(&mut self, kind: UriRole, address: &str, _: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("<{kind:?}|{address}|{}>", std::mem::take(&mut self.0)).as_bytes());
    }

    fn channel_fields(&mut self, fields: &str) -> bool {
        self.0 = fields.to_owned();
        fields.contains('=')
    }
}

#[test]
fn header_suffixes_of_channel_urls_are_stripped_from_the_line() {
    let base = BaseUrl::parse("https://o.test/a/list.m3u").unwrap();
    let of = |text: &str| {
        String::from_utf8(rewrite(text.as_bytes(), &base, &HlsRewriteOptions::default(), &mut Fields::default()))
            .unwrap()
    };
    for (line, becomes) in [
        ("http://h/1.ts|User-Agent=Box", "<Channel|http://h/1.ts|User-Agent=Box>"),
        ("b.m3u8|Referer=x&Cookie=a%3Db ", "<Playlist|https://o.test/a/b.m3u8|Referer=x&Cookie=a%3Db> "),
        ("rtmp://h/live|User-Agent=Box", "rtmp://h/live|User-Agent=Box"),
    ] {
        assert_eq!(of(&format!("#EXTM3U\n#EXTINF:-1,A\n{line}\n")), format!("#EXTM3U\n#EXTINF:-1,A\n{becomes}\n"));
    }
    let media = of("#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\ns.ts|a=b\n");
    assert!(media.contains("s.ts|a=b|>"), "a segment's address is taken as it stands: {media}");
}

#[test]
fn every_tag_with_a_uri_is_rewritten_in_place() {
    for (line, becomes) in [
        (
            r#"#EXT-X-KEY:METHOD=AES-128,URI="k",IV=0x1"#,
            r#"#EXT-X-KEY:METHOD=AES-128,URI="<Key|https://o.test/a/k>",IV=0x1"#,
        ),
        (
            r#"#EXT-X-KEY:METHOD=AES-128,URI=k,IV=0x1"#,
            r#"#EXT-X-KEY:METHOD=AES-128,URI="<Key|https://o.test/a/k>",IV=0x1"#,
        ),
        (r#"#EXT-X-KEY:METHOD=AES-128,URI=inline,IV=0x1"#, r#"#EXT-X-KEY:METHOD=AES-128,URI="data:,x",IV=0x1"#),
        (
            r#"#EXT-X-SESSION-KEY:METHOD=AES-128,URI="/k""#,
            r#"#EXT-X-SESSION-KEY:METHOD=AES-128,URI="<Key|https://o.test/k>""#,
        ),
        (
            r#"#EXT-X-MAP:URI="i.mp4",BYTERANGE="1@0""#,
            r#"#EXT-X-MAP:URI="<Segment|https://o.test/a/i.mp4>",BYTERANGE="1@0""#,
        ),
        (
            r#"#EXT-X-MEDIA:TYPE=AUDIO,NAME="a, URI=b",URI="../x.m3u8",DEFAULT=YES"#,
            r#"#EXT-X-MEDIA:TYPE=AUDIO,NAME="a, URI=b",URI="<Playlist|https://o.test/x.m3u8>",DEFAULT=YES"#,
        ),
        (
            r#"#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI="i.m3u8""#,
            r#"#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI="<Playlist|https://o.test/a/i.m3u8>""#,
        ),
        (
            r#"#EXT-X-IMAGE-STREAM-INF:URI="i.m3u8""#,
            r#"#EXT-X-IMAGE-STREAM-INF:URI="<Playlist|https://o.test/a/i.m3u8>""#,
        ),
        (r#"#EXT-X-PART:DURATION=1,URI="p.m4s""#, r#"#EXT-X-PART:DURATION=1,URI="<Segment|https://o.test/a/p.m4s>""#),
        (
            r#"#EXT-X-PRELOAD-HINT:TYPE=PART,URI="p.m4s",BYTERANGE-START=0"#,
            r#"#EXT-X-PRELOAD-HINT:TYPE=PART,URI="<Segment|https://o.test/a/p.m4s>",BYTERANGE-START=0"#,
        ),
        (
            r#"#EXT-X-RENDITION-REPORT:URI="../1.m3u8",LAST-MSN=3"#,
            r#"#EXT-X-RENDITION-REPORT:URI="<Playlist|https://o.test/1.m3u8>",LAST-MSN=3"#,
        ),
        (
            r#"#EXT-X-SESSION-DATA:DATA-ID="x",URI="d.json""#,
            r#"#EXT-X-SESSION-DATA:DATA-ID="x",URI="<Data|https://o.test/a/d.json>""#,
        ),
        (
            r#"#EXT-X-CONTENT-STEERING:SERVER-URI="/s?x",PATHWAY-ID="A""#,
            r#"#EXT-X-CONTENT-STEERING:SERVER-URI="<Steering|https://o.test/s?x>",PATHWAY-ID="A""#,
        ),
        (
            r#"#EXT-X-DATERANGE:ID="1",X-ASSET-LIST="l",X-ASSET-URI="u",X-COM="URI=no""#,
            r#"#EXT-X-DATERANGE:ID="1",X-ASSET-LIST="<Assets|https://o.test/a/l>",X-ASSET-URI="<Playlist|https://o.test/a/u>",X-COM="URI=no""#,
        ),
        (r#"#EXT-X-VENDOR:URI="v""#, r#"#EXT-X-VENDOR:URI="<Data|https://o.test/a/v>""#),
        (
            r#"#EXT-X-KEY:METHOD=SAMPLE-AES,URI="skd://x",KEYFORMAT="c""#,
            r#"#EXT-X-KEY:METHOD=SAMPLE-AES,URI="skd://x",KEYFORMAT="c""#,
        ),
        (
            r#"#EXT-X-KEY:METHOD=X,URI="data:text/plain;base64,AAA=""#,
            r#"#EXT-X-KEY:METHOD=X,URI="data:text/plain;base64,AAA=""#,
        ),
        ("#EXT-X-KEY:METHOD=NONE", "#EXT-X-KEY:METHOD=NONE"),
        (r#"#EXT-X-KEY:METHOD=AES-128,URI="inline""#, r#"#EXT-X-KEY:METHOD=AES-128,URI="data:,x""#),
        (
            r#"#EXTM3U url-tvg="http://g/1,http://g/2" x-tvg-url="e.xml""#,
            r#"#EXTM3U url-tvg="<Guide|http://g/1>,<Guide|http://g/2>" x-tvg-url="<Guide|https://o.test/a/e.xml>""#,
        ),
        ("# URI=\"x\"", "# URI=\"x\""),
        ("#EXT-X-SKIP:SKIPPED-SEGMENTS=3", "#EXT-X-SKIP:SKIPPED-SEGMENTS=3"),
        ("#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES", "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES"),
    ] {
        assert_eq!(rewritten(line), becomes);
    }
}

#[test]
fn url_lines_are_classified_by_preceding_tags() {
    let text = "#EXTM3U\r\n#EXT-X-STREAM-INF:BANDWIDTH=1\r\nv1?x=.ts\r\n\r\n#EXT-X-STREAM-INF:BANDWIDTH=2\n# note\nhttp://c.test/v2.m3u8\n";
    assert_eq!(
        rewritten(text),
        "#EXTM3U\r\n#EXT-X-STREAM-INF:BANDWIDTH=1\r\n<Playlist|https://o.test/a/v1?x=.ts>\r\n\r\n\
         #EXT-X-STREAM-INF:BANDWIDTH=2\n# note\n<Playlist|http://c.test/v2.m3u8>\n"
    );
    let media = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n 1.ts?a=b \n#EXTINF:4,\n//c/2.ts";
    assert_eq!(
        rewritten(media),
        "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n <Segment|https://o.test/a/1.ts?a=b> \n#EXTINF:4,\n<Segment|https://c/2.ts>"
    );
    let iptv = "#EXTM3U\n#EXTINF:-1 tvg-id=\"a\" tvg-logo=\"http://l/x.png\" group-title=\"G, H\",Name, The\n#EXTVLCOPT:http-user-agent=x\nhttp://u:p@h/live/1\n#EXTINF:-1,B\nhttp://h/b.m3u8\n";
    let becomes = iptv
        .replace("http://u:p@h/live/1", "<Channel|http://u:p@h/live/1>")
        .replace("http://h/b.m3u8", "<Playlist|http://h/b.m3u8>");
    assert_eq!(rewritten(iptv), becomes);
}

#[test]
fn all_keys_of_a_segment_are_kept() {
    let text = "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://a\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n\
                #EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"data:,b\",KEYFORMAT=\"urn:uuid:edef8ba9\"\n\
                #EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\"\n";
    assert_eq!(rewritten(text), text.replace("URI=\"k\"", "URI=\"<Key|https://o.test/a/k>\""));
}

#[test]
fn keys_are_applied_with_the_correct_ivs() {
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:9\n#EXTINF:4,\n9.ts\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n\
                #EXTINF:4,\n10.ts\n#EXTINF:4,\n11.ts\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0xAB\n#EXTINF:4,\n12.ts\n\
                #EXT-X-KEY:METHOD=NONE\n#EXTINF:4,\n13.ts\n";
    let out = rewritten_with(text, &HlsRewriteOptions { apply_keys: true, ..HlsRewriteOptions::default() });
    let segments: Vec<_> = out.lines().filter(|l| l.starts_with('<')).collect();
    assert_eq!(
        segments,
        [
            "<Segment|https://o.test/a/9.ts>".to_owned(),
            format!("<Segment|https://o.test/a/10.ts|AES-128|https://o.test/a/k|#{:032x}>", 10),
            format!("<Segment|https://o.test/a/11.ts|AES-128|https://o.test/a/k|#{:032x}>", 11),
            "<Segment|https://o.test/a/12.ts|AES-128|https://o.test/a/k|AB>".to_owned(),
            "<Segment|https://o.test/a/13.ts>".to_owned(),
        ]
    );
    assert!(!out.contains("METHOD=AES-128"), "{out}");
}

#[test]
fn a_key_that_cannot_be_applied_ends_the_one_before_it() {
    let options = HlsRewriteOptions { apply_keys: true, ..HlsRewriteOptions::default() };
    for later in [
        "METHOD=AES-256-CTR,URI=\"l\"",
        "METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"",
        "METHOD=AES-128,URI=\"l\",KEYFORMAT=\"urn:uuid:x\"",
        "METHOD=SAMPLE-AES,KEYFORMAT=\"x\"",
    ] {
        let text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:4,\n0.ts\n\
             #EXT-X-KEY:{later}\n#EXTINF:4,\n1.ts\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:4,\n2.ts\n"
        );
        let out = rewritten_with(&text, &options);
        let segments: Vec<_> = out.lines().filter(|l| l.starts_with('<')).map(|l| l.contains("|AES-128|")).collect();
        assert_eq!(segments, [true, false, true], "{out}");
        assert_eq!(out.matches("#EXT-X-KEY").count(), 1, "{out}");
    }
}

/// Writes the byte ranges that go into URLs.
#[derive(Default)]
struct Ranges(Option<String>);

impl UriReplacer for Ranges {
    fn write_uri(&mut self, kind: UriRole, _: &str, _: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("<{kind:?} {}>", self.0.take().unwrap_or_default()).as_bytes());
    }

    fn segment_range(&mut self, range: String) {
        self.0 = Some(range);
    }
}

#[test]
fn byte_ranges_of_segments_that_change_their_length_go_into_urls() {
    let base = BaseUrl::parse("https://o.test/a/b.m3u8").unwrap();
    let options = HlsRewriteOptions { apply_keys: true, ..HlsRewriteOptions::default() };
    let of = |text: &str| String::from_utf8(rewrite(text.as_bytes(), &base, &options, &mut Ranges::default())).unwrap();
    let keyed = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n";
    for (line, becomes) in [
        ("#EXT-X-MAP:URI=\"i\",BYTERANGE=\"10@5\"", "#EXT-X-MAP:URI=\"<Segment 5-14>\""),
        ("#EXT-X-MAP:BYTERANGE=\"10@5\",URI=\"i\"", "#EXT-X-MAP:URI=\"<Segment 5-14>\""),
        ("#EXT-X-PART:DURATION=1,BYTERANGE=\"10\",URI=\"i\"", "#EXT-X-PART:DURATION=1,URI=\"<Segment 0-9>\""),
        ("#EXT-X-BYTERANGE:10@5\ns", "<Segment 5-14>"),
        ("#EXT-X-BYTERANGE:10@5\ns\n#EXT-X-BYTERANGE:4\ns", "<Segment 5-14>\n<Segment 15-18>"),
        ("#EXT-X-BYTERANGE:10@5\ns\nt", "<Segment 5-14>\n<Segment >"),
        ("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"s\",BYTERANGE-START=3\nt", "<Segment >"),
    ] {
        assert_eq!(
            of(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:4\n{keyed}{line}\n")),
            format!("#EXTM3U\n#EXT-X-TARGETDURATION:4\n{becomes}\n")
        );
    }
}

#[test]
fn variables_are_expanded_and_query_parameters_resolved() {
    let text = "#EXTM3U\n#EXT-X-DEFINE:NAME=\"h\",VALUE=\"//cdn.test\"\n#EXT-X-DEFINE:QUERYPARAM=\"q\"\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{$h}/{$q}.ts\n";
    let variables = PlaylistVariables::collect(text.as_bytes(), Some("q=7"), &[]).unwrap();
    let out = rewritten_with(text, &HlsRewriteOptions { variables, ..HlsRewriteOptions::default() });
    assert!(out.contains("\n<Segment|https://cdn.test/7.ts>\n"), "{out}");
    assert!(
        out.contains("#EXT-X-DEFINE:NAME=\"q\",VALUE=\"7\"\n") && out.contains("NAME=\"h\",VALUE=\"//cdn.test\""),
        "{out}"
    );
}

#[tokio::test]
async fn variable_expansion_is_bounded() {
    let base = BaseUrl::parse("https://o.test/a/b.m3u8").unwrap();
    let define =
        format!("#EXTM3U\n#EXT-X-DEFINE:NAME=\"v\",VALUE=\"{}\"\n#EXT-X-TARGETDURATION:4\n", "x".repeat(10_000));
    let grow = async |lines: &str, most: u64| {
        let text = format!("{define}{lines}");
        let options = HlsRewriteOptions {
            variables: PlaylistVariables::collect(text.as_bytes(), None, &[]).unwrap(),
            ..HlsRewriteOptions::default()
        };
        rewrite_within(text.as_bytes(), &base, &options, &mut Marks, most).await
    };
    let many = grow(&"{$v}\n".repeat(20_000), 1 << 20).await.unwrap_err().to_string();
    assert!(many.contains("1048576 bytes") && many.contains("media.rewritten_bytes"), "{many}");
    let long = grow(&"{$v}".repeat(1000), 1 << 30).await.unwrap_err().to_string();
    assert!(long.contains("16384 bytes"), "{long}");
    assert_eq!(
        grow("{$v}\n", 1 << 20).await.unwrap().len(),
        define.len() + 10_000 + "<Segment|https://o.test/a/>\n".len()
    );
}

#[test]
fn data_uri_keys_and_256_bit_keys_are_applied() {
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=AES-128,URI=\"data:;base64,AAAAAAAAAAAAAAAAAAAAAA==\"\n#EXTINF:4,\n1.ts\n\
        #EXT-X-KEY:METHOD=AES-256,URI=\"k\"\n#EXTINF:4,\n2.ts\n";
    let out = rewritten_with(text, &HlsRewriteOptions { apply_keys: true, ..HlsRewriteOptions::default() });
    assert!(!out.contains("EXT-X-KEY"), "{out}");
    assert!(out.contains("1.ts|AES-128|data:;base64,AAAAAAAAAAAAAAAAAAAAAA==|"), "{out}");
    assert!(out.contains("2.ts|AES-256|https://o.test/a/k|"), "{out}");
}

#[test]
fn preloads_are_routed_through_the_gateway() {
    let range = |class: &str, uri: &str| format!("#EXT-X-DATERANGE:ID=\"a\",CLASS=\"{class}\",X-URI=\"{uri}\"\n");
    let out = rewritten(&format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:4\n{}{}{}",
        range("com.apple.hls.preload", "v.m3u8"),
        range("com.apple.hls.preload", "p.mp4"),
        range("other", "o.mp4")
    ));
    assert!(out.contains("X-URI=\"<Playlist|https://o.test/a/v.m3u8>\""), "{out}");
    assert!(out.contains("X-URI=\"<Segment|https://o.test/a/p.mp4>\"") && out.contains("X-URI=\"o.mp4\""), "{out}");
}

#[test]
fn start_tag_is_inserted_after_the_first_line() {
    let out = rewritten_with(
        "#EXTM3U\r\n#EXTINF:4,\n",
        &HlsRewriteOptions { start: Some(-18.0), ..HlsRewriteOptions::default() },
    );
    assert_eq!(out, "#EXTM3U\r\n#EXT-X-START:TIME-OFFSET=-18,PRECISE=YES\n#EXTINF:4,\n");
}

#[test]
fn url_kind_is_derived_from_the_file_name() {
    for (address, is_one) in [
        ("a.m3u8", true),
        ("/x/A.M3U8?b=c", true),
        ("get.php?type=m3u_plus&x", true),
        ("a.m3u8.ts", false),
        ("a?b=.m3u8", false),
    ] {
        assert_eq!(is_playlist_address(address.as_bytes()), is_one, "{address}");
    }
    for (address, ext) in [("http://a/b.M4S?x.ts", "m4s"), ("http://a.mp4/b", "ts"), ("x.aac", "aac"), ("x.php", "ts")]
    {
        assert_eq!(extension(address), ext, "{address}");
    }
}

/// Writes every URL back unchanged.
struct Back;

impl UriReplacer for Back {
    fn write_uri(&mut self, _: UriRole, address: &str, _: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        out.extend_from_slice(address.as_bytes());
    }
}

/// Wraps every URL, and unwraps it again.
fn unwrapped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"\x01[") {
        let (before, behind) = rest.split_at(at);
        out.extend_from_slice(before);
        let end = memchr::memmem::find(behind, b"]\x01").expect("what is wrapped ends");
        out.extend_from_slice(&behind[2..end]);
        rest = &behind[end + 2..];
    }
    out.extend_from_slice(rest);
    out
}

struct Wrap;

impl UriReplacer for Wrap {
    fn write_uri(&mut self, _: UriRole, address: &str, _: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("\x01[{address}]\x01").as_bytes());
    }
}

fn line() -> impl Strategy<Value = String> {
    let address = "https?://[a-z]{1,8}(:[1-9][0-9]{1,3})?/[a-zA-Z0-9/._~%?=&;+,-]{0,30}";
    prop_oneof![
        address.prop_map(|a| a),
        address.prop_map(|a| format!("#EXT-X-KEY:METHOD=AES-128,URI=\"{a}\",IV=0x12")),
        address.prop_map(|a| format!("#EXT-X-MEDIA:TYPE=AUDIO,NAME=\"a,b\",URI=\"{a}\"")),
        address.prop_map(|a| format!("#EXTM3U url-tvg=\"{}\"", a.replace(',', ""))),
        Just("#EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"a,b\"".to_owned()),
        Just("#EXT-X-TARGETDURATION:6".to_owned()),
        Just("#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\"".to_owned()),
        "#EXTINF:-1 tvg-name=\"[^\"\\r\\n\\x01]{0,12}\",[^\\r\\n\\x01]{0,12}",
        "#[^\\r\\n\\x01\"=]{0,30}",
        Just(String::new()),
    ]
}

proptest! {
    #[test]
    fn rewriting_round_trips(lines in prop::collection::vec((line(), "\r?\n"), 0..40)) {
        let text: String = lines.iter().map(|(l, end)| format!("{l}{end}")).collect();
        let base = BaseUrl::parse("https://o.test/a/b.m3u8").unwrap();
        let options = HlsRewriteOptions::default();
        prop_assert_eq!(&rewrite(text.as_bytes(), &base, &options, &mut Back), text.as_bytes());
        prop_assert_eq!(&unwrapped(&rewrite(text.as_bytes(), &base, &options, &mut Wrap)), text.as_bytes());
    }

    #[test]
    fn arbitrary_bytes_never_panic(text in prop::collection::vec(any::<u8>(), 0..400)) {
        let base = BaseUrl::parse("https://o.test/a/b.m3u8").unwrap();
        rewrite(&text, &base, &HlsRewriteOptions { apply_keys: true, ..HlsRewriteOptions::default() }, &mut Wrap);
    }
}
