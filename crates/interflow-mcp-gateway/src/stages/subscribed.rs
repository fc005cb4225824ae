//! The resources of whose changes a client without a session wants to know.

use std::sync::Arc;

use interflow_types::Flow;

use super::request_redaction::RequestInspection;
use super::target::find_target;
use crate::exchange::{ClientView, Subscription};
use crate::methods::lists;
use crate::protocol::client_message::{ClientMethod, ListKind};
use crate::protocol::jsonrpc::RpcError;
use crate::protocol::listen_filter::ListenFilter;
use crate::service::McpService;

/// The resources of a filter that the client may use, with their servers. In the filter, all are as they are recorded.
pub(super) async fn subscribed(
    service: &McpService,
    flow: &mut Flow,
    view: ClientView<'_>,
    filter: &mut ListenFilter,
) -> Result<Vec<Subscription>, RpcError> {
    let uris = std::mem::take(&mut filter.resources);
    let find = |uri: &String| find_target(view, &ClientMethod::Subscribe(uri.clone()));
    if uris.iter().any(|uri| matches!(find(uri), Some(Err(_)))) {
        // Another replica may have listed them for the client.
        list_resources(view).await;
    }
    let mut all = Vec::new();
    for uri in uris {
        let Some(Ok((server, _))) = find(&uri) else { continue };
        let policy = service.flow_policy(flow, server.config.policy.as_deref())?;
        let (mut method, listed) = (ClientMethod::Subscribe(uri.clone()), Arc::default());
        let inspection = RequestInspection { service, session: view.session, policy: &policy };
        let Ok(None) = inspection.check_rules(flow, &server, "", &method) else { continue };
        inspection.redact_values(flow, &server, &listed, &mut method).await?;
        let ClientMethod::Subscribe(recorded) = method else { continue };
        let original = (server.arguments_are_restored(&policy) && recorded != uri).then_some(uri);
        filter.resources.push(recorded.clone());
        all.push(Subscription { server, uri: recorded, original });
    }
    Ok(all)
}

/// Learns whose the resources of the endpoint are. A server that fails is missing.
pub(super) async fn list_resources(view: ClientView<'_>) {
    let _ = tokio::join!(lists::list(view, ListKind::Resources), lists::list(view, ListKind::ResourceTemplates));
}
