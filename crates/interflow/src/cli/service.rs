//! `interflow service`: Interflow as a service of this user, which systemd or launchd starts.

use std::path::Path;

use clap::{CommandFactory as _, Parser as _, Subcommand};
use interflow_host::data_dir::DataDir;
use interflow_host::service::UserService;
use serde_json::json;

use super::Cli;
use super::output::{FormatArgs, TextFormat, print};
use crate::instance::config::ConfigFile;
use crate::{CliError, Result};

const DATA_DIR: &str = "--data-dir";

#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// Start Interflow now and at each login, by systemd's user manager or launchd.
    Install {
        /// Options of `interflow run`, after `--`: `-- --listen-proxy 7080`.
        #[arg(last = true, value_name = "OPTIONS")]
        options: Vec<String>,
    },
    /// Show whether the service is installed and runs.
    Status(FormatArgs<TextFormat>),
    /// Stop the service and remove it. The data directory stays.
    Uninstall,
}

pub fn run(command: &ServiceCommand, file: &ConfigFile, home: &DataDir) -> Result<()> {
    let service = UserService::find()?;
    if file.is_stdin() {
        return Err(CliError::Usage("a service cannot read its configuration from standard input".to_owned()));
    }
    let shown = service.file.display();
    match command {
        ServiceCommand::Install { options } => {
            if let Some(other) = home.running_instance().filter(|_| !service.is_active()) {
                let pid = other.pid;
                return Err(format!("process {pid} runs with this data directory: `interflow stop` ends it").into());
            }
            let command = start_command(options, file, home)?;
            if let Some(before) = service.command().filter(|before| *before != command) {
                let before = before.join(" ");
                let why = "the service is installed already, and starts another command: `interflow service uninstall` removes it first";
                return Err(format!("{why}\n{before}").into());
            }
            service.install(&command)?;
            let text =
                format!("{shown} is written; Interflow runs now and after each login\n`interflow status` shows it\n");
            print(&crate::in_commands(&text));
        }
        ServiceCommand::Status(format) => {
            let (installed, active) = (service.is_installed(), service.is_active());
            let status = json!({ "installed": installed, "active": active, "file": service.file });
            format.print(&status, || format!("file       {shown}\ninstalled  {installed}\nactive     {active}\n"))?;
            if !active {
                return Err(CliError::NotRunning("the service does not run".to_owned()));
            }
        }
        ServiceCommand::Uninstall => {
            let command = service.command().unwrap_or_default();
            service.uninstall()?;
            let own = command.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix(DATA_DIR)? {
                "" => command.get(at + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            });
            let data = DataDir::find(own.map(Path::new))?;
            print(&format!("{shown} is removed; the data stays in {}\n", data.path().display()));
        }
    }
    Ok(())
}

/// The words that start this binary with the configuration and the data directory of this command.
fn start_command(options: &[String], file: &ConfigFile, home: &DataDir) -> Result<Vec<String>> {
    let program = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let mut words = vec![absolute(&program)?];
    if !home.is_default() {
        words.extend([DATA_DIR.to_owned(), absolute(home.path())?]);
    }
    if let Some(path) = file.to_load().filter(|_| file.is_given()) {
        words.extend(["--config".to_owned(), absolute(path)?]);
    }
    words.push("run".to_owned());
    words.extend(absolute_paths(options)?);
    Cli::try_parse_from(&words).map_err(|e| CliError::Usage(e.render().to_string().trim_end().to_owned()))?;
    Ok(words)
}

/// Options with the paths in them made absolute: the service starts in another folder.
fn absolute_paths(options: &[String]) -> Result<Vec<String>> {
    let command = Cli::command();
    let of_run = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let is_path = |arg: &&clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| ["FILE", "DIR"].contains(&name.as_str()))
    };
    let mut names = Vec::new();
    for arg in command.get_arguments().chain(of_run).filter(is_path) {
        names.extend(arg.get_long().map(|name| format!("--{name}")));
        names.extend(arg.get_short().map(|name| format!("-{name}")));
    }
    let is_name = |word: &str| names.iter().any(|name| name == word);
    let (mut words, mut is_value) = (Vec::new(), false);
    for option in options {
        let attached = |name: &String| option.strip_prefix(name).filter(|value| name.len() == 2 && !value.is_empty());
        let short = names.iter().find_map(|name| Some((name, attached(name)?)));
        words.push(match (option.split_once('='), short) {
            _ if is_value => absolute(Path::new(option))?,
            (Some((name, value)), _) if is_name(name) => format!("{name}={}", absolute(Path::new(value))?),
            (_, Some((name, value))) => format!("{name}{}", absolute(Path::new(value))?),
            _ => option.clone(),
        });
        is_value = !is_value && is_name(option);
    }
    Ok(words)
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    path.to_str().map(str::to_owned).ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}
