//! The report on a stored conversation's prompt cache.

use super::load::read_request;
use super::mapping::{self, CallPricing};
use crate::assembly::CallRecord;
use crate::assembly::cache_report::{
    BreakCause, BreakReason, BrokenPair, CacheBreak, PromptCacheReport, advice, break_reason, broken_pairs,
    usage_without_break,
};
use interflow_store::{FlowStore, Result};

/// Bound on reported breaks: two requests are read for each.
const MAX_BREAKS: usize = 200;

/// How well a conversation used its provider's prompt cache; `None` if it does not exist.
///
/// # Errors
/// The store failed.
pub fn report(store: &dyn FlowStore, id: &str, pricing: &CallPricing) -> Result<Option<PromptCacheReport>> {
    if store.conversation(id)?.is_none() {
        return Ok(None);
    }
    let calls: Vec<CallRecord> = store.exchanges(id)?.into_iter().map(mapping::call_record).collect();
    let mut report = PromptCacheReport::default();
    for usage in calls.iter().filter(|call| !call.facts.purpose.is_side_call()).filter_map(|call| call.usage) {
        report.calls += 1;
        report.input_tokens = report.input_tokens.saturating_add(usage.input);
        report.cached_tokens = report.cached_tokens.saturating_add(usage.cache_read);
        report.written_tokens = report.written_tokens.saturating_add(usage.cache_write);
    }
    let mut pairs = broken_pairs(&calls);
    if pairs.len() > MAX_BREAKS {
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.lost));
        pairs.truncate(MAX_BREAKS);
        pairs.sort_by_key(|pair| pair.after);
    }
    for pair in pairs {
        let broken = cache_break(store, &calls, &pair, pricing)?;
        report.lost_tokens = report.lost_tokens.saturating_add(broken.lost_tokens);
        report.lost_cost += broken.lost_cost.unwrap_or_default();
        report.breaks.push(broken);
    }
    report.advice = advice(&report.breaks);
    Ok(Some(report))
}

fn cache_break(
    store: &dyn FlowStore,
    calls: &[CallRecord],
    pair: &BrokenPair,
    pricing: &CallPricing,
) -> Result<CacheBreak> {
    let (before, after) = (&calls[pair.before], &calls[pair.after]);
    let usage = after.usage.unwrap_or_default();
    let price = |usage| pricing(&after.row.provider, &after.row.model, usage, after.row.started);
    let paid_more = price(&usage).zip(price(&usage_without_break(&usage, pair.lost))).map(|(a, b)| (a - b).max(0.0));
    Ok(CacheBreak {
        flow: after.row.flow.to_string(),
        part: after.row.part,
        turn: after.facts.turn,
        started: after.row.started.micros(),
        lost_tokens: pair.lost,
        lost_cost: paid_more,
        reason: reason(store, before, after, pair)?,
    })
}

fn reason(store: &dyn FlowStore, before: &CallRecord, after: &CallRecord, pair: &BrokenPair) -> Result<BreakReason> {
    let read = |call: &CallRecord| read_request(store, call.row.flow, call.row.part);
    let (Some(old), Some(new)) = (read(before)?, read(after)?) else {
        let detail = "one of the two requests was not fully recorded".to_owned();
        return Ok(BreakReason { cause: BreakCause::Unknown, detail, change: None });
    };
    let ended = before.row.started.micros().saturating_add(before.facts.duration);
    let reason = break_reason(&old, &new, after.row.started.micros().saturating_sub(ended));
    // With another beginning a mark would not have helped either.
    Ok(match reason.cause {
        BreakCause::Evicted | BreakCause::Expired if pair.is_unmarked => {
            let detail = "neither request marks a part of its prompt, and the provider caches only what is marked";
            BreakReason { cause: BreakCause::Unmarked, detail: detail.to_owned(), change: None }
        }
        _ => reason,
    })
}
