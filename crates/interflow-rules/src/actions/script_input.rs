//! What a script gets of the flow.

use std::sync::Arc;

use interflow_types::{Direction, Headers, Phase};

use super::context::ActionContext;
use crate::script::{CompiledScript, HeaderPairs, RequestSnapshot, ScriptRun, ScriptSnapshot};

impl ScriptRun {
    pub fn new(compiled: Arc<CompiledScript>, at: &ActionContext<'_>) -> Self {
        Self { compiled, snapshot: ScriptSnapshot::from_context(at), store: Arc::clone(&at.program.runtime.store) }
    }
}

impl ScriptSnapshot {
    pub fn from_context(at: &ActionContext<'_>) -> Self {
        let view = at.view();
        let variables = view.flow.extension::<crate::flow::flow_state::RuleState>();
        let request = view.request.map(|r| RequestSnapshot {
            method: r.method.as_str().to_owned(),
            url: view.url().to_owned(),
            path: r.url.path.as_str().to_owned(),
            base: format!("{}://{}", r.url.scheme, r.url.authority.to_host_header(r.url.scheme)),
            headers: fields(&r.headers),
        });
        let bodies = matches!(at.phase, Phase::RequestBody | Phase::ResponseBody);
        Self {
            phase: at.phase,
            id: view.flow.id,
            host: view.with_host(ToOwned::to_owned),
            port: view.flow.authority.port,
            scheme: view.scheme().as_str(),
            client: view.flow.client.peer.ip().to_canonical().to_string(),
            user: view.flow.user.as_deref().map(ToOwned::to_owned),
            variables: variables
                .map(|s| s.variables().map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
                .unwrap_or_default(),
            request,
            response: view.response.map(|r| (r.status.as_u16(), fields(&r.headers))),
            message: view.message.map(|m| if m.direction == Direction::Request { "client" } else { "server" }),
            body: view
                .message
                .map(|m| m.payload.clone())
                .or_else(|| at.body.as_ref().filter(|_| bodies).map(|b| b.text().clone())),
        }
    }
}

fn fields(headers: &Headers) -> HeaderPairs {
    headers.iter().map(|(n, v)| (String::from_utf8_lossy(n).to_ascii_lowercase(), v.to_vec())).collect()
}
