//! Reference pages that are made from the code: the test of such a page writes it if `UPDATE_DOCS` is set, as in
//! `make docs`, and otherwise fails when the file differs.

use std::path::Path;

/// Compares `docs/reference/FILE` with the page as it must be, or writes it. A page that begins with a comment is the end of a
/// file whose part before that comment is written by hand.
///
/// # Panics
/// The file differs, which the message says with the first such line.
pub fn check_reference_page(file: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let comment = page.lines().next().filter(|first| first.starts_with("<!--"));
    let by_hand = comment.and_then(|comment| written.split(comment).next()).unwrap_or_default();
    let page = format!("{by_hand}{page}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = there.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(there == page, "docs/reference/{file} is stale, first at {differing:?}: run `make docs`");
}

/// Compares a committed JSON Schema, `docs/reference/schemas/FILE`, with the generated one, or writes it.
///
/// # Panics
/// As [`check_reference_page`].
pub fn check_schema(file: &str, schema: &serde_json::Value) {
    check_reference_page(&format!("schemas/{file}"), &format!("{schema:#}\n"));
}
