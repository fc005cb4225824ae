//! Calls of language models in an overview: tokens and cost by bucket and model.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::accumulate::Span;
use super::selection::RowSet;
use crate::conversations::TokenUsage;
use crate::error::Result;
use crate::overview::{ModelFigures, ModelSeries, Overview};
use crate::store::conversation_rows::{USAGE_SUMS, read_usage};

const TOP: usize = 10;
const TOP_SERIES: usize = 5;
/// Models told apart; the calls of further ones are summed up.
const MAX_MODELS: usize = 500;

#[derive(Clone, Default)]
struct ModelTotals {
    used: TokenUsage,
    tokens: Vec<u64>,
    cost: Vec<f64>,
}

/// Usage of the span, by bucket and model, and of the span before.
#[derive(Default)]
pub struct LlmAccumulator {
    span: Span,
    buckets: Vec<TokenUsage>,
    models: HashMap<Option<String>, ModelTotals>,
    total: TokenUsage,
    pub previous: TokenUsage,
}

impl LlmAccumulator {
    pub fn new(span: Span) -> Self {
        Self { span, buckets: vec![TokenUsage::default(); span.buckets()], ..Self::default() }
    }

    /// Adds all calls of the spans of time.
    pub fn add_all(&mut self, db: &Connection) -> Result<()> {
        let Span { from, to, step, compared_from } = self.span;
        let sql = format!(
            "SELECT {USAGE_SUMS}, (started - ?1) / ?2 AS bucket, model FROM conversation_exchanges \
             WHERE started >= ?1 AND started < ?3 GROUP BY bucket, model"
        );
        let mut statement = db.prepare_cached(&sql)?;
        let mut rows = statement.query(params![from as i64, step as i64, to as i64])?;
        while let Some(row) = rows.next()? {
            self.add_used(row.get::<_, i64>(8)?.unsigned_abs() as usize, row.get(9)?, &read_usage(row, 0)?);
        }
        if compared_from < from {
            let sql = format!("SELECT {USAGE_SUMS} FROM conversation_exchanges WHERE started >= ?1 AND started < ?2");
            let before = params![compared_from as i64, from as i64];
            self.previous = db.prepare_cached(&sql)?.query_row(before, |r| read_usage(r, 0))?;
        }
        Ok(())
    }

    /// Adds the calls of the flows in these rows.
    pub(crate) fn add_of(&mut self, db: &Connection, rows: &RowSet) -> Result<()> {
        let Span { from, to, compared_from, .. } = self.span;
        let sql = "SELECT 1, e.input, e.output, e.cache_read, e.cache_write, e.reasoning, coalesce(e.cost, 0.0), \
                   e.cost IS NULL, e.started, e.model, f.seq \
                   FROM conversation_exchanges e JOIN flows f ON f.id = e.flow WHERE e.started >= ? AND e.started < ?";
        let mut statement = db.prepare_cached(sql)?;
        let mut found = statement.query(params![compared_from as i64, to as i64])?;
        while let Some(row) = found.next()? {
            if !rows.has(row.get(10)?) {
                continue;
            }
            let (used, at) = (read_usage(row, 0)?, row.get::<_, i64>(8)?.unsigned_abs());
            match at < from {
                true => add(&mut self.previous, &used),
                false => self.add_used(self.span.bucket(at), row.get(9)?, &used),
            }
        }
        Ok(())
    }

    pub fn add_used(&mut self, bucket: usize, model: String, used: &TokenUsage) {
        let Some(sum) = self.buckets.get_mut(bucket) else { return };
        add(sum, used);
        add(&mut self.total, used);
        let key = Some(model);
        let key = if self.models.len() < MAX_MODELS || self.models.contains_key(&key) { key } else { None };
        let of = self.models.entry(key).or_default();
        add(&mut of.used, used);
        of.tokens.resize(self.buckets.len(), 0);
        of.cost.resize(self.buckets.len(), 0.0);
        of.tokens[bucket] = of.tokens[bucket].saturating_add(used.tokens());
        of.cost[bucket] += used.cost;
    }

    pub fn finish(self, found: &mut Overview) {
        found.llm = self.total;
        let series = &mut found.series;
        for used in &self.buckets {
            series.calls.push(used.exchanges);
            series.input.push(used.input);
            series.output.push(used.output);
            series.cost.push(used.cost);
        }
        let mut models: Vec<_> = self.models.into_iter().collect();
        models.sort_by(|a, b| b.1.used.tokens().cmp(&a.1.used.tokens()).then_with(|| a.0.cmp(&b.0)));
        // The sum of all others comes last, also in the list.
        models.sort_by_key(|(name, _)| name.is_none());
        found.models =
            models.iter().take(TOP).map(|(name, of)| ModelFigures { name: name.clone(), used: of.used }).collect();
        let series = |(name, of): (Option<String>, ModelTotals)| ModelSeries { name, tokens: of.tokens, cost: of.cost };
        let rest = models.split_off(models.len().min(TOP_SERIES));
        found.model_series = models.into_iter().map(series).collect();
        if !rest.is_empty() {
            let mut others =
                ModelSeries { name: None, tokens: vec![0; self.buckets.len()], cost: vec![0.0; self.buckets.len()] };
            for (_, of) in rest {
                others.tokens.iter_mut().zip(of.tokens).for_each(|(sum, n)| *sum = sum.saturating_add(n));
                others.cost.iter_mut().zip(of.cost).for_each(|(sum, n)| *sum += n);
            }
            found.model_series.push(others);
        }
    }
}

fn add(sum: &mut TokenUsage, used: &TokenUsage) {
    let TokenUsage { exchanges, input, output, cache_read, cache_write, reasoning, cost, unpriced } = used;
    sum.exchanges = sum.exchanges.saturating_add(*exchanges);
    sum.input = sum.input.saturating_add(*input);
    sum.output = sum.output.saturating_add(*output);
    sum.cache_read = sum.cache_read.saturating_add(*cache_read);
    sum.cache_write = sum.cache_write.saturating_add(*cache_write);
    sum.reasoning = sum.reasoning.saturating_add(*reasoning);
    sum.cost += cost;
    sum.unpriced = sum.unpriced.saturating_add(*unpriced);
}
