//! Answers from a recording: the responses of a HAR file, matched by request, in their order.

use std::path::Path;

use base64::Engine as _;
use bytes::Bytes;
use interflow_flow::{Body, RequestHead, Response, ResponseHead, StatusCode, Url};
use parking_lot::Mutex;
use serde_json::Value;

use crate::given::Replay;
use crate::sample::parse_url;

/// The largest recording, in bytes.
const LARGEST: u64 = 1 << 30;

/// A recording made ready.
#[derive(Debug)]
pub struct Recording {
    entries: Vec<Entry>,
    used: Mutex<Vec<bool>>,
}

#[derive(Debug)]
struct Entry {
    method: String,
    url: Url,
    sent: Bytes,
    head: ResponseHead,
    body: Bytes,
    /// When it was answered, by its own date.
    date: Option<i64>,
}

impl Replay {
    /// The recording, read once.
    ///
    /// # Errors
    /// A file that cannot be read, or is no HAR file.
    pub(crate) fn recording(&self) -> Result<&Recording, String> {
        self.loaded.get_or_init(|| read(&self.file)).as_ref().map_err(Clone::clone)
    }

    /// The recorded answer to a request; `None` when there is none, or none is left.
    pub(crate) fn answer(&self, request: &RequestHead, body: Option<&[u8]>) -> Option<Response> {
        let recording = self.recording().ok()?;
        let mut used = recording.used.lock();
        let fits = |(i, e): &(usize, &Entry)| !used[*i] && self.fits(e, request, body);
        let (i, entry) = recording.entries.iter().enumerate().find(fits)?;
        if !self.reuse {
            used[i] = true;
        }
        let mut head = entry.head.clone();
        if self.refresh {
            refresh(&mut head, entry.date);
        }
        Some(Response { head, body: Body::from(entry.body.clone()) })
    }

    fn fits(&self, entry: &Entry, request: &RequestHead, body: Option<&[u8]>) -> bool {
        let ignores = |part: &str| self.ignore.iter().any(|i| i == part);
        let (a, b) = (&entry.url, &request.url);
        entry.method == request.method.as_str()
            && (ignores("host") || a.authority.host == b.authority.host)
            && (ignores("port") || ignores("host") || a.authority.port == b.authority.port)
            && a.path_only() == b.path_only()
            && (ignores("query") || self.query(a) == self.query(b))
            && (ignores("body") || body.is_none_or(|b| b == entry.sent))
    }

    /// The parameters that matter, in an order of their own.
    fn query<'u>(&self, url: &'u Url) -> Vec<(std::borrow::Cow<'u, str>, std::borrow::Cow<'u, str>)> {
        let mut all: Vec<_> = crate::params::pairs(url.query().unwrap_or_default()).collect();
        all.retain(|(name, _)| !self.ignore.iter().any(|i| i == name));
        all.sort();
        all
    }
}

/// Moves dates by the time that has passed since the recording.
fn refresh(head: &mut ResponseHead, recorded: Option<i64>) {
    let Some(recorded) = recorded else { return };
    let passed = crate::dates::now() - recorded;
    for name in ["date", "expires", "last-modified"] {
        let moved = head.headers.get_str(name).and_then(crate::dates::parse).map(|d| crate::dates::show(d + passed));
        if let Some(date) = moved {
            let _ = head.headers.set(name, date);
        }
    }
}

fn read(path: &Path) -> Result<Recording, String> {
    let failed = |e: String| format!("the recording {}: {e}", path.display());
    let size = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?.len();
    if size > LARGEST {
        return Err(failed(format!("it has {size} bytes, and at most {LARGEST} are read")));
    }
    let text = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let har: Value = serde_json::from_slice(text).map_err(|e| failed(format!("it is no HAR file: {e}")))?;
    let entries =
        har["log"]["entries"].as_array().ok_or_else(|| failed("it is no HAR file: log.entries is missing".into()))?;
    let entries: Vec<Entry> = entries.iter().filter_map(entry).collect();
    Ok(Recording { used: Mutex::new(vec![false; entries.len()]), entries })
}

/// One entry; those without an answer are left out.
fn entry(e: &Value) -> Option<Entry> {
    let (request, response) = (&e["request"], &e["response"]);
    let status =
        StatusCode::from_u16(u16::try_from(response["status"].as_u64()?).ok()?).ok().filter(|s| s.as_u16() >= 200)?;
    let mut head = ResponseHead::new(status);
    for h in response["headers"].as_array().into_iter().flatten() {
        let (Some(name), Some(value)) = (h["name"].as_str(), h["value"].as_str()) else { continue };
        // The body stands in the file without its coding and framing.
        let skipped = ["content-encoding", "content-length", "transfer-encoding", "connection"];
        if !skipped.contains(&name.to_ascii_lowercase().as_str()) && !name.starts_with(':') {
            let _ = head.headers.append(name, value);
        }
    }
    let content = &response["content"];
    let text = content["text"].as_str().unwrap_or_default();
    let body = if content["encoding"] == "base64" {
        base64::engine::general_purpose::STANDARD.decode(text).ok()?.into()
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    };
    let date = head.headers.get_str("date").and_then(crate::dates::parse);
    Some(Entry {
        method: request["method"].as_str()?.to_owned(),
        url: parse_url(request["url"].as_str()?).ok()?,
        sent: Bytes::copy_from_slice(request["postData"]["text"].as_str().unwrap_or_default().as_bytes()),
        head,
        body,
        date,
    })
}
