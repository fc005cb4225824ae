//! JSON documents referred to by playlists: steering manifests (RFC 8216bis 7) and interstitial asset lists.

use serde_json::{Map, Value};

use super::rewrite::{UriReplacer, UriRole};
use crate::relay::BaseUrl;

/// Rewrites a steering manifest's reload URL. Pathway clones are removed, because they replace the hosts of variants,
/// which now point to the gateway; the playlist's own pathways remain.
pub fn rewrite_steering(text: &[u8], base: &BaseUrl, place: &mut impl UriReplacer) -> Option<Vec<u8>> {
    let mut manifest: Map<String, Value> = serde_json::from_slice(text).ok()?;
    manifest.remove("PATHWAY-CLONES");
    if let Some(reload) = manifest.get_mut("RELOAD-URI") {
        replace_uri(reload, UriRole::Steering, base, place);
    }
    serde_json::to_vec(&manifest).ok()
}

/// Rewrites each asset's URL in an asset list (`X-ASSET-LIST`); `None` if it is not a JSON object.
pub fn rewrite_asset_list(text: &[u8], base: &BaseUrl, place: &mut impl UriReplacer) -> Option<Vec<u8>> {
    let mut list: Map<String, Value> = serde_json::from_slice(text).ok()?;
    for asset in list.get_mut("ASSETS").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(uri) = asset.get_mut("URI") {
            replace_uri(uri, UriRole::Playlist, base, place);
        }
    }
    serde_json::to_vec(&list).ok()
}

/// Replaces a JSON string with a URL.
fn replace_uri(value: &mut Value, kind: UriRole, base: &BaseUrl, place: &mut impl UriReplacer) {
    let Some(address) = value.as_str().map(|reference| base.resolve(reference)) else { return };
    let mut out = Vec::new();
    place.write_uri(kind, &address, None, &mut out);
    *value = String::from_utf8_lossy(&out).into_owned().into();
}
