//! The rule files of the tables and of the instruction counts.

use std::fmt::Write as _;

/// Twenty typical rules; none matches a request of the tables.
pub const TWENTY: &str = include_str!("../rules/20.toml");

/// A field added to every response.
pub const HEADER: &str = include_str!("../rules/header.toml");

/// A thousand rules for distinct hosts, none of which the tables request.
pub fn thousand_hosts() -> String {
    let mut text = String::new();
    for i in 0..1000 {
        let host = if i % 2 == 0 { format!("host{i}.example") } else { format!("*.zone{i}.example") };
        // A `String` takes whatever is written to it.
        let _ = write!(
            text,
            "[[rules]]\nname = \"{i}\"\nwhen = \"host:{host}\"\nthen = [{{ set_request_header = {{ X-Rule = \"{i}\" }} }}]\n\n"
        );
    }
    text
}
