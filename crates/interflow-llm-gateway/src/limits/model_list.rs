//! Filters model lists for keys that are restricted to some models.

use bytes::Bytes;
use interflow_limits::VirtualKey;
use interflow_llm::LlmRefusal;
use interflow_types::{Body, Method, RequestHead, ResponseHead, StatusCode};
use serde_json::Value;

use crate::exchange::response::whole::{UnreadResponse, replace_body};

/// The largest list that is filtered. A larger one is rejected, because an unfiltered list would reveal models.
pub(super) const MAX_LIST_BYTES: usize = 16 << 20;

/// Whether this path lists models: OpenAI and Anthropic, Ollama's `tags` and `ps`, Azure's deployments.
fn is_model_list_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    ["/models", "/api/tags", "/api/ps", "/deployments"].iter().any(|end| path.ends_with(end))
}

/// Whether the response to this request reveals models.
pub(super) fn lists_models(head: &RequestHead) -> bool {
    is_model_list_path(head.url.path_only())
}

/// Whether a lookup tells nothing about an account: a server's root and version, and preflights.
pub(super) fn is_harmless(head: &RequestHead) -> bool {
    let path = head.url.path_only().trim_end_matches('/');
    head.method == Method::OPTIONS
        || matches!(head.method, Method::GET | Method::HEAD) && (path.is_empty() || path.ends_with("/api/version"))
}

/// The model that a lookup asks about: `/v1/models/gpt-5`, `/v1beta/models/gemini-2.5-pro`.
pub(super) fn requested_model(path: &str) -> Option<&str> {
    let (before, name) = path.trim_end_matches('/').split_once("/models/")?;
    // Vertex has locations and operations after the model name.
    (!before.contains("/publishers/") || !name.contains('/')).then_some(name)
}

/// Filters the response to the models that the key and its levels allow. Fails closed: a list that cannot be read is not
/// forwarded.
pub(super) fn filter_response(
    head: &mut ResponseHead,
    read: Result<(Bytes, Bytes), UnreadResponse>,
    key: &VirtualKey,
) -> Result<Body, LlmRefusal> {
    let (raw, plain) = read.map_err(|unread| match unread {
        UnreadResponse::TooLarge(_) => unreadable_list("it is too large"),
        UnreadResponse::Undecodable(_, e) => unreadable_list(&e.to_string()),
    })?;
    let mut list: Value = interflow_codec::json::parse(&plain).map_err(|_| unreadable_list("it is not JSON"))?;
    if !filter_models(&mut list, key) {
        return Ok(Body::from(raw));
    }
    // Length, coding and digest of the head describe the list as the provider sent it.
    Ok(replace_body(head, list.to_string().into_bytes()))
}

fn unreadable_list(why: &str) -> LlmRefusal {
    let message =
        format!("the key is restricted to some models, and the provider's model list cannot be filtered: {why}");
    LlmRefusal::new(StatusCode::BAD_GATEWAY, "provider_error", "response_unreadable", message)
}

/// Removes models that the key does not allow; true if there were any.
fn filter_models(list: &mut Value, key: &VirtualKey) -> bool {
    let mut changed = false;
    if let Value::Array(models) = list {
        return retain_allowed(models, key);
    }
    // OpenAI and Anthropic, Gemini and Ollama, Vertex, and Gemini's tuned models.
    for member in ["data", "models", "publisherModels", "tunedModels"] {
        if let Some(Value::Array(models)) = list.get_mut(member) {
            changed |= retain_allowed(models, key);
        }
    }
    // Anthropic names the ends of a page. Its last model is the cursor of the next page, so it must stay while there
    // is one.
    if changed && list.get("first_id").is_some() {
        let id = |model: Option<&Value>| model.and_then(|m| m.get("id")).cloned().unwrap_or(Value::Null);
        let models = list["data"].as_array();
        let (first, last) = (id(models.and_then(|m| m.first())), id(models.and_then(|m| m.last())));
        list["first_id"] = first;
        if list["has_more"] != true {
            list["last_id"] = last;
        }
    }
    changed
}

fn retain_allowed(models: &mut Vec<Value>, key: &VirtualKey) -> bool {
    let before = models.len();
    models.retain(|model| model_names(model).any(|name| key.allows_model(name)));
    models.len() < before
}

/// The names by which requests know a model: as listed, and without Google's path prefix.
fn model_names(model: &Value) -> impl Iterator<Item = &str> {
    let model_name = ["id", "name", "model"].into_iter().find_map(|member| model.get(member)?.as_str());
    let name = model_name.or(model.as_str());
    name.into_iter().chain(name.and_then(|n| Some(n.rsplit_once("models/")?.1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A key without a list of its own, in a team with one.
    fn key() -> std::sync::Arc<VirtualKey> {
        let text = "[[team]]\nid = 't'\nmodels = ['gpt-4o*', 'gemini-2.5-pro', 'llama3:*']\n\
                    [[key]]\nid = 'k'\nteam = 't'\n\
                    hash = 'sha256:0000000000000000000000000000000000000000000000000000000000000000'\n";
        interflow_limits::VirtualKeyRing::parse(text).unwrap().keys()[0].clone()
    }

    #[test]
    fn model_lists_are_filtered_to_the_scope_of_the_key() {
        for (list, kept) in [
            (
                json!({"object": "list", "data": [{"id": "gpt-4o-mini", "created": 9007199254740993u64}, {"id": "o3"}]}),
                json!({"object": "list", "data": [{"id": "gpt-4o-mini", "created": 9007199254740993u64}]}),
            ),
            (
                json!({"data": [{"type": "model", "id": "o3"}, {"type": "model", "id": "gpt-4o"}], "has_more": false, "first_id": "o3", "last_id": "gpt-4o"}),
                json!({"data": [{"type": "model", "id": "gpt-4o"}], "has_more": false, "first_id": "gpt-4o", "last_id": "gpt-4o"}),
            ),
            (
                json!({"data": [{"id": "o3"}], "has_more": true, "first_id": "o3", "last_id": "o3"}),
                json!({"data": [], "has_more": true, "first_id": null, "last_id": "o3"}),
            ),
            (
                json!({"models": [{"name": "models/gemini-2.5-pro"}, {"name": "models/gemini-2.5-flash"}], "nextPageToken": "t"}),
                json!({"models": [{"name": "models/gemini-2.5-pro"}], "nextPageToken": "t"}),
            ),
            (
                json!({"models": [{"name": "llama3:8b", "model": "llama3:8b", "size": 1}, {"name": "qwen:1b", "model": "qwen:1b"}]}),
                json!({"models": [{"name": "llama3:8b", "model": "llama3:8b", "size": 1}]}),
            ),
            (
                json!({"publisherModels": [{"name": "publishers/google/models/gemini-2.5-pro"}, {"name": "publishers/google/models/x"}]}),
                json!({"publisherModels": [{"name": "publishers/google/models/gemini-2.5-pro"}]}),
            ),
            (json!([{"id": "gpt-4o"}, {"id": "o3"}, "o1"]), json!([{"id": "gpt-4o"}])),
        ] {
            let mut told = list.clone();
            assert!(filter_models(&mut told, &key()), "{list}");
            assert_eq!(told, kept);
        }
        let mut allowed = json!({"data": [{"id": "gpt-4o"}]});
        assert!(!filter_models(&mut allowed, &key()));
    }

    #[test]
    fn model_list_and_single_model_paths_are_recognised() {
        for (path, list, one) in [
            ("/v1/models", true, None),
            ("/v1beta/models/", true, None),
            ("/api/tags", true, None),
            ("/openai/deployments", true, None),
            ("/v1/models/gpt-5", false, Some("gpt-5")),
            ("/v1beta/models/gemini-2.5-pro", false, Some("gemini-2.5-pro")),
            ("/v1/models/openai/gpt-4o", false, Some("openai/gpt-4o")),
            ("/v1/files", false, None),
        ] {
            assert_eq!((is_model_list_path(path), requested_model(path)), (list, one), "{path}");
        }
    }

    #[test]
    fn unreadable_model_list_is_not_forwarded() {
        let mut head = ResponseHead::new(StatusCode::OK);
        let list = Bytes::from_static(b"<html>");
        let refused = filter_response(&mut head, Ok((list.clone(), list)), &key()).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (502, "response_unreadable"));
    }
}
