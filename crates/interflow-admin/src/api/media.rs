//! Media: active streams, and links.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use interflow_media::MediaService;
use interflow_media::endpoint::LinkRequest;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::StrictJson;
use crate::server::AdminState;

fn media(state: &AdminState) -> Result<&Arc<MediaService>> {
    state.media.get().ok_or_else(|| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_media", "this instance serves no media")
            .remedy("set media.enabled = true")
    })
}

/// `GET /media/streams`
pub(crate) async fn streams(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let media = media(&state)?;
    let view = serde_json::to_value(media.streams().view()).expect("a view is plain data");
    Ok(Json(view))
}

/// `POST /media/links`
pub(crate) async fn link(
    State(state): State<Arc<AdminState>>,
    StrictJson(request): StrictJson<LinkRequest>,
) -> Result<Json<Value>> {
    let media = media(&state)?;
    let gateway = state.engine.gateway_addresses().first().copied().ok_or_else(|| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_gateway", "no gateway port is open")
            .remedy("set gateway.listen")
    })?;
    let wrong = |text| ApiError::new(StatusCode::BAD_REQUEST, "bad_link", text);
    let linked = media.link(&request, &media.base(gateway)).map_err(wrong)?;
    Ok(Json(json!({ "url": linked.url, "expires": linked.expires.map(interflow_types::Timestamp::from_secs) })))
}
