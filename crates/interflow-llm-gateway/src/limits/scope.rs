//! Whether the scope of a key allows a request: its path, and the models that it names.

use std::borrow::Cow;
use std::sync::Arc;

use interflow_limits::{KeyGroup, Quota, ScopeRequest, ScopeViolation, VirtualKey};
use interflow_llm::{Operation, Provider};
use interflow_types::{Method, RequestHead, percent};

use super::llm_request::LlmRequest;
use super::model_list;
use super::named_models::NamedModels;
use crate::gateway::{MAX_DECODINGS, is_canonical};

/// The axis that is violated, and the team or organisation if it is not the key's own.
pub(super) type OutOfScope = (ScopeViolation, Option<Arc<KeyGroup>>);

/// The form of the path that the scope of a key allows: as it was written, or with or without the name of the gateway's
/// upstream in front, which is a part of the base URL to its client and not to the provider.
///
/// # Errors
/// The axis that is violated.
pub(super) fn allowed_path<'p>(
    key: &VirtualKey,
    provider: &str,
    upstream: Option<&str>,
    path: &'p str,
) -> Result<Cow<'p, str>, ScopeViolation> {
    if (key.restricts_models() || !key.scope.paths.is_empty()) && !is_canonical(path) {
        return Err(ScopeViolation::PathNotCanonical);
    }
    let allows = |path: &str| key.scope.allows_provider_path(provider, path);
    let Err(why) = allows(path) else { return Ok(Cow::Borrowed(path)) };
    let Some(name) = upstream else { return Err(why) };
    let within = path.strip_prefix('/').and_then(|rest| rest.strip_prefix(name)).filter(|rest| rest.starts_with('/'));
    let other = within.map_or_else(|| Cow::Owned(format!("/{name}{path}")), Cow::Borrowed);
    allows(&other).map(|()| other).map_err(|_| why)
}

/// Whether a path names a model in a form that was not read as one: servers decode paths, ignore the case of names, and
/// know other names for what selects a model. `reads_model` tells whether one such name was read.
fn names_other_model(path: &str, upstream: Option<&str>, reads_model: bool) -> bool {
    const MARKS: [&str; 5] = ["deployments", "engines", "endpoints", "model", "models"];
    let within = |name: &str| path.strip_prefix('/')?.strip_prefix(name).filter(|rest| rest.starts_with('/'));
    let mut path = upstream.and_then(within).unwrap_or(path).to_owned();
    for _ in 0..MAX_DECODINGS {
        path = percent::decoded_lossy(&path);
    }
    let segments: Vec<&str> = path.split('/').collect();
    let names_model = |pair: &&[&str]| match pair {
        // Vertex's endpoint for the models that its body names.
        [_, name] if name.is_empty() || name.eq_ignore_ascii_case("openapi") => false,
        [mark, _] => MARKS.iter().any(|known| mark.eq_ignore_ascii_case(known)),
        _ => false,
    };
    segments.windows(2).filter(names_model).count() > usize::from(reads_model)
}

/// Whether the name of a model is one name wherever it is sent: no list, and no path.
fn is_plain_name(model: &str) -> bool {
    is_canonical(model) && !model.contains([',', '\\'])
}

/// Whether the scope of a key allows a request with a body, once the models that it names are known.
pub(super) fn check_call(
    key: &VirtualKey,
    called: &mut LlmRequest,
    head: &RequestHead,
    named: &NamedModels,
    is_unclear: bool,
) -> Result<(), OutOfScope> {
    let path = head.url.path_only();
    let provider = Arc::clone(&called.name);
    let form = allowed_path(key, &provider, called.route.as_deref(), path).map_err(|why| (why, None))?;
    if key.restricts_models() && names_other_model(path, called.route.as_deref(), called.by_path) {
        return Err((ScopeViolation::Path, None));
    }
    let check = |model: Option<&str>| match model {
        Some(name) if key.restricts_models() && !is_plain_name(name) => Err((ScopeViolation::Model, None)),
        _ => key.allows(&ScopeRequest { provider: &provider, model, path: &form }),
    };
    let is_batch = called.call.operation == Operation::Batches
        && (called.by_path || path.trim_end_matches('/').ends_with("/v1/messages/batches"))
        && !is_unclear;
    // The requests of other batches are in a file that the provider holds.
    let is_unknown = called.call.operation == Operation::Batches && (!is_batch || named.items.is_empty());
    if is_unknown && key.scope.paths.is_empty() && has_budget(key) {
        return Err((ScopeViolation::Path, None));
    }
    if !key.restricts_models() {
        return check(called.model.as_deref());
    }
    let served = called.model.clone();
    if called.by_path || selects_model(called, path) {
        // Two readings of one body are possible, and the provider's may name a model that the scope forbids.
        check(served.as_deref().filter(|_| called.by_path || !is_unclear))?;
    } else if !(is_batch && named.is_batch_of_models()) && key.scope.paths.is_empty() {
        return Err((ScopeViolation::Path, None));
    } else if let Some(model) = &served {
        check(Some(model))?;
    }
    for model in named.besides() {
        check(Some(model)).inspect_err(|_| called.model = Some(model.into()))?;
    }
    Ok(())
}

/// Whether tokens or costs of the key, or of a level above it, are limited.
fn has_budget(key: &VirtualKey) -> bool {
    let is_budget = |quota: &Quota| {
        let tokens = quota.tokens.is_some() || quota.tokens_per_day.is_some() || quota.tokens_per_month.is_some();
        tokens || quota.money_per_day.is_some() || quota.money_per_month.is_some()
    };
    key.limits.iter().chain(key.groups().filter_map(|group| group.limits.as_ref())).any(is_budget)
}

/// Whether the body's `model` is what serves the request. Elsewhere providers ignore it, and use whatever the account
/// holds: files, stored responses, agents, settings of the organisation.
fn selects_model(called: &LlmRequest, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let operation = called.call.operation;
    let is_of_agent = path.ends_with("/agents/completions")
        || path.ends_with("/conversations") && called.call.provider != Provider::Mistral;
    (operation.has_model() || matches!(operation, Operation::Transcriptions | Operation::Realtime)) && !is_of_agent
}

/// Whether the scope of a key allows a request without a body, or one that uses no model. It costs nothing, but with the
/// operator's key it reaches whatever the account holds: files, stored responses, settings of the organisation. A key
/// that is restricted to models reaches lists of models, the models of its scope, and the paths that it was given.
pub(super) fn check_lookup(key: &VirtualKey, called: &mut LlmRequest, head: &RequestHead) -> Result<(), OutOfScope> {
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if let Some(model) = model_list::requested_model(head.url.path_only()).filter(|_| reads) {
        called.model = Some(model.into());
        return key.allows_model(model).then_some(()).ok_or((ScopeViolation::Model, None));
    }
    // The paths of the scope were compared before.
    let is_allowed = !key.restricts_models()
        || !key.scope.paths.is_empty()
        || reads && model_list::lists_models(head)
        || model_list::is_harmless(head);
    is_allowed.then_some(()).ok_or((ScopeViolation::Path, None))
}

/// As [`check_lookup`], for what agents send their vendors unasked: settings and telemetry are harmless, while sessions,
/// skills and memories are the account's.
pub(super) fn check_incidental(key: &VirtualKey, operation: Operation, head: &RequestHead) -> Result<(), OutOfScope> {
    let path = head.url.path_only();
    let is_accounts = operation == Operation::Side && (path.contains("/v1/") || path.contains("/organizations/"));
    let is_allowed = !is_accounts || !key.restricts_models() || !key.scope.paths.is_empty();
    is_allowed.then_some(()).ok_or((ScopeViolation::Path, None))
}
