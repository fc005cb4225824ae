//! The endpoints `/mcp` and `/mcp/NAME` on the gateway listener.

use std::sync::Arc;

use interflow_limits::{KeyedEndpoint, MCP_PROVIDER};
use interflow_types::{
    BoxFuture, Flow, GatewayMount, GatewayRequest, LocalHandler, Method, MountTarget, Request, RequestHead, Response,
    Result, StatusCode, is_forwarded,
};

use crate::cross_origin::{admit_page, is_of_page, preflight_response};
use crate::exchange::{Endpoint, McpExchange};
use crate::grants::pages;
use crate::methods::{answer, standing_stream};
use crate::protected_resource::{METADATA_PATH, ProtectedResource};
use crate::protocol::header_values::VERSION_HEADER;
use crate::protocol::responses::{json_response, refusal};
use crate::protocol::versions::STATELESS;
use crate::service::McpService;

const PATH: &str = "/mcp";
/// The name by which key scopes and quotas know the endpoints, as if of a provider.
const PROVIDER: &str = MCP_PROVIDER;

/// Claims the endpoints, if there are servers.
pub struct McpMount(pub Arc<McpService>);

struct EndpointHandler {
    service: Arc<McpService>,
    endpoint: Endpoint,
}

impl GatewayMount for McpMount {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    /// Clients show links, and authorization servers send the browser back.
    fn is_page(&self, request: &GatewayRequest<'_>) -> bool {
        pages::has(request)
    }

    fn find(&self, request: &GatewayRequest<'_>) -> Option<MountTarget> {
        let path = request.path.split('?').next().unwrap_or_default();
        if let Some(rest) = path.strip_prefix(METADATA_PATH) {
            // Of the resource, or of the part of it that one server is.
            let is_known = rest.is_empty() || rest == PATH || rest.starts_with("/mcp/");
            let resource = self.0.settings().oauth.clone().filter(|_| is_known && self.0.has_servers())?;
            return Some(MountTarget::Serve(Arc::new(MetadataHandler(resource))));
        }
        if let Some(target) = pages::find(&self.0, request) {
            return Some(target);
        }
        let rest = path.strip_prefix(PATH)?;
        let server = match rest {
            "" | "/" => None,
            _ => Some(Arc::from(rest.strip_prefix('/')?.trim_end_matches('/'))),
        };
        self.0.has_servers().then(|| {
            let (service, endpoint) = (Arc::clone(&self.0), Endpoint(server));
            MountTarget::Serve(Arc::new(EndpointHandler { service, endpoint }))
        })
    }
}

/// Serves the metadata of the resource, to everyone.
struct MetadataHandler(Arc<ProtectedResource>);

impl LocalHandler for MetadataHandler {
    fn identify_client(&self, flow: &mut Flow, head: &RequestHead) {
        admit_page(flow, head);
    }

    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        let response = match request.head.method {
            Method::OPTIONS if is_of_page(flow) => preflight_response(),
            Method::GET | Method::HEAD => json_response(StatusCode::OK, self.0.metadata()),
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET"),
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

impl LocalHandler for EndpointHandler {
    fn identify_client(&self, flow: &mut Flow, head: &RequestHead) {
        flow.tag("mcp");
        if admit_page(flow, head) {
            return;
        }
        *flow.extension_mut() = KeyedEndpoint { provider: Some(PROVIDER), uses_credentials: true };
        let exchange = flow.extension_mut::<McpExchange>();
        (exchange.endpoint, exchange.is_forwarded) = (Some(self.endpoint.clone()), is_forwarded(&head.headers));
    }

    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(async move {
            let Request { head, body } = request;
            // The stage has read it.
            drop(body);
            let has_session = head.headers.get_str(VERSION_HEADER) != Some(STATELESS);
            let not_allowed = |message: &str, allowed: &[u8]| {
                let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, message);
                response.head.headers.append_unchecked(b"Allow", allowed);
                response
            };
            let answered = match head.method {
                Method::OPTIONS if is_of_page(flow) => Ok(preflight_response()),
                Method::POST => Ok(answer::answer(&self.service, flow, &head).await),
                _ if !has_session => Ok(not_allowed("use POST: this version has no sessions", b"POST")),
                Method::GET => standing_stream::open(&self.service, flow, &head, &self.endpoint),
                Method::DELETE => answer::end_session(&self.service, flow, &head, &self.endpoint).await,
                _ => {
                    let message = "use POST, GET for the stream of a session, or DELETE to end a session";
                    Ok(not_allowed(message, b"GET, POST, DELETE"))
                }
            };
            Ok(answered.unwrap_or_else(|refused| *refused))
        })
    }
}
