//! The demo's film: a sealed link to it, and somebody who watches, so that something streams.

use std::io;
use std::net::SocketAddr;

use interflow_media::endpoint::LinkRequest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::run::RunningInstance;

/// A film behind the gateway.
pub struct MediaDemo {
    gateway: SocketAddr,
    /// The link without its host: nothing in it says where it leads.
    path: String,
}

impl MediaDemo {
    /// Makes the link to the film of the origin at this port; nothing where no gateway listens.
    pub fn link(running: &RunningInstance, port: u16) -> Option<Self> {
        let gateway = *running.engine.gateway_addresses().first()?;
        let film = format!("http://cdn.example:{port}/film.mp4");
        let wish = json!({"endpoint": "/proxy/stream", "destination_url": film, "sealed": true});
        let wish: LinkRequest = serde_json::from_value(wish).expect("it is a wish");
        let media = &running.rooms.media;
        let url = media.link(&wish, &media.base(gateway)).ok()?.url;
        let (_, path) = url.strip_prefix("http://")?.split_once('/')?;
        Some(Self { gateway, path: format!("/{path}") })
    }

    /// Watches it to its end.
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
