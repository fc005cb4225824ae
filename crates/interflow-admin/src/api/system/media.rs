//! Media: active streams, and links.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use interflow_media::MediaService;
use interflow_media::endpoint::LinkRequest;
use interflow_media::relay::StreamsView;
use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use crate::api::input::StrictJson;
use crate::error::{ApiError, Result};
use crate::state::{AdminState, SharedState};

fn media(state: &AdminState) -> Result<&Arc<MediaService>> {
    state.media.as_ref().ok_or_else(|| ApiError::unavailable("no_media", "this instance serves no media"))
}

pub async fn streams(state: SharedState) -> Result<Json<StreamsView>> {
    Ok(Json(media(&state)?.streams().view()))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct MediaLink {
    url: String,
    expires: Option<Timestamp>,
}

/// `POST /media/links`: the link leads to the first gateway address.
pub async fn link(state: SharedState, StrictJson(request): StrictJson<LinkRequest>) -> Result<Json<MediaLink>> {
    let media = media(&state)?;
    let gateway = state.engine.gateway_addresses().first().copied();
    let gateway = gateway.ok_or_else(|| ApiError::unavailable("no_gateway", "no gateway port is open"))?;
    let wrong = |text| ApiError::new(StatusCode::BAD_REQUEST, "bad_link", text);
    let linked = media.link(&request, &media.base(gateway)).map_err(wrong)?;
    Ok(Json(MediaLink { url: linked.url, expires: linked.expires.map(Timestamp::from_secs) }))
}
