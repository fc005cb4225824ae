//! The entry for the query language: no text makes it panic, and every parsed query is formatted to an equal one.

use interflow_query::{Query, complete};

/// One entry over the inputs of one target.
pub type Entry = fn(&[u8]);

/// Every entry with the name of its target.
pub const ENTRIES: [(&str, Entry); 1] = [("query", query)];

/// A query of either language, and its completion.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for completion in complete(text) {
        assert!(text.is_char_boundary(completion.start));
    }
    match Query::parse(text) {
        Ok(query) => {
            let shown = query.to_string();
            let again = Query::parse(&shown).unwrap_or_else(|e| panic!("{}", e.render(&shown)));
            assert!(again == query, "{shown}");
        }
        Err(error) => {
            assert!(error.column <= text.chars().count() + 1);
            assert!(error.render(text).contains('^'));
        }
    }
}
