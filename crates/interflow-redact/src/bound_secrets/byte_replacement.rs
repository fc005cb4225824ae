//! Replaces known byte strings in header fields and in bodies as they are forwarded: placeholders by secrets, and
//! secrets by something that may be seen.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use interflow_types::{Body, BodyFrame, BodyStream, Headers, Result};

use crate::bound_secrets::escaped_secret::{self, EscapedMatch};
use crate::bound_secrets::secret_forms::encoded_forms;

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
    /// Replaced by asterisks in whatever way their characters are escaped.
    escaped: Vec<Vec<u8>>,
}

/// A match: where, and of which search string.
type Hit = (Range<usize>, usize);

impl Replacer {
    /// From pairs of search string and replacement; `None` if there are none.
    pub fn new(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Self> {
        Self::of(pairs).filter(|swap| swap.longest > 0)
    }

    /// Replaces these alone, as [`with_escaped`](Self::with_escaped) says, and takes little more memory than they do.
    pub fn escaped(secrets: Vec<Vec<u8>>) -> Option<Self> {
        Some(Self::of(Vec::new())?.with_escaped(secrets))
    }

    fn of(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Self> {
        let longest = pairs.iter().map(|(from, _)| from.len()).max().unwrap_or_default();
        let keeps_length = pairs.iter().all(|(from, with)| from.len() == with.len());
        let (from, with): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        // Longest match: a placeholder that contains another one as its beginning is replaced as a whole.
        let find = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&from).ok()?;
        Some(Self { find, texts: from, with, longest, keeps_length, escaped: Vec::new() })
    }

    /// Replaces secrets by as many asterisks, in every encoding in which they may come back; `None` if there are none.
    pub fn masking(secrets: &[&str]) -> Option<Self> {
        let forms = secrets.iter().flat_map(|secret| encoded_forms(secret));
        let mask = Self::new(forms.map(|form| (form.clone(), vec![b'*'; form.len()])).collect())?;
        Some(mask.with_escaped(secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect()))
    }

    /// Also replaces these by as many asterisks as they take, whichever of their characters are escaped as in JSON, URLs
    /// or HTML. What is valid JSON stays so.
    pub fn with_escaped(mut self, secrets: Vec<Vec<u8>>) -> Self {
        self.escaped = secrets;
        self.escaped.retain(|secret| !secret.is_empty());
        self
    }

    /// The matches, which do not overlap: the first one, and of those the longest.
    fn hits<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Hit> + 'a {
        // The next hit of the search strings, and of each secret with escapes: a search that is kept until a replacement
        // reaches it passes over each byte once.
        let mut next: Vec<_> = (0..=self.escaped.len()).map(|of| self.find_from(bytes, of, 0)).collect();
        std::iter::from_fn(move || {
            let first = next.iter().flatten().min_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)))?;
            let (hit, end) = (first.clone(), first.0.end);
            for (of, found) in next.iter_mut().enumerate() {
                if found.as_ref().is_some_and(|(range, _)| range.start < end) {
                    *found = self.find_from(bytes, of, end);
                }
            }
            Some(hit)
        })
    }

    /// The first search string from here on, or the first form of an escaped secret, whose numbers follow 0.
    fn find_from(&self, bytes: &[u8], of: usize, from: usize) -> Option<Hit> {
        let Some(secret) = of.checked_sub(1).map(|i| &self.escaped[i]) else {
            let hit = self.find.find(aho_corasick::Input::new(bytes).range(from..))?;
            return Some((hit.range(), hit.pattern().as_usize()));
        };
        let mut begins = (from..bytes.len()).filter(|at| escaped_secret::may_begin(secret, bytes[*at]));
        begins.find_map(|at| match escaped_secret::match_start(secret, &bytes[at..]) {
            EscapedMatch::Whole(length) => Some((at..at + length, self.texts.len() + of - 1)),
            _ => None,
        })
    }

    /// Appends what replaces a match.
    fn put(&self, out: &mut impl Extend<u8>, (range, index): &Hit) {
        match self.with.get(*index) {
            Some(with) => out.extend(with.iter().copied()),
            None => out.extend(std::iter::repeat_n(b'*', range.len())),
        }
    }

    /// Replaces all matches; also returns their indices. `None` if there are none.
    pub fn replace(&self, bytes: &[u8]) -> Option<(Vec<u8>, Vec<usize>)> {
        let mut matches = Vec::new();
        let mut out = Vec::new();
        let mut at = 0;
        for hit in self.hits(bytes) {
            out.extend_from_slice(&bytes[at..hit.0.start]);
            self.put(&mut out, &hit);
            at = hit.0.end;
            matches.push(hit.1);
        }
        if matches.is_empty() {
            return None;
        }
        out.extend_from_slice(&bytes[at..]);
        Some((out, matches))
    }

    /// The length of the longest suffix that may be the beginning of a match.
    fn partial_match_len(&self, held: &[u8]) -> usize {
        let most = held.len().min(self.longest.saturating_sub(1));
        // A whole search string would be a match, not the beginning of one.
        let is_begun = |n: &usize| {
            let end = &held[held.len() - n..];
            self.texts.iter().any(|t| t.len() > *n && t.starts_with(end))
        };
        (1..=most).rev().find(is_begun).unwrap_or(0).max(self.partial_escaped_len(held))
    }

    /// As [`partial_match_len`](Self::partial_match_len), of secrets with escapes.
    fn partial_escaped_len(&self, held: &[u8]) -> usize {
        let longest = |secret: &Vec<u8>| {
            let from = held.len().saturating_sub(secret.len().saturating_mul(escaped_secret::MAX_UNIT));
            let begins = (from..held.len()).filter(|at| escaped_secret::may_begin(secret, held[*at]));
            let first =
                begins.into_iter().find(|at| escaped_secret::match_start(secret, &held[*at..]) == EscapedMatch::Cut);
            first.map_or(0, |at| held.len() - at)
        };
        self.escaped.iter().map(longest).max().unwrap_or(0)
    }

    /// Replaces in the part that is certain, and keeps back a suffix in which a match may have begun. At the end of
    /// the stream nothing is kept.
    fn replace_step(&self, held: &mut BytesMut, end: bool, seen: &mut impl FnMut(usize)) -> Bytes {
        let mut out = BytesMut::new();
        let mut at = 0;
        // A match that begins before `safe` is final: a longer one would have to reach the end, and so would begin in
        // the kept suffix.
        let safe = if end { held.len() } else { held.len() - self.partial_match_len(held) };
        for hit in self.hits(&held[..]) {
            if hit.0.start >= safe {
                break;
            }
            out.extend_from_slice(&held[at..hit.0.start]);
            self.put(&mut out, &hit);
            at = hit.0.end;
            seen(hit.1);
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

impl<S: AsRef<Replacer> + Send + Sync + 'static, F: FnMut(usize) + Send + 'static> BodyStream for ReplacingBody<S, F> {
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

    fn masking(secret: &str) -> Replacer {
        let plain = (secret.as_bytes().to_vec(), vec![b'*'; secret.len()]);
        Replacer::new(vec![plain]).unwrap().with_escaped(vec![secret.as_bytes().to_vec()])
    }

    #[test]
    fn secrets_are_found_whichever_characters_are_escaped() {
        let key = r#"aB3/xY9+z"Q&7=="#;
        let swap = masking(key);
        let every = |escape: &dyn Fn(char) -> String| key.chars().map(escape).collect::<String>();
        let forms = [
            every(&|c| format!("\\u{:04x}", c as u32)),
            every(&|c| format!("\\u{:04X}", c as u32)),
            every(&|c| format!("%{:02x}", c as u32)),
            every(&|c| format!("%25{:02X}", c as u32)),
            every(&|c| format!("&#{};", c as u32)),
            every(&|c| format!("&#x{:x};", c as u32)),
            every(&|c| {
                if c == 'x' { "\\u0078".into() } else { serde_json::json!(c).as_str().unwrap().replace('"', "\\\"") }
            }),
            key.replace('"', "\\\"").replace('/', "\\/").replace('+', "\\u002B").replace('=', "\\u003D"),
            key.replace('"', "&quot;").replace('&', "&amp;").replace("&amp;quot;", "&quot;"),
            serde_json::json!(key.replace('=', "\\u003d")).to_string().trim_matches('"').to_owned(),
        ];
        for form in forms {
            let text = format!("bad \\n{form}, said %2 and \\u00");
            let (masked, _) = swap.replace(text.as_bytes()).unwrap_or_else(|| panic!("{form}"));
            let expected = format!("bad \\n{}, said %2 and \\u00", "*".repeat(form.len()));
            assert_eq!(String::from_utf8(masked).unwrap(), expected);
            for size in [1, 2, 7] {
                let pieces = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect::<Vec<_>>();
                let body = Body::stream(Pieces(pieces.into_iter()));
                let body = ReplacingBody::wrap(body, Arc::new(masking(key)), |_| {});
                let (whole, _) = futures_util::FutureExt::now_or_never(body.collect(1 << 20)).unwrap().unwrap();
                assert_eq!(whole, expected.as_bytes(), "{size}");
            }
        }
        for other in [r"aB3/xY9+z", "aB3%2FxY8", r"\u0061B4", "&#97;B3/xY9+y", "100% of it & more \\\\"] {
            assert_eq!(swap.replace(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn escaped_secrets_are_searched_in_linear_time() {
        let secrets = vec![b"alpha-secret".to_vec(), b"never-there".to_vec()];
        let swap = masking("plain-secret").with_escaped(secrets);
        for unit in ["\\", "\\u0061lpha-secret ", "%61lpha-secret ", "&#97;lpha-secret "] {
            let steps = |bytes: usize| {
                crate::detect::steps::take();
                let _ = swap.replace(unit.repeat(bytes / unit.len()).as_bytes());
                crate::detect::steps::take()
            };
            let (short, long) = (steps(10_000), steps(80_000));
            assert!(short > 500 && long < short * 10, "{unit:?}: {short}, {long}");
        }
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
