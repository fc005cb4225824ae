//! The demo's agents: each sends its history, receives the scripted answer, runs its tools and continues.

use std::pin::Pin;

use serde_json::{Value, json};

use crate::client::{DemoEndpoints, DemoRequest};
use crate::dialogue::{self, DialogueScript, DialogueStep, ToolCall};
use crate::fake_model::call_id;

/// Rounds in which all agents run; in later ones they take turns, because a page of conversations is full by then.
const FULL_ROUNDS: u32 = 2;
const AGENTS: u32 = 7;

/// Runs the agents of this round concurrently.
pub async fn run_agents(world: &DemoEndpoints, round: u32) {
    // The same session id within a round, so that the calls belong to one conversation.
    let session = &format!("0000demo-{round:04}-4000-8000-000000000000");
    let later = round.checked_sub(FULL_ROUNDS);
    let number = later.map_or(round, |later| FULL_ROUNDS + later / AGENTS);
    let script = |agent| dialogue::script(agent, number);
    let agents: [Pin<Box<dyn Future<Output = ()>>>; AGENTS as usize] = [
        Box::pin(coder(world, session, script("coder"))),
        Box::pin(support(world, script("support"))),
        Box::pin(chat(world, script("chat"))),
        Box::pin(codex(world, session, script("codex"))),
        Box::pin(gemini(world, script("gemini"))),
        Box::pin(ask(world, "ollama.example", "/api/chat", "ollama/0.12", script("ollama"))),
        Box::pin(ask(world, "llm.example", "/v1/chat/completions", "OpenAI/JS 6.1.0", script("overloaded"))),
    ];
    let turn = |n| later.is_none_or(|later| later % AGENTS == n);
    let running = (0..).zip(agents).filter(|(n, _)| turn(*n)).map(|(_, agent)| agent);
    futures_util::future::join_all(running).await;
}

/// A client that sends a customer's letter, with personal data, to a model.
async fn support(world: &DemoEndpoints, script: &DialogueScript) {
    let content = format!("{}\n\n{}", script.prompt, script.letter);
    let body = json!({"model": script.model, "messages": [{"role": "user", "content": content}]});
    let headers = [("User-Agent", "OpenAI/Python 1.109.1"), ("Authorization", "Bearer sk-demo")];
    post(world, "api.openai.com", "/v1/chat/completions", &headers, &body).await;
}

async fn post(world: &DemoEndpoints, host: &str, path: &str, headers: &[(&str, &str)], body: &Value) {
    let mut all = vec![("Content-Type", "application/json")];
    all.extend(headers);
    let body = body.to_string();
    // No retry: the next round sends the request again.
    let _ = world.send(&DemoRequest::post(host, path, &all, body.as_bytes())).await;
}

/// Parses the arguments of a tool call; the scripts contain only valid JSON.
fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

fn subagent_script(input: &Value) -> Option<&'static DialogueScript> {
    dialogue::find(input["prompt"].as_str()?)
}

const CLAUDE: [(&str, &str); 4] = [
    ("User-Agent", "claude-cli/2.0.14 (external, cli)"),
    ("anthropic-version", "2023-06-01"),
    ("x-api-key", "sk-ant-demo"),
    ("Accept", "application/json"),
];

/// A coding agent on Anthropic's API. It sends a title request first, as such agents do, and starts two sub-agents.
async fn coder(world: &DemoEndpoints, session: &str, script: &DialogueScript) {
    let user = json!({"user_id": format!("user_demo_account__session_{session}")});
    let title = json!({"model": "claude-haiku-5-5", "max_tokens": 128, "metadata": user,
        "system": "Analyze if this message indicates a new conversation topic (isNewTopic) and give it a title.",
        "messages": [{"role": "user", "content": script.prompt}]});
    post(world, "api.anthropic.com", "/v1/messages?beta=true", &CLAUDE, &title).await;
    run_steps(world, session, script, "You are Claude Code, a coding agent. The working folder is /srv/shop.").await;
}

fn run_steps<'a>(
    world: &'a DemoEndpoints,
    session: &'a str,
    script: &'a DialogueScript,
    system: &'a str,
    // Boxed, because sub-agents recurse into this function.
) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(async move {
        let tools = ["Bash", "Edit", "Glob", "Grep", "Read", "Task", "TodoWrite"].map(|name| {
            json!({"name": name, "description": format!("The tool {name}."), "input_schema": {"type": "object"}})
        });
        // Agents inject such reminders, which the conversation view separates from the prompt.
        let reminder = "<system-reminder>This is the demo's shop; nothing here is real.</system-reminder>";
        let mut history = vec![json!({"role": "user", "content": [
            {"type": "text", "text": reminder}, {"type": "text", "text": script.prompt}]})];
        for (n, step) in script.steps.iter().enumerate() {
            let body = json!({"model": script.model, "max_tokens": 32000, "stream": true, "system": [{"type": "text", "text": system}],
                "tools": tools, "messages": history, "metadata": {"user_id": format!("user_demo_account__session_{session}")}});
            post(world, "api.anthropic.com", "/v1/messages?beta=true", &CLAUDE, &body).await;
            let (said, results) = step_messages(n, step);
            history.push(json!({"role": "assistant", "content": said}));
            let helpers = step.calls.iter().filter_map(|call| subagent_script(&arguments(&call.arguments)));
            let helpers =
                helpers.map(|h| run_steps(world, session, h, "You are a sub-agent that explores code and reports."));
            // Sub-agents run at the same time, as with real agents.
            futures_util::future::join_all(helpers).await;
            if !results.is_empty() {
                history.push(json!({"role": "user", "content": results}));
            }
            if !step.then.is_empty() {
                history.push(json!({"role": "user", "content": step.then}));
            }
        }
    })
}

/// The model's answer of a step and the tool results, in Anthropic's format.
fn step_messages(n: usize, step: &DialogueStep) -> (Vec<Value>, Vec<Value>) {
    let mut turns = Vec::new();
    if !step.thinks.is_empty() {
        turns.push(json!({"type": "thinking", "thinking": step.thinks, "signature": "demo"}));
    }
    if !step.says.is_empty() {
        turns.push(json!({"type": "text", "text": step.says}));
    }
    let mut results = Vec::new();
    for (i, ToolCall { tool, arguments: input, result }) in step.calls.iter().enumerate() {
        let id = call_id(n, i);
        turns.push(json!({"type": "tool_use", "id": id, "name": tool, "input": arguments(input)}));
        let failed = result.contains("FAILED");
        results.push(json!({"type": "tool_result", "tool_use_id": id, "content": result, "is_error": failed}));
    }
    (turns, results)
}

/// A program that uses OpenAI's Chat Completions API without streaming.
async fn chat(world: &DemoEndpoints, script: &DialogueScript) {
    let headers = [("User-Agent", "OpenAI/Python 1.99.1"), ("Authorization", "Bearer sk-demo")];
    let tool = json!({"type": "function", "function": {"name": "query_orders", "parameters": {"type": "object"}}});
    let mut history = vec![
        json!({"role": "system", "content": "You report on a shop."}),
        json!({"role": "user", "content": script.prompt}),
    ];
    for (n, step) in script.steps.iter().enumerate() {
        let body = json!({"model": script.model, "messages": history, "tools": [tool]});
        post(world, "api.openai.com", "/v1/chat/completions", &headers, &body).await;
        let calls: Vec<Value> = step.calls.iter().enumerate().map(|(i, call)| {
            json!({"id": call_id(n, i), "type": "function", "function": {"name": call.tool, "arguments": call.arguments}})
        }).collect();
        history.push(json!({"role": "assistant", "content": step.says, "tool_calls": calls}));
        for (i, call) in step.calls.iter().enumerate() {
            history.push(json!({"role": "tool", "tool_call_id": call_id(n, i), "content": call.result}));
        }
    }
}

async fn codex(world: &DemoEndpoints, session: &str, script: &DialogueScript) {
    let headers = [
        ("User-Agent", "codex_cli_rs/0.46.0 (Linux)"),
        ("Originator", "codex_cli_rs"),
        ("Authorization", "Bearer sk-demo"),
    ];
    let mut input =
        vec![json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": script.prompt}]})];
    for (n, step) in script.steps.iter().enumerate() {
        let body = json!({"model": script.model, "stream": true, "instructions": "You are Codex, a coding agent.", "input": input,
            "prompt_cache_key": format!("{session}-codex"), "tools": [{"type": "function", "name": "shell"}, {"type": "function", "name": "update_plan"}]});
        post(world, "api.openai.com", "/v1/responses", &headers, &body).await;
        for (i, ToolCall { tool, arguments, result }) in step.calls.iter().enumerate() {
            let id = call_id(n, i);
            input.push(json!({"type": "function_call", "call_id": id, "name": tool, "arguments": arguments}));
            input.push(json!({"type": "function_call_output", "call_id": id, "output": result}));
        }
    }
}

async fn gemini(world: &DemoEndpoints, script: &DialogueScript) {
    let headers = [("User-Agent", "GeminiCLI/0.61.0/gemini-3.8-flash (linux; x64)"), ("x-goog-api-key", "demo")];
    let picture =
        json!({"inlineData": {"mimeType": "image/png", "data": include_str!("../data/chair.png.base64").trim_end()}});
    let body = json!({"contents": [{"role": "user", "parts": [{"text": script.prompt}, picture]}]});
    let path = format!("/v1beta/models/{}:streamGenerateContent?alt=sse", script.model);
    post(world, "generativelanguage.googleapis.com", &path, &headers, &body).await;
}

/// A client that asks a model once.
async fn ask(world: &DemoEndpoints, host: &str, path: &str, agent: &str, script: &DialogueScript) {
    let body = json!({"model": script.model, "messages": [{"role": "user", "content": script.prompt}]});
    post(world, host, path, &[("User-Agent", agent)], &body).await;
}
