//! Identifies the agent (client program) and its session by header fields, else by the content.

use interflow_types::Headers;
use interflow_types::data_file;
use std::sync::LazyLock;

use interflow_llm::message::ModelRequest;
use interflow_llm::otlp::conversation_id;

/// An agent, and the session that its header fields name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAgent {
    /// Its name: `claude-code`, `codex`, `python-sdk`; empty if unknown.
    pub name: String,
    pub version: String,
    /// The session id, if a header field contains it.
    pub session: Option<String>,
}

/// Prefix of a `User-Agent` product, in lower case, and the agent's name.
static KNOWN_PRODUCTS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/known_products.txt")).map(<(_, _)>::from).collect());

/// Words at the beginning of a system prompt, and the agent.
static AGENT_PROMPTS: LazyLock<Vec<[&str; 2]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/agent_prompts.txt")).collect());
/// Two tools that only one agent has together, and the agent.
static AGENT_TOOLS: LazyLock<Vec<[&str; 3]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/agent_tools.txt")).collect());

pub fn detect_agent(headers: &Headers, request: &ModelRequest) -> ClientAgent {
    let session = conversation_id(headers).map(str::to_owned);
    let (name, version) = agent_from_headers(headers).unwrap_or_default();
    let name = match name {
        "" => agent_from_content(request).unwrap_or_default(),
        // Aider and others send the `User-Agent` of a library.
        library if is_library(library) => agent_from_content(request).unwrap_or(library),
        name => name,
    };
    ClientAgent { name: name.to_owned(), version, session }
}

fn is_library(name: &str) -> bool {
    matches!(name, "litellm" | "openai-python" | "openai-js" | "anthropic-python" | "anthropic-js" | "google-genai")
}

fn agent_from_headers(headers: &Headers) -> Option<(&'static str, String)> {
    let value = |name: &str| headers.get_str(name).unwrap_or_default().to_ascii_lowercase();
    let title = value("x-title");
    let referer = value("http-referer") + &value("referer");
    // Aider and opencode name themselves in the fields that OpenRouter defines for clients.
    let names =
        |name: &&str| title == *name || [".chat", ".ai"].iter().any(|end| referer.contains(&format!("{name}{end}")));
    if let Some(name) = ["aider", "opencode"].into_iter().find(names) {
        return Some((name, String::new()));
    }
    if value("originator").starts_with("codex") {
        return Some(("codex", product_version(&value("user-agent"), "codex")));
    }
    let agent = value("user-agent");
    for &(start, name) in KNOWN_PRODUCTS.iter() {
        if agent.split([' ', '(', ';', ',']).any(|product| product.starts_with(start)) || agent.starts_with(start) {
            return Some((name, product_version(&agent, start)));
        }
    }
    if value("copilot-integration-id").contains("cli") { Some(("copilot-cli", String::new())) } else { None }
}

/// The version of a product: for `claude-cli/2.0.1 (external)`, `2.0.1`.
fn product_version(agent: &str, product: &str) -> String {
    let rest = agent.split_once(product.trim_end_matches('/')).map_or("", |(_, rest)| rest);
    let rest = rest.split_once('/').map_or("", |(_, version)| version);
    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')).take(40).collect()
}

/// Identifies an agent by its system prompt and by tools that only it has.
fn agent_from_content(request: &ModelRequest) -> Option<&'static str> {
    let system = request.system.first().map_or("", String::as_str);
    // Prompts name their agent at the beginning; further on they may name others.
    let head: String = system.chars().take(400).collect();
    let has = |name: &str| request.tools.iter().any(|t| t.name == name);
    let by_prompt = AGENT_PROMPTS.iter().find(|[words, _]| head.contains(words)).map(|[_, agent]| *agent);
    by_prompt.or_else(|| AGENT_TOOLS.iter().find(|[one, other, _]| has(one) && has(other)).map(|[_, _, agent]| *agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_detected_by_headers() {
        for (fields, name, version) in [
            (&[("User-Agent", "claude-cli/2.0.14 (external, cli)")][..], "claude-code", "2.0.14"),
            (&[("Originator", "codex_cli_rs"), ("User-Agent", "codex_cli_rs/0.40.0 (Linux)")], "codex", "0.40.0"),
            (&[("User-Agent", "opencode/0.5.1")], "opencode", "0.5.1"),
            (&[("X-Title", "Aider"), ("User-Agent", "litellm/1.60")], "aider", ""),
            (&[("User-Agent", "GeminiCLI/0.8.0/gemini-2.5-pro (linux; x64)")], "gemini-cli", "0.8.0"),
            (&[("User-Agent", "OpenAI/Python 1.99.0")], "openai-python", "1.99.0"),
            (&[("User-Agent", "AsyncAnthropic/Python 0.60.0")], "anthropic-python", "0.60.0"),
            (&[("User-Agent", "GitHubCopilotChat/0.30")], "copilot", "0.30"),
            (&[("User-Agent", "curl/8.5")], "", ""),
        ] {
            let mut headers = Headers::new();
            fields.iter().for_each(|(n, v)| headers.append(n, v).unwrap());
            let found = detect_agent(&headers, &ModelRequest::default());
            assert_eq!(found.name, name, "{fields:?}");
            if name != "openai-python" && name != "anthropic-python" {
                assert_eq!(found.version, version, "{fields:?}");
            }
        }
    }

    #[test]
    fn agent_takes_precedence_over_the_library_it_uses() {
        let mut headers = Headers::new();
        headers.append("User-Agent", "litellm/1.60").unwrap();
        headers.append("session_id", "s1").unwrap();
        let request =
            ModelRequest { system: vec!["Act as an expert software developer.".into()], ..ModelRequest::default() };
        let found = detect_agent(&headers, &request);
        assert_eq!((found.name.as_str(), found.session.as_deref()), ("aider", Some("s1")));
    }
}
