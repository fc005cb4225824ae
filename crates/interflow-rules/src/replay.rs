//! Answers from a recording: the responses of an archive or of recorded flows, matched by request, in their order.

use std::path::Path;

use base64::Engine as _;
use bytes::Bytes;
use interflow_flow::{Body, Headers, Method, RequestHead, Response, ResponseHead, StatusCode, Url};
use parking_lot::Mutex;
use serde_json::Value;

use crate::given::{Replay, ReplayFrom};
use crate::sample::parse_url;
use crate::surroundings::Surroundings;

/// The largest recording, in bytes.
const LARGEST: u64 = 1 << 30;

/// One recorded exchange, bodies without their content coding.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The request's method.
    pub method: Method,
    /// The request's URL.
    pub url: Url,
    /// The request's fields.
    pub headers: Headers,
    /// The request's body.
    pub sent: Bytes,
    /// The response's head, as it came.
    pub head: ResponseHead,
    /// The response's body.
    pub body: Bytes,
    /// When it was answered, in seconds since the Unix epoch; the response's own `Date` stands for it when absent.
    pub at: Option<i64>,
}

/// Reads recordings for `replay`: the house around the rules knows the formats and has the store.
pub trait Recordings: Send + Sync {
    /// The exchanges of an archive, in their order.
    ///
    /// # Errors
    /// What is wrong with the file, its name aside.
    fn archive(&self, file: &Path) -> Result<Vec<Recorded>, String>;

    /// The recorded flows that a query finds, in their order.
    ///
    /// # Errors
    /// The query, or the recording, cannot be read.
    fn flows(&self, query: &str) -> Result<Vec<Recorded>, String>;
}

/// A recording made ready.
#[derive(Debug)]
pub struct Recording {
    entries: Vec<Recorded>,
    used: Mutex<Vec<bool>>,
}

impl Replay {
    /// Reads the recording, once.
    ///
    /// # Errors
    /// A file that cannot be read or is none, a query that is none.
    pub(crate) fn load(&self, around: &Surroundings) -> Result<(), String> {
        self.loaded.get_or_init(|| read(&self.from, around)).as_ref().map(drop).map_err(Clone::clone)
    }

    /// The recorded answer to a request; `None` when there is none, or none is left.
    pub(crate) fn answer(&self, request: &RequestHead, body: Option<&[u8]>) -> Option<Response> {
        let recording = self.loaded.get()?.as_ref().ok()?;
        let mut used = recording.used.lock();
        let fits = |(i, e): &(usize, &Recorded)| !used[*i] && self.fits(e, request, body);
        let (i, entry) = recording.entries.iter().enumerate().find(fits)?;
        if !self.reuse {
            used[i] = true;
        }
        let mut head = entry.head.clone();
        head.headers.retain(|name, _| !FRAMING.iter().any(|f| name.eq_ignore_ascii_case(f.as_bytes())));
        if self.refresh {
            let recorded = entry.at.or_else(|| head.headers.get_str("date").and_then(crate::dates::parse));
            refresh(&mut head, recorded);
        }
        Some(Response { head, body: Body::from(entry.body.clone()) })
    }

    fn fits(&self, entry: &Recorded, request: &RequestHead, body: Option<&[u8]>) -> bool {
        let ignores = |part: &str| self.ignore.iter().any(|i| i == part);
        let (a, b) = (&entry.url, &request.url);
        entry.method == request.method
            && (ignores("host") || a.authority.host == b.authority.host)
            && (ignores("port") || ignores("host") || a.authority.port == b.authority.port)
            && a.path_only() == b.path_only()
            && (ignores("query") || self.query(a) == self.query(b))
            && self.headers.iter().all(|name| entry.headers.get_all(name).eq(request.headers.get_all(name)))
            && (ignores("body") || body.is_none_or(|b| self.same_body(entry, request, b)))
    }

    fn same_body(&self, entry: &Recorded, request: &RequestHead, body: &[u8]) -> bool {
        let form = "application/x-www-form-urlencoded";
        let is_form = request.headers.get_str("content-type").is_some_and(|t| t.to_ascii_lowercase().starts_with(form));
        if self.ignore_form.is_empty() || !is_form {
            return body == entry.sent;
        }
        let fields = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let mut all: Vec<(String, String)> =
                crate::params::pairs(&text).map(|(n, v)| (n.into_owned(), v.into_owned())).collect();
            all.retain(|(name, _)| !self.ignore_form.contains(name));
            all
        };
        fields(body) == fields(&entry.sent)
    }

    /// The parameters that matter, in an order of their own.
    fn query<'u>(&self, url: &'u Url) -> Vec<(std::borrow::Cow<'u, str>, std::borrow::Cow<'u, str>)> {
        let mut all: Vec<_> = crate::params::pairs(url.query().unwrap_or_default()).collect();
        all.retain(|(name, _)| !self.ignore.iter().any(|i| i == name));
        all.sort();
        all
    }
}

/// Fields about a coding and framing that the body no longer has.
const FRAMING: [&str; 5] = ["content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive"];

/// Moves dates by the time that has passed since the recording: those of the response, and those at which its cookies end.
fn refresh(head: &mut ResponseHead, recorded: Option<i64>) {
    let Some(recorded) = recorded else { return };
    let passed = crate::dates::now() - recorded;
    let moved = |date: &str| crate::dates::parse(date).map(|d| crate::dates::show(d + passed));
    for name in ["date", "expires", "last-modified"] {
        if let Some(date) = head.headers.get_str(name).and_then(moved) {
            let _ = head.headers.set(name, date);
        }
    }
    let cookies: Vec<String> =
        head.headers.get_all("set-cookie").map(|c| String::from_utf8_lossy(c).into_owned()).collect();
    if !cookies.iter().any(|c| c.to_ascii_lowercase().contains("expires=")) {
        return;
    }
    head.headers.remove("set-cookie");
    for cookie in cookies {
        let parts = cookie.split(';').map(|part| match part.trim().split_once('=') {
            Some((name, date)) if name.eq_ignore_ascii_case("expires") => {
                moved(date).map_or_else(|| part.to_owned(), |date| format!(" {name}={date}"))
            }
            _ => part.to_owned(),
        });
        let _ = head.headers.append("set-cookie", parts.collect::<Vec<_>>().join(";"));
    }
}

fn read(from: &ReplayFrom, around: &Surroundings) -> Result<Recording, String> {
    let entries = match (from, &around.recordings) {
        (ReplayFrom::File(file), Some(recordings)) => {
            recordings.archive(file).map_err(|e| format!("the recording {}: {e}", file.display()))?
        }
        (ReplayFrom::File(file), None) => har(file)?,
        (ReplayFrom::Flows(query), recordings) => {
            interflow_query::Query::parse(query).map_err(|e| format!("the query `{query}`, {e}"))?;
            match recordings {
                Some(recordings) => {
                    let found = recordings.flows(query).map_err(|e| format!("the flows of `{query}`: {e}"))?;
                    tracing::info!("`{query}` finds {} recorded answers to replay", found.len());
                    found
                }
                // Rules that are only looked at have no store to ask.
                None => Vec::new(),
            }
        }
    };
    Ok(Recording { used: Mutex::new(vec![false; entries.len()]), entries })
}

/// The exchanges of a HAR file.
fn har(path: &Path) -> Result<Vec<Recorded>, String> {
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
    Ok(entries.iter().filter_map(entry).collect())
}

/// The fields of one side of an entry; pseudo-header fields are none.
fn fields(list: &Value) -> Headers {
    let mut headers = Headers::new();
    for h in list.as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (h["name"].as_str(), h["value"].as_str())
            && !name.starts_with(':')
        {
            let _ = headers.append(name, value);
        }
    }
    headers
}

/// One entry; those without an answer are left out.
fn entry(e: &Value) -> Option<Recorded> {
    let (request, response) = (&e["request"], &e["response"]);
    let status =
        StatusCode::from_u16(u16::try_from(response["status"].as_u64()?).ok()?).ok().filter(|s| s.as_u16() >= 200)?;
    let mut head = ResponseHead::new(status);
    head.headers = fields(&response["headers"]);
    let content = &response["content"];
    let text = content["text"].as_str().unwrap_or_default();
    let body = if content["encoding"] == "base64" {
        base64::engine::general_purpose::STANDARD.decode(text).ok()?.into()
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    };
    Some(Recorded {
        method: Method::from_bytes(request["method"].as_str()?.as_bytes()).ok()?,
        url: parse_url(request["url"].as_str()?).ok()?,
        headers: fields(&request["headers"]),
        sent: Bytes::copy_from_slice(request["postData"]["text"].as_str().unwrap_or_default().as_bytes()),
        head,
        body,
        at: None,
    })
}
