//! `interflow tokens`: creates, lists and revokes the API tokens of services. A running instance knows a change when the
//! command returns.

use clap::{Args, Subcommand};
use interflow_admin::identity::Role;
use interflow_admin::identity::tokens::{ApiTokens, TokenKind};
use interflow_admin::{OfflineDeps, TokenLifetimes, parse_token_expiry};
use interflow_host::data_dir::DataDir;
use interflow_types::Timestamp;
use serde_json::{Value, json};

use super::output::{FormatArgs, TableFormat, TextFormat, format_rows, member, print, print_json};
use crate::cli::operations::{OperationId, Operations, operations};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, fleet};

#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Create a token. It is printed once and stored as a hash.
    Create(TokenCreateArgs),
    /// List tokens with role, expiry and last use.
    List(FormatArgs<TableFormat>),
    /// Revoke a token at once.
    Revoke {
        /// Token ID, as shown by `tokens list`.
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct TokenCreateArgs {
    /// Name of the program that uses it.
    #[arg(long)]
    name: String,
    /// `viewer` (flows without contents), `operator` (also decides, tags, imports and sends requests) or `admin`.
    #[arg(long)]
    role: Role,
    /// Also allow it to read bodies and conversations, and to export flows. An admin's token always may.
    #[arg(long)]
    read_bodies: bool,
    /// Expiry: `30d`, `2027-01-31`, `2027-01-31T12:00:00Z` or `never`.
    #[arg(long, value_name = "WHEN", default_value = "90d")]
    expires: String,
    #[command(flatten)]
    format: FormatArgs<TextFormat>,
}

pub fn run(command: TokensCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    home.create()?;
    match command {
        TokensCommand::Create(args) => create(&args, config, home),
        TokensCommand::List(format) => {
            let tokens = on_tokens(config, home, |_| Ok(()))?.call(&OperationId::ListTokens.call())?["tokens"].take();
            format.print(&tokens, || table(tokens.as_array().map(Vec::as_slice).unwrap_or_default()))
        }
        TokensCommand::Revoke { id } => {
            revoke(&id, config, home)?;
            print(&format!("{id} is revoked\n"));
            Ok(())
        }
    }
}

/// The tokens in the data directory or in the shared store, while no instance runs.
fn open(config: &InterflowConfig, home: &DataDir) -> Result<ApiTokens> {
    let opened = match fleet::open_identity(config, home)? {
        Some(shared) => ApiTokens::open_shared(shared.store, home.path()),
        None => ApiTokens::open(home.path()),
    };
    opened.map_err(CliError::Failed)
}

/// The operations on tokens. A check that the running instance makes by itself comes before they are opened.
fn on_tokens(
    config: &InterflowConfig,
    home: &DataDir,
    check: impl FnOnce(&ApiTokens) -> Result<()>,
) -> Result<Box<dyn Operations>> {
    operations(config, home, || {
        let tokens = open(config, home)?;
        check(&tokens)?;
        Ok(OfflineDeps { tokens: Some(tokens), ..OfflineDeps::default() })
    })
}

fn create(args: &TokenCreateArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let expires = Some(args.expires.as_str()).filter(|text| *text != "never");
    let parsed = expires.map(parse_token_expiry).transpose().map_err(|e| CliError::Usage(format!("--expires: {e}")))?;
    let check = |_: &ApiTokens| {
        let checked = TokenLifetimes::new(&config.admin).check(TokenKind::Service, parsed);
        checked.map_err(|why| CliError::Usage(format!("--expires: {why}")))
    };
    let input = json!({"name": args.name, "role": args.role, "read_bodies": args.read_bodies, "expires": expires});
    let made = on_tokens(config, home, check)?.call(&OperationId::CreateToken.call().body(input))?;
    if args.format.is_json() {
        return print_json(&made);
    }
    let token = &made["token"];
    let (id, role) = (member(token, "id"), member(token, "role"));
    interflow_host::errln!("created token {id} with the role {role}; it is shown only once and stored as a hash");
    print(&format!("{}\n", member(&made, "secret")));
    Ok(())
}

fn revoke(id: &str, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let check = |tokens: &ApiTokens| match tokens.list().iter().any(|token| token.id == id) {
        true => Ok(()),
        false => Err(CliError::Failed(format!("no such token: {id}; see `interflow tokens list`"))),
    };
    on_tokens(config, home, check)?.call(&OperationId::RevokeToken.call().path(id)).map(drop)
}

fn table(tokens: &[Value]) -> String {
    if tokens.is_empty() {
        return "no tokens; create one with `interflow tokens create --name NAME --role viewer`\n".to_owned();
    }
    let titles = ["ID", "NAME", "KIND", "ROLE", "BODIES", "EXPIRES", "LAST USED"];
    let row = |token: &Value| {
        let expires = if token["expired"] == true { "expired".to_owned() } else { day(&token["expires"]) };
        let bodies = if token["read_bodies"] == true { "yes" } else { "no" };
        let [id, name, kind, role] = ["id", "name", "kind", "role"].map(|n| member(token, n));
        vec![id, name, kind, role, bodies.to_owned(), expires, day(&token["last_used"])]
    };
    format_rows(&titles, tokens.iter().map(row), &["LAST USED", "BODIES", "KIND"])
}

/// The day of a time in microseconds; `never` if it is absent.
pub(super) fn day(micros: &Value) -> String {
    let at = micros.as_u64().map(Timestamp::from_micros);
    let text = at.and_then(|at| jiff::Timestamp::from_second(i64::try_from(at.secs()).ok()?).ok());
    text.map_or_else(|| "never".to_owned(), |t| t.to_string()[..10].to_owned())
}
