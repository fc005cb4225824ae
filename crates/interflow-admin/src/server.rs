//! The admin listener and its routes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::get;
use interflow_engine::Engine;
use tokio::net::TcpListener;

use crate::guard::{self, Guard};
use crate::{AdminConfig, health, metrics};

/// What the admin side shows and steers.
pub struct AdminParts {
    /// The corridor.
    pub engine: Arc<Engine>,
    /// The token that opens it.
    pub token: String,
}

/// What handlers share.
pub(crate) struct AdminState {
    pub engine: Arc<Engine>,
}

/// The admin side, ready to serve.
pub struct Admin {
    router: Router,
    listener: TcpListener,
}

impl Admin {
    /// Puts it together on a listener that is bound already (the engine must know its address beforehand).
    pub fn new(config: &AdminConfig, listener: TcpListener, parts: AdminParts) -> std::io::Result<Self> {
        let address: SocketAddr = listener.local_addr()?;
        let state = Arc::new(AdminState { engine: parts.engine });
        let guard = Arc::new(Guard {
            token: parts.token,
            hosts: config.hosts.clone(),
            address,
            open_metrics: config.open_metrics,
        });
        let router = Router::new()
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(metrics::metrics))
            .with_state(state)
            .layer(middleware::from_fn_with_state(guard, guard::check));
        Ok(Self { router, listener })
    }

    /// Serves until `end` is ready, then lets requests under way finish.
    pub async fn serve(self, end: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        axum::serve(self.listener, self.router).with_graceful_shutdown(end).await
    }
}
