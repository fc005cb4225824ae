//! The answer of the gateway's own tool that connects the user's account at a server.

use parking_lot::Mutex;
use serde_json::json;

use super::lists::list_of_server;
use crate::exchange::ClientView;
use crate::grants::connect_tool;
use crate::grants::link::{Link, link_error};
use crate::grants::link_answer::masked;
use crate::protocol::challenge::Challenge;
use crate::protocol::client_message::ListKind;
use crate::protocol::jsonrpc::RpcError;
use crate::session::call_outcome::CallOutcome;

/// Whether the account of a user is connected, and the link with which that changes.
///
/// # Errors
/// It is not, and the client can show the link.
pub(super) async fn call(view: ClientView<'_>, name: &str, outcome: &Mutex<CallOutcome>) -> Result<String, RpcError> {
    let server =
        connect_tool::server(view, name).ok_or_else(|| RpcError::server("the server is not configured any more"))?;
    let (account, user) = (server.accounts(), view.session.account_user.as_deref());
    let (Some(account), Some(user)) = (account, user) else {
        let message = "nothing says whose account this is: show a virtual key or an access token, and have the operator \
                       set mcp.public_url";
        return Err(RpcError::not_allowed(message));
    };
    let url = Link::new(account, user, Challenge::default()).url(&account.grants)?;
    let text = match account.grant(user).await.map_err(RpcError::server)? {
        Some(_) => {
            let (name, url) = (&server.name, masked(&url, outcome));
            format!(
                "The user's account at {name} is connected. To disconnect it, or to connect another one, they open {url}"
            )
        }
        None => {
            // What the server demands is in the link.
            let listed = list_of_server(server, view.session, ListKind::Tools).await;
            let error = listed.err().filter(RpcError::has_own_link).unwrap_or_else(|| link_error(&url));
            if view.session.capabilities.urls {
                return Err(error);
            }
            error.message
        }
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }] }).to_string())
}
