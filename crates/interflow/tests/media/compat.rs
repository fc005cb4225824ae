//! mediaflow-proxy compatibility: its paths at the root, Xtream Codes, and the admin view of active streams.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use interflow_testkit::{Origin, Reply, pattern};

use super::{Gateway, LOCAL, encoded};

#[tokio::test]
async fn mediaflow_paths_are_served_at_the_root_if_enabled() {
    let origin = Origin::http().start().await;
    let path = format!("/proxy/stream?d={}", encoded(&origin.url("/bytes/9")));
    assert_eq!(Gateway::local().get(&path).await.status, 404);
    let gateway = Gateway::start(&format!("{LOCAL}[media.compat]\nmediaflow = true\n"));
    assert_eq!(gateway.get(&path).await.body, pattern(9));
    assert_eq!(gateway.get("/health").await.json()["status"], "healthy");
    assert_eq!(gateway.get("/some/other/page").await.status, 404, "other paths are none of ours");
}

#[tokio::test]
async fn xtream_player_logs_in_through_the_gateway() {
    let origin = Origin::http()
        .answering(|r| {
            let host = r.header("host").unwrap_or_default().to_owned();
            match r.path() {
                "/player_api.php" => Reply::ok(format!(
                    r#"{{"user_info":{{"username":"ann","password":"x"}},"server_info":{{"url":"localhost","port":"1","server_protocol":"http"}},"icon":"http:\/\/{host}\/i.png"}}"#
                )),
                "/get.php" => Reply::ok(format!("#EXTM3U\n#EXTINF:-1,A\nhttp://{host}/live/ann/x/5.ts\n")),
                "/live/ann/x/5.ts" => Reply::ok(pattern(500)),
                "/i.png" => Reply::ok("a logo").header("Content-Type", "image/png"),
                "/live/ann/x/5.m3u8" => Reply::ok("#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n/hls/t/5_1.ts\n"),
                _ => Reply::status(404),
            }
        })
        .start()
        .await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n[media.compat]\nmediaflow = true\n"));
    let name = B64.encode(format!("{}:ann:hunter22", origin.url("")));
    let bad = B64.encode(format!("{}:ann:wrong", origin.url("")));
    assert_eq!(gateway.get(&format!("/player_api.php?username={bad}&password=x")).await.status, 403);
    let api = gateway.get(&format!("/player_api.php?username={name}&password=x")).await.json();
    assert_eq!(api["user_info"]["username"], name);
    assert_eq!(api["server_info"]["port"], gateway.addr.port().to_string());
    let icon = api["icon"].as_str().unwrap();
    assert!(!icon.contains("hunter22"), "{icon}");
    let logo = gateway.follow(icon).await;
    assert_eq!((logo.status, logo.text().as_str()), (200, "a logo"), "{icon}");
    let list = gateway.get(&format!("/get.php?username={name}&password=x&type=m3u_plus")).await.text();
    let channel = list.lines().find(|l| l.starts_with("http")).unwrap();
    assert_eq!(gateway.follow(channel).await.body, pattern(500), "{list}");
    let playlist = gateway.get(&format!("/live/{name}/x/5.m3u8")).await.text();
    assert!(playlist.contains("/proxy/hls/segment.ts?") && !playlist.contains("hunter22"), "{playlist}");
}

#[tokio::test]
async fn cli_generates_working_media_links() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::local();
    let said =
        gateway.command(&["media", "url", &origin.url("/head"), "-H", "X-A: 1", "--expires", "1h", "--format", "json"]);
    let link: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(link["expires"].as_u64().is_some());
    let answer = gateway.follow(link["url"].as_str().unwrap()).await;
    assert!(answer.status == 200 && answer.text().contains("X-A"), "{}", answer.text());
}

#[test]
fn cli_refuses_unusable_media_links() {
    let (home, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = |home: &tempfile::TempDir, more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_interflow"));
        command.args(["media", "url", "http://a.test/x.m3u8", "--base", "http://tv.test/media"]).args(more);
        let output = command.env("INTERFLOW_DATA_DIR", home.path()).current_dir(home.path()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (more, says) in [
        (&["--ip", "nonsense"][..], "`nonsense` is not an address or network"),
        (&["--endpoint", "/proxy/hls/manifst.m3u8"], "did you mean `/proxy/hls/manifest.m3u8`?"),
        (&["--endpoint", "/nowhere/at/all"], "unknown endpoint"),
        (&["--param", "resolutoin=720p"], "did you mean `resolution`?"),
        (&["--key", "0011:2233"], "16 bytes"),
    ] {
        let (done, text) = url(&home, more);
        assert!(!done && text.contains(says), "{more:?}: {text}");
    }
    let (done, text) = url(&new, &["--ip", "10.0.0.0/8", "--param", "h_x-a=1"]);
    assert!(done && text.contains("warning: no instance has used the data directory"), "{text}");
    let (done, text) = url(&new, &[]);
    assert!(done && !text.contains("warning"), "the key is there by now: {text}");
}

#[tokio::test]
async fn playlist_channel_options_become_link_parameters() {
    const LIST: &str = "#EXTM3U\n#EXTINF:-1,A\n#EXTVLCOPT:http-user-agent=Box 1\n#EXTHTTP:{\"Cookie\":\"a=b\"}\nhttp://HOST/a\n#EXTINF:-1,B\nhttp://HOST/b\n#EXTINF:-1,C\nhttp://HOST/c|User-Agent=Box%202&Referer=http%3A%2F%2Fr.test%2F\n";
    let origin = Origin::http()
        .answering(|r| match r.path() {
            "/list.m3u" => Reply::ok(LIST.replace("HOST", r.header("host").unwrap_or_default())),
            _ => Reply::ok("a channel"),
        })
        .start()
        .await;
    let gateway = Gateway::start(&format!("{LOCAL}[media.compat]\nmediaflow = true\n"));
    let list = gateway.get(&format!("/playlist/builder?url={}", encoded(&origin.url("/list.m3u")))).await.text();
    assert!(!list.contains("EXTVLCOPT") && !list.contains("EXTHTTP"), "{list}");
    for channel in list.lines().filter(|l| l.starts_with("http")) {
        assert_eq!(gateway.follow(channel).await.text(), "a channel", "{list}");
    }
    let seen = origin.requests();
    assert_eq!((seen[1].header("user-agent"), seen[1].header("cookie")), (Some("Box 1"), Some("a=b")));
    let agent = seen[2].header("user-agent").unwrap_or_default();
    assert!(agent.starts_with("Mozilla/5.0") && seen[2].header("cookie").is_none(), "{agent}");
    assert_eq!((seen[3].path(), seen[3].header("user-agent")), ("/c", Some("Box 2")));
    assert_eq!(seen[3].header("referer"), Some("http://r.test/"));
}

#[tokio::test]
async fn mediaflow_client_conventions_are_accepted() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n[media.compat]\nmediaflow = true\n"));
    let body = serde_json::json!({ "destination_url": origin.url("/bytes/9"), "query_params": { "api_password": "hunter22" } });
    let made = gateway.post("/generate_url", &body).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    let url = made["url"].as_str().unwrap();
    assert!(!url.contains("hunter22"), "{url}");
    assert_eq!(gateway.follow(url).await.body, pattern(9));
    let front = format!("/proxy/stream?api_password=hunter22&d={}", encoded(&origin.url("/bytes/9")));
    let named = gateway.get(&format!("{front}&filename=a%2Fb.mp4")).await;
    assert_eq!(named.header("content-disposition"), Some("attachment; filename=\"a_b.mp4\""));
    let refused = gateway.get(&format!("{front}&transcode=true")).await;
    assert!(refused.status == 501 && refused.text().contains("transcode"), "{}", refused.text());
}
