//! A bare TCP relay: what any proxy at least has to do. Its row is the physical floor of the plain and tunnelled cases.

use std::io;
use std::net::SocketAddr;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

const BUFFER: usize = 64 * 1024;

/// Relays every connection until the process ends.
pub fn run(listen: SocketAddr, dial: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio::spawn(relay(client, dial));
        }
    })
}

async fn relay(mut client: TcpStream, dial: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut origin = TcpStream::connect(dial).await?;
    origin.set_nodelay(true)?;
    copy_bidirectional_with_sizes(&mut client, &mut origin, BUFFER, BUFFER).await?;
    Ok(())
}
