//! LiteLLM's proxy in front of the fake provider, with one worker per core and TLS; alone, and with its Presidio guardrail.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, pip, port, presidio, run_quietly};
use crate::testbed::{Role, Testbed};

#[derive(Clone, Copy, PartialEq)]
pub enum Litellm {
    Alone,
    /// Every request is redacted by a Presidio service, whose processes count as LiteLLM's.
    Presidio,
}

/// 1.82.7 and 1.82.8 were published by somebody else and steal keys.
const PACKAGE: &str = "litellm[proxy]!=1.82.7,!=1.82.8";

impl Peer for Litellm {
    fn name(&self) -> &'static str {
        match self {
            Self::Alone => "litellm",
            Self::Presidio => "litellm+presidio",
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
        let model = |name: &str, provider: &str, path: &str| {
            format!(
                "  - model_name: {name}\n    litellm_params:\n      model: {provider}/{name}\n      \
                 api_base: https://localhost:{port}{path}\n      api_key: sk-fake\n"
            )
        };
        let text = format!(
            "model_list:\n{}{}litellm_settings:\n  ssl_verify: false\n  telemetry: false\n",
            model("fake-openai", "openai", "/v1"),
            model("fake-anthropic", "anthropic", "")
        );
        fs::write(&config, text + self.guardrail())?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = self.command()?;
        command.arg("--config").arg(&config).args(["--host", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.args(["--num_workers", &cores.to_string()]);
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
        let running = testbed.start(self.name(), command, addr, Role::Proxy)?;
        Ok(Arm {
            name: self.name().into(),
            version: String::new(),
            plain: None,
            tls: Some(Via::Reverse(addr)),
            anywhere: false,
            running: Some(running),
        })
    }
}

impl Litellm {
    fn guardrail(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Presidio => {
                "guardrails:\n  - guardrail_name: presidio\n    litellm_params:\n      guardrail: presidio\n      \
                 mode: pre_call\n      default_on: true\n      output_parse_pii: true\n"
            }
        }
    }

    /// LiteLLM, and beside it what it asks.
    fn command(self) -> Result<Command> {
        let program = pip("litellm", &[PACKAGE], "litellm")?;
        if self == Self::Alone {
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
