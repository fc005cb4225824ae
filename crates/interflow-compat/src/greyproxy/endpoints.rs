//! `/api/endpoint-rules`: the API formats of endpoints, built in and as overridden by the operator.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use interflow_conversations::conversations::endpoints::{
    DECODERS, EndpointOverride, EndpointOverrides, decoder_name, format_by_name,
};
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_llm::message::ApiFormat;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{GreyproxyApiState, GreyproxyError, GreyproxyResult, GreyproxyState, LenientJson};
use interflow_admin::run_query;

/// Built-in endpoints: host, path, method and API format. Bodies in these formats are recognised at any other host and
/// path too.
const BUILTIN_ENDPOINTS: [(&str, &str, &str, ApiFormat); 12] = [
    ("api.anthropic.com", "/v1/messages", "POST", ApiFormat::Anthropic),
    ("api.openai.com", "/v1/responses", "POST", ApiFormat::Responses),
    ("api.openai.com", "/v1/responses", "WS_REQ", ApiFormat::Responses),
    ("chatgpt.com", "/backend-api/codex/responses", "*", ApiFormat::Responses),
    ("api.openai.com", "/v1/chat/completions", "POST", ApiFormat::Chat),
    ("openrouter.ai", "/api/v1/chat/completions", "POST", ApiFormat::Chat),
    ("*.openai.azure.com", "/openai/deployments/*/chat/completions", "POST", ApiFormat::Chat),
    ("api.githubcopilot.com", "/chat/completions", "POST", ApiFormat::Chat),
    ("generativelanguage.googleapis.com", "/v1beta/models/*", "POST", ApiFormat::Gemini),
    ("*aiplatform.googleapis.com", "/v1/projects/*", "POST", ApiFormat::Gemini),
    ("bedrock-runtime.*.amazonaws.com", "/model/*/converse*", "POST", ApiFormat::Converse),
    ("*", "/api/chat", "POST", ApiFormat::Ollama),
];

fn endpoint_json(e: &EndpointOverride) -> Value {
    json!({
        "id": e.id, "host_pattern": e.host, "path_pattern": e.path, "method": e.method, "decoder_name": decoder_name(e.shape),
        "priority": e.priority, "enabled": e.enabled, "user_defined": e.id >= EndpointOverride::FIRST_CUSTOM_ID,
    })
}

/// The built-in endpoints in the form of overrides.
fn builtin_endpoints() -> impl Iterator<Item = EndpointOverride> {
    (1..).zip(BUILTIN_ENDPOINTS).map(|(id, (host, path, method, shape))| EndpointOverride {
        id,
        host: host.to_owned(),
        path: path.to_owned(),
        method: method.to_owned(),
        shape,
        priority: 0,
        enabled: true,
    })
}

/// A rule as sent by clients; absent fields stay unchanged.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct EndpointInput {
    host_pattern: Option<String>,
    path_pattern: Option<String>,
    method: Option<String>,
    decoder_name: Option<String>,
    priority: Option<i64>,
    enabled: Option<bool>,
}

impl EndpointInput {
    fn merge_into(self, old: EndpointOverride) -> Result<EndpointOverride, GreyproxyError> {
        let shape = match self.decoder_name {
            None => old.shape,
            Some(name) => format_by_name(&name).ok_or_else(|| {
                let names: Vec<&str> = DECODERS.iter().map(|(n, _)| *n).collect();
                GreyproxyError::bad_request(format!("unknown decoder_name '{name}': there are {}", names.join(", ")))
            })?,
        };
        Ok(EndpointOverride {
            id: old.id,
            host: self.host_pattern.unwrap_or(old.host),
            path: self.path_pattern.unwrap_or(old.path),
            method: self.method.unwrap_or(old.method),
            shape,
            priority: self.priority.unwrap_or(old.priority),
            enabled: self.enabled.unwrap_or(old.enabled),
        })
    }
}

async fn operator_endpoints(grey: &GreyproxyState) -> Result<Vec<EndpointOverride>, GreyproxyError> {
    let read = run_query(&grey.admin, |store, _| Ok(EndpointOverrides::load(store)?.list().to_vec()));
    Ok(read.await?)
}

/// Changes the operator's overrides, serialising concurrent changes.
async fn edit_endpoints<T>(
    grey: &GreyproxyState,
    edit: impl FnOnce(&mut Vec<EndpointOverride>) -> Result<T, GreyproxyError>,
) -> Result<T, GreyproxyError> {
    let nothing = || GreyproxyError(StatusCode::SERVICE_UNAVAILABLE, "nothing is recorded".to_owned());
    let live: IndexerHandle = grey.admin.conversations.clone().ok_or_else(nothing)?;
    let _one_at_a_time = grey.endpoints.lock().await;
    let mut list = operator_endpoints(grey).await?;
    let done = edit(&mut list)?;
    let endpoints = EndpointOverrides::new(list).map_err(GreyproxyError::bad_request)?;
    live.save_endpoints(endpoints)
        .await
        .map_err(|e| GreyproxyError(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    Ok(done)
}

/// The operator's override with this number.
fn find(list: &mut [EndpointOverride], id: u64) -> Result<&mut EndpointOverride, GreyproxyError> {
    if builtin_endpoints().any(|e| e.id == id) {
        return Err(GreyproxyError::bad_request(
            "this rule is built in: one of your own with a higher priority goes before it",
        ));
    }
    list.iter_mut().find(|e| e.id == id).ok_or_else(|| GreyproxyError::not_found("endpoint rule"))
}

/// `GET /api/endpoint-rules`
pub(super) async fn list(State(grey): GreyproxyApiState) -> GreyproxyResult {
    let own = operator_endpoints(&grey).await?;
    let mut items: Vec<EndpointOverride> = own.into_iter().chain(builtin_endpoints()).collect();
    items.sort_by_key(|e| (std::cmp::Reverse(e.priority), e.id));
    let items: Vec<Value> = items.iter().map(endpoint_json).collect();
    Ok(Json(json!({"total": items.len(), "items": items})))
}

/// `POST /api/endpoint-rules`
pub(super) async fn create(
    State(grey): GreyproxyApiState,
    LenientJson(given): LenientJson<EndpointInput>,
) -> Result<(StatusCode, Json<Value>), GreyproxyError> {
    for (name, value) in [("host_pattern", &given.host_pattern), ("decoder_name", &given.decoder_name)] {
        if value.as_deref().is_none_or(|v| v.trim().is_empty()) {
            return Err(GreyproxyError::bad_request(format!("{name} is required")));
        }
    }
    let any = "*".to_owned();
    let new = EndpointOverride {
        id: 0,
        host: String::new(),
        path: any.clone(),
        method: any,
        shape: ApiFormat::Chat,
        priority: 0,
        enabled: true,
    };
    let new = given.merge_into(new)?;
    let made = edit_endpoints(&grey, |list| {
        let id = EndpointOverride::next_id(list);
        let made = EndpointOverride { id, ..new };
        list.push(made.clone());
        Ok(made)
    });
    Ok((StatusCode::CREATED, Json(endpoint_json(&made.await?))))
}

/// `PUT /api/endpoint-rules/:id`: absent fields stay unchanged.
pub(super) async fn update(
    State(grey): GreyproxyApiState,
    Path(id): Path<u64>,
    LenientJson(given): LenientJson<EndpointInput>,
) -> GreyproxyResult {
    let changed = edit_endpoints(&grey, |list| {
        let place = find(list, id)?;
        *place = given.merge_into(place.clone())?;
        Ok(place.clone())
    });
    Ok(Json(endpoint_json(&changed.await?)))
}

/// `DELETE /api/endpoint-rules/:id`
pub(super) async fn remove(State(grey): GreyproxyApiState, Path(id): Path<u64>) -> GreyproxyResult {
    edit_endpoints(&grey, |list| {
        find(list, id)?;
        list.retain(|e| e.id != id);
        Ok(())
    })
    .await?;
    Ok(Json(json!({"status": "ok", "deleted": true})))
}
