//! `interflow media url`: creates a link for a player, sealed with this installation's key.

use std::sync::Arc;

use clap::Args;
use interflow_host::data_dir::DataDir;
use interflow_media::endpoint::{LinkRequest, UnknownName};
use interflow_media::{MediaService, MediaSetup};
use interflow_types::units::HumanDuration;
use interflow_types::{Error, ErrorKind, HttpClient, Request, ResponseFuture};
use serde_json::{Map, Value, json};

use crate::cli::output::{FormatArgs, TextFormat};
use crate::components::media::KEY_FILE;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Args)]
pub struct UrlArgs {
    /// URL to fetch: a file, an HLS playlist or a DASH manifest.
    pub destination: String,
    /// Endpoint [default: by the URL's extension].
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// Header to send upstream (repeatable).
    #[arg(short = 'H', long, value_name = "NAME:VALUE")]
    pub header: Vec<String>,
    /// Parameter of the endpoint, such as resolution=720p (repeatable).
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
    /// Key of encrypted media, KID:KEY in hex (repeatable).
    #[arg(long, value_name = "KID:KEY")]
    pub key: Vec<String>,
    /// Lifetime of the link, such as 6h or 7d.
    #[arg(long, value_name = "TIME")]
    pub expires: Option<HumanDuration>,
    /// Restrict the link to this client address or network.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// Restrict the link to this upstream host, such as *.cdn.example.com (repeatable).
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,
    /// File name for downloads in a browser.
    #[arg(long, value_name = "FILE")]
    pub name: Option<String>,
    /// Base URL of the gateway as players reach it [default: the running instance].
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
    /// Do not encrypt the link; works only if no password is required.
    #[arg(long, conflicts_with_all = ["expires", "ip", "host", "key"])]
    pub clear: bool,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

/// Creates and prints the link.
pub fn run(args: &UrlArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let request = link_request(args)?;
    // With the most similar known name.
    let unknown = |e: UnknownName| CliError::Usage(interflow_query::unknown_key_message(e.what, &e.name, e.known));
    request.check_names().map_err(unknown)?;
    if !args.clear && config.media.link_key.is_empty() && !home.join(KEY_FILE).exists() {
        interflow_host::errln!(
            "warning: no instance has used the data directory {} yet: the link is sealed with a new key, and an \
             instance with another data directory will reject it",
            home.path().display()
        );
    }
    let setup = MediaSetup {
        config: config.media.clone(),
        secret: home.secret(KEY_FILE)?,
        egress: Arc::new(NoEgress),
        key_egress: Arc::new(NoEgress),
        folder: None,
    };
    let media = MediaService::new(setup)?;
    let gateway =
        home.running_instance().and_then(|i| i.gateway).or_else(|| config.engine().gateway.listen.first().copied());
    let base = match (&args.base, gateway) {
        (Some(base), _) => base.clone(),
        (None, Some(gateway)) => media.base(gateway),
        (None, None) => {
            return Err(CliError::Usage("no gateway is configured: say where players reach it with --base".into()));
        }
    };
    let linked = media.link(&request, &base).map_err(CliError::Usage)?;
    match args.format.get() {
        TextFormat::Text => interflow_host::outln!("{}", linked.url),
        TextFormat::Json => interflow_host::outln!("{}", json!({ "url": linked.url, "expires": linked.expires })),
    }
    Ok(())
}

fn link_request(args: &UrlArgs) -> Result<LinkRequest> {
    let mut query = pairs(&args.param, '=', "--param")?;
    if !args.key.is_empty() {
        query.insert("key".into(), args.key.join(",").into());
    }
    if args.expires.is_some_and(|time| time.0.as_secs() == 0) {
        return Err(CliError::Usage("--expires: the link would have expired already; give at least 1s".into()));
    }
    Ok(LinkRequest {
        endpoint: Some(args.endpoint.clone().unwrap_or_else(|| endpoint(&args.destination).into())),
        destination_url: Some(args.destination.clone()),
        query_params: query,
        request_headers: pairs(&args.header, ':', "--header")?,
        expiration: args.expires.map(|e| e.0.as_secs()),
        ip: args.ip.clone(),
        hosts: args.host.clone(),
        filename: args.name.clone(),
        sealed: Some(!args.clear),
        ..LinkRequest::default()
    })
}

fn pairs(given: &[String], between: char, flag: &str) -> Result<Map<String, Value>> {
    let one = |text: &String| {
        let pair = text.split_once(between).map(|(name, value)| (name.trim().to_owned(), value.trim().into()));
        pair.ok_or_else(|| CliError::Usage(format!("{flag} {text}: write it as NAME{between}VALUE")))
    };
    given.iter().map(one).collect()
}

fn endpoint(destination: &str) -> &'static str {
    let path = destination.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    match path.rsplit('.').next() {
        Some("m3u8" | "m3u") => "/proxy/hls/manifest.m3u8",
        Some("mpd") => "/proxy/mpd/manifest.m3u8",
        _ => "/proxy/stream",
    }
}

/// Stub client: creating a link fetches nothing.
struct NoEgress;

impl HttpClient for NoEgress {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(async { Err(Error::new(ErrorKind::Internal, "nothing is fetched to make a link")) })
    }
}
