//! Redacts a request's URL (path and query) and header fields.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use interflow_llm::{LlmCall, LlmRefusal, model_in_path};
use interflow_redact::{AddressRule, RedactMode, RedactionSession};
use interflow_types::{ByteStr, Flow, Headers, RequestHead, StatusCode, data_file, percent};

use super::effective_policy::{EffectivePolicy, RedactSettings};

/// Query parameters with credentials that the provider needs unchanged. Everything else is scanned.
const IGNORED_PARAMETERS: [&str; 4] = ["key", "api_key", "api-key", "access_token"];

/// Header fields defined by HTTP, a provider or its SDK, and credentials. A trailing `*` matches any suffix.
/// Everything else is scanned.
static IGNORED_HEADERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/known_headers.txt")).collect());

/// Scans a request's URL and header fields, and redacts or rejects it. Findings are counted in `found`, also when
/// they are only flagged.
pub(super) fn scan(
    settings: &RedactSettings,
    choice: &EffectivePolicy,
    flow: &Flow,
    exchange: &LlmCall,
    head: &mut RequestHead,
    found: &mut BTreeMap<String, u64>,
) -> Result<(), LlmRefusal> {
    if choice.mode == RedactMode::Off {
        return Ok(());
    }
    // One-way: what is replaced in a URL or a field is not restored in responses.
    let mut look = UrlScan { choice, session: RedactionSession::one_way().in_context(choice.context.clone()), found };
    let path =
        (settings.url != AddressRule::Pass).then(|| look.redact_url(&head.url.path, exchange)).transpose()?.flatten();
    let fields = if settings.headers == AddressRule::Pass { None } else { look.redact_headers(head)? };
    if choice.mode != RedactMode::Redact {
        return Ok(());
    }
    let refused = [(path.is_some(), settings.url, "URL"), (fields.is_some(), settings.headers, "header")];
    // The rejected request is recorded redacted, too.
    if let Some(path) = path {
        head.url.path = path;
    }
    if let Some(fields) = fields {
        head.headers = fields;
    }
    if let Some((.., place)) = refused.iter().find(|(any, rule, _)| *any && *rule == AddressRule::Refuse) {
        tracing::debug!(flow = %flow.id, "the {place} of a request contains what the policy redacts");
        let key = if *place == "URL" { "redact.url" } else { "redact.headers" };
        let message =
            format!("the request's {place} contains personal data or a secret; {key} = \"redact\" removes it");
        return Err(LlmRefusal::new(StatusCode::FORBIDDEN, "forbidden", "address_refused", message));
    }
    Ok(())
}

struct UrlScan<'a> {
    choice: &'a EffectivePolicy,
    session: RedactionSession,
    found: &'a mut BTreeMap<String, u64>,
}

impl UrlScan<'_> {
    /// The redacted path and query; `None` if nothing was found.  Unchanged parts are copied byte for byte.
    fn redact_url(&mut self, path: &ByteStr, exchange: &LlmCall) -> Result<Option<ByteStr>, LlmRefusal> {
        let (only, query) = path.split_once('?').map_or((path.as_str(), None), |(p, q)| (p, Some(q)));
        // The model's name is part of the route, and would be unknown after a replacement: only what can be none is scanned.
        let model = model_in_path(exchange.provider, only).unwrap_or(0..0);
        let (mut out, mut changed, mut at) = (String::with_capacity(path.len()), false, 0);
        for segment in only.split_inclusive('/') {
            let range = at..at + segment.len();
            at = range.end;
            let word = segment.trim_end_matches('/');
            let named = range.start < model.end && model.start < range.end;
            let name = &only[range.start.max(model.start).min(range.end)..range.end.min(model.end).max(range.start)];
            let is_model = named && is_model_name(&percent::decoded_lossy(name));
            let with = if is_model { None } else { self.redact_encoded("", word)? };
            // Routes and translations took the name from the path before.
            if named && with.is_some() && self.choice.mode == RedactMode::Redact {
                let message = "the model's name in the request's path contains personal data or a secret";
                return Err(LlmRefusal::new(StatusCode::FORBIDDEN, "forbidden", "address_refused", message));
            }
            changed |= with.is_some();
            out.push_str(with.as_deref().unwrap_or(word));
            out.push_str(&segment[word.len()..]);
        }
        for (i, pair) in query.into_iter().flat_map(|q| q.split('&')).enumerate() {
            out.push(if i == 0 { '?' } else { '&' });
            let (name, value) = pair.split_once('=').unwrap_or(("", pair));
            let known = name == "model" && is_model_name(&percent::decoded_lossy(value))
                || IGNORED_PARAMETERS.contains(&name)
                || name.get(..6).is_some_and(|n| n.eq_ignore_ascii_case("x-amz-"));
            // A name may be a value that a client put in the wrong place.
            let new_name = if known { None } else { self.redact_encoded("", name)? };
            let new_value = if known { None } else { self.redact_encoded(name, value)? };
            changed |= new_name.is_some() || new_value.is_some();
            out.push_str(new_name.as_deref().unwrap_or(name));
            out.push_str(&pair[name.len()..pair.len() - value.len()]);
            out.push_str(new_value.as_deref().unwrap_or(value));
        }
        Ok(changed.then(|| out.into()))
    }

    /// The fields, each redacted in its place; `None` if nothing was found. A value that is not UTF-8 is read as Latin-1, as
    /// older clients write it.
    fn redact_headers(&mut self, head: &RequestHead) -> Result<Option<Headers>, LlmRefusal> {
        let (mut fields, mut changed) = (Headers::with_capacity(head.headers.len(), head.headers.size()), false);
        for (name, value) in head.headers.iter() {
            let label = String::from_utf8_lossy(name);
            let small = label.to_ascii_lowercase();
            let is_known = |f: &&str| f.strip_suffix('*').map_or(small == **f, |start| small.starts_with(start));
            // Google's uploads name the file in a field of theirs.
            let is_ignored = small != "x-goog-upload-file-name" && IGNORED_HEADERS.iter().any(is_known);
            let latin = || value.iter().map(|b| char::from(*b)).collect::<String>();
            let text = std::str::from_utf8(value).map_or_else(|_| Cow::Owned(latin()), Cow::Borrowed);
            let is_latin = matches!(text, Cow::Owned(_));
            let with = if is_ignored { None } else { self.redact_value(&label, &text)? };
            changed |= with.is_some();
            match with {
                // A strategy may produce an invalid field value: then the field is left out.
                Some(with) if is_latin => drop(fields.append(&label, latin1(&with))),
                Some(with) => drop(fields.append(&label, with)),
                None => fields.append_raw(name, value),
            }
        }
        Ok(changed.then_some(fields))
    }

    /// Redacts a percent-encoded part of a URL. A `+` is a space in form-encoded queries, but not in paths.
    fn redact_encoded(&mut self, name: &str, raw: &str) -> Result<Option<String>, LlmRefusal> {
        if raw.is_empty() || is_identifier_like(raw) {
            return Ok(None);
        }
        let spaced = raw.replace('+', " ");
        let text = percent::decoded_lossy(if name.is_empty() { raw } else { &spaced });
        Ok(self.redact_value(name, &text)?.map(|with| percent::encoded(&with)))
    }

    /// Redacts a value, in the context of its name: detectors find more when they see `phone: ` before a number.
    fn redact_value(&mut self, name: &str, value: &str) -> Result<Option<String>, LlmRefusal> {
        if value.is_empty() || is_identifier_like(value) {
            return Ok(None);
        }
        let led = if name.is_empty() { value.to_owned() } else { format!("{name}: {value}") };
        let from = led.len() - value.len();
        let failed = |e: interflow_redact::RedactError| {
            let message = format!("the request's URL and header fields could not be redacted: {e}");
            LlmRefusal::new(StatusCode::BAD_GATEWAY, "redaction_error", "request_failed", message)
        };
        let redaction = self.choice.redactor.redact_text(&led, &mut self.session).map_err(failed)?;
        let (mut out, mut at) = (String::new(), from);
        // Findings in the name, which precedes the value, are not changed.
        for span in redaction.spans.iter().filter(|s| s.end > from) {
            *self.found.entry(span.type_name.clone()).or_default() += 1;
            out.push_str(&led[at..span.start.max(at)]);
            out.push_str(&span.replacement);
            at = span.end;
        }
        if at == from {
            return Ok(None);
        }
        out.push_str(&led[at..]);
        Ok(Some(out))
    }
}

/// A text as Latin-1, with `?` for characters that it does not have.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect()
}

/// Whether a text may name a model: some of them have the names of people.
fn is_model_name(text: &str) -> bool {
    // Vertex has a version there: a date, `default`.
    let is_version = |version: &str| version.len() <= 8 && version.bytes().all(|b| b.is_ascii_alphanumeric());
    let text = text.split_once('@').filter(|(_, version)| is_version(version)).map_or(text, |(name, _)| name);
    text.bytes().any(|b| b.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
}

/// An API word or identifier: letters, no long run of digits even across separators, and no part as long as a key or
/// base64. Saves the scan of most segments and avoids false findings in ids.
pub(super) fn is_identifier_like(text: &str) -> bool {
    if text.split(['-', '.', '_', ':']).any(|part| part.len() > MAX_IDENTIFIER_PART) {
        return false;
    }
    let (mut letters, mut upper, mut digits, mut most) = (false, false, 0usize, 0usize);
    for b in text.bytes() {
        match b {
            b'0'..=b'9' => digits += 1,
            b'-' | b'.' => {}
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':' => {
                letters = true;
                upper |= b.is_ascii_uppercase();
                digits = 0;
            }
            _ => return false,
        }
        most = most.max(digits);
    }
    // A capitalized word without digits, such as `Berg`, may be a name.
    letters && most < MIN_PERSONAL_DIGITS && (!upper || text.bytes().any(|b| b.is_ascii_digit()))
}

/// Runs of at least this many digits may be a personal number; shorter ones are most often versions or counters.
pub(super) const MIN_PERSONAL_DIGITS: usize = 7;
/// Longer parts of a value may be a key or encoded.
const MAX_IDENTIFIER_PART: usize = 15;
