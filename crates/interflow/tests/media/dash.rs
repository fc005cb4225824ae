//! DASH through the binary: manifests converted to HLS and rewritten, and segments fetched from the right URL.

use interflow_testkit::{Origin, Reply, pattern};

use super::{Gateway, LOCAL};

const MPD: &str = "<?xml version='1.0'?><MPD type='static' mediaPresentationDuration='PT8S'><BaseURL>BASE/gone/</BaseURL><BaseURL>BASE/x/</BaseURL>\
    <Period><AdaptationSet id='1' mimeType='video/mp4' codecs='avc1.64001f'><SegmentTemplate timescale='1' duration='4' media='$RepresentationID$-$Number%03d$.m4s' initialization='$RepresentationID$-i.mp4'/>\
    <Representation id='v' bandwidth='900' width='640' height='360'/></AdaptationSet>\
    <AdaptationSet id='2' mimeType='audio/mp4' lang='en' codecs='mp4a.40.2'><Representation id='a' bandwidth='100'><BaseURL>a.mp4</BaseURL>\
    <SegmentBase indexRange='100-155'><Initialization range='0-99'/></SegmentBase></Representation></AdaptationSet></Period></MPD>";

/// A file with a `sidx` index, followed by two subsegments of 1000 and 500 bytes.
fn indexed() -> Vec<u8> {
    let mut file = pattern(100).to_vec();
    file.extend([0, 0, 0, 56]);
    file.extend(b"sidx");
    for word in [0_u32, 1, 90_000, 0, 0, 2, 1000, 360_000, 1 << 31, 500, 360_000, 1 << 31] {
        file.extend(word.to_be_bytes());
    }
    file.extend(pattern(1500));
    file
}

async fn origin() -> Origin {
    Origin::http()
        .answering(|r| {
            let host = r.header("host").unwrap_or_default().to_owned();
            match r.path() {
                "/m.mpd" => Reply::ok(MPD.replace("BASE", &format!("http://{host}")))
                    .header("Content-Type", "application/dash+xml"),
                "/bomb.mpd" => Reply::ok("<!DOCTYPE a [<!ENTITY b 'bbb'>]><MPD>&b;</MPD>"),
                "/x/a.mp4" => {
                    let file = indexed();
                    let range = r.header("range").and_then(|r| {
                        r.strip_prefix("bytes=")?.split_once('-').map(|(a, b)| (a.to_owned(), b.to_owned()))
                    });
                    let Some((first, last)) = range else { return Reply::ok(file) };
                    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                    let last = last.min(file.len() - 1);
                    let part = file[first..=last].to_vec();
                    Reply::status(206)
                        .header("Content-Range", format!("bytes {first}-{last}/{}", file.len()))
                        .body(part)
                }
                p if p.starts_with("/x/v-") => Reply::ok(p.to_owned()).header("Content-Type", "video/mp4"),
                _ => Reply::status(404),
            }
        })
        .start()
        .await
}

fn links(text: &str) -> Vec<String> {
    let quoted = |l: &str| l.split("URI=\"").nth(1).and_then(|r| r.split('"').next()).map(str::to_owned);
    text.lines().filter_map(|l| if l.starts_with('#') { quoted(l) } else { Some(l.to_owned()) }).collect()
}

#[tokio::test]
async fn dash_manifest_is_converted_to_hls() {
    let origin = origin().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n"));
    let path = gateway.path("/proxy/mpd/manifest.m3u8", &origin.url("/m.mpd"));
    let master = gateway.get(&format!("{path}&api_password=hunter22")).await.text();
    let children = links(&master);
    assert!(children.len() == 2 && !master.contains("hunter22"), "{master}");
    let video = gateway.follow(&children[1]).await.text();
    let segments = links(&video);
    assert_eq!(segments.len(), 3, "{video}");
    assert!(video.contains("#EXT-X-MAP") && video.contains("#EXT-X-ENDLIST"));
    assert_eq!(gateway.follow(&segments[0]).await.text(), "/x/v-i.mp4", "the first base has no initialization section");
    let segment = gateway.follow(&segments[2]).await;
    assert_eq!((segment.status, segment.text().as_str()), (200, "/x/v-002.m4s"), "the second base has it");
    let audio = gateway.follow(&children[0]).await.text();
    let parts = links(&audio);
    assert_eq!(parts.len(), 3, "{audio}");
}

#[tokio::test]
async fn indexed_files_are_segmented_by_their_index() {
    let origin = origin().await;
    let gateway = Gateway::local();
    let mpd = MPD.replace("<BaseURL>BASE/gone/</BaseURL>", "");
    let (mpd, host) = (mpd, origin.authority());
    let manifests =
        Origin::http().answering(move |_| Reply::ok(mpd.replace("BASE", &format!("http://{host}")))).start().await;
    let path = gateway.path("/proxy/mpd/playlist.m3u8", &manifests.url("/m.mpd"));
    let text = gateway.get(&format!("{path}&profile_id=2_a_100")).await.text();
    let parts = links(&text);
    assert_eq!(parts.len(), 3, "{text}");
    let init = gateway.follow(&parts[0]).await;
    assert_eq!((init.status, init.body), (200, pattern(100)));
    let first = gateway.follow(&parts[1]).await;
    assert_eq!((first.status, first.body.clone()), (200, pattern(1500).slice(..1000)));
    assert!(first.header("content-range").is_none());
    assert_eq!(gateway.follow(&parts[2]).await.body, pattern(1500).slice(1000..));
}

#[tokio::test]
async fn dash_manifest_is_returned_as_dash_if_requested() {
    let origin = origin().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n"));
    let path = gateway.path("/proxy/mpd/manifest.mpd", &origin.url("/m.mpd"));
    let answer = gateway.get(&format!("{path}&api_password=hunter22")).await;
    assert_eq!(answer.header("content-type"), Some("application/dash+xml"));
    let text = answer.text();
    let media = text.split("media=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    assert!(media.ends_with("&_n=$Number$"), "{media}");
    let segment = gateway.follow(&media.replace("$Number$", "2")).await;
    assert_eq!((segment.status, segment.text().as_str()), (200, "/x/v-002.m4s"));
    assert_eq!(gateway.follow(&media.replace("$Number$", "x")).await.status, 400);
    let file = text.split("a.mp4").next().unwrap().rsplit("<BaseURL>").next().unwrap();
    assert!(file.starts_with("http://127.0.0.1"), "{text}");
}

#[tokio::test]
async fn bad_manifests_and_keys_are_reported() {
    let origin = origin().await;
    let gateway = Gateway::local();
    let bomb = gateway.get(&gateway.path("/proxy/mpd/manifest.m3u8", &origin.url("/bomb.mpd"))).await;
    assert!(bomb.status == 502 && bomb.text().contains("document type"), "{}", bomb.text());
    let path = gateway.path("/proxy/mpd/manifest.m3u8", &origin.url("/m.mpd"));
    assert_eq!(gateway.get(&format!("{path}&key=short")).await.status, 400);
    assert_eq!(gateway.get(&gateway.path("/proxy/mpd/manifest.m3u8", &origin.url("/none.mpd"))).await.status, 404);
    let unknown = gateway
        .get(&format!("{}&profile_id=9_z_1", gateway.path("/proxy/mpd/playlist.m3u8", &origin.url("/m.mpd"))))
        .await;
    assert_eq!(unknown.status, 404);
    let key = "00112233445566778899aabbccddeeff";
    let master = gateway.get(&format!("{path}&key_id={key}&key={key}")).await.text();
    assert!(!master.contains(key), "keys are in no URL: {master}");
}
