//! A flow being written: applies updates to its row and assembles its bodies.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_types::{CertificateChain, Direction, ResponseHead, Timestamp, UpstreamInfo};

use crate::model::*;
use crate::originals::*;
use crate::store::recording::header_masking::MaskRules;
use crate::store::recording::pending_flow::{
    FlowEnd, FlowSnapshot, FlowStart, OriginalUpdates, PendingFlow, PendingUpdates, RequestStart, WithheldResponse,
};
use crate::store::rows::NewRow;
use crate::store::segments::body_assembly::BodyAssembly;
use crate::store::segments::chunk_refs::{self, SIDES, body_index};

pub(crate) struct InFlightFlow {
    pub(crate) slot: Option<Arc<PendingFlow>>,
    pub(crate) row: FlowRecord,
    pub(crate) seq: i64,
    pub(crate) stored: Option<u64>,
    /// The last transaction that wrote any of its data.
    pub(crate) touched: u64,
    pub(crate) dirty: bool,
    pub(crate) since: Instant,
    pub(crate) bodies: [BodyAssembly; SIDES],
    /// The inline body ends to be written with the row of an ended flow; `None` once written.
    pub(crate) ends: Option<[Bytes; SIDES]>,
    /// The certificate chain presented to the client and the origin's, and whether they are stored.
    pub(crate) certificates: [(Option<CertificateChain>, bool); 2],
    /// Tags that the operator added while it runs.
    pub(crate) marked: Vec<String>,
    /// Dropped after the transaction that stores it.
    pub(crate) withheld: Option<WithheldResponse>,
}

impl InFlightFlow {
    /// A flow at its start. Boxed, because it is larger than a kilobyte and is moved often.
    pub(crate) fn begin(slot: Option<Arc<PendingFlow>>, row: FlowRecord, seq: i64) -> Box<Self> {
        Box::new(Self {
            slot,
            row,
            seq,
            stored: None,
            touched: 0,
            dirty: true,
            since: Instant::now(),
            bodies: Default::default(),
            ends: None,
            certificates: Default::default(),
            marked: Vec::new(),
            withheld: None,
        })
    }

    /// The flow in the form of its first write.
    pub(crate) fn as_new<'a>(&'a self, ends: &'a [Bytes; SIDES]) -> NewRow<'a> {
        NewRow {
            seq: self.seq,
            row: &self.row,
            refs: self.bodies.each_ref().map(|body| &body.refs[..]),
            inline: ends.each_ref().map(|e| &e[..]),
        }
    }

    /// Applies updates of heads and state to the row.
    pub(crate) fn apply_updates(&mut self, updates: &mut PendingUpdates, mask: &MaskRules) {
        self.dirty = true;
        self.withheld = updates.withheld.take().or(self.withheld.take());
        for head in updates.interim.drain(..) {
            self.row
                .interim
                .push(InterimRecord { status: head.status.as_u16(), headers: mask.mask_headers(head.headers) });
        }
        if let Some(head) = updates.response.take() {
            self.row.response = Some(response(head, mask));
        }
        if let Some(original) = updates.original.as_mut() {
            self.apply_original_updates(original, mask);
        }
        let [request, response] = &mut updates.trailers;
        if let (Some(t), Some(r)) = (request.take(), &mut self.row.request) {
            r.trailers = mask.mask_headers(t);
        }
        if let (Some(t), Some(r)) = (response.take(), &mut self.row.response) {
            r.trailers = mask.mask_headers(t);
        }
        if let Some(state) = updates.state.take() {
            self.apply_snapshot(state);
        }
        if let Some(end) = updates.end.take() {
            self.end(end);
        }
    }

    /// Applies body sizes to the row; `kept` is known only after the bodies were processed.
    pub(crate) fn measure(&mut self, sizes: [u64; 2], missing: [Option<MissingReason>; 2]) {
        let stored = [self.bodies[0].stored_bytes(), self.bodies[1].stored_bytes()];
        let bodies = [self.row.request.as_mut().map(|r| &mut r.body), self.row.response.as_mut().map(|r| &mut r.body)];
        for (i, body) in bodies.into_iter().enumerate() {
            if let Some(body) = body {
                // The reason counts only if bytes are missing in fact: it is set in advance when an allowance is used
                // up exactly.
                let missing = body.missing.or(missing[i]).filter(|_| stored[i] < sizes[i]);
                let head_sha256 =
                    self.bodies[i].digest().or(body.head_sha256).filter(|_| missing == Some(MissingReason::Head));
                *body = BodyRecord { size: sizes[i], kept: stored[i], missing, head_sha256 };
            }
        }
    }

    /// Applies the sizes of all bodies to the row.
    pub(crate) fn measure_all(&mut self, updates: &PendingUpdates) {
        self.measure(updates.sizes, updates.missing);
        if let Some(original) = &updates.original {
            self.measure_originals(original.sizes, original.missing);
        }
    }

    fn apply_original_updates(&mut self, updates: &mut OriginalUpdates, mask: &MaskRules) {
        if let Some((url, head, body_edited)) = updates.request.take() {
            // The query of the received URL may contain the same secrets as the one that was sent.
            let url =
                format!("{}://{}{}", url.scheme, url.authority.to_host_header(url.scheme), mask.mask_path(&url.path));
            let head = request(head, mask);
            self.row.original.get_or_insert_default().request = Some(OriginalRequestRecord { url, head, body_edited });
        }
        if let Some((head, body_edited)) = updates.response.take() {
            let head = response(head, mask);
            self.row.original.get_or_insert_default().response = Some(OriginalResponseRecord { head, body_edited });
        }
    }

    /// Like [`measure`](Self::measure), for the bodies as received.
    pub(crate) fn measure_originals(&mut self, sizes: [u64; 2], missing: [Option<MissingReason>; 2]) {
        let Some(original) = &mut self.row.original else { return };
        for direction in [Direction::Request, Direction::Response] {
            let Some(body) = original.edited_body_mut(direction) else { continue };
            let (from, to) = (body_index(direction), chunk_refs::original_body_index(direction));
            let stored = self.bodies[to].stored_bytes();
            let missing = body.missing.or(missing[from]).filter(|_| stored < sizes[from]);
            let head_sha256 =
                self.bodies[to].digest().or(body.head_sha256).filter(|_| missing == Some(MissingReason::Head));
            *body = BodyRecord { size: sizes[from], kept: stored, missing, head_sha256 };
        }
    }

    /// Reverts after a failed transaction: chunks from `first_chunk` on do not exist, nor what it wrote of this flow.
    pub(crate) fn undo(&mut self, transaction: u64, first_chunk: u64) {
        self.bodies.iter_mut().for_each(|b| b.rollback(first_chunk));
        self.certificates.iter_mut().for_each(|(_, stored)| *stored = false);
        self.ends = None;
        if self.stored == Some(transaction) {
            self.stored = None;
        }
        self.dirty = true;
        let row = &self.row;
        let sizes = [row.request.as_ref().map(|r| r.body.size), row.response.as_ref().map(|r| r.body.size)];
        let originals =
            [Direction::Request, Direction::Response].map(|d| row.recorded_body(d, true).map_or(0, |b| b.size));
        self.measure(sizes.map(Option::unwrap_or_default), [Some(MissingReason::Dropped); 2]);
        self.measure_originals(originals, [Some(MissingReason::Dropped); 2]);
        if let Some(slot) = &self.slot {
            slot.updates.lock().mark_missing(MissingReason::Dropped);
        }
    }

    /// Ends its bodies; later data is rejected.
    pub(crate) fn end_bodies(&mut self) {
        self.bodies.iter_mut().for_each(BodyAssembly::give_up);
        self.dirty = true;
        if let Some(slot) = &self.slot {
            slot.updates.lock().mark_missing(MissingReason::Dropped);
            // Told to the capture too, so that it stops queueing bytes that would be rejected.
        }
    }

    fn apply_snapshot(&mut self, s: FlowSnapshot) {
        self.row.user = s.user;
        self.row.timings = s.timings;
        let client = s.client_tls.as_ref().and_then(|tls| tls.certificates.clone());
        let origin = s.upstream.as_ref().and_then(|u| u.tls.as_ref()?.certificates.clone());
        for (known, chain) in self.certificates.iter_mut().zip([client, origin]) {
            // Every snapshot has it again.
            if chain.is_some() && known.0 != chain {
                *known = (chain, false);
            }
        }
        self.row.upstream = s.upstream.map(upstream);
        self.row.tags = s.tags.iter().map(|t| t.to_string()).collect();
        // A snapshot replaces all tags; those that the operator added while the flow runs must survive it.
        for tag in &self.marked {
            if !self.row.tags.contains(tag) {
                self.row.tags.push(tag.clone());
            }
        }
        self.row.attempts = s.attempts;
        self.row.passthrough = s.passthrough.map(|why| why.as_str().into());
        self.row.client.http2 = s.client_http2.map(|f| f.to_string());
        self.row.client.ja4h = s.ja4h.map(|f| f.to_string());
        if let Some(tls) = s.client_tls {
            self.row.client.tls = Some(ClientTlsRecord {
                sni: tls.sni.as_ref().map(ToString::to_string),
                version: tls.version.map(Into::into),
                cipher: tls.cipher.as_ref().map(ToString::to_string),
                alpn_offered: tls.alpn_offered.iter().map(ToString::to_string).collect(),
                alpn: tls.alpn.as_ref().map(ToString::to_string),
                ja3: tls.ja3.as_ref().map(ToString::to_string),
                ja4: tls.ja4.as_ref().map(ToString::to_string),
            });
        }
    }

    pub(crate) fn end(&mut self, end: FlowEnd) {
        self.row.state = end.state;
        self.row.error = end.error;
        if let Some(t) = end.tunnel {
            self.row.tunnel = Some(TunnelRecord { sent: t.sent, received: t.received });
        }
        // Flows that failed early or were cut off have no timings, but a duration is shown for them as well.
        let so_far = || Timestamp::now().micros().saturating_sub(self.row.started.micros());
        self.row.timings.done = self.row.timings.done.or(end.after).or_else(|| Some(so_far()));
    }
}

/// The row of a flow at its start.
pub(crate) fn row_of(slot: &PendingFlow, begin: FlowStart, mask: &MaskRules) -> FlowRecord {
    let mut row = FlowRecord::new(slot.id, begin.born, begin.transport, begin.scheme, begin.authority);
    row.parent = begin.parent;
    row.client = ClientRecord {
        connection: begin.client.connection,
        // Only the client connection is known at the start; TLS facts follow with a snapshot.
        peer: Some(begin.client.peer),
        local: Some(begin.client.local),
        listener: begin.client.listener.clone(),
        accepted: begin.client.accepted,
        process: begin.client.process.as_ref().map(|p| ProcessRecord { pid: p.pid, name: p.name.to_string() }),
        container: begin.client.container.as_deref().map(str::to_owned),
        ..ClientRecord::default()
    };
    row.kind = match &begin.request {
        None => FlowKind::Tunnel,
        // Over HTTP/2 a WebSocket is opened by CONNECT with `:protocol` (RFC 8441); the caller sets it for HTTP/1.1
        // as well.
        Some(r) if r.protocol.as_ref().is_some_and(|p| p.eq_ignore_ascii_case("websocket")) => FlowKind::WebSocket,
        Some(_) => FlowKind::Http,
    };
    row.request = begin.request.map(|r| request(r, mask));
    row
}

fn request(r: RequestStart, mask: &MaskRules) -> RequestRecord {
    RequestRecord {
        method: r.method.as_str().to_owned(),
        path: mask.mask_path(&r.path),
        version: r.version.as_str().into(),
        protocol: r.protocol.map(|p| p.to_string()),
        headers: mask.mask_headers(r.headers),
        ..RequestRecord::default()
    }
}

fn response(head: ResponseHead, mask: &MaskRules) -> ResponseRecord {
    ResponseRecord {
        status: head.status.as_u16(),
        reason: head.reason,
        version: head.version.as_str().into(),
        headers: mask.mask_headers(head.headers),
        ..ResponseRecord::default()
    }
}

fn upstream(u: UpstreamInfo) -> UpstreamRecord {
    UpstreamRecord {
        peer: u.peer,
        local: u.local,
        via: u.via,
        version: u.version.as_str().into(),
        connection: u.connection,
        reused: u.reused,
        tls: u.tls.map(|t| UpstreamTlsRecord {
            version: t.version.map(Into::into),
            cipher: t.cipher.as_ref().map(ToString::to_string),
            alpn: t.alpn.as_ref().map(ToString::to_string),
            unverified: t.unverified,
            problem: t.problem.as_ref().map(ToString::to_string),
            resumed: t.resumed,
            fingerprint: t.fingerprint.as_ref().map(ToString::to_string),
        }),
    }
}
