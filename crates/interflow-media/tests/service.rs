//! The endpoints of the media service, with an origin in memory.

#[path = "service/boundaries.rs"]
mod boundaries;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use aes::cipher::{Array, BlockModeEncrypt as _, KeyIvInit as _};
use interflow_media::config::{MediaCacheConfig, MediaConfig, MediaUser};
use interflow_media::relay::address::push_value;
use interflow_media::{MediaService, MediaSetup};
use interflow_types::{
    Authority, Body, ClientInfo, EntryKind, Flow, Headers, HttpClient, HttpVersion, LocalHandler, Method, Request,
    RequestHead, Response, ResponseFuture, Scheme, StatusCode, Timestamp, Url, percent,
};

/// An origin: resources by URL, and what was requested.
#[derive(Default)]
struct Origin {
    resources: HashMap<String, (String, Vec<u8>)>,
    /// Credentials that every request has to show.
    basic: Option<&'static str>,
    seen: Mutex<Vec<String>>,
}

impl Origin {
    fn with(mut self, url: &str, kind: &str, body: impl AsRef<[u8]>) -> Self {
        self.resources.insert(url.to_owned(), (kind.to_owned(), body.as_ref().to_vec()));
        self
    }
}

impl HttpClient for Origin {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let head = &request.head;
            let url = head.url.to_string();
            self.seen.lock().unwrap().push(url.clone());
            let field = |name| head.headers.get_str(name).unwrap_or_default().to_owned();
            if self.basic.is_some_and(|basic| field("authorization") != basic) {
                return Ok(Response::full(StatusCode::UNAUTHORIZED, "text/plain", "who?"));
            }
            if url.ends_with("/gate") && !field("cookie").contains("pass=1") {
                let mut response = Response::full(StatusCode::FOUND, "text/plain", "");
                let _ = response.head.headers.append("Location", "/gate");
                let _ = response.head.headers.append("Set-Cookie", "pass=1; Path=/");
                return Ok(response);
            }
            if url.contains("/enter/") {
                let mut response = Response::full(StatusCode::FOUND, "text/plain", "");
                let _ = response.head.headers.append("Location", url.replace("/enter/", "/club/"));
                let _ = response.head.headers.append("Set-Cookie", "sid=12\"3; Path=/club; HttpOnly");
                return Ok(response);
            }
            if url.contains("/club/") && field("cookie") != "sid=12\"3" {
                return Ok(Response::full(StatusCode::FORBIDDEN, "text/plain", "the cookie is missing"));
            }
            if !url.contains("/club/") && field("cookie").contains("sid") {
                return Ok(Response::full(StatusCode::BAD_REQUEST, "text/plain", "the cookie of another path or host"));
            }
            let Some((kind, body)) = self.resources.get(&url) else {
                return Ok(Response::full(StatusCode::NOT_FOUND, "text/plain", ""));
            };
            let range = field("range");
            let Some((first, last)) = range.strip_prefix("bytes=").and_then(|r| r.split_once('-')) else {
                let mut response = Response::full(StatusCode::OK, kind, body.clone());
                if url.contains("/sets/") {
                    let _ = response.head.headers.append("Set-Cookie", "sid=12\"3; Path=/club");
                }
                return Ok(response);
            };
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap_or(body.len() - 1));
            let last = last.min(body.len() - 1);
            let mut response = Response::full(StatusCode::PARTIAL_CONTENT, kind, body[first..=last].to_vec());
            let _ = response.head.headers.append("Content-Range", format!("bytes {first}-{last}/{}", body.len()));
            Ok(response)
        })
    }
}

struct Media {
    service: Arc<MediaService>,
    origin: Arc<Origin>,
}

struct Answer {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The lines of a playlist that are URLs.
    fn urls(&self) -> Vec<String> {
        self.text().lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(str::to_owned).collect()
    }
}

fn service(origin: &Arc<Origin>, config: MediaConfig) -> Result<Arc<MediaService>, String> {
    let egress = Arc::clone(origin) as Arc<dyn HttpClient>;
    let key_egress = Arc::clone(&egress);
    MediaService::new(MediaSetup { config, secret: vec![7; 32], egress, key_egress, folder: None })
}

impl Media {
    fn new(origin: Origin) -> Self {
        Self::with_config(origin, MediaConfig::default())
    }

    fn with_config(origin: Origin, config: MediaConfig) -> Self {
        let origin = Arc::new(origin);
        Self { service: service(&origin, config).unwrap(), origin }
    }

    async fn send(&self, method: Method, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let client = ClientInfo {
            connection: 1,
            peer: ([127, 0, 0, 1], 50_000).into(),
            local: ([127, 0, 0, 1], 7071).into(),
            listener: "gateway".into(),
            accepted: Timestamp::from_micros(0),
            process: None,
            container: None,
        };
        let authority: Authority = "127.0.0.1:7071".parse().unwrap();
        let mut flow = Flow::begin(client.into(), EntryKind::Gateway, Scheme::Http, authority.clone());
        let url = Url { scheme: Scheme::Http, authority, path: path.to_owned().into() };
        let headers = fields.iter().copied().collect();
        let head = RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None };
        let request = Request { head, body: Body::Full(body.as_bytes().to_vec().into()) };
        let response = match self.service.serve(&mut flow, request).await {
            Ok(response) => response,
            Err(e) => return Answer { status: 502, headers: Headers::new(), body: e.to_string().into_bytes() },
        };
        let status = response.head.status.as_u16();
        match response.body.collect(1 << 20).await {
            Ok((body, _)) => Answer { status, headers: response.head.headers, body: body.to_vec() },
            Err(e) => Answer { status: 599, headers: Headers::new(), body: e.to_string().into_bytes() },
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    /// A resource of a playlist.
    async fn follow(&self, url: &str) -> Answer {
        self.get(url.strip_prefix("http://127.0.0.1:7071").unwrap_or_else(|| panic!("past the gateway: {url}"))).await
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.origin.seen.lock().unwrap())
    }
}

fn path(endpoint: &str, destination: &str, more: &str) -> String {
    let mut out = format!("/media{endpoint}?d=").into_bytes();
    push_value(destination.as_bytes(), &mut out);
    format!("{}{more}", String::from_utf8(out).unwrap())
}

const PLAYLIST: &str = "application/vnd.apple.mpegurl";
const KEY: [u8; 16] = [9; 16];

/// AES-128 with the media sequence number as IV.
fn sealed(data: &[u8], sequence: u128) -> Vec<u8> {
    let n = 16 - data.len() % 16;
    let mut data = [data, &vec![n as u8; n]].concat();
    let (blocks, _) = data.as_chunks_mut::<16>();
    cbc::Encryptor::<aes::Aes128>::new(&Array(KEY), &Array(sequence.to_be_bytes()))
        .encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
    data
}

#[tokio::test]
async fn byte_ranges_of_decrypted_segments_become_resources_of_their_own() {
    let clear = [vec![1_u8; 1000], vec![2_u8; 500], vec![3_u8; 700]];
    let parts: Vec<_> = clear.iter().zip(0..).map(|(data, n)| sealed(data, n)).collect();
    let (first, second, third) = (parts[0].len(), parts[1].len(), parts[2].len());
    let text = format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:4,\n#EXT-X-BYTERANGE:{first}@0\nall.ts\n\
         #EXTINF:4,\n#EXT-X-BYTERANGE:{second}\nall.ts\n#EXT-X-BYTERANGE:{third}@{}\n#EXTINF:4,\nall.ts\n#EXT-X-ENDLIST\n",
        first + second
    );
    let origin = Origin::default().with("http://o.test/a.m3u8", PLAYLIST, text).with("http://o.test/k", "", KEY).with(
        "http://o.test/all.ts",
        "video/mp2t",
        parts.concat(),
    );
    let media = Media::new(origin);
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/a.m3u8", "&keys=apply")).await;
    assert!(list.status == 200 && !list.text().contains("BYTERANGE"), "{}", list.text());
    let urls = list.urls();
    assert_eq!(urls.len(), 3);
    for (url, clear) in urls.iter().zip(&clear) {
        let segment = media.follow(url).await;
        assert_eq!((segment.status, segment.headers.get("content-range")), (200, None));
        assert!(segment.body == *clear, "{url}");
        // A range of it is not a place at which decryption can begin.
        let path = url.strip_prefix("http://127.0.0.1:7071").unwrap();
        let ranged = media.send(Method::GET, path, &[("Range", "bytes=16-31")], "").await;
        assert!(ranged.status == 200 && ranged.body == *clear);
    }
    let relayed = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/a.m3u8", "")).await;
    assert_eq!(relayed.text().matches("#EXT-X-BYTERANGE").count(), 3, "the player decrypts by itself");
}

#[tokio::test]
async fn media_with_the_name_of_a_picture_gets_the_name_of_media() {
    let origin = Origin::default()
        .with(
            "http://o.test/a.m3u8",
            PLAYLIST,
            "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nt.png\n#EXTINF:4,\nt.jpg?x=1\n",
        )
        .with(
            "http://o.test/b.m3u8",
            PLAYLIST,
            "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-IMAGES-ONLY\n#EXTINF:4,\nt.jpg\n",
        );
    let media = Media::new(origin);
    for (list, transformer, name) in
        [("a", "&transformer=ts_stream", "/segment.ts?"), ("a", "", "/segment.ts?"), ("b", "", "/segment.jpg?")]
    {
        let list =
            media.get(&path("/proxy/hls/manifest.m3u8", &format!("http://o.test/{list}.m3u8"), transformer)).await;
        assert!(list.urls().iter().all(|url| url.contains(name)), "{}", list.text());
    }
}

const CENC: &[u8] = include_bytes!("../../../fuzz/corpus/bmff/cenc");
const CENC_KEY: &str = "&key_id=a1b2c3d4e5f60718293a4b5c6d7e8f90&key=00112233445566778899aabbccddeeff";

fn cenc_parts() -> (&'static [u8], &'static [u8]) {
    CENC.split_at(CENC.windows(4).position(|w| w == b"moof").unwrap() - 4)
}

#[tokio::test]
async fn own_keys_decrypt_samples_whatever_key_systems_the_playlist_names() {
    let (init, fragments) = cenc_parts();
    let keys = "#EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"data:text/plain;base64,AAAA\",KEYFORMAT=\"urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed\"\n\
                #EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n\
                #EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"license\",KEYFORMAT=\"identity\"\n";
    let text = |keys: &str| {
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:4\n{keys}#EXT-X-MAP:URI=\"i.mp4\"\n#EXTINF:4,\ns.m4s\n#EXT-X-ENDLIST\n")
    };
    let origin = Origin::default()
        .with("http://o.test/a.m3u8", PLAYLIST, text(keys))
        .with("http://o.test/untagged.m3u8", PLAYLIST, text(""))
        .with(
            "http://o.test/master.m3u8",
            PLAYLIST,
            format!("#EXTM3U\n{}#EXT-X-STREAM-INF:BANDWIDTH=1\na.m3u8\n", keys.replace("X-KEY", "X-SESSION-KEY")),
        )
        .with(
            "http://o.test/ts.m3u8",
            PLAYLIST,
            "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXTINF:4,\ns.ts\n",
        )
        .with("http://o.test/i.mp4", "video/mp4", init)
        .with("http://o.test/s.m4s", "video/mp4", fragments);
    let media = Media::new(origin);
    let dash =
        format!("/media/proxy/mpd/segment.mp4?segment_url=http://o.test/s.m4s&init_url=http://o.test/i.mp4{CENC_KEY}");
    let clear = media.get(&dash).await;
    assert!(clear.status == 200 && clear.body != fragments);
    let master = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/master.m3u8", CENC_KEY)).await;
    assert!(!master.text().contains("KEY:"), "{}", master.text());
    for list in [master.urls()[0].clone(), path("/proxy/hls/manifest.m3u8", "http://o.test/untagged.m3u8", CENC_KEY)] {
        let list = media.get(list.strip_prefix("http://127.0.0.1:7071").unwrap_or(&list)).await;
        assert!(list.status == 200 && !list.text().contains("#EXT-X-KEY"), "{}", list.text());
        let text = list.text();
        let map = text.split("URI=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(!media.follow(map).await.body.windows(4).any(|w| w == b"sinf"), "it declares a clear track");
        let segment = media.follow(&list.urls()[0]).await;
        assert!(segment.status == 200 && segment.body == clear.body, "{}", segment.status);
    }
    assert!(media.seen().iter().all(|url| !url.contains("license")), "the keys are there");
    let ts = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/ts.m3u8", CENC_KEY)).await;
    assert!(ts.status == 422 && ts.text().contains("MPEG-TS"), "{} {}", ts.status, ts.text());
    let wrong = "&key_id=ffffffffffffffffffffffffffffffff&key=00112233445566778899aabbccddeeff";
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/a.m3u8", wrong)).await;
    let segment = media.follow(&list.urls()[0]).await;
    assert!(segment.status == 422 && segment.text().contains("a1b2c3d4"), "{}", segment.text());
}

#[tokio::test]
async fn credentials_of_the_destination_are_inherited_by_its_relative_resources() {
    let mpd = "<MPD mediaPresentationDuration='PT4S'><Period><AdaptationSet mimeType='video/mp4'><SegmentTemplate media='s$Number$.m4s' duration='4'/><Representation id='v' bandwidth='5'/></AdaptationSet></Period></MPD>";
    let origin = Origin { basic: Some("Basic dTpwQHc="), ..Origin::default() }
        .with(
            "http://o.test/a.m3u8",
            PLAYLIST,
            "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\ns.ts\n#EXTINF:4,\nhttp://cdn.test/s.ts\n",
        )
        .with("http://o.test/s.ts", "video/mp2t", "segment")
        .with("http://cdn.test/s.ts", "video/mp2t", "segment")
        .with("http://o.test/a.mpd", "", mpd)
        .with("http://o.test/s1.m4s", "video/mp4", "segment");
    let media = Media::new(origin);
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://u:p%40w@o.test/a.m3u8", "")).await;
    let urls = list.urls();
    assert_eq!(media.follow(&urls[0]).await.status, 200, "{}", list.text());
    assert_eq!(media.follow(&urls[1]).await.status, 401, "another origin does not get them");
    let direct = media.get(&path("/proxy/hls/manifest.m3u8", "http://u:p%40w@o.test/a.m3u8", "&segments=direct")).await;
    assert_eq!(direct.urls()[0], "http://o.test/s.ts", "a player does not get them");
    let master = media.get(&path("/proxy/mpd/manifest.m3u8", "http://u:p%40w@o.test/a.mpd", "")).await;
    let track = media.follow(&master.urls()[0]).await;
    assert_eq!(media.follow(&track.urls()[0]).await.text(), "segment", "{}", track.text());
}

#[tokio::test]
async fn escapes_in_urls_reach_the_origin_as_they_were() {
    let mpd = "<MPD mediaPresentationDuration='PT4S'><Period><BaseURL>v%20o/</BaseURL><AdaptationSet mimeType='video/mp4'>\
               <SegmentTemplate media='$RepresentationID$/s%20$Number$.m4s?sig=a%2Fb%3D&amp;e=1' duration='4'/>\
               <Representation id='r%2F1' bandwidth='5'/></AdaptationSet></Period></MPD>";
    let list =
        "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\ns%20one.ts?sig=a%2Fb%3D&x=%25\n#EXTINF:4,\n/r\u{e9}/s two.ts\n";
    let segments = [
        "http://o.test/d%20ir/s%20one.ts?sig=a%2Fb%3D&x=%25",
        "http://o.test/r%C3%A9/s%20two.ts",
        "http://o.test/d%20ir/v%20o/r%2F1/s%201.m4s?sig=a%2Fb%3D&e=1",
    ];
    let (hls, dash) = ("http://o.test/d%20ir/a.m3u8?t=%2B", "http://o.test/d%20ir/a.mpd");
    let origin = Origin::default().with(hls, PLAYLIST, list).with(dash, "", mpd);
    let media = Media::new(segments.iter().fold(origin, |origin, url| origin.with(url, "video/mp4", "segment")));
    // Links may be escaped once more.
    for [hls, dash] in [[hls.to_owned(), dash.to_owned()], [percent::encoded(hls), percent::encoded(dash)]] {
        let mut urls = media.get(&path("/proxy/hls/manifest.m3u8", &hls, "")).await.urls();
        let track = media.get(&path("/proxy/mpd/manifest.m3u8", &dash, "")).await.urls().remove(0);
        urls.extend(media.follow(&track).await.urls());
        assert_eq!(urls.len(), 3, "{urls:?}");
        for url in urls {
            assert_eq!(media.follow(&url).await.text(), "segment", "{url}: {:?}", media.seen());
        }
    }
}

#[tokio::test]
async fn cookies_of_a_redirect_are_sent_to_its_target() {
    let media = Media::new(Origin::default().with("http://o.test/gate", "video/mp2t", "in"));
    assert_eq!(media.get(&path("/proxy/stream", "http://o.test/gate", "")).await.text(), "in");
}

#[tokio::test]
async fn cookies_of_a_playlist_are_sent_for_its_resources_that_they_belong_to() {
    let mpd = "<MPD mediaPresentationDuration='PT4S'><Period><AdaptationSet mimeType='video/mp4'><SegmentTemplate initialization='/club/i.mp4' media='/club/s$Number$.m4s' duration='4'/><Representation id='v' bandwidth='5'/></AdaptationSet></Period></MPD>";
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=AES-128,URI=\"/club/k\"\n#EXTINF:4,\n/club/s.ts\n#EXTINF:4,\n/open/s.ts\n#EXTINF:4,\nhttp://cdn.test/s.ts\n";
    let variants = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n/club/a.m3u8\n";
    let origin = Origin::default()
        .with("http://o.test/club/m.m3u8", PLAYLIST, variants)
        .with("http://o.test/club/a.m3u8", PLAYLIST, list)
        .with("http://o.test/sets/a.m3u8", PLAYLIST, list)
        .with("http://o.test/club/a.mpd", "", mpd)
        .with("http://o.test/sets/a.mpd", "", mpd)
        .with("http://o.test/club/k", "", [7; 16])
        .with("http://o.test/club/i.mp4", "video/mp4", "section")
        .with("http://o.test/club/s1.m4s", "video/mp4", "segment")
        .with("http://o.test/club/s.ts", "video/mp2t", "segment")
        .with("http://o.test/open/s.ts", "video/mp2t", "segment")
        .with("http://cdn.test/s.ts", "video/mp2t", "segment");
    let media = Media::new(origin);
    let quoted = |text: &str| text.split("URI=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    for from in ["enter/m", "enter/a", "sets/a"] {
        let mut list = media.get(&path("/proxy/hls/manifest.m3u8", &format!("http://o.test/{from}.m3u8"), "")).await;
        if from == "enter/m" {
            list = media.follow(&list.urls()[0]).await;
        }
        assert!(!list.text().contains("sid"), "a player does not get them: {}", list.text());
        assert_eq!(media.follow(&quoted(&list.text())).await.body, [7; 16], "{from}");
        for url in list.urls() {
            let segment = media.follow(&url).await;
            assert_eq!((segment.status, segment.text().as_str()), (200, "segment"), "{from}: {url}");
        }
        let inline = path("/proxy/hls/manifest.m3u8", &format!("http://o.test/{from}.m3u8"), "&keys=inline");
        let list = media.get(&inline).await.text();
        assert!(from == "enter/m" || list.contains("URI=\"data:"), "{from}: {list}");
    }
    for from in ["enter", "sets"] {
        let master = media.get(&path("/proxy/mpd/manifest.m3u8", &format!("http://o.test/{from}/a.mpd"), "")).await;
        let track = media.follow(&master.urls()[0]).await;
        assert_eq!(media.follow(&quoted(&track.text())).await.text(), "section", "{from}");
        assert_eq!(media.follow(&track.urls()[0]).await.text(), "segment", "{from}");
        let own = media.get(&path("/proxy/mpd/manifest.mpd", &format!("http://o.test/{from}/a.mpd"), "")).await.text();
        let init = own.split("initialization=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
        assert_eq!(media.follow(&init).await.text(), "section", "{from}: {own}");
    }
}

#[tokio::test]
async fn what_is_no_playlist_is_an_error_with_its_beginning() {
    let ts = [&[0x47_u8][..], &[0; 187]].concat();
    let utf16: Vec<u8> = "\u{feff}#EXTM3U\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let origin = Origin::default()
        .with("http://o.test/json.m3u8", PLAYLIST, "{\"error\": \"geo\"}")
        .with("http://o.test/text.m3u8", "text/plain", "Forbidden in your region")
        .with("http://o.test/utf16.m3u8", PLAYLIST, utf16)
        .with("http://o.test/empty.m3u8", PLAYLIST, "")
        .with("http://o.test/media.m3u8", PLAYLIST, &ts)
        .with("http://o.test/plain.m3u8", "text/plain", "http://o.test/1.ts\n")
        .with(
            "http://o.test/cr.m3u8",
            PLAYLIST,
            "#EXTM3U\r#EXT-X-TARGETDURATION:4\r#EXTINF:4,\r1.ts\r#EXTINF:4,\r2.ts\r",
        )
        .with("http://o.test/title.m3u8", PLAYLIST, "#EXTM3U\r\n#EXT-X-TARGETDURATION:4\r\n#EXTINF:4,a\rb\r\n1.ts\r\n");
    let media = Media::new(origin);
    for (name, says) in [("json", "geo"), ("text", "Forbidden in your region"), ("utf16", "UTF-8"), ("empty", "empty")]
    {
        let answer = media.get(&path("/proxy/hls/manifest.m3u8", &format!("http://o.test/{name}.m3u8"), "")).await;
        assert!(answer.status == 502 && answer.text().contains(says), "{name}: {} {}", answer.status, answer.text());
    }
    assert_eq!(media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/media.m3u8", "")).await.body, ts);
    let plain = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/plain.m3u8", "")).await;
    assert!(plain.urls()[0].contains("/proxy/stream?"), "{}", plain.text());
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/cr.m3u8", "")).await;
    let urls = list.urls();
    assert!(urls.len() == 2 && urls.iter().all(|url| url.contains("/proxy/hls/segment.ts?")), "{}", list.text());
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/title.m3u8", "")).await.text();
    assert!(list.contains("#EXTINF:4,a\rb\r\nhttp"), "a carriage return in a title is no line end: {list}");
}

#[tokio::test]
async fn archives_of_channels_lead_through_the_gateway() {
    let list = "#EXTM3U\n\
        #EXTINF:-1 tvg-id=\"a\" catchup=\"default\" catchup-source=\"http://o.test/a/{utc}/${duration}.ts?t=${start}\",A\n#EXTVLCOPT:http-user-agent=Box\nhttp://o.test/a.ts\n\
        #EXTINF:-1 catchup=\"append\" catchup-source=\"?utc={utc}\",B\nhttp://o.test/b.m3u8\n\
        #EXTINF:-1 catchup=\"shift\" catchup-days=\"3\",C\nhttp://o.test/c.ts\n\
        #EXTINF:-1 catchup='append' catchup-source='?utc={utc}',S\nhttp://o.test/s.m3u8\n\
        #EXTINF:-1 catchup=append catchup-source=?utc={utc},U\nhttp://o.test/u.m3u8\n\
        #EXTINF:-1 catchup=\"xc\",D\nhttp://o.test/live/u/p/4.ts\n\
        #EXTINF:-1,E\nhttp://o.test/e.ts\n";
    let origin = Origin::default().with("http://o.test/l.m3u", "audio/x-mpegurl", list);
    let config = MediaConfig { api_password: Some("hunter22".into()), ..MediaConfig::default() };
    let media = Media::with_config(origin, config);
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://o.test/l.m3u", "&api_password=hunter22")).await;
    let text = list.text();
    assert!(!text.contains("append") && text.matches("catchup=\"default\"").count() == 4, "{text}");
    let single = text.lines().find(|line| line.ends_with(",S")).unwrap();
    assert!(single.starts_with("#EXTINF:-1 catchup='default' catchup-source='http://127.0.0.1:7071/"), "{single}");
    assert!(single.matches(" catchup").count() == 2 && single.ends_with("&_c0={utc}',S"), "{single}");
    assert!(
        text.contains("catchup=\"xc\",D\n")
            && text.contains(",E\n")
            && text.contains("tvg-id=\"a\"")
            && text.contains("catchup-days=\"3\""),
        "{text}"
    );
    let sources: Vec<_> = text.split("catchup-source=\"").skip(1).map(|s| s.split('"').next().unwrap()).collect();
    media.seen();
    for (source, address) in sources.iter().zip([
        "http://o.test/a/1700/60.ts?t=1700",
        "http://o.test/b.m3u8?utc=1700",
        "http://o.test/c.ts?utc=1700&lutc=1800",
        "http://o.test/u.m3u8?utc=1700",
    ]) {
        let mut filled = (*source).to_owned();
        for (name, value) in [("{utc}", "1700"), ("${start}", "1700"), ("${duration}", "60"), ("{lutc}", "1800")] {
            filled = filled.replace(name, value);
        }
        media.follow(&filled).await;
        assert_eq!(media.seen(), [address], "{source}");
        for bad in ["1700", "..", "1/../../x", "1%2F..%2Fx"] {
            let changed = media.follow(&source.replacen("=$", "=", 1).replacen("{", bad, 1)).await;
            assert!(changed.status == 400 && media.seen().is_empty(), "{bad}: {}", changed.status);
        }
    }
}

#[tokio::test]
async fn links_are_made_with_the_password_in_any_place() {
    let config = MediaConfig { api_password: Some("hunter22".into()), ..MediaConfig::default() };
    let media = Media::with_config(Origin::default(), config);
    let link = "\"endpoint\":\"/proxy/stream\",\"destination_url\":\"http://o.test/x\"";
    for (body, status) in [
        (format!("{{\"api_password\":\"hunter22\",\"urls\":[{{{link}}}]}}"), 200),
        (format!("{{\"urls\":[{{{link}}},{{{link},\"query_params\":{{\"api_password\":\"hunter22\"}}}}]}}"), 200),
        (format!("{{\"urls\":[{{{link},\"api_password\":\"hunter22\"}}]}}"), 200),
        (format!("{{\"urls\":[{{{link},\"query_params\":{{\"api_password\":\"wrong\"}}}}]}}"), 403),
        (format!("{{\"urls\":[{{{link}}}]}}"), 403),
    ] {
        let fields = [("Content-Type", "application/json")];
        let answer = media.send(Method::POST, "/media/generate_urls", &fields, &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(!answer.text().contains("hunter22"), "{}", answer.text());
    }
}

#[tokio::test]
async fn numbers_of_link_requests_may_be_strings() {
    let media = Media::new(Origin::default());
    for (expiration, status) in
        [("60", 200), ("\"60\"", 200), ("null", 200), ("\"soon\"", 400), ("-1", 400), ("\"\"", 400)]
    {
        let body = format!("{{\"destination_url\":\"http://o.test/x\",\"expiration\":{expiration}}}");
        for (path, body) in [("generate_url", body.clone()), ("generate_urls", format!("{{\"urls\":[{body}]}}"))] {
            let answer = media.send(Method::POST, &format!("/media/{path}"), &[], &body).await;
            assert_eq!(answer.status, status, "{body}: {}", answer.text());
            let is_bound = answer.text().contains("/_token_");
            assert_eq!(is_bound, status == 200 && expiration != "null", "{body}: {}", answer.text());
            assert!(status == 200 || answer.text().contains("expiration"), "{}", answer.text());
        }
    }
}

/// The value of the first attribute `URI`.
fn uri_in(text: &str) -> &str {
    text.split("URI=\"").nth(1).unwrap_or_else(|| panic!("no URI: {text}")).split('"').next().unwrap()
}

#[tokio::test]
async fn initialization_section_is_found_in_files_of_which_the_manifest_says_nothing() {
    let (front, fragments) = cenc_parts();
    let (section, _) = front.split_at(front.windows(4).position(|w| w == b"sidx").unwrap() - 4);
    let mpd = |inside: &str| {
        format!(
            "<MPD mediaPresentationDuration='PT4S'><Period><AdaptationSet mimeType='video/mp4'>\
             <Representation id='v' bandwidth='5'>{inside}</Representation></AdaptationSet></Period></MPD>"
        )
    };
    let origin = Origin::default()
        .with("http://o.test/bare.mpd", "", mpd("<BaseURL>plain.mp4</BaseURL>"))
        .with("http://o.test/bare-index.mpd", "", mpd("<BaseURL>indexed.mp4</BaseURL>"))
        .with("http://o.test/empty.mpd", "", mpd("<BaseURL>plain.mp4</BaseURL><SegmentBase/>"))
        .with("http://o.test/empty-index.mpd", "", mpd("<BaseURL>indexed.mp4</BaseURL><SegmentBase/>"))
        .with("http://o.test/plain.mp4", "video/mp4", [section, fragments].concat())
        .with("http://o.test/indexed.mp4", "video/mp4", CENC);
    let media = Media::new(origin);
    for name in ["bare", "bare-index", "empty", "empty-index"] {
        let address = format!("http://o.test/{name}.mpd");
        let master = media.get(&path("/proxy/mpd/manifest.m3u8", &address, CENC_KEY)).await;
        let list = media.follow(&master.urls()[0]).await;
        let init = media.follow(uri_in(&list.text())).await;
        assert_eq!((init.status, init.body.len()), (200, section.len()), "{name}: {}", list.text());
        assert!(!init.body.windows(4).any(|w| w == b"encv"), "{name}: it declares a clear track");
        let segment = media.follow(&list.urls()[0]).await;
        let length = if name.ends_with("-index") { fragments.len() } else { section.len() + fragments.len() };
        assert_eq!((segment.status, segment.body.len()), (200, length), "{name}: {}", segment.text());
        let master =
            media.get(&path("/proxy/mpd/manifest.m3u8", &address, &format!("{CENC_KEY}&remux_to_ts=true"))).await;
        let list = media.follow(&master.urls()[0]).await;
        let segment = media.follow(&list.urls()[0]).await;
        assert!(segment.status == 200 && segment.body.starts_with(&[0x47]), "{name}: {}", segment.text());
    }
}

#[tokio::test]
async fn encrypted_dash_without_a_key_is_an_error_with_its_id_for_hls_players() {
    let (init, fragments) = cenc_parts();
    let kid = "a1b2c3d4e5f60718293a4b5c6d7e8f90";
    let protection = "<ContentProtection schemeIdUri='urn:mpeg:dash:mp4protection:2011' value='cenc' xmlns:c='urn:mpeg:cenc:2013' c:default_KID='A1B2C3D4-E5F6-0718-293A-4B5C6D7E8F90'/>";
    let mpd = |protection: &str, init: &str| {
        format!(
            "<MPD mediaPresentationDuration='PT4S'><Period><AdaptationSet mimeType='video/mp4'>{protection}\
             <SegmentTemplate {init} media='s$Number$.m4s' duration='4'/><Representation id='v' bandwidth='5'/>\
             </AdaptationSet></Period></MPD>"
        )
    };
    let mut clear = init.to_vec();
    let at = clear.windows(4).position(|w| w == b"encv").unwrap();
    clear[at..at + 4].copy_from_slice(b"avc1");
    let origin = Origin::default()
        .with("http://o.test/said.mpd", "", mpd(protection, "initialization='i.mp4'"))
        .with("http://o.test/unread.mpd", "", mpd(protection, "initialization='missing.mp4'"))
        .with("http://o.test/unsaid.mpd", "", mpd("", "initialization='i.mp4'"))
        .with("http://o.test/clear.mpd", "", mpd(protection, "initialization='clear.mp4'"))
        .with("http://o.test/i.mp4", "video/mp4", init)
        .with("http://o.test/clear.mp4", "video/mp4", clear)
        .with("http://o.test/s1.m4s", "video/mp4", fragments);
    let media = Media::new(origin);
    for more in ["", "&remux_to_ts=true"] {
        for (name, of_master) in [("said", 422), ("unread", 422), ("unsaid", 200)] {
            let master = media.get(&path("/proxy/mpd/manifest.m3u8", &format!("http://o.test/{name}.mpd"), more)).await;
            assert_eq!(master.status, of_master, "{name}: {}", master.text());
            let refused = if of_master == 200 { media.follow(&master.urls()[0]).await } else { master };
            assert!(refused.status == 422 && refused.text().contains(kid), "{name}: {}", refused.text());
        }
    }
    let track = "&profile_id=n0_v_5&kind=video";
    let list = media.get(&path("/proxy/mpd/playlist.m3u8", "http://o.test/unread.mpd", track)).await;
    assert!(list.status == 422 && list.text().contains(kid), "{}", list.text());
    for (name, key) in [("clear", ""), ("said", CENC_KEY)] {
        let master = media.get(&path("/proxy/mpd/manifest.m3u8", &format!("http://o.test/{name}.mpd"), key)).await;
        let list = media.follow(&master.urls()[0]).await;
        assert_eq!(media.follow(&list.urls()[0]).await.status, 200, "{name}: {}", list.text());
    }
    let own = media.get(&path("/proxy/mpd/manifest.mpd", "http://o.test/said.mpd", "")).await;
    assert!(
        own.status == 200 && own.text().contains("default_KID"),
        "a DASH player has its key system: {}",
        own.text()
    );
}

fn boxed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&(content.len() as u32 + 8).to_be_bytes()[..], kind, &content].concat()
}

fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// The initialization section of a subtitle track in milliseconds, and a segment from second 4 on: a cue of two
/// seconds, a gap of one, and a cue of one.
fn subtitles() -> (Vec<u8>, Vec<u8>) {
    let entry = boxed(b"wvtt", &[&[0; 6], &[0, 1], &boxed(b"vttC", &[b"WEBVTT"])]);
    let empty = |kind| boxed(kind, &[&words(&[0, 0])]);
    let stbl = boxed(
        b"stbl",
        &[
            &boxed(b"stsd", &[&words(&[0, 1]), &entry]),
            &empty(b"stts"),
            &empty(b"stsc"),
            &boxed(b"stsz", &[&words(&[0, 0, 0])]),
            &empty(b"stco"),
        ],
    );
    let mdia = boxed(
        b"mdia",
        &[
            &boxed(b"mdhd", &[&words(&[0, 0, 0, 1000, 0, 0x55c4_0000])]),
            &boxed(b"hdlr", &[&words(&[0, 0]), b"text", &words(&[0, 0, 0]), b"\0"]),
            &boxed(b"minf", &[&stbl]),
        ],
    );
    let tkhd = boxed(b"tkhd", &[&words(&[7, 0, 0, 1, 0, 0]), &[0; 60]]);
    let mvhd = boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]]);
    let trex = boxed(b"trex", &[&words(&[0, 1, 1, 0, 0, 0])]);
    let moov = boxed(b"moov", &[&mvhd, &boxed(b"trak", &[&tkhd, &mdia]), &boxed(b"mvex", &[&trex])]);
    let cue = |text: &[u8]| {
        boxed(b"vttc", &[&boxed(b"iden", &[b"7"]), &boxed(b"sttg", &[b"line:90%"]), &boxed(b"payl", &[text])])
    };
    let samples = [cue(b"Hello\n\nthere"), boxed(b"vtte", &[]), cue(b"<i>again</i>")];
    let moof = |data: u32| {
        let mut trun = words(&[0x0301, 3, data]);
        for (sample, duration) in samples.iter().zip([2000, 1000, 1000]) {
            trun.extend(words(&[duration, sample.len() as u32]));
        }
        let traf = boxed(
            b"traf",
            &[
                &boxed(b"tfhd", &[&words(&[0x02_0000, 1])]),
                &boxed(b"tfdt", &[&words(&[0, 4000])]),
                &boxed(b"trun", &[&trun]),
            ],
        );
        boxed(b"moof", &[&boxed(b"mfhd", &[&words(&[0, 1])]), &traf])
    };
    let length = moof(0).len() as u32 + 8;
    (moov, [moof(length), boxed(b"mdat", &[&samples.concat()])].concat())
}

#[tokio::test]
async fn cues_in_mp4_become_webvtt_for_hls_players() {
    let (init, segment) = subtitles();
    let mpd = "<MPD mediaPresentationDuration='PT8S'><Period>\
        <AdaptationSet mimeType='video/mp4' codecs='avc1.64001f'><SegmentTemplate media='v$Number$.m4s' initialization='v.mp4' duration='4'/><Representation id='v' bandwidth='5'/></AdaptationSet>\
        <AdaptationSet mimeType='application/mp4' codecs='wvtt' lang='en'><SegmentTemplate media='t$Number$.m4s' initialization='t.mp4' duration='4'/><Representation id='t' bandwidth='1'/></AdaptationSet>\
        <AdaptationSet mimeType='application/mp4' codecs='stpp' lang='fr'><SegmentTemplate media='x$Number$.m4s' duration='4'/><Representation id='x' bandwidth='1'/></AdaptationSet></Period></MPD>";
    let origin = Origin::default().with("http://o.test/a.mpd", "", mpd).with("http://o.test/t.mp4", "", init).with(
        "http://o.test/t2.m4s",
        "",
        &segment,
    );
    let media = Media::new(origin);
    let rendition = |text: &str| {
        let line = text.lines().find(|l| l.contains("TYPE=SUBTITLES"))?;
        Some(line.split("URI=\"").nth(1)?.split('"').next()?.to_owned())
    };
    let master = media.get(&path("/proxy/mpd/manifest.m3u8", "http://o.test/a.mpd", "")).await.text();
    assert_eq!(master.matches("TYPE=SUBTITLES").count(), 1, "{master}");
    let list = media.follow(&rendition(&master).unwrap()).await;
    assert!(!list.text().contains("EXT-X-MAP") && list.urls()[1].contains("/segment.vtt?"), "{}", list.text());
    let text = media.follow(&list.urls()[1]).await;
    assert_eq!(
        text.text(),
        "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n\n\
         7\n00:00:04.000 --> 00:00:06.000 line:90%\nHello\nthere\n\n\
         7\n00:00:07.000 --> 00:00:08.000 line:90%\n<i>again</i>\n"
    );
    assert_eq!(text.headers.get_str("content-type"), Some("text/vtt"));
    // Pictures that are remuxed begin later.
    let remuxed = path("/proxy/mpd/manifest.m3u8", "http://o.test/a.mpd", "&remux_to_ts=1");
    let list = media.follow(&rendition(&media.get(&remuxed).await.text()).unwrap()).await;
    let text = media.follow(&list.urls()[1]).await.text();
    assert!(text.starts_with("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:126000,"), "{text}");
    let master = media.get(&path("/proxy/mpd/manifest.m3u8", "http://o.test/a.mpd", "&subtitles=mp4")).await.text();
    assert_eq!(master.matches("TYPE=SUBTITLES").count(), 2, "{master}");
    let list = media.follow(&rendition(&master).unwrap()).await;
    assert!(list.text().contains("EXT-X-MAP"), "{}", list.text());
    assert_eq!(media.follow(&list.urls()[1]).await.body, segment);
}
