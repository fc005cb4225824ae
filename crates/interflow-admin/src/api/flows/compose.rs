//! Composed requests: sending one, showing it as code, and the collections in which they are kept.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_archive::view::ProtoSchemas;
use interflow_archive::{ArchiveFormat, replay, snippet};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::edited::edits::check_text;
use crate::api::flows::replay::{ReplayBody, ReplayError, ReplayedResponse, send};
use crate::api::input::{StrictJson, StrictQuery};
use crate::collections::{Collection, CollectionEntry, ComposedRequest};
use crate::error::{ApiError, Result};
use crate::records::blocking;
use crate::state::{AdminState, SharedState};

/// A request to send, with every variable replaced.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComposeInput {
    method: String,
    url: String,
    /// Names and values, in order. Fields of the connection and of the body's length are left to the sender.
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<ReplayBody>,
    /// The request as written, which the history keeps.
    saved: Option<ComposedRequest>,
}

impl ComposeInput {
    fn parse(self) -> Result<(replay::ComposedParts, Option<ComposedRequest>)> {
        let body = self.body.map(ReplayBody::bytes).transpose()?.unwrap_or_default();
        let parts = replay::ComposedParts::parse(&self.method, &self.url, &self.headers, body)?;
        Ok((parts, self.saved))
    }
}

/// The outcome: a response or an error. A failed request is a regular result of the call.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ComposeResult {
    /// The recorded flow.
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ReplayedResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ReplayError>,
}

/// Adds a request to the history. That is a convenience: the request is sent even if it cannot be written.
pub(crate) async fn remember(state: &AdminState, saved: Option<ComposedRequest>) {
    let Some(saved) = saved else { return };
    let collections = Arc::clone(&state.collections);
    if let Err(e) = blocking(move || collections.remember(saved)).await.and_then(|done| done) {
        tracing::warn!(error = e.into_details().message, "cannot write the history of composed requests");
    }
}

/// `POST /compose`: sends a request through the proxy's own client: approvals decide about it, and it is recorded, but rule
/// files do not apply to it.
pub async fn send_composed(
    state: SharedState,
    StrictJson(input): StrictJson<ComposeInput>,
) -> Result<Json<ComposeResult>> {
    let (parts, saved) = input.parse()?;
    remember(&state, saved).await;
    let (id, (response, error)) = send(&state, parts.into_request(), None).await;
    Ok(Json(ComposeResult { id: id.to_string(), response, error }))
}

/// Descriptor sets (`google.protobuf.FileDescriptorSet`), encoded, in base64.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DescriptorSets {
    descriptor_sets: Vec<String>,
}

impl DescriptorSets {
    fn new(sets: &[Vec<u8>]) -> Json<Self> {
        Json(Self { descriptor_sets: sets.iter().map(|set| STANDARD.encode(set)).collect() })
    }
}

/// `GET /compose/schemas`: those of `record.schemas`.
pub async fn schemas(state: SharedState) -> Result<Json<DescriptorSets>> {
    blocking(move || DescriptorSets::new(&state.schemas.descriptor_sets())).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProtoFiles {
    /// Names and texts of `.proto` files. They import each other, and Google's, by name.
    files: Vec<(String, String)>,
}

/// `POST /compose/schemas`
pub async fn compile_schemas(
    state: SharedState,
    StrictJson(input): StrictJson<ProtoFiles>,
) -> Result<Json<DescriptorSets>> {
    let text = input.files.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let compile = move || ProtoSchemas::compile_texts(input.files).map_err(ApiError::bad_request);
    let set = check_text(&state, &text, compile).await?;
    Ok(DescriptorSets::new(&[set]))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeParams {
    /// curl, httpie, fetch, python, go, java, csharp, php, powershell or rust.
    format: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CodeResult {
    code: String,
}

/// `POST /compose/code?format=…`
pub async fn code(
    StrictQuery(params): StrictQuery<CodeParams>,
    StrictJson(input): StrictJson<ComposeInput>,
) -> Result<Json<CodeResult>> {
    let format: ArchiveFormat =
        params.format.parse().map_err(|e: interflow_archive::UnknownFormat| ApiError::bad_request(e.to_string()))?;
    let (parts, _) = input.parse()?;
    let code = snippet::for_request(format, &parts.head, &parts.body)
        .ok_or_else(|| ApiError::bad_request(format!("{format} is not code")))?;
    Ok(Json(CodeResult { code }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Collections {
    collections: Vec<CollectionEntry>,
}

pub async fn list(state: SharedState) -> Result<Json<Collections>> {
    Ok(Json(Collections { collections: blocking(move || state.collections.list()).await?? }))
}

/// A collection, and what a change of it must be based on.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CollectionView {
    revision: String,
    collection: Collection,
}

pub async fn read(state: SharedState, Path(name): Path<String>) -> Result<Json<CollectionView>> {
    let (collection, revision) = blocking(move || state.collections.read(&name)).await??;
    Ok(Json(CollectionView { revision, collection }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectionUpdate {
    collection: Collection,
    /// The revision that was read; without one, the collection must be new.
    revision: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SavedCollection {
    revision: String,
}

/// `PUT /collections/{name}`
pub async fn write(
    state: SharedState,
    Path(name): Path<String>,
    StrictJson(input): StrictJson<CollectionUpdate>,
) -> Result<Json<SavedCollection>> {
    let revision =
        blocking(move || state.collections.write(&name, &input.collection, input.revision.as_deref())).await??;
    Ok(Json(SavedCollection { revision }))
}

pub async fn remove(state: SharedState, Path(name): Path<String>) -> Result<StatusCode> {
    blocking(move || state.collections.remove(&name)).await??;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ComposeHistory {
    /// The latest first.
    requests: Vec<ComposedRequest>,
}

pub async fn history(state: SharedState) -> Result<Json<ComposeHistory>> {
    Ok(Json(ComposeHistory { requests: blocking(move || state.collections.history()).await?? }))
}

pub async fn clear_history(state: SharedState) -> Result<StatusCode> {
    blocking(move || state.collections.clear_history()).await??;
    Ok(StatusCode::NO_CONTENT)
}
