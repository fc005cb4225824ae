//! `/playlist/*`: IPTV lists merged and rewritten.

use super::error::{EndpointResult, MediaError, Result, playlist_response};
use super::hls::PlaylistProbe;
use super::params::decode_if_base64;
use super::request::MediaRequest;
use crate::hls::tags::lines;
use crate::relay::address;
use crate::relay::fetch::FetchedDocument;

/// Maximum number of lists to merge; each is a fetch.
const MAX_PLAYLISTS: usize = 64;

/// A requested list: its URL after the prefixes `sort:` and `no_proxy:`.
struct PlaylistSource {
    address: String,
    sort: bool,
    direct: bool,
}

impl PlaylistSource {
    fn read(text: &str) -> Self {
        let (mut rest, mut sort, mut direct) = (text.trim(), false, false);
        loop {
            if let Some(r) = rest.strip_prefix("sort:") {
                (rest, sort) = (r, true);
            } else if let Some(r) = rest.strip_prefix("no_proxy:") {
                (rest, direct) = (r, true);
            } else {
                return Self { address: decode_if_base64(rest), sort, direct };
            }
        }
    }
}

impl MediaRequest<'_> {
    /// Merges several lists: those marked `sort:` first, sorted by name, then the others in order. All must be
    /// readable.
    pub async fn merged_playlist(self) -> EndpointResult {
        let params = &self.asked.params;
        let list = params.get("d").ok_or_else(|| MediaError::missing("d"))?;
        let sources: Vec<PlaylistSource> =
            list.split(';').filter(|t| !t.trim().is_empty()).map(PlaylistSource::read).collect();
        if sources.len() > MAX_PLAYLISTS {
            return Err(MediaError::bad_request(format!("at most {MAX_PLAYLISTS} lists are put together")));
        }
        let mut sorted: Vec<(String, Vec<u8>)> = Vec::new();
        let (mut others, mut head, mut held) = (Vec::new(), None, 0);
        for source in &sources {
            let document = self.list(&source.address).await?;
            let text = self.rewrite_playlist_text(&document, source.direct || params.is_true("no_proxy")).await?;
            held += text.len() as u64;
            if held > self.state.config.rewritten_bytes.0 {
                return Err(MediaError::upstream("the lists together are longer than media.rewritten_bytes"));
            }
            let (first, entries) = entries(&text);
            head = head.or(first);
            if source.sort {
                sorted.extend(entries.into_iter().map(|e| (name_of(e), e.to_vec())));
            } else {
                entries.into_iter().for_each(|e| push_entry(&mut others, e));
            }
        }
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        let mut out = head.unwrap_or_else(|| b"#EXTM3U\n".to_vec());
        sorted.iter().for_each(|(_, e)| push_entry(&mut out, e));
        out.extend_from_slice(&others);
        Ok(playlist_response(out))
    }

    /// One list, from `url` or `d`.
    pub async fn built_playlist(self) -> EndpointResult {
        let params = &self.asked.params;
        let address = params.get("url").or_else(|| params.get("d"));
        let address = address.ok_or_else(|| MediaError::bad_request("the parameter `url` is missing: which list?"))?;
        let document = self.list(&decode_if_base64(address)).await?;
        Ok(playlist_response(self.rewrite_playlist_text(&document, params.is_true("no_proxy")).await?))
    }

    /// Fetches a list; anything else at its URL is an error.
    async fn list(self, address: &str) -> Result<FetchedDocument> {
        match self.find_playlist(address::parse(address)?).await? {
            PlaylistProbe::Playlist(document) => Ok(document),
            PlaylistProbe::Other(response) => {
                let text = format!("there is no list at {address} (status {})", response.head.status.as_u16());
                Err(MediaError::upstream(text))
            }
        }
    }
}

/// The first line of a list, and its entries: all lines up to and including a URL. Lines after the last URL are
/// dropped.
fn entries(text: &[u8]) -> (Option<Vec<u8>>, Vec<&[u8]>) {
    let (mut head, mut found, mut from) = (None, Vec::new(), 0);
    for line in lines(text) {
        let bytes = line.content(text);
        if bytes.starts_with(b"#EXTM3U") {
            head = Some([bytes, b"\n"].concat());
            from = line.next;
        } else if !bytes.is_empty() && !bytes.starts_with(b"#") {
            found.extend(text.get(from..line.next));
            from = line.next;
        }
    }
    (head, found)
}

fn push_entry(out: &mut Vec<u8>, entry: &[u8]) {
    out.extend_from_slice(entry);
    if !entry.ends_with(b"\n") {
        out.push(b'\n');
    }
}

/// The channel's name: the text after the last unquoted comma of `#EXTINF`.
fn name_of(entry: &[u8]) -> String {
    let inf = lines(entry).map(|l| l.content(entry)).find(|l| l.starts_with(b"#EXTINF")).unwrap_or_default();
    let mut quoted = false;
    let comma = inf.iter().position(|byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    });
    let name = comma.map_or(inf.len(), |at| at + 1);
    String::from_utf8_lossy(inf.get(name..).unwrap_or_default()).trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn playlists_are_split_into_entries() {
        let text = b"#EXTM3U url-tvg=\"x\"\n#EXTINF:-1 group-title=\"a,b\",Beta\n#EXTGRP:x\nhttp://b/\n\n#EXTINF:-1,Alpha\nhttp://a/";
        let (head, entries) = entries(text);
        assert_eq!(head.as_deref(), Some(&b"#EXTM3U url-tvg=\"x\"\n"[..]));
        assert_eq!(entries.iter().map(|e| name_of(e)).collect::<Vec<_>>(), ["beta", "alpha"]);
    }

    #[test]
    fn playlist_source_prefixes_combine() {
        let w = PlaylistSource::read("no_proxy:sort:http://a/x");
        assert!(w.sort && w.direct && w.address == "http://a/x");
    }
}
