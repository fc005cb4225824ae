//! What an origin, a list or a request must not do through the gateway.

use super::*;

#[tokio::test]
async fn what_follows_at_another_origin_is_not_fetched_ahead() {
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n1.ts\n#EXTINF:4,\n2.ts\n#EXTINF:4,\nhttp://evil.test/3.ts\n#EXT-X-ENDLIST\n";
    let origin = ["1.ts", "2.ts"]
        .iter()
        .fold(Origin::default(), |origin, name| origin.with(&format!("http://o.test/{name}"), "video/mp2t", "1"));
    let origin = origin.with("http://o.test/a.m3u8", PLAYLIST, text).with("http://evil.test/3.ts", "video/mp2t", "3");
    let cache = MediaCacheConfig { prefetch: 2, ..MediaCacheConfig::default() };
    let media = Media::with_config(origin, MediaConfig { cache, ..MediaConfig::default() });
    let list = media.get(&path("/proxy/hls/manifest.m3u8", "http://u:p@o.test/a.m3u8", "")).await;
    media.follow(&list.urls()[0]).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let seen = media.seen();
    assert!(
        seen.iter().any(|url| url.ends_with("2.ts")) && !seen.iter().any(|url| url.contains("evil.test")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn nothing_from_an_origin_is_a_page_of_the_gateway() {
    let script = "#EXTM3U\n#<script>1</script>\n";
    for (kind, endpoint, more) in [
        ("text/html", "/proxy/stream", ""),
        ("application/rss+xml", "/proxy/stream", ""),
        ("video/mp4", "/proxy/stream", "&r_content-type=text/html"),
        ("text/html; x=mpegurl", "/proxy/hls/manifest.m3u8", ""),
    ] {
        let media = Media::new(Origin::default().with("http://o.test/a", kind, script));
        let answer = media.get(&path(endpoint, "http://o.test/a", more)).await;
        assert_eq!(
            (answer.status, answer.headers.get_str("content-security-policy")),
            (200, Some("sandbox")),
            "{kind}"
        );
    }
    let media = Media::new(Origin::default().with("http://o.test/a", "video/mp4", "x"));
    let answer = media.get(&path("/proxy/stream", "http://o.test/a", "")).await;
    assert_eq!(answer.headers.get_str("content-security-policy"), None);
    assert_eq!(answer.headers.get_str("x-content-type-options"), Some("nosniff"));
}

#[tokio::test]
async fn what_one_request_puts_together_is_bounded() {
    let list = format!("#EXTM3U\n{}", "#EXTINF:4,\nhttp://o.test/a-segment-of-it.ts\n".repeat(12));
    let origin = Origin::default().with("http://o.test/a.m3u8", PLAYLIST, &list);
    let rewritten_bytes = interflow_types::units::ByteSize(3000);
    let media = Media::with_config(origin, MediaConfig { rewritten_bytes, ..MediaConfig::default() });
    let one = "http://o.test/a.m3u8";
    assert_eq!(media.get(&path("/playlist/playlist", one, "")).await.status, 200);
    assert_eq!(media.get(&path("/playlist/playlist", &[one; 4].join(";"), "")).await.status, 502);
    let links = |n: usize| {
        let urls = vec![serde_json::json!({ "destination_url": one }); n];
        serde_json::json!({ "mediaflow_proxy_url": "http://gate.test", "endpoint": "/proxy/stream", "urls": urls })
            .to_string()
    };
    for (n, status) in [(2, 200), (100, 400)] {
        let answer = media.send(Method::POST, "/media/generate_urls", &[], &links(n)).await;
        assert_eq!(answer.status, status, "{n}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_clock_of_an_encrypted_manifest_is_no_media() {
    let mpd =
        "<MPD type='dynamic'><UTCTiming schemeIdUri='urn:mpeg:dash:utc:http-iso:2014' value='/time'/><Period/></MPD>";
    let time = "2026-01-01T00:00:00Z";
    let origin = Origin::default().with("http://o.test/a.mpd", "application/dash+xml", mpd);
    let media = Media::new(origin.with("http://o.test/time", "text/plain", time));
    let text = media.get(&path("/proxy/mpd/manifest.mpd", "http://o.test/a.mpd", CENC_KEY)).await.text();
    let url = text.split("value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a clock");
    let answer = media.follow(&url.replace("&amp;", "&")).await;
    assert_eq!((answer.status, &*answer.text()), (200, time));
}

#[test]
fn two_references_to_the_same_password_are_refused() {
    let user = |name: &str, password: &str| MediaUser { name: name.into(), password: password.into() };
    let user = vec![user("a", "env:CARGO_PKG_NAME"), user("b", env!("CARGO_PKG_NAME"))];
    let config = MediaConfig { user, ..MediaConfig::default() };
    assert_eq!(config.check(), Ok(()));
    let refused = service(&Arc::new(Origin::default()), config).err().unwrap();
    assert!(refused.starts_with("media.user[1]: "), "{refused}");
}
