//! The resources of whose changes a client without a session wants to know.

use std::sync::Arc;

use interflow_limits::VirtualKey;
use interflow_types::Flow;

use super::request_redaction::redact_values;
use super::target::find_target;
use crate::exchange::{Endpoint, Subscription};
use crate::methods::lists;
use crate::protocol::client_message::{ClientMethod, ListKind};
use crate::protocol::jsonrpc::{INTERNAL_ERROR, RpcError};
use crate::protocol::listen_filter::ListenFilter;
use crate::service::McpService;
use crate::session::client_session::McpSession;
use crate::settings::McpSettings;

/// The resources of a filter that the client may use, with their servers. In the filter, all are as they are recorded.
pub(super) async fn subscribed(
    service: &McpService,
    flow: &mut Flow,
    settings: &McpSettings,
    session: &McpSession,
    endpoint: &Endpoint,
    key: Option<&VirtualKey>,
    filter: &mut ListenFilter,
) -> Result<Vec<Subscription>, RpcError> {
    let uris = std::mem::take(&mut filter.resources);
    let find = |uri: &String| find_target(settings, session, endpoint, key, &ClientMethod::Subscribe(uri.clone()));
    if uris.iter().any(|uri| matches!(find(uri), Some(Err(_)))) {
        // Another replica may have listed them for the client.
        list_resources(settings, session, endpoint, key).await;
    }
    let mut all = Vec::new();
    for uri in uris {
        let Some(Ok((server, _))) = find(&uri) else { continue };
        let policy = (service.deps.policy)(flow, server.config.policy.as_deref());
        let policy = policy.map_err(|why| RpcError::new(INTERNAL_ERROR, why))?;
        let (mut method, listed) = (ClientMethod::Subscribe(uri.clone()), Arc::default());
        redact_values(service, flow, &server, &policy, session, &listed, &mut method).await?;
        let ClientMethod::Subscribe(recorded) = method else { continue };
        let original = (server.arguments_are_restored(&policy) && recorded != uri).then_some(uri);
        filter.resources.push(recorded.clone());
        all.push(Subscription { server, uri: recorded, original });
    }
    Ok(all)
}

/// Learns whose the resources of the endpoint are. A server that fails is missing.
pub(super) async fn list_resources(
    settings: &McpSettings,
    session: &McpSession,
    endpoint: &Endpoint,
    key: Option<&VirtualKey>,
) {
    let list = |kind| lists::list(settings, session, endpoint.0.as_deref(), key, kind);
    let _ = tokio::join!(list(ListKind::Resources), list(ListKind::ResourceTemplates));
}
