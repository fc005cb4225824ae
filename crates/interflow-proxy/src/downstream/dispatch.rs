//! Dispatches the requests of a connection: to a tunnel or into the pipeline. Nothing imports this module: tunnels
//! reach it through the [`HttpService`] of the connection that they create.

use interflow_net::ingress::{HttpService, IncomingRequest, ServiceReply};
use interflow_types::{Error, Response};

use crate::downstream::connection::{ClientConnection, ConnectionKind};
use crate::http::pipeline::{self, PipelineStart};
use crate::tunnel::connect;

impl ClientConnection {
    fn begin_request(&self, incoming: IncomingRequest) -> PipelineStart<'_> {
        let live = self.worker.active_config();
        match &self.entry {
            ConnectionKind::Proxy => match incoming.target {
                // Boxed: a rare path must not enlarge the future of the common one.
                interflow_types::RequestTarget::Authority(_) => {
                    PipelineStart::Later(Box::pin(connect::http_connect(self, live, incoming)))
                }
                _ => pipeline::from_proxy(self, live, incoming),
            },
            ConnectionKind::Gateway => pipeline::from_gateway(self, live, incoming),
            ConnectionKind::Inside(inside) => pipeline::from_tunnel(self, live, inside, incoming),
        }
    }
}

impl HttpService for ClientConnection {
    // Not an `async fn`: its future would hold the request twice, here and in the future that it awaits.
    fn call(&self, incoming: IncomingRequest) -> impl Future<Output = ServiceReply> + Send {
        pipeline::run_request(self, self.begin_request(incoming))
    }

    fn error_response(&self, error: &Error) -> Response {
        let live = self.worker.active_config();
        pipeline::reject_malformed(self, &live, error)
    }
}
