//! Guardrails on calls of the MCP gateway, as on LLM traffic: arguments are what a model wrote, so that guardrails of
//! output check them; results are what a model reads, so that guardrails of input check them.

use std::sync::Arc;

use interflow_llm::LlmCall;
use interflow_llm::spans::TextPlace;
use interflow_redact::{ValueGuard, media_members};
use interflow_types::{BoxFuture, Direction, Flow, RequestHead};
use serde_json::Value;

use super::GuardrailService;
use super::evaluate::{CheckJob, SettledOutcomes, blocked_refusal};
use super::record::{GuardrailRecord, GuardrailResult};
use super::settings::{ActiveGuards, Guard};
use super::texts::{GuardText, TextEdit, masked_text, merge_edits, whole_text};

/// The name of MCP servers in the filters `providers` and `models`; `routes` has the names of the servers.
const PROVIDER: &str = "mcp";

/// The guardrails of one call.
struct McpCallGuards {
    service: Arc<GuardrailService>,
    active: ActiveGuards,
    record: GuardrailRecord,
}

impl GuardrailService {
    /// The guardrails of a call to an MCP server; `None` if there are none.
    pub fn of_mcp_call(self: &Arc<Self>, flow: &mut Flow, server: &str) -> Option<Arc<dyn ValueGuard>> {
        let settings = self.settings.load();
        if settings.is_empty() {
            return None;
        }
        let call = LlmCall {
            upstream: Some(PROVIDER.into()),
            route: Some(server.into()),
            model: Some(PROVIDER.into()),
            ..LlmCall::default()
        };
        let mut active = settings.for_flow(flow, &call);
        for guards in [&mut active.input, &mut active.output] {
            // Those that judge a reply as a whole have no reply here.
            guards.retain(|guard| !guard.check.wants_replies_only());
        }
        let is_none = active.input.is_empty() && active.output.is_empty();
        let service = Arc::clone(self);
        (!is_none).then(|| Arc::new(McpCallGuards { service, active, record: GuardrailRecord::of(flow) }) as _)
    }
}

impl ValueGuard for McpCallGuards {
    fn check_arguments<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a RequestHead,
        json: String,
    ) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            let Some(checked) = self.check(&json, Direction::Response, TextPlace::ToolCall).await? else {
                return Ok(json);
            };
            let CheckedValues { job, settled, .. } = &checked;
            for (guard, findings) in &settled.asking {
                let decision = job.ask(&self.service, flow, head, &self.record, guard, findings).await;
                decision.map_err(|refusal| refusal.message)?;
            }
            Ok(checked.into_json(json))
        })
    }

    /// A person is not asked about a result: what would be asked about is refused.
    fn check_result(&self, json: String) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let Some(checked) = self.check(&json, Direction::Request, TextPlace::ToolResult).await? else {
                return Ok(json);
            };
            if let Some((guard, findings)) = checked.settled.asking.first() {
                let (direction, service) = (checked.job.direction, &self.service);
                service.record(&self.record, guard, direction, GuardrailResult::Denied, findings);
                let what =
                    format!("{}; results of tools are not submitted for approval", checked.job.describe(findings));
                return Err(blocked_refusal(guard, direction, &what).message);
            }
            Ok(checked.into_json(json))
        })
    }
}

impl McpCallGuards {
    async fn check(&self, json: &str, direction: Direction, place: TextPlace) -> Result<Option<CheckedValues>, String> {
        let guards: &[Arc<Guard>] = match direction {
            Direction::Request => &self.active.input,
            Direction::Response => &self.active.output,
        };
        if guards.is_empty() {
            return Ok(None);
        }
        let mut value: Value = serde_json::from_str(json).map_err(|e| format!("it is not JSON: {e}"))?;
        let mut texts = Vec::new();
        each_text(&mut value, &mut |text| texts.push(whole_text(text, place)));
        if texts.is_empty() {
            return Ok(None);
        }
        // The caller's copy is counted already.
        let (facts, held) = (Arc::clone(&self.active.facts), Arc::default());
        let job = CheckJob { direction, facts, texts: Arc::new(texts), _held: held };
        let outcomes = job.run(&self.service, guards).await;
        let settled = job.settle(&self.service, &self.record, outcomes).map_err(|refusal| refusal.message)?;
        Ok(Some(CheckedValues { value, job, settled }))
    }
}

/// A value whose texts were checked.
struct CheckedValues {
    value: Value,
    job: CheckJob,
    settled: SettledOutcomes,
}

impl CheckedValues {
    /// The value with what is masked; as it came if nothing is.
    fn into_json(self, json: String) -> String {
        let Self { mut value, job, settled } = self;
        let edits = merge_edits(settled.edits);
        if edits.is_empty() {
            return json;
        }
        let mut at = 0;
        each_text(&mut value, &mut |text| {
            let own: Vec<&TextEdit> = edits.iter().filter(|edit| edit.text == at).collect();
            if let Some(known) = job.texts.get(at).filter(|_| !own.is_empty()).map(|known: &GuardText| &known.text) {
                *text = masked_text(known, &own);
            }
            at += 1;
        });
        value.to_string()
    }
}

/// Visits the texts of a value in order, names of members and binary data left out.
fn each_text(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) if !text.is_empty() => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, visit)),
        Value::Object(members) => {
            let media: Vec<_> = media_members(members).collect();
            let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(&b);
            for (name, inner) in members.iter_mut() {
                // A tool's own form may have a text there.
                if !(media.contains(&name.as_str()) && inner.as_str().is_some_and(|text| text.bytes().all(is_base64))) {
                    each_text(inner, visit);
                }
            }
        }
        _ => {}
    }
}
