//! Who the caller is, and what they may do.

use axum::Json;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use crate::identity::caller::Caller;
use crate::identity::{IdentityKind, Right, Role};
use crate::state::SharedState;

#[derive(Serialize, JsonSchema)]
pub(crate) struct Me {
    name: String,
    kind: IdentityKind,
    role: Role,
    rights: Vec<Right>,
    /// The issuer at which people log in; null if only tokens let in.
    issuer: Option<String>,
    /// Whether the caller may create API tokens.
    creates_tokens: bool,
}

/// `GET /me`
pub async fn me(state: SharedState, caller: Caller) -> Json<Me> {
    let identity = &caller.identity;
    Json(Me {
        name: identity.name.clone(),
        kind: identity.kind,
        role: identity.role,
        rights: identity.rights.list(),
        issuer: state.issuer.clone(),
        creates_tokens: crate::api::system::tokens::may_create(&caller),
    })
}
