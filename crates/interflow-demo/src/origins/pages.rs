//! What the web sites of the [origins](super) answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, Response, ResponseHead, StatusCode, data_file};

use super::paced_body::{cut, paced};

/// Pages that are texts.
const EXAMPLE_PAGES: &str = include_str!("../../data/example-pages.txt");
const SHOP_PAGES: &str = include_str!("../../data/shop-pages.txt");
/// Twelve seconds of H.264 in fragmented MP4: the initialisation and segments of two seconds.
const FILM: [&[u8]; 7] = [
    include_bytes!("../../data/film/init.mp4"),
    include_bytes!("../../data/film/0.m4s"),
    include_bytes!("../../data/film/1.m4s"),
    include_bytes!("../../data/film/2.m4s"),
    include_bytes!("../../data/film/3.m4s"),
    include_bytes!("../../data/film/4.m4s"),
    include_bytes!("../../data/film/5.m4s"),
];
/// A lamp's light.
const PICTURE: Bytes = Bytes::from_static(include_bytes!("../../data/lamp.png"));

/// A page of `example.com` and the like; `None` where the request is repeated instead.
pub fn example(path: &str) -> Option<Response> {
    let (media, body) = match path {
        "/events" => ("text/event-stream", events()),
        "/picture.png" => ("image/png", PICTURE.into()),
        _ => return written(EXAMPLE_PAGES, path),
    };
    Some(response(StatusCode::OK, media, body))
}

/// A page of the shop, the bank or the warehouse.
pub fn page(path: &str, sent: &Bytes) -> Option<Response> {
    let points = b"\x82\xa6points\x2a\xa5until\xaa2027-01-01";
    let sizes = b"\x08\x96\x01\x12\x05small\x12\x05large";
    let stock = b"\0\0\0\0\x08\x08\x01\x12\x04Lamp\x80\0\0\0\x0fgrpc-status:0\r\n";
    let (media, body) = match path {
        "/chair.gif" => ("image/gif", Bytes::from_static(include_bytes!("../../data/chair.gif")).into()),
        "/lamp.png" => ("image/png", PICTURE.into()),
        "/points" => ("application/msgpack", Bytes::from_static(points).into()),
        "/sizes" => ("application/x-protobuf", Bytes::from_static(sizes).into()),
        "/shop.Stock/Get" => ("application/grpc-web+proto", Bytes::from_static(stock).into()),
        "/echo" => ("application/octet-stream", sent.clone().into()),
        "/slow" => {
            let pieces = VecDeque::from([Bytes::from_static(b"at last")]);
            ("text/plain", paced(pieces, Duration::from_millis(1200), Duration::ZERO))
        }
        "/events" => ("text/event-stream", events()),
        "/film.mp4" => {
            let pieces = FILM.map(Bytes::from_static).into();
            ("video/mp4", paced(pieces, Duration::ZERO, Duration::from_millis(500)))
        }
        "/film/init.mp4" => ("video/mp4", Bytes::from_static(FILM[0]).into()),
        "/cut" => ("application/json", cut(Bytes::from_static(b"{\"half\":"), Duration::from_millis(200))),
        _ => match path.strip_prefix("/film/").and_then(|name| name.strip_suffix(".m4s")?.parse::<usize>().ok()) {
            Some(segment) => ("video/iso.segment", Bytes::from_static(FILM[1..].get(segment)?).into()),
            None => return written(SHOP_PAGES, path),
        },
    };
    Some(response(StatusCode::OK, media, body))
}

/// A page that is written in a table.
fn written(pages: &'static str, path: &str) -> Option<Response> {
    let [_, status, media, text] = data_file::records::<4>(pages).find(|[page, ..]| *page == path)?;
    let status = StatusCode::from_u16(status.parse().ok()?).ok()?;
    // The table writes line ends as `\n`.
    Some(response(status, media, Bytes::from(text.replace("\\n", "\n")).into()))
}

fn response(status: StatusCode, media: &str, body: Body) -> Response {
    let head = ResponseHead::new(status).with_header("Content-Type", media).with_header("Server", "demo");
    Response { head, body }
}

fn events() -> Body {
    let event = |n| Bytes::from(format!("event: stock\ndata: {{\"product\":1,\"left\":{}}}\n\n", 10 - n));
    paced((1..=6).map(event).collect(), Duration::ZERO, Duration::from_millis(150))
}
