//! What is rejected by keys and limits, and what the client is told.

use std::sync::Arc;

use interflow_limits::{
    AdmissionRejection, BudgetPeriod, CounterLimit, KeyGroup, KeyRejection, ScopeViolation, VirtualKey, format_dollars,
};
use interflow_llm::LlmRefusal;
use interflow_types::{EarlyExit, Flow, StatusCode};

use super::llm_request::LlmRequest;
use crate::exchange::{bad_request, for_now, too_large};
pub(super) use crate::llm_telemetry::refuse;

/// The key is missing, unknown, expired or revoked: 401, which SDKs do not retry.
pub(super) fn reject_key(flow: &mut Flow, why: &KeyRejection) -> EarlyExit {
    refuse(flow, &LlmRefusal::new(StatusCode::UNAUTHORIZED, "unauthorized", why.code(), why.to_string()))
}

/// The header with tags cannot be read: 400, because spending would otherwise be counted without them.
pub(super) fn reject_tags(flow: &mut Flow, why: &str) -> EarlyExit {
    refuse(flow, &bad_request("invalid_tags", format!("X-Interflow-Tags: {why}")))
}

/// The maximum of output tokens is none: 400, as the providers' APIs do. What it would use could not be reserved.
pub(super) fn reject_max_tokens(flow: &mut Flow) -> EarlyExit {
    let message = "the maximum of output tokens (max_tokens and the like) is not a whole number from 0 to 4294967295: send \
                   one, or leave it out";
    let kind = "invalid_request_error";
    refuse(flow, &LlmRefusal::new(StatusCode::BAD_REQUEST, kind, "invalid_max_tokens", message))
}

/// The key is valid, but its scope does not allow this request: 403.
pub(super) fn reject_scope(
    flow: &mut Flow,
    called: &LlmRequest,
    key: &Arc<VirtualKey>,
    why: ScopeViolation,
    group: Option<&KeyGroup>,
) -> EarlyExit {
    let subject = out_of_scope_subject(called, key, why);
    let message = match group {
        Some(KeyGroup { level, id, .. }) => format!(
            "the {level} {id} does not allow this model: {subject} (key {}); the operator can allow it with \
             `interflow keys {level} change {id} --model …`",
            key.id
        ),
        None => format!("{why}: {subject} (key {})", key.id),
    };
    refuse(flow, &scope_refusal(why, message))
}

fn scope_refusal(why: ScopeViolation, message: String) -> LlmRefusal {
    let (status, kind) = match why {
        ScopeViolation::PathNotCanonical => (StatusCode::BAD_REQUEST, "invalid_request"),
        _ => (StatusCode::FORBIDDEN, "forbidden"),
    };
    LlmRefusal::new(status, kind, why.code(), message)
}

fn out_of_scope_subject<'r>(called: &'r LlmRequest, key: &VirtualKey, why: ScopeViolation) -> &'r str {
    match why {
        ScopeViolation::Path if key.scope.paths.is_empty() => {
            "the key is restricted to models or has a budget, and the request does not choose its model or say what it uses; the operator can allow it with a key that has `--path`"
        }
        ScopeViolation::Provider => &called.name,
        ScopeViolation::Model => called.model.as_deref().unwrap_or("none is named, or it cannot be read"),
        ScopeViolation::Path => "see its list of paths",
        ScopeViolation::PathNotCanonical => "the key has a scope",
    }
}

/// The key is valid, but its scope does not allow an endpoint that this process serves.
pub(super) fn reject_endpoint_scope(flow: &mut Flow, key: &Arc<VirtualKey>, why: ScopeViolation) -> EarlyExit {
    let message = format!("{why} (key {})", key.id);
    refuse(flow, &scope_refusal(why, message))
}

/// A virtual key on a request to no known provider: forwarding would leak it, so the request ends with 403.
pub(super) fn reject_unknown_provider(flow: &mut Flow) -> EarlyExit {
    let message = "a request with a key of this gateway does not go to a known provider; it was not forwarded";
    refuse(flow, &LlmRefusal::new(StatusCode::FORBIDDEN, "forbidden", "scope_denied_provider", message))
}

/// A virtual key where it would be forwarded: 400.
pub(super) fn reject_misplaced_key(flow: &mut Flow) -> EarlyExit {
    let message = "a key of this gateway is in the path, the query or a header field where no key belongs, and the provider \
                   would learn it; it was not forwarded: send the key only as the provider's SDK does";
    refuse(flow, &bad_request("misplaced_key", message))
}

/// The gateway has no key for the provider: 500, because only the operator can remedy it.
pub(super) fn reject_missing_provider_key(flow: &mut Flow, called: &LlmRequest) -> EarlyExit {
    let name = called.route.as_deref().map_or_else(|| flow.authority.host.to_string(), str::to_owned);
    let message = format!("the gateway has no key for {name}: its operator can set keys.provider.\"{name}\"");
    tracing::error!("{message}");
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    refuse(flow, &LlmRefusal::new(status, "internal_error", "provider_key_missing", message))
}

/// The body is too large to be parsed for its model: 413.
pub(super) fn reject_too_large(flow: &mut Flow) -> EarlyExit {
    refuse(flow, &too_large("the request is too large to determine its model"))
}

/// A limit is reached (429), or the counters are unavailable (503). `Retry-After` is the earliest time at which a
/// retry can succeed.
pub(super) fn reject_limit(flow: &mut Flow, why: &AdmissionRejection) -> EarlyExit {
    let refusal = admission_refusal(flow, why);
    let mut verdict = refuse(flow, &refusal);
    // SDKs retry after a short pause whatever Retry-After says, which is pointless until tomorrow.
    if let (AdmissionRejection::Limit { counter, is_reserved: false, .. }, EarlyExit::Answer(response)) =
        (why, &mut verdict)
        && counter.period().is_some()
    {
        response.head.headers.append_unchecked(b"X-Should-Retry", b"false");
    }
    verdict
}

/// What a client is told when it is not admitted.
pub(super) fn admission_refusal(flow: &Flow, why: &AdmissionRejection) -> LlmRefusal {
    match why {
        AdmissionRejection::Limit { rule, counter, who, wait, is_reserved } => LlmRefusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: limit_code(counter),
            message: limit_message(rule, counter, who, *is_reserved),
            retry_after: Some(*wait),
        },
        AdmissionRejection::Unpriced { rule, model } => {
            let message = match model {
                Some(model) => format!(
                    "the price of {model} is not known, so the limit `{rule}` cannot count what it costs: the operator can add it to \
                     the file of quota.prices, or set quota.unpriced = \"allow\""
                ),
                None => format!(
                    "the request names no model, so the limit `{rule}` cannot count what it costs: name one in `model`, or the \
                     operator can set quota.unpriced = \"allow\""
                ),
            };
            LlmRefusal::new(StatusCode::FORBIDDEN, "forbidden", "model_unpriced", message)
        }
        AdmissionRejection::Unavailable(e) => {
            tracing::error!(flow = %flow.id, "rejected, because limits fail closed: {e}");
            let message = "the gateway's limits cannot be checked at present";
            for_now(LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "capacity", "limits_unavailable", message))
        }
    }
}

const fn limit_code(counter: &CounterLimit) -> &'static str {
    match (counter, counter.period()) {
        (_, Some(BudgetPeriod::Day)) => "daily_quota_exceeded",
        (_, Some(BudgetPeriod::Month)) => "monthly_quota_exceeded",
        (CounterLimit::Slots { .. }, None) => "concurrency_exceeded",
        _ => "rate_limit_exceeded",
    }
}

/// The other reason why a budget rejects.
const TOO_LITTLE: &str = "or less of it is left than the request may use at most (max_tokens)";

/// What helps against a budget that is reserved.
const RESERVED: &str = "retry when they have ended; requests that state a maximum (max_tokens) reserve only that";

fn limit_message(rule: &str, counter: &CounterLimit, who: &str, is_reserved: bool) -> String {
    let state = if is_reserved { "is reserved by requests in progress" } else { "is used up" };
    let what = match *counter {
        CounterLimit::Requests { .. } => "too many requests".to_owned(),
        CounterLimit::Tokens { .. } => "too many tokens".to_owned(),
        CounterLimit::Slots { max } => format!("more than {max} requests at the same time"),
        CounterLimit::TokenBudget { max, period } => {
            format!("the {} budget of {max} tokens {state}", period.as_str())
        }
        CounterLimit::MoneyBudget { max, period } => {
            format!("the {} budget of {} {state}", period.as_str(), format_dollars(max as f64 / 1e6))
        }
    };
    match (rule, counter.period()) {
        ("team" | "organisation", Some(_)) if is_reserved => format!("{what} for the {rule} {who}: {RESERVED}"),
        (_, Some(_)) if is_reserved => format!("{what} (limit `{rule}`, counted for {who}): {RESERVED}"),
        ("team" | "organisation", Some(_)) => format!(
            "{what} for the {rule} {who}, {TOO_LITTLE}; it begins again with the next period, or the operator raises it with `interflow keys \
             {rule} change {who}`"
        ),
        ("team" | "organisation", None) => format!("{what} for the {rule} {who}"),
        (_, Some(_)) => format!("{what}, {TOO_LITTLE} (limit `{rule}`, counted for {who})"),
        _ => format!("{what} (limit `{rule}`, counted for {who})"),
    }
}
