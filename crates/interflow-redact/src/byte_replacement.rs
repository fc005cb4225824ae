//! Replaces known byte strings in header fields and in bodies as they are forwarded: placeholders by secrets, and
//! secrets by something that may be seen.

use std::sync::Arc;
use std::task::{Context, Poll};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use interflow_types::{Body, BodyFrame, BodyStream, Headers, Result};

/// Replaces each of several byte strings by another.
#[derive(Debug)]
pub struct Replacer {
    find: AhoCorasick,
    texts: Vec<Vec<u8>>,
    with: Vec<Vec<u8>>,
    /// The longest search string, in bytes.
    longest: usize,
    /// Whether every replacement is as long as what it replaces.
    keeps_length: bool,
}

impl Replacer {
    /// From pairs of search string and replacement; `None` if there are none.
    pub fn new(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Self> {
        let longest = pairs.iter().map(|(from, _)| from.len()).max().filter(|n| *n > 0)?;
        let keeps_length = pairs.iter().all(|(from, with)| from.len() == with.len());
        let (from, with): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        // Longest match: a placeholder that contains another one as its beginning is replaced as a whole.
        let find = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&from).ok()?;
        Some(Self { find, texts: from, with, longest, keeps_length })
    }

    /// Replaces all matches; also returns their indices. `None` if there are none.
    pub fn replace(&self, bytes: &[u8]) -> Option<(Vec<u8>, Vec<usize>)> {
        let mut found = Vec::new();
        let mut out = Vec::new();
        let mut at = 0;
        for hit in self.find.find_iter(bytes) {
            let index = hit.pattern().as_usize();
            out.extend_from_slice(&bytes[at..hit.start()]);
            out.extend_from_slice(&self.with[index]);
            at = hit.end();
            found.push(index);
        }
        if found.is_empty() {
            return None;
        }
        out.extend_from_slice(&bytes[at..]);
        Some((out, found))
    }

    /// The length of the longest suffix that may be the beginning of a match.
    fn partial_match_len(&self, held: &[u8]) -> usize {
        let most = held.len().min(self.longest - 1);
        // A whole search string would be a match, not the beginning of one.
        let is_begun = |n: &usize| {
            let end = &held[held.len() - n..];
            self.texts.iter().any(|t| t.len() > *n && t.starts_with(end))
        };
        (1..=most).rev().find(is_begun).unwrap_or(0)
    }

    /// Replaces in the part that is certain, and keeps back a suffix in which a match may have begun. At the end of
    /// the stream nothing is kept.
    fn replace_step(&self, held: &mut BytesMut, end: bool, seen: &mut impl FnMut(usize)) -> Bytes {
        let mut out = BytesMut::new();
        let mut at = 0;
        // A match that begins before `safe` is final: a longer one would have to reach the end, and so would begin in
        // the kept suffix.
        let safe = if end { held.len() } else { held.len() - self.partial_match_len(held) };
        for hit in self.find.find_iter(&held[..]) {
            if hit.start() >= safe {
                break;
            }
            out.extend_from_slice(&held[at..hit.start()]);
            out.extend_from_slice(&self.with[hit.pattern().as_usize()]);
            at = hit.end();
            seen(hit.pattern().as_usize());
        }
        let upto = safe.max(at);
        out.extend_from_slice(&held[at..upto]);
        let _ = held.split_to(upto);
        out.freeze()
    }
}

impl AsRef<Replacer> for Replacer {
    fn as_ref(&self) -> &Replacer {
        self
    }
}

/// Replaces in a body as it is forwarded, including trailers. `seen` is called with the index of each match.
pub struct ReplacingBody<S, F> {
    body: Body,
    swap: Arc<S>,
    held: BytesMut,
    seen: F,
    over: bool,
    last: Option<BodyFrame>,
}

impl<S: AsRef<Replacer> + Send + Sync + 'static, F: FnMut(usize) + Send + 'static> ReplacingBody<S, F> {
    pub fn wrap(body: Body, swap: Arc<S>, seen: F) -> Body {
        Body::stream(Self { body, swap, held: BytesMut::new(), seen, over: false, last: None })
    }
}

impl<S: AsRef<Replacer> + Send + Sync, F: FnMut(usize) + Send> BodyStream for ReplacingBody<S, F> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if self.over {
                return Poll::Ready(self.last.take().map(Ok));
            }
            let frame = match self.body.poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(frame) => frame,
            };
            let end = match frame {
                Some(Ok(BodyFrame::Data(data))) => {
                    self.held.extend_from_slice(&data);
                    false
                }
                Some(Ok(BodyFrame::Trailers(trailers))) => {
                    self.last = Some(BodyFrame::Trailers(replace_in_headers((*self.swap).as_ref(), &trailers).0));
                    true
                }
                // What is held back is dropped: it may be the beginning of a secret, and the body is broken anyway.
                Some(Err(e)) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(e)));
                }
                None => true,
            };
            self.over = end;
            let out = (*self.swap).as_ref().replace_step(&mut self.held, end, &mut self.seen);
            // Nothing is certain yet: wait for more.
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(BodyFrame::Data(out))));
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        let remaining = self.body.remaining().filter(|_| (*self.swap).as_ref().keeps_length)?;
        Some(remaining + self.held.len() as u64)
    }
}

/// Replaces in header fields, including Basic credentials (RFC 7617); also returns the indices of the matches.
pub fn replace_in_headers(swap: &Replacer, headers: &Headers) -> (Headers, Vec<usize>) {
    let mut out = Headers::with_capacity(headers.len(), headers.size());
    let mut all = Vec::new();
    for (name, value) in headers {
        let basic = || {
            let (scheme, packed) = value.split_at_checked(6).filter(|(s, _)| s.eq_ignore_ascii_case(b"basic "))?;
            let (plain, found) = swap.replace(&STANDARD.decode(packed.trim_ascii()).ok()?)?;
            Some(([scheme, STANDARD.encode(plain).as_bytes()].concat(), found))
        };
        // The plain value first; Basic credentials only if nothing was found in it.
        match swap.replace(value).or_else(basic) {
            Some((value, found)) => {
                out.append_unchecked(name, &value);
                all.extend(found);
            }
            None => out.append_unchecked(name, value),
        }
    }
    (out, all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Pieces(std::vec::IntoIter<Bytes>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
            Poll::Ready(self.0.next().map(|b| Ok(BodyFrame::Data(b))))
        }
    }

    fn swap() -> Replacer {
        let pair = |a: &str, b: &str| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
        Replacer::new(vec![pair("PLACEHOLDER", "s"), pair("PLACE", "much longer than before"), pair("aab", "X")])
            .unwrap()
    }

    fn streamed(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut pieces = Vec::new();
        let mut rest = text;
        for cut in cuts {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            pieces.extend((!piece.is_empty()).then(|| Bytes::copy_from_slice(piece)));
            rest = behind;
        }
        pieces.extend((!rest.is_empty()).then(|| Bytes::copy_from_slice(rest)));
        let body = ReplacingBody::wrap(Body::stream(Pieces(pieces.into_iter())), Arc::new(swap()), |_| {});
        let collected = futures_util::FutureExt::now_or_never(body.collect(1 << 20)).unwrap();
        collected.unwrap().0.to_vec()
    }

    #[test]
    fn matches_are_replaced_wherever_the_chunks_are_split() {
        let text = b"xPLACEHOLDERyPLACEzPLACEHOLDE aaab end PLACEHOLDER";
        let (whole, found) = swap().replace(text).unwrap();
        assert_eq!(whole, b"xsymuch longer than beforezmuch longer than beforeHOLDE aX end s");
        assert_eq!(found, [0, 1, 1, 2, 0]);
        for cut in 0..text.len() {
            assert_eq!(streamed(text, &[cut]), whole, "cut at {cut}");
        }
        assert_eq!(streamed(text, &[1; 60]), whole);
        assert_eq!(swap().replace(b"nothing of it"), None);
        assert_eq!(streamed(b"", &[]), b"");
    }

    #[test]
    fn only_a_possible_match_prefix_is_buffered() {
        let swap = swap();
        for (text, kept) in
            [(&b"hello"[..], 0), (b"hello P", 1), (b"xPLACE", 5), (b"xPLACEHOLDE", 10), (b"a", 1), (b"aa", 2)]
        {
            assert_eq!(swap.partial_match_len(text), kept, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn the_length_of_a_body_is_kept_if_every_replacement_is_as_long_as_what_it_replaces() {
        let body = |with: &[u8]| {
            let swap = Replacer::new(vec![(b"secret".to_vec(), with.to_vec())]).unwrap();
            ReplacingBody::wrap(Body::from(Bytes::from_static(b"a secret")), Arc::new(swap), |_| {})
        };
        assert_eq!((body(b"******").remaining(), body(b"*").remaining()), (Some(8), None));
    }

    proptest! {
        #[test]
        fn streamed_replacement_equals_whole_replacement(
            text in "[PLACEHODRab]{0,80}", cuts in proptest::collection::vec(0_usize..9, 0..20)
        ) {
            let whole = swap().replace(text.as_bytes()).map_or(text.clone().into_bytes(), |(out, _)| out);
            prop_assert_eq!(streamed(text.as_bytes(), &cuts), whole);
        }
    }
}
