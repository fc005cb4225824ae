//! What the web sites of the [origins](super) answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, Response, ResponseHead, StatusCode};

use super::paced_body::{cut, paced};

/// Number of a film's chunks, and bytes per chunk.
const FILM: (usize, usize) = (40, 100_000);
/// Width and height of a picture.
const PICTURE: (u32, u32) = (160, 100);

pub struct Page {
    status: u16,
    media: &'static str,
    body: Body,
}

impl Page {
    fn new(status: u16, media: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, media, body: Body::from(body.into()) }
    }

    pub fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let head = ResponseHead::new(status).with_header("Content-Type", self.media).with_header("Server", "demo");
        Response { head, body: self.body }
    }
}

/// A page of `example.com` and the like; `None` where the request is repeated instead.
pub fn example(path: &str) -> Option<Page> {
    Some(match path {
        "/" => {
            let page = "<!doctype html><title>Example Domain</title><h1>Example Domain</h1>\n";
            Page::new(200, "text/html", page)
        }
        "/events" => events(),
        "/graphql" => Page::new(200, "application/json", r#"{"data":{"products":[{"id":1,"name":"Lamp"}]}}"#),
        "/picture.bmp" => Page::new(200, "image/bmp", picture()),
        _ => return None,
    })
}

/// A page of the shop, the bank or the warehouse.
pub fn page(path: &str, sent: &Bytes) -> Option<Page> {
    const JSON: &str = "application/json";
    let products = r#"{"products":[{"id":1,"name":"Lamp","price":"19.90","tags":["light","desk"]},{"id":2,"name":"Chair","price":"89.00","tags":["seat"]}],"next":null}"#;
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1280000,RESOLUTION=1280x720\nlow.m3u8\n";
    let dash = "<?xml version=\"1.0\"?><MPD type=\"static\" mediaPresentationDuration=\"PT6S\"><Period><AdaptationSet mimeType=\"video/mp4\"><Representation id=\"1\" bandwidth=\"800000\"/></AdaptationSet></Period></MPD>";
    let shop = "<!doctype html><html><head><title>Shop</title></head><body><h1>Shop</h1><p>Lamps and chairs.</p><img src=\"/lamp.bmp\"></body></html>";
    let photo =
        "<?xml version=\"1.0\"?><photo id=\"12\"><title>Lamp by night</title><size width=\"1\" height=\"1\"/></photo>";
    let pixel: &[u8] = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x0b\x6e\x72\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    let points: &[u8] = b"\x82\xa6points\x2a\xa5until\xaa2027-01-01";
    let sizes: &[u8] = b"\x08\x96\x01\x12\x05small\x12\x05large";
    let stock: &[u8] = b"\0\0\0\0\x08\x08\x01\x12\x04Lamp\x80\0\0\0\x0fgrpc-status:0\r\n";
    Some(match path {
        "/" => Page::new(200, "text/html; charset=utf-8", shop),
        "/products" => Page::new(200, JSON, products),
        "/orders" => Page::new(201, JSON, r#"{"order":4711,"state":"accepted"}"#),
        "/reservations" => Page::new(201, JSON, r#"{"reserved":true,"until":"tomorrow"}"#),
        "/graphql" => Page::new(200, JSON, r#"{"data":{"products":[{"id":1,"name":"Lamp","price":"19.90"}]}}"#),
        "/photos" => Page::new(201, "application/xml", photo),
        "/login" => Page::new(302, "text/plain", ""),
        "/pixel.gif" => Page::new(200, "image/gif", pixel),
        "/lamp.bmp" => Page::new(200, "image/bmp", picture()),
        "/app.css" => Page::new(200, "text/css", "body { font: 16px sans-serif }\nh1 { color: teal }\n"),
        "/broken" => Page::new(500, JSON, r#"{"error":"the database is away"}"#),
        "/busy" => Page::new(503, "text/plain", "try again later"),
        "/master.m3u8" => Page::new(200, "application/vnd.apple.mpegurl", master),
        "/film.mpd" => Page::new(200, "application/dash+xml", dash),
        "/points" => Page::new(200, "application/msgpack", points),
        "/sizes" => Page::new(200, "application/x-protobuf", sizes),
        "/shop.Stock/Get" => Page::new(200, "application/grpc-web+proto", stock),
        "/payments" => Page::new(201, JSON, r#"{"payment":"p-81","state":"booked"}"#),
        "/echo" => Page { status: 200, media: "application/octet-stream", body: Body::from(sent.clone()) },
        "/slow" => {
            let pieces = VecDeque::from([Bytes::from_static(b"at last")]);
            Page { status: 200, media: "text/plain", body: paced(pieces, Duration::from_millis(1200), Duration::ZERO) }
        }
        "/events" => events(),
        "/film.mp4" => {
            let pieces = (0..FILM.0).map(|n| Bytes::from(vec![n as u8; FILM.1])).collect();
            Page { status: 200, media: "video/mp4", body: paced(pieces, Duration::ZERO, Duration::from_millis(100)) }
        }
        "/cut" => {
            let begin = Bytes::from_static(b"{\"half\":");
            Page { status: 200, media: JSON, body: cut(begin, Duration::from_millis(200)) }
        }
        _ => return None,
    })
}

fn events() -> Page {
    let event = |n| Bytes::from(format!("event: stock\ndata: {{\"product\":1,\"left\":{}}}\n\n", 10 - n));
    let pause = Duration::from_millis(150);
    Page { status: 200, media: "text/event-stream", body: paced((1..=6).map(event).collect(), Duration::ZERO, pause) }
}

/// A picture of a lamp's light as an uncompressed bitmap of 24 bits per pixel, bottom row first.
fn picture() -> Vec<u8> {
    const HEADER: u32 = 54;
    let (width, height) = PICTURE;
    let size = width * height * 3;
    let mut out = b"BM".to_vec();
    for field in [HEADER + size, 0, HEADER, 40, width, height] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    // One plane, 24 bits, no compression.
    out.extend_from_slice(&[1, 0, 24, 0]);
    for field in [0, size, 2835, 2835, 0, 0u32] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for y in 0..height {
        for x in 0..width {
            let (dx, dy) = (x.abs_diff(width / 2), y.abs_diff(height * 2 / 3));
            let light = 255 - (dx * dx + dy * dy).isqrt().min(80) * 3;
            out.extend_from_slice(&[(light / 3) as u8, (light * 4 / 5) as u8, light as u8]);
        }
    }
    out
}
