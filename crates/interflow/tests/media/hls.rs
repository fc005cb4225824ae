//! HLS through the binary: playlists, segments, keys and player requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use interflow_testkit::{Origin, Reply, pattern};

use super::{Gateway, LOCAL, encoded};

const MASTER: &str = "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"x\",URI=\"audio/a.m3u8\"\n\
    #EXT-X-STREAM-INF:BANDWIDTH=1000,RESOLUTION=640x360,AUDIO=\"a\"\nlow/v\n\
    #EXT-X-STREAM-INF:BANDWIDTH=5000,RESOLUTION=1920x1080,AUDIO=\"a\"\nhigh/v.m3u8\n";
const MEDIA: &str = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:5\n#EXT-X-KEY:METHOD=AES-128,URI=\"../k\"\n\
    #EXTINF:4,\ns5.ts\n#EXTINF:4,\ns6.ts\n#EXT-X-ENDLIST\n";

fn answers(path: &str) -> Reply {
    match path {
        "/x/master.m3u8" => Reply::ok(MASTER).header("Content-Type", "application/x-mpegURL"),
        p if p.ends_with("/v") || p.ends_with(".m3u8") => Reply::ok(MEDIA).header("Content-Type", "text/plain"),
        "/x/k" => Reply::ok(vec![7_u8; 16]),
        p if p.ends_with(".ts") => Reply::ok(pattern(3000)),
        "/page" => Reply::ok("<html>pay</html>").header("Content-Type", "text/html"),
        _ => Reply::status(404),
    }
}

fn urls(text: &str) -> Vec<String> {
    let quoted = |l: &str| l.split("URI=\"").nth(1).and_then(|r| r.split('"').next()).map(str::to_owned);
    text.lines().filter_map(|l| if l.starts_with('#') { quoted(l) } else { Some(l.to_owned()) }).collect()
}

#[tokio::test]
async fn player_follows_urls_from_master_playlist_to_segments_and_keys() {
    for (lines, query) in
        [(LOCAL.to_owned(), ""), (format!("{LOCAL}api_password = \"hunter22\"\n"), "&api_password=hunter22")]
    {
        let origin = Origin::http().answering(|r| answers(r.path())).start().await;
        let gateway = Gateway::start(&lines);
        let path = gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/x/master.m3u8"));
        let master = gateway.get(&format!("{path}&h_x-mine=secret1{query}")).await;
        assert_eq!((master.status, master.header("content-type")), (200, Some("application/x-mpegURL")));
        let text = master.text();
        assert!(!text.contains("hunter22") && !text.contains("secret1"), "{text}");
        let children = urls(&text);
        assert_eq!(children.len(), 3);
        let media = gateway.follow(&children[2]).await;
        assert_eq!(media.status, 200, "{}", media.text());
        let leaves = urls(&media.text());
        assert_eq!(leaves.len(), 3);
        assert_eq!(gateway.follow(&leaves[0]).await.body, vec![7_u8; 16]);
        let segment = gateway.follow(&leaves[1]).await;
        assert_eq!(
            (segment.status, segment.header("content-type"), segment.body.clone()),
            (200, Some("video/mp2t"), pattern(3000))
        );
        let seen = origin.requests();
        assert_eq!(
            seen.iter().map(|r| r.path()).collect::<Vec<_>>(),
            ["/x/master.m3u8", "/x/high/v.m3u8", "/x/k", "/x/high/s5.ts"]
        );
        assert!(seen.iter().all(|r| r.header("x-mine") == Some("secret1") && !r.target.contains("hunter22")));
    }
}

#[tokio::test]
async fn modified_child_url_is_refused() {
    let origin = Origin::http().answering(|r| answers(r.path())).start().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n"));
    let path = gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/x/master.m3u8"));
    let text = gateway.get(&format!("{path}&api_password=hunter22")).await.text();
    let child = &urls(&text)[2];
    assert_eq!(gateway.follow(&child.replace("/high/", "/other/")).await.status, 403);
    assert_eq!(gateway.follow(&child.replace("/proxy/hls/manifest.m3u8", "/proxy/stream")).await.status, 403);
    let token = child.split("_token_").nth(1).unwrap().split('/').next().unwrap();
    let stolen = format!("/media/_token_{token}/proxy/stream?d={}", encoded("http://elsewhere.test/"));
    assert_eq!(gateway.get(&stolen).await.status, 403);
}

#[tokio::test]
async fn child_urls_of_a_sealed_link_hide_their_destination_and_expire() {
    let origin = Origin::http().answering(|r| answers(r.path())).start().await;
    let gateway = Gateway::local();
    let body = serde_json::json!({
        "endpoint": "/proxy/hls/manifest.m3u8", "destination_url": origin.url("/x/master.m3u8"), "expiration": 2,
    });
    let made = gateway.post("/media/generate_url", &body).await.json();
    let text = gateway.follow(made["url"].as_str().unwrap()).await.text();
    assert!(!text.contains("localhost") && !text.contains("high"), "{text}");
    let child = &urls(&text)[2];
    assert_eq!(gateway.follow(child).await.status, 200);
    // Its two seconds are those of the clock on the wall.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while gateway.follow(child).await.status != 403 {
        assert!(std::time::Instant::now() < deadline, "the link never expires");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn low_latency_hls_directives_are_forwarded() {
    let origin = Origin::http().answering(|_| Reply::ok("#EXTM3U\n#EXT-X-TARGETDURATION:4\n")).start().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n"));
    let path = gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/m.m3u8?a=b"));
    gateway.get(&format!("{path}&api_password=hunter22&_HLS_msn=12&_HLS_part=3")).await;
    assert_eq!(origin.only_request().target, "/m.m3u8?a=b&_HLS_msn=12&_HLS_part=3");
}

#[tokio::test]
async fn options_of_a_link_are_applied() {
    let origin = Origin::http().answering(|r| answers(r.path())).start().await;
    let gateway = Gateway::local();
    let master = gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/x/master.m3u8"));
    let media = gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/x/high/v.m3u8"));
    let text = |q: &'static str, path: String| {
        let gateway = &gateway;
        async move { gateway.get(&format!("{path}{q}")).await.text() }
    };
    let best = text("&max_res=true", master.clone()).await;
    assert!(best.contains("1920x1080") && !best.contains("640x360"), "{best}");
    let low = text("&resolution=360p", master).await;
    assert!(!low.contains("1920x1080") && low.contains("640x360"), "{low}");
    let cut = text("&skip=0-4", media.clone()).await;
    assert!(
        !cut.contains("s5.ts") && cut.contains("s6.ts") && cut.contains("IV=0x00000000000000000000000000000006"),
        "{cut}"
    );
    assert!(text("&start_offset=-9", media.clone()).await.contains("#EXT-X-START:TIME-OFFSET=-9,"));
    let absolute = text("&no_proxy=true", media.clone()).await;
    assert!(absolute.contains(&format!("\n{}\n", origin.url("/x/high/s5.ts"))), "{absolute}");
    let keys = text("&key_only_proxy=true", media.clone()).await;
    assert!(
        keys.contains(&format!("\n{}\n", origin.url("/x/high/s5.ts"))) && keys.contains("/proxy/hls/key.bin?"),
        "{keys}"
    );
    let inline = text("&keys=inline", media.clone()).await;
    assert!(inline.contains("URI=\"data:application/octet-stream;base64,BwcHBwcHBwcHBwcHBwcHBw==\""), "{inline}");
    assert_eq!(gateway.get(&format!("{media}&keys=x")).await.status, 400);
    let applied = text("&keys=apply", media).await;
    assert!(!applied.contains("#EXT-X-KEY"), "{applied}");
    assert!(applied.contains("&iv=00000000000000000000000000000005"), "{applied}");
}

#[tokio::test]
async fn non_playlists_are_detected() {
    let origin = Origin::http().answering(|r| answers(r.path())).start().await;
    let gateway = Gateway::local();
    let at = |path: &str| gateway.path("/proxy/hls/manifest.m3u8", &origin.url(path));
    let page = gateway.get(&at("/page")).await;
    assert!(page.status == 502 && page.text().contains("web page"), "{}", page.text());
    assert_eq!(gateway.get(&at("/gone")).await.status, 404);
    assert_eq!(gateway.get(&at("/film.ts")).await.body, pattern(3000));
}

#[tokio::test]
async fn endless_playlist_is_refused_in_bounded_memory() {
    let line = "#EXTINF:4,\nsegment.ts\n".repeat(5000);
    let origin = Origin::http()
        .answering(move |_| {
            let pieces =
                std::iter::once("#EXTM3U\n".into()).chain(std::iter::repeat_n(line.clone().into(), 200_000)).collect();
            Reply::status(200).pieces(pieces, std::time::Duration::ZERO)
        })
        .start()
        .await;
    let gateway = Gateway::start(&format!("{LOCAL}document_bytes = \"1MiB\"\n"));
    let answer = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/endless.m3u8"))).await;
    assert!(
        answer.status == 502 && answer.text().contains("media.document_bytes"),
        "{} {}",
        answer.status,
        answer.text()
    );
}

#[tokio::test]
async fn concurrent_viewers_share_one_origin_request() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let origin = Origin::http()
        .answering(move |_| {
            count.fetch_add(1, SeqCst);
            let pieces = pattern(200_000).chunks(20_000).map(bytes::Bytes::copy_from_slice).collect();
            Reply::status(200).pieces(pieces, std::time::Duration::from_millis(10))
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/hls/segment.ts", &origin.url("/s.ts"));
    let viewers: Vec<_> = (0..40)
        .map(|_| {
            let (addr, path) = (gateway.addr, path.clone());
            tokio::spawn(async move {
                let mut wire = interflow_testkit::Wire::connect(addr).await.unwrap();
                wire.send(format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n")).await.unwrap();
                wire.answer().await.unwrap()
            })
        })
        .collect();
    for viewer in viewers {
        assert_eq!(viewer.await.unwrap().body, pattern(200_000));
    }
    assert_eq!(asked.load(SeqCst), 1);
    let part = gateway.get_with(&path, "Range: bytes=1000-1999\r\n").await;
    assert_eq!((part.status, part.header("content-range")), (206, Some("bytes 1000-1999/200000")));
    assert_eq!(part.body, pattern(200_000).slice(1000..2000));
    assert_eq!(asked.load(SeqCst), 1, "a part of what is there whole is not asked for");
    gateway.get(&format!("{path}&h_authorization=other")).await;
    assert_eq!(asked.load(SeqCst), 2, "other credentials are another thing");
}

#[tokio::test]
async fn segments_too_large_to_share_are_delivered_to_every_viewer() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!("{LOCAL}[media.cache]\nentry = \"100KB\"\n"));
    for path in ["/bytes/400000", "/slow/400000?piece=40000&gap=5"] {
        let path = gateway.path("/proxy/hls/segment.ts", &origin.url(path));
        let (a, b) = tokio::join!(gateway.get(&path), gateway.get(&path));
        assert!(a.body == pattern(400_000) && b.body == pattern(400_000), "{path}");
    }
}

#[tokio::test]
async fn steering_and_assets_are_rewritten() {
    let origin = Origin::http()
        .answering(|r| match r.path() {
            "/steer" => Reply::ok(
                r#"{"VERSION":1,"TTL":300,"RELOAD-URI":"steer?s=1","PATHWAY-PRIORITY":["A"],"PATHWAY-CLONES":[{}]}"#,
            ),
            _ => Reply::ok(r#"{"ASSETS":[{"URI":"ad/1.m3u8","DURATION":5}]}"#),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let steer = gateway
        .get(&format!("{}&_HLS_pathway=A", gateway.path("/proxy/hls/steering.json", &origin.url("/steer"))))
        .await
        .json();
    assert!(steer["RELOAD-URI"].as_str().unwrap().contains("/media/proxy/hls/steering.json?d=http"), "{steer}");
    assert!(steer.get("PATHWAY-CLONES").is_none() && steer["TTL"] == 300);
    assert_eq!(origin.only_request().target, "/steer?_HLS_pathway=A");
    let assets = gateway.get(&gateway.path("/proxy/hls/assets.json", &origin.url("/l"))).await.json();
    assert!(assets["ASSETS"][0]["URI"].as_str().unwrap().contains("/proxy/hls/manifest.m3u8?d="), "{assets}");
}

#[tokio::test]
async fn playlists_are_merged_and_epg_urls_kept() {
    let origin = Origin::http()
        .answering(|r| match r.path() {
            "/a.m3u" => Reply::ok("#EXTM3U\n#EXTINF:-1,Zoo\nhttp://h/z\n"),
            "/b.m3u" => Reply::ok(
                "#EXTM3U url-tvg=\"http://g/\"\n#EXTINF:-1,Beta\nhttp://h/b\n#EXTINF:-1,Alpha\nhttp://h/a.mpd\n",
            ),
            _ => Reply::ok("<tv/>"),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let body = format!("{};sort:no_proxy:{}", origin.url("/a.m3u"), origin.url("/b.m3u"));
    let text = gateway.get(&gateway.path("/playlist/playlist", &body)).await.text();
    let names: Vec<_> = text.lines().filter_map(|l| l.strip_prefix("#EXTINF:-1,")).collect();
    assert_eq!(names, ["Alpha", "Beta", "Zoo"], "{text}");
    assert!(text.contains("\nhttp://h/b\n") && text.contains("/media/proxy/stream?d=http://h/z"), "{text}");
    let guide = gateway.path("/proxy/epg", &origin.url("/g.xml"));
    for hit in ["MISS", "HIT"] {
        let answer = gateway.get(&guide).await;
        assert_eq!((answer.header("x-epg-cache"), answer.header("content-type")), (Some(hit), Some("application/xml")));
    }
}

#[tokio::test]
async fn playlist_of_100000_channels_keeps_its_attributes() {
    let channel = |n: usize| {
        format!(
            "#EXTINF:-1 tvg-id=\"c{n}\" tvg-logo=\"http://l/{n}.png\" group-title=\"A, b\" catchup=\"xc\",Channel {n}, HD\n#EXTVLCOPT:http-user-agent=x\nhttp://line.test/live/u/p/{n}\n"
        )
    };
    let list =
        "#EXTM3U x-tvg-url=\"http://g.test/e.xml\"\n".to_owned() + &(0..100_000).map(channel).collect::<String>();
    let served = list.clone();
    let origin = Origin::http().answering(move |_| Reply::ok(served.clone())).start().await;
    let gateway = Gateway::local();
    let text = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/l.m3u"))).await.text();
    let tags = |t: &str| t.lines().skip(1).filter(|l| l.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    let kept: Vec<_> = tags(&list).into_iter().filter(|l| !l.starts_with("#EXTVLCOPT")).collect();
    assert!(tags(&text) == kept, "every attribute and name is what it was");
    let front = format!("http://{}/media/proxy/stream?d=http://line.test/live/u/p/", gateway.addr);
    let addresses: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(
        addresses.iter().enumerate().all(|(n, l)| *l == format!("{front}{n}&h_user-agent=x"))
            && addresses.len() == 100_000
    );
    assert!(text.starts_with(&format!(
        "#EXTM3U x-tvg-url=\"http://{}/media/proxy/epg?d=http://g.test/e.xml\"\n",
        gateway.addr
    )));
}

#[tokio::test]
async fn child_urls_are_resolved_against_the_redirect_target() {
    let origin = Origin::http()
        .answering(|r| match r.path() {
            "/a.m3u8" => Reply::status(302).header("Location", "/deep/er/b.m3u8"),
            "/a.mpd" => Reply::status(302).header("Location", "/deep/er/b.mpd"),
            "/deep/er/b.mpd" => Reply::ok("<MPD mediaPresentationDuration='PT4S'><Period><AdaptationSet mimeType='video/mp4'><SegmentTemplate duration='4' media='$Number$.m4s'/><Representation id='v' bandwidth='1'/></AdaptationSet></Period></MPD>"),
            _ => Reply::ok("#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nc.ts\n"),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let text = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/a.m3u8"))).await.text();
    assert!(text.contains(&format!("d={}", origin.url("/deep/er/c.ts"))), "{text}");
    let text = gateway.get(&gateway.path("/proxy/mpd/manifest.m3u8", &origin.url("/a.mpd"))).await.text();
    let track = text.lines().find(|l| l.starts_with("http")).unwrap().to_owned();
    let text = gateway.follow(&track).await.text();
    assert!(text.contains(&format!("segment_url={}", origin.url("/deep/er/1.m4s"))), "{text}");
}

#[tokio::test]
async fn compressed_playlists_and_manifests_are_decoded() {
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    const MPD: &str = "<MPD mediaPresentationDuration='PT8S'><Period><AdaptationSet mimeType='video/mp4'><SegmentTemplate media='$Number$.m4s' duration='4'/><Representation id='v' bandwidth='9'/></AdaptationSet></Period></MPD>";
    let origin = Origin::http()
        .answering(move |r| {
            let coded = |text: &str| Reply::ok(gzip(text)).header("Content-Encoding", "gzip");
            match r.path() {
                "/m.m3u8" | "/unnamed" => coded(MEDIA),
                "/m.mpd" => coded(MPD),
                "/broken.m3u8" => Reply::ok(MEDIA).header("Content-Encoding", "gzip"),
                "/film" => coded("no playlist at all"),
                _ => Reply::status(404),
            }
        })
        .start()
        .await;
    let gateway = Gateway::local();
    for name in ["/m.m3u8", "/unnamed"] {
        let answer = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url(name))).await;
        assert!(answer.status == 200 && answer.text().contains("/proxy/hls/segment.ts?"), "{name}: {}", answer.text());
        assert_eq!(answer.header("content-encoding"), None);
    }
    let manifest = gateway.get(&gateway.path("/proxy/mpd/manifest.m3u8", &origin.url("/m.mpd"))).await;
    assert!(manifest.status == 200 && manifest.text().contains("#EXT-X-STREAM-INF"), "{}", manifest.text());
    let broken = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/broken.m3u8"))).await;
    assert!(broken.status == 502 && broken.text().contains("content coding"), "{} {}", broken.status, broken.text());
    let other = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/film"))).await;
    assert_eq!((other.status, other.header("content-encoding")), (200, Some("gzip")), "what is none passes as it came");
}

#[tokio::test]
async fn variable_expansion_in_a_playlist_is_bounded() {
    let text = format!("#EXTM3U\n#EXT-X-DEFINE:NAME=\"v\",VALUE=\"{}\"\n#EXT-X-TARGETDURATION:4\n", "x".repeat(10_000));
    let text = text + &"{$v}\n".repeat(40_000);
    let origin = Origin::http().answering(move |_| Reply::ok(text.clone())).start().await;
    let gateway = Gateway::start(&format!("{LOCAL}rewritten_bytes = \"2MiB\"\n"));
    let answer = gateway.get(&gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/m.m3u8"))).await;
    assert!(answer.status == 502 && answer.text().contains("media.rewritten_bytes"), "{}", answer.text());
}

#[tokio::test]
async fn aes_256_segments_and_keys_inside_the_playlist_are_decrypted() {
    // `openssl enc -aes-256-cbc -K 000102…1f -iv 0…01` and `-aes-128-cbc -K 000102…0f -iv 0…01` of `0123456789abcdef`.
    const LONG: &str = "1f63080861d16d609ab1a2b0cf69a526c67b5a1f9b72422203ae5474b8c9b645";
    const SHORT: &str = "ca78d959acca4a53335366860a6a11d4f3d514f1d940b73e2382b6bf87f8d52e";
    let bytes = |hex: &str| {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect::<Vec<_>>()
    };
    let playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=AES-256,URI=\"k\",IV=0x1\n#EXTINF:4,\nlong.ts\n\
        #EXT-X-KEY:METHOD=AES-128,URI=\"data:;base64,AAECAwQFBgcICQoLDA0ODw==\",IV=0x1\n#EXTINF:4,\nshort.ts\n#EXT-X-ENDLIST\n";
    let origin = Origin::http()
        .answering(move |r| match r.path() {
            "/m.m3u8" => Reply::ok(playlist),
            "/k" => Reply::ok((0..32).collect::<Vec<u8>>()),
            "/long.ts" => Reply::ok(bytes(LONG)),
            "/short.ts" => Reply::ok(bytes(SHORT)),
            _ => Reply::status(404),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/m.m3u8")) + "&keys=apply";
    let text = gateway.get(&path).await.text();
    assert!(!text.contains("EXT-X-KEY"), "{text}");
    for url in urls(&text) {
        let answer = gateway.follow(&url).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "0123456789abcdef"), "{url}");
    }
}

#[tokio::test]
async fn keys_and_licences_are_never_recorded() {
    const KEY: &str = "a secret AES key";
    let origin = Origin::http()
        .answering(|r| match r.path() {
            p if p.ends_with("/k") => Reply::ok(KEY),
            // A key of its own for each mode: one that is known is not fetched again.
            p if p.ends_with("/v.m3u8") => Reply::ok(MEDIA.replace("../k", &p.replace("v.m3u8", "k"))),
            "/licence" => Reply::ok(format!("{{\"keys\":\"{KEY}\"}}")).header("Content-Type", "application/json"),
            p => answers(p),
        })
        .start()
        .await;
    let gateway = Gateway::start_with(tempfile::tempdir().unwrap(), LOCAL, &[]);
    for mode in ["relay", "inline", "apply"] {
        let path = gateway.path("/proxy/hls/manifest.m3u8", &origin.url(&format!("/{mode}/v.m3u8")));
        let playlist = gateway.get(&format!("{path}&keys={mode}")).await;
        for url in urls(&playlist.text()).iter().filter(|url| !url.starts_with("data:")) {
            // What is decrypted here was never encrypted, so that the connection may be aborted.
            let mut wire = interflow_testkit::Wire::connect(gateway.addr).await.unwrap();
            let (host, path) = (gateway.addr, url.split_once("/media").map_or("", |(_, rest)| rest));
            wire.send(format!("GET /media{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await.unwrap();
            let _ = wire.answer_to("GET").await;
        }
    }
    let licence = gateway.path("/proxy/forward", &origin.url("/licence"));
    assert!(gateway.post(&licence, &KEY.into()).await.text().contains(KEY));
    let link = serde_json::json!({"destination_url": origin.url("/relay/v.m3u8"), "query_params": {"x": KEY}});
    assert_eq!(gateway.post("/media/generate_url", &link).await.status, 200);
    let fetched = origin.requests().iter().filter(|r| r.path().ends_with("/k")).count();
    assert!(fetched >= 3, "every mode fetches the key");
    let recorded = gateway.command(&["flows", "export", "--format", "jsonl"]);
    let flows = recorded.lines().count();
    assert!(flows >= 12, "{flows} flows are recorded:\n{recorded}");
    let coded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, KEY);
    assert!(!recorded.contains(KEY) && !recorded.contains(coded.trim_end_matches('=')), "{recorded}");
    assert!(recorded.contains("\"secret\""), "the recording says why a body is missing: {recorded}");
}
