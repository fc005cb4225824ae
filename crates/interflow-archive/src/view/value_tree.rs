//! What the binary formats of values have in common when they are shown as an indented tree: bounds, brackets, lines.

use super::indent;

/// Maximum size of a body that is rendered, in bytes: decoded values are up to forty times as large.
pub(super) const MAX_BODY: usize = 8 << 20;
/// Maximum nesting depth, which bounds the recursion.
pub(super) const MAX_DEPTH: usize = 64;

/// Decodes the values of a body one after another and writes each on lines of its own, until `cap` bytes are written.
///
/// # Errors
/// A body that is too large, or the position where it stops being valid.
pub(super) fn lines<V>(
    format: &str,
    body: &[u8],
    cap: usize,
    decode: impl Fn(&mut &[u8]) -> Result<V, String>,
    write: impl Fn(&mut String, &V),
) -> Result<String, String> {
    if body.len() > MAX_BODY {
        return Err(format!("{} bytes of {format} are too many to be shown", body.len()));
    }
    let (mut out, mut rest) = (String::new(), body);
    while !rest.is_empty() && out.len() <= cap {
        let start = body.len() - rest.len();
        let value = decode(&mut rest);
        // A decoder may stop before or after the value that is wrong.
        let value = value.map_err(|e| format!("byte {}: no {format}: {e}", start.max(body.len() - rest.len())))?;
        write(&mut out, &value);
        out.push('\n');
    }
    Ok(out)
}

/// Marks the text as cut once it is longer than `cap`. Checked at every value, so that a small body cannot fill the
/// memory by nesting.
pub(super) fn is_full(out: &mut String, cap: usize) -> bool {
    let full = out.len() > cap;
    if full {
        out.push('…');
    }
    full
}

/// Writes a list or map: one item per line, indented by `depth`.
pub(super) fn block<T>(
    out: &mut String,
    (open, close): (char, char),
    items: &[T],
    depth: usize,
    cap: usize,
    each: impl Fn(&mut String, &T),
) {
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        indent(out, depth);
    };
    out.push(open);
    for (i, item) in items.iter().enumerate() {
        if is_full(out, cap) {
            break;
        }
        if i > 0 {
            out.push(',');
        }
        line(out, depth + 1);
        each(out, item);
    }
    if !items.is_empty() {
        line(out, depth);
    }
    out.push(close);
}
