//! Upgraded connections: relays bytes both ways until both sides have closed, and passes WebSocket messages to
//! recorder and stages.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use interflow_codec::websocket;
use interflow_net::ingress::OnUpgrade;
use interflow_net::io::IoStream;
use interflow_types::budget::MemoryReservation;
use interflow_types::{
    ByteCounts, Direction, Error, ErrorKind, HttpVersion, MessageKind, Method, RequestHead, ResponseHead,
    ResponseHeadFilter, Result, StatusCode, StreamMessage, random_bytes,
};
use sha1::{Digest, Sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, Notify};

use crate::http::messages::{WsDirection, WsEvent};
use crate::http::{hop_by_hop, websocket_messages};
use crate::observe::flow_guard::FlowGuard;
use crate::observe::login_watch::LoginWatch;
use crate::state::ActiveConfig;

/// The origin switched protocols: the head that answers the client in its own HTTP version, and what relays afterwards.
pub(crate) fn complete_upgrade(
    mut guard: FlowGuard,
    config: &Arc<ActiveConfig>,
    request: RequestHead,
    mut head: ResponseHead,
    upstream: IoStream,
) -> (ResponseHead, OnUpgrade) {
    // `true` keeps `Connection` and `Upgrade`, which are hop-by-hop but make up the upgrade itself.
    hop_by_hop::clean_response(&mut head.headers, true);
    ResponseHeadFilter::for_flow(&guard.flow).apply(&mut head);
    hop_by_hop::add_client_fields(&guard.flow, &mut head.headers);
    match request.version {
        // Extended CONNECT is answered with 200, and HTTP/2 forbids the fields of an HTTP/1.1 upgrade (RFC 8441 5).
        HttpVersion::H2 => {
            head.status = StatusCode::OK;
            for name in ["connection", "upgrade", "sec-websocket-accept"] {
                head.headers.remove(name);
            }
        }
        HttpVersion::Http10 | HttpVersion::Http11 => {
            // An origin's own 101 answers the client's key: whether it does so rightly, the client checks.
            if head.status != StatusCode::SWITCHING_PROTOCOLS {
                set_upgrade_headers(&request, &mut head);
            }
            head.status = StatusCode::SWITCHING_PROTOCOLS;
            head.reason = "Switching Protocols".into();
        }
    }
    guard.response(&head);
    guard.store_open();
    let idle = config.settings.config.timeouts.tunnel_idle.0;
    let websocket = request.protocol.as_deref() == Some("websocket");
    let direction_state = |direction| WsDirection::new(direction, &head.headers);
    // For another protocol, the bytes are relayed without parsing.
    let legs = websocket.then(|| (direction_state(Direction::Request), direction_state(Direction::Response)));
    // Relaying starts only when the server has written the head and hands over the connection.
    (head, Box::new(move |client| Box::pin(relay(guard, client, upstream, legs, idle))))
}

/// The error of an extended CONNECT that is answered with success, but without a switch of protocols: the client would
/// take the content for data of its tunnel (RFC 8441 5).
pub(crate) fn check_not_accepted(request: &RequestHead, status: StatusCode) -> Result<()> {
    match &request.protocol {
        Some(protocol) if request.method == Method::CONNECT && status.is_success() => Err(Error::new(
            ErrorKind::BadResponse,
            format!("{} answered {status} instead of switching to {protocol}", request.url.authority),
        )),
        _ => Ok(()),
    }
}

/// Sets a key of Interflow's own, for an origin of HTTP/1.1 (RFC 6455 4.1).
pub(crate) fn set_key(head: &mut RequestHead) {
    let _ = head.headers.set("Sec-WebSocket-Key", STANDARD.encode(random_bytes::<16>()));
}

/// Checks what an origin answers over HTTP/1.1 to a key of Interflow's own (RFC 6455 4.1).
pub(crate) fn check_accept(request: &RequestHead, head: &ResponseHead) -> Result<()> {
    let right = || request.headers.get("sec-websocket-key").map(accept_of);
    if head.status == StatusCode::SWITCHING_PROTOCOLS
        && head.headers.get_str("sec-websocket-accept").map(str::trim) != right().as_deref()
    {
        return Err(Error::new(ErrorKind::BadResponse, "the origin's Sec-WebSocket-Accept is wrong (RFC 6455 4.1)"));
    }
    Ok(())
}

/// The answer to a key, with the GUID of RFC 6455 1.3.
fn accept_of(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize())
}

/// Sets what a 101 over HTTP/1 needs if the origin answered over HTTP/2 (RFC 6455 4.2.2, RFC 8441 5).
fn set_upgrade_headers(request: &RequestHead, head: &mut ResponseHead) {
    if let Some(protocol) = &request.protocol {
        head.headers.append_unchecked(b"Connection", b"Upgrade");
        head.headers.append_unchecked(b"Upgrade", protocol.as_bytes());
    }
    if let Some(key) = request.headers.get("sec-websocket-key") {
        head.headers.set("Sec-WebSocket-Accept", accept_of(key)).expect("base64 is a well-formed value");
    }
}

/// State shared by both directions of an upgraded connection. One async lock covers it: each direction holds it while
/// its stages run, so messages of both directions are processed one at a time.
struct UpgradedState {
    guard: FlowGuard,
    bytes: ByteCounts,
    /// When bytes last arrived in either direction, for the idle timeout.
    moved: tokio::time::Instant,
    /// Whether the client, and the origin, have sent a Close frame (RFC 6455 5.5.1): no data can follow it.
    closed: [bool; 2],
    /// The first end of a WebSocket: an error if it was not preceded by a Close frame.
    first_end: Option<Result<()>>,
    /// Whether stages inspect the messages. Otherwise they are only recorded, and bytes are forwarded unparsed.
    followed: bool,
    /// Messages that stages injected while processing one of the other direction, by the direction they are sent in;
    /// `unread` is their size in bytes, `held` their share of the process's memory budget.
    injected: [Vec<StreamMessage>; 2],
    unread: [usize; 2],
    held: [MemoryReservation; 2],
}

impl UpgradedState {
    /// Queues messages that stages injected for the other direction, and wakes it.
    fn inject_reply(&mut self, from: Direction, back: Vec<StreamMessage>, waiting: &[Notify; 2]) -> Result<()> {
        if back.is_empty() {
            return Ok(());
        }
        // The other direction: a message from the client is answered to the client.
        let other = 1 - from as usize;
        self.unread[other] += back.iter().map(|m| m.payload.len() + MESSAGE_OVERHEAD).sum::<usize>();
        self.injected[other].extend(back);
        // Checked before the budget is charged, so that one connection cannot take much of it.
        if self.unread[other] > MAX_INJECTED_BYTES {
            let what = "the receiver does not read the messages that a stage injects";
            return Err(Error::new(ErrorKind::BodyTooLarge, what));
        }
        self.held[other].resize(self.unread[other])?;
        // The permit is kept if that direction is not waiting right now, so the wake-up cannot be lost.
        waiting[other].notify_one();
        Ok(())
    }
}

/// Bound on queued injected messages in bytes, including their overhead. Beyond it, the connection is closed.
const MAX_INJECTED_BYTES: usize = 4 << 20;
const MESSAGE_OVERHEAD: usize = size_of::<StreamMessage>();

/// How long both sides of a WebSocket have to close their connections after both sent Close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The two directions of a WebSocket; `None` for another protocol.
type WsDirections = Option<(WsDirection, WsDirection)>;

async fn relay(guard: FlowGuard, client: IoStream, upstream: IoStream, legs: WsDirections, idle: Duration) {
    let (client_read, mut client_write) = tokio::io::split(client);
    let (upstream_read, mut upstream_write) = tokio::io::split(upstream);
    let websocket = legs.is_some();
    let (up, down) = legs.map_or((None, None), |(up, down)| (Some(up), Some(down)));
    let moved = tokio::time::Instant::now();
    // `up` and `down` share the state through the mutex; each has its own read half and borrows a write half.
    let bytes = ByteCounts::default();
    let (followed, closed) = (guard.wants_messages(), [false; 2]);
    let login = guard.login.clone();
    let carried = Mutex::new(UpgradedState {
        guard,
        bytes,
        moved,
        closed,
        first_end: None,
        followed,
        injected: Default::default(),
        unread: [0; 2],
        held: Default::default(),
    });
    let (over, waiting) = (Notify::new(), &[Notify::new(), Notify::new()]);
    let shared = (&carried, &over);
    let copy = |from, to, direction, leg| UpgradedCopy { from, to, direction, leg, shared, waiting };
    let up = copy(client_read, &mut upstream_write, Direction::Request, up);
    let down = copy(upstream_read, &mut client_write, Direction::Response, down);
    // The first error of either direction drops the other; a clean end waits for both (half-close).
    let both = async { tokio::try_join!(up.run(), down.run()) };
    // The idle timeout covers both directions: traffic in either one postpones it.
    let watch = async {
        loop {
            // Not reset by a timer per read: the loop wakes once per idle period and looks at the time of the last
            // byte.
            let moved = carried.lock().await.moved;
            tokio::time::sleep_until(moved + idle).await;
            if carried.lock().await.moved == moved {
                return;
            }
        }
    };
    let end = tokio::select! {
        done = both => done.map(|_| ()),
        () = watch => Err(Error::new(ErrorKind::ClientTimeout, "idle timeout: no traffic")),
        error = LoginWatch::ended_if(login.as_ref()) => Err(error),
        // Both sent Close: RFC 6455 7.1.1 lets the server close first; a peer that does not is not waited for.
        () = async { over.notified().await; tokio::time::sleep(CLOSE_TIMEOUT).await } => Ok(()),
    };
    // Both directions are dropped by now, and with them their borrows.
    let UpgradedState { guard, bytes, first_end, .. } = carried.into_inner();
    match end.and(first_end.unwrap_or(Ok(()))) {
        Ok(()) => guard.tunnelled(bytes),
        Err(e) => {
            // Only errors of a policy or limit are explained to the client: the others mean that a connection is
            // broken.
            let explained =
                [ErrorKind::Denied, ErrorKind::Unauthorized, ErrorKind::BodyTooLarge, ErrorKind::Overloaded];
            if websocket && explained.contains(&e.kind()) {
                send_close_frame(&mut client_write, &e).await;
            }
            guard.tunnel_failed(&e, bytes);
        }
    }
}

/// Tells the client why its WebSocket ends: a Close frame with 1008 (policy violation, RFC 6455 7.4.1), 1009
/// (message too big) or 1013 (try again later, IANA registry of close codes).
async fn send_close_frame(client: &mut WriteHalf<IoStream>, e: &Error) {
    let code: u16 = match e.kind() {
        ErrorKind::Overloaded => 1013,
        ErrorKind::BodyTooLarge => 1009,
        _ => 1008,
    };
    let why = e.message();
    // A control frame holds 125 bytes (5.5), two of which are the status code.
    let why = why.get(..why.floor_char_boundary(120)).unwrap_or_default();
    let payload = [&code.to_be_bytes()[..], why.as_bytes()].concat();
    let mut frame = Vec::new();
    // From the server's side: not masked.
    websocket::write_frame(&mut frame, websocket::Opcode::Close, &payload, None);
    let handshake = async {
        client.write_all(&frame).await?;
        client.shutdown().await
    };
    // The connection is ending anyway: a client that does not read gets one second.
    let _ = tokio::time::timeout(Duration::from_secs(1), handshake).await;
}

/// Copies one direction until its end, and forwards the end.
struct UpgradedCopy<'a> {
    from: ReadHalf<IoStream>,
    to: &'a mut WriteHalf<IoStream>,
    direction: Direction,
    leg: Option<WsDirection>,
    /// Shared state, and the signal that both sides have closed.
    shared: (&'a Mutex<UpgradedState>, &'a Notify),
    /// Signals that a message was injected, by the direction it is sent in.
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
            // Both `read_buf` and `notified` are cancel-safe: the branch that is not taken loses nothing.
            let came = tokio::select! {
                // Reading first: traffic must not starve behind messages that stages inject.
                biased;
                came = self.from.read_buf(&mut buffer) => Some(came),
                () = self.waiting[self.direction as usize].notified() => None,
            };
            let read = match came {
                // After a Close frame, a missing TLS close_notify is not an error.
                Some(Err(_)) if self.shared.0.lock().await.closed[self.direction as usize] => Some(0),
                Some(read) => Some(read.map_err(|e| gone(reads, e))?),
                None => None,
            };
            let looked = match read {
                Some(0) => {
                    if let Some(leg) = &self.leg {
                        let state = &mut *self.shared.0.lock().await;
                        // Of frames that are not read any more, one may have been a Close frame.
                        let is_cut = leg.decoder.is_some() && state.closed == [false; 2];
                        let cut = || Err(Error::new(reads, "the WebSocket ended without a Close frame"));
                        state.first_end.get_or_insert_with(|| if is_cut { cut() } else { Ok(()) });
                    }
                    // A half-close: the other direction goes on until its own end.
                    // Forwards the end as a FIN, or as close_notify within TLS.
                    let _ = self.to.shutdown().await;
                    return Ok(());
                }
                Some(_) => self.inspect(&buffer, &mut out).await,
                None => Ok(()),
            };
            // Also after a failed inspection: what was injected before it is still delivered.
            let guarded = self.write_injected(&mut out).await;
            let written = async {
                self.to.write_all(&out).await?;
                self.to.flush().await
            };
            if let Err(e) = written.await {
                // After a Close frame, a failed write is not an error either.
                let heard = self.shared.0.lock().await.closed[1 - self.direction as usize];
                return if heard { Ok(()) } else { Err(gone(writes, e)) };
            }
            // Messages before the one that ends the connection are still sent.
            looked?;
            guarded?;
        }
    }

    /// Writes what was injected for this direction, unless a fragmented message is in progress. Messages to the
    /// origin are inspected as the client's are: a rule may have built one from a response.
    async fn write_injected(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(leg) = self.leg.as_mut().filter(|leg| leg.is_between_messages()) else { return Ok(()) };
        let carried = &mut *self.shared.0.lock().await;
        carried.unread[self.direction as usize] = 0;
        // The reservation is released when the messages have been appended, at the end of this function.
        let _held = std::mem::take(&mut carried.held[self.direction as usize]);
        for message in std::mem::take(&mut carried.injected[self.direction as usize]) {
            if self.direction == Direction::Response {
                carried.guard.message(&message);
                leg.write_injected(out, &message);
                continue;
            }
            let mut back = Vec::new();
            let (messages, asked) = websocket_messages::inspect_injected(&mut carried.guard, message, &mut back).await;
            messages.iter().for_each(|message| leg.write_injected(out, message));
            carried.inject_reply(self.direction, back, self.waiting)?;
            asked?;
        }
        Ok(())
    }

    /// Counts the bytes, passes their messages to recorder and stages, and appends to `out` what is to be forwarded.
    async fn inspect(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (carried, over) = self.shared;
        let carried = &mut *carried.lock().await;
        carried.moved = tokio::time::Instant::now();
        match self.direction {
            Direction::Request => carried.bytes.sent += bytes.len() as u64,
            Direction::Response => carried.bytes.received += bytes.len() as u64,
        }
        let guard = &mut carried.guard;
        std::future::poll_fn(|cx| guard.poll_ready(cx)).await;
        let Some(leg) = &mut self.leg else {
            out.extend_from_slice(bytes);
            return Ok(());
        };
        if !carried.followed {
            // Nobody changes messages: the bytes are forwarded at once, even of incomplete messages.
            out.extend_from_slice(bytes);
            leg.push(bytes);
            while let Some(seen) = leg.next() {
                match seen {
                    WsEvent::Message(message, _) => {
                        carried.closed[self.direction as usize] |= message.kind == MessageKind::Close;
                        guard.message(&message);
                    }
                    WsEvent::Overloaded => guard.flow.tag("messages:overloaded"),
                    WsEvent::Part(..) | WsEvent::Lost(_) => {}
                }
            }
        } else {
            leg.push(bytes);
            while let Some(seen) = leg.next() {
                // Read before the stages run, which may drop the message.
                let close = matches!(&seen, WsEvent::Message(message, _) if message.kind == MessageKind::Close);
                carried.closed[self.direction as usize] |= close;
                let (back, asked) = websocket_messages::run_message_stages(&mut carried.guard, leg, seen, out).await;
                carried.inject_reply(self.direction, back, self.waiting)?;
                asked?;
            }
        }
        if carried.closed == [true; 2] {
            // Starts the close timeout; a second notification changes nothing.
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
    fn sec_websocket_accept_is_computed_from_the_clients_key() {
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
