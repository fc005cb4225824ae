//! `interflow exec --docker`: a command of Docker or Podman whose containers use the proxy and trust the CA.

use interflow_types::data_file;
use std::path::Path;
use std::sync::LazyLock;

use super::compose::ComposeCommand;
use super::container_settings::{
    ContainerEngine, ContainerNetwork, ContainerSettings, PreparedCommand, PrivateFile, mount, skip_options,
};
use super::{EnvSetting, ExecRequest, ProxyTarget, TrustFiles, settings};
use crate::data_dir::DataDir;
use crate::{CliError, Result};

/// Options of the engines that precede the command and take a value as their next argument.
static ENGINE_VALUES: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/container_engine_values.txt")).collect());

/// Options of `run` and `create` that take no value. Another one is followed by its value, unless that is behind `=`.
static RUN_FLAGS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/container_run_flags.txt")).collect());

/// Makes the command one whose containers use the proxy.
///
/// # Errors
/// See [`run_container_command`](super::run_container_command).
pub(super) fn prepare(request: &ExecRequest<'_>, home: &DataDir) -> Result<PreparedCommand> {
    let (engine, command) = EngineCommand::parse(request.command)?;
    let network = ContainerNetwork::choose(request.proxies, cfg!(target_os = "linux"))
        .ok_or_else(|| CliError::Failed("the proxy has no port".into()))?;
    let (trust_folder, trust) = TrustFiles::write(home)?.write_for_containers(home)?;
    let (host, port) = network.target(engine);
    let target = ProxyTarget { host: &host, port, login: &request.login_in_url() };
    // The variables of this process say nothing about a container.
    let environment = settings(target, &trust, request.no_proxy, &|_| None);
    let environment = environment.into_iter().map(|EnvSetting { name, value }| (name.to_owned(), value));
    let environment = environment.chain(request.variables.iter().cloned()).collect();
    let settings = ContainerSettings { environment, trust_folder, engine, network };
    match command {
        EngineCommand::Run { at } => run(request.command, at, &settings, home),
        EngineCommand::Compose(compose) => compose.prepare(&settings, home),
    }
}

/// A command that starts containers.
enum EngineCommand {
    /// `run` or `create`, whose options begin at this argument.
    Run {
        at: usize,
    },
    Compose(ComposeCommand),
}

impl EngineCommand {
    fn parse(command: &[String]) -> Result<(ContainerEngine, Self)> {
        let program =
            command.first().map(|p| Path::new(p).file_stem().unwrap_or_default().to_string_lossy().into_owned());
        let unknown = || {
            CliError::Usage(
                "--docker: expected a command that starts containers: `docker run …`, `docker create …`, `docker compose up …`; \
                 or the same of podman or nerdctl"
                    .into(),
            )
        };
        let program = program.ok_or_else(unknown)?;
        let (engine, is_compose) = match program.as_str() {
            "docker" | "nerdctl" => (ContainerEngine::Docker, false),
            "podman" => (ContainerEngine::Podman, false),
            "docker-compose" => (ContainerEngine::Docker, true),
            "podman-compose" => (ContainerEngine::Podman, true),
            _ => return Err(unknown()),
        };
        if is_compose {
            return Ok((engine, Self::Compose(ComposeCommand::parse(command, 1)?)));
        }
        let at = skip_options(command, 1, &ENGINE_VALUES);
        let word = |at: usize| command.get(at).map(String::as_str).unwrap_or_default();
        let command = match (word(at), word(at + 1)) {
            ("run" | "create", _) => Self::Run { at: at + 1 },
            ("container", "run" | "create") => Self::Run { at: at + 2 },
            ("compose", _) => Self::Compose(ComposeCommand::parse(command, at + 1)?),
            _ => return Err(unknown()),
        };
        Ok((engine, command))
    }
}

/// `run` and `create`: options before those of the user, which win.
fn run(command: &[String], at: usize, settings: &ContainerSettings, home: &DataDir) -> Result<PreparedCommand> {
    let (before, own) = command.split_at(at.min(command.len()));
    let mut options = Vec::new();
    if let ContainerNetwork::Host(address) = settings.network {
        match chosen_network(own) {
            None => options.push("--network=host".to_owned()),
            Some("host") => {}
            Some(other) => return Err(settings.unreachable_from(&format!("network `{other}`"), address)),
        }
    }
    options.extend(settings.extra_host().map(|host| format!("--add-host={host}")));
    options.push(format!("--volume={}", mount(&settings.trust_folder)));
    // In a file, because other users of this machine can read command lines.
    let text: String = settings.environment.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let file = PrivateFile::write(home, "env", text.as_bytes())?;
    options.push(format!("--env-file={}", file.0.display()));
    let command = before.iter().chain(&options).chain(own).cloned().collect();
    Ok(PreparedCommand { command, environment: Vec::new(), _file: file })
}

/// The network that the options of `run` choose.
fn chosen_network(options: &[String]) -> Option<&str> {
    let mut chosen = None;
    let mut rest = options.iter().map(String::as_str);
    while let Some(option) = rest.next().filter(|o| o.starts_with('-') && *o != "--") {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        // `-it`: flags without a value.
        let letters = name.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        // The value of the next letter follows it at once, as in `-itp80:80`, or is the next option.
        let is_flag = |letters: &str| letters.trim_start_matches(|c| "ditPq".contains(c)).chars().count() != 1;
        let flag = letters.map_or_else(|| RUN_FLAGS.contains(&name), is_flag);
        let value = if value.is_some() || flag { value } else { rest.next() };
        if ["--network", "--net"].contains(&name) {
            chosen = value;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::PathBuf;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_is_found_behind_the_options_of_the_engine() {
        for (command, at) in [
            ("docker run alpine", Some(2)),
            ("/usr/bin/docker --context desk -D run alpine", Some(5)),
            ("podman --log-level=debug container create alpine", Some(4)),
            ("docker ps", None),
            ("docker", None),
            ("docker exec web sh", None),
            ("kubectl run web", None),
        ] {
            let found = match EngineCommand::parse(&words(command)) {
                Ok((_, EngineCommand::Run { at })) => Some(at),
                Ok((_, EngineCommand::Compose(_))) => panic!("{command}"),
                Err(_) => None,
            };
            assert_eq!(found, at, "{command}");
        }
    }

    #[test]
    fn the_network_is_told_from_the_arguments_of_the_container() {
        for (options, network) in [
            ("alpine", None),
            ("--rm -it --network back alpine", Some("back")),
            ("-e A=1 -p 80:80 --net=host -d alpine", Some("host")),
            ("--name x --rm alpine curl --network y", None),
            ("-v --network:/x alpine", None),
            ("-p8080:80 --network back alpine", Some("back")),
            ("-itv/a:/b --net=host alpine", Some("host")),
            ("-ite A=1 --network back alpine", Some("back")),
            ("--network one --network=two alpine", Some("two")),
        ] {
            assert_eq!(chosen_network(&words(options)), network, "{options}");
        }
    }

    #[test]
    fn a_container_reaches_the_proxy_by_its_widest_address() {
        let addresses = |list: &str| list.split(' ').map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let parsed = |a: &str| a.parse().unwrap();
        for (list, linux, network) in [
            ("127.0.0.1:7", true, ContainerNetwork::Host(parsed("127.0.0.1:7"))),
            ("127.0.0.1:7", false, ContainerNetwork::Gateway(7)),
            ("127.0.0.1:7 0.0.0.0:8", true, ContainerNetwork::Gateway(8)),
            ("127.0.0.1:7 172.17.0.1:8", true, ContainerNetwork::Address(parsed("172.17.0.1:8"))),
        ] {
            assert_eq!(ContainerNetwork::choose(&addresses(list), linux), Some(network), "{list}");
        }
        assert_eq!(ContainerNetwork::choose(&[], true), None);
    }

    #[test]
    fn each_engine_has_its_own_name_of_the_host() {
        for (command, host, extra) in [
            ("docker run alpine", "host.docker.internal", Some("host.docker.internal:host-gateway")),
            ("nerdctl run alpine", "host.docker.internal", Some("host.docker.internal:host-gateway")),
            ("podman run alpine", "host.containers.internal", None),
            ("podman-compose up", "host.containers.internal", None),
        ] {
            let (engine, _) = EngineCommand::parse(&words(command)).unwrap();
            let network = ContainerNetwork::Gateway(7);
            assert_eq!(network.target(engine), (host.to_owned(), 7), "{command}");
            let settings = ContainerSettings { environment: Vec::new(), trust_folder: PathBuf::new(), engine, network };
            assert_eq!(settings.extra_host().as_deref(), extra, "{command}");
        }
    }
}
