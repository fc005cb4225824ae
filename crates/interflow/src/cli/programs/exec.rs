//! `interflow exec -- CMD`: runs a command through the proxy without changing system settings.

use clap::Args;
use interflow_host::data_dir::DataDir;
use interflow_host::exec::{ExecRequest, run_command, run_container_command};

use super::exec_choice::{self, PromptChoice};
use super::proxy_session::{ProxySession, RedactionCause, SecretVariable, instance_redacts};
use crate::Result;
use crate::instance::config::LoadedConfig;

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Start a private instance for this command even if an instance is running.
    #[arg(long)]
    pub private: bool,
    /// Redact personal data and secrets in the command's LLM requests, overriding `redact.proxied` and the modes of
    /// `[[redact.route]]`. By default they are only flagged. If the running instance does not redact, add --private.
    #[arg(long)]
    pub redact: bool,
    /// Send prompts as they are and only flag what is in them, overriding the choice made at the first `exec` of an
    /// agent. Does not override the configuration.
    #[arg(long, conflicts_with = "redact")]
    pub flag_only: bool,
    /// Do not print the summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Hosts that bypass the proxy, separated by commas, as in NO_PROXY.
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    pub no_proxy: String,
    /// Do not verify upstream certificates (private instance only).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// The command starts containers (`docker run`, `docker create`, `docker compose up`, the same of podman or nerdctl):
    /// give the proxy and the CA to the containers rather than to the command.
    #[arg(long)]
    pub docker: bool,
    /// User name of the command's flows if an instance is running; rules by user apply to it. The default is `exec`, with
    /// --docker `container`.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Set an environment variable of the command to the placeholder of a stored secret (repeatable); a label alone is the
    /// variable's name too. The proxy replaces the placeholder in requests to the secret's hosts.
    #[arg(long = "secret", value_name = "VARIABLE=LABEL")]
    pub secrets: Vec<SecretVariable>,
    /// Command and arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit code.
pub fn run(args: &ExecArgs, loaded: LoadedConfig, home: &DataDir) -> Result<()> {
    let user = args.user.as_deref().unwrap_or(if args.docker { "container" } else { "exec" });
    let session = ProxySession {
        private: args.private,
        redact: redacts(args, &loaded, home),
        insecure_upstream: args.danger_insecure_upstream,
        quiet: args.quiet,
        user,
        needs_login: false,
        secrets: &args.secrets,
    };
    session.run(loaded, home, async |proxy| {
        let request = ExecRequest {
            command: &args.command,
            no_proxy: &args.no_proxy,
            proxies: &proxy.addresses,
            login: proxy.login,
            variables: &proxy.variables,
        };
        if args.docker { run_container_command(&request, home).await } else { run_command(&request, home).await }
    })
}

/// Why the command's prompts are redacted: by an option, or by the choice of the person who ran it first.
fn redacts(args: &ExecArgs, loaded: &LoadedConfig, home: &DataDir) -> Option<RedactionCause> {
    if args.redact {
        return Some(RedactionCause::Option);
    }
    // An instance that redacts everything leaves nothing to choose.
    if args.flag_only || (!args.private && instance_redacts(home)) {
        return None;
    }
    let choice = exec_choice::choose(&args.command, args.quiet, loaded, home);
    (choice == Some(PromptChoice::Redact)).then_some(RedactionCause::Choice)
}
