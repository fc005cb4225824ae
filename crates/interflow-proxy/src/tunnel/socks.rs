//! Tunnels that a client opens with SOCKS5 (RFC 1928, RFC 1929).

use std::sync::Arc;

use interflow_net::ingress::socks5::{self, SocksReply};
use interflow_net::ingress::while_connected;
use interflow_net::io::IoStream;
use interflow_types::{BoxFuture, EntryKind, Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::downstream::access::{BasicCredentials, Login};
use crate::downstream::connection::ClientConnection;
use crate::state::ActiveConfig;
use crate::tunnel::connect::{TunnelRequest, open_tunnel};

/// A SOCKS5 connection, from its method negotiation on.
pub(crate) async fn serve_socks(conn: &ClientConnection, config: Arc<ActiveConfig>, io: IoStream) -> Result<()> {
    let timeout = config.settings.config.timeouts.header_timeout.0;
    let settings = Arc::clone(&config.settings);
    let verified = Mutex::new(None);
    // Credentials of `interflow exec` and `interflow browser` count without users, too.
    let check = |name: &str, password: &str| {
        let credentials = BasicCredentials { name: name.into(), password: password.into() };
        let (verified, settings) = (&verified, &settings);
        Box::pin(async move {
            // A full login queue counts as a wrong password: SOCKS5 has no other refusal (RFC 1929 section 2).
            let login = conn.verify(settings, &credentials).await.unwrap_or_default();
            let right = login.is_some();
            *verified.lock() = login;
            right
        }) as BoxFuture<'_, bool>
    };
    let auth = match (&config.settings.users, config.settings.config.auth.accept_unverified_names) {
        (Some(_), _) => socks5::SocksAuth::Password(&check),
        (None, true) => socks5::SocksAuth::Named(&check),
        (None, false) => socks5::SocksAuth::Open(&check),
    };
    let socks5::SocksRequest { authority, io, user } = socks5::accept(io, auth, timeout).await?;
    let login = verified.into_inner().unwrap_or_else(|| match user.filter(|user| !user.is_empty()) {
        Some(name) => Login::Claimed(name.into()),
        None => Login::Anonymous,
    });
    let request = TunnelRequest { transport: EntryKind::Socks5, authority, login: Ok(login), received_via: None };
    let keep_half_closed = settings.config.proxy.keep_half_closed;
    let opened = while_connected(io, keep_half_closed, open_tunnel(conn, &config, request)).await;
    // The flow has counted and recorded that the client left.
    let Some((opened, mut io)) = opened else { return Ok(()) };
    match opened {
        Ok(tunnel) => {
            socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
            tunnel.serve(io).await;
        }
        Err(refused) => {
            let _ = socks5::reply(&mut io, socks_reply(refused.error.kind()), None).await;
            refused.end(&config).await;
        }
    }
    Ok(())
}

fn client_gone(e: std::io::Error) -> Error {
    Error::new(ErrorKind::ClientGone, "the client went away").with_source(e)
}

/// The nearest reply code of RFC 1928 section 6.
const fn socks_reply(kind: ErrorKind) -> SocksReply {
    match kind {
        ErrorKind::Denied | ErrorKind::Unauthorized | ErrorKind::Loop | ErrorKind::Limited => SocksReply::NotAllowed,
        // A name that does not resolve: RFC 1928 has no code of its own for it.
        ErrorKind::Dns => SocksReply::HostUnreachable,
        ErrorKind::Connect => SocksReply::ConnectionRefused,
        ErrorKind::ConnectTimeout => SocksReply::TtlExpired,
        _ => SocksReply::GeneralFailure,
    }
}
