//! The demo's origin: a shop with images and feeds, a WebSocket, and the fake provider.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fake_model;

/// Maximum request size, in bytes.
const MAX_REQUEST: usize = 1 << 20;
/// Delay before the model's first chunk, and between chunks.
const FIRST_BYTE_DELAY: Duration = Duration::from_millis(180);
const CHUNK_DELAY: Duration = Duration::from_millis(14);

/// Number of video chunks, and bytes per chunk.
const FILM: (usize, usize) = (40, 100_000);

const PIXEL: &[u8] = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x0b\x6e\x72\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";

/// Starts the origin; it runs until the process exits.
pub async fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // Ignore clients that disconnect.
                let _ = serve(stream).await;
            });
        }
    });
    Ok(addr)
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut start = [0; 2048];
    // Peeked, so that the protocol is known before a byte is consumed.
    let n = stream.peek(&mut start).await?;
    if String::from_utf8_lossy(&start[..n]).to_ascii_lowercase().contains("upgrade: websocket") {
        return socket(stream).await;
    }
    // No HTTP request begins with a zero byte: an echo of unknown bytes.
    if start[..n].first() == Some(&0) {
        stream.read_exact(&mut start[..n]).await?;
        stream.write_all(&start[..n]).await?;
        return stream.shutdown().await;
    }
    answer(&mut stream).await
}

pub async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let Some((head, body)) = read(stream).await? else { return Ok(()) };
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method == "POST"
        && let Some(answer) = fake_model::answer(path, &body)
    {
        tokio::time::sleep(FIRST_BYTE_DELAY).await;
        begin(stream, answer.status, answer.media, None).await?;
        for piece in &answer.pieces {
            stream.write_all(piece.as_bytes()).await?;
            tokio::time::sleep(CHUNK_DELAY).await;
        }
        return stream.shutdown().await;
    }
    page(stream, path.split('?').next().unwrap_or_default(), &body).await
}

/// Reads head and body of a request; `None` if it is too long or truncated.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if bytes.len() > MAX_REQUEST || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length =
        head.to_ascii_lowercase().lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let mut body = bytes.split_off(end);
    while body.len() < length.unwrap_or_default() {
        if body.len() > MAX_REQUEST || stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some((head, body)))
}

async fn begin(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    media: &str,
    length: Option<usize>,
) -> io::Result<()> {
    let length = length.map(|n| format!("Content-Length: {n}\r\n")).unwrap_or_default();
    let head =
        format!("HTTP/1.1 {status} \r\nContent-Type: {media}\r\nServer: demo\r\n{length}Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await
}

async fn page(stream: &mut (impl AsyncWrite + Unpin), path: &str, sent: &[u8]) -> io::Result<()> {
    let products = r#"{"products":[{"id":1,"name":"Lamp","price":"19.90","tags":["light","desk"]},{"id":2,"name":"Chair","price":"89.00","tags":["seat"]}],"next":null}"#;
    let (status, media, body): (u16, &str, Vec<u8>) = match path {
        "/" => (200, "text/html; charset=utf-8", b"<!doctype html><html><head><title>Shop</title></head><body><h1>Shop</h1><p>Lamps and chairs.</p></body></html>".to_vec()),
        "/products" => (200, "application/json", products.into()),
        "/orders" => (201, "application/json", br#"{"order":4711,"state":"accepted"}"#.to_vec()),
        "/reservations" => (201, "application/json", br#"{"reserved":true,"until":"tomorrow"}"#.to_vec()),
        "/graphql" => (200, "application/json", br#"{"data":{"products":[{"id":1,"name":"Lamp","price":"19.90"}]}}"#.to_vec()),
        "/photos" => (201, "application/xml", b"<?xml version=\"1.0\"?><photo id=\"12\"><title>Lamp by night</title><size width=\"1\" height=\"1\"/></photo>".to_vec()),
        "/login" => (302, "text/plain", Vec::new()),
        "/pixel.gif" => (200, "image/gif", PIXEL.to_vec()),
        "/app.css" => (200, "text/css", b"body { font: 16px sans-serif }\nh1 { color: teal }\n".to_vec()),
        "/broken" => (500, "application/json", br#"{"error":"the database is away"}"#.to_vec()),
        "/busy" => (503, "text/plain", b"try again later".to_vec()),
        "/master.m3u8" => (200, "application/vnd.apple.mpegurl", b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1280000,RESOLUTION=1280x720\nlow.m3u8\n".to_vec()),
        "/film.mpd" => (200, "application/dash+xml", b"<?xml version=\"1.0\"?><MPD type=\"static\" mediaPresentationDuration=\"PT6S\"><Period><AdaptationSet mimeType=\"video/mp4\"><Representation id=\"1\" bandwidth=\"800000\"/></AdaptationSet></Period></MPD>".to_vec()),
        "/points" => (200, "application/msgpack", b"\x82\xa6points\x2a\xa5until\xaa2027-01-01".to_vec()),
        "/sizes" => (200, "application/x-protobuf", b"\x08\x96\x01\x12\x05small\x12\x05large".to_vec()),
        "/shop.Stock/Get" => (200, "application/grpc-web+proto", b"\0\0\0\0\x08\x08\x01\x12\x04Lamp\x80\0\0\0\x0fgrpc-status:0\r\n".to_vec()),
        "/payments" => (201, "application/json", br#"{"payment":"p-81","state":"booked"}"#.to_vec()),
        "/echo" => (200, "application/octet-stream", sent.to_vec()),
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            (200, "text/plain", b"at last".to_vec())
        }
        "/events" => {
            begin(stream, 200, "text/event-stream", None).await?;
            for n in 1..=6 {
                stream.write_all(format!("event: stock\ndata: {{\"product\":1,\"left\":{}}}\n\n", 10 - n).as_bytes()).await?;
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            return stream.shutdown().await;
        }
        "/film.mp4" => {
            begin(stream, 200, "video/mp4", Some(FILM.0 * FILM.1)).await?;
            for n in 0..FILM.0 {
                stream.write_all(&vec![n as u8; FILM.1]).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            return stream.shutdown().await;
        }
        "/cut" => {
            // Announces more than it sends: a response that breaks off.
            begin(stream, 200, "application/json", Some(1000)).await?;
            stream.write_all(b"{\"half\":").await?;
            return stream.shutdown().await;
        }
        _ => (404, "application/json", br#"{"error":"there is no such page"}"#.to_vec()),
    };
    begin(stream, status, media, Some(body.len())).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

async fn socket(stream: TcpStream) -> io::Result<()> {
    let mut socket = tokio_tungstenite::accept_async(stream).await.map_err(io::Error::other)?;
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() || message.is_binary() {
            socket.send(message).await.map_err(io::Error::other)?;
        }
    }
    Ok(())
}
