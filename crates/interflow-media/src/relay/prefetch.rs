//! Prefetching: when a player requests a segment of a playlist, the following ones are fetched in advance.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hashlink::LinkedHashMap;
use parking_lot::Mutex;

use super::address::parse;
use super::fetch::FetchRequest;
use super::segment_cache::{CachePolicy, SegmentCache};
use crate::hls::tags::{length_and_offset, lines, tag};
use crate::relay::BaseUrl;

/// Maximum number of playlists remembered; the oldest is forgotten.
const MAX_PLAYLISTS: usize = 256;
/// Maximum number of segments remembered per playlist; later ones are not prefetched.
const MAX_SEGMENTS: usize = 4096;

/// A segment: its URL, and its range as requested by players (`bytes=0-99`).
pub type SegmentRef = (String, Option<String>);

/// The order of segments in recent playlists.
#[derive(Default)]
pub struct Prefetcher {
    known: Mutex<KnownPlaylists>,
}

#[derive(Default)]
struct KnownPlaylists {
    /// The oldest first.
    lists: LinkedHashMap<String, Arc<PlaylistSegments>>,
    /// Maps a segment to the playlist that contains it and its index there. A segment of several playlists belongs to
    /// the last one.
    places: HashMap<SegmentRef, (Arc<PlaylistSegments>, usize)>,
}

struct PlaylistSegments {
    pieces: Vec<SegmentRef>,
    busy: AtomicBool,
}

impl Prefetcher {
    /// Remembers a playlist's segments, in place of those of its previous version: live playlists change with every
    /// reload.
    pub fn record_playlist(&self, playlist: &str, pieces: Vec<SegmentRef>) {
        if pieces.is_empty() {
            return;
        }
        let mut playlists = self.known.lock();
        if let Some(old) = playlists.lists.get(playlist) {
            if old.pieces == pieces {
                return;
            }
            playlists.forget(playlist);
        }
        while playlists.lists.len() >= MAX_PLAYLISTS {
            let Some(oldest) = playlists.lists.front().map(|(playlist, _)| playlist.clone()) else { break };
            playlists.forget(&oldest);
        }
        let list = Arc::new(PlaylistSegments { pieces, busy: AtomicBool::new(false) });
        let pieces = list.pieces.iter().enumerate();
        playlists.places.extend(pieces.map(|(i, piece)| (piece.clone(), (Arc::clone(&list), i))));
        playlists.lists.insert(playlist.to_owned(), list);
    }

    /// Fetches up to `count` segments after this one, sequentially, into the cache. `like` is the player's request,
    /// whose fields are sent with each.
    pub fn prefetch_after(&self, shared: &Arc<SegmentCache>, like: &FetchRequest, piece: &SegmentRef, count: u8) {
        let Some((list, at)) = self.known.lock().places.get(piece).cloned() else { return };
        let next: Vec<SegmentRef> = list.pieces.iter().skip(at + 1).take(usize::from(count)).cloned().collect();
        // One prefetch per playlist: while it runs, the player's next requests find their segments in it.
        if next.is_empty() || list.busy.swap(true, Relaxed) {
            return;
        }
        let (shared, like) = (Arc::clone(shared), like.clone());
        tokio::spawn(async move {
            let _done = PrefetchGuard(list);
            for (address, range) in next {
                let Ok(address) = parse(&address) else { return };
                // The fields are for the origin that the player asked; a list may name any other.
                if address.url.authority != like.url.authority || address.url.scheme != like.url.scheme {
                    return;
                }
                let mut ask = FetchRequest { url: address.url, ..like.clone() };
                // The player's range is that of its own segment.
                ask.headers.remove("range");
                if let Some(range) = range {
                    let _ = ask.headers.set("Range", range);
                }
                if shared.contains_request(&ask) {
                    continue;
                }
                // An error ends the prefetch quietly: the player will see it itself.
                let Ok(fetched) = shared.get(ask, CachePolicy::Segment).await else { return };
                let mut body = fetched.response.body;
                // A segment too long to be shared is left to the player.
                if !fetched.response.head.status.is_success()
                    || body.remaining().is_some_and(|l| l > shared.max_entry_bytes())
                {
                    return;
                }
                while let Some(Ok(_)) = body.frame().await {}
            }
        });
    }
}

struct PrefetchGuard(Arc<PlaylistSegments>);

impl Drop for PrefetchGuard {
    fn drop(&mut self) {
        self.0.busy.store(false, Relaxed);
    }
}

impl KnownPlaylists {
    fn forget(&mut self, playlist: &str) {
        let Some(list) = self.lists.remove(playlist) else { return };
        for piece in &list.pieces {
            if self.places.get(piece).is_some_and(|(l, _)| Arc::ptr_eq(l, &list)) {
                self.places.remove(piece);
            }
        }
    }
}

/// The segments of a media playlist, in order (RFC 8216 4.3.2).
pub fn segment_refs(text: &[u8], base: &BaseUrl) -> Vec<SegmentRef> {
    let (mut found, mut range, mut is_segment): (Vec<SegmentRef>, _, _) = (Vec::new(), None, false);
    let mut ends: HashMap<String, u64> = HashMap::new();
    for line in lines(text) {
        let bytes = line.content(text);
        match tag(bytes) {
            Some((b"EXTINF", _)) => is_segment = true,
            Some((b"EXT-X-BYTERANGE", value)) => {
                range = length_and_offset(std::str::from_utf8(value).unwrap_or_default());
            }
            Some(_) => {}
            None if is_segment && !bytes.is_empty() && !bytes.starts_with(b"#") => {
                let address = base.resolve(&String::from_utf8_lossy(bytes));
                // A range without an offset begins where the previous one of the same resource ended (RFC 8216
                // 4.3.2.2).
                let range = range.take().map(|(length, offset)| {
                    let first = offset.unwrap_or_else(|| ends.get(&address).copied().unwrap_or(0));
                    let end = first.saturating_add(length);
                    ends.insert(address.clone(), end);
                    format!("bytes={first}-{}", end - 1)
                });
                found.push((address, range));
                is_segment = false;
                if found.len() >= MAX_SEGMENTS {
                    break;
                }
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_references_have_their_byte_ranges() {
        let text = b"#EXTM3U\n#EXTINF:4,\na.ts\n#EXTINF:4,\n#EXT-X-BYTERANGE:10@5\nb.mp4\n#EXTINF:4,\n#EXT-X-BYTERANGE:20\nb.mp4\n";
        let base = BaseUrl::parse("http://o/x/m.m3u8").unwrap();
        let piece = |a: &str, r: Option<&str>| (format!("http://o/x/{a}"), r.map(str::to_owned));
        let expected = [piece("a.ts", None), piece("b.mp4", Some("bytes=5-14")), piece("b.mp4", Some("bytes=15-34"))];
        assert_eq!(segment_refs(text, &base), expected);
    }

    #[test]
    fn evicted_playlists_remove_their_segment_positions() {
        let ahead = Prefetcher::default();
        let piece = |n: usize| (format!("http://o/{n}"), None);
        for n in 0..MAX_PLAYLISTS + 10 {
            ahead.record_playlist(&n.to_string(), vec![piece(n), piece(n + 10_000)]);
        }
        let known = ahead.known.lock();
        assert_eq!((known.lists.len(), known.places.len()), (MAX_PLAYLISTS, MAX_PLAYLISTS * 2));
        assert!(!known.places.contains_key(&piece(0)));
    }
}
