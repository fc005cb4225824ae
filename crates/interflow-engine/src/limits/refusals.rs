//! What this stage says no with, in the provider's own shape.

use std::sync::Arc;
use std::time::Duration;

use interflow_flow::{Flow, StatusCode, Verdict};
use interflow_limits::{Counter, KeyRefused, NotNow, OutOfScope, Period, VirtualKey};
use interflow_llm::{Provider, Refusal};

use super::call::Called;

/// The refusal as a verdict, noted for the accounts.
pub(super) fn answer(flow: &mut Flow, provider: Provider, refusal: &Refusal) -> Verdict {
    flow.tag(format!("refused:{}", refusal.code));
    crate::accounts::note_refusal(flow, refusal.kind, refusal.code);
    tracing::info!(flow = %flow.id, client = %flow.client.peer, code = refusal.code, "refused: {}", refusal.message);
    Verdict::Answer(Box::new(refusal.answer(provider, flow)))
}

/// The key is missing, unknown, over or revoked.
pub(super) fn key(flow: &mut Flow, provider: Provider, why: &KeyRefused) -> Verdict {
    let (kind, code) = ("unauthorized", why.code());
    let refusal = Refusal { status: StatusCode::UNAUTHORIZED, kind, code, message: why.to_string(), retry_after: None };
    answer(flow, provider, &refusal)
}

/// Too many keys of this client wait to be checked.
pub(super) fn too_many_keys(flow: &mut Flow, provider: Provider) -> Verdict {
    let refusal = Refusal {
        status: StatusCode::TOO_MANY_REQUESTS,
        kind: "rate_limit_error",
        code: "too_many_keys",
        message: "too many different keys of this client wait to be checked; try again in a moment".into(),
        retry_after: Some(Duration::from_secs(1)),
    };
    answer(flow, provider, &refusal)
}

/// The key is good, but not for this.
pub(super) fn scope(flow: &mut Flow, called: &Called, key: &Arc<VirtualKey>, why: OutOfScope) -> Verdict {
    let message = format!("{why}: {} (key {})", what(called, why), key.id);
    let refusal =
        Refusal { status: StatusCode::FORBIDDEN, kind: "forbidden", code: why.code(), message, retry_after: None };
    answer(flow, called.call.provider, &refusal)
}

fn what(called: &Called, why: OutOfScope) -> &str {
    match why {
        OutOfScope::Provider => &called.name,
        OutOfScope::Model => called.model.as_deref().unwrap_or("none is named, or it cannot be read"),
        OutOfScope::Path => "see its list of paths",
    }
}

/// The key is good, but not for the paths that redact texts.
pub(super) fn filter_scope(flow: &mut Flow, key: &Arc<VirtualKey>, why: OutOfScope) -> Verdict {
    let message = format!("{why} (key {})", key.id);
    let refusal =
        Refusal { status: StatusCode::FORBIDDEN, kind: "forbidden", code: why.code(), message, retry_after: None };
    answer(flow, Provider::Unknown, &refusal)
}

/// A key of ours on a request that goes to no provider: passed on, it would be given away.
pub(super) fn no_provider(flow: &mut Flow) -> Verdict {
    let message = "a key of this gateway came with a request that goes to no known provider; it is not passed on";
    let refusal = Refusal {
        status: StatusCode::FORBIDDEN,
        kind: "forbidden",
        code: "scope_denied_provider",
        message: message.into(),
        retry_after: None,
    };
    answer(flow, Provider::Unknown, &refusal)
}

/// The gateway holds no key of the provider.
pub(super) fn no_key_held(flow: &mut Flow, called: &Called) -> Verdict {
    let name = called.route.as_deref().map_or_else(|| flow.authority.host.to_string(), str::to_owned);
    let message = format!("the gateway holds no key for {name}: its owner can set keys.provider.\"{name}\"");
    tracing::error!("{message}");
    let refusal = Refusal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        kind: "internal_error",
        code: "provider_key_missing",
        message,
        retry_after: None,
    };
    answer(flow, called.call.provider, &refusal)
}

/// The body cannot be looked into for its model.
pub(super) fn too_large(flow: &mut Flow, called: &Called) -> Verdict {
    let refusal = Refusal {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        kind: "payload_too_large",
        code: "request_body_too_large",
        message: "the request is too large to be looked into for its model".into(),
        retry_after: None,
    };
    answer(flow, called.call.provider, &refusal)
}

/// A limit is reached, or cannot be asked for.
pub(super) fn not_now(flow: &mut Flow, provider: Provider, why: &NotNow) -> Verdict {
    let refusal = match why {
        NotNow::Limit { rule, counter, who, wait } => Refusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: code(counter),
            message: limit_message(rule, counter, who),
            retry_after: Some(*wait),
        },
        NotNow::Unavailable(e) => {
            tracing::error!(flow = %flow.id, "refused, since limits fail closed: {e}");
            Refusal {
                status: StatusCode::SERVICE_UNAVAILABLE,
                kind: "capacity",
                code: "limits_unavailable",
                message: "the gateway's limits cannot be checked just now".into(),
                retry_after: Some(Duration::from_secs(1)),
            }
        }
    };
    let mut verdict = answer(flow, provider, &refusal);
    // SDKs try again after a short pause whatever Retry-After says; until tomorrow that is of no use.
    if let (NotNow::Limit { counter, .. }, Verdict::Answer(response)) = (why, &mut verdict)
        && counter.period().is_some()
    {
        response.head.headers.append_parsed(b"X-Should-Retry", b"false");
    }
    verdict
}

const fn code(counter: &Counter) -> &'static str {
    match (counter, counter.period()) {
        (_, Some(Period::Day)) => "daily_quota_exceeded",
        (_, Some(Period::Month)) => "monthly_quota_exceeded",
        (Counter::Slots { .. }, None) => "concurrency_exceeded",
        _ => "rate_limit_exceeded",
    }
}

fn limit_message(rule: &str, counter: &Counter, who: &str) -> String {
    let what = match *counter {
        Counter::Requests { .. } => "too many requests".to_owned(),
        Counter::Tokens { .. } => "too many tokens".to_owned(),
        Counter::Slots { max } => format!("more than {max} requests at the same time"),
        Counter::TokenBudget { max, period } => format!("the {} budget of {max} tokens is used up", name(period)),
        Counter::MoneyBudget { max, period } => {
            format!("the {} budget of ${:.2} is used up", name(period), max as f64 / 1e6)
        }
    };
    format!("{what} (limit `{rule}`, counted for {who})")
}

const fn name(period: Period) -> &'static str {
    match period {
        Period::Day => "daily",
        Period::Month => "monthly",
    }
}
