//! Tunnels over loopback TCP and pipes: closes, resets, idle timeout, slow readers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;

type Outcome = Result<ByteCounts, Error>;

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// The client's end, the upstream's end, and the tunnel between them.
async fn tcp_tunnel(
    options: TunnelOptions,
    counters: &Arc<TunnelCounters>,
) -> (TcpStream, TcpStream, JoinHandle<Outcome>) {
    let (client, near) = tcp_pair().await;
    let (upstream, far) = tcp_pair().await;
    let counters = counters.clone();
    let running = tokio::spawn(async move { tunnel(near.into(), far.into(), &options, &counters).await });
    (client, upstream, running)
}

async fn default_tunnel() -> (TcpStream, TcpStream, JoinHandle<Outcome>) {
    tcp_tunnel(TunnelOptions::default(), &Arc::default()).await
}

/// Bytes that identify their tunnel and their offset in it.
struct Pattern(u64);

impl Pattern {
    fn new(tunnel: u64) -> Self {
        Self(tunnel.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn fill(&mut self, into: &mut [u8]) {
        for byte in into {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            *byte = (self.0 >> 32) as u8;
        }
    }
}

/// Sends this many bytes of a pattern, then closes.
async fn send(mut to: impl AsyncWrite + Unpin, tunnel: u64, mut bytes: usize) {
    let mut pattern = Pattern::new(tunnel);
    let mut chunk = vec![0; 37_000];
    while bytes > 0 {
        let n = bytes.min(chunk.len());
        pattern.fill(&mut chunk[..n]);
        to.write_all(&chunk[..n]).await.unwrap();
        bytes -= n;
    }
    to.shutdown().await.unwrap();
}

/// Checks a pattern until its end, pausing between reads, and returns its length.
async fn check(mut from: impl AsyncRead + Unpin, tunnel: u64, rest: Duration) -> usize {
    let mut pattern = Pattern::new(tunnel);
    let (mut got, mut expected) = (vec![0; 50_000], vec![0; 50_000]);
    let mut total = 0;
    loop {
        let n = from.read(&mut got).await.unwrap();
        if n == 0 {
            return total;
        }
        pattern.fill(&mut expected[..n]);
        assert!(got[..n] == expected[..n], "bytes of tunnel {tunnel} changed between {total} and {}", total + n);
        total += n;
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }
}

#[tokio::test]
async fn megabytes_are_relayed_unchanged_in_both_directions_over_every_transport() {
    const SIZE: usize = 3_000_001;
    for (splice, tcp) in [(true, true), (false, true), (true, false)] {
        let counters = TunnelCounters::default();
        let options = TunnelOptions { splice, ..TunnelOptions::default() };
        let (client, upstream, near, far) = if tcp {
            let ((client, near), (upstream, far)) = (tcp_pair().await, tcp_pair().await);
            (IoStream::from(client), IoStream::from(upstream), IoStream::from(near), IoStream::from(far))
        } else {
            let ((client, near), (upstream, far)) = (tokio::io::duplex(9000), tokio::io::duplex(9000));
            (IoStream::other(client), IoStream::other(upstream), IoStream::other(near), IoStream::other(far))
        };
        let (client_in, client_out) = tokio::io::split(client);
        let (upstream_in, upstream_out) = tokio::io::split(upstream);
        let (outcome, (), (), up, down) = tokio::join!(
            tunnel(near, far, &options, &counters),
            send(client_out, 1, SIZE),
            send(upstream_out, 2, SIZE + 5),
            check(upstream_in, 1, Duration::ZERO),
            check(client_in, 2, Duration::ZERO),
        );
        assert_eq!((up, down), (SIZE, SIZE + 5));
        let bytes = ByteCounts { sent: SIZE as u64, received: SIZE as u64 + 5 };
        assert_eq!((outcome.unwrap(), counters.get()), (bytes, bytes));
    }
}

#[tokio::test]
async fn either_side_may_half_close_first_and_still_receive() {
    for client_first in [true, false] {
        let (client, upstream, running) = default_tunnel().await;
        let (mut first, mut second) = if client_first { (client, upstream) } else { (upstream, client) };
        first.write_all(b"question").await.unwrap();
        first.shutdown().await.unwrap();
        let mut got = Vec::new();
        second.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"question");
        second.write_all(b"long ").await.unwrap();
        first.read_exact(&mut [0; 5]).await.unwrap();
        assert!(!running.is_finished(), "the other direction is open");
        second.write_all(b"answer").await.unwrap();
        second.shutdown().await.unwrap();
        let mut got = Vec::new();
        first.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"answer");
        let bytes = running.await.unwrap().unwrap();
        let (sent, received) = if client_first { (8, 11) } else { (11, 8) };
        assert_eq!(bytes, ByteCounts { sent, received });
    }
}

#[tokio::test]
async fn bytes_read_ahead_are_forwarded_first_on_both_sides() {
    let ((mut client, near), (mut upstream, far)) = (tcp_pair().await, tcp_pair().await);
    let near = IoStream::from(near).prefixed(Bytes::from_static(b"hello "));
    let far = IoStream::from(far).prefixed(Bytes::from_static(b"220 "));
    client.write_all(b"world").await.unwrap();
    client.shutdown().await.unwrap();
    upstream.write_all(b"ready").await.unwrap();
    upstream.shutdown().await.unwrap();
    let bytes = tunnel(near, far, &TunnelOptions::default(), &TunnelCounters::default()).await.unwrap();
    assert_eq!(bytes, ByteCounts { sent: 11, received: 9 });
    let (mut up, mut down) = (String::new(), String::new());
    upstream.read_to_string(&mut up).await.unwrap();
    client.read_to_string(&mut down).await.unwrap();
    assert_eq!((&up[..], &down[..]), ("hello world", "220 ready"));
}

#[tokio::test]
async fn a_reset_of_one_side_reaches_the_other_as_a_reset() {
    for (by_client, kind) in [(true, ErrorKind::ClientGone), (false, ErrorKind::UpstreamClosed)] {
        let (client, upstream, running) = default_tunnel().await;
        let (mut breaks, mut hears) = if by_client { (client, upstream) } else { (upstream, client) };
        breaks.write_all(b"half").await.unwrap();
        hears.read_exact(&mut [0; 4]).await.unwrap();
        IoStream::from(breaks).reset_on_drop();
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let heard = hears.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(heard.kind(), io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn response_is_delivered_although_the_upstream_stopped_reading() {
    let (mut client, mut upstream, running) = default_tunnel().await;
    upstream.write_all(b"413 too large").await.unwrap();
    upstream.shutdown().await.unwrap();
    drop(upstream);
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"413 too large");
    // The client goes on sending; the first bytes reach a closed socket, which resets, and the next writes fail.
    for _ in 0..50 {
        if client.write_all(b"more").await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpstreamClosed, "{error}");
}

/// The client's end, the upstream's end, and a tunnel between them that may idle for two minutes; over pipes, which work
/// in paused time.
fn piped_tunnel(counters: &Arc<TunnelCounters>) -> (DuplexStream, DuplexStream, JoinHandle<Outcome>) {
    let options = TunnelOptions { idle: Duration::from_secs(120), ..TunnelOptions::default() };
    let ((client, near), (upstream, far)) = (tokio::io::duplex(100), tokio::io::duplex(100));
    let counters = counters.clone();
    let (near, far) = (IoStream::other(near), IoStream::other(far));
    (client, upstream, tokio::spawn(async move { tunnel(near, far, &options, &counters).await }))
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_is_closed() {
    let start = tokio::time::Instant::now();
    let (mut client, _upstream, running) = piped_tunnel(&Arc::default());
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientTimeout);
    assert!(error.message().contains("carried nothing for 120 s"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 120);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_tunnel_is_not_closed_and_counts_its_bytes_as_they_pass() {
    let counters = Arc::new(TunnelCounters::default());
    let (mut client, mut upstream, running) = piped_tunnel(&counters);
    for i in 1..=8 {
        tokio::time::sleep(Duration::from_secs(119)).await;
        upstream.write_all(b"x").await.unwrap();
        client.read_exact(&mut [0; 1]).await.unwrap();
        assert_eq!(counters.get(), ByteCounts { sent: 0, received: i });
    }
    assert!(!running.is_finished());
}

#[tokio::test]
async fn slow_readers_of_256_tunnels_get_only_their_own_bytes() {
    const SIZE: usize = 200_000;
    let counters = Arc::new(TunnelCounters::default());
    let mut readers = Vec::new();
    let mut tunnels = Vec::new();
    for id in 0..256 {
        let (client, upstream, running) = tcp_tunnel(TunnelOptions::default(), &counters).await;
        // Small windows make every write of the tunnel a partial one.
        socket2::SockRef::from(&client).set_recv_buffer_size(8192).unwrap();
        let rest = Duration::from_millis(id % 4);
        readers.push(tokio::spawn(async move {
            let (mut client_in, mut client_out) = client.into_split();
            let (mut upstream_in, mut upstream_out) = upstream.into_split();
            tokio::join!(
                send(&mut upstream_out, id, SIZE),
                send(&mut client_out, id + 1000, 1000),
                check(&mut client_in, id, rest),
                check(&mut upstream_in, id + 1000, rest),
            )
        }));
        tunnels.push(running);
    }
    for reader in readers {
        let ((), (), down, up) = reader.await.unwrap();
        assert_eq!((down, up), (SIZE, 1000));
    }
    for running in tunnels {
        running.await.unwrap().unwrap();
    }
    assert_eq!(counters.get(), ByteCounts { sent: 256 * 1000, received: 256 * SIZE as u64 });
}

/// Counts how often a future is polled.
struct Polled<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

#[tokio::test]
async fn a_tunnel_with_a_stalled_reader_is_not_polled() {
    for splice in [true, false] {
        let ((client, near), (upstream, far)) = (tcp_pair().await, tcp_pair().await);
        let polls = Arc::new(AtomicUsize::new(0));
        let options = TunnelOptions { splice, ..TunnelOptions::default() };
        let run = async move { tunnel(near.into(), far.into(), &options, &TunnelCounters::default()).await };
        let running = tokio::spawn(Polled(Box::pin(run), polls.clone()));
        let sender = tokio::spawn(send(upstream, 1, 64 << 20));
        // All buffers between the two fill up; then many turns of this runtime poll the tunnel no more.
        let stalled = async {
            let mut before = usize::MAX;
            while before != polls.load(Ordering::Relaxed) {
                before = polls.load(Ordering::Relaxed);
                for _ in 0..5000 {
                    tokio::task::yield_now().await;
                }
            }
            before
        };
        let before = tokio::time::timeout(Duration::from_secs(10), stalled).await.expect("it is polled without end");
        assert!(!sender.is_finished() && before > 0);
        drop(client);
        sender.abort();
        running.abort();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn only_a_direction_with_a_backlog_switches_to_splice() {
    let ((mut client, near), (upstream, far)) = (tcp_pair().await, tcp_pair().await);
    let counters = TunnelCounters::default();
    let mut tunnel = TunnelCopy::new(near.into(), far.into(), true);
    let (_reading, mut writing) = upstream.into_split();
    // The sender is kept open, so that the direction does not end and its state can be checked.
    let sender = tokio::spawn(async move {
        writing.write_all(&vec![7; 300_000]).await.unwrap();
        writing
    });
    let (mut seen, mut spliced) = (0, false);
    let mut buf = vec![0; 16 * 1024];
    while seen < 300_000 {
        tokio::select! {
            biased;
            _ = poll_fn(|cx| tunnel.poll(cx, &counters)) => panic!("it goes on"),
            n = client.read(&mut buf) => seen += n.unwrap(),
        }
        spliced |= tunnel.down.is_spliced();
        assert!(!spliced || counters.get().received >= 64 * 1024);
    }
    assert!(spliced && !tunnel.up.is_spliced());
    let mut sender = sender.await.unwrap();
    assert_eq!(counters.get().received, 300_000);
    // From here on data arrives in small pieces, which are cheaper to copy.
    for _ in 0..10 {
        sender.write_all(&[7; 1000]).await.unwrap();
        let mut left = 1000;
        while left > 0 {
            tokio::select! {
                biased;
                _ = poll_fn(|cx| tunnel.poll(cx, &counters)) => panic!("it goes on"),
                n = client.read(&mut buf) => left -= n.unwrap(),
            }
        }
    }
    assert!(!tunnel.down.is_spliced());
}
