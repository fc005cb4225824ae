//! `/api/endpoint-rules`: what is spoken at which endpoint, as it is known and as the owner says.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use interflow_engine::conversations::endpoints::{DECODERS, Endpoint, Endpoints, decoded, decoder};
use interflow_engine::conversations::live::Live;
use interflow_llm::message::Shape;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Given, Grey, Refused, Shared};
use crate::api::ask;

/// What is read without being told: host, path, method, and what is spoken there. Bodies of these shapes are recognised
/// at any other host and path too.
const KNOWN: [(&str, &str, &str, Shape); 12] = [
    ("api.anthropic.com", "/v1/messages", "POST", Shape::Anthropic),
    ("api.openai.com", "/v1/responses", "POST", Shape::Responses),
    ("api.openai.com", "/v1/responses", "WS_REQ", Shape::Responses),
    ("chatgpt.com", "/backend-api/codex/responses", "*", Shape::Responses),
    ("api.openai.com", "/v1/chat/completions", "POST", Shape::Chat),
    ("openrouter.ai", "/api/v1/chat/completions", "POST", Shape::Chat),
    ("*.openai.azure.com", "/openai/deployments/*/chat/completions", "POST", Shape::Chat),
    ("api.githubcopilot.com", "/chat/completions", "POST", Shape::Chat),
    ("generativelanguage.googleapis.com", "/v1beta/models/*", "POST", Shape::Gemini),
    ("*aiplatform.googleapis.com", "/v1/projects/*", "POST", Shape::Gemini),
    ("bedrock-runtime.*.amazonaws.com", "/model/*/converse*", "POST", Shape::Converse),
    ("*", "/api/chat", "POST", Shape::Ollama),
];

fn shaped(e: &Endpoint) -> Value {
    json!({
        "id": e.id, "host_pattern": e.host, "path_pattern": e.path, "method": e.method, "decoder_name": decoder(e.shape),
        "priority": e.priority, "enabled": e.enabled, "user_defined": e.id >= Endpoint::FIRST,
    })
}

/// What is known by itself, in the same shape.
fn known() -> impl Iterator<Item = Endpoint> {
    (1..).zip(KNOWN).map(|(id, (host, path, method, shape))| Endpoint {
        id,
        host: host.to_owned(),
        path: path.to_owned(),
        method: method.to_owned(),
        shape,
        priority: 0,
        enabled: true,
    })
}

/// A rule as clients give it; what is not given stays as it is.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct GivenEndpoint {
    host_pattern: Option<String>,
    path_pattern: Option<String>,
    method: Option<String>,
    decoder_name: Option<String>,
    priority: Option<i64>,
    enabled: Option<bool>,
}

impl GivenEndpoint {
    fn over(self, old: Endpoint) -> Result<Endpoint, Refused> {
        let shape = match self.decoder_name {
            None => old.shape,
            Some(name) => decoded(&name).ok_or_else(|| {
                let names: Vec<&str> = DECODERS.iter().map(|(n, _)| *n).collect();
                Refused::bad(format!("unknown decoder_name '{name}': there are {}", names.join(", ")))
            })?,
        };
        Ok(Endpoint {
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

async fn of_the_owner(grey: &Grey) -> Result<Vec<Endpoint>, Refused> {
    let read = ask(&grey.admin, |store, _| Ok(Endpoints::of(store)?.list().to_vec()));
    Ok(read.await?)
}

/// Changes what the owner says, one change after another.
async fn change<T>(grey: &Grey, edit: impl FnOnce(&mut Vec<Endpoint>) -> Result<T, Refused>) -> Result<T, Refused> {
    let nothing = || Refused(StatusCode::SERVICE_UNAVAILABLE, "nothing is recorded".to_owned());
    let live: Live = grey.admin.conversations.clone().ok_or_else(nothing)?;
    let _one_at_a_time = grey.endpoints.lock().await;
    let mut list = of_the_owner(grey).await?;
    let done = edit(&mut list)?;
    let endpoints = Endpoints::new(list).map_err(Refused::bad)?;
    live.heed(endpoints).await.map_err(|e| Refused(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    Ok(done)
}

/// The owner's one of this number.
fn find(list: &mut [Endpoint], id: u64) -> Result<&mut Endpoint, Refused> {
    if known().any(|e| e.id == id) {
        return Err(Refused::bad("this rule is built in: one of your own with a higher priority goes before it"));
    }
    list.iter_mut().find(|e| e.id == id).ok_or_else(|| Refused::missing("endpoint rule"))
}

/// `GET /api/endpoint-rules`
pub(super) async fn list(State(grey): Shared) -> Answer {
    let own = of_the_owner(&grey).await?;
    let mut items: Vec<Endpoint> = own.into_iter().chain(known()).collect();
    items.sort_by_key(|e| (std::cmp::Reverse(e.priority), e.id));
    let items: Vec<Value> = items.iter().map(shaped).collect();
    Ok(Json(json!({"total": items.len(), "items": items})))
}

/// `POST /api/endpoint-rules`
pub(super) async fn create(
    State(grey): Shared,
    Given(given): Given<GivenEndpoint>,
) -> Result<(StatusCode, Json<Value>), Refused> {
    for (name, value) in [("host_pattern", &given.host_pattern), ("decoder_name", &given.decoder_name)] {
        if value.as_deref().is_none_or(|v| v.trim().is_empty()) {
            return Err(Refused::bad(format!("{name} is required")));
        }
    }
    let any = "*".to_owned();
    let new = Endpoint {
        id: 0,
        host: String::new(),
        path: any.clone(),
        method: any,
        shape: Shape::Chat,
        priority: 0,
        enabled: true,
    };
    let new = given.over(new)?;
    let made = change(&grey, |list| {
        let id = Endpoint::next_id(list);
        let made = Endpoint { id, ..new };
        list.push(made.clone());
        Ok(made)
    });
    Ok((StatusCode::CREATED, Json(shaped(&made.await?))))
}

/// `PUT /api/endpoint-rules/:id`: what is not given stays.
pub(super) async fn update(State(grey): Shared, Path(id): Path<u64>, Given(given): Given<GivenEndpoint>) -> Answer {
    let changed = change(&grey, |list| {
        let place = find(list, id)?;
        *place = given.over(place.clone())?;
        Ok(place.clone())
    });
    Ok(Json(shaped(&changed.await?)))
}

/// `DELETE /api/endpoint-rules/:id`
pub(super) async fn remove(State(grey): Shared, Path(id): Path<u64>) -> Answer {
    change(&grey, |list| {
        find(list, id)?;
        list.retain(|e| e.id != id);
        Ok(())
    })
    .await?;
    Ok(Json(json!({"status": "ok", "deleted": true})))
}
