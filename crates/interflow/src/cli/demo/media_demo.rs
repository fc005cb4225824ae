//! The demo's video: a sealed link to it and a client that streams it.

use std::io;
use std::net::SocketAddr;

use interflow_media::endpoint::LinkRequest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::instance::run::RunningInstance;

/// A video behind the gateway.
pub struct MediaDemo {
    gateway: SocketAddr,
    /// Path and query of the sealed link.
    path: String,
}

impl MediaDemo {
    /// Creates a link to the origin's video; `None` if no gateway listens.
    pub fn link(running: &RunningInstance, port: u16) -> Option<Self> {
        let gateway = *running.engine.gateway_addresses().first()?;
        let film = format!("http://cdn.example:{port}/film.mp4");
        let request = json!({"endpoint": "/proxy/stream", "destination_url": film, "sealed": true});
        let request: LinkRequest = serde_json::from_value(request).expect("it is a link request");
        let media = &running.components.media;
        let url = media.link(&request, &media.base(gateway)).ok()?.url;
        let (_, path) = url.strip_prefix("http://")?.split_once('/')?;
        Some(Self { gateway, path: format!("/{path}") })
    }

    /// Streams the whole video.
    pub async fn watch(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.gateway).await?;
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: player/1.4 (demo)\r\nConnection: close\r\n\r\n",
            self.path, self.gateway,
        );
        stream.write_all(head.as_bytes()).await?;
        let mut seen = vec![0; 64 << 10];
        while stream.read(&mut seen).await? > 0 {}
        Ok(())
    }
}
