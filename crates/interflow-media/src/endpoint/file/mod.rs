//! Decrypts whole MP4 files with the link's keys, and any byte range of them. The sample index is read once and cached,
//! so that players can seek.
//!
//! All parts of a file must be of the same version: index, fragments and ranges are fetched one by one, and the origin
//! may replace the file in between. Each part is therefore compared with the validators of the first; if they differ,
//! the index is dropped and read once more.

pub mod index;

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use interflow_types::{Body, BodyFrame, Method, RequestedRange, Response, StatusCode};

use self::index::{FileLayout, IndexedFile};
use super::decrypt;
use super::error::{EndpointResult, MediaError, Result};
use super::request::MediaRequest;
use crate::bmff::{BoxHeader, SegmentIndex, boxes};
use crate::cenc::{ContentKeyRing, IndexProbe, InitSegment};
use crate::relay::body_parts::{chain_body, slice_body};
use crate::relay::resume::{content_range, validator};
use crate::relay::{FetchRequest, MediaAddress, header_filter};

/// Maximum number of requests for locating a file's index.
const MAX_STEPS: usize = 256;
/// Bytes of a file read first: its type, and often its whole index.
const HEADER_READ_BYTES: u64 = 4096;

enum FileProbe {
    File(Arc<IndexedFile>),
    /// The origin does not support ranges, or has no such file: its response.
    Other(Response),
}

impl MediaRequest<'_> {
    /// A decrypted file, or the requested range of it. `init`: the initialization section of a file that has none of
    /// its own.
    pub async fn decrypted_file(
        self,
        address: MediaAddress,
        keys: ContentKeyRing,
        init: Option<Arc<InitSegment>>,
    ) -> EndpointResult {
        self.note_decryption();
        init.iter().try_for_each(|init| init.check_keys(&keys))?;
        let ask = self.whole_request(address)?;
        let permit = self.state.hosts.acquire(&ask.url.authority).await?;
        let id = self.file_id(&ask);
        // A second attempt if the cached index turns out to be that of an earlier version.
        for _ in 0..2 {
            let opened = match self.state.files.get(&id) {
                Some(file) => FileProbe::File(file),
                None => self.probe_file(&ask, &keys).await?,
            };
            let file = match opened {
                FileProbe::File(file) => file,
                FileProbe::Other(response) => {
                    let Response { head, body } = unranged(response, keys, init).await?;
                    return Ok(self.track_stream(Response { head, body: permit.attach_to(body) }, &ask));
                }
            };
            self.state.files.insert(id, Arc::clone(&file));
            if let Some(response) = self.ranged(&ask, &file, &keys, init.clone()).await? {
                let Response { head, body } = response;
                return Ok(self.track_stream(Response { head, body: permit.attach_to(body) }, &ask));
            }
            self.state.files.remove(&id);
        }
        Err(MediaError::upstream("the origin's file changes while it is read"))
    }

    /// The cache key of a file: the request, and the keys of the link, because the index contains expanded keys.
    fn file_id(self, ask: &FetchRequest) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&crate::relay::segment_cache::key_of(ask));
        for name in ["key_id", "key", "k"] {
            hasher.update(b"\n").update(self.asked.params.get(name).unwrap_or_default().as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    fn track_stream(self, response: Response, ask: &FetchRequest) -> Response {
        let origin = format!("{}://{}", ask.url.scheme, ask.url.authority);
        let Response { mut head, body } = response;
        self.asked.params.apply_header_overrides(&mut head.headers, true);
        let body = if self.head.method == Method::HEAD { Body::Empty } else { body };
        Response { head, body: self.track(body, "stream", origin) }
    }

    /// Reads the index of a file with ranges, or finds that it has none. Fetches headers and the index only, never
    /// media data.
    async fn probe_file(self, ask: &FetchRequest, keys: &ContentKeyRing) -> Result<FileProbe> {
        let response = self.part(ask, 0..HEADER_READ_BYTES).await?;
        let whole = content_range(&response.head).and_then(|(first, whole)| whole.filter(|_| first == 0));
        let Some(length) = whole.filter(|_| response.head.status == StatusCode::PARTIAL_CONTENT) else {
            return Ok(FileProbe::Other(response));
        };
        let mut head = header_filter::response_head(&response.head);
        header_filter::remove_fields(&mut head.headers, &["content-length", "content-range", "accept-ranges"]);
        let first = read(response, HEADER_READ_BYTES).await?;
        if !is_mp4(&first) {
            let text = format!("keys are for MP4, and {} sent something else", ask.url.authority);
            return Err(MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, text));
        }
        let mut file = IndexedFile { layout: FileLayout::Fragments(None, Vec::new()), length, head };
        let mut probe = IndexProbe::new(keys.clone(), length);
        for _ in 0..MAX_STEPS {
            let Some(wanted) = probe.next_range() else { break };
            // Most headers are within the bytes that were read first.
            let prefix = usize::try_from(wanted.start).ok().and_then(|at| first.get(at..)).filter(|b| b.len() >= 32);
            let data = match prefix {
                Some(data) => Bytes::copy_from_slice(data),
                None => self.bytes_of(ask, &file, wanted.clone()).await?,
            };
            probe.push(wanted.start, &data)?;
        }
        if probe.next_range().is_some() {
            return Err(MediaError::upstream("the file's index cannot be found: it has too many boxes before it"));
        }
        file.layout = match probe.finish()? {
            Some(progressive) => FileLayout::Progressive(progressive),
            None => self.fragments(ask, &file, first).await?,
        };
        if let FileLayout::Fragments(Some(init), _) = &file.layout {
            init.check_keys(keys)?;
        }
        Ok(FileProbe::File(Arc::new(file)))
    }

    /// Reads what precedes the fragments of a file: its initialization section, and an index of them. Stops at the
    /// first fragment.
    async fn fragments(self, ask: &FetchRequest, file: &IndexedFile, first: Bytes) -> Result<FileLayout> {
        let (mut init, mut borders, mut at) = (None, Vec::new(), 0_u64);
        for _ in 0..MAX_STEPS {
            let have = usize::try_from(at).ok().and_then(|n| first.get(n..)).unwrap_or_default();
            let glance = match have.len() >= BoxHeader::MAX_HEADER_LEN || at + have.len() as u64 >= file.length {
                true => Bytes::copy_from_slice(have),
                false => self.bytes_of(ask, file, at..(at + HEADER_READ_BYTES).min(file.length)).await?,
            };
            let Ok(Some(header)) = BoxHeader::read(&glance, at) else { break };
            let end = header.size.map_or(file.length, |s| at.saturating_add(s)).min(file.length);
            if !matches!(&header.kind.0, b"moov" | b"sidx") {
                if matches!(&header.kind.0, b"moof" | b"mdat") || end <= at {
                    break;
                }
                at = end;
                continue;
            }
            if end - at > self.state.config.document_bytes.0 {
                return Err(MediaError::upstream("the file's index is larger than media.document_bytes"));
            }
            let whole = match glance.len() as u64 >= end - at {
                true => glance.slice(..(end - at) as usize),
                false => self.bytes_of(ask, file, at..end).await?,
            };
            match boxes(&whole, at).next() {
                Some(Ok(b)) if b.kind() == b"sidx" => {
                    let index =
                        SegmentIndex::read(&b).map_err(|e| MediaError::upstream(format!("the file's index: {e}")))?;
                    borders.extend(index.references.iter().map(|r| r.offset));
                }
                Some(Ok(b)) => init = Some(Arc::new(InitSegment::read(&b)?)),
                _ => break,
            }
            at = end;
        }
        // Several indexes, one per track, name the same fragments.
        borders.sort_unstable();
        borders.dedup();
        Ok(FileLayout::Fragments(init, borders))
    }

    /// The requested range of a file, with the status and fields for it; `None` if the origin's version has changed.
    async fn ranged(
        self,
        ask: &FetchRequest,
        file: &Arc<IndexedFile>,
        keys: &ContentKeyRing,
        init: Option<Arc<InitSegment>>,
    ) -> Result<Option<Response>> {
        let client = &self.head.headers;
        let mut head = file.head.clone();
        let _ = head.headers.set("Accept-Ranges", "bytes");
        // Nothing has to be fetched to answer this.
        if file.is_known_to(client) {
            (head.status, head.reason) = (StatusCode::NOT_MODIFIED, Bytes::from_static(b"Not Modified"));
            return Ok(Some(Response { head, body: Body::Empty }));
        }
        let holds = client.get_str("if-range").is_none_or(|v| validator(&file.head) == Some(v));
        let range = client.get_str("range").filter(|_| holds);
        let requested = match RequestedRange::read(range, file.length) {
            RequestedRange::Nothing => {
                (head.status, head.reason) =
                    (StatusCode::RANGE_NOT_SATISFIABLE, Bytes::from_static(b"Range Not Satisfiable"));
                let _ = head.headers.set("Content-Range", format!("bytes */{}", file.length));
                return Ok(Some(Response { head, body: Body::Empty }));
            }
            RequestedRange::Whole => {
                (head.status, head.reason) = (StatusCode::OK, Bytes::from_static(b"OK"));
                0..file.length
            }
            RequestedRange::Part(part) => {
                (head.status, head.reason) = (StatusCode::PARTIAL_CONTENT, Bytes::from_static(b"Partial Content"));
                let text = format!("bytes {}-{}/{}", part.start, part.end - 1, file.length);
                let _ = head.headers.set("Content-Range", text);
                part
            }
        };
        let length = requested.end - requested.start;
        let _ = head.headers.set("Content-Length", length.to_string());
        if self.head.method == Method::HEAD {
            return Ok(Some(Response { head, body: Body::Empty }));
        }
        let body = match &file.layout {
            FileLayout::Progressive(progressive) => {
                let Some(body) = self.same_part(ask, file, progressive.cover(requested.clone())).await? else {
                    return Ok(None);
                };
                decrypt::transformed(body, progressive.range(requested), Some(length))
            }
            FileLayout::Fragments(own, borders) => {
                let Some((at, body)) = self.fragment_at(ask, file, borders, &requested).await? else { return Ok(None) };
                // From its start, the file itself declares its encryption.
                let init = if at == 0 && own.is_some() { None } else { init.or_else(|| own.clone()) };
                slice_body(decrypt::piece(keys.clone(), init, at, body, 0)?, requested.start - at, length)
            }
        };
        let body = decrypt::wait_for_first_bytes(body).await?;
        Ok(Some(Response { head, body }))
    }

    /// The bytes from the last box boundary before the range, and its offset: decryption must begin at a fragment.
    /// Bytes after the range are fetched only if it ends within a box.
    async fn fragment_at(
        self,
        ask: &FetchRequest,
        file: &Arc<IndexedFile>,
        borders: &[u64],
        wanted: &Range<u64>,
    ) -> Result<Option<(u64, Body)>> {
        let before = borders.partition_point(|b| *b <= wanted.start).checked_sub(1).and_then(|i| borders.get(i));
        let mut start = before.copied().unwrap_or(0);
        // Up to the next fragment; without an index, what is needed after the range is fetched when the decrypter gets
        // there.
        let end = borders.get(borders.partition_point(|b| *b < wanted.end)).copied().unwrap_or(wanted.end);
        let Some(mut body) = self.same_part(ask, file, wanted.start..end).await? else { return Ok(None) };
        let mut first = BytesMut::new();
        if start != wanted.start {
            // Players usually request ranges from a box boundary; whether this is one is visible in the data.
            while first.len() < BoxHeader::MAX_HEADER_LEN {
                match body.frame().await {
                    Some(Ok(BodyFrame::Data(data))) => first.extend_from_slice(&data),
                    Some(Ok(BodyFrame::Trailers(_))) => {}
                    Some(Err(e)) => return Err(e.into()),
                    None => break,
                }
            }
            if is_border(&first, wanted.start, file.length) {
                start = wanted.start;
            } else {
                first.clear();
                let Some(whole) = self.same_part(ask, file, start..end).await? else { return Ok(None) };
                body = whole;
            }
        }
        // The range may end within a box, whose rest the decrypter needs to check it. It is requested only if it asks.
        let rest = (end < file.length).then(|| {
            let (state, ask) = (Arc::clone(self.state), with_range(ask, end..file.length));
            let next: crate::relay::body_parts::NextBodyFn =
                Box::new(move || Box::pin(async move { Ok(state.send_resumable(ask).await?.body) }));
            next
        });
        Ok(Some((start, chain_body(first.freeze(), body, rest))))
    }

    /// A part of a file; `None` if its version has changed, so that parts of two versions are never combined.
    async fn same_part(self, ask: &FetchRequest, file: &IndexedFile, range: Range<u64>) -> Result<Option<Body>> {
        let first = range.start;
        let response = self.part(ask, range).await?;
        let fits = response.head.status == StatusCode::PARTIAL_CONTENT
            && content_range(&response.head).is_some_and(|(at, _)| at == first);
        Ok((fits && file.is_same(&response.head)).then_some(response.body))
    }

    /// A range of the origin's file, resumed if the connection breaks.
    async fn part(self, ask: &FetchRequest, range: Range<u64>) -> Result<Response> {
        Ok(self.state.send_resumable(with_range(ask, range)).await?)
    }

    /// A range read completely, for the index.
    async fn bytes_of(self, ask: &FetchRequest, file: &IndexedFile, range: Range<u64>) -> Result<Bytes> {
        let (first, cap) = (range.start, range.end - range.start);
        let response = self.part(ask, range).await?;
        let fits = content_range(&response.head).is_some_and(|(at, _)| at == first) && file.is_same(&response.head);
        if !fits {
            return Err(MediaError::upstream("the origin's file changes while it is read"));
        }
        read(response, cap).await
    }
}

async fn read(response: Response, cap: u64) -> Result<Bytes> {
    let whole = response.body.collect(usize::try_from(cap).unwrap_or(usize::MAX)).await;
    whole.map(|(bytes, _)| bytes).map_err(|e| MediaError::upstream(format!("the file's index cannot be read: {e}")))
}

fn with_range(ask: &FetchRequest, range: Range<u64>) -> FetchRequest {
    let mut ask = ask.clone();
    let _ = ask.headers.set("Range", format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
    ask
}

/// Whether this is the start of an MP4 file, by its first box.
fn is_mp4(data: &[u8]) -> bool {
    let magic =
        [b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"sidx", b"free", b"skip", b"wide", b"emsg", b"prft", b"uuid"];
    data.get(4..8).is_some_and(|kind| magic.iter().any(|k| kind == *k))
}

/// Whether a box that may separate fragments starts here. Its size must fit into the file, since four bytes of media
/// data may look like a type.
fn is_border(data: &[u8], at: u64, length: u64) -> bool {
    let Ok(Some(header)) = BoxHeader::read(data, at) else { return false };
    let box_types = [b"moof", b"styp", b"sidx", b"emsg", b"prft", b"ftyp", b"moov", b"mfra", b"ssix"];
    let fits = header.size.is_none_or(|s| s <= length.saturating_sub(at));
    fits && box_types.iter().any(|k| header.kind.0 == **k)
}

/// A response without ranges: a file is decrypted as a stream, anything else is relayed. The player cannot seek then.
async fn unranged(response: Response, keys: ContentKeyRing, init: Option<Arc<InitSegment>>) -> EndpointResult {
    let mut head = header_filter::response_head(&response.head);
    let mut body = response.body;
    if head.status == StatusCode::OK {
        let _ = head.headers.set("Accept-Ranges", "none");
        // A missing key is detected before the first clear byte, so it is reported before the response head is sent.
        body = decrypt::wait_for_first_bytes(decrypt::segment(keys, init, 0, body)?).await?;
    }
    Ok(Response { head, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_boundaries_are_distinguished_from_media() {
        let header = |size: u32, kind: &[u8; 4]| [&size.to_be_bytes()[..], kind, &[0; 24]].concat();
        assert!(is_border(&header(100, b"moof"), 50, 1000) && is_border(&header(24, b"styp"), 50, 1000));
        assert!(!is_border(&header(2000, b"moof"), 50, 1000), "it would reach behind the end");
        assert!(!is_border(&header(100, b"abcd"), 50, 1000) && !is_border(b"\0\0", 50, 1000));
    }
}
