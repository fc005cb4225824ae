//! Upstreams of the LLM gateways: the fake provider with a fixed behaviour each, since gateways do not forward a client's settings.

use crate::testbed::Testbed;

/// An API of the fake provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's Chat Completions.
    Chat,
    /// Anthropic's Messages.
    Messages,
}

impl Api {
    /// Its path at the provider and at every gateway.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
        }
    }
}

/// The fake provider with one API and one behaviour.
#[derive(Clone, Copy, Debug)]
pub struct Upstream {
    /// Its name: of Interflow's provider, and of LiteLLM's model.
    pub name: &'static str,
    /// What it speaks.
    pub api: Api,
    settings: &'static str,
}

/// Events of text in a stream.
pub const EVENTS: usize = 20;
/// Repeats the question.
const ECHO: &str = "echo=1&chunks=20";
/// Streams of ten seconds, whose events hold the time at which they were sent.
const SLOW: &str = "stamp=1&size=2000&chunks=20&gap=500";

/// Calls the first tool that is offered, and repeats the question once it has the call's result.
const TOOLS: &str = "echo=1&chunks=20&tool=*";

/// Every upstream.
pub const UPSTREAMS: [Upstream; 7] = [
    Upstream { name: "chat", api: Api::Chat, settings: ECHO },
    Upstream { name: "messages", api: Api::Messages, settings: ECHO },
    Upstream { name: "slow-chat", api: Api::Chat, settings: SLOW },
    Upstream { name: "slow-messages", api: Api::Messages, settings: SLOW },
    Upstream { name: "chat-tools", api: Api::Chat, settings: TOOLS },
    Upstream { name: "messages-tools", api: Api::Messages, settings: TOOLS },
    Upstream { name: "broken", api: Api::Chat, settings: "status=503" },
];

impl Upstream {
    /// What its paths begin with at the provider.
    pub fn prefix(&self) -> String {
        format!("/~{}", self.settings)
    }

    /// Its base URL, without `/v1`.
    pub fn url(&self, testbed: &Testbed) -> String {
        format!("https://localhost:{}{}", testbed.llm().port(), self.prefix())
    }
}
