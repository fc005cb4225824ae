//! Compose commands of Docker and Podman: an override file adds the proxy and the CA to every service.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use interflow_types::data_file;
use serde_json::{Map, Value, json};

use super::container_settings::{
    ContainerNetwork, ContainerSettings, PreparedCommand, PrivateFile, mount, skip_options,
};
use super::remove_secrets;
use crate::data_dir::DataDir;
use crate::{CliError, Result};

/// Options of Compose that precede its command and take a value as their next argument.
static COMPOSE_VALUES: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/compose_values.txt")).collect());

/// The files that Compose looks for, and those that it adds to them, in its order.
const DEFAULT_FILES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];
const DEFAULT_OVERRIDES: [&str; 4] =
    ["compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"];

/// A command of Compose that starts containers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ComposeCommand {
    /// The program and its arguments, up to Compose's own options.
    program: Vec<String>,
    options: Vec<String>,
    /// `up`, `run` or `create`, and what follows.
    rest: Vec<String>,
}

impl ComposeCommand {
    /// Compose's options begin at the argument `at`.
    pub fn parse(command: &[String], at: usize) -> Result<Self> {
        let end = skip_options(command, at, &COMPOSE_VALUES).min(command.len());
        let (before, rest) = command.split_at(end);
        let (program, options) = before.split_at(at);
        if !rest.first().is_some_and(|word| ["up", "run", "create"].contains(&word.as_str())) {
            return Err(CliError::Usage(
                "--docker: of Compose's commands, only `up`, `run` and `create` start containers with other settings"
                    .into(),
            ));
        }
        Ok(Self { program: program.to_vec(), options: options.to_vec(), rest: rest.to_vec() })
    }

    /// Adds an override file for all services.
    pub fn prepare(self, settings: &ContainerSettings, home: &DataDir) -> Result<PreparedCommand> {
        if let ContainerNetwork::Host(proxy) = settings.network {
            return Err(settings.unreachable_from("network of Compose", proxy));
        }
        let services = self.services()?;
        let file = PrivateFile::write(home, "compose.yaml", override_file(&services, settings).to_string().as_bytes())?;
        let own = file.0.display().to_string();
        let mut environment = Vec::new();
        let mut options = self.options.clone();
        let names_files = options.iter().any(|option| names_file(option));
        match env::var("COMPOSE_FILE") {
            // Options come before the variable, which comes before the files in the folder.
            Ok(files) if !names_files && !files.is_empty() => {
                let separator = env::var("COMPOSE_PATH_SEPARATOR").ok().filter(|s| !s.is_empty());
                let separator = separator.unwrap_or_else(|| if cfg!(windows) { ";" } else { ":" }.to_owned());
                environment.push(("COMPOSE_FILE".to_owned(), format!("{files}{separator}{own}")));
            }
            _ => {
                let defaults = if names_files { Vec::new() } else { default_files()? };
                let defaults = defaults.iter().map(|file| file.display().to_string());
                options.extend(defaults.chain([own]).flat_map(|file| ["--file".to_owned(), file]));
            }
        }
        let command = [self.program, options, self.rest].concat();
        Ok(PreparedCommand { command, environment, _file: file })
    }

    /// The names of the services, from Compose itself, which knows profiles, included files and variables.
    fn services(&self) -> Result<Vec<String>> {
        let program = self.program.first().map(String::as_str).unwrap_or_default();
        let mut command = Command::new(program);
        command.args(&self.program[1..]).args(&self.options).args(["config", "--services"]).stdin(Stdio::null());
        command.stderr(Stdio::inherit());
        remove_secrets(&mut command);
        let output = command.output().map_err(|e| CliError::Failed(format!("`{program}` cannot be started: {e}")))?;
        let listed = String::from_utf8_lossy(&output.stdout);
        let services: Vec<_> = listed.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
        if !output.status.success() || services.is_empty() {
            return Err(CliError::Failed("--docker: Compose lists no services (`config --services`)".into()));
        }
        Ok(services)
    }
}

/// Whether an option names a file of the project: `-f FILE`, `-fFILE`, `--file FILE` or `--file=FILE`.
fn names_file(option: &str) -> bool {
    option == "--file" || option.starts_with("--file=") || option.starts_with("-f")
}

/// The default files of the project, which is in this folder or in one above it.
fn default_files() -> Result<Vec<PathBuf>> {
    let folder = env::current_dir().map_err(|e| format!("the current folder cannot be read: {e}"))?;
    let first_of = |folder: &Path, names: &[&str]| names.iter().map(|n| folder.join(n)).find(|f| f.is_file());
    let project = folder.ancestors().find_map(|folder| Some((folder, first_of(folder, &DEFAULT_FILES)?)));
    let (folder, file) = project.ok_or_else(|| CliError::Failed("--docker: no compose.yaml was found".into()))?;
    Ok([file].into_iter().chain(first_of(folder, &DEFAULT_OVERRIDES)).collect())
}

/// In JSON, which is YAML.
fn override_file(services: &[String], settings: &ContainerSettings) -> Value {
    let mut environment: Map<String, Value> = Map::new();
    for (name, value) in &settings.environment {
        let mut value = value.clone();
        if name.eq_ignore_ascii_case("NO_PROXY") {
            // Services call one another by names that the proxy does not know.
            let inherited = Some(value.as_str()).filter(|v| !v.is_empty());
            value = inherited.into_iter().chain(services.iter().map(String::as_str)).collect::<Vec<_>>().join(",");
        }
        // Compose replaces variables in values.
        environment.insert(name.clone(), json!(value.replace('$', "$$")));
    }
    let mut service =
        json!({ "environment": environment, "volumes": [mount(&settings.trust_folder).replace('$', "$$")] });
    if let Some(host) = settings.extra_host() {
        service["extra_hosts"] = json!([host]);
    }
    let services: Map<String, Value> = services.iter().map(|name| (name.clone(), service.clone())).collect();
    json!({ "services": services })
}

#[cfg(test)]
mod tests {
    use super::super::container_settings::ContainerEngine;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_of_compose_are_told_from_its_command() {
        let parsed = ComposeCommand::parse(&words("docker compose -f a.yaml --dry-run -p x up -d web"), 2).unwrap();
        assert_eq!(parsed.options, words("-f a.yaml --dry-run -p x"));
        assert_eq!((parsed.program, parsed.rest), (words("docker compose"), words("up -d web")));
        assert!(words("-f -fa.yaml -f=a.yaml --file --file=a.yaml").iter().all(|option| names_file(option)));
        assert!(!words("a.yaml -p --profile --files-of").iter().any(|option| names_file(option)));
        for other in ["docker-compose down", "docker-compose", "docker-compose -f up"] {
            assert!(ComposeCommand::parse(&words(other), 1).is_err(), "{other}");
        }
    }

    #[test]
    fn services_call_one_another_without_the_proxy() {
        let settings = ContainerSettings {
            environment: vec![("no_proxy".into(), "a.test".into()), ("X".into(), "p$w".into())],
            trust_folder: "/t".into(),
            engine: ContainerEngine::Docker,
            network: ContainerNetwork::Gateway(7),
        };
        let file = override_file(&["web".into(), "db".into()], &settings);
        let web = &file["services"]["web"];
        assert_eq!(web, &file["services"]["db"]);
        assert_eq!(web["environment"], json!({"no_proxy": "a.test,web,db", "X": "p$$w"}));
        assert_eq!(web["extra_hosts"], json!(["host.docker.internal:host-gateway"]));
        assert!(web["volumes"][0].as_str().unwrap().starts_with("/t:/etc/interflow-trust:ro"));
    }
}
