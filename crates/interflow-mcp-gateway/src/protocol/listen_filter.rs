//! What a client wants to be told outside of its other requests (MCP 2026-07-28, `subscriptions/listen`).

use serde_json::{Value, json};

use super::list_kind::ListKind;
use super::task_method::TASK_CHANGED;

pub(crate) const LISTEN: &str = "subscriptions/listen";
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
pub(crate) const RESOURCE_UPDATED: &str = "notifications/resources/updated";
/// Bound on the resources and on the tasks of one request.
const MAX_NAMED: usize = 1_000;

/// The members for lists that change, and the lists.
const LISTS: [(&str, ListKind); 3] = [
    ("toolsListChanged", ListKind::Tools),
    ("promptsListChanged", ListKind::Prompts),
    ("resourcesListChanged", ListKind::Resources),
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenFilter {
    lists: Vec<ListKind>,
    pub resources: Vec<String>,
    /// Ids of tasks.
    pub tasks: Vec<String>,
}

impl ListenFilter {
    /// # Errors
    /// What is wrong with it.
    pub fn parse(params: &Value) -> Result<Self, &'static str> {
        let wanted = params["notifications"].as_object().ok_or("`notifications` is not an object")?;
        let lists = LISTS.into_iter().filter(|(name, _)| wanted.get(*name) == Some(&Value::Bool(true)));
        let texts = |name: &str| match wanted.get(name) {
            None => Some(Vec::new()),
            Some(all) => {
                let all = all.as_array().filter(|all| all.len() <= MAX_NAMED)?;
                all.iter().map(|text| text.as_str().map(str::to_owned)).collect()
            }
        };
        let resources =
            texts("resourceSubscriptions").ok_or("`resourceSubscriptions` is not a list of at most 1000 URIs")?;
        let tasks = texts("taskIds").ok_or("`taskIds` is not a list of at most 1000 ids")?;
        Ok(Self { lists: lists.map(|(_, kind)| kind).collect(), resources, tasks })
    }

    /// What a server without sessions is asked for on behalf of a client: all lists, and these resources and tasks.
    pub fn for_server(resources: Vec<String>, tasks: Vec<String>) -> Self {
        Self { lists: LISTS.map(|(_, kind)| kind).to_vec(), resources, tasks }
    }

    /// As the member `notifications` of the params.
    pub fn to_value(&self) -> Value {
        let lists = LISTS.iter().filter(|(_, kind)| self.lists.contains(kind));
        let mut value: Value = lists.map(|(name, _)| ((*name).to_owned(), Value::Bool(true))).collect();
        if !self.resources.is_empty() {
            value["resourceSubscriptions"] = json!(self.resources);
        }
        if !self.tasks.is_empty() {
            value["taskIds"] = json!(self.tasks);
        }
        value
    }

    /// Whether the client wants to know of this; the params are those for the client.
    pub fn admits(&self, method: &str, params: &Value) -> bool {
        match method {
            RESOURCE_UPDATED => params["uri"].as_str().is_some_and(|uri| self.resources.iter().any(|own| own == uri)),
            TASK_CHANGED => params["taskId"].as_str().is_some_and(|id| self.tasks.iter().any(|own| own == id)),
            _ => self.lists.iter().any(|kind| kind.changed_method() == method),
        }
    }
}
