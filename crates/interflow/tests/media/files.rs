//! Decryption through the binary: files with ranges, HLS with encrypted samples, shared work, and the disk cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_media::cenc::{CencDecrypter, ContentKeyRing, IndexProbe};
use interflow_testkit::{Origin, Reply, Request, pattern};

use super::{Gateway, LOCAL, encoded};

const KEYS: &str = "&key_id=a1b2c3d4e5f60718293a4b5c6d7e8f90&key=00112233445566778899aabbccddeeff";

fn ring() -> ContentKeyRing {
    ContentKeyRing::parse(Some("a1b2c3d4e5f60718293a4b5c6d7e8f90"), "00112233445566778899aabbccddeeff").unwrap()
}

/// A sample made with shaka-packager or ffmpeg.
fn seed(name: &str) -> Vec<u8> {
    let path = [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "bmff", name];
    std::fs::read(path.iter().collect::<std::path::PathBuf>()).unwrap()
}

fn clear(name: &str) -> Vec<u8> {
    let data = seed(name);
    let mut out = Vec::new();
    let mut decrypter = CencDecrypter::new(ring());
    decrypter.push(Bytes::from(data), &mut out).unwrap();
    decrypter.finish().unwrap();
    out.concat()
}

/// The same for a file whose `moov` box is at the end.
fn clear_progressive() -> Vec<u8> {
    let data = seed("progressive");
    let mut probe = IndexProbe::new(ring(), data.len() as u64);
    while let Some(range) = probe.next_range() {
        probe.push(range.start, &data[range.start as usize..range.end as usize]).unwrap();
    }
    let mut range = probe.finish().unwrap().unwrap().range(0..data.len() as u64);
    let mut out = Vec::new();
    range.push(Bytes::from(data), &mut out).unwrap();
    range.finish().unwrap();
    out.concat()
}

/// Serves a file or the requested range.
fn file(request: &Request, data: &[u8], tag: &str) -> Reply {
    let asked = request.header("range").and_then(|r| r.strip_prefix("bytes=")?.split_once('-'));
    let reply = |r: Reply| r.header("ETag", format!("\"{tag}\"")).header("Content-Type", "video/mp4");
    let Some((first, last)) = asked else { return reply(Reply::ok(data.to_vec())) };
    let first: usize = first.parse().unwrap();
    let last = last.parse().unwrap_or(usize::MAX).min(data.len() - 1);
    let field = format!("bytes {first}-{last}/{}", data.len());
    reply(Reply::status(206).header("Content-Range", field).body(data[first..=last].to_vec()))
}

async fn origin() -> Origin {
    Origin::http()
        .answering(|r| match r.path() {
            "/unranged.mp4" => Reply::ok(seed("cbcs")),
            "/text.mp4" => file(r, &pattern(9000), "t"),
            path => file(r, &seed(path.trim_start_matches('/').trim_end_matches(".mp4")), "1"),
        })
        .start()
        .await
}

#[tokio::test]
async fn any_range_of_an_encrypted_file_is_returned_decrypted() {
    let origin = origin().await;
    let gateway = Gateway::local();
    for (name, whole) in [("progressive", clear_progressive()), ("cenc", clear("cenc")), ("cbcs", clear("cbcs"))] {
        assert_ne!(whole, seed(name));
        let path = gateway.path("/proxy/stream/film.mp4", &origin.url(&format!("/{name}.mp4"))) + KEYS;
        let answer = gateway.get(&path).await;
        assert_eq!((answer.status, answer.header("accept-ranges")), (200, Some("bytes")), "{name}");
        assert_eq!(answer.header("content-length"), Some(whole.len().to_string().as_str()));
        assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"film.mp4\""));
        assert_eq!(answer.body, whole, "{name}");
        let n = whole.len();
        for (first, last) in
            [(0, 0), (0, 99), (7, 7), (500, 1500), (1001, 1002), (n - 1, n - 1), (n / 2, n - 1), (3, n - 3)]
        {
            let part = gateway.get_with(&path, &format!("Range: bytes={first}-{last}\r\n")).await;
            assert_eq!((part.status, &part.body[..]), (206, &whole[first..=last]), "{name} {first}-{last}");
            assert_eq!(part.header("content-range"), Some(format!("bytes {first}-{last}/{n}").as_str()));
        }
        let tail = gateway.get_with(&path, "Range: bytes=-100\r\n").await;
        assert_eq!((tail.status, &tail.body[..]), (206, &whole[n - 100..]), "{name}");
    }
}

#[tokio::test]
async fn conditional_and_head_requests_of_a_decrypted_file_are_correct() {
    let origin = origin().await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/stream", &origin.url("/progressive.mp4")) + KEYS;
    let n = seed("progressive").len();
    let head = gateway.send("HEAD", &path, "").await;
    assert_eq!((head.status, head.header("content-length")), (200, Some(n.to_string().as_str())));
    let known = gateway.get_with(&path, "If-None-Match: \"1\"\r\n").await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    let beyond = gateway.get_with(&path, "Range: bytes=999999-\r\n").await;
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some(format!("bytes */{n}").as_str())));
    for (validator, status) in [("\"1\"", 206), ("\"0\"", 200)] {
        let fields = format!("Range: bytes=5-9\r\nIf-Range: {validator}\r\n");
        assert_eq!(gateway.get_with(&path, &fields).await.status, status, "{validator}");
    }
    let gone =
        gateway.get(&(gateway.path("/proxy/stream", &format!("http://{}/", Origin::nobody().await)) + KEYS)).await;
    assert_eq!(gone.status, 502);
}

#[tokio::test]
async fn undecryptable_file_is_refused_with_the_reason() {
    let origin = origin().await;
    let gateway = Gateway::local();
    let other = "&key_id=ffffffffffffffffffffffffffffffff&key=00112233445566778899aabbccddeeff";
    let answer = gateway.get(&(gateway.path("/proxy/stream", &origin.url("/progressive.mp4")) + other)).await;
    assert!(answer.status == 422 && answer.text().contains("a1b2c3d4e5f60718293a4b5c6d7e8f90"), "{}", answer.text());
    let text = gateway.get(&(gateway.path("/proxy/stream", &origin.url("/text.mp4")) + KEYS)).await;
    assert!(text.status == 422 && text.text().contains("MP4"), "{}", text.text());
    let unranged = gateway.get(&(gateway.path("/proxy/stream", &origin.url("/unranged.mp4")) + KEYS)).await;
    assert_eq!((unranged.status, unranged.header("accept-ranges")), (200, Some("none")));
    assert_eq!(unranged.body, clear("cbcs"));
    let answer = gateway.get(&(gateway.path("/proxy/stream", &origin.url("/unranged.mp4")) + other)).await;
    assert!(answer.status == 422 && answer.text().contains("no key was given for KID"), "{}", answer.text());
}

#[tokio::test]
async fn a_changed_file_is_read_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let origin = Origin::http()
        .answering(move |r| match count.fetch_add(1, SeqCst) {
            n if n < 4 => file(r, &seed("cenc"), "old"),
            _ => file(r, &seed("cbcs"), "new"),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/stream", &origin.url("/f.mp4")) + KEYS;
    assert_eq!(gateway.get(&path).await.body, clear("cenc"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while gateway.get(&path).await.body != clear("cbcs") {
        assert!(Instant::now() < deadline, "the new file is never seen");
    }
}

/// Where the initialization section of a seed ends.
fn split(data: &[u8]) -> usize {
    data.windows(4).position(|w| w == b"moof").unwrap() - 4
}

#[tokio::test]
async fn hls_fmp4_sample_aes_segments_are_decrypted_with_given_keys() {
    let data = seed("cbcs");
    let at = split(&data);
    let (n, rest) = (data.len(), data.len() - at);
    let origin = Origin::http()
        .answering(move |r| match r.path() {
            "/m.m3u8" => Reply::ok(
                "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MAP:URI=\"i.mp4\"\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\",IV=0x1\n\
                 #EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXTINF:4,\ns.m4s\n#EXT-X-ENDLIST\n",
            ),
            "/one.m3u8" => Reply::ok(format!(
                "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\"\n#EXT-X-MAP:URI=\"all.mp4\",BYTERANGE=\"{at}@0\"\n\
                 #EXTINF:4,\n#EXT-X-BYTERANGE:{rest}@{at}\nall.mp4\n#EXT-X-ENDLIST\n"
            )),
            "/foreign.m3u8" => Reply::ok(
                "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MAP:URI=\"i.mp4\"\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXTINF:4,\ns.m4s\n",
            ),
            "/k" => Reply::ok(hex("00112233445566778899aabbccddeeff")),
            "/i.mp4" => file(r, &data[..at], "i"),
            "/s.m4s" => file(r, &data[at..], "s"),
            _ => file(r, &data, "1"),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let whole = clear("cbcs");
    let text =
        gateway.get(&(gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/m.m3u8")) + "&keys=apply")).await.text();
    assert!(!text.contains("EXT-X-KEY"), "{text}");
    let (init, segment) = (quoted(&text), last_line(&text, 2));
    assert_eq!(gateway.follow(&init).await.body, whole[..at]);
    assert_eq!(gateway.follow(&segment).await.body, whole[at..]);
    let text =
        gateway.get(&(gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/one.m3u8")) + "&keys=apply")).await.text();
    let front = format!("http://{}", gateway.addr);
    let part = async |url: &str, range: std::ops::Range<usize>| {
        let fields = format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
        gateway.get_with(url.strip_prefix(&front).unwrap(), &fields).await
    };
    let init = part(&quoted(&text), 0..at).await;
    assert_eq!((init.status, &init.body[..]), (206, &whole[..at]), "{text}");
    for (first, last) in [(at, n), (at, n - 5), (at + 9, n)] {
        let answer = part(&last_line(&text, 2), first..last).await;
        assert_eq!((answer.status, &answer.body[..]), (206, &whole[first..last]), "{first} {last}");
    }
    let text = gateway
        .get(&(gateway.path("/proxy/hls/manifest.m3u8", &origin.url("/foreign.m3u8")) + "&keys=apply"))
        .await
        .text();
    assert!(text.contains("URI=\"skd://x\"") && !text.contains("method=init"), "{text}");
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn quoted(text: &str) -> String {
    text.split("URI=\"").nth(1).and_then(|r| r.split('"').next()).unwrap().to_owned()
}

/// The n-th line from the end.
fn last_line(text: &str, but: usize) -> String {
    text.lines().rev().nth(but - 1).unwrap().to_owned()
}

#[tokio::test]
async fn a_segment_is_fetched_and_decrypted_once_for_all() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let data = seed("cenc");
    let at = split(&data);
    let origin = Origin::http()
        .answering(move |r| match r.path() {
            "/i.mp4" => file(r, &data[..at], "i"),
            _ => {
                count.fetch_add(1, SeqCst);
                file(r, &data[at..], "s")
            }
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let path = |ending: &str| {
        format!(
            "/media/proxy/mpd/segment.{ending}?segment_url={}&init_url={}{KEYS}",
            encoded(&origin.url("/s.m4s")),
            encoded(&origin.url("/i.mp4"))
        )
    };
    let whole = clear("cenc");
    for _ in 0..3 {
        assert_eq!(gateway.get(&path("mp4")).await.body, whole[at..]);
    }
    assert_eq!(asked.load(SeqCst), 1);
    let part = gateway.get_with(&path("mp4"), "Range: bytes=100-199\r\n").await;
    assert_eq!((part.status, &part.body[..]), (206, &whole[at + 100..at + 200]));
    let ts = gateway.get_with(&path("ts"), "Range: bytes=10-20\r\n").await;
    assert!(
        ts.status == 200 && ts.body.len() % 188 == 0 && ts.body[0] == 0x47,
        "a part of what is made anew is not served"
    );
    let wrong = path("mp4").replace("a1b2c3d4", "00000000");
    assert_eq!(gateway.get(&wrong).await.status, 422, "what was decrypted is kept apart by key");
}

#[tokio::test]
async fn cached_segments_survive_a_restart_on_disk() {
    let origin = Origin::http().start().await;
    let lines = format!("{LOCAL}[media.cache]\ndisk = \"10MiB\"\n");
    let mut gateway = Gateway::start(&lines);
    let path = gateway.path("/proxy/hls/segment.ts", &origin.url("/bytes/200000"));
    assert_eq!(gateway.get(&path).await.body, pattern(200_000));
    let folder = gateway.dir.path().join("media-cache");
    let kept = || {
        std::fs::read_dir(&folder)
            .map_or(0, |d| d.flatten().filter(|e| e.path().extension().is_some_and(|e| e == "segment")).count())
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while kept() == 0 {
        assert!(Instant::now() < deadline, "nothing is written");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Simulates a crash: killed, with a partially written file left behind.
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    std::fs::write(folder.join(".a.part"), "cut off").unwrap();
    let dir = std::mem::replace(&mut gateway.dir, tempfile::tempdir().unwrap());
    let gateway = Gateway::start_in(dir, &lines);
    let answer = gateway.get(&path).await;
    assert!(answer.status == 200 && answer.body == pattern(200_000));
    assert_eq!(origin.served(), 1);
    gateway.get(&format!("{path}&h_authorization=other")).await;
    assert_eq!(origin.served(), 2, "other credentials are another thing");
    assert!(!folder.join(".a.part").exists());
}

/// Offset of the first fragment.
fn fragment_of(data: &[u8]) -> usize {
    interflow_media::bmff::boxes(data, 0).flatten().find(|b| b.kind() == b"moof").unwrap().offset as usize
}

#[tokio::test]
async fn undecryptable_segment_is_never_a_successful_response() {
    let whole = seed("cbcs");
    let at = fragment_of(&whole);
    let (init, media) = (whole[..at].to_vec(), whole[at..].to_vec());
    let mdat = interflow_media::bmff::boxes(&media, 0).flatten().find(|b| b.kind() == b"mdat").unwrap().offset as usize;
    let mut past_the_end = media.clone();
    past_the_end[mdat..mdat + 4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    let (clear_media, cut) = (clear("cbcs")[at..].to_vec(), media[..mdat + 200].to_vec());
    let origin = Origin::http()
        .answering(move |r| match r.path() {
            "/init" => Reply::ok(init.clone()),
            "/media" => Reply::ok(media.clone()),
            "/cut" => Reply::status(200).pieces(vec![cut.clone().into()], Duration::ZERO),
            "/empty" => Reply::ok(Vec::new()),
            "/noise" => Reply::ok(pattern(5000)),
            "/past" => Reply::ok(past_the_end.clone()),
            "/unindexed" => Reply::ok(media[mdat..].to_vec()),
            _ => Reply::status(404),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let kid = "a1b2c3d4e5f60718293a4b5c6d7e8f90";
    let path = |name: &str, keys: &str| {
        let (segment, init) = (encoded(&origin.url(name)), encoded(&origin.url("/init")));
        format!("/media/proxy/mpd/segment.mp4?segment_url={segment}&init_url={init}{keys}")
    };
    let good = gateway.get(&path("/media", KEYS)).await;
    assert_eq!((good.status, good.body.to_vec()), (200, clear_media));
    let other = "&key_id=ffffffffffffffffffffffffffffffff&key=00112233445566778899aabbccddeeff";
    let answer = gateway.get(&path("/media", other)).await;
    assert!(answer.status == 422 && answer.text().contains(kid), "{} {}", answer.status, answer.text());
    for name in ["/empty", "/noise", "/past", "/unindexed"] {
        let answer = gateway.get(&path(name, KEYS)).await;
        assert!(answer.status == 502, "{name}: {} with {} bytes", answer.status, answer.body.len());
    }
    // A failure after the first bytes must not look like a complete response.
    let mut wire = interflow_testkit::Wire::connect(gateway.addr).await.unwrap();
    wire.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", path("/cut", KEYS), gateway.addr)).await.unwrap();
    let broken = wire.answer_to("GET").await;
    assert!(broken.as_ref().map_or(true, |a| a.status == 502), "{:?}", broken.map(|a| (a.status, a.body.len())));
}
