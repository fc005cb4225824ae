//! What was used, by key, user, provider and model, since the process began.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::prices::Tokens;
use crate::rules::Subject;

/// Most rows that are kept; what comes after is counted in one row of `other`.
const MOST: usize = 5_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Row {
    key: Option<Arc<str>>,
    user: Option<Arc<str>>,
    provider: Arc<str>,
    model: Option<Arc<str>>,
}

/// The sums of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sums {
    /// Requests that were let through.
    pub requests: u64,
    /// Requests that a limit refused.
    pub refused: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// How many of those read came from a cache.
    pub cached_tokens: u64,
    /// Dollars.
    pub dollars: f64,
    /// Requests whose tokens had no known price, so that `dollars` leaves them out.
    pub unpriced: u64,
}

/// One row as it is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageRow {
    /// The virtual key's id.
    pub key: Option<Arc<str>>,
    /// The user, or the key's owner.
    pub user: Option<Arc<str>>,
    /// The provider.
    pub provider: Arc<str>,
    /// The model as the client asked for it.
    pub model: Option<Arc<str>>,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// The sums of all.
#[derive(Debug, Default)]
pub struct UsageBook(Mutex<HashMap<Row, Sums>>);

impl UsageBook {
    fn row(&self, subject: &Subject, change: impl FnOnce(&mut Sums)) {
        let row = Row {
            key: subject.key.as_ref().map(|k| Arc::clone(&k.id)),
            user: subject.user().map(Into::into),
            provider: Arc::clone(&subject.provider),
            model: subject.model.clone(),
        };
        let mut rows = self.0.lock();
        let full = rows.len() >= MOST && !rows.contains_key(&row);
        let row = if full { Row { key: None, user: None, provider: "other".into(), model: None } } else { row };
        change(rows.entry(row).or_default());
    }

    /// A request that was let through is over.
    pub fn used(&self, subject: &Subject, tokens: &Tokens, micros: Option<u64>) {
        self.row(subject, |s| {
            s.requests += 1;
            s.input_tokens += tokens.input;
            s.output_tokens += tokens.output;
            s.cached_tokens += tokens.cache_read;
            match micros {
                Some(micros) => s.dollars += micros as f64 / 1e6,
                None => s.unpriced += u64::from(tokens.total() > 0),
            }
        });
    }

    /// A request was refused.
    pub fn refused(&self, subject: &Subject) {
        self.row(subject, |s| s.refused += 1);
    }

    /// Every row, in order.
    pub fn rows(&self) -> Vec<UsageRow> {
        let mut rows: Vec<_> = self.0.lock().iter().map(|(r, s)| (r.clone(), *s)).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let told =
            |(r, sums): (Row, Sums)| UsageRow { key: r.key, user: r.user, provider: r.provider, model: r.model, sums };
        rows.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_and_stay_bounded() {
        let book = UsageBook::default();
        let subject = |model: &str| Subject {
            key: None,
            user: Some("ann".into()),
            route: None,
            provider: "openai".into(),
            model: Some(model.into()),
            client: [127, 0, 0, 1].into(),
        };
        let tokens = Tokens { input: 10, output: 5, cache_read: 4, cache_write: 0 };
        book.used(&subject("a"), &tokens, Some(2_000_000));
        book.used(&subject("a"), &tokens, None);
        book.refused(&subject("a"));
        let sums = book.rows()[0].sums;
        assert_eq!((sums.requests, sums.refused, sums.input_tokens, sums.unpriced), (2, 1, 20, 1));
        assert_eq!(sums.dollars, 2.0);
        (0..MOST + 100).for_each(|i| book.used(&subject(&format!("m{i}")), &tokens, None));
        assert!(book.rows().len() <= MOST + 1);
    }
}
