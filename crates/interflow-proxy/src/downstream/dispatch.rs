//! Dispatches the requests of a connection: to a tunnel or into the pipeline. Nothing imports this module: tunnels
//! reach it through the [`HttpService`] of the connection that they create.

use std::sync::Arc;

use interflow_net::ingress::{HttpService, IncomingRequest, ServiceReply};
use interflow_types::{BoxFuture, Error, RequestTarget, Response, Result};

use crate::downstream::access::Login;
use crate::downstream::builtin_pages;
use crate::downstream::connection::{ClientConnection, ConnectionKind};
use crate::downstream::resolve::{Resolution, resolve};
use crate::http::error_response::error_response;
use crate::http::pipeline::{PipelineRequest, run_pipeline};
use crate::http::response::reject_malformed;
use crate::observe::login_watch::login_ended;
use crate::state::ActiveConfig;
use crate::tunnel::connect;

/// How the processing of a request begins.
enum RequestStart<'a> {
    /// The common case: the request enters the pipeline.
    Pipeline(Box<PipelineRequest>),
    /// Something rare must be awaited first, such as authentication. Boxed, so that it does not enlarge the future of
    /// the common case.
    Later(BoxFuture<'a, ServiceReply>),
    Done(ServiceReply),
}

impl ClientConnection {
    fn begin_request(&self, incoming: IncomingRequest) -> RequestStart<'_> {
        let config = self.worker.active_config();
        let login = match &self.entry {
            ConnectionKind::Proxy => match &incoming.target {
                RequestTarget::Authority(_) => {
                    // CONNECT authenticates and connects on its own; boxed, because it is rare beside requests.
                    return RequestStart::Later(Box::pin(connect::http_connect(self, config, incoming)));
                }
                RequestTarget::Absolute(_) => match self.cached_login(&config, &incoming.headers) {
                    Some(login) => login,
                    None => return RequestStart::Later(Box::pin(self.authenticate_and_run(config, incoming))),
                },
                // Not a proxy request: it is answered with a help page, for which no user is needed.
                RequestTarget::Origin(_) | RequestTarget::Asterisk => Login::Anonymous,
            },
            ConnectionKind::Gateway => Login::NotAsked(self.client_name()),
            // The tunnel may be older than the configuration.
            ConnectionKind::Inside(inside) if !config.settings.accepts_login(&inside.login) => {
                return self.enter_pipeline(config, incoming, Err(login_ended()));
            }
            ConnectionKind::Inside(inside) => inside.login.clone(),
        };
        self.enter_pipeline(config, incoming, Ok(login))
    }

    async fn authenticate_and_run(&self, config: Arc<ActiveConfig>, incoming: IncomingRequest) -> ServiceReply {
        let login = self.authenticate(&config, &incoming.headers).await;
        // Boxed, so that this rare case does not enlarge the future by the whole pipeline.
        Box::pin(self.run(self.enter_pipeline(config, incoming, login))).await
    }

    /// Finds where the request goes. `login` is the error of a client that could not be authenticated, whose request
    /// is denied in the pipeline.
    fn enter_pipeline(
        &self,
        config: Arc<ActiveConfig>,
        mut incoming: IncomingRequest,
        login: Result<Login>,
    ) -> RequestStart<'_> {
        let user = login.as_ref().ok().and_then(Login::user);
        let response = match resolve(self, &config, user, &mut incoming) {
            // `http://interflow.local/` is answered here, without a flow: it is not recorded, and no stage sees it.
            Resolution::Request(resolved) if login.is_ok() && resolved.is_builtin_page() => {
                let agent = incoming.headers.get_str("user-agent").unwrap_or_default();
                builtin_pages::serve_local(&resolved.url, agent, &self.worker.ca)
            }
            Resolution::Request(resolved) => {
                return RequestStart::Pipeline(PipelineRequest::new(self, config, resolved, incoming, login));
            }
            Resolution::Reply(response) => response,
            Resolution::Refused(error) => {
                // Without a flow there is no record: the counters and the log are the only trace.
                self.worker.counters.error(&error);
                tracing::debug!(client = %self.client.peer, "refused: {error}");
                error_response(&error, None, None)
            }
            Resolution::Malformed(error) => reject_malformed(self, &config, &error),
        };
        RequestStart::Done(ServiceReply::Response(response))
    }

    async fn run(&self, start: RequestStart<'_>) -> ServiceReply {
        match start {
            // Boxed, so that it takes no room in the connection's future while no request is served. `Box::pin` would make
            // the future on the stack and copy it.
            RequestStart::Pipeline(request) => {
                Box::into_pin(Box::write(Box::new_uninit(), run_pipeline(self, request))).await
            }
            RequestStart::Later(reply) => reply.await,
            RequestStart::Done(reply) => reply,
        }
    }
}

impl HttpService for ClientConnection {
    // Not an `async fn`: its future would hold the request twice, here and in the future that it awaits.
    fn call(&self, incoming: IncomingRequest) -> impl Future<Output = ServiceReply> + Send {
        self.run(self.begin_request(incoming))
    }

    fn error_response(&self, error: &Error) -> Response {
        reject_malformed(self, &self.worker.active_config(), error)
    }
}
