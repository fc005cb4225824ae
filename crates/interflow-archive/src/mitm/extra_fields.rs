//! mitmproxy fields without a column of their own: kept unchanged with the row, and written back on export.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json, json};

use super::tnetstring::TnetValue;
use super::tnetstring::write::{bool, bytes, dict, float, int, list, null, text};
use interflow_store::FlowRecord;

/// The key among the archive facts of a row.
const MEMBER: &str = "_mitmproxy";
/// Maximum size kept per flow, in bytes.
const MAX_KEPT: usize = 256 * 1024;
/// Members of `metadata` that map to columns.
const OWN_METADATA: [&str; 4] = ["tags", "user", "request_size", "response_size"];

pub(super) fn save_extras(state: &TnetValue<'_>, row: &mut FlowRecord, notes: &mut Vec<String>) {
    let mut extras = Map::new();
    if let Some(TnetValue::Dict(members)) = state.get("metadata") {
        let own = |name: &[u8]| OWN_METADATA.iter().any(|o| o.as_bytes() == name);
        let rest = to_map(members.iter().filter(|(name, _)| !own(name)));
        if !rest.is_empty() {
            extras.insert("metadata".into(), rest.into());
        }
    }
    if let Some(mark) = state.get("marked").and_then(TnetValue::text).filter(|m| !m.is_empty()) {
        extras.insert("marked".into(), mark.into());
    }
    if let Some(replay) =
        state.get("is_replay").and_then(TnetValue::text).filter(|r| matches!(&**r, "request" | "response"))
    {
        extras.insert("is_replay".into(), replay.into());
    } else if let Some(side) = ["request", "response"].into_iter().find(|s| replayed_before_version_8(state, s)) {
        extras.insert("is_replay".into(), side.into());
    }
    for (name, conn) in [("client_certificates", "client_conn"), ("server_certificates", "server_conn")] {
        let conn = state.get(conn);
        let newer = conn.into_iter().flat_map(|c| c.items("certificate_list"));
        let older = conn.and_then(|c| c.any(&["cert", "clientcert"]));
        let all: Vec<Json> = newer.chain(older).filter_map(TnetValue::text).map(Json::from).collect();
        if !all.is_empty() {
            extras.insert(name.into(), all.into());
        }
    }
    if let Some(cert) = state.get("client_conn").and_then(|c| c.get("mitmcert")).and_then(TnetValue::text) {
        extras.insert("mitmcert".into(), cert.into());
    }
    if extras.is_empty() {
        return;
    }
    let size = Json::Object(extras.clone()).to_string().len();
    if size > MAX_KEPT {
        notes.push(format!("metadata and certificates: longer than {MAX_KEPT} bytes and left out"));
        return;
    }
    let mut archive = row.archive.as_deref().cloned().unwrap_or_default();
    archive.insert(MEMBER.into(), extras.into());
    row.archive = Some(Arc::new(archive));
}

fn replayed_before_version_8(state: &TnetValue<'_>, side: &str) -> bool {
    state.get(side).and_then(|m| m.get("is_replay")).is_some_and(TnetValue::is_true)
}

pub(super) struct MitmExtras<'a>(Option<&'a Map<String, Json>>);

impl<'a> MitmExtras<'a> {
    pub(super) fn from_row(row: &'a FlowRecord) -> Self {
        Self(row.archive.as_ref().and_then(|a| a.get(MEMBER)).and_then(Json::as_object))
    }

    fn member(&self, name: &str) -> Option<&'a Json> {
        self.0?.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.member(name)?.as_str()
    }

    pub(super) fn certificates(&self, name: &str) -> Vec<u8> {
        let all = self.member(name).and_then(Json::as_array).into_iter().flatten();
        list(all.filter_map(Json::as_str).filter(|pem| is_certificate(pem)).map(|pem| bytes(pem.as_bytes())))
    }

    pub(super) fn certificate(&self, name: &str) -> Vec<u8> {
        self.text(name).filter(|pem| is_certificate(pem)).map_or_else(null, |pem| bytes(pem.as_bytes()))
    }

    /// Members of `metadata`, encoded.
    pub(super) fn metadata(&self) -> Vec<(&'a str, Vec<u8>)> {
        let all = self.member("metadata").and_then(Json::as_object).into_iter().flatten();
        all.filter(|(name, _)| !OWN_METADATA.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), from_json(value)))
            .collect()
    }
}

/// Whether a text contains a complete certificate: mitmproxy rejects a file with an unreadable one.
fn is_certificate(pem: &str) -> bool {
    let inner = pem.trim().strip_prefix("-----BEGIN CERTIFICATE-----");
    let Some(inner) = inner.and_then(|rest| rest.strip_suffix("-----END CERTIFICATE-----")) else { return false };
    let digits: String = inner.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let Ok(der) = STANDARD.decode(digits) else { return false };
    // A sequence that ends where its length says (X.690 8.1.3).
    match der[..] {
        [0x30, 0x82, high, low, ..] => usize::from(u16::from_be_bytes([high, low])) + 4 == der.len(),
        [0x30, 0x81, length, ..] => usize::from(length) + 3 == der.len(),
        [0x30, length, ..] if length < 0x80 => usize::from(length) + 2 == der.len(),
        _ => false,
    }
}

fn to_json(value: &TnetValue<'_>) -> Json {
    match value {
        TnetValue::Null => Json::Null,
        TnetValue::Bool(b) => (*b).into(),
        TnetValue::Int(n) => (*n).into(),
        TnetValue::Float(f) => Number::from_f64(*f).map_or(Json::Null, Json::Number),
        TnetValue::Bytes(b) => match std::str::from_utf8(b) {
            Ok(text) => text.into(),
            Err(_) => json!({"base64": STANDARD.encode(b)}),
        },
        TnetValue::List(all) => all.iter().map(to_json).collect(),
        TnetValue::Dict(all) => to_map(all.iter()).into(),
    }
}

fn to_map<'a>(members: impl Iterator<Item = &'a (&'a [u8], TnetValue<'a>)>) -> Map<String, Json> {
    members.map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), to_json(value))).collect()
}

fn from_json(value: &Json) -> Vec<u8> {
    match value {
        Json::Null => null(),
        Json::Bool(b) => bool(*b),
        Json::Number(n) => n.as_i64().map_or_else(|| float(n.as_f64().unwrap_or_default()), int),
        Json::String(s) => text(s),
        Json::Array(all) => list(all.iter().map(from_json)),
        Json::Object(all) => match all.get("base64").and_then(Json::as_str).map(|b| STANDARD.decode(b)) {
            // An object of this form may also come from the archive; with further members it stays one.
            Some(Ok(raw)) if all.len() == 1 => bytes(&raw),
            _ => dict(&all.iter().map(|(n, v)| (n.as_str(), from_json(v))).collect::<Vec<_>>()),
        },
    }
}
