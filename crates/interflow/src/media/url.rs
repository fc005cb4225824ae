//! `interflow media url`: a link for a player, sealed with this installation's key.

use std::sync::Arc;

use clap::Args;
use interflow_flow::units::Span;
use interflow_flow::{Egress, Error, Kind, Reply, Request};
use interflow_media::endpoint::{LinkWish, Unknown};
use interflow_media::{Media, Setup};
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::config::Config;
use crate::home::Home;
use crate::rooms::media::{KEY_FILE, secret};

/// What the link is for.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// The address to fetch: a file, an HLS playlist or a DASH manifest.
    pub destination: String,
    /// The endpoint; by default what the address's ending asks for.
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// A header to send upstream (repeat for several).
    #[arg(short = 'H', long, value_name = "NAME:VALUE")]
    pub header: Vec<String>,
    /// A parameter of the endpoint, such as resolution=720p (repeat for several).
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
    /// Keys of encrypted media, KID:KEY in hex (repeat for several).
    #[arg(long, value_name = "KID:KEY")]
    pub key: Vec<String>,
    /// For how long the link holds, such as 6h or 7d.
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Span>,
    /// The client that may use it: an address or a network.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// The hosts that it may lead to, such as *.cdn.example.com (repeat for several).
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,
    /// The name under which a browser saves the file.
    #[arg(long, value_name = "FILE")]
    pub name: Option<String>,
    /// Our address as players reach it; the running instance's by default.
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
    /// Write everything in clear: works where no password is needed.
    #[arg(long, conflicts_with_all = ["expires", "ip", "host", "key"])]
    pub clear: bool,
    /// The form of the output.
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub format: Form,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// The link alone.
    Text,
    /// An object with `url` and `expires`.
    Json,
}

/// Makes and prints the link.
pub fn run(args: &UrlArgs, config: &Config, home: &Home) -> Result<(), Failure> {
    let wish = wish(args)?;
    wish.check_names().map_err(|e| Failure::Usage(unknown(&e)))?;
    if !args.clear && config.media.link_key.is_empty() && !home.join(KEY_FILE).exists() {
        anstream::eprintln!(
            "warning: no instance has used the data folder {} yet: the link is sealed with a key that is made now, and an \
             instance with another data folder refuses it",
            home.path().display()
        );
    }
    let setup = Setup { config: config.media.clone(), secret: secret(home)?, egress: Arc::new(Nowhere), folder: None };
    let media = Media::new(setup)?;
    let gateway = home.running().and_then(|i| i.gateway).or_else(|| config.engine().gateway.listen.first().copied());
    let base = match (&args.base, gateway) {
        (Some(base), _) => base.clone(),
        (None, Some(gateway)) => media.base(gateway),
        (None, None) => {
            return Err(Failure::Usage("no gateway is configured: say where players reach it with --base".into()));
        }
    };
    let linked = media.link(&wish, &base).map_err(Failure::Usage)?;
    match args.format {
        Form::Text => println!("{}", linked.url),
        Form::Json => println!("{}", json!({ "url": linked.url, "expires": linked.expires })),
    }
    Ok(())
}

/// Says what is not known, and which known name is nearest.
fn unknown(e: &Unknown) -> String {
    let distance = |known: &str| strsim::damerau_levenshtein(known, &e.name);
    let near = e.known.iter().map(|known| (distance(known), known)).min();
    match near.filter(|(distance, _)| *distance <= (e.name.len() / 3).max(1)) {
        Some((_, known)) => format!("unknown {} `{}`: did you mean `{known}`?", e.what, e.name),
        None => format!("unknown {} `{}`: known are {}", e.what, e.name, e.known.join(", ")),
    }
}

fn wish(args: &UrlArgs) -> Result<LinkWish, Failure> {
    let mut query = pairs(&args.param, '=', "--param")?;
    if !args.key.is_empty() {
        query.insert("key".into(), args.key.join(",").into());
    }
    Ok(LinkWish {
        endpoint: Some(args.endpoint.clone().unwrap_or_else(|| endpoint(&args.destination).into())),
        destination_url: Some(args.destination.clone()),
        query_params: query,
        request_headers: pairs(&args.header, ':', "--header")?,
        expiration: args.expires.map(|e| e.0.as_secs()),
        ip: args.ip.clone(),
        hosts: args.host.clone(),
        filename: args.name.clone(),
        sealed: Some(!args.clear),
        ..LinkWish::default()
    })
}

fn pairs(given: &[String], between: char, flag: &str) -> Result<Map<String, Value>, Failure> {
    let one = |text: &String| {
        let pair = text.split_once(between).map(|(name, value)| (name.trim().to_owned(), value.trim().into()));
        pair.ok_or_else(|| Failure::Usage(format!("{flag} {text}: write it as NAME{between}VALUE")))
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

/// Making a link fetches nothing.
struct Nowhere;

impl Egress for Nowhere {
    fn send(&self, _: Request) -> Reply<'_> {
        Box::pin(async { Err(Error::new(Kind::Internal, "nothing is fetched to make a link")) })
    }
}
