//! Server replay: responses of an archive or of recorded flows, matched by request and served in order.

use interflow_types::{Body, RequestHead, Response, ResponseHead, Url};
use parking_lot::Mutex;

use crate::params::{ReplayParams, ReplaySource};
use crate::state::recording::{RecordedExchange, RecordingSource, ReplayIndex};

impl ReplayParams {
    /// Loads the recording, once.
    ///
    /// # Errors
    /// A file that cannot be read or is invalid, or an invalid query.
    pub(crate) fn load(&self, recordings: Option<&dyn RecordingSource>) -> Result<(), String> {
        self.loaded.get_or_init(|| read_recording(&self.from, recordings)).as_ref().map(drop).map_err(Clone::clone)
    }

    /// The recorded response to a request; `None` if there is none, or none is left. The first unused one that fits
    /// is taken, so that repeated requests get the recorded responses in order.
    pub(crate) fn answer(&self, request: &RequestHead, body: Option<&[u8]>) -> Option<Response> {
        let recording = self.loaded.get()?.as_ref().ok()?;
        // Held until the response is marked as used, so that two requests do not get the same one.
        let mut used = recording.used.lock();
        let fits = |(i, e): &(usize, &RecordedExchange)| !used[*i] && self.matches_request(e, request, body);
        let (i, entry) = recording.entries.iter().enumerate().find(fits)?;
        if !self.reuse {
            used[i] = true;
        }
        let mut head = entry.head.clone();
        head.headers.retain(|name, _| !STALE_FIELDS.iter().any(|f| name.eq_ignore_ascii_case(f.as_bytes())));
        if self.refresh {
            let recorded =
                entry.at.or_else(|| head.headers.get_str("date").and_then(crate::text::dates::parse_http_date));
            refresh_dates(&mut head, recorded);
        }
        Some(Response { head, body: Body::from(entry.body.clone()) })
    }

    fn matches_request(&self, entry: &RecordedExchange, request: &RequestHead, body: Option<&[u8]>) -> bool {
        let ignores = |part: &str| self.ignore.iter().any(|i| i == part);
        let (a, b) = (&entry.url, &request.url);
        entry.method == request.method
            && (ignores("host") || a.authority.host == b.authority.host)
            && (ignores("port") || ignores("host") || a.authority.port == b.authority.port)
            && a.path_only() == b.path_only()
            && (ignores("query") || self.matched_query(a) == self.matched_query(b))
            && self.headers.iter().all(|name| entry.headers.get_all(name).eq(request.headers.get_all(name)))
            && (ignores("body") || body.is_none_or(|b| self.matches_body(entry, request, b)))
    }

    /// Bodies are compared as bytes, but forms without the ignored fields, if there are any.
    fn matches_body(&self, entry: &RecordedExchange, request: &RequestHead, body: &[u8]) -> bool {
        let form = "application/x-www-form-urlencoded";
        let is_form = request.headers.get_str("content-type").is_some_and(|t| t.to_ascii_lowercase().starts_with(form));
        if self.ignore_form.is_empty() || !is_form {
            return body == entry.sent;
        }
        let fields = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let mut all: Vec<(String, String)> =
                crate::text::query_params::decode_pairs(&text).map(|(n, v)| (n.into_owned(), v.into_owned())).collect();
            all.retain(|(name, _)| !self.ignore_form.contains(name));
            all
        };
        fields(body) == fields(&entry.sent)
    }

    /// The parameters that are compared, sorted, since clients may order them differently.
    fn matched_query<'u>(&self, url: &'u Url) -> Vec<(std::borrow::Cow<'u, str>, std::borrow::Cow<'u, str>)> {
        let mut all: Vec<_> = crate::text::query_params::decode_pairs(url.query().unwrap_or_default()).collect();
        all.retain(|(name, _)| !self.ignore.iter().any(|i| i == name));
        all.sort();
        all
    }
}

/// Fields about codings and framing that no longer apply to the body.
const STALE_FIELDS: [&str; 5] = ["content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive"];

/// Shifts dates by the time since the recording: those of the response, and the expiry of its cookies.
fn refresh_dates(head: &mut ResponseHead, recorded: Option<i64>) {
    let Some(recorded) = recorded else { return };
    let passed = crate::text::dates::unix_now() - recorded;
    let moved = |date: &str| {
        crate::text::dates::parse_http_date(date).map(|d| crate::text::dates::format_http_date(d + passed))
    };
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

fn read_recording(from: &ReplaySource, recordings: Option<&dyn RecordingSource>) -> Result<ReplayIndex, String> {
    let entries = match (from, recordings) {
        (ReplaySource::File(file), recordings) => {
            let read = recordings.map_or_else(|| Err("recordings are not read here".into()), |r| r.archive(file));
            read.map_err(|e| format!("the recording {}: {e}", file.display()))?
        }
        (ReplaySource::Flows(query), recordings) => {
            interflow_query::Query::parse_strict(query).map_err(|e| format!("the query `{query}`, {e}"))?;
            match recordings {
                Some(recordings) => {
                    let found = recordings.flows(query).map_err(|e| format!("the flows of `{query}`: {e}"))?;
                    tracing::info!("`{query}` finds {} recorded answers to replay", found.len());
                    found
                }
                // Without a recording source (validation only) there are no flows.
                None => Vec::new(),
            }
        }
    };
    Ok(ReplayIndex { used: Mutex::new(vec![false; entries.len()]), entries })
}
