//! The embedded web UI: its files, compressed, and the index page for all other paths.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use interflow_codec::content_coding;
use interflow_types::{Headers, media_type};

use crate::state::{AdminState, SharedState};
use crate::{api, status_page};

/// Names and contents; `.br` follows the name of a file that is compressed.
static ASSETS: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/ui_assets.rs"));
/// The largest file of the UI, in bytes.
const MAX_ASSET: u64 = 16 << 20;

/// The page shared by all paths of the UI.
const INDEX: &str = "index.html";

/// The UI loads nothing from other sites. Images in recorded bodies are displayed from memory, as `blob:`.
const POLICY: &str = "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'; object-src 'none'";

/// The policy of pages; the player of media links loads from this instance's gateway, too.
fn policy(state: &AdminState) -> HeaderValue {
    #[cfg(feature = "media")]
    if let Some(policy) = media_policy(state) {
        return policy;
    }
    let _ = state;
    HeaderValue::from_static(POLICY)
}

#[cfg(feature = "media")]
fn media_policy(state: &AdminState) -> Option<HeaderValue> {
    let gateway = state.engine.gateway_addresses().first().copied()?;
    let base: Uri = state.media.as_ref()?.base(gateway).parse().ok()?;
    // In a host name, these would end the directive.
    let authority = base.authority().map(|a| a.as_str()).filter(|a| !a.contains([';', ',', '@']))?;
    let gateway = format!("{}://{authority}", base.scheme_str()?);
    // A browser without HLS of its own plays from memory, as `blob:`, what a script reads.
    HeaderValue::try_from(format!("{POLICY}; media-src 'self' blob: {gateway}; connect-src 'self' {gateway}")).ok()
}

/// Handles all paths without another route: a file of the UI, or its index page.
pub(crate) async fn serve(State(state): State<SharedState>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    let reads = matches!(method, Method::GET | Method::HEAD);
    // API paths never get the index page: a script would take it for a response.
    if !reads || path == "api" || path.starts_with("api/") {
        return api::route_not_found(uri).await.into_response();
    }
    let name = match path {
        "docs" | "docs/" => return Redirect::permanent("/docs/index.html").into_response(),
        path if is_page(path) => INDEX,
        path => path,
    };
    match file(name, &headers, &|| policy(&state)) {
        Some(response) => response,
        // The binary was built without the UI.
        None if name == INDEX => status_page::status(State(state)).await.into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

/// Paths without an extension are client-side routes of the UI.
pub(crate) fn is_page(path: &str) -> bool {
    path == INDEX || !path.rsplit('/').next().unwrap_or_default().contains('.')
}

/// A file, as it is embedded if the client accepts that.
fn file(name: &str, asked: &HeaderMap, policy: &dyn Fn() -> HeaderValue) -> Option<Response> {
    // A file of unknown type is not served, which keeps out files that the build left behind.
    let media = media_type::by_file_name(name)?;
    let accepted = asked.get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let embedded = |name: &str| ASSETS.iter().find(|(asset, _)| *asset == name).map(|(_, bytes)| *bytes);
    let (coding, body) = match embedded(&format!("{name}.br")) {
        None => (None, Bytes::from_static(embedded(name)?)),
        Some(compressed) if accepts(accepted, "br") => (Some("br"), Bytes::from_static(compressed)),
        Some(compressed) => {
            let coding: Headers = [("content-encoding", "br")].into_iter().collect();
            (None, content_coding::decode(&coding, compressed, MAX_ASSET).ok()??)
        }
    };
    let mut response = ([(header::CONTENT_TYPE, media), (header::CACHE_CONTROL, lifetime(name))], body).into_response();
    let headers = response.headers_mut();
    // Also without a coding: a cache must not give this variant to everyone.
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    if name.ends_with(".html") {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy());
        let features = HeaderValue::from_static("camera=(), geolocation=(), microphone=()");
        headers.insert(HeaderName::from_static("permissions-policy"), features);
    }
    Some(response)
}

/// Names under `assets/` contain a hash of their content, so they never change.
fn lifetime(name: &str) -> &'static str {
    match name {
        // The index names the hashed files, so a stale one would load files that are gone.
        INDEX => "no-store",
        _ if name.starts_with("assets/") => "private, max-age=31536000, immutable",
        _ => "private, max-age=600",
    }
}

/// Whether an `Accept-Encoding` field accepts a coding by name (RFC 9110 12.5.3).
fn accepts(field: &str, coding: &str) -> bool {
    field.split(',').any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case(coding) && weight.is_none_or(|q| q > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_encoding_matches_by_name_unless_its_weight_is_zero() {
        for (field, br) in [
            ("gzip, deflate, br, zstd", true),
            ("BR;q=0.5", true),
            ("br;q=0, gzip;q=0.1", false),
            ("brotli", false),
            ("", false),
        ] {
            assert_eq!(accepts(field, "br"), br, "{field}");
        }
    }

    /// Positions in the table's source are part of what is compiled, so its length may not depend on where it is built.
    #[test]
    fn the_table_of_files_holds_no_path_of_the_machine() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let table = include_str!(concat!(env!("OUT_DIR"), "/ui_assets.rs"));
        assert!(!table.contains(root.to_str().unwrap()), "{table}");
    }

    #[test]
    fn paths_without_a_file_extension_serve_the_page() {
        for (path, page) in [
            ("", true),
            ("settings", true),
            ("a/b", true),
            ("index.html", true),
            ("assets/x.js", false),
            ("a.b/c", true),
        ] {
            assert_eq!(is_page(path), page, "{path}");
        }
    }

    #[test]
    fn only_hashed_assets_are_cached_as_immutable() {
        for (name, kept) in [("index.html", "no-store"), ("theme.js", "600"), ("assets/index-abc.js", "immutable")] {
            assert!(lifetime(name).contains(kept), "{name}: {}", lifetime(name));
        }
    }

    #[test]
    fn a_client_without_brotli_gets_the_decoded_file() {
        for (name, _) in ASSETS.iter().filter(|(name, _)| name.ends_with(".html.br")) {
            let mut asked = HeaderMap::new();
            let mut served = |name: &str, codings| {
                asked.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(codings));
                let response = file(name, &asked, &|| HeaderValue::from_static(POLICY)).unwrap();
                response.headers().contains_key(header::CONTENT_ENCODING)
            };
            let name = name.trim_end_matches(".br");
            assert_eq!((served(name, "br"), served(name, "gzip")), (true, false), "{name}");
        }
    }

    #[test]
    fn precompressed_files_are_not_served_directly() {
        for name in ["assets/index.js.br", "index.html.gz", "../Cargo.toml", "noending"] {
            assert!(file(name, &HeaderMap::new(), &|| HeaderValue::from_static(POLICY)).is_none(), "{name}");
        }
    }
}
