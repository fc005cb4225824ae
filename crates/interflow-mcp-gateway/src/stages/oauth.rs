//! The stage that checks access tokens: clients show tokens of the configured issuer in place of virtual keys (MCP
//! 2025-11-25, authorization).

use std::sync::Arc;

use interflow_limits::KeyedEndpoint;
use interflow_types::{Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict, Stage, StatusCode};

use crate::access_identity::AccessRefusal;
use crate::exchange::{McpExchange, TOKEN_HOLDER};
use crate::service::McpService;
use crate::upstream::access_tokens::UserToken;

/// Checks access tokens before virtual keys are: a request has one of the two if tokens are configured.
pub(crate) struct OAuthStage(pub Arc<McpService>);

impl Stage for OAuthStage {
    fn name(&self) -> &'static str {
        "mcp-oauth"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let is_used = self.0.may_serve(scope) && self.0.settings().oauth.is_some();
        if is_used { PhaseSet::from_phase(Phase::RequestHead) } else { PhaseSet::NONE }
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let is_endpoint = flow.extension::<McpExchange>().is_some_and(|exchange| exchange.endpoint.is_some());
        // A virtual key has to be a valid one; that is checked next, wherever this finds one.
        let needs_token = is_endpoint && !(self.0.deps.shows_key)(head);
        let resource = self.0.settings().oauth.clone().filter(|_| needs_token);
        let Some(resource) = resource else { return MaybeFuture::Ready(RequestVerdict::Continue) };
        let Some(token) = bearer(head) else {
            let message = "an access token or a virtual key is needed: Authorization: Bearer";
            let response = resource.challenge(StatusCode::UNAUTHORIZED, None, message);
            return MaybeFuture::Ready(RequestVerdict::Answer(Box::new(response)));
        };
        MaybeFuture::pending(async move {
            let refused = |status, error, why: &str| {
                RequestVerdict::Answer(Box::new(resource.challenge(status, Some(error), why)))
            };
            let identity = match resource.tokens.check(&token).await {
                Ok(identity) => identity,
                Err(AccessRefusal::IssuerUnavailable) => {
                    flow.tag("refused:issuer_unavailable");
                    return RequestVerdict::Answer(Box::new(resource.unavailable()));
                }
                Err(AccessRefusal::InvalidToken(why)) => {
                    flow.tag("refused:invalid_token");
                    let why = format!("the access token is not accepted: {why}");
                    return refused(StatusCode::UNAUTHORIZED, "invalid_token", &why);
                }
            };
            if !resource.config.scopes.iter().all(|scope| identity.scopes.contains(scope)) {
                flow.tag("refused:insufficient_scope");
                let why = "the access token lacks a scope that is required";
                return refused(StatusCode::FORBIDDEN, "insufficient_scope", why);
            }
            head.headers.remove("authorization");
            if self.0.settings().exchanges {
                flow.extension_mut::<McpExchange>().user = Some(UserToken::new(token.into(), &identity));
            }
            // On the gateway, another name can only be that of the connection's certificate.
            flow.user = Some(identity.subject.as_str().into());
            flow.extension_mut::<McpExchange>().holder = Some(format!("{TOKEN_HOLDER}{}", identity.subject).into());
            // No virtual key is needed any more.
            *flow.extension_mut() = KeyedEndpoint::default();
            RequestVerdict::Continue
        })
    }
}

fn bearer(head: &RequestHead) -> Option<String> {
    let (scheme, token) = head.headers.get_str("authorization")?.trim().split_once(' ')?;
    Some(token.trim().to_owned()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}
