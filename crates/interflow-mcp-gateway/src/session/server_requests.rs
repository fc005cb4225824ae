//! Requests of a session to servers, within their time limits.

use std::sync::Arc;
use std::time::Duration;

use interflow_types::BoxFuture;
use interflow_types::units::HumanDuration;

use super::client_session::McpSession;
use crate::protocol::client_message::ListKind;
use crate::protocol::jsonrpc::{
    HEADER_MISMATCH, MISSING_CAPABILITY, RpcError, SERVER_FAILED, UNSUPPORTED_VERSION, text_member,
};
use crate::settings::McpSettings;
use crate::upstream::event_sink::EventSink;
use crate::upstream::server::{McpServer, ServerTransport};
use crate::upstream::server_hello::ServerHello;
use crate::upstream::stdio::StdioServer;

impl McpServer {
    /// Sends a request within the time limit, with a token for progress notifications if the sink wants them. If the future is dropped, the server is told that the request is cancelled.
    ///
    /// # Errors
    /// The server's error, or why it did not answer.
    pub async fn request(
        &self,
        session: &McpSession,
        method: &str,
        params: &str,
        sink: Option<EventSink>,
    ) -> Result<String, RpcError> {
        // The start has a time limit of its own.
        let hello = self.hello(session).await?;
        let start = self.config.start_timeout.0;
        let sent = async {
            match &self.transport {
                ServerTransport::Stdio(server) => {
                    let client = session.upstream_client(self);
                    self.process(session, server).request(&client, start, method, params, sink).await
                }
                ServerTransport::Http(server) => {
                    let name = text_member(params, "name").filter(|_| method == "tools/call");
                    let listed = name.and_then(|name| session.listed.find(&self.name, ListKind::Tools, &name));
                    let mirrored = listed.as_ref().map(|listed| listed.mirrored.as_slice()).unwrap_or_default();
                    let leased = match sink {
                        Some(_) => session.http_of_call(self, &hello)?,
                        None => session.http(self).shared(),
                    };
                    server.request(&leased.session, start, method, params, mirrored, sink).await
                }
            }
        };
        let limit = self.config.timeout.0;
        let late = || {
            let limit = HumanDuration(limit);
            Err(RpcError::server(format!("no response within {limit} (timeout of the server in [mcp.server])")))
        };
        let answered = within(limit, session, sent).await.unwrap_or_else(late);
        answered.map_err(|e| RpcError {
            message: format!("MCP server {}: {}", self.name, e.message),
            code: match e.code {
                // They are about the gateway's own request, and would make the client change its.
                HEADER_MISMATCH | UNSUPPORTED_VERSION => SERVER_FAILED,
                MISSING_CAPABILITY if !session.is_stateless() => SERVER_FAILED,
                code => code,
            },
            ..e
        })
    }

    /// Asks a server without sessions to tell of changes to the resources that the session subscribed to.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn renew_subscriptions(&self, session: &McpSession) -> Result<(), RpcError> {
        match &self.transport {
            ServerTransport::Http(_) => session.http(self).renew_stream(),
            ServerTransport::Stdio(server) => {
                let (client, start) = (session.upstream_client(self), self.config.start_timeout.0);
                self.process(session, server).subscribe(&client, start).await?;
            }
        }
        Ok(())
    }

    /// What the server declared at the beginning.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn hello(&self, session: &McpSession) -> Result<ServerHello, RpcError> {
        let start = self.config.start_timeout.0;
        let hello = match &self.transport {
            ServerTransport::Stdio(server) => self.process(session, server).hello(start).await,
            ServerTransport::Http(server) => server.hello(&session.http(self), start).await,
        };
        // That one user cannot use it says nothing of the others.
        if hello.is_ok() || !(self.config.exchanges() || self.config.has_accounts()) {
            self.known.record(hello.as_ref().ok().cloned());
        }
        hello.map_err(|e| RpcError { message: format!("MCP server {}: {}", self.name, e.message), ..e })
    }

    /// The process of a session: the one that all share, or its own.
    fn process(&self, session: &McpSession, shared: &Arc<StdioServer>) -> Arc<StdioServer> {
        if self.config.process_per_session { session.stdio(self, shared) } else { Arc::clone(shared) }
    }

    /// Passes on what the server sends outside of requests of the client, for as long as the future is polled or the
    /// sink is open. The listener counts from this call on, not from the first poll: requests that follow it are sent when
    /// it can hear the server.
    pub fn listen(&self, session: &McpSession, sink: EventSink) -> BoxFuture<'static, ()> {
        match &self.transport {
            ServerTransport::Stdio(server) => {
                self.process(session, server).listen(sink);
                Box::pin(std::future::ready(()))
            }
            ServerTransport::Http(_) if session.is_stateless() => {
                let needs_stream = self.known.get().is_some_and(|hello| hello.is_stateless());
                session.http(self).add_listener(sink, needs_stream);
                Box::pin(std::future::ready(()))
            }
            ServerTransport::Http(server) => {
                let (server, session) = (server.clone(), session.http(self));
                let streams = session.announce_listener();
                Box::pin(async move { server.listen(&session, streams, &sink).await })
            }
        }
    }
}

impl McpSession {
    /// Ends its stream, and its sessions with servers over HTTP.
    pub async fn end_at_servers(&self, settings: &McpSettings) {
        self.standing.close();
        let further = std::mem::take(&mut *self.further_http.lock());
        let first = std::mem::take(&mut *self.http.lock());
        let ends = further.into_iter().chain(first).filter_map(|(name, http)| {
            let server = Arc::clone(settings.get(&name)?);
            Some(async move {
                if let ServerTransport::Http(target) = &server.transport {
                    target.end(&http).await;
                }
            })
        });
        futures_util::future::join_all(ends).await;
    }
}

/// The result within a time limit, which does not run while the client is asked something.
async fn within<T>(limit: Duration, session: &McpSession, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    let (mut remaining, mut waited) = (limit, session.clock.total());
    loop {
        if let Ok(done) = tokio::time::timeout(remaining, &mut work).await {
            return Some(done);
        }
        let now = session.clock.total();
        (remaining, waited) = (now.saturating_sub(waited), now);
        if remaining.is_zero() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_time_limit_does_not_run_while_the_client_is_asked() {
        let session = McpSession::of_test(None, None);
        let limit = Duration::from_millis(1);
        assert_eq!(within(limit, &session, std::future::pending::<()>()).await, None);
        let waiting = session.clock.begin();
        let work = tokio::time::sleep(Duration::from_millis(50));
        assert_eq!(within(limit, &session, work).await, Some(()));
        drop(waiting);
        assert_eq!(within(limit, &session, std::future::pending::<()>()).await, None);
    }
}
