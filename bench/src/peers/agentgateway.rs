//! agentgateway in front of the fake provider, with TLS: its section `llm` with a provider and a model for each upstream; alone, with
//! its prompt guard as redaction (it masks, and restores nothing) and as guardrails, and with keys.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, guardrail_terms, port, provided};
use crate::testbed::Testbed;
use crate::upstreams::{Api, UPSTREAMS, Upstream};

#[derive(Clone, Copy, PartialEq)]
pub enum Agentgateway {
    Alone,
    /// Personal data in requests is masked.
    Masking,
    /// Words and expressions are blocked in requests and answers.
    Blocking,
    /// Requests need a known key, and are limited per second. It has no budgets and records nothing.
    Keys,
}

impl Peer for Agentgateway {
    fn name(&self) -> &'static str {
        match self {
            Self::Alone => "agentgateway",
            Self::Masking => "agentgateway+mask",
            Self::Blocking => "agentgateway+guardrails",
            Self::Keys => "agentgateway+keys",
        }
    }

    fn gives_pages(&self) -> bool {
        false
    }

    fn install(&self) -> Result<String> {
        Ok(provided("agentgateway")?.1)
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let config = testbed.path(&format!("{}.yaml", self.name()));
        let providers: Vec<Value> = UPSTREAMS.iter().map(|upstream| provider(testbed, upstream)).collect();
        let models =
            UPSTREAMS.map(|upstream| json!({ "name": upstream.name, "provider": { "reference": upstream.name } }));
        let tls = json!({ "cert": testbed.path("leaf.pem"), "key": testbed.path("leaf.key") });
        // JSON is YAML. Like the others it logs errors only, and nothing asks for its administration, figures or readiness.
        let text = json!({
            "config": {
                "adminAddr": "off", "statsAddr": "off", "readinessAddr": "off",
                "enableIpv6": false, "logging": { "level": "error" },
            },
            "gateways": { "default": { "port": addr.port(), "tls": tls } },
            "llm": { "providers": providers, "models": models, "policies": self.policies() },
        });
        fs::write(&config, text.to_string())?;
        let mut command = Command::new(provided("agentgateway")?.0);
        command.arg("--file").arg(&config).current_dir(testbed.path("."));
        Arm::reverse(testbed, self, addr, command, (None, Some(Via::Reverse(addr))))
    }
}

impl Agentgateway {
    fn policies(self) -> Value {
        let regex = |action: &str, rules: Vec<Value>| json!([{ "regex": { "action": action, "rules": rules } }]);
        match self {
            Self::Alone => json!({}),
            Self::Keys => json!({
                "apiKey": { "keys": [{ "key": "sk-fake" }], "mode": "strict" },
                "localRateLimit": [{ "maxTokens": 1_000_000, "tokensPerFill": 1_000_000, "fillInterval": "1s" }],
            }),
            Self::Masking => {
                let known = ["ssn", "email", "phoneNumber", "creditCard"].map(|name| json!({ "builtin": name }));
                let own = [IBAN, IPV4].map(|pattern| json!({ "pattern": pattern }));
                json!({ "guardrails": { "request": regex("mask", [&known[..], &own].concat()) } })
            }
            Self::Blocking => {
                let words = guardrail_terms::WORDS.iter().map(|word| format!("(?i){word}"));
                let patterns = guardrail_terms::PATTERNS.iter().map(|(_, pattern)| (*pattern).to_owned());
                let rules = regex("reject", words.chain(patterns).map(|p| json!({ "pattern": p })).collect());
                json!({ "guardrails": { "streaming": "Enabled", "request": rules, "response": rules } })
            }
        }
    }
}

/// What LiteLLM's filter looks for besides, and agentgateway has no name for.
const IBAN: &str = r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b";
const IPV4: &str = r"\b(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\b";

/// The provider's certificate is of the testbed's authority, which LiteLLM does not check either.
fn provider(testbed: &Testbed, upstream: &Upstream) -> Value {
    let kind = match upstream.api {
        Api::Chat => "openAI",
        Api::Messages => "anthropic",
    };
    json!({
        "name": upstream.name,
        "provider": kind,
        "params": { "baseUrl": format!("{}/v1", upstream.url(testbed)), "apiKey": "sk-fake" },
        "defaults": { "tls": { "insecure": true } },
    })
}
