//! URLs of ours for what a playlist or manifest names.

use crate::relay::address::push_value;
use crate::token::ChildKey;

/// Makes child URLs: `BASE[/_token_TOKEN]/path?query`, the query signed or hidden when there is a token.
pub struct ChildUrls {
    front: Vec<u8>,
    key: Option<ChildKey>,
    hide: bool,
}

impl ChildUrls {
    /// Below a base (`http://host/media`). Without a token, queries stand as they are.
    pub fn new(base: &str, token: Option<(&str, ChildKey)>, hide: bool) -> Self {
        let mut front = base.trim_end_matches('/').as_bytes().to_vec();
        let key = token.map(|(token, key)| {
            front.extend_from_slice(b"/_token_");
            front.extend_from_slice(token.as_bytes());
            key
        });
        Self { front, key, hide }
    }

    /// Writes the URL of an endpoint with these parameters.
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

    /// The same as text.
    pub fn url(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        let parameters: Vec<_> = parameters.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let mut out = Vec::new();
        self.push(path, &parameters, &mut out);
        String::from_utf8(out).expect("a base, a path and encoded values are ASCII")
    }

    /// Writes everything before the query; what follows is `end`'s to seal.
    pub fn write_prefix(&self, path: &str, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&self.front);
        let from = out.len();
        out.extend_from_slice(path.as_bytes());
        out.push(b'?');
        from
    }

    /// Seals what was written since `begin`.
    pub fn write_signature(&self, out: &mut Vec<u8>, from: usize) {
        match &self.key {
            Some(key) if self.hide => key.hide(out, from),
            Some(key) => key.sign(out, from),
            None => {}
        }
    }
}
