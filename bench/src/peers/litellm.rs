//! LiteLLM's proxy in front of the fake provider, with one worker per core and TLS; alone, with its Presidio guardrail, with its
//! content filter (as redaction, and as a guardrail), and with its cache.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, guardrail_terms, pip, port, presidio, run_quietly};
use crate::process::cores;
use crate::testbed::Testbed;
use crate::upstreams::{Api, UPSTREAMS};

#[derive(Clone, Copy, PartialEq)]
pub enum Litellm {
    Alone,
    /// Every request is redacted by a Presidio service, whose processes count as LiteLLM's.
    Presidio,
    /// The content filter masks personal data; it restores nothing.
    Masking,
    /// The content filter blocks words and expressions.
    Blocking,
    /// Responses are cached in the memory of each worker.
    Caching,
}

/// The newest whose companions can be resolved: those of later versions are not published.
const PACKAGE: &str = "litellm[proxy]==1.108.5";

impl Peer for Litellm {
    fn name(&self) -> &'static str {
        match self {
            Self::Alone => "litellm",
            Self::Presidio => "litellm+presidio",
            Self::Masking => "litellm+mask",
            Self::Blocking => "litellm+guardrails",
            Self::Caching => "litellm+cache",
        }
    }

    fn gives_pages(&self) -> bool {
        false
    }

    fn install(&self) -> Result<String> {
        let python = pip("litellm", &[PACKAGE], "python")?;
        let mut version = Command::new(python);
        version.args(["-c", "import importlib.metadata as m; print('litellm', m.version('litellm'))"]);
        Ok(run_quietly(version)?.trim().to_owned())
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let config = testbed.path(&format!("{}.yaml", self.name()));
        let port = testbed.llm().port();
        let model = |name: &str, provider: &str, url: &str| {
            format!(
                "  - model_name: {name}\n    litellm_params:\n      model: {provider}/{name}\n      \
                 api_base: {url}\n      api_key: sk-fake\n"
            )
        };
        let url = format!("https://localhost:{port}");
        let mut text = String::from("model_list:\n");
        text += &model("fake-openai", "openai", &format!("{url}/v1"));
        text += &model("fake-anthropic", "anthropic", &url);
        // Its first deployment fails; what stands in for it is said below.
        let broken = UPSTREAMS.iter().find(|u| u.name == "broken").ok_or("no broken upstream")?;
        text += &model("failover", "openai", &format!("{}/v1", broken.url(testbed)));
        for upstream in &UPSTREAMS {
            let url = upstream.url(testbed);
            text += &match upstream.api {
                Api::Chat => model(upstream.name, "openai", &format!("{url}/v1")),
                Api::Messages => model(upstream.name, "anthropic", &url),
            };
        }
        text += "router_settings:\n  num_retries: 0\n  fallbacks: [{\"failover\": [\"chat\"]}]\n";
        fs::write(&config, text + &self.settings())?;
        let mut command = self.command()?;
        command.arg("--config").arg(&config).args(["--host", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.args(["--num_workers", &cores().to_string()]);
        command
            .arg("--ssl_certfile_path")
            .arg(testbed.path("leaf.pem"))
            .arg("--ssl_keyfile_path")
            .arg(testbed.path("leaf.key"));
        command
            .env("LITELLM_MASTER_KEY", "sk-fake")
            .env("LITELLM_LOG", "ERROR")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .current_dir(testbed.path("."));
        Arm::reverse(testbed, self, addr, command, (None, Some(Via::Reverse(addr))))
    }
}

impl Litellm {
    fn settings(self) -> String {
        // Clients of Messages reach models of OpenAI through Chat Completions, as they do through Interflow here.
        let mut text = String::from(
            "litellm_settings:\n  ssl_verify: false\n  telemetry: false\n  \
             use_chat_completions_url_for_anthropic_messages: true\n",
        );
        let filter = "guardrails:\n  - guardrail_name: filter\n    litellm_params:\n      \
                      guardrail: litellm_content_filter\n      default_on: true\n";
        match self {
            Self::Alone => {}
            Self::Caching => text += "  cache: true\n  cache_params:\n    type: local\n",
            Self::Presidio => {
                text += "guardrails:\n  - guardrail_name: presidio\n    litellm_params:\n      guardrail: presidio\n      \
                         mode: pre_call\n      default_on: true\n      output_parse_pii: true\n";
            }
            Self::Masking => {
                let _ = write!(text, "{filter}      mode: pre_call\n      patterns:\n");
                for name in ["us_ssn", "email", "us_phone", "visa", "mastercard", "iban", "ipv4"] {
                    let _ = writeln!(
                        text,
                        "        - pattern_type: prebuilt\n          pattern_name: {name}\n          action: MASK"
                    );
                }
            }
            Self::Blocking => {
                let _ = write!(text, "{filter}      mode: [pre_call, post_call]\n      blocked_words:\n");
                for word in guardrail_terms::WORDS {
                    let _ = writeln!(text, "        - keyword: {word:?}\n          action: BLOCK");
                }
                text += "      patterns:\n";
                for (name, pattern) in guardrail_terms::PATTERNS {
                    let _ = writeln!(
                        text,
                        "        - pattern_type: regex\n          name: {name:?}\n          pattern: {pattern:?}\n          action: BLOCK"
                    );
                }
            }
        }
        text
    }

    /// LiteLLM, and beside it what it asks.
    fn command(self) -> Result<Command> {
        let program = pip("litellm", &[PACKAGE], "litellm")?;
        if self != Self::Presidio {
            return Ok(Command::new(program));
        }
        let addr = port()?;
        let service = presidio::service(addr)?;
        let mut both = Command::new("bash");
        both.args(["-c", "n=$1; shift; \"${@:1:$n}\" & shift \"$n\"; exec \"$@\"", "bash"]);
        both.arg((service.get_args().count() + 1).to_string()).arg(service.get_program()).args(service.get_args());
        both.arg(program);
        let base = format!("http://{addr}");
        both.env("PRESIDIO_ANALYZER_API_BASE", &base).env("PRESIDIO_ANONYMIZER_API_BASE", &base);
        Ok(both)
    }
}
