//! The table of the API's error kinds: status, meaning, and the remedy that a response has unless it names a closer one.

use std::sync::LazyLock;

use interflow_types::data_file;

/// A kind of error of the API. Its name is constant, so that programs can tell errors apart.
#[derive(Debug)]
pub struct ApiErrorKind {
    pub name: &'static str,
    /// The statuses with which it is sent.
    pub statuses: Vec<u16>,
    /// When it occurs, as a phrase.
    pub meaning: &'static str,
    /// What to do about it; empty if that depends on the message.
    pub remedy: &'static str,
}

/// Every kind, by status.
pub static API_ERROR_KINDS: LazyLock<Vec<ApiErrorKind>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../data/error_kinds.txt"));
    let kind = |[name, statuses, meaning, remedy]: [&'static str; 4]| ApiErrorKind {
        name,
        statuses: statuses.split(' ').filter_map(|status| status.parse().ok()).collect(),
        meaning,
        remedy,
    };
    records.map(kind).collect()
});

/// The line of the table with this name.
pub(crate) fn find(name: &str) -> Option<&'static ApiErrorKind> {
    API_ERROR_KINDS.iter().find(|k| k.name == name)
}
