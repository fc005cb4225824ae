//! The demo's video: a sealed link to it and a client that streams it.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct MediaDemo {
    gateway: SocketAddr,
    /// Path and query of the sealed link.
    path: String,
}

impl MediaDemo {
    /// Where the origin serves the video.
    pub fn video_url() -> String {
        format!("https://{}/film.mp4", crate::CDN)
    }

    /// A client of the video behind a sealed link; `None` if the link is not a `http` URL.
    pub fn new(gateway: SocketAddr, link: &str) -> Option<Self> {
        let (_, path) = link.strip_prefix("http://")?.split_once('/')?;
        Some(Self { gateway, path: format!("/{path}") })
    }

    pub async fn watch(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.gateway).await?;
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: player/1.4 (demo)\r\nConnection: close\r\n\r\n",
            self.path, self.gateway,
        );
        stream.write_all(head.as_bytes()).await?;
        let mut buffer = vec![0; 64 << 10];
        while stream.read(&mut buffer).await? > 0 {}
        Ok(())
    }
}
