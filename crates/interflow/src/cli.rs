//! The command line: one definition yields parser and help.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// See, record, control, redact and carry HTTP traffic.
#[derive(Debug, Parser)]
#[command(name = "interflow", version, max_term_width = 110, infer_subcommands = false)]
pub struct Cli {
    /// The data folder: CA, recordings, tokens; INTERFLOW_DATA_DIR names it too.
    #[arg(long, alias = "data-dir", global = true, env = "INTERFLOW_HOME", value_name = "FOLDER")]
    pub home: Option<PathBuf>,
    /// The configuration file.
    #[arg(short, long, global = true, env = "INTERFLOW_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Start the proxy, the gateway and the admin side.
    Run(RunArgs),
    /// Start an instance with something to see: a local shop, a fake LLM provider, agents. Needs no network.
    Demo(crate::demo::DemoArgs),
    /// Open the web UI of the running instance in the browser, logged in.
    Open(crate::open::OpenArgs),
    /// Run a command through the proxy, its runtimes told to trust the CA; a summary at the end.
    Exec(ExecArgs),
    /// The certificate authority: show, export, install, uninstall, rotate.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Recorded flows: list, show, follow, export, import, replay, compare, prune, check.
    #[command(subcommand)]
    Flows(FlowsCommand),
    /// Conversations with language models: list, show, export.
    #[command(subcommand)]
    Conversations(ConversationsCommand),
    /// Virtual keys for the gateway: add, list, revoke.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Rules: check, list, explain, test, import, schema, held, decide.
    #[command(subcommand)]
    Rules(RuleFilesCommand),
    /// The audit log: check its chain.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// What may be reached: answer what is held, rules, modes, secrets for placeholders.
    #[command(subcommand)]
    Approvals(crate::approvals::ApprovalsCommand),
    /// Take over what another program kept: greyproxy.
    #[command(subcommand)]
    Import(crate::import::ImportCommand),
    /// Take personal data and secrets out of text or JSON.
    Redact(RedactArgs),
    /// Media files: what is in them, decryption with your own keys.
    #[command(subcommand)]
    Media(crate::media::MediaCommand),
    /// Let agents look at the recording: the Model Context Protocol over standard input and output, read-only.
    Mcp(crate::mcp::McpArgs),
    /// The configuration: check, print, schema, reference.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// The system's proxy: on, off, status.
    #[command(subcommand)]
    SystemProxy(SystemProxyCommand),
    /// Look for what is wrong: CA trust, ports, clock, disk, limits.
    Doctor(DoctorArgs),
}

#[derive(Debug, Args, Default)]
pub struct RunArgs {
    /// Address of the proxy port (repeat for several).
    #[arg(long, value_name = "ADDR")]
    pub proxy: Vec<SocketAddr>,
    /// Address of the gateway port.
    #[arg(long, value_name = "ADDR")]
    pub gateway: Option<SocketAddr>,
    /// Speak TLS on the gateway port with certificates of Interflow's own CA, for development.
    #[arg(long)]
    pub gateway_tls_self_signed: bool,
    /// Address of the admin port.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// A rule file, beside those of the configuration (repeat for several).
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Pass all TLS through unseen.
    #[arg(long)]
    pub no_intercept: bool,
    /// Record nothing.
    #[arg(long)]
    pub no_record: bool,
    /// Accept any certificate from any origin. Dangerous: whoever sits on the way can read and change everything.
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// Be the system's proxy while it runs (GNOME, KDE, macOS, Windows).
    #[arg(long)]
    pub system_proxy: bool,
    /// Print the configuration in force and end.
    #[arg(long)]
    pub print_config: bool,
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Start an instance of its own even when one is running.
    #[arg(long)]
    pub private: bool,
    /// No summary at the end.
    #[arg(short, long)]
    pub quiet: bool,
    /// Hosts that the command reaches without the proxy, as in NO_PROXY.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub no_proxy: String,
    /// Accept any certificate from any origin (a private instance only).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// The user's name that the command goes by, when a running instance asks for one.
    #[arg(long, value_name = "NAME", default_value = "exec")]
    pub user: String,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Name, fingerprint, validity and place.
    Show,
    /// Write the certificate (never the key).
    Export {
        /// The form.
        #[arg(long, value_enum, default_value_t = CaFormat::Pem)]
        form: CaFormat,
        /// The file; standard output when it is not given.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make this machine trust the CA; explains and asks first.
    Install {
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Take the CA out of this machine's trust stores.
    Uninstall {
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Intercept programs again that are passed through uninspected because they refused the certificate.
    Retry {
        /// Only their connections to this host.
        #[arg(value_name = "HOST")]
        host: Option<String>,
    },
    /// Make a new CA; the old one is set aside.
    Rotate {
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
    },
    /// Print shell lines that make programs started from this shell trust the CA.
    TrustEnv {
        /// The shell's way to set variables.
        #[arg(long, value_enum, default_value_t = ShellKind::Sh)]
        shell: ShellKind,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CaFormat {
    /// Text, for programs.
    Pem,
    /// Binary, for phones and desktops.
    Der,
    /// A PKCS#12 truststore for Java, with the platform's authorities in it (password `changeit`).
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
    /// Read the configuration and say what is wrong with it.
    Check,
    /// Print the configuration in force, defaults and environment included.
    Print,
    /// Print the JSON Schema of the file.
    Schema,
    /// Print the reference page in Markdown.
    Reference,
    /// Read the configuration of philter-ai-proxy and print the same as ours; notes go to the error output.
    ImportPhilter {
        /// Its YAML file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where the keys of clients are written, as hashes: a new file.
        #[arg(long, value_name = "FILE")]
        keys: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct RedactArgs {
    /// The policy: our TOML, or a Phileas policy in JSON. Without it the default policy is used.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print what was found and why, as JSON, instead of the redacted form. Never shows an original.
    #[arg(long)]
    pub explain: bool,
    /// The text or JSON; standard input when it is `-` or not given.
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
