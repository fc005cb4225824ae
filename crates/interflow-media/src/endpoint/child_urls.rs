//! Builds gateway URLs for the resources of a playlist or manifest.

use crate::relay::address::push_value;
use crate::token::ChildKey;

/// Builds child URLs: `BASE[/_token_TOKEN]/path?query`, with the query signed or encrypted if there is a token.
/// Writes bytes into the output directly, since a playlist has thousands of them.
pub struct ChildUrls {
    front: Vec<u8>,
    key: Option<ChildKey>,
    hide: bool,
}

impl ChildUrls {
    /// With a base (`http://host/media`). Without a token, queries are in clear. `hide` encrypts them.
    pub fn new(base: &str, token: Option<(&str, ChildKey)>, hide: bool) -> Self {
        let mut front = base.trim_end_matches('/').as_bytes().to_vec();
        let key = token.map(|(token, key)| {
            front.extend_from_slice(b"/_token_");
            front.extend_from_slice(token.as_bytes());
            key
        });
        Self { front, key, hide }
    }

    /// Appends the URL of an endpoint with these parameters.
    pub fn push(&self, path: &str, parameters: &[(&str, &[u8])], out: &mut Vec<u8>) {
        let from = self.write_prefix(path, out);
        for (i, (name, value)) in parameters.iter().enumerate() {
            if i > 0 {
                out.push(b'&');
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            push_value(value, out);
        }
        self.write_signature(out, from);
    }

    /// Like [`push`](Self::push), as a string.
    pub fn url(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        let parameters: Vec<_> = parameters.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let mut out = Vec::new();
        self.push(path, &parameters, &mut out);
        String::from_utf8(out).expect("a base, a path and encoded values are ASCII")
    }

    /// Writes everything before the query and returns where the path begins;
    /// [`write_signature`](Self::write_signature) seals what follows.
    pub fn write_prefix(&self, path: &str, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&self.front);
        let from = out.len();
        out.extend_from_slice(path.as_bytes());
        out.push(b'?');
        from
    }

    /// Seals what was written since `from`; does nothing without a token.
    pub fn write_signature(&self, out: &mut Vec<u8>, from: usize) {
        match &self.key {
            Some(key) if self.hide => key.hide(out, from),
            Some(key) => key.sign(out, from),
            None => {}
        }
    }
}
