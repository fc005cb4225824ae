//! Parts of a HAR entry: cookies, queries, forms, times.

use std::borrow::Cow;

use interflow_types::{FlowTimings, Headers, Timestamp, percent};
use serde::Serialize;

use crate::request::is_masked;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HarPair {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HarCookie {
    pub name: String,
    pub value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_site: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HarParam {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// Header fields as pairs. Bytes that are not UTF-8 are decoded as Latin-1.
pub(super) fn fields(headers: &Headers) -> Vec<HarPair> {
    headers.iter().map(|(n, v)| HarPair { name: text(n).into_owned(), value: text(v).into_owned() }).collect()
}

/// UTF-8, or Latin-1 if it is invalid.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    let latin_1 = || Cow::Owned(bytes.iter().map(|&b| char::from(b)).collect());
    std::str::from_utf8(bytes).map_or_else(|_| latin_1(), Cow::Borrowed)
}

/// The cookies that a request sends (RFC 6265 4.2).
pub(super) fn request_cookies(headers: &Headers) -> Vec<HarCookie> {
    // Masked by the recorder: there are no cookies to show.
    let pairs = headers.get_all("cookie").filter(|v| !is_masked(v)).flat_map(|line| line.split(|&b| b == b';'));
    pairs
        .map(|p| p.trim_ascii())
        .filter(|p| !p.is_empty())
        .map(|pair| {
            let pair = text(pair);
            let (name, value) = pair.split_once('=').unwrap_or((&pair, ""));
            HarCookie { name: name.trim().to_owned(), value: value.trim().to_owned(), ..HarCookie::default() }
        })
        .collect()
}

/// The cookies that a response sets (RFC 6265 5.2).
pub(super) fn response_cookies(headers: &Headers) -> Vec<HarCookie> {
    headers.get_all("set-cookie").filter(|v| !is_masked(v)).map(|line| set_cookie(&text(line))).collect()
}

fn set_cookie(line: &str) -> HarCookie {
    let mut parts = line.split(';').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let (name, value) = first.split_once('=').unwrap_or((first, ""));
    let mut cookie = HarCookie {
        name: name.trim().to_owned(),
        value: value.trim().to_owned(),
        http_only: Some(false),
        secure: Some(false),
        ..HarCookie::default()
    };
    for attribute in parts {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "path" => cookie.path = Some(value.to_owned()),
            "domain" => cookie.domain = Some(value.to_owned()),
            "expires" => cookie.expires = http_date(value),
            "httponly" => cookie.http_only = Some(true),
            "secure" => cookie.secure = Some(true),
            "samesite" => cookie.same_site = Some(value.to_owned()),
            _ => {}
        }
    }
    cookie
}

/// An HTTP date, including obsolete formats (RFC 6265 5.1.1), as ISO 8601.
fn http_date(value: &str) -> Option<String> {
    let value = value.strip_suffix("GMT").or_else(|| value.strip_suffix("UTC")).unwrap_or(value).trim();
    let plain: String = value.split_once(", ").map_or(value, |(_, rest)| rest).replace('-', " ");
    ["%d %b %y %H:%M:%S", "%d %b %Y %H:%M:%S", "%a %b %e %H:%M:%S %Y"].iter().find_map(|format| {
        let moment = jiff::civil::DateTime::strptime(format, &plain).ok()?;
        Some(moment.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string())
    })
}

/// The parameters of a query, percent-decoded.
pub(super) fn query(path: &str) -> Vec<HarPair> {
    let Some((_, query)) = path.split_once('?') else { return Vec::new() };
    let query = query.split_once('#').map_or(query, |(q, _)| q);
    urlencoded(query)
}

/// A component of a query or form; bytes that are not UTF-8 as in all texts of a HAR.
fn decode_component(component: &str) -> String {
    text_of(percent::decoded_bytes(component.replace('+', " ").as_bytes()).into_owned())
}

/// Decodes `a=b&c=d`, including percent-encoding and `+`.
fn urlencoded(text: &str) -> Vec<HarPair> {
    let parts = text.split('&').filter(|p| !p.is_empty());
    parts
        .map(|p| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            HarPair { name: decode_component(name), value: decode_component(value) }
        })
        .collect()
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| text(e.as_bytes()).into_owned())
}

/// The fields of a posted form; empty for other types.
pub(super) fn params(content_type: &str, body: &[u8]) -> Vec<HarParam> {
    let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    match essence.trim().to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => urlencoded(&text(body))
            .into_iter()
            .map(|p| HarParam { name: p.name, value: Some(p.value), ..HarParam::default() })
            .collect(),
        "multipart/form-data" => parameter(parameters, "boundary").map(|b| multipart(&b, body)).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// A parameter of a structured field value: `name="a; b"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text.trim_start_matches([';', ' ', '\t']);
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=')?;
        let (value, after) = if let Some(quoted) = behind.strip_prefix('"') {
            let end = quoted.find('"')?;
            (&quoted[..end], &quoted[end + 1..])
        } else {
            let end = behind.find(';').unwrap_or(behind.len());
            (behind[..end].trim(), &behind[end..])
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value.to_owned());
        }
        rest = after.trim_start_matches([';', ' ', '\t']);
    }
    None
}

/// The parts of a multipart form (RFC 7578), without the content of files, which is in the body.
fn multipart(boundary: &str, body: &[u8]) -> Vec<HarParam> {
    let mark = format!("--{boundary}");
    let body = text(body);
    // The last boundary ends with two hyphens.
    body.split(mark.as_str()).skip(1).take_while(|part| !part.starts_with("--")).filter_map(part).collect()
}

fn part(text: &str) -> Option<HarParam> {
    let (head, value) = text.trim_start_matches(['\r', '\n']).split_once("\r\n\r\n")?;
    let value = value.strip_suffix("\r\n").unwrap_or(value);
    let field = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        })
    };
    let disposition = field("content-disposition")?;
    let (_, parameters) = disposition.split_once(';')?;
    let file_name = parameter(parameters, "filename");
    Some(HarParam {
        name: parameter(parameters, "name")?,
        value: file_name.is_none().then(|| value.to_owned()),
        file_name,
        content_type: field("content-type"),
    })
}

/// Maximum plausible phase, in microseconds: some 30 years.
const MAX_PHASE_MICROS: f64 = 1e15;

/// The timings of an entry in milliseconds; -1 for a phase that does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct HarTimings {
    pub blocked: f64,
    pub dns: f64,
    pub connect: f64,
    pub send: f64,
    pub wait: f64,
    pub receive: f64,
    pub ssl: f64,
}

impl HarTimings {
    /// Phases without gaps between them. `connect` includes `ssl`, as the format requires; time before the first phase
    /// counts as blocked.
    pub fn from_timings(t: &FlowTimings) -> Self {
        let end = [t.last_byte, t.done].into_iter().flatten().max();
        // An import may contain arbitrary values.
        let sum = |lengths: &[Option<u64>]| lengths.iter().flatten().fold(0u64, |a, b| a.saturating_add(*b));
        let setup = sum(&[t.dns, t.connect, t.tls]);
        let ready = sum(&[t.request_head, t.blocked, Some(setup)]);
        let sent = t.request_sent.unwrap_or(ready);
        let send = sent.saturating_sub(ready);
        // What the recorded phases leave over before the request was sent counts as blocked.
        let blocked = sent.saturating_sub(setup).saturating_sub(send);
        // The order is enforced, so that no phase is negative.
        let first = t.first_byte.or(end).unwrap_or(sent).max(sent);
        let receive = t.last_byte.or(end).unwrap_or(first).saturating_sub(first);
        let connect = t.connect.or(t.tls).map(|_| sum(&[t.connect, t.tls]));
        Self {
            blocked: if t.blocked.is_none() && blocked == 0 { -1.0 } else { millis(blocked) },
            dns: t.dns.map_or(-1.0, millis),
            connect: connect.map_or(-1.0, millis),
            send: millis(send),
            wait: millis(first - sent),
            receive: millis(receive),
            ssl: t.tls.map_or(-1.0, millis),
        }
    }

    /// The value of `time`: the sum of all phases that apply, with `ssl` included in `connect`.
    pub fn sum(&self) -> f64 {
        let parts = [self.blocked, self.dns, self.connect, self.send, self.wait, self.receive];
        // Summed in microseconds, so that the sum has no more digits than its parts.
        let micros = parts.iter().filter(|p| **p > 0.0).map(|p| (p * 1000.0).round() as u64);
        millis(micros.fold(0, u64::saturating_add))
    }

    /// Converts phases to points in time after the start of the flow. `time` is the entry's total, in milliseconds.
    pub fn timings(&self, time: f64) -> FlowTimings {
        // Negative phases do not apply.
        let micros = |ms: f64| (ms >= 0.0).then(|| (ms * 1000.0).round().min(MAX_PHASE_MICROS) as u64);
        let length = |ms: f64| micros(ms).unwrap_or(0);
        let tls = micros(self.ssl);
        let connect = micros(self.connect).map(|c| c.saturating_sub(tls.unwrap_or(0)));
        let lengths = [length(self.blocked), length(self.dns), connect.unwrap_or(0), tls.unwrap_or(0)];
        let setup = lengths.into_iter().fold(0, u64::saturating_add);
        let sent = setup.saturating_add(length(self.send));
        let first = sent.saturating_add(length(self.wait));
        let last = first.saturating_add(length(self.receive));
        FlowTimings {
            request_head: Some(0),
            request_body: None,
            blocked: micros(self.blocked),
            dns: micros(self.dns),
            connect,
            tls,
            request_sent: Some(sent),
            first_byte: Some(first),
            last_byte: Some(last),
            done: Some(last.max(length(time))),
        }
    }
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// A time as ISO 8601 with microseconds, UTC.
pub(crate) fn iso(at: Timestamp) -> String {
    let moment = i64::try_from(at.micros()).ok().and_then(|m| jiff::Timestamp::from_microsecond(m).ok());
    moment.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Parses ISO 8601; without an offset it is UTC.
pub(crate) fn from_iso(text: &str) -> Option<Timestamp> {
    let zoned = text.parse::<jiff::Timestamp>().ok();
    let moment = zoned.or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    })?;
    u64::try_from(moment.as_microsecond()).ok().map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_parsed() {
        let h: Headers = [
            ("Cookie", "a=1; b=\"x=y\";c"),
            ("Set-Cookie", "id=7; Path=/; Domain=a.b; Expires=Wed, 21 Oct 2026 07:28:00 GMT; HttpOnly; SameSite=Lax"),
            ("Set-Cookie", "old=1; expires=Sunday, 06-Nov-94 08:49:37 GMT; secure"),
            ("Set-Cookie", "asc=1; expires=Sun Nov  6 08:49:37 1994"),
            ("Set-Cookie", "odd; expires=soon"),
        ]
        .into_iter()
        .collect();
        let pairs: Vec<_> = request_cookies(&h).into_iter().map(|c| (c.name, c.value)).collect();
        let owned = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(pairs, [owned("a", "1"), owned("b", "\"x=y\""), owned("c", "")]);
        let set = response_cookies(&h);
        assert_eq!(set[0].expires.as_deref(), Some("2026-10-21T07:28:00.000Z"));
        assert_eq!(
            (set[0].http_only, set[0].secure, set[0].same_site.as_deref()),
            (Some(true), Some(false), Some("Lax"))
        );
        assert_eq!(set[1].expires.as_deref(), Some("1994-11-06T08:49:37.000Z"));
        assert_eq!(set[2].expires.as_deref(), Some("1994-11-06T08:49:37.000Z"));
        assert_eq!((set[3].name.as_str(), set[3].expires.as_deref()), ("odd", None));
    }

    #[test]
    fn query_and_form_parameters_are_parsed() {
        let pair = |name: &str, value: &str| HarPair { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(
            query("/p?a=1+2&b=%C3%A9&c&=d&%zz=%f&#x"),
            [pair("a", "1 2"), pair("b", "é"), pair("c", ""), pair("", "d"), pair("%zz", "%f")]
        );
        assert_eq!(query("/p"), []);
        assert_eq!(params("application/x-www-form-urlencoded; charset=utf-8", b"x=%ff").len(), 1);
        assert_eq!(params("text/plain", b"x=1"), []);
        let body = "--B\r\nContent-Disposition: form-data; name=\"a; b\"\r\n\r\nva\r\nlue\r\n--B\r\n\
                    Content-Disposition: form-data; name=f; filename=\"x.png\"\r\nContent-Type: image/png\r\n\r\nPNG\r\n\
                    --B--\r\n";
        let found = params("multipart/form-data; boundary=\"B\"", body.as_bytes());
        assert_eq!(found[0], HarParam { name: "a; b".into(), value: Some("va\r\nlue".into()), ..HarParam::default() });
        assert_eq!(found[1].file_name.as_deref(), Some("x.png"));
        assert_eq!((found[1].value.as_deref(), found[1].content_type.as_deref()), (None, Some("image/png")));
        assert_eq!(params("multipart/form-data", b"--B"), []);
    }

    #[test]
    fn har_phases_cover_the_total_time_without_gaps() {
        let cold = FlowTimings {
            request_head: Some(100),
            blocked: Some(50),
            dns: Some(1000),
            connect: Some(2000),
            tls: Some(3000),
            request_sent: Some(6_350),
            first_byte: Some(10_000),
            last_byte: Some(12_000),
            done: Some(12_100),
            ..FlowTimings::default()
        };
        let t = HarTimings::from_timings(&cold);
        assert_eq!(
            t,
            HarTimings { blocked: 0.15, dns: 1.0, connect: 5.0, ssl: 3.0, send: 0.2, wait: 3.65, receive: 2.0 }
        );
        assert_eq!(t.sum(), 12.0);
        let pooled =
            FlowTimings { request_sent: Some(10), first_byte: Some(30), last_byte: Some(40), ..FlowTimings::default() };
        let t = HarTimings::from_timings(&pooled);
        assert_eq!((t.blocked, t.dns, t.connect, t.ssl, t.send, t.wait), (-1.0, -1.0, -1.0, -1.0, 0.01, 0.02));
    }

    #[test]
    fn failed_flow_counts_as_waiting_until_its_end() {
        let failed = FlowTimings { request_head: Some(10), done: Some(500), ..FlowTimings::default() };
        let t = HarTimings::from_timings(&failed);
        assert_eq!((t.blocked, t.send, t.wait, t.receive, t.sum()), (0.01, 0.0, 0.49, 0.0, 0.5));
    }

    #[test]
    fn har_timings_round_trip() {
        let t = HarTimings { blocked: 0.15, dns: 1.0, connect: 5.0, ssl: 3.0, send: 0.2, wait: 3.65, receive: 2.0 };
        assert_eq!(HarTimings::from_timings(&t.timings(t.sum())), t);
        let reused =
            HarTimings { blocked: -1.0, dns: -1.0, connect: -1.0, ssl: -1.0, send: 0.0, wait: 1.0, receive: 0.0 };
        assert_eq!(HarTimings::from_timings(&reused.timings(1.0)), reused);
    }

    #[test]
    fn absurd_figures_do_not_overflow() {
        let most = Some(u64::MAX);
        let t = FlowTimings {
            request_head: most,
            blocked: most,
            dns: most,
            connect: most,
            tls: most,
            ..FlowTimings::default()
        };
        assert!(HarTimings::from_timings(&t).sum().is_finite());
        let odd =
            HarTimings { blocked: 1e300, dns: f64::NAN, connect: -7.0, send: 1e300, ..HarTimings::from_timings(&t) };
        assert_eq!(odd.timings(f64::INFINITY).dns, None);
        assert!(HarTimings::from_timings(&odd.timings(1e300)).sum() > 0.0);
    }

    #[test]
    fn wall_times_round_trip() {
        for text in ["2026-11-20T10:00:00.123456Z", "1970-01-01T00:00:00.000000Z"] {
            assert_eq!(iso(from_iso(text).unwrap()), text);
        }
        assert_eq!(iso(from_iso("2026-11-20T12:00:00.5+02:00").unwrap()), "2026-11-20T10:00:00.500000Z");
        assert_eq!(iso(from_iso("2026-11-20T12:00:00").unwrap()), "2026-11-20T12:00:00.000000Z");
        assert_eq!(from_iso("yesterday"), None);
    }
}
