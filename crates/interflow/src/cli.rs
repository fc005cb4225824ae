//! The command line: these definitions yield the parser and the help texts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::listen_address::parse_listen_address;

/// Intercepting HTTP(S) proxy and LLM gateway: inspect, record, rewrite, replay and redact traffic.
#[derive(Debug, Parser)]
#[command(name = "interflow", version, max_term_width = 110, infer_subcommands = false)]
pub struct Cli {
    /// Data directory: CA, recordings and tokens.
    #[arg(long, global = true, env = "INTERFLOW_DATA_DIR", value_name = "DIR", help_heading = "Global options")]
    pub data_dir: Option<PathBuf>,
    /// Configuration file.
    #[arg(short, long, global = true, env = "INTERFLOW_CONFIG", value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Start the proxy, the gateway and the admin server.
    Run(RunArgs),
    /// Start an instance with sample traffic: a local shop, a fake LLM provider, agents. Needs no network.
    Demo(crate::demo::DemoArgs),
    /// Open the web UI of the running instance in the browser and log in.
    Open(crate::open::OpenArgs),
    /// Run a command with the proxy and CA configured in its environment; print a summary when it exits.
    Exec(ExecArgs),
    /// Manage the certificate authority: show, export, install, uninstall, rotate.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Work with recorded flows: list, show, follow, export, import, replay, compare, prune, check.
    #[command(subcommand)]
    Flows(FlowsCommand),
    /// List, show and export conversations with language models.
    #[command(subcommand)]
    Conversations(ConversationsCommand),
    /// Manage virtual keys for the gateway: add, list, revoke.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Work with rules: check, list, explain, test, import, schema; list and decide held flows.
    #[command(subcommand)]
    Rules(RuleFilesCommand),
    /// Verify the hash chain of the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Manage outbound approvals: list and decide pending requests, edit rules, set the mode.
    #[command(subcommand)]
    Approvals(crate::approvals::ApprovalsCommand),
    /// Manage secrets that replace placeholders in outgoing requests: list, add, remove.
    #[command(subcommand)]
    Secrets(crate::secrets::SecretsCommand),
    /// List active agent sessions.
    Sessions,
    /// Import data or configuration from another program.
    #[command(subcommand)]
    Import(crate::import::ImportCommand),
    /// Replace personal data and secrets in text or JSON.
    Redact(RedactArgs),
    /// Inspect media files and decrypt them with your own keys.
    #[command(subcommand)]
    Media(crate::media::MediaCommand),
    /// Serve the recorded traffic to agents over the Model Context Protocol (stdio, read-only).
    Mcp(crate::mcp::McpArgs),
    /// Check or print the configuration, its JSON Schema or its reference page.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Set or restore the system's proxy settings: on, off, status.
    #[command(subcommand)]
    SystemProxy(SystemProxyCommand),
    /// Diagnose problems: CA trust, ports, clock, disk, limits.
    Doctor(DoctorArgs),
}

#[derive(Debug, Args, Default)]
pub struct RunArgs {
    /// Listen address of the proxy; a port alone means 127.0.0.1 (repeatable).
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_proxy: Vec<SocketAddr>,
    /// Listen address of the gateway.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_gateway: Option<SocketAddr>,
    /// Serve TLS on the gateway with a certificate signed by Interflow's CA, for development.
    #[arg(long)]
    pub gateway_tls_self_signed: bool,
    /// Listen address of the admin API and web UI.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_admin: Option<SocketAddr>,
    /// Rule file, in addition to those in the configuration (repeatable).
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Do not intercept TLS; tunnel it.
    #[arg(long)]
    pub no_intercept: bool,
    /// Do not record traffic.
    #[arg(long)]
    pub no_record: bool,
    /// Do not verify upstream certificates. Dangerous: anyone on the network path can read and modify all traffic.
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// Set this instance as the system's proxy while it runs (GNOME, KDE, macOS, Windows).
    #[arg(long)]
    pub system_proxy: bool,
    /// Print the effective configuration and exit.
    #[arg(long)]
    pub print_config: bool,
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Start a private instance even if one is already running.
    #[arg(long)]
    pub private: bool,
    /// Do not print the summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Hosts that bypass the proxy, as in NO_PROXY.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub no_proxy: String,
    /// Do not verify upstream certificates (private instance only).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// Proxy user name of the command, if the running instance requires authentication.
    #[arg(long, value_name = "NAME", default_value = "exec")]
    pub user: String,
    /// Command and arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Show the name, fingerprint, validity and location of the CA.
    Show,
    /// Export the CA certificate (never the key).
    Export {
        /// Output format.
        #[arg(long, value_enum, default_value_t = CaFormat::Pem)]
        form: CaFormat,
        /// Output file [default: stdout].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Install the CA in the trust stores of this machine; asks for confirmation.
    Install {
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
        /// Show what would be done without doing it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove the CA from the trust stores of this machine.
    Uninstall {
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
        /// Show what would be done without doing it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Intercept clients again that bypass interception because they rejected the certificate.
    Retry {
        /// Only for this host.
        #[arg(value_name = "HOST")]
        host: Option<String>,
    },
    /// Create a new CA and keep the old one as a backup.
    Rotate {
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
    },
    /// Print environment variables that make programs started from this shell trust the CA.
    TrustEnv {
        /// Shell syntax.
        #[arg(long, value_enum, default_value_t = ShellKind::Sh)]
        shell: ShellKind,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CaFormat {
    /// PEM (text).
    Pem,
    /// DER (binary), for phones and desktops.
    Der,
    /// PKCS#12 truststore for Java that includes the system's CAs (password `changeit`).
    P12,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ShellKind {
    /// sh, bash, zsh.
    Sh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Validate the configuration.
    Check,
    /// Print the effective configuration, including defaults and environment variables.
    Print,
    /// Print the JSON Schema of the configuration file.
    Schema,
    /// Print the configuration reference in Markdown.
    Reference,
}

#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Redaction policy: Interflow TOML or Phileas JSON [default: built-in policy].
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print the findings and their reasons as JSON instead of the redacted text. Never prints original values.
    #[arg(long)]
    pub explain: bool,
    /// Input text or JSON; `-` or no argument reads standard input.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

pub use crate::audit::AuditCommand;
pub use crate::conversations::ConversationsCommand;
pub use crate::flows::FlowsCommand;
pub use crate::keys::KeysCommand;
pub use crate::rules::RuleFilesCommand;
pub use crate::system_proxy::SystemProxyCommand;
