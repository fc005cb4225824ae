//! After a protocol change: WebSocket messages seen as they pass, other protocols as bytes, both ways until both ends
//! are done.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use interflow_codec::websocket;
use interflow_net::ingress::ServiceReply;
use interflow_net::io::IoStream;
use interflow_types::budget::MemoryReservation;
use interflow_types::{
    ByteCounts, Direction, Error, ErrorKind, HttpVersion, MessageKind, RequestHead, RequestId, ResponseHead,
    ResponseHeadFilter, Result, StatusCode, StreamMessage,
};
use sha1::{Digest, Sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, Notify};

use crate::http::messages::{WsDirection, WsEvent};
use crate::http::{hop_by_hop, websocket_messages};
use crate::observe::flow_guard::FlowGuard;
use crate::worker::ActiveConfig;

/// The origin changed the protocol: tells the client in its own version's way, then carries what follows.
pub(crate) fn complete_upgrade(
    mut tracker: FlowGuard,
    live: &Arc<ActiveConfig>,
    request: RequestHead,
    mut head: ResponseHead,
    upstream: IoStream,
) -> ServiceReply {
    hop_by_hop::clean_response(&mut head.headers, true);
    ResponseHeadFilter::for_flow(&tracker.flow).apply(&mut head);
    RequestId::echo(&tracker.flow, &mut head.headers);
    match request.version {
        HttpVersion::H2 => {
            head.status = StatusCode::OK;
            for name in ["connection", "upgrade", "sec-websocket-accept"] {
                head.headers.remove(name);
            }
        }
        HttpVersion::Http10 | HttpVersion::Http11 => {
            head.status = StatusCode::SWITCHING_PROTOCOLS;
            head.reason = "Switching Protocols".into();
            set_upgrade_headers(&request, &mut head);
        }
    }
    tracker.response(&head);
    let idle = live.settings.config.timeouts.tunnel_idle.0;
    let websocket = request.protocol.as_deref() == Some("websocket");
    let leg = |direction| WsDirection::new(direction, &head.headers);
    let legs = websocket.then(|| (leg(Direction::Request), leg(Direction::Response)));
    ServiceReply::Upgrade(head, Box::new(move |client| Box::pin(relay(tracker, client, upstream, legs, idle))))
}

/// What a 101 over HTTP/1 needs when the origin answered over HTTP/2, or a key of our own was used
/// (RFC 6455 4.2.2, RFC 8441 5).
fn set_upgrade_headers(request: &RequestHead, head: &mut ResponseHead) {
    if let Some(protocol) = &request.protocol
        && !head.headers.contains("upgrade")
    {
        head.headers.append_unchecked(b"Connection", b"Upgrade");
        head.headers.append_unchecked(b"Upgrade", protocol.as_bytes());
    }
    if let Some(key) = request.headers.get("sec-websocket-key") {
        let digest = Sha1::new().chain_update(key).chain_update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
        head.headers.set("Sec-WebSocket-Accept", STANDARD.encode(digest)).expect("base64 is a well-formed value");
    }
}

/// What both directions of an upgraded connection share.
struct UpgradedState {
    tracker: FlowGuard,
    bytes: ByteCounts,
    moved: tokio::time::Instant,
    /// Whether the client, and the origin, have said that they close (RFC 6455 5.5.1): nothing can be lost behind that.
    closed: [bool; 2],
    /// Whether stages are shown the messages.
    followed: bool,
    /// Messages that stages put in while they were shown one of the other direction, by where they go.
    injected: [Vec<StreamMessage>; 2],
    /// How many bytes they take.
    unread: [usize; 2],
    /// Counts them towards the process's budget.
    held: [MemoryReservation; 2],
}

impl UpgradedState {
    /// Has the other direction write what stages put in for it while they were shown one of this.
    fn inject_reply(&mut self, from: Direction, back: Vec<StreamMessage>, waiting: &[Notify; 2]) -> Result<()> {
        if back.is_empty() {
            return Ok(());
        }
        let other = 1 - direction_index(from);
        self.unread[other] += back.iter().map(|m| m.payload.len() + MESSAGE_OVERHEAD).sum::<usize>();
        self.injected[other].extend(back);
        if self.unread[other] > MAX_INJECTED_BYTES {
            let what = "the messages that a stage puts in are not read by the one they go to";
            return Err(Error::new(ErrorKind::BodyTooLarge, what));
        }
        self.held[other].resize(self.unread[other])?;
        waiting[other].notify_one();
        Ok(())
    }
}

/// The most bytes of messages put in that wait to be written, each counted with what it takes itself.
const MAX_INJECTED_BYTES: usize = 4 << 20;
const MESSAGE_OVERHEAD: usize = size_of::<StreamMessage>();

/// How long the ends of a WebSocket that both have closed may take to let go of their connections.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

const fn direction_index(direction: Direction) -> usize {
    match direction {
        Direction::Request => 0,
        Direction::Response => 1,
    }
}

/// The two legs of a WebSocket; `None` for another protocol.
type WsDirections = Option<(WsDirection, WsDirection)>;

async fn relay(tracker: FlowGuard, client: IoStream, upstream: IoStream, legs: WsDirections, idle: Duration) {
    let (client_read, mut client_write) = tokio::io::split(client);
    let (upstream_read, mut upstream_write) = tokio::io::split(upstream);
    let websocket = legs.is_some();
    let (up, down) = legs.map_or((None, None), |(up, down)| (Some(up), Some(down)));
    let moved = tokio::time::Instant::now();
    let bytes = ByteCounts::default();
    let (followed, closed) = (tracker.wants_messages(), [false; 2]);
    let carried = Mutex::new(UpgradedState {
        tracker,
        bytes,
        moved,
        closed,
        followed,
        injected: Default::default(),
        unread: [0; 2],
        held: Default::default(),
    });
    let (over, waiting) = (Notify::new(), &[Notify::new(), Notify::new()]);
    let shared = (&carried, &over);
    let up = UpgradedCopy {
        from: client_read,
        to: &mut upstream_write,
        direction: Direction::Request,
        leg: up,
        shared,
        waiting,
    };
    let down = UpgradedCopy {
        from: upstream_read,
        to: &mut client_write,
        direction: Direction::Response,
        leg: down,
        shared,
        waiting,
    };
    let both = async { tokio::try_join!(up.run(), down.run()) };
    let watch = async {
        loop {
            let moved = carried.lock().await.moved;
            tokio::time::sleep_until(moved + idle).await;
            if carried.lock().await.moved == moved {
                return;
            }
        }
    };
    let end = tokio::select! {
        done = both => done.map(|_| ()),
        () = watch => Err(Error::new(ErrorKind::ClientTimeout, "nothing moved for too long")),
        () = async { over.notified().await; tokio::time::sleep(CLOSE_TIMEOUT).await } => Ok(()),
    };
    let UpgradedState { tracker, bytes, .. } = carried.into_inner();
    match end {
        Ok(()) => tracker.tunnelled(bytes),
        Err(e) => {
            if websocket && matches!(e.kind(), ErrorKind::Denied | ErrorKind::BodyTooLarge | ErrorKind::Overloaded) {
                send_close_frame(&mut client_write, &e).await;
            }
            tracker.tunnel_failed(&e, bytes);
        }
    }
}

/// Tells the client why its WebSocket ends: a close frame with 1008, a policy's violation (RFC 6455 7.4.1), or 1013, try
/// again later (IANA's registry of close codes).
async fn send_close_frame(client: &mut WriteHalf<IoStream>, e: &Error) {
    let code: u16 = if e.kind() == ErrorKind::Overloaded { 1013 } else { 1008 };
    let why = e.message();
    // A control frame holds 125 bytes (5.5), two of which are the code.
    let why = why.get(..why.floor_char_boundary(120)).unwrap_or_default();
    let payload = [&code.to_be_bytes()[..], why.as_bytes()].concat();
    let mut frame = Vec::new();
    websocket::write_frame(&mut frame, websocket::Opcode::Close, &payload, None);
    let told = async {
        client.write_all(&frame).await?;
        client.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
}

/// One direction, to its end; the end is passed on.
struct UpgradedCopy<'a> {
    from: ReadHalf<IoStream>,
    to: &'a mut WriteHalf<IoStream>,
    direction: Direction,
    leg: Option<WsDirection>,
    /// What both directions know, and word that both sides have closed.
    shared: (&'a Mutex<UpgradedState>, &'a Notify),
    /// Told when a message was put in, by where it goes.
    waiting: &'a [Notify; 2],
}

impl UpgradedCopy<'_> {
    async fn run(mut self) -> Result<()> {
        let gone = |kind: ErrorKind, e| Error::new(kind, "the connection broke").with_source(e);
        let (reads, writes) = match self.direction {
            Direction::Request => (ErrorKind::ClientGone, ErrorKind::UpstreamClosed),
            Direction::Response => (ErrorKind::UpstreamClosed, ErrorKind::ClientGone),
        };
        let mut buffer = BytesMut::with_capacity(16 << 10);
        let mut out = Vec::new();
        loop {
            buffer.clear();
            out.clear();
            let came = tokio::select! {
                biased;
                came = self.from.read_buf(&mut buffer) => Some(came),
                () = self.waiting[direction_index(self.direction)].notified() => None,
            };
            let read = match came {
                // Whoever has closed need not take leave of TLS as well.
                Some(Err(_)) if self.shared.0.lock().await.closed[direction_index(self.direction)] => Some(0),
                Some(read) => Some(read.map_err(|e| gone(reads, e))?),
                None => None,
            };
            let looked = match read {
                Some(0) => {
                    let _ = self.to.shutdown().await;
                    return Ok(());
                }
                Some(_) => self.inspect(&buffer, &mut out).await,
                None => Ok(()),
            };
            let guarded = self.write_injected(&mut out).await;
            let written = async {
                self.to.write_all(&out).await?;
                self.to.flush().await
            };
            if let Err(e) = written.await {
                // Nor does whoever has closed need to hear more.
                let heard = self.shared.0.lock().await.closed[1 - direction_index(self.direction)];
                return if heard { Ok(()) } else { Err(gone(writes, e)) };
            }
            // What stands before a message that ends the connection goes out before its end.
            looked?;
            guarded?;
        }
    }

    /// Writes what was put in for this direction, unless a message is under way that nothing may come between.
    /// What goes to the origin is looked at like anything that the client says: a rule may have made it of an answer.
    async fn write_injected(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(leg) = self.leg.as_mut().filter(|leg| leg.is_between_messages()) else { return Ok(()) };
        let carried = &mut *self.shared.0.lock().await;
        carried.unread[direction_index(self.direction)] = 0;
        let _held = std::mem::take(&mut carried.held[direction_index(self.direction)]);
        for message in std::mem::take(&mut carried.injected[direction_index(self.direction)]) {
            if self.direction == Direction::Response {
                carried.tracker.message(&message);
                leg.write_injected(out, &message);
                continue;
            }
            let mut back = Vec::new();
            let (messages, asked) =
                websocket_messages::inspect_injected(&mut carried.tracker, message, &mut back).await;
            messages.iter().for_each(|message| leg.write_injected(out, message));
            carried.inject_reply(self.direction, back, self.waiting)?;
            asked?;
        }
        Ok(())
    }

    /// Counts the bytes, shows the messages in them around, and puts into `out` what goes on.
    async fn inspect(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (carried, over) = self.shared;
        let carried = &mut *carried.lock().await;
        carried.moved = tokio::time::Instant::now();
        match self.direction {
            Direction::Request => carried.bytes.sent += bytes.len() as u64,
            Direction::Response => carried.bytes.received += bytes.len() as u64,
        }
        let tracker = &mut carried.tracker;
        std::future::poll_fn(|cx| tracker.poll_ready(cx)).await;
        let Some(leg) = &mut self.leg else {
            out.extend_from_slice(bytes);
            return Ok(());
        };
        if !carried.followed {
            // Nobody changes anything: the bytes go on at once, whether a message is whole or not.
            out.extend_from_slice(bytes);
            leg.push(bytes);
            while let Some(seen) = leg.next() {
                match seen {
                    WsEvent::Message(message, _) => {
                        carried.closed[direction_index(self.direction)] |= message.kind == MessageKind::Close;
                        tracker.message(&message);
                    }
                    WsEvent::Overloaded => tracker.flow.tag("messages:overloaded"),
                    WsEvent::Part(..) | WsEvent::Lost(_) => {}
                }
            }
        } else {
            leg.push(bytes);
            while let Some(seen) = leg.next() {
                let close = matches!(&seen, WsEvent::Message(message, _) if message.kind == MessageKind::Close);
                carried.closed[direction_index(self.direction)] |= close;
                let (back, asked) = websocket_messages::run_message_stages(&mut carried.tracker, leg, seen, out).await;
                carried.inject_reply(self.direction, back, self.waiting)?;
                asked?;
            }
        }
        if carried.closed == [true; 2] {
            over.notify_one();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::{Headers, Method, Scheme, Url};

    #[test]
    fn the_accept_field_answers_the_clients_own_key() {
        let request = RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Http, authority: "a:80".parse().unwrap(), path: "/".into() },
            version: HttpVersion::Http11,
            headers: [("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")].into_iter().collect(),
            protocol: Some("websocket".into()),
        };
        let mut head = ResponseHead { headers: Headers::new(), ..ResponseHead::new(StatusCode::OK) };
        set_upgrade_headers(&request, &mut head);
        // The example of RFC 6455 1.3.
        assert_eq!(head.headers.get_str("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(head.headers.get_str("upgrade"), Some("websocket"));
    }
}
