//! Interflow itself: intercepting without and with recording, with rules, redaction or users, with a protocol pinned, only
//! tunnelling, and as a gateway.

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::load::spec::Via;
use crate::peers::{Arm, Peer, guardrail_terms, port, version_line};
use crate::testbed::{Testbed, beside_us};
use crate::upstreams::{Api, UPSTREAMS};
use crate::{Result, rule_set};

#[derive(Clone, Copy, PartialEq)]
pub enum Interflow {
    Straight,
    Recording,
    Rules,
    Redaction,
    Users,
    Http1,
    Tunnelling,
    Media,
    Gateway,
    Redacting,
    Scanning,
    /// Redacting, and no text was seen before.
    RedactingAnew,
    Guarding,
    /// Guarding, and the heuristics for prompt injection and jailbreaks.
    Heuristics,
    Caching,
    /// A virtual key with limits and a budget, and recording.
    Keys,
    /// A virtual key with limits and a budget, guardrails, redaction and recording at once.
    Everything,
    /// The same, and a proxy that intercepts, with rules and redaction of requests and responses.
    ProxyAndGateway,
}

/// The virtual key of an arm that requires one, written when it starts.
pub fn virtual_key(testbed: &Testbed, arm: &str) -> Option<String> {
    fs::read_to_string(key_file(testbed, arm)).ok()
}

fn key_file(testbed: &Testbed, arm: &str) -> PathBuf {
    testbed.path(&format!("{arm}.virtual-key"))
}

/// How many flows a recording arm's store holds, once the arm has stopped.
pub fn recorded_flows(testbed: &Testbed, arm: &str) -> Result<u64> {
    let mut list = Command::new(beside_us("interflow")?);
    list.args(["flows", "list", "--format", "jsonl", "--all"]).stdout(Stdio::piped());
    list.env("INTERFLOW_DATA_DIR", testbed.path(arm));
    let mut child = list.spawn()?;
    let out = child.stdout.take().ok_or("no standard output")?;
    let lines = BufReader::new(out).split(b'\n').count() as u64;
    let status = child.wait()?;
    if status.success() { Ok(lines) } else { Err(format!("interflow flows list: {status}").into()) }
}

/// The user whom [`Interflow::Users`] knows, and the password.
pub const LOGIN: (&str, &str) = ("bench", "bench");

/// bcrypt, cost 10, of the password.
const USERS: &str = "bench:$2b$10$yK1edSvG/0cW7PleV5qQduktJQ0oYuL8kp1b.a5J4VZyqqKjYaOia\n";

impl Interflow {
    /// What the proxy port of this variant is configured with, besides the command line.
    fn proxy_config(self, testbed: &Testbed) -> Result<Option<String>> {
        let beside = |name: &str, text: &str| {
            let path = testbed.path(name);
            fs::write(&path, text).map(|()| path)
        };
        Ok(match self {
            Self::Rules | Self::ProxyAndGateway => {
                Some(format!("[rules]\nfiles = [{:?}]\n", beside("20.toml", rule_set::TWENTY)?))
            }
            Self::Redaction => Some("[redact]\nproxied = \"redact\"\nresponses = \"redact\"\n".into()),
            Self::Users => Some(format!("[auth]\nusers = {:?}\n", beside("users", USERS)?)),
            Self::Http1 => Some("[upstream]\nhttp1_hosts = [\"*\"]\n".into()),
            _ => None,
        })
    }

    /// Whether it is a gateway to LLM providers.
    fn serves_providers(self) -> bool {
        matches!(
            self,
            Self::Gateway
                | Self::Redacting
                | Self::Scanning
                | Self::RedactingAnew
                | Self::Guarding
                | Self::Heuristics
                | Self::Caching
                | Self::Keys
                | Self::Everything
                | Self::ProxyAndGateway
        )
    }

    fn requires_virtual_key(self) -> bool {
        matches!(self, Self::Keys | Self::Everything | Self::ProxyAndGateway)
    }

    fn gateway_config(self, testbed: &Testbed) -> String {
        if self == Self::Media {
            return "[media]\nallow_private = [\"127.0.0.0/8\", \"::1/128\"]\n".into();
        }
        let redact = match self {
            Self::Redacting | Self::Everything => "",
            Self::ProxyAndGateway => "proxied = \"redact\"\nresponses = \"redact\"\n",
            Self::RedactingAnew => "finding_cache_size = 1\n",
            Self::Scanning => "responses = \"redact\"\n",
            _ => "gateway = \"off\"\n",
        };
        let (certificate, key) = (testbed.path("leaf.pem"), testbed.path("leaf.key"));
        let target = format!("https://localhost:{}", testbed.llm().port());
        let mut config = format!(
            "[redact]\n{redact}[gateway.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n\
             [llm.provider.openai]\nurl = \"{target}\"\n[llm.provider.anthropic]\nurl = \"{target}\"\n"
        );
        for upstream in &UPSTREAMS {
            let kind = match upstream.api {
                Api::Chat => "kind = \"openai\"\nformat = \"openai_chat\"",
                Api::Messages => "kind = \"anthropic\"",
            };
            let (name, url) = (upstream.name, upstream.url(testbed));
            let key = if self.requires_virtual_key() { "api_key = \"sk-fake\"\n" } else { "" };
            let _ = writeln!(config, "[llm.provider.{name}]\n{kind}\n{key}url = \"{url}\"");
        }
        let deployments =
            "[{ provider = \"broken\", model = \"chat\" }, { provider = \"chat\", model = \"chat\", priority = 1 }]";
        let _ = writeln!(config, "[llm.route.failover]\ndeployments = {deployments}");
        if self == Self::ProxyAndGateway {
            // More than a long run records, so that all flows of it can be counted.
            config.push_str("[record]\nretention_bytes = \"40GiB\"\n");
        }
        config + &self.llm_features()
    }

    /// Makes a virtual key whose limits the load does not reach.
    fn write_virtual_key(self, testbed: &Testbed) -> Result<()> {
        let mut add = Command::new(beside_us("interflow")?);
        add.args(["keys", "add", "--id", "bench", "--requests", "1000000/s", "--money-per-day", "1000000"]);
        let out = add.env("INTERFLOW_DATA_DIR", testbed.path(self.name())).output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let key = text.lines().rev().find(|line| line.starts_with("ifk_"));
        let key = key.ok_or_else(|| format!("interflow keys add: {text}{}", String::from_utf8_lossy(&out.stderr)))?;
        Ok(fs::write(key_file(testbed, self.name()), key)?)
    }

    fn llm_features(self) -> String {
        let mut config = String::new();
        if self.requires_virtual_key() {
            config.push_str("[keys]\nrequire_virtual_key = true\n[quota]\nunpriced = \"allow\"\n");
        }
        if matches!(self, Self::Guarding | Self::Heuristics | Self::Everything | Self::ProxyAndGateway) {
            let both = "apply_to = \"both\"\naction = \"block\"";
            let patterns = guardrail_terms::PATTERNS.map(|(_, pattern)| pattern);
            let _ = writeln!(
                config,
                "[llm.guardrail.words]\nkind = \"words\"\n{both}\nwords = {:?}\n\
                 [llm.guardrail.patterns]\nkind = \"regex\"\n{both}\npatterns = {patterns:?}",
                guardrail_terms::WORDS
            );
        }
        if self == Self::Heuristics {
            for kind in ["prompt_injection", "jailbreak"] {
                let _ = writeln!(config, "[llm.guardrail.{kind}]\nkind = \"{kind}\"\naction = \"block\"");
            }
        }
        if self == Self::Caching {
            config.push_str("[llm.cache]\nstore = \"memory\"\n");
        }
        config
    }
}

impl Peer for Interflow {
    fn name(&self) -> &'static str {
        match self {
            Self::Straight => "interflow",
            Self::Recording => "interflow+record",
            Self::Rules => "interflow+rules",
            Self::Redaction => "interflow+redact",
            Self::Users => "interflow+users",
            Self::Http1 => "interflow-h1",
            Self::Tunnelling => "interflow-tunnel",
            Self::Media => "interflow-media",
            Self::Gateway => "gateway",
            Self::Redacting => "gateway+redact",
            Self::Scanning => "gateway+outbound",
            Self::RedactingAnew => "gateway+redact-new",
            Self::Guarding => "gateway+guardrails",
            Self::Heuristics => "gateway+heuristics",
            Self::Caching => "gateway+cache",
            Self::Keys => "gateway+keys",
            Self::Everything => "gateway+all",
            Self::ProxyAndGateway => "interflow+all",
        }
    }

    fn gives_pages(&self) -> bool {
        !self.serves_providers() && *self != Self::Media
    }

    fn install(&self) -> Result<String> {
        version_line(beside_us("interflow")?, &["--version"])
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let (addr, gateway) = (port()?, port()?);
        let mut command = Command::new(beside_us("interflow")?);
        command.args(["run", "--danger-insecure-upstream"]);
        for (listener, addr) in [("--listen-proxy", addr), ("--listen-gateway", gateway), ("--listen-admin", port()?)] {
            command.arg(listener).arg(addr.to_string());
        }
        match self {
            Self::Straight => command.arg("--no-record"),
            Self::Recording => &mut command,
            Self::Tunnelling => command.args(["--no-record", "--no-intercept"]),
            _ => {
                let config = testbed.path(&format!("{}.toml", self.name()));
                let mut text = self.proxy_config(testbed)?.unwrap_or_default();
                if self.serves_providers() || *self == Self::Media {
                    text += &self.gateway_config(testbed);
                }
                fs::write(&config, text)?;
                if self.requires_virtual_key() {
                    self.write_virtual_key(testbed)?;
                } else {
                    command.arg("--no-record");
                }
                command.arg("--config").arg(config)
            }
        };
        command.env("INTERFLOW_DATA_DIR", testbed.path(self.name()));
        let mut arm = Arm::forward(testbed, self, addr, command)?;
        if *self == Self::Media {
            (arm.plain, arm.tls, arm.anywhere) = (Some(Via::Reverse(gateway)), None, false);
        } else if *self == Self::ProxyAndGateway {
            arm.gateway = Some(Via::Reverse(gateway));
        } else if self.serves_providers() {
            (arm.plain, arm.tls, arm.anywhere) = (None, Some(Via::Reverse(gateway)), false);
        }
        Ok(arm)
    }
}
