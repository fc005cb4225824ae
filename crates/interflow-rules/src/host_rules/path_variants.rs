//! Ambiguous paths: rules that control access by path are evaluated on every interpretation an origin may use.

use interflow_query::Tristate;
use interflow_types::{RequestHead, path};

use crate::matching::index::{Candidates, RequestIndex};
use crate::matching::path_mode::{PathMatchMode, is_ambiguous};

/// The request with each of the other interpretations of its path that are known (escapes, dots, slashes, parameters),
/// and whether these are all.
fn other_variants(request: &RequestHead) -> (Vec<RequestHead>, bool) {
    let written = request.url.path_only();
    let query = request.url.path.get(written.len()..).unwrap_or_default();
    let (paths, is_complete) = path::known_variants(written);
    let read = |path: &String| {
        let mut head = request.clone();
        head.url.path = format!("{path}{query}").into();
        head
    };
    (paths.iter().skip(1).map(read).collect(), is_complete)
}

/// Evaluates a condition on the interpretations that its mode requires. `evaluate` does so on the request as written
/// (`None`) or on another interpretation of it, and may say why; the default reason is that they are not all known.
pub(crate) fn judge<W: Default>(
    mode: PathMatchMode,
    request: Option<&RequestHead>,
    evaluate: impl Fn(Option<&RequestHead>) -> (Tristate, W),
) -> (Tristate, W) {
    let written = evaluate(None);
    let refuses = mode == PathMatchMode::Any;
    // The other interpretations cannot change the answer in the cautious direction.
    if mode == PathMatchMode::AsWritten || written.0.holds() == refuses {
        return written;
    }
    let Some(request) = request.filter(|request| is_ambiguous(request)) else { return written };
    let (others, is_complete) = other_variants(request);
    if !refuses && !is_complete {
        return (Tristate::Known(false), W::default());
    }
    let other = others.iter().map(|head| evaluate(Some(head))).find(|(answer, _)| answer.holds() == refuses);
    other.map_or(written, |(_, why)| (Tristate::Known(refuses), why))
}

/// The rules that this request can match in any of its interpretations. Without the others, the index would hide a
/// rule that a variant matches.
pub(crate) fn candidates(index: &RequestIndex, request: &RequestHead) -> Candidates {
    let mut picked = index.candidates(request);
    if is_ambiguous(request) {
        for head in other_variants(request).0 {
            picked.iter_mut().zip(index.candidates(&head)).for_each(|(word, more)| *word |= more);
        }
    }
    picked
}
