//! Converts the `config.yaml` of LiteLLM's proxy, with notes on settings that have no counterpart.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value as Yaml;
use toml::{Table, Value};

use crate::draft::{ConfigDraft, ImportedConfig, insert_some, non_empty, scalar_text};

/// Names of LiteLLM's providers and settings, and what Interflow has in their place.
static NAMES: LazyLock<Yaml> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/litellm.json")).expect("the names of LiteLLM's settings are valid JSON")
});

/// A reference to a variable of the environment.
const VARIABLE: &str = "os.environ/";

/// Translates a configuration file of LiteLLM's proxy. Secrets are not copied: the result names variables for them.
///
/// # Errors
/// The input is not valid YAML, or it has no models and no MCP servers.
pub fn import(yaml: &str) -> Result<ImportedConfig, String> {
    let root: Yaml = interflow_codec::document::from_yaml(yaml).map_err(|e| format!("invalid YAML: {e}"))?;
    if !root["model_list"].is_array() && !root["mcp_servers"].is_object() {
        return Err("neither a list model_list nor a map mcp_servers: is it a config.yaml of LiteLLM's proxy?".into());
    }
    let mut importer = LitellmImporter::default();
    importer.draft.set("gateway", "listen", vec!["127.0.0.1:4000"]);
    importer.draft.note("gateway.listen: clients on this machine only; LiteLLM's proxy listens on all addresses");
    for (i, entry) in items(&root["model_list"]).enumerate() {
        importer.model(entry, &format!("model_list[{i}]"));
    }
    importer.routing(&root);
    importer.limits(&root);
    importer.mcp_servers(&root["mcp_servers"]);
    importer.note_unread(&root, "config", "");
    for section in ["litellm_settings", "router_settings", "general_settings"] {
        importer.note_unread(&root[section], section, &format!("{section}."));
    }
    let keys = importer.master_key(&root["general_settings"]["master_key"]);
    importer.draft.finish(keys)
}

#[derive(Default)]
struct LitellmImporter {
    draft: ConfigDraft,
    /// Upstreams by name.
    upstreams: BTreeMap<String, Table>,
    /// Deployments by the model name of the clients.
    routes: BTreeMap<String, Vec<Table>>,
    /// `rpm`, `tpm` and `max_parallel_requests` by the model name of the clients: sums over its deployments.
    limits: BTreeMap<String, [i64; 3]>,
    /// Secrets in the file, by the variable that each goes to.
    secrets: BTreeMap<String, String>,
}

fn items(list: &Yaml) -> impl Iterator<Item = &Yaml> {
    list.as_array().into_iter().flatten()
}

fn members(object: &Yaml) -> impl Iterator<Item = (&String, &Yaml)> {
    object.as_object().into_iter().flatten()
}

/// The value of the first section that has this setting.
fn setting<'y>(root: &'y Yaml, sections: &[&str], key: &str) -> &'y Yaml {
    sections.iter().map(|s| &root[s][key]).find(|v| !v.is_null()).unwrap_or(&Yaml::Null)
}

/// The largest amount of a setting: most of Interflow's have 32 bits.
const MAX_AMOUNT: f64 = u32::MAX as f64;

impl LitellmImporter {
    /// A text that may be a reference to the environment, which is read now.
    fn text(&mut self, value: &Yaml, at: &str) -> Option<String> {
        let text = value.as_str()?;
        let Some(name) = text.strip_prefix(VARIABLE) else { return Some(text.to_owned()) };
        let value = std::env::var(name).ok();
        if value.is_none() {
            self.draft.note(format!("{at}: the environment variable {name} is not set; set it and import again"));
        }
        value
    }

    /// A positive number, which may be written as a text. Another value is reported.
    fn amount(&mut self, value: &Yaml, at: &str) -> Option<f64> {
        if value.is_null() {
            return None;
        }
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        let amount = number.filter(|n| *n > 0.0 && *n <= MAX_AMOUNT);
        if amount.is_none() && number != Some(0.0) {
            self.draft.note(format!("{at}: `{value}` is not a positive number up to {MAX_AMOUNT}; left out"));
        }
        amount
    }

    fn count(&mut self, value: &Yaml, at: &str) -> Option<i64> {
        let amount = self.amount(value, at)?;
        if amount.fract() != 0.0 {
            self.draft.note(format!("{at}: `{value}` is not a whole number; left out"));
        }
        (amount.fract() == 0.0).then_some(amount as i64)
    }

    fn seconds(&mut self, value: &Yaml, at: &str) -> Option<String> {
        self.amount(value, at).map(|seconds| format!("{}ms", (seconds * 1000.0).round()))
    }

    /// A reference to a secret. One in the file is not copied: it goes to a variable of its own, because the same variable
    /// for two secrets would send one of them to the other's provider.
    fn secret(&mut self, value: &Yaml, variable: &str, at: &str) -> Option<String> {
        let text = scalar_text(value)?;
        if let Some(name) = text.strip_prefix(VARIABLE) {
            return Some(format!("env:{name}"));
        }
        if at.ends_with("vertex_credentials") && !text.trim_start().starts_with('{') {
            return Some(format!("file:{text}"));
        }
        let numbered =
            (1..).map(|n| if n == 1 { format!("LITELLM_{variable}") } else { format!("LITELLM_{variable}_{n}") });
        let variable = numbered.into_iter().find(|name| self.secrets.get(name).is_none_or(|secret| *secret == text))?;
        self.secrets.insert(variable.clone(), text);
        self.draft.note(format!("{at}: the secret is not copied; put it in the environment variable {variable}"));
        Some(format!("env:{variable}"))
    }

    /// A URL without the secrets that it may contain.
    fn url(&mut self, value: &Yaml, at: &str) -> Option<String> {
        let text = self.text(value, at)?;
        let plain = text.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = plain.split_once("://").unwrap_or(("https", plain));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        if plain.len() < text.len() || host.len() < authority.len() {
            self.draft.note(format!("{at}: name, password and query of the URL are not copied"));
        }
        Some(format!("{scheme}://{host}{path}").trim_end_matches('/').to_owned())
    }

    fn model(&mut self, entry: &Yaml, at: &str) {
        let params = &entry["litellm_params"];
        let (Some(name), Some(model)) = (entry["model_name"].as_str(), params["model"].as_str()) else {
            return self.draft.note(format!("{at}: model_name or litellm_params.model is missing; left out"));
        };
        let known = |prefix: &str| NAMES["providers"].get(prefix).map(|_| prefix.to_owned());
        let maker = || items(&NAMES["makers"]).find(|m| m[0].as_str().is_some_and(|start| model.starts_with(start)));
        let (prefix, rest) = match model.split_once('/').and_then(|(prefix, rest)| Some((known(prefix)?, rest))) {
            Some(both) => both,
            None => match maker().and_then(|m| m[1].as_str()) {
                Some(prefix) => (prefix.to_owned(), model),
                None => return self.draft.note(format!("{at}: the provider of `{model}` is not supported; left out")),
            },
        };
        let model = ["converse/", "invoke/", "responses/"].iter().fold(rest, |m, p| m.strip_prefix(p).unwrap_or(m));
        let Some(upstream) = self.upstream(&prefix, params, at) else { return };
        let mut deployment = Table::from_iter([("provider".to_owned(), Value::from(upstream))]);
        if model != "*" && model != name {
            deployment.insert("model".into(), model.into());
        }
        for (theirs, key) in [("weight", "weight"), ("order", "priority")] {
            let n = self.count(&params[theirs], &format!("{at}.litellm_params.{theirs}"));
            insert_some(&mut deployment, key, n);
        }
        for (theirs, key) in [("timeout", "attempt_timeout"), ("stream_timeout", "first_token_timeout")] {
            let time = self.seconds(&params[theirs], &format!("{at}.litellm_params.{theirs}"));
            insert_some(&mut deployment, key, time);
        }
        let route = self.routes.entry(name.to_owned()).or_default();
        let same = |d: &Table| ["provider", "model"].iter().all(|key| d.get(*key) == deployment.get(*key));
        match route.iter().any(same) {
            true => self.draft.note(format!("{at}: the same model of the same account is listed before; left out")),
            false => route.push(deployment),
        }
        for (i, limit) in ["rpm", "tpm", "max_parallel_requests"].iter().enumerate() {
            let theirs = if params[*limit].is_null() { &entry[*limit] } else { &params[*limit] };
            let amount = self.count(theirs, &format!("{at}.{limit}")).unwrap_or(0);
            self.limits.entry(name.to_owned()).or_default()[i] += amount;
        }
        self.note_unread(entry, "model_list", &format!("{at}."));
        for section in ["litellm_params", "model_info"] {
            self.note_unread(&entry[section], section, &format!("{at}.{section}."));
        }
    }

    /// Notes the settings of a section that are not read, so that none is missed silently.
    fn note_unread(&mut self, settings: &Yaml, section: &str, at: &str) {
        let is_read = |key: &str| items(&NAMES["settings"][section]).any(|known| known == key);
        for (key, _) in members(settings).filter(|(key, _)| !is_read(key)) {
            let instead = NAMES["instead"][format!("{section}.{key}")].as_str().unwrap_or("it has no counterpart");
            self.draft.note(match key.contains("cost_per") {
                true => format!("{at}{key}: write it in the file of quota.prices"),
                false => format!("{at}{key}: left out; {instead}"),
            });
        }
    }

    /// The upstream with these settings: the one of an earlier model, or a new one.
    fn upstream(&mut self, prefix: &str, params: &Yaml, at: &str) -> Option<String> {
        let (ours, usual_key) = (NAMES["providers"][prefix][0].as_str()?, NAMES["providers"][prefix][1].as_str());
        let is_listed = usual_key.is_some() || ["vertex", "bedrock", "ollama"].contains(&ours);
        let mut settings = Table::new();
        let base = if params["api_base"].is_null() { &params["base_url"] } else { &params["api_base"] };
        if let Some(url) = self.url(base, &format!("{at}.litellm_params.api_base")) {
            settings.insert("url".into(), url.strip_suffix("/v1").unwrap_or(&url).into());
        } else if !is_listed || ours == "azure" {
            self.draft.note(format!("{at}: `{prefix}` needs api_base; left out"));
            return None;
        }
        for (theirs, key) in members(&NAMES["upstream"]).filter_map(|(theirs, key)| Some((theirs, key.as_str()?))) {
            let value = self.text(&params[theirs], &format!("{at}.litellm_params.{theirs}"));
            insert_some(&mut settings, key, value);
        }
        for (theirs, key) in members(&NAMES["secrets"]).filter_map(|(theirs, key)| Some((theirs, key.as_str()?))) {
            let variable = format!("{}_{}", ours.replace('-', "_"), key).to_ascii_uppercase();
            let place = format!("{at}.litellm_params.{theirs}");
            insert_some(&mut settings, key, self.secret(&params[theirs], &variable, &place));
        }
        let has_secret =
            members(&NAMES["secrets"]).any(|(_, key)| key.as_str().is_some_and(|k| settings.contains_key(k)));
        if !has_secret {
            match (ours, usual_key) {
                ("bedrock" | "vertex", _) => _ = settings.insert("credentials".into(), "ambient".into()),
                // LiteLLM's proxy takes it from the same variable.
                (_, Some(name)) if base.is_null() => {
                    _ = settings.insert("api_key".into(), format!("env:{name}").into())
                }
                _ => {}
            }
        }
        (1..).map(|n| if n == 1 { ours.to_owned() } else { format!("{ours}-{n}") }).find(|name| {
            let mut same = settings.clone();
            if name != ours || !is_listed {
                same.insert("kind".into(), (if is_listed { ours } else { "openai" }).into());
            }
            *self.upstreams.entry(name.clone()).or_insert_with(|| same.clone()) == same
        })
    }

    fn routing(&mut self, root: &Yaml) {
        const SECTIONS: [&str; 2] = ["router_settings", "litellm_settings"];
        let mut settings = Table::new();
        for (theirs, key) in [("num_retries", "retries"), ("allowed_fails", "cooldown_failures")] {
            let value = setting(root, &SECTIONS, theirs);
            let n = if value == 0 { Some(0) } else { self.count(value, theirs) };
            insert_some(&mut settings, key, n);
        }
        let mut time = |key: &str| self.seconds(setting(root, &SECTIONS, key), key);
        let timeout = time("timeout").or_else(|| time("request_timeout"));
        let (stream_timeout, cooldown) = (time("stream_timeout"), time("cooldown_time"));
        for (key, time) in [("timeout", timeout), ("first_token_timeout", stream_timeout), ("cooldown", cooldown)] {
            insert_some(&mut settings, key, time);
        }
        if let Some(theirs) = root["router_settings"]["routing_strategy"].as_str() {
            match NAMES["strategies"][theirs].as_str() {
                Some(ours) => _ = settings.insert("strategy".into(), ours.into()),
                None => self.draft.note(format!("router_settings.routing_strategy: `{theirs}` has no counterpart")),
            }
        }
        let mut aliases = Table::new();
        for (name, target) in members(&root["router_settings"]["model_group_alias"]) {
            insert_some(&mut aliases, name, target.as_str().or_else(|| target["model"].as_str()));
        }
        self.draft.set_some("llm", "aliases", non_empty(aliases));
        let own = self.routes.clone();
        for section in SECTIONS {
            for (model, others) in items(&root[section]["fallbacks"]).flat_map(members) {
                self.fall_back(model, others, &own, section);
            }
            let general = &root[section]["default_fallbacks"];
            for model in own.keys().filter(|_| !general.is_null()) {
                self.fall_back(model, general, &own, section);
            }
        }
        let mut routes = Table::new();
        for (model, deployments) in std::mem::take(&mut self.routes) {
            let mut route = settings.clone();
            route.insert("deployments".into(), deployments.into());
            routes.insert(model, route.into());
        }
        self.draft.set_some("llm", "route", non_empty(routes));
        let upstreams = std::mem::take(&mut self.upstreams).into_iter().map(|(name, own)| (name, Value::Table(own)));
        self.draft.set_some("llm", "provider", non_empty(upstreams.collect::<Table>()));
    }

    /// The deployments of other models follow those of this one, each model with the next priority.
    fn fall_back(&mut self, model: &str, others: &Yaml, own: &BTreeMap<String, Vec<Table>>, section: &str) {
        for other in items(others).filter_map(Yaml::as_str) {
            let (Some(deployments), Some(route)) =
                (own.get(other).filter(|_| other != model), self.routes.get_mut(model))
            else {
                self.draft.note(format!(
                    "{section}.fallbacks: `{model}` to `{other}`: they are the same, or one has no deployment; left out"
                ));
                continue;
            };
            let priority = |d: &Table| d.get("priority").and_then(Value::as_integer).unwrap_or(0);
            let next = route.iter().map(priority).max().unwrap_or(0) + 1;
            for deployment in deployments {
                let mut copy = deployment.clone();
                copy.entry("model").or_insert_with(|| other.into());
                copy.insert("priority".into(), Value::Integer(next + priority(deployment)));
                if !route.iter().any(|d| ["provider", "model"].iter().all(|key| d.get(*key) == copy.get(*key))) {
                    route.push(copy);
                }
            }
        }
    }

    fn limits(&mut self, root: &Yaml) {
        let mut rules = Vec::new();
        let mut add = |name: String, count_by: &str, models: Option<&str>, allow: Table| {
            if !allow.is_empty() {
                let mut rule = Table::from_iter([("name".to_owned(), Value::from(name))]);
                rule.insert("count_by".into(), count_by.into());
                insert_some(&mut rule, "models", models.map(|model| vec![model]));
                rule.insert("allow".into(), allow.into());
                rules.push(Value::Table(rule));
            }
        };
        let whole = |value: &Yaml| value.as_u64().filter(|n| *n > 0 && *n <= MAX_AMOUNT as u64).map(|n| n as i64);
        for (model, [requests, tokens, concurrent]) in &self.limits {
            let mut allow = Table::new();
            for (key, amount) in [("requests", requests), ("tokens", tokens)] {
                insert_some(&mut allow, key, (*amount > 0).then(|| format!("{amount}/m")));
            }
            insert_some(&mut allow, "concurrent", whole(&(*concurrent).into()));
            add(format!("model {model}"), "global", Some(model), allow);
        }
        let general = &root["general_settings"];
        for (theirs, count_by) in [("max_parallel_requests", "key"), ("global_max_parallel_requests", "global")] {
            let allow = whole(&general[theirs]).map(|n| ("concurrent".to_owned(), n.into()));
            add(format!("parallel requests, {count_by}"), count_by, None, allow.into_iter().collect());
        }
        let budget = &root["litellm_settings"];
        if let Some(dollars) = budget["max_budget"].as_f64().filter(|d| *d > 0.0) {
            let key = match budget["budget_duration"].as_str() {
                Some("1d" | "24h") => Some("money_per_day"),
                Some("30d" | "31d" | "1mo" | "1m") | None => Some("money_per_month"),
                Some(_) => None,
            };
            match key {
                Some(key) => add("budget".into(), "global", None, Table::from_iter([(key.to_owned(), dollars.into())])),
                None => self.draft.note("litellm_settings.budget_duration: budgets are per day or per month; left out"),
            }
        }
        self.draft.set_some("quota", "rule", non_empty(rules));
        let size = general["max_request_size_mb"].as_u64().filter(|n| *n > 0);
        self.draft.set_some("llm", "max_body", size.map(|size| format!("{size}MiB")));
    }

    fn mcp_servers(&mut self, servers: &Yaml) {
        let mut all = Table::new();
        for (name, theirs) in members(servers) {
            let at = format!("mcp_servers.{name}");
            let mut server = Table::new();
            if theirs["transport"].as_str() == Some("sse") {
                self.draft.note(format!("{at}.transport: the HTTP+SSE transport is not supported; left out"));
                continue;
            }
            if let Err(why) = interflow_limits::check_mcp_name(name) {
                self.draft.note(format!("{at}: {why}; left out"));
                continue;
            }
            insert_some(&mut server, "command", self.text(&theirs["command"], &format!("{at}.command")));
            insert_some(&mut server, "url", self.url(&theirs["url"], &format!("{at}.url")));
            if !theirs["args"].is_null() {
                self.draft.note(format!("{at}.args: they are copied as they are; move secrets to env"));
            }
            for (own, key) in [("args", "args"), ("allowed_tools", "tools"), ("disallowed_tools", "deny_tools")] {
                let list: Vec<String> = items(&theirs[own]).filter_map(scalar_text).collect();
                insert_some(&mut server, key, non_empty(list));
            }
            let variable = |key: &str| format!("MCP_{name}_{key}").replace('-', "_").to_ascii_uppercase();
            for (key, from) in [("env", &["env"][..]), ("headers", &["static_headers", "extra_headers"])] {
                let mut values = Table::new();
                for (own, (member, value)) in from.iter().flat_map(|own| members(&theirs[own]).map(move |m| (own, m))) {
                    let reference = self.secret(value, &variable(member), &format!("{at}.{own}.{member}"));
                    insert_some(&mut values, member, reference);
                }
                insert_some(&mut server, key, non_empty(values));
            }
            if theirs["auth_type"].as_str().is_some_and(|kind| kind != "none") {
                self.draft.note(format!("{at}.auth_type: write headers, with a reference to the secret, or oauth"));
            }
            if theirs["extra_headers"].is_array() {
                self.draft.note(format!("{at}.extra_headers: header fields of clients are not passed on; left out"));
            }
            self.note_unread(theirs, "mcp_servers", &format!("{at}."));
            all.insert(name.clone(), server.into());
        }
        self.draft.set_some("mcp", "server", non_empty(all));
    }

    /// A keys file with the master key, which clients may send as before.
    fn master_key(&mut self, key: &Yaml) -> Option<String> {
        if key.is_null() {
            return None;
        }
        self.draft.set("keys", "require_virtual_key", true);
        // Every client presents a key, which a web page does not have, so DNS rebinding needs no host check.
        self.draft.set("gateway", "hosts", vec!["*"]);
        self.draft
            .note("general_settings.master_key: it remains a key of clients; the admin API has a token of its own");
        let key = self.text(key, "general_settings.master_key")?;
        let entry = [("id", "master".to_owned()), ("hash", interflow_limits::hash_key(&key))];
        let entry: Table = entry.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
        toml::to_string_pretty(&Table::from_iter([("key".to_owned(), Value::from(vec![entry]))])).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_server_or_a_model_are_taken_over_or_noted() {
        let imported = import(
            r#"
model_list:
  - { model_name: a, litellm_params: { model: openai/x, seed: 7 }, model_info: { id: 1, access_groups: [g], input_cost_per_token: 1 }, tags: [t] }
mcp_servers:
  s: { url: "https://s.example", static_headers: { A: os.environ/A }, extra_headers: { B: os.environ/B }, access_groups: [g], allowed_params: { t: [p] } }
  t: { command: t, args: [-p, 80], env: { PORT: 8080 }, extra_headers: [x-trace] }
"#,
        )
        .unwrap();
        let config: Table = toml::from_str(&imported.text).unwrap();
        let server = |name: &str| &config["mcp"]["server"][name];
        assert_eq!(server("s")["headers"], toml::from_str::<Value>("A = \"env:A\"\nB = \"env:B\"").unwrap());
        assert_eq!(server("t")["args"], Value::from(vec!["-p", "80"]));
        assert_eq!(server("t")["env"]["PORT"].as_str(), Some("env:LITELLM_MCP_T_PORT"));
        for says in [
            "model_list[0].litellm_params.seed: left out",
            "model_list[0].model_info.access_groups: left out; name the models of each key",
            "model_list[0].model_info.input_cost_per_token: write it in the file of quota.prices",
            "model_list[0].tags: left out",
            "mcp_servers.s.access_groups: left out; name the servers",
            "mcp_servers.s.allowed_params: left out; write rules",
            "mcp_servers.t.extra_headers: ",
        ] {
            assert!(imported.notes.iter().any(|n| n.starts_with(says)), "{says}: {:#?}", imported.notes);
        }
        assert!(!imported.notes.iter().any(|n| n.contains("model_info.id") || n.contains("s.extra_headers:")));
    }
}
